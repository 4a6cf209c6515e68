// SPDX-License-Identifier: Apache-2.0
// Products of two run-time tensors: their tasks, the second operand's way into WGT and the products over a tile. Rows
// of a matrix are pixels, its number in the batch an image and a row of pixels; with BATCH > 1 the rows are the images
// of an entry and the batch takes their place. The second operand (the factor) is fetched block by block into the
// layout of weights, in runs of BLOCK_IN bytes where its k is contiguous, byte by byte where it is not. A transposition
// is a product whose first operand is a unit matrix of one block.
#include <algorithm>

#include "base/error.h"
#include "compiler/npu/lowering/nest_lowering.h"
#include "compiler/npu/tasks/compute.h"

namespace tessera::npu {

using schedule::Access;
using schedule::Computation;
using schedule::Dim;
using schedule::Extents;
using schedule::Factor;
using schedule::Nest;

namespace {

/// The batch from two dimensions into one, or into the rows where there is one factor for all, as far as the pitches
/// allow.
void collapse_batch(Nest& nest) {
  Factor& f = nest.factor;
  int64_t &n = nest.images, &h = nest.extent[Dim::kOh], &rows = nest.extent[Dim::kOw];
  if (f.pitch_n == 0 && f.pitch_h == 0 && collapse(nest, kRowsIntoColumns, h, rows)) {
    rows *= h;
    h = 1;
    if (collapse(nest, kImagesIntoColumns, n, rows)) {
      rows *= n;
      n = 1;
    }
  }
  if ((h == 1 || f.pitch_n == h * f.pitch_h) && collapse(nest, kImagesIntoRows, n, h)) {
    if (h == 1) f.pitch_h = f.pitch_n;
    f.pitch_n = 0;
    h *= n;
    n = 1;
  }
}

/// With BATCH > 1 images and rows of the matrix change places. Its input is whole.
void add_product(Nest nest, const Maker& maker, Task task) {
  if (maker.config.batch > 1) {
    std::swap(nest.images, nest.extent[Dim::kOw]);
    for (Access* a : {&nest.input, &nest.second, &nest.output}) {
      std::swap(a->pitch_n, a->pitch_w);
      std::swap(a->broadcast_n, a->broadcast_w);
    }
    std::swap(nest.factor.pitch_n, nest.factor.pitch_w);
  }
  const Factor& f = nest.factor;
  nest.factor.beside = maker.config.cores > 1 && f.pitch_k == 1 && f.pitch_w == 0 &&
                       f.pitch_h == maker.config.block_in && nest.in_channels.total == maker.config.block_in;
  nest.input.row_begin = nest.input.col_begin = 0;
  nest.input.row_end = nest.extent[Dim::kOh];
  nest.input.col_end = nest.extent[Dim::kOw];
  maker.add(std::move(nest), std::move(task));
}

}  // namespace

/// sum over k of (input[n, h, w, k] - zero) * (factor[n, h, k, c] - zero).
void make(const Product& op, const Maker& maker) {
  using namespace loops;
  const Tensor &input = maker.tensor(op.input), &factor = maker.tensor(op.factor);
  const Placement& place = maker.place(op.input);
  const bool placed = place.region_bytes > 0;  // a link's result on chip has no pitches
  const auto along = [](const Index& loop, int64_t extent, bool same) { return extent == 1 || same ? Index{} : loop; };
  Compute made = maker.every(op.output);
  made.computation = Computation::kDense;
  made[Loop::kK] = input.c;
  made.input = {
      op.input,
      {along(n, input.n, placed && place.image_pitch == 0), along(h, input.h, placed && place.row_pitch == 0), w, k}};
  made.factor = {op.factor,
                 {along(n, factor.n, false), along(h, factor.h, false), op.transposed ? c : k, op.transposed ? k : c}};
  Nest nest = maker.nest(made, op.stage);
  if (maker.options.collapse_pixels) collapse_batch(nest);
  add_product(std::move(nest), maker, {.stage = &op.stage, .input_zero = op.input_zero, .factor_zero = op.factor_zero});
}

/// sum over k of unit[w, k] * input[n, h, c, k], for each block of BLOCK_IN rows; what is left over has fewer.
void make(const Transposition& op, const Maker& maker) {
  using namespace loops;
  const Tensor& output = maker.tensor(op.output);
  // Matrices of all images are one dimension where they follow each other everywhere.
  std::vector<TensorId> operands{op.input, op.output};
  if (op.stage.second) operands.push_back(op.stage.second->tensor);
  const bool follow = maker.options.collapse_pixels && std::ranges::all_of(operands, [&](TensorId id) {
                        const Tensor& t = maker.tensor(id);
                        const bool both = t.n == 1 && t.h == 1, neither = t.n == output.n && t.h == output.h;
                        return output.n == 1 || output.h == 1 || both ||
                               (neither && maker.place(id).image_pitch == t.h * maker.place(id).row_pitch);
                      });
  const int64_t block = maker.config.block_in, blocks = output.w / block;
  for (int64_t image = 0; image < (follow ? 1 : output.n); ++image) {
    const Index images = follow && output.h == 1 ? n : at(image), rows = follow && output.h == 1 ? Index{} : n;
    for (const auto& [first, count, size] :
         {std::array<int64_t, 3>{0, blocks, block}, {blocks * block, output.w % block > 0 ? 1 : 0, output.w % block}}) {
      if (count == 0) continue;
      Compute made;
      made.computation = Computation::kDense;
      made.extent = {follow ? output.n * output.h : output.h, count, size, output.c, 1, 1, size};
      made.result = {op.output, {images, rows, at(first) + block * h + w, c}};
      made.factor = {op.input, {images, rows, c, at(first) + block * h + k}};
      add_product(maker.nest(made, op.stage), maker, {.stage = &op.stage, .unit_input = true});
    }
  }
}

bool pays_to_transpose(const Tensor& input, const Tensor& factor, const Tensor& output,
                       const isa::MachineConfig& config, const Options& options) {
  constexpr int64_t kMostBytes = 4096;  // beyond, single bytes never win
  if (factor.elements() > kMostBytes) return true;
  const auto cycles = [&](bool first) {
    Graph graph;
    Product product;
    product.input = graph.add(input);
    product.factor = graph.add(factor);
    product.transposed = first;
    product.stage.convert = true;
    product.stage.multiplier = {1.0f};
    graph.inputs = {product.input, product.factor};
    if (first) {
      Transposition turn;
      turn.input = product.factor;
      Tensor turned = factor;
      std::swap(turned.w, turned.c);
      turn.output = product.factor = graph.add(turned);
      graph.operations.push_back({"factor", "Transpose", kNoMacs, turn});
    }
    product.output = graph.add(output);
    graph.outputs = {product.output};
    graph.operations.push_back({"product", "MatMul", 0, product});
    int64_t sum = 0;
    for (const LayerInfo& layer : compile(graph, config, alone(options)).layers) sum += layer.estimated_cycles;
    return sum;
  };
  return cycles(true) < cycles(false);
}

void NestLowering::load_factor(const Tile& tile, size_t slot) {
  const schedule::Factor& f = nest_.factor;
  const Extents &b = tile.begin, &c = tile.count;
  const int64_t in = config_.block_in, entry = config_.wgt_entry_bytes();
  const int64_t oc = c[Dim::kOc], ic = c[Dim::kIc], matrix = ic * oc * entry;
  const int64_t first_column = b[Dim::kOc] * config_.block_out, first_k = b[Dim::kIc] * in;
  const int64_t columns = std::min(oc * config_.block_out, nest_.out_channels.total - first_column);
  const int64_t k = std::min(ic * in, nest_.in_channels.total - first_k), whole = k / in, rest = k % in;
  Transfer t;
  t.space = isa::Space::kWgt;
  t.base = f.base;
  t.dram_offset = f.offset + first_column * f.pitch_column + first_k * f.pitch_k;
  t.sp_addr = weights_.address(slot) * entry;
  int64_t stride = matrix;
  for (const auto& [dim, pitch] :
       {std::pair{Dim::kOw, f.pitch_w}, std::pair{Dim::kOh, f.pitch_h}, std::pair{Dim::kN, f.pitch_n}}) {
    if (!f.indexed(dim)) continue;
    t.dram_offset += b[dim] * pitch;
    t.loops.insert(t.loops.begin(), {c[dim], pitch, stride});
    stride *= c[dim];
  }
  // Lanes past the end of k: their products must vanish. The unit matrix has zeros there.
  if (rest > 0 && !task_.unit_input) {
    const std::array<int64_t, 4> frame{stride, oc, ic, columns};
    const auto known = factor_frames_.find(slot);
    if (known == factor_frames_.end() || known->second != frame) {
      Transfer fill = t;
      fill.fill = true;
      fill.pad_value = static_cast<uint8_t>(task_.factor_zero);
      fill.sp_addr += whole * oc * entry + rest;
      fill.length = in - rest;
      fill.loops.push_back({columns, 0, in});
      emit(fill, Stream::kWeights);
      factor_frames_[slot] = frame;
    }
  } else {
    factor_frames_.erase(slot);
  }
  const auto fetch = [&](int64_t first, int64_t blocks, int64_t lanes) {
    Transfer part = t;  // blocks that continue each other in DRAM side by side: LOAD requests them together
    part.dram_offset += first * in * f.pitch_k;
    part.sp_addr += first * oc * entry;
    // Of matrices side by side a column of all of them is one stretch of DRAM.
    part.loops.insert(part.loops.end() - (f.beside ? 1 : 0), {columns, f.pitch_column, in});
    part.loops.push_back({blocks, in * f.pitch_k, oc * entry});
    if (f.pitch_k != 1) std::swap(part.loops[part.loops.size() - 2], part.loops.back());
    part.length = lanes;
    if (f.pitch_k != 1) {
      part.loops.push_back({lanes, f.pitch_k, 1});
      part.length = 1;
    }
    emit(part, Stream::kWeights);
  };
  if (whole > 0) fetch(0, whole, in);
  if (rest > 0) fetch(whole, 1, rest);
}

void NestLowering::load_unit(const Tile& tile, int64_t entry) {
  const Dim rows = config_.batch > 1 ? Dim::kN : Dim::kOw;
  std::vector<uint8_t> bytes;
  for (int64_t row = tile.begin[rows] * config_.batch; row < (tile.begin[rows] + tile.count[rows]) * config_.batch;
       ++row) {
    for (int64_t i = 0; i < config_.block_in; ++i) bytes.push_back(row == i ? 1 : 0);
  }
  load_blob(isa::Space::kInp, entry, add_blob(std::move(bytes)), Stream::kParams);
}

}  // namespace tessera::npu
