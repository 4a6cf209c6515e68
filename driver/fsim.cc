// SPDX-License-Identifier: Apache-2.0
// The functional simulator as a Device.
#include <atomic>
#include <string>

#include "base/error.h"
#include "driver/backends.h"
#include "driver/simulated_device.h"
#include "sim/functional/chip.h"

namespace tessera::driver {
namespace {

sim::Kernels chosen_kernels(const DeviceOptions& options) {
  sim::Kernels kernels = sim::default_kernels();
  for (const auto& [name, value] : options.backend) {
    if (name != "kernels") {
      throw Error(ErrorCode::kInvalidArgument, "device fsim has no option '" + name + "'; known: kernels");
    }
    kernels = sim::parse_kernels(value);
  }
  return kernels;
}

class FunctionalDevice final : public SimulatedDevice {
 public:
  FunctionalDevice(const isa::MachineConfig& config, const DeviceOptions& options)
      : SimulatedDevice(options), chip_(config, chosen_kernels(options)) {}

  const isa::MachineConfig& config() const override { return chip_.config(); }

 protected:
  RunReport execute(const RunRequest& request) override {
    const auto cores = static_cast<size_t>(config().cores);
    if (request.poison) {
      for (size_t k = 0; k < cores; ++k) chip_.core(k).poison(*request.poison + k);
    }
    std::vector<sim::DramRegion> regions;
    if (request.check_allocations) {
      for (const auto& [address, size] : heap().blocks()) regions.push_back({address, host(address), size});
    } else {
      regions.push_back({heap().base(), host(heap().base()), heap().size_bytes()});
    }
    std::vector<std::vector<InstructionProfile>> profiles(cores);
    std::atomic<uint64_t> executed = 0;
    sim::ChipRequest inner;
    inner.threads = cores > 1 && !request.check_races;
    inner.check_races = request.check_races;
    if (request.progress) inner.meanwhile = [&] { request.progress(false, executed); };
    std::vector<sim::RunRequest> programs(1 + request.others.size());
    for (size_t k = 0; k < programs.size(); ++k) {
      sim::RunRequest& one = programs[k];
      one.program_address = k == 0 ? request.program_address : request.others[k - 1].program_address;
      one.instruction_count = k == 0 ? request.instruction_count : request.others[k - 1].instruction_count;
      one.bases = request.bases;
      one.dram = regions;
      if (!request.profile && !request.progress) continue;
      one.observer = [&, k, threads = inner.threads](const sim::Work& work) {
        const uint64_t number = ++executed;
        if (request.progress && !threads) request.progress(false, number);
        if (request.profile) profiles[k].push_back(profile_of(work, k));
      };
    }
    inner.cores = programs;
    return report_of(chip_.run(inner), profiles);
  }

 private:
  static InstructionProfile profile_of(const sim::Work& work, size_t core) {
    return {.pc = work.pc,
            .unit = work.unit,
            .core = static_cast<uint32_t>(core),
            .macs = work.macs,
            .vectors = work.vectors,
            .bytes_read = work.dram_read_bytes,
            .bytes_written = work.dram_write_bytes};
  }

  static RunReport report_of(const sim::ChipResult& result,
                             const std::vector<std::vector<InstructionProfile>>& profiles) {
    RunReport report;
    for (const sim::RunResult& core : result.cores) {
      CoreReport& to = report.cores.emplace_back();
      to.fault = core.fault;
      fill(to.counters, core.counters);
    }
    sum_cores(report);
    if (report.cores.size() == 1) report.cores.clear();
    for (const auto& profile : profiles) report.profile.insert(report.profile.end(), profile.begin(), profile.end());
    for (const sim::Race& race : result.races) {
      report.races.push_back({race.first.pc, race.first.unit, race.first.write, race.second.pc, race.second.unit,
                              race.second.write, race.dram, race.space, race.begin, race.end, race.first.core,
                              race.second.core});
    }
    return report;
  }

  static void fill(Counters& to, const sim::Counters& from) {
    to.instructions = from.fetch_bytes / isa::kInstructionBytes;
    to.bytes_read = from.dram_read_bytes + from.fetch_bytes;
    to.bytes_written = from.dram_write_bytes;
    to.macs = from.macs;
    for (size_t u = 0; u < kUnits; ++u) to.units[u].executed = from.instructions[u];
  }

  sim::Chip chip_;
};

}  // namespace

std::unique_ptr<Device> open_fsim(const isa::MachineConfig& config, const DeviceOptions& options) {
  return std::make_unique<FunctionalDevice>(config, options);
}

}  // namespace tessera::driver
