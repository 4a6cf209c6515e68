# SPDX-License-Identifier: Apache-2.0
"""The decoder of examples/text: what it writes equals ONNX Runtime's, token by token and logit by logit, and the
devices agree."""

import os
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest

from tessera.generation import Generator
from tests.system.conftest import ROOT

pytestmark = pytest.mark.usefixtures("compiled_once")
FOLDER = ROOT / "examples" / "text"
MODEL = FOLDER / "decoder.onnx"
LONG = bool(os.environ.get("TESSERA_LONG"))
PROMPTS = ("In the beginning", "And it came to pass", "Blessed are", "The LORD said unto Moses", "Behold")


def reference(prompt, count):
    """Chosen bytes and logits of `count` steps behind the prompt, by ONNX Runtime on the growing cache."""
    session = onnxruntime.InferenceSession(MODEL)
    outputs = [port.name for port in session.get_outputs()]
    past = {
        port.name: np.zeros([1, port.shape[1], 0, port.shape[3]], np.uint8)
        for port in session.get_inputs()
        if port.name.startswith("past_key_values")
    }
    tokens, begin, chosen, logits = list(prompt.encode()), 0, [], []
    for _ in range(count):
        feed = {
            "input_ids": np.array([tokens[begin:]], np.int64),
            "position_ids": np.arange(begin, len(tokens), dtype=np.int64)[None],
            "attention_mask": np.ones((1, len(tokens)), np.int64),
        }
        results = dict(zip(outputs, session.run(None, {**feed, **past})))
        past = {name.replace("present", "past_key_values"): results[name] for name in outputs[1:]}
        begin = len(tokens)
        logits.append(results["logits"][0, -1])
        tokens.append(int(logits[-1].argmax()))
        chosen.append(tokens[-1])
    return chosen, np.array(logits)


def written(prompt, count, device, config="npu256", numerics="exact"):
    generator = Generator(MODEL, device, config, max_length=256, block=16, numerics=numerics)
    steps = [step for step in generator.stream([list(prompt.encode())], count) if step.generated]
    return [int(step.tokens[0]) for step in steps], np.array([step.logits[0] for step in steps])


@pytest.mark.parametrize("prompt", PROMPTS)
def test_every_token_and_logit_equals_onnx_runtime(prompt):
    count = 230 if LONG else 12
    expected_tokens, expected = reference(prompt, count)
    for config in ("npu256", "npu256t"):  # softmax along the past on the CPU and on the NPU
        tokens, logits = written(prompt, count, "fsim", config)
        assert tokens == expected_tokens, config
        np.testing.assert_array_equal(logits, expected, err_msg=config)


@pytest.mark.parametrize("prompt", PROMPTS if LONG else PROMPTS[4:])
@pytest.mark.parametrize("device", ["sysc", "rtl"])
def test_devices_write_the_same(device, prompt):
    """The whole decoder on the NPU: only the lookups by token and position and the mask are the host's."""
    count = 230 if LONG else 2
    expected_tokens, expected = written(prompt, count, "fsim", "npu256t", "close")
    tokens, logits = written(prompt, count, device, "npu256t", "close")
    assert tokens == expected_tokens
    np.testing.assert_array_equal(logits, expected)


def test_one_program_a_step():
    generator = Generator(MODEL, "fsim", "npu256t", max_length=256, numerics="close")
    list(generator.stream([[10]], 2))
    assert generator.session.info()["programs"] == 1


def test_the_program_tells_cycles():
    command = [sys.executable, FOLDER / "generate.py", "In the", "--tokens", "3"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("In the") and "cycles a token on npu256t (sysc)" in done.stderr


@pytest.mark.skipif(shutil.which("bible") is None, reason="the text is that of Debian's bible-kjv")
def test_perplexity_by_device():
    """Exact numerics lose nothing beside ONNX Runtime, close ones at most two per cent."""
    found = []
    for options in ([], ["--device", "fsim"], ["--device", "fsim", "--numerics", "close"]):
        command = [sys.executable, FOLDER / "perplexity.py", "--pieces", "4", *options]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
        assert done.returncode == 0, done.stderr
        found.append(float(done.stdout.rsplit(" ", 1)[1]))
    assert found[1] == found[0] and found[2] < 1.02 * found[0]
