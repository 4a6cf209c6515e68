// SPDX-License-Identifier: Apache-2.0
// One pass without branches.
#include "compiler/npu/tasks/extremes.h"

#include <algorithm>

namespace tessera::npu {

Extremes extremes_of(std::span<const int16_t> values) {
  if (values.empty()) return {};
  int16_t low = values.front(), high = values.front();
  for (const int16_t value : values) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  return {low, high};
}

}  // namespace tessera::npu
