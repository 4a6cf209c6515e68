// SPDX-License-Identifier: Apache-2.0
// What a quantised model was made for. `tessera quantize` writes the machine and the numerics into the metadata of the
// model, and what compiles the model takes them from there where nobody has given others.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/session.h"

namespace tessera {

/// Fills in options.config, where it is empty, and options.compile.numerics, where they are the model's: from an ONNX
/// model's bytes, else npu256 and exact. Leaves a sentence that says what was taken from the model; empty where that is
/// npu256 and exact.
std::string take_quantised_for(std::string_view onnx, SessionOptions& options);

/// The shapes with which an ONNX model was quantised, of those inputs that have more dynamic dimensions than the batch.
/// Empty where the model does not say them, or where --shape has given a symbolic dimension (`import`); inputs whose
/// shapes are given there are left out.
std::map<std::string, ops::Shape> quantised_shapes(std::string_view onnx, const std::vector<Port>& inputs,
                                                   const compiler::ImportOptions& import);

}  // namespace tessera
