# SPDX-License-Identifier: Apache-2.0
"""Writes a trained decoder as ONNX, in float and quantised, with its past as inputs and outputs.

    python examples/text/export.py weights.npz        # writes decoder_float.onnx and decoder.onnx beside this script

The graph takes `input_ids`, `position_ids` (batch, sequence) and `attention_mask` (batch, total) as int64, and for each
layer `past_key_values.N.key` and `.value` (batch, kv_heads, past, head); it gives `logits` (batch, sequence, 256) and
`present.N.key` and `.value`, with total = past + sequence. These are the names of the usual exporters of decoders.
In the quantised file keys and values are bytes, so that a cache takes a quarter of the memory.
"""

import argparse
from pathlib import Path

import numpy as np
import onnx
from corpus import bible, split
from onnx import TensorProto, helper, numpy_helper
from perplexity import feed, loss, runtime
from shape import Shape

import tessera

HERE = Path(__file__).resolve().parent
HIDDEN = -10000.0  # what is added to the score of a position that is not to be seen


class Builder:
    """Collects nodes and constants; a name for each value."""

    def __init__(self):
        self.nodes, self.constants, self.known = [], [], {}

    def constant(self, value, name=None):
        value = np.asarray(value)
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self.known:
            self.known[key] = name or f"constant_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(value, self.known[key]))
        return self.known[key]

    def node(self, op, inputs, name=None, outputs=None, **attributes):
        name = name or f"{op.lower()}_{len(self.nodes)}"
        outputs = outputs or [name]
        self.nodes.append(helper.make_node(op, inputs, outputs, name, **attributes))
        return outputs[0] if len(outputs) == 1 else outputs


class Exporter(Builder):
    def __init__(self, weights):
        super().__init__()
        self.weights, self.shape = weights, Shape.from_array(weights["shape"])

    def product(self, x, name):
        return self.node("MatMul", [x, self.constant(self.weights[name], name)], f"{name}.product")

    def norm(self, x, name):
        """RMSNorm in single operators, as PyTorch's exporter spells it."""
        square = self.node("Pow", [x, self.constant(np.float32(2))], f"{name}.square")
        mean = self.node("ReduceMean", [square], f"{name}.mean", axes=[-1], keepdims=1)
        safe = self.node("Add", [mean, self.constant(np.float32(self.shape.epsilon))], f"{name}.safe")
        root = self.node("Sqrt", [safe], f"{name}.root")
        unit = self.node("Div", [x, root], f"{name}.unit")
        return self.node("Mul", [unit, self.constant(self.weights[f"{name}.gain"], f"{name}.gain")], f"{name}.normal")

    def rotary_tables(self):
        """Cosines and sines at the positions, (batch, 1, sequence, head); each half of a head has the same."""
        tables = []
        for name, table in zip(("cos", "sin"), self.shape.rotary()):
            wide = self.constant(np.concatenate([table, table], 1), f"rotary.{name}")
            at = self.node("Gather", [wide, "position_ids"], f"{name}.at")
            tables.append(self.node("Unsqueeze", [at, self.constant(np.array([1]))], name))
        return tables

    def rotate(self, x, name):
        """x * cos + [-high, low] * sin for x (batch, heads, sequence, head)."""
        half = self.shape.head // 2
        low, high = self.node(
            "Split",
            [x, self.constant(np.array([half, half]))],
            f"{name}.split",
            [f"{name}.low", f"{name}.high"],
            axis=-1,
        )
        turned = self.node("Concat", [self.node("Neg", [high], f"{name}.neg"), low], f"{name}.quarter", axis=-1)
        straight = self.node("Mul", [x, "cos"], f"{name}.straight")
        return self.node("Add", [straight, self.node("Mul", [turned, "sin"], f"{name}.across")], f"{name}.rotated")

    def mask(self):
        """0 where a query sees a key, a large negative number elsewhere: (batch, 1, repeat * sequence, total)."""
        keys = self.node("CumSum", ["attention_mask", self.constant(np.int64(1))], "mask.count")
        keys = self.node("Sub", [keys, self.constant(np.int64(1))], "mask.key_positions")
        keys = self.node("Unsqueeze", [keys, self.constant(np.array([1]))], "mask.keys")
        queries = self.node("Unsqueeze", ["position_ids", self.constant(np.array([2]))], "mask.queries")
        causal = self.node("LessOrEqual", [keys, queries], "mask.causal")
        real = self.node("Cast", ["attention_mask"], "mask.real", to=TensorProto.BOOL)
        real = self.node("Unsqueeze", [real, self.constant(np.array([1]))], "mask.present")
        seen = self.node("And", [causal, real], "mask.seen")
        added = self.node(
            "Where", [seen, self.constant(np.float32(0)), self.constant(np.float32(HIDDEN))], "mask.added"
        )
        repeat = self.shape.heads // self.shape.kv_heads
        rows = self.node("Concat", [added] * repeat, "mask.rows", axis=1) if repeat > 1 else added
        return self.node("Unsqueeze", [rows, self.constant(np.array([1]))], "mask.heads")

    def split_heads(self, x, count, name):
        """(batch, sequence, count * head) to (batch, count, sequence, head)."""
        parts = self.node("Reshape", [x, self.constant(np.array([0, 0, count, self.shape.head]))], f"{name}.parts")
        return self.node("Transpose", [parts], f"{name}.heads", perm=[0, 2, 1, 3])

    def attention(self, x, mask, layer):
        """Queries of the heads that share a key stand below each other, so that a product reads each key once."""
        shape, prefix = self.shape, f"layers.{layer}"
        repeat = shape.heads // shape.kv_heads
        query = self.split_heads(self.product(x, f"{prefix}.query"), shape.heads, f"{prefix}.query")
        query = self.rotate(query, f"{prefix}.query")
        query = self.node("Mul", [query, self.constant(np.float32(shape.head**-0.5))], f"{prefix}.query.scaled")
        grouped = self.constant(np.array([0, shape.kv_heads, -1, shape.head]))
        query = self.node("Reshape", [query, grouped], f"{prefix}.query.grouped")
        key = self.rotate(
            self.split_heads(self.product(x, f"{prefix}.key"), shape.kv_heads, f"{prefix}.key"), f"{prefix}.key"
        )
        value = self.split_heads(self.product(x, f"{prefix}.value"), shape.kv_heads, f"{prefix}.value")
        key, value = (
            self.node("Concat", [f"past_key_values.{layer}.{name}", new], f"present.{layer}.{name}", axis=2)
            for name, new in (("key", key), ("value", value))
        )
        turned = self.node("Transpose", [key], f"{prefix}.key.turned", perm=[0, 1, 3, 2])
        scores = self.node("Add", [self.node("MatMul", [query, turned], f"{prefix}.scores"), mask], f"{prefix}.masked")
        share = self.node("Softmax", [scores], f"{prefix}.share", axis=-1)
        mixed = self.node("MatMul", [share, value], f"{prefix}.mixed")
        apart = self.constant(np.array([0, shape.heads, -1, shape.head])) if repeat > 1 else None
        mixed = self.node("Reshape", [mixed, apart], f"{prefix}.mixed.heads") if apart else mixed
        mixed = self.node("Transpose", [mixed], f"{prefix}.mixed.tokens", perm=[0, 2, 1, 3])
        joined = self.constant(np.array([0, 0, shape.heads * shape.head]))
        return self.product(self.node("Reshape", [mixed, joined], f"{prefix}.mixed.joined"), f"{prefix}.output")

    def feed_forward(self, x, layer):
        prefix = f"layers.{layer}"
        gate = self.product(x, f"{prefix}.gate")
        gate = self.node("Mul", [gate, self.node("Sigmoid", [gate], f"{prefix}.sigmoid")], f"{prefix}.silu")
        return self.product(
            self.node("Mul", [gate, self.product(x, f"{prefix}.up")], f"{prefix}.gated"), f"{prefix}.down"
        )

    def model(self):
        shape = self.shape
        x = self.node("Gather", [self.constant(self.weights["embedding"], "embedding"), "input_ids"], "embedded")
        self.rotary_tables()
        mask = self.mask()
        for layer in range(shape.layers):
            prefix = f"layers.{layer}"
            x = self.node("Add", [x, self.attention(self.norm(x, f"{prefix}.norm1"), mask, layer)], f"{prefix}.middle")
            x = self.node("Add", [x, self.feed_forward(self.norm(x, f"{prefix}.norm2"), layer)], f"{prefix}.end")
        last = self.norm(x, "norm")
        self.node("MatMul", [last, self.constant(self.weights["logits"], "logits.weight")], "logits")
        graph = helper.make_graph(self.nodes, "decoder", *interface(shape, TensorProto.FLOAT), self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.checker.check_model(model, full_check=True)
        return model


def interface(shape: Shape, cache_type: int):
    """Inputs and outputs of a decoder whose cache has elements of `cache_type`."""
    info = helper.make_tensor_value_info
    inputs = [
        info("input_ids", TensorProto.INT64, ["batch", "sequence"]),
        info("position_ids", TensorProto.INT64, ["batch", "sequence"]),
        info("attention_mask", TensorProto.INT64, ["batch", "total"]),
    ]
    outputs = [info("logits", TensorProto.FLOAT, ["batch", "sequence", 256])]
    for layer in range(shape.layers):
        for name in ("key", "value"):
            cache = lambda length: ["batch", shape.kv_heads, length, shape.head]
            inputs.append(info(f"past_key_values.{layer}.{name}", cache_type, cache("past")))
            outputs.append(info(f"present.{layer}.{name}", cache_type, cache("total")))
    return inputs, outputs


def calibration(model: onnx.ModelProto, shape: Shape, text: bytes, count: int, seed: int):
    """Stretches of text, as dicts of the model's inputs. Each comes twice: its first half with an empty cache, and its
    second half with the first one's keys and values."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString())
    names = [output.name for output in session.get_outputs()]
    random = np.random.default_rng(seed)
    half = shape.context // 2
    for start in random.integers(0, len(text) - shape.context, count):
        tokens = np.frombuffer(text[start : start + shape.context], np.uint8).astype(np.int64)[None]
        first = feed(shape, tokens[:, :half], {}, 0)
        cache = dict(zip(names, session.run(None, first)))
        yield feed(shape, tokens[:, half:], cache, half)
        yield first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="what train.py wrote")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the models are written")
    parser.add_argument("--samples", type=int, default=16, help="stretches of text to calibrate with")
    parser.add_argument("--engine", default="nncf", choices=("nncf", "onnxruntime"))
    parser.add_argument("--config", default="npu256", help="machine that decides what is quantised")
    parser.add_argument("--numerics", default="exact", choices=("exact", "close"), help="close: normalisations too")
    args = parser.parse_args()
    with np.load(args.weights) as file:
        weights = dict(file)
    exporter = Exporter(weights)
    model, shape = exporter.model(), exporter.shape
    kept, held = split(bible())
    args.folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model, args.folder / "decoder_float.onnx")
    made = tessera.quantize(
        model,
        lambda: calibration(model, shape, kept, args.samples, seed=1),
        args.folder / "decoder.onnx",
        engine=args.engine,
        config=args.config,
        numerics=args.numerics,
        bytes=["past_key_values.*", "present.*"],
    )
    print(f"share of the products on the NPU: {made.macs_npu_share:.3f}")
    for name in ("decoder_float.onnx", "decoder.onnx"):
        nats = loss(runtime(args.folder / name), held, pieces=32)
        print(f"{name}: {nats:.4f} nats a byte on text held back, perplexity {np.exp(nats):.3f}")


if __name__ == "__main__":
    main()
