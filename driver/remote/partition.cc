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

constexpr uint64_t kRoom = 4096;  // behind the client's bytes, for a program of this class

/// Words of a program that fills every scratchpad with zeros.
std::vector<uint8_t> clearing_program(const isa::MachineConfig& config) {
  constexpr int64_t kRun = 32768;
  std::vector<uint8_t> words;
  const auto add = [&](const isa::Instruction& instruction) {
    const isa::Word word = isa::encode(instruction);
    words.insert(words.end(), word.begin(), word.end());
  };
  isa::Finish finish;
  finish.header.waits[0] = {true, isa::Engine::kLoad, 0};
  const auto fill = [&](isa::Space space, int64_t first, int64_t run, int64_t runs) {
    isa::Load load;
    load.space = space;
    load.fill = true;
    load.length = static_cast<uint16_t>(run);
    load.sp_addr = static_cast<uint32_t>(first);
    load.extent[3] = static_cast<uint16_t>(runs);
    load.sp_stride[3] = static_cast<int32_t>(run);
    load.header.signal = true;
    add(load);
    ++finish.header.waits[0].count;
  };
  for (int s = 0; s < isa::kSpaces; ++s) {
    const auto space = static_cast<isa::Space>(s);
    const int64_t bytes = config.space_bytes(space), whole = bytes / kRun;
    if (whole > 0) fill(space, 0, kRun, whole);
    if (bytes % kRun != 0) fill(space, whole * kRun, bytes % kRun, 1);
  }
  add(finish);
  return words;
}

class PartOfCard final : public Partition {
 public:
  PartOfCard(std::unique_ptr<Device> card, uint64_t bytes)
      : card_(std::move(card)), heap_(card_->allocate(bytes + kRoom), bytes) {
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

  void clear_scratchpads() override {
    const std::vector<uint8_t> words = clearing_program(config());
    RunRequest request;
    request.program_address = heap_.base() + heap_.size_bytes();
    request.instruction_count = static_cast<uint32_t>(words.size() / isa::kInstructionBytes);
    card_->write(request.program_address, words);  // again each time: the client's programs reach it, too
    const RunReport report = card_->run(request);
    if (!report.ok()) throw Error(ErrorCode::kInternal, "scratchpads are not cleared: " + describe(report.fault));
  }

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

std::unique_ptr<Partition> open_partition(std::unique_ptr<Device> card, uint64_t bytes) {
  return std::make_unique<PartOfCard>(std::move(card), bytes);
}

}  // namespace tessera::driver
