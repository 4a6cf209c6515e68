// SPDX-License-Identifier: Apache-2.0
// The signal counters of the four engines, and which of five instructions (four queue heads and FINISH) may go on.
// Enters: signals of completed instructions and the conditions of the five. Leaves: for each, whether all hold, and the
// engine of its first condition that does not.
//
// Latency: a signal counts from the next cycle on; holds_o is combinational. Reset: synchronous, active low, to 0.
module tsr_timeline (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic [3:0]   signal_i,     // by engine
  input  logic [4:0]   valid_i,      // there is an instruction; else its conditions hold
  input  logic [56:0]  load_waits_i,   // the conditions of a header
  input  logic [56:0]  gemm_waits_i,
  input  logic [56:0]  alu_waits_i,
  input  logic [56:0]  store_waits_i,
  input  logic [56:0]  finish_waits_i,
  output logic [4:0]   holds_o,
  output logic [19:0]  waiting_on_o  // five times one bit an engine; 0 when all conditions hold
);

  typedef struct packed { logic [3:0][15:0] engine; } counters_t;
  counters_t count_q;

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
  always_comb begin
    logic [56:0] waits;
    waits = '0;
    condition = '0;
    for (int unsigned h = 0; h < 5; h++) begin
      holds_o[h] = 1'b1;
      waiting_on_o[4*h+:4] = '0;
      if (valid_i[h]) begin
        waits = h == 0 ? load_waits_i : h == 1 ? gemm_waits_i : h == 2 ? alu_waits_i : h == 3 ? store_waits_i
                                                                                             : finish_waits_i;
        for (int unsigned k = 0; k < tsr_isa_pkg::Waits; k++) begin
          condition = waits[tsr_isa_pkg::WaitBits*k+:tsr_isa_pkg::WaitBits];
          // Not reached: the difference modulo 2^16 is negative.
          if (condition.enable && 16'(count_q.engine[condition.engine] - condition.count) >= 16'h8000 && holds_o[h]) begin
            holds_o[h] = 1'b0;
            waiting_on_o[4*h+:4] = 4'd1 << condition.engine;
          end
        end
      end
    end
  end

endmodule
