// SPDX-License-Identifier: Apache-2.0
// Folds a constant Pad of spatial dimensions into the pads of the operator that reads it, where the operator pads with
// the same value: Conv with 0, integer convolutions with the zero point, AveragePool that counts its padding with 0,
// MaxPool with the lowest value.
#include <limits>

#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

/// Pads of all dimensions ([begins, ends]) of a Pad in constant mode, none negative, none in the first two dimensions.
std::optional<std::vector<int64_t>> spatial_pads(NodeOp pad) {
  auto mode = pad.getOnnxAttributes().getAs<mlir::StringAttr>("mode");
  if (mode && mode.getValue() != "constant") return std::nullopt;
  auto shape = shape_of(pad->getOperand(0));
  auto given = constant_ints(pad, 1, "pads");
  if (!shape || !given) return std::nullopt;
  size_t rank = shape->size();
  std::vector<int64_t> pads(2 * rank, 0);
  if (mlir::Value axes_value = input_or_null(pad, 3)) {
    auto axes = constant_value(axes_value);
    if (!axes || given->size() != 2 * static_cast<size_t>(axes->size())) return std::nullopt;
    size_t count = static_cast<size_t>(axes->size());
    for (size_t i = 0; i < count; ++i) {
      int64_t axis = axes->at_int64(static_cast<int64_t>(i));
      size_t at = static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(rank) : axis);
      if (at >= rank) return std::nullopt;
      pads[at] = (*given)[i];
      pads[rank + at] = (*given)[count + i];
    }
  } else {
    if (given->size() != 2 * rank) return std::nullopt;
    pads = *given;
  }
  for (size_t i = 0; i < pads.size(); ++i) {
    if (pads[i] < 0 || (i % rank < 2 && pads[i] != 0)) return std::nullopt;
  }
  return pads;
}

std::optional<double> pad_value(NodeOp pad) {
  if (mlir::Value value = input_or_null(pad, 2)) return constant_scalar(value);
  if (auto value = pad.getOnnxAttributes().getAs<mlir::FloatAttr>("value")) return value.getValueAsDouble();
  return 0.0;
}

/// The value with which `op` pads its input 0; nothing if it is not known.
std::optional<double> own_pad_value(NodeOp op) {
  auto zero_point = [&](unsigned input) -> std::optional<double> {
    mlir::Value value = input_or_null(op, input);
    return value ? constant_scalar(value) : 0.0;
  };
  if (op.is("Conv")) return 0.0;
  if (op.is("QLinearConv")) return zero_point(2);
  if (op.is("ConvInteger")) return zero_point(2);
  if (op.is("AveragePool")) return 0.0;
  if (op.is("MaxPool")) {
    switch (dtype_of(op->getOperand(0))) {
      case ops::DType::kInt8: return -128.0;
      case ops::DType::kUint8: return 0.0;
      default: return -std::numeric_limits<double>::infinity();
    }
  }
  return std::nullopt;
}

bool fold_padding(NodeOp op, mlir::PatternRewriter& rewriter) {
  auto wanted = own_pad_value(op);
  if (!wanted) return false;
  NodeOp pad = defining_op(op->getOperand(0), "Pad");
  if (!pad || pad_value(pad) != wanted) return false;
  auto extra = spatial_pads(pad);
  if (!extra) return false;
  ops::Node node = to_node(op);
  std::string auto_pad = node.get_string("auto_pad", "NOTSET");
  if (auto_pad != "NOTSET" && auto_pad != "VALID") return false;
  size_t rank = extra->size() / 2, spatial = rank - 2;
  std::vector<int64_t> own = auto_pad == "VALID" ? std::vector<int64_t>() : node.get_ints("pads");
  bool unpadded = std::all_of(own.begin(), own.end(), [](int64_t p) { return p == 0; });
  own.resize(2 * spatial, 0);
  for (size_t i = 0; i < spatial; ++i) {
    own[i] += (*extra)[2 + i];
    own[spatial + i] += (*extra)[rank + 2 + i];
  }
  auto attributes = to_attributes(op.getOnnxAttributes());
  bool pool = op.is("AveragePool") || op.is("MaxPool");
  if (pool) {
    if (node.get_int("ceil_mode", 0) != 0) return false;
    std::vector<int64_t> kernel = node.get_ints("kernel_shape");
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i] >= kernel.at(i % spatial)) return false;  // a window of padding alone is not allowed
    }
    if (op.is("MaxPool") && op->getNumResults() > 1) return false;
  }
  if (op.is("AveragePool")) {
    if (!unpadded && node.get_int("count_include_pad", 0) == 0) return false;
    attributes["count_include_pad"] = int64_t{1};
  }
  attributes.erase("auto_pad");
  attributes["pads"] = own;
  rewriter.modifyOpInPlace(op, [&] {
    op->setOperand(0, pad->getOperand(0));
    op.setOnnxAttributesAttr(to_dictionary(op.getContext(), attributes));
  });
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_fold_padding_pass() {
  return make_function_pass("nn-fold-padding", "fold constant padding into convolutions and pools",
                            [](mlir::func::FuncOp func) { return apply_rewrites(func, {fold_padding}); });
}

}  // namespace tessera::nn
