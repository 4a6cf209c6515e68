# SPDX-License-Identifier: Apache-2.0
"""Stream's example of several cores beside a chip: the first stage of ResNet-18 on four cores of 16 x 16 products with
npu256's memories and 32 bytes of DRAM a cycle.

Stream (stream-dse 0.0.8 of PyPI, K. U. Leuven) estimates: it maps each layer's rows to cores by a genetic algorithm and
adds up the cycles of an analytical model of each core. It needs packages of its own, so it runs in an environment that
TESSERA_STREAM names:

    python3 -m venv stream
    stream/bin/pip install stream-dse==0.0.8 "zigzag-dse<3" "numpy<2" "pandas<2.3" "contourpy<1.3.3" "onnx<1.17" plotly
    TESSERA_STREAM=stream ./dev bench stream

Its layers are those of its example `resnet18_few_layers`: a convolution of 7 x 7, pooling, four of 3 x 3, two sums. In
Stream pooling and sums have two further cores, which a chip of Tessera has not."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

INDIVIDUALS, GENERATIONS = 8, 4
BYTES_A_CYCLE = 32
DRAM = 6  # the number of the core that stands for it


def stage():
    """(bytes of the quantised model, feeds) of Stream's layers."""
    import networks
    import numpy as np

    from tests.oracle import oracle

    b = networks.Builder("resnet18_stage", [1, 3, 224, 224])
    x = b.max_pool(b.conv("input", 64, 7, 2))
    for _ in range(2):
        x = b.add(x, b.conv(b.conv(x, 64), 64, activation=None))
    random = np.random.default_rng(2)
    calibration = [{"input": random.random(b.shape, np.float32)} for _ in range(2)]
    model = oracle.quantize(b.finish(x), calibration, per_channel=True)
    return model.SerializeToString(), {"input": random.random(b.shape, np.float32)}


def estimated(folder):
    """What Stream says, by this file in its environment."""
    python = pathlib.Path(folder) / "bin" / "python"
    with tempfile.TemporaryDirectory() as scratch:
        words = [python.absolute(), pathlib.Path(__file__).absolute(), str(INDIVIDUALS), str(GENERATIONS)]
        done = subprocess.run(words, cwd=scratch, capture_output=True, text=True)
    if done.returncode != 0:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def bench(device="sysc"):
    import tessera

    data, feeds = stage()
    row = {"layers": "ResNet-18: 7 x 7, pooling, four of 3 x 3, two sums", "cores": 4, "bytes_a_cycle": BYTES_A_CYCLE}
    for name, config in (("one_core", "npu256"), ("chip", "npu256x4")):
        session = tessera.Session(data, device, config, profile=False)
        session.run(None, feeds)
        stats = session.stats()
        row[f"cycles_of_{name}"] = stats.cycles
        row[f"dram_bytes_of_{name}"] = stats.dram_read_bytes + stats.dram_write_bytes
    if "TESSERA_STREAM" in os.environ:
        row["stream"] = estimated(os.environ["TESSERA_STREAM"])
    else:
        print("TESSERA_STREAM names no environment with stream-dse: Stream is left out", file=sys.stderr)
    return {"stream": [row]}


# What follows runs in Stream's environment.


def memory(name, size, bandwidth, ports=(1, 1, 0)):
    """Of `size` bytes, which gives and takes `bandwidth` bytes a cycle."""
    from zigzag.classes.hardware.architecture.memory_instance import MemoryInstance

    reads, writes, both = ports
    return MemoryInstance(
        name=name,
        size=8 * size,
        r_bw=8 * bandwidth,
        w_bw=8 * bandwidth,
        r_cost=1,
        w_cost=1,
        area=0,
        r_port=reads,
        w_port=writes,
        rw_port=both,
        latency=1,
    )


def array_and_memories(rows, columns):
    from zigzag.classes.hardware.architecture.memory_hierarchy import MemoryHierarchy
    from zigzag.classes.hardware.architecture.operational_array import MultiplierArray
    from zigzag.classes.hardware.architecture.operational_unit import Multiplier

    array = MultiplierArray(Multiplier([8, 8], 0.04, 1), {"D1": rows, "D2": columns})
    return array, MemoryHierarchy(operational_array=array)


def core(number):
    """16 output times 16 input channels, with npu256's scratchpads; INP, ACC and OUT as one memory."""
    from zigzag.classes.hardware.architecture.core import Core

    array, memories = array_and_memories(16, 16)
    taken = {"fh": "w_port_1", "tl": "r_port_1", "fl": None, "th": None}
    both = {"fh": "w_port_1", "tl": "r_port_1", "fl": "w_port_1", "th": "r_port_1"}
    sums = {"fh": "w_port_1", "tl": "r_port_1", "fl": "w_port_2", "th": "r_port_2"}
    for given, operands, ports, served in (
        (memory("weight", 1, 1), ("I2",), (taken,), {(0, 0)}),
        (memory("sum", 4, 4, (2, 2, 0)), ("O",), (sums,), {(0, 1)}),
        (memory("wgt", 262144, 256), ("I2",), (taken,), "all"),
        (memory("inp_acc_out", 32768 + 131072 + 32768, 64), ("I1", "O"), (taken, both), "all"),
    ):
        memories.add_memory(memory_instance=given, operands=operands, port_alloc=ports, served_dimensions=served)
    return Core(number, array, memories, [{"D1": ("K", 16), "D2": ("C", 16)}, {"D1": ("G", 16)}])


def dram(number, bandwidth):
    from zigzag.classes.hardware.architecture.core import Core

    array, memories = array_and_memories(1, 1)
    taken = {"fh": "rw_port_1", "tl": "rw_port_1", "fl": None, "th": None}
    given = dict.fromkeys(("fh", "tl", "fl", "th"), "rw_port_1")
    memories.add_memory(
        memory_instance=memory("dram", 1 << 30, bandwidth, (0, 0, 1)),
        operands=("I1", "I2", "O"),
        port_alloc=(taken, taken, given),
        served_dimensions="all",
    )
    return Core(number, array, memories)


def dram_bytes(found):
    """Of the tensors that its links from and to DRAM carry."""
    links = [data["cl"] for *_, data in found.accelerator.cores.edges(data=True)]
    # A link that many cores share names the one end alone.
    links = {
        id(link): link for link in links if DRAM in [getattr(end, "id", None) for end in (link.sender, link.receiver)]
    }
    moved = [event for link in links.values() for event in link.events if event.type == "transfer"]
    return round(sum(tensor.size for event in moved for tensor in event.tensors) / 8)


def main(individuals, generations):
    import logging
    import types

    logging.disable(logging.INFO)
    from stream.classes import stages
    from stream.classes.cost_model.cost_model import StreamCostModelEvaluation
    from stream.classes.hardware.architecture.accelerator import Accelerator
    from stream.inputs.examples.hardware.cores import pooling, simd
    from stream.inputs.examples.hardware.nocs.mesh_2d import get_2d_mesh
    from zigzag.classes.stages import AcceleratorParserStage, MainStage

    # It gives its result only where it draws; nothing is drawn.
    StreamCostModelEvaluation.plot_schedule = StreamCostModelEvaluation.plot_memory_usage = lambda *_, **__: None
    mesh = get_2d_mesh(
        [core(k) for k in range(4)], 2, 2, 64, 0, pooling.get_core(4), simd.get_core(5), dram(6, BYTES_A_CYCLE)
    )
    chip = types.ModuleType("tessera_chip")
    chip.accelerator = Accelerator("npu256x4", mesh, offchip_core_id=DRAM)
    sys.modules[chip.__name__] = chip
    answers = MainStage(
        [
            AcceleratorParserStage,
            stages.UserDefinedModelParserStage,
            stages.GenerateCNWorkloadHybridStage,
            stages.IntraCoreMappingStage,
            stages.InterCoreMappingStage,
        ],
        accelerator=chip.__name__,
        workload_path="stream.inputs.examples.workload.resnet18_few_layers",
        mapping_path="stream.inputs.examples.mapping.tpu_like_quad_core",
        loma_lpf_limit=6,
        nb_ga_individuals=individuals,
        nb_ga_generations=generations,
        node_hw_performances_path="outputs/costs.pickle",
        plot_hof=True,
        plot_file_name=False,
        plot_full_schedule=False,
        plot_data_transfer=False,
        cn_define_mode=1,
        hint_loops=[("OY", "all")],
        scheduler_candidate_selection="memory",
        operands_to_prefetch=[],
    ).run()
    found = answers[0][0]
    print(json.dumps({"cycles": found.latency, "dram_bytes": dram_bytes(found)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
