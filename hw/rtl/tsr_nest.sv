// SPDX-License-Identifier: Apache-2.0
// The address nest of GEMM and ALU: six counters, loop 5 innermost, and for each operand the entry addressed now. Each
// loop keeps the address at which it stands with all deeper loops at 0. In an iteration one loop steps, the innermost
// one that is not through: its stride is added to that address, and the deeper loops restart from there, so that no
// multiplier and one adder an operand are needed. Whether a loop is through is found when its counter moves. Addresses
// are modulo 2^14, which is exact once the range check has passed.
//
// Latency: load_i in cycle t, outputs of the first iteration in t + 1. Throughput: one iteration a cycle. Operands are
// taken with load_i, which comes with the last iteration's advance_i or while idle_i. Extents and strides are no longer
// needed at the last iteration: so they are taken as soon as offer_i says that they are there, and need not wait for
// whatever load_i waits for. offer_i comes with load_i at the latest, and what it offers stays until then. Reset: none,
// what stands before the first load means nothing. Timing: the choice among six loops and an addition, or a counter, its comparison and the
// next loop that steps; load_i and advance_i only enable. count_o: the iteration at which a loop stands, from 1 on.
// With Rows, loop 5 may have another extent and stride in each iteration of loop 4: row_i says so, in the last iteration
// of loop 5 before. inner_last_o bit k: loops k to 5 all stand at their last iteration.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_nest #(
  parameter int unsigned Operands = 3,
  parameter int unsigned Rows     = 0   // 1: iterations of loop 4 may differ in what loop 5 does
) (
  input  logic                   clk_i,
  input  logic                   idle_i,
  input  logic                   offer_i,
  input  logic                   load_i,
  input  logic                   advance_i,
  input  logic [14*Operands-1:0] addr_i,
  input  logic [71:0]            extent_i,
  input  logic [84*Operands-1:0] stride_i,
  input  logic [2:0]             reduce_i,
  input  logic                   row_i,         // with Rows: the next iteration of loop 4 has this extent of loop 5,
  input  logic [11:0]            row_extent_i,  // at least 2 as that before, and of the first operand this stride
  input  logic                   row_two_i,     // 2 or 1
  output logic [14*Operands-1:0] addr_o,
  output logic [71:0]            count_o,
  output logic [5:0]             inner_last_o,
  output logic                   sum_first_o,
  output logic                   sum_last_o  /* verilator isolate_assignments */,  // advance_i may depend on it
  output logic                   last_o
);

  localparam int unsigned Loops = tsr_isa_pkg::Loops;
  localparam int unsigned AddressBits = tsr_isa_pkg::GemmInpAddrWidth;
  localparam int unsigned ExtentBits = tsr_isa_pkg::GemmExtentWidth;
  localparam int unsigned Width = AddressBits * Operands;

  // Behind the last iteration, and before the first one, whatever moves is a load or means nothing: so only clock enables
  // wait for load_i and advance_i.
  logic fresh;
  assign fresh = idle_i || inner_q[0];

  // Of a loop: whether it is through; of its deeper loops and itself: whether all are, which is why the next one steps.
  logic [Loops-1:0] moves, through_q, through, inner_q, inner;
  logic [2:0] reduce_q, step_q, step;
  logic first_q;
  assign moves = {1'b1, inner_q[Loops-1:1]};
  always_comb begin
    inner = inner_q;
    step = step_q;
    if (!tsr_isa_pkg::Simulated || fresh || through != through_q) begin
      for (int unsigned k = 0; k < Loops; k++) inner[k] = (Loops'(1) << (Loops - k)) - Loops'(1) == through >> k;
      // The innermost loop that is not through, with gates: a choice would become a reset that waits for load_i.
      step = '0;
      for (int unsigned k = 1; k < Loops; k++) step = step | ({3{!inner[k] && (k == Loops - 1 || inner[(k+1)%Loops])}} & 3'(k));
    end
    sum_last_o = 1'b1;
    for (int unsigned k = 0; k < Loops; k++) if (reduce_q == 3'(Loops - k)) sum_last_o = inner_q[k];
  end
  always_ff @(posedge clk_i) begin
    if (load_i || advance_i) begin
      through_q <= through;
      inner_q <= inner;
      step_q <= step;
      first_q <= fresh || sum_last_o;
    end
    if (load_i) reduce_q <= reduce_i;
  end

  // The address and the stride of the loop that steps.
  logic [Width-1:0] from, by, next;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {from, by, next} = 'x;
    if (!tsr_isa_pkg::Simulated || load_i || advance_i) begin
      from = step_q[2] ? (step_q[0] ? gen_loop[5].address_q : gen_loop[4].address_q)
                       : step_q[1] ? (step_q[0] ? gen_loop[3].address_q : gen_loop[2].address_q)
                                   : (step_q[0] ? gen_loop[1].address_q : gen_loop[0].address_q);
      by = step_q[2] ? (step_q[0] ? gen_loop[5].stride_q : gen_loop[4].stride_q)
                     : step_q[1] ? (step_q[0] ? gen_loop[3].stride_q : gen_loop[2].stride_q)
                                 : (step_q[0] ? gen_loop[1].stride_q : gen_loop[0].stride_q);
      next = addr_i;
      if (!fresh) begin
        for (int unsigned n = 0; n < Operands; n++) begin
          next[AddressBits*n+:AddressBits] = from[AddressBits*n+:AddressBits] + by[AddressBits*n+:AddressBits];
        end
      end
    end
  end

  for (genvar k = 0; k < Loops; k++) begin : gen_loop
    logic [ExtentBits-1:0] extent, extent_q, count_q, count;
    logic [Width-1:0] stride_q, address_q;
    logic moving, ends;  // of loops that stay, only a simulator needs not to know more
    assign moving = load_i || (advance_i && moves[k]);
    always_comb begin
      if (!tsr_isa_pkg::Simulated) {extent, count} = 'x;
      ends = through_q[k];
      if (tsr_isa_pkg::Simulated ? moving : fresh || moves[k]) begin
        extent = fresh ? extent_i[ExtentBits*k+:ExtentBits] : extent_q;
        count = count_q + ExtentBits'(1);
        ends = (fresh || inner_q[k] ? extent == ExtentBits'(1) : count == extent_q);
      end
    end
    assign through[k] = ends;
    always_ff @(posedge clk_i) begin
      if (offer_i && fresh) begin
        extent_q <= extent_i[ExtentBits*k+:ExtentBits];
        for (int unsigned n = 0; n < Operands; n++) begin
          stride_q[AddressBits*n+:AddressBits] <= stride_i[AddressBits*(Loops*n+k)+:AddressBits];
        end
      end else if (Rows != 0 && k == Loops - 1 && row_i && advance_i && inner_q[k]) begin
        extent_q <= row_extent_i;
        stride_q[1:0] <= {row_two_i, !row_two_i};
      end
      if (load_i || (advance_i && inner_q[k])) count_q <= ExtentBits'(1);
      else if (moving) count_q <= count;
      if (moving) address_q <= next;
    end
    assign count_o[ExtentBits*k+:ExtentBits] = count_q;
  end

  assign addr_o = gen_loop[Loops-1].address_q;
  assign inner_last_o = inner_q;
  assign sum_first_o = first_q;
  assign last_o = inner_q[0];

  logic unused;
  assign unused = &{1'b0, row_i, row_extent_i, row_two_i};

endmodule
/* verilator lint_on LATCH */
