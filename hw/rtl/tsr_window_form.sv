// SPDX-License-Identifier: Apache-2.0
// Recognises a depthwise nest in raster form, for which every input vector needs to be read only once (tsr_window).
// Enters: the loops of a GEMM instruction. Leaves: whether it has the form, and then the nest of reads: `outer` loops
// kept as they are, then rows of columns; the steps of the result's address; where the vectors enter the taps.
//
// The form: one or two reduction loops, kh <= 3 rows of kw columns of taps, with INP strides R and P. The loop around
// them walks results along the row: its WGT stride is 0 and its INP stride P or 2 P; the next one walks rows of results
// with R or 2 R. A stride of 2 needs at least two taps that way, so that no vector is read in vain; with one tap that
// way any stride does and becomes the raster's own. A loop of extent 1 always fits. If only one of the two loops fits,
// the other way has a single result. With kh > 1 a row of the raster holds 2 to LineDepth vectors. Every other nest is
// not in raster form. Each vector of the raster belongs to a tap, so that the raster reads the nest's entries and no
// others, and never more of them than the nest has taps. With RasterPairs a window of three columns, one entry apart,
// takes two vectors a step in some rows (isa/timing.md): rows then have steps of their own. With RasterPairs = 2 a window
// of three by three with a stride of 2 takes those of two rows, where they stand in four memories.
//
// Latency: start_i in cycle t, results from t + 3 on, until the next start; operands must stay until then. Reset: none
// but raster_o, which is 0. Timing: a stage compares strides, one picks among the results and finds the raster's size,
// and one compares that.
module tsr_window_form #(
  parameter int unsigned LineDepth   = 512,
  parameter int unsigned Taps        = 16,
  parameter int unsigned RasterPairs = 0
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        start_i,
  input  logic        depthwise_i,
  input  logic [2:0]  reduce_i,
  input  logic [71:0] extent_i,
  input  logic        inp_odd_i,       // the first address of INP
  input  logic [83:0] inp_stride_i,
  input  logic [83:0] wgt_stride_i,
  input  logic [83:0] acc_stride_i,
  output logic        raster_o,
  output logic [2:0]  outer_o,       // loops kept
  output logic [11:0] rows_o,        // of the raster
  output logic [11:0] cols_o,        // its columns, or the steps of its first row where vectors enter in pairs
  output logic [13:0] row_stride_o,  // in INP
  output logic [13:0] col_stride_o,
  output logic [1:0]  rows_before_o,  // rows and columns before the first result: kh - 1, kw - 1
  output logic [3:0]  cols_before_o,
  output logic        pairs_o,        // vectors enter in pairs
  output logic        far_o,          // and every other one makes a result
  output logic        row_pairs_o,    // and those of the row above enter with them, behind the first row
  output logic [13:0] above_o,        // entries from there to a row
  output logic [11:0] early_cols_o,   // steps of a row in front of the first results, and of one with results
  output logic [11:0] late_cols_o,
  output logic        row_skip_o,     // every other row or column has results
  output logic        col_skip_o,
  output logic [13:0] acc_row_stride_o,
  output logic [13:0] acc_col_stride_o,
  output logic [3:0]  last_tap_o,  // of any depthwise nest: its taps less one
  output logic [Taps-1:0] taps_o,      // the taps, the last one first, as bits
  output logic [Taps-1:0] line_0_o,    // the tap of the row before, and of that before
  output logic [Taps-1:0] line_1_o
);

  tsr_isa_pkg::gemm_extent_t extent;
  tsr_isa_pkg::gemm_inp_stride_t inp_stride;
  tsr_isa_pkg::gemm_wgt_stride_t wgt_stride;
  tsr_isa_pkg::gemm_acc_stride_t acc_stride;
  assign extent = extent_i;
  assign inp_stride = inp_stride_i;
  assign wgt_stride = wgt_stride_i;
  assign acc_stride = acc_stride_i;

  // The loops that count: of two reduction loops the outer one walks rows of taps.
  logic start_1_q, start_2_q, two;
  logic [11:0] tap_rows, tap_cols, x_extent, y_extent;
  logic [13:0] tap_row_stride, tap_col_stride, x_stride, y_stride, x_acc_stride, y_acc_stride;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) {start_2_q, start_1_q} <= 2'b00;
    else {start_2_q, start_1_q} <= {start_1_q, start_i};
  end
  assign two = reduce_i != 3'd1;
  assign tap_cols = extent.loop[5];
  assign tap_col_stride = inp_stride.loop[5];
  assign tap_rows = two ? extent.loop[4] : 12'd1;
  assign tap_row_stride = two ? inp_stride.loop[4] : '0;
  assign x_extent = two ? extent.loop[3] : extent.loop[4];
  assign y_extent = two ? extent.loop[2] : extent.loop[3];
  assign x_stride = two ? inp_stride.loop[3] : inp_stride.loop[4];
  assign y_stride = two ? inp_stride.loop[2] : inp_stride.loop[3];
  assign x_acc_stride = two ? acc_stride.loop[3] : acc_stride.loop[4];
  assign y_acc_stride = two ? acc_stride.loop[2] : acc_stride.loop[3];

  function automatic logic twice(input logic [13:0] stride, input logic [13:0] step);
    twice = {stride[13], stride} == {step, 1'b0};
  endfunction

  // The loop around the taps may walk along the row, or else from row to row; the next one from row to row.
  logic x_fixed, y_fixed, col_one, col_two, x_row_one, x_row_two, y_row_one, y_row_two;
  logic two_rows, two_rows_q;
  logic candidate_q, pairs_q, col_one_q, col_two_q, x_row_one_q, x_row_two_q, y_row_one_q, y_row_two_q;
  always_comb begin
    x_fixed = 1'b0;
    y_fixed = 1'b0;
    col_one = 1'b0;
    col_two = 1'b0;
    x_row_one = 1'b0;
    x_row_two = 1'b0;
    y_row_one = 1'b0;
    y_row_two = 1'b0;
    if (start_i) begin
      x_fixed = (two ? wgt_stride.loop[3] : wgt_stride.loop[4]) == '0 || x_extent == 12'd1;
      y_fixed = (two ? wgt_stride.loop[2] : wgt_stride.loop[3]) == '0 || y_extent == 12'd1;
      col_one = x_fixed && (x_extent == 12'd1 || tap_cols == 12'd1 || x_stride == tap_col_stride);
      col_two = x_fixed && tap_cols != 12'd1 && twice(x_stride, tap_col_stride);
      x_row_one = x_fixed && (tap_rows == 12'd1 || x_stride == tap_row_stride);
      x_row_two = x_fixed && tap_rows != 12'd1 && twice(x_stride, tap_row_stride);
      y_row_one = y_fixed && (y_extent == 12'd1 || tap_rows == 12'd1 || y_stride == tap_row_stride);
      y_row_two = y_fixed && tap_rows != 12'd1 && twice(y_stride, tap_row_stride);
    end
  end
  assign two_rows = RasterPairs == 2 && two && tap_rows == 12'd3 && tap_row_stride[1:0] == 2'd2 && inp_odd_i &&
      !inp_stride_i[0] && !inp_stride_i[tsr_isa_pkg::GemmInpAddrWidth];
  always_ff @(posedge clk_i) begin
    if (start_i) begin
      pairs_q <= RasterPairs != 0 && tap_cols == 12'(tsr_isa_pkg::TimingGemmPairColumns) && tap_col_stride == 14'd1;
      two_rows_q <= two_rows;
      candidate_q <= depthwise_i && (reduce_i == 3'd1 || reduce_i == 3'd2) && tap_rows <= 12'd3;
      col_one_q <= col_one;
      col_two_q <= col_two;
      x_row_one_q <= x_row_one;
      x_row_two_q <= x_row_two;
      y_row_one_q <= y_row_one;
      y_row_two_q <= y_row_two;
    end
  end

  // What the raster is, if it is one.
  logic along, both, row_two, col_two_only, row_pairs;
  logic [11:0] steps_x, steps_y;  // results less one
  logic [3:0] last_0, last_1, last_2;
  logic [7:0] taps;
  logic raster_q;
  logic [13:0] rows_q, cols_q;
  always_comb begin
    along = 1'b0;
    both = 1'b0;
    row_two = 1'b0;
    col_two_only = 1'b0;
    row_pairs = 1'b0;
    steps_x = '0;
    steps_y = '0;
    last_0 = '0;
    last_1 = '0;
    last_2 = '0;
    taps = '0;
    if (start_1_q) begin
      along = col_one_q || col_two_q;
      both = along && (y_row_one_q || y_row_two_q);
      row_two = both ? !y_row_one_q : !along && !x_row_one_q;
      col_two_only = along && !col_one_q;
      row_pairs = two_rows_q && pairs_q && both && row_two && col_two_only;
      steps_x = along ? x_extent - 12'd1 : 12'd0;
      steps_y = both ? y_extent - 12'd1 : along ? 12'd0 : x_extent - 12'd1;
      // The last tap of the first, the second and the third row of taps.
      last_0 = tap_cols[3:0] - 4'd1;
      last_1 = last_0 + tap_cols[3:0];
      last_2 = last_1 + tap_cols[3:0];
      // Sixteen taps less one are fifteen, however many bits the product has.
      taps = {4'd0, tap_cols[3:0]} * {4'd0, tap_rows[3:0]};
    end
  end
  always_ff @(posedge clk_i) begin
    if (start_1_q) begin
      raster_q <= candidate_q && (along || x_row_one_q || x_row_two_q);
      rows_q <= (row_two && !row_pairs ? {1'b0, steps_y, 1'b0} : {2'd0, steps_y}) + (row_pairs ? 14'd2 : {2'd0, tap_rows});
      cols_q <= (col_two_only ? {1'b0, steps_x, 1'b0} : {2'd0, steps_x}) + {2'd0, tap_cols};
      outer_o <= 3'd6 - reduce_i - (both ? 3'd2 : 3'd1);
      row_stride_o <= row_pairs ? {tap_row_stride[12:0], 1'b0} : tap_rows == 12'd1 ? (along ? y_stride : x_stride) : tap_row_stride;
      col_stride_o <= pairs_q ? (col_two_only || tap_rows != 12'd1 ? 14'd2 : 14'd1) :
                      along && tap_cols == 12'd1 ? x_stride : tap_col_stride;
      rows_before_o <= row_pairs ? 2'd1 : tap_rows[1:0] - 2'd1;
      row_pairs_o <= row_pairs;
      above_o <= tap_row_stride;
      cols_before_o <= pairs_q ? 4'd1 : last_0;
      pairs_o <= pairs_q;
      far_o <= pairs_q && col_two_only;
      late_cols_o <= steps_x + 12'd2;
      row_skip_o <= row_two && !row_pairs;
      col_skip_o <= col_two_only && !pairs_q;
      acc_col_stride_o <= x_acc_stride;
      acc_row_stride_o <= along ? y_acc_stride : x_acc_stride;
      last_tap_o <= taps[3:0] - 4'd1;
      taps_o <= Taps'(16'hffff >> ~(tap_rows == 12'd1 ? last_0 : tap_rows == 12'd2 ? last_1 : last_2));
      line_0_o <= tap_rows == 12'd1 ? '0 : Taps'(1) << tap_cols[3:0];
      line_1_o <= tap_rows == 12'd3 ? Taps'(1) << {tap_cols[2:0], 1'b0} : '0;
    end
  end
  assign rows_o = rows_q[11:0];

  // In pairs: a row has a step for each result and one in front of them. In the first rows nothing is complete yet, so
  // all of their vectors enter in pairs.
  logic [12:0] halved;
  assign halved = 13'(cols_q) + 13'd1;
  always_ff @(posedge clk_i) begin
    if (start_2_q) begin
      early_cols_o <= far_o ? late_cols_o : halved[12:1];
      cols_o <= !pairs_o ? cols_q[11:0] : far_o || rows_before_o == 2'd0 ? late_cols_o : halved[12:1];
    end
  end

  logic fits;
  assign fits = rows_q < 14'd4096 && cols_q < 14'd4096 &&
      (tap_rows == 12'd1 || (cols_q >= 14'd2 && cols_q <= 14'(LineDepth)));
  always_ff @(posedge clk_i) begin
    if (!rst_ni) raster_o <= 1'b0;
    else if (start_2_q) raster_o <= raster_q && fits;
  end

  logic unused;
  assign unused = &{1'b0, extent, inp_stride, wgt_stride, acc_stride, taps, halved};

endmodule
