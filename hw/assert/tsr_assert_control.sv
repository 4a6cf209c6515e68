// SPDX-License-Identifier: Apache-2.0
// The rules of AXI4-Lite on the slave, bound to tsr_control. Address and data of a write are taken together; a response
// follows each write and each read, once, never without one, and stands until taken. A program starts only when none
// runs.
module tsr_assert_control (
  input logic        clk_i,
  input logic        rst_ni,
  input logic        s_awvalid_i,
  input logic        s_awready_o,
  input logic        s_wvalid_i,
  input logic        s_wready_o,
  input logic        s_bvalid_o,
  input logic        s_bready_i,
  input logic [1:0]  s_bresp_o,
  input logic        s_arvalid_i,
  input logic        s_arready_o,
  input logic        s_rvalid_o,
  input logic        s_rready_i,
  input logic [31:0] s_rdata_o,
  input logic [1:0]  s_rresp_o,
  input logic        start_o,
  input logic        run_o
);

  logic b_held_q, r_held_q;
  logic [1:0] b_q;
  logic [33:0] r_q;
  int unsigned writes, reads;  // taken and not answered

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      b_held_q <= 1'b0;
      r_held_q <= 1'b0;
      writes = 0;
      reads = 0;
    end else begin
      b_held_q <= s_bvalid_o && !s_bready_i;
      r_held_q <= s_rvalid_o && !s_rready_i;
      b_q <= s_bresp_o;
      r_q <= {s_rresp_o, s_rdata_o};
      `TSR_ASSERT(!b_held_q || (s_bvalid_o && b_q == s_bresp_o), "write response changed before bready")
      `TSR_ASSERT(!r_held_q || (s_rvalid_o && r_q == {s_rresp_o, s_rdata_o}), "read data changed before rready")
      `TSR_ASSERT((s_awvalid_i && s_awready_o) == (s_wvalid_i && s_wready_o), "address and data taken apart")
      if (s_bvalid_o) `TSR_ASSERT(writes == 1, "write response without a write")
      if (s_rvalid_o) `TSR_ASSERT(reads == 1, "read data without a read")
      if (s_bvalid_o && s_bready_i) writes = 0;
      if (s_rvalid_o && s_rready_i) reads = 0;
      if (s_awvalid_i && s_awready_o) begin
        `TSR_ASSERT(writes == 0, "a write taken before the last one was answered")
        writes = 1;
      end
      if (s_arvalid_i && s_arready_o) begin
        `TSR_ASSERT(reads == 0, "a read taken before the last one was answered")
        reads = 1;
      end
      `TSR_ASSERT(!(start_o && run_o), "a start while a program runs")
    end
  end

endmodule

bind tsr_control tsr_assert_control u_assert (.*);
