// SPDX-License-Identifier: Apache-2.0
// The read half of the AXI4 master: FETCH before LOAD, one identifier, so that data come back in the order of the
// bursts; a queue of owners says whose they are.
//
// Short bursts that will grow wait where half of the bursts in flight are taken: then requests are what is scarce.
//
// Latency: a granted burst is on the bus in the next cycle; a beat reaches its owner in the cycle after it was taken.
// Throughput: one burst and one beat a cycle. Back-pressure: at most ReadsInFlight bursts are outstanding; every output
// depends on state only. Reset: synchronous, active low; bursts in flight must have drained.
module tsr_axi_read #(
  parameter int unsigned AxiBytes      = 8,
  parameter int unsigned ReadsInFlight = 16
) (
  input  logic                  clk_i,
  input  logic                  rst_ni,
  input  logic                  fetch_ar_valid_i,
  output logic                  fetch_ar_ready_o,
  input  logic [63:0]           fetch_ar_addr_i,
  input  logic [7:0]            fetch_ar_len_i,
  output logic                  fetch_r_valid_o,
  input  logic                  fetch_r_ready_i,
  input  logic                  load_ar_valid_i,
  output logic                  load_ar_ready_o,
  input  logic [63:0]           load_ar_addr_i,
  input  logic [7:0]            load_ar_len_i,
  input  logic                  load_ar_grows_i,
  output logic                  load_r_valid_o,
  input  logic                  load_r_ready_i,
  output logic [8*AxiBytes-1:0] r_data_o,   // for both
  output logic                  r_error_o,
  output logic                  busy_o,     // a burst is outstanding
  output logic                  m_arvalid_o,
  input  logic                  m_arready_i,
  output logic [63:0]           m_araddr_o,
  output logic [7:0]            m_arlen_o,
  input  logic                  m_rvalid_i,
  output logic                  m_rready_o,
  input  logic [8*AxiBytes-1:0] m_rdata_i,
  input  logic [1:0]            m_rresp_i,
  input  logic                  m_rlast_i
);

  logic free, owners_ready, owner_valid, owner_fetch, fire, crowded, done;
  logic arvalid_q;
  logic [63:0] araddr_q;
  logic [7:0] arlen_q;
  assign free = (!arvalid_q || m_arready_i) && owners_ready;
  assign fetch_ar_ready_o = free;
  assign load_ar_ready_o = free && !fetch_ar_valid_i && !(crowded && load_ar_grows_i);
  assign fire = (fetch_ar_valid_i && fetch_ar_ready_o) || (load_ar_valid_i && load_ar_ready_o);

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      arvalid_q <= 1'b0;
      araddr_q <= '0;
      arlen_q <= '0;
    end else begin
      if (m_arready_i) arvalid_q <= 1'b0;
      if (fire) begin
        arvalid_q <= 1'b1;
        araddr_q <= fetch_ar_valid_i ? fetch_ar_addr_i : load_ar_addr_i;
        arlen_q <= fetch_ar_valid_i ? fetch_ar_len_i : load_ar_len_i;
      end
    end
  end
  assign m_arvalid_o = arvalid_q;
  assign m_araddr_o = araddr_q;
  assign m_arlen_o = arlen_q;

  logic beat_valid, beat_ready, beat_last;
  // A beat stands in a register: LOAD's realigner and the wires to the scratchpads are behind it.
  localparam int unsigned BeatBits = 8 * AxiBytes + 2;
  tsr_queue #(.Width(BeatBits), .Depth(tsr_isa_pkg::TimingBusBeatsWaiting), .HeadBits(BeatBits)) u_beats (
    .clk_i, .rst_ni, .valid_i(m_rvalid_i), .data_i({m_rlast_i, m_rresp_i[1], m_rdata_i}), .ready_o(m_rready_o),
    .valid_o(beat_valid), .data_o({beat_last, r_error_o, r_data_o}), .ready_i(beat_ready)
  );
  assign fetch_r_valid_o = beat_valid && owner_fetch;
  assign load_r_valid_o = beat_valid && !owner_fetch;
  assign beat_ready = owner_fetch ? fetch_r_ready_i : load_r_ready_i;

  tsr_queue #(.Width(1), .Depth(ReadsInFlight), .HeadBits(1)) u_owners (
    .clk_i, .rst_ni, .valid_i(fire), .data_i(fetch_ar_valid_i), .ready_o(owners_ready), .valid_o(owner_valid),
    .data_o(owner_fetch), .ready_i(done)
  );
  assign done = beat_valid && beat_ready && beat_last;
  localparam int unsigned CountBits = $clog2(ReadsInFlight + 1);
  logic [CountBits-1:0] outstanding_q;
  assign crowded = {outstanding_q, 1'b1} >= (CountBits + 1)'(ReadsInFlight);  // at least half
  always_ff @(posedge clk_i) begin
    if (!rst_ni) outstanding_q <= '0;
    else if (fire != done) outstanding_q <= fire ? outstanding_q + 1'b1 : outstanding_q - 1'b1;
  end
  assign busy_o = owner_valid;

  logic unused;
  assign unused = m_rresp_i[0];

endmodule
