// SPDX-License-Identifier: Apache-2.0
// The STORE engine. Enters: STORE and FENCE instructions. Leaves: reads of OUT and ACC, write bursts with their data.
// A run goes three ways at once: its bursts to the address channel, its groups to the read port, its offsets to the
// realigner; a queue of expected responses, in which FENCE stands as an entry without one, says what completes.
//
// Latency: taken in cycle t, first burst and first read in t + 12, first data at the bus in t + 15; complete_o in the
// cycle after the last response. Throughput: one beat a cycle. Back-pressure: port grants, the bus, WritesInFlight.
// Reset: synchronous, active low; bursts in flight must have drained. Legal: AxiBytes a power of two, 4 to 64.
// Timing: the slowest of the modules inside.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_store #(
  parameter int unsigned AxiBytes       = 8,
  parameter int unsigned WritesInFlight = 8,
  parameter int unsigned AccBytes       = 64,
  parameter int unsigned OutBytes       = 64,
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
  output logic                  sp_req_o,
  output logic                  sp_acc_o,        // ACC, else OUT
  output logic [GroupBits-1:0]  sp_group_o,
  input  logic                  sp_gnt_i,
  input  logic [8*AxiBytes-1:0] sp_rdata_i,
  output logic                  burst_valid_o,
  input  logic                  burst_ready_i,
  output logic [63:0]           burst_addr_o,
  output logic [7:0]            burst_len_o,
  output logic [31:0]           burst_pc_o,      // its instruction
  output logic                  w_valid_o,
  input  logic                  w_ready_i,
  output logic [8*AxiBytes-1:0] w_data_o,
  output logic [AxiBytes-1:0]   w_strb_o,
  input  logic                  b_valid_i,
  output logic                  b_ready_o,
  input  logic                  b_error_i,
  output logic                  issue_o,         // a beat goes to the bus
  output logic                  stall_memory_o,  // a beat waits for the bus, or only responses are missing
  output logic                  stall_port_o,    // a read waits for its port
  output logic                  bytes_valid_o,   // a run begins in this cycle
  output logic [21:0]           bytes_o          // with these bytes
);

  logic runs_busy, run_valid, run_ends, run_ready, run_packed_unused, run_pad_unused, run_last, run_signal, run_none, run_continues_unused, run_more_unused;
  logic run_reads_unused, run_over_unused, run_shares_unused, run_keep_unused, run_leaves_unused;
  logic [22-OffsetBits:0] run_left;
  logic [63:0] run_dram;
  logic [21:0] run_sp, run_bytes;
  logic [2:0] run_space, run_fault;
  logic [7:0] run_pad_value_unused;
  logic [31:0] run_pc;

  tsr_runs #(
    .JoinBytes(tsr_isa_pkg::TimingTransferJoinBeats * AxiBytes), .Pads(1'b0), .AxiBytes(AxiBytes), .AccBytes(AccBytes),
    .OutBytes(OutBytes)
  ) u_runs (
    .clk_i, .rst_ni, .instr_valid_i, .instr_i, .instr_pc_i, .instr_ready_o, .busy_o(runs_busy), .base_o, .base_i,
    .window_first_i, .window_last_i, .run_valid_o(run_valid), .run_ends_o(run_ends), .leaves_o(run_leaves_unused), .run_ready_i(run_ready), .run_none_o(run_none),
    .run_reads_o(run_reads_unused), .run_dram_o(run_dram), .run_left_o(run_left),
    .run_sp_o(run_sp), .run_bytes_o(run_bytes), .run_continues_o(run_continues_unused), .run_more_o(run_more_unused),
    .run_over_o(run_over_unused), .run_shares_o(run_shares_unused), .run_keep_o(run_keep_unused), .run_space_o(run_space),
    .run_packed_o(run_packed_unused), .run_pad_o(run_pad_unused),
    .run_pad_value_o(run_pad_value_unused), .run_last_o(run_last), .run_signal_o(run_signal),
    .run_fault_o(run_fault), .run_pc_o(run_pc)
  );

  // A run is taken by all three ways in the same cycle; an empty one by the queue of responses alone.
  logic bursts_ready, bursts_busy, bursts_valid, burst_last, burst_grows_unused, reads_ready, offsets_ready, expect_ready, run_take;
  logic none_take;
  assign none_take = run_ends && run_none && !bursts_busy && expect_ready;
  assign run_take = run_valid && !run_none && bursts_ready && reads_ready && offsets_ready;
  assign run_ready = run_none ? !bursts_busy && expect_ready : bursts_ready && reads_ready && offsets_ready;
  assign bytes_valid_o = run_take;
  assign bytes_o = run_bytes;

  tsr_bursts #(.AxiBytes(AxiBytes), .Joins(1'b0)) u_bursts (
    .clk_i, .rst_ni, .run_valid_i(run_valid && !run_none && reads_ready && offsets_ready), .run_ready_o(bursts_ready),
    .run_dram_i(run_dram), .run_left_i(run_left), .run_shares_i(1'b0), .run_continues_i(1'b0), .run_more_i(1'b0), .burst_valid_o(bursts_valid),
    .burst_ready_i(burst_ready_i && expect_ready), .burst_addr_o, .burst_len_o, .burst_last_o(burst_last), .burst_grows_o(burst_grows_unused),
    .busy_o(bursts_busy)
  );
  assign burst_valid_o = bursts_valid && expect_ready;

  // The run inside u_bursts, and the responses to come.
  logic last_q, signal_q;
  logic [31:0] pc_q;
  logic expect_valid, expect_burst, expect_last, expect_signal, expect_take, burst_fire;
  logic [2:0] expect_fault;
  logic [31:0] expect_pc;
  assign burst_fire = burst_valid_o && burst_ready_i;
  assign burst_pc_o = pc_q;
  always_ff @(posedge clk_i) begin
    if (run_take) begin
      last_q <= run_last;
      signal_q <= run_signal;
      pc_q <= run_pc;
    end
  end
  tsr_queue #(.Width(38), .Depth(WritesInFlight)) u_expected (
    .clk_i, .rst_ni, .valid_i(burst_fire || none_take),
    .data_i(bursts_busy ? {1'b1, burst_last && last_q, signal_q, 3'(tsr_isa_pkg::FaultNone), pc_q}
                        : {1'b0, 1'b1, run_signal, run_fault, run_pc}),
    .ready_o(expect_ready), .valid_o(expect_valid),
    .data_o({expect_burst, expect_last, expect_signal, expect_fault, expect_pc}), .ready_i(expect_take)
  );
  assign b_ready_o = expect_valid && expect_burst;
  assign expect_take = expect_valid && (b_valid_i || !expect_burst);

  // Reads: one group a cycle while the queue of beats has room for what is on its way. Runs wait for their reads in a
  // queue that has room for all that may wait for the realigner and for the one in it, so that no grant of a port is in
  // the way of the next run.
  localparam int unsigned Beats = tsr_isa_pkg::TimingStoreGroupsWaiting;
  localparam int unsigned RoomBits = $clog2(Beats + 1);
  localparam int unsigned ReadBits = 1 + GroupBits + GroupBits + 1;
  logic reads_valid, reads_acc, arriving_q, beat_valid, beat_ready, beat_pop, beats_ready_unused, read_fire, read_last;
  logic [GroupBits-1:0] reads_group;
  logic [GroupBits:0] reads_count, run_groups, read_q;  // read: groups of the run that have been read, and this one
  logic [1:0] reads_rest;  // groups of the bytes beyond whole ones, with what stands before the first
  logic [RoomBits-1:0] room_q;
  logic [8*AxiBytes-1:0] beat_data;
  assign reads_rest = 2'(({2'd0, run_bytes[OffsetBits-1:0]} + {2'd0, run_sp[OffsetBits-1:0]} +
                          (OffsetBits + 2)'(AxiBytes - 1)) >> OffsetBits);
  assign run_groups = (GroupBits + 1)'(run_bytes[21:OffsetBits]) + (GroupBits + 1)'(reads_rest);
  logic [ReadBits-1:0] run_read;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) run_read = 'x;
    if (!tsr_isa_pkg::Simulated || run_valid)
      run_read = {run_space == 3'(tsr_isa_pkg::SpaceAcc), run_sp[21:OffsetBits] - GroupBits'(1), run_groups};
  end
  tsr_queue #(.Width(ReadBits), .Depth(tsr_isa_pkg::TimingStoreRunsWaiting + 1), .HeadBits(ReadBits)) u_reads (
    .clk_i, .rst_ni, .valid_i(run_take),
    .data_i(run_read),
    .ready_o(reads_ready), .valid_o(reads_valid), .data_o({reads_acc, reads_group, reads_count}),
    .ready_i(read_fire && read_last)
  );
  assign sp_req_o = reads_valid && room_q != '0;
  assign sp_acc_o = reads_acc;
  assign sp_group_o = reads_group + read_q[GroupBits-1:0];
  assign read_fire = sp_req_o && sp_gnt_i;
  assign read_last = read_q == reads_count;
  assign stall_port_o = sp_req_o && !sp_gnt_i;
  assign beat_pop = beat_valid && beat_ready;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      read_q <= (GroupBits + 1)'(1);
      arriving_q <= 1'b0;
      room_q <= RoomBits'(Beats);
    end else begin
      arriving_q <= read_fire;
      room_q <= room_q + RoomBits'(beat_pop) - RoomBits'(read_fire);
      if (read_fire) read_q <= read_last ? (GroupBits + 1)'(1) : read_q + 1'b1;
    end
  end
  tsr_queue #(.Width(8 * AxiBytes), .Depth(Beats)) u_beats (
    .clk_i, .rst_ni, .valid_i(arriving_q), .data_i(sp_rdata_i), .ready_o(beats_ready_unused), .valid_o(beat_valid),
    .data_o(beat_data), .ready_i(beat_ready)
  );

  // Realignment.
  logic offsets_valid, align_ready, align_busy, align_starved_unused, align_last_unused;
  localparam int unsigned CountBits = 24 - OffsetBits;
  typedef struct packed {
    logic [CountBits-1:0] left;
    logic prime;
    logic tail;
    logic [OffsetBits-1:0] shift;
    logic [OffsetBits-1:0] last_lane;
    logic [OffsetBits-1:0] to;
  } shape_t;
  shape_t run_shape, align;
  tsr_realign_shape #(.AxiBytes(AxiBytes), .Pads(1'b0)) u_shape (
    .from_i(run_sp[OffsetBits-1:0]), .to_i(run_dram[OffsetBits-1:0]), .bytes_i(run_bytes), .pad_i(1'b0), .over_i(run_sp[OffsetBits-1:0] > run_dram[OffsetBits-1:0]),
    .shares_i(1'b0), .left_o(run_shape.left), .prime_o(run_shape.prime), .tail_o(run_shape.tail), .shift_o(run_shape.shift),
    .last_lane_o(run_shape.last_lane)
  );
  assign run_shape.to = run_dram[OffsetBits-1:0];
  logic [$bits(run_shape)-1:0] run_offsets;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) run_offsets = 'x;
    if (!tsr_isa_pkg::Simulated || run_valid) run_offsets = run_shape;
  end
  tsr_queue #(.Width($bits(run_shape)), .Depth(tsr_isa_pkg::TimingStoreRunsWaiting)) u_offsets (
    .clk_i, .rst_ni, .valid_i(run_take), .data_i(run_offsets), .ready_o(offsets_ready), .valid_o(offsets_valid),
    .data_o(align), .ready_i(align_ready)
  );
  tsr_realign #(.AxiBytes(AxiBytes), .Pads(1'b0)) u_realign (
    .clk_i, .rst_ni, .run_valid_i(offsets_valid), .run_ready_o(align_ready),
    .run_left_i(align.left), .run_prime_i(align.prime), .run_tail_i(align.tail), .run_free_i(1'b0), .run_keep_i(1'b0), .run_shift_i(align.shift),
    .run_last_lane_i(align.last_lane), .run_to_i(align.to), .run_pad_i(1'b0), .run_pad_value_i(8'd0),
    .beat_valid_i(beat_valid), .beat_ready_o(beat_ready), .beat_data_i(beat_data), .group_valid_o(w_valid_o),
    .group_ready_i(w_ready_i), .group_data_o(w_data_o), .group_be_o(w_strb_o), .group_last_o(align_last_unused),
    .busy_o(align_busy), .starved_o(align_starved_unused)
  );
  assign issue_o = w_valid_o && w_ready_i;

  logic error_q, error, done, complete_q, complete_signal_q;
  logic [2:0] complete_code_q;
  logic [31:0] complete_pc_q;
  assign error = error_q || (b_valid_i && b_ready_o && b_error_i);
  assign done = expect_take && expect_last;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      error_q <= 1'b0;
      complete_q <= 1'b0;
    end else begin
      error_q <= error && !done;
      complete_q <= done;
    end
  end
  always_ff @(posedge clk_i) begin
    if (done) begin
      complete_signal_q <= expect_signal;
      complete_code_q <= error ? 3'(tsr_isa_pkg::FaultAxiError) : expect_fault;
      complete_pc_q <= expect_pc;
    end
  end

  logic sending;
  assign sending = runs_busy || bursts_busy || reads_valid || offsets_valid || align_busy;
  assign busy_o = sending || expect_valid || complete_q;
  assign stall_memory_o = (w_valid_o && !w_ready_i) || (!sending && expect_valid);
  assign complete_o = complete_q;
  assign complete_fault_o = complete_code_q != 3'(tsr_isa_pkg::FaultNone);
  assign complete_signal_o = complete_signal_q && !complete_fault_o;
  assign complete_code_o = complete_code_q;
  assign complete_pc_o = complete_pc_q;

  logic unused;
  assign unused = &{1'b0, run_reads_unused, run_over_unused, run_shares_unused, run_keep_unused, run_leaves_unused, run_pad_unused, run_continues_unused, run_more_unused, burst_grows_unused, run_pad_value_unused, beats_ready_unused, align_starved_unused,
                    align_last_unused};

endmodule
/* verilator lint_on LATCH */
