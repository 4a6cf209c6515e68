// SPDX-License-Identifier: Apache-2.0
// QUANTIZE of floats and of quantised values, DEQUANTIZE.
#include "compiler/litert/conversions.h"

namespace tessera::litert {
namespace {

void convert_quantize(Op& op) { op.give_real(0, op.real(0)); }

void convert_dequantize(Op& op) { op.give_real(0, op.real(0)); }

}  // namespace

void register_quantise(Conversions& conversions) {
  conversions.add(BuiltinOperator::kQuantize, convert_quantize);
  conversions.add(BuiltinOperator::kDequantize, convert_dequantize);
}

}  // namespace tessera::litert
