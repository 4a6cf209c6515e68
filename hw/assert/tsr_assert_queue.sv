// SPDX-License-Identifier: Apache-2.0
// A queue holds between none and Depth words, as many as went in and did not come out, and its pointers stay inside.
// Bound to every tsr_queue.
module tsr_assert_queue #(
  parameter int unsigned Depth       = 4,
  parameter int unsigned Slots       = 4,
  parameter int unsigned PointerBits = 2,
  parameter int unsigned CountBits   = 3
) (
  input logic                   clk_i,
  input logic                   rst_ni,
  input logic                   valid_i,
  input logic                   ready_o,
  input logic                   valid_o,
  input logic                   ready_i,
  input logic                   push,
  input logic                   pop,
  input logic [CountBits-1:0]   count_q,
  input logic [PointerBits-1:0] head_q,
  input logic [PointerBits-1:0] tail_q
);

  int unsigned words;

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      words = 0;
    end else begin
      `TSR_ASSERT(32'(count_q) == words && words <= Depth, "the count is wrong")
      `TSR_ASSERT(valid_o == (words != 0), "valid is wrong")
      `TSR_ASSERT(32'(head_q) < Slots && 32'(tail_q) < Slots, "a pointer left the queue")
      `TSR_ASSERT((32'(head_q) + words) % Slots == 32'(tail_q), "the pointers are not as far apart as the words")
      `TSR_ASSERT(!(push && words == Depth), "overflow")
      `TSR_ASSERT(!(pop && words == 0), "underflow")
      `TSR_ASSERT(push == (valid_i && ready_o) && pop == (valid_o && ready_i), "a word moved without its handshake")
      words = words + 32'(push) - 32'(pop);
    end
  end

endmodule

bind tsr_queue tsr_assert_queue #(.Depth(Depth), .Slots(Slots), .PointerBits(PointerBits), .CountBits(CountBits)) u_assert (.*);
