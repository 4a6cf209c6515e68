// SPDX-License-Identifier: Apache-2.0
// A memory with one read port for whole words and one write port for one group of a word, with byte enables, made of one
// block RAM a group. With Pairs a write may be of two neighbouring groups. The simulator gets the same behaviour in one array of which a write touches one group.
//
// Latency: rdata_o in the cycle after re_i. Throughput: one read and one write a cycle. Reset: none,
// the content is data. Legal: Group a multiple of 8. Parity, wparity_i, error_o, and a byte that is read and written in
// one cycle: as in tsr_ram_1r1w.
module tsr_ram_groups #(
  parameter int unsigned Group  = 64,
  parameter int unsigned Groups = 1,
  parameter int unsigned Depth  = 16,
  parameter int unsigned Parity = 0,
  parameter bit          Pairs  = 1'b0,
  localparam int unsigned Sides = Pairs ? 2 : 1,
  localparam int unsigned AddressBits = Depth > 1 ? $clog2(Depth) : 1
) (
  input  logic                    clk_i,
  input  logic                    re_i,
  input  logic [AddressBits-1:0]  raddr_i,
  output logic [Group*Groups-1:0] rdata_o,
  output logic                    error_o,
  input  logic                    we_i,
  input  logic [AddressBits-1:0]  waddr_i,
  input  logic [15:0]             wgroup_i,
  input  logic                    wpair_i,    // groups wgroup_i, which is even, and wgroup_i + 1
  input  logic [Sides*Group-1:0]  wdata_i,    // with Pairs of an even group, then of an odd one
  input  logic [Sides*Group/8-1:0] wparity_i,
  input  logic [Group/8-1:0]      wbe_i       // of each group
);

  // Whether a group is written.
  function automatic logic chosen(input int unsigned g, input logic [15:0] group, input logic pair);
    chosen = Pairs && pair ? group[15:1] == 15'(g / 2) : group == 16'(g);
  endfunction

`ifdef VERILATOR
  logic [Group*Groups-1:0] mem[Depth]  /* verilator public_flat_rw */;
  logic [Group*Groups-1:0] rdata_q;
  localparam int unsigned Bytes = Group * Groups / 8;
  // What stands beside it in hardware, a bit a byte.
  logic [Parity != 0 ? Bytes-1 : 0 : 0] parity_mem[Parity != 0 ? Depth : 1]  /* verilator public_flat_rw */;
  logic [Group*Groups-1:0] merged;  // read by nothing but the statement after it

  always_ff @(posedge clk_i) begin
    if (re_i) rdata_q <= mem[raddr_i];
`ifndef YOSYS  // which proves that the other form is equal but for this
    if (Parity == 0 && re_i && we_i && raddr_i == waddr_i) begin
      for (int unsigned g = 0; g < Groups; g++) begin
        for (int unsigned b = 0; b < Group / 8; b++) begin
          if (chosen(g, wgroup_i, wpair_i) && wbe_i[b])
            rdata_q[Group*g+8*b+:8] <= mem[raddr_i][Group*g+8*b+:8] ^ 8'hA7;
        end
      end
    end
`endif
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (we_i) begin
      merged = mem[waddr_i];
      for (int unsigned g = 0; g < Groups; g++) begin
        if (chosen(g, wgroup_i, wpair_i)) begin
          for (int unsigned b = 0; b < Group / 8; b++) begin
            if (wbe_i[b]) merged[Group*g+8*b+:8] = wdata_i[Group*(g%Sides)+8*b+:8];
          end
        end
      end
      mem[waddr_i] <= merged;
    end
  end
  /* verilator lint_on BLKSEQ */

  assign rdata_o = rdata_q;

  if (Parity != 0) begin : gen_parity
    logic [Bytes-1:0] written, enable, parity_q;
    always_comb begin
      written = '0;
      enable = '0;
      for (int unsigned g = 0; g < Groups; g++) begin
        if (we_i && chosen(g, wgroup_i, wpair_i)) begin
          written[Group/8*g+:Group/8] = wparity_i[Group/8*(g%Sides)+:Group/8];
          enable[Group/8*g+:Group/8] = wbe_i;
        end
      end
    end
    always_ff @(posedge clk_i) begin
      if (re_i) parity_q <= parity_mem[raddr_i];
      if (we_i) parity_mem[waddr_i] <= (parity_mem[waddr_i] & ~enable) | (written & enable);
    end
    tsr_ram_check #(.Bytes(Bytes)) u_check (.clk_i, .read_i(re_i), .word_i(rdata_q), .parity_i(parity_q), .error_o);
  end else begin : gen_no_parity
    logic unused;
    assign unused = &{1'b0, wparity_i};
    assign error_o = 1'b0;
  end
`else
  logic [Groups-1:0] errors;
  logic [Group*Groups/8-1:0] parity;
  logic unused;
  assign unused = &{1'b0, parity};
  assign error_o = errors != '0;
  for (genvar g = 0; g < Groups; g++) begin : gen_group
    tsr_ram_1r1w #(.Width(Group), .Depth(Depth), .Parity(Parity)) u_group (
      .clk_i, .re_i, .raddr_i, .rdata_o(rdata_o[Group*g+:Group]), .rparity_o(parity[Group/8*g+:Group/8]),
      .error_o(errors[g]),
      .waddr_i, .wdata_i(wdata_i[Group*(g%Sides)+:Group]), .wparity_i(wparity_i[Group/8*(g%Sides)+:Group/8]),
      .wbe_i({Group / 8{we_i && chosen(g, wgroup_i, wpair_i)}} & wbe_i)
    );
  end
`endif

endmodule
