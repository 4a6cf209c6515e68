// SPDX-License-Identifier: Apache-2.0
// What one value may be that comes from several places (branches of If, iterations of Loop, elements of a sequence):
// the least type that covers both. Dimensions that differ become unknown, ranks that differ leave the type without a
// rank, contents are dropped.
#pragma once

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

/// The type that covers both. Throws Error kInvalidModel through node.fail() when element types or kinds contradict;
/// `what` names the value.
inline TypeInfo cover_types(const Node& node, const TypeInfo& a, const TypeInfo& b, const std::string& what) {
  using Kind = TypeInfo::Kind;
  if (!a.present || !b.present) {  // a value here, nothing there: an optional
    if (!a.present && !b.present) return TypeInfo::absent();
    TypeInfo some = kernel::without_constant(a.present ? a : b);
    if (some.kind == Kind::kTensor) some.kind = Kind::kOptional;
    return some;
  }
  TypeInfo out;
  if ((a.kind == Kind::kSequence || b.kind == Kind::kSequence) && a.kind != b.kind)
    node.fail(ErrorCode::kInvalidModel, what + " is a sequence in one place and a tensor or optional in another");
  out.kind = a.kind == b.kind ? a.kind : Kind::kOptional;
  if (a.dtype != b.dtype && a.dtype != DType::kUndefined && b.dtype != DType::kUndefined)
    node.fail(ErrorCode::kInvalidModel, what + " has element type " + std::string(to_string(a.dtype)) +
                                            " in one place and " + std::string(to_string(b.dtype)) + " in another");
  out.dtype = a.dtype == DType::kUndefined ? b.dtype : a.dtype;
  out.ranked = a.ranked && b.ranked && a.shape.size() == b.shape.size();
  if (!out.ranked) return out;
  out.shape = a.shape;
  for (size_t d = 0; d < out.shape.size(); ++d)
    if (a.shape[d] != b.shape[d]) out.shape[d] = -1;
  return out;
}

/// Same kind, element type, rank and dimensions; contents are not compared.
inline bool same_type(const TypeInfo& a, const TypeInfo& b) {
  return a.present == b.present && a.kind == b.kind && a.dtype == b.dtype && a.ranked == b.ranked && a.shape == b.shape;
}

}  // namespace tessera::ops
