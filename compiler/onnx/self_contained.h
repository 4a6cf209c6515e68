// SPDX-License-Identifier: Apache-2.0
// A model as one text of bytes, for those who have not its folder: workers, other hosts.
#pragma once

#include <set>
#include <string>

#include "compiler/onnx/model_source.h"

namespace tessera::onnx {

/// The bytes of an ONNX file with its external data inside. A file without any comes as it is. Errors: those of
/// load_model and of external data; kUnsupported where the whole exceeds 2 GiB, the limit of protobuf.
std::string self_contained(const ModelSource& source);

/// Where the model's external data lies, as its tensors name it. Nothing is read of it. Errors: those of load_model.
std::set<std::string> external_locations(const ModelSource& source);

}  // namespace tessera::onnx
