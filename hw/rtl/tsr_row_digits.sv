// SPDX-License-Identifier: Apache-2.0
// What of a row takes digit after digit (isa/semantics.md): root and exponent of its moments. Enters: S1 and S2 with the
// instruction's length, shift, epsilon and offset. Leaves: R and q. Method: one accumulator takes the 48 digits of V = ((length * S2 - S1 * S1) <<
// shift) + epsilon from the highest on: it doubles in each cycle, takes epsilon's digit behind its last place, and adds S2,
// -S1 or both where the digits of length and S1 say so, `shift` cycles late. S1's sign counts in all digits above its own,
// as in 48 bits of two's complement. Then V finds its place. H = floor(sqrt(floor(2^60 / W))): each two digits of
// the quotient are the square root's next two, so that no quotient is kept.
//
// start_i with its operands, which hold until done_o, whose results hold until the next start. Latency: 48 cycles for
// V, 2, one for each place that V is moved, 41 for the root. Reset: synchronous, active low, to idle.
module tsr_row_digits (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        start_i,
  input  logic [20:0] sum_i,
  input  logic [27:0] squares_i,
  input  logic [12:0] length_i,
  input  logic [4:0]  shift_i,
  input  logic [47:0] epsilon_i,
  input  logic [5:0]  offset_i,
  output logic        done_o,
  output logic [16:0] root_o,
  output logic [4:0]  exponent_o
);

  localparam logic [2:0] Idle = 3'd0, Multiply = 3'd1, Place = 3'd2, Divide = 3'd3, Last = 3'd4;
  logic [2:0] state_q;
  logic [5:0] count_q;
  logic pair_q, upper_q;
  logic [5:0] places_q;  // 2 * k, and 1 between two places
  logic [47:0] total_q;  // later the divisor: its upper 26 bits

  // The accumulator. The digits stand in registers, a cycle after they are chosen; count_q and index_q are those of the
  // next ones. The first digit of length is 0, as the shift is at most 16, and the first one of S1 is its sign.
  logic signed [6:0] index_q;
  logic signed [29:0] difference_q;  // S2 - S1
  logic [31:0] sum_digits, length_digits;
  logic length_digit_q, sum_digit_q, epsilon_digit_q, placed, unused_carry;
  logic [47:0] addend, doubled;
  assign sum_digits = {{11{sum_i[20]}}, sum_i};
  assign length_digits = {19'd0, length_i};
  always_ff @(posedge clk_i) begin
    if (state_q == Multiply && count_q != '1) begin
      length_digit_q <= index_q[6:5] == 2'd0 && length_digits[index_q[4:0]];
      sum_digit_q <= !index_q[6] && (index_q[5] ? sum_i[20] : sum_digits[index_q[4:0]]);
      epsilon_digit_q <= epsilon_i[count_q];
    end else begin
      length_digit_q <= 1'b0;
      sum_digit_q <= state_q == Idle && sum_i[20];
      epsilon_digit_q <= state_q == Idle && epsilon_i[47];
    end
  end
  always_comb begin
    case ({length_digit_q, sum_digit_q})
      2'd0: addend = '0;
      2'd1: addend = ~{{27{sum_i[20]}}, sum_i};
      2'd2: addend = {20'd0, squares_i};
      default: addend = 48'(difference_q);
    endcase
  end
  assign {doubled, unused_carry} = {total_q[46:0], epsilon_digit_q, 1'b1} + {addend, sum_digit_q && !length_digit_q};
  assign placed = total_q[47:46] != 2'd0 || places_q == 6'd2;

  // A digit of the quotient.
  logic [25:0] rest_q;
  logic [26:0] rest, less;
  logic digit;
  assign rest = {rest_q, 1'b0};
  assign less = rest - {1'b0, total_q[47:22]};
  assign digit = !less[26];

  // A digit of the square root behind each two.
  logic [18:0] root_q;
  logic [18:0] remainder_q;
  logic [20:0] under;
  logic [21:0] trial;
  logic [1:0] two_q;
  logic take_q;
  assign under = {remainder_q, two_q};
  assign trial = {1'b0, under} - {1'b0, root_q, 2'b01};

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= Idle;
      done_o <= 1'b0;
      take_q <= 1'b0;
    end else begin
      done_o <= state_q == Last && !take_q;
      take_q <= state_q == Divide && pair_q;
      case (state_q)
        Idle: if (start_i) state_q <= Multiply;
        Multiply: if (count_q == '1) state_q <= Place;
        Place: if (placed && !places_q[0]) state_q <= Divide;
        Divide: if (count_q == 6'd0) state_q <= Last;
        default: if (!take_q) state_q <= Idle;
      endcase
    end
  end

  always_ff @(posedge clk_i) begin
    if (state_q == Idle) total_q <= '0;
    else if (state_q == Multiply || (state_q == Place && !(placed && !places_q[0]))) total_q <= doubled;
    if (state_q == Place && places_q == 6'd2 && total_q[47:46] == 2'd0) total_q[46] <= 1'b1;  // V = 0 counts as 1
  end
  always_ff @(posedge clk_i) begin
    difference_q <= 30'({1'b0, squares_i}) - 30'($signed(sum_i));
    index_q <= state_q == Idle ? 7'sd46 - 7'(shift_i) : index_q - 7'sd1;
    case (state_q)
      Idle: begin
        rest_q <= 26'h800000;
        count_q <= 6'd46;
        if (start_i) places_q <= 6'd48;
      end
      Multiply: count_q <= count_q - 6'd1;
      Place: begin
        if (!placed || places_q[0]) places_q <= places_q - 6'd1;
        count_q <= 6'd36;
      end
      Divide: begin
        rest_q <= digit ? less[25:0] : rest[25:0];
        count_q <= count_q - 6'd1;
        upper_q <= digit;
        two_q <= {upper_q, digit};
      end
      default: ;
    endcase
    // The first digit stands alone in its pair.
    if (state_q != Divide) begin
      pair_q <= 1'b1;
      if (state_q != Last) upper_q <= 1'b0;
    end else begin
      pair_q <= !pair_q;
    end
    if (start_i) begin
      root_q <= '0;
      remainder_q <= '0;
    end else if (take_q) begin
      root_q <= {root_q[17:0], !trial[21]};
      remainder_q <= trial[21] ? under[18:0] : trial[18:0];
    end
  end

  // R and q. A root of 2^18 is cut.
  logic [19:0] rounded;
  logic [7:0] exponent;
  assign rounded = {1'b0, root_q} + 20'd1;
  assign root_o = rounded[18] ? '1 : rounded[17:1];
  assign exponent = {3'd0, places_q[5:1]} + {{2{offset_i[5]}}, offset_i};
  assign exponent_o = exponent[7] ? 5'd0 : exponent[6:5] != 2'd0 ? 5'd31 : exponent[4:0];

  logic unused;
  assign unused = &{1'b0, rounded, trial};

endmodule
