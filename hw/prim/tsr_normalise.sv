// SPDX-License-Identifier: Apache-2.0
// Normaliser: shifts a significand left until its top bit is one, but by limit_i at most, and tells by how much. The
// limit is what stops a subnormal number's significand at the smallest exponent. Method: one pass over the powers of
// two from 32 down; each step shifts when the bits it would lose are zero and the limit allows it, which yields
// min(leading zeros, limit) because both are below 64.
//
// Combinational. valid_i = 0: outputs unspecified (and nothing is evaluated in simulation). Legal: 2 <= Width <= 64.
// The shift of an all-zero significand is unspecified; the significand stays zero.
module tsr_normalise #(
  parameter int unsigned Width = 48
) (
  input  logic             valid_i,
  input  logic [Width-1:0] significand_i,
  input  logic [5:0]       limit_i,
  output logic [Width-1:0] significand_o,
  output logic [5:0]       shift_o
);

  always_comb begin
    significand_o = 'x;
    shift_o       = 'x;
    if (valid_i) begin
      significand_o = significand_i;
      shift_o       = 6'd0;
      for (int unsigned step = 32; step > 0; step = step / 2) begin
        if (step < Width) begin
          if ((significand_o >> (Width - step)) == '0 && limit_i - shift_o >= 6'(step)) begin
            significand_o = significand_o << step;
            shift_o       = shift_o + 6'(step);
          end
        end
      end
    end
  end

endmodule
