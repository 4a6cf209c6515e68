// SPDX-License-Identifier: Apache-2.0
// Values of ExecuTorch as tensors of the C interface, and back. ExecuTorch's tensors may lie in any order of
// dimensions; those of the C interface are row-major.
#pragma once

#include <executorch/runtime/core/evalue.h>

#include <string>
#include <vector>

#include "tessera/tessera.h"

namespace tessera::executorch {

/// An operand with the memory that it needs beside that of the value.
struct Operand {
  tessera_tensor tensor{};
  std::vector<int64_t> shape;
  std::vector<char> copy;  // row-major elements, where the value's are not
};

/// A tensor, an integer (int64), a float (float64) or a truth value (bool). `message` says why when it fails.
bool to_operand(const ::executorch::runtime::EValue& value, Operand& operand, std::string& message);

/// Writes a result into the tensor or scalar that ExecuTorch has planned for it, which takes the shape of the result.
bool from_result(const tessera_tensor& result, ::executorch::runtime::EValue& value, std::string& message);

}  // namespace tessera::executorch
