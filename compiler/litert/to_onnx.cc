// SPDX-License-Identifier: Apache-2.0
#include "compiler/litert/to_onnx.h"

namespace tessera::litert {
namespace {

constexpr int kIrVersion = 10;
constexpr int kOpset = 21;  // of the nodes that conversions make

void import_opset(onnx_proto::ModelProto& model, const char* domain, int version) {
  auto* opset = model.add_opset_import();
  opset->set_domain(domain);
  opset->set_version(version);
}

std::string describe(const Signature& signature, const Subgraph& graph) {
  std::string text;
  for (const auto& [name, tensor] : signature.inputs)
    text += (text.empty() ? "input " : " ") + name + "=" + graph.tensors[tensor].name;
  std::string outputs;
  for (const auto& [name, tensor] : signature.outputs)
    outputs += (outputs.empty() ? "output " : " ") + name + "=" + graph.tensors[tensor].name;
  return text + (text.empty() || outputs.empty() ? "" : "; ") + outputs;
}

}  // namespace

std::unique_ptr<onnx_proto::ModelProto> to_onnx(std::string_view bytes, Kernels kernels) {
  const Model model = read_model(std::as_bytes(std::span(bytes)));
  auto proto = std::make_unique<onnx_proto::ModelProto>();
  proto->set_ir_version(kIrVersion);
  proto->set_producer_name("litert");
  proto->set_doc_string(model.description);
  import_opset(*proto, "", kOpset);
  import_opset(*proto, kMicrosoft, 1);
  import_opset(*proto, kDomain, 1);
  for (const Signature& signature : model.signatures) {
    auto* entry = proto->add_metadata_props();
    entry->set_key("litert.signature." + signature.key);
    entry->set_value(describe(signature, model.subgraphs[signature.subgraph]));
  }
  proto->mutable_graph()->set_name(model.subgraphs.front().name);
  Graph(model, 0, kernels, *proto->mutable_graph(), "").convert();
  return proto;
}

}  // namespace tessera::litert
