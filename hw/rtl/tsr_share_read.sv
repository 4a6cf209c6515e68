// SPDX-License-Identifier: Apache-2.0
// The read half of the interconnect: the read channels of several cores on one AXI4 master of wider beats. Cores take
// turns, a burst each; memory answers in the order of the bursts, and a queue of owners says whose an answer is. A burst
// is granted once its core's buffer has room for all of it, so that no core holds up another.
//
// Latency: a grant is on memory's bus in the next cycle; else as tsr_share_reader. Throughput: one burst and one wide beat
// a cycle. Back-pressure: at most TimingInterconnectBursts bursts are outstanding; answers are always taken. Every output
// depends on state only. Reset: synchronous, active low; bursts in flight must have drained. Timing: from a want to the
// address that is on its way, a turn and a choice among cores.
module tsr_share_read #(
  parameter int unsigned Cores         = 2,
  parameter int unsigned AxiBytes      = 8,
  parameter int unsigned MemoryBytes   = 8,
  parameter int unsigned ReadsInFlight = 16
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  input  logic                        restart_i,   // core 0 has the next turn
  input  logic [Cores-1:0]            c_arvalid_i,
  output logic [Cores-1:0]            c_arready_o,
  input  logic [64*Cores-1:0]         c_araddr_i,
  input  logic [8*Cores-1:0]          c_arlen_i,
  output logic [Cores-1:0]            c_rvalid_o,
  input  logic [Cores-1:0]            c_rready_i,
  output logic [8*AxiBytes*Cores-1:0] c_rdata_o,
  output logic [2*Cores-1:0]          c_rresp_o,
  output logic [Cores-1:0]            c_rlast_o,
  output logic [Cores-1:0]            waits_o,     // a request of this core is not granted in this cycle
  output logic                        m_arvalid_o,
  input  logic                        m_arready_i,
  output logic [63:0]                 m_araddr_o,
  output logic [7:0]                  m_arlen_o,
  input  logic                        m_rvalid_i,
  output logic                        m_rready_o,
  input  logic [8*MemoryBytes-1:0]    m_rdata_i,
  input  logic [1:0]                  m_rresp_i,
  input  logic                        m_rlast_i
);

  localparam int unsigned CoreBits = Cores > 1 ? $clog2(Cores) : 1;

  logic [Cores-1:0] request, want, turn, take, answers;
  logic [64*Cores-1:0] addresses;
  logic [8*Cores-1:0] lengths;
  logic free, granted, owners_ready, owner_valid;
  logic [CoreBits-1:0] owner, taker;
  for (genvar c = 0; c < Cores; c++) begin : gen_core
    tsr_share_reader #(.AxiBytes(AxiBytes), .MemoryBytes(MemoryBytes), .ReadsInFlight(ReadsInFlight)) u_reader (
      .clk_i, .rst_ni, .c_arvalid_i(c_arvalid_i[c]), .c_arready_o(c_arready_o[c]), .c_araddr_i(c_araddr_i[64*c+:64]),
      .c_arlen_i(c_arlen_i[8*c+:8]), .c_rvalid_o(c_rvalid_o[c]), .c_rready_i(c_rready_i[c]),
      .c_rdata_o(c_rdata_o[8*AxiBytes*c+:8*AxiBytes]), .c_rresp_o(c_rresp_o[2*c+:2]), .c_rlast_o(c_rlast_o[c]),
      .request_o(request[c]), .want_o(want[c]), .addr_o(addresses[64*c+:64]), .len_o(lengths[8*c+:8]), .take_i(take[c]),
      .valid_i(answers[c]), .data_i(m_rdata_i), .error_i(m_rresp_i[1])
    );
  end

  tsr_turns #(.Count(Cores)) u_turns (.clk_i, .rst_ni(rst_ni && !restart_i), .want_i(want), .take_i(free), .turn_o(turn));
  // Whether a burst is granted does not wait for whose turn it is.
  assign granted = free && want != '0;
  assign take = free ? turn : '0;
  assign waits_o = request & ~take;

  logic arvalid_q;
  logic [63:0] araddr_q, address;
  logic [7:0] arlen_q, length;
  assign free = (!arvalid_q || m_arready_i) && owners_ready;
  always_comb begin
    taker = '0;
    for (int unsigned c = 0; c < Cores; c++) taker |= turn[c] ? CoreBits'(c) : '0;
  end
  tsr_choose #(.Width(64), .Count(Cores)) u_address (.words_i(addresses), .number_i(taker), .word_o(address));
  tsr_choose #(.Width(8), .Count(Cores)) u_length (.words_i(lengths), .number_i(taker), .word_o(length));
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      arvalid_q <= 1'b0;
    end else begin
      if (m_arready_i) arvalid_q <= 1'b0;
      if (granted) arvalid_q <= 1'b1;
    end
    if (free) begin
      araddr_q <= address;
      arlen_q <= length;
    end
  end
  assign m_arvalid_o = arvalid_q;
  assign m_araddr_o = araddr_q;
  assign m_arlen_o = arlen_q;

  tsr_queue #(.Width(CoreBits), .Depth(tsr_isa_pkg::TimingInterconnectBursts), .HeadBits(CoreBits)) u_owners (
    .clk_i, .rst_ni, .valid_i(granted), .data_i(taker), .ready_o(owners_ready), .valid_o(owner_valid), .data_o(owner),
    .ready_i(m_rvalid_i && m_rlast_i)
  );
  always_comb begin
    for (int unsigned c = 0; c < Cores; c++) answers[c] = m_rvalid_i && owner == CoreBits'(c);
  end
  assign m_rready_o = 1'b1;

  logic unused;
  assign unused = &{1'b0, m_rresp_i[0], owner_valid};

endmodule
