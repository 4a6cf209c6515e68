// SPDX-License-Identifier: Apache-2.0
// One core's side of tsr_share_read. Enters: the core's read requests, and the wide beats that memory answers. Leaves:
// requests in wide beats, each offered once there is room for all of its answer, and the core's own beats.
//
// Latency: a request can be granted from the cycle after it came on; the first beat of a wide one is on the core's bus
// two cycles after it was on memory's. Throughput: one request, one wide beat and one of the core's beats a cycle.
// Back-pressure: the core has at most ReadsInFlight bursts outstanding, so that requests are always taken; wide beats are
// always taken, since a grant takes their room. Every output to the core depends on state only. Reset: synchronous,
// active low. Legal: MemoryBytes a power of two, AxiBytes to 128. Timing: a comparison of ten bits in front of the grant;
// a block RAM and the choice of a lane in front of the core's bus.
module tsr_share_reader #(
  parameter int unsigned AxiBytes      = 8,
  parameter int unsigned MemoryBytes   = 8,
  parameter int unsigned ReadsInFlight = 16
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,
  input  logic                     c_arvalid_i,
  output logic                     c_arready_o,
  input  logic [63:0]              c_araddr_i,
  input  logic [7:0]               c_arlen_i,
  output logic                     c_rvalid_o,
  input  logic                     c_rready_i,
  output logic [8*AxiBytes-1:0]    c_rdata_o,
  output logic [1:0]               c_rresp_o,
  output logic                     c_rlast_o,
  output logic                     request_o,  // there is a request
  output logic                     want_o,     // and room for its answer
  output logic [63:0]              addr_o,
  output logic [7:0]               len_o,      // wide beats - 1
  input  logic                     take_i,     // it is granted
  input  logic                     valid_i,    // a wide beat of this core
  input  logic [8*MemoryBytes-1:0] data_i,
  input  logic                     error_i
);

  localparam int unsigned Words = tsr_isa_pkg::TimingInterconnectWords;
  localparam int unsigned PlaceBits = $clog2(Words);
  localparam int unsigned Ratio = MemoryBytes / AxiBytes;
  localparam int unsigned LaneBits = $clog2(Ratio);
  localparam int unsigned WideBits = $clog2(MemoryBytes);
  if (MemoryBytes < AxiBytes || MemoryBytes > 128 || MemoryBytes != 1 << WideBits)
    $error("tsr_share_reader: MemoryBytes is a power of two, AxiBytes to 128");
  if (Words != 1 << PlaceBits || Words < 2 * tsr_isa_pkg::TimingBusBurstBeats)
    $error("tsr_share_reader: TimingInterconnectWords is a power of two, at least twice TimingBusBurstBeats");

  // A burst in wide beats.
  logic [LaneBits+7:0] last_lane, lane;
  assign lane = (LaneBits + 8)'((LaneBits + 8 + $clog2(AxiBytes))'(c_araddr_i[WideBits-1:0]) >> $clog2(AxiBytes));
  logic carry;  // of bursts that would leave their page
  assign {carry, last_lane} = {1'b0, lane} + (LaneBits + 9)'(c_arlen_i);
  tsr_queue #(.Width(72 - WideBits), .Depth(ReadsInFlight), .HeadBits(8)) u_requests (
    .clk_i, .rst_ni, .valid_i(c_arvalid_i), .data_i({c_araddr_i[63:WideBits], last_lane[LaneBits+:8]}),
    .ready_o(c_arready_o), .valid_o(request_o), .data_o({addr_o[63:WideBits], len_o}), .ready_i(take_i)
  );
  assign addr_o[WideBits-1:0] = '0;

  logic [PlaceBits:0] free_q;  // wide beats
  logic pop;
  assign want_o = request_o && free_q > (PlaceBits + 1)'(len_o);
  always_ff @(posedge clk_i) begin
    if (!rst_ni) free_q <= (PlaceBits + 1)'(Words);
    else if (take_i || pop) free_q <= free_q + (take_i ? {{(PlaceBits - 7) {1'b1}}, ~len_o} : '0) + (PlaceBits + 1)'(pop);
  end

  // Wide beats: a block RAM, whose output register has the oldest one.
  (* ram_style = "block" *) logic [8*MemoryBytes:0] mem[Words];
  logic [PlaceBits:0] write_q, read_q;
  logic [8*MemoryBytes:0] word_q;
  logic word_valid_q, fetch;
  assign fetch = write_q != read_q && (!word_valid_q || pop);
  always_ff @(posedge clk_i) begin
    if (valid_i) mem[write_q[PlaceBits-1:0]] <= {error_i, data_i};
  end
  always_ff @(posedge clk_i) begin
    if (fetch) word_q <= mem[read_q[PlaceBits-1:0]];
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      write_q <= '0;
      read_q <= '0;
      word_valid_q <= 1'b0;
    end else begin
      if (valid_i) write_q <= write_q + 1'b1;
      if (fetch) read_q <= read_q + 1'b1;
      if (fetch) word_valid_q <= 1'b1;
      else if (pop) word_valid_q <= 1'b0;
    end
  end

  // The core's beats.
  logic [7:0] beat_q, length;
  logic shape_valid, shapes_ready_unused, fire, last;
  logic [WideBits-1:0] at;  // of the beat within its wide one, in beats
  if (LaneBits > 0) begin : gen_lanes
    logic [LaneBits-1:0] from, here;
    tsr_queue #(.Width(LaneBits + 8), .Depth(ReadsInFlight)) u_shapes (
      .clk_i, .rst_ni, .valid_i(c_arvalid_i), .data_i({lane[LaneBits-1:0], c_arlen_i}), .ready_o(shapes_ready_unused),
      .valid_o(shape_valid), .data_o({from, length}), .ready_i(fire && last)
    );
    assign here = from + beat_q[LaneBits-1:0];
    assign at = WideBits'(here);
    assign pop = fire && (last || here == '1);
  end else begin : gen_no_lanes
    tsr_queue #(.Width(8), .Depth(ReadsInFlight)) u_shapes (
      .clk_i, .rst_ni, .valid_i(c_arvalid_i), .data_i(c_arlen_i), .ready_o(shapes_ready_unused), .valid_o(shape_valid),
      .data_o(length), .ready_i(fire && last)
    );
    assign at = '0;
    assign pop = fire;
  end
  assign c_rvalid_o = word_valid_q && shape_valid;
  assign fire = c_rvalid_o && c_rready_i;
  assign last = beat_q == length;
  assign c_rlast_o = last;
  assign c_rresp_o = {word_q[8*MemoryBytes], 1'b0};
  tsr_choose #(.Width(8 * AxiBytes), .Count(Ratio)) u_lane (
    .words_i(word_q[8*MemoryBytes-1:0]), .number_i(at[(LaneBits>0?LaneBits:1)-1:0]), .word_o(c_rdata_o)
  );
  always_ff @(posedge clk_i) begin
    if (!rst_ni) beat_q <= '0;
    else if (fire) beat_q <= last ? '0 : beat_q + 8'd1;
  end

  logic unused;
  assign unused = &{1'b0, carry, lane, last_lane, shapes_ready_unused, at};

endmodule
