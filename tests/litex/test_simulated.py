# SPDX-License-Identifier: Apache-2.0
"""The simulated system of a board and its driver: the digits network equals the functional simulator's outputs, over
whole links and over broken ones; what is wrong with a system is one line. Needs LiteX (`./dev setup --extras litex`);
the first run verilates a system of npu16n, half a minute of processor time. With TESSERA_LONG also the board with DDR3
and Etherbone, MLPerf Tiny's networks, and a bitstream."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import numpy as np
import pytest

import tessera
from tests.system.conftest import BUILD, ROOT

COMMAND = BUILD / "bin" / "tessera"
SMALL = ROOT / "hw" / "synth" / "configs" / "npu16n.toml"
LONG = os.environ.get("TESSERA_LONG") is not None

pytestmark = [
    pytest.mark.skipif(
        not (ROOT / "build" / "litex" / "bin" / "python").exists(),
        reason="LiteX is not installed (./dev setup --extras litex)",
    ),
    pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed"),
]


def litex(*arguments, **options):
    return subprocess.run([COMMAND, "litex", *arguments], capture_output=True, text=True, **options)


class System:
    """A simulated system; `device` is the name of its device."""

    def __init__(self, board, config, *options):
        command = [COMMAND, "litex", "--simulate", "--board", board, "--config", str(config), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert "litex:" in line, self.process.communicate()[1]
        self.device = line.split()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.told = self.process.communicate()[1]


def digits():
    """(model, feeds of eight images)."""
    folder = ROOT / "examples" / "digits"
    with np.load(folder / "digits_test.npz") as data:
        return str(folder / "digits.onnx"), [{"image": image[None]} for image in data["images"][:8]]


def expect_digits(device, config):
    model, inputs = digits()
    session, oracle = (tessera.Session(model, one, str(config), profile=False) for one in (device, "fsim"))
    for feeds in inputs:
        np.testing.assert_array_equal(session.run(None, feeds)[0], oracle.run(None, feeds)[0])
    return session.stats()


def test_digits_equal_the_functional_simulator():
    with System("ulx3s", SMALL) as system:
        stats = expect_digits(system.device, SMALL)
        assert 5000 < stats.cycles < 50000
        expect_digits(system.device, SMALL)  # a second device, after a reset


def test_a_broken_link_changes_nothing():
    with System("ulx3s", SMALL, "--break", "4000", "--seed", "5") as system:
        expect_digits(system.device, SMALL)
    assert int(system.told.split(" cycles, ")[1].split()[0]) > 10, system.told


def test_a_system_of_another_machine_or_identity_is_refused():
    with System("ulx3s", SMALL) as system:
        model, _ = digits()
        with pytest.raises(tessera.Error, match="they differ in block_in 8 and 4"):
            tessera.Session(model, system.device, "npu64")
        with pytest.raises(tessera.Error, match="has a bitstream of identity [0-9a-f]{64} .npu16n on ulx3s., not ff"):
            tessera.Session(model, system.device, str(SMALL), device_options={"identity": "ff"})


def test_a_system_that_ends_is_one_line():
    model, inputs = digits()
    with System("ulx3s", SMALL) as system:
        session = tessera.Session(model, system.device, str(SMALL))
        session.run(None, inputs[0])
    with pytest.raises(tessera.Error, match="nobody answers") as error:
        session.run(None, inputs[0])
    assert "\n" not in str(error.value)


def test_a_link_has_one_user():
    model, inputs = digits()
    with System("ulx3s", SMALL) as system:
        session = tessera.Session(model, system.device, str(SMALL))
        with pytest.raises(tessera.Error, match="no other program use it"):
            tessera.Session(model, system.device, str(SMALL))
        session.run(None, inputs[0])


def test_a_command_gets_the_link(tmp_path):
    model, inputs = digits()
    np.savez(tmp_path / "in.npz", **inputs[0])
    run = [COMMAND, "run", model, "--config", SMALL, "--input", tmp_path / "in.npz", "--device", "litex"]
    done = litex("--simulate", "--config", SMALL, "--", *run)
    assert done.returncode == 0 and "on npu16n" in done.stdout, done.stdout + done.stderr
    done = litex("--simulate", "--config", SMALL, "--", "no-such-command")
    assert done.returncode == 1 and "cannot run 'no-such-command'" in done.stderr


@pytest.mark.parametrize(
    "arguments, told",
    [
        (["--simulate", "--board", "de10"], "no board 'de10'; there are ecpix5, ulx3s, versa"),
        (["--simulate", "--config", "npu7"], "no configuration 'npu7'"),
        ([], "give one of --simulate, --bitstream"),
    ],
)
def test_wrong_commands_are_one_line(arguments, told):
    done = litex(*arguments)
    assert done.returncode != 0 and told in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.skipif(not LONG, reason="verilates a second system (TESSERA_LONG)")
def test_etherbone_and_ddr3():
    with System("ecpix5", "npu64", "--break", "20000") as system:
        assert system.device.startswith("litex:udp:")
        expect_digits(system.device, "npu64")


# rv32im: the machine's magic number, read from 0x9000_0100, goes byte by byte to LiteX's UART at 0xF000_2000.
FIRMWARE = [
    0x900002B7,
    0x10028293,
    0x0002A303,
    0xF00023B7,
    0x00400E13,
    0x0FF37E93,
    0x0043AF03,
    0xFE0F1EE3,
    0x01D3A023,
    0x00835313,
    0xFFFE0E13,
    0xFE0E14E3,
    0x0000006F,
]


@pytest.mark.skipif(not LONG, reason="verilates a system with a processor (TESSERA_LONG)")
def test_firmware_reads_the_machine_and_answers(tmp_path):
    path = tmp_path / "firmware.bin"
    path.write_bytes(b"".join(word.to_bytes(4, "little") for word in FIRMWARE))
    done = litex("--simulate", "--config", SMALL, "--firmware", path, "--", "sleep", "3")
    assert done.returncode == 0 and "TSR1" in done.stderr, done.stderr


@pytest.mark.skipif(not LONG, reason="verilates a third system, and runs networks (TESSERA_LONG)")
def test_networks_equal_the_oracle():
    command = [shutil.which("python3"), ROOT / "bench" / "run.py", "litex", "--json", "--build", BUILD]
    command[0] = str(ROOT / ".venv" / "bin" / "python")
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["litex"]
    assert len(rows) == 6 and all(row["equal_to_fsim"] and row["equal_to_oracle"] for row in rows)
    assert next(row["cycles"] for row in rows if row["network"] == "ds_cnn") < 500_000


@pytest.mark.skipif(not LONG, reason="places and routes a system, an hour (TESSERA_LONG)")
def test_a_small_machine_becomes_a_bitstream():
    done = litex("--bitstream", "--board", "ulx3s", "--config", SMALL, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert all(clock["met"] for clock in report["clocks"])
    folder = pathlib.Path(ROOT / "build" / "bitstream" / "ulx3s_npu16n")
    assert (folder / "tessera.bit").stat().st_size == report["bytes"] and (folder / "tessera.svf").stat().st_size > 0
