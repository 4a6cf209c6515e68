// SPDX-License-Identifier: Apache-2.0
// Best fit with joining. The cost of an allocation is linear in the number of holes, which stays small: a session
// allocates programs, constants and arenas, not tensors.
#include "driver/heap.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <string>

#include "base/error.h"

namespace tessera::driver {
namespace {

constexpr uint64_t kGranule = 64;

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

Heap::Heap(uint64_t base, uint64_t size_bytes) : base_(base), size_bytes_(size_bytes / kGranule * kGranule) {
  if (base % kGranule != 0) {
    throw Error(ErrorCode::kInvalidArgument, "heap base " + std::to_string(base) + " is no multiple of 64");
  }
  if (size_bytes_ == 0 || base > UINT64_MAX - size_bytes_) {
    throw Error(ErrorCode::kInvalidArgument, "heap of " + std::to_string(size_bytes) + " bytes at " +
                                                 std::to_string(base) + " is empty or leaves the 64-bit address space");
  }
  holes_[base_] = size_bytes_;
}

uint64_t Heap::allocate(uint64_t size_bytes, uint64_t alignment) {
  if (alignment < kGranule || !std::has_single_bit(alignment)) {
    throw Error(ErrorCode::kInvalidArgument, "alignment " + std::to_string(alignment) +
                                                 " is no power of two of at least " + std::to_string(kGranule));
  }
  const uint64_t asked = std::max<uint64_t>(size_bytes, 1);
  auto best = holes_.end();
  uint64_t best_start = 0;
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    const uint64_t padding = (alignment - hole->first % alignment) % alignment;
    if (asked > size_bytes_ || padding > hole->second || hole->second - padding < round_up(asked, kGranule)) continue;
    if (best == holes_.end() || hole->second < best->second) {
      best = hole;
      best_start = hole->first + padding;
    }
  }
  if (best == holes_.end()) {
    uint64_t largest = 0;
    for (const auto& [start, size] : holes_) largest = std::max(largest, size);
    throw Error(ErrorCode::kDoesNotFit, "device memory: " + std::to_string(asked) + " bytes at alignment " +
                                            std::to_string(alignment) + " do not fit; free are " +
                                            std::to_string(free_bytes()) + " of " + std::to_string(size_bytes_) +
                                            " bytes, the largest hole has " + std::to_string(largest));
  }
  const uint64_t size = round_up(asked, kGranule);
  const auto [hole_start, hole_size] = *best;
  holes_.erase(best);
  if (best_start > hole_start) holes_[hole_start] = best_start - hole_start;
  if (best_start + size < hole_start + hole_size)
    holes_[best_start + size] = hole_start + hole_size - best_start - size;
  blocks_[best_start] = asked;
  return best_start;
}

void Heap::free(uint64_t address) {
  const auto block = blocks_.find(address);
  if (block == blocks_.end()) {
    throw Error(ErrorCode::kInvalidArgument,
                "free of device address " + std::to_string(address) + ", where no allocation starts (released twice?)");
  }
  uint64_t start = address;
  uint64_t size = round_up(block->second, kGranule);
  blocks_.erase(block);
  auto next = holes_.lower_bound(start);
  if (next != holes_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == start) {
      start = previous->first;
      size += previous->second;
      holes_.erase(previous);
    }
  }
  if (next != holes_.end() && start + size == next->first) {
    size += next->second;
    holes_.erase(next);
  }
  holes_[start] = size;
}

bool Heap::contains(uint64_t address, uint64_t size_bytes) const {
  auto block = blocks_.upper_bound(address);
  if (block == blocks_.begin()) return false;
  --block;
  const uint64_t offset = address - block->first;
  return offset <= block->second && size_bytes <= block->second - offset;
}

uint64_t Heap::free_bytes() const {
  uint64_t sum = 0;
  for (const auto& [start, size] : holes_) sum += size;
  return sum;
}

}  // namespace tessera::driver
