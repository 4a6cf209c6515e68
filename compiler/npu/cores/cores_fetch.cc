// SPDX-License-Identifier: Apache-2.0
// So many bytes for each layer enter the prediction of all cores: the same for all layers first, then other ones for
// one layer at a time.
#include "compiler/npu/cores/cores_fetch.h"

#include <algorithm>
#include <array>
#include <map>
#include <cstdio>
#include <cstdlib>

namespace tessera::npu {

namespace {

constexpr size_t kFetched = 1000;  // instructions of a core up to which its fetches are looked at
constexpr std::array<double, 6> kSharesOfRest = {0.12, 0.25, 0.5, 0.75, 1, 1.5};
constexpr int64_t kWorth = 20;  // cycles that have to go
constexpr int kRounds = 6;

bool conflict(const emit::Work& a, const emit::Work& b) {
  return std::ranges::any_of(a.touches, [&](const emit::Touch& one) {
    return std::ranges::any_of(b.touches, [&](const emit::Touch& other) {
      return (one.write || other.write) && one.memory == other.memory && one.begin < other.end &&
             other.begin < one.end;
    });
  });
}

bool in_dram(const emit::Touch& touch) { return touch.memory >= isa::kSpaces; }

bool loads(const emit::Work& work) { return work.engine == isa::Engine::kLoad && std::ranges::any_of(work.touches, in_dram); }

bool transfers(const emit::Work& work) { return work.engine == isa::Engine::kLoad && !work.idle; }

bool constant(const emit::Work& work) {
  return std::ranges::all_of(work.touches, [](const emit::Touch& touch) {
    return !in_dram(touch) || touch.memory == static_cast<int16_t>(isa::kSpaces + kConstantBase);
  });
}

/// A core's stream, and how far each fetch of constants may go.
class Stream {
 public:
  Stream(const CoreCode& code, uint32_t from) : code_(code) {
    for (size_t i = 0; i < code.works.size(); ++i) {
      if (!loads(*code.works[i]) || !constant(*code.works[i]) || code.layers[i] < from) continue;
      size_t first = i;
      while (first > 0 && !conflict(*code.works[i], *code.works[first - 1])) --first;
      if (getenv("X_LOG2")) fprintf(stderr, "fetch at %zu layer %u first %zu (layer %u) bytes %ld\n", i, code.layers[i], first, code.layers[first], code.works[i]->dram_bytes);
      fetches_.push_back({i, first, code.works[i]->dram_bytes});
    }
  }

  /// With constants where LOAD rests, such a share of `rests`, by transfer.
  CoreCode with(const std::vector<int64_t>& rests, double share, int64_t bytes_a_cycle) const {
    std::vector<bool> taken(code_.works.size(), false);
    CoreCode made;
    made.pool.share(code_.pool);
    made.orders = code_.orders;
    size_t next = 0, transfer = 0;
    for (size_t i = 0; i < code_.works.size(); ++i) {
      if (transfers(*code_.works[i])) {
        const int64_t rest = rests[transfer++];
        if (!constant(*code_.works[i])) {
          int64_t left = static_cast<int64_t>(share * static_cast<double>(rest * bytes_a_cycle));
          while (next < fetches_.size() && (fetches_[next].at < i || taken[fetches_[next].at])) ++next;
          for (size_t k = next; k < fetches_.size() && fetches_[k].bytes <= left; ++k) {
            const Fetch& fetch = fetches_[k];
            if (taken[fetch.at]) continue;
            if (fetch.first > i) break;
            taken[fetch.at] = true;
            left -= fetch.bytes;
            push(made, fetch.at);
          }
        }
      }
      if (!taken[i]) push(made, i);
    }
    return made;
  }

 private:
  struct Fetch {
    size_t at = 0, first = 0;
    int64_t bytes = 0;
  };

  void push(CoreCode& made, size_t i) const {
    made.instructions.push_back(code_.instructions[i]);
    made.tags.push_back(code_.tags[i]);
    made.layers.push_back(code_.layers[i]);
    made.works.push_back(code_.works[i]);
  }

  const CoreCode& code_;
  std::vector<Fetch> fetches_;
};

class Fetching {
 public:
  Fetching(std::vector<CoreCode>& codes, const Replayed& replayed) : codes_(codes), replayed_(replayed) {}

  void run() {
    size_t longest = 0;
    for (const CoreCode& code : codes_) longest = std::max(longest, code.instructions.size());
    if (longest > kFetched) return;
    const auto before = replayed_(codes_);
    if (!before) return;
    least_ = last(*before);
    const int64_t all = least_;
    std::vector<CoreCode> best = codes_;
    int tries = 0;
    if (getenv("X_LOG2")) for (uint32_t from : {28u, 26u, 24u, 20u, 16u, 12u, 8u, 0u}) for (int kind = 0; kind < 2; ++kind) {
      std::vector<CoreCode> other;
      for (const CoreCode& code : codes_) {
        CoreCode made;
        made.pool.share(code.pool);
        for (size_t i = 0; i < code.works.size(); ++i) {
          if (code.layers[i] >= from && transfers(*code.works[i]) && (kind == 1 || code.works[i]->dram_bytes > 1000) && constant(*code.works[i])) continue;
          made.instructions.push_back(code.instructions[i]);
          made.tags.push_back(code.tags[i]);
          made.layers.push_back(code.layers[i]);
          made.works.push_back(code.works[i]);
        }
        other.push_back(std::move(made));
      }
      auto f = replayed_(other);
      fprintf(stderr, "without constants from layer %u kind %d: %ld\n", from, kind, f ? last(*f) : -1);
    }
    for (const uint32_t from : {26u, 24u, 20u, 16u, 12u, 8u, 0u}) {
      const std::vector<CoreCode> begin = best;
      const auto known = *replayed_(begin);
      const int64_t least = least_;
      for (const double share : kSharesOfRest) {
        std::vector<CoreCode> now = begin;
        auto predictions = known;
        for (int round = 0; round < kRounds; ++round) {
          std::vector<CoreCode> other;
          for (size_t core = 0; core < now.size(); ++core)
            other.push_back(Stream(now[core], from).with(predictions[core].rests, share, 8));
          auto found = replayed_(other);
          if (!found) break;
          ++tries;
          predictions = std::move(*found);
          now = std::move(other);
          const int64_t cycles = last(predictions);
          if (getenv("X_LOG3")) fprintf(stderr, "share %.2f round %d: %ld\n", share, round, cycles);
          if (cycles + kWorth > least_) continue;
          least_ = cycles;
          best = now;
        }
      }
      if (getenv("X_LOG2")) fprintf(stderr, "from %u: %ld to %ld\n", from, least, least_);
    }
    if (getenv("X_LOG")) fprintf(stderr, "fetch: %ld to %ld, %d tries\n", all, least_, tries);
    codes_ = std::move(best);
  }

 private:
  static int64_t last(const std::vector<emit::Prediction>& predictions) {
    return std::ranges::max(predictions, {}, &emit::Prediction::cycles).cycles;
  }

  std::vector<CoreCode>& codes_;
  const Replayed& replayed_;
  int64_t least_ = 0;
};

}  // namespace

void fetch_ahead(std::vector<CoreCode>& codes, const Replayed& replayed) { Fetching(codes, replayed).run(); }

}  // namespace tessera::npu
