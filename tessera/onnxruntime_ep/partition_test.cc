// SPDX-License-Identifier: Apache-2.0
// Groups of random graphs: all nodes that are taken, none with a path that leaves it and comes back, and no two
// neighbours that could be one.
#include "tessera/onnxruntime_ep/partition.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace tessera::ort {
namespace {

/// Nodes that a node depends on, itself included.
std::vector<std::set<size_t>> ancestors(const std::vector<std::vector<size_t>>& inputs) {
  std::vector<std::set<size_t>> all(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    all[i].insert(i);
    for (const size_t from : inputs[i]) all[i].insert(all[from].begin(), all[from].end());
  }
  return all;
}

bool convex(const std::set<size_t>& group, const std::vector<std::set<size_t>>& before) {
  for (size_t between = 0; between < before.size(); ++between) {
    if (group.contains(between)) continue;
    bool after_some = false, before_some = false;
    for (const size_t member : group) {
      after_some = after_some || before[between].contains(member);
      before_some = before_some || before[member].contains(between);
    }
    if (after_some && before_some) return false;
  }
  return true;
}

class ConvexGroups : public testing::TestWithParam<unsigned> {};

TEST_P(ConvexGroups, OfARandomGraph) {
  std::mt19937 random(GetParam());
  const size_t count = 2 + random() % 14;
  std::vector<std::vector<size_t>> inputs(count);
  std::vector<NodeFacts> nodes(count);
  std::vector<bool> taken(count);
  std::set<size_t> all;
  for (size_t i = 0; i < count; ++i) {
    nodes[i].results = {"v" + std::to_string(i)};
    for (size_t from = 0; from < i; ++from)
      if (random() % 4 == 0) {
        inputs[i].push_back(from);
        nodes[i].uses.push_back("v" + std::to_string(from));
      }
    taken[i] = random() % 3 != 0;
    if (taken[i]) all.insert(i);
  }
  const auto before = ancestors(inputs);
  const auto groups = convex_groups(nodes, taken);
  std::set<size_t> found;
  for (const auto& group : groups) {
    EXPECT_TRUE(convex({group.begin(), group.end()}, before)) << "seed " << GetParam();
    for (const size_t node : group) EXPECT_TRUE(found.insert(node).second) << "seed " << GetParam();
  }
  EXPECT_EQ(found, all) << "seed " << GetParam();
  for (size_t i = 1; i < groups.size(); ++i) {
    std::set<size_t> joined(groups[i - 1].begin(), groups[i - 1].end());
    joined.insert(groups[i].begin(), groups[i].end());
    EXPECT_FALSE(convex(joined, before)) << "seed " << GetParam() << ": groups " << i - 1 << " and " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ConvexGroups, testing::Range(1U, 201U));

}  // namespace
}  // namespace tessera::ort
