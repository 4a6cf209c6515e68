// SPDX-License-Identifier: Apache-2.0
// Biases and scales on their way to PARAM: biases of zero that stand there are not fetched again; results are those of
// plain loops, races checked.
#include <gtest/gtest.h>

#include <functional>
#include <numeric>

#include "compiler/npu/tests/reference.h"
#include "isa/config.h"

namespace tessera::npu {
namespace {

/// A product of all rows, with so many channels, behind the last operation.
void append_layer(Graph& graph, int64_t channels, bool biased) {
  const TensorId last = graph.operations.empty() ? graph.inputs[0] : graph.outputs[0];
  const auto i = static_cast<int64_t>(graph.operations.size());
  Tensor tensor = graph.tensors[static_cast<size_t>(last)];
  const int64_t from = tensor.c;
  std::vector<int16_t> weights(static_cast<size_t>(from * channels));
  for (size_t w = 0; w < weights.size(); ++w) weights[w] = static_cast<int16_t>((w * 37 + i) % 255) - 127;
  Stage stage;
  stage.convert = true;
  for (int64_t c = 0; c < channels; ++c) {
    stage.multiplier.push_back(0.001f + 0.00001f * static_cast<float>(c + i));
    stage.bias.push_back(biased ? static_cast<int32_t>(100 * c - 3000) : 0);
  }
  stage.low = -128;
  stage.high = 127;
  Operation operation;
  operation.name = "layer" + std::to_string(i);
  tensor.c = channels;
  graph.outputs = {graph.add(tensor)};
  operation.what = make_matmul(last, graph.outputs[0], 3, from, channels, weights, {}, stage);
  graph.operations.push_back(std::move(operation));
}

/// The largest of all rows.
void append_maximum(Graph& graph) {
  Pool pool;
  pool.kind = Pool::Kind::kMax;
  pool.pad_value = -128;
  pool.stage.low = -128;
  pool.stage.high = 127;
  test::append_pool(graph, pool);
}

Graph graph_of(int64_t rows, int64_t channels) {
  Graph graph;
  Tensor tensor;
  tensor.c = channels;
  tensor.w = rows;
  graph.inputs = {graph.add(tensor)};
  return graph;
}

/// So many layers of one row and 64 channels; `biased` says which have biases.
template <typename Biased>
Graph layers_of(int64_t layers, Biased&& biased) {
  Graph graph = graph_of(1, 64);
  for (int64_t i = 0; i < layers; ++i) append_layer(graph, 64, biased(i));
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

/// How many entries of the last layer's parameters are fetched before the first layer has computed all its products.
int64_t early_params(const Program& program, const isa::MachineConfig& config) {
  const auto products = [&](size_t i) {
    return program.layer_of_instruction[i] == 0 && std::holds_alternative<isa::Gemm>(program.instructions[i]);
  };
  int64_t bytes = 0, counted = 0;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const auto* load = std::get_if<isa::Load>(&program.instructions[i]);
    if (load != nullptr && load->space == isa::Space::kParam && program.layer_of_instruction[i] > 0)
      bytes += std::accumulate(load->extent.begin(), load->extent.end(), int64_t{load->length}, std::multiplies<>());
    if (products(i)) counted = bytes;
  }
  return counted / config.param_entry_bytes();
}

/// A classifier's weights do not fit WGT, so that the bus has nothing to do while the layer before computes, and is
/// late afterwards. The classifier's parameters come meanwhile.
TEST(Params, ComeBeforeWeightsThatKeepTheBusBusy) {
  for (const char* name : {"npu64", "npu256"}) {
    for (const bool biased : {true, false}) {
      const isa::MachineConfig config = isa::find_config(name);
      Graph graph = graph_of(64, 384);
      append_layer(graph, 384, biased);
      append_maximum(graph);
      append_layer(graph, 1000, biased);
      Options options;
      options.schedules.resize(graph.operations.size());
      options.schedules[1] = schedule::ChainSchedule{{"pool", "layer2"}, {1, 1, 2}};
      Program program, plain;
      EXPECT_EQ(test::compare(graph, config, 1, options, &program), "");
      EXPECT_GT(early_params(program, config), 16) << name;
      options.prefetch_weights = false;
      EXPECT_EQ(test::compare(graph, config, 1, options, &plain), "");
      const auto bytes_of = [](const Program& p) {
        return p.layers.back().stream_bytes[static_cast<size_t>(Stream::kParams)];
      };
      EXPECT_EQ(bytes_of(program), bytes_of(plain)) << name;
      EXPECT_EQ(early_params(plain, config), 0) << name;
    }
  }
}

}  // namespace
}  // namespace tessera::npu
