// SPDX-License-Identifier: Apache-2.0
// A memory with one read port for whole words and one write port for one group of a word, with byte enables, made of one
// block RAM a group. The simulator gets the same behaviour in one array of which a write touches one group.
//
// Latency: rdata_o in the cycle after re_i. Throughput: one read and one write a cycle. A read of the word that is
// written in the same cycle returns the old word. Reset: none, the content is data. Legal: Group a multiple of 8.
module tsr_ram_groups #(
  parameter int unsigned Group  = 64,
  parameter int unsigned Groups = 1,
  parameter int unsigned Depth  = 16,
  localparam int unsigned AddressBits = Depth > 1 ? $clog2(Depth) : 1
) (
  input  logic                    clk_i,
  input  logic                    re_i,
  input  logic [AddressBits-1:0]  raddr_i,
  output logic [Group*Groups-1:0] rdata_o,
  input  logic                    we_i,
  input  logic [AddressBits-1:0]  waddr_i,
  input  logic [15:0]             wgroup_i,
  input  logic [Group-1:0]        wdata_i,
  input  logic [Group/8-1:0]      wbe_i
);

`ifdef VERILATOR
  logic [Group*Groups-1:0] mem[Depth]  /* verilator public_flat_rw */;
  logic [Group*Groups-1:0] rdata_q;
  logic [Group*Groups-1:0] merged;  // read by nothing but the statement after it

  always_ff @(posedge clk_i) begin
    if (re_i) rdata_q <= mem[raddr_i];
  end

  /* verilator lint_off BLKSEQ */
  always_ff @(posedge clk_i) begin
    if (we_i) begin
      merged = mem[waddr_i];
      for (int unsigned g = 0; g < Groups; g++) begin
        if (wgroup_i == 16'(g)) begin
          for (int unsigned b = 0; b < Group / 8; b++) begin
            if (wbe_i[b]) merged[Group*g+8*b+:8] = wdata_i[8*b+:8];
          end
        end
      end
      mem[waddr_i] <= merged;
    end
  end
  /* verilator lint_on BLKSEQ */

  assign rdata_o = rdata_q;
`else
  for (genvar g = 0; g < Groups; g++) begin : gen_group
    tsr_ram_1r1w #(.Width(Group), .Depth(Depth)) u_group (
      .clk_i, .re_i, .raddr_i, .rdata_o(rdata_o[Group*g+:Group]), .we_i(we_i && wgroup_i == 16'(g)), .waddr_i, .wdata_i,
      .wbe_i
    );
  end
`endif

endmodule
