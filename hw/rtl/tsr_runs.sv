// SPDX-License-Identifier: Apache-2.0
// The front of LOAD and STORE: checks an instruction's ranges and walks its nest. Enters: instructions. Leaves, in
// order: runs of contiguous bytes {DRAM address, scratchpad byte, bytes, padding}, neighbours that continue each other
// on both sides joined; `continues` marks one that continues the run before in DRAM alone, where both begin and end with
// beats and groups, `more` one before such a run; each instruction's last run carries `last`. A FENCE, or an instruction that fails its range
// check, is one run of 0 bytes with `last`; after a failed check nothing more is taken until reset. The steps of a packed
// LOAD are entries: in DRAM as long as its length says, in the scratchpad PackedEntry; its runs count bytes of DRAM.
//
// A run of LOAD may begin in the beat in which the run before it ends: it `shares` that beat, which is not asked for again.
// The beat in which its requests begin is then the next one, and there may be none. `keep` is said of the run before, when
// the run that shares takes the beat as its own first one: see tsr_realign.
//
// A loop's stride and extent, and where its current iteration began, stand in two small memories: a step reads one loop
// and writes one loop. The loops inside the one that steps begin anew: they are `fresh`, and what stands for them in the
// memory counts no more. A fresh loop began where the next outer one that is not fresh has begun, loop 0 where the nest
// begins.
//
// instr_i is the queue's head in its header and the instruction taken last in the rest, which stays until the next is
// taken.
//
// Latency: taken in cycle t, the first step of the nest in t + TimingTransferPrepare + 1 (t + 2 for FENCE), its run leaves
// when the next step shows that nothing more joins it. Throughput: one step of the nest a cycle; the check of the next
// instruction runs beside the walk. Back-pressure: run_ready_i. Reset: synchronous, active low. Legal: JoinBytes a power
// of two below 2^21. Timing: a loop's address, read from its memory and increased.
module tsr_runs #(
  parameter int unsigned JoinBytes     = 1024,  // a run of this many bytes is not joined further
  parameter bit          Pads          = 1'b1,  // LOAD; STORE has neither padding nor fill
  parameter int unsigned PackedEntry   = 0,     // bytes of a WGT entry where LOAD unpacks weights, else 0
  parameter int unsigned AxiBytes      = 8,
  parameter int unsigned InpBytes      = 64,
  parameter int unsigned WgtBytes      = 64,
  parameter int unsigned AccBytes      = 64,
  parameter int unsigned OutBytes      = 64,
  parameter int unsigned ParamBytes    = 64,
  parameter int unsigned TableBytes    = 64
) (
  input  logic          clk_i,
  input  logic          rst_ni,
  input  logic          instr_valid_i,
  input  logic [511:0]  instr_i,
  input  logic [31:0]   instr_pc_i,
  output logic          instr_ready_o,
  output logic          busy_o,
  output logic [3:0]    base_o,          // number of a base register
  input  logic [63:0]   base_i,          // and what stands in it
  input  logic [63:0]   window_first_i,
  input  logic [63:0]   window_last_i,
  output logic          run_valid_o,
  output logic          run_ends_o,      // run_valid_o of a run with `last`, which waits for no comparison
  output logic          leaves_o,        // run_valid_o and run_ready_i
  input  logic          run_ready_i,
  output logic          run_none_o,      // 0 bytes
  output logic          run_reads_o,     // beats are to be requested
  output logic [63:0]   run_dram_o,      // from here on; the offset in the beat is that of the run
  output logic [22-$clog2(AxiBytes):0] run_left_o,  // beats of the run, less one
  output logic [21:0]   run_sp_o,
  output logic [21:0]   run_bytes_o,
  output logic          run_continues_o,
  output logic          run_more_o,
  output logic          run_over_o,      // its first byte lies further on in its beat than in its group
  output logic          run_shares_o,
  output logic          run_keep_o,
  output logic [2:0]    run_space_o,
  output logic          run_packed_o,
  output logic          run_pad_o,
  output logic [7:0]    run_pad_value_o,
  output logic          run_last_o,
  output logic          run_signal_o,
  output logic [2:0]    run_fault_o,
  output logic [31:0]   run_pc_o
);

  if (JoinBytes != 1 << $clog2(JoinBytes) || JoinBytes >= 1 << 21) $error("tsr_runs: JoinBytes is a power of two below 2^21");

  // Preparation: one instruction whose ranges are being found.
  tsr_isa_pkg::load_t instr;
  logic prep_valid_q, halted_q, prep_fence_q, prep_signal_q;
  logic [31:0] prep_pc_q;
  logic load_unused, load_fence, store_unused, store_fence, prep_done, prep_take, range_done, range_reads, take;
  logic [2:0] range_fault, prep_fault;
  logic [63:0] range_dram;
  logic loop_valid;
  logic [1:0] loop;
  logic [15:0] loop_steps;
  logic [31:0] loop_stride;
  logic [21:0] loop_sp_stride;

  assign instr = instr_i;
  assign {load_unused, load_fence} = tsr_isa_pkg::load_instruction(instr.header.opcode);
  assign {store_unused, store_fence} = tsr_isa_pkg::store_instruction(instr.header.opcode);
  assign take = instr_valid_i && instr_ready_o;

  // What STORE does not have reads as reserved zeros: fill, pads.
  tsr_transfer_range #(
    .Pads(Pads), .PackedEntry(PackedEntry), .AxiBytes(AxiBytes), .InpBytes(InpBytes), .WgtBytes(WgtBytes), .AccBytes(AccBytes), .OutBytes(OutBytes),
    .ParamBytes(ParamBytes), .TableBytes(TableBytes)
  ) u_range (
    .clk_i, .rst_ni, .start_i(take), .instr_i, .base_o, .base_i, .window_first_i, .window_last_i, .done_o(range_done),
    .fault_o(range_fault), .reads_o(range_reads), .dram_o(range_dram), .loop_valid_o(loop_valid), .loop_o(loop),
    .loop_steps_o(loop_steps), .loop_stride_o(loop_stride), .loop_sp_stride_o(loop_sp_stride)
  );

  assign prep_done = prep_valid_q && (prep_fence_q || range_done);
  assign prep_fault = prep_fence_q ? 3'(tsr_isa_pkg::FaultNone) : range_fault;
  assign instr_ready_o = !prep_valid_q && !halted_q;

  always_ff @(posedge clk_i) begin
    if (take) begin
      prep_pc_q <= instr_pc_i;
      prep_fence_q <= Pads ? load_fence : store_fence;
      prep_signal_q <= instr.header.signal;
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      prep_valid_q <= 1'b0;
      halted_q <= 1'b0;
    end else begin
      if (take) prep_valid_q <= 1'b1;
      else if (prep_take) prep_valid_q <= 1'b0;
      if (prep_take && prep_fault != 3'(tsr_isa_pkg::FaultNone)) halted_q <= 1'b1;
    end
  end

  // The loops of two instructions: of the one that walks and of the one in preparation, which fills its half.
  localparam int unsigned Loops = tsr_isa_pkg::TransferLoops;
  typedef struct packed {
    logic [11:0] after;     // iterations of padding behind the body; STORE has none
    logic [15:0] body;      // iterations of body and of padding behind it
    logic [15:0] steps;     // extent - 1
    logic [31:0] stride;
    logic [21:0] sp_stride;
  } loop_t;
  localparam int unsigned LoopBits = 16 + 32 + 22 + (Pads ? 28 : 0);
  logic [LoopBits-1:0] loops[2*Loops];  // Yosys knows no memory of structures
  loop_t prep_loop, walk_loop;
  logic half_q;  // of the instruction in preparation
  logic [Loops-1:0] prep_once_q;
  logic [1:0] prep_before_any_q;
  always_comb begin
    prep_loop = '0;
    if (!tsr_isa_pkg::Simulated || loop_valid) begin
      prep_loop.steps = loop_steps;
      prep_loop.stride = loop_stride;
      prep_loop.sp_stride = loop_sp_stride;
      if (Pads) begin
        prep_loop.after = loop[0] ? instr.pad_after[1] : instr.pad_after[0];
        prep_loop.body = loop_steps + 16'd1 - {4'd0, loop[0] ? instr.pad_before[1] : instr.pad_before[0]};
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (loop_valid) begin
      loops[{half_q, loop}] <= LoopBits'(prep_loop);
      prep_once_q <= {prep_once_q[Loops-2:0], loop_steps == '0};  // loop 3 comes first
    end
    prep_before_any_q <= {Pads && instr.pad_before[1] != '0, Pads && instr.pad_before[0] != '0};
  end

  // The walk: one step of the nest a cycle.
  typedef struct packed {
    logic two;              // two iterations are left, this one included
    logic [15:0] left;      // iterations behind this one
    logic [63:0] dram;      // where it began
    logic [21:0] sp;
  } iteration_t;
  logic [102:0] iterations[Loops];
  iteration_t from, begun;
  logic walk_q, walk_none_q, walk_signal_q;
  logic [2:0] walk_fault_q, walk_space_q;
  logic [31:0] walk_pc_q;
  logic [15:0] length_q;
  logic [7:0] pad_value_q;
  logic [63:0] dram_q;
  logic [21:0] sp_q;
  // Loops in their last iteration; with one iteration; fresh ones.
  logic [Loops-1:0] at_last_q, at_last_d, once_q, fresh_q, fresh_d;
  logic [1:0] inner_q, inner_d;  // the innermost loop with an iteration left, the one that steps next
  logic [1:0] begin_q;    // the loop that tells where that one began
  logic inner_fresh_q;
  // Padding of loops 0 and 1: whether it precedes, and where the loop stands.
  logic [1:0] before_any_q, before_in_q, after_in_q;
  logic padded_q;  // padding throughout
  logic packed_q;  // a packed LOAD
  logic [15:0] sp_length;
  assign sp_length = packed_q ? 16'(PackedEntry) : length_q;

  function automatic logic [1:0] innermost(input logic [Loops-1:1] at_last);
    innermost = !at_last[3] ? 2'd3 : !at_last[2] ? 2'd2 : !at_last[1] ? 2'd1 : 2'd0;
  endfunction
  // The next outer loop that is not fresh, or the loop itself.
  function automatic logic [1:0] beginning(input logic [1:0] k, input logic [Loops-1:1] fresh);
    beginning = k == 2'd3 && !fresh[3] ? 2'd3 : k >= 2'd2 && !fresh[2] ? 2'd2 : k >= 2'd1 && !fresh[1] ? 2'd1 : 2'd0;
  endfunction

  logic step_last, step_pad, step_take;
  logic begins;  // whether a step, if there is one, is the first of the prepared instruction: prep_take without what comes late
  logic [15:0] left;
  assign step_last = walk_none_q || at_last_q == '1;
  assign step_pad = Pads && (padded_q || before_in_q != '0 || after_in_q != '0);
  always_comb begin
    walk_loop = '0;
    from = '0;
    if (!tsr_isa_pkg::Simulated || walk_q) begin
      walk_loop = 98'(loops[{!half_q, inner_q}]);
      from = iterations[begin_q];
    end
    left = inner_fresh_q ? walk_loop.steps : from.left;
  end
  // Behind a step: an iteration more of one loop, all inner ones from their beginning.
  always_comb begin
    for (int unsigned k = 0; k < Loops; k++) begin
      at_last_d[k] = at_last_q[k];
      fresh_d[k] = fresh_q[k];
      if (2'(k) > inner_q) begin
        at_last_d[k] = once_q[k];
        fresh_d[k] = 1'b1;
      end else if (2'(k) == inner_q) begin
        at_last_d[k] = inner_fresh_q ? walk_loop.steps == 16'd1 : from.two;
        fresh_d[k] = 1'b0;
      end
    end
    inner_d = innermost(at_last_d[Loops-1:1]);
  end

  // Leading padding does not advance the DRAM address. The upper half of the sum is what it was, or one more or less: the
  // carry of the lower half only chooses.
  logic [63:0] dram_next;
  logic [31:0] dram_stride, dram_other;
  logic dram_stays, dram_carry;
  assign dram_stays = Pads && !inner_q[1] && before_in_q[inner_q[0]];
  assign dram_stride = dram_stays ? '0 : walk_loop.stride;
  assign {dram_carry, dram_next[31:0]} = {1'b0, from.dram[31:0]} + {1'b0, dram_stride};
  assign dram_other = from.dram[63:32] + {{31{dram_stride[31]}}, 1'b1};
  assign dram_next[63:32] = dram_carry != dram_stride[31] ? dram_other : from.dram[63:32];
  always_comb begin
    begun = '0;
    if (!tsr_isa_pkg::Simulated || prep_take || step_take) begin
      begun.two = left == 16'd2;
      begun.left = left - 16'd1;
      begun.dram = begins ? range_dram : dram_next;
      begun.sp = begins ? instr.sp_addr : from.sp + walk_loop.sp_stride;
    end
  end

  // The run that may still grow.
  localparam int unsigned SpanBits = 50;
  localparam int unsigned OffsetBits = $clog2(AxiBytes);
  logic held_q, held_pad_q, held_packed_q, held_last_q, held_signal_q;
  logic [63:0] held_dram_q;
  logic [SpanBits-1:0] held_dram_end_q;  // what a nest spans is shorter, so that no more is compared
  logic [21:0] held_sp_q, held_sp_end_q, held_bytes_q;
  logic [2:0] held_space_q, held_fault_q;
  logic [7:0] held_pad_value_q;
  logic [31:0] held_pc_q;
  logic joins, emit, held_full_q, held_continues_q, continues, dram_continues, aligned;

  // Whether the step begins in the beat of the run's last byte, which is the beat before the run's end when a beat ends
  // there. A page's last beat is not shared: then pages are compared as they are, and the next beat's address needs no long
  // sum.
  localparam int unsigned PageBits = $clog2(tsr_isa_pkg::TimingBusPageBytes);
  localparam int unsigned PlaceBits = PageBits - OffsetBits;
  logic held_none_q, held_over_q, held_shares_q, held_one_q, over, shares, same_page, same_beat, beat_before, short_length;
  logic one_first, one_joined, shared_alone;
  // Bytes from the begin of the first beat on, less one; of one step, and with one more. Sums that are kept are not made
  // one with a choice in front of it.
  logic [22:0] held_beats_q;
  (* keep *) logic [22:0] beats_first, beats_joined;
  (* keep *) logic [21:0] bytes_joined;
  logic [PlaceBits-1:0] step_place, end_place, place_differs, place_borrows;
  assign step_place = dram_q[OffsetBits+:PlaceBits];
  assign end_place = held_dram_end_q[OffsetBits+:PlaceBits];
  // Whether step_place + 1 == end_place, without a carry chain: step_place + ~end_place is -2 then.
  assign place_differs = step_place ^ end_place ^ PlaceBits'(1);
  assign place_borrows = {(step_place[PlaceBits-2:0] & ~end_place[PlaceBits-2:0]) |
                          ((step_place[PlaceBits-2:0] | ~end_place[PlaceBits-2:0]) & (PlaceBits - 1)'(1)), 1'b0};
  assign beat_before = place_differs == place_borrows;

  // Long comparisons are trees of look-up tables of six inputs, which are kept as they stand here: Yosys would take
  // wider ones with multiplexers behind them, which are slower.
  localparam int unsigned Alike = (SpanBits + 2) / 3, SpAlike = 8, Thirds = (Alike + 5) / 6;
  logic [3*Alike-1:0] dram_differs;
  logic [3*SpAlike-1:0] sp_differs;
  (* keep *) logic [Alike-1:0] dram_alike;
  (* keep *) logic [SpAlike-1:0] sp_alike;
  (* keep *) logic [Thirds-1:0] dram_thirds;
  (* keep *) logic may_join, sp_lower, sp_upper;
  assign dram_differs = {1'b0, held_dram_end_q ^ dram_q[SpanBits-1:0]};
  assign sp_differs = {2'b00, held_sp_end_q ^ sp_q};
  always_comb begin
    for (int unsigned k = 0; k < Alike; k++) dram_alike[k] = dram_differs[3*k+:3] == '0;
    for (int unsigned k = 0; k < SpAlike; k++) sp_alike[k] = sp_differs[3*k+:3] == '0;
    dram_thirds = '1;
    for (int unsigned k = 0; k < Alike; k++) if (!dram_alike[k]) dram_thirds[k/6] = 1'b0;
  end
  assign dram_continues = dram_thirds == '1;
  assign may_join = held_q && !held_last_q && walk_q && !walk_none_q && held_pad_q == step_pad && !held_full_q;
  assign sp_lower = sp_alike[5:0] == '1;
  assign sp_upper = sp_alike[7:6] == '1 && may_join;
  assign same_page = held_dram_end_q[SpanBits-1:PageBits] == dram_q[SpanBits-1:PageBits];
  assign same_beat = held_dram_end_q[OffsetBits-1:0] == '0 ? beat_before : step_place == end_place;
  assign over = Pads && dram_q[OffsetBits-1:0] > sp_q[OffsetBits-1:0];
  assign aligned = dram_q[OffsetBits-1:0] == '0 && sp_q[OffsetBits-1:0] == '0 && length_q[OffsetBits-1:0] == '0 &&
      held_sp_end_q[OffsetBits-1:0] == '0;
  assign continues = Pads && held_q && !held_last_q && !held_pad_q && !held_shares_q && !step_pad && dram_continues && aligned;
  // A run that shares and has only a part of its own first group in that beat takes it from the realigner's older beat. So
  // does what follows, but not a run whose first group ends with the beat: it would take the beat itself, which is gone.
  assign shares = Pads && held_q && !held_last_q && !held_pad_q && !step_pad && !packed_q && same_page && same_beat &&
      step_place != '1 && (over || !held_over_q || !shared_alone);
  // Whether the run lies in one beat is found beside the sums: of its first step, and with one more.
  assign shared_alone = held_shares_q && held_one_q;
  assign short_length = length_q[15:OffsetBits+1] == '0;
  assign one_first = short_length && {2'd0, dram_q[OffsetBits-1:0]} + {1'b0, length_q[OffsetBits:0]} <= (OffsetBits + 2)'(AxiBytes);
  assign one_joined = held_one_q && short_length &&
      {2'd0, held_beats_q[OffsetBits-1:0]} + {1'b0, length_q[OffsetBits:0]} < (OffsetBits + 2)'(AxiBytes);
  assign beats_first = {{(23 - OffsetBits) {dram_q[OffsetBits-1:0] == '0}}, dram_q[OffsetBits-1:0] - 1'b1} + {7'd0, length_q};
  assign joins = sp_lower && sp_upper && (step_pad || dram_continues);
  assign bytes_joined = held_bytes_q + {6'd0, length_q};
  assign beats_joined = held_beats_q + {7'd0, length_q};
  assign run_ends_o = held_q && held_last_q;
  assign run_valid_o = run_ends_o || (held_q && walk_q && !joins);
  assign emit = run_valid_o && run_ready_i;
  assign leaves_o = emit;
  assign step_take = walk_q && (!held_q || joins || emit);
  assign begins = prep_done && (!walk_q || step_last);
  assign prep_take = begins && (!walk_q || step_take);

  always_ff @(posedge clk_i) if (prep_take || step_take) begin
    iterations[begins ? 2'd0 : inner_q] <= begun;
    dram_q <= begun.dram;
    sp_q <= begun.sp;
    at_last_q <= begins ? prep_once_q : at_last_d;
    fresh_q <= begins ? '1 : fresh_d;
    inner_q <= begins ? innermost(prep_once_q[Loops-1:1]) : inner_d;
    begin_q <= begins ? '0 : beginning(inner_d, fresh_d[Loops-1:1]);
    inner_fresh_q <= begins || fresh_d[inner_d];
    for (int unsigned k = 0; k < 2; k++) begin
      if (2'(k) > inner_q) begin
        before_in_q[k] <= before_any_q[k];
        after_in_q[k] <= 1'b0;
      end else if (2'(k) == inner_q) begin
        if (left == walk_loop.body) before_in_q[k] <= 1'b0;
        if (left == {4'd0, walk_loop.after}) after_in_q[k] <= 1'b1;
      end
    end
    if (begins) begin
      before_any_q <= prep_before_any_q;
      before_in_q <= prep_before_any_q;
      after_in_q <= '0;
      once_q <= prep_once_q;
      walk_none_q <= prep_fence_q || prep_fault != 3'(tsr_isa_pkg::FaultNone);
      walk_fault_q <= prep_fault;
      walk_signal_q <= prep_signal_q;
      walk_pc_q <= prep_pc_q;
      walk_space_q <= instr.space;
      length_q <= instr.length;
      packed_q <= PackedEntry != 0 && instr.packed_;
      pad_value_q <= Pads ? instr.pad_value : '0;
      padded_q <= !range_reads;
    end
  end

  always_ff @(posedge clk_i) begin
    if (step_take) begin
      held_last_q <= step_last;
      held_dram_end_q <= dram_q[SpanBits-1:0] + SpanBits'(length_q);
      held_sp_end_q <= sp_q + {6'd0, sp_length};
      // Whether it joins comes late, and chooses behind the sums.
      held_bytes_q <= joins ? bytes_joined : {6'd0, length_q};
      held_full_q <= joins ? bytes_joined[21:$clog2(JoinBytes)] != '0 : 22'(length_q) >= 22'(JoinBytes);
      held_beats_q <= joins ? beats_joined : beats_first;
      held_one_q <= joins ? one_joined : one_first;
      if (!joins) begin
        held_dram_q <= dram_q;
        held_sp_q <= sp_q;
        held_pad_q <= step_pad;
        held_packed_q <= packed_q;
        held_continues_q <= continues;
        held_shares_q <= shares;
        held_over_q <= over;
        held_none_q <= walk_none_q;
        held_signal_q <= walk_signal_q;
        held_space_q <= walk_space_q;
        held_fault_q <= walk_fault_q;
        held_pad_value_q <= pad_value_q;
        held_pc_q <= walk_pc_q;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      walk_q <= 1'b0;
      held_q <= 1'b0;
      half_q <= 1'b0;
    end else begin
      if (prep_take) half_q <= !half_q;
      if (prep_take) walk_q <= 1'b1;
      else if (step_take && step_last) walk_q <= 1'b0;
      if (step_take) held_q <= 1'b1;
      else if (emit) held_q <= 1'b0;
    end
  end

  assign busy_o = prep_valid_q || walk_q || held_q;
  assign run_none_o = held_none_q;
  assign run_reads_o = !held_none_q && !held_pad_q && !shared_alone;
  assign run_dram_o = {held_dram_q[63:PageBits], held_dram_q[OffsetBits+:PlaceBits] + PlaceBits'(held_shares_q),
                       held_dram_q[OffsetBits-1:0]};
  assign run_left_o = held_beats_q[22:OffsetBits];
  assign run_sp_o = held_sp_q;
  assign run_bytes_o = held_bytes_q;
  assign run_continues_o = held_continues_q;
  assign run_more_o = continues;  // a run that leaves and is not the last has the next step beside it
  assign run_over_o = held_over_q;
  assign run_shares_o = held_shares_q;
  assign run_keep_o = shares && !over;
  assign run_space_o = held_space_q;
  assign run_packed_o = held_packed_q;
  assign run_pad_o = held_pad_q;
  assign run_pad_value_o = held_pad_value_q;
  assign run_last_o = held_last_q;
  assign run_signal_o = held_signal_q;
  assign run_fault_o = held_fault_q;
  assign run_pc_o = held_pc_q;

  logic unused;
  assign unused = &{1'b0, load_unused, load_fence, store_unused, store_fence, instr, prep_loop};

endmodule
