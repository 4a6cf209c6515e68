// SPDX-License-Identifier: Apache-2.0
// Clamps signed integers to int16 bounds: min(max(value_i, low_i), high_i) -> result_o.
//
// Lanes side by side: values in the low bits of 32, results in 16; the bounds are common. Combinational. valid_i = 0:
// output unspecified (and nothing is evaluated in simulation). Legal: 16 <= Width <= 32. Bounds in the wrong order give
// high_i.
module tsr_saturate #(
  parameter int unsigned Lanes = 1,
  parameter int unsigned Width = 32
) (
  input  logic                valid_i,
  input  logic [32*Lanes-1:0] value_i,
  input  logic signed [15:0]  low_i,
  input  logic signed [15:0]  high_i,
  output logic [16*Lanes-1:0] result_o
);

  always_comb begin
    logic signed [Width-1:0] value, low, high;
    result_o = 'x;
    value    = 'x;
    low      = 'x;
    high     = 'x;
    if (valid_i) begin
      low  = Width'(low_i);
      high = Width'(high_i);
      for (int unsigned l = 0; l < Lanes; l++) begin
        value = value_i[32*l+:Width];
        value = value < low ? low : value;
        value = value > high ? high : value;
        result_o[16*l+:16] = value[15:0];
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, value_i};

endmodule
