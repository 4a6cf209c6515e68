// SPDX-License-Identifier: Apache-2.0
// What the bus or a port has to give. Uses enter in the order of the stream, with the cycles in which they would take
// place; cycles in which there is room leave. Method: counts of uses in buckets of cycles, so that a use that comes
// late in the stream still finds the room that earlier ones have left.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace tessera::emit {

/// Uses of one resource, at most one a cycle.
class Ledger {
 public:
  /// Room for uses in the cycles up to this one; later ones may come, too.
  void reserve(int64_t cycles) { used_.reserve(static_cast<size_t>(cycles / kBucket + 1)); }

  /// Uses that nobody delays, spread over `cycles` from `begin` on.
  void book(int64_t begin, int64_t cycles, int64_t uses) {
    for (int64_t at = begin, end = begin + std::max<int64_t>(cycles, 1); at < end;) {
      const int64_t next = std::min(end, (at / kBucket + 1) * kBucket);
      used(at / kBucket) += static_cast<int32_t>(uses * (next - at) / std::max<int64_t>(cycles, 1));
      at = next;
    }
  }

  /// The same where others that go last have booked up to cycle `until`; returns how many of theirs lose their place.
  int64_t displace(int64_t begin, int64_t cycles, int64_t uses, int64_t until) {
    book(begin, cycles, uses);
    int64_t lost = 0;
    for (int64_t bucket = begin / kBucket; bucket * kBucket < std::min(begin + cycles, until); ++bucket) {
      const int64_t over = std::max<int64_t>(0, int64_t{used(bucket)} - kBucket);
      used(bucket) -= static_cast<int32_t>(over);
      lost += over;
    }
    return lost;
  }

  /// Moves `beats` from cycle `begin` on where there is room, in `span` cycles or more; returns the cycle after the
  /// last. `holder`: uses of a port that a beat waits for, and while it waits nobody else moves either. Beats that
  /// wait for answers, and so have more cycles than they need, come later then.
  int64_t move(int64_t begin, int64_t beats, int64_t span = 0, Ledger* holder = nullptr) {
    int64_t all = beats, at = begin;
    while (beats > 0) {
      const int64_t bucket = at / kBucket, end = (bucket + 1) * kBucket;
      if (holder != nullptr) {
        // All of them where beats fill the bucket.
        const int64_t waiting = std::max<int64_t>(0, int64_t{holder->used(bucket)} - held(bucket)), cycles = end - at;
        const int64_t lost = waiting * (span > all ? kept(cycles) : std::min(beats, cycles)) / kBucket;
        held(bucket) += static_cast<int32_t>(lost);
        beats += lost;
        all += lost;
        span += lost;
      }
      const int64_t due = due_by(end, beats, all, begin, span);
      // Owners that follow each other on the bus leave gaps.
      const int64_t limit = used(bucket) > 0 ? kBucket - kGaps : kBucket;
      const int64_t room = std::min(limit - int64_t{used(bucket)}, end - at);
      const int64_t now = std::clamp<int64_t>(room, 0, due);
      used(bucket) += static_cast<int32_t>(now);
      beats -= now;
      at = beats > 0 ? end : at + now;
    }
    return std::max(at, begin + span);
  }

  /// Moves `beats` in `span` cycles or more where others have booked too: every second cycle belongs to them at most.
  /// Returns the cycle after the last, and how many uses of the others lose their place.
  std::pair<int64_t, int64_t> take_turns(int64_t begin, int64_t beats, int64_t span) {
    const int64_t all = beats;
    int64_t at = begin, pushed = 0;
    while (beats > 0) {
      const int64_t bucket = at / kBucket, end = (bucket + 1) * kBucket, cycles = end - at;
      const int64_t due = due_by(end, beats, all, begin, span);
      const int64_t room = std::max(std::min(kBucket - int64_t{used(bucket)}, cycles), cycles / 2),
                    now = std::clamp<int64_t>(room, 0, due);
      const int64_t over = std::max<int64_t>(0, used(bucket) + now - kBucket);
      used(bucket) += static_cast<int32_t>(now - over);
      pushed += over;
      beats -= now;
      at = beats > 0 ? end : at + (room > 0 ? cycles * now / room : 0);
    }
    return {at, pushed};
  }

  /// Beats' time that is lost in `cycles` from `begin` on because `others` wait for `holder`. `paced`: they wait for
  /// answers, so that each cycle delays them.
  int64_t lose(int64_t begin, int64_t cycles, Ledger& others, Ledger& holder, bool paced) {
    int64_t lost = 0;
    for (int64_t bucket = begin / kBucket; bucket <= (begin + std::max<int64_t>(cycles, 1) - 1) / kBucket; ++bucket) {
      const int64_t waiting = std::max<int64_t>(0, int64_t{holder.used(bucket)} - held(bucket)),
                    now = paced ? kept(waiting) : std::min<int64_t>(waiting, others.used(bucket));
      held(bucket) += static_cast<int32_t>(now);
      lost += now;
    }
    return lost;
  }

  /// How long one is kept waiting between `begin` and `end` whose next use waits for the one before, where a beat waits
  /// for its holder.
  int64_t kept_waiting(int64_t begin, int64_t end) {
    int64_t cycles = 0;
    for (int64_t at = begin; at < end;) {
      const int64_t bucket = at / kBucket, next = std::min(end, (bucket + 1) * kBucket);
      cycles += int64_t{held(bucket)} * (next - at) / kBucket;
      at = next;
    }
    return cycles;
  }

  /// The cycle in which `uses` from `begin` on are done where those of two others go first.
  int64_t behind(int64_t begin, int64_t uses, Ledger& one, Ledger& other) {
    int64_t at = begin;
    while (uses > 0) {
      const int64_t bucket = at / kBucket, end = (bucket + 1) * kBucket;
      const int64_t room = std::min(kBucket - int64_t{used(bucket)} - one.used(bucket) - other.used(bucket), end - at),
                    now = std::clamp<int64_t>(room, 0, uses);
      used(bucket) += static_cast<int32_t>(now);
      uses -= now;
      at = uses > 0 ? end : at + now;
    }
    return at;
  }

 private:
  static constexpr int64_t kBucket = 64, kGaps = 7;

  /// Of the cycles in which beats are held those that delay answers behind them: while few of them pass nothing is
  /// lost, as more are under way.
  static int64_t kept(int64_t cycles) { return (cycles * 3 + 3) / 4; }

  /// Of `beats` that are left those that are due by cycle `end`, where `all` of them take `span` cycles evenly.
  static int64_t due_by(int64_t end, int64_t beats, int64_t all, int64_t begin, int64_t span) {
    return end >= begin + span ? beats : std::max<int64_t>(0, beats - all * (begin + span - end) / span);
  }
  int32_t& used(int64_t bucket) {
    const auto index = static_cast<size_t>(bucket);
    if (index >= used_.size()) used_.resize(std::max(index + 1, std::min(2 * index + 64, used_.capacity())), 0);
    return used_[index];
  }
  int32_t& held(int64_t bucket) {
    used(bucket);
    held_.reserve(used_.capacity());
    held_.resize(used_.size(), 0);
    return held_[static_cast<size_t>(bucket)];
  }
  std::vector<int32_t> used_, held_;
};

}  // namespace tessera::emit
