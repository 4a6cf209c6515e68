// SPDX-License-Identifier: Apache-2.0
// Readers are moved to the oldest place of what they read; what nobody reads any more is dropped, found against the
// order of the stream.
#include "compiler/npu/values/forward.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>

#include "compiler/npu/values/byte_set.h"
#include "compiler/npu/values/results.h"
#include "compiler/npu/values/stream_values.h"
#include "isa/verify/verify.h"

namespace tessera::npu {

namespace {

using isa::AluSpace;
using isa::Space;

constexpr int64_t kMostCopied = 512;  // entries of a copy

AluSpace alu_space(Space space) { return space == Space::kInp ? AluSpace::kInp : AluSpace::kOut; }

std::optional<Space> scratchpad_of(AluSpace space) {
  if (space == AluSpace::kAcc) return std::nullopt;
  return space == AluSpace::kInp ? Space::kInp : Space::kOut;
}

/// Entries of INP or OUT that an instruction reads.
struct Reading {
  Space space = Space::kInp;
  Walk walk;
};

/// What GEMM and the vector unit read entry by entry; nothing where these are too many to look at.
std::vector<Reading> readings_of(const isa::Instruction& instruction) {
  constexpr int64_t kMostSteps = 1024;
  std::vector<Reading> all;
  const auto add = [&](const auto& extent, const auto& stride, std::optional<Space> space, int64_t first) {
    if (!space) return;
    Walk walk = walk_of(extent, stride, first);
    for (size_t k = 0; k < walk.stride.size(); ++k) {
      if (walk.stride[k] == 0) walk.extent[k] = 1;
    }
    all.push_back({*space, walk});
  };
  if (const auto* gemm = std::get_if<isa::Gemm>(&instruction))
    add(gemm->extent, gemm->inp_stride, Space::kInp, gemm->inp_addr);
  if (const auto* reduce = std::get_if<isa::RowReduce>(&instruction))
    add(reduce->extent, reduce->src_stride, scratchpad_of(reduce->src), reduce->src_addr);
  if (const auto* map = std::get_if<isa::RowMap>(&instruction))
    add(map->extent, map->src_stride, scratchpad_of(map->src), map->src_addr);
  if (const auto* alu = std::get_if<isa::Alu>(&instruction)) {
    add(alu->extent, alu->src_stride, scratchpad_of(alu->src), alu->src_addr);
    if (alu->second_op != isa::SecondOp::kNone) add(alu->extent, alu->second_stride, Space::kOut, alu->second_addr);
  }
  if (std::any_of(all.begin(), all.end(), [](const Reading& reading) { return reading.walk.size() > kMostSteps; }))
    all.clear();
  return all;
}

class Forwarding {
 public:
  using Copies = decltype(Pointed::copies);

  Forwarding(std::vector<Streamed>& stream, const ArenaBytes& results, const isa::MachineConfig& config)
      : stream_(stream), results_(results), config_(config), entry_bytes_(config.entry_bytes(Space::kInp)) {}

  /// The first half, which makes no copies: readers are moved and what nobody reads is dropped. The copies that may
  /// replace LOADs of what stands elsewhere leave; what a copy writes is what its LOAD would have: no choice among them
  /// changes what the others are.
  void point(Pointed& done) {
    done.copies = look(true);
    done.unread = drop_unread();
    if (done.unread) done.copies = look(false);
  }

  /// The second half.
  Forwarded replace(const Pointed& pointed, const std::set<size_t>& loads) {
    Forwarded done{pointed.unread, {}};
    std::vector<size_t> replaced;
    for (const auto& [i, copy] : pointed.copies) {
      if (loads.count(i) != 0) continue;
      stream_[i] = copy;
      replaced.push_back(i);
    }
    if (replaced.empty()) return done;
    done.changed = true;
    drop_unread();
    place_results(stream_, replaced, config_);
    std::copy_if(replaced.begin(), replaced.end(), std::inserter(done.copies, done.copies.end()),
                 [&](size_t i) { return stream_[i].kept; });
    return done;
  }

 private:
  void renew(Streamed& streamed) const { streamed.work = emit::work_of(streamed.instruction, config_); }

  // ---- readers

  /// Goes through the stream, which moves readers if that is wanted. Leaves the copies.
  Copies look(bool move) {
    Copies found;
    StreamValues values(config_);
    for (size_t i = 0; i < stream_.size(); ++i) {
      Streamed& streamed = stream_[i];
      if (!streamed.kept) continue;
      if (move) {
        std::visit([&](const auto& instruction) { point(instruction, streamed, values); },
                   isa::Instruction(streamed.instruction));
      }
      if (std::holds_alternative<isa::Load>(streamed.instruction)) {
        const auto runs = arena_runs(streamed.instruction);
        if (auto copy = runs ? copy_of(*runs, values) : std::nullopt) found.emplace_back(i, std::move(*copy));
      }
      values.run(streamed.instruction, streamed.work);
    }
    return found;
  }

  /// Tries the instruction with another operand; `make` changes it and says whether it could.
  template <typename T, typename Make>
  void change(Streamed& streamed, Make&& make) {
    Streamed other = streamed;
    if (!make(std::get<T>(other.instruction))) return;
    if (isa::check_operands(other.instruction, config_)) return;
    renew(other);
    if (!overlaps_itself(other.work)) streamed = std::move(other);
  }

  void point(const isa::Gemm& gemm, Streamed& streamed, StreamValues& values) {
    const auto found =
        values.elsewhere(Space::kInp, walk_of(gemm.extent, gemm.inp_stride, gemm.inp_addr), {true, false});
    if (!found) return;
    change<isa::Gemm>(streamed, [&](isa::Gemm& other) {
      other.inp_addr = static_cast<uint16_t>(found->first);
      for (size_t k = 0; k < found->parts.size(); ++k) {
        if (found->parts[k].size() > 1) return false;
        if (!found->parts[k].empty()) other.inp_stride[k] = static_cast<int16_t>(found->parts[k].front().stride);
      }
      return true;
    });
  }

  void point(const isa::Store& store, Streamed& streamed, StreamValues& values) {
    const auto runs = runs_of(store);
    if (!runs) return;
    const auto found = values.elsewhere(*runs);
    if (!found) return;
    change<isa::Store>(streamed, [&](isa::Store& other) {
      other.sp_addr = static_cast<uint32_t>(found->first);
      for (size_t k = 0; k < other.sp_stride.size(); ++k) {
        const auto& parts = found->parts[k + 2];
        if (parts.size() > 1) return false;
        if (!parts.empty()) other.sp_stride[k] = static_cast<int32_t>(parts.front().stride);
      }
      return true;
    });
  }

  template <typename T>
  void point_source(const T& instruction, Streamed& streamed, StreamValues& values) {
    const auto space = scratchpad_of(instruction.src);
    if (!space) return;
    const auto found = values.elsewhere(
        *space, walk_of(instruction.extent, instruction.src_stride, instruction.src_addr), {true, true});
    if (!found) return;
    change<T>(streamed, [&](T& other) {
      other.src = alu_space(found->space);
      other.src_addr = static_cast<uint16_t>(found->first);
      return set_loops(loops_of(other, other.src_stride), found->parts);
    });
  }

  void point(const isa::Alu& alu, Streamed& streamed, StreamValues& values) {
    if (alu.second_op != isa::SecondOp::kNone) {
      const auto found =
          values.elsewhere(Space::kOut, walk_of(alu.extent, alu.second_stride, alu.second_addr), {false, true});
      if (found) {
        change<isa::Alu>(streamed, [&](isa::Alu& other) {
          other.second_addr = static_cast<uint16_t>(found->first);
          return set_loops(loops_of(other, other.second_stride), found->parts);
        });
      }
    }
    point_source(isa::Alu(std::get<isa::Alu>(streamed.instruction)), streamed, values);
  }
  void point(const isa::RowReduce& reduce, Streamed& streamed, StreamValues& values) {
    point_source(reduce, streamed, values);
  }
  void point(const isa::RowMap& map, Streamed& streamed, StreamValues& values) { point_source(map, streamed, values); }
  template <typename T>
  void point(const T&, Streamed&, StreamValues&) {}

  // ---- what nobody reads

  /// Bytes that are read later, by memory.
  struct Live {
    ByteSet inp, out, arena;

    ByteSet* of(int memory) {
      if (memory == kArenaMemory) return &arena;
      return memory == static_cast<int>(Space::kInp) ? &inp : memory == static_cast<int>(Space::kOut) ? &out : nullptr;
    }
  };

  /// Whether an instruction writes nothing but bytes that nobody reads.
  bool unread(const Streamed& streamed, Live& live) const {
    bool writes = false;
    for (const emit::Touch& touch : streamed.work.touches) {
      if (!touch.write) continue;
      writes = true;
      ByteSet* const bytes = live.of(touch.memory);
      if (bytes == nullptr || bytes->any(touch.begin, touch.end)) return false;
    }
    return writes;
  }

  /// Removes what an instruction writes for certain, then adds what it reads.
  void pass(const Streamed& streamed, Live& live) const {
    const auto runs = arena_runs(streamed.instruction);
    const bool store = std::holds_alternative<isa::Store>(streamed.instruction);
    if (runs && store) runs->dram.each([&](int64_t at) { live.arena.remove(at, at + runs->length); });
    for (const emit::Touch& touch : written_by(streamed.instruction, streamed.work, config_)) {
      if (ByteSet* const bytes = live.of(touch.memory)) bytes->remove(touch.begin, touch.end);
    }
    if (runs && !store) runs->dram.each([&](int64_t at) { live.arena.add(at, at + runs->length); });
    const std::vector<Reading> readings = readings_of(streamed.instruction);
    for (const emit::Touch& touch : streamed.work.touches) {
      if (touch.write) continue;
      ByteSet* const bytes = live.of(touch.memory);
      const bool exactly = touch.memory == kArenaMemory ? runs.has_value() : !readings.empty();
      if (bytes != nullptr && !exactly) bytes->add(touch.begin, touch.end);
    }
    for (const Reading& reading : readings) {
      ByteSet& bytes = *live.of(static_cast<int>(reading.space));
      each_run(reading.walk,
               [&](int64_t entry, int64_t count) { bytes.add(entry * entry_bytes_, (entry + count) * entry_bytes_); });
    }
  }

  /// Whether there was anything.
  bool drop_unread() {
    Live live;
    // Tensors without a place have no bytes, at 0: who writes there counts as read.
    for (const auto& [begin, end] : results_) live.arena.add(begin, std::max(end, begin + 1));
    bool dropped = false;
    for (auto streamed = stream_.rbegin(); streamed != stream_.rend(); ++streamed) {
      if (!streamed->kept) continue;
      if (unread(*streamed, live)) {
        streamed->kept = false;
        dropped = true;
        continue;
      }
      pass(*streamed, live);
    }
    return dropped;
  }

  // ---- LOADs of what stands elsewhere

  /// The vector unit's copy of what stands on the chip, in place of a LOAD.
  std::optional<Streamed> copy_of(const Runs& runs, StreamValues& values) const {
    Walk walk;
    const auto found = values.on_chip(runs, walk);
    if (!found || walk.size() > kMostCopied) return std::nullopt;
    isa::Alu copy;
    copy.src = alu_space(found->space);
    copy.src_addr = static_cast<uint16_t>(found->first);
    copy.dst = alu_space(runs.space);
    copy.dst_addr = static_cast<uint16_t>(walk.first);
    for (size_t k = 0; k < copy.extent.size(); ++k) {
      copy.extent[k] = static_cast<uint16_t>(walk.extent[k]);
      copy.src_stride[k] = copy.dst_stride[k] = static_cast<int16_t>(walk.extent[k] > 1 ? walk.stride[k] : 0);
    }
    if (!set_loops(loops_of(copy, copy.src_stride), found->parts)) return std::nullopt;
    copy.low = kLowest;
    copy.high = kHighest;
    Streamed other{copy, {}, true};
    renew(other);
    if (overlaps_itself(other.work)) return std::nullopt;
    return other;
  }

  static constexpr int16_t kLowest = -512, kHighest = 511;  // of any byte

  std::vector<Streamed>& stream_;
  const ArenaBytes& results_;
  const isa::MachineConfig& config_;
  const int64_t entry_bytes_;
};

}  // namespace

namespace {

/// Whether all that a stream touches on the chip is there. An intrinsic of a plugin may read past the end in a
/// candidate; what is chosen is checked when it is finished.
bool within(const std::vector<Streamed>& stream, const isa::MachineConfig& config) {
  const auto inside = [&](const emit::Touch& touch) {
    if (touch.memory >= isa::kSpaces) return true;
    return touch.begin >= 0 && touch.end <= config.space_bytes(static_cast<Space>(touch.memory));
  };
  return std::all_of(stream.begin(), stream.end(), [&](const Streamed& streamed) {
    return std::all_of(streamed.work.touches.begin(), streamed.work.touches.end(), inside);
  });
}

}  // namespace

Pointed pointed(std::vector<Streamed> stream, const ArenaBytes& results, const isa::MachineConfig& config) {
  Pointed done{std::move(stream), false, false, {}};
  done.possible = can_forward(config) && within(done.stream, config);
  if (!done.possible) return done;
  Forwarding(done.stream, results, config).point(done);
  return done;
}

Forwarded forward(Pointed& stream, const ArenaBytes& results, const isa::MachineConfig& config,
                  const std::set<size_t>& loads) {
  if (!stream.possible) return {};
  return Forwarding(stream.stream, results, config).replace(stream, loads);
}

}  // namespace tessera::npu
