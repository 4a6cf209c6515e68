// SPDX-License-Identifier: Apache-2.0
// A memory that is written in words with byte enables and read byte by byte, written so that synthesis infers a block RAM
// whose two ports have different widths: then no choice of a byte stands behind its answer. A memory without such ports
// reads a word and chooses.
//
// Latency: rdata_o in the cycle after re_i; after clear_i, which comes without re_i, it is 0. Throughput: one read and one write a
// cycle. A byte that is read in the cycle in which it is written means nothing (no_rw_check), but with Parity. Reset: none,
// the content is data. Legal: Bytes a power of two from 2 on. With Parity each byte has a ninth bit, which the writer gives (tsr_ram_parity). A read
// checks its byte: error_o two cycles after re_i. Memory that was never written must be zero then.
module tsr_ram_bytes #(
  parameter int unsigned Bytes  = 8,   // of a word
  parameter int unsigned Words  = 512,
  parameter int unsigned Parity = 0,
  localparam int unsigned ByteBits = $clog2(Bytes),
  localparam int unsigned WordBits = Words > 1 ? $clog2(Words) : 1,
  localparam int unsigned AddressBits = WordBits + ByteBits
) (
  input  logic                   clk_i,
  input  logic                   re_i,
  input  logic                   clear_i,
  input  logic [AddressBits-1:0] raddr_i,
  output logic [7:0]             rdata_o,
  output logic                   rparity_o,  // as it was written; without Parity 0
  output logic                   error_o,
  input  logic [WordBits-1:0]    waddr_i,
  input  logic [8*Bytes-1:0]     wdata_i,
  input  logic [Bytes-1:0]       wparity_i,
  input  logic [Bytes-1:0]       wbe_i
);

  localparam int unsigned Bits = Parity != 0 ? 9 : 8;
  (* ram_style = "block", no_rw_check = Parity == 0 *) logic [Bits-1:0] mem[Bytes*Words];
  logic [Bits-1:0] rdata_q;

  always_ff @(posedge clk_i) begin
    if (clear_i) rdata_q <= '0;
    else if (re_i) rdata_q <= mem[raddr_i];
  end
  always_ff @(posedge clk_i) begin
    for (int unsigned b = 0; b < Bytes; b++) begin
      if (wbe_i[b]) mem[{waddr_i, ByteBits'(b)}] <= Bits'({wparity_i[b], wdata_i[8*b+:8]});
    end
  end
  assign rdata_o = rdata_q[7:0];
  assign rparity_o = Parity != 0 && rdata_q[Bits-1];

  if (Parity != 0) begin : gen_parity
    tsr_ram_check #(.Bytes(1)) u_check (.clk_i, .read_i(re_i), .word_i(rdata_o), .parity_i(rparity_o), .error_o);
  end else begin : gen_no_parity
    logic unused;
    assign unused = &{1'b0, wparity_i};
    assign error_o = 1'b0;
  end

endmodule
