// SPDX-License-Identifier: Apache-2.0
// FETCH. Enters: the program's address and length. Leaves: instructions in program order, each for one command queue;
// FINISH; and FETCH's own faults: an illegal word, a word outside the DRAM window, a refused read, a program without
// FINISH. Words are read ahead, one burst each, into a memory of WordsAhead words that beats fill; the checked word stands
// in a register, and its rules are checked there. How many words of the program lie in the DRAM window is found before the program starts.
//
// Latency: a word that has come completely is dispatched four cycles later. Throughput: one instruction in 64 /
// AxiBytes cycles, limited by WordsAhead words in one memory latency. Back-pressure: full command queues. Reset:
// synchronous, active low; it also begins a program, so that reads of an older one must have drained, and address,
// length and window must stand three cycles before. Legal: AxiBytes a power of two, 4 to 64; WordsAhead >= 1. Timing: the
// rules of a word between two registers.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_fetch #(
  parameter int unsigned AxiBytes   = 8,
  parameter int unsigned BlockIn    = 8,
  parameter int unsigned BlockOut   = 8,
  parameter int unsigned RowLanes   = 0,
  parameter int unsigned PackedWeights = 0,
  parameter int unsigned Cores      = 1,
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

  if (AxiBytes < 4 || AxiBytes > 64 || AxiBytes != 1 << $clog2(AxiBytes) || WordsAhead < 1)
    $error("tsr_fetch: AxiBytes is a power of two, 4 to 64; WordsAhead >= 1");

  localparam int unsigned WordBeats = 64 / AxiBytes;
  localparam int unsigned BeatBits = WordBeats > 1 ? $clog2(WordBeats) : 1;
  localparam int unsigned RoomBits = $clog2(WordsAhead + 1);
  localparam int unsigned SlotBits = WordsAhead > 1 ? $clog2(WordsAhead) : 1;
  localparam logic [SlotBits-1:0] LastSlot = SlotBits'(WordsAhead - 1);

  // The end of the words that may be requested: of the program, or of the window within it.
  logic [63:0] span, span_q;  // bytes behind the program's first one
  logic behind, outside_q;    // the program begins behind the window, or in front of it
  logic [32:0] words;
  logic [31:0] end_q;
  logic cut, cut_q;  // the window ends first
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {behind, span, words, cut} = 'x;
    if (!tsr_isa_pkg::Simulated || !run_i) begin
      {behind, span} = {1'b0, window_last_i} - {1'b0, program_address_i};
      words = {1'b0, span_q[37:6]} + 33'(span_q[5:0] == 6'd63);  // more of them are more than any count
      cut = outside_q || (span_q[63:38] == '0 && words < {1'b0, instruction_count_i});
    end
  end
  always_ff @(posedge clk_i) begin
    if (!run_i) begin
      span_q <= span;
      outside_q <= program_address_i < window_first_i || behind;
      cut_q <= cut;
      end_q <= outside_q ? '0 : cut ? words[31:0] : instruction_count_i;
    end
  end

  // Requests.
  logic [31:0] request_q;  // number of the next word to request
  logic [RoomBits-1:0] room_q;
  logic request, more_q, any_room_q, take;
  assign request = run_i && more_q && any_room_q;
  assign ar_valid_o = request;
  assign ar_addr_o = program_address_i + {26'd0, request_q, 6'd0};
  assign ar_len_o = 8'(WordBeats - 1);

  // Beats to words.
  logic [511:0] mem[WordsAhead];
  logic [WordsAhead-1:0] error_q;  // of the word in each place
  logic [SlotBits-1:0] head_q, tail_q;
  logic [RoomBits-1:0] words_ready_q;
  logic [BeatBits-1:0] beat_q;
  logic word_full, word_valid;
  logic [511:0] word;
  assign r_ready_o = 1'b1;  // room has been reserved
  assign word_full = r_valid_i && beat_q == BeatBits'(WordBeats - 1);
  assign word_valid = words_ready_q != '0;
  always_comb begin
    word = '0;
    if (!tsr_isa_pkg::Simulated || take) word = mem[head_q];
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) more_q <= end_q != '0;
    else if (request && ar_ready_i) more_q <= request_q + 32'd1 != end_q;
  end
  always_ff @(posedge clk_i) begin
    if (r_valid_i) begin
      for (int unsigned b = 0; b < WordBeats; b++) begin
        if (beat_q == BeatBits'(b)) mem[tail_q][8*AxiBytes*b+:8*AxiBytes] <= r_data_i;
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      request_q <= '0;
      room_q <= RoomBits'(WordsAhead);
      any_room_q <= 1'b1;
      error_q <= '0;
      head_q <= '0;
      tail_q <= '0;
      words_ready_q <= '0;
      beat_q <= '0;
    end else begin
      if (request && ar_ready_i) request_q <= request_q + 32'd1;
      room_q <= room_q - RoomBits'(request && ar_ready_i) + RoomBits'(take);
      any_room_q <= take || room_q != RoomBits'(request && ar_ready_i);
      words_ready_q <= words_ready_q + RoomBits'(word_full) - RoomBits'(take);
      if (r_valid_i) begin
        beat_q <= word_full ? '0 : beat_q + 1'b1;
        error_q[tail_q] <= r_error_i || (beat_q != '0 && error_q[tail_q]);
        if (word_full) tail_q <= tail_q == LastSlot ? '0 : tail_q + 1'b1;
      end
      if (take) head_q <= head_q == LastSlot ? '0 : head_q + 1'b1;
    end
  end

  // The word in the register: first it stands there, then its check is known.
  logic held_q, checked_q, stopped_q, pushed, fire, end_of_program, outside;
  logic [511:0] word_q;
  logic [2:0] known_q;  // what is wrong beside the word's own rules
  logic opcode_bad, opcode_bad_q;
  logic [tsr_isa_pkg::Instructions-1:0] operand_bad, operand_bad_q;
  logic [31:0] pc_q;  // number of the word in the register, or of the one that comes
  tsr_legal #(.BlockIn(BlockIn), .BlockOut(BlockOut), .RowLanes(RowLanes), .AxiBytes(AxiBytes), .PackedWeights(PackedWeights), .Cores(Cores)) u_legal (
    .check_i(held_q && !checked_q), .word_i(word_q), .opcode_bad_o(opcode_bad), .operand_bad_o(operand_bad)
  );

  assign end_of_program = pc_q == end_q && !cut_q;
  assign outside = pc_q == end_q && cut_q;
  assign take = word_valid && (!held_q || pushed);  // nothing behind FINISH

  tsr_isa_pkg::finish_t checked;  // of any instruction: for its header
  logic fault, is_finish_q;
  logic [3:0] target_q;  // the queue that the word goes to
  assign fault = checked_q && (known_q != 3'(tsr_isa_pkg::FaultNone) || opcode_bad_q || operand_bad_q != '0);
  assign checked = word_q;
  assign held_o = checked_q && !fault && !stopped_q;
  assign finish_o = held_o && is_finish_q;
  assign push_valid_o = held_o && !is_finish_q && run_i ? target_q : '0;
  assign pushed = (push_valid_o & push_ready_i) != '0;
  assign fire = pushed || finish_take_i;
  assign word_o = word_q;
  assign pc_o = pc_q;
  assign fault_o = fault && run_i && !stopped_q;
  assign fault_code_o = known_q != 3'(tsr_isa_pkg::FaultNone) ? known_q :
      operand_bad_q != '0 ? 3'(tsr_isa_pkg::FaultIllegalOperand) : 3'(tsr_isa_pkg::FaultIllegalOpcode);
  assign issue_o = fire;
  assign stall_memory_o = run_i && !checked_q;

  always_ff @(posedge clk_i) begin
    if (take) word_q <= word;
    if (held_q && !checked_q) begin
      opcode_bad_q <= opcode_bad;
      operand_bad_q <= operand_bad;
      is_finish_q <= checked.header.opcode == 6'(tsr_isa_pkg::OpcodeFinish);
      target_q <= 4'd1 << tsr_isa_pkg::engine_of(word_q);
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      held_q <= 1'b0;
      checked_q <= 1'b0;
      stopped_q <= 1'b0;
      pc_q <= '0;
      known_q <= '0;
    end else begin
      checked_q <= held_q && !fire;
      if (fire) begin
        held_q <= 1'b0;
        pc_q <= pc_q + 32'd1;
      end
      if (finish_take_i || fault) stopped_q <= 1'b1;
      if (take) begin
        held_q <= 1'b1;
        known_q <= error_q[head_q] ? 3'(tsr_isa_pkg::FaultAxiError) : 3'(tsr_isa_pkg::FaultNone);
      end else if (run_i && !stopped_q && !held_q && (end_of_program || outside)) begin
        held_q <= 1'b1;
        known_q <= end_of_program ? 3'(tsr_isa_pkg::FaultMissingFinish) : 3'(tsr_isa_pkg::FaultDramRange);
      end
    end
  end

  logic unused;
  assign unused = &{1'b0, checked};

endmodule
/* verilator lint_on LATCH */
