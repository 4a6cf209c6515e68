// SPDX-License-Identifier: Apache-2.0
// From the scales of a QLinearSoftmax to the machine's numbers, by the formula of docs/numerics.md: exp by distance
// from the maximum, scaled so far up that the sum of a row fits binary32, and the same times floor(1 / output scale).
// They follow the row's length. Written apart from the operator library on purpose: the two are compared by the tests.
#pragma once

#include <array>
#include <cstdint>

#include "compiler/npu/graph/graph.h"

namespace tessera::npu {

struct SoftmaxNumbers {
  std::array<float, 256> exponentials{}, scaled{};
};

/// Of rows of `length` elements, finite. An output scale above 2^-30 is expected.
SoftmaxNumbers softmax_numbers(float input_scale, float output_scale, int64_t length);

/// The four byte planes of numbers.
Table byte_planes(const std::array<float, 256>& numbers);

/// The planes for each length from `shortest` to `longest`, one behind the other.
struct LengthTables {
  Table sums, maps;
};
LengthTables length_tables(const RowForm& form, int64_t longest);

}  // namespace tessera::npu
