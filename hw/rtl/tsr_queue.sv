// SPDX-License-Identifier: Apache-2.0
// A FIFO with first-word fall-through: the oldest word stands at data_o while valid_o is set. Its lowest HeadBits stand in
// a register, for logic that looks at them in every cycle; the others are read from the memory. With Held those above the
// next ShownBits are not the head's but those of the word that left last: they stay until the next one leaves, so that
// whoever takes words needs no copy.
//
// Latency: a word written into an empty queue is visible in the next cycle. Throughput: one word in and one out a
// cycle. Back-pressure: ready_o depends on state only. Reset: synchronous, active low, empties it. Legal: Width >= 1,
// HeadBits + ShownBits <= Width, Depth >= 1. Timing: the registered bits come from a register, the others from a LUT RAM.
module tsr_queue #(
  parameter int unsigned Width     = 8,
  parameter int unsigned Depth     = 4,
  parameter int unsigned HeadBits  = 0,
  parameter int unsigned ShownBits = 0,
  parameter bit          Held      = 1'b0
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

  if (Width < 1 || HeadBits + ShownBits > Width || Depth < 1)
    $error("tsr_queue: Width >= HeadBits + ShownBits, Width >= 1, Depth >= 1");

  localparam int unsigned Slots = Depth + 32'(Held);  // the place of a held word is not written
  localparam int unsigned PointerBits = Slots > 1 ? $clog2(Slots) : 1;
  localparam int unsigned CountBits = $clog2(Depth + 1);
  localparam logic [PointerBits-1:0] LastSlot = PointerBits'(Slots - 1);

  logic [PointerBits-1:0] head_q, tail_q, next;  // slots
  logic [CountBits-1:0] count_q;
  logic push, pop;

  assign ready_o = count_q != CountBits'(Depth);
  assign valid_o = count_q != '0;
  assign push = valid_i && ready_o;
  assign pop = valid_o && ready_i;
  assign next = head_q == LastSlot ? '0 : head_q + 1'b1;

  // A simulator copies a word when the head moves, not in every cycle: there all of it stands in the register.
  localparam int unsigned Kept = tsr_isa_pkg::Simulated ? Width : HeadBits;
  localparam int unsigned Shown = tsr_isa_pkg::Simulated ? Kept : Held ? HeadBits + ShownBits : Width;
  if (Kept < Shown) begin : gen_shown
    (* ram_style = Slots > 64 ? "distributed" : "auto" *) logic [Shown-Kept-1:0] mem[Slots];
    always_ff @(posedge clk_i) begin
      if (push) mem[tail_q] <= data_i[Shown-1:Kept];
    end
    assign data_o[Shown-1:Kept] = mem[head_q];
  end
  if (Shown < Width) begin : gen_held
    logic [Width-Shown-1:0] mem[Slots];
    logic [PointerBits-1:0] held_q;
    always_ff @(posedge clk_i) begin
      if (push) mem[tail_q] <= data_i[Width-1:Shown];
      if (pop) held_q <= head_q;
    end
    assign data_o[Width-1:Shown] = mem[held_q];
  end

  if (Kept > 0) begin : gen_head
    logic [Kept-1:0] mem[Slots];  // the head's own copy in here is not read
    logic [Kept-1:0] head_word_q;
    always_ff @(posedge clk_i) begin
      if (push) mem[tail_q] <= data_i[Kept-1:0];
    end
    // A word that finds the queue empty, or leaving with it the only one, is the head at once. Who leaves last leaves
    // anything behind: so the choice waits for nobody.
    always_ff @(posedge clk_i) begin
      if (pop || (push && count_q == '0)) begin
        head_word_q <= count_q == '0 || count_q == CountBits'(1) ? data_i[Kept-1:0] : mem[next];
      end
    end
    if (Held && Kept > HeadBits + ShownBits) begin : gen_held
      logic [Kept-HeadBits-ShownBits-1:0] held_word_q;
      always_ff @(posedge clk_i) begin
        if (pop) held_word_q <= head_word_q[Kept-1:HeadBits+ShownBits];
      end
      assign data_o[Kept-1:HeadBits+ShownBits] = held_word_q;
      assign data_o[HeadBits+ShownBits-1:0] = head_word_q[HeadBits+ShownBits-1:0];
    end else begin : gen_kept
      assign data_o[Kept-1:0] = head_word_q;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      head_q <= '0;
      tail_q <= '0;
      count_q <= '0;
    end else if (push || pop) begin
      if (push) tail_q <= tail_q == LastSlot ? '0 : tail_q + 1'b1;
      if (pop) head_q <= next;
      if (push != pop) count_q <= push ? count_q + 1'b1 : count_q - 1'b1;  // both ready before the choice
    end
  end

endmodule
