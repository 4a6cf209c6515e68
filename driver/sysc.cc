// SPDX-License-Identifier: Apache-2.0
// The SystemC timing model as a Device: the functional simulator's results with the cycles that isa/timing.md derives
// for the RTL. Options: latency (cycles of DRAM, default 100), bandwidth (bytes a cycle, default the width of the bus),
// dram (a preset of docs/dram.md, default ideal).
#include "driver/backends.h"
#include "driver/profile.h"
#include "driver/simulated_device.h"
#include "sim/systemc/machine.h"

namespace tessera::driver {
namespace {

class SystemcDevice final : public SimulatedDevice {
 public:
  SystemcDevice(const isa::MachineConfig& config, const DeviceOptions& options)
      : SimulatedDevice(options), machine_(config), dram_(dram_options("sysc", config, options, false, {})) {}

  const isa::MachineConfig& config() const override { return machine_.config(); }

 protected:
  RunReport execute(const RunRequest& request) override {
    refuse_checks("sysc", request);
    const auto cores = static_cast<size_t>(config().cores);
    if (request.poison) {
      for (size_t k = 0; k < cores; ++k) machine_.functional(k).poison(*request.poison + k);
    }
    const sim::DramRegion region{heap().base(), host(heap().base()), heap().size_bytes()};
    std::vector<CoreProgram> programs{{request.program_address, request.instruction_count}};
    programs.insert(programs.end(), request.others.begin(), request.others.end());
    std::vector<sim::Trace> traces(programs.size());
    std::vector<sim::systemc::TimedRequest> inner(programs.size());
    uint64_t executed = 0;
    for (size_t k = 0; k < programs.size(); ++k) {
      inner[k].program_address = programs[k].program_address;
      inner[k].instruction_count = programs[k].instruction_count;
      inner[k].bases = request.bases;
      inner[k].window_first = heap().base();
      inner[k].window_last = heap().base() + heap().size_bytes() - 1;
      inner[k].dram = {&region, 1};
      inner[k].timing = dram_;
      inner[k].memory_address = heap().base();
      if (request.profile) inner[k].trace = &traces[k];
      if (request.progress) inner[k].observer = [&](const sim::Work&) { request.progress(false, ++executed); };
    }
    const std::vector<sim::systemc::TimedResult> results = machine_.run(inner);
    RunReport report;
    for (size_t k = 0; k < programs.size() && request.profile; ++k)
      fill_profile(report, traces[k], decode_program(program_words(programs[k])), config(), static_cast<uint32_t>(k));
    if (cores == 1) {
      fill_timed(report, results[0], results[0].macs);
      return report;
    }
    for (const sim::systemc::TimedResult& result : results)
      fill_timed(report.cores.emplace_back(), result, result.macs);
    sum_cores(report);
    return report;
  }

 private:
  sim::systemc::TimedMachine machine_;
  sim::DramOptions dram_;
};

}  // namespace

std::unique_ptr<Device> open_sysc(const isa::MachineConfig& config, const DeviceOptions& options) {
  return std::make_unique<SystemcDevice>(config, options);
}

}  // namespace tessera::driver
