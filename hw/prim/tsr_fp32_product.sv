// SPDX-License-Identifier: Apache-2.0
// The exact product of two IEEE 754 binary32 numbers, unrounded: the shared front of tsr_fp32_mul and tsr_fp32_fma.
// Leaves: sign, a 48-bit significand and the biased exponent of its top bit, and whether the product is NaN (a NaN
// operand or 0 * infinity) or infinite. Subnormal operands are multiplied as they are; the product is then shifted left
// until its top bit is one or the exponent 1. One 24 x 24 multiplier, two DSP48 slices of Xilinx devices.
//
// exponent_o: -124..382, at least 1 after a shift; 1 when the product is zero. Significand and exponent are meaningless
// beside nan_o or infinite_o.
// Registers: bit 0 after the multiplier, bit 1 after the normaliser. Latency: the number of ones, in enabled cycles.
// Throughput: one product a cycle. Back-pressure: enable_i = 0 holds every register. Reset: rst_ni, synchronous, clears
// the valid bits. Outputs are unspecified where valid_o = 0; idle stages are not evaluated in simulation.
// FlushSubnormals 1 takes subnormal operands as zero, for tests only.
module tsr_fp32_product #(
  parameter logic [1:0]  Registers       = 2'b00,
  parameter int unsigned FlushSubnormals = 0
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               enable_i,
  input  logic               valid_i,
  input  logic [31:0]        x_i,
  input  logic [31:0]        y_i,
  output logic               valid_o,
  output logic               sign_o,
  output logic               nan_o,
  output logic               infinite_o,
  output logic signed [9:0]  exponent_o,
  output logic [47:0]        significand_o
);

  // Stage 0: unpack and multiply.
  logic [23:0] x_significand, y_significand;
  logic        x_special, y_special, x_nan, y_nan, x_zero, y_zero;
  logic        sign_0d, nan_0d, infinite_0d, zero_0d;
  logic signed [9:0] exponent_0d;
  logic [47:0] product_0d;

  always_comb begin
    x_significand = 'x;
    y_significand = 'x;
    x_special     = 1'bx;
    y_special     = 1'bx;
    x_nan         = 1'bx;
    y_nan         = 1'bx;
    x_zero        = 1'bx;
    y_zero        = 1'bx;
    sign_0d       = 1'bx;
    nan_0d        = 1'bx;
    infinite_0d   = 1'bx;
    zero_0d       = 1'bx;
    exponent_0d   = 'x;
    product_0d    = 'x;
    if (valid_i) begin
      x_significand = {x_i[30:23] != 8'd0, x_i[22:0]};
      y_significand = {y_i[30:23] != 8'd0, y_i[22:0]};
      if (FlushSubnormals != 0 && !x_significand[23]) x_significand = 24'd0;
      if (FlushSubnormals != 0 && !y_significand[23]) y_significand = 24'd0;
      x_special   = x_i[30:23] == 8'hff;
      y_special   = y_i[30:23] == 8'hff;
      x_nan       = x_special && x_i[22:0] != 23'd0;
      y_nan       = y_special && y_i[22:0] != 23'd0;
      x_zero      = x_significand == 24'd0;
      y_zero      = y_significand == 24'd0;
      sign_0d     = x_i[31] ^ y_i[31];
      nan_0d      = x_nan || y_nan || (x_special && y_zero) || (y_special && x_zero);
      infinite_0d = x_special || y_special;
      zero_0d     = x_zero || y_zero;
      exponent_0d = $signed({2'b00, x_i[30:23]}) + $signed({9'd0, x_i[30:23] == 8'd0})
                  + $signed({2'b00, y_i[30:23]}) + $signed({9'd0, y_i[30:23] == 8'd0}) - 10'sd126;
      product_0d  = {24'd0, x_significand} * {24'd0, y_significand};
    end
  end

  logic valid_1, sign_1, nan_1, infinite_1, zero_1;
  logic signed [9:0] exponent_1;
  logic [47:0] product_1;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );
  tsr_pipe #(.Width(14), .Enabled(32'(Registers[0]))) u_flags_0 (
    .clk_i, .enable_i(enable_i & valid_i),
    .data_i({sign_0d, nan_0d, infinite_0d, zero_0d, exponent_0d}),
    .data_o({sign_1, nan_1, infinite_1, zero_1, exponent_1})
  );
  tsr_pipe #(.Width(48), .Enabled(32'(Registers[0]))) u_product_0 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i(product_0d), .data_o(product_1)
  );

  // Stage 1: normalise, not below exponent 1.
  logic [5:0]  limit_1, shift_1;
  logic [47:0] significand_1d;
  logic signed [9:0] exponent_1d;

  always_comb begin
    limit_1     = 'x;
    exponent_1d = 'x;
    if (valid_1) begin
      limit_1     = exponent_1 <= 10'sd1 ? 6'd0 : exponent_1 > 10'sd64 ? 6'd63 : 6'(exponent_1 - 10'sd1);
      exponent_1d = zero_1 ? 10'sd1 : exponent_1 - $signed({4'd0, shift_1});
    end
  end

  tsr_normalise #(.Width(48)) u_normalise (
    .valid_i(valid_1), .significand_i(product_1), .limit_i(limit_1), .significand_o(significand_1d), .shift_o(shift_1)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o
  );
  tsr_pipe #(.Width(13), .Enabled(32'(Registers[1]))) u_flags_1 (
    .clk_i, .enable_i(enable_i & valid_1),
    .data_i({sign_1, nan_1, infinite_1, exponent_1d}),
    .data_o({sign_o, nan_o, infinite_o, exponent_o})
  );
  tsr_pipe #(.Width(48), .Enabled(32'(Registers[1]))) u_significand_1 (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(significand_1d), .data_o(significand_o)
  );

endmodule
