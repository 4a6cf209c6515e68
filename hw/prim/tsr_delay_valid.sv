// SPDX-License-Identifier: Apache-2.0
// The valid bit's companion of tsr_delay: a delay line with reset. valid_i leaves at valid_o after Stages enabled
// clocks.
//
// Latency: Stages enabled cycles, 0 is a wire. Throughput: one bit a cycle. Back-pressure: enable_i = 0 holds. Reset:
// synchronous, active low, to 0; it wins over enable_i.
module tsr_delay_valid #(
  parameter int unsigned Stages = 1
) (
  input  logic clk_i,
  input  logic rst_ni,
  input  logic enable_i,
  input  logic valid_i,
  output logic valid_o
);

  if (Stages == 0) begin : gen_wire
    assign valid_o = valid_i;
    logic unused;
    assign unused = &{1'b0, clk_i, rst_ni, enable_i};
  end else begin : gen_line
    logic [Stages-1:0] line_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) line_q <= '0;
      else if (enable_i) line_q <= Stages'({line_q, valid_i});
    end
    assign valid_o = line_q[Stages-1];
  end

endmodule
