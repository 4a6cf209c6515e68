// SPDX-License-Identifier: Apache-2.0
// GEMM by blocks. The outer loops are split into those that move WGT and those that do not; for each position of the
// former, the latter are the rows of a small matrix product whose inner dimension is the reduction nest. Weights are
// packed into panels once and kept until LOAD overwrites them. Stored multiplicands differ from the true ones by
// constants (a vector instruction wants X unsigned and W signed), so that with x = X + ax, w = W + aw, and zero points
// relative to those, zx' = zx - ax and zw' = zw - aw,
//   sum (x - zx)(w - zw) = sum X W - zw' sum X - zx' sum W + n zx' zw'
// holds modulo 2^32: three cheap sums correct the fast one exactly. Reordering outer iterations is allowed when no ACC
// entry is written twice, or when all of them add to it; everything else takes the portable nest.
#include "sim/functional/engines/gemm.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "isa/verify/verify.h"
#include "sim/functional/engines/aligned.h"
#include "sim/functional/engines/gemm_kernels.h"
#include "sim/functional/engines/nest.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kMaxSteps = 1 << 16;  // of a reduction that is listed
constexpr uint64_t kMaxRowsListed = 1 << 14;

/// What is stored of the multiplicands: X = x - ax, W = w - aw.
struct Absorbed {
  int32_t ax;
  int32_t aw;
};

/// The loops of a GEMM by dense kernels.
struct DenseNests {
  Nest<3> weights;  // INP, WGT, ACC: outer loops that move the weights
  Nest<2> rows;     // INP, ACC: the other outer loops
  Nest<2> steps;    // INP, WGT: the reduction
};

DenseNests dense_nests(const isa::Gemm& g) {
  const int outer = isa::kLoops - g.reduce;
  Extents extent{};
  Strides inp_stride{}, wgt_stride{}, acc_stride{};
  int weight_loops = 0;
  int loops = 0;
  for (const bool moves : {true, false}) {
    for (int k = 0; k < outer; ++k) {
      if ((g.extent[k] > 1 && g.wgt_stride[k] != 0) != moves) continue;
      extent[loops] = g.extent[k];
      inp_stride[loops] = g.inp_stride[k];
      wgt_stride[loops] = g.wgt_stride[k];
      acc_stride[loops] = g.acc_stride[k];
      ++loops;
      if (moves) ++weight_loops;
    }
  }
  return {make_nest(0, weight_loops, extent, inp_stride, wgt_stride, acc_stride),
          make_nest(weight_loops, outer - weight_loops, extent, inp_stride, acc_stride),
          make_nest(outer, g.reduce, g.extent, g.inp_stride, g.wgt_stride)};
}

/// What dense kernels see of one instruction.
struct DenseView {
  size_t steps;                 // of the reduction
  int32_t lowest_step;          // the lowest entry of INP among them, relative to the first
  size_t first_inp, inp_count;  // entries of INP that are touched
  const uint8_t* x;             // X of these
  uint32_t zx, zw;              // zero points relative to X and W
  size_t row_bytes, inp_entry_bytes, acc_entry_bytes;
};

}  // namespace

struct GemmUnit::State {
  State(const isa::MachineConfig& machine_config, Scratchpads& pads, Kernels kernel_set)
      : config(machine_config),
        scratchpads(pads),
        kernels(kernel_set),
        dense(dense_kernels(kernel_set, config.block_in, config.block_out)),
        depthwise(depthwise_kernel(kernel_set)),
        batch(static_cast<size_t>(config.batch)),
        block_in(static_cast<size_t>(config.block_in)),
        block_out(static_cast<size_t>(config.block_out)) {
    if (dense.run == nullptr) return;
    panel_lanes = static_cast<size_t>(dense.lanes);
    lane_groups = (block_out + panel_lanes - 1) / panel_lanes;
    group_elements = dense.bytes ? 4 : 2;
    broadcast_groups = block_in / group_elements;
    panel_bytes = broadcast_groups * panel_lanes * 4;
    entry_bytes = lane_groups * panel_bytes;
    const size_t depth = scratchpads.depth(isa::Space::kWgt);
    panels.resize(depth * entry_bytes + 64);
    panel_sums.resize(depth * lane_groups * panel_lanes);
    packed.assign(depth, Packed::kNo);
  }

  enum class Packed : uint8_t { kNo, kSigned, kUnsigned };

  const isa::MachineConfig& config;
  Scratchpads& scratchpads;
  Kernels kernels;
  DenseKernels dense;
  DepthwiseKernel depthwise;
  size_t batch, block_in, block_out;

  // Layout of a packed WGT entry: [lane group][broadcast group][lane][element].
  size_t panel_lanes = 0, lane_groups = 0, group_elements = 0, broadcast_groups = 0, panel_bytes = 0, entry_bytes = 0;
  AlignedVector<uint8_t> panels;
  AlignedVector<int32_t> panel_sums;  // [entry][lane group][lane]: sum of W over BLOCK_IN
  std::vector<Packed> packed;

  // Reused from call to call.
  AlignedVector<uint8_t> stored_inp;  // X of the INP range an instruction touches
  std::vector<int32_t> inp_sums;      // [entry in range][row]: sum of X over BLOCK_IN
  AlignedVector<uint32_t> inp_pairs;  // depthwise: x - zx of an entry and of the next tap's
  std::vector<uint32_t> row_x, row_acc, step_x, step_w;
  std::vector<int32_t> row_correction, step_wgt, row_inp, step_inp, tap_step;
  AlignedVector<uint32_t> tap_weights;
  std::vector<uint64_t> seen;
  std::vector<uint32_t> lane_sums;
  std::vector<int32_t> lane_correction;

  void pack(size_t entry, bool is_unsigned);
  const uint8_t* store_inp(const isa::Gemm& g, size_t first, size_t count, int32_t ax);
  bool may_reorder(const isa::Gemm& g);
  int32_t list_steps(const Nest<2>& nest, size_t inp_entry_bytes);
  void list_rows(const Nest<2>& nest, size_t acc_entry_bytes);
  void sum_inp(const DenseView& v);
  void take_weights(const DenseView& v, int32_t wgt, bool is_unsigned);
  void take_rows(const DenseView& v, int32_t inp);
  void run_blocks(DenseCall& call, uint32_t acc_at);
  bool run_dense(const isa::Gemm& g);
  bool run_depthwise(const isa::Gemm& g);
};

void GemmUnit::State::pack(size_t entry, bool is_unsigned) {
  const Packed wanted = is_unsigned ? Packed::kUnsigned : Packed::kSigned;
  if (packed[entry] == wanted) return;
  packed[entry] = wanted;
  const uint8_t* from = scratchpads.bytes(isa::Space::kWgt).data() + entry * block_out * block_in;
  uint8_t* to = panels.data() + entry * entry_bytes;
  int32_t* sums = panel_sums.data() + entry * lane_groups * panel_lanes;
  const uint8_t flip = dense.bytes && is_unsigned ? 0x80 : 0;  // W = w - 128
  const uint32_t flips = flip * 0x01010101u;
  for (size_t o = 0; o < block_out; ++o) {
    const size_t lane = o % panel_lanes;
    uint8_t* panel = to + o / panel_lanes * panel_bytes + lane * 4;
    const uint8_t* row = from + o * block_in;
    int32_t sum = 0;
    if (dense.bytes) {
      for (size_t g = 0; g < broadcast_groups; ++g) {
        uint32_t group;
        std::memcpy(&group, row + 4 * g, 4);
        group ^= flips;
        std::memcpy(panel + g * panel_lanes * 4, &group, 4);
      }
      for (size_t k = 0; k < block_in; ++k) sum += static_cast<int8_t>(row[k] ^ flip);
    } else {
      for (size_t k = 0; k < block_in; ++k) {
        const auto w = static_cast<int16_t>(is_unsigned ? int{row[k]} : int{static_cast<int8_t>(row[k])});
        std::memcpy(panel + (k / 2 * panel_lanes * 2 + k % 2) * 2, &w, 2);
        sum += w;
      }
    }
    sums[o] = sum;
  }
}

/// X of INP entries [first, first + count): the scratchpad itself when nothing has to change. Entry e, row b stands at
/// ((e - first) * batch + b) * block_in elements.
const uint8_t* GemmUnit::State::store_inp(const isa::Gemm& g, size_t first, size_t count, int32_t ax) {
  const uint8_t* from = scratchpads.bytes(isa::Space::kInp).data() + first * batch * block_in;
  const size_t n = count * batch * block_in;
  if (dense.bytes) {
    if (g.inp_unsigned) return from;
    stored_inp.resize(n + 64);
    for (size_t k = 0; k < n; ++k) stored_inp[k] = from[k] ^ 0x80;
    return stored_inp.data();
  }
  stored_inp.resize(2 * n + 64);
  auto* to = reinterpret_cast<int16_t*>(stored_inp.data());
  if (g.inp_unsigned) {
    for (size_t k = 0; k < n; ++k) to[k] = static_cast<int16_t>(from[k] - ax);
  } else {
    for (size_t k = 0; k < n; ++k) to[k] = static_cast<int16_t>(static_cast<int8_t>(from[k]) - ax);
  }
  return stored_inp.data();
}

/// Whether outer iterations may run in any order.
bool GemmUnit::State::may_reorder(const isa::Gemm& g) {
  if (g.accumulate) return true;
  const auto nest = make_nest(0, isa::kLoops - g.reduce, g.extent, g.acc_stride);
  const size_t depth = scratchpads.depth(isa::Space::kAcc);
  if (nest.iterations() > depth) return false;
  seen.assign((depth + 63) / 64, 0);
  bool distinct = true;
  for_each_iteration(nest, {g.acc_addr}, [&](const std::array<int32_t, 1>& at) {
    const auto entry = static_cast<size_t>(at[0]);
    uint64_t& word = seen[entry / 64];
    const uint64_t bit = uint64_t{1} << (entry % 64);
    distinct = distinct && (word & bit) == 0;
    word |= bit;
  });
  return distinct;
}

/// Steps of the reduction. Entry offsets may be negative relative to the first; offsets in bytes wrap modulo 2^32 and
/// cancel in their sums, which are kept below 2^32: they address X relative to the lowest entry touched, which is
/// returned.
int32_t GemmUnit::State::list_steps(const Nest<2>& nest, size_t inp_entry_bytes) {
  step_inp.clear();
  step_wgt.clear();
  int32_t lowest = 0;
  for_each_iteration(nest, {0, 0}, [&](const std::array<int32_t, 2>& at) {
    step_inp.push_back(at[0]);
    step_wgt.push_back(at[1]);
    lowest = std::min(lowest, at[0]);
  });
  const size_t steps = step_inp.size();
  step_x.resize(steps);
  step_w.resize(steps);
  for (size_t t = 0; t < steps; ++t) {
    step_x[t] = static_cast<uint32_t>(static_cast<size_t>(step_inp[t] - lowest) * inp_entry_bytes);
  }
  return lowest;
}

/// Rows of results, at the first position of the weights.
void GemmUnit::State::list_rows(const Nest<2>& nest, size_t acc_entry_bytes) {
  row_inp.clear();
  row_acc.clear();
  for_each_iteration(nest, {0, 0}, [&](const std::array<int32_t, 2>& at) {
    for (size_t b = 0; b < batch; ++b) {
      row_inp.push_back(at[0]);
      row_acc.push_back(static_cast<uint32_t>(at[1]) * static_cast<uint32_t>(acc_entry_bytes) +
                        static_cast<uint32_t>(b * block_out * 4));
    }
  });
  row_x.resize(row_inp.size());
  row_correction.assign(row_inp.size(), 0);
}

/// Sums of X over BLOCK_IN.
void GemmUnit::State::sum_inp(const DenseView& v) {
  inp_sums.resize(v.inp_count * batch);
  for (size_t r = 0; r < inp_sums.size(); ++r) {
    int32_t sum = 0;
    if (dense.bytes) {
      const uint8_t* p = v.x + r * block_in;
      for (size_t k = 0; k < block_in; ++k) sum += p[k];
    } else {
      const auto* p = reinterpret_cast<const int16_t*>(v.x) + r * block_in;
      for (size_t k = 0; k < block_in; ++k) sum += p[k];
    }
    inp_sums[r] = sum;
  }
}

/// The panels of the steps' weights from entry `wgt` on, and what they add to every sum.
void GemmUnit::State::take_weights(const DenseView& v, int32_t wgt, bool is_unsigned) {
  std::fill(lane_sums.begin(), lane_sums.end(), 0u);
  for (size_t t = 0; t < v.steps; ++t) {
    const auto entry = static_cast<size_t>(wgt + step_wgt[t]);
    pack(entry, is_unsigned);
    step_w[t] = static_cast<uint32_t>(entry * entry_bytes);
    const int32_t* sums = panel_sums.data() + entry * lane_groups * panel_lanes;
    for (size_t l = 0; l < lane_sums.size(); ++l) lane_sums[l] += static_cast<uint32_t>(sums[l]);
  }
  const auto n = static_cast<uint32_t>(v.steps * block_in);
  for (size_t l = 0; l < lane_sums.size(); ++l) {
    lane_correction[l] = static_cast<int32_t>(n * v.zx * v.zw - v.zx * lane_sums[l]);
  }
}

/// The rows' places in X from entry `inp` on, and what they add to every sum.
void GemmUnit::State::take_rows(const DenseView& v, int32_t inp) {
  for (size_t r = 0; r < row_inp.size(); ++r) {
    const auto entry = static_cast<size_t>(inp + row_inp[r] + v.lowest_step) - v.first_inp;
    row_x[r] = static_cast<uint32_t>(entry * v.inp_entry_bytes + r % batch * v.row_bytes);
    if (v.zw == 0) continue;
    uint32_t sum = 0;
    const int32_t base = inp + row_inp[r] - static_cast<int32_t>(v.first_inp);
    for (size_t t = 0; t < v.steps; ++t) {
      sum += static_cast<uint32_t>(inp_sums[static_cast<size_t>(base + step_inp[t]) * batch + r % batch]);
    }
    row_correction[r] = static_cast<int32_t>(0 - v.zw * sum);
  }
}

/// All rows by all lanes, in blocks of nearly equal size, so that none is left with a single row.
void GemmUnit::State::run_blocks(DenseCall& call, uint32_t acc_at) {
  const size_t rows = row_inp.size(), blocks = (rows + kMaxRows - 1) / kMaxRows;
  std::array<uint32_t, kMaxRows> block_acc{};
  uint8_t* acc = scratchpads.bytes(isa::Space::kAcc).data();
  for (size_t group = 0; group < lane_groups; ++group) {
    call.w = panels.data() + group * panel_bytes;
    call.lanes = static_cast<int>(std::min(panel_lanes, block_out - group * panel_lanes));
    call.lane_correction = lane_correction.data() + group * panel_lanes;
    call.acc = acc + group * panel_lanes * 4;
    for (size_t block = 0; block < blocks; ++block) {
      const size_t first = block * rows / blocks;
      const size_t end = (block + 1) * rows / blocks;
      call.row_x = row_x.data() + first;
      call.row_correction = row_correction.data() + first;
      for (size_t r = first; r < end; ++r) block_acc[r - first] = acc_at + row_acc[r];
      call.row_acc = block_acc.data();
      dense.run(call, static_cast<int>(end - first));
    }
  }
}

/// False when the nest needs the portable loops.
bool GemmUnit::State::run_dense(const isa::Gemm& g) {
  if (dense.run == nullptr) return false;
  const DenseNests nests = dense_nests(g);
  if (nests.steps.iterations() > kMaxSteps || nests.rows.iterations() > kMaxRowsListed || !may_reorder(g)) return false;

  const isa::Operand inp_range = isa::effects(g, config).operands[0];
  const Absorbed absorbed =
      dense.bytes ? Absorbed{g.inp_unsigned ? 0 : -128, g.wgt_unsigned ? 128 : 0} : Absorbed{g.inp_zero, 0};
  DenseView v{};
  v.steps = static_cast<size_t>(nests.steps.iterations());
  v.first_inp = static_cast<size_t>(inp_range.lowest);
  v.inp_count = static_cast<size_t>(inp_range.highest - inp_range.lowest) + 1;
  v.x = store_inp(g, v.first_inp, v.inp_count, absorbed.ax);
  v.zx = static_cast<uint32_t>(g.inp_zero - absorbed.ax);
  v.zw = static_cast<uint32_t>(g.wgt_zero - absorbed.aw);
  v.row_bytes = block_in * (dense.bytes ? 1 : 2);
  v.inp_entry_bytes = batch * v.row_bytes;
  v.acc_entry_bytes = batch * block_out * 4;
  v.lowest_step = list_steps(nests.steps, v.inp_entry_bytes);
  list_rows(nests.rows, v.acc_entry_bytes);
  if (v.zw != 0) sum_inp(v);
  lane_sums.assign(lane_groups * panel_lanes, 0);
  lane_correction.assign(lane_groups * panel_lanes + kMaxLanes, 0);

  DenseCall call;
  call.x = v.x;
  call.step_x = step_x.data();
  call.step_w = step_w.data();
  call.steps = v.steps;
  call.groups = static_cast<int>(broadcast_groups);
  call.accumulate = g.accumulate;
  int32_t rows_valid_for = INT32_MIN;  // the INP entry that row_x and row_correction belong to
  for_each_iteration(nests.weights, {g.inp_addr, g.wgt_addr, g.acc_addr}, [&](const std::array<int32_t, 3>& at) {
    take_weights(v, at[1], g.wgt_unsigned);
    if (at[0] != rows_valid_for) take_rows(v, at[0]);
    rows_valid_for = at[0];
    run_blocks(call, static_cast<uint32_t>(at[2]) * static_cast<uint32_t>(v.acc_entry_bytes));
  });
  return true;
}

bool GemmUnit::State::run_depthwise(const isa::Gemm& g) {
  if (kernels == Kernels::kPortable) return false;
  const int outer = isa::kLoops - g.reduce;
  const int tap_loops = g.reduce < 2 ? 1 : 2;
  const auto outer_nest = make_nest(0, outer, g.extent, g.inp_stride, g.wgt_stride, g.acc_stride);
  const auto group_nest = make_nest(outer, g.reduce - tap_loops, g.extent, g.inp_stride, g.wgt_stride);
  const auto tap_nest = make_nest(isa::kLoops - tap_loops, tap_loops, g.extent, g.inp_stride);
  const uint64_t groups = group_nest.iterations();
  const auto taps = static_cast<size_t>(tap_nest.iterations());
  if (groups > kMaxSteps / taps) return false;

  // Two taps that follow each other in loop 5 are one step: pairs[e] holds entries e and e + the stride of loop 5. An
  // odd last tap has a zero weight beside it.
  const size_t tap_columns = g.extent[isa::kLoops - 1];
  const size_t column_pairs = (tap_columns + 1) / 2;
  const size_t tap_rows = taps / tap_columns;
  const int64_t second = tap_columns > 1 ? g.inp_stride[isa::kLoops - 1] : 0;
  const isa::Operand inp_range = isa::effects(g, config).operands[0];
  const auto first_inp = static_cast<size_t>(inp_range.lowest);
  const auto inp_count = static_cast<size_t>(inp_range.highest - inp_range.lowest) + 1;
  const size_t entry_values = batch * block_in;
  const uint8_t* inp = scratchpads.bytes(isa::Space::kInp).data() + first_inp * entry_values;
  inp_pairs.resize(inp_count * entry_values + 16);                     // kernels may read a vector past the last lane
  const auto pairs = [&](size_t from, size_t end, int64_t distance) {  // entries relative to first_inp
    if (from >= end) return;
    const uint8_t* x = inp + from * entry_values;
    make_pairs(kernels, {x, x + distance * static_cast<int64_t>(entry_values), g.inp_unsigned, g.inp_zero,
                         (end - from) * entry_values, inp_pairs.data() + from * entry_values});
  };
  // Entries whose partner lies outside the range are never the first of a pair; their partner's weight is 0.
  const auto reach = std::min(static_cast<size_t>(second < 0 ? -second : second), inp_count);
  if (second >= 0) {
    pairs(0, inp_count - reach, second);
    pairs(inp_count - reach, inp_count, 0);
  } else {
    pairs(0, reach, 0);
    pairs(reach, inp_count, second);
  }

  const auto lanes = static_cast<size_t>(config.lanes());
  const size_t lane_out = block_out > block_in ? g.lane * lanes : 0;
  const size_t lane_in = block_in > block_out ? g.lane * lanes : 0;
  const size_t steps = static_cast<size_t>(groups) * tap_rows * column_pairs;
  const auto inp_entry = static_cast<int32_t>(entry_values);
  tap_step.clear();
  step_wgt.clear();
  for_each_iteration(group_nest, {0, 0}, [&](const std::array<int32_t, 2>& group) {
    step_wgt.push_back(group[1]);
    size_t tap = 0;
    for_each_iteration(tap_nest, {group[0]}, [&](const std::array<int32_t, 1>& at) {
      if (tap++ % tap_columns % 2 == 0) tap_step.push_back(at[0] * inp_entry);
    });
  });
  tap_weights.resize(steps * lanes + 16);
  int32_t weights_valid_for = INT32_MIN;
  const uint8_t* wgt = scratchpads.bytes(isa::Space::kWgt).data();
  const auto weight = [&](const uint8_t* entry, size_t lane, size_t tap) {
    const int byte =
        config.depthwise_byte(static_cast<int>(lane_out + lane), static_cast<int>(tap), static_cast<int>(taps));
    return int32_t{static_cast<int8_t>(entry[lane * block_in + static_cast<size_t>(byte)])};
  };
  DepthwiseCall call;
  call.x = inp_pairs.data();
  call.step_x = tap_step.data();
  call.w = tap_weights.data();
  call.steps = steps;
  call.lanes = lanes;
  call.acc = scratchpads.bytes(isa::Space::kAcc).data();
  call.accumulate = g.accumulate;
  const size_t most_rows = static_cast<size_t>(std::min(outer_nest.iterations(), kMaxRowsListed)) * batch;
  row_inp.resize(most_rows);
  row_acc.resize(most_rows);
  size_t rows = 0;
  const auto flush = [&] {  // runs the rows listed since the weights changed
    call.rows = rows;
    call.row_x = row_inp.data();
    call.row_acc = row_acc.data();
    depthwise(call);
    rows = 0;
  };
  for_each_iteration(outer_nest, {g.inp_addr, g.wgt_addr, g.acc_addr}, [&](const std::array<int32_t, 3>& at) {
    if (at[1] != weights_valid_for || rows == most_rows) {
      flush();
      weights_valid_for = at[1];
      uint32_t* to = tap_weights.data();
      for (const int32_t group : step_wgt) {
        const uint8_t* entry = wgt + (static_cast<size_t>(at[1] + group) * block_out + lane_out) * block_in;
        for (size_t row = 0; row < tap_rows; ++row) {
          for (size_t column = 0; column < tap_columns; column += 2, to += lanes) {
            const size_t tap = row * tap_columns + column;
            const bool two = column + 1 < tap_columns;
            for (size_t c = 0; c < lanes; ++c) {
              to[c] = make_pair(weight(entry, c, tap), two ? weight(entry, c, tap + 1) : 0);
            }
          }
        }
      }
    }
    for (size_t b = 0; b < batch; ++b, ++rows) {
      row_inp[rows] =
          (at[0] - static_cast<int32_t>(first_inp)) * inp_entry + static_cast<int32_t>(b * block_in + lane_in);
      row_acc[rows] = static_cast<uint32_t>(((static_cast<size_t>(at[2]) * batch + b) * block_out + lane_out) * 4);
    }
  });
  flush();
  return true;
}

GemmUnit::GemmUnit(const isa::MachineConfig& config, Scratchpads& scratchpads, Kernels kernels)
    : state_(std::make_unique<State>(config, scratchpads, kernels)) {}

GemmUnit::~GemmUnit() = default;

void GemmUnit::run(const isa::Gemm& gemm) {
  bool done = false;
  switch (gemm.mode) {
    case isa::GemmMode::kDense: done = state_->run_dense(gemm); break;
    case isa::GemmMode::kDepthwise: done = state_->run_depthwise(gemm); break;
  }
  if (!done) run_gemm_portable(gemm, state_->config, state_->scratchpads);
}

void GemmUnit::weights_written(size_t first, size_t count) {
  if (state_->packed.empty() || count == 0) return;
  const size_t entry = state_->scratchpads.entry_bytes(isa::Space::kWgt);
  const size_t end = std::min((first + count - 1) / entry + 1, state_->packed.size());
  for (size_t e = first / entry; e < end; ++e) state_->packed[e] = State::Packed::kNo;
}

}  // namespace tessera::sim
