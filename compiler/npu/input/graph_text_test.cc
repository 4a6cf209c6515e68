// SPDX-License-Identifier: Apache-2.0
// Graphs as text: random graphs of every operation come back as they were, the form is what the header says, and
// errors say where.
#include "compiler/npu/input/graph_text.h"

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
  EXPECT_EQ(kinds.size() + 1, std::variant_size_v<decltype(Operation::what)>);  // kernels are not drawn
}

/// A kernel that copies two entries of 8 bytes, behind which a table stands.
Graph with_kernel() {
  Graph graph;
  graph.name = "main";
  Tensor tensor;
  tensor.w = 2, tensor.c = 8;
  const TensorId x = graph.add(tensor), y = graph.add(tensor), z = graph.add(tensor);
  isa::Load load;
  load.space = isa::Space::kOut, load.base = kArenaBase, load.dram_offset = 64, load.length = 16;
  isa::Store store;
  store.space = isa::Space::kOut, store.base = kArenaBase, store.dram_offset = 128, store.length = 16;
  Kernel kernel;
  kernel.input = x, kernel.output = y;
  kernel.begins = {64, 128}, kernel.ends = {80, 144};
  kernel.lines = {"file.py:3 load", "file.py:4 store"};
  kernel.macs = {0, 0};
  kernel.line_of = {0, 1};
  for (const isa::Instruction& instruction : {isa::Instruction(load), isa::Instruction(store)}) {
    const isa::Word word = isa::encode(instruction);
    kernel.words.insert(kernel.words.end(), word.begin(), word.end());
  }
  graph.operations.push_back({.name = "kernel", .kind = "Kernel", .what = kernel});
  Elementwise e;
  e.input = y, e.output = z;
  e.stage.table = Table(256, 7);
  graph.operations.push_back({.name = "table", .kind = "Lookup", .what = e});
  graph.inputs = {x}, graph.outputs = {z};
  return graph;
}

TEST(Kernel, StandsBetweenItsNeighboursAndComesBackAsText) {
  const Graph graph = with_kernel();
  const Graph again = graph_from_text(to_text(graph));
  ASSERT_TRUE(again == graph) << to_text(graph);
  const Program program = compile(graph, isa::find_config("npu64"));
  ASSERT_EQ(program.layers.size(), 4u);  // two operations, two lines
  EXPECT_EQ(program.layers[2].name, "kernel file.py:3");
  EXPECT_EQ(program.layers[3].kind, "store");
  EXPECT_EQ(program.layers[2].dram_read_bytes, 16);
  const auto& load = std::get<isa::Load>(program.instructions[0]);
  EXPECT_EQ(static_cast<int64_t>(load.dram_offset), program.placements[0].offset);
}

TEST(Kernel, IsRefusedWhereItLeavesItsTensors) {
  const auto refusal = [](const Graph& graph) -> std::string {
    try {
      compile(graph, isa::find_config("npu64"));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  Graph graph = with_kernel();
  std::get<Kernel>(graph.operations[0].what).ends[0] = 80;
  std::get<Kernel>(graph.operations[0].what).begins[0] = 64 + 1;
  EXPECT_NE(refusal(graph).find("has no room where the kernel has its tensor"), std::string::npos) << refusal(graph);
  graph = with_kernel();
  std::get<Kernel>(graph.operations[0].what).begins[0] = 0;
  std::get<Kernel>(graph.operations[0].what).ends[0] = 16;
  EXPECT_NE(refusal(graph).find("node 'kernel' (Kernel) on npu64: its kernel leaves its tensors"), std::string::npos)
      << refusal(graph);
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
      "f:8:3: unknown operation 'convolutoin'; known: convolution, pool, elementwise, product, transposition, rows, "
      "kernel");
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
