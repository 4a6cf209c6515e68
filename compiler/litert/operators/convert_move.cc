// SPDX-License-Identifier: Apache-2.0
// Operators that only move elements, beside those of convert_layout.cc. They keep type and quantisation, so bytes stay
// bytes and the NPU moves them by strides.
#include <algorithm>
#include <numeric>

#include "compiler/litert/build.h"

namespace tessera::litert {
namespace {

using ops::DType;

constexpr int64_t kMostAxes = 64;

/// LiteRT has kernels for operands and results of one quantisation only.
void require_same_quantisation(Op& op, size_t operand) {
  const Quantisation &a = op.input(operand).quantisation, &b = op.output().quantisation;
  if (!op.is_quantised() || !a.present()) return;
  if (a.scales != b.scales || a.zero_points != b.zero_points)
    op.refuse("operand and result have different quantisations", ErrorCode::kInvalidModel);
}

void convert_squeeze(Op& op) {
  const int64_t rank = rank_of(op.input(0));
  std::vector<int64_t> axes = op.option(SqueezeOptions::squeeze_dims).to<std::vector<int64_t>>();
  for (int64_t& axis : axes) axis = normal_axis(op, axis, rank);
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  op.give(0, axes.empty() ? op.node("Squeeze", {op.value(0)}) : squeeze(op, op.value(0), axes));
}

void convert_expand_dims(Op& op) {
  if (!op.content(1)) return op.give(0, op.node("Unsqueeze", {op.value(0), op.reshape(int64_value(op, 1), {1})}));
  const std::vector<int64_t> axis = op.integers(1, "the axis");
  if (axis.size() != 1) op.refuse("there must be one axis", ErrorCode::kInvalidModel);
  op.give(0, unsqueeze(op, op.value(0), {normal_axis(op, axis[0], rank_of(op.input(0)) + 1)}));
}

void convert_transpose(Op& op) {
  std::vector<int64_t> perm = op.integers(1, "the permutation");
  for (int64_t& axis : perm) axis = normal_axis(op, axis, rank_of(op.input(0)));
  op.give(0, op.transpose(op.value(0), perm));
}

void convert_pack(Op& op) {
  const int64_t axis = normal_axis(op, op.option(PackOptions::axis), rank_of(op.input(0)) + 1);
  Values parts;
  for (size_t i = 0; i < op.input_count(); ++i) parts.push_back(unsqueeze(op, op.value(i), {axis}));
  op.give(0, concat(op, parts, axis));
}

/// Gives the results of a split along an axis.
void give_parts(Op& op, size_t operand, const std::vector<int64_t>& sizes, int64_t axis, bool without_axis) {
  if (sizes.size() != op.output_count() || sizes.empty())
    op.refuse(std::to_string(sizes.size()) + " parts for " + std::to_string(op.output_count()) + " results",
              ErrorCode::kInvalidModel);
  Values parts = {op.value(operand)};
  if (sizes.size() > 1) parts = op.nodes("Split", {parts[0], op.ints(sizes)}, {{"axis", axis}}, sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) op.give(i, without_axis ? squeeze(op, parts[i], {axis}) : parts[i]);
}

int64_t fixed_extent(Op& op, size_t operand, int64_t axis) {
  const int64_t extent = op.input(operand).shape[static_cast<size_t>(axis)];
  if (extent < 0) op.refuse("the axis that is split has no fixed extent; export the model with a fixed shape");
  return extent;
}

void convert_unpack(Op& op) {
  const int64_t axis = normal_axis(op, op.option(UnpackOptions::axis), rank_of(op.input(0)));
  give_parts(op, 0, std::vector<int64_t>(op.output_count(), 1), axis, true);
}

void convert_split(Op& op) {
  const int64_t axis = constant_axis(op, 0, 1), extent = fixed_extent(op, 1, axis),
                parts = static_cast<int64_t>(op.output_count());
  if (parts == 0 || extent % parts != 0)
    op.refuse("an axis of " + std::to_string(extent) + " does not divide into " + std::to_string(parts) + " parts",
              ErrorCode::kInvalidModel);
  give_parts(op, 1, std::vector<int64_t>(op.output_count(), extent / parts), axis, false);
}

void convert_split_v(Op& op) {
  std::vector<int64_t> sizes = op.integers(1, "the vector of sizes");
  const int64_t axis = constant_axis(op, 2, 0);
  if (std::count(sizes.begin(), sizes.end(), -1) > 1)
    op.refuse("more than one size is left open", ErrorCode::kInvalidModel);
  for (int64_t& size : sizes)
    if (size == -1) {
      int64_t rest = fixed_extent(op, 0, axis);
      for (const int64_t other : sizes) rest = sum_of(op, rest, other == -1 ? 0 : product_of(op, other, -1));
      size = rest;
      break;
    }
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; }))
    op.refuse("the sizes exceed the axis", ErrorCode::kInvalidModel);
  give_parts(op, 0, sizes, axis, false);
}

void convert_slice(Op& op) {
  const Value begin = int64_value(op, 1), size = int64_value(op, 2);
  Value end;
  if (op.content(1) && op.content(2)) {
    std::vector<int64_t> ends = op.integers(1, "begin");
    const std::vector<int64_t> sizes = op.integers(2, "size");
    if (ends.size() != sizes.size()) op.refuse("begin and size differ in length", ErrorCode::kInvalidModel);
    for (size_t i = 0; i < ends.size(); ++i) ends[i] = sizes[i] < 0 ? INT64_MAX : sum_of(op, ends[i], sizes[i]);
    end = op.ints(ends);
  } else {
    end = choose(op, op.node("Less", {size, op.scalar(DType::kInt64, 0)}), op.ints({INT64_MAX}),
                 op.node("Add", {begin, size}));
  }
  op.give(0, op.node("Slice", {op.value(0), begin, end, counted(op, rank_of(op.input(0)))}));
}

/// What STRIDED_SLICE does on each axis of its operand, and to the axes of its result.
struct StridedSlice {
  std::vector<int64_t> begin, end, step;  // of ONNX's Slice, for every axis
  std::vector<int64_t> dropped, added;    // axes of the operand that go; of the result that are new
};

/// The bits of a mask, by position in begin, end and strides.
bool bit(int32_t mask, size_t i) { return ((mask >> i) & 1) != 0; }

class StridedSliceReader {
 public:
  explicit StridedSliceReader(Op& op)
      : op_(op),
        begin_(op.integers(1, "begin")),
        end_(op.integers(2, "end")),
        step_(op.integers(3, "the vector of strides")),
        shape_(op.input(0).shape) {}

  /// Axes that an ellipsis covers, and those behind the last entry, are whole.
  StridedSlice read() {
    if (begin_.size() != end_.size() || begin_.size() != step_.size() || begin_.size() > 31)
      op_.refuse("begin, end and strides differ in length", ErrorCode::kInvalidModel);
    size_t entries = 0;  // that stand for an axis
    for (size_t i = 0; i < begin_.size(); ++i) entries += !bit(ellipsis_, i) && !bit(new_, i) ? 1 : 0;
    if (entries > shape_.size()) op_.refuse("more entries than axes", ErrorCode::kInvalidModel);
    bool open = true;  // no ellipsis came
    for (size_t i = 0; i < begin_.size(); ++i) {
      if (bit(ellipsis_, i) && open) {
        // One axis at least, even where all have entries; the last entry then has none.
        for (size_t left = std::max<size_t>(shape_.size() - entries, 1); left > 0 && axis_ < shape_.size(); --left)
          whole();
        open = false;
      } else if (bit(new_, i)) {
        all_.added.push_back(result_++);
      } else if (axis_ < shape_.size()) {
        entry(i);
      }
    }
    while (axis_ < shape_.size()) whole();
    return all_;
  }

 private:
  using O = StridedSliceOptions;

  void add(int64_t begin, int64_t end, int64_t step) {
    all_.begin.push_back(begin), all_.end.push_back(end), all_.step.push_back(step);
    ++axis_;
  }
  void whole() {
    add(0, INT64_MAX, 1);
    ++result_;
  }
  void entry(size_t i) {
    if (step_[i] == 0) op_.refuse("a stride is 0", ErrorCode::kInvalidModel);
    const bool back = step_[i] < 0, from_edge = bit(op_.option(O::begin_mask), i);
    if (bit(shrink_, i)) {
      const int64_t at = from_edge ? 0 : begin_[i];
      all_.dropped.push_back(static_cast<int64_t>(axis_));
      return add(at, at == -1 ? INT64_MAX : sum_of(op_, at, 1), 1);
    }
    int64_t stop = op_.option(O::offset) ? sum_of(op_, begin_[i], end_[i]) : end_[i];
    if (bit(op_.option(O::end_mask), i)) stop = back ? INT64_MIN : INT64_MAX;
    add(from_edge ? (back ? INT64_MAX : 0) : begin_[i], stop, step_[i]);
    ++result_;
  }

  Op& op_;
  std::vector<int64_t> begin_, end_, step_;
  const ops::Shape& shape_;
  int32_t ellipsis_ = op_.option(O::ellipsis_mask), new_ = op_.option(O::new_axis_mask),
          shrink_ = op_.option(O::shrink_axis_mask);
  StridedSlice all_;
  size_t axis_ = 0;     // of the operand
  int64_t result_ = 0;  // of the result
};

/// Bounds that the model computes. Only masks that leave a side open go with them.
void convert_computed_strided_slice(Op& op) {
  using O = StridedSliceOptions;
  if (op.option(O::ellipsis_mask) != 0 || op.option(O::new_axis_mask) != 0 || op.option(O::offset))
    op.refuse("computed bounds with an ellipsis, new axes or offsets are not supported");
  const std::vector<int64_t> step = op.integers(3, "the vector of strides");
  std::vector<int64_t> low, high, dropped;
  std::vector<uint8_t> open_begin, open_end;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == 0) op.refuse("a stride is 0", ErrorCode::kInvalidModel);
    low.push_back(step[i] < 0 ? INT64_MAX : 0), high.push_back(step[i] < 0 ? INT64_MIN : INT64_MAX);
    open_begin.push_back(bit(op.option(O::begin_mask), i)), open_end.push_back(bit(op.option(O::end_mask), i));
    if (bit(op.option(O::shrink_axis_mask), i)) dropped.push_back(static_cast<int64_t>(i));
  }
  const auto flags = [&](const std::vector<uint8_t>& bits) {
    return op.constant(ops::Tensor::of<uint8_t>(DType::kBool, {static_cast<int64_t>(bits.size())}, bits));
  };
  const Value sliced = op.node("Slice", {op.value(0), choose(op, flags(open_begin), op.ints(low), int64_value(op, 1)),
                                         choose(op, flags(open_end), op.ints(high), int64_value(op, 2)),
                                         counted(op, static_cast<int64_t>(step.size())), op.ints(step)});
  op.give(0, squeeze(op, sliced, dropped));
}

void convert_strided_slice(Op& op) {
  if (!op.content(1) || !op.content(2)) return convert_computed_strided_slice(op);
  const StridedSlice all = StridedSliceReader(op).read();
  Value value = op.value(0);
  if (!all.begin.empty())
    value = op.node("Slice", {value, op.ints(all.begin), op.ints(all.end),
                              counted(op, static_cast<int64_t>(all.begin.size())), op.ints(all.step)});
  op.give(0, unsqueeze(op, squeeze(op, value, all.dropped), all.added));
}

/// The amounts [rank, 2] of a padding operator in the order of ONNX: all in front, then all behind.
Value pad_amounts(Op& op, size_t i) {
  const auto tensor = op.content(i);
  if (!tensor) return op.reshape(op.transpose(int64_value(op, i), {1, 0}), {-1});
  const std::vector<int64_t> pairs = tensor->to_int64s();
  if (pairs.size() != 2 * op.input(0).shape.size())
    op.refuse("the amounts do not fit the rank", ErrorCode::kInvalidModel);
  std::vector<int64_t> amounts;
  for (size_t side = 0; side < 2; ++side)
    for (size_t axis = 0; axis < pairs.size() / 2; ++axis) amounts.push_back(pairs[2 * axis + side]);
  return op.ints(amounts);
}

/// A constant of the operand's type; bytes are filled with what stands for zero.
Value padding_value(Op& op) {
  const TensorInfo& x = op.input(0);
  return op.scalar(op.dtype(0), x.is_quantised() ? static_cast<double>(x.quantisation.zero()) : 0);
}

void convert_pad(Op& op) {
  require_same_quantisation(op, 0);
  op.give(0, op.node("Pad", {op.value(0), pad_amounts(op, 1), padding_value(op)}));
}

void convert_padv2(Op& op) {
  require_same_quantisation(op, 0);
  op.give(0, op.node("Pad", {op.value(0), pad_amounts(op, 1), op.reshape(op.value(2), {})}));
}

/// REFLECT does not repeat the edge and is ONNX's. SYMMETRIC repeats it: a concatenation for each axis.
void convert_mirror_pad(Op& op) {
  if (static_cast<MirrorPadMode>(op.option(MirrorPadOptions::mode)) == MirrorPadMode::kReflect)
    return op.give(0, op.node("Pad", {op.value(0), pad_amounts(op, 1)}, {{"mode", std::string("reflect")}}));
  const std::vector<int64_t> amounts = op.integers(1, "the vector of amounts");
  if (amounts.size() != 2 * op.input(0).shape.size())
    op.refuse("the amounts do not fit the rank", ErrorCode::kInvalidModel);
  Value value = op.value(0);
  for (size_t axis = 0; axis < amounts.size() / 2; ++axis) {
    const int64_t front = amounts[2 * axis], behind = amounts[2 * axis + 1], at = static_cast<int64_t>(axis);
    Values parts;
    if (front > 0) parts.push_back(slice(op, value, front - 1, INT64_MIN, at, -1));
    parts.push_back(value);
    if (behind > 0) parts.push_back(slice(op, value, -1, sum_of(op, product_of(op, behind, -1), -1), at, -1));
    value = concat(op, parts, at);
  }
  op.give(0, value);
}

void convert_tile(Op& op) { op.give(0, op.node("Tile", {op.value(0), int64_value(op, 1)})); }

void convert_broadcast_to(Op& op) { op.give(0, op.node("Expand", {op.value(0), int64_value(op, 1)})); }

/// The shape to which two shapes broadcast: where one is 1 the other's extent, aligned at the end.
void convert_broadcast_args(Op& op) {
  const ops::Shape &a = fixed_shape(op, 0), &b = fixed_shape(op, 1);
  if (a.size() != 1 || b.size() != 1) op.refuse("shapes must be vectors", ErrorCode::kInvalidModel);
  const int64_t rank = std::max(a[0], b[0]);
  if (rank > kMostAxes) op.refuse("the shapes have too many axes", ErrorCode::kInvalidModel);
  const auto widened = [&](size_t i, int64_t length) {
    const Value ones = op.ints(std::vector<int64_t>(static_cast<size_t>(rank - length), 1));
    if (length == 0) return ones;
    return length == rank ? int64_value(op, i) : concat(op, {ones, int64_value(op, i)}, 0);
  };
  const Value first = widened(0, a[0]), second = widened(1, b[0]);
  const Value result = choose(op, op.node("Equal", {first, op.scalar(DType::kInt64, 1)}), second, first);
  op.give(0, op.cast(result, op.output_dtype()));
}

void convert_reverse(Op& op) {
  const std::vector<int64_t> axes = normal_axes(op, 1, rank_of(op.input(0)));
  const auto all = [&](int64_t number) { return op.ints(std::vector<int64_t>(axes.size(), number)); };
  op.give(0, op.node("Slice", {op.value(0), all(INT64_MAX), all(INT64_MIN), op.ints(axes), all(-1)}));
}

/// ONNX reverses along axis 1 for each index of axis 0.
void convert_reverse_sequence(Op& op) {
  using O = ReverseSequenceOptions;
  const int64_t rank = rank_of(op.input(0)), sequence = normal_axis(op, op.option(O::seq_dim), rank),
                batch = normal_axis(op, op.option(O::batch_dim), rank);
  if (sequence == batch) op.refuse("seq_dim and batch_dim are the same axis", ErrorCode::kInvalidModel);
  std::vector<int64_t> perm = {batch, sequence}, back(static_cast<size_t>(rank));
  for (int64_t axis = 0; axis < rank; ++axis)
    if (axis != sequence && axis != batch) perm.push_back(axis);
  for (size_t i = 0; i < perm.size(); ++i) back[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  const Value reversed = op.node("ReverseSequence", {op.transpose(op.value(0), perm), int64_value(op, 1)},
                                 {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}});
  op.give(0, op.transpose(reversed, back));
}

/// LiteRT's blocks of channels are in the order that ONNX calls DCR.
void convert_depth_to_space(Op& op) {
  const Attributes attributes = {{"blocksize", int64_t{op.option(DepthToSpaceOptions::block_size)}},
                                 {"mode", std::string("DCR")}};
  op.give(0, op.channels_last(op.node("DepthToSpace", {op.channels_first(op.value(0))}, attributes)));
}

void convert_space_to_depth(Op& op) {
  const Attributes attributes = {{"blocksize", int64_t{op.option(SpaceToDepthOptions::block_size)}}};
  op.give(0, op.channels_last(op.node("SpaceToDepth", {op.channels_first(op.value(0))}, attributes)));
}

/// The blocks of SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND, and the pairs of amounts that belong to them.
struct Blocks {
  std::vector<int64_t> blocks, amounts;
};

Blocks read_blocks(Op& op) {
  Blocks all{op.integers(1, "the vector of blocks"), op.integers(2, "the vector of amounts")};
  if (all.amounts.size() != 2 * all.blocks.size() || all.blocks.size() + 1 > op.input(0).shape.size() ||
      std::any_of(all.blocks.begin(), all.blocks.end(), [](int64_t block) { return block < 1; }))
    op.refuse("blocks, amounts and rank do not fit", ErrorCode::kInvalidModel);
  return all;
}

/// [n, s, r] with blocks b: padded, seen as [n, s/b, b, r], transposed to [b, n, s/b, r].
void convert_space_to_batch(Op& op) {
  const Blocks all = read_blocks(op);
  const ops::Shape& shape = fixed_shape(op, 0);
  const size_t spatial = all.blocks.size();
  std::vector<int64_t> front(shape.size(), 0), behind(shape.size(), 0);
  std::vector<int64_t> split = {shape[0]}, perm, joined = {shape[0]};
  for (size_t i = 0; i < spatial; ++i) {
    front[i + 1] = all.amounts[2 * i], behind[i + 1] = all.amounts[2 * i + 1];
    const int64_t extent = sum_of(op, sum_of(op, shape[i + 1], front[i + 1]), behind[i + 1]);
    if (extent % all.blocks[i] != 0) op.refuse("a block does not divide its axis", ErrorCode::kInvalidModel);
    split.insert(split.end(), {extent / all.blocks[i], all.blocks[i]});
    joined[0] = product_of(op, joined[0], all.blocks[i]);
    joined.push_back(extent / all.blocks[i]);
    perm.push_back(static_cast<int64_t>(2 * i + 2));
  }
  perm.push_back(0);
  for (size_t i = 0; i < spatial; ++i) perm.push_back(static_cast<int64_t>(2 * i + 1));
  for (size_t axis = spatial + 1; axis < shape.size(); ++axis) {
    split.push_back(shape[axis]), joined.push_back(shape[axis]);
    perm.push_back(static_cast<int64_t>(axis + spatial));
  }
  front.insert(front.end(), behind.begin(), behind.end());
  const Value padded = op.node("Pad", {op.value(0), op.ints(front), padding_value(op)});
  op.give(0, op.reshape(op.transpose(op.reshape(padded, split), perm), joined));
}

/// The way back: [b, n, s, r] to [n, s, b, r], seen as [n, s*b, r], cut.
void convert_batch_to_space(Op& op) {
  const Blocks all = read_blocks(op);
  const ops::Shape& shape = fixed_shape(op, 0);
  const size_t spatial = all.blocks.size();
  int64_t area = 1;
  for (const int64_t block : all.blocks) area = product_of(op, area, block);
  if (shape[0] % area != 0) op.refuse("the blocks do not divide the batch", ErrorCode::kInvalidModel);
  std::vector<int64_t> split = all.blocks, perm = {static_cast<int64_t>(spatial)}, joined = {shape[0] / area};
  std::vector<int64_t> begin, end, axes;
  split.push_back(shape[0] / area);
  for (size_t i = 0; i < spatial; ++i) {
    split.push_back(shape[i + 1]);
    perm.insert(perm.end(), {static_cast<int64_t>(spatial + 1 + i), static_cast<int64_t>(i)});
    joined.push_back(product_of(op, shape[i + 1], all.blocks[i]));
    begin.push_back(all.amounts[2 * i]);
    end.push_back(sum_of(op, joined.back(), product_of(op, all.amounts[2 * i + 1], -1)));
    axes.push_back(static_cast<int64_t>(i + 1));
    if (begin.back() < 0 || end.back() < begin.back()) op.refuse("the crops exceed an axis", ErrorCode::kInvalidModel);
  }
  for (size_t axis = spatial + 1; axis < shape.size(); ++axis) {
    perm.push_back(static_cast<int64_t>(axis + spatial));
    split.push_back(shape[axis]), joined.push_back(shape[axis]);
  }
  const Value whole = op.reshape(op.transpose(op.reshape(op.value(0), split), perm), joined);
  op.give(0, op.node("Slice", {whole, op.ints(begin), op.ints(end), op.ints(axes)}));
}

/// `value` of the given shape with `gaps` elements `filler` between the elements of an axis; `shape` follows. [.., n,
/// ..] as [.., n, 1, ..] is padded to [.., n, 1 + gaps, ..], joined, and cut behind the last element.
Value spread(Op& op, const Value& value, ops::Shape& shape, size_t axis, int64_t gaps, const Value& filler) {
  const int64_t extent = shape[axis];
  if (gaps == 0 || extent < 2) return value;
  const auto at = static_cast<int64_t>(axis);
  std::vector<int64_t> amounts(2 * (shape.size() + 1), 0);
  amounts[shape.size() + 1 + axis + 1] = gaps;
  const Value padded = op.node("Pad", {unsqueeze(op, value, {at + 1}), op.ints(amounts), filler});
  shape[axis] = product_of(op, extent, sum_of(op, gaps, 1));
  const Value whole = op.reshape(padded, shape);
  shape[axis] -= gaps;
  return slice(op, whole, 0, shape[axis], at);
}

void convert_dilate(Op& op) {
  ops::Shape shape = fixed_shape(op, 0);
  const std::vector<int64_t> factors = op.integers(1, "the vector of factors");
  if (factors.size() != shape.size() || std::any_of(factors.begin(), factors.end(), [](int64_t f) { return f < 1; }))
    op.refuse("there must be a factor above 0 for each axis", ErrorCode::kInvalidModel);
  const Value filler = op.reshape(op.value(2), {});
  Value value = op.value(0);
  for (size_t axis = 0; axis < shape.size(); ++axis) value = spread(op, value, shape, axis, factors[axis] - 1, filler);
  op.give(0, value);
}

void convert_stablehlo_pad(Op& op) {
  using O = StablehloPadOptions;
  const Table& options = op.info().options2;
  ops::Shape shape = fixed_shape(op, 0);
  auto low = options[O::edge_padding_low].to<std::vector<int64_t>>();
  const auto high = options[O::edge_padding_high].to<std::vector<int64_t>>(),
             inner = options[O::interior_padding].to<std::vector<int64_t>>();
  if (low.size() != shape.size() || high.size() != shape.size() || inner.size() != shape.size() ||
      std::any_of(inner.begin(), inner.end(), [](int64_t gap) { return gap < 0; }))
    op.refuse("there must be three amounts for each axis", ErrorCode::kInvalidModel);
  const Value filler = op.reshape(op.value(1), {});
  Value value = op.value(0);
  for (size_t axis = 0; axis < shape.size(); ++axis) value = spread(op, value, shape, axis, inner[axis], filler);
  low.insert(low.end(), high.begin(), high.end());
  op.give(0, op.node("Pad", {value, op.ints(low), filler}));
}

void convert_shape(Op& op) { op.give(0, op.cast(op.node("Shape", {op.value(0)}), op.output_dtype())); }

void convert_rank(Op& op) {
  op.give(0, op.cast(op.node("Size", {op.node("Shape", {op.value(0)})}), op.output_dtype()));
}

void convert_fill(Op& op) { op.give(0, filled(op, int64_value(op, 0), op.reshape(op.value(1), {}))); }

void convert_zeros_like(Op& op) { op.give(0, filled(op, extents(op, 0), op.scalar(op.dtype(0), 0))); }

/// LiteRT adds the step again and again, where ONNX multiplies it: float numbers are running sums.
void convert_range(Op& op) {
  const Value start = op.reshape(op.value(0), {}), limit = op.reshape(op.value(1), {}),
              step = op.reshape(op.value(2), {});
  if (op.input(0).type != TensorType::kFloat32) return op.give(0, op.node("Range", {start, limit, step}));
  const Value steps = op.node("Ceil", {op.node("Abs", {op.node("Div", {op.node("Sub", {limit, start}), step})})});
  const Value count = op.reshape(op.cast(steps, DType::kInt64), {1});
  const Value terms = op.node("Concat", {op.reshape(start, {1}), filled(op, count, step)}, {{"axis", int64_t{0}}});
  const Value sums = op.node("CumSum", {terms, op.scalar(DType::kInt64, 0)});
  op.give(0, op.node("Slice", {sums, op.ints({0}), count, op.ints({0})}));
}

}  // namespace

void register_move(Conversions& conversions) {
  using B = BuiltinOperator;
  conversions.add(B::kSqueeze, convert_squeeze);
  conversions.add(B::kExpandDims, convert_expand_dims);
  conversions.add(B::kTranspose, convert_transpose);
  conversions.add(B::kPack, convert_pack);
  conversions.add(B::kUnpack, convert_unpack);
  conversions.add(B::kSplit, convert_split);
  conversions.add(B::kSplitV, convert_split_v);
  conversions.add(B::kSlice, convert_slice);
  conversions.add(B::kStridedSlice, convert_strided_slice);
  conversions.add(B::kPad, convert_pad);
  conversions.add(B::kPadv2, convert_padv2);
  conversions.add(B::kMirrorPad, convert_mirror_pad);
  conversions.add(B::kTile, convert_tile);
  conversions.add(B::kBroadcastTo, convert_broadcast_to);
  conversions.add(B::kBroadcastArgs, convert_broadcast_args);
  conversions.add(B::kReverseV2, convert_reverse);
  conversions.add(B::kReverseSequence, convert_reverse_sequence);
  conversions.add(B::kDepthToSpace, convert_depth_to_space);
  conversions.add(B::kSpaceToDepth, convert_space_to_depth);
  conversions.add(B::kSpaceToBatchNd, convert_space_to_batch);
  conversions.add(B::kBatchToSpaceNd, convert_batch_to_space);
  conversions.add(B::kDilate, convert_dilate);
  conversions.add(B::kStablehloPad, convert_stablehlo_pad);
  conversions.add(B::kShape, convert_shape);
  conversions.add(B::kRank, convert_rank);
  conversions.add(B::kFill, convert_fill);
  conversions.add(B::kZerosLike, convert_zeros_like);
  conversions.add(B::kRange, convert_range);
}

}  // namespace tessera::litert
