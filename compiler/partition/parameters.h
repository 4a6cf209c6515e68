// SPDX-License-Identifier: Apache-2.0
// From scales and zero points to the constants of the machine's arithmetic, by the formulas of docs/numerics.md. Every
// fp32 operation is rounded once and in the order written there, because the constants are part of the result. Written
// apart from the operator library on purpose: the two are compared by the tests.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace tessera::partition {

/// QLinearConv and QLinearMatMul: m[c] = (sx * sw[c]) / sy.
inline std::vector<float> requantisation_multipliers(float sx, const std::vector<float>& sw, float sy) {
  std::vector<float> m;
  for (float s : sw) {
    const float product = sx * s;
    m.push_back(product / sy);
  }
  return m;
}

/// QGemm: m[i] = ((alpha * sa) * sb[i]) / sy.
inline std::vector<float> gemm_multipliers(float alpha, float sa, const std::vector<float>& sb, float sy) {
  return requantisation_multipliers(alpha * sa, sb, sy);
}

/// Average over `count` elements from an int32 sum: m = sx / (sy * float(count)).
inline float average_multiplier(float sx, float sy, int64_t count) {
  const float divisor = sy * static_cast<float>(count);
  return sx / divisor;
}

/// QLinearAdd: fma(x, rx, fma(y, ry, f)).
struct AddParameters {
  float rx, ry, f;
};
inline AddParameters add_parameters(float sx, int32_t zx, float sy, int32_t zy, float sc, int32_t zc) {
  AddParameters p{};
  p.rx = sx / sc;
  p.ry = sy / sc;
  const float zeros = std::fma(p.rx, static_cast<float>(zx), p.ry * static_cast<float>(zy));
  p.f = static_cast<float>(zc) - zeros;
  return p;
}

/// QLinearMul: float((x - zx) * (y - zy)) * m + zc, two roundings.
inline float mul_multiplier(float sa, float sb, float sc) {
  const float product = sa * sb;
  return product / sc;
}

}  // namespace tessera::partition
