// SPDX-License-Identifier: Apache-2.0
// Lanes of the ALU's arithmetic units side by side, behind one uniform port for the C++ harness: 14 32-bit operands
// and one 32-bit result a lane; unit_i says which unit takes part, the others stay idle. Operands by unit (harness:
// units.h):
//   0 int_to_fp32   value                               5 requantise  value, bias, scale, {high, low}, {convert, zero}
//   1 fp32_mul      x, y                                6 second_op   {y, x}, operation, 8 words as in PARAM
//   2 fp32_fma      x, y, z
//   3 fp32_add      x, y                                7 x * y + z with two roundings (mul, then add)
//   4 round_clamp   value, {high, low}                  8 int_to_fp32 with Width = 17
//   9 row_add       x, y, clear
//  10 row_map       of a softmax: a, b, reciprocal, {high, low}, zero, limit
//  11 row_map       normalisation: offset, {place, factor}, addend (two words), {high, low}, zero, gain, bias
//
// Plain: tsr_requantise_plain is unit 5. Registers gives every unit the low bits of one mask (unit 7 has none of them).
// Rounding and FlushSubnormals go to the units.
module alu_arithmetic_tb #(
  parameter int unsigned Lanes           = 16,
  parameter logic [12:0] Registers       = 13'd0,
  parameter int unsigned Rounding        = 0,
  parameter int unsigned FlushSubnormals = 0,
  parameter int unsigned Plain           = 0
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 enable_i,
  input  logic [3:0]           unit_i,
  input  logic                 valid_i,
  input  logic [Lanes*448-1:0] operands_i,
  output logic [Lanes-1:0]     valid_o,
  output logic [Lanes*32-1:0]  results_o
);

  for (genvar lane = 0; lane < Lanes; lane++) begin : gen_lane
    logic [31:0] a, b, c, d, e;
    logic [255:0] constants;
    assign {e, d, c, b, a} = operands_i[lane*448+:160];
    assign constants = operands_i[lane*448+64+:256];

    logic unused_operands;
    assign unused_operands = &{1'b0, operands_i[lane*448+320+:128]};  // what the harness's oracle alone reads

    logic valid_0, valid_1, valid_2, valid_3, valid_4, valid_5, valid_6, valid_7, valid_8, product_valid, unused;
    logic valid_9, valid_10, valid_11;
    assign unused = &{1'b0, product_valid, constants, d, e};
    logic [31:0] result_0, result_1, result_2, result_3, product_7, result_7, result_8;
    logic signed [15:0] result_4;
    logic signed [10:0] result_5;
    logic signed [10:0] result_6;

    tsr_int_to_fp32 #(.Registers(Registers[1:0]), .Rounding(Rounding)) u_int_to_fp32 (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd0), .value_i(a),
      .valid_o(valid_0), .result_o(result_0)
    );
    tsr_fp32_mul #(.Registers(Registers[2:0]), .Rounding(Rounding), .FlushSubnormals(FlushSubnormals)) u_mul (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd1), .x_i(a), .y_i(b),
      .valid_o(valid_1), .result_o(result_1)
    );
    tsr_fp32_fma #(.Registers(Registers[5:0]), .Rounding(Rounding), .FlushSubnormals(FlushSubnormals)) u_fma (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd2), .x_i(a), .y_i(b), .z_i(c),
      .valid_o(valid_2), .result_o(result_2)
    );
    tsr_fp32_add #(.Registers(Registers[5:0]), .Rounding(Rounding), .FlushSubnormals(FlushSubnormals)) u_add (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd3), .x_i(a), .y_i(b),
      .valid_o(valid_3), .result_o(result_3)
    );
    tsr_fp32_round_clamp #(.Registers(Registers[1:0]), .Rounding(Rounding)) u_round_clamp (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd4), .value_i(a), .low_i(b[15:0]), .high_i(b[31:16]),
      .valid_o(valid_4), .result_o(result_4)
    );
    if (Plain != 0) begin : gen_plain
      tsr_requantise_plain #(.Registers(Registers[8:0])) u_requantise (
        .clk_i, .rst_ni, .enable_i, .low_i(d[9:0]), .high_i(d[25:16]), .zero_i(e[8:0]),
        .valid_i(valid_i && unit_i == 4'd5), .convert_i(e[16]), .value_i(a), .bias_i(b), .scale_i(c), .valid_o(valid_5),
        .value_o(result_5)
      );
    end else begin : gen_staged
      tsr_requantise #(.Registers(Registers[8:0]), .Rounding(Rounding)) u_requantise (
        .clk_i, .rst_ni, .enable_i, .low_i(d[9:0]), .high_i(d[25:16]), .zero_i(e[8:0]),
        .valid_i(valid_i && unit_i == 4'd5), .convert_i(e[16]), .value_i(a), .bias_i(b), .scale_i(c), .valid_o(valid_5),
        .value_o(result_5)
      );
    end
    tsr_second_op #(.Registers(Registers), .Rounding(Rounding)) u_second_op (
      .clk_i, .rst_ni, .enable_i, .operation_i(b[1:0]), .minimum_i(constants[179]),
      .inner_factor_i(constants[0+:42]), .inner_addend_i(constants[64+:48]), .outer_factor_i(constants[128+:42]),
      .shift_i(constants[42+:4]), .low_i(constants[46+:10]), .high_i(constants[112+:10]), .zero_i(constants[170+:9]),
      .zx_i(constants[192+:9]), .zy_i(constants[201+:9]), .valid_i(valid_i && unit_i == 4'd6), .x_i(a[10:0]),
      .y_i(a[26:16]), .valid_o(valid_6), .value_o(result_6)
    );
    tsr_fp32_mul u_unfused_mul (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd7), .x_i(a), .y_i(b),
      .valid_o(product_valid), .result_o(product_7)
    );
    tsr_fp32_add u_unfused_add (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd7), .x_i(product_7), .y_i(c),
      .valid_o(valid_7), .result_o(result_7)
    );
    tsr_int_to_fp32 #(.Width(17), .Registers(Registers[1:0]), .Rounding(Rounding)) u_int17_to_fp32 (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd8), .value_i(a[16:0]),
      .valid_o(valid_8), .result_o(result_8)
    );

    // Rows.
    logic [31:0] f, g, h;
    logic [30:0] result_9;
    logic [7:0] result_10;
    logic row_softmax;
    logic [15:0] row_bounds_low, row_bounds_high;
    logic [8:0] row_zero;
    assign {h, g, f} = operands_i[lane*448+160+:96];
    assign row_softmax = unit_i == 4'd10;
    assign row_bounds_low = row_softmax ? d[15:0] : e[15:0];
    assign row_bounds_high = row_softmax ? d[31:16] : e[31:16];
    assign row_zero = row_softmax ? e[8:0] : f[8:0];
    tsr_row_add #(.Registers(Registers[3:0]), .Rounding(Rounding)) u_row_add (
      .clk_i, .enable_i, .clear_i(1'b0), .x_i(a[30:0] & {31{!c[0]}}), .y_i(b[30:0]), .sum_o(result_9)
    );
    tsr_delay_valid #(.Stages($countones(Registers[3:0]))) u_row_add_valid (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd9), .valid_o(valid_9)
    );
    tsr_row_map #(.Registers(Registers[9:0]), .Rounding(Rounding)) u_row_map (
      .clk_i, .rst_ni, .enable_i, .softmax_i(row_softmax), .b_i(b[30:0]), .limit_i(f[11:0]),
      .factor_i(row_softmax ? c[23:0] : b[23:0]), .coarse_i(!row_softmax && b[24]),
      .addend_i(row_softmax ? 48'd0 : {d[15:0], c}), .low_i(row_bounds_low[9:0]), .high_i(row_bounds_high[9:0]),
      .zero_i(row_zero[7:0]), .lowest_i(row_bounds_low[7:0] + row_zero[7:0]),
      .highest_i(row_bounds_high[7:0] + row_zero[7:0]), .offset_i(a[8:0]), .a_i(a[30:0]), .gain_i(g[17:0]), .bias_i(h),
      .byte_o(result_10), .square_i(1'b0), .square_o(unused_square)
    );
    tsr_delay_valid #(.Stages($countones(Registers[9:0]))) u_row_softmax_valid (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd10), .valid_o(valid_10)
    );
    tsr_delay_valid #(.Stages($countones(Registers[9:0]))) u_row_normalise_valid (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid_i && unit_i == 4'd11), .valid_o(valid_11)
    );
    logic [16:0] unused_square;
    logic unused_row;
    assign unused_row = &{1'b0, unused_square, f, g, row_bounds_low, row_bounds_high, row_zero};

    assign valid_o[lane] = valid_9 | valid_10 | valid_11 | valid_0 | valid_1 | valid_2 | valid_3 | valid_4 | valid_5 | valid_6 | valid_7 | valid_8;
    always_comb begin
      results_o[lane*32+:32] = 32'd0;
      if (valid_0) results_o[lane*32+:32] = result_0;
      if (valid_1) results_o[lane*32+:32] = result_1;
      if (valid_2) results_o[lane*32+:32] = result_2;
      if (valid_3) results_o[lane*32+:32] = result_3;
      if (valid_4) results_o[lane*32+:32] = 32'(result_4);
      if (valid_5) results_o[lane*32+:32] = 32'(result_5);
      if (valid_6) results_o[lane*32+:32] = 32'(result_6);
      if (valid_7) results_o[lane*32+:32] = result_7;
      if (valid_9) results_o[lane*32+:32] = 32'(result_9);
      if (valid_10 || valid_11) results_o[lane*32+:32] = 32'(result_10);
      if (valid_8) results_o[lane*32+:32] = result_8;
    end
  end

endmodule
