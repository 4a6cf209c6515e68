// SPDX-License-Identifier: Apache-2.0
// The functional simulator as a Device.
#include <string>

#include "base/error.h"
#include "driver/backends.h"
#include "driver/simulated_device.h"
#include "sim/functional/machine.h"

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
      : SimulatedDevice(options), machine_(config, chosen_kernels(options)) {}

  const isa::MachineConfig& config() const override { return machine_.config(); }

 protected:
  RunReport execute(const RunRequest& request) override {
    if (request.poison) machine_.poison(*request.poison);
    std::vector<sim::DramRegion> regions;
    if (request.check_allocations) {
      for (const auto& [address, size] : heap().blocks()) regions.push_back({address, host(address), size});
    } else {
      regions.push_back({heap().base(), host(heap().base()), heap().size_bytes()});
    }
    RunReport report;
    sim::RunRequest inner;
    inner.program_address = request.program_address;
    inner.instruction_count = request.instruction_count;
    inner.bases = request.bases;
    inner.dram = regions;
    inner.check_races = request.check_races;
    uint64_t executed = 0;
    if (request.profile || request.progress) {
      inner.observer = [&](const sim::Work& work) {
        if (request.progress) request.progress(false, ++executed);
        if (!request.profile) return;
        report.profile.push_back({.pc = work.pc,
                                  .unit = work.unit,
                                  .macs = work.macs,
                                  .vectors = work.vectors,
                                  .bytes_read = work.dram_read_bytes,
                                  .bytes_written = work.dram_write_bytes});
      };
    }
    const sim::RunResult result = machine_.run(inner);
    report.fault = result.fault;
    fill(report.counters, result.counters);
    for (const sim::Race& race : result.races) {
      report.races.push_back({race.first.pc, race.first.unit, race.first.write, race.second.pc, race.second.unit,
                              race.second.write, race.dram, race.space, race.begin, race.end});
    }
    return report;
  }

 private:
  static void fill(Counters& to, const sim::Counters& from) {
    to.instructions = from.fetch_bytes / isa::kInstructionBytes;
    to.bytes_read = from.dram_read_bytes + from.fetch_bytes;
    to.bytes_written = from.dram_write_bytes;
    to.macs = from.macs;
    for (size_t u = 0; u < kUnits; ++u) to.units[u].executed = from.instructions[u];
  }

  sim::Machine machine_;
};

}  // namespace

std::unique_ptr<Device> open_fsim(const isa::MachineConfig& config, const DeviceOptions& options) {
  return std::make_unique<FunctionalDevice>(config, options);
}

}  // namespace tessera::driver
