// SPDX-License-Identifier: Apache-2.0
// Rows of the vector engine (isa/semantics.md, ROW_REDUCE and ROW_MAP): a few lanes that take a row's bytes one after
// another. Enters: an instruction whose ranges hold, vectors of OUT or INP, scalars from ACC, channels from PARAM,
// bytes of the tables. Leaves: scalars to ACC, vectors to OUT or INP. The vector engine has nothing else under way
// meanwhile.
//
// Method. A vector is read once and leaves its register in groups of RowLanes bytes. ROW_MAP: a group's bytes go to the
// lanes side by side, one row behind another. While a row is under way the next one's scalars are read and its factor
// is made. What the lanes need of a row stands beside them once for each stage that wants it, and is taken over with
// the row's first group.
// ROW_REDUCE's maxima take a vector a cycle, one row behind another, through a tree beside the lanes.
// Its sums: a lane takes one byte a cycle, and four rows in turn, whose sums are the four registers of its adder. So
// Rows = 4 * RowLanes rows are walked together: all their vectors of one iteration are written into a small memory of
// each lane, of two halves, while the lanes take the bytes of the iteration before in the other order. Then the rows'
// results are kept, and finished one after another and written while the next rows are walked.
// sum_softmax does both at once. Its rows are walked together as for sums, and beside each vector that is read for a
// sum the same one of the rows before is read for its results. Results have tables, a vector's register and distances
// of their own, so that neither waits for the other. Each vector is of another row then: a row's maximum and its sum,
// which are in small memories, come with it, and its reciprocal from a table in a block RAM. Its vectors of ACC pass
// the vector engine's first stages, which round them, and are taken Rounding cycles later than those of OUT or INP
// would be.
//
// start_i: the instruction at word_i, held until done_o, one cycle, with which the last write is granted.
// Back-pressure: a refused write holds the results of ROW_REDUCE, and writes of ROW_MAP are always granted; refused
// reads are asked for again. Reset: synchronous, active low, to idle. Legal: BlockOut and RowLanes powers of two,
// RowLanes at most BlockOut / 4.
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

  localparam int unsigned TurnBits = $clog2(BlockOut / RowLanes);
  localparam int unsigned EntryBits = $clog2(BlockOut);
  localparam int unsigned Rows = 4 * RowLanes;
  localparam int unsigned RowBits = $clog2(Rows);
  localparam int unsigned StepBits = $clog2(4 * BlockOut);
  localparam logic [9:0] MapRegisters = 10'h3ff;
  localparam int unsigned Behind = $countones(MapRegisters) + 3;  // from a group to its bytes
  localparam int unsigned UnderWay = (Behind + 2 + BlockOut / RowLanes) / (BlockOut / RowLanes) + 1;  // vectors
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
  logic [EntryBits-1:0] part_lanes;  // of the entry in which a row's limit is
  assign part_lanes = limit_i[EntryBits-1:0];

  // The loops over the rows, and inside a row. The row of ROW_MAP or of maxima that is under way, while the nest stands
  // at the next one.
  logic [3:0] state_q;
  logic [71:0] count;
  logic [13:0] row_source, row_target, row_scalars, source_step, target_step;
  logic next_row, next_row_begins, load_inner, next_inner, last_row, last_inner;
  logic running_q, final_row_q, fresh_row_q, fetched_all, all_taken;
  logic [13:0] run_source_q, run_target_q;
  tsr_row_nest u_nest (
    .clk_i, .idle_i(state_q == Idle), .load_i(start_i && state_q == Idle),
    .outer_i(grouped ? state_q == Gather : !running_q || fetched_all), .next_row_i(next_row),
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

  // Reads of vectors.
  logic stepping, refused, whole, part, beside, hazard, released, walk_half;
  logic takes_sum, takes_result, take_half, take_last, take_whole, take_part;
  logic [RowBits-1:0] fetch_row, slot_row, take_row, finish_row, finish_rows;
  logic [13:0] target_read, result_target, take_target;
  assign target_read = target[{finish_half, both ? fetch_row : finish_row}];
  assign result_target = (both ? target_read : run_target_q) + target_step;
  tsr_row_reads #(.BlockOut(BlockOut), .RowLanes(RowLanes), .Rounding(Rounding)) u_reads (
    .clk_i, .rst_ni, .reducing_i(reducing), .grouped_i(grouped), .beside_i(both), .max_i(is_max), .rounds_i(rounds),
    .inp_i(map.src == 2'(tsr_isa_pkg::AluSpaceInp)), .limited_i(map.limited), .limit_i,
    .clear_i(state_q == Idle || state_q == Gather), .gather_i(state_q == Gather), .walk_i(state_q == Walk),
    .rows_i(rows_q), .before_rows_i(finish_rows), .before_i(before_q), .rest_i(rest_q), .begin_i(next_row_begins),
    .running_i(running_q), .hazard_i(hazard), .released_i(released), .released_half_i(walk_half), .load_i(load_inner),
    .last_i(last_inner), .next_o(next_inner), .step_o(stepping), .whole_o(whole), .part_o(part), .row_o(fetch_row),
    .beside_o(beside), .slot_row_o(slot_row), .address_i(source_step + run_source_q), .target_i(result_target),
    .fetched_all_o(fetched_all), .all_taken_o(all_taken), .src_req_o, .src_claim_o, .src_addr_o, .src_gnt_i,
    .refused_o(refused), .rounded_valid_i, .taken_o(issue_o), .takes_sum_o(takes_sum), .takes_result_o(takes_result),
    .take_half_o(take_half), .take_last_o(take_last), .take_whole_o(take_whole), .take_part_o(take_part),
    .take_row_o(take_row), .take_target_o(take_target)
  );

  // Vectors of sums and maxima, and of results. What they are stands beside them.
  logic [8*BlockOut-1:0] arriving, vector, result_vector;
  logic emitting, resulting, emit_half_q, emit_last_q, emit_first_q, emit_whole_q, emit_part_q;
  logic [TurnBits-1:0] turn, result_turn;
  logic [RowBits-1:0] emit_row_q;
  logic [8*RowLanes-1:0] group, result_group;
  assign arriving = rounds ? rounded_i : src_rdata_i;
  tsr_row_groups #(.BlockOut(BlockOut), .RowLanes(RowLanes)) u_groups (
    .clk_i, .rst_ni, .take_i(takes_sum), .vector_i(arriving), .vector_o(vector), .valid_o(emitting), .turn_o(turn),
    .group_o(group)
  );
  tsr_row_groups #(.BlockOut(BlockOut), .RowLanes(RowLanes)) u_result_groups (
    .clk_i, .rst_ni, .take_i(takes_result), .vector_i(arriving), .vector_o(result_vector), .valid_o(resulting),
    .turn_o(result_turn), .group_o(result_group)
  );
  always_ff @(posedge clk_i) begin
    if (takes_sum) begin
      emit_row_q <= take_row;
      emit_half_q <= take_half;
      emit_last_q <= take_row == rows_q;
    end
    if (takes_result) begin
      emit_first_q <= fresh_row_q || both;
      {emit_whole_q, emit_part_q} <= {take_whole, take_part};
    end
  end

  // ROW_REDUCE: maxima, a vector in each cycle, and the walk for sums.
  logic scanned, walked_all, valid_1, valid_2, first_2, first_3, first_7;
  logic [7:0] best;
  logic [1:0] phase;
  logic [StepBits-1:0] step;
  tsr_row_maximum #(.BlockOut(BlockOut)) u_maximum (
    .clk_i, .rst_ni, .ask_i(stepping), .first_i(fresh_row_q), .last_i(last_inner), .whole_i(whole), .part_i(part),
    .take_i(issue_o && is_max), .vector_i(vector), .part_lanes_i(part_lanes), .tail_i(tail),
    .unsigned_i(reduce.src_unsigned), .done_o(scanned), .best_o(best)
  );
  tsr_row_walk #(.BlockOut(BlockOut), .Rounding(Rounding)) u_walk (
    .clk_i, .rst_ni, .clear_i(state_q == Idle || state_q == Gather), .gather_i(state_q == Gather), .rounds_i(rounds),
    .tail_i(tail), .part_lanes_i(part_lanes), .take_i(grouped && takes_sum && take_row == rows_q),
    .take_half_i(take_half), .take_last_i(take_last), .take_whole_i(take_whole), .take_part_i(take_part),
    .fill_i(grouped && emitting && turn == '0 && emit_last_q), .fill_half_i(emit_half_q), .half_o(walk_half),
    .phase_o(phase), .step_o(step), .released_o(released), .walked_all_o(walked_all), .valid_1_o(valid_1),
    .valid_2_o(valid_2), .first_2_o(first_2), .first_3_o(first_3), .first_7_o(first_7)
  );

  // ROW_MAP: scalars of the next row, or of the vector that is taken.
  logic setup_done, scalars_taken, coarse_3;
  logic [7:0] maximum_1;
  logic [23:0] factor_3;
  logic [47:0] addend_4;
  logic [30:0] divisor, row_sum;
  logic [11:0] limit_9;
  tsr_row_setup u_setup (
    .clk_i, .rst_ni, .softmax_i(is_softmax), .reducing_i(reducing), .beside_i(both),
    .load_i(both ? takes_result : state_q == Back),
    .first_i({acc_rdata_i[31:8], both ? maximum[{finish_half, take_row}] : acc_rdata_i[7:0]}),
    .second_i(both ? row_sum : acc_rdata_i[62:32]), .exponent_i(acc_rdata_i[68:64]), .length_i(acc_rdata_i[108:96]),
    .make_i(state_q == Setup), .ready_o(setup_done), .begins_i(resulting && emit_first_q && result_turn == '0),
    .taken_o(scalars_taken), .maximum_o(maximum_1), .factor_o(factor_3), .coarse_o(coarse_3), .addend_o(addend_4),
    .divisor_o(divisor), .limit_o(limit_9)
  );

  // The lanes.
  logic result_valid_1_q, result_valid_2_q;
  logic [8*RowLanes-1:0] made;
  logic [7:0] lowest, highest;
  logic [31*RowLanes-1:0] sums;
  logic [21*RowLanes-1:0] first_sums;
  logic [28*RowLanes-1:0] squares;
  logic [18*RowLanes-1:0] gain;
  logic [32*RowLanes-1:0] bias;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) {result_valid_1_q, result_valid_2_q} <= '0;
    else {result_valid_2_q, result_valid_1_q} <= {result_valid_1_q, resulting};
  end
  assign look_up_o = valid_1 && is_sum;
  assign result_look_up_o = result_valid_1_q && is_softmax;
  assign lowest = map.low[7:0] + map.out_zero[7:0];
  assign highest = map.high[7:0] + map.out_zero[7:0];
  for (genvar l = 0; l < RowLanes; l++) begin : gen_lane
    tsr_row_lane #(.BlockOut(BlockOut), .RowLanes(RowLanes), .Lane(l), .MapRegisters(MapRegisters)) u_lane (
      .clk_i, .rst_ni, .reducing_i(reducing), .moments_i(is_moments), .softmax_i(is_softmax),
      .src_unsigned_i(map.src_unsigned), .zero_i(map.zero), .table_i(both ? map.sum_table : map.table_),
      .result_table_i(map.table_), .low_i(map.low), .high_i(map.high), .out_zero_i(map.out_zero[7:0]),
      .lowest_i(lowest), .highest_i(highest), .took_i(took_q), .took_row_i(took_row_q),
      .took_maximum_i(acc_rdata_i[7:0]), .group_valid_i(emitting), .group_half_i(emit_half_q), .group_row_i(emit_row_q),
      .group_turn_i(turn), .group_i(group), .walk_half_i(walk_half), .phase_i(phase), .step_i(step[StepBits-1:2]),
      .valid_2_i(valid_2), .first_2_i(first_2), .first_3_i(first_3), .first_7_i(first_7), .index_o(index_o[48*l+:48]),
      .bytes_i(bytes_i[32*l+:32]), .sum_o(sums[31*l+:31]), .first_sum_o(first_sums[21*l+:21]),
      .squares_o(squares[28*l+:28]), .result_i(result_group[8*l+:8]), .result_turn_i(result_turn),
      .result_whole_i(emit_whole_q), .result_part_i(emit_part_q), .part_lanes_i(part_lanes),
      .result_valid_2_i(result_valid_2_q), .maximum_1_i(maximum_1), .result_index_o(result_index_o[48*l+:48]),
      .result_bytes_i(result_bytes_i[32*l+:32]), .factor_3_i(factor_3), .coarse_3_i(coarse_3), .addend_4_i(addend_4),
      .divisor_i(divisor), .limit_9_i(limit_9), .gain_i(gain[18*l+:18]), .bias_i(bias[32*l+:32]), .byte_o(made[8*l+:8])
    );
  end

  // Beside ROW_MAP's groups: their channels; where their vector goes; which destinations are under way.
  logic ways_idle;
  tsr_row_channels #(.BlockOut(BlockOut), .RowLanes(RowLanes)) u_channels (
    .clk_i, .rst_ni, .normalise_i(is_normalise), .beside_i(both), .row_i(map.row), .param_loop_i(map.param_loop),
    .param_addr_i(map.param_addr), .count_i(count), .begin_i(next_row_begins), .take_i(takes_result),
    .valid_i(resulting), .turn_i(result_turn), .param_req_o, .param_addr_o, .param_rdata_i, .gain_o(gain), .bias_o(bias)
  );
  tsr_row_write #(.BlockOut(BlockOut), .RowLanes(RowLanes), .Behind(Behind)) u_write (
    .clk_i, .rst_ni, .take_i(takes_result), .target_i(take_target), .valid_i(resulting), .turn_i(result_turn),
    .bytes_i(made), .we_o(dst_we_o), .addr_o(dst_addr_o), .wdata_o(dst_wdata_o)
  );
  tsr_row_under_way #(.Places(UnderWay)) u_under_way (
    .clk_i, .rst_ni, .push_i(takes_result), .target_i(result_target), .pop_i(dst_we_o), .compare_i(map.src == map.dst),
    .source_i(src_addr_o), .hazard_o(hazard), .idle_o(ways_idle)
  );

  // Results of a group of rows, finished and written one after another while the next group is under way; or maxima, as
  // they come. A sum stands beside its row's maximum. That is not written again, since the next row may be reading it.
  logic drained, captured_all, reduced, row_room;
  tsr_row_results #(.RowLanes(RowLanes)) u_results (
    .clk_i, .rst_ni, .idle_i(state_q == Idle), .max_i(is_max), .sum_i(is_sum), .moments_i(is_moments), .beside_i(both),
    .src_unsigned_i(reduce.src_unsigned), .centre_i(reduce.centre), .length_i(reduce.length), .shift_i(reduce.shift),
    .epsilon_i(reduce.epsilon), .offset_i(reduce.offset), .drain_i(state_q == Drain), .taken_i(all_taken),
    .drained_o(drained), .capture_i(state_q == Capture), .captured_o(captured_all), .rows_i(rows_q),
    .last_group_i(last_group_q), .phase_i(phase), .sums_i(sums), .first_sums_i(first_sums), .squares_i(squares),
    .begin_i(next_row_begins), .final_i(final_row_q), .room_o(row_room), .scanned_i(scanned), .best_i(best),
    .row_i(take_row), .sum_o(row_sum), .rows_o(finish_rows), .row_o(finish_row), .acc_we_o,
    .acc_wdata_o, .acc_gnt_i(acc_wgnt_i), .done_o(reduced)
  );
  assign acc_waddr_o = target_read;
  assign acc_keep_o = is_sum;

  // What happens when.
  logic row_ready, map_done;
  logic unused;
  assign unused = &{1'b0, acc_rdata_i, reduce, map, result_vector, step};
  assign acc_req_o = (state_q == Gather && is_sum && !rest_q) || state_q == Scalars;
  assign acc_addr_o = !acc_req_o ? src_addr_o : reducing ? row_target : row_scalars;
  assign next_row = (gathered || next_row_begins) && !last_row;
  assign load_inner = (state_q == Gather && gathered && group_ends) || next_row_begins;
  assign row_ready = setup_done || state_q == Ready || (state_q == Scan && row_room && !final_row_q);
  assign next_row_begins = row_ready && (!running_q || fetched_all) && !refused;
  assign map_done = (both ? rest_q && state_q == Walk : !is_max && running_q && final_row_q) && all_taken &&
      ways_idle && !resulting;
  assign done_o = map_done || reduced;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      state_q <= Idle;
      took_q <= 1'b0;
    end else begin
      took_q <= gathered && is_sum;
      case (state_q)
        Idle: if (start_i) state_q <= is_max ? Scan : grouped ? Gather : Scalars;
        Scan: if (reduced) state_q <= Idle;
        Gather: if (gathered && group_ends) state_q <= Walk;
        Walk: if (map_done) state_q <= Idle;
              // Refused reads of results may come behind the lanes' last byte.
              else if (walked_all && fetched_all) state_q <= Drain;
        Drain: if (drained) state_q <= Capture;
        Capture: if (captured_all) state_q <= last_group_q && !both ? Finish : Gather;
        Finish: if (reduced) state_q <= Idle;
        Scalars: if (acc_gnt_i) state_q <= Back;
        Back: state_q <= Setup;
        Setup, Ready: if (row_ready) state_q <= next_row_begins ? Taken : Ready;
        // When the last stage takes over the row's scalars, those of the next one may come.
        default: if (map_done) state_q <= Idle;
                 else if (scalars_taken && !final_row_q) state_q <= Scalars;
      endcase
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) running_q <= 1'b0;
    else running_q <= next_row_begins || (running_q && !map_done && state_q != Idle);
    fresh_row_q <= next_row_begins || (fresh_row_q && !(is_max ? stepping : issue_o));
    // ROW_REDUCE: that of the vector to be asked for; a read leaves it two cycles to follow. ROW_MAP: behind a row's
    // last read the next one's, before it begins.
    if (state_q == Walk) run_source_q <= base[{fill_half_q ^ beside, slot_row}];
    else if (grouped ? row_q == '0 : !running_q || fetched_all || (next_inner && last_inner))
      run_source_q <= row_source;
    if (state_q == Idle) final_row_q <= 1'b0;
    else if (next_row_begins) final_row_q <= last_row;
    if (next_row_begins) run_target_q <= row_target;
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
    if (state_q == Idle) {before_q, rest_q} <= '0;
    else if (captured_all) {before_q, rest_q} <= {1'b1, both && last_group_q};
    if (state_q == Idle) fill_half_q <= 1'b0;
    else if (captured_all) fill_half_q <= !fill_half_q;
  end

endmodule
