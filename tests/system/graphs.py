# SPDX-License-Identifier: Apache-2.0
"""Random float networks of the idioms that real ones are made of, seeded: residual blocks, inverted residuals,
inception branches, squeeze and excite, channel shuffle, splits, depthwise and dilated convolutions, transposed
convolutions, pads, pools, resizes, layout transposes, attention, heads. In: a seed. Out: a model of opset 9 to 21 with
its feeds, one to three inputs, one to five outputs (intermediates among them), batch 1 to 4, fixed or dynamic. Weights
keep the variance of activations near 1, so that quantising the model leaves something to compare."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Network:
    """Nodes and shapes under construction. Tensors are names; `shape` knows each one's extents, the batch first."""

    def __init__(self, seed, opset=None):
        self.rng = np.random.default_rng(seed)
        self.opset = int(opset or self.rng.choice([9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21]))
        self.nodes, self.initializers, self.inputs, self.feeds, self.shape = [], [], [], {}, {}
        self.batch = int(self.rng.choice([1, 1, 1, 2, 3, 4]))
        self.dynamic = bool(self.rng.random() < 0.2)
        self.shared, self.log, self.extra = {}, [], []

    # --- pieces
    # ----------------------------------------------------------------------------------------------------------

    def chance(self, p):
        return bool(self.rng.random() < p)

    def pick(self, *choices):
        return choices[int(self.rng.integers(len(choices)))]

    def input(self, shape):
        name = f"input{len(self.inputs)}"
        dims = (["N"] if self.dynamic else [shape[0]]) + list(shape[1:])
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims))
        self.feeds[name] = self.rng.standard_normal(shape).astype(np.float32)
        self.shape[name] = list(shape)
        return name

    def constant(self, array, as_node=False):
        name = f"k{len(self.initializers) + len(self.nodes)}"
        tensor = numpy_helper.from_array(np.asarray(array), name)
        if as_node:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.initializers.append(tensor)
        self.shape[name] = list(np.shape(array))
        return name

    def ints(self, *values):
        return self.constant(np.array(values, np.int64), self.chance(0.2))

    def node(self, op_type, inputs, shape, outputs=1, **attributes):
        index = len(self.nodes)
        names = [f"t{index}" if i == 0 else f"t{index}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(op_type, inputs, names, name=f"n{index}_{op_type}", **attributes))
        for name, extents in zip(names, [shape] if outputs == 1 else shape):
            self.shape[name] = list(extents)
        return names[0] if outputs == 1 else names

    def weights(self, shape, fan_in):
        key = tuple(shape)
        if key in self.shared and self.chance(0.3):
            return self.shared[key]
        self.shared[key] = self.constant((self.rng.standard_normal(shape) / np.sqrt(fan_in)).astype(np.float32))
        return self.shared[key]

    def conv(self, x, out, kernel=None, *, stride=1, dilation=1, group=1, same=True, bias=None, norm=None):
        n, c, *space = self.shape[x]
        kernel = kernel or [1] * len(space)
        kernel = kernel if isinstance(kernel, list) else [kernel] * len(space)
        attributes, result = {}, []
        pads = [(k - 1) * dilation // 2 for k in kernel] if same else [0] * len(space)
        if any((k - 1) * dilation + 1 > s + 2 * p for k, s, p in zip(kernel, space, pads)):
            kernel, pads = [1] * len(space), [0] * len(space)
        after = list(pads)
        if same and self.chance(0.15) and dilation == 1:
            attributes["auto_pad"] = self.pick("SAME_UPPER", "SAME_LOWER")
            result = [-(-s // stride) for s in space]
        else:
            if same and self.chance(0.15):
                after = [p + 1 for p in after]
            if any(pads) or any(after) or self.chance(0.5):
                attributes["pads"] = pads + after
            result = [
                (s + p + q - (k - 1) * dilation - 1) // stride + 1 for s, p, q, k in zip(space, pads, after, kernel)
            ]
        if stride != 1 or self.chance(0.5):
            attributes["strides"] = [stride] * len(space)
        if dilation != 1:
            attributes["dilations"] = [dilation] * len(space)
        if group != 1 or self.chance(0.5):
            attributes["group"] = group
        if self.chance(0.6):
            attributes["kernel_shape"] = kernel
        operands = [x, self.weights([out, c // group, *kernel], c // group * int(np.prod(kernel)))]
        if self.chance(0.6) if bias is None else bias:
            operands.append(self.constant((self.rng.standard_normal(out) * 0.3).astype(np.float32)))
        y = self.node("Conv", operands, [n, out, *result], **attributes)
        return self.batch_norm(y) if (self.chance(0.4) if norm is None else norm) else y

    def batch_norm(self, x):
        c = self.shape[x][1]
        parameters = [
            self.rng.uniform(0.5, 1.5, c),
            self.rng.normal(0, 0.2, c),
            self.rng.normal(0, 0.2, c),
            self.rng.uniform(0.5, 1.5, c),
        ]
        return self.node(
            "BatchNormalization",
            [x, *[self.constant(p.astype(np.float32)) for p in parameters]],
            self.shape[x],
            epsilon=1e-5,
        )

    def clip(self, x, low, high):
        if self.opset < 11:
            return self.node("Clip", [x], self.shape[x], min=low, max=high)
        return self.node("Clip", [x, self.constant(np.float32(low)), self.constant(np.float32(high))], self.shape[x])

    def activation(self, x, kind=None):
        kind = kind or self.pick(
            "Relu",
            "Relu",
            "Relu",
            "Relu6",
            "LeakyRelu",
            "HardSwish",
            "HardSigmoid",
            "Sigmoid",
            "Silu",
            "Tanh",
            "Gelu",
            "Elu",
            "PRelu",
            "Softplus",
            "Clip",
            "none",
        )
        shape = self.shape[x]
        if kind == "none":
            return x
        if kind == "Relu6":
            return self.clip(x, 0.0, 6.0)
        if kind == "Clip":
            return self.clip(x, -1.0, 2.0)
        if kind == "LeakyRelu":
            return self.node(kind, [x], shape, alpha=0.1)
        if kind == "HardSwish":
            if self.opset >= 14 and self.chance(0.5):
                return self.node("HardSwish", [x], shape)
            six = self.clip(self.node("Add", [x, self.constant(np.float32(3))], shape), 0.0, 6.0)
            return self.node("Div", [self.node("Mul", [x, six], shape), self.constant(np.float32(6))], shape)
        if kind == "Silu":
            return self.node("Mul", [x, self.node("Sigmoid", [x], shape)], shape)
        if kind == "Gelu":
            if self.opset >= 20 and self.chance(0.5):
                return self.node("Gelu", [x], shape, approximate=self.pick("none", "tanh"))
            erf = self.node("Erf", [self.node("Div", [x, self.constant(np.float32(np.sqrt(2)))], shape)], shape)
            one = self.node("Add", [erf, self.constant(np.float32(1))], shape)
            return self.node("Mul", [self.node("Mul", [x, one], shape), self.constant(np.float32(0.5))], shape)
        if kind == "PRelu":
            slope = self.rng.uniform(0, 0.4, [shape[1]] + [1] * (len(shape) - 2)).astype(np.float32)
            return self.node("PRelu", [x, self.constant(slope)], shape)
        return self.node(kind, [x], shape)

    def reshape(self, x, shape):
        """Reshape, its target with 0 or -1 for the batch; a dynamic batch must be one of the two."""
        target = list(shape)
        if shape[0] == self.shape[x][0] and (self.dynamic or self.chance(0.4)):
            target[0] = self.pick(0, -1)
        elif self.dynamic:
            target[0] = -1
        return self.node("Reshape", [x, self.ints(*target)], shape)

    def transpose(self, x, order):
        return self.node("Transpose", [x], [self.shape[x][i] for i in order], perm=list(order))

    def split(self, x, axis, sizes):
        shapes = [self.shape[x][:axis] + [s] + self.shape[x][axis + 1 :] for s in sizes]
        if self.opset < 13:
            return self.node("Split", [x], shapes, outputs=len(sizes), axis=axis, split=list(sizes))
        if self.opset >= 18 and len(set(sizes)) == 1 and self.chance(0.5):
            return self.node("Split", [x], shapes, outputs=len(sizes), axis=axis, num_outputs=len(sizes))
        return self.node("Split", [x, self.ints(*sizes)], shapes, outputs=len(sizes), axis=axis)

    def slice(self, x, starts, ends, axes, steps=None):
        shape = list(self.shape[x])
        for a, s, e, t in zip(axes, starts, ends, steps or [1] * len(axes)):
            shape[a] = len(range(*slice(s, e, t).indices(shape[a])))
        if self.opset < 10:
            return self.node("Slice", [x], shape, starts=list(starts), ends=list(ends), axes=list(axes))
        operands = [x, self.ints(*starts), self.ints(*ends), self.ints(*axes)] + ([self.ints(*steps)] if steps else [])
        return self.node("Slice", operands, shape)

    def pad(self, x, before, after, mode="constant", value=0.0):
        shape = [s + p + q for s, p, q in zip(self.shape[x], before, after)]
        if self.opset < 11:
            return self.node("Pad", [x], shape, pads=before + after, mode=mode, value=value)
        operands = [x, self.ints(*before, *after)] + (
            [self.constant(np.float32(value))] if mode == "constant" and self.chance(0.7) else []
        )
        return self.node("Pad", operands, shape, mode=mode)

    def reduce_mean(self, x, axes, keep):
        shape = [1 if i in axes else s for i, s in enumerate(self.shape[x]) if keep or i not in axes]
        if self.opset < 18:
            return self.node("ReduceMean", [x], shape, axes=list(axes), keepdims=int(keep))
        return self.node("ReduceMean", [x, self.ints(*axes)], shape, keepdims=int(keep))

    def global_pool(self, x):
        n, c, *space = self.shape[x]
        if self.chance(0.3):
            return self.reduce_mean(x, list(range(2, 2 + len(space))), True)
        return self.node(
            self.pick("GlobalAveragePool", "GlobalAveragePool", "GlobalMaxPool"), [x], [n, c] + [1] * len(space)
        )

    def squeeze(self, x, axes):
        shape = [s for i, s in enumerate(self.shape[x]) if i not in axes]
        if self.opset < 13:
            return self.node("Squeeze", [x], shape, axes=list(axes))
        return self.node("Squeeze", [x, self.ints(*axes)], shape)

    def unsqueeze(self, x, axes):
        shape = list(self.shape[x])
        for a in axes:
            shape.insert(a, 1)
        if self.opset < 13:
            return self.node("Unsqueeze", [x], shape, axes=list(axes))
        return self.node("Unsqueeze", [x, self.ints(*axes)], shape)

    # --- idioms on images [n, c, spatial...]
    # ----------------------------------------------------------------------------------------------------------

    def plain(self, x):
        return self.activation(
            self.conv(x, self.pick(3, 8, 16, 17, 24, 32, 40), self.pick(1, 3, 3, 5), stride=self.pick(1, 1, 2))
        )

    def residual(self, x):
        c = self.shape[x][1]
        y = self.activation(self.conv(x, c, 3, bias=True), "Relu")
        short = x
        attempt = self.conv(y, c, 1)
        if self.shape[attempt] != self.shape[x]:
            short = self.conv(x, c, 1)
            if self.shape[short] != self.shape[attempt]:
                return attempt
        return self.activation(
            self.node("Add", self.pick([attempt, short], [short, attempt]), self.shape[attempt]),
            self.pick("Relu", "none"),
        )

    def inverted(self, x):
        c = self.shape[x][1]
        wide = self.activation(self.conv(x, c * self.pick(2, 3, 6), 1), "Relu6")
        deep = self.activation(
            self.conv(wide, self.shape[wide][1], self.pick(3, 5), group=self.shape[wide][1]), "Relu6"
        )
        y = self.conv(deep, c, 1)
        return self.node("Add", [x, y], self.shape[x]) if self.shape[y] == self.shape[x] else y

    def inception(self, x):
        branches = [self.activation(self.conv(x, self.pick(4, 8, 13), 1), "Relu")]
        for _ in range(self.pick(1, 2)):
            y = self.activation(self.conv(self.conv(x, 8, 1), self.pick(5, 8, 16), 3), "Relu")
            if self.shape[y][2:] == self.shape[branches[0]][2:]:
                branches.append(y)
        dims = len(self.shape[x]) - 2
        pool = self.node(
            self.pick("MaxPool", "AveragePool"),
            [x],
            self.shape[x],
            kernel_shape=[3] * dims,
            pads=[1] * 2 * dims,
            strides=[1] * dims,
        )
        if self.shape[pool][2:] == self.shape[branches[0]][2:]:
            branches.append(pool)
        if self.chance(0.2):
            branches.append(branches[0])
        self.rng.shuffle(branches)
        return self.node(
            "Concat",
            branches,
            [self.shape[x][0], sum(self.shape[b][1] for b in branches), *self.shape[branches[0]][2:]],
            axis=self.pick(1, 1 - len(self.shape[x])),
        )

    def squeeze_excite(self, x):
        n, c, *space = self.shape[x]
        g = self.activation(self.conv(self.global_pool(x), max(1, c // 4), 1, norm=False), "Relu")
        gate = self.activation(self.conv(g, c, 1, norm=False), self.pick("Sigmoid", "HardSigmoid"))
        if self.shape[gate] != [n, c] + [1] * len(space):
            return x
        return self.node("Mul", self.pick([x, gate], [gate, x]), self.shape[x])

    def shuffle(self, x):
        n, c, *space = self.shape[x]
        groups = next(g for g in (4, 2, 3, 1) if c % g == 0)
        y = self.reshape(x, [n, groups, c // groups, *space])
        y = self.transpose(y, [0, 2, 1, *range(3, 3 + len(space))])
        return self.reshape(y, [n, c, *space])

    def split_block(self, x):
        c = self.shape[x][1]
        if c < 2:
            return x
        first = c // 2 if self.chance(0.7) else 1
        a, b = self.split(x, 1, [first, c - first])
        y = self.activation(self.conv(b, self.pick(4, 8), 1, norm=False))
        if self.shape[y][2:] != self.shape[a][2:]:
            return y
        return self.node("Concat", [a, y], [self.shape[x][0], first + self.shape[y][1], *self.shape[a][2:]], axis=1)

    def depthwise(self, x):
        c = self.shape[x][1]
        return self.activation(
            self.conv(
                x,
                c * self.pick(1, 1, 2, 3),
                self.pick(3, 3, 5, 7),
                group=c,
                stride=self.pick(1, 2),
                dilation=self.pick(1, 1, 2),
            )
        )

    def grouped(self, x):
        c = self.shape[x][1]
        groups = next(g for g in (4, 3, 2, 1) if c % g == 0)
        return self.activation(self.conv(x, groups * self.pick(2, 4, 8), 3, group=groups))

    def dilated(self, x):
        return self.activation(self.conv(x, self.pick(8, 12), 3, dilation=self.pick(2, 3)))

    def transposed(self, x):
        n, c, *space = self.shape[x]
        if max(space) > 16:
            return self.plain(x)
        out, k, s = self.pick(4, 8), self.pick(2, 3, 4), 2
        w = self.weights([c, out, *[k] * len(space)], c * k)
        operands = [x, w] + (
            [self.constant(self.rng.standard_normal(out).astype(np.float32))] if self.chance(0.5) else []
        )
        return self.node(
            "ConvTranspose",
            operands,
            [n, out, *[(e - 1) * s + k for e in space]],
            strides=[s] * len(space),
            kernel_shape=[k] * len(space),
        )

    def padded(self, x):
        dims = len(self.shape[x]) - 2
        mode = self.pick("constant", "constant", "reflect", "edge")
        if min(self.shape[x][2:]) < 3:
            mode = "constant"
        before, after = (
            [0, 0] + [self.pick(0, 1, 2) for _ in range(dims)],
            [0, 0] + [self.pick(0, 1, 2) for _ in range(dims)],
        )
        y = self.pad(x, before, after, mode, self.pick(0.0, 0.0, -1.0, 0.5))
        return self.conv(y, self.pick(4, 8, 16), self.pick(1, 3), same=False) if self.chance(0.7) else y

    def pool(self, x):
        n, c, *space = self.shape[x]
        k, s, op = self.pick(2, 3), self.pick(1, 2), self.pick("MaxPool", "MaxPool", "AveragePool")
        if min(space) < k:
            return x
        attributes, p = {}, self.pick(0, 0, 1)
        out = [(e + 2 * p - k) // s + 1 for e in space]
        if p:
            attributes["pads"] = [p] * 2 * len(space)
        elif self.opset >= 10 and self.chance(0.3):
            attributes["ceil_mode"] = 1
            out = [-(-(e - k) // s) + 1 for e in space]
        if op == "AveragePool" and self.chance(0.4):
            attributes["count_include_pad"] = 1
            attributes.pop("ceil_mode", None)
            out = [(e + 2 * p - k) // s + 1 for e in space]
        if op == "MaxPool" and self.chance(0.1):
            return self.node(
                op,
                [x],
                [[n, c, *out]] * 2,
                outputs=2,
                kernel_shape=[k] * len(space),
                strides=[s] * len(space),
                **attributes,
            )[0]
        return self.node(op, [x], [n, c, *out], kernel_shape=[k] * len(space), strides=[s] * len(space), **attributes)

    def resize(self, x):
        n, c, *space = self.shape[x]
        if max(space) > 16:
            return self.pool(x)
        out = [n, c, *[2 * e for e in space]]
        scales = self.constant(np.array([1, 1] + [2] * len(space), np.float32))
        mode = self.pick("nearest", "nearest", "linear")
        if self.opset == 9:
            return self.node("Upsample", [x, scales], out, mode=mode)
        if self.opset == 10:
            return self.node("Resize", [x, scales], out, mode=mode)
        attributes = {"coordinate_transformation_mode": self.pick("asymmetric", "half_pixel", "pytorch_half_pixel")}
        if mode == "nearest":
            attributes["nearest_mode"] = self.pick("floor", "round_prefer_floor")
        none = "" if self.opset >= 13 else self.constant(np.zeros(0, np.float32))
        if self.chance(0.3) and not self.dynamic:
            return self.node("Resize", [x, none, none, self.ints(*out)], out, mode=mode, **attributes)
        return self.node("Resize", [x, none, scales], out, mode=mode, **attributes)

    def focus(self, x):
        n, c, *space = self.shape[x]
        if self.opset < 10 or any(e % 2 or e < 4 for e in space):
            return self.plain(x)
        corners = [(i, j) for i in (0, 1) for j in (0, 1)] if len(space) == 2 else [(i,) for i in (0, 1)]
        axes = list(range(2, 2 + len(space)))
        parts = [self.slice(x, corner, [2**31 - 1] * len(space), axes, [2] * len(space)) for corner in corners]
        return self.node("Concat", parts, [n, c * len(parts), *[e // 2 for e in space]], axis=1)

    def crop(self, x):
        space = self.shape[x][2:]
        if min(space) < 3:
            return x
        return self.slice(x, [1] * len(space), [-1] * len(space), list(range(2, 2 + len(space))))

    def channels_last(self, x):
        rank = len(self.shape[x])
        y = self.transpose(x, [0, *range(2, rank), 1])
        c = self.shape[y][-1]
        kind = self.pick("bias", "relu", "both", "matmul", "none")
        if kind in ("bias", "both"):
            y = self.node("Add", [y, self.constant(self.rng.standard_normal(c).astype(np.float32))], self.shape[y])
        if kind in ("relu", "both"):
            y = self.activation(y, "Relu")
        if kind == "matmul":
            y = self.node("MatMul", [y, self.weights([c, 8], c)], self.shape[y][:-1] + [8])
        return self.transpose(y, [0, rank - 1, *range(1, rank - 1)])

    def depth_space(self, x):
        if len(self.shape[x]) != 4:
            return self.plain(x)
        n, c, h, w = self.shape[x]
        if c % 4 == 0 and max(h, w) <= 16:
            attributes = {"mode": self.pick("DCR", "CRD")} if self.opset >= 11 else {}
            return self.node("DepthToSpace", [x], [n, c // 4, h * 2, w * 2], blocksize=2, **attributes)
        if h % 2 == 0 and w % 2 == 0:
            return self.node("SpaceToDepth", [x], [n, c * 4, h // 2, w // 2], blocksize=2)
        return x

    def arithmetic(self, x):
        shape = self.shape[x]
        other = self.constant(
            self.rng.uniform(-1, 1, self.pick([], [1], [shape[1]] + [1] * (len(shape) - 2), [1, *shape[1:]])).astype(
                np.float32
            )
        )
        op = self.pick("Add", "Mul", "Sub", "Div", "Max", "Min")
        if op == "Div":
            other = self.constant(self.rng.uniform(0.5, 2, []).astype(np.float32))
        return self.node(op, [x, other] if self.chance(0.7) or op == "Div" else [other, x], shape)

    def combine(self, x):
        """With another tensor of the same shape, if there is one: skip connections over long distances. Second results
        take no part, as places of a MaxPool are integers."""
        others = [
            name
            for name, shape in self.shape.items()
            if shape == self.shape[x] and name != x and name[0] in "ti" and "_" not in name
        ]
        if not others:
            return self.residual(x)
        return self.node(
            self.pick("Add", "Add", "Mul", "Sub"), [x, others[int(self.rng.integers(len(others)))]], self.shape[x]
        )

    def attention(self, x):
        n, c, *space = self.shape[x]
        tokens = int(np.prod(space))
        if tokens > 256:
            return self.pool(x)
        y = self.transpose(self.reshape(x, [n, c, tokens]), [0, 2, 1])
        q, k, v = (self.node("MatMul", [y, self.weights([c, 8], c)], [n, tokens, 8]) for _ in range(3))
        scores = self.node("MatMul", [q, self.transpose(k, [0, 2, 1])], [n, tokens, tokens])
        scores = self.node("Mul", [scores, self.constant(np.float32(0.35))], self.shape[scores])
        scores = self.node("Softmax", [scores], self.shape[scores], axis=2 if self.opset < 13 else -1)
        y = self.node("MatMul", [scores, v], [n, tokens, 8])
        y = self.node("MatMul", [y, self.weights([8, c], 8)], [n, tokens, c])
        y = self.layer_norm(y)
        return self.reshape(self.transpose(y, [0, 2, 1]), [n, c, *space])

    def layer_norm(self, x):
        c, shape = self.shape[x][-1], self.shape[x]
        gain, offset = (self.constant(self.rng.uniform(0.5, 1.5, c).astype(np.float32)) for _ in range(2))
        if self.opset >= 17 and c > 1 and self.chance(0.5):
            return self.node("LayerNormalization", [x, gain, offset], shape, axis=-1)
        mean = self.reduce_mean(x, [len(shape) - 1], True)
        centred = self.node("Sub", [x, mean], shape)
        square = self.node("Pow", [centred, self.constant(np.float32(2))], shape)
        deviation = self.node(
            "Sqrt",
            [
                self.node(
                    "Add",
                    [self.reduce_mean(square, [len(shape) - 1], True), self.constant(np.float32(1e-5))],
                    shape[:-1] + [1],
                )
            ],
            shape[:-1] + [1],
        )
        y = self.node("Div", [centred, deviation], shape)
        return self.node("Add", [self.node("Mul", [y, gain], shape), offset], shape)

    def dropout(self, x):
        if self.chance(0.5):
            y, mask = self.node("Dropout", [x], [self.shape[x]] * 2, outputs=2)
            del self.shape[mask]  # Booleans: not for arithmetic
        else:
            y = self.node("Dropout", [x], self.shape[x])
        return self.node("Identity", [y], self.shape[y]) if self.chance(0.5) else y

    IDIOMS = [
        "plain",
        "plain",
        "residual",
        "residual",
        "inverted",
        "inception",
        "squeeze_excite",
        "shuffle",
        "split_block",
        "depthwise",
        "grouped",
        "dilated",
        "transposed",
        "padded",
        "pool",
        "pool",
        "resize",
        "focus",
        "crop",
        "channels_last",
        "depth_space",
        "arithmetic",
        "combine",
        "attention",
        "dropout",
    ]

    def head(self, x):
        n, c, *space = self.shape[x]
        kind = self.pick("gemm", "matmul", "conv", "flat", "tokens")
        if kind in ("gemm", "flat"):
            if kind == "gemm" or c * int(np.prod(space)) > 4096:
                x = self.global_pool(x)
                space = [1] * len(space)
            size = c * int(np.prod(space))
            flat = self.node("Flatten", [x], [n, size], axis=1) if self.chance(0.5) else self.reshape(x, [n, size])
            transposed = self.chance(0.5)
            w = self.weights([10, size] if transposed else [size, 10], size)
            y = self.node(
                "Gemm",
                [flat, w, self.constant(self.rng.standard_normal(10).astype(np.float32))],
                [n, 10],
                transB=int(transposed),
            )
        elif kind == "matmul":
            flat = self.squeeze(self.global_pool(x), list(range(2, 2 + len(space))))
            hidden = self.node("MatMul", [flat, self.weights([c, 32], c)], [n, 32])
            hidden = self.node("Add", [hidden, self.constant(self.rng.standard_normal(32).astype(np.float32))], [n, 32])
            y = self.node("MatMul", [self.activation(hidden, "Relu"), self.weights([32, 5], 32)], [n, 5])
        elif kind == "conv":
            y = self.conv(self.global_pool(x), 7, 1, norm=False)
            y = self.squeeze(y, list(range(2, len(self.shape[y])))) if all(e == 1 for e in self.shape[y][2:]) else y
        else:
            y = self.transpose(self.reshape(x, [n, c, int(np.prod(space))]), [0, 2, 1])
            y = self.node("MatMul", [y, self.weights([c, 6], c)], self.shape[y][:-1] + [6])
        rank = len(self.shape[y])
        last = self.pick("none", "none", "Softmax", "Sigmoid", "LogSoftmax", "ArgMax", "unsqueeze")
        if last in ("Softmax", "LogSoftmax"):
            return self.node(last, [y], self.shape[y], axis=rank - 1)
        if last == "Sigmoid":
            return self.node(last, [y], self.shape[y])
        if last == "ArgMax":
            self.extra.append(self.node("ArgMax", [y], self.shape[y][:-1], axis=rank - 1, keepdims=0))
        return self.unsqueeze(y, [1]) if last == "unsqueeze" else y

    # --- the whole
    # ----------------------------------------------------------------------------------------------------------

    def finish(self, outputs):
        types = dict.fromkeys(self.extra, TensorProto.INT64)
        infos = []
        for name in dict.fromkeys(outputs):
            dims = (["M"] if self.dynamic else self.shape[name][:1]) + self.shape[name][1:]
            infos.append(helper.make_tensor_value_info(name, types.get(name, TensorProto.FLOAT), dims))
        graph = helper.make_graph(self.nodes, "network", self.inputs, infos, self.initializers)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=min(10, 4 + max(0, self.opset - 9))
        )
        onnx.checker.check_model(model)
        return model


def random_network(seed, *, opset=None, blocks=None):
    """(model, feeds, text): a float network of some blocks, mostly of images, sometimes of 1-D signals."""
    g = Network(seed, opset)
    one = g.chance(0.2)
    extents = [g.pick(16, 31, 50)] if one else [g.pick(7, 8, 12, 16, 17), g.pick(7, 8, 12, 16, 19)]
    x = g.input([g.batch, g.pick(1, 3, 3, 4, 16), *extents])
    names = []
    if g.chance(0.15):
        y = g.input([g.batch, g.pick(1, 2, 3), *extents])
        x = g.node("Concat", [x, y], [g.batch, g.shape[x][1] + g.shape[y][1], *extents], axis=1)
    tails = []
    for _ in range(blocks or g.pick(1, 2, 2, 3, 4, 5)):
        idiom = g.IDIOMS[int(g.rng.integers(len(g.IDIOMS)))]
        if int(np.prod(g.shape[x])) > 40000 or g.shape[x][1] > 96:
            x = g.conv(x, 8, 1, stride=2)
        names.append(idiom)
        x = getattr(g, idiom)(x)
        if g.chance(0.15):
            tails.append(x)
    if g.chance(0.6):
        x = g.head(x)
        names.append("head")
    if not g.nodes:
        x = g.plain(x)
    produced = [name for name in [*tails, x, *g.extra] if name not in g.feeds]
    if x in g.feeds:
        produced.append(g.activation(x, "Relu"))
    text = (
        f"seed {seed}: opset {g.opset} batch {g.batch}{' dynamic' if g.dynamic else ''} "
        f"{next(iter(g.feeds.values())).shape} {' '.join(names)}"
    )
    return g.finish(produced), g.feeds, text


def calibration(model, feeds, count=2, seed=0):
    """Batches of the model's own kind of input, the given one first."""
    rng = np.random.default_rng(seed)
    return [feeds] + [
        {name: rng.standard_normal(x.shape).astype(np.float32) for name, x in feeds.items()} for _ in range(count - 1)
    ]
