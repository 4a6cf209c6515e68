// SPDX-License-Identifier: Apache-2.0
// Right shift that forgets nothing a rounding needs: the bits shifted out are ORed into bit 0 (the sticky bit). Aligns
// addends, denormalises products, finds the integer part of a number. Method: a barrel shifter beside a mask of the
// dropped bits.
//
// Lanes side by side: data stand in the low bits of 32 or 64 (Stride), distances in 8 bits. Combinational. valid_i = 0:
// output unspecified (and nothing is evaluated in simulation). Legal: 2 <= Width <= 64; distances of Width or more
// leave the sticky bit alone.
module tsr_shift_sticky #(
  parameter int unsigned Lanes  = 1,
  parameter int unsigned Width  = 48,
  parameter int unsigned Stride = Width > 32 ? 64 : 32
) (
  input  logic                    valid_i,
  input  logic [Stride*Lanes-1:0] data_i,
  input  logic [8*Lanes-1:0]      distance_i,
  output logic [Stride*Lanes-1:0] data_o
);

  always_comb begin
    logic [Width-1:0] data, kept;
    logic [5:0] distance;
    data_o   = 'x;
    data     = 'x;
    kept     = 'x;
    distance = 'x;
    if (valid_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        data = data_i[Stride*l+:Width];
        distance = distance_i[8*l+:6];
        kept = data & ({Width{1'b1}} << distance);
        kept = (data >> distance) | Width'(kept != data);
        data_o[Stride*l+:Stride] = Stride'(kept);
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, data_i, distance_i};

endmodule
