// SPDX-License-Identifier: Apache-2.0
// Reductions over axes: which elements belong to one result, and the table of the operators that fold them, each with
// one set of expressions. ops/onnx/family_reduce.cc makes kernels of the table, compiler/cpu/expressions/reduce.cc
// compiled loops. An expression takes numbers of C++ or elements of a loop under construction; scalar.h has the words.
#pragma once

#include "ops/kernels/elementwise_kernel.h"
#include "ops/scalar.h"

namespace tessera::ops {

/// Which axes of a tensor are reduced.
struct ReducedAxes {
  std::vector<bool> reduced;  // for each axis

  /// Axes as given, from -rank on; without any, none or all of them.
  ReducedAxes(const Node& node, const std::vector<int64_t>& axes, size_t rank, bool all_without_any);
  /// The result's shape: reduced axes have extent 1, or are left out.
  Shape result(const Shape& shape, bool keep) const;
  /// How many elements of `shape` belong to one result.
  int64_t count(const Shape& shape) const;
  /// Strides of the results as the elements of `shape` are walked: 0 along reduced axes.
  std::vector<int64_t> strides(const Shape& shape) const;
  /// Whether the elements of one result stand side by side, in fours. Then ONNX Runtime sums fp32 in lanes of four.
  bool in_fours(const Shape& shape) const;
};

/// Walks elements `x` of `shape` in row-major order, with the accumulator of each: f(accumulator, element).
template <typename T, typename A, typename F>
void accumulate(const Shape& shape, const ReducedAxes& axes, const T* x, A* sums, F f) {
  const kernel::LoopNest<2> nest(shape, {kernel::row_strides(shape), axes.strides(shape)});
  const auto [si, so] = nest.inner();
  nest.for_each_row([&, si = si, so = so](const std::array<int64_t, 2>& at, int64_t count) {
    const T* element = x + at[0];
    A* sum = sums + at[1];
    if (so == 0) {
      A local = *sum;
      for (int64_t i = 0; i < count; ++i) f(local, element[i * si]);
      *sum = local;
    } else {
      for (int64_t i = 0; i < count; ++i) f(sum[i * so], element[i * si]);
    }
  });
}

/// Element types of what takes logarithms.
inline constexpr kernel::TypeSet kWideTypes =
    kernel::kFloats | kernel::set_of({DType::kInt32, DType::kInt64, DType::kUint32, DType::kUint64});

/// How a reduction accumulates.
struct Accumulation {
  bool wide = true;          // floats in float64, rounded once at the end; integers always in their own type
  bool in_lanes = false;     // fp32 as in_fours() says where it holds
  bool keeps_single = true;  // the reduction of one element is that element
};

/// Calls o.fold(name, opset, types, accumulation, start, step, finish) for each operator: start(like) is the first
/// accumulator, of the type of `like`; step(sum, x) the next one; finish(sum, count) the result of `count` elements.
/// Axes are an attribute, from `opset` on an input.
template <typename Operators>
void reductions(Operators& o) {
  using kernel::kBoolSet;
  using kernel::kNumeric;
  constexpr Accumulation kInLanes{.in_lanes = true}, kInOwnType{.wide = false}, kOfSingles{.keeps_single = false};
  const auto zero = [](auto like) { return like.same(0); };
  const auto add = [](auto sum, auto x) { return sum + x; };
  const auto add_square = [](auto sum, auto x) { return sum + x * x; };
  const auto itself = [](auto sum, int64_t) { return sum; };
  o.fold("ReduceSum", 13, kNumeric, kInLanes, zero, add, itself);
  o.fold("ReduceMean", 18, kNumeric, kInLanes, zero, add, [](auto sum, int64_t n) { return divided(sum, n); });
  o.fold(
      "ReduceMax", 18, kNumeric | kBoolSet, kInOwnType, [](auto like) { return lowest(like); },
      [](auto top, auto x) { return nan_max(top, x); }, itself);
  o.fold(
      "ReduceMin", 18, kNumeric | kBoolSet, kInOwnType, [](auto like) { return highest(like); },
      [](auto least, auto x) { return nan_min(least, x); }, itself);
  o.fold(
      "ReduceProd", 18, kNumeric, Accumulation{}, [](auto like) { return like.same(1); },
      [](auto product, auto x) { return product * x; }, itself);
  o.fold("ReduceL1", 18, kNumeric, kOfSingles, zero, [](auto sum, auto x) { return sum + magnitude(x); }, itself);
  o.fold("ReduceL2", 18, kNumeric, kOfSingles, zero, add_square, [](auto sum, int64_t) { return sqrt(as_real(sum)); });
  o.fold("ReduceLogSum", 18, kWideTypes, kOfSingles, zero, add, [](auto sum, int64_t) { return log(as_real(sum)); });
  o.fold("ReduceSumSquare", 18, kNumeric, kOfSingles, zero, add_square, itself);
}

}  // namespace tessera::ops
