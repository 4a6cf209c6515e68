// SPDX-License-Identifier: Apache-2.0
// The signal counters of the four engines, and which of five instructions (four queue heads and FINISH) may go on.
// Enters: signals of completed instructions and the conditions of the five. Leaves: for each, whether all hold, and the
// engine of its first condition that is not known to hold. The conditions of an instruction are looked at one after
// another, one a cycle, so that an instruction has one comparison. A condition that has held needs no second look:
// its counter stays within half its range as long as the instruction waits.
//
// Latency: a signal counts from the next cycle on; a condition that is looked at in cycle t and holds is known to from
// t + 1 on, and t + 1 is the next one's. An instruction without conditions waits for nothing. Reset: synchronous, active
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
  logic [5*Waits-1:0] known_q, held;  // conditions that have held; that hold in this cycle

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
  logic [Waits-1:0] open, first;  // conditions that are not known to hold; of them the first
  always_comb begin
    waits = '0;
    condition = '0;
    open = '0;
    first = '0;
    held = '0;
    for (int unsigned h = 0; h < 5; h++) begin
      holds_o[h] = 1'b1;
      waiting_on_o[4*h+:4] = '0;
      if (valid_i[h]) begin
        waits = h == 0 ? load_waits_i : h == 1 ? gemm_waits_i : h == 2 ? alu_waits_i : h == 3 ? store_waits_i
                                                                                             : finish_waits_i;
        for (int unsigned k = 0; k < Waits; k++) begin
          condition = waits[tsr_isa_pkg::WaitBits*k+:tsr_isa_pkg::WaitBits];
          open[k] = condition.enable && !known_q[Waits*h+k];
        end
        holds_o[h] = open == '0;
        if (!tsr_isa_pkg::Simulated || open != '0) begin
          first = open & (~open + Waits'(1));
          condition = '0;
          for (int unsigned k = 0; k < Waits; k++) begin
            if (first[k]) condition = condition | waits[tsr_isa_pkg::WaitBits*k+:tsr_isa_pkg::WaitBits];
          end
          // Reached: the difference modulo 2^16 is not negative.
          if (16'(count_q.engine[condition.engine] - condition.count) < 16'h8000) held[Waits*h+:Waits] = first;
          if (open != '0) waiting_on_o[4*h+:4] = 4'd1 << condition.engine;
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned h = 0; h < 5; h++) begin
      if (!rst_ni || !valid_i[h] || (h < 4 && leave_i[h[1:0]])) known_q[Waits*h+:Waits] <= '0;
      else known_q[Waits*h+:Waits] <= known_q[Waits*h+:Waits] | held[Waits*h+:Waits];
    end
  end

endmodule
