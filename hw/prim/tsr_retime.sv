// SPDX-License-Identifier: Apache-2.0
// Registers in a row, for synthesis to move into the logic in front of them. data_i and its valid bit leave Stages
// enabled clocks later. Where nothing is to be moved, tsr_delay takes less.
//
// Latency: Stages enabled cycles, 0 is a wire. Throughput: one word a cycle. Back-pressure: enable_i = 0 holds. busy_o: a
// valid word is inside. Reset: synchronous, active low, of the valid bits. data_o is unspecified where valid_o = 0. Legal:
// Width >= 1.
module tsr_retime #(
  parameter int unsigned Width  = 1,
  parameter int unsigned Stages = 0
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             enable_i,
  input  logic             valid_i,
  input  logic [Width-1:0] data_i,
  output logic             valid_o,
  output logic [Width-1:0] data_o,
  output logic             busy_o
);

  if (Stages == 0) begin : gen_wire
    assign valid_o = valid_i;
    assign data_o = data_i;
    assign busy_o = 1'b0;
    logic unused;
    assign unused = &{1'b0, clk_i, rst_ni, enable_i};
  end else begin : gen_registers
    logic [Stages-1:0] valid_q;
    logic [Width*Stages-1:0] data_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) valid_q <= '0;
      else if (enable_i) valid_q <= Stages'({valid_q, valid_i});
    end
    always_ff @(posedge clk_i) begin
      if (enable_i && valid_i) data_q[0+:Width] <= data_i;
      for (int unsigned s = 1; s < Stages; s++) begin
        if (enable_i && valid_q[s-1]) data_q[Width*s+:Width] <= data_q[Width*(s-1)+:Width];
      end
    end
    assign valid_o = valid_q[Stages-1];
    assign data_o = data_q[Width*(Stages-1)+:Width];
    assign busy_o = valid_q != '0;
  end

endmodule
