// SPDX-License-Identifier: Apache-2.0
// IEEE 754 binary32 to a bounded integer: value_i is clamped to [low_i, high_i] (int16 each) and rounded half to even;
// NaN gives low_i. Method: the bounds are integers and rounding is monotonic, so rounding first gives the same; the
// integer part is found by a right shift with a sticky bit, magnitudes of 65536 and more count as 65536, and the
// integer is clamped.
//
// Registers: bit 0 after the shift, bit 1 after rounding and clamping. Latency: the number of ones, in enabled cycles;
// 0 is combinational. Throughput: one result a cycle. Back-pressure: a pure pipeline, enable_i = 0 holds every
// register. Reset: rst_ni, synchronous, clears the valid bits. The bounds are read in the last stage and must hold
// while values that need them are under way. result_o is unspecified where valid_o = 0; idle stages are not evaluated
// in simulation. Legal: Rounding = 0; 1 (truncate) and 2 (half away from zero) are for tests. Bounds in the wrong order
// give high_i, NaN still low_i.
module tsr_fp32_round_clamp #(
  parameter logic [1:0]  Registers = 2'b00,
  parameter int unsigned Rounding  = 0
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  input  logic               enable_i,
  input  logic               valid_i,
  input  logic [31:0]        value_i,
  input  logic signed [15:0] low_i,
  input  logic signed [15:0] high_i,
  output logic               valid_o,
  output logic signed [15:0] result_o
);

  // Stage 0: 16 integer bits, a guard and a sticky bit. Exponent 142 is 2^15 and shifts by 0.
  logic        nan_0d, huge_0d;
  logic [5:0]  distance_0;
  logic [23:0] shifted_0;
  logic [17:0] fixed_0d;

  always_comb begin
    nan_0d     = 1'bx;
    huge_0d    = 1'bx;
    distance_0 = 'x;
    fixed_0d   = 'x;
    if (valid_i) begin
      nan_0d     = value_i[30:23] == 8'hff && value_i[22:0] != 23'd0;
      huge_0d    = value_i[30:23] > 8'd142;
      distance_0 = value_i[30:23] < 8'd110 ? 6'd32 : 6'(8'd142 - value_i[30:23]);
      fixed_0d   = {shifted_0[23:7], shifted_0[6:0] != 7'd0};
    end
  end

  tsr_shift_sticky #(.Width(24)) u_shift (
    .valid_i, .data_i({value_i[30:23] != 8'd0, value_i[22:0]}), .distance_i(distance_0), .data_o(shifted_0)
  );

  logic valid_1, sign_1, nan_1, huge_1;
  logic [17:0] fixed_1;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );
  tsr_pipe #(.Width(21), .Enabled(32'(Registers[0]))) u_data_0 (
    .clk_i, .enable_i(enable_i & valid_i),
    .data_i({value_i[31], nan_0d, huge_0d, fixed_0d}), .data_o({sign_1, nan_1, huge_1, fixed_1})
  );

  // Stage 1: round, sign, clamp.
  logic        round_up_1;
  logic [16:0] magnitude_1;
  logic signed [17:0] integer_1;
  logic signed [15:0] clamped_1, result_1d;

  always_comb begin
    round_up_1  = 1'bx;
    magnitude_1 = 'x;
    integer_1   = 'x;
    result_1d   = 'x;
    if (valid_1) begin
      round_up_1 = fixed_1[1] & (fixed_1[0] | fixed_1[2]);
      if (Rounding == 1) round_up_1 = 1'b0;
      if (Rounding == 2) round_up_1 = fixed_1[1];
      magnitude_1 = huge_1 ? 17'h10000 : {1'b0, fixed_1[17:2]} + {16'd0, round_up_1};
      integer_1   = sign_1 ? -$signed({1'b0, magnitude_1}) : $signed({1'b0, magnitude_1});
      result_1d   = nan_1 ? low_i : clamped_1;
    end
  end

  tsr_saturate #(.Width(18)) u_saturate (
    .valid_i(valid_1), .value_i(integer_1), .low_i, .high_i, .result_o(clamped_1)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o
  );
  tsr_pipe #(.Width(16), .Enabled(32'(Registers[1]))) u_result_1 (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(result_1d), .data_o(result_o)
  );

endmodule
