// SPDX-License-Identifier: Apache-2.0
// DRAM as the functional simulator sees it: address ranges that are backed by host memory. An access must lie inside
// one range as a whole; everything else is the fault dram_range.
#pragma once

#include <cstdint>
#include <span>

namespace tessera::sim {

struct DramRegion {
  uint64_t address = 0;  // first device address
  uint8_t* data = nullptr;
  uint64_t size_bytes = 0;
};

/// Host memory behind device bytes [address, address + size_bytes), or null when no single region holds them all.
inline uint8_t* find_dram(std::span<const DramRegion> regions, uint64_t address, uint64_t size_bytes) {
  for (const DramRegion& region : regions) {
    if (address < region.address) continue;
    const uint64_t offset = address - region.address;
    if (offset <= region.size_bytes && size_bytes <= region.size_bytes - offset) return region.data + offset;
  }
  return nullptr;
}

}  // namespace tessera::sim
