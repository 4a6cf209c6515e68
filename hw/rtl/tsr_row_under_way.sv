// SPDX-License-Identifier: Apache-2.0
// Destinations of ROW_MAP that are not written yet, which a source may be. Enters: a vector's destination when the
// vector is taken (push_i), its write (pop_i), where the next read goes. Leaves: whether that read has to wait. Method:
// the newest destination first. They are compared with the next read's address, which stands two cycles or more before
// the read, as they do; so the answer is a register's.
//
// Latency: an address and a pop count a cycle later, a push two. Throughput: a push and a pop a cycle. Back-pressure:
// hazard_o, also where no destination more has room. Reset: synchronous, active low, to none. Legal: Places from 2 on.
module tsr_row_under_way #(
  parameter int unsigned Places = 6
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        push_i,
  input  logic [13:0] target_i,
  input  logic        pop_i,
  input  logic        compare_i,  // sources and destinations are in one memory
  input  logic [13:0] source_i,
  output logic        hazard_o,
  output logic        idle_o      // none is under way
);

  logic [13:0] way_q[Places];
  logic [Places-1:0] ways, ways_q;  // as many ones as are under way, from bit 0 on
  logic [Places-1:0] meets;
  logic hazard_q;
  assign hazard_o = hazard_q;
  assign idle_o = ways_q == '0;
  always_comb begin
    ways = ways_q;
    if (push_i != pop_i) ways = push_i ? {ways_q[Places-2:0], 1'b1} : ways_q >> 1;
    for (int unsigned w = 0; w < Places; w++) meets[w] = compare_i && way_q[w] == source_i;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) ways_q <= '0;
    else ways_q <= ways;
    hazard_q <= ways[Places-1] || (ways & meets) != '0;
    if (push_i) begin
      way_q[0] <= target_i;
      for (int unsigned w = 1; w < Places; w++) way_q[w] <= way_q[w-1];
    end
  end

endmodule
