// SPDX-License-Identifier: Apache-2.0
// 64-byte aligned memory that is used again: a block that nobody holds any more goes back to its pool, so that a model
// which runs repeatedly asks the operating system for memory, and for zeroed pages, once.
#pragma once

#include <cstddef>
#include <memory>

namespace tessera::runtime {

/// Hands out blocks. Thread-safe. Blocks may outlive the pool.
class BufferPool {
 public:
  BufferPool();
  /// A block of at least `bytes` bytes, aligned to 64, its content undefined. Errors: kDoesNotFit.
  std::shared_ptr<std::byte> acquire(size_t bytes);
  /// Bytes of the blocks that wait to be used again.
  size_t waiting_bytes() const;

 private:
  struct Free;
  std::shared_ptr<Free> free_;
};

}  // namespace tessera::runtime
