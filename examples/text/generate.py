# SPDX-License-Identifier: Apache-2.0
"""Writes text with the decoder of this folder, a byte at a time.

    python examples/text/generate.py "In the beginning"
    python examples/text/generate.py "In the beginning" --device rtl --tokens 32

The network is compiled once. Keys and values stay in the device's memory; a run takes one token and gives the logits of
the next, of which the largest is chosen. On devices with time the last lines say what a token takes, and how near that
is to the least the DRAM allows: every weight and every cached byte read once.
"""

import argparse
import sys
import tomllib
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

import tessera
from tessera.generation import Generator

HERE = Path(__file__).resolve().parent
CONTEXT = 256  # positions that the network has learned


def bus_bytes(config: str) -> int:
    """Bytes a cycle that the machine's bus moves."""
    path = Path(config) if config.endswith(".toml") else HERE.parents[1] / "hw" / "configs" / f"{config}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))["axi_bytes"]


def weight_bytes(model: onnx.ModelProto) -> int:
    """Bytes of the int8 matrices, each of which a token needs once."""
    matrices = [tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.INT8]
    return sum(int(np.prod(tensor.dims)) for tensor in matrices if len(tensor.dims) == 2)


def cache_bytes(model: onnx.ModelProto, length: int) -> int:
    """Bytes of keys and values of `length` positions."""
    dims = [port.type.tensor_type.shape.dim for port in model.graph.input if port.name.startswith("past_")]
    return sum(d[1].dim_value * d[3].dim_value * length for d in dims)


def tell_cycles(steps, model, args):
    """What a token took, and the bound. Steps that read the prompt in blocks do not count."""
    single = [step for step in steps if step.count == 1 and step.cycles]
    if not single:
        return
    cycles = np.mean([step.cycles for step in single])
    least = np.mean([weight_bytes(model) + cache_bytes(model, step.position) for step in single]) / bus_bytes(
        args.config
    )
    print(
        f"{cycles:,.0f} cycles a token on {args.config} ({args.device}); "
        f"{args.megahertz * 1e6 / cycles:,.0f} tokens a second at {args.megahertz:g} MHz\n"
        f"weights and cache take the bus {least:,.0f} cycles: the token takes {cycles / least:.2f} times that",
        file=sys.stderr,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompt", nargs="?", default="In the beginning")
    parser.add_argument("--model", type=Path, default=HERE / "decoder.onnx")
    parser.add_argument("--device", default="sysc", help="fsim, sysc, rtl, xrt:0; default sysc")
    parser.add_argument("--config", default="npu256t", help="machine; default npu256t")
    parser.add_argument(
        "--numerics",
        default="close",
        choices=("exact", "close"),
        help="normalisations in float on the CPU, or (default) close to that on a machine with row lanes",
    )
    parser.add_argument("--tokens", type=int, default=160, help="bytes to write behind the prompt; default 160")
    parser.add_argument("--megahertz", type=float, default=100, help="clock that tokens a second are stated for")
    args = parser.parse_args()
    prompt = list(f"\n{args.prompt}".encode())  # verses begin behind the end of a line
    if not args.prompt or args.tokens < 1 or len(prompt) + args.tokens > CONTEXT:
        parser.error(f"prompt and --tokens have at least a byte each, and together less than {CONTEXT}")
    generator = Generator(args.model, args.device, args.config, max_length=CONTEXT, block=16, numerics=args.numerics)
    steps = []
    print(args.prompt, end="", flush=True)
    for step in generator.stream([prompt], args.tokens):
        steps.append(step)
        if step.generated:
            sys.stdout.write(bytes([step.tokens[0]]).decode("ascii", "replace"))
            sys.stdout.flush()
    print()
    tell_cycles(steps, onnx.load(args.model), args)


if __name__ == "__main__":
    try:
        main()
    except tessera.Error as error:
        sys.exit(f"generate.py: {error}")
