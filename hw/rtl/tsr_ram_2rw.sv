// SPDX-License-Identifier: Apache-2.0
// A memory with two ports, A for reading and B for either, with byte enables on B, written so that synthesis infers
// true dual-port block RAM. The simulator gets the same writes in a form that copies one word.
//
// Latency: a_rdata_o and b_rdata_o in the cycle after a read. Throughput: one access a port and cycle. A read through A
// of the word that B writes in the same cycle returns the old word, and so does B itself: that is block RAM's read-first
// mode, the only one in which the other port's read is defined. Reset: none, the content is data. Legal: Width a
// multiple of 8.
module tsr_ram_2rw #(
  parameter int unsigned Width = 64,
  parameter int unsigned Depth = 16,
  localparam int unsigned AddressBits = Depth > 1 ? $clog2(Depth) : 1
) (
  input  logic                   clk_i,
  input  logic                   a_req_i,
  input  logic [AddressBits-1:0] a_addr_i,
  output logic [Width-1:0]       a_rdata_o,
  input  logic                   b_req_i,
  input  logic                   b_we_i,
  input  logic [AddressBits-1:0] b_addr_i,
  input  logic [Width-1:0]       b_wdata_i,
  input  logic [Width/8-1:0]     b_wbe_i,
  output logic [Width-1:0]       b_rdata_o
);

  (* ram_style = "block" *) logic [Width-1:0] mem[Depth]  /* verilator public_flat_rw */;
  logic [Width-1:0] a_rdata_q, b_rdata_q;

  always_ff @(posedge clk_i) begin
    if (a_req_i) a_rdata_q <= mem[a_addr_i];
  end

  always_ff @(posedge clk_i) begin
    if (b_req_i) b_rdata_q <= mem[b_addr_i];
  end

`ifdef VERILATOR
  logic [Width-1:0] merged;  // read by nothing but the statement after it
  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (b_req_i && b_we_i) begin
      merged = mem[b_addr_i];
      for (int unsigned b = 0; b < Width / 8; b++) begin
        if (b_wbe_i[b]) merged[8*b+:8] = b_wdata_i[8*b+:8];
      end
      mem[b_addr_i] <= merged;
    end
  end
  /* verilator lint_on BLKSEQ */
`else
  always_ff @(posedge clk_i) begin
    if (b_req_i && b_we_i) begin
      for (int unsigned b = 0; b < Width / 8; b++) begin
        if (b_wbe_i[b]) mem[b_addr_i][8*b+:8] <= b_wdata_i[8*b+:8];
      end
    end
  end
`endif

  assign a_rdata_o = a_rdata_q;
  assign b_rdata_o = b_rdata_q;

endmodule
