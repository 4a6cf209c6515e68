// SPDX-License-Identifier: Apache-2.0
// Closed forms of isa/timing.md.
#include "compiler/emit/duration.h"

#include <algorithm>

#include "isa/effects.h"

namespace tessera::emit {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename Extent, size_t N>
int64_t product(const std::array<Extent, N>& extent, size_t first = 0, size_t last = N) {
  int64_t result = 1;
  for (size_t k = first; k < last; ++k) result *= extent[k];
  return result;
}

/// Stride 1 or 2 with which a loop walks along taps of the given count and stride; 0: it does not.
int64_t walk(const isa::Gemm& gemm, size_t loop, int64_t taps, int64_t tap_stride) {
  const bool still = gemm.extent[loop] == 1 || gemm.wgt_stride[loop] == 0;
  if (!still) return 0;
  if (gemm.extent[loop] == 1 || taps == 1 || gemm.inp_stride[loop] == tap_stride) return 1;
  return gemm.inp_stride[loop] == 2 * tap_stride ? 2 : 0;
}

/// Beats, groups of the scratchpad and extra cycles of the realigner that a run takes on average, in the terms of
/// isa/timing.md.
struct Run {
  double beats = 0, groups = 0;
  double turns = 0;   // LOAD: its first byte lies further on in its beat than in its group
  double stores = 0;  // STORE: the other way round
};

/// Averages over the first runs of a transfer; alignments repeat soon.
template <typename Extent, size_t N>
Run average_run(const std::array<Extent, N>& extent, const std::array<int32_t, N>& dram_stride, int64_t dram,
                const std::array<int32_t, N>& sp_stride, int64_t sp, int64_t length, int64_t w) {
  constexpr int64_t kSamples = 64;
  Run run;
  std::array<int64_t, N> at{};
  int64_t count = 0;
  for (bool more = product(extent) > 0; more && count < kSamples; ++count) {
    int64_t from = dram, to = sp;
    for (size_t k = 0; k < N; ++k) {
      from += at[k] * dram_stride[k];
      to += at[k] * sp_stride[k];
    }
    from = ((from % w) + w) % w;
    to = ((to % w) + w) % w;
    run.beats += static_cast<double>(ceil_div(from + length, w));
    run.groups += static_cast<double>(ceil_div(to + length, w));
    run.turns += from > to ? 1 : 0;
    run.stores += to > from ? 1 : 0;
    more = false;
    for (size_t k = N; k-- > 0 && !more;) {
      more = ++at[k] < static_cast<int64_t>(extent[k]);
      if (!more) at[k] = 0;
    }
  }
  const auto n = static_cast<double>(std::max<int64_t>(count, 1));
  return {run.beats / n, run.groups / n, run.turns / n, run.stores / n};
}

/// Whether each run of the innermost loop continues the one before on both sides.
template <typename Extent, size_t N>
bool continues(const std::array<Extent, N>& extent, const std::array<int32_t, N>& sp_stride,
               const std::array<int32_t, N>& dram_stride, int64_t length) {
  for (size_t k = N; k-- > 0;) {
    if (extent[k] > 1) return sp_stride[k] == length && dram_stride[k] == length;
  }
  return true;
}

}  // namespace

int64_t gemm_steps(const isa::Gemm& gemm) {
  const int64_t steps = product(gemm.extent);
  if (gemm.mode != isa::GemmMode::kDepthwise || gemm.reduce < 1 || gemm.reduce > 2) return steps;
  const int64_t kw = gemm.extent[5], kh = gemm.reduce == 2 ? gemm.extent[4] : 1;
  if (kh > 3) return steps;
  const size_t x = 5 - gemm.reduce, y = 4 - gemm.reduce;
  const int64_t row = gemm.reduce == 2 ? gemm.inp_stride[4] : 0;
  const int64_t along_x = walk(gemm, x, kw, gemm.inp_stride[5]), along_y = walk(gemm, y, kh, row);
  const int64_t x_rows = walk(gemm, x, kh, row);
  int64_t nx = 1, ny = 1, sx = 1, sy = 1;
  size_t kept = 0;
  if (along_x != 0 && along_y != 0) {
    nx = gemm.extent[x], ny = gemm.extent[y], sx = along_x, sy = along_y, kept = y;
  } else if (along_x != 0) {
    nx = gemm.extent[x], sx = along_x, kept = x;
  } else if (x_rows != 0) {
    ny = gemm.extent[x], sy = x_rows, kept = x;
  } else {
    return steps;
  }
  const int64_t cols = (nx - 1) * sx + kw, rows = (ny - 1) * sy + kh;
  if (cols > 4095 || rows > 4095 || (kh > 1 && (cols < 2 || cols > 512))) return steps;
  return product(gemm.extent, 0, kept) * rows * cols;
}

Duration duration(const isa::Instruction& instruction, const isa::MachineConfig& config) {
  Duration result;
  const int64_t w = config.axi_bytes;
  if (const auto* gemm = std::get_if<isa::Gemm>(&instruction)) {
    result.engine = gemm_steps(*gemm);
    result.outputs = product(gemm->extent, 0, static_cast<size_t>(isa::kLoops - gemm->reduce));
  } else if (const auto* alu = std::get_if<isa::Alu>(&instruction)) {
    result.engine = product(alu->extent);
    result.outputs = product(alu->extent, 0, static_cast<size_t>(isa::kLoops - alu->reduce));
    if (alu->second_op != isa::SecondOp::kNone && alu->src == isa::AluSpace::kOut) result.engine += result.outputs;
  } else if (const auto* load = std::get_if<isa::Load>(&instruction)) {
    std::array<int64_t, isa::kTransferLoops> inside;
    std::copy(load->extent.begin(), load->extent.end(), inside.begin());
    for (size_t k = 0; k < load->pad_before.size(); ++k)
      inside[k] = std::max<int64_t>(0, inside[k] - load->pad_before[k] - load->pad_after[k]);
    const isa::Effects effects = isa::effects(instruction, config);
    const isa::Operand* source = effects.dram();
    const int64_t runs = source == nullptr ? 0 : source->accesses, padded = effects.iterations - runs;
    const bool joined =
        continues(load->extent, load->sp_stride, load->fill ? load->sp_stride : load->dram_stride, load->length);
    const Run run = average_run(inside, load->dram_stride, static_cast<int64_t>(load->dram_offset), load->sp_stride,
                                load->sp_addr, load->length, w);
    result.engine = joined ? ceil_div(runs * load->length, w) + 1
                           : static_cast<int64_t>(static_cast<double>(runs) * (run.groups + run.turns));
    result.engine += joined ? ceil_div(padded * load->length, w) : padded * ceil_div(load->length, w);
    result.beats =
        joined ? ceil_div(runs * load->length, w) : static_cast<int64_t>(static_cast<double>(runs) * run.beats);
    result.bursts = joined ? ceil_div(runs * load->length, 128 * w) : runs;
    result.runs =
        joined ? ceil_div((runs + padded) * load->length, 128 * w) + (padded > 0 && runs > 0 ? 1 : 0) : runs + padded;
  } else if (const auto* store = std::get_if<isa::Store>(&instruction)) {
    const int64_t runs = product(store->extent);
    const bool joined = continues(store->extent, store->sp_stride, store->dram_stride, store->length);
    const Run run = average_run(store->extent, store->dram_stride, static_cast<int64_t>(store->dram_offset),
                                store->sp_stride, store->sp_addr, store->length, w);
    result.beats =
        joined ? ceil_div(runs * store->length, w) : static_cast<int64_t>(static_cast<double>(runs) * run.beats);
    result.engine =
        joined ? result.beats + 1 : static_cast<int64_t>(static_cast<double>(runs) * (run.beats + run.stores));
    result.bursts = joined ? ceil_div(runs * store->length, 128 * w) : runs;
  }
  return result;
}

}  // namespace tessera::emit
