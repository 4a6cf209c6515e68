// SPDX-License-Identifier: Apache-2.0
// What was made once and is kept on disk by the content that it was made from: machine code of the CPU, and whole
// programs. Keys and bytes enter; the bytes leave, or nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::cpu {

/// Files in one folder. What is kept is executed later: so the folder must belong to this user, and nobody else may
/// write to it. Safe for several processes: a file appears whole or not at all, and one that is damaged is not used. A
/// folder that cannot be used is as if empty; nothing throws.
class FileCache {
 public:
  /// `extension`: of the files, with its dot. `most_bytes`: files that were not used for longest go first when the
  /// folder holds more, whatever their extension.
  FileCache(std::filesystem::path folder, std::string extension, uint64_t most_bytes = uint64_t{256} << 20);

  /// $XDG_CACHE_HOME/tessera, or ~/.cache/tessera; empty where neither variable is set.
  static std::filesystem::path default_folder();
  /// The key of an input: all parts in their order.
  static std::string key(std::initializer_list<std::string_view> parts);

  std::optional<std::string> find(const std::string& key) const;
  void keep(const std::string& key, std::string_view content) const;

 private:
  bool usable() const;
  void make_room() const;

  std::filesystem::path folder_;
  std::string extension_;
  uint64_t most_bytes_;
};

}  // namespace tessera::cpu
