// SPDX-License-Identifier: Apache-2.0
// Inside nn-fold-qdq: what a Q and a DQ are, which operations read a value, and an editor of one block that its two
// halves share: preparation (qdq_folding_preparation.cc) brings Q and DQ to the operators, grouping (qdq_folding.cc)
// replaces the groups.
#pragma once

#include <map>
#include <optional>

#include "llvm/ADT/DenseSet.h"

#include "compiler/nn/passes/pass_util.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::nn::qdq {

using ops::DType;
using ops::Tensor;
using Attributes = std::map<std::string, ops::Attribute>;

// --- what Q and DQ are
// -----------------------------------------------------------------------------------------------------------

inline int64_t int_attribute(NodeOp op, llvm::StringRef name, int64_t fallback) {
  auto attribute = op.getOnnxAttributes().getAs<mlir::IntegerAttr>(name);
  return attribute ? attribute.getInt() : fallback;
}

/// QuantizeLinear or DequantizeLinear of either domain, not blocked.
inline bool is_quantisation(NodeOp op, llvm::StringRef name) {
  return op && op.getOpType() == name && (op.getDomain().empty() || op.getDomain() == kMicrosoftDomain) &&
         int_attribute(op, "block_size", 0) == 0;
}
inline bool is_q(NodeOp op) { return is_quantisation(op, "QuantizeLinear"); }
inline bool is_dq(NodeOp op) { return is_quantisation(op, "DequantizeLinear"); }

inline NodeOp dq_of(mlir::Value value) {
  if (!value) return {};
  NodeOp op = defining_op(value);
  return is_dq(op) ? op : NodeOp();
}

inline mlir::Value data_of(NodeOp op) { return op.getInputs()[0]; }
inline mlir::Value scale_of(NodeOp op) { return op.getInputs()[1]; }
inline mlir::Value zero_of(NodeOp op) { return input_or_null(op, 2); }
/// Element type on the quantised side.
inline DType quantised_type(NodeOp op) { return is_q(op) ? dtype_of(op->getResult(0)) : dtype_of(data_of(op)); }

/// One element, as a scalar or a vector.
inline bool is_scalar(mlir::Value value) {
  auto shape = shape_of(value);
  return shape && (shape->empty() || (shape->size() == 1 && shape->front() == 1));
}

inline bool has_scalar_scale(NodeOp op) { return is_scalar(scale_of(op)) && (!zero_of(op) || is_scalar(zero_of(op))); }

inline bool has_constant_scalars(NodeOp op) {
  return has_scalar_scale(op) && constant_value(scale_of(op)) && (!zero_of(op) || constant_value(zero_of(op)));
}

/// Zero point of a Q or DQ with constant scalars; 0 when it is absent.
inline int64_t zero_value(NodeOp op) {
  mlir::Value zero = zero_of(op);
  return zero ? constant_value(zero)->at_int64(0) : 0;
}
inline double scale_value(NodeOp op) { return constant_value(scale_of(op))->at_double(0); }

/// Both have constant scalar parameters, stated and equal.
inline bool same_parameters(NodeOp q, NodeOp dq) {
  if (!zero_of(q) || !zero_of(dq) || !has_constant_scalars(q) || !has_constant_scalars(dq)) return false;
  return dtype_of(scale_of(q)) == dtype_of(scale_of(dq)) && quantised_type(q) == quantised_type(dq) &&
         zero_value(q) == zero_value(dq) && scale_value(q) == scale_value(dq);
}

// --- edges
// -----------------------------------------------------------------------------------------------------------------------

/// True if the value leaves the graph (its block) as a result.
inline bool is_graph_output(mlir::Value value) {
  return llvm::any_of(value.getUsers(), [&](mlir::Operation* user) {
    return !llvm::isa<NodeOp>(user) && user->getBlock() == value.getParentBlock();
  });
}

/// Operands of operations (not of the terminator) that read the value.
inline llvm::SmallVector<mlir::OpOperand*> edges_of(mlir::Value value) {
  llvm::SmallVector<mlir::OpOperand*> edges;
  for (mlir::OpOperand& use : value.getUses())
    if (llvm::isa<NodeOp>(use.getOwner()) || use.getOwner()->getBlock() != value.getParentBlock())
      edges.push_back(&use);
  return edges;
}

/// The one operation that reads the value, which is no graph output; null otherwise or when it reads it in a body.
inline mlir::OpOperand* single_edge(mlir::Value value) {
  auto edges = edges_of(value);
  if (edges.size() != 1 || is_graph_output(value) || edges[0]->getOwner()->getBlock() != value.getParentBlock())
    return nullptr;
  return edges[0];
}

// --- an editor of one block
// ------------------------------------------------------------------------------------------------------

class BlockEditor {
 public:
  explicit BlockEditor(mlir::Block& block) : block_(block), rewriter_(block.getParent()->getContext()) {}

 protected:
  /// Calls f for the operations that stand in the block now; those that f erases must be reported through erase().
  bool for_each_op(llvm::function_ref<bool(NodeOp)> f) {
    bool changed = false;
    std::vector<NodeOp> list;
    for (NodeOp op : block_.getOps<NodeOp>()) list.push_back(op);
    erased_.clear();
    for (NodeOp op : list)
      if (!erased_.count(op)) changed |= f(op);
    return changed;
  }

  void erase(NodeOp op) {
    erased_.insert(op);
    op->erase();
  }

  void erase_if_dead(NodeOp op) {
    if (op && !erased_.count(op) && op->use_empty()) erase(op);
  }

  void remove_dead() {
    std::vector<NodeOp> list;
    for (NodeOp op : block_.getOps<NodeOp>()) list.push_back(op);
    for (NodeOp op : llvm::reverse(list))
      if (op->use_empty() && (is_q(op) || is_dq(op))) op->erase();
  }

  NodeOp create(mlir::Location location, llvm::StringRef op_type, llvm::StringRef domain, int64_t version,
                mlir::ValueRange operands, const Attributes& attributes, mlir::TypeRange results) {
    return create_op(rewriter_, location, op_type, domain, static_cast<int>(version), operands, attributes, results);
  }

  mlir::Value constant(mlir::Operation* near, const Tensor& tensor) {
    return create_constant(rewriter_, near->getLoc(), tensor);
  }

  mlir::Block& block_;
  mlir::IRRewriter rewriter_;

 private:
  llvm::DenseSet<mlir::Operation*> erased_;
};

/// ONNX Runtime does not run the network of this block: groups need not be its own.
inline bool has_free_groups(mlir::Block& block) { return block.getParentOp()->hasAttr(kFreeGroupsAttr); }

/// Everything before grouping: identities and equal operations, DQ for each reader, Q and DQ moved through operators
/// that only move elements, constants transposed and quantised, redundant activations removed.
void prepare(mlir::Block& block);

}  // namespace tessera::nn::qdq
