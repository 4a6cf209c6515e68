// SPDX-License-Identifier: Apache-2.0
// Which kernel set a machine uses: asked of the processor at run time, or forced by the environment.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "sim/functional/engines/work.h"

namespace tessera::sim {

std::string_view to_string(Kernels kernels) {
  switch (kernels) {
    case Kernels::kPortable: return "portable";
    case Kernels::kAvx2: return "avx2";
    case Kernels::kAvx512: return "avx512";
  }
  return "?";
}

bool supported(Kernels kernels) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  switch (kernels) {
    case Kernels::kPortable: return true;
    case Kernels::kAvx2: return avx2;
    case Kernels::kAvx512:
      return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vnni");
  }
  return false;
#else
  return kernels == Kernels::kPortable;
#endif
}

namespace {
constexpr Kernels kFastestFirst[] = {Kernels::kAvx512, Kernels::kAvx2, Kernels::kPortable};
}

Kernels parse_kernels(std::string_view name) {
  for (const Kernels kernels : kFastestFirst) {
    if (to_string(kernels) != name) continue;
    if (supported(kernels)) return kernels;
    throw Error(ErrorCode::kInvalidArgument,
                "kernels " + std::string(name) + ": this processor lacks the instructions");
  }
  throw Error(ErrorCode::kInvalidArgument,
              "unknown kernels '" + std::string(name) + "'; known: portable, avx2, avx512");
}

Kernels default_kernels() {
  if (const char* forced = std::getenv("TESSERA_KERNELS"); forced != nullptr && *forced != '\0') {
    return parse_kernels(forced);
  }
  for (const Kernels kernels : kFastestFirst) {
    if (supported(kernels)) return kernels;
  }
  return Kernels::kPortable;
}

}  // namespace tessera::sim
