// SPDX-License-Identifier: Apache-2.0
// What stands between the cores of a chip and the world: their master to DRAM (tsr_share_read, tsr_share_write) and their
// registers (tsr_chip_control). Enters and leaves: the cores' ports side by side, core 0 in the lowest bits, and the
// chip's own ports.
//
// Latency and throughput: those of the modules inside. Every output to a core and to memory depends on state only, so
// that a simulator may evaluate cores and interconnect side by side, each once a cycle. Reset: synchronous, active low;
// bursts in flight must have drained. Legal: Cores 1 to 16; MemoryBytes a power of two, AxiBytes to 128.
module tsr_interconnect #(
  parameter int unsigned Cores          = 2,
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned MemoryBytes    = 8,
  parameter int unsigned ReadsInFlight  = 16,
  parameter int unsigned WritesInFlight = 8
) (
  input  logic                        clk_i,
  input  logic                        rst_ni,
  output logic                        interrupt_o,
  // AXI4-Lite slave.
  input  logic                        s_awvalid_i,
  output logic                        s_awready_o,
  input  logic [16:0]                 s_awaddr_i,
  input  logic                        s_wvalid_i,
  output logic                        s_wready_o,
  input  logic [31:0]                 s_wdata_i,
  input  logic [3:0]                  s_wstrb_i,
  output logic                        s_bvalid_o,
  input  logic                        s_bready_i,
  output logic [1:0]                  s_bresp_o,
  input  logic                        s_arvalid_i,
  output logic                        s_arready_o,
  input  logic [16:0]                 s_araddr_i,
  output logic                        s_rvalid_o,
  input  logic                        s_rready_i,
  output logic [31:0]                 s_rdata_o,
  output logic [1:0]                  s_rresp_o,
  // AXI4 master.
  output logic                        m_arvalid_o,
  input  logic                        m_arready_i,
  output logic [63:0]                 m_araddr_o,
  output logic [7:0]                  m_arlen_o,
  input  logic                        m_rvalid_i,
  output logic                        m_rready_o,
  input  logic [8*MemoryBytes-1:0]    m_rdata_i,
  input  logic [1:0]                  m_rresp_i,
  input  logic                        m_rlast_i,
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
  input  logic [1:0]                  m_bresp_i,
  // The cores' slaves, of which one write and one read go to several at once.
  output logic [Cores-1:0]            c_write_o,
  output logic [11:0]                 c_waddr_o,
  output logic [31:0]                 c_wdata_o,
  output logic [3:0]                  c_wstrb_o,
  input  logic [Cores-1:0]            c_written_i,
  output logic [Cores-1:0]            c_read_o,
  input  logic [Cores-1:0]            c_read_ready_i,
  output logic [11:0]                 c_raddr_o,
  input  logic [Cores-1:0]            c_read_valid_i,
  input  logic [32*Cores-1:0]         c_read_data_i,
  // What they say of themselves.
  input  logic [Cores-1:0]            interrupt_i,
  input  logic [Cores-1:0]            idle_i,
  input  logic [Cores-1:0]            fault_i,
  input  logic [Cores-1:0]            rest_i,
  output logic                        all_rest_o,
  output logic [Cores-1:0]            clear_o,
  // Their masters.
  input  logic [Cores-1:0]            c_arvalid_i,
  output logic [Cores-1:0]            c_arready_o,
  input  logic [64*Cores-1:0]         c_araddr_i,
  input  logic [8*Cores-1:0]          c_arlen_i,
  output logic [Cores-1:0]            c_rvalid_o,
  input  logic [Cores-1:0]            c_rready_i,
  output logic [8*AxiBytes*Cores-1:0] c_rdata_o,
  output logic [2*Cores-1:0]          c_rresp_o,
  output logic [Cores-1:0]            c_rlast_o,
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
  output logic [2*Cores-1:0]          c_bresp_o
);

  logic restart;
  logic [Cores-1:0] read_waits, write_waits;
  tsr_chip_control #(.Cores(Cores)) u_control (
    .clk_i, .rst_ni, .interrupt_o, .s_awvalid_i, .s_awready_o, .s_awaddr_i, .s_wvalid_i, .s_wready_o, .s_wdata_i,
    .s_wstrb_i, .s_bvalid_o, .s_bready_i, .s_bresp_o, .s_arvalid_i, .s_arready_o, .s_araddr_i, .s_rvalid_o, .s_rready_i,
    .s_rdata_o, .s_rresp_o, .c_write_o, .c_waddr_o, .c_wdata_o, .c_wstrb_o, .c_bvalid_i(c_written_i),
    .c_arvalid_o(c_read_o), .c_arready_i(c_read_ready_i), .c_araddr_o(c_raddr_o), .c_rvalid_i(c_read_valid_i),
    .c_rdata_i(c_read_data_i), .interrupt_i, .idle_i, .fault_i, .rest_i, .all_rest_o, .restart_o(restart), .clear_o,
    .moved_i(m_rvalid_i || (m_wvalid_o && m_wready_i)), .waits_i(read_waits | write_waits)
  );
  tsr_share_read #(
    .Cores(Cores), .AxiBytes(AxiBytes), .MemoryBytes(MemoryBytes), .ReadsInFlight(ReadsInFlight)
  ) u_read (
    .clk_i, .rst_ni, .restart_i(restart), .c_arvalid_i, .c_arready_o, .c_araddr_i, .c_arlen_i, .c_rvalid_o, .c_rready_i, .c_rdata_o,
    .c_rresp_o, .c_rlast_o, .waits_o(read_waits), .m_arvalid_o, .m_arready_i, .m_araddr_o, .m_arlen_o, .m_rvalid_i,
    .m_rready_o, .m_rdata_i, .m_rresp_i, .m_rlast_i
  );
  tsr_share_write #(
    .Cores(Cores), .AxiBytes(AxiBytes), .MemoryBytes(MemoryBytes), .WritesInFlight(WritesInFlight)
  ) u_write (
    .clk_i, .rst_ni, .restart_i(restart), .c_awvalid_i, .c_awready_o, .c_awaddr_i, .c_awlen_i, .c_wvalid_i, .c_wready_o, .c_wdata_i,
    .c_wstrb_i, .c_wlast_i, .c_bvalid_o, .c_bready_i, .c_bresp_o, .waits_o(write_waits), .m_awvalid_o, .m_awready_i,
    .m_awaddr_o, .m_awlen_o, .m_wvalid_o, .m_wready_i, .m_wdata_o, .m_wstrb_o, .m_wlast_o, .m_bvalid_i, .m_bready_o,
    .m_bresp_i
  );

endmodule
