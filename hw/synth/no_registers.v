// SPDX-License-Identifier: Apache-2.0
// For Yosys' techmap: registers and delay lines become wires, so that a pipeline becomes the function that it computes
// (hw/synth/check.py). What is lost is when operands meet; that is for simulation to test.
(* techmap_celltype = "$dff" *)
module no_dff #(parameter WIDTH = 1, parameter CLK_POLARITY = 1) (
  input CLK, input [WIDTH-1:0] D, output [WIDTH-1:0] Q
);
  assign Q = D;
endmodule

(* techmap_celltype = "$dffe" *)
module no_dffe #(parameter WIDTH = 1, parameter CLK_POLARITY = 1, parameter EN_POLARITY = 1) (
  input CLK, input EN, input [WIDTH-1:0] D, output [WIDTH-1:0] Q
);
  assign Q = D;
endmodule

module tsr_delay #(parameter Width = 1, parameter Stages = 1) (
  input clk_i, input rst_ni, input enable_i, input valid_i, input [Width-1:0] data_i, output [Width-1:0] data_o
);
  assign data_o = data_i;
endmodule
