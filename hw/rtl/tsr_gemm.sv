// SPDX-License-Identifier: Apache-2.0
// The matrix engine: multiply-accumulate over a nest of six loops (isa/semantics.md, GEMM). Enters: instructions, INP
// and WGT entries, ACC entries when sums accumulate. Leaves: ACC entries, completions. Method: a preparation register
// in which the ranges are checked and the form is found while the previous instruction runs; then a pipeline of four
// stages: 0 counts and asks for INP and WGT, 1 multiplies and adds over the block and asks for ACC, 2 adds to the sum,
// 3 writes. Every multiplier has a weight of its own, byte k of row o, and takes the input k of the row (dense) or the
// input of lane o that meets tap k (depthwise, tsr_window). A depthwise nest in raster form reads each input vector
// once and makes a result whenever it completes a window; any other takes one tap a cycle.
//
// Latency: 7 cycles from acceptance to the first tile when idle, 3 from a tile to its write. Throughput: one tile
// (dense), tap or vector of the raster (depthwise) a cycle, no bubble between prepared instructions. Back-pressure:
// none on the memories, which always grant; a sum that starts from an ACC entry still on its way to be written waits
// for it (stall_o). Reset: synchronous, active low. Legal: Batch >= 1, BlockIn and BlockOut powers of two from 4 on.
module tsr_gemm #(
  parameter int unsigned Batch    = 1,
  parameter int unsigned BlockIn  = 8,
  parameter int unsigned BlockOut = 8,
  parameter int unsigned InpDepth = 16,
  parameter int unsigned WgtDepth = 16,
  parameter int unsigned AccDepth = 16
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
  localparam int unsigned Taps = BlockIn < 16 ? BlockIn : 16;
  localparam int unsigned LineDepth = 512;
  localparam int unsigned LineBits = $clog2(LineDepth);
  localparam int unsigned RangeBits = 14 + 1 + 12 + 3 + 1;

  // Preparation: the instruction whose ranges are being found.
  logic prep_valid_q, prep_start_q, prep_move, prep_drop, drained;
  logic [511:0] prep_word_q;
  logic [31:0] prep_pc_q;
  tsr_isa_pkg::gemm_t prep;
  logic prep_fence, prep_done, prep_fault, inp_done, wgt_done, acc_done;
  logic signed [RangeBits-1:0] inp_lowest, inp_highest, wgt_lowest, wgt_highest, acc_lowest, acc_highest;

  assign prep = prep_word_q;
  assign prep_fence = prep_word_q[5:0] == 6'(tsr_isa_pkg::OpcodeFence);

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
  logic [15:0] form_enter, form_line_0, form_line_1, form_shift;

  tsr_window_form #(.LineDepth(LineDepth)) u_form (
    .clk_i, .rst_ni, .start_i(prep_start_q), .depthwise_i(prep.mode == 2'(tsr_isa_pkg::GemmModeDepthwise)),
    .reduce_i(prep.reduce), .extent_i(prep.extent), .inp_stride_i(prep.inp_stride), .wgt_stride_i(prep.wgt_stride),
    .acc_stride_i(prep.acc_stride), .raster_o(form_raster), .outer_o(form_outer), .rows_o(form_rows),
    .cols_o(form_cols), .row_stride_o(form_row_stride), .col_stride_o(form_col_stride),
    .rows_before_o(form_rows_before), .cols_before_o(form_cols_before), .row_skip_o(form_row_skip),
    .col_skip_o(form_col_skip), .acc_row_stride_o(form_acc_row_stride), .acc_col_stride_o(form_acc_col_stride),
    .enter_o(form_enter), .line_0_o(form_line_0), .line_1_o(form_line_1), .shift_o(form_shift)
  );

  // The instruction that issues tiles, and the nest of its reads.
  logic active_q, advance, stall, last, sum_first, sum_last;
  logic [511:0] word_q;
  logic [31:0] pc_q;
  tsr_isa_pkg::gemm_t gemm;
  logic [71:0] extent_q, index;
  logic [83:0] inp_stride_q, wgt_stride_q, acc_stride_q;
  logic [2:0] reduce_q;
  logic [41:0] address;
  logic [5:0] inner_last;
  logic [3:0] tap_q;

  assign gemm = word_q;
  assign prep_move = prep_done && !prep_fault && (!active_q || (advance && last));
  assign prep_drop = prep_valid_q && drained && (prep_fence || (prep_done && prep_fault));
  assign instr_ready_o = !prep_valid_q || prep_move;

  tsr_nest #(.Operands(3)) u_nest (
    .clk_i, .rst_ni, .load_i(prep_move), .advance_i(advance), .addr_i({prep.acc_addr, prep.wgt_addr, prep.inp_addr}),
    .extent_i(extent_q), .stride_i({acc_stride_q, wgt_stride_q, inp_stride_q}), .reduce_i(reduce_q),
    .addr_o(address), .index_o(index), .inner_last_o(inner_last), .sum_first_o(sum_first), .sum_last_o(sum_last),
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
            if (3'(k) >= form_outer) extent_q[12*k+:12] <= 12'd1;
          end
          extent_q[48+:24] <= {form_cols, form_rows};
          inp_stride_q[56+:28] <= {form_col_stride, form_row_stride};
          wgt_stride_q[56+:28] <= '0;
          acc_stride_q[56+:28] <= '0;
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
  logic [15:0] enter_q, line_0_q, line_1_q, shift_q;

  assign row_wait = sum_first ? rows_before_q : row_wait_q;
  assign acc_row = sum_first ? address[41:28] : acc_row_q;
  assign acc_col = sum_first ? address[41:28] : acc_col_q;
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
      shift_q <= '0;
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
        shift_q <= form_shift;
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

  // Stage 1: the block's products. What belongs to the instruction travels with the tile.
  logic valid_1_q, result_1_q, first_1_q, last_1_q, end_1_q, signal_1_q, accumulate_1_q, depthwise_1_q, raster_1_q;
  logic inp_unsigned_1_q, wgt_unsigned_1_q;
  logic signed [8:0] inp_zero_1_q, wgt_zero_1_q;
  logic [4:0] lane_1_q;
  logic [15:0] enter_1_q;
  logic [13:0] acc_1_q;
  logic [31:0] pc_1_q;
  logic [15:0] line_0_1_q, line_1_1_q, shift_1_q;
  logic go_1, step;
  logic [32*AccLanes-1:0] product;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_1_q <= 1'b0;
      result_1_q <= 1'b0;
      raster_1_q <= 1'b0;
      first_1_q <= 1'b0;
      last_1_q <= 1'b0;
      end_1_q <= 1'b0;
      signal_1_q <= 1'b0;
      accumulate_1_q <= 1'b0;
      depthwise_1_q <= 1'b0;
      inp_unsigned_1_q <= 1'b0;
      wgt_unsigned_1_q <= 1'b0;
      inp_zero_1_q <= '0;
      wgt_zero_1_q <= '0;
      lane_1_q <= '0;
      enter_1_q <= '0;
      line_0_1_q <= '0;
      line_1_1_q <= '0;
      shift_1_q <= '0;
      acc_1_q <= '0;
      pc_1_q <= '0;
    end else if (!stall) begin
      valid_1_q <= active_q;
      if (active_q) begin
        result_1_q <= !raster_q || result;
        raster_1_q <= raster_q;
        first_1_q <= raster_q || sum_first;
        last_1_q <= raster_q || sum_last;
        end_1_q <= last;
        signal_1_q <= gemm.header[6];
        accumulate_1_q <= gemm.accumulate;
        depthwise_1_q <= gemm.mode == 2'(tsr_isa_pkg::GemmModeDepthwise);
        inp_unsigned_1_q <= gemm.inp_unsigned;
        wgt_unsigned_1_q <= gemm.wgt_unsigned;
        inp_zero_1_q <= gemm.inp_zero;
        wgt_zero_1_q <= gemm.wgt_zero;
        lane_1_q <= gemm.lane;
        enter_1_q <= raster_q ? enter_q : 16'd1 << tap_q;
        line_0_1_q <= line_0_q;
        line_1_1_q <= line_1_q;
        shift_1_q <= shift_q;
        acc_1_q <= raster_q ? acc_col : address[41:28];
        pc_1_q <= pc_q;
      end
    end
  end

  // Depthwise: output lane o of the block meets input lane o modulo Lanes of the group.
  logic [8*Batch*Lanes-1:0] vector;
  logic [32*Batch*Lanes*Taps-1:0] window;

  always_comb begin
    vector = 'x;
    if (step) begin
      for (int unsigned b = 0; b < Batch; b++) begin
        vector[8*b*Lanes+:8*Lanes] =
            (8 * Lanes)'(inp_rdata_i[8*b*BlockIn+:8*BlockIn] >> (BlockIn > BlockOut ? 8 * Lanes * 32'(lane_1_q) : 0));
      end
    end
  end

  tsr_window #(.Batch(Batch), .Lanes(Lanes), .Taps(Taps), .LineDepth(LineDepth)) u_window (
    .clk_i, .read_i(advance && raster_q), .col_i(index[60+:LineBits]), .step_i(step), .write_i(raster_1_q),
    .vector_i(vector), .unsigned_i(inp_unsigned_1_q), .zero_i(inp_zero_1_q), .enter_i(enter_1_q),
    .line_0_i(raster_1_q ? line_0_1_q : 16'd0), .line_1_i(raster_1_q ? line_1_1_q : 16'd0),
    .shift_i(raster_1_q ? shift_1_q : 16'd0), .operands_o(window)
  );

  // The operands of all multipliers: of output o the differences of the row, or those of its lane's taps. Then a dot
  // product with the differences of its weights.
  always_comb begin
    logic [8*BlockIn-1:0] row;
    logic [9*BlockIn-1:0] difference;
    logic signed [8:0] operand, weight;
    logic [31:0] dot;
    product = 'x;
    row = 'x;
    difference = 'x;
    operand = 'x;
    weight = 'x;
    dot = 'x;
    if (go_1) begin
      for (int unsigned b = 0; b < Batch; b++) begin
        row = inp_rdata_i[8*b*BlockIn+:8*BlockIn];
        for (int unsigned k = 0; k < BlockIn; k++) begin
          difference[9*k+:9] = {!inp_unsigned_1_q && row[8*k+7], row[8*k+:8]} - inp_zero_1_q;
        end
        for (int unsigned o = 0; o < BlockOut; o++) begin
          dot = '0;
          for (int unsigned k = 0; k < BlockIn; k++) begin
            operand = difference[9*k+:9];
            if (depthwise_1_q) begin
              operand = '0;
              if (k < Taps) begin
                operand = window[32*(((k%4*Batch+b)*Lanes+o%Lanes)*Taps/4+k%Taps/4)+:9];
              end
            end
            weight = {!wgt_unsigned_1_q && wgt_rdata_i[8*(o*BlockIn+k)+7], wgt_rdata_i[8*(o*BlockIn+k)+:8]} -
                wgt_zero_1_q;
            dot = dot + 32'(operand) * 32'(weight);
          end
          product[32*(b*BlockOut+o)+:32] = dot;
        end
      end
    end
  end

  // Stage 2: the sum.
  logic valid_2_q, first_2_q, last_2_q, end_2_q, signal_2_q, accumulate_2_q, depthwise_2_q;
  logic [4:0] lane_2_q;
  logic [13:0] acc_2_q;
  logic [31:0] pc_2_q;
  logic [32*AccLanes-1:0] product_q, sum_q, sum_d;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_2_q <= 1'b0;
      first_2_q <= 1'b0;
      last_2_q <= 1'b0;
      end_2_q <= 1'b0;
      signal_2_q <= 1'b0;
      accumulate_2_q <= 1'b0;
      depthwise_2_q <= 1'b0;
      lane_2_q <= '0;
      acc_2_q <= '0;
      pc_2_q <= '0;
    end else begin
      valid_2_q <= go_1;
      if (go_1) begin
        first_2_q <= first_1_q;
        last_2_q <= last_1_q;
        end_2_q <= end_1_q;
        signal_2_q <= signal_1_q;
        accumulate_2_q <= accumulate_1_q;
        depthwise_2_q <= depthwise_1_q;
        lane_2_q <= lane_1_q;
        acc_2_q <= acc_1_q;
        pc_2_q <= pc_1_q;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (go_1) product_q <= product;
  end

  always_comb begin
    sum_d = 'x;
    if (valid_2_q) begin
      if (!first_2_q) begin
        for (int unsigned l = 0; l < AccLanes; l++) sum_d[32*l+:32] = sum_q[32*l+:32] + product_q[32*l+:32];
      end else if (accumulate_2_q) begin
        for (int unsigned l = 0; l < AccLanes; l++) sum_d[32*l+:32] = acc_rdata_i[32*l+:32] + product_q[32*l+:32];
      end else begin
        sum_d = product_q;
      end
    end
  end

  // Stage 3: the write.
  logic write_q, end_3_q, signal_3_q, depthwise_3_q;
  logic [4:0] lane_3_q;
  logic [13:0] acc_3_q;
  logic [31:0] pc_3_q;

  always_ff @(posedge clk_i) begin
    if (valid_2_q) sum_q <= sum_d;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_q <= 1'b0;
      end_3_q <= 1'b0;
      signal_3_q <= 1'b0;
      depthwise_3_q <= 1'b0;
      lane_3_q <= '0;
      acc_3_q <= '0;
      pc_3_q <= '0;
    end else begin
      write_q <= valid_2_q && last_2_q;
      if (valid_2_q && last_2_q) begin
        end_3_q <= end_2_q;
        signal_3_q <= signal_2_q;
        depthwise_3_q <= depthwise_2_q;
        lane_3_q <= lane_2_q;
        acc_3_q <= acc_2_q;
        pc_3_q <= pc_2_q;
      end
    end
  end

  // A sum that starts from ACC must not pass a write of its entry: at the read only stages 2 and 3 can hold one.
  logic reads_acc;
  assign reads_acc = valid_1_q && result_1_q && first_1_q && accumulate_1_q;
  assign stall = reads_acc && ((valid_2_q && last_2_q && acc_2_q == acc_1_q) || (write_q && acc_3_q == acc_1_q));
  assign go_1 = valid_1_q && result_1_q && !stall;
  assign step = valid_1_q && depthwise_1_q && !stall;

  assign inp_req_o = advance;
  assign inp_addr_o = address[13:0];
  assign wgt_req_o = advance && (!raster_q || sum_first);
  assign wgt_addr_o = address[27:14];
  assign acc_req_o = reads_acc && !stall;
  assign acc_addr_o = acc_1_q;
  assign acc_we_o = write_q;
  assign acc_waddr_o = acc_3_q;
  assign acc_wdata_o = sum_q;

  always_comb begin
    acc_wbe_o = '1;
    if (depthwise_3_q && BlockOut > BlockIn) begin
      for (int unsigned l = 0; l < AccLanes; l++) begin
        acc_wbe_o[4*l+:4] = {4{32'(lane_3_q) == (l % BlockOut) / Lanes}};
      end
    end
  end

  assign drained = !active_q && !valid_1_q && !valid_2_q && !write_q;
  assign busy_o = prep_valid_q || !drained;
  assign complete_o = (write_q && end_3_q) || prep_drop;
  assign complete_signal_o = prep_drop ? prep_fence && prep_word_q[6] : signal_3_q;
  assign complete_fault_o = prep_drop && !prep_fence;
  assign complete_code_o = complete_fault_o ? 3'(tsr_isa_pkg::FaultScratchpadRange) : 3'(tsr_isa_pkg::FaultNone);
  assign complete_pc_o = prep_drop ? prep_pc_q : pc_3_q;
  assign issue_o = advance;
  assign stall_o = stall && active_q;

  logic unused;
  assign unused = &{1'b0, index, prep, gemm, inner_last};

endmodule
