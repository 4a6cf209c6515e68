// SPDX-License-Identifier: Apache-2.0
// The signal counters of the four engines, and which of five instructions (four queue heads and FINISH) may go on.
// Enters: signals of completed instructions and the conditions of the five. Leaves: for each, whether all hold, and the
// engine of the condition that is looked at. The conditions of an instruction are looked at one after another, one a
// cycle, so that an instruction has one comparison. A condition that has held needs no second look: its counter stays
// within half its range as long as the instruction waits.
//
// Latency: a signal counts from the next cycle on; a condition that is looked at in cycle t and holds, or is none, gives
// way to the next one in t + 1. An instruction without conditions waits for nothing. Reset: synchronous, active
// low, to 0. Timing: a condition chosen, its counter chosen and compared; holds_o comes from registers.
module tsr_timeline (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic [3:0]   signal_i,     // by engine
  input  logic [4:0]   valid_i,      // there is an instruction; else its conditions hold
  input  logic [3:0]   leave_i,      // the queue's head leaves
  input  logic [56:0]  load_waits_i,   // the conditions of a header
  input  logic [56:0]  gemm_waits_i,
  input  logic [56:0]  alu_waits_i,
  input  logic [56:0]  store_waits_i,
  input  logic [56:0]  finish_waits_i,
  output logic [4:0]   holds_o,
  output logic [19:0]  waiting_on_o  // five times one bit an engine; 0 when all conditions hold
);

  localparam int unsigned Waits = tsr_isa_pkg::Waits;
  typedef struct packed { logic [3:0][15:0] engine; } counters_t;
  counters_t count_q;
  if (Waits != 3) $error("tsr_timeline: three conditions");
  logic [9:0] look_q;  // by instruction: the number of the condition that is looked at; 3 behind the last
  logic [4:0] fresh_q;  // the first one: there was no instruction, or another one
  logic [4:0] passed;  // it holds, or is none

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      count_q <= '0;
    end else if (signal_i != '0) begin
      for (int unsigned e = 0; e < 4; e++) begin
        if (signal_i[e]) count_q.engine[e] <= count_q.engine[e] + 16'd1;
      end
    end
  end

  tsr_isa_pkg::wait_t condition;
  logic [56:0] waits;
  logic [1:0] look;
  logic [Waits-1:0] enable;
  logic [15:0] count;
  always_comb begin
    waits = '0;
    condition = '0;
    look = '0;
    enable = '0;
    count = '0;
    passed = '0;
    for (int unsigned h = 0; h < 5; h++) begin
      holds_o[h] = 1'b1;
      waiting_on_o[4*h+:4] = '0;
      // A queue without an instruction still shows some word.
      if (!tsr_isa_pkg::Simulated || valid_i[h]) begin
        waits = h == 0 ? load_waits_i : h == 1 ? gemm_waits_i : h == 2 ? alu_waits_i : h == 3 ? store_waits_i
                                                                                             : finish_waits_i;
        look = fresh_q[h] ? '0 : look_q[2*h+:2];
        for (int unsigned k = 0; k < Waits; k++) begin
          condition = waits[tsr_isa_pkg::WaitBits*k+:tsr_isa_pkg::WaitBits];
          enable[k] = condition.enable;
        end
        holds_o[h] = !valid_i[h] || (enable >> look) == '0;
        if (!tsr_isa_pkg::Simulated || !holds_o[h]) begin
          condition = waits[2*tsr_isa_pkg::WaitBits+:tsr_isa_pkg::WaitBits];
          for (int unsigned k = 0; k < 2; k++) begin
            if (look == 2'(k)) condition = waits[tsr_isa_pkg::WaitBits*k+:tsr_isa_pkg::WaitBits];
          end
          count = '0;
          for (int unsigned e = 0; e < 4; e++) begin
            if (condition.engine == 2'(e)) count = count_q.engine[e];
          end
          // Reached: the difference modulo 2^16 is not negative.
          passed[h] = !condition.enable || 16'(count - condition.count) < 16'h8000;
          if (!holds_o[h]) waiting_on_o[4*h+:4] = 4'd1 << condition.engine;
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    fresh_q <= {5{!rst_ni}} | ~valid_i | {1'b0, leave_i};
    for (int unsigned h = 0; h < 5; h++) begin
      if (passed[h] && !holds_o[h]) look_q[2*h+:2] <= (fresh_q[h] ? '0 : look_q[2*h+:2]) + 2'd1;
      else if (fresh_q[h]) look_q[2*h+:2] <= '0;
    end
  end

endmodule
