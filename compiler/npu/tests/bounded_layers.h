// SPDX-License-Identifier: Apache-2.0
// For tests: bounds of tiles beside what schedules of random layers take by any judge.
#pragma once

#include <functional>
#include <string>

#include "compiler/npu/tests/random_graph.h"

namespace tessera::npu::test {

/// A convolution of one channel a group: windows of one pass to many, strides and dilations beyond the raster's.
Graph random_depthwise(Random& random);
/// A convolution of few channels, whose windows may be folded into packed pixels.
Graph random_first_layer(Random& random);

/// Machines of several shapes; `exact`: the judge is the timing model.
std::vector<isa::MachineConfig> bounded_machines(bool exact);

/// What broken(seed) says first that is not empty, with its seed, of `count` seeds from `first` on. TESSERA_NPU_TESTS
/// multiplies their number, as TESSERA_LONG does by `more`; TESSERA_NPU_SEED replaces the first one.
std::string broken_of(int count, int more, uint64_t first, const std::function<std::string(uint64_t)>& broken);

/// Measures `count` schedules of each single layer of a graph on machines of several shapes, each layer alone and run
/// once: the searcher's best, draws, orders of the tiles with the least bounds, and changes of the fastest. Returns the
/// first one that takes fewer cycles than the bound of its own tile, or, on the timing model, than that of its own
/// program; "" where there is none.
std::string broken_bound(const std::string& judge, uint64_t seed, int count, const std::function<Graph(Random&)>& make);

/// Closes tiles of each single layer of a graph (npu/exhaust.h) for a while, against goals that leave many programs
/// out, and measures `count` schedules of the closed tiles. Returns the first one that takes fewer cycles than what was
/// said of them; "" where there is none.
std::string broken_closing(const std::string& judge, uint64_t seed, int count,
                           const std::function<Graph(Random&)>& make);

}  // namespace tessera::npu::test
