// SPDX-License-Identifier: Apache-2.0
// The range check of LOAD and STORE. Enters: an instruction, the base register that it names, the DRAM window. Leaves: the
// fault that its ranges make, or none, the DRAM address of its first byte, and what the walk keeps of its loops. The lowest
// and the highest address of a nest are its first address and the sums over the loops of (extent - 1) * stride, of the
// negative and of the positive ones. A loop passes one cycle after another through the stages: operands, products in two
// parts, sums, and behind the last loop the comparison. While the sums wait for the first product they add up base,
// offset and length; in the cycle of the comparison base and offset once more, for the first address.
//
// An address that passes 0 or 2^64 makes the lowest one exceed the highest one, since what a nest spans is below 2^50: the
// carries of the sums tell. In the scratchpad a product beyond 22 bits is out of any range, so that sums of 26 bits do. DRAM addresses are modulo
// 2^64. A packed LOAD, whose strides are of whole beats, has to begin with one.
//
// Latency: start_i in cycle t, done_o and the rest from t + TimingTransferPrepare on, until the next start. The
// instruction must stay until then. loop_o leave in t + 2 to t + 5, the innermost one first. Reset: synchronous, active
// low. Timing: a product between two registers, or a sum of 49 bits.
module tsr_transfer_range #(
  parameter bit          Pads       = 1'b1,  // LOAD, whose loops 0 and 1 have padding without DRAM addresses
  parameter int unsigned PackedEntry = 0,   // bytes of a WGT entry where LOAD unpacks weights, else 0
  parameter int unsigned AxiBytes   = 8,
  parameter int unsigned InpBytes   = 64,
  parameter int unsigned WgtBytes   = 64,
  parameter int unsigned AccBytes   = 64,
  parameter int unsigned OutBytes   = 64,
  parameter int unsigned ParamBytes = 64,
  parameter int unsigned TableBytes = 64
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         start_i,
  input  logic [511:0] instr_i,         // from the cycle after start_i on
  output logic [3:0]   base_o,          // number of a base register
  input  logic [63:0]  base_i,          // and what stands in it
  input  logic [63:0]  window_first_i,
  input  logic [63:0]  window_last_i,
  output logic         done_o,
  output logic [2:0]   fault_o,
  output logic         reads_o,         // it has DRAM addresses
  output logic [63:0]  dram_o,          // the first of them
  output logic         loop_valid_o,    // a loop, for the walk: 3 in the first of four cycles, 0 in the last
  output logic [1:0]   loop_o,
  output logic [15:0]  loop_steps_o,    // extent - 1
  output logic [31:0]  loop_stride_o,
  output logic [21:0]  loop_sp_stride_o
);

  localparam int unsigned Loops = tsr_isa_pkg::TransferLoops;
  localparam int unsigned Products = tsr_isa_pkg::TimingTransferRangeProduct;
  localparam int unsigned PhaseBits = 4;
  // Cycles since the start: the first product reaches the sums, the sums are compared, the answer stands.
  localparam logic [PhaseBits-1:0] First = PhaseBits'(2 + Products);
  localparam logic [PhaseBits-1:0] Compare = PhaseBits'(2 + Products + Loops);
  localparam logic [PhaseBits-1:0] Ready = PhaseBits'(3 + Products + Loops);
  if (32'(Ready) != tsr_isa_pkg::TimingTransferPrepare || Products < 2 || Products > 4 || Loops != 4)
    $error("tsr_transfer_range: four loops, 2 to 4 registers of the products, and the cycles of isa/timing.toml");

  tsr_isa_pkg::load_t instr;
  logic [PhaseBits-1:0] phase_q;  // 0: idle
  logic active;
  assign active = phase_q != '0 && phase_q != Ready;
  assign instr = instr_i;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) phase_q <= '0;
    else if (start_i) phase_q <= PhaseBits'(1);
    else if (phase_q != '0 && phase_q != Ready) phase_q <= phase_q + 1'b1;
  end

  // Operands, the innermost loop first. Padding counts in the scratchpad alone.
  logic [1:0] loop;
  logic [15:0] extent, length_q;
  logic [12:0] pads;
  logic [31:0] stride;
  logic [21:0] sp_stride;
  logic [3:0] base_q;
  logic signed [16:0] steps_q, sp_steps_q;
  logic signed [31:0] stride_q;
  logic signed [21:0] sp_stride_q;
  assign loop = 2'd0 - phase_q[1:0];
  assign base_o = base_q;
  always_comb begin
    extent = instr.extent[0];
    stride = instr.dram_stride[0];
    sp_stride = instr.sp_stride[0];
    for (int unsigned k = 1; k < Loops; k++) begin
      if (loop == 2'(k)) begin
        extent = instr.extent[k];
        stride = instr.dram_stride[k];
        sp_stride = instr.sp_stride[k];
      end
    end
    pads = '0;
    for (int unsigned k = 0; k < 2; k++) begin
      if (Pads && loop == 2'(k)) pads = {1'b0, instr.pad_before[k]} + {1'b0, instr.pad_after[k]};
    end
  end
  always_ff @(posedge clk_i) if (!tsr_isa_pkg::Simulated || active) begin
    steps_q <= $signed({1'b0, extent}) - $signed({4'd0, pads}) - 17'sd1;
    sp_steps_q <= $signed({1'b0, extent}) - 17'sd1;
    stride_q <= stride;
    sp_stride_q <= sp_stride;
    base_q <= instr.base;
    length_q <= instr.length - 16'd1;
  end
  assign loop_valid_o = phase_q >= PhaseBits'(2) && phase_q < PhaseBits'(2 + Loops);
  assign loop_o = loop + 2'd1;
  assign loop_steps_o = sp_steps_q[15:0];
  assign loop_stride_o = stride_q;
  assign loop_sp_stride_o = sp_stride_q;

  // Products: with the lower and with the upper part of the stride, then their sum.
  localparam int unsigned Low = 17;
  logic signed [34:0] low_part_q;
  logic signed [31:0] high_part_q;
  logic signed [38:0] sp_part_q;
  logic signed [48:0] product_q[Products-1];
  logic signed [38:0] sp_product_q[Products-1];
  always_ff @(posedge clk_i) if (!tsr_isa_pkg::Simulated || active) begin
    low_part_q <= 35'(steps_q) * $signed({18'd0, stride_q[Low-1:0]});
    high_part_q <= 32'(steps_q) * 32'($signed(stride_q[31:Low]));
    sp_part_q <= 39'(sp_steps_q) * 39'(sp_stride_q);
    product_q[0] <= 49'(low_part_q) + {high_part_q, Low'(0)};
    sp_product_q[0] <= sp_part_q;
    for (int unsigned s = 1; s < Products - 1; s++) begin
      product_q[s] <= product_q[s-1];
      sp_product_q[s] <= sp_product_q[s-1];
    end
  end

  // Sums: base + offset, then length, then the products.
  logic begins, ends, products, again;
  assign begins = phase_q == PhaseBits'(2);
  assign ends = phase_q == PhaseBits'(3);
  assign again = phase_q == Compare;
  assign products = phase_q >= First && phase_q < Compare;

  // What is added has 49 bits with its sign: above them a sum is what it was, or one more or less. Whether it passes an
  // end of all addresses there is found in the next cycle.
  localparam int unsigned AddBits = 49;
  logic negative, carry, carry_q, negative_q, edge_q, counts_q, wraps, wrapped_q;
  logic [63:0] low_q, high_q, from, sum;
  logic [AddBits-1:0] add;
  logic [63:AddBits] other;
  assign negative = products && product_q[Products-2][AddBits-1];
  always_comb begin
    from = '0;
    add = '0;
    sum = '0;
    other = '0;
    carry = 1'b0;
    if (!tsr_isa_pkg::Simulated || active) begin
      from = begins || again ? base_i : negative ? low_q : high_q;
      add = begins || again ? {13'd0, instr.dram_offset} : ends ? {33'd0, length_q} : product_q[Products-2];
      other = from[63:AddBits] + {{(63 - AddBits) {negative}}, 1'b1};
      {carry, sum[AddBits-1:0]} = {1'b0, from[AddBits-1:0]} + {1'b0, add};
      sum[63:AddBits] = carry != negative ? other : from[63:AddBits];
    end
  end
  assign wraps = counts_q && carry_q != negative_q && edge_q;

  logic sp_negative, sp_far_q, empty_q;
  logic packed_load;
  logic [15:0] sp_length;
  assign packed_load = PackedEntry != 0 && instr.packed_;
  assign sp_length = packed_load ? 16'(PackedEntry) : instr.length;
  logic signed [25:0] sp_low_q, sp_high_q, sp_from, sp_add, sp_sum;
  assign sp_negative = products && sp_product_q[Products-2][38];
  always_comb begin
    sp_from = '0;
    sp_add = '0;
    sp_sum = '0;
    if (!tsr_isa_pkg::Simulated || active) begin
      sp_from = begins ? '0 : sp_negative ? sp_low_q : sp_high_q;
      sp_add = begins ? $signed({4'd0, instr.sp_addr})
                      : ends ? $signed({10'd0, sp_length}) : 26'(sp_product_q[Products-2]);
      sp_sum = sp_from + sp_add;
    end
  end

  always_ff @(posedge clk_i) if (!tsr_isa_pkg::Simulated || active) begin
    if (begins) wrapped_q <= 1'b0;
    else if (wraps) wrapped_q <= 1'b1;
    carry_q <= carry;
    negative_q <= negative;
    edge_q <= from[63:AddBits] == {(64 - AddBits) {!negative}};
    counts_q <= ends || products;
    if (begins || negative || again) low_q <= sum;
    if (begins || ends || (products && !negative)) high_q <= sum;
    if (begins || sp_negative) sp_low_q <= sp_sum;
    if (begins || ends || (products && !sp_negative)) sp_high_q <= sp_sum;
    if (begins) sp_far_q <= 1'b0;
    else if (products && sp_product_q[Products-2][38:22] != '0 && sp_product_q[Products-2][38:22] != '1) sp_far_q <= 1'b1;
    // A loop that is padding throughout has -1 steps.
    if (begins) empty_q <= Pads && instr.fill;
    else if (Pads && steps_q[16] && (phase_q == PhaseBits'(4) || phase_q == PhaseBits'(5))) empty_q <= 1'b1;
  end

  // The comparison.
  logic signed [25:0] limit;
  logic sp_bad_q, dram_bad_q;
  always_comb begin
    case (instr.space)
      3'(tsr_isa_pkg::SpaceInp): limit = 26'(InpBytes);
      3'(tsr_isa_pkg::SpaceWgt): limit = 26'(WgtBytes);
      3'(tsr_isa_pkg::SpaceAcc): limit = 26'(AccBytes);
      3'(tsr_isa_pkg::SpaceOut): limit = 26'(OutBytes);
      3'(tsr_isa_pkg::SpaceParam): limit = 26'(ParamBytes);
      default: limit = 26'(TableBytes);
    endcase
  end
  always_ff @(posedge clk_i) begin
    if (phase_q == Compare) begin
      sp_bad_q <= sp_far_q || sp_low_q < 0 || sp_high_q > limit;
      dram_bad_q <= !empty_q && (low_q < window_first_i || high_q > window_last_i || wrapped_q || wraps ||
                                 (packed_load && low_q[$clog2(AxiBytes)-1:0] != '0));
    end
  end

  assign done_o = phase_q == Ready;
  assign fault_o = sp_bad_q ? 3'(tsr_isa_pkg::FaultScratchpadRange)
                            : dram_bad_q ? 3'(tsr_isa_pkg::FaultDramRange) : 3'(tsr_isa_pkg::FaultNone);
  assign reads_o = !empty_q;
  assign dram_o = low_q;

  logic unused;
  assign unused = &{1'b0, instr};

endmodule
