// SPDX-License-Identifier: Apache-2.0
// A pipeline register that a parameter can remove. Data enter at data_i and leave at data_o one enabled clock later, or
// at once when Enabled is 0; arithmetic units place one at each of their cut points, so that a bit mask chooses the
// depth.
//
// Latency: 1 enabled cycle (Enabled = 1), 0 (Enabled = 0). Throughput: one word a cycle. Back-pressure: enable_i = 0
// holds. Reset: none, the content is data. Legal: Width >= 1, Enabled 0 or 1.
module tsr_pipe #(
  parameter int unsigned Width   = 1,
  parameter int unsigned Enabled = 1
) (
  input  logic             clk_i,
  input  logic             enable_i,
  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] data_o
);

  if (Enabled != 0) begin : gen_register
    logic [Width-1:0] data_q;
    always_ff @(posedge clk_i) begin
      if (enable_i) data_q <= data_i;
    end
    assign data_o = data_q;
  end else begin : gen_wire
    assign data_o = data_i;
    logic unused;
    assign unused = &{1'b0, clk_i, enable_i};
  end

endmodule
