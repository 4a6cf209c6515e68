// SPDX-License-Identifier: Apache-2.0
// Cycles of chips, timing model against RTL: reads and writes that contend for the master, hand-overs by publish and
// await, and random programs. All bytes are equal, too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "isa/assembler.h"
#include "sim/systemc/machine.h"
#include "sim/tests/random_chip.h"
#include "sim/verilator/chip.h"

namespace tessera::sim::systemc {
namespace {

using testing::RandomChip;

/// Those of this build; TESSERA_CHIP_TEST=a.toml,b.toml names others, which are verilated first.
std::vector<isa::MachineConfig> chips() {
  std::vector<isa::MachineConfig> found;
  if (const char* text = std::getenv("TESSERA_CHIP_TEST")) {
    std::stringstream names(text);
    for (std::string name; std::getline(names, name, ',');) found.push_back(isa::find_config(name));
    return found;
  }
  for (const isa::MachineConfig& config : rtl_configs()) {
    if (config.cores > 1) found.push_back(config);
  }
  return found;
}

struct Cycles {
  std::vector<double> model, rtl;  // by core, to its end
  double worst() const {
    double most = 0;
    for (size_t k = 0; k < rtl.size(); ++k) most = std::max(most, rtl[k] == 0 ? 0 : std::abs(model[k] / rtl[k] - 1));
    return most;
  }
  double chip_error() const {
    const double end = *std::max_element(rtl.begin(), rtl.end());
    return std::abs(*std::max_element(model.begin(), model.end()) / end - 1);
  }
};

class Both {
 public:
  explicit Both(const isa::MachineConfig& config) : config_(config), rtl_(make_rtl_chip(config)), model_(config) {}

  Cycles run(RandomChip chip, int latency, const char* preset = nullptr) {
    RtlChipRequest request;
    std::vector<TimedRequest> timed(chip.programs.size());
    for (size_t k = 0; k < timed.size(); ++k) {
      const uint64_t at = chip.dram_address + chip.dram.size();
      for (const isa::Instruction& instruction : chip.programs[k]) {
        const isa::Word word = isa::encode(instruction);
        chip.dram.insert(chip.dram.end(), word.begin(), word.end());
      }
      timed[k].program_address = at;
      timed[k].instruction_count = static_cast<uint32_t>(chip.programs[k].size());
      timed[k].bases = chip.bases;
      request.cores.push_back({at, timed[k].instruction_count, chip.bases, {}});
      model_.functional(k).poison(k);
      model_.functional(k).write_scratchpad(isa::Space::kParam, 0, chip.param);
      for (int s = 0; s < isa::kSpaces; ++s) {
        const auto space = static_cast<isa::Space>(s);
        rtl_->core(k).write_scratchpad(space, 0, model_.functional(k).scratchpad(space));
      }
    }
    DramOptions options{.beat_bytes = config_.memory_bytes(), .latency_cycles = latency};
    if (preset != nullptr) options.spec = isa::dram_preset(preset);
    std::vector<uint8_t> other = chip.dram;
    const DramRegion region{chip.dram_address, other.data(), other.size()};
    for (TimedRequest& one : timed) {
      one.window_first = chip.dram_address;
      one.window_last = chip.dram_address + other.size() - 1;
      one.dram = {&region, 1};
      one.timing = options;
      one.memory_address = chip.dram_address;
    }
    request.window_first = timed[0].window_first;
    request.window_last = timed[0].window_last;
    request.max_cycles = 4'000'000;
    DramModel dram(options, chip.dram_address, chip.dram.data(), chip.dram.size());
    const RtlChipResult wanted = rtl_->run(request, dram);
    const std::vector<TimedResult> actual = model_.run(timed);
    Cycles cycles;
    for (size_t k = 0; k < timed.size(); ++k) {
      EXPECT_EQ(actual[k].fault, wanted.cores[k].fault) << "core " << k;
      cycles.model.push_back(static_cast<double>(actual[k].cycles));
      cycles.rtl.push_back(static_cast<double>(wanted.cores[k].cycles));
    }
    EXPECT_EQ(other, chip.dram);
    return cycles;
  }

  RandomChip by_hand(const std::vector<std::string>& texts) const {
    RandomChip chip;
    for (const std::string& text : texts)
      chip.programs.push_back(text.empty() ? std::vector<isa::Instruction>() : isa::assemble(text + "finish"));
    chip.programs.resize(static_cast<size_t>(config_.cores));
    chip.dram.resize(1 << 16);
    chip.dram_address = 1 << 20;
    chip.bases.fill(chip.dram_address);
    chip.param.resize(static_cast<size_t>(config_.param_bytes));
    return chip;
  }

 private:
  isa::MachineConfig config_;
  std::unique_ptr<RtlChip> rtl_;
  TimedMachine model_;
};

std::string loads(int count, int length, int from) {
  std::string text;
  for (int n = 0; n < count; ++n) {
    text +=
        "load space=acc length=" + std::to_string(length) + " dram_offset=" + std::to_string(from + n * length) + "\n";
  }
  return text;
}

std::string stores(int count, int length, int to) {
  std::string text;
  for (int n = 0; n < count; ++n) {
    text +=
        "store space=acc length=" + std::to_string(length) + " dram_offset=" + std::to_string(to + n * length) + "\n";
  }
  return text;
}

TEST(RtlChipTiming, ReadsAndWrites) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    for (const int latency : {20, 100}) {
      for (const int length : {32, 100, 512}) {
        const std::string what =
            config.name + ", latency " + std::to_string(latency) + ", length " + std::to_string(length);
        SCOPED_TRACE(what);
        const auto report = [&](const char* name, const Cycles& cycles) {
          std::printf("%s, %s:", what.c_str(), name);
          for (size_t k = 0; k < cycles.rtl.size(); ++k) std::printf(" %.0f/%.0f", cycles.model[k], cycles.rtl[k]);
          std::printf("\n");
        };
        const int count = 8192 / length;
        Cycles cycles = both.run(both.by_hand({loads(count, length, 0)}), latency);
        report("a core alone reads", cycles);
        EXPECT_LT(cycles.worst(), 0.01);
        cycles = both.run(both.by_hand({loads(count, length, 0), loads(count, length, 8), loads(count, length, 4096)}),
                          latency);
        report("all read", cycles);
        EXPECT_LT(cycles.worst(), 0.02);
        cycles = both.run(both.by_hand({stores(count, length, 0)}), latency);
        report("a core alone writes", cycles);
        EXPECT_LT(cycles.worst(), 0.02);
        cycles = both.run(
            both.by_hand({stores(count, length, 0), stores(count, length, 16384), stores(count, length, 32768)}),
            latency);
        report("all write", cycles);
        EXPECT_LT(cycles.worst(), 0.02);
        cycles =
            both.run(both.by_hand({loads(count, length, 0), stores(count, length, 16384), loads(count, length, 32768)}),
                     latency);
        report("some read, one writes", cycles);
        EXPECT_LT(cycles.worst(), 0.03);
      }
    }
  }
}

/// Runs of a few beats, each a burst, and FENCEs that expect an answer among theirs and hold up nothing behind them.
TEST(RtlChipTiming, ShortRunsBetweenFences) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    std::vector<std::string> texts(2);
    for (int n = 0; n < 6; ++n) {
      for (size_t core = 0; core < 2; ++core) {
        texts[core] +=
            "store space=acc length=40 extent=1,1,1,12 dram_stride=0,0,0,96 sp_stride=0,0,0,48 dram_offset=" +
            std::to_string((2 * n + static_cast<int>(core)) * 2048) + "\nfence engine=store publish\n";
      }
    }
    for (const int latency : {20, 100}) {
      const Cycles cycles = both.run(both.by_hand(texts), latency);
      for (size_t k = 0; k < 2; ++k) EXPECT_EQ(cycles.model[k], cycles.rtl[k]) << config.name << ", core " << k;
    }
  }
}

TEST(RtlChipTiming, HandOvers) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    std::vector<std::string> texts(2);
    for (int n = 1; n <= 20; ++n) {
      const std::string count = std::to_string(n);
      texts[0] += "fence engine=store publish wait=load:" + std::to_string(n - 1) +
                  "\nfence engine=load await await_core=1 await_count=" + count + " signal\n";
      texts[1] += "fence engine=load await await_core=0 await_count=" + count +
                  " signal\nfence engine=store publish wait=load:" + count + "\n";
    }
    const Cycles cycles = both.run(both.by_hand(texts), 50);
    for (size_t k = 0; k < 2; ++k) EXPECT_NEAR(cycles.model[k], cycles.rtl[k], 2) << "core " << k;
  }
}

TEST(RtlChipTiming, RandomPrograms) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    double model = 0, rtl = 0, worst = 0;
    const bool small = config.inp_bytes < 4096;
    for (uint64_t seed = 1; seed <= (small ? 60U : 12U) && !HasFailure(); ++seed) {
      SCOPED_TRACE(config.name + ", seed " + std::to_string(seed));
      const RandomChip program = testing::RandomChipMaker(config, seed, {{.instructions = 30}}).make();
      const Cycles cycles =
          both.run(program, static_cast<int>(20 + seed * 37 % 150), seed % 5 == 0 ? "ddr3-800x16" : nullptr);
      model += *std::max_element(cycles.model.begin(), cycles.model.end());
      rtl += *std::max_element(cycles.rtl.begin(), cycles.rtl.end());
      worst = std::max(worst, cycles.chip_error());
    }
    std::printf("%s: %.0f cycles by the model, %.0f by the RTL (%.2f %%), worst %.1f %%\n", config.name.c_str(), model,
                rtl, 100 * (model / rtl - 1), 100 * worst);
    EXPECT_NEAR(model / rtl, 1, 0.005);
    EXPECT_LT(worst, 0.05);
  }
}

}  // namespace
}  // namespace tessera::sim::systemc
