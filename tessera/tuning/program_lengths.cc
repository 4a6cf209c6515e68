// SPDX-License-Identifier: Apache-2.0
// Lengths double, and each doubling has the same number of steps.
#include "tessera/tuning/program_lengths.h"

#include <algorithm>

namespace tessera {

int64_t program_length(int64_t needed, int64_t longest, int64_t each_doubling) {
  int64_t power = kShortestProgram;
  while (power < needed && power < longest) power *= 2;
  if (power == kShortestProgram) return std::min(power, longest);
  const int64_t half = power / 2, step = (half + each_doubling - 1) / each_doubling;
  return std::min({half + (needed - half + step - 1) / step * step, power, longest});
}

}  // namespace tessera
