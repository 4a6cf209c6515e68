// SPDX-License-Identifier: Apache-2.0
// What prefetch, synchronisation and replay ask of an instruction, found once. An instruction and the machine enter;
// the bytes that it touches and its closed forms leave.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "compiler/emit/duration.h"
#include "isa/fixed_vector.h"
#include "isa/verify/effects.h"

namespace tessera::emit {

/// Bytes [begin, end) of a memory of isa::Operand::memory().
struct Touch {
  int64_t begin = 0, end = 0;
  int16_t memory = 0;
  bool write = false;
};

/// What a replay reads stands in front, in as few lines of the processor's cache as can be.
struct Work {
  std::optional<isa::Engine> engine;  // nothing: FETCH executes it
  bool idle = true;                   // it only waits and signals
  bool reads_inp = false, reads_acc = false, writes_inp = false;
  int64_t latency_cycles = 0;  // from the last step to the completion
  Duration duration;
  int64_t dram_bytes = 0;                               // its own word does not count
  isa::FixedVector<Touch, isa::kMostOperands> touches;  // none: it is idle
};

Work work_of(const isa::Instruction& instruction, const isa::MachineConfig& config);
/// The same into an empty one.
void find_work(const isa::Instruction& instruction, const isa::MachineConfig& config, Work& work);

/// What each instruction of a stream asks for, in order.
using Works = std::vector<const Work*>;

/// Where works stand as long as it lives, at addresses that stay. A copy shares what stands there, and what either of
/// them adds later is its own; so streams that have most of their instructions in common have their works in common.
class WorkPool {
 public:
  WorkPool() = default;
  WorkPool(const WorkPool& other) { share(other); }
  WorkPool(WorkPool&&) = default;
  WorkPool& operator=(const WorkPool& other) { return *this = WorkPool(other); }
  WorkPool& operator=(WorkPool&&) = default;
  ~WorkPool() = default;

  /// What stands in another one stands here, too.
  void share(const WorkPool& other) {
    shared_.insert(shared_.end(), other.shared_.begin(), other.shared_.end());
    if (other.own_) shared_.push_back(other.own_);
  }
  const Work* add(const Work& work) { return &(next() = work); }
  const Work* add(const isa::Instruction& instruction, const isa::MachineConfig& config) {
    Work& work = next();
    find_work(instruction, config, work);
    return &work;
  }
  Works add(std::span<const isa::Instruction> instructions, const isa::MachineConfig& config);

 private:
  Work& next() {
    if (!own_) own_ = std::make_shared<Blocks>();
    if (own_->empty() || own_->back().size() == kBlock) own_->emplace_back().reserve(kBlock);
    return own_->back().emplace_back();
  }

  static constexpr size_t kBlock = 64;
  using Blocks = std::vector<std::vector<Work>>;
  std::vector<std::shared_ptr<const Blocks>> shared_;
  std::shared_ptr<Blocks> own_;
};

}  // namespace tessera::emit
