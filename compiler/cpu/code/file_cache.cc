// SPDX-License-Identifier: Apache-2.0
// A file is the BLAKE3 digest of the rest, and the rest. It is written under another name and renamed. A file's time is
// that of its last use.
#include "compiler/cpu/code/file_cache.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/BLAKE3.h"

namespace tessera::cpu {

namespace fs = std::filesystem;

namespace {

constexpr size_t kDigest = 32;
using Digest = std::array<uint8_t, kDigest>;

Digest digest(const char* data, size_t bytes) {
  return llvm::BLAKE3::hash<kDigest>(llvm::ArrayRef(reinterpret_cast<const uint8_t*>(data), bytes));
}

/// What stands behind the digest of a file; nothing where the file is none of ours.
std::optional<std::string> content_of(const fs::path& path, Digest& expected) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  const auto bytes = static_cast<std::streamoff>(in.tellg()) - static_cast<std::streamoff>(kDigest);
  if (!in || bytes < 0) return std::nullopt;
  in.seekg(0);
  in.read(reinterpret_cast<char*>(expected.data()), kDigest);
  std::string content(static_cast<size_t>(bytes), '\0');
  in.read(content.data(), bytes);
  return in ? std::optional(std::move(content)) : std::nullopt;
}

}  // namespace

FileCache::FileCache(fs::path folder, std::string extension, uint64_t most_bytes)
    : folder_(std::move(folder)), extension_(std::move(extension)), most_bytes_(most_bytes) {}

fs::path FileCache::default_folder() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/') return fs::path(cache) / "tessera";
  if (const char* home = std::getenv("HOME"); home && *home == '/') return fs::path(home) / ".cache" / "tessera";
  return {};
}

std::string FileCache::key(std::initializer_list<std::string_view> parts) {
  llvm::BLAKE3 hash;
  for (const std::string_view part : parts) {
    hash.update(llvm::StringRef(std::to_string(part.size()) + ":"));
    hash.update(llvm::StringRef(part.data(), part.size()));
  }
  return llvm::toHex(hash.final<kDigest>(), /*LowerCase=*/true);
}

bool FileCache::usable() const {
  struct stat about{};
  if (folder_.empty() || lstat(folder_.c_str(), &about) != 0) return false;
  return S_ISDIR(about.st_mode) && about.st_uid == geteuid() && (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

std::optional<std::string> FileCache::find(const std::string& key) const {
  if (!usable()) return std::nullopt;
  const fs::path path = folder_ / (key + extension_);
  Digest expected;
  std::optional<std::string> content = content_of(path, expected);
  if (!content || digest(content->data(), content->size()) != expected) return std::nullopt;
  std::error_code ignored;
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return content;
}

void FileCache::keep(const std::string& key, std::string_view content) const {
  if (folder_.empty()) return;
  std::error_code problem;
  fs::create_directories(folder_.parent_path(), problem);
  mkdir(folder_.c_str(), S_IRWXU);
  if (!usable()) return;
  const auto sum = digest(content.data(), content.size());
  static std::atomic<int> writers{0};
  const fs::path fresh = folder_ / (key + "." + std::to_string(getpid()) + "." + std::to_string(writers.fetch_add(1)));
  std::ofstream out(fresh, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(sum.data()), kDigest);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  out.close();
  if (out) fs::rename(fresh, folder_ / (key + extension_), problem);
  if (!out || problem) fs::remove(fresh, problem);
  make_room();
}

void FileCache::make_room() const {
  struct File {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<File> files;
  uint64_t bytes = 0;
  std::error_code problem;
  for (fs::directory_iterator it(folder_, problem), end; !problem && it != end; it.increment(problem)) {
    std::error_code gone;  // by another process
    const File file{it->last_write_time(gone), it->file_size(gone), it->path()};
    if (gone) continue;
    files.push_back(file);
    bytes += file.bytes;
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (bytes <= most_bytes_) return;
    fs::remove(file.path, problem);
    bytes -= file.bytes;
  }
}

}  // namespace tessera::cpu
