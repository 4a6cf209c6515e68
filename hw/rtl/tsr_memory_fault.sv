// SPDX-License-Identifier: Apache-2.0
// Parity errors of the on-chip memories as faults of the engines that read. Enters: in which engine's word an error was
// found; what completes. Leaves: a fault for tsr_fault, with the next completion of that engine: it is the oldest
// instruction that was inside when the error was found, the one that read or one before it. An engine that is empty by
// then has a fault of the instruction that it completed last.
//
// Latency: none to a completion of the same cycle. Reset: synchronous, active low; it also begins a program.
module tsr_memory_fault (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic [3:0]   error_i,        // by engine: a word that it read is wrong
  input  logic [3:0]   busy_i,         // by engine, also in the cycle of a completion
  input  logic [3:0]   complete_i,
  input  logic [127:0] complete_pc_i,
  output logic         found_o,        // an error is known, and may not be a fault yet
  output logic [3:0]   fault_o,        // by engine
  output logic [127:0] pc_o            // of what completes, else of what has completed last
);

  typedef struct packed { logic [3:0][31:0] engine; } numbers_t;
  numbers_t complete_pc, last_pc_q, pc;
  logic [3:0] found, waits_q;

  assign complete_pc = complete_pc_i;
  assign found = error_i | waits_q;
  assign found_o = found != '0;
  assign fault_o = found & (complete_i | ~busy_i);
  assign pc_o = pc;
  always_comb begin
    for (int unsigned e = 0; e < 4; e++) pc.engine[e] = complete_i[e] ? complete_pc.engine[e] : last_pc_q.engine[e];
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned e = 0; e < 4; e++) begin
      if (complete_i[e]) last_pc_q.engine[e] <= complete_pc.engine[e];
    end
    waits_q <= rst_ni ? found & ~fault_o : '0;
  end

endmodule
