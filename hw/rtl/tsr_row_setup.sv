// SPDX-License-Identifier: Apache-2.0
// What the lanes need of a row of ROW_MAP. Enters: the row's scalars (maximum and sum, or moments), while the row
// before is under way. Leaves: its maximum, divisor, factor and addend, each where a stage of the lanes wants it, taken
// over with the row's first group. Method: of a softmax, the reciprocal of the sum from a table. Of a normalisation,
// the products of R with S1 and with the length, which one multiplier makes one after the other, moved by the
// exponent's places.
//
// load_i with scalars_i. make_i holds from the next cycle until ready_o, which is in its first cycle for a softmax, and
// behind seven and the exponent's steps for a normalisation. Where results are made beside sums (beside_i), load_i
// comes with a vector. begins_i: a row's first group is at the lanes. taken_o: the next row's scalars may be loaded, six
// cycles later for a softmax, at once for a normalisation, which has made its own numbers by then. Throughput: a
// softmax's row in eight cycles. Back-pressure: none. Reset: synchronous, active low, of rows that begin.
module tsr_row_setup (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        softmax_i,  // or a normalisation; neither with reducing_i
  input  logic        reducing_i,
  input  logic        beside_i,
  // The next row.
  input  logic        load_i,
  input  logic [31:0] first_i,     // m or S1
  input  logic [30:0] second_i,    // b or R
  input  logic [4:0]  exponent_i,
  input  logic [12:0] length_i,
  input  logic        make_i,
  output logic        ready_o,
  // The row under way.
  input  logic        begins_i,
  output logic        taken_o,
  output logic [7:0]  maximum_o,   // for stage 1
  output logic [23:0] factor_o,    // 3
  output logic        coarse_o,
  output logic [47:0] addend_o,    // 4
  output logic [30:0] divisor_o,   // exponent for stage 3, significand for stage 6
  output logic [11:0] limit_o      // 9: the upper half of the divisor's significand less 1
);

  localparam logic [2:0] ToCentre = 3'd3, ToScale = 3'd4, ToPlace = 3'd5, ToFactor = 3'd6, Made = 3'd7;
  logic [2:0] step_q;
  logic [31:0] scalar_q;
  logic [30:0] sum_b_q;
  logic [4:0] exponent_q;
  logic [12:0] length_q;
  logic [23:0] factor_q;
  logic coarse_q;
  logic [52:0] centre_q;       // the complement of S1 * R * 2^14, shifted
  logic [43:0] scale_q;        // n * R * 2^14, shifted
  logic [47:0] product, addend_q;
  tsr_multiply_add #(.Registers(3'b111)) u_scale (
    .clk_i, .enable_i(1'b1), .x_i(step_q[0] ? {12'd0, length_q} : {{3{scalar_q[21]}}, scalar_q[21:0]}),
    .y_i({1'b0, sum_b_q[16:0]}), .addend_i(48'd0), .sum_o(product)
  );
  // Reciprocals of a softmax's sum: of the largest significand with the same upper bits (tsr_row_map).
  logic [11:0] reciprocals[2048], reciprocal_q;
  initial begin
    for (int unsigned k = 0; k < 2048; k++)
      reciprocals[k] = 12'(((64'd1 << 35) - 64'd1) / ((64'(k) + 64'd2049) * 64'd4096 - 64'd1));
  end
  assign ready_o = make_i && (softmax_i || step_q == Made);
  always_ff @(posedge clk_i) begin
    reciprocal_q <= reciprocals[sum_b_q[22:12]];
    if (load_i) begin
      sum_b_q <= second_i;
      scalar_q[7:0] <= first_i[7:0];
      if (!beside_i) {length_q, exponent_q, scalar_q[31:8]} <= {length_i, exponent_i, first_i[31:8]};
    end
    step_q <= '0;
    if (make_i && !softmax_i) begin
      step_q <= step_q == ToPlace && exponent_q != '0 ? ToPlace : step_q + 3'd1;
      if (step_q == ToCentre) centre_q <= ~{product[38:0], 14'd0};
      if (step_q == ToScale) scale_q <= {product[29:0], 14'd0};
      // One place or four at a time.
      if (step_q == ToPlace && exponent_q != '0) begin
        if (exponent_q[4:2] != '0) begin
          exponent_q <= exponent_q - 5'd4;
          centre_q <= {{4{centre_q[52]}}, centre_q[52:4]};
          scale_q <= {4'd0, scale_q[43:4]};
        end else begin
          exponent_q <= exponent_q - 5'd1;
          centre_q <= {centre_q[52], centre_q[52:1]};
          scale_q <= {1'b0, scale_q[43:1]};
        end
      end
      if (step_q == ToFactor) begin
        coarse_q <= scale_q[43:24] != '0;
        factor_q <= scale_q[43:24] != '0 ? scale_q[31:8] : scale_q[23:0];
        addend_q <= centre_q[47:0] + 48'd1;
      end
    end
    if (softmax_i) factor_q <= {12'd0, reciprocal_q};
  end

  // The row under way. Bit k: its first group is in stage k + 1. Where results are made beside sums each vector is of
  // another row.
  logic [7:0] begins_q;
  logic [7:0] maximum_1_q;
  logic [30:0] divisor_q;
  logic [22:0] significand_3_q;
  logic [23:0] factor_3_q;
  logic coarse_3_q;
  logic [47:0] addend_4_q;
  logic [11:0] limit_9_q;
  logic [11:0] divisor_less;
  assign divisor_less = {1'b1, divisor_q[22:12]} + {12{divisor_q[11:0] == '0}};
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begins_q <= '0;
    else begins_q <= {begins_q[6:0], begins_i};
  end
  always_ff @(posedge clk_i) begin
    if (begins_i) maximum_1_q <= scalar_q[7:0];
    if (reducing_i) {factor_3_q, coarse_3_q} <= '0;
    else if (begins_q[1]) {factor_3_q, coarse_3_q} <= {factor_q, coarse_q && !softmax_i};
    if (begins_q[1]) {divisor_q[30:23], significand_3_q} <= sum_b_q;
    if (reducing_i || softmax_i) addend_4_q <= '0;
    else if (begins_q[2]) addend_4_q <= addend_q;
    if (begins_q[4]) divisor_q[22:0] <= significand_3_q;
    if (begins_q[7]) limit_9_q <= divisor_less;
  end
  assign taken_o = softmax_i ? begins_q[5] : begins_i;
  assign maximum_o = maximum_1_q;
  assign factor_o = factor_3_q;
  assign coarse_o = coarse_3_q;
  assign addend_o = addend_4_q;
  assign divisor_o = divisor_q;
  assign limit_o = limit_9_q;

  logic unused;
  assign unused = &{1'b0, product, scalar_q};

endmodule
