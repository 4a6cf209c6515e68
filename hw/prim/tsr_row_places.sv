// SPDX-License-Identifier: Apache-2.0
// How tsr_row_add shifts the smaller one of its operands: by a product with a power of two. Enters: by how many places,
// and whether by more than shift_i says. Leaves: the power, Reach less those places; far_o: beyond Reach places, of which
// Low are done outside then. Combinational: each bit is a function of six bits, which is one look-up table. Inside of
// tsr_row_add Yosys makes two or four of it.
module tsr_row_places #(
  parameter int unsigned Reach = 16,
  parameter int unsigned Low   = 9
) (
  input  logic           beyond_i,
  input  logic [4:0]     shift_i,
  output logic           far_o,
  output logic [Reach:0] power_o
);

  assign far_o = beyond_i || 32'(shift_i) > Reach;
  always_comb begin
    for (int unsigned k = 0; k <= Reach; k++)
      power_o[k] = !beyond_i && shift_i == 5'(k > Low || 32'(shift_i) <= Reach ? Reach - k : Reach + Low - k);
    if (beyond_i || 32'(shift_i) > Reach + Low) power_o[0] = 1'b1;
  end

endmodule
