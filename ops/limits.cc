// SPDX-License-Identifier: Apache-2.0
// The limit is asked from the system once; the account is one counter.
#include "ops/limits.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>

#include "base/error.h"

namespace tessera::ops {
namespace {

constexpr const char* kVariable = "TESSERA_MEMORY_LIMIT";
constexpr int64_t kUnknown = int64_t{1} << 40;

std::atomic<int64_t> held{0};

int64_t given_limit(const std::string& text) {
  size_t used = 0;
  int64_t value = 0;
  try {
    value = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  int shift = 0;
  if (used != 0 && used + 1 == text.size()) {
    const size_t unit = std::string("KMG").find(text[used]);
    if (unit != std::string::npos) shift = static_cast<int>(10 * (unit + 1)), ++used;
  }
  if (used == 0 || used != text.size() || value < 1 || value > kUnknown >> shift) {
    throw Error(
        ErrorCode::kInvalidArgument,
        std::string(kVariable) + " is a number of bytes up to 2^40, with K, M or G behind it, not '" + text + "'");
  }
  return value << shift;
}

int64_t system_limit() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  int64_t limit = pages > 0 && page > 0 ? pages * page : kUnknown;
  int64_t group = 0;
  if (std::ifstream("/sys/fs/cgroup/memory.max") >> group && group > 0) limit = std::min(limit, group);
  return limit;
}

}  // namespace

int64_t memory_limit_bytes() {
  static const int64_t limit = [] {
    const char* given = std::getenv(kVariable);
    return given != nullptr && *given != '\0' ? given_limit(given) : system_limit();
  }();
  return limit;
}

MemoryCharge::MemoryCharge(int64_t bytes) : bytes_(bytes) {
  const int64_t limit = memory_limit_bytes();
  if (held.fetch_add(bytes) <= limit - bytes) return;
  held.fetch_sub(bytes);
  throw Error(ErrorCode::kDoesNotFit, "tensors would hold more than " + std::to_string(limit) + " bytes of memory; " +
                                          kVariable + " sets the limit");
}

MemoryCharge::~MemoryCharge() { held.fetch_sub(bytes_); }

}  // namespace tessera::ops
