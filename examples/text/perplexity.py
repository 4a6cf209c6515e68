# SPDX-License-Identifier: Apache-2.0
"""Perplexity a byte of the decoders of this folder, on text that training has not seen.

    python examples/text/perplexity.py                                      # decoder.onnx by ONNX Runtime
    python examples/text/perplexity.py decoder_float.onnx decoder.onnx      # the float one is what export.py writes
    python examples/text/perplexity.py --device fsim --config npu256t --numerics close

Stretches of 256 bytes are read at once, with an empty cache, and each byte behind the first is judged. Perplexity is
the exponential of the mean loss: the number of bytes between which the network hesitates.
"""

import argparse
from pathlib import Path

import numpy as np
from corpus import bible, split
from shape import Shape

HERE = Path(__file__).resolve().parent


def feed(shape: Shape, tokens: np.ndarray, cache: dict, past: int, dtype=np.float32) -> dict:
    """Inputs for `tokens` (batch, sequence) behind `past` cached positions."""
    batch, length = tokens.shape
    inputs = {
        "input_ids": tokens,
        "position_ids": np.broadcast_to(np.arange(past, past + length), (batch, length)).astype(np.int64),
        "attention_mask": np.ones((batch, past + length), np.int64),
    }
    for layer in range(shape.layers):
        for name in ("key", "value"):
            empty = np.zeros((batch, shape.kv_heads, 0, shape.head), dtype)
            inputs[f"past_key_values.{layer}.{name}"] = cache.get(f"present.{layer}.{name}", empty)
    return inputs


def runtime(path: Path):
    """What turns feeds of the model at `path` into logits, and the type of its cache: by ONNX Runtime."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    kinds = {value.name: value.type for value in session.get_inputs()}
    dtype = np.uint8 if "uint8" in kinds["past_key_values.0.key"] else np.float32
    return lambda feeds: session.run(["logits"], feeds)[0], dtype


def device(path: Path, name: str, config: str, numerics: str):
    """The same on a device of Tessera."""
    import tessera

    session = tessera.Session(path, name, config, numerics=numerics)
    kinds = {value.name: value.type for value in session.get_inputs()}
    dtype = np.uint8 if "uint8" in kinds["past_key_values.0.key"] else np.float32
    return lambda feeds: session.run(["logits"], feeds)[0], dtype


def loss(model, text: bytes, pieces: int) -> float:
    """Mean loss in nats a byte over stretches of `text`; `model`: what runtime() or device() gives."""
    run, dtype = model
    shape, total = Shape(), 0.0
    for start in np.linspace(0, len(text) - shape.context - 1, pieces).astype(int):
        tokens = np.frombuffer(text[start : start + shape.context + 1], np.uint8).astype(np.int64)[None]
        logits = run(feed(shape, tokens[:, :-1], {}, 0, dtype))[0].astype(np.float64)
        logits -= logits.max(-1, keepdims=True)
        total += (np.log(np.exp(logits).sum(-1)) - logits[np.arange(shape.context), tokens[0, 1:]]).mean()
    return total / pieces


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, default=[HERE / "decoder.onnx"])
    parser.add_argument("--device", help="a device of Tessera; without it ONNX Runtime")
    parser.add_argument("--config", default="npu256t")
    parser.add_argument("--numerics", default="exact", choices=("exact", "close"))
    parser.add_argument("--pieces", type=int, default=32, help="stretches of 256 bytes")
    args = parser.parse_args()
    held = split(bible())[1]
    for path in args.models:
        path = path if path.exists() else HERE / path
        model = device(path, args.device, args.config, args.numerics) if args.device else runtime(path)
        where = f"{args.device}, {args.config}, {args.numerics}" if args.device else "ONNX Runtime"
        nats = loss(model, held, args.pieces)
        print(f"{path.name} ({where}): {nats:.4f} nats a byte on text held back, perplexity {np.exp(nats):.3f}")


if __name__ == "__main__":
    main()
