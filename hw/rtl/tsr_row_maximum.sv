// SPDX-License-Identifier: Apache-2.0
// The largest byte of a row (ROW_MAX). Enters: the row's vectors one after the other, each with the lanes that the row
// has of it. Leaves: the largest byte. Method: a tree over a vector, and the largest byte of the row so far; a row that
// has no lane keeps 0.
//
// Latency: take_i stands a cycle before its vector, as first_i and the others that say what the vector is; done_o with
// the row's byte six cycles after take_i of its last vector, for one cycle. Throughput: a vector a cycle. Back-pressure:
// none. Reset: what is under way is forgotten. Timing: two comparisons of eight bits. Legal: BlockOut a power of two from
// 2 on.
module tsr_row_maximum #(
  parameter int unsigned BlockOut = 16,
  localparam int unsigned EntryBits = $clog2(BlockOut)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  take_i,
  input  logic                  first_i,       // of its row
  input  logic                  last_i,
  input  logic                  whole_i,       // all lanes are below the row's limit,
  input  logic                  part_i,        // or the first part_lanes_i
  input  logic [EntryBits-1:0]  part_lanes_i,
  input  logic [7:0]            tail_i,        // lanes of the last vector
  input  logic                  unsigned_i,
  input  logic [8*BlockOut-1:0] vector_i,
  output logic                  done_o,
  output logic [7:0]            best_o
);

  // The tree has four registers: Levels above them are spread. inside: the row has the element; where it has one of two,
  // it has the first.
  localparam int unsigned Levels = $clog2(BlockOut);
  logic [5:0] take_q, last_q;  // bit 0: the vector stands at vector_i
  logic [4:0] first_q;
  logic whole_q, part_q;
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
    if (!rst_ni) take_q <= '0;
    else take_q <= {take_q[4:0], take_i};
    first_q <= {first_q[3:0], first_i};
    last_q <= {last_q[4:0], last_i};
    {whole_q, part_q} <= {whole_i, part_i};
    if (take_q[4]) begin
      if (first_q[4]) best_q <= top[7:0] & {8{top[8]}};
      else best_q <= 8'(larger({1'b1, best_q}, top, unsigned_i));
    end
  end
  assign done_o = take_q[5] && last_q[5];
  assign best_o = best_q;

endmodule
