// SPDX-License-Identifier: Apache-2.0
#include "tests/random_programs/chips.h"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <random>

#include "base/error.h"
#include "isa/assembler.h"
#include "sim/functional/chip.h"
#ifdef TESSERA_PROOF_SYSTEMC
#include "sim/systemc/machine.h"
#endif
#ifdef TESSERA_PROOF_RTL
#include "sim/verilator/chip.h"
#endif

namespace tessera::proof {
namespace {

using sim::testing::Planted;

/// Breaks one instruction of one core; false when it is none that can be broken so.
bool inject(ChipCase& test, std::mt19937_64& random) {
  auto& program = test.chip.programs[random() % test.chip.programs.size()];
  isa::Instruction& instruction = program[random() % (program.size() - 1)];
  switch (random() % 3) {
    case 0: {
      auto* load = std::get_if<isa::Load>(&instruction);
      if (load == nullptr || !isa::dram_range(instruction)) return false;
      load->dram_offset += uint64_t{1} << 34;
      test.injected = "DRAM address";
      return true;
    }
    case 1:
      isa::header_of(instruction).waits[random() % isa::kWaits] = {
          true, static_cast<isa::Engine>(random() % isa::kEngines), static_cast<uint16_t>(program.size() + 100)};
      test.injected = "wait without end";
      return true;
    default: {
      auto* alu = std::get_if<isa::Alu>(&instruction);
      if (alu == nullptr) return false;
      alu->extent[0] = 0;
      test.injected = "illegal operand";
      return true;
    }
  }
}

class Functional final : public ChipMachine {
 public:
  enum class Way { kUp, kDown, kThreads };
  Functional(std::string name, const isa::MachineConfig& config, Way way)
      : ChipMachine(std::move(name)), chip_(config), way_(way) {}

  ChipOutcome run(const ChipCase& test) override {
    const size_t count = test.chip.programs.size();
    ChipOutcome outcome;
    outcome.memory = test.memory;
    const sim::DramRegion region{test.chip.dram_address, outcome.memory.data(), outcome.memory.size()};
    std::vector<sim::RunRequest> cores(count);
    for (size_t k = 0; k < count; ++k) {
      const auto initial = initial_scratchpads(test, k);
      for (int s = 0; s < isa::kSpaces; ++s)
        chip_.core(k).write_scratchpad(static_cast<isa::Space>(s), 0, initial[static_cast<size_t>(s)]);
      cores[k].program_address = test.program_addresses[k];
      cores[k].instruction_count = static_cast<uint32_t>(test.chip.programs[k].size());
      cores[k].bases = test.chip.bases;
      cores[k].dram = {&region, 1};
    }
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    if (way_ == Way::kDown) std::reverse(order.begin(), order.end());
    sim::ChipRequest request;
    request.cores = cores;
    request.order = order;
    request.threads = way_ == Way::kThreads && !test.races;
    request.check_races = !request.threads && (test.injected.empty() || test.races);
    const sim::ChipResult result = chip_.run(request);
    if (request.check_races && result.races.empty() == test.races) {
      throw Error(ErrorCode::kInternal, test.races ? "the race check misses a race" : "the program races");
    }
    for (size_t k = 0; k < count; ++k) {
      outcome.faults.push_back(result.cores[k].fault);
      outcome.executed.push_back(result.cores[k].counters.instructions);
      for (int s = 0; s < isa::kSpaces; ++s) {
        const auto bytes = chip_.core(k).scratchpad(static_cast<isa::Space>(s));
        if (s == 0) outcome.scratchpads.emplace_back();
        outcome.scratchpads.back()[static_cast<size_t>(s)].assign(bytes.begin(), bytes.end());
      }
    }
    return outcome;
  }

 private:
  sim::Chip chip_;
  Way way_;
};

#ifdef TESSERA_PROOF_SYSTEMC
class Systemc final : public ChipMachine {
 public:
  explicit Systemc(const isa::MachineConfig& config) : ChipMachine("systemc"), machine_(config) {}

  ChipOutcome run(const ChipCase& test) override {
    const size_t count = test.chip.programs.size();
    ChipOutcome outcome;
    outcome.memory = test.memory;
    const sim::DramRegion region{test.chip.dram_address, outcome.memory.data(), outcome.memory.size()};
    std::vector<sim::systemc::TimedRequest> cores(count);
    for (size_t k = 0; k < count; ++k) {
      const auto initial = initial_scratchpads(test, k);
      for (int s = 0; s < isa::kSpaces; ++s)
        machine_.functional(k).write_scratchpad(static_cast<isa::Space>(s), 0, initial[static_cast<size_t>(s)]);
      cores[k].program_address = test.program_addresses[k];
      cores[k].instruction_count = static_cast<uint32_t>(test.chip.programs[k].size());
      cores[k].bases = test.chip.bases;
      cores[k].window_first = test.chip.dram_address;
      cores[k].window_last = test.chip.dram_address + test.memory.size() - 1;
      cores[k].dram = {&region, 1};
      cores[k].timing.beat_bytes = test.config.memory_bytes();
      cores[k].timing.latency_cycles = test.dram_latency;
      cores[k].memory_address = test.chip.dram_address;
    }
    const auto results = machine_.run(cores);
    for (size_t k = 0; k < count; ++k) {
      outcome.faults.push_back(results[k].fault);
      outcome.cycles = std::max(outcome.cycles, results[k].cycles);
      for (size_t u = 0; u <= isa::kEngines; ++u) {
        if (u == 0) outcome.executed.emplace_back();
        outcome.executed.back()[u] = results[k].units[u].executed;
      }
      for (int s = 0; s < isa::kSpaces; ++s) {
        const auto bytes = machine_.functional(k).scratchpad(static_cast<isa::Space>(s));
        if (s == 0) outcome.scratchpads.emplace_back();
        outcome.scratchpads.back()[static_cast<size_t>(s)].assign(bytes.begin(), bytes.end());
      }
    }
    return outcome;
  }

 private:
  sim::systemc::TimedMachine machine_;
};
#endif

#ifdef TESSERA_PROOF_RTL
class Rtl final : public ChipMachine {
 public:
  explicit Rtl(const isa::MachineConfig& config)
      : ChipMachine("rtl"), config_(config), chip_(sim::make_rtl_chip(config)) {}

  ChipOutcome run(const ChipCase& test) override {
    const size_t count = test.chip.programs.size();
    ChipOutcome outcome;
    outcome.memory = test.memory;
    sim::RtlChipRequest request;
    for (size_t k = 0; k < count; ++k) {
      const auto initial = initial_scratchpads(test, k);
      for (int s = 0; s < isa::kSpaces; ++s)
        chip_->core(k).write_scratchpad(static_cast<isa::Space>(s), 0, initial[static_cast<size_t>(s)]);
      request.cores.push_back(
          {test.program_addresses[k], static_cast<uint32_t>(test.chip.programs[k].size()), test.chip.bases, {}});
    }
    request.window_first = test.chip.dram_address;
    request.window_last = test.chip.dram_address + test.memory.size() - 1;
    request.max_cycles = 8000000;
    sim::DramOptions options;
    options.beat_bytes = test.config.memory_bytes();
    options.latency_cycles = test.dram_latency;
    options.pressure_percent = test.pressure_percent;
    options.seed = test.seed;
    sim::DramModel dram(options, test.chip.dram_address, outcome.memory.data(), outcome.memory.size());
    const sim::RtlChipResult result = [&] {
      try {
        return chip_->run(request, dram);
      } catch (...) {
        chip_ = sim::make_rtl_chip(config_);  // it hangs, or is in no known state
        throw;
      }
    }();
    outcome.cycles = result.cycles;
    for (size_t k = 0; k < count; ++k) {
      outcome.faults.push_back(result.cores[k].fault);
      auto& executed = outcome.executed.emplace_back();
      for (size_t u = 0; u < executed.size(); ++u) executed[u] = result.cores[k].units[u].executed;
      auto& scratchpads = outcome.scratchpads.emplace_back();
      for (int s = 0; s < isa::kSpaces; ++s)
        scratchpads[static_cast<size_t>(s)] = chip_->core(k).scratchpad(static_cast<isa::Space>(s));
    }
    return outcome;
  }

 private:
  isa::MachineConfig config_;
  std::unique_ptr<sim::RtlChip> chip_;
};
#endif

std::string describe(const isa::FaultRecord& fault) {
  if (fault.code == isa::Fault::kNone) return "no fault";
  return std::string(isa::to_string(fault.code)) + " at instruction " + std::to_string(fault.pc) + " (" +
         std::string(isa::to_string(fault.unit)) + ")";
}

std::optional<std::string> differs(const std::string& what, const std::vector<uint8_t>& wanted,
                                   const std::vector<uint8_t>& got) {
  const auto at = std::mismatch(wanted.begin(), wanted.end(), got.begin()).first;
  if (at == wanted.end()) return {};
  return what + " differs first at " + std::to_string(at - wanted.begin());
}

std::optional<std::string> compare(const std::string& who, const ChipOutcome& wanted, const ChipOutcome& got) {
  bool good = true;
  for (size_t k = 0; k < wanted.faults.size(); ++k) {
    good = good && wanted.faults[k].code == isa::Fault::kNone;
    if (got.faults[k] == wanted.faults[k]) continue;
    return who + "core " + std::to_string(k) + " has " + describe(got.faults[k]) + ", not " +
           describe(wanted.faults[k]);
  }
  if (!good) return {};
  if (auto text = differs(who + "DRAM", wanted.memory, got.memory)) return text;
  for (size_t k = 0; k < wanted.faults.size(); ++k) {
    const std::string core = who + "core " + std::to_string(k) + ": ";
    for (size_t s = 0; s < isa::kSpaces; ++s) {
      const std::string space(isa::to_string(static_cast<isa::Space>(s)));
      if (auto text = differs(core + space, wanted.scratchpads[k][s], got.scratchpads[k][s])) return text;
    }
    if (got.executed[k] != wanted.executed[k]) return core + "executed other numbers of instructions";
  }
  return {};
}

}  // namespace

ChipCase make_chip_case(const isa::MachineConfig& config, uint64_t seed, int instructions, bool faulty) {
  std::mt19937_64 random(seed * 0x9e3779b97f4a7c15 + 7);
  ChipCase test;
  test.config = config;
  test.seed = seed;
  test.dram_latency = static_cast<int>(1 + random() % (random() % 4 == 0 ? 500 : 120));
  test.pressure_percent = random() % 3 == 0 ? static_cast<int>(5 + random() % 75) : 0;
  sim::testing::RandomChipLimits limits;
  limits.core.instructions = instructions;
  limits.publish_last = faulty;
  const uint64_t kind = faulty ? random() % 6 : 6;
  const Planted planted = kind == 0 ? Planted::kRace : kind == 1 ? Planted::kDeadlock : Planted::kNothing;
  test.chip = sim::testing::RandomChipMaker(config, seed, limits).make(planted);
  test.races = kind == 0;
  if (kind < 2) test.injected = kind == 0 ? "race" : "deadlock";
  while (kind >= 2 && faulty && !inject(test, random)) {
  }
  test.memory = test.chip.dram;
  for (const auto& program : test.chip.programs) {
    test.memory.resize((test.memory.size() + 63) / 64 * 64);
    test.program_addresses.push_back(test.chip.dram_address + test.memory.size());
    for (const isa::Instruction& instruction : program) {
      const isa::Word word = isa::encode(instruction);
      test.memory.insert(test.memory.end(), word.begin(), word.end());
    }
  }
  return test;
}

std::array<std::vector<uint8_t>, isa::kSpaces> initial_scratchpads(const ChipCase& test, size_t core) {
  std::mt19937_64 random(test.seed * 0x2545f4914f6cdd1d + core + 1);
  std::array<std::vector<uint8_t>, isa::kSpaces> all;
  for (size_t s = 0; s < isa::kSpaces; ++s) {
    all[s].resize(static_cast<size_t>(test.config.space_bytes(static_cast<isa::Space>(s))));
    for (uint8_t& byte : all[s]) byte = static_cast<uint8_t>(random() >> 13);
  }
  all[static_cast<size_t>(isa::Space::kParam)] = test.chip.param;
  return all;
}

std::vector<std::string> chip_machine_names([[maybe_unused]] const isa::MachineConfig& config) {
  std::vector<std::string> names{"functional", "reversed", "threads"};
#ifdef TESSERA_PROOF_SYSTEMC
  names.emplace_back("systemc");
#endif
#ifdef TESSERA_PROOF_RTL
  for (const isa::MachineConfig& built : sim::rtl_configs()) {
    if (built == config) names.emplace_back("rtl");
  }
#endif
  return names;
}

std::unique_ptr<ChipMachine> make_chip_machine(std::string_view name, const isa::MachineConfig& config) {
  if (name == "functional") return std::make_unique<Functional>("functional", config, Functional::Way::kUp);
  if (name == "reversed") return std::make_unique<Functional>("reversed", config, Functional::Way::kDown);
  if (name == "threads") return std::make_unique<Functional>("threads", config, Functional::Way::kThreads);
#ifdef TESSERA_PROOF_SYSTEMC
  if (name == "systemc") return std::make_unique<Systemc>(config);
#endif
#ifdef TESSERA_PROOF_RTL
  if (name == "rtl") return std::make_unique<Rtl>(config);
#endif
  std::string known;
  for (const std::string& machine : chip_machine_names(config)) known += (known.empty() ? "" : ", ") + machine;
  throw Error(ErrorCode::kInvalidArgument,
              "no machine '" + std::string(name) + "' of several cores in this build; known: " + known);
}

std::optional<std::string> chip_difference(const ChipCase& test, const ChipMachines& machines,
                                           std::vector<uint64_t>* cycles) {
  std::optional<ChipOutcome> wanted;
  for (size_t m = 0; m < machines.size(); ++m) {
    const std::string who = machines[m]->name() + ": ";
    ChipOutcome got;
    try {
      got = machines[m]->run(test);
    } catch (const Error& error) {
      return who + error.what();
    }
    if (cycles) (*cycles)[m] += got.cycles;
    if (test.races) continue;  // bytes are left to chance
    if (!wanted) {
      for (const isa::FaultRecord& fault : got.faults) {
        if (test.injected.empty() && fault.code != isa::Fault::kNone)
          return who + "a legal program ends with " + describe(fault);
      }
      wanted = std::move(got);
    } else if (auto text = compare(who, *wanted, got)) {
      return text;
    }
  }
  return {};
}

void save_chip(const ChipCase& test, const std::string& path) {
  for (size_t k = 0; k < test.chip.programs.size(); ++k) {
    std::ofstream file(path + "_core" + std::to_string(k) + ".s");
    for (const isa::Instruction& instruction : test.chip.programs[k]) file << isa::disassemble(instruction) << "\n";
    if (!file.flush()) throw Error(ErrorCode::kInvalidArgument, "cannot write " + path);
  }
}

}  // namespace tessera::proof
