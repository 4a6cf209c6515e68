// SPDX-License-Identifier: Apache-2.0
// IEEE 754 binary32 fused multiply-add: x_i * y_i + z_i -> result_o with one rounding, half to even, subnormals in and
// out, infinities; every NaN result is 0x7fc00000, an exact cancellation is +0. Method: the exact product
// (tsr_fp32_product, normalised down to exponent 1) and z are aligned to the larger exponent of the two, the other
// shifted right with a sticky bit; 50 bits and a carry suffice, because more than one leading bit cancels only where
// the exponents differ by at most one, and then nothing is shifted out. The sum is normalised, not below exponent 1,
// and rounded once. The larger exponent is never below 1 (z's is not), so subnormal results need no further shift.
//
// Registers: bit 0 after the multiplier, 1 after the product's normaliser, 2 after alignment, 3 after the adder, 4
// after normalising the sum, 5 after rounding. Latency: the number of ones, in enabled cycles; 0 is combinational.
// Throughput: one result a lane and cycle. Back-pressure: a pure pipeline, enable_i = 0 holds every register. Reset:
// rst_ni, synchronous, clears the valid bits. result_o is unspecified where valid_o = 0; idle stages are not evaluated
// in simulation. Legal: Rounding = 0 and FlushSubnormals = 0; other values are for tests (tsr_fp32_pack).
module tsr_fp32_fma #(
  parameter int unsigned Lanes           = 1,
  parameter logic [5:0]  Registers       = 6'b000000,
  parameter int unsigned Rounding        = 0,
  parameter int unsigned FlushSubnormals = 0
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                enable_i,
  input  logic                valid_i,
  input  logic [32*Lanes-1:0] x_i,
  input  logic [32*Lanes-1:0] y_i,
  input  logic [32*Lanes-1:0] z_i,
  output logic                valid_o,
  output logic [32*Lanes-1:0] result_o
);

  // Stages 0 and 1: the product; z travels beside it.
  logic valid_2;
  logic [64*Lanes-1:0] product_2;
  logic [32*Lanes-1:0] z_2;

  tsr_fp32_product #(.Lanes(Lanes), .Registers(Registers[1:0]), .FlushSubnormals(FlushSubnormals)) u_product (
    .clk_i, .rst_ni, .enable_i, .valid_i, .x_i, .y_i, .valid_o(valid_2), .product_o(product_2)
  );
  tsr_delay #(.Width(32 * Lanes), .Stages(32'(Registers[0]) + 32'(Registers[1]))) u_z (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i(z_i), .data_o(z_2)
  );

  // Stage 2: special cases, alignment. The number with the larger exponent stays, the other one becomes `small`. (Masks,
  // not choices between words: simulators would branch on those.) large:
  // [49:0] significand, [58:50] exponent, [59] sign, [60] NaN, [61] infinite, [62] sign of infinity, [63] subtract.
  // small: [49:0] significand, [50] sign of zero.
  logic [64*Lanes-1:0] large_2d, to_align, aligned, small_2d;
  logic [8*Lanes-1:0] distance;

  always_comb begin
    logic [31:0] z;
    logic        z_normal, z_special, product_sign, product_infinite, is_nan, z_leads;
    logic [23:0] z_significand;
    logic [9:0]  z_exponent;
    logic [10:0] difference;
    logic [59:0] product, addend, swap;  // sign, exponent, significand
    large_2d         = 'x;
    to_align         = 'x;
    distance         = 'x;
    z                = 'x;
    z_normal         = 1'bx;
    z_special        = 1'bx;
    product_sign     = 1'bx;
    product_infinite = 1'bx;
    is_nan           = 1'bx;
    z_leads          = 1'bx;
    z_significand    = 'x;
    z_exponent       = 'x;
    difference       = 'x;
    product          = 'x;
    addend           = 'x;
    swap             = 'x;
    if (valid_2) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        z = z_2[32*l+:32];
        z_normal = z[30:23] != 8'd0;
        z_special = z[30:23] == 8'hff;
        z_significand = {z_normal, z[22:0]};
        if (FlushSubnormals != 0 && !z_normal) z_significand = 24'd0;
        z_exponent = {2'b00, z[30:23]} + {9'd0, !z_normal};
        product_sign = product_2[64*l+58];
        product_infinite = product_2[64*l+60];
        is_nan = product_2[64*l+59] | (z_special & (z[22:0] != 23'd0)) |
            (product_infinite & z_special & (product_sign != z[31]));
        difference = 11'($signed(product_2[64*l+48+:10])) - $signed({1'b0, z_exponent});
        z_leads = difference[10];
        difference = (difference ^ {11{z_leads}}) + 11'(z_leads);
        distance[8*l+:8] = difference > 11'd63 ? 8'd63 : difference[7:0];
        product = {product_sign, product_2[64*l+48+:9], product_2[64*l+:48], 2'b00};
        addend = {z[31], z_exponent[8:0], z_significand, 26'd0};
        swap = (product ^ addend) & {60{z_leads}};
        large_2d[64*l+:64] = {product_sign ^ z[31], product_infinite ? product_sign : z[31],
                              product_infinite | z_special, is_nan, product ^ swap};
        to_align[64*l+:64] = {13'd0, product_sign & z[31], 50'(addend ^ swap)};
      end
    end
  end

  tsr_shift_sticky #(.Lanes(Lanes), .Width(50)) u_align (
    .valid_i(valid_2), .data_i(to_align), .distance_i(distance), .data_o(aligned)
  );

  always_comb begin
    small_2d = 'x;
    if (valid_2) begin
      for (int unsigned l = 0; l < Lanes; l++) small_2d[64*l+:64] = {13'd0, to_align[64*l+50], aligned[64*l+:50]};
    end
  end

  logic valid_3;
  logic [64*Lanes-1:0] large_3, small_3;

  tsr_pipe_valid #(.Enabled(32'(Registers[2]))) u_valid_2 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .valid_o(valid_3)
  );
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[2]))) u_large_2 (
    .clk_i, .enable_i(enable_i & valid_2), .data_i(large_2d), .data_o(large_3)
  );
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[2]))) u_small_2 (
    .clk_i, .enable_i(enable_i & valid_2), .data_i(small_2d), .data_o(small_3)
  );

  // Stage 3: add or subtract; a negative difference changes the sign. sum: [50:0] magnitude, [59:51] exponent, [60]
  // sign, [61] NaN, [62] infinite.
  logic [64*Lanes-1:0] sum_3d;

  always_comb begin
    logic [50:0] leading, trailing, sum;
    logic        subtract, negate, sign;
    sum_3d   = 'x;
    leading  = 'x;
    trailing = 'x;
    sum      = 'x;
    subtract = 1'bx;
    negate   = 1'bx;
    sign     = 1'bx;
    if (valid_3) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        subtract = large_3[64*l+63];
        leading = {1'b0, large_3[64*l+:50]};
        trailing = {1'b0, small_3[64*l+:50]};
        sum = leading + (trailing ^ {51{subtract}}) + 51'(subtract);
        negate = subtract & sum[50];
        sign = large_3[64*l+59] ^ negate;
        sign = sum == 51'd0 ? small_3[64*l+50] : sign;
        sign = large_3[64*l+61] ? large_3[64*l+62] : sign;
        sum = (sum ^ {51{negate}}) + 51'(negate);
        sum_3d[64*l+:64] = {1'b0, large_3[64*l+61], large_3[64*l+60], sign, large_3[64*l+50+:9], sum};
      end
    end
  end

  logic valid_4;
  logic [64*Lanes-1:0] sum_4;

  tsr_pipe_valid #(.Enabled(32'(Registers[3]))) u_valid_3 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_3), .valid_o(valid_4)
  );
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[3]))) u_sum_3 (
    .clk_i, .enable_i(enable_i & valid_3), .data_i(sum_3d), .data_o(sum_4)
  );

  // Stage 4: normalise. The top bit is the carry, one binade above the exponent.
  logic [8*Lanes-1:0] limit_4, shift_4;
  logic [64*Lanes-1:0] normalised_4, unrounded_4d;

  always_comb begin
    limit_4 = 'x;
    if (valid_4) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        limit_4[8*l+:8] = sum_4[64*l+57+:3] != 3'd0 ? 8'd63 : {2'd0, sum_4[64*l+51+:6]};
      end
    end
  end

  tsr_normalise #(.Lanes(Lanes), .Width(51)) u_normalise (
    .valid_i(valid_4), .significand_i(sum_4), .limit_i(limit_4), .significand_o(normalised_4), .shift_o(shift_4)
  );

  always_comb begin
    unrounded_4d = 'x;
    if (valid_4) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        unrounded_4d[64*l+:64] = {26'd0, sum_4[64*l+62], sum_4[64*l+61], sum_4[64*l+60],
                                  sum_4[64*l+51+:9] + 9'd1 - {1'b0, shift_4[8*l+:8]}, normalised_4[64*l+26+:25],
                                  normalised_4[64*l+:26] != 26'd0};
      end
    end
  end

  logic valid_5;
  logic [64*Lanes-1:0] unrounded_5;

  tsr_pipe_valid #(.Enabled(32'(Registers[4]))) u_valid_4 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_4), .valid_o(valid_5)
  );
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[4]))) u_data_4 (
    .clk_i, .enable_i(enable_i & valid_4), .data_i(unrounded_4d), .data_o(unrounded_5)
  );

  // Stage 5: round and pack.
  logic [32*Lanes-1:0] result_5d;

  tsr_fp32_pack #(.Lanes(Lanes), .Rounding(Rounding), .FlushSubnormals(FlushSubnormals)) u_pack (
    .valid_i(valid_5), .unrounded_i(unrounded_5), .result_o(result_5d)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[5]))) u_valid_5 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_5), .valid_o
  );
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[5]))) u_result_5 (
    .clk_i, .enable_i(enable_i & valid_5), .data_i(result_5d), .data_o(result_o)
  );

  logic unused;
  assign unused = &{1'b0, product_2, aligned, small_3, sum_4, normalised_4};

endmodule
