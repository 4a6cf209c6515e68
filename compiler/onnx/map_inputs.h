// SPDX-License-Identifier: Apache-2.0
// Inputs that are maps. Enters: a graph. Leaves: the graph with two vectors in the place of each such input,
// `NAME.keys` and `NAME.values`, which the operators that take a map read (DictVectorizer and CastMap of ai.onnx.ml).
#pragma once

#include "compiler/onnx/model_file.h"

namespace tessera::onnx {

/// Errors: kUnsupported for a map whose values are no tensors, and for another reader of a map.
void split_map_inputs(onnx_proto::GraphProto& graph);

}  // namespace tessera::onnx
