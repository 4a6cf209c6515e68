// SPDX-License-Identifier: Apache-2.0
// Texts of reports.
#include "driver/device.h"

#include <vector>

namespace tessera::driver {

std::string describe(const RaceReport& race) {
  const auto access = [](uint32_t pc, isa::Unit unit, bool writes) {
    return std::to_string(pc) + " (" + std::string(isa::to_string(unit)) + (writes ? ", write)" : ", read)");
  };
  return "race on " + std::string(race.dram ? "dram" : isa::to_string(race.space)) + "[" + std::to_string(race.begin) +
         ", " + std::to_string(race.end) + "): instruction " +
         access(race.first_pc, race.first_unit, race.first_writes) + " and " +
         access(race.second_pc, race.second_unit, race.second_writes);
}

std::string describe(const isa::FaultRecord& fault) {
  if (fault.code == isa::Fault::kNone) return "none";
  return std::string(isa::to_string(fault.code)) + " at instruction " + std::to_string(fault.pc) + " (" +
         std::string(isa::to_string(fault.unit)) + ")" +
         (fault.code == isa::Fault::kMemoryParity ? ", a bit of an on-chip memory has turned over: run it again" : "");
}

void Device::copy(uint64_t to, uint64_t from, uint64_t size_bytes) {
  std::vector<uint8_t> bytes(size_bytes);
  read(from, bytes);
  write(to, bytes);
}

}  // namespace tessera::driver
