// SPDX-License-Identifier: Apache-2.0
// The machine's own time. The machine is temporally decoupled (TLM-2.0): its one SystemC process runs ahead of
// SystemC's time by up to a quantum and gives each module its turns in the order of their cycles, so that nothing runs
// before what may change it and nothing is lost by running ahead. Enters: the cycles of the turns that modules ask for.
// Leaves: whose turn is next, and when.
//
// Turns of one cycle come as the kernel of SystemC 2.3 would let processes of their own run: first those asked for in
// earlier cycles, in the order of its heap of timed events (a turn withdrawn keeps its place in there); then those
// asked for in this cycle, the last first; then those asked for by these.
#pragma once

#include <systemc>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "sim/systemc/types.h"

namespace tessera::sim::systemc {

/// A module that acts in turns: an engine, FETCH, the memory.
class Process {
 public:
  /// The turn it has asked for.
  virtual void step() = 0;

 protected:
  ~Process() = default;
};

class Agenda {
 public:
  enum Turn : uint32_t { kLoad, kGemm, kAlu, kStore, kFetch, kMemory };
  static constexpr size_t kTurns = 6;

  void reset() {
    asked_.fill({});
    ahead_.clear();
    now_ = synchronised_ = 0;
    soon_size_ = due_size_ = 0;
  }
  Cycle now() const { return now_; }

  /// A module has one next turn: in that cycle, in this one when it has passed, or earlier when it has been asked for.
  void ask(Turn turn, Cycle at) {
    Asked& asked = asked_[turn];
    if (asked.at <= now_) return;
    if (at <= now_) {
      asked = {now_, asked.ticket + 1};
      soon_[soon_size_++] = turn;
    } else if (at < asked.at) {
      asked = {at, asked.ticket + 1};
      insert({at, turn, asked.ticket});
    }
  }

  /// The cycle of the next turn, kNever when nobody has asked.
  Cycle next() {
    if (due_size_ > 0 || soon_size_ > 0) return now_;
    while (!ahead_.empty() && withdrawn(ahead_.front())) extract();
    return ahead_.empty() ? kNever : ahead_.front().at;
  }
  /// Begins the turn of cycle next().
  Turn begin() {
    if (due_size_ == 0) collect();
    return due_[--due_size_];
  }

  /// SystemC's time has come to this cycle.
  void synchronise(Cycle at) { synchronised_ = at; }
  Cycle synchronised() const { return synchronised_; }
  /// A cycle as the delay of a transaction, which counts from SystemC's time; and back.
  sc_core::sc_time delay(Cycle at) const { return sc_core::sc_time::from_value(std::max(at, now_) - synchronised_); }
  Cycle cycle(const sc_core::sc_time& delay) const { return synchronised_ + delay.value(); }

 private:
  struct Asked {
    Cycle at = kNever;
    uint32_t ticket = 0;  // of the turn asked for last
  };
  struct Ahead {
    Cycle at;
    Turn turn;
    uint32_t ticket;
  };

  bool withdrawn(const Ahead& ahead) const { return asked_[ahead.turn].ticket != ahead.ticket; }
  /// The turns that come next in one cycle, the first at the end of due_.
  void collect() {
    if (soon_size_ > 0) {
      std::copy_n(soon_.begin(), soon_size_, due_.begin());
      due_size_ = std::exchange(soon_size_, 0);
    } else {
      now_ = ahead_.front().at;
      do {
        if (!withdrawn(ahead_.front())) due_[due_size_++] = ahead_.front().turn;
        extract();
      } while (!ahead_.empty() && ahead_.front().at == now_);
      std::reverse(due_.begin(), due_.begin() + due_size_);
    }
    for (size_t k = 0; k < due_size_; ++k) {
      asked_[due_[k]].at = kNever;
      ++asked_[due_[k]].ticket;
    }
  }
  void insert(const Ahead& ahead) {
    size_t place = ahead_.size();
    ahead_.push_back(ahead);
    for (size_t parent; place > 0 && ahead_[parent = (place - 1) / 2].at > ahead.at; place = parent) {
      ahead_[place] = ahead_[parent];
    }
    ahead_[place] = ahead;
  }
  void extract() {
    const Ahead last = ahead_.back();
    ahead_.pop_back();
    if (ahead_.empty()) return;
    size_t place = 0;
    for (size_t child; (child = 2 * place + 1) < ahead_.size(); place = child) {
      if (child + 1 < ahead_.size() && ahead_[child + 1].at < ahead_[child].at) ++child;
      if (ahead_[child].at >= last.at) break;
      ahead_[place] = ahead_[child];
    }
    ahead_[place] = last;
  }

  std::array<Asked, kTurns> asked_{};
  std::vector<Ahead> ahead_;  // a heap, the earliest in front
  std::array<Turn, kTurns> soon_{}, due_{};
  size_t soon_size_ = 0, due_size_ = 0;
  Cycle now_ = 0;
  Cycle synchronised_ = 0;
};

}  // namespace tessera::sim::systemc
