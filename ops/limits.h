// SPDX-License-Identifier: Apache-2.0
// The memory that a model may take (docs/security.md). Enters: the environment, the system. Leaves: a number of bytes,
// and an account of what tensors hold.
#pragma once

#include <cstdint>

namespace tessera::ops {

/// Bytes that the tensors of this process may hold together, and so the most that one may have:
/// TESSERA_MEMORY_LIMIT, a number with K, M, G or without; else the memory of this machine, or what the process's
/// control group has of it. Errors: kInvalidArgument for a limit that is no number.
int64_t memory_limit_bytes();

/// Stands in the account with its bytes for as long as it lives.
class MemoryCharge {
 public:
  /// Errors: kDoesNotFit when the limit would be passed; the message names it and the way out.
  explicit MemoryCharge(int64_t bytes);
  ~MemoryCharge();
  MemoryCharge(const MemoryCharge&) = delete;
  MemoryCharge& operator=(const MemoryCharge&) = delete;

 private:
  int64_t bytes_;
};

}  // namespace tessera::ops
