// SPDX-License-Identifier: Apache-2.0
// Movement that knows about positions: Pad, DepthToSpace, SpaceToDepth, ReverseSequence, Trilu, CenterCropPad, Col2Im.
// Pad builds one table per axis that says where an output position comes from (or that it is filled), so that all modes
// share one copy loop; the two depth/space operators are Movements (movement.h).
#include "ops/kernels/movement.h"
#include "ops/kernels/window.h"

namespace tessera::ops {

std::vector<std::pair<int64_t, int64_t>> pad_amounts(const Node& node, const std::vector<int64_t>& pads,
                                                     const std::optional<std::vector<int64_t>>& axes, int64_t rank) {
  std::vector<int64_t> which;
  if (axes)
    which = kernel::normalise_axes(node, *axes, rank);
  else
    for (int64_t i = 0; i < rank; ++i) which.push_back(i);
  if (pads.size() != 2 * which.size())
    node.fail(ErrorCode::kInvalidModel,
              "pads has " + std::to_string(pads.size()) + " entries for " + std::to_string(which.size()) + " axes");
  for (int64_t pad : pads)
    if (pad < -kernel::kSizeLimit || pad > kernel::kSizeLimit)
      node.fail(ErrorCode::kInvalidModel, std::to_string(pad) + " in pads is no possible size");
  std::vector<std::pair<int64_t, int64_t>> result(static_cast<size_t>(rank), {0, 0});
  for (size_t i = 0; i < which.size(); ++i) result[static_cast<size_t>(which[i])] = {pads[i], pads[i + which.size()]};
  return result;
}

namespace {

using namespace kernel;

// ----------------------------------------------------------------------------------------------------- Pad

/// Copies `in` to `shape`; maps[axis][position] is the source position, or -1 for `fill` (one element).
Tensor mapped_copy(const Tensor& in, const Shape& shape, const std::vector<std::vector<int64_t>>& maps,
                   const Tensor& fill) {
  Tensor out(in.dtype(), shape);
  if (out.size() == 0) return out;
  const std::vector<int64_t> strides = row_strides(in.shape());
  visit_storage(in.dtype(), [&]<typename T>(Tag<T>) {
    const T* x = elements<T>(in);
    const T value = elements<T>(fill)[0];
    T* y = mutable_elements<T>(out);
    if (shape.empty()) {
      y[0] = x[0];
      return;
    }
    const size_t last = shape.size() - 1;
    const std::vector<int64_t>& row = maps[last];
    std::vector<int64_t> index(last, 0);
    for (;;) {
      int64_t base = 0;
      bool filled = false;
      for (size_t d = 0; d < last; ++d) {
        const int64_t from = maps[d][static_cast<size_t>(index[d])];
        if (from < 0)
          filled = true;
        else
          base += from * strides[d];
      }
      if (filled)
        std::fill(y, y + shape[last], value);
      else
        for (int64_t i = 0; i < shape[last]; ++i)
          y[i] = row[static_cast<size_t>(i)] < 0 ? value : x[base + row[static_cast<size_t>(i)]];
      y += shape[last];
      size_t d = last;
      while (d > 0 && ++index[d - 1] == shape[d - 1]) index[--d] = 0;
      if (d == 0) return;
    }
  });
  return out;
}

void infer_pad(InferContext& c) {
  const TypeInfo& in = c.input(0);
  const std::string mode = c.node.get_string("mode", "constant");
  if (mode != "constant" && mode != "reflect" && mode != "edge" && !(mode == "wrap" && c.node.version >= 19))
    c.node.fail(ErrorCode::kInvalidModel,
                "mode '" + mode + "' is not known in opset " + std::to_string(c.node.version));
  const bool attributes = c.node.version < 11;
  if (!attributes) {
    require_type(c.node, c.input(1).dtype, kInt64Set, "pads");
    if (c.has(2)) {
      require_same_type(c.node, in, c.input(2));
      if (c.input(2).is_static() && element_count(c.input(2).shape) != 1)
        c.node.fail(ErrorCode::kInvalidModel, "constant_value must be a scalar");
    }
    if (c.has(3)) require_type(c.node, c.input(3).dtype, kIndex, "axes");
  } else if (!c.node.has("pads")) {
    c.node.fail(ErrorCode::kInvalidModel, "attribute 'pads' is missing");
  }
  const auto pads = attributes ? std::optional(c.node.get_ints("pads")) : known_ints(c, 1);
  if (!in.ranked) {
    const bool all = attributes || !c.has(3);
    const int64_t length = pads ? static_cast<int64_t>(pads->size()) : known_length(c, 1);
    c.outputs[0] = all && length >= 0 ? of_rank(in.dtype, length / 2) : TypeInfo::unranked(in.dtype);
    return;
  }
  const int64_t rank = static_cast<int64_t>(in.shape.size());
  const auto axes = known_ints(c, 3);
  if (!pads || (c.has(3) && !axes)) {
    c.outputs[0] = of_rank(in.dtype, rank);
    if (axes && !pads) {  // only the named axes change
      c.outputs[0].shape = in.shape;
      for (int64_t axis : normalise_axes(c.node, *axes, rank)) c.outputs[0].shape[static_cast<size_t>(axis)] = -1;
    }
    return;
  }
  Shape shape = in.shape;
  const auto each = pad_amounts(c.node, *pads, axes, rank);
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] < 0) {
      continue;
    }
    const auto [begin, end] = each[d];
    const int64_t cropped = shape[d] + std::min<int64_t>(begin, 0) + std::min<int64_t>(end, 0);
    shape[d] += begin + end;
    if (shape[d] < 0 || (cropped < 0 && shape[d] > 0))
      c.node.fail(ErrorCode::kInvalidModel,
                  "pads remove more of axis " + std::to_string(d) + " than shape " + to_string(in.shape) + " has");
    if (cropped <= 0 && mode != "constant" && shape[d] > 0)
      c.node.fail(ErrorCode::kInvalidModel,
                  "mode '" + mode + "' cannot pad axis " + std::to_string(d) + ", which has no element");
  }
  for (size_t d = 0; d < shape.size(); ++d)
    if (in.shape[d] < 0) shape[d] = each[d].first == 0 && each[d].second == 0 ? in.shape[d] : -1;
  c.outputs[0] = TypeInfo::tensor(in.dtype, std::move(shape));
}

void evaluate_pad(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& in = c.input(0);
  const std::string mode = c.node.get_string("mode", "constant");
  const bool attributes = c.node.version < 11;
  std::optional<std::vector<int64_t>> axes;
  if (c.has(3)) axes = c.input(3).to_int64s();
  const auto each = pad_amounts(c.node, attributes ? c.node.get_ints("pads") : c.input(1).to_int64s(), axes, in.rank());
  Tensor fill(in.dtype(), {});
  if (!attributes && c.has(2))
    fill = c.input(2);
  else if (attributes && is_floating(in.dtype()))
    fill = in.dtype() == DType::kDouble ? Tensor::of<double>(DType::kDouble, {}, {c.node.get_float("value", 0)})
                                        : narrow(Tensor::scalar_f32(c.node.get_float("value", 0)), in.dtype());
  std::vector<std::vector<int64_t>> maps;
  for (size_t d = 0; d < in.shape().size(); ++d) {
    // Negative amounts crop first; the modes then see the cropped axis [first, first + length).
    const auto [begin, end] = each[d];
    const int64_t first = begin < 0 ? -begin : 0;
    const int64_t length = in.shape()[d] + std::min<int64_t>(begin, 0) + std::min<int64_t>(end, 0);
    std::vector<int64_t> map(static_cast<size_t>(types[0].shape[d]));
    for (size_t o = 0; o < map.size(); ++o) {
      int64_t i = static_cast<int64_t>(o) - std::max<int64_t>(begin, 0);
      if (i < 0 || i >= length) {
        if (mode == "constant") {
          map[o] = -1;
          continue;
        }
        if (mode == "edge") {
          i = i < 0 ? 0 : length - 1;
        } else {
          const int64_t period = mode == "wrap" ? length : std::max<int64_t>(1, 2 * (length - 1));
          i = ((i % period) + period) % period;
          if (i >= length) i = period - i;
        }
      }
      map[o] = first + i;
    }
    maps.push_back(std::move(map));
  }
  c.outputs[0] = mapped_copy(in, types[0].shape, maps, fill);
}

// ------------------------------------------------------------------------------------------ depth and space

int64_t block_size(const Node& node) {
  const int64_t b = node.get_int("blocksize", 0);
  if (b <= 0 || b > (1 << 20))
    node.fail(ErrorCode::kInvalidModel, "attribute 'blocksize' = " + std::to_string(b) + " is not a possible size");
  return b;
}

/// Whether channels are the slower part of what the block's positions and the depth make together (CRD).
bool depth_last(const Node& node) {
  const std::string mode = node.get_string("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") node.fail(ErrorCode::kInvalidModel, "mode '" + mode + "' is not DCR or CRD");
  return mode == "CRD";
}

void infer_depth_to_space(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_rank(c.node, in, 4, "input");
  const int64_t b = block_size(c.node);
  depth_last(c.node);
  c.outputs[0] = of_rank(in.dtype, 4);
  if (!in.ranked) return;
  if (in.shape[1] >= 0 && in.shape[1] % (b * b) != 0)
    c.node.fail(ErrorCode::kInvalidModel, std::to_string(in.shape[1]) + " channels do not divide by blocksize squared");
  const auto times = [&](int64_t d) { return product(Shape{d, b}); };
  c.outputs[0].shape = {in.shape[0], in.shape[1] < 0 ? -1 : in.shape[1] / (b * b), times(in.shape[2]),
                        times(in.shape[3])};
}

std::vector<Movement> to_space(const Node& node, const std::vector<TypeInfo>& inputs, const std::vector<TypeInfo>&) {
  const Shape& s = inputs[0].shape;
  const int64_t b = block_size(node), depth = s[1] / (b * b);
  if (depth_last(node)) return {permuted({s[0], depth, b, b, s[2], s[3]}, {0, 1, 4, 2, 5, 3})};
  return {permuted({s[0], b, b, depth, s[2], s[3]}, {0, 3, 4, 1, 5, 2})};
}

void infer_space_to_depth(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_rank(c.node, in, 4, "input");
  const int64_t b = block_size(c.node);
  depth_last(c.node);
  c.outputs[0] = of_rank(in.dtype, 4);
  if (!in.ranked) return;
  for (size_t d : {2, 3})
    if (in.shape[d] >= 0 && in.shape[d] % b != 0)
      c.node.fail(ErrorCode::kInvalidModel, "shape " + to_string(in.shape) + " does not divide by blocksize");
  const auto divided = [&](int64_t d) { return d < 0 ? -1 : d / b; };
  c.outputs[0].shape = {in.shape[0], product(Shape{in.shape[1], b, b}), divided(in.shape[2]), divided(in.shape[3])};
}

std::vector<Movement> to_depth(const Node& node, const std::vector<TypeInfo>& inputs, const std::vector<TypeInfo>&) {
  const Shape& s = inputs[0].shape;
  const int64_t b = block_size(node);
  const std::vector<int64_t> order =
      depth_last(node) ? std::vector<int64_t>{0, 1, 3, 5, 2, 4} : std::vector<int64_t>{0, 3, 5, 1, 2, 4};
  return {permuted({s[0], s[1], s[2] / b, b, s[3] / b, b}, order)};
}

// ------------------------------------------------------------------------------------------ ReverseSequence

void infer_reverse_sequence(InferContext& c) {
  const TypeInfo &in = c.input(0), &lengths = c.input(1);
  const int64_t time = c.node.get_int("time_axis", 0), batch = c.node.get_int("batch_axis", 1);
  if (time == batch || std::min(time, batch) != 0 || std::max(time, batch) != 1)
    c.node.fail(ErrorCode::kInvalidModel, "time_axis and batch_axis must be 0 and 1 in some order");
  require_type(c.node, lengths.dtype, kInt64Set, "sequence_lens");
  require_rank(c.node, lengths, 1, "sequence_lens");
  if (in.ranked && in.shape.size() < 2)
    c.node.fail(ErrorCode::kInvalidModel, "input needs rank 2 at least, has shape " + to_string(in.shape));
  if (in.ranked) {
    const int64_t n = in.shape[static_cast<size_t>(batch)], steps = in.shape[static_cast<size_t>(time)];
    if (n >= 0 && known_length(c, 1) >= 0 && known_length(c, 1) != n)
      c.node.fail(ErrorCode::kInvalidModel, "sequence_lens has " + std::to_string(known_length(c, 1)) +
                                                " entries for a batch of " + std::to_string(n));
    if (const auto values = known_ints(c, 1))
      for (int64_t v : *values)
        if (v < 0 || (steps >= 0 && v > steps))
          c.node.fail(ErrorCode::kInvalidArgument,
                      "sequence length " + std::to_string(v) + " is outside the time axis");
  }
  c.outputs[0] = without_constant(in);
}

void evaluate_reverse_sequence(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& in = c.input(0);
  const bool time_first = c.node.get_int("time_axis", 0) == 0;
  const std::vector<int64_t> lengths = c.input(1).to_int64s();
  const int64_t inner = product(in.shape(), 2, in.shape().size());
  const int64_t steps = in.shape()[time_first ? 0 : 1], batch = in.shape()[time_first ? 1 : 0];
  c.outputs[0] = in_storage(in, in.shape(), [&](const auto* x, auto* y) {
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t length = lengths[static_cast<size_t>(b)], from = t < length ? length - 1 - t : t;
        const auto at = [&](int64_t step) { return (time_first ? step * batch + b : b * steps + step) * inner; };
        std::copy(x + at(from), x + at(from) + inner, y + at(t));
      }
  });
}

// ---------------------------------------------------------------------------------------------------- Trilu

void infer_trilu(InferContext& c) {
  const TypeInfo& in = c.input(0);
  if (in.ranked && in.shape.size() < 2)
    c.node.fail(ErrorCode::kInvalidModel, "input needs rank 2 at least, has shape " + to_string(in.shape));
  if (c.has(1)) {
    require_type(c.node, c.input(1).dtype, kInt64Set, "k");
    if (c.input(1).is_static() && element_count(c.input(1).shape) != 1)
      c.node.fail(ErrorCode::kInvalidModel, "k must be a scalar");
  }
  c.outputs[0] = without_constant(in);
}

void evaluate_trilu(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& in = c.input(0);
  const bool upper = c.node.get_int("upper", 1) != 0;
  const int64_t k = c.has(1) ? c.input(1).at_int64(0) : 0;
  const Shape& s = in.shape();
  const int64_t rows = s[s.size() - 2], columns = s[s.size() - 1], matrices = product(s, 0, s.size() - 2);
  // Column j of row i is kept where j - i >= k (upper) or j - i <= k (lower).
  c.outputs[0] = in_storage(in, s, [&](const auto* x, auto* y) {
    for (int64_t m = 0; m < matrices; ++m)
      for (int64_t i = 0; i < rows; ++i, x += columns, y += columns)
        for (int64_t j = 0; j < columns; ++j)
          if (upper ? j - i >= k : j - i <= k) y[j] = x[j];
  });
}

// --------------------------------------------------------------------------------------------- CenterCropPad

std::vector<int64_t> crop_axes(const Node& node, int64_t rank) {
  std::vector<int64_t> axes = node.get_ints("axes");
  if (!node.has("axes"))
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  return normalise_axes(node, axes, rank);
}

void infer_center_crop_pad(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, c.input(1).dtype, kIndex, "shape");
  require_rank(c.node, c.input(1), 1, "shape");
  if (!in.ranked) {
    c.outputs[0] = TypeInfo::unranked(in.dtype);
    return;
  }
  const std::vector<int64_t> axes = crop_axes(c.node, static_cast<int64_t>(in.shape.size()));
  const auto wanted = known_ints(c, 1);
  const int64_t length = known_length(c, 1);
  if (length >= 0 && length != static_cast<int64_t>(axes.size()))
    c.node.fail(ErrorCode::kInvalidModel,
                "shape has " + std::to_string(length) + " entries for " + std::to_string(axes.size()) + " axes");
  c.outputs[0] = without_constant(in);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (wanted && (*wanted)[i] < 0) c.node.fail(ErrorCode::kInvalidModel, "negative dimension in shape");
    c.outputs[0].shape[static_cast<size_t>(axes[i])] = wanted ? (*wanted)[i] : -1;
  }
}

void evaluate_center_crop_pad(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& in = c.input(0);
  std::vector<std::vector<int64_t>> maps;
  for (size_t d = 0; d < in.shape().size(); ++d) {
    const int64_t have = in.shape()[d], want = types[0].shape[d];
    const int64_t shift = want < have ? (have - want) / 2 : -((want - have) / 2);  // source position of output 0
    std::vector<int64_t> map(static_cast<size_t>(want));
    for (int64_t o = 0; o < want; ++o)
      map[static_cast<size_t>(o)] = o + shift < 0 || o + shift >= have ? -1 : o + shift;
    maps.push_back(std::move(map));
  }
  c.outputs[0] = mapped_copy(in, types[0].shape, maps, Tensor(in.dtype(), {}));
}

// --------------------------------------------------------------------------------------------------- Col2Im

/// The window whose positions the input's columns are.
Window image_window(const Node& node, const std::vector<int64_t>& image, const std::vector<int64_t>& block) {
  for (const auto* extents : {&image, &block})
    for (const int64_t extent : *extents)
      if (extent < (extents == &block ? 1 : 0) || extent > int64_t{1} << 31)
        node.fail(ErrorCode::kInvalidModel, std::to_string(extent) + " is no possible extent");
  return sliding_window(node, image, block);
}

void infer_col2im(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kNumeric, "input");
  require_rank(c.node, in, 3, "input");
  for (size_t i : {1, 2}) {
    require_type(c.node, c.input(i).dtype, kInt64Set, "image_shape or block_shape");
    require_rank(c.node, c.input(i), 1, "image_shape or block_shape");
  }
  const auto image = known_ints(c, 1), block = known_ints(c, 2);
  const int64_t n = std::max(known_length(c, 1), known_length(c, 2));
  if (n < 0) {
    c.outputs[0] = TypeInfo::unranked(in.dtype);
    return;
  }
  if (image && block) {
    const int64_t positions = product(image_window(c.node, *image, *block).output);
    if (in.ranked && in.shape[2] >= 0 && in.shape[2] != positions)
      c.node.fail(ErrorCode::kInvalidModel, "input has " + std::to_string(in.shape[2]) + " columns, the window takes " +
                                                std::to_string(positions) + " positions");
  }
  c.outputs[0] = of_rank(in.dtype, n + 2);
  if (in.ranked) c.outputs[0].shape[0] = in.shape[0];
  if (in.ranked && block && in.shape[1] >= 0) {
    const int64_t size = product(*block);
    if (size <= 0 || in.shape[1] % size != 0)
      c.node.fail(ErrorCode::kInvalidModel, "rows of the input do not divide by the block's size");
    c.outputs[0].shape[1] = in.shape[1] / size;
  }
  if (image) std::copy(image->begin(), image->end(), c.outputs[0].shape.begin() + 2);
}

void evaluate_col2im(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Window window = image_window(c.node, c.input(1).to_int64s(), c.input(2).to_int64s());
  std::vector<int64_t> offsets;
  patch_offsets(window, 0, element_count(window.output), offsets);
  const int64_t planes = c.input(0).shape()[0] * types[0].shape[1], plane = product(window.input);
  c.outputs[0] = in_numbers(c.node, c.input(0), types[0], [&](const auto* x, auto* y) {
    for (int64_t p = 0; p < planes; ++p, y += plane)
      for (const int64_t offset : offsets) {
        if (offset >= 0) y[offset] = wrap_add(y[offset], *x);
        ++x;
      }
  });
}

}  // namespace

void register_space(Registry& r) {
  add(r, "Pad", 2, kOne, infer_pad, evaluate_pad, {"mode", "pads", "value"});
  add(r, "Pad", 11, {2, 3}, infer_pad, evaluate_pad, {"mode"});
  add(r, "Pad", 18, {2, 4}, infer_pad, evaluate_pad, {"mode"});
  add_movement(r, "DepthToSpace", 1, kOne, infer_depth_to_space, to_space, {"blocksize"});
  add_movement(r, "DepthToSpace", 11, kOne, infer_depth_to_space, to_space, {"blocksize", "mode"});
  add_movement(r, "SpaceToDepth", 1, kOne, infer_space_to_depth, to_depth, {"blocksize"});
  add_movement(r, "SpaceToDepth", 28, kOne, infer_space_to_depth, to_depth, {"blocksize", "mode"});
  add(r, "ReverseSequence", 10, kTwo, infer_reverse_sequence, evaluate_reverse_sequence, {"batch_axis", "time_axis"});
  add(r, "Trilu", 14, {1, 2}, infer_trilu, evaluate_trilu, {"upper"});
  add(r, "CenterCropPad", 18, kTwo, infer_center_crop_pad, evaluate_center_crop_pad, {"axes"});
  add(r, "Col2Im", 18, {3, 3}, infer_col2im, evaluate_col2im, {"dilations", "pads", "strides"});
}

}  // namespace tessera::ops
