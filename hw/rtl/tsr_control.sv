// SPDX-License-Identifier: Apache-2.0
// The registers of isa/registers.toml behind an AXI4-Lite slave: AP_CTRL_HS handshake, interrupt, program and base
// registers, the fault record, capabilities, and the read side of the counters. A write that stands between a start and
// its end takes effect at once; software leaves the registers of a running program alone.
//
// Latency: a write is answered in the cycle after address and data have both come; a read likewise. Throughput: one
// access in two cycles. ap_start is accepted as soon as the machine is idle; ap_ready comes with ap_done. Reset:
// synchronous, active low.
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
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned LoadQueue      = 2,
  parameter int unsigned GemmQueue      = 2,
  parameter int unsigned AluQueue       = 2,
  parameter int unsigned StoreQueue     = 2,
  parameter int unsigned ReadsInFlight  = 16,
  parameter int unsigned WritesInFlight = 8
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
  input  logic [2:0]    fault_code_i,
  input  logic [2:0]    fault_unit_i,
  input  logic [31:0]   fault_pc_i,
  output logic [63:0]   program_address_o,
  output logic [31:0]   instruction_count_o,
  output logic [1023:0] base_o,
  output logic [63:0]   window_first_o,
  output logic [63:0]   window_last_o,
  output logic [5:0]    counter_select_o,
  input  logic [63:0]   counter_value_i
);

  logic start_q, run_q, done_q, ready_q, restart_q, gie_q;
  logic [1:0] ier_q, isr_q;
  logic [63:0] program_q, window_first_q, window_last_q;
  logic [31:0] count_q;
  logic [1023:0] base_q;

  // Write channel: both halves together.
  logic bvalid_q, write;
  logic [11:0] waddr;
  logic [31:0] mask;
  assign write = s_awvalid_i && s_wvalid_i && !bvalid_q;
  assign s_awready_o = write;
  assign s_wready_o = write;
  assign s_bvalid_o = bvalid_q;
  assign s_bresp_o = 2'b00;
  assign waddr = {s_awaddr_i[11:2], 2'b00};
  assign mask = {{8{s_wstrb_i[3]}}, {8{s_wstrb_i[2]}}, {8{s_wstrb_i[1]}}, {8{s_wstrb_i[0]}}};

  // Read channel.
  logic rvalid_q, read;
  logic [31:0] rdata_q, rdata;
  logic [11:0] raddr;
  assign read = s_arvalid_i && !rvalid_q;
  assign s_arready_o = !rvalid_q;
  assign s_rvalid_o = rvalid_q;
  assign s_rdata_o = rdata_q;
  assign s_rresp_o = 2'b00;
  assign raddr = {s_araddr_i[11:2], 2'b00};

  // Counters: first the four sums, then those of each unit in turn.
  assign counter_select_o = raddr < tsr_isa_pkg::RegBusy ? 6'((raddr - tsr_isa_pkg::RegCycles) >> 3)
                                                         : 6'((raddr - tsr_isa_pkg::RegBusy) >> 3) + 6'd4;

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
        tsr_isa_pkg::RegFault: if (fault_i) rdata = {21'd0, fault_unit_i, 5'd0, fault_code_i};
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
        tsr_isa_pkg::RegConfigAxiBytes: rdata = 32'(AxiBytes);
        tsr_isa_pkg::RegConfigLoadQueue: rdata = 32'(LoadQueue);
        tsr_isa_pkg::RegConfigGemmQueue: rdata = 32'(GemmQueue);
        tsr_isa_pkg::RegConfigAluQueue: rdata = 32'(AluQueue);
        tsr_isa_pkg::RegConfigStoreQueue: rdata = 32'(StoreQueue);
        tsr_isa_pkg::RegConfigReadsInFlight: rdata = 32'(ReadsInFlight);
        tsr_isa_pkg::RegConfigWritesInFlight: rdata = 32'(WritesInFlight);
        default: begin
          for (int unsigned k = 0; k < tsr_isa_pkg::RegBaseCount; k++) begin
            if (raddr == tsr_isa_pkg::RegBase + 12'(tsr_isa_pkg::RegBaseStride * k)) rdata = base_q[64*k+:32];
            if (raddr == tsr_isa_pkg::RegBase + 12'(tsr_isa_pkg::RegBaseStride * k + 4)) rdata = base_q[64*k+32+:32];
          end
          if ((raddr >= tsr_isa_pkg::RegCycles && raddr < tsr_isa_pkg::RegCycles + 12'h20) ||
              (raddr >= tsr_isa_pkg::RegBusy && raddr < tsr_isa_pkg::RegBusy + 12'(tsr_isa_pkg::RegBusyCount * tsr_isa_pkg::RegBusyStride)))
            rdata = raddr[2] ? counter_value_i[63:32] : counter_value_i[31:0];
        end
      endcase
    end
  end

  logic write_start;
  assign write_start = write && waddr == tsr_isa_pkg::RegApCtrl && s_wstrb_i[0] && s_wdata_i[0];
  assign start_o = start_q && !run_q;
  assign run_o = run_q;

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
      program_q <= '0;
      count_q <= '0;
      base_q <= '0;
      window_first_q <= '0;
      window_last_q <= tsr_isa_pkg::RegWindowLastReset;
      bvalid_q <= 1'b0;
      rvalid_q <= 1'b0;
      rdata_q <= '0;
    end else begin
      if (bvalid_q && s_bready_i) bvalid_q <= 1'b0;
      if (rvalid_q && s_rready_i) rvalid_q <= 1'b0;
      if (read) begin
        rvalid_q <= 1'b1;
        rdata_q <= rdata;
        if (raddr == tsr_isa_pkg::RegApCtrl) begin
          done_q <= 1'b0;
          ready_q <= 1'b0;
        end
      end
      if (write) begin
        bvalid_q <= 1'b1;
        case (waddr)
          tsr_isa_pkg::RegApCtrl: if (s_wstrb_i[0]) restart_q <= s_wdata_i[tsr_isa_pkg::RegApCtrlAutoRestartBit];
          tsr_isa_pkg::RegGie: if (s_wstrb_i[0]) gie_q <= s_wdata_i[0];
          tsr_isa_pkg::RegIer: if (s_wstrb_i[0]) ier_q <= s_wdata_i[1:0];
          tsr_isa_pkg::RegIsr: if (s_wstrb_i[0]) isr_q <= isr_q ^ s_wdata_i[1:0];
          tsr_isa_pkg::RegProgramAddress: program_q[31:0] <= (program_q[31:0] & ~mask) | (s_wdata_i & mask);
          tsr_isa_pkg::RegProgramAddress + 12'd4: program_q[63:32] <= (program_q[63:32] & ~mask) | (s_wdata_i & mask);
          tsr_isa_pkg::RegInstructionCount: count_q <= (count_q & ~mask) | (s_wdata_i & mask);
          tsr_isa_pkg::RegWindowFirst: window_first_q[31:0] <= (window_first_q[31:0] & ~mask) | (s_wdata_i & mask);
          tsr_isa_pkg::RegWindowFirst + 12'd4:
            window_first_q[63:32] <= (window_first_q[63:32] & ~mask) | (s_wdata_i & mask);
          tsr_isa_pkg::RegWindowLast: window_last_q[31:0] <= (window_last_q[31:0] & ~mask) | (s_wdata_i & mask);
          tsr_isa_pkg::RegWindowLast + 12'd4:
            window_last_q[63:32] <= (window_last_q[63:32] & ~mask) | (s_wdata_i & mask);
          default: begin
            for (int unsigned k = 0; k < 2 * tsr_isa_pkg::RegBaseCount; k++) begin
              if (waddr == tsr_isa_pkg::RegBase + 12'(4 * k))
                base_q[32*k+:32] <= (base_q[32*k+:32] & ~mask) | (s_wdata_i & mask);
            end
          end
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
  assign base_o = base_q;
  assign window_first_o = window_first_q;
  assign window_last_o = window_last_q;

  logic unused;
  assign unused = &{1'b0, s_awaddr_i[1:0], s_araddr_i[1:0]};

endmodule
