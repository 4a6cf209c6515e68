// SPDX-License-Identifier: Apache-2.0
// Rows of the vector engine (isa/semantics.md, ROW_REDUCE and ROW_MAP): a few lanes that take a row's bytes one after
// another. Enters: an instruction whose ranges hold, vectors of OUT or INP, scalars from ACC, channels from PARAM, bytes of
// the tables. Leaves: scalars to ACC, vectors to OUT or INP. The vector engine has nothing else under way meanwhile.
//
// Method. A vector is read once and leaves its register in groups of RowLanes bytes. ROW_MAP: a group's bytes go to the
// lanes side by side, one row behind another. While a row is under way the next one's scalars are read and its factor is
// made. What the lanes need of a row stands beside them once for each stage that wants it, and is taken over with the
// row's first group.
// ROW_REDUCE's maxima take a vector a cycle, one row behind another, through a tree beside the lanes.
// Its sums: a lane takes one byte a cycle, and four rows in turn, whose sums are the four registers of its adder. So
// Rows = 4 * RowLanes rows are walked together: all their vectors of one iteration are written into a small memory of
// each lane, of two halves, while the lanes take the bytes of the iteration before in the other order. Then the rows'
// results are kept, and finished one after another and written while the next rows are walked.
// sum_softmax does both at once. Its rows are walked together as for sums, and beside each vector that is read for a sum
// the same one of the rows before is read for its results. Results have tables, a vector's register and distances of
// their own, so that neither waits for the other. Each vector is of another row then: a row's maximum and its sum, which
// are in small memories, come with it, and its reciprocal from a table in a block RAM. Its vectors of ACC pass the vector
// engine's first stages, which round them, and are taken Rounding cycles later than those of OUT or INP would be.
//
// start_i: the instruction at word_i, held until done_o, one cycle, with which the last write is granted. Back-pressure: a
// refused write holds the lanes of ROW_MAP, or the results of ROW_REDUCE; refused reads are asked for again. Reset:
// synchronous, active low, to idle. Legal: BlockOut and RowLanes powers of two, RowLanes at most BlockOut / 4.
module tsr_rows #(
  parameter int unsigned BlockOut = 16,
  parameter int unsigned RowLanes = 4,
  parameter int unsigned Rounding = 12  // cycles
) (
  input  logic                    clk_i,
  input  logic                    rst_ni,
  input  logic                    start_i,
  input  logic [511:0]            word_i,
  input  logic [15:0]             limit_i,      // elements of a row that is limited, in each cycle of a program
  output logic                    done_o,
  output logic                    issue_o,
  // Memories. Source and destination are in OUT or INP, as the instruction says; sources that are rounded in ACC.
  output logic                    acc_req_o,
  output logic [13:0]             acc_addr_o,
  input  logic                    acc_gnt_i,
  input  logic [127:0]            acc_rdata_i,
  output logic                    acc_we_o,
  output logic [13:0]             acc_waddr_o,
  output logic [127:0]            acc_wdata_o,  // a cycle before the write
  output logic                    acc_keep_o,   // the first word stays as it is
  input  logic                    acc_wgnt_i,
  output logic                    src_req_o,
  output logic                    src_claim_o,  // with every request to INP, and at times without one: LOAD stays away
  output logic [13:0]             src_addr_o,
  input  logic                    src_gnt_i,
  input  logic [8*BlockOut-1:0]   src_rdata_i,
  input  logic                    rounded_valid_i,  // a vector of ACC, Rounding cycles later, as bytes
  input  logic [8*BlockOut-1:0]   rounded_i,
  output logic                    dst_we_o,
  output logic [13:0]             dst_addr_o,
  output logic [8*BlockOut-1:0]   dst_wdata_o,
  output logic                    param_req_o,
  output logic [9:0]              param_addr_o,
  input  logic [64*BlockOut-1:0]  param_rdata_i,
  // Four bytes a lane, a table each: for sums, and for results.
  output logic                    look_up_o,
  output logic [48*RowLanes-1:0]  index_o,
  input  logic [32*RowLanes-1:0]  bytes_i,
  output logic                    result_look_up_o,
  output logic [48*RowLanes-1:0]  result_index_o,
  input  logic [32*RowLanes-1:0]  result_bytes_i
);

  localparam int unsigned Turns = BlockOut / RowLanes;
  localparam int unsigned TurnBits = $clog2(Turns);
  localparam int unsigned EntryBits = $clog2(BlockOut);
  localparam int unsigned LaneBits = RowLanes > 1 ? $clog2(RowLanes) : 1;
  localparam int unsigned Rows = 4 * RowLanes;
  localparam int unsigned RowBits = $clog2(Rows);
  localparam int unsigned StepBits = $clog2(4 * BlockOut);
  // The step of the lanes with which a half may be read anew where its vectors come so much later.
  localparam logic [StepBits-1:0] Released = StepBits'(Rounding < 4 * BlockOut ? 4 * BlockOut - 1 - Rounding : 0);
  localparam logic [9:0] MapRegisters = 10'h3ff;
  localparam int unsigned MapDepth = $countones(MapRegisters);
  localparam int unsigned Behind = MapDepth + 3;  // from a group to its bytes
  if (4 * RowLanes > BlockOut) $error("tsr_rows: RowLanes above BlockOut / 4");

  localparam logic [3:0] Idle = 4'd0, Gather = 4'd1, Walk = 4'd2, Drain = 4'd3, Capture = 4'd4, Finish = 4'd5,
      Scalars = 4'd6, Back = 4'd7, Setup = 4'd8, Ready = 4'd9, Taken = 4'd10, Scan = 4'd11;

  tsr_isa_pkg::row_reduce_t reduce;
  tsr_isa_pkg::row_map_t map;
  logic reducing, grouped, both, rounds, is_max, is_sum, is_moments, is_softmax, is_normalise;
  assign reduce = word_i;
  assign map = word_i;
  assign reducing = map.header.opcode == 6'(tsr_isa_pkg::OpcodeRowReduce);
  assign both = !reducing && map.operation == 2'(tsr_isa_pkg::MappingSumSoftmax);  // sums and results
  assign rounds = map.src == 2'(tsr_isa_pkg::AluSpaceAcc);  // of sum_softmax alone
  assign grouped = both || (reducing && !is_max);
  assign is_max = reducing && reduce.operation == 2'(tsr_isa_pkg::ReductionMax);
  assign is_sum = both || (reducing && reduce.operation == 2'(tsr_isa_pkg::ReductionSumExp));
  assign is_moments = reducing && reduce.operation == 2'(tsr_isa_pkg::ReductionMoments);
  assign is_normalise = !reducing && map.operation == 2'(tsr_isa_pkg::MappingNormalise);
  assign is_softmax = !reducing && !is_normalise;
  logic [7:0] tail;  // lanes of a row's last entry
  assign tail = both ? map.tail : reduce.tail;

  // The loops over the rows, and inside a row.
  logic [3:0] state_q;
  logic [71:0] count;
  logic [13:0] row_source, row_target, row_scalars, source_step, target_step;
  logic next_row, load_inner, next_inner, last_row, last_inner;
  tsr_row_nest u_nest (
    .clk_i, .idle_i(state_q == Idle), .load_i(start_i && state_q == Idle),
    .outer_i(grouped ? state_q == Gather : !running_q || fetched_all_q), .next_row_i(next_row),
    .next_entry_i(next_inner), .load_entries_i(load_inner), .row_i(map.row), .extent_i(map.extent),
    .addr_i({map.scalar_addr, map.dst_addr, map.src_addr}),
    .stride_i({map.scalar_stride, map.dst_stride, map.src_stride}),
    .row_addr_o({row_scalars, row_target, row_source}), .entry_addr_o({target_step, source_step}), .count_o(count),
    .last_row_o(last_row), .last_entry_o(last_inner)
  );

  // The rows of a group and of the group before, whose results are being written: where they begin, and where their
  // scalars or results go.
  logic [13:0] base[2 * Rows], target[2 * Rows];
  logic [7:0] maximum[2 * Rows];
  logic fill_half_q, finish_half;
  assign finish_half = fill_half_q ^ grouped;
  logic [RowBits-1:0] row_q, rows_q;  // rows_q: the last one's number
  logic last_group_q, took_q;
  logic [RowBits-1:0] took_row_q;
  logic gathered, group_ends;
  logic rest_q;             // no sums are left, but results
  logic before_q;           // there is a group before
  assign gathered = state_q == Gather && (!is_sum || rest_q || acc_gnt_i);
  assign group_ends = row_q == RowBits'(Rows - 1) || last_row;
  always_ff @(posedge clk_i) begin
    if (gathered) base[{fill_half_q, row_q}] <= row_source;
    if (gathered || next_row_begins) target[{fill_half_q, row_q}] <= row_target;
    if (took_q) maximum[{fill_half_q, took_row_q}] <= acc_rdata_i[7:0];
    took_row_q <= row_q;
  end

  // A vector's read, its register, its groups of bytes. A read is taken, and the nest moved, when its data come. Where
  // maxima want a vector in each cycle, the nest moves with the read, and a refused read is asked for again from a
  // register.
  logic enable;
  logic ask, back_q, taking, hazard;
  logic stepping, refused_q, asked_first_q, asked_last_q;
  logic [13:0] read_address_q;
  // The row of ROW_MAP or of maxima that is under way, while the nest stands at the next one.
  logic running_q, final_row_q, fresh_row_q, next_row_begins;
  logic [13:0] run_source_q, run_target_q;
  logic [TurnBits-1:0] pace_q, turn_q, result_turn_q;
  logic emitting_q, resulting_q;
  logic [8*BlockOut-1:0] vector_q, result_vector_q;  // of sums and maxima; of results
  logic [RowBits-1:0] fetch_row_q;
  logic half_q;  // the half that is written
  logic [1:0] claimed_q, full_q, final_q;  // by half: its vectors are read; are there; are the rows' last
  logic fetched_all_q, taking_last;
  // A slot of a row: the read of a vector for its sum, and, where results are made beside sums, one for the results of
  // the row of the group before. Either may be absent, and takes its time without a read.
  logic beside_q, beside, absent, real_q, slot_turns, slot_ends, asking, takes_sum, takes_result;
  logic [RowBits-1:0] slot_row;
  assign absent = both && (beside_q ? !before_q : rest_q || fetch_row_q > rows_q);
  assign ask = !fetched_all_q && ((state_q == Walk && (!claimed_q[half_q] || beside_q || fetch_row_q != '0)) ||
                                  (running_q && !max_q && !hazard));
  assign stepping = max_q && running_q && !fetched_all_q && !refused_q;
  assign asking = ask && enable && !back_q && pace_q == '0;
  assign src_req_o = stepping || refused_q || (asking && !absent);
  assign src_addr_o = refused_q ? read_address_q : source_step + run_source_q;
  // Of registers alone, because LOAD's next step depends on it. Maxima read in most cycles, other rows where their pace
  // allows.
  logic claim_q, max_q;
  assign src_claim_o = claim_q && (max_q || (!back_q && pace_q == '0));
  always_ff @(posedge clk_i) begin
    max_q <= is_max;
    claim_q <= map.src == 2'(tsr_isa_pkg::AluSpaceInp) &&
        (next_row_begins || running_q || state_q == Gather || (state_q == Walk && !fetched_all_q));
  end
  assign slot_turns = back_q && enable;
  assign taking = slot_turns && real_q;
  // What belongs to a vector's read and is wanted when the vector is taken.
  typedef struct packed {
    logic result;
    logic half;
    logic last;  // of its row
    logic whole;
    logic part;
    logic [RowBits-1:0] row;
    logic [13:0] target;
  } taken_t;
  localparam int unsigned TakenBits = RowBits + 19;
  localparam int unsigned LateBits = $clog2(Rounding + 1);
  taken_t read_now, read_before, read_late_q, taken;
  logic takes;
  logic [LateBits-1:0] late_q;  // cycles until the vectors that are read have been taken
  logic all_taken;
  assign read_now.result = !reducing && (!both || beside_q);
  assign read_now.half = half_q;
  assign read_now.last = last_inner;
  assign read_now.whole = whole;
  assign read_now.part = part;
  assign read_now.row = fetch_row_q;
  assign read_now.target = result_target;
  // The last cycle is a register's, because what is decided here would come late out of a memory of look-up tables.
  tsr_delay #(.Width(TakenBits), .Stages(Rounding - 1)) u_late (
    .clk_i, .rst_ni, .enable_i(1'b1), .valid_i(1'b1), .data_i(read_now), .data_o(read_before)
  );
  always_ff @(posedge clk_i) read_late_q <= read_before;
  assign taken = rounds ? read_late_q : read_now;
  assign takes = rounds ? rounded_valid_i : taking;
  assign takes_sum = takes && !taken.result;
  assign takes_result = takes && taken.result;
  assign all_taken = fetched_all_q && late_q == '0;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) late_q <= '0;
    else if (rounds && slot_turns) late_q <= LateBits'(Rounding);
    else if (late_q != '0) late_q <= late_q - 1'b1;
  end
  assign taking_last = !reducing || fetch_row_q == rows_q;  // of an iteration
  assign slot_ends = slot_turns && (both ? beside_q && fetch_row_q == (before_q ? finish_rows_q : rows_q) : taking_last);
  assign next_inner = stepping || (slot_ends && !is_max);
  assign issue_o = taking;
  always_comb begin
    beside = beside_q;
    slot_row = fetch_row_q;
    if (slot_turns) begin
      beside = both && !beside_q;
      if (slot_ends) slot_row = '0;
      else if (!beside) slot_row = fetch_row_q + 1'b1;
    end
  end
  logic [RowBits-1:0] emit_row_q;
  logic emit_half_q, emit_last_q, emit_first_q;
  logic [RowLanes*8-1:0] group, result_group;
  always_comb begin
    group = vector_q[8*RowLanes-1:0];
    result_group = result_vector_q[8*RowLanes-1:0];
    for (int unsigned t = 1; t < Turns; t++) begin
      if (turn_q == TurnBits'(t)) group = vector_q[8*RowLanes*t+:8*RowLanes];
      if (result_turn_q == TurnBits'(t)) result_group = result_vector_q[8*RowLanes*t+:8*RowLanes];
    end
  end
  logic emit_ends, result_ends;
  assign emit_ends = emitting_q && enable && turn_q == TurnBits'(Turns - 1);
  assign result_ends = resulting_q && enable && result_turn_q == TurnBits'(Turns - 1);
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      back_q <= 1'b0;
      refused_q <= 1'b0;
      emitting_q <= 1'b0;
      resulting_q <= 1'b0;
      pace_q <= '0;
      turn_q <= '0;
      result_turn_q <= '0;
    end else begin
      back_q <= (src_req_o && src_gnt_i) || (asking && absent);
      refused_q <= is_max && src_req_o && !src_gnt_i;
      if (slot_turns) pace_q <= both ? TurnBits'(Turns / 2 - 2) : TurnBits'(Turns - 2);
      else if (enable && pace_q != '0) pace_q <= pace_q - 1'b1;
      if (takes_sum) emitting_q <= 1'b1;
      else if (emit_ends) emitting_q <= 1'b0;
      if (takes_sum) turn_q <= '0;
      else if (enable && emitting_q) turn_q <= turn_q + 1'b1;
      if (takes_result) resulting_q <= 1'b1;
      else if (result_ends) resulting_q <= 1'b0;
      if (takes_result) result_turn_q <= '0;
      else if (enable && resulting_q) result_turn_q <= result_turn_q + 1'b1;
    end
  end
  // Of a limited row's entries: all elements count, or the first ones alone.
  logic [15-EntryBits:0] left_q;  // whole entries
  logic past_q, whole, part;
  logic asked_whole_q, asked_part_q, scan_whole_q, scan_part_q, emit_whole_q, emit_part_q;
  logic [1:0] walk_whole_q, walk_part_q;  // by half
  logic [EntryBits-1:0] part_lanes;
  assign whole = !map.limited || (!past_q && left_q != '0);
  assign part = !past_q;
  assign part_lanes = limit_i[EntryBits-1:0];
  always_ff @(posedge clk_i) begin
    if (load_inner) begin
      left_q <= limit_i[15:EntryBits];
      past_q <= 1'b0;
    end else if (next_inner) begin
      left_q <= left_q - 1'b1;
      past_q <= past_q || left_q == '0;
    end
  end
  always_ff @(posedge clk_i) begin
    if (takes_sum) begin
      vector_q <= rounds ? rounded_i : src_rdata_i;
      emit_row_q <= taken.row;
      emit_half_q <= taken.half;
      emit_last_q <= taken.row == rows_q;
    end
    if (takes_result) begin
      result_vector_q <= rounds ? rounded_i : src_rdata_i;
      emit_first_q <= fresh_row_q || both;
      {emit_whole_q, emit_part_q} <= {taken.whole, taken.part};
    end
    real_q <= src_req_o && src_gnt_i;
    read_address_q <= src_addr_o;
    if (stepping) {asked_first_q, asked_last_q, asked_whole_q, asked_part_q} <= {fresh_row_q, last_inner, whole, part};
  end

  // ROW_REDUCE: the lanes' bytes. step_q counts bytes of the four rows of a lane, the row in its lower two bits, as does
  // phase_q always, so that the sums' turn is known.
  logic [1:0] phase_q;
  logic [StepBits-1:0] step_q;
  logic walking_q, walk_half_q, walk_first_q, walked_all_q;
  logic byte_valid_0, byte_first_0;
  assign byte_valid_0 = walking_q && !(final_q[walk_half_q] && 32'(step_q[StepBits-1:2]) >= 32'(tail)) &&
      (walk_whole_q[walk_half_q] || (walk_part_q[walk_half_q] && step_q[StepBits-1:2] < part_lanes));
  assign byte_first_0 = walking_q && walk_first_q && step_q[StepBits-1:2] == '0;
  always_ff @(posedge clk_i) begin
    if (!rst_ni || state_q == Gather) phase_q <= '0;  // so that the cycles follow from the instruction
    else phase_q <= phase_q + 2'd1;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni || state_q == Idle || state_q == Gather) begin
      claimed_q <= '0;
      full_q <= '0;
      walking_q <= 1'b0;
      walk_half_q <= 1'b0;
      walk_first_q <= 1'b1;
      half_q <= 1'b0;
      fetch_row_q <= '0;
      beside_q <= 1'b0;
      fetched_all_q <= 1'b0;
      walked_all_q <= 1'b0;
      step_q <= '0;
    end else if (grouped) begin
      fetch_row_q <= slot_row;
      beside_q <= beside;
      if (taking && !read_now.result && fetch_row_q == rows_q) claimed_q[half_q] <= 1'b1;
      if (takes_sum && taken.row == rows_q) begin
        final_q[taken.half] <= taken.last;
        walk_whole_q[taken.half] <= taken.whole;  // Yosys drops a concatenation of such choices
        walk_part_q[taken.half] <= taken.part;
      end
      if (slot_ends) begin
        half_q <= !half_q;
        if (last_inner) fetched_all_q <= 1'b1;
      end
      // The lanes want no group of the last row before it is there.
      if (emitting_q && turn_q == '0 && emit_last_q) full_q[emit_half_q] <= 1'b1;
      if (!walking_q) begin
        if (full_q[walk_half_q] && phase_q == 2'd3 && !walked_all_q) walking_q <= 1'b1;
      end else begin
        step_q <= step_q + 1'b1;
        if (step_q == (rounds ? Released : '1)) claimed_q[walk_half_q] <= 1'b0;
        if (step_q == '1) begin
          full_q[walk_half_q] <= 1'b0;
          walk_first_q <= 1'b0;
          walk_half_q <= !walk_half_q;
          if (final_q[walk_half_q]) walked_all_q <= 1'b1;
          walking_q <= full_q[!walk_half_q] && !final_q[walk_half_q];
        end
      end
    end else begin
      if (next_row_begins) fetched_all_q <= 1'b0;
      if (next_inner && last_inner) fetched_all_q <= 1'b1;
    end
  end

  // Maxima: a tree over a vector, a vector in each cycle, and the largest one of a row so far. inside: the row has the
  // element; where it has one of two, it has the first. The tree has four registers: Levels above them are spread.
  localparam int unsigned Levels = $clog2(BlockOut);
  logic [5:0] scan_q, scan_last_q;  // bit 0: a vector stands in its register
  logic [4:0] scan_first_q;
  logic [8:0] leaves[BlockOut];                   // inside, byte
  logic [8:0] top;
  logic [7:0] best_q;
  function automatic logic [8:0] larger(input logic [8:0] a, input logic [8:0] b, input logic unsigned_bytes);
    larger = b[8] && {b[7] == unsigned_bytes, b[6:0]} > {a[7] == unsigned_bytes, a[6:0]} ? b : a;
  endfunction
  always_comb begin
    for (int unsigned o = 0; o < BlockOut; o++) begin
      leaves[o][8] = !(scan_last_q[0] && o >= 32'(tail)) && (scan_whole_q || (scan_part_q && o < 32'(part_lanes)));
      leaves[o][7:0] = vector_q[8*o+:8];
    end
  end
  for (genvar s = 0; s < 4; s++) begin : gen_tree
    localparam int unsigned From = BlockOut >> ((s * Levels + 3) / 4);
    localparam int unsigned To = BlockOut >> (((s + 1) * Levels + 3) / 4);
    logic [8:0] nodes[From], largest_q[To];
    for (genvar n = 0; n < From; n++) begin : gen_node
      if (s == 0) assign nodes[n] = leaves[n];
      else assign nodes[n] = gen_tree[s-1].largest_q[n];
    end
    for (genvar n = 0; n < To; n++) begin : gen_larger
      logic [8:0] largest;
      if (From == To) begin : gen_same
        assign largest = nodes[n];
      end else if (From == 2 * To) begin : gen_two
        assign largest = larger(nodes[2*n], nodes[2*n+1], reduce.src_unsigned);
      end else begin : gen_four
        assign largest = larger(larger(nodes[4*n], nodes[4*n+1], reduce.src_unsigned),
                                larger(nodes[4*n+2], nodes[4*n+3], reduce.src_unsigned), reduce.src_unsigned);
      end
      always_ff @(posedge clk_i) largest_q[n] <= largest;
    end
  end
  assign top = gen_tree[3].largest_q[0];
  always_ff @(posedge clk_i) begin
    if (!rst_ni) scan_q <= '0;
    else scan_q <= {scan_q[4:0], taking && is_max};
    scan_first_q <= {scan_first_q[3:0], asked_first_q};
    scan_last_q <= {scan_last_q[4:0], asked_last_q};
    {scan_whole_q, scan_part_q} <= {asked_whole_q, asked_part_q};
    if (scan_q[4]) begin
      if (scan_first_q[4]) best_q <= top[7:0] & {8{top[8]}};
      else best_q <= 8'(larger({1'b1, best_q}, top, reduce.src_unsigned));
    end
  end
  // Rows begun and not written yet, rows kept and not written yet.
  logic [RowBits:0] begun_q, ready_q;
  logic [RowBits-1:0] kept_row_q;
  logic scanned;
  assign scanned = scan_q[5] && scan_last_q[5];
  always_ff @(posedge clk_i) begin
    if (!rst_ni || !is_max || state_q == Idle) begin
      begun_q <= '0;
      ready_q <= '0;
      kept_row_q <= '0;
    end else begin
      begun_q <= begun_q + (RowBits + 1)'(next_row_begins) - (RowBits + 1)'(written);
      ready_q <= ready_q + (RowBits + 1)'(scanned) - (RowBits + 1)'(written);
      kept_row_q <= kept_row_q + RowBits'(scanned);
    end
  end

  // ROW_MAP: the next row's scalars and what is made of them.
  logic [6:0] wait_q;  // Setup, Drain, Capture: cycles
  logic [31:0] scalar_q;       // m or S1
  logic [30:0] sum_b_q;        // b or R
  logic [4:0] exponent_q;
  logic [12:0] length_q;
  logic [23:0] factor_q;
  logic coarse_q;
  logic [52:0] centre_q;       // the complement of S1 * R * 2^14, shifted
  logic [43:0] scale_q;        // n * R * 2^14, shifted
  logic [47:0] product, addend_q;
  tsr_multiply_add #(.Registers(3'b111)) u_scale (
    .clk_i, .enable_i(1'b1), .x_i(wait_q[0] ? {12'd0, length_q} : {{3{scalar_q[21]}}, scalar_q[21:0]}),
    .y_i({1'b0, sum_b_q[16:0]}), .addend_i(48'd0), .sum_o(product)
  );
  logic start_moments, digits_done;
  logic [16:0] root;
  logic [4:0] root_exponent;
  logic [48:0] kept[Rows];
  logic [48:0] result_q;
  tsr_row_digits u_digits (
    .clk_i, .rst_ni, .start_i(start_moments), .sum_i(result_q[20:0]),
    .squares_i(result_q[48:21]), .length_i(reduce.length), .shift_i(reduce.shift), .epsilon_i(reduce.epsilon),
    .offset_i(reduce.offset), .done_o(digits_done), .root_o(root), .exponent_o(root_exponent)
  );
  // Reciprocals of a softmax's sum: of the largest significand with the same upper bits (tsr_row_map).
  logic [11:0] reciprocals[2048], reciprocal_q;
  initial begin
    for (int unsigned k = 0; k < 2048; k++)
      reciprocals[k] = 12'(((64'd1 << 35) - 64'd1) / ((64'(k) + 64'd2049) * 64'd4096 - 64'd1));
  end
  logic setup_done;
  assign setup_done = state_q == Setup && (is_softmax || wait_q == 7'd31);
  always_ff @(posedge clk_i) begin
    reciprocal_q <= reciprocals[sum_b_q[22:12]];
    if (both) begin
      if (takes_result) {sum_b_q, scalar_q[7:0]} <= {kept_read[30:0], maximum[{finish_half, taken_row}]};
    end else if (state_q == Back) begin
      {length_q, exponent_q, sum_b_q, scalar_q} <= {acc_rdata_i[108:96], acc_rdata_i[68:64], acc_rdata_i[62:32],
                                                    acc_rdata_i[31:0]};
    end
    if (state_q == Setup && is_normalise) begin
      if (wait_q == 7'd3) centre_q <= ~{product[38:0], 14'd0};
      if (wait_q == 7'd4) scale_q <= {product[29:0], 14'd0};
      // One place or four at a time.
      if (wait_q == 7'd5 && exponent_q != '0) begin
        if (exponent_q[4:2] != '0) begin
          exponent_q <= exponent_q - 5'd4;
          centre_q <= {{4{centre_q[52]}}, centre_q[52:4]};
          scale_q <= {4'd0, scale_q[43:4]};
        end else begin
          exponent_q <= exponent_q - 5'd1;
          centre_q <= {centre_q[52], centre_q[52:1]};
          scale_q <= {1'b0, scale_q[43:1]};
        end
      end
      if (wait_q == 7'd6) begin
        coarse_q <= scale_q[43:24] != '0;
        factor_q <= scale_q[43:24] != '0 ? scale_q[31:8] : scale_q[23:0];
        addend_q <= centre_q[47:0] + 48'd1;
      end
    end
    if (is_softmax) factor_q <= {12'd0, reciprocal_q};
  end

  // The same of the row under way, where the lanes want it: begins_k: its first group is in stage k. Where results are
  // made beside sums each vector is of another row.
  logic [7:0] begins_q;
  logic begins_0;
  logic [7:0] maximum_1_q;
  logic [30:0] divisor_q;  // exponent in stage 3, significand in stage 6
  logic [22:0] significand_3_q;
  logic [23:0] factor_3_q;
  logic coarse_3_q;
  logic [47:0] addend_4_q;
  logic [11:0] limit_9_q;
  logic [11:0] divisor_less;  // the upper half of the significand less 1
  assign begins_0 = resulting_q && emit_first_q && result_turn_q == '0;
  assign divisor_less = {1'b1, divisor_q[22:12]} + {12{divisor_q[11:0] == '0}};
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begins_q <= '0;
    else begins_q <= {begins_q[6:0], begins_0};  // bit k: stage k + 1
  end
  always_ff @(posedge clk_i) begin
    if (begins_0) maximum_1_q <= scalar_q[7:0];
    if (reducing) {factor_3_q, coarse_3_q} <= '0;
    else if (begins_q[1]) {factor_3_q, coarse_3_q} <= {factor_q, coarse_q && is_normalise};
    if (begins_q[1]) {divisor_q[30:23], significand_3_q} <= sum_b_q;
    if (reducing || is_softmax) addend_4_q <= '0;
    else if (begins_q[2]) addend_4_q <= addend_q;
    if (begins_q[4]) divisor_q[22:0] <= significand_3_q;
    if (begins_q[7]) limit_9_q <= divisor_less;
  end

  // The lanes. Stage 0: a byte; 1: its distance and the table's index; 2: the table's answer; 3: the sum, or the map.
  logic valid_1_q, valid_2_q, result_valid_1_q, result_valid_2_q, first_1_q, first_2_q, first_3_q, map_valid_0;
  logic [2:0] first_later_q;
  logic [1:0] slot_1;
  logic [8:0] against;
  assign map_valid_0 = resulting_q;
  assign slot_1 = phase_q - 2'd1;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      {valid_1_q, valid_2_q, result_valid_1_q, result_valid_2_q} <= '0;
      {first_1_q, first_2_q, first_3_q} <= '0;
      first_later_q <= '0;
    end else if (enable) begin
      {valid_2_q, valid_1_q} <= {valid_1_q, byte_valid_0};
      {result_valid_2_q, result_valid_1_q} <= {result_valid_1_q, map_valid_0};
      {first_3_q, first_2_q, first_1_q} <= {first_2_q, first_1_q, byte_first_0};
      first_later_q <= {first_later_q[1:0], first_3_q};
    end
  end
  assign look_up_o = enable && valid_1_q && is_sum;
  assign result_look_up_o = enable && result_valid_1_q && is_softmax;
  logic [3:0] sum_table;
  assign sum_table = both ? map.sum_table : map.table_;
  logic [8*RowLanes-1:0] made;
  logic [9:0] low, high;
  logic [7:0] lowest, highest;
  assign low = map.low;
  assign high = map.high;
  assign lowest = map.low[7:0] + map.out_zero[7:0];
  assign highest = map.high[7:0] + map.out_zero[7:0];
  assign against = map.zero;
  for (genvar l = 0; l < RowLanes; l++) begin : gen_lane
    // The corner: groups are written as they come, bytes read as they are wanted.
    logic [8*RowLanes-1:0] corner[8 * Turns];
    logic [8*RowLanes-1:0] read_group;
    logic [7:0] chosen, inverse_1_q, result_inverse_1_q;  // a byte's complement: operands that are registers cost adders less
    logic [7:0] inverse_1;
    logic inside_1_q, inside_2_q;  // ROW_MAP: of the row's limit
    logic [7:0] lane_maximum[4];
    always_ff @(posedge clk_i) begin
      if (emitting_q && (RowLanes == 1 || emit_row_q[LaneBits-1:0] == LaneBits'(l)))
        corner[{emit_half_q, emit_row_q[RowBits-1-:2], turn_q}] <= group;
      if (took_q && (RowLanes == 1 || took_row_q[LaneBits-1:0] == LaneBits'(l)))
        lane_maximum[took_row_q[RowBits-1-:2]] <= acc_rdata_i[7:0];
    end
    assign read_group = corner[{walk_half_q, phase_q, step_q[StepBits-1-:TurnBits]}];
    always_comb begin
      chosen = read_group[7:0];
      for (int unsigned n = 1; n < RowLanes; n++) begin
        if (32'(step_q[2+:LaneBits]) == n) chosen = read_group[8*n+:8];
      end
    end
    logic [8:0] wide_1, offset_2_q, offset_3_q;
    logic [7:0] distance_1, result_distance_1;
    logic [30:0] number_3_q, result_number_3_q;
    assign inverse_1 = reducing ? inverse_1_q : result_inverse_1_q;
    assign wide_1 = {!map.src_unsigned && !inverse_1[7], ~inverse_1};
    assign distance_1 = inverse_1_q - ~lane_maximum[slot_1];
    assign result_distance_1 = result_inverse_1_q - ~maximum_1_q;
    for (genvar p = 0; p < 4; p++) begin : gen_plane
      assign index_o[48*l+12*p+:12] = {sum_table + 4'(p), distance_1};
      assign result_index_o[48*l+12*p+:12] = {map.table_ + 4'(p), result_distance_1};
    end
    always_ff @(posedge clk_i) begin
      if (enable) begin
        inverse_1_q <= ~chosen;
        result_inverse_1_q <= ~result_group[8*l+:8];
        inside_1_q <= emit_whole_q || (emit_part_q && RowLanes * 32'(result_turn_q) + l < 32'(part_lanes));
        inside_2_q <= inside_1_q;
        offset_2_q <= ~against - ~wide_1;
        offset_3_q <= valid_2_q || result_valid_2_q ? offset_2_q : 9'd0;
        number_3_q <= valid_2_q ? bytes_i[32*l+:31] : 31'd0;
        result_number_3_q <= result_valid_2_q && inside_2_q ? result_bytes_i[32*l+:31] : 31'd0;
      end
    end
    logic unused_bit;
    assign unused_bit = bytes_i[32*l+31] ^ result_bytes_i[32*l+31];

    // Four sums in turn: of a softmax in the adder's registers, of S1 and S2.
    logic [30:0] sum_3;
    tsr_row_add #(.Registers(4'b1111)) u_add (
      .clk_i, .enable_i(1'b1), .clear_i(first_2_q), .x_i(sum_3), .y_i(number_3_q), .sum_o(sum_3)
    );
    logic [16:0] square_6, square_7_q;
    logic [20:0] first_sum_3;
    logic [27:0] squares_7;
    logic [20:0] first_ring_q[4];
    logic [27:0] squares_ring_q[4];
    assign first_sum_3 = first_ring_q[3];
    assign squares_7 = squares_ring_q[3];
    always_ff @(posedge clk_i) begin
      square_7_q <= square_6;
      // The operand of an adder that is only a register costs no look-up table as the first one.
      first_ring_q[0] <= {{12{offset_3_q[8]}}, offset_3_q} + (first_sum_3 & {21{!first_3_q}});
      squares_ring_q[0] <= {11'd0, square_7_q} + (squares_7 & {28{!first_7_q}});
      for (int unsigned k = 1; k < 4; k++) begin
        first_ring_q[k] <= first_ring_q[k-1];
        squares_ring_q[k] <= squares_ring_q[k-1];
      end
    end
    // The map. Its channels come with stage 3.
    logic [17:0] gain;
    logic [31:0] bias;
    always_comb begin
      gain = param_rdata_i[32*(BlockOut+l)+:18];
      bias = param_rdata_i[32*l+:32];
      for (int unsigned t = 1; t < Turns; t++) begin
        if (turn_6 == TurnBits'(t)) begin
          gain = param_rdata_i[32*(BlockOut+RowLanes*t+l)+:18];
          bias = param_rdata_i[32*(RowLanes*t+l)+:32];
        end
      end
    end
    tsr_row_map #(.Registers(MapRegisters)) u_map (
      .clk_i, .rst_ni, .enable_i(enable), .softmax_i(is_softmax), .b_i(divisor_q), .limit_i(limit_9_q),
      .factor_i(factor_3_q), .coarse_i(coarse_3_q), .addend_i(addend_4_q), .low_i(low), .high_i(high),
      .zero_i(map.out_zero[7:0]), .lowest_i(lowest), .highest_i(highest), .offset_i(offset_3_q), .a_i(result_number_3_q),
      .gain_i(gain), .bias_i(bias), .byte_o(made[8*l+:8]), .square_i(is_moments), .square_o(square_6)
    );
  end
  logic first_7_q;
  always_ff @(posedge clk_i) first_7_q <= first_later_q[2];

  // Beside ROW_MAP's groups: which turn they are, whose channels they want, where their vector goes.
  logic [TurnBits-1:0] turn_5, turn_6, turn_last;
  logic valid_5, valid_last;
  logic [9:0] param_address, param_count, param_row_q, param_5;
  logic param_outer;  // the channels are those of the row
  assign param_outer = 4'(map.row) + 4'(map.param_loop) < 4'd6;
  always_comb begin
    param_count = map.param_loop[2] ? (map.param_loop[1] ? 10'd1 : map.param_loop[0] ? count[60+:10] : count[48+:10])
                                    : map.param_loop[1] ? (map.param_loop[0] ? count[36+:10] : count[24+:10])
                                                        : (map.param_loop[0] ? count[12+:10] : count[0+:10]);
    param_address = (param_outer ? param_row_q : param_count) + map.param_addr - 10'd1;
  end
  logic [9:0] emit_param_q;
  logic [13:0] emit_target_q, target_last, result_target;
  assign result_target = (both ? target_read : run_target_q) + target_step;
  always_ff @(posedge clk_i) begin
    if (takes_result || both) emit_param_q <= param_address;  // both: param_addr
    if (takes_result) emit_target_q <= taken.target;
  end
  tsr_delay #(.Width(TurnBits + 10), .Stages(5)) u_channel (
    .clk_i, .rst_ni, .enable_i(enable), .valid_i(1'b1), .data_i({emit_param_q, result_turn_q}), .data_o({param_5, turn_5})
  );
  tsr_delay_valid #(.Stages(5)) u_channel_valid (
    .clk_i, .rst_ni, .enable_i(enable), .valid_i(map_valid_0), .valid_o(valid_5)
  );
  always_ff @(posedge clk_i) if (enable) turn_6 <= turn_5;
  assign param_req_o = enable && is_normalise && valid_5 && turn_5 == '0;
  assign param_addr_o = param_5;
  tsr_delay #(.Width(TurnBits + 14), .Stages(Behind)) u_target (
    .clk_i, .rst_ni, .enable_i(enable), .valid_i(1'b1), .data_i({emit_target_q, result_turn_q}),
    .data_o({target_last, turn_last})
  );
  tsr_delay_valid #(.Stages(Behind)) u_target_valid (
    .clk_i, .rst_ni, .enable_i(enable), .valid_i(map_valid_0), .valid_o(valid_last)
  );

  // A vector of made bytes.
  logic [8*BlockOut-1:0] made_q;
  logic write_q;
  logic [13:0] write_address_q;
  assign enable = 1'b1;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) write_q <= 1'b0;
    else if (enable) write_q <= valid_last && turn_last == TurnBits'(Turns - 1);
  end
  always_ff @(posedge clk_i) begin
    if (enable && valid_last) begin
      made_q <= {made, made_q[8*BlockOut-1:8*RowLanes]};
      write_address_q <= target_last;
    end
  end
  assign dst_we_o = write_q;
  assign dst_addr_o = write_address_q;
  assign dst_wdata_o = made_q;

  // Destinations under way, which a source may be: newest first. They are compared with the next read's address a cycle
  // ahead: both stand two cycles or more before the read.
  localparam int unsigned UnderWay = (Behind + 2 + Turns) / Turns + 1;
  logic [13:0] way_q[UnderWay];
  logic [UnderWay-1:0] meets_q;
  logic [UnderWay-1:0] ways_q;  // as many ones as are under way, from bit 0 on
  logic arrives;
  assign arrives = write_q && enable;
  assign hazard = ways_q[UnderWay-1] || (ways_q & meets_q) != '0;
  always_ff @(posedge clk_i) begin
    for (int unsigned w = 0; w < UnderWay; w++) meets_q[w] <= map.src == map.dst && way_q[w] == src_addr_o;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      ways_q <= '0;
    end else if (!reducing && takes_result != arrives) begin
      ways_q <= takes_result ? {ways_q[UnderWay-2:0], 1'b1} : ways_q >> 1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (takes_result) begin
      way_q[0] <= result_target;
      for (int unsigned w = 1; w < UnderWay; w++) way_q[w] <= way_q[w-1];
    end
  end

  // Results of a group of rows, finished and written one after another while the next group is under way; or maxima, as
  // they come.
  logic [RowBits-1:0] capture_row;
  logic [48:0] captured;
  logic fresh_q, started_q, finished, written, finishing, finishing_q, finish_last_q, finish_ends;
  logic [RowBits-1:0] finish_row_q, finish_rows_q;
  logic [LaneBits-1:0] lane;
  assign lane = LaneBits'(wait_q >> 2);  // in Capture
  // Sums and moments side by side, from which one choice takes; only the moments reach beyond 31 bits.
  localparam int unsigned Slots = 1 << LaneBits;
  logic [30:0] sums[2 * Slots];
  logic [48:31] squares[Slots];
  for (genvar l = 0; l < Slots; l++) begin : gen_result
    assign sums[l] = gen_lane[l % RowLanes].sum_3;
    assign {squares[l], sums[Slots+l]} = {gen_lane[l % RowLanes].squares_7, gen_lane[l % RowLanes].first_sum_3};
  end
  assign captured = {squares[lane], sums[{!is_sum, lane}]};
  logic [RowBits-1:0] read_row, taken_row;  // whose results are written or made
  logic [48:0] kept_read;
  logic [13:0] target_read;
  assign read_row = both ? fetch_row_q : finish_row_q;
  assign taken_row = both ? taken.row : finish_row_q;
  assign kept_read = kept[taken_row];
  assign target_read = target[{finish_half, read_row}];
  logic captured_all;
  logic [1:0] capture_slot;
  assign capture_slot = phase_q - 2'd3;
  assign capture_row = RowLanes == 1 ? RowBits'(capture_slot) : RowBits'({capture_slot, lane});
  always_ff @(posedge clk_i) begin
    if (state_q == Capture || scanned)
      kept[is_max ? kept_row_q : capture_row] <= is_max ? {40'd0, !reduce.src_unsigned && best_q[7], best_q} : captured;
    if (finishing && fresh_q) begin
      result_q <= kept_read;
      if (is_moments && !reduce.centre) result_q[20:0] <= '0;
    end
  end
  assign finishing = is_max ? ready_q != '0 : finishing_q;
  assign finish_ends = written && finish_row_q == finish_rows_q && !is_max;
  assign start_moments = finishing && is_moments && started_q;
  assign finished = finishing && !fresh_q && (is_moments ? digits_done || waiting_q : !started_q);
  logic waiting_q;  // for the write's grant
  logic shown_q;    // a cycle ago, too
  assign acc_we_o = finished && shown_q;
  assign acc_waddr_o = target_read;
  // A sum stands beside its row's maximum. That is not written again, since the next row may be reading it.
  assign acc_keep_o = is_sum;
  assign written = acc_we_o && acc_wgnt_i;
  always_comb begin
    acc_wdata_o = {96'd0, {23{result_q[8]}}, result_q[8:0]};
    if (is_sum) acc_wdata_o = {64'd0, 1'b0, result_q[30:0], 32'd0};
    if (is_moments) begin
      acc_wdata_o = {19'd0, reduce.length, 27'd0, root_exponent, 15'd0, root, {11{result_q[20]}}, result_q[20:0]};
    end
  end

  // What happens when.
  logic row_ready, map_done, reduced;
  logic unused;
  assign unused = &{1'b0, acc_rdata_i, reduce, map, scalar_q, product, count};
  assign acc_req_o = (state_q == Gather && is_sum && !rest_q) || state_q == Scalars;
  assign acc_addr_o = !acc_req_o ? src_addr_o : reducing ? row_target : row_scalars;
  assign next_row = (gathered || next_row_begins) && !last_row;
  assign load_inner = (state_q == Gather && gathered && group_ends) || next_row_begins;
  assign row_ready = setup_done || state_q == Ready || (state_q == Scan && !begun_q[RowBits] && !final_row_q);
  assign next_row_begins = row_ready && (!running_q || fetched_all_q) && !refused_q;
  assign map_done = (both ? rest_q && state_q == Walk : !is_max && running_q && final_row_q) && all_taken &&
      ways_q == '0 && !resulting_q;
  assign reduced = is_max ? written && begun_q == (RowBits + 1)'(1) && final_row_q : finish_ends && finish_last_q;
  assign done_o = map_done || reduced;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= Idle;
      took_q <= 1'b0;
      waiting_q <= 1'b0;
    end else begin
      took_q <= gathered && is_sum;
      waiting_q <= finished && !written;
      shown_q <= finished && !written;
      case (state_q)
        Idle: if (start_i) state_q <= is_max ? Scan : grouped ? Gather : Scalars;
        Scan: if (reduced) state_q <= Idle;
        Gather: if (gathered && group_ends) state_q <= Walk;
        Walk: if (map_done) state_q <= Idle;
              // Refused reads of results may come behind the lanes' last byte.
              else if (walked_all_q && fetched_all_q) state_q <= Drain;
        Drain: if (drained) state_q <= Capture;
        Capture: if (captured_all) state_q <= last_group_q && !both ? Finish : Gather;
        Finish: if (reduced) state_q <= Idle;
        Scalars: if (acc_gnt_i) state_q <= Back;
        Back: state_q <= Setup;
        Setup, Ready: if (row_ready) state_q <= next_row_begins ? Taken : Ready;
        // When the last stage takes over the row's scalars, those of the next one may come.
        default: if (map_done) state_q <= Idle;
                 else if (begins_q[5] && !final_row_q) state_q <= Scalars;
      endcase
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) running_q <= 1'b0;
    else running_q <= next_row_begins || (running_q && !map_done && state_q != Idle);
    fresh_row_q <= next_row_begins || (fresh_row_q && !(is_max ? stepping : taking));
    // ROW_REDUCE: that of the vector to be asked for; a read leaves it two cycles to follow. ROW_MAP: behind a row's last
    // read the next one's, before it begins.
    if (state_q == Walk) run_source_q <= base[{fill_half_q ^ beside, slot_row}];
    else if (grouped ? row_q == '0 : !running_q || fetched_all_q || (next_inner && last_inner))
      run_source_q <= row_source;
    if (state_q == Idle) final_row_q <= 1'b0;
    else if (next_row_begins) final_row_q <= last_row;
    if (next_row_begins) begin
      run_target_q <= row_target;
      param_row_q <= param_count;
    end
  end
  always_ff @(posedge clk_i) begin
    case (state_q)
      Gather: if (gathered) begin
        row_q <= group_ends ? '0 : row_q + 1'b1;
        rows_q <= row_q;
        last_group_q <= last_row;
      end
      Scan: row_q <= row_q + RowBits'(next_row_begins);
      default: row_q <= '0;
    endcase
    if (state_q == Setup && is_normalise) begin
      // 5: until the exponent is used up; 6: the scalars; then go on.
      if (wait_q != 7'd5 || exponent_q == '0) wait_q <= wait_q == 7'd6 ? 7'd31 : wait_q + 7'd1;
    end else if (state_q == Drain || state_q == Capture) begin
      wait_q <= drained ? '0 : state_q == Drain && wait_q == 7'd15 ? wait_q : wait_q + 7'd1;
    end else begin
      wait_q <= '0;
    end
    fresh_q <= !finishing || written;
    started_q <= finishing && fresh_q;
  end
  logic drained;
  assign drained = state_q == Drain && wait_q == 7'd15 && !finishing_q && all_taken;
  assign captured_all = state_q == Capture && wait_q == 7'(4 * RowLanes - 1);
  always_ff @(posedge clk_i) begin
    if (!rst_ni) finishing_q <= 1'b0;
    else finishing_q <= (captured_all && !both) || (finishing_q && !finish_ends);
    if (captured_all) {finish_last_q, finish_rows_q} <= {last_group_q, rows_q};
    if (state_q == Idle) {before_q, rest_q} <= '0;
    else if (captured_all) {before_q, rest_q} <= {1'b1, both && last_group_q};
    if (state_q == Idle) fill_half_q <= 1'b0;
    else if (captured_all) fill_half_q <= !fill_half_q;
    if (state_q == Idle || finish_ends) finish_row_q <= '0;
    else if (written) finish_row_q <= finish_row_q + 1'b1;
  end

endmodule
