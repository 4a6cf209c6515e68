// SPDX-License-Identifier: Apache-2.0
// The product of two signed numbers in look-up tables and carry chains, for small products of which there are many where
// DSP slices are scarce. Enters: two signed numbers, and one of two bits that is added, for which the first row has
// room. Leaves: the exact sum of product and addend. Method: two bits of the second number,
// with the bit below them, choose 0, the first number or its double, or the opposite of these (Booth); each choice and
// its addition are one look-up table a bit.
//
// Latency: combinational. Timing: an addition for every two bits of the second number. Legal: Width and ByWidth at least
// 2, ByWidth even.
module tsr_lut_multiply #(
  parameter int unsigned Width   = 9,
  parameter int unsigned ByWidth = 8
) (
  input  logic [Width-1:0]         value_i,
  input  logic [ByWidth-1:0]       by_i,
  input  logic [1:0]               addend_i,
  output logic [Width+ByWidth-1:0] product_o
);

  if (Width < 2 || ByWidth < 2 || ByWidth % 2 != 0) $error("tsr_lut_multiply: Width and ByWidth are at least 2, ByWidth even");

  // A partial sum less the two bits that leave it each row is within one and a half times the value's double.
  localparam int unsigned RowBits = Width + 2;
  logic [Width:0] value;
  logic [ByWidth:0] by;
  assign value = {value_i[Width-1], value_i};
  assign by = {by_i, 1'b0};

  for (genvar r = 0; r < ByWidth / 2; r++) begin : gen_row
    logic [Width:0] chosen;
    logic [RowBits-1:0] carried, row;
    logic [RowBits:0] sum;
    logic unused_sum;
    // The opposite is the complement, and one more: below the lowest bit it comes in as a carry. The sum is written as a
    // difference from the complement, of which Yosys puts the first operand on the carry chain directly.
    always_comb begin
      for (int unsigned i = 0; i <= Width; i++) begin
        chosen[i] = by[2*r+2] ^ ((value[i] && (by[2*r] ^ by[2*r+1])) ||
                                 (i > 0 && value[i > 0 ? i - 1 : 0] && (by[2*r+2] ^ by[2*r+1]) && !(by[2*r] ^ by[2*r+1])));
      end
    end
    if (r == 0) begin : gen_first
      assign carried = RowBits'(addend_i);
    end else begin : gen_next
      assign carried = {{2{gen_row[r-1].row[RowBits-1]}}, gen_row[r-1].row[RowBits-1:2]};
    end
    assign sum = {carried, by[2*r+2]} - {~{chosen[Width], chosen}, 1'b1};
    assign row = sum[RowBits:1];
    assign unused_sum = sum[0];
    if (r < ByWidth / 2 - 1) begin : gen_low
      assign product_o[2*r+:2] = row[1:0];
    end else begin : gen_high
      assign product_o[Width+ByWidth-1:2*r] = row;
    end
  end

endmodule
