// SPDX-License-Identifier: Apache-2.0
// Both forms of tsr_requantise side by side, for a proof that they are equal (hw/synth/check.py). Enters: anything;
// bounds that cross are taken the other way round. Leaves: equal_o.
module equal_requantise (
  input  logic [31:0]       value_i,
  input  logic [31:0]       bias_i,
  input  logic [31:0]       scale_i,
  input  logic              convert_i,
  input  logic signed [9:0] bound_i,
  input  logic signed [9:0] other_bound_i,
  input  logic signed [8:0] zero_i,
  output logic              equal_o
);

  logic signed [9:0] low, high;
  assign low = bound_i < other_bound_i ? bound_i : other_bound_i;
  assign high = bound_i < other_bound_i ? other_bound_i : bound_i;

  logic made_valid, plain_valid;
  logic [10:0] made, plain;
  tsr_requantise u_made (
    .clk_i(1'b0), .rst_ni(1'b1), .enable_i(1'b1), .low_i(low), .high_i(high), .zero_i, .valid_i(1'b1), .convert_i,
    .value_i, .bias_i, .scale_i, .valid_o(made_valid), .value_o(made)
  );
  tsr_requantise_plain u_plain (
    .clk_i(1'b0), .rst_ni(1'b1), .enable_i(1'b1), .low_i(low), .high_i(high), .zero_i, .valid_i(1'b1), .convert_i,
    .value_i, .bias_i, .scale_i, .valid_o(plain_valid), .value_o(plain)
  );
  assign equal_o = made_valid && plain_valid && made == plain;

endmodule
