// SPDX-License-Identifier: Apache-2.0
// Operators that only move elements, as steps on shapes: what a layout can follow with strides (transpose, reshape,
// slice, expand), what needs a tensor of its own (pad, gather). Which element a nearest-neighbour Resize takes is asked
// of the operator library, axis by axis, so that its many coordinate modes stand in one place.
#include <algorithm>

#include "compiler/partition/claims_util.h"
#include "compiler/partition/operator_class.h"

namespace tessera::partition {
namespace {

using Kind = graph::Step::Kind;
using graph::Steps;

graph::Step reshape_to(Shape extents) {
  graph::Step m;
  m.kind = Kind::kReshape;
  m.extents = std::move(extents);
  return m;
}

graph::Step transpose_by(const Shape& from, std::vector<int64_t> permutation) {
  graph::Step m;
  m.kind = Kind::kTranspose;
  for (const int64_t axis : permutation) m.extents.push_back(from[static_cast<size_t>(axis)]);
  m.numbers = std::move(permutation);
  return m;
}

graph::Step expand_to(Shape extents) {
  graph::Step m;
  m.kind = Kind::kExpand;
  m.extents = std::move(extents);
  return m;
}

Shape with(Shape shape, size_t axis, int64_t extent) {
  shape[axis] = extent;
  return shape;
}

/// The positions of an axis, in the cheapest form: nothing, a slice, an enlargement, a gather.
void select(Steps& steps, Shape& shape, size_t axis, const std::vector<int64_t>& at) {
  const auto count = static_cast<int64_t>(at.size());
  const int64_t extent = shape[axis];
  const int64_t step = count > 1 ? at[1] - at[0] : 1;
  bool regular = step >= 1, repeated = count % extent == 0;
  for (int64_t i = 0; i < count; ++i) {
    regular = regular && at[static_cast<size_t>(i)] == at[0] + i * step;
    repeated = repeated && at[static_cast<size_t>(i)] == i / (count / extent);
  }
  if (regular && at[0] == 0 && count == extent) return;
  if (regular) {
    graph::Step m;
    m.kind = Kind::kSlice;
    m.axis = static_cast<int64_t>(axis);
    m.start = at[0];
    m.step = step;
    m.extents = with(shape, axis, count);
    steps.push_back(std::move(m));
  } else if (repeated) {
    Shape apart = shape;
    apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(axis) + 1, 1);
    steps.push_back(reshape_to(apart));
    apart[axis + 1] = count / extent;
    steps.push_back(expand_to(apart));
    steps.push_back(reshape_to(with(shape, axis, count)));
  } else {
    graph::Step m;
    m.kind = Kind::kGather;
    m.axis = static_cast<int64_t>(axis);
    m.numbers = at;
    m.extents = with(shape, axis, count);
    steps.push_back(std::move(m));
  }
  shape[axis] = count;
}

std::optional<std::vector<int64_t>> constant_ints(NodeOp op, unsigned index) {
  mlir::Value v = nn::input_or_null(op, index);
  const auto tensor = v ? nn::constant_value(v) : std::nullopt;
  if (!tensor || (tensor->dtype() != DType::kInt64 && tensor->dtype() != DType::kInt32)) return std::nullopt;
  return tensor->to_int64s();
}

/// An operand if present, else the attribute of older versions; nothing when the operand is not constant.
std::optional<std::vector<int64_t>> ints(NodeOp op, unsigned index, const ops::Node& node, const char* attribute,
                                         const Shape& otherwise) {
  if (nn::input_or_null(op, index)) return constant_ints(op, index);
  return node.has(attribute) ? node.get_ints(attribute) : otherwise;
}

bool in_rank(int64_t& axis, size_t rank) {
  if (axis < 0) axis += static_cast<int64_t>(rank);
  return axis >= 0 && axis < static_cast<int64_t>(rank);
}

std::optional<Steps> slice_steps(NodeOp op, const ops::Node& node, Shape shape) {
  const bool attributes = node.has("starts");
  const auto starts = attributes ? std::optional(node.get_ints("starts")) : constant_ints(op, 1);
  if (!starts) return std::nullopt;
  Shape all(starts->size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
  const auto axes = ints(op, 3, node, "axes", all), strides = ints(op, 4, node, "steps", Shape(starts->size(), 1));
  if (!axes || !strides || axes->size() != starts->size() || strides->size() != starts->size()) return std::nullopt;
  const Shape out = *nn::shape_of(op.getResult(0));
  Steps steps;
  for (size_t i = 0; i < starts->size(); ++i) {
    int64_t axis = (*axes)[i], start = (*starts)[i];
    if (!in_rank(axis, shape.size())) return std::nullopt;
    const auto a = static_cast<size_t>(axis);
    const int64_t extent = shape[a], step = (*strides)[i];
    if (start < 0) start += extent;
    start = std::clamp<int64_t>(start, 0, step > 0 ? extent : extent - 1);
    std::vector<int64_t> at;
    for (int64_t k = 0; k < out[a]; ++k) at.push_back(start + k * step);
    if (at.empty() || at.front() < 0 || at.front() >= extent || at.back() < 0 || at.back() >= extent)
      return std::nullopt;
    select(steps, shape, a, at);
  }
  return steps;
}

std::optional<std::vector<Steps>> split_steps(NodeOp op, const ops::Node& node, const Shape& shape) {
  int64_t axis = node.get_int("axis", 0), start = 0;
  if (!in_rank(axis, shape.size())) return std::nullopt;
  std::vector<Steps> results;
  for (mlir::Value v : op.getOutputs()) {
    const Shape part = *nn::shape_of(v);
    graph::Step m;
    m.kind = Kind::kSlice;
    m.axis = axis;
    m.start = start;
    m.extents = part;
    start += part[static_cast<size_t>(axis)];
    if (start > shape[static_cast<size_t>(axis)]) return std::nullopt;
    results.push_back({std::move(m)});
  }
  return results;
}

/// Elements that a Pad puts before and behind each axis; negative numbers crop.
struct Pads {
  std::vector<int64_t> before, after;
};

std::optional<Pads> pads_of(NodeOp op, const ops::Node& node, size_t rank) {
  const auto pads = node.has("pads") ? std::optional(node.get_ints("pads")) : constant_ints(op, 1);
  if (!pads) return std::nullopt;
  Shape axes(pads->size() / 2);
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  if (nn::input_or_null(op, 3)) {
    const auto given = constant_ints(op, 3);
    if (!given) return std::nullopt;
    axes = *given;
  }
  if (pads->size() != 2 * axes.size()) return std::nullopt;
  Pads out{std::vector<int64_t>(rank, 0), std::vector<int64_t>(rank, 0)};
  for (size_t i = 0; i < axes.size(); ++i) {
    if (!in_rank(axes[i], rank)) return std::nullopt;
    out.before[static_cast<size_t>(axes[i])] = (*pads)[i];
    out.after[static_cast<size_t>(axes[i])] = (*pads)[axes.size() + i];
  }
  return out;
}

/// Which element of an axis stands at position i of the padded one; nothing where there is none, or the mode is
/// unknown.
std::optional<int64_t> repeated_element(const std::string& mode, int64_t i, int64_t extent) {
  int64_t p = i;
  if (mode == "edge") {
    p = std::clamp<int64_t>(i, 0, extent - 1);
  } else if (mode == "reflect") {
    if (p < 0) p = -p;
    if (p >= extent) p = 2 * (extent - 1) - p;
  } else if (mode == "wrap") {
    p = (i % extent + extent) % extent;
  } else {
    return std::nullopt;
  }
  return p >= 0 && p < extent ? std::optional(p) : std::nullopt;
}

/// Pads with elements of the tensor itself.
std::optional<Steps> repeating_pad_steps(const std::string& mode, const Pads& pads, Shape shape) {
  Steps steps;
  for (size_t a = 0; a < pads.before.size(); ++a) {
    const int64_t extent = shape[a];
    std::vector<int64_t> at;
    for (int64_t i = -pads.before[a]; i < extent + pads.after[a]; ++i) {
      const auto p = repeated_element(mode, i, extent);
      if (!p) return std::nullopt;
      at.push_back(*p);
    }
    if (at.empty()) return std::nullopt;
    select(steps, shape, a, at);
  }
  return steps;
}

std::optional<Steps> pad_steps(NodeOp op, const ops::Node& node, Shape shape) {
  const size_t rank = shape.size();
  const auto pads = pads_of(op, node, rank);
  if (!pads) return std::nullopt;
  const std::string mode = node.get_string("mode", "constant");
  if (mode != "constant") return repeating_pad_steps(mode, *pads, std::move(shape));
  Steps steps;
  graph::Step m;
  m.kind = Kind::kPad;
  m.numbers.assign(rank, 0);
  bool grows = false;
  for (size_t a = 0; a < rank; ++a) {
    const int64_t before = pads->before[a], after = pads->after[a];
    std::vector<int64_t> at;
    for (int64_t i = std::max<int64_t>(0, -before); i < shape[a] - std::max<int64_t>(0, -after); ++i) at.push_back(i);
    if (at.empty()) return std::nullopt;
    select(steps, shape, a, at);
    m.numbers[a] = std::max<int64_t>(0, before);
    m.extents.push_back(m.numbers[a] + shape[a] + std::max<int64_t>(0, after));
    grows = grows || m.extents[a] != shape[a];
  }
  if (mlir::Value v = nn::input_or_null(op, 2)) {
    const auto value = nn::constant_scalar(v);
    if (!value) return std::nullopt;
    m.value = static_cast<int32_t>(*value);
  } else {
    m.value = static_cast<int32_t>(node.get_float("value", 0.0f));
  }
  if (grows) steps.push_back(std::move(m));
  return steps;
}

/// Nearest neighbours by the library's own kernel: the axis at hand numbered, all others of extent 1.
std::optional<Steps> resize_steps(NodeOp op, const ops::Node& node, Shape shape) {
  if (node.get_string("mode", "nearest") != "nearest" || node.has("axes") ||
      node.get_string("keep_aspect_ratio_policy", "stretch") != "stretch")
    return std::nullopt;
  const Shape out = *nn::shape_of(op.getResult(0));
  Steps steps;
  for (size_t a = 0; a < out.size(); ++a) {
    const auto only = [&](const Shape& of) { return with(Shape(of.size(), 1), a, of[a]); };
    const Shape from = only(shape), to = only(out);
    std::vector<float> numbers(static_cast<size_t>(shape[a]));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i);
    std::vector<ops::Value> inputs{ops::Value(ops::Tensor::of<float>(DType::kFloat, from, numbers))};
    for (unsigned i = 1; i < op.getInputs().size(); ++i) {
      mlir::Value v = nn::input_or_null(op, i);
      const auto constant = v ? nn::constant_value(v) : std::nullopt;
      if (v && !constant) return std::nullopt;
      if (!constant) {
        inputs.emplace_back();
      } else if (constant->size() != static_cast<int64_t>(out.size())) {
        inputs.emplace_back(*constant);  // a region of interest, or nothing
      } else if (constant->dtype() == DType::kFloat) {
        std::vector<float> scales(out.size(), 1.0f);
        scales[a] = constant->to_floats()[a];
        inputs.emplace_back(ops::Tensor::of<float>(DType::kFloat, {static_cast<int64_t>(out.size())}, scales));
      } else {
        inputs.emplace_back(ops::Tensor::of<int64_t>(DType::kInt64, {static_cast<int64_t>(out.size())}, to));
      }
    }
    ops::Node one = node;
    if (node.has("scales")) {
      const auto* scales = std::get_if<std::vector<float>>(&one.attributes["scales"]);
      if (scales == nullptr || scales->size() != out.size()) return std::nullopt;
      std::vector<float> own(out.size(), 1.0f);
      own[a] = (*scales)[a];
      one.attributes["scales"] = own;
    }
    const auto result = ops::evaluate(one, inputs);
    if (result.size() != 1 || result[0].tensor.shape() != to) return std::nullopt;
    std::vector<int64_t> at;
    for (const float v : result[0].tensor.to_floats()) {
      if (!(v >= 0 && v < static_cast<float>(shape[a]))) return std::nullopt;
      at.push_back(static_cast<int64_t>(v));
    }
    select(steps, shape, a, at);
  }
  return steps;
}

std::optional<Steps> gather_steps(NodeOp op, const ops::Node& node, Shape shape) {
  auto at = constant_ints(op, 1);
  int64_t axis = node.get_int("axis", 0);
  if (!at || at->empty() || !in_rank(axis, shape.size())) return std::nullopt;
  const int64_t extent = shape[static_cast<size_t>(axis)];
  for (int64_t& p : *at) {
    if (p < 0) p += extent;
    if (p < 0 || p >= extent) return std::nullopt;
  }
  Steps steps;
  select(steps, shape, static_cast<size_t>(axis), *at);
  steps.push_back(reshape_to(*nn::shape_of(op.getResult(0))));
  return steps;
}

std::optional<Steps> transpose_steps(const ops::Node& node, const Shape& shape) {
  Shape permutation;
  for (size_t i = shape.size(); i-- > 0;) permutation.push_back(static_cast<int64_t>(i));
  permutation = node.get_ints("perm", permutation);
  if (permutation.size() != shape.size()) return std::nullopt;
  return Steps{transpose_by(shape, permutation)};
}

Steps expand_steps(const Shape& shape, const Shape& out) {
  Shape wide(out.size() - shape.size(), 1);
  wide.insert(wide.end(), shape.begin(), shape.end());
  return {reshape_to(wide), expand_to(out)};
}

Steps tile_steps(const Shape& shape, const Shape& out) {
  Shape apart, repeated;
  for (size_t a = 0; a < shape.size(); ++a) {
    apart.insert(apart.end(), {1, shape[a]});
    repeated.insert(repeated.end(), {out[a] / shape[a], shape[a]});
  }
  return {reshape_to(apart), expand_to(repeated), reshape_to(out)};
}

std::optional<Steps> depth_to_space_steps(const ops::Node& node, const Shape& shape, const Shape& out) {
  const int64_t b = node.get_int("blocksize", 0);
  if (shape.size() != 4 || b <= 0) return std::nullopt;
  const bool column_first = node.get_string("mode", "DCR") == "CRD";
  const int64_t c = shape[1] / (b * b);
  const Shape apart =
      column_first ? Shape{shape[0], c, b, b, shape[2], shape[3]} : Shape{shape[0], b, b, c, shape[2], shape[3]};
  return Steps{reshape_to(apart), transpose_by(apart, column_first ? Shape{0, 1, 4, 2, 5, 3} : Shape{0, 3, 4, 1, 5, 2}),
               reshape_to(out)};
}

std::optional<Steps> space_to_depth_steps(const ops::Node& node, const Shape& shape, const Shape& out) {
  const int64_t b = node.get_int("blocksize", 0);
  if (shape.size() != 4 || b <= 0) return std::nullopt;
  const Shape apart{shape[0], shape[1], shape[2] / b, b, shape[3] / b, b};
  const bool depth_last = node.get_string("mode", "DCR") == "CRD";
  return Steps{reshape_to(apart), transpose_by(apart, depth_last ? Shape{0, 1, 3, 5, 2, 4} : Shape{0, 3, 5, 1, 2, 4}),
               reshape_to(out)};
}

std::optional<std::vector<Steps>> one(std::optional<Steps> steps) {
  if (!steps) return std::nullopt;
  return std::vector<Steps>{std::move(*steps)};
}

}  // namespace

std::optional<std::vector<Steps>> moves_of(NodeOp op) {
  if (!op.getDomain().empty() || operator_names().movements.count(op.getOpType().str()) == 0) return std::nullopt;
  if (op.getInputs().empty() || nn::is_none(op.getInputs()[0])) return std::nullopt;
  const auto known = nn::shape_of(op.getInputs()[0]);
  if (!known) return std::nullopt;
  const Shape& shape = *known;
  const ops::Node node = nn::to_node(op);
  if (op.is("Split")) return split_steps(op, node, shape);
  if (op.getOutputs().size() != 1) return std::nullopt;
  const Shape out = *nn::shape_of(op.getResult(0));
  for (const char* type : {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"})
    if (op.is(type)) return one(Steps{reshape_to(out)});
  if (op.is("Transpose")) return one(transpose_steps(node, shape));
  if (op.is("Slice")) return one(slice_steps(op, node, shape));
  if (op.is("Pad")) return one(pad_steps(op, node, shape));
  if (op.is("Resize") || op.is("Upsample")) return one(resize_steps(op, node, shape));
  if (op.is("Gather")) return one(gather_steps(op, node, shape));
  if (op.is("Expand")) return one(expand_steps(shape, out));
  if (op.is("Tile")) return one(tile_steps(shape, out));
  if (op.is("DepthToSpace")) return one(depth_to_space_steps(node, shape, out));
  if (op.is("SpaceToDepth")) return one(space_to_depth_steps(node, shape, out));
  return std::nullopt;
}

std::optional<Claim> claim_moves(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  if (!x || !is_byte(nn::dtype_of(x)) || nn::constant_value(x)) return std::nullopt;
  for (mlir::Value v : op.getOutputs())
    if (nn::dtype_of(v) != nn::dtype_of(x)) return std::nullopt;
  auto steps = moves_of(op);
  if (!steps) return std::nullopt;
  Claim c = base_claim(op, {x});
  c.op.what = graph::Move{std::move(*steps), {}};
  return c;
}

}  // namespace tessera::partition
