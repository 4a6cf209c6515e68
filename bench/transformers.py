# SPDX-License-Identifier: Apache-2.0
"""Whole transformers with seeded weights, in the forms that exporters write: float graphs of DeiT-Tiny, layers of
BERT-base and GPT-2 small, and a LLaMA of 15 million parameters.

Cycles and placement depend on shapes and operators, not on training. Vocabularies are shortened where they would only
lengthen files; that a table has fewer rows changes no layer."""

import dataclasses
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
CACHE = ROOT / "build" / "networks"
HIDDEN = np.float32(np.finfo(np.float32).min)  # what exporters add to scores that are not to be seen


@dataclasses.dataclass
class Shape:
    """Of a transformer: tokens at once, channels, heads, channels of a head, channels inside the feed-forward part,
    layers, words, batch."""

    tokens: int
    width: int
    heads: int
    inner: int
    layers: int
    words: int = 0
    batch: int = 1
    size: int = 0

    def __post_init__(self):
        self.size = self.size or self.width // self.heads


class Builder:
    """Collects nodes; every method takes and returns names of tensors."""

    def __init__(self, shape, seed=1):
        self.shape, self.rng = shape, np.random.default_rng(seed)
        self.nodes, self.constants, self.inputs = [], [], []

    def constant(self, value):
        self.constants.append(numpy_helper.from_array(np.asarray(value), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def number(self, value):
        return self.constant(np.float32(value))

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def node(self, op, inputs, count=1, **attributes):
        names = [f"v{len(self.nodes)}" + (f"_{k}" if count > 1 else "") for k in range(count)]
        self.nodes.append(helper.make_node(op, inputs, names, f"{op}_{len(self.nodes)}", **attributes))
        return names if count > 1 else names[0]

    def weights(self, *shape, spread=None):
        spread = 1 / np.sqrt(shape[0]) if spread is None else spread
        return self.constant((self.rng.standard_normal(shape) * spread).astype(np.float32))

    def reshape(self, x, *extents):
        return self.node("Reshape", [x, self.ints(*extents)])

    def turn(self, x, *order):
        return self.node("Transpose", [x], perm=order)

    def linear(self, x, inputs, outputs, bias=True):
        y = self.node("MatMul", [x, self.weights(inputs, outputs)])
        return self.node("Add", [self.weights(outputs, spread=0.05), y]) if bias else y

    def dense(self, x, inputs, outputs):
        """Gemm between two reshapes, as a one-dimensional convolution is exported."""
        s = self.shape
        y = self.node(
            "Gemm", [self.reshape(x, -1, inputs), self.weights(inputs, outputs), self.weights(outputs, spread=0.05)]
        )
        return self.reshape(y, s.batch, s.tokens, outputs)

    def layer_norm(self, x):
        scale = self.constant(self.rng.uniform(0.5, 1.5, self.shape.width).astype(np.float32))
        return self.node(
            "LayerNormalization", [x, scale, self.weights(self.shape.width, spread=0.1)], axis=-1, epsilon=1e-5
        )

    def rms_norm(self, x):
        mean = self.node("ReduceMean", [self.node("Pow", [x, self.number(2)])], axes=[-1], keepdims=1)
        root = self.node("Sqrt", [self.node("Add", [mean, self.number(1e-5)])])
        y = self.node("Mul", [x, self.node("Div", [self.number(1), root])])
        return self.node("Mul", [self.constant(self.rng.uniform(0.5, 1.5, self.shape.width).astype(np.float32)), y])

    def gelu_erf(self, x):
        error = self.node("Erf", [self.node("Div", [x, self.number(np.sqrt(2))])])
        product = self.node("Mul", [x, self.node("Add", [error, self.number(1)])])
        return self.node("Mul", [product, self.number(0.5)])

    def gelu_tanh(self, x):
        cube = self.node("Mul", [self.node("Pow", [x, self.number(3)]), self.number(0.044715)])
        inner = self.node("Mul", [self.node("Add", [x, cube]), self.number(np.sqrt(2 / np.pi))])
        factor = self.node("Add", [self.node("Tanh", [inner]), self.number(1)])
        return self.node("Mul", [self.node("Mul", [x, self.number(0.5)]), factor])

    def silu(self, x):
        return self.node("Mul", [x, self.node("Sigmoid", [x])])

    def causal(self):
        """[1, 1, tokens, tokens]: true where a token sees another."""
        return np.tril(np.ones((1, 1, self.shape.tokens, self.shape.tokens), bool))

    def joined(self, x):
        """Heads side by side again."""
        s = self.shape
        return self.reshape(self.turn(x, 0, 2, 1, 3), s.batch, s.tokens, s.heads * s.size)

    def heads(self, x, *order):
        s = self.shape
        return self.turn(self.reshape(x, s.batch, s.tokens, s.heads, s.size), *(order or (0, 2, 1, 3)))

    def words(self):
        """An input of token ids, and their embeddings."""
        s = self.shape
        self.inputs.append(helper.make_tensor_value_info("ids", TensorProto.INT64, [s.batch, s.tokens]))
        return self.node("Gather", [self.weights(s.words, s.width, spread=1), "ids"], axis=0)

    def model(self, name, output):
        graph = helper.make_graph(self.nodes, name, self.inputs, [onnx.ValueInfoProto(name=output)], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def deit(shape, image=224, patch=16, classes=1000, seed=1):
    """A vision transformer as timm's are exported: class token, one projection to queries, keys and values."""
    b, s = Builder(shape, seed), shape
    b.inputs.append(helper.make_tensor_value_info("input", TensorProto.FLOAT, [s.batch, 3, image, image]))
    kernel = [patch, patch]
    filters = b.weights(s.width, 3, patch, patch, spread=1 / np.sqrt(3 * patch * patch))
    bias = b.weights(s.width, spread=0.05)
    x = b.node("Conv", ["input", filters, bias], kernel_shape=kernel, strides=kernel)
    x = b.turn(b.reshape(x, s.batch, s.width, s.tokens - 1), 0, 2, 1)
    token = b.constant(b.rng.standard_normal((s.batch, 1, s.width)).astype(np.float32))
    x = b.node("Add", [b.node("Concat", [token, x], axis=1), b.weights(1, s.tokens, s.width, spread=0.5)])
    for _ in range(s.layers):
        mixed = b.linear(b.layer_norm(x), s.width, 3 * s.heads * s.size)
        mixed = b.turn(b.reshape(mixed, s.batch, s.tokens, 3, s.heads, s.size), 2, 0, 3, 1, 4)
        q, k, v = (
            b.node("Squeeze", [part, b.ints(0)]) for part in b.node("Split", [mixed, b.ints(1, 1, 1)], count=3, axis=0)
        )
        q = b.node("Mul", [q, b.number(s.size**-0.5)])
        weights = b.node("Softmax", [b.node("MatMul", [q, b.turn(k, 0, 1, 3, 2)])], axis=-1)
        mixed = b.joined(b.node("MatMul", [weights, v]))
        x = b.node("Add", [x, b.linear(mixed, s.heads * s.size, s.width)])
        inner = b.gelu_erf(b.linear(b.layer_norm(x), s.width, s.inner))
        x = b.node("Add", [x, b.linear(inner, s.inner, s.width)])
    x = b.node("Gather", [b.layer_norm(x), b.constant(np.int64(0))], axis=1)
    return b.model("deit", b.node("Gemm", [x, b.weights(s.width, classes), b.weights(classes, spread=0.05)]))


def bert(shape, seed=1):
    """An encoder of words as BERT is exported: normalisations behind sums, a mask of tokens as an input."""
    b, s = Builder(shape, seed), shape
    x = b.words()
    x = b.layer_norm(b.node("Add", [x, b.weights(1, s.tokens, s.width, spread=0.5)]))
    b.inputs.append(helper.make_tensor_value_info("mask", TensorProto.INT64, [s.batch, s.tokens]))
    wide = b.node("Unsqueeze", [b.node("Unsqueeze", ["mask", b.ints(1)]), b.ints(2)])
    wide = b.node("Sub", [b.number(1), b.node("Cast", [wide], to=TensorProto.FLOAT)])
    mask = b.node("Mul", [wide, b.constant(HIDDEN)])
    for _ in range(s.layers):
        q, k, v = (
            b.heads(b.linear(x, s.width, s.heads * s.size), *order)
            for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))
        )
        scores = b.node("Add", [b.node("Div", [b.node("MatMul", [q, k]), b.number(s.size**0.5)]), mask])
        mixed = b.joined(b.node("MatMul", [b.node("Softmax", [scores], axis=-1), v]))
        x = b.layer_norm(b.node("Add", [b.linear(mixed, s.heads * s.size, s.width), x]))
        inner = b.gelu_erf(b.linear(x, s.width, s.inner))
        x = b.layer_norm(b.node("Add", [b.linear(inner, s.inner, s.width), x]))
    return b.model("bert", x)


def gpt2(shape, seed=1):
    """A decoder of words as GPT-2 is exported, all tokens at once: Gemm for every projection, Where for the mask."""
    b, s = Builder(shape, seed), shape
    x = b.node("Add", [b.words(), b.weights(1, s.tokens, s.width, spread=0.5)])
    for _ in range(s.layers):
        mixed = b.dense(b.layer_norm(x), s.width, 3 * s.heads * s.size)
        parts = b.node("Split", [mixed, b.ints(*[s.heads * s.size] * 3)], count=3, axis=2)
        q, k, v = (b.heads(part, *o) for part, o in zip(parts, ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3))))
        scores = b.node("Div", [b.node("MatMul", [q, k]), b.number(s.size**0.5)])
        scores = b.node("Where", [b.constant(b.causal()), scores, b.constant(HIDDEN)])
        mixed = b.joined(b.node("MatMul", [b.node("Softmax", [scores], axis=-1), v]))
        x = b.node("Add", [b.dense(mixed, s.heads * s.size, s.width), x])
        inner = b.gelu_tanh(b.dense(b.layer_norm(x), s.width, s.inner))
        x = b.node("Add", [x, b.dense(inner, s.inner, s.width)])
    return b.model("gpt2", b.node("MatMul", [b.layer_norm(x), b.weights(s.width, s.words)]))


def rotations(s):
    """Cosines and sines of rotary embeddings as [1, 1, tokens, size]."""
    angles = np.outer(np.arange(s.tokens), 10000.0 ** (-np.arange(0, s.size, 2) / s.size))
    angles = np.concatenate([angles, angles], 1)[None, None]
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def llama(shape, seed=1):
    """A decoder of words as LLaMA is exported, all tokens at once: RMSNorm, rotary embeddings, SwiGLU."""
    b, s = Builder(shape, seed), shape
    x = b.words()
    cosine, sine = (b.constant(part) for part in rotations(s))
    mask = b.constant(np.where(b.causal(), np.float32(0), HIDDEN))

    def rotated(y):
        low = b.node("Slice", [y, b.ints(0), b.ints(s.size // 2), b.ints(3), b.ints(1)])
        high = b.node("Slice", [y, b.ints(s.size // 2), b.ints(2**63 - 1), b.ints(3), b.ints(1)])
        half = b.node("Concat", [b.node("Neg", [high]), low], axis=-1)
        return b.node("Add", [b.node("Mul", [y, cosine]), b.node("Mul", [half, sine])])

    for _ in range(s.layers):
        inner = b.rms_norm(x)
        q, k, v = (b.heads(b.linear(inner, s.width, s.heads * s.size, bias=False)) for _ in range(3))
        scores = b.node("MatMul", [rotated(q), b.turn(rotated(k), 0, 1, 3, 2)])
        scores = b.node("Add", [b.node("Div", [scores, b.number(s.size**0.5)]), mask])
        mixed = b.joined(b.node("MatMul", [b.node("Softmax", [scores], axis=-1), v]))
        x = b.node("Add", [x, b.linear(mixed, s.heads * s.size, s.width, bias=False)])
        inner = b.rms_norm(x)
        gate = b.silu(b.linear(inner, s.width, s.inner, bias=False))
        gated = b.node("Mul", [gate, b.linear(inner, s.width, s.inner, bias=False)])
        x = b.node("Add", [x, b.linear(gated, s.inner, s.width, bias=False)])
    return b.model("llama", b.node("MatMul", [b.rms_norm(x), b.weights(s.width, s.words)]))


TRANSFORMERS = {
    "deit_tiny": (deit, Shape(197, 192, 3, 768, 12)),
    "bert_base_layer": (bert, Shape(128, 768, 12, 3072, 1, words=512)),
    "gpt2_small_layer": (gpt2, Shape(128, 768, 12, 3072, 1, words=512)),
    "llama_15m": (llama, Shape(64, 288, 6, 768, 6, words=32000)),
}


def feeds_of(model, seed=2, words=500):
    """Random values for the inputs of a model: images, token ids below `words`, a mask whose last tokens are
    padding."""
    rng, feeds = np.random.default_rng(seed), {}
    for value in model.graph.input:
        shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if value.name == "mask":
            feeds["mask"] = np.ones(shape, np.int64)
            feeds["mask"][:, shape[1] - shape[1] // 8 :] = 0
        elif value.type.tensor_type.elem_type == TensorProto.INT64:
            feeds[value.name] = rng.integers(0, words, shape)
        else:
            feeds[value.name] = rng.standard_normal(shape).astype(np.float32)
    return feeds


def quantised(model, calibration, numerics="close"):
    """The model in int8 as `tessera quantize --engine onnxruntime` writes it, its weights as they are."""
    from tessera.quantization import candidate, engines
    from tessera.quantization.prepare import prepare

    prepared = prepare(model, {"Conv", "Gemm", "MatMul"})
    ranges, count = engines.measure_ranges(prepared, calibration)
    options = candidate.Options(engine="onnxruntime", numerics=numerics)
    return candidate.candidate(engines.Calibrated(prepared, ranges, count, ""), options, {}).model


def build(name):
    """(bytes of the quantised model, feeds)."""
    CACHE.mkdir(parents=True, exist_ok=True)
    path = CACHE / f"{name}.onnx"
    if not path.exists():
        make, shape = TRANSFORMERS[name]
        model = make(shape)
        onnx.save(quantised(model, [feeds_of(model, seed) for seed in (2, 3)]), path)
    return path.read_bytes(), feeds_of(onnx.load(path), 4)


def bench(names, config, device):
    """Rows of the named transformers (all of them if there is none)."""
    import tessera

    rows = []
    for name in names or TRANSFORMERS:
        data, feeds = build(name)
        machine = config or "npu256t"
        expected = tessera.Session(data, "reference", numerics="close").run(None, feeds)
        session = tessera.Session(data, device, machine, profile=False, numerics="close")
        equal = all(np.array_equal(a, b) for a, b in zip(session.run(None, feeds), expected))
        stats = session.stats()
        peak = stats.macs / (stats.cycles * machine_macs(machine))
        rows.append(
            {
                "network": name,
                f"{device}_cycles": stats.cycles,
                "predicted_cycles": stats.predicted_cycles,
                "bound_cycles": stats.roofline_cycles,
                "peak_percent": round(100 * peak, 1),
                "macs": stats.macs,
                "macs_cpu": stats.macs_cpu,
                "nodes_npu": stats.nodes_npu,
                "nodes_cpu": stats.nodes_cpu,
                "on_cpu": " ".join(sorted({n["op"] for n in stats.layers if n["placement"] == "cpu"})),
                "dram_bytes": stats.dram_read_bytes + stats.dram_write_bytes,
                "equal_to_reference": equal,
            }
        )
        print(f"{name}: done", file=sys.stderr)
    return {"transformers": rows}


def machine_macs(config):
    """Multiply-accumulates in a cycle."""
    import tomllib

    path = pathlib.Path(config)
    values = tomllib.loads((path if path.exists() else ROOT / "hw" / "configs" / f"{config}.toml").read_text())
    return values["batch"] * values["block_in"] * values["block_out"]
