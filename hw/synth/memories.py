# SPDX-License-Identifier: Apache-2.0
"""What each memory of the machine has to become in synthesis. Enters: lines of Yosys' log. Leaves: the kind of cell
that every memory was mapped to. A scratchpad that dissolves into flip-flops fits no part, so synthesis (modules.py) and
the structural checks (check.py) both ask here."""

import re

from machine import Failure

# What each memory of the machine becomes: the module, the memory inside it, the kinds of Yosys' cells.
MEMORIES = {
    "tsr_ram_1r1w.mem": ("BLOCKRAM_SDP", "BLOCKRAM_TDP", "URAM"),  # URAM: what machine.ULTRA names
    "tsr_ram_2rw.mem": ("BLOCKRAM_TDP",),
    "tsr_ram_bytes.mem": ("BLOCKRAM_SDP", "BLOCKRAM_TDP"),
    "tsr_window.line_mem": ("BLOCKRAM_SDP", "BLOCKRAM_TDP"),
    "tsr_window.odd_mem": ("BLOCKRAM_SDP", "BLOCKRAM_TDP"),
    "tsr_base.mem": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),
    "tsr_counters.mem": ("LUTRAM_SP", "LUTRAM_DP", "LUTRAM_SDP"),
    "tsr_fetch.mem": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),
    "tsr_queue.mem": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),
    "tsr_runs.loops": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),
    "tsr_runs.iterations": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),
    "tsr_rows.reciprocals": ("BLOCKRAM_SDP", "BLOCKRAM_TDP"),  # of tsr_row_setup, synthesised inside
    "tsr_row_setup.reciprocals": ("BLOCKRAM_SDP", "BLOCKRAM_TDP"),
}
# Those that some machines do not have.
OPTIONAL = {"tsr_window.odd_mem", "tsr_rows.reciprocals", "tsr_row_setup.reciprocals"}
# Memories that may become flip-flops, and up to how many words: below that they are cheaper than LUT RAM.
FLIP_FLOPS = {"tsr_queue.mem": 4}
# Pipelines written as memories, and what is kept of a few rows: LUT RAM or flip-flops, what Yosys finds cheaper.
PIPELINES = {
    "tsr_delay.line": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),
    "tsr_alu.info": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),  # of tsr_alu_under_way, synthesised inside
    "tsr_alu_under_way.info": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),
    "tsr_alu.constants": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),  # of tsr_alu_prepare
    "tsr_alu_prepare.constants": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),
    "tsr_gemm.inside_info": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP"),
    **{
        f"{module}.{name}": ("LUTRAM_SDP", "LUTRAM_DP", "LUTRAM_QP")
        for module, names in (
            ("tsr_rows", ("base", "target", "maximum", "lane_maximum", "corner", "kept")),  # also of its parts
            ("tsr_row_lane", ("lane_maximum", "corner")),
            ("tsr_row_results", ("kept",)),
        )
        for name in names
    },
}
LATCHES = "t:$dlatch t:$adlatch t:$dlatchsr t:$_DLATCH*"


def kinds_of(lines, depths):
    """How Yosys maps the memories: {module.memory: {kind: number}}. `lines`: of its log; `depths`: the number of words
    of the memory in a module, by the module's name. Errors: Failure where the table wants otherwise."""
    kinds = {}
    for line in lines:
        found = re.match(r"(?:mapping memory (\S.*) via \$__XILINX_(\S+?)_?|using FF mapping for memory (\S.*))$", line)
        if not found:
            continue
        memory = found[1] or found[3]
        module = re.findall(r"tsr_\w+", memory)
        key = f"{module[-1]}.{memory.rsplit('.', 1)[-1]}" if module else memory
        kind = found[2] or "flip-flops"
        small = depths.get(re.sub(r"(\.gen_\w+)*\.\w+$", "", memory), 1 << 30) <= FLIP_FLOPS.get(key, 0)
        pipeline = key in PIPELINES and kind in ("flip-flops", *PIPELINES[key])
        if kind not in MEMORIES.get(key, ()) and not pipeline and not (small and not found[2]):
            wanted = " or ".join(MEMORIES.get(key, ("nothing: it is not in the table",)))
            raise Failure(f"memory {memory} becomes {kind}, wanted {wanted}; see MEMORIES in hw/synth/memories.py")
        kinds.setdefault(key, {}).setdefault(kind, 0)
        kinds[key][kind] += 1
    return kinds
