// SPDX-License-Identifier: Apache-2.0
// The performance counters of isa/registers.toml. Enters: one-cycle events by unit and byte counts. Leaves: one counter
// by number: 0 cycles, 1 instructions, 2 bytes read, 3 bytes written, then eight for each unit: busy, waits on LOAD,
// GEMM, ALU, STORE, stalls on memory and ports, executed. An instruction counts as waiting on the engine of its first
// condition that does not hold.
//
// Latency: an event counts from the next cycle on; value_o is combinational. Reset: synchronous, active low; it also
// begins a program.
module tsr_counters (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        run_i,
  input  logic        instruction_i,
  input  logic [21:0] load_bytes_i,
  input  logic        fetch_word_i,     // 64 bytes
  input  logic [21:0] store_bytes_i,
  input  logic [4:0]  busy_i,           // by unit
  input  logic [19:0] waiting_on_i,     // by unit, one bit an engine
  input  logic [4:0]  stall_memory_i,
  input  logic [4:0]  stall_port_i,
  input  logic [4:0]  executed_i,
  input  logic [5:0]  select_i,
  output logic [63:0] value_o
);

  logic [63:0] cycles_q, instructions_q, read_q, written_q;
  logic [4:0] event_busy;
  assign event_busy = busy_i & {5{run_i}};

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      cycles_q <= '0;
      instructions_q <= '0;
      read_q <= '0;
      written_q <= '0;
    end else if (run_i) begin
      cycles_q <= cycles_q + 64'd1;
      if (instruction_i) instructions_q <= instructions_q + 64'd1;
      read_q <= read_q + {42'd0, load_bytes_i} + (fetch_word_i ? 64'd64 : 64'd0);
      written_q <= written_q + {42'd0, store_bytes_i};
    end
  end

  logic [40*64-1:0] units_q;
  for (genvar u = 0; u < 5; u++) begin : gen_unit
    logic [7:0] events;
    assign events = {executed_i[u], stall_port_i[u], stall_memory_i[u], waiting_on_i[4*u+:4], event_busy[u]};
    for (genvar c = 0; c < 8; c++) begin : gen_counter
      logic [63:0] count_q;
      always_ff @(posedge clk_i) begin
        if (!rst_ni) count_q <= '0;
        else if (run_i) count_q <= count_q + 64'(events[c]);  // no branch for each of forty
      end
      assign units_q[64*(8*u+c)+:64] = count_q;
    end
  end

  always_comb begin
    case (select_i)
      6'd0: value_o = cycles_q;
      6'd1: value_o = instructions_q;
      6'd2: value_o = read_q;
      6'd3: value_o = written_q;
      default: begin
        value_o = '0;
        for (int unsigned k = 0; k < 40; k++) begin
          if (select_i == 6'(k + 4)) value_o = units_q[64*k+:64];
        end
      end
    endcase
  end

endmodule
