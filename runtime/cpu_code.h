// SPDX-License-Identifier: Apache-2.0
// Loads the compiled CPU code of an artifact. When this host is what the object was made for, the object is linked as
// it is; otherwise the bitcode is compiled for this host first.
#pragma once

#include <memory>
#include <string>

#include "isa/program/artifact.h"

namespace tessera::runtime {

class CpuCode {
 public:
  /// Errors: kInvalidArtifact when neither object nor bitcode can be used, naming the triple.
  explicit CpuCode(const program::CpuModule& module);
  ~CpuCode();
  CpuCode(const CpuCode&) = delete;
  CpuCode& operator=(const CpuCode&) = delete;

  using Function = void (*)(void** buffers);
  /// Errors: kInvalidArtifact when the module has no such function.
  Function find(const std::string& symbol) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::runtime
