// SPDX-License-Identifier: Apache-2.0
// The front of LOAD and STORE: checks an instruction's ranges and walks its nest. Enters: instructions. Leaves, in
// order: runs of contiguous bytes {DRAM address, scratchpad byte, bytes, padding}, neighbours that continue each other
// on both sides joined; each instruction's last run carries `last`. A FENCE, or an instruction that fails its range
// check, is one run of 0 bytes with `last`; after a failed check nothing more is taken until reset.
//
// Latency: taken in cycle t, the first step of the nest in t + 5 (t + 1 for FENCE), its run leaves when the next step
// shows that nothing more joins it. Throughput: one step of the nest a cycle; the check of the next instruction runs
// beside the walk. Back-pressure: run_ready_i. Reset: synchronous, active low. Legal: JoinBytes < 2^21.
module tsr_runs #(
  parameter int unsigned JoinBytes     = 1024,  // a run of this many bytes is not joined further
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

  // Preparation: one instruction whose ranges are being found.
  tsr_isa_pkg::load_t prep_q;
  logic prep_valid_q, prep_started_q, halted_q;
  logic [31:0] prep_pc_q;
  logic unused_prep_load, unused_store_fence, prep_fence, prep_store, prep_reads, prep_done, prep_take;
  tsr_isa_pkg::load_extent_t dram_extent;
  logic sp_done, dram_done, start;
  logic signed [42:0] sp_lowest, sp_highest;
  logic signed [55:0] dram_lowest, dram_highest;

  assign {unused_prep_load, prep_fence} = tsr_isa_pkg::load_instruction(prep_q.header.opcode);
  assign {prep_store, unused_store_fence} = tsr_isa_pkg::store_instruction(prep_q.header.opcode);

  // What STORE does not have reads as reserved zeros: fill, pads.
  always_comb begin
    dram_extent = '0;
    prep_reads = 1'b0;
    if (prep_valid_q) begin
      dram_extent = prep_q.extent;
      for (int unsigned k = 0; k < 2; k++) begin
        dram_extent.loop[k] = prep_q.extent[k] - {4'd0, prep_q.pad_before[k]} - {4'd0, prep_q.pad_after[k]};
      end
      prep_reads = !prep_q.fill && dram_extent.loop[0] != '0 && dram_extent.loop[1] != '0;
    end
  end

  assign start = prep_valid_q && !prep_started_q && !prep_fence;

  tsr_range #(
    .Loops(4), .AddressBits(22), .StrideBits(22), .ExtentBits(16), .ResultBits(43)
  ) u_sp_range (
    .clk_i, .rst_ni, .start_i(start), .addr_i(prep_q.sp_addr), .extent_i(prep_q.extent), .stride_i(prep_q.sp_stride),
    .loops_i(3'd4), .done_o(sp_done), .lowest_o(sp_lowest), .highest_o(sp_highest)
  );
  tsr_range #(
    .Loops(4), .AddressBits(36), .StrideBits(32), .ExtentBits(16), .ResultBits(56)
  ) u_dram_range (
    .clk_i, .rst_ni, .start_i(start), .addr_i(prep_q.dram_offset), .extent_i(dram_extent),
    .stride_i(prep_q.dram_stride), .loops_i(3'd4), .done_o(dram_done), .lowest_o(dram_lowest),
    .highest_o(dram_highest)
  );

  logic signed [42:0] limit, sp_end;
  logic [63:0] base, dram_first, dram_last;
  logic [2:0] prep_fault;
  always_comb begin
    case (prep_q.space)
      3'(tsr_isa_pkg::SpaceInp): limit = 43'(InpBytes);
      3'(tsr_isa_pkg::SpaceWgt): limit = 43'(WgtBytes);
      3'(tsr_isa_pkg::SpaceAcc): limit = 43'(AccBytes);
      3'(tsr_isa_pkg::SpaceOut): limit = 43'(OutBytes);
      3'(tsr_isa_pkg::SpaceParam): limit = 43'(ParamBytes);
      default: limit = 43'(TableBytes);
    endcase
    base = '0;
    dram_first = '0;
    dram_last = '0;
    sp_end = '0;
    prep_fault = 3'(tsr_isa_pkg::FaultNone);
    if (prep_valid_q) begin
      base = base_i;
      sp_end = sp_highest + 43'({1'b0, prep_q.length});
      dram_first = base + 64'(dram_lowest);
      dram_last = base + 64'(dram_highest) + {48'd0, prep_q.length} - 64'd1;
      if (!prep_fence) begin
        if (sp_lowest < 0 || sp_end > limit) prep_fault = 3'(tsr_isa_pkg::FaultScratchpadRange);
        else if (prep_reads && (dram_first < window_first_i || dram_last > window_last_i || dram_first > dram_last))
          prep_fault = 3'(tsr_isa_pkg::FaultDramRange);
      end
    end
  end

  assign base_o = prep_q.base;
  assign prep_done = prep_valid_q && (prep_fence || (prep_started_q && sp_done && dram_done));
  assign instr_ready_o = (!prep_valid_q || prep_take) && !halted_q &&
      !(prep_take && prep_fault != 3'(tsr_isa_pkg::FaultNone));

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      prep_valid_q <= 1'b0;
      prep_started_q <= 1'b0;
      halted_q <= 1'b0;
      prep_pc_q <= '0;
      prep_q <= '0;
    end else begin
      if (start) prep_started_q <= 1'b1;
      if (prep_take) begin
        prep_valid_q <= 1'b0;
        prep_started_q <= 1'b0;
        if (prep_fault != 3'(tsr_isa_pkg::FaultNone)) halted_q <= 1'b1;
      end
      if (instr_valid_i && instr_ready_o) begin
        prep_valid_q <= 1'b1;
        prep_started_q <= 1'b0;
        prep_pc_q <= instr_pc_i;
        prep_q <= instr_i;
      end
    end
  end

  // The walk: one step of the nest a cycle. Addresses of loop k: where its current iteration began.
  logic walk_q, walk_none_q, walk_fill_q, walk_signal_q;
  logic [2:0] walk_fault_q, walk_space_q;
  logic [31:0] walk_pc_q;
  logic [15:0] length_q;
  logic [7:0] pad_value_q;
  localparam int unsigned Loops = tsr_isa_pkg::TransferLoops;
  typedef struct packed { logic [Loops-1:0][63:0] loop; } dram_addresses_t;
  typedef struct packed { logic [Loops-1:0][21:0] loop; } sp_addresses_t;
  tsr_isa_pkg::load_extent_t extent_q, index_q;
  tsr_isa_pkg::load_pad_before_t before_q;
  tsr_isa_pkg::load_pad_after_t after_q;
  tsr_isa_pkg::load_dram_stride_t dram_stride_q;
  tsr_isa_pkg::load_sp_stride_t sp_stride_q;
  dram_addresses_t dram_q;
  sp_addresses_t sp_q;

  logic step_last, step_pad, step_take;
  logic [1:0] inner;  // the innermost loop with an iteration left
  logic [63:0] dram_next;
  logic [21:0] sp_next;
  always_comb begin
    step_last = 1'b1;
    inner = 2'd0;
    step_pad = 1'b0;
    dram_next = '0;
    sp_next = '0;
    if (walk_q) begin
      for (int unsigned k = 0; k < 4; k++) begin
        if (index_q.loop[k] + 16'd1 != extent_q.loop[k]) begin
          step_last = 1'b0;
          inner = 2'(k);
        end
      end
      if (walk_none_q) step_last = 1'b1;
      step_pad = walk_fill_q;
      for (int unsigned k = 0; k < 2; k++) begin
        if (index_q.loop[k] < {4'd0, before_q.loop[k]}) step_pad = 1'b1;
        if ({1'b0, index_q.loop[k]} + {5'd0, after_q.loop[k]} >= {1'b0, extent_q.loop[k]}) step_pad = 1'b1;
      end
      dram_next = dram_q.loop[inner];
      // Leading padding does not advance the DRAM address.
      if (!(inner == 2'd0 && index_q.loop[0] < {4'd0, before_q.loop[0]}) &&
          !(inner == 2'd1 && index_q.loop[1] < {4'd0, before_q.loop[1]}))
        dram_next = dram_next + 64'($signed(dram_stride_q.loop[inner]));
      sp_next = sp_q.loop[inner] + sp_stride_q.loop[inner];
    end
  end

  // The run that may still grow.
  logic held_q, held_pad_q, held_last_q, held_signal_q;
  logic [63:0] held_dram_q, held_dram_end_q;
  logic [21:0] held_sp_q, held_sp_end_q, held_bytes_q;
  logic [2:0] held_space_q, held_fault_q;
  logic [7:0] held_pad_value_q;
  logic [31:0] held_pc_q;
  logic joins, emit;

  assign joins = held_q && !held_last_q && walk_q && !walk_none_q && held_pad_q == step_pad &&
      held_sp_end_q == sp_q.loop[Loops-1] && (step_pad || held_dram_end_q == dram_q.loop[Loops-1]) &&
      held_bytes_q < 22'(JoinBytes);
  assign run_valid_o = held_q && (held_last_q || (walk_q && !joins));
  assign emit = run_valid_o && run_ready_i;
  assign step_take = walk_q && (!held_q || joins || emit);
  assign prep_take = prep_done && (!walk_q || (step_take && step_last));

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      walk_q <= 1'b0;
      walk_none_q <= 1'b0;
      walk_fill_q <= 1'b0;
      walk_signal_q <= 1'b0;
      walk_fault_q <= '0;
      walk_space_q <= '0;
      walk_pc_q <= '0;
      length_q <= '0;
      pad_value_q <= '0;
      extent_q <= '0;
      index_q <= '0;
      before_q <= '0;
      after_q <= '0;
      dram_stride_q <= '0;
      sp_stride_q <= '0;
      dram_q <= '0;
      sp_q <= '0;
    end else begin
      if (step_take) begin
        if (step_last) walk_q <= 1'b0;
        for (int unsigned k = 0; k < 4; k++) begin
          if (2'(k) == inner) index_q.loop[k] <= index_q.loop[k] + 16'd1;
          if (2'(k) > inner) index_q.loop[k] <= '0;
          if (2'(k) >= inner) begin
            dram_q.loop[k] <= dram_next;
            sp_q.loop[k] <= sp_next;
          end
        end
      end
      if (prep_take) begin
        walk_q <= 1'b1;
        walk_none_q <= prep_fence || prep_fault != 3'(tsr_isa_pkg::FaultNone);
        walk_fault_q <= prep_fault;
        walk_signal_q <= prep_q.header.signal;
        walk_pc_q <= prep_pc_q;
        walk_space_q <= prep_q.space;
        walk_fill_q <= prep_q.fill;
        length_q <= prep_q.length;
        pad_value_q <= prep_store ? 8'd0 : prep_q.pad_value;
        extent_q <= prep_q.extent;
        index_q <= '0;
        before_q <= prep_q.pad_before;
        after_q <= prep_q.pad_after;
        dram_stride_q <= prep_q.dram_stride;
        sp_stride_q <= prep_q.sp_stride;
        dram_q <= {Loops{base + {28'd0, prep_q.dram_offset}}};
        sp_q <= {Loops{prep_q.sp_addr}};
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      held_q <= 1'b0;
      held_pad_q <= 1'b0;
      held_last_q <= 1'b0;
      held_signal_q <= 1'b0;
      held_dram_q <= '0;
      held_dram_end_q <= '0;
      held_sp_q <= '0;
      held_sp_end_q <= '0;
      held_bytes_q <= '0;
      held_space_q <= '0;
      held_fault_q <= '0;
      held_pad_value_q <= '0;
      held_pc_q <= '0;
    end else begin
      if (emit) held_q <= 1'b0;
      if (step_take) begin
        held_q <= 1'b1;
        held_last_q <= step_last;
        held_dram_end_q <= dram_q.loop[Loops-1] + {48'd0, length_q};
        held_sp_end_q <= sp_q.loop[Loops-1] + {6'd0, length_q};
        if (joins) begin
          held_bytes_q <= held_bytes_q + {6'd0, length_q};
        end else begin
          held_bytes_q <= walk_none_q ? '0 : {6'd0, length_q};
          held_dram_q <= dram_q.loop[Loops-1];
          held_sp_q <= sp_q.loop[Loops-1];
          held_pad_q <= step_pad;
          held_signal_q <= walk_signal_q;
          held_space_q <= walk_space_q;
          held_fault_q <= walk_fault_q;
          held_pad_value_q <= pad_value_q;
          held_pc_q <= walk_pc_q;
        end
      end
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
