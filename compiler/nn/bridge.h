// SPDX-License-Identifier: Apache-2.0
// Between the `nn` dialect and the operator library: types, tensors, nodes and names in both directions, and builders.
// Everything that the compiler knows about an operator it asks here, so that inference, folding, fusion and the
// interpreter share one meaning. Functions throw tessera::Error; code that runs under MLIR (passes, patterns, folders)
// must not let it escape: see guarded().
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "compiler/nn/nn_dialect.h"
#include "ops/operator.h"

namespace tessera::nn {

// --- types -------------------------------------------------------------------------------------------------
// Signed integers are signless (i8), unsigned ones ui8, bool is i1, strings !nn.string, float4e2m1 !nn.f4E2M1,
// float8e8m0 !nn.f8E8M0.

/// Throws Error kInvalidModel for kUndefined.
mlir::Type to_element_type(mlir::MLIRContext* context, ops::DType dtype);
/// kUndefined for a type that no tensor of ONNX has.
ops::DType to_dtype(mlir::Type element_type);
/// Element type of a tensor-typed value; kUndefined otherwise.
ops::DType dtype_of(mlir::Value value);
/// tensor<..>, tensor<*x..>, !nn.sequence<..>, !nn.optional<..>, or none for an absent operand.
mlir::Type to_type(mlir::MLIRContext* context, const ops::TypeInfo& info);
/// Inverse of to_type; `constant` is not set.
ops::TypeInfo to_type_info(mlir::Type type);
/// to_type_info(value.getType()) with `constant` set when the value is an nn.constant.
ops::TypeInfo to_type_info(mlir::Value value);
/// Dimensions of a ranked tensor value (-1 unknown); nullopt when unranked or no tensor.
std::optional<ops::Shape> shape_of(mlir::Value value);
/// True if ranked and every dimension is known.
bool is_static(mlir::Value value);

// --- tensors -----------------------------------------------------------------------------------------------

/// Up to this many bytes a constant is a DenseElementsAttr, beyond it a DenseResourceElementsAttr that shares
/// `tensor`'s storage.
inline constexpr int64_t kSmallConstantBytes = 256;
mlir::ElementsAttr to_attribute(mlir::MLIRContext* context, const ops::Tensor& tensor);
/// A resource's bytes are shared, not copied: the tensor must not outlive the MLIRContext (copy_of() makes it
/// independent).
ops::Tensor to_tensor(mlir::ElementsAttr attribute);
ops::Tensor copy_of(const ops::Tensor& tensor);
/// Content of a value defined by nn.constant.
std::optional<ops::Tensor> constant_value(mlir::Value value);
/// Content of a constant with exactly one element, converted.
std::optional<double> constant_scalar(mlir::Value value);
/// True for the result of nn.none.
bool is_none(mlir::Value value);

// --- nodes -------------------------------------------------------------------------------------------------

/// The library's view of an operation. `bodies` gives its subgraph attributes by name (see RegionSubgraph in
/// inference.h and interpreter.h); without it they are absent from the node.
using BodyMap = std::map<std::string, std::shared_ptr<const ops::Subgraph>>;
ops::Node to_node(NodeOp op, const BodyMap& bodies = {});
/// The same with the names of the attributes alone, for what asks no values: an ensemble of trees has millions.
ops::Node to_named_node(NodeOp op);
/// ONNX attributes to a dictionary and back; subgraphs are skipped.
mlir::DictionaryAttr to_dictionary(mlir::MLIRContext* context, const std::map<std::string, ops::Attribute>& attributes);
std::map<std::string, ops::Attribute> to_attributes(mlir::DictionaryAttr dictionary);

/// Operand i, or a null Value when it is absent (beyond the list or nn.none).
mlir::Value input_or_null(NodeOp op, unsigned index);
/// `value`'s defining nn.op if it is `op_type` of `domain`, else a null NodeOp.
NodeOp defining_op(mlir::Value value, llvm::StringRef op_type, llvm::StringRef domain = "");
/// The same for any nn.op.
NodeOp defining_op(mlir::Value value);

// --- builders ----------------------------------------------------------------------------------------------

/// An operation of the given result types. Null operands become nn.none; trailing ones are dropped.
NodeOp create_op(mlir::OpBuilder& builder, mlir::Location location, llvm::StringRef op_type, llvm::StringRef domain,
                 int version, mlir::ValueRange operands, const std::map<std::string, ops::Attribute>& attributes,
                 mlir::TypeRange result_types);
/// The same with result types inferred by the operator library. Throws Error when inference refuses.
NodeOp create_op(mlir::OpBuilder& builder, mlir::Location location, llvm::StringRef op_type, llvm::StringRef domain,
                 int version, mlir::ValueRange operands, const std::map<std::string, ops::Attribute>& attributes = {},
                 size_t result_count = 1);
mlir::Value create_constant(mlir::OpBuilder& builder, mlir::Location location, const ops::Tensor& tensor);
mlir::Value create_none(mlir::OpBuilder& builder, mlir::Location location);

// --- names -------------------------------------------------------------------------------------------------
// A location is NameLoc(node name, child: FusedLoc whose metadata lists the ONNX names of the outputs); passes that
// fuse nodes make a FusedLoc of those, the node that names the result first.

mlir::Location make_location(mlir::MLIRContext* context, llvm::StringRef node_name,
                             llvm::ArrayRef<std::string> output_names);
/// Location of an operation that replaces several: it takes node name and output names of `primary`, the others follow.
mlir::Location fuse_locations(mlir::Operation* primary, llvm::ArrayRef<mlir::Operation*> others);
/// Location of a new operation that does the work of node `node` and whose results are, value for value, those named
/// `results` (a null Value: a result that the model does not have); the names of `others` follow.
mlir::Location location_for(mlir::Operation* node, llvm::ArrayRef<mlir::Value> results,
                            llvm::ArrayRef<mlir::Operation*> others = {});
/// ONNX name of the node (the first one of a fused location); "" if unknown.
std::string node_name(mlir::Location location);
std::string node_name(mlir::Operation* op);
/// All node names in a location, primary first.
std::vector<std::string> node_names(mlir::Location location);
/// ONNX name of a value: an output of a node, a function argument or a block argument; "" if unknown.
std::string value_name(mlir::Value value);

// --- errors ------------------------------------------------------------------------------------------------

/// Runs `body`; a tessera::Error becomes an error diagnostic at `op` and failure.
template <typename Body>
mlir::LogicalResult guarded(mlir::Operation* op, Body&& body) {
  try {
    body();
    return mlir::success();
  } catch (const std::exception& error) {
    op->emitError(error.what());
    return mlir::failure();
  }
}

}  // namespace tessera::nn
