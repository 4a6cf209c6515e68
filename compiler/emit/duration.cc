// SPDX-License-Identifier: Apache-2.0
// Closed forms of isa/timing.md.
#include "compiler/emit/duration.h"

#include <algorithm>

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
  } else if (const auto* alu = std::get_if<isa::Alu>(&instruction)) {
    result.engine = product(alu->extent);
    if (alu->second_op != isa::SecondOp::kNone && alu->src == isa::AluSpace::kOut) {
      result.engine += product(alu->extent, 0, static_cast<size_t>(isa::kLoops - alu->reduce));
    }
  } else if (const auto* load = std::get_if<isa::Load>(&instruction)) {
    std::array<int64_t, isa::kTransferLoops> inside;
    std::copy(load->extent.begin(), load->extent.end(), inside.begin());
    for (size_t k = 0; k < load->pad_before.size(); ++k) inside[k] = std::max<int64_t>(0, inside[k] - load->pad_before[k] - load->pad_after[k]);
    const int64_t runs = load->fill ? 0 : product(inside), all = product(load->extent);
    // A run that is not a multiple of the bus touches one group or beat more, now and then; runs that continue each other do not.
    const bool whole = load->length % w == 0 && load->sp_addr % w == 0;
    const int64_t groups = whole ? load->length / w : ceil_div(load->length, w) + (load->length % w != 1 ? 1 : 0);
    bool joined = true;  // padding written along with the runs joins likewise
    for (size_t k = isa::kTransferLoops - 1; k < isa::kTransferLoops; --k) {
      if (load->extent[k] > 1) {
        joined = load->sp_stride[k] == load->length && (load->fill || load->dram_stride[k] == load->length);
        break;
      }
    }
    result.engine = joined ? ceil_div(all * load->length, w) + 1 : all * groups;
    result.beats = joined ? ceil_div(runs * load->length, w) : runs * groups;
    result.bursts = joined ? ceil_div(runs * load->length, 128 * w) : runs;
  } else if (const auto* store = std::get_if<isa::Store>(&instruction)) {
    const int64_t runs = product(store->extent);
    const bool whole = store->length % w == 0;
    const int64_t groups = whole ? store->length / w : ceil_div(store->length, w) + (store->length % w != 1 ? 1 : 0);
    result.engine = result.beats = runs * groups;
    result.bursts = runs;
  }
  return result;
}

}  // namespace tessera::emit
