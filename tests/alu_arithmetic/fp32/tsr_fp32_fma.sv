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
// in simulation. Legal: Rounding = 0 and FlushSubnormals = 0; other values are for tests (tsr_fp32_mul).

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

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

  logic valid_3, valid_4, valid_5;
  logic [64*Lanes-1:0] leading_3, trailing_3, sum_4, unrounded_5;

  tsr_pipe_valid #(.Enabled(32'(Registers[2]))) u_valid_2 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .valid_o(valid_3)
  );

  // Stage 2: special cases, alignment. The number with the larger exponent leads, the other one is shifted right; what
  // it loses is ORed into its last bit. (Masks, not choices between words: simulators would branch on those.) Leaves of
  // the leading one [49:0] significand, [58:50] exponent, [59] sign, [60] NaN, [61] infinite, [62] sign of infinity,
  // [63] subtract; of the other one [49:0] significand, [50] sign of zero.
  task automatic align(input logic [60:0] scaled, input logic [31:0] z, output logic [63:0] leading,
                       output logic [50:0] trailing);
    /* verilator no_inline_task */
    logic        z_normal, z_special, product_sign, product_infinite, is_nan, z_leads;
    logic [23:0] z_significand;
    logic [9:0]  z_exponent;
    logic [10:0] difference;
    logic [5:0]  distance;
    logic [59:0] product, addend, swap;  // sign, exponent, significand
    logic [49:0] other, kept;
    z_normal = z[30:23] != 8'd0;
    z_special = z[30:23] == 8'hff;
    z_significand = {z_normal, z[22:0]};
    if (FlushSubnormals != 0 && !z_normal) z_significand = 24'd0;
    z_exponent = {2'b00, z[30:23]} + {9'd0, !z_normal};
    product_sign = scaled[58];
    product_infinite = scaled[60];
    is_nan = scaled[59] | (z_special & (z[22:0] != 23'd0)) |
        (product_infinite & z_special & (product_sign != z[31]));
    difference = 11'($signed(scaled[57:48])) - $signed({1'b0, z_exponent});
    z_leads = difference[10];
    difference = (difference ^ {11{z_leads}}) + 11'(z_leads);
    distance = difference > 11'd63 ? 6'd63 : difference[5:0];
    product = {product_sign, scaled[56:48], scaled[47:0], 2'b00};
    addend = {z[31], z_exponent[8:0], z_significand, 26'd0};
    swap = (product ^ addend) & {60{z_leads}};
    other = 50'(addend ^ swap);
    kept = other & ({50{1'b1}} << distance);
    other = (other >> distance) | 50'(kept != other);
    leading = {product_sign ^ z[31], product_infinite ? product_sign : z[31], product_infinite | z_special, is_nan,
               product ^ swap};
    trailing = {product_sign & z[31], other};
  endtask

  logic [64*Lanes-1:0] leading_3_d, trailing_3_d;

  always_comb begin
    logic [63:0] leading;
    logic [50:0] trailing;
    if (!tsr_isa_pkg::Simulated) leading_3_d = 'x;
    if (!tsr_isa_pkg::Simulated) trailing_3_d = 'x;
    leading  = 'x;
    trailing = 'x;
    if (valid_2) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        align(product_2[64*l+:61], z_2[32*l+:32], leading, trailing);
        leading_3_d[64*l+:64] = leading;
        trailing_3_d[64*l+:64] = {13'd0, trailing};
      end
    end
  end
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[2]))) u_leading_3 (
    .clk_i, .enable_i(enable_i & valid_2), .data_i(leading_3_d), .data_o(leading_3)
  );
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[2]))) u_trailing_3 (
    .clk_i, .enable_i(enable_i & valid_2), .data_i(trailing_3_d), .data_o(trailing_3)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[3]))) u_valid_3 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_3), .valid_o(valid_4)
  );

  // Stage 3: add or subtract; a negative difference changes the sign. Leaves [50:0] magnitude, [59:51] exponent, [60]
  // sign, [61] NaN, [62] infinite.
  function automatic logic [63:0] add(input logic [63:0] leading, input logic [50:0] trailing);
    /* verilator no_inline_task */
    logic [50:0] sum;
    logic        subtract, negate, sign;
    subtract = leading[63];
    sum = {1'b0, leading[49:0]} + ({1'b0, trailing[49:0]} ^ {51{subtract}}) + 51'(subtract);
    negate = subtract & sum[50];
    sign = leading[59] ^ negate;
    sign = sum == 51'd0 ? trailing[50] : sign;
    sign = leading[61] ? leading[62] : sign;
    sum = (sum ^ {51{negate}}) + 51'(negate);
    add = {1'b0, leading[61], leading[60], sign, leading[58:50], sum};
  endfunction

  logic [64*Lanes-1:0] sum_4_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) sum_4_d = 'x;
    if (valid_3) begin
      for (int unsigned l = 0; l < Lanes; l++) sum_4_d[64*l+:64] = add(leading_3[64*l+:64], trailing_3[64*l+:51]);
    end
  end
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[3]))) u_sum_4 (
    .clk_i, .enable_i(enable_i & valid_3), .data_i(sum_4_d), .data_o(sum_4)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[4]))) u_valid_4 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_4), .valid_o(valid_5)
  );

  // Stage 4: normalise as tsr_fp32_product does. The top bit is the carry, one binade above the exponent. Leaves what
  // rounding takes, see tsr_fp32_mul.
  function automatic logic [63:0] normalise(input logic [62:0] magnitude);
    /* verilator no_inline_task */
    logic [50:0] significand;
    logic [5:0]  room, limit, amount;
    logic        take;
    significand = magnitude[50:0];
    limit = magnitude[59:57] != 3'd0 ? 6'd63 : magnitude[56:51];
    room = limit;
    if (significand[50:49] == 2'd0) begin
      for (int unsigned k = 0; k < 5; k++) begin
        take = ((significand >> (51 - (32 >> k))) == '0) & (room >= 6'(32 >> k));
        amount = {take, 5'd0} >> k;
        significand = significand << amount;
        room = room - amount;
      end
    end
    amount = {5'd0, !significand[50] & (room != 6'd0)};
    significand = significand << amount;
    room = room - amount;
    normalise = {26'd0, magnitude[62], magnitude[61], magnitude[60],
                 magnitude[59:51] + 9'd1 - {3'd0, limit - room}, significand[50:26], significand[25:0] != 26'd0};
  endfunction

  logic [64*Lanes-1:0] unrounded_5_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) unrounded_5_d = 'x;
    if (valid_4) begin
      for (int unsigned l = 0; l < Lanes; l++) unrounded_5_d[64*l+:64] = normalise(sum_4[64*l+:63]);
    end
  end
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[4]))) u_unrounded_5 (
    .clk_i, .enable_i(enable_i & valid_4), .data_i(unrounded_5_d), .data_o(unrounded_5)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[5]))) u_valid_5 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_5), .valid_o
  );

  // Stage 5: round and pack.
  function automatic logic [31:0] round(input logic [37:0] unrounded);
    /* verilator no_inline_task */
    logic [25:0] significand;
    logic        round_up, is_infinite;
    logic [31:0] magnitude;  // exponent field of 9 bits and fraction
    significand = unrounded[25:0];
    round_up = significand[1] & (significand[0] | significand[2]);
    if (Rounding == 1) round_up = 1'b0;
    if (Rounding == 2) round_up = significand[1];
    magnitude = {significand[25] ? unrounded[34:26] : 9'd0, significand[24:2]} + 32'(round_up);
    if (FlushSubnormals != 0 && magnitude[31:23] == 9'd0) magnitude = 32'd0;
    is_infinite = unrounded[37] | (magnitude[31:23] >= 9'd255);
    magnitude = {unrounded[35], is_infinite ? 31'h7f800000 : magnitude[30:0]};
    round = unrounded[36] ? 32'h7fc00000 : magnitude;
  endfunction

  logic [32*Lanes-1:0] result_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) result_d = 'x;
    if (valid_5) begin
      for (int unsigned l = 0; l < Lanes; l++) result_d[32*l+:32] = round(unrounded_5[64*l+:38]);
    end
  end
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[5]))) u_result (
    .clk_i, .enable_i(enable_i & valid_5), .data_i(result_d), .data_o(result_o)
  );

endmodule
/* verilator lint_on LATCH */
