// SPDX-License-Identifier: Apache-2.0
// The sum of signed numbers by a tree of additions of two. Enters: Inputs numbers of Width bits. Leaves: their exact sum.
// Method: the last levels have a register each. If there are more levels than registers the first ones, whose numbers
// are the shortest, share one; if there are fewer, the sum waits.
//
// Latency: Stages cycles. Throughput: one sum a cycle. Reset: none, the content is data. Timing: one addition a stage,
// as long as Stages is at least clog2(Inputs). Legal: Inputs a power of two, Stages and Width at least 1.
module tsr_sum_tree #(
  parameter int unsigned Inputs = 4,
  parameter int unsigned Width  = 8,
  parameter int unsigned Stages = 2,
  localparam int unsigned Levels = $clog2(Inputs)
) (
  input  logic                           clk_i,
  input  logic        [Width*Inputs-1:0] data_i,
  output logic signed [Width+Levels-1:0] sum_o
);

  if (Inputs == 0 || (Inputs & (Inputs - 1)) != 0) $error("tsr_sum_tree: Inputs is no power of two");
  if (Stages == 0) $error("tsr_sum_tree: Stages is 0");

  localparam int unsigned Waits = Stages > Levels ? Stages - Levels : 0;

  for (genvar l = 0; l <= Levels; l++) begin : gen_level
    localparam int unsigned Bits = Width + l;
    logic [Bits*(Inputs>>l)-1:0] numbers;
    if (l == 0) begin : gen_first
      assign numbers = data_i;
    end else begin : gen_add
      logic [Bits*(Inputs>>l)-1:0] sums;
      for (genvar n = 0; n < Inputs >> l; n++) begin : gen_sum
        logic signed [Bits-2:0] left, right;
        assign left = gen_level[l-1].numbers[(Bits-1)*2*n+:Bits-1];
        assign right = gen_level[l-1].numbers[(Bits-1)*(2*n+1)+:Bits-1];
        assign sums[Bits*n+:Bits] = Bits'(left) + Bits'(right);
      end
      if (l + Stages > Levels) begin : gen_register
        logic [Bits*(Inputs>>l)-1:0] sums_q;
        always_ff @(posedge clk_i) sums_q <= sums;
        assign numbers = sums_q;
      end else begin : gen_wire
        assign numbers = sums;
      end
    end
  end

  for (genvar w = 0; w <= Waits; w++) begin : gen_wait
    logic [Width+Levels-1:0] sum;
    if (w == 0) begin : gen_first
      assign sum = gen_level[Levels].numbers;
    end else begin : gen_register
      logic [Width+Levels-1:0] sum_q;
      always_ff @(posedge clk_i) sum_q <= gen_wait[w-1].sum;
      assign sum = sum_q;
    end
  end
  assign sum_o = gen_wait[Waits].sum;

endmodule
