// SPDX-License-Identifier: Apache-2.0
#include "driver/remote/partition.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "driver/heap.h"

namespace tessera::driver {
namespace {

constexpr uint64_t kPiece = uint64_t{1} << 20;

class Partition final : public Device {
 public:
  Partition(std::unique_ptr<Device> card, uint64_t bytes)
      : card_(std::move(card)), heap_(card_->allocate(bytes), bytes) {
    const std::vector<uint8_t> zeros(std::min(bytes, kPiece));
    for (uint64_t at = 0; at < bytes; at += kPiece)
      card_->write(heap_.base() + at, std::span(zeros).first(std::min(kPiece, bytes - at)));
  }

  const isa::MachineConfig& config() const override { return card_->config(); }
  bool can_profile() const override { return card_->can_profile(); }

  uint64_t allocate(uint64_t size_bytes, uint64_t alignment) override {
    const std::lock_guard lock(mutex_);
    return heap_.allocate(size_bytes, alignment);
  }

  void free(uint64_t address) override {
    const std::lock_guard lock(mutex_);
    heap_.free(address);
  }

  void write(uint64_t address, std::span<const uint8_t> bytes) override {
    check("write", address, bytes.size());
    card_->write(address, bytes);
  }

  void read(uint64_t address, std::span<uint8_t> bytes) override {
    check("read", address, bytes.size());
    card_->read(address, bytes);
  }

  RunReport run(const RunRequest& request) override { return card_->run(request); }

 private:
  void check(const char* what, uint64_t address, uint64_t size_bytes) {
    const std::lock_guard lock(mutex_);
    if (size_bytes != 0 && !heap_.contains(address, size_bytes))
      throw Error(ErrorCode::kInvalidArgument, std::string(what) + " of " + std::to_string(size_bytes) +
                                                   " bytes at device address " + std::to_string(address) +
                                                   " is not inside one allocation");
  }

  std::unique_ptr<Device> card_;
  std::mutex mutex_;
  Heap heap_;
};

}  // namespace

std::unique_ptr<Device> open_partition(std::unique_ptr<Device> card, uint64_t bytes) {
  return std::make_unique<Partition>(std::move(card), bytes);
}

}  // namespace tessera::driver
