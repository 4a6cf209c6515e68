// SPDX-License-Identifier: Apache-2.0
// The depthwise operands: for each lane the input differences (input - zero point) that meet its taps now. Enters:
// input vectors in raster order, or any vector with the one tap that it is for. Leaves: one operand for each tap and
// lane. Method: two line buffers keep the rows before; the taps of a lane form a chain in the order of WGT's bytes, in
// which a tap takes what the next one held, and the last tap of each row of taps takes the newest vector or a line
// buffer's.
//
// Latency: a column asked for with read_i in cycle t meets the vector of step_i in t + 1, and operands_o follows in the
// same cycle. Throughput: one vector a cycle; step_i may be held back (the lines' data stand while read_i is low).
// Reset: none; operands of a window that is not yet full mean nothing. Legal: rows of 2 to LineDepth columns. Fields
// are 32 bits wide, of which 9 count: tap t of lane l of row b at ((t % 4 * Batch + b) * Lanes + l) * Taps / 4 + t / 4,
// so that neighbours in a word of WGT, which need different shifts, are far apart and equal shifts are neighbours.
module tsr_window #(
  parameter int unsigned Batch     = 1,
  parameter int unsigned Lanes     = 8,
  parameter int unsigned Taps      = 8,
  parameter int unsigned LineDepth = 512,
  localparam int unsigned Width  = 8 * Batch * Lanes,
  localparam int unsigned Fields = Batch * Lanes * Taps,
  localparam int unsigned LineBits = $clog2(LineDepth)
) (
  input  logic                 clk_i,
  input  logic                 read_i,
  input  logic [LineBits-1:0]  col_i,
  input  logic                 step_i,
  input  logic                 write_i,     // with step_i: keep the vector for the next rows
  input  logic [Width-1:0]     vector_i,
  input  logic                 unsigned_i,
  input  logic [8:0]           zero_i,
  input  logic [15:0]          enter_i,     // taps that take the vector
  input  logic [15:0]          line_0_i,    // the one that takes the row before
  input  logic [15:0]          line_1_i,    // the row before that
  input  logic [15:0]          shift_i,     // those that take what the next tap held; all others are 0
  output logic [32*Fields-1:0] operands_o
);

  localparam int unsigned Words = Taps / 4;

  // The rows before: the newer one in the lower half.
  (* ram_style = "block" *) logic [2*Width-1:0] line_mem[LineDepth];
  logic [2*Width-1:0] line_q;
  logic [LineBits-1:0] col_q;

  always_ff @(posedge clk_i) begin
    if (read_i) begin
      line_q <= line_mem[col_i];
      col_q <= col_i;
    end
    if (step_i && write_i) line_mem[col_q] <= {line_q[Width-1:0], vector_i};
  end

  logic [32*Fields-1:0] operands_q, operands;
  always_comb begin
    logic [7:0] value;
    logic [8:0] difference;
    operands = 'x;
    value = 'x;
    difference = 'x;
    if (step_i) begin
      for (int unsigned b = 0; b < Batch; b++) begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          for (int unsigned t = 0; t < Taps; t++) begin
            if (shift_i[t] && t + 1 < Taps) begin
              // The upper bits are 0. Simulators copy words; synthesis need not find out tap by tap.
`ifdef VERILATOR
              operands[32*(((t%4*Batch+b)*Lanes+l)*Words+t/4)+:32] =
                  operands_q[32*((((t+1)%4*Batch+b)*Lanes+l)*Words+(t+1)%Taps/4)+:32];
`else
              operands[32*(((t%4*Batch+b)*Lanes+l)*Words+t/4)+:32] =
                  {23'd0, operands_q[32*((((t+1)%4*Batch+b)*Lanes+l)*Words+(t+1)%Taps/4)+:9]};
`endif
            end else begin
              value = vector_i[8*(b*Lanes+l)+:8];
              if (line_0_i[t]) value = line_q[8*(b*Lanes+l)+:8];
              if (line_1_i[t]) value = line_q[Width+8*(b*Lanes+l)+:8];
              difference = {!unsigned_i && value[7], value} - zero_i;
              operands[32*(((t%4*Batch+b)*Lanes+l)*Words+t/4)+:32] =
                  enter_i[t] || line_0_i[t] || line_1_i[t] ? {23'd0, difference} : 32'd0;
            end
          end
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (step_i) operands_q <= operands;
  end
  assign operands_o = operands;

endmodule
