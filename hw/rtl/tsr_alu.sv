// SPDX-License-Identifier: Apache-2.0
// The vector engine (isa/semantics.md, ALU). Enters: instructions, source vectors from ACC, OUT or INP, second operands
// from OUT, bias, scale and constants from PARAM, tables written by LOAD. Leaves: vectors to ACC, OUT or INP,
// completions. Method: a preparation register in which ranges are checked and constants read while the previous
// instruction runs; a nest that is one issue ahead, so that what an issue has to wait for stands in a register; an issue
// stage that reads one source vector a cycle; a reduction register; then one pipeline of lanes: tsr_requantise, a table,
// tsr_alu_second with the second table, the write. The bare int32 path to ACC leaves
// after the reduction, instructions without a second operation skip it. What a stage needs of the instruction enters
// with each vector and travels beside it, so that instructions follow one another without a gap. Destinations under way
// move with the pipeline, of all instructions; a read of one of them waits for its write. Writes stay in program order: a
// vector of a shorter path is issued no earlier than so that it is written after the older ones.
//
// Latency from the last read of a vector to its write: alu.raw, alu.first or alu.second of isa/timing.toml, from which
// the defaults of the registers come; another choice of registers moves the last two. Throughput: one source vector a
// cycle; two cycles a vector where source and second operand are both in OUT; Batch * BlockOut / SecondLanes cycles a
// vector with a second operation, if that is more. All of it in closed form: isa/timing.md. Back-pressure: a refused
// write holds the whole pipeline, a refused read the issue stage. Reset: synchronous, active low. Legal: TableBytes a
// power of two up to 64, SecondLanes a divisor of Batch * BlockOut.

/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_alu #(
  parameter int unsigned Batch      = 1,
  parameter int unsigned BlockIn    = 8,
  parameter int unsigned BlockOut   = 8,
  parameter int unsigned InpDepth   = 16,
  parameter int unsigned AccDepth   = 16,
  parameter int unsigned OutDepth   = 16,
  parameter int unsigned ParamDepth = 16,
  parameter int unsigned TableCount = 1,
  parameter int unsigned SecondLanes = Batch * BlockOut,
  parameter int unsigned RowLanes   = 0,
  parameter int unsigned TableBytes = 8,
  parameter logic [8:0]  RequantiseRegisters = tsr_isa_pkg::TimingRequantiseRegisters,
  parameter int unsigned RequantiseTrailing  = tsr_isa_pkg::TimingRequantiseDepth - $countones(RequantiseRegisters),
  parameter logic [12:0] SecondRegisters     = tsr_isa_pkg::TimingSecondOpRegisters,
  parameter int unsigned SecondTrailing      = tsr_isa_pkg::TimingSecondOpDepth - $countones(SecondRegisters)
) (
  input  logic                          clk_i,
  input  logic                          rst_ni,
  // Engine port.
  input  logic                          instr_valid_i,
  input  logic [511:0]                  instr_i,
  input  logic [31:0]                   instr_pc_i,
  input  logic [15:0]                   row_limit_i,  // of rows that are limited
  output logic                          instr_ready_o,
  output logic                          busy_o,
  output logic                          complete_o,
  output logic                          complete_signal_o,
  output logic                          complete_fault_o,
  output logic [2:0]                    complete_code_o,
  output logic [31:0]                   complete_pc_o,
  // Memories.
  output logic                          acc_req_o,
  output logic                          acc_claim_o,  // with every request, and early: STORE stays away
  output logic [13:0]                   acc_addr_o,
  input  logic                          acc_gnt_i,
  input  logic [32*Batch*BlockOut-1:0]  acc_rdata_i,
  output logic                          acc_we_o,
  output logic [13:0]                   acc_waddr_o,
  output logic [32*Batch*BlockOut-1:0]  acc_wdata_o,
  input  logic                          acc_wgnt_i,
  output logic                          out_req_o,
  output logic                          out_claim_o,
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
  input  logic                          inp_gnt_i,  // of reads; a write is always granted
  input  logic [8*Batch*BlockIn-1:0]    inp_rdata_i,
  output logic                          param_req_o,
  output logic [9:0]                    param_addr_o,
  input  logic [64*BlockOut-1:0]        param_rdata_i,
  // Writes of LOAD to the tables, TableBytes at a multiple of them.
  input  logic                          tbl_we_i,
  input  logic [21-$clog2(TableBytes):0]  tbl_waddr_i,
  input  logic [8*TableBytes-1:0]         tbl_wdata_i,
  input  logic [TableBytes-1:0]           tbl_wbe_i,
  // Counters.
  output logic                          issue_o,
  output logic                          stall_mem_o,
  output logic                          stall_port_o
);

  localparam int unsigned Lanes = Batch * BlockOut;
  localparam int unsigned RequantiseLatency = $countones(RequantiseRegisters) + RequantiseTrailing;
  localparam int unsigned SecondLatency = $countones(SecondRegisters) + SecondTrailing;
  localparam int unsigned Turns = Lanes / SecondLanes;
  localparam int unsigned TurnBits = Turns > 1 ? $clog2(Turns) : 1;
  // From the last read to the write.
  localparam int unsigned Raw = tsr_isa_pkg::TimingAluRaw;
  localparam int unsigned First = Raw + RequantiseLatency + tsr_isa_pkg::TimingTableDepth;
  localparam int unsigned Long = First + tsr_isa_pkg::TimingAluTurn + Turns - 1 + SecondLatency;
  localparam int unsigned LatencyBits = $clog2(Long + 1);
  localparam logic [LatencyBits-1:0] RawLatency = LatencyBits'(Raw), FirstLatency = LatencyBits'(First);
  localparam logic [LatencyBits-1:0] LongLatency = LatencyBits'(Long);
  localparam int unsigned UnderWayBits = $clog2(Long + 1);  // as many vectors as cycles can be under way
  localparam int unsigned InfoDepth = 1 << $clog2(Long + 1);
  localparam int unsigned InfoBits = $clog2(InfoDepth);
  // What travels beside a vector: for tsr_requantise, for the stages behind it, for the write.
  typedef struct packed {
    logic convert;
    logic [9:0] low;
    logic [9:0] high;
    logic [8:0] out_zero;
  } bounds_t;
  typedef struct packed {
    logic enable;
    logic [3:0] number;
  } table_t;
  typedef struct packed {
    table_t first;
    logic table_unsigned;
    logic [1:0] second_op;
    logic second_unsigned;
    logic second_swap;
    table_t second;
    logic [InfoBits-1:0] slot;  // of its constants
  } after_t;
  // A destination under way, and what its completion needs. In simulation a destination has 16 bits.
  localparam int unsigned DeepestEntry = $clog2(InpDepth > AccDepth ? InpDepth > OutDepth ? InpDepth : OutDepth :
                                                                      AccDepth > OutDepth ? AccDepth : OutDepth);
  localparam int unsigned EntryBits = tsr_isa_pkg::Simulated ? 14 : DeepestEntry;
  typedef struct packed {
    logic [1:0] space;
    logic [EntryBits-1:0] entry;
  } target_t;
  typedef struct packed {
    logic last;  // of its instruction
    logic signal;
    logic [31:0] pc;
  } info_t;
  // An issue, and what the nest needs of its instruction to make one.
  typedef struct packed {
    logic [1:0] src;
    logic second;
    logic [2:0] param_loop;
    logic [9:0] param_before;  // the first address less one
  } ahead_t;
  typedef struct packed {
    logic take_src;
    logic take_second;
    logic completing;
    logic sum_first;
    logic last;  // of its instruction
    logic [13:0] src_address;
    logic [13:0] dst_address;
    logic [13:0] second_address;
    logic [9:0] param_address;
  } issue_t;
  localparam int unsigned ConstantBits = 184;
  localparam logic [1:0] SpaceAcc = 2'(tsr_isa_pkg::AluSpaceAcc), SpaceOut = 2'(tsr_isa_pkg::AluSpaceOut);
  localparam logic [1:0] SpaceInp = 2'(tsr_isa_pkg::AluSpaceInp), FromKept = 2'd3;

  // Preparation: the instruction whose ranges are being found and whose constants are read.
  logic prep_valid_q, prep_start_q, prep_move, prep_drop, constant_want_q, constant_back_q, constant_read;
  logic [511:0] prep_word_q;
  logic [31:0] prep_pc_q;
  tsr_isa_pkg::alu_t prep;
  logic prep_fence_q, prep_second, prep_done, prep_fault, range_done, empty;
  logic [2:0] outside;
  logic [14:0] src_limit, dst_limit;
  logic [12:0] param_highest;

  assign prep = prep_word_q;
  assign prep_second = !prep_rows_q && prep.second_op != 2'(tsr_isa_pkg::SecondOpNone);
  // Instructions of rows stay here until tsr_rows is through with them.
  logic prep_rows_q, prep_map_q, rows_start, rows_busy_q, rows_done;

  // Addresses and strides of the source, the destination and the second operand, in this order.
  logic check;
  logic [3*14-1:0] prep_addresses;
  logic [3*84-1:0] prep_strides;
  assign check = prep_start_q && !prep_fence_q;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {prep_addresses, prep_strides} = 'x;
    if (!tsr_isa_pkg::Simulated || check || !range_done) begin
      prep_addresses = {prep.second_addr, prep.dst_addr, prep.src_addr};
      prep_strides = {prep.second_stride, prep.dst_stride, prep.src_stride};
    end
  end
  tsr_range #(.Operands(3)) u_range (
    .clk_i, .rst_ni, .start_i(check), .addr_i(prep_addresses), .extent_i(prep.extent), .stride_i(prep_strides),
    .loops_i({3'd6 - prep.reduce, prep_map_q ? 3'd6 : 3'd6 - prep.reduce, 3'd6}),
    .limit_i({prep_map_q ? 15'(AccDepth) : 15'(OutDepth), dst_limit, src_limit}),
    .done_o(range_done), .outside_o(outside)
  );
  assign prep_done = prep_valid_q && !prep_fence_q && !prep_start_q && range_done &&
      !constant_want_q && !constant_back_q;

  always_comb begin
    src_limit = 15'(OutDepth);
    if (prep.src == SpaceAcc) src_limit = 15'(AccDepth);
    if (prep.src == SpaceInp) src_limit = 15'(InpDepth);
    dst_limit = 15'(OutDepth);
    if (prep.dst == SpaceAcc) dst_limit = 15'(AccDepth);
    if (prep.dst == SpaceInp) dst_limit = 15'(InpDepth);
  end
  // What the fields alone decide is found in the first cycle of the range check.
  logic field_fault, field_fault_q;
  logic rows_look;  // an instruction of rows reads tables; its operation stands where an ALU's other bits are
  assign rows_look = {prep.convert, prep.reduce_op} ==
      (prep_map_q ? 2'(tsr_isa_pkg::MappingSoftmax) : 2'(tsr_isa_pkg::ReductionSumExp));
  always_comb begin
    if (!tsr_isa_pkg::Simulated) param_highest = 'x;
    if (!tsr_isa_pkg::Simulated) field_fault = 1'bx;
    if (!tsr_isa_pkg::Simulated || prep_start_q) begin
      param_highest = 13'(prep.param_addr);
      for (int unsigned k = 0; k < 6; k++) begin
        if (prep.param_loop == 3'(k)) param_highest = 13'(prep.param_addr) + 13'(prep.extent[k]) - 13'd1;
      end
      field_fault = (prep_second && 32'(prep.constant_addr) >= ParamDepth) ||
          (prep.convert && 32'(param_highest) >= ParamDepth) ||
          (prep.table_enable && 32'(prep.table_) >= TableCount) ||
          (prep.second_table_enable && 32'(prep.second_table) >= TableCount);
      if (prep_rows_q) begin
        field_fault = rows_look ? 32'(prep.table_) + 32'd4 > TableCount : prep_map_q && 32'(param_highest) >= ParamDepth;
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (prep_start_q) field_fault_q <= field_fault;
  end
  assign prep_fault = field_fault_q || outside[1:0] != '0 || ((prep_second || prep_map_q) && outside[2]);

  // The instruction that issues.
  logic running_q;
  logic begin_q;  // no issue yet
  logic [511:0] word_q;
  logic [InfoBits-1:0] prep_slot_q, slot_q;
  logic [ConstantBits-1:0] constants[InfoDepth];
  logic [ConstantBits-1:0] constants_b;
  after_t after_b_q;
  logic [31:0] pc_q;
  tsr_isa_pkg::alu_t alu;
  logic has_second, raw, enable, issue, retire;

  assign alu = word_q;
  assign has_second = alu.second_op != 2'(tsr_isa_pkg::SecondOpNone);
  assign raw = !alu.convert && alu.dst == SpaceAcc;
  assign prep_move = prep_done && !prep_fault && !prep_rows_q && (!running_q || (issue && issue_q.last));
  assign prep_drop = prep_valid_q && !running_q && empty && (prep_fence_q || (prep_done && prep_fault));
  assign instr_ready_o = !prep_valid_q || prep_move || (prep_drop && prep_fence_q);
  // What the next stage will take from PARAM's read port must not be overwritten there.
  assign constant_read = constant_want_q && enable && !convert_2;

  // The nest, one issue ahead: it is loaded while the ranges are still being found, and its first iteration waits for
  // the end of the preparation. `ahead`: what it needs of its instruction.
  logic ahead_valid_q, ahead_first_q;  // there is an iteration, it is its instruction's first
  logic ahead_load, step, advance;
  tsr_isa_pkg::alu_extent_t count;
  logic [5:0] unused_inner_last;
  logic sum_first, sum_last, nest_last;
  logic [13:0] src_address, dst_address, second_address;
  logic [9:0] param_address;
  ahead_t ahead_q;
  issue_t ahead, issue_q;
  logic completing, take_second;
  logic second_phase_q, split;  // with source and second operand both in OUT, the latter takes an issue of its own

  tsr_nest #(.Operands(3)) u_nest (
    .clk_i, .idle_i(!ahead_valid_q), .load_i(ahead_load), .advance_i(advance),
    .addr_i({prep.second_addr, prep.dst_addr, prep.src_addr}), .extent_i(prep.extent),
    .stride_i({prep.second_stride, prep.dst_stride, prep.src_stride}), .reduce_i(prep.reduce),
    .addr_o({second_address, dst_address, src_address}), .count_o(count), .inner_last_o(unused_inner_last), .sum_first_o(sum_first),
    .sum_last_o(sum_last), .last_o(nest_last)
  );
  assign step = prep_move || (issue && !issue_q.last);
  assign advance = step && (completing || !sum_last);
  assign ahead_load = prep_valid_q && !prep_fence_q && !prep_rows_q && !(ahead_valid_q && ahead_first_q) &&
      (!ahead_valid_q || (advance && nest_last));
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      ahead_valid_q <= 1'b0;
      ahead_first_q <= 1'b0;
      second_phase_q <= 1'b0;
    end else begin
      if (ahead_load) ahead_valid_q <= 1'b1;
      else if ((advance && nest_last) || prep_drop) ahead_valid_q <= 1'b0;
      if (ahead_load) ahead_first_q <= 1'b1;
      else if (step) ahead_first_q <= 1'b0;
      if (step) second_phase_q <= split && sum_last && !second_phase_q;
    end
  end
  always_ff @(posedge clk_i) begin
    if (ahead_load) ahead_q <= {prep.src, prep_second, prep.param_loop, prep.param_addr - 10'd1};
    if (step) issue_q <= ahead;
  end

  assign split = ahead_q.second && ahead_q.src == SpaceOut;
  assign completing = second_phase_q || (sum_last && !split);
  assign take_second = ahead_q.second && completing;
  assign ahead = {!second_phase_q, take_second, completing, sum_first, nest_last && completing, src_address, dst_address,
                  second_address, param_address};
  always_comb begin
    param_address = 10'd1;
    for (int unsigned k = 0; k < 6; k++) begin
      if (ahead_q.param_loop == 3'(k)) param_address = 10'(count.loop[k]);
    end
    param_address = param_address + ahead_q.param_before;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      prep_valid_q <= 1'b0;
      prep_start_q <= 1'b0;
      constant_want_q <= 1'b0;
      constant_back_q <= 1'b0;
      running_q <= 1'b0;
    end else begin
      prep_start_q <= instr_valid_i && instr_ready_o;
      if (instr_valid_i && instr_ready_o) prep_valid_q <= 1'b1;
      else if (prep_move || prep_drop || rows_done) prep_valid_q <= 1'b0;
      // An address out of range is not read: the instruction will fault.
      if (prep_start_q) constant_want_q <= !prep_fence_q && prep_second && 32'(prep.constant_addr) < ParamDepth;
      else if (constant_read) constant_want_q <= 1'b0;
      constant_back_q <= constant_read;
      if (prep_move) running_q <= 1'b1;
      else if (issue && issue_q.last) running_q <= 1'b0;
    end
  end
  tsr_isa_pkg::alu_t taken;
  logic unused_taken_alu, taken_reduce, taken_map, taken_fence;
  assign taken = instr_i;
  assign {taken_map, taken_reduce, unused_taken_alu, taken_fence} =
      tsr_isa_pkg::alu_instruction(taken.header.opcode);
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      prep_word_q <= '0;
      prep_fence_q <= 1'b0;
      prep_rows_q <= 1'b0;
      prep_map_q <= 1'b0;
      prep_pc_q <= '0;
    end else if (instr_valid_i && instr_ready_o) begin
      prep_word_q <= instr_i;
      prep_fence_q <= taken_fence;
      prep_rows_q <= RowLanes != 0 && (taken_map || taken_reduce);
      prep_map_q <= RowLanes != 0 && taken_map;
      prep_pc_q <= instr_pc_i;
    end
  end
  // The constants of second operations, a slot an instruction, and its slot with each vector. No more instructions than
  // vectors are under way.
  always_ff @(posedge clk_i) begin
    if (!rst_ni) prep_slot_q <= '0;
    else if (prep_move && prep_second) prep_slot_q <= prep_slot_q + 1'b1;
  end
  always_ff @(posedge clk_i) begin
    if (constant_back_q) begin  // reserved bits left out
      constants[prep_slot_q] <= {param_rdata_i[209:192], param_rdata_i[179:128], param_rdata_i[121:64], param_rdata_i[55:0]};
    end
  end
  assign constants_b = constants[after_b_q.slot];
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      word_q <= '0;
      pc_q <= '0;
      slot_q <= '0;
    end else if (prep_move) begin
      word_q <= prep_word_q;
      pc_q <= prep_pc_q;
      slot_q <= prep_slot_q;
    end
  end

  // Destinations under way, each at the place that says in how many cycles it is written;
  // all ones, which is no space, where there is none. info: what completions need, oldest at pop_q. slack_q: cycles until the newest one is written.
  logic write_q, push, hazard_q;
  info_t pop_info;
  logic [$bits(pop_info)-1:0] info[InfoDepth];  // Yosys 0.23 makes one bit a word of a structure here
  target_t src_target, second_target, push_target, write_target;
  localparam int unsigned TargetBits = $bits(src_target);
  localparam logic [TargetBits-1:0] NoTarget = '1;
  logic [TargetBits*Long-1:0] targets_q;
  logic [InfoBits-1:0] push_q, pop_q;
  logic [LatencyBits-1:0] slack_q, latency;
  logic [Long-1:0] meets, meets_q;  // the destinations that the next issue reads, and those that this one reads
  logic meets_push, compare_src, compare_second;

  assign latency = raw ? RawLatency : has_second ? LongLatency : FirstLatency;
  assign pop_info = info[pop_q];
  assign write_target = targets_q[TargetBits-1:0];
  assign empty = slack_q == '0 && !write_q;
  assign push_target = {alu.dst, EntryBits'(issue_q.dst_address)};
  assign src_target = {ahead_q.src, EntryBits'(src_address)};
  assign second_target = {SpaceOut, EntryBits'(second_address)};

  // The next issue is compared with all that is under way while this one is made. Then only time passes: a bit beside
  // each destination, which moves with it.
  always_comb begin
    meets = '0;
    if (compare_src) begin
      for (int unsigned e = 0; e < Long; e++) meets[e] = targets_q[TargetBits*e+:TargetBits] == src_target;
    end
    if (compare_second) begin
      for (int unsigned e = 0; e < Long; e++) meets[e] = meets[e] | (targets_q[TargetBits*e+:TargetBits] == second_target);
    end
    meets_push = (!second_phase_q && push_target == src_target) || (take_second && push_target == second_target);
  end
  always_ff @(posedge clk_i) begin
    if (step || enable) meets_q <= (step ? meets : meets_q) >> enable;
    if (push && latency == RawLatency) meets_q[Raw-1] <= meets_push;
    if (push && latency == FirstLatency) meets_q[First-1] <= meets_push;
    if (push && latency == LongLatency) meets_q[Long-1] <= meets_push;
    if (step) hazard_q <= (push && meets_push) || (!enable && meets[0]) || meets[Long-1:1] != '0;
    else if (enable) hazard_q <= meets_q[Long-1:1] != '0;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      targets_q <= '1;
      slack_q <= '0;
    end else if (enable && (push || !empty)) begin
      targets_q <= {NoTarget, targets_q[TargetBits*Long-1:TargetBits]};
      if (push && latency == RawLatency) targets_q[TargetBits*(Raw-1)+:TargetBits] <= push_target;
      if (push && latency == FirstLatency) targets_q[TargetBits*(First-1)+:TargetBits] <= push_target;
      if (push && latency == LongLatency) targets_q[TargetBits*(Long-1)+:TargetBits] <= push_target;
      slack_q <= push ? latency - 1'b1 : slack_q == '0 ? '0 : slack_q - 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      push_q <= '0;
      pop_q <= '0;
    end else begin
      if (retire) pop_q <= pop_q + 1'b1;
      if (push) push_q <= push_q + 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (push) info[push_q] <= {issue_q.last, alu.header.signal, pc_q};
  end

  // A simulator compares only where a space has destinations under way, which it counts.
  if (tsr_isa_pkg::Simulated) begin : gen_counted
    logic [3*UnderWayBits-1:0] under_way_q;  // by space
    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        under_way_q <= '0;
      end else if (push || retire) begin
        for (int unsigned space = 0; space < 3; space++) begin
          under_way_q[UnderWayBits*space+:UnderWayBits] <= under_way_q[UnderWayBits*space+:UnderWayBits] +
              UnderWayBits'(push && alu.dst == 2'(space)) - UnderWayBits'(retire && write_target.space == 2'(space));
        end
      end
    end
    assign compare_src = step && !second_phase_q && under_way_q[UnderWayBits*ahead_q.src+:UnderWayBits] != '0;
    assign compare_second = step && take_second && under_way_q[UnderWayBits*SpaceOut+:UnderWayBits] != '0;
  end else begin : gen_compared
    assign compare_src = !second_phase_q;
    assign compare_second = take_second;
  end

  // Issue: one read of the source; the second operand with the vector's last source, or after it when both are in OUT.
  logic asks, want, granted, loaded_q, convert_1, convert_2, param_fetch;
  logic pausing;
  logic [TurnBits-1:0] occupied_q;  // cycles for which the second operation cannot take another vector's end
  logic [9:0] param_address_1_q, param_address_2_q, loaded_address_q;

  assign pausing = has_second && issue_q.take_src && issue_q.sum_first && occupied_q > TurnBits'(alu.src == SpaceOut);
  assign asks = running_q && !pausing && !(issue_q.completing && latency <= slack_q);
  assign want = asks && enable && !hazard_q && 
      !(issue_q.completing && alu.convert && constant_want_q && convert_1 && convert_2);
  assign granted = (!acc_req_o || acc_gnt_i) && (!out_req_o || out_gnt_i) &&
      (!(issue_q.take_src && alu.src == SpaceInp) || (!inp_we_o && inp_gnt_i));
  assign issue = want && granted;
  assign push = issue && issue_q.completing;

  assign acc_req_o = rows_acc_req || (want && issue_q.take_src && alu.src == SpaceAcc);
  assign acc_claim_o = rows_acc_req || (asks && issue_q.take_src && alu.src == SpaceAcc);
  assign acc_addr_o = rows_busy_q ? rows_acc_address : issue_q.src_address;
  assign out_req_o = (rows_src_req && prep.src == SpaceOut) ||
      (want && (issue_q.take_second || (issue_q.take_src && alu.src == SpaceOut)));
  assign out_claim_o = (rows_src_req && prep.src == SpaceOut) ||
      (asks && (issue_q.take_second || (issue_q.take_src && alu.src == SpaceOut)));
  assign out_addr_o = rows_busy_q ? rows_src_address : issue_q.take_second ? issue_q.second_address : issue_q.src_address;

  // PARAM answers when the vector is in stage 3, and keeps its answer while nothing else is read.
  assign convert_1 = valid_1_q && done_1_q && bounds_1_q.convert;
  assign convert_2 = valid_2_q && done_2_q && bounds_2_q.convert;
  assign param_fetch = enable && convert_2 && !(loaded_q && loaded_address_q == param_address_2_q);
  assign param_req_o = constant_read || param_fetch || rows_param_req;
  assign param_addr_o = rows_busy_q ? rows_param_address : convert_2 ? param_address_2_q : prep.constant_addr;

  // Stage 1: data are back. What a refused write holds here is kept, because other engines share the read ports.
  // bounds: what tsr_requantise needs of the instruction. Stage 2: the source's values. Stage 3: their sum or maximum.
  logic valid_1_q, fresh_1_q, src_1_q, second_1_q, done_1_q, unsigned_1_q, raw_1_q;
  logic add_1_q, max_1_q, add_2_q, max_2_q;  // with what is in the register
  logic begin_1_q;  // the first issue of its instruction
  logic valid_2_q, src_2_q, done_2_q, raw_2_q;
  logic [1:0] from_1_q;     // where the source comes from: its space, or what is kept
  bounds_t bounds_1_q, bounds_2_q, bounds_3_q;
  logic [32*Lanes-1:0] source, held_source_q, source_2_q, reduced, reduced_q;
  logic [8*Lanes-1:0] held_second_q, second_2_q, inp_bytes;
  logic valid_3_q, raw_3_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      occupied_q <= '0;
      loaded_q <= 1'b0;
      begin_q <= 1'b0;
      valid_1_q <= 1'b0;
      fresh_1_q <= 1'b0;
      from_1_q <= FromKept;
      valid_2_q <= 1'b0;
      valid_3_q <= 1'b0;
    end else begin
      // An instruction reads its first entry in any case.
      if (param_fetch) loaded_q <= 1'b1;
      else if (constant_read) loaded_q <= 1'b0;
      if (enable && valid_1_q && begin_1_q) loaded_q <= 1'b0;
      if (prep_move) begin_q <= 1'b1;
      else if (issue) begin_q <= 1'b0;
      fresh_1_q <= issue;
      from_1_q <= issue ? alu.src : rows_src_req ? prep.src : FromKept;
      if (push && has_second) occupied_q <= TurnBits'(Turns - 1);
      else if (enable && occupied_q != '0) occupied_q <= occupied_q - 1'b1;
      if (enable) begin
        valid_1_q <= issue;
        valid_2_q <= valid_1_q;
        valid_3_q <= valid_2_q && done_2_q;
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (param_fetch) loaded_address_q <= param_address_2_q;
    if (issue) begin
      begin_1_q <= begin_q;
      src_1_q <= issue_q.take_src;
      second_1_q <= issue_q.take_second;
      done_1_q <= issue_q.completing;
      param_address_1_q <= issue_q.param_address;
      add_1_q <= !issue_q.sum_first && alu.reduce_op == 1'(tsr_isa_pkg::ReduceOpSum);
      max_1_q <= !issue_q.sum_first && alu.reduce_op != 1'(tsr_isa_pkg::ReduceOpSum);
      unsigned_1_q <= alu.src_unsigned;
      raw_1_q <= raw;
      bounds_1_q <= {alu.convert, alu.low, alu.high, alu.out_zero};
    end
  end

  assign inp_bytes = (8 * Lanes)'(inp_rdata_i);
  always_comb begin
    logic [7:0] entry;
    if (!tsr_isa_pkg::Simulated) source = 'x;
    entry = 'x;
    if ((valid_1_q && src_1_q) || rows_busy_q) begin
      if (from_1_q == FromKept) begin
        source = held_source_q;
      end else if (from_1_q == SpaceAcc) begin
        source = acc_rdata_i;
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          entry = from_1_q == SpaceOut ? out_rdata_i[8*l+:8] : inp_bytes[8*l+:8];
          source[32*l+:32] = {{24{!unsigned_1_q && entry[7]}}, entry};
        end
      end
    end
  end

  // One adder a lane; a larger one that is there already stays.
  logic [Lanes-1:0] stays;
  always_comb begin
    logic [31:0] there, more;
    if (!tsr_isa_pkg::Simulated) {stays, reduced} = 'x;
    there = 'x;
    more = 'x;
    if (valid_2_q && src_2_q) begin
      stays = '0;
      if (tsr_isa_pkg::Simulated && !add_2_q && !max_2_q) begin
        reduced = source_2_q;
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          there = reduced_q[32*l+:32];
          more = source_2_q[32*l+:32];
          stays[l] = max_2_q && $signed(more) < $signed(there);
          reduced[32*l+:32] = tsr_isa_pkg::Simulated && stays[l] ? there : more + (there & {32{add_2_q}});
        end
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (enable && valid_2_q) begin
      raw_3_q <= raw_2_q;
      bounds_3_q <= bounds_2_q;
      if (tsr_isa_pkg::Simulated) begin
        if (src_2_q) reduced_q <= reduced;
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) if (src_2_q && !stays[l]) reduced_q[32*l+:32] <= reduced[32*l+:32];
      end
    end
    if (valid_1_q) begin
      if (enable) begin
        src_2_q <= src_1_q;
        done_2_q <= done_1_q;
        add_2_q <= add_1_q;
        max_2_q <= max_1_q;
        raw_2_q <= raw_1_q;
        bounds_2_q <= bounds_1_q;
        param_address_2_q <= param_address_1_q;
        if (src_1_q) source_2_q <= source;
        if (second_1_q) second_2_q <= fresh_1_q ? out_rdata_i : held_second_q;
      end else if (fresh_1_q) begin
        held_source_q <= source;
        held_second_q <= out_rdata_i;
      end
    end
  end

  // Bias, scale, clamp, zero point. after: what the stages behind it need of the instruction, at stage a behind
  // tsr_requantise and at stage b, where the second operation begins.
  logic [11*Lanes-1:0] value_a, value_b;
  logic valid_a, valid_c, second_on_b;
  logic [8*Lanes-1:0] second_b;
  after_t after_a;

`ifdef VERILATOR
  tsr_requantise_plain #(.Lanes(Lanes), .Registers(RequantiseRegisters), .Trailing(RequantiseTrailing)) u_requantise (
`else
  tsr_requantise #(.Lanes(Lanes), .Registers(RequantiseRegisters), .Trailing(RequantiseTrailing)) u_requantise (
`endif
    .clk_i, .rst_ni, .enable_i(enable), .low_i(bounds_3_q.low), .high_i(bounds_3_q.high), .zero_i(bounds_3_q.out_zero),
    .valid_i(valid_3_q && !raw_3_q),
    .convert_i(bounds_3_q.convert), .value_i(reduced_q), .bias_i({Batch{param_rdata_i[32*BlockOut-1:0]}}),
    .scale_i({Batch{param_rdata_i[64*BlockOut-1:32*BlockOut]}}),
    .valid_o(valid_a), .value_o(value_a)
  );
  tsr_delay #(.Width(8 * Lanes), .Stages(RequantiseLatency + 2)) u_second (
    .clk_i, .rst_ni, .enable_i(enable), .valid_i(valid_2_q && done_2_q), .data_i(second_2_q), .data_o(second_b)
  );
  tsr_delay #(.Width($bits(after_a)), .Stages(RequantiseLatency + 3)) u_after (
    .clk_i, .rst_ni, .enable_i(enable), .valid_i(push),
    .data_i({alu.table_enable, alu.table_, alu.table_unsigned, alu.second_op, alu.second_unsigned, alu.second_swap,
             alu.second_table_enable, alu.second_table, slot_q}), .data_o(after_a)
  );

  // Tables: the first one is read here, the second one behind the second operation.
  logic [8*Lanes-1:0] bytes_b_q;
  logic [8*SecondLanes-1:0] bytes_d_q, plain_d;
  logic look_d;
  logic [12*Lanes-1:0] index_a;
  logic [12*SecondLanes-1:0] index_c;
  logic [11*Lanes-1:0] stage_b_q;
  logic valid_b_q, look_c;
  always_comb begin
    for (int unsigned l = 0; l < Lanes; l++) index_a[12*l+:12] = {after_a.first.number, value_a[11*l+:8]};
  end
  tsr_alu_tables #(.Lanes(Lanes), .SecondLanes(SecondLanes), .TableCount(TableCount), .TableBytes(TableBytes)) u_tables (
    .clk_i, .first_i(rows_look_up || (enable && valid_a && after_a.first.enable)),
    .first_index_i(rows_busy_q ? rows_index : index_a), .first_bytes_o(bytes_b_q),
    .second_i(look_c), .second_index_i(index_c), .second_plain_i(plain_d), .second_look_i(look_d), .second_bytes_o(bytes_d_q),
    .we_i(tbl_we_i), .waddr_i(tbl_waddr_i),
    .wdata_i(tbl_wdata_i), .wbe_i(tbl_wbe_i)
  );

  always_ff @(posedge clk_i) begin
    if (enable && valid_a) begin
      stage_b_q <= value_a;
      after_b_q <= after_a;
    end
  end

  always_comb begin
    logic [7:0] entry;
    if (!tsr_isa_pkg::Simulated) value_b = 'x;
    entry = 'x;
    if (valid_b_q) begin
      value_b = stage_b_q;
      if (after_b_q.first.enable) begin
        for (int unsigned l = 0; l < Lanes; l++) begin
          entry = bytes_b_q[8*l+:8];
          value_b[11*l+:11] = {{3{!after_b_q.table_unsigned && entry[7]}}, entry};
        end
      end
    end
  end

  // The second operation and the second table.
  logic [8*Lanes-1:0] bytes_d;
  assign second_on_b = valid_b_q && after_b_q.second_op != 2'(tsr_isa_pkg::SecondOpNone);
  tsr_alu_second #(
    .Lanes(Lanes), .SecondLanes(SecondLanes), .Registers(SecondRegisters), .Trailing(SecondTrailing)
  ) u_second_stage (
    .clk_i, .rst_ni, .enable_i(enable), .valid_i(second_on_b), .value_i(value_b), .second_i(second_b),
    .operation_i(after_b_q.second_op), .unsigned_i(after_b_q.second_unsigned), .swap_i(after_b_q.second_swap),
    .table_enable_i(after_b_q.second.enable), .table_i(after_b_q.second.number), .constants_i(constants_b),
    .first_valid_i(valid_first), .first_bytes_i(last_bytes), .valid_o(valid_c), .bytes_o(bytes_d), .look_up_o(look_c),
    .index_o(index_c), .plain_o(plain_d), .look_o(look_d), .bytes_i(bytes_d_q)
  );

  // The write. At most one of the three paths has a vector.
  logic second_w_q, valid_first, valid_w;
  logic [32*Lanes-1:0] write_data_d, write_data_q;
  logic [8*Lanes-1:0] write_bytes;
  logic [8*SecondLanes-1:0] last_bytes;  // of lanes that also come from the second table, which is late

  assign valid_first = (valid_3_q && raw_3_q) || (valid_b_q && !second_on_b);
  assign valid_w = valid_first || valid_c;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) write_data_d = 'x;
    if (rows_busy_q) begin
      write_data_d = (32 * Lanes)'(rows_scalars);
    end else if (valid_first) begin
      if (valid_3_q && raw_3_q) begin
        write_data_d = reduced_q;
      end else begin
        for (int unsigned l = 0; l < Lanes; l++) write_data_d[32*l+:32] = 32'($signed(value_b[11*l+:11]));
      end
    end
  end

  always_comb begin
    for (int unsigned l = 0; l < SecondLanes; l++) last_bytes[8*l+:8] = write_data_d[32*(Lanes-SecondLanes+l)+:8];
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_b_q <= 1'b0;
      write_q <= 1'b0;
    end else if (enable) begin
      valid_b_q <= valid_a;
      write_q <= valid_w;
    end
  end
  always_ff @(posedge clk_i) begin
    if ((enable && valid_first) || rows_busy_q) write_data_q <= write_data_d;
    if (enable && valid_w) second_w_q <= valid_c;
  end

  always_comb begin
    if (!tsr_isa_pkg::Simulated) write_bytes = 'x;
    if (rows_busy_q) begin
      write_bytes = rows_bytes;
    end else if (write_q) begin
      write_bytes = bytes_d;
      if (!second_w_q) begin
        for (int unsigned l = SecondLanes; l < Lanes; l++) write_bytes[8*(l-SecondLanes)+:8] = write_data_q[32*(l-SecondLanes)+:8];
      end
    end
  end

  logic [13:0] write_address;
  logic [1:0] write_space;
  assign write_space = write_target.space;
  assign write_address = 14'(write_target.entry);
  assign acc_we_o = rows_acc_we || (write_q && write_space == SpaceAcc);
  assign acc_waddr_o = rows_busy_q ? rows_acc_target : write_address;
  assign acc_wdata_o = write_data_q;
  assign out_we_o = (rows_dst_we && prep.dst == SpaceOut) || (write_q && write_space == SpaceOut);
  assign out_waddr_o = rows_busy_q ? rows_dst_address : write_address;
  assign out_wdata_o = write_bytes;
  assign inp_we_o = (rows_dst_we && prep.dst == SpaceInp) || (write_q && write_space == SpaceInp);
  assign inp_req_o = inp_we_o || (rows_src_req && prep.src == SpaceInp) || (want && issue_q.take_src && alu.src == SpaceInp);
  assign inp_addr_o = rows_busy_q ? (inp_we_o ? rows_dst_address : rows_src_address) :
      inp_we_o ? write_address : issue_q.src_address;
  assign inp_wdata_o = (8 * Batch * BlockIn)'(write_bytes);
  assign enable = !(acc_we_o && !acc_wgnt_i);
  assign retire = write_q && enable;

  assign busy_o = prep_valid_q || running_q || !empty;
  assign complete_o = (retire && pop_info.last) || prep_drop || rows_done;
  assign complete_signal_o = prep_drop || rows_done ? (prep_fence_q || rows_done) && prep.header.signal : pop_info.signal;
  assign complete_fault_o = prep_drop && !prep_fence_q;
  assign complete_code_o = complete_fault_o ? 3'(tsr_isa_pkg::FaultScratchpadRange) : 3'(tsr_isa_pkg::FaultNone);
  assign complete_pc_o = prep_drop || rows_done ? prep_pc_q : pop_info.pc;
  assign issue_o = issue || rows_issue;
  assign stall_mem_o = 1'b0;
  assign stall_port_o = !enable || (want && !granted);

  // Rows, while nothing else is under way.
  logic rows_acc_req, rows_acc_we, rows_src_req, rows_dst_we, rows_param_req, rows_look_up, rows_issue;
  logic [13:0] rows_acc_address, rows_acc_target, rows_src_address, rows_dst_address;
  logic [9:0] rows_param_address;
  logic [127:0] rows_scalars;
  logic [8*Lanes-1:0] rows_bytes;
  logic [12*Lanes-1:0] rows_index;
  assign rows_start = prep_rows_q && prep_done && !prep_fault && !running_q && empty && !rows_busy_q;
  if (RowLanes != 0) begin : gen_rows
    if (Batch != 1) $error("tsr_alu: rows with a batch");
    always_ff @(posedge clk_i) begin
      if (!rst_ni) rows_busy_q <= 1'b0;
      else rows_busy_q <= rows_start || (rows_busy_q && !rows_done);
    end
    logic [48*RowLanes-1:0] index;
    logic [8*Lanes-1:0] source_bytes;
    always_comb begin
      for (int unsigned l = 0; l < Lanes; l++) source_bytes[8*l+:8] = source[32*l+:8];
    end
    tsr_rows #(.BlockOut(BlockOut), .RowLanes(RowLanes)) u_rows (
      .clk_i, .rst_ni, .start_i(rows_start), .word_i(prep_word_q), .limit_i(row_limit_i), .done_o(rows_done), .issue_o(rows_issue),
      .acc_req_o(rows_acc_req), .acc_addr_o(rows_acc_address), .acc_gnt_i, .acc_rdata_i(acc_rdata_i[127:0]),
      .acc_we_o(rows_acc_we), .acc_waddr_o(rows_acc_target), .acc_wdata_o(rows_scalars), .acc_wgnt_i,
      .src_req_o(rows_src_req), .src_addr_o(rows_src_address),
      .src_gnt_i(prep.src == SpaceOut ? out_gnt_i : inp_gnt_i && !inp_we_o), .src_rdata_i(source_bytes),
      .dst_we_o(rows_dst_we), .dst_addr_o(rows_dst_address), .dst_wdata_o(rows_bytes), .param_req_o(rows_param_req),
      .param_addr_o(rows_param_address), .param_rdata_i, .look_up_o(rows_look_up), .index_o(index),
      .bytes_i(bytes_b_q[32*RowLanes-1:0])
    );
    assign rows_index = (12 * Lanes)'(index);
  end else begin : gen_no_rows
    assign {rows_busy_q, rows_done, rows_acc_req, rows_acc_we, rows_src_req, rows_dst_we, rows_param_req,
            rows_look_up, rows_issue} = '0;
    assign {rows_acc_address, rows_acc_target, rows_src_address, rows_dst_address, rows_param_address} = '0;
    assign {rows_scalars, rows_bytes, rows_index} = '0;
    logic unused_start;
    assign unused_start = &{1'b0, rows_start, row_limit_i};
  end

  logic unused;
  assign unused = &{1'b0, unused_taken_alu, taken, unused_inner_last, alu, prep, bounds_3_q, after_b_q, param_rdata_i, count,
                    inp_rdata_i};

endmodule
/* verilator lint_on LATCH */
