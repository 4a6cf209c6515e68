// SPDX-License-Identifier: Apache-2.0
// Geometry, capacities and cost of chains, and the search over tiles.
#include "compiler/schedule/chain.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

namespace tessera::schedule {

namespace {

constexpr int64_t kStepCycles = 24;  // what a step costs beside its work: engines wait for each other
constexpr size_t kPlansOfAKind = 2;
constexpr int64_t kInstructionCycles = 4;
constexpr int64_t kRunCycles = 2;
constexpr int64_t kDramLatency = 100;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool dense(const Nest& nest) { return nest.intrinsic == Intrinsic::kDense; }
bool weighted(const Nest& nest) { return dense(nest) || nest.intrinsic == Intrinsic::kDepthwise; }

/// Blocks of the channels between the nests.
int64_t middle_blocks(const std::vector<const Nest*>& nests) {
  return dense(*nests[0]) ? nests[0]->extent[Dim::kOc] : nests[0]->extent[Dim::kG];
}

/// Sums over the tiles of one spatial dimension.
struct Sweep {
  bool possible = true;
  int64_t tiles = 0;
  std::vector<int64_t> out, most_out;  // by nest: positions computed, in all tiles and in the largest
  std::vector<int64_t> span;           // positions of its input, padding included
  int64_t read = 0;                    // positions of the first nest's input that are fetched
  int64_t second = 0;                  // same for the last nest's output
};

Sweep sweep(const std::vector<const Nest*>& nests, int64_t size, bool rows) {
  const size_t count = nests.size();
  Sweep result;
  result.out.assign(count, 0);
  result.most_out.assign(count, 1);
  result.span.assign(count, 0);
  const int64_t extent = nests.back()->extent[rows ? Dim::kOh : Dim::kOw];
  for (int64_t begin = 0; begin < extent; begin += size) {
    const auto intervals = chain_intervals(nests, {begin, std::min(size, extent - begin)}, rows);
    if (!intervals) {
      result.possible = false;
      return result;
    }
    ++result.tiles;
    for (size_t s = 0; s < count; ++s) {
      const Nest& n = *nests[s];
      const auto [at, positions] = (*intervals)[s];
      result.out[s] += positions;
      result.most_out[s] = std::max(result.most_out[s], positions);
      if (positions == 0) continue;
      const Span span = rows ? input_span(at, positions, 0, n.extent[Dim::kKh], n.stride_h, n.dilation_h, n.pad_top)
                             : input_span(at, positions, 0, n.extent[Dim::kKw], n.stride_w, n.dilation_w, n.pad_left);
      result.span[s] += span.count;
      if (s > 0) continue;
      const int64_t low = rows ? n.input.row_begin : n.input.col_begin, high = rows ? n.input.row_end : n.input.col_end;
      for (int64_t i = 0; i < span.count; ++i) {
        const int64_t p = span.begin + i * span.step;
        result.read += p >= low && p < high ? 1 : 0;
      }
    }
  }
  return result;
}

struct Sizes {
  std::vector<Extents> tiles;
  std::vector<Footprint> footprints;
};

Sizes sizes_of(const std::vector<const Nest*>& nests, const Sweep& rows, const Sweep& cols, int64_t blocks,
               const isa::MachineConfig& config) {
  Sizes sizes;
  for (size_t s = 0; s < nests.size(); ++s) {
    const Nest& n = *nests[s];
    Extents tile;
    tile[Dim::kOh] = rows.most_out[s];
    tile[Dim::kOw] = cols.most_out[s];
    tile[Dim::kKh] = n.extent[Dim::kKh];
    tile[Dim::kKw] = n.extent[Dim::kKw];
    if (dense(n)) {
      tile[Dim::kOc] = s == 0 ? blocks : n.extent[Dim::kOc];
      tile[Dim::kIc] = s == 0 ? n.extent[Dim::kIc] : blocks;
    } else {
      tile[Dim::kG] = blocks;
    }
    sizes.tiles.push_back(tile);
    sizes.footprints.push_back(footprint(n, tile, config));
  }
  return sizes;
}

struct Use {
  std::map<isa::Space, int64_t> entries;
  bool fits(const isa::MachineConfig& config) const {
    return std::all_of(entries.begin(), entries.end(),
                       [&](const auto& e) { return e.second <= config.depth(e.first); });
  }
  std::string reason(const isa::MachineConfig& config) const {
    for (const auto& [space, n] : entries) {
      if (n > config.depth(space)) {
        return std::string(isa::kSpaceNames[static_cast<size_t>(space)]) + " needs " + std::to_string(n) +
               " entries of " + std::to_string(config.depth(space));
      }
    }
    return "";
  }
};

using Copies = std::vector<std::array<int64_t, kOperands>>;

Use used(const std::vector<const Nest*>& nests, const Sizes& sizes, const Copies& copies) {
  Use use;
  for (size_t s = 0; s < nests.size(); ++s) {
    const Footprint& f = sizes.footprints[s];
    const auto add = [&](isa::Space space, Operand operand, int64_t size) {
      use.entries[space] += size * copies[s][static_cast<size_t>(operand)];
    };
    add(nests[s]->input_space, Operand::kInput, f.input);
    add(isa::Space::kWgt, Operand::kWeights, f.weights);
    add(isa::Space::kAcc, Operand::kSums, f.sums);
    add(isa::Space::kOut, Operand::kSecond, f.second);
    add(isa::Space::kOut, Operand::kOutput, f.output);
    add(isa::Space::kParam, Operand::kParams, f.params);
    use.entries[isa::Space::kParam] += f.constants;
  }
  return use;
}

}  // namespace

std::optional<std::vector<Interval>> chain_intervals(const std::vector<const Nest*>& nests, Interval last, bool rows) {
  std::vector<Interval> result(nests.size());
  result.back() = last;
  for (size_t s = nests.size() - 1; s > 0; --s) {
    const Nest& n = *nests[s];
    if (result[s].count == 0) continue;
    const Span span =
        rows
            ? input_span(result[s].begin, result[s].count, 0, n.extent[Dim::kKh], n.stride_h, n.dilation_h, n.pad_top)
            : input_span(result[s].begin, result[s].count, 0, n.extent[Dim::kKw], n.stride_w, n.dilation_w, n.pad_left);
    if (span.step != 1) return std::nullopt;
    const int64_t extent = nests[s - 1]->extent[rows ? Dim::kOh : Dim::kOw];
    const int64_t begin = std::clamp<int64_t>(span.begin, 0, extent),
                  end = std::clamp<int64_t>(span.begin + span.count, 0, extent);
    result[s - 1] = {begin, std::max<int64_t>(0, end - begin)};
  }
  return result;
}

std::string chain_obstacle(const std::vector<const Nest*>& nests, const isa::MachineConfig& config) {
  if (nests.size() < 2) return "a chain has at least two links";
  if (config.block_in != config.block_out) return "BLOCK_IN and BLOCK_OUT differ: the vector unit cannot write INP";
  const int64_t middle = middle_blocks(nests);
  for (size_t s = 0; s < nests.size(); ++s) {
    const Nest& n = *nests[s];
    const bool first = s == 0, last = s + 1 == nests.size();
    if (n.raw) return "a link with int32 results";
    if (n.factor.present) return "a product of two activations";
    if (n.columns > 1) return "several columns in one pixel";
    if (n.input.element_bytes != 1 || n.input.broadcasts()) return "an input that is broadcast or int32";
    if (!last && n.second.present) return "a second operand before the last link";
    if (dense(n)) {
      if (!first && !last) return "a product in the middle";
      if (n.extent[Dim::kG] != 1) return "a product of groups";
      if (!first && n.layout != "nhwc") return "a folded input in the middle";
      if ((first ? n.extent[Dim::kOc] : n.extent[Dim::kIc]) != middle) return "channels that do not follow each other";
    } else if (n.extent[Dim::kG] != middle || n.out_channels.chunk != config.block_out) {
      return "channels that do not follow each other";
    }
    if (n.images != nests[0]->images) return "another number of images";
  }
  return "";
}

namespace {

/// A plan without its schedules.
struct Judged {
  ChainPlan plan;
  Sizes sizes;
  Copies copies;
};

std::optional<Judged> judge(const std::vector<const Nest*>& nests, const ChainTile& tile, const Sweep& rows,
                            const Sweep& cols, const isa::MachineConfig& config, std::string* reason) {
  const size_t count = nests.size();
  const Nest &head = *nests[0], &tail = *nests[count - 1];
  const int64_t middle = middle_blocks(nests), chunks = ceil_div(middle, tile.blocks);
  const int64_t images = head.extent[Dim::kN], tiles = images * rows.tiles * cols.tiles, steps = tiles * chunks;
  const Sizes sizes = sizes_of(nests, rows, cols, tile.blocks, config);

  // Two of everything that two steps touch; the sums of a closing product live for a whole tile.
  Copies copies(count);
  const int64_t pair = std::min<int64_t>(steps, 2);
  std::vector<int64_t> distinct(count, chunks);  // tiles of weights and parameters
  for (size_t s = 0; s < count; ++s) {
    const Footprint& f = sizes.footprints[s];
    auto& c = copies[s];
    c.fill(0);
    const bool first = s == 0, last = s + 1 == count, closing = last && dense(*nests[s]) && !first;
    c[static_cast<size_t>(Operand::kInput)] = first && dense(*nests[s]) ? std::min<int64_t>(tiles, 2) : pair;
    if (f.sums > 0) c[static_cast<size_t>(Operand::kSums)] = closing ? std::min<int64_t>(tiles, 2) : pair;
    if (f.weights > 0) c[static_cast<size_t>(Operand::kWeights)] = std::min<int64_t>(chunks, 2);
    if (f.params > 0)
      c[static_cast<size_t>(Operand::kParams)] = closing || !nests[s]->per_channel ? 1 : std::min<int64_t>(chunks, 2);
    if (last) c[static_cast<size_t>(Operand::kOutput)] = closing ? std::min<int64_t>(tiles, 2) : pair;
    if (last && f.second > 0) c[static_cast<size_t>(Operand::kSecond)] = closing ? std::min<int64_t>(tiles, 2) : pair;
  }
  if (!used(nests, sizes, copies).fits(config)) {
    // One set of sums: the next tile's products wait for the stage.
    if (dense(tail)) copies[count - 1][static_cast<size_t>(Operand::kSums)] = 1;
    if (const Use use = used(nests, sizes, copies); !use.fits(config)) {
      if (reason != nullptr) *reason = use.reason(config);
      return std::nullopt;
    }
  }
  const bool turns = dense(tail) && tiles > 1 && copies[count - 1][static_cast<size_t>(Operand::kSums)] == 1;
  const auto grow = [&](size_t s, Operand operand, int64_t target) {
    int64_t& c = copies[s][static_cast<size_t>(operand)];
    const int64_t before = c;
    if (target <= c) return c == target;
    c = target;
    if (used(nests, sizes, copies).fits(config)) return true;
    c = before;
    return false;
  };
  // Weights and parameters stay when they are used again, else are fetched a few steps ahead.
  for (const Operand operand : {Operand::kWeights, Operand::kParams}) {
    for (size_t s = count; s-- > 0;) {
      const int64_t size = operand == Operand::kWeights ? sizes.footprints[s].weights : sizes.footprints[s].params;
      const bool single =
          operand == Operand::kParams && (!nests[s]->per_channel || (s + 1 == count && s > 0 && dense(*nests[s])));
      if (size == 0 || single) continue;
      if (tiles > 1 && grow(s, operand, chunks)) continue;
      for (int64_t more = 3; more <= std::min<int64_t>(chunks, 4); ++more) grow(s, operand, more);
    }
  }
  grow(0, Operand::kInput, std::min<int64_t>(dense(head) ? tiles : steps, 3));

  // Work of the engines, over all steps.
  ChainPlan plan;
  plan.tile = tile;
  plan.steps = steps;
  int64_t gemm = 0, alu = 0, load = 0, instructions = 0;
  for (size_t s = 0; s < count; ++s) {
    const Nest& n = *nests[s];
    const Footprint& f = sizes.footprints[s];
    const int64_t pixels = images * rows.out[s] * cols.out[s], taps = n.extent[Dim::kKh] * n.extent[Dim::kKw];
    const int64_t blocks = dense(n) ? n.extent[Dim::kOc] : middle;
    int64_t products = 0, issues = pixels * blocks;
    if (dense(n)) {
      products = pixels * n.extent[Dim::kOc] * n.extent[Dim::kIc] * taps * n.planes;
    } else if (n.intrinsic == Intrinsic::kDepthwise) {
      const int64_t each = pixels * middle * taps, raster = images * rows.span[s] * cols.span[s] * middle *
                                                            depthwise_passes(n, n.extent[Dim::kKh], n.extent[Dim::kKw]);
      products = (n.dilation_h == 1 && n.dilation_w == 1 ? std::min(each, raster) : each) * n.planes;
    } else if (n.intrinsic == Intrinsic::kReduce) {
      issues *= taps;
    }
    const bool closing = s + 1 == count && s > 0 && dense(n);
    gemm += products + (weighted(n) ? steps * kInstructionCycles : 0);
    alu += issues + (closing ? tiles : steps) * 2 * kInstructionCycles;
    instructions += (weighted(n) ? steps : 0) + (closing ? tiles : steps);
    const auto fetched = [&](Operand operand, int64_t different) {
      return copies[s][static_cast<size_t>(operand)] >= different ? different : different * tiles;
    };
    if (f.weights > 0) {
      const int64_t times = fetched(Operand::kWeights, chunks);
      load += times * f.weights * ceil_div(config.wgt_entry_bytes(), config.axi_bytes);
      instructions += times;
    }
    if (f.params > 0) {
      const int64_t times = fetched(Operand::kParams, closing || !n.per_channel ? 1 : chunks);
      load += times * (f.params * ceil_div(config.param_entry_bytes(), config.axi_bytes) + kRunCycles);
      instructions += times;
    }
  }
  const auto moved = [&](const ChannelMap& map, const Access& access, int64_t positions_h, int64_t positions_w,
                         int64_t width, bool whole) {
    const int64_t bytes = images * config.batch * positions_h * positions_w * map.total * access.element_bytes;
    const int64_t run = run_bytes(map, access, whole ? map.chunks() : tile.blocks, map.blocks(), width, config.batch);
    return ceil_div(bytes, config.axi_bytes) + ceil_div(bytes, std::max<int64_t>(run, 1)) * kRunCycles;
  };
  load += moved(head.in_channels, head.input, rows.read, cols.read,
                cols.tiles == 1 ? cols.read * sizes.tiles[0][Dim::kOh] : cols.read / cols.tiles,
                dense(head) || chunks == 1);
  const int64_t out_pixels_h = tail.extent[Dim::kOh], out_pixels_w = tail.extent[Dim::kOw];
  const int64_t width = cols.tiles == 1 ? out_pixels_w * tile.oh : tile.ow;
  const int64_t store =
      moved(tail.out_channels, tail.output, out_pixels_h, out_pixels_w, width, dense(tail) || chunks == 1);
  if (tail.second.present)
    load += moved(tail.out_channels, tail.second, out_pixels_h, out_pixels_w, width, dense(tail) || chunks == 1);
  instructions += (dense(head) ? tiles : steps) + (dense(tail) ? tiles : steps) * (tail.second.present ? 2 : 1);
  const int64_t bus = load + store + instructions * ceil_div(isa::kInstructionBytes, config.axi_bytes);
  int64_t busiest = std::max({gemm + steps * kStepCycles, alu + steps * kStepCycles, bus});
  if (turns) busiest += images * rows.out[count - 1] * cols.out[count - 1] * tail.extent[Dim::kOc];
  plan.cycles = busiest + static_cast<int64_t>(count) * std::max(gemm, alu) / std::max<int64_t>(steps, 1) +
                load / std::max<int64_t>(tiles, 1) / 2 + 2 * kDramLatency;
  return Judged{std::move(plan), sizes, std::move(copies)};
}

ChainPlan with_schedules(const std::vector<const Nest*>& nests, const Judged& judged) {
  ChainPlan plan = judged.plan;
  const Sizes& sizes = judged.sizes;
  for (size_t s = 0; s < nests.size(); ++s) {
    const Nest& n = *nests[s];
    Schedule schedule;
    schedule.input_layout = n.layout;
    for (int d = 0; d < kDims; ++d) {
      const auto dim = static_cast<Dim>(d);
      if (sizes.tiles[s][dim] > 1) schedule.levels.push_back({dim, sizes.tiles[s][dim], LevelKind::kHwloop});
    }
    const Footprint& f = sizes.footprints[s];
    const auto add = [&](Operand operand, isa::Space space, int64_t size, const char* layout) {
      const int64_t c = judged.copies[s][static_cast<size_t>(operand)];
      if (size > 0 && c > 0)
        schedule.operands.push_back({operand, space, 0, static_cast<int>(c), Halo::kReload, layout});
    };
    add(Operand::kInput, n.input_space, f.input, "n,h,w,g,ic");
    add(Operand::kWeights, isa::Space::kWgt, f.weights, dense(n) ? "g,oc,kh,kw,ic" : "kh,kw,g");
    add(Operand::kSums, isa::Space::kAcc, f.sums, "n,oh,ow,g,oc");
    add(Operand::kSecond, isa::Space::kOut, f.second, "n,oh,ow,g,oc");
    add(Operand::kOutput, isa::Space::kOut, f.output, "n,oh,ow,g,oc");
    add(Operand::kParams, isa::Space::kParam, f.params, "g,oc");
    plan.schedules.push_back(std::move(schedule));
  }
  return plan;
}

}  // namespace

std::optional<ChainPlan> evaluate_chain(const std::vector<const Nest*>& nests, const ChainTile& tile,
                                        const isa::MachineConfig& config, std::string* reason) {
  const auto refuse = [&](std::string why) -> std::optional<ChainPlan> {
    if (reason != nullptr) *reason = std::move(why);
    return std::nullopt;
  };
  if (std::string why = chain_obstacle(nests, config); !why.empty()) return refuse(std::move(why));
  const Nest& tail = *nests.back();
  if (tile.oh < 1 || tile.ow < 1 || tile.blocks < 1 || tile.oh > tail.extent[Dim::kOh] ||
      tile.ow > tail.extent[Dim::kOw] || tile.blocks > middle_blocks(nests)) {
    return refuse("the tile exceeds the output or the channels between");
  }
  const Sweep rows = sweep(nests, tile.oh, true), cols = sweep(nests, tile.ow, false);
  if (!rows.possible || !cols.possible) return refuse("a link skips positions of its input");
  const auto judged = judge(nests, tile, rows, cols, config, reason);
  if (!judged) return std::nullopt;
  return with_schedules(nests, *judged);
}

std::vector<ChainPlan> generate_chains(const std::vector<const Nest*>& nests, const isa::MachineConfig& config,
                                       size_t count) {
  if (!chain_obstacle(nests, config).empty()) return {};
  const Nest& tail = *nests.back();
  const int64_t middle = middle_blocks(nests);
  std::map<int64_t, Sweep> all_rows, all_cols;
  for (const int64_t oh : candidate_extents(tail.extent[Dim::kOh], 1.15, tail.extent[Dim::kOh]))
    all_rows[oh] = sweep(nests, oh, true);
  for (const int64_t ow : candidate_extents(tail.extent[Dim::kOw], 1.3, tail.extent[Dim::kOw]))
    all_cols[ow] = sweep(nests, ow, false);
  const auto better = [](const Judged& a, const Judged& b) {
    return a.plan.cycles < b.plan.cycles || (a.plan.cycles == b.plan.cycles && a.plan.steps < b.plan.steps);
  };
  std::map<int64_t, std::vector<Judged>> best;  // by blocks
  for (const auto& [oh, rows] : all_rows) {
    for (const auto& [ow, cols] : all_cols) {
      if (!rows.possible || !cols.possible) continue;
      for (const int64_t blocks : candidate_extents(middle, 1.25, middle)) {
        auto judged = judge(nests, {oh, ow, blocks}, rows, cols, config, nullptr);
        if (!judged) continue;
        auto& kind = best[blocks];
        kind.insert(std::upper_bound(kind.begin(), kind.end(), *judged, better), std::move(*judged));
        if (kind.size() > kPlansOfAKind) kind.pop_back();
      }
    }
  }
  std::vector<Judged> all;
  for (auto& [blocks, kind] : best) std::move(kind.begin(), kind.end(), std::back_inserter(all));
  std::stable_sort(all.begin(), all.end(), better);
  std::vector<ChainPlan> plans;
  for (size_t i = 0; i < std::min(count, all.size()); ++i) plans.push_back(with_schedules(nests, all[i]));
  return plans;
}

}  // namespace tessera::schedule
