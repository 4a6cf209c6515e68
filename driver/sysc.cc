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
    if (request.poison) machine_.functional().poison(*request.poison);
    const sim::DramRegion region{heap().base(), host(heap().base()), heap().size_bytes()};
    sim::Trace trace;
    sim::systemc::TimedRequest inner;
    inner.program_address = request.program_address;
    inner.instruction_count = request.instruction_count;
    inner.bases = request.bases;
    inner.window_first = heap().base();
    inner.window_last = heap().base() + heap().size_bytes() - 1;
    inner.dram = {&region, 1};
    inner.timing = dram_;
    inner.memory_address = heap().base();
    if (request.profile) inner.trace = &trace;
    uint64_t executed = 0;
    if (request.progress) inner.observer = [&](const sim::Work&) { request.progress(false, ++executed); };
    const sim::systemc::TimedResult result = machine_.run(inner);
    RunReport report;
    fill_timed(report, result, result.macs);
    if (request.profile) fill_profile(report, trace, decode_program(program_words(request)), config());
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
