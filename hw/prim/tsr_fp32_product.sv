// SPDX-License-Identifier: Apache-2.0
// The exact products of IEEE 754 binary32 numbers, unrounded: the shared front of tsr_fp32_mul and tsr_fp32_fma. Leaves,
// 64 bits a lane: [47:0] the significand, [57:48] the biased exponent of its top bit (signed), [58] the sign, [59] NaN
// (a NaN operand or 0 * infinity), [60] infinite, other bits 0. Subnormal operands are multiplied as they are; the
// product is then shifted left until its top bit is one or the exponent 1. One 24 x 24 multiplier a lane, two DSP48
// slices of Xilinx devices.
//
// Exponent: -124..382, at least 1 after a shift; 1 when the product is zero. Significand and exponent are meaningless
// beside NaN or infinite.
// Registers: bit 0 after the multiplier, bit 1 after the normaliser. Latency: the number of ones, in enabled cycles.
// Throughput: one product a lane and cycle. Back-pressure: enable_i = 0 holds every register. Reset: rst_ni,
// synchronous, clears the valid bits. Outputs are unspecified where valid_o = 0; idle stages are not evaluated in
// simulation. FlushSubnormals 1 takes subnormal operands as zero, for tests only.
module tsr_fp32_product #(
  parameter int unsigned Lanes           = 1,
  parameter logic [1:0]  Registers       = 2'b00,
  parameter int unsigned FlushSubnormals = 0
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                enable_i,
  input  logic                valid_i,
  input  logic [32*Lanes-1:0] x_i,
  input  logic [32*Lanes-1:0] y_i,
  output logic                valid_o,
  output logic [64*Lanes-1:0] product_o
);

  // Stage 0: unpack and multiply. Bit 61: zero.
  logic [64*Lanes-1:0] product_0d;

  always_comb begin
    logic [31:0] x, y;
    logic        x_normal, y_normal, x_special, y_special, is_nan, is_infinite, is_zero;
    logic [23:0] x_significand, y_significand;
    logic [9:0]  exponent;
    product_0d    = 'x;
    x             = 'x;
    y             = 'x;
    x_normal      = 1'bx;
    y_normal      = 1'bx;
    x_special     = 1'bx;
    y_special     = 1'bx;
    is_nan        = 1'bx;
    is_infinite   = 1'bx;
    is_zero       = 1'bx;
    x_significand = 'x;
    y_significand = 'x;
    exponent      = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        x = x_i[32*l+:32];
        y = y_i[32*l+:32];
        x_normal = x[30:23] != 8'd0;
        y_normal = y[30:23] != 8'd0;
        x_special = x[30:23] == 8'hff;
        y_special = y[30:23] == 8'hff;
        x_significand = {x_normal, x[22:0]};
        y_significand = {y_normal, y[22:0]};
        if (FlushSubnormals != 0 && !x_normal) x_significand = 24'd0;
        if (FlushSubnormals != 0 && !y_normal) y_significand = 24'd0;
        is_zero = (x_significand == 24'd0) | (y_significand == 24'd0);
        is_infinite = x_special | y_special;
        is_nan = (x_special & (x[22:0] != 23'd0)) | (y_special & (y[22:0] != 23'd0)) | (is_infinite & is_zero);
        exponent = {2'b00, x[30:23]} + {2'b00, y[30:23]} + {9'd0, !x_normal} + {9'd0, !y_normal} - 10'd126;
        product_0d[64*l+:64] = {2'd0, is_zero, is_infinite, is_nan, x[31] ^ y[31], exponent,
                                {24'd0, x_significand} * {24'd0, y_significand}};
      end
    end
  end

  logic valid_1;
  logic [64*Lanes-1:0] product_1;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[0]))) u_product_0 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i(product_0d), .data_o(product_1)
  );

  // Stage 1: normalise, not below exponent 1.
  logic [8*Lanes-1:0] limit_1, shift_1;
  logic [64*Lanes-1:0] normalised_1, product_1d;

  always_comb begin
    logic signed [9:0] exponent;
    limit_1  = 'x;
    exponent = 'x;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        exponent = product_1[64*l+48+:10];
        limit_1[8*l+:8] = exponent <= 10'sd1 ? 8'd0 : exponent > 10'sd64 ? 8'd63 : 8'(exponent - 10'sd1);
      end
    end
  end

  tsr_normalise #(.Lanes(Lanes), .Width(48)) u_normalise (
    .valid_i(valid_1), .significand_i(product_1), .limit_i(limit_1), .significand_o(normalised_1), .shift_o(shift_1)
  );

  always_comb begin
    logic [9:0] exponent;
    product_1d = 'x;
    exponent   = 'x;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        exponent = product_1[64*l+61] ? 10'd1 : product_1[64*l+48+:10] - {2'd0, shift_1[8*l+:8]};
        product_1d[64*l+:64] = {3'd0, product_1[64*l+58+:3], exponent, normalised_1[64*l+:48]};
      end
    end
  end

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o
  );
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[1]))) u_product_1 (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(product_1d), .data_o(product_o)
  );

  logic unused;
  assign unused = &{1'b0, product_1, normalised_1};

endmodule
