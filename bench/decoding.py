# SPDX-License-Identifier: Apache-2.0
"""Decoding, one token at a time, by seeded decoders whose keys and values stay on the device. The bound of a step is
the time in which the bus moves each weight once and each key and value once, at the maximal length for which the
program is made. `times_bound` is cycles over it. Beside it stand the cycles by kind of layer, largest first, and
whether the logits equal the reference interpreter's."""

import collections
import pathlib
import tomllib

import numpy as np

# name: the decoder's shape, maximal length
SHAPES = {
    "15 M parameters, TinyStories' shape": ({"layers": 6, "heads": 6, "size": 48, "inner": 768, "words": 32000}, 256),
    "one layer of 768": ({"layers": 1, "heads": 12, "size": 64, "inner": 3072, "words": 256}, 256),
    "grouped queries, 256 wide": ({"layers": 4, "heads": 8, "groups": 2, "size": 32, "inner": 768, "words": 256}, 256),
}
STEPS = 3
CONFIGS = pathlib.Path(__file__).resolve().parent.parent / "hw" / "configs"


def bytes_of(decoder, length):
    """Weights of all products, and keys and values at a length."""
    width, narrow = decoder.width, decoder.groups * decoder.size
    layer = 2 * width * width + 2 * width * narrow + 3 * width * decoder.inner
    return decoder.layers * layer + width * decoder.words, 2 * decoder.layers * narrow * length


def width_of(config):
    """Bytes that the bus of a machine moves in a cycle."""
    path = CONFIGS / f"{config}.toml"
    return tomllib.loads((path if path.exists() else pathlib.Path(config)).read_text())["axi_bytes"]


def bench(names, config, device):
    from tessera.generation import Generator

    from tessera import Session
    from tests.system.decoder import Decoder, empty_past

    rows = []
    for name in names or SHAPES:
        if name not in SHAPES:
            raise SystemExit(f"no decoder '{name}'; there are {', '.join(SHAPES)}")
        options, length = SHAPES[name]
        decoder = Decoder(**options, longest=length)
        data = decoder.model()
        generator = Generator(data, device or "sysc", config or "npu256", max_length=length)
        reference, past, equal, token = Session(data, "reference"), empty_past(decoder), True, 3
        for step in generator.stream([[3]], STEPS):
            ids = np.array([[token]])
            feeds = {"input_ids": ids, "position_ids": np.array([[step.position]]), **past}
            want = reference.run(None, feeds)
            equal = equal and np.array_equal(want[0][:, -1], step.logits)
            kinds = [f"{i}.{kind}" for i in range(decoder.layers) for kind in ("key", "value")]
            past = {f"past_key_values.{kind}": value for kind, value in zip(kinds, want[1:], strict=True)}
            token = int(step.tokens[0])
        stats = generator.session.stats()
        weights, cache = bytes_of(decoder, length)
        bound = -(-(weights + cache) // width_of(config or "npu256"))
        spent = collections.Counter()
        for layer in stats.layers:
            if layer.placement == "npu":
                spent[layer.op] += layer.cycles
        rows.append(
            {
                "decoder": name,
                "config": config or "npu256",
                "cycles": stats.cycles,
                "predicted_cycles": stats.predicted_cycles,
                "bound_cycles": bound,
                "times_bound": round(stats.cycles / bound, 3),
                "weight_bytes": weights,
                "cache_bytes": cache,
                "dram_bytes": stats.dram_read_bytes + stats.dram_write_bytes,
                "nodes_cpu": stats.nodes_cpu,
                "spent": dict(spent.most_common(6)),
                "equal_to_reference": bool(equal),
            }
        )
    return {"decoding": rows}
