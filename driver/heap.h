// SPDX-License-Identifier: Apache-2.0
// Which device addresses are in use. Enters: sizes and alignments. Leaves: addresses of disjoint blocks of one range.
// Best fit over an ordered map of holes, neighbours joined on release; the memory itself lies elsewhere. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <map>

namespace tessera::driver {

class Heap {
 public:
  /// Addresses [base, base + size_bytes), no wrap-around; base a multiple of 64. Throws Error kInvalidArgument.
  Heap(uint64_t base, uint64_t size_bytes);

  uint64_t base() const { return base_; }
  uint64_t size_bytes() const { return size_bytes_; }

  /// A block of at least `size_bytes` (rounded up to 64) at a multiple of `alignment`, a power of two of at least 64.
  /// Errors: kInvalidArgument, kDoesNotFit.
  uint64_t allocate(uint64_t size_bytes, uint64_t alignment);

  /// Errors: kInvalidArgument when no block starts at `address`.
  void free(uint64_t address);

  /// Whether [address, address + size_bytes) lies inside one live block (by the size asked for).
  bool contains(uint64_t address, uint64_t size_bytes) const;

  /// Live blocks: address to the size asked for.
  const std::map<uint64_t, uint64_t>& blocks() const { return blocks_; }

  uint64_t free_bytes() const;

 private:
  uint64_t base_;
  uint64_t size_bytes_;
  std::map<uint64_t, uint64_t> blocks_;
  std::map<uint64_t, uint64_t> holes_;
};

}  // namespace tessera::driver
