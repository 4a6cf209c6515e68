// SPDX-License-Identifier: Apache-2.0
// The arbiters of isa/ports.md, bound to tsr_scratchpads: at most one request is granted at each port of each memory, one
// is granted when there is any that may be, and every granted address is inside its memory.
module tsr_assert_scratchpads #(
  parameter int unsigned InpDepth   = 16,
  parameter int unsigned WgtDepth   = 16,
  parameter int unsigned AccDepth   = 16,
  parameter int unsigned OutDepth   = 16,
  parameter int unsigned ParamDepth = 16,
  parameter int unsigned InpBytes   = 8,
  parameter int unsigned WgtBytes   = 8,
  parameter int unsigned AccBytes   = 8,
  parameter int unsigned OutBytes   = 8,
  parameter int unsigned ParamBytes = 8,
  parameter int unsigned AxiBytes   = 8,
  parameter int unsigned GroupBits  = 19
) (
  input logic                 clk_i,
  input logic                 gemm_inp_req_i,
  input logic                 gemm_inp_pair_i,
  input logic [13:0]          gemm_inp_addr_i,
  input logic                 gemm_wgt_req_i,
  input logic [13:0]          gemm_wgt_addr_i,
  input logic                 gemm_acc_req_i,
  input logic [13:0]          gemm_acc_addr_i,
  input logic                 gemm_acc_we_i,
  input logic [13:0]          gemm_acc_waddr_i,
  input logic                 alu_acc_req_i,
  input logic                 alu_acc_claim_i,
  input logic [13:0]          alu_acc_addr_i,
  input logic                 alu_acc_gnt_o,
  input logic                 alu_acc_we_i,
  input logic [13:0]          alu_acc_waddr_i,
  input logic                 alu_acc_wgnt_o,
  input logic                 alu_out_req_i,
  input logic                 alu_out_claim_i,
  input logic [13:0]          alu_out_addr_i,
  input logic                 alu_out_gnt_o,
  input logic                 alu_out_we_i,
  input logic [13:0]          alu_out_waddr_i,
  input logic                 alu_inp_req_i,
  input logic                 alu_inp_we_i,
  input logic                 alu_inp_first_i,
  input logic [13:0]          alu_inp_addr_i,
  input logic                 alu_inp_gnt_o,
  input logic                 alu_param_req_i,
  input logic [9:0]           alu_param_addr_i,
  input logic                 load_inp,
  input logic                 load_wgt,
  input logic                 load_acc,
  input logic                 load_out,
  input logic                 load_param,
  input logic [GroupBits-1:0] load_group_i,
  input logic                 load_gnt_o,
  input logic                 store_req_i,
  input logic                 store_acc_i,
  input logic [GroupBits-1:0] store_group_i,
  input logic                 store_gnt_o
);

  logic [2:0] inp_b_ask, inp_b, acc_read_ask, acc_read, acc_write_ask, acc_write;
  logic [1:0] out_read_ask, out_read, out_write_ask, out_write;
  assign inp_b_ask = {alu_inp_req_i && alu_inp_we_i, load_inp, alu_inp_req_i && !alu_inp_we_i};
  assign inp_b = inp_b_ask & {alu_inp_gnt_o, load_gnt_o, alu_inp_gnt_o};
  assign acc_read_ask = {gemm_acc_req_i, alu_acc_req_i, store_req_i && store_acc_i};
  assign acc_read = acc_read_ask & {1'b1, alu_acc_gnt_o, store_gnt_o};
  assign acc_write_ask = {gemm_acc_we_i, alu_acc_we_i, load_acc};
  assign acc_write = acc_write_ask & {1'b1, alu_acc_wgnt_o, load_gnt_o};
  assign out_read_ask = {alu_out_req_i, store_req_i && !store_acc_i};
  assign out_read = out_read_ask & {alu_out_gnt_o, store_gnt_o};
  // What the ALU claims it need not ask for, but STORE, or LOAD, does not get it.
  logic [2:0] inp_b_may, acc_read_may;
  logic [1:0] out_read_may;
  assign inp_b_may = inp_b_ask & {1'b1, !alu_inp_first_i, 1'b1};
  assign acc_read_may = acc_read_ask & {2'b11, !alu_acc_claim_i};
  assign out_read_may = out_read_ask & {1'b1, !alu_out_claim_i};
  assign out_write_ask = {alu_out_we_i, load_out};
  assign out_write = out_write_ask & {1'b1, load_gnt_o};

  // A group is inside when it begins before the last byte.
  function automatic logic group_inside(input logic [GroupBits-1:0] group, input int unsigned bytes);
    group_inside = AxiBytes * 32'(group) < bytes;
  endfunction

  always @(posedge clk_i) begin
    `TSR_ASSERT($onehot0(inp_b) && (inp_b != '0) == (inp_b_may != '0), "INP port B: not one grant")
    `TSR_ASSERT($onehot0(acc_read) && (acc_read != '0) == (acc_read_may != '0), "ACC read: not one grant")
    `TSR_ASSERT($onehot0(acc_write) && (acc_write != '0) == (acc_write_ask != '0), "ACC write: not one grant")
    `TSR_ASSERT($onehot0(out_read) && (out_read != '0) == (out_read_may != '0), "OUT read: not one grant")
    `TSR_ASSERT($onehot0(out_write) && (out_write != '0) == (out_write_ask != '0), "OUT write: not one grant")
    // Of a pair one may lie outside, which no window has.
    if (gemm_inp_req_i)
      `TSR_ASSERT(32'(gemm_inp_addr_i) < InpDepth || (gemm_inp_pair_i && 32'(14'(gemm_inp_addr_i + 14'd1)) < InpDepth),
                  "GEMM reads behind INP")
    if (gemm_wgt_req_i) `TSR_ASSERT(32'(gemm_wgt_addr_i) < WgtDepth, "GEMM reads behind WGT")
    if (gemm_acc_req_i) `TSR_ASSERT(32'(gemm_acc_addr_i) < AccDepth, "GEMM reads behind ACC")
    if (gemm_acc_we_i) `TSR_ASSERT(32'(gemm_acc_waddr_i) < AccDepth, "GEMM writes behind ACC")
    if (alu_acc_req_i) `TSR_ASSERT(32'(alu_acc_addr_i) < AccDepth, "ALU reads behind ACC")
    if (alu_acc_we_i) `TSR_ASSERT(32'(alu_acc_waddr_i) < AccDepth, "ALU writes behind ACC")
    if (alu_acc_req_i) `TSR_ASSERT(alu_acc_claim_i, "the ALU reads what it has not claimed")
    if (alu_out_req_i) `TSR_ASSERT(alu_out_claim_i, "the ALU reads what it has not claimed")
    if (alu_out_req_i) `TSR_ASSERT(32'(alu_out_addr_i) < OutDepth, "ALU reads behind OUT")
    if (alu_out_we_i) `TSR_ASSERT(32'(alu_out_waddr_i) < OutDepth, "ALU writes behind OUT")
    if (alu_inp_req_i) `TSR_ASSERT(32'(alu_inp_addr_i) < InpDepth, "ALU behind INP")
    if (alu_param_req_i) `TSR_ASSERT(32'(alu_param_addr_i) < ParamDepth, "ALU reads behind PARAM")
    if (load_inp) `TSR_ASSERT(group_inside(load_group_i, InpBytes * InpDepth), "LOAD writes behind INP")
    if (load_wgt) `TSR_ASSERT(group_inside(load_group_i, WgtBytes * WgtDepth), "LOAD writes behind WGT")
    if (load_acc) `TSR_ASSERT(group_inside(load_group_i, AccBytes * AccDepth), "LOAD writes behind ACC")
    if (load_out) `TSR_ASSERT(group_inside(load_group_i, OutBytes * OutDepth), "LOAD writes behind OUT")
    if (load_param) `TSR_ASSERT(group_inside(load_group_i, ParamBytes * ParamDepth), "LOAD writes behind PARAM")
    if (store_req_i && store_acc_i)
      `TSR_ASSERT(group_inside(store_group_i, AccBytes * AccDepth), "STORE reads behind ACC")
    if (store_req_i && !store_acc_i)
      `TSR_ASSERT(group_inside(store_group_i, OutBytes * OutDepth), "STORE reads behind OUT")
  end

endmodule

bind tsr_scratchpads tsr_assert_scratchpads #(
  .InpDepth(InpDepth), .WgtDepth(WgtDepth), .AccDepth(AccDepth), .OutDepth(OutDepth), .ParamDepth(ParamDepth),
  .InpBytes(InpBytes), .WgtBytes(WgtBytes), .AccBytes(AccBytes), .OutBytes(OutBytes), .ParamBytes(ParamBytes),
  .AxiBytes(AxiBytes), .GroupBits(GroupBits)
) u_assert (.*);
