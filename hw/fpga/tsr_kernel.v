// SPDX-License-Identifier: Apache-2.0
// The machine as FPGA tools want a kernel: clock ap_clk, reset ap_rst_n, AXI4-Lite slave s_axi_control, AXI4 master
// m_axi_gmem, interrupt. Enters and leaves: what tsr_top takes and gives, under the names that interface inference knows,
// with the constant signals of the master that tsr_top leaves out: full-width beats, incrementing bursts, normal
// bufferable memory. In Verilog 2001, as the IP packager wants its top module; parameters are those of tsr_top, and
// configure.py writes a copy with a configuration's values.
//
// Latency and throughput: those of tsr_top; only the reset passes two registers, so that it reaches the machine with a
// register in front of its fan-out. Reset: synchronous, active low, at least three cycles, held until bursts in flight
// have drained.
module tsr_kernel #(
  parameter integer Batch          = 1,
  parameter integer BlockIn        = 8,
  parameter integer BlockOut       = 8,
  parameter integer InpDepth       = 2048,
  parameter integer WgtDepth       = 1024,
  parameter integer AccDepth       = 2048,
  parameter integer OutDepth       = 2048,
  parameter integer ParamDepth     = 128,
  parameter integer TableCount     = 16,
  parameter integer SecondLanes    = 4,
  parameter integer RowLanes       = 0,
  parameter integer AxiBytes       = 8,
  parameter integer LoadQueue      = 16,
  parameter integer GemmQueue      = 16,
  parameter integer AluQueue       = 16,
  parameter integer StoreQueue     = 16,
  parameter integer ReadsInFlight  = 16,
  parameter integer WritesInFlight = 8,
  parameter integer MemoryParity   = 0,
  parameter integer PackedWeights  = 0,
  parameter integer RasterPairs    = 0
) (
  input  wire                  ap_clk,
  input  wire                  ap_rst_n,
  output wire                  interrupt,
  // AXI4-Lite slave.
  input  wire                  s_axi_control_awvalid,
  output wire                  s_axi_control_awready,
  input  wire [11:0]           s_axi_control_awaddr,
  input  wire                  s_axi_control_wvalid,
  output wire                  s_axi_control_wready,
  input  wire [31:0]           s_axi_control_wdata,
  input  wire [3:0]            s_axi_control_wstrb,
  output wire                  s_axi_control_bvalid,
  input  wire                  s_axi_control_bready,
  output wire [1:0]            s_axi_control_bresp,
  input  wire                  s_axi_control_arvalid,
  output wire                  s_axi_control_arready,
  input  wire [11:0]           s_axi_control_araddr,
  output wire                  s_axi_control_rvalid,
  input  wire                  s_axi_control_rready,
  output wire [31:0]           s_axi_control_rdata,
  output wire [1:0]            s_axi_control_rresp,
  // AXI4 master.
  output wire                  m_axi_gmem_arvalid,
  input  wire                  m_axi_gmem_arready,
  output wire [63:0]           m_axi_gmem_araddr,
  output wire [7:0]            m_axi_gmem_arlen,
  output wire [2:0]            m_axi_gmem_arsize,
  output wire [1:0]            m_axi_gmem_arburst,
  output wire [3:0]            m_axi_gmem_arcache,
  output wire [2:0]            m_axi_gmem_arprot,
  input  wire                  m_axi_gmem_rvalid,
  output wire                  m_axi_gmem_rready,
  input  wire [8*AxiBytes-1:0] m_axi_gmem_rdata,
  input  wire [1:0]            m_axi_gmem_rresp,
  input  wire                  m_axi_gmem_rlast,
  output wire                  m_axi_gmem_awvalid,
  input  wire                  m_axi_gmem_awready,
  output wire [63:0]           m_axi_gmem_awaddr,
  output wire [7:0]            m_axi_gmem_awlen,
  output wire [2:0]            m_axi_gmem_awsize,
  output wire [1:0]            m_axi_gmem_awburst,
  output wire [3:0]            m_axi_gmem_awcache,
  output wire [2:0]            m_axi_gmem_awprot,
  output wire                  m_axi_gmem_wvalid,
  input  wire                  m_axi_gmem_wready,
  output wire [8*AxiBytes-1:0] m_axi_gmem_wdata,
  output wire [AxiBytes-1:0]   m_axi_gmem_wstrb,
  output wire                  m_axi_gmem_wlast,
  input  wire                  m_axi_gmem_bvalid,
  output wire                  m_axi_gmem_bready,
  input  wire [1:0]            m_axi_gmem_bresp
);

  localparam integer BeatSize = $clog2(AxiBytes);

  assign m_axi_gmem_arsize = BeatSize[2:0];
  assign m_axi_gmem_awsize = BeatSize[2:0];
  assign m_axi_gmem_arburst = 2'b01;
  assign m_axi_gmem_awburst = 2'b01;
  assign m_axi_gmem_arcache = 4'b0011;
  assign m_axi_gmem_awcache = 4'b0011;
  assign m_axi_gmem_arprot = 3'b000;
  assign m_axi_gmem_awprot = 3'b000;

  reg [1:0] rst_nq;
  always @(posedge ap_clk) rst_nq <= {rst_nq[0], ap_rst_n};

  // What one of several cores says of itself.
  wire [15:0] public_unused;
  wire idle_unused, fault_unused, rest_unused;
  tsr_top #(
    .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .InpDepth(InpDepth), .WgtDepth(WgtDepth),
    .AccDepth(AccDepth), .OutDepth(OutDepth), .ParamDepth(ParamDepth), .TableCount(TableCount), .SecondLanes(SecondLanes),
    .RowLanes(RowLanes),
    .AxiBytes(AxiBytes),
    .LoadQueue(LoadQueue), .GemmQueue(GemmQueue), .AluQueue(AluQueue), .StoreQueue(StoreQueue),
    .ReadsInFlight(ReadsInFlight), .WritesInFlight(WritesInFlight), .MemoryParity(MemoryParity),
    .PackedWeights(PackedWeights),
    .RasterPairs(RasterPairs)
  ) u_top (
    .clk_i(ap_clk), .rst_ni(rst_nq[1]), .interrupt_o(interrupt),
    .s_awvalid_i(s_axi_control_awvalid), .s_awready_o(s_axi_control_awready), .s_awaddr_i(s_axi_control_awaddr),
    .s_wvalid_i(s_axi_control_wvalid), .s_wready_o(s_axi_control_wready), .s_wdata_i(s_axi_control_wdata),
    .s_wstrb_i(s_axi_control_wstrb), .s_bvalid_o(s_axi_control_bvalid), .s_bready_i(s_axi_control_bready),
    .s_bresp_o(s_axi_control_bresp), .s_arvalid_i(s_axi_control_arvalid), .s_arready_o(s_axi_control_arready),
    .s_araddr_i(s_axi_control_araddr), .s_rvalid_o(s_axi_control_rvalid), .s_rready_i(s_axi_control_rready),
    .s_rdata_o(s_axi_control_rdata), .s_rresp_o(s_axi_control_rresp),
    .m_arvalid_o(m_axi_gmem_arvalid), .m_arready_i(m_axi_gmem_arready), .m_araddr_o(m_axi_gmem_araddr),
    .m_arlen_o(m_axi_gmem_arlen), .m_rvalid_i(m_axi_gmem_rvalid), .m_rready_o(m_axi_gmem_rready),
    .m_rdata_i(m_axi_gmem_rdata), .m_rresp_i(m_axi_gmem_rresp), .m_rlast_i(m_axi_gmem_rlast),
    .m_awvalid_o(m_axi_gmem_awvalid), .m_awready_i(m_axi_gmem_awready), .m_awaddr_o(m_axi_gmem_awaddr),
    .m_awlen_o(m_axi_gmem_awlen), .m_wvalid_o(m_axi_gmem_wvalid), .m_wready_i(m_axi_gmem_wready),
    .m_wdata_o(m_axi_gmem_wdata), .m_wstrb_o(m_axi_gmem_wstrb), .m_wlast_o(m_axi_gmem_wlast),
    .m_bvalid_i(m_axi_gmem_bvalid), .m_bready_o(m_axi_gmem_bready), .m_bresp_i(m_axi_gmem_bresp),
    .public_i(16'd0), .public_o(public_unused), .clear_i(1'b0), .idle_o(idle_unused), .fault_o(fault_unused),
    .rest_o(rest_unused), .all_rest_i(1'b0)
  );

endmodule
