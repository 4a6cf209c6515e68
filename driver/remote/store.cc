// SPDX-License-Identifier: Apache-2.0
// A file appears by being renamed, so that nobody sees half of one, and its time says when it was last used.
#include "driver/remote/store.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <tuple>
#include <utility>

namespace tessera::driver {
namespace {

namespace fs = std::filesystem;

std::string file_name(const std::string& digest) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string name;
  for (const char c : digest) {
    name += kDigits[static_cast<unsigned char>(c) >> 4];
    name += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return name;
}

}  // namespace

ContentStore::ContentStore(fs::path folder, uint64_t limit_bytes)
    : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

std::optional<std::vector<uint8_t>> ContentStore::find(const std::string& digest, uint64_t bytes) const {
  if (folder_.empty() || digest.empty()) return std::nullopt;
  std::error_code error;
  const fs::path path = folder_ / file_name(digest);
  if (fs::file_size(path, error) != bytes || error) return std::nullopt;
  std::vector<uint8_t> content(bytes);
  std::ifstream in(path, std::ios::binary);
  if (!in.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(bytes))) return std::nullopt;
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);
  return content;
}

void ContentStore::keep(const std::string& digest, std::span<const uint8_t> bytes) {
  if (folder_.empty() || digest.empty() || bytes.size() > limit_bytes_) return;
  const fs::path path = folder_ / file_name(digest);
  const fs::path beside = folder_ / (file_name(digest) + "." + std::to_string(::getpid()));
  std::ofstream out(beside, std::ios::binary | std::ios::trunc);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  out.close();
  std::error_code error;
  if (out)
    fs::rename(beside, path, error);
  else
    fs::remove(beside, error);
  make_room();
}

void ContentStore::make_room() {
  std::error_code error;
  std::vector<std::tuple<fs::file_time_type, uint64_t, fs::path>> files;
  uint64_t sum = 0;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;  // another worker makes room, too
    const uint64_t bytes = at->file_size(gone);
    const auto used = at->last_write_time(gone);
    if (gone) continue;
    files.emplace_back(used, bytes, at->path());
    sum += bytes;
  }
  std::sort(files.begin(), files.end());
  for (const auto& [used, bytes, path] : files) {
    if (sum <= limit_bytes_) return;
    fs::remove(path, error);
    sum -= bytes;
  }
}

}  // namespace tessera::driver
