// SPDX-License-Identifier: Apache-2.0
// Cuts a run of beats into AXI bursts: aligned, at most 256 beats, none across 4 KB. A run that continues the one
// before at a beat's boundary joins it while a burst of that one waits. `grows` says that one will soon, and that the
// burst is short.
//
// Latency: a run taken in cycle t has its first burst at the output in t + 1. Throughput: one burst a cycle; the next
// run is taken with the last burst of the previous one, or joins it. Back-pressure: burst_ready_i. Reset: synchronous, active low.
// Legal: AxiBytes a power of two, 4 to 64; bursts of 256 beats at most. Timing: a
// count of beats, or the next place of a page, between two registers.
/* verilator lint_off LATCH */  // see Simulated in tsr_isa_pkg

module tsr_bursts #(
  parameter int unsigned AxiBytes = 8,
  parameter bit          Joins    = 1'b1  // runs may join; without, the two inputs that say so are not looked at
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        run_valid_i,
  output logic        run_ready_o,
  input  logic [63:0] run_dram_i,       // of the first burst
  input  logic [22-$clog2(AxiBytes):0] run_left_i,  // beats - 1
  input  logic        run_shares_i,     // the first of them is none of its bursts
  input  logic        run_continues_i,  // whole beats, begins where the run before ended
  input  logic        run_more_i,       // the next run will continue this one
  output logic        burst_valid_o,
  input  logic        burst_ready_i,
  output logic [63:0] burst_addr_o,
  output logic [7:0]  burst_len_o,   // beats - 1
  output logic        burst_last_o,  // of its run
  output logic        burst_grows_o,
  output logic        busy_o
);

  localparam int unsigned OffsetBits = $clog2(AxiBytes);
  localparam int unsigned BeatBits = 23 - OffsetBits;
  localparam int unsigned PageBeatBits = $clog2(tsr_isa_pkg::TimingBusPageBytes) - OffsetBits;  // 2^PageBeatBits a page
  localparam int unsigned LengthBits = $clog2(tsr_isa_pkg::TimingBusBurstBeats);
  if (AxiBytes < 4 || AxiBytes > 64 || AxiBytes != 1 << $clog2(AxiBytes)) $error("tsr_bursts: AxiBytes is a power of two, 4 to 64");
  if (tsr_isa_pkg::TimingLoadRequestBeats != 1 << $clog2(tsr_isa_pkg::TimingLoadRequestBeats) ||
      tsr_isa_pkg::TimingLoadRequestBeats < 2 || tsr_isa_pkg::TimingLoadRequestBeats >= 1 << LengthBits)
    $error("tsr_bursts: TimingLoadRequestBeats is a power of two, at least 2 and below a burst's longest");
  if (LengthBits > 8 || tsr_isa_pkg::TimingBusBurstBeats != 1 << LengthBits || tsr_isa_pkg::TimingBusPageBytes > 4096 ||
      tsr_isa_pkg::TimingBusPageBytes != 1 << $clog2(tsr_isa_pkg::TimingBusPageBytes))
    $error("tsr_bursts: bursts of at most 256 beats, pages of at most 4096 bytes, both powers of two");

  logic [63-OffsetBits:0] beat_q;   // address in beats
  logic [BeatBits-1:0] left_q;      // beats left - 1
  logic [LengthBits-1:0] longest, length;
  logic busy_q, more_q, grows_q, take, last, fire, joins;

  // All lengths are of beats - 1: then those to the end of a page are the complement of the place in the page. A burst
  // that is not its run's last one ends a page, or it has as many beats as a burst can have. Either way the address grows
  // by one above the place, and the place becomes 0 or stays.
  localparam int unsigned PlaceBits = PageBeatBits > LengthBits ? LengthBits : PageBeatBits;
  logic ends_page;
  logic [PlaceBits-1:0] place, place_next;
  assign place = beat_q[PlaceBits-1:0];
  if (PageBeatBits > LengthBits) begin : gen_long_page
    assign ends_page = beat_q[PageBeatBits-1:LengthBits] == '1;
    assign longest = ~place | {LengthBits{!ends_page}};
  end else begin : gen_short_page
    assign ends_page = 1'b1;
    assign longest = LengthBits'({(LengthBits + 1 - PageBeatBits)'(0), ~place});
  end
  assign place_next = ends_page ? '0 : place;
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {last, length} = 'x;
    if (!tsr_isa_pkg::Simulated || busy_q) begin
      last = left_q[BeatBits-1:LengthBits] == '0 && left_q[LengthBits-1:0] <= longest;
      length = last ? left_q[LengthBits-1:0] : longest;
    end
  end

  assign burst_valid_o = busy_q;
  assign burst_addr_o = {beat_q, OffsetBits'(0)};
  assign burst_len_o = 8'(length);
  assign burst_last_o = last;
  assign burst_grows_o = grows_q;
  assign busy_o = busy_q;
  assign fire = busy_q && burst_ready_i;
  assign joins = Joins && busy_q && !burst_ready_i && run_continues_i;
  assign run_ready_o = !busy_q || joins || (burst_ready_i && last);
  assign take = run_valid_i && run_ready_o;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) busy_q <= 1'b0;
    else if (take) busy_q <= 1'b1;
    else if (fire && last) busy_q <= 1'b0;
  end
  logic [63-OffsetBits-PlaceBits:0] page_next;
  assign page_next = beat_q[63-OffsetBits:PlaceBits] + 1'b1;
  // From the next cycle on. Whether few beats are left is found beside the sums, from what few low bits say, since a
  // comparison of a sum would stand behind its carry chain.
  localparam int unsigned FewBits = $clog2(tsr_isa_pkg::TimingLoadRequestBeats);
  logic [BeatBits-1:0] left;
  logic [LengthBits:0] behind;  // beats left behind a burst that is not the last one - 1, when they are so few
  logic more, few_new, few_joined, few_behind;
  // What comes last, whether there is a run, chooses nothing: a burst that ends without one leaves what nobody reads.
  always_comb begin
    if (!tsr_isa_pkg::Simulated) {left, more, few_new, few_joined, behind, few_behind} = 'x;
    if (!tsr_isa_pkg::Simulated || take || fire) begin
      left = run_ready_o ? (joins ? left_q : {BeatBits{Joins && run_shares_i}}) + run_left_i + BeatBits'(joins)
                         : left_q + {{(BeatBits - LengthBits) {1'b1}}, ~longest};  // less the longest, less one
      more = run_ready_o ? run_more_i : more_q;
      few_new = run_left_i[BeatBits-1:FewBits] == '0 && (run_shares_i || run_left_i[FewBits-1:0] != '1);
      few_joined = run_left_i[BeatBits-1:FewBits] == '0 && left_q[BeatBits-1:FewBits] == '0 &&
          (FewBits + 1)'(run_left_i[FewBits-1:0]) + (FewBits + 1)'(left_q[FewBits-1:0]) <
          (FewBits + 1)'(tsr_isa_pkg::TimingLoadRequestBeats - 2);
      behind = left_q[LengthBits:0] + {1'b1, ~longest};
      few_behind = left_q[BeatBits-1:LengthBits+1] == '0 &&
          behind < (LengthBits + 1)'(tsr_isa_pkg::TimingLoadRequestBeats - 1);
    end
  end
  always_ff @(posedge clk_i) begin
    if (take || fire) begin
      left_q <= left;
      more_q <= more;
      grows_q <= Joins && more && (run_ready_o ? (joins ? few_joined : few_new) : few_behind);
    end
    if ((take && !joins) || fire) beat_q <= run_ready_o ? run_dram_i[63:OffsetBits] : {page_next, place_next};
  end

  logic unused;
  assign unused = &{1'b0, run_dram_i[OffsetBits-1:0]};

endmodule
/* verilator lint_on LATCH */
