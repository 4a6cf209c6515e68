// SPDX-License-Identifier: Apache-2.0
// The rules of AXI4 on the master's read channels, bound to tsr_axi_read. An address and its length stand until taken;
// bursts are aligned to the bus, end within their 4 KB page and number at most ReadsInFlight; every beat answers the
// oldest burst, and rlast marks its last beat (a rule for the memory); the arbiter takes from one of its two masters.
// Bursts are incrementing, of the bus's width and of at most 256 beats because the master has no wires to say otherwise.
module tsr_assert_axi_read #(
  parameter int unsigned AxiBytes      = 8,
  parameter int unsigned ReadsInFlight = 16
) (
  input logic        clk_i,
  input logic        rst_ni,
  input logic        m_arvalid_o,
  input logic        m_arready_i,
  input logic [63:0] m_araddr_o,
  input logic [7:0]  m_arlen_o,
  input logic        m_rvalid_i,
  input logic        m_rready_o,
  input logic        m_rlast_i,
  input logic        fetch_ar_valid_i,
  input logic        fetch_ar_ready_o,
  input logic        load_ar_valid_i,
  input logic        load_ar_ready_o,
  input logic        beat_valid,
  input logic        owner_valid
);

  logic held_q;
  logic [71:0] payload_q;
  logic [7:0] lengths[$];
  int unsigned beat;

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      held_q <= 1'b0;
      lengths.delete();
      beat = 0;
    end else begin
      held_q <= m_arvalid_o && !m_arready_i;
      payload_q <= {m_araddr_o, m_arlen_o};
      `TSR_ASSERT(!held_q || m_arvalid_o, "arvalid fell before arready")
      `TSR_ASSERT(!held_q || !m_arvalid_o || payload_q == {m_araddr_o, m_arlen_o}, "address changed before arready")
      if (m_arvalid_o) begin
        `TSR_ASSERT(32'(m_araddr_o[11:0]) % AxiBytes == 0, "read burst not aligned to the bus")
        `TSR_ASSERT(32'(m_araddr_o[11:0]) + AxiBytes * (32'(m_arlen_o) + 1) <= 4096, "read burst crosses 4 KB")
      end
      `TSR_ASSERT(!(fetch_ar_valid_i && fetch_ar_ready_o && load_ar_valid_i && load_ar_ready_o), "two masters granted")
      if (m_arvalid_o && m_arready_i) lengths.push_back(m_arlen_o);
      `TSR_ASSERT(lengths.size() <= ReadsInFlight, "more than ReadsInFlight bursts")
      if (m_rvalid_i && m_rready_o) begin
        `TSR_ASSERT(lengths.size() != 0, "a beat without a burst")
        if (lengths.size() != 0) begin
          `TSR_ASSERT(m_rlast_i == (beat == 32'(lengths[0])), "rlast on the wrong beat")
          if (beat == 32'(lengths[0])) begin
            void'(lengths.pop_front());
            beat = 0;
          end else begin
            beat = beat + 1;
          end
        end
      end
      `TSR_ASSERT(!beat_valid || owner_valid, "a beat without an owner")
    end
  end

endmodule

bind tsr_axi_read tsr_assert_axi_read #(.AxiBytes(AxiBytes), .ReadsInFlight(ReadsInFlight)) u_assert (.*);
