// SPDX-License-Identifier: Apache-2.0
// The entry that was read from a memory whose words hold several entries, or one. Enters: the entry's number with the
// read request; the word in the next cycle. Leaves: the entry.
//
// Latency: combinational from word_i; the number is kept with req_i. Throughput: one a cycle. Reset: none, the number
// says what the word means and is set with it. Legal: Entries a power of two.
module tsr_entry #(
  parameter int unsigned Width       = 64,  // of one entry
  parameter int unsigned Entries     = 1,   // in a word
  parameter int unsigned AddressBits = 14
) (
  input  logic                     clk_i,
  input  logic                     req_i,
  input  logic [AddressBits-1:0]   entry_i,
  input  logic [Width*Entries-1:0] word_i,
  output logic [Width-1:0]         entry_o
);

  if (Entries == 1) begin : gen_one
    logic unused;
    assign unused = &{1'b0, clk_i, req_i, entry_i};
    assign entry_o = word_i;
  end else begin : gen_several
    localparam int unsigned LaneBits = $clog2(Entries);
    logic [LaneBits-1:0] lane_q;
    always_ff @(posedge clk_i) begin
      if (req_i) lane_q <= LaneBits'(entry_i);
    end
    assign entry_o = word_i[Width*lane_q+:Width];
    logic unused;
    assign unused = &{1'b0, entry_i};
  end

endmodule
