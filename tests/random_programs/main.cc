// SPDX-License-Identifier: Apache-2.0
// Random programs on every machine: equal in every byte, equal in every fault. A failing program is made small, saved,
// and can be replayed. Exit status 0: all equal and, with enough programs, all coverage bins hit.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "base/error.h"
#include "isa/assembler.h"
#include "tests/random_programs/chips.h"
#include "tests/random_programs/compare.h"
#include "tests/random_programs/coverage.h"

namespace tessera::proof {
namespace {

struct Options {
  std::vector<std::string> configs{"npu64"};
  std::vector<std::string> machines;
  std::string replay;
  std::string folder = ".";
  uint64_t count = 100;
  uint64_t seed = 1;
  int instructions = 30;
  int fault_percent = 20;
  bool shrink = true;
  bool coverage = false;
  bool long_only = false;
};

isa::MachineConfig config_of(const std::string& name) {
  return name.ends_with(".toml") ? isa::load_config(name) : isa::find_config(name);
}

Machines machines_of(const Options& options, const isa::MachineConfig& config) {
  Machines machines;
  for (const std::string& name : options.machines) machines.push_back(make_machine(name, config));
  if (!options.machines.empty()) return machines;
  for (const std::string& name : machine_names()) {
    try {
      machines.push_back(make_machine(name, config));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      std::cout << config.name << ": without " << name << ": " << error.what() << std::endl;
    }
  }
  return machines;
}

/// Says what is wrong, makes it small, saves it.
void report_failure(const Options& options, const Case& test, const Machines& machines, const std::string& text) {
  std::cout << "FAILED: configuration " << test.config.name << ", seed " << test.seed << ", latency "
            << test.dram_latency << ", pressure " << test.pressure_percent << " %"
            << (test.injected.empty() ? "" : ", injected: " + test.injected) << "\n  " << text << std::endl;
  Case small = test;
  if (options.shrink)
    small = shrink(test, [&](const Case& smaller) { return difference(smaller, machines).has_value(); });
  const std::string path =
      (std::filesystem::path(options.folder) / ("failed_" + test.config.name + "_" + std::to_string(test.seed) + ".s"))
          .string();
  save(small, path);
  std::cout << "  " << difference(small, machines).value_or("(only sometimes)") << "\n  saved with "
            << small.words.size() << " instructions; replay with: random_programs --replay " << path << std::endl;
  if (const auto count = first_divergence(small, machines)) {
    std::cout << "  the machines first differ after instruction " << *count - 1 << ": "
              << isa::disassemble(small.instructions()[*count - 1]) << std::endl;
  }
}

/// One configuration of one core: `count` programs, some with a fault injected; returns the number of failures (at most
/// 1).
int run_config(const Options& options, const isa::MachineConfig& config) {
  const Machines machines = machines_of(options, config);
  Coverage coverage(config);
  std::vector<uint64_t> cycles(machines.size());
  std::map<std::string, uint64_t> injected;
  for (uint64_t seed = options.seed; seed < options.seed + options.count; ++seed) {
    const bool faulty = static_cast<int>(seed * 2654435761 % 100) < options.fault_percent;
    const Case test =
        faulty ? make_faulty_case(config, seed, options.instructions) : make_case(config, seed, options.instructions);
    if (faulty) {
      ++injected[test.injected];
    } else {
      coverage.add(test.instructions());
    }
    if (const auto text = difference(test, machines, &cycles)) {
      report_failure(options, test, machines, *text);
      return 1;
    }
  }
  std::cout << config.name << ": " << options.count << " programs from seed " << options.seed << " equal on";
  for (size_t m = 0; m < machines.size(); ++m) {
    std::cout << (m ? ", " : " ") << machines[m]->name();
    if (cycles[m]) std::cout << " (" << cycles[m] << " cycles)";
  }
  std::cout << "; injected:";
  for (const auto& [what, count] : injected) std::cout << " " << what << " " << count << ";";
  std::cout << std::endl;
  if (options.coverage) std::cout << coverage.report();
  const auto missing = coverage.missing();
  if (missing.empty()) {
    std::cout << "  every coverage bin was hit" << std::endl;
    return 0;
  }
  std::cout << "  " << missing.size() << " coverage bins were not hit:";
  for (const std::string& name : missing) std::cout << " [" << name << "]";
  std::cout << std::endl;
  return options.count >= 300 && options.fault_percent < 100 ? 1 : 0;  // so many programs leave no excuse
}

/// The same for machines of several cores. A failing case is run again with fewer instructions while it fails.
int run_chips(const Options& options, const isa::MachineConfig& config) {
  const std::vector<std::string> names = options.machines.empty() ? chip_machine_names(config) : options.machines;
  ChipMachines machines;
  for (const std::string& name : names) machines.push_back(make_chip_machine(name, config));
  std::vector<uint64_t> cycles(machines.size());
  std::map<std::string, uint64_t> injected;
  uint64_t awaits = 0;
  for (uint64_t seed = options.seed; seed < options.seed + options.count; ++seed) {
    const bool faulty = static_cast<int>(seed * 2654435761 % 100) < options.fault_percent;
    const ChipCase test = make_chip_case(config, seed, options.instructions, faulty);
    if (faulty) ++injected[test.injected];
    awaits += test.chip.awaits;
    const auto text = chip_difference(test, machines, &cycles);
    if (!text) continue;
    std::cout << "FAILED: configuration " << config.name << ", seed " << seed << ", latency " << test.dram_latency
              << (test.injected.empty() ? "" : ", injected: " + test.injected) << "\n  " << *text << std::endl;
    int fewest = options.instructions;
    for (int n = options.instructions - 1; n > 0 && options.shrink; --n) {
      if (chip_difference(make_chip_case(config, seed, n, faulty), machines)) fewest = n;
    }
    const ChipCase small = make_chip_case(config, seed, fewest, faulty);
    const std::string path =
        (std::filesystem::path(options.folder) / ("failed_" + config.name + "_" + std::to_string(seed))).string();
    save_chip(small, path);
    std::cout << "  " << chip_difference(small, machines).value_or("(only sometimes)") << "\n  saved as " << path
              << "_core*.s; again with: random_programs --config " << config.name << " --seed " << seed
              << " --count 1 --instructions " << fewest << std::endl;
    return 1;
  }
  std::cout << config.name << ": " << options.count << " chips from seed " << options.seed << " equal on";
  for (size_t m = 0; m < machines.size(); ++m) {
    std::cout << (m ? ", " : " ") << machines[m]->name();
    if (cycles[m]) std::cout << " (" << cycles[m] << " cycles)";
  }
  std::cout << "; awaits " << awaits << "; injected:";
  for (const auto& [what, count] : injected) std::cout << " " << what << " " << count << ";";
  std::cout << std::endl;
  return 0;
}

int replay(const Options& options) {
  const Case test = load(options.replay);
  const Machines machines = machines_of(options, test.config);
  const auto text = difference(test, machines);
  std::cout << options.replay << ": " << text.value_or("equal") << std::endl;
  if (!text) return 0;
  if (const auto count = first_divergence(test, machines)) {
    std::cout << "  the machines first differ after instruction " << *count - 1 << ": "
              << isa::disassemble(test.instructions()[*count - 1]) << std::endl;
  }
  return 1;
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Random programs over the whole ISA on every machine: equal states, equal faults");
  app.add_option("--config", options.configs, "configuration names or TOML files");
  app.add_option("--machines", options.machines, "the first is what the others are compared with (default: all)");
  app.add_option("--count", options.count, "programs for each configuration");
  app.add_option("--seed", options.seed, "of the first program; each has its own");
  app.add_option("--instructions", options.instructions, "of a program")->check(CLI::Range(1, 900));
  app.add_option("--faults", options.fault_percent, "programs in a hundred with a fault injected")
      ->check(CLI::Range(0, 100));
  app.add_option("--replay", options.replay, "run one saved program instead");
  app.add_option("--folder", options.folder, "where a failing program is saved");
  app.add_flag("!--no-shrink", options.shrink, "save a failing program as it is");
  app.add_flag("--coverage", options.coverage, "print all coverage bins");
  app.add_flag("--long-only", options.long_only, "do nothing unless the long tests are wanted (TESSERA_LONG)");
  CLI11_PARSE(app, argc, argv);
  if (options.long_only && std::getenv("TESSERA_LONG") == nullptr) {
    std::cout << "left out: a part of the long tests (TESSERA_LONG)" << std::endl;
    return 0;
  }
  if (!options.replay.empty()) return replay(options);
  if (const char* count = std::getenv("TESSERA_RANDOM")) options.count = std::strtoull(count, nullptr, 10);
  if (const char* seed = std::getenv("TESSERA_SEED")) options.seed = std::strtoull(seed, nullptr, 10);
  if (std::getenv("TESSERA_LONG") != nullptr) options.count = std::max<uint64_t>(options.count, 20000);
  int failures = 0;
  for (const std::string& name : options.configs) {
    const isa::MachineConfig config = config_of(name);
    failures += config.cores > 1 ? run_chips(options, config) : run_config(options, config);
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace tessera::proof

int main(int argc, char** argv) {
  try {
    return tessera::proof::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "random_programs: " << error.what() << std::endl;
    return 2;
  }
}
