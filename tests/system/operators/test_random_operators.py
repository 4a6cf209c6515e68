# SPDX-License-Identifier: Apache-2.0
"""Random quantised operators: functional simulator = reference interpreter = ONNX Runtime in every element, on shipped
configurations and on an odd one, with races checked and scratchpads and memory poisoned. Class: exact."""

import os

import numpy as np
import pytest

import tessera
from tests.oracle import oracle
from tests.system import builders

SEED = int(os.environ.get("TESSERA_SEED", "1"))
COUNT = int(os.environ.get("TESSERA_RANDOM", "512"))
CHUNK = 16


def check(model, feeds, text, configs):
    data = model.SerializeToString()
    expected = oracle.run_plain(model, feeds)["y"]
    reference = tessera.Session(data, "reference").run(None, feeds)[0]
    differ = lambda got, want: np.argwhere(got != want)[:3].tolist()
    if oracle.exact_cpu():
        assert reference.shape == expected.shape and reference.dtype == expected.dtype, text
        assert np.array_equal(reference, expected), (
            f"reference differs from ONNX Runtime at {differ(reference, expected)}; {text}"
        )
    on_npu = None
    for i, config in enumerate(configs):
        session = tessera.Session(
            data, "fsim", config, check_races=True, poison=i + 1, base_address=(1 << 32) + i * 0x10000
        )
        got = session.run(None, feeds)[0]
        assert np.array_equal(got, reference), (
            f"{config}: {(got != reference).sum()} of {got.size} differ, first {differ(got, reference)}; {text}"
        )
        info = session.info()
        assert info.macs_cpu == 0, f"{config}: multiply-accumulates on the CPU; {text}"
        on_npu = info.nodes_npu
    return on_npu


def seeds(count, start):
    return [range(start + i, start + min(i + CHUNK, count)) for i in range(0, count, CHUNK)]


@pytest.mark.parametrize("chunk", seeds(COUNT, SEED * 100000), ids=lambda c: str(c[0]))
def test_random_convolutions(chunk, configs):
    for seed in chunk:
        model, feeds, text = builders.random_convolution(seed)
        assert check(model, feeds, text, configs) == 1, f"not on the NPU: {text}"


@pytest.mark.parametrize("chunk", seeds(max(CHUNK, COUNT // 8), SEED * 100000 + 20000), ids=lambda c: str(c[0]))
def test_random_matmuls(chunk, configs):
    for seed in chunk:
        model, feeds, text = builders.random_matmul(seed)
        assert check(model, feeds, text, configs) == 1, f"not on the NPU: {text}"


@pytest.mark.parametrize("chunk", seeds(max(CHUNK, COUNT // 4), SEED * 100000 + 40000), ids=lambda c: str(c[0]))
def test_random_pointwise(chunk, configs):
    for seed in chunk:
        check(*builders.random_pointwise(seed), configs)


@pytest.mark.parametrize("chunk", seeds(max(CHUNK, COUNT // 8), SEED * 100000 + 60000), ids=lambda c: str(c[0]))
def test_random_pools(chunk, configs):
    for seed in chunk:
        model, feeds, text = builders.random_pool(seed)
        assert check(model, feeds, text, configs) == 1, f"not on the NPU: {text}"
