// SPDX-License-Identifier: Apache-2.0
// Judging and generating schedules. A nest and a machine enter; a legal schedule of least estimated cycles leaves. The
// estimate counts what each engine must do and which engines a single copy of an operand chains together; it is coarse,
// but it sees the three things that matter: bytes that are fetched again, lanes that idle, and engines that cannot
// overlap. The search is exhaustive over thinned candidates of every tile extent, so that the same input gives the same
// schedule.
#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.h"
#include "compiler/schedule/schedule.h"

namespace tessera::schedule {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t run_bytes(const ChannelMap& map, const Access& access, int64_t chunks, int64_t blocks, int64_t pixels,
                  int64_t batch) {
  int64_t channels = std::min(blocks * map.lanes, map.chunk);
  if (map.chunk % map.lanes == 0 && blocks == map.blocks()) channels = std::min(channels * chunks, map.total);
  if (batch > 1) channels = std::min(channels, map.lanes);
  if (access.segment_channels != 0) channels = std::min(channels, access.segment_channels);
  const int64_t bytes = channels * access.element_bytes;
  const bool whole = bytes == access.pitch_w && channels % map.lanes == 0 && batch == 1;
  return whole ? bytes * pixels : bytes;
}

std::vector<int64_t> candidate_extents(int64_t extent, double ratio, int64_t limit) {
  std::vector<int64_t> result;
  double last = std::numeric_limits<double>::infinity();
  for (int64_t k = 1; k <= extent;) {
    const int64_t value = ceil_div(extent, k);
    if (value <= limit && (result.empty() || value * ratio <= last || value == 1)) {
      result.push_back(value);
      last = static_cast<double>(value);
    }
    if (value == 1) break;
    k = std::max(k + 1, ceil_div(extent, value - 1));  // the first k with another value
    if (static_cast<double>(ceil_div(extent, k)) * ratio > last && last < 1e18) {
      k = std::max(k, ceil_div(extent, std::max<int64_t>(1, static_cast<int64_t>(last / ratio))));
    }
  }
  if (result.empty() || result.back() != 1) result.push_back(1);
  return result;
}

namespace {

constexpr int64_t kRunOverhead = 2;           // cycles of LOAD and STORE for one run beside its bytes
constexpr int64_t kInstructionOverhead = 24;  // cycles an engine spends on an instruction beside its work
constexpr int64_t kDramLatency = 100;
constexpr int64_t kInstructionsPerTile = 5;  // they are fetched through the same port
constexpr int64_t kLoopLimit = 4095;
constexpr int64_t kStrideLimit = 8191;
constexpr size_t kCandidatesOfAKind = 2;
constexpr int kMostCopies = 4;  // of an operand that does not become resident

/// Temporal levels, outermost first.
struct Order {
  std::array<Dim, 16> dim;
  std::array<int64_t, 16> factor;
  int count = 0;
  int kept = -1;  // the level of oh whose tiles' input stands in one window
};

using Copies = std::array<int64_t, kOperands>;

/// Calls visit(factor, indexed) for the loops around a tile of the operand, innermost first.
template <typename Visit>
void each_loop(const Nest& nest, Operand operand, const Order& order, Visit&& visit) {
  for (int i = order.count; i-- > 0;) {
    if (order.factor[i] == 1 || (operand == Operand::kInput && i == order.kept)) continue;
    visit(order.factor[i], indexes(nest, operand, order.dim[i]));
  }
}

/// Different tiles of the operand.
int64_t distinct_tiles(const Nest& nest, Operand operand, const Order& order) {
  int64_t tiles = 1;
  each_loop(nest, operand, order, [&](int64_t factor, bool indexed) { tiles *= indexed ? factor : 1; });
  return tiles;
}

/// Fetches of the operand when `copies` of its tiles live at once: inner loops that come back to no more tiles than
/// that fetch each of them once.
int64_t fetches(const Nest& nest, Operand operand, const Order& order, int64_t copies) {
  int64_t count = 1;
  bool stays = true;
  each_loop(nest, operand, order, [&](int64_t factor, bool indexed) {
    if (indexed || !stays) count *= factor;
    stays = stays && count <= copies;
  });
  return count;
}

/// Numbers of copies beyond one that save fetches, largest first.
std::vector<int64_t> useful_copies(const Nest& nest, Operand operand, const Order& order) {
  std::vector<int64_t> result;
  int64_t tiles = 1;
  each_loop(nest, operand, order, [&](int64_t factor, bool indexed) {
    if (indexed)
      tiles *= factor;
    else if (tiles > 1 && (result.empty() || result.back() < tiles))
      result.push_back(tiles);
  });
  std::reverse(result.begin(), result.end());
  return result;
}

struct Capacity {
  int64_t inp, wgt, acc, out, param;
};

Capacity used(const Nest& nest, const Footprint& f, const Copies& copies) {
  const auto count = [&](Operand operand) { return copies[static_cast<size_t>(operand)]; };
  Capacity use{0, 0, 0, 0, 0};
  const int64_t input = f.input * count(Operand::kInput);
  (nest.input_space == isa::Space::kInp ? use.inp : nest.input_space == isa::Space::kOut ? use.out : use.acc) += input;
  use.wgt = f.weights * count(Operand::kWeights);
  use.acc += f.sums * count(Operand::kSums);
  use.out += f.output * count(Operand::kOutput) + f.second * count(Operand::kSecond);
  use.param = f.params * count(Operand::kParams) + f.constants;
  return use;
}

bool fits(const Capacity& use, const isa::MachineConfig& config) {
  return use.inp <= config.inp_depth() && use.wgt <= config.wgt_depth() && use.acc <= config.acc_depth() &&
         use.out <= config.out_depth() && use.param <= config.param_depth();
}

std::string capacity_reason(const Capacity& use, const isa::MachineConfig& config) {
  const std::pair<const char*, std::pair<int64_t, int64_t>> rows[] = {{"inp", {use.inp, config.inp_depth()}},
                                                                      {"wgt", {use.wgt, config.wgt_depth()}},
                                                                      {"acc", {use.acc, config.acc_depth()}},
                                                                      {"out", {use.out, config.out_depth()}},
                                                                      {"param", {use.param, config.param_depth()}}};
  for (const auto& [name, sizes] : rows) {
    if (sizes.first > sizes.second) {
      return std::string(name) + " needs " + std::to_string(sizes.first) + " entries of " +
             std::to_string(sizes.second);
    }
  }
  return "";
}

/// Rules of an instruction that no split can mend.
bool encodable(const Nest& nest, const Extents& tile) {
  if (nest.intrinsic != Intrinsic::kReduce) return true;
  const Span cols = input_span(0, tile[Dim::kOw], 0, tile[Dim::kKw], nest.stride_w, nest.dilation_w, 0);
  const Span rows = input_span(0, tile[Dim::kOh], 0, tile[Dim::kKh], nest.stride_h, nest.dilation_h, 0);
  return tile[Dim::kKh] <= kLoopLimit && tile[Dim::kKw] <= kLoopLimit &&
         rows.dilation * cols.count * tile[Dim::kG] <= kStrideLimit && cols.dilation * tile[Dim::kG] <= kStrideLimit;
}

/// Copies beyond one, as far as they fit: all tiles if they then stay, else a few to fetch ahead.
Copies choose_copies(const Nest& nest, const isa::MachineConfig& config, const Footprint& f, const Order& order,
                     bool single) {
  Copies copies;
  copies.fill(1);
  if (single) return copies;
  std::array<int64_t, kOperands> distinct{};
  for (int i = 0; i < kOperands; ++i) distinct[i] = distinct_tiles(nest, static_cast<Operand>(i), order);
  const auto grow = [&](Operand operand, int64_t target) {
    int64_t& count = copies[static_cast<size_t>(operand)];
    const int64_t before = count;
    count = std::min(target, distinct[static_cast<size_t>(operand)]);
    if (count <= before || !fits(used(nest, f, copies), config)) count = before;
    return count >= target;
  };
  // Two of everything first, then residence, then depth.
  for (const Operand operand :
       {Operand::kInput, Operand::kWeights, Operand::kSums, Operand::kOutput, Operand::kSecond, Operand::kParams}) {
    grow(operand, 2);
  }
  for (const Operand operand : {Operand::kWeights, Operand::kInput, Operand::kParams, Operand::kSecond}) {
    for (const int64_t count : useful_copies(nest, operand, order)) {
      if (grow(operand, count)) break;
    }
  }
  for (int target = 3; target <= kMostCopies; ++target) {
    for (const Operand operand :
         {Operand::kInput, Operand::kOutput, Operand::kSums, Operand::kWeights, Operand::kParams}) {
      if (copies[static_cast<size_t>(operand)] == target - 1) grow(operand, target);
    }
  }
  return copies;
}

struct Cost {
  int64_t tiles = 0, read = 0, write = 0, gemm = 0, alu = 0, load = 0, store = 0, total = 0;
};

/// Rows (or columns) of the input that all tiles of `out` outputs and `taps` taps fetch, padding not counted.
int64_t positions(const Nest& nest, int64_t out, int64_t taps, bool rows) {
  const Dim out_dim = rows ? Dim::kOh : Dim::kOw, tap_dim = rows ? Dim::kKh : Dim::kKw;
  const int64_t stride = rows ? nest.stride_h : nest.stride_w, dilation = rows ? nest.dilation_h : nest.dilation_w;
  const int64_t low = rows ? nest.input.row_begin : nest.input.col_begin,
                high = rows ? nest.input.row_end : nest.input.col_end;
  int64_t total = 0;
  for (int64_t k = 0; k < nest.extent[tap_dim]; k += taps) {
    for (int64_t o = 0; o < nest.extent[out_dim]; o += out) {
      const Span span =
          input_span(o, std::min(out, nest.extent[out_dim] - o), k, std::min(taps, nest.extent[tap_dim] - k), stride,
                     dilation, rows ? nest.pad_top : nest.pad_left);
      const int64_t first = std::max<int64_t>(0, ceil_div(low - span.begin, span.step));
      const int64_t end = span.begin < high ? std::min(span.count, ceil_div(high - span.begin, span.step)) : 0;
      total += std::max<int64_t>(0, end - first);
    }
  }
  return total;
}

Cost estimate(const Nest& nest, const isa::MachineConfig& config, const Extents& tile, const Footprint& f,
              const Order& order, const Copies& copies) {
  Cost cost;
  const int64_t batch = config.batch;
  Extents trips;
  for (int i = 0; i < order.count; ++i) trips[order.dim[i]] *= order.factor[i];
  const int64_t output_tiles = trips[Dim::kN] * trips[Dim::kG] * trips[Dim::kOc] * trips[Dim::kOh] * trips[Dim::kOw];
  const int64_t reduction_tiles = trips[Dim::kIc] * trips[Dim::kKh] * trips[Dim::kKw];
  cost.tiles = output_tiles * reduction_tiles;

  const Span rows = input_span(0, tile[Dim::kOh], 0, tile[Dim::kKh], nest.stride_h, nest.dilation_h, 0);
  const Span cols = input_span(0, tile[Dim::kOw], 0, tile[Dim::kKw], nest.stride_w, nest.dilation_w, 0);
  const Extents& extent = nest.extent;
  const int64_t all_results =
      extent[Dim::kN] * extent[Dim::kG] * extent[Dim::kOc] * extent[Dim::kOh] * extent[Dim::kOw];
  const int64_t taps = extent[Dim::kKh] * extent[Dim::kKw];

  int64_t load_bytes = 0, load_runs = 0;
  int64_t factor_bytes = 0, factor_cycles = 0, factor_tile_cycles = 0;
  {  // input: one sweep times the share that is fetched again
    const Access& a = nest.input;
    const int64_t window = order.kept < 0 ? tile[Dim::kOh] : tile[Dim::kOh] * order.factor[order.kept];
    const int64_t row_total = a.broadcast_h ? 1 : positions(nest, window, tile[Dim::kKh], true);
    const int64_t col_total = a.broadcast_w ? 1 : positions(nest, tile[Dim::kOw], tile[Dim::kKw], false);
    const int64_t sweep = (a.broadcast_n ? 1 : nest.images) * row_total * col_total *
                          (a.broadcast_c ? 1 : nest.in_channels.total) * a.element_bytes;
    const double again =
        static_cast<double>(fetches(nest, Operand::kInput, order, copies[static_cast<size_t>(Operand::kInput)])) /
        static_cast<double>(distinct_tiles(nest, Operand::kInput, order));
    const int64_t run =
        run_bytes(nest.in_channels, a, tile[Dim::kG], tile[Dim::kIc], cols.step == 1 ? cols.count : 1, batch);
    const auto bytes = static_cast<int64_t>(sweep * again);
    load_bytes += bytes;
    load_runs += ceil_div(bytes, std::max<int64_t>(run, 1));
  }
  if (f.weights > 0) {
    const int64_t count = fetches(nest, Operand::kWeights, order, copies[static_cast<size_t>(Operand::kWeights)]);
    if (nest.factor.present) {
      // Short runs: as many are under way at once as the machine has reads in flight.
      const FactorTraffic one = factor_traffic(nest, tile);
      const int64_t beats = ceil_div(one.bytes / one.runs, config.axi_bytes),
                    wait = ceil_div(kDramLatency, std::max(1, config.reads_in_flight));
      factor_tile_cycles = one.runs * std::max(beats + 1, wait);
      factor_bytes = count * one.bytes;
      factor_cycles = count * factor_tile_cycles;
    } else {
      load_bytes += count * f.weights * config.wgt_entry_bytes();
      load_runs += count;
    }
  }
  if (f.params > 0) {
    const int64_t count = fetches(nest, Operand::kParams, order, copies[static_cast<size_t>(Operand::kParams)]);
    load_bytes += count * f.params * config.param_entry_bytes();
    load_runs += count;
  }
  const int64_t out_bytes =
      nest.images * extent[Dim::kOh] * extent[Dim::kOw] * nest.out_channels.total * nest.output.element_bytes;
  const int64_t out_run =
      run_bytes(nest.out_channels, nest.output, tile[Dim::kG], tile[Dim::kOc], tile[Dim::kOw], batch);
  if (nest.second.present) {
    const int64_t count =
        fetches(nest, Operand::kSecond, order, f.second_in_place ? 1 : copies[static_cast<size_t>(Operand::kSecond)]);
    const int64_t entries = f.second_in_place ? f.output : f.second;
    load_bytes += std::min(count * entries * config.out_entry_bytes(), out_bytes);
    load_runs += ceil_div(out_bytes, std::max<int64_t>(out_run, 1));
  }
  cost.read = load_bytes + factor_bytes;
  cost.write = out_bytes;
  const int64_t store_runs = ceil_div(out_bytes, std::max<int64_t>(out_run, 1));
  cost.load = ceil_div(load_bytes, config.axi_bytes) + factor_cycles + load_runs * kRunOverhead +
              cost.tiles * kInstructionOverhead;
  cost.store = ceil_div(out_bytes, config.axi_bytes) + store_runs * kRunOverhead + output_tiles * kInstructionOverhead;

  switch (nest.intrinsic) {
    case Intrinsic::kDense:
      cost.gemm = all_results * extent[Dim::kIc] * taps * nest.planes + cost.tiles * kInstructionOverhead;
      cost.alu = all_results + output_tiles * kInstructionOverhead;
      break;
    case Intrinsic::kDepthwise: {
      const int64_t passes = depthwise_passes(nest, extent[Dim::kKh], extent[Dim::kKw]) * nest.planes;
      const bool raster = nest.dilation_h == 1 && nest.dilation_w == 1;
      const int64_t raster_cycles = cost.tiles * tile[Dim::kN] * tile[Dim::kG] * rows.count * cols.count * passes;
      cost.gemm = raster ? std::min(raster_cycles, all_results * taps * nest.planes) : all_results * taps * nest.planes;
      cost.gemm += cost.tiles * kInstructionOverhead;
      cost.alu = all_results + output_tiles * kInstructionOverhead;
      break;
    }
    case Intrinsic::kReduce:
      cost.alu = all_results * taps + (reduction_tiles > 1 ? 2 * all_results * reduction_tiles : 0) +
                 cost.tiles * kInstructionOverhead;
      break;
    case Intrinsic::kMap: cost.alu = all_results + output_tiles * kInstructionOverhead; break;
  }
  if (nest.raw && nest.intrinsic != Intrinsic::kReduce && nest.intrinsic != Intrinsic::kMap) cost.alu = 0;

  // Engines that share a single copy of something take turns.
  const auto single = [&](Operand operand) {
    // The first rows of a window are free long before its last ones.
    if (operand == Operand::kInput && order.kept >= 0 && order.factor[order.kept] > 2) return false;
    return copies[static_cast<size_t>(operand)] < 2 && distinct_tiles(nest, operand, order) > 1;
  };
  const bool weighted = f.weights > 0;
  const int64_t compute_first = weighted ? cost.gemm : cost.alu;
  int64_t load = cost.load, first = compute_first, alu = weighted ? cost.alu : 0, store = cost.store;
  if (single(Operand::kInput) || (weighted && single(Operand::kWeights))) first += load;
  if (weighted && f.sums > 0 && single(Operand::kSums)) {
    first += alu;
    alu = first;
  }
  if (f.output > 0 && single(Operand::kOutput)) {
    (weighted ? alu : first) += store;
    store = weighted ? alu : first;
  }
  if (weighted && f.sums > 0 && single(Operand::kSums)) first = std::max(first, alu);
  const int64_t fetch = cost.tiles * kInstructionsPerTile * ceil_div(isa::kInstructionBytes, config.axi_bytes);
  const int64_t steady = std::max({cost.load + cost.store + fetch, first, alu, store});
  // The first tile's fetch and the last tile's way out overlap with the layers around in part.
  const int64_t tiles = std::max<int64_t>(cost.tiles, 1);
  // Half of WGT can be filled while the layer before still computes from the other half: what the first tile of weights
  // needs beyond that is waited for (all of it where it is made at run time), and so is what the next layer cannot
  // fetch because all weights stay in use to the end.
  int64_t exposed = 0;
  if (f.weights > 0) {
    const int64_t half = config.wgt_depth() / 2;
    const bool whole = order.count == 0 || !indexes(nest, Operand::kWeights, order.dim[0]);
    const int64_t at_end = f.weights * (whole ? copies[static_cast<size_t>(Operand::kWeights)] : 1);
    const int64_t first = nest.factor.present ? 0 : std::max<int64_t>(0, f.weights - half);
    exposed = (first + std::max<int64_t>(0, at_end - half)) * ceil_div(config.wgt_entry_bytes(), config.axi_bytes) +
              factor_tile_cycles;
  }
  cost.total = steady + exposed + (cost.load / tiles + (alu + cost.store) / std::max<int64_t>(output_tiles, 1)) / 2 +
               2 * kDramLatency;
  return cost;
}

Order order_of(const Schedule& schedule) {
  Order order;
  const bool keeps = schedule.keeps_rows();
  for (const Level& level : schedule.levels) {
    if (level.kind != LevelKind::kTemporal && level.kind != LevelKind::kVthread) continue;
    if (order.count == static_cast<int>(order.dim.size())) break;
    if (keeps && level.dim == Dim::kOh) order.kept = order.count;
    order.dim[order.count] = level.dim;
    order.factor[order.count++] = level.factor;
  }
  return order;
}

std::vector<Order> loop_orders(const Nest& nest, const Extents& tile) {
  const auto build = [&](std::initializer_list<Dim> dims) {
    Order order;
    for (const Dim dim : dims) {
      const int64_t factor = ceil_div(nest.extent[dim], tile[dim]);
      if (factor == 1) continue;
      order.dim[order.count] = dim;
      order.factor[order.count++] = factor;
    }
    return order;
  };
  std::vector<Order> orders;
  orders.push_back(build({Dim::kG, Dim::kN, Dim::kOh, Dim::kOw, Dim::kOc, Dim::kIc, Dim::kKh, Dim::kKw}));
  const Order other = build({Dim::kG, Dim::kOc, Dim::kN, Dim::kOh, Dim::kOw, Dim::kIc, Dim::kKh, Dim::kKw});
  if (tile[Dim::kOc] < nest.extent[Dim::kOc]) orders.push_back(other);
  if (nest.factor.present && tile[Dim::kOc] < nest.extent[Dim::kOc]) {
    // Columns of a matrix outside of the dimensions along which the matrix stays.
    const auto inner = [&](Dim dim) { return nest.factor.indexed(dim) ? Dim::kG : dim; };
    const auto outer = [&](Dim dim) { return nest.factor.indexed(dim) ? dim : Dim::kG; };
    orders.push_back(build({outer(Dim::kN), outer(Dim::kOh), outer(Dim::kOw), Dim::kOc, inner(Dim::kN), inner(Dim::kOh),
                            inner(Dim::kOw), Dim::kIc}));
  }
  return orders;
}

struct Candidate {
  double score = 0;
  int64_t tiles = 0;
  Extents tile;
  Order order;
  int64_t kept = 0;
};

bool better(const Candidate& a, const Candidate& b) {
  return a.score < b.score || (a.score == b.score && a.tiles < b.tiles);
}

/// The level of oh, if it is the innermost that the input has, and tiles share rows.
int keepable(const Nest& nest, const Extents& tile, const Order& order) {
  if (tile[Dim::kN] > 1 || nest.extent[Dim::kKh] < 2 || (nest.extent[Dim::kKh] - 1) * nest.dilation_h < nest.stride_h)
    return -1;
  for (int i = order.count; i-- > 0;) {
    if (indexes(nest, Operand::kInput, order.dim[i])) return order.dim[i] == Dim::kOh ? i : -1;
  }
  return -1;
}

/// The order with its level of oh cut into windows of `kept` tiles.
Order with_windows(const Order& order, int level, int64_t kept) {
  Order result = order;
  const int64_t outer = ceil_div(order.factor[level], kept);
  result.kept = level;
  if (outer > 1) {
    for (int i = result.count; i > level; --i) {
      result.dim[i] = result.dim[i - 1];
      result.factor[i] = result.factor[i - 1];
    }
    ++result.count;
    result.factor[level] = outer;
    result.kept = level + 1;
  }
  result.factor[result.kept] = kept;
  return result;
}

}  // namespace

Schedule make_schedule(const Nest& nest, const isa::MachineConfig& config, const Extents& tile,
                       const std::vector<Dim>& dims, bool single, int64_t kept) {
  Order order;
  for (const Dim dim : dims) {
    const int64_t factor = ceil_div(nest.extent[dim], tile[dim]);
    if (factor == 1) continue;
    order.dim[order.count] = dim;
    order.factor[order.count++] = factor;
  }
  if (kept > 0) order = with_windows(order, keepable(nest, tile, order), kept);
  Schedule schedule;
  schedule.input_layout = nest.layout;
  for (int i = 0; i < order.count; ++i)
    schedule.levels.push_back({order.dim[i], order.factor[i], LevelKind::kTemporal});
  for (int d = 0; d < kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    if (tile[dim] > 1) schedule.levels.push_back({dim, tile[dim], LevelKind::kHwloop});
  }
  if (config.batch > 1) schedule.levels.push_back({Dim::kN, config.batch, LevelKind::kLane});
  if (nest.intrinsic == Intrinsic::kDense) {
    schedule.levels.push_back({Dim::kOc, config.block_out, LevelKind::kLane});
    schedule.levels.push_back({Dim::kIc, config.block_in, LevelKind::kLane});
  } else {
    schedule.levels.push_back({Dim::kG, nest.out_channels.chunk, LevelKind::kLane});
  }
  const Footprint f = footprint(nest, tile, config, kept * tile[Dim::kOh]);
  const Copies copies = choose_copies(nest, config, f, order, single);
  const auto plan = [&](Operand operand, isa::Space scope, const char* layout) {
    const Halo halo = operand == Operand::kInput && kept > 0 ? Halo::kKeep : Halo::kReload;
    schedule.operands.push_back({operand, scope, attach_of(nest, schedule.levels, operand, halo),
                                 static_cast<int>(copies[static_cast<size_t>(operand)]), halo, layout});
  };
  plan(Operand::kInput, nest.input_space, "n,h,w,g,ic");
  if (f.weights > 0)
    plan(Operand::kWeights, isa::Space::kWgt,
         nest.factor.present                   ? "n,oh,ow,ic,oc"
         : nest.intrinsic == Intrinsic::kDense ? "g,oc,kh,kw,ic"
                                               : "kh,kw,g");
  if (f.sums > 0) plan(Operand::kSums, isa::Space::kAcc, "n,oh,ow,g,oc");
  if (nest.second.present) plan(Operand::kSecond, isa::Space::kOut, "n,oh,ow,g,oc");
  if (f.output > 0) plan(Operand::kOutput, isa::Space::kOut, "n,oh,ow,g,oc");
  if (f.params > 0) plan(Operand::kParams, isa::Space::kParam, "g,oc");
  return schedule;
}

Evaluation evaluate(const Nest& nest, const Schedule& schedule, const isa::MachineConfig& config) {
  Evaluation result;
  const auto illegal = [&](std::string reason) {
    result.legal = false;
    result.reason = std::move(reason);
    return result;
  };
  const Extents tile = schedule.tile();
  if (schedule.input_layout != nest.layout)
    return illegal("input_layout '" + schedule.input_layout + "' is not '" + nest.layout + "'");
  const Order order = order_of(schedule);
  Extents covered = tile;
  bool reduction = false;
  int stage = 0;
  for (size_t i = 0; i < schedule.levels.size(); ++i) {
    const Level& level = schedule.levels[i];
    const int now = level.kind == LevelKind::kLane ? 2 : level.kind == LevelKind::kHwloop ? 1 : 0;
    if (now < stage) return illegal("levels must come in the order temporal and vthread, hwloop, lane");
    stage = now;
    if (now != 0) continue;
    if (i >= order.dim.size()) return illegal("more than 16 temporal levels");
    covered[level.dim] *= level.factor;
    if (is_reduction(level.dim)) {
      if (level.kind == LevelKind::kVthread) return illegal("a vthread level carries a reduction");
      reduction = true;
    } else if (reduction && level.factor > 1) {
      return illegal("temporal reduction levels must be the innermost ones");
    }
  }
  for (int d = 0; d < kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    const std::string name(kDimNames[d]);
    if (covered[dim] < nest.extent[dim])
      return illegal("the levels of " + name + " cover " + std::to_string(covered[dim]) + " of " +
                     std::to_string(nest.extent[dim]));
    if (tile[dim] > nest.extent[dim])
      return illegal("a tile has " + std::to_string(tile[dim]) + " of " + name + ", the nest " +
                     std::to_string(nest.extent[dim]));
  }
  if (tile[Dim::kG] > 1 && (tile[Dim::kOc] < nest.extent[Dim::kOc] || tile[Dim::kIc] < nest.extent[Dim::kIc])) {
    return illegal("a tile of several chunks must hold them whole");
  }
  if (!encodable(nest, tile)) return illegal("a stride or an extent of the reduction does not fit an instruction");
  for (const OperandPlan& plan : schedule.operands) {
    if (plan.halo == Halo::kKeep && plan.operand != Operand::kInput) return illegal("only the input can keep rows");
  }
  if (schedule.keeps_rows()) {
    int innermost = -1;
    for (int i = 0; i < order.count; ++i) {
      if (indexes(nest, Operand::kInput, order.dim[i])) innermost = i;
    }
    if (tile[Dim::kN] > 1)
      return illegal("the input keeps rows of one image at a time, a tile has " + std::to_string(tile[Dim::kN]));
    if (innermost < 0 || innermost != order.kept)
      return illegal("the input keeps rows where oh is the innermost temporal level that it has");
  }
  result.footprint = footprint(nest, tile, config, schedule.window_rows());
  const Footprint& f = result.footprint;
  const std::array<int64_t, kOperands> sizes = {f.input, f.weights, f.sums, f.second, f.output, f.params};
  Copies copies;
  for (int i = 0; i < kOperands; ++i) {
    copies[i] = schedule.copies(static_cast<Operand>(i));
    if (sizes[i] > 0 && copies[i] < 1) return illegal("operand " + std::string(kOperandNames[i]) + " is missing");
  }
  for (const Level& level : schedule.levels) {
    if (level.kind != LevelKind::kVthread) continue;
    for (int i = 0; i < kOperands; ++i) {
      const bool window = static_cast<Operand>(i) == Operand::kInput && schedule.keeps_rows() && level.dim == Dim::kOh;
      if (sizes[i] > 0 && indexes(nest, static_cast<Operand>(i), level.dim) && !window && copies[i] < level.factor) {
        return illegal("a vthread level of " + std::to_string(level.factor) + " needs as many copies of " +
                       std::string(kOperandNames[i]));
      }
    }
  }
  const Capacity use = used(nest, f, copies);
  if (!fits(use, config)) return illegal(capacity_reason(use, config));
  const Cost cost = estimate(nest, config, tile, f, order, copies);
  result.legal = true;
  result.tiles = cost.tiles;
  result.read_bytes = cost.read;
  result.write_bytes = cost.write;
  result.gemm_cycles = cost.gemm;
  result.alu_cycles = cost.alu;
  result.load_cycles = cost.load;
  result.store_cycles = cost.store;
  result.cycles = cost.total;
  return result;
}

double Goal::score(int64_t cycles, int64_t bytes, const isa::MachineConfig& config) const {
  return static_cast<double>(cycles) + traffic_weight * static_cast<double>(bytes) / config.axi_bytes;
}

Schedule generate(const Nest& nest, const isa::MachineConfig& config, const Goal& goal) {
  return generate_several(nest, config, 1, goal).front();
}

std::vector<Schedule> generate_several(const Nest& nest, const isa::MachineConfig& config, size_t count,
                                       const Goal& goal) {
  const Extents& extent = nest.extent;
  const auto limit = [&](int64_t value) { return std::max<int64_t>(value, 1); };
  const int64_t out_limit = limit(nest.raw ? config.acc_depth() : config.out_depth());
  const bool flat = extent[Dim::kOh] == 1 && extent[Dim::kN] == 1;
  const auto n_list =
      candidate_extents(extent[Dim::kN], extent[Dim::kOh] * extent[Dim::kOw] == 1 ? 1.2 : 1.6, out_limit);
  const auto oc_list = candidate_extents(extent[Dim::kOc], 1.3, std::min(out_limit, limit(config.wgt_depth())));
  const auto oh_list = candidate_extents(extent[Dim::kOh], extent[Dim::kOh] > 32 ? 1.25 : 1.1, out_limit);
  const auto ow_list = candidate_extents(extent[Dim::kOw], flat ? 1.1 : 1.7, out_limit);
  const auto ic_list = candidate_extents(extent[Dim::kIc], 1.4, limit(config.inp_depth()));
  const auto g_list = candidate_extents(extent[Dim::kG], 1.4, out_limit);

  // Of candidates that differ little only the best few go on.
  using Kind = std::tuple<size_t, bool, int64_t, int64_t, int64_t>;
  std::map<Kind, std::vector<Candidate>> best;
  const auto consider = [&](const Extents& tile) {
    if (tile[Dim::kG] > 1 && (tile[Dim::kOc] < extent[Dim::kOc] || tile[Dim::kIc] < extent[Dim::kIc])) return;
    if (!encodable(nest, tile)) return;
    const Footprint f = footprint(nest, tile, config);
    Copies ones;
    ones.fill(1);
    if (!fits(used(nest, f, ones), config)) return;
    const auto judge = [&](size_t order_number, const Order& order, const Order& loops, const Footprint& f,
                           int64_t kept) {
      const Copies copies = choose_copies(nest, config, f, loops, goal.single);
      const Cost cost = estimate(nest, config, tile, f, loops, copies);
      auto& kind = best[{order_number, kept > 0, tile[Dim::kOc], tile[Dim::kIc], tile[Dim::kG]}];
      const Candidate candidate{goal.score(cost.total, cost.read + cost.write, config), cost.tiles, tile, order, kept};
      if (kind.size() == kCandidatesOfAKind && !better(candidate, kind.back())) return;
      if (kind.size() == kCandidatesOfAKind) kind.pop_back();
      kind.insert(std::upper_bound(kind.begin(), kind.end(), candidate, better), candidate);
    };
    const auto orders = loop_orders(nest, tile);
    for (size_t order_number = 0; order_number < orders.size(); ++order_number) {
      const Order& order = orders[order_number];
      judge(order_number, order, order, f, 0);
      const int level = keepable(nest, tile, order);
      if (level < 0) continue;
      // The fewest windows that fit, and those of half their size, of which two may.
      int tried = 0;
      for (int64_t cuts = 1; cuts < order.factor[level] && tried < 2; cuts = tried > 0 ? cuts * 2 : cuts + 1) {
        const int64_t kept = ceil_div(order.factor[level], cuts);
        if (kept < 2) break;
        const Footprint window = footprint(nest, tile, config, kept * tile[Dim::kOh]);
        if (!fits(used(nest, window, ones), config)) continue;
        ++tried;
        judge(order_number, order, with_windows(order, level, kept), window, kept);
      }
    }
  };
  const auto sweep = [&](const std::vector<int64_t>& kh_list, const std::vector<int64_t>& kw_list) {
    Extents tile;
    for (const int64_t kh : kh_list) {
      tile[Dim::kKh] = kh;
      for (const int64_t kw : kw_list) {
        tile[Dim::kKw] = kw;
        for (const int64_t n : n_list) {
          tile[Dim::kN] = n;
          for (const int64_t g : g_list) {
            tile[Dim::kG] = g;
            for (const int64_t oh : oh_list) {
              // Several images in a tile only when they are whole.
              if (n > 1 && oh < extent[Dim::kOh] && !nest.factor.present) break;
              tile[Dim::kOh] = oh;
              for (const int64_t ow : ow_list) {
                if (n > 1 && ow < extent[Dim::kOw] && !nest.factor.present) break;
                tile[Dim::kOw] = ow;
                for (const int64_t oc : oc_list) {
                  tile[Dim::kOc] = oc;
                  for (const int64_t ic : ic_list) {
                    tile[Dim::kIc] = ic;
                    consider(tile);
                  }
                }
              }
            }
          }
        }
      }
    }
  };
  // Whole windows if any tile with them fits; else parts of windows too.
  sweep({extent[Dim::kKh]}, {extent[Dim::kKw]});
  if (best.empty()) sweep(candidate_extents(extent[Dim::kKh], 1.4, config.inp_depth()), {extent[Dim::kKw]});
  if (best.empty())
    sweep(candidate_extents(extent[Dim::kKh], 1.4, config.inp_depth()),
          candidate_extents(extent[Dim::kKw], 1.2, 1 << 14));
  if (best.empty()) {
    Extents one;
    Copies ones;
    ones.fill(1);
    throw Error(ErrorCode::kDoesNotFit, "no tile fits the scratchpads: " +
                                            capacity_reason(used(nest, footprint(nest, one, config), ones), config));
  }
  std::vector<Candidate> all;
  for (auto& [kind, candidates] : best) all.insert(all.end(), candidates.begin(), candidates.end());
  std::stable_sort(all.begin(), all.end(), better);
  std::vector<Schedule> result;
  for (size_t i = 0; i < std::min(count, all.size()); ++i) {
    const Candidate& c = all[i];
    result.push_back(make_schedule(nest, config, c.tile, {c.order.dim.begin(), c.order.dim.begin() + c.order.count},
                                   goal.single, c.kept));
  }
  return result;
}

}  // namespace tessera::schedule
