// SPDX-License-Identifier: Apache-2.0
// Machine code for runs of CPU operators. See partition::CpuCodegen for the interface and README.md for the way from
// nn.op to code.
#pragma once

#include <memory>

#include "compiler/partition/partition.h"
#include "mlir/IR/MLIRContext.h"

namespace tessera::cpu {

/// A code generator whose functions all end up in one module, for this host's processor. Loads the dialects it needs
/// into `context`, which must outlive it.
std::unique_ptr<partition::CpuCodegen> create_codegen(mlir::MLIRContext& context);

}  // namespace tessera::cpu
