// SPDX-License-Identifier: Apache-2.0
// The address sums follow hw/rtl/tsr_runs.sv step by step; only steps of the innermost loop that all join are taken at
// once.
#include "sim/systemc/engines/walk.h"

#include <algorithm>

#include "isa/generated/timing.h"

namespace tessera::sim::systemc {

Walk::Walk(const isa::Load& load, uint64_t base, uint32_t join_bytes, uint32_t width, uint32_t entry_bytes)
    : length_(load.length),
      sp_length_(load.packed ? entry_bytes : load.length),
      join_bytes_(join_bytes),
      fill_(load.fill),
      done_(false),
      width_(width),
      may_share_(!load.packed) {
  for (size_t k = 0; k < 4; ++k) {
    extent_[k] = load.extent[k];
    dram_stride_[k] = load.dram_stride[k];
    sp_stride_[k] = load.sp_stride[k];
    dram_[k] = base + load.dram_offset;
    sp_[k] = load.sp_addr;
  }
  for (size_t k = 0; k < 2; ++k) {
    before_[k] = load.pad_before[k];
    after_[k] = load.pad_after[k];
    pads_ = pads_ || before_[k] > 0 || after_[k] > 0;
  }
}

Walk::Walk(const isa::Store& store, uint64_t base, uint32_t join_bytes, uint32_t width)
    : length_(store.length), sp_length_(store.length), join_bytes_(join_bytes), done_(false), width_(width) {
  for (size_t k = 0; k < 4; ++k) {
    extent_[k] = store.extent[k];
    dram_stride_[k] = store.dram_stride[k];
    sp_stride_[k] = store.sp_stride[k];
    dram_[k] = base + store.dram_offset;
    sp_[k] = store.sp_addr;
  }
}

Walk Walk::none() {
  Walk walk;
  walk.done_ = false;
  return walk;
}

bool Walk::padding() const {
  if (!pads_) return fill_;
  for (size_t k = 0; k < 2; ++k) {
    if (index_[k] < before_[k] || index_[k] + after_[k] >= extent_[k]) return true;
  }
  return false;
}

void Walk::advance() {
  size_t inner = 4;
  for (size_t k = 4; k-- > 0;) {
    if (index_[k] + 1 != extent_[k]) {
      inner = k;
      break;
    }
  }
  if (inner == 4) {
    done_ = true;
    return;
  }
  uint64_t dram = dram_[inner];
  if (inner >= 2 || index_[inner] >= before_[inner]) dram += static_cast<uint64_t>(dram_stride_[inner]);
  const int64_t sp = sp_[inner] + sp_stride_[inner];
  ++index_[inner];
  dram_[inner] = dram;
  sp_[inner] = sp;
  for (size_t k = inner + 1; k < 4; ++k) {
    index_[k] = 0;
    dram_[k] = dram;
    sp_[k] = sp;
  }
}

/// The run ends before the step at hand: its beats, and what the next run has of them.
void Walk::look_ahead(Run& run, uint64_t dram_end, uint32_t sp_end) {
  constexpr uint64_t kPage = isa::timing::bus::kPageBytes;
  const auto beat = [this](uint64_t address) { return address & ~uint64_t{width_ - 1}; };
  if (run.pad) return;
  run.beats = static_cast<uint32_t>((beat(dram_end - 1) - beat(run.dram)) / width_) + (run.shares ? 0 : 1);
  if (done_ || padding()) return;
  const auto sp = static_cast<uint32_t>(sp_[3]);
  run.more = continues_ =
      !run.shares && dram_[3] == dram_end && aligned(dram_end | length_) && aligned(sp) && aligned(sp_end);
  const bool over = (dram_[3] & (width_ - 1)) > (sp & (width_ - 1));
  const bool gone = run.over && run.shares && run.beats == 0;  // from the queue of beats
  shares_ =
      may_share_ && beat(dram_[3]) == beat(dram_end - 1) && beat(dram_[3] + width_) % kPage != 0 && (over || !gone);
}

void Walk::next(Run& run) {
  run.dram = dram_[3];
  run.sp = static_cast<uint32_t>(sp_[3]);
  run.bytes = length_;
  run.steps = 1;
  run.pad = run.last = run.more = false;
  run.continues = continues_;
  run.shares = shares_;
  run.over = (run.dram & (width_ - 1)) > (run.sp & (width_ - 1));
  run.beats = 0;
  continues_ = shares_ = false;
  if (length_ == 0) {
    run.last = done_ = true;
    return;
  }
  run.pad = padding();
  uint64_t dram_end = dram_[3] + length_;
  int64_t sp_end = sp_[3] + sp_length_;
  // Steps of loop 3 that continue each other: as many at once as stay below the limit.
  const bool straight = sp_stride_[3] == sp_length_ && (run.pad || dram_stride_[3] == length_);
  for (;;) {
    if (straight && run.bytes < join_bytes_ && index_[3] + 1 < extent_[3]) {
      const uint32_t more = std::min(extent_[3] - 1 - index_[3], (join_bytes_ - run.bytes + length_ - 1) / length_);
      index_[3] += more;
      dram_[3] += static_cast<uint64_t>(dram_stride_[3]) * more;
      sp_[3] += sp_stride_[3] * more;
      run.steps += more;
      run.bytes += more * length_;
      dram_end = dram_[3] + length_;
      sp_end = sp_[3] + sp_length_;
    }
    advance();
    if (done_) {
      run.last = true;
      look_ahead(run, dram_end, static_cast<uint32_t>(sp_end));
      return;
    }
    const bool pad = padding();
    if (run.bytes >= join_bytes_ || sp_[3] != sp_end || pad != run.pad || (!run.pad && dram_[3] != dram_end)) {
      look_ahead(run, dram_end, static_cast<uint32_t>(sp_end));
      return;
    }
    ++run.steps;
    run.bytes += length_;
    dram_end = dram_[3] + length_;
    sp_end = sp_[3] + sp_length_;
  }
}

}  // namespace tessera::sim::systemc
