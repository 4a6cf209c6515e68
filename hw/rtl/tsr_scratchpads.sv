// SPDX-License-Identifier: Apache-2.0
// The on-chip memories INP, WGT, ACC, OUT and PARAM and the arbiters of isa/ports.md. Engines address entries; LOAD and
// STORE address groups of AxiBytes. A word of a memory is the least common multiple of an entry and a group, so it is an
// entry wherever AxiBytes divides the entry. Writes of LOAD to TABLE pass through to the ALU, which keeps the tables,
// TimingLoadTableBytes a cycle: a copy of the tables as wide as a wide bus would take several block RAMs.
//
// Latency: read data in the cycle after a granted read. Throughput: one access a port and cycle. A grant depends on the
// requests of others only and means nothing without an own one. Reset: none, the content is data. Legal: AxiBytes a
// power of two; with a BATCH that is no power of two the group's word is a division by a constant.
module tsr_scratchpads #(
  parameter int unsigned Batch      = 1,
  parameter int unsigned BlockIn    = 8,
  parameter int unsigned BlockOut   = 8,
  parameter int unsigned InpDepth   = 16,
  parameter int unsigned WgtDepth   = 16,
  parameter int unsigned AccDepth   = 16,
  parameter int unsigned OutDepth   = 16,
  parameter int unsigned ParamDepth = 16,
  parameter int unsigned SecondLanes = 8,
  parameter int unsigned AxiBytes   = 8,
  parameter int unsigned MemoryParity = 0,
  parameter int unsigned PackedWeights = 0,
  parameter int unsigned RasterPairs = 0,
  localparam int unsigned InpSides = RasterPairs == 2 ? 4 : RasterPairs == 1 ? 2 : 1,
  localparam int unsigned GroupBits = 22 - $clog2(AxiBytes),
  localparam int unsigned TableBytes = tsr_isa_pkg::TimingLoadTableBytes < AxiBytes ? tsr_isa_pkg::TimingLoadTableBytes : AxiBytes,
  localparam int unsigned InpBytes = Batch * BlockIn,
  localparam int unsigned WgtBytes = BlockIn * BlockOut,
  localparam int unsigned AccBytes = 4 * Batch * BlockOut,
  localparam int unsigned OutBytes = Batch * BlockOut,
  localparam int unsigned ParamBytes = 8 * BlockOut
) (
  input  logic                    clk_i,
  // GEMM: always granted.
  input  logic                    gemm_inp_req_i,
  input  logic                    gemm_inp_pair_i,  // the entry behind it, too
  input  logic                    gemm_inp_rows_i,  // and the two from there
  input  logic [13:0]             gemm_inp_above_i,
  input  logic [13:0]             gemm_inp_addr_i,
  output logic [8*InpSides*InpBytes-1:0] gemm_inp_rdata_o,  // with RasterPairs those of each memory, by number
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
  input  logic                    alu_acc_claim_i,
  input  logic [13:0]             alu_acc_addr_i,
  output logic                    alu_acc_gnt_o,
  input  logic                    alu_acc_we_i,
  input  logic                    alu_acc_keep_i,
  input  logic [13:0]             alu_acc_waddr_i,
  input  logic [8*AccBytes-1:0]   alu_acc_wdata_i,
  output logic                    alu_acc_wgnt_o,
  input  logic                    alu_out_req_i,
  input  logic                    alu_out_claim_i,
  input  logic [13:0]             alu_out_addr_i,
  output logic                    alu_out_gnt_o,
  output logic [8*OutBytes-1:0]   out_rdata_o,
  input  logic                    alu_out_we_i,
  input  logic [13:0]             alu_out_waddr_i,
  input  logic                    alu_inp_req_i,
  input  logic                    alu_inp_we_i,
  input  logic                    alu_inp_first_i,  // a read of rows, or none, that comes before LOAD's write
  input  logic [13:0]             alu_inp_addr_i,
  output logic                    alu_inp_gnt_o,
  output logic [8*InpBytes-1:0]   alu_inp_rdata_o,
  // Written to OUT or INP; the last SecondLanes bytes are joined with those of a table, which are late.
  input  logic [8*OutBytes-1:0]   alu_bytes_i,
  input  logic [8*SecondLanes-1:0] alu_table_bytes_i,
  input  logic [SecondLanes-1:0] alu_table_parity_i,  // of them, as TABLE has it
  input  logic                    alu_param_req_i,
  input  logic [9:0]              alu_param_addr_i,
  output logic [8*ParamBytes-1:0] alu_param_rdata_o,
  // LOAD.
  input  logic                    load_we_i,
  input  logic [2:0]              load_space_i,
  input  logic [GroupBits-1:0]    load_group_i,
  input  logic [8*AxiBytes-1:0]   load_wdata_i,
  input  logic [AxiBytes-1:0]     load_wbe_i,
  input  logic                    load_pair_i,   // two groups of WGT, with PackedWeights
  input  logic [16*AxiBytes-1:0]  load_pair_wdata_i,
  output logic                    load_gnt_o,
  output logic                    table_we_o,
  output logic [21-$clog2(TableBytes):0] table_waddr_o,  // in TableBytes
  output logic [8*TableBytes-1:0] table_wdata_o,
  output logic [TableBytes-1:0]   table_wbe_o,
  // STORE.
  input  logic                    store_req_i,
  input  logic                    store_acc_i,
  input  logic [GroupBits-1:0]    store_group_i,
  output logic                    store_gnt_o,
  output logic [8*AxiBytes-1:0]   store_rdata_o,
  output logic [3:0]              parity_error_o  // by engine: a word that it read two cycles ago is wrong
);

  // For each memory: the bytes that an entry and a group share, groups and entries in a word, words.
  localparam int unsigned InpLow = InpBytes & (~InpBytes + 1);
  localparam int unsigned InpShare = InpLow < AxiBytes ? InpLow : AxiBytes;
  localparam int unsigned InpGroups = InpBytes / InpShare;
  localparam int unsigned InpEntries = AxiBytes / InpShare;
  localparam int unsigned InpWordBytes = InpBytes * InpEntries;
  localparam int unsigned InpWords = (InpDepth + InpEntries - 1) / InpEntries;
  localparam int unsigned InpBits = InpWords > 1 ? $clog2(InpWords) : 1;
  localparam int unsigned WgtLow = WgtBytes & (~WgtBytes + 1);
  localparam int unsigned WgtShare = WgtLow < AxiBytes ? WgtLow : AxiBytes;
  localparam int unsigned WgtGroups = WgtBytes / WgtShare;
  localparam int unsigned WgtEntries = AxiBytes / WgtShare;
  localparam int unsigned WgtWordBytes = WgtBytes * WgtEntries;
  localparam int unsigned WgtWords = (WgtDepth + WgtEntries - 1) / WgtEntries;
  localparam int unsigned WgtBits = WgtWords > 1 ? $clog2(WgtWords) : 1;
  localparam int unsigned AccLow = AccBytes & (~AccBytes + 1);
  localparam int unsigned AccShare = AccLow < AxiBytes ? AccLow : AxiBytes;
  localparam int unsigned AccGroups = AccBytes / AccShare;
  localparam int unsigned AccEntries = AxiBytes / AccShare;
  localparam int unsigned AccWordBytes = AccBytes * AccEntries;
  localparam int unsigned AccWords = (AccDepth + AccEntries - 1) / AccEntries;
  localparam int unsigned AccBits = AccWords > 1 ? $clog2(AccWords) : 1;
  localparam int unsigned OutLow = OutBytes & (~OutBytes + 1);
  localparam int unsigned OutShare = OutLow < AxiBytes ? OutLow : AxiBytes;
  localparam int unsigned OutGroups = OutBytes / OutShare;
  localparam int unsigned OutEntries = AxiBytes / OutShare;
  localparam int unsigned OutWordBytes = OutBytes * OutEntries;
  localparam int unsigned OutWords = (OutDepth + OutEntries - 1) / OutEntries;
  localparam int unsigned OutBits = OutWords > 1 ? $clog2(OutWords) : 1;
  localparam int unsigned ParamLow = ParamBytes & (~ParamBytes + 1);
  localparam int unsigned ParamShare = ParamLow < AxiBytes ? ParamLow : AxiBytes;
  localparam int unsigned ParamGroups = ParamBytes / ParamShare;
  localparam int unsigned ParamEntries = AxiBytes / ParamShare;
  localparam int unsigned ParamWordBytes = ParamBytes * ParamEntries;
  localparam int unsigned ParamWords = (ParamDepth + ParamEntries - 1) / ParamEntries;
  localparam int unsigned ParamBits = ParamWords > 1 ? $clog2(ParamWords) : 1;

  logic load_inp, load_wgt, load_acc, load_out, load_param;
  assign load_inp = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceInp);
  assign load_wgt = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceWgt);
  assign load_acc = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceAcc);
  assign load_out = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceOut);
  assign load_param = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceParam);
  assign table_we_o = load_we_i && load_space_i == 3'(tsr_isa_pkg::SpaceTable);
  assign load_gnt_o = !(load_inp && (alu_inp_we_i || alu_inp_first_i)) && !(load_acc && (gemm_acc_we_i || alu_acc_we_i)) &&
      !(table_we_o && !table_last) && !(load_out && alu_out_we_i);

  // TABLE: a group in parts, one after another.
  logic table_last;
  localparam int unsigned TableTurns = AxiBytes / TableBytes;
  if (TableTurns > 1) begin : gen_table_parts
    localparam int unsigned PartBits = $clog2(TableTurns);
    logic [PartBits-1:0] part_q;
    assign table_last = part_q == '1;
    assign table_waddr_o = {load_group_i, part_q};
    always_ff @(posedge clk_i) part_q <= table_we_o ? part_q + 1'b1 : '0;
    always_comb begin
      table_wdata_o = load_wdata_i[8*TableBytes-1:0];
      table_wbe_o = load_wbe_i[TableBytes-1:0];
      for (int unsigned k = 1; k < TableTurns; k++) begin
        if (part_q == PartBits'(k)) begin
          table_wdata_o = load_wdata_i[8*TableBytes*k+:8*TableBytes];
          table_wbe_o = load_wbe_i[TableBytes*k+:TableBytes];
        end
      end
    end
  end else begin : gen_table_whole
    assign table_last = 1'b1;
    assign table_waddr_o = load_group_i;
    assign table_wdata_o = load_wdata_i;
    assign table_wbe_o = load_wbe_i;
  end

  logic [8*OutBytes-1:0] alu_bytes;
  always_comb begin
    alu_bytes = alu_bytes_i;
    alu_bytes[8*(OutBytes-SecondLanes)+:8*SecondLanes] |= alu_table_bytes_i;
  end

  // Parity of what is written. That of late bytes comes with them: what is joined is 0 where there is none.
  logic [AxiBytes-1:0] load_parity;
  logic [OutBytes-1:0] alu_plain_parity, alu_parity;
  tsr_ram_parity #(.Bytes(AxiBytes), .Parity(MemoryParity)) u_load_parity (.word_i(load_wdata_i), .parity_o(load_parity));
  tsr_ram_parity #(.Bytes(OutBytes), .Parity(MemoryParity)) u_alu_parity (
    .word_i(alu_bytes_i), .parity_o(alu_plain_parity)
  );
  always_comb begin
    alu_parity = alu_plain_parity;
    alu_parity[OutBytes-SecondLanes+:SecondLanes] |= alu_table_parity_i;
  end

  // INP: port A is GEMM's.
  logic inp_b_we, inp_b_alu_we;
  logic [InpBits-1:0] inp_b_addr;
  logic [8*InpWordBytes-1:0] inp_b_wdata, alu_inp_word;
  logic [8*InpSides*InpWordBytes-1:0] gemm_inp_word;
  logic [InpWordBytes-1:0] inp_b_wbe, inp_b_wparity;
  assign inp_b_alu_we = alu_inp_we_i;  // never without a request
  assign alu_inp_gnt_o = alu_inp_we_i || alu_inp_first_i || !load_inp;
  assign inp_b_we = inp_b_alu_we || (load_inp && !alu_inp_first_i);
  always_comb begin
    inp_b_addr = InpBits'(32'(alu_inp_addr_i) / InpEntries);
    inp_b_wdata = {InpGroups{load_wdata_i}};  // not chosen by LOAD's request: the ALU's late bytes pass one look-up table
    inp_b_wparity = {InpGroups{load_parity}};
    inp_b_wbe = '0;
    if (inp_b_alu_we) begin
      inp_b_wdata = {InpEntries{(8 * InpBytes)'(alu_bytes)}};
      inp_b_wparity = {InpEntries{InpBytes'(alu_parity)}};
      inp_b_wbe = InpWordBytes'({InpBytes{1'b1}}) << (InpBytes * (32'(alu_inp_addr_i) % InpEntries));
    end else if (load_inp && !alu_inp_first_i) begin
      inp_b_addr = InpBits'(32'(load_group_i) / InpGroups);
      inp_b_wbe = InpWordBytes'(load_wbe_i) << (AxiBytes * (32'(load_group_i) % InpGroups));
    end
  end
  logic inp_a_error, inp_b_error, wgt_error, acc_error, out_error, param_error;
  if (RasterPairs != 0 && InpEntries != 1) $error("tsr_scratchpads: RasterPairs needs INP entries of a group at least");
  tsr_ram_2rw #(.Width(8 * InpWordBytes), .Depth(InpWords), .Parity(MemoryParity), .Pairs(RasterPairs)) u_inp (
    .clk_i, .a_req_i(gemm_inp_req_i), .a_pair_i(gemm_inp_pair_i), .a_addr_i(InpBits'(32'(gemm_inp_addr_i) / InpEntries)),
    .a_rows_i(gemm_inp_rows_i), .a_above_i(InpBits'(gemm_inp_above_i)),
    .a_rdata_o(gemm_inp_word), .a_error_o(inp_a_error), .b_req_i(inp_b_we || alu_inp_req_i), .b_we_i(inp_b_we),
    .b_addr_i(inp_b_addr), .b_wdata_i(inp_b_wdata), .b_wparity_i(inp_b_wparity), .b_wbe_i(inp_b_wbe), .b_rdata_o(alu_inp_word),
    .b_error_o(inp_b_error)
  );
  if (RasterPairs != 0) begin : gen_gemm_pair
    assign gemm_inp_rdata_o = gemm_inp_word;
  end else begin : gen_gemm_entry
    tsr_entry #(.Width(8 * InpBytes), .Entries(InpEntries)) u_gemm_inp (
      .clk_i, .req_i(gemm_inp_req_i), .entry_i(gemm_inp_addr_i), .word_i(gemm_inp_word), .entry_o(gemm_inp_rdata_o)
    );
  end
  tsr_entry #(.Width(8 * InpBytes), .Entries(InpEntries)) u_alu_inp (
    .clk_i, .req_i(alu_inp_req_i && !alu_inp_we_i && alu_inp_gnt_o), .entry_i(alu_inp_addr_i), .word_i(alu_inp_word),
    .entry_o(alu_inp_rdata_o)
  );

  // WGT.
  logic [8*WgtWordBytes-1:0] wgt_word;
  localparam int unsigned WgtSides = PackedWeights != 0 ? 2 : 1;
  logic [8*WgtSides*AxiBytes-1:0] wgt_wdata;
  logic [WgtSides*AxiBytes-1:0] wgt_wparity;
  if (PackedWeights != 0) begin : gen_pairs
    if (WgtEntries != 1 || WgtGroups < 2) $error("tsr_scratchpads: PackedWeights needs WGT entries of two groups");
    assign wgt_wdata = load_pair_i ? load_pair_wdata_i : {2{load_wdata_i}};
    tsr_ram_parity #(.Bytes(2 * AxiBytes), .Parity(MemoryParity)) u_parity (.word_i(wgt_wdata), .parity_o(wgt_wparity));
  end else begin : gen_no_pairs
    assign wgt_wdata = load_wdata_i;
    assign wgt_wparity = load_parity;
    logic unused_pair;
    assign unused_pair = &{1'b0, load_pair_i, load_pair_wdata_i};
  end
  tsr_ram_groups #(
    .Group(8 * AxiBytes), .Groups(WgtGroups), .Depth(WgtWords), .Parity(MemoryParity), .Pairs(PackedWeights != 0)
  ) u_wgt (
    .clk_i, .re_i(gemm_wgt_req_i), .raddr_i(WgtBits'(32'(gemm_wgt_addr_i) / WgtEntries)), .rdata_o(wgt_word),
    .error_o(wgt_error), .we_i(load_wgt), .waddr_i(WgtBits'(32'(load_group_i) / WgtGroups)), .wgroup_i(16'(32'(load_group_i) % WgtGroups)),
    .wpair_i(load_pair_i), .wdata_i(wgt_wdata), .wparity_i(wgt_wparity), .wbe_i(load_wbe_i)
  );
  tsr_entry #(.Width(8 * WgtBytes), .Entries(WgtEntries)) u_gemm_wgt (
    .clk_i, .req_i(gemm_wgt_req_i), .entry_i(gemm_wgt_addr_i), .word_i(wgt_word), .entry_o(gemm_wgt_rdata_o)
  );

  // ACC.
  logic [AccBits-1:0] acc_raddr, acc_waddr;
  logic [13:0] acc_entry;
  logic [8*AccWordBytes-1:0] acc_wdata, acc_word;
  logic [AccWordBytes-1:0] acc_wbe;
  logic store_acc_gnt;
  assign alu_acc_gnt_o = !gemm_acc_req_i;
  assign alu_acc_wgnt_o = !gemm_acc_we_i;
  assign store_acc_gnt = store_req_i && store_acc_i && !gemm_acc_req_i && !alu_acc_claim_i;
  always_comb begin
    acc_entry = gemm_acc_req_i ? gemm_acc_addr_i : alu_acc_addr_i;
    acc_raddr = AccBits'(32'(acc_entry) / AccEntries);
    if (!gemm_acc_req_i && !alu_acc_claim_i) acc_raddr = AccBits'(32'(store_group_i) / AccGroups);
    acc_waddr = '0;
    acc_wdata = '0;
    acc_wbe = '0;
    if (gemm_acc_we_i) begin
      acc_waddr = AccBits'(32'(gemm_acc_waddr_i) / AccEntries);
      acc_wdata = {AccEntries{gemm_acc_wdata_i}};
      acc_wbe = AccWordBytes'(gemm_acc_wbe_i) << (AccBytes * (32'(gemm_acc_waddr_i) % AccEntries));
    end else if (alu_acc_we_i) begin
      acc_waddr = AccBits'(32'(alu_acc_waddr_i) / AccEntries);
      acc_wdata = {AccEntries{alu_acc_wdata_i}};
      acc_wbe = AccWordBytes'({{AccBytes - 4{1'b1}}, {4{!alu_acc_keep_i}}}) << (AccBytes * (32'(alu_acc_waddr_i) % AccEntries));
    end else if (load_acc) begin
      acc_waddr = AccBits'(32'(load_group_i) / AccGroups);
      acc_wdata = {AccGroups{load_wdata_i}};
      acc_wbe = AccWordBytes'(load_wbe_i) << (AxiBytes * (32'(load_group_i) % AccGroups));
    end
  end
  logic [AccWordBytes-1:0] acc_wparity, acc_rparity;
  tsr_ram_parity #(.Bytes(AccWordBytes), .Parity(MemoryParity)) u_acc_parity (.word_i(acc_wdata), .parity_o(acc_wparity));
  tsr_ram_1r1w #(.Width(8 * AccWordBytes), .Depth(AccWords), .Parity(MemoryParity)) u_acc (
    .clk_i, .re_i(gemm_acc_req_i || alu_acc_req_i || store_acc_gnt), .raddr_i(acc_raddr), .rdata_o(acc_word), .rparity_o(acc_rparity),
    .error_o(acc_error),
    .waddr_i(acc_waddr), .wdata_i(acc_wdata), .wparity_i(acc_wparity), .wbe_i(acc_wbe)
  );
  tsr_entry #(.Width(8 * AccBytes), .Entries(AccEntries)) u_acc_entry (
    .clk_i, .req_i(gemm_acc_req_i || alu_acc_req_i), .entry_i(acc_entry), .word_i(acc_word), .entry_o(acc_rdata_o)
  );

  // OUT.
  logic [OutBits-1:0] out_raddr, out_waddr;
  logic [8*OutWordBytes-1:0] out_wdata, out_word;
  logic [OutWordBytes-1:0] out_wbe, out_wparity, out_rparity;
  logic store_out_gnt;
  assign alu_out_gnt_o = 1'b1;
  assign store_out_gnt = store_req_i && !store_acc_i && !alu_out_claim_i;
  always_comb begin
    out_raddr = OutBits'(32'(alu_out_addr_i) / OutEntries);
    if (!alu_out_claim_i) out_raddr = OutBits'(32'(store_group_i) / OutGroups);
    out_waddr = '0;
    out_wdata = {OutGroups{load_wdata_i}};
    out_wparity = {OutGroups{load_parity}};
    out_wbe = '0;
    if (alu_out_we_i) begin
      out_waddr = OutBits'(32'(alu_out_waddr_i) / OutEntries);
      out_wdata = {OutEntries{alu_bytes}};
      out_wparity = {OutEntries{alu_parity}};
      out_wbe = OutWordBytes'({OutBytes{1'b1}}) << (OutBytes * (32'(alu_out_waddr_i) % OutEntries));
    end else if (load_out) begin
      out_waddr = OutBits'(32'(load_group_i) / OutGroups);
      out_wbe = OutWordBytes'(load_wbe_i) << (AxiBytes * (32'(load_group_i) % OutGroups));
    end
  end
  tsr_ram_1r1w #(.Width(8 * OutWordBytes), .Depth(OutWords), .Parity(MemoryParity)) u_out (
    .clk_i, .re_i(alu_out_req_i || store_out_gnt), .raddr_i(out_raddr), .rdata_o(out_word), .rparity_o(out_rparity),
    .error_o(out_error),
    .waddr_i(out_waddr), .wdata_i(out_wdata), .wparity_i(out_wparity), .wbe_i(out_wbe)
  );
  tsr_entry #(.Width(8 * OutBytes), .Entries(OutEntries)) u_out_entry (
    .clk_i, .req_i(alu_out_req_i), .entry_i(alu_out_addr_i), .word_i(out_word), .entry_o(out_rdata_o)
  );

  // PARAM.
  logic [8*ParamWordBytes-1:0] param_word;
  tsr_ram_groups #(.Group(8 * AxiBytes), .Groups(ParamGroups), .Depth(ParamWords), .Parity(MemoryParity)) u_param (
    .clk_i, .re_i(alu_param_req_i), .raddr_i(ParamBits'(32'(alu_param_addr_i) / ParamEntries)), .rdata_o(param_word),
    .error_o(param_error), .we_i(load_param), .waddr_i(ParamBits'(32'(load_group_i) / ParamGroups)),
    .wgroup_i(16'(32'(load_group_i) % ParamGroups)), .wpair_i(1'b0), .wdata_i(load_wdata_i), .wparity_i(load_parity),
    .wbe_i(load_wbe_i)
  );
  tsr_entry #(.Width(8 * ParamBytes), .Entries(ParamEntries), .AddressBits(10)) u_param_entry (
    .clk_i, .req_i(alu_param_req_i), .entry_i(alu_param_addr_i), .word_i(param_word), .entry_o(alu_param_rdata_o)
  );

  // STORE's group of the word that was read.
  logic store_acc_q;
  logic [15:0] store_lane_q;
  assign store_gnt_o = store_acc_gnt || store_out_gnt;
  always_ff @(posedge clk_i) begin
    if (store_gnt_o) begin
      store_acc_q <= store_acc_i;
      store_lane_q <= store_acc_i ? 16'(32'(store_group_i) % AccGroups) : 16'(32'(store_group_i) % OutGroups);
    end
  end
  always_comb begin
    store_rdata_o = '0;
    for (int unsigned g = 0; g < AccGroups; g++) begin
      if (store_acc_q && store_lane_q == 16'(g)) store_rdata_o = acc_word[8*AxiBytes*g+:8*AxiBytes];
    end
    for (int unsigned g = 0; g < OutGroups; g++) begin
      if (!store_acc_q && store_lane_q == 16'(g)) store_rdata_o = out_word[8*AxiBytes*g+:8*AxiBytes];
    end
  end

  // Parity errors belong to who read two cycles ago.
  assign parity_error_o[tsr_isa_pkg::EngineLoad] = 1'b0;
  if (MemoryParity != 0) begin : gen_parity
    logic [1:0] acc_gemm_q, acc_alu_q, out_alu_q;
    always_ff @(posedge clk_i) begin
      acc_gemm_q <= {acc_gemm_q[0], gemm_acc_req_i};
      acc_alu_q <= {acc_alu_q[0], !gemm_acc_req_i && alu_acc_req_i};
      out_alu_q <= {out_alu_q[0], alu_out_req_i};
    end
    assign parity_error_o[tsr_isa_pkg::EngineGemm] = inp_a_error || wgt_error || (acc_error && acc_gemm_q[1]);
    assign parity_error_o[tsr_isa_pkg::EngineAlu] = inp_b_error || param_error || (acc_error && acc_alu_q[1]) ||
        (out_error && out_alu_q[1]);
    assign parity_error_o[tsr_isa_pkg::EngineStore] = (acc_error && !acc_gemm_q[1] && !acc_alu_q[1]) ||
        (out_error && !out_alu_q[1]);
  end else begin : gen_no_parity
    assign parity_error_o[3:1] = '0;
    logic unused_parity;
    assign unused_parity = &{1'b0, inp_a_error, inp_b_error, wgt_error, acc_error, out_error, param_error};
  end

  // Range checks keep addresses below the depths; the bits above them are not needed.
  logic unused;
  assign unused = &{1'b0, acc_rparity, out_rparity, gemm_inp_addr_i, gemm_inp_above_i, gemm_wgt_addr_i, acc_entry, gemm_acc_waddr_i, alu_acc_waddr_i,
                    alu_out_addr_i, alu_out_waddr_i, alu_inp_addr_i, alu_param_addr_i, load_group_i, store_group_i};

endmodule
