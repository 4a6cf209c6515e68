// SPDX-License-Identifier: Apache-2.0
// Turns among several that want one thing: who stands behind the one that had the last turn comes first, then the
// others in their order.
//
// Latency: combinational from what is wanted to the turn; it is taken with take_i. Throughput: one turn a cycle. Reset:
// synchronous, active low; then number 0 has the first turn. Legal: Count >= 1. Timing: the lowest bit of a masked
// vector, twice, and a choice.
module tsr_turns #(
  parameter int unsigned Count = 2
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic [Count-1:0] want_i,
  input  logic             take_i,  // the turn is used, if there is one
  output logic [Count-1:0] turn_o   // one bit, or none
);

  logic [Count-1:0] behind_q, first, any_first, any;  // behind: of those behind the one that had the last turn
  logic some;
  always_comb begin
    any_first = want_i & behind_q;
    first = any_first & (~any_first + 1'b1);
    any = want_i & (~want_i + 1'b1);
    some = any_first != '0;
    turn_o = some ? first : any;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) behind_q <= '1;
    else if (take_i && want_i != '0) behind_q <= ~(turn_o | (turn_o - 1'b1));
  end

endmodule
