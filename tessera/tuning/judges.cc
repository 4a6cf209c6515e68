// SPDX-License-Identifier: Apache-2.0
#include "tessera/tuning/judges.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "base/error.h"
#include "compiler/npu/cores/cores.h"
#include "compiler/npu/cores/cores_costs.h"
#include "compiler/npu/planning/trial.h"
#include "driver/registry.h"
#include "isa/program/artifact.h"
#include "isa/verify/effects.h"

namespace tessera {

namespace {

using schedule::Cost;

constexpr uint64_t kAlignment = uint64_t{1} << 20;
constexpr uint64_t kHeapBytes = uint64_t{1} << 40;  // addresses, not memory: pages that nothing touches do not exist

std::unique_ptr<driver::Device> open(const std::string& name, const isa::MachineConfig& config, int64_t latency,
                                     int64_t bandwidth, const std::string& preset) {
  driver::DeviceOptions options;
  options.heap_bytes = kHeapBytes;
  if (!preset.empty()) {
    options.backend["dram"] = preset;
  } else {
    options.backend["latency"] = std::to_string(latency);
    options.backend["bandwidth"] = std::to_string(bandwidth);
  }
  return driver::open_device(name, config, options);
}

/// The streams of the cores that have one, run on a device without their data. Cycles.
int64_t run(driver::Device& device, const std::vector<const std::vector<isa::Instruction>*>& streams) {
  driver::RunRequest request;
  // Memory for what is behind each base register that a stream reaches.
  std::array<int64_t, isa::kBases> ends{};
  for (const auto* stream : streams)
    for (const isa::Instruction& instruction : *stream)
      if (const auto range = isa::dram_range(instruction)) ends[range->base] = std::max(ends[range->base], range->end);
  for (size_t base = 0; base < ends.size(); ++base)
    if (ends[base] > 0) request.bases[base] = device.allocate(static_cast<uint64_t>(ends[base]), kAlignment);
  std::vector<uint64_t> places;
  for (const auto* stream : streams) {
    const std::vector<uint8_t> words = program::instruction_bytes(*stream);
    places.push_back(device.allocate(words.size()));
    device.write(places.back(), words);
    const auto count = static_cast<uint32_t>(stream->size());
    if (places.size() == 1) {
      request.program_address = places.back();
      request.instruction_count = count;
    } else {
      request.others.push_back({places.back(), count});
    }
  }
  const driver::RunReport report = device.run(request);
  for (const uint64_t address : places) device.free(address);
  for (const uint64_t address : request.bases)
    if (address != 0) device.free(address);
  TESSERA_INVARIANT(report.ok() && report.cycles,
                    "a stream that is judged on a device failed: " + driver::describe(report.fault));
  return static_cast<int64_t>(*report.cycles);
}

class DeviceJudge final : public npu::StreamJudge {
 public:
  DeviceJudge(std::string device, const schedule::Machine& machine) : name_(std::move(device)), machine_(machine) {}

 private:
  Cost run(const schedule::InstructionStream& stream) override {
    if (!device_)
      device_ = open(name_, machine_.config, machine_.dram_latency_cycles, machine_.bytes_per_cycle(),
                     machine_.dram_cost.preset);
    return {tessera::run(*device_, {&stream.instructions}), stream.dram_bytes, stream.computed};
  }

  const std::string name_;
  const schedule::Machine machine_;
  std::unique_ptr<driver::Device> device_;  // opened when first asked
};

}  // namespace

void register_device_judges() {
  static const bool once = [] {
    for (const driver::BackendInfo& backend : driver::backends()) {
      const std::string& name = backend.name;
      if (name != "sysc" && name != "rtl") continue;
      schedule::cost_models().add(
          name, "the cycles of the instructions on device " + name,
          [name](const schedule::Machine& machine) { return std::make_unique<DeviceJudge>(name, machine); });
    }
    return true;
  }();
  static_cast<void>(once);
}

int64_t ChipJudge::cycles(const npu::Program& program, const std::string& judge) {
  if (judge == npu::kReplayJudge) return npu::predicted_cycles(program);
  if (judge == "closed-form")
    throw Error(ErrorCode::kInvalidArgument, "the judge '" + judge + "' does not look at programs of several cores");
  std::unique_ptr<driver::Device>& device = devices_[judge];
  if (!device)
    device = open(judge, config_, options_.dram_latency_cycles, npu::bytes_of_all(config_, options_),
                  options_.dram_cost.preset);
  std::vector<const std::vector<isa::Instruction>*> streams = {&program.instructions};
  for (const npu::CoreProgram& other : program.others) streams.push_back(&other.instructions);
  return run(*device, streams);
}

}  // namespace tessera
