// SPDX-License-Identifier: Apache-2.0
// FETCH. Enters: the program's address and length. Leaves: instructions in program order, each for one command queue;
// FINISH; and FETCH's own faults: an illegal word, a word outside the DRAM window, a refused read, a program without
// FINISH. Words are read ahead, one burst each, into a queue of WordsAhead; the checked word stands in a register.
//
// Latency: a word that has come completely is dispatched three cycles later. Throughput: one instruction in 64 /
// AxiBytes cycles, limited by WordsAhead words in one memory latency. Back-pressure: full command queues. Reset:
// synchronous, active low; it also begins a program, so that reads of an older one must have drained.
module tsr_fetch #(
  parameter int unsigned AxiBytes   = 8,
  parameter int unsigned BlockIn    = 8,
  parameter int unsigned BlockOut   = 8,
  parameter int unsigned WordsAhead = tsr_isa_pkg::TimingFetchWordsAhead
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  run_i,              // a program runs and no fault is known
  input  logic [63:0]           program_address_i,
  input  logic [31:0]           instruction_count_i,
  input  logic [63:0]           window_first_i,
  input  logic [63:0]           window_last_i,
  output logic                  ar_valid_o,
  input  logic                  ar_ready_i,
  output logic [63:0]           ar_addr_o,
  output logic [7:0]            ar_len_o,
  input  logic                  r_valid_i,
  output logic                  r_ready_o,
  input  logic [8*AxiBytes-1:0] r_data_i,
  input  logic                  r_error_i,
  output logic [3:0]            push_valid_o,       // by engine
  input  logic [3:0]            push_ready_i,
  output logic [511:0]          word_o,
  output logic [31:0]           pc_o,
  output logic                  held_o,             // word_o is a legal instruction
  output logic                  finish_o,           // and it is FINISH
  input  logic                  finish_take_i,
  output logic                  fault_o,            // the instruction at pc_o is the fault fault_code_o
  output logic [2:0]            fault_code_o,
  output logic                  issue_o,            // an instruction is dispatched, or FINISH executed
  output logic                  stall_memory_o      // no word has come
);

  localparam int unsigned WordBeats = 64 / AxiBytes;
  localparam int unsigned BeatBits = WordBeats > 1 ? $clog2(WordBeats) : 1;
  localparam int unsigned RoomBits = $clog2(WordsAhead + 1);

  // Requests.
  logic [31:0] request_q;  // number of the next word to request
  logic [RoomBits-1:0] room_q;
  logic [63:0] first, last;
  logic in_window, request, take;
  assign first = program_address_i + {26'd0, request_q, 6'd0};
  assign last = first + 64'd63;
  assign in_window = first >= window_first_i && last <= window_last_i && first <= last;
  assign request = run_i && request_q != instruction_count_i && in_window && room_q != '0;
  assign ar_valid_o = request;
  assign ar_addr_o = first;
  assign ar_len_o = 8'(WordBeats - 1);

  // Beats to words.
  logic [BeatBits-1:0] beat_q;
  logic [511:0] part_q, part;
  logic part_error_q, part_error, word_full, words_ready_unused, word_valid, word_error;
  logic [511:0] word;
  assign r_ready_o = 1'b1;  // room has been reserved
  always_comb begin
    part = part_q;
    if (r_valid_i) part[8*AxiBytes*beat_q+:8*AxiBytes] = r_data_i;
  end
  assign part_error = r_error_i || (part_error_q && beat_q != '0);
  assign word_full = r_valid_i && beat_q == BeatBits'(WordBeats - 1);
  always_ff @(posedge clk_i) begin
    if (r_valid_i) part_q <= part;
  end
  tsr_queue #(.Width(513), .Depth(WordsAhead)) u_words (
    .clk_i, .rst_ni, .valid_i(word_full), .data_i({part_error, part}), .ready_o(words_ready_unused),
    .valid_o(word_valid), .data_o({word_error, word}), .ready_i(take)
  );

  // The checked word.
  logic held_q, stopped_q, fire, end_of_program, outside;
  logic [511:0] word_q;
  logic [2:0] code_q, legal_code;
  logic [31:0] next_q, pc_q;  // numbers of the next word and of the checked one
  tsr_legal #(.BlockIn(BlockIn), .BlockOut(BlockOut)) u_legal (
    .check_i(take), .word_i(word), .fault_o(legal_code)
  );

  assign end_of_program = next_q == instruction_count_i;
  assign outside = next_q == request_q && !end_of_program && !in_window;
  assign take = word_valid && (!held_q || fire);

  tsr_isa_pkg::finish_t checked;  // of any instruction: for its header
  logic fault, is_finish;
  logic [1:0] engine;
  assign fault = held_q && code_q != 3'(tsr_isa_pkg::FaultNone);
  assign checked = word_q;
  assign is_finish = checked.header.opcode == 6'(tsr_isa_pkg::OpcodeFinish);
  assign engine = tsr_isa_pkg::engine_of(word_q);
  assign held_o = held_q && !fault && !stopped_q;
  assign finish_o = held_o && is_finish;
  assign push_valid_o = held_o && !is_finish && run_i ? 4'd1 << engine : '0;
  assign fire = (push_valid_o & push_ready_i) != '0 || finish_take_i;
  assign word_o = word_q;
  assign pc_o = pc_q;
  assign fault_o = fault && run_i && !stopped_q;
  assign fault_code_o = code_q;
  assign issue_o = fire;
  assign stall_memory_o = run_i && !held_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      request_q <= '0;
      room_q <= RoomBits'(WordsAhead);
      beat_q <= '0;
      part_error_q <= 1'b0;
      held_q <= 1'b0;
      stopped_q <= 1'b0;
      next_q <= '0;
      pc_q <= '0;
      code_q <= '0;
      word_q <= '0;
    end else begin
      if (request && ar_ready_i) request_q <= request_q + 32'd1;
      room_q <= room_q - RoomBits'(request && ar_ready_i) + RoomBits'(take);
      if (r_valid_i) begin
        beat_q <= word_full ? '0 : beat_q + 1'b1;
        part_error_q <= part_error;
      end
      if (fire) held_q <= 1'b0;
      if (finish_take_i || fault) stopped_q <= 1'b1;
      if (take) begin
        held_q <= 1'b1;
        word_q <= word;
        code_q <= word_error ? 3'(tsr_isa_pkg::FaultAxiError) : legal_code;
        pc_q <= next_q;
        next_q <= next_q + 32'd1;
      end else if (run_i && !stopped_q && !held_q && (end_of_program || outside)) begin
        held_q <= 1'b1;
        code_q <= end_of_program ? 3'(tsr_isa_pkg::FaultMissingFinish) : 3'(tsr_isa_pkg::FaultDramRange);
        pc_q <= next_q;
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, words_ready_unused, checked};

endmodule
