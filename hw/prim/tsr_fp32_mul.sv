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
// Legal: Rounding = 0 and FlushSubnormals = 0; other values are for tests (tsr_fp32_pack).
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

  // Stage 1: bring exponents below 1 up to 1.
  logic [8*Lanes-1:0] distance_1;
  logic [64*Lanes-1:0] shifted_1, unrounded_1d;

  always_comb begin
    logic signed [9:0] exponent;
    distance_1 = 'x;
    exponent   = 'x;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        exponent = product_1[64*l+48+:10];
        distance_1[8*l+:8] = exponent >= 10'sd1 ? 8'd0 : exponent < -10'sd62 ? 8'd63 : 8'(10'sd1 - exponent);
      end
    end
  end

  tsr_shift_sticky #(.Lanes(Lanes), .Width(48)) u_denormalise (
    .valid_i(valid_1), .data_i(product_1), .distance_i(distance_1), .data_o(shifted_1)
  );

  always_comb begin
    logic signed [9:0] exponent;
    unrounded_1d = 'x;
    exponent     = 'x;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        exponent = product_1[64*l+48+:10];
        exponent = exponent >= 10'sd1 ? exponent : 10'sd1;
        unrounded_1d[64*l+:64] = {26'd0, product_1[64*l+60], product_1[64*l+59], product_1[64*l+58], exponent[8:0],
                                  shifted_1[64*l+23+:25], shifted_1[64*l+:23] != 23'd0};
      end
    end
  end

  logic valid_2;
  logic [64*Lanes-1:0] unrounded_2;

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o(valid_2)
  );
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[1]))) u_data_1 (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(unrounded_1d), .data_o(unrounded_2)
  );

  // Stage 2: round and pack.
  logic [32*Lanes-1:0] result_2d;

  tsr_fp32_pack #(.Lanes(Lanes), .Rounding(Rounding), .FlushSubnormals(FlushSubnormals)) u_pack (
    .valid_i(valid_2), .unrounded_i(unrounded_2), .result_o(result_2d)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[2]))) u_valid_2 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .valid_o
  );
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[2]))) u_result_2 (
    .clk_i, .enable_i(enable_i & valid_2), .data_i(result_2d), .data_o(result_o)
  );

  logic unused;
  assign unused = &{1'b0, product_1, shifted_1};

endmodule
