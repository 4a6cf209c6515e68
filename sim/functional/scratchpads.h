// SPDX-License-Identifier: Apache-2.0
// The on-chip memories of one machine: six byte arrays with the entry sizes and depths of a configuration. Every array
// has slack behind its last byte, so that a vector kernel may read (never write) up to kSlackBytes past the end of an
// entry.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::sim {

class Scratchpads {
 public:
  static constexpr size_t kSlackBytes = 256;

  explicit Scratchpads(const isa::MachineConfig& config);

  /// The memory's bytes without the slack.
  std::span<uint8_t> bytes(isa::Space space) { return {memory(space).data.get(), memory(space).size_bytes}; }
  std::span<const uint8_t> bytes(isa::Space space) const {
    return {memory(space).data.get(), memory(space).size_bytes};
  }

  size_t size_bytes(isa::Space space) const { return memory(space).size_bytes; }
  size_t entry_bytes(isa::Space space) const { return memory(space).entry_bytes; }
  /// Whole entries in the memory.
  size_t depth(isa::Space space) const { return memory(space).size_bytes / memory(space).entry_bytes; }

  /// Fills every memory with bytes of a generator started with `seed`.
  void poison(uint64_t seed);

 private:
  struct FreeAligned {
    void operator()(uint8_t* data) const;
  };
  struct Memory {
    std::unique_ptr<uint8_t[], FreeAligned> data;
    size_t size_bytes = 0;
    size_t entry_bytes = 1;
  };
  Memory& memory(isa::Space space) { return memories_[static_cast<size_t>(space)]; }
  const Memory& memory(isa::Space space) const { return memories_[static_cast<size_t>(space)]; }

  std::array<Memory, isa::kSpaces> memories_;
};

}  // namespace tessera::sim
