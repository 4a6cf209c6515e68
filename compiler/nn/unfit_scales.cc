// SPDX-License-Identifier: Apache-2.0
#include "compiler/nn/unfit_scales.h"

#include <cmath>
#include <cstdio>
#include <optional>

#include "compiler/nn/bridge.h"

namespace tessera::nn {
namespace {

/// Whether an operand is a scale. The float operands of the operators on integers are scales, all of them.
bool is_scale(NodeOp op, unsigned index) {
  const llvm::StringRef type = op.getOpType(), domain = op.getDomain();
  if (!domain.empty() && domain != kMicrosoftDomain) return false;
  if (type == "QuantizeLinear" || type == "DequantizeLinear") return index == 1;
  return type.starts_with("QLinear") || type == "QGemm";
}

/// The first element that is no positive finite number, of a constant of floats.
std::optional<double> unfit_element(mlir::Value value) {
  const auto scales = constant_value(value);
  if (!scales || !ops::is_floating(scales->dtype())) return std::nullopt;
  for (int64_t i = 0; i < scales->size(); ++i)
    if (const double scale = scales->at_double(i); !(scale > 0) || !std::isfinite(scale)) return scale;
  return std::nullopt;
}

std::optional<double> unfit_scale(NodeOp op) {
  for (unsigned i = 0; i < op.getInputs().size(); ++i)
    if (is_scale(op, i))
      if (const auto scale = unfit_element(op.getInputs()[i])) return scale;
  return std::nullopt;
}

}  // namespace

std::string unfit_scales(mlir::ModuleOp module) {
  std::string first;
  size_t others = 0;
  module.walk([&](NodeOp op) {
    const auto scale = unfit_scale(op);
    if (!scale) return;
    if (!first.empty()) return void(++others);
    char text[32];
    std::snprintf(text, sizeof text, "%g", *scale);
    first = "node '" + node_name(op.getOperation()) + "' (" + op.getOpType().str() + ") has a scale of " + text;
  });
  if (others > 0) first += ", and " + std::to_string(others) + (others == 1 ? " other is" : " others are") + " like it";
  return first;
}

}  // namespace tessera::nn
