// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/tasks/packed_weights.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tessera::npu {

using schedule::Dim;
using schedule::Extents;

namespace {

constexpr int kMostScale = 16, kLeast = -8, kMost = 7;

}  // namespace

std::vector<int8_t> entry_of(const WeightSource& source, const schedule::Nest& nest, const Extents& at,
                             const isa::MachineConfig& config) {
  const int64_t in = config.block_in, out = config.block_out;
  std::vector<int8_t> entry(static_cast<size_t>(in * out));
  for (int64_t lane = 0; lane < out * in; ++lane)
    entry[static_cast<size_t>(lane)] =
        static_cast<int8_t>(weight_at(source, nest, at[Dim::kG], at[Dim::kOc] * out + lane / in,
                                      at[Dim::kIc] * in + lane % in, at[Dim::kKh], at[Dim::kKw]));
  return entry;
}

int row_scale(const int8_t* weights, int count) {
  int divisor = 0, low = 0, high = 0;
  for (int k = 0; k < count; ++k) {
    divisor = std::gcd(divisor, static_cast<int>(weights[k]));
    low = std::min<int>(low, weights[k]);
    high = std::max<int>(high, weights[k]);
  }
  if (divisor == 0) return 1;
  for (int scale = kMostScale; scale > 0; --scale) {
    if (divisor % scale == 0) return low >= kLeast * scale && high <= kMost * scale ? scale : 0;
  }
  return 0;
}

bool packs(const WeightSource& source, const schedule::Nest& nest, const isa::MachineConfig& config) {
  if (nest.computation != schedule::Computation::kDense || source.planes.size() != 1 || source.planes[0].zero != 0 ||
      source.planes[0].is_unsigned)
    return false;
  Extents at;
  const auto each = [&](Dim dim, auto&& body) {
    for (at[dim] = 0; at[dim] < nest.extent[dim]; ++at[dim]) {
      if (!body()) return false;
    }
    return true;
  };
  const auto rows_pack = [&] {
    const std::vector<int8_t> entry = entry_of(source, nest, at, config);
    for (size_t row = 0; row < entry.size(); row += static_cast<size_t>(config.block_in)) {
      if (row_scale(&entry[row], config.block_in) == 0) return false;
    }
    return true;
  };
  return each(Dim::kG, [&] {
    return each(Dim::kOc, [&] {
      return each(Dim::kIc,
                  [&] { return each(Dim::kKh, [&] { return each(Dim::kKw, [&] { return rows_pack(); }); }); });
    });
  });
}

void pack_entry(const std::vector<int8_t>& entry, const isa::MachineConfig& config, std::vector<uint8_t>& bytes) {
  const size_t in = static_cast<size_t>(config.block_in), rows = entry.size() / in, begin = bytes.size();
  bytes.resize(begin + static_cast<size_t>(config.packed_entry_bytes()));
  uint8_t* const header = &bytes[begin];
  uint8_t* const data = &bytes[bytes.size() - entry.size() / 2];
  for (size_t row = 0; row < rows; ++row) {
    const int scale = row_scale(&entry[row * in], config.block_in);
    TESSERA_INVARIANT(scale > 0, "a row of weights that is packed has a scale");
    header[row / 2] |= static_cast<uint8_t>((scale - 1) << (4 * (row % 2)));
    for (size_t k = row * in; k < (row + 1) * in; ++k)
      data[k / 2] |= static_cast<uint8_t>((entry[k] / scale & 15) << (4 * (k % 2)));
  }
}

}  // namespace tessera::npu
