// SPDX-License-Identifier: Apache-2.0
// One read for each register.
#include "driver/capabilities.h"

#include <algorithm>

#include "base/error.h"
#include "isa/generated/registers.h"

namespace tessera::driver {
namespace {

std::string describe(const isa::MachineConfig& config) {
  std::string name = "a machine";
  if (!config.name.empty()) name = std::string("'").append(config.name).append("'");
  return name + " (" + std::to_string(config.batch) + "x" + std::to_string(config.block_in) + "x" +
         std::to_string(config.block_out) + ")";
}

}  // namespace

uint32_t reported(const isa::ConfigKey& key, const isa::MachineConfig& config) {
  return key.name == "cores" && config.cores == 1 ? 0 : static_cast<uint32_t>(key.get(config));
}

isa::MachineConfig read_capabilities(const std::string& who, const ReadRegister& read, const std::string& remedy) {
  if (read(isa::reg::kMagic) != isa::reg::kMagicReset) {
    throw Error(ErrorCode::kUnsupported, who + " is no machine of this project");
  }
  const uint32_t version = read(isa::reg::kIsaVersion);
  if (version != static_cast<uint32_t>(isa::kIsaVersion)) {
    throw Error(ErrorCode::kUnsupported, who + " has version " + std::to_string(version) +
                                             " of the instruction set, this program version " +
                                             std::to_string(isa::kIsaVersion) + "; " + remedy);
  }
  isa::MachineConfig found;
  for (const isa::ConfigKey& key : isa::config_keys()) {
    for (const isa::reg::Register& reg : isa::reg::kRegisters) {
      if (reg.parameter == key.name) key.set(found, read(reg.offset));
    }
  }
  found.cores = std::max(found.cores, 1);
  for (const isa::ShippedConfig& shipped : isa::shipped_configs()) {
    isa::MachineConfig known = isa::parse_config(shipped.toml, std::string(shipped.name));
    found.name = known.name;
    if (found == known) return found;
  }
  found.name = "";
  return found;
}

void check_machine(const std::string& device, const std::string& place, const isa::MachineConfig& wanted,
                   const isa::MachineConfig& found, const std::string& remedy) {
  std::string differences;
  for (const isa::ConfigKey& key : isa::config_keys()) {
    if (key.get(wanted) == key.get(found)) continue;
    differences += (differences.empty() ? "" : ", ") + std::string(key.name) + " " + std::to_string(key.get(wanted)) +
                   " and " + std::to_string(key.get(found));
  }
  if (differences.empty()) return;
  throw Error(ErrorCode::kUnsupported, device + ": the program is for " + describe(wanted) + ", the machine " + place +
                                           " is " + describe(found) + "; they differ in " + differences + ". " +
                                           remedy);
}

RunReport read_records(const ReadRegister& read) {
  const auto read64 = [&](uint32_t offset) { return uint64_t{read(offset)} | uint64_t{read(offset + 4)} << 32; };
  RunReport report;
  const uint32_t fault = read(isa::reg::kFault);
  report.fault.code = static_cast<isa::Fault>((fault & isa::reg::kFaultCodeMask) >> isa::reg::kFaultCodeLsb);
  if (report.fault.code != isa::Fault::kNone) {
    report.fault.unit = static_cast<isa::Unit>((fault & isa::reg::kFaultUnitMask) >> isa::reg::kFaultUnitLsb);
    report.fault.pc = read(isa::reg::kFaultPc);
  }
  report.cycles = read64(isa::reg::kCycles);
  report.counters.instructions = read64(isa::reg::kInstructions);
  report.counters.bytes_read = read64(isa::reg::kBytesRead);
  report.counters.bytes_written = read64(isa::reg::kBytesWritten);
  for (int u = 0; u < static_cast<int>(kUnits); ++u) {
    UnitCounters& unit = report.counters.units[static_cast<size_t>(u)];
    unit.busy_cycles = read64(isa::reg::busy(u));
    unit.wait_cycles = {read64(isa::reg::wait_load(u)), read64(isa::reg::wait_gemm(u)), read64(isa::reg::wait_alu(u)),
                        read64(isa::reg::wait_store(u))};
    unit.stall_memory_cycles = read64(isa::reg::stall_memory(u));
    unit.stall_port_cycles = read64(isa::reg::stall_port(u));
    unit.executed = read64(isa::reg::executed(u));
  }
  return report;
}

}  // namespace tessera::driver
