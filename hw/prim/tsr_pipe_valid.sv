// SPDX-License-Identifier: Apache-2.0
// The valid bit's companion of tsr_pipe: a register with reset that a parameter can remove. valid_i enters, valid_o
// leaves one enabled clock later, or at once when Enabled is 0.
//
// Latency: 1 enabled cycle (Enabled = 1), 0 (Enabled = 0). Throughput: one bit a cycle. Back-pressure: enable_i = 0
// holds. Reset: synchronous, active low, to 0; it wins over enable_i. Legal: Enabled 0 or 1.
module tsr_pipe_valid #(
  parameter int unsigned Enabled = 1
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic enable_i,
  input  logic valid_i,
  output logic valid_o
);

  if (Enabled != 0) begin : gen_register
    logic valid_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) valid_q <= 1'b0;
      else if (enable_i) valid_q <= valid_i;
    end
    assign valid_o = valid_q;
  end else begin : gen_wire
    assign valid_o = valid_i;
    logic unused;
    assign unused = &{1'b0, clk_i, rst_ni, enable_i};
  end

endmodule
