// SPDX-License-Identifier: Apache-2.0
// The operands of the matrix engine's multipliers: byte k of row o of a WGT entry meets, for each row b of the input,
// the difference (input - zero point) of input k (dense), or of the input of lane o that belongs to tap k (depthwise).
// Enters: input vectors, in depthwise mode those of a raster or any vector with the one tap that it is for. Leaves:
// operands. Method (depthwise): two line buffers keep the rows before; the taps of a lane form a chain in the order of
// WGT's bytes, in which a tap takes what the next one held, and the last tap of each row of taps takes the newest
// vector or a line buffer's. Output lane o meets input lane o modulo Lanes of the group `lane`.
//
// Latency: a column asked for with read_i in cycle t meets the vector of step_i in t + 1; operands_o stand from t + 2
// on. Throughput: one vector a cycle; step_i may be held back (line data stand while read_i is low). Reset: none;
// operands of a window that is not yet full mean nothing. Legal: rasters with rows of 2 to LineDepth columns. Fields of
// operands_o are 32 bits wide, of which 9 count; byte k of row o meets field ((k % 4 * Batch + b) * BlockOut + o) *
// Words + k / 4. So neighbours are treated alike, which a simulator turns into vector instructions.
module tsr_window #(
  parameter int unsigned Batch     = 1,
  parameter int unsigned BlockIn   = 8,
  parameter int unsigned BlockOut  = 8,
  parameter int unsigned LineDepth = 512,
  localparam int unsigned LineBits = $clog2(LineDepth)
) (
  input  logic                                  clk_i,
  input  logic                                  read_i,
  input  logic [LineBits-1:0]                   col_i,
  input  logic                                  step_i,
  input  logic                                  depthwise_i,
  input  logic                                  write_i,     // keep the vector for the next rows
  input  logic                                  keep_i,      // taps take what the next one held, else 0
  input  logic [4:0]                            lane_i,
  input  logic [8*Batch*BlockIn-1:0]            vector_i,
  input  logic                                  unsigned_i,
  input  logic [8:0]                            zero_i,
  input  logic [15:0]                           enter_i,     // the tap that takes the vector
  input  logic [15:0]                           line_0_i,    // the one that takes the row before
  input  logic [15:0]                           line_1_i,    // and the row before that
  output logic [32*Batch*BlockIn*BlockOut-1:0]  operands_o
);

  localparam int unsigned Lanes = BlockIn < BlockOut ? BlockIn : BlockOut;
  localparam int unsigned Taps = BlockIn < 16 ? BlockIn : 16;
  localparam int unsigned Words = BlockIn / 4;
  localparam int unsigned Plane = Batch * BlockOut * Words;
  localparam int unsigned Width = 8 * Batch * Lanes;

  // The lanes that take part, and the rows before, the newer one in the lower half.
  logic [Width-1:0] group;
  (* ram_style = "block" *) logic [2*Width-1:0] line_mem[LineDepth];
  logic [2*Width-1:0] line_q;
  logic [LineBits-1:0] col_q;

  always_comb begin
    group = 'x;
    if (step_i && depthwise_i) begin
      for (int unsigned b = 0; b < Batch; b++) begin
        group[8*b*Lanes+:8*Lanes] =
            (8 * Lanes)'(vector_i[8*b*BlockIn+:8*BlockIn] >> (BlockIn > BlockOut ? 8 * Lanes * 32'(lane_i) : 0));
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (read_i) begin
      line_q <= line_mem[col_i];
      col_q <= col_i;
    end
    if (step_i && write_i) line_mem[col_q] <= {line_q[Width-1:0], group};
  end

  // Signed inputs are offset by 128: with the top bit flipped all bytes are unsigned and 128 joins the zero point.
  logic [32*4*Plane-1:0] operands, operands_q;
  always_comb begin
    logic [32*BlockIn-1:0] row;
    logic [32*Batch*Lanes-1:0] newest, line_0, line_1;
    logic [31:0] flip, zero;
    row = 'x;
    newest = 'x;
    line_0 = 'x;
    line_1 = 'x;
    flip = 'x;
    zero = 'x;
    operands = operands_q;
    if (step_i) begin
      flip = {24'd0, !unsigned_i, 7'd0};
      zero = 32'($signed(zero_i)) + flip;
      if (!depthwise_i) begin
        for (int unsigned b = 0; b < Batch; b++) begin
          for (int unsigned k = 0; k < BlockIn; k++) begin
            row[32*(k%4*Words+k/4)+:32] = (32'(vector_i[8*(b*BlockIn+k)+:8]) ^ flip) - zero;
          end
          for (int unsigned j = 0; j < 4; j++) begin
            for (int unsigned o = 0; o < BlockOut; o++) begin
              operands[32*((j*Batch+b)*BlockOut+o)*Words+:32*Words] = row[32*j*Words+:32*Words];
            end
          end
        end
      end else begin
        for (int unsigned n = 0; n < 4 * Batch * BlockOut; n++) operands[32*n*Words+:32*Words] = '0;
        if (keep_i) begin
          operands[0+:96*Plane] = operands_q[32*Plane+:96*Plane];
          for (int unsigned n = 0; n < Batch * BlockOut; n++) begin
            for (int unsigned w = 0; w + 1 < Words; w++) begin
              operands[32*(3*Plane+n*Words+w)+:32] = operands_q[32*(n*Words+w+1)+:32];
            end
          end
        end
        for (int unsigned l = 0; l < Batch * Lanes; l++) begin
          newest[32*l+:32] = (32'(group[8*l+:8]) ^ flip) - zero;
          line_0[32*l+:32] = (32'(line_q[8*l+:8]) ^ flip) - zero;
          line_1[32*l+:32] = (32'(line_q[Width+8*l+:8]) ^ flip) - zero;
        end
        for (int unsigned t = 0; t < Taps; t++) begin
          if (enter_i[t]) begin
            for (int unsigned n = 0; n < Batch * BlockOut; n++) begin
              operands[32*((t%4*Batch*BlockOut+n)*Words+t/4)+:32] = newest[32*(n/BlockOut*Lanes+n%Lanes)+:32];
            end
          end
          if (line_0_i[t]) begin
            for (int unsigned n = 0; n < Batch * BlockOut; n++) begin
              operands[32*((t%4*Batch*BlockOut+n)*Words+t/4)+:32] = line_0[32*(n/BlockOut*Lanes+n%Lanes)+:32];
            end
          end
          if (line_1_i[t]) begin
            for (int unsigned n = 0; n < Batch * BlockOut; n++) begin
              operands[32*((t%4*Batch*BlockOut+n)*Words+t/4)+:32] = line_1[32*(n/BlockOut*Lanes+n%Lanes)+:32];
            end
          end
        end
      end
    end
  end

  // Simulators copy words; synthesis need not find out field by field that the upper bits are unused.
  always_ff @(posedge clk_i) begin
    if (step_i) begin
`ifdef VERILATOR
      operands_q <= operands;
`else
      for (int unsigned n = 0; n < 4 * Plane; n++) operands_q[32*n+:32] <= {23'd0, operands[32*n+:9]};
`endif
    end
  end
  assign operands_o = operands_q;

endmodule
