// SPDX-License-Identifier: Apache-2.0
// The operands of the matrix engine's multipliers: input less zero point. Enters: input vectors, in depthwise mode those
// of a raster or any vector for one tap. Leaves: the newest vector, and the window of the vectors before it that meet
// a lane's other taps. Method: taps are counted from the last, which the newest vector meets; each of the others holds
// what the one after it held, but the last tap of a row of taps takes a line buffer's vector. Two line buffers keep the
// rows before. Output lane o meets input lane o modulo Lanes of the group `lane`. With RasterPairs two vectors may enter
// at once where a window has three columns: entries of even and of odd number come side by side, and line buffers of
// even and of odd columns stand side by side. With RasterPairs = 2 those of the row above may enter with them, from the
// other two of four memories: then no line keeps that row, and of the rows kept the newer one is the window's first.
//
// Latency: a column asked for with read_i in cycle t meets the vector of step_i in t + 1; outputs stand from t + 2 on.
// Throughput: one vector a cycle; step_i may be held back (line data stand while read_i is low). Reset: none; operands
// of a window that is not yet full mean nothing. Timing: from INP's output one choice, one subtraction and one selection. Legal:
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
  parameter int unsigned RasterPairs = 0,
  localparam int unsigned Sides      = RasterPairs == 2 ? 4 : RasterPairs == 1 ? 2 : 1,
  localparam int unsigned SideBits   = Sides > 1 ? $clog2(Sides) : 1,
  localparam int unsigned LineBits   = $clog2(LineDepth),
  localparam int unsigned SourceBits = RasterPairs == 2 && Taps >= 12 ? 3 : 2,
  localparam int unsigned Lanes      = BlockIn < BlockOut ? BlockIn : BlockOut
) (
  input  logic                                    clk_i,
  input  logic                                    read_i,
  input  logic [LineBits-1:0]                     col_i,
  input  logic                                    step_i,
  input  logic                                    depthwise_i,
  input  logic                                    write_i,    // keep the vector for the next rows
  input  logic [4:0]                              lane_i,     // the group, 0 in dense mode
  input  logic [8*Sides*Batch*BlockIn-1:0]        vector_i,   // with RasterPairs one of each memory, by number
  input  logic [SideBits-1:0]                     newest_side_i,  // which of them is the newest vector,
  input  logic [SideBits-1:0]                     first_side_i,   // and the one before it; else the newest again
  input  logic                                    pairs_i,       // the window has three columns and vectors may enter in pairs
  input  logic                                    pair_i,        // both enter
  input  logic                                    row_pairs_i,   // and the row above enters with it
  input  logic                                    odd_i,         // the newest one's column is odd, as a pair's always is
  input  logic                                    unsigned_i,
  input  logic [8:0]                              zero_i,
  input  logic [SourceBits*(Taps-1)-1:0]          source_i,   // what a tap takes (tsr_gemm); 0: what the one before held
  output logic [OperandBits*Batch*BlockIn-1:0]        newest_o,   // tap 0; depthwise: the first Lanes of each row
  output logic [OperandBits*Batch*Lanes*(Taps-1)-1:0] window_o    // [tap - 1][row][lane]
);

  localparam int unsigned Width = OperandBits * Batch * Lanes;
  localparam int unsigned Raw = 8 * Batch * Lanes;
  localparam bit RawLines = RasterPairs == 2;  // of the rows before, the newer one as INP has it
  localparam int unsigned Newer = RawLines ? Raw : Width;

  if (OperandBits < 9) $error("tsr_window: an operand has nine bits");
  if (Taps < 2) $error("tsr_window: there are fewer than two taps");

  // Signed inputs are offset by 128: with the top bit flipped all bytes are unsigned and 128 joins the zero point. An entry
  // and a group of its lanes are chosen in front of the subtraction, as its second operand, which enters a carry chain
  // through look-up tables anyway.
  localparam int unsigned Entry = 8 * Batch * BlockIn;
  localparam int unsigned Groups = BlockIn / Lanes;
  localparam int unsigned GroupBits = Groups > 1 ? $clog2(Groups) : 1;
  // From four memories a vector is chosen by itself, for the lines and in front of the subtraction.
  logic [Entry-1:0] newest_entry, first_entry;
  if (RawLines) begin : gen_chosen
    tsr_choose #(.Width(Entry), .Count(Sides)) u_newest (
      .words_i(vector_i), .number_i(newest_side_i), .word_o(newest_entry)
    );
    tsr_choose #(.Width(Entry), .Count(Sides)) u_first (
      .words_i(vector_i), .number_i(first_side_i), .word_o(first_entry)
    );
  end else begin : gen_not_chosen
    assign {newest_entry, first_entry} = '0;
    logic unused_chosen;
    assign unused_chosen = &{1'b0, newest_entry, first_entry};
  end
  logic [OperandBits-1:0] flip, kept;
  logic [Entry-1:0] entry, chosen;
  logic [OperandBits*Batch*BlockIn-1:0] vector, newest_q;
  logic [Width-1:0] lanes;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {flip, kept, entry, chosen, vector, lanes} = 'x;
    if (!tsr_isa_pkg::Simulated || step_i) begin
      flip = OperandBits'({!unsigned_i, 7'd0});
      kept = ~(OperandBits'(zero_i[7:0]) ^ flip);
      entry = RawLines ? newest_entry : vector_i[Entry*newest_side_i+:Entry];
      chosen = entry;
      for (int unsigned b = 0; b < Batch; b++) begin
        for (int unsigned g = 1; g < Groups; g++) begin
          if (GroupBits'(lane_i) == GroupBits'(g)) chosen[8*BlockIn*b+:8*Lanes] = entry[8*(BlockIn*b+Lanes*g)+:8*Lanes];
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

  // The lanes of an entry, and operands of lanes.
  function automatic logic [Raw-1:0] group(input logic [Entry-1:0] of, input logic [GroupBits-1:0] lane);
    for (int unsigned b = 0; b < Batch; b++) begin
      group[8*Lanes*b+:8*Lanes] = of[8*BlockIn*b+:8*Lanes];
      for (int unsigned g = 1; g < Groups; g++) begin
        if (lane == GroupBits'(g)) group[8*Lanes*b+:8*Lanes] = of[8*(BlockIn*b+Lanes*g)+:8*Lanes];
      end
    end
  endfunction
  function automatic logic [Width-1:0] operands(input logic [Raw-1:0] of, input logic [OperandBits-1:0] zero,
                                                input logic [OperandBits-1:0] top);
    for (int unsigned n = 0; n < Batch * Lanes; n++) begin
      operands[OperandBits*n+:OperandBits] = zero - ~(OperandBits'(of[8*n+:8]) ^ top);
    end
  endfunction

  // The first vector of a pair; else the newest one again, so that both may be kept.
  logic [Width-1:0] first;
  if (RasterPairs != 0) begin : gen_first
    always_comb begin
      if (!tsr_isa_pkg::Simulated) first = 'x;
      if (!tsr_isa_pkg::Simulated || (step_i && depthwise_i)) begin
        first = operands(group(RawLines ? first_entry : vector_i[Entry*first_side_i+:Entry], GroupBits'(lane_i)), kept, flip);
      end
    end
  end else begin : gen_no_first
    assign first = lanes;
    logic unused_first;
    assign unused_first = &{1'b0, newest_side_i, first_side_i};
  end

  // Those of the row above, the first one of even number.
  logic [Width-1:0] above, first_above;
  if (RasterPairs == 2) begin : gen_above
    always_comb begin
      if (!tsr_isa_pkg::Simulated) {above, first_above} = 'x;
      if (!tsr_isa_pkg::Simulated || (step_i && row_pairs_i)) begin
        first_above = operands(group(first_side_i[1] ? vector_i[0+:Entry] : vector_i[2*Entry+:Entry], GroupBits'(lane_i)), kept, flip);
        above = operands(group(newest_side_i[1] ? vector_i[Entry+:Entry] : vector_i[3*Entry+:Entry], GroupBits'(lane_i)), kept, flip);
      end
    end
  end else begin : gen_no_above
    assign {above, first_above} = '0;
    logic unused_above;
    assign unused_above = &{1'b0, row_pairs_i};
  end

  // The rows before, the newer one in the lower half; with RasterPairs those of even columns, or of all, and of odd ones.
  // Where a vector is chosen from four memories the newer row's zero point is subtracted when it is read: a choice and a
  // subtraction behind INP and in front of another memory would be the longest path.
  // Where a tap takes a line, its column is not written in the cycle in which it is read (hw/assert). Else it may be.
  (* ram_style = "block", no_rw_check *) logic [Width+Newer-1:0] line_mem[LineDepth];
  logic [Width+Newer-1:0] line_q, odd_line_q;
  logic [Width-1:0] newer, odd_newer, older, odd_older;
  logic [Newer-1:0] even, odd;  // what is kept
  logic [LineBits-1:0] col_q;
  assign older = line_q[Newer+:Width];
  assign odd_older = odd_line_q[Newer+:Width];
  if (RawLines) begin : gen_raw
    always_comb begin
      if (!tsr_isa_pkg::Simulated) {even, odd, newer, odd_newer} = 'x;
      if (!tsr_isa_pkg::Simulated || (step_i && depthwise_i)) begin
        even = group(first_entry, GroupBits'(lane_i));
        odd = group(newest_entry, GroupBits'(lane_i));
        newer = operands(line_q[Raw-1:0], kept, flip);
        odd_newer = operands(odd_line_q[Raw-1:0], kept, flip);
      end
    end
  end else begin : gen_operands
    assign even = first;
    assign odd = lanes;
    assign newer = line_q[Width-1:0];
    assign odd_newer = odd_line_q[Width-1:0];
  end
  always_ff @(posedge clk_i) begin
    if (read_i) begin
      line_q <= line_mem[col_i];
      col_q <= col_i;
    end
    if (step_i && write_i && (RasterPairs == 0 || !pairs_i || pair_i || !odd_i)) line_mem[col_q] <= {newer, even};
  end
  if (RasterPairs != 0) begin : gen_odd
    (* ram_style = "block", no_rw_check *) logic [Width+Newer-1:0] odd_mem[LineDepth];
    always_ff @(posedge clk_i) begin
      if (read_i) odd_line_q <= odd_mem[col_i];
      if (step_i && write_i && pairs_i && odd_i) odd_mem[col_q] <= {odd_newer, odd};
    end
  end else begin : gen_no_odd
    assign odd_line_q = '0;
    logic unused_odd;
    assign unused_odd = &{1'b0, odd_newer, odd_older, odd, pairs_i, pair_i, odd_i};
  end

  always_ff @(posedge clk_i) begin
    if (step_i) newest_q <= vector;
  end
  assign newest_o = newest_q;

  localparam int unsigned Columns = tsr_isa_pkg::TimingGemmPairColumns;
  logic [Width*(Taps-1)-1:0] taps_q;
  always_ff @(posedge clk_i) begin
    logic [Width-1:0] newest;
    if (step_i && depthwise_i) begin
      for (int unsigned b = 0; b < Batch; b++) begin
        newest[OperandBits*b*Lanes+:OperandBits*Lanes] = newest_q[OperandBits*b*BlockIn+:OperandBits*Lanes];
      end
      taps_q <= (Width * (Taps - 1))'({taps_q, newest});
      // In each case the vectors that a tap may take fit one look-up table a bit. What it never takes is not there.
      for (int unsigned t = 1; t < Taps; t++) begin
        case (source_i[SourceBits*(t-1)+:2])
          2'd1: begin
            if (RasterPairs == 2 && t == 2 * Columns && 2 * t > Taps) taps_q[Width*(t-1)+:Width] <= odd_newer;
            else if (2 * t <= Taps || (RasterPairs != 0 && t % Columns == 1 && t / Columns < 3))
              taps_q[Width*(t-1)+:Width] <= newer;
          end
          2'd2: begin
            if (RasterPairs == 2 && t == Columns) taps_q[Width*(t-1)+:Width] <= above;
            else if ((t % 2 == 0 && 3 * t / 2 <= Taps) || (RasterPairs != 0 && t == 2 * Columns + 1))
              taps_q[Width*(t-1)+:Width] <= older;
          end
          2'd3: begin
            if (RasterPairs != 0 && t < 3 * Columns) begin
              if (t % Columns == 0) taps_q[Width*(t-1)+:Width] <= t == Columns ? odd_newer : odd_older;
              else if (t % Columns == 2) taps_q[Width*(t-1)+:Width] <= t == 2 ? newest : taps_q[Width*((t+Taps-4)%(Taps-1))+:Width];
              else if (RasterPairs == 2 && t == Columns + 1) taps_q[Width*(t-1)+:Width] <= first_above;
            end
          end
          default: ;
        endcase
        // Last, so that synthesis gives it a faster input of the look-up table: it comes from INP.
        if (RasterPairs != 0 && t == 1 && source_i[1]) taps_q[Width*(t-1)+:Width] <= first;
        if (SourceBits == 3 && source_i[SourceBits*t-1]) taps_q[Width*(t-1)+:Width] <= odd_newer;
      end
    end
  end
  assign window_o = taps_q;

  logic unused;
  assign unused = &{1'b0, zero_i[8], lane_i, lanes};

endmodule
/* verilator lint_on LATCH */
