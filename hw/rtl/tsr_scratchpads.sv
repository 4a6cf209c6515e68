// SPDX-License-Identifier: Apache-2.0
// The on-chip memories INP, WGT, ACC, OUT and PARAM and the arbiters of isa/ports.md. Engines address entries; LOAD and
// STORE address groups of AxiBytes, of which an entry is a whole number. Writes of LOAD to TABLE pass through to the
// ALU, which keeps the tables.
//
// Latency: read data in the cycle after a granted read. Throughput: one access a port and cycle. A grant depends on the
// requests of others only and means nothing without an own one. Reset: none, the content is data. Legal: AxiBytes
// divides the bytes of every entry; with a BATCH that is no power of two the group's entry is a division by a constant.
module tsr_scratchpads #(
  parameter int unsigned Batch      = 1,
  parameter int unsigned BlockIn    = 8,
  parameter int unsigned BlockOut   = 8,
  parameter int unsigned InpDepth   = 16,
  parameter int unsigned WgtDepth   = 16,
  parameter int unsigned AccDepth   = 16,
  parameter int unsigned OutDepth   = 16,
  parameter int unsigned ParamDepth = 16,
  parameter int unsigned AxiBytes   = 8,
  localparam int unsigned GroupBits = 22 - $clog2(AxiBytes),
  localparam int unsigned InpBytes = Batch * BlockIn,
  localparam int unsigned WgtBytes = BlockIn * BlockOut,
  localparam int unsigned AccBytes = 4 * Batch * BlockOut,
  localparam int unsigned OutBytes = Batch * BlockOut,
  localparam int unsigned ParamBytes = 8 * BlockOut
) (
  input  logic                    clk_i,
  // GEMM: always granted.
  input  logic                    gemm_inp_req_i,
  input  logic [13:0]             gemm_inp_addr_i,
  output logic [8*InpBytes-1:0]   gemm_inp_rdata_o,
  input  logic                    gemm_wgt_req_i,
  input  logic [13:0]             gemm_wgt_addr_i,
  output logic [8*WgtBytes-1:0]   gemm_wgt_rdata_o,
  input  logic                    gemm_acc_req_i,
  input  logic [13:0]             gemm_acc_addr_i,
  input  logic                    gemm_acc_we_i,
  input  logic [13:0]             gemm_acc_waddr_i,
  input  logic [8*AccBytes-1:0]   gemm_acc_wdata_i,
  input  logic [AccBytes-1:0]     gemm_acc_wbe_i,
  output logic [8*AccBytes-1:0]   acc_rdata_o,  // for GEMM and ALU
  // ALU.
  input  logic                    alu_acc_req_i,
  input  logic [13:0]             alu_acc_addr_i,
  output logic                    alu_acc_gnt_o,
  input  logic                    alu_acc_we_i,
  input  logic [13:0]             alu_acc_waddr_i,
  input  logic [8*AccBytes-1:0]   alu_acc_wdata_i,
  output logic                    alu_acc_wgnt_o,
  input  logic                    alu_out_req_i,
  input  logic [13:0]             alu_out_addr_i,
  output logic                    alu_out_gnt_o,
  output logic [8*OutBytes-1:0]   out_rdata_o,
  input  logic                    alu_out_we_i,
  input  logic [13:0]             alu_out_waddr_i,
  input  logic [8*OutBytes-1:0]   alu_out_wdata_i,
  input  logic                    alu_inp_req_i,
  input  logic                    alu_inp_we_i,
  input  logic [13:0]             alu_inp_addr_i,
  input  logic [8*InpBytes-1:0]   alu_inp_wdata_i,
  output logic                    alu_inp_gnt_o,
  output logic [8*InpBytes-1:0]   alu_inp_rdata_o,
  input  logic                    alu_param_req_i,
  input  logic [9:0]              alu_param_addr_i,
  output logic [8*ParamBytes-1:0] alu_param_rdata_o,
  // LOAD.
  input  logic                    load_we_i,
  input  logic [2:0]              load_space_i,
  input  logic [GroupBits-1:0]    load_group_i,
  input  logic [8*AxiBytes-1:0]   load_wdata_i,
  input  logic [AxiBytes-1:0]     load_wbe_i,
  output logic                    load_gnt_o,
  output logic                    table_we_o,
  // STORE.
  input  logic                    store_req_i,
  input  logic                    store_acc_i,
  input  logic [GroupBits-1:0]    store_group_i,
  output logic                    store_gnt_o,
  output logic [8*AxiBytes-1:0]   store_rdata_o
);

  localparam int unsigned InpGroups = InpBytes / AxiBytes;
  localparam int unsigned WgtGroups = WgtBytes / AxiBytes;
  localparam int unsigned AccGroups = AccBytes / AxiBytes;
  localparam int unsigned OutGroups = OutBytes / AxiBytes;
  localparam int unsigned ParamGroups = ParamBytes / AxiBytes;
  localparam int unsigned InpBits = InpDepth > 1 ? $clog2(InpDepth) : 1;
  localparam int unsigned WgtBits = WgtDepth > 1 ? $clog2(WgtDepth) : 1;
  localparam int unsigned AccBits = AccDepth > 1 ? $clog2(AccDepth) : 1;
  localparam int unsigned OutBits = OutDepth > 1 ? $clog2(OutDepth) : 1;
  localparam int unsigned ParamBits = ParamDepth > 1 ? $clog2(ParamDepth) : 1;

  if (InpBytes % AxiBytes != 0 || OutBytes % AxiBytes != 0 || WgtBytes % AxiBytes != 0 || AccBytes % AxiBytes != 0 ||
      ParamBytes % AxiBytes != 0) begin : gen_check
    $error("AxiBytes must divide the bytes of every entry");
  end

  logic load_inp, load_wgt, load_acc, load_out, load_param;
  assign load_inp = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceInp);
  assign load_wgt = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceWgt);
  assign load_acc = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceAcc);
  assign load_out = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceOut);
  assign load_param = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceParam);
  assign table_we_o = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceTable);
  assign load_gnt_o = !(load_inp && alu_inp_req_i && alu_inp_we_i) && !(load_acc && (gemm_acc_we_i || alu_acc_we_i)) &&
      !(load_out && alu_out_we_i);

  // INP: port A is GEMM's.
  logic inp_b_we, inp_b_alu_we;
  logic [InpBits-1:0] inp_b_addr;
  logic [8*InpBytes-1:0] inp_b_wdata;
  logic [InpBytes-1:0] inp_b_wbe;
  assign inp_b_alu_we = alu_inp_req_i && alu_inp_we_i;
  assign alu_inp_gnt_o = alu_inp_we_i || !load_inp;
  assign inp_b_we = inp_b_alu_we || load_inp;
  always_comb begin
    inp_b_addr = InpBits'(alu_inp_addr_i);
    inp_b_wdata = alu_inp_wdata_i;
    inp_b_wbe = '1;
    if (!inp_b_alu_we && load_inp) begin
      inp_b_addr = InpBits'(load_group_i / GroupBits'(InpGroups));
      inp_b_wdata = {InpGroups{load_wdata_i}};
      inp_b_wbe = InpBytes'(load_wbe_i) << (AxiBytes * (32'(load_group_i) % InpGroups));
    end
  end
  tsr_ram_2rw #(.Width(8 * InpBytes), .Depth(InpDepth)) u_inp (
    .clk_i, .a_req_i(gemm_inp_req_i), .a_addr_i(InpBits'(gemm_inp_addr_i)), .a_rdata_o(gemm_inp_rdata_o),
    .b_req_i(inp_b_we || alu_inp_req_i), .b_we_i(inp_b_we), .b_addr_i(inp_b_addr), .b_wdata_i(inp_b_wdata),
    .b_wbe_i(inp_b_wbe), .b_rdata_o(alu_inp_rdata_o)
  );

  // WGT.
  logic [8*WgtBytes-1:0] wgt_wdata;
  logic [WgtBytes-1:0] wgt_wbe;
  always_comb begin
    wgt_wdata = '0;
    wgt_wbe = '0;
    if (load_wgt) begin
      wgt_wdata = {WgtGroups{load_wdata_i}};
      wgt_wbe = WgtBytes'(load_wbe_i) << (AxiBytes * (32'(load_group_i) % WgtGroups));
    end
  end
  tsr_ram_1r1w #(.Width(8 * WgtBytes), .Depth(WgtDepth)) u_wgt (
    .clk_i, .re_i(gemm_wgt_req_i), .raddr_i(WgtBits'(gemm_wgt_addr_i)), .rdata_o(gemm_wgt_rdata_o), .we_i(load_wgt),
    .waddr_i(WgtBits'(load_group_i / GroupBits'(WgtGroups))), .wdata_i(wgt_wdata), .wbe_i(wgt_wbe)
  );

  // ACC.
  logic [AccBits-1:0] acc_raddr, acc_waddr;
  logic [8*AccBytes-1:0] acc_wdata;
  logic [AccBytes-1:0] acc_wbe;
  logic store_acc_gnt;
  assign alu_acc_gnt_o = !gemm_acc_req_i;
  assign alu_acc_wgnt_o = !gemm_acc_we_i;
  assign store_acc_gnt = store_req_i && store_acc_i && !gemm_acc_req_i && !alu_acc_req_i;
  always_comb begin
    acc_raddr = AccBits'(store_group_i / GroupBits'(AccGroups));
    if (gemm_acc_req_i) acc_raddr = AccBits'(gemm_acc_addr_i);
    else if (alu_acc_req_i) acc_raddr = AccBits'(alu_acc_addr_i);
    acc_waddr = '0;
    acc_wdata = '0;
    acc_wbe = '0;
    if (gemm_acc_we_i) begin
      acc_waddr = AccBits'(gemm_acc_waddr_i);
      acc_wdata = gemm_acc_wdata_i;
      acc_wbe = gemm_acc_wbe_i;
    end else if (alu_acc_we_i) begin
      acc_waddr = AccBits'(alu_acc_waddr_i);
      acc_wdata = alu_acc_wdata_i;
      acc_wbe = '1;
    end else if (load_acc) begin
      acc_waddr = AccBits'(load_group_i / GroupBits'(AccGroups));
      acc_wdata = {AccGroups{load_wdata_i}};
      acc_wbe = AccBytes'(load_wbe_i) << (AxiBytes * (32'(load_group_i) % AccGroups));
    end
  end
  tsr_ram_1r1w #(.Width(8 * AccBytes), .Depth(AccDepth)) u_acc (
    .clk_i, .re_i(gemm_acc_req_i || alu_acc_req_i || store_acc_gnt), .raddr_i(acc_raddr), .rdata_o(acc_rdata_o),
    .we_i(gemm_acc_we_i || alu_acc_we_i || load_acc), .waddr_i(acc_waddr), .wdata_i(acc_wdata), .wbe_i(acc_wbe)
  );

  // OUT.
  logic [OutBits-1:0] out_raddr, out_waddr;
  logic [8*OutBytes-1:0] out_wdata;
  logic [OutBytes-1:0] out_wbe;
  logic store_out_gnt;
  assign alu_out_gnt_o = 1'b1;
  assign store_out_gnt = store_req_i && !store_acc_i && !alu_out_req_i;
  always_comb begin
    out_raddr = alu_out_req_i ? OutBits'(alu_out_addr_i) : OutBits'(store_group_i / GroupBits'(OutGroups));
    out_waddr = OutBits'(alu_out_waddr_i);
    out_wdata = alu_out_wdata_i;
    out_wbe = '1;
    if (!alu_out_we_i && load_out) begin
      out_waddr = OutBits'(load_group_i / GroupBits'(OutGroups));
      out_wdata = {OutGroups{load_wdata_i}};
      out_wbe = OutBytes'(load_wbe_i) << (AxiBytes * (32'(load_group_i) % OutGroups));
    end
  end
  tsr_ram_1r1w #(.Width(8 * OutBytes), .Depth(OutDepth)) u_out (
    .clk_i, .re_i(alu_out_req_i || store_out_gnt), .raddr_i(out_raddr), .rdata_o(out_rdata_o),
    .we_i(alu_out_we_i || load_out), .waddr_i(out_waddr), .wdata_i(out_wdata), .wbe_i(out_wbe)
  );

  // PARAM.
  logic [8*ParamBytes-1:0] param_wdata;
  logic [ParamBytes-1:0] param_wbe;
  always_comb begin
    param_wdata = '0;
    param_wbe = '0;
    if (load_param) begin
      param_wdata = {ParamGroups{load_wdata_i}};
      param_wbe = ParamBytes'(load_wbe_i) << (AxiBytes * (32'(load_group_i) % ParamGroups));
    end
  end
  tsr_ram_1r1w #(.Width(8 * ParamBytes), .Depth(ParamDepth)) u_param (
    .clk_i, .re_i(alu_param_req_i), .raddr_i(ParamBits'(alu_param_addr_i)), .rdata_o(alu_param_rdata_o),
    .we_i(load_param), .waddr_i(ParamBits'(load_group_i / GroupBits'(ParamGroups))), .wdata_i(param_wdata),
    .wbe_i(param_wbe)
  );

  // STORE's group of the entry that was read.
  logic store_acc_q;
  logic [15:0] store_lane_q;
  assign store_gnt_o = store_acc_gnt || store_out_gnt;
  always_ff @(posedge clk_i) begin
    if (store_gnt_o) begin
      store_acc_q <= store_acc_i;
      store_lane_q <= 16'(32'(store_group_i) % (store_acc_i ? AccGroups : OutGroups));
    end
  end
  always_comb begin
    store_rdata_o = '0;
    for (int unsigned g = 0; g < AccGroups; g++) begin
      if (store_acc_q && store_lane_q == 16'(g)) store_rdata_o = acc_rdata_o[8*AxiBytes*g+:8*AxiBytes];
    end
    for (int unsigned g = 0; g < OutGroups; g++) begin
      if (!store_acc_q && store_lane_q == 16'(g)) store_rdata_o = out_rdata_o[8*AxiBytes*g+:8*AxiBytes];
    end
  end

  // Range checks keep addresses below the depths; the bits above them are not needed.
  logic unused;
  assign unused = &{1'b0, gemm_inp_addr_i, gemm_wgt_addr_i, gemm_acc_addr_i, gemm_acc_waddr_i, alu_acc_addr_i,
                    alu_acc_waddr_i, alu_out_addr_i, alu_out_waddr_i, alu_inp_addr_i, alu_param_addr_i};

endmodule
