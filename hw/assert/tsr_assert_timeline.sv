// SPDX-License-Identifier: Apache-2.0
// A signal counter counts its engine's signals and nothing else, so that it never goes back; an instruction that may not
// go on waits for exactly one engine. Bound to tsr_timeline.
module tsr_assert_timeline (
  input logic        clk_i,
  input logic        rst_ni,
  input logic [3:0]  signal_i,
  input logic [63:0] count_q,
  input logic [4:0]  holds_o,
  input logic [19:0] waiting_on_o
);

  logic [63:0] expected;

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      expected = '0;
    end else begin
      `TSR_ASSERT(count_q == expected, "a counter is not the number of signals")
      for (int unsigned h = 0; h < 5; h++) begin
        `TSR_ASSERT($onehot0(waiting_on_o[4*h+:4]) && (waiting_on_o[4*h+:4] == '0) == holds_o[h],
                    "waits for none or for several engines")
      end
      for (int unsigned e = 0; e < 4; e++) begin
        if (signal_i[e]) expected[16*e+:16] = expected[16*e+:16] + 16'd1;
      end
    end
  end

endmodule

bind tsr_timeline tsr_assert_timeline u_assert (.*);
