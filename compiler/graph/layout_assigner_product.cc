// SPDX-License-Identifier: Apache-2.0
// Products of two run-time values. Both operands are matrices over the batch of the result, broadcast by strides of 0.
// The machine wants the k of both contiguous: an operand that a transpose has turned already is read as it lies, and a
// host value is packed so. A second operand with contiguous columns is left as it lies, for the pass transpose-factors
// to judge; any other is copied into order first.
#include <algorithm>

#include "compiler/graph/layout_assigner.h"

namespace tessera::graph {
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

/// Both operands as matrices; side 0 is the left one.
struct Matrices {
  Extents batch;
  std::array<bool, 2> vector{};
  std::array<size_t, 2> k_axis{}, other_axis{};  // of each operand: along the sum, and across it
  std::array<Order, 2> order;                    // that has k last
  int64_t k = 1, rows = 1, columns = 1;
};

/// Nothing when the shapes are no product.
std::optional<Matrices> matrices_of(const std::array<Extents, 2>& shapes, const Extents& out,
                                    const std::array<bool, 2>& transposed) {
  Matrices m;
  m.vector = {shapes[0].size() == 1, shapes[1].size() == 1};
  if ((transposed[0] && m.vector[0]) || (transposed[1] && m.vector[1])) return std::nullopt;
  const size_t matrix_axes = (m.vector[0] ? 0u : 1u) + (m.vector[1] ? 0u : 1u);
  if (out.size() < matrix_axes) return std::nullopt;
  m.batch.assign(out.begin(), out.end() - static_cast<std::ptrdiff_t>(matrix_axes));
  std::array<int64_t, 2> across{1, 1};
  for (size_t i = 0; i < 2; ++i) {
    const size_t rank = shapes[i].size();
    const bool last = m.vector[i] || (i == 0) != transposed[i];
    m.k_axis[i] = last ? rank - 1 : rank - 2;
    m.order[i] = identity_order(rank);
    if (!last) std::swap(m.order[i][rank - 2], m.order[i][rank - 1]);
    if (m.vector[i]) continue;
    m.other_axis[i] = last ? rank - 2 : rank - 1;
    across[i] = shapes[i][m.other_axis[i]];
  }
  m.k = shapes[0][m.k_axis[0]];
  m.rows = across[0];
  m.columns = across[1];
  if (shapes[1][m.k_axis[1]] != m.k || element_count(out) != element_count(m.batch) * m.rows * m.columns)
    return std::nullopt;
  return m;
}

int64_t extent_of(const Extents& batch, size_t first, size_t last) {
  return element_count(
      Extents(batch.begin() + static_cast<std::ptrdiff_t>(first), batch.begin() + static_cast<std::ptrdiff_t>(last)));
}

/// The layout without its first axes.
Layout inner(Layout layout, size_t apart) {
  layout.axes.erase(layout.axes.begin(), layout.axes.begin() + static_cast<std::ptrdiff_t>(apart));
  return layout;
}

/// Axes of the batch from slowest on: [0, apart) become operations of their own, [apart, images) n, the rest h.
struct Split {
  size_t apart = 0, images = 0;
};

/// The split with the fewest operations for which left operand, factor and result are boxes.
std::optional<Split> split_batch(const Matrices& m, const Layout& left, const Layout& right, const Layout& result,
                                 bool transposed) {
  const Extents& batch = m.batch;
  for (size_t apart = 0; apart <= batch.size(); ++apart) {
    // The last axis of the batch in h, as element-wise operations behind the product have it; else any border.
    size_t last = batch.size();
    while (last > apart && (last == batch.size() || batch[last] == 1)) --last;
    std::vector<size_t> borders{last};
    for (size_t border = apart; border <= batch.size(); ++border) borders.push_back(border);
    const Order axes = identity_order(batch.size() - apart + 2);
    for (const size_t images : borders) {
      const int64_t n = extent_of(batch, apart, images), h = extent_of(batch, images, batch.size());
      if (as_box(inner(left, apart), axes, {n, h, m.rows, m.k}) &&
          as_box(inner(result, apart), axes, {n, h, m.rows, m.columns}) &&
          as_box(inner(right, apart), axes, {n, h, transposed ? m.columns : m.k, transposed ? m.k : m.columns}))
        return Split{apart, images};
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<LayoutAssigner::Device> LayoutAssigner::arranged(const Operation& op, ValueId value, const Order& order,
                                                               const std::function<bool(const Device&)>& fits) {
  const auto found = produced_.find(value);
  if (found != produced_.end() && fits(found->second)) return found->second;
  for (const auto* list : {&copies_, &packed_})
    for (const auto& [known, device] : *list)
      if (known == value && fits(device)) return device;
  if (found == produced_.end()) {
    packed(value, order, collapse(shape_of(value), order));
    return packed_.back().second;
  }
  return copied_operand(op, value, order);
}

/// A produced value of which only the columns are contiguous, in every layout that it has; nothing for others.
std::optional<LayoutAssigner::Device> LayoutAssigner::as_columns(ValueId value, size_t k_axis, size_t other) const {
  const auto found = produced_.find(value);
  if (found == produced_.end() || in_rows_of(found->second.layout, k_axis) || !in_rows_of(found->second.layout, other))
    return std::nullopt;
  for (const auto& [known, device] : copies_)
    if (known == value && in_rows_of(device.layout, k_axis)) return std::nullopt;
  return found->second;
}

bool LayoutAssigner::add(const Operation& op, const Product& what) {
  const ValueId y = op.results[0];
  const Extents& out = shape_of(y);
  const auto m = matrices_of({shape_of(op.operands[0]), shape_of(op.operands[1])}, out,
                             {what.left_transposed, what.right_transposed});
  if (!m) return false;
  const auto rows_of_k = [&](size_t side) {
    return [axis = m->k_axis[side]](const Device& device) { return in_rows_of(device.layout, axis); };
  };
  const auto a = arranged(op, op.operands[0], m->order[0], rows_of_k(0));
  if (!a) return false;
  const Layout left = as_matrices(a->layout, m->batch, what.left_transposed, false);
  Layout whole = Layout::dense(out, identity_order(out.size()));
  if (m->vector[0])
    whole.axes.insert(whole.axes.begin() + static_cast<std::ptrdiff_t>(m->batch.size()), std::vector<Part>{});
  if (m->vector[1]) whole.axes.emplace_back();

  std::optional<Device> b = as_columns(op.operands[1], m->k_axis[1], m->other_axis[1]);
  bool transposed = !b;  // the factor as [columns, k]
  Layout right;
  std::optional<Split> split;
  if (b) {
    right = as_matrices(b->layout, m->batch, what.right_transposed, true);
    split = split_batch(*m, left, right, whole, false);
    if (!split || split->apart > 0) transposed = true;
  }
  if (transposed) {
    b = arranged(op, op.operands[1], m->order[1], rows_of_k(1));
    if (!b) return false;
    right = as_matrices(b->layout, m->batch, !what.right_transposed, true);
    split = split_batch(*m, left, right, whole, true);
  }
  if (!split) return false;
  const Extents& batch = m->batch;
  const int64_t operations = extent_of(batch, 0, split->apart), n = extent_of(batch, split->apart, split->images),
                h = extent_of(batch, split->images, batch.size());
  if (operations > kMostProducts) return false;
  const Order axes = identity_order(batch.size() - split->apart + 2);
  const npu::TensorId result_id = result(y, identity_order(out.size()), {operations * n, h, m->rows, m->columns});
  const size_t first = graph_.operations.size();
  for (int64_t index = 0; index < operations; ++index) {
    const auto part = [&](npu::TensorId root, Layout layout, const Dims& dims) {
      int64_t rest = index;
      for (size_t axis = split->apart; axis-- > 0; rest /= batch[axis])
        layout = *slice(layout, axis, rest % batch[axis], 1, 1);
      return boxed(root, *as_box(inner(std::move(layout), split->apart), axes, dims));
    };
    npu::Product product;
    product.transposed = transposed;
    product.input_zero = what.left_zero;
    product.factor_zero = what.right_zero;
    product.stage = what.stage;
    product.input = part(a->tensor, left, {n, h, m->rows, m->k});
    product.factor = part(b->tensor, right, transposed ? Dims{n, h, m->columns, m->k} : Dims{n, h, m->k, m->columns});
    product.output = part(result_id, whole, {n, h, m->rows, m->columns});
    push(op, std::move(product), std::max<int64_t>(op.macs / operations, 1));
  }
  count_once(first);
  return true;
}

}  // namespace tessera::graph
