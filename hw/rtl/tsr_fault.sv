// SPDX-License-Identifier: Apache-2.0
// The fault record and the end of a program. Enters: faults of FETCH and of completing instructions, the queue heads,
// what is busy. Leaves: the earliest fault in program order, which bars younger instructions from starting, and the
// cycle in which the machine stops: FINISH, or a fault and nothing older left. When nothing has moved for IdleCycles
// although something waits, the oldest waiting instruction becomes no_progress.
//
// Latency: a fault bars from the next cycle on. Reset: synchronous, active low; it also begins a program.
module tsr_fault #(
  parameter int unsigned IdleCycles = 64
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         run_i,
  input  logic [3:0]   engine_fault_i,  // by engine: a fault completes
  input  logic [11:0]  engine_code_i,
  input  logic [127:0] engine_pc_i,
  input  logic         fetch_fault_i,
  input  logic [2:0]   fetch_code_i,
  input  logic [31:0]  fetch_pc_i,
  input  logic         fetch_held_i,    // FETCH holds a legal instruction, at fetch_pc_i
  input  logic [3:0]   head_valid_i,    // by engine
  input  logic [127:0] head_pc_i,
  input  logic [3:0]   head_holds_i,    // its conditions hold
  input  logic         busy_i,          // an engine or a bus transaction
  input  logic         moving_i,        // FETCH dispatches in this cycle
  input  logic         finish_i,        // FETCH holds FINISH
  input  logic         finish_holds_i,  // and its conditions hold
  output logic [3:0]   start_o,         // by engine: its head may start
  output logic         finish_take_o,
  output logic         stop_o,          // the program ends in this cycle
  output logic         fault_o,         // there is a record
  output logic [2:0]   code_o,
  output logic [2:0]   unit_o,
  output logic [31:0]  pc_o
);

  localparam int unsigned IdleBits = $clog2(IdleCycles + 1);

  logic fault_q, fault, stuck;
  logic [2:0] code_q, unit_q, code, unit;
  logic [31:0] pc_q, pc;
  logic [3:0] older;  // heads older than the record
  logic [IdleBits-1:0] idle_q;

  always_comb begin
    for (int unsigned e = 0; e < 4; e++) begin
      older[e] = head_valid_i[e] && (!fault_q || head_pc_i[32*e+:32] < pc_q);
      start_o[e] = run_i && older[e] && head_holds_i[e];
    end
  end

  assign finish_take_o = run_i && finish_i && finish_holds_i && head_valid_i == '0 && !busy_i && !fault_q;
  assign stop_o = finish_take_o || (run_i && fault_q && older == '0 && !busy_i);
  assign stuck = idle_q == IdleBits'(IdleCycles);

  always_comb begin
    fault = fault_q;
    code = code_q;
    unit = unit_q;
    pc = pc_q;
    if (fetch_fault_i && (!fault || fetch_pc_i < pc)) begin
      fault = 1'b1;
      code = fetch_code_i;
      unit = 3'(tsr_isa_pkg::UnitFetch);
      pc = fetch_pc_i;
    end
    for (int unsigned e = 0; e < 4; e++) begin
      if (engine_fault_i[e] && (!fault || engine_pc_i[32*e+:32] < pc)) begin
        fault = 1'b1;
        code = engine_code_i[3*e+:3];
        unit = 3'(e);
        pc = engine_pc_i[32*e+:32];
      end
    end
    if (stuck) begin
      if (fetch_held_i && !fault) begin
        fault = 1'b1;
        code = 3'(tsr_isa_pkg::FaultNoProgress);
        unit = 3'(tsr_isa_pkg::UnitFetch);
        pc = fetch_pc_i;
      end
      for (int unsigned e = 0; e < 4; e++) begin
        if (older[e] && (!fault || head_pc_i[32*e+:32] < pc)) begin
          fault = 1'b1;
          code = 3'(tsr_isa_pkg::FaultNoProgress);
          unit = 3'(e);
          pc = head_pc_i[32*e+:32];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      fault_q <= 1'b0;
      code_q <= '0;
      unit_q <= '0;
      pc_q <= '0;
      idle_q <= '0;
    end else if (run_i) begin
      if (fetch_fault_i || engine_fault_i != '0 || stuck) begin
        fault_q <= fault;
        code_q <= code;
        unit_q <= unit;
        pc_q <= pc;
      end
      if (busy_i || moving_i || start_o != '0 || finish_take_o || stuck || !(fault_q || fetch_held_i)) idle_q <= '0;
      else idle_q <= idle_q + 1'b1;
    end
  end

  assign fault_o = fault_q;
  assign code_o = code_q;
  assign unit_o = unit_q;
  assign pc_o = pc_q;

endmodule
