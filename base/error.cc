// SPDX-License-Identifier: Apache-2.0
// Names of error codes and the abort path of TESSERA_INVARIANT.
#include "base/error.h"

#include <cstdio>
#include <cstdlib>

namespace tessera {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kInvalidModel: return "invalid_model";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kInvalidArtifact: return "invalid_artifact";
    case ErrorCode::kInvalidProgram: return "invalid_program";
    case ErrorCode::kDoesNotFit: return "does_not_fit";
    case ErrorCode::kDeviceFault: return "device_fault";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

void invariant_failed(const char* condition, const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "tessera: broken invariant at %s:%d: %s (%s)\n", file, line, message.c_str(), condition);
  std::abort();
}

}  // namespace tessera
