// SPDX-License-Identifier: Apache-2.0
// What the harness knows of each arithmetic unit: its operands as 14 32-bit words, the value the host's
// floating-point unit gives for them (the oracle), generators of operands that reach the hard cases, and the cross
// product of special operands. The layout of the operands is that of alu_arithmetic_tb.sv.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::alu_arithmetic {

using Operands = std::array<uint32_t, 14>;

/// splitmix64: a small generator with a 64-bit state, the same numbers on every host.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t bits64() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  uint32_t bits() { return static_cast<uint32_t>(bits64() >> 32); }
  /// Uniform in [0, n).
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((uint64_t{bits()} * n) >> 32); }
  /// Uniform in [low, high].
  int32_t between(int32_t low, int32_t high) {
    return low + static_cast<int32_t>(below(static_cast<uint32_t>(high - low + 1)));
  }

 private:
  uint64_t state_;
};

struct Unit {
  std::string name;
  uint32_t select;     // unit_i of the test bench
  int register_count;  // cut points: bits of its Registers parameter
  int lane_words;      // leading operands that travel with the lane; the others must hold while values are under way
  bool is_float;       // the result is fp32
  uint32_t (*reference)(const Operands&);
  void (*random)(Random&, Operands&);
  void (*cross)(const std::function<void(const Operands&)>&);  // every combination of special operands
};

/// All units, in the order of unit_i.
const std::vector<Unit>& units();

/// Special binary32 operands: zeros, subnormals, borders of the format, powers of two, ties, NaNs, infinities; both
/// signs.
const std::vector<uint32_t>& special_floats();

}  // namespace tessera::alu_arithmetic
