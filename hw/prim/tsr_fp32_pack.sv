// SPDX-License-Identifier: Apache-2.0
// Rounds a normalised significand to 24 bits and packs an IEEE 754 binary32 number: round half to even, subnormal
// results, overflow to infinity, or the given special value. Enters: sign, the biased exponent of the significand's top
// bit (at least 1; a zero top bit is then a subnormal number or zero), 24 bits, a guard and a sticky bit. Method: the
// increment runs through fraction and exponent field together, so that a carry makes the next binade, the first normal
// number or infinity by itself.
//
// Combinational. valid_i = 0: output unspecified (and nothing is evaluated in simulation). Legal: exponent_i in 1..510.
// Rounding 0 and FlushSubnormals 0 are the arithmetic of the machine; Rounding 1 (truncate), Rounding 2 (half away from
// zero) and FlushSubnormals 1 (results) exist so that tests can show that they would be noticed.
module tsr_fp32_pack #(
  parameter int unsigned Rounding        = 0,
  parameter int unsigned FlushSubnormals = 0
) (
  input  logic        valid_i,
  input  logic        sign_i,
  input  logic [8:0]  exponent_i,
  input  logic [25:0] significand_i,
  input  logic        special_i,
  input  logic [31:0] special_value_i,
  output logic [31:0] result_o
);

  logic        round_up;
  logic [31:0] magnitude;  // exponent field of 9 bits and fraction

  always_comb begin
    result_o  = 'x;
    round_up  = 1'bx;
    magnitude = 'x;
    if (valid_i) begin
      round_up = significand_i[1] & (significand_i[0] | significand_i[2]);
      if (Rounding == 1) round_up = 1'b0;
      if (Rounding == 2) round_up = significand_i[1];
      magnitude = {significand_i[25] ? exponent_i : 9'd0, significand_i[24:2]} + 32'(round_up);
      if (FlushSubnormals != 0 && magnitude[31:23] == 9'd0) magnitude = 32'd0;
      if (special_i) result_o = special_value_i;
      else if (magnitude[31:23] >= 9'd255) result_o = {sign_i, 8'hff, 23'd0};
      else result_o = {sign_i, magnitude[30:0]};
    end
  end

endmodule
