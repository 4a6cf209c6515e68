// SPDX-License-Identifier: Apache-2.0
// Memory orders and shapes of values on the device; see layout_assigner.h. Every add() first finds its operands (which
// may create packed inputs and aliases) and returns false before it pushes an operation, so that undoing is a matter of
// truncation.
#include "compiler/graph/layout_assigner.h"

#include <algorithm>

#include "base/error.h"
#include "compiler/npu/graph/plan.h"

namespace tessera::graph {

Order LayoutAssigner::cache_order(ValueId value) const {
  Order order = identity_order(shape_of(value).size());
  if (const int64_t fastest = values_.value(value).cache_axis; fastest >= 0)
    std::rotate(order.begin() + fastest, order.begin() + fastest + 1, order.end());
  return order;
}

Order LayoutAssigner::packing_order(ValueId value) const {
  if (values_.value(value).cache >= 0) return cache_order(value);
  const size_t rank = shape_of(value).size();
  return values_.value(value).prefers == Preference::kRows ? identity_order(rank) : channels_last_order(rank);
}

/// The last three axes in memory become h, w and c, all before them n.
LayoutAssigner::Dims LayoutAssigner::collapse(const Extents& shape, const Order& order) {
  Dims dims{1, 1, 1, 1};
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t from_end = order.size() - 1 - i;
    dims[from_end > 3 ? 0 : 3 - from_end] *= shape[static_cast<size_t>(order[i])];
  }
  return dims;
}

LayoutAssigner::Dims LayoutAssigner::dims_of(npu::TensorId id) const {
  const npu::Tensor& t = tensor(id);
  return {t.n, t.h, t.w, t.c};
}

std::optional<Order> LayoutAssigner::order_of(ValueId value) const {
  const auto found = produced_.find(value);
  if (found != produced_.end()) return found->second.layout.order();
  for (const auto& [host, device] : packed_)
    if (host == value) return device.layout.order();
  return std::nullopt;
}

npu::TensorId LayoutAssigner::reshaped(npu::TensorId base, const Dims& dims) {
  if (dims_of(base) == dims) return base;
  const npu::Tensor& parent = tensor(base);
  npu::Tensor alias;
  alias.name = parent.name;
  alias.n = dims[0], alias.h = dims[1], alias.w = dims[2], alias.c = dims[3];
  alias.is_unsigned = parent.is_unsigned;
  alias.element_bytes = parent.element_bytes;
  alias.reshape_of = base;
  return graph_.add(std::move(alias));
}

npu::TensorId LayoutAssigner::fresh(const std::string& name, const Dims& dims, bool is_unsigned,
                                    int32_t element_bytes) {
  npu::Tensor tensor;
  tensor.name = name;
  tensor.n = dims[0], tensor.h = dims[1], tensor.w = dims[2], tensor.c = dims[3];
  tensor.is_unsigned = is_unsigned;
  tensor.element_bytes = element_bytes;
  return graph_.add(std::move(tensor));
}

npu::TensorId LayoutAssigner::window(npu::TensorId of, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  npu::Tensor part = tensor(of);
  part.reshape_of = npu::kNoTensor;
  part.strided = false;
  part.view_of = of;
  part.view_n = part.view_c = 0;
  part.view_h = row, part.view_w = column;
  part.h = rows, part.w = columns;
  return graph_.add(std::move(part));
}

npu::TensorId LayoutAssigner::packed(ValueId value, const Order& order, const Dims& dims) {
  const npu::TensorId id = fresh(name_of(value), dims, is_unsigned(value), element_bytes(value));
  // What an earlier program has left in a cache is there already.
  if (order == cache_order(value)) graph_.tensors[static_cast<size_t>(id)].cache = values_.value(value).cache;
  graph_.inputs.push_back(id);
  packed_.emplace_back(value, Device{id, Layout::dense(shape_of(value), order)});
  return id;
}

LayoutAssigner::Device LayoutAssigner::device_of(ValueId value, std::optional<Order> order) {
  const auto found = produced_.find(value);
  if (found != produced_.end()) return found->second;
  const Extents shape = shape_of(value);
  for (const auto& [host, device] : packed_)
    if (host == value && (!order || device.layout == Layout::dense(shape, *order))) return device;
  if (!order) order = packing_order(value);
  packed(value, *order, collapse(shape, *order));
  return packed_.back().second;
}

std::optional<npu::TensorId> LayoutAssigner::operand(const Operation& op, ValueId value, const Order& order,
                                                     const Dims& dims) {
  const auto found = produced_.find(value);
  const auto seen = [&](const Device& device) -> std::optional<npu::TensorId> {
    const auto box = as_box(device.layout, order, dims);
    if (!box) return std::nullopt;
    return boxed(device.tensor, *box);
  };
  if (found != produced_.end())
    if (auto id = seen(found->second)) return id;
  for (const auto* list : {&copies_, &packed_})
    for (const auto& [known, device] : *list)
      if (known == value)
        if (auto id = seen(device)) return id;
  if (found == produced_.end()) return packed(value, order, dims);
  const auto made = copied_operand(op, value, order);
  if (!made) return std::nullopt;
  return seen(*made);
}

std::optional<LayoutAssigner::Device> LayoutAssigner::copied_operand(const Operation& op, ValueId value,
                                                                     const Order& order) {
  const size_t operations = graph_.operations.size();
  const auto made = copied(op, produced_.at(value), name_of(value), order);
  if (!made) return std::nullopt;
  for (size_t i = operations; i < graph_.operations.size(); ++i) {
    graph_.operations[i].nodes.clear();  // the node counts with the operation that wanted the copy
    graph_.operations[i].name += ":copy";
    graph_.operations[i].kind = "Copy";
  }
  copies_.emplace_back(value, *made);
  return made;
}

npu::TensorId LayoutAssigner::result(ValueId value, const Order& order, const Dims& dims) {
  const npu::TensorId id = fresh(name_of(value), dims, is_unsigned(value), element_bytes(value));
  produced_[value] = Device{id, Layout::dense(shape_of(value), order)};
  return id;
}

void LayoutAssigner::push(const Operation& op, decltype(npu::Operation::what) what, int64_t macs) {
  npu::Operation operation;
  operation.name = op.name;
  operation.kind = op.kind;
  operation.macs = macs;
  operation.what = std::move(what);
  operation.nodes = op.nodes;
  graph_.operations.push_back(std::move(operation));
}

void LayoutAssigner::count_once(size_t first) {
  for (size_t i = first + 1; i < graph_.operations.size(); ++i) graph_.operations[i].nodes.clear();
}

bool LayoutAssigner::add(const Operation& op) {
  const size_t tensors = graph_.tensors.size(), inputs = graph_.inputs.size(), packed = packed_.size();
  const size_t operations = graph_.operations.size(), copies = copies_.size(), free = graph_.free_nodes.size();
  if (std::visit([&](const auto& what) { return add(op, what); }, op.what)) return true;
  graph_.tensors.resize(tensors);
  graph_.inputs.resize(inputs);
  graph_.operations.resize(operations);
  packed_.resize(packed);
  copies_.resize(copies);
  graph_.free_nodes.resize(free);
  for (const ValueId result : op.results) produced_.erase(result);
  return false;
}

bool LayoutAssigner::add(const Operation& op, const Convolution& what) {
  const ValueId x = op.operands[0], y = op.results[0];
  const Extents in = shape_of(x), out = shape_of(y);
  const Dims from{in[0], in.size() == 4 ? in[2] : 1, in.back(), in[1]};
  const Dims to{out[0], out.size() == 4 ? out[2] : 1, out.back(), out[1]};
  const auto source = operand(op, x, channels_last_order(in.size()), from);
  if (!source) return false;
  npu::Convolution conv = what.what;
  conv.input = *source;
  conv.output = result(y, channels_last_order(out.size()), to);
  push(op, std::move(conv), op.macs);
  return true;
}

bool LayoutAssigner::add(const Operation& op, const Matmul& what) {
  if (!what.each.empty()) return add_batch(op, what);
  const ValueId x = op.operands[0], y = op.results[0];
  const Extents in = shape_of(x), out = shape_of(y);
  Order order = identity_order(in.size());
  if (what.transposed) std::swap(order[0], order[1]);
  const int64_t k = in[static_cast<size_t>(order.back())], rows = element_count(in) / k;
  const auto source = operand(op, x, order, {1, 1, rows, k});
  if (!source) return false;
  npu::Convolution conv = what.what;
  conv.input = *source;
  conv.output = result(y, identity_order(out.size()), {1, 1, rows, element_count(out) / rows});
  push(op, std::move(conv), op.macs);
  return true;
}

/// One product for each matrix of the batch, between views of operand and result.
bool LayoutAssigner::add_batch(const Operation& op, const Matmul& what) {
  ValueId x = op.operands[0], y = op.results[0];
  const Extents in = shape_of(x), out = shape_of(y);
  const int64_t rows = in[in.size() - 2], k = in.back(), n = out.back();
  const int64_t matrices_in = element_count(in) / (rows * k), matrices_out = element_count(out) / (rows * n);
  if (matrices_out > 256) return false;
  const auto source = operand(op, x, identity_order(in.size()), {1, matrices_in, rows, k});
  if (!source) return false;
  const npu::TensorId whole = result(y, identity_order(out.size()), {1, matrices_out, rows, n});
  for (int64_t m = 0; m < matrices_out; ++m) {
    // The matrix's index in operand and constant, axes of extent 1 repeated.
    int64_t at[2] = {0, 0}, step[2] = {1, 1}, rest = m;
    for (size_t i = 3; i <= out.size(); ++i) {
      const int64_t index = rest % out[out.size() - i];
      rest /= out[out.size() - i];
      const int64_t extent[2] = {i <= in.size() ? in[in.size() - i] : 1,
                                 i - 2 <= what.batch.size() ? what.batch[what.batch.size() - (i - 2)] : 1};
      for (size_t side = 0; side < 2; ++side) {
        at[side] += extent[side] == 1 ? 0 : index * step[side];
        step[side] *= extent[side];
      }
    }
    npu::Convolution product = what.what;
    product.weights = what.each[static_cast<size_t>(at[1])];
    product.input = window(*source, at[0], 1, 0, rows);
    product.output = window(whole, m, 1, 0, rows);
    push(op, std::move(product), std::max<int64_t>(op.macs / matrices_out, 1));
    if (m > 0) graph_.operations.back().nodes.clear();  // the node counts once
  }
  return true;
}

bool LayoutAssigner::add(const Operation& op, const Pool& what) {
  ValueId x = op.operands[0], y = op.results[0];
  const Extents in = shape_of(x), out = shape_of(y);
  const Order order = what.channels_last ? identity_order(in.size()) : channels_last_order(in.size());
  const auto dims = [&](const Extents& s) {
    const auto at = [&](size_t i) { return s[static_cast<size_t>(order[i])]; };
    return s.size() == 4 ? Dims{at(0), at(1), at(2), at(3)} : Dims{at(0), 1, at(1), at(2)};
  };
  const auto source = operand(op, x, order, dims(in));
  if (!source) return false;
  npu::Pool pool = what.what;
  pool.input = *source;
  pool.output = result(y, order, dims(out));
  if (what.parts.empty()) {
    push(op, std::move(pool), 0);
    return true;
  }
  // Boxes of outputs, each on the rows and columns of the image that its windows reach.
  const npu::Pool whole = pool;
  const auto reach = [](int64_t first, int64_t count, int64_t stride, int64_t kernel, int64_t before, int64_t extent) {
    const int64_t begin = first * stride - before, end = (first + count - 1) * stride - before + kernel;
    return std::array<int64_t, 3>{std::max<int64_t>(begin, 0), std::min(end, extent), std::max<int64_t>(-begin, 0)};
  };
  for (const Pool::Part& part : what.parts) {
    const auto [top, bottom, above] =
        reach(part.row, part.rows, whole.stride_h, whole.kernel_h, whole.pads.top, tensor(whole.input).h);
    const auto [left, right, beside] =
        reach(part.column, part.columns, whole.stride_w, whole.kernel_w, whole.pads.left, tensor(whole.input).w);
    pool = whole;
    pool.stage = part.stage;
    pool.pads = {above, beside, 0, 0};
    pool.input = window(whole.input, top, bottom - top, left, right - left);
    pool.output = window(whole.output, part.row, part.rows, part.column, part.columns);
    push(op, pool, 0);
    if (&part != &what.parts.front()) graph_.operations.back().nodes.clear();  // the node counts once
  }
  return true;
}

bool LayoutAssigner::add(const Operation& op, const Reduce& what) {
  ValueId x = op.operands[0], y = op.results[0];
  const Extents in = shape_of(x), out = shape_of(y);
  // Kept axes but the fastest, the reduced ones, the fastest kept axis as channels.
  Order kept, order;
  const Order memory = order_of(x).value_or(channels_last_order(in.size()));
  for (const int64_t axis : memory)
    if (!what.reduced[static_cast<size_t>(axis)]) kept.push_back(axis);
  int64_t channel = -1;
  for (const int64_t axis : kept)
    if (in[static_cast<size_t>(axis)] > 1) channel = axis;
  Dims from{1, 1, 1, 1};
  for (const int64_t axis : kept) {
    if (axis == channel) continue;
    order.push_back(axis);
    from[0] *= in[static_cast<size_t>(axis)];
  }
  for (const int64_t axis : memory) {
    if (!what.reduced[static_cast<size_t>(axis)]) continue;
    order.push_back(axis);
    // The last reduced axis is columns, all before it rows.
    from[1] *= from[2];
    from[2] = in[static_cast<size_t>(axis)];
  }
  if (channel >= 0) {
    order.push_back(channel);
    from[3] = in[static_cast<size_t>(channel)];
  }
  const auto source = operand(op, x, order, from);
  if (!source) return false;
  // The result has the kept axes in the same order, reduced ones of extent 1 or gone.
  Order result_order;
  if (out.size() == in.size()) {
    result_order = order;
  } else {
    for (const int64_t axis : order) {
      if (what.reduced[static_cast<size_t>(axis)]) continue;
      int64_t before = 0;
      for (int64_t a = 0; a < axis; ++a) before += what.reduced[static_cast<size_t>(a)] ? 0 : 1;
      result_order.push_back(before);
    }
  }
  npu::Pool pool;
  pool.kind = what.kind;
  pool.kernel_h = from[1];
  pool.kernel_w = from[2];
  pool.stage = what.stage;
  pool.pad_value = what.zero;
  pool.input = *source;
  pool.output = result(y, result_order, {from[0], 1, 1, from[3]});
  push(op, std::move(pool), 0);
  return true;
}

bool LayoutAssigner::add(const Operation& op, const Rows& what) {
  const ValueId x = op.operands[0], y = op.results[0];
  const Extents& shape = shape_of(y);
  const auto axis = static_cast<size_t>(what.axis);
  // The rows fastest, the other axes as they lie.
  const auto in_row = [&](int64_t a) { return what.flattened ? a >= what.axis : a == what.axis; };
  const Order memory =
      what.flattened ? identity_order(shape.size()) : order_of(x).value_or(identity_order(shape.size()));
  Order order;
  for (const int64_t a : memory)
    if (!in_row(a)) order.push_back(a);
  for (const int64_t a : identity_order(shape.size()))
    if (in_row(a)) order.push_back(a);
  Dims dims = collapse(shape, order);
  if (what.flattened) {
    dims = {1, 1, 1, 1};
    for (size_t a = 0; a < shape.size(); ++a) dims[a < axis ? 2 : 3] *= shape[a];
  }
  const auto real = [&](Order axes) {  // those of extent 1 stand anywhere
    std::erase_if(axes, [&](int64_t a) { return shape[static_cast<size_t>(a)] == 1; });
    return axes;
  };
  const auto found = produced_.find(x);
  if (!what.flattened && found != produced_.end() && real(memory) == real(order)) {
    // With the pixels of its producer, so that both may be links of one chain.
    const Dims whole = dims_of(found->second.tensor);
    if (whole[3] == dims[3] && whole[0] * whole[1] * whole[2] == dims[0] * dims[1] * dims[2]) dims = whole;
  }
  const auto source = operand(op, x, order, dims);
  if (!source) return false;
  npu::Rows rows;
  rows.form = what.form;
  rows.stage = what.stage;
  rows.input = *source;
  rows.output = result(y, order, dims);
  push(op, std::move(rows), 0);
  return true;
}

npu::Graph LayoutAssigner::finish(const std::vector<ValueId>& outputs) && {
  const auto number = [&](ValueId value) {
    return values_.numbers.empty() ? value : values_.numbers[static_cast<size_t>(value)];
  };
  for (const auto& [value, device] : packed_) {
    auto binding = bind(value, device);
    TESSERA_INVARIANT(binding.has_value(), "a packed value has strides");
    binding->value = number(value);
    graph_.host_inputs.push_back(std::move(*binding));
  }
  for (const ValueId value : outputs) {
    Device device = produced_.at(value);
    auto binding = bind(value, device);
    if (!binding) {
      Operation copy;
      copy.name = name_of(value);
      copy.kind = "Copy";
      const auto ordered = copied(copy, device, copy.name, device.layout.order());
      TESSERA_INVARIANT(ordered.has_value(), "outputs can be copied");
      device = *ordered;
      binding = bind(value, device);
      TESSERA_INVARIANT(binding.has_value(), "a copy has strides");
    }
    graph_.outputs.push_back(binding->tensor);
    binding->value = number(value);
    graph_.host_outputs.push_back(std::move(*binding));
  }
  std::sort(graph_.outputs.begin(), graph_.outputs.end());
  graph_.outputs.erase(std::unique(graph_.outputs.begin(), graph_.outputs.end()), graph_.outputs.end());
  graph_.name = values_.name;
  return std::move(graph_);
}

}  // namespace tessera::graph
