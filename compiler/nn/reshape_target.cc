// SPDX-License-Identifier: Apache-2.0
// Extents that are copied or inferred are right at any length.
#include "compiler/nn/reshape_target.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace tessera::nn {

std::optional<std::vector<int64_t>> reshape_target(mlir::Operation* at, const ops::Shape& from, const ops::Shape& to) {
  const auto function = at->getParentOfType<mlir::func::FuncOp>();
  if (!function || !function->hasAttr(kPastGrowsAttr)) return to;
  std::vector<int64_t> target = to;
  bool inferred = false;
  for (size_t i = 0; i < to.size(); ++i) {
    if (i < from.size() && from[i] == to[i]) {
      target[i] = 0;
    } else if (to[i] != 1) {
      if (inferred) return std::nullopt;
      target[i] = -1;
      inferred = true;
    }
  }
  return target;
}

}  // namespace tessera::nn
