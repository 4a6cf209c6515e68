// SPDX-License-Identifier: Apache-2.0
// Chips of several cores in RTL and in the functional simulator: every byte of DRAM and of the scratchpads, the records
// and the counters that do not depend on time are equal. Cores contend for the port, hand each other what shares a beat
// of it, fault, and wait for what never comes.
#include "sim/verilator/chip.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <sstream>

#include "isa/generated/registers.h"
#include "sim/functional/chip.h"
#include "sim/tests/random_program.h"

namespace tessera::sim {
namespace {

using isa::Engine;
using isa::Fault;
using Program = std::vector<isa::Instruction>;

constexpr uint64_t kBase = uint64_t{1} << 32;
constexpr size_t kRegion = size_t{1} << 18;  // DRAM of a core: data, and its program from the half on

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

uint64_t programs(uint64_t few) {
  const char* text = std::getenv("TESSERA_RANDOM");
  return text == nullptr ? few : std::strtoull(text, nullptr, 10);
}

isa::Wait after(Engine engine, int count) { return {true, engine, static_cast<uint16_t>(count)}; }

template <typename Instruction>
Instruction with(Instruction instruction, std::initializer_list<isa::Wait> waits) {
  instruction.header.signal = true;
  size_t k = 0;
  for (const isa::Wait& wait : waits) instruction.header.waits[k++] = wait;
  return instruction;
}

isa::Fence publish() {
  isa::Fence fence;
  fence.engine = Engine::kStore;
  fence.publish = true;
  return fence;
}

isa::Fence await(Engine engine, size_t core, int count) {
  isa::Fence fence;
  fence.engine = engine;
  fence.await = true;
  fence.await_core = static_cast<uint8_t>(core);
  fence.await_count = static_cast<uint16_t>(count);
  return fence;
}

isa::Load load(uint64_t from, size_t length) {
  isa::Load i;
  i.space = isa::Space::kOut;
  i.length = static_cast<uint16_t>(length);
  i.dram_offset = from;
  return i;
}

isa::Store store(uint64_t to, size_t length) {
  isa::Store i;
  i.space = isa::Space::kOut;
  i.length = static_cast<uint16_t>(length);
  i.dram_offset = to;
  return i;
}

class Both {
 public:
  explicit Both(const isa::MachineConfig& config)
      : config_(config), rtl_(make_rtl_chip(config)), functional_(config), count_(static_cast<size_t>(config.cores)) {}

  size_t cores() const { return count_; }
  RtlChip& rtl() { return *rtl_; }

  /// One program a core, with its bases; DRAM is kBase on.
  struct Case {
    std::vector<Program> programs;
    std::vector<std::array<uint64_t, 16>> bases;
    std::vector<uint8_t> dram;
    uint64_t seed = 1;
    int pressure_percent = 0;
    std::vector<Interval> failing_reads;
  };

  Case make_case() const {
    Case made;
    made.programs.resize(count_);
    made.bases.resize(count_);
    for (auto& bases : made.bases) bases.fill(kBase);
    made.dram.resize(count_ * kRegion);
    std::mt19937_64 random(made.seed);
    for (uint8_t& byte : made.dram) byte = static_cast<uint8_t>(random());
    return made;
  }

  RtlChipResult run(Case tried) {
    SCOPED_TRACE(config_.name + ", seed " + std::to_string(tried.seed));
    RtlChipRequest request;
    std::vector<RunRequest> cores(count_);
    for (size_t c = 0; c < count_; ++c) {
      const size_t at = c * kRegion + kRegion / 2;
      size_t end = at;
      for (const isa::Instruction& instruction : tried.programs[c]) {
        const isa::Word word = isa::encode(instruction);
        std::copy(word.begin(), word.end(), tried.dram.begin() + static_cast<std::ptrdiff_t>(end));
        end += word.size();
      }
      functional_.core(c).poison(tried.seed + c);
      for (int s = 0; s < isa::kSpaces; ++s) {
        const auto space = static_cast<isa::Space>(s);
        rtl_->core(c).write_scratchpad(space, 0, functional_.core(c).scratchpad(space));
      }
      request.cores.push_back({kBase + at, static_cast<uint32_t>(tried.programs[c].size()), tried.bases[c], {}});
      cores[c].program_address = kBase + at;
      cores[c].instruction_count = static_cast<uint32_t>(tried.programs[c].size());
      cores[c].bases = tried.bases[c];
      cores[c].failing_reads = tried.failing_reads;
    }
    std::vector<uint8_t> rtl_dram = tried.dram;
    const DramRegion region{kBase, tried.dram.data(), tried.dram.size()};
    for (RunRequest& core : cores) core.dram = {&region, 1};
    ChipRequest expected_request;
    expected_request.cores = cores;
    const ChipResult expected = functional_.run(expected_request);

    DramModel model({.beat_bytes = config_.memory_bytes(),
                     .latency_cycles = 20 + static_cast<int>(tried.seed % 100),
                     .pressure_percent = tried.pressure_percent,
                     .seed = tried.seed},
                    kBase, rtl_dram.data(), rtl_dram.size());
    for (const Interval& refused : tried.failing_reads) model.fail_reads(refused.begin, refused.end - 1);
    request.window_first = kBase;
    request.window_last = kBase + rtl_dram.size() - 1;
    request.max_cycles = 4000000;
    rtl_->set_register_delay(tried.pressure_percent > 0 ? 3 : 0);
    const RtlChipResult actual = rtl_->run(request, model);
    compare(actual, expected);
    EXPECT_TRUE(model.idle());
    const auto at = std::mismatch(tried.dram.begin(), tried.dram.end(), rtl_dram.begin()).first - tried.dram.begin();
    EXPECT_EQ(static_cast<size_t>(at), rtl_dram.size()) << "DRAM differs at byte " << at;
    return actual;
  }

 private:
  void compare(const RtlChipResult& actual, const ChipResult& expected) {
    for (size_t c = 0; c < count_; ++c) {
      SCOPED_TRACE("core " + std::to_string(c));
      const RtlResult& got = actual.cores[c];
      const RunResult& wanted = expected.cores[c];
      EXPECT_EQ(got.fault.code, wanted.fault.code)
          << to_string(got.fault.code) << ", not " << to_string(wanted.fault.code);
      if (got.fault.code != Fault::kNone || wanted.fault.code != Fault::kNone) {
        EXPECT_EQ(got.fault.unit, wanted.fault.unit);
        EXPECT_EQ(got.fault.pc, wanted.fault.pc);
        continue;
      }
      for (int s = 0; s < isa::kSpaces; ++s) {
        const auto space = static_cast<isa::Space>(s);
        const auto memory = functional_.core(c).scratchpad(space);
        const auto bytes = rtl_->core(c).scratchpad(space);
        EXPECT_TRUE(std::equal(memory.begin(), memory.end(), bytes.begin())) << to_string(space) << " differs";
      }
      EXPECT_EQ(got.bytes_read, wanted.counters.dram_read_bytes + wanted.counters.fetch_bytes);
      EXPECT_EQ(got.bytes_written, wanted.counters.dram_write_bytes);
      for (size_t u = 0; u < got.units.size(); ++u)
        EXPECT_EQ(got.units[u].executed, wanted.counters.instructions[u]) << u;
    }
  }

  isa::MachineConfig config_;
  std::unique_ptr<RtlChip> rtl_;
  Chip functional_;
  size_t count_;
};

/// Cores hand each other `length` bytes, round after round. What core k writes in a round lies between what its
/// neighbours write, in the same beats of the shared bus.
Both::Case ring(const Both& both, size_t length, int rounds, uint64_t seed) {
  Both::Case made = both.make_case();
  made.seed = seed;
  const size_t cores = both.cores();
  const auto place = [&](size_t core, int round) { return 5 + (static_cast<size_t>(round) * cores + core) * length; };
  for (size_t c = 0; c < cores; ++c) {
    Program& program = made.programs[c];
    int stored = 0;  // signals of STORE
    for (int round = 0; round < rounds; ++round) {
      const size_t of = (c + 1 + static_cast<size_t>(round)) % cores;
      if (round > 0 && round % 2 == 0) program.emplace_back(await(Engine::kLoad, of, round));
      if (round > 0 && round % 2 == 1) {  // STORE waits for the other core, and LOAD for STORE
        program.emplace_back(with(await(Engine::kStore, of, round), {}));
        ++stored;
      }
      isa::Load taken = load(place(of, round), length);
      if (stored > 0) taken = with(taken, {after(Engine::kStore, stored)});
      taken.header.signal = true;
      program.emplace_back(taken);
      program.emplace_back(with(store(place(c, round + 1), length), {after(Engine::kLoad, round + 1)}));
      isa::Fence end = publish();
      end.header.waits[0] = after(Engine::kStore, ++stored);
      program.emplace_back(end);
    }
    program.emplace_back(isa::Finish{});
  }
  return made;
}

/// A random program in its core's own half of a region.
void add_random(Both::Case& made, const isa::MachineConfig& config, size_t core, uint64_t seed, int instructions) {
  testing::RandomLimits limits;
  limits.instructions = instructions;
  testing::RandomProgramMaker maker(config, seed, limits);
  const testing::RandomProgram program = maker.make();
  const uint64_t region = kBase + core * kRegion;
  made.programs[core] = program.instructions;
  for (size_t b = 0; b < 16; ++b) made.bases[core][b] = program.bases[b] - program.dram_address + region;
  std::copy(program.dram.begin(), program.dram.end(), made.dram.begin() + static_cast<std::ptrdiff_t>(core * kRegion));
}

TEST(RtlChip, CoresHandEachOtherBytes) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    for (const size_t length : {1, 7, 8, 31, 32, 33, 100, 255}) {
      const RtlChipResult result = both.run(ring(both, length, 6, length));
      for (const RtlResult& core : result.cores) EXPECT_EQ(core.fault.code, Fault::kNone);
      if (HasFailure()) return;
    }
  }
}

TEST(RtlChip, RandomProgramsSideBySide) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    for (uint64_t seed = 1; seed <= programs(20) && !HasFailure(); ++seed) {
      Both::Case made = both.make_case();
      made.seed = seed;
      made.pressure_percent = seed % 3 == 0 ? 50 : 0;
      for (size_t c = 0; c < both.cores(); ++c) {
        if ((seed + c) % 7 != 0) add_random(made, config, c, 1000 * seed + c, 30);
      }
      both.run(made);
    }
  }
}

TEST(RtlChip, OneCoresFaultEndsIt) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    Both::Case made = ring(both, 40, 2 * config.cores + 1, 9);
    // Core 0's second LOAD leaves the window: sooner or later all others wait for what it would have published.
    std::get<isa::Load>(made.programs[0][4]).dram_offset = uint64_t{1} << 35;
    RtlChipResult result = both.run(made);
    EXPECT_EQ(result.cores[0].fault.code, Fault::kDramRange);
    EXPECT_EQ(result.cores[1].fault.code, Fault::kNoProgress);
    // A core whose reads memory refuses; the others have programs of their own.
    made = both.make_case();
    for (size_t c = 0; c < both.cores(); ++c) add_random(made, config, c, 77 + c, 20);
    made.programs[1] = {load(kRegion, 64), isa::Finish{}};
    made.bases[1].fill(kBase);
    made.failing_reads = {{kBase + kRegion + 32, kBase + kRegion + 64}};
    result = both.run(made);
    EXPECT_EQ(result.cores[0].fault.code, Fault::kNone);
    EXPECT_EQ(result.cores[1].fault.code, Fault::kAxiError);
  }
}

TEST(RtlChip, CoresThatWaitForEachOtherStop) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    Both::Case made = both.make_case();
    isa::Fence last = publish();
    last.header.waits[0] = after(Engine::kLoad, 1);
    made.programs[0] = {await(Engine::kStore, 1, 1), publish(), isa::Finish{}};
    made.programs[1] = {load(0, 64), with(await(Engine::kLoad, 0, 1), {}), last, isa::Finish{}};
    if (both.cores() > 2) add_random(made, config, 2, 5, 60);  // ends long after the others are at rest
    const RtlChipResult result = both.run(made);
    EXPECT_EQ(result.cores[0].fault.code, Fault::kNoProgress);
    EXPECT_EQ(result.cores[1].fault.pc, 1u);
    if (both.cores() > 2) {
      EXPECT_GE(result.cores[0].cycles, result.cores[2].cycles);
    }
    // What a core published in an earlier run means nothing in the next one.
    made = both.make_case();
    made.programs[1] = {publish(), publish(), isa::Finish{}};
    both.run(made);
    made.programs[1].clear();
    made.programs[0] = {await(Engine::kLoad, 1, 2), isa::Finish{}};
    EXPECT_EQ(both.run(made).cores[0].fault.code, Fault::kNoProgress);
  }
}

TEST(RtlChip, ThreadsChangeNothing) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    Both::Case made = ring(both, 96, 45, 3);
    const RtlChipResult alone = both.run(made);
    both.rtl().set_threads(2);
    const RtlChipResult threads = both.run(made);
    EXPECT_GT(alone.cycles, 5000u);  // threads begin
    EXPECT_EQ(threads.cycles, alone.cycles);
    EXPECT_EQ(threads.waited, alone.waited);
    EXPECT_EQ(threads.moved, alone.moved);
  }
}

TEST(RtlChip, RegistersOfTheChip) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    std::vector<uint8_t> bytes(64);
    DramModel dram({.beat_bytes = config.memory_bytes()}, kBase, bytes.data(), bytes.size());
    RtlChip& chip = both.rtl();
    namespace page = isa::reg::chip;
    const auto cores = static_cast<uint32_t>(config.cores);
    EXPECT_EQ(chip.read_register(page::kPage + page::kCores, dram), cores);
    EXPECT_EQ(chip.read_register(page::kPage + page::kDone, dram), (1u << cores) - 1);
    for (uint32_t c = 0; c < cores; ++c) {
      const uint32_t at = c << page::kCoreBits;
      EXPECT_EQ(chip.read_register(at + isa::reg::kMagic, dram), isa::reg::kMagicReset);
      EXPECT_EQ(chip.read_register(at + isa::reg::kConfigCores, dram), cores);
      EXPECT_EQ(chip.read_register(at + isa::reg::kConfigMemoryAxiBytes, dram),
                static_cast<uint32_t>(config.memory_axi_bytes));
      chip.write_register(at + isa::reg::base(3), 100 + c, dram);
    }
    for (uint32_t c = 0; c < cores; ++c) {
      EXPECT_EQ(chip.read_register((c << page::kCoreBits) + isa::reg::base(3), dram), 100 + c);
    }
    // A core that is not there reads 0 and takes writes.
    if (cores < 16) {
      chip.write_register((cores << page::kCoreBits) + isa::reg::base(3), 1, dram);
      EXPECT_EQ(chip.read_register((cores << page::kCoreBits) + isa::reg::kMagic, dram), 0u);
    }
  }
}

TEST(RtlChip, ResetInTheMiddle) {
  for (const isa::MachineConfig& config : chips()) {
    Both both(config);
    for (uint64_t seed = 1; seed <= 6 && !HasFailure(); ++seed) {
      std::vector<uint8_t> bytes(both.cores() * kRegion);
      DramModel dram({.beat_bytes = config.memory_bytes()}, kBase, bytes.data(), bytes.size());
      const Both::Case made = ring(both, 96, 10, seed);
      RtlChipRequest request;
      for (size_t c = 0; c < both.cores(); ++c) {
        uint64_t at = c * kRegion + kRegion / 2;
        request.cores.push_back({kBase + at, static_cast<uint32_t>(made.programs[c].size()), made.bases[c], {}});
        for (const isa::Instruction& instruction : made.programs[c]) {
          const isa::Word word = isa::encode(instruction);
          std::copy(word.begin(), word.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
          at += word.size();
        }
      }
      both.rtl().start(request, dram);
      EXPECT_FALSE(both.rtl().advance(150 + 97 * seed, dram));
      both.rtl().reset(dram);
      EXPECT_TRUE(dram.idle());
      both.run(made);
    }
  }
}

}  // namespace
}  // namespace tessera::sim
