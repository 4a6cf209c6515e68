// SPDX-License-Identifier: Apache-2.0
// Devices that know time as judges of schedules: a stream runs without its data, and its cycles are the cost. The cost
// models "sysc" and "rtl" exist where their machines were built, and `--judge` takes them as a tuner does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "compiler/npu/graph/graph.h"
#include "driver/device.h"

namespace tessera {

/// Makes them known by name; further calls do nothing. Not done while the program is loaded: a static library would
/// drop an object that nobody names.
void register_device_judges();

/// What programs of all cores of a chip take together.
class ChipJudge {
 public:
  /// `options`: of the memory.
  ChipJudge(const isa::MachineConfig& config, const npu::Options& options) : config_(config), options_(options) {}
  /// Cycles by "replay", which the program says itself, or on a device. Errors: kInvalidArgument for other judges.
  int64_t cycles(const npu::Program& program, const std::string& judge);

 private:
  const isa::MachineConfig config_;
  const npu::Options options_;
  std::map<std::string, std::unique_ptr<driver::Device>> devices_;  // opened when first asked
};

}  // namespace tessera
