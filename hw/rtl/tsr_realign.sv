// SPDX-License-Identifier: Apache-2.0
// Moves runs of bytes from one alignment to another. Enters: for each run the offset of its first byte in the first
// source beat and in the first target group, and its bytes; the source beats in order. Leaves: target groups with byte
// enables. Two neighbouring beats make one group; a run whose source offset exceeds its target offset first fills the
// register of the older beat. A padding run takes no beats and repeats one byte.
//
// Latency: a run taken in cycle t offers its first group in t + 1 (t + 2 when the register must be filled), provided
// the beat is there. Throughput: one group a cycle; the next run is taken with the last group of the previous one.
// Back-pressure: group_ready_i; beats are taken only as groups need them. Reset: synchronous, active low. Legal:
// AxiBytes a power of two, 4 to 64.
module tsr_realign #(
  parameter int unsigned AxiBytes = 8,
  localparam int unsigned OffsetBits = $clog2(AxiBytes)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  run_valid_i,
  output logic                  run_ready_o,
  input  logic [OffsetBits-1:0] run_from_i,
  input  logic [OffsetBits-1:0] run_to_i,
  input  logic [21:0]           run_bytes_i,   // at least 1
  input  logic                  run_pad_i,
  input  logic [7:0]            run_pad_value_i,
  input  logic                  beat_valid_i,
  output logic                  beat_ready_o,
  input  logic [8*AxiBytes-1:0] beat_data_i,
  output logic                  group_valid_o,
  input  logic                  group_ready_i,
  output logic [8*AxiBytes-1:0] group_data_o,
  output logic [AxiBytes-1:0]   group_be_o,
  output logic                  group_last_o,  // of its run
  output logic                  busy_o,
  output logic                  starved_o      // a beat is needed and absent
);

  logic pad_q, first_q, prime_q;
  logic [7:0] pad_value_q;
  logic [OffsetBits-1:0] shift_q;   // (from - to) modulo AxiBytes
  logic [OffsetBits-1:0] first_lane_q, last_lane_q;
  logic [21:0] beats_q, groups_q;   // left
  logic [8*AxiBytes-1:0] older_q;

  logic needs_beat, group_fire, beat_fire, take;
  assign needs_beat = beats_q != '0;
  assign busy_o = groups_q != '0;
  assign group_valid_o = busy_o && !prime_q && (!needs_beat || beat_valid_i);
  assign group_last_o = groups_q == 22'd1;
  assign group_fire = group_valid_o && group_ready_i;
  assign beat_ready_o = needs_beat && (prime_q || group_ready_i);
  assign beat_fire = beat_ready_o && beat_valid_i;
  assign starved_o = busy_o && needs_beat && !beat_valid_i;
  assign run_ready_o = !busy_o || (group_fire && group_last_o);
  assign take = run_valid_i && run_ready_o;

  logic [16*AxiBytes-1:0] pair;
  assign pair = {beat_data_i, older_q};
  always_comb begin
    group_data_o = '0;
    group_be_o = '0;
    if (busy_o) begin
      if (pad_q) group_data_o = {AxiBytes{pad_value_q}};
      else if (shift_q == '0) group_data_o = beat_data_i;
      else group_data_o = pair[8*shift_q+:8*AxiBytes];
      group_be_o = '1;
      if (first_q) group_be_o = group_be_o & ({AxiBytes{1'b1}} << first_lane_q);
      if (group_last_o) group_be_o = group_be_o & ({AxiBytes{1'b1}} >> (OffsetBits'(AxiBytes - 1) - last_lane_q));
    end
  end

  logic [22:0] beat_span, group_span;
  assign beat_span = {1'b0, run_bytes_i} + 23'(run_from_i) + 23'(AxiBytes - 1);
  assign group_span = {1'b0, run_bytes_i} + 23'(run_to_i) + 23'(AxiBytes - 1);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      pad_q <= 1'b0;
      first_q <= 1'b0;
      prime_q <= 1'b0;
      pad_value_q <= '0;
      shift_q <= '0;
      first_lane_q <= '0;
      last_lane_q <= '0;
      beats_q <= '0;
      groups_q <= '0;
    end else begin
      if (beat_fire) begin
        prime_q <= 1'b0;
        beats_q <= beats_q - 22'd1;
      end
      if (group_fire) begin
        first_q <= 1'b0;
        groups_q <= groups_q - 22'd1;
      end
      if (take) begin
        pad_q <= run_pad_i;
        pad_value_q <= run_pad_value_i;
        first_q <= 1'b1;
        prime_q <= !run_pad_i && run_from_i > run_to_i;
        shift_q <= run_from_i - run_to_i;
        first_lane_q <= run_to_i;
        last_lane_q <= OffsetBits'(group_span);  // (to + bytes - 1) modulo AxiBytes
        beats_q <= run_pad_i ? '0 : 22'(beat_span >> OffsetBits);
        groups_q <= 22'(group_span >> OffsetBits);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (beat_fire) older_q <= beat_data_i;
  end

endmodule
