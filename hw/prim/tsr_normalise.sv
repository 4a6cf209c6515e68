// SPDX-License-Identifier: Apache-2.0
// Normaliser: shifts significands left until the top bit is one, but by limit_i at most, and tells by how much. The
// limit is what stops a subnormal number's significand at the smallest exponent. Method: one pass over the powers of
// two from 32 down; each step shifts when the bits it would lose are zero and the limit allows it, which yields
// min(leading zeros, limit) because both are below 64.
//
// Lanes side by side: a significand stands in the low bits of 32 or 64 (Stride), limit and shift in 8 bits. Limited = 0
// says that all limits are 63.
// Combinational. valid_i = 0: outputs unspecified (and nothing is evaluated in simulation). Legal: 2 <= Width <= 64.
// The shift of an all-zero significand is unspecified; the significand stays zero.
module tsr_normalise #(
  parameter int unsigned Lanes   = 1,
  parameter int unsigned Width   = 48,
  parameter int unsigned Limited = 1,
  parameter int unsigned Stride  = Width > 32 ? 64 : 32
) (
  input  logic                    valid_i,
  input  logic [Stride*Lanes-1:0] significand_i,
  input  logic [8*Lanes-1:0]      limit_i,
  output logic [Stride*Lanes-1:0] significand_o,
  output logic [8*Lanes-1:0]      shift_o
);

  // Each step shifts by a power of two times a bit, not by a choice between words: simulators would branch on that.
  always_comb begin
    logic [Width-1:0] significand;
    logic [5:0] room, amount;
    logic take;
    significand_o = 'x;
    shift_o       = 'x;
    significand   = 'x;
    room          = 'x;
    amount        = 'x;
    take          = 1'bx;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        significand = significand_i[Stride*l+:Width];
        room = limit_i[8*l+:6];
        for (int unsigned k = 0; k < 6; k++) begin
          if ((32 >> k) < Width) begin
            take = ((significand >> (Width - (32 >> k))) == '0) & (Limited == 0 || room >= 6'(32 >> k));
            amount = {take, 5'd0} >> k;
            significand = significand << amount;
            room = room - amount;
          end
        end
        significand_o[Stride*l+:Stride] = Stride'(significand);
        shift_o[8*l+:8] = limit_i[8*l+:8] - {2'd0, room};
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, significand_i, limit_i};

endmodule
