// SPDX-License-Identifier: Apache-2.0
// Free blocks by size. A request takes the smallest block that is large enough, unless that would waste more than half
// of it.
#include "runtime/buffer_pool.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "base/error.h"

namespace tessera::runtime {

struct BufferPool::Free {
  mutable std::mutex mutex;
  std::multimap<size_t, std::byte*> blocks;

  ~Free() {
    for (const auto& [size, block] : blocks) std::free(block);
  }

  /// The size of the block that is taken, 0 if none fits.
  size_t take(size_t size, std::byte*& block) {
    const std::scoped_lock lock(mutex);
    const auto found = blocks.lower_bound(size);
    if (found == blocks.end() || found->first / 2 > size) return 0;
    const size_t held = found->first;
    block = found->second;
    blocks.erase(found);
    return held;
  }

  void give(size_t size, std::byte* block) {
    const std::scoped_lock lock(mutex);
    blocks.emplace(size, block);
  }
};

BufferPool::BufferPool() : free_(std::make_shared<Free>()) {}

std::shared_ptr<std::byte> BufferPool::acquire(size_t bytes) {
  const size_t size = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
  std::byte* block = nullptr;
  size_t held = free_->take(size, block);
  if (held == 0) {
    held = size;
    block = static_cast<std::byte*>(std::aligned_alloc(64, size));
  }
  if (block == nullptr)
    throw Error(ErrorCode::kDoesNotFit, "the host has no memory for " + std::to_string(bytes) + " bytes");
  return {block, [free = free_, held](std::byte* data) { free->give(held, data); }};
}

size_t BufferPool::waiting_bytes() const {
  const std::scoped_lock lock(free_->mutex);
  size_t sum = 0;
  for (const auto& [size, block] : free_->blocks) sum += size;
  return sum;
}

}  // namespace tessera::runtime
