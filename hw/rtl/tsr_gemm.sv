// SPDX-License-Identifier: Apache-2.0
// The matrix engine: multiply-accumulate over a nest of six loops (isa/semantics.md, GEMM). Enters: instructions, INP
// and WGT entries, ACC entries when sums accumulate. Leaves: ACC entries, completions. Method: a preparation register
// in which the ranges are checked and the form is found while the previous instruction runs; then a pipeline of five
// stages: 0 counts and asks for INP, 1 makes the operands (tsr_window) and asks for WGT, 2 multiplies, adds groups of
// four products and asks for ACC, 3 adds them to the sum, 4 writes. Every multiplier has a weight of its own, byte k of
// row o, and takes the input k of the row (dense) or the input of lane o that meets tap k (depthwise). A depthwise nest
// in raster form reads each input vector once and makes a result whenever it completes a window; any other takes one
// tap a cycle.
//
// Latency: gemm.start cycles of isa/timing.toml from acceptance to the first tile when idle, gemm.write from a tile to
// its write; between stages 2 and 3 stand ProductRegisters - 1 more, for synthesis to move. Throughput: one tile
// (dense), tap or vector of the raster (depthwise) a cycle, no bubble between prepared instructions. Back-pressure:
// none on the memories, which always grant and must keep the data of INP and WGT until the next read; a sum that starts
// from an ACC entry still on its way to be written waits for it (stall_o). Reset: synchronous, active low. Legal: Batch
// >= 1, BlockIn and BlockOut powers of two from 4 on.
module tsr_gemm #(
  parameter int unsigned Batch    = 1,
  parameter int unsigned BlockIn  = 8,
  parameter int unsigned BlockOut = 8,
  parameter int unsigned InpDepth = 16,
  parameter int unsigned WgtDepth = 16,
  parameter int unsigned AccDepth = 16,
  parameter int unsigned ProductRegisters = tsr_isa_pkg::TimingGemmTileProduct
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
  output logic [13:0]                    inp_addr_o,
  input  logic [8*Batch*BlockIn-1:0]     inp_rdata_i,
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
  localparam int unsigned Words = BlockIn / 4;
  localparam int unsigned LineDepth = tsr_isa_pkg::TimingGemmLineColumns;
  localparam int unsigned LineBits = $clog2(LineDepth);
  localparam int unsigned RangeBits = 14 + 1 + 12 + 3 + 1;

  // Preparation: the instruction whose ranges are being found.
  logic prep_valid_q, prep_start_q, prep_move, prep_drop, drained;
  logic [511:0] prep_word_q;
  logic [31:0] prep_pc_q;
  tsr_isa_pkg::gemm_t prep;
  logic unused_prep_gemm, prep_fence, prep_done, prep_fault, inp_done, wgt_done, acc_done;
  logic signed [RangeBits-1:0] inp_lowest, inp_highest, wgt_lowest, wgt_highest, acc_lowest, acc_highest;

  assign prep = prep_word_q;
  assign {unused_prep_gemm, prep_fence} = tsr_isa_pkg::gemm_instruction(prep.header.opcode);

  tsr_range u_inp_range (
    .clk_i, .rst_ni, .start_i(prep_start_q), .addr_i(prep.inp_addr), .extent_i(prep.extent), .stride_i(prep.inp_stride),
    .loops_i(3'd6), .done_o(inp_done), .lowest_o(inp_lowest), .highest_o(inp_highest)
  );
  tsr_range u_wgt_range (
    .clk_i, .rst_ni, .start_i(prep_start_q), .addr_i(prep.wgt_addr), .extent_i(prep.extent), .stride_i(prep.wgt_stride),
    .loops_i(3'd6), .done_o(wgt_done), .lowest_o(wgt_lowest), .highest_o(wgt_highest)
  );
  tsr_range u_acc_range (
    .clk_i, .rst_ni, .start_i(prep_start_q), .addr_i(prep.acc_addr), .extent_i(prep.extent), .stride_i(prep.acc_stride),
    .loops_i(3'd6 - prep.reduce), .done_o(acc_done), .lowest_o(acc_lowest), .highest_o(acc_highest)
  );
  assign prep_done = prep_valid_q && !prep_fence && !prep_start_q && inp_done && wgt_done && acc_done;
  assign prep_fault = inp_lowest[RangeBits-1] || wgt_lowest[RangeBits-1] || acc_lowest[RangeBits-1] ||
      inp_highest >= RangeBits'(InpDepth) || wgt_highest >= RangeBits'(WgtDepth) ||
      acc_highest >= RangeBits'(AccDepth);

  // The form of a depthwise nest, found meanwhile.
  logic form_raster, form_row_skip, form_col_skip;
  logic [2:0] form_outer;
  logic [11:0] form_rows, form_cols;
  logic [13:0] form_row_stride, form_col_stride, form_acc_row_stride, form_acc_col_stride;
  logic [1:0] form_rows_before;
  logic [3:0] form_cols_before;
  logic [15:0] form_enter, form_line_0, form_line_1;

  tsr_window_form #(.LineDepth(LineDepth)) u_form (
    .clk_i, .rst_ni, .start_i(prep_start_q), .depthwise_i(prep.mode == 2'(tsr_isa_pkg::GemmModeDepthwise)),
    .reduce_i(prep.reduce), .extent_i(prep.extent), .inp_stride_i(prep.inp_stride), .wgt_stride_i(prep.wgt_stride),
    .acc_stride_i(prep.acc_stride), .raster_o(form_raster), .outer_o(form_outer), .rows_o(form_rows),
    .cols_o(form_cols), .row_stride_o(form_row_stride), .col_stride_o(form_col_stride),
    .rows_before_o(form_rows_before), .cols_before_o(form_cols_before), .row_skip_o(form_row_skip),
    .col_skip_o(form_col_skip), .acc_row_stride_o(form_acc_row_stride), .acc_col_stride_o(form_acc_col_stride),
    .enter_o(form_enter), .line_0_o(form_line_0), .line_1_o(form_line_1)
  );

  // The instruction that issues tiles, and the nest of its reads.
  logic active_q, advance, stall, last, sum_first, sum_last;
  logic [511:0] word_q;
  logic [31:0] pc_q;
  tsr_isa_pkg::gemm_t gemm;
  tsr_isa_pkg::gemm_extent_t extent_q, index;
  tsr_isa_pkg::gemm_inp_stride_t inp_stride_q;
  tsr_isa_pkg::gemm_wgt_stride_t wgt_stride_q;
  tsr_isa_pkg::gemm_acc_stride_t acc_stride_q;
  logic [2:0] reduce_q;
  logic [13:0] inp_address, wgt_address, acc_address;
  logic [5:0] inner_last;
  logic [3:0] tap_q;

  assign gemm = word_q;
  assign prep_move = prep_done && !prep_fault && (!active_q || (advance && last));
  assign prep_drop = prep_valid_q && drained && (prep_fence || (prep_done && prep_fault));
  assign instr_ready_o = !prep_valid_q || prep_move;

  tsr_nest #(.Operands(3)) u_nest (
    .clk_i, .rst_ni, .load_i(prep_move), .advance_i(advance), .addr_i({prep.acc_addr, prep.wgt_addr, prep.inp_addr}),
    .extent_i(extent_q), .stride_i({acc_stride_q, wgt_stride_q, inp_stride_q}), .reduce_i(reduce_q),
    .addr_o({acc_address, wgt_address, inp_address}), .index_o(index), .inner_last_o(inner_last), .sum_first_o(sum_first), .sum_last_o(sum_last),
    .last_o(last)
  );
  assign advance = active_q && !stall;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      prep_valid_q <= 1'b0;
      prep_start_q <= 1'b0;
      prep_word_q <= '0;
      prep_pc_q <= '0;
      active_q <= 1'b0;
      word_q <= '0;
      pc_q <= '0;
      tap_q <= '0;
      extent_q <= '0;
      inp_stride_q <= '0;
      wgt_stride_q <= '0;
      acc_stride_q <= '0;
      reduce_q <= '0;
    end else begin
      prep_start_q <= 1'b0;
      if (instr_valid_i && instr_ready_o) begin
        prep_valid_q <= 1'b1;
        prep_start_q <= 1'b1;
        prep_word_q <= instr_i;
        prep_pc_q <= instr_pc_i;
      end else if (prep_move || prep_drop) begin
        prep_valid_q <= 1'b0;
      end
      if (prep_move) begin
        active_q <= 1'b1;
        word_q <= prep_word_q;
        pc_q <= prep_pc_q;
        tap_q <= '0;
        extent_q <= prep.extent;
        inp_stride_q <= prep.inp_stride;
        wgt_stride_q <= prep.wgt_stride;
        acc_stride_q <= prep.acc_stride;
        reduce_q <= prep.reduce;
        if (form_raster) begin
          // The raster: the loops kept, then rows and columns. Nothing but INP moves inside.
          for (int unsigned k = 0; k < 4; k++) begin
            if (3'(k) >= form_outer) extent_q.loop[k] <= 12'd1;
          end
          extent_q.loop[4] <= form_rows;
          extent_q.loop[5] <= form_cols;
          inp_stride_q.loop[4] <= form_row_stride;
          inp_stride_q.loop[5] <= form_col_stride;
          for (int unsigned k = 4; k < 6; k++) begin
            wgt_stride_q.loop[k] <= '0;
            acc_stride_q.loop[k] <= '0;
          end
          reduce_q <= 3'd2;
        end
      end else if (advance) begin
        if (last) active_q <= 1'b0;
        tap_q <= (gemm.reduce >= 3'd2 ? inner_last[4] : inner_last[5]) ? 4'd0 : tap_q + 4'd1;
      end
    end
  end

  // In the raster: whether the vector read now completes a window, and where that result goes. `wait` counts the rows
  // and columns that are still missing.
  logic raster_q, row_skip_q, col_skip_q, result;
  logic [1:0] rows_before_q, row_wait_q, row_wait;
  logic [3:0] cols_before_q, col_wait_q;
  logic [13:0] acc_row_stride_q, acc_col_stride_q, acc_row_q, acc_col_q, acc_row, acc_col;
  logic [15:0] enter_q, line_0_q, line_1_q;

  assign row_wait = sum_first ? rows_before_q : row_wait_q;
  assign acc_row = sum_first ? acc_address : acc_row_q;
  assign acc_col = sum_first ? acc_address : acc_col_q;
  assign result = row_wait == 2'd0 && col_wait_q == 4'd0;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      raster_q <= 1'b0;
      row_skip_q <= 1'b0;
      col_skip_q <= 1'b0;
      rows_before_q <= '0;
      cols_before_q <= '0;
      row_wait_q <= '0;
      col_wait_q <= '0;
      acc_row_stride_q <= '0;
      acc_col_stride_q <= '0;
      acc_row_q <= '0;
      acc_col_q <= '0;
      enter_q <= '0;
      line_0_q <= '0;
      line_1_q <= '0;
    end else if (prep_move) begin
      raster_q <= form_raster;
      if (form_raster) begin
        row_skip_q <= form_row_skip;
        col_skip_q <= form_col_skip;
        rows_before_q <= form_rows_before;
        cols_before_q <= form_cols_before;
        col_wait_q <= form_cols_before;
        acc_row_stride_q <= form_acc_row_stride;
        acc_col_stride_q <= form_acc_col_stride;
        enter_q <= form_enter;
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

  // What travels with a tile.
  typedef struct packed {
    logic first;  // of its sum
    logic last;
    logic finish;  // of its instruction
    logic signal;
    logic accumulate;
    logic depthwise;
    logic [4:0] lane;
    logic [13:0] acc;
    logic [31:0] pc;
  } tile_t;
  tile_t tile_0, tile_1_q, tile_2_q, tile_3_q, tile_4_q;
  logic valid_1_q, valid_2_q, valid_3_q, write_q;

  always_comb begin
    tile_0.first = raster_q || sum_first;
    tile_0.last = raster_q || sum_last;
    tile_0.finish = last;
    tile_0.signal = gemm.header.signal;
    tile_0.accumulate = gemm.accumulate;
    tile_0.depthwise = gemm.mode == 2'(tsr_isa_pkg::GemmModeDepthwise);
    tile_0.lane = gemm.lane;
    tile_0.acc = raster_q ? acc_col : acc_address;
    tile_0.pc = pc_q;
  end

  // Stage 1: the operands; WGT is asked. In the raster a vector need not make a result, and the weights stay.
  logic result_1_q, raster_1_q, keep_1_q, wgt_read_1_q, inp_unsigned_1_q, wgt_unsigned_1_q;
  logic [8:0] inp_zero_1_q, wgt_zero_1_q;
  logic [15:0] enter_1_q, line_0_1_q, line_1_1_q;
  logic [13:0] wgt_addr_1_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_1_q <= 1'b0;
      tile_1_q <= '0;
      result_1_q <= 1'b0;
      raster_1_q <= 1'b0;
      keep_1_q <= 1'b0;
      wgt_read_1_q <= 1'b0;
      inp_unsigned_1_q <= 1'b0;
      wgt_unsigned_1_q <= 1'b0;
      inp_zero_1_q <= '0;
      wgt_zero_1_q <= '0;
      enter_1_q <= '0;
      line_0_1_q <= '0;
      line_1_1_q <= '0;
      wgt_addr_1_q <= '0;
    end else if (!stall) begin
      valid_1_q <= active_q;
      if (active_q) begin
        tile_1_q <= tile_0;
        result_1_q <= !raster_q || result;
        raster_1_q <= raster_q;
        keep_1_q <= raster_q && !sum_first;
        wgt_read_1_q <= !raster_q || sum_first;
        inp_unsigned_1_q <= gemm.inp_unsigned;
        wgt_unsigned_1_q <= gemm.wgt_unsigned;
        inp_zero_1_q <= gemm.inp_zero;
        wgt_zero_1_q <= gemm.wgt_zero;
        enter_1_q <= raster_q ? enter_q : 16'd1 << tap_q;
        line_0_1_q <= raster_q ? line_0_q : 16'd0;
        line_1_1_q <= raster_q ? line_1_q : 16'd0;
        wgt_addr_1_q <= wgt_address;
      end
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

  // Stage 2: operands times weights; ACC is asked.
  logic [32*AccLanes*BlockIn-1:0] operands_2;
  logic wgt_unsigned_2_q;
  logic signed [8:0] wgt_zero_2_q;

  tsr_window #(.Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .LineDepth(LineDepth)) u_window (
    .clk_i, .read_i(advance && raster_q), .col_i(LineBits'(index.loop[5])), .step_i(step),
    .depthwise_i(tile_1_q.depthwise), .write_i(raster_1_q), .keep_i(keep_1_q), .lane_i(tile_1_q.lane),
    .vector_i(inp_rdata_i), .unsigned_i(inp_unsigned_1_q), .zero_i(inp_zero_1_q), .enter_i(enter_1_q),
    .line_0_i(line_0_1_q), .line_1_i(line_1_1_q), .operands_o(operands_2)
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_2_q <= 1'b0;
      tile_2_q <= '0;
      wgt_unsigned_2_q <= 1'b0;
      wgt_zero_2_q <= '0;
    end else begin
      valid_2_q <= go_1;
      if (go_1) begin
        tile_2_q <= tile_1_q;
        wgt_unsigned_2_q <= wgt_unsigned_1_q;
        wgt_zero_2_q <= wgt_zero_1_q;
      end
    end
  end

  // Weight (o, k) meets the operand of the same place. Products of four neighbours in WGT are added here. Signed
  // weights are offset by 128: with the top bit flipped all bytes are unsigned and 128 joins the zero point.
  logic [32*AccLanes*Words-1:0] partial_q;
  always_ff @(posedge clk_i) begin
    logic [8*BlockIn*BlockOut-1:0] weights;
    logic [32*AccLanes*Words-1:0] partial;
    logic signed [31:0] operand, weight, zero, product;
    if (valid_2_q) begin
      weights = wgt_rdata_i ^ {BlockIn * BlockOut{!wgt_unsigned_2_q, 7'd0}};
      zero = 32'(wgt_zero_2_q) + (wgt_unsigned_2_q ? 32'sd0 : 32'sd128);
      for (int unsigned b = 0; b < Batch; b++) begin
        for (int unsigned j = 0; j < 4; j++) begin
          for (int unsigned n = 0; n < BlockOut * Words; n++) begin
            operand = $signed({operands_2[32*((j*Batch+b)*BlockOut*Words+n)+:9], 23'd0}) >>> 23;
            weight = $signed({24'd0, weights[32*n+8*j+:8]}) - zero;
            product = operand * weight;
            if (j != 0) product = product + $signed(partial[32*(b*BlockOut*Words+n)+:32]);
            partial[32*(b*BlockOut*Words+n)+:32] = product;
          end
        end
      end
      partial_q <= partial;
    end
  end

  // Registers of stage 2 beyond the first: of the products, and of the tiles beside them. ACC is asked in the last one.
  logic products_valid_q, valid_a, tiles_busy, unused_products_valid, unused_products_busy;
  logic [32*AccLanes*Words-1:0] partial_a;
  tile_t tile_a;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) products_valid_q <= 1'b0;
    else products_valid_q <= valid_2_q;
  end
  tsr_retime #(.Width(32 * AccLanes * Words), .Stages(ProductRegisters - 1)) u_products (
    .clk_i, .rst_ni, .enable_i(1'b1), .valid_i(products_valid_q), .data_i(partial_q), .valid_o(unused_products_valid),
    .data_o(partial_a), .busy_o(unused_products_busy)
  );
  tsr_retime #(.Width($bits(tile_2_q)), .Stages(ProductRegisters - 1)) u_tiles (
    .clk_i, .rst_ni, .enable_i(1'b1), .valid_i(valid_2_q), .data_i(tile_2_q), .valid_o(valid_a), .data_o(tile_a),
    .busy_o(tiles_busy)
  );

  // Stage 3: the sum.
  logic [32*AccLanes-1:0] sum_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_3_q <= 1'b0;
      tile_3_q <= '0;
    end else begin
      valid_3_q <= valid_a;
      if (valid_a) tile_3_q <= tile_a;
    end
  end

  if (ProductRegisters == 1) begin : gen_passed_sum
    assign passed_valid = valid_3_q;
    assign passed_last = tile_3_q.last;
    assign passed_acc = tile_3_q.acc;
  end else begin : gen_passed
    logic last_q;
    logic [13:0] acc_q;
    always_ff @(posedge clk_i) begin
      if (valid_2_q) {last_q, acc_q} <= {tile_2_q.last, tile_2_q.acc};
    end
    assign passed_valid = products_valid_q;
    assign passed_last = last_q;
    assign passed_acc = acc_q;
  end

  always_ff @(posedge clk_i) begin
    logic [32*AccLanes-1:0] sum;
    logic signed [31:0] dot;
    if (valid_3_q) begin
      if (!tile_3_q.first) sum = sum_q;
      else if (tile_3_q.accumulate) sum = acc_rdata_i;
      else sum = '0;
      for (int unsigned l = 0; l < AccLanes; l++) begin
        dot = '0;
        for (int unsigned w = 0; w < Words; w++) dot = dot + $signed(partial_a[32*(l*Words+w)+:32]);
        sum[32*l+:32] = sum[32*l+:32] + dot;
      end
      sum_q <= sum;
    end
  end

  // Stage 4: the write.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_q <= 1'b0;
      tile_4_q <= '0;
    end else begin
      write_q <= valid_3_q && tile_3_q.last;
      if (valid_3_q && tile_3_q.last) tile_4_q <= tile_3_q;
    end
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

  assign drained = !active_q && !valid_1_q && !valid_2_q && !tiles_busy && !valid_3_q &&
      !write_q;
  assign busy_o = prep_valid_q || !drained;
  assign complete_o = (write_q && tile_4_q.finish) || prep_drop;
  assign complete_signal_o = prep_drop ? prep_fence && prep.header.signal : tile_4_q.signal;
  assign complete_fault_o = prep_drop && !prep_fence;
  assign complete_code_o = complete_fault_o ? 3'(tsr_isa_pkg::FaultScratchpadRange) : 3'(tsr_isa_pkg::FaultNone);
  assign complete_pc_o = prep_drop ? prep_pc_q : tile_4_q.pc;
  assign issue_o = advance;
  assign stall_o = stall && active_q;

  logic unused;
  assign unused = &{1'b0, unused_prep_gemm, index, tile_4_q, prep, gemm, inner_last};

endmodule
