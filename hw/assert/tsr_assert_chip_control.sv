// SPDX-License-Identifier: Apache-2.0
// The registers of a chip, bound to tsr_chip_control beside the rules of AXI4-Lite, which are those of one machine
// (tsr_assert_control): a write reaches the cores that it is for, each once, and is answered behind the last of them; a
// read asks the core that it is for, and answers with what that says; the counters of the shared bus count what it does;
// all are at rest, and the interrupt stands, when the cores say so.
module tsr_assert_chip_control #(
  parameter int unsigned Cores = 2
) (
  input logic                clk_i,
  input logic                rst_ni,
  input logic                interrupt_o,
  input logic                s_awvalid_i,
  input logic                s_awready_o,
  input logic [16:0]         s_awaddr_i,
  input logic [31:0]         s_wdata_i,
  input logic                s_bvalid_o,
  input logic                s_arvalid_i,
  input logic                s_arready_o,
  input logic [16:0]         s_araddr_i,
  input logic                s_rvalid_o,
  input logic [31:0]         s_rdata_o,
  input logic [Cores-1:0]    c_write_o,
  input logic [11:0]         c_waddr_o,
  input logic [31:0]         c_wdata_o,
  input logic [Cores-1:0]    c_bvalid_i,
  input logic [Cores-1:0]    c_arvalid_o,
  input logic [Cores-1:0]    c_arready_i,
  input logic [11:0]         c_araddr_o,
  input logic [Cores-1:0]    c_rvalid_i,
  input logic [32*Cores-1:0] c_rdata_i,
  input logic [Cores-1:0]    interrupt_i,
  input logic [Cores-1:0]    idle_i,
  input logic [Cores-1:0]    rest_i,
  input logic                all_rest_o,
  input logic                restart_o,
  input logic [Cores-1:0]    clear_o,
  input logic                moved_i,
  input logic [Cores-1:0]    waits_i,
  input logic [39:0]         moved_q,
  input logic [40*Cores-1:0] waited_q
);

  logic [Cores-1:0] writes, reads, clears;  // that a core has not taken; whose counters a start clears
  logic [11:0] write_address, read_address;
  logic [31:0] write_data, answer;
  logic started, resting, asks;              // asks: the answer of a core is known, once it has come
  longint unsigned moved, waited[Cores];

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      writes = '0;
      reads = '0;
      clears = '0;
      started = 1'b0;
      resting = 1'b0;
      asks = 1'b0;
      moved = 0;
      for (int unsigned c = 0; c < Cores; c++) waited[c] = 0;
    end else begin
      `TSR_ASSERT(c_write_o == writes, "a write to the wrong cores")
      if (writes != '0)
        `TSR_ASSERT(c_waddr_o == write_address && c_wdata_o == write_data, "a write changed on its way")
      `TSR_ASSERT(!s_bvalid_o || writes == '0, "a write answered before all cores took it")
      `TSR_ASSERT(c_arvalid_o == reads, "a read of the wrong core")
      if (reads != '0) `TSR_ASSERT(c_araddr_o == read_address, "a read changed on its way")
      if (s_rvalid_o && asks) `TSR_ASSERT(s_rdata_o == answer, "a read answered with another value than the core's")
      `TSR_ASSERT(clear_o == clears && restart_o == started, "programs begin without a start, or not by it")
      `TSR_ASSERT(all_rest_o == resting, "not all are at rest, or all are")
      `TSR_ASSERT(interrupt_o == (interrupt_i != '0), "the interrupt is not that of the cores")
      `TSR_ASSERT(moved_q == 40'(moved), "the beats of the shared bus are counted wrongly")
      for (int unsigned c = 0; c < Cores; c++) begin
        `TSR_ASSERT(waited_q[40*c+:40] == 40'(waited[c]), "the cycles of waiting are counted wrongly")
        if (waits_i[c]) waited[c] = waited[c] + 1;
        if (c_rvalid_i[c]) answer = c_rdata_i[32*c+:32];
      end
      if (moved_i) moved = moved + 1;
      resting = (rest_i | idle_i) == '1;
      writes = writes & ~c_bvalid_i;
      reads = reads & ~c_arready_i;
      clears = '0;
      started = 1'b0;
      if (s_awvalid_i && s_awready_o) begin
        write_address = {s_awaddr_i[11:2], 2'b00};
        write_data = s_wdata_i;
        for (int unsigned c = 0; c < Cores; c++) writes[c] = 32'(s_awaddr_i[16:12]) == c;
        if (s_awaddr_i[16:2] == {5'b10000, tsr_isa_pkg::ChipStart[11:2]}) begin
          write_address = tsr_isa_pkg::RegApCtrl;
          write_data = 32'd1;
          writes = s_wdata_i[Cores-1:0];
          clears = s_wdata_i[16+:Cores];
          started = 1'b1;
          moved = 0;
          for (int unsigned c = 0; c < Cores; c++) waited[c] = 0;
        end
      end
      if (s_arvalid_i && s_arready_o) begin
        read_address = {s_araddr_i[11:2], 2'b00};
        for (int unsigned c = 0; c < Cores; c++) reads[c] = 32'(s_araddr_i[16:12]) == c;
        asks = !s_araddr_i[16];
        answer = '0;
      end
    end
  end

endmodule

bind tsr_chip_control tsr_assert_chip_control #(.Cores(Cores)) u_assert (.*);
bind tsr_chip_control tsr_assert_control u_assert_bus (.*, .start_o(1'b0), .run_o(1'b0));
