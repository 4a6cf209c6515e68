// SPDX-License-Identifier: Apache-2.0
// The rules of AXI4 on the master's write channels, bound to tsr_axi_write. Addresses and data stand until taken; bursts
// are aligned and end within their 4 KB page; data follow the bursts in order, never before the burst's address has
// been offered, with wlast on the last beat; at most WritesInFlight bursts lack a response; a response comes only for a
// burst whose last beat was taken (a rule for the memory).
module tsr_assert_axi_write #(
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned WritesInFlight = 8
) (
  input logic                  clk_i,
  input logic                  rst_ni,
  input logic                  m_awvalid_o,
  input logic                  m_awready_i,
  input logic [63:0]           m_awaddr_o,
  input logic [7:0]            m_awlen_o,
  input logic                  m_wvalid_o,
  input logic                  m_wready_i,
  input logic [8*AxiBytes-1:0] m_wdata_o,
  input logic [AxiBytes-1:0]   m_wstrb_o,
  input logic                  m_wlast_o,
  input logic                  m_bvalid_i,
  input logic                  m_bready_o
);

  logic aw_held_q, w_held_q;
  logic [71:0] aw_q;
  logic [9*AxiBytes:0] w_q;
  logic [7:0] lengths[$];  // bursts offered whose data have not all been taken
  int unsigned beat, offered, written;  // offered: without a response; written: those of them with all data taken

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      aw_held_q <= 1'b0;
      w_held_q <= 1'b0;
      lengths.delete();
      beat = 0;
      offered = 0;
      written = 0;
    end else begin
      aw_held_q <= m_awvalid_o && !m_awready_i;
      aw_q <= {m_awaddr_o, m_awlen_o};
      w_held_q <= m_wvalid_o && !m_wready_i;
      w_q <= {m_wlast_o, m_wstrb_o, m_wdata_o};
      `TSR_ASSERT(!aw_held_q || m_awvalid_o, "awvalid fell before awready")
      `TSR_ASSERT(!aw_held_q || !m_awvalid_o || aw_q == {m_awaddr_o, m_awlen_o}, "address changed before awready")
      `TSR_ASSERT(!w_held_q || m_wvalid_o, "wvalid fell before wready")
      `TSR_ASSERT(!w_held_q || !m_wvalid_o || w_q == {m_wlast_o, m_wstrb_o, m_wdata_o}, "data changed before wready")
      if (m_awvalid_o) begin
        `TSR_ASSERT(32'(m_awaddr_o[11:0]) % AxiBytes == 0, "write burst not aligned to the bus")
        `TSR_ASSERT(32'(m_awaddr_o[11:0]) + AxiBytes * (32'(m_awlen_o) + 1) <= 4096, "write burst crosses 4 KB")
      end
      if (m_awvalid_o && !aw_held_q) begin
        lengths.push_back(m_awlen_o);
        offered = offered + 1;
      end
      `TSR_ASSERT(offered <= WritesInFlight, "more than WritesInFlight bursts")
      if (m_wvalid_o) begin
        `TSR_ASSERT(lengths.size() != 0, "data before their burst")
        if (lengths.size() != 0) `TSR_ASSERT(m_wlast_o == (beat == 32'(lengths[0])), "wlast on the wrong beat")
      end
      if (m_wvalid_o && m_wready_i && lengths.size() != 0) begin
        if (beat == 32'(lengths[0])) begin
          void'(lengths.pop_front());
          beat = 0;
          written = written + 1;
        end else begin
          beat = beat + 1;
        end
      end
      if (m_bvalid_i && m_bready_o) begin
        `TSR_ASSERT(written != 0, "a response without a burst")
        offered = offered - 1;
        written = written - 1;
      end
    end
  end

endmodule

bind tsr_axi_write tsr_assert_axi_write #(.AxiBytes(AxiBytes), .WritesInFlight(WritesInFlight)) u_assert (.*);
