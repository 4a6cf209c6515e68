// SPDX-License-Identifier: Apache-2.0
// The rings of the tile loop (nest_lowering.h) run without instructions: each operand by itself, once for each plan.
#include "compiler/npu/planning/course.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "compiler/npu/lowering/nest_lowering.h"

namespace tessera::npu {

using schedule::Dim;
using schedule::Operand;
using schedule::OperandPlan;
using schedule::Schedule;

void Digest::add(uint64_t number) {
  a = (a ^ number) * 0x9e3779b97f4a7c15u;
  a ^= a >> 32;
  b = (b + number) * 0xd6e8feb86659fd93u;
  b ^= b >> 29;
}

void Digest::add(const Digest& other) {
  add(other.a);
  add(other.b);
}

std::vector<NestLowering::Request> NestLowering::requests(Operand operand, const std::vector<Tile>& tiles) const {
  std::vector<Request> result;
  std::map<std::array<schedule::Extents, 2>, int32_t> parts;
  std::map<int32_t, int64_t> rows_there;  // by part, once it has been fetched
  for (const Tile& tile : tiles) {
    const bool with_result = operand != Operand::kInput && operand != Operand::kWeights && operand != Operand::kSums;
    if (with_result && !ends(tile)) continue;
    const Tile key = operand == Operand::kOutput ? tile : key_of(operand, tile);
    const auto [part, fresh] = parts.try_emplace({key.begin, key.count}, static_cast<int32_t>(parts.size()));
    Request request{part->second, operand == Operand::kOutput || (operand == Operand::kSums && starts(tile)), 0, 0};
    if (operand == Operand::kWeights && !nest_.factor.present)
      request.taken = schedule_.intrinsic->demand(nest_, tile.count).weights * config_.wgt_entry_bytes();
    if (operand == Operand::kInput) {
      const Span rows = rows_of(tile);
      Span window = window_of(tile);
      const int64_t end = (rows.begin - window.begin) / window.step + rows.count;
      int64_t& present = rows_there[part->second];
      window.count = end;
      request.taken = fetched_bytes(tile, window);
      window.begin += present * window.step;
      window.count = std::max<int64_t>(0, end - present);
      request.added = fetched_bytes(tile, window);
      present = std::max(present, end);
    }
    result.push_back(request);
  }
  return result;
}

int64_t NestLowering::fetched_bytes(const Tile& tile, Span rows) const {
  const schedule::Access& in = nest_.input;
  const schedule::ChannelMap& map = nest_.in_channels;
  if (!in.present || task_.unit_input || in.broadcasts() || in.pitch_w < map.total * in.element_bytes) return 0;
  const auto inside = [](const Span& span, int64_t low, int64_t high) {
    const int64_t first = std::max<int64_t>(0, (low - span.begin + span.step - 1) / span.step),
                  last = std::min(span.count - 1, (high - 1 - span.begin) / span.step);
    return high - 1 < span.begin ? 0 : std::max<int64_t>(0, last - first + 1);
  };
  const int64_t begin = tile.begin[Dim::kG] * map.chunk, blocks = tile.count[Dim::kIc];
  const int64_t from = begin + tile.begin[Dim::kIc] * map.lanes;
  const int64_t channels =
      blocks >= map.blocks()
          ? std::clamp<int64_t>(map.total - begin, 0, tile.count[Dim::kG] * map.chunk)
          : std::clamp<int64_t>(std::min(map.total, begin + map.chunk) - from, 0, blocks * map.lanes);
  return tile.count[Dim::kN] * inside(rows, in.row_begin, in.row_end) *
         inside(cols_of(tile), in.col_begin, in.col_end) * channels * in.element_bytes;
}

namespace {

/// What a ring of so many slots gives, one after the other: slots and which of them are taken anew; the latter alone.
PlanChoice ring(const std::vector<NestLowering::Request>& requests, const OperandPlan& plan) {
  const int64_t copies = plan.copies;
  std::vector<int64_t> slot_of, part_in(static_cast<size_t>(copies), -1);
  int64_t next = 0;
  PlanChoice made{plan, {}, {}, 0};
  for (const auto& [part, fresh, taken, added] : requests) {
    if (static_cast<size_t>(part) >= slot_of.size()) slot_of.resize(static_cast<size_t>(part) + 1, -1);
    int64_t& slot = slot_of[static_cast<size_t>(part)];
    const bool there = !fresh && slot >= 0 && part_in[static_cast<size_t>(slot)] == part;
    if (!there) {
      slot = next;
      next = next + 1 == copies ? 0 : next + 1;
      part_in[static_cast<size_t>(slot)] = part;
    }
    made.digest.add(static_cast<uint64_t>(slot) << 1 | (there ? 0U : 1U));
    made.fetches.add(there ? 0 : 1);
    made.bytes += there ? added : taken;
  }
  return made;
}

Digest digest_of(const std::vector<Tile>& tiles) {
  Digest digest;
  for (const Tile& tile : tiles) {
    for (int d = 0; d < schedule::kDims; ++d)
      digest.add(static_cast<uint64_t>(tile.begin.value[static_cast<size_t>(d)]));
  }
  return digest;
}

}  // namespace

Courses::Courses(const Task& task, const schedule::Nest& nest, const isa::MachineConfig& config, const Options& options,
                 const schedule::Intrinsic& intrinsic, const schedule::Extents& tile)
    : task_(task),
      nest_(nest),
      config_(config),
      options_(options),
      points_(nest, config, intrinsic, tile),
      loops_(points_.loops()) {}

schedule::Schedule CourseGroup::with(const std::vector<size_t>& chosen) const {
  Schedule made = frame;
  for (size_t k = 0; k < free.size(); ++k)
    made.operands[free[k].at] = free[k].choices[k < chosen.size() ? chosen[k] : free[k].choices.size() - 1].plan;
  return made;
}

Digest CourseGroup::digest_with(const std::vector<size_t>& chosen) const {
  Digest all = digest;
  for (size_t k = 0; k < free.size(); ++k) all.add(free[k].choices[chosen[k]].digest);
  return all;
}

Digest CourseGroup::digest_of_all() const {
  // With equal slots in turn a ring may still have slots that nothing takes.
  Digest all = digest;
  for (const OperandPlan& plan : frame.operands) all.add(static_cast<uint64_t>(plan.copies));
  for (const Free& of : free) {
    all.add(of.choices.size());
    for (const PlanChoice& choice : of.choices) {
      all.add(choice.digest);
      all.add(static_cast<uint64_t>(choice.plan.copies));
    }
  }
  return all;
}

std::vector<PlanChoice> Courses::choices(const Schedule& loops, Operand operand) const {
  Emitter nothing(config_, options_, WeightBytes::kPlacesOnly);
  LayerInfo info;
  const std::vector<Tile> tiles = NestLowering(task_, nest_, loops, nothing, info, 0).tiles();
  std::vector<PlanChoice> result;
  std::map<Digest, size_t> seen;
  Schedule made = loops;
  made.operands.resize(1);
  std::vector<NestLowering::Request> requests;
  const OperandPlan* before = nullptr;
  const std::vector<OperandPlan> plans = points_.plans(loops, operand);
  for (const OperandPlan& plan : plans) {
    made.operands.front() = plan;
    if (before == nullptr || before->attach != plan.attach || before->halo != plan.halo)
      requests = NestLowering(task_, nest_, made, nothing, info, 0).requests(operand, tiles);
    before = &plan;
    PlanChoice choice = ring(requests, plan);
    for (Digest* of : {&choice.digest, &choice.fetches}) {
      of->add(plan.scope ? 1 + static_cast<uint64_t>(*plan.scope) : 0);
      of->add(plan.halo == schedule::Halo::kKeep ? static_cast<uint64_t>(made.window_rows()) : 0);
    }
    const auto [known, fresh] = seen.emplace(choice.digest, result.size());
    if (fresh)
      result.push_back(choice);
    else if (choice.plan.copies < result[known->second].plan.copies)
      result[known->second] = choice;
  }
  return result;
}

std::vector<std::pair<int64_t, Digest>> Courses::strips(Schedule made) const {
  Emitter nothing(config_, options_, WeightBytes::kPlacesOnly);
  LayerInfo info;
  std::vector<std::pair<int64_t, Digest>> result;
  std::set<Digest> seen;
  for (const int64_t strips : points_.strips()) {
    made.strips = strips;
    Digest digest;
    for (const int64_t size : NestLowering(task_, nest_, made, nothing, info, 0).strip_sizes())
      digest.add(static_cast<uint64_t>(size));
    if (seen.insert(digest).second) result.emplace_back(strips, digest);
  }
  return result;
}

namespace {

/// Rings whose number of slots changes nothing but what their tiles wait for. What PARAM holds decides what is fetched
/// there, and free entries of WGT decide when weights are.
bool free_ring(Operand operand) { return operand != Operand::kWeights && operand != Operand::kParams; }

/// Choices with the same fetches, fewest slots first; each alone where rings are not free.
std::vector<std::vector<PlanChoice>> classes(const std::vector<PlanChoice>& choices, Operand operand) {
  std::vector<std::vector<PlanChoice>> result;
  for (const PlanChoice& choice : choices) {
    const auto same = std::find_if(result.begin(), result.end(), [&](const auto& of) {
      return free_ring(operand) && of.front().fetches == choice.fetches;
    });
    if (same == result.end())
      result.push_back({choice});
    else
      same->push_back(choice);
  }
  for (auto& of : result) {
    std::stable_sort(of.begin(), of.end(),
                     [](const PlanChoice& a, const PlanChoice& b) { return a.plan.copies < b.plan.copies; });
  }
  return result;
}

}  // namespace

std::vector<CourseGroup> Courses::of_order(size_t order, const std::function<bool(int64_t)>& worth) const {
  const Schedule& loops = loops_[order];
  Emitter nothing(config_, options_, WeightBytes::kPlacesOnly);
  LayerInfo info;
  CourseGroup made;
  made.frame = loops;
  std::vector<std::vector<std::vector<PlanChoice>>> choices;
  for (const Operand operand : points_.operands()) {
    choices.push_back(classes(this->choices(loops, operand), operand));
    made.frame.operands.push_back({.operand = operand});
  }
  std::vector<std::pair<int64_t, Digest>> strips;
  schedule::PerOperand copies{};
  schedule::Footprint footprint;
  std::vector<CourseGroup> result;
  const auto fits = [&] {
    schedule::Capacity use;
    schedule::add_use(use, footprint, copies, schedule::input_scope(nest_, made.frame));
    return use.fits(config_);
  };
  const std::function<void(size_t, const Digest&, int64_t)> choose = [&](size_t k, const Digest& digest,
                                                                         int64_t bytes) {
    if (k == choices.size()) {
      for (const auto& [size, sizes] : strips) {
        result.push_back(made);
        result.back().frame.strips = size;
        result.back().digest = digest;
        result.back().digest.add(sizes);
      }
      return;
    }
    OperandPlan& plan = made.frame.operands[k];
    int64_t& used = copies[static_cast<size_t>(plan.operand)];
    for (std::vector<PlanChoice> of : choices[k]) {
      const int64_t fetched = bytes + of.front().bytes;  // what fetches the same brings the same
      if (of.front().bytes > 0 && !worth(fetched)) continue;
      plan = of.front().plan;
      used = plan.copies;
      if (k == 0) {  // the input, where there is one, decides the rows of a window
        footprint = schedule::footprint(nest_, *loops.intrinsic, loops.tile(), made.frame.window_rows());
        strips = this->strips(made.frame);
      }
      while (!of.empty()) {  // those that do not fit beside the fewest slots of the others before
        used = of.back().plan.copies;
        if (fits()) break;
        of.pop_back();
      }
      if (of.empty()) continue;
      used = plan.copies;
      Digest next = digest;
      next.add(of.front().fetches);
      if (of.size() == 1) {
        next.add(of.front().digest);
      } else {
        made.free.push_back({k, of});
      }
      choose(k + 1, next, fetched);
      if (of.size() > 1) made.free.pop_back();
    }
    used = 0;
  };
  choose(0, digest_of(NestLowering(task_, nest_, loops, nothing, info, 0).tiles()), 0);
  return result;
}

}  // namespace tessera::npu
