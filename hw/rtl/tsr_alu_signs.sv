// SPDX-License-Identifier: Apache-2.0
// Which lanes of a vector of bytes from OUT or INP are negative. A module of its own for synthesis' sake: Yosys maps each
// module for the least depth, and would put this choice into each of the 24 bits that a sign fills, in two look-up tables
// each and not one. Simulators do without.
//
// Latency: none. Reset: none.
module tsr_alu_signs #(
  parameter int unsigned Lanes = 8
) (
  input  logic               signed_i,
  input  logic               from_out_i,
  input  logic [8*Lanes-1:0] out_i,
  input  logic [8*Lanes-1:0] inp_i,
  output logic [Lanes-1:0]   sign_o
);

  always_comb begin
    for (int unsigned l = 0; l < Lanes; l++) sign_o[l] = signed_i && (from_out_i ? out_i[8*l+7] : inp_i[8*l+7]);
  end
  logic unused;
  assign unused = &{1'b0, out_i, inp_i};

endmodule
