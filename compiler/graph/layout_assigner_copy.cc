// SPDX-License-Identifier: Apache-2.0
// Copies between layouts, and the operators that move elements. Enters: two layouts of one shape. Leaves: element-wise
// operations between strided views, with runs of channels wherever both sides have them. Where only the order of a
// pixel's channels changes there is no common run, and transfers of single bytes cost a DRAM latency for every few
// bytes: a 1x1 convolution with one 1 in each row selects and reorders the channels instead (exact, and often absorbed
// by its neighbours, see fuse.cc).
#include <algorithm>

#include "compiler/graph/layout_assigner.h"

namespace tessera::graph {
namespace {

constexpr int64_t kMostCopies = 64;        // operations for one copy
constexpr int64_t kMostSlowBytes = 16384;  // moved one by one
constexpr int64_t kFewBytes = 16;          // moved one by one in less time than a product with a unit matrix takes
constexpr int64_t kMostSelection = int64_t{1} << 20;  // weights of a selection

int64_t product(const std::vector<CopyLoop>& loops) {
  int64_t extent = 1;
  for (const CopyLoop& loop : loops) extent *= loop.extent;
  return extent;
}

/// Calls use(offset in from, offset in to) for every iteration of the loops.
template <typename Use>
void for_each(const std::vector<CopyLoop>& loops, Use&& use) {
  const int64_t count = product(loops);
  for (int64_t i = 0; i < count; ++i) {
    int64_t from = 0, to = 0, rest = i;
    for (size_t k = loops.size(); k-- > 0;) {
      from += rest % loops[k].extent * loops[k].from;
      to += rest % loops[k].extent * loops[k].to;
      rest /= loops[k].extent;
    }
    use(from, to);
  }
}

/// Keeps three loops for n, h and w, the longest; the others, which become operations of their own, are returned.
std::vector<CopyLoop> split_off(std::vector<CopyLoop>& loops) {
  std::vector<CopyLoop> rest;
  while (loops.size() > 3) {
    const auto least =
        std::min_element(loops.begin(), loops.end(), [](const auto& a, const auto& b) { return a.extent < b.extent; });
    rest.push_back(*least);
    loops.erase(least);
  }
  return rest;
}

Box box_of(int64_t start, const std::vector<CopyLoop>& loops, bool to, int64_t channels) {
  Box box;
  box.start = start;
  for (size_t i = 0; i < loops.size(); ++i) {
    const size_t d = 3 - loops.size() + i;
    box.extent[d] = loops[i].extent;
    box.step[d] = to ? loops[i].to : loops[i].from;
  }
  box.extent[3] = channels;
  box.step[3] = channels > 1 ? 1 : 0;
  return box;
}

}  // namespace

npu::TensorId LayoutAssigner::boxed(npu::TensorId root, const Box& box) {
  int64_t next = 1;
  bool whole = box.start == 0;
  for (size_t d = 4; d-- > 0;) {
    if (box.extent[d] == 1) continue;
    whole = whole && box.step[d] == next;
    next *= box.extent[d];
  }
  if (whole && next == tensor(root).elements()) return reshaped(root, box.extent);
  npu::Tensor view;
  const npu::Tensor& parent = tensor(root);
  view.name = parent.name;
  view.is_unsigned = parent.is_unsigned;
  view.element_bytes = parent.element_bytes;
  view.view_of = root;
  view.strided = true;
  view.n = box.extent[0], view.h = box.extent[1], view.w = box.extent[2], view.c = box.extent[3];
  view.view_start = box.start;
  view.step_n = view.n > 1 ? box.step[0] : 0;
  view.step_h = view.h > 1 ? box.step[1] : 0;
  view.step_w = view.w > 1 ? box.step[2] : 0;
  return graph_.add(std::move(view));
}

bool LayoutAssigner::copy(const Operation& op, const Device& from, const Device& to, const npu::Stage& stage) {
  const auto loops = copy_loops(from.layout, to.layout);
  if (!loops) return false;
  if (copy_whole(op, from, to, stage, *loops)) return true;
  std::vector<CopyLoop> outer = *loops;
  int64_t channels = 1;
  const auto run = std::find_if(outer.begin(), outer.end(), [](const CopyLoop& l) { return l.from == 1 && l.to == 1; });
  if (run != outer.end()) {
    channels = run->extent;
    outer.erase(run);
  } else if (product(outer) > 1) {
    if (copy_by_selection(op, from, to, stage, *loops)) return true;
    if (product(outer) > kFewBytes && copy_by_transposition(op, from, to, stage, *loops)) return true;
    if (product(outer) > kMostSlowBytes) return false;
  }
  std::vector<CopyLoop> kept = outer;
  if (product(split_off(kept)) > kMostCopies) return false;
  copy_boxes(op, from, to, stage, std::move(outer), channels);
  return true;
}

/// A copy of all of a tensor in that tensor's own extents, so that its producer can write to the destination itself.
bool LayoutAssigner::copy_whole(const Operation& op, const Device& from, const Device& to, const npu::Stage& stage,
                                const std::vector<CopyLoop>& loops) {
  std::vector<CopyLoop> sorted = loops;
  std::stable_sort(sorted.begin(), sorted.end(), [](const CopyLoop& a, const CopyLoop& b) { return a.from > b.from; });
  int64_t next = 1;
  Layout target;
  target.start = to.layout.start;
  target.axes.resize(1);
  for (size_t i = sorted.size(); i-- > 0;) {
    if (sorted[i].from != next) return false;
    next *= sorted[i].extent;
  }
  if (from.layout.start != 0 || next != tensor(from.tensor).elements()) return false;
  for (const CopyLoop& loop : sorted) target.axes[0].push_back({loop.extent, loop.to});
  const auto box = as_box(target, {0}, dims_of(from.tensor));
  if (!box) return false;
  npu::Elementwise e;
  e.input = from.tensor;
  e.stage = stage;
  e.output = boxed(to.tensor, *box);
  push(op, std::move(e), npu::kNoMacs);
  return true;
}

void LayoutAssigner::copy_boxes(const Operation& op, const Device& from, const Device& to, const npu::Stage& stage,
                                std::vector<CopyLoop> loops, int64_t channels) {
  for_each(split_off(loops), [&](int64_t from_offset, int64_t to_offset) {
    npu::Elementwise e;
    e.stage = stage;
    e.input = boxed(from.tensor, box_of(from.layout.start + from_offset, loops, false, channels));
    e.output = boxed(to.tensor, box_of(to.layout.start + to_offset, loops, true, channels));
    push(op, std::move(e), npu::kNoMacs);
  });
}

bool LayoutAssigner::copy_by_selection(const Operation& op, const Device& from, const Device& to,
                                       const npu::Stage& stage, const std::vector<CopyLoop>& loops) {
  const int64_t pixel = tensor(from.tensor).c;
  if (stage.raw || tensor(from.tensor).element_bytes != 1) return false;
  std::vector<CopyLoop> pixels, channels;
  int64_t last = from.layout.start % pixel;
  for (const CopyLoop& loop : loops) {
    if (loop.from % pixel == 0) {
      pixels.push_back(loop);
    } else {
      channels.push_back(loop);
      last += (loop.extent - 1) * loop.from;
    }
  }
  if (last >= pixel) return false;
  // Channels that are neighbours in the destination are made together.
  std::vector<CopyLoop> together, apart;
  std::stable_sort(channels.begin(), channels.end(), [](const CopyLoop& a, const CopyLoop& b) { return a.to < b.to; });
  int64_t run = 1;
  for (const CopyLoop& loop : channels) {
    if (loop.to == run && apart.empty()) {
      together.insert(together.begin(), loop);
      run *= loop.extent;
    } else {
      apart.push_back(loop);
    }
  }
  if (together.empty() || pixel * run > kMostSelection) return false;
  if (apart.empty()) {
    // All pixels of the tensor: in its own extents, so that neighbours can take the selection over.
    std::vector<CopyLoop> sorted = pixels;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const CopyLoop& a, const CopyLoop& b) { return a.from > b.from; });
    int64_t next = pixel;
    Layout target;
    target.start = to.layout.start;
    target.axes.resize(1);
    for (const CopyLoop& loop : sorted) target.axes[0].push_back({loop.extent, loop.to});
    bool whole = from.layout.start < pixel;
    for (size_t i = sorted.size(); i-- > 0; next *= sorted[i].extent) whole = whole && sorted[i].from == next;
    if (run > 1) target.axes[0].push_back({run, 1});
    Dims dims = dims_of(from.tensor);
    dims[3] = run;
    const auto box = as_box(target, {0}, dims);
    if (whole && next == tensor(from.tensor).elements() && box) {
      npu::Convolution select;
      select.weights.assign(static_cast<size_t>(run * pixel), 0);
      for_each(together, [&](int64_t channel, int64_t place) {
        select.weights[static_cast<size_t>(place * pixel + from.layout.start + channel)] = 1;
      });
      select.stage = stage;
      select.input = from.tensor;
      select.output = boxed(to.tensor, *box);
      push(op, std::move(select), npu::kNoMacs);
      return true;
    }
  }
  std::vector<CopyLoop> kept = pixels;
  const std::vector<CopyLoop> more = split_off(kept);
  apart.insert(apart.end(), more.begin(), more.end());
  if (product(apart) > kMostCopies) return false;
  for_each(apart, [&](int64_t from_offset, int64_t to_offset) {
    const int64_t first = from.layout.start + from_offset, base = first / pixel * pixel;
    npu::Convolution select;
    select.weights.assign(static_cast<size_t>(run * pixel), 0);
    for_each(together, [&](int64_t channel, int64_t place) {
      select.weights[static_cast<size_t>(place * pixel + first - base + channel)] = 1;
    });
    select.stage = stage;
    select.input = boxed(from.tensor, box_of(base, kept, false, pixel));
    select.output = boxed(to.tensor, box_of(to.layout.start + to_offset, kept, true, run));
    push(op, std::move(select), npu::kNoMacs);
  });
  return true;
}

/// Where the runs of one side are an axis of the other: products with a unit matrix.
bool LayoutAssigner::copy_by_transposition(const Operation& op, const Device& from, const Device& to,
                                           const npu::Stage& stage, std::vector<CopyLoop> loops) {
  if (stage.raw || stage.convert || tensor(from.tensor).element_bytes != 1 || tensor(to.tensor).element_bytes != 1)
    return false;
  const auto take = [&](int64_t CopyLoop::* stride) -> std::optional<CopyLoop> {
    const auto at = std::find_if(loops.begin(), loops.end(), [&](const CopyLoop& l) { return l.*stride == 1; });
    if (at == loops.end()) return std::nullopt;
    const CopyLoop loop = *at;
    loops.erase(at);
    return loop;
  };
  const auto rows = take(&CopyLoop::from), columns = take(&CopyLoop::to);  // of the result
  if (!rows || !columns) return false;
  std::vector<CopyLoop> apart;
  while (loops.size() > 2) {
    const auto least =
        std::min_element(loops.begin(), loops.end(), [](const auto& a, const auto& b) { return a.extent < b.extent; });
    apart.push_back(*least);
    loops.erase(least);
  }
  if (product(apart) > kMostCopies) return false;
  loops.insert(loops.begin(), 2 - loops.size(), CopyLoop{});
  for_each(apart, [&](int64_t from_offset, int64_t to_offset) {
    const auto box = [&](int64_t start, bool target) {
      Box b;
      b.start = start;
      const CopyLoop inner[2] = {target ? *rows : *columns, target ? *columns : *rows};
      const CopyLoop all[4] = {loops[0], loops[1], inner[0], inner[1]};
      for (size_t d = 0; d < 4; ++d) b.extent[d] = all[d].extent, b.step[d] = target ? all[d].to : all[d].from;
      return b;
    };
    npu::Transposition t;
    t.stage = stage;
    t.input = boxed(from.tensor, box(from.layout.start + from_offset, false));
    t.output = boxed(to.tensor, box(to.layout.start + to_offset, true));
    push(op, std::move(t), npu::kNoMacs);
  });
  return true;
}

/// `value` in every element of `to`; `source` is any tensor that is there.
void LayoutAssigner::fill(const Operation& op, const Device& source, const Device& to, int32_t value) {
  const auto loops = copy_loops(to.layout, to.layout);
  std::vector<CopyLoop> outer = *loops;
  int64_t channels = 1;
  if (!outer.empty() && outer.back().to == 1) {
    channels = outer.back().extent;
    outer.pop_back();
  }
  for_each(split_off(outer), [&](int64_t, int64_t offset) {
    npu::Elementwise e;
    e.stage.low = e.stage.high = value;
    e.input = boxed(source.tensor, box_of(source.layout.start, {}, false, 1));
    e.output = boxed(to.tensor, box_of(to.layout.start + offset, outer, true, channels));
    push(op, std::move(e), npu::kNoMacs);
  });
}

std::optional<LayoutAssigner::Device> LayoutAssigner::copied(const Operation& op, const Device& from,
                                                             const std::string& name, const Order& order) {
  const Extents shape = from.layout.shape();
  const npu::Tensor& like = tensor(from.tensor);
  npu::Stage stage;
  stage.raw = like.element_bytes == 4;
  Device to;
  to.tensor = fresh(name, collapse(shape, order), like.is_unsigned, like.element_bytes);
  to.layout = Layout::dense(shape, order);
  if (!copy(op, from, to, stage)) return std::nullopt;
  return to;
}

std::optional<LayoutAssigner::Device> LayoutAssigner::moved(const Operation& op, Device device, const Step& step,
                                                            const std::string& name) {
  using Kind = Step::Kind;
  const Extents shape = device.layout.shape();
  // A layout whose strides do not allow the step is brought in order first.
  const auto in_order = [&](const Order& order) {
    auto ordered = copied(op, device, name, order);
    if (ordered) device = *ordered;
    return ordered.has_value();
  };
  switch (step.kind) {
    case Kind::kTranspose: device.layout = transpose(device.layout, step.numbers); return device;
    case Kind::kReshape: {
      auto layout = reshape(device.layout, step.extents);
      if (!layout) {
        if (!in_order(identity_order(shape.size()))) return std::nullopt;
        layout = reshape(device.layout, step.extents);
      }
      device.layout = *layout;
      return device;
    }
    case Kind::kSlice: {
      const auto axis = static_cast<size_t>(step.axis);
      const int64_t count = step.extents[axis];
      auto layout = slice(device.layout, axis, step.start, count, step.step);
      if (!layout && step.step >= 1) {
        if (!in_order(device.layout.order())) return std::nullopt;
        layout = slice(device.layout, axis, step.start, count, step.step);
      }
      if (!layout) return std::nullopt;
      device.layout = *layout;
      return device;
    }
    case Kind::kExpand:
      for (size_t axis = 0; axis < shape.size(); ++axis)
        if (shape[axis] != step.extents[axis]) device.layout = expand(device.layout, axis, step.extents[axis]);
      return device;
    case Kind::kGather:
    case Kind::kPad: return assembled(op, device, step, name);
  }
  return std::nullopt;
}

/// A tensor of its own, put together from parts: what strides cannot express.
std::optional<LayoutAssigner::Device> LayoutAssigner::assembled(const Operation& op, const Device& device,
                                                                const Step& step, const std::string& name) {
  using Kind = Step::Kind;
  const Extents shape = device.layout.shape();
  const Order order = device.layout.order();
  const npu::Tensor& like = tensor(device.tensor);
  const bool is_unsigned = like.is_unsigned;
  if (like.element_bytes != 1) return std::nullopt;
  Device whole;
  whole.tensor = fresh(name, collapse(step.extents, order), is_unsigned, 1);
  whole.layout = Layout::dense(step.extents, order);
  if (step.kind == Kind::kPad) {
    Device inside = whole;
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      const int64_t before = step.numbers[axis], end = before + shape[axis];
      const auto border = [&](int64_t start, int64_t count) {
        if (count == 0) return;
        Device part = inside;
        part.layout = *slice(inside.layout, axis, start, count, 1);
        fill(op, device, part, step.value);
      };
      border(0, before);
      border(end, step.extents[axis] - end);
      inside.layout = *slice(inside.layout, axis, before, shape[axis], 1);
    }
    if (!copy(op, device, inside, {})) return std::nullopt;
    return whole;
  }
  // Positions in runs of one step each.
  const auto axis = static_cast<size_t>(step.axis);
  const auto& at = step.numbers;
  int64_t parts = 0;
  for (size_t i = 0; i < at.size();) {
    size_t end = i + 1;
    const int64_t stride = end < at.size() ? at[end] - at[i] : 0;
    while (stride >= 0 && end < at.size() && at[end] - at[end - 1] == stride) ++end;
    if (++parts > kMostCopies) return std::nullopt;
    const auto count = static_cast<int64_t>(end - i);
    Device from = device, to = whole;
    if (stride == 0 && count > 1) {
      from.layout = expand(*slice(device.layout, axis, at[i], 1, 1), axis, count);
    } else {
      auto layout = slice(device.layout, axis, at[i], count, std::max<int64_t>(stride, 1));
      if (!layout) return std::nullopt;
      from.layout = *layout;
    }
    to.layout = *slice(whole.layout, axis, static_cast<int64_t>(i), count, 1);
    if (!copy(op, from, to, {})) return std::nullopt;
    i = end;
  }
  return whole;
}

bool LayoutAssigner::add(const Operation& op, const Move& what) {
  const Device source = device_of(op.operands[0]);
  const size_t operations = graph_.operations.size();
  std::vector<std::pair<ValueId, Device>> results;
  for (size_t r = 0; r < what.steps.size(); ++r) {
    const ValueId y = op.results[r];
    const std::string name = name_of(y);
    std::optional<Device> device = source;
    const auto apply_table = [&] {
      const Extents shape = device->layout.shape();
      const Order order = device->layout.order();
      npu::Stage stage;
      stage.table = what.table;
      stage.table_unsigned = is_unsigned(y);
      const Device to{fresh(name, collapse(shape, order), is_unsigned(y), 1), Layout::dense(shape, order)};
      if (!copy(op, *device, to, stage)) return false;
      device = to;
      return true;
    };
    if (!what.table.empty() && what.table_first && !apply_table()) return false;
    for (const Step& step : what.steps[r]) {
      device = moved(op, *device, step, name);
      if (!device) return false;
    }
    if (!what.table.empty() && !what.table_first && !apply_table()) return false;
    if (!reaches_host(y, *device)) return false;
    results.emplace_back(y, *device);
  }
  for (auto& [value, device] : results) produced_[value] = device;
  count_once(operations);
  if (graph_.operations.size() == operations)
    graph_.free_nodes.insert(graph_.free_nodes.end(), op.nodes.begin(), op.nodes.end());
  return true;
}

namespace {

/// Device axes of a dense value's axes when the tensor's own extents hold them whole, in rows of the model's order.
std::optional<std::vector<int64_t>> axes_of(const Extents& shape, const Order& order,
                                            const std::array<int64_t, 4>& extents) {
  std::vector<int64_t> axes(shape.size(), 0);
  int64_t filled = 1, first = 0;
  size_t d = 3;
  for (size_t i = order.size(); i-- > 0;) {
    const auto axis = static_cast<size_t>(order[i]);
    while (d > 0 && filled == extents[d] && shape[axis] != 1) {
      --d;
      filled = 1;
    }
    axes[axis] = static_cast<int64_t>(d);
    if (shape[axis] == 1) continue;
    if (filled > 1 && order[i] > first) return std::nullopt;
    first = order[i];
    filled *= shape[axis];
    if (filled > extents[d]) return std::nullopt;
  }
  if (filled != extents[d]) return std::nullopt;
  for (size_t rest = 0; rest < d; ++rest)
    if (extents[rest] != 1) return std::nullopt;
  return axes;
}

}  // namespace

std::optional<npu::Binding> LayoutAssigner::bind(ValueId value, const Device& device) {
  const Extents shape = device.layout.shape();
  const Order order = device.layout.order();
  if (device.layout == Layout::dense(shape, order) && element_count(shape) == tensor(device.tensor).elements())
    if (auto own = axes_of(shape, order, dims_of(device.tensor)))
      return npu::Binding{value, device.tensor, std::move(*own)};
  std::vector<int64_t> axes(shape.size(), 3);
  Box box;
  box.start = device.layout.start;
  size_t d = 3;
  bool begun = false;
  int64_t first = 0;  // slowest axis of the dimension at hand
  for (size_t i = order.size(); i-- > 0;) {
    const auto axis = static_cast<size_t>(order[i]);
    const auto& parts = device.layout.axes[axis];
    if (parts.size() > 1) return std::nullopt;
    if (parts.empty()) {
      axes[axis] = static_cast<int64_t>(d);
      continue;
    }
    const Part part = parts[0];
    if (part.stride == 0) return std::nullopt;
    const bool joins =
        begun ? part.stride == box.step[d] * box.extent[d] && order[i] < first : d < 3 || part.stride == 1;
    if (!joins) {
      if (d == 0) return std::nullopt;
      --d;
    }
    if (!joins || !begun) box.step[d] = part.stride;
    box.extent[d] *= part.extent;
    begun = true;
    first = order[i];
    axes[axis] = static_cast<int64_t>(d);
  }
  return npu::Binding{value, boxed(device.tensor, box), std::move(axes)};
}

/// True if the host can fetch the value, as it lies or after a copy. Leaves the graph as it was.
bool LayoutAssigner::reaches_host(ValueId value, const Device& device) {
  const size_t tensors = graph_.tensors.size(), operations = graph_.operations.size();
  bool reaches = bind(value, device).has_value();
  if (!reaches) {
    const auto ordered = copied(Operation{}, device, "", device.layout.order());
    reaches = ordered && bind(value, *ordered).has_value();
  }
  graph_.tensors.resize(tensors);
  graph_.operations.resize(operations);
  return reaches;
}

}  // namespace tessera::graph
