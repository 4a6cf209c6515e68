// SPDX-License-Identifier: Apache-2.0
// Readers are moved to the oldest place of what they read; what nobody reads any more is dropped, found against the
// order of the stream.
#include "compiler/npu/forward.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>

#include "compiler/npu/stream_values.h"

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

template <typename Extent, typename Stride>
Walk walk_of(const Extent& extent, const Stride& stride, int64_t first) {
  Walk walk;
  std::copy(extent.begin(), extent.end(), walk.extent.begin());
  std::copy(stride.begin(), stride.end(), walk.stride.begin());
  walk.first = first;
  return walk;
}

using Strides = std::array<int16_t, 6>;

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

/// The loops of an instruction of the vector unit.
struct Loops {
  std::array<uint16_t, 6>* extent;
  std::vector<Strides*> strides;  // of all operands, that which moves first
  uint8_t* inner;                 // how many innermost loops form a row or a reduction
  uint8_t* param;                 // nothing: no loop counts parameters
};

Loops loops_of(isa::Alu& alu, Strides& moves) {
  Loops loops{&alu.extent, {&moves}, &alu.reduce, &alu.param_loop};
  for (Strides* strides : {&alu.src_stride, &alu.dst_stride, &alu.second_stride}) {
    if (strides != &moves) loops.strides.push_back(strides);
  }
  return loops;
}
Loops loops_of(isa::RowReduce& reduce, Strides& moves) {
  return {&reduce.extent, {&moves, &reduce.scalar_stride}, &reduce.row, nullptr};
}
Loops loops_of(isa::RowMap& map, Strides& moves) {
  return {&map.extent, {&moves, &map.dst_stride, &map.scalar_stride}, &map.row, &map.param_loop};
}

/// Gives the operand that moves its new strides. A loop in two parts becomes two loops, for which loops of one
/// iteration make room. False: there is none.
bool set_loops(const Loops& loops, const Elsewhere& found) {
  struct Loop {
    size_t old;
    int64_t extent, times;  // iterations of the old loop in one of this
    std::optional<int64_t> stride;
  };
  std::vector<Loop> all;
  bool split = false;
  const size_t inner = loops.extent->size() - *loops.inner;
  for (size_t k = 0; k < loops.extent->size(); ++k) {
    const auto& parts = found.parts[k];
    if (parts.size() > 1 && loops.param != nullptr && *loops.param == k) return false;
    split = split || parts.size() > 1;
    if (parts.empty()) all.push_back({k, (*loops.extent)[k], 1, std::nullopt});
    for (size_t p = 0; p < parts.size(); ++p)
      all.push_back({k, parts[p].extent, p + 1 < parts.size() ? parts[p + 1].extent : 1, parts[p].stride});
  }
  const auto spare = [&](const Loop& loop) {
    return loop.extent == 1 && loop.old < inner && (loops.param == nullptr || *loops.param != loop.old);
  };
  while (all.size() > loops.extent->size()) {
    const auto found_spare = std::find_if(all.begin(), all.end(), spare);
    if (found_spare == all.end()) return false;
    all.erase(found_spare);
  }
  std::vector<Strides> old;
  for (const Strides* strides : loops.strides) old.push_back(*strides);
  const auto param = loops.param == nullptr ? size_t{7} : size_t{*loops.param};
  *loops.inner = 0;
  for (size_t k = 0; k < all.size(); ++k) {
    const Loop& loop = all[k];
    (*loops.extent)[k] = static_cast<uint16_t>(loop.extent);
    for (size_t s = 0; s < old.size(); ++s)
      (*loops.strides[s])[k] =
          static_cast<int16_t>(s == 0 && loop.stride ? *loop.stride : old[s][loop.old] * loop.times);
    if (loop.old >= inner) ++*loops.inner;
    if (loop.old == param) *loops.param = static_cast<uint8_t>(k);
  }
  return true;
}

class Forwarding {
 public:
  Forwarding(std::vector<Streamed>& stream, const ArenaBytes& results, const isa::MachineConfig& config)
      : stream_(stream), results_(results), config_(config), entry_bytes_(config.entry_bytes(Space::kInp)) {}

  bool run() {
    point_readers();
    const bool dropped = drop_unread();
    if (!replace_loads()) return dropped;
    drop_unread();
    place_results();
    return true;
  }

 private:
  void renew(Streamed& streamed) { streamed.work = emit::work_of(streamed.instruction, config_); }

  /// Whether an instruction writes what it would read, in INP or OUT.
  static bool overlaps_itself(const emit::Work& work) {
    for (const emit::Touch& written : work.touches) {
      if (!written.write || written.memory == static_cast<int>(Space::kAcc)) continue;
      for (const emit::Touch& read : work.touches) {
        if (!read.write && read.memory == written.memory && read.begin < written.end && written.begin < read.end)
          return true;
      }
    }
    return false;
  }

  // ---- readers

  void point_readers() {
    StreamValues values(config_);
    for (Streamed& streamed : stream_) {
      std::visit([&](const auto& instruction) { point(instruction, streamed, values); },
                 isa::Instruction(streamed.instruction));
      values.run(streamed.instruction, streamed.work);
    }
  }

  /// Tries the instruction with another operand; `make` changes it and says whether it could.
  template <typename T, typename Make>
  void change(Streamed& streamed, Make&& make) {
    Streamed other = streamed;
    if (!make(std::get<T>(other.instruction))) return;
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
      return set_loops(loops_of(other, other.src_stride), *found);
    });
  }

  void point(const isa::Alu& alu, Streamed& streamed, StreamValues& values) {
    if (alu.second_op != isa::SecondOp::kNone) {
      const auto found =
          values.elsewhere(Space::kOut, walk_of(alu.extent, alu.second_stride, alu.second_addr), {false, true});
      if (found) {
        change<isa::Alu>(streamed, [&](isa::Alu& other) {
          other.second_addr = static_cast<uint16_t>(found->first);
          return set_loops(loops_of(other, other.second_stride), *found);
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

  /// Bytes that are read later, by memory: INP and OUT byte by byte, the arena as intervals.
  struct Live {
    std::vector<uint8_t> inp, out;
    std::map<int64_t, int64_t> arena;  // begin -> end, disjoint

    void add(int64_t begin, int64_t end) {
      auto it = arena.lower_bound(begin);
      if (it != arena.begin() && std::prev(it)->second >= begin) --it;
      while (it != arena.end() && it->first <= end) {
        begin = std::min(begin, it->first);
        end = std::max(end, it->second);
        it = arena.erase(it);
      }
      arena[begin] = end;
    }
    void remove(int64_t begin, int64_t end) {
      auto it = arena.lower_bound(begin);
      if (it != arena.begin() && std::prev(it)->second > begin) --it;
      while (it != arena.end() && it->first < end) {
        const auto [from, to] = *it;
        it = arena.erase(it);
        if (from < begin) arena[from] = begin;
        if (to > end) it = arena.emplace(end, to).first;
      }
    }
    bool any(int64_t begin, int64_t end) const {
      const auto it = arena.lower_bound(begin);
      return (it != arena.end() && it->first < end) || (it != arena.begin() && std::prev(it)->second > begin);
    }
    std::vector<uint8_t>* scratchpad(int memory) {
      return memory == static_cast<int>(Space::kInp) ? &inp : memory == static_cast<int>(Space::kOut) ? &out : nullptr;
    }
  };

  /// Whether an instruction writes nothing but bytes that nobody reads.
  bool unread(const Streamed& streamed, Live& live) const {
    bool writes = false;
    for (const emit::Touch& touch : streamed.work.touches) {
      if (!touch.write) continue;
      writes = true;
      if (touch.memory == kArenaMemory) {
        if (live.any(touch.begin, touch.end)) return false;
        continue;
      }
      const std::vector<uint8_t>* bytes = live.scratchpad(touch.memory);
      if (bytes == nullptr) return false;
      const auto from = bytes->begin() + touch.begin, to = bytes->begin() + touch.end;
      if (std::find(from, to, uint8_t{1}) != to) return false;
    }
    return writes;
  }

  /// Removes what an instruction writes for certain, then adds what it reads.
  void pass(const Streamed& streamed, Live& live) const {
    const auto runs = arena_runs(streamed.instruction);
    const bool store = std::holds_alternative<isa::Store>(streamed.instruction);
    if (runs && store) runs->dram.each([&](int64_t at) { live.remove(at, at + runs->length); });
    for (const emit::Touch& touch : written_by(streamed.instruction, streamed.work, config_)) {
      if (touch.memory == kArenaMemory) live.remove(touch.begin, touch.end);
      if (std::vector<uint8_t>* bytes = live.scratchpad(touch.memory))
        std::fill(bytes->begin() + touch.begin, bytes->begin() + touch.end, uint8_t{0});
    }
    if (runs && !store) runs->dram.each([&](int64_t at) { live.add(at, at + runs->length); });
    const std::vector<Reading> readings = readings_of(streamed.instruction);
    for (const emit::Touch& touch : streamed.work.touches) {
      if (touch.write) continue;
      if (touch.memory == kArenaMemory && !runs) live.add(touch.begin, touch.end);
      if (std::vector<uint8_t>* bytes = live.scratchpad(touch.memory); bytes != nullptr && readings.empty())
        std::fill(bytes->begin() + touch.begin, bytes->begin() + touch.end, uint8_t{1});
    }
    for (const Reading& reading : readings) {
      std::vector<uint8_t>& bytes = *live.scratchpad(static_cast<int>(reading.space));
      reading.walk.each(
          [&](int64_t entry) { std::fill_n(bytes.begin() + entry * entry_bytes_, entry_bytes_, uint8_t{1}); });
    }
  }

  /// Whether there was anything.
  bool drop_unread() {
    Live live;
    live.inp.resize(static_cast<size_t>(config_.space_bytes(Space::kInp)));
    live.out.resize(static_cast<size_t>(config_.space_bytes(Space::kOut)));
    for (const auto& [begin, end] : results_) live.add(begin, end);
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

  /// The vector unit copies what stands on the chip. Whether there was anything.
  bool replace_loads() {
    StreamValues values(config_);
    for (size_t i = 0; i < stream_.size(); ++i) {
      if (!stream_[i].kept) continue;
      const Streamed fetched = stream_[i];  // what a copy writes is what its LOAD would have
      if (std::holds_alternative<isa::Load>(fetched.instruction)) {
        if (const auto runs = arena_runs(fetched.instruction)) replace(i, *runs, values);
      }
      values.run(fetched.instruction, fetched.work);
    }
    return !copies_.empty();
  }

  void replace(size_t i, const Runs& runs, StreamValues& values) {
    Walk walk;
    const auto found = values.on_chip(runs, walk);
    if (!found || walk.size() > kMostCopied) return;
    isa::Alu copy;
    copy.src = alu_space(found->space);
    copy.src_addr = static_cast<uint16_t>(found->first);
    copy.dst = alu_space(runs.space);
    copy.dst_addr = static_cast<uint16_t>(walk.first);
    for (size_t k = 0; k < copy.extent.size(); ++k) {
      copy.extent[k] = static_cast<uint16_t>(walk.extent[k]);
      copy.src_stride[k] = copy.dst_stride[k] = static_cast<int16_t>(walk.extent[k] > 1 ? walk.stride[k] : 0);
    }
    if (!set_loops(loops_of(copy, copy.src_stride), *found)) return;
    copy.low = kLowest;
    copy.high = kHighest;
    Streamed other{copy, {}, true};
    renew(other);
    if (overlaps_itself(other.work)) return;
    stream_[i] = std::move(other);
    copies_.push_back(i);
  }

  static constexpr int16_t kLowest = -512, kHighest = 511;  // of any byte

  // ---- results where GEMM wants them

  /// A result that copies alone read goes where they would bring it.
  void place_results() {
    std::map<size_t, std::vector<size_t>> copies;  // by the instruction whose result they read
    for (const size_t copy : copies_) {
      if (const auto producer = producer_of(copy)) copies[*producer].push_back(copy);
    }
    for (const auto& [producer, readers] : copies) place_result(producer, readers);
  }

  static const emit::Touch* touch_of(const emit::Work& work, Space space, bool write) {
    const auto found = std::find_if(work.touches.begin(), work.touches.end(), [&](const emit::Touch& touch) {
      return touch.memory == static_cast<int>(space) && touch.write == write;
    });
    return found == work.touches.end() ? nullptr : &*found;
  }

  static bool meets(const emit::Touch& touch, int64_t begin, int64_t end) {
    return touch.begin < end && begin < touch.end;
  }

  /// Who has written all that a copy from OUT to INP reads, without a gap.
  std::optional<size_t> producer_of(size_t copy) const {
    const auto& alu = std::get<isa::Alu>(stream_[copy].instruction);
    const emit::Touch* read = touch_of(stream_[copy].work, Space::kOut, false);
    if (!stream_[copy].kept || alu.dst != AluSpace::kInp || read == nullptr) return {};
    for (size_t i = copy; i-- > 0;) {
      if (!stream_[i].kept) continue;
      const emit::Touch* written = touch_of(stream_[i].work, Space::kOut, true);
      if (written == nullptr || !meets(*written, read->begin, read->end)) continue;
      const isa::Instruction& by = stream_[i].instruction;
      if (!std::holds_alternative<isa::Alu>(by) && !std::holds_alternative<isa::RowMap>(by)) return {};
      if (written->begin > read->begin || written->end < read->end) return {};
      if (written_by(by, stream_[i].work, config_).empty()) return {};
      return i;
    }
    return {};
  }

  /// How far copies move every entry, if all of them move as far and they read all entries from `begin` to `end`.
  std::optional<int64_t> distance_of(const std::vector<size_t>& copies, int64_t begin, int64_t end) const {
    std::optional<int64_t> distance;
    std::vector<uint8_t> read(static_cast<size_t>(end - begin), 0);
    for (const size_t i : copies) {
      const auto& copy = std::get<isa::Alu>(stream_[i].instruction);
      const int64_t here = int64_t{copy.dst_addr} - copy.src_addr;
      if (copy.src_stride != copy.dst_stride || (distance && *distance != here)) return {};
      distance = here;
      walk_of(copy.extent, copy.src_stride, copy.src_addr).each([&](int64_t entry) {
        read[static_cast<size_t>(entry - begin)] = 1;
      });
    }
    if (std::find(read.begin(), read.end(), uint8_t{0}) != read.end()) return {};
    return distance;
  }

  void place_result(size_t producer, const std::vector<size_t>& copies) {
    const emit::Touch written = *touch_of(stream_[producer].work, Space::kOut, true);
    const auto distance = distance_of(copies, written.begin / entry_bytes_, written.end / entry_bytes_);
    if (!distance || !read_by_copies_alone(producer, copies, written)) return;
    const int64_t begin = written.begin + *distance * entry_bytes_, end = written.end + *distance * entry_bytes_;
    if (!untouched(producer, copies, begin, end)) return;
    Streamed other = stream_[producer];
    const auto move = [&](auto& instruction) {
      instruction.dst = AluSpace::kInp;
      instruction.dst_addr = static_cast<uint16_t>(instruction.dst_addr + *distance);
    };
    if (auto* alu = std::get_if<isa::Alu>(&other.instruction))
      move(*alu);
    else
      move(std::get<isa::RowMap>(other.instruction));
    renew(other);
    if (overlaps_itself(other.work)) return;
    stream_[producer] = std::move(other);
    for (const size_t copy : copies) stream_[copy].kept = false;
  }

  bool read_by_copies_alone(size_t producer, const std::vector<size_t>& copies, const emit::Touch& written) const {
    std::vector<uint8_t> there(static_cast<size_t>(written.end - written.begin), 1);  // what is still this result
    const auto part = [&](const emit::Touch& touch) {
      return std::pair{there.begin() + (std::max(touch.begin, written.begin) - written.begin),
                       there.begin() + (std::min(touch.end, written.end) - written.begin)};
    };
    for (size_t i = producer + 1; i < stream_.size(); ++i) {
      const Streamed& streamed = stream_[i];
      const bool copy = std::find(copies.begin(), copies.end(), i) != copies.end();
      if (!streamed.kept || copy) continue;
      for (const emit::Touch& touch : streamed.work.touches) {
        if (touch.write || touch.memory != written.memory || !meets(touch, written.begin, written.end)) continue;
        const auto [from, to] = part(touch);
        if (std::find(from, to, uint8_t{1}) != to) return false;
      }
      const emit::Touch* over = touch_of(streamed.work, Space::kOut, true);
      if (over == nullptr || !meets(*over, written.begin, written.end)) continue;
      if (written_by(streamed.instruction, streamed.work, config_).empty()) continue;
      const auto [from, to] = part(*over);
      std::fill(from, to, uint8_t{0});
      if (std::find(there.begin(), there.end(), uint8_t{1}) == there.end()) break;
    }
    return true;
  }

  /// Whether bytes of INP are no one's from an instruction to the last of its copies.
  bool untouched(size_t producer, const std::vector<size_t>& copies, int64_t begin, int64_t end) const {
    for (size_t i = producer; i < copies.back(); ++i) {
      if (!stream_[i].kept || std::find(copies.begin(), copies.end(), i) != copies.end()) continue;
      for (const emit::Touch& touch : stream_[i].work.touches) {
        if (touch.memory == static_cast<int>(Space::kInp) && meets(touch, begin, end)) return false;
      }
    }
    return true;
  }

  std::vector<Streamed>& stream_;
  const ArenaBytes& results_;
  const isa::MachineConfig& config_;
  const int64_t entry_bytes_;
  std::vector<size_t> copies_;
};

}  // namespace

bool forward(std::vector<Streamed>& stream, const ArenaBytes& results, const isa::MachineConfig& config) {
  if (config.batch != 1 || config.block_in != config.block_out) return false;
  return Forwarding(stream, results, config).run();
}

}  // namespace tessera::npu
