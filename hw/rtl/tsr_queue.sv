// SPDX-License-Identifier: Apache-2.0
// A FIFO with first-word fall-through: the oldest word stands at data_o while valid_o is set. It stands in a register, the
// others in a memory, so that the output moves only when the head does.
//
// Latency: a word written into an empty queue is visible in the next cycle. Throughput: one word in and one out a
// cycle. Back-pressure: ready_o depends on state only. Reset: synchronous, active low, empties it. Legal: Width >= 1,
// Depth >= 1.
module tsr_queue #(
  parameter int unsigned Width = 8,
  parameter int unsigned Depth = 4
) (
  input  logic             clk_i,
  input  logic             rst_ni,
  input  logic             valid_i,
  input  logic [Width-1:0] data_i,
  output logic             ready_o,
  output logic             valid_o,
  output logic [Width-1:0] data_o,
  input  logic             ready_i
);

  localparam int unsigned PointerBits = Depth > 1 ? $clog2(Depth) : 1;
  localparam int unsigned CountBits = $clog2(Depth + 1);
  localparam logic [PointerBits-1:0] LastSlot = PointerBits'(Depth - 1);

  logic [Width-1:0] mem[Depth];
  logic [Width-1:0] head_word_q;
  logic [PointerBits-1:0] head_q, tail_q, next;  // slots; the head's own copy in mem is not read
  logic [CountBits-1:0] count_q;
  logic push, pop;

  assign ready_o = count_q != CountBits'(Depth);
  assign valid_o = count_q != '0;
  assign data_o = head_word_q;
  assign push = valid_i && ready_o;
  assign pop = valid_o && ready_i;
  assign next = head_q == LastSlot ? '0 : head_q + 1'b1;

  always_ff @(posedge clk_i) begin
    if (push) mem[tail_q] <= data_i;
  end

  // A word that finds the queue empty, or leaving with it the only one, is the head at once.
  always_ff @(posedge clk_i) begin
    if (push && (count_q == '0 || (count_q == CountBits'(1) && pop))) head_word_q <= data_i;
    else if (pop) head_word_q <= mem[next];
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      head_q <= '0;
      tail_q <= '0;
      count_q <= '0;
    end else if (push || pop) begin
      if (push) tail_q <= tail_q == LastSlot ? '0 : tail_q + 1'b1;
      if (pop) head_q <= next;
      count_q <= count_q + CountBits'(push) - CountBits'(pop);
    end
  end

endmodule
