// SPDX-License-Identifier: Apache-2.0
// IEEE 754 binary32 multiplication: x_i * y_i -> result_o, rounded half to even, subnormals in and out, infinities;
// every NaN result is 0x7fc00000. Method: the exact product of tsr_fp32_product; a product below the smallest normal
// number is shifted right with a sticky bit to exponent 1, so that there is one rounding for normal and subnormal
// results.
//
// Registers: bit 0 after the multiplier, bit 1 after normalising, bit 2 after rounding. Latency: the number of ones, in
// enabled cycles; 0 is combinational. Throughput: one result a cycle. Back-pressure: a pure pipeline, enable_i = 0
// holds every register. Reset: rst_ni, synchronous, clears the valid bits. result_o is unspecified where valid_o = 0;
// idle stages are not evaluated in simulation.
// Legal: Rounding = 0 and FlushSubnormals = 0; other values are for tests (tsr_fp32_pack).
module tsr_fp32_mul #(
  parameter logic [2:0]  Registers       = 3'b000,
  parameter int unsigned Rounding        = 0,
  parameter int unsigned FlushSubnormals = 0
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        enable_i,
  input  logic        valid_i,
  input  logic [31:0] x_i,
  input  logic [31:0] y_i,
  output logic        valid_o,
  output logic [31:0] result_o
);

  logic valid_1, sign_1, nan_1, infinite_1;
  logic signed [9:0] exponent_1;
  logic [47:0] product_1;

  tsr_fp32_product #(.Registers({1'b0, Registers[0]}), .FlushSubnormals(FlushSubnormals)) u_product (
    .clk_i, .rst_ni, .enable_i, .valid_i, .x_i, .y_i,
    .valid_o(valid_1), .sign_o(sign_1), .nan_o(nan_1), .infinite_o(infinite_1),
    .exponent_o(exponent_1), .significand_o(product_1)
  );

  // Stage 1: bring exponents below 1 up to 1.
  logic [5:0]  distance_1;
  logic [8:0]  exponent_1d;
  logic [47:0] shifted_1;
  logic [25:0] significand_1d;

  always_comb begin
    distance_1     = 'x;
    exponent_1d    = 'x;
    significand_1d = 'x;
    if (valid_1) begin
      distance_1     = exponent_1 >= 10'sd1 ? 6'd0 : exponent_1 < -10'sd62 ? 6'd63 : 6'(10'sd1 - exponent_1);
      exponent_1d    = exponent_1 >= 10'sd1 ? exponent_1[8:0] : 9'd1;
      significand_1d = {shifted_1[47:23], shifted_1[22:0] != 23'd0};
    end
  end

  tsr_shift_sticky #(.Width(48)) u_denormalise (
    .valid_i(valid_1), .data_i(product_1), .distance_i(distance_1), .data_o(shifted_1)
  );

  logic valid_2, sign_2, nan_2, infinite_2;
  logic [8:0]  exponent_2;
  logic [25:0] significand_2;

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o(valid_2)
  );
  tsr_pipe #(.Width(38), .Enabled(32'(Registers[1]))) u_data_1 (
    .clk_i, .enable_i(enable_i & valid_1),
    .data_i({sign_1, nan_1, infinite_1, exponent_1d, significand_1d}),
    .data_o({sign_2, nan_2, infinite_2, exponent_2, significand_2})
  );

  // Stage 2: round and pack.
  logic [31:0] result_2d;

  tsr_fp32_pack #(.Rounding(Rounding), .FlushSubnormals(FlushSubnormals)) u_pack (
    .valid_i(valid_2), .sign_i(sign_2), .exponent_i(exponent_2), .significand_i(significand_2),
    .special_i(nan_2 | infinite_2), .special_value_i(nan_2 ? 32'h7fc00000 : {sign_2, 31'h7f800000}),
    .result_o(result_2d)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[2]))) u_valid_2 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .valid_o
  );
  tsr_pipe #(.Width(32), .Enabled(32'(Registers[2]))) u_result_2 (
    .clk_i, .enable_i(enable_i & valid_2), .data_i(result_2d), .data_o(result_o)
  );

endmodule
