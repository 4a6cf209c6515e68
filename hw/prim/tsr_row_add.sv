// SPDX-License-Identifier: Apache-2.0
// The sum of two numbers of a softmax (isa/semantics.md, ROW_REDUCE): binary32 without its sign, rounded half to even,
// subnormals included. An exponent of 255 is one like the others, and where the sum leaves it the lowest 31 bits of the
// code remain. One DSP slice.
//
// Method: no difference ever cancels, so the larger exponent's significand needs no shift and the sum one place at most.
// Which operand is larger among equal exponents does not matter. The smaller one's significand is shifted by a product
// with a power of two, 16 places at most, to whose lower end the larger one is added. Where it would go 17 places or
// more it starts 9 lower, and goes 25 at most: beyond 24 all that counts is that it is not 0. So behind the sum's last
// place stand 16 bits and a sticky bit. The exponent and the fraction are one number for the rounding, whose carry thus
// moves the exponent.
//
// Registers: bit 0 after the choice of the larger exponent, 1 after the shift, 2 after the sum, 3 after the rounding. With
// all of them sum_o may be x_i again: the registers hold four sums then, which take turns, and clear_i makes sum_o 0 in
// the next enabled cycle instead (without bit 3 it means nothing). Latency: the number of ones, in
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
  localparam int unsigned Reach = 16, Low = 9;
  logic x_normal, y_normal, swap, beyond, far;
  logic [9:0] x_less_y, y_less_x;
  logic [7:0] exponent_0, exponent_1, exponent_2, exponent_3;
  logic [23:0] large_0, large_1, small_0;
  logic [4:0] shift_0;
  logic [Reach:0] power_0;
  logic lost_0, lost_1, lost_2, lost_3;
  assign x_normal = x_i[30:23] != 8'd0;
  assign y_normal = y_i[30:23] != 8'd0;
  assign x_less_y = {1'b0, x_i[30:23], 1'b0} - {1'b0, y_i[30:23], x_normal && !y_normal};
  assign y_less_x = {1'b0, y_i[30:23], 1'b0} - {1'b0, x_i[30:23], y_normal && !x_normal};
  assign swap = x_less_y[9];
  assign beyond = swap ? y_less_x[8:6] != 3'd0 : x_less_y[8:6] != 3'd0;
  assign shift_0 = swap ? y_less_x[5:1] : x_less_y[5:1];
  assign exponent_0 = swap ? y_i[30:23] : x_i[30:23];
  assign large_0 = swap ? {y_normal, y_i[22:0]} : {x_normal, x_i[22:0]};
  assign small_0 = swap ? {x_normal, x_i[22:0]} : {y_normal, y_i[22:0]};
  assign lost_0 = far && (swap ? x_i[Low-1:0] != '0 : y_i[Low-1:0] != '0);
  tsr_row_places #(.Reach(Reach), .Low(Low)) u_places (.beyond_i(beyond), .shift_i(shift_0), .far_o(far), .power_o(power_0));
  tsr_pipe #(.Width(33), .Enabled(32'(Registers[0]))) u_stage_0 (
    .clk_i, .enable_i, .data_i({exponent_0, large_0, lost_0}), .data_o({exponent_1, large_1, lost_1})
  );
  tsr_pipe #(.Width(9), .Enabled(32'(Registers[1]))) u_stage_1 (
    .clk_i, .enable_i, .data_i({exponent_1, lost_1}), .data_o({exponent_2, lost_2})
  );
  tsr_pipe #(.Width(9), .Enabled(32'(Registers[2]))) u_stage_2 (
    .clk_i, .enable_i, .data_i({exponent_2, lost_2}), .data_o({exponent_3, lost_3})
  );

  // Stages 1 and 2: the smaller one in its place, the sum, a place more.
  logic [47:0] placed_3;
  logic [24:0] sum_3;
  logic half_3, sticky_3;
  tsr_multiply_add #(.Registers(Registers[2:0])) u_sum (
    .clk_i, .enable_i, .x_i({1'b0, far ? 24'(small_0 >> Low) : small_0}), .y_i({1'b0, power_0}),
    .addend_i({8'd0, large_1, 16'd0}), .sum_o(placed_3)
  );
  assign sum_3 = placed_3[40:16];
  assign half_3 = placed_3[15];
  assign sticky_3 = lost_3 || placed_3[14:0] != '0;

  // Stage 3: rounding. The sum of two subnormal numbers may reach the leading bit.
  logic carry, half, more, up, step, unused_carry;
  logic [30:0] result_3;
  assign carry = sum_3[24];
  assign half = carry ? sum_3[0] : half_3;
  assign more = Rounding == 2 || (carry ? half_3 || sticky_3 || sum_3[1] : sticky_3 || sum_3[0]);
  assign up = Rounding != 1 && half && more;
  assign step = exponent_3 == 8'd0 ? sum_3[23] : carry;
  assign {result_3, unused_carry} = {exponent_3, carry ? sum_3[23:1] : sum_3[22:0], 1'b1} + {7'd0, step, 23'd0, up};
  if (Registers[3]) begin : gen_sum
    always_ff @(posedge clk_i) begin
      if (enable_i) begin
        if (clear_i) sum_o <= '0;
        else sum_o <= result_3;
      end
    end
  end else begin : gen_sum_wire
    assign sum_o = result_3;
  end

  logic unused;
  assign unused = &{1'b0, clear_i, unused_carry, x_less_y[0], y_less_x, placed_3[47:41]};

endmodule
