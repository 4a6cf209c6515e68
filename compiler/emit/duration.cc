// SPDX-License-Identifier: Apache-2.0
// Closed forms of isa/timing.md.
#include "compiler/emit/duration.h"

#include <algorithm>

#include "isa/effects.h"
#include "isa/generated/timing.h"
#include "isa/raster.h"

namespace tessera::emit {

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <typename Extent, size_t N>
int64_t product(const std::array<Extent, N>& extent, size_t first = 0, size_t last = N) {
  int64_t result = 1;
  for (size_t k = first; k < last; ++k) result *= extent[k];
  return result;
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

Duration duration(const isa::Instruction& instruction, const isa::MachineConfig& config) {
  Duration result;
  const int64_t w = config.axi_bytes, join_bytes = isa::timing::transfer::kJoinBeats * w;
  if (const auto* gemm = std::get_if<isa::Gemm>(&instruction)) {
    result.engine = static_cast<int64_t>(isa::gemm_steps(*gemm));
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
    result.bursts = joined ? ceil_div(runs * load->length, join_bytes) : runs;
    result.runs = joined ? ceil_div((runs + padded) * load->length, join_bytes) + (padded > 0 && runs > 0 ? 1 : 0)
                         : runs + padded;
  } else if (const auto* store = std::get_if<isa::Store>(&instruction)) {
    const int64_t runs = product(store->extent);
    const bool joined = continues(store->extent, store->sp_stride, store->dram_stride, store->length);
    const Run run = average_run(store->extent, store->dram_stride, static_cast<int64_t>(store->dram_offset),
                                store->sp_stride, store->sp_addr, store->length, w);
    result.beats =
        joined ? ceil_div(runs * store->length, w) : static_cast<int64_t>(static_cast<double>(runs) * run.beats);
    result.engine =
        joined ? result.beats + 1 : static_cast<int64_t>(static_cast<double>(runs) * (run.beats + run.stores));
    result.bursts = joined ? ceil_div(runs * store->length, join_bytes) : runs;
  }
  return result;
}

}  // namespace tessera::emit
