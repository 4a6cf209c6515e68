// SPDX-License-Identifier: Apache-2.0
// First stage of the ALU for a vector of lanes: int32 value + int32 bias (wraps) -> fp32 -> times the fp32 scale_i ->
// clamp to [low_i, high_i], NaN to low_i -> round half to even -> + zero_i; each step rounded once. value_o is the exact
// 11-bit sum. With convert_i = 0 bias is 0 and scale 1.0, which is the integer clamp: rounding to 24 bits begins far
// beyond the bounds.
//
// Method: fixed point, no floating-point unit. The biased sum is rounded to 24 significant bits (an integer of 33
// bits), multiplied by the 24 bits of the scale's significand, and the product is shifted to 25 fraction bits and a
// sticky bit, which tsr_round_saturate makes an integer. The scale's sign negates that integer: all roundings are
// symmetric.
//
// The scale's exponent E gives the shift 150 - E, at most 77: every product is then below 1/4. From E = 136 on every sum
// but 0 is at the bounds or beyond them, so that a larger E counts as 136. An infinite scale has 1.5 as its significand,
// by which only the sum 0 is not beyond the bounds; that product is no number.
//
// Everything enters with the vector and travels with it: value_i, bias_i and scale_i of each lane; convert_i, low_i,
// high_i and zero_i, common to all lanes; so vectors of different instructions may follow one another in any cycle.
// Registers: bit 0 after the bias, 1 after the rounding to 24 bits, 2 after the partial products, 3 after the product, 4
// and 5 after the two parts of the shift, 6 after the rounding and the zero point, 7 after the comparison with the
// bounds, to which the zero point has been added too, 8 after the clamp; Trailing more behind it. Bits 1 to 3 become
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
  input  logic                convert_i,
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
    logic [31:0] bias;
    if (!tsr_isa_pkg::Simulated) sum_0 = 'x;
    bias = 'x;
    if (valid[0]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        bias = bias_i[32*l+:32] & {32{convert_i}};
        // Written as a difference for synthesis: Yosys gives its first operand, a register, to the carry chain as it is.
        // Of a sum it takes either.
        if (tsr_isa_pkg::Simulated) sum_0[32*l+:32] = value_i[32*l+:32] + bias;
        else sum_0[32*l+:32] = 32'(({value_i[32*l+:32], 1'b0} - {~bias, 1'b1}) >> 1);
      end
    end
  end
  if (Registers[0]) begin : gen_register_0
    always_ff @(posedge clk_i) begin
      if (enable_i && valid[0]) begin
        sum_1 <= sum_0;
        scale_1 <= convert_i ? scale_i : {Lanes{32'h3f800000}};
      end
    end
  end else begin : gen_wire_0
    assign sum_1 = sum_0;
    assign scale_1 = convert_i ? scale_i : {Lanes{32'h3f800000}};
  end

  // Stage 1: the sum rounded to 24 significant bits; the scale decoded. factor: the significand; shift: 150 - E - 14.
  // What is not a product's operand waits in memory: the shift, and negate, special (E = 255) and nan.
  localparam int unsigned ToShift = 32'(Registers[1]) + 32'(Registers[2]) + 32'(Registers[3]);
  logic [33*Lanes-1:0] rounded_1;
  logic [24*Lanes-1:0] factor_1;
  logic [6*Lanes-1:0] shift_1, shift_4;
  logic [Lanes-1:0] negate_1, special_1, nan_1, negate_6, special_6, nan_6;
  always_comb begin
    logic [31:0] sum;
    logic [32:0] total;
    logic [7:0] exponent, carry, right;
    logic [6:0] magnitude, half;
    logic [7:0] dropped;
    logic odd, over;
    if (!tsr_isa_pkg::Simulated) rounded_1 = 'x;
    if (!tsr_isa_pkg::Simulated) factor_1 = 'x;
    if (!tsr_isa_pkg::Simulated) shift_1 = 'x;
    if (!tsr_isa_pkg::Simulated) negate_1 = 'x;
    if (!tsr_isa_pkg::Simulated) special_1 = 'x;
    if (!tsr_isa_pkg::Simulated) nan_1 = 'x;
    sum = 'x;
    magnitude = 'x;
    total = 'x;
    exponent = 'x;
    carry = 'x;
    right = 'x;
    dropped = 'x;
    half = 'x;
    odd = 'x;
    over = 'x;
    if (valid[1]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        sum = sum_1[32*l+:32];
        exponent = scale_1[32*l+23+:8];
        // One less than the magnitude of a negative number: the leading bit is another only for powers of two, which
        // are exact either way.
        magnitude = sum[30:24] ^ {7{sum[31]}};
        dropped = 8'd0;
        for (int unsigned k = 0; k < 7; k++) dropped[k] = (magnitude >> k) != 7'd0;
        odd = 1'b0;
        for (int unsigned k = 0; k < 7; k++) begin
          if (dropped[k] && !dropped[k+1]) odd = sum[k+1];
        end
        // One adder: half of the dropped weight, less 1 unless the last kept bit is 1.
        half = Rounding == 1 ? 7'd0 : dropped[7:1];
        total = 33'(({sum[31], sum, 1'b1} + {26'd0, half, dropped[0] && (Rounding == 0 ? odd : Rounding == 2)}) >> 1);
        rounded_1[33*l+:33] = {total[32:7], total[6:0] & ~dropped[6:0]};
        // 136 - E, a bit at a time, since a part of it is a small table.
        carry[0] = 1'b1;
        for (int unsigned k = 0; k < 7; k++) carry[k+1] = k == 3 ? !exponent[k] || carry[k] : !exponent[k] && carry[k];
        right = ~exponent ^ carry ^ 8'd136;
        over = exponent[7] && !carry[7];
        shift_1[6*l+:4] = over ? 4'd0 : right[3:0];
        shift_1[6*l+4+:2] = over ? 2'd0 : right[7:6] != 2'd0 ? 2'd3 : right[5:4];
        negate_1[l] = scale_1[32*l+31];
        special_1[l] = exponent == 8'd255;
        nan_1[l] = exponent == 8'd255 && scale_1[32*l+:23] != 23'd0;
        factor_1[24*l+:24] = {exponent != 8'd0, scale_1[32*l+22] || exponent == 8'd255, scale_1[32*l+:22]};
      end
    end
  end
  tsr_delay #(.Width(6 * Lanes), .Stages(ToShift)) u_shift (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid[1]), .data_i(shift_1), .data_o(shift_4)
  );
  tsr_delay #(.Width(3 * Lanes), .Stages(ToShift + 32'(Registers[4]) + 32'(Registers[5]))) u_flags (
    .clk_i, .rst_ni, .enable_i, .valid_i(valid[1]), .data_i({negate_1, special_1, nan_1}),
    .data_o({negate_6, special_6, nan_6})
  );

  // Stages 2 and 3: two partial products, of the lower 17 bits and of the rest, and their sum. With all registers they
  // are two DSP slices a lane, operands and adder included, which is why each lane has its own signals here.
  logic [58*Lanes-1:0] product_4;
  for (genvar l = 0; l < Lanes; l++) begin : gen_product
    logic [16:0] lower_1, tail_4;
    logic [15:0] upper_1;
    logic [23:0] factor_2;
    logic signed [17:0] lower, upper;
    logic signed [24:0] factor;
    logic signed [42:0] lower_2, upper_2, lower_3, upper_3, head_3, head_4;
    if (Registers[1]) begin : gen_register_1
      always_ff @(posedge clk_i) begin
        if (enable_i && valid[1]) begin
          lower_1 <= rounded_1[33*l+:17];
          upper_1 <= rounded_1[33*l+17+:16];
          factor_2 <= factor_1[24*l+:24];
        end
      end
    end else begin : gen_wire_1
      assign lower_1 = rounded_1[33*l+:17];
      assign upper_1 = rounded_1[33*l+17+:16];
      assign factor_2 = factor_1[24*l+:24];
    end
    assign lower = $signed({1'b0, lower_1});
    assign upper = 18'($signed(upper_1));
    assign factor = $signed({1'b0, factor_2});
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

  // Stage 4: with 25 fraction bits, still to be shifted by up to 15. sticky: a lost bit was 1. far: a bit left out on the
  // upper side is not the sign, so that the result is beyond the bounds.
  logic [50*Lanes-1:0] coarse_4, coarse_5;
  logic [4*Lanes-1:0] shift_5;
  logic [Lanes-1:0] sticky_4, sticky_5, far_4, far_5;
  always_comb begin
    logic [57:0] product;
    logic [1:0] shift;
    if (!tsr_isa_pkg::Simulated) coarse_4 = 'x;
    if (!tsr_isa_pkg::Simulated) sticky_4 = 'x;
    if (!tsr_isa_pkg::Simulated) far_4 = 'x;
    product = 'x;
    shift = 'x;
    if (valid[4]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        product = product_4[58*l+:58];
        shift = shift_4[6*l+4+:2];
        case (shift)
          2'd0: coarse_4[50*l+:50] = {product[57], product[37:0], 11'd0};
          2'd1: coarse_4[50*l+:50] = {product[57], product[53:5]};
          2'd2: coarse_4[50*l+:50] = 50'($signed(product[57:21]));
          default: coarse_4[50*l+:50] = 50'($signed(product[57:37]));
        endcase
        sticky_4[l] = ((shift[1] || shift[0]) && product[4:0] != 5'd0) || (shift[1] && product[20:5] != 16'd0) ||
            (shift[1] && shift[0] && product[36:21] != 16'd0);
        far_4[l] = !shift[1] && (product[56:54] != {3{product[57]}} ||
                                 (!shift[0] && product[53:38] != {16{product[57]}}));
      end
    end
  end
  tsr_pipe #(.Width(56 * Lanes), .Enabled(32'(Registers[4]))) u_stage_4 (
    .clk_i, .enable_i(enable_i & valid[4]), .data_i({coarse_4, sticky_4, far_4, low_nibbles(shift_4)}),
    .data_o({coarse_5, sticky_5, far_5, shift_5})
  );

  // The lower four bits of each shift.
  function automatic logic [4*Lanes-1:0] low_nibbles(input logic [6*Lanes-1:0] shifts);
    for (int unsigned l = 0; l < Lanes; l++) low_nibbles[4*l+:4] = shifts[6*l+:4];
  endfunction

  // Stage 5: the rest of the shift.
  logic [35*Lanes-1:0] fixed_5, fixed_6;
  logic [Lanes-1:0] lost_5, lost_6, over_5, far_6;
  tsr_shift_sticky #(.Lanes(Lanes), .Width(50)) u_fraction (
    .valid_i(valid[5]), .number_i(coarse_5), .shift_i(shift_5), .lost_i(sticky_5), .far_i(far_5), .fixed_o(fixed_5),
    .lost_o(lost_5), .far_o(over_5)
  );
  tsr_pipe #(.Width(37 * Lanes), .Enabled(32'(Registers[5]))) u_stage_5 (
    .clk_i, .enable_i(enable_i & valid[5]), .data_i({fixed_5, lost_5, over_5}), .data_o({fixed_6, lost_6, far_6})
  );

  // Stages 6 to 8.
  logic signed [9:0] low_6, high_6;
  logic signed [8:0] zero_6;
  tsr_delay #(.Width(29), .Stages(ToRound)) u_bounds (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i({low_i, high_i, zero_i}), .data_o({low_6, high_6, zero_6})
  );
  tsr_round_saturate #(
    .Lanes(Lanes), .Registers(Registers[8:6]), .Scaled(1), .Rounding(Rounding), .Trailing(Trailing)
  ) u_round (
    .clk_i, .rst_ni, .enable_i, .low_i(low_6), .high_i(high_6), .zero_i(zero_6), .valid_i(valid[6]), .fixed_i(fixed_6),
    .lost_i(lost_6), .far_i(far_6), .negate_i(negate_6), .special_i(special_6), .nan_i(nan_6), .valid_o, .value_o
  );

endmodule
/* verilator lint_on LATCH */
