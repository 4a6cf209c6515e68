// SPDX-License-Identifier: Apache-2.0
// Layouts of Concat: each operand is copied into its part of the result; the past of a cache lies there already. See
// layout_assigner.h.
#include "compiler/graph/layout_assigner.h"

#include "compiler/npu/graph/plan.h"

namespace tessera::graph {

/// The past is the first part of the result's own memory.
bool LayoutAssigner::append(const Operation& op, const Concat& what) {
  const ValueId past = op.operands[0], added = op.operands[1], y = op.results[0];
  if (produces(past) || order_of(past) || element_bytes(y) != 1) return false;
  const Extents out = shape_of(y);
  const Order order = cache_order(y);
  const auto axis = static_cast<size_t>(what.axis);
  const int64_t room = shape_of(past)[axis];
  std::optional<Device> source = device_of(added);
  if (!what.steps.empty())
    for (const Step& step : what.steps[1])
      if (source) source = moved(op, *source, step, name_of(added));
  if (!source) return false;
  const npu::TensorId whole = result(y, order, collapse(out, order));
  graph_.tensors[static_cast<size_t>(whole)].cache = values_.value(y).cache;
  graph_.inputs.push_back(whole);
  const Device device = produced_.at(y);
  Device before = device, behind = device;
  before.layout = *slice(device.layout, axis, 0, room, 1);
  behind.layout = *slice(device.layout, axis, room, out[axis] - room, 1);
  packed_.emplace_back(past, before);
  npu::Stage stage = what.stages.empty() ? npu::Stage{} : what.stages[1];
  if (!what.tables[1].empty()) stage.table = what.tables[1];
  stage.table_unsigned = stage.table && is_unsigned(y);
  const size_t first = graph_.operations.size();
  if (!copy(op, *source, behind, stage)) return false;
  int64_t pitch = 1;
  for (size_t i = order.size(); order[--i] != what.axis;) pitch *= out[static_cast<size_t>(order[i])];
  for (size_t i = first; i < graph_.operations.size(); ++i) {
    const npu::TensorId written = npu::uses_of(graph_.operations[i]).written;
    if (npu::root_of(graph_, written) == whole) graph_.tensors[static_cast<size_t>(written)].slide = pitch;
  }
  count_once(first);
  return true;
}

bool LayoutAssigner::add(const Operation& op, const Concat& what) {
  if (what.appends) return append(op, what);
  ValueId y = op.results[0];
  const Extents out = shape_of(y);
  // The order of an operand that is here, as it is after its own movements.
  const size_t before = graph_.operations.size();
  Order order = packing_order(y);
  std::vector<std::optional<Device>> sources(op.operands.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    ValueId v = op.operands[i];
    if (!what.steps.empty() && !what.steps[i].empty()) {
      sources[i] = device_of(v);
      for (const Step& step : what.steps[i])
        if (sources[i]) sources[i] = moved(op, *sources[i], step, name_of(v));
      if (!sources[i]) return false;
    } else if (produces(v) || order_of(v)) {
      sources[i] = device_of(v);
    }
    if (sources[i]) order = sources[i]->layout.order();
  }
  const auto axis = static_cast<size_t>(what.axis);
  result(y, order, collapse(out, order));
  const Device whole = produced_.at(y);
  int64_t at = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i] || !produces(op.operands[i])) {
      // A host value that is not moved is packed in the order of the result.
      if (what.steps.empty() || what.steps[i].empty()) sources[i] = device_of(op.operands[i], order);
    }
    const Device* source = &*sources[i];
    const Extents shape = source->layout.shape();
    Device part = whole;
    part.layout = *slice(whole.layout, axis, at, shape[axis], 1);
    at += shape[axis];
    npu::Stage stage = what.stages.empty() ? npu::Stage{} : what.stages[i];
    if (!what.tables[i].empty()) stage.table = what.tables[i];
    stage.table_unsigned = stage.table && is_unsigned(y);
    if (!copy(op, *source, part, stage)) return false;
  }
  count_once(before);
  return true;
}

}  // namespace tessera::graph
