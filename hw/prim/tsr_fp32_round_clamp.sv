// SPDX-License-Identifier: Apache-2.0
// IEEE 754 binary32 to bounded integers: value_i is clamped to [low_i, high_i] (int16 each) and rounded half to even;
// NaN gives low_i. Method: the bounds are integers and rounding is monotonic, so rounding first gives the same; the
// integer part is found by a right shift with a sticky bit, magnitudes of 65536 and more count as 65536, and the
// integer is clamped.
//
// The bounds are common to all lanes and enter with the values. Registers: bit 0 after the shift, bit 1 after rounding
// and clamping. Latency: the number of ones, in enabled cycles; 0 is combinational. Throughput: one result a lane and
// cycle. Back-pressure: a pure pipeline, enable_i = 0 holds every register. Reset: rst_ni, synchronous, clears the
// valid bits. result_o is unspecified where valid_o = 0; idle stages are not evaluated in simulation. Legal: Rounding =
// 0; 1 (truncate) and 2 (half away from zero) are for tests. Bounds in the wrong order give high_i, NaN still low_i.
module tsr_fp32_round_clamp #(
  parameter int unsigned Lanes     = 1,
  parameter logic [1:0]  Registers = 2'b00,
  parameter int unsigned Rounding  = 0
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                enable_i,
  input  logic                valid_i,
  input  logic [32*Lanes-1:0] value_i,
  input  logic signed [15:0]  low_i,
  input  logic signed [15:0]  high_i,
  output logic                valid_o,
  output logic [16*Lanes-1:0] result_o
);

  // Stage 0: 16 integer bits, a guard and a sticky bit in [17:0]; [18] huge, [19] NaN, [20] the sign. Exponent 142 is
  // 2^15 and shifts by 0.
  logic [32*Lanes-1:0] significand_0, shifted_0, fixed_0d;
  logic [8*Lanes-1:0] distance_0;

  always_comb begin
    logic [7:0] exponent;
    significand_0 = 'x;
    distance_0    = 'x;
    exponent      = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        exponent = value_i[32*l+23+:8];
        distance_0[8*l+:8] = exponent < 8'd110 ? 8'd32 : {2'd0, 6'(8'd142 - exponent)};
        significand_0[32*l+:32] = {8'd0, exponent != 8'd0, value_i[32*l+:23]};
      end
    end
  end

  tsr_shift_sticky #(.Lanes(Lanes), .Width(24)) u_shift (
    .valid_i, .data_i(significand_0), .distance_i(distance_0), .data_o(shifted_0)
  );

  always_comb begin
    fixed_0d = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        fixed_0d[32*l+:32] = {11'd0, value_i[32*l+31], (value_i[32*l+23+:8] == 8'hff) & (value_i[32*l+:23] != 23'd0),
                              value_i[32*l+23+:8] > 8'd142, shifted_0[32*l+7+:17], shifted_0[32*l+:7] != 7'd0};
      end
    end
  end

  logic valid_1;
  logic [32*Lanes-1:0] fixed_1;
  logic signed [15:0] low_1, high_1;

  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[0]))) u_data_0 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i(fixed_0d), .data_o(fixed_1)
  );
  tsr_pipe #(.Width(32), .Enabled(32'(Registers[0]))) u_bounds_0 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i({low_i, high_i}), .data_o({low_1, high_1})
  );

  // Stage 1: round, sign, clamp.
  logic [32*Lanes-1:0] integer_1;
  logic [16*Lanes-1:0] clamped_1, result_1d;

  always_comb begin
    logic [17:0] fixed, magnitude;
    logic        round_up;
    integer_1 = 'x;
    fixed     = 'x;
    magnitude = 'x;
    round_up  = 1'bx;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        fixed = fixed_1[32*l+:18];
        round_up = fixed[1] & (fixed[0] | fixed[2]);
        if (Rounding == 1) round_up = 1'b0;
        if (Rounding == 2) round_up = fixed[1];
        magnitude = fixed_1[32*l+18] ? 18'h10000 : {2'b00, fixed[17:2]} + {17'd0, round_up};
        integer_1[32*l+:32] = {14'd0, fixed_1[32*l+20] ? -magnitude : magnitude};
      end
    end
  end

  tsr_saturate #(.Lanes(Lanes), .Width(18)) u_saturate (
    .valid_i(valid_1), .value_i(integer_1), .low_i(low_1), .high_i(high_1), .result_o(clamped_1)
  );

  always_comb begin
    result_1d = 'x;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        result_1d[16*l+:16] = fixed_1[32*l+19] ? low_1 : clamped_1[16*l+:16];
      end
    end
  end

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o
  );
  tsr_pipe #(.Width(16 * Lanes), .Enabled(32'(Registers[1]))) u_result_1 (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(result_1d), .data_o(result_o)
  );

  logic unused;
  assign unused = &{1'b0, shifted_0, fixed_1};

endmodule
