# SPDX-License-Identifier: Apache-2.0
"""Small float models with seeded weights, of the kinds that exporters write, for the tests of quantisation. Each
function gives a ModelProto; MODELS lists them by name."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Builder:
    """Collects nodes and constants; weights are drawn so that values keep their size from layer to layer."""

    def __init__(self, opset=13, seed=0, dtype=np.float32):
        self.nodes, self.constants, self.opset, self.dtype = [], [], opset, dtype
        self.rng = np.random.default_rng(seed)

    def constant(self, array):
        name = f"c{len(self.constants)}"
        array = np.asarray(array)
        if array.dtype.kind == "f":
            array = array.astype(self.dtype)
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def weights(self, *shape, fan=None):
        fan = fan or int(np.prod(shape[1:]))
        return self.constant(self.rng.standard_normal(shape) * np.sqrt(2 / fan))

    def node(self, op, inputs, outputs=1, **attributes):
        names = [f"t{len(self.nodes)}_{k}" for k in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op.lower()}{len(self.nodes)}", **attributes))
        return names[0] if outputs == 1 else names

    def conv(self, x, channels_in, channels, kernel=3, stride=1, group=1, bias=True):
        w = self.weights(channels, channels_in // group, kernel, kernel)
        operands = [x, w] + ([self.constant(self.rng.standard_normal(channels) * 0.1)] if bias else [])
        pad = kernel // 2
        return self.node("Conv", operands, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=group)

    def batch_norm(self, x, channels, **attributes):
        rng = self.rng
        values = (
            rng.uniform(0.5, 1.5, channels),
            rng.standard_normal(channels) * 0.2,
            rng.standard_normal(channels) * 0.2,
            rng.uniform(0.5, 2, channels),
        )
        return self.node("BatchNormalization", [x, *(self.constant(v) for v in values)], **attributes)

    def model(self, inputs, outputs):
        """inputs: name -> shape; outputs: names."""
        kind = TensorProto.FLOAT16 if self.dtype == np.float16 else TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "small",
            [helper.make_tensor_value_info(name, kind, shape) for name, shape in inputs.items()],
            [helper.make_tensor_value_info(name, kind, None) for name in outputs],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)


IMAGE = {"x": [1, 3, 16, 16]}


def relu6():
    b = Builder()
    x = b.batch_norm(b.conv("x", 3, 16, stride=2, bias=False), 16)
    x = b.node("Clip", [x, b.constant(np.float32(0)), b.constant(np.float32(6))])
    return b.model(IMAGE, [b.conv(x, 16, 8)])


def depthwise():
    b = Builder(seed=1)
    x = b.node("Relu", [b.conv("x", 3, 16)])
    x = b.node("Relu", [b.conv(x, 16, 16, group=16, stride=2)])
    return b.model(IMAGE, [b.conv(x, 16, 24, kernel=1)])


def residual():
    b = Builder(seed=2)
    x = b.node("Relu", [b.conv("x", 3, 16)])
    y = b.conv(b.node("Relu", [b.conv(x, 16, 16)]), 16, 16)
    y = b.node("Relu", [b.node("Add", [y, x])])
    y = b.node("Flatten", [b.node("GlobalAveragePool", [y])])
    return b.model(IMAGE, [b.node("Gemm", [y, b.weights(10, 16), b.constant(np.zeros(10))], transB=1)])


def concat():
    b = Builder(seed=3)
    x = b.node("Relu", [b.conv("x", 3, 16)])
    left, right = b.node("Relu", [b.conv(x, 16, 8, kernel=1)]), b.conv(x, 16, 8)
    x = b.node("MaxPool", [b.node("Concat", [left, right], axis=1)], kernel_shape=[2, 2], strides=[2, 2])
    return b.model(IMAGE, [b.conv(x, 16, 8)])


def gemm():
    b = Builder(seed=4)
    x = b.node("Relu", [b.node("Gemm", ["x", b.weights(40, 32, fan=40), b.constant(np.ones(32))], alpha=0.5, beta=2.0)])
    x = b.node("Add", [b.node("MatMul", [x, b.weights(32, 16, fan=32)]), b.constant(np.linspace(-1, 1, 16))])
    x = b.node("Tanh", [x])
    return b.model({"x": [4, 40]}, [b.node("Gemm", [x, b.weights(10, 16), b.constant(np.zeros(10))], transB=1)])


def attention():
    b = Builder(opset=17, seed=5)
    normal = b.node("LayerNormalization", ["x", b.constant(np.ones(32)), b.constant(np.zeros(32))], axis=-1)
    heads = []
    for _ in range(3):
        y = b.node("Add", [b.node("MatMul", [normal, b.weights(32, 32)]), b.constant(b.rng.standard_normal(32) * 0.1)])
        y = b.node("Reshape", [y, b.constant(np.int64([1, 12, 4, 8]))])
        heads.append(b.node("Transpose", [y], perm=[0, 2, 1, 3]))
    q, k, v = heads
    scores = b.node("MatMul", [q, b.node("Transpose", [k], perm=[0, 1, 3, 2])])
    scores = b.node("Softmax", [b.node("Mul", [scores, b.constant(np.float32(0.35))])], axis=-1)
    y = b.node("Transpose", [b.node("MatMul", [scores, v])], perm=[0, 2, 1, 3])
    y = b.node("Reshape", [y, b.constant(np.int64([1, 12, 32]))])
    y = b.node("Add", [b.node("MatMul", [y, b.weights(32, 32)]), "x"])
    return b.model({"x": [1, 12, 32]}, [y])


def opset7():
    b = Builder(opset=7, seed=6)
    x = b.batch_norm(b.conv("x", 3, 16), 16)
    x = b.node("Clip", [x], min=0.0, max=6.0)
    x = b.node("Dropout", [b.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])], ratio=0.5)
    x = b.node("Upsample", [x], scales=[1.0, 1.0, 2.0, 2.0], mode="nearest")
    x = b.node("Sum", [b.conv(x, 16, 8), b.conv(x, 16, 8, kernel=1)])
    x = b.node("Squeeze", [b.node("GlobalAveragePool", [x])], axes=[2, 3])
    return b.model(IMAGE, [b.node("Softmax", [b.node("Gemm", [x, b.weights(8, 4), b.constant(np.zeros(4))])])])


def opset6(modern=False):
    """Broadcasting along an axis, as it was written before opset 7; modern: the same in opset 13."""
    b = Builder(opset=13 if modern else 6, seed=7)
    x = b.conv("x", 3, 8, bias=False)
    offset = np.linspace(-0.5, 0.5, 8)
    if modern:
        x = b.node("Add", [x, b.constant(offset.reshape(8, 1, 1))])
        x = b.batch_norm(x, 8)
    else:
        x = b.node("Add", [x, b.constant(offset)], broadcast=1, axis=1)
        x = b.batch_norm(x, 8, is_test=1)
    return b.model(IMAGE, [b.conv(b.node("Relu", [x]), 8, 8)])


def dynamic_batch():
    b = Builder(seed=8)
    x = b.node("Relu", [b.conv("x", 3, 8, stride=2)])
    return b.model({"x": ["n", 3, 16, 16]}, [b.conv(x, 8, 8)])


def nhwc():
    b = Builder(seed=9)
    x = b.node("Transpose", ["x"], perm=[0, 3, 1, 2])
    x = b.node("Relu", [b.conv(x, 3, 8)])
    return b.model({"x": [1, 16, 16, 3]}, [b.node("Transpose", [b.conv(x, 8, 8)], perm=[0, 2, 3, 1])])


def half():
    b = Builder(seed=10, dtype=np.float16)
    x = b.node("Relu", [b.conv("x", 3, 8)])
    return b.model(IMAGE, [b.conv(x, 8, 8)])


def silu():
    b = Builder(seed=11)
    x = b.conv("x", 3, 16)
    x = b.node("Mul", [x, b.node("Sigmoid", [x])])
    return b.model(IMAGE, [b.conv(x, 16, 8)])


def silu_uneven():
    """Channels of very different sizes with SiLU between convolutions, which a pool, a concatenation and depthwise
    convolutions read."""
    b = Builder(seed=22)
    sizes = np.geomspace(0.02, 40, 24).astype(np.float32)[b.rng.permutation(24)]
    swish = lambda x: b.node("Mul", [x, b.node("Sigmoid", [x])])
    w = b.constant(b.rng.standard_normal((24, 3, 3, 3)) * sizes[:, None, None, None] * 0.3)
    x = swish(b.node("Conv", ["x", w], pads=[1] * 4))
    w = b.constant(b.rng.standard_normal((24, 1, 3, 3)) / sizes[:, None, None, None])
    deep = swish(b.node("Conv", [x, w, b.constant(b.rng.standard_normal(24))], pads=[1] * 4, group=24))
    pool = b.node("MaxPool", [x], kernel_shape=[3, 3], pads=[1] * 4)
    both = b.node("Concat", [x, pool], axis=1)
    w = b.constant(b.rng.standard_normal((8, 48, 1, 1)) / np.concatenate([sizes, sizes])[None, :, None, None])
    return b.model(IMAGE, [b.node("Add", [b.conv(deep, 24, 8), b.node("Conv", [both, w])])])


def hard_swish():
    b = Builder(opset=14, seed=12)
    x = b.node("HardSwish", [b.conv("x", 3, 16)])
    return b.model(IMAGE, [b.conv(x, 16, 8)])


def gelu():
    b = Builder(seed=13)
    x = b.conv("x", 3, 16)
    y = b.node("Erf", [b.node("Div", [x, b.constant(np.float32(np.sqrt(2)))])])
    y = b.node("Mul", [x, b.node("Add", [y, b.constant(np.float32(1))])])
    y = b.node("Mul", [y, b.constant(np.float32(0.5))])
    return b.model(IMAGE, [b.conv(y, 16, 8)])


def batch_norm_alone():
    b = Builder(seed=14)
    x = b.node("Relu", [b.batch_norm(b.node("MaxPool", [b.conv("x", 3, 8)], kernel_shape=[2, 2]), 8)])
    return b.model(IMAGE, [b.conv(x, 8, 8)])


def two_inputs():
    b = Builder(seed=15)
    x = b.node("Add", [b.conv("x", 3, 8), b.conv("z", 1, 8)])
    return b.model({**IMAGE, "z": [1, 1, 16, 16]}, [b.conv(b.node("Relu", [x]), 8, 8)])


def squeeze_and_excite():
    b = Builder(seed=16)
    x = b.node("Relu", [b.conv("x", 3, 16)])
    y = b.node("Relu", [b.conv(b.node("GlobalAveragePool", [x]), 16, 8, kernel=1)])
    y = b.node("Sigmoid", [b.conv(y, 8, 16, kernel=1)])
    return b.model(IMAGE, [b.conv(b.node("Mul", [x, y]), 16, 8)])


MODELS = {
    function.__name__: function
    for function in (
        relu6,
        depthwise,
        residual,
        concat,
        gemm,
        attention,
        opset7,
        opset6,
        dynamic_batch,
        nhwc,
        half,
        silu,
        hard_swish,
        gelu,
        batch_norm_alone,
        two_inputs,
        squeeze_and_excite,
    )
}


def feeds_of(model, count, seed=0):
    """Seeded feeds with a batch of one where the batch is dynamic."""
    rng = np.random.default_rng(seed)
    constants = {tensor.name for tensor in model.graph.initializer}
    feeds = []
    for _ in range(count):
        feed = {}
        for value in model.graph.input:
            if value.name in constants:
                continue
            kind = value.type.tensor_type
            shape = [d.dim_value or 1 for d in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            feed[value.name] = rng.standard_normal(shape).astype(dtype)
        feeds.append(feed)
    return feeds
