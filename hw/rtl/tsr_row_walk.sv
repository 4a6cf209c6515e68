// SPDX-License-Identifier: Apache-2.0
// The walk of the lanes over a group's rows, for sums. Enters: vectors that are taken, halves of the lanes' memories
// that are full. Leaves: the byte that the lanes take now, whether it counts, and the same where later stages want it.
// Method: step_o counts the bytes of one iteration of the four rows of a lane, the row in its lower two bits, as does
// phase_o always, so that the sums' turn is known. One half is walked while the other one is filled.
//
// take_i: the last row's vector of an iteration, with its half and what it is; fill_i: the first group of it is in the
// memory. The walk begins with the next turn of the phase. Latency: the stages' signals as they are called. Throughput:
// a byte a cycle, without a gap while halves are full. Back-pressure: none. Reset: synchronous, active low, as clear_i.
// released_o: the half that is walked may be read anew, which takes Rounding cycles longer where rounds_i. Legal: as
// tsr_rows.
module tsr_row_walk #(
  parameter int unsigned BlockOut = 16,
  parameter int unsigned Rounding = 12,  // cycles
  localparam int unsigned EntryBits = $clog2(BlockOut),
  localparam int unsigned StepBits = $clog2(4 * BlockOut)
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 clear_i,   // no group
  input  logic                 gather_i,  // so that the cycles follow from the instruction
  input  logic                 rounds_i,
  input  logic [7:0]           tail_i,    // lanes of a row's last vector
  input  logic [EntryBits-1:0] part_lanes_i,
  input  logic                 take_i,
  input  logic                 take_half_i,
  input  logic                 take_last_i,
  input  logic                 take_whole_i,
  input  logic                 take_part_i,
  input  logic                 fill_i,
  input  logic                 fill_half_i,
  output logic                 half_o,
  output logic [1:0]           phase_o,
  output logic [StepBits-1:0]  step_o,
  output logic                 released_o,
  output logic                 walked_all_o,
  output logic                 valid_1_o,
  output logic                 valid_2_o,
  output logic                 first_2_o,
  output logic                 first_3_o,
  output logic                 first_7_o
);

  // The step with which a half may be read anew where its vectors come so much later.
  localparam logic [StepBits-1:0] Released = StepBits'(Rounding < 4 * BlockOut ? 4 * BlockOut - 1 - Rounding : 0);
  logic [1:0] phase_q;
  logic [StepBits-1:0] step_q;
  logic walking_q, walk_half_q, walk_first_q, walked_all_q;
  logic [1:0] full_q, final_q, walk_whole_q, walk_part_q;  // by half: its vectors are there; what the rows' are
  logic byte_valid_0, byte_first_0;
  assign byte_valid_0 = walking_q && !(final_q[walk_half_q] && 32'(step_q[StepBits-1:2]) >= 32'(tail_i)) &&
      (walk_whole_q[walk_half_q] || (walk_part_q[walk_half_q] && step_q[StepBits-1:2] < part_lanes_i));
  assign byte_first_0 = walking_q && walk_first_q && step_q[StepBits-1:2] == '0;
  always_ff @(posedge clk_i) begin
    if (!rst_ni || gather_i) phase_q <= '0;
    else phase_q <= phase_q + 2'd1;
  end
  always_ff @(posedge clk_i) begin
    if (take_i) begin
      final_q[take_half_i] <= take_last_i;
      walk_whole_q[take_half_i] <= take_whole_i;  // Yosys drops a concatenation of such choices
      walk_part_q[take_half_i] <= take_part_i;
    end
    if (!rst_ni || clear_i) begin
      full_q <= '0;
      walking_q <= 1'b0;
      walk_half_q <= 1'b0;
      walk_first_q <= 1'b1;
      walked_all_q <= 1'b0;
      step_q <= '0;
    end else begin
      // The lanes want no group of the last row before it is there.
      if (fill_i) full_q[fill_half_i] <= 1'b1;
      if (!walking_q) begin
        if (full_q[walk_half_q] && phase_q == 2'd3 && !walked_all_q) walking_q <= 1'b1;
      end else begin
        step_q <= step_q + 1'b1;
        if (step_q == '1) begin
          full_q[walk_half_q] <= 1'b0;
          walk_first_q <= 1'b0;
          walk_half_q <= !walk_half_q;
          if (final_q[walk_half_q]) walked_all_q <= 1'b1;
          walking_q <= full_q[!walk_half_q] && !final_q[walk_half_q];
        end
      end
    end
  end
  assign half_o = walk_half_q;
  assign phase_o = phase_q;
  assign step_o = step_q;
  assign released_o = walking_q && step_q == (rounds_i ? Released : '1);
  assign walked_all_o = walked_all_q;

  // Beside the lanes' stages.
  logic valid_1_q, valid_2_q;
  logic [7:1] first_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      {valid_1_q, valid_2_q} <= '0;
      first_q[6:1] <= '0;
    end else begin
      {valid_2_q, valid_1_q} <= {valid_1_q, byte_valid_0};
      first_q[6:1] <= {first_q[5:1], byte_first_0};
    end
    first_q[7] <= first_q[6];
  end
  assign valid_1_o = valid_1_q;
  assign valid_2_o = valid_2_q;
  assign first_2_o = first_q[2];
  assign first_3_o = first_q[3];
  assign first_7_o = first_q[7];

endmodule
