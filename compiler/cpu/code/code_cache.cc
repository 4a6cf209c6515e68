// SPDX-License-Identifier: Apache-2.0
// A file is the bitcode's length, the bitcode and the object.
#include "compiler/cpu/code/code_cache.h"

#include <cstring>

namespace tessera::cpu {

std::optional<program::CpuModule> CodeCache::find(const std::string& key) const {
  const std::optional<std::string> content = files_.find(key);
  uint64_t bitcode = 0;
  if (!content || content->size() < sizeof bitcode) return std::nullopt;
  std::memcpy(&bitcode, content->data(), sizeof bitcode);
  if (bitcode > content->size() - sizeof bitcode) return std::nullopt;
  program::CpuModule module;
  const auto begin = content->begin() + sizeof bitcode, split = begin + static_cast<std::ptrdiff_t>(bitcode);
  module.bitcode.assign(begin, split);
  module.object.assign(split, content->end());
  return module;
}

void CodeCache::keep(const std::string& key, const program::CpuModule& module) const {
  const uint64_t bitcode = module.bitcode.size();
  std::string content(reinterpret_cast<const char*>(&bitcode), sizeof bitcode);
  content.append(module.bitcode.begin(), module.bitcode.end());
  content.append(module.object.begin(), module.object.end());
  files_.keep(key, content);
}

}  // namespace tessera::cpu
