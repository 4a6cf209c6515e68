// SPDX-License-Identifier: Apache-2.0
// Engines and instructions, bound to tsr_top: an instruction offered to an engine stands until it is taken or barred by
// a fault; an engine takes and completes its instructions in program order, each once, and completes only what it took;
// when the program ends nothing is under way.
module tsr_assert_top (
  input logic            clk_i,
  input logic            program_rst_n,
  input logic            run,
  input logic            stop,
  input logic            fault,
  input logic            fault_found,
  input logic [3:0]      instr_valid,
  input logic [3:0]      instr_ready,
  input logic [3:0]      busy,
  input logic [3:0]      complete,
  input logic [127:0]    head_pc,
  input logic [127:0]    complete_pc,
  input logic [2047:0]   head_word,
  input logic            read_busy
);

  logic [3:0] held_q;
  logic [2047:0] word_q;
  logic [31:0] taken[4][$];
  logic [31:0] oldest;

  always @(posedge clk_i) begin
    if (!program_rst_n) begin
      held_q <= '0;
      for (int unsigned e = 0; e < 4; e++) taken[e].delete();
    end else begin
      held_q <= instr_valid & ~instr_ready;
      word_q <= head_word;
      for (int unsigned e = 0; e < 4; e++) begin
        if (held_q[e]) begin
          `TSR_ASSERT(instr_valid[e] || fault || fault_found || !run, "an offered instruction was withdrawn")
          `TSR_ASSERT(word_q[512*e+:512] == head_word[512*e+:512], "an offered instruction changed")
        end
        if (complete[e]) begin
          `TSR_ASSERT(busy[e], "an engine completed that was not busy")
          `TSR_ASSERT(taken[e].size() != 0, "an engine completed what it did not take")
          if (taken[e].size() != 0) begin
            oldest = taken[e].pop_front();
            `TSR_ASSERT(oldest == complete_pc[32*e+:32], "an engine completed out of order")
          end
        end
        if (instr_valid[e] && instr_ready[e]) begin
          if (taken[e].size() != 0)
            `TSR_ASSERT(taken[e][taken[e].size()-1] < head_pc[32*e+:32], "an engine took an instruction out of order")
          taken[e].push_back(head_pc[32*e+:32]);
        end
      end
      if (stop) `TSR_ASSERT(busy == '0 && complete == '0 && !read_busy, "the program ended with work under way")
    end
  end

endmodule

bind tsr_top tsr_assert_top u_assert (.*);
