# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share. Enters: a configuration's name. Leaves: the parameters of tsr_top, the Yosys
commands that read the machine, and one way to run Yosys: niced, with a bound on memory and time, its log in a file."""

import dataclasses
import functools
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).absolute().parents[2]
MEMORY_BYTES = 8 << 30


class Failure(Exception):
    """A check that does not hold, or a tool that refuses."""


def shipped():
    """Names of the configurations under hw/configs."""
    return sorted(path.stem for path in (ROOT / "hw/configs").glob("*.toml"))


def file_name(config):
    """A configuration, given by name or as a .toml file, as a part of the names of files."""
    return pathlib.Path(config).stem


def one_core(name, what):
    """Errors: Failure where the configuration is a chip of several cores and `what` takes one."""
    cores = parameters(name).get("Cores", 1)
    if cores > 1:
        raise Failure(f"{what} takes machines of one core, and '{name}' has {cores}; set cores to 1")


def text_of(name):
    """The text of a configuration: a name under hw/configs, sim/verilator/configs or hw/synth/configs, or a .toml file.
    Errors: Failure when there is none."""
    paths = [ROOT / folder / f"{name}.toml" for folder in ("hw/configs", "sim/verilator/configs", "hw/synth/configs")]
    if str(name).endswith(".toml"):
        paths = [pathlib.Path(name)]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        raise Failure(f"no configuration '{name}'; there are {', '.join(shipped())}")
    return path.read_text()


def core_alone(name, folder):
    """A file in `folder` with the configuration of one core of a chip, on its own bus."""
    path = folder / f"{file_name(name)}_core.toml"
    alone = re.sub(r"(?m)^cores *=.*$", "cores = 1", text_of(name))
    path.write_text(re.sub(r"(?m)^memory_axi_bytes *=.*$", "memory_axi_bytes = 0", alone))
    return str(path)


def parameters(name):
    """Parameters of tsr_top of a configuration, or of tsr_chip, which has two more; the name is as in
    text_of."""
    c = tomllib.loads(text_of(name))
    batch, block_in, block_out = c["batch"], c["block_in"], c["block_out"]
    chip = {"Cores": c["cores"], "MemoryAxiBytes": c.get("memory_axi_bytes", 0)} if c.get("cores", 1) > 1 else {}
    return {
        **chip,
        "Batch": batch,
        "BlockIn": block_in,
        "BlockOut": block_out,
        "InpDepth": c["inp_bytes"] // (batch * block_in),
        "WgtDepth": c["wgt_bytes"] // (block_in * block_out),
        "AccDepth": c["acc_bytes"] // (4 * batch * block_out),
        "OutDepth": c["out_bytes"] // (batch * block_out),
        "ParamDepth": c["param_bytes"] // (8 * block_out),
        "TableCount": c["table_count"],
        "SecondLanes": c.get("second_lanes", max(1, batch * block_out // 4)),
        "RowLanes": c.get("row_lanes", 0),
        "AxiBytes": c["axi_bytes"],
        "LoadQueue": c["load_queue"],
        "GemmQueue": c["gemm_queue"],
        "AluQueue": c["alu_queue"],
        "StoreQueue": c["store_queue"],
        "ReadsInFlight": c["reads_in_flight"],
        "WritesInFlight": c["writes_in_flight"],
        "MemoryParity": c.get("memory_parity", 0),
        "PackedWeights": c.get("packed_weights", 0),
        "RasterPairs": c.get("raster_pairs", 0),
    }


def read_table(name):
    """A file of data of this folder."""
    with open(ROOT / "hw/synth" / name, "rb") as file:
        return tomllib.load(file)


def budget(module):
    """The timing budget of a module: {ns, levels}."""
    table = read_table("budget.toml")
    return {**table["default"], **table.get(module, {})}


# Memories of a configuration that go to UltraRAM: instances inside tsr_scratchpads, where the part of the board has too
# little block RAM. The sources say nothing of it: synthesis is told.
ULTRA = {"kv260": ("u_acc", "u_out")}


def ultra(name):
    """Those of a configuration, also of one core of a chip (core_alone)."""
    return ULTRA.get(file_name(name).removesuffix("_core"), ())


def sources():
    modules = [*sorted((ROOT / "hw/prim").glob("*.sv")), *sorted((ROOT / "hw/rtl").glob("*.sv"))]
    packages = [path for path in modules if path.stem.endswith("_pkg")]  # before their users
    return [ROOT / "isa/generated/tsr_isa_pkg.sv", *packages, *(path for path in modules if path not in packages)]


def top(name):
    """The module that is a configuration's machine."""
    return "tsr_chip" if "Cores" in parameters(name) else "tsr_top"


def read_commands(top="tsr_top", chosen=None):
    """Yosys commands that read all sources and elaborate `top`."""
    files = " ".join(str(path) for path in sources())
    given = "".join(f" -chparam {key} {value}" for key, value in (chosen or {}).items())
    return [f"read_verilog -sv {files}", f"hierarchy -check -top {top}{given}"]


@dataclasses.dataclass
class Run:
    seconds: float  # of the processor
    peak_megabytes: float
    log: str


def have_yosys(tool="yosys"):
    return shutil.which(tool) is not None


@functools.cache
def version(tool="yosys"):
    """What a Yosys says it is, for example "0.23"."""
    done = subprocess.run([tool, "-V"], capture_output=True, text=True)
    found = re.search(r"Yosys (\S+)", done.stdout)
    if not found:
        raise Failure(f"'{tool} -V' names no version of Yosys")
    return found[1]


def yosys(commands, log, minutes=15, tool="yosys"):
    """Runs Yosys commands in the folder of `log`. Errors: Failure with Yosys' own message, or with what bound was
    met."""
    log = pathlib.Path(log).absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    script = log.with_suffix(".ys")
    script.write_text("\n".join(commands) + "\n")

    def bounds():
        # A Yosys in WebAssembly reserves more addresses than it uses.
        if not pathlib.Path(tool).name.startswith("yowasp"):
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        # Bounds processor time, so that a busy machine changes no verdict.
        resource.setrlimit(resource.RLIMIT_CPU, (60 * minutes, 60 * minutes))
        os.setpriority(os.PRIO_PROCESS, 0, max(10, os.getpriority(os.PRIO_PROCESS, 0)))

    done = subprocess.run(
        [tool, "-q", "-l", log.name, script.name],
        cwd=log.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=bounds,
    )
    text = log.read_text(errors="replace")
    if done.returncode != 0:
        errors = [line for line in text.splitlines() if "ERROR" in line]
        reason = errors[-1] if errors else f"killed ({done.returncode}): more than {minutes} minutes or 8 GB"
        raise Failure(f"yosys: {reason}\n  log: {log}")
    used = re.search(r"user:? ([\d.]+)s,? system:? ([\d.]+)s(?:, MEM: ([\d.]+) MB)?", text)
    seconds, megabytes = (float(used[1]) + float(used[2]), float(used[3] or 0)) if used else (0.0, 0.0)
    return Run(seconds, megabytes, text)


def main(function):
    """Runs a script's body; a Failure becomes a message and exit status 1."""
    try:
        sys.exit(function())
    except Failure as failure:
        print(f"{pathlib.Path(sys.argv[0]).name}: {failure}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    # Verilator's flags for a configuration's parameters.
    print(" ".join(f"-G{key}={value}" for key, value in parameters(sys.argv[1]).items()))
