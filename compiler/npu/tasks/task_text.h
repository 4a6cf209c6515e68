// SPDX-License-Identifier: Apache-2.0
// Tasks as text and back: what an operation of a graph becomes before a schedule is chosen.
//
//   task "conv1" operation=0 input_zero=117
//   nests {
//     weights kernel=[3, 3] oc_per_group=64 ic_per_group=64 planes=[{}] values=#0
//     nest dense extent={...} ...
//     nest dense layout="fold(kw)" ...
//   }
//   constants { #0 = i16 "0x..." }
//
// The stage is the operation's and stands in the graph's text (graph_text.h). What is read is verified against it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/npu/tasks/task.h"

namespace tessera::npu {

/// `elide`: without the bytes of long constants; such text cannot be read back.
std::string to_text(const std::vector<Task>& tasks, const Graph& graph, bool elide = false);

/// The tasks point into `graph`, which outlives them. Errors: kInvalidArgument with source, line and column.
std::vector<Task> tasks_from_text(std::string_view text, const Graph& graph, const std::string& source = "text");

}  // namespace tessera::npu
