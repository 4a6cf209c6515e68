// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/model_source.h"

#include <sys/stat.h>

#include <fstream>
#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"

namespace tessera::onnx {
namespace fs = std::filesystem;

namespace {

using Stamp = std::tuple<dev_t, ino_t, off_t, time_t, long>;

Stamp stamp_of(const fs::path& file) {
  struct stat found{};
  if (stat(file.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino, found.st_size, found.st_mtim.tv_sec, found.st_mtim.tv_nsec};
}

std::string read_file(const std::string& path) {
  std::error_code code;
  if (fs::is_directory(path, code)) throw Error(ErrorCode::kIo, "'" + path + "' is a directory; give an ONNX file");
  if (fs::exists(path, code) && !fs::is_regular_file(path, code))
    throw Error(ErrorCode::kIo,
                "'" + path + "' is a pipe or a device, and a model is read more than once; give a file");
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw Error(ErrorCode::kIo, "cannot read '" + path + "'; check that the file exists and is readable");
  std::streamoff size = file.tellg();
  if (size < 0) throw Error(ErrorCode::kIo, "cannot read '" + path + "': its size is unknown");
  std::string bytes(static_cast<size_t>(size), '\0');
  file.seekg(0);
  if (!file.read(bytes.data(), size)) throw Error(ErrorCode::kIo, "cannot read '" + path + "' to its end");
  return bytes;
}

}  // namespace

struct FileStamps::Seen {
  std::mutex mutex;
  std::map<fs::path, Stamp> stamps;
};

FileStamps::FileStamps() : seen_(std::make_shared<Seen>()) {}

bool FileStamps::is_same(const fs::path& file) const {
  const Stamp now = stamp_of(file);
  const std::lock_guard lock(seen_->mutex);
  return seen_->stamps.try_emplace(file, now).first->second == now;
}

ModelSource ModelSource::from_file(const std::string& path) {
  ModelSource source = from_bytes(read_file(path));
  source.path_ = path;
  return source;
}

ModelSource ModelSource::from_bytes(std::string bytes) {
  ModelSource source;
  source.bytes_ = std::make_shared<const std::string>(std::move(bytes));
  return source;
}

}  // namespace tessera::onnx
