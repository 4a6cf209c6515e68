// SPDX-License-Identifier: Apache-2.0
// A lane of rows. Enters: for sums, groups of bytes as they come, of every RowLanes-th row (all that have this lane's
// number), and which byte is wanted; for results, a byte; maxima, the row's operands (tsr_row_setup) and the channel's.
// Leaves: indices into the tables, four sums or four pairs of moments in turn, a byte of ROW_MAP. Method: a small
// memory turns the corner from groups to bytes, in two halves. Stage 0: a byte; 1: its distance and the table's index;
// 2: the table's answer; 3: the sum, or the map. The map's multiplier makes the squares, too.
//
// Latency: to the sum four cycles behind stage 3, when it is the first operand again: the registers of the adder are
// the sums of four rows. A square joins its sum four cycles behind its byte's. To byte_o 3 and those of tsr_row_map.
// Throughput: a byte a cycle. Back-pressure: none. Reset: none, data only; rst_ni is that of delay lines. Legal:
// RowLanes a power of two, Lane below it; RowLanes at most BlockOut / 4.
module tsr_row_lane #(
  parameter int unsigned BlockOut = 16,
  parameter int unsigned RowLanes = 4,
  parameter int unsigned Lane     = 0,
  parameter logic [9:0]  MapRegisters = 10'h3ff,
  localparam int unsigned Turns = BlockOut / RowLanes,
  localparam int unsigned TurnBits = $clog2(Turns),
  localparam int unsigned EntryBits = $clog2(BlockOut),
  localparam int unsigned LaneBits = RowLanes > 1 ? $clog2(RowLanes) : 1,
  localparam int unsigned RowBits = $clog2(4 * RowLanes),
  localparam int unsigned StepBits = $clog2(4 * BlockOut)
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  // The instruction.
  input  logic                  reducing_i,
  input  logic                  moments_i,
  input  logic                  softmax_i,
  input  logic                  src_unsigned_i,
  input  logic [8:0]            zero_i,       // of the source
  input  logic [3:0]            table_i,
  input  logic [3:0]            result_table_i,
  input  logic [9:0]            low_i,
  input  logic [9:0]            high_i,
  input  logic [7:0]            out_zero_i,
  input  logic [7:0]            lowest_i,     // bounds with the zero point
  input  logic [7:0]            highest_i,
  // Rows to be summed: their maxima; their groups; the byte that is wanted.
  input  logic                  took_i,
  input  logic [RowBits-1:0]    took_row_i,
  input  logic [7:0]            took_maximum_i,
  input  logic                  group_valid_i,
  input  logic                  group_half_i,
  input  logic [RowBits-1:0]    group_row_i,
  input  logic [TurnBits-1:0]   group_turn_i,
  input  logic [8*RowLanes-1:0] group_i,
  input  logic                  walk_half_i,
  input  logic [1:0]            phase_i,      // the lane's row
  input  logic [StepBits-1:2]   step_i,       // its place in the row
  input  logic                  valid_2_i,
  input  logic                  first_2_i,
  input  logic                  first_3_i,
  input  logic                  first_7_i,
  output logic [47:0]           index_o,
  input  logic [31:0]           bytes_i,
  output logic [30:0]           sum_o,
  output logic [20:0]           first_sum_o,
  output logic [27:0]           squares_o,
  // A row of ROW_MAP: its byte, whose group is result_turn_i; what stages need of it.
  input  logic [7:0]            result_i,
  input  logic [TurnBits-1:0]   result_turn_i,
  input  logic                  result_whole_i,       // all lanes are below the row's limit,
  input  logic                  result_part_i,        // or the first part_lanes_i
  input  logic [EntryBits-1:0]  part_lanes_i,
  input  logic                  result_valid_2_i,
  input  logic [7:0]            maximum_1_i,
  output logic [47:0]           result_index_o,
  input  logic [31:0]           result_bytes_i,
  input  logic [23:0]           factor_3_i,
  input  logic                  coarse_3_i,
  input  logic [47:0]           addend_4_i,
  input  logic [30:0]           divisor_i,
  input  logic [11:0]           limit_9_i,
  input  logic [17:0]           gain_i,
  input  logic [31:0]           bias_i,
  output logic [7:0]            byte_o
);

  logic [8*RowLanes-1:0] corner[8 * Turns];
  logic [8*RowLanes-1:0] read_group;
  // A byte's complement, because operands that are registers cost adders less.
  logic [7:0] chosen, inverse_1_q, result_inverse_1_q;
  logic [7:0] inverse_1;
  logic inside_1_q, inside_2_q;  // ROW_MAP: of the row's limit
  logic [7:0] lane_maximum[4];
  logic [1:0] slot_1;
  assign slot_1 = phase_i - 2'd1;
  always_ff @(posedge clk_i) begin
    if (group_valid_i && (RowLanes == 1 || group_row_i[LaneBits-1:0] == LaneBits'(Lane)))
      corner[{group_half_i, group_row_i[RowBits-1-:2], group_turn_i}] <= group_i;
    if (took_i && (RowLanes == 1 || took_row_i[LaneBits-1:0] == LaneBits'(Lane)))
      lane_maximum[took_row_i[RowBits-1-:2]] <= took_maximum_i;
  end
  assign read_group = corner[{walk_half_i, phase_i, step_i[StepBits-1-:TurnBits]}];
  always_comb begin
    chosen = read_group[7:0];
    for (int unsigned n = 1; n < RowLanes; n++) begin
      if (32'(step_i[2+:LaneBits]) == n) chosen = read_group[8*n+:8];
    end
  end
  logic [8:0] wide_1, offset_2_q, offset_3_q;
  logic [7:0] distance_1, result_distance_1;
  logic [30:0] number_3_q, result_number_3_q;
  assign inverse_1 = reducing_i ? inverse_1_q : result_inverse_1_q;
  assign wide_1 = {!src_unsigned_i && !inverse_1[7], ~inverse_1};
  assign distance_1 = inverse_1_q - ~lane_maximum[slot_1];
  assign result_distance_1 = result_inverse_1_q - ~maximum_1_i;
  for (genvar p = 0; p < 4; p++) begin : gen_plane
    assign index_o[12*p+:12] = {table_i + 4'(p), distance_1};
    assign result_index_o[12*p+:12] = {result_table_i + 4'(p), result_distance_1};
  end
  always_ff @(posedge clk_i) begin
    inverse_1_q <= ~chosen;
    result_inverse_1_q <= ~result_i;
    inside_1_q <= result_whole_i || (result_part_i && RowLanes * 32'(result_turn_i) + Lane < 32'(part_lanes_i));
    inside_2_q <= inside_1_q;
    offset_2_q <= ~zero_i - ~wide_1;
    offset_3_q <= valid_2_i || result_valid_2_i ? offset_2_q : 9'd0;
    number_3_q <= valid_2_i ? bytes_i[30:0] : 31'd0;
    result_number_3_q <= result_valid_2_i && inside_2_q ? result_bytes_i[30:0] : 31'd0;
  end
  logic unused;
  assign unused = bytes_i[31] ^ result_bytes_i[31];

  // Four sums in turn: of a softmax in the adder's registers, of S1 and S2.
  logic [30:0] sum_3;
  tsr_row_add #(.Registers(4'b1111)) u_add (
    .clk_i, .enable_i(1'b1), .clear_i(first_2_i), .x_i(sum_3), .y_i(number_3_q), .sum_o(sum_3)
  );
  logic [16:0] square_6, square_7_q;
  logic [20:0] first_sum_3;
  logic [27:0] squares_7;
  logic [20:0] first_ring_q[4];
  logic [27:0] squares_ring_q[4];
  assign first_sum_3 = first_ring_q[3];
  assign squares_7 = squares_ring_q[3];
  always_ff @(posedge clk_i) begin
    square_7_q <= square_6;
    // The operand of an adder that is only a register costs no look-up table as the first one.
    first_ring_q[0] <= {{12{offset_3_q[8]}}, offset_3_q} + (first_sum_3 & {21{!first_3_i}});
    squares_ring_q[0] <= {11'd0, square_7_q} + (squares_7 & {28{!first_7_i}});
    for (int unsigned k = 1; k < 4; k++) begin
      first_ring_q[k] <= first_ring_q[k-1];
      squares_ring_q[k] <= squares_ring_q[k-1];
    end
  end
  assign sum_o = sum_3;
  assign first_sum_o = first_sum_3;
  assign squares_o = squares_7;

  tsr_row_map #(.Registers(MapRegisters)) u_map (
    .clk_i, .rst_ni, .enable_i(1'b1), .softmax_i, .b_i(divisor_i), .limit_i(limit_9_i), .factor_i(factor_3_i),
    .coarse_i(coarse_3_i), .addend_i(addend_4_i), .low_i, .high_i, .zero_i(out_zero_i), .lowest_i, .highest_i,
    .offset_i(offset_3_q), .a_i(result_number_3_q), .gain_i, .bias_i, .byte_o, .square_i(moments_i), .square_o(square_6)
  );

endmodule
