// SPDX-License-Identifier: Apache-2.0
// Each core has its own rests, and what one fills another may wait for on the shared bus. So parts of the rests are
// filled, round after round, as the replay of all cores then has other ones; what it likes best is taken. The last
// constants come first: those of the layers between would only make room for each other.
#include "compiler/npu/cores/cores_fetch.h"

#include <algorithm>
#include <array>

namespace tessera::npu {

namespace {

constexpr size_t kFetched = 1000;                             // instructions of a core up to which it is looked at
constexpr std::array<int64_t, 3> kLast = {25, 50, 100};       // per cent of the constants' bytes, the last ones
constexpr std::array<int64_t, 4> kFilled = {12, 25, 50, 75};  // per cent of a rest
constexpr int kRounds = 4;
constexpr int64_t kSaved = 50;  // cycles that have to go

bool conflict(const emit::Work& a, const emit::Work& b) {
  return std::ranges::any_of(a.touches, [&](const emit::Touch& one) {
    return std::ranges::any_of(b.touches, [&](const emit::Touch& other) {
      return (one.write || other.write) && one.memory == other.memory && one.begin < other.end && other.begin < one.end;
    });
  });
}

bool transfers(const emit::Work& work) { return work.engine == isa::Engine::kLoad && !work.idle; }

/// Whether a transfer reads constants.
bool constant(const emit::Work& work) {
  constexpr auto kConstants = static_cast<int16_t>(isa::kSpaces + kConstantBase);
  return work.dram_bytes > 0 && std::ranges::all_of(work.touches, [&](const emit::Touch& touch) {
           return touch.memory < isa::kSpaces || touch.memory == kConstants;
         });
}

/// A core's stream, and the first place where each of its last constants may be fetched.
class MovableStream {
 public:
  MovableStream(const CoreCode& code, int64_t per_cent) : code_(code) {
    int64_t left = 0;
    for (const emit::Work* work : code.works) left += transfers(*work) && constant(*work) ? work->dram_bytes : 0;
    left = left * per_cent / 100;
    for (size_t i = code.works.size(); i-- > 0 && left > 0;) {
      const emit::Work& work = *code.works[i];
      if (!transfers(work) || !constant(work)) continue;
      left -= work.dram_bytes;
      size_t first = i;
      while (first > 0 && !conflict(work, *code.works[first - 1])) --first;
      fetches_.push_back({i, first, work.dram_bytes});
    }
    std::reverse(fetches_.begin(), fetches_.end());
  }

  /// With constants in front of other transfers, of no more bytes than `room` has for each transfer.
  CoreCode with(const std::vector<int64_t>& room) const {
    CoreCode made;
    made.pool.share(code_.pool);
    std::vector<bool> taken(code_.works.size(), false);
    const auto take = [&](size_t i) {
      taken[i] = true;
      made.instructions.push_back(code_.instructions[i]);
      made.tags.push_back(code_.tags[i]);
      made.layers.push_back(code_.layers[i]);
      made.works.push_back(code_.works[i]);
    };
    size_t next = 0, transfer = 0;
    for (size_t i = 0; i < code_.works.size(); ++i) {
      if (transfers(*code_.works[i])) {
        int64_t left = room[transfer++];
        while (next < fetches_.size() && fetches_[next].at <= i) ++next;
        for (size_t k = next; k < fetches_.size() && !constant(*code_.works[i]); ++k) {
          if (taken[fetches_[k].at]) continue;
          if (fetches_[k].first > i || fetches_[k].bytes > left) break;
          left -= fetches_[k].bytes;
          take(fetches_[k].at);
        }
      }
      if (!taken[i]) take(i);
    }
    return made;
  }

 private:
  struct Fetch {
    size_t at = 0, first = 0;
    int64_t bytes = 0;
  };

  const CoreCode& code_;
  std::vector<Fetch> fetches_;  // in the order of the stream
};

/// Streams with what a replay says of them.
struct State {
  std::vector<CoreCode> codes;
  Replayed replayed;
};

std::optional<State> filled(const State& state, int64_t last, int64_t share, int64_t bytes, const ReplayAll& replay) {
  State next;
  for (size_t core = 0; core < state.codes.size(); ++core) {
    std::vector<int64_t> room = state.replayed.rests[core];
    for (int64_t& cycles : room) cycles = cycles * bytes * share / 100;
    next.codes.push_back(MovableStream(state.codes[core], last).with(room));
  }
  std::optional<Replayed> replayed = replay(next.codes);
  if (!replayed) return std::nullopt;
  next.replayed = std::move(*replayed);
  return next;
}

}  // namespace

void fetch_ahead(std::vector<CoreCode>& codes, int64_t bytes, const ReplayAll& replay) {
  for (const CoreCode& code : codes)
    if (code.instructions.size() > kFetched) return;
  std::optional<Replayed> before = replay(codes);
  if (!before) return;
  State best{std::move(codes), std::move(*before)};
  for (const int64_t last : kLast) {
    const State begin = best;
    for (const int64_t share : kFilled) {
      std::optional<State> state = begin;
      for (int round = 0; round < kRounds && state; ++round) {
        state = filled(*state, last, share, bytes, replay);
        if (state && state->replayed.cycles + kSaved <= best.replayed.cycles) best = *state;
      }
    }
  }
  codes = std::move(best.codes);
}

}  // namespace tessera::npu
