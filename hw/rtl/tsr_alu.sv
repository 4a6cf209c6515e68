// SPDX-License-Identifier: Apache-2.0
// The vector engine (isa/semantics.md, ALU). Enters: instructions, source vectors from ACC, OUT or INP, second operands
// from OUT, bias, scale and constants from PARAM, tables written by LOAD. Leaves: vectors to ACC, OUT or INP,
// completions. Method: a preparation register in which the ranges are checked while the previous instruction runs; an
// issue stage that reads one source vector a cycle; a reduction register; then one pipeline of lanes: tsr_requantise, a
// table, tsr_second_op, a table, the write. The bare int32 path to ACC leaves after the reduction, instructions without
// a second operation skip it. Destinations under way are kept in a ring; a read of one of them waits for its write.
//
// Latency: without a second operation 3 + ones of RequantiseRegisters + 1 cycles from a read to its write, else also
// the ones of SecondRegisters. Throughput: one source vector a cycle; two cycles a vector where source and second
// operand are both in OUT. The pipeline drains between instructions, whose constants all stages read. Back-pressure: a
// refused write holds the whole pipeline, a refused read the issue stage. Reset: synchronous, active low. Legal:
// AxiBytes a power of two up to 64; the stages (registers of both units and five) at most 33.
module tsr_alu #(
  parameter int unsigned Batch      = 1,
  parameter int unsigned BlockIn    = 8,
  parameter int unsigned BlockOut   = 8,
  parameter int unsigned InpDepth   = 16,
  parameter int unsigned AccDepth   = 16,
  parameter int unsigned OutDepth   = 16,
  parameter int unsigned ParamDepth = 16,
  parameter int unsigned TableCount = 1,
  parameter int unsigned AxiBytes   = 8,
  parameter logic [8:0]  RequantiseRegisters = 9'h1ff,
  parameter logic [17:0] SecondRegisters     = 18'h3ffff
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,
  // Engine port.
  input  logic                          instr_valid_i,
  input  logic [511:0]                  instr_i,
  input  logic [31:0]                   instr_pc_i,
  output logic                          instr_ready_o,
  output logic                          busy_o,
  output logic                          complete_o,
  output logic                          complete_signal_o,
  output logic                          complete_fault_o,
  output logic [2:0]                    complete_code_o,
  output logic [31:0]                   complete_pc_o,
  // Memories.
  output logic                          acc_req_o,
  output logic [13:0]                   acc_addr_o,
  input  logic                          acc_gnt_i,
  input  logic [32*Batch*BlockOut-1:0]  acc_rdata_i,
  output logic                          acc_we_o,
  output logic [13:0]                   acc_waddr_o,
  output logic [32*Batch*BlockOut-1:0]  acc_wdata_o,
  input  logic                          acc_wgnt_i,
  output logic                          out_req_o,
  output logic [13:0]                   out_addr_o,
  input  logic                          out_gnt_i,
  input  logic [8*Batch*BlockOut-1:0]   out_rdata_i,
  output logic                          out_we_o,
  output logic [13:0]                   out_waddr_o,
  output logic [8*Batch*BlockOut-1:0]   out_wdata_o,
  output logic                          inp_req_o,
  output logic                          inp_we_o,
  output logic [13:0]                   inp_addr_o,
  output logic [8*Batch*BlockIn-1:0]    inp_wdata_o,
  input  logic                          inp_gnt_i,
  input  logic [8*Batch*BlockIn-1:0]    inp_rdata_i,
  output logic                          param_req_o,
  output logic [9:0]                    param_addr_o,
  input  logic [64*BlockOut-1:0]        param_rdata_i,
  // Writes of LOAD to the tables, one aligned group of AxiBytes.
  input  logic                          tbl_we_i,
  input  logic [21-$clog2(AxiBytes):0]  tbl_waddr_i,
  input  logic [8*AxiBytes-1:0]         tbl_wdata_i,
  input  logic [AxiBytes-1:0]           tbl_wbe_i,
  // Counters.
  output logic                          issue_o,
  output logic                          stall_mem_o,
  output logic                          stall_port_o
);

  localparam int unsigned Lanes = Batch * BlockOut;
  localparam int unsigned RangeBits = 14 + 1 + 12 + 3 + 1;
  localparam int unsigned RequantiseLatency = $countones(RequantiseRegisters);
  localparam int unsigned RingDepth = 32;
  localparam logic [2:0] Idle = 3'd0, Ask = 3'd1, Capture = 3'd2, Run = 3'd3, Drain = 3'd4;
  localparam logic [1:0] SpaceAcc = 2'(tsr_isa_pkg::AluSpaceAcc), SpaceOut = 2'(tsr_isa_pkg::AluSpaceOut);
  localparam logic [1:0] SpaceInp = 2'(tsr_isa_pkg::AluSpaceInp);

  // Preparation: the instruction whose ranges are being found.
  logic prep_valid_q, prep_start_q, prep_move, prep_drop;
  logic [511:0] prep_word_q;
  logic [31:0] prep_pc_q;
  logic [2:0] state_q;
  tsr_isa_pkg::alu_t prep;
  logic prep_fence, prep_second, prep_done, prep_fault, src_done, dst_done, second_done;
  logic signed [RangeBits-1:0] src_lowest, src_highest, dst_lowest, dst_highest, second_lowest, second_highest;
  logic signed [RangeBits-1:0] src_limit, dst_limit;
  logic [12:0] param_highest;

  assign prep = prep_word_q;
  assign prep_fence = prep_word_q[5:0] == 6'(tsr_isa_pkg::OpcodeFence);
  assign prep_second = prep.second_op != 2'(tsr_isa_pkg::SecondOpNone);

  tsr_range u_src_range (
    .clk_i, .rst_ni, .start_i(prep_start_q), .addr_i(prep.src_addr), .extent_i(prep.extent), .stride_i(prep.src_stride),
    .loops_i(3'd6), .done_o(src_done), .lowest_o(src_lowest), .highest_o(src_highest)
  );
  tsr_range u_dst_range (
    .clk_i, .rst_ni, .start_i(prep_start_q), .addr_i(prep.dst_addr), .extent_i(prep.extent), .stride_i(prep.dst_stride),
    .loops_i(3'd6 - prep.reduce), .done_o(dst_done), .lowest_o(dst_lowest), .highest_o(dst_highest)
  );
  tsr_range u_second_range (
    .clk_i, .rst_ni, .start_i(prep_start_q), .addr_i(prep.second_addr), .extent_i(prep.extent),
    .stride_i(prep.second_stride), .loops_i(3'd6 - prep.reduce), .done_o(second_done), .lowest_o(second_lowest),
    .highest_o(second_highest)
  );
  assign prep_done = prep_valid_q && !prep_fence && !prep_start_q && src_done && dst_done && second_done;

  always_comb begin
    src_limit = RangeBits'(OutDepth);
    if (prep.src == SpaceAcc) src_limit = RangeBits'(AccDepth);
    if (prep.src == SpaceInp) src_limit = RangeBits'(InpDepth);
    dst_limit = RangeBits'(OutDepth);
    if (prep.dst == SpaceAcc) dst_limit = RangeBits'(AccDepth);
    if (prep.dst == SpaceInp) dst_limit = RangeBits'(InpDepth);
    param_highest = 13'(prep.param_addr);
    for (int unsigned k = 0; k < 6; k++) begin
      if (prep.param_loop == 3'(k)) param_highest = 13'(prep.param_addr) + 13'(prep.extent[12*k+:12]) - 13'd1;
    end
    prep_fault = src_lowest[RangeBits-1] || src_highest >= src_limit || dst_lowest[RangeBits-1] ||
        dst_highest >= dst_limit;
    if (prep_second && (second_lowest[RangeBits-1] || second_highest >= RangeBits'(OutDepth) ||
                        32'(prep.constant_addr) >= ParamDepth)) prep_fault = 1'b1;
    if (prep.convert && 32'(param_highest) >= ParamDepth) prep_fault = 1'b1;
    if (prep.table_enable && 32'(prep.table_) >= TableCount) prep_fault = 1'b1;
    if (prep.second_table_enable && 32'(prep.second_table) >= TableCount) prep_fault = 1'b1;
  end

  // The instruction that runs.
  logic [511:0] word_q;
  logic [31:0] pc_q;
  logic [255:0] constants_q;
  tsr_isa_pkg::alu_t alu;
  logic has_second, raw, overlap_src_q, overlap_second_q, enable, issue, advance, retire, finish;
  logic [41:0] address;
  logic [71:0] index;
  logic [5:0] unused_inner_last;
  logic sum_first, sum_last, last;
  logic [13:0] src_address, dst_address, second_address;

  assign alu = word_q;
  assign has_second = alu.second_op != 2'(tsr_isa_pkg::SecondOpNone);
  assign raw = !alu.convert && alu.dst == SpaceAcc;
  assign prep_move = prep_done && !prep_fault && (state_q == Idle || finish);
  assign prep_drop = prep_valid_q && state_q == Idle && (prep_fence || (prep_done && prep_fault));
  assign instr_ready_o = !prep_valid_q || prep_move;

  tsr_nest #(.Operands(3)) u_nest (
    .clk_i, .rst_ni, .load_i(prep_move), .advance_i(advance), .addr_i({prep.second_addr, prep.dst_addr, prep.src_addr}),
    .extent_i(alu.extent), .stride_i({alu.second_stride, alu.dst_stride, alu.src_stride}), .reduce_i(alu.reduce),
    .addr_o(address), .index_o(index), .inner_last_o(unused_inner_last), .sum_first_o(sum_first),
    .sum_last_o(sum_last), .last_o(last)
  );
  assign {second_address, dst_address, src_address} = address;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      prep_valid_q <= 1'b0;
      prep_start_q <= 1'b0;
      prep_word_q <= '0;
      prep_pc_q <= '0;
      state_q <= Idle;
      word_q <= '0;
      pc_q <= '0;
      constants_q <= '0;
      overlap_src_q <= 1'b0;
      overlap_second_q <= 1'b0;
    end else begin
      prep_start_q <= 1'b0;
      if (instr_valid_i && instr_ready_o) begin
        prep_valid_q <= 1'b1;
        prep_start_q <= 1'b1;
        prep_word_q <= instr_i;
        prep_pc_q <= instr_pc_i;
      end else if (prep_move || prep_drop) begin
        prep_valid_q <= 1'b0;
      end
      if (prep_move) begin
        word_q <= prep_word_q;
        pc_q <= prep_pc_q;
        state_q <= prep_second ? Ask : Run;
        overlap_src_q <= prep.src == prep.dst && src_lowest <= dst_highest && dst_lowest <= src_highest;
        overlap_second_q <= prep_second && prep.dst == SpaceOut && second_lowest <= dst_highest &&
            dst_lowest <= second_highest;
      end else if (finish) begin
        state_q <= Idle;
      end else if (state_q == Ask) begin
        state_q <= Capture;
      end else if (state_q == Capture) begin
        constants_q <= param_rdata_i[255:0];
        state_q <= Run;
      end else if (advance && last) begin
        state_q <= Drain;
      end
    end
  end

  // Destinations under way, oldest at pop_q.
  logic [14*RingDepth-1:0] ring_q;
  logic [RingDepth-1:0] ring_valid_q;
  logic [4:0] push_q, pop_q;
  logic push, hazard_src, hazard_second;

  always_comb begin
    hazard_src = 1'b0;
    hazard_second = 1'b0;
    if (state_q == Run && overlap_src_q) begin
      for (int unsigned e = 0; e < RingDepth; e++) begin
        if (ring_valid_q[e] && ring_q[14*e+:14] == src_address) hazard_src = 1'b1;
      end
    end
    if (state_q == Run && overlap_second_q) begin
      for (int unsigned e = 0; e < RingDepth; e++) begin
        if (ring_valid_q[e] && ring_q[14*e+:14] == second_address) hazard_second = 1'b1;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      ring_q <= '0;
      ring_valid_q <= '0;
      push_q <= '0;
      pop_q <= '0;
    end else begin
      if (push) begin
        ring_q[14*push_q+:14] <= dst_address;
        ring_valid_q[push_q] <= 1'b1;
        push_q <= push_q + 5'd1;
      end
      if (retire) begin
        ring_valid_q[pop_q] <= 1'b0;
        pop_q <= pop_q + 5'd1;
      end
    end
  end
  assign finish = state_q == Drain && retire && pop_q + 5'd1 == push_q;

  // Issue: one read of the source; the second operand with the vector's last source, or after it when both are in OUT.
  logic second_phase_q, split, take_src, completing, take_second, want, granted, loaded_q, param_fetch;
  logic [9:0] param_address, loaded_address_q;

  assign split = has_second && alu.src == SpaceOut;
  assign take_src = !second_phase_q;
  assign completing = second_phase_q || (sum_last && !split);
  assign take_second = has_second && completing;
  assign want = state_q == Run && enable && !(take_src && hazard_src) && !(take_second && hazard_second);
  assign granted = (!acc_req_o || acc_gnt_i) && (!out_req_o || out_gnt_i) &&
      (!(take_src && alu.src == SpaceInp) || (!inp_we_o && inp_gnt_i));
  assign issue = want && granted;
  assign push = issue && completing;
  assign advance = issue && (completing || !sum_last);

  assign acc_req_o = want && take_src && alu.src == SpaceAcc;
  assign acc_addr_o = src_address;
  assign out_req_o = want && (take_second || (take_src && alu.src == SpaceOut));
  assign out_addr_o = take_second ? second_address : src_address;

  always_comb begin
    param_address = alu.param_addr;
    for (int unsigned k = 0; k < 6; k++) begin
      if (alu.param_loop == 3'(k)) param_address = alu.param_addr + index[12*k+:10];
    end
  end
  assign param_fetch = push && alu.convert && !(loaded_q && loaded_address_q == param_address);
  assign param_req_o = state_q == Ask || param_fetch;
  assign param_addr_o = state_q == Ask ? alu.constant_addr : param_address;

  // Stage 1: data are back. What a refused write holds here is kept, because other engines share the read ports.
  logic valid_1_q, fresh_1_q, src_1_q, first_1_q, second_1_q, done_1_q, param_1_q;
  logic [32*Lanes-1:0] source, held_source_q, reduced, reduced_q;
  logic [8*Lanes-1:0] held_second_q, second_2_q, source_bytes;
  logic [64*BlockOut-1:0] param_q;
  logic valid_2_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      second_phase_q <= 1'b0;
      loaded_q <= 1'b0;
      loaded_address_q <= '0;
      valid_1_q <= 1'b0;
      fresh_1_q <= 1'b0;
      src_1_q <= 1'b0;
      first_1_q <= 1'b0;
      second_1_q <= 1'b0;
      done_1_q <= 1'b0;
      param_1_q <= 1'b0;
      valid_2_q <= 1'b0;
    end else begin
      if (issue) second_phase_q <= split && sum_last && !second_phase_q;
      if (prep_move) begin
        loaded_q <= 1'b0;
      end else if (param_fetch) begin
        loaded_q <= 1'b1;
        loaded_address_q <= param_address;
      end
      if (enable) begin
        valid_1_q <= issue;
        fresh_1_q <= issue;
        src_1_q <= take_src;
        first_1_q <= sum_first;
        second_1_q <= take_second;
        done_1_q <= completing;
        param_1_q <= param_fetch;
        valid_2_q <= valid_1_q && done_1_q;
      end else begin
        fresh_1_q <= 1'b0;
      end
    end
  end

  always_comb begin
    source = 'x;
    source_bytes = 'x;
    if (valid_1_q && src_1_q) begin
      if (!fresh_1_q) begin
        source = held_source_q;
      end else if (alu.src == SpaceAcc) begin
        source = acc_rdata_i;
      end else begin
        source_bytes = alu.src == SpaceOut ? out_rdata_i : (8 * Lanes)'(inp_rdata_i);
        for (int unsigned l = 0; l < Lanes; l++) begin
          source[32*l+:32] = {{24{!alu.src_unsigned && source_bytes[8*l+7]}}, source_bytes[8*l+:8]};
        end
      end
    end
  end

  always_comb begin
    reduced = 'x;
    if (valid_1_q && src_1_q) begin
      if (first_1_q) begin
        reduced = source;
      end else if (alu.reduce_op == 1'(tsr_isa_pkg::ReduceOpSum)) begin
        for (int unsigned l = 0; l < Lanes; l++) reduced[32*l+:32] = reduced_q[32*l+:32] + source[32*l+:32];
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          reduced[32*l+:32] = $signed(reduced_q[32*l+:32]) > $signed(source[32*l+:32]) ? reduced_q[32*l+:32]
                                                                                     : source[32*l+:32];
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (valid_1_q) begin
      if (enable) begin
        if (src_1_q) reduced_q <= reduced;
        if (second_1_q) second_2_q <= fresh_1_q ? out_rdata_i : held_second_q;
        if (param_1_q) param_q <= param_rdata_i;
      end else if (fresh_1_q) begin
        held_source_q <= source;
        held_second_q <= out_rdata_i;
      end
    end
  end

  // Bias, scale, clamp, zero point.
  logic [17*Lanes-1:0] value_a, value_b, value_c;
  logic [Lanes-1:0] valid_a, valid_c;
  logic [8*Lanes-1:0] second_b;

  for (genvar l = 0; l < Lanes; l++) begin : gen_requantise
    tsr_requantise #(.Registers(RequantiseRegisters)) u_requantise (
      .clk_i, .rst_ni, .enable_i(enable), .convert_i(alu.convert), .low_i(16'($signed(alu.low))),
      .high_i(16'($signed(alu.high))), .zero_i(16'($signed(alu.out_zero))), .valid_i(valid_2_q && !raw),
      .value_i(reduced_q[32*l+:32]), .bias_i(param_q[32*(l%BlockOut)+:32]),
      .scale_i(param_q[32*(BlockOut+l%BlockOut)+:32]), .valid_o(valid_a[l]), .value_o(value_a[17*l+:17])
    );
  end
  tsr_delay #(.Width(8 * Lanes), .Stages(RequantiseLatency + 1)) u_second (
    .clk_i, .enable_i(enable && has_second), .data_i(second_2_q), .data_o(second_b)
  );

  // Tables: words of one group. The first one is read here, the second one before the write. In hardware each reader has
  // a copy of its own, since a block RAM has one read port; the simulator needs one.
  localparam int unsigned TableWords = TableCount * 256 / AxiBytes;
  localparam int unsigned WordBits = TableWords > 1 ? $clog2(TableWords) : 1;
  localparam int unsigned ByteBits = $clog2(AxiBytes);
  logic [8*AxiBytes*Lanes-1:0] words_b_q, words_w_q;
  logic [17*Lanes-1:0] stage_b_q, value_w;
  logic valid_b_q, valid_w, read_b, read_w;
  assign read_b = enable && valid_a[0] && alu.table_enable;
  assign read_w = enable && valid_w && !raw && alu.second_table_enable;

`ifdef VERILATOR
  logic [8*AxiBytes-1:0] table_mem[TableWords]  /* verilator public_flat_rw */;
  logic [8*AxiBytes-1:0] table_merged;
  always_comb begin
    table_merged = '0;
    if (tbl_we_i) begin
      table_merged = table_mem[WordBits'(tbl_waddr_i)];
      for (int unsigned n = 0; n < AxiBytes; n++) begin
        if (tbl_wbe_i[n]) table_merged[8*n+:8] = tbl_wdata_i[8*n+:8];
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (tbl_we_i) table_mem[WordBits'(tbl_waddr_i)] <= table_merged;
  end
  always_ff @(posedge clk_i) begin
    if (read_b) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        words_b_q[8*AxiBytes*l+:8*AxiBytes] <= table_mem[WordBits'({alu.table_, value_a[17*l+:8]} >> ByteBits)];
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (read_w) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        words_w_q[8*AxiBytes*l+:8*AxiBytes] <= table_mem[WordBits'({alu.second_table, value_w[17*l+:8]} >> ByteBits)];
      end
    end
  end
`else
  for (genvar l = 0; l < Lanes; l++) begin : gen_table
    tsr_ram_1r1w #(.Width(8 * AxiBytes), .Depth(TableWords)) u_first (
      .clk_i, .re_i(read_b), .raddr_i(WordBits'({alu.table_, value_a[17*l+:8]} >> ByteBits)),
      .rdata_o(words_b_q[8*AxiBytes*l+:8*AxiBytes]), .we_i(tbl_we_i), .waddr_i(WordBits'(tbl_waddr_i)),
      .wdata_i(tbl_wdata_i), .wbe_i(tbl_wbe_i)
    );
    tsr_ram_1r1w #(.Width(8 * AxiBytes), .Depth(TableWords)) u_second (
      .clk_i, .re_i(read_w), .raddr_i(WordBits'({alu.second_table, value_w[17*l+:8]} >> ByteBits)),
      .rdata_o(words_w_q[8*AxiBytes*l+:8*AxiBytes]), .we_i(tbl_we_i), .waddr_i(WordBits'(tbl_waddr_i)),
      .wdata_i(tbl_wdata_i), .wbe_i(tbl_wbe_i)
    );
  end
`endif

  always_ff @(posedge clk_i) begin
    if (enable && valid_a[0]) stage_b_q <= value_a;
  end

  always_comb begin
    logic [7:0] entry;
    value_b = 'x;
    entry = 'x;
    if (valid_b_q) begin
      value_b = stage_b_q;
      if (alu.table_enable) begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          entry = 8'(words_b_q[8*AxiBytes*l+:8*AxiBytes] >> {stage_b_q[17*l+:ByteBits], 3'd0});
          value_b[17*l+:17] = {{9{!alu.table_unsigned && entry[7]}}, entry};
        end
      end
    end
  end

  // The second operation.
  for (genvar l = 0; l < Lanes; l++) begin : gen_second
    logic [16:0] second, x, y;
    assign second = {{9{!alu.second_unsigned && second_b[8*l+7]}}, second_b[8*l+:8]};
    assign x = alu.second_swap ? second : value_b[17*l+:17];
    assign y = alu.second_swap ? value_b[17*l+:17] : second;
    tsr_second_op #(.Registers(SecondRegisters)) u_second_op (
      .clk_i, .rst_ni, .enable_i(enable), .operation_i(alu.second_op), .fused_i(constants_q[176]),
      .minimum_i(constants_q[177]), .rx_i(constants_q[31:0]), .ry_i(constants_q[63:32]), .f_i(constants_q[95:64]),
      .low_i(constants_q[111:96]), .high_i(constants_q[127:112]), .zero_i(constants_q[143:128]),
      .zx_i(constants_q[159:144]), .zy_i(constants_q[175:160]), .valid_i(valid_b_q && has_second), .x_i(x), .y_i(y),
      .valid_o(valid_c[l]), .value_o(value_c[17*l+:17])
    );
  end

  // The write.
  logic write_q;
  logic [32*Lanes-1:0] write_data_d, write_data_q;
  logic [8*Lanes-1:0] write_bytes;

  assign valid_w = raw ? valid_2_q : has_second ? valid_c[0] : valid_b_q;
  always_comb begin
    value_w = 'x;
    write_data_d = 'x;
    if (valid_w) begin
      if (raw) begin
        write_data_d = reduced_q;
      end else begin
        value_w = has_second ? value_c : value_b;
        for (int unsigned l = 0; l < Lanes; l++) begin
          write_data_d[32*l+:32] = {{15{value_w[17*l+16]}}, value_w[17*l+:17]};
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_b_q <= 1'b0;
      write_q <= 1'b0;
    end else if (enable) begin
      valid_b_q <= valid_a[0];
      write_q <= valid_w;
    end
  end
  always_ff @(posedge clk_i) begin
    if (enable && valid_w) write_data_q <= write_data_d;
  end

  always_comb begin
    write_bytes = 'x;
    if (write_q) begin
      for (int unsigned l = 0; l < Lanes; l++) begin
        write_bytes[8*l+:8] = alu.second_table_enable
            ? 8'(words_w_q[8*AxiBytes*l+:8*AxiBytes] >> {write_data_q[32*l+:ByteBits], 3'd0})
            : write_data_q[32*l+:8];
      end
    end
  end

  logic [13:0] write_address;
  assign write_address = ring_q[14*pop_q+:14];
  assign acc_we_o = write_q && alu.dst == SpaceAcc;
  assign acc_waddr_o = write_address;
  assign acc_wdata_o = write_data_q;
  assign out_we_o = write_q && alu.dst == SpaceOut;
  assign out_waddr_o = write_address;
  assign out_wdata_o = write_bytes;
  assign inp_we_o = write_q && alu.dst == SpaceInp;
  assign inp_req_o = inp_we_o || (want && take_src && alu.src == SpaceInp);
  assign inp_addr_o = inp_we_o ? write_address : src_address;
  assign inp_wdata_o = (8 * Batch * BlockIn)'(write_bytes);
  assign enable = !((acc_we_o && !acc_wgnt_i) || (inp_we_o && !inp_gnt_i));
  assign retire = write_q && enable;

  assign busy_o = prep_valid_q || state_q != Idle;
  assign complete_o = finish || prep_drop;
  assign complete_signal_o = prep_drop ? prep_fence && prep_word_q[6] : word_q[6];
  assign complete_fault_o = prep_drop && !prep_fence;
  assign complete_code_o = complete_fault_o ? 3'(tsr_isa_pkg::FaultScratchpadRange) : 3'(tsr_isa_pkg::FaultNone);
  assign complete_pc_o = prep_drop ? prep_pc_q : pc_q;
  assign issue_o = issue;
  assign stall_mem_o = 1'b0;
  assign stall_port_o = !enable || (want && !granted);

  logic unused;
  assign unused = &{1'b0, unused_inner_last, alu, prep, valid_a, valid_c, constants_q, param_rdata_i, index, tbl_waddr_i, inp_rdata_i};

endmodule
