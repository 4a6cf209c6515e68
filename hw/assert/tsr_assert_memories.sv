// SPDX-License-Identifier: Apache-2.0
// Memories of which nothing may be read in the cycle in which it is written (no_rw_check), where the simulator's own form
// does not give it wrong: line buffers, bound to tsr_window, and tables, bound to tsr_alu_tables.
module tsr_assert_window #(
  parameter int unsigned RasterPairs = 0,
  parameter int unsigned LineBits    = 9,
  parameter int unsigned SourceBits  = 2  // of all taps
) (
  input logic                clk_i,
  input logic                read_i,
  input logic [LineBits-1:0] col_i,
  input logic [LineBits-1:0] col_q,
  input logic                step_i,
  input logic                write_i,
  input logic                pairs_i,
  input logic                pair_i,
  input logic                odd_i,
  input logic [SourceBits-1:0] source_i
);
  // Which of the two is written, and whether what was read last came from a column that was written at the same time. A
  // single vector of an odd column needs nothing of the even one. No tap takes a line where windows have one row; what
  // is read while such a vector is written is the first one of the next raster, in whose first row lines mean nothing.
  logic even, odd, same, even_wrong_q, odd_wrong_q;
  assign even = RasterPairs == 0 || !pairs_i || pair_i || !odd_i;
  assign odd = RasterPairs != 0 && pairs_i && odd_i;
  assign same = step_i && write_i && source_i != '0 && col_i == col_q;
  always @(posedge clk_i) begin
    if (read_i) {even_wrong_q, odd_wrong_q} <= {same && even, same && odd};
    if (step_i && write_i && source_i != '0) begin  // where a tap takes a line
      `TSR_ASSERT(!even_wrong_q || !even, "a line buffer's column is read while it is written")
      `TSR_ASSERT(!odd_wrong_q || !odd, "a line buffer's odd column is read while it is written")
    end
  end
endmodule

bind tsr_window tsr_assert_window #(.RasterPairs(RasterPairs), .LineBits(LineBits), .SourceBits(SourceBits * (Taps - 1))) u_assert (.*);

module tsr_assert_tables #(
  parameter int unsigned Lanes       = 8,
  parameter int unsigned SecondLanes = 8,
  parameter int unsigned RowBytes    = 1,
  parameter int unsigned TableBytes  = 8,
  localparam int unsigned ByteBits   = $clog2(TableBytes)
) (
  input logic                      clk_i,
  input logic                      first_i,
  input logic [12*Lanes-1:0]       first_index_i,
  input logic                      second_i,
  input logic [12*SecondLanes-1:0] second_index_i,
  input logic                      rows_i,
  input logic [12*RowBytes-1:0]    rows_index_i,
  input logic                      we_i,
  input logic [21-ByteBits:0]      waddr_i,
  input logic [TableBytes-1:0]     wbe_i
);
  // Whether this byte is written.
  function automatic logic written(input logic [11:0] index);
    written = we_i && wbe_i[index[ByteBits-1:0]] && 12'(waddr_i) == index >> ByteBits;
  endfunction
  always @(posedge clk_i) begin
    for (int unsigned l = 0; l < Lanes; l++)
      if (first_i) `TSR_ASSERT(!written(first_index_i[12*l+:12]), "a table's byte is read while it is written")
    for (int unsigned l = 0; l < SecondLanes; l++)
      if (second_i) `TSR_ASSERT(!written(second_index_i[12*l+:12]), "a table's byte is read while it is written")
    for (int unsigned l = 0; l < RowBytes; l++)
      if (rows_i) `TSR_ASSERT(!written(rows_index_i[12*l+:12]), "a table's byte is read while it is written")
  end
endmodule

bind tsr_alu_tables tsr_assert_tables #(
  .Lanes(Lanes), .SecondLanes(SecondLanes), .RowBytes(RowBytes), .TableBytes(TableBytes)
) u_assert (.*);
