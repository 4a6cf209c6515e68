// SPDX-License-Identifier: Apache-2.0
// Fetches of weights and of large parameters, placed together. By themselves, in the order of the steps, they take the
// latest steps in which the bus has time. Where several want the same steps, as before a classifier, the earlier fetch
// may take what only the later one could have used: a place that is free for long can be filled at any time, one that
// is read until shortly before only then. Here all are placed at once, from the end of the stream to its beginning, and
// the time of a step goes first to places that are free last. So a fetch moves further ahead when others need the steps
// behind, and only then. Entries of one fetch that become free at different times are fetched apart.
#include <algorithm>
#include <array>
#include <limits>

#include "compiler/npu/assembly/steps.h"

namespace tessera::npu {

/// Entries of a fetch that follow each other and have the same last reader.
struct Emitter::Part {
  ConstantFetch what;
  size_t step = 0;      // that wants them
  int64_t reader = -1;  // the last step before that reads what their place holds; -1: there is none
};

/// The fetches of a stream on their way to their steps.
class Emitter::Placing {
 public:
  Placing(const Emitter& emitter, std::vector<Profile> profiles, const Pieces& pieces)
      : emitter_(emitter), profiles_(std::move(profiles)), pieces_(pieces) {
    fetches_.before.resize(emitter_.steps_.size());
    fetches_.behind.resize(emitter_.steps_.size());
    for (const Profile& profile : profiles_) begins_.push_back(begins_.back() + profile.spare + profile.bus);
  }

  Fetches run() {
    const std::vector<std::vector<Part>> wanted = parts();
    int64_t budget = 0;  // negative: steps bound by the bus that earlier ones must make up for
    for (size_t step = wanted.size(); step-- > 0;) {
      take(wanted[step]);
      leave(static_cast<int64_t>(step) - 1);
      if (step == 0) break;
      const int64_t spare = profiles_[step - 1].spare,
                    given = spare > 0 ? static_cast<int64_t>(pieces_.share * static_cast<double>(spare)) : spare;
      budget = open_.empty() ? 0 : std::min(budget, pieces_.cycles) + given;
      fill(step - 1, budget);
    }
    return std::move(fetches_);
  }

 private:
  /// What each step wants, in parts.
  std::vector<std::vector<Part>> parts() const {
    std::vector<std::vector<Part>> result(emitter_.steps_.size());
    std::array<std::vector<int64_t>, isa::kSpaces> all;  // by space and entry
    for (const isa::Space space : {isa::Space::kWgt, isa::Space::kParam})
      all[static_cast<size_t>(space)].assign(static_cast<size_t>(emitter_.config.depth(space)), -1);
    for (size_t step = 0; step < result.size(); ++step) {
      for (const ConstantFetch& fetch : emitter_.steps_[step].fetches) {
        auto& readers = all[static_cast<size_t>(fetch.space)];
        const auto first = readers.begin() + fetch.entry, end = first + fetch.entries;
        for (auto at = first; at != end;) {
          const auto next = std::find_if(at, end, [&](int64_t reader) { return reader != *at; });
          result[step].push_back({emitter_.part_of(fetch, at - first, next - at), step, *at});
          at = next;
        }
      }
      for (const auto& [space, begin, end] : profiles_[step].used) {
        const auto readers = all[static_cast<size_t>(space)].begin();
        std::fill(readers + begin, readers + end, static_cast<int64_t>(step));
      }
    }
    return result;
  }

  /// Short parts stay at their step; the others may come earlier.
  void take(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      const int64_t cycles = cycles_of(part.what);
      if (cycles < pieces_.smallest / kPartsOfFetch) {
        fetches_.before[part.step].push_back(part.what);
        profiles_[part.step].spare -= cycles;
      } else {
        open_.push_back(part);
      }
    }
    std::stable_sort(open_.begin(), open_.end(), [](const Part& a, const Part& b) { return a.reader > b.reader; });
  }

  /// Gives the time behind a step away.
  void fill(size_t step, int64_t& budget) {
    std::vector<ConstantFetch>& behind = fetches_.behind[step];
    for (Part& part : open_) {
      ConstantFetch& what = part.what;
      const int64_t cycles = emitter_.entry_cycles(what), time = std::min(budget, room(step, part.reader)),
                    entries = std::min(what.entries, time / cycles);
      if (entries <= 0 || (entries * cycles < pieces_.cycles && entries < what.entries)) continue;
      what.entries -= entries;
      budget -= entries * cycles;
      behind.push_back(emitter_.part_of(what, what.entries, entries));
    }
    std::reverse(behind.begin(), behind.end());  // what is free first comes first
    std::erase_if(open_, [](const Part& part) { return part.what.entries == 0; });
  }

  /// What cannot come behind a step, because this one or a later one reads the place, is fetched where it is wanted.
  void leave(int64_t step) {
    const auto end = std::find_if(open_.begin(), open_.end(), [&](const Part& part) { return part.reader < step; });
    for (auto part = open_.begin(); part != end; ++part) fetches_.before[part->step].push_back(part->what);
    open_.erase(open_.begin(), end);
  }

  /// Cycles that LOAD may take behind a step for a place that `reader` was the last to read. What the next step fetches
  /// stands behind it in LOAD's queue and is late when LOAD waits for the reader.
  int64_t room(size_t step, int64_t reader) const {
    if (reader + static_cast<int64_t>(kRunAhead) < static_cast<int64_t>(step))
      return std::numeric_limits<int64_t>::max();
    int64_t cycles = begins_[step + 1] - begins_[static_cast<size_t>(reader + 1)] - profiles_[step + 1].bus;
    for (const ConstantFetch& piece : fetches_.behind[step]) cycles -= cycles_of(piece);
    return cycles;
  }

  int64_t cycles_of(const ConstantFetch& fetch) const { return fetch.entries * emitter_.entry_cycles(fetch); }

  static constexpr int64_t kPartsOfFetch = 4;  // a part that moves may be so much shorter than a fetch

  const Emitter& emitter_;
  std::vector<Profile> profiles_;
  const Pieces pieces_;
  std::vector<int64_t> begins_{0};  // of the steps
  std::vector<Part> open_;          // what later steps want, places that are free last in front
  Fetches fetches_;
};

Emitter::Fetches Emitter::place_together(std::vector<Profile> profiles, const Pieces& pieces) const {
  return Placing(*this, std::move(profiles), pieces).run();
}

}  // namespace tessera::npu
