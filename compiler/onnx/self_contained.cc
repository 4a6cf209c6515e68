// SPDX-License-Identifier: Apache-2.0
#include "compiler/onnx/self_contained.h"

#include <functional>
#include <utility>

#include "base/error.h"
#include "compiler/onnx/tensor_decode.h"

namespace tessera::onnx {

using onnx_proto::GraphProto;
using onnx_proto::ModelProto;
using onnx_proto::NodeProto;
using onnx_proto::SparseTensorProto;
using onnx_proto::TensorProto;

namespace {

using Visitor = std::function<void(TensorProto&, const std::string& what)>;

/// Goes through all tensors of a model.
class Tensors {
 public:
  explicit Tensors(Visitor visit) : visit_(std::move(visit)) {}

  void model(ModelProto& model) {
    graph(*model.mutable_graph());
    for (auto& function : *model.mutable_functions())
      for (NodeProto& one : *function.mutable_node()) node(one);
  }

 private:
  void graph(GraphProto& graph) {
    for (TensorProto& one : *graph.mutable_initializer()) visit_(one, "initializer '" + one.name() + "'");
    for (SparseTensorProto& one : *graph.mutable_sparse_initializer())
      sparse(one, "initializer '" + one.values().name() + "'");
    for (NodeProto& one : *graph.mutable_node()) node(one);
  }

  void node(NodeProto& node) {
    for (auto& attribute : *node.mutable_attribute()) {
      const std::string what = "node '" + node.name() + "', attribute '" + attribute.name() + "'";
      if (attribute.has_t()) visit_(*attribute.mutable_t(), what);
      if (attribute.has_sparse_tensor()) sparse(*attribute.mutable_sparse_tensor(), what);
      if (attribute.has_g()) graph(*attribute.mutable_g());
      for (TensorProto& one : *attribute.mutable_tensors()) visit_(one, what);
      for (SparseTensorProto& one : *attribute.mutable_sparse_tensors()) sparse(one, what);
      for (GraphProto& one : *attribute.mutable_graphs()) graph(one);
    }
  }

  void sparse(SparseTensorProto& tensor, const std::string& what) {
    if (tensor.has_values()) visit_(*tensor.mutable_values(), what + " (values)");
    if (tensor.has_indices()) visit_(*tensor.mutable_indices(), what + " (indices)");
  }

  Visitor visit_;
};

}  // namespace

std::string self_contained(const ModelSource& source) {
  const std::string& path = source.path();
  ModelFile file = load_model(source);
  int embedded = 0;
  try {
    Tensors([&](TensorProto& tensor, const std::string& what) {
      embedded += embed(tensor, file.folders, what) ? 1 : 0;
    }).model(*file.proto);
  } catch (const Error& error) {
    throw Error(error.code(), "'" + path + "': " + error.what());
  }
  if (embedded == 0) return source.bytes();
  if (file.proto->ByteSizeLong() > static_cast<size_t>(INT32_MAX)) {
    throw Error(ErrorCode::kUnsupported, "'" + path + "' exceeds 2 GiB with its external data, the limit of protobuf");
  }
  return file.proto->SerializePartialAsString();
}

std::set<std::string> external_locations(const ModelSource& source) {
  std::set<std::string> locations;
  Tensors([&](const TensorProto& tensor, const std::string&) {
    if (tensor.data_location() != TensorProto::EXTERNAL) return;
    for (const auto& entry : tensor.external_data())
      if (entry.key() == "location") locations.insert(entry.value());
  }).model(*load_model(source).proto);
  return locations;
}

}  // namespace tessera::onnx
