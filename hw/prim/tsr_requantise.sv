// SPDX-License-Identifier: Apache-2.0
// First stage of the ALU for one lane. convert_i = 1: int32 value + int32 bias (wraps) -> fp32 -> times scale_i ->
// clamp to [low_i, high_i], NaN to low_i -> round half to even -> + zero_i; each step rounded once. convert_i = 0:
// integer clamp of value_i, then + zero_i; bias and scale are ignored. value_o is the exact 17-bit sum. Method:
// tsr_int_to_fp32, tsr_fp32_mul and tsr_fp32_round_clamp in a row, tsr_saturate and a delay line beside them.
//
// value_i, bias_i and scale_i travel with the lane; convert_i, low_i, high_i and zero_i belong to the instruction and
// must hold from its first value's entry until its last value has left.
// Registers: bit 0 after the bias, bits 1 and 2 those of tsr_int_to_fp32, bits 3 to 5 those of tsr_fp32_mul, bits 6 and
// 7 those of tsr_fp32_round_clamp, bit 8 after the zero point. Latency: the number of ones, in enabled cycles, for both
// settings of convert_i; 0 is combinational. Throughput: one value a cycle. Back-pressure: a pure pipeline, enable_i =
// 0 holds every register. Reset: rst_ni, synchronous, clears the valid bits. value_o is unspecified where valid_o = 0;
// idle stages are not evaluated in simulation.
// Legal: Rounding = 0, other values are for tests. low_i > high_i gives high_i (tsr_fp32_round_clamp).
module tsr_requantise #(
  parameter logic [8:0]  Registers = 9'd0,
  parameter int unsigned Rounding  = 0
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               enable_i,
  input  logic               convert_i,
  input  logic signed [15:0] low_i,
  input  logic signed [15:0] high_i,
  input  logic signed [15:0] zero_i,
  input  logic               valid_i,
  input  logic [31:0]        value_i,
  input  logic [31:0]        bias_i,
  input  logic [31:0]        scale_i,
  output logic               valid_o,
  output logic signed [16:0] value_o
);

  localparam int unsigned ToScale = 32'(Registers[0]) + 32'(Registers[1]) + 32'(Registers[2]);
  localparam int unsigned ToRound = ToScale + 32'(Registers[3]) + 32'(Registers[4]) + 32'(Registers[5]);
  localparam int unsigned ToZero  = ToRound + 32'(Registers[6]) + 32'(Registers[7]);

  // Stage 0: bias; the integer path clamps at once and waits.
  logic        convert_valid_0;
  logic [31:0] biased_0d;
  logic signed [15:0] clamped_0d;

  always_comb begin
    biased_0d       = 'x;
    convert_valid_0 = valid_i & convert_i;
    if (convert_valid_0) biased_0d = value_i + bias_i;
  end

  tsr_saturate #(.Width(32)) u_saturate (
    .valid_i(valid_i & ~convert_i), .value_i(value_i), .low_i, .high_i, .result_o(clamped_0d)
  );

  logic        valid_1, valid_2, valid_3, rounded_valid;
  logic [31:0] biased_1, number_2, scale_2, product_3;
  logic signed [15:0] clamped, rounded;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(convert_valid_0), .valid_o(valid_1)
  );
  tsr_pipe #(.Width(32), .Enabled(32'(Registers[0]))) u_biased_0 (
    .clk_i, .enable_i(enable_i & convert_valid_0), .data_i(biased_0d), .data_o(biased_1)
  );
  tsr_delay #(.Width(32), .Stages(ToScale)) u_scale (
    .clk_i, .enable_i, .data_i(scale_i), .data_o(scale_2)
  );
  tsr_delay #(.Width(16), .Stages(ToZero)) u_clamped (
    .clk_i, .enable_i, .data_i(clamped_0d), .data_o(clamped)
  );

  tsr_int_to_fp32 #(.Width(32), .Registers(Registers[2:1]), .Rounding(Rounding)) u_convert (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .value_i(biased_1), .valid_o(valid_2), .result_o(number_2)
  );
  tsr_fp32_mul #(.Registers(Registers[5:3]), .Rounding(Rounding)) u_scale_mul (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .x_i(number_2), .y_i(scale_2),
    .valid_o(valid_3), .result_o(product_3)
  );
  tsr_fp32_round_clamp #(.Registers(Registers[7:6]), .Rounding(Rounding)) u_round (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_3), .value_i(product_3), .low_i, .high_i,
    .valid_o(rounded_valid), .result_o(rounded)
  );

  // The zero point. valid_o follows every value, converted or not.
  logic       zero_valid;
  logic signed [16:0] value_d;

  always_comb begin
    value_d = 'x;
    if (zero_valid) value_d = (rounded_valid ? 17'(rounded) : 17'(clamped)) + 17'(zero_i);
  end

  tsr_delay_valid #(.Stages(ToZero)) u_valid (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(zero_valid)
  );
  tsr_pipe_valid #(.Enabled(32'(Registers[8]))) u_valid_8 (
    .clk_i, .rst_ni, .enable_i, .valid_i(zero_valid), .valid_o
  );
  tsr_pipe #(.Width(17), .Enabled(32'(Registers[8]))) u_value_8 (
    .clk_i, .enable_i(enable_i & zero_valid), .data_i(value_d), .data_o(value_o)
  );

endmodule
