// SPDX-License-Identifier: Apache-2.0
// Nodes of an ONNX graph before they are operations: what errors call them, and an order in which producers precede
// consumers. A file may list its nodes in any order, and names are all that connects them.
#pragma once

#include <string>
#include <vector>

#include "compiler/onnx/model_file.h"

namespace tessera::onnx {

/// Nesting of subgraphs and functions; beyond it a model is refused before the stack is.
inline constexpr int kMaxDepth = 64;

/// An unnamed node is called after its first output.
std::string display_name(const onnx_proto::NodeProto& node);
/// "node 'name' (Op)".
std::string describe(const onnx_proto::NodeProto& node);

/// Indices of nodes such that producers precede consumers, as near to the file's order as possible. `where`: whose
/// nodes they are. Errors: kInvalidModel for cycles, values produced twice, and subgraphs nested too deeply.
std::vector<int> sort_nodes(const google::protobuf::RepeatedPtrField<onnx_proto::NodeProto>& nodes,
                            const std::string& where);

}  // namespace tessera::onnx
