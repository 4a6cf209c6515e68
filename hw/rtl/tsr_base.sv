// SPDX-License-Identifier: Apache-2.0
// The sixteen base registers of LOAD and STORE, a LUT RAM. Enters: writes of 32-bit halves by bytes. Leaves: the register
// that each of three readers names: LOAD, STORE, and the register interface; of the last register the lowest bits, beside
// them. A walk over all of them follows reset, so
// that they read as 0 then.
//
// Latency: reads are combinational; a write is read from the next cycle on. Throughput: one write a cycle. Reset:
// synchronous, active low; ready_o says when the walk, one register a cycle, is over, and nothing is written before.
// Timing: one look-up from a number to its register.
module tsr_base (
  input  logic        clk_i,
  input  logic        rst_ni,
  output logic        ready_o,
  input  logic        we_i,
  input  logic [4:0]  half_i,      // number of a register, then which half
  input  logic [3:0]  be_i,
  input  logic [31:0] wdata_i,
  input  logic [3:0]  load_i,
  output logic [63:0] load_base_o,
  input  logic [3:0]  store_i,
  output logic [63:0] store_base_o,
  output logic [63:0] half_base_o,  // of half_i: both halves
  output logic [15:0] last_o        // of the last register
);

  logic [63:0] mem[tsr_isa_pkg::RegBaseCount];
  logic [4:0] clear_q;
  logic [3:0] address;
  logic [7:0] enable;
  logic [63:0] data;
  logic [15:0] last_q;

  assign ready_o = clear_q[4];
  assign address = ready_o ? half_i[4:1] : clear_q[3:0];
  assign data = ready_o ? {wdata_i, wdata_i} : '0;
  assign enable = !ready_o ? '1 : !we_i ? '0 : half_i[0] ? {be_i, 4'd0} : {4'd0, be_i};

  always_ff @(posedge clk_i) begin
    for (int unsigned b = 0; b < 8; b++) begin
      if (enable[b]) mem[address][8*b+:8] <= data[8*b+:8];
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) clear_q <= '0;
    else if (!ready_o) clear_q <= clear_q + 5'd1;
  end

  always_ff @(posedge clk_i) begin
    if (!ready_o) last_q <= '0;
    else if (we_i && half_i == 5'd30) begin
      if (be_i[0]) last_q[7:0] <= wdata_i[7:0];
      if (be_i[1]) last_q[15:8] <= wdata_i[15:8];
    end
  end
  assign last_o = last_q;

  assign load_base_o = mem[load_i];
  assign store_base_o = mem[store_i];
  assign half_base_o = mem[half_i[4:1]];

endmodule
