// SPDX-License-Identifier: Apache-2.0
// The Verilated RTL as a Device: exact results and exact cycles. A configuration that this build has not verilated is
// made when the device is opened (sim/verilator/build.h). Options: latency (cycles of DRAM, default 100), bandwidth
// (bytes a cycle, default the width of the bus), dram (a preset of docs/dram.md, default ideal), pressure (per cent of
// moments at which DRAM refuses, default 0), seed (of pressure), waves (an FST file).
#include <algorithm>
#include <random>

#include "driver/backends.h"
#include "driver/profile.h"
#include "driver/registry.h"
#include "driver/simulated_device.h"
#include "sim/verilator/build.h"
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
    if (request.poison) {
      std::mt19937_64 random(*request.poison);
      for (int s = 0; s < isa::kSpaces; ++s) {
        const auto space = static_cast<isa::Space>(s);
        std::vector<uint8_t> bytes(static_cast<size_t>(config().space_bytes(space)));
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
        machine_->write_scratchpad(space, 0, bytes);
      }
    }
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
  return std::make_unique<RtlDevice>(config, options);
}

}  // namespace tessera::driver
