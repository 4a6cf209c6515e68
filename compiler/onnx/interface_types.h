// SPDX-License-Identifier: Apache-2.0
// Types at a model's interface. Enters: a graph and the shapes that the user gives for its inputs. Leaves: the sizes of
// symbolic dimensions, and the type of each input with them.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "compiler/onnx/import.h"
#include "compiler/onnx/model_file.h"
#include "ops/tensor.h"

namespace tessera::onnx {

/// Sizes of symbolic dimensions, by name.
using BoundDims = std::map<std::string, int64_t>;

/// The sizes that are given by name, and those that a given shape of an input implies. ONNX Runtime does not hold axes
/// of one name to one size, so a name for which shapes imply several sizes has none here, and each axis keeps the size
/// of its own shape. Errors: kInvalidArgument for a name that is neither input nor dimension, a rank or a size that
/// does not fit, and sizes that disagree.
BoundDims bind_dims(const onnx_proto::GraphProto& graph, const ImportOptions& options);

/// The type that a model declares; a dimension of which nothing says the size is -1. `what` names the value in errors.
/// Errors: kInvalidModel, kUnsupported.
ops::TypeInfo type_info(const onnx_proto::TypeProto& type, const BoundDims& bound, const std::string& what,
                        int depth = 0);

/// The type of an input with the shape that the user gives for it. Errors: as `type_info`, and kInvalidArgument for a
/// size other than a fixed one.
ops::TypeInfo input_type(const onnx_proto::ValueInfoProto& input, const BoundDims& bound, const ImportOptions& options);

}  // namespace tessera::onnx
