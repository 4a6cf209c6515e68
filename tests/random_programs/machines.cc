// SPDX-License-Identifier: Apache-2.0
// The functional simulator, the reference loops, the SystemC model and the RTL as proof::Machine.
#include "tests/random_programs/machines.h"

#include <random>

#include "base/error.h"
#include "sim/functional/machine.h"
#include "sim/tests/reference.h"
#ifdef TESSERA_PROOF_RTL
#include "sim/verilator/machine.h"
#endif
#ifdef TESSERA_PROOF_SYSTEMC
#include "sim/systemc/machine.h"
#endif

namespace tessera::proof {
namespace {

std::vector<uint8_t> memory_of(const Case& test) {
  std::vector<uint8_t> dram = test.dram;
  for (const isa::Word& word : test.words) dram.insert(dram.end(), word.begin(), word.end());
  return dram;
}

class Functional final : public Machine {
 public:
  explicit Functional(const isa::MachineConfig& config) : Machine("functional", config), machine_(config) {}

  Outcome run(const Case& test) override {
    const auto initial = initial_scratchpads(test);
    for (int s = 0; s < isa::kSpaces; ++s) machine_.write_scratchpad(static_cast<isa::Space>(s), 0, initial[s]);
    Outcome outcome;
    outcome.dram = memory_of(test);
    const sim::DramRegion region{test.dram_address, outcome.dram.data(), outcome.dram.size()};
    sim::RunRequest request;
    request.program_address = test.dram_address + kProgramOffset;
    request.instruction_count = static_cast<uint32_t>(test.words.size());
    request.bases = test.bases;
    request.dram = {&region, 1};
    request.failing_reads = test.failing_reads;
    request.failing_writes = test.failing_writes;
    request.check_races = test.injected.empty();
    const sim::RunResult result = machine_.run(request);
    if (!result.races.empty()) {
      throw Error(ErrorCode::kInternal, "the program races: instructions " + std::to_string(result.races[0].first.pc) +
                                            " and " + std::to_string(result.races[0].second.pc) +
                                            "; the generator is broken");
    }
    outcome.fault = result.fault;
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto bytes = machine_.scratchpad(static_cast<isa::Space>(s));
      outcome.scratchpads[s].assign(bytes.begin(), bytes.end());
    }
    outcome.executed = result.counters.instructions;
    outcome.bytes_read = result.counters.dram_read_bytes + result.counters.fetch_bytes;
    outcome.bytes_written = result.counters.dram_write_bytes;
    return outcome;
  }

 private:
  sim::Machine machine_;
};

class Reference final : public Machine {
 public:
  explicit Reference(const isa::MachineConfig& config) : Machine("reference", config) {}

  Outcome run(const Case& test) override {
    if (!test.injected.empty()) throw Error(ErrorCode::kUnsupported, "the reference loops run legal programs only");
    sim::reference::Memories memories(config_);
    const auto initial = initial_scratchpads(test);
    for (int s = 0; s < isa::kSpaces; ++s) memories.bytes[s] = initial[s];
    memories.dram = memory_of(test);
    for (int b = 0; b < 16; ++b) memories.bases[b] = test.bases[b] - test.dram_address;
    memories.limit = test.bases[isa::kRowLimitBase] & isa::kRowLimitMask;
    sim::reference::run(test.instructions(), memories);
    Outcome outcome;
    for (int s = 0; s < isa::kSpaces; ++s) outcome.scratchpads[s] = memories.bytes[s];
    outcome.dram = memories.dram;
    outcome.executed.fill(UINT64_MAX);  // it does not count
    return outcome;
  }
};

#ifdef TESSERA_PROOF_SYSTEMC
class Systemc final : public Machine {
 public:
  explicit Systemc(const isa::MachineConfig& config) : Machine("systemc", config), machine_(config) {}

  Outcome run(const Case& test) override {
    const auto initial = initial_scratchpads(test);
    sim::Machine& state = machine_.functional();
    for (int s = 0; s < isa::kSpaces; ++s) state.write_scratchpad(static_cast<isa::Space>(s), 0, initial[s]);
    Outcome outcome;
    outcome.dram = memory_of(test);
    const sim::DramRegion region{test.dram_address, outcome.dram.data(), outcome.dram.size()};
    sim::systemc::TimedRequest request;
    request.program_address = test.dram_address + kProgramOffset;
    request.instruction_count = static_cast<uint32_t>(test.words.size());
    request.bases = test.bases;
    request.window_first = test.dram_address;
    request.window_last = test.dram_address + outcome.dram.size() - 1;
    request.dram = {&region, 1};
    request.failing_reads = test.failing_reads;
    request.failing_writes = test.failing_writes;
    request.timing.beat_bytes = config_.axi_bytes;
    request.timing.latency_cycles = test.dram_latency;
    const sim::systemc::TimedResult result = machine_.run(request);
    outcome.fault = result.fault;
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto bytes = state.scratchpad(static_cast<isa::Space>(s));
      outcome.scratchpads[s].assign(bytes.begin(), bytes.end());
    }
    for (size_t u = 0; u < outcome.executed.size(); ++u) outcome.executed[u] = result.units[u].executed;
    outcome.bytes_read = result.bytes_read;
    outcome.bytes_written = result.bytes_written;
    outcome.cycles = result.cycles;
    return outcome;
  }

 private:
  sim::systemc::TimedMachine machine_;
};
#endif

#ifdef TESSERA_PROOF_RTL
class Rtl final : public Machine {
 public:
  explicit Rtl(const isa::MachineConfig& config) : Machine("rtl", config), machine_(sim::make_rtl(config)) {}

  Outcome run(const Case& test) override {
    const auto initial = initial_scratchpads(test);
    for (int s = 0; s < isa::kSpaces; ++s) machine_->write_scratchpad(static_cast<isa::Space>(s), 0, initial[s]);
    Outcome outcome;
    outcome.dram = memory_of(test);
    sim::DramOptions options;
    options.beat_bytes = config_.axi_bytes;
    options.latency_cycles = test.dram_latency;
    options.pressure_percent = test.pressure_percent;
    options.seed = test.seed;
    sim::DramModel dram(options, test.dram_address, outcome.dram.data(), outcome.dram.size());
    for (const sim::Interval& i : test.failing_reads) dram.fail_reads(i.begin, i.end - 1);
    for (const sim::Interval& i : test.failing_writes) dram.fail_writes(i.begin, i.end - 1);
    sim::RtlRequest request;
    request.program_address = test.dram_address + kProgramOffset;
    request.instruction_count = static_cast<uint32_t>(test.words.size());
    request.bases = test.bases;
    request.window_first = test.dram_address;
    request.window_last = test.dram_address + outcome.dram.size() - 1;
    request.max_cycles = 8000000;
    const sim::RtlResult result = [&] {
      try {
        return machine_->run(request, dram);
      } catch (...) {
        machine_ = sim::make_rtl(config_);  // it hangs, or is in no known state
        throw;
      }
    }();
    outcome.fault = result.fault;
    for (int s = 0; s < isa::kSpaces; ++s) outcome.scratchpads[s] = machine_->scratchpad(static_cast<isa::Space>(s));
    for (size_t u = 0; u < outcome.executed.size(); ++u) outcome.executed[u] = result.units[u].executed;
    outcome.bytes_read = result.bytes_read;
    outcome.bytes_written = result.bytes_written;
    outcome.cycles = result.cycles;
    return outcome;
  }

 private:
  std::unique_ptr<sim::RtlMachine> machine_;
};
#endif

}  // namespace

std::array<std::vector<uint8_t>, isa::kSpaces> initial_scratchpads(const Case& test) {
  std::mt19937_64 random(test.seed * 0x2545f4914f6cdd1d + 1);
  std::array<std::vector<uint8_t>, isa::kSpaces> all;
  for (int s = 0; s < isa::kSpaces; ++s) {
    all[s].resize(static_cast<size_t>(test.config.space_bytes(static_cast<isa::Space>(s))));
    for (uint8_t& byte : all[s]) byte = static_cast<uint8_t>(random() >> 13);
  }
  all[static_cast<size_t>(isa::Space::kParam)] = test.param;
  return all;
}

std::vector<std::string> machine_names() {
  std::vector<std::string> names{"functional", "reference"};
#ifdef TESSERA_PROOF_SYSTEMC
  names.emplace_back("systemc");
#endif
#ifdef TESSERA_PROOF_RTL
  names.emplace_back("rtl");
#endif
  return names;
}

std::unique_ptr<Machine> make_machine(std::string_view name, const isa::MachineConfig& config) {
  if (name == "functional") return std::make_unique<Functional>(config);
  if (name == "reference") return std::make_unique<Reference>(config);
#ifdef TESSERA_PROOF_SYSTEMC
  if (name == "systemc") return std::make_unique<Systemc>(config);
#endif
#ifdef TESSERA_PROOF_RTL
  if (name == "rtl") return std::make_unique<Rtl>(config);
#endif
  std::string known;
  for (const std::string& machine : machine_names()) known += (known.empty() ? "" : ", ") + machine;
  throw Error(ErrorCode::kInvalidArgument, "no machine '" + std::string(name) + "' in this build; known: " + known);
}

}  // namespace tessera::proof
