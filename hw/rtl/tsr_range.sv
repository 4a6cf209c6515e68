// SPDX-License-Identifier: Apache-2.0
// The lowest and the highest address of an operand: addr + sum over loops of min(0, (extent - 1) * stride), and the
// same with max. One multiplier, one loop a cycle. Enters: address, extents, strides, and how many of the outermost
// loops count. Leaves: both bounds, exact and signed.
//
// Latency: start_i in cycle t, done_o and bounds from t + Loops + Registers on, until the next start. Operands must stay
// until then. Reset: synchronous, active low. Legal: ResultBits large enough for the exact sums; Registers, behind the
// multiplier, 0 or 1.
module tsr_range #(
  parameter int unsigned Loops       = 6,
  parameter int unsigned AddressBits = 14,
  parameter int unsigned StrideBits  = 14,
  parameter int unsigned ExtentBits  = 12,
  parameter int unsigned ResultBits  = AddressBits + 1 + ExtentBits + $clog2(Loops) + 1,
  parameter int unsigned Registers   = tsr_isa_pkg::TimingRangeProduct
) (
  input  logic                               clk_i,
  input  logic                               rst_ni,
  input  logic                               start_i,
  input  logic        [AddressBits-1:0]      addr_i,
  input  logic        [Loops*ExtentBits-1:0] extent_i,
  input  logic        [Loops*StrideBits-1:0] stride_i,
  input  logic        [2:0]                  loops_i,
  output logic                               done_o,
  output logic signed [ResultBits-1:0]       lowest_o,
  output logic signed [ResultBits-1:0]       highest_o
);

  logic add, add_first, add_last;  // a span is added to the sums, of the first or the last loop
  logic signed [ResultBits-1:0] add_span;
  logic [2:0] loop_q, loop;
  logic running_q, done_q;
  logic signed [ResultBits-1:0] lowest_q, highest_q, lowest, highest, span;
  logic signed [StrideBits-1:0] stride;
  logic [ExtentBits-1:0] extent;
  logic signed [ExtentBits:0] steps;
  logic signed [StrideBits+ExtentBits:0] product;

  assign loop = start_i ? 3'd0 : loop_q;
  assign lowest = add_first ? ResultBits'({1'b0, addr_i}) : lowest_q;
  assign highest = add_first ? ResultBits'({1'b0, addr_i}) : highest_q;

  always_comb begin
    stride = '0;
    extent = '0;
    product = '0;
    steps = '0;
    if (start_i || running_q) begin
      for (int unsigned k = 0; k < Loops; k++) begin
        if (loop == 3'(k)) begin
          stride = stride_i[StrideBits*k+:StrideBits];
          extent = extent_i[ExtentBits*k+:ExtentBits];
        end
      end
      steps = $signed({1'b0, extent}) - $signed((ExtentBits + 1)'(1));
      product = (StrideBits + ExtentBits + 1)'(steps) * (StrideBits + ExtentBits + 1)'(stride);
    end
  end
  assign span = loop < loops_i ? ResultBits'(product) : '0;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      running_q <= 1'b0;
      loop_q <= '0;
    end else if (start_i || running_q) begin
      loop_q <= loop + 3'd1;
      running_q <= loop != 3'(Loops - 1);
    end
  end

  if (Registers == 0) begin : gen_direct
    assign add = start_i || running_q;
    assign add_first = start_i;
    assign add_last = loop == 3'(Loops - 1);
    assign add_span = span;
  end else begin : gen_register
    logic add_q, first_q, last_q;
    logic signed [ResultBits-1:0] span_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) add_q <= 1'b0;
      else add_q <= start_i || running_q;
    end
    always_ff @(posedge clk_i) begin
      if (start_i || running_q) begin
        first_q <= start_i;
        last_q <= loop == 3'(Loops - 1);
        span_q <= span;
      end
    end
    assign add = add_q;
    assign add_first = first_q;
    assign add_last = last_q;
    assign add_span = span_q;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      done_q <= 1'b0;
      lowest_q <= '0;
      highest_q <= '0;
    end else if (add) begin
      if (add_span < 0) begin
        lowest_q <= lowest + add_span;
        highest_q <= highest;
      end else begin
        lowest_q <= lowest;
        highest_q <= highest + add_span;
      end
      done_q <= add_last;
    end else if (start_i) begin
      done_q <= 1'b0;
    end
  end

  assign done_o = done_q && !start_i;
  assign lowest_o = lowest_q;
  assign highest_o = highest_q;

endmodule
