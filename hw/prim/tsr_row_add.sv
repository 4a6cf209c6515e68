// SPDX-License-Identifier: Apache-2.0
// The sum of two numbers of a softmax (isa/semantics.md, ROW_REDUCE): binary32 without its sign, rounded half to even,
// subnormals included. An exponent of 255 is one like the others, and where the sum leaves it the lowest 31 bits of the
// code remain. clear_i = 1 takes 0 for x_i.
//
// Method: no difference ever cancels, so the larger exponent's significand needs no shift and the sum one place at most.
// Which operand is larger among equal exponents does not matter. Behind the last place stand one bit and a sticky bit.
// The exponent and the fraction are one number for the rounding, whose carry thus moves the exponent.
//
// Registers: bit 0 after the choice of the larger exponent, 1 after the shift, 2 after the sum, 3 after the rounding. With
// all of them sum_o may be x_i again: the registers hold four sums then, which take turns. Latency: the number of ones, in
// enabled cycles. Throughput: one sum a cycle. Back-pressure: enable_i = 0 holds every register. Reset: none, data only.
// Rounding = 0; 1 (truncation) and 2 (halves away from zero) are for tests.
module tsr_row_add #(
  parameter logic [3:0]  Registers = 4'd0,
  parameter int unsigned Rounding  = 0
) (
  input  logic        clk_i,
  input  logic        enable_i,
  input  logic        clear_i,
  input  logic [30:0] x_i,
  input  logic [30:0] y_i,
  output logic [30:0] sum_o
);

  // Stage 0: the operand of the larger exponent in front. Subnormal numbers have no leading bit, and the places of
  // exponent 1: one place less between one of them and another number.
  logic [30:0] x;
  logic x_normal, y_normal, swap, far;
  logic [9:0] x_less_y, y_less_x;
  logic [7:0] exponent_0, exponent_1, exponent_2, exponent_3;
  logic [23:0] large_0, small_0, large_1, small_1, large_2;
  logic [4:0] shift_0, shift_1;
  assign x = clear_i ? 31'd0 : x_i;
  assign x_normal = x[30:23] != 8'd0;
  assign y_normal = y_i[30:23] != 8'd0;
  assign x_less_y = {1'b0, x[30:23], 1'b0} - {1'b0, y_i[30:23], x_normal && !y_normal};
  assign y_less_x = {1'b0, y_i[30:23], 1'b0} - {1'b0, x[30:23], y_normal && !x_normal};
  assign swap = x_less_y[9];
  assign far = swap ? y_less_x[8:6] != 3'd0 : x_less_y[8:6] != 3'd0;
  assign exponent_0 = swap ? y_i[30:23] : x[30:23];
  assign large_0 = swap ? {y_normal, y_i[22:0]} : {x_normal, x[22:0]};
  assign small_0 = swap ? {x_normal, x[22:0]} : {y_normal, y_i[22:0]};
  assign shift_0 = (swap ? y_less_x[5:1] : x_less_y[5:1]) | {5{far}};
  tsr_pipe #(.Width(61), .Enabled(32'(Registers[0]))) u_stage_0 (
    .clk_i, .enable_i, .data_i({exponent_0, large_0, small_0, shift_0}),
    .data_o({exponent_1, large_1, small_1, shift_1})
  );

  // Stage 1: the smaller one's place. A shift of 31 leaves the sticky bit alone.
  logic [24:0] eights, placed_1, placed_2;
  logic lost_1, lost_2;
  logic [6:0] tail;
  always_comb begin
    case (shift_1[4:3])
      2'd0: eights = {small_1, 1'b0};
      2'd1: eights = {8'd0, small_1[23:7]};
      2'd2: eights = {16'd0, small_1[23:15]};
      default: eights = {24'd0, small_1[23]};
    endcase
    {placed_1, tail} = {eights, 7'd0} >> shift_1[2:0];
    lost_1 = tail != 7'd0 || (shift_1[4:3] != 2'd0 && small_1[6:0] != 7'd0) || (shift_1[4] && small_1[14:7] != 8'd0) ||
        (shift_1[4] && shift_1[3] && small_1[22:15] != 8'd0);
  end
  tsr_pipe #(.Width(58), .Enabled(32'(Registers[1]))) u_stage_1 (
    .clk_i, .enable_i, .data_i({exponent_1, large_1, placed_1, lost_1}),
    .data_o({exponent_2, large_2, placed_2, lost_2})
  );

  // Stage 2: the sum, a place more.
  logic [24:0] sum_2, sum_3;
  logic half_3, lost_3;
  assign sum_2 = {1'b0, large_2} + {1'b0, placed_2[24:1]};
  tsr_pipe #(.Width(35), .Enabled(32'(Registers[2]))) u_stage_2 (
    .clk_i, .enable_i, .data_i({exponent_2, sum_2, placed_2[0], lost_2}),
    .data_o({exponent_3, sum_3, half_3, lost_3})
  );

  // Stage 3: rounding. The sum of two subnormal numbers may reach the leading bit.
  logic carry, half, more, up, step, unused_carry;
  logic [30:0] result_3;
  assign carry = sum_3[24];
  assign half = carry ? sum_3[0] : half_3;
  assign more = Rounding == 2 || (carry ? half_3 || lost_3 || sum_3[1] : lost_3 || sum_3[0]);
  assign up = Rounding != 1 && half && more;
  assign step = exponent_3 == 8'd0 ? sum_3[23] : carry;
  assign {result_3, unused_carry} = {exponent_3, carry ? sum_3[23:1] : sum_3[22:0], 1'b1} + {7'd0, step, 23'd0, up};
  tsr_pipe #(.Width(31), .Enabled(32'(Registers[3]))) u_stage_3 (
    .clk_i, .enable_i, .data_i(result_3), .data_o(sum_o)
  );

  logic unused;
  assign unused = &{1'b0, unused_carry, x_less_y[0], y_less_x};

endmodule
