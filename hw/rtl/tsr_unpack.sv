// SPDX-License-Identifier: Apache-2.0
// Weights of 4 bits become bytes. Enters: the beats of packed entries (isa/semantics.md, LOAD), each a header of scales and
// then weights. Leaves: beats that are of a header, and of each other beat the bytes of two neighbouring groups of WGT.
// The scales stand in a shift register, so that those of the rows in hand are at its lower end.
//
// Latency: combinational from beat_data_i to groups_o; a header counts from the next beat on. Throughput: one beat a
// cycle. Back-pressure: fire_i. Reset: none, begin_i is there before the first beat. Legal: AxiBytes, BlockIn and
// BlockOut powers of two; an entry has at least two beats. Timing: two additions of eight bits.
module tsr_unpack #(
  parameter int unsigned AxiBytes = 8,
  parameter int unsigned BlockIn  = 8,
  parameter int unsigned BlockOut = 8
) (
  input  logic                   clk_i,
  input  logic                   begin_i,      // an entry's first beat is next
  input  logic                   fire_i,       // the beat is taken
  input  logic                   beat_valid_i,
  input  logic [8*AxiBytes-1:0]  beat_data_i,
  output logic                   header_o,     // the beat is of a header
  output logic [16*AxiBytes-1:0] groups_o      // its weights as bytes, where it is not
);

  localparam int unsigned Weights = 2 * AxiBytes;  // of a beat
  localparam int unsigned Beats = BlockIn * BlockOut / Weights;
  localparam int unsigned HeaderBeats = BlockOut > Weights ? BlockOut / Weights : 1;
  localparam int unsigned HeaderRows = BlockOut / HeaderBeats;  // whose scales stand in a beat of the header
  localparam int unsigned Rows = BlockIn < Weights ? Weights / BlockIn : 1;        // that a beat has a part of
  localparam int unsigned RowBeats = BlockIn > Weights ? BlockIn / Weights : 1;    // of a row
  localparam int unsigned CountBits = $clog2(Beats > HeaderBeats ? Beats : HeaderBeats) + 1;
  if (Beats == 0 || Beats * Weights != BlockIn * BlockOut) $error("tsr_unpack: an entry of WGT has at least two beats");

  // Beats behind this one in the header, or of the weights.
  logic header_q;
  logic [CountBits-1:0] left_q;
  logic row_ends;
  assign header_o = header_q;
  assign row_ends = (left_q & CountBits'(RowBeats - 1)) == '0;
  always_ff @(posedge clk_i) begin
    if (begin_i) begin
      header_q <= 1'b1;
      left_q <= CountBits'(HeaderBeats - 1);
    end else if (fire_i && left_q == '0) begin
      header_q <= !header_q;
      left_q <= header_q ? CountBits'(Beats - 1) : CountBits'(HeaderBeats - 1);
    end else if (fire_i) begin
      left_q <= left_q - 1'b1;
    end
  end

  // Scales of five bits; in the header one less stands in four.
  logic [5*HeaderRows-1:0] scales;
  logic [5*BlockOut-1:0] scales_q;
  always_comb begin
    for (int unsigned r = 0; r < HeaderRows; r++) begin
      scales[5*r+:5] = {1'b0, beat_data_i[4*r+:4]};
      for (int unsigned k = 0; k < 5; k++) scales[5*r+k] ^= ~beat_data_i[4*r+:4] << (4 - k) == '0;
    end
  end
  always_ff @(posedge clk_i) begin
    if (fire_i && header_q) scales_q <= (5 * BlockOut)'({scales, scales_q} >> (5 * HeaderRows));
    else if (fire_i && row_ends) scales_q <= scales_q >> (5 * Rows);
  end

  logic [8*AxiBytes-1:0] weights;
  always_comb begin
    weights = '0;
    if (!tsr_isa_pkg::Simulated || (beat_valid_i && !header_q)) weights = beat_data_i;
  end
  for (genvar e = 0; e < Weights; e++) begin : gen_product
    logic [9:0] product;
    logic unused_product;
    tsr_lut_multiply #(.Width(6), .ByWidth(4)) u_multiply (
      .value_i({1'b0, scales_q[5*(e/BlockIn)+:5]}), .by_i(weights[4*e+:4]), .addend_i(2'd0), .product_o(product)
    );
    assign groups_o[8*e+:8] = product[7:0];
    assign unused_product = &{1'b0, product[9:8]};
  end

endmodule
