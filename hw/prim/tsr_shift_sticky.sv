// SPDX-License-Identifier: Apache-2.0
// Right shift that forgets nothing a rounding needs: the bits shifted out are ORed into bit 0 (the sticky bit). Aligns
// addends, denormalises products, finds the integer part of a number. Method: a barrel shifter beside a mask of the
// dropped bits.
//
// Combinational. valid_i = 0: output unspecified (and nothing is evaluated in simulation). Legal: 2 <= Width <= 64;
// distances of Width or more leave the sticky bit alone.
module tsr_shift_sticky #(
  parameter int unsigned Width = 48
) (
  input  logic             valid_i,
  input  logic [Width-1:0] data_i,
  input  logic [5:0]       distance_i,
  output logic [Width-1:0] data_o
);

  logic [Width-1:0] dropped;

  always_comb begin
    data_o  = 'x;
    dropped = 'x;
    if (valid_i) begin
      dropped = data_i & ~({Width{1'b1}} << distance_i);
      data_o  = (data_i >> distance_i) | Width'(dropped != '0);
    end
  end

endmodule
