// SPDX-License-Identifier: Apache-2.0
// Device memory through xrt::bo. Enters: sizes, and bytes for device addresses. Leaves: device addresses. One buffer
// object is one allocation; a released one is kept for the next request of about its size, because making one costs a
// call of the kernel driver and pinned memory. Every transfer moves exactly the bytes asked for. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>

namespace tessera::driver {

class XrtBuffers {
 public:
  /// Buffers come from memory group `group` of the card.
  XrtBuffers(xrt::device device, int group) : device_(std::move(device)), group_(group) {}

  /// Errors: kInvalidArgument for the alignment, kDoesNotFit when the card has no room.
  uint64_t allocate(uint64_t size_bytes, uint64_t alignment);
  /// Errors: kInvalidArgument when no allocation begins at `address`.
  void free(uint64_t address);
  /// Errors: kInvalidArgument unless the range lies in one allocation.
  void write(uint64_t address, std::span<const uint8_t> bytes);
  void read(uint64_t address, std::span<uint8_t> bytes);

  /// What was last written to [address, address + size_bytes) from this side, as far as one allocation holds it.
  std::span<const uint8_t> mirror(uint64_t address, uint64_t size_bytes);

  /// First and last byte of all live allocations; {1, 0} without any.
  std::pair<uint64_t, uint64_t> window() const;

  size_t live() const { return blocks_.size(); }
  size_t kept() const { return kept_.size(); }

 private:
  struct Block {
    xrt::bo bo;
    uint64_t bytes = 0;  // as asked for
    uint64_t lead = 0;   // from the object's first byte, for alignments beyond a page
    uint64_t bo_bytes = 0;
  };
  Block& find(const char* what, uint64_t address, uint64_t size_bytes, uint64_t* offset);
  xrt::bo make(uint64_t size_bytes);
  void drop_kept();

  xrt::device device_;
  int group_;
  std::map<uint64_t, Block> blocks_;       // by device address
  std::multimap<uint64_t, xrt::bo> kept_;  // by size
  uint64_t kept_bytes_ = 0;
};

}  // namespace tessera::driver
