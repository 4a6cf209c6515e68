// SPDX-License-Identifier: Apache-2.0
// Compiled contexts, in the form that ONNX Runtime has for them: a node EPContext of the domain com.microsoft stands
// for a partition and holds its artifact, or the name of the file with it. A partition with dynamic dimensions is
// compiled for the shapes that come, so its node holds the model of the partition in the artifact's place. Source:
// https://onnxruntime.ai/docs/execution-providers/EP-Context-Design.html.
#pragma once

#include <string>

#include "tessera/onnxruntime_ep/graph_model.h"
#include "tessera/onnxruntime_ep/settings.h"

namespace tessera::ort {

/// Whether a node is a context that this provider has saved.
bool is_own_context(const GraphReader& graph, const NodeFacts& node);

/// The artifact, or the model, of a context. Errors: kIo, kInvalidModel for a path that leaves the model's folder.
std::string load_context(const GraphReader& graph, const NodeFacts& node, const Settings& settings);

/// The node for a partition; `content` is what load_context will give. Without embedding it is written to a file beside
/// the model of contexts, `number` of which there were before. Errors: kIo; kInvalidArgument when no folder is known.
Node* save_context(const Api& api, const GraphReader& graph, const Node* fused, const std::string& content,
                   const Settings& settings, size_t number);

}  // namespace tessera::ort
