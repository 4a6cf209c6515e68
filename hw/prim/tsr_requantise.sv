// SPDX-License-Identifier: Apache-2.0
// First stage of the ALU for a vector of lanes: int32 value + int32 bias (wraps) -> fp32 -> times the fp32 scale_i ->
// clamp to [low_i, high_i], NaN to low_i -> round half to even -> + zero_i; each step rounded once. value_o is the exact
// 11-bit sum. With bias 0 and scale 1.0 it is the integer clamp: rounding to 24 bits begins far beyond the bounds.
//
// Method: fixed point, no floating-point unit. The biased sum is rounded to 24 significant bits (an integer of 33
// bits), multiplied by the 24 bits of the scale's significand, and the product is shifted to 25 fraction bits and a
// sticky bit, which tsr_round_saturate makes an integer.
//
// The scale's exponent E gives the shift 150 - E, at most 77: every product is then below 1/4. Above E = 136 every sum
// but 0 is beyond the bounds. Between them a sum is far, beyond the bounds for certain, when its leading group
// of four bits says so, and else the integer part has at most 16 bits.
//
// Everything enters with the vector and travels with it: value_i, bias_i and scale_i of each lane; low_i, high_i
// and zero_i, common to all lanes; so vectors of different instructions may follow one another in any cycle.
// Registers: bit 0 after the bias, 1 after the rounding to 24 bits, 2 after the partial products, 3 after the product, 4
// and 5 after the two parts of the shift, 6 after the rounding and the zero point, 7 after the comparison with the
// bounds, to which the zero point has been added too, 8 after the clamp; Trailing more behind it. Bits 2 and 3 become
// registers of two DSP slices a lane. Latency: the number of ones and Trailing, in enabled cycles; 0 is combinational.
// Throughput: one vector a cycle. Back-pressure: a pure pipeline, enable_i = 0 holds every register. Reset: rst_ni,
// synchronous, clears the valid bits. value_o is unspecified where valid_o = 0; idle stages are not evaluated in
// simulation.
// Legal: low_i <= high_i. Rounding = 0; 1 (truncation) and 2 (halves away from zero) are for tests.

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
  input  logic signed [9:0]   low_i,
  input  logic signed [9:0]   high_i,
  input  logic signed [8:0]   zero_i,
  input  logic                valid_i,
  input  logic [32*Lanes-1:0] value_i,
  input  logic [32*Lanes-1:0] bias_i,
  input  logic [32*Lanes-1:0] scale_i,
  output logic                valid_o,
  output logic [11*Lanes-1:0] value_o
);

  localparam int unsigned ToRound = 32'(Registers[0]) + 32'(Registers[1]) + 32'(Registers[2]) + 32'(Registers[3]) +
                                    32'(Registers[4]) + 32'(Registers[5]);

  // valid[k]: a vector is in stage k. What enters stage k is registered by bit k - 1.
  logic [6:0] valid;
  assign valid[0] = valid_i;
  for (genvar k = 0; k < 6; k++) begin : gen_valid
    tsr_pipe_valid #(.Enabled(32'(Registers[k]))) u_valid (
      .clk_i, .rst_ni, .enable_i, .valid_i(valid[k]), .valid_o(valid[k+1])
    );
  end

  // Stage 0: bias.
  logic [32*Lanes-1:0] sum_0, sum_1, scale_1;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) sum_0 = 'x;
    if (valid[0]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        sum_0[32*l+:32] = value_i[32*l+:32] + bias_i[32*l+:32];
      end
    end
  end
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[0]))) u_stage_0 (
    .clk_i, .enable_i(enable_i & valid[0]), .data_i({sum_0, scale_i}), .data_o({sum_1, scale_1})
  );

  // Stage 1: the sum with the scale's sign, rounded to 24 significant bits; the scale decoded. group: the leading
  // group of four bits of the magnitude; factor: the significand; shift: 150 - E - 14.
  logic [33*Lanes-1:0] rounded_1, rounded_2;
  logic [24*Lanes-1:0] factor_1, factor_2;
  logic [6*Lanes-1:0] shift_1, shift_2;
  logic [3*Lanes-1:0] group_1, group_2;
  logic [Lanes-1:0] nonzero_1, huge_1, nan_1, infinite_1, nonzero_2, huge_2, nan_2, infinite_2;
  always_comb begin
    logic [31:0] sum, magnitude;
    logic [32:0] total;
    logic [7:0] exponent, dropped, half;
    logic [8:0] right;
    logic [7:0] any;  // of each group
    logic negate, odd;
    if (!tsr_isa_pkg::Simulated) rounded_1 = 'x;
    if (!tsr_isa_pkg::Simulated) factor_1 = 'x;
    if (!tsr_isa_pkg::Simulated) shift_1 = 'x;
    if (!tsr_isa_pkg::Simulated) group_1 = 'x;
    if (!tsr_isa_pkg::Simulated) nonzero_1 = 'x;
    if (!tsr_isa_pkg::Simulated) huge_1 = 'x;
    if (!tsr_isa_pkg::Simulated) nan_1 = 'x;
    if (!tsr_isa_pkg::Simulated) infinite_1 = 'x;
    sum = 'x;
    magnitude = 'x;
    total = 'x;
    exponent = 'x;
    right = 'x;
    dropped = 'x;
    half = 'x;
    any = 'x;
    negate = 'x;
    odd = 'x;
    if (valid[1]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        sum = sum_1[32*l+:32];
        negate = scale_1[32*l+31];
        exponent = scale_1[32*l+23+:8];
        // One less than the magnitude of a negative number: the leading bit is another only for powers of two, which
        // are exact either way.
        magnitude = sum ^ {32{sum[31]}};
        for (int unsigned k = 0; k < 8; k++) dropped[k] = (magnitude[31:24] >> k) != 8'd0;
        // The last kept bit, and half of its weight; both in the negated sum, of which they are used only where bits
        // below are not all 0.
        odd = 1'b0;
        for (int unsigned k = 0; k < 7; k++) begin
          if (dropped[k] && !dropped[k+1]) odd = sum[k+1] ^ negate;
        end
        if (dropped[7]) odd = sum[8] ^ negate;
        // Half of it, less 1 unless the sum is negated (minus x is not x, plus 1).
        half = {1'b0, dropped[7:1]};
        if (negate) half = dropped & ~(dropped >> 1);
        if (Rounding == 1) begin
          half = 8'd0;
          odd = 1'b0;
        end
        if (Rounding == 2) odd = 1'b1;
        // One adder: the last bit is the carry in.
        total = 33'(({{sum[31], sum} ^ {33{negate}}, 1'b1} + {25'd0, half, dropped[0] ? odd : negate}) >> 1);
        rounded_1[33*l+:33] = {total[32:8], total[7:0] & ~dropped};
        for (int unsigned k = 0; k < 8; k++) any[k] = magnitude[4*k+:4] != 4'd0;
        group_1[3*l+:3] = 3'd0;
        for (int unsigned k = 1; k < 8; k++) begin
          if (any[k]) group_1[3*l+:3] = 3'(k);
        end
        nonzero_1[l] = any != 8'd0 || sum[31];
        right = 9'd136 - {1'b0, exponent};
        shift_1[6*l+:6] = right[5:0];
        if (!right[8] && right[7:6] != 2'd0) shift_1[6*l+4+:2] = 2'd3;
        huge_1[l] = right[8];
        infinite_1[l] = exponent == 8'd255;
        nan_1[l] = exponent == 8'd255 && scale_1[32*l+:23] != 23'd0;
        factor_1[24*l+:24] = {exponent != 8'd0, scale_1[32*l+:23]};
      end
    end
  end
  tsr_pipe #(.Width(70 * Lanes), .Enabled(32'(Registers[1]))) u_stage_1 (
    .clk_i, .enable_i(enable_i & valid[1]),
    .data_i({rounded_1, factor_1, shift_1, group_1, nonzero_1, huge_1, nan_1, infinite_1}),
    .data_o({rounded_2, factor_2, shift_2, group_2, nonzero_2, huge_2, nan_2, infinite_2})
  );

  // Stages 2 and 3: two partial products, of the lower 17 bits and of the rest, and their sum. With both registers they
  // are two DSP slices a lane, adder included, which is why each lane has its own signals here.
  logic [58*Lanes-1:0] product_4;
  for (genvar l = 0; l < Lanes; l++) begin : gen_product
    logic signed [17:0] lower, upper;
    logic signed [24:0] factor;
    logic signed [42:0] lower_2, upper_2, lower_3, upper_3, head_3, head_4;
    logic [16:0] tail_4;
    assign lower = $signed({1'b0, rounded_2[33*l+:17]});
    assign upper = 18'($signed(rounded_2[33*l+17+:16]));
    assign factor = $signed({1'b0, factor_2[24*l+:24]});
    assign lower_2 = lower * factor;
    assign upper_2 = upper * factor;
    if (Registers[2]) begin : gen_register_2
      always_ff @(posedge clk_i) begin
        if (enable_i && valid[2]) begin
          lower_3 <= lower_2;
          upper_3 <= upper_2;
        end
      end
    end else begin : gen_wire_2
      assign lower_3 = lower_2;
      assign upper_3 = upper_2;
    end
    assign head_3 = upper_3 + (lower_3 >>> 17);
    if (Registers[3]) begin : gen_register_3
      always_ff @(posedge clk_i) begin
        if (enable_i && valid[3]) begin
          head_4 <= head_3;
          tail_4 <= lower_3[16:0];
        end
      end
    end else begin : gen_wire_3
      assign head_4 = head_3;
      assign tail_4 = lower_3[16:0];
    end
    assign product_4[58*l+:58] = {head_4[40:0], tail_4};
    logic unused;
    assign unused = &{1'b0, head_4[42:41]};
  end

  // Beside them: whether the sum is beyond the bounds for certain, 2^10 or more in magnitude; where it is not, it is
  // below 2^14. sign: of the result. none: not a number.
  logic [6*Lanes-1:0] shift_3, shift_4;
  logic [Lanes-1:0] far_2, sign_2, none_2, far_3, sign_3, none_3, far_4, sign_4, none_4;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) far_2 = 'x;
    if (!tsr_isa_pkg::Simulated) sign_2 = 'x;
    if (!tsr_isa_pkg::Simulated) none_2 = 'x;
    if (valid[2]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        far_2[l] = nonzero_2[l] && (huge_2[l] || {1'b0, group_2[3*l+:3]} > shift_2[6*l+2+:4]);
        sign_2[l] = rounded_2[33*l+32];
        none_2[l] = nan_2[l] || (infinite_2[l] && !nonzero_2[l]);
      end
    end
  end
  tsr_pipe #(.Width(9 * Lanes), .Enabled(32'(Registers[2]))) u_stage_2 (
    .clk_i, .enable_i(enable_i & valid[2]), .data_i({shift_2, far_2, sign_2, none_2}),
    .data_o({shift_3, far_3, sign_3, none_3})
  );
  tsr_pipe #(.Width(9 * Lanes), .Enabled(32'(Registers[3]))) u_stage_3 (
    .clk_i, .enable_i(enable_i & valid[3]), .data_i({shift_3, far_3, sign_3, none_3}),
    .data_o({shift_4, far_4, sign_4, none_4})
  );

  // Stage 4: with 25 fraction bits and 16 integer bits, still to be shifted by up to 15; sticky: a lost bit was 1.
  logic [56*Lanes-1:0] coarse_4, coarse_5;
  logic [4*Lanes-1:0] shift_5;
  logic [Lanes-1:0] sticky_4, sticky_5, far_5, sign_5, none_5;
  always_comb begin
    logic [57:0] product;
    logic [1:0] shift;
    if (!tsr_isa_pkg::Simulated) coarse_4 = 'x;
    if (!tsr_isa_pkg::Simulated) sticky_4 = 'x;
    product = 'x;
    shift = 'x;
    if (valid[4]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        product = product_4[58*l+:58];
        shift = shift_4[6*l+4+:2];
        case (shift)
          2'd0: coarse_4[56*l+:56] = {product[44:0], 11'd0};
          2'd1: coarse_4[56*l+:56] = 56'($signed(product[57:5]));
          2'd2: coarse_4[56*l+:56] = 56'($signed(product[57:21]));
          default: coarse_4[56*l+:56] = 56'($signed(product[57:37]));
        endcase
        sticky_4[l] = ((shift[1] || shift[0]) && product[4:0] != 5'd0) || (shift[1] && product[20:5] != 16'd0) ||
            (shift[1] && shift[0] && product[36:21] != 16'd0);
      end
    end
  end
  tsr_pipe #(.Width(64 * Lanes), .Enabled(32'(Registers[4]))) u_stage_4 (
    .clk_i, .enable_i(enable_i & valid[4]),
    .data_i({coarse_4, sticky_4, far_4, sign_4, none_4, low_nibbles(shift_4)}),
    .data_o({coarse_5, sticky_5, far_5, sign_5, none_5, shift_5})
  );

  // The lower four bits of each shift.
  function automatic logic [4*Lanes-1:0] low_nibbles(input logic [6*Lanes-1:0] shifts);
    for (int unsigned l = 0; l < Lanes; l++) low_nibbles[4*l+:4] = shifts[6*l+:4];
  endfunction

  // Stage 5: the rest of the shift.
  logic [41*Lanes-1:0] fixed_5, fixed_6;
  logic [Lanes-1:0] lost_5, lost_6, far_6, sign_6, none_6;
  always_comb begin
    logic [55:0] coarse;
    logic [43:0] fours;
    logic [3:0] shift;
    if (!tsr_isa_pkg::Simulated) fixed_5 = 'x;
    if (!tsr_isa_pkg::Simulated) lost_5 = 'x;
    coarse = 'x;
    fours = 'x;
    shift = 'x;
    if (valid[5]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        coarse = coarse_5[56*l+:56];
        shift = shift_5[4*l+:4];
        case (shift[3:2])
          2'd0: fours = coarse[43:0];
          2'd1: fours = coarse[47:4];
          2'd2: fours = coarse[51:8];
          default: fours = coarse[55:12];
        endcase
        case (shift[1:0])
          2'd0: fixed_5[41*l+:41] = fours[40:0];
          2'd1: fixed_5[41*l+:41] = fours[41:1];
          2'd2: fixed_5[41*l+:41] = fours[42:2];
          default: fixed_5[41*l+:41] = fours[43:3];
        endcase
        lost_5[l] = sticky_5[l] || ((shift[3] || shift[2]) && coarse[3:0] != 4'd0) ||
            (shift[3] && coarse[7:4] != 4'd0) || (shift[3] && shift[2] && coarse[11:8] != 4'd0) ||
            ((shift[1] || shift[0]) && fours[0]) || (shift[1] && fours[1]) || (shift[1] && shift[0] && fours[2]);
      end
    end
  end
  tsr_pipe #(.Width(45 * Lanes), .Enabled(32'(Registers[5]))) u_stage_5 (
    .clk_i, .enable_i(enable_i & valid[5]), .data_i({fixed_5, lost_5, far_5, sign_5, none_5}),
    .data_o({fixed_6, lost_6, far_6, sign_6, none_6})
  );

  // Stages 6 to 8.
  logic signed [9:0] low_6, high_6;
  logic signed [8:0] zero_6;
  tsr_delay #(.Width(29), .Stages(ToRound)) u_bounds (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i({low_i, high_i, zero_i}), .data_o({low_6, high_6, zero_6})
  );
  tsr_round_saturate #(.Lanes(Lanes), .Registers(Registers[8:6]), .Rounding(Rounding), .Trailing(Trailing)) u_round (
    .clk_i, .rst_ni, .enable_i, .low_i(low_6), .high_i(high_6), .zero_i(zero_6), .valid_i(valid[6]), .fixed_i(fixed_6),
    .lost_i(lost_6), .far_i(far_6), .sign_i(sign_6), .none_i(none_6), .valid_o, .value_o
  );

endmodule
/* verilator lint_on LATCH */
