// SPDX-License-Identifier: Apache-2.0
// Limits on what a model may ask for.
#pragma once

#include <cstdint>

namespace tessera::nn {

/// Bytes that one tensor may have at most: the memory of this machine.
int64_t memory_limit_bytes();

}  // namespace tessera::nn
