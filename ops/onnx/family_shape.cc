// SPDX-License-Identifier: Apache-2.0
// Operators that rename or move elements without looking at them: Reshape, Flatten, Squeeze, Unsqueeze, Transpose,
// Concat, Split, Slice, Tile, Expand. Shapes come from attributes in old opsets and from inputs in new ones; a known
// input gives an exact shape, an unknown one at least the rank where that follows. But for Concat, what moves is said
// by Movements (movement.h).
#include "ops/kernels/movement.h"

namespace tessera::ops {

namespace {

using namespace kernel;

using Types = std::vector<TypeInfo>;
using Movements = std::vector<Movement>;

/// The shape alone changes, to the inferred one.
Movements renamed(const Node&, const Types& inputs, const Types&) { return {whole(inputs[0].shape)}; }

// ------------------------------------------------------------------------------------------------- Reshape

/// The result of a Reshape whose wanted dimensions are known.
class Reshape {
 public:
  Reshape(const InferContext& c, const std::vector<int64_t>& wanted)
      : node_(c.node),
        in_(c.input(0)),
        wanted_(wanted),
        zero_copies_(c.node.get_int("allowzero", 0) == 0),
        cancelled_(in_.shape.size(), false) {}

  Shape shape() {
    for (size_t i = 0; i < wanted_.size(); ++i) out_.push_back(dimension(i));
    if (open_ >= 0 && !zero_copies_ && std::find(wanted_.begin(), wanted_.end(), 0) != wanted_.end())
      bad("0 and -1 together with allowzero");
    if (in_.ranked) count_elements();
    return out_;
  }

 private:
  [[noreturn]] void bad(const std::string& why) const {
    std::string text = "shape " + (in_.ranked ? to_string(in_.shape) : std::string("?")) + " cannot become (";
    for (int64_t dim : wanted_) text.append(" ").append(std::to_string(dim));
    node_.fail(ErrorCode::kInvalidModel, text.append(" ): ").append(why));
  }

  int64_t dimension(size_t i) {
    const int64_t dim = wanted_[i];
    if (dim == -1) {
      if (open_ >= 0) bad("more than one -1");
      open_ = static_cast<int64_t>(i);
      return -1;
    }
    if (dim == 0 && zero_copies_) {
      if (!in_.ranked) return -1;
      if (i >= in_.shape.size()) bad("0 copies a dimension that the input does not have");
      cancelled_[i] = in_.shape[i] <= 0;
      return in_.shape[i];
    }
    if (dim < 0) bad("negative dimension");
    return dim;
  }

  void multiply(int64_t& count, int64_t dim) const {
    if (__builtin_mul_overflow(count, dim, &count)) bad("too many elements");
  }

  /// Elements of the result, without those that stay open.
  int64_t made() const {
    int64_t count = 1;
    for (size_t i = 0; i < out_.size(); ++i) {
      if (static_cast<int64_t>(i) == open_ || (i < cancelled_.size() && cancelled_[i])) continue;
      if (out_[i] >= 0) multiply(count, out_[i]);
    }
    return count;
  }

  /// Copied dimensions that are unknown or zero cancel, so that an empty batch gives what any batch gives; the rest
  /// must be known to say more.
  void count_elements() {
    int64_t have = 1;
    bool known = true, in_zero = false, both_zero = false;
    for (size_t i = 0; i < in_.shape.size(); ++i) {
      const int64_t dim = in_.shape[i];
      if (cancelled_[i]) {
        both_zero = both_zero || dim == 0;
        continue;
      }
      in_zero = in_zero || dim == 0;
      known = known && dim >= 0;
      if (dim >= 0) multiply(have, dim);
    }
    const int64_t made = this->made();
    if (!known && !in_zero) return;
    if (open_ < 0) {
      if (have != made && !both_zero) bad("the element counts differ");
      return;
    }
    if (made == 0 ? have != 0 : have % made != 0) bad("the element counts differ");
    out_[static_cast<size_t>(open_)] = made == 0 ? 0 : have / made;
  }

  const Node& node_;
  const TypeInfo& in_;
  const std::vector<int64_t>& wanted_;
  const bool zero_copies_;
  Shape out_;
  std::vector<bool> cancelled_;  // unknown or zero input dimensions that the result repeats
  int64_t open_ = -1;            // the dimension that is counted from the others
};

void infer_reshape(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, c.input(1).dtype, kInt64Set, "shape");
  require_rank(c.node, c.input(1), 1, "shape");
  if (const auto wanted = known_ints(c, 1)) {
    c.outputs[0] = TypeInfo::tensor(in.dtype, Reshape(c, *wanted).shape());
    return;
  }
  const int64_t rank = known_length(c, 1);
  c.outputs[0] = rank < 0 ? TypeInfo::unranked(in.dtype) : of_rank(in.dtype, rank);
}

void infer_flatten(InferContext& c) {
  const TypeInfo& in = c.input(0);
  if (!in.ranked) {
    c.outputs[0] = of_rank(in.dtype, 2);
    return;
  }
  const int64_t rank = static_cast<int64_t>(in.shape.size());
  int64_t axis = c.node.get_int("axis", 1);
  if (axis < -rank || axis > rank)
    c.node.fail(ErrorCode::kInvalidModel, "axis " + std::to_string(axis) + " is outside " + to_string(in.shape));
  if (axis < 0) axis += rank;
  const size_t split = static_cast<size_t>(axis);
  c.outputs[0] = TypeInfo::tensor(in.dtype, {product(in.shape, 0, split), product(in.shape, split, in.shape.size())});
}

// ------------------------------------------------------------------------------------- Squeeze and Unsqueeze

/// Axes from the attribute or input 1: nullopt when unknown; `given` tells whether there are any.
std::optional<std::vector<int64_t>> axes_of(const InferContext& c, bool& given) {
  if (c.node.version < 13) {
    given = c.node.has("axes");
    return c.node.get_ints("axes");
  }
  given = c.has(1);
  if (!given) return std::vector<int64_t>{};
  require_type(c.node, c.input(1).dtype, kIndex, "axes");
  return known_ints(c, 1);
}

void infer_squeeze(InferContext& c) {
  const TypeInfo& in = c.input(0);
  bool given = false;
  const auto axes = axes_of(c, given);
  c.outputs[0] = TypeInfo::unranked(in.dtype);
  if (!in.ranked) return;
  const int64_t rank = static_cast<int64_t>(in.shape.size());
  if (!axes) {
    const int64_t count = known_length(c, 1);
    if (count >= 0 && count <= rank) c.outputs[0] = of_rank(in.dtype, rank - count);
    return;
  }
  Shape shape;
  if (!given) {
    for (int64_t d : in.shape) {
      if (d < 0) return;  // may or may not be 1
      if (d != 1) shape.push_back(d);
    }
  } else {
    std::vector<bool> drop(in.shape.size(), false);
    for (int64_t axis : normalise_axes(c.node, *axes, rank)) {
      if (in.shape[static_cast<size_t>(axis)] > 1 || in.shape[static_cast<size_t>(axis)] == 0)
        c.node.fail(ErrorCode::kInvalidModel,
                    "axis " + std::to_string(axis) + " of shape " + to_string(in.shape) + " is not 1");
      drop[static_cast<size_t>(axis)] = true;
    }
    for (size_t i = 0; i < drop.size(); ++i)
      if (!drop[i]) shape.push_back(in.shape[i]);
  }
  c.outputs[0] = TypeInfo::tensor(in.dtype, std::move(shape));
}

void infer_unsqueeze(InferContext& c) {
  const TypeInfo& in = c.input(0);
  bool given = false;
  const auto axes = axes_of(c, given);
  if (!given) c.node.fail(ErrorCode::kInvalidModel, "axes are missing");
  c.outputs[0] = TypeInfo::unranked(in.dtype);
  if (!in.ranked) return;
  const int64_t rank = static_cast<int64_t>(in.shape.size());
  if (!axes) {
    const int64_t count = known_length(c, 1);
    if (count >= 0) c.outputs[0] = of_rank(in.dtype, rank + count);
    return;
  }
  Shape shape(in.shape.size() + axes->size(), -2);
  for (int64_t axis : normalise_axes(c.node, *axes, static_cast<int64_t>(shape.size())))
    shape[static_cast<size_t>(axis)] = 1;
  size_t next = 0;
  for (int64_t& d : shape)
    if (d == -2) d = in.shape[next++];
  c.outputs[0] = TypeInfo::tensor(in.dtype, std::move(shape));
}

// ------------------------------------------------------------------------------------------------ Transpose

std::vector<int64_t> permutation(const Node& node, int64_t rank) {
  std::vector<int64_t> perm = node.get_ints("perm");
  if (!node.has("perm"))
    for (int64_t i = rank; i-- > 0;) perm.push_back(i);
  if (static_cast<int64_t>(perm.size()) != rank)
    node.fail(ErrorCode::kInvalidModel,
              "perm has " + std::to_string(perm.size()) + " entries for a tensor of rank " + std::to_string(rank));
  return normalise_axes(node, perm, rank);
}

void infer_transpose(InferContext& c) {
  const TypeInfo& in = c.input(0);
  if (!in.ranked) {
    c.outputs[0] = c.node.has("perm") ? of_rank(in.dtype, static_cast<int64_t>(c.node.get_ints("perm").size()))
                                      : TypeInfo::unranked(in.dtype);
    return;
  }
  Shape shape;
  for (int64_t axis : permutation(c.node, static_cast<int64_t>(in.shape.size())))
    shape.push_back(in.shape[static_cast<size_t>(axis)]);
  c.outputs[0] = TypeInfo::tensor(in.dtype, std::move(shape));
}

Movements transposed_axes(const Node& node, const Types& inputs, const Types&) {
  const Shape& shape = inputs[0].shape;
  return {permuted(shape, permutation(node, static_cast<int64_t>(shape.size())))};
}

// ----------------------------------------------------------------------------------------- Concat and Split

void infer_concat(InferContext& c) {
  if (!c.node.has("axis")) c.node.fail(ErrorCode::kInvalidModel, "attribute 'axis' is missing");
  int64_t rank = -1;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    require_same_type(c.node, c.input(0), c.input(i));
    if (!c.input(i).ranked) continue;
    const int64_t own = static_cast<int64_t>(c.input(i).shape.size());
    if (rank >= 0 && own != rank)
      c.node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " of shape " + to_string(c.input(i).shape) +
                                                " has another rank than the inputs before");
    rank = own;
  }
  if (rank < 0) {
    c.outputs[0] = TypeInfo::unranked(c.input(0).dtype);
    return;
  }
  const size_t axis = static_cast<size_t>(normalise_axis(c.node, c.node.get_int("axis", 0), rank));
  Shape shape(static_cast<size_t>(rank), -1);
  int64_t total = 0;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const TypeInfo& in = c.input(i);
    if (!in.ranked || in.shape[axis] < 0)
      total = -1;
    else if (total >= 0)
      total += in.shape[axis];
    if (!in.ranked) continue;
    for (size_t d = 0; d < shape.size(); ++d) {
      if (d == axis || in.shape[d] < 0) continue;
      if (shape[d] >= 0 && shape[d] != in.shape[d])
        c.node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " of shape " + to_string(in.shape) +
                                                  " differs from " + to_string(shape) + " outside axis " +
                                                  std::to_string(axis));
      shape[d] = in.shape[d];
    }
  }
  shape[axis] = total;
  c.outputs[0] = TypeInfo::tensor(c.input(0).dtype, std::move(shape));
}

void evaluate_concat(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Shape& shape = types[0].shape;
  const size_t axis = axis_attribute(c.node, 0, shape);
  const int64_t outer = product(shape, 0, axis), inner = product(shape, axis + 1, shape.size()),
                row = shape[axis] * inner;
  Tensor out(types[0].dtype, shape);
  visit_storage(out.dtype(), [&]<typename T>(Tag<T>) {
    T* y = mutable_elements<T>(out);
    int64_t at = 0;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const int64_t length = c.input(i).shape()[axis] * inner;
      const T* x = elements<T>(c.input(i));
      for (int64_t o = 0; o < outer; ++o) std::copy(x + o * length, x + (o + 1) * length, y + o * row + at);
      at += length;
    }
  });
  c.outputs[0] = std::move(out);
}

/// Sizes of the parts along the axis; empty when unknown.
std::vector<int64_t> split_sizes(const InferContext& c, int64_t dim) {
  const size_t count = c.outputs.size();
  std::optional<std::vector<int64_t>> sizes;
  if (c.node.version < 13) {
    if (c.node.has("split")) sizes = c.node.get_ints("split");
  } else if (c.has(1)) {
    require_type(c.node, c.input(1).dtype, kInt64Set, "split");
    if (c.node.has("num_outputs"))
      c.node.fail(ErrorCode::kInvalidModel, "both input 'split' and attribute 'num_outputs' are given");
    sizes = known_ints(c, 1);
    if (!sizes) return {};
  }
  if (sizes) {
    if (sizes->size() != count)
      c.node.fail(ErrorCode::kInvalidModel,
                  "split has " + std::to_string(sizes->size()) + " entries for " + std::to_string(count) + " outputs");
    int64_t total = 0;
    for (int64_t size : *sizes) {
      if (size < 0 || size > kSizeLimit)
        c.node.fail(ErrorCode::kInvalidModel, std::to_string(size) + " in split is no possible size");
      total += size;
    }
    if (dim >= 0 && total != dim)
      c.node.fail(ErrorCode::kInvalidModel,
                  "split adds up to " + std::to_string(total) + ", the axis has " + std::to_string(dim));
    return *sizes;
  }
  const int64_t parts = c.node.get_int("num_outputs", static_cast<int64_t>(count));
  if (parts != static_cast<int64_t>(count))
    c.node.fail(ErrorCode::kInvalidModel,
                "num_outputs is " + std::to_string(parts) + ", the node has " + std::to_string(count) + " outputs");
  if (dim < 0) return {};
  if (c.node.version < 18 && dim % parts != 0)
    c.node.fail(ErrorCode::kInvalidModel,
                std::to_string(dim) + " elements do not split into " + std::to_string(parts) + " equal parts");
  const int64_t part = (dim + parts - 1) / parts;
  std::vector<int64_t> result;
  for (int64_t i = 0; i < parts; ++i) result.push_back(std::clamp<int64_t>(dim - i * part, 0, part));
  return result;
}

void infer_split(InferContext& c) {
  const TypeInfo& in = c.input(0);
  if (!in.ranked) {
    split_sizes(c, -1);
    for (TypeInfo& out : c.outputs) out = TypeInfo::unranked(in.dtype);
    return;
  }
  const size_t axis = axis_attribute(c.node, 0, in.shape);
  const std::vector<int64_t> sizes = split_sizes(c, in.shape[axis]);
  for (size_t i = 0; i < c.outputs.size(); ++i) {
    c.outputs[i] = without_constant(in);
    c.outputs[i].shape[axis] = sizes.empty() ? -1 : sizes[i];
  }
}

Movements parts(const Node& node, const Types& inputs, const Types& results) {
  const size_t axis = axis_attribute(node, 0, inputs[0].shape);
  Movements all;
  int64_t at = 0;
  for (const TypeInfo& result : results) {
    all.push_back(whole(inputs[0].shape));
    all.back().shape = result.shape;
    all.back().start[axis] = at;
    at += result.shape[axis];
  }
  return all;
}

// --------------------------------------------------------------------------------------------------- Slice

struct SliceRange {
  int64_t start, step, count;
};

/// The elements that start:end:step takes of `dim`, clamped as the standard says.
SliceRange slice_range(const Node& node, int64_t dim, int64_t start, int64_t end, int64_t step) {
  if (step == 0) node.fail(ErrorCode::kInvalidModel, "step 0");
  if (dim == 0) return {0, 1, 0};
  const auto bounded = [dim](int64_t at, int64_t low, int64_t high) {
    if (at < 0) at = at < -dim ? low : at + dim;
    return std::clamp(at, low, high);
  };
  if (step > 0) {
    start = bounded(start, 0, dim);
    end = bounded(end, 0, dim);
    return {start, step, end > start ? 1 + (end - start - 1) / step : 0};
  }
  start = bounded(start, 0, dim - 1);
  end = bounded(end, -1, dim - 1);
  const uint64_t stride = ~static_cast<uint64_t>(step) + 1;  // -step, also for the smallest integer
  return {start, step, start > end ? 1 + static_cast<int64_t>(static_cast<uint64_t>(start - end - 1) / stride) : 0};
}

/// What is known of one operand of Slice.
struct SliceOperands {
  std::optional<std::vector<int64_t>> starts, ends, axes, steps;
  int64_t count = -1;  // number of sliced axes
};

SliceOperands slice_operands(const InferContext& c) {
  SliceOperands s;
  if (c.node.version < 10) {
    s.starts = c.node.get_ints("starts");
    s.ends = c.node.get_ints("ends");
    if (c.node.has("axes")) s.axes = c.node.get_ints("axes");
    s.count = static_cast<int64_t>(s.starts->size());
    s.steps = std::vector<int64_t>(s.starts->size(), 1);
  } else {
    for (size_t i = 1; i < 5; ++i) {
      if (i > 2 && !c.has(i)) continue;
      require_type(c.node, c.input(i).dtype, kIndex, "starts, ends, axes or steps");
      if (c.input(i).ranked && c.input(i).shape.size() > 1)
        c.node.fail(ErrorCode::kInvalidModel, "starts, ends, axes and steps must have rank 1");
    }
    s.starts = known_ints(c, 1);
    s.ends = known_ints(c, 2);
    for (size_t i = 1; i < 5 && s.count < 0; ++i) s.count = known_length(c, i);
    s.axes = known_ints(c, 3);
    if (c.has(4))
      s.steps = known_ints(c, 4);
    else if (s.count >= 0)
      s.steps = std::vector<int64_t>(static_cast<size_t>(s.count), 1);
  }
  for (const auto* list : {&s.starts, &s.ends, &s.axes, &s.steps})
    if (*list && s.count >= 0 && static_cast<int64_t>((*list)->size()) != s.count)
      c.node.fail(ErrorCode::kInvalidModel, "starts, ends, axes and steps differ in length");
  const bool axes_given = c.node.version < 10 ? c.node.has("axes") : c.has(3);
  if (!axes_given && s.count >= 0) {
    s.axes = std::vector<int64_t>{};
    for (int64_t i = 0; i < s.count; ++i) s.axes->push_back(i);
  }
  return s;
}

void infer_slice(InferContext& c) {
  const TypeInfo& in = c.input(0);
  const SliceOperands s = slice_operands(c);
  if (!in.ranked) {
    c.outputs[0] = TypeInfo::unranked(in.dtype);
    return;
  }
  const int64_t rank = static_cast<int64_t>(in.shape.size());
  if (!s.axes) {
    c.outputs[0] = of_rank(in.dtype, rank);
    return;
  }
  Shape shape = in.shape;
  const std::vector<int64_t> axes = normalise_axes(c.node, *s.axes, rank);
  for (size_t i = 0; i < axes.size(); ++i) {
    int64_t& dim = shape[static_cast<size_t>(axes[i])];
    if (s.steps && (*s.steps)[i] == 0) c.node.fail(ErrorCode::kInvalidModel, "step 0");
    if (dim > 0 && !(s.starts && s.ends && s.steps))
      dim = -1;
    else if (dim > 0)
      dim = slice_range(c.node, dim, (*s.starts)[i], (*s.ends)[i], (*s.steps)[i]).count;
  }
  c.outputs[0] = TypeInfo::tensor(in.dtype, std::move(shape));
}

Movements sliced(const Node& node, const Types& inputs, const Types& results) {
  Types outputs = results;
  const SliceOperands s = slice_operands(InferContext{node, inputs, outputs});
  if (!s.starts || !s.ends || !s.axes || !s.steps)
    node.fail(ErrorCode::kUnsupported, "starts, ends, axes or steps are not known");
  Movement m = whole(inputs[0].shape);
  m.shape = results[0].shape;
  const std::vector<int64_t> axes = normalise_axes(node, *s.axes, static_cast<int64_t>(m.as.size()));
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(axes[i]);
    const SliceRange range = slice_range(node, m.as[axis], (*s.starts)[i], (*s.ends)[i], (*s.steps)[i]);
    m.start[axis] = range.start;
    if (range.count > 1) m.step[axis] = range.step;  // it may be huge where one element is taken
  }
  return {m};
}

// ---------------------------------------------------------------------------------------- Tile and Expand

void infer_tile(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, c.input(1).dtype, kInt64Set, "repeats");
  require_rank(c.node, c.input(1), 1, "repeats");
  const auto repeats = known_ints(c, 1);
  const int64_t length = known_length(c, 1);
  if (in.ranked && length >= 0 && length != static_cast<int64_t>(in.shape.size()))
    c.node.fail(ErrorCode::kInvalidModel,
                "repeats has " + std::to_string(length) + " entries for shape " + to_string(in.shape));
  if (!in.ranked) {
    c.outputs[0] = length < 0 ? TypeInfo::unranked(in.dtype) : of_rank(in.dtype, length);
    return;
  }
  if (!repeats) {
    c.outputs[0] = of_rank(in.dtype, static_cast<int64_t>(in.shape.size()));
    return;
  }
  Shape shape = in.shape;
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t times = (*repeats)[i];
    if (times < 0) c.node.fail(ErrorCode::kInvalidModel, "negative repeat " + std::to_string(times));
    if (shape[i] >= 0 && __builtin_mul_overflow(shape[i], times, &shape[i]))
      c.node.fail(ErrorCode::kDoesNotFit, "the result is too large");
    else if (times == 0)
      shape[i] = 0;
  }
  c.outputs[0] = TypeInfo::tensor(in.dtype, std::move(shape));
}

Movements tiled(const Node&, const Types& inputs, const Types& results) {
  Movement m = whole(inputs[0].shape);
  m.shape.clear();
  for (size_t d = 0; d < m.as.size(); ++d) {  // every axis as (repeats, dimension)
    m.from[d] = static_cast<int64_t>(2 * d + 1);
    m.shape.insert(m.shape.end(), {results[0].shape[d] / std::max<int64_t>(m.as[d], 1), m.as[d]});
  }
  return {m};
}

void infer_expand(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, c.input(1).dtype, kInt64Set, "shape");
  require_rank(c.node, c.input(1), 1, "shape");
  if (const auto wanted = known_ints(c, 1)) {
    for (int64_t d : *wanted)
      if (d < 0) c.node.fail(ErrorCode::kInvalidModel, "negative dimension " + std::to_string(d) + " in shape");
    const TypeInfo target = TypeInfo::tensor(in.dtype, *wanted);
    c.outputs[0] = broadcast_types(c.node, in.dtype, {&in, &target});
    return;
  }
  const int64_t length = known_length(c, 1);
  if (!in.ranked || length < 0) {
    c.outputs[0] = TypeInfo::unranked(in.dtype);
    return;
  }
  const TypeInfo target = of_rank(in.dtype, length);
  c.outputs[0] = broadcast_types(c.node, in.dtype, {&in, &target});
}

Movements expanded(const Node&, const Types& inputs, const Types& results) {
  Movement m = whole(inputs[0].shape);
  m.shape = results[0].shape;
  for (size_t d = 0; d < m.as.size(); ++d)
    m.from[d] = m.as[d] == 1 ? -1 : static_cast<int64_t>(m.shape.size() - m.as.size() + d);
  return {m};
}

}  // namespace

void register_shape(Registry& r) {
  add_movement(r, "Reshape", 5, kTwo, infer_reshape, renamed);
  add_movement(r, "Reshape", 14, kTwo, infer_reshape, renamed, {"allowzero"});
  add_movement(r, "Flatten", 1, kOne, infer_flatten, renamed, {"axis"});
  add_movement(r, "Squeeze", 1, kOne, infer_squeeze, renamed, {"axes"});
  add_movement(r, "Unsqueeze", 1, kOne, infer_unsqueeze, renamed, {"axes"});
  add_movement(r, "Squeeze", 13, {1, 2}, infer_squeeze, renamed);
  add_movement(r, "Unsqueeze", 13, kTwo, infer_unsqueeze, renamed);
  add_movement(r, "Transpose", 1, kOne, infer_transpose, transposed_axes, {"perm"});
  add(r, "Concat", 4, {1, -1}, infer_concat, evaluate_concat, {"axis"});
  add_movement(r, "Split", 2, kOne, infer_split, parts, {"axis", "split"}, {1, -1});
  add_movement(r, "Split", 13, {1, 2}, infer_split, parts, {"axis"}, {1, -1});
  add_movement(r, "Split", 18, {1, 2}, infer_split, parts, {"axis", "num_outputs"}, {1, -1});
  add_movement(r, "Slice", 1, kOne, infer_slice, sliced, {"starts", "ends", "axes"});
  add_movement(r, "Slice", 10, {3, 5}, infer_slice, sliced);
  add_movement(r, "Tile", 6, kTwo, infer_tile, tiled);
  add_movement(r, "Expand", 8, kTwo, infer_expand, expanded);
}

}  // namespace tessera::ops
