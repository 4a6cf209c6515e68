// SPDX-License-Identifier: Apache-2.0
// tsr_round_saturate beside the two roundings that it replaces, for a proof that they are equal (hw/synth/check.py).
// Enters: anything; bounds that cross are taken the other way round. Leaves: equal_o.
//
// The reference rounds as its words say: the magnitude to 24 significant bits, half to even, then to an integer, half
// to even, then the sign, which Scaled may change, the bounds, the zero point. A number enters with the sticky bit as its lowest bit. That bit
// stands for anything between nothing and one unit. It decides as such wherever two or more bits are rounded away, and a
// magnitude below one half, for which that does not hold, is 0 in any case: binary32 rounds it to one half at most, and
// half to even is 0.
module equal_rounding #(
  parameter int unsigned Rounding  = 0,
  parameter int unsigned Scaled    = 0,
  localparam int unsigned Bits     = 36,  // 10 of an integer, 25 of a fraction, the sticky bit
  localparam int unsigned Fraction = 26
) (
  input  logic [34:0]       fixed_i,
  input  logic              lost_i,
  input  logic              negate_i,
  input  logic signed [9:0] bound_i,
  input  logic signed [9:0] other_bound_i,
  input  logic signed [8:0] zero_i,
  output logic              equal_o
);

  logic signed [9:0] low, high;
  assign low = bound_i < other_bound_i ? bound_i : other_bound_i;
  assign high = bound_i < other_bound_i ? other_bound_i : bound_i;

  logic valid;
  logic [10:0] made;
  tsr_round_saturate #(.Rounding(Rounding), .Scaled(Scaled)) u_made (
    .clk_i(1'b0), .rst_ni(1'b1), .enable_i(1'b1), .low_i(low), .high_i(high), .zero_i, .valid_i(1'b1), .fixed_i,
    .lost_i, .far_i(1'b0), .negate_i, .special_i(1'b0), .nan_i(1'b0), .valid_o(valid), .value_o(made)
  );

  // The magnitude, and which of its bits is the leading one, of those from one half on.
  logic [Bits-1:0] number, magnitude;
  assign number = {fixed_i, lost_i};
  assign magnitude = number[Bits-1] ? -number : number;

  // Each leading bit that is possible has its own rounding; one of them is taken.
  logic [Bits:0] single[Fraction-1:Bits];
  assign single[Fraction-1] = '0;
  for (genvar lead = Fraction - 1; lead < Bits; lead++) begin : gen_lead
    localparam int unsigned Away = lead - 23;  // bits that are rounded away
    logic half, rest, odd;
    assign half = magnitude[Away-1];
    assign rest = magnitude[Away-2:0] != '0;
    assign odd = magnitude[Away];
    logic [Bits-Away:0] kept;
    assign kept = {1'b0, magnitude[Bits-1:Away]} + {{(Bits - Away) {1'b0}}, half && (rest || odd)};
    assign single[lead+1] = magnitude[lead] ? {kept, {Away{1'b0}}} : single[lead];
  end

  logic [Bits:0] last;
  assign last = single[Bits];
  logic [Bits-Fraction:0] whole;
  logic signed [Bits-Fraction+1:0] rounded;
  assign whole = last[Bits:Fraction] + {{(Bits - Fraction) {1'b0}},
                                        last[Fraction-1] && (last[Fraction-2:0] != '0 || last[Fraction])};
  assign rounded = number[Bits-1] != (Scaled != 0 && negate_i) ? -$signed({1'b0, whole}) : $signed({1'b0, whole});
  logic signed [10:0] clamped, wanted;
  assign clamped = rounded > 12'(high) ? 11'(high)
                 : rounded < 12'(low) ? 11'(low) : rounded[10:0];
  assign wanted = clamped + 11'(zero_i);
  assign equal_o = valid && made == wanted;

endmodule
