// SPDX-License-Identifier: Apache-2.0
// Registration, verification, effects and folding of the `nn` dialect. What an operator accepts is asked from the
// operator library.
#include "compiler/nn/nn_dialect.h"

#include "llvm/ADT/TypeSwitch.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/DialectResourceBlobManager.h"

#include "compiler/nn/bridge.h"

#include "compiler/nn/nn_dialect.cc.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/nn/nn_dialect_types.cc.inc"
#define GET_OP_CLASSES
#include "compiler/nn/nn_dialect_ops.cc.inc"

namespace tessera::nn {
namespace {

bool is_value_type(mlir::Type type) {
  if (llvm::isa<SequenceType, OptionalType, mlir::NoneType>(type)) return true;
  auto tensor = llvm::dyn_cast<mlir::TensorType>(type);
  return tensor && to_dtype(tensor.getElementType()) != ops::DType::kUndefined;
}

}  // namespace

void NNDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "compiler/nn/nn_dialect_types.cc.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "compiler/nn/nn_dialect_ops.cc.inc"
      >();
}

mlir::Operation* NNDialect::materializeConstant(mlir::OpBuilder& builder, mlir::Attribute value, mlir::Type type,
                                                mlir::Location location) {
  auto elements = llvm::dyn_cast<mlir::ElementsAttr>(value);
  if (!elements || elements.getShapedType() != type) return nullptr;
  return builder.create<ConstantOp>(location, type, elements);
}

mlir::OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValueAttr(); }

mlir::LogicalResult ConstantOp::verify() {
  mlir::ElementsAttr value = getValue();
  if (value.getShapedType() != getResult().getType()) return emitOpError("result type differs from that of the value");
  ops::DType dtype = to_dtype(value.getElementType());
  if (dtype == ops::DType::kUndefined) return emitOpError("element type is none of ONNX");
  if (auto resource = llvm::dyn_cast<mlir::DenseResourceElementsAttr>(value)) {
    mlir::AsmResourceBlob* blob = resource.getRawHandle().getBlob();
    if (!blob) return emitOpError("resource '") << resource.getRawHandle().getKey() << "' has no content";
    int64_t bytes = value.getNumElements() * ops::element_bytes(dtype);
    if (static_cast<int64_t>(blob->getData().size()) != bytes) {
      return emitOpError("resource holds ") << blob->getData().size() << " bytes where its type needs " << bytes;
    }
  }
  return mlir::success();
}

mlir::Region* NodeOp::body(llvm::StringRef name) {
  for (auto [key, region] : llvm::zip(getBodyNames(), getBodies())) {
    if (llvm::cast<mlir::StringAttr>(key).getValue() == name) return &region;
  }
  return nullptr;
}

bool NodeOp::is_deterministic() {
  auto known = [](NodeOp op) {
    const ops::OperatorDef* def =
        ops::registry().find(op.getDomain().str(), op.getOpType().str(), static_cast<int>(op.getVersion()));
    return def && def->deterministic;
  };
  if (!known(*this)) return false;
  for (mlir::Region& region : getBodies()) {
    auto walk = region.walk(
        [&](NodeOp inner) { return known(inner) ? mlir::WalkResult::advance() : mlir::WalkResult::interrupt(); });
    if (walk.wasInterrupted()) return false;
  }
  return true;
}

void NodeOp::getEffects(
    llvm::SmallVectorImpl<mlir::SideEffects::EffectInstance<mlir::MemoryEffects::Effect>>& effects) {
  // A random generator writes the state of its generator: it is neither merged with its like nor folded.
  if (!is_deterministic()) effects.emplace_back(mlir::MemoryEffects::Write::get());
}

mlir::LogicalResult NodeOp::verify() {
  for (mlir::Type type : getOperandTypes()) {
    if (!is_value_type(type)) return emitOpError("operand of type ") << type << ", which no ONNX value has";
  }
  for (mlir::Type type : getResultTypes()) {
    if (!is_value_type(type)) return emitOpError("result of type ") << type << ", which no ONNX value has";
  }
  if (getBodyNames().size() != getBodies().size()) return emitOpError("has as many body names as bodies");
  for (mlir::Region& region : getBodies()) {
    if (!region.hasOneBlock() || region.front().empty() || !llvm::isa<ReturnOp>(region.front().back())) {
      return emitOpError("a body is one block that ends in nn.return");
    }
  }
  return guarded(*this, [&] {
    const ops::Node node = to_named_node(*this);
    const ops::OperatorDef& def = ops::lookup(node, getNumOperands());
    int64_t count = getNumResults();
    if (count < def.min_outputs || (def.max_outputs >= 0 && count > def.max_outputs)) {
      node.fail(ErrorCode::kInvalidModel, "has " + std::to_string(count) + " outputs");
    }
  });
}

}  // namespace tessera::nn
