// SPDX-License-Identifier: Apache-2.0
// The LOAD engine. Enters: LOAD and FENCE instructions. Leaves: read bursts, and byte groups written to a scratchpad. Two
// sides with a queue of runs between them: the address side walks the nest and sends bursts as far ahead as bursts in
// flight and the queue allow, also of later instructions; the data side realigns what comes back and writes it. With
// PackedWeights the beats of packed runs, which lie as the bus has them, pass tsr_unpack instead: a beat of a header
// writes nothing, each other one two groups of WGT.
//
// Latency: taken in cycle t, first burst at the arbiter in t + 12; a group is written two cycles after its beat has
// entered the machine; complete_o in the cycle after the last write. Throughput: one group of AxiBytes a cycle, padding
// included. Back-pressure: port grants, absent beats. Reset: synchronous, active low; bursts in flight must have
// drained. Legal: AxiBytes a power of two, 4 to 64. Timing: the slowest of the modules inside.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_load #(
  parameter int unsigned AxiBytes      = 8,
  parameter int unsigned ReadsInFlight = 16,
  parameter int unsigned InpBytes      = 64,
  parameter int unsigned WgtBytes      = 64,
  parameter int unsigned AccBytes      = 64,
  parameter int unsigned OutBytes      = 64,
  parameter int unsigned ParamBytes    = 64,
  parameter int unsigned TableBytes    = 64,
  parameter int unsigned BlockIn       = 8,
  parameter int unsigned BlockOut      = 8,
  parameter int unsigned PackedWeights = 0,
  localparam int unsigned OffsetBits = $clog2(AxiBytes),
  localparam int unsigned GroupBits = 22 - OffsetBits
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  instr_valid_i,
  input  logic [511:0]          instr_i,
  input  logic [31:0]           instr_pc_i,
  output logic                  instr_ready_o,
  output logic                  busy_o,
  output logic                  complete_o,
  output logic                  complete_signal_o,
  output logic                  complete_fault_o,
  output logic [2:0]            complete_code_o,
  output logic [31:0]           complete_pc_o,
  output logic [3:0]            base_o,          // number of a base register
  input  logic [63:0]           base_i,          // and what stands in it
  input  logic [63:0]           window_first_i,
  input  logic [63:0]           window_last_i,
  output logic                  ar_valid_o,
  input  logic                  ar_ready_i,
  output logic [63:0]           ar_addr_o,
  output logic [7:0]            ar_len_o,
  output logic                  ar_grows_o,      // more beats join it soon
  input  logic                  r_valid_i,
  output logic                  r_ready_o,
  input  logic [8*AxiBytes-1:0] r_data_i,
  input  logic                  r_error_i,
  output logic                  sp_we_o,
  output logic [2:0]            sp_space_o,
  output logic [GroupBits-1:0]  sp_group_o,
  output logic [8*AxiBytes-1:0] sp_wdata_o,
  output logic [AxiBytes-1:0]   sp_wbe_o,
  output logic                  sp_pair_o,       // two groups of WGT, with PackedWeights
  output logic [16*AxiBytes-1:0] sp_pair_wdata_o,
  input  logic                  sp_gnt_i,
  output logic                  issue_o,         // a group is written
  output logic                  stall_memory_o,  // a beat is needed and absent
  output logic                  stall_port_o,    // a group waits for its port
  output logic                  bytes_valid_o,   // a run of DRAM begins in this cycle
  output logic [21:0]           bytes_o          // with these bytes
);

  logic runs_busy, run_valid, run_ends_unused, run_ready, run_packed, run_pad, run_last, run_signal, run_none, run_reads, run_continues, run_more, run_over, run_shares, run_keep, run_leaves;
  logic [22-OffsetBits:0] run_left;
  logic [63:0] run_dram;
  logic [21:0] run_sp, run_bytes;
  logic [2:0] run_space, run_fault;
  logic [7:0] run_pad_value;
  logic [31:0] run_pc;

  tsr_runs #(
    .JoinBytes(tsr_isa_pkg::TimingTransferJoinBeats * AxiBytes), .AxiBytes(AxiBytes), .InpBytes(InpBytes), .WgtBytes(WgtBytes),
    .AccBytes(AccBytes), .OutBytes(OutBytes), .ParamBytes(ParamBytes), .TableBytes(TableBytes),
    .PackedEntry(PackedWeights != 0 ? BlockIn * BlockOut : 0)
  ) u_runs (
    .clk_i, .rst_ni, .instr_valid_i, .instr_i, .instr_pc_i, .instr_ready_o, .busy_o(runs_busy), .base_o, .base_i,
    .window_first_i, .window_last_i, .run_valid_o(run_valid), .run_ends_o(run_ends_unused), .leaves_o(run_leaves), .run_ready_i(run_ready), .run_none_o(run_none),
    .run_reads_o(run_reads), .run_dram_o(run_dram), .run_left_o(run_left), .run_over_o(run_over), .run_shares_o(run_shares), .run_keep_o(run_keep),
    .run_sp_o(run_sp), .run_bytes_o(run_bytes), .run_continues_o(run_continues), .run_more_o(run_more), .run_space_o(run_space),
    .run_packed_o(run_packed), .run_pad_o(run_pad), .run_pad_value_o(run_pad_value), .run_last_o(run_last), .run_signal_o(run_signal), .run_fault_o(run_fault),
    .run_pc_o(run_pc)
  );

  logic bursts_ready, bursts_busy, queue_ready, burst_grows, burst_last_unused;
  assign ar_grows_o = burst_grows && queue_ready;
  assign run_ready = queue_ready && (bursts_ready || !run_reads);
  assign bytes_valid_o = run_leaves && !run_none && !run_pad;
  assign bytes_o = run_bytes;

  tsr_bursts #(.AxiBytes(AxiBytes)) u_bursts (
    .clk_i, .rst_ni, .run_valid_i(run_valid && run_reads && queue_ready), .run_ready_o(bursts_ready),
    .run_dram_i(run_dram), .run_left_i(run_left), .run_shares_i(run_shares), .run_continues_i(run_continues), .run_more_i(run_more), .burst_valid_o(ar_valid_o), .burst_ready_i(ar_ready_i),
    .burst_addr_o(ar_addr_o), .burst_len_o(ar_len_o), .burst_last_o(burst_last_unused), .burst_grows_o(burst_grows), .busy_o(bursts_busy)
  );

  // Runs between the two sides.
  localparam int unsigned CountBits = 24 - OffsetBits;
  typedef struct packed {
    logic none;  // no bytes
    logic [CountBits-1:0] left;
    logic prime;
    logic tail;
    logic free;  // no beats but the older one
    logic keep;
    logic [OffsetBits-1:0] shift;
    logic [OffsetBits-1:0] last_lane;
  } shape_t;
  shape_t run_shape, item_shape;
  localparam int unsigned PackedBits = PackedWeights != 0 ? 1 : 0;
  localparam int unsigned ItemBits = PackedBits + 1 + 8 + $bits(run_shape) + 22 + 3 + 1 + 1 + 3 + 32;
  logic item_valid, item_ready, item_pad, item_last, item_signal;
  logic [7:0] item_pad_value;
  logic [21:0] item_sp;
  logic [2:0] item_space, item_fault;
  logic [31:0] item_pc;
  assign run_shape.none = run_none;
  assign run_shape.free = run_pad || (run_over && !run_reads);
  assign run_shape.keep = run_keep;
  tsr_realign_shape #(.AxiBytes(AxiBytes)) u_shape (
    .from_i(run_dram[OffsetBits-1:0]), .to_i(run_sp[OffsetBits-1:0]), .bytes_i(run_bytes), .pad_i(run_pad), .over_i(run_over),
    .shares_i(run_shares), .left_o(run_shape.left), .prime_o(run_shape.prime), .tail_o(run_shape.tail), .shift_o(run_shape.shift),
    .last_lane_o(run_shape.last_lane)
  );
  logic [ItemBits-1:0] run_item, item;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) run_item = 'x;
    if (!tsr_isa_pkg::Simulated || run_leaves)
      run_item = ItemBits'({run_packed, run_pad, run_pad_value, run_shape, run_sp, run_space, run_last, run_signal, run_fault, run_pc});
  end
  tsr_queue #(.Width(ItemBits), .Depth(tsr_isa_pkg::timing_load_runs_waiting(ReadsInFlight))) u_items (
    .clk_i, .rst_ni, .valid_i(run_leaves), .data_i(run_item),
    .ready_o(queue_ready), .valid_o(item_valid),
    .data_o(item), .ready_i(item_ready)
  );
  assign {item_pad, item_pad_value, item_shape, item_sp, item_space, item_last, item_signal, item_fault, item_pc} =
      item[ItemBits-PackedBits-1:0];

  logic align_ready, align_busy, align_take, group_valid, group_last, group_fire, none_take;
  assign align_take = item_valid && !item_shape.none && align_ready;
  assign none_take = item_valid && item_shape.none && !align_busy;
  assign item_ready = item_shape.none ? !align_busy : align_ready;

  tsr_realign #(.AxiBytes(AxiBytes)) u_realign (
    .clk_i, .rst_ni, .run_valid_i(item_valid && !item_shape.none), .run_ready_o(align_ready),
    .run_left_i(item_shape.left), .run_prime_i(item_shape.prime), .run_tail_i(item_shape.tail), .run_free_i(item_shape.free), .run_keep_i(item_shape.keep),
    .run_shift_i(item_shape.shift), .run_last_lane_i(item_shape.last_lane), .run_to_i(item_sp[OffsetBits-1:0]),
    .run_pad_i(item_pad), .run_pad_value_i(item_pad_value), .beat_valid_i(r_valid_i), .beat_ready_o(r_ready_o), .beat_data_i(r_data_i),
    .group_valid_o(group_valid), .group_ready_i(sp_gnt_i), .group_data_o(sp_wdata_o), .group_be_o(sp_wbe_o),
    .group_last_o(group_last), .busy_o(align_busy), .starved_o(stall_memory_o)
  );

  // Packed runs. A header's beat is taken and writes nothing.
  logic packed_q, header;
  assign sp_pair_o = packed_q;
  if (PackedWeights != 0) begin : gen_packed
    logic unpack_header;
    always_ff @(posedge clk_i) if (align_take) packed_q <= item[ItemBits-1];
    assign header = packed_q && unpack_header;
    tsr_unpack #(.AxiBytes(AxiBytes), .BlockIn(BlockIn), .BlockOut(BlockOut)) u_unpack (
      .clk_i, .begin_i(align_take), .fire_i(group_fire), .beat_valid_i(packed_q && group_valid), .beat_data_i(r_data_i),
      .header_o(unpack_header), .groups_o(sp_pair_wdata_o)
    );
  end else begin : gen_not_packed
    assign packed_q = 1'b0;
    assign header = 1'b0;
    assign sp_pair_wdata_o = '0;
    logic unused_packed;
    assign unused_packed = &{1'b0, run_packed};
  end

  // The run inside u_realign.
  logic last_q, signal_q, error_q, error;
  logic [2:0] space_q;
  logic [GroupBits-1:0] group_q;
  logic [31:0] pc_q;
  assign error = error_q || (r_valid_i && r_ready_o && r_error_i);
  assign sp_we_o = group_valid && !header;
  assign sp_space_o = space_q;
  assign sp_group_o = group_q;
  assign group_fire = group_valid && sp_gnt_i;
  assign issue_o = group_fire;
  assign stall_port_o = group_valid && !sp_gnt_i;

  logic done, complete_q, complete_signal_q;
  logic [2:0] complete_code_q;
  logic [31:0] complete_pc_q;
  assign done = group_fire && group_last && last_q;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      error_q <= 1'b0;
      complete_q <= 1'b0;
    end else begin
      error_q <= error && !done;
      complete_q <= done || none_take;
    end
  end
  always_ff @(posedge clk_i) begin
    if (align_take) begin
      last_q <= item_last;
      signal_q <= item_signal;
      space_q <= item_space;
      group_q <= item_sp[21:OffsetBits];
      pc_q <= item_pc;
    end else if (group_fire && !header) begin
      group_q <= group_q + (packed_q ? GroupBits'(2) : GroupBits'(1));
    end
    if (none_take) begin
      complete_signal_q <= item_signal;
      complete_code_q <= item_fault;
      complete_pc_q <= item_pc;
    end else if (done) begin
      complete_signal_q <= signal_q;
      complete_code_q <= error ? 3'(tsr_isa_pkg::FaultAxiError) : 3'(tsr_isa_pkg::FaultNone);
      complete_pc_q <= pc_q;
    end
  end

  assign complete_o = complete_q;
  assign complete_fault_o = complete_code_q != 3'(tsr_isa_pkg::FaultNone);
  assign complete_signal_o = complete_signal_q && !complete_fault_o;
  assign complete_code_o = complete_code_q;
  assign complete_pc_o = complete_pc_q;
  assign busy_o = runs_busy || bursts_busy || item_valid || align_busy || complete_q;

  logic unused;
  assign unused = burst_last_unused;

endmodule
/* verilator lint_on LATCH */
