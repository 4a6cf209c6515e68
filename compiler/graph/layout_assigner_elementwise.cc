// SPDX-License-Identifier: Apache-2.0
// Layouts of operations that work element by element: tables, operations of two tensors with broadcasting,
// requantisation. They take the memory order in which their operands are there; see layout_assigner.h.
#include "compiler/graph/layout_assigner.h"

#include <algorithm>

namespace tessera::graph {
namespace {

/// Neighbouring axes in memory as one: elements of the result and of each operand, 1 where the operand is repeated.
struct AxisGroup {
  int64_t out = 1, in[2] = {1, 1};
  bool repeats_like(const AxisGroup& other) const {
    return (in[0] == out) == (other.in[0] == other.out) && (in[1] == out) == (other.in[1] == other.out);
  }
  void take(const AxisGroup& other) {
    out *= other.out;
    for (size_t i = 0; i < 2; ++i) in[i] *= other.in[i];
  }
};

/// Broadcast axes stay visible: four groups of neighbouring axes on which both operands agree, empty ones first.
/// Nothing where there would be more. `wide`: the operands' extents in the rank of the result.
std::optional<std::vector<AxisGroup>> groups_of(const Order& order, const Extents& out, const Extents (&wide)[2]) {
  std::vector<AxisGroup> groups;
  for (int64_t axis : order) {
    const auto a = static_cast<size_t>(axis);
    if (out[a] == 1) continue;
    const AxisGroup next{out[a], {wide[0][a], wide[1][a]}};
    if (groups.size() > 3 && groups.back().repeats_like(next))
      groups.back().take(next);
    else
      groups.push_back(next);
  }
  // Too many: merge equal neighbours from the slowest on, the channel stays on its own as long as it can.
  for (size_t i = 0; groups.size() > 4 && i + 1 < groups.size();) {
    if (groups[i].repeats_like(groups[i + 1])) {
      groups[i + 1].take(groups[i]);
      groups.erase(groups.begin() + static_cast<int64_t>(i));
    } else {
      ++i;
    }
  }
  if (groups.size() > 4) return std::nullopt;
  groups.insert(groups.begin(), 4 - groups.size(), AxisGroup{});
  return groups;
}

}  // namespace

bool LayoutAssigner::add(const Operation& op, const Lookup& what) {
  ValueId x = op.operands[0], y = op.results[0];
  const Extents shape = shape_of(y);
  const Device from = device_of(x);
  const Order order = from.layout.order();
  const bool same =
      from.layout == Layout::dense(shape, order) && tensor(from.tensor).elements() == element_count(shape);
  npu::Stage stage;
  stage.table = what.table;
  stage.table_unsigned = is_unsigned(y);
  result(y, order, same ? dims_of(from.tensor) : collapse(shape, order));
  const size_t operations = graph_.operations.size();
  if (!copy(op, from, produced_.at(y), stage)) return false;
  count_once(operations);
  return true;
}

bool LayoutAssigner::add(const Operation& op, const Binary& what) {
  ValueId y = op.results[0];
  const Extents out = shape_of(y);
  const size_t rank = out.size();
  // The order of an operand that is already here; a broadcast operand takes the other's.
  Order order = packing_order(y);
  for (ValueId v : op.operands)
    if (const auto known = order_of(v); known && known->size() == rank && shape_of(v) == out) order = *known;
  Extents wide[2];
  for (size_t i = 0; i < 2; ++i) {
    wide[i] = shape_of(op.operands[i]);
    wide[i].insert(wide[i].begin(), rank - wide[i].size(), 1);
  }
  const auto groups = groups_of(order, out, wide);
  if (!groups) return false;
  const auto dims = [&](auto get) {
    return Dims{get((*groups)[0]), get((*groups)[1]), get((*groups)[2]), get((*groups)[3])};
  };
  std::optional<npu::TensorId> sources[2];
  for (size_t i = 0; i < 2; ++i) {
    ValueId v = op.operands[i];
    const Extents shape = shape_of(v);
    Order own;
    const auto missing = static_cast<int64_t>(rank - shape.size());
    for (int64_t axis : order)
      if (axis >= missing) own.push_back(axis - missing);
    sources[i] = operand(op, v, own, dims([i](const AxisGroup& g) { return g.in[i]; }));
    if (!sources[i]) return false;
  }
  if (!what.y_table.empty()) {
    npu::Elementwise table;
    table.input = *sources[1];
    table.stage.table = what.y_table;
    table.stage.table_unsigned = is_unsigned(y);
    sources[1] = table.output = fresh(name_of(op.operands[1]) + ".table", dims_of(*sources[1]), is_unsigned(y), 1);
    push(op, std::move(table), 0);
    graph_.operations.back().nodes.clear();  // the node counts once
  }
  npu::Elementwise e;
  e.input = *sources[0];
  if (!what.x_table.empty()) {
    e.stage.table = what.x_table;
    e.stage.table_unsigned = is_unsigned(y);
  }
  e.stage.second = what.second;
  e.stage.second->tensor = *sources[1];
  e.output = result(y, order, dims([](const AxisGroup& g) { return g.out; }));
  push(op, std::move(e), 0);
  return true;
}

bool LayoutAssigner::add(const Operation& op, const Requantise& what) {
  ValueId x = op.operands[0], y = op.results[0];
  const Extents shape = shape_of(y);
  const bool last = what.channel_axis + 1 == static_cast<int64_t>(shape.size());
  const Order order = order_of(x).value_or(last                     ? identity_order(shape.size())
                                           : what.channel_axis >= 0 ? channels_last_order(shape.size())
                                                                    : packing_order(y));
  if (what.channel_axis >= 0 && order.back() != what.channel_axis) return false;
  const Dims dims = collapse(shape, order);
  const auto source = operand(op, x, order, dims);
  if (!source) return false;
  npu::TensorId smaller = npu::kNoTensor;
  if (what.other) {
    npu::Tensor tensor;
    tensor.name = name_of(y) + ".leaky";
    tensor.n = dims[0], tensor.h = dims[1], tensor.w = dims[2], tensor.c = dims[3];
    tensor.is_unsigned = is_unsigned(y);
    smaller = graph_.add(std::move(tensor));
    npu::Elementwise e;
    e.input = *source;
    e.output = smaller;
    e.stage = *what.other;
    push(op, std::move(e), 0);
    graph_.operations.back().nodes.clear();  // the node counts once
  }
  npu::Elementwise e;
  e.input = *source;
  e.stage = what.stage;
  if (what.other) {
    npu::SecondOperation larger;
    larger.kind = npu::SecondOperation::Kind::kMax;
    larger.tensor = smaller;
    larger.low = is_unsigned(y) ? 0 : -128;
    larger.high = is_unsigned(y) ? 255 : 127;
    e.stage.second = larger;
  }
  e.output = result(y, order, dims);
  push(op, std::move(e), 0);
  return true;
}

}  // namespace tessera::graph
