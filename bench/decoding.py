# SPDX-License-Identifier: Apache-2.0
"""Decoding, one token at a time, by seeded decoders and by the trained one of examples/text, whose keys and values stay
on the device. The bound of a step is the time in which the bus moves each weight once and each key and value once, at
the maximal length for which the program is made. `times_bound` is cycles over it. `programs` is how often the NPU
begins in a step: once more than it leaves for the host and comes back. Beside it stand the cycles by kind of layer,
largest first, and whether the logits equal the reference interpreter's. `contexts` are single runs behind pasts of
random bytes: steps whose program is as long as the past needs, and the reading of a prompt at once, beside the cycles
in which the array does the products."""

import collections
import pathlib
import sys
import tomllib

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
# name: the decoder's shape, maximal length
SHAPES = {
    "15 M parameters, TinyStories' shape": ({"layers": 6, "heads": 6, "size": 48, "inner": 768, "words": 32000}, 256),
    "one layer of 768": ({"layers": 1, "heads": 12, "size": 64, "inner": 3072, "words": 256}, 256),
    "grouped queries, 256 wide": ({"layers": 4, "heads": 8, "groups": 2, "size": 32, "inner": 768, "words": 256}, 256),
}
# (shape, maximal length, tokens of a run, pasts)
CONTEXTS = [
    ("15 M parameters, TinyStories' shape", 2048, 1, (31, 255, 1023, 2047)),
    ("one layer of 768", 4096, 1, (31, 1023, 4095)),
    ("15 M parameters, TinyStories' shape", 514, 512, (0,)),
]
TRAINED = "the trained decoder"
STEPS = 3
CONFIG = "npu256t"


def bytes_of(decoder, length):
    """Weights of all products, and keys and values at a length."""
    width, narrow = decoder.width, decoder.groups * decoder.size
    layer = 2 * width * width + 2 * width * narrow + 3 * width * decoder.inner
    return decoder.layers * layer + width * decoder.words, 2 * decoder.layers * narrow * length


def machine_of(config):
    """The parameters of a machine, by its name or file."""
    path = ROOT / "hw" / "configs" / f"{config}.toml"
    return tomllib.loads((path if path.exists() else pathlib.Path(config)).read_text())


def packed_share(machine):
    """Bytes in DRAM of a weight of 4 bits, with its part of the scales."""
    entry = machine["block_in"] * machine["block_out"]
    return (max(machine["axi_bytes"], machine["block_out"] // 2) + entry // 2) / entry


def seeded(name, four_bits):
    """(model, maximal length, bytes of weights, bytes of the cache)."""
    from tests.system.decoder import Decoder

    options, length = SHAPES[name]
    decoder = Decoder(**options, longest=length, four_bits=four_bits)
    return decoder.model(), length, *bytes_of(decoder, length)


def trained():
    """The same of examples/text."""
    sys.path.insert(0, str(ROOT / "examples" / "text"))
    import generate
    import onnx

    model = onnx.load(ROOT / "examples" / "text" / "decoder.onnx")
    length = generate.CONTEXT
    return model.SerializeToString(), length, generate.weight_bytes(model), generate.cache_bytes(model, length)


def equals_reference(steps, data, first, **options):
    """Whether the interpreter gives the logits of these steps on the growing past."""
    from tessera import Session

    session = Session(data, "reference", **options)
    ports = {port.name: port for port in session.get_inputs()}
    outputs = [port.name for port in session.get_outputs()]
    kinds = {"int8": np.int8, "uint8": np.uint8}
    past = {
        name: np.zeros([1, port.shape[1], 0, port.shape[3]], kinds[port.type[7:-1]])
        for name, port in ports.items()
        if name.startswith("past")
    }
    token, equal = first, True
    for step in steps:
        feeds = {
            "input_ids": np.array([[token]]),
            "position_ids": np.array([[step.position]]),
            "attention_mask": np.ones((1, step.position + 1), np.int64),
        }
        want = dict(zip(outputs, session.run(None, {k: v for k, v in (feeds | past).items() if k in ports})))
        equal = equal and np.array_equal(want["logits"][:, -1], step.logits)
        past = {name: want[name.replace("past_key_values", "present")] for name in past}
        token = int(step.tokens[0])
    return bool(equal)


def products(decoder, tokens, length):
    """Multiplications of a run of so many tokens that attends to `length` of them."""
    weights, cache = bytes_of(decoder, length)
    return tokens * (weights + cache * decoder.heads // decoder.groups)


def contexts(machine, config, device):
    """Rows of runs behind pasts of several lengths."""
    from tessera import Session
    from tests.system.decoder import Decoder

    rows, rng = [], np.random.default_rng(1)
    for name, longest, tokens, pasts in CONTEXTS:
        decoder = Decoder(**SHAPES[name][0], longest=longest)
        data = decoder.model(tokens=tokens)
        session = Session(data, device or "sysc", config, max_length=longest, numerics="close", length_steps=2)
        reference = Session(data, "reference", numerics="close")
        for past in pasts:
            feeds = {
                "input_ids": rng.integers(0, decoder.words, (1, tokens)),
                "position_ids": np.arange(past, past + tokens)[None],
                "attention_mask": np.ones((1, past + tokens), np.int64),
            }
            cache = (1, decoder.groups, past, decoder.size)
            for port in session.get_inputs():
                if port.name.startswith("past"):
                    feeds[port.name] = rng.integers(-128, 128, cache, np.int8)
            feeds = {port.name: feeds[port.name] for port in session.get_inputs()}
            results, stats = session.run(None, feeds), session.stats()
            equal = all(map(np.array_equal, results, reference.run(None, feeds)))
            array = products(decoder, tokens, past + tokens) // (machine["block_in"] * machine["block_out"])
            row = {"decoder": name, "config": config, "longest": longest, "past": past, "tokens": tokens}
            row |= {"cycles": stats.cycles, "array_cycles": array, "equal_to_reference": bool(equal)}
            rows.append(row)
    return rows


def bench(names, config, device):
    from tessera.generation import Generator

    rows, config = [], config or CONFIG
    machine = machine_of(config)
    cases = [(name, 0) for name in names or [*SHAPES, TRAINED]]
    if machine.get("packed_weights"):  # once more with weights of 4 bits
        cases += [(name, machine["block_in"]) for name, _ in cases if name != TRAINED]
    for name, four_bits in cases:
        if name not in SHAPES and name != TRAINED:
            raise SystemExit(f"no decoder '{name}'; there are {', '.join([*SHAPES, TRAINED])}")
        data, length, weights, cache = trained() if name == TRAINED else seeded(name, four_bits)
        if four_bits:
            weights = int(weights * packed_share(machine))
        options = {"numerics": "close", "length_steps": 0}  # one program for the maximal length
        generator = Generator(data, device or "sysc", config, max_length=length, **options)
        steps = list(generator.stream([[3]], STEPS))
        stats = generator.session.stats()
        bound = -(-(weights + cache) // machine["axi_bytes"])
        spent = collections.Counter()
        for layer in stats.layers:
            if layer.placement == "npu":
                spent[layer.op] += layer.cycles
        rows.append(
            {
                "decoder": name,
                "weights": "int4" if four_bits else "int8",
                "config": config,
                "cycles": stats.cycles,
                "predicted_cycles": stats.predicted_cycles,
                "bound_cycles": bound,
                "times_bound": round(stats.cycles / bound, 3),
                "weight_bytes": weights,
                "cache_bytes": cache,
                "dram_bytes": stats.dram_read_bytes + stats.dram_write_bytes,
                "nodes_cpu": stats.nodes_cpu,
                "programs": generator.session.info()["programs"],
                "spent": dict(spent.most_common(6)),
                "equal_to_reference": equals_reference(steps, data, 3, numerics="close"),
            }
        )
    return {"decoding": rows} | ({} if names else {"contexts": contexts(machine, config, device)})
