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
// others, and never more of them than the nest has taps.
//
// Latency: start_i in cycle t, results from t + 1 on, until the next start. Reset: none but raster_o, which is 0.
module tsr_window_form #(
  parameter int unsigned LineDepth = 512
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        start_i,
  input  logic        depthwise_i,
  input  logic [2:0]  reduce_i,
  input  logic [71:0] extent_i,
  input  logic [83:0] inp_stride_i,
  input  logic [83:0] wgt_stride_i,
  input  logic [83:0] acc_stride_i,
  output logic        raster_o,
  output logic [2:0]  outer_o,       // loops kept
  output logic [11:0] rows_o,        // of the raster
  output logic [11:0] cols_o,
  output logic [13:0] row_stride_o,  // in INP
  output logic [13:0] col_stride_o,
  output logic [1:0]  rows_before_o,  // rows and columns before the first result: kh - 1, kw - 1
  output logic [3:0]  cols_before_o,
  output logic        row_skip_o,     // every other row or column has results
  output logic        col_skip_o,
  output logic [13:0] acc_row_stride_o,
  output logic [13:0] acc_col_stride_o,
  output logic [15:0] enter_o,  // the tap of the newest vector, of the row before, and of that before, as bits
  output logic [15:0] line_0_o,
  output logic [15:0] line_1_o
);

  tsr_isa_pkg::gemm_extent_t extent;
  tsr_isa_pkg::gemm_inp_stride_t inp_stride;
  tsr_isa_pkg::gemm_wgt_stride_t wgt_stride;
  tsr_isa_pkg::gemm_acc_stride_t acc_stride;
  assign extent = extent_i;
  assign inp_stride = inp_stride_i;
  assign wgt_stride = wgt_stride_i;
  assign acc_stride = acc_stride_i;

  logic candidate, x_fixed, y_fixed, col_one, col_two, x_row_one, x_row_two, y_row_one, y_row_two, along, both, fits;
  logic row_two;
  logic [11:0] tap_rows, tap_cols, x_extent, y_extent, results_x, results_y;
  logic [13:0] tap_row_stride, tap_col_stride, x_stride, y_stride, row_loop_stride, x_acc_stride, y_acc_stride;
  logic [13:0] rows, cols;
  logic [3:0] last_0, last_1, last_2;

  function automatic logic twice(input logic [13:0] stride, input logic [13:0] step);
    twice = {stride[13], stride} == {step, 1'b0};
  endfunction

  always_comb begin
    candidate = 1'b0;
    x_fixed = 1'b0;
    y_fixed = 1'b0;
    col_one = 1'b0;
    col_two = 1'b0;
    x_row_one = 1'b0;
    x_row_two = 1'b0;
    y_row_one = 1'b0;
    y_row_two = 1'b0;
    along = 1'b0;
    both = 1'b0;
    fits = 1'b0;
    row_two = 1'b0;
    tap_rows = '0;
    tap_cols = '0;
    x_extent = '0;
    y_extent = '0;
    results_x = '0;
    results_y = '0;
    tap_row_stride = '0;
    tap_col_stride = '0;
    x_stride = '0;
    y_stride = '0;
    row_loop_stride = '0;
    x_acc_stride = '0;
    y_acc_stride = '0;
    rows = '0;
    cols = '0;
    last_0 = '0;
    last_1 = '0;
    last_2 = '0;
    if (start_i) begin
      tap_cols = extent.loop[5];
      tap_col_stride = inp_stride.loop[5];
      if (reduce_i == 3'd2) begin
        tap_rows = extent.loop[4];
        tap_row_stride = inp_stride.loop[4];
        x_extent = extent.loop[3];
        y_extent = extent.loop[2];
        x_stride = inp_stride.loop[3];
        y_stride = inp_stride.loop[2];
        x_acc_stride = acc_stride.loop[3];
        y_acc_stride = acc_stride.loop[2];
        x_fixed = wgt_stride.loop[3] == '0 || x_extent == 12'd1;
        y_fixed = wgt_stride.loop[2] == '0 || y_extent == 12'd1;
      end else begin
        tap_rows = 12'd1;
        x_extent = extent.loop[4];
        y_extent = extent.loop[3];
        x_stride = inp_stride.loop[4];
        y_stride = inp_stride.loop[3];
        x_acc_stride = acc_stride.loop[4];
        y_acc_stride = acc_stride.loop[3];
        x_fixed = wgt_stride.loop[4] == '0 || x_extent == 12'd1;
        y_fixed = wgt_stride.loop[3] == '0 || y_extent == 12'd1;
      end
      candidate = depthwise_i && (reduce_i == 3'd1 || reduce_i == 3'd2) && tap_rows <= 12'd3;

      // The loop around the taps may walk along the row, or else from row to row; the next one from row to row.
      col_one = x_fixed && (x_extent == 12'd1 || tap_cols == 12'd1 || x_stride == tap_col_stride);
      col_two = x_fixed && tap_cols != 12'd1 && twice(x_stride, tap_col_stride);
      x_row_one = x_fixed && (tap_rows == 12'd1 || x_stride == tap_row_stride);
      x_row_two = x_fixed && tap_rows != 12'd1 && twice(x_stride, tap_row_stride);
      y_row_one = y_fixed && (y_extent == 12'd1 || tap_rows == 12'd1 || y_stride == tap_row_stride);
      y_row_two = y_fixed && tap_rows != 12'd1 && twice(y_stride, tap_row_stride);
      along = col_one || col_two;
      both = along && (y_row_one || y_row_two);
      row_loop_stride = along ? y_stride : x_stride;
      row_two = both ? !y_row_one : !along && !x_row_one;
      results_x = along ? x_extent : 12'd1;
      results_y = both ? y_extent : along ? 12'd1 : x_extent;
      cols = (along && !col_one ? {1'b0, results_x - 12'd1, 1'b0} : {2'd0, results_x - 12'd1}) + {2'd0, tap_cols};
      rows = (row_two ? {1'b0, results_y - 12'd1, 1'b0} : {2'd0, results_y - 12'd1}) + {2'd0, tap_rows};
      fits = rows < 14'd4096 && cols < 14'd4096 &&
          (tap_rows == 12'd1 || (cols >= 14'd2 && cols <= 14'(LineDepth)));

      // The last tap of the first, the second and the third row of taps.
      last_0 = tap_cols[3:0] - 4'd1;
      last_1 = last_0 + tap_cols[3:0];
      last_2 = last_1 + tap_cols[3:0];
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      raster_o <= 1'b0;
    end else if (start_i) begin
      raster_o <= candidate && (along || x_row_one || x_row_two) && fits;
      outer_o <= 3'd6 - reduce_i - (both ? 3'd2 : 3'd1);
      rows_o <= rows[11:0];
      cols_o <= cols[11:0];
      row_stride_o <= tap_rows == 12'd1 ? row_loop_stride : tap_row_stride;
      col_stride_o <= along && tap_cols == 12'd1 ? x_stride : tap_col_stride;
      rows_before_o <= tap_rows[1:0] - 2'd1;
      cols_before_o <= tap_cols[3:0] - 4'd1;
      row_skip_o <= row_two;
      col_skip_o <= along && !col_one;
      acc_col_stride_o <= x_acc_stride;
      acc_row_stride_o <= along ? y_acc_stride : x_acc_stride;
      enter_o <= 16'd1 << (tap_rows == 12'd1 ? last_0 : tap_rows == 12'd2 ? last_1 : last_2);
      line_0_o <= tap_rows == 12'd1 ? 16'd0 : 16'd1 << (tap_rows == 12'd2 ? last_0 : last_1);
      line_1_o <= tap_rows == 12'd3 ? 16'd1 << last_0 : 16'd0;
    end
  end

  logic unused;
  assign unused = &{1'b0, extent, inp_stride, wgt_stride, acc_stride};

endmodule
