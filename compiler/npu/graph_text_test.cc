// SPDX-License-Identifier: Apache-2.0
// Graphs as text: random graphs of every operation come back as they were, the form is what the header says, and
// errors say where.
#include "compiler/npu/graph_text.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "compiler/npu/tests/random_graph.h"

namespace tessera::npu {
namespace {

TEST(GraphText, RandomGraphsComeBackAsTheyWere) {
  std::set<size_t> kinds;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    test::Random random(seed);
    for (Graph graph :
         {test::random_convolution(random, 40, 60), test::random_pool(random, 40, 60),
          test::random_elementwise(random, 40, 60), test::random_strided(random, 24), test::random_network(random),
          test::random_product(random, 40), test::random_transposition(random, 40), test::random_rows(random, 40),
          test::random_attention(random, 12)}) {
      graph.name = "g" + std::to_string(seed);
      for (Operation& operation : graph.operations) {
        kinds.insert(operation.what.index());
        operation.nodes = {"a \"quoted\" node", operation.name};
      }
      graph.host_inputs = {{3, graph.inputs[0], {0, 3, 1, 2}}};
      graph.free_nodes = {"reshape"};
      const std::string text = to_text(graph);
      const Graph again = graph_from_text(text);
      ASSERT_TRUE(again == graph) << "seed " << seed << "\n" << text;
      EXPECT_EQ(to_text(again), text);
    }
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<decltype(Operation::what)>);
}

constexpr const char* kText = R"(npu.graph @main {
  %0 = tensor "x" i8[1, 2, 2, 16] border={top=1 left=1 value=-3}
  %1 = tensor "y" u8[1, 2, 2, 4]
  %2 = view %1 "y" u8[1, 2, 2, 2] at=[0, 0, 0, 2]
  %3 = strided %1 "y" u8[1, 1, 1, 2] start=4 steps=[8, 0, 0]
  %4 = reshape %1 "y" u8[1, 1, 4, 4]
  interface inputs=[%0] outputs=[%1] host_outputs=[{value=7 tensor=%1 axes=[0, 3, 1, 2]}]
  convolution "conv" op="QLinearConv" macs=128 nodes=["conv", "relu"] input=%0 output=%2 input_zero=-3 weights=#0
      stage={convert=true bias=[5] multiplier=[0.1] low=0 high=255}
  elementwise "max" op="Max" input=%2 output=%3 stage={second={kind=max tensor=%3 low=0 high=255}}
}
constants {
  #0 = i16 "0x)";

/// The text with weights 0, 1, 2, ..
std::string text() {
  std::string all = kText;
  for (int i = 0; i < 32; ++i) all += "0" + std::string(1, "0123456789abcdef"[i % 16]) + "00";
  return all + "\"\n}\n";
}

TEST(GraphText, PrintsWhatItReads) {
  std::string all = text();
  // A view of a broadcast shape is no output of an elementwise operation: that is the verifier's to say.
  EXPECT_THROW(graph_from_text(all), Error);
  all.erase(all.find("  elementwise"), all.find("}\nconstants") - all.find("  elementwise"));
  const Graph graph = graph_from_text(all);
  EXPECT_EQ(to_text(graph), all);
  EXPECT_EQ(graph.tensors[0].border.value, -3);
  EXPECT_EQ(graph.tensors[3].step_n, 8);
  EXPECT_EQ(std::get<Convolution>(graph.operations[0].what).weights[9], 9);
  EXPECT_EQ(std::get<Convolution>(graph.operations[0].what).stage.multiplier, std::vector<float>{0.1f});
  EXPECT_EQ(graph.host_outputs[0].axes, (std::vector<int64_t>{0, 3, 1, 2}));
  const std::string elided = to_text(graph, true);
  EXPECT_NE(elided.find("#0 = i16[32] elided"), std::string::npos) << elided;
  EXPECT_THROW(graph_from_text(elided), Error);
}

std::string error_of(std::string all, const std::string& from, const std::string& to) {
  all.replace(all.find(from), from.size(), to);
  try {
    graph_from_text(all, "f");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "";
}

TEST(GraphText, ErrorsSayWhereAndWhat) {
  const std::string all = text();
  EXPECT_EQ(error_of(all, "weights=", "wights="), "f:8:104: unknown field 'wights'");
  EXPECT_EQ(
      error_of(all, "convolution", "convolutoin"),
      "f:8:3: unknown operation 'convolutoin'; known: convolution, pool, elementwise, product, transposition, rows");
  EXPECT_EQ(error_of(all, "%1 = tensor", "%9 = tensor"), "f:3:3: tensors are numbered in order; expected %1");
  EXPECT_EQ(error_of(all, "weights=#0", "weights=#1"), "f:8:112: the text has no constant #1");
  EXPECT_EQ(error_of(all, "#0 = i16", "#0 = f32"), "f:8:112: constant #0 is of type f32, not i16");
  EXPECT_EQ(error_of(all, "#0 = i16", "#1 = i16"), "f:13:3: constants are numbered in order; expected #0");
  EXPECT_EQ(error_of(all, "input_zero=-3", "input_zero=-3 input_zero=-3"), "f:8:115: field 'input_zero' stands twice");
  EXPECT_EQ(error_of(all, "kind=max ", ""), "f:10:88: field 'kind' is missing");
  // The verifier runs on what was read.
  EXPECT_EQ(error_of(all, "input=%0", "input=%1"),
            "f:1:11: graph @main: node 'conv' (QLinearConv): holds 32 weights, the shape needs 8");
}

}  // namespace
}  // namespace tessera::npu
