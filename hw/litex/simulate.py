#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tessera litex --simulate`: the whole system in Verilator, behind a port. Enters: a board, a configuration. Leaves: a
process that answers there as the board would at its link; with a command behind `--`, that command's exit status, the
system's link in TESSERA_LITEX.

A system is verilated when it is first asked for, in one to three minutes, and kept in build/litex_systems."""

import argparse
import fcntl
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import make
from make import Failure, machine

SYSTEMS = make.ROOT / "build" / "litex_systems"
# Those of device rtl (sim/verilator/making.cc).
FLAGS = [
    *(
        "--cc",
        "--exe",
        "--top-module",
        "tessera",
        "--prefix",
        "Vtessera",
        "-Wno-fatal",
        "-Wno-lint",
        "-Wno-WIDTHCONCAT",
    ),
    *("-O3", "-fno-split", "-fno-table", "--x-assign", "fast", "--x-initial", "fast", "--noassert"),
    *("--unroll-stmts", "10000000", "--unroll-count", "4096"),
]


def verilator():
    tool = shutil.which("verilator")
    if tool is None:
        raise Failure("verilator is not installed; ./dev setup does it")
    return subprocess.run([tool, "--version"], capture_output=True, text=True).stdout.split("rev")[0].strip()


def run(command, log):
    with open(log, "a") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, cwd=log.parent)
    if done.returncode != 0:
        lines = [line for line in log.read_text(errors="replace").splitlines() if "rror" in line]
        raise Failure(f"{command[0]}: {lines[0] if lines else f'exit status {done.returncode}'}; log: {log}")


def build(board, config, clock_hz, processor):
    """The system's program, made when there is none. `processor`: with a VexRiscv, whose firmware is read at the
    system's start. Errors: Failure."""
    tools = verilator()
    values = make.check(board, config)
    found = make.identity(board, values, f"{make.versions()}, {tools}", (True, clock_hz, processor)).hex()
    folder = SYSTEMS / f"{board}_{machine.file_name(config)}_{found[:16]}"
    program = folder / "system"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two may ask at once
        if program.exists():
            return program
        print(f"making the simulated {board} with {config}; this takes some minutes", file=sys.stderr, flush=True)
        description = make.write(
            board, config, folder, tools, simulated=True, clock_hz=clock_hz, firmware=[0] if processor else None
        )
        own = (folder / "tsr_kernel.v", folder / "tessera.v")
        files = [str(path) for path in (*machine.sources(), *own, *description["sources"])]
        log = folder / "log"
        flags = FLAGS + (["-CFLAGS", "-DTESSERA_DATAGRAMS"] if description["bridge"] == "etherbone" else [])
        flags += ["-CFLAGS", "-DTESSERA_CONSOLE"] if processor else []
        run(["verilator", *flags, "--Mdir", "verilated", *files, str(make.HERE / "simulated.cc")], log)
        compiler = shutil.which("clang++-19") or shutil.which("clang++") or "g++"
        jobs = f"-j{os.environ.get('TESSERA_JOBS', os.cpu_count() or 1)}"
        optimised = ["OPT_FAST=-O2", "OPT_SLOW=-O0", "OPT_GLOBAL=-O1", f"CXX={compiler}"]
        run(["make", "-C", "verilated", "-f", "Vtessera.mk", jobs, *optimised], log)
        os.replace(folder / "verilated" / "Vtessera", program)
        shutil.rmtree(folder / "verilated")
    return program


def place_firmware(program, firmware, folder):
    """A folder for the system to start in: the contents of its memories, with the firmware."""
    for path in program.parent.glob("*.init"):
        shutil.copy(path, folder)
    words = make.words_of(firmware)
    (folder / "tessera_rom.init").write_text("".join(f"{word:08x}\n" for word in words))


def start(program, options, folder):
    """Starts the system in a folder; returns the process and the link it names."""
    command = [str(program), "--port", str(options.port), "--break", str(options.breaks), "--seed", str(options.seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder)
    link = process.stdout.readline().strip()
    if not link:
        raise Failure(f"the simulated system did not start on port {options.port}; is the port in use?")
    return process, link


def body():
    parser = argparse.ArgumentParser(prog="tessera litex --simulate", description="a board's system in Verilator")
    parser.add_argument("--simulate", action="store_true", help="run the system here, behind a TCP port")
    parser.add_argument("--board", default="ulx3s", help=f"{', '.join(make.known_boards())}")
    parser.add_argument("--config", default="npu64", help="a configuration's name or a .toml file")
    parser.add_argument("--clock", type=float, metavar="MHZ", help="of the system, if not the board's own")
    parser.add_argument("--port", type=int, default=0, help="on 127.0.0.1; 0: any that is free")
    parser.add_argument("--break", dest="breaks", type=int, default=0, metavar="N", help="break one byte of N")
    parser.add_argument("--seed", type=int, default=1, help="of the broken bytes")
    parser.add_argument("--firmware", metavar="FILE", help="bytes for a VexRiscv at address 0; it gets a UART")
    parser.add_argument("--build-only", action="store_true", help="make the system and end")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="run it with device litex")
    options = parser.parse_args()
    clock_hz = int(options.clock * 1e6) if options.clock else None
    if options.firmware:
        make.words_of(options.firmware)
    program = build(options.board, options.config, clock_hz, options.firmware is not None)
    if options.build_only:
        print(program)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what is started here ends too
    with tempfile.TemporaryDirectory(prefix="tessera-litex-") as folder:
        if options.firmware:
            place_firmware(program, options.firmware, pathlib.Path(folder))
        return serve(program, options, folder if options.firmware else program.parent)


def serve(program, options, folder):
    """Runs the system until it or the command ends; returns the exit status."""
    process, link = start(program, options, folder)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    try:
        console = process.stdout.readline().strip() if options.firmware else ""
        if command:
            environment = {**os.environ, "TESSERA_LITEX": link, "TESSERA_LITEX_CONSOLE": console}
            done = subprocess.run(command, env=environment)
            return done.returncode if done.returncode >= 0 else 1
        print(f"--device litex:{link}   # until Ctrl-C", flush=True)
        if console:
            print(f"{console}   # the firmware's UART, over TCP", flush=True)
        return process.wait()
    except FileNotFoundError:
        raise Failure(f"cannot run '{command[0]}'; is it on the path?") from None
    except KeyboardInterrupt:
        return 0
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    machine.main(body)
