// SPDX-License-Identifier: Apache-2.0
// Programs and constants that clients have sent, by their digest. Enters: bytes. Leaves: the same bytes for whoever
// names their digest. A folder of files that all workers of a server share; the oldest go when it is full. Whatever
// fails here only means that bytes are sent again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera::driver {

class ContentStore {
 public:
  /// Without a folder nothing is kept.
  ContentStore(std::filesystem::path folder, uint64_t limit_bytes);

  std::optional<std::vector<uint8_t>> find(const std::string& digest, uint64_t bytes) const;
  /// The caller has checked that `digest` is that of the bytes.
  void keep(const std::string& digest, std::span<const uint8_t> bytes);

 private:
  void make_room();
  std::filesystem::path folder_;
  uint64_t limit_bytes_;
};

}  // namespace tessera::driver
