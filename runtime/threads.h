// SPDX-License-Identifier: Apache-2.0
// The threads of compiled code: one pool for the process, however many sessions run. What is split are outputs, never
// sums, so results do not depend on the number of threads.
#pragma once

#include <cstdint>

namespace tessera::runtime {

/// Processors that this process may use.
int64_t host_threads();

/// While it lives, loops that the calling thread starts use at most `threads` threads, itself included; 0: one for each
/// processor.
class ThreadLimit {
 public:
  explicit ThreadLimit(int64_t threads);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;

 private:
  int64_t before_;
};

/// Items [begin, end) of a loop over buffers.
using LoopBody = void (*)(void** buffers, int64_t begin, int64_t end);

/// Calls `body` for disjoint ranges that cover [0, items), each of at least `grain` items but the last, on this thread
/// and others; returns when all are done. Compiled code calls it by the name tessera_parallel_for. `body` must not
/// throw.
void parallel_for(LoopBody body, void** buffers, int64_t items, int64_t grain);

}  // namespace tessera::runtime
