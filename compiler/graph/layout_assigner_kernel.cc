// SPDX-License-Identifier: Apache-2.0
// Kernels that somebody has written: their tensors lie as they say, and of several forms the cheapest one is taken.
#include <algorithm>

#include "compiler/graph/layout_assigner.h"

namespace tessera::graph {

namespace {

/// Cycles of a copy to another order, roughly, by bytes: transposed blocks go through the array.
constexpr int64_t kBytesACycle = 4;

bool dense(const Layout& layout, const Extents& shape, const Order& order) {
  Layout moved = layout;
  moved.start = 0;
  return moved == Layout::dense(shape, order);
}

}  // namespace

bool LayoutAssigner::add(const Operation& op, const Kernel& what) {
  // What is copied in front of it, and behind it as far as that is known.
  const auto copied_bytes = [&](const Kernel::Form& form) {
    int64_t bytes = 0;
    const auto count = [&](ValueId value) { bytes += element_count(shape_of(value)) * element_bytes(value); };
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const ValueId value = op.operands[i];
      const auto there = produced_.find(value);
      if (there == produced_.end()) continue;
      const auto fits = [&](const Device& device) { return dense(device.layout, shape_of(value), form.operands[i]); };
      const bool copied = std::any_of(copies_.begin(), copies_.end(),
                                      [&](const auto& copy) { return copy.first == value && fits(copy.second); });
      if (!copied && !fits(there->second)) count(value);
    }
    for (size_t i = 0; i < op.results.size(); ++i) {
      const Extents& shape = shape_of(op.results[i]);
      if (!(Layout::dense(shape, form.results[i].order) == Layout::dense(shape, packing_order(op.results[i]))))
        count(op.results[i]);
    }
    return bytes;
  };
  const Kernel::Form* best = nullptr;
  int64_t least = 0;
  for (const Kernel::Form& form : what.forms) {
    const int64_t cycles = form.cycles + copied_bytes(form) / kBytesACycle;
    if (best == nullptr || cycles < least) best = &form, least = cycles;
  }
  return add(op, *best);
}

bool LayoutAssigner::add(const Operation& op, const Kernel::Form& form) {
  npu::Kernel kernel = form.what;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const ValueId value = op.operands[i];
    const Extents& shape = shape_of(value);
    const Order& order = form.operands[i];
    const auto device =
        arranged(op, value, order, [&](const Device& known) { return dense(known.layout, shape, order); });
    if (!device || !dense(device->layout, shape, order)) return false;
    const auto box = as_box(device->layout, order, collapse(shape, order));
    if (!box) return false;
    const npu::TensorId id = boxed(device->tensor, *box);
    if (i == 0)
      kernel.input = id;
    else
      kernel.more.push_back(id);
  }
  const auto alone = [&](const Kernel::Result& result) {
    const Extents& shape = shape_of(op.results[0]);
    return op.results.size() == 1 && result.start == 0 && form.written == element_count(shape) &&
           result.pitch == shape[static_cast<size_t>(result.order.back())];
  };
  if (alone(form.results[0])) {
    const Order& order = form.results[0].order;
    kernel.output = result(op.results[0], order, collapse(shape_of(op.results[0]), order));
  } else {
    const ValueId first = op.results[0];
    kernel.output = fresh(op.name, {1, 1, 1, form.written}, is_unsigned(first), element_bytes(first));
    for (size_t i = 0; i < op.results.size(); ++i) {
      const auto& [order, start, pitch] = form.results[i];
      Layout layout = Layout::dense(shape_of(op.results[i]), order);
      const int64_t fastest = shape_of(op.results[i])[static_cast<size_t>(order.back())];
      for (const int64_t axis : order) {
        if (axis == order.back()) continue;
        for (Part& part : layout.axes[static_cast<size_t>(axis)]) part.stride = part.stride / fastest * pitch;
      }
      layout.start = start;
      produced_[op.results[i]] = Device{kernel.output, layout};
    }
  }
  push(op, std::move(kernel), op.macs);
  return true;
}

}  // namespace tessera::graph
