// SPDX-License-Identifier: Apache-2.0
// A memory with one read and one write port and byte enables, written so that synthesis infers block RAM. The simulator
// gets the same writes in a form that copies one word.
//
// Latency: rdata_o in the cycle after re_i. Throughput: one read and one write a cycle. A byte that is read in the cycle
// in which it is written means nothing (no_rw_check), and the simulator gives it wrong; with Parity it is the old one, as
// all that is read is checked. Reset: none, the content is data. Legal: Width a multiple of 8. Nothing but wbe_i says
// that something is written: so a write has no gates in here, of which each copy would have its own.
// With Parity each byte has a ninth bit, which a block RAM has anyway; the writer gives it (tsr_ram_parity). A read checks
// the whole word: error_o two cycles after re_i. Memory that was never written must be zero then.
module tsr_ram_1r1w #(
  parameter int unsigned Width = 64,
  parameter int unsigned Depth = 16,
  parameter int unsigned Parity = 0,
  localparam int unsigned AddressBits = Depth > 1 ? $clog2(Depth) : 1
) (
  input  logic                   clk_i,
  input  logic                   re_i,
  input  logic [AddressBits-1:0] raddr_i,
  output logic [Width-1:0]       rdata_o,
  output logic [Width/8-1:0]     rparity_o,  // as it was written; without Parity 0
  output logic                   error_o,
  input  logic [AddressBits-1:0] waddr_i,
  input  logic [Width-1:0]       wdata_i,
  input  logic [Width/8-1:0]     wparity_i,
  input  logic [Width/8-1:0]     wbe_i
);

  localparam int unsigned Bytes = Width / 8;

`ifdef VERILATOR
  logic [Width-1:0] mem[Depth]  /* verilator public_flat_rw */;
  logic [Width-1:0] rdata_q;
  // What stands beside it in hardware, a bit a byte.
  logic [Parity != 0 ? Bytes-1 : 0 : 0] parity_mem[Parity != 0 ? Depth : 1]  /* verilator public_flat_rw */;

  always_ff @(posedge clk_i) begin
    if (re_i) rdata_q <= mem[raddr_i];
`ifndef YOSYS  // which proves that the other form is equal but for this
    if (Parity == 0 && re_i && wbe_i != '0 && raddr_i == waddr_i) begin
      for (int unsigned b = 0; b < Bytes; b++) if (wbe_i[b]) rdata_q[8*b+:8] <= mem[raddr_i][8*b+:8] ^ 8'hA7;
    end
`endif
  end
  assign rdata_o = rdata_q;

  logic [Width-1:0] merged;  // read by nothing but the statement after it
  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (wbe_i != '0) begin
      merged = mem[waddr_i];
      for (int unsigned b = 0; b < Bytes; b++) begin
        if (wbe_i[b]) merged[8*b+:8] = wdata_i[8*b+:8];
      end
      mem[waddr_i] <= merged;
    end
  end
  /* verilator lint_on BLKSEQ */

  if (Parity != 0) begin : gen_parity_mem
    always_ff @(posedge clk_i) begin
      if (re_i) rparity_o <= parity_mem[raddr_i];
      if (wbe_i != '0) parity_mem[waddr_i] <= (parity_mem[waddr_i] & ~wbe_i) | (wparity_i & wbe_i);
    end
  end else begin : gen_no_parity_mem
    assign rparity_o = '0;
  end
`else
  localparam int unsigned ByteBits = Parity != 0 ? 9 : 8;
  (* ram_style = "block", no_rw_check = Parity == 0 *) logic [ByteBits*Bytes-1:0] mem[Depth];
  logic [ByteBits*Bytes-1:0] rdata_q;

  always_ff @(posedge clk_i) begin
    if (re_i) rdata_q <= mem[raddr_i];
  end
  always_ff @(posedge clk_i) begin
    for (int unsigned b = 0; b < Bytes; b++) begin
      if (wbe_i[b]) mem[waddr_i][ByteBits*b+:ByteBits] <= ByteBits'({wparity_i[b], wdata_i[8*b+:8]});
    end
  end
  always_comb begin
    for (int unsigned b = 0; b < Bytes; b++) begin
      rdata_o[8*b+:8] = rdata_q[ByteBits*b+:8];
      rparity_o[b] = Parity != 0 && rdata_q[ByteBits*b+ByteBits-1];
    end
  end
`endif

  if (Parity != 0) begin : gen_parity
    tsr_ram_check #(.Bytes(Bytes)) u_check (.clk_i, .read_i(re_i), .word_i(rdata_o), .parity_i(rparity_o), .error_o);
  end else begin : gen_no_parity
    logic unused;
    assign unused = &{1'b0, wparity_i};
    assign error_o = 1'b0;
  end

endmodule
