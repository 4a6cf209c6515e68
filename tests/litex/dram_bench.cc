// SPDX-License-Identifier: Apache-2.0
// The same AXI traffic on LiteDRAM's controller, verilated, and on sim/memory's: the cycle of every beat and response
// is compared.
//
//     dram_bench PRESET AXI_BYTES < TRAFFIC
//
// TRAFFIC has one sequence after another. A sequence is a line `run NAME READS WRITES EVERY`, with the bursts that may
// be in flight each way and the cycles of which one takes read data, then lines `r ADDRESS BEATS CYCLE` and `w ADDRESS
// BEATS CYCLE`: a burst is offered in that cycle of its sequence or later, behind those of its kind. For each sequence
// one line comes out: NAME, cycles of LiteDRAM, cycles of the model, beats and responses, how many of them came in
// another cycle.
#include <verilated.h>

#include <cstdint>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "Vlitedram_port.h"
#include "isa/dram.h"
#include "sim/memory/dram_controller.h"

namespace {

using tessera::sim::DramController;

struct Burst {
  uint64_t address = 0;
  int beats = 1;
  uint64_t cycle = 0;
};

struct Sequence {
  std::string name;
  size_t reads_in_flight = 1, writes_in_flight = 1;
  uint64_t every = 1;
  std::vector<Burst> reads, writes;
};

/// A master that plays one sequence, and what came when.
class Master {
 public:
  Master(const Sequence& sequence, uint64_t start) : sequence_(sequence), start_(start) {}

  DramController::Inputs drive(uint64_t now) {
    DramController::Inputs in;
    const uint64_t at = now - start_;
    const auto& [name, reads_in_flight, writes_in_flight, every, reads, writes] = sequence_;
    if (read_ < reads.size() && at >= reads[read_].cycle && read_ - read_done_ < reads_in_flight) {
      in.ar_valid = true;
      in.ar_address = reads[read_].address;
      in.ar_beats = reads[read_].beats;
    }
    if (write_ < writes.size() && at >= writes[write_].cycle && write_ - answered_ < writes_in_flight) {
      in.aw_valid = true;
      in.aw_address = writes[write_].address;
      in.aw_beats = writes[write_].beats;
      shown_ = write_ + 1;
    }
    in.w_valid = data_ < shown_was_;
    shown_was_ = shown_;
    in.r_ready = at % every == 0;
    in.b_ready = true;
    last_beat = in.w_valid && beat_ + 1 == writes[data_].beats;
    return in;
  }

  void seen(uint64_t now, const DramController::Inputs& in, const DramController::Outputs& out) {
    if (in.ar_valid && out.ar_ready) ++read_;
    if (in.aw_valid && out.aw_ready) ++write_;
    if (in.w_valid && out.w_ready && ++beat_ == sequence_.writes[data_].beats) {
      beat_ = 0;
      ++data_;
    }
    if (out.r_valid && in.r_ready) {
      came.push_back(now - start_);
      if (++read_beat_ == sequence_.reads[read_done_].beats) {
        read_beat_ = 0;
        ++read_done_;
      }
    }
    if (out.b_valid) {
      responded.push_back(now - start_);
      ++answered_;
    }
    if (done() && over == 0) over = now - start_;
  }
  bool done() const { return read_done_ == sequence_.reads.size() && answered_ == sequence_.writes.size(); }

  std::vector<uint64_t> came, responded;
  uint64_t over = 0;
  bool last_beat = false;

 private:
  const Sequence& sequence_;
  uint64_t start_;
  size_t read_ = 0, read_done_ = 0, write_ = 0, answered_ = 0, data_ = 0, shown_ = 0, shown_was_ = 0;
  int beat_ = 0, read_beat_ = 0;
};

std::vector<Sequence> sequences(std::istream& from) {
  std::vector<Sequence> found;
  for (std::string line, word; std::getline(from, line);) {
    std::istringstream words(line);
    if (!(words >> word)) continue;
    if (word == "run") {
      Sequence& s = found.emplace_back();
      words >> s.name >> s.reads_in_flight >> s.writes_in_flight >> s.every;
      continue;
    }
    Burst burst;
    words >> burst.address >> burst.beats >> burst.cycle;
    (word == "r" ? found.back().reads : found.back().writes).push_back(burst);
  }
  return found;
}

size_t differing(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  size_t count = a.size() > b.size() ? a.size() - b.size() : b.size() - a.size();
  for (size_t n = 0; n < std::min(a.size(), b.size()); ++n) count += a[n] != b[n] ? 1 : 0;
  return count;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: dram_bench PRESET AXI_BYTES < TRAFFIC\n";
    return 2;
  }
  const int bytes = std::stoi(argv[2]);
  int size = 0;
  while (1 << size < bytes) ++size;
  for (const Sequence& sequence : sequences(std::cin)) {
    VerilatedContext context;
    Vlitedram_port port(&context);
    DramController model(tessera::isa::dram_preset(argv[1]), 0, bytes);
    constexpr uint64_t kStart = 200;  // the counters of a reset have run out
    constexpr uint64_t kLimit = 50'000'000;
    Master ours(sequence, kStart), theirs(sequence, kStart);
    const auto clock = [&] {
      port.sys_clk = 1;
      port.eval();
      port.sys_clk = 0;
      port.eval();
    };
    port.sys_rst = 1;
    clock();
    clock();
    port.sys_rst = 0;
    port.eval();
    for (uint64_t now = 0; now < kLimit && !(ours.done() && theirs.done()); ++now) {
      const bool playing = now >= kStart;
      const DramController::Inputs mine = playing ? ours.drive(now) : DramController::Inputs{};
      if (playing) ours.seen(now, mine, model.outputs());
      model.clock(mine);
      const DramController::Inputs in = playing ? theirs.drive(now) : DramController::Inputs{};
      port.ar_valid = in.ar_valid;
      port.ar_payload_addr = static_cast<uint32_t>(in.ar_address);
      port.ar_payload_len = static_cast<uint8_t>(in.ar_beats - 1);
      port.aw_valid = in.aw_valid;
      port.aw_payload_addr = static_cast<uint32_t>(in.aw_address);
      port.aw_payload_len = static_cast<uint8_t>(in.aw_beats - 1);
      port.ar_payload_size = port.aw_payload_size = static_cast<uint8_t>(size);
      port.ar_payload_burst = port.aw_payload_burst = 1;
      port.w_valid = in.w_valid;
      port.w_last = in.w_valid && theirs.last_beat;
      port.r_ready = in.r_ready;
      port.b_ready = in.b_ready;
      port.eval();
      if (playing) {
        theirs.seen(now, in,
                    {port.ar_ready != 0, port.r_valid != 0, port.aw_ready != 0, port.w_ready != 0, port.b_valid != 0});
      }
      clock();
    }
    std::cout << sequence.name << ' ' << theirs.over << ' ' << ours.over << ' '
              << theirs.came.size() + theirs.responded.size() << ' '
              << differing(ours.came, theirs.came) + differing(ours.responded, theirs.responded) << '\n';
  }
}
