// SPDX-License-Identifier: Apache-2.0
// The vector engine's issue stage. Enters: the instruction in preparation, what an issue has to wait for (tsr_alu_under_way).
// Leaves: one read of the source a cycle, and with a vector's last one, or behind it where both are in OUT, that of the
// second operand; what the read takes along. Method: a nest that is one issue ahead, loaded while the ranges are still
// being found; its first iteration waits for the end of the preparation.
//
// Latency: an instruction's first read in the cycle after move_o. Throughput: one read a cycle. Back-pressure: a refused
// read is asked for again, enable_i = 0 holds. Reset: synchronous, active low.
module tsr_alu_issue #(
  parameter int unsigned Turns    = 4,  // of a vector's lanes in the second operation
  parameter int unsigned SlotBits = 5
) (
  input  logic                                   clk_i,
  input  logic                                   rst_ni,
  input  logic                                   enable_i,
  // The instruction in preparation.
  input  logic                                   loads_i,
  input  logic                                   goes_i,
  input  logic                                   drop_i,
  input  logic [tsr_alu_pkg::NestBits-1:0]        nest_i,
  input  logic [tsr_alu_pkg::InstructionBits-1:0] instruction_i,
  input  logic [SlotBits-1:0]                    slot_i,
  output logic                                   move_o,
  // The one that issues, and its constants' place.
  output logic                                   running_o,
  output logic [tsr_alu_pkg::InstructionBits-1:0] instruction_o,
  output logic [SlotBits-1:0]                    slot_o,
  // Memories.
  output logic                                   acc_req_o,
  output logic                                   acc_claim_o,
  input  logic                                   acc_gnt_i,
  output logic                                   out_req_o,
  output logic                                   out_claim_o,
  output logic [13:0]                            out_addr_o,
  input  logic                                   out_gnt_i,
  output logic                                   inp_req_o,
  input  logic                                   inp_gnt_i,
  input  logic                                   inp_busy_i,  // a write of ours has the port
  output logic [13:0]                            src_addr_o,
  // The issue. push_o: it ends a vector, which is under way from now on.
  output logic                                   issue_o,
  output logic                                   push_o,
  output logic                                   last_o,
  output logic [13:0]                            dst_address_o,
  output logic [tsr_alu_pkg::ReadBits-1:0]        read_o,
  output logic                                   stall_o,
  // The next one, made with step_o, and what this one has to wait for.
  output logic                                   step_o,
  output logic                                   next_src_o,
  output logic [1:0]                             next_src_space_o,
  output logic [13:0]                            next_src_address_o,
  output logic                                   next_second_o,
  output logic [13:0]                            next_second_address_o,
  input  logic                                   hazard_i,
  input  logic                                   early_i,  // a vector that ends now would be written too early
  input  logic                                   param_busy_i
);

  localparam logic [1:0] SpaceAcc = 2'(tsr_isa_pkg::AluSpaceAcc), SpaceOut = 2'(tsr_isa_pkg::AluSpaceOut), SpaceInp = 2'(tsr_isa_pkg::AluSpaceInp);
  localparam int unsigned TurnBits = Turns > 1 ? $clog2(Turns) : 1;

  typedef struct packed {
    logic [1:0] src;
    logic second;
    logic [2:0] param_loop;
    logic [9:0] param_before;
  } ahead_t;
  typedef struct packed {
    logic take_src;
    logic take_second;
    logic completing;
    logic sum_first;
    logic last;  // of its instruction
    logic [13:0] src_address;
    logic [13:0] dst_address;
    logic [13:0] second_address;
    logic [9:0] param_address;
  } issue_t;

  tsr_alu_pkg::nest_t nest;
  tsr_alu_pkg::instruction_t coming, instruction_q;
  assign nest = nest_i;
  assign coming = instruction_i;

  // The nest.
  logic ahead_valid_q, ahead_first_q;  // there is an iteration, it is its instruction's first
  logic ahead_load, step, advance, completing, take_second, sum_first, sum_last, nest_last;
  logic second_phase_q, split;  // with source and second operand both in OUT, the latter takes an issue of its own
  tsr_isa_pkg::alu_extent_t count;
  logic [5:0] unused_inner_last;
  logic [13:0] src_address, dst_address, second_address;
  logic [9:0] param_address;
  ahead_t ahead_q;
  issue_t ahead, issue_q;
  logic running_q, first_q, issue, want;

  tsr_nest #(.Operands(3)) u_nest (
    .clk_i, .idle_i(!ahead_valid_q), .offer_i(loads), .load_i(ahead_load), .advance_i(advance), .addr_i(nest.addresses),
    .extent_i(nest.extents), .stride_i(nest.strides), .reduce_i(nest.reduce),
    .row_i(1'b0), .row_extent_i(12'd0), .row_two_i(1'b0), .addr_o({second_address, dst_address, src_address}), .count_o(count), .inner_last_o(unused_inner_last),
    .sum_first_o(sum_first), .sum_last_o(sum_last), .last_o(nest_last)
  );
  assign move_o = goes_i && (!running_q || (issue && issue_q.last));
  // issue comes last of all, so that each of these is ready but for it.
  logic begins, follows, passes, loads;
  assign begins = goes_i && !running_q;
  assign follows = goes_i || !issue_q.last;
  assign passes = completing || !sum_last;
  assign loads = loads_i && !(ahead_valid_q && ahead_first_q);
  assign step = begins || (issue && follows);
  assign advance = (begins && passes) || (issue && follows && passes);
  assign ahead_load = (loads && (!ahead_valid_q || (begins && passes && nest_last))) ||
      (issue && loads && follows && passes && nest_last);
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      ahead_valid_q <= 1'b0;
      ahead_first_q <= 1'b0;
      second_phase_q <= 1'b0;
    end else begin
      if (ahead_load) ahead_valid_q <= 1'b1;
      else if ((advance && nest_last) || drop_i) ahead_valid_q <= 1'b0;
      if (ahead_load) ahead_first_q <= 1'b1;
      else if (step) ahead_first_q <= 1'b0;
      if (step) second_phase_q <= split && sum_last && !second_phase_q;
    end
  end
  always_ff @(posedge clk_i) begin
    if (ahead_load) begin
      ahead_q <= {coming.src, coming.after.second_op != 2'(tsr_isa_pkg::SecondOpNone), nest.param_loop, nest.param_before};
    end
    if (step) issue_q <= ahead;
  end

  assign split = ahead_q.second && ahead_q.src == SpaceOut;
  assign completing = second_phase_q || (sum_last && !split);
  assign take_second = ahead_q.second && completing;
  assign ahead = {!second_phase_q, take_second, completing, sum_first, nest_last && completing, src_address, dst_address,
                  second_address, param_address};
  always_comb begin
    param_address = 10'd1;
    for (int unsigned k = 0; k < 6; k++) begin
      if (ahead_q.param_loop == 3'(k)) param_address = 10'(count.loop[k]);
    end
    param_address = param_address + ahead_q.param_before;
  end
  assign step_o = step;
  assign next_src_o = !second_phase_q;
  assign next_src_space_o = ahead_q.src;
  assign next_src_address_o = src_address;
  assign next_second_o = take_second;
  assign next_second_address_o = second_address;

  // The instruction that issues.
  logic [SlotBits-1:0] slot_q;
  logic has_second;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      running_q <= 1'b0;
      first_q <= 1'b0;
    end else begin
      if (move_o) running_q <= 1'b1;
      else if (issue && issue_q.last) running_q <= 1'b0;
      if (move_o) first_q <= 1'b1;
      else if (issue) first_q <= 1'b0;
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      instruction_q <= '0;
      slot_q <= '0;
    end else if (move_o) begin
      instruction_q <= instruction_i;
      slot_q <= slot_i;
    end
  end
  assign running_o = running_q;
  assign instruction_o = instruction_q;
  assign slot_o = slot_q;
  assign has_second = instruction_q.after.second_op != 2'(tsr_isa_pkg::SecondOpNone);

  // The issue.
  // Grants come last in their cycle: whatever they decide is ready but for them.
  logic asks, wants, refused, pausing, from_acc, from_out, from_inp;
  logic [TurnBits-1:0] occupied_q;  // cycles for which the second operation cannot take another vector's end
  assign from_acc = issue_q.take_src && instruction_q.src == SpaceAcc;
  assign from_out = issue_q.take_second || (issue_q.take_src && instruction_q.src == SpaceOut);
  assign from_inp = issue_q.take_src && instruction_q.src == SpaceInp;
  assign pausing = has_second && issue_q.take_src && issue_q.sum_first &&
      occupied_q > TurnBits'(instruction_q.src == SpaceOut);
  assign asks = running_q && !pausing && !(issue_q.completing && early_i);
  assign wants = asks && enable_i && !hazard_i && !(issue_q.completing && instruction_q.bounds.convert && param_busy_i);
  assign want = wants && !(from_inp && inp_busy_i);
  assign refused = (from_acc && !acc_gnt_i) || (from_out && !out_gnt_i) || (from_inp && !inp_gnt_i);
  assign issue = want && !refused;
  assign acc_req_o = want && from_acc;
  assign acc_claim_o = asks && from_acc;
  assign out_req_o = want && from_out;
  assign out_claim_o = asks && from_out;
  assign out_addr_o = issue_q.take_second ? issue_q.second_address : issue_q.src_address;
  assign inp_req_o = want && from_inp;
  assign src_addr_o = issue_q.src_address;
  assign issue_o = issue;
  assign push_o = issue && issue_q.completing;
  assign last_o = issue_q.last;
  assign dst_address_o = issue_q.dst_address;
  assign stall_o = wants && !issue;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) occupied_q <= '0;
    else if (push_o && has_second) occupied_q <= TurnBits'(Turns - 1);
    else if (enable_i && occupied_q != '0) occupied_q <= occupied_q - 1'b1;
  end

  tsr_alu_pkg::read_t read;
  assign read.first = first_q;
  assign read.take_src = issue_q.take_src;
  assign read.take_second = issue_q.take_second;
  assign read.completing = issue_q.completing;
  assign read.raw = !instruction_q.bounds.convert && instruction_q.dst == SpaceAcc;
  assign read.adds = !issue_q.sum_first && instruction_q.sums;
  assign read.compares = !issue_q.sum_first && !instruction_q.sums;
  assign read.src_unsigned = instruction_q.src_unsigned;
  assign read.src = instruction_q.src;
  assign read.param_address = issue_q.param_address;
  assign read.bounds = instruction_q.bounds;
  assign read_o = read;

  logic unused;
  assign unused = &{1'b0, unused_inner_last, count, coming};

endmodule
