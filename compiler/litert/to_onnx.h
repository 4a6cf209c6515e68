// SPDX-License-Identifier: Apache-2.0
// A LiteRT file (.tflite) as an ONNX model, which the importer then reads as any other.
#pragma once

#include <memory>
#include <string_view>

#include "compiler/litert/operator.h"

namespace tessera::litert {

/// Inputs, outputs and values have the names of the file's tensors; layouts are the file's (channels last). Signatures
/// stand in the model's metadata: "litert.signature.<key>" = "input NAME=TENSOR ...; output NAME=TENSOR ...".
/// Errors: kInvalidModel for a damaged file; kUnsupported for operators without a conversion, naming node and operator.
std::unique_ptr<onnx_proto::ModelProto> to_onnx(std::string_view bytes, Kernels kernels = Kernels::kXnnpack);

}  // namespace tessera::litert
