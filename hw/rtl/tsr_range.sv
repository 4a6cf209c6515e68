// SPDX-License-Identifier: Apache-2.0
// The range check of GEMM and ALU: whether a nest takes an operand out of its memory. The lowest address of an operand is
// its first one plus the sum over the loops of min(0, (extent - 1) * stride), the highest one the same with max. Enters:
// for each operand its address, strides, how many of the outermost loops count, and the entries of its memory; the
// extents of all. Leaves: for each operand, whether an address is below 0 or none of the memory's. Method: a loop passes
// one cycle after another through operands, products and sums, a multiplier an operand. Sums have the bits of an address:
// what leaves them is outside, and stays so.
//
// Latency: start_i in cycle t, done_o and outside_o from t + Loops + TimingRangeDepth - 1 on, until the next start, which
// may not come before. Operands must stay until then. Reset: synchronous, active low, of what is valid. Timing: a choice
// among the loops and a decrement, a product between two registers, or a sum and its comparison. Legal: extents from 1
// on, limits up to 2^AddressBits, Products from 1 on.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_range #(
  parameter int unsigned Operands    = 3,
  parameter int unsigned Loops       = 6,
  parameter int unsigned AddressBits = 14,
  parameter int unsigned StrideBits  = 14,
  parameter int unsigned ExtentBits  = 12,
  parameter int unsigned Products    = tsr_isa_pkg::TimingRangeProduct
) (
  input  logic                                 clk_i,
  input  logic                                 rst_ni,
  input  logic                                 start_i,
  input  logic [AddressBits*Operands-1:0]      addr_i,
  input  logic [ExtentBits*Loops-1:0]          extent_i,
  input  logic [StrideBits*Loops*Operands-1:0] stride_i,
  input  logic [3*Operands-1:0]                loops_i,
  input  logic [(AddressBits+1)*Operands-1:0]  limit_i,
  output logic                                 done_o,
  output logic [Operands-1:0]                  outside_o
);

  localparam int unsigned ProductBits = StrideBits + ExtentBits;
  localparam int unsigned SumBits = AddressBits + 1;
  localparam int unsigned LoopBits = 3;
  localparam int unsigned Fill = (1 << LoopBits) - Loops;

  if (Loops != 6) $error("tsr_range: a nest has six loops");
  if (Products < 1) $error("tsr_range: the products have no register");

  // The loop whose operands are chosen now; how far those before it have come, bit 0 for operands that stand.
  logic [LoopBits-1:0] loop_q;
  logic choose;
  logic [Products:0] stands_q, last_q;
  assign choose = start_i || loop_q != '0;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      loop_q <= '0;
      stands_q <= '0;
      done_o <= 1'b0;
    end else begin
      if (choose) loop_q <= loop_q == LoopBits'(Loops - 1) ? '0 : loop_q + 1'b1;
      stands_q <= {stands_q[Products-1:0], choose};
      if (start_i) done_o <= 1'b0;
      else if (last_q[Products]) done_o <= 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    last_q <= {last_q[Products-1:0], loop_q == LoopBits'(Loops - 1)};
  end

  // The choice among the loops halves what is left with each bit of the number. The last loops fill the places to eight.
  logic [ExtentBits*(1<<LoopBits)-1:0] extents;
  logic [ExtentBits-1:0] steps;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {extents, steps} = 'x;
    if (!tsr_isa_pkg::Simulated || choose) begin
      extents = {extent_i[ExtentBits*Loops-1-:ExtentBits*Fill], extent_i};
      for (int unsigned b = 0; b < LoopBits; b++) if (loop_q[b]) extents = extents >> (ExtentBits << b);
      steps = extents[0+:ExtentBits] - ExtentBits'(1);
    end
  end

  for (genvar n = 0; n < Operands; n++) begin : gen_operand
    logic [StrideBits*(1<<LoopBits)-1:0] strides;
    logic signed [ExtentBits:0] steps_q;
    logic signed [StrideBits-1:0] stride_q;
    logic signed [ProductBits-1:0] product_q[Products];
    logic [Products:0] counts_q;
    always_comb begin
      if (!tsr_isa_pkg::Simulated) strides = 'x;
      if (!tsr_isa_pkg::Simulated || choose) begin
        strides = {stride_i[StrideBits*Loops*(n+1)-1-:StrideBits*Fill], stride_i[StrideBits*Loops*n+:StrideBits*Loops]};
        for (int unsigned b = 0; b < LoopBits; b++) if (loop_q[b]) strides = strides >> (StrideBits << b);
      end
    end
    always_ff @(posedge clk_i) begin
      if (!tsr_isa_pkg::Simulated || choose || stands_q != '0) begin
        steps_q <= {1'b0, steps};
        stride_q <= strides[0+:StrideBits];
        product_q[0] <= ProductBits'(steps_q) * ProductBits'(stride_q);
        for (int unsigned s = 1; s < Products; s++) product_q[s] <= product_q[s-1];
        counts_q <= {counts_q[Products-1:0], loop_q < loops_i[3*n+:3]};
      end
    end

    // The lowest address, from 0 on, and the highest one less the memory's entries, below 0.
    logic [ProductBits-1:0] span;
    logic [SumBits-1:0] sum, first;
    logic adds, negative, far;
    logic [AddressBits-1:0] lowest_q, highest_q;
    assign span = product_q[Products-1];
    assign adds = stands_q[Products] && counts_q[Products];
    assign negative = span[ProductBits-1];
    always_comb begin
      if (!tsr_isa_pkg::Simulated) {far, sum, first} = 'x;
      if (!tsr_isa_pkg::Simulated || adds) begin
        far = span[ProductBits-1:AddressBits] != {ProductBits - AddressBits{negative}};
        sum = span[0+:SumBits] + {!negative, negative ? lowest_q : highest_q};
      end
      if (!tsr_isa_pkg::Simulated || start_i) begin
        first = {1'b0, addr_i[AddressBits*n+:AddressBits]} - limit_i[SumBits*n+:SumBits];
      end
    end
    always_ff @(posedge clk_i) begin
      if (start_i) begin
        lowest_q <= addr_i[AddressBits*n+:AddressBits];
        highest_q <= first[0+:AddressBits];
        outside_o[n] <= !first[AddressBits];
      end else if (adds) begin
        if (negative) lowest_q <= sum[0+:AddressBits];
        else highest_q <= sum[0+:AddressBits];
        outside_o[n] <= outside_o[n] || far || sum[AddressBits] == negative;
      end
    end
  end

endmodule
/* verilator lint_on LATCH */
