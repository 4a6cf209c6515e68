// SPDX-License-Identifier: Apache-2.0
// Copies and those who write what they read form groups: a result of several heads, say, is copied by rows of all
// heads. A group moves as a whole or not at all.
#include "compiler/npu/values/results.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "compiler/npu/values/stream_values.h"
#include "compiler/npu/values/walk.h"
#include "isa/verify/verify.h"

namespace tessera::npu {

namespace {

using isa::AluSpace;
using isa::Space;

/// Where the results of an instruction of the vector unit go; nothing for those of others.
std::optional<Walk> written_walk(const isa::Instruction& instruction) {
  if (const auto* alu = std::get_if<isa::Alu>(&instruction)) {
    Walk walk = walk_of(alu->extent, alu->dst_stride, alu->dst_addr);
    std::fill(walk.extent.end() - alu->reduce, walk.extent.end(), 1);
    return walk;
  }
  if (const auto* map = std::get_if<isa::RowMap>(&instruction))
    return walk_of(map->extent, map->dst_stride, map->dst_addr);
  return std::nullopt;
}

class Results {
 public:
  Results(std::vector<Streamed>& stream, const std::vector<size_t>& copies, const isa::MachineConfig& config)
      : stream_(stream), config_(config), entry_bytes_(config.entry_bytes(Space::kInp)) {
    for (const size_t i : copies) {
      if (!stream[i].kept) continue;
      const auto& copy = std::get<isa::Alu>(stream[i].instruction);
      if (copy.src == AluSpace::kOut && copy.dst == AluSpace::kInp) copies_.insert(i);
    }
  }

  void run() {
    find_producers();
    while (!copies_.empty()) {
      const Group group = take_group(*copies_.begin());
      if (group.movable) move(group);
    }
  }

 private:
  static constexpr size_t kNobody = SIZE_MAX;

  /// Results of `producers`, which `copies` alone read.
  struct Group {
    std::set<size_t> producers, copies;
    bool movable = true;
  };
  /// An entry of INP that waits for the last copy of what its producer writes.
  struct Waiting {
    size_t producer = kNobody, copy = 0;
    int64_t source = 0;
  };

  /// Who has written the entries that each copy reads.
  void find_producers() {
    std::vector<size_t> writers(static_cast<size_t>(config_.depth(Space::kOut)), kNobody);
    for (size_t i = 0; i < stream_.size(); ++i) {
      if (!stream_[i].kept) continue;
      if (copies_.count(i) != 0) {
        const auto& copy = std::get<isa::Alu>(stream_[i].instruction);
        walk_of(copy.extent, copy.src_stride, copy.src_addr).each([&](int64_t entry) {
          producers_of_[i].push_back(writers[static_cast<size_t>(entry)]);
        });
        for (const size_t producer : producers_of_[i]) copies_of_[producer].insert(i);
      }
      for (const emit::Touch& touch : stream_[i].work.touches) {
        if (!touch.write || touch.memory != static_cast<int>(Space::kOut)) continue;
        const auto walk = written_walk(stream_[i].instruction);
        if (walk) {
          walk->each([&](int64_t entry) { writers[static_cast<size_t>(entry)] = i; });
          continue;
        }
        std::fill(writers.begin() + touch.begin / entry_bytes_,
                  writers.begin() + (touch.end + entry_bytes_ - 1) / entry_bytes_, i);
      }
    }
  }

  /// All that hang together with a copy; its copies are taken.
  Group take_group(size_t copy) {
    Group group;
    std::vector<size_t> open{copy};
    while (!open.empty()) {
      const size_t at = open.back();
      open.pop_back();
      if (!group.copies.insert(at).second) continue;
      copies_.erase(at);
      for (const size_t producer : producers_of_[at]) {
        if (!can_move(producer)) {
          group.movable = false;
        } else if (group.producers.insert(producer).second) {
          open.insert(open.end(), copies_of_[producer].begin(), copies_of_[producer].end());
        }
      }
    }
    return group;
  }

  bool can_move(size_t producer) const {
    if (producer == kNobody) return false;
    const isa::Instruction& by = stream_[producer].instruction;
    return written_walk(by) && !written_by(by, stream_[producer].work, config_).empty();
  }

  void move(const Group& group) {
    std::map<size_t, std::map<int64_t, int64_t>> targets;  // by producer and entry of OUT: the entry of INP
    std::vector<Waiting> waiting(static_cast<size_t>(config_.depth(Space::kInp)));
    if (!find_targets(group, targets, waiting) || !untouched(group, waiting)) return;
    std::vector<std::pair<size_t, Streamed>> moved;
    for (const size_t producer : group.producers) {
      if (!read_by_copies_alone(producer, group)) return;
      auto other = at_targets(producer, targets[producer]);
      if (!other) return;
      moved.emplace_back(producer, std::move(*other));
    }
    for (auto& [producer, other] : moved) stream_[producer] = std::move(other);
    for (const size_t copy : group.copies) stream_[copy].kept = false;
  }

  /// False: an entry has two targets, or a target two entries.
  bool find_targets(const Group& group, std::map<size_t, std::map<int64_t, int64_t>>& targets,
                    std::vector<Waiting>& waiting) const {
    for (const size_t i : group.copies) {
      const auto& copy = std::get<isa::Alu>(stream_[i].instruction);
      std::vector<int64_t> to;
      walk_of(copy.extent, copy.dst_stride, copy.dst_addr).each([&](int64_t entry) { to.push_back(entry); });
      bool unique = true;
      size_t at = 0;
      walk_of(copy.extent, copy.src_stride, copy.src_addr).each([&](int64_t entry) {
        const size_t producer = producers_of_.at(i)[at];
        const int64_t target = to[at++];
        const auto known = targets[producer].emplace(entry, target).first;
        Waiting& place = waiting[static_cast<size_t>(target)];
        const bool free = place.producer == kNobody || (place.producer == producer && place.source == entry);
        unique = unique && producer != kNobody && known->second == target && free;
        place = {producer, i, entry};
      });
      if (!unique) return false;
    }
    return true;
  }

  const emit::Touch* written_out(size_t i) const {
    for (const emit::Touch& touch : stream_[i].work.touches) {
      if (touch.write && touch.memory == static_cast<int>(Space::kOut)) return &touch;
    }
    return nullptr;
  }

  /// Whether nobody else uses the places in INP between those who write them and the last of their copies.
  bool untouched(const Group& group, const std::vector<Waiting>& waiting) const {
    for (size_t i = *group.producers.begin(); i < *group.copies.rbegin(); ++i) {
      if (!stream_[i].kept || group.copies.count(i) != 0) continue;
      for (const emit::Touch& touch : stream_[i].work.touches) {
        if (touch.memory != static_cast<int>(Space::kInp)) continue;
        const auto from = waiting.begin() + touch.begin / entry_bytes_,
                   to = waiting.begin() + (touch.end + entry_bytes_ - 1) / entry_bytes_;
        if (std::any_of(from, to, [&](const Waiting& place) {
              return place.producer != kNobody && place.producer <= i && i < place.copy;
            }))
          return false;
      }
    }
    return true;
  }

  bool read_by_copies_alone(size_t producer, const Group& group) const {
    const emit::Touch written = *written_out(producer);
    std::vector<uint8_t> there(static_cast<size_t>(written.end - written.begin), 1);  // what is still this result
    const auto part = [&](const emit::Touch& touch) {
      const int64_t from = std::max(touch.begin, written.begin), to = std::min(touch.end, written.end);
      return std::pair{there.begin() + (std::min(from, to) - written.begin), there.begin() + (to - written.begin)};
    };
    for (size_t i = producer + 1; i < stream_.size(); ++i) {
      if (!stream_[i].kept || group.copies.count(i) != 0) continue;
      const auto meets = [&](const emit::Touch& touch, bool write) {
        return touch.write == write && touch.memory == written.memory && touch.begin < written.end &&
               written.begin < touch.end;
      };
      for (const emit::Touch& touch : stream_[i].work.touches) {
        if (!meets(touch, false)) continue;
        const auto [from, to] = part(touch);
        if (std::find(from, to, uint8_t{1}) != to) return false;
      }
      const emit::Touch* over = written_out(i);
      if (over == nullptr || !meets(*over, true)) continue;
      if (written_by(stream_[i].instruction, stream_[i].work, config_).empty()) continue;
      const auto [from, to] = part(*over);
      std::fill(from, to, uint8_t{0});
      if (std::find(there.begin(), there.end(), uint8_t{1}) == there.end()) break;
    }
    return true;
  }

  /// The instruction with its results at their targets; nothing where its loops do not lead there.
  std::optional<Streamed> at_targets(size_t producer, const std::map<int64_t, int64_t>& targets) const {
    Streamed other = stream_[producer];
    const Walk walk = *written_walk(other.instruction);
    std::vector<int64_t> wanted;
    bool all = true;
    walk.each([&](int64_t entry) {
      const auto target = targets.find(entry);
      all = all && target != targets.end();
      wanted.push_back(all ? target->second : 0);
    });
    if (!all) return std::nullopt;
    NestParts parts;
    int64_t flat = 1;
    for (size_t k = walk.extent.size(); k-- > 0; flat *= walk.extent[k]) {
      if (walk.extent[k] == 1) continue;
      auto split = even_parts(walk.extent[k], [&](int64_t i) -> std::optional<int64_t> {
        return wanted[static_cast<size_t>(flat * i)] - wanted.front();
      });
      if (!split) return std::nullopt;
      parts[k] = std::move(*split);
    }
    size_t at = 0;
    each_of_parts(walk, wanted.front(), parts, [&](int64_t entry) { all = all && entry == wanted[at++]; });
    if (!all) return std::nullopt;
    const auto lead = [&](auto& instruction) {
      instruction.dst = AluSpace::kInp;
      instruction.dst_addr = static_cast<uint16_t>(wanted.front());
      return set_loops(loops_of(instruction, instruction.dst_stride), parts);
    };
    auto* alu = std::get_if<isa::Alu>(&other.instruction);
    if (!(alu != nullptr ? lead(*alu) : lead(std::get<isa::RowMap>(other.instruction)))) return std::nullopt;
    if (isa::check_operands(other.instruction, config_)) return std::nullopt;
    other.work = emit::work_of(other.instruction, config_);
    return overlaps_itself(other.work) ? std::nullopt : std::optional(std::move(other));
  }

  std::vector<Streamed>& stream_;
  const isa::MachineConfig& config_;
  const int64_t entry_bytes_;
  std::set<size_t> copies_;
  std::map<size_t, std::vector<size_t>> producers_of_;  // of a copy, in its order: who has written each entry
  std::map<size_t, std::set<size_t>> copies_of_;
};

}  // namespace

bool overlaps_itself(const emit::Work& work) {
  for (const emit::Touch& written : work.touches) {
    if (!written.write || written.memory == static_cast<int>(Space::kAcc)) continue;
    for (const emit::Touch& read : work.touches) {
      if (!read.write && read.memory == written.memory && read.begin < written.end && written.begin < read.end)
        return true;
    }
  }
  return false;
}

void place_results(std::vector<Streamed>& stream, const std::vector<size_t>& copies, const isa::MachineConfig& config) {
  Results(stream, copies, config).run();
}

}  // namespace tessera::npu
