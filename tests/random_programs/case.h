// SPDX-License-Identifier: Apache-2.0
// One experiment: a program in words, the memory it starts from, and how the memory bus behaves. Enters: a seed, or a
// file that an earlier run has written. Leaves: everything a machine needs. What the DRAM, the base registers and PARAM
// hold follows from the seed, so that a file holds the program and a few numbers only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "sim/functional/footprint.h"
#include "sim/tests/random_program.h"

namespace tessera::proof {

struct Case {
  isa::MachineConfig config;
  uint64_t seed = 0;
  int dram_latency = 100;
  int pressure_percent = 0;  // of moments at which the bus refuses
  std::vector<isa::Word> words;
  std::vector<sim::Interval> failing_reads;  // device addresses that the memory answers with an error
  std::vector<sim::Interval> failing_writes;
  std::string injected;  // what was broken on purpose; empty: the program is legal

  // Derived from config and seed.
  uint64_t dram_address = 0;
  std::vector<uint8_t> dram;  // without the program
  std::array<uint64_t, 16> bases{};
  std::vector<uint8_t> param;

  /// The words that decode, for reports and shrinking.
  std::vector<isa::Instruction> instructions() const;
  void set_instructions(const std::vector<isa::Instruction>& program);
};

inline constexpr uint64_t kProgramOffset = 1 << 16;  // of the program in the DRAM

/// The random legal program of a seed; odd seeds of three get a bus that refuses half of the time.
Case make_case(const isa::MachineConfig& config, uint64_t seed, int instructions);

/// make_case with one thing broken: an illegal word, an address out of range, an error of the memory, a wait that never
/// comes, a missing FINISH.
Case make_faulty_case(const isa::MachineConfig& config, uint64_t seed, int instructions);

/// The memory contents of config and seed. `waits` of a program are made anew by the maker that is returned.
sim::testing::RandomProgramMaker fill_memory(Case& test);

/// A text file: comments with the configuration and numbers, then assembly (`.word` lines for what does not decode).
void save(const Case& test, const std::string& path);
/// Errors: kInvalidArgument naming the file and the line.
Case load(const std::string& path);

}  // namespace tessera::proof
