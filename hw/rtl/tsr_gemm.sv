// SPDX-License-Identifier: Apache-2.0
// The matrix engine: multiply-accumulate over a nest of six loops (isa/semantics.md, GEMM). Enters: instructions, INP
// and WGT entries, ACC entries when sums accumulate. Leaves: ACC entries, completions. Method: a preparation register
// in which the ranges are checked and the form is found while the previous instruction runs; then a pipeline: stage 0
// counts and asks for INP, 1 makes the operands (tsr_window) and asks for WGT, 2 and what follows multiply and add
// (tsr_mac_array), `a` is the last of these and asks for ACC, 3 adds the tile to the sum, 4 writes. A depthwise nest in
// raster form reads each input vector once and makes a result whenever it completes a window; any other takes one tap a
// cycle.
//
// Latency: gemm.start cycles of isa/timing.toml from acceptance to the first tile when idle, gemm.write from a tile to
// its write. Throughput: one tile (dense), tap or vector of the raster (depthwise) a cycle, no bubble between prepared
// instructions. Back-pressure: none on the memories, which always grant and must keep the data of INP and WGT until the
// next read; a sum that starts from an ACC entry still on its way to be written waits for it (stall_o). Reset:
// synchronous, active low, of what is valid; data have none. Timing: the nest's step (tsr_nest), and one addition of 32
// bits behind ACC's output. Legal: Batch >= 1, BlockIn and BlockOut powers of two from 4 on; Taps up to 16.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_gemm #(
  parameter int unsigned Batch    = 1,
  parameter int unsigned BlockIn  = 8,
  parameter int unsigned BlockOut = 8,
  parameter int unsigned InpDepth = 16,
  parameter int unsigned WgtDepth = 16,
  parameter int unsigned AccDepth = 16,
  parameter int unsigned Taps     = BlockIn == 8 ? 6 : BlockIn == 16 ? 9 : BlockIn < 8 ? BlockIn : 16,
  parameter int unsigned RasterPairs = 0,
`ifdef VERILATOR
  parameter int unsigned AsSynthesised = 0,
`else
  parameter int unsigned AsSynthesised = 1,
`endif
  localparam int unsigned Sides = RasterPairs == 2 ? 4 : RasterPairs == 1 ? 2 : 1
) (
  input  logic                           clk_i,
  input  logic                           rst_ni,
  // Engine port.
  input  logic                           instr_valid_i,
  input  logic [511:0]                   instr_i,
  input  logic [31:0]                    instr_pc_i,
  output logic                           instr_ready_o,
  output logic                           busy_o,
  output logic                           complete_o,
  output logic                           complete_signal_o,
  output logic                           complete_fault_o,
  output logic [2:0]                     complete_code_o,
  output logic [31:0]                    complete_pc_o,
  // Memories.
  output logic                           inp_req_o,
  output logic                           inp_pair_o,   // with RasterPairs: the entry behind that, too
  output logic                           inp_rows_o,   // with RasterPairs = 2: and a pair from there,
  output logic [13:0]                    inp_above_o,  // both at even addresses, in four memories
  output logic [13:0]                    inp_addr_o,
  input  logic [8*Sides*Batch*BlockIn-1:0] inp_rdata_i,  // with RasterPairs those of each memory, by address
  output logic                           wgt_req_o,
  output logic [13:0]                    wgt_addr_o,
  input  logic [8*BlockIn*BlockOut-1:0]  wgt_rdata_i,
  output logic                           acc_req_o,
  output logic [13:0]                    acc_addr_o,
  input  logic [32*Batch*BlockOut-1:0]   acc_rdata_i,
  output logic                           acc_we_o,
  output logic [13:0]                    acc_waddr_o,
  output logic [32*Batch*BlockOut-1:0]   acc_wdata_o,
  output logic [4*Batch*BlockOut-1:0]    acc_wbe_o,
  // Counters.
  output logic                           issue_o,
  output logic                           stall_o
);

  localparam int unsigned Lanes = BlockIn < BlockOut ? BlockIn : BlockOut;
  localparam int unsigned AccLanes = Batch * BlockOut;
  localparam int unsigned OperandBits = AsSynthesised != 0 ? 9 : 32;
  localparam int unsigned MacStages = tsr_isa_pkg::TimingGemmTileLoad + tsr_isa_pkg::TimingGemmTileMultiply +
      tsr_isa_pkg::TimingGemmTilePair + tsr_isa_pkg::TimingGemmTileTree;
  localparam int unsigned LineDepth = tsr_isa_pkg::TimingGemmLineColumns;
  localparam int unsigned LineBits = $clog2(LineDepth);

  if (Batch < 1) $error("tsr_gemm: Batch is 0");
  if (BlockOut < 4 || (BlockOut & (BlockOut - 1)) != 0) $error("tsr_gemm: BlockOut is no power of two from 4 on");
  if (Taps > 16) $error("tsr_gemm: a depthwise entry has more than 16 taps");

  // Preparation: the instruction whose ranges are being found.
  logic prep_valid_q, prep_start_q, prep_move, prep_drop, drained;
  logic [511:0] prep_word_q;
  tsr_isa_pkg::gemm_t prep;
  logic unused_prep_gemm, prep_fence, prep_done, prep_fault, range_done;
  logic [2:0] outside;

  assign prep = prep_word_q;
  assign {unused_prep_gemm, prep_fence} = tsr_isa_pkg::gemm_instruction(prep.header.opcode);

  // Addresses and strides of INP, WGT and ACC, in this order.
  logic check;
  logic [3*14-1:0] prep_addresses;
  logic [3*84-1:0] prep_strides;
  assign check = prep_start_q && !prep_fence;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {prep_addresses, prep_strides} = 'x;
    if (!tsr_isa_pkg::Simulated || check || !range_done || prep_done) begin
      prep_addresses = {prep.acc_addr, prep.wgt_addr, prep.inp_addr};
      prep_strides = {prep.acc_stride, prep.wgt_stride, prep.inp_stride};
    end
  end
  tsr_range #(.Operands(3)) u_range (
    .clk_i, .rst_ni, .start_i(check), .addr_i(prep_addresses), .extent_i(prep.extent), .stride_i(prep_strides),
    .loops_i({3'd6 - prep.reduce, 3'd6, 3'd6}), .limit_i({15'(AccDepth), 15'(WgtDepth), 15'(InpDepth)}),
    .done_o(range_done), .outside_o(outside)
  );
  assign prep_done = prep_valid_q && !prep_fence && !prep_start_q && range_done;
  assign prep_fault = outside != '0;

  // What the completions of the instructions inside need, in their order; the one in preparation is the newest.
  localparam int unsigned InsideBits = $clog2(tsr_isa_pkg::TimingGemmDrain + 3);
  logic [32:0] inside_info[1 << InsideBits];
  logic [32:0] oldest;
  logic [InsideBits-1:0] push_q, pop_q;
  always_ff @(posedge clk_i) begin
    if (instr_valid_i && instr_ready_o) inside_info[push_q] <= {instr_i[tsr_isa_pkg::HeaderSignalLsb], instr_pc_i};
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      push_q <= '0;
      pop_q <= '0;
    end else begin
      if (instr_valid_i && instr_ready_o) push_q <= push_q + 1'b1;
      if (complete_o) pop_q <= pop_q + 1'b1;
    end
  end
  assign oldest = inside_info[pop_q];

  // The form of a depthwise nest, found meanwhile.
  logic form_raster, form_row_skip, form_col_skip;
  logic [2:0] form_outer;
  logic [11:0] form_rows, form_cols;
  logic [13:0] form_row_stride, form_col_stride, form_acc_row_stride, form_acc_col_stride;
  logic [1:0] form_rows_before;
  logic [3:0] form_cols_before;
  logic [Taps-1:0] form_taps, form_line_0, form_line_1;
  logic [3:0] form_last_tap;
  logic form_pairs, form_far, form_row_pairs;
  logic [13:0] form_above;
  logic [11:0] form_early_cols, form_late_cols;

  tsr_window_form #(.LineDepth(LineDepth), .Taps(Taps), .RasterPairs(RasterPairs)) u_form (
    .clk_i, .rst_ni, .start_i(prep_start_q), .depthwise_i(prep.mode == 2'(tsr_isa_pkg::GemmModeDepthwise)),
    .reduce_i(prep.reduce), .extent_i(prep.extent), .inp_odd_i(prep.inp_addr[0]), .inp_stride_i(prep.inp_stride), .wgt_stride_i(prep.wgt_stride),
    .acc_stride_i(prep.acc_stride), .raster_o(form_raster), .outer_o(form_outer), .rows_o(form_rows),
    .cols_o(form_cols), .row_stride_o(form_row_stride), .col_stride_o(form_col_stride),
    .rows_before_o(form_rows_before), .cols_before_o(form_cols_before),
    .pairs_o(form_pairs), .far_o(form_far), .row_pairs_o(form_row_pairs), .above_o(form_above), .early_cols_o(form_early_cols), .late_cols_o(form_late_cols),
    .row_skip_o(form_row_skip),
    .col_skip_o(form_col_skip), .acc_row_stride_o(form_acc_row_stride), .acc_col_stride_o(form_acc_col_stride),
    .last_tap_o(form_last_tap), .taps_o(form_taps), .line_0_o(form_line_0), .line_1_o(form_line_1)
  );

  // The instruction that issues tiles, and the nest of its reads.
  logic active_q, advance, stall, last, sum_first, sum_last;
  logic [511:0] word_q;
  tsr_isa_pkg::gemm_t gemm;
  tsr_isa_pkg::gemm_extent_t extent, count;
  logic [3*84-1:0] strides;
  logic [13:0] inp_address, wgt_address, acc_address;
  logic [5:0] inner_last;
  logic [3:0] tap_q, last_tap_q;  // counted from the last tap

  assign gemm = word_q;
  assign prep_move = prep_done && !prep_fault && (!active_q || (advance && last));
  assign prep_drop = prep_valid_q && drained && (prep_fence || (prep_done && prep_fault));
  assign instr_ready_o = !prep_valid_q || prep_move;

  // Where INP is read first. A pair is named by its first vector; where every other vector makes a result the first pair
  // of a row begins in front of it, with a vector that no window has.
  logic [13:0] first_inp;
  if (RasterPairs != 0) begin : gen_first_inp
    logic [13:0] first_inp_q;
    always_ff @(posedge clk_i) first_inp_q <= prep.inp_addr - 14'(form_raster && form_far);
    assign first_inp = first_inp_q;
  end else begin : gen_plain_inp
    assign first_inp = prep.inp_addr;
  end

  // In raster form: the loops kept, then rows and columns. Nothing but INP moves inside.
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {extent, strides} = 'x;
    if (!tsr_isa_pkg::Simulated || prep_done) begin
      extent = prep.extent;
      strides = prep_strides;
      if (form_raster) begin
        for (int unsigned k = 0; k < 4; k++) if (3'(k) >= form_outer) extent.loop[k] = 12'd1;
        extent.loop[4] = form_rows;
        extent.loop[5] = form_cols;
        strides[14*4+:14] = form_row_stride;
        strides[14*5+:14] = form_col_stride;
        strides[84+14*4+:28] = '0;
        strides[168+14*4+:28] = '0;
      end
    end
  end

  logic pairs_q, far_q, row_pairs_q, next_early;
  logic [13:0] above_q;
  logic [11:0] early_cols_q, late_cols_q;
  tsr_nest #(.Operands(3), .Rows(RasterPairs)) u_nest (
    .clk_i, .idle_i(!active_q), .offer_i(prep_done), .load_i(prep_move), .advance_i(advance),
    .addr_i({prep_addresses[14+:28], first_inp}), .extent_i(extent),
    .stride_i(strides), .reduce_i(form_raster ? 3'd2 : prep.reduce),
    .row_i(pairs_q), .row_extent_i(next_early ? early_cols_q : late_cols_q), .row_two_i(next_early || far_q),
    .addr_o({acc_address, wgt_address, inp_address}), .count_o(count), .inner_last_o(inner_last), .sum_first_o(sum_first),
    .sum_last_o(sum_last), .last_o(last)
  );
  assign advance = active_q && !stall;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      prep_valid_q <= 1'b0;
      prep_start_q <= 1'b0;
      active_q <= 1'b0;
    end else begin
      prep_start_q <= instr_valid_i && instr_ready_o;
      if (instr_valid_i && instr_ready_o) prep_valid_q <= 1'b1;
      else if (prep_move || prep_drop) prep_valid_q <= 1'b0;
      if (prep_move) active_q <= 1'b1;
      else if (advance && last) active_q <= 1'b0;
    end
  end

  always_ff @(posedge clk_i) begin
    if (instr_valid_i && instr_ready_o) begin
      prep_word_q <= instr_i;
    end
    if (prep_move) begin
      word_q <= prep_word_q;
      tap_q <= form_last_tap;
      last_tap_q <= form_last_tap;
    end else if (advance) begin
      tap_q <= (gemm.reduce >= 3'd2 ? inner_last[4] : inner_last[5]) ? last_tap_q : tap_q - 4'd1;
    end
  end

  // In the raster: whether the vector read now completes a window, and where that result goes. `wait` counts the rows
  // and columns that are still missing.
  logic raster_q, row_skip_q, col_skip_q, result;
  logic [1:0] rows_before_q, row_wait_q, row_wait;
  logic [3:0] cols_before_q, col_wait_q;
  logic [13:0] acc_row_stride_q, acc_col_stride_q, acc_row_q, acc_col_q, acc_row, acc_col;
  logic [Taps-1:0] taps_q, line_0_q, line_1_q;

  assign row_wait = sum_first ? rows_before_q : row_wait_q;
  assign acc_row = sum_first ? acc_address : acc_row_q;
  assign acc_col = sum_first ? acc_address : acc_col_q;
  assign result = row_wait == 2'd0 && col_wait_q == 4'd0;

  always_ff @(posedge clk_i) begin
    if (prep_move) begin
      raster_q <= form_raster;
      if (form_raster) begin
        row_skip_q <= form_row_skip;
        col_skip_q <= form_col_skip;
        rows_before_q <= form_rows_before;
        cols_before_q <= form_cols_before;
        col_wait_q <= form_cols_before;
        acc_row_stride_q <= form_acc_row_stride;
        acc_col_stride_q <= form_acc_col_stride;
        taps_q <= form_taps;
        line_0_q <= form_line_0;
        line_1_q <= form_line_1;
      end
    end else if (advance && raster_q) begin
      row_wait_q <= row_wait;
      acc_row_q <= acc_row;
      acc_col_q <= acc_col;
      if (inner_last[5]) begin
        col_wait_q <= cols_before_q;
        if (row_wait == 2'd0) begin
          row_wait_q <= {1'b0, row_skip_q};
          acc_row_q <= acc_row + acc_row_stride_q;
          acc_col_q <= acc_row + acc_row_stride_q;
        end else begin
          row_wait_q <= row_wait - 2'd1;
        end
      end else if (col_wait_q != 4'd0) begin
        col_wait_q <= col_wait_q - 4'd1;
      end else begin
        col_wait_q <= {3'd0, col_skip_q};
        if (row_wait == 2'd0) acc_col_q <= acc_col + acc_col_stride_q;
      end
    end
  end

  // In pairs: vectors enter together in the rows in front of the first results, in rows where every other vector makes
  // one, and at the beginning of each row.
  logic early_q, begins_q, pair;
  logic [LineBits-1:0] line_col;
  logic [11:0] column;  // from 1 on
  assign column = count.loop[5];
  if (RasterPairs != 0) begin : gen_pairs
    assign next_early = sum_last ? rows_before_q != 2'd0 : row_wait == 2'd2;
    assign pair = pairs_q && (early_q || far_q || begins_q);
    // A line's place holds an even column and the odd one behind it. The first pair is counted as 1.
    assign line_col = pairs_q && !early_q && !far_q ? LineBits'(column >> 1) + LineBits'(1) : LineBits'(column);
    always_ff @(posedge clk_i) begin
      if (prep_move) begin
        pairs_q <= form_raster && form_pairs;
        far_q <= form_raster && form_far;
        row_pairs_q <= RasterPairs == 2 && form_raster && form_row_pairs;
        if (RasterPairs == 2) above_q <= form_above;
        early_cols_q <= form_early_cols;
        late_cols_q <= form_late_cols;
        early_q <= form_rows_before != 2'd0;
        begins_q <= 1'b1;
      end else if (advance) begin
        begins_q <= inner_last[5];
        if (inner_last[5]) early_q <= next_early;
      end
    end
  end else begin : gen_no_pairs
    assign {pairs_q, far_q, row_pairs_q, above_q, next_early, early_q, begins_q, pair} = '0;
    assign {early_cols_q, late_cols_q} = '0;
    assign line_col = LineBits'(column);
    logic unused_pairs;
    assign unused_pairs = &{1'b0, form_pairs, form_far, form_row_pairs, form_above, form_early_cols, form_late_cols, early_q, begins_q, early_cols_q, late_cols_q,
                            far_q, next_early};
  end
  assign inp_pair_o = pairs_q;
  assign inp_rows_o = row_pairs_q;
  assign inp_above_o = RasterPairs == 2 ? inp_address - above_q : '0;

  // What travels with a tile.
  typedef struct packed {
    logic first;  // of its sum
    logic last;
    logic finish;  // of its instruction
    logic accumulate;
    logic depthwise;
    logic [4:0] lane;
    logic [13:0] acc;
  } tile_t;
  tile_t tile_0, tile_1_q, tile_2_q, tile_3_q, tile_4_q;
  logic valid_1_q, valid_2_q, valid_3_q, write_q;

  always_comb begin
    if (!tsr_isa_pkg::Simulated) tile_0 = 'x;
    if (!tsr_isa_pkg::Simulated || active_q) begin
      tile_0.first = raster_q || sum_first;
      tile_0.last = raster_q || sum_last;
      tile_0.finish = last;
      tile_0.accumulate = gemm.accumulate;
      tile_0.depthwise = gemm.mode == 2'(tsr_isa_pkg::GemmModeDepthwise);
      tile_0.lane = gemm.lane;
      tile_0.acc = raster_q ? acc_col : acc_address;
    end
  end

  // Stage 1: the operands; WGT is asked. In the raster a vector need not make a result, and the weights stay.
  logic result_1_q, write_1_q, wgt_read_1_q, inp_unsigned_1_q, wgt_unsigned_1_q;
  logic [8:0] inp_zero_1_q, wgt_zero_1_q;
  logic [Taps-1:0] take_1_q, one_1_q;
  logic [13:0] wgt_addr_1_q;
  localparam int unsigned SideBits = Sides > 1 ? $clog2(Sides) : 1;
  logic [SideBits-1:0] newest_side_1_q, first_side_1_q;
  logic pairs_1_q, pair_1_q, row_pairs_1_q, odd_1_q;

  // What each tap of a window takes (tsr_window): 0: what the tap before it held; 1, 2: the vector of the row before, of
  // that before it. In pairs tap 1 takes as 2 the pair's first vector, tap 2 as 3 what was newest, taps 3 and 6 as 3 odd
  // columns of lines, 5 and 8 as 3 what taps 3 and 6 held. With two rows at once taps 3 and 4 take the row above, as 2
  // and 3, and the first row of taps the newer line, tap 6 the odd columns of it as 1, or 4. So with three columns each
  // bit of a tap is one look-up table.
  localparam int unsigned SourceBits = RasterPairs == 2 && Taps >= 12 ? 3 : 2;
  localparam int unsigned Columns = tsr_isa_pkg::TimingGemmPairColumns;
  logic [SourceBits*(Taps-1)-1:0] source, source_1_q;
  always_comb begin
    source = '0;
    if (!tsr_isa_pkg::Simulated || raster_q) begin
      for (int unsigned t = 1; t < Taps; t++) begin
        // A row of taps is `t` long, and there is a second one; or `t` / 2, and there is a third one.
        if (2 * t <= Taps && raster_q && line_0_q[t]) source[SourceBits*(t-1)+:SourceBits] = SourceBits'(1);
        if (t % 2 == 0 && 3 * t / 2 <= Taps && raster_q && line_1_q[t]) source[SourceBits*(t-1)+:SourceBits] = SourceBits'(2);
        if (RasterPairs != 0 && t / Columns < 3) begin
          if (t % Columns == 0 && pairs_q && (pair || column[0])) source[SourceBits*(t-1)+:SourceBits] = SourceBits'(3);
          if (t % Columns == 1 && pair) source[SourceBits*(t-1)+:SourceBits] = t == Columns + 1 ? SourceBits'(1) : SourceBits'(2);
          if (t % Columns == 2 && far_q) source[SourceBits*(t-1)+:SourceBits] = SourceBits'(3);
        end
        if (RasterPairs == 2 && row_pairs_q) begin
          if (t == Columns) source[SourceBits*(t-1)+:SourceBits] = SourceBits'(2);
          if (t == Columns + 1) source[SourceBits*(t-1)+:SourceBits] = SourceBits'(3);
          if (t == 2 * Columns) source[SourceBits*(t-1)+:SourceBits] = 2 * t > Taps ? SourceBits'(1) : SourceBits'(4);
          if (t == 2 * Columns + 1) source[SourceBits*(t-1)+:SourceBits] = SourceBits'(1);
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_1_q <= 1'b0;
    else if (!stall) valid_1_q <= active_q;
  end

  always_ff @(posedge clk_i) begin
    if (advance) begin
      tile_1_q <= tile_0;
      result_1_q <= !raster_q || result;
      write_1_q <= raster_q;
      wgt_read_1_q <= !raster_q || sum_first;
      inp_unsigned_1_q <= gemm.inp_unsigned;
      wgt_unsigned_1_q <= gemm.wgt_unsigned;
      inp_zero_1_q <= gemm.inp_zero;
      wgt_zero_1_q <= gemm.wgt_zero;
      take_1_q <= raster_q ? taps_q : '0;
      one_1_q <= raster_q || !tile_0.depthwise ? '0 : Taps'(1) << tap_q;
      wgt_addr_1_q <= wgt_address;
      newest_side_1_q <= RasterPairs == 0 ? '0 : SideBits'(inp_address) + SideBits'(pairs_q);
      first_side_1_q <= RasterPairs == 0 ? '0 : SideBits'(inp_address) + SideBits'(pairs_q && !pair);
      pairs_1_q <= pairs_q;
      pair_1_q <= pair;
      row_pairs_1_q <= row_pairs_q;
      source_1_q <= source;
      odd_1_q <= pairs_q && (pair || column[0]);
    end
  end

  // A sum that starts from ACC must not pass a write of its entry: when it asks, the entry's last sum must be in stage
  // 4 no more. So it waits for the tiles that left this stage one and two cycles ago: `passed` is the second.
  logic step, go_1, passed_valid, passed_last;
  logic [13:0] passed_acc;
  assign stall = valid_1_q && result_1_q && tile_1_q.first && tile_1_q.accumulate &&
      ((valid_2_q && tile_2_q.last && tile_2_q.acc == tile_1_q.acc) ||
       (passed_valid && passed_last && passed_acc == tile_1_q.acc));
  assign step = valid_1_q && !stall;
  assign go_1 = step && result_1_q;

  // Stage 2: operands and weights stand.
  logic [OperandBits*Batch*BlockIn-1:0] newest_2;
  logic [OperandBits*Batch*Lanes*(Taps-1)-1:0] window_2;
  logic [Taps-1:0] take_2_q, one_2_q;
  logic wgt_unsigned_2_q;
  logic signed [8:0] wgt_zero_2_q;

  tsr_window #(
    .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .Taps(Taps), .LineDepth(LineDepth), .OperandBits(OperandBits),
    .RasterPairs(RasterPairs)
  ) u_window (
    .clk_i, .read_i(advance && raster_q), .col_i(line_col), .newest_side_i(newest_side_1_q), .first_side_i(first_side_1_q),
    .pairs_i(pairs_1_q), .pair_i(pair_1_q), .row_pairs_i(row_pairs_1_q), .source_i(source_1_q), .odd_i(odd_1_q), .step_i(step),
    .depthwise_i(tile_1_q.depthwise), .write_i(write_1_q), .lane_i(tile_1_q.lane), .vector_i(inp_rdata_i),
    .unsigned_i(inp_unsigned_1_q), .zero_i(inp_zero_1_q), .newest_o(newest_2), .window_o(window_2)
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_2_q <= 1'b0;
    else valid_2_q <= go_1;
  end
  always_ff @(posedge clk_i) begin
    if (go_1) begin
      tile_2_q <= tile_1_q;
      take_2_q <= take_1_q;
      one_2_q <= one_1_q;
      wgt_unsigned_2_q <= wgt_unsigned_1_q;
      wgt_zero_2_q <= wgt_zero_1_q;
    end
  end

  // Stages 2 to `a`: products and their sums, which stand in stage 3; the tiles beside them.
  logic [32*AccLanes-1:0] sums_3;
  logic [MacStages-1:0] valid_q;  // bit n: stage 2 + n
  logic valid_a;
  tile_t tile_a;

  tsr_mac_array #(
    .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .Taps(Taps), .OperandBits(OperandBits),
    .AsSynthesised(AsSynthesised)
  ) u_mac_array (
    .clk_i, .rst_ni, .valid_i(valid_2_q), .dense_i(!tile_2_q.depthwise), .take_i(take_2_q), .one_i(one_2_q),
    .newest_i(newest_2), .window_i(window_2), .weights_i(wgt_rdata_i), .unsigned_i(wgt_unsigned_2_q),
    .zero_i(wgt_zero_2_q), .sums_o(sums_3)
  );

  logic [MacStages-2:0] later_q;
  assign valid_q = {later_q, valid_2_q};
  assign valid_a = valid_q[MacStages-1];
  always_ff @(posedge clk_i) begin
    if (!rst_ni) later_q <= '0;
    else later_q <= valid_q[MacStages-2:0];
  end
  tsr_delay #(.Width($bits(tile_2_q)), .Stages(MacStages - 1)) u_tiles (
    .clk_i, .rst_ni, .enable_i(1'b1), .valid_i(valid_2_q), .data_i(tile_2_q), .data_o(tile_a)
  );

  // The tile that left stage 1 two cycles ago.
  always_ff @(posedge clk_i) begin
    if (valid_2_q) {passed_last, passed_acc} <= {tile_2_q.last, tile_2_q.acc};
  end
  assign passed_valid = valid_q[1];

  // Stage 3: the sum.
  logic [32*AccLanes-1:0] sum_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) valid_3_q <= 1'b0;
    else valid_3_q <= valid_a;
  end
  always_ff @(posedge clk_i) begin
    if (valid_a) tile_3_q <= tile_a;
  end

  // It is written as a difference for synthesis, so that the choice stands in the carry chain's own look-up tables.
  always_ff @(posedge clk_i) begin
    logic [32*AccLanes-1:0] sum;
    if (valid_3_q) begin
      if (!tile_3_q.first) sum = sum_q;
      else if (tile_3_q.accumulate) sum = acc_rdata_i;
      else sum = '0;
      for (int unsigned l = 0; l < AccLanes; l++) begin
        if (tsr_isa_pkg::Simulated) sum[32*l+:32] = sum[32*l+:32] + sums_3[32*l+:32];
        else sum[32*l+:32] = 32'(({sums_3[32*l+:32], 1'b0} - {~sum[32*l+:32], 1'b1}) >> 1);
      end
      sum_q <= sum;
    end
  end

  // Stage 4: the write.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) write_q <= 1'b0;
    else write_q <= valid_3_q && tile_3_q.last;
  end
  always_ff @(posedge clk_i) begin
    if (valid_3_q && tile_3_q.last) tile_4_q <= tile_3_q;
  end

  assign inp_req_o = advance;
  assign inp_addr_o = inp_address;
  assign wgt_req_o = step && wgt_read_1_q;
  assign wgt_addr_o = wgt_addr_1_q;
  assign acc_req_o = valid_a && tile_a.first && tile_a.accumulate;
  assign acc_addr_o = tile_a.acc;
  assign acc_we_o = write_q;
  assign acc_waddr_o = tile_4_q.acc;
  assign acc_wdata_o = sum_q;

  always_comb begin
    acc_wbe_o = '1;
    if (tile_4_q.depthwise && BlockOut > BlockIn) begin
      for (int unsigned l = 0; l < AccLanes; l++) begin
        acc_wbe_o[4*l+:4] = {4{32'(tile_4_q.lane) == (l % BlockOut) / Lanes}};
      end
    end
  end

  assign drained = !active_q && !valid_1_q && valid_q == '0 && !valid_3_q && !write_q;
  assign busy_o = prep_valid_q || !drained;
  assign complete_o = (write_q && tile_4_q.finish) || prep_drop;
  assign complete_signal_o = oldest[32] && !complete_fault_o;
  assign complete_fault_o = prep_drop && !prep_fence;
  assign complete_code_o = complete_fault_o ? 3'(tsr_isa_pkg::FaultScratchpadRange) : 3'(tsr_isa_pkg::FaultNone);
  assign complete_pc_o = oldest[31:0];
  assign issue_o = advance;
  assign stall_o = stall && active_q;

  logic unused;
  assign unused = &{1'b0, unused_prep_gemm, count, column, tile_4_q, prep, gemm, inner_last};

endmodule
/* verilator lint_on LATCH */
