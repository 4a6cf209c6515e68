// SPDX-License-Identifier: Apache-2.0
// Layouts against arrays of element numbers: random chains of steps on a layout and on the array itself must agree, and
// the loops of a copy must carry every element to its place once.
#include "compiler/graph/layout.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tessera::graph {
namespace {

/// Element numbers of a value in the model's order.
struct Array {
  Extents shape;
  std::vector<int64_t> at;
};

int64_t product(const Extents& shape) {
  int64_t n = 1;
  for (const int64_t e : shape) n *= e;
  return n;
}

/// Calls use(index) in the model's order.
template <typename Use>
void for_each_index(const Extents& shape, Use&& use) {
  Extents index(shape.size(), 0);
  for (int64_t i = 0, n = product(shape); i < n; ++i) {
    int64_t rest = i;
    for (size_t a = shape.size(); a-- > 0;) {
      index[a] = rest % shape[a];
      rest /= shape[a];
    }
    use(index);
  }
}

int64_t flat(const Extents& shape, const Extents& index) {
  int64_t i = 0;
  for (size_t a = 0; a < shape.size(); ++a) i = i * shape[a] + index[a];
  return i;
}

Array numbers(const Layout& layout) {
  Array array{layout.shape(), {}};
  for_each_index(array.shape, [&](const Extents& index) {
    int64_t at = layout.start;
    for (size_t a = 0; a < index.size(); ++a) {
      int64_t rest = index[a];
      for (size_t p = layout.axes[a].size(); p-- > 0;) {
        at += rest % layout.axes[a][p].extent * layout.axes[a][p].stride;
        rest /= layout.axes[a][p].extent;
      }
    }
    array.at.push_back(at);
  });
  return array;
}

class Chains : public testing::TestWithParam<int> {
 protected:
  std::mt19937_64 random_{static_cast<uint64_t>(GetParam())};
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  Order permutation(size_t rank) {
    Order order = identity_order(rank);
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  /// The same elements in other extents: factors dealt anew.
  Extents other_shape(int64_t count) {
    Extents shape(static_cast<size_t>(between(1, 4)), 1);
    for (int64_t f = 2; count > 1;) {
      if (count % f == 0) {
        shape[static_cast<size_t>(between(0, static_cast<int64_t>(shape.size()) - 1))] *= f;
        count /= f;
      } else {
        ++f;
      }
    }
    return shape;
  }
};

TEST_P(Chains, AgreeWithArrays) {
  Extents shape;
  for (int64_t i = between(1, 4); i > 0; --i) shape.push_back(between(1, 6));
  Layout layout = Layout::dense(shape, permutation(shape.size()));
  Array array = numbers(layout);
  for (int64_t step = 0; step < 6; ++step) {
    const size_t rank = array.shape.size();
    Array next;
    const int64_t kind = between(0, 3);
    if (kind == 0) {
      const Order order = permutation(rank);
      for (const int64_t a : order) next.shape.push_back(array.shape[static_cast<size_t>(a)]);
      for_each_index(next.shape, [&](const Extents& index) {
        Extents old(rank);
        for (size_t a = 0; a < rank; ++a) old[static_cast<size_t>(order[a])] = index[a];
        next.at.push_back(array.at[static_cast<size_t>(flat(array.shape, old))]);
      });
      layout = transpose(layout, order);
    } else if (kind == 1) {
      next = {other_shape(product(array.shape)), array.at};
      const auto made = reshape(layout, next.shape);
      if (!made) continue;
      layout = *made;
    } else if (kind == 2) {
      const auto axis = static_cast<size_t>(between(0, static_cast<int64_t>(rank) - 1));
      const int64_t start = between(0, array.shape[axis] - 1), stride = between(1, 3);
      const int64_t count = between(1, (array.shape[axis] - 1 - start) / stride + 1);
      next.shape = array.shape;
      next.shape[axis] = count;
      for_each_index(next.shape, [&](Extents index) {
        index[axis] = start + index[axis] * stride;
        next.at.push_back(array.at[static_cast<size_t>(flat(array.shape, index))]);
      });
      const auto made = slice(layout, axis, start, count, stride);
      if (!made) continue;
      layout = *made;
    } else {
      size_t axis = 0;
      while (axis < rank && array.shape[axis] != 1) ++axis;
      if (axis == rank || product(array.shape) > 500) continue;
      next.shape = array.shape;
      next.shape[axis] = between(1, 3);
      for_each_index(next.shape, [&](Extents index) {
        index[axis] = 0;
        next.at.push_back(array.at[static_cast<size_t>(flat(array.shape, index))]);
      });
      layout = expand(layout, axis, next.shape[axis]);
    }
    array = next;
    ASSERT_EQ(numbers(layout).shape, array.shape);
    ASSERT_EQ(numbers(layout).at, array.at);
  }
  // The loops of a copy into any order.
  const Layout target = Layout::dense(array.shape, permutation(array.shape.size()));
  const auto loops = copy_loops(layout, target);
  ASSERT_TRUE(loops.has_value());
  std::map<int64_t, int64_t> copied;
  Extents extents;
  for (const CopyLoop& loop : *loops) extents.push_back(loop.extent);
  for_each_index(extents, [&](const Extents& index) {
    int64_t from = layout.start, to = target.start;
    for (size_t k = 0; k < index.size(); ++k) {
      from += index[k] * (*loops)[k].from;
      to += index[k] * (*loops)[k].to;
    }
    EXPECT_TRUE(copied.emplace(to, from).second);
  });
  const Array places = numbers(target);
  ASSERT_EQ(copied.size(), array.at.size());
  for (size_t i = 0; i < places.at.size(); ++i) EXPECT_EQ(copied.at(places.at[i]), array.at[i]);
  // A dense layout is a box in its own order.
  EXPECT_TRUE(as_box(target, target.order(), {1, 1, 1, product(array.shape)}).has_value() || array.shape.size() > 1);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Chains, testing::Range(0, 400));

/// Heads in the model's order over tokens in memory: the axis of one element is not the fastest.
TEST(Layout, FastestAxisHasARun) {
  const Layout heads = transpose(Layout::dense({1, 64, 6, 48}, identity_order(4)), {0, 2, 1, 3});
  EXPECT_EQ(heads.order(), (Order{0, 2, 1, 3}));
  EXPECT_EQ(slice(heads, 3, 24, 24, 1)->order(), (Order{0, 2, 1, 3}));
  EXPECT_EQ(Layout::dense({1, 8, 5, 1}, {0, 2, 1, 3}).order(), (Order{0, 2, 3, 1}));
}

TEST(Layout, BoxesNeedOneStrideForEachDimension) {
  const Layout layout = Layout::dense({2, 8, 3, 5}, channels_last_order(4));
  const auto box = as_box(layout, channels_last_order(4), {2, 1, 15, 8});
  ASSERT_TRUE(box.has_value());
  EXPECT_EQ(box->step[2], 8);
  EXPECT_FALSE(as_box(layout, identity_order(4), {2, 8, 3, 5}).has_value());
  const Layout part = *slice(layout, 3, 1, 3, 1);
  EXPECT_FALSE(as_box(part, channels_last_order(4), {2, 1, 9, 8}).has_value());
  EXPECT_EQ(as_box(part, channels_last_order(4), {2, 3, 3, 8})->start, 8);
}

}  // namespace
}  // namespace tessera::graph
