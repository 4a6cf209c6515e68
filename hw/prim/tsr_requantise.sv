// SPDX-License-Identifier: Apache-2.0
// First stage of the ALU for a vector of lanes. convert_i = 1: int32 value + int32 bias (wraps) -> fp32 -> times
// scale_i -> clamp to [low_i, high_i], NaN to low_i -> round half to even -> + zero_i; each step rounded once.
// convert_i = 0: integer clamp of value_i, then + zero_i; bias and scale are ignored. value_o is the exact 17-bit sum.
// Method: tsr_int_to_fp32, tsr_fp32_mul and tsr_fp32_round_clamp in a row, an integer clamp and a delay line beside
// them.
//
// Everything enters with the vector and travels with it: value_i, bias_i and scale_i of each lane; convert_i, low_i,
// high_i and zero_i, common to all lanes; so vectors of different instructions may follow one another in any cycle.
// Registers: bit 0 after the bias, bits 1 and 2 those of tsr_int_to_fp32, bits 3 to 5 those of tsr_fp32_mul, bits 6 and
// 7 those of tsr_fp32_round_clamp, bit 8 after the zero point; Trailing more behind it. Latency: the number of ones and
// Trailing, in enabled cycles, for both settings of convert_i; 0 is combinational. Throughput: one vector a cycle. Back-pressure: a pure pipeline, enable_i =
// 0 holds every register. Reset: rst_ni, synchronous, clears the valid bits. value_o is unspecified where valid_o = 0;
// idle stages are not evaluated in simulation.
// Legal: Rounding = 0, other values are for tests. low_i > high_i gives high_i (tsr_fp32_round_clamp).

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_requantise #(
  parameter int unsigned Lanes     = 1,
  parameter logic [8:0]  Registers = 9'd0,
  parameter int unsigned Rounding  = 0,
  parameter int unsigned Trailing  = 0
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                enable_i,
  input  logic                convert_i,
  input  logic signed [15:0]  low_i,
  input  logic signed [15:0]  high_i,
  input  logic signed [15:0]  zero_i,
  input  logic                valid_i,
  input  logic [32*Lanes-1:0] value_i,
  input  logic [32*Lanes-1:0] bias_i,
  input  logic [32*Lanes-1:0] scale_i,
  output logic                valid_o,
  output logic [17*Lanes-1:0] value_o
);

  logic valid_z, unused_busy;
  logic [17*Lanes-1:0] value_z;

  localparam int unsigned ToScale = 32'(Registers[0]) + 32'(Registers[1]) + 32'(Registers[2]);
  localparam int unsigned ToRound = ToScale + 32'(Registers[3]) + 32'(Registers[4]) + 32'(Registers[5]);
  localparam int unsigned ToZero  = ToRound + 32'(Registers[6]) + 32'(Registers[7]);

  // Stage 0: bias; the integer path clamps at once and waits.
  logic convert_valid_0, clamp_valid_0, valid_1, valid_2, valid_3, rounded_valid, zero_valid;
  logic [32*Lanes-1:0] biased_1, number_2, scale_2, product_3;
  logic [16*Lanes-1:0] clamped_0d, clamped, rounded;
  logic signed [15:0] low_3, high_3, zero;

  assign convert_valid_0 = valid_i & convert_i;
  assign clamp_valid_0 = valid_i & ~convert_i;
  always_comb begin
    logic signed [31:0] value;
    if (!tsr_isa_pkg::Simulated) clamped_0d = 'x;
    value = 'x;
    if (clamp_valid_0) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        value = value_i[32*l+:32];
        value = value < 32'(low_i) ? 32'(low_i) : value;
        value = value > 32'(high_i) ? 32'(high_i) : value;
        clamped_0d[16*l+:16] = value[15:0];
      end
    end
  end

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(convert_valid_0), .valid_o(valid_1)
  );

  logic [32*Lanes-1:0] biased_1_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) biased_1_d = 'x;
    if (convert_valid_0) begin
      for (int unsigned l = 0; l < Lanes; l++) biased_1_d[32*l+:32] = value_i[32*l+:32] + bias_i[32*l+:32];
    end
  end
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[0]))) u_biased_1 (
    .clk_i, .enable_i(enable_i & convert_valid_0), .data_i(biased_1_d), .data_o(biased_1)
  );
  tsr_delay #(.Width(32 * Lanes), .Stages(ToScale)) u_scale (
    .clk_i, .rst_ni, .enable_i, .valid_i(convert_valid_0), .data_i(scale_i), .data_o(scale_2)
  );
  tsr_delay #(.Width(32), .Stages(ToRound)) u_bounds (
    .clk_i, .rst_ni, .enable_i, .valid_i(convert_valid_0), .data_i({low_i, high_i}), .data_o({low_3, high_3})
  );
  tsr_delay #(.Width(16), .Stages(ToZero)) u_zero (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i(zero_i), .data_o(zero)
  );
  tsr_delay #(.Width(16 * Lanes), .Stages(ToZero)) u_clamped (
    .clk_i, .rst_ni, .enable_i, .valid_i(clamp_valid_0), .data_i(clamped_0d), .data_o(clamped)
  );

  tsr_int_to_fp32 #(.Lanes(Lanes), .Width(32), .Registers(Registers[2:1]), .Rounding(Rounding)) u_convert (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .value_i(biased_1), .valid_o(valid_2), .result_o(number_2)
  );
  tsr_fp32_mul #(.Lanes(Lanes), .Registers(Registers[5:3]), .Rounding(Rounding)) u_scale_mul (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_2), .x_i(number_2), .y_i(scale_2),
    .valid_o(valid_3), .result_o(product_3)
  );
  tsr_fp32_round_clamp #(.Lanes(Lanes), .Registers(Registers[7:6]), .Rounding(Rounding)) u_round (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_3), .value_i(product_3), .low_i(low_3), .high_i(high_3),
    .valid_o(rounded_valid), .result_o(rounded)
  );

  // The zero point. valid_o follows every vector, converted or not.
  tsr_delay_valid #(.Stages(ToZero)) u_valid (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(zero_valid)
  );
  tsr_pipe_valid #(.Enabled(32'(Registers[8]))) u_valid_8 (
    .clk_i, .rst_ni, .enable_i, .valid_i(zero_valid), .valid_o(valid_z)
  );

  logic [17*Lanes-1:0] value_d;

  always_comb begin
    logic signed [15:0] value;
    if (!tsr_isa_pkg::Simulated) value_d = 'x;
    value = 'x;
    if (zero_valid) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        value = rounded_valid ? rounded[16*l+:16] : clamped[16*l+:16];
        value_d[17*l+:17] = 17'(value) + 17'(zero);
      end
    end
  end
  tsr_pipe #(.Width(17 * Lanes), .Enabled(32'(Registers[8]))) u_value (
    .clk_i, .enable_i(enable_i & zero_valid), .data_i(value_d), .data_o(value_z)
  );
  tsr_retime #(.Width(17 * Lanes), .Stages(Trailing)) u_trailing (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_z), .data_i(value_z), .valid_o, .data_o(value_o), .busy_o(unused_busy)
  );

endmodule
/* verilator lint_on LATCH */
