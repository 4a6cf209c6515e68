// SPDX-License-Identifier: Apache-2.0
// Allocation of the memories at cache-line alignment, and the poison generator (splitmix64: any seed, also 0, is good).
#include "sim/functional/scratchpads.h"

#include <cstring>
#include <new>

namespace tessera::sim {

namespace {

constexpr std::align_val_t kAlignment{64};

uint64_t splitmix64(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

void Scratchpads::FreeAligned::operator()(uint8_t* data) const { ::operator delete[](data, kAlignment); }

Scratchpads::Scratchpads(const isa::MachineConfig& config) {
  for (int k = 0; k < isa::kSpaces; ++k) {
    const auto space = static_cast<isa::Space>(k);
    Memory& m = memories_[static_cast<size_t>(k)];
    m.size_bytes = static_cast<size_t>(config.space_bytes(space));
    m.entry_bytes = static_cast<size_t>(config.entry_bytes(space));
    m.data.reset(new (kAlignment) uint8_t[m.size_bytes + kSlackBytes]);
    std::memset(m.data.get(), 0, m.size_bytes + kSlackBytes);
  }
}

void Scratchpads::poison(uint64_t seed) {
  uint64_t state = seed;
  for (Memory& m : memories_) {
    size_t position = 0;
    while (position < m.size_bytes) {
      const uint64_t value = splitmix64(state);
      const size_t count = m.size_bytes - position < 8 ? m.size_bytes - position : 8;
      std::memcpy(m.data.get() + position, &value, count);
      position += count;
    }
  }
}

}  // namespace tessera::sim
