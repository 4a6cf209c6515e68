// SPDX-License-Identifier: Apache-2.0
// Moves runs of bytes from one alignment to another. Enters: for each run what tsr_realign_shape says of it, and the
// offset of its first byte in the first target group; the source beats in order. Leaves: target groups with byte
// enables. Two neighbouring beats make one group; a run whose source offset exceeds its target offset first fills the
// register of the older beat. A padding run takes no beats and repeats one byte.
//
// Two runs may share a beat, the last of one and the first of the next. It always stands in the register of the older beat
// then, which serves a run that would fill it with just this beat. For any other the run before keeps the beat: it uses it
// and does not take it.
//
// Latency: a run taken in cycle t offers its first group in t + 1 (t + 2 when the register must be filled), provided
// the beat is there. Throughput: one group a cycle; the next run is taken with the last group of the previous one.
// Back-pressure: group_ready_i; beats are taken only as groups need them. Reset: synchronous, active low. Legal:
// AxiBytes a power of two, 4 to 64. Timing: a beat's bytes chosen in two or three steps; a count of 20 bits.
module tsr_realign #(
  parameter int unsigned AxiBytes = 8,
  parameter bit          Pads     = 1'b1,  // there are runs of padding, and such that share beats
  localparam int unsigned OffsetBits = $clog2(AxiBytes),
  localparam int unsigned CountBits = 24 - OffsetBits
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  run_valid_i,
  output logic                  run_ready_o,
  input  logic [CountBits-1:0]  run_left_i,    // as tsr_realign_shape has it, up to run_last_lane_i
  input  logic                  run_prime_i,
  input  logic                  run_tail_i,
  input  logic                  run_free_i,    // padding, or a run that has no beats but the older one
  input  logic                  run_keep_i,    // of its last beat
  input  logic [OffsetBits-1:0] run_shift_i,
  input  logic [OffsetBits-1:0] run_last_lane_i,
  input  logic [OffsetBits-1:0] run_to_i,      // offset of its first byte in its first group
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

  if (AxiBytes < 4 || AxiBytes > 64 || AxiBytes != 1 << $clog2(AxiBytes)) $error("tsr_realign: AxiBytes is a power of two, 4 to 64");

  // Cycles of a run: one for each beat, the first of which may fill the register of the older beat; behind them one for a
  // tail, a group that needs none. A padding run has one for each group. Those of beats and of padding are counted down to
  // -1, which the sign tells, and on to -2 with a tail.
  logic [CountBits-1:0] left_q;  // behind this one, less one
  logic pad_q, first_q, tail_q, keep_q, ends;
  logic primes_q, needs_q, free_q;  // a cycle that fills the register; one of a group, that needs a beat or does not
  logic [7:0] pad_value_q;
  logic [OffsetBits-1:0] shift_q;   // (from - to - 1) modulo AxiBytes
  logic [OffsetBits-1:0] first_lane_q, last_lane_q;
  logic [8*AxiBytes-1:0] older_q;

  logic group_fire, beat_use, beat_fire, fire, take;
  assign busy_o = primes_q || needs_q || free_q;
  assign group_valid_o = free_q || (needs_q && beat_valid_i);
  assign ends = left_q[CountBits-1];
  assign group_last_o = ends && (free_q || !tail_q);
  assign group_fire = group_valid_o && group_ready_i;
  assign beat_use = primes_q || (needs_q && group_ready_i);
  assign beat_ready_o = beat_use && !(Pads && keep_q && ends);
  assign beat_fire = beat_use && beat_valid_i;
  assign fire = beat_fire || group_fire;
  assign starved_o = (primes_q || needs_q) && !beat_valid_i;
  assign run_ready_o = !busy_o || (group_fire && group_last_o);
  assign take = run_valid_i && run_ready_o;

  // Byte i of a group is byte i + 1 + shift of both beats: first by multiples of eight, then by even distances, then by
  // one, so that each step is a choice of four at most for buses of up to 32 bytes.
  localparam int unsigned Coarse = AxiBytes > 8 ? AxiBytes / 8 : 1;
  localparam int unsigned Evens = AxiBytes > 8 ? 4 : AxiBytes / 2;
  localparam int unsigned NearBits = 8 * (AxiBytes + 2 * Evens - 1);
  logic [8*AxiBytes-1:0] group_data;
  logic [8*AxiBytes+7:0] even;
  logic [NearBits-1:0] near;
  logic [16*AxiBytes-1:0] pair;
  assign pair = {beat_data_i, older_q};
  always_comb begin
    near = '0;
    even = '0;
    group_data = '0;
    if (!tsr_isa_pkg::Simulated || group_valid_o) begin
      near = pair[8+:NearBits];
      for (int unsigned k = 1; k < Coarse; k++) begin
        if (32'(shift_q) / 8 == k) near = pair[8+64*k+:NearBits];
      end
      even = near[0+:8*AxiBytes+8];
      for (int unsigned k = 1; k < Evens; k++) begin
        if (32'(shift_q) % 8 / 2 == k) even = near[16*k+:8*AxiBytes+8];
      end
      group_data = shift_q[0] ? even[8+:8*AxiBytes] : even[0+:8*AxiBytes];
      if (pad_q) group_data = {AxiBytes{pad_value_q}};
    end
  end
  assign group_data_o = group_data;
  assign group_be_o = (first_q ? {AxiBytes{1'b1}} << first_lane_q : '1) &
      (group_last_o ? {AxiBytes{1'b1}} >> ~last_lane_q : '1);

  // What the next cycle is, so that a group is offered as soon as its beat is there.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      primes_q <= 1'b0;
      needs_q <= 1'b0;
      free_q <= 1'b0;
    end else if (take || fire) begin
      primes_q <= take && run_prime_i;
      needs_q <= take ? !run_prime_i && !(Pads && run_free_i) : !ends && !pad_q;
      free_q <= take ? Pads && run_free_i : ends ? tail_q && !free_q : pad_q;
    end
  end
  always_ff @(posedge clk_i) begin
    if (beat_fire) older_q <= beat_data_i;
    if (take) begin
      pad_q <= Pads && run_pad_i;
      pad_value_q <= Pads ? run_pad_value_i : '0;
      first_q <= 1'b1;
      tail_q <= run_tail_i;
      keep_q <= Pads && run_keep_i;
      shift_q <= run_shift_i;
      first_lane_q <= run_to_i;
      last_lane_q <= run_last_lane_i;
      left_q <= run_left_i;
    end else if (fire) begin
      if (!primes_q) first_q <= 1'b0;
      left_q <= left_q - 1'b1;
    end
  end

endmodule
