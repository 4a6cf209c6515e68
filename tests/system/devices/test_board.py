# SPDX-License-Identifier: Apache-2.0
"""Device xrt on the simulated board, as a user starts it: `tessera board`, stock XRT in between, the RTL behind.
Outputs equal the functional simulator's in every element; cycles and counters equal device rtl's; processes and threads
share the board, and one that is killed leaves it usable. What needs no network (every counter, faults, timeouts,
images, several programs in flight) is in driver/xrt_emu/board_test.cc, which runs here once more, on a board that
others use."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from tests.system.conftest import BUILD, ROOT

TESSERA = BUILD / "bin" / "tessera"
LONG = bool(os.environ.get("TESSERA_LONG"))
SMALL = ["ds_cnn", "autoencoder"]
pytestmark = pytest.mark.skipif(
    not (BUILD / "lib/tessera/xrt/lib/libxrt_hwemu.so.2").exists(),
    reason="this build has no simulated board (libxrt-dev or verilator is missing)",
)


def plain_environment():
    """Without a board, with what a Python process needs to find the package."""
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("XILINX_XRT", "XCL_EMULATION_MODE", "TESSERA_BOARD", "TESSERA_XCLBIN")
    }
    return dict(env, PYTHONPATH=os.pathsep.join([str(ROOT), str(ROOT / "tessera" / "python"), str(BUILD / "lib")]))


class Board:
    """`tessera board` without a command: it prints an environment and serves."""

    def __init__(self, config):
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by stop()
        self.process = subprocess.Popen(
            [TESSERA, "board", "-v", "--config", config],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=plain_environment(),
        )
        self.env = plain_environment()
        for line in self.process.stdout:
            if line.startswith("#"):
                break
            name, value = line.removeprefix("export ").strip().split("=", 1)
            self.env[name] = value.strip("'")

    def start(self, *arguments):
        return subprocess.Popen(
            [sys.executable, "-m", "tests.system.board_worker", *map(str, arguments)],
            cwd=ROOT,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def results(self, process, timeout=600):
        out, err = process.communicate(timeout=timeout)
        assert process.returncode == 0, err or out
        return [json.loads(line) for line in out.splitlines()]

    def work(self, *arguments):
        return self.results(self.start(*arguments))

    def said(self, what):
        """How often the board has said it."""
        self.log.seek(0)
        return self.log.read().count(what)

    def held(self):
        """What the board holds for itself, once it has seen every process go."""
        for _ in range(200):
            if self.said(" comes") == self.said(" goes"):
                break
            time.sleep(0.05)
        folder = pathlib.Path(f"/proc/{self.process.pid}")
        status = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
        return {"kilobytes": int(status["RssAnon"].split()[0]), "descriptors": len(os.listdir(folder / "fd"))}

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(timeout=30) == 0


@pytest.fixture(scope="module")
def board():
    """One board for all tests of this file: that is what it is for."""
    board = Board("npu64")
    yield board
    board.close()
    assert not pathlib.Path(board.env["TESSERA_BOARD"]).exists()


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    path = tmp_path_factory.mktemp("board") / "digits.tsr"
    subprocess.run(
        [TESSERA, "compile", "-q", ROOT / "examples/digits/digits.onnx", "-o", path, "--config", "npu64"], check=True
    )
    return path


@pytest.mark.parametrize("config", ["npu64", "npu256", str(ROOT / "sim/verilator/configs/odd2x4x8.toml")])
def test_networks_equal_the_simulators(board, config):
    """The board becomes what the image of each configuration says."""
    names = (
        ["digits"]
        if "odd" in config
        else ["digits", *SMALL]
        + (["resnet8", "vww"] if LONG else [])
        + (["mobilenetv2"] if LONG and config == "npu256" else [])
    )
    results = board.work("compare", config, *names)
    assert [r["network"] for r in results] == names
    assert all(r["cycles"] > 1000 for r in results)
    print(results)


def test_a_cache_stays_on_the_board(board):
    (result,) = board.work("decode", "npu64")
    assert len(result["tokens"]) == 5


def test_two_processes_with_four_threads_beside_faults(board):
    """Meanwhile a third process makes programs that fault, time out and are right again."""
    programs = subprocess.Popen(
        [
            BUILD / "bin" / "board_test",
            "--gtest_repeat=5",
            "--gtest_filter=*EqualsTheRtl:*SeveralInFlight:*AFault*:*Timeout*",
        ],
        env=board.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    workers = [board.start("threads", "npu64", 4, 10 if LONG else 4) for _ in range(2)]
    for worker in workers:
        assert board.results(worker)[0]["outputs"] > 0
    out, _ = programs.communicate(timeout=300)
    assert programs.returncode == 0, out


def test_a_killed_process_leaves_the_board_usable(board):
    before = board.work("compare", "npu64", "digits")
    resets = board.said("a run was ended by a reset")
    # A kill may come between two runs of the victim: then another one is tried.
    for kill in range(1, 21):
        victim = board.start("endless", "npu64", "resnet8")
        assert json.loads(victim.stdout.readline()) == {"begins": True}
        waiting = board.start("compare", "npu64", "digits")  # wants the machine that the victim has
        time.sleep(0.5)
        victim.kill()
        assert victim.wait() == -signal.SIGKILL
        assert board.results(waiting) == before
        assert board.work("compare", "npu64", "digits") == before
        if kill >= (5 if LONG else 2) and board.said("a run was ended by a reset") > resets:
            return
    raise AssertionError("no kill of twenty ended a run")


def test_a_thousand_cycles_without_growth(board, artifact):
    count = 1000 if LONG else 300
    board.work("cycles", "npu64", 1, artifact)
    held = board.held()
    (result,) = board.work("cycles", "npu64", count, artifact)
    print(result, "board", held, board.held())
    before, after = result["before"], result["after"]
    assert after["descriptors"] == before["descriptors"] and after["threads"] == before["threads"]
    assert after["kilobytes"] <= before["kilobytes"] + 2048
    assert board.held()["descriptors"] == held["descriptors"]
    assert board.held()["kilobytes"] <= held["kilobytes"] + 2048


def test_demo():
    done = subprocess.run(
        [sys.executable, "examples/digits/demo.py", "--device", "xrt", "--config", "npu64"],
        cwd=ROOT,
        env=dict(plain_environment(), PATH=f"{BUILD / 'bin'}{os.pathsep}{os.environ['PATH']}"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "equal outputs     3600 of 3600" in done.stdout and "cycles" in done.stdout


def test_the_command(command, artifact, tmp_path):
    """Exit status and signals of the command pass through; images are written and refused."""
    env = plain_environment()
    board = ("board", "--config", "npu64")
    assert command(*board, "--", "sh", "-c", "exit 7", env=env).returncode == 7
    assert command(*board, "--", "sh", "-c", "kill -9 $$", env=env).returncode == 128 + 9
    missing = command(*board, "--", "no-such-command", env=env)
    assert missing.returncode == 127 and "no-such-command" in missing.stderr
    run = ("tessera", "run", artifact, "--device", "xrt", "--random-inputs", "1")
    done = command(*board, "--", *run, env=env)
    assert done.returncode == 0 and "xrt on npu64" in done.stdout and "cycles" in done.stdout

    for words, said in (
        (("--confg", "npu256"), "no option '--confg'"),
        (("--dram", "sram"), "no DRAM is called 'sram'"),
        (("--dram", "ddr3-800x16", "--dram-latency", "9"), "is that of the ideal DRAM"),
        (("--dram-bandwidth", "9"), "bandwidth is a number from 1 to 8"),
        (("--dram-latency", "1000000"), "latency is a number from 1 to 100000"),
        (("--config", "npu256x2"), "machines of one core"),
    ):
        wrong = command("board", *words, "--", "touch", tmp_path / "begun", env=env)
        assert wrong.returncode == 1 and said in wrong.stderr and len(wrong.stderr.splitlines()) == 1, wrong.stderr
    assert not (tmp_path / "begun").exists()
    trace = command(*board, "--", *run, "--trace", tmp_path / "trace.json", env=env)
    assert trace.returncode == 1 and "device xrt does not tell" in trace.stderr
    assert not (tmp_path / "trace.json").exists()

    image = tmp_path / "small.xclbin"
    assert command(*board, "--write-xclbin", image, env=env).returncode == 0
    assert image.read_bytes()[:8] == b"xclbin2\0"
    wrong = command(
        "board",
        "--",
        "tessera",
        "run",
        ROOT / "examples/digits/digits.onnx",
        "--shape",
        "image=1,1,8,8",
        "--config",
        "npu256",
        "--device",
        "xrt:0",
        "--xclbin",
        image,
        "--random-inputs",
        "1",
        env=env,
    )
    assert (
        wrong.returncode == 1
        and "'npu256'" in wrong.stderr
        and "'npu64'" in wrong.stderr
        and "block_in 16 and 8" in wrong.stderr
    )
    alone = command(*run[1:], env=env)
    assert alone.returncode == 1 and "tessera board --" in alone.stderr
    gone = command(
        *run[1:],
        env=dict(
            env, XILINX_XRT=str(BUILD / "lib/tessera/xrt"), XCL_EMULATION_MODE="hw_emu", TESSERA_BOARD="/nowhere/socket"
        ),
    )
    assert gone.returncode == 1 and "/nowhere/socket" in gone.stderr


def test_a_board_that_ends_ends_its_users(artifact):
    board = Board("npu64")
    user = board.start("endless", "npu64", "ds_cnn")
    assert json.loads(user.stdout.readline()) == {"begins": True}
    time.sleep(0.3)
    board.close()
    _, err = user.communicate(timeout=60)
    assert user.returncode == 1 and "_tessera.Error" in err, err
