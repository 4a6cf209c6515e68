// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/row_tables.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::npu {

namespace {

/// Finite numbers with the results of those that are not: all smaller by a power of two, which changes no quotient, and
/// the infinite ones 0 or as large as makes the largest result.
void make_finite(SoftmaxNumbers& numbers, int32_t out_zero) {
  constexpr float kSmaller = 0x1p-24f, kLargest = 0x1p127f;
  for (float& e : numbers.exponentials) e *= kSmaller;
  for (float& a : numbers.scaled) a = std::isfinite(a) ? a * kSmaller : out_zero < 0 ? kLargest : 0;
}

}  // namespace

SoftmaxNumbers softmax_numbers(float input_scale, float output_scale, int32_t out_zero, int64_t length) {
  const float steps = std::floor(1.0f / output_scale);
  const float room = std::log(std::numeric_limits<float>::max() / static_cast<float>(length));
  const double scale = input_scale, shift = std::max(0.0, static_cast<double>(room) - 5.0) / scale;
  SoftmaxNumbers numbers;
  for (size_t d = 0; d < numbers.exponentials.size(); ++d) {
    const double from_lowest = 255.0 - static_cast<double>(d);
    numbers.exponentials[d] = static_cast<float>(std::exp((from_lowest - 255.0 + shift) * scale));
    numbers.scaled[d] = numbers.exponentials[d] * steps;
  }
  if (!std::isfinite(numbers.scaled[0])) make_finite(numbers, out_zero);
  return numbers;
}

Table byte_planes(const std::array<float, 256>& numbers) {
  Table planes(4 * numbers.size());
  for (size_t d = 0; d < numbers.size(); ++d) {
    const uint32_t bits = std::bit_cast<uint32_t>(numbers[d]);
    for (size_t p = 0; p < 4; ++p) planes[p * numbers.size() + d] = static_cast<uint8_t>(bits >> (8 * p));
  }
  return planes;
}

LengthTables length_tables(const RowForm& form, int32_t out_zero, int64_t longest) {
  LengthTables tables;
  for (int64_t length = form.shortest; length <= longest; ++length) {
    const SoftmaxNumbers numbers = softmax_numbers(form.input_scale, form.output_scale, out_zero, length);
    const Table sums = byte_planes(numbers.exponentials), maps = byte_planes(numbers.scaled);
    tables.sums.insert(tables.sums.end(), sums.begin(), sums.end());
    tables.maps.insert(tables.maps.end(), maps.begin(), maps.end());
  }
  return tables;
}

}  // namespace tessera::npu
