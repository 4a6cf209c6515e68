// SPDX-License-Identifier: Apache-2.0
// A vector of rows on its way to the lanes. Enters: a vector. Leaves: its bytes in groups of RowLanes, the first lanes
// first. Method: a register, from which each turn chooses its group.
//
// take_i with vector_i, while no group is under way but perhaps the last one. Latency: a cycle. Throughput: a group a
// cycle. Back-pressure: none. Reset: synchronous, active low, to no group. Legal: BlockOut and RowLanes powers of two,
// RowLanes at most BlockOut / 2.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_row_groups #(
  parameter int unsigned BlockOut = 16,
  parameter int unsigned RowLanes = 4,
  localparam int unsigned TurnBits = $clog2(BlockOut / RowLanes)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  take_i,
  input  logic [8*BlockOut-1:0] vector_i,
  output logic [8*BlockOut-1:0] vector_o,  // the register
  output logic                  valid_o,   // a group of it
  output logic [TurnBits-1:0]   turn_o,
  output logic [8*RowLanes-1:0] group_o
);

  localparam int unsigned Turns = BlockOut / RowLanes;
  logic emitting_q;
  logic [TurnBits-1:0] turn_q;
  logic [8*BlockOut-1:0] vector_q;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) group_o = 'x;
    if (!tsr_isa_pkg::Simulated || emitting_q) begin
      group_o = vector_q[8*RowLanes-1:0];
      for (int unsigned t = 1; t < Turns; t++) begin
        if (turn_q == TurnBits'(t)) group_o = vector_q[8*RowLanes*t+:8*RowLanes];
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      emitting_q <= 1'b0;
      turn_q <= '0;
    end else begin
      if (take_i) emitting_q <= 1'b1;
      else if (turn_q == TurnBits'(Turns - 1)) emitting_q <= 1'b0;
      if (take_i) turn_q <= '0;
      else if (emitting_q) turn_q <= turn_q + 1'b1;
    end
    if (take_i) vector_q <= vector_i;
  end
  assign vector_o = vector_q;
  assign valid_o = emitting_q;
  assign turn_o = turn_q;

endmodule
/* verilator lint_on LATCH */
