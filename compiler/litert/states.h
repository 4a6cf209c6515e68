// SPDX-License-Identifier: Apache-2.0
// How a model that keeps values from one run to the next shows them in ONNX, which has no variables. Each of them is an
// input and an output of the graph, behind all others. A further input says whether a run is the first one, in which
// the variables have their initial values whatever their inputs hold. A session hands outputs on to inputs.
#pragma once

#include <string>
#include <string_view>

namespace tessera::litert {

inline constexpr std::string_view kFirstRun = "litert.first_run";  // bool, of shape []
inline constexpr std::string_view kStateBefore = "litert.before.", kStateBehind = "litert.behind.";

inline bool is_state(std::string_view port) {
  return port == kFirstRun || port.starts_with(kStateBefore) || port.starts_with(kStateBehind);
}

}  // namespace tessera::litert
