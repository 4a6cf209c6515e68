// SPDX-License-Identifier: Apache-2.0
// Results of ROW_REDUCE, and the sums that ROW_MAP has beside results. Enters: the lanes' sums or moments once a group
// is walked, or maxima as they come. Leaves: a row's scalars in ACC, written one row after another; or its sum, to be
// read. Method: a small memory keeps a group's results while the next group is walked. A row's result is read into a
// register, from which moments go through tsr_row_digits, where two rows are under way.
//
// drain_i: all bytes are with the lanes; drained_o when the lanes have taken them, then capture_i until captured_o: row
// after row, the lanes' turns in the order of phase_i. Maxima: best_i with scanned_i; room for one more row as long as
// room_o. Latency: two cycles to a write, tsr_row_digits' with moments. Throughput: a row in three cycles.
// Back-pressure: acc_we_o holds until acc_gnt_i; its data stand a cycle before it. Reset: synchronous, active low, to
// nothing kept. Legal: RowLanes a power of two up to 32.
module tsr_row_results #(
  parameter int unsigned RowLanes = 4,
  localparam int unsigned RowBits = $clog2(4 * RowLanes)
) (
  input  logic                   clk_i,
  input  logic                   rst_ni,
  // The instruction, which holds from the cycle before idle_i ends.
  input  logic                   idle_i,
  input  logic                   max_i,
  input  logic                   sum_i,
  input  logic                   moments_i,
  input  logic                   beside_i,    // sums beside results, which are read and not written
  input  logic                   src_unsigned_i,
  input  logic                   centre_i,
  input  logic [12:0]            length_i,
  input  logic [4:0]             shift_i,
  input  logic [47:0]            epsilon_i,
  input  logic [5:0]             offset_i,
  // A group that has been walked: its last row, and whether it is the last group.
  input  logic                   drain_i,
  input  logic                   taken_i,     // all vectors, also those of results
  output logic                   drained_o,
  input  logic                   capture_i,
  output logic                   captured_o,
  input  logic [RowBits-1:0]     rows_i,
  input  logic                   last_group_i,
  input  logic [1:0]             phase_i,
  input  logic [31*RowLanes-1:0] sums_i,
  input  logic [21*RowLanes-1:0] first_sums_i,
  input  logic [28*RowLanes-1:0] squares_i,
  // Maxima: a row begins; its maximum is found.
  input  logic                   begin_i,
  input  logic                   final_i,     // no row begins any more
  output logic                   room_o,
  input  logic                   scanned_i,
  input  logic [7:0]             best_i,
  // Sums to be read beside results: by row. The group's last row.
  input  logic [RowBits-1:0]     row_i,
  output logic [30:0]            sum_o,
  output logic [RowBits-1:0]     rows_o,
  // Writes: of which row.
  output logic [RowBits-1:0]     row_o,
  output logic                   acc_we_o,
  output logic [127:0]           acc_wdata_o,
  input  logic                   acc_gnt_i,
  output logic                   done_o       // with the last write of the instruction
);

  localparam int unsigned Rows = 4 * RowLanes;
  localparam int unsigned LaneBits = RowLanes > 1 ? $clog2(RowLanes) : 1;
  localparam int unsigned Slots = 1 << LaneBits;
  localparam logic [6:0] Stages = 7'd15;  // of the lanes
  logic finished, written, finishing, finish_ends;

  // Draining and capturing: which lane's turn it is. Sums and moments stand side by side, from which one choice takes;
  // only the moments reach beyond 31 bits.
  logic [6:0] wait_q;
  logic finishing_q, finish_last_q;
  logic [LaneBits-1:0] lane;
  logic [1:0] slot;
  logic [RowBits-1:0] capture_row, finish_row_q, finish_rows_q;
  logic [48:0] captured;
  logic [30:0] sums[2 * Slots];
  logic [48:31] squares[Slots];
  for (genvar l = 0; l < Slots; l++) begin : gen_result
    assign sums[l] = sums_i[31*(l%RowLanes)+:31];
    assign {squares[l], sums[Slots+l]} = {squares_i[28*(l%RowLanes)+:28], first_sums_i[21*(l%RowLanes)+:21]};
  end
  assign lane = LaneBits'(wait_q >> 2);
  assign slot = phase_i - 2'd3;
  assign captured = {squares[lane], sums[{!sum_i, lane}]};
  assign capture_row = RowLanes == 1 ? RowBits'(slot) : RowBits'({slot, lane});
  assign drained_o = drain_i && wait_q == Stages && !finishing_q && taken_i;
  assign captured_o = capture_i && wait_q == 7'(4 * RowLanes - 1);
  always_ff @(posedge clk_i) begin
    if (drain_i || capture_i) wait_q <= drained_o ? '0 : drain_i && wait_q == Stages ? wait_q : wait_q + 7'd1;
    else wait_q <= '0;
    if (captured_o) {finish_last_q, finish_rows_q} <= {last_group_i, rows_i};
  end

  // Maxima: rows begun and not written yet, rows kept and not written yet.
  logic [RowBits:0] begun_q, ready_q;
  logic [RowBits-1:0] kept_row_q;
  assign room_o = !begun_q[RowBits];
  always_ff @(posedge clk_i) begin
    if (!rst_ni || !max_i || idle_i) begin
      begun_q <= '0;
      ready_q <= '0;
      kept_row_q <= '0;
    end else begin
      begun_q <= begun_q + (RowBits + 1)'(begin_i) - (RowBits + 1)'(written);
      ready_q <= ready_q + (RowBits + 1)'(scanned_i) - (RowBits + 1)'(written);
      kept_row_q <= kept_row_q + RowBits'(scanned_i);
    end
  end

  logic [48:0] kept[Rows];
  logic [48:0] kept_read, result_q;
  logic [RowBits-1:0] next_row_q;  // whose result is read next
  assign kept_read = kept[beside_i ? row_i : next_row_q];
  assign sum_o = kept_read[30:0];
  assign rows_o = finish_rows_q;
  assign row_o = finish_row_q;
  always_ff @(posedge clk_i) begin
    if (capture_i || scanned_i)
      kept[max_i ? kept_row_q : capture_row] <= max_i ? {40'd0, !src_unsigned_i && best_i[7], best_i} : captured;
  end

  // A row after the other. fresh_q: its result is read. Of moments the first one is finished when the second one is
  // read, as primed_q says, so that a turn without a write stands before a group's writes.
  logic fresh_q, started_q, primed_q, ready, turned, digits_done;
  logic shown_q;  // ready since a cycle ago
  logic [20:0] first_sum;
  logic [16:0] root;
  logic [4:0] root_exponent;
  tsr_row_digits u_digits (
    .clk_i, .rst_ni, .start_i(finishing && moments_i && fresh_q), .turn_i(turned), .sum_i(result_q[20:0]),
    .squares_i(result_q[48:21]), .length_i, .shift_i, .epsilon_i, .offset_i, .done_o(digits_done), .sum_o(first_sum),
    .root_o(root), .exponent_o(root_exponent)
  );
  assign finishing = max_i ? ready_q != '0 : finishing_q;
  assign finish_ends = written && finish_row_q == finish_rows_q && !max_i;
  assign ready = finishing && !fresh_q && (moments_i ? digits_done : !started_q);
  assign finished = primed_q || !moments_i;
  assign acc_we_o = shown_q && finished;
  assign written = acc_we_o && acc_gnt_i;
  assign turned = shown_q && (!finished || acc_gnt_i);
  assign done_o = max_i ? written && begun_q == (RowBits + 1)'(1) && final_i : finish_ends && finish_last_q;
  always_comb begin
    acc_wdata_o = {96'd0, {23{result_q[8]}}, result_q[8:0]};
    if (sum_i) acc_wdata_o = {64'd0, 1'b0, result_q[30:0], 32'd0};
    if (moments_i) begin
      acc_wdata_o = {19'd0, length_i, 27'd0, root_exponent, 15'd0, root, {11{first_sum[20]}}, first_sum};
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      finishing_q <= 1'b0;
      shown_q <= 1'b0;
    end else begin
      finishing_q <= (captured_o && !beside_i) || (finishing_q && !finish_ends);
      shown_q <= ready && !turned;
    end
    fresh_q <= !finishing || turned;
    started_q <= finishing && fresh_q;
    primed_q <= finishing && !finish_ends && (primed_q || turned);
    if (idle_i || finish_ends) finish_row_q <= '0;
    else if (written) finish_row_q <= finish_row_q + 1'b1;
    if (idle_i || finish_ends) next_row_q <= '0;
    else if (finishing && fresh_q) next_row_q <= next_row_q + 1'b1;
    if (finishing && fresh_q) begin
      result_q <= kept_read;
      if (moments_i && !centre_i) result_q[20:0] <= '0;
    end
  end

endmodule
