// SPDX-License-Identifier: Apache-2.0
// Small graphs that several families of conversions add: extents of shapes, axes, slices. Extents that the file fixes
// are constants; open ones are computed by the model.
#pragma once

#include "compiler/litert/conversions.h"

namespace tessera::litert {

/// The rank of an operand.
int64_t rank_of(const TensorInfo& tensor);
/// A possibly negative axis as one in [0, rank); refuses one outside.
int64_t normal_axis(const Op& op, int64_t axis, int64_t rank);
/// The constant operand `i` as axes in [0, rank), ascending and each once.
std::vector<int64_t> normal_axes(const Op& op, size_t i, int64_t rank);
/// The constant operand `i` as one axis of operand `data`.
int64_t constant_axis(const Op& op, size_t i, size_t data);
/// The extents of an operand, none of them open; refuses otherwise.
const ops::Shape& fixed_shape(const Op& op, size_t i);
/// The last extent of an operand; refuses where it is open or there is none.
int64_t last_extent(const Op& op, size_t i);
/// Refuses windows of a pool that are empty, or so large that a damaged file is likelier than an image.
void require_window(const Op& op, int64_t height, int64_t width);
/// The extents of an operand as a vector of int64.
Value extents(Op& op, size_t i);
/// Operand `i` as int64: a constant, or cast. A scalar stays one.
Value int64_value(Op& op, size_t i);
Value unsqueeze(Op& op, const Value& value, const std::vector<int64_t>& axes);
Value squeeze(Op& op, const Value& value, const std::vector<int64_t>& axes);
/// Elements of `value` in [begin, end) along an axis.
Value slice(Op& op, const Value& value, int64_t begin, int64_t end, int64_t axis, int64_t step = 1);
Value concat(Op& op, const Values& parts, int64_t axis);
/// A scalar in every place of a shape.
Value filled(Op& op, const Value& shape, const Value& scalar);
/// Sums and products of numbers from the file; refuse what exceeds 64 bits.
int64_t sum_of(const Op& op, int64_t a, int64_t b);
int64_t product_of(const Op& op, int64_t a, int64_t b);
/// 0, 1, ... as a vector of `count` int64 numbers.
Value counted(Op& op, int64_t count);
/// Whether operands are computed as real numbers: float32, float16, or quantised.
bool is_real(const TensorInfo& tensor);
/// `yes` where `condition` holds, else `no`; broadcast.
Value choose(Op& op, const Value& condition, const Value& yes, const Value& no);

}  // namespace tessera::litert
