// SPDX-License-Identifier: Apache-2.0
// The reads of rows' vectors. Enters: where the nest stands, what has room. Leaves: reads of a memory, steps of the
// nest, and each vector's row, place and flags in the cycle in which it is taken. Method: a read is taken, and the nest
// moved, when its data come. Where maxima want a vector in each cycle, the nest moves with the read, and a refused read
// is asked for again from a register. Groups of rows are read in slots: the read of a vector for its sum, and, where
// results are made beside sums, one for the results of the row of the group before. Either may be absent, and takes its
// time without a read. What belongs to a vector's read waits in a delay line where the vector is rounded.
//
// Latency: address_i is that of slot_row_o and beside_o a cycle ago; takes_sum_o and takes_result_o a cycle behind the
// grant, Rounding cycles later where rounds_i. Throughput: for maxima a read a cycle, else one in as many cycles as a
// vector has groups, two where results are made beside sums. Back-pressure: refused reads are asked for again; hazard_i
// holds those of ROW_MAP, claims of both halves those of groups. Reset: synchronous, active low, as clear_i. Legal: as
// tsr_rows, Rounding from 2 on.
module tsr_row_reads #(
  parameter int unsigned BlockOut = 16,
  parameter int unsigned RowLanes = 4,
  parameter int unsigned Rounding = 12,  // cycles
  localparam int unsigned EntryBits = $clog2(BlockOut),
  localparam int unsigned RowBits = $clog2(4 * RowLanes)
) (
  input  logic               clk_i,
  input  logic               rst_ni,
  // The instruction.
  input  logic               reducing_i,
  input  logic               grouped_i,
  input  logic               beside_i,       // results beside sums
  input  logic               max_i,
  input  logic               rounds_i,
  input  logic               inp_i,          // sources are in INP
  input  logic               limited_i,
  input  logic [15:0]        limit_i,
  // The rows. A group's last one, that of the group before, which of both groups are there.
  input  logic               clear_i,        // no group is walked
  input  logic               gather_i,
  input  logic               walk_i,
  input  logic [RowBits-1:0] rows_i,
  input  logic [RowBits-1:0] before_rows_i,
  input  logic               before_i,
  input  logic               rest_i,
  input  logic               begin_i,        // a row begins, of ROW_MAP or maxima
  input  logic               running_i,
  input  logic               hazard_i,
  input  logic               released_i,     // a half is free again
  input  logic               released_half_i,
  // The nest.
  input  logic               load_i,
  input  logic               last_i,
  output logic               next_o,
  output logic               step_o,         // of maxima, whose vector is asked for
  output logic               whole_o,        // the entry is inside of the row's limit,
  output logic               part_o,         // or in part
  output logic [RowBits-1:0] row_o,
  output logic               beside_o,
  output logic [RowBits-1:0] slot_row_o,
  input  logic [13:0]        address_i,
  input  logic [13:0]        target_i,
  output logic               fetched_all_o,
  output logic               all_taken_o,
  // The memory.
  output logic               src_req_o,
  output logic               src_claim_o,
  output logic [13:0]        src_addr_o,
  input  logic               src_gnt_i,
  output logic               refused_o,      // a read of maxima is asked for again
  // Vectors. taken_o: a read's data are there, rounded or not.
  input  logic               rounded_valid_i,
  output logic               taken_o,
  output logic               takes_sum_o,
  output logic               takes_result_o,
  output logic               take_half_o,
  output logic               take_last_o,    // of its row
  output logic               take_whole_o,
  output logic               take_part_o,
  output logic [RowBits-1:0] take_row_o,
  output logic [13:0]        take_target_o
);

  localparam int unsigned Turns = BlockOut / RowLanes;
  localparam int unsigned TurnBits = $clog2(Turns);

  typedef struct packed {
    logic result;
    logic half;
    logic last;
    logic whole;
    logic part;
    logic [RowBits-1:0] row;
    logic [13:0] target;
  } taken_t;
  taken_t read_now, read_before, read_late_q, taken;
  logic takes;
  logic ask, asking, further_q, absent_q, back_q, real_q, refused_q, taking, stepping;
  logic slot_turns, slot_ends, beside, beside_q;
  logic [TurnBits-1:0] pace_q;
  logic [13:0] read_address_q;
  logic [RowBits-1:0] fetch_row_q, slot_row;
  logic half_q;  // the half that is written
  logic [1:0] claimed_q;  // by half: its vectors are read
  logic fetched_all_q, taking_last, claim_q, max_q;
  assign ask = !fetched_all_q && ((walk_i && (!claimed_q[half_q] || further_q)) || (running_i && !max_q && !hazard_i));
  assign stepping = max_q && running_i && !fetched_all_q && !refused_q;
  assign asking = ask && !back_q && pace_q == '0;
  assign src_req_o = stepping || refused_q || (asking && !absent_q);
  assign refused_o = refused_q;
  assign src_addr_o = refused_q ? read_address_q : address_i;
  // Of registers alone, because LOAD's next step depends on it. Maxima read in most cycles, other rows where their pace
  // allows.
  assign src_claim_o = claim_q && (max_q || (!back_q && pace_q == '0));
  always_ff @(posedge clk_i) begin
    max_q <= max_i;
    claim_q <= inp_i && (begin_i || running_i || gather_i || (walk_i && !fetched_all_q));
  end
  assign slot_turns = back_q;
  assign taking = slot_turns && real_q;
  assign taking_last = !reducing_i || fetch_row_q == rows_i;  // of an iteration
  assign slot_ends = slot_turns &&
      (beside_i ? beside_q && fetch_row_q == (before_i ? before_rows_i : rows_i) : taking_last);
  always_comb begin
    beside = beside_q;
    slot_row = fetch_row_q;
    if (slot_turns) begin
      beside = beside_i && !beside_q;
      if (slot_ends) slot_row = '0;
      else if (!beside) slot_row = fetch_row_q + 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      back_q <= 1'b0;
      refused_q <= 1'b0;
      pace_q <= '0;
    end else begin
      back_q <= (src_req_o && src_gnt_i) || (asking && absent_q);
      refused_q <= max_i && src_req_o && !src_gnt_i;
      if (slot_turns) pace_q <= beside_i ? TurnBits'(Turns / 2 - 2) : TurnBits'(Turns - 2);
      else if (pace_q != '0) pace_q <= pace_q - 1'b1;
    end
    // What holds of the next slot, in registers, because others wait for its read. A group's rows stand before its
    // first slot.
    further_q <= beside || slot_row != '0;  // not an iteration's first one
    absent_q <= beside_i && (beside ? !before_i : rest_i || slot_row > rows_i);
    real_q <= src_req_o && src_gnt_i;
    read_address_q <= src_addr_o;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni || clear_i) begin
      claimed_q <= '0;
      half_q <= 1'b0;
      fetch_row_q <= '0;
      beside_q <= 1'b0;
      fetched_all_q <= 1'b0;
    end else if (grouped_i) begin
      fetch_row_q <= slot_row;
      beside_q <= beside;
      if (taking && !read_now.result && fetch_row_q == rows_i) claimed_q[half_q] <= 1'b1;
      if (slot_ends) begin
        half_q <= !half_q;
        if (last_i) fetched_all_q <= 1'b1;
      end
      if (released_i) claimed_q[released_half_i] <= 1'b0;
    end else begin
      if (begin_i) fetched_all_q <= 1'b0;
      if (next_o && last_i) fetched_all_q <= 1'b1;
    end
  end
  assign next_o = stepping || (slot_ends && !max_i);
  assign step_o = stepping;
  assign row_o = fetch_row_q;
  assign beside_o = beside;
  assign slot_row_o = slot_row;
  assign fetched_all_o = fetched_all_q;
  assign taken_o = taking;

  // Of a limited row's entries: all elements count, or the first ones alone.
  logic [15-EntryBits:0] left_q;  // whole entries
  logic past_q;
  assign whole_o = !limited_i || (!past_q && left_q != '0);
  assign part_o = !past_q;
  always_ff @(posedge clk_i) begin
    if (load_i) begin
      left_q <= limit_i[15:EntryBits];
      past_q <= 1'b0;
    end else if (next_o) begin
      left_q <= left_q - 1'b1;
      past_q <= past_q || left_q == '0;
    end
  end
  logic unused;
  assign unused = &{1'b0, limit_i};

  // What belongs to a vector's read and is wanted when the vector is taken. The delay's last cycle is a register's,
  // because what is decided here would come late out of a memory of look-up tables.
  localparam int unsigned TakenBits = RowBits + 19;
  localparam int unsigned LateBits = $clog2(Rounding + 1);
  logic [LateBits-1:0] late_q;  // cycles until the vectors that are read have been taken
  assign read_now.result = !reducing_i && (!beside_i || beside_q);
  assign read_now.half = half_q;
  assign read_now.last = last_i;
  assign read_now.whole = whole_o;
  assign read_now.part = part_o;
  assign read_now.row = fetch_row_q;
  assign read_now.target = target_i;
  tsr_delay #(.Width(TakenBits), .Stages(Rounding - 1)) u_late (
    .clk_i, .rst_ni, .enable_i(1'b1), .valid_i(1'b1), .data_i(read_now), .data_o(read_before)
  );
  always_ff @(posedge clk_i) read_late_q <= read_before;
  assign taken = rounds_i ? read_late_q : read_now;
  assign takes = rounds_i ? rounded_valid_i : taking;
  assign takes_sum_o = takes && !taken.result;
  assign takes_result_o = takes && taken.result;
  assign all_taken_o = fetched_all_q && late_q == '0;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) late_q <= '0;
    else if (rounds_i && slot_turns) late_q <= LateBits'(Rounding);
    else if (late_q != '0) late_q <= late_q - 1'b1;
  end
  assign {take_half_o, take_last_o, take_whole_o, take_part_o} = {taken.half, taken.last, taken.whole, taken.part};
  assign take_row_o = taken.row;
  assign take_target_o = taken.target;

endmodule
