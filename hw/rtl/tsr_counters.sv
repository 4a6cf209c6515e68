// SPDX-License-Identifier: Apache-2.0
// The performance counters of isa/registers.toml. Enters: one-cycle events by unit and byte counts. Leaves: one counter
// by number: 0 cycles, 1 instructions, 2 bytes read, 3 bytes written, then from 8 on eight for each unit: busy, waits on
// LOAD, GEMM, ALU, STORE, stalls on memory and ports, executed. An instruction counts as waiting on the engine of its
// first condition that does not hold.
//
// A counter of events has its seven low bits in registers and bits 6 to 63 in a LUT RAM that a walk visits, one counter a
// cycle. Bit 6 stands in both: where the two differ, the register has passed a multiple of 64 since the last visit, and
// the visit adds one. So a counter must be visited once in 64 cycles; the walk takes 48, and a read takes one of its
// cycles. In the first walk the memory's words are of an older program and read as 0.
//
// Latency: an event counts from the next cycle on, bytes one or two later; value_o follows read_i by two cycles. Reset:
// synchronous, active low; it also begins a program. Legal: read_i in one of five cycles at most. Timing: a word of the
// LUT RAM and a carry of 15 bits; the sums of a read stand behind value_o's register.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_counters (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        run_i,
  input  logic        instruction_i,
  input  logic        load_bytes_valid_i,
  input  logic [21:0] load_bytes_i,
  input  logic        fetch_word_i,     // 64 bytes
  input  logic        store_bytes_valid_i,
  input  logic [21:0] store_bytes_i,
  input  logic [4:0]  busy_i,           // by unit
  input  logic [19:0] waiting_on_i,     // by unit, one bit an engine
  input  logic [4:0]  stall_memory_i,
  input  logic [4:0]  stall_port_i,
  input  logic [4:0]  executed_i,
  input  logic        read_i,
  input  logic [5:0]  select_i,
  output logic [63:0] value_o
);

  localparam logic [5:0] Last = 6'd47;

  // Low bits: the eight counters of a unit side by side, a bit that stays 0 between them, so that they are one sum.
  localparam logic [63:0] LowBits = {8{8'h7f}};
  typedef struct packed { logic [7:0][7:0] counter; } lows_t;
  lows_t machine_q, load_q, gemm_q, alu_q, store_q, fetch_q, unit;

  // The four waits are spread by copies of them, each a place further from its byte than the one before.
  function automatic logic [63:0] counted(input logic [63:0] low, input logic busy, input logic [3:0] waiting,
                                          input logic memory, input logic port, input logic executed);
    logic [31:0] waits;
    waits = {7'd0, waiting, 3'd0, waiting, 3'd0, waiting, 3'd0, waiting} & {4{8'd1}};
    counted = LowBits & (low + {7'd0, executed, 7'd0, port, 7'd0, memory, waits, 7'd0, busy});
  endfunction

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      machine_q <= '0;
      load_q <= '0;
      gemm_q <= '0;
      alu_q <= '0;
      store_q <= '0;
      fetch_q <= '0;
    end else if (run_i) begin
      machine_q <= counted(machine_q, 1'b1, {3'd0, instruction_i}, 1'b0, 1'b0, 1'b0);
      load_q <= counted(load_q, busy_i[0], waiting_on_i[3:0], stall_memory_i[0], stall_port_i[0], executed_i[0]);
      gemm_q <= counted(gemm_q, busy_i[1], waiting_on_i[7:4], stall_memory_i[1], stall_port_i[1], executed_i[1]);
      alu_q <= counted(alu_q, busy_i[2], waiting_on_i[11:8], stall_memory_i[2], stall_port_i[2], executed_i[2]);
      store_q <= counted(store_q, busy_i[3], waiting_on_i[15:12], stall_memory_i[3], stall_port_i[3], executed_i[3]);
      fetch_q <= counted(fetch_q, busy_i[4], waiting_on_i[19:16], stall_memory_i[4], stall_port_i[4], executed_i[4]);
    end
  end

  // The walk over the high bits.
  logic [57:0] mem[Last+1];
  logic [5:0] walk_q, walk_next, number;
  logic first_q;  // walk
  logic [57:0] word, ahead_q, visited, high;
  logic fresh, passed;  // of a read: the walk has not come there yet; a multiple of 64 has passed since the last visit
  logic [6:0] low;
  logic bit_q;  // bit 6 of the walk's counter, as it was when the walk came to it
  logic more, changes;  // the walk's counter grows, its word changes
  logic [1:0] asked_q;  // there was a read one cycle ago, two ago
  assign number = read_i ? select_i : walk_next;  // the walk reads one counter ahead
  assign walk_next = walk_q == Last ? '0 : walk_q + 6'd1;

  // One more, or not, in four parts: one grows when all of the lower ones are ones. `zero`: the bits count as zeros.
  function automatic logic [3:0] growth(input logic [43:0] bits, input logic one, input logic zero);
    logic first, second, third;
    first = one && !zero && bits[14:0] == '1;
    second = bits[29:15] == '1;
    third = bits[43:30] == '1;
    growth = {first && second && third, first && second, first, one};
  endfunction
  function automatic logic [57:0] grown(input logic [57:0] bits, input logic [3:0] ones);
    grown = {bits[57:44] + 14'(ones[3]), bits[43:30] + 14'(ones[2]), bits[29:15] + 15'(ones[1]), bits[14:0] + 15'(ones[0])};
  endfunction

  lows_t walked;
  logic sixth;  // bit 6 of the counter that is visited next
  always_comb begin
    case (walk_next[5:3])
      3'd0: walked = machine_q;
      3'd1: walked = load_q;
      3'd2: walked = gemm_q;
      3'd3: walked = alu_q;
      3'd4: walked = store_q;
      default: walked = fetch_q;
    endcase
    sixth = 1'b0;
    for (int unsigned k = 0; k < 8; k++) begin
      if (walk_next[2:0] == 3'(k)) sixth = walked.counter[k][6:6];
    end
  end

  always_comb begin
    unit = '0;
    low = '0;
    fresh = 1'b0;
    passed = 1'b0;
    if (!tsr_isa_pkg::Simulated || read_i) begin
      case (select_i[5:3])
        3'd0: unit = machine_q;
        3'd1: unit = load_q;
        3'd2: unit = gemm_q;
        3'd3: unit = alu_q;
        3'd4: unit = store_q;
        default: unit = fetch_q;
      endcase
      for (int unsigned k = 0; k < 8; k++) begin
        if (select_i[2:0] == 3'(k)) low = unit.counter[k][6:0];
      end
      fresh = first_q && select_i >= walk_q;
      passed = (word[0] && !fresh) != low[6];
    end
  end
  assign word = mem[number];
  assign more = (!first_q && ahead_q[0]) != bit_q;
  assign changes = first_q || more;
  always_comb begin
    visited = first_q ? '0 : ahead_q;
    high = '0;
    if (!tsr_isa_pkg::Simulated || changes) high = grown(visited, growth(ahead_q[43:0], more, first_q));
  end

  always_ff @(posedge clk_i) begin
    if (run_i && !read_i) begin
      if (changes) mem[walk_q] <= high;
      ahead_q <= word;
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      walk_q <= '0;
      first_q <= 1'b1;
      bit_q <= 1'b0;
    end else if (run_i && !read_i) begin
      walk_q <= walk_next;
      bit_q <= sixth;
      if (walk_q == Last) first_q <= 1'b0;
    end
  end

  // Bytes: what STORE sends in a cycle is added in the next one, what LOAD and FETCH read one later.
  logic [63:0] read_q, written_q;
  logic [21:0] load_add_q, read_add_q, written_add_q;
  logic fetch_word_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      read_q <= '0;
      written_q <= '0;
      load_add_q <= '0;
      read_add_q <= '0;
      written_add_q <= '0;
      fetch_word_q <= 1'b0;
    end else begin
      fetch_word_q <= run_i && fetch_word_i;
      load_add_q <= run_i && load_bytes_valid_i ? load_bytes_i : '0;
      read_add_q <= {15'd0, fetch_word_q, 6'd0} + load_add_q;
      written_add_q <= run_i && store_bytes_valid_i ? store_bytes_i : '0;
      if (read_add_q != '0) read_q <= read_q + 64'(read_add_q);
      if (written_add_q != '0) written_q <= written_q + 64'(written_add_q);
    end
  end

  // A read keeps the value and whether it grows, then which of its parts do; the sums are made behind that register.
  logic [63:0] value_q;
  logic passed_q;
  logic [3:0] growth_q;
  always_ff @(posedge clk_i) begin
    if (!tsr_isa_pkg::Simulated || asked_q[0]) growth_q <= growth(value_q[49:6], passed_q, 1'b0);
    if (read_i) begin
      passed_q <= select_i != 6'd2 && select_i != 6'd3 && passed;
      case (select_i)
        6'd2: value_q <= read_q;
        6'd3: value_q <= written_q;
        default: value_q <= {fresh ? 58'd0 : word, low[5:0]};
      endcase
    end
  end
  always_ff @(posedge clk_i) asked_q <= {asked_q[0], read_i};
  always_comb begin
    if (!tsr_isa_pkg::Simulated) value_o = 'x;
    if (!tsr_isa_pkg::Simulated || asked_q[1]) value_o = {grown(value_q[63:6], growth_q), value_q[5:0]};
  end

  logic unused;
  assign unused = &{1'b0, asked_q};

endmodule
/* verilator lint_on LATCH */
