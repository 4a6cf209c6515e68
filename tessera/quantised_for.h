// SPDX-License-Identifier: Apache-2.0
// What a quantised model was made for. `tessera quantize` writes the machine and the numerics into the metadata of the
// model, and what compiles the model takes them from there where nobody has given others.
#pragma once

#include <string>
#include <string_view>

#include "tessera/session.h"

namespace tessera {

/// Fills in options.config, where it is empty, and options.compile.numerics, where they are the model's: from an ONNX
/// model's bytes, else npu256 and exact. Leaves a sentence that says what was taken from the model; empty where that is
/// npu256 and exact.
std::string take_quantised_for(std::string_view onnx, SessionOptions& options);

}  // namespace tessera
