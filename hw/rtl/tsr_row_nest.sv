// SPDX-License-Identifier: Apache-2.0
// The loops of an instruction of rows: the outer ones walk over the rows, the innermost row_i of them inside a row. Enters:
// the instruction's operands, which hold. Leaves: where the row's scalars, destination and source are, in this order;
// how far the entry is from there, of destination and source; each loop's iteration, from 1 on. Method: as tsr_nest, but
// the two groups of loops step each on its own, with one adder an operand, because never both in one cycle.
//
// load_i, while idle_i: the first row. load_entries_i: the first entry, as which the row may step too. next_row_i while
// outer_i, next_entry_i while not. Latency: the outputs follow a cycle later. Throughput: a step a cycle. Reset: none.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_row_nest (
  input  logic         clk_i,
  input  logic         idle_i,
  input  logic         load_i,
  input  logic         outer_i,
  input  logic         next_row_i,
  input  logic         next_entry_i,
  input  logic         load_entries_i,
  input  logic [2:0]   row_i,
  input  logic [71:0]  extent_i,
  input  logic [41:0]  addr_i,
  input  logic [251:0] stride_i,
  output logic [41:0]  row_addr_o,
  output logic [27:0]  entry_addr_o,
  output logic [71:0]  count_o,
  output logic         last_row_o,
  output logic         last_entry_o
);

  localparam int unsigned Loops = tsr_isa_pkg::Loops;
  localparam int unsigned AddressBits = tsr_isa_pkg::GemmInpAddrWidth;
  localparam int unsigned ExtentBits = tsr_isa_pkg::GemmExtentWidth;
  localparam int unsigned Width = 3 * AddressBits;
  localparam logic [2:0] First = 3'd6;  // instead of a loop that steps

  // Which loops are inside a row, which are through, which one steps, with all deeper ones of its group.
  logic [Loops-1:0] entrywise, through_q, turn, moves;
  logic [2:0] step;
  logic found;
  always_comb begin
    found = 1'b0;
    step = First;
    for (int unsigned k = 0; k < Loops; k++) entrywise[k] = 4'(row_i) + 4'(k) >= 4'(Loops);
    for (int unsigned k = Loops - 1; k < Loops; k--) begin
      turn[k] = entrywise[k] != outer_i;
      moves[k] = turn[k] && !found;
      if (moves[k] && !through_q[k] && !idle_i) step = 3'(k);
      found = found || (turn[k] && !through_q[k]);
    end
  end
  assign last_row_o = (through_q | entrywise) == '1;
  assign last_entry_o = (through_q | ~entrywise) == '1;

  // The address and the stride of the loop that steps. The first row is a step from loop 4's, which is 0 then: as the
  // loop that First selects without a look at its middle bit, which saves a look-up table a bit.
  logic [Width-1:0] from, by, next;
  logic steps;
  assign steps = load_i || next_row_i || next_entry_i;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {from, by, next} = 'x;
    if (!tsr_isa_pkg::Simulated || steps) begin
      from = step[2] ? (step[0] ? gen_loop[5].address_q : gen_loop[4].address_q)
                     : step[1] ? (step[0] ? gen_loop[3].address_q : gen_loop[2].address_q)
                               : (step[0] ? gen_loop[1].address_q : gen_loop[0].address_q);
      by = step[2] ? (step[1] ? addr_i : step[0] ? gen_loop[5].stride : gen_loop[4].stride)
                   : step[1] ? (step[0] ? gen_loop[3].stride : gen_loop[2].stride)
                             : (step[0] ? gen_loop[1].stride : gen_loop[0].stride);
      for (int unsigned n = 0; n < 3; n++) begin
        next[AddressBits*n+:AddressBits] = from[AddressBits*n+:AddressBits] + by[AddressBits*n+:AddressBits];
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (load_i || next_row_i) row_addr_o <= next;
    if (load_i || (next_entry_i && last_entry_o)) entry_addr_o <= '0;
    else if (next_entry_i) entry_addr_o <= next[2*AddressBits-1:0];
  end

  for (genvar k = 0; k < Loops; k++) begin : gen_loop
    logic [ExtentBits-1:0] extent, count_q, count;
    logic [Width-1:0] stride, address_q;
    logic single, first, moving;
    always_comb begin
      for (int unsigned n = 0; n < 3; n++) begin
        stride[AddressBits*n+:AddressBits] = stride_i[AddressBits*(Loops*n+k)+:AddressBits];
      end
    end
    assign extent = extent_i[ExtentBits*k+:ExtentBits];
    assign single = extent == ExtentBits'(1);
    assign first = load_i || (load_entries_i && entrywise[k]);
    assign moving = moves[k] && (next_row_i || next_entry_i);
    assign count = count_q + ExtentBits'(1);
    always_ff @(posedge clk_i) begin
      if (first || moving) through_q[k] <= first || through_q[k] ? single : count == extent;
      if (first || (moving && through_q[k])) count_q <= ExtentBits'(1);
      else if (moving) count_q <= count;
      if ((load_entries_i && entrywise[k]) || (k == 4 && idle_i && !load_i)) address_q <= '0;
      else if (load_i || moving) address_q <= next;
    end
    assign count_o[ExtentBits*k+:ExtentBits] = count_q;
  end

endmodule
/* verilator lint_on LATCH */
