// SPDX-License-Identifier: Apache-2.0
// Sizes are whole pages; a kept object serves a request that fills at least three quarters of it.
#include "driver/xrt/xrt_buffers.h"

#include <algorithm>
#include <new>
#include <string>
#include <system_error>

#include "base/error.h"
#include "driver/device.h"

namespace tessera::driver {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kMostKeptBytes = uint64_t{256} << 20;

}  // namespace

xrt::bo XrtBuffers::make(uint64_t size_bytes) {
  const auto fitting = kept_.lower_bound(size_bytes);
  if (fitting != kept_.end() && fitting->first - fitting->first / 4 <= size_bytes) {
    xrt::bo bo = std::move(fitting->second);
    kept_bytes_ -= fitting->first;
    kept_.erase(fitting);
    return bo;
  }
  for (int attempt = 0;; ++attempt) {
    std::string cause;
    try {
      return xrt::bo(device_, size_bytes, static_cast<xrt::memory_group>(group_));
    } catch (const std::bad_alloc&) {
      cause = "no room";
    } catch (const std::exception& e) {
      cause = e.what();
    }
    if (attempt == 1 || kept_.empty()) {
      uint64_t held = 0;
      for (const auto& [address, block] : blocks_) held += block.bo_bytes;
      throw Error(ErrorCode::kDoesNotFit, "the card does not provide " + std::to_string(size_bytes) +
                                              " bytes in memory group " + std::to_string(group_) + " (" + cause +
                                              "); this device holds " + std::to_string(held) +
                                              " bytes; free buffers or close other sessions on the card");
    }
    drop_kept();
  }
}

void XrtBuffers::drop_kept() {
  kept_.clear();
  kept_bytes_ = 0;
}

uint64_t XrtBuffers::allocate(uint64_t size_bytes, uint64_t alignment) {
  if (alignment < 64 || (alignment & (alignment - 1)) != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "alignment " + std::to_string(alignment) + " is no power of two of at least 64");
  }
  const uint64_t lead_room = alignment > kPageBytes ? alignment - kPageBytes : 0;
  const uint64_t wanted = std::max<uint64_t>(size_bytes, 1);
  if (wanted > UINT64_MAX - lead_room - kPageBytes) {
    throw Error(ErrorCode::kDoesNotFit, "no card provides " + std::to_string(size_bytes) + " bytes");
  }
  const uint64_t bytes = (wanted + lead_room + kPageBytes - 1) / kPageBytes * kPageBytes;
  Block block;
  block.bo = make(bytes);
  block.bytes = wanted;
  block.bo_bytes = block.bo.size();
  const uint64_t begin = block.bo.address();
  const uint64_t address = (begin + alignment - 1) / alignment * alignment;
  block.lead = address - begin;
  blocks_[address] = std::move(block);
  return address;
}

void XrtBuffers::free(uint64_t address) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) {
    throw Error(ErrorCode::kInvalidArgument, "no allocation begins at device address " + std::to_string(address));
  }
  const uint64_t bytes = found->second.bo_bytes;
  if (kept_bytes_ + bytes <= kMostKeptBytes) {
    kept_.emplace(bytes, std::move(found->second.bo));
    kept_bytes_ += bytes;
  }
  blocks_.erase(found);
}

XrtBuffers::Block& XrtBuffers::find(const char* what, uint64_t address, uint64_t size_bytes, uint64_t* offset) {
  auto after = blocks_.upper_bound(address);
  if (after != blocks_.begin()) {
    --after;
    *offset = address - after->first;
    if (*offset <= after->second.bytes && size_bytes <= after->second.bytes - *offset) {
      *offset += after->second.lead;
      return after->second;
    }
  }
  throw Error(ErrorCode::kInvalidArgument, std::string(what) + " of " + std::to_string(size_bytes) +
                                               " bytes at device address " + std::to_string(address) +
                                               " is not inside one allocation");
}

void XrtBuffers::write(uint64_t address, std::span<const uint8_t> bytes) {
  if (bytes.empty()) return;
  uint64_t offset = 0;
  Block& block = find("write", address, bytes.size(), &offset);
  block.bo.write(bytes.data(), bytes.size(), offset);
  block.bo.sync(XCL_BO_SYNC_BO_TO_DEVICE, bytes.size(), offset);
}

void XrtBuffers::read(uint64_t address, std::span<uint8_t> bytes) {
  if (bytes.empty()) return;
  uint64_t offset = 0;
  Block& block = find("read", address, bytes.size(), &offset);
  block.bo.sync(XCL_BO_SYNC_BO_FROM_DEVICE, bytes.size(), offset);
  block.bo.read(bytes.data(), bytes.size(), offset);
}

std::span<const uint8_t> XrtBuffers::mirror(uint64_t address, uint64_t size_bytes) {
  auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return {};
  --after;
  const uint64_t offset = address - after->first;
  if (offset >= after->second.bytes) return {};
  return {after->second.bo.map<const uint8_t*>() + after->second.lead + offset,
          static_cast<size_t>(std::min(size_bytes, after->second.bytes - offset))};
}

std::pair<uint64_t, uint64_t> XrtBuffers::window() const {
  if (blocks_.empty()) return {1, 0};
  uint64_t last = 0;
  for (const auto& [address, block] : blocks_) last = std::max(last, address - block.lead + block.bo_bytes - 1);
  return {blocks_.begin()->first - blocks_.begin()->second.lead, last};
}

}  // namespace tessera::driver
