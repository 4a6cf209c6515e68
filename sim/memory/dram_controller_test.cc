// SPDX-License-Identifier: Apache-2.0
// The controller's cycles beside LiteDRAM's, and the storage behind it beside a plain array.
//
// kRecorded has what LiteDRAM's controller and AXI port took, verilated. tests/litex builds them and compares every
// beat of these and other sequences; the table is the second column of
//     python tests/litex/dram_traffic.py WIDTH SPAN WHOLE | dram_bench PRESET WIDTH
#include "sim/memory/dram_controller.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/error.h"
#include "sim/memory/dram_model.h"

namespace tessera::sim {
namespace {

struct Burst {
  uint64_t address;
  int beats;
  uint64_t cycle;  // offered then or later
};

/// Cycles until all reads have come and all writes are answered; a master with 32 reads and 16 writes in flight.
uint64_t cycles_of(const char* preset, int width, const std::vector<Burst>& reads, const std::vector<Burst>& writes) {
  constexpr uint64_t kStart = 200;  // as the recorded sequences, within the interval of a refresh
  DramController dram(isa::dram_preset(preset), 0, width);
  size_t read = 0, read_done = 0, write = 0, answered = 0, data = 0, shown = 0;
  int beat = 0, read_beat = 0;
  for (uint64_t now = 0; now < 1'000'000; ++now) {
    DramController::Inputs in;
    const uint64_t at = now < kStart ? 0 : now - kStart;
    const size_t was_shown = shown;
    if (now >= kStart && read < reads.size() && at >= reads[read].cycle && read - read_done < 32) {
      in.ar_valid = true;
      in.ar_address = reads[read].address;
      in.ar_beats = reads[read].beats;
    }
    if (now >= kStart && write < writes.size() && at >= writes[write].cycle && write - answered < 16) {
      in.aw_valid = true;
      in.aw_address = writes[write].address;
      in.aw_beats = writes[write].beats;
      shown = write + 1;
    }
    in.w_valid = data < was_shown;
    in.r_ready = in.b_ready = true;
    const DramController::Outputs out = dram.outputs();
    dram.clock(in);
    read += in.ar_valid && out.ar_ready ? 1 : 0;
    write += in.aw_valid && out.aw_ready ? 1 : 0;
    if (in.w_valid && out.w_ready && ++beat == writes[data].beats) {
      beat = 0;
      ++data;
    }
    if (out.r_valid && ++read_beat == reads[read_done].beats) {
      read_beat = 0;
      ++read_done;
    }
    answered += out.b_valid ? 1 : 0;
    if (read_done == reads.size() && answered == writes.size()) return at;
  }
  return 0;
}

struct Recorded {
  const char* preset;
  int width;                                                     // bytes of a beat
  uint64_t whole;                                                // bytes of a short burst
  uint64_t span;                                                 // bytes
  uint64_t stream_read, stream_write, stride_row, turns, mixed;  // cycles
};
constexpr Recorded kRecorded[] = {
    {"sdr-50x16", 8, 8, 1 << 21, 5173, 5228, 1324, 3277, 13045},
    {"sdr-100x16", 8, 8, 1 << 21, 3112, 3148, 1074, 2045, 7870},
    {"ddr3-300x16", 16, 16, 1 << 23, 2560, 2633, 1141, 2049, 4640},
    {"ddr3-800x16", 16, 16, 1 << 23, 1144, 1156, 1082, 1500, 2479},
    {"ddr3-800x16", 8, 16, 1 << 23, 2123, 2113, 1084, 1500, 2479},
    {"ddr4-2400x16", 16, 16, 1 << 23, 1115, 1116, 2055, 1905, 2957},
    {"lpddr4-1600x16", 32, 32, 1 << 23, 4541, 4666, 1541, 1639, 3763},
};

TEST(DramController, CyclesAreLiteDrams) {
  for (const Recorded& r : kRecorded) {
    SCOPED_TRACE(std::string(r.preset) + ", beats of " + std::to_string(r.width));
    const auto bursts = [&](int count, uint64_t from, uint64_t step, uint64_t bytes, uint64_t cycles) {
      std::vector<Burst> found;
      for (uint64_t k = 0; k < static_cast<uint64_t>(count); ++k) {
        found.push_back({(from + k * step) % r.span, static_cast<int>(bytes) / r.width, k * cycles});
      }
      return found;
    };
    const auto stream = bursts(64, 0, 16 * r.whole, 16 * r.whole, 0);
    EXPECT_EQ(cycles_of(r.preset, r.width, stream, {}), r.stream_read);
    EXPECT_EQ(cycles_of(r.preset, r.width, {}, stream), r.stream_write);
    EXPECT_EQ(cycles_of(r.preset, r.width, bursts(128, 0, 16384, 2 * r.whole, 0), {}), r.stride_row);
    EXPECT_EQ(cycles_of(r.preset, r.width, bursts(40, 0, 64, 64, 20), bursts(40, 65536, 64, 64, 20)), r.turns);
    EXPECT_EQ(cycles_of(r.preset, r.width, bursts(40, 0, 256, 256, 0), bursts(40, 65536, 256, 256, 0)), r.mixed);
  }
}

TEST(DramController, QuietCyclesMayBeSkipped) {
  DramController stepped(isa::dram_preset("ddr3-800x16"), 0, 16), skipped = stepped;
  for (int cycle = 0; cycle < 3000; ++cycle) stepped.clock({});
  while (skipped.now() < 3000) {
    const uint64_t cycles = skipped.quiet() ? std::min<uint64_t>(skipped.quiet_cycles(), 3000 - skipped.now()) : 0;
    if (cycles > 0) {
      skipped.skip(cycles);
    } else {
      skipped.clock({});
    }
  }
  EXPECT_EQ(stepped.counters().refreshes, 3U);
  EXPECT_EQ(skipped.counters().refreshes, 3U);
  EXPECT_EQ(stepped.quiet(), skipped.quiet());
  EXPECT_EQ(stepped.quiet_cycles(), skipped.quiet_cycles());
}

/// Random bursts, one side at a time in a place, against a plain array.
void expect_storage(const char* preset, int width, int pressure, uint64_t seed) {
  constexpr uint64_t kBase = 4096;
  std::vector<uint8_t> storage(1 << 15), wanted(storage.size());
  DramModel dram({.beat_bytes = width, .pressure_percent = pressure, .seed = seed, .spec = isa::dram_preset(preset)},
                 kBase, storage.data(), storage.size());
  std::mt19937_64 random(seed);
  const auto beat = static_cast<uint64_t>(width);
  for (int round = 0; round < 60; ++round) {
    const bool writes = random() % 2 == 0;
    const int beats = 1 + static_cast<int>(random() % 40);
    const uint64_t first = random() % (storage.size() / beat - 40) * beat;
    std::vector<uint8_t> data(static_cast<size_t>(beats) * beat);
    for (uint8_t& byte : data) byte = static_cast<uint8_t>(random());
    bool asked = false, answered = false;
    int moved = 0;
    for (int cycle = 0; !answered; ++cycle) {
      ASSERT_LT(cycle, 100'000);
      const uint64_t strobe = moved % 3 == 0 ? ~uint64_t{0} : 0x5a5a5a5a5a5a5a5aU;
      DramInputs in;
      (writes ? in.aw_valid : in.ar_valid) = !asked;
      in.aw_address = in.ar_address = kBase + first;
      in.aw_beats = in.ar_beats = beats;
      in.w_valid = writes && cycle > 0 && moved < beats;
      in.w_data = in.w_valid ? &data[static_cast<size_t>(moved) * beat] : nullptr;
      in.w_strobe = strobe;
      in.r_ready = in.b_ready = cycle % 3 != 1;
      const DramOutputs& out = dram.cycle(in);
      asked = asked || (writes ? out.aw_ready : out.ar_ready);
      const uint64_t place = first + static_cast<uint64_t>(moved) * beat;
      if (in.w_valid && out.w_ready) {
        for (uint64_t n = 0; n < beat; ++n) {
          if (strobe >> n & 1) wanted[place + n] = data[static_cast<size_t>(moved) * beat + n];
        }
        ++moved;
      } else if (!writes && out.r_valid && in.r_ready) {
        for (uint64_t n = 0; n < beat; ++n) ASSERT_EQ(out.r_data[n], wanted[place + n]) << preset << " round " << round;
        EXPECT_EQ(out.r_last, ++moved == beats);
        answered = moved == beats;
      }
      if (writes && out.b_valid && in.b_ready) {
        EXPECT_FALSE(out.b_error);
        EXPECT_EQ(moved, beats);
        answered = true;
      }
    }
  }
  EXPECT_EQ(storage, wanted);
  EXPECT_TRUE(dram.idle());
}

TEST(DramController, StorageHoldsWhatIsWritten) {
  for (const std::string& preset : isa::dram_presets()) {
    for (const int width : {4, 8, 16, 32, 64}) {
      expect_storage(preset.c_str(), width, 0, 1);
      expect_storage(preset.c_str(), width, 40, 2);
    }
  }
}

TEST(DramController, ErrorsByRangeAndOutside) {
  std::vector<uint8_t> storage(256);
  DramModel dram({.spec = isa::dram_preset("ddr3-800x16")}, 0, storage.data(), storage.size());
  dram.fail_reads(8, 8);
  std::vector<bool> errors;
  DramInputs in;
  in.r_ready = true;
  for (const uint64_t address : {0, 248}) {
    in.ar_valid = true;
    in.ar_address = address;
    in.ar_beats = 2;
    for (int beats = 0; beats < 2;) {
      const DramOutputs& out = dram.cycle(in);
      in.ar_valid = in.ar_valid && !out.ar_ready;
      if (!out.r_valid) continue;
      errors.push_back(out.r_error);
      ++beats;
    }
  }
  EXPECT_EQ(errors, (std::vector<bool>{false, true, false, true}));
}

TEST(DramController, RowsTurnsAndRefreshesAreCounted) {
  const isa::DramSpec spec = isa::dram_preset("ddr3-800x16");
  EXPECT_EQ(spec.word_bytes(), 16);
  EXPECT_EQ(spec.row_bytes(), 2048);
  EXPECT_EQ(spec.peak_bytes(), 16);
  DramController dram(spec, 0, 16);
  DramController::Inputs in;
  in.r_ready = true;
  for (int burst = 0; burst < 4; ++burst) {  // two rows of one bank, in turns
    in.ar_valid = true;
    in.ar_address = static_cast<uint64_t>(burst % 2) * 8 * 2048;
    in.ar_beats = 4;
    while (in.ar_valid) {
      in.ar_valid = !dram.outputs().ar_ready;
      DramController::Inputs now = in;
      now.ar_valid = true;
      dram.clock(now);
    }
  }
  in.ar_valid = false;
  while (!dram.quiet()) dram.clock(in);
  EXPECT_EQ(dram.counters().commands, 16U);
  EXPECT_EQ(dram.counters().rows, 4U);
  EXPECT_EQ(dram.counters().turns, 0U);
  EXPECT_GE(dram.counters().row_cycles, 3U * static_cast<unsigned>(spec.t_rp + spec.t_rcd));
}

TEST(DramPreset, RefusesWhatItDoesNotKnow) {
  for (const char* name :
       {"", "ddr3", "ddr3-800", "ddr3-800x", "ddr3-800x12", "ddr3-800x128", "lpddr4-1600x64", "x16"}) {
    EXPECT_THROW(isa::dram_preset(name), Error) << name;
  }
  try {
    isa::dram_preset("ddr9-1x16");
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("known: ideal, sdr-50x16"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tessera::sim
