// SPDX-License-Identifier: Apache-2.0
// A chip of several cores: Cores machines (tsr_top) on one interconnect (tsr_interconnect). Enters: register accesses
// through an AXI4-Lite slave of 17 address bits: core k's at k << 12, the chip's page at 1 << 16. Leaves: programs run
// against memory behind one AXI4 master (one identifier, incrementing bursts, MemoryAxiBytes a beat, or AxiBytes where
// that is 0), one interrupt.
//
// Latency and throughput: those of the modules inside; every output of the master depends on state only. Reset:
// synchronous, active low, held until bursts in flight have drained. Legal: Cores 2 to 16; MemoryAxiBytes 0 or a power of
// two, AxiBytes to 128; else as tsr_top.
module tsr_chip #(
  parameter int unsigned Batch          = 1,
  parameter int unsigned BlockIn        = 8,
  parameter int unsigned BlockOut       = 8,
  parameter int unsigned InpDepth       = 2048,
  parameter int unsigned WgtDepth       = 1024,
  parameter int unsigned AccDepth       = 2048,
  parameter int unsigned OutDepth       = 2048,
  parameter int unsigned ParamDepth     = 128,
  parameter int unsigned TableCount     = 16,
  parameter int unsigned SecondLanes    = 4,
  parameter int unsigned RowLanes       = 0,
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned LoadQueue      = 16,
  parameter int unsigned GemmQueue      = 16,
  parameter int unsigned AluQueue       = 16,
  parameter int unsigned StoreQueue     = 16,
  parameter int unsigned ReadsInFlight  = 16,
  parameter int unsigned WritesInFlight = 8,
  parameter int unsigned MemoryParity   = 0,
  parameter int unsigned PackedWeights  = 0,
  parameter int unsigned RasterPairs    = 0,
  parameter int unsigned Cores          = 2,
  parameter int unsigned MemoryAxiBytes = 0,
  localparam int unsigned MemoryBytes = MemoryAxiBytes != 0 ? MemoryAxiBytes : AxiBytes
) (
  input  logic                     clk_i,
  input  logic                     rst_ni,
  output logic                     interrupt_o,
  // AXI4-Lite slave.
  input  logic                     s_awvalid_i,
  output logic                     s_awready_o,
  input  logic [16:0]              s_awaddr_i,
  input  logic                     s_wvalid_i,
  output logic                     s_wready_o,
  input  logic [31:0]              s_wdata_i,
  input  logic [3:0]               s_wstrb_i,
  output logic                     s_bvalid_o,
  input  logic                     s_bready_i,
  output logic [1:0]               s_bresp_o,
  input  logic                     s_arvalid_i,
  output logic                     s_arready_o,
  input  logic [16:0]              s_araddr_i,
  output logic                     s_rvalid_o,
  input  logic                     s_rready_i,
  output logic [31:0]              s_rdata_o,
  output logic [1:0]               s_rresp_o,
  // AXI4 master.
  output logic                     m_arvalid_o,
  input  logic                     m_arready_i,
  output logic [63:0]              m_araddr_o,
  output logic [7:0]               m_arlen_o,
  input  logic                     m_rvalid_i,
  output logic                     m_rready_o,
  input  logic [8*MemoryBytes-1:0] m_rdata_i,
  input  logic [1:0]               m_rresp_i,
  input  logic                     m_rlast_i,
  output logic                     m_awvalid_o,
  input  logic                     m_awready_i,
  output logic [63:0]              m_awaddr_o,
  output logic [7:0]               m_awlen_o,
  output logic                     m_wvalid_o,
  input  logic                     m_wready_i,
  output logic [8*MemoryBytes-1:0] m_wdata_o,
  output logic [MemoryBytes-1:0]   m_wstrb_o,
  output logic                     m_wlast_o,
  input  logic                     m_bvalid_i,
  output logic                     m_bready_o,
  input  logic [1:0]               m_bresp_i
);

  if (Cores < 2) $error("tsr_chip: one core is tsr_top");

  logic [11:0] c_waddr, c_raddr;
  logic [31:0] c_wdata;
  logic [3:0] c_wstrb;
  logic [Cores-1:0] c_write, c_written, c_read, c_read_ready, c_read_valid, c_awready_unused, c_wready_unused;
  logic [2*Cores-1:0] c_write_response_unused, c_read_response_unused;
  logic [32*Cores-1:0] c_read_data;
  logic [Cores-1:0] interrupt, idle, fault, rest, clear;
  logic all_rest;
  logic [16*Cores-1:0] counters;
  logic [Cores-1:0] arvalid, arready, rvalid, rready, rlast, awvalid, awready, wvalid, wready, wlast, bvalid, bready;
  logic [64*Cores-1:0] araddr, awaddr;
  logic [8*Cores-1:0] arlen, awlen;
  logic [8*AxiBytes*Cores-1:0] rdata, wdata;
  logic [AxiBytes*Cores-1:0] wstrb;
  logic [2*Cores-1:0] rresp, bresp;
  for (genvar c = 0; c < Cores; c++) begin : gen_core
    tsr_top #(
      .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .InpDepth(InpDepth), .WgtDepth(WgtDepth),
      .AccDepth(AccDepth), .OutDepth(OutDepth), .ParamDepth(ParamDepth), .TableCount(TableCount),
      .SecondLanes(SecondLanes), .RowLanes(RowLanes), .AxiBytes(AxiBytes), .LoadQueue(LoadQueue),
      .GemmQueue(GemmQueue), .AluQueue(AluQueue), .StoreQueue(StoreQueue), .ReadsInFlight(ReadsInFlight),
      .WritesInFlight(WritesInFlight), .MemoryParity(MemoryParity), .PackedWeights(PackedWeights),
      .RasterPairs(RasterPairs),
      .Cores(Cores), .MemoryAxiBytes(MemoryAxiBytes)
    ) u_core (
      .clk_i, .rst_ni, .interrupt_o(interrupt[c]), .s_awvalid_i(c_write[c]), .s_awready_o(c_awready_unused[c]),
      .s_awaddr_i(c_waddr), .s_wvalid_i(c_write[c]), .s_wready_o(c_wready_unused[c]), .s_wdata_i(c_wdata),
      .s_wstrb_i(c_wstrb), .s_bvalid_o(c_written[c]), .s_bready_i(1'b1), .s_bresp_o(c_write_response_unused[2*c+:2]),
      .s_arvalid_i(c_read[c]), .s_arready_o(c_read_ready[c]), .s_araddr_i(c_raddr), .s_rvalid_o(c_read_valid[c]),
      .s_rready_i(1'b1), .s_rdata_o(c_read_data[32*c+:32]), .s_rresp_o(c_read_response_unused[2*c+:2]),
      .m_arvalid_o(arvalid[c]), .m_arready_i(arready[c]), .m_araddr_o(araddr[64*c+:64]), .m_arlen_o(arlen[8*c+:8]),
      .m_rvalid_i(rvalid[c]), .m_rready_o(rready[c]), .m_rdata_i(rdata[8*AxiBytes*c+:8*AxiBytes]),
      .m_rresp_i(rresp[2*c+:2]), .m_rlast_i(rlast[c]), .m_awvalid_o(awvalid[c]), .m_awready_i(awready[c]),
      .m_awaddr_o(awaddr[64*c+:64]), .m_awlen_o(awlen[8*c+:8]), .m_wvalid_o(wvalid[c]), .m_wready_i(wready[c]),
      .m_wdata_o(wdata[8*AxiBytes*c+:8*AxiBytes]), .m_wstrb_o(wstrb[AxiBytes*c+:AxiBytes]), .m_wlast_o(wlast[c]),
      .m_bvalid_i(bvalid[c]), .m_bready_o(bready[c]), .m_bresp_i(bresp[2*c+:2]), .public_i(counters),
      .public_o(counters[16*c+:16]), .clear_i(clear[c]), .idle_o(idle[c]), .fault_o(fault[c]), .rest_o(rest[c]),
      .all_rest_i(all_rest)
    );
  end

  tsr_interconnect #(
    .Cores(Cores), .AxiBytes(AxiBytes), .MemoryBytes(MemoryBytes), .ReadsInFlight(ReadsInFlight),
    .WritesInFlight(WritesInFlight)
  ) u_interconnect (
    .clk_i, .rst_ni, .interrupt_o, .s_awvalid_i, .s_awready_o, .s_awaddr_i, .s_wvalid_i, .s_wready_o, .s_wdata_i,
    .s_wstrb_i, .s_bvalid_o, .s_bready_i, .s_bresp_o, .s_arvalid_i, .s_arready_o, .s_araddr_i, .s_rvalid_o, .s_rready_i,
    .s_rdata_o, .s_rresp_o, .m_arvalid_o, .m_arready_i, .m_araddr_o, .m_arlen_o, .m_rvalid_i, .m_rready_o, .m_rdata_i,
    .m_rresp_i, .m_rlast_i, .m_awvalid_o, .m_awready_i, .m_awaddr_o, .m_awlen_o, .m_wvalid_o, .m_wready_i, .m_wdata_o,
    .m_wstrb_o, .m_wlast_o, .m_bvalid_i, .m_bready_o, .m_bresp_i, .c_write_o(c_write), .c_waddr_o(c_waddr),
    .c_wdata_o(c_wdata), .c_wstrb_o(c_wstrb), .c_written_i(c_written), .c_read_o(c_read), .c_read_ready_i(c_read_ready),
    .c_raddr_o(c_raddr), .c_read_valid_i(c_read_valid), .c_read_data_i(c_read_data), .interrupt_i(interrupt),
    .idle_i(idle), .fault_i(fault), .rest_i(rest), .all_rest_o(all_rest), .clear_o(clear), .c_arvalid_i(arvalid),
    .c_arready_o(arready), .c_araddr_i(araddr), .c_arlen_i(arlen), .c_rvalid_o(rvalid), .c_rready_i(rready),
    .c_rdata_o(rdata), .c_rresp_o(rresp), .c_rlast_o(rlast), .c_awvalid_i(awvalid), .c_awready_o(awready),
    .c_awaddr_i(awaddr), .c_awlen_i(awlen), .c_wvalid_i(wvalid), .c_wready_o(wready), .c_wdata_i(wdata),
    .c_wstrb_i(wstrb), .c_wlast_i(wlast), .c_bvalid_o(bvalid), .c_bready_i(bready), .c_bresp_o(bresp)
  );

  logic unused;
  assign unused = &{1'b0, c_awready_unused, c_wready_unused, c_write_response_unused, c_read_response_unused};

endmodule
