// SPDX-License-Identifier: Apache-2.0
// Random programs on the RTL and on the functional simulator: every byte of the scratchpads and of DRAM, and the
// counters that do not depend on time, are equal; also when the memory answers at random moments.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>
#include <thread>

#include "sim/functional/machine.h"
#include "sim/tests/random_program.h"
#include "sim/verilator/machine.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kProgramOffset = 1 << 16;

/// Instructions that the predicate does not want are made anew.
template <typename Wanted>
testing::RandomProgram make_program(const isa::MachineConfig& config, uint64_t seed, testing::RandomLimits limits,
                                    Wanted wanted) {
  testing::RandomProgramMaker maker(config, seed, limits);
  testing::RandomProgram program = maker.make();
  std::vector<isa::Instruction> instructions;
  while (static_cast<int>(instructions.size()) < limits.instructions) {
    isa::Instruction instruction = maker.make_instruction();
    if (wanted(instruction)) instructions.push_back(instruction);
  }
  maker.synchronise(instructions);
  program.instructions = instructions;
  return program;
}

class Comparison {
 public:
  explicit Comparison(const isa::MachineConfig& config)
      : config_(config), rtl_(make_rtl(config)), functional_(config) {}

  void run(const testing::RandomProgram& program, uint64_t seed, int pressure_percent) {
    SCOPED_TRACE("config " + config_.name + ", seed " + std::to_string(seed));
    functional_.poison(seed);
    functional_.write_scratchpad(isa::Space::kParam, 0, program.param);
    std::vector<uint8_t> dram = program.dram;
    ASSERT_LE(dram.size(), kProgramOffset);
    dram.resize(kProgramOffset);
    for (const isa::Instruction& instruction : program.instructions) {
      const isa::Word word = isa::encode(instruction);
      dram.insert(dram.end(), word.begin(), word.end());
    }
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto space = static_cast<isa::Space>(s);
      rtl_->write_scratchpad(space, 0, functional_.scratchpad(space));
    }
    std::vector<uint8_t> rtl_dram = dram;

    const DramRegion region{program.dram_address, dram.data(), dram.size()};
    RunRequest expected_request;
    expected_request.program_address = program.dram_address + kProgramOffset;
    expected_request.instruction_count = static_cast<uint32_t>(program.instructions.size());
    expected_request.bases = program.bases;
    expected_request.dram = {&region, 1};
    const RunResult expected = functional_.run(expected_request);
    ASSERT_TRUE(expected.ok()) << to_string(expected.fault.code);

    DramModel model({.beat_bytes = config_.axi_bytes,
                     .latency_cycles = 20 + static_cast<int>(seed % 100),
                     .pressure_percent = pressure_percent,
                     .seed = seed},
                    program.dram_address, rtl_dram.data(), rtl_dram.size());
    RtlRequest request;
    request.program_address = expected_request.program_address;
    request.instruction_count = expected_request.instruction_count;
    request.bases = program.bases;
    request.window_first = program.dram_address;
    request.window_last = program.dram_address + dram.size() - 1;
    request.max_cycles = 4000000;
    rtl_->set_register_delay(pressure_percent > 0 ? 3 : 0);
    const RtlResult actual = rtl_->run(request, model);
    ASSERT_EQ(actual.fault.code, isa::Fault::kNone)
        << to_string(actual.fault.code) << " at " << actual.fault.pc << " (" << to_string(actual.fault.unit) << ")";
    EXPECT_TRUE(model.idle());
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto space = static_cast<isa::Space>(s);
      const auto wanted = functional_.scratchpad(space);
      const auto got = rtl_->scratchpad(space);
      const auto at = std::mismatch(wanted.begin(), wanted.end(), got.begin()).first - wanted.begin();
      ASSERT_EQ(static_cast<size_t>(at), wanted.size()) << to_string(space) << " differs at byte " << at;
    }
    const auto at = std::mismatch(dram.begin(), dram.end(), rtl_dram.begin()).first - dram.begin();
    ASSERT_EQ(static_cast<size_t>(at), dram.size()) << "DRAM differs at byte " << at;
    EXPECT_EQ(actual.instructions * 64, expected.counters.fetch_bytes);
    EXPECT_EQ(actual.bytes_read, expected.counters.dram_read_bytes + expected.counters.fetch_bytes);
    EXPECT_EQ(actual.bytes_written, expected.counters.dram_write_bytes);
    for (size_t u = 0; u < actual.units.size(); ++u) {
      EXPECT_EQ(actual.units[u].executed, expected.counters.instructions[u]) << u;
    }
    cycles_ += actual.cycles;
  }

  /// Starts a program and resets the machine after some cycles.
  void interrupt(const testing::RandomProgram& program, uint64_t seed, uint64_t cycles) {
    std::vector<uint8_t> dram = program.dram;
    dram.resize(kProgramOffset);
    for (const isa::Instruction& instruction : program.instructions) {
      const isa::Word word = isa::encode(instruction);
      dram.insert(dram.end(), word.begin(), word.end());
    }
    DramModel model({.beat_bytes = config_.axi_bytes, .pressure_percent = seed % 2 == 0 ? 30 : 0, .seed = seed},
                    program.dram_address, dram.data(), dram.size());
    RtlRequest request;
    request.program_address = program.dram_address + kProgramOffset;
    request.instruction_count = static_cast<uint32_t>(program.instructions.size());
    request.bases = program.bases;
    rtl_->start(request, model);
    rtl_->advance(cycles, model);
    rtl_->reset(model);
    EXPECT_TRUE(model.idle());
    EXPECT_FALSE(rtl_->interrupt());
  }

  uint64_t cycles() const { return cycles_; }

 private:
  isa::MachineConfig config_;
  std::unique_ptr<RtlMachine> rtl_;
  Machine functional_;
  uint64_t cycles_ = 0;
};

bool transfers_only(const isa::Instruction& instruction) {
  return std::holds_alternative<isa::Fence>(instruction) || std::holds_alternative<isa::Load>(instruction) ||
         std::holds_alternative<isa::Store>(instruction);
}

bool no_alu(const isa::Instruction& instruction) {
  return transfers_only(instruction) || std::holds_alternative<isa::Gemm>(instruction);
}

/// TESSERA_RANDOM=N runs N programs instead of the few that a test run can afford.
uint64_t programs(uint64_t few) {
  const char* text = std::getenv("TESSERA_RANDOM");
  return text == nullptr ? few : std::strtoull(text, nullptr, 10);
}

/// Those of this build; TESSERA_RTL_TEST=a.toml,b.toml names others, which are verilated first.
std::vector<isa::MachineConfig> configs() {
  const char* text = std::getenv("TESSERA_RTL_TEST");
  if (text == nullptr) {
    std::vector<isa::MachineConfig> built = rtl_configs();
    std::erase_if(built, [](const isa::MachineConfig& config) { return config.cores > 1; });  // chip_test.cc
    return built;
  }
  std::vector<isa::MachineConfig> named;
  std::stringstream names(text);
  for (std::string name; std::getline(names, name, ',');) named.push_back(isa::find_config(name));
  return named;
}

void run_programs(uint64_t count, bool (*wanted)(const isa::Instruction&)) {
  for (const isa::MachineConfig& config : configs()) {
    Comparison comparison(config);
    for (uint64_t seed = 1; seed <= programs(count); ++seed) {
      testing::RandomLimits limits;
      limits.instructions = 30;
      try {
        comparison.run(make_program(config, seed, limits, wanted), seed, seed % 3 == 0 ? 50 : 0);
      } catch (const std::exception& error) {  // an assertion of the RTL
        ADD_FAILURE() << config.name << ", program " << seed << ": " << error.what();
      }
      if (::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure()) return;
    }
    ::testing::Test::RecordProperty(config.name + "_cycles", std::to_string(comparison.cycles()));
  }
}

TEST(RtlProgram, Transfers) { run_programs(40, transfers_only); }

TEST(RtlProgram, WithoutAlu) { run_programs(30, no_alu); }

TEST(RtlProgram, AllInstructions) {
  run_programs(60, [](const isa::Instruction&) { return true; });
}

TEST(RtlProgram, BackToBack) {
  // A hundred programs on one machine, which keeps nothing but its memories from one to the next.
  Comparison comparison(rtl_configs().front());
  for (uint64_t seed = 1000; seed < 1100 && !HasFailure(); ++seed) {
    testing::RandomLimits limits;
    limits.instructions = 8;
    comparison.run(make_program(rtl_configs().front(), seed, limits, [](const isa::Instruction&) { return true; }),
                   seed, 0);
  }
}

TEST(RtlProgram, ResetInTheMiddle) {
  // Wherever a program is interrupted, the next one runs as on a new machine.
  const isa::MachineConfig config = rtl_configs().front();
  Comparison comparison(config);
  testing::RandomLimits limits;
  limits.instructions = 20;
  const auto every = [](const isa::Instruction&) { return true; };
  for (uint64_t seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    comparison.interrupt(make_program(config, seed, limits, every), seed, 20 + 97 * seed);
    comparison.run(make_program(config, seed + 1, limits, every), seed + 1, 0);
  }
}

TEST(RtlProgram, MachinesEndInAnyOrder) {
  // Each outlives one that was made after it, on this thread and on another.
  const isa::MachineConfig config = rtl_configs().front();
  testing::RandomLimits limits;
  limits.instructions = 8;
  auto first = std::make_unique<Comparison>(config), last = std::make_unique<Comparison>(config);
  const auto every = [](const isa::Instruction&) { return true; };
  last.reset();
  first->run(make_program(config, 1, limits, every), 1, 0);
  first.reset();
  std::thread([&] { first = std::make_unique<Comparison>(config); }).join();
  last = std::make_unique<Comparison>(config);
  std::thread([&] { last.reset(); }).join();
  first->run(make_program(config, 2, limits, every), 2, 0);
  first.reset();
}

}  // namespace
}  // namespace tessera::sim
