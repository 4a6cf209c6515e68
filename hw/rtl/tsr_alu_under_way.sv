// SPDX-License-Identifier: Apache-2.0
// The vector engine's vectors under way, of all instructions. Enters: an issue's destination with its path (push_i), what
// the next issue reads. Leaves: whether the issue has to wait for a write, or would be written too early; the destination
// that is written now, and what its completion needs. Method: destinations move with the pipeline, each at the place that
// says in how many cycles it is written, in fields that are all ones, which is no space, where there is none. The next
// issue is compared with all of them while this one is made; then only time passes: a bit beside each destination, which
// moves with it. Writes stay in program order: a vector of a shorter path is issued no earlier than so that it is written
// after the older ones.
//
// Reset: synchronous, active low. Legal: Raw < First < Long, the cycles from an issue to its write by path.
module tsr_alu_under_way #(
  parameter int unsigned Raw       = 4,
  parameter int unsigned First     = 14,
  parameter int unsigned Long      = 32,
  parameter int unsigned EntryBits = 14,
  parameter int unsigned SlotBits  = 5
) (
  input  logic                 clk_i,
  input  logic                 rst_ni,
  input  logic                 enable_i,
  // An issue that ends a vector. raw_i, second_i: the path of its instruction.
  input  logic                 push_i,
  input  logic                 raw_i,
  input  logic                 second_i,
  input  logic [1:0]           space_i,
  input  logic [EntryBits-1:0] entry_i,
  input  logic                 last_i,
  input  logic                 signal_i,
  input  logic [31:0]          pc_i,
  // What the next issue reads, which is made with step_i.
  input  logic                 step_i,
  input  logic                 next_src_i,
  input  logic [1:0]           next_src_space_i,
  input  logic [EntryBits-1:0] next_src_entry_i,
  input  logic                 next_second_i,
  input  logic [EntryBits-1:0] next_second_entry_i,
  output logic                 hazard_o,
  output logic                 early_o,
  output logic                 idle_o,  // nothing but perhaps a write
  // The oldest one. retire_i: it is written.
  input  logic                 retire_i,
  output logic [1:0]           space_o,
  output logic [EntryBits-1:0] entry_o,
  output logic                 last_o,
  output logic                 signal_o,
  output logic [31:0]          pc_o
);

  localparam int unsigned LatencyBits = $clog2(Long + 1);
  localparam logic [LatencyBits-1:0] RawLatency = LatencyBits'(Raw), FirstLatency = LatencyBits'(First);
  localparam logic [LatencyBits-1:0] LongLatency = LatencyBits'(Long);
  localparam logic [1:0] SpaceOut = 2'(tsr_isa_pkg::AluSpaceOut);
  typedef struct packed {
    logic [1:0] space;
    logic [EntryBits-1:0] entry;
  } target_t;
  typedef struct packed {
    logic last;
    logic signal;
    logic [31:0] pc;
  } info_t;

  target_t src_target, second_target, push_target, write_target;
  localparam int unsigned TargetBits = $bits(src_target);
  localparam logic [TargetBits-1:0] NoTarget = '1;
  logic [TargetBits*Long-1:0] targets_q;
  logic [LatencyBits-1:0] slack_q, latency;  // slack_q: cycles until the newest one is written
  logic early_raw_q, early_first_q;          // they are at least those of a path; never as many as the longest path's
  logic [Long-1:0] meets, meets_q;  // the destinations that the next issue reads, and those that this one reads
  logic [Long-1:0] meets_src, meets_second;
  logic meets_push, meets_later, compare_src, compare_second, hazard_q;

  assign latency = raw_i ? RawLatency : second_i ? LongLatency : FirstLatency;
  assign early_o = raw_i ? early_raw_q : !second_i && early_first_q;
  assign idle_o = slack_q == '0;
  assign hazard_o = hazard_q;
  assign write_target = targets_q[TargetBits-1:0];
  assign space_o = write_target.space;
  assign entry_o = write_target.entry;
  assign push_target = {space_i, entry_i};
  assign src_target = {next_src_space_i, next_src_entry_i};
  assign second_target = {SpaceOut, next_second_entry_i};

  // What is read next is known later than where: it decides last.
  always_comb begin
    meets_src = '0;
    meets_second = '0;
    if (compare_src) begin
      for (int unsigned e = 0; e < Long; e++) meets_src[e] = targets_q[TargetBits*e+:TargetBits] == src_target;
    end
    if (compare_second) begin
      for (int unsigned e = 0; e < Long; e++) meets_second[e] = targets_q[TargetBits*e+:TargetBits] == second_target;
    end
    meets = (meets_src & {Long{next_src_i}}) | (meets_second & {Long{next_second_i}});
    meets_later = (next_src_i && meets_src[Long-1:1] != '0) || (next_second_i && meets_second[Long-1:1] != '0);
    meets_push = (next_src_i && push_target == src_target) || (next_second_i && push_target == second_target);
  end
  always_ff @(posedge clk_i) begin
    if (step_i || enable_i) meets_q <= (step_i ? meets : meets_q) >> enable_i;
    if (push_i && latency == RawLatency) meets_q[Raw-1] <= meets_push;
    if (push_i && latency == FirstLatency) meets_q[First-1] <= meets_push;
    if (push_i && latency == LongLatency) meets_q[Long-1] <= meets_push;
    if (step_i) hazard_q <= (push_i && meets_push) || (!enable_i && meets[0]) || meets_later;
    else if (enable_i) hazard_q <= meets_q[Long-1:1] != '0;
  end

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      targets_q <= '1;
      slack_q <= '0;
      early_raw_q <= 1'b0;
      early_first_q <= 1'b0;
    end else if (enable_i && (push_i || !idle_o || retire_i)) begin
      targets_q <= {NoTarget, targets_q[TargetBits*Long-1:TargetBits]};
      if (push_i && latency == RawLatency) targets_q[TargetBits*(Raw-1)+:TargetBits] <= push_target;
      if (push_i && latency == FirstLatency) targets_q[TargetBits*(First-1)+:TargetBits] <= push_target;
      if (push_i && latency == LongLatency) targets_q[TargetBits*(Long-1)+:TargetBits] <= push_target;
      slack_q <= push_i ? latency - 1'b1 : slack_q == '0 ? '0 : slack_q - 1'b1;
      early_raw_q <= push_i ? !raw_i : slack_q > RawLatency;
      early_first_q <= push_i ? !raw_i && second_i : slack_q > FirstLatency;
    end
  end

  // What completions need.
  info_t pop_info;
  logic [$bits(pop_info)-1:0] info[1 << SlotBits];  // Yosys 0.23 makes one bit a word of a structure here
  logic [SlotBits-1:0] push_q, pop_q;
  assign pop_info = info[pop_q];
  assign last_o = pop_info.last;
  assign signal_o = pop_info.signal;
  assign pc_o = pop_info.pc;
  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      push_q <= '0;
      pop_q <= '0;
    end else begin
      if (retire_i) pop_q <= pop_q + 1'b1;
      if (push_i) push_q <= push_q + 1'b1;
    end
  end
  always_ff @(posedge clk_i) begin
    if (push_i) info[push_q] <= {last_i, signal_i, pc_i};
  end

  // A simulator compares only where a space has destinations under way, which it counts.
  if (tsr_isa_pkg::Simulated) begin : gen_counted
    localparam int unsigned UnderWayBits = $clog2(Long + 1);  // as many vectors as cycles can be under way
    logic [3*UnderWayBits-1:0] under_way_q;  // by space
    always_ff @(posedge clk_i) begin
      if (!rst_ni) begin
        under_way_q <= '0;
      end else if (push_i || retire_i) begin
        for (int unsigned space = 0; space < 3; space++) begin
          under_way_q[UnderWayBits*space+:UnderWayBits] <= under_way_q[UnderWayBits*space+:UnderWayBits] +
              UnderWayBits'(push_i && space_i == 2'(space)) - UnderWayBits'(retire_i && write_target.space == 2'(space));
        end
      end
    end
    assign compare_src = step_i && next_src_i && under_way_q[UnderWayBits*next_src_space_i+:UnderWayBits] != '0;
    assign compare_second = step_i && next_second_i && under_way_q[UnderWayBits*SpaceOut+:UnderWayBits] != '0;
  end else begin : gen_compared
    assign compare_src = 1'b1;
    assign compare_second = 1'b1;
  end

endmodule
