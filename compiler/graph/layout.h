// SPDX-License-Identifier: Apache-2.0
// Where the elements of a value lie in a tensor of the device. Enters: shapes and operators that only move elements.
// Leaves: a Layout, strides instead of copies, and the loops of a copy where strides no longer suffice. An axis is a
// list of parts with a stride each, because a reshape may merge axes that are not neighbours in memory (channel
// shuffle, depth to space): it stays free until somebody wants the elements in an order of his own. Pure arithmetic on
// shapes, no MLIR.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::graph {

using Extents = std::vector<int64_t>;
/// Axes of a value from slowest to fastest.
using Order = std::vector<int64_t>;

/// `extent` positions, `stride` elements apart; stride 0 repeats one element.
struct Part {
  int64_t extent = 1, stride = 0;
  bool operator==(const Part&) const = default;
};

struct Layout {
  int64_t start = 0;                    // the first element's number in the tensor
  std::vector<std::vector<Part>> axes;  // slowest part first; no parts of extent 1; the extents multiply to the axis's

  /// Elements in `order` without gaps.
  static Layout dense(const Extents& shape, const Order& order);
  Extents shape() const;
  /// The order of memory, channels last or the value's own preferred where both would do or none is one.
  Order order() const;
  bool operator==(const Layout&) const = default;
};

/// Elements of a shape.
int64_t element_count(const Extents& shape);
Order identity_order(size_t rank);
/// n, spatial axes, c; the identity below rank 3.
Order channels_last_order(size_t rank);

Layout transpose(const Layout& layout, const Order& permutation);
/// Nothing when an axis of `to` would need half a part.
std::optional<Layout> reshape(const Layout& layout, const Extents& to);
/// Elements start, start + step, ... (`count` of them) of an axis. Nothing when an axis of several parts is cut inside
/// one.
std::optional<Layout> slice(const Layout& layout, size_t axis, int64_t start, int64_t count, int64_t step);
/// An axis of extent 1 repeated.
Layout expand(const Layout& layout, size_t axis, int64_t count);

/// Four dimensions n, h, w, c of strides, c without gaps.
struct Box {
  int64_t start = 0;
  std::array<int64_t, 4> extent{1, 1, 1, 1}, step{0, 0, 0, 0};
};
/// The layout, its axes in `order`, as a box of the given extents. Nothing when a dimension would need two strides.
std::optional<Box> as_box(const Layout& layout, const Order& order, const std::array<int64_t, 4>& extents);

/// A loop of a copy.
struct CopyLoop {
  int64_t extent = 1, from = 0, to = 0;
};
/// The loops that visit every element once, sorted by the stride of `to`, slowest first, merged as far as both sides
/// allow. Nothing when the parts do not fit each other.
std::optional<std::vector<CopyLoop>> copy_loops(const Layout& from, const Layout& to);

}  // namespace tessera::graph
