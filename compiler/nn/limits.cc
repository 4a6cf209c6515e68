// SPDX-License-Identifier: Apache-2.0
// The memory of this machine, asked from the system once.
#include "compiler/nn/limits.h"

#include <unistd.h>

namespace tessera::nn {

int64_t memory_limit_bytes() {
  static const int64_t limit = [] {
    int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 ? pages * page : int64_t{1} << 40;
  }();
  return limit;
}

}  // namespace tessera::nn
