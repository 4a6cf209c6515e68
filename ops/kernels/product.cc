// SPDX-License-Identifier: Apache-2.0
// Batched matrix products: operands are brought to [batch..., m, k] and [batch..., k, n], batches walk with broadcast
// strides, and each pair of matrices goes through the one kernel.
#include "ops/kernels/product.h"

#include <cmath>
#include <numeric>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/gemm_kernel.h"

namespace tessera::ops {

namespace {

template <typename F>
void visit_product(const Node& node, DType dtype, F&& f) {
  switch (dtype) {
    case DType::kFloat: f(kernel::Tag<float>{}); return;
    case DType::kDouble: f(kernel::Tag<double>{}); return;
    case DType::kInt32:
    case DType::kUint32: f(kernel::Tag<uint32_t>{}); return;
    case DType::kInt64:
    case DType::kUint64: f(kernel::Tag<uint64_t>{}); return;
    case DType::kInt16:
    case DType::kUint16: f(kernel::Tag<uint16_t>{}); return;
    case DType::kInt8:
    case DType::kUint8: f(kernel::Tag<uint8_t>{}); return;
    default: kernel::unsupported_type(node, dtype);
  }
}

}  // namespace

TypeInfo infer_product(const Node& node, const TypeInfo& a, const TypeInfo& b, DType result) {
  for (const TypeInfo* operand : {&a, &b})
    if (operand->ranked && operand->shape.empty())
      node.fail(ErrorCode::kInvalidModel, "an operand of a matrix product is a scalar");
  if (!a.ranked || !b.ranked) return TypeInfo::unranked(result);
  Shape left = a.shape, right = b.shape;
  if (a.shape.size() == 1) left.insert(left.begin(), 1);
  if (b.shape.size() == 1) right.push_back(1);
  const int64_t k_left = left.back(), k_right = right[right.size() - 2];
  if (k_left >= 0 && k_right >= 0 && k_left != k_right)
    node.fail(ErrorCode::kInvalidModel, "shapes " + to_string(a.shape) + " and " + to_string(b.shape) +
                                            " do not multiply: " + std::to_string(k_left) + " columns meet " +
                                            std::to_string(k_right) + " rows");
  const TypeInfo left_batch = TypeInfo::tensor(result, Shape(left.begin(), left.end() - 2));
  const TypeInfo right_batch = TypeInfo::tensor(result, Shape(right.begin(), right.end() - 2));
  Shape shape = broadcast_types(node, result, {&left_batch, &right_batch}).shape;
  if (a.shape.size() > 1) shape.push_back(left[left.size() - 2]);
  if (b.shape.size() > 1) shape.push_back(right.back());
  return TypeInfo::tensor(result, std::move(shape));
}

Tensor matrix_product(const Node& node, const Tensor& a, const Tensor& b) {
  Tensor y(a.dtype(), infer_product(node, TypeInfo::tensor(a.dtype(), a.shape()),
                                    TypeInfo::tensor(b.dtype(), b.shape()), a.dtype())
                          .shape);
  if (y.size() == 0) return y;
  Shape left = a.shape(), right = b.shape();
  if (left.size() == 1) left.insert(left.begin(), 1);
  if (right.size() == 1) right.push_back(1);
  const int64_t m = left[left.size() - 2], k = left.back(), n = right.back();
  const Shape left_batch(left.begin(), left.end() - 2), right_batch(right.begin(), right.end() - 2);
  const Shape batch = broadcast_shapes(node, {left_batch, right_batch});
  visit_product(node, a.dtype(), [&]<typename T>(kernel::Tag<T>) {
    const T* left_data = kernel::elements<T>(a);
    const T* right_data = kernel::elements<T>(b);
    T* out = kernel::mutable_elements<T>(y);
    if (right_batch.empty()) {  // one matrix for all rows: the batches are rows of one product
      multiply<T>(y.size() / n, n, k, {left_data, k, 1}, {right_data, n, 1}, out, n);
      return;
    }
    const std::vector<int64_t> left_strides = broadcast_strides(left_batch, batch);
    const std::vector<int64_t> right_strides = broadcast_strides(right_batch, batch);
    for_each_index(batch, [&](int64_t flat, const std::vector<int64_t>& index) {
      const int64_t left_at = std::inner_product(index.begin(), index.end(), left_strides.begin(), int64_t{0});
      const int64_t right_at = std::inner_product(index.begin(), index.end(), right_strides.begin(), int64_t{0});
      multiply<T>(m, n, k, {left_data + left_at * m * k, k, 1}, {right_data + right_at * k * n, n, 1},
                  out + flat * m * n, n);
    });
  });
  return y;
}

Tensor permuted(const Tensor& x, const std::vector<int64_t>& order) {
  const std::vector<int64_t> strides = kernel::row_strides(x.shape());
  Shape shape;
  std::vector<int64_t> from;
  for (int64_t axis : order) {
    shape.push_back(x.shape()[static_cast<size_t>(axis)]);
    from.push_back(strides[static_cast<size_t>(axis)]);
  }
  return kernel::gather_strided(x, shape, 0, from);
}

TypeInfo infer_general_product(const InferContext& c) {
  const Node& node = c.node;
  const TypeInfo& a = c.input(0);
  const TypeInfo& b = c.input(1);
  for (size_t i = 1; i < 3; ++i)
    if (c.has(i)) kernel::require_same_type(node, a, c.input(i));
  kernel::require_rank(node, a, 2, "the first operand");
  kernel::require_rank(node, b, 2, "the second operand");
  const bool trans_a = node.get_int("transA", 0) != 0, trans_b = node.get_int("transB", 0) != 0;
  const auto dim = [](const TypeInfo& t, size_t i) { return t.ranked ? t.shape[i] : -1; };
  const int64_t m = dim(a, trans_a ? 1 : 0), k_left = dim(a, trans_a ? 0 : 1);
  const int64_t k_right = dim(b, trans_b ? 1 : 0), n = dim(b, trans_b ? 0 : 1);
  if (k_left >= 0 && k_right >= 0 && k_left != k_right)
    node.fail(ErrorCode::kInvalidModel, "shapes " + to_string(a.shape) + " and " + to_string(b.shape) +
                                            " do not multiply: " + std::to_string(k_left) + " columns meet " +
                                            std::to_string(k_right) + " rows");
  const Shape shape = {m, n};
  if (c.has(2) && c.input(2).ranked) {
    const Shape& added = c.input(2).shape;
    bool fits = added.size() <= 2;
    for (size_t i = 0; fits && i < added.size(); ++i) {
      const int64_t extent = shape[2 - added.size() + i];
      fits = added[i] == 1 || added[i] < 0 || extent < 0 || added[i] == extent;
    }
    if (!fits)
      node.fail(ErrorCode::kInvalidModel, "C " + to_string(added) + " does not broadcast to " + to_string(shape));
  }
  return TypeInfo::tensor(a.dtype, shape);
}

Tensor general_product(const Node& node, const Tensor& a, const Tensor& b, const Tensor* c) {
  const bool trans_a = node.get_int("transA", 0) != 0, trans_b = node.get_int("transB", 0) != 0;
  const int64_t m = a.shape()[trans_a ? 1 : 0], k = a.shape()[trans_a ? 0 : 1], n = b.shape()[trans_b ? 0 : 1];
  const float alpha = node.get_float("alpha", 1.0f), beta = node.get_float("beta", 1.0f);
  Tensor y(a.dtype(), {m, n});
  if (y.size() == 0) return y;
  visit_product(node, a.dtype(), [&]<typename T>(kernel::Tag<T>) {
    T* out = kernel::mutable_elements<T>(y);
    const int64_t a_width = a.shape()[1], b_width = b.shape()[1];
    multiply<T>(m, n, k, {kernel::elements<T>(a), trans_a ? 1 : a_width, trans_a ? a_width : 1},
                {kernel::elements<T>(b), trans_b ? 1 : b_width, trans_b ? b_width : 1}, out, n);
    const auto factor = [&](float value) {
      if constexpr (std::is_integral_v<T>) {
        if (std::nearbyint(value) != value || std::fabs(value) > 0x1p31f)
          node.fail(ErrorCode::kUnsupported, "alpha and beta of an integer product must be whole numbers");
        return static_cast<T>(static_cast<int64_t>(value));
      } else {
        return static_cast<T>(value);
      }
    };
    const T scale = factor(alpha);
    if (alpha != 1.0f)
      for (int64_t i = 0; i < y.size(); ++i) out[i] = static_cast<T>(out[i] * scale);
    if (c != nullptr && beta != 0.0f) {
      const T added_scale = factor(beta);
      const std::vector<int64_t> strides = broadcast_strides(c->shape(), y.shape());
      const T* added = kernel::elements<T>(*c);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j)
          out[i * n + j] =
              static_cast<T>(out[i * n + j] + static_cast<T>(added_scale * added[i * strides[0] + j * strides[1]]));
    }
  });
  return y;
}

}  // namespace tessera::ops
