// SPDX-License-Identifier: Apache-2.0
// STORE reserves room for the beats that it reads: none meets a full queue; and every burst has a place among the
// expected responses. Bound to tsr_store.
module tsr_assert_store (
  input logic clk_i,
  input logic rst_ni,
  input logic arriving_q,
  input logic beats_ready_unused,
  input logic burst_fire,
  input logic none_take,
  input logic expect_ready
);

  always @(posedge clk_i) begin
    if (rst_ni) begin
      `TSR_ASSERT(!arriving_q || beats_ready_unused, "a beat read without room")
      `TSR_ASSERT(!(burst_fire || none_take) || expect_ready, "a response expected without room")
    end
  end

endmodule

bind tsr_store tsr_assert_store u_assert (.*);
