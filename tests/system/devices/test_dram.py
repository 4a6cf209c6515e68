# SPDX-License-Identifier: Apache-2.0
"""Real DRAMs behind the machines that know time: results do not depend on the memory, the timing model is within 1 % of
the RTL, programs run twice take the same cycles, and what cannot be is refused in one line."""

import json
import subprocess
import sys

import _tessera
import numpy as np
import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT / "bench"))
import networks

pytestmark = pytest.mark.usefixtures("compiled_once")
DIGITS = ROOT / "examples" / "digits"
timed = pytest.mark.skipif("sysc" not in tessera.backends(), reason="this build has no timing model")
rtl = pytest.mark.skipif("rtl" not in tessera.backends(), reason="this build has no RTL")


def command(*words):
    return subprocess.run([str(BUILD / "bin" / "tessera"), *map(str, words)], capture_output=True, text=True)


def image(count=1):
    return {"image": np.load(DIGITS / "digits_test.npz")["images"][:count]}


@timed
@rtl
@pytest.mark.parametrize("preset", _tessera.dram_presets())
@pytest.mark.parametrize("config", ["npu64", "npu256"])
def test_results_and_cycles(config, preset):
    data = (DIGITS / "digits.onnx").read_bytes()
    expected = tessera.Session(data, "fsim", config).run(None, image())
    cycles = {}
    for device in ("sysc", "rtl"):
        session = tessera.Session(data, device, config, dram=preset)
        cycles[device] = []
        for _ in range(2):
            for got, want in zip(session.run(None, image()), expected):
                assert np.array_equal(got, want)
            cycles[device].append(session.stats().cycles)
        assert cycles[device][0] == cycles[device][1], f"{device}: the second run differs"
    assert abs(cycles["sysc"][0] - cycles["rtl"][0]) <= 0.01 * cycles["rtl"][0], cycles


@timed
@rtl
@pytest.mark.parametrize("preset", ["sdr-100x16", "ddr3-300x16"])
def test_keyword_network(preset):
    data, feeds = networks.build("ds_cnn")
    cycles = {}
    for device in ("sysc", "rtl"):
        session = tessera.Session(data, device, "npu256", dram=preset)
        session.run(None, feeds)
        cycles[device] = session.stats().cycles
    assert abs(cycles["sysc"] - cycles["rtl"]) <= 0.01 * cycles["rtl"], cycles


@timed
def test_schedules_know_the_memory(tmp_path):
    """A program made for a slow memory is faster there than one made for the ideal memory."""
    data, feeds = networks.build("ds_cnn")
    cycles = {}
    for name in ("ideal", "sdr-100x16"):
        program = tmp_path / f"{name}.tsr"
        tessera.compile(data, str(program), "npu256w", dram=name)
        session = tessera.Session(str(program), "sysc", device_options={"dram": "sdr-100x16"})
        session.run(None, feeds)
        cycles[name] = session.stats().cycles
    assert cycles["sdr-100x16"] < 0.8 * cycles["ideal"], cycles


@timed
def test_command():
    words = ["report", DIGITS / "digits.onnx", "--config", "npu64", "--device", "sysc", "--dram", "ddr3-800x16"]
    done = command(*words, "--json")
    assert done.returncode == 0, done.stderr
    memory = json.loads(done.stdout)["dram"]
    assert memory["preset"] == "ddr3-800x16"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--dram", "ddr9-1x16"], "no DRAM is called 'ddr9-1x16'; known: ideal, sdr-50x16"),
        (["--dram", "ddr3-800x128"], "a command moves at most 64 bytes"),
        (["--dram", "ddr3-800x16", "--dram-latency", "50"], "give one of the two"),
        (["--dram", "ddr3-800x16", "--dram-bandwidth", "2"], "give one of the two"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_refusals(words, said, tmp_path):
    done = command("compile", DIGITS / "digits.onnx", "-o", tmp_path / "out.tsr", "--config", "npu64", *words)
    assert done.returncode != 0
    assert said in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_presets_have_figures():
    for preset in _tessera.dram_presets():
        found = _tessera.dram_preset(preset)
        latency, bandwidth = _tessera.dram_figures(preset, 8)
        assert latency > found["read_latency"]
        assert 1 <= bandwidth <= 8
        assert found["peak_bytes"] > 0


def test_a_space_names_presets():
    from tessera.exploration import space

    small = {"base": "npu64", "memory": {"dram": ["ideal", "ddr3-800x16"], "latency": [100, 200]}}
    found = space.Space(small)
    machines = [found.machine(number) for number in range(found.size)]
    assert [machine.options() for machine, _ in machines if machine] == [
        {"dram_latency": 100},
        {"dram": "ddr3-800x16"},
        {"dram_latency": 200},
    ]
    assert [why for machine, why in machines if not machine] == [
        "dram = 'ddr3-800x16' has a latency and a bandwidth of its own"
    ]
    with pytest.raises(tessera.Error, match="no DRAM is called 'x'"):
        space.Space({"base": "npu64", "memory": {"dram": "x"}})
