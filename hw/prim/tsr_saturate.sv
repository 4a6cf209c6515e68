// SPDX-License-Identifier: Apache-2.0
// Clamps a signed integer to int16 bounds: min(max(value_i, low_i), high_i) -> result_o.
//
// Combinational. valid_i = 0: output unspecified (and nothing is evaluated in simulation). Legal: Width >= 16. Bounds
// in the wrong order give high_i.
module tsr_saturate #(
  parameter int unsigned Width = 32
) (
  input  logic                    valid_i,
  input  logic signed [Width-1:0] value_i,
  input  logic signed [15:0]      low_i,
  input  logic signed [15:0]      high_i,
  output logic signed [15:0]      result_o
);

  always_comb begin
    result_o = 'x;
    if (valid_i) begin
      if (high_i < low_i || value_i > Width'(high_i)) result_o = high_i;
      else if (value_i < Width'(low_i)) result_o = low_i;
      else result_o = value_i[15:0];
    end
  end

endmodule
