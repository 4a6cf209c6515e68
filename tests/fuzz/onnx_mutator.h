// SPDX-License-Identifier: Apache-2.0
// Changes an ONNX model as a graph. Enters: a model and a source of draws. Leaves: the model with one thing about it
// changed: a node's operator, operands, attributes; a constant's type, extents or content; an input's type; a node more
// or less; a value made an output. Half of the changes keep the graph well formed, so that they reach the compiler.
#pragma once

#include "compiler/onnx_schema/tessera_onnx.pb.h"
#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {

void mutate(Random& random, onnx_proto::ModelProto& model);

}  // namespace tessera::fuzz
