// SPDX-License-Identifier: Apache-2.0
// Geometry of chains, and the plan of a tile: what each nest computes, and the copies that fit.
#include "compiler/schedule/chain.h"

#include <algorithm>
#include <array>

#include "compiler/schedule/counts.h"

namespace tessera::schedule {

int64_t blocks_in(const Nest& nest) { return nest.extent[dense(nest) ? Dim::kIc : Dim::kG]; }

int64_t blocks_out(const Nest& nest) {
  return dense(nest) ? nest.extent[Dim::kOc] / nest.layout.columns : nest.extent[Dim::kG];
}

int64_t middle_blocks(const std::vector<const Nest*>& nests) { return blocks_out(*nests[0]); }

bool product_between(const std::vector<const Nest*>& nests) {
  return nests.size() > 2 && std::any_of(nests.begin() + 1, nests.end() - 1, [](const Nest* n) { return dense(*n); });
}

bool takes_all_channels(const std::vector<const Nest*>& nests) {
  const auto walks_rows = [](const Nest* nest) { return nest->computation == Computation::kRows; };
  return product_between(nests) || std::any_of(nests.begin(), nests.end(), walks_rows);
}

bool may_hold_input(const std::vector<const Nest*>& nests, const ChainTile& tile) {
  const Nest& head = *nests[0];
  Extents whole;
  whole[Dim::kG] = head.extent[Dim::kG];
  whole[Dim::kKh] = head.extent[Dim::kKh];
  whole[Dim::kKw] = head.extent[Dim::kKw];
  return !dense(head) && tile.blocks < middle_blocks(nests) &&
         core_intrinsic(head.computation).tile_obstacle(head, whole).empty();
}

bool may_keep_rows(const std::vector<const Nest*>& nests) {
  return std::any_of(nests.begin() + 1, nests.end(), [](const Nest* nest) {
    return (nest->extent[Dim::kKh] - 1) * nest->dilation_h >= nest->stride_h && nest->extent[Dim::kOh] > 1;
  });
}

Interval pixels_of(const Nest& nest, const Interval& columns) {
  const int64_t each = nest.layout.columns;
  if (each == 1 || columns.count == 0) return columns;
  const int64_t begin = columns.begin / each;
  return {begin, ceil_div(columns.begin + columns.count, each) - begin};
}

std::optional<std::vector<Interval>> chain_intervals(const std::vector<const Nest*>& nests, Interval last, bool rows,
                                                     std::vector<int64_t>* made) {
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
    const int64_t extent = rows ? nests[s - 1]->extent[Dim::kOh] : width_of(*nests[s - 1]);
    const int64_t begin = std::clamp<int64_t>(span.begin, 0, extent),
                  end = std::clamp<int64_t>(span.begin + span.count, 0, extent);
    Interval& before = result[s - 1];
    before = {begin, std::max<int64_t>(0, end - begin)};
    if (made == nullptr || before.count == 0) continue;
    int64_t& known = (*made)[s - 1];
    before.kept = std::clamp<int64_t>(known - begin, 0, before.count);
    before.begin += before.kept;
    before.count -= before.kept;
    known = std::max(known, end);
  }
  return result;
}

namespace {

/// Why the s-th nest cannot be a link where it stands.
std::string link_obstacle(const std::vector<const Nest*>& nests, size_t s, const isa::MachineConfig& config) {
  const Nest& n = *nests[s];
  const bool first = s == 0, last = s + 1 == nests.size();
  if (n.raw) return "a link with int32 results";
  if (n.factor.present && config.batch > 1) return "a product of two activations whose rows share an entry";
  if (n.layout.columns > 1 &&
      (!first || !n.columns_inside || n.out_channels.total % (n.layout.columns * n.out_channels.lanes) != 0))
    return "several columns in one pixel";
  if (n.input.element_bytes != 1 || n.input.broadcasts()) return "an input that is broadcast or int32";
  if (!last && n.second.present) return "a second operand before the last link";
  if (n.images != nests[0]->images) return "another number of images";
  const char* const apart = "channels that do not follow each other";
  if (!dense(n) && n.out_channels.chunk != config.block_out) return apart;
  if (dense(n) && n.extent[Dim::kG] != 1) return "a product of groups";
  if (dense(n) && !first && n.layout != InputLayout{}) return "a folded input in the middle";
  return first || blocks_in(n) == blocks_out(*nests[s - 1]) ? "" : apart;
}

}  // namespace

std::string chain_obstacle(const std::vector<const Nest*>& nests, const isa::MachineConfig& config) {
  if (nests.size() < 2) return "a chain has at least two links";
  if (config.block_in != config.block_out) return "BLOCK_IN and BLOCK_OUT differ: the vector unit cannot write INP";
  for (size_t s = 0; s < nests.size(); ++s) {
    if (std::string why = link_obstacle(nests, s, config); !why.empty()) return why;
  }
  return "";
}

namespace {

Sweep sweep(const std::vector<const Nest*>& nests, int64_t size, bool rows, bool keeps) {
  const size_t count = nests.size();
  Sweep result;
  result.out.assign(count, 0);
  result.most_out.assign(count, 1);
  result.span.assign(count, 0);
  result.kept.assign(count, 0);
  result.most_kept.assign(count, 0);
  std::vector<int64_t> made(count, 0);
  const int64_t extent = nests.back()->extent[rows ? Dim::kOh : Dim::kOw];
  for (int64_t begin = 0; begin < extent; begin += size) {
    const auto intervals =
        chain_intervals(nests, {begin, std::min(size, extent - begin)}, rows, keeps ? &made : nullptr);
    if (!intervals) {
      result.possible = false;
      return result;
    }
    ++result.tiles;
    for (size_t s = 0; s < count; ++s) {
      const Nest& n = *nests[s];
      const auto [at, positions, kept] = rows ? (*intervals)[s] : pixels_of(n, (*intervals)[s]);
      result.out[s] += positions;
      result.kept[s] += kept;
      result.most_kept[s] = std::max(result.most_kept[s], kept);
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

/// The largest tile of each nest, and the copies of its operands.
struct Layout {
  std::vector<Extents> tiles;
  std::vector<Footprint> footprints;
  std::vector<PerOperand> copies;
  std::vector<int64_t> kept;  // by nest: entries of OUT

  int64_t& of(size_t nest, Operand operand) { return copies[nest][static_cast<size_t>(operand)]; }
};

Layout layout_of(const std::vector<const Nest*>& nests, const Sweep& rows, const Sweep& cols, const ChainTile& size) {
  const int64_t blocks = size.blocks;
  const bool whole = blocks == middle_blocks(nests);
  Layout layout;
  layout.copies.resize(nests.size());
  for (size_t s = 0; s < nests.size(); ++s) {
    const Nest& n = *nests[s];
    Extents tile;
    tile[Dim::kOh] = rows.most_out[s];
    tile[Dim::kOw] = cols.most_out[s];
    tile[Dim::kKh] = n.extent[Dim::kKh];
    tile[Dim::kKw] = n.extent[Dim::kKw];
    if (dense(n)) {
      tile[Dim::kOc] = s == 0 ? blocks * n.layout.columns : n.extent[Dim::kOc];
      tile[Dim::kIc] = s == 0 || whole ? n.extent[Dim::kIc] : blocks;
    } else {
      tile[Dim::kG] = whole ? n.extent[Dim::kG] : blocks;
    }
    layout.tiles.push_back(tile);
    layout.footprints.push_back(footprint(n, core_intrinsic(n.computation), tile));
    if (s == 0 && size.whole_input) {
      tile[Dim::kG] = n.extent[Dim::kG];
      layout.footprints[0].input = footprint(n, core_intrinsic(n.computation), tile).input;
    }
    const auto width = [](const Nest& next, int64_t columns) {
      return input_span(0, columns, 0, next.extent[Dim::kKw], next.stride_w, next.dilation_w, 0).count;
    };
    // Of all blocks, side by side or in the parts that a step takes.
    const auto row_of = [&](const Nest& next, int64_t columns) {
      const int64_t cols = width(next, columns), all = blocks_in(next), part = whole ? all : blocks;
      return next.row_pairs ? planar_strides(next, cols, part).row * ceil_div(all, part) : cols * all;
    };
    const bool last = s + 1 == nests.size();
    layout.kept.push_back(last ? 0 : rows.most_kept[s] * row_of(*nests[s + 1], cols.most_out[s + 1]));
  }
  return layout;
}

Capacity used(const std::vector<const Nest*>& nests, const Layout& layout) {
  Capacity use;
  for (size_t s = 0; s < nests.size(); ++s) {
    add_use(use, layout.footprints[s], layout.copies[s], nests[s]->input_space);
    use.entries[static_cast<size_t>(isa::Space::kOut)] += layout.kept[s];
  }
  return use;
}

/// Two of everything that two steps touch; the sums of a closing product live for a whole tile, and what the vector
/// unit finds of rows it has used when it walks the next ones.
void give_two(Layout& layout, const std::vector<const Nest*>& nests, int64_t tiles, int64_t chunks, bool whole_input) {
  const int64_t pair = std::min<int64_t>(tiles * chunks, 2), tile_pair = std::min<int64_t>(tiles, 2),
                chunk_pair = std::min<int64_t>(chunks, 2);
  for (size_t s = 0; s < nests.size(); ++s) {
    const Footprint& f = layout.footprints[s];
    const bool first = s == 0, last = s + 1 == nests.size(), closing = last && dense(*nests[s]) && !first;
    layout.of(s, Operand::kInput) = first && (dense(*nests[s]) || whole_input) ? tile_pair : pair;
    const bool rows = nests[s]->computation == Computation::kRows;
    if (f.sums > 0) layout.of(s, Operand::kSums) = rows ? 1 : closing ? tile_pair : pair;
    if (f.weights > 0) layout.of(s, Operand::kWeights) = nests[s]->factor.present ? pair : chunk_pair;
    if (f.params > 0) layout.of(s, Operand::kParams) = closing || !nests[s]->per_channel ? 1 : chunk_pair;
    if (last) layout.of(s, Operand::kOutput) = closing ? tile_pair : pair;
    if (last && f.second > 0) layout.of(s, Operand::kSecond) = closing ? tile_pair : pair;
  }
}

/// Where two do not fit, one of what a tile has at its ends: of sums, and the next tile's products wait for the stage;
/// in steps of all channels also of what the chain takes and makes, whose transfers hide behind the other links.
void give_one(Layout& layout, const std::vector<const Nest*>& nests, const isa::MachineConfig& config) {
  const size_t last = nests.size() - 1;
  const auto give = [&](size_t s, Operand operand) {
    if (!used(nests, layout).fits(config)) layout.of(s, operand) = 1;
  };
  if (dense(*nests[last])) give(last, Operand::kSums);
  if (!takes_all_channels(nests)) return;
  give(0, Operand::kInput);
  give(last, Operand::kOutput);
}

/// Weights and parameters stay when they are used again, else are fetched a few steps ahead, as far as they fit.
void give_more(Layout& layout, const std::vector<const Nest*>& nests, int64_t tiles, int64_t chunks, bool whole_input,
               int64_t weight_copies, const isa::MachineConfig& config) {
  const auto grow = [&](size_t s, Operand operand, int64_t target) {
    int64_t& count = layout.of(s, operand);
    const int64_t before = count;
    if (target <= count) return count == target;
    count = target;
    if (used(nests, layout).fits(config)) return true;
    count = before;
    return false;
  };
  for (const Operand operand : {Operand::kWeights, Operand::kParams}) {
    for (size_t s = nests.size(); s-- > 0;) {
      const Footprint& f = layout.footprints[s];
      const bool closing = s + 1 == nests.size() && s > 0 && dense(*nests[s]);
      const bool single = operand == Operand::kParams && (!nests[s]->per_channel || closing);
      if ((operand == Operand::kWeights ? f.weights : f.params) == 0 || single) continue;
      if (tiles > 1 && grow(s, operand, chunks)) continue;
      const int64_t most = operand == Operand::kWeights ? weight_copies : kWeightCopies;
      for (int64_t more = 3; more <= std::min(chunks, most); ++more) grow(s, operand, more);
    }
  }
  grow(0, Operand::kInput, std::min<int64_t>(dense(*nests[0]) || whole_input ? tiles : tiles * chunks, 3));
}

/// The next number of copies that is offered, towards the compiler's.
int64_t nearer_copies(int64_t copies) {
  if (copies < kWeightCopies) return copies + 1;
  return *std::prev(std::lower_bound(kChainCopies.begin(), kChainCopies.end(), copies));
}

Schedule schedule_of(const Nest& nest, const Extents& tile, const Footprint& f, const PerOperand& copies) {
  Schedule schedule;
  schedule.intrinsic = &core_intrinsic(nest.computation);
  schedule.input_layout = nest.layout;
  for (int d = 0; d < kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    if (tile[dim] > 1) schedule.levels.push_back({dim, tile[dim], LevelKind::kHwloop});
  }
  const PerOperand sizes = {f.input, f.weights, f.sums, f.second, f.output, f.params};
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0 || copies[i] == 0) continue;
    OperandPlan plan;
    plan.operand = static_cast<Operand>(i);
    plan.attach = 0;
    plan.copies = static_cast<int>(copies[i]);
    schedule.operands.push_back(plan);
  }
  return schedule;
}

}  // namespace

std::shared_ptr<const Sweep> ChainPlanner::sweep_of(int64_t size, bool rows, bool keeps) {
  std::shared_ptr<const Sweep>& known = (keeps ? kept_rows_ : rows ? rows_ : cols_)[size];
  if (!known) known = std::make_shared<const Sweep>(sweep(nests_, size, rows, keeps));
  return known;
}

std::optional<ChainPlan> ChainPlanner::plan(const ChainTile& tile, std::string* reason) {
  const auto refuse = [&](std::string why) {
    if (reason != nullptr) *reason = std::move(why);
    return std::nullopt;
  };
  const Nest& tail = *nests_.back();
  const int64_t middle = middle_blocks(nests_);
  if (tile.oh < 1 || tile.ow < 1 || tile.blocks < 1 || tile.oh > tail.extent[Dim::kOh] ||
      tile.ow > tail.extent[Dim::kOw] || tile.blocks > middle)
    return refuse("the tile exceeds the output or the channels between");
  if (tile.copies < kLeastWeightCopies) return refuse("weights have two copies at least");
  if (tile.blocks < middle && takes_all_channels(nests_))
    return refuse("a walk over rows, or a product between others, needs all channels");
  if (tile.blocks > 1 && nests_[0]->layout.columns > 1)
    return refuse("the first link has several columns in one pixel, whose results leave it block by block");
  ChainPlan plan;
  plan.tile = tile;
  plan.rows = sweep_of(tile.oh, true, tile.keeps_rows);
  plan.cols = sweep_of(tile.ow, false, false);
  if (!plan.rows->possible || !plan.cols->possible) return refuse("a link skips positions of its input");
  const int64_t chunks = ceil_div(middle, tile.blocks),
                tiles = nests_[0]->extent[Dim::kN] * plan.rows->tiles * plan.cols->tiles;
  plan.steps = tiles * chunks;
  plan.chunks = chunks;
  if (tile.whole_input && !may_hold_input(nests_, tile))
    return refuse("the first link takes its input in no parts, or these are whole");
  const auto& shared = plan.rows->most_kept;
  if (tile.keeps_rows && std::all_of(shared.begin(), shared.end(), [](int64_t rows) { return rows == 0; }))
    return refuse("no two tiles share rows that could be kept");
  Layout layout = layout_of(nests_, *plan.rows, *plan.cols, tile);
  give_two(layout, nests_, tiles, chunks, tile.whole_input);
  give_one(layout, nests_, config_);
  if (std::string why = used(nests_, layout).reason(config_); !why.empty()) return refuse(std::move(why));
  const auto filled = [&](int64_t copies) {
    Layout full = layout;
    give_more(full, nests_, tiles, chunks, tile.whole_input, copies, config_);
    return full;
  };
  Layout full = filled(tile.copies);
  if (tile.copies != kWeightCopies) {
    const int64_t other = nearer_copies(tile.copies);
    if (filled(other).copies == full.copies)
      return refuse(std::to_string(tile.copies) + " copies of weights are the same as " + std::to_string(other) +
                    ": no link needs and holds " + std::to_string(std::min(other, tile.copies) + 1));
  }
  layout = std::move(full);
  for (size_t s = 0; s < nests_.size(); ++s)
    plan.schedules.push_back(schedule_of(*nests_[s], layout.tiles[s], layout.footprints[s], layout.copies[s]));
  plan.kept = std::move(layout.kept);
  for (const size_t s : {size_t{0}, nests_.size() - 1})
    plan.schedules[s].strips = may_strip(*nests_[s]) ? tile.strips : 0;
  return plan;
}

}  // namespace tessera::schedule
