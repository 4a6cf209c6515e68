// SPDX-License-Identifier: Apache-2.0
// Attributes of ONNX nodes: in the operator library's form, and as the value of a Constant.
#pragma once

#include <string>
#include <unordered_map>

#include "compiler/onnx/model_file.h"
#include "ops/operator.h"

namespace tessera::onnx {

using AttributeMap = std::unordered_map<std::string, const onnx_proto::AttributeProto*>;

/// An attribute's value; bytes of tensors are moved out of the message. `what` names it in errors. Errors:
/// kInvalidModel, kUnsupported for lists of tensors, graphs or types.
ops::Attribute convert_attribute(onnx_proto::AttributeProto& attribute, const DataFolders& folders,
                                 const std::string& what);

/// The tensor of a Constant. Errors: kInvalidModel where it is none.
ops::Tensor constant_value(onnx_proto::NodeProto& node, const DataFolders& folders, const std::string& what);

/// Attributes that refer to the enclosing function's are replaced by what its call gives, or dropped. `arguments`: what
/// the call gives; nullptr outside of a function. Errors: kInvalidModel, also for attributes without a name or with the
/// same one.
void resolve_references(onnx_proto::NodeProto& node, const AttributeMap* arguments, const std::string& what);

}  // namespace tessera::onnx
