#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`tessera litex --simulate`: the whole system in Verilator, behind a port. Enters: a board, a configuration. Leaves: a
process that answers there as the board would at its link; with a command behind `--`, that command's exit status, the
system's link in TESSERA_LITEX. With `--firmware FOLDER` the system has a processor that runs what `tessera export
--target litex-vexriscv` made there; the port is its serial line for `tessera console`, which a command finds in
TESSERA_CONSOLE.

A system is verilated when it is first asked for, in one to three minutes, and kept in build/litex_systems."""

import argparse
import fcntl
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile

import make
from machine import Failure, main, sources

BOOT_BYTES = 1 << 20  # as in soc.py
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


def boot_image(folder, scratch):
    """Words of the boot memory as text: boot.c, and behind it the firmware of a folder. Errors: Failure."""
    firmware, compiler = pathlib.Path(folder) / "firmware.bin", shutil.which("riscv64-unknown-elf-gcc")
    if not firmware.exists():
        raise Failure(f"there is no {firmware}; `make -C {folder}` makes it of an export for litex-vexriscv")
    if compiler is None:
        raise Failure("riscv64-unknown-elf-gcc is not installed; ./dev setup --extras bare-metal does it")
    shutil.copy(firmware, scratch / "firmware.bin")
    flags = ["-march=rv32im", "-mabi=ilp32", "-Os", "-ffreestanding", "-nostdlib", "-fno-tree-loop-distribute-patterns"]
    files = [str(make.HERE / name) for name in ("boot.S", "boot.c")]
    run([compiler, *flags, f"-Wl,-T,{make.HERE / 'boot.ld'}", "-o", "boot.elf", *files], scratch / "log")
    run(["riscv64-unknown-elf-objcopy", "-O", "binary", "boot.elf", "boot.bin"], scratch / "log")
    image = (scratch / "boot.bin").read_bytes()
    if len(image) > BOOT_BYTES:
        raise Failure(f"{firmware} has {len(image)} bytes; the simulated boot memory holds {BOOT_BYTES}")
    image += bytes(-len(image) % 4)
    return "".join(f"{word:08x}\n" for (word,) in struct.iter_unpack("<I", image))


def with_firmware(program, firmware, scratch):
    """A folder with the memories' contents of a system that is alone, the firmware in its boot memory."""
    description = json.loads((program.parent / "description.json").read_text())
    for path in program.parent.glob("*.init"):
        shutil.copy(path, scratch / path.name)
    (scratch / description["boot_memory"]).write_text(boot_image(firmware, scratch))
    return scratch


def build(board, config, clock_hz, alone=False):
    """The system's program, made when there is none. Errors: Failure."""
    tools = verilator()
    values = make.check(board, config)
    found = make.identity(board, values, f"{make.versions()}, {tools}", make.marks_of(True, clock_hz, alone)).hex()
    folder = SYSTEMS / f"{board}_{make.machine.file_name(config)}{'_alone' if alone else ''}_{found[:16]}"
    program = folder / "system"
    if program.exists():
        return program
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two may ask at once
        if program.exists():
            return program
        print(f"making the simulated {board} with {config}; this takes some minutes", file=sys.stderr, flush=True)
        description = make.write(board, config, folder, tools, simulated=True, clock_hz=clock_hz, alone=alone)
        files = [str(path) for path in (*sources(), folder / "tsr_kernel.v", folder / "tessera.v")]
        files += [str(folder / "processor.v")] if alone else []
        log = folder / "log"
        flags = FLAGS + (["-CFLAGS", "-DTESSERA_DATAGRAMS"] if description["bridge"] == "etherbone" else [])
        run(["verilator", *flags, "--Mdir", "verilated", *files, str(make.HERE / "simulated.cc")], log)
        compiler = shutil.which("clang++-19") or shutil.which("clang++") or "g++"
        jobs = f"-j{os.environ.get('TESSERA_JOBS', os.cpu_count() or 1)}"
        optimised = ["OPT_FAST=-O2", "OPT_SLOW=-O0", "OPT_GLOBAL=-O1", f"CXX={compiler}"]
        run(["make", "-C", "verilated", "-f", "Vtessera.mk", jobs, *optimised], log)
        os.replace(folder / "verilated" / "Vtessera", program)
        shutil.rmtree(folder / "verilated")
    return program


def start(program, options, folder=None):
    """Starts the system in a folder with its memories' contents; returns the process and the link it names."""
    command = [str(program), "--port", str(options.port), "--break", str(options.breaks), "--seed", str(options.seed)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder or program.parent)
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
    parser.add_argument("--firmware", metavar="FOLDER", help="a system with a processor, and the firmware it runs")
    parser.add_argument("--build-only", action="store_true", help="make the system and end")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="run it with device litex")
    options = parser.parse_args()
    clock_hz = int(options.clock * 1e6) if options.clock else None
    program = build(options.board, options.config, clock_hz, options.firmware is not None)
    if options.build_only:
        print(program)
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that what is started here ends too
    with tempfile.TemporaryDirectory(prefix="tessera-firmware-") as scratch:
        folder = with_firmware(program, options.firmware, pathlib.Path(scratch)) if options.firmware else None
        return serve(program, options, folder)


def serve(program, options, folder):
    """Runs the system until the command ends, or until Ctrl-C; returns the exit status."""
    process, link = start(program, options, folder)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    try:
        if command:
            place = {"TESSERA_CONSOLE": f"tcp:{link}"} if folder else {"TESSERA_LITEX": link}
            done = subprocess.run(command, env={**os.environ, **place})
            return done.returncode if done.returncode >= 0 else 1
        use = f"tessera console --port tcp:{link}" if folder else f"--device litex:{link}"
        print(f"{use}   # until Ctrl-C", flush=True)
        return process.wait()
    except FileNotFoundError:
        raise Failure(f"cannot run '{command[0]}'; is it on the path?") from None
    except KeyboardInterrupt:
        return 0
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    main(body)
