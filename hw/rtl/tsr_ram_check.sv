// SPDX-License-Identifier: Apache-2.0
// Whether a word comes from a block RAM as it was written: each byte has one bit that makes the number of ones even.
// Enters: the word and its bits, in the cycle after read_i. Leaves: whether any byte is wrong.
//
// Latency: two cycles from read_i. Throughput: a word a cycle. Reset: none; within two cycles error_o is that of reads.
// Timing: from a block RAM's output an exclusive or of nine bits and an or of four; behind the register an or.
module tsr_ram_check #(
  parameter int unsigned Bytes = 8
) (
  input  logic               clk_i,
  input  logic               read_i,
  input  logic [8*Bytes-1:0] word_i,
  input  logic [Bytes-1:0]   parity_i,
  output logic               error_o
);

  localparam int unsigned PartBytes = 4;
  localparam int unsigned Parts = (Bytes + PartBytes - 1) / PartBytes;
  logic read_q;
  logic [Parts-1:0] wrong, wrong_q;

  always_comb begin
    wrong = '0;
    if (!tsr_isa_pkg::Simulated || read_q) begin
      for (int unsigned b = 0; b < Bytes; b++) begin
        if (^{word_i[8*b+:8], parity_i[b]}) wrong[b/PartBytes] = 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    read_q <= read_i;
    wrong_q <= read_q ? wrong : '0;
  end
  assign error_o = wrong_q != '0;

endmodule
