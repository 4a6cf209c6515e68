// SPDX-License-Identifier: Apache-2.0
// A signed integer to IEEE 754 binary32, rounded half to even: value_i -> result_o; 0 becomes +0. Method: magnitude,
// normalise, round. Up to 25 bits (24 and the sign) the conversion is exact.
//
// Registers: bit 0 after normalising, bit 1 after rounding. Latency: the number of ones, in enabled cycles; 0 is
// combinational. Throughput: one result a cycle. Back-pressure: a pure pipeline, enable_i = 0 holds every register.
// Reset: rst_ni, synchronous, clears the valid bits. result_o is unspecified where valid_o = 0; idle stages are not
// evaluated in simulation. Legal: 2 <= Width <= 64; Rounding = 0, other values are for tests (tsr_fp32_pack).
module tsr_int_to_fp32 #(
  parameter int unsigned Width     = 32,
  parameter logic [1:0]  Registers = 2'b00,
  parameter int unsigned Rounding  = 0
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             enable_i,
  input  logic             valid_i,
  input  logic [Width-1:0] value_i,
  output logic             valid_o,
  output logic [31:0]      result_o
);

  // Stage 0: magnitude with room for a guard and a sticky bit, normalised.
  localparam int unsigned Room = Width < 27 ? 27 : Width;

  logic             sign_0d;
  logic [Width-1:0] absolute_0;
  logic [Room-1:0]  magnitude_0, normalised_0;
  logic [5:0]       shift_0;
  logic [8:0]       exponent_0d;
  logic [25:0]      significand_0d;

  always_comb begin
    sign_0d        = 1'bx;
    absolute_0     = 'x;
    magnitude_0    = 'x;
    exponent_0d    = 'x;
    significand_0d = 'x;
    if (valid_i) begin
      sign_0d        = value_i[Width-1];
      absolute_0     = value_i[Width-1] ? -value_i : value_i;
      magnitude_0    = Room'(absolute_0) << (Room - Width);
      exponent_0d    = 9'(127 + Width - 1) - {3'd0, shift_0};
      significand_0d = {normalised_0[Room-1-:25], normalised_0[Room-26:0] != '0};
    end
  end

  tsr_normalise #(.Width(Room)) u_normalise (
    .valid_i, .significand_i(magnitude_0), .limit_i(6'd63), .significand_o(normalised_0), .shift_o(shift_0)
  );

  logic valid_1, sign_1;
  logic [8:0]  exponent_1;
  logic [25:0] significand_1;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );
  tsr_pipe #(.Width(36), .Enabled(32'(Registers[0]))) u_data_0 (
    .clk_i, .enable_i(enable_i & valid_i),
    .data_i({sign_0d, exponent_0d, significand_0d}), .data_o({sign_1, exponent_1, significand_1})
  );

  // Stage 1: round and pack.
  logic [31:0] result_1d;

  tsr_fp32_pack #(.Rounding(Rounding)) u_pack (
    .valid_i(valid_1), .sign_i(sign_1), .exponent_i(exponent_1), .significand_i(significand_1),
    .special_i(1'b0), .special_value_i(32'd0), .result_o(result_1d)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o
  );
  tsr_pipe #(.Width(32), .Enabled(32'(Registers[1]))) u_result_1 (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(result_1d), .data_o(result_o)
  );

endmodule
