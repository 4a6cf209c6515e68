#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A machine with mistakes to choose from. Enters: the folder of the RTL. Leaves: a copy of it in which each line of
MUTANTS is wrong when its number is chosen at the start (C function tsr_mutant), and the list of the mutants as C++.
One build serves all of them. A mutant says which assertion of hw/assert has to notice it.

usage: mutate.py HW_RTL OUTPUT_FOLDER
"""

import pathlib
import re
import sys

# module, text that stands there once, the expression in it that changes, what it becomes, the assertion's text.
MUTANTS = [
    ("tsr_axi_read", "if (m_arready_i) arvalid_q <= 1'b0;", "m_arready_i", "1'b1", "arvalid fell before arready"),
    (
        "tsr_axi_read",
        "assign free = (!arvalid_q || m_arready_i) && owners_ready;",
        "(!arvalid_q || m_arready_i)",
        "1'b1",
        "address changed before arready",
    ),
    (
        "tsr_axi_read",
        "assign load_ar_ready_o = free && !fetch_ar_valid_i && !(crowded && load_ar_grows_i);",
        "!fetch_ar_valid_i",
        "1'b1",
        "two masters granted",
    ),
    (
        "tsr_axi_read",
        "assign free = (!arvalid_q || m_arready_i) && owners_ready;",
        "owners_ready",
        "1'b1",
        "more than ReadsInFlight bursts",
    ),
    (
        "tsr_axi_read",
        "araddr_q <= fetch_ar_valid_i ? fetch_ar_addr_i : load_ar_addr_i;",
        "load_ar_addr_i",
        "load_ar_addr_i + 64'd1",
        "read burst not aligned to the bus",
    ),
    ("tsr_bursts", "assign longest = ~place | {LengthBits{!ends_page}};", "!ends_page", "1'b1", "burst crosses 4 KB"),
    ("tsr_axi_write", "if (m_awready_i) awvalid_q <= 1'b0;", "m_awready_i", "1'b1", "awvalid fell before awready"),
    (
        "tsr_axi_write",
        "assign burst_ready_o = (!awvalid_q || m_awready_i) && lengths_ready;",
        "(!awvalid_q || m_awready_i)",
        "1'b1",
        "address changed before awready",
    ),
    ("tsr_axi_write", "if (m_wready_i) wvalid_q <= 1'b0;", "m_wready_i", "1'b1", "wvalid fell before wready"),
    (
        "tsr_axi_write",
        "assign w_ready_o = length_valid && (!wvalid_q || m_wready_i);",
        "(!wvalid_q || m_wready_i)",
        "1'b1",
        "data changed before wready",
    ),
    (
        "tsr_axi_write",
        "assign w_ready_o = length_valid && (!wvalid_q || m_wready_i);",
        "length_valid",
        "1'b1",
        "data before their burst",
    ),
    ("tsr_axi_write", "wlast_q <= last;", "last", "1'b1", "wlast on the wrong beat"),
    (
        "tsr_axi_write",
        "awaddr_q <= burst_addr_i;",
        "burst_addr_i",
        "burst_addr_i + 64'd2",
        "write burst not aligned to the bus",
    ),
    (
        "tsr_store",
        "assign burst_valid_o = bursts_valid && expect_ready;",
        "expect_ready",
        "1'b1",
        "a response expected without room",
    ),
    (
        "tsr_control",
        "if (answer_q && !read_held) rvalid_q",
        "answer_q && !read_held",
        "answer_q && !read_held || write",
        "read data without a read",
    ),
    ("tsr_control", "if (write) begin\n        bvalid_q", "write", "write || read", "write response without a write"),
    (
        "tsr_control",
        "if (bvalid_q && s_bready_i) bvalid_q <= 1'b0;",
        "s_bready_i",
        "1'b1",
        "write response changed before bready",
    ),
    (
        "tsr_control",
        "if (rvalid_q && s_rready_i) rvalid_q <= 1'b0;",
        "s_rready_i",
        "1'b1",
        "read data changed before rready",
    ),
    ("tsr_control", "assign s_awready_o = write;", "write", "!bvalid_q", "address and data taken apart"),
    (
        "tsr_scratchpads",
        "assign alu_acc_gnt_o = !gemm_acc_req_i;",
        "!gemm_acc_req_i",
        "1'b1",
        "ACC read: not one grant",
    ),
    (
        "tsr_scratchpads",
        "assign alu_acc_wgnt_o = !gemm_acc_we_i;",
        "!gemm_acc_we_i",
        "1'b1",
        "ACC write: not one grant",
    ),
    (
        "tsr_scratchpads",
        "assign alu_inp_gnt_o = alu_inp_we_i || alu_inp_first_i || !load_inp;",
        "!load_inp",
        "1'b1",
        "INP port B: not one grant",
    ),
    (
        "tsr_scratchpads",
        "assign load_gnt_o = !(load_inp && (alu_inp_we_i || alu_inp_first_i)) &&",
        "alu_inp_first_i",
        "1'b0",
        "INP port B: not one grant",
    ),
    (
        "tsr_scratchpads",
        "assign store_out_gnt = store_req_i && !store_acc_i && !alu_out_claim_i;",
        "!alu_out_claim_i",
        "1'b1",
        "OUT read: not one grant",
    ),
    (
        "tsr_scratchpads",
        "!(load_out && alu_out_we_i);",
        "(load_out && alu_out_we_i)",
        "1'b0",
        "OUT write: not one grant",
    ),
    (
        "tsr_gemm",
        "assign inp_addr_o = inp_address;",
        "inp_address",
        "(inp_address | 14'h2000)",
        "GEMM reads behind INP",
    ),
    (
        "tsr_alu",
        "assign write_address = rows_busy ? rows_dst_address : 14'(write_entry);",
        "14'(write_entry)",
        "(14'(write_entry) | 14'h2000)",
        "ALU writes behind OUT",
    ),
    ("tsr_load", "assign sp_group_o = group_q;", "group_q", "~group_q", "LOAD writes behind"),
    ("tsr_store", "assign sp_group_o = reads_group +", "reads_group", "~reads_group", "STORE reads behind"),
    ("tsr_queue", "assign push = valid_i && ready_o;", "ready_o", "1'b1", "overflow"),
    ("tsr_queue", "assign pop = valid_o && ready_i;", "valid_o", "1'b1", "underflow"),
    (
        "tsr_queue",
        "if (push) tail_q <= tail_q == LastSlot ? '0 : tail_q + 1'b1;",
        "tail_q == LastSlot",
        "1'b0",
        "a pointer left the queue",
    ),
    (
        "tsr_fetch",
        "assign request = run_i && more_q && any_room_q;",
        "any_room_q",
        "1'b1",
        "a word read ahead without room",
    ),
    ("tsr_store", "assign sp_req_o = reads_valid && room_q != '0;", "room_q != '0", "1'b1", "a beat read without room"),
    ("tsr_timeline", "count_q.engine[e] + 16'd1;", "16'd1", "16'hffff", "a counter is not the number of signals"),
    (
        "tsr_load",
        "complete_q <= done || none_take;",
        "none_take",
        "none_take || complete_q",
        "an engine completed what it did not take",
    ),
    ("tsr_rows", "assign look_up_o = valid_1 && is_sum;", "is_sum", "reducing", "rows read tables that they have not"),
    (
        "tsr_rows",
        "assign result_look_up_o = result_valid_1_q && is_softmax;",
        "is_softmax",
        "!reducing",
        "rows read tables for results that they have not",
    ),
    (
        "tsr_row_channels",
        "assign param_req_o = normalise_i && valid_5",
        "normalise_i",
        "1'b1",
        "rows read channels that they have not",
    ),
    ("tsr_row_reads", "(begin_i || running_i || gather_i ||", "begin_i", "1'b0", "rows read INP without a claim"),
    (
        "tsr_gemm",
        "assign line_col = LineBits'(column);",
        "LineBits'(column)",
        "'0",
        "a line buffer's column is read while it is written",
    ),
    ("tsr_row_under_way", "(ways & meets) != '0;", "meets", "'0", "rows read what they have not written yet"),
    (
        "tsr_rows",
        "assign result_target = (both ? target_read : run_target_q) + target_step;",
        "target_step",
        "source_step",
        "rows write a vector to another one's place",
    ),
    ("tsr_rows", ".address_i(source_step + run_source_q)", "run_source_q", "run_target_q", "rows read out of order"),
    (
        "tsr_rows",
        "assign map_done = (both ? rest_q && state_q == Walk : !is_max && running_q && final_row_q) &&",
        "final_row_q",
        "1'b1",
        "rows ended with vectors not read",
    ),
    ("tsr_rows", "ways_idle && !resulting;", "ways_idle", "1'b1", "rows ended with vectors not written"),
    (
        "tsr_row_reads",
        "assign all_taken_o = fetched_all_q && late_q == '0;",
        "late_q == '0",
        "1'b1",
        "rows ended with vectors not written",
    ),
    (
        "tsr_row_results",
        "assign finish_ends = written && finish_row_q == finish_rows_q && !max_i;",
        "finish_row_q == finish_rows_q",
        "1'b1",
        "rows ended with scalars not written",
    ),
    (
        "tsr_rows",
        "assign target_read = target[{finish_half, both ? fetch_row : finish_row}];",
        "both ? fetch_row : finish_row",
        "finish_row ^ RowBits'(acc_wgnt_i && acc_we_o)",
        "a row's scalars changed before they were written",
    ),
]

# Those of tsr_unpack, which a test of that module alone hunts: machines have one form of entry each.
PLACE, WEIGHT = "a header of packed weights out of place", "a weight is not its scale times its bits"
UNPACK = [
    ("header_q <= 1'b1;\n      left_q <= CountBits'(HeaderBeats - 1);", "HeaderBeats - 1", "HeaderBeats", PLACE),
    ("end else if (fire_i && left_q == '0) begin", "left_q == '0", "left_q <= 1", PLACE),
    ("end else if (fire_i && left_q == '0) begin", "fire_i", "1'b1", PLACE),
    ("CountBits'(Beats - 1) :", "Beats - 1", "Beats", PLACE),
    (": CountBits'(HeaderBeats - 1);", "HeaderBeats - 1", "HeaderBeats", PLACE),
    ("end else if (fire_i) begin\n      left_q", "fire_i", "1'b1", PLACE),
    ("header_q <= !header_q;", "!header_q", "header_q", PLACE),
    ("'0;\n  always_ff @(posedge clk_i) begin\n    if (begin_i)", "begin_i", "1'b0", PLACE),
    ("if (fire_i && header_q) scales_q <=", "fire_i", "1'b1", WEIGHT),
    ("{scales, scales_q} >> (5 * HeaderRows)", "5 * HeaderRows", "5 * HeaderRows - 5", WEIGHT),
    ("else if (fire_i && row_ends) scales_q", "row_ends", "1'b1", WEIGHT),
    ("else if (fire_i && row_ends) scales_q", "fire_i", "1'b1", WEIGHT),
    ("scales_q <= scales_q >> (5 * Rows);", "5 * Rows", "5 * Rows + 5", WEIGHT),
    ("assign row_ends = (left_q & CountBits'(RowBeats - 1)) == '0;", "RowBeats - 1", "RowBeats", WEIGHT),
    ("~beat_data_i[4*r+:4] << (4 - k) == '0;", "4 - k", "3 - k", WEIGHT),
    ("scales[5*r+:5] = {1'b0, beat_data_i[4*r+:4]};", "4*r", "4*(HeaderRows-1-r)", WEIGHT),
    (".value_i({1'b0, scales_q[5*(e/BlockIn)+:5]})", "e/BlockIn", "Rows-1-e/BlockIn", WEIGHT),
    (".by_i(weights[4*e+:4])", "4*e", "4*(e^1)", WEIGHT),
    ("assign groups_o[8*e+:8] = product[7:0];", "product[7:0]", "product[8:1]", WEIGHT),
]

# Those of the interconnect, which a test of that part of a chip hunts.
REGISTERS = "tsr_chip_control"
INTERCONNECT = [
    (
        "tsr_turns",
        "behind_q <= ~(turn_o | (turn_o - 1'b1));",
        "~(turn_o | (turn_o - 1'b1))",
        "'1",
        "passed over more often than there are others",
    ),
    ("tsr_turns", "turn_o = some ? first : any;", "first", "any_first", "several have the turn"),
    ("tsr_turns", "some = any_first != '0;", "any_first != '0", "1'b1", "nobody has the turn although one wants it"),
    ("tsr_share_read", "if (m_arready_i) arvalid_q <= 1'b0;", "m_arready_i", "1'b1", "arvalid fell before arready"),
    (
        "tsr_share_read",
        "assign free = (!arvalid_q || m_arready_i) && owners_ready;",
        "(!arvalid_q || m_arready_i)",
        "1'b1",
        "address changed before arready",
    ),
    (
        "tsr_share_read",
        "assign free = (!arvalid_q || m_arready_i) && owners_ready;",
        "owners_ready",
        "1'b1",
        "more bursts than memory is asked for",
    ),
    (
        "tsr_share_read",
        "answers[c] = m_rvalid_i && owner == CoreBits'(c);",
        "owner",
        "CoreBits'(1)",
        "an answer is held back",
    ),
    (
        "tsr_share_read",
        "taker |= turn[c] ? CoreBits'(c) : '0;",
        "CoreBits'(c)",
        "CoreBits'(0)",
        "not the burst that was granted",
    ),
    ("tsr_share_read", ".ready_i(m_rvalid_i && m_rlast_i)", "m_rlast_i", "1'b1", "an answer is held back"),
    ("tsr_share_read", "assign waits_o = request & ~take;", "~take", "'1", "who waits is wrong"),
    (
        "tsr_share_reader",
        "assign want_o = request_o && free_q > (PlaceBits + 1)'(len_o);",
        "free_q > (PlaceBits + 1)'(len_o)",
        "1'b1",
        "a request held back, or granted without room",
    ),
    (
        "tsr_share_reader",
        "{{(PlaceBits - 7) {1'b1}}, ~len_o}",
        "~len_o",
        "8'hff",
        "a request held back, or granted without room",
    ),
    (
        "tsr_share_reader",
        "assign {carry, last_lane} = {1'b0, lane} +",
        "{1'b0, lane}",
        "'0",
        "not the burst that was granted",
    ),
    ("tsr_share_reader", "assign here = from + beat_q", "from", "'0", "a beat is not memory's answer"),
    (
        "tsr_share_reader",
        "assign pop = fire && (last || here == '1);",
        "last",
        "1'b0",
        "a beat that memory has not answered",
    ),
    ("tsr_share_reader", "assign last = beat_q == length;", "length", "(length | 8'd1)", "rlast on the wrong beat"),
    (
        "tsr_share_reader",
        "assign c_rresp_o = {word_q[8*MemoryBytes], 1'b0};",
        "word_q[8*MemoryBytes]",
        "1'b0",
        "a beat is not memory's answer",
    ),
    (
        "tsr_share_reader",
        "assign fetch = write_q != read_q && (!word_valid_q || pop);",
        "(!word_valid_q || pop)",
        "1'b1",
        "a beat is not memory's answer",
    ),
    ("tsr_share_reader", "else if (pop) word_valid_q <= 1'b0;", "pop", "1'b1", "an answer is held back"),
    ("tsr_share_write", "if (m_awready_i) awvalid_q <= 1'b0;", "m_awready_i", "1'b1", "awvalid fell before awready"),
    (
        "tsr_share_write",
        "assign free = (!awvalid_q || m_awready_i) && owners_ready",
        "(!awvalid_q || m_awready_i)",
        "1'b1",
        "address changed before awready",
    ),
    (
        "tsr_share_write",
        "&& owners_ready && (!sends_q || ends);",
        "owners_ready",
        "1'b1",
        "more bursts than memory is asked for",
    ),
    (
        "tsr_share_write",
        "&& owners_ready && (!sends_q || ends);",
        "(!sends_q || ends)",
        "1'b1",
        "two bursts on their way",
    ),
    ("tsr_share_write", "if (m_wready_i) wvalid_q <= 1'b0;", "m_wready_i", "1'b1", "wvalid fell before wready"),
    (
        "tsr_share_write",
        "assign move = sends_q && sender_valid && (!wvalid_q || m_wready_i);",
        "(!wvalid_q || m_wready_i)",
        "1'b1",
        "data changed before wready",
    ),
    ("tsr_share_write", "wlast_q <= left_q == '0;", "left_q == '0", "left_q <= 8'd1", "wlast on the wrong word"),
    (
        "tsr_share_write",
        "word_take[c] = move && sender_q == CoreBits'(c);",
        "sender_q",
        "owner",
        "a word of another core's burst",
    ),
    (
        "tsr_share_write",
        "responses[c] = m_bvalid_i && owner == CoreBits'(c);",
        "owner",
        "sender_q",
        "a response held back, or without memory's",
    ),
    ("tsr_share_write", "assign waits_o = want & ~take;", "~take", "'1", "who waits is wrong"),
    (
        "tsr_share_writer",
        "assign want_o = whole_q != '0;",
        "whole_q != '0",
        "write_q != read_q",
        "a burst held back, or granted before its data have come",
    ),
    (
        "tsr_share_writer",
        "assign c_wready_o = !used_q[PlaceBits] && known;",
        "!used_q[PlaceBits]",
        "1'b1",
        "a beat held back, or taken without room",
    ),
    (
        "tsr_share_writer",
        "assign c_wready_o = !used_q[PlaceBits] && known;",
        "known",
        "1'b1",
        "a beat held back, or taken without room",
    ),
    (
        "tsr_share_writer",
        "assign fresh = first_q || next_q == '0;",
        "first_q",
        "1'b0",
        "the strobes are not those of the core's bytes",
    ),
    (
        "tsr_share_writer",
        "assign here = first_q ? from : next_q;",
        "from",
        "'0",
        "the strobes are not those of the core's bytes",
    ),
    (
        "tsr_share_writer",
        "assign word_end = c_wlast_i || here == '1;",
        "c_wlast_i",
        "1'b0",
        "the strobes are not those of the core's bytes",
    ),
    (
        "tsr_share_writer",
        "merged[8*AxiBytes*l+:8*AxiBytes] = c_wdata_i;",
        "c_wdata_i",
        "~c_wdata_i",
        "a word is not what the core wrote",
    ),
    ("tsr_share_writer", ".data_i(error_i)", "error_i", "1'b0", "a response is not memory's"),
    (REGISTERS, "pending_q <= pending_q & ~c_bvalid_i;", "~c_bvalid_i", "'1", "a write to the wrong cores"),
    (REGISTERS, "write_core[c] = !s_awaddr_i[16] &&", "!s_awaddr_i[16]", "1'b1", "a write to the wrong cores"),
    (
        REGISTERS,
        "if (write_busy_q && (pending_q & ~c_bvalid_i) == '0) begin",
        "(pending_q & ~c_bvalid_i) == '0",
        "1'b1",
        "a write answered before all cores took it",
    ),
    (REGISTERS, "asking_q <= asking_q & ~c_arready_i;", "~c_arready_i", "'1", "a read of the wrong core"),
    (
        REGISTERS,
        "(waiting_q & ~c_rvalid_i) == '0;",
        "(waiting_q & ~c_rvalid_i) == '0",
        "1'b1",
        "a read answered with another value than the core's",
    ),
    (
        REGISTERS,
        "if (bvalid_q && s_bready_i) bvalid_q <= 1'b0;",
        "s_bready_i",
        "1'b1",
        "write response changed before bready",
    ),
    (
        REGISTERS,
        "if (rvalid_q && s_rready_i) rvalid_q <= 1'b0;",
        "s_rready_i",
        "1'b1",
        "read data changed before rready",
    ),
    (REGISTERS, "if (moved_i) moved_q", "moved_i", "1'b1", "the beats of the shared bus are counted wrongly"),
    (REGISTERS, "if (waits_i[c]) waited_q", "waits_i[c]", "1'b1", "the cycles of waiting are counted wrongly"),
    (
        REGISTERS,
        "all_rest_q <= rst_ni && (rest_i | idle_i) == '1;",
        "(rest_i | idle_i) == '1",
        "(rest_i | idle_i) != '0",
        "not all are at rest, or all are",
    ),
    (
        REGISTERS,
        "assign interrupt_o = interrupt_i != '0;",
        "interrupt_i != '0",
        "interrupt_i == '1",
        "the interrupt is not that of the cores",
    ),
    (
        REGISTERS,
        "clear_q <= s_wdata_i[tsr_isa_pkg::ChipStartClearBit+:Cores];",
        "tsr_isa_pkg::ChipStartClearBit",
        "0",
        "programs begin without a start, or not by it",
    ),
]
ALL = MUTANTS + [("tsr_unpack", *mutant) for mutant in UNPACK] + INTERCONNECT


def mutated(module, text):
    """The module's text with all its mutants; each is an expression chosen by number."""
    spots = {}
    for number, (name, context, old, new, _) in enumerate(ALL, 1):
        if name != module:
            continue
        if text.count(context) != 1:
            sys.exit(f"mutate.py: {module}: mutant {number} wants this text once: {context}")
        spots.setdefault(text.index(context) + context.rindex(old), []).append((number, old, new))
    for start, changes in sorted(spots.items(), reverse=True):
        expression = changes[0][1]
        for number, _, new in changes:
            expression = f"(mutant_q == {number} ? {new} : {expression})"
        text = text[:start] + expression + text[start + len(changes[0][1]) :]
    body = re.search(r"^\);\n", text, re.M).end()
    return text[:body] + "  int mutant_q;\n  initial mutant_q = tsr_mutant_pkg::tsr_mutant();\n" + text[body:]


def main():
    source, output = map(pathlib.Path, sys.argv[1:])
    output.mkdir(parents=True, exist_ok=True)
    chosen = {mutant[0] for mutant in ALL}
    for path in sorted(source.glob("*.sv")):
        text = path.read_text()
        (output / path.name).write_text(mutated(path.stem, text) if path.stem in chosen else text)
    (output / "tsr_mutant_pkg.sv").write_text(
        'package tsr_mutant_pkg;\n  import "DPI-C" function int tsr_mutant();\nendpackage\n'
    )
    row = lambda name, context, old, new, text: f'    {{"{name}", R"({" ".join(context.split())})", "{text}"}},\n'
    (output / "mutants.inc").write_text("".join(row(*mutant) for mutant in MUTANTS))
    (output / "unpack_mutants.inc").write_text("".join(row("tsr_unpack", *mutant) for mutant in UNPACK))
    (output / "interconnect_mutants.inc").write_text("".join(row(*mutant) for mutant in INTERCONNECT))


if __name__ == "__main__":
    main()
