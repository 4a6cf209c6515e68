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
// Throughput: one result a cycle. Back-pressure: a pure pipeline, enable_i = 0 holds every register. Reset: rst_ni,
// synchronous, clears the valid bits. result_o is unspecified where valid_o = 0; idle stages are not evaluated in
// simulation. Legal: Rounding = 0 and FlushSubnormals = 0; other values are for tests (tsr_fp32_pack).
module tsr_fp32_fma #(
  parameter logic [5:0]  Registers       = 6'b000000,
  parameter int unsigned Rounding        = 0,
  parameter int unsigned FlushSubnormals = 0
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        enable_i,
  input  logic        valid_i,
  input  logic [31:0] x_i,
  input  logic [31:0] y_i,
  input  logic [31:0] z_i,
  output logic        valid_o,
  output logic [31:0] result_o
);

  // Stages 0 and 1: the product; z travels beside it.
  logic valid_2, product_sign_2, product_nan_2, product_infinite_2;
  logic signed [9:0] product_exponent_2;
  logic [47:0] product_2;
  logic [31:0] z_2;

  tsr_fp32_product #(.Registers(Registers[1:0]), .FlushSubnormals(FlushSubnormals)) u_product (
    .clk_i, .rst_ni, .enable_i, .valid_i, .x_i, .y_i,
    .valid_o(valid_2), .sign_o(product_sign_2), .nan_o(product_nan_2), .infinite_o(product_infinite_2),
    .exponent_o(product_exponent_2), .significand_o(product_2)
  );
  tsr_delay #(.Width(32), .Stages(32'(Registers[0]) + 32'(Registers[1]))) u_z (
    .clk_i, .enable_i, .data_i(z_i), .data_o(z_2)
  );

  // Stage 2: special cases, alignment. `large` has the larger exponent, the other one becomes `small`.
  logic [23:0] z_significand;
  logic [9:0]  z_exponent;
  logic        z_special, z_nan, product_leads;
  logic signed [10:0] difference;
  logic [5:0]  distance;
  logic [49:0] to_align;
  logic        nan_2d, infinite_2d, infinite_sign_2d, subtract_2d, zero_sign_2d, large_sign_2d;
  logic [8:0]  exponent_2d;
  logic [49:0] large_2d, small_2d;

  always_comb begin
    z_significand    = 'x;
    z_exponent       = 'x;
    z_special        = 1'bx;
    z_nan            = 1'bx;
    product_leads    = 1'bx;
    difference       = 'x;
    distance         = 'x;
    to_align         = 'x;
    nan_2d           = 1'bx;
    infinite_2d      = 1'bx;
    infinite_sign_2d = 1'bx;
    subtract_2d      = 1'bx;
    zero_sign_2d     = 1'bx;
    large_sign_2d    = 1'bx;
    exponent_2d      = 'x;
    large_2d         = 'x;
    if (valid_2) begin
      z_significand = {z_2[30:23] != 8'd0, z_2[22:0]};
      if (FlushSubnormals != 0 && !z_significand[23]) z_significand = 24'd0;
      z_exponent       = {2'b00, z_2[30:23]} + {9'd0, z_2[30:23] == 8'd0};
      z_special        = z_2[30:23] == 8'hff;
      z_nan            = z_special && z_2[22:0] != 23'd0;
      nan_2d           = product_nan_2 || z_nan || (product_infinite_2 && z_special && product_sign_2 != z_2[31]);
      infinite_2d      = product_infinite_2 || z_special;
      infinite_sign_2d = product_infinite_2 ? product_sign_2 : z_2[31];
      subtract_2d      = product_sign_2 ^ z_2[31];
      zero_sign_2d     = product_sign_2 & z_2[31];
      difference       = 11'(product_exponent_2) - $signed({1'b0, z_exponent});
      product_leads    = difference >= 11'sd0;
      if (product_leads) begin
        distance      = difference > 11'sd63 ? 6'd63 : difference[5:0];
        exponent_2d   = product_exponent_2[8:0];
        large_sign_2d = product_sign_2;
        large_2d      = {product_2, 2'b00};
        to_align      = {z_significand, 26'd0};
      end else begin
        distance      = difference < -11'sd63 ? 6'd63 : 6'(-difference);
        exponent_2d   = z_exponent[8:0];
        large_sign_2d = z_2[31];
        large_2d      = {z_significand, 26'd0};
        to_align      = {product_2, 2'b00};
      end
    end
  end

  tsr_shift_sticky #(.Width(50)) u_align (
    .valid_i(valid_2), .data_i(to_align), .distance_i(distance), .data_o(small_2d)
  );

  logic valid_3, nan_3, infinite_3, infinite_sign_3, subtract_3, zero_sign_3, large_sign_3;
  logic [8:0]  exponent_3;
  logic [49:0] large_3, small_3;

  tsr_pipe_valid #(.Enabled(32'(Registers[2]))) u_valid_2 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .valid_o(valid_3)
  );
  tsr_pipe #(.Width(15), .Enabled(32'(Registers[2]))) u_flags_2 (
    .clk_i, .enable_i(enable_i & valid_2),
    .data_i({nan_2d, infinite_2d, infinite_sign_2d, subtract_2d, zero_sign_2d, large_sign_2d, exponent_2d}),
    .data_o({nan_3, infinite_3, infinite_sign_3, subtract_3, zero_sign_3, large_sign_3, exponent_3})
  );
  tsr_pipe #(.Width(50), .Enabled(32'(Registers[2]))) u_large_2 (
    .clk_i, .enable_i(enable_i & valid_2), .data_i(large_2d), .data_o(large_3)
  );
  tsr_pipe #(.Width(50), .Enabled(32'(Registers[2]))) u_small_2 (
    .clk_i, .enable_i(enable_i & valid_2), .data_i(small_2d), .data_o(small_3)
  );

  // Stage 3: add or subtract; a negative difference changes the sign.
  logic [50:0] sum_3, magnitude_3d;
  logic        sign_3d;

  always_comb begin
    sum_3        = 'x;
    magnitude_3d = 'x;
    sign_3d      = 1'bx;
    if (valid_3) begin
      sum_3        = subtract_3 ? {1'b0, large_3} - {1'b0, small_3} : {1'b0, large_3} + {1'b0, small_3};
      magnitude_3d = subtract_3 && sum_3[50] ? -sum_3 : sum_3;
      sign_3d      = nan_3 ? 1'b0 : infinite_3 ? infinite_sign_3 : sum_3 == 51'd0 ? zero_sign_3
                   : large_sign_3 ^ (subtract_3 & sum_3[50]);
    end
  end

  logic valid_4, nan_4, infinite_4, sign_4;
  logic [8:0]  exponent_4;
  logic [50:0] magnitude_4;

  tsr_pipe_valid #(.Enabled(32'(Registers[3]))) u_valid_3 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_3), .valid_o(valid_4)
  );
  tsr_pipe #(.Width(12), .Enabled(32'(Registers[3]))) u_flags_3 (
    .clk_i, .enable_i(enable_i & valid_3),
    .data_i({nan_3, infinite_3, sign_3d, exponent_3}), .data_o({nan_4, infinite_4, sign_4, exponent_4})
  );
  tsr_pipe #(.Width(51), .Enabled(32'(Registers[3]))) u_magnitude_3 (
    .clk_i, .enable_i(enable_i & valid_3), .data_i(magnitude_3d), .data_o(magnitude_4)
  );

  // Stage 4: normalise. The top bit is the carry, one binade above exponent_4.
  logic [5:0]  limit_4, shift_4;
  logic [50:0] normalised_4;
  logic [8:0]  exponent_4d;
  logic [25:0] significand_4d;

  always_comb begin
    limit_4        = 'x;
    exponent_4d    = 'x;
    significand_4d = 'x;
    if (valid_4) begin
      limit_4        = exponent_4 > 9'd63 ? 6'd63 : exponent_4[5:0];
      exponent_4d    = exponent_4 + 9'd1 - {3'd0, shift_4};
      significand_4d = {normalised_4[50:26], normalised_4[25:0] != 26'd0};
    end
  end

  tsr_normalise #(.Width(51)) u_normalise (
    .valid_i(valid_4), .significand_i(magnitude_4), .limit_i(limit_4), .significand_o(normalised_4), .shift_o(shift_4)
  );

  logic valid_5, nan_5, infinite_5, sign_5;
  logic [8:0]  exponent_5;
  logic [25:0] significand_5;

  tsr_pipe_valid #(.Enabled(32'(Registers[4]))) u_valid_4 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_4), .valid_o(valid_5)
  );
  tsr_pipe #(.Width(38), .Enabled(32'(Registers[4]))) u_data_4 (
    .clk_i, .enable_i(enable_i & valid_4),
    .data_i({nan_4, infinite_4, sign_4, exponent_4d, significand_4d}),
    .data_o({nan_5, infinite_5, sign_5, exponent_5, significand_5})
  );

  // Stage 5: round and pack.
  logic [31:0] result_5d;

  tsr_fp32_pack #(.Rounding(Rounding), .FlushSubnormals(FlushSubnormals)) u_pack (
    .valid_i(valid_5), .sign_i(sign_5), .exponent_i(exponent_5), .significand_i(significand_5),
    .special_i(nan_5 | infinite_5), .special_value_i(nan_5 ? 32'h7fc00000 : {sign_5, 31'h7f800000}),
    .result_o(result_5d)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[5]))) u_valid_5 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_5), .valid_o
  );
  tsr_pipe #(.Width(32), .Enabled(32'(Registers[5]))) u_result_5 (
    .clk_i, .enable_i(enable_i & valid_5), .data_i(result_5d), .data_o(result_o)
  );

endmodule
