// SPDX-License-Identifier: Apache-2.0
// Each number is a minimum over all tiles, orders, copies and residences, or is left out.
#include "compiler/schedule/compulsory.h"

#include <algorithm>
#include <limits>

#include "compiler/schedule/bound.h"
#include "isa/generated/timing.h"
#include "isa/second_operation.h"

namespace tessera::schedule {

namespace compulsory {

int64_t product(const Extents& extents, std::initializer_list<Dim> dims) {
  int64_t result = 1;
  for (const Dim dim : dims) result *= extents[dim];
  return result;
}
int64_t entries_of(const Extents& e) { return product(e, {Dim::kN, Dim::kOh, Dim::kOw, Dim::kG, Dim::kOc}); }
int64_t taps_of(const Extents& e) { return product(e, {Dim::kKh, Dim::kKw}); }

namespace {

/// Steps of GEMM along one dimension in all passes over the window, tile by tile: of a pass with several taps the
/// positions of its raster where outputs are one or two taps apart, else one step for each tap (isa/raster.h). `early`
/// counts those positions in front of the first output; of columns in pairs it counts steps in such rows instead.
struct Steps {
  int64_t early = 0, late = 0;
};

Steps depthwise_steps(const Nest& nest, const Extents& whole, const Extents& tile, bool rows) {
  const Dim out_dim = rows ? Dim::kOh : Dim::kOw, tap_dim = rows ? Dim::kKh : Dim::kKw;
  const int64_t stride = rows ? nest.stride_h : nest.stride_w, dilation = rows ? nest.dilation_h : nest.dilation_w;
  const int64_t taps = whole[tap_dim], pass = rows ? nest.tap_h : nest.tap_w;
  const bool raster = stride == dilation || stride == 2 * dilation;
  const auto steps = [&](int64_t out, int64_t tap) -> Steps {
    const bool pairs = !rows && nest.pairs && tap == isa::timing::gemm::kPairColumns;
    if (tap == 1 || !raster) {  // where rows are walked innermost each column is a raster of its own
      const int64_t each = pairs ? isa::timing::gemm::kPairColumns - 1 : tap;
      return rows ? Steps{out * (tap - 1), out} : Steps{out * each, out * each};
    }
    const int64_t positions = (out - 1) * (stride / dilation) + tap;
    if (rows) return {tap - 1, positions - tap + 1};
    if (!pairs) return {positions, positions};
    return {std::min((positions + 1) / 2, out + 1), out + 1};
  };
  Steps total;
  for (int64_t k = 0; k < taps; k += tile[tap_dim]) {
    const int64_t part = std::min(tile[tap_dim], taps - k);
    for (int64_t begin = 0; begin < part; begin += pass) {
      for (const Cut& cut : cuts(whole[out_dim], tile[out_dim])) {
        if (cut.size == 0) continue;
        const Steps of = steps(cut.size, std::min(pass, part - begin));
        total.early += cut.count * of.early;
        total.late += cut.count * of.late;
      }
    }
  }
  return total;
}

}  // namespace

int64_t gemm_steps(const Nest& nest, const Extents& part, const Extents& tile) {
  if (dense(nest)) return entries_of(part) * part[Dim::kIc] * taps_of(part) * nest.planes;
  if (nest.computation != Computation::kDepthwise) return 0;
  const Steps rows = depthwise_steps(nest, part, tile, true), cols = depthwise_steps(nest, part, tile, false);
  return product(part, {Dim::kN, Dim::kG}) * (rows.early * cols.early + rows.late * cols.late) * nest.planes;
}

int64_t alu_issues(const Nest& nest, const isa::MachineConfig& config, const Extents& part, int64_t pieces) {
  const int64_t entries = entries_of(part);
  if (nest.computation == Computation::kRows) return (nest.convert || nest.fixed_shift ? 2 : 3) * entries;
  const int64_t each = nest.second.present ? isa::timing::alu::turns(config) : 1;
  if (nest.computation == Computation::kReduce)
    return entries * std::max(taps_of(part) + 2 * (pieces - 1), each);  // a part of a window joins those before
  return nest.raw && weighted(nest) ? 0 : entries * each;
}

int64_t pixel_bytes(const ChannelMap& map, const Access& access, int64_t width, int64_t batch) {
  if (access.broadcast_c) return access.element_bytes;
  const auto whole = [&](int64_t channels) { return ceil_div(channels * access.element_bytes, width) * width; };
  if (batch > 1) return map.total * access.element_bytes;
  const bool apart = access.segment_pitch != access.segment_channels * access.element_bytes;
  if (apart && access.segment_channels > 0 && access.segment_channels < map.total)
    return map.total / access.segment_channels * whole(access.segment_channels) +
           whole(map.total % access.segment_channels);
  if (map.chunk % map.lanes == 0) return map.total * access.element_bytes;
  return map.total / map.chunk * whole(map.chunk) + whole(map.total % map.chunk);
}

int64_t loaded_bytes(const ChannelMap& map, const Access& access, int64_t width, int64_t batch, int64_t step) {
  const int64_t plain = map.total * access.element_bytes;
  if (access.broadcast_c || batch > 1) return pixel_bytes(map, access, width, batch);
  const int64_t size = access.segment_channels > 0 ? std::min(access.segment_channels, map.total) : map.total;
  // From a run's first byte to that of a run that may follow it: in the next column, or in the same pixel.
  int64_t near = step;
  if (size < map.total) near = std::min(near, access.segment_pitch);
  const bool chunks = map.chunks() > 1 && map.chunk % map.lanes != 0;
  if (chunks) near = std::min(near, map.chunk * access.element_bytes);
  if (near >= std::min(size, chunks ? map.chunk : size) * access.element_bytes + width)
    return pixel_bytes(map, access, width, batch);
  const auto of = [&](int64_t channels) { return std::min(channels * access.element_bytes, near); };
  return std::min(plain, map.total / size * of(size) + of(map.total % size));
}

Moved out_once(const Nest& nest, const Access& access, const isa::MachineConfig& config) {
  if (!access.present) return {};
  const int64_t pixels = (access.broadcast_n ? 1 : nest.images) * (access.broadcast_h ? 1 : nest.extent[Dim::kOh]) *
                         (access.broadcast_w ? 1 : nest.extent[Dim::kOw]);
  return both(pixels * pixel_bytes(nest.out_channels, access, config.axi_bytes, config.batch));
}

Moved second_once(const Nest& nest, const isa::MachineConfig& config) {
  Moved once = out_once(nest, nest.second, config);
  if (once.bus == 0) return once;
  const Access& a = nest.second;
  int64_t step = std::numeric_limits<int64_t>::max();
  const auto nearer = [&](bool broadcast, int64_t count, int64_t pitch) {
    if (!broadcast && count > 1) step = std::min(step, std::max<int64_t>(pitch, 0));
  };
  nearer(a.broadcast_n, nest.images, a.pitch_n);
  nearer(a.broadcast_h, nest.extent[Dim::kOh], a.pitch_h);
  nearer(a.broadcast_w, nest.extent[Dim::kOw], a.pitch_w);
  const int64_t each = pixel_bytes(nest.out_channels, a, config.axi_bytes, config.batch);
  once.bus = once.bus / each * loaded_bytes(nest.out_channels, a, config.axi_bytes, config.batch, step);
  return once;
}

namespace {

/// Bytes of the beats of matrices whose columns are fetched in runs: runs that lie in the same beats share them.
int64_t factor_on_bus(const Nest& nest, const FactorTraffic& whole, int64_t width) {
  const Factor& f = nest.factor;
  const bool rows = f.pitch_k == 1;  // a column is one stretch of bytes
  const int64_t k = nest.in_channels.total, run = rows ? std::min(k, nest.in_channels.lanes) : 1,
                from_column = f.pitch_column - (rows ? k : 1);  // the gap behind a column's last run
  if (from_column >= width && (rows || f.pitch_k > width)) return std::max(whole.bytes, whole.runs * width);
  if (from_column >= 0) return whole.bytes - matrices(nest, nest.extent) * run;  // the next matrix may begin there
  return whole.bytes / std::max<int64_t>(1, nest.out_channels.total * std::max(k, width));
}

}  // namespace

Moved weights_once(const Nest& nest, const Intrinsic& intrinsic, const isa::MachineConfig& config) {
  if (!weighted(nest)) return {};
  if (!nest.factor.present)
    return both(footprint(nest, intrinsic, nest.extent).weights * weight_entry_bytes(nest, config));
  const FactorTraffic whole = factor_traffic(nest, nest.extent);  // matrices that several positions share come once
  return {std::max(whole.bytes, whole.runs * config.axi_bytes), factor_on_bus(nest, whole, config.axi_bytes)};
}

int64_t param_bytes(const Footprint& of, const isa::MachineConfig& config) {
  return of.params * (config.param_entry_bytes() / 2);
}

Moved params_once(const Nest& nest, const Intrinsic& intrinsic, const isa::MachineConfig& config) {
  const Footprint whole = footprint(nest, intrinsic, nest.extent);
  return both(param_bytes(whole, config) + whole.constants * static_cast<int64_t>(isa::kSecondConstantsBytes));
}

}  // namespace compulsory

namespace {

using namespace compulsory;

constexpr int64_t kNoCut = std::numeric_limits<int64_t>::max();

/// Rows (or columns) of the input that windows of those results read, padding not counted.
std::vector<bool> touched(const Nest& nest, bool rows, const std::vector<bool>& results) {
  const int64_t taps = nest.extent[rows ? Dim::kKh : Dim::kKw];
  const int64_t stride = rows ? nest.stride_h : nest.stride_w, dilation = rows ? nest.dilation_h : nest.dilation_w;
  const int64_t low = rows ? nest.input.row_begin : nest.input.col_begin,
                high = rows ? nest.input.row_end : nest.input.col_end, pad = rows ? nest.pad_top : nest.pad_left;
  std::vector<bool> seen(static_cast<size_t>(std::max<int64_t>(0, high - low)));
  for (size_t o = 0; o < results.size(); ++o) {
    for (int64_t k = 0; results[o] && k < taps; ++k) {
      const int64_t at = static_cast<int64_t>(o) * stride - pad + k * dilation;
      if (at >= low && at < high) seen[static_cast<size_t>(at - low)] = true;
    }
  }
  return seen;
}

int64_t number(const std::vector<bool>& lines) { return std::count(lines.begin(), lines.end(), true); }

Lines all_results(const Nest& nest) {
  const auto every = [&](Dim dim) { return std::vector<bool>(static_cast<size_t>(nest.extent[dim]), true); };
  return {every(Dim::kOh), every(Dim::kOw)};
}

/// Bytes of the input that windows of those results read, each once.
int64_t input_bytes(const Nest& nest, const Lines& results) {
  const Access& in = nest.input;
  if (!in.present) return 0;
  const Lines read = lines_read(nest, results);
  return (in.broadcast_n ? 1 : nest.images) * (in.broadcast_h ? 1 : number(read.rows)) *
         (in.broadcast_w ? 1 : number(read.cols)) * (in.broadcast_c ? 1 : nest.in_channels.total) * in.element_bytes;
}

}  // namespace

int64_t least_bytes(const Nest& nest, const Machine& machine) {
  int64_t least = kNoCut;
  for (const Intrinsic* intrinsic : intrinsics_for(nest)) {
    const Moved rest = weights_once(nest, *intrinsic, machine.config) + params_once(nest, *intrinsic, machine.config) +
                       out_once(nest, nest.second, machine.config) + out_once(nest, nest.output, machine.config);
    least = std::min(least, rest.bus + input_bytes(nest, all_results(nest)));
  }
  return least;
}

Lines lines_read(const Nest& nest, const Lines& results) {
  return {touched(nest, true, results.rows), touched(nest, false, results.cols)};
}

LeastWork least_work(const Nest& nest, const Machine& machine) { return least_work(nest, machine, all_results(nest)); }

LeastWork least_work(const Nest& nest, const Machine& machine, const Lines& results) {
  // Results that stand side by side take no more steps than those that lie apart.
  Extents e = nest.extent;
  e[Dim::kOh] = number(results.rows);
  e[Dim::kOw] = number(results.cols);
  LeastWork work;
  if (entries_of(e) == 0) return work;
  const isa::MachineConfig& config = machine.config;
  work.input = input_bytes(nest, results);
  work.output = nest.images * product(e, {Dim::kOh, Dim::kOw}) * nest.out_channels.total * nest.output.element_bytes;
  work.constants = kNoCut;
  bool core = true;  // what other intrinsics issue nobody knows here
  for (const Intrinsic* intrinsic : intrinsics_for(nest)) {
    core = core && intrinsic == &core_intrinsic(nest.computation);
    const Footprint whole = footprint(nest, *intrinsic, nest.extent);
    const int64_t weights = nest.factor.present ? 0 : whole.weights * weight_entry_bytes(nest, config);
    work.constants = std::min(work.constants, weights + param_bytes(whole, config));
  }
  if (!core) return work;
  work.gemm = gemm_steps(nest, e, e);
  if (dense(nest)) work.macs = work.gemm * config.peak_macs();
  if (work.gemm > 0 && !nest.raw) work.alu = entries_of(e);
  return work;
}

}  // namespace tessera::schedule
