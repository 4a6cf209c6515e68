// SPDX-License-Identifier: Apache-2.0
// The end of both fixed-point stages of the ALU, for a vector of lanes: a number with 10 integer and 25 fraction bits
// and a sticky bit -> rounded as binary32 does it, to 24 significant bits and then half to even to an integer ->
// bounds -> + zero_i. value_o = (r > high ? high : r < low ? low : r) + zero, the exact 11-bit sum.
//
// Method: bounds are integers, so rounding may come before clamping. The rounding to 24 significant bits can change the
// integer only by making or breaking a tie: a number within half a unit of its 24th bit of a tie k + 1/2 rounds to that
// tie, and the tie to the even neighbour. For 2^j <= |k| < 2^(j+1) that distance is 2^(j+1) units of the 25th fraction
// bit, itself included, because the tie's own 24th bit is even. For k = 0 and k = -1 the distance is halved on the side
// of zero, where both answers agree.
//
// far_i: the number does not fit in fixed_i, of which only the sign counts; it is beyond all bounds. With Scaled the
// rounded integer of a lane may be negated (negate_i), and low is the result where nan_i says so, or special_i of a number
// that fits. Registers: bit 0 after the rounding and the zero point, 1 after the comparison with the
// bounds, to which the zero point has been added too, 2 after the clamp; Trailing more behind it. Latency: the number
// of ones and Trailing, in enabled cycles; 0 is combinational. Throughput: one vector a cycle. Back-pressure: a pure
// pipeline, enable_i = 0 holds every register. Reset: rst_ni, synchronous, clears the valid bits. value_o is unspecified
// where valid_o = 0; idle stages are not evaluated in simulation. Legal: Rounding = 0; 1 (truncation) and 2 (halves away
// from zero) are for tests.

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_round_saturate #(
  parameter int unsigned Lanes     = 1,
  parameter logic [2:0]  Registers = 3'd0,
  parameter int unsigned Scaled    = 0,
  parameter int unsigned Rounding  = 0,
  parameter int unsigned Trailing  = 0
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                enable_i,
  input  logic signed [9:0]   low_i,
  input  logic signed [9:0]   high_i,
  input  logic signed [8:0]   zero_i,
  input  logic                valid_i,
  input  logic [35*Lanes-1:0] fixed_i,
  input  logic [Lanes-1:0]    lost_i,
  input  logic [Lanes-1:0]    far_i,
  input  logic [Lanes-1:0]    negate_i,
  input  logic [Lanes-1:0]    special_i,
  input  logic [Lanes-1:0]    nan_i,
  output logic                valid_o,
  output logic [11*Lanes-1:0] value_o
);

  // valid[k]: a vector is in stage k. What enters stage k is registered by bit k - 1.
  logic [3:0] valid;
  assign valid[0] = valid_i;
  for (genvar k = 0; k < 3; k++) begin : gen_valid
    tsr_pipe_valid #(.Enabled(32'(Registers[k]))) u_valid (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid[k]), .valid_o(valid[k+1])
    );
  end

  // Stage 0: rounding, and the zero point in the same sum. The integer part, the fraction's first bit, and the distance
  // from one half: the other 24 bits, inverted below one half, so that the neighbourhood of a tie is small numbers on
  // both sides. wide[b]: |k| >= 2^b for an integer part k; a distance's bits below that are free.
  logic [11*Lanes-1:0] integer_0, integer_1, integer_2;
  logic [Lanes-1:0] below_0, none_0, beyond_1, below_1, none_1;
  always_comb begin
    logic [9:0] whole;
    logic [10:0] signed_whole;
    logic [23:0] distance;
    logic [8:0] magnitude, wide;
    logic half, near, up, negate;
    if (!tsr_isa_pkg::Simulated) integer_0 = 'x;
    if (!tsr_isa_pkg::Simulated) none_0 = 'x;
    if (!tsr_isa_pkg::Simulated) below_0 = 'x;
    whole = 'x;
    signed_whole = 'x;
    distance = 'x;
    magnitude = 'x;
    wide = 'x;
    half = 'x;
    near = 'x;
    up = 'x;
    negate = 'x;
    if (valid[0]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        whole = fixed_i[35*l+25+:10];
        half = fixed_i[35*l+24];
        negate = Scaled != 0 && negate_i[l];
        distance = fixed_i[35*l+:24] ^ {24{!half}};
        magnitude = whole[8:0] ^ {9{whole[9]}};
        for (int unsigned b = 0; b < 9; b++) wide[b] = (magnitude >> b) != 9'd0;
        near = (distance & ~{15'd0, wide}) == 24'd0;
        if (half && !lost_i[l] && distance == {14'd0, {wide, 1'b1} & ~{1'b0, wide}}) near = 1'b1;
        up = near ? whole[0] : half;
        if (Rounding == 1) up = whole[9];
        if (Rounding == 2) up = half && !(near && whole[9] && distance == 24'd0 && !lost_i[l]);
        // One adder, written as a difference, whose first operand costs no look-up table: the rounding is the carry in.
        // Minus x is not x, plus 1.
        signed_whole = {whole[9], whole} ^ {11{negate}};
        integer_0[11*l+:11] = 11'(({zero_i[8], zero_i[8], zero_i, 1'b0} - {~signed_whole, up == negate}) >> 1);
        below_0[l] = whole[9] ^ negate;
        none_0[l] = Scaled != 0 && (nan_i[l] || (special_i[l] && !far_i[l]));
      end
    end
  end
  tsr_pipe #(.Width(14 * Lanes), .Enabled(32'(Registers[0]))) u_stage_0 (
    .clk_i, .enable_i(enable_i & valid[0]), .data_i({integer_0, far_i, below_0, none_0}),
    .data_o({integer_1, beyond_1, below_1, none_1})
  );
  logic signed [10:0] low_1, high_1, low_2, high_2;
  tsr_pipe #(.Width(22), .Enabled(32'(Registers[0]))) u_bounds_0 (
    .clk_i, .enable_i(enable_i & valid[0]), .data_i({11'(low_i) + 11'(zero_i), 11'(high_i) + 11'(zero_i)}),
    .data_o({low_1, high_1})
  );

  // Stage 1: comparison with the bounds.
  logic [Lanes-1:0] at_low_1, at_high_1, at_low_2, at_high_2;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) at_low_1 = 'x;
    if (!tsr_isa_pkg::Simulated) at_high_1 = 'x;
    if (valid[1]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        at_low_1[l] = none_1[l] || (beyond_1[l] ? below_1[l] : $signed(integer_1[11*l+:11]) < low_1);
        at_high_1[l] = !none_1[l] && (beyond_1[l] ? !below_1[l] : $signed(integer_1[11*l+:11]) > high_1);
      end
    end
  end
  tsr_pipe #(.Width(13 * Lanes + 22), .Enabled(32'(Registers[1]))) u_stage_1 (
    .clk_i, .enable_i(enable_i & valid[1]), .data_i({low_1, high_1, integer_1, at_low_1, at_high_1}),
    .data_o({low_2, high_2, integer_2, at_low_2, at_high_2})
  );

  // Stage 2: clamp.
  logic [11*Lanes-1:0] value_2, value_3;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) value_2 = 'x;
    if (valid[2]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        value_2[11*l+:11] = at_high_2[l] ? high_2 : at_low_2[l] ? low_2 : integer_2[11*l+:11];
      end
    end
  end
  tsr_pipe #(.Width(11 * Lanes), .Enabled(32'(Registers[2]))) u_stage_2 (
    .clk_i, .enable_i(enable_i & valid[2]), .data_i(value_2), .data_o(value_3)
  );
  logic unused_busy;
  tsr_retime #(.Width(11 * Lanes), .Stages(Trailing)) u_trailing (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid[3]), .data_i(value_3), .valid_o, .data_o(value_o), .busy_o(unused_busy)
  );

  logic unused;
  assign unused = &{1'b0, negate_i, special_i, nan_i};

endmodule
/* verilator lint_on LATCH */
