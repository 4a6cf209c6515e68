// SPDX-License-Identifier: Apache-2.0
// The write half of the interconnect, bound to tsr_share_write. Towards memory the rules of AXI4: addresses and data
// stand until taken, bursts are aligned to the shared bus and end within their 4 KB page, and at most
// TimingInterconnectBursts of them are without a response. Between the two sides nothing is lost, made up, doubled or
// held back: each burst of a core becomes one of the words that hold its bytes, granted once all its data have come and
// sent whole, with the strobes of its bytes alone; each response reaches the core of the oldest burst, with its error,
// and stands until taken. All of this is told from queues of what went in.
module tsr_assert_share_write #(
  parameter int unsigned Cores       = 2,
  parameter int unsigned AxiBytes    = 8,
  parameter int unsigned MemoryBytes = 8
) (
  input logic                        clk_i,
  input logic                        rst_ni,
  input logic [Cores-1:0]            c_awvalid_i,
  input logic [Cores-1:0]            c_awready_o,
  input logic [64*Cores-1:0]         c_awaddr_i,
  input logic [8*Cores-1:0]          c_awlen_i,
  input logic [Cores-1:0]            c_wvalid_i,
  input logic [Cores-1:0]            c_wready_o,
  input logic [8*AxiBytes*Cores-1:0] c_wdata_i,
  input logic [AxiBytes*Cores-1:0]   c_wstrb_i,
  input logic [Cores-1:0]            c_wlast_i,
  input logic [Cores-1:0]            c_bvalid_o,
  input logic [Cores-1:0]            c_bready_i,
  input logic [2*Cores-1:0]          c_bresp_o,
  input logic [Cores-1:0]            waits_o,
  input logic                        m_awvalid_o,
  input logic                        m_awready_i,
  input logic [63:0]                 m_awaddr_o,
  input logic [7:0]                  m_awlen_o,
  input logic                        m_wvalid_o,
  input logic                        m_wready_i,
  input logic [8*MemoryBytes-1:0]    m_wdata_o,
  input logic [MemoryBytes-1:0]      m_wstrb_o,
  input logic                        m_wlast_o,
  input logic                        m_bvalid_i,
  input logic                        m_bready_o,
  input logic [1:0]                  m_bresp_i,
  input logic [Cores-1:0]            want,
  input logic [Cores-1:0]            take,
  input logic [Cores-1:0]            word_take
);

  localparam int unsigned Words = tsr_isa_pkg::TimingInterconnectWords;
  localparam int unsigned Slots = 1 << $clog2(Cores);  // others than powers of two are indexed by a copy
  localparam int unsigned Ratio = MemoryBytes / AxiBytes;
  localparam int unsigned WordBits = 9 * MemoryBytes;  // strobes above data

  // {address, beats - 1} of a core's burst in words of the shared bus.
  function automatic logic [71:0] widened(input logic [71:0] burst);
    int unsigned bytes;
    bytes = 32'(burst[71:8]) % MemoryBytes + AxiBytes * (32'(burst[7:0]) + 1);
    widened = {burst[71:8] & ~64'(MemoryBytes - 1), 8'((bytes + MemoryBytes - 1) / MemoryBytes - 1)};
  endfunction

  // Bytes without a strobe count as 0.
  function automatic logic [8*MemoryBytes-1:0] written(input logic [WordBits-1:0] word);
    for (int unsigned b = 0; b < MemoryBytes; b++)
      written[8*b+:8] = word[8*MemoryBytes+b] ? word[8*b+:8] : 8'd0;
  endfunction

  logic [71:0] asked[Slots][$];           // bursts that are not granted
  logic [71:0] shapes[Slots][$];          // bursts whose data have not all come
  logic [WordBits-1:0] words[Slots][$];   // that have come and are not sent
  logic [WordBits-1:0] coming[Slots];     // the word that is not complete
  int unsigned beat[Slots], whole[Slots];  // of the burst that comes; bursts that have come and are not granted
  logic responses[Slots][$];              // errors that the core has not been told
  logic [71:0] granted[$];                // and not on the bus yet
  int unsigned senders[$];                // cores of the bursts whose words are not all sent
  logic [7:0] lefts[$];                   // their words - 1 that are left
  logic [WordBits:0] sent[$];             // {last, word}, and not on the bus yet
  int unsigned owners[$];                 // cores of the bursts without a response
  int unsigned lacking;                   // responses that may not come: bursts whose data memory has not all taken
  logic aw_held_q, w_held_q;
  logic [71:0] aw_q, burst;
  logic [WordBits:0] w_q, word;
  int unsigned lane, owner;

  always @(posedge clk_i) begin
    if (!rst_ni) begin
      aw_held_q <= 1'b0;
      w_held_q <= 1'b0;
      for (int unsigned c = 0; c < Cores; c++) begin
        asked[c].delete();
        shapes[c].delete();
        words[c].delete();
        responses[c].delete();
        coming[c] = '0;
        beat[c] = 0;
        whole[c] = 0;
      end
      granted.delete();
      senders.delete();
      lefts.delete();
      sent.delete();
      owners.delete();
      lacking = 0;
    end else begin
      // Address and data on the shared bus.
      aw_held_q <= m_awvalid_o && !m_awready_i;
      w_held_q <= m_wvalid_o && !m_wready_i;
      aw_q <= {m_awaddr_o, m_awlen_o};
      w_q <= {m_wlast_o, m_wstrb_o, m_wdata_o};
      `TSR_ASSERT(!aw_held_q || m_awvalid_o, "awvalid fell before awready")
      `TSR_ASSERT(!aw_held_q || !m_awvalid_o || aw_q == {m_awaddr_o, m_awlen_o}, "address changed before awready")
      `TSR_ASSERT(!w_held_q || m_wvalid_o, "wvalid fell before wready")
      `TSR_ASSERT(!w_held_q || !m_wvalid_o || w_q == {m_wlast_o, m_wstrb_o, m_wdata_o}, "data changed before wready")
      if (m_awvalid_o) begin
        `TSR_ASSERT(32'(m_awaddr_o[11:0]) % MemoryBytes == 0, "write burst not aligned to the bus")
        `TSR_ASSERT(32'(m_awaddr_o[11:0]) + MemoryBytes * (32'(m_awlen_o) + 1) <= 4096, "write burst crosses 4 KB")
      end
      if (m_awvalid_o && !aw_held_q) begin
        `TSR_ASSERT(granted.size() != 0, "a burst that was not granted")
        if (granted.size() != 0) begin
          burst = granted.pop_front();
          `TSR_ASSERT({m_awaddr_o, m_awlen_o} == burst, "not the burst that was granted")
        end
      end
      `TSR_ASSERT(granted.size() == 0, "a grant was lost")
      if (m_wvalid_o && !w_held_q) begin
        `TSR_ASSERT(sent.size() != 0, "a word that no core has sent")
        if (sent.size() != 0) begin
          word = sent.pop_front();
          `TSR_ASSERT(m_wlast_o == word[WordBits], "wlast on the wrong word")
          `TSR_ASSERT(m_wstrb_o == word[8*MemoryBytes+:MemoryBytes], "the strobes are not those of the core's bytes")
          `TSR_ASSERT(written({m_wstrb_o, m_wdata_o}) == written(word[WordBits-1:0]), "a word is not what the core wrote")
        end
      end
      `TSR_ASSERT(sent.size() == 0, "a word was lost")
      if (m_wvalid_o && m_wready_i && m_wlast_o && lacking != 0) lacking = lacking - 1;

      // Responses.
      `TSR_ASSERT(m_bready_o, "memory has to wait")
      for (int unsigned c = 0; c < Cores; c++) begin
        `TSR_ASSERT(c_bvalid_o[c] == (responses[c].size() != 0), "a response held back, or without memory's")
        if (c_bvalid_o[c] && responses[c].size() != 0) begin
          `TSR_ASSERT(c_bresp_o[2*c+:2] == {responses[c][0], 1'b0}, "a response is not memory's")
          if (c_bready_i[c]) void'(responses[c].pop_front());
        end
      end
      if (m_bvalid_i) begin
        `TSR_ASSERT(owners.size() > lacking, "a response of memory without a burst")
        if (owners.size() != 0) begin
          owner = owners.pop_front();
          responses[owner].push_back(m_bresp_i[1]);
        end
      end

      // Words that leave, and grants. A grant comes with the last word of the burst before it.
      `TSR_ASSERT($onehot0(take), "two cores granted")
      for (int unsigned c = 0; c < Cores; c++) begin
        `TSR_ASSERT(c_wready_o[c] == (words[c].size() < Words && (Ratio == 1 || shapes[c].size() != 0)),
                    "a beat held back, or taken without room")
        `TSR_ASSERT(want[c] == (whole[c] != 0), "a burst held back, or granted before its data have come")
        `TSR_ASSERT(waits_o[c] == (whole[c] != 0 && !take[c]), "who waits is wrong")
        if (word_take[c]) begin
          `TSR_ASSERT(senders.size() != 0 && words[c].size() != 0, "a word without a burst")
          if (senders.size() != 0 && words[c].size() != 0) begin
            `TSR_ASSERT(senders[0] == c, "a word of another core's burst")
            word = {lefts[0] == '0, words[c][0]};
            void'(words[c].pop_front());
            sent.push_back(word);
            if (lefts[0] == '0) begin
              void'(senders.pop_front());
              void'(lefts.pop_front());
            end else begin
              lefts[0] = lefts[0] - 8'd1;
            end
          end
        end
      end
      for (int unsigned c = 0; c < Cores; c++) begin
        if (take[c]) begin
          `TSR_ASSERT(asked[c].size() != 0 && whole[c] != 0, "a grant without a burst")
          `TSR_ASSERT(senders.size() == 0, "two bursts on their way")
          if (asked[c].size() != 0 && whole[c] != 0) begin
            burst = asked[c].pop_front();
            burst = widened(burst);
            granted.push_back(burst);
            senders.push_back(c);
            lefts.push_back(burst[7:0]);
            owners.push_back(c);
            whole[c] = whole[c] - 1;
            lacking = lacking + 1;
          end
        end
      end
      `TSR_ASSERT(owners.size() <= tsr_isa_pkg::TimingInterconnectBursts, "more bursts than memory is asked for")

      // What the cores drive.
      for (int unsigned c = 0; c < Cores; c++) begin
        if (c_awvalid_i[c]) begin
          `TSR_ASSERT(c_awready_o[c], "a burst was not taken")
          asked[c].push_back({c_awaddr_i[64*c+:64], c_awlen_i[8*c+:8]});
          shapes[c].push_back({c_awaddr_i[64*c+:64], c_awlen_i[8*c+:8]});
        end
        if (c_wvalid_i[c] && c_wready_o[c]) begin
          `TSR_ASSERT(shapes[c].size() != 0, "data taken before their burst")
          if (shapes[c].size() != 0) begin
            burst = shapes[c][0];
            lane = (32'(burst[71:8]) % MemoryBytes / AxiBytes + beat[c]) % Ratio;
            coming[c][8*AxiBytes*lane+:8*AxiBytes] = c_wdata_i[8*AxiBytes*c+:8*AxiBytes];
            coming[c][8*MemoryBytes+AxiBytes*lane+:AxiBytes] = c_wstrb_i[AxiBytes*c+:AxiBytes];
            `TSR_ASSERT(c_wlast_i[c] == (beat[c] == 32'(burst[7:0])), "wlast of a core on the wrong beat")
            if (c_wlast_i[c] || lane == Ratio - 1) begin
              words[c].push_back(coming[c]);
              coming[c] = '0;
            end
            beat[c] = c_wlast_i[c] ? 0 : beat[c] + 1;
            if (c_wlast_i[c]) begin
              void'(shapes[c].pop_front());
              whole[c] = whole[c] + 1;
            end
          end
        end
      end
    end
  end

endmodule

bind tsr_share_write tsr_assert_share_write #(
  .Cores(Cores), .AxiBytes(AxiBytes), .MemoryBytes(MemoryBytes)
) u_assert (.*);
