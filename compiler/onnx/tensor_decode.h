// SPDX-License-Identifier: Apache-2.0
// TensorProto and SparseTensorProto in all their encodings to dense tensors: raw bytes, typed fields (narrow types in
// int32_data, 4-bit types packed two in a byte), strings, external data.
#pragma once

#include <string>

#include "compiler/onnx/model_file.h"
#include "ops/tensor.h"

namespace tessera::onnx {

/// The library's element type for a TensorProto.DataType; throws Error naming `what` for one it does not have.
ops::DType to_dtype(int32_t data_type, const std::string& what);

/// Decodes `tensor`; raw bytes are moved out of the message, not copied. `folders`: where external data may lie;
/// `what` names the tensor in errors. Errors: kInvalidModel when type, dimensions and content do not agree.
ops::Tensor decode_tensor(onnx_proto::TensorProto& tensor, const DataFolders& folders, const std::string& what);

/// Puts external data into the message; whether the tensor had any. Errors: as decode_tensor.
bool embed(onnx_proto::TensorProto& tensor, const DataFolders& folders, const std::string& what);

/// The dense form of a sparse tensor, zeros (or empty strings) elsewhere.
ops::Tensor decode_sparse_tensor(onnx_proto::SparseTensorProto& tensor, const DataFolders& folders,
                                 const std::string& what);

}  // namespace tessera::onnx
