// SPDX-License-Identifier: Apache-2.0
// A delay line: data_i leaves at data_o after Stages enabled clocks. It carries what travels beside an arithmetic unit
// (an operand of a later unit) over that unit's latency.
//
// Latency: Stages enabled cycles, 0 is a wire. Throughput: one word a cycle. Back-pressure: enable_i = 0 holds. Reset:
// none, the content is data. Legal: Width >= 1.
module tsr_delay #(
  parameter int unsigned Width  = 1,
  parameter int unsigned Stages = 1
) (
  input  logic             clk_i,
  input  logic             enable_i,
  input  logic [Width-1:0] data_i,
  output logic [Width-1:0] data_o
);

  if (Stages == 0) begin : gen_wire
    assign data_o = data_i;
    logic unused;
    assign unused = &{1'b0, clk_i, enable_i};
  end else if (Stages == 1) begin : gen_register
    logic [Width-1:0] line_q;
    always_ff @(posedge clk_i) begin
      if (enable_i) line_q <= data_i;
    end
    assign data_o = line_q;
  end else begin : gen_line
    logic [Stages*Width-1:0] line_q;
    always_ff @(posedge clk_i) begin
      if (enable_i) line_q <= {line_q[(Stages-1)*Width-1:0], data_i};
    end
    assign data_o = line_q[Stages*Width-1-:Width];
  end

endmodule
