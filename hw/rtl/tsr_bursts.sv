// SPDX-License-Identifier: Apache-2.0
// Cuts a run of DRAM bytes into AXI bursts: aligned, at most 256 beats, none across 4 KB.
//
// Latency: a run taken in cycle t has its first burst at the output in t + 1. Throughput: one burst a cycle; the next
// run is taken with the last burst of the previous one. Back-pressure: burst_ready_i. Reset: synchronous, active low.
// Legal: AxiBytes a power of two, 4 to 64; a run is below 2^22 bytes.
module tsr_bursts #(
  parameter int unsigned AxiBytes = 8
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  input  logic        run_valid_i,
  output logic        run_ready_o,
  input  logic [63:0] run_dram_i,
  input  logic [21:0] run_bytes_i,
  output logic        burst_valid_o,
  input  logic        burst_ready_i,
  output logic [63:0] burst_addr_o,
  output logic [7:0]  burst_len_o,   // beats - 1
  output logic        burst_last_o,  // of its run
  output logic        busy_o
);

  localparam int unsigned OffsetBits = $clog2(AxiBytes);
  localparam int unsigned BeatBits = 22;
  localparam int unsigned PageBeatBits = $clog2(tsr_isa_pkg::TimingBusPageBytes) - OffsetBits;  // 2^PageBeatBits a page
  localparam logic [BeatBits-1:0] Longest = BeatBits'(tsr_isa_pkg::TimingBusBurstBeats);

  logic [63-OffsetBits:0] beat_q;   // address in beats
  logic [BeatBits-1:0] left_q;      // beats left
  logic [BeatBits-1:0] to_page, beats;
  logic take;

  assign to_page = BeatBits'(1 << PageBeatBits) - BeatBits'(beat_q[PageBeatBits-1:0]);
  always_comb begin
    beats = left_q;
    if (to_page < beats) beats = to_page;
    if (beats > Longest) beats = Longest;
  end

  assign burst_valid_o = left_q != '0;
  assign burst_addr_o = {beat_q, OffsetBits'(0)};
  assign burst_len_o = 8'(beats - BeatBits'(1));
  assign burst_last_o = beats == left_q;
  assign busy_o = burst_valid_o;
  assign run_ready_o = !burst_valid_o || (burst_ready_i && burst_last_o);
  assign take = run_valid_i && run_ready_o;

  logic [BeatBits:0] span;
  assign span = {1'b0, run_bytes_i} + (BeatBits + 1)'(run_dram_i[OffsetBits-1:0]) + (BeatBits + 1)'(AxiBytes - 1);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      beat_q <= '0;
      left_q <= '0;
    end else if (take) begin
      beat_q <= run_dram_i[63:OffsetBits];
      left_q <= BeatBits'(span >> OffsetBits);
    end else if (burst_valid_o && burst_ready_i) begin
      beat_q <= beat_q + (64 - OffsetBits)'(beats);
      left_q <= left_q - beats;
    end
  end

endmodule
