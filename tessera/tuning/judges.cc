// SPDX-License-Identifier: Apache-2.0
#include "tessera/tuning/judges.h"

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "base/error.h"
#include "compiler/npu/planning/trial.h"
#include "driver/registry.h"
#include "isa/program/artifact.h"
#include "isa/verify/effects.h"

namespace tessera {

namespace {

using schedule::Cost;

constexpr uint64_t kAlignment = uint64_t{1} << 20;
constexpr uint64_t kHeapBytes = uint64_t{1} << 40;  // addresses, not memory: pages that nothing touches do not exist

class DeviceJudge final : public npu::StreamJudge {
 public:
  DeviceJudge(std::string device, const schedule::Machine& machine) : name_(std::move(device)), machine_(machine) {}

 private:
  /// Memory for a stream: the bytes behind each base register that it reaches.
  std::array<uint64_t, isa::kBases> allocate(const std::vector<isa::Instruction>& instructions) {
    std::array<int64_t, isa::kBases> ends{};
    for (const isa::Instruction& instruction : instructions) {
      if (const auto range = isa::dram_range(instruction)) ends[range->base] = std::max(ends[range->base], range->end);
    }
    std::array<uint64_t, isa::kBases> addresses{};
    for (size_t base = 0; base < ends.size(); ++base) {
      if (ends[base] > 0) addresses[base] = device_->allocate(static_cast<uint64_t>(ends[base]), kAlignment);
    }
    return addresses;
  }

  Cost run(const schedule::InstructionStream& stream) override {
    if (!device_) {
      driver::DeviceOptions options;
      options.heap_bytes = kHeapBytes;
      if (!machine_.dram_cost.preset.empty()) {
        options.backend["dram"] = machine_.dram_cost.preset;
      } else {
        options.backend["latency"] = std::to_string(machine_.dram_latency_cycles);
        options.backend["bandwidth"] = std::to_string(machine_.bytes_per_cycle());
      }
      device_ = driver::open_device(name_, machine_.config, options);
    }
    const std::vector<uint8_t> words = program::instruction_bytes(stream.instructions);
    driver::RunRequest request;
    request.bases = allocate(stream.instructions);
    request.program_address = device_->allocate(words.size());
    request.instruction_count = static_cast<uint32_t>(stream.instructions.size());
    device_->write(request.program_address, words);
    const driver::RunReport report = device_->run(request);
    device_->free(request.program_address);
    for (const uint64_t address : request.bases) {
      if (address != 0) device_->free(address);
    }
    TESSERA_INVARIANT(report.ok() && report.cycles,
                      "a stream that is judged on " + name_ + " failed: " + driver::describe(report.fault));
    return {static_cast<int64_t>(*report.cycles), stream.dram_bytes, stream.computed};
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

}  // namespace tessera
