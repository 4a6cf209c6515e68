// SPDX-License-Identifier: Apache-2.0
// Both forms of tsr_mac_array side by side, for a proof that they are equal (hw/synth/check.py). Enters: anything, of
// which what an instruction cannot ask for is masked here. Leaves: equal_o, which is 1 once both have been filled.
module equal_mac_array #(
  parameter int unsigned Batch      = 1,
  parameter int unsigned BlockIn    = 4,
  parameter int unsigned BlockOut   = 2,
  parameter int unsigned Taps       = 4,
  parameter int unsigned InputBits  = 3,
  parameter int unsigned WeightBits = 2,
  localparam int unsigned Lanes     = BlockIn < BlockOut ? BlockIn : BlockOut
) (
  input  logic                                  clk_i,
  input  logic                                  rst_ni,
  input  logic                                  dense_i,
  input  logic [Taps-1:0]                       take_i,
  input  logic [Taps-1:0]                       one_i,
  input  logic [InputBits*Batch*BlockIn-1:0]    newest_i,
  input  logic [InputBits*Batch*Lanes*(Taps-1)-1:0] window_i,
  input  logic [WeightBits*BlockIn*BlockOut-1:0] weights_i,
  input  logic                                  unsigned_i,
  input  logic [WeightBits-1:0]                 zero_i,
  output logic                                  equal_o
);

  // A difference of two bytes is never the lowest number of its width.
  logic [InputBits*Batch*BlockIn-1:0] newest;
  logic [InputBits*Batch*Lanes*(Taps-1)-1:0] window;
  localparam logic [InputBits-1:0] Lowest = InputBits'(1) << (InputBits - 1);
  for (genvar n = 0; n < Batch * BlockIn; n++) begin : gen_newest
    assign newest[InputBits*n+:InputBits] =
        newest_i[InputBits*n+:InputBits] == Lowest ? '0 : newest_i[InputBits*n+:InputBits];
  end
  for (genvar n = 0; n < Batch * Lanes * (Taps - 1); n++) begin : gen_window
    assign window[InputBits*n+:InputBits] =
        window_i[InputBits*n+:InputBits] == Lowest ? '0 : window_i[InputBits*n+:InputBits];
  end

  // Dense tiles have no taps, a tap has one operand; depthwise weights are signed and have no zero point; a zero point
  // is of the weights' type.
  logic [Taps-1:0] take, one;
  logic weight_unsigned;
  logic signed [WeightBits:0] zero;
  localparam int unsigned WordBits = InputBits + WeightBits + $clog2(BlockIn) + 1;  // one more than the sums have
  logic [WordBits*Batch*BlockOut-1:0] plain, made;
  assign take = dense_i ? '0 : take_i;
  assign one = dense_i ? '0 : one_i & ~take_i;
  assign weight_unsigned = dense_i && unsigned_i;
  assign zero = dense_i ? {zero_i[WeightBits-1] && !unsigned_i, zero_i} : '0;

  tsr_mac_array #(
    .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .Taps(Taps), .InputBits(InputBits), .WeightBits(WeightBits),
    .OperandBits(InputBits), .WordBits(WordBits), .AsSynthesised(0)
  ) u_plain (
    .clk_i, .rst_ni, .valid_i(1'b1), .dense_i, .take_i(take), .one_i(one), .newest_i(newest), .window_i(window),
    .weights_i, .unsigned_i(weight_unsigned), .zero_i(zero), .sums_o(plain)
  );
  tsr_mac_array #(
    .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .Taps(Taps), .InputBits(InputBits), .WeightBits(WeightBits),
    .OperandBits(InputBits), .WordBits(WordBits), .AsSynthesised(1)
  ) u_made (
    .clk_i, .rst_ni, .valid_i(1'b1), .dense_i, .take_i(take), .one_i(one), .newest_i(newest), .window_i(window),
    .weights_i, .unsigned_i(weight_unsigned), .zero_i(zero), .sums_o(made)
  );

  assign equal_o = plain == made;

endmodule
