// SPDX-License-Identifier: Apache-2.0
// For tests: random operations and small networks over the shapes that break tilings, from a seed.
#pragma once

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "compiler/npu/graph/graph.h"
#include "isa/config.h"

namespace tessera::npu::test {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return between(1, 100) <= percent; }
  template <typename T>
  T one_of(std::initializer_list<T> values) {
    return *(values.begin() + between(0, static_cast<int64_t>(values.size()) - 1));
  }
  std::mt19937_64& engine() { return engine_; }

 private:
  std::mt19937_64 engine_;
};

/// A requantisation of sums of about the given magnitude into a tensor, sometimes with tables; no second operation.
Stage random_stage(Random& random, const Tensor& output, double magnitude, bool per_channel);

/// Adds a second operation with a tensor of the output's shape or a broadcast one (a new graph input).
void add_second(Random& random, Graph& graph, Stage& stage, const Tensor& output);

Table random_table(Random& random);

/// A graph of one convolution: any kernel, stride, dilation, pads, groups, types, zero points and stage.
/// `most_channels` and `most_pixels` bound the shape.
Graph random_convolution(Random& random, int64_t most_channels, int64_t most_pixels);
Graph random_pool(Random& random, int64_t most_channels, int64_t most_pixels);
Graph random_elementwise(Random& random, int64_t most_channels, int64_t most_pixels);
/// A chain with residuals, a concatenation by views, pooling and a classifier.
/// Operations that read strided views of one tensor and write those of another, phase by phase.
Graph random_strided(Random& random, int64_t most_channels);
Graph random_network(Random& random);
/// A product of two inputs, either order of the second, any broadcast of the batch; both operands may be strided views.
Graph random_product(Random& random, int64_t most_channels);
Graph random_transposition(Random& random, int64_t most_channels);
/// What rows of `in` become, `out` being of the same shape; input and output unset.
/// `run_time_length`: a softmax has a length that is known when it runs.
Rows random_row_form(Random& random, const Tensor& in, const Tensor& out, bool run_time_length = false);
/// A softmax or a normalisation of rows of at most `most_channels` elements.
Graph random_rows(Random& random, int64_t most_channels);
/// Products among convolutions: projections, heads as strided views, two products (the second factor as it lies or
/// transposed), a projection back with a residual, twice. So run-time factors follow constant weights in WGT and the
/// other way round. `room`: keys and values are appended to what stays from run to run, behind a past of so many tokens
/// at most.
Graph random_attention(Random& random, int64_t most_tokens, std::optional<int64_t> room = {});

/// npu256 with another array and other scratchpads; sizes in entries.
isa::MachineConfig odd_machine(const std::string& name, int batch, int in, int out, int64_t inp, int64_t wgt,
                               int64_t acc, int64_t outs, int64_t params);

}  // namespace tessera::npu::test
