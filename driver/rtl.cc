// SPDX-License-Identifier: Apache-2.0
// The Verilated RTL as a Device: exact results and exact cycles. A configuration that this build has not verilated is
// made when the device is opened (sim/verilator/build.h). Options: latency (cycles of DRAM, default 100), bandwidth
// (bytes a cycle, default the width of the bus), dram (a preset of docs/dram.md, default ideal), pressure (per cent of
// moments at which DRAM refuses, default 0), seed (of pressure), waves (an FST file).
#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include "driver/backends.h"
#include "driver/profile.h"
#include "driver/registry.h"
#include "driver/simulated_device.h"
#include "sim/verilator/build.h"
#include "sim/verilator/chip.h"
#include "sim/verilator/machine.h"
#include "sim/verilator/making.h"

namespace tessera::driver {
namespace {

constexpr std::string_view kOtherOptions[] = {"waves"};

sim::RtlOptions chosen_rtl(const DeviceOptions& options) {
  sim::RtlOptions rtl;
  const auto waves = options.backend.find("waves");
  if (waves != options.backend.end()) rtl.waves = waves->second;
  return rtl;
}

/// Fills the scratchpads of a machine or of a core.
template <typename Core>
void poison(Core& core, const isa::MachineConfig& config, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int s = 0; s < isa::kSpaces; ++s) {
    const auto space = static_cast<isa::Space>(s);
    std::vector<uint8_t> bytes(static_cast<size_t>(config.space_bytes(space)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    core.write_scratchpad(space, 0, bytes);
  }
}

class RtlDevice final : public SimulatedDevice {
 public:
  RtlDevice(const isa::MachineConfig& config, const DeviceOptions& options)
      : SimulatedDevice(options),
        dram_(dram_options("rtl", config, options, true, kOtherOptions), heap().base(), host(heap().base()),
              heap().size_bytes()),
        machine_(sim::make_rtl(config, chosen_rtl(options))) {}  // last: it may take a minute

  const isa::MachineConfig& config() const override { return machine_->config(); }

 protected:
  RunReport execute(const RunRequest& request) override {
    refuse_checks("rtl", request);
    if (request.poison) poison(*machine_, config(), *request.poison);
    sim::RtlRequest inner;
    inner.program_address = request.program_address;
    inner.instruction_count = request.instruction_count;
    inner.bases = request.bases;
    inner.window_first = heap().base();
    inner.window_last = heap().base() + heap().size_bytes() - 1;
    const std::vector<isa::Instruction> program =
        decode_program(program_words({request.program_address, request.instruction_count}));
    if (request.profile) inner.trace_program = program;
    const sim::RtlResult result = machine_->run(inner, dram_);
    RunReport report;
    if (request.profile) fill_profile(report, result.trace, program, config());
    fill_timed(report, result,
               executed_macs(program, result.units[static_cast<size_t>(isa::Unit::kGemm)].executed, config()));
    return report;
  }

 private:
  sim::DramModel dram_;
  std::unique_ptr<sim::RtlMachine> machine_;
};

/// A chip of several cores, on as many threads as the host has room for.
class RtlChipDevice final : public SimulatedDevice {
 public:
  RtlChipDevice(const isa::MachineConfig& config, const DeviceOptions& options)
      : SimulatedDevice(options),
        dram_(dram_options("rtl", config, options, true, kOtherOptions), heap().base(), host(heap().base()),
              heap().size_bytes()),
        chip_(sim::make_rtl_chip(config, chosen_rtl(options))) {
    chip_->set_threads(static_cast<int>(std::thread::hardware_concurrency()));
  }

  const isa::MachineConfig& config() const override { return chip_->config(); }

 protected:
  RunReport execute(const RunRequest& request) override {
    refuse_checks("rtl", request);
    const auto cores = static_cast<size_t>(config().cores);
    if (request.poison) {
      for (size_t k = 0; k < cores; ++k) poison(chip_->core(k), config(), *request.poison + k);
    }
    std::vector<CoreProgram> programs{{request.program_address, request.instruction_count}};
    programs.insert(programs.end(), request.others.begin(), request.others.end());
    std::vector<std::vector<isa::Instruction>> decoded(cores);
    sim::RtlChipRequest inner;
    for (size_t k = 0; k < programs.size(); ++k) {
      decoded[k] = decode_program(program_words({programs[k].program_address, programs[k].instruction_count}));
      sim::RtlChipProgram& one = inner.cores.emplace_back();
      one.program_address = programs[k].program_address;
      one.instruction_count = programs[k].instruction_count;
      one.bases = request.bases;
      if (request.profile) one.trace_program = decoded[k];
    }
    inner.window_first = heap().base();
    inner.window_last = heap().base() + heap().size_bytes() - 1;
    const sim::RtlChipResult result = chip_->run(inner, dram_);
    RunReport report;
    for (size_t k = 0; k < cores; ++k) {
      const sim::RtlResult& from = result.cores[k];
      RunReport one;
      const uint64_t gemms = from.units[static_cast<size_t>(isa::Unit::kGemm)].executed;
      fill_timed(one, from, executed_macs(decoded[k], gemms, config()));
      report.cores.push_back({one.fault, one.counters, one.cycles, result.waited[k]});
      if (request.profile) fill_profile(report, from.trace, decoded[k], config(), static_cast<uint32_t>(k));
    }
    report.bus_busy_cycles = result.moved;
    sum_cores(report);
    return report;
  }

  void execute_jobs(const JobSource& source) override {
    std::map<uint64_t, std::vector<std::vector<isa::Instruction>>> programs;  // of the jobs under way
    const auto report_of = [&](const sim::RtlChipEnd& end) {
      RunReport report;
      const auto decoded = programs.extract(end.number).mapped();
      for (size_t k = 0; k < end.results.size(); ++k) {
        RunReport one;
        const uint64_t gemms = end.results[k].units[static_cast<size_t>(isa::Unit::kGemm)].executed;
        fill_timed(one, end.results[k], executed_macs(decoded[k], gemms, config()));
        report.cores.push_back({one.fault, one.counters, one.cycles, std::nullopt});  // any start clears the bus's
      }
      sum_cores(report);
      if (report.cores.size() == 1) report.cores.clear();
      return report;
    };
    const auto begin = [&](const Job& job) {
      sim::RtlChipJob to{job.number, {job.cores.begin(), job.cores.end()}, {}};
      std::vector<CoreProgram> own{{job.request.program_address, job.request.instruction_count}};
      own.insert(own.end(), job.request.others.begin(), job.request.others.end());
      own.resize(job.cores.size());
      for (size_t k = 0; k < own.size(); ++k) {
        if (job.request.poison) poison(chip_->core(job.cores[k]), config(), *job.request.poison + k);
        programs[job.number].push_back(decode_program(program_words(own[k])));
        to.programs.push_back({own[k].program_address, own[k].instruction_count, job.request.bases, {}});
      }
      return to;
    };
    chip_->run_jobs(
        [&](const std::vector<sim::RtlChipEnd>& ended, bool running) {
          std::vector<JobEnd> ends;
          for (const sim::RtlChipEnd& end : ended) ends.push_back({end.number, report_of(end)});
          std::vector<sim::RtlChipJob> jobs;
          for (const Job& job : source(std::move(ends), running)) jobs.push_back(begin(job));
          return jobs;
        },
        heap().base(), heap().base() + heap().size_bytes() - 1, dram_);
  }

 private:
  sim::DramModel dram_;
  std::unique_ptr<sim::RtlChip> chip_;
};

}  // namespace

RtlInstallation inspect_rtl() {
  RtlInstallation found;
  const std::vector<isa::MachineConfig> built = sim::rtl_configs();
  for (const isa::ShippedConfig& config : isa::shipped_configs()) {
    const std::string name(config.name);
    const bool known = std::any_of(built.begin(), built.end(), [&](const auto& one) { return one.name == name; });
    if (known && sim::built_rtl(name) != nullptr) found.machines.push_back(name);
  }
  try {
    const sim::Tools tools = sim::find_tools("of your own");
    sim::rtl_home();
    found.tools = tools.verilator + " and " + tools.compiler[0];
  } catch (const Error& error) {
    found.missing = error.what();
  }
  found.cache = sim::rtl_cache();
  return found;
}

std::unique_ptr<Device> open_rtl(const isa::MachineConfig& config, const DeviceOptions& options) {
  if (config.cores > 1) return std::make_unique<RtlChipDevice>(config, options);
  return std::make_unique<RtlDevice>(config, options);
}

}  // namespace tessera::driver
