// SPDX-License-Identifier: Apache-2.0
// The ALU's tables: reads of one byte a lane for the first and for the second lookup, writes of LOAD. Enters: table and
// byte of each lane, and of each row lane for its results. Leaves: the bytes, in the next cycle; those of the second
// lookup are 0 behind second_none_i, so that whoever writes them joins them with what else it may write. Method: in
// hardware each lane has a copy of its own, since a block RAM has one read port; it is written in words of TableBytes and
// read byte by byte (tsr_ram_bytes), with Parity together with the bit that the table has of the byte. The simulator has
// one memory for all.
//
// Latency: one cycle. Throughput: all reads and one write a cycle. Back-pressure: none; first_i = 0, or second_i = 0 and
// second_none_i = 0, leaves the bytes as they are. Reset: none, the content is data.
// Legal: TableBytes a power of two. Parity, error_o: as in tsr_ram_1r1w, of all reads.
module tsr_alu_tables #(
  parameter int unsigned Lanes       = 16,
  parameter int unsigned SecondLanes = 4,
  parameter int unsigned RowLanes    = 0,
  parameter int unsigned TableCount  = 1,
  parameter int unsigned TableBytes  = 8,
  parameter int unsigned Parity      = 0,
  localparam int unsigned RowBytes = RowLanes != 0 ? 4 * RowLanes : 1
) (
  input  logic                        clk_i,
  input  logic                        first_i,
  input  logic [12*Lanes-1:0]         first_index_i,
  output logic [8*Lanes-1:0]          first_bytes_o,
  // Of rows' results, four bytes a lane.
  input  logic                        rows_i,
  input  logic [12*RowBytes-1:0]      rows_index_i,
  output logic [8*RowBytes-1:0]       rows_bytes_o,
  input  logic                        second_i,
  input  logic [12*SecondLanes-1:0]   second_index_i,
  input  logic                        second_none_i,  // not with second_i
  output logic [8*SecondLanes-1:0]    second_bytes_o,
  output logic [SecondLanes-1:0]      second_parity_o,  // without Parity 0
  // One aligned group of TableBytes.
  input  logic                        we_i,
  input  logic [21-$clog2(TableBytes):0] waddr_i,
  input  logic [8*TableBytes-1:0]       wdata_i,
  input  logic [TableBytes-1:0]         wbe_i,
  output logic                          error_o
);

  localparam int unsigned Words = TableCount * 256 / TableBytes;
  localparam int unsigned WordBits = Words > 1 ? $clog2(Words) : 1;
  localparam int unsigned ByteBits = $clog2(TableBytes);
  logic [TableBytes-1:0] wparity;
  tsr_ram_parity #(.Bytes(TableBytes), .Parity(Parity)) u_written (.word_i(wdata_i), .parity_o(wparity));

`ifdef VERILATOR
  logic [8*TableBytes-1:0] table_mem[Words]  /* verilator public_flat_rw */;
  // What stands beside it in hardware, a bit a byte.
  logic [Parity != 0 ? TableBytes-1 : 0 : 0] parity_mem[Parity != 0 ? Words : 1]  /* verilator public_flat_rw */;
  logic [8*TableBytes-1:0] merged;
  logic [8*SecondLanes-1:0] second_q;
  always_comb begin
    merged = '0;
    if (we_i) begin
      merged = table_mem[WordBits'(waddr_i)];
      for (int unsigned n = 0; n < TableBytes; n++) begin
        if (wbe_i[n]) merged[8*n+:8] = wdata_i[8*n+:8];
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (we_i) table_mem[WordBits'(waddr_i)] <= merged;
  end
  always_ff @(posedge clk_i) begin
    if (first_i) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        first_bytes_o[8*l+:8] <= 8'(table_mem[WordBits'(first_index_i[12*l+:12] >> ByteBits)] >>
                                    {first_index_i[12*l+:ByteBits], 3'd0});
      end
    end
    if (RowLanes != 0 && rows_i) begin
      for (int unsigned l = 0; l < RowBytes; l++) begin
        rows_bytes_o[8*l+:8] <= 8'(table_mem[WordBits'(rows_index_i[12*l+:12] >> ByteBits)] >>
                                   {rows_index_i[12*l+:ByteBits], 3'd0});
      end
    end
    if (second_i) begin
      for (int unsigned l = 0; l < SecondLanes; l++) begin
        second_q[8*l+:8] <= 8'(table_mem[WordBits'(second_index_i[12*l+:12] >> ByteBits)] >>
                                     {second_index_i[12*l+:ByteBits], 3'd0});
      end
    end else if (second_none_i) begin
      second_q <= '0;
    end
  end
  assign second_bytes_o = second_q;

  if (Parity != 0) begin : gen_parity
    logic wrong, wrong_q, error_q;
    logic [SecondLanes-1:0] second_parity_q;
    always_comb begin
      logic [WordBits-1:0] at;
      at = '0;
      wrong = 1'b0;
      if (first_i) begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          at = WordBits'(first_index_i[12*l+:12] >> ByteBits);
          wrong |= ^{8'(table_mem[at] >> {first_index_i[12*l+:ByteBits], 3'd0}), parity_mem[at][first_index_i[12*l+:ByteBits]]};
        end
      end
      if (RowLanes != 0 && rows_i) begin
        for (int unsigned l = 0; l < RowBytes; l++) begin
          at = WordBits'(rows_index_i[12*l+:12] >> ByteBits);
          wrong |= ^{8'(table_mem[at] >> {rows_index_i[12*l+:ByteBits], 3'd0}), parity_mem[at][rows_index_i[12*l+:ByteBits]]};
        end
      end
      if (second_i) begin
        for (int unsigned l = 0; l < SecondLanes; l++) begin
          at = WordBits'(second_index_i[12*l+:12] >> ByteBits);
          wrong |= ^{8'(table_mem[at] >> {second_index_i[12*l+:ByteBits], 3'd0}), parity_mem[at][second_index_i[12*l+:ByteBits]]};
        end
      end
    end
    always_ff @(posedge clk_i) begin
      if (we_i) parity_mem[WordBits'(waddr_i)] <= (parity_mem[WordBits'(waddr_i)] & ~wbe_i) | (wparity & wbe_i);
      wrong_q <= wrong;
      error_q <= wrong_q;
      if (second_i) begin
        for (int unsigned l = 0; l < SecondLanes; l++)
          second_parity_q[l] <= parity_mem[WordBits'(second_index_i[12*l+:12] >> ByteBits)][second_index_i[12*l+:ByteBits]];
      end else if (second_none_i) begin
        second_parity_q <= '0;
      end
    end
    assign error_o = error_q;
    assign second_parity_o = second_parity_q;
  end else begin : gen_no_parity
    logic unused_parity;
    assign unused_parity = &{1'b0, wparity};
    assign error_o = 1'b0;
    assign second_parity_o = '0;
  end
`else
  localparam int unsigned Copies = Lanes + SecondLanes + 4 * RowLanes;
  logic [TableBytes-1:0] wbe;
  assign wbe = {TableBytes{we_i}} & wbe_i;
  logic [Copies-1:0] errors;
  assign error_o = errors != '0;
  logic [12*Copies-1:0] indices;
  assign indices = (12 * Copies)'({rows_index_i, second_index_i, first_index_i});
  if (RowLanes == 0) begin : gen_no_rows
    assign rows_bytes_o = '0;
  end
  for (genvar l = 0; l < Copies; l++) begin : gen_lane
    logic [7:0] value;
    logic parity;
    tsr_ram_bytes #(.Bytes(TableBytes), .Words(Words), .Parity(Parity)) u_copy (
      .clk_i, .re_i(l < Lanes ? first_i : l < Lanes + SecondLanes ? second_i : rows_i),
      .clear_i(l >= Lanes && l < Lanes + SecondLanes && second_none_i && !second_i), .raddr_i((WordBits + ByteBits)'(indices[12*l+:12])),
      .rdata_o(value), .rparity_o(parity), .error_o(errors[l]), .waddr_i(WordBits'(waddr_i)), .wdata_i, .wparity_i(wparity),
      .wbe_i(wbe)
    );
    if (l < Lanes) begin : gen_first
      assign first_bytes_o[8*l+:8] = value;
    end else if (l < Lanes + SecondLanes) begin : gen_second
      assign second_bytes_o[8*(l-Lanes)+:8] = value;
      assign second_parity_o[l-Lanes] = parity;
    end else begin : gen_rows
      assign rows_bytes_o[8*(l-Lanes-SecondLanes)+:8] = value;
    end
    logic unused_parity;
    assign unused_parity = &{1'b0, parity};
  end
`endif

  logic unused;
  assign unused = &{1'b0, first_index_i, second_index_i, rows_i, rows_index_i, waddr_i};

endmodule
