// SPDX-License-Identifier: Apache-2.0
// How each operation of a graph is run, as text and back: what stands between its nests (task_text.h) and its
// instructions.
//
//   npu.schedules @npu0 {
//     layer "conv1"
//     schedule dense {
//       ...
//     }
//     layer "dw2"
//     chain ["dw2", "pw2"] oh=14 ow=7 blocks=1
//   }
//
// A chain stands at its first operation. Layers come in the order of operations; those that are missing are the
// generator's to choose.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/npu/graph/graph.h"

namespace tessera::npu {

/// The schedules of a compiled graph.
std::string schedules_to_text(const Graph& graph, const Program& program);

/// Those of the graph in a text that holds them for one or several graphs, by operation. Errors: kInvalidArgument with
/// source, line and column.
std::vector<std::optional<schedule::LayerSchedule>> schedules_from_text(std::string_view text, const Graph& graph,
                                                                        const std::string& source = "text");

}  // namespace tessera::npu
