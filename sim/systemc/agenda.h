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
    size_ = 0;
    ahead_[0].at = kNever;
    soon_ = due_ = Turns{};
    now_ = synchronised_ = 0;
  }
  Cycle now() const { return now_; }

  /// A module has one next turn: in that cycle, in this one when it has passed, or earlier when it has been asked for.
  void ask(Turn turn, Cycle at) {
    Asked& asked = asked_[turn];
    at = std::max(at, now_);
    if (asked.at <= at) return;
    asked.at = at;
    if (at == now_) {
      soon_.turns[soon_.size++] = turn;
    } else {
      insert({at, turn, asked.ticket});
    }
  }

  /// Whether there are turns left in this cycle; else the cycle of the next one, kNever when nobody has asked.
  bool due() const { return due_.size + soon_.size > 0; }
  Cycle next() {
    while (size_ > 0 && withdrawn(ahead_[0])) extract();
    return ahead_[0].at;
  }
  /// Whether a turn has been asked for in the cycle that has begun, or earlier.
  bool due_now() { return due() || next() <= now_; }
  /// A cycle begins in which others have turns; no earlier turn is left.
  void enter(Cycle at) { now_ = std::max(now_, at); }
  /// Begins the next turn: of this cycle when there is one, else of cycle next(), which must have been asked for.
  Turn begin() {
    if (due_.size == 0) collect();
    return due_.turns[--due_.size];
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
    uint32_t ticket = 0;  // the number of turns begun: a later turn asked for before is withdrawn by them
  };
  struct Ahead {
    Cycle at = kNever;
    Turn turn = kLoad;
    uint32_t ticket = 0;
  };

  bool withdrawn(const Ahead& ahead) const { return asked_[ahead.turn].ticket != ahead.ticket; }
  void withdraw(Turn turn) { asked_[turn] = {kNever, asked_[turn].ticket + 1}; }
  /// The turns that come together: the first at the end of due_.
  void collect() {
    if (soon_.size > 0) {
      std::swap(due_, soon_);
      for (size_t k = 0; k < due_.size; ++k) withdraw(due_.turns[k]);
      return;
    }
    now_ = ahead_[0].at;
    do {
      const Ahead first = ahead_[0];
      if (!withdrawn(first)) {
        due_.turns[due_.size++] = first.turn;
        withdraw(first.turn);
      }
      extract();
    } while (ahead_[0].at == now_);
    if (due_.size > 1) std::reverse(due_.turns.begin(), due_.turns.begin() + due_.size);
  }
  void insert(const Ahead& ahead) {
    if (++size_ == ahead_.size()) ahead_.resize(2 * size_);
    size_t place = size_ - 1;
    ahead_[size_].at = kNever;
    for (size_t parent; place > 0 && ahead_[parent = (place - 1) / 2].at > ahead.at; place = parent) {
      ahead_[place] = ahead_[parent];
    }
    ahead_[place] = ahead;
  }
  void extract() {
    const Ahead last = ahead_[--size_];
    ahead_[size_].at = kNever;
    size_t place = 0;
    for (size_t child; (child = 2 * place + 1) < size_; place = child) {
      child += ahead_[child + 1].at < ahead_[child].at ? 1 : 0;
      if (ahead_[child].at >= last.at) break;
      ahead_[place] = ahead_[child];
    }
    if (size_ > 0) ahead_[place] = last;
  }

  struct Turns {
    std::array<Turn, kTurns> turns{};
    size_t size = 0;
  };
  std::array<Asked, kTurns> asked_{};
  std::vector<Ahead> ahead_ = std::vector<Ahead>(16);  // a heap, the earliest in front, and one with kNever behind it
  size_t size_ = 0;                                    // of the heap
  Turns soon_, due_;
  Cycle now_ = 0;
  Cycle synchronised_ = 0;
};

}  // namespace tessera::sim::systemc
