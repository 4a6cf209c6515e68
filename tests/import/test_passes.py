# SPDX-License-Identifier: Apache-2.0
"""Random graphs full of what the passes remove, merge and move: the optimised graph gives every bit of the original,
and both agree with ONNX Runtime. Each graph is made from its seed."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

onnxruntime.set_default_logger_severity(4)
GRAPHS = 150


class Builder:
    """A growing graph whose values all have four dimensions; the running values are computed by nobody here."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.initializers, self.shapes = [], [], {}
        self.inputs = []
        for i in range(2):
            self.inputs.append(helper.make_tensor_value_info(f"x{i}", TensorProto.FLOAT, [1, 2, 3, 4]))
            self.shapes[f"x{i}"] = (1, 2, 3, 4)

    def constant(self, array):
        name = f"k{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, op, inputs, shape, **attributes):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=f"n{len(self.nodes)}", **attributes))
        self.shapes[name] = tuple(int(d) for d in shape)
        return name

    def pick(self, shape=None):
        names = [n for n, s in self.shapes.items() if shape is None or s == shape]
        recent = names[-4:]
        return str(self.rng.choice(recent if self.rng.random() < 0.7 else names))

    def grow(self):
        kinds = [
            "unary",
            "unary",
            "transpose",
            "transpose",
            "transpose",
            "reshape",
            "neutral",
            "binary",
            "binary",
            "channel",
            "identity",
            "concat",
            "slice",
            "pad",
            "softmax",
            "reduce",
            "power",
            "divide",
            "cast",
            "flatten",
            "shape",
            "split",
            "conv",
            "pool",
            "where",
        ]
        getattr(self, str(self.rng.choice(kinds)))()

    def unary(self):
        x = self.pick()
        op = str(self.rng.choice(["Relu", "Neg", "Abs", "Floor", "Sign", "Relu", "Abs", "Identity"]))
        self.add(op, [x], self.shapes[x])

    def transpose(self):
        x = self.pick()
        perm = [
            int(p)
            for p in (
                self.rng.permutation(4)
                if self.rng.random() < 0.5
                else [[0, 2, 3, 1], [0, 3, 1, 2]][int(self.rng.integers(2))]
            )
        ]
        self.add("Transpose", [x], [self.shapes[x][p] for p in perm], perm=perm)

    def reshape(self):
        x = self.pick()
        shape = (
            [self.shapes[x][i] for i in self.rng.permutation(4)] if self.rng.random() < 0.7 else list(self.shapes[x])
        )
        target = list(shape)
        if self.rng.random() < 0.5:
            target[int(self.rng.integers(4))] = -1
        self.add("Reshape", [x, self.constant(np.array(target, np.int64))], shape)

    def flatten(self):
        x = self.pick()
        shape = self.shapes[x]
        flat = self.add("Flatten", [x], (shape[0], int(np.prod(shape[1:]))), axis=1)
        self.add("Reshape", [flat, self.constant(np.array(shape, np.int64))], shape)
        del self.shapes[flat]

    def shape(self):
        x = self.pick()
        s = self.add("Shape", [x], ())
        del self.shapes[s]
        self.add("Reshape", [self.pick(self.shapes[x]), s], self.shapes[x])

    def neutral(self):
        x = self.pick()
        op, neutral = [("Mul", 1.0), ("Add", 0.0), ("Sub", 0.0), ("Div", 1.0)][int(self.rng.integers(4))]
        shape = () if self.rng.random() < 0.5 else self.shapes[x][1:]
        self.add(op, [x, self.constant(np.full(shape, neutral, np.float32))], self.shapes[x])

    def binary(self):
        a = self.pick()
        self.add(
            str(self.rng.choice(["Add", "Sub", "Mul", "Max", "Min"])), [a, self.pick(self.shapes[a])], self.shapes[a]
        )

    def channel(self):
        x = self.pick()
        shape = tuple(d if self.rng.random() < 0.5 else 1 for d in self.shapes[x])
        if self.rng.random() < 0.3:
            shape = shape[1:]
        k = self.constant(self.rng.integers(-3, 4, shape).astype(np.float32))
        self.add(
            str(self.rng.choice(["Add", "Mul", "Max"])), [x, k] if self.rng.random() < 0.5 else [k, x], self.shapes[x]
        )

    def identity(self):
        x = self.pick()
        choice = int(self.rng.integers(4))
        if choice == 0:
            self.add("Dropout", [x], self.shapes[x])
        elif choice == 1:
            self.add("Pad", [x, self.constant(np.zeros(8, np.int64))], self.shapes[x])
        elif choice == 2:
            self.add("Cast", [x], self.shapes[x], to=TensorProto.FLOAT)
        else:
            self.add("Concat", [x], self.shapes[x], axis=1)

    def concat(self):
        a = self.pick()
        axis = int(self.rng.integers(4))
        shape = list(self.shapes[a])
        if shape[axis] > 8:
            return
        shape[axis] *= 2
        self.add("Concat", [a, self.pick(self.shapes[a])], shape, axis=axis)

    def slice(self):
        x = self.pick()
        axis = int(self.rng.integers(4))
        shape, step = list(self.shapes[x]), int(self.rng.choice([1, 1, -1]))
        start, end = (0, 1000) if step > 0 else (-1, -1000)
        if shape[axis] > 1 and self.rng.random() < 0.5:
            shape[axis] -= 1
            start = start + step
        k = [self.constant(np.array([v], np.int64)) for v in (start, end, axis, step)]
        self.add("Slice", [x, *k], shape)

    def split(self):
        x = self.pick()
        axis = int(self.rng.integers(4))
        shape = list(self.shapes[x])
        if shape[axis] % 2:
            return
        shape[axis] //= 2
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node("Split", [x], [name, name + "b"], axis=axis))
        self.shapes[name] = self.shapes[name + "b"] = tuple(shape)

    def pad(self):
        x = self.pick()
        pads = self.rng.integers(0, 2, 8)
        shape = [d + int(pads[i] + pads[i + 4]) for i, d in enumerate(self.shapes[x])]
        if np.prod(shape) < 2000:
            self.add("Pad", [x, self.constant(pads.astype(np.int64)), self.constant(np.float32(2.0))], shape)

    def softmax(self):
        x = self.pick()
        self.add("Softmax", [x], self.shapes[x], axis=int(self.rng.integers(-4, 4)))

    def reduce(self):
        x = self.pick()
        axis = int(self.rng.integers(4))
        shape = list(self.shapes[x])
        shape[axis] = 1
        self.add(str(self.rng.choice(["ReduceMax", "ReduceMin"])), [x], shape, axes=[axis], keepdims=1)

    def power(self):
        x = self.pick()
        x = self.add("Clip", [x, self.constant(np.float32(-8)), self.constant(np.float32(8))], self.shapes[x])
        self.add("Pow", [x, self.constant(np.float32(self.rng.choice([1, 2])))], self.shapes[x])

    def divide(self):
        x = self.pick()
        self.add("Div", [x, self.constant(np.float32(self.rng.choice([0.25, 2, -8, 3])))], self.shapes[x])

    def cast(self):
        x = self.pick()
        shape = self.shapes[x]
        x = self.add(
            "Floor",
            [self.add("Clip", [x, self.constant(np.float32(-100)), self.constant(np.float32(100))], shape)],
            shape,
        )
        through = self.rng.choice(
            [TensorProto.INT8, TensorProto.INT32, TensorProto.DOUBLE, TensorProto.FLOAT16], size=2
        )
        for dtype in through:
            x = self.add("Cast", [x], shape, to=int(dtype))
            del self.shapes[x]
        self.add("Cast", [x], shape, to=TensorProto.FLOAT)

    def conv(self):
        x = self.pick()
        n, c, h, w = self.shapes[x]
        if h < 3 or w < 3 or n * c * h * w > 500:
            return
        padded = self.add("Pad", [x, self.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2], np.int64))], (n, c, h + 1, w + 2))
        weights = self.constant(self.rng.integers(-2, 3, (2, c, 3, 3)).astype(np.float32))
        self.add("Conv", [padded, weights], (n, 2, h + 1, w + 2), pads=[1, 1, 1, 1])

    def pool(self):
        x = self.pick()
        n, c, h, w = self.shapes[x]
        padded = self.add("Pad", [x, self.constant(np.array([0, 0, 0, 1, 0, 0, 1, 0], np.int64))], (n, c, h + 1, w + 1))
        self.add(str(self.rng.choice(["AveragePool", "MaxPool"])), [padded], (n, c, h, w), kernel_shape=[2, 2])

    def where(self):
        a = self.pick()
        condition = self.constant(np.full(self.shapes[a], bool(self.rng.integers(2))))
        self.add("Where", [condition, a, self.pick(self.shapes[a])], self.shapes[a])

    def model(self):
        used = {i for node in self.nodes for i in node.input}
        outputs = [n for n in self.shapes if n not in used and not n.startswith("x")] or [list(self.shapes)[-1]]
        outputs += [n for n in list(self.shapes)[-3:] if n not in outputs and not n.startswith("x")]
        infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, self.shapes[n]) for n in outputs]
        graph = helper.make_graph(self.nodes, "random", self.inputs, infos, self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        return model


def random_model(seed):
    builder = Builder(seed)
    for _ in range(int(builder.rng.integers(6, 26))):
        builder.grow()
    return builder.model()


@pytest.mark.parametrize("first", range(0, GRAPHS, 25))
def test_random_graphs(nn, first):
    fewer = 0
    for seed in range(first, first + 25):
        model = random_model(seed)
        rng = np.random.default_rng(seed + 10000)
        feeds = {f"x{i}": rng.integers(-6, 7, (1, 2, 3, 4)).astype(np.float32) / 2 for i in range(2)}
        original = nn.Model(model.SerializeToString())
        expected = original.run(feeds)
        optimised = nn.Model(model.SerializeToString())
        optimised.optimise()
        actual = optimised.run(feeds)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        oracle = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
        assert original.outputs == optimised.outputs
        for name, other in zip([o.name for o in model.graph.output], oracle):
            assert expected[name].shape == other.shape, (seed, name)
            np.testing.assert_allclose(
                expected[name], other, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}, {name}, against ONNX Runtime"
            )
            # + 0 makes the two zeros alike: x + 0 is removed although it turns -0 into 0.
            same = (actual[name] + 0).tobytes() == (expected[name] + 0).tobytes()
            assert same or np.array_equal(actual[name], expected[name], equal_nan=True), (
                f"seed {seed}, {name}: the passes changed the result"
            )
        assert len(optimised.nodes()) <= len(original.nodes()), seed
        fewer += len(original.nodes()) - len(optimised.nodes())
    assert fewer > 50


def test_batch_norm_folding_is_close(nn):
    """Weights are rounded once more: close, not equal."""
    rng = np.random.default_rng(4)
    for transposed in (False, True):
        op = "ConvTranspose" if transposed else "Conv"
        weights = (4, 3, 3, 3) if transposed else (6, 2, 3, 3)
        channels = 6
        nodes = [
            helper.make_node(op, ["x", "w", "b"], ["c"], group=2),
            helper.make_node("BatchNormalization", ["c", "s", "t", "m", "v"], ["n"], epsilon=1e-3),
            helper.make_node("Mul", ["n", "k"], ["p"]),
            helper.make_node("Add", ["l", "p"], ["y"]),
        ]
        tensors = {"w": weights, "b": (6,), "s": (6,), "t": (6,), "m": (6,), "k": (1, 6, 1, 1), "l": (6, 1, 1)}
        initializers = [
            numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
            for name, shape in tensors.items()
        ]
        initializers.append(numpy_helper.from_array(rng.random(channels).astype(np.float32) + 0.5, "v"))
        graph = helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4, 7, 7])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        feeds = {"x": rng.standard_normal((2, 4, 7, 7)).astype(np.float32)}
        original, folded = nn.Model(model.SerializeToString()), nn.Model(model.SerializeToString())
        folded.optimise()
        assert [o for _, _, o, _ in folded.nodes()] == [op]
        np.testing.assert_allclose(folded.run(feeds)["y"], original.run(feeds)["y"], rtol=1e-4, atol=1e-4)
