// SPDX-License-Identifier: Apache-2.0
// Products of two run-time tensors in a region. Both operands are matrices over the batch of the result, broadcast by
// strides of 0. The machine wants the k of both contiguous: an operand that a transpose has turned already is read as
// it lies, a host value is packed so, another is transposed first, except a second operand so small that fetching it
// byte by byte takes less time.
#include <algorithm>

#include "compiler/partition/region.h"

namespace tessera::partition {
namespace {

constexpr int64_t kMostProducts = 256;  // operations for one node

/// One stride for each axis, and the elements of `axis` side by side.
bool in_rows_of(const Layout& layout, size_t axis) {
  const auto& parts = layout.axes[axis];
  return (parts.empty() || parts[0].stride == 1) &&
         std::all_of(layout.axes.begin(), layout.axes.end(), [](const auto& a) { return a.size() < 2; });
}

/// The layout with axes [batch.., first, second]: those of `batch` that are missing or of extent 1 repeated, a vector's
/// missing one of extent 1.
Layout as_matrices(const Layout& layout, const Extents& batch, bool turned, bool vector_is_column) {
  Layout out = layout;
  if (out.axes.size() == 1) out.axes.insert(vector_is_column ? out.axes.end() : out.axes.begin(), std::vector<Part>{});
  if (turned) std::swap(out.axes[out.axes.size() - 2], out.axes.back());
  const size_t missing = batch.size() - (out.axes.size() - 2);
  out.axes.insert(out.axes.begin(), missing, {});
  for (size_t i = 0; i < batch.size(); ++i)
    if (out.axes[i].empty()) out = expand(out, i, batch[i]);
  return out;
}

}  // namespace

std::optional<Region::Device> Region::arranged(const Claim& claim, mlir::Value value, const Order& order,
                                               const std::function<bool(const Device&)>& fits) {
  const auto found = produced_.find(value);
  if (found != produced_.end() && fits(found->second)) return found->second;
  for (const auto* list : {&copies_, &packed_})
    for (const auto& [known, device] : *list)
      if (known == value && fits(device)) return device;
  if (found == produced_.end()) {
    packed(value, order, collapse(*nn::shape_of(value), order));
    return packed_.back().second;
  }
  return copied_operand(claim, value, order);
}

bool Region::add_product(const Claim& claim, const ProductClaim& what) {
  mlir::Value y = claim.result();
  const ops::Shape shapes[2] = {*nn::shape_of(claim.operands[0]), *nn::shape_of(claim.operands[1])},
                   out = *nn::shape_of(y);
  const bool vector[2] = {shapes[0].size() == 1, shapes[1].size() == 1};
  if ((what.transposed[0] && vector[0]) || (what.transposed[1] && vector[1])) return false;
  const size_t matrix_axes = (vector[0] ? 0u : 1u) + (vector[1] ? 0u : 1u);
  if (out.size() < matrix_axes) return false;
  const Extents batch(out.begin(), out.end() - static_cast<std::ptrdiff_t>(matrix_axes));
  // Axis of k in each operand, and the order that has it last.
  size_t k_axis[2];
  Order order[2];
  for (size_t i = 0; i < 2; ++i) {
    const size_t rank = shapes[i].size();
    k_axis[i] = vector[i] || (i == 0) != what.transposed[i] ? rank - 1 : rank - 2;
    order[i] = identity_order(rank);
    if (k_axis[i] + 1 != rank) std::swap(order[i][rank - 2], order[i][rank - 1]);
  }
  const int64_t k = shapes[0][k_axis[0]];
  const int64_t rows =
      vector[0] ? 1 : shapes[0][k_axis[0] + 1 == shapes[0].size() ? shapes[0].size() - 2 : shapes[0].size() - 1];
  const int64_t columns =
      vector[1] ? 1 : shapes[1][k_axis[1] + 1 == shapes[1].size() ? shapes[1].size() - 2 : shapes[1].size() - 1];
  if (shapes[1][k_axis[1]] != k || ops::element_count(out) != ops::element_count(batch) * rows * columns) return false;

  const auto rows_of_k = [&](size_t side) {
    return [axis = k_axis[side]](const Device& device) { return in_rows_of(device.layout, axis); };
  };
  const auto a = arranged(claim, claim.operands[0], order[0], rows_of_k(0));
  if (!a) return false;
  bool transposed = true;  // the factor as [columns, k]
  const size_t other = vector[1] ? 0 : k_axis[1] + 1 == shapes[1].size() ? shapes[1].size() - 2 : shapes[1].size() - 1;
  std::optional<Device> b;
  if (const auto found = produced_.find(claim.operands[1]); found != produced_.end() &&
                                                            !in_rows_of(found->second.layout, k_axis[1]) &&
                                                            in_rows_of(found->second.layout, other)) {
    npu::Tensor left, factor, product;
    left.h = product.h = factor.h = ops::element_count(batch);
    left.w = product.w = rows;
    factor.w = left.c = k;
    factor.c = product.c = columns;
    if (!npu::pays_to_transpose(left, factor, product, config_)) {
      b = found->second;
      transposed = false;
    }
  }
  if (!b) b = arranged(claim, claim.operands[1], order[1], rows_of_k(1));
  if (!b) return false;
  const Layout left = as_matrices(a->layout, batch, what.transposed[0], false);
  const Layout right = as_matrices(b->layout, batch, transposed != what.transposed[1], true);

  // Axes of the batch from slowest on: some become operations of their own, the others n and h of the tensors.
  const Order in_order = identity_order(out.size());
  Layout whole = Layout::dense(out, in_order);
  if (vector[0]) whole.axes.insert(whole.axes.begin() + static_cast<std::ptrdiff_t>(batch.size()), std::vector<Part>{});
  if (vector[1]) whole.axes.emplace_back();
  struct Split {
    size_t apart = 0, images = 0;  // axes [0, apart) apart, [apart, images) in n, the rest in h
  };
  const auto count = [&](size_t first, size_t last) {
    return ops::element_count(ops::Shape(batch.begin() + static_cast<std::ptrdiff_t>(first),
                                         batch.begin() + static_cast<std::ptrdiff_t>(last)));
  };
  const auto inner = [&](Layout layout, size_t apart) {
    layout.axes.erase(layout.axes.begin(), layout.axes.begin() + static_cast<std::ptrdiff_t>(apart));
    return layout;
  };
  std::optional<Split> split;
  for (size_t apart = 0; apart <= batch.size() && !split; ++apart) {
    // The last axis of the batch in h, as element-wise operations behind the product have it; else any border.
    size_t last = batch.size();
    while (last > apart && (last == batch.size() || batch[last] == 1)) --last;
    std::vector<size_t> borders{last};
    for (size_t border = apart; border <= batch.size(); ++border) borders.push_back(border);
    for (size_t i = 0; i < borders.size() && !split; ++i) {
      const size_t images = borders[i];
      const int64_t n = count(apart, images), h = count(images, batch.size());
      const Order axes = identity_order(batch.size() - apart + 2);
      if (as_box(inner(left, apart), axes, {n, h, rows, k}) &&
          as_box(inner(whole, apart), axes, {n, h, rows, columns}) &&
          as_box(inner(right, apart), axes, {n, h, transposed ? columns : k, transposed ? k : columns}))
        split = Split{apart, images};
    }
  }
  if (!split) return false;
  const int64_t operations = count(0, split->apart), n = count(split->apart, split->images),
                h = count(split->images, batch.size());
  if (operations > kMostProducts) return false;
  const Order axes = identity_order(batch.size() - split->apart + 2);
  const npu::TensorId result_id = result(y, in_order, {operations * n, h, rows, columns});
  for (int64_t index = 0; index < operations; ++index) {
    const auto part = [&](npu::TensorId root, Layout layout, const Dims& dims) {
      int64_t rest = index;
      for (size_t axis = split->apart; axis-- > 0; rest /= batch[axis])
        layout = *slice(layout, axis, rest % batch[axis], 1, 1);
      return boxed(root, *as_box(inner(std::move(layout), split->apart), axes, dims));
    };
    npu::Product product;
    product.transposed = transposed;
    product.input_zero = what.zero[0];
    product.factor_zero = what.zero[1];
    product.stage = what.stage;
    product.input = part(a->tensor, left, {n, h, rows, k});
    product.factor = part(b->tensor, right, transposed ? Dims{n, h, columns, k} : Dims{n, h, k, columns});
    product.output = part(result_id, whole, {n, h, rows, columns});
    push(claim, std::move(product), std::max<int64_t>(claim.macs / operations, 1));
    if (index > 0) nodes_.back().clear();  // the node counts once
  }
  return true;
}

}  // namespace tessera::partition
