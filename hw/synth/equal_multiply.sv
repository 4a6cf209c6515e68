// SPDX-License-Identifier: Apache-2.0
// tsr_lut_multiply beside a multiplication and an addition, for a proof that they are equal (hw/synth/check.py). Enters: anything.
// Leaves: equal_o.
module equal_multiply #(
  parameter int unsigned Width   = 6,
  parameter int unsigned ByWidth = 6
) (
  input  logic [Width-1:0]   value_i,
  input  logic [ByWidth-1:0] by_i,
  input  logic [1:0]         addend_i,
  output logic               equal_o
);

  logic [Width+ByWidth-1:0] product;
  tsr_lut_multiply #(.Width(Width), .ByWidth(ByWidth)) u_made (
    .value_i, .by_i, .addend_i, .product_o(product)
  );
  assign equal_o = product == (Width + ByWidth)'($signed(value_i)) * (Width + ByWidth)'($signed(by_i)) +
                                (Width + ByWidth)'(addend_i);

endmodule
