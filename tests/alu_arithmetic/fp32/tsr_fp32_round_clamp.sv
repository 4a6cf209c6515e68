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

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

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

  logic valid_1;
  logic [32*Lanes-1:0] fixed_1;
  logic signed [15:0] low_1, high_1;

  tsr_pipe #(.Width(32), .Enabled(32'(Registers[0]))) u_bounds_0 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i({low_i, high_i}), .data_o({low_1, high_1})
  );
  tsr_pipe_valid #(.Enabled(32'(Registers[0]))) u_valid_0 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_i), .valid_o(valid_1)
  );

  // Stage 0: 16 integer bits, a guard and a sticky bit in [17:0]; [18] huge, [19] NaN, [20] the sign. Exponent 142 is
  // 2^15 and shifts by 0.
  function automatic logic [31:0] fix(input logic [31:0] value);
    /* verilator no_inline_task */
    logic [23:0] significand, kept;
    logic [5:0]  distance;
    distance = value[30:23] < 8'd110 ? 6'd32 : 6'(8'd142 - value[30:23]);
    significand = {value[30:23] != 8'd0, value[22:0]};
    kept = significand & ({24{1'b1}} << distance);
    significand = (significand >> distance) | 24'(kept != significand);
    fix = {11'd0, value[31], (value[30:23] == 8'hff) & (value[22:0] != 23'd0), value[30:23] > 8'd142,
           significand[23:7], significand[6:0] != 7'd0};
  endfunction

  logic [32*Lanes-1:0] fixed_1_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) fixed_1_d = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) fixed_1_d[32*l+:32] = fix(value_i[32*l+:32]);
    end
  end
  tsr_pipe #(.Width(32 * Lanes), .Enabled(32'(Registers[0]))) u_fixed_1 (
    .clk_i, .enable_i(enable_i & valid_i), .data_i(fixed_1_d), .data_o(fixed_1)
  );

  tsr_pipe_valid #(.Enabled(32'(Registers[1]))) u_valid_1 (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid_1), .valid_o
  );

  // Stage 1: round, sign, clamp.
  function automatic logic [15:0] clamp(input logic [20:0] fixed, input logic signed [15:0] low,
                                        input logic signed [15:0] high);
    /* verilator no_inline_task */
    logic        round_up;
    logic signed [17:0] value;
    round_up = fixed[1] & (fixed[0] | fixed[2]);
    if (Rounding == 1) round_up = 1'b0;
    if (Rounding == 2) round_up = fixed[1];
    value = fixed[18] ? 18'h10000 : {2'b00, fixed[17:2]} + {17'd0, round_up};
    value = (value ^ {18{fixed[20]}}) + 18'(fixed[20]);
    value = value < 18'(low) ? 18'(low) : value;
    value = value > 18'(high) ? 18'(high) : value;
    clamp = fixed[19] ? low : value[15:0];
  endfunction

  logic [16*Lanes-1:0] result_d;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) result_d = 'x;
    if (valid_1) begin
      for (int unsigned l = 0; l < Lanes; l++) result_d[16*l+:16] = clamp(fixed_1[32*l+:21], low_1, high_1);
    end
  end
  tsr_pipe #(.Width(16 * Lanes), .Enabled(32'(Registers[1]))) u_result (
    .clk_i, .enable_i(enable_i & valid_1), .data_i(result_d), .data_o(result_o)
  );

endmodule
/* verilator lint_on LATCH */
