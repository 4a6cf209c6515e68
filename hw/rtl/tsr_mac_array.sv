// SPDX-License-Identifier: Apache-2.0
// The multipliers of the matrix engine and the trees that add their products. Enters: in each cycle the operands of a
// tile (tsr_window), a WGT entry and the zero point of its bytes. Leaves: for each row and output lane the sum of
// operand x (weight - zero point), over BlockIn operands (dense) or over the taps of the lane (depthwise).
//
// Method: one multiplier makes two products of an operand. It multiplies it by the word {hi, fill, lo}, where hi is a
// signed weight and lo one that is offset to be unsigned; the products stand Field bits apart. In dense mode fill is
// all ones, so that lo less 256 is multiplied and hi plus 1. Were it a constant 0, the word's register would have
// fewer bits than the multiplier's, and Yosys would leave it outside of the DSP slice. A chain of four such words of
// products is added before they are taken apart. The sum of the lower ones then has two bits more than a field; these
// are the upper field less the upper sum, of which the lowest two bits are found beside it, from those of operands and
// weights. The upper sum is its field less these two bits. Its own lowest two enter with the lower products of the
// same lane, where that chain begins; so only the other bits are left to be added, and whether one was taken off them.
// Lanes 2 p and 2 p + 1 share multipliers: `hi` is the even lane's in the lower half of a row's bytes and the odd
// lane's in the upper half. So each lane has BlockIn / 2 multipliers whose `hi` is its own. In depthwise mode, where
// lanes share no operand, they take its taps, fill is 0 and `lo` does not count. Taps beyond BlockIn / 2 have
// multipliers of their own, in look-up tables, since a DSP slice would make one product there. Tap u, counted from the
// last, meets byte u of an even lane's row and byte (u + BlockIn / 2) modulo BlockIn of an odd one's. The offsets of
// `hi` and `lo` and the zero point add constants times sums of operands to each dense sum: that is found once for each
// row and subtracted at the end. Depthwise weights are signed and have no zero point.
//
// There are two forms. With AsSynthesised the module is built as told. Without it the sums are computed plainly, from
// words that a simulator turns into vector instructions, and wait in a delay line. hw/synth/check.py proves
// both equal at small widths, and tests/rtl_engines runs both.
//
// Latency: load + multiply + pair + tree cycles of gemm_tile in isa/timing.toml, from valid_i to sums_o. Throughput:
// one tile a cycle. Back-pressure: none. Reset: for the delay line's address only. Timing: a stage is one selection,
// one product, two sums of products one after another in DSP slices, or one addition of up to 22 bits. Legal: BlockIn
// a power of two from 4 on, BlockOut one from 2 on; Taps from 2 to BlockIn; WordBits, of a sum, 32 but for proofs.
module tsr_mac_array #(
  parameter int unsigned Batch         = 1,
  parameter int unsigned BlockIn       = 8,
  parameter int unsigned BlockOut      = 8,
  parameter int unsigned Taps          = 6,
  parameter int unsigned InputBits     = 9,
  parameter int unsigned WeightBits    = 8,
  parameter int unsigned OperandBits   = 9,
  parameter int unsigned WordBits      = 32,
  parameter int unsigned AsSynthesised = 1,
  localparam int unsigned Lanes        = BlockIn < BlockOut ? BlockIn : BlockOut
) (
  input  logic                                    clk_i,
  input  logic                                    rst_ni,
  input  logic                                    valid_i,
  input  logic                                    dense_i,
  input  logic [Taps-1:0]                         take_i,     // depthwise: the taps that meet their operand
  input  logic [Taps-1:0]                         one_i,      // or the newest one
  input  logic [OperandBits*Batch*BlockIn-1:0]    newest_i,
  input  logic [OperandBits*Batch*Lanes*(Taps-1)-1:0] window_i,  // [tap - 1][row][lane]; tap 0 is in newest_i
  input  logic [WeightBits*BlockIn*BlockOut-1:0]  weights_i,
  input  logic                                    unsigned_i,
  input  logic signed [WeightBits:0]              zero_i,
  output logic [WordBits*Batch*BlockOut-1:0]      sums_o
);

  localparam int unsigned Tree = tsr_isa_pkg::TimingGemmTileTree;
  localparam int unsigned Half = BlockIn / 2;

  if (BlockIn < 4 || (BlockIn & (BlockIn - 1)) != 0) $error("tsr_mac_array: BlockIn is no power of two from 4 on");
  if (BlockOut < 2 || (BlockOut & (BlockOut - 1)) != 0) $error("tsr_mac_array: BlockOut is no power of two from 2 on");
  if (Taps < 2 || Taps > BlockIn) $error("tsr_mac_array: Taps is not from 2 to BlockIn");

  if (AsSynthesised != 0) begin : gen_made
    localparam int unsigned Field = InputBits + WeightBits;
    localparam int unsigned PackedBits = Field + WeightBits;
    localparam int unsigned ProductBits = PackedBits + InputBits;
    localparam int unsigned ChainBits = ProductBits + 2;
    localparam int unsigned Chain = Half < 4 ? Half : 4;         // multipliers whose products one sum has
    localparam int unsigned Terms = Half / Chain;                // of a lane, each of two chains
    localparam int unsigned Extras = Taps > Half ? Taps - Half : 0;
    localparam int unsigned TermBits = Field + 3;                // of the first level of the tree
    localparam int unsigned SumBits = TermBits + $clog2(Terms);
    localparam int unsigned OperandSumBits = InputBits + $clog2(Half);

    // Numbers of two bits in gates: Yosys makes a carry chain of each addition.
    function automatic logic [1:0] add(input logic [1:0] a, input logic [1:0] b);
      add = {a[1] ^ b[1] ^ (a[0] & b[0]), a[0] ^ b[0]};
    endfunction
    function automatic logic [1:0] multiply(input logic [1:0] a, input logic [1:0] b);
      multiply = {(a[1] & b[0]) ^ (a[0] & b[1]), a[0] & b[0]};
    endfunction

    logic dense_1_q, dense_2_q, dense_3_q, dense_4_q, dense_5_q;
    logic signed [WeightBits-1:0] rest_1_q, rest_2_q, rest_3_q, rest_4_q;
    always_ff @(posedge clk_i) begin
      dense_1_q <= dense_i;
      dense_2_q <= dense_1_q;
      dense_3_q <= dense_2_q;
      dense_4_q <= dense_3_q;
      dense_5_q <= dense_4_q;
      rest_1_q <= {zero_i[WeightBits-1] ^ unsigned_i, zero_i[WeightBits-2:0]};  // as unsigned weights are offset too
      rest_2_q <= rest_1_q;
      rest_3_q <= rest_2_q;
      rest_4_q <= rest_3_q;
    end

    for (genvar b = 0; b < Batch; b++) begin : gen_row
      // The operands of a multiplier of this row.
      logic [InputBits*BlockIn-1:0] newest;
      logic [InputBits*Lanes*Taps-1:0] window;
      for (genvar k = 0; k < BlockIn; k++) begin : gen_newest
        assign newest[InputBits*k+:InputBits] = newest_i[OperandBits*(b*BlockIn+k)+:InputBits];
      end
      for (genvar n = 0; n < Lanes * Taps; n++) begin : gen_window
        if (n < Lanes) begin : gen_last
          assign window[InputBits*n+:InputBits] = newest[InputBits*n+:InputBits];
        end else begin : gen_before
          assign window[InputBits*n+:InputBits] =
              window_i[OperandBits*(((n/Lanes-1)*Batch+b)*Lanes+n%Lanes)+:InputBits];
        end
      end

      // What the constants add: three cycles for the sums of the operands, one each for their sum, product and result.
      logic signed [OperandSumBits-1:0] first_3, second_3, first_4_q, second_4_q;
      logic signed [OperandSumBits:0] all_4_q;
      logic signed [OperandSumBits+WeightBits:0] product_5_q;
      logic signed [SumBits-1:0] even_5_q, odd_5_q, even_6_q, odd_6_q;
      tsr_sum_tree #(.Inputs(Half), .Width(InputBits), .Stages(3)) u_first (
        .clk_i, .data_i(newest[0+:InputBits*Half]), .sum_o(first_3)
      );
      tsr_sum_tree #(.Inputs(Half), .Width(InputBits), .Stages(3)) u_second (
        .clk_i, .data_i(newest[InputBits*Half+:InputBits*Half]), .sum_o(second_3)
      );
      always_ff @(posedge clk_i) begin
        all_4_q <= (OperandSumBits + 1)'(first_3) + (OperandSumBits + 1)'(second_3);
        first_4_q <= first_3;
        second_4_q <= second_3;
        product_5_q <= all_4_q * rest_4_q;
        even_5_q <= SumBits'(first_4_q) - (SumBits'(second_4_q) <<< (WeightBits - 1));
        odd_5_q <= SumBits'(second_4_q) - (SumBits'(first_4_q) <<< (WeightBits - 1));
        if (!dense_5_q) begin
          even_6_q <= '0;
          odd_6_q <= '0;
        end else begin
          even_6_q <= SumBits'(product_5_q) + even_5_q;
          odd_6_q <= SumBits'(product_5_q) + odd_5_q;
        end
      end

      // Dense: what fill adds to the lowest bits of the upper sums, the same for all lanes.
      logic [2*2*Terms-1:0] filled_1_q;
      always_ff @(posedge clk_i) begin
        for (int unsigned g = 0; g < 2 * Terms; g++) begin
          logic [1:0] filled;
          filled = 2'd0;
          for (int unsigned j = 0; j < Chain; j++) filled = add(filled, newest[InputBits*(Chain*g+j)+:2]);
          filled_1_q[2*g+:2] <= dense_i ? filled : 2'd0;
        end
      end

      for (genvar p = 0; p < BlockOut / 2; p++) begin : gen_lanes
        // Of each chain: its sum, the lowest two bits of the sum of the upper products (`residue`), and the two bits of the
        // sum of the lower ones that are beyond its field (`above`).
        logic [ChainBits*2*Terms-1:0] sums_4;
        logic [2*2*Terms-1:0] residue_2_q, residue_3_q, residue_4_q, above_4;
        always_ff @(posedge clk_i) begin
          residue_3_q <= residue_2_q;
          residue_4_q <= residue_3_q;
        end
        for (genvar g = 0; g < 2 * Terms; g++) begin : gen_chain
          localparam int unsigned Other = (g + Terms) % (2 * Terms);  // whose upper sum goes to the same lane
          logic [2*Chain-1:0] operands_1_q, weights_1_q;              // of each multiplier the lowest two bits
          logic signed [ChainBits-1:0] begin_2, first_2, pair_2, pair_3_q, sum_4_q;
          for (genvar j = 0; j < Chain; j++) begin : gen_multiplier
            localparam int unsigned K = Chain * g + j;
            localparam int unsigned Odd = K < Half ? 0 : 1;  // the lane whose weight is the upper one
            localparam int unsigned Tap = K % Half;
            localparam int unsigned Lane = (2 * p + Odd) % Lanes;
            logic [InputBits-1:0] operand;
            logic [WeightBits-1:0] hi, lo;
            logic signed [InputBits-1:0] operand_1_q, operand_q;
            logic signed [PackedBits-1:0] word_1_q, word_q;
            logic signed [ProductBits-1:0] product_q;
            if (Tap < Taps) begin : gen_tap
              assign operand = ({InputBits{dense_i}} & newest[InputBits*K+:InputBits]) |
                  ({InputBits{take_i[Tap]}} & window[InputBits*(Tap*Lanes+Lane)+:InputBits]) |
                  ({InputBits{one_i[Tap]}} & newest[InputBits*Lane+:InputBits]);
            end else begin : gen_dense
              assign operand = {InputBits{dense_i}} & newest[InputBits*K+:InputBits];
            end
            assign hi = weights_i[WeightBits*((2*p+Odd)*BlockIn+K)+:WeightBits];
            assign lo = weights_i[WeightBits*((2*p+1-Odd)*BlockIn+K)+:WeightBits];
            always_ff @(posedge clk_i) begin
              operand_1_q <= operand;
              word_1_q <= {hi[WeightBits-1] ^ unsigned_i, hi[WeightBits-2:0], {InputBits{dense_i}},
                           lo[WeightBits-1] ^ !unsigned_i, lo[WeightBits-2:0]};
              operands_1_q[2*j+:2] <= operand[1:0];
              weights_1_q[2*j+:2] <= {hi[1] ^ (WeightBits == 2 && unsigned_i), hi[0]};
              product_q <= operand_q * word_q;
            end
            if (j < 2) begin : gen_early
              assign operand_q = operand_1_q;
              assign word_q = word_1_q;
            end else begin : gen_late  // added a cycle later; a slice has the registers
              always_ff @(posedge clk_i) begin
                operand_q <= operand_1_q;
                word_q <= word_1_q;
              end
            end
          end
          always_ff @(posedge clk_i) begin
            logic [1:0] residue;
            residue = filled_1_q[2*g+:2];
            for (int unsigned j = 0; j < Chain; j++) residue = add(residue, multiply(operands_1_q[2*j+:2], weights_1_q[2*j+:2]));
            residue_2_q[2*g+:2] <= residue;
          end
          assign begin_2 = {{ChainBits-Field-1{1'b1}}, {Field-1{1'b0}}, residue_2_q[2*Other+:2]};
          assign first_2 = ChainBits'(gen_multiplier[0].product_q) + begin_2;
          assign pair_2 = first_2 + ChainBits'(gen_multiplier[1].product_q);
          if (Chain > 2) begin : gen_four
            logic signed [ChainBits-1:0] three_3;
            assign three_3 = pair_3_q + ChainBits'(gen_multiplier[2].product_q);
            always_ff @(posedge clk_i) sum_4_q <= three_3 + ChainBits'(gen_multiplier[3].product_q);
          end else begin : gen_two
            always_ff @(posedge clk_i) sum_4_q <= pair_3_q;
          end
          always_ff @(posedge clk_i) pair_3_q <= pair_2;
          assign sums_4[ChainBits*g+:ChainBits] = sum_4_q;
          assign above_4[2*g+:2] = {sum_4_q[Field+1] ^ residue_4_q[2*g+1] ^ (!sum_4_q[Field] && residue_4_q[2*g]),
                                    sum_4_q[Field] ^ residue_4_q[2*g]};
        end

        for (genvar o = 0; o < 2; o++) begin : gen_lane
          localparam int unsigned Lane = (2 * p + o) % Lanes;
          logic [TermBits*Terms-1:0] terms_5_q;
          logic signed [SumBits-1:0] sum_6, sum_7_q;
          for (genvar g = 0; g < Terms; g++) begin : gen_term
            localparam int unsigned Upper = g + o * Terms;        // chain whose upper sum is this lane's
            localparam int unsigned Lower = g + (1 - o) * Terms;  // chain whose lower sum is
            logic [Field:0] extra_4;
            logic [Field-1:0] lower_4;
            logic [TermBits-2:0] left, right, term;
            logic [1:0] field, residue;
            logic carry, unused_term;
            if (2 * g < Extras) begin : gen_extra  // one tap or two with multipliers of their own
              logic [2*Field-1:0] products_3;
              logic [Field:0] sum_4_q;
              for (genvar j = 0; j < 2; j++) begin : gen_multiplier
                localparam int unsigned Tap = Half + 2 * g + j;
                if (Tap < Taps) begin : gen_product
                  logic [WeightBits-1:0] weight;
                  logic [InputBits-1:0] operand_1_q, operand_2_q;
                  logic [WeightBits-1:0] weight_1_q, weight_2_q;
                  logic [Field-1:0] product_2, product_3_q;
                  assign weight = weights_i[WeightBits*((2*p+o)*BlockIn+(Tap+o*Half)%BlockIn)+:WeightBits];
                  always_ff @(posedge clk_i) begin
                    operand_1_q <= ({InputBits{take_i[Tap]}} & window[InputBits*(Tap*Lanes+Lane)+:InputBits]) |
                        ({InputBits{one_i[Tap]}} & newest[InputBits*Lane+:InputBits]);
                    weight_1_q <= weight;
                    operand_2_q <= operand_1_q;
                    weight_2_q <= weight_1_q;
                    product_3_q <= product_2;
                  end
                  tsr_lut_multiply #(.Width(InputBits), .ByWidth(WeightBits)) u_product (
                    .value_i(operand_2_q), .by_i(weight_2_q), .addend_i(j == 0 ? residue_2_q[2*Upper+:2] : 2'd0),
                    .product_o(product_2)
                  );
                  assign products_3[Field*j+:Field] = product_3_q;
                end else begin : gen_none
                  assign products_3[Field*j+:Field] = '0;
                end
              end
              always_ff @(posedge clk_i) begin
                sum_4_q <= (Field + 1)'($signed(products_3[0+:Field])) + (Field + 1)'($signed(products_3[Field+:Field]));
              end
              assign extra_4 = sum_4_q;
            end else begin : gen_no_extra
              assign extra_4 = (Field + 1)'(residue_4_q[2*Upper+:2]);
            end
            // The chain began with -1 in these bits of its field, so they are one too few where the lower sum has not
            // carried into them.
            assign field = sums_4[ChainBits*Upper+Field+:2];
            assign residue = residue_4_q[2*Upper+:2];
            assign carry = (field[1] && !residue[1]) || ((field[1] || !residue[1]) && (field[0] || !residue[0]));
            assign lower_4 = {!above_4[2*Lower+1], above_4[2*Lower], sums_4[ChainBits*Lower+2+:Field-2]};
            // One adder: the carry enters below the lowest bit. It is written as a difference, of which Yosys puts the
            // first operand on the carry chain directly and the choice for the second one into the chain's own tables.
            assign left = {~((TermBits-2)'($signed(dense_4_q ? lower_4 : {extra_4[Field], extra_4[Field:2]}))), 1'b1};
            assign right = {(TermBits-2)'($signed(sums_4[ChainBits*Upper+Field+2+:ChainBits-Field-2])), carry};
            assign term = right - left;
            assign unused_term = term[0];
            always_ff @(posedge clk_i) begin
              terms_5_q[TermBits*g+:TermBits] <= {term[TermBits-2:1], dense_4_q ? sums_4[ChainBits*Lower+:2] : extra_4[1:0]};
            end
          end
          tsr_sum_tree #(.Inputs(Terms), .Width(TermBits), .Stages(Tree - 3)) u_sum (
            .clk_i, .data_i(terms_5_q), .sum_o(sum_6)
          );
          always_ff @(posedge clk_i) sum_7_q <= sum_6 - (o == 0 ? even_6_q : odd_6_q);
          assign sums_o[WordBits*(b*BlockOut+2*p+o)+:WordBits] = WordBits'(sum_7_q);
        end
      end
    end

    logic unused;
    assign unused = &{1'b0, rst_ni, valid_i, newest_i, window_i, zero_i};
  end else begin : gen_plain
    localparam int unsigned Words = BlockIn / 4;
    localparam int unsigned AccLanes = Batch * BlockOut;
    localparam int unsigned Waits = tsr_isa_pkg::TimingGemmTileLoad + tsr_isa_pkg::TimingGemmTileMultiply +
        tsr_isa_pkg::TimingGemmTilePair + Tree - 2;
    localparam logic [WordBits-1:0] Flip = WordBits'(1) << (WeightBits - 1);

    // Byte k of row o meets word k / 4 of row o of plane k % 4: so neighbours are treated alike.
    logic [WordBits*4*AccLanes*Words-1:0] operands_q;
    logic [WordBits*4*BlockOut*Words-1:0] weights_q;
    logic operands_valid_q;
    always_ff @(posedge clk_i) begin
      logic [WordBits*BlockIn-1:0] row;
      logic [WordBits-1:0] zero, flip;
      operands_valid_q <= valid_i;
      if (valid_i) begin
        flip = unsigned_i ? '0 : Flip;
        zero = WordBits'(zero_i) + flip;
        for (int unsigned j = 0; j < 4; j++) begin
          for (int unsigned n = 0; n < BlockOut * Words; n++) begin
            weights_q[WordBits*(j*BlockOut*Words+n)+:WordBits] <=
                (WordBits'(weights_i[WeightBits*(4*n+j)+:WeightBits]) ^ flip) - zero;
          end
        end
        if (dense_i) begin
          for (int unsigned b = 0; b < Batch; b++) begin
            for (int unsigned k = 0; k < BlockIn; k++) begin
              row[WordBits*(k%4*Words+k/4)+:WordBits] = WordBits'($signed(newest_i[OperandBits*(b*BlockIn+k)+:OperandBits]));
            end
            for (int unsigned j = 0; j < 4; j++) begin
              for (int unsigned o = 0; o < BlockOut; o++) begin
                operands_q[WordBits*((j*Batch+b)*BlockOut+o)*Words+:WordBits*Words] <= row[WordBits*j*Words+:WordBits*Words];
              end
            end
          end
        end else begin
          operands_q <= '0;
          for (int unsigned t = 0; t < Taps; t++) begin
            if (t != 0 && take_i[t]) begin
              for (int unsigned n = 0; n < AccLanes; n++) begin
                operands_q[WordBits*(((t+n%2*Half)%BlockIn%4*AccLanes+n)*Words+(t+n%2*Half)%BlockIn/4)+:WordBits] <= WordBits'(
                    $signed(window_i[OperandBits*(((t-1)*Batch+n/BlockOut)*Lanes+n%Lanes)+:OperandBits]));
              end
            end
            if (one_i[t] || (t == 0 && take_i[0])) begin
              for (int unsigned n = 0; n < AccLanes; n++) begin
                operands_q[WordBits*(((t+n%2*Half)%BlockIn%4*AccLanes+n)*Words+(t+n%2*Half)%BlockIn/4)+:WordBits] <= WordBits'(
                    $signed(newest_i[OperandBits*(n/BlockOut*BlockIn+n%Lanes)+:OperandBits]));
              end
            end
          end
        end
      end
    end

    logic [WordBits*AccLanes-1:0] sums_q;
    logic sums_valid_q;
    always_ff @(posedge clk_i) begin
      logic [WordBits*AccLanes*Words-1:0] partial;
      logic signed [WordBits-1:0] sum;
      sums_valid_q <= operands_valid_q;
      if (operands_valid_q) begin
        for (int unsigned b = 0; b < Batch; b++) begin
          for (int unsigned n = 0; n < BlockOut * Words; n++) begin
            sum = '0;
            for (int unsigned j = 0; j < 4; j++) begin
              sum = sum + $signed(operands_q[WordBits*((j*Batch+b)*BlockOut*Words+n)+:WordBits]) *
                  $signed(weights_q[WordBits*(j*BlockOut*Words+n)+:WordBits]);
            end
            partial[WordBits*(b*BlockOut*Words+n)+:WordBits] = sum;
          end
        end
        for (int unsigned l = 0; l < AccLanes; l++) begin
          sum = '0;
          for (int unsigned w = 0; w < Words; w++) sum = sum + $signed(partial[WordBits*(l*Words+w)+:WordBits]);
          sums_q[WordBits*l+:WordBits] <= sum;
        end
      end
    end

    tsr_delay #(.Width(WordBits * AccLanes), .Stages(Waits)) u_sums (
      .clk_i, .rst_ni, .enable_i(1'b1), .valid_i(sums_valid_q), .data_i(sums_q), .data_o(sums_o)
    );
  end

endmodule
