// SPDX-License-Identifier: Apache-2.0
// The write half of the AXI4 master: bursts of STORE, their data in the same order, and the responses.
//
// Latency: a burst and a beat are on the bus in the cycle after they were taken; responses pass through. Throughput: one
// beat a cycle. Back-pressure: data wait until their burst has been taken; STORE counts the responses. Every output to
// the bus depends on state only. Reset: synchronous, active low; bursts in flight must have drained.
module tsr_axi_write #(
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned WritesInFlight = 8
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  burst_valid_i,
  output logic                  burst_ready_o,
  input  logic [63:0]           burst_addr_i,
  input  logic [7:0]            burst_len_i,
  input  logic                  w_valid_i,
  output logic                  w_ready_o,
  input  logic [8*AxiBytes-1:0] w_data_i,
  input  logic [AxiBytes-1:0]   w_strb_i,
  output logic                  b_valid_o,
  input  logic                  b_ready_i,
  output logic                  b_error_o,
  output logic                  m_awvalid_o,
  input  logic                  m_awready_i,
  output logic [63:0]           m_awaddr_o,
  output logic [7:0]            m_awlen_o,
  output logic                  m_wvalid_o,
  input  logic                  m_wready_i,
  output logic [8*AxiBytes-1:0] m_wdata_o,
  output logic [AxiBytes-1:0]   m_wstrb_o,
  output logic                  m_wlast_o,
  input  logic                  m_bvalid_i,
  output logic                  m_bready_o,
  input  logic [1:0]            m_bresp_i
);

  logic awvalid_q, lengths_ready, length_valid, fire;
  logic [63:0] awaddr_q;
  logic [7:0] awlen_q, length;
  assign burst_ready_o = (!awvalid_q || m_awready_i) && lengths_ready;
  assign fire = burst_valid_i && burst_ready_o;

  logic wvalid_q, wlast_q, w_fire, last;
  logic [8*AxiBytes-1:0] wdata_q;
  logic [AxiBytes-1:0] wstrb_q;
  logic [7:0] beat_q;
  assign w_ready_o = length_valid && (!wvalid_q || m_wready_i);
  assign w_fire = w_valid_i && w_ready_o;
  assign last = beat_q == length;

  tsr_queue #(.Width(8), .Depth(WritesInFlight)) u_lengths (
    .clk_i, .rst_ni, .valid_i(fire), .data_i(burst_len_i), .ready_o(lengths_ready), .valid_o(length_valid),
    .data_o(length), .ready_i(w_fire && last)
  );

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      awvalid_q <= 1'b0;
      awaddr_q <= '0;
      awlen_q <= '0;
      wvalid_q <= 1'b0;
      wlast_q <= 1'b0;
      wdata_q <= '0;
      wstrb_q <= '0;
      beat_q <= '0;
    end else begin
      if (m_awready_i) awvalid_q <= 1'b0;
      if (fire) begin
        awvalid_q <= 1'b1;
        awaddr_q <= burst_addr_i;
        awlen_q <= burst_len_i;
      end
      if (m_wready_i) wvalid_q <= 1'b0;
      if (w_fire) begin
        wvalid_q <= 1'b1;
        wlast_q <= last;
        wdata_q <= w_data_i;
        wstrb_q <= w_strb_i;
        beat_q <= last ? '0 : beat_q + 8'd1;
      end
    end
  end

  assign m_awvalid_o = awvalid_q;
  assign m_awaddr_o = awaddr_q;
  assign m_awlen_o = awlen_q;
  assign m_wvalid_o = wvalid_q;
  assign m_wdata_o = wdata_q;
  assign m_wstrb_o = wstrb_q;
  assign m_wlast_o = wlast_q;
  assign m_bready_o = b_ready_i;
  assign b_valid_o = m_bvalid_i;
  assign b_error_o = m_bresp_i[1];

  logic unused;
  assign unused = m_bresp_i[0];

endmodule
