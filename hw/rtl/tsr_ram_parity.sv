// SPDX-License-Identifier: Apache-2.0
// The parity of each byte of a word that is written, for memories that keep it: the bit that makes the number of ones
// even. Without Parity it is 0. Latency: combinational.
module tsr_ram_parity #(
  parameter int unsigned Bytes  = 8,
  parameter int unsigned Parity = 0
) (
  input  logic [8*Bytes-1:0] word_i,
  output logic [Bytes-1:0]   parity_o
);

  if (Parity != 0) begin : gen_parity
    always_comb begin
      for (int unsigned b = 0; b < Bytes; b++) parity_o[b] = ^word_i[8*b+:8];
    end
  end else begin : gen_none
    assign parity_o = '0;
    logic unused;
    assign unused = &{1'b0, word_i};
  end

endmodule
