// SPDX-License-Identifier: Apache-2.0
// A memory with one read and one write port and byte enables, written so that synthesis infers block RAM. The simulator
// gets the same writes in a form that copies one word.
//
// Latency: rdata_o in the cycle after re_i. Throughput: one read and one write a cycle. A read of the word that is
// written in the same cycle returns the old word. Reset: none, the content is data. Legal: Width a multiple of 8.
module tsr_ram_1r1w #(
  parameter int unsigned Width = 64,
  parameter int unsigned Depth = 16,
  localparam int unsigned AddressBits = Depth > 1 ? $clog2(Depth) : 1
) (
  input  logic                   clk_i,
  input  logic                   re_i,
  input  logic [AddressBits-1:0] raddr_i,
  output logic [Width-1:0]       rdata_o,
  input  logic                   we_i,
  input  logic [AddressBits-1:0] waddr_i,
  input  logic [Width-1:0]       wdata_i,
  input  logic [Width/8-1:0]     wbe_i
);

  (* ram_style = "block" *) logic [Width-1:0] mem[Depth]  /* verilator public_flat_rw */;
  logic [Width-1:0] rdata_q;

  always_ff @(posedge clk_i) begin
    if (re_i) rdata_q <= mem[raddr_i];
  end

`ifdef VERILATOR
  logic [Width-1:0] merged;  // read by nothing but the statement after it
  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (we_i) begin
      merged = mem[waddr_i];
      for (int unsigned b = 0; b < Width / 8; b++) begin
        if (wbe_i[b]) merged[8*b+:8] = wdata_i[8*b+:8];
      end
      mem[waddr_i] <= merged;
    end
  end
  /* verilator lint_on BLKSEQ */
`else
  always_ff @(posedge clk_i) begin
    if (we_i) begin
      for (int unsigned b = 0; b < Width / 8; b++) begin
        if (wbe_i[b]) mem[waddr_i][8*b+:8] <= wdata_i[8*b+:8];
      end
    end
  end
`endif

  assign rdata_o = rdata_q;

endmodule
