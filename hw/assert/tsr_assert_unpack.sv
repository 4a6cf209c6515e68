// SPDX-License-Identifier: Apache-2.0
// Packed weights: the header stands in front of the weights of each entry, and every byte that leaves is the scale of
// its row times its four bits. The scales are kept here by row, where tsr_unpack shifts them. Bound to tsr_unpack.
module tsr_assert_unpack #(
  parameter int unsigned AxiBytes = 8,
  parameter int unsigned BlockIn  = 8,
  parameter int unsigned BlockOut = 8
) (
  input logic                   clk_i,
  input logic                   begin_i,
  input logic                   fire_i,
  input logic                   beat_valid_i,  // the beat is of a packed run
  input logic [8*AxiBytes-1:0]  beat_data_i,
  input logic                   header_o,
  input logic [16*AxiBytes-1:0] groups_o
);

  localparam int HeaderBytes = BlockOut / 2 > AxiBytes ? BlockOut / 2 : AxiBytes;
  localparam int HeaderBeats = HeaderBytes / AxiBytes;
  localparam int EntryBeats = HeaderBeats + BlockIn * BlockOut / 2 / AxiBytes;

  bit started = 1'b0;
  int beat = 0;  // of the entry
  int scale[BlockOut];

  function automatic logic [7:0] weight(input int nibble);
    int row;
    row = ((beat - HeaderBeats) * 2 * int'(AxiBytes) + nibble) / int'(BlockIn);
    return 8'(int'($signed(beat_data_i[4*nibble+:4])) * scale[row]);
  endfunction

  always @(posedge clk_i) begin
    if (started && fire_i && beat_valid_i) begin
      `TSR_ASSERT(header_o == (beat < HeaderBeats), "a header of packed weights out of place")
      if (beat >= HeaderBeats)
        for (int nibble = 0; nibble < 2 * int'(AxiBytes); nibble++)
          `TSR_ASSERT(groups_o[8*nibble+:8] == weight(nibble), "a weight is not its scale times its bits")
      else
        for (int nibble = 0; nibble < 2 * int'(AxiBytes); nibble++)
          if (beat * 2 * int'(AxiBytes) + nibble < int'(BlockOut))
            scale[beat*2*int'(AxiBytes)+nibble] = 1 + int'(beat_data_i[4*nibble+:4]);
      beat = beat == EntryBeats - 1 ? 0 : beat + 1;
    end
    if (begin_i) begin
      started = 1'b1;
      beat = 0;
    end
  end

endmodule

bind tsr_unpack tsr_assert_unpack #(.AxiBytes(AxiBytes), .BlockIn(BlockIn), .BlockOut(BlockOut)) u_assert (.*);
