// SPDX-License-Identifier: Apache-2.0
// Pools over all results of a layer whose strips are made one after the other: parts of them stand between the strips,
// and what they give is what plain loops give. Races are checked by the run.
#include <gtest/gtest.h>

#include <variant>

#include "compiler/npu/graph/graph.h"
#include "compiler/npu/tests/reference.h"

namespace tessera::npu {
namespace {

constexpr int64_t kChannels = 64;

Stage stage_of(double multiplier) {
  Stage stage;
  stage.convert = true;
  stage.multiplier.assign(kChannels, static_cast<float>(multiplier));
  stage.bias.assign(kChannels, 0);
  stage.low = -128;
  stage.high = 127;
  return stage;
}

/// A product of so many rows with 64 channels, and the largest or the sum of all of them.
Graph pooled(int64_t rows, Pool::Kind kind) {
  Graph graph;
  Tensor tensor;
  tensor.c = kChannels;
  tensor.w = rows;
  graph.inputs = {graph.add(tensor)};
  const TensorId middle = graph.add(tensor);
  std::vector<int16_t> weights(kChannels * kChannels);
  for (size_t w = 0; w < weights.size(); ++w) weights[w] = static_cast<int16_t>(w * 37 % 255) - 127;
  Operation product;
  product.name = "product";
  product.what = make_matmul(graph.inputs[0], middle, 3, kChannels, kChannels, weights, {}, stage_of(0.001));
  graph.operations.push_back(std::move(product));
  Pool pool;
  pool.kind = kind;
  pool.pad_value = kind == Pool::Kind::kMax ? -128 : 0;
  pool.stage = stage_of(kind == Pool::Kind::kMax ? 1 : 1.0 / static_cast<double>(rows));
  graph.outputs = {middle};
  test::append_pool(graph, pool);
  return graph;
}

/// Instructions of the pool that leave a part of it in ACC, before the last product.
int parts_of(const Program& program) {
  int parts = 0, early = 0;
  for (const isa::Instruction& instruction : program.instructions) {
    if (std::holds_alternative<isa::Gemm>(instruction)) early = parts;
    const auto* alu = std::get_if<isa::Alu>(&instruction);
    if (alu != nullptr && alu->reduce > 0 && alu->dst == isa::AluSpace::kAcc) ++parts;
  }
  return early;
}

TEST(Advance, PoolsBeginBeforeTheirInputIsWhole) {
  for (const char* name : {"npu64", "npu256"}) {
    const isa::MachineConfig config = isa::find_config(name);
    int parts = 0;
    for (const Pool::Kind kind : {Pool::Kind::kMax, Pool::Kind::kSum}) {
      for (const int64_t rows : {64, 125, 400}) {
        Program program;
        EXPECT_EQ(test::compare(pooled(rows, kind), config, 1, {}, &program), "") << name << ", " << rows;
        parts += parts_of(program);
      }
    }
    EXPECT_GT(parts, 0) << name;
  }
}

}  // namespace
}  // namespace tessera::npu
