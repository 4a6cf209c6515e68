// SPDX-License-Identifier: Apache-2.0
// Scales of quantised operators that are no positive finite numbers: the NPU has no form for what they mean.
#pragma once

#include <string>

#include "mlir/IR/BuiltinOps.h"

namespace tessera::nn {

/// One clause that names the first node of an imported module with such a scale and says how many others have one;
/// empty where all constant scales are fit.
std::string unfit_scales(mlir::ModuleOp module);

}  // namespace tessera::nn
