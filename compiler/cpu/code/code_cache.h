// SPDX-License-Identifier: Apache-2.0
// Machine code kept on disk by the content that it was made from, so that a model compiles once on a machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "compiler/cpu/code/file_cache.h"
#include "isa/program/artifact.h"

namespace tessera::cpu {

/// A FileCache of machine code.
class CodeCache {
 public:
  /// Limits: as of FileCache.
  explicit CodeCache(std::filesystem::path folder, uint64_t most_bytes = uint64_t{256} << 20)
      : files_(std::move(folder), ".code", most_bytes) {}

  /// Object and bitcode; the other members are empty.
  std::optional<program::CpuModule> find(const std::string& key) const;
  void keep(const std::string& key, const program::CpuModule& module) const;

 private:
  FileCache files_;
};

}  // namespace tessera::cpu
