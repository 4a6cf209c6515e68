// SPDX-License-Identifier: Apache-2.0
// The operands of the matrix engine's multipliers: input less zero point. Enters: input vectors, in depthwise mode those
// of a raster or any vector for one tap. Leaves: the newest vector, and the window of the vectors before it that meet
// a lane's other taps. Method: taps are counted from the last, which the newest vector meets; each of the others holds
// what the one after it held, but the last tap of a row of taps takes a line buffer's vector. Two line buffers keep the
// rows before. Output lane o meets input lane o modulo Lanes of the group `lane`.
//
// Latency: a column asked for with read_i in cycle t meets the vector of step_i in t + 1; outputs stand from t + 2 on.
// Throughput: one vector a cycle; step_i may be held back (line data stand while read_i is low). Reset: none; operands
// of a window that is not yet full mean nothing. Timing: from INP's output one subtraction and one selection. Legal:
// rasters with rows of 2 to LineDepth columns; Taps at least 2. Operands have OperandBits each, of which a simulator copies words and
// synthesis as few as count: 9. Synthesis makes no more of them than a line buffer's block RAMs have bits anyway.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_window #(
  parameter int unsigned Batch       = 1,
  parameter int unsigned BlockIn     = 8,
  parameter int unsigned BlockOut    = 8,
  parameter int unsigned Taps        = 6,
  parameter int unsigned LineDepth   = 512,
  parameter int unsigned OperandBits = 9,
  localparam int unsigned LineBits   = $clog2(LineDepth),
  localparam int unsigned Lanes      = BlockIn < BlockOut ? BlockIn : BlockOut
) (
  input  logic                                    clk_i,
  input  logic                                    read_i,
  input  logic [LineBits-1:0]                     col_i,
  input  logic                                    step_i,
  input  logic                                    depthwise_i,
  input  logic                                    write_i,    // keep the vector for the next rows
  input  logic [4:0]                              lane_i,     // the group, 0 in dense mode
  input  logic [8*Batch*BlockIn-1:0]              vector_i,
  input  logic                                    unsigned_i,
  input  logic [8:0]                              zero_i,
  input  logic [Taps-1:0]                         line_0_i,   // the tap that takes the row before
  input  logic [Taps-1:0]                         line_1_i,   // and the row before that
  output logic [OperandBits*Batch*BlockIn-1:0]        newest_o,   // tap 0; depthwise: the first Lanes of each row
  output logic [OperandBits*Batch*Lanes*(Taps-1)-1:0] window_o    // [tap - 1][row][lane]
);

  localparam int unsigned Width = OperandBits * Batch * Lanes;

  if (OperandBits < 9) $error("tsr_window: an operand has nine bits");
  if (Taps < 2) $error("tsr_window: there are fewer than two taps");

  // Signed inputs are offset by 128: with the top bit flipped all bytes are unsigned and 128 joins the zero point. A group
  // of lanes is chosen in front of the subtraction, as its second operand, which enters a carry chain through look-up
  // tables anyway.
  localparam int unsigned Groups = BlockIn / Lanes;
  localparam int unsigned GroupBits = Groups > 1 ? $clog2(Groups) : 1;
  logic [OperandBits-1:0] flip, kept;
  logic [8*Batch*BlockIn-1:0] chosen;
  logic [OperandBits*Batch*BlockIn-1:0] vector, newest_q;
  logic [Width-1:0] lanes;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {flip, kept, chosen, vector, lanes} = 'x;
    if (!tsr_isa_pkg::Simulated || step_i) begin
      flip = OperandBits'({!unsigned_i, 7'd0});
      kept = ~(OperandBits'(zero_i[7:0]) ^ flip);
      chosen = vector_i;
      for (int unsigned b = 0; b < Batch; b++) begin
        for (int unsigned g = 1; g < Groups; g++) begin
          if (GroupBits'(lane_i) == GroupBits'(g))
            chosen[8*BlockIn*b+:8*Lanes] = vector_i[8*(BlockIn*b+Lanes*g)+:8*Lanes];
        end
      end
      for (int unsigned n = 0; n < Batch * BlockIn; n++) begin
        vector[OperandBits*n+:OperandBits] = kept - ~(OperandBits'(chosen[8*n+:8]) ^ flip);
      end
      if (!tsr_isa_pkg::Simulated || depthwise_i) begin
        for (int unsigned b = 0; b < Batch; b++) begin
          lanes[OperandBits*b*Lanes+:OperandBits*Lanes] = vector[OperandBits*b*BlockIn+:OperandBits*Lanes];
        end
      end
    end
  end

  // The rows before, the newer one in the lower half.
  (* ram_style = "block" *) logic [2*Width-1:0] line_mem[LineDepth];
  logic [2*Width-1:0] line_q;
  logic [LineBits-1:0] col_q;
  always_ff @(posedge clk_i) begin
    if (read_i) begin
      line_q <= line_mem[col_i];
      col_q <= col_i;
    end
    if (step_i && write_i) line_mem[col_q] <= {line_q[Width-1:0], lanes};
  end

  always_ff @(posedge clk_i) begin
    if (step_i) newest_q <= vector;
  end
  assign newest_o = newest_q;

  logic [Width*(Taps-1)-1:0] taps_q;
  always_ff @(posedge clk_i) begin
    logic [Width-1:0] newest;
    if (step_i && depthwise_i) begin
      for (int unsigned b = 0; b < Batch; b++) begin
        newest[OperandBits*b*Lanes+:OperandBits*Lanes] = newest_q[OperandBits*b*BlockIn+:OperandBits*Lanes];
      end
      taps_q <= (Width * (Taps - 1))'({taps_q, newest});
      // A row of taps is `t` long, and there is a second one; or `t` / 2, and there is a third one.
      for (int unsigned t = 1; t < Taps; t++) begin
        if (2 * t <= Taps && line_0_i[t]) taps_q[Width*(t-1)+:Width] <= line_q[0+:Width];
        if (t % 2 == 0 && 3 * t / 2 <= Taps && line_1_i[t]) taps_q[Width*(t-1)+:Width] <= line_q[Width+:Width];
      end
    end
  end
  assign window_o = taps_q;

  logic unused;
  assign unused = &{1'b0, zero_i[8], line_0_i, line_1_i, lane_i};

endmodule
/* verilator lint_on LATCH */
