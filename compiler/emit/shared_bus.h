// SPDX-License-Identifier: Apache-2.0
// The master that a chip's cores share, as the replay of all their streams sees it: beats of memory, places of bursts
// and the one write burst that is on its way, in buckets of cycles. Transfers of all cores enter in about the order of
// time; cycles in which their beats move leave.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "isa/config.h"
#include "isa/generated/timing.h"

namespace tessera::emit {

class SharedBus {
 public:
  /// `latency`: cycles from a request to its first data. `bandwidth`: bytes of memory a cycle.
  SharedBus(const isa::MachineConfig& config, int64_t latency, int64_t bandwidth)
      : latency_(latency), beat_bytes_(config.memory_bytes()), bandwidth_(std::min<int64_t>(bandwidth, beat_bytes_)) {}

  struct Moved {
    int64_t first = 0, end = 0;  // the cycle of the first beat or a few before it, and that after the last one
  };

  /// Reads of a core whose first data could come in cycle `begin`, `span` cycles or more for all of them.
  Moved read(int64_t begin, int64_t beats, int64_t bursts, int64_t span) {
    const Moved data = beats_.move(begin, slots(beats), span);
    const Moved places = bursts_.move(begin, bursts * latency_ / isa::timing::interconnect::kBursts, span);
    return {std::max(data.first, places.first), std::max(data.end, places.end)};
  }

  /// Writes whose first burst is whole in cycle `begin`; the cycle after the last beat. Reads and writes take turns.
  int64_t write(int64_t begin, int64_t beats, int64_t bursts, int64_t span) {
    const Moved sent = sender_.move(begin, slots(beats) + bursts * (isa::timing::interconnect::kWriteData - 1), span);
    return std::max(sent.end, beats_.take_turns(begin, slots(beats), span));
  }

 private:
  int64_t slots(int64_t beats) const { return (beats * beat_bytes_ + bandwidth_ - 1) / bandwidth_; }

  class Slots {
   public:
    Moved move(int64_t begin, int64_t uses, int64_t span) { return fill(begin, uses, span, 0); }

    int64_t take_turns(int64_t begin, int64_t uses, int64_t span) {
      over_ = 0;
      const int64_t end = fill(begin, uses, span, 2).end;
      if (over_ > 0) fill(begin, over_, 0, 0);
      return end;
    }

   private:
    static constexpr int64_t kBucket = 16;

    /// `part`: of the cycles of a bucket that others have filled, one in so many is taken from them; 0: none.
    Moved fill(int64_t begin, int64_t uses, int64_t span, int64_t part) {
      const int64_t all = uses;
      int64_t at = begin, first = uses > 0 ? -1 : begin;
      while (uses > 0) {
        const int64_t bucket = at / kBucket, end = (bucket + 1) * kBucket, cycles = end - at;
        const int64_t due = end >= begin + span ? uses : std::max<int64_t>(0, uses - all * (begin + span - end) / span);
        const int64_t free = std::min(kBucket - int64_t{used(bucket)}, cycles);
        const int64_t room = std::max(free, part > 0 ? cycles / part : int64_t{0});
        const int64_t now = std::clamp<int64_t>(room, 0, due);
        const int64_t over = std::max<int64_t>(0, used(bucket) + now - kBucket);
        over_ += over;
        used(bucket) += static_cast<int32_t>(now - over);
        if (now > 0 && first < 0) first = std::max(at, end - std::max(free, cycles / 2));
        uses -= now;
        at = uses > 0 ? end : at + now;
      }
      return {first, std::max(at, begin + span)};
    }

    int32_t& used(int64_t bucket) {
      const auto index = static_cast<size_t>(bucket);
      if (index >= used_.size()) used_.resize(2 * index + 64, 0);
      return used_[index];
    }

    std::vector<int32_t> used_;
    int64_t over_ = 0;
  };

  int64_t latency_, beat_bytes_, bandwidth_;
  Slots beats_, bursts_, sender_;
};

}  // namespace tessera::emit
