// SPDX-License-Identifier: Apache-2.0
// The fault record and the end of a program. Enters: faults of FETCH and of completing instructions, the queue heads,
// what is busy. Leaves: the earliest fault in program order, which bars younger instructions from starting, and the
// cycle in which the machine stops: FINISH, or a fault and nothing older left. When nothing has moved for IdleCycles
// although something waits, the oldest waiting instruction becomes no_progress. Where a head waits for a public counter, it
// does so once all cores are at rest.
//
// A fault of an engine is kept as that engine's cause. Causes become the record one a cycle, each unless the record is
// older; meanwhile nothing starts. no_progress is found likewise: a head that is older than the record becomes it, until
// none is.
//
// Behind a fault no cycle counts any more. So one comparison with the record serves causes and the four heads in turn,
// and ends in registers: a head may start once it is known to be older than the record, a completion that is older counts
// a cycle later, and the program ends once nothing moves and no head is older. A head's number is taken into a register
// in its turn and compared in the next cycle, because it comes from a queue's memory. Without a record nothing is
// compared and nothing is late.
//
// Latency: an engine's fault bars from the next cycle on and is the record one to four cycles later. Reset: synchronous,
// active low; it also begins a program. A code has three bits; memory_parity, which is 8, is a fault of code 0. Timing: one
// comparison of 32 bits between two registers.
module tsr_fault #(
  parameter int unsigned IdleCycles = 64,
  parameter bit          Awaits     = 1'b0  // heads may wait for public counters of other cores
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  input  logic         run_i,
  input  logic [3:0]   engine_fault_i,  // by engine: a fault completes
  input  logic [11:0]  engine_code_i,
  input  logic [3:0]   complete_i,      // by engine: an instruction completes
  input  logic [3:0]   signal_i,        // by engine: and gives a signal
  input  logic [127:0] engine_pc_i,     // that instruction
  input  logic         fetch_fault_i,
  input  logic [2:0]   fetch_code_i,
  input  logic [31:0]  fetch_pc_i,
  input  logic         fetch_held_i,    // FETCH holds a legal instruction, at fetch_pc_i
  input  logic [3:0]   head_valid_i,    // by engine
  input  logic [127:0] head_pc_i,
  input  logic [3:0]   head_holds_i,    // its conditions hold
  input  logic         busy_i,          // an engine or a bus transaction
  input  logic         moving_i,        // FETCH dispatches in this cycle, or a public counter is reached
  input  logic         awaiting_i,      // a head waits for a public counter
  input  logic         all_rest_i,      // all cores are at rest or do not run
  output logic         rest_o,          // this one is
  input  logic         finish_i,        // FETCH holds FINISH
  input  logic         finish_holds_i,  // and its conditions hold
  output logic [3:0]   start_o,         // by engine: its head may start
  output logic [3:0]   counted_o,       // by engine: a signal of what was no fault and is older than the record
  output logic         finish_take_o,
  output logic         stop_o,          // the program ends in this cycle
  output logic         found_o,         // a fault is on its way to the record
  output logic         fault_o,         // there is a record
  output logic [2:0]   code_o,
  output logic [2:0]   unit_o,
  output logic [31:0]  pc_o
);

  localparam int unsigned IdleBits = IdleCycles > 1 ? $clog2(IdleCycles) : 1;

  typedef struct packed { logic [3:0][31:0] engine; } numbers_t;
  typedef struct packed { logic [3:0][2:0] engine; } codes_t;
  numbers_t engine_pc, head_pc, cause_pc_q;
  codes_t engine_code, cause_code_q;
  assign engine_pc = engine_pc_i;
  assign head_pc = head_pc_i;
  assign engine_code = engine_code_i;

  logic fault_q, stuck, changed_q;  // changed: the record is new in this cycle
  logic [2:0] code_q, unit_q;
  logic [31:0] pc_q;
  logic [3:0] cause_q, known_q, head_older_q, older;  // known: a head has been compared with the record
  logic [3:0] signal_q, older_q, late;                // behind a fault: completions of the cycle before that count
  logic [1:0] turn_q;                                         // the head that is taken in this cycle
  logic taken_q;                                              // one was taken in the cycle before: its engine and number
  logic [1:0] taken_engine_q;
  logic [31:0] taken_pc_q;
  logic [IdleBits-1:0] before_q;  // cycles without a move until the one before last
  logic moved_q, dispatched_q;    // in the cycle before something moved; FETCH did, which is known late in a cycle

  assign late = signal_q & older_q;
  always_comb begin
    older = '0;
    for (int unsigned e = 0; e < 4; e++) begin
      if (!tsr_isa_pkg::Simulated || (fault_q && complete_i[e])) older[e] = engine_pc.engine[e] < pc_q;
      start_o[e] = run_i && head_valid_i[e] && head_holds_i[e] && cause_q == '0 &&
          (!fault_q || (known_q[e] && head_older_q[e] && !changed_q));
      counted_o[e] = late[e] || (signal_i[e] && !engine_fault_i[e] && !fault_q);
    end
  end

  logic idle;  // nothing is under way that could still become the record
  assign idle = !busy_i && cause_q == '0;
  assign finish_take_o = run_i && finish_i && finish_holds_i && head_valid_i == '0 && idle && !fault_q;
  assign stop_o = finish_take_o || (run_i && fault_q && !changed_q && (head_valid_i & (~known_q | head_older_q)) == '0 &&
                                    !moved && idle);
  logic moved, still;  // in the cycle before; nothing has moved for so long
  assign moved = moved_q || dispatched_q;
  assign still = !moved && before_q == IdleBits'(IdleCycles - 1);
  assign stuck = still && (!Awaits || !awaiting_i || all_rest_i);
  assign rest_o = Awaits && still && awaiting_i;

  // Heads are taken in turn once there is something to compare them with, or one of them is to become the record.
  always_ff @(posedge clk_i) begin
    taken_q <= rst_ni && (fault_q || stuck) && head_valid_i[turn_q] && !start_o[turn_q];
    if (!tsr_isa_pkg::Simulated || fault_q || stuck) begin
      taken_engine_q <= turn_q;
      taken_pc_q <= head_pc.engine[turn_q];
    end
  end

  // The candidate: a cause, else the head that was taken.
  logic [1:0] chosen, cause_number;
  logic causes, candidate, candidate_older;
  logic [31:0] candidate_pc;
  logic [2:0] candidate_code;
  assign causes = cause_q != '0;
  assign cause_number = cause_q[0] ? 2'd0 : cause_q[1] ? 2'd1 : cause_q[2] ? 2'd2 : 2'd3;
  assign chosen = causes ? cause_number : taken_engine_q;
  assign candidate = causes || (stuck && taken_q && !changed_q);
  always_comb begin
    candidate_pc = '0;
    candidate_code = '0;
    if (!tsr_isa_pkg::Simulated || causes || fault_q || stuck) begin
      candidate_pc = causes ? cause_pc_q.engine[cause_number] : taken_pc_q;
      candidate_code = causes ? cause_code_q.engine[cause_number] : 3'(tsr_isa_pkg::FaultNoProgress);
    end
  end
  assign candidate_older = candidate_pc < pc_q;

  // What is known of a head ends when the record changes and when the head may have left.
  always_ff @(posedge clk_i) begin
    for (int unsigned e = 0; e < 4; e++) begin
      if (!rst_ni || causes || changed_q || start_o[e] || !head_valid_i[e]) known_q[e] <= 1'b0;
      else if (taken_q && taken_engine_q == 2'(e) && fault_q) known_q[e] <= 1'b1;
      if (taken_engine_q == 2'(e)) head_older_q[e] <= candidate_older;
    end
  end

  always_ff @(posedge clk_i) begin
    for (int unsigned e = 0; e < 4; e++) begin
      if (engine_fault_i[e] && !cause_q[e]) begin
        cause_pc_q.engine[e] <= engine_pc.engine[e];
        cause_code_q.engine[e] <= engine_code.engine[e];
      end
    end
  end

  // FETCH holds what is younger than everything else: its faults come last.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      fault_q <= 1'b0;
      code_q <= '0;
      unit_q <= '0;
      pc_q <= '0;
      cause_q <= '0;
      signal_q <= '0;
      older_q <= '0;
      turn_q <= '0;
      changed_q <= 1'b0;
      before_q <= '0;
      moved_q <= 1'b1;
      dispatched_q <= 1'b0;
    end else if (run_i) begin
      changed_q <= 1'b0;
      signal_q <= fault_q ? signal_i & ~engine_fault_i : '0;
      older_q <= older;
      for (int unsigned e = 0; e < 4; e++) begin
        if (engine_fault_i[e]) cause_q[e] <= 1'b1;
        else if (cause_number == 2'(e)) cause_q[e] <= 1'b0;
      end
      turn_q <= turn_q + 2'd1;
      if (candidate) begin
        if (!fault_q || candidate_older) begin
          fault_q <= 1'b1;
          changed_q <= 1'b1;
          code_q <= candidate_code;
          unit_q <= 3'(chosen);
          pc_q <= candidate_pc;
        end
      end else if (!fault_q && (fetch_fault_i || (stuck && fetch_held_i && head_valid_i == '0))) begin
        fault_q <= 1'b1;
        changed_q <= 1'b1;
        code_q <= fetch_fault_i ? fetch_code_i : 3'(tsr_isa_pkg::FaultNoProgress);
        unit_q <= 3'(tsr_isa_pkg::UnitFetch);
        pc_q <= fetch_pc_i;
      end
      moved_q <= !idle || late != '0 || start_o != '0 || finish_take_o || !(fault_q || fetch_held_i);
      dispatched_q <= moving_i;
      if (moved) before_q <= '0;
      else if (!still) before_q <= before_q + 1'b1;
    end
  end

  assign found_o = cause_q != '0;
  assign fault_o = fault_q;
  assign code_o = code_q;
  assign unit_o = unit_q;
  assign pc_o = pc_q;

  logic unused;
  assign unused = &{1'b0, awaiting_i, all_rest_i};

endmodule
