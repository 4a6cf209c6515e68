// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/graph/second.h"

#include <algorithm>

namespace tessera::npu {

isa::IntegerRange first_stage_range(const Stage& stage, std::optional<isa::IntegerRange> bytes) {
  if (stage.table) return byte_range(stage.table_unsigned);
  isa::IntegerRange range{stage.low, stage.high};
  if (bytes && !stage.convert) {
    const auto bounded = [&](int64_t v) { return std::clamp<int64_t>(v, stage.low, stage.high); };
    range = {bounded(bytes->low), bounded(bytes->high)};
  }
  return {range.low + stage.out_zero, range.high + stage.out_zero};
}

std::optional<isa::SecondConstants> second_constants(const SecondOperation& second, isa::IntegerRange first,
                                                     isa::IntegerRange other) {
  using Kind = SecondOperation::Kind;
  const isa::SecondOp operation = second.kind == Kind::kAdd   ? isa::SecondOp::kAdd
                                  : second.kind == Kind::kMul ? isa::SecondOp::kMul
                                                              : isa::SecondOp::kMax;
  return isa::fixed_second({.operation = operation,
                            .rx = second.rx,
                            .ry = second.ry,
                            .f = second.f,
                            .zx = second.zx,
                            .zy = second.zy,
                            .low = second.low,
                            .high = second.high,
                            .zero = second.zero,
                            .fused = second.fused,
                            .minimum = second.minimum},
                           second.swap ? other : first, second.swap ? first : other);
}

}  // namespace tessera::npu
