// SPDX-License-Identifier: Apache-2.0
// Strides of layouts: splitting, merging and pairing of parts.
#include "compiler/graph/layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace tessera::graph {
namespace {

int64_t product(const std::vector<Part>& parts) {
  int64_t extent = 1;
  for (const Part& p : parts) extent *= p.extent;
  return extent;
}

/// Parts of extent 1 go, neighbours without a gap become one.
std::vector<Part> merged(const std::vector<Part>& parts) {
  std::vector<Part> out;
  for (const Part& p : parts) {
    if (p.extent == 1) continue;
    if (!out.empty() && out.back().stride == p.stride * p.extent && (p.stride != 0 || out.back().stride == 0)) {
      out.back() = {out.back().extent * p.extent, p.stride};
    } else {
      out.push_back(p);
    }
  }
  return out;
}

/// Takes parts of `need` positions from the front of `from` (slowest first).
bool take(std::vector<Part>& from, size_t& at, int64_t need, std::vector<Part>& out) {
  while (need > 1) {
    if (at == from.size()) return false;
    Part& p = from[at];
    if (need % p.extent == 0) {
      out.push_back(p);
      need /= p.extent;
      ++at;
    } else if (p.extent % need == 0) {
      out.push_back({need, p.stride * (p.extent / need)});
      p.extent /= need;
      need = 1;
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

int64_t element_count(const Extents& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  return count;
}

Order identity_order(size_t rank) {
  Order order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

Order channels_last_order(size_t rank) {
  Order order = identity_order(rank);
  if (rank >= 3) {
    order.erase(order.begin() + 1);
    order.push_back(1);
  }
  return order;
}

Layout Layout::dense(const Extents& shape, const Order& order) {
  Layout layout;
  layout.axes.resize(shape.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const auto axis = static_cast<size_t>(order[i]);
    if (shape[axis] != 1) layout.axes[axis] = {{shape[axis], stride}};
    stride *= shape[axis];
  }
  return layout;
}

Extents Layout::shape() const {
  Extents shape;
  for (const auto& parts : axes) shape.push_back(product(parts));
  return shape;
}

Order Layout::order() const {
  // In order: no part moves slower than one before it.
  const auto sorted = [&](const Order& order) {
    int64_t last = -1;
    for (const int64_t axis : order) {
      for (const Part& p : axes[static_cast<size_t>(axis)]) {
        if (p.stride == 0) continue;
        if (last >= 0 && p.stride > last) return false;
        last = p.stride;
      }
    }
    return true;
  };
  const Order last = channels_last_order(axes.size()), own = identity_order(axes.size());
  if (sorted(last)) return last;
  if (sorted(own)) return own;
  // An axis of one element stands in front, so that the fastest axis is one that has a run.
  const auto largest = [&](int64_t axis) {
    const auto& parts = axes[static_cast<size_t>(axis)];
    int64_t stride = parts.empty() ? std::numeric_limits<int64_t>::max() : 0;
    for (const Part& p : parts) stride = std::max(stride, p.stride);
    return stride;
  };
  Order order = own;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return largest(a) > largest(b); });
  if (sorted(order)) return order;
  const auto contiguous = [&](size_t axis) {
    return std::any_of(axes[axis].begin(), axes[axis].end(), [](const Part& p) { return p.stride == 1; });
  };
  if (axes.size() >= 3 && contiguous(1)) return last;
  if (!axes.empty() && contiguous(axes.size() - 1)) return own;
  return order;
}

Layout transpose(const Layout& layout, const Order& permutation) {
  Layout out;
  out.start = layout.start;
  for (const int64_t axis : permutation) out.axes.push_back(layout.axes[static_cast<size_t>(axis)]);
  return out;
}

std::optional<Layout> reshape(const Layout& layout, const Extents& to) {
  std::vector<Part> flat;
  for (const auto& parts : layout.axes) flat.insert(flat.end(), parts.begin(), parts.end());
  flat = merged(flat);
  Layout out;
  out.start = layout.start;
  size_t at = 0;
  for (const int64_t extent : to) {
    std::vector<Part> parts;
    if (!take(flat, at, extent, parts)) return std::nullopt;
    out.axes.push_back(merged(parts));
  }
  return out;
}

std::optional<Layout> slice(const Layout& layout, size_t axis, int64_t start, int64_t count, int64_t step) {
  Layout out = layout;
  auto& parts = out.axes[axis];
  if (count == 1) {
    for (size_t i = parts.size(); i-- > 0;) {
      out.start += start % parts[i].extent * parts[i].stride;
      start /= parts[i].extent;
    }
    parts.clear();
    return out;
  }
  if (step < 1) return std::nullopt;
  int64_t inner = 1;
  for (size_t i = 1; i < parts.size(); ++i) inner *= parts[i].extent;
  if (inner > 1 && (step != 1 || start % inner != 0 || count % inner != 0)) return std::nullopt;
  out.start += start / inner * parts[0].stride;
  parts[0] = {count / inner, parts[0].stride * step};
  parts = merged(parts);
  return out;
}

Layout expand(const Layout& layout, size_t axis, int64_t count) {
  Layout out = layout;
  if (count > 1) out.axes[axis] = {{count, 0}};
  return out;
}

std::optional<Box> as_box(const Layout& layout, const Order& order, const std::array<int64_t, 4>& extents) {
  std::vector<Part> flat;
  for (const int64_t axis : order) {
    const auto& parts = layout.axes[static_cast<size_t>(axis)];
    flat.insert(flat.end(), parts.begin(), parts.end());
  }
  flat = merged(flat);
  Box box;
  box.start = layout.start;
  box.extent = extents;
  size_t at = 0;
  for (size_t d = 0; d < 4; ++d) {
    std::vector<Part> parts;
    if (!take(flat, at, extents[d], parts)) return std::nullopt;
    parts = merged(parts);
    if (parts.size() > 1) return std::nullopt;
    if (!parts.empty()) box.step[d] = parts[0].stride;
  }
  if (at != flat.size()) return std::nullopt;
  if (extents[3] > 1 && box.step[3] != 1) return std::nullopt;
  return box;
}

std::optional<std::vector<CopyLoop>> copy_loops(const Layout& from, const Layout& to) {
  std::vector<CopyLoop> loops;
  for (size_t axis = 0; axis < from.axes.size(); ++axis) {
    std::vector<Part> a = from.axes[axis], b = to.axes[axis];
    // From the fastest part on, cut at the boundaries of both.
    while (!a.empty() && !b.empty()) {
      Part &x = a.back(), &y = b.back();
      const int64_t extent = std::min(x.extent, y.extent);
      if (x.extent % extent != 0 || y.extent % extent != 0) return std::nullopt;
      loops.push_back({extent, x.stride, y.stride});
      for (auto* side : {&a, &b}) {
        Part& p = side->back();
        p.extent /= extent;
        p.stride *= extent;
        if (p.extent == 1) side->pop_back();
      }
    }
    if (!a.empty() || !b.empty()) return std::nullopt;
  }
  std::stable_sort(loops.begin(), loops.end(), [](const CopyLoop& a, const CopyLoop& b) { return a.to > b.to; });
  for (size_t i = 0; i + 1 < loops.size();) {
    CopyLoop &outer = loops[i], &inner = loops[i + 1];
    if (outer.from == inner.from * inner.extent && outer.to == inner.to * inner.extent) {
      inner.extent *= outer.extent;
      loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(i));
      if (i > 0) --i;
    } else {
      ++i;
    }
  }
  return loops;
}

}  // namespace tessera::graph
