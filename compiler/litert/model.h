// SPDX-License-Identifier: Apache-2.0
// A LiteRT file as plain structs. Enters: its bytes, which must outlive the result. Leaves: tensors, operators and
// signatures by subgraph, every index checked. Constant tensors keep lying in the file's bytes.
#pragma once

#include <string>
#include <vector>

#include "compiler/litert/table.h"
#include "ops/tensor.h"

namespace tessera::litert {

/// real = scale * (integer - zero point), for the whole tensor or for each index along one axis.
struct Quantisation {
  std::vector<float> scales;         // empty: the tensor is not quantised
  std::vector<int64_t> zero_points;  // as many as scales
  int32_t axis = 0;

  bool present() const { return !scales.empty(); }
  bool per_tensor() const { return scales.size() == 1; }
  /// Of the whole tensor, or the first. Errors: kInvalidModel where there is none, or no positive number.
  float scale() const;
  int64_t zero() const;
};

struct TensorInfo {
  std::string name;  // as in the file, made unique in its subgraph; never empty
  TensorType type = TensorType::kFloat32;
  ops::Shape shape;  // -1 where the file leaves a dimension open
  Quantisation quantisation;
  bool is_constant = false;
  bool is_variable = false;  // a state, zero when the model is loaded
  Bytes data;                // of a constant
  Table sparsity;            // of a constant that is stored sparse

  bool is_quantised() const { return quantisation.present() && type != TensorType::kFloat32; }
};

struct OperatorInfo {
  BuiltinOperator code = BuiltinOperator::kCustom;
  std::string name;  // of the operator: "CONV_2D", or what a custom operator calls itself
  int32_t version = 1;
  Table options;   // of the table that belongs to the operator, e.g. Conv2DOptions; perhaps absent
  Table options2;  // of StableHLO's operators
  Bytes custom_options;
  std::vector<int32_t> inputs, outputs;  // indices of tensors; -1 for an operand that is left out
  std::vector<int32_t> intermediates;    // quantisations inside of an LSTM
};

struct Subgraph {
  std::string name;
  std::vector<TensorInfo> tensors;
  std::vector<int32_t> inputs, outputs;
  std::vector<OperatorInfo> operators;
};

/// Names that the model's maker gave to the inputs and outputs of a subgraph.
struct Signature {
  std::string key;
  uint32_t subgraph = 0;
  std::vector<std::pair<std::string, uint32_t>> inputs, outputs;  // index of the tensor by name
};

struct Model {
  std::string description;
  std::vector<Subgraph> subgraphs;  // the first is the main one
  std::vector<Signature> signatures;
};

/// Whether the bytes carry the file identifier of LiteRT, TFL3.
bool is_litert(std::string_view bytes);

/// Errors: kInvalidModel where the file is damaged or not of version 3; kUnsupported for constants outside of the file.
Model read_model(Bytes file);

/// The operator library's type. Errors: kUnsupported, naming `what`, for resources and variants.
ops::DType to_dtype(TensorType type, const std::string& what);

/// A constant's content, dense; 4-bit integers one in a byte. Errors: kInvalidModel where its size is not the shape's.
ops::Tensor content_of(const TensorInfo& tensor);

}  // namespace tessera::litert
