// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/self_contained.h"

#include "base/error.h"
#include "compiler/onnx/tensor_decode.h"

namespace tessera::onnx {

using onnx_proto::GraphProto;
using onnx_proto::NodeProto;
using onnx_proto::SparseTensorProto;
using onnx_proto::TensorProto;

namespace {

/// Goes through all tensors of a model.
class Embedding {
 public:
  explicit Embedding(const DataFolders& folders) : folders_(folders) {}

  /// Tensors that had external data.
  int count() const { return count_; }

  void graph(GraphProto& graph) {
    for (TensorProto& one : *graph.mutable_initializer()) tensor(one, "initializer '" + one.name() + "'");
    for (SparseTensorProto& one : *graph.mutable_sparse_initializer())
      sparse(one, "initializer '" + one.values().name() + "'");
    for (NodeProto& one : *graph.mutable_node()) node(one);
  }

  void node(NodeProto& node) {
    for (auto& attribute : *node.mutable_attribute()) {
      const std::string what = "node '" + node.name() + "', attribute '" + attribute.name() + "'";
      if (attribute.has_t()) tensor(*attribute.mutable_t(), what);
      if (attribute.has_sparse_tensor()) sparse(*attribute.mutable_sparse_tensor(), what);
      if (attribute.has_g()) graph(*attribute.mutable_g());
      for (TensorProto& one : *attribute.mutable_tensors()) tensor(one, what);
      for (SparseTensorProto& one : *attribute.mutable_sparse_tensors()) sparse(one, what);
      for (GraphProto& one : *attribute.mutable_graphs()) graph(one);
    }
  }

 private:
  void tensor(TensorProto& tensor, const std::string& what) { count_ += embed(tensor, folders_, what) ? 1 : 0; }

  void sparse(SparseTensorProto& tensor, const std::string& what) {
    if (tensor.has_values()) this->tensor(*tensor.mutable_values(), what + " (values)");
    if (tensor.has_indices()) this->tensor(*tensor.mutable_indices(), what + " (indices)");
  }

  const DataFolders& folders_;
  int count_ = 0;
};

}  // namespace

std::string self_contained(const ModelSource& source) {
  const std::string& path = source.path();
  ModelFile file = load_model(source);
  Embedding embedding(file.folders);
  try {
    embedding.graph(*file.proto->mutable_graph());
    for (auto& function : *file.proto->mutable_functions())
      for (NodeProto& node : *function.mutable_node()) embedding.node(node);
  } catch (const Error& error) {
    throw Error(error.code(), "'" + path + "': " + error.what());
  }
  if (embedding.count() == 0) return source.bytes();
  if (file.proto->ByteSizeLong() > static_cast<size_t>(INT32_MAX)) {
    throw Error(ErrorCode::kUnsupported, "'" + path + "' exceeds 2 GiB with its external data, the limit of protobuf");
  }
  return file.proto->SerializePartialAsString();
}

}  // namespace tessera::onnx
