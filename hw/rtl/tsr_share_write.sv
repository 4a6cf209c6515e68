// SPDX-License-Identifier: Apache-2.0
// The write half of the interconnect: the write channels of several cores on one AXI4 master of wider beats. Cores take
// turns, a burst each. A burst is collected before it is granted, and sent whole: a slow core holds up nobody, and there
// is no order between address and data of different cores in which they could wait for each other.
//
// Latency: a grant is on memory's bus in the next cycle, its first wide beat in the one after that; else as
// tsr_share_writer. Throughput: one wide beat a cycle. Back-pressure: at most TimingInterconnectBursts bursts are
// outstanding; responses are always taken. Every output depends on state only. Reset: synchronous, active low; bursts in
// flight must have drained. Timing: from a want to the address that is on its way, a turn and a choice among cores.
module tsr_share_write #(
  parameter int unsigned Cores          = 2,
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned MemoryBytes    = 8,
  parameter int unsigned WritesInFlight = 8
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  logic                        restart_i,   // core 0 has the next turn
  input  logic [Cores-1:0]            c_awvalid_i,
  output logic [Cores-1:0]            c_awready_o,
  input  logic [64*Cores-1:0]         c_awaddr_i,
  input  logic [8*Cores-1:0]          c_awlen_i,
  input  logic [Cores-1:0]            c_wvalid_i,
  output logic [Cores-1:0]            c_wready_o,
  input  logic [8*AxiBytes*Cores-1:0] c_wdata_i,
  input  logic [AxiBytes*Cores-1:0]   c_wstrb_i,
  input  logic [Cores-1:0]            c_wlast_i,
  output logic [Cores-1:0]            c_bvalid_o,
  input  logic [Cores-1:0]            c_bready_i,
  output logic [2*Cores-1:0]          c_bresp_o,
  output logic [Cores-1:0]            waits_o,     // a whole burst of this core is not granted in this cycle
  output logic                        m_awvalid_o,
  input  logic                        m_awready_i,
  output logic [63:0]                 m_awaddr_o,
  output logic [7:0]                  m_awlen_o,
  output logic                        m_wvalid_o,
  input  logic                        m_wready_i,
  output logic [8*MemoryBytes-1:0]    m_wdata_o,
  output logic [MemoryBytes-1:0]      m_wstrb_o,
  output logic                        m_wlast_o,
  input  logic                        m_bvalid_i,
  output logic                        m_bready_o,
  input  logic [1:0]                  m_bresp_i
);

  localparam int unsigned CoreBits = Cores > 1 ? $clog2(Cores) : 1;

  logic [Cores-1:0] want, turn, take, word_valid, word_take, responses;
  logic [64*Cores-1:0] addresses;
  logic [8*Cores-1:0] lengths;
  logic [8*MemoryBytes*Cores-1:0] words;
  logic [MemoryBytes*Cores-1:0] strobes;
  for (genvar c = 0; c < Cores; c++) begin : gen_core
    tsr_share_writer #(.AxiBytes(AxiBytes), .MemoryBytes(MemoryBytes), .WritesInFlight(WritesInFlight)) u_writer (
      .clk_i, .rst_ni, .c_awvalid_i(c_awvalid_i[c]), .c_awready_o(c_awready_o[c]), .c_awaddr_i(c_awaddr_i[64*c+:64]),
      .c_awlen_i(c_awlen_i[8*c+:8]), .c_wvalid_i(c_wvalid_i[c]), .c_wready_o(c_wready_o[c]),
      .c_wdata_i(c_wdata_i[8*AxiBytes*c+:8*AxiBytes]), .c_wstrb_i(c_wstrb_i[AxiBytes*c+:AxiBytes]),
      .c_wlast_i(c_wlast_i[c]), .c_bvalid_o(c_bvalid_o[c]), .c_bready_i(c_bready_i[c]), .c_bresp_o(c_bresp_o[2*c+:2]),
      .want_o(want[c]), .addr_o(addresses[64*c+:64]), .len_o(lengths[8*c+:8]), .take_i(take[c]),
      .word_valid_o(word_valid[c]), .word_o(words[8*MemoryBytes*c+:8*MemoryBytes]),
      .strobe_o(strobes[MemoryBytes*c+:MemoryBytes]), .word_take_i(word_take[c]), .response_i(responses[c]),
      .error_i(m_bresp_i[1])
    );
  end

  // The burst that is sent: its core, and the wide beats behind the next one.
  logic sends_q, move, ends, free, granted, owners_ready, owner_valid;
  logic sender_valid;
  logic [CoreBits-1:0] sender_q;
  logic [7:0] left_q;
  logic awvalid_q, wvalid_q, wlast_q;
  logic [63:0] awaddr_q, address;
  logic [7:0] awlen_q, length;
  logic [8*MemoryBytes-1:0] wdata_q, word;
  logic [MemoryBytes-1:0] wstrb_q, strobe;
  logic [CoreBits-1:0] owner, taker;
  assign move = sends_q && sender_valid && (!wvalid_q || m_wready_i);
  assign ends = move && left_q == '0;
  assign free = (!awvalid_q || m_awready_i) && owners_ready && (!sends_q || ends);
  tsr_turns #(.Count(Cores)) u_turns (.clk_i, .rst_ni(rst_ni && !restart_i), .want_i(want), .take_i(free), .turn_o(turn));
  assign granted = free && want != '0;  // which does not wait for whose turn it is
  assign take = free ? turn : '0;
  assign waits_o = want & ~take;

  always_comb begin
    taker = '0;
    for (int unsigned c = 0; c < Cores; c++) begin
      taker |= turn[c] ? CoreBits'(c) : '0;
      word_take[c] = move && sender_q == CoreBits'(c);
    end
  end
  tsr_choose #(.Width(64), .Count(Cores)) u_address (.words_i(addresses), .number_i(taker), .word_o(address));
  tsr_choose #(.Width(8), .Count(Cores)) u_length (.words_i(lengths), .number_i(taker), .word_o(length));
  tsr_choose #(.Width(1), .Count(Cores)) u_valid (.words_i(word_valid), .number_i(sender_q), .word_o(sender_valid));
  tsr_choose #(.Width(8 * MemoryBytes), .Count(Cores)) u_word (.words_i(words), .number_i(sender_q), .word_o(word));
  tsr_choose #(.Width(MemoryBytes), .Count(Cores)) u_strobe (.words_i(strobes), .number_i(sender_q), .word_o(strobe));
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      awvalid_q <= 1'b0;
      wvalid_q <= 1'b0;
      sends_q <= 1'b0;
    end else begin
      if (m_awready_i) awvalid_q <= 1'b0;
      if (granted) awvalid_q <= 1'b1;
      if (m_wready_i) wvalid_q <= 1'b0;
      if (move) wvalid_q <= 1'b1;
      if (granted) sends_q <= 1'b1;
      else if (ends) sends_q <= 1'b0;
    end
    if (granted) begin
      awaddr_q <= address;
      awlen_q <= length;
      sender_q <= taker;
      left_q <= length;
    end else if (move) begin
      left_q <= left_q - 8'd1;
    end
    if (move) begin
      wdata_q <= word;
      wstrb_q <= strobe;
      wlast_q <= left_q == '0;
    end
  end
  assign m_awvalid_o = awvalid_q;
  assign m_awaddr_o = awaddr_q;
  assign m_awlen_o = awlen_q;
  assign m_wvalid_o = wvalid_q;
  assign m_wdata_o = wdata_q;
  assign m_wstrb_o = wstrb_q;
  assign m_wlast_o = wlast_q;

  tsr_queue #(.Width(CoreBits), .Depth(tsr_isa_pkg::TimingInterconnectBursts), .HeadBits(CoreBits)) u_owners (
    .clk_i, .rst_ni, .valid_i(granted), .data_i(taker), .ready_o(owners_ready), .valid_o(owner_valid), .data_o(owner),
    .ready_i(m_bvalid_i)
  );
  always_comb begin
    for (int unsigned c = 0; c < Cores; c++) responses[c] = m_bvalid_i && owner == CoreBits'(c);
  end
  assign m_bready_o = 1'b1;

  logic unused;
  assign unused = &{1'b0, m_bresp_i[0], owner_valid};

endmodule
