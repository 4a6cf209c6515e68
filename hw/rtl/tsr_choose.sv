// SPDX-License-Identifier: Apache-2.0
// One of several words that stand side by side, by its number.
//
// Latency: combinational. Legal: Width and Count at least 1; a number below Count. Timing: a bit is one look-up table of
// four words, and for synthesis a vector of them that is indexed, since of a chain of comparisons it makes two.
module tsr_choose #(
  parameter int unsigned Width = 8,
  parameter int unsigned Count = 2,
  localparam int unsigned NumberBits = Count > 1 ? $clog2(Count) : 1
) (
  input  logic [Width*Count-1:0] words_i,
  input  logic [NumberBits-1:0]  number_i,
  output logic [Width-1:0]       word_o
);

  if (tsr_isa_pkg::Simulated) begin : gen_simulated
    always_comb begin
      word_o = words_i[Width-1:0];
      for (int unsigned c = 1; c < Count; c++) begin
        if (number_i == NumberBits'(c)) word_o = words_i[Width*c+:Width];
      end
    end
  end else begin : gen_bits
    for (genvar b = 0; b < Width; b++) begin : gen_bit
      logic [(1 << NumberBits)-1:0] bits;
      for (genvar c = 0; c < 1 << NumberBits; c++) begin : gen_word
        assign bits[c] = words_i[Width*(c<Count?c:0)+b];
      end
      assign word_o[b] = bits[number_i];
    end
  end

endmodule
