// SPDX-License-Identifier: Apache-2.0
// The NPU. Enters: register accesses through an AXI4-Lite slave. Leaves: programs run against memory behind an AXI4
// master (one identifier, incrementing bursts), an interrupt.
//
// Latency and throughput: those of the modules inside; every output of the master depends on state only. Reset:
// synchronous, active low, held until bursts in flight have drained. Legal: AxiBytes a power of two, 4 to 64; depths
// and queues at least 1.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_top #(
  parameter int unsigned Batch          = 1,
  parameter int unsigned BlockIn        = 8,
  parameter int unsigned BlockOut       = 8,
  parameter int unsigned InpDepth       = 2048,
  parameter int unsigned WgtDepth       = 1024,
  parameter int unsigned AccDepth       = 2048,
  parameter int unsigned OutDepth       = 2048,
  parameter int unsigned ParamDepth     = 128,
  parameter int unsigned TableCount     = 16,
  parameter int unsigned SecondLanes    = 4,
  parameter int unsigned RowLanes       = 0,
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned LoadQueue      = 16,
  parameter int unsigned GemmQueue      = 16,
  parameter int unsigned AluQueue       = 16,
  parameter int unsigned StoreQueue     = 16,
  parameter int unsigned ReadsInFlight  = 16,
  parameter int unsigned WritesInFlight = 8,
  parameter int unsigned MemoryParity   = 0,
  parameter int unsigned PackedWeights  = 0,
  parameter int unsigned RasterPairs    = 0,
  parameter int unsigned Cores          = 1,
  parameter int unsigned MemoryAxiBytes = 0
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  output logic                  interrupt_o,
  // AXI4-Lite slave.
  input  logic                  s_awvalid_i,
  output logic                  s_awready_o,
  input  logic [11:0]           s_awaddr_i,
  input  logic                  s_wvalid_i,
  output logic                  s_wready_o,
  input  logic [31:0]           s_wdata_i,
  input  logic [3:0]            s_wstrb_i,
  output logic                  s_bvalid_o,
  input  logic                  s_bready_i,
  output logic [1:0]            s_bresp_o,
  input  logic                  s_arvalid_i,
  output logic                  s_arready_o,
  input  logic [11:0]           s_araddr_i,
  output logic                  s_rvalid_o,
  input  logic                  s_rready_i,
  output logic [31:0]           s_rdata_o,
  output logic [1:0]            s_rresp_o,
  // AXI4 master.
  output logic                  m_arvalid_o,
  input  logic                  m_arready_i,
  output logic [63:0]           m_araddr_o,
  output logic [7:0]            m_arlen_o,
  input  logic                  m_rvalid_i,
  output logic                  m_rready_o,
  input  logic [8*AxiBytes-1:0] m_rdata_i,
  input  logic [1:0]            m_rresp_i,
  input  logic                  m_rlast_i,
  output logic                  m_awvalid_o,
  input  logic                  m_awready_i,
  output logic [63:0]           m_awaddr_o,
  output logic [7:0]            m_awlen_o,
  output logic                  m_wvalid_o,
  input  logic                  m_wready_i,
  output logic [8*AxiBytes-1:0] m_wdata_o,
  output logic [AxiBytes-1:0]   m_wstrb_o,
  output logic                  m_wlast_o,
  input  logic                  m_bvalid_i,
  output logic                  m_bready_o,
  input  logic [1:0]            m_bresp_i,
  // One of several cores: what they know of each other. Alone, it looks at nothing and says 0.
  input  logic [16*Cores-1:0]   public_i,     // the cores' public counters
  output logic [15:0]           public_o,     // this core's
  input  logic                  clear_i,      // it becomes 0
  output logic                  idle_o,       // nothing runs
  output logic                  fault_o,      // there is a fault record
  output logic                  rest_o,       // a head waits for a public counter, and nothing moves
  input  logic                  all_rest_i    // all cores are at rest or idle
);

  // Places in vectors of one element for each engine.
  localparam int unsigned Load = 32'(tsr_isa_pkg::EngineLoad);
  localparam int unsigned Gemm = 32'(tsr_isa_pkg::EngineGemm);
  localparam int unsigned Alu = 32'(tsr_isa_pkg::EngineAlu);
  localparam int unsigned Store = 32'(tsr_isa_pkg::EngineStore);
  localparam int unsigned InpEntry = Batch * BlockIn;
  localparam int unsigned WgtEntry = BlockIn * BlockOut;
  localparam int unsigned AccEntry = 4 * Batch * BlockOut;
  localparam int unsigned OutEntry = Batch * BlockOut;
  localparam int unsigned ParamEntry = 8 * BlockOut;
  localparam int unsigned GroupBits = 22 - $clog2(AxiBytes);

  // Control. A start clears everything but memories and registers.
  logic start, run, stop, program_rst_n;
  logic [63:0] program_address, window_first, window_last, counter_value;
  logic [31:0] instruction_count;
  logic [63:0] load_base, store_base;
  logic [15:0] row_limit;
  logic [3:0] load_base_number, store_base_number;
  logic counter_read, fault, fault_found;
  logic [5:0] counter_select;
  logic [2:0] fault_code, fault_unit;
  logic [31:0] fault_pc;
  assign program_rst_n = rst_ni && !start;

  tsr_control #(
    .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .InpBytes(InpEntry * InpDepth),
    .WgtBytes(WgtEntry * WgtDepth), .AccBytes(AccEntry * AccDepth), .OutBytes(OutEntry * OutDepth),
    .ParamBytes(ParamEntry * ParamDepth), .TableCount(TableCount), .SecondLanes(SecondLanes), .RowLanes(RowLanes), .AxiBytes(AxiBytes), .LoadQueue(LoadQueue),
    .GemmQueue(GemmQueue), .AluQueue(AluQueue), .StoreQueue(StoreQueue), .ReadsInFlight(ReadsInFlight),
    .WritesInFlight(WritesInFlight), .MemoryParity(MemoryParity), .PackedWeights(PackedWeights), .RasterPairs(RasterPairs),
    .Cores(Cores), .MemoryAxiBytes(MemoryAxiBytes)
  ) u_control (
    .clk_i, .rst_ni, .s_awvalid_i, .s_awready_o, .s_awaddr_i, .s_wvalid_i, .s_wready_o, .s_wdata_i, .s_wstrb_i,
    .s_bvalid_o, .s_bready_i, .s_bresp_o, .s_arvalid_i, .s_arready_o, .s_araddr_i, .s_rvalid_o, .s_rready_i,
    .s_rdata_o, .s_rresp_o, .interrupt_o, .start_o(start), .run_o(run), .stop_i(stop), .fault_i(fault),
    .fault_code_i(fault_code), .fault_unit_i(fault_unit), .fault_pc_i(fault_pc), .program_address_o(program_address),
    .instruction_count_o(instruction_count), .load_base_i(load_base_number),
    .load_base_o(load_base), .store_base_i(store_base_number), .store_base_o(store_base), .row_limit_o(row_limit),
    .window_first_o(window_first),
    .window_last_o(window_last), .counter_read_o(counter_read), .counter_select_o(counter_select), .counter_value_i(counter_value)
  );

  // Instruction stream.
  logic fetch_ar_valid, fetch_ar_ready, fetch_r_valid, fetch_r_ready, r_error, read_busy;
  logic [63:0] fetch_ar_addr;
  logic [7:0] fetch_ar_len;
  logic [8*AxiBytes-1:0] r_data;
  logic [3:0] push_valid, push_ready, head_valid, head_pop, instr_valid, instr_ready;
  logic [511:0] fetch_word;
  tsr_isa_pkg::fence_t fetch_fence;
  assign fetch_fence = fetch_word;
  logic [31:0] fetch_pc;
  logic fetch_held, fetch_finish, finish_take, fetch_fault, fetch_issue, fetch_stall;
  logic [2:0] fetch_code;

  tsr_fetch #(.AxiBytes(AxiBytes), .BlockIn(BlockIn), .BlockOut(BlockOut), .RowLanes(RowLanes), .PackedWeights(PackedWeights), .Cores(Cores)) u_fetch (
    .clk_i, .rst_ni(program_rst_n), .run_i(run && !fault), .program_address_i(program_address),
    .instruction_count_i(instruction_count), .window_first_i(window_first), .window_last_i(window_last),
    .ar_valid_o(fetch_ar_valid), .ar_ready_i(fetch_ar_ready), .ar_addr_o(fetch_ar_addr), .ar_len_o(fetch_ar_len),
    .r_valid_i(fetch_r_valid), .r_ready_o(fetch_r_ready), .r_data_i(r_data), .r_error_i(r_error),
    .push_valid_o(push_valid), .push_ready_i(push_ready), .word_o(fetch_word), .pc_o(fetch_pc),
    .held_o(fetch_held), .finish_o(fetch_finish), .finish_take_i(finish_take), .fault_o(fetch_fault),
    .fault_code_o(fetch_code), .issue_o(fetch_issue), .stall_memory_o(fetch_stall)
  );

  // A queue keeps the bits that its engine's instructions have. Header and program counter are looked at while a word
  // waits, the rest when the engine takes it; of LOAD and STORE the rest is that of the word they took last.
  localparam int unsigned HeaderBits = tsr_isa_pkg::HeaderBits;
  // The highest bit of a LOAD is `packed`, which is 0 without PackedWeights.
  localparam int unsigned LoadQueueBits = tsr_isa_pkg::LoadQueueBits - (PackedWeights != 0 ? 0 : 1);
  logic [511:0] load_word, gemm_word, alu_word, store_word;
  logic [4*512-1:0] head_word;  // the four, for assertions
  assign head_word = {store_word, alu_word, gemm_word, load_word};
  // With several cores a head also shows what its `await` wants, behind which it has a bit that it is a FENCE with one.
  localparam int unsigned AwaitBits = 21;
  localparam int unsigned AwaitLsb = Cores > 1 ? 0 : AwaitBits;
  logic [AwaitBits-1:0] await_data, load_await, store_await;
  logic [31+LoadQueueBits:0] load_data;
  logic [31+tsr_isa_pkg::GemmQueueBits:0] gemm_data;
  logic [31+tsr_isa_pkg::AluQueueBits:0] alu_data;
  logic [31+tsr_isa_pkg::StoreQueueBits:0] store_data;
  always_comb begin
    await_data = '0;
    if (!tsr_isa_pkg::Simulated) {load_data, gemm_data, alu_data, store_data} = 'x;
    if (!tsr_isa_pkg::Simulated || push_valid != '0) begin
      load_data = {fetch_word[LoadQueueBits-1:HeaderBits], fetch_pc, fetch_word[HeaderBits-1:0]};
      gemm_data = {fetch_word[tsr_isa_pkg::GemmQueueBits-1:HeaderBits], fetch_pc, fetch_word[HeaderBits-1:0]};
      alu_data = {fetch_word[tsr_isa_pkg::AluQueueBits-1:HeaderBits], fetch_pc, fetch_word[HeaderBits-1:0]};
      store_data = {fetch_word[tsr_isa_pkg::StoreQueueBits-1:HeaderBits], fetch_pc, fetch_word[HeaderBits-1:0]};
      if (Cores > 1) await_data = {fetch_fence.await && fetch_fence.header.opcode == 6'(tsr_isa_pkg::OpcodeFence), fetch_fence.await_core, fetch_fence.await_count};
    end
  end
  logic [127:0] head_pc;
  assign load_word[511:LoadQueueBits] = '0;
  logic [31+LoadQueueBits+AwaitBits:0] load_pushed, load_head;
  assign load_pushed = {load_data, await_data};
  assign {load_word[LoadQueueBits-1:HeaderBits], head_pc[32*Load+:32], load_word[HeaderBits-1:0], load_await} = load_head;
  tsr_queue #(.Width(32 + LoadQueueBits + AwaitBits - AwaitLsb), .Depth(LoadQueue), .HeadBits(HeaderBits + AwaitBits - AwaitLsb), .ShownBits(32), .Held(1'b1)) u_load_queue (
    .clk_i, .rst_ni(program_rst_n), .valid_i(push_valid[Load]), .ready_o(push_ready[Load]),
    .data_i(load_pushed[31+LoadQueueBits+AwaitBits:AwaitLsb]), .valid_o(head_valid[Load]),
    .data_o(load_head[31+LoadQueueBits+AwaitBits:AwaitLsb]),
    .ready_i(head_pop[Load])
  );
  assign gemm_word[511:tsr_isa_pkg::GemmQueueBits] = '0;
  tsr_queue #(.Width(32 + tsr_isa_pkg::GemmQueueBits), .Depth(GemmQueue), .HeadBits(HeaderBits), .ShownBits(32)) u_gemm_queue (
    .clk_i, .rst_ni(program_rst_n), .valid_i(push_valid[Gemm]), .ready_o(push_ready[Gemm]),
    .data_i(gemm_data), .valid_o(head_valid[Gemm]),
    .data_o({gemm_word[tsr_isa_pkg::GemmQueueBits-1:HeaderBits], head_pc[32*Gemm+:32], gemm_word[HeaderBits-1:0]}),
    .ready_i(head_pop[Gemm])
  );
  assign alu_word[511:tsr_isa_pkg::AluQueueBits] = '0;
  tsr_queue #(.Width(32 + tsr_isa_pkg::AluQueueBits), .Depth(AluQueue), .HeadBits(HeaderBits), .ShownBits(32)) u_alu_queue (
    .clk_i, .rst_ni(program_rst_n), .valid_i(push_valid[Alu]), .ready_o(push_ready[Alu]),
    .data_i(alu_data), .valid_o(head_valid[Alu]),
    .data_o({alu_word[tsr_isa_pkg::AluQueueBits-1:HeaderBits], head_pc[32*Alu+:32], alu_word[HeaderBits-1:0]}),
    .ready_i(head_pop[Alu])
  );
  assign store_word[511:tsr_isa_pkg::StoreQueueBits] = '0;
  localparam int unsigned StoreQueueBits = tsr_isa_pkg::StoreQueueBits;
  logic [31+StoreQueueBits+AwaitBits:0] store_pushed, store_head;
  assign store_pushed = {store_data, await_data};
  assign {store_word[StoreQueueBits-1:HeaderBits], head_pc[32*Store+:32], store_word[HeaderBits-1:0], store_await} = store_head;
  tsr_queue #(.Width(32 + StoreQueueBits + AwaitBits - AwaitLsb), .Depth(StoreQueue), .HeadBits(HeaderBits + AwaitBits - AwaitLsb), .ShownBits(32), .Held(1'b1)) u_store_queue (
    .clk_i, .rst_ni(program_rst_n), .valid_i(push_valid[Store]), .ready_o(push_ready[Store]),
    .data_i(store_pushed[31+StoreQueueBits+AwaitBits:AwaitLsb]), .valid_o(head_valid[Store]),
    .data_o(store_head[31+StoreQueueBits+AwaitBits:AwaitLsb]),
    .ready_i(head_pop[Store])
  );
  assign head_pop = instr_valid & instr_ready;

  // Completion and conditions.
  logic [3:0] busy, complete, complete_signal, complete_fault, signals;
  logic [11:0] complete_code, fault_engine_code;
  logic [127:0] complete_pc, fault_engine_pc;
  logic [4:0] holds, timeline_holds;
  logic [19:0] waiting_on, timeline_waiting_on;
  logic any_busy, awaiting, await_passes;

  // What completes behind a known fault is not counted: nothing older may depend on it.
  tsr_timeline u_timeline (
    .clk_i, .rst_ni(program_rst_n), .signal_i(signals),
    .valid_i({fetch_finish, head_valid}), .leave_i(head_pop), .load_waits_i(load_word[tsr_isa_pkg::HeaderWaitsLsb+:tsr_isa_pkg::HeaderWaitsBits]), .gemm_waits_i(gemm_word[tsr_isa_pkg::HeaderWaitsLsb+:tsr_isa_pkg::HeaderWaitsBits]),
    .alu_waits_i(alu_word[tsr_isa_pkg::HeaderWaitsLsb+:tsr_isa_pkg::HeaderWaitsBits]), .store_waits_i(store_word[tsr_isa_pkg::HeaderWaitsLsb+:tsr_isa_pkg::HeaderWaitsBits]), .finish_waits_i(fetch_word[tsr_isa_pkg::HeaderWaitsLsb+:tsr_isa_pkg::HeaderWaitsBits]),
    .holds_o(timeline_holds), .waiting_on_o(timeline_waiting_on)
  );

  // What cores know of each other. The public counter that the head of LOAD or STORE awaits is looked at beside its
  // conditions; that it was reached stays true. STORE's FENCEs that publish are known by their place among its instructions.
  if (Cores > 1) begin : gen_cores
    logic [1:0] wants, reached, reached_q, blocked;  // LOAD, STORE
    logic publishes, publishes_valid, publishes_ready, publishing;
    logic [15:0] public_q;
    // A simulator's: public_o in the next cycle, unless reset or clear_i make it 0. It depends on state only.
    logic [15:0] probe_public  /* verilator public_flat_rd */;
    always_comb begin
      for (int unsigned t = 0; t < 2; t++) begin
        wants[t] = head_valid[t == 0 ? Load : Store] && (t == 0 ? load_await[20] : store_await[20]);
        reached[t] = 1'b0;
        if (!tsr_isa_pkg::Simulated || wants[t]) begin
          for (int unsigned c = 0; c < Cores; c++) begin
            if ((t == 0 ? load_await[19:16] : store_await[19:16]) == 4'(c))
              reached[t] = 16'(public_i[16*c+:16] - (t == 0 ? load_await[15:0] : store_await[15:0])) < 16'h8000;
          end
        end
      end
    end
    assign blocked = wants & ~reached_q;
    always_ff @(posedge clk_i) begin
      if (!program_rst_n) reached_q <= '0;
      else reached_q <= wants & (reached | reached_q) & ~{head_pop[Store], head_pop[Load]};
    end
    assign awaiting = blocked != '0;
    assign await_passes = (blocked & reached) != '0;
    always_comb begin
      holds = timeline_holds;
      waiting_on = timeline_waiting_on;
      if (blocked[0]) begin
        holds[Load] = 1'b0;
        if (timeline_holds[Load]) waiting_on[5*Load] = 1'b1;
      end
      if (blocked[1]) begin
        holds[Store] = 1'b0;
        if (timeline_holds[Store]) waiting_on[5*Store] = 1'b1;
      end
    end

    // From its push to its completion: the queue, what prepares and walks, the bursts that wait for a response.
    tsr_queue #(.Width(1), .Depth(StoreQueue + WritesInFlight + 8)) u_publishes (
      .clk_i, .rst_ni(program_rst_n), .valid_i(push_valid[Store] && push_ready[Store]), .ready_o(publishes_ready),
      .data_i(fetch_fence.publish && fetch_fence.header.opcode == 6'(tsr_isa_pkg::OpcodeFence)),
      .valid_o(publishes_valid), .data_o(publishes), .ready_i(complete[Store])
    );
    assign publishing = complete[Store] && publishes && !complete_fault[Store] && !parity_fault[Store];
    always_ff @(posedge clk_i) begin
      if (!program_rst_n || clear_i) public_q <= '0;
      else if (publishing) public_q <= public_q + 16'd1;
    end
    assign public_o = public_q;
    assign probe_public = start ? '0 : public_q + 16'(publishing);
    assign idle_o = !run && !start;
    assign fault_o = fault;
    logic unused_cores;
    assign unused_cores = &{1'b0, publishes_valid, publishes_ready, probe_public};
  end else begin : gen_one_core
    assign holds = timeline_holds;
    assign waiting_on = timeline_waiting_on;
    assign awaiting = 1'b0;
    assign await_passes = 1'b0;
    assign public_o = '0;
    assign idle_o = 1'b0;
    assign fault_o = 1'b0;
    assign {load_head[AwaitBits-1:0], store_head[AwaitBits-1:0]} = '0;
    logic unused_cores;
    assign unused_cores = &{1'b0, public_i, clear_i, all_rest_i};
  end

  // Parity errors of the memories, by engine.
  logic [3:0] pads_parity, parity_fault;
  logic alu_parity, parity_found;
  if (MemoryParity != 0) begin : gen_parity
    tsr_memory_fault u_memory_fault (
      .clk_i, .rst_ni(program_rst_n), .error_i(pads_parity | (4'(alu_parity) << Alu)), .busy_i(busy), .complete_i(complete),
      .complete_pc_i(complete_pc), .found_o(parity_found), .fault_o(parity_fault), .pc_o(fault_engine_pc)
    );
    assign fault_engine_code = complete_code & ~{{3{parity_fault[3]}}, {3{parity_fault[2]}}, {3{parity_fault[1]}}, {3{parity_fault[0]}}};
  end else begin : gen_no_parity
    assign parity_found = 1'b0;
    assign parity_fault = '0;
    assign fault_engine_pc = complete_pc;
    assign fault_engine_code = complete_code;
  end

  assign any_busy = busy != '0 || read_busy || parity_found;  // an engine is busy in the cycle in which it completes, too
  tsr_fault #(.Awaits(Cores > 1)) u_fault (
    .clk_i, .rst_ni(program_rst_n), .run_i(run), .engine_fault_i((complete & complete_fault) | parity_fault),
    .engine_code_i(fault_engine_code), .complete_i(complete), .signal_i(complete & complete_signal), .engine_pc_i(fault_engine_pc), .fetch_fault_i(fetch_fault), .fetch_code_i(fetch_code),
    .fetch_pc_i(fetch_pc), .fetch_held_i(fetch_held), .head_valid_i(head_valid), .head_pc_i(head_pc),
    .head_holds_i(holds[3:0]), .busy_i(any_busy), .moving_i(fetch_issue || await_passes), .awaiting_i(awaiting), .all_rest_i(all_rest_i), .rest_o, .finish_i(fetch_finish),
    .finish_holds_i(holds[4]), .start_o(instr_valid), .counted_o(signals), .finish_take_o(finish_take), .stop_o(stop), .found_o(fault_found),
    .fault_o(fault),
    .code_o(fault_code), .unit_o(fault_unit), .pc_o(fault_pc)
  );

  // What a simulator may look at, engines in bits 0 to 3, FETCH in bit 4; nothing reads it in hardware.
  logic [3:0] probe_queued  /* verilator public_flat_rd */;
  logic [3:0] probe_issued  /* verilator public_flat_rd */;
  logic [3:0] probe_completed  /* verilator public_flat_rd */;
  logic [3:0] probe_faulted  /* verilator public_flat_rd */;
  logic [4:0] probe_busy  /* verilator public_flat_rd */;
  logic [19:0] probe_waiting  /* verilator public_flat_rd */;
  logic [4:0] probe_stall_memory  /* verilator public_flat_rd */;
  logic [4:0] probe_stall_port  /* verilator public_flat_rd */;
  logic probe_finished  /* verilator public_flat_rd */;
  logic probe_read_granted  /* verilator public_flat_rd */;
  logic probe_read_fetch  /* verilator public_flat_rd */;
  logic probe_store_granted  /* verilator public_flat_rd */;
  logic [7:0] probe_store_length  /* verilator public_flat_rd */;
  logic [31:0] probe_store_pc  /* verilator public_flat_rd */;
  logic [31:0] probe_queued_pc  /* verilator public_flat_rd */;
  logic [127:0] probe_head_pc  /* verilator public_flat_rd */;
  logic [127:0] probe_completed_pc  /* verilator public_flat_rd */;
  logic probe_run  /* verilator public_flat_rd */;

  // Engines.
  logic load_ar_valid, load_ar_ready, load_r_valid, load_r_ready, load_we, load_gnt, table_we;
  logic [63:0] load_ar_addr;
  logic [7:0] load_ar_len;
  logic load_ar_grows;
  logic [2:0] load_space;
  logic [GroupBits-1:0] load_group, store_group;
  logic [8*AxiBytes-1:0] load_wdata, store_rdata;
  logic [AxiBytes-1:0] load_wbe;
  logic load_pair;
  logic [16*AxiBytes-1:0] load_pair_wdata;
  localparam int unsigned TableBytes = tsr_isa_pkg::TimingLoadTableBytes < AxiBytes ? tsr_isa_pkg::TimingLoadTableBytes : AxiBytes;
  logic [21-$clog2(TableBytes):0] table_waddr;
  logic [8*TableBytes-1:0] table_wdata;
  logic [TableBytes-1:0] table_wbe;
  logic [8*SecondLanes-1:0] alu_table_bytes;
  logic [SecondLanes-1:0] alu_table_parity;
  logic [21:0] load_bytes, store_bytes;
  logic load_bytes_valid, store_bytes_valid;
  logic [3:0] issue, stall_memory, stall_port;

  tsr_load #(
    .AxiBytes(AxiBytes), .ReadsInFlight(ReadsInFlight), .InpBytes(InpEntry * InpDepth),
    .WgtBytes(WgtEntry * WgtDepth), .AccBytes(AccEntry * AccDepth), .OutBytes(OutEntry * OutDepth),
    .ParamBytes(ParamEntry * ParamDepth), .TableBytes(256 * TableCount), .BlockIn(BlockIn), .BlockOut(BlockOut),
    .PackedWeights(PackedWeights)
  ) u_load (
    .clk_i, .rst_ni(program_rst_n), .instr_valid_i(instr_valid[Load]), .instr_i(load_word),
    .instr_pc_i(head_pc[32*Load+:32]), .instr_ready_o(instr_ready[Load]), .busy_o(busy[Load]), .complete_o(complete[Load]),
    .complete_signal_o(complete_signal[Load]), .complete_fault_o(complete_fault[Load]),
    .complete_code_o(complete_code[3*Load+:3]), .complete_pc_o(complete_pc[32*Load+:32]), .base_o(load_base_number), .base_i(load_base),
    .window_first_i(window_first), .window_last_i(window_last), .ar_valid_o(load_ar_valid),
    .ar_ready_i(load_ar_ready), .ar_addr_o(load_ar_addr), .ar_len_o(load_ar_len), .ar_grows_o(load_ar_grows), .r_valid_i(load_r_valid),
    .r_ready_o(load_r_ready), .r_data_i(r_data), .r_error_i(r_error), .sp_we_o(load_we), .sp_space_o(load_space),
    .sp_group_o(load_group), .sp_wdata_o(load_wdata), .sp_wbe_o(load_wbe), .sp_pair_o(load_pair), .sp_pair_wdata_o(load_pair_wdata), .sp_gnt_i(load_gnt), .issue_o(issue[0]),
    .stall_memory_o(stall_memory[0]), .stall_port_o(stall_port[0]), .bytes_valid_o(load_bytes_valid), .bytes_o(load_bytes)
  );

  logic store_req, store_acc, store_gnt, burst_valid, burst_ready, w_valid, w_ready, b_valid, b_ready, b_error;
  logic [63:0] burst_addr;
  logic [7:0] burst_len;
  logic [8*AxiBytes-1:0] w_data;
  logic [AxiBytes-1:0] w_strb;
  tsr_store #(
    .AxiBytes(AxiBytes), .WritesInFlight(WritesInFlight), .AccBytes(AccEntry * AccDepth),
    .OutBytes(OutEntry * OutDepth)
  ) u_store (
    .clk_i, .rst_ni(program_rst_n), .instr_valid_i(instr_valid[Store]), .instr_i(store_word),
    .instr_pc_i(head_pc[32*Store+:32]), .instr_ready_o(instr_ready[Store]), .busy_o(busy[Store]), .complete_o(complete[Store]),
    .complete_signal_o(complete_signal[Store]), .complete_fault_o(complete_fault[Store]),
    .complete_code_o(complete_code[3*Store+:3]), .complete_pc_o(complete_pc[32*Store+:32]), .base_o(store_base_number), .base_i(store_base),
    .window_first_i(window_first), .window_last_i(window_last), .sp_req_o(store_req), .sp_acc_o(store_acc),
    .sp_group_o(store_group), .sp_gnt_i(store_gnt), .sp_rdata_i(store_rdata), .burst_valid_o(burst_valid),
    .burst_ready_i(burst_ready), .burst_addr_o(burst_addr), .burst_len_o(burst_len), .burst_pc_o(probe_store_pc),
    .w_valid_o(w_valid), .w_ready_i(w_ready), .w_data_o(w_data), .w_strb_o(w_strb), .b_valid_i(b_valid),
    .b_ready_o(b_ready), .b_error_i(b_error),
    .issue_o(issue[3]), .stall_memory_o(stall_memory[3]), .stall_port_o(stall_port[3]), .bytes_valid_o(store_bytes_valid), .bytes_o(store_bytes)
  );

  logic gemm_inp_req, gemm_inp_pair, gemm_inp_rows, gemm_wgt_req, gemm_acc_req, gemm_acc_we;
  logic [13:0] gemm_inp_addr, gemm_inp_above, gemm_wgt_addr, gemm_acc_addr, gemm_acc_waddr;
  logic [8*(RasterPairs == 2 ? 4 : RasterPairs == 1 ? 2 : 1)*InpEntry-1:0] gemm_inp_rdata;
  logic [8*InpEntry-1:0] alu_inp_rdata;
  logic [8*WgtEntry-1:0] gemm_wgt_rdata;
  logic [8*AccEntry-1:0] acc_rdata, gemm_acc_wdata, alu_acc_wdata;
  logic [AccEntry-1:0] gemm_acc_wbe;
  logic alu_acc_req, alu_acc_claim, alu_out_claim, alu_acc_gnt, alu_acc_we, alu_acc_keep, alu_acc_wgnt, alu_out_req, alu_out_gnt, alu_out_we;
  logic alu_inp_req, alu_inp_we, alu_inp_first, alu_inp_gnt, alu_param_req;
  logic [13:0] alu_acc_addr, alu_acc_waddr, alu_out_addr, alu_out_waddr, alu_inp_addr;
  logic [9:0] alu_param_addr;
  logic [8*OutEntry-1:0] out_rdata, alu_bytes;
  logic [8*ParamEntry-1:0] alu_param_rdata;
  assign stall_memory[1] = 1'b0;
  tsr_gemm #(
    .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .InpDepth(InpDepth), .WgtDepth(WgtDepth),
    .AccDepth(AccDepth), .RasterPairs(RasterPairs)
  ) u_gemm (
    .clk_i, .rst_ni(program_rst_n), .instr_valid_i(instr_valid[Gemm]), .instr_i(gemm_word),
    .instr_pc_i(head_pc[32*Gemm+:32]), .instr_ready_o(instr_ready[Gemm]), .busy_o(busy[Gemm]), .complete_o(complete[Gemm]),
    .complete_signal_o(complete_signal[Gemm]), .complete_fault_o(complete_fault[Gemm]),
    .complete_code_o(complete_code[3*Gemm+:3]), .complete_pc_o(complete_pc[32*Gemm+:32]), .inp_req_o(gemm_inp_req), .inp_pair_o(gemm_inp_pair),
    .inp_rows_o(gemm_inp_rows), .inp_above_o(gemm_inp_above),
    .inp_addr_o(gemm_inp_addr), .inp_rdata_i(gemm_inp_rdata), .wgt_req_o(gemm_wgt_req), .wgt_addr_o(gemm_wgt_addr),
    .wgt_rdata_i(gemm_wgt_rdata), .acc_req_o(gemm_acc_req), .acc_addr_o(gemm_acc_addr), .acc_rdata_i(acc_rdata),
    .acc_we_o(gemm_acc_we), .acc_waddr_o(gemm_acc_waddr), .acc_wdata_o(gemm_acc_wdata), .acc_wbe_o(gemm_acc_wbe),
    .issue_o(issue[1]), .stall_o(stall_port[1])
  );
  tsr_alu #(
    .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .InpDepth(InpDepth), .AccDepth(AccDepth),
    .OutDepth(OutDepth), .ParamDepth(ParamDepth), .TableCount(TableCount), .SecondLanes(SecondLanes), .RowLanes(RowLanes), .TableBytes(TableBytes), .MemoryParity(MemoryParity)
  ) u_alu (
    .clk_i, .rst_ni(program_rst_n), .instr_valid_i(instr_valid[Alu]), .instr_i(alu_word),
    .instr_pc_i(head_pc[32*Alu+:32]), .row_limit_i(row_limit), .instr_ready_o(instr_ready[Alu]), .busy_o(busy[Alu]),
    .complete_o(complete[Alu]),
    .complete_signal_o(complete_signal[Alu]), .complete_fault_o(complete_fault[Alu]),
    .complete_code_o(complete_code[3*Alu+:3]), .complete_pc_o(complete_pc[32*Alu+:32]), .acc_req_o(alu_acc_req), .acc_claim_o(alu_acc_claim),
    .acc_addr_o(alu_acc_addr), .acc_gnt_i(alu_acc_gnt), .acc_rdata_i(acc_rdata), .acc_we_o(alu_acc_we), .acc_keep_o(alu_acc_keep),
    .acc_waddr_o(alu_acc_waddr), .acc_wdata_o(alu_acc_wdata), .acc_wgnt_i(alu_acc_wgnt), .out_req_o(alu_out_req), .out_claim_o(alu_out_claim),
    .out_addr_o(alu_out_addr), .out_gnt_i(alu_out_gnt), .out_rdata_i(out_rdata), .out_we_o(alu_out_we),
    .out_waddr_o(alu_out_waddr), .inp_req_o(alu_inp_req), .inp_we_o(alu_inp_we), .inp_first_o(alu_inp_first),
    .inp_addr_o(alu_inp_addr), .inp_gnt_i(alu_inp_gnt), .inp_rdata_i(alu_inp_rdata),
    .bytes_o(alu_bytes), .table_bytes_o(alu_table_bytes), .table_parity_o(alu_table_parity),
    .param_req_o(alu_param_req), .param_addr_o(alu_param_addr), .param_rdata_i(alu_param_rdata),
    .tbl_we_i(table_we), .tbl_waddr_i(table_waddr), .tbl_wdata_i(table_wdata), .tbl_wbe_i(table_wbe), .parity_error_o(alu_parity),
    .issue_o(issue[2]), .stall_mem_o(stall_memory[2]), .stall_port_o(stall_port[2])
  );
  tsr_scratchpads #(
    .Batch(Batch), .BlockIn(BlockIn), .BlockOut(BlockOut), .InpDepth(InpDepth), .WgtDepth(WgtDepth),
    .AccDepth(AccDepth), .OutDepth(OutDepth), .ParamDepth(ParamDepth), .SecondLanes(SecondLanes), .AxiBytes(AxiBytes),
    .MemoryParity(MemoryParity), .PackedWeights(PackedWeights), .RasterPairs(RasterPairs)
  ) u_scratchpads (
    .clk_i, .gemm_inp_req_i(gemm_inp_req), .gemm_inp_pair_i(gemm_inp_pair), .gemm_inp_rows_i(gemm_inp_rows), .gemm_inp_above_i(gemm_inp_above),
    .gemm_inp_addr_i(gemm_inp_addr), .gemm_inp_rdata_o(gemm_inp_rdata),
    .gemm_wgt_req_i(gemm_wgt_req), .gemm_wgt_addr_i(gemm_wgt_addr), .gemm_wgt_rdata_o(gemm_wgt_rdata),
    .gemm_acc_req_i(gemm_acc_req), .gemm_acc_addr_i(gemm_acc_addr), .gemm_acc_we_i(gemm_acc_we),
    .gemm_acc_waddr_i(gemm_acc_waddr), .gemm_acc_wdata_i(gemm_acc_wdata), .gemm_acc_wbe_i(gemm_acc_wbe),
    .acc_rdata_o(acc_rdata), .alu_acc_req_i(alu_acc_req), .alu_acc_claim_i(alu_acc_claim), .alu_acc_addr_i(alu_acc_addr), .alu_acc_gnt_o(alu_acc_gnt),
    .alu_acc_we_i(alu_acc_we), .alu_acc_keep_i(alu_acc_keep), .alu_acc_waddr_i(alu_acc_waddr), .alu_acc_wdata_i(alu_acc_wdata),
    .alu_acc_wgnt_o(alu_acc_wgnt), .alu_out_req_i(alu_out_req), .alu_out_claim_i(alu_out_claim), .alu_out_addr_i(alu_out_addr),
    .alu_out_gnt_o(alu_out_gnt), .out_rdata_o(out_rdata), .alu_out_we_i(alu_out_we),
    .alu_out_waddr_i(alu_out_waddr), .alu_inp_req_i(alu_inp_req),
    .alu_inp_we_i(alu_inp_we), .alu_inp_first_i(alu_inp_first), .alu_inp_addr_i(alu_inp_addr),
    .alu_inp_gnt_o(alu_inp_gnt), .alu_inp_rdata_o(alu_inp_rdata), .alu_bytes_i(alu_bytes),
    .alu_table_bytes_i(alu_table_bytes), .alu_table_parity_i(alu_table_parity),
    .alu_param_req_i(alu_param_req),
    .alu_param_addr_i(alu_param_addr), .alu_param_rdata_o(alu_param_rdata), .load_we_i(load_we),
    .load_space_i(load_space), .load_group_i(load_group), .load_wdata_i(load_wdata), .load_wbe_i(load_wbe),
    .load_pair_i(load_pair), .load_pair_wdata_i(load_pair_wdata), .load_gnt_o(load_gnt), .table_we_o(table_we), .table_waddr_o(table_waddr), .table_wdata_o(table_wdata), .table_wbe_o(table_wbe), .store_req_i(store_req), .store_acc_i(store_acc),
    .store_group_i(store_group), .store_gnt_o(store_gnt), .store_rdata_o(store_rdata), .parity_error_o(pads_parity)
  );

  // The bus. Reads drain before a program ends, so that its reset may be the program's.
  tsr_axi_read #(.AxiBytes(AxiBytes), .ReadsInFlight(ReadsInFlight)) u_axi_read (
    .clk_i, .rst_ni, .fetch_ar_valid_i(fetch_ar_valid), .fetch_ar_ready_o(fetch_ar_ready),
    .fetch_ar_addr_i(fetch_ar_addr), .fetch_ar_len_i(fetch_ar_len), .fetch_r_valid_o(fetch_r_valid),
    .fetch_r_ready_i(fetch_r_ready), .load_ar_valid_i(load_ar_valid), .load_ar_ready_o(load_ar_ready),
    .load_ar_addr_i(load_ar_addr), .load_ar_len_i(load_ar_len), .load_ar_grows_i(load_ar_grows),
    .load_r_valid_o(load_r_valid),
    .load_r_ready_i(load_r_ready), .r_data_o(r_data), .r_error_o(r_error), .busy_o(read_busy), .m_arvalid_o,
    .m_arready_i, .m_araddr_o, .m_arlen_o, .m_rvalid_i, .m_rready_o, .m_rdata_i, .m_rresp_i, .m_rlast_i
  );
  tsr_axi_write #(.AxiBytes(AxiBytes), .WritesInFlight(WritesInFlight)) u_axi_write (
    .clk_i, .rst_ni, .burst_valid_i(burst_valid), .burst_ready_o(burst_ready), .burst_addr_i(burst_addr),
    .burst_len_i(burst_len), .w_valid_i(w_valid), .w_ready_o(w_ready), .w_data_i(w_data), .w_strb_i(w_strb),
    .b_valid_o(b_valid), .b_ready_i(b_ready), .b_error_o(b_error), .m_awvalid_o, .m_awready_i, .m_awaddr_o, .m_awlen_o, .m_wvalid_o,
    .m_wready_i, .m_wdata_o, .m_wstrb_o, .m_wlast_o, .m_bvalid_i, .m_bready_o, .m_bresp_i
  );

  tsr_counters u_counters (
    .clk_i, .rst_ni(program_rst_n), .run_i(run), .instruction_i(fetch_issue),
    .load_bytes_valid_i(load_bytes_valid), .load_bytes_i(load_bytes),
    .fetch_word_i(fetch_issue), .store_bytes_valid_i(store_bytes_valid), .store_bytes_i(store_bytes), .busy_i({fetch_issue, issue}),
    .waiting_on_i(waiting_on), .stall_memory_i({fetch_stall, stall_memory}), .stall_port_i({1'b0, stall_port}),
    .executed_i({finish_take, complete & ~complete_fault & ~parity_fault}), .read_i(counter_read), .select_i(counter_select), .value_o(counter_value)
  );

  assign probe_run = run;
  assign probe_queued = push_valid & push_ready;
  assign probe_issued = head_pop;
  assign probe_completed = complete;
  assign probe_faulted = complete & (complete_fault | parity_fault);
  assign probe_busy = {fetch_issue, issue};
  assign probe_waiting = waiting_on;
  assign probe_stall_memory = {fetch_stall, stall_memory};
  assign probe_stall_port = {1'b0, stall_port};
  assign probe_finished = finish_take;
  assign probe_read_granted = (fetch_ar_valid && fetch_ar_ready) || (load_ar_valid && load_ar_ready);
  assign probe_read_fetch = fetch_ar_valid;
  assign probe_store_granted = burst_valid && burst_ready;
  assign probe_store_length = burst_len;
  assign probe_queued_pc = fetch_pc;
  assign probe_head_pc = head_pc;
  assign probe_completed_pc = complete_pc;

  logic unused;
  assign unused = &{1'b0, probe_queued, probe_issued, probe_completed, probe_faulted, probe_busy, probe_waiting,
                    probe_stall_memory, probe_stall_port, probe_finished, probe_read_granted, probe_read_fetch,
                    probe_store_granted, probe_store_length, probe_store_pc, probe_queued_pc, probe_head_pc,
                    probe_completed_pc, probe_run, load_await, store_await, load_pushed, store_pushed, fetch_fence, head_word, fault_found, fetch_word, pads_parity,
                    alu_parity};

endmodule
/* verilator lint_on LATCH */
