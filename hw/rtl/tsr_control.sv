// SPDX-License-Identifier: Apache-2.0
// The registers of isa/registers.toml behind an AXI4-Lite slave: AP_CTRL_HS handshake, interrupt, program and base
// registers, the fault record, capabilities, and the read side of the counters. A write that stands between a start and
// its end takes effect at once; software leaves the registers of a running program alone.
//
// Latency: a write is answered in the cycle after address and data have both come, a read four cycles after its address:
// the counters answer in between. Throughput: one write in two cycles, one read in five. ap_start is accepted as soon as
// the machine is idle; ap_ready comes with ap_done. Reset: synchronous, active low; for sixteen cycles after it the base
// registers are cleared and no access is taken. Timing: one choice among the registers between two registers.
module tsr_control #(
  parameter int unsigned Batch          = 1,
  parameter int unsigned BlockIn        = 8,
  parameter int unsigned BlockOut       = 8,
  parameter int unsigned InpBytes       = 64,
  parameter int unsigned WgtBytes       = 64,
  parameter int unsigned AccBytes       = 64,
  parameter int unsigned OutBytes       = 64,
  parameter int unsigned ParamBytes     = 64,
  parameter int unsigned TableCount     = 1,
  parameter int unsigned SecondLanes    = 1,
  parameter int unsigned RowLanes       = 0,
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned LoadQueue      = 2,
  parameter int unsigned GemmQueue      = 2,
  parameter int unsigned AluQueue       = 2,
  parameter int unsigned StoreQueue     = 2,
  parameter int unsigned ReadsInFlight  = 16,
  parameter int unsigned WritesInFlight = 8,
  parameter int unsigned MemoryParity   = 0,
  parameter int unsigned PackedWeights  = 0,
  parameter int unsigned RasterPairs    = 0,
  parameter int unsigned Cores          = 1,
  parameter int unsigned MemoryAxiBytes = 0
) (
  input  logic          clk_i,
  input  logic          rst_ni,
  input  logic          s_awvalid_i,
  output logic          s_awready_o,
  input  logic [11:0]   s_awaddr_i,
  input  logic          s_wvalid_i,
  output logic          s_wready_o,
  input  logic [31:0]   s_wdata_i,
  input  logic [3:0]    s_wstrb_i,
  output logic          s_bvalid_o,
  input  logic          s_bready_i,
  output logic [1:0]    s_bresp_o,
  input  logic          s_arvalid_i,
  output logic          s_arready_o,
  input  logic [11:0]   s_araddr_i,
  output logic          s_rvalid_o,
  input  logic          s_rready_i,
  output logic [31:0]   s_rdata_o,
  output logic [1:0]    s_rresp_o,
  output logic          interrupt_o,
  output logic          start_o,              // one cycle: clear everything and begin
  output logic          run_o,                // from the cycle after start_o until stop_i
  input  logic          stop_i,
  input  logic          fault_i,
  input  logic [2:0]    fault_code_i,         // 0: memory_parity
  input  logic [2:0]    fault_unit_i,
  input  logic [31:0]   fault_pc_i,
  output logic [63:0]   program_address_o,
  output logic [31:0]   instruction_count_o,
  input  logic [3:0]    load_base_i,          // number of a base register
  output logic [63:0]   load_base_o,          // and what stands in it
  input  logic [3:0]    store_base_i,
  output logic [63:0]   store_base_o,
  output logic [15:0]   row_limit_o,          // the last base register's lowest bits
  output logic [63:0]   window_first_o,
  output logic [63:0]   window_last_o,
  output logic          counter_read_o,       // one cycle: this counter is wanted
  output logic [5:0]    counter_select_o,
  input  logic [63:0]   counter_value_i       // from the cycle after the next one on
);

  // Registers are where addresses have these bits.
  localparam logic [11:0] LastBase = tsr_isa_pkg::RegBase + 12'(tsr_isa_pkg::RegBaseStride * tsr_isa_pkg::RegBaseCount);
  if (tsr_isa_pkg::RegBase % 32 != 0 || tsr_isa_pkg::RegBaseStride != 8 || tsr_isa_pkg::RegBaseCount != 16)
    $error("tsr_base has sixteen registers of eight bytes");
  if (tsr_isa_pkg::RegCycles % 512 != 0 || tsr_isa_pkg::RegBusy != tsr_isa_pkg::RegCycles + 64)
    $error("tsr_counters numbers its counters by bits 8 to 3 of their addresses");
  if (tsr_isa_pkg::FaultMemoryParity != 8) $error("a code of three bits that is 0 becomes memory_parity");

  logic start_q, run_q, done_q, ready_q, restart_q, gie_q;
  logic [1:0] ier_q, isr_q;
  logic [63:0] program_q, window_first_q, window_last_q;
  logic [31:0] count_q;

  // Write channel: both halves together.
  logic bvalid_q, write;
  logic [11:0] waddr;
  assign write = s_awvalid_i && s_wvalid_i && !bvalid_q && base_ready;
  assign s_awready_o = write;
  assign s_wready_o = write;
  assign s_bvalid_o = bvalid_q;
  assign s_bresp_o = 2'b00;
  assign waddr = {s_awaddr_i[11:2], 2'b00};

  // Read channel. A read passes four cycles: its address; the counters' first step; one choice among the registers here;
  // and another between that, the counters and the base registers.
  logic rvalid_q, address_q, choice_q, answer_q, read;
  logic is_base_q, is_counter_q;
  logic [31:0] rdata_q, rdata;
  logic [11:0] raddr;
  logic [9:0] raddr_q;
  assign s_arready_o = !address_q && !choice_q && !answer_q && !rvalid_q && base_ready;
  assign s_rvalid_o = rvalid_q;
  assign s_rdata_o = rdata_q;
  assign s_rresp_o = 2'b00;
  assign raddr = {raddr_q, 2'b00};
  assign read = choice_q;
  assign counter_read_o = address_q;
  assign counter_select_o = raddr[8:3];

  // Base registers: reads and writes of the interface share a port; a write comes first, and a read then waits.
  logic base_ready, write_base, read_held;
  logic [4:0] write_half, read_half;
  logic [63:0] base;
  assign write_base = write && waddr >= tsr_isa_pkg::RegBase && waddr < LastBase;
  assign write_half = waddr[6:2] - tsr_isa_pkg::RegBase[6:2];
  assign read_half = raddr[6:2] - tsr_isa_pkg::RegBase[6:2];
  assign read_held = answer_q && write_base;
  tsr_base u_base (
    .clk_i, .rst_ni, .ready_o(base_ready), .we_i(write_base), .half_i(write_base ? write_half : read_half),
    .be_i(s_wstrb_i), .wdata_i(s_wdata_i), .load_i(load_base_i), .load_base_o, .store_i(store_base_i), .store_base_o,
    .half_base_o(base), .last_o(row_limit_o)
  );

  always_comb begin
    rdata = '0;
    if (read) begin
      case (raddr)
        tsr_isa_pkg::RegApCtrl: rdata = {24'd0, restart_q, 3'd0, ready_q, !run_q && !start_q, done_q, start_q};
        tsr_isa_pkg::RegGie: rdata = {31'd0, gie_q};
        tsr_isa_pkg::RegIer: rdata = {30'd0, ier_q};
        tsr_isa_pkg::RegIsr: rdata = {30'd0, isr_q};
        tsr_isa_pkg::RegProgramAddress: rdata = program_q[31:0];
        tsr_isa_pkg::RegProgramAddress + 12'd4: rdata = program_q[63:32];
        tsr_isa_pkg::RegInstructionCount: rdata = count_q;
        tsr_isa_pkg::RegWindowFirst: rdata = window_first_q[31:0];
        tsr_isa_pkg::RegWindowFirst + 12'd4: rdata = window_first_q[63:32];
        tsr_isa_pkg::RegWindowLast: rdata = window_last_q[31:0];
        tsr_isa_pkg::RegWindowLast + 12'd4: rdata = window_last_q[63:32];
        tsr_isa_pkg::RegFault: if (fault_i) rdata = {21'd0, fault_unit_i, 4'd0, MemoryParity != 0 && fault_code_i == '0, fault_code_i};
        tsr_isa_pkg::RegFaultPc: if (fault_i) rdata = fault_pc_i;
        tsr_isa_pkg::RegMagic: rdata = tsr_isa_pkg::RegMagicReset;
        tsr_isa_pkg::RegIsaVersion: rdata = 32'(tsr_isa_pkg::IsaVersion);
        tsr_isa_pkg::RegConfigBatch: rdata = 32'(Batch);
        tsr_isa_pkg::RegConfigBlockIn: rdata = 32'(BlockIn);
        tsr_isa_pkg::RegConfigBlockOut: rdata = 32'(BlockOut);
        tsr_isa_pkg::RegConfigInpBytes: rdata = 32'(InpBytes);
        tsr_isa_pkg::RegConfigWgtBytes: rdata = 32'(WgtBytes);
        tsr_isa_pkg::RegConfigAccBytes: rdata = 32'(AccBytes);
        tsr_isa_pkg::RegConfigOutBytes: rdata = 32'(OutBytes);
        tsr_isa_pkg::RegConfigParamBytes: rdata = 32'(ParamBytes);
        tsr_isa_pkg::RegConfigTableCount: rdata = 32'(TableCount);
        tsr_isa_pkg::RegConfigSecondLanes: rdata = 32'(SecondLanes);
        tsr_isa_pkg::RegConfigRowLanes: rdata = 32'(RowLanes);
        tsr_isa_pkg::RegConfigAxiBytes: rdata = 32'(AxiBytes);
        tsr_isa_pkg::RegConfigLoadQueue: rdata = 32'(LoadQueue);
        tsr_isa_pkg::RegConfigGemmQueue: rdata = 32'(GemmQueue);
        tsr_isa_pkg::RegConfigAluQueue: rdata = 32'(AluQueue);
        tsr_isa_pkg::RegConfigStoreQueue: rdata = 32'(StoreQueue);
        tsr_isa_pkg::RegConfigReadsInFlight: rdata = 32'(ReadsInFlight);
        tsr_isa_pkg::RegConfigWritesInFlight: rdata = 32'(WritesInFlight);
        default: begin
          if (MemoryParity != 0 && raddr == tsr_isa_pkg::RegConfigMemoryParity) rdata = 32'(MemoryParity);
          if (PackedWeights != 0 && raddr == tsr_isa_pkg::RegConfigPackedWeights) rdata = 32'(PackedWeights);
          if (RasterPairs != 0 && raddr == tsr_isa_pkg::RegConfigRasterPairs) rdata = 32'(RasterPairs);
          if (Cores > 1 && raddr == tsr_isa_pkg::RegConfigCores) rdata = 32'(Cores);
          if (MemoryAxiBytes != 0 && raddr == tsr_isa_pkg::RegConfigMemoryAxiBytes) rdata = 32'(MemoryAxiBytes);
        end
      endcase
    end
  end

  logic write_start;
  assign write_start = write && waddr == tsr_isa_pkg::RegApCtrl && s_wstrb_i[0] && s_wdata_i[0];
  assign start_o = start_q && !run_q;
  assign run_o = run_q;

  // The addresses that a program begins with, by bytes.
  always_ff @(posedge clk_i) begin
    for (int unsigned b = 0; b < 4; b++) begin
      if (write && s_wstrb_i[b]) begin
        for (int unsigned h = 0; h < 2; h++) begin
          if (waddr == tsr_isa_pkg::RegProgramAddress + 12'(4 * h)) program_q[32*h+8*b+:8] <= s_wdata_i[8*b+:8];
          if (waddr == tsr_isa_pkg::RegWindowFirst + 12'(4 * h)) window_first_q[32*h+8*b+:8] <= s_wdata_i[8*b+:8];
          if (waddr == tsr_isa_pkg::RegWindowLast + 12'(4 * h)) window_last_q[32*h+8*b+:8] <= s_wdata_i[8*b+:8];
        end
        if (waddr == tsr_isa_pkg::RegInstructionCount) count_q[8*b+:8] <= s_wdata_i[8*b+:8];
      end
    end
    if (!rst_ni) begin
      program_q <= '0;
      count_q <= '0;
      window_first_q <= '0;
      window_last_q <= tsr_isa_pkg::RegWindowLastReset;
    end
  end

  always_ff @(posedge clk_i) begin
    if (s_arready_o) raddr_q <= s_araddr_i[11:2];
    if (read) begin
      rdata_q <= rdata;
      is_base_q <= raddr >= tsr_isa_pkg::RegBase && raddr < LastBase;
      is_counter_q <= raddr[11:9] == tsr_isa_pkg::RegCycles[11:9];
    end
    if (answer_q && !read_held) begin
      if (is_base_q) rdata_q <= raddr[2] ? base[63:32] : base[31:0];
      if (is_counter_q) rdata_q <= raddr[2] ? counter_value_i[63:32] : counter_value_i[31:0];
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      start_q <= 1'b0;
      run_q <= 1'b0;
      done_q <= 1'b0;
      ready_q <= 1'b0;
      restart_q <= 1'b0;
      gie_q <= 1'b0;
      ier_q <= '0;
      isr_q <= '0;
      bvalid_q <= 1'b0;
      rvalid_q <= 1'b0;
      address_q <= 1'b0;
      choice_q <= 1'b0;
      answer_q <= 1'b0;
    end else begin
      if (bvalid_q && s_bready_i) bvalid_q <= 1'b0;
      if (rvalid_q && s_rready_i) rvalid_q <= 1'b0;
      address_q <= s_arvalid_i && s_arready_o;
      choice_q <= address_q;
      answer_q <= choice_q || read_held;
      if (answer_q && !read_held) rvalid_q <= 1'b1;
      if (read && raddr == tsr_isa_pkg::RegApCtrl) begin
        done_q <= 1'b0;
        ready_q <= 1'b0;
      end
      if (write) begin
        bvalid_q <= 1'b1;
        case (waddr)
          tsr_isa_pkg::RegApCtrl: if (s_wstrb_i[0]) restart_q <= s_wdata_i[tsr_isa_pkg::RegApCtrlAutoRestartBit];
          tsr_isa_pkg::RegGie: if (s_wstrb_i[0]) gie_q <= s_wdata_i[0];
          tsr_isa_pkg::RegIer: if (s_wstrb_i[0]) ier_q <= s_wdata_i[1:0];
          tsr_isa_pkg::RegIsr: if (s_wstrb_i[0]) isr_q <= isr_q ^ s_wdata_i[1:0];
          default: ;
        endcase
      end
      // The handshake wins over what was written or read in the same cycle.
      if (write_start) start_q <= 1'b1;
      if (start_o) begin
        start_q <= 1'b0;
        run_q <= 1'b1;
      end
      if (run_q && stop_i) begin
        run_q <= 1'b0;
        done_q <= 1'b1;
        ready_q <= 1'b1;
        isr_q <= isr_q | ier_q;
        if (restart_q && !fault_i) start_q <= 1'b1;
      end
    end
  end

  assign interrupt_o = gie_q && isr_q != '0;
  assign program_address_o = program_q;
  assign instruction_count_o = count_q;
  assign window_first_o = window_first_q;
  assign window_last_o = window_last_q;

  logic unused;
  assign unused = &{1'b0, s_awaddr_i[1:0], s_araddr_i[1:0]};

endmodule
