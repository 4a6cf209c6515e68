// SPDX-License-Identifier: Apache-2.0
// Products of two run-time tensors: their tasks, the second operand's way into WGT and the products over a tile. Rows
// of a matrix are pixels, its number in the batch an image and a row of pixels; with BATCH > 1 the rows are the images
// of an entry and the batch takes their place. The second operand (the factor) is fetched block by block into the
// layout of weights, in runs of BLOCK_IN bytes where its k is contiguous, byte by byte where it is not. A transposition
// is a product whose first operand is a unit matrix of one block.
#include <algorithm>

#include "base/error.h"
#include "compiler/npu/nest_lowering.h"
#include "compiler/npu/task_parts.h"

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
void collapse_batch(Nest& nest, int64_t& n, int64_t& h, int64_t& rows) {
  Factor& f = nest.factor;
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

/// Extents and pitches of (n, h, rows): n and h become kN and kOh, rows kOw; with BATCH > 1 n and rows change places.
void place_rows(Nest& nest, const isa::MachineConfig& config, int64_t n, int64_t h, int64_t rows) {
  nest.extent[Dim::kOh] = h;
  nest.images = config.batch > 1 ? rows : n;
  nest.extent[Dim::kOw] = config.batch > 1 ? n : rows;
  if (config.batch > 1) {
    for (Access* a : {&nest.input, &nest.second, &nest.output}) {
      std::swap(a->pitch_n, a->pitch_w);
      std::swap(a->broadcast_n, a->broadcast_w);
    }
    std::swap(nest.factor.pitch_n, nest.factor.pitch_w);
  }
  nest.input.row_begin = nest.input.col_begin = 0;
  nest.input.row_end = nest.extent[Dim::kOh];
  nest.input.col_end = nest.extent[Dim::kOw];
}

void push(Nest nest, const Stage& stage, const isa::MachineConfig& config, Task task, std::vector<Task>& tasks) {
  nest.computation = Computation::kDense;
  finish_nest(nest, config);
  task.stage = &stage;
  task.alternatives.push_back(std::move(nest));
  tasks.push_back(std::move(task));
}

}  // namespace

void make(const Product& op, const Graph& graph, const std::vector<Placement>& placements,
          const isa::MachineConfig& config, const Options& options, std::vector<Task>& tasks) {
  const auto tensor = [&](TensorId id) -> const Tensor& { return graph.tensors[static_cast<size_t>(id)]; };
  const auto place = [&](TensorId id) -> const Placement& { return placements[static_cast<size_t>(id)]; };
  const Tensor &input = tensor(op.input), &factor = tensor(op.factor), &output = tensor(op.output);
  Nest nest = start_nest(graph, output, place(op.output), op.stage, placements);
  nest.input = access_of(input, place(op.input));
  const bool placed = place(op.input).region_bytes > 0;  // a link's result on chip has no pitches
  const auto repeated = [&](int64_t extent, int64_t pitch) { return extent == 1 || (placed && pitch == 0); };
  if (repeated(input.n, nest.input.pitch_n)) nest.input.broadcast_n = output.n > 1, nest.input.pitch_n = 0;
  if (repeated(input.h, nest.input.pitch_h)) nest.input.broadcast_h = output.h > 1, nest.input.pitch_h = 0;
  const Placement& at = place(op.factor);
  nest.factor.present = true;
  nest.factor.base = at.base;
  nest.factor.offset = at.offset;
  nest.factor.pitch_n = factor.n > 1 ? at.image_pitch : 0;
  nest.factor.pitch_h = factor.h > 1 ? at.row_pitch : 0;
  nest.factor.pitch_k = op.transposed ? 1 : at.pixel_pitch;
  nest.factor.pitch_column = op.transposed ? at.pixel_pitch : 1;
  nest.factor.is_unsigned = factor.is_unsigned;
  nest.in_channels = {input.c, input.c, config.block_in};
  nest.out_channels = {output.c, output.c, config.block_out};
  int64_t n = output.n, h = output.h, rows = output.w;
  if (options.collapse_pixels) collapse_batch(nest, n, h, rows);
  place_rows(nest, config, n, h, rows);
  Task task;
  task.input_zero = op.input_zero;
  task.factor_zero = op.factor_zero;
  push(std::move(nest), op.stage, config, std::move(task), tasks);
}

void make(const Transposition& op, const Graph& graph, const std::vector<Placement>& placements,
          const isa::MachineConfig& config, const Options& options, std::vector<Task>& tasks) {
  const Tensor& input = graph.tensors[static_cast<size_t>(op.input)];
  const Tensor& output = graph.tensors[static_cast<size_t>(op.output)];
  const Placement& at = placements[static_cast<size_t>(op.input)];
  Nest whole = start_nest(graph, output, placements[static_cast<size_t>(op.output)], op.stage, placements);
  whole.factor.present = true;
  whole.factor.base = at.base;
  whole.factor.offset = at.offset;
  whole.factor.pitch_n = at.image_pitch;
  whole.factor.pitch_h = at.row_pitch;
  whole.factor.pitch_column = at.pixel_pitch;
  whole.factor.is_unsigned = input.is_unsigned;
  whole.out_channels = {output.c, output.c, config.block_out};
  int64_t images = output.n, h = output.h, rows = output.w;
  if (options.collapse_pixels && (h == 1 || whole.factor.pitch_n == h * whole.factor.pitch_h) &&
      collapse(whole, kImagesIntoRows, images, h)) {
    if (h == 1) whole.factor.pitch_h = whole.factor.pitch_n;
    h *= images;
    images = 1;
  }
  // Each block of BLOCK_IN rows of the result is a product of its own; what is left over has fewer.
  const int64_t block = config.block_in, blocks = rows / block;
  for (int64_t image = 0; image < images; ++image) {
    for (const auto& [first, count, size] :
         {std::array<int64_t, 3>{0, blocks, block}, {blocks * block, rows % block > 0 ? 1 : 0, rows % block}}) {
      if (count == 0) continue;
      Nest nest = whole;
      nest.in_channels = {size, size, block};
      nest.factor.offset += image * whole.factor.pitch_n + first;
      nest.factor.pitch_n = h > 1 ? whole.factor.pitch_h : 0;
      nest.factor.pitch_h = count > 1 ? block : 0;
      for (Access* a : {&nest.second, &nest.output}) {
        a->offset += image * a->pitch_n + first * a->pitch_w;
        a->pitch_n = a->pitch_h;
        a->broadcast_n = a->broadcast_h;
        a->pitch_h = block * a->pitch_w;
        a->broadcast_h = a->broadcast_w;
      }
      nest.input.present = true;
      nest.input.base = kConstantBase;
      nest.input.pitch_w = block;
      nest.input.broadcast_n = nest.input.broadcast_h = true;
      place_rows(nest, config, h, count, size);
      Task task;
      task.unit_input = true;
      push(std::move(nest), op.stage, config, std::move(task), tasks);
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
    part.loops.push_back({columns, f.pitch_column, in});
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
