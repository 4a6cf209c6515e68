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

  // One register each and a choice in two steps: a vector of forty counters costs a simulator as much as an engine.
  logic [5:0] unit_select;
  logic [5*64-1:0] unit_value;
  assign unit_select = select_i - 6'd4;
  for (genvar u = 0; u < 5; u++) begin : gen_unit
    logic [63:0] busy_q, load_q, gemm_q, alu_q, store_q, memory_q, port_q, executed_q, value;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        busy_q <= '0;
        load_q <= '0;
        gemm_q <= '0;
        alu_q <= '0;
        store_q <= '0;
        memory_q <= '0;
        port_q <= '0;
        executed_q <= '0;
      end else if (run_i) begin  // no branch for each of forty
        busy_q <= busy_q + 64'(busy_i[u]);
        load_q <= load_q + 64'(waiting_on_i[4*u]);
        gemm_q <= gemm_q + 64'(waiting_on_i[4*u+1]);
        alu_q <= alu_q + 64'(waiting_on_i[4*u+2]);
        store_q <= store_q + 64'(waiting_on_i[4*u+3]);
        memory_q <= memory_q + 64'(stall_memory_i[u]);
        port_q <= port_q + 64'(stall_port_i[u]);
        executed_q <= executed_q + 64'(executed_i[u]);
      end
    end
    always_comb begin
      case (unit_select[2:0])
        3'd0: value = busy_q;
        3'd1: value = load_q;
        3'd2: value = gemm_q;
        3'd3: value = alu_q;
        3'd4: value = store_q;
        3'd5: value = memory_q;
        3'd6: value = port_q;
        default: value = executed_q;
      endcase
    end
    assign unit_value[64*u+:64] = value;
  end

  always_comb begin
    case (select_i)
      6'd0: value_o = cycles_q;
      6'd1: value_o = instructions_q;
      6'd2: value_o = read_q;
      6'd3: value_o = written_q;
      default: value_o = unit_select[5:3] < 3'd5 ? unit_value[{unit_select[5:3], 6'd0}+:64] : '0;
    endcase
  end

endmodule
