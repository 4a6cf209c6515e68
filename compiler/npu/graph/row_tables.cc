// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/graph/row_tables.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tessera::npu {

SoftmaxNumbers softmax_numbers(float input_scale, float output_scale, int64_t length) {
  const float steps = std::floor(1.0f / output_scale);
  const float room = std::log(std::numeric_limits<float>::max() / static_cast<float>(length));
  const double scale = input_scale, shift = std::max(0.0, static_cast<double>(room) - 5.0) / scale;
  SoftmaxNumbers numbers;
  for (size_t d = 0; d < numbers.exponentials.size(); ++d) {
    const double from_lowest = 255.0 - static_cast<double>(d);
    numbers.exponentials[d] = static_cast<float>(std::exp((from_lowest - 255.0 + shift) * scale));
  }
  // A power of two changes no quotient.
  if (!std::isfinite(numbers.exponentials[0] * steps))
    for (float& e : numbers.exponentials) e *= 0x1p-24f;
  for (size_t d = 0; d < numbers.scaled.size(); ++d) numbers.scaled[d] = numbers.exponentials[d] * steps;
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

LengthTables length_tables(const RowForm& form, int64_t longest) {
  LengthTables tables;
  for (int64_t length = form.shortest; length <= longest; ++length) {
    const SoftmaxNumbers numbers = softmax_numbers(form.input_scale, form.output_scale, length);
    const Table sums = byte_planes(numbers.exponentials), maps = byte_planes(numbers.scaled);
    tables.sums.insert(tables.sums.end(), sums.begin(), sums.end());
    tables.maps.insert(tables.maps.end(), maps.begin(), maps.end());
  }
  return tables;
}

}  // namespace tessera::npu
