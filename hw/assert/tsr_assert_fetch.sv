// SPDX-License-Identifier: Apache-2.0
// FETCH reserves room for the words that it reads ahead and looks at no ready: a word never meets a full queue. Bound to
// tsr_fetch.
module tsr_assert_fetch (
  input logic clk_i,
  input logic rst_ni,
  input logic word_full,
  input logic words_ready_unused
);

  always @(posedge clk_i) begin
    if (rst_ni) `TSR_ASSERT(!word_full || words_ready_unused, "a word read ahead without room")
  end

endmodule

bind tsr_fetch tsr_assert_fetch u_assert (.*);
