// SPDX-License-Identifier: Apache-2.0
#include "compiler/litert/build.h"

#include <algorithm>
#include <numeric>

namespace tessera::litert {

int64_t rank_of(const TensorInfo& tensor) { return static_cast<int64_t>(tensor.shape.size()); }

int64_t normal_axis(const Op& op, int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    op.refuse("axis " + std::to_string(axis) + " lies outside of rank " + std::to_string(rank),
              ErrorCode::kInvalidModel);
  return axis < 0 ? axis + rank : axis;
}

std::vector<int64_t> normal_axes(const Op& op, size_t i, int64_t rank) {
  std::vector<int64_t> axes = op.integers(i, "the vector of axes");
  for (int64_t& axis : axes) axis = normal_axis(op, axis, rank);
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  return axes;
}

int64_t constant_axis(const Op& op, size_t i, size_t data) {
  const std::vector<int64_t> axis = op.integers(i, "the axis");
  if (axis.size() != 1) op.refuse("there must be one axis", ErrorCode::kInvalidModel);
  return normal_axis(op, axis[0], rank_of(op.input(data)));
}

const ops::Shape& fixed_shape(const Op& op, size_t i) {
  const ops::Shape& shape = op.input(i).shape;
  if (std::count(shape.begin(), shape.end(), -1) > 0)
    op.refuse("operand " + std::to_string(i) + " has the open shape " + ops::to_string(shape) +
              "; export the model with a fixed shape");
  return shape;
}

int64_t last_extent(const Op& op, size_t i) {
  if (fixed_shape(op, i).empty())
    op.refuse("operand " + std::to_string(i) + " must have an axis", ErrorCode::kInvalidModel);
  return op.input(i).shape.back();
}

void require_window(const Op& op, int64_t height, int64_t width) {
  constexpr int64_t kLargest = 4096;
  if (height < 1 || width < 1 || height > kLargest || width > kLargest)
    op.refuse("a window of " + std::to_string(height) + " by " + std::to_string(width) + " is not supported",
              ErrorCode::kInvalidModel);
}

Value extents(Op& op, size_t i) {
  const ops::Shape& shape = op.input(i).shape;
  if (std::count(shape.begin(), shape.end(), -1) == 0) return op.ints(shape);
  return op.node("Shape", {op.value(i)});
}

Value int64_value(Op& op, size_t i) {
  if (const auto tensor = op.content(i)) {
    ops::Tensor wide(ops::DType::kInt64, tensor->shape());
    const std::vector<int64_t> values = tensor->to_int64s();
    std::copy(values.begin(), values.end(), wide.as_mutable<int64_t>().begin());
    return op.constant(wide);
  }
  if (op.input(i).shape == ops::Shape{0}) return op.ints({});
  return op.input(i).type == TensorType::kInt64 ? op.value(i) : op.cast(op.value(i), ops::DType::kInt64);
}

Value unsqueeze(Op& op, const Value& value, const std::vector<int64_t>& axes) {
  return axes.empty() ? value : op.node("Unsqueeze", {value, op.ints(axes)});
}

Value squeeze(Op& op, const Value& value, const std::vector<int64_t>& axes) {
  return axes.empty() ? value : op.node("Squeeze", {value, op.ints(axes)});
}

Value slice(Op& op, const Value& value, int64_t begin, int64_t end, int64_t axis, int64_t step) {
  return op.node("Slice", {value, op.ints({begin}), op.ints({end}), op.ints({axis}), op.ints({step})});
}

Value concat(Op& op, const Values& parts, int64_t axis) {
  return parts.size() == 1 ? parts.front() : op.node("Concat", parts, {{"axis", axis}});
}

Value filled(Op& op, const Value& shape, const Value& scalar) { return op.node("Expand", {scalar, shape}); }

int64_t sum_of(const Op& op, int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) op.refuse("a number is too large", ErrorCode::kInvalidModel);
  return sum;
}

int64_t product_of(const Op& op, int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) op.refuse("a number is too large", ErrorCode::kInvalidModel);
  return product;
}

Value counted(Op& op, int64_t count) {
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), 0);
  return op.ints(numbers);
}

bool is_real(const TensorInfo& tensor) {
  return tensor.type == TensorType::kFloat32 || tensor.type == TensorType::kFloat16 || tensor.is_quantised();
}

Value choose(Op& op, const Value& condition, const Value& yes, const Value& no) {
  return op.node("Where", {condition, yes, no});
}

}  // namespace tessera::litert
