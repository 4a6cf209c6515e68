// SPDX-License-Identifier: Apache-2.0
// FETCH reserves room for the words that it reads ahead and looks at no ready: a word never meets a full queue. Bound to
// tsr_fetch.
module tsr_assert_fetch #(
  parameter int unsigned WordsAhead = 16,
  parameter int unsigned RoomBits   = 5
) (
  input logic clk_i,
  input logic rst_ni,
  input logic word_full,
  input logic [RoomBits-1:0] words_ready_q
);

  always @(posedge clk_i) begin
    if (rst_ni) `TSR_ASSERT(!word_full || 32'(words_ready_q) < WordsAhead, "a word read ahead without room")
  end

endmodule

bind tsr_fetch tsr_assert_fetch #(.WordsAhead(WordsAhead), .RoomBits(RoomBits)) u_assert (.*);
