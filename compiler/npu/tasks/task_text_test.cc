// SPDX-License-Identifier: Apache-2.0
// Tasks of random operations print, parse and mean the same; what contradicts the graph is refused.
#include "compiler/npu/tasks/task_text.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/tests/random_graph.h"

namespace tessera::npu {
namespace {

using test::Random;

std::vector<Task> tasks_of(const Graph& graph) {
  const Options options;
  const isa::MachineConfig config = isa::find_config("npu256");
  const MemoryPlan plan = plan_memory(graph, options);
  std::vector<Task> all;
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    for (Task& task : make_tasks(graph, i, plan.placements, config, options)) all.push_back(std::move(task));
  }
  return all;
}

TEST(TaskText, PrintsAndParses) {
  Random random(41);
  std::vector<Graph> graphs;
  for (int i = 0; i < 6; ++i) {
    graphs.push_back(test::random_convolution(random, 40, 300));
    graphs.push_back(test::random_pool(random, 40, 300));
    graphs.push_back(test::random_elementwise(random, 40, 300));
    graphs.push_back(test::random_product(random, 40));
    graphs.push_back(test::random_transposition(random, 40));
    graphs.push_back(test::random_network(random));
  }
  for (const Graph& graph : graphs) {
    const std::vector<Task> tasks = tasks_of(graph);
    const std::string text = to_text(tasks, graph);
    const std::vector<Task> again = tasks_from_text(text, graph);
    ASSERT_EQ(again.size(), tasks.size());
    for (size_t i = 0; i < tasks.size(); ++i) {
      EXPECT_EQ(again[i].operation, tasks[i].operation);
      EXPECT_EQ(again[i].stage, tasks[i].stage);
      EXPECT_EQ(again[i].sum, tasks[i].sum);
      EXPECT_EQ(again[i].input_zero, tasks[i].input_zero);
      EXPECT_EQ(again[i].factor_zero, tasks[i].factor_zero);
      EXPECT_EQ(again[i].unit_input, tasks[i].unit_input);
      EXPECT_TRUE(again[i].alternatives == tasks[i].alternatives) << text;
      ASSERT_EQ(again[i].weights == nullptr, tasks[i].weights == nullptr);
      if (tasks[i].weights) EXPECT_EQ(*again[i].weights, *tasks[i].weights);
    }
    EXPECT_EQ(to_text(again, graph), text);
  }
}

TEST(TaskText, WhatContradictsTheGraphIsRefused) {
  Random random(42);
  const Graph graph = test::random_convolution(random, 40, 300);
  const std::string text = to_text(tasks_of(graph), graph);
  const auto error = [&](const std::string& from, const std::string& to) -> std::string {
    std::string changed = text;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << text;
    changed.replace(at, from.size(), to);
    try {
      tasks_from_text(changed, graph, "f");
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kInvalidArgument);
      return e.what();
    }
    return "";
  };
  EXPECT_NE(error("operation=0", "operation=1").find("f:1:1: the graph's operation 1 is not"), std::string::npos);
  EXPECT_NE(error("ic_per_group=", "ic_per_group=1").find(" weights of "), std::string::npos);
  EXPECT_NE(error("nest ", "next ").find("expected 'nest', found 'next'"), std::string::npos);
  EXPECT_NE(error("task ", "tasks ").find("expected a task or the end of the text"), std::string::npos);
}

}  // namespace
}  // namespace tessera::npu
