// SPDX-License-Identifier: Apache-2.0
#include "isa/program/whole_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"

namespace tessera::program {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const std::string& path, int cause) {
  throw Error(ErrorCode::kIo, "cannot write '" + path + "': " + std::strerror(cause));
}

/// Errno, or 0 when all of the content has been written.
int write_all(const fs::path& path, std::string_view content) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return errno;
  errno = 0;
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size();
  const int cause = errno;
  if (std::fclose(file) == 0 && written) return 0;
  return cause != 0 ? cause : errno != 0 ? errno : EIO;
}

}  // namespace

void write_whole(const std::string& path, std::string_view content) {
  std::error_code none;
  const fs::file_status there = fs::status(path, none);
  const fs::path target = fs::exists(there) ? fs::canonical(path, none) : fs::path(path);
  const fs::path beside = target.string() + "." + std::to_string(getpid()) + ".part";
  const bool plain = !fs::exists(there) || fs::is_regular_file(there);
  if (!plain || access(fs::absolute(beside, none).parent_path().c_str(), W_OK) != 0) {
    if (const int cause = write_all(path, content)) fail(path, cause);
    return;
  }
  int cause = write_all(beside, content);
  if (cause == 0 && fs::exists(there)) fs::permissions(beside, there.permissions(), none);
  if (cause == 0 && std::rename(beside.c_str(), target.c_str()) != 0) cause = errno;
  if (cause == 0) return;
  fs::remove(beside, none);
  fail(path, cause);
}

}  // namespace tessera::program
