// SPDX-License-Identifier: Apache-2.0
// External tensor data that lies in memory in place of a file: a caller that has the weights already hands over where
// they are, and they are not copied for the import.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>

namespace tessera::onnx {

struct ExternalBytes {
  std::shared_ptr<const void> owner;  // keeps them alive
  const std::byte* data = nullptr;
  size_t size = 0;
};

/// By location, as the model names it.
using ExternalData = std::map<std::string, ExternalBytes>;

}  // namespace tessera::onnx
