// SPDX-License-Identifier: Apache-2.0
// Machine code kept on disk by the content that it was made from, so that a model compiles once on a machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "isa/program/artifact.h"

namespace tessera::cpu {

/// Files in one folder. What is kept is executed later: so the folder must belong to this user, and nobody else may
/// write to it. Safe for several processes: a file appears whole or not at all, and one that is damaged is not used. A
/// folder that cannot be used is as if empty; nothing throws.
class CodeCache {
 public:
  /// `most_bytes`: files that were not used for longest go first when the folder holds more.
  explicit CodeCache(std::filesystem::path folder, uint64_t most_bytes = uint64_t{256} << 20);

  /// $XDG_CACHE_HOME/tessera, or ~/.cache/tessera; empty where neither variable is set.
  static std::filesystem::path default_folder();
  /// The key of an input: all parts in their order.
  static std::string key(std::initializer_list<std::string_view> parts);

  /// Object and bitcode; the other members are empty.
  std::optional<program::CpuModule> find(const std::string& key) const;
  void keep(const std::string& key, const program::CpuModule& module) const;

 private:
  bool usable() const;
  void make_room() const;

  std::filesystem::path folder_;
  uint64_t most_bytes_;
};

}  // namespace tessera::cpu
