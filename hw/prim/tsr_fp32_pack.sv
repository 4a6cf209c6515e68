// SPDX-License-Identifier: Apache-2.0
// Rounds normalised significands to 24 bits and packs IEEE 754 binary32 numbers: round half to even, subnormal results,
// overflow to infinity, NaN. Enters, 64 bits a lane: [25:0] the significand (24 bits, a guard and a sticky bit), [34:26]
// the biased exponent of its top bit (at least 1; a zero top bit is then a subnormal number or zero), [35] the sign,
// [36] NaN, [37] infinite, other bits 0. Method: the increment runs through fraction and exponent field together, so
// that a carry makes the next binade, the first normal number or infinity by itself.
//
// Combinational. valid_i = 0: output unspecified (and nothing is evaluated in simulation). Legal: exponents 1..510.
// Rounding 0 and FlushSubnormals 0 are the arithmetic of the machine; Rounding 1 (truncate), Rounding 2 (half away from
// zero) and FlushSubnormals 1 (results) exist so that tests can show that they would be noticed.
module tsr_fp32_pack #(
  parameter int unsigned Lanes           = 1,
  parameter int unsigned Rounding        = 0,
  parameter int unsigned FlushSubnormals = 0
) (
  input  logic                valid_i,
  input  logic [64*Lanes-1:0] unrounded_i,
  output logic [32*Lanes-1:0] result_o
);

  always_comb begin
    logic [25:0] significand;
    logic        round_up, is_infinite;
    logic [31:0] magnitude;  // exponent field of 9 bits and fraction
    result_o    = 'x;
    significand = 'x;
    round_up    = 1'bx;
    is_infinite = 1'bx;
    magnitude   = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        significand = unrounded_i[64*l+:26];
        round_up = significand[1] & (significand[0] | significand[2]);
        if (Rounding == 1) round_up = 1'b0;
        if (Rounding == 2) round_up = significand[1];
        magnitude = {significand[25] ? unrounded_i[64*l+26+:9] : 9'd0, significand[24:2]} + 32'(round_up);
        if (FlushSubnormals != 0 && magnitude[31:23] == 9'd0) magnitude = 32'd0;
        is_infinite = unrounded_i[64*l+37] | (magnitude[31:23] >= 9'd255);
        magnitude = is_infinite ? {unrounded_i[64*l+35], 31'h7f800000} : {unrounded_i[64*l+35], magnitude[30:0]};
        result_o[32*l+:32] = unrounded_i[64*l+36] ? 32'h7fc00000 : magnitude;
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, unrounded_i};

endmodule
