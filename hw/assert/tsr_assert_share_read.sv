// SPDX-License-Identifier: Apache-2.0
// The read half of the interconnect, bound to tsr_share_read. Towards memory the rules of AXI4: an address stands until
// taken, is aligned to the shared bus and ends within its 4 KB page, and at most TimingInterconnectBursts bursts are
// unanswered. Between the two sides nothing is lost, made up, doubled or held back: each request of a core becomes one
// burst of the words that hold its bytes, once the buffer has room for all of it; each beat of a core is the lane of the
// answer to its own oldest burst, in order, and stands until taken. All of this is told from queues of what went in.
module tsr_assert_share_read #(
  parameter int unsigned Cores       = 2,
  parameter int unsigned AxiBytes    = 8,
  parameter int unsigned MemoryBytes = 8
) (
  input logic                        clk_i,
  input logic                        rst_ni,
  input logic [Cores-1:0]            c_arvalid_i,
  input logic [Cores-1:0]            c_arready_o,
  input logic [64*Cores-1:0]         c_araddr_i,
  input logic [8*Cores-1:0]          c_arlen_i,
  input logic [Cores-1:0]            c_rvalid_o,
  input logic [Cores-1:0]            c_rready_i,
  input logic [8*AxiBytes*Cores-1:0] c_rdata_o,
  input logic [2*Cores-1:0]          c_rresp_o,
  input logic [Cores-1:0]            c_rlast_o,
  input logic [Cores-1:0]            waits_o,
  input logic                        m_arvalid_o,
  input logic                        m_arready_i,
  input logic [63:0]                 m_araddr_o,
  input logic [7:0]                  m_arlen_o,
  input logic                        m_rvalid_i,
  input logic                        m_rready_o,
  input logic [8*MemoryBytes-1:0]    m_rdata_i,
  input logic [1:0]                  m_rresp_i,
  input logic                        m_rlast_i,
  input logic [Cores-1:0]            want,
  input logic [Cores-1:0]            take
);

  localparam int unsigned Words = tsr_isa_pkg::TimingInterconnectWords;
  localparam int unsigned Slots = 1 << $clog2(Cores);  // others than powers of two are indexed by a copy
  localparam int unsigned Ratio = MemoryBytes / AxiBytes;

  // {address, beats - 1} of a core's burst in words of the shared bus.
  function automatic logic [71:0] widened(input logic [71:0] burst);
    int unsigned bytes;
    bytes = 32'(burst[71:8]) % MemoryBytes + AxiBytes * (32'(burst[7:0]) + 1);
    widened = {burst[71:8] & ~64'(MemoryBytes - 1), 8'((bytes + MemoryBytes - 1) / MemoryBytes - 1)};
  endfunction

  logic [71:0] asked[Slots][$];            // requests that are not granted
  logic [71:0] shapes[Slots][$];           // bursts whose beats the core has not all taken
  logic [8*MemoryBytes:0] words[Slots][$];  // answers with an error bit, of which the core has not taken all
  int unsigned used[Slots];                // words of the buffer, from their grant on
  int unsigned beat[Slots];                // of the core's oldest burst
  int unsigned late[Slots];                // cycles in which an answer has not been offered
  logic [71:0] granted[$];                 // and not on the bus yet
  int unsigned owners[$];                  // cores of the bursts that memory has not answered
  logic [7:0] lefts[$];                    // their beats - 1 that are left
  logic held_q;
  logic [71:0] address_q, burst;
  int unsigned lane, owner;

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      held_q <= 1'b0;
      for (int unsigned c = 0; c < Cores; c++) begin
        asked[c].delete();
        shapes[c].delete();
        words[c].delete();
        used[c] = 0;
        beat[c] = 0;
        late[c] = 0;
      end
      granted.delete();
      owners.delete();
      lefts.delete();
    end else begin
      // The address on the shared bus.
      held_q <= m_arvalid_o && !m_arready_i;
      address_q <= {m_araddr_o, m_arlen_o};
      `TSR_ASSERT(!held_q || m_arvalid_o, "arvalid fell before arready")
      `TSR_ASSERT(!held_q || !m_arvalid_o || address_q == {m_araddr_o, m_arlen_o}, "address changed before arready")
      if (m_arvalid_o) begin
        `TSR_ASSERT(32'(m_araddr_o[11:0]) % MemoryBytes == 0, "read burst not aligned to the bus")
        `TSR_ASSERT(32'(m_araddr_o[11:0]) + MemoryBytes * (32'(m_arlen_o) + 1) <= 4096, "read burst crosses 4 KB")
      end
      if (m_arvalid_o && !held_q) begin
        `TSR_ASSERT(granted.size() != 0, "a burst that was not granted")
        if (granted.size() != 0) begin
          burst = granted.pop_front();
          `TSR_ASSERT({m_araddr_o, m_arlen_o} == burst, "not the burst that was granted")
        end
      end
      `TSR_ASSERT(granted.size() == 0, "a grant was lost")

      // Beats of the cores.
      for (int unsigned c = 0; c < Cores; c++) begin
        late[c] = words[c].size() != 0 && !c_rvalid_o[c] ? late[c] + 1 : 0;
        `TSR_ASSERT(late[c] < tsr_isa_pkg::TimingInterconnectBuffer, "an answer is held back")
        if (c_rvalid_o[c]) begin
          `TSR_ASSERT(words[c].size() != 0 && shapes[c].size() != 0, "a beat that memory has not answered")
          if (words[c].size() != 0 && shapes[c].size() != 0) begin
            burst = shapes[c][0];
            lane = (32'(burst[71:8]) % MemoryBytes / AxiBytes + beat[c]) % Ratio;
            `TSR_ASSERT(c_rdata_o[8*AxiBytes*c+:8*AxiBytes] == words[c][0][8*AxiBytes*lane+:8*AxiBytes] &&
                          c_rresp_o[2*c+:2] == {words[c][0][8*MemoryBytes], 1'b0}, "a beat is not memory's answer")
            `TSR_ASSERT(c_rlast_o[c] == (beat[c] == 32'(burst[7:0])), "rlast on the wrong beat")
          end
        end
        // Who may be granted, by what stood before this cycle.
        burst = '0;
        if (asked[c].size() != 0) burst = asked[c][0];
        burst = widened(burst);
        `TSR_ASSERT(want[c] == (asked[c].size() != 0 && used[c] + 32'(burst[7:0]) + 1 <= Words),
                    "a request held back, or granted without room")
        `TSR_ASSERT(waits_o[c] == (asked[c].size() != 0 && !take[c]), "who waits is wrong")
        if (c_rvalid_o[c] && c_rready_i[c] && shapes[c].size() != 0) begin
          burst = shapes[c][0];
          lane = (32'(burst[71:8]) % MemoryBytes / AxiBytes + beat[c]) % Ratio;
          if (lane == Ratio - 1 || beat[c] == 32'(burst[7:0])) begin
            void'(words[c].pop_front());
            used[c] = used[c] - 1;
          end
          beat[c] = beat[c] == 32'(burst[7:0]) ? 0 : beat[c] + 1;
          if (beat[c] == 0) void'(shapes[c].pop_front());
        end
      end

      // Memory's answers.
      `TSR_ASSERT(m_rready_o, "memory has to wait")
      if (m_rvalid_i) begin
        `TSR_ASSERT(owners.size() != 0, "a beat without a burst")
        if (owners.size() != 0) begin
          owner = owners[0];
          words[owner].push_back({m_rresp_i[1], m_rdata_i});
          `TSR_ASSERT(m_rlast_i == (lefts[0] == '0), "rlast of memory on the wrong beat")
          lefts[0] = lefts[0] - 8'd1;
          if (m_rlast_i) begin
            void'(owners.pop_front());
            void'(lefts.pop_front());
          end
        end
      end

      // Grants and requests.
      `TSR_ASSERT($onehot0(take), "two cores granted")
      for (int unsigned c = 0; c < Cores; c++) begin
        if (take[c]) begin
          `TSR_ASSERT(asked[c].size() != 0, "a grant without a request")
          if (asked[c].size() != 0) begin
            burst = asked[c].pop_front();
            burst = widened(burst);
            granted.push_back(burst);
            owners.push_back(c);
            lefts.push_back(burst[7:0]);
            used[c] = used[c] + 32'(burst[7:0]) + 1;
          end
        end
        if (c_arvalid_i[c]) begin
          `TSR_ASSERT(c_arready_o[c], "a request was not taken")
          asked[c].push_back({c_araddr_i[64*c+:64], c_arlen_i[8*c+:8]});
          shapes[c].push_back({c_araddr_i[64*c+:64], c_arlen_i[8*c+:8]});
        end
      end
      `TSR_ASSERT(owners.size() <= tsr_isa_pkg::TimingInterconnectBursts, "more bursts than memory is asked for")
    end
  end

endmodule

bind tsr_share_read tsr_assert_share_read #(
  .Cores(Cores), .AxiBytes(AxiBytes), .MemoryBytes(MemoryBytes)
) u_assert (.*);
