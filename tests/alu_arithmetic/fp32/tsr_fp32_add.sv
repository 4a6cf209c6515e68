// SPDX-License-Identifier: Apache-2.0
// IEEE 754 binary32 addition: x_i + y_i -> result_o, rounded half to even, subnormals in and out, infinities; every NaN
// result is 0x7fc00000, an exact cancellation is +0. Method: x * 1 + y through tsr_fp32_fma; the product by one is
// exact, synthesis removes the multiplier.
//
// Registers, latency, throughput, back-pressure, reset, legal parameters: those of tsr_fp32_fma.
module tsr_fp32_add #(
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
  output logic                valid_o,
  output logic [32*Lanes-1:0] result_o
);

  tsr_fp32_fma #(
    .Lanes(Lanes), .Registers(Registers), .Rounding(Rounding), .FlushSubnormals(FlushSubnormals)
  ) u_fma (
    .clk_i, .rst_ni, .enable_i, .valid_i, .x_i, .y_i({Lanes{32'h3f800000}}), .z_i(y_i), .valid_o, .result_o
  );

endmodule
