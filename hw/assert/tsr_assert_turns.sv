// SPDX-License-Identifier: Apache-2.0
// Turns are fair, bound to tsr_turns: one of those that want has the turn whenever any wants, and nobody is passed over
// more often than there are others.
module tsr_assert_turns #(
  parameter int unsigned Count = 2
) (
  input logic             clk_i,
  input logic             rst_ni,
  input logic [Count-1:0] want_i,
  input logic             take_i,
  input logic [Count-1:0] turn_o
);

  int unsigned passed[Count];  // turns that others took while this one wanted one

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      for (int unsigned c = 0; c < Count; c++) passed[c] = 0;
    end else begin
      `TSR_ASSERT($onehot0(turn_o), "several have the turn")
      `TSR_ASSERT((turn_o & ~want_i) == '0, "a turn that nobody wanted")
      `TSR_ASSERT((turn_o != '0) == (want_i != '0), "nobody has the turn although one wants it")
      for (int unsigned c = 0; c < Count; c++) begin
        if (!want_i[c] || (take_i && turn_o[c])) passed[c] = 0;
        else if (take_i) passed[c] = passed[c] + 1;
        `TSR_ASSERT(passed[c] < Count, "passed over more often than there are others")
      end
    end
  end

endmodule

bind tsr_turns tsr_assert_turns #(.Count(Count)) u_assert (.*);
