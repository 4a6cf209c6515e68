// SPDX-License-Identifier: Apache-2.0
// Reductions over axes: of real numbers and integers as ONNX has them, of bytes where the kernel only compares.
#include <algorithm>
#include <numeric>

#include "compiler/litert/build.h"

namespace tessera::litert {
namespace {

using ops::DType;

/// The axes as int64, one vector of them in either form.
Value axes_of(Op& op) { return op.ints(normal_axes(op, 1, rank_of(op.input(0)))); }

Attributes kept(Op& op) { return {{"keepdims", int64_t{op.option(ReducerOptions::keep_dims)}}}; }

/// No axes: nothing is reduced, where ONNX would reduce all.
Value reduce(Op& op, const char* name, const Value& x) {
  Attributes attributes = kept(op);
  attributes["noop_with_empty_axes"] = int64_t{1};
  return op.node(name, {x, axes_of(op)}, attributes);
}

Conversion arithmetic(const char* name) {
  return [name](Op& op) {
    if (op.input(0).is_quantised()) op.refuse("this reduction is not supported on integers of a scale");
    const bool real = is_real(op.input(0));
    const Value y = reduce(op, name, real ? op.real(0) : op.value(0));
    real ? op.give_real(0, y) : op.give(0, y);
  };
}

/// Bytes of one quantisation are compared as they are.
Conversion extremum(const char* name) {
  return [name](Op& op) { op.give(0, reduce(op, name, op.value(0))); };
}

Conversion logical(const char* name) {
  return [name](Op& op) { op.give(0, op.cast(reduce(op, name, op.cast(op.value(0), DType::kInt32)), DType::kBool)); };
}

}  // namespace

void register_reduce(Conversions& conversions) {
  using B = BuiltinOperator;
  conversions.add(B::kSum, arithmetic("ReduceSum"));
  conversions.add(B::kReduceProd, arithmetic("ReduceProd"));
  conversions.add(B::kReduceMax, extremum("ReduceMax"));
  conversions.add(B::kReduceMin, extremum("ReduceMin"));
  conversions.add(B::kReduceAny, logical("ReduceMax"));
  conversions.add(B::kReduceAll, logical("ReduceMin"));
}

}  // namespace tessera::litert
