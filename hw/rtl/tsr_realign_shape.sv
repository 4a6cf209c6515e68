// SPDX-License-Identifier: Apache-2.0
// What the realigner counts and shifts for a run. Enters: the offset of the run's first byte in the first source beat and
// in the first target group, its bytes, whether it is padding, whether it shares its first beat with the run before.
// Leaves: the cycles of the run and the places in them. It stands in front of the queue in which runs wait for the realigner: behind it, the sum would follow the read of a LUT
// RAM.
//
// Latency: combinational. Legal: AxiBytes a power of two, 4 to 64. Timing: two sums of a few bits and one of the cycles.
module tsr_realign_shape #(
  parameter int unsigned AxiBytes = 8,
  parameter bit          Pads     = 1'b1,  // there are runs of padding, and such that share beats
  localparam int unsigned OffsetBits = $clog2(AxiBytes),
  localparam int unsigned CountBits = 24 - OffsetBits
) (
  input  logic [OffsetBits-1:0] from_i,
  input  logic [OffsetBits-1:0] to_i,
  input  logic [21:0]           bytes_i,      // at least 1
  input  logic                  pad_i,
  input  logic                  over_i,       // from_i > to_i
  input  logic                  shares_i,
  output logic [CountBits-1:0]  left_o,       // beats that the run needs, of padding groups, less two
  output logic                  prime_o,      // the first of them fills the register of the older beat
  output logic                  tail_o,       // behind the last of them a group needs none
  output logic [OffsetBits-1:0] shift_o,      // (from - to - 1) modulo AxiBytes
  output logic [OffsetBits-1:0] last_lane_o   // (to + bytes - 1) modulo AxiBytes
);

  // Beats and groups of a run: those of its whole ones, and of the rest with what stands before.
  logic [OffsetBits+1:0] beat_rest, group_rest;
  logic older;  // the first beat is the older one
  logic [1:0] rest;
  assign beat_rest = {2'd0, bytes_i[OffsetBits-1:0]} + {2'd0, from_i} + (OffsetBits + 2)'(AxiBytes - 1);
  assign group_rest = {2'd0, bytes_i[OffsetBits-1:0]} + {2'd0, to_i} + (OffsetBits + 2)'(AxiBytes - 1);
  assign older = Pads && shares_i && over_i;
  assign rest = Pads && pad_i ? group_rest[OffsetBits+1:OffsetBits] : beat_rest[OffsetBits+1:OffsetBits];

  assign prime_o = !(Pads && (pad_i || shares_i)) && over_i;
  assign left_o = CountBits'(bytes_i[21:OffsetBits]) + CountBits'($signed({1'b0, rest} - (older ? 3'd3 : 3'd2)));
  assign tail_o = !(Pads && pad_i) && {1'b0, over_i} + group_rest[OffsetBits+1:OffsetBits] != beat_rest[OffsetBits+1:OffsetBits];
  assign shift_o = from_i - to_i - 1'b1;
  assign last_lane_o = group_rest[OffsetBits-1:0];

  logic unused;
  assign unused = &{1'b0, beat_rest[OffsetBits-1:0]};

endmodule
