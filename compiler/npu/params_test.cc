// SPDX-License-Identifier: Apache-2.0
// Biases and scales on their way to PARAM: biases of zero that stand there are not fetched again; results are those of
// plain loops, races checked.
#include <gtest/gtest.h>

#include "compiler/npu/tests/reference.h"
#include "isa/config.h"

namespace tessera::npu {
namespace {

/// So many layers of one row and 64 channels; `biased` says which have biases.
template <typename Biased>
Graph layers_of(int64_t layers, Biased&& biased) {
  constexpr int64_t kChannels = 64;
  Graph graph;
  Tensor tensor;
  tensor.c = kChannels;
  TensorId last = graph.add(tensor);
  graph.inputs = {last};
  for (int64_t i = 0; i < layers; ++i) {
    std::vector<int16_t> weights(kChannels * kChannels);
    for (size_t w = 0; w < weights.size(); ++w) weights[w] = static_cast<int16_t>((w * 37 + i) % 255) - 127;
    Stage stage;
    stage.convert = true;
    for (int64_t c = 0; c < kChannels; ++c) {
      stage.multiplier.push_back(0.001f + 0.00001f * static_cast<float>(c + i));
      stage.bias.push_back(biased(i) ? static_cast<int32_t>(100 * c - 3000) : 0);
    }
    stage.low = -128;
    stage.high = 127;
    Operation operation;
    operation.name = "layer" + std::to_string(i);
    const TensorId next = graph.add(tensor);
    operation.what = make_matmul(last, next, 3, kChannels, kChannels, weights, {}, stage);
    graph.operations.push_back(std::move(operation));
    last = next;
  }
  graph.outputs = {last};
  return graph;
}

int64_t param_bytes(const Program& program) {
  int64_t bytes = 0;
  for (const LayerInfo& layer : program.layers) bytes += layer.stream_bytes[static_cast<size_t>(Stream::kParams)];
  return bytes;
}

Program checked(const Graph& graph, const isa::MachineConfig& config) {
  Program program;
  EXPECT_EQ(test::compare(graph, config, 1, {}, &program), "");
  return program;
}

constexpr int64_t kLayers = 48;

/// PARAM of npu256 has 128 entries, and a layer takes four: what comes behind the first 32 layers finds zeros.
TEST(Params, ZerosStay) {
  const isa::MachineConfig config = isa::find_config("npu256");
  const int64_t all = kLayers * 4 * config.param_entry_bytes();
  EXPECT_EQ(param_bytes(checked(layers_of(kLayers, [](int64_t) { return true; }), config)), all);
  EXPECT_EQ(param_bytes(checked(layers_of(kLayers, [](int64_t) { return false; }), config)),
            all - (kLayers - 32) * 4 * config.param_entry_bytes() / 2);
}

/// A bias in a place ends what is known of it.
TEST(Params, BiasesBetween) {
  for (const char* name : {"npu64", "npu256"}) {
    const isa::MachineConfig config = isa::find_config(name);
    for (const int64_t every : {2, 3, 5, 31})
      checked(layers_of(kLayers, [&](int64_t i) { return i % every == 0; }), config);
    // The first layers fill PARAM with biases; those behind them have none and must not see them.
    checked(layers_of(kLayers, [&](int64_t i) { return i < kLayers / 2; }), config);
  }
}

}  // namespace
}  // namespace tessera::npu
