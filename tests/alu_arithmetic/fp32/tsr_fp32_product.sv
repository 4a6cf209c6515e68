// SPDX-License-Identifier: Apache-2.0
// The exact products of IEEE 754 binary32 numbers, unrounded: the shared front of tsr_fp32_mul and tsr_fp32_fma.
// Leaves, 64 bits a lane: [47:0] the significand, [57:48] the biased exponent of its top bit (signed), [58] the sign,
// [59] NaN (a NaN operand or 0 * infinity), [60] infinite, other bits 0. Subnormal operands are multiplied as they are;
// the product is then shifted left until its top bit is one or the exponent 1. One 24 x 24 multiplier a lane, two DSP48
// slices of Xilinx devices.
//
// Exponent: -124..382, at least 1 after a shift; 1 when the product is zero. Significand and exponent are meaningless
// beside NaN or infinite.
// Registers: bit 0 after the multiplier, bit 1 after the normaliser. Latency: the number of ones, in enabled cycles.
// Throughput: one product a lane and cycle. Back-pressure: enable_i = 0 holds every register. Reset: rst_ni,
// synchronous, clears the valid bits. Outputs are unspecified where valid_o = 0; idle stages are not evaluated in
// simulation. FlushSubnormals 1 takes subnormal operands as zero, for tests only.

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

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

  logic valid_1;
  logic [64*Lanes-1:0] product_1;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );

  // Stage 0: unpack and multiply. Bit 61: zero.
  function automatic logic [63:0] multiply(input logic [31:0] x, input logic [31:0] y);
    /* verilator no_inline_task */
    logic        x_normal, y_normal, x_special, y_special, is_nan, is_infinite, is_zero;
    logic [23:0] x_significand, y_significand;
    logic [9:0]  exponent;
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
    multiply = {2'd0, is_zero, is_infinite, is_nan, x[31] ^ y[31], exponent,
                {24'd0, x_significand} * {24'd0, y_significand}};
  endfunction

  logic [64*Lanes-1:0] product_1_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) product_1_d = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) product_1_d[64*l+:64] = multiply(x_i[32*l+:32], y_i[32*l+:32]);
    end
  end
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[0]))) u_product_1 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i(product_1_d), .data_o(product_1)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o
  );

  // Stage 1: normalise, not below exponent 1: shift left until the top bit is one, by `limit` at most. One pass over
  // the powers of two from 32 down; a step shifts by its bit times a condition, since simulators would branch on a
  // choice between words, and all but the last are skipped where they would do nothing (normal operands).
  function automatic logic [63:0] normalise(input logic [61:0] product);
    /* verilator no_inline_task */
    logic signed [9:0] exponent;
    logic [47:0] significand;
    logic [5:0]  room, limit, amount;
    logic        take;
    significand = product[47:0];
    exponent = product[57:48];
    limit = exponent <= 10'sd1 ? 6'd0 : exponent > 10'sd64 ? 6'd63 : 6'(exponent - 10'sd1);
    room = limit;
    if (significand[47:46] == 2'd0) begin
      for (int unsigned k = 0; k < 5; k++) begin
        take = ((significand >> (48 - (32 >> k))) == '0) & (room >= 6'(32 >> k));
        amount = {take, 5'd0} >> k;
        significand = significand << amount;
        room = room - amount;
      end
    end
    amount = {5'd0, !significand[47] & (room != 6'd0)};
    significand = significand << amount;
    room = room - amount;
    exponent = product[61] ? 10'sd1 : exponent - $signed({4'd0, limit - room});
    normalise = {3'd0, product[60:58], exponent, significand};
  endfunction

  logic [64*Lanes-1:0] product_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) product_d = 'x;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) product_d[64*l+:64] = normalise(product_1[64*l+:62]);
    end
  end
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[1]))) u_product (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(product_d), .data_o(product_o)
  );

endmodule
/* verilator lint_on LATCH */
