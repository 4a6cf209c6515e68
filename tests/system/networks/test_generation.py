# SPDX-License-Identifier: Apache-2.0
"""The decoding loop: blocks of the prompt, then steps; several sequences; every token and logit equal between devices
and equal to ONNX Runtime's."""

import numpy as np
import pytest

from tessera.generation import Generator
from tests.system.decoder import Decoder, empty_past
from tests.system.networks.test_decoders import as_past, runtime

pytestmark = pytest.mark.usefixtures("compiled_once")
SMALL = {"layers": 2, "heads": 4, "groups": 2, "size": 8}


def greedy(decoder, data, prompt, new_tokens):
    """(tokens, logits of each) by ONNX Runtime, one token at a time."""
    session, past, tokens, logits = runtime(data), empty_past(decoder), list(prompt), []
    for position in range(len(prompt) + new_tokens - 1):
        feeds = {"input_ids": np.array([[tokens[position]]]), "position_ids": np.array([[position]]), **past}
        results = session.run(None, feeds)
        past = as_past(decoder, results)
        if position >= len(prompt) - 1:
            logits.append(results[0][0, -1])
            tokens.append(int(logits[-1].argmax()))
    return tokens[len(prompt) :], logits


def test_tokens_and_logits_equal_onnx_runtime():
    decoder = Decoder(**SMALL, longest=40)
    data, prompt = decoder.model(), [3, 17, 5]
    want, logits = greedy(decoder, data, prompt, 20)
    for device, count in (("fsim", 20), ("sysc", 20), ("rtl", 4)):
        generator = Generator(data, device, "npu64", max_length=24)
        steps = list(generator.stream([prompt], count))
        made = [step for step in steps if step.generated]
        assert [int(step.tokens[0]) for step in made] == want[:count], device
        assert all(np.array_equal(step.logits[0], row) for step, row in zip(made, logits[:count], strict=True)), device
        assert all((step.cycles is None) == (device == "fsim") for step in steps)


@pytest.mark.parametrize("cache", ["dequantised", "float"])
def test_other_forms_of_a_cache(cache):
    """Around a Concat of dequantised bytes the cache stays on the NPU; one of floats goes through the host."""
    decoder = Decoder(**SMALL, seed=6, cache=cache)
    data = decoder.model()
    want, logits = greedy(decoder, data, [2, 11], 8)
    generator = Generator(data, "fsim", "npu64", max_length=12, check_races=True)
    steps = [step for step in generator.stream([[2, 11]], 8) if step.generated]
    assert [int(step.tokens[0]) for step in steps] == want
    assert all(np.array_equal(step.logits[0], row) for step, row in zip(steps, logits, strict=True))
    joins = [layer for layer in generator.session.stats().layers if layer.op in ("Concat", "QLinearConcat")]
    placed = {layer.placement for layer in joins}
    assert placed == ({"npu"} if cache == "dequantised" else {"cpu"})


def test_sequences_of_a_batch_are_independent():
    decoder = Decoder(**SMALL, seed=3)
    data = decoder.model("batch")
    prompts = [[1, 2, 3, 4, 5], [30], [7, 8, 9]]
    together = Generator(data, max_length=16).generate(prompts, 6)
    for prompt, tokens in zip(prompts, together, strict=True):
        assert Generator(data, max_length=16).generate([prompt], 6) == [tokens]
        assert greedy(decoder, data, prompt, 6)[0] == tokens


def test_blocks_of_the_prompt():
    """The same tokens whatever the size of a block; what is more than whole blocks comes first."""
    decoder = Decoder(**SMALL, seed=5, normalise=True)
    data, prompts = decoder.model("batch", None), [[4, 9, 2, 33, 1, 0, 12], [8, 8, 1, 2, 3, 5, 6, 7]]
    results = []
    for block, counts in ((1, [1] * 7), (3, [1, 3, 3]), (4, [3, 4]), (9, [7])):
        steps = list(Generator(data, max_length=20, block=block).stream(prompts, 5))
        results.append([step.tokens.tolist() for step in steps[-4:]])
        assert [step.count for step in steps[: len(counts)]] == counts
        assert steps[-1].position + steps[-1].count == 12
    assert all(result == results[0] for result in results)


def test_what_is_no_decoder_or_does_not_fit():
    decoder = Decoder()
    generator = Generator(decoder.model(), max_length=8)
    with pytest.raises(ValueError, match="5 tokens of prompt and 5 behind it exceed 8"):
        generator.generate([[1, 2, 3, 4, 5]], 5)
    with pytest.raises(ValueError, match="at least one token"):
        generator.generate([[]], 2)


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_short_pasts_run_short_programs(steps):
    """Programs for shorter lengths give the tokens and logits of one for all lengths, and take fewer cycles."""
    data, prompt = Decoder(**SMALL, seed=11, longest=128).model(tokens=None), list(range(21))
    results, cycles = [], []
    for given in (0, steps):
        generator = Generator(data, "sysc", "npu64", max_length=128, length_steps=given, block=8)
        made = list(generator.stream([prompt], 80))
        generator.session.finish_search()
        results.append([(step.tokens.tolist(), step.logits.tobytes()) for step in made if step.generated])
        cycles.append([step.cycles for step in made if step.count == 1])
    assert results[0] == results[1]
    assert len(set(cycles[0])) < len(set(cycles[1])) and max(cycles[1]) <= max(cycles[0])
    assert cycles[1][0] < 0.9 * cycles[0][0]


def test_a_past_from_before_goes_on_in_a_longer_program():
    """Sequences part on the device and on the host, on both sides of the border between two programs."""
    decoder = Decoder(**SMALL, seed=2, longest=128)
    data = decoder.model()
    want, _ = greedy(decoder, data, [5, 6], 40)
    generator = Generator(data, "sysc", "npu64", max_length=100, length_steps=2)
    steps = [step for step in generator.stream([[5, 6]], 40) if step.generated]
    assert [int(step.tokens[0]) for step in steps] == want
    again = Generator(data, "fsim", "npu64", max_length=100, length_steps=4, check_races=True, poison=7)
    assert again.generate([[5, 6]], 40) == [want]
    assert again.generate([[5, 6, *want[:35]]], 5) == [want[35:]]  # the longer program first
