// SPDX-License-Identifier: Apache-2.0
// The vector engine (isa/semantics.md, ALU). Enters: instructions, source vectors from ACC, OUT or INP, second operands
// from OUT, bias, scale and constants from PARAM, tables written by LOAD. Leaves: vectors to ACC, OUT or INP,
// completions. Method: a preparation register in which ranges are checked and constants read while the previous
// instruction runs (tsr_alu_prepare); an issue stage that reads one source vector a cycle (tsr_alu_issue) and waits for
// what is still to be written (tsr_alu_under_way); a reduction register (tsr_alu_source); one pipeline of lanes
// (tsr_alu_lanes); the write (tsr_alu_write). The bare int32 path to ACC leaves after the reduction, instructions without
// a second operation skip it. What a stage needs of the instruction enters with each vector and travels beside it, so
// that instructions follow one another without a gap. Instructions of rows wait in preparation, for tsr_rows.
//
// Latency from the last read of a vector to its write: alu.raw, alu.first or alu.second of isa/timing.toml, from which
// the defaults of the registers come; another choice of registers moves the last two. Throughput: one source vector a
// cycle; two cycles a vector where source and second operand are both in OUT; Batch * BlockOut / SecondLanes cycles a
// vector with a second operation, if that is more. All of it in closed form: isa/timing.md. Back-pressure: a refused
// write holds the whole pipeline, a refused read the issue stage. Reset: synchronous, active low. Legal: TableBytes a
// power of two up to 64, SecondLanes a divisor of Batch * BlockOut, RowLanes 0 with a batch.

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
  parameter int unsigned MemoryParity = 0,
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
  output logic                          acc_keep_o,  // the entry's first word stays as it is
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
  output logic                          inp_req_o,
  output logic                          inp_we_o,
  output logic                          inp_first_o,  // a read that LOAD does not refuse, or none
  output logic [13:0]                   inp_addr_o,
  input  logic                          inp_gnt_i,  // of reads; a write is always granted
  input  logic [8*Batch*BlockIn-1:0]    inp_rdata_i,
  // What is written to OUT or INP; its last SecondLanes bytes are joined with those of the second table (tsr_alu_tables).
  output logic [8*Batch*BlockOut-1:0]   bytes_o,
  output logic [8*SecondLanes-1:0]      table_bytes_o,
  output logic [SecondLanes-1:0]        table_parity_o,  // of them
  output logic                          param_req_o,
  output logic [9:0]                    param_addr_o,
  input  logic [64*BlockOut-1:0]        param_rdata_i,
  // Writes of LOAD to the tables, TableBytes at a multiple of them.
  input  logic                          tbl_we_i,
  input  logic [21-$clog2(TableBytes):0]  tbl_waddr_i,
  input  logic [8*TableBytes-1:0]         tbl_wdata_i,
  input  logic [TableBytes-1:0]           tbl_wbe_i,
  output logic                          parity_error_o,  // a lookup's word of two cycles ago is wrong
  // Counters.
  output logic                          issue_o,
  output logic                          stall_mem_o,
  output logic                          stall_port_o
);

  localparam int unsigned Lanes = Batch * BlockOut;
  localparam int unsigned Turns = Lanes / SecondLanes;
  // From the last read to the write.
  localparam int unsigned Raw = tsr_isa_pkg::TimingAluRaw;
  localparam int unsigned First = Raw + $countones(RequantiseRegisters) + RequantiseTrailing + tsr_isa_pkg::TimingTableDepth;
  localparam int unsigned Long = First + tsr_isa_pkg::TimingAluTurn + Turns - 1 + $countones(SecondRegisters) + SecondTrailing;
  localparam int unsigned SlotBits = $clog2(Long + 1);  // as many vectors as cycles can be under way
  // A simulator has a destination in 16 bits, with its space.
  localparam int unsigned DeepestEntry = $clog2(InpDepth > AccDepth ? InpDepth > OutDepth ? InpDepth : OutDepth :
                                                                      AccDepth > OutDepth ? AccDepth : OutDepth);
  localparam int unsigned EntryBits = tsr_isa_pkg::Simulated ? 14 : DeepestEntry;

  localparam logic [1:0] SpaceAcc = 2'(tsr_isa_pkg::AluSpaceAcc), SpaceOut = 2'(tsr_isa_pkg::AluSpaceOut), SpaceInp = 2'(tsr_isa_pkg::AluSpaceInp);

  logic enable;  // the pipeline moves: no write is refused
  logic enable_data;  // the same, for the clock enables of what is only carried along: two thousand, all over the lanes

  // Preparation.
  logic prep_valid, prep_loads, prep_goes, prep_rows, prep_drops, prep_fence, prep_move, prep_drop;
  logic [tsr_alu_pkg::NestBits-1:0] prep_nest;
  logic [511:0] prep_word;
  logic [SlotBits-1:0] prep_slot, lanes_slot;
  logic [tsr_alu_pkg::ConstantBits-1:0] lanes_constants;
  logic constant_want, constant_read;
  logic [9:0] constant_address;
  tsr_alu_pkg::instruction_t prep;
  tsr_alu_prepare #(
    .InpDepth(InpDepth), .AccDepth(AccDepth), .OutDepth(OutDepth), .ParamDepth(ParamDepth), .TableCount(TableCount),
    .RowLanes(RowLanes), .SlotBits(SlotBits)
  ) u_prepare (
    .clk_i, .rst_ni, .instr_valid_i, .instr_i, .instr_pc_i, .instr_ready_o, .valid_o(prep_valid), .loads_o(prep_loads),
    .goes_o(prep_goes), .rows_go_o(prep_rows), .drops_o(prep_drops), .fence_o(prep_fence), .move_i(prep_move),
    .drop_i(prep_drop), .rows_done_i(rows_done), .running_i(running), .last_i(issue_last), .issue_i(issue),
    .nest_o(prep_nest), .instruction_o(prep), .word_o(prep_word),
    .constant_want_o(constant_want), .constant_address_o(constant_address), .constant_read_i(constant_read),
    .constant_i(param_rdata_i[209:0]), .slot_o(prep_slot), .slot_i(lanes_slot), .constants_o(lanes_constants)
  );

  // Issue.
  logic running, issue, push, issue_last, stall, step, hazard, early, param_busy;
  logic acc_want, acc_claim, out_want, out_claim, inp_want, next_src, next_second;
  logic [1:0] next_src_space;
  logic [13:0] src_address, dst_address, out_address, next_src_address, next_second_address;
  logic [SlotBits-1:0] slot;
  tsr_alu_pkg::instruction_t alu;
  tsr_alu_pkg::read_t read;
  tsr_alu_issue #(.Turns(Turns), .SlotBits(SlotBits)) u_issue (
    .clk_i, .rst_ni, .enable_i(enable), .loads_i(prep_loads), .goes_i(prep_goes), .drop_i(prep_drop), .nest_i(prep_nest),
    .instruction_i(prep), .slot_i(prep_slot), .move_o(prep_move), .running_o(running), .instruction_o(alu), .slot_o(slot),
    .acc_req_o(acc_want), .acc_claim_o(acc_claim), .acc_gnt_i, .out_req_o(out_want), .out_claim_o(out_claim),
    .out_addr_o(out_address), .out_gnt_i, .inp_req_o(inp_want), .inp_gnt_i,
    .inp_busy_i(inp_we_o), .src_addr_o(src_address), .issue_o(issue), .push_o(push), .last_o(issue_last), .dst_address_o(dst_address),
    .read_o(read), .stall_o(stall), .step_o(step), .next_src_o(next_src), .next_src_space_o(next_src_space),
    .next_src_address_o(next_src_address), .next_second_o(next_second), .next_second_address_o(next_second_address),
    .hazard_i(hazard), .early_i(early), .param_busy_i(param_busy)
  );

  // Vectors under way.
  logic idle, empty, retire, write, write_again, write_last, write_signal;
  logic [1:0] write_space;
  logic [EntryBits-1:0] write_entry;
  logic [31:0] write_pc;
  tsr_alu_under_way #(
    .Raw(Raw), .First(First), .Long(Long), .EntryBits(EntryBits), .SlotBits(SlotBits)
  ) u_under_way (
    .clk_i, .rst_ni, .enable_i(enable), .push_i(push), .raw_i(read.raw),
    .second_i(alu.after.second_op != 2'(tsr_isa_pkg::SecondOpNone)), .space_i(alu.dst), .entry_i(EntryBits'(dst_address)),
    .last_i(issue_last), .signal_i(alu.signal), .pc_i(alu.pc), .step_i(step), .next_src_i(next_src),
    .next_src_space_i(next_src_space), .next_src_entry_i(EntryBits'(next_src_address)), .next_second_i(next_second),
    .next_second_entry_i(EntryBits'(next_second_address)), .hazard_o(hazard), .early_o(early), .idle_o(idle),
    .retire_i(retire), .space_o(write_space), .entry_o(write_entry), .last_o(write_last), .signal_o(write_signal),
    .pc_o(write_pc)
  );
  assign empty = idle && !write;
  assign retire = write && enable;

  // From the read to the reduction.
  logic [8*Lanes-1:0] rows_source;
  logic param_vector, param_fetch, second_valid, reduced_valid, reduced_raw;
  logic [9:0] param_address;
  logic [8*Lanes-1:0] second;
  logic [tsr_alu_pkg::BoundsBits-1:0] bounds;
  logic [32*Lanes-1:0] reduced;
  tsr_alu_source #(.Lanes(Lanes), .RowLanes(RowLanes)) u_source (
    .clk_i, .rst_ni, .enable_i(enable), .enable_data_i(enable_data), .issue_i(issue), .read_i(read), .acc_rdata_i, .out_rdata_i,
    .inp_rdata_i((8 * Lanes)'(inp_rdata_i)), .rows_i(rows_busy), .rows_round_i(rows_acc_src && acc_gnt_i), .rows_read_i(rows_src_req), .rows_space_i(prep.src),
    .rows_bytes_o(rows_source), .constant_want_i(constant_want), .constant_read_o(constant_read),
    .param_busy_o(param_busy), .param_vector_o(param_vector), .param_fetch_o(param_fetch),
    .param_address_o(param_address), .second_valid_o(second_valid), .second_o(second), .valid_o(reduced_valid),
    .raw_o(reduced_raw), .bounds_o(bounds), .value_o(reduced)
  );

  // Lanes.
  logic first_valid, early_valid, last_valid;
  logic [11*Lanes-1:0] first_value;
  logic [8*SecondLanes-1:0] early_bytes;
  logic [8*Lanes-1:0] last_bytes, rows_table;
  tsr_alu_lanes #(
    .Batch(Batch), .BlockOut(BlockOut), .SecondLanes(SecondLanes), .TableCount(TableCount), .TableBytes(TableBytes),
    .RowLanes(RowLanes), .MemoryParity(MemoryParity), .SlotBits(SlotBits), .RequantiseRegisters(RequantiseRegisters),
    .RequantiseTrailing(RequantiseTrailing), .SecondRegisters(SecondRegisters), .SecondTrailing(SecondTrailing)
  ) u_lanes (
    .clk_i, .rst_ni, .enable_i(enable_data), .push_i(push), .after_i(alu.after), .slot_i(slot), .slot_o(lanes_slot),
    .constants_i(lanes_constants), .second_valid_i(second_valid), .second_i(second),
    .valid_i(reduced_valid && !reduced_raw), .bounds_i(bounds), .value_i(reduced), .param_i(param_rdata_i),
    .first_valid_o(first_valid), .first_value_o(first_value), .write_valid_i(early_valid), .write_bytes_i(early_bytes),
    .second_valid_o(last_valid), .second_bytes_o(last_bytes), .table_bytes_o, .table_parity_o, .rows_i(rows_busy), .rows_look_up_i(rows_look_up),
    .rows_index_i(rows_index), .rows_bytes_o(rows_table), .rows_rounded_valid_o(rounded_valid), .rows_rounded_o(rounded), .results_look_up_i(results_look_up),
    .results_index_i(results_index), .results_bytes_o(results_table), .tbl_we_i, .tbl_waddr_i, .tbl_wdata_i, .tbl_wbe_i,
    .parity_error_o
  );

  // The write.
  tsr_alu_write #(.Lanes(Lanes), .SecondLanes(SecondLanes), .RowLanes(RowLanes)) u_write (
    .clk_i, .rst_ni, .enable_i(enable_data), .raw_valid_i(reduced_valid && reduced_raw), .raw_i(reduced),
    .first_valid_i(first_valid), .first_i(first_value), .early_valid_o(early_valid), .early_bytes_o(early_bytes),
    .second_valid_i(last_valid), .second_bytes_i(last_bytes), .rows_i(rows_busy), .rows_scalars_i(rows_scalars),
    .rows_bytes_i(rows_bytes), .valid_o(write), .again_o(write_again), .words_o(acc_wdata_o), .bytes_o
  );

  // Ports: those of the pipeline, or of rows.
  logic [13:0] write_address;
  assign write_address = rows_busy ? rows_dst_address : 14'(write_entry);
  assign rows_acc_src = rows_src_req && prep.src == SpaceAcc;
  assign acc_req_o = rows_acc_req || rows_acc_src || acc_want;
  assign acc_claim_o = rows_acc_req || rows_acc_src || acc_claim;
  assign acc_addr_o = rows_busy ? rows_acc_address : src_address;
  assign acc_we_o = rows_acc_we || (write && write_space == SpaceAcc);
  assign acc_keep_o = rows_busy && rows_acc_keep;
  assign acc_waddr_o = rows_busy ? rows_acc_target : 14'(write_entry);
  assign out_req_o = (rows_src_req && prep.src == SpaceOut) || out_want;
  assign out_claim_o = (rows_src_req && prep.src == SpaceOut) || out_claim;
  assign out_addr_o = rows_busy ? rows_src_address : out_address;
  assign out_we_o = (rows_dst_we && prep.dst == SpaceOut) || (write && write_space == SpaceOut);
  assign out_waddr_o = write_address;
  assign inp_we_o = (rows_dst_we && prep.dst == SpaceInp) || (write && write_space == SpaceInp);
  assign inp_first_o = rows_busy && rows_src_claim;
  assign inp_req_o = inp_we_o || (rows_src_req && prep.src == SpaceInp) || inp_want;
  assign inp_addr_o = inp_we_o ? write_address : rows_busy ? rows_src_address : src_address;
  assign param_req_o = constant_read || param_fetch || rows_param_req;
  assign param_addr_o = rows_busy ? rows_param_address : param_vector ? param_address : constant_address;
  assign enable = !(acc_we_o && !acc_wgnt_i);
  assign enable_data = acc_wgnt_i || !(rows_acc_we || (write_again && write_space == SpaceAcc));

  // Completions. Nothing is under way where an instruction is dropped or rows end, so the write decides whose they are.
  assign prep_drop = prep_drops && !running && empty;
  assign busy_o = prep_valid || running || !empty;
  assign complete_o = (retire && write_last) || prep_drop || rows_done;
  assign complete_signal_o = write ? write_signal : (prep_fence || rows_done) && prep.signal;
  assign complete_fault_o = prep_drop && !prep_fence;
  assign complete_code_o = complete_fault_o ? 3'(tsr_isa_pkg::FaultScratchpadRange) : 3'(tsr_isa_pkg::FaultNone);
  assign complete_pc_o = write ? write_pc : prep.pc;
  assign issue_o = issue || rows_issue;
  assign stall_mem_o = 1'b0;
  assign stall_port_o = !enable || stall;

  // Rows, while nothing else is under way.
  logic rows_start, rows_busy, rows_done, rows_acc_req, rows_acc_we, rows_acc_keep, rows_src_req, rows_src_claim, rows_dst_we;
  logic rows_param_req, rows_acc_src, rounded_valid;
  logic rows_look_up, rows_issue;
  logic [13:0] rows_acc_address, rows_acc_target, rows_src_address, rows_dst_address;
  logic [9:0] rows_param_address;
  logic [127:0] rows_scalars;
  logic [8*Lanes-1:0] rows_bytes, rounded;
  logic [12*Lanes-1:0] rows_index;
  localparam int unsigned RowBytes = RowLanes != 0 ? 4 * RowLanes : 1;
  logic results_look_up;
  logic [12*RowBytes-1:0] results_index;
  logic [8*RowBytes-1:0] results_table;
  assign rows_start = prep_rows && !running && empty && !rows_busy;
  if (RowLanes != 0) begin : gen_rows
    if (Batch != 1) $error("tsr_alu: rows with a batch");
    logic busy_q;
    always_ff @(posedge clk_i) begin
      if (!rst_ni) busy_q <= 1'b0;
      else busy_q <= rows_start || (busy_q && !rows_done);
    end
    assign rows_busy = busy_q;
    logic [48*RowLanes-1:0] index;
    // A vector that is rounded stands behind the first stage of the lanes.
    tsr_rows #(
      .BlockOut(BlockOut), .RowLanes(RowLanes),
      .Rounding(Raw - 1 + $countones(RequantiseRegisters) + RequantiseTrailing)
    ) u_rows (
      .clk_i, .rst_ni, .start_i(rows_start), .word_i(prep_word), .limit_i(row_limit_i), .done_o(rows_done),
      .issue_o(rows_issue),
      .acc_req_o(rows_acc_req), .acc_addr_o(rows_acc_address), .acc_gnt_i, .acc_rdata_i(acc_rdata_i[127:0]),
      .acc_we_o(rows_acc_we), .acc_waddr_o(rows_acc_target), .acc_wdata_o(rows_scalars), .acc_keep_o(rows_acc_keep), .acc_wgnt_i,
      .src_req_o(rows_src_req), .src_claim_o(rows_src_claim), .src_addr_o(rows_src_address),
      .src_gnt_i(prep.src == SpaceAcc ? acc_gnt_i : prep.src == SpaceOut ? out_gnt_i : inp_gnt_i && !inp_we_o),
      .src_rdata_i(rows_source), .rounded_valid_i(rounded_valid), .rounded_i(rounded),
      .dst_we_o(rows_dst_we), .dst_addr_o(rows_dst_address), .dst_wdata_o(rows_bytes), .param_req_o(rows_param_req),
      .param_addr_o(rows_param_address), .param_rdata_i, .look_up_o(rows_look_up), .index_o(index),
      .bytes_i(rows_table[32*RowLanes-1:0]), .result_look_up_o(results_look_up), .result_index_o(results_index),
      .result_bytes_i(results_table)
    );
    assign rows_index = (12 * Lanes)'(index);
  end else begin : gen_no_rows
    assign {rows_busy, rows_done, rows_acc_req, rows_acc_we, rows_acc_keep, rows_src_req, rows_src_claim, rows_dst_we, rows_param_req,
            rows_look_up, rows_issue} = '0;
    assign {rows_acc_address, rows_acc_target, rows_src_address, rows_dst_address, rows_param_address} = '0;
    assign {rows_scalars, rows_bytes, rows_index, results_look_up, results_index} = '0;
  end

  logic unused;
  assign unused = &{1'b0, prep, alu, read, prep_word, param_rdata_i, inp_rdata_i, rows_start, rows_source, rounded_valid, rounded, rows_table, results_table, row_limit_i,
                    dst_address, next_src_address, next_second_address};

endmodule
