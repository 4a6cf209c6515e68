// SPDX-License-Identifier: Apache-2.0
// The front of LOAD and STORE: checks an instruction's ranges and walks its nest. Enters: instructions. Leaves, in
// order: runs of contiguous bytes {DRAM address, scratchpad byte, bytes, padding}, neighbours that continue each other
// on both sides joined; each instruction's last run carries `last`. A FENCE, or an instruction that fails its range
// check, is one run of 0 bytes with `last`; after a failed check nothing more is taken until reset.
//
// Latency: taken in cycle t, the first step of the nest in t + 9 (t + 2 for FENCE), its run leaves when the next step
// shows that nothing more joins it. Throughput: one step of the nest a cycle; the check of the next instruction runs
// beside the walk. Back-pressure: run_ready_i. Reset: synchronous, active low. Legal: JoinBytes a power of two below
// 2^21. Timing: a loop's address, chosen and increased, between two registers.
module tsr_runs #(
  parameter int unsigned JoinBytes     = 1024,  // a run of this many bytes is not joined further
  parameter bit          Pads          = 1'b1,  // LOAD; STORE has neither padding nor fill
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
  input  logic          run_ready_i,
  output logic [63:0]   run_dram_o,
  output logic [21:0]   run_sp_o,
  output logic [21:0]   run_bytes_o,
  output logic [2:0]    run_space_o,
  output logic          run_pad_o,
  output logic [7:0]    run_pad_value_o,
  output logic          run_last_o,
  output logic          run_signal_o,
  output logic [2:0]    run_fault_o,
  output logic [31:0]   run_pc_o
);

  if (JoinBytes != 1 << $clog2(JoinBytes) || JoinBytes >= 1 << 21) $error("tsr_runs: JoinBytes is a power of two below 2^21");

  // Preparation: one instruction whose ranges are being found.
  tsr_isa_pkg::load_t prep_q;
  logic prep_valid_q, halted_q;
  logic [31:0] prep_pc_q;
  logic unused_prep_load, unused_store_fence, prep_fence, prep_store, prep_done, prep_take, range_done, range_reads, take;
  logic [2:0] range_fault, prep_fault;
  logic [63:0] range_dram;

  assign {unused_prep_load, prep_fence} = tsr_isa_pkg::load_instruction(prep_q.header.opcode);
  assign {prep_store, unused_store_fence} = tsr_isa_pkg::store_instruction(prep_q.header.opcode);
  assign base_o = prep_q.base;
  assign take = instr_valid_i && instr_ready_o;

  // What STORE does not have reads as reserved zeros: fill, pads.
  tsr_transfer_range #(
    .Pads(Pads), .InpBytes(InpBytes), .WgtBytes(WgtBytes), .AccBytes(AccBytes), .OutBytes(OutBytes),
    .ParamBytes(ParamBytes), .TableBytes(TableBytes)
  ) u_range (
    .clk_i, .rst_ni, .start_i(take), .instr_i(prep_q), .base_i, .window_first_i, .window_last_i, .done_o(range_done),
    .fault_o(range_fault), .reads_o(range_reads), .dram_o(range_dram)
  );

  assign prep_done = prep_valid_q && (prep_fence || range_done);
  assign prep_fault = prep_fence ? 3'(tsr_isa_pkg::FaultNone) : range_fault;
  assign instr_ready_o = (!prep_valid_q || prep_take) && !halted_q &&
      !(prep_take && prep_fault != 3'(tsr_isa_pkg::FaultNone));

  always_ff @(posedge clk_i) begin
    if (take) begin
      prep_pc_q <= instr_pc_i;
      prep_q <= instr_i;
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

  // The walk: one step of the nest a cycle. Addresses of loop k: where its current iteration began.
  localparam int unsigned Loops = tsr_isa_pkg::TransferLoops;
  typedef struct packed { logic [Loops-1:0][63:0] loop; } dram_addresses_t;
  typedef struct packed { logic [Loops-1:0][21:0] loop; } sp_addresses_t;
  typedef struct packed { logic [1:0][15:0] loop; } ends_t;
  logic walk_q, walk_none_q, walk_signal_q, walk_store_q;
  logic [2:0] walk_fault_q, walk_space_q;
  logic [31:0] walk_pc_q;
  logic [15:0] length_q;
  logic [7:0] pad_value_q;
  tsr_isa_pkg::load_extent_t extent_q, index_q, next;
  tsr_isa_pkg::load_dram_stride_t dram_stride_q;
  tsr_isa_pkg::load_sp_stride_t sp_stride_q;
  dram_addresses_t dram_q;
  sp_addresses_t sp_q;
  // Padding of loops 0 and 1: the index at which each part ends, and in which of them the loop stands.
  tsr_isa_pkg::load_pad_before_t before_q;
  ends_t body_q;
  logic [1:0] before_any_q, before_in_q, after_in_q;
  logic padded_q;  // padding throughout

  logic step_last, step_pad, step_take;
  logic [Loops-1:0] at_last;
  logic [1:0] inner;  // the innermost loop with an iteration left
  always_comb begin
    next = '0;
    at_last = '0;
    if (!tsr_isa_pkg::Simulated || walk_q) begin
      for (int unsigned k = 0; k < Loops; k++) begin
        next.loop[k] = index_q.loop[k] + 16'd1;
        at_last[k] = next.loop[k] == extent_q.loop[k];
      end
    end
    inner = !at_last[3] ? 2'd3 : !at_last[2] ? 2'd2 : !at_last[1] ? 2'd1 : 2'd0;
  end
  assign step_last = walk_none_q || at_last == '1;
  assign step_pad = Pads && (padded_q || before_in_q != '0 || after_in_q != '0);

  logic [63:0] dram_from, dram_next, dram_d;
  logic signed [31:0] dram_by;
  logic [21:0] sp_from, sp_by, sp_d;
  always_comb begin
    dram_from = '0;
    dram_by = '0;
    sp_from = '0;
    sp_by = '0;
    if (!tsr_isa_pkg::Simulated || walk_q) begin
      dram_from = dram_q.loop[0];
      dram_by = dram_stride_q.loop[0];
      sp_from = sp_q.loop[0];
      sp_by = sp_stride_q.loop[0];
      for (int unsigned k = 1; k < Loops; k++) begin
        if (inner == 2'(k)) begin
          dram_from = dram_q.loop[k];
          dram_by = dram_stride_q.loop[k];
          sp_from = sp_q.loop[k];
          sp_by = sp_stride_q.loop[k];
        end
      end
    end
  end
  // Leading padding does not advance the DRAM address.
  assign dram_next = dram_from + (Pads && !inner[1] && before_in_q[inner[0]] ? '0 : 64'(dram_by));
  assign dram_d = prep_take ? range_dram : dram_next;
  assign sp_d = prep_take ? prep_q.sp_addr : sp_from + sp_by;

  // The run that may still grow.
  logic held_q, held_pad_q, held_last_q, held_signal_q;
  logic [63:0] held_dram_q, held_dram_end_q;
  logic [21:0] held_sp_q, held_sp_end_q, held_bytes_q;
  logic [2:0] held_space_q, held_fault_q;
  logic [7:0] held_pad_value_q;
  logic [31:0] held_pc_q;
  logic joins, emit, held_full;

  assign held_full = held_bytes_q[21:$clog2(JoinBytes)] != '0;
  assign joins = held_q && !held_last_q && walk_q && !walk_none_q && held_pad_q == step_pad && held_sp_end_q == sp_q.loop[Loops-1] &&
      (step_pad || held_dram_end_q == dram_q.loop[Loops-1]) && !held_full;
  assign run_valid_o = held_q && (held_last_q || (walk_q && !joins));
  assign emit = run_valid_o && run_ready_i;
  assign step_take = walk_q && (!held_q || joins || emit);
  assign prep_take = prep_done && (!walk_q || (step_take && step_last));

  always_ff @(posedge clk_i) if (prep_take || step_take) begin
    for (int unsigned k = 0; k < Loops; k++) begin
      if (prep_take || (step_take && 2'(k) >= inner)) begin
        dram_q.loop[k] <= dram_d;
        sp_q.loop[k] <= sp_d;
      end
      if (prep_take || (step_take && 2'(k) > inner)) index_q.loop[k] <= '0;
      else if (step_take && 2'(k) == inner) index_q.loop[k] <= next.loop[k];
    end
    for (int unsigned k = 0; k < 2; k++) begin
      if (step_take && 2'(k) > inner) begin
        before_in_q[k] <= before_any_q[k];
        after_in_q[k] <= 1'b0;
      end else if (step_take && 2'(k) == inner) begin
        if (next.loop[k] == {4'd0, before_q.loop[k]}) before_in_q[k] <= 1'b0;
        if (next.loop[k] == body_q.loop[k]) after_in_q[k] <= 1'b1;
      end
      if (prep_take) begin
        before_any_q[k] <= prep_q.pad_before[k] != '0;
        before_in_q[k] <= prep_q.pad_before[k] != '0;
        after_in_q[k] <= 1'b0;
        body_q.loop[k] <= prep_q.extent[k] - {4'd0, prep_q.pad_after[k]};
      end
    end
    if (prep_take) begin
      walk_none_q <= prep_fence || prep_fault != 3'(tsr_isa_pkg::FaultNone);
      walk_fault_q <= prep_fault;
      walk_signal_q <= prep_q.header.signal;
      walk_store_q <= prep_store;
      walk_pc_q <= prep_pc_q;
      walk_space_q <= prep_q.space;
      length_q <= prep_q.length;
      pad_value_q <= prep_q.pad_value;
      extent_q <= prep_q.extent;
      before_q <= prep_q.pad_before;
      padded_q <= !range_reads;
      dram_stride_q <= prep_q.dram_stride;
      sp_stride_q <= prep_q.sp_stride;
    end
  end

  always_ff @(posedge clk_i) begin
    if (step_take) begin
      held_last_q <= step_last;
      held_dram_end_q <= dram_q.loop[Loops-1] + {48'd0, length_q};
      held_sp_end_q <= sp_q.loop[Loops-1] + {6'd0, length_q};
      held_bytes_q <= walk_none_q ? '0 : (joins ? held_bytes_q : '0) + {6'd0, length_q};
      if (!joins) begin
        held_dram_q <= dram_q.loop[Loops-1];
        held_sp_q <= sp_q.loop[Loops-1];
        held_pad_q <= step_pad;
        held_signal_q <= walk_signal_q;
        held_space_q <= walk_space_q;
        held_fault_q <= walk_fault_q;
        held_pad_value_q <= walk_store_q ? 8'd0 : pad_value_q;
        held_pc_q <= walk_pc_q;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      walk_q <= 1'b0;
      held_q <= 1'b0;
    end else begin
      if (prep_take) walk_q <= 1'b1;
      else if (step_take && step_last) walk_q <= 1'b0;
      if (step_take) held_q <= 1'b1;
      else if (emit) held_q <= 1'b0;
    end
  end

  assign busy_o = prep_valid_q || walk_q || held_q;
  assign run_dram_o = held_dram_q;
  assign run_sp_o = held_sp_q;
  assign run_bytes_o = held_bytes_q;
  assign run_space_o = held_space_q;
  assign run_pad_o = held_pad_q;
  assign run_pad_value_o = held_pad_value_q;
  assign run_last_o = held_last_q;
  assign run_signal_o = held_signal_q;
  assign run_fault_o = held_fault_q;
  assign run_pc_o = held_pc_q;

  logic unused;
  assign unused = &{1'b0, unused_prep_load, unused_store_fence, prep_q.header, prep_q.reserved_482};

endmodule
