// SPDX-License-Identifier: Apache-2.0
// Reading an ONNX or a LiteRT file into the protobuf message of ONNX, and the files of external tensor data that may
// stand beside it. A file that is no ONNX model, is truncated or nests too deeply gives one clear Error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "compiler/onnx/external_data.h"
#include "compiler/onnx/model_source.h"
#include "compiler/onnx_schema/tessera_onnx.pb.h"

namespace tessera::onnx {

/// Throws the Error kInvalidModel.
[[noreturn]] inline void fail(const std::string& message) { throw Error(ErrorCode::kInvalidModel, message); }

/// Where external data may lie: the folder in which the model was opened, and the folder of the file itself where a
/// symbolic link was opened (a cache of downloads links model and data to files elsewhere). "": none.
struct DataFolders {
  std::string opened, resolved;
  std::shared_ptr<const ExternalData> memory;  // data that is there already, by location; nullptr: none
  std::optional<FileStamps> stamps;            // of files that must stay what they were
};

struct ModelFile {
  std::unique_ptr<onnx_proto::ModelProto> proto;
  DataFolders folders;  // none when the model came from memory without one
};

/// `directory`: where the external data of a source without a path lies; "" refuses it. Errors: kInvalidModel if the
/// content is no ONNX model.
ModelFile load_model(const ModelSource& source, const std::string& directory = "", bool litert_reference = false);
/// The same for bytes that somebody else keeps.
ModelFile parse_model(std::string_view bytes, const std::string& directory, bool litert_reference = false);

/// An entry of the model's metadata; empty where there is none, and where the bytes are no ONNX model. The rest of the
/// model is skipped.
std::string metadata_of(std::string_view bytes, const std::string& key);

/// Reads `length` bytes (-1: to the end) at `offset` of a file. The location, relative to the folder in which the model
/// was opened, must lie inside it as it is written, and symbolic links resolved inside one of the folders. Errors:
/// kInvalidModel naming `what`.
std::vector<std::byte> read_external(const DataFolders& folders, const std::string& location, int64_t offset,
                                     int64_t length, const std::string& what);
/// The same of data in memory, which is shared; nothing where the location is not in memory. Errors: kInvalidModel.
std::optional<ExternalBytes> external_in_memory(const DataFolders& folders, const std::string& location, int64_t offset,
                                                int64_t length, const std::string& what);

}  // namespace tessera::onnx
