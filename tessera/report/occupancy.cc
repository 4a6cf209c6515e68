// SPDX-License-Identifier: Apache-2.0
// Instructions are taken in the order of the program: that is the order in which their effects hold, whichever engine
// was faster. A write ends what was there before; where it covers a part, the rest lives on.
#include "tessera/report/occupancy.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "isa/verify/effects.h"

namespace tessera {

using nlohmann::json;

namespace {

constexpr int64_t kHost = -1;      // writer: the runtime, before the program starts
constexpr int64_t kNearby = 4096;  // bytes between parts of one tensor, such as borders

struct Region {
  int64_t begin = 0, end = 0;
  uint64_t from = 0, to = 0;
  int64_t row = kNoRow;
  int64_t instruction = kHost;
};

/// One memory: the regions that hold something now, by their first byte, and those that have ended.
class Tracker {
 public:
  void write(Region region) {
    if (region.begin >= region.end) return;
    cut(region.begin, region.end, region.from);
    live_.emplace(region.begin, region);
  }

  /// Calls `reader(writer's row)` for each region that it meets. `again`: the same bytes are written now, by the same
  /// layer, so that the region goes on; the result says whether there was one.
  template <typename Reader>
  bool read(int64_t begin, int64_t end, uint64_t until, Reader&& reader) {
    bool whole = false;
    for (auto at = first(begin); at != live_.end() && at->first < end; ++at) {
      at->second.to = std::max(at->second.to, until);
      whole = whole || (at->second.begin == begin && at->second.end == end);
      reader(at->second.row);
    }
    return whole;
  }

  const std::vector<Region>& take() {
    for (const auto& [begin, region] : live_) ended_.push_back(region);
    live_.clear();
    return ended_;
  }

 private:
  using Live = std::map<int64_t, Region>;

  /// The first region that reaches beyond `begin`.
  Live::iterator first(int64_t begin) {
    auto at = live_.upper_bound(begin);
    if (at != live_.begin() && std::prev(at)->second.end > begin) --at;
    return at;
  }

  /// Ends what lies there. A reader's range may span bytes that it does not touch and that are written meanwhile.
  void cut(int64_t begin, int64_t end, uint64_t at_time) {
    for (auto at = first(begin); at != live_.end() && at->second.begin < end;) {
      const Region old = at->second;
      at = live_.erase(at);
      Region gone = old;
      gone.begin = std::max(old.begin, begin);
      gone.end = std::min(old.end, end);
      gone.to = std::min(gone.to, at_time);
      ended_.push_back(gone);
      if (old.begin < begin) live_.emplace(old.begin, part(old, old.begin, begin));
      if (old.end > end) at = std::next(live_.emplace(end, part(old, end, old.end)).first);
    }
  }

  static Region part(Region region, int64_t begin, int64_t end) {
    region.begin = begin;
    region.end = end;
    return region;
  }

  Live live_;
  std::vector<Region> ended_;
};

struct Peak {
  int64_t bytes = 0;
  uint64_t at = 0;
};

/// How many bytes some regions cover together, of regions that come and go: tensors whose pieces lie between each
/// other's, as parts of a Concat, overlap as a whole. A segment tree over the bytes at which regions begin or end.
class Coverage {
 public:
  explicit Coverage(const std::vector<Region>& regions) {
    for (const Region& region : regions) {
      bounds_.push_back(region.begin);
      bounds_.push_back(region.end);
    }
    std::sort(bounds_.begin(), bounds_.end());
    bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
    nodes_.resize(4 * bounds_.size() + 4);
  }

  /// times: 1 when it comes, -1 when it goes.
  void change(const Region& region, int times) {
    if (region.begin < region.end) change(1, 0, bounds_.size() - 1, index(region.begin), index(region.end), times);
  }
  int64_t bytes() const { return nodes_[1].bytes; }

 private:
  struct Node {
    int regions = 0;    // that cover all of it
    int64_t bytes = 0;  // that any region covers
  };

  size_t index(int64_t byte) const {
    return static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), byte) - bounds_.begin());
  }

  void change(size_t node, size_t low, size_t high, size_t from, size_t to, int times) {
    if (to <= low || high <= from) return;
    Node& here = nodes_[node];
    if (from <= low && high <= to) {
      here.regions += times;
    } else {
      const size_t middle = (low + high) / 2;
      change(2 * node, low, middle, from, to, times);
      change(2 * node + 1, middle, high, from, to, times);
    }
    if (here.regions > 0) {
      here.bytes = bounds_[high] - bounds_[low];
    } else {
      here.bytes = high - low > 1 ? nodes_[2 * node].bytes + nodes_[2 * node + 1].bytes : 0;
    }
  }

  std::vector<int64_t> bounds_;
  std::vector<Node> nodes_;
};

Peak peak_of(const std::vector<Region>& regions) {
  std::vector<std::tuple<uint64_t, int, size_t>> changes;
  for (size_t k = 0; k < regions.size(); ++k) {
    if (regions[k].from >= regions[k].to) continue;
    changes.emplace_back(regions[k].from, 1, k);
    changes.emplace_back(regions[k].to, -1, k);
  }
  std::sort(changes.begin(), changes.end());  // at one time what ends comes first
  Peak peak;
  Coverage coverage(regions);
  for (const auto& [at, times, k] : changes) {
    coverage.change(regions[k], times);
    if (coverage.bytes() > peak.bytes) peak = {coverage.bytes(), at};
  }
  return peak;
}

/// The pieces that one writer left, joined to tensors.
std::vector<Region> joined(std::vector<Region> pieces) {
  std::sort(pieces.begin(), pieces.end(),
            [](const Region& a, const Region& b) { return std::pair(a.row, a.begin) < std::pair(b.row, b.begin); });
  std::vector<Region> out;
  for (const Region& piece : pieces) {
    if (!out.empty() && out.back().row == piece.row && piece.begin <= out.back().end + kNearby) {
      Region& last = out.back();
      last.end = std::max(last.end, piece.end);
      last.from = std::min(last.from, piece.from);
      last.to = std::max(last.to, piece.to);
    } else {
      out.push_back(piece);
    }
  }
  return out;
}

int64_t last_byte(const program::DeviceTensor& t) {
  return static_cast<int64_t>(t.offset) + (t.n - 1) * t.image_pitch + (t.h - 1) * t.row_pitch +
         (t.w - 1) * t.pixel_pitch + t.padded_c * program::dtype_bits(t.dtype) / 8;
}

json columns_of(const std::vector<Region>& regions, bool with_instruction) {
  json columns;
  for (const char* name : {"begin", "end", "from", "to", "layer"}) columns[name] = json::array();
  if (with_instruction) columns["instruction"] = json::array();
  for (const Region& region : regions) {
    columns["begin"].push_back(region.begin);
    columns["end"].push_back(region.end);
    columns["from"].push_back(region.from);
    columns["to"].push_back(region.to);
    columns["layer"].push_back(region.row);
    if (with_instruction) columns["instruction"].push_back(region.instruction);
  }
  return columns;
}

class Occupancy {
 public:
  Occupancy(const program::Artifact& artifact, const Timeline& timeline)
      : artifact_(artifact), timeline_(timeline), scratchpads_(static_cast<size_t>(artifact.config.cores)) {
    for (const program::Plan& plan : artifact.plans)
      for (const program::Step& step : plan.steps)
        if (const auto* npu = std::get_if<program::NpuStep>(&step)) steps_[npu->program] = npu;
  }

  json take() {
    size_t next = 0;
    for (size_t step = 0; step < timeline_.programs.size(); ++step) {
      begin_program(timeline_.programs[step]);
      for (; next < timeline_.instructions.size() && timeline_.instructions[next].step == step; ++next)
        add(timeline_.instructions[next], static_cast<int64_t>(next));
      end_program(timeline_.programs[step]);
    }
    return written();
  }

 private:
  void begin_program(const TimedProgram& program) {
    arena_ = {};
    const auto found = steps_.find(program.program);
    if (found == steps_.end()) return;
    for (const program::DeviceTensor& t : found->second->inputs)
      arena_.write({static_cast<int64_t>(t.offset), last_byte(t), program.begin, program.begin, kNoRow, kHost});
  }

  void end_program(const TimedProgram& program) {
    if (const auto found = steps_.find(program.program); found != steps_.end())
      for (const program::DeviceTensor& t : found->second->outputs)
        arena_.read(static_cast<int64_t>(t.offset), last_byte(t), program.end, [](int64_t) {});
    for (const Region& region : joined(arena_.take())) tensors_.push_back(region);
  }

  void add(const TimedInstruction& one, int64_t index) {
    const isa::Effects effects = isa::effects(*one.instruction, artifact_.config);
    // What is read and written in place, as sums are, goes on; the rest begins anew.
    std::set<std::pair<int, int64_t>> in_place;
    for (const isa::Operand& operand : effects.operands) {
      if (operand.write || operand.accesses == 0) continue;
      Tracker* memory = memory_of(operand, one.core);
      if (memory == nullptr) continue;
      const bool whole = memory->read(operand.begin, operand.end, one.completed, [&](int64_t writer) {
        if (operand.dram && writer >= 0 && one.row >= 0 && writer != one.row) edges_.emplace(writer, one.row);
      });
      if (whole) in_place.emplace(operand.memory(), operand.begin);
    }
    for (const isa::Operand& operand : effects.operands) {
      if (!operand.write || operand.accesses == 0) continue;
      Tracker* memory = memory_of(operand, one.core);
      if (memory == nullptr || in_place.contains({operand.memory(), operand.begin})) continue;
      memory->write({operand.begin, operand.end, one.begin, one.completed, one.row, index});
    }
  }

  Tracker* memory_of(const isa::Operand& operand, size_t core) {
    if (!operand.dram) return &scratchpads_[core][static_cast<size_t>(operand.space)];
    return operand.base == program::kArenaBase ? &arena_ : nullptr;
  }

  json written() {
    json out;
    out["scratchpads"] = json::array();
    for (size_t core = 0; core < scratchpads_.size(); ++core) {
      for (size_t s = 0; s < isa::kSpaces; ++s) {
        const auto space = static_cast<isa::Space>(s);
        const std::vector<Region>& regions = scratchpads_[core][s].take();
        const Peak peak = peak_of(regions);
        json one = {{"name", isa::to_string(space)},
                    {"bytes", artifact_.config.space_bytes(space)},
                    {"peak_bytes", peak.bytes},
                    {"peak_at", peak.at},
                    {"regions", columns_of(regions, true)}};
        if (scratchpads_.size() > 1) one["core"] = core;
        out["scratchpads"].push_back(std::move(one));
      }
    }
    uint64_t bytes = 0;
    for (const program::NpuProgram& npu : artifact_.npu_programs) bytes = std::max(bytes, npu.arena_bytes);
    const Peak peak = peak_of(tensors_);
    out["arena"] = {
        {"bytes", bytes}, {"peak_bytes", peak.bytes}, {"peak_at", peak.at}, {"regions", columns_of(tensors_, false)}};
    out["layer_edges"] = json::array();
    for (const auto& [from, to] : edges_) out["layer_edges"].push_back({from, to});
    return out;
  }

  const program::Artifact& artifact_;
  const Timeline& timeline_;
  std::map<int64_t, const program::NpuStep*> steps_;
  std::vector<std::array<Tracker, isa::kSpaces>> scratchpads_;  // by core
  Tracker arena_;
  std::vector<Region> tensors_;
  std::set<std::pair<int64_t, int64_t>> edges_;
};

}  // namespace

json memory_json(const program::Artifact& artifact, const Timeline& timeline) {
  return Occupancy(artifact, timeline).take();
}

}  // namespace tessera
