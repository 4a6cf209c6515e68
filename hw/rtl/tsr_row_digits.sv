// SPDX-License-Identifier: Apache-2.0
// What a row's moments become (isa/semantics.md): root and exponent. Enters: S1 and S2 with the instruction's length,
// shift, epsilon and offset. Leaves: S1, R and q. Method: two stages, each with a row of its own. The first one adds
// four products of one multiplier to length * S2 - S1 * S1, moves that by `shift`, adds epsilon, and finds the place of
// the sum V, eight digits a cycle and then two. The second one makes two digits of the quotient in each cycle and one of
// the root behind them. H = floor(sqrt(floor(2^60 / W))): each two digits of the quotient are the square root's next
// two, so that no quotient is kept.
//
// A slot has 22 cycles: start_i in its first one, turn_i in its last one, in which a row passes from stage to stage.
// sum_i and squares_i hold from the second cycle on. done_o from the 21st cycle on, and results with it until turn_i; a
// slot may last longer. Latency: two slots. Throughput: a row a slot. Reset: synchronous, active low, to no slot.
module tsr_row_digits (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        start_i,
  input  logic        turn_i,
  input  logic [20:0] sum_i,
  input  logic [27:0] squares_i,
  input  logic [12:0] length_i,
  input  logic [4:0]  shift_i,
  input  logic [47:0] epsilon_i,
  input  logic [5:0]  offset_i,
  output logic        done_o,
  output logic [20:0] sum_o,
  output logic [16:0] root_o,
  output logic [4:0]  exponent_o
);

  // The cycle of the slot, whose first one is 0. What happens in a cycle is said by registers.
  localparam logic [4:0] Done = 5'd20, Last = 5'd21;
  logic [4:0] step_q, step;
  assign step = start_i ? 5'd1 : step_q == Last ? Last : step_q + 5'd1;
  assign done_o = step_q == Done || step_q == Last;
  always_ff @(posedge clk_i) step_q <= rst_ni ? step : Last;

  // The products: of S2 and of -S1, upper digits first. An odd shift doubles one of their operands.
  logic moment_q, upper_q;  // which operands
  logic signed [21:0] negative_q, first_q;  // -S1
  logic signed [17:0] second, second_q;
  logic signed [39:0] product_q, product_2_q;
  always_comb begin
    case ({moment_q, upper_q})
      2'd0: second = {1'b0, squares_i[16:0]};
      2'd1: second = {7'd0, squares_i[27:17]};
      2'd2: second = {1'b0, negative_q[16:0]};
      default: second = {{13{negative_q[21]}}, negative_q[21:17]};
    endcase
  end
  always_ff @(posedge clk_i) begin
    moment_q <= !step[0];
    upper_q <= step[4:2] == 3'd0 && step[1:0] != 2'd3;
    negative_q <= -{sum_i[20], sum_i};
    first_q <= (moment_q ? {sum_i[20], sum_i} : {9'd0, length_i}) << shift_i[0];
    second_q <= second;
    product_q <= first_q * second_q;
    product_2_q <= product_q;
  end

  // V and its place: four cycles for the products, four for `shift`, one for epsilon, eight for the place. Moves are
  // by eight digits and then by two.
  logic adding_q, placing_q, moves_q, wide_q, far_q, epsilon_q, moves;
  logic [4:0] places_q;
  logic [47:0] total_q, addend, total;
  always_ff @(posedge clk_i) begin
    {adding_q, epsilon_q, wide_q, far_q, placing_q, moves_q} <= '0;
    case (step)
      5'd4, 5'd5: {adding_q, wide_q} <= '1;
      5'd6, 5'd7: adding_q <= 1'b1;
      5'd8: {far_q, moves_q} <= {1'b1, shift_i[4:3] != 2'd0};
      5'd9: {far_q, moves_q} <= {shift_i[4], shift_i[4] || shift_i[2:1] != 2'd0};
      5'd10: moves_q <= shift_i[2];
      5'd11: moves_q <= shift_i[2:1] == 2'd3;
      5'd12: {adding_q, epsilon_q} <= '1;
      5'd13, 5'd14, 5'd15, 5'd16, 5'd17: {far_q, placing_q} <= '1;
      5'd18, 5'd19, 5'd20: placing_q <= 1'b1;
      default: ;
    endcase
  end
  assign moves = moves_q || (placing_q && (far_q ? total_q[47:40] == 8'd0 : total_q[47:46] == 2'd0));
  assign addend = epsilon_q ? epsilon_i : wide_q ? {product_2_q[30:0], 17'd0} : 48'(product_2_q);
  always_comb begin
    total = total_q + addend;
    if (!adding_q) total = far_q ? {total_q[39:0], 8'd0} : {total_q[45:0], 2'd0};
  end
  always_ff @(posedge clk_i) begin
    if (start_i) total_q <= '0;
    else if (adding_q || moves) total_q <= total;
    if (start_i) places_q <= 5'd24;
    else if (placing_q && moves) places_q <= places_q - (far_q ? 5'd4 : 5'd1);
  end

  // What passes to the second stage: V = 0 counts as 1, whose place is that of the lowest digit.
  logic [25:0] divisor_q;
  logic [4:0] half_q;
  always_ff @(posedge clk_i) begin
    if (turn_i) begin
      sum_o <= sum_i;
      divisor_q <= {total_q[47], !total_q[47] || total_q[46], total_q[45:22]};
      half_q <= places_q;
    end
  end

  // Two digits of the quotient. What is left may be negative: then the divisor is added next, so that nothing is put
  // back, and a digit is 1 where it is not negative.
  logic [26:0] rest_q, rest, rest_2;
  logic [1:0] two_q;
  logic unused_carry, unused_carry_2;
  assign {rest, unused_carry} = {rest_q[25:0], 2'd0} - {{1'b0, divisor_q} ^ {27{rest_q[26]}}, rest_q[26]};
  assign {rest_2, unused_carry_2} = {rest[25:0], 2'd0} - {{1'b0, divisor_q} ^ {27{rest[26]}}, rest[26]};

  // A digit of the square root behind them, in the same way: less 4 * root + 1, or 4 * root + 3 more.
  logic take_q;
  logic [18:0] root_q;
  logic [21:0] remainder_q, remainder;
  assign remainder = {remainder_q[19:0], two_q} - {{1'b0, root_q} ^ {20{remainder_q[21]}}, 2'b01};
  always_ff @(posedge clk_i) begin
    rest_q <= turn_i ? 27'h400000 : rest_2;
    two_q <= ~{rest[26], rest_2[26]};
    take_q <= step != Last && step != Done;
    if (turn_i) begin
      root_q <= '0;
      remainder_q <= '0;
    end else if (take_q) begin
      root_q <= {root_q[17:0], !remainder[21]};
      remainder_q <= remainder;
    end
  end

  // R and q. A root of 2^18 is cut.
  logic [19:0] rounded;
  logic [7:0] exponent;
  assign rounded = {1'b0, root_q} + 20'd1;
  assign root_o = rounded[18] ? '1 : rounded[17:1];
  assign exponent = {3'd0, half_q} + {{2{offset_i[5]}}, offset_i};
  assign exponent_o = exponent[7] ? 5'd0 : exponent[6:5] != 2'd0 ? 5'd31 : exponent[4:0];

  logic unused;
  assign unused = &{1'b0, rounded, remainder_q, unused_carry, unused_carry_2};

endmodule
