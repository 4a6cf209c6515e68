// SPDX-License-Identifier: Apache-2.0
// The vector engine's preparation: a register for the next instruction, in which its ranges and fields are checked and the
// constants of its second operation are read, while the previous instruction runs. Enters: instructions, PARAM's answers.
// Leaves: what the instruction says, and whether it may go on (goes_o), is one of rows that may (rows_go_o), or only
// leaves (drops_o: a fence or a fault). The owner says when it does.
//
// Latency: alu.prepare of isa/timing.toml. Back-pressure: the instruction stays until move_i, drop_i or rows_done_i.
// Reset: synchronous, active low.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_alu_prepare #(
  parameter int unsigned InpDepth   = 16,
  parameter int unsigned AccDepth   = 16,
  parameter int unsigned OutDepth   = 16,
  parameter int unsigned ParamDepth = 16,
  parameter int unsigned TableCount = 1,
  parameter int unsigned RowLanes   = 0,
  parameter int unsigned SlotBits   = 5
) (
  input  logic                                   clk_i,
  input  logic                                   rst_ni,
  // Engine port.
  input  logic                                   instr_valid_i,
  input  logic [511:0]                           instr_i,
  input  logic [31:0]                            instr_pc_i,
  output logic                                   instr_ready_o,
  // The instruction that is here.
  output logic                                   valid_o,
  output logic                                   loads_o,  // its nest may be loaded
  output logic                                   goes_o,
  output logic                                   rows_go_o,
  output logic                                   drops_o,
  output logic                                   fence_o,
  input  logic                                   move_i,
  input  logic                                   drop_i,
  input  logic                                   rows_done_i,
  // The instruction in front of it: whether there is one, its last issue stands, and is made.
  input  logic                                   running_i,
  input  logic                                   last_i,
  input  logic                                   issue_i,
  output logic [tsr_alu_pkg::NestBits-1:0]        nest_o,
  output logic [tsr_alu_pkg::InstructionBits-1:0] instruction_o,
  output logic [511:0]                           word_o,  // of rows
  // Constants of second operations, a slot an instruction.
  output logic                                   constant_want_o,
  output logic [9:0]                             constant_address_o,
  input  logic                                   constant_read_i,
  input  logic [209:0]                           constant_i,
  output logic [SlotBits-1:0]                    slot_o,
  input  logic [SlotBits-1:0]                    slot_i,
  output logic [tsr_alu_pkg::ConstantBits-1:0]    constants_o  // of slot_i
);

  localparam logic [1:0] SpaceAcc = 2'(tsr_isa_pkg::AluSpaceAcc), SpaceInp = 2'(tsr_isa_pkg::AluSpaceInp);
  localparam bit Rows = RowLanes != 0;

  logic valid_q, start_q, fence_q, rows_q, map_q, want_q, back_q;
  logic [511:0] word_q, nest_word_q;
  logic [31:0] pc_q;
  tsr_isa_pkg::alu_t word, nest_word;
  assign nest_word = nest_word_q;
  always_comb begin
    word = word_q;
    word.extent = nest_word.extent;
    word.src_addr = nest_word.src_addr;
    word.dst_addr = nest_word.dst_addr;
    word.second_addr = nest_word.second_addr;
    word.src_stride = nest_word.src_stride;
    word.dst_stride = nest_word.dst_stride;
    word.second_stride = nest_word.second_stride;
  end
  assign word_o = Rows ? word : '0;

  // Take.
  logic take;
  tsr_isa_pkg::alu_t taken;
  logic unused_taken_alu, taken_reduce, taken_map, taken_fence;
  assign taken = instr_i;
  assign {taken_map, taken_reduce, unused_taken_alu, taken_fence} = tsr_isa_pkg::alu_instruction(taken.header.opcode);
  // move_i in two parts, because an issue is known last.
  logic ready, ready_with_issue;
  assign ready = !valid_q || (goes_o && !running_i) || (drop_i && fence_q);
  assign ready_with_issue = goes_o && last_i;
  assign instr_ready_o = ready || (ready_with_issue && issue_i);
  assign take = instr_valid_i && instr_ready_o;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      valid_q <= 1'b0;
      start_q <= 1'b0;
    end else begin
      start_q <= take;
      if (take) valid_q <= 1'b1;
      else if (move_i || drop_i || rows_done_i) valid_q <= 1'b0;
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      word_q <= '0;
      fence_q <= 1'b0;
      rows_q <= 1'b0;
      map_q <= 1'b0;
      pc_q <= '0;
    end else if (take) begin
      word_q <= instr_i;
      fence_q <= taken_fence;
      rows_q <= Rows && (taken_map || taken_reduce);
      map_q <= Rows && taken_map;
      pc_q <= instr_pc_i;
    end
  end

  // An instruction that may go while the last issue of the one in front of it stands has been loaded into the nest. What
  // only the nest needs then is the next one's already: these many registers do not wait for the issue.
  always_ff @(posedge clk_i) begin
    if (instr_valid_i && (ready || ready_with_issue)) nest_word_q <= instr_i;
  end

  // Addresses and strides of the source, the destination and the second operand, in this order.
  logic check, second, range_done, done, fault;
  logic [2:0] outside;
  logic [14:0] src_limit, dst_limit;
  logic [3*14-1:0] addresses;
  logic [3*84-1:0] strides;
  assign second = !rows_q && word.second_op != 2'(tsr_isa_pkg::SecondOpNone);
  assign check = start_q && !fence_q;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {addresses, strides} = 'x;
    if (!tsr_isa_pkg::Simulated || check || !range_done) begin
      addresses = {word.second_addr, word.dst_addr, word.src_addr};
      strides = {word.second_stride, word.dst_stride, word.src_stride};
    end
  end
  always_comb begin
    src_limit = 15'(OutDepth);
    if (word.src == SpaceAcc) src_limit = 15'(AccDepth);
    if (word.src == SpaceInp) src_limit = 15'(InpDepth);
    dst_limit = 15'(OutDepth);
    if (word.dst == SpaceAcc) dst_limit = 15'(AccDepth);
    if (word.dst == SpaceInp) dst_limit = 15'(InpDepth);
  end
  tsr_range #(.Operands(3)) u_range (
    .clk_i, .rst_ni, .start_i(check), .addr_i(addresses), .extent_i(word.extent), .stride_i(strides),
    .loops_i({3'd6 - word.reduce, map_q ? 3'd6 : 3'd6 - word.reduce, 3'd6}),
    .limit_i({map_q ? 15'(AccDepth) : 15'(OutDepth), dst_limit, src_limit}),
    .done_o(range_done), .outside_o(outside)
  );

  // What the fields alone decide is found in the first two cycles of the range check: the highest parameter, and then
  // what is out of range.
  logic [12:0] param_highest, param_highest_q;
  logic field_fault, field_fault_q, highest_stands_q;
  logic rows_look;  // an instruction of rows reads tables; both have their operation at the same place
  tsr_isa_pkg::row_map_t map;
  assign map = word;
  assign rows_look = map_q ? map.operation != 2'(tsr_isa_pkg::MappingNormalise) :
                             map.operation == 2'(tsr_isa_pkg::ReductionSumExp);
  always_comb begin
    if (!tsr_isa_pkg::Simulated) param_highest = 'x;
    if (!tsr_isa_pkg::Simulated) field_fault = 1'bx;
    if (!tsr_isa_pkg::Simulated || start_q) begin
      param_highest = 13'(word.param_addr);
      for (int unsigned k = 0; k < 6; k++) begin
        if (word.param_loop == 3'(k)) param_highest = 13'(word.param_addr) + 13'(word.extent[k]) - 13'd1;
      end
    end
    if (!tsr_isa_pkg::Simulated || highest_stands_q) begin
      field_fault = (second && 32'(word.constant_addr) >= ParamDepth) ||
          (word.convert && 32'(param_highest_q) >= ParamDepth) ||
          (word.table_enable && 32'(word.table_) >= TableCount) ||
          (word.second_table_enable && 32'(word.second_table) >= TableCount);
      if (rows_q) begin
        field_fault = rows_look ? 32'(map.table_) + 32'd4 > TableCount : map_q && 32'(param_highest_q) >= ParamDepth;
        if (map_q && word.src == SpaceAcc && 32'(param_highest_q) >= ParamDepth) field_fault = 1'b1;
        if (map_q && 32'(map.sum_table) + 32'd4 > TableCount && map.operation == 2'(tsr_isa_pkg::MappingSumSoftmax))
          field_fault = 1'b1;
      end
    end
  end
  always_ff @(posedge clk_i) begin
    if (!rst_ni) highest_stands_q <= 1'b0;
    else highest_stands_q <= start_q;
  end
  always_ff @(posedge clk_i) begin
    if (start_q) param_highest_q <= param_highest;
    if (highest_stands_q) field_fault_q <= field_fault;
  end
  assign fault = field_fault_q || outside[1:0] != '0 || ((second || map_q) && outside[2]);
  assign done = valid_q && !fence_q && !start_q && range_done && !want_q && !back_q;

  assign valid_o = valid_q;
  assign loads_o = valid_q && !fence_q && !rows_q;
  assign goes_o = done && !fault && !rows_q;
  assign rows_go_o = done && !fault && rows_q;
  assign drops_o = valid_q && (fence_q || (done && fault));
  assign fence_o = fence_q;
  tsr_alu_pkg::nest_t nest;
  tsr_alu_pkg::instruction_t instruction;
  assign nest.param_loop = word.param_loop;
  assign nest.param_before = word.param_addr - 10'd1;
  assign nest.reduce = word.reduce;
  assign nest.strides = {word.second_stride, word.dst_stride, word.src_stride};
  assign nest.extents = word.extent;
  assign nest.addresses = {word.second_addr, word.dst_addr, word.src_addr};
  assign instruction.signal = word.header.signal;
  assign instruction.pc = pc_q;
  assign instruction.src = word.src;
  assign instruction.dst = word.dst;
  assign instruction.sums = word.reduce_op == 1'(tsr_isa_pkg::ReduceOpSum);
  assign instruction.src_unsigned = word.src_unsigned;
  assign instruction.bounds = {word.convert, word.low, word.high, word.out_zero};
  assign instruction.after = {word.table_enable, word.table_, word.table_unsigned, word.second_op, word.second_unsigned,
                              word.second_swap, word.second_table_enable, word.second_table};
  assign nest_o = nest;
  assign instruction_o = instruction;

  // Constants. No more instructions than vectors are under way.
  logic [SlotBits-1:0] slot_q;
  logic [tsr_alu_pkg::ConstantBits-1:0] constants[1 << SlotBits];
  assign constant_want_o = want_q;
  assign constant_address_o = word.constant_addr;
  assign slot_o = slot_q;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      want_q <= 1'b0;
      back_q <= 1'b0;
      slot_q <= '0;
    end else begin
      // An address out of range is not read: the instruction will fault.
      if (start_q) want_q <= !fence_q && second && 32'(word.constant_addr) < ParamDepth;
      else if (constant_read_i) want_q <= 1'b0;
      back_q <= constant_read_i;
      if (move_i && second) slot_q <= slot_q + 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (back_q) constants[slot_q] <= {constant_i[209:192], constant_i[179:128], constant_i[121:64], constant_i[55:0]};
  end
  assign constants_o = constants[slot_i];

  logic unused;
  assign unused = &{1'b0, unused_taken_alu, taken, word, word_q, nest_word, constant_i, map};

endmodule
/* verilator lint_on LATCH */
