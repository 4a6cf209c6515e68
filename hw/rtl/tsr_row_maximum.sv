// SPDX-License-Identifier: Apache-2.0
// The largest byte of a row (isa/semantics.md, ROW_REDUCE). Enters: vectors that are asked for one after another, of
// one row behind another, and what the row has of them. Leaves: the largest byte of each row. Method: a tree over a
// vector, with four registers over which its levels are spread, and the largest byte of the row so far. A row that has
// no element keeps 0.
//
// ask_i with first_i and the others that say what the vector is, which hold until the next ask_i; take_i: it comes, and
// stands at vector_i a cycle later. Latency: done_o with the row's byte six cycles behind take_i of its last vector,
// for one cycle. Throughput: a vector a cycle. Back-pressure: none. Reset: synchronous, active low, of what is under
// way. Legal: BlockOut a power of two from 2 on; the other operands hold while vectors are under way.
module tsr_row_maximum #(
  parameter int unsigned BlockOut = 16,
  localparam int unsigned EntryBits = $clog2(BlockOut)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  ask_i,
  input  logic                  first_i,       // of its row
  input  logic                  last_i,
  input  logic                  whole_i,       // all of its elements count,
  input  logic                  part_i,        // or the first part_lanes_i
  input  logic                  take_i,
  input  logic [8*BlockOut-1:0] vector_i,
  input  logic [EntryBits-1:0]  part_lanes_i,
  input  logic [7:0]            tail_i,        // lanes of a row's last vector
  input  logic                  unsigned_i,
  output logic                  done_o,
  output logic [7:0]            best_o
);

  // inside: the row has the element; where it has one of two, it has the first.
  localparam int unsigned Levels = $clog2(BlockOut);
  logic asked_first_q, asked_last_q, asked_whole_q, asked_part_q, whole_q, part_q;
  logic [5:0] take_q, last_q;  // bit 0: a vector stands at vector_i
  logic [4:0] first_q;
  logic [8:0] leaves[BlockOut];  // inside, byte
  logic [8:0] top;
  logic [7:0] best_q;
  function automatic logic [8:0] larger(input logic [8:0] a, input logic [8:0] b, input logic unsigned_bytes);
    larger = b[8] && {b[7] == unsigned_bytes, b[6:0]} > {a[7] == unsigned_bytes, a[6:0]} ? b : a;
  endfunction
  always_comb begin
    for (int unsigned o = 0; o < BlockOut; o++) begin
      leaves[o][8] = !(last_q[0] && o >= 32'(tail_i)) && (whole_q || (part_q && o < 32'(part_lanes_i)));
      leaves[o][7:0] = vector_i[8*o+:8];
    end
  end
  for (genvar s = 0; s < 4; s++) begin : gen_tree
    localparam int unsigned From = BlockOut >> ((s * Levels + 3) / 4);
    localparam int unsigned To = BlockOut >> (((s + 1) * Levels + 3) / 4);
    logic [8:0] nodes[From], largest_q[To];
    for (genvar n = 0; n < From; n++) begin : gen_node
      if (s == 0) assign nodes[n] = leaves[n];
      else assign nodes[n] = gen_tree[s-1].largest_q[n];
    end
    for (genvar n = 0; n < To; n++) begin : gen_larger
      logic [8:0] largest;
      if (From == To) begin : gen_same
        assign largest = nodes[n];
      end else if (From == 2 * To) begin : gen_two
        assign largest = larger(nodes[2*n], nodes[2*n+1], unsigned_i);
      end else begin : gen_four
        assign largest = larger(larger(nodes[4*n], nodes[4*n+1], unsigned_i),
                                larger(nodes[4*n+2], nodes[4*n+3], unsigned_i), unsigned_i);
      end
      always_ff @(posedge clk_i) largest_q[n] <= largest;
    end
  end
  assign top = gen_tree[3].largest_q[0];
  always_ff @(posedge clk_i) begin
    if (ask_i) {asked_first_q, asked_last_q, asked_whole_q, asked_part_q} <= {first_i, last_i, whole_i, part_i};
    if (!rst_ni) take_q <= '0;
    else take_q <= {take_q[4:0], take_i};
    first_q <= {first_q[3:0], asked_first_q};
    last_q <= {last_q[4:0], asked_last_q};
    {whole_q, part_q} <= {asked_whole_q, asked_part_q};
    if (take_q[4]) begin
      if (first_q[4]) best_q <= top[7:0] & {8{top[8]}};
      else best_q <= 8'(larger({1'b1, best_q}, top, unsigned_i));
    end
  end
  assign done_o = take_q[5] && last_q[5];
  assign best_o = best_q;

endmodule
