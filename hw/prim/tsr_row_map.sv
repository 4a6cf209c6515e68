// SPDX-License-Identifier: Apache-2.0
// One lane of ROW_MAP (isa/semantics.md) behind its table: softmax_i = 1: a_i / b_i rounded to 24 bits and then to an
// integer; 0: offset_i normalised by the row's factor, then by the channel's. Both clamped, plus the zero point. Two DSP
// slices.
//
// Softmax, without a divider. Let ma and mb be the significands, d the difference of the exponents, reciprocal_i =
// floor((2^35 - 1) / m), m the largest significand with the upper 12 bits of mb. The first product, of ma's upper 17 bits
// by the reciprocal, is ma / mb * 2^28, less by a part in 2^10.3 at most. So its integer part t0 at the place that d says
// is that of a / b or less by 1, by 0.4 at most below 512, which is less than 1/2: the result is t0 or t0 + 1, and h = t0 + 1/2 decides. The second product gives rho = ma - h * mb, exact, h being
// set in the quotient's own places by a mask. rho's sign says which; unless a / b rounds to h itself, which is so where
// |a / b - h| is below half a last place of h, and then the even one is the result. (No quotient of two such
// significands lies halfway between two, so that no equality is looked at; where h is a power of two, that is 1/2, the
// even one is below, as is everything that its narrower last place would leave out.) Above 512 clamping decides.
//
// Normalisation: value = ((offset << 8 * coarse) * factor + addend) >> 8 in 25 bits, all but the offset being the row's;
// then RNE((value * gain + bias * 2^8) / 2^28).
//
// square_i with softmax_i, coarse_i and addend_i 0 gives offset_i^2 at square_o.
//
// The row's and the instruction's operands (all inputs but offset_i, a_i, gain_i and bias_i) hold while elements of the
// row are under way. gain_i and bias_i enter with stage 3. Registers: bit 0 the first product's factors, 1 the product, 2
// the sum, 3 the second one's factors, 4 the product, 5 the sum, 6 after the choice, 7 after the rounding, 8 after the
// comparison with the bounds, 9 after the clamp. Latency: the number of ones, in enabled cycles. Throughput: one element a cycle.
// Back-pressure: enable_i = 0 holds every register. Reset: none, data only, rst_ni is that of delay lines.
// Rounding = 0; 1 (truncation) and 2 (halves away from zero) are for tests.
module tsr_row_map #(
  parameter logic [9:0]  Registers = 10'd0,
  parameter int unsigned Rounding  = 0
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        enable_i,
  input  logic        softmax_i,
  // The row: a softmax's sum and the reciprocal of its significand as the factor; or factor, place and addend.
  input  logic [30:0] b_i,
  input  logic [11:0] limit_i,  // (mb - 1) >> 12
  input  logic [23:0] factor_i,
  input  logic        coarse_i,
  input  logic [47:0] addend_i,
  input  logic [9:0]  low_i,
  input  logic [9:0]  high_i,
  input  logic [7:0]  zero_i,
  input  logic [7:0]  lowest_i,   // bounds with the zero point
  input  logic [7:0]  highest_i,
  // The element.
  input  logic [8:0]  offset_i,
  input  logic [30:0] a_i,
  input  logic [17:0] gain_i,
  input  logic [31:0] bias_i,
  output logic [7:0]  byte_o,
  // Instead: the offset's square, behind stage 2.
  input  logic        square_i,
  output logic [16:0] square_o
);

  localparam int unsigned ToSecond = 32'(Registers[0]) + 32'(Registers[1]) + 32'(Registers[2]);
  localparam int unsigned ToRound = 32'(Registers[4]) + 32'(Registers[5]);
  localparam logic [3:0] NoPlace = 4'd15, Below = 4'd14;

  // Stage 0: the first factors. place: that of 1/2 in the upper 11 of the quotient's 13 bits, 0 to 10; or Below, where
  // nothing is left of the quotient. all: it is beyond what a clamp leaves.
  logic [17:0] first;
  logic [9:0] difference;
  logic [3:0] place_0, place_3;
  logic none_0, all_0, all_3;
  assign first = softmax_i ? {2'b01, a_i[22:7]} :
      coarse_i ? {offset_i[8], offset_i, 8'd0} : {{9{offset_i[8]}}, offset_i};
  assign difference = {2'd0, a_i[30:23]} - {2'd0, b_i[30:23]};
  assign all_0 = b_i[30:23] == 8'd0 || (!difference[9] && difference[8:0] > 9'd9);
  assign none_0 = !all_0 && (a_i[30:23] == 8'd0 || (difference[9] && difference != 10'h3ff));
  assign place_0 = !softmax_i ? NoPlace : none_0 ? Below : 4'd9 - difference[3:0];
  tsr_delay #(.Width(5), .Stages(ToSecond)) u_place (
    .clk_i, .rst_ni, .enable_i, .valid_i(1'b1), .data_i({all_0 && softmax_i, place_0}), .data_o({all_3, place_3})
  );
  logic [22:0] fraction_4;
  tsr_delay #(.Width(23), .Stages(ToSecond + 32'(Registers[3]))) u_fraction (
    .clk_i, .rst_ni, .enable_i, .valid_i(1'b1), .data_i(a_i[22:0]), .data_o(fraction_4)
  );
  logic [47:0] sum_3;
  logic [24:0] factor;
  always_comb begin
    factor = {1'b0, factor_i};
    if (square_i) factor[16:0] = {{8{offset_i[8]}}, offset_i};  // what of the square leaves 17 bits is not read
  end
  tsr_multiply_add #(.Registers(Registers[2:0])) u_first (
    .clk_i, .enable_i, .x_i(factor), .y_i(first), .addend_i(addend_i), .sum_o(sum_3)
  );

  assign square_o = sum_3[16:0];

  // Stage 3: the second factors: h and mb, or gain and value, where there is no place. floor: t0.
  logic [12:0] quotient;
  logic [17:0] second;
  logic [9:0] floor_3, floor_4, floor_6;
  assign quotient = sum_3[28:16];
  always_comb begin
    second = gain_i & {18{!softmax_i}};
    for (int unsigned k = 0; k < 13; k++) begin
      second[k] = place_3 == NoPlace ? gain_i[k] : 32'(place_3) + 2 == k || (quotient[k] && 32'(place_3) + 2 < k);
    end
    floor_3 = quotient[12:3] >> place_3;
  end
  logic exact_3, exact_4, exact_6, upper_4, upper_6, all_4, all_6;
  assign exact_3 = place_3 == Below;  // no step up
  tsr_pipe #(.Width(13), .Enabled(32'(Registers[3]))) u_floor_3 (
    .clk_i, .enable_i, .data_i({floor_3, all_3, exact_3, second[12]}), .data_o({floor_4, all_4, exact_4, upper_4})
  );
  tsr_delay #(.Width(13), .Stages(ToRound)) u_floor (
    .clk_i, .rst_ni, .enable_i, .valid_i(1'b1), .data_i({floor_4, all_4, exact_4, upper_4}),
    .data_o({floor_6, all_6, exact_6, upper_6})
  );

  // Stage 4: what is added to the second product: the bias, or -ma - 1 in its place.
  logic [31:0] bias_4;
  logic [47:0] addend_4, sum_6;
  if (Registers[3]) begin : gen_bias
    always_ff @(posedge clk_i) begin
      if (enable_i) begin
        if (softmax_i) bias_4 <= '1;  // a set of the register
        else bias_4 <= bias_i;
      end
    end
  end else begin : gen_bias_wire
    assign bias_4 = softmax_i ? '1 : bias_i;
  end
  assign addend_4 = {{8{bias_4[31]}}, bias_4, {8{softmax_i}}} ^ {12'd0, {1'b1, fraction_4} & {24{softmax_i}}, 12'd0};
  tsr_multiply_add #(.Registers(Registers[5:3])) u_second (
    .clk_i, .enable_i, .x_i(softmax_i ? {2'b01, b_i[22:0]} : sum_3[32:8]), .y_i(second),
    .addend_i(addend_4), .sum_o(sum_6)
  );

  // Stage 6: which way to round. Of a softmax the sum is -rho - 1.
  logic negative, near, tie, lost, up_6, up_7, beyond_6, beyond_7, beyond_8, below_7, below_8;
  logic [11:0] limit;
  logic [10:0] whole_6, whole_7;
  assign negative = sum_6[43];
  assign limit = upper_6 ? limit_i : {1'b0, limit_i[11:1]};  // |rho| at most
  // Of a negative sum its complement is at most the limit, of another one itself is below: the complement of the limit
  // instead leaves the sum's bits as they are.
  assign near = (sum_6[11:0] < (limit ^ {12{negative}})) != negative;
  assign tie = sum_6[37:12] == {26{negative}} && near;
  assign lost = sum_6[26:0] != 27'd0;
  assign whole_6 = softmax_i ? {1'b0, floor_6} : sum_6[38:28];
  assign beyond_6 = softmax_i ? all_6 : sum_6[43:39] != {5{sum_6[38]}};
  always_comb begin
    up_6 = sum_6[27] && (Rounding == 2 || lost || sum_6[28]);
    if (softmax_i) up_6 = !exact_6 && (tie ? Rounding == 2 || floor_6[0] : negative);
    if (Rounding == 1) up_6 = 1'b0;
  end
  tsr_pipe #(.Width(14), .Enabled(32'(Registers[6]))) u_stage_6 (
    .clk_i, .enable_i, .data_i({beyond_6, negative && !softmax_i, up_6, whole_6}), .data_o({beyond_7, below_7, up_7, whole_7})
  );

  // Stages 7 to 9: the integer, its bounds, the zero point.
  logic [11:0] rounded_7, rounded_8;
  logic over_8, under_8, over_9, under_9;
  logic [7:0] moved_8, moved_9, byte_9;
  assign rounded_7 = {whole_7[10], whole_7} + {11'd0, up_7};
  tsr_pipe #(.Width(14), .Enabled(32'(Registers[7]))) u_stage_7 (
    .clk_i, .enable_i, .data_i({beyond_7, below_7, rounded_7}), .data_o({beyond_8, below_8, rounded_8})
  );
  assign under_8 = beyond_8 ? below_8 : $signed(rounded_8) < 12'($signed(low_i));
  assign over_8 = beyond_8 ? !below_8 : $signed(rounded_8) > 12'($signed(high_i));
  assign moved_8 = rounded_8[7:0] + zero_i;
  tsr_pipe #(.Width(10), .Enabled(32'(Registers[8]))) u_stage_8 (
    .clk_i, .enable_i, .data_i({under_8, over_8, moved_8}), .data_o({under_9, over_9, moved_9})
  );
  assign byte_9 = under_9 ? lowest_i : over_9 ? highest_i : moved_9;
  tsr_pipe #(.Width(8), .Enabled(32'(Registers[9]))) u_stage_9 (
    .clk_i, .enable_i, .data_i(byte_9), .data_o(byte_o)
  );

  logic unused;
  assign unused = &{1'b0, sum_3, sum_6};

endmodule
