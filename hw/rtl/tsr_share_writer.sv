// SPDX-License-Identifier: Apache-2.0
// One core's side of tsr_share_write. Enters: the core's write bursts, and the responses of memory. Leaves: whole bursts
// in wide beats, and the core's responses. Beats are written into a block RAM of wide words, whose ninth bits are the
// bytes' strobes: the first beat of a word clears those of the others.
//
// Latency: a burst can be granted from the cycle after its last beat on; a response reaches the core in the cycle after
// it came. Throughput: one of the core's beats, one wide beat and one response a cycle. Back-pressure: the core has at
// most WritesInFlight bursts outstanding, so that addresses and responses are always taken; its data wait for room.
// Every output to the core depends on state only. Reset: synchronous, active low. Legal: as tsr_share_reader. Timing: the
// place of a beat in front of the block RAM.
module tsr_share_writer #(
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned MemoryBytes    = 8,
  parameter int unsigned WritesInFlight = 8
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,
  input  logic                     c_awvalid_i,
  output logic                     c_awready_o,
  input  logic [63:0]              c_awaddr_i,
  input  logic [7:0]               c_awlen_i,
  input  logic                     c_wvalid_i,
  output logic                     c_wready_o,
  input  logic [8*AxiBytes-1:0]    c_wdata_i,
  input  logic [AxiBytes-1:0]      c_wstrb_i,
  input  logic                     c_wlast_i,
  output logic                     c_bvalid_o,
  input  logic                     c_bready_i,
  output logic [1:0]               c_bresp_o,
  output logic                     want_o,         // a whole burst is there
  output logic [63:0]              addr_o,
  output logic [7:0]               len_o,          // wide beats - 1
  input  logic                     take_i,         // it is granted
  output logic                     word_valid_o,   // its next wide beat
  output logic [8*MemoryBytes-1:0] word_o,
  output logic [MemoryBytes-1:0]   strobe_o,
  input  logic                     word_take_i,
  input  logic                     response_i,
  input  logic                     error_i
);

  localparam int unsigned Words = tsr_isa_pkg::TimingInterconnectWords;
  localparam int unsigned PlaceBits = $clog2(Words);
  localparam int unsigned Ratio = MemoryBytes / AxiBytes;
  localparam int unsigned LaneBits = $clog2(Ratio);
  localparam int unsigned WideBits = $clog2(MemoryBytes);
  localparam int unsigned CountBits = $clog2(WritesInFlight + 1);

  // Bursts in wide beats, until they are sent; where each begins in its first word, until its data have come.
  logic [LaneBits+7:0] last_lane, lane;
  logic requests_valid_unused, carry;
  assign lane = (LaneBits + 8)'((LaneBits + 8 + $clog2(AxiBytes))'(c_awaddr_i[WideBits-1:0]) >> $clog2(AxiBytes));
  assign {carry, last_lane} = {1'b0, lane} + (LaneBits + 9)'(c_awlen_i);
  tsr_queue #(.Width(72 - WideBits), .Depth(WritesInFlight)) u_requests (
    .clk_i, .rst_ni, .valid_i(c_awvalid_i), .data_i({c_awaddr_i[63:WideBits], last_lane[LaneBits+:8]}),
    .ready_o(c_awready_o), .valid_o(requests_valid_unused), .data_o({addr_o[63:WideBits], len_o}), .ready_i(take_i)
  );
  assign addr_o[WideBits-1:0] = '0;

  logic fire, word_end, fresh, known;  // fresh: the first beat of a word; known: the address of this burst has come
  logic [WideBits-1:0] at;             // of the beat within its word, in beats
  if (LaneBits > 0) begin : gen_lanes
    logic first_q, froms_ready_unused;
    logic [LaneBits-1:0] from, here, next_q;
    tsr_queue #(.Width(LaneBits), .Depth(WritesInFlight), .HeadBits(LaneBits)) u_froms (
      .clk_i, .rst_ni, .valid_i(c_awvalid_i), .data_i(lane[LaneBits-1:0]), .ready_o(froms_ready_unused), .valid_o(known),
      .data_o(from), .ready_i(fire && c_wlast_i)
    );
    assign here = first_q ? from : next_q;
    assign at = WideBits'(here);
    assign fresh = first_q || next_q == '0;
    assign word_end = c_wlast_i || here == '1;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) first_q <= 1'b1;
      else if (fire) first_q <= c_wlast_i;
      if (fire) next_q <= here + 1'b1;
    end
    logic unused_lanes;
    assign unused_lanes = froms_ready_unused;
  end else begin : gen_no_lanes
    assign known = 1'b1;
    assign at = '0;
    assign fresh = 1'b1;
    assign word_end = 1'b1;
  end

  logic [PlaceBits:0] used_q, write_q, read_q;
  assign c_wready_o = !used_q[PlaceBits] && known;
  assign fire = c_wvalid_i && c_wready_o;

  logic fetch, word_valid_q;
  assign fetch = write_q != read_q && (!word_valid_q || word_take_i);
`ifdef VERILATOR
  logic [8*MemoryBytes-1:0] mem[Words], word_q, merged;
  logic [MemoryBytes-1:0] strobes[Words], strobe_q;
  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (fire) begin
      merged = mem[write_q[PlaceBits-1:0]];
      for (int unsigned l = 0; l < Ratio; l++) begin
        if (at == WideBits'(l)) merged[8*AxiBytes*l+:8*AxiBytes] = c_wdata_i;
      end
      mem[write_q[PlaceBits-1:0]] <= merged;
      strobes[write_q[PlaceBits-1:0]] <=
          (fresh ? '0 : strobes[write_q[PlaceBits-1:0]]) | (MemoryBytes'(c_wstrb_i) << (AxiBytes * 32'(at)));
    end
  end
  /* verilator lint_on BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (fetch) begin
      word_q <= mem[read_q[PlaceBits-1:0]];
      strobe_q <= strobes[read_q[PlaceBits-1:0]];
    end
  end
  assign word_o = word_q;
  assign strobe_o = strobe_q;
`else
  (* ram_style = "block" *) logic [9*MemoryBytes-1:0] mem[Words];
  logic [9*MemoryBytes-1:0] word_q;
  logic [9*MemoryBytes-1:0] merged;  // the beat in each lane, with its strobes in its own
  always_comb begin
    for (int unsigned l = 0; l < Ratio; l++) begin
      for (int unsigned b = 0; b < AxiBytes; b++)
        merged[9*(AxiBytes*l+b)+:9] = {c_wstrb_i[b] && at == WideBits'(l), c_wdata_i[8*b+:8]};
    end
  end
  always_ff @(posedge clk_i) begin
    if (fire) begin
      for (int unsigned l = 0; l < Ratio; l++) begin
        if (fresh || at == WideBits'(l)) mem[write_q[PlaceBits-1:0]][9*AxiBytes*l+:9*AxiBytes] <= merged[9*AxiBytes*l+:9*AxiBytes];
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (fetch) word_q <= mem[read_q[PlaceBits-1:0]];
  end
  always_comb begin
    for (int unsigned b = 0; b < MemoryBytes; b++) {strobe_o[b], word_o[8*b+:8]} = word_q[9*b+:9];
  end
`endif
  assign word_valid_o = word_valid_q;

  logic [CountBits-1:0] whole_q;  // bursts whose data have come and that are not granted
  logic whole;
  assign whole = fire && c_wlast_i;
  assign want_o = whole_q != '0;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      used_q <= '0;
      write_q <= '0;
      read_q <= '0;
      word_valid_q <= 1'b0;
      whole_q <= '0;
    end else begin
      if (fire && word_end) write_q <= write_q + 1'b1;
      if ((fire && word_end) != word_take_i) used_q <= word_take_i ? used_q - 1'b1 : used_q + 1'b1;
      if (fetch) read_q <= read_q + 1'b1;
      if (fetch) word_valid_q <= 1'b1;
      else if (word_take_i) word_valid_q <= 1'b0;
      if (whole != take_i) whole_q <= take_i ? whole_q - 1'b1 : whole_q + 1'b1;
    end
  end

  logic responses_ready_unused;
  tsr_queue #(.Width(1), .Depth(WritesInFlight)) u_responses (
    .clk_i, .rst_ni, .valid_i(response_i), .data_i(error_i), .ready_o(responses_ready_unused), .valid_o(c_bvalid_o),
    .data_o(c_bresp_o[1]), .ready_i(c_bready_i)
  );
  assign c_bresp_o[0] = 1'b0;

  logic unused;
  assign unused = &{1'b0, carry, lane, last_lane, requests_valid_unused, responses_ready_unused};

endmodule
