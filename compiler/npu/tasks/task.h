// SPDX-License-Identifier: Apache-2.0
// An operation of the graph as loop nests that the lowering understands. A checked operation and the places of its
// tensors enter; Tasks leave: the nest in each layout it may be run in, and what the nest does not hold (stage,
// weights, zero points). All knowledge of operators ends here: groups become chunks of channels, pointwise operations
// one long row of pixels, enlargements one task for each phase, small-channel windows packed pixels.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "compiler/npu/graph/graph.h"
#include "compiler/schedule/nest.h"
#include "isa/config.h"

namespace tessera::npu {

/// Weights minus their zero points, and how nest coordinates find them.
struct WeightSource {
  std::vector<int16_t> value;  // [oc][ic_per_group][kh][kw], -255..255
  int64_t groups = 1, oc_per_group = 1, ic_per_group = 1, kernel_h = 1, kernel_w = 1;
  int64_t groups_per_chunk = 1;

  /// A plane is stored as bytes: value = byte - zero. The sum of the planes' values is the weight.
  struct Plane {
    bool is_unsigned = false;
    int32_t zero = 0;
    bool operator==(const Plane&) const = default;
  };
  std::vector<Plane> planes;
  /// The part of a weight that plane p holds.
  int32_t part(int32_t weight, size_t plane) const;
  bool operator==(const WeightSource&) const = default;
};

struct Task {
  size_t operation = 0;
  std::vector<schedule::Nest> alternatives;  // the same result in different input layouts; never empty
  const Stage* stage = nullptr;
  bool sum = false;               // of a reduce nest: sum instead of maximum
  const RowForm* rows = nullptr;  // of a nest of rows
  int32_t input_zero = 0;
  std::shared_ptr<const WeightSource> weights;
  int32_t factor_zero = 0;  // of a nest with a factor
  bool unit_input = false;  // the input is a unit matrix, from the constants
};

/// The weight at channel `o` and channel `i` of chunk `g` of a nest with the given layout; 0 outside the chunk.
int32_t weight_at(const WeightSource& source, const schedule::Nest& nest, int64_t g, int64_t o, int64_t i, int64_t kh,
                  int64_t kw);

/// The alternative with a layout; nothing when there is none. Which there are depends on the places of tensors.
const schedule::Nest* nest_of(const Task& task, const schedule::InputLayout& layout);

std::vector<Task> make_tasks(const Graph& graph, size_t operation, const std::vector<Placement>& placements,
                             const isa::MachineConfig& config, const Options& options);

}  // namespace tessera::npu
