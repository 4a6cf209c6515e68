// SPDX-License-Identifier: Apache-2.0
// Signed integers to IEEE 754 binary32, rounded half to even: value_i -> result_o; 0 becomes +0. Method: magnitude,
// normalise, round. Up to 25 bits (24 and the sign) the conversion is exact.
//
// Registers: bit 0 after normalising, bit 1 after rounding. Latency: the number of ones, in enabled cycles; 0 is
// combinational. Throughput: one result a lane and cycle. Back-pressure: a pure pipeline, enable_i = 0 holds every
// register. Reset: rst_ni, synchronous, clears the valid bits. result_o is unspecified where valid_o = 0; idle stages
// are not evaluated in simulation. Legal: 2 <= Width <= 64; Rounding = 0, other values are for tests (tsr_fp32_pack).
module tsr_int_to_fp32 #(
  parameter int unsigned Lanes     = 1,
  parameter int unsigned Width     = 32,
  parameter logic [1:0]  Registers = 2'b00,
  parameter int unsigned Rounding  = 0
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,
  input  logic                   enable_i,
  input  logic                   valid_i,
  input  logic [Width*Lanes-1:0] value_i,
  output logic                   valid_o,
  output logic [32*Lanes-1:0]    result_o
);

  // Stage 0: magnitude with room for a guard and a sticky bit, normalised.
  localparam int unsigned Room = Width < 27 ? 27 : Width;
  localparam int unsigned Stride = Room > 32 ? 64 : 32;

  logic [Stride*Lanes-1:0] magnitude_0, normalised_0;
  logic [8*Lanes-1:0] shift_0;
  logic [64*Lanes-1:0] unrounded_0d;

  always_comb begin
    logic [Width-1:0] value;
    magnitude_0 = 'x;
    value       = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        value = value_i[Width*l+:Width];
        value = value[Width-1] ? -value : value;
        magnitude_0[Stride*l+:Stride] = Stride'(value) << (Room - Width);
      end
    end
  end

  tsr_normalise #(.Lanes(Lanes), .Width(Room), .Limited(0)) u_normalise (
    .valid_i, .significand_i(magnitude_0), .limit_i({Lanes{8'd63}}), .significand_o(normalised_0), .shift_o(shift_0)
  );

  always_comb begin
    logic [Room-1:0] normalised;
    unrounded_0d = 'x;
    normalised   = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        normalised = normalised_0[Stride*l+:Room];
        unrounded_0d[64*l+:64] = {28'd0, value_i[Width*l+Width-1], 9'(127 + Width - 1) - {1'b0, shift_0[8*l+:8]},
                                  normalised[Room-1-:25], normalised[Room-26:0] != '0};
      end
    end
  end

  logic valid_1;
  logic [64*Lanes-1:0] unrounded_1;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[0]))) u_data_0 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i(unrounded_0d), .data_o(unrounded_1)
  );

  // Stage 1: round and pack.
  logic [32*Lanes-1:0] result_1d;

  tsr_fp32_pack #(.Lanes(Lanes), .Rounding(Rounding)) u_pack (
    .valid_i(valid_1), .unrounded_i(unrounded_1), .result_o(result_1d)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o
  );
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[1]))) u_result_1 (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(result_1d), .data_o(result_o)
  );

endmodule
