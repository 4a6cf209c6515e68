// SPDX-License-Identifier: Apache-2.0
// Protobuf parsing with limits on size and nesting, and external data confined to the model's folder.
#include "compiler/onnx/model_file.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "compiler/litert/to_onnx.h"

namespace tessera::onnx {
namespace fs = std::filesystem;

namespace {

/// Messages of a subgraph nest three deep (node, attribute, graph), so this allows some sixty nested subgraphs.
constexpr int kRecursionLimit = 200;

}  // namespace

ModelFile parse_model(std::string_view bytes, const std::string& directory, bool litert_reference) {
  if (bytes.empty()) throw Error(ErrorCode::kInvalidModel, "the model is empty");
  if (bytes.size() > static_cast<size_t>(INT32_MAX)) {
    throw Error(ErrorCode::kInvalidModel,
                "the model exceeds 2 GiB, the limit of protobuf; store its tensors as external data");
  }
  ModelFile file;
  if (litert::is_litert(bytes)) {
    file.proto = litert::to_onnx(bytes, litert_reference ? litert::Kernels::kReference : litert::Kernels::kXnnpack);
    return file;
  }
  file.folders.opened = directory;
  file.proto = std::make_unique<onnx_proto::ModelProto>();
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetTotalBytesLimit(INT32_MAX);
  stream.SetRecursionLimit(kRecursionLimit);
  bool parsed = file.proto->ParsePartialFromCodedStream(&stream) && stream.ConsumedEntireMessage();
  if (!parsed) {
    throw Error(ErrorCode::kInvalidModel,
                "not an ONNX model: the protobuf message is truncated, damaged, nested too deeply or of another kind");
  }
  if (!file.proto->has_graph())
    throw Error(ErrorCode::kInvalidModel, "not an ONNX model, or a truncated one: it has no graph");
  return file;
}

std::string metadata_of(std::string_view bytes, const std::string& key) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::ArrayInputStream array(bytes.data(),
                                               static_cast<int>(std::min<size_t>(bytes.size(), INT32_MAX)));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetTotalBytesLimit(INT32_MAX);
  const uint32_t entry_tag = WireFormatLite::MakeTag(onnx_proto::ModelProto::kMetadataPropsFieldNumber,
                                                     WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  while (const uint32_t tag = stream.ReadTag()) {
    std::string content;
    uint32_t size = 0;
    if (tag != entry_tag) {
      if (!WireFormatLite::SkipField(&stream, tag)) break;
    } else if (!stream.ReadVarint32(&size) || !stream.ReadString(&content, static_cast<int>(size))) {
      break;
    }
    onnx_proto::StringStringEntryProto entry;
    if (!content.empty() && entry.ParsePartialFromString(content) && entry.key() == key) return entry.value();
  }
  return "";
}

ModelFile load_model(const ModelSource& source, const std::string& directory, bool litert_reference) {
  const std::string& path = source.path();
  if (path.empty()) return parse_model(source.bytes(), directory, litert_reference);
  const std::string folder = fs::path(path).parent_path().string();
  try {
    ModelFile file = parse_model(source.bytes(), folder.empty() ? "." : folder, litert_reference);
    std::error_code code;
    const fs::path resolved = fs::canonical(path, code);
    if (!code) file.folders.resolved = resolved.parent_path().string();
    file.folders.stamps = source.stamps();
    return file;
  } catch (const Error& error) {
    throw Error(error.code(), "'" + path + "': " + error.what());
  }
}

std::optional<ExternalBytes> external_in_memory(const DataFolders& folders, const std::string& location, int64_t offset,
                                                int64_t length, const std::string& what) {
  if (!folders.memory) return std::nullopt;
  const auto found = folders.memory->find(location);
  if (found == folders.memory->end()) return std::nullopt;
  const auto size = static_cast<int64_t>(found->second.size);
  if (offset < 0 || offset > size || length > size - offset) {
    throw Error(ErrorCode::kInvalidModel, what + ": external data '" + location + "' has " + std::to_string(size) +
                                              " bytes in memory, too few for " + std::to_string(length) +
                                              " at offset " + std::to_string(offset));
  }
  const int64_t taken = length < 0 ? size - offset : length;
  return ExternalBytes{found->second.owner, found->second.data + offset, static_cast<size_t>(taken)};
}

std::vector<std::byte> read_external(const DataFolders& folders, const std::string& location, int64_t offset,
                                     int64_t length, const std::string& what) {
  auto fail = [&](const std::string& cause) {
    throw Error(ErrorCode::kInvalidModel, what + ": external data '" + location + "' " + cause);
  };
  if (folders.opened.empty()) fail("cannot be read because the model was given as bytes; load it from its file");
  if (location.empty() || location.find('\0') != std::string::npos) fail("is no file name");
  std::error_code code;
  const fs::path root = fs::canonical(folders.opened, code);
  if (code) fail("cannot be read: the model's folder does not exist");
  const auto inside = [](const fs::path& folder, const fs::path& file) {
    return std::mismatch(folder.begin(), folder.end(), file.begin(), file.end()).first == folder.end();
  };
  const fs::path written = (root / location).lexically_normal();
  if (!inside(root, written)) fail("leaves the model's folder; only files inside it are read");
  const fs::path file = fs::canonical(written, code);
  if (code) fail("does not exist");
  if (!inside(root, file) && (folders.resolved.empty() || !inside(folders.resolved, file)))
    fail("leaves the model's folder through a symbolic link; only files inside it are read");
  if (!fs::is_regular_file(file, code)) fail("is no regular file");
  int64_t size = static_cast<int64_t>(fs::file_size(file, code));
  if (code) fail("has no size");
  if (offset < 0 || offset > size)
    fail("has " + std::to_string(size) + " bytes, offset " + std::to_string(offset) + " lies outside");
  if (length < 0) length = size - offset;
  if (length > size - offset) {
    fail("has " + std::to_string(size) + " bytes, too few for " + std::to_string(length) + " at offset " +
         std::to_string(offset));
  }
  std::ifstream stream(file, std::ios::binary);
  std::vector<std::byte> bytes(static_cast<size_t>(length));
  stream.seekg(offset);
  if (!stream || (length > 0 && !stream.read(reinterpret_cast<char*>(bytes.data()), length))) fail("cannot be read");
  if (folders.stamps && !folders.stamps->is_same(file))
    fail("has changed since the model was opened; open the model again");
  return bytes;
}

}  // namespace tessera::onnx
