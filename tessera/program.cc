// SPDX-License-Identifier: Apache-2.0
// The program `tessera`.
#include <malloc.h>

#include "tessera/command/command.h"

int main(int argc, char** argv) {
  // A compilation makes and drops the same buffers thousands of times, on several threads. By itself the allocator
  // returns them to the system each time, and a tenth of the time goes into pages that come back.
  constexpr int kKept = 1 << 30, kMapped = 32 << 20;  // bytes; the second is the most that is allowed
  mallopt(M_MMAP_THRESHOLD, kMapped);
  mallopt(M_TRIM_THRESHOLD, kKept);
  mallopt(M_TOP_PAD, 16 << 20);
  return tessera::run_command_line(argc, argv);
}
