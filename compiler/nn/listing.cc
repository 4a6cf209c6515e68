// SPDX-License-Identifier: Apache-2.0
// Values are numbered when they are first met.
#include "compiler/nn/listing.h"

#include <cstdio>
#include <type_traits>
#include <variant>

#include "compiler/nn/bridge.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tessera::nn {
namespace {

constexpr size_t kShownElements = 16;

std::string text_of(int64_t value) { return std::to_string(value); }
std::string text_of(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(value));
  return text;
}
std::string text_of(const std::string& value) { return value; }
std::string text_of(const ops::Tensor& value) {
  return std::string(ops::to_string(value.dtype())) + " " + ops::to_string(value.shape());
}
std::string text_of(const std::shared_ptr<const ops::Subgraph>&) { return "graph"; }
template <typename T>
std::string text_of(const std::vector<T>& values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size() && i < kShownElements; ++i) text += (i ? ", " : "") + text_of(values[i]);
  if (values.size() > kShownElements) text += ", and " + std::to_string(values.size() - kShownElements) + " more";
  return text + "]";
}

std::string text_of(const ops::TypeInfo& info) {
  switch (info.kind) {
    case ops::TypeInfo::Kind::kSequence: return "sequence of " + std::string(ops::to_string(info.dtype));
    case ops::TypeInfo::Kind::kOptional: return "optional " + std::string(ops::to_string(info.dtype));
    default: break;
  }
  return std::string(ops::to_string(info.dtype)) + " " + (info.ranked ? ops::to_string(info.shape) : "of any shape");
}

class Lister {
 public:
  Listing take(mlir::func::FuncOp func) {
    for (mlir::Value argument : func.getArguments()) out_.inputs.push_back(number(argument));
    for (unsigned i = 0; i < func.getNumArguments(); ++i)
      if (auto name = mlir::dyn_cast_or_null<mlir::StringAttr>(func.getArgAttr(i, kNameAttr)))
        out_.values[static_cast<size_t>(out_.inputs[i])].name = name.str();
    add(func.getBody().front(), -1);
    for (mlir::Value result : func.getBody().front().getTerminator()->getOperands())
      out_.outputs.push_back(number(result));
    return std::move(out_);
  }

 private:
  int64_t number(mlir::Value value) {
    if (!value || is_none(value)) return -1;
    const auto [found, fresh] = numbers_.try_emplace(value, static_cast<int64_t>(out_.values.size()));
    if (!fresh) return found->second;
    const ops::TypeInfo info = to_type_info(value.getType());
    ListedValue listed;
    listed.name = value_name(value);
    listed.type = text_of(info);
    listed.floating = info.kind == ops::TypeInfo::Kind::kTensor && ops::is_floating(info.dtype);
    listed.constant = value.getDefiningOp<ConstantOp>() != nullptr;
    out_.values.push_back(std::move(listed));
    return found->second;
  }

  void add(mlir::Block& block, int64_t parent) {
    for (NodeOp op : block.getOps<NodeOp>()) {
      const auto index = static_cast<int64_t>(out_.nodes.size());
      ListedNode node;
      node.name = node_name(op.getOperation());
      node.op_type = op.getOpType().str();
      node.domain = op.getDomain().str();
      node.parent = parent;
      for (mlir::Value value : op.getInputs()) node.inputs.push_back(number(value));
      for (mlir::Value value : op.getOutputs()) node.outputs.push_back(number(value));
      for (const auto& [name, attribute] : to_attributes(op.getOnnxAttributes()))
        node.attributes.emplace_back(name, std::visit([](const auto& value) { return text_of(value); }, attribute));
      out_.nodes.push_back(std::move(node));
      for (mlir::Region& body : op.getBodies()) add(body.front(), index);
    }
  }

  Listing out_;
  llvm::DenseMap<mlir::Value, int64_t> numbers_;
};

}  // namespace

Listing listing_of(mlir::func::FuncOp func) { return Lister().take(func); }

}  // namespace tessera::nn
