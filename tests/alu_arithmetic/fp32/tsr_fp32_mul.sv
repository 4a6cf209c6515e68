// SPDX-License-Identifier: Apache-2.0
// IEEE 754 binary32 multiplication: x_i * y_i -> result_o, rounded half to even, subnormals in and out, infinities;
// every NaN result is 0x7fc00000. Method: the exact product of tsr_fp32_product; a product below the smallest normal
// number is shifted right with a sticky bit to exponent 1, so that there is one rounding for normal and subnormal
// results.
//
// Registers: bit 0 after the multiplier, bit 1 after normalising, bit 2 after rounding. Latency: the number of ones, in
// enabled cycles; 0 is combinational. Throughput: one result a lane and cycle. Back-pressure: a pure pipeline, enable_i
// = 0 holds every register. Reset: rst_ni, synchronous, clears the valid bits. result_o is unspecified where valid_o =
// 0; idle stages are not evaluated in simulation.
// Legal: Rounding = 0 and FlushSubnormals = 0. Rounding 1 (truncate), 2 (half away from zero) and FlushSubnormals 1
// (operands and results) exist so that tests can show that they would be noticed.

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_fp32_mul #(
  parameter int unsigned Lanes           = 1,
  parameter logic [2:0]  Registers       = 3'b000,
  parameter int unsigned Rounding        = 0,
  parameter int unsigned FlushSubnormals = 0
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                enable_i,
  input  logic                valid_i,
  input  logic [32*Lanes-1:0] x_i,
  input  logic [32*Lanes-1:0] y_i,
  output logic                valid_o,
  output logic [32*Lanes-1:0] result_o
);

  logic valid_1;
  logic [64*Lanes-1:0] product_1;

  tsr_fp32_product #(.Lanes(Lanes), .Registers({1'b0, Registers[0]}), .FlushSubnormals(FlushSubnormals)) u_product (
    .clk_i, .rst_ni, .enable_i, .valid_i, .x_i, .y_i, .valid_o(valid_1), .product_o(product_1)
  );

  logic valid_2;
  logic [64*Lanes-1:0] unrounded_2;

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o(valid_2)
  );

  // Stage 1: bring exponents below 1 up to 1. Leaves, 64 bits a lane: [25:0] the significand (24 bits, a guard and a
  // sticky bit), [34:26] the biased exponent of its top bit (at least 1; a zero top bit is then a subnormal number or
  // zero), [35] the sign, [36] NaN, [37] infinite.
  function automatic logic [63:0] denormalise(input logic [60:0] product);
    /* verilator no_inline_task */
    logic signed [9:0] exponent;
    logic [47:0] significand, kept;
    logic [5:0]  distance;
    significand = product[47:0];
    exponent = product[57:48];
    if (exponent < 10'sd1) begin
      distance = exponent < -10'sd62 ? 6'd63 : 6'(10'sd1 - exponent);
      kept = significand & ({48{1'b1}} << distance);
      significand = (significand >> distance) | 48'(kept != significand);
      exponent = 10'sd1;
    end
    denormalise = {26'd0, product[60], product[59], product[58], exponent[8:0],
                   significand[47:23], significand[22:0] != 23'd0};
  endfunction

  logic [64*Lanes-1:0] unrounded_2_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) unrounded_2_d = 'x;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) unrounded_2_d[64*l+:64] = denormalise(product_1[64*l+:61]);
    end
  end
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[1]))) u_unrounded_2 (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(unrounded_2_d), .data_o(unrounded_2)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[2]))) u_valid_2 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .valid_o
  );

  // Stage 2: round and pack. The increment runs through fraction and exponent field together, so that a carry makes the
  // next binade, the first normal number or infinity by itself.
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
    if (valid_2) begin
      for (int unsigned l = 0; l < Lanes; l++) result_d[32*l+:32] = round(unrounded_2[64*l+:38]);
    end
  end
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[2]))) u_result (
    .clk_i, .enable_i(enable_i & valid_2), .data_i(result_d), .data_o(result_o)
  );

endmodule
/* verilator lint_on LATCH */
