// SPDX-License-Identifier: Apache-2.0
// A model that was read once: who imports it a second time, for other shapes, has the same one, whatever has become of
// its file. Its external data stays where it is, and is read again only as long as it is the same.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

namespace tessera::onnx {

/// What files were when they were read first, by size, inode and time of the last change.
class FileStamps {
 public:
  FileStamps();
  /// Whether the file is what it was at the first call for it.
  bool is_same(const std::filesystem::path& file) const;

 private:
  struct Seen;
  std::shared_ptr<Seen> seen_;
};

class ModelSource {
 public:
  /// Reads the file. Errors: kIo.
  static ModelSource from_file(const std::string& path);
  static ModelSource from_bytes(std::string bytes);

  const std::string& bytes() const { return *bytes_; }
  /// Of the file; "" for bytes.
  const std::string& path() const { return path_; }
  /// Of external data; copies of a source share them.
  const FileStamps& stamps() const { return stamps_; }

 private:
  std::shared_ptr<const std::string> bytes_;
  std::string path_;
  FileStamps stamps_;
};

}  // namespace tessera::onnx
