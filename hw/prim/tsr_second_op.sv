// SPDX-License-Identifier: Apache-2.0
// Second operation of the ALU for a vector of lanes: two integers x and y -> integer, with its own rounding and bounds,
// in fixed point (isa/semantics.md, ALU).
//   add: (s, t) = (y, x)      mul: (s, t) = (int18((x - zx) * (y - zy)), 512)      max: (s, t) = (0, max(x, y)), or min
//   i = float(int48(s * inner_factor + inner_addend));  g = float(int48(i + t * outer_factor)) / 2^(25 + shift)
//   value_o = (RNE(g) > high ? high : RNE(g) < low ? low : RNE(g)) + zero, the exact 11-bit sum
// Method: s is the product of two differences, of which one is 1 or 0 where there is none; tsr_fixed_fma; rounding to 24
// significant bits in two's complement; tsr_fixed_fma, whose first product is made beside that rounding; a shift to 25
// fraction bits and a sticky bit; tsr_round_saturate.
//
// Everything enters with the vector and travels with it: x_i and y_i of each lane; operation and constants, common to
// all lanes; so vectors of different instructions may follow one another in any cycle. operation_i: 1 add, 2 mul, 3 max
// (second_op of the ISA); 0 counts as max.
// Registers: bit 0 after the differences, 1 after their product, 2, 3, 4 those of the inner tsr_fixed_fma, 5 after the
// place of rounding is known, 6 after the rounding and after the outer tsr_fixed_fma's first product, 7 and 8 its others,
// 9 after the shift, 10 to 12 those of tsr_round_saturate; Trailing more behind it. Bits 0, 1, 2, 3, 4, 6, 7, 8 become
// registers of five DSP slices a lane. Latency: the number of ones and Trailing, in enabled cycles; 0 is combinational.
// Throughput: one vector a cycle. Back-pressure: a pure pipeline, enable_i = 0 holds every register. Reset: rst_ni,
// synchronous, clears the valid bits. value_o is unspecified where valid_o = 0; idle stages are not evaluated in
// simulation. Legal: Rounding = 0; 1 (truncation) and 2 (halves away from zero) are for tests.

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_second_op #(
  parameter int unsigned Lanes     = 1,
  parameter logic [12:0] Registers = 13'd0,
  parameter int unsigned Rounding  = 0,
  parameter int unsigned Trailing  = 0
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                enable_i,
  input  logic [1:0]          operation_i,
  input  logic                minimum_i,
  input  logic [41:0]         inner_factor_i,
  input  logic [47:0]         inner_addend_i,
  input  logic [41:0]         outer_factor_i,
  input  logic [3:0]          shift_i,
  input  logic signed [9:0]   low_i,
  input  logic signed [9:0]   high_i,
  input  logic signed [8:0]   zero_i,
  input  logic signed [8:0]   zx_i,
  input  logic signed [8:0]   zy_i,
  input  logic                valid_i,
  input  logic [11*Lanes-1:0] x_i,
  input  logic [11*Lanes-1:0] y_i,
  output logic                valid_o,
  output logic [11*Lanes-1:0] value_o
);

  localparam int unsigned ToInner = 32'(Registers[0]) + 32'(Registers[1]);
  localparam int unsigned ToAddend = ToInner + 32'(Registers[2]);
  localparam int unsigned ToOuter = ToAddend + 32'(Registers[3]) + 32'(Registers[4]) + 32'(Registers[5]);
  localparam int unsigned ToUpper = ToOuter + 32'(Registers[6]);
  localparam int unsigned ToShift = ToUpper + 32'(Registers[7]) + 32'(Registers[8]);
  localparam int unsigned ToRound = ToShift + 32'(Registers[9]);
  localparam logic [1:0] Add = 2'd1, Mul = 2'd2;

  // valid[k]: a vector is in stage k. What enters stage k is registered by bit k - 1.
  logic [10:0] valid;
  if (Registers[9:0] == '1) begin : gen_line
    logic [9:0] line_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) line_q <= '0;
      else if (enable_i) line_q <= valid[9:0];
    end
    assign valid = {line_q, valid_i};
  end else begin : gen_stages
    assign valid[0] = valid_i;
    for (genvar k = 0; k < 10; k++) begin : gen_valid
      tsr_pipe_valid #(.Enabled(32'(Registers[k]))) u_valid (
        .clk_i, .rst_ni, .enable_i, .valid_i(valid[k]), .valid_o(valid[k+1])
      );
    end
  end

  // The constants, each where it is needed.
  logic [41:0] inner_factor_2, outer_factor_6;
  logic [24:0] inner_upper_3, outer_upper_7;
  logic [47:0] inner_addend_3;
  logic [3:0] shift_9;
  logic signed [9:0] low_10, high_10;
  logic signed [8:0] zero_10;
  tsr_delay #(.Width(42), .Stages(ToInner)) u_inner_factor (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i(inner_factor_i), .data_o(inner_factor_2)
  );
  tsr_pipe #(.Width(25), .Enabled(32'(Registers[2]))) u_inner_upper (
    .clk_i, .enable_i(enable_i & valid[2]), .data_i(inner_factor_2[41:17]), .data_o(inner_upper_3)
  );
  tsr_delay #(.Width(48), .Stages(ToAddend)) u_inner_addend (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i(inner_addend_i), .data_o(inner_addend_3)
  );
  tsr_delay #(.Width(42), .Stages(ToOuter)) u_outer_factor (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i(outer_factor_i), .data_o(outer_factor_6)
  );
  tsr_pipe #(.Width(25), .Enabled(32'(Registers[6]))) u_outer_upper (
    .clk_i, .enable_i(enable_i & valid[6]), .data_i(outer_factor_6[41:17]), .data_o(outer_upper_7)
  );
  tsr_delay #(.Width(4), .Stages(ToShift)) u_shift (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i(shift_i), .data_o(shift_9)
  );
  tsr_delay #(.Width(29), .Stages(ToRound)) u_bounds (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i({low_i, high_i, zero_i}), .data_o({low_10, high_10, zero_10})
  );

  // Stage 0: the differences, and the outer operand: x, 512 or the larger one.
  logic [12*Lanes-1:0] left_0, right_0, left_1, right_1;
  logic [11*Lanes-1:0] outer_0, outer_6;
  always_comb begin
    logic signed [10:0] x, y;
    if (!tsr_isa_pkg::Simulated) left_0 = 'x;
    if (!tsr_isa_pkg::Simulated) right_0 = 'x;
    if (!tsr_isa_pkg::Simulated) outer_0 = 'x;
    x = 'x;
    y = 'x;
    if (valid[0]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        x = x_i[11*l+:11];
        y = y_i[11*l+:11];
        left_0[12*l+:12] = operation_i == Mul ? 12'(x) - 12'(zx_i) : 12'(operation_i == Add);
        right_0[12*l+:12] = 12'(y) - (operation_i == Mul ? 12'(zy_i) : 12'd0);
        outer_0[11*l+:11] = operation_i == Add ? x : operation_i == Mul ? 11'd512 : (x < y) == minimum_i ? x : y;
      end
    end
  end
  tsr_pipe #(.Width(24 * Lanes), .Enabled(32'(Registers[0]))) u_stage_0 (
    .clk_i, .enable_i(enable_i & valid[0]), .data_i({left_0, right_0}), .data_o({left_1, right_1})
  );
  tsr_delay #(.Width(11 * Lanes), .Stages(ToOuter)) u_outer (
    .clk_i, .rst_ni, .enable_i, .valid_i, .data_i(outer_0), .data_o(outer_6)
  );

  // Stage 1: their product.
  logic [18*Lanes-1:0] pair_2;
  for (genvar l = 0; l < Lanes; l++) begin : gen_pair
    logic signed [17:0] left;
    logic signed [24:0] right;
    logic signed [42:0] pair;
    assign left = 18'($signed(left_1[12*l+:12]));
    assign right = 25'($signed(right_1[12*l+:12]));
    if (Registers[1]) begin : gen_register
      always_ff @(posedge clk_i) begin
        if (enable_i && valid[1]) pair <= left * right;
      end
    end else begin : gen_wire
      assign pair = left * right;
    end
    assign pair_2[18*l+:18] = pair[17:0];
    logic unused;
    assign unused = &{1'b0, pair[42:18]};
  end

  // Stages 2 to 4: times the inner factor, plus the inner addend.
  logic [48*Lanes-1:0] inner_5, inner_6, whole_6, whole_7;
  tsr_fixed_fma #(.Lanes(Lanes), .Registers(Registers[4:2])) u_inner (
    .clk_i, .enable_i, .valid_i(valid[5:2]), .operand_i(pair_2), .lower_i(inner_factor_2[16:0]),
    .upper_i(inner_upper_3), .addend_i({Lanes{inner_addend_3}}), .sum_o(inner_5)
  );

  // Stage 5: which bits the rounding to 24 significant ones drops, and the last one that it keeps.
  logic [24*Lanes-1:0] dropped_5, dropped_6;
  logic [Lanes-1:0] odd_5, odd_6;
  always_comb begin
    logic [23:0] magnitude;
    logic [24:0] dropped;
    if (!tsr_isa_pkg::Simulated) dropped_5 = 'x;
    if (!tsr_isa_pkg::Simulated) odd_5 = 'x;
    magnitude = 'x;
    dropped = 'x;
    if (valid[5]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        // One less than the magnitude of a negative number: the leading bit is another only for powers of two, which
        // are exact either way.
        magnitude = inner_5[48*l+24+:24] ^ {24{inner_5[48*l+47]}};
        for (int unsigned k = 0; k < 24; k++) dropped[k] = (magnitude >> k) != 24'd0;
        dropped[24] = 1'b0;
        odd_5[l] = 1'b0;
        for (int unsigned k = 0; k < 24; k++) begin
          if (dropped[k] && !dropped[k+1]) odd_5[l] = inner_5[48*l+k+1];
        end
        dropped_5[24*l+:24] = dropped[23:0];
      end
    end
  end
  tsr_pipe #(.Width(73 * Lanes), .Enabled(32'(Registers[5]))) u_stage_5 (
    .clk_i, .enable_i(enable_i & valid[5]), .data_i({inner_5, dropped_5, odd_5}),
    .data_o({inner_6, dropped_6, odd_6})
  );

  // Stage 6: the rounding, one adder: half of the dropped weight, less 1 unless the last kept bit is 1.
  always_comb begin
    logic [23:0] dropped;
    logic [22:0] half;
    logic [47:0] total;
    if (!tsr_isa_pkg::Simulated) whole_6 = 'x;
    dropped = 'x;
    half = 'x;
    total = 'x;
    if (valid[6]) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        dropped = dropped_6[24*l+:24];
        half = dropped[23:1];
        if (Rounding == 1) half = 23'd0;
        total = 48'(({inner_6[48*l+:48], 1'b1} +
                     {25'd0, half, dropped[0] && (Rounding == 0 ? odd_6[l] : Rounding == 2)}) >> 1);
        whole_6[48*l+:48] = {total[47:24], total[23:0] & ~dropped};
      end
    end
  end
  tsr_pipe #(.Width(48 * Lanes), .Enabled(32'(Registers[6]))) u_stage_6 (
    .clk_i, .enable_i(enable_i & valid[6]), .data_i(whole_6), .data_o(whole_7)
  );

  // Stages 6 to 8: plus the outer operand times the outer factor.
  logic [18*Lanes-1:0] outer_operand_6;
  logic [48*Lanes-1:0] sum_9;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) outer_operand_6 = 'x;
    if (!tsr_isa_pkg::Simulated || valid[6]) begin
      for (int unsigned l = 0; l < Lanes; l++) outer_operand_6[18*l+:18] = 18'($signed(outer_6[11*l+:11]));
    end
  end
  tsr_fixed_fma #(.Lanes(Lanes), .Registers(Registers[8:6])) u_outer_product (
    .clk_i, .enable_i, .valid_i(valid[9:6]), .operand_i(outer_operand_6), .lower_i(outer_factor_6[16:0]),
    .upper_i(outer_upper_7), .addend_i(whole_7), .sum_o(sum_9)
  );

  // Stage 9: 25 fraction bits, a sticky bit, 10 integer bits; far: the integer part has more.
  logic [35*Lanes-1:0] fixed_9, fixed_10;
  logic [Lanes-1:0] lost_9, far_9, lost_10, far_10;
  tsr_shift_sticky #(.Lanes(Lanes), .Width(48)) u_fraction (
    .valid_i(valid[9]), .number_i(sum_9), .shift_i({Lanes{shift_9}}), .lost_i('0), .far_i('0), .fixed_o(fixed_9),
    .lost_o(lost_9), .far_o(far_9)
  );
  tsr_pipe #(.Width(37 * Lanes), .Enabled(32'(Registers[9]))) u_stage_9 (
    .clk_i, .enable_i(enable_i & valid[9]), .data_i({fixed_9, lost_9, far_9}), .data_o({fixed_10, lost_10, far_10})
  );

  // Stages 10 to 12.
  tsr_round_saturate #(.Lanes(Lanes), .Registers(Registers[12:10]), .Rounding(Rounding), .Trailing(Trailing)) u_round (
    .clk_i, .rst_ni, .enable_i, .low_i(low_10), .high_i(high_10), .zero_i(zero_10), .valid_i(valid[10]),
    .fixed_i(fixed_10), .lost_i(lost_10), .far_i(far_10), .negate_i('0), .special_i('0), .nan_i('0), .valid_o, .value_o
  );

endmodule
/* verilator lint_on LATCH */
