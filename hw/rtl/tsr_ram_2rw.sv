// SPDX-License-Identifier: Apache-2.0
// A memory with two ports, A for reading and B for either, with byte enables on B, written so that synthesis infers
// true dual-port block RAM. The simulator gets the same writes in a form that copies one word.
//
// Latency: a_rdata_o and b_rdata_o in the cycle after a read. Throughput: one access a port and cycle. A byte that
// A reads in the cycle in which B writes it means nothing (no_rw_check), and the simulator gives it wrong; with
// Parity it is the old one, as all that is read is checked. What B reads in a cycle in which it writes means nothing.
// Reset: none, the content is data. Legal: Width a multiple of 8. With Parity each byte has a ninth bit, which a block
// RAM has anyway; the writer gives it (tsr_ram_parity). A read checks the whole word: a_error_o and b_error_o two
// cycles after it. Memory that was never written must be zero then. With Pairs a read through A names two neighbouring
// words, of which that of even address and that of odd address come side by side: the memory is two, of which each has
// half of the words. a_pair_i says that both are wanted; else the other one means nothing. With Pairs = 2 the memory is
// four, by address, and a_rows_i asks for a second pair from the other two, at a_above_i: both addresses are even then.
module tsr_ram_2rw #(
  parameter int unsigned Width = 64,
  parameter int unsigned Depth = 16,
  parameter int unsigned Parity = 0,
  parameter int unsigned Pairs = 0,
  localparam int unsigned Sides = Pairs == 2 ? 4 : Pairs == 1 ? 2 : 1,
  localparam int unsigned Shift = $clog2(Sides),
  localparam int unsigned AddressBits = Depth > 1 ? $clog2(Depth) : 1
) (
  input  logic                   clk_i,
  input  logic                   a_req_i,
  input  logic                   a_pair_i,
  input  logic                   a_rows_i,
  input  logic [AddressBits-1:0] a_addr_i,
  input  logic [AddressBits-1:0] a_above_i,
  output logic [Width*Sides-1:0] a_rdata_o,
  output logic                   a_error_o,
  input  logic                   b_req_i,
  input  logic                   b_we_i,
  input  logic [AddressBits-1:0] b_addr_i,
  input  logic [Width-1:0]       b_wdata_i,
  input  logic [Width/8-1:0]     b_wparity_i,
  input  logic [Width/8-1:0]     b_wbe_i,
  output logic [Width-1:0]       b_rdata_o,
  output logic                   b_error_o
);

  localparam int unsigned Bytes = Width / 8;
  logic [Bytes*Sides-1:0] a_parity;  // of what was read
  logic [Bytes-1:0] b_parity;

  // Which sides A reads, and the place of each side's word: behind the last side's that of the first one is the next.
  logic [Sides-1:0] a_reads;
  logic [AddressBits-1:0] a_next;
  logic [AddressBits-1:0] a_places[Sides];
  assign a_next = a_addr_i + AddressBits'(1);
  if (Pairs != 0) begin : gen_reads
    for (genvar k = 0; k < Sides; k++) begin : gen_place
      localparam int unsigned Before = (k + Sides - 1) % Sides;
      logic rows;
      assign rows = Pairs == 2 && a_rows_i;
      assign a_reads[k] = a_req_i && (rows || a_addr_i[Shift-1:0] == Shift'(k) ||
                                      (a_pair_i && a_addr_i[Shift-1:0] == Shift'(Before)));
      assign a_places[k] = (rows && a_addr_i[Shift-1] != 1'(k / 2) ? a_above_i : k == 0 && !rows ? a_next : a_addr_i) >> Shift;
    end
    logic unused_rows;
    assign unused_rows = &{1'b0, a_rows_i, a_above_i};
  end else begin : gen_read
    assign a_reads = a_req_i;
    assign a_places[0] = a_addr_i;
    logic unused_pair;
    assign unused_pair = &{1'b0, a_pair_i, a_rows_i, a_above_i, a_next};
  end

`ifdef VERILATOR
  logic [Width-1:0] mem[Depth]  /* verilator public_flat_rw */;
  logic [Width*Sides-1:0] a_rdata_q;
  logic [Width-1:0] b_rdata_q;
  // What stands beside it in hardware, a bit a byte.
  logic [Parity != 0 ? Bytes-1 : 0 : 0] parity_mem[Parity != 0 ? Depth : 1]  /* verilator public_flat_rw */;

  always_ff @(posedge clk_i) begin
    for (int unsigned k = 0; k < Sides; k++) begin
      if (a_reads[k]) a_rdata_q[Width*k+:Width] <= mem[(a_places[k]<<Shift)|AddressBits'(k)];
`ifndef YOSYS  // which proves that the other form is equal but for this
      if (Parity == 0 && a_reads[k] && b_req_i && b_we_i && ((a_places[k] << Shift) | AddressBits'(k)) == b_addr_i) begin
        for (int unsigned b = 0; b < Bytes; b++)
          if (b_wbe_i[b]) a_rdata_q[Width*k+8*b+:8] <= mem[b_addr_i][8*b+:8] ^ 8'hA7;
      end
`endif
    end
  end

  always_ff @(posedge clk_i) begin
    if (b_req_i) b_rdata_q <= mem[b_addr_i];
  end
  assign a_rdata_o = a_rdata_q;
  assign b_rdata_o = b_rdata_q;

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

  if (Parity != 0) begin : gen_parity_mem
    always_ff @(posedge clk_i) begin
      for (int unsigned k = 0; k < Sides; k++) begin
        if (a_reads[k]) a_parity[Bytes*k+:Bytes] <= parity_mem[(a_places[k]<<Shift)|AddressBits'(k)];
      end
      if (b_req_i) b_parity <= parity_mem[b_addr_i];
      if (b_req_i && b_we_i) parity_mem[b_addr_i] <= (parity_mem[b_addr_i] & ~b_wbe_i) | (b_wparity_i & b_wbe_i);
    end
  end else begin : gen_no_parity_mem
    assign {a_parity, b_parity} = '0;
  end
`else
  localparam int unsigned ByteBits = Parity != 0 ? 9 : 8;
  localparam int unsigned Words = (Depth + Sides - 1) / Sides;
  logic [ByteBits*Bytes*Sides-1:0] a_words, b_words;
  logic [ByteBits*Bytes-1:0] b_word;
  for (genvar k = 0; k < Sides; k++) begin : gen_side
    (* ram_style = "block", no_rw_check = Parity == 0 *) logic [ByteBits*Bytes-1:0] mem[Words];
    logic [ByteBits*Bytes-1:0] a_rdata_q, b_rdata_q;
    logic b_here;
    logic [AddressBits-1:0] b_place;
    assign b_place = b_addr_i >> Shift;
    assign b_here = b_req_i && (b_addr_i & AddressBits'(Sides - 1)) == AddressBits'(k);
    always_ff @(posedge clk_i) begin
      if (a_reads[k]) a_rdata_q <= mem[a_places[k]];
    end
    always_ff @(posedge clk_i) begin
      if (b_here) b_rdata_q <= mem[b_place];
    end
    always_ff @(posedge clk_i) begin
      if (b_here && b_we_i) begin
        for (int unsigned b = 0; b < Bytes; b++) begin
          if (b_wbe_i[b]) mem[b_place][ByteBits*b+:ByteBits] <= ByteBits'({b_wparity_i[b], b_wdata_i[8*b+:8]});
        end
      end
    end
    assign a_words[ByteBits*Bytes*k+:ByteBits*Bytes] = a_rdata_q;
    assign b_words[ByteBits*Bytes*k+:ByteBits*Bytes] = b_rdata_q;
  end
  if (Pairs != 0) begin : gen_choice
    logic [Shift-1:0] b_side_q;
    always_ff @(posedge clk_i) if (b_req_i) b_side_q <= b_addr_i[Shift-1:0];
    assign b_word = b_words[ByteBits*Bytes*b_side_q+:ByteBits*Bytes];
  end else begin : gen_no_choice
    assign b_word = b_words[ByteBits*Bytes-1:0];
  end
  always_comb begin
    for (int unsigned b = 0; b < Bytes * Sides; b++) begin
      a_rdata_o[8*b+:8] = a_words[ByteBits*b+:8];
      a_parity[b] = a_words[ByteBits*b+ByteBits-1];
    end
    for (int unsigned b = 0; b < Bytes; b++) begin
      b_rdata_o[8*b+:8] = b_word[ByteBits*b+:8];
      b_parity[b] = b_word[ByteBits*b+ByteBits-1];
    end
  end
`endif

  if (Parity != 0) begin : gen_parity
    logic [Sides-1:0] a_errors;
    for (genvar k = 0; k < Sides; k++) begin : gen_check
      tsr_ram_check #(.Bytes(Bytes)) u_a (
        .clk_i, .read_i(a_reads[k]), .word_i(a_rdata_o[Width*k+:Width]), .parity_i(a_parity[Bytes*k+:Bytes]),
        .error_o(a_errors[k])
      );
    end
    assign a_error_o = a_errors != '0;
    tsr_ram_check #(.Bytes(Bytes)) u_b (
      .clk_i, .read_i(b_req_i && !b_we_i), .word_i(b_rdata_o), .parity_i(b_parity), .error_o(b_error_o)
    );
  end else begin : gen_no_parity
    logic unused;
    assign unused = &{1'b0, b_wparity_i, a_parity, b_parity};
    assign {a_error_o, b_error_o} = 2'b00;
  end

endmodule
