// SPDX-License-Identifier: Apache-2.0
// What kind of arithmetic an operator of the model does, as far as work and memory order depend on it. One table, by
// the operator's name.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "compiler/nn/bridge.h"

namespace tessera::partition {

enum class OperatorClass : uint8_t {
  kConvolution,            // [n, c, spatial..], weights [oc, ic / groups, kernel..]
  kTransposedConvolution,  // weights [ic, oc / groups, kernel..]
  kPool,                   // windows over [n, c, spatial..]
  kMatrixProduct,          // [.., rows, k] by [.., k, n]
  kRecurrentCell,          // [steps, batch, inputs], weights of the inputs and of the hidden state
  kOther,
};

OperatorClass operator_class(nn::NodeOp op);

/// Operators of ONNX by what the NPU does with them between DequantizeLinear and QuantizeLinear. Whether one runs there
/// depends on its shapes and parameters too.
struct OperatorNames {
  std::set<std::string> products;     // convolutions and matrix products
  std::set<std::string> elementwise;  // chains of them on one tensor become a table of 256 values
  std::set<std::string> movements;    // their results are elements of their input
};
const OperatorNames& operator_names();

/// Multiply-accumulates of an operation of the model (convolutions, matrix products, recurrent cells); 0 for others or
/// unknown shapes. Those of bodies aside.
int64_t model_macs(nn::NodeOp op);

/// How often the body of a Loop or Scan runs; 1 where that is not known, and for others.
int64_t trips_of(nn::NodeOp op);

}  // namespace tessera::partition
