// SPDX-License-Identifier: Apache-2.0
// Texts of reports.
#include "driver/device.h"

#include <algorithm>
#include <vector>

namespace tessera::driver {

std::string describe(const RaceReport& race) {
  const bool cores = race.first_core != race.second_core || race.first_core != 0;
  const auto access = [&](uint32_t core, uint32_t pc, isa::Unit unit, bool writes) {
    return std::to_string(pc) + (cores ? " of core " + std::to_string(core) : "") + " (" +
           std::string(isa::to_string(unit)) + (writes ? ", write)" : ", read)");
  };
  return "race on " + std::string(race.dram ? "dram" : isa::to_string(race.space)) + "[" + std::to_string(race.begin) +
         ", " + std::to_string(race.end) + "): instruction " +
         access(race.first_core, race.first_pc, race.first_unit, race.first_writes) + " and " +
         access(race.second_core, race.second_pc, race.second_unit, race.second_writes);
}

std::string describe(const isa::FaultRecord& fault) {
  if (fault.code == isa::Fault::kNone) return "none";
  return std::string(isa::to_string(fault.code)) + " at instruction " + std::to_string(fault.pc) + " (" +
         std::string(isa::to_string(fault.unit)) + ")" +
         (fault.code == isa::Fault::kMemoryParity ? ", a bit of an on-chip memory has turned over: run it again" : "");
}

std::string describe_fault(const RunReport& report) {
  return describe(report.fault) +
         (report.ok() || report.cores.empty() ? "" : " of core " + std::to_string(report.fault_core));
}

/// The fault of the whole run, the sums of the counters and the last end, out of the reports of the cores.
void sum_cores(RunReport& report) {
  for (uint32_t k = 0; k < report.cores.size(); ++k) {
    const CoreReport& core = report.cores[k];
    report.counters += core.counters;
    if (core.cycles) report.cycles = std::max(report.cycles.value_or(0), *core.cycles);
    if (core.fault.code == isa::Fault::kNone) continue;
    const bool first = report.fault.code == isa::Fault::kNone;
    const bool cause = report.fault.code == isa::Fault::kNoProgress && core.fault.code != isa::Fault::kNoProgress;
    if (!first && !cause) continue;
    report.fault = core.fault;
    report.fault_core = k;
  }
}

Counters& Counters::operator+=(const Counters& other) {
  instructions += other.instructions;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  macs += other.macs;
  for (size_t u = 0; u < units.size(); ++u) {
    units[u].executed += other.units[u].executed;
    units[u].busy_cycles += other.units[u].busy_cycles;
    for (size_t e = 0; e < units[u].wait_cycles.size(); ++e) units[u].wait_cycles[e] += other.units[u].wait_cycles[e];
    units[u].stall_memory_cycles += other.units[u].stall_memory_cycles;
    units[u].stall_port_cycles += other.units[u].stall_port_cycles;
  }
  return *this;
}

void Device::copy(uint64_t to, uint64_t from, uint64_t size_bytes) {
  std::vector<uint8_t> bytes(size_bytes);
  read(from, bytes);
  write(to, bytes);
}

}  // namespace tessera::driver
