// SPDX-License-Identifier: Apache-2.0
// The one exception class of the project and the macro for broken invariants. A bad model, file, argument or device
// throws Error; a broken invariant of the program itself aborts with a message in every build.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

enum class ErrorCode {
  kInvalidArgument,  // a wrong option, shape, type or name given by the caller
  kInvalidModel,     // an ONNX file that is broken or breaks the standard
  kUnsupported,      // a valid request that this version cannot serve
  kInvalidArtifact,  // a program container that is truncated, foreign or of another version
  kInvalidProgram,   // assembly or instructions that break a rule of the ISA
  kDoesNotFit,       // a minimal tile or a buffer exceeds the machine
  kDeviceFault,      // the machine stopped with a fault record
  kIo,               // a file cannot be read or written
  kInternal,         // a bug of Tessera that was caught before it did harm
};

/// The stable lower-case name of a code, e.g. "invalid_model".
std::string_view to_string(ErrorCode code);

class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

[[noreturn]] void invariant_failed(const char* condition, const char* file, int line, const std::string& message);

}  // namespace tessera

/// Aborts with file, line and message when `condition` does not hold, in all builds.
#define TESSERA_INVARIANT(condition, message)                                                 \
  do {                                                                                        \
    if (!(condition)) ::tessera::invariant_failed(#condition, __FILE__, __LINE__, (message)); \
  } while (false)
