// SPDX-License-Identifier: Apache-2.0
// The registers of a chip of several cores behind an AXI4-Lite slave: accesses to a core's registers are passed on, those
// of the chip's own page (isa/registers.toml) answered here. A write of `start` becomes one write of ap_ctrl to several
// cores in the same cycle. Enters also what the cores say of themselves; leaves when all are at rest, and the interrupt,
// which is theirs in an OR.
//
// Latency: a write to a core is answered three cycles after address and data have both come, a read seven cycles after its
// address; two cycles for the chip's page. Throughput: one write and one read at a time. A core's interface takes an
// access in the first cycle in which it can, and answers into hands that are always open. Every output to a core depends
// on state only. Reset: synchronous, active low. Legal: Cores 1 to 16. Timing: one choice among registers.
module tsr_chip_control #(
  parameter int unsigned Cores = 2
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  output logic                interrupt_o,
  input  logic                s_awvalid_i,
  output logic                s_awready_o,
  input  logic [16:0]         s_awaddr_i,
  input  logic                s_wvalid_i,
  output logic                s_wready_o,
  input  logic [31:0]         s_wdata_i,
  input  logic [3:0]          s_wstrb_i,
  output logic                s_bvalid_o,
  input  logic                s_bready_i,
  output logic [1:0]          s_bresp_o,
  input  logic                s_arvalid_i,
  output logic                s_arready_o,
  input  logic [16:0]         s_araddr_i,
  output logic                s_rvalid_o,
  input  logic                s_rready_i,
  output logic [31:0]         s_rdata_o,
  output logic [1:0]          s_rresp_o,
  output logic [Cores-1:0]    c_write_o,    // both halves of a write
  output logic [11:0]         c_waddr_o,
  output logic [31:0]         c_wdata_o,
  output logic [3:0]          c_wstrb_o,
  input  logic [Cores-1:0]    c_bvalid_i,
  output logic [Cores-1:0]    c_arvalid_o,
  input  logic [Cores-1:0]    c_arready_i,
  output logic [11:0]         c_araddr_o,
  input  logic [Cores-1:0]    c_rvalid_i,
  input  logic [32*Cores-1:0] c_rdata_i,
  input  logic [Cores-1:0]    interrupt_i,
  input  logic [Cores-1:0]    idle_i,       // nothing runs
  input  logic [Cores-1:0]    fault_i,      // there is a fault record
  input  logic [Cores-1:0]    rest_i,       // it waits for a public counter and nothing moves
  output logic                all_rest_o,   // all cores are at rest or idle
  output logic                restart_o,    // one cycle: programs begin
  output logic [Cores-1:0]    clear_o,      // one cycle: the public counter becomes 0
  input  logic                moved_i,      // the shared bus moves a beat
  input  logic [Cores-1:0]    waits_i       // a burst waits for its turn
);

  localparam int unsigned CounterBits = 40;
  localparam int unsigned CoreBits = 4;
  if (Cores < 1 || Cores > 16) $error("tsr_chip_control: 1 to 16 cores");
  if (tsr_isa_pkg::ChipWaited != 12'h080 || tsr_isa_pkg::ChipWaitedStride != 8 || tsr_isa_pkg::ChipWaitedCount != 16)
    $error("tsr_chip_control finds `waited` by bits 7 and 6 to 3 of its address");

  // Writes.
  logic accept, write_busy_q, bvalid_q, page_start, restart_q;
  logic [Cores-1:0] pending_q, write_core, clear_q;
  logic [11:0] waddr_q;
  logic [31:0] wdata_q;
  logic [3:0] wstrb_q;
  assign accept = s_awvalid_i && s_wvalid_i && !write_busy_q && !bvalid_q;
  assign s_awready_o = accept;
  assign s_wready_o = accept;
  assign s_bvalid_o = bvalid_q;
  assign s_bresp_o = 2'b00;
  assign page_start = s_awaddr_i[16] && s_awaddr_i[15:2] == {4'd0, tsr_isa_pkg::ChipStart[11:2]};
  always_comb begin
    for (int unsigned c = 0; c < Cores; c++) write_core[c] = !s_awaddr_i[16] && s_awaddr_i[15:12] == CoreBits'(c);
  end
  always_ff @(posedge clk_i) begin
    if (accept) begin
      waddr_q <= page_start ? tsr_isa_pkg::RegApCtrl : {s_awaddr_i[11:2], 2'b00};
      wdata_q <= page_start ? 32'(1 << tsr_isa_pkg::RegApCtrlApStartBit) : s_wdata_i;
      wstrb_q <= page_start ? '1 : s_wstrb_i;
    end
    if (!rst_ni) begin
      write_busy_q <= 1'b0;
      bvalid_q <= 1'b0;
      pending_q <= '0;
      clear_q <= '0;
      restart_q <= 1'b0;
    end else begin
      clear_q <= '0;
      restart_q <= accept && page_start;
      pending_q <= pending_q & ~c_bvalid_i;
      if (bvalid_q && s_bready_i) bvalid_q <= 1'b0;
      if (write_busy_q && (pending_q & ~c_bvalid_i) == '0) begin
        write_busy_q <= 1'b0;
        bvalid_q <= 1'b1;
      end
      if (accept) begin
        write_busy_q <= 1'b1;
        pending_q <= page_start ? s_wdata_i[tsr_isa_pkg::ChipStartCoresBit+:Cores] : write_core;
        if (page_start) clear_q <= s_wdata_i[tsr_isa_pkg::ChipStartClearBit+:Cores];
      end
    end
  end
  assign c_write_o = pending_q;
  assign c_waddr_o = waddr_q;
  assign c_wdata_o = wdata_q;
  assign c_wstrb_o = wstrb_q;
  assign clear_o = clear_q;
  assign restart_o = restart_q;

  // Reads.
  logic read_busy_q, rvalid_q, page_q, answered;
  logic [Cores-1:0] asking_q, waiting_q, read_core;
  logic [16:0] raddr_q;
  logic [31:0] rdata_q, answer, page;
  assign s_arready_o = !read_busy_q && !rvalid_q;
  assign s_rvalid_o = rvalid_q;
  assign s_rdata_o = rdata_q;
  assign s_rresp_o = 2'b00;
  always_comb begin
    answer = '0;
    for (int unsigned c = 0; c < Cores; c++) begin
      read_core[c] = !s_araddr_i[16] && s_araddr_i[15:12] == CoreBits'(c);
      answer |= c_rvalid_i[c] ? c_rdata_i[32*c+:32] : '0;
    end
  end
  assign answered = page_q || (waiting_q & ~c_rvalid_i) == '0;
  always_ff @(posedge clk_i) begin
    if (s_arready_o) raddr_q <= s_araddr_i;
    if (read_busy_q) rdata_q <= page_q ? page : answer;
    if (!rst_ni) begin
      read_busy_q <= 1'b0;
      rvalid_q <= 1'b0;
      page_q <= 1'b0;
      asking_q <= '0;
      waiting_q <= '0;
    end else begin
      asking_q <= asking_q & ~c_arready_i;
      if (rvalid_q && s_rready_i) rvalid_q <= 1'b0;
      if (read_busy_q && answered) begin
        read_busy_q <= 1'b0;
        rvalid_q <= 1'b1;
      end
      if (s_arready_o && s_arvalid_i) begin
        read_busy_q <= 1'b1;
        page_q <= s_araddr_i[16];
        asking_q <= read_core;
        waiting_q <= read_core;
      end
    end
  end
  assign c_arvalid_o = asking_q;
  assign c_araddr_o = {raddr_q[11:2], 2'b00};

  // The chip's page.
  logic [CounterBits-1:0] moved_q;
  logic [CounterBits*Cores-1:0] waited_q;
  logic [63:0] moved, waited;
  assign moved = 64'(moved_q);
  always_comb begin
    waited = '0;
    for (int unsigned c = 0; c < Cores; c++) begin
      if (raddr_q[6:3] == CoreBits'(c)) waited = 64'(waited_q[CounterBits*c+:CounterBits]);
    end
    page = '0;
    case ({raddr_q[11:2], 2'b00})
      tsr_isa_pkg::ChipCores: page = 32'(Cores);
      tsr_isa_pkg::ChipDone: page = 32'(idle_i);
      tsr_isa_pkg::ChipFault: page = 32'(fault_i);
      tsr_isa_pkg::ChipMoved: page = moved[31:0];
      tsr_isa_pkg::ChipMoved + 12'd4: page = moved[63:32];
      default: if (raddr_q[11:7] == tsr_isa_pkg::ChipWaited[11:7]) page = raddr_q[2] ? waited[63:32] : waited[31:0];
    endcase
    if (raddr_q[15:12] != '0) page = '0;
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni || (accept && page_start)) begin
      moved_q <= '0;
      waited_q <= '0;
    end else begin
      if (moved_i) moved_q <= moved_q + 1'b1;
      for (int unsigned c = 0; c < Cores; c++) begin
        if (waits_i[c]) waited_q[CounterBits*c+:CounterBits] <= waited_q[CounterBits*c+:CounterBits] + 1'b1;
      end
    end
  end

  logic all_rest_q;
  always_ff @(posedge clk_i) all_rest_q <= rst_ni && (rest_i | idle_i) == '1;
  assign all_rest_o = all_rest_q;
  assign interrupt_o = interrupt_i != '0;

  logic unused;
  assign unused = &{1'b0, s_awaddr_i[1:0], raddr_q, s_wdata_i};

endmodule
