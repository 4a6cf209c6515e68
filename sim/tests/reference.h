// SPDX-License-Identifier: Apache-2.0
// A second machine for tests: isa/semantics.md written down as plain loops over byte vectors, one element at a time,
// sharing no code with the simulator beyond the instruction structs, and none with isa/verify/effects.h: it is the
// oracle of both. It runs instructions in stream order and knows no synchronisation. An observer sees every byte it
// touches.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::sim::reference {

struct Memories {
  explicit Memories(const isa::MachineConfig& machine_config) : config(machine_config) {
    for (int s = 0; s < isa::kSpaces; ++s) {
      bytes[s].assign(static_cast<size_t>(config.space_bytes(static_cast<isa::Space>(s))), 0);
    }
  }
  std::vector<uint8_t>& operator[](isa::Space space) { return bytes[static_cast<int>(space)]; }

  uint8_t read(isa::Space space, int64_t at) {
    if (observe) observe({false, space, false, static_cast<uint64_t>(at)});
    return (*this)[space].at(static_cast<size_t>(at));
  }
  void write(isa::Space space, int64_t at, uint8_t value) {
    if (observe) observe({false, space, true, static_cast<uint64_t>(at)});
    (*this)[space].at(static_cast<size_t>(at)) = value;
  }
  uint8_t read_dram(int64_t at) {
    if (observe) observe({true, isa::Space::kInp, false, static_cast<uint64_t>(at)});
    return dram.at(static_cast<size_t>(at));
  }
  void write_dram(int64_t at, uint8_t value) {
    if (observe) observe({true, isa::Space::kInp, true, static_cast<uint64_t>(at)});
    dram.at(static_cast<size_t>(at)) = value;
  }

  /// One byte that is read or written. space: when not in DRAM; at: the scratchpad's byte, or the device address.
  struct Access {
    bool dram;
    isa::Space space;
    bool write;
    uint64_t at;
  };
  isa::MachineConfig config;
  std::vector<uint8_t> bytes[isa::kSpaces];
  std::vector<uint8_t> dram;  // device address 0 is dram[0]
  uint64_t bases[16] = {};
  uint64_t limit = UINT64_MAX;  // of rows that are limited
  std::function<void(const Access&)> observe;
};

inline int byte_value(uint8_t byte, bool is_unsigned) { return is_unsigned ? byte : (byte < 128 ? byte : byte - 256); }

inline int32_t read_i32(Memories& m, isa::Space space, int64_t at) {
  uint32_t value = 0;
  for (int n = 0; n < 4; ++n) value |= uint32_t{m.read(space, at + n)} << (8 * n);
  return static_cast<int32_t>(value);
}

inline float read_f32(Memories& m, isa::Space space, int64_t at) {
  const int32_t bits = read_i32(m, space, at);
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline void write_i32(Memories& m, isa::Space space, int64_t at, int32_t value) {
  for (int n = 0; n < 4; ++n) m.write(space, at + n, static_cast<uint8_t>(static_cast<uint32_t>(value) >> (8 * n)));
}

inline void run(const isa::Finish&, Memories&) {}
inline void run(const isa::Fence&, Memories&) {}

/// One packed entry: nibbles of scales less one, in whole beats, then nibbles of weights, row by row.
inline void unpack(int64_t from, int64_t to, Memories& m) {
  const int in = m.config.block_in, out = m.config.block_out, beat = m.config.axi_bytes;
  int header = beat;
  while (2 * header < out) header += beat;
  for (int n = 0; n < header; ++n) m.read_dram(from + n);  // what is no scale is read, too
  for (int o = 0; o < out; ++o)
    for (int k = 0; k < in; ++k) {
      const int element = o * in + k;
      const int scales = m.read_dram(from + o / 2), weights = m.read_dram(from + header + element / 2);
      const int scale = (o % 2 == 0 ? scales % 16 : scales / 16) + 1;
      const int weight = element % 2 == 0 ? weights % 16 : weights / 16;
      m.write(isa::Space::kWgt, to + element, static_cast<uint8_t>((weight < 8 ? weight : weight - 16) * scale));
    }
}

inline void run(const isa::Load& i, Memories& m) {
  const int64_t dram = static_cast<int64_t>(m.bases[i.base] + i.dram_offset);
  for (int i0 = 0; i0 < i.extent[0]; ++i0)
    for (int i1 = 0; i1 < i.extent[1]; ++i1)
      for (int i2 = 0; i2 < i.extent[2]; ++i2)
        for (int i3 = 0; i3 < i.extent[3]; ++i3) {
          const bool padding = i.fill || i0 < i.pad_before[0] || i0 >= i.extent[0] - i.pad_after[0] ||
                               i1 < i.pad_before[1] || i1 >= i.extent[1] - i.pad_after[1];
          const int64_t to = int64_t{i.sp_addr} + int64_t{i0} * i.sp_stride[0] + int64_t{i1} * i.sp_stride[1] +
                             int64_t{i2} * i.sp_stride[2] + int64_t{i3} * i.sp_stride[3];
          const int64_t from = dram + int64_t{i0 - i.pad_before[0]} * i.dram_stride[0] +
                               int64_t{i1 - i.pad_before[1]} * i.dram_stride[1] + int64_t{i2} * i.dram_stride[2] +
                               int64_t{i3} * i.dram_stride[3];
          if (i.packed) unpack(from, to, m);
          for (int n = 0; n < i.length && !i.packed; ++n) {
            m.write(i.space, to + n, padding ? i.pad_value : m.read_dram(from + n));
          }
        }
}

inline void run(const isa::Store& i, Memories& m) {
  const int64_t dram = static_cast<int64_t>(m.bases[i.base] + i.dram_offset);
  for (int i0 = 0; i0 < i.extent[0]; ++i0)
    for (int i1 = 0; i1 < i.extent[1]; ++i1)
      for (int i2 = 0; i2 < i.extent[2]; ++i2)
        for (int i3 = 0; i3 < i.extent[3]; ++i3)
          for (int n = 0; n < i.length; ++n) {
            const int64_t from = int64_t{i.sp_addr} + int64_t{i0} * i.sp_stride[0] + int64_t{i1} * i.sp_stride[1] +
                                 int64_t{i2} * i.sp_stride[2] + int64_t{i3} * i.sp_stride[3] + n;
            const int64_t to = dram + int64_t{i0} * i.dram_stride[0] + int64_t{i1} * i.dram_stride[1] +
                               int64_t{i2} * i.dram_stride[2] + int64_t{i3} * i.dram_stride[3] + n;
            m.write_dram(to, m.read(i.space, from));
          }
}

/// All index tuples of loops [first, 6), 0 in the others, in program order.
inline std::vector<std::array<int, 6>> indices(const std::array<uint16_t, 6>& extent, int first, int last) {
  std::vector<std::array<int, 6>> all{{0, 0, 0, 0, 0, 0}};
  for (int k = first; k < last; ++k) {
    std::vector<std::array<int, 6>> next;
    for (const auto& index : all) {
      for (int n = 0; n < extent[k]; ++n) {
        next.push_back(index);
        next.back()[k] = n;
      }
    }
    all = next;
  }
  return all;
}

inline int64_t entry(int64_t first, const std::array<int16_t, 6>& stride, const std::array<int, 6>& outer,
                     const std::array<int, 6>& inner) {
  for (int k = 0; k < 6; ++k) first += int64_t{stride[k]} * (outer[k] + inner[k]);
  return first;
}

inline void run(const isa::Gemm& i, Memories& m) {
  using isa::Space;
  const int B = m.config.batch, I = m.config.block_in, O = m.config.block_out, L = I < O ? I : O;
  const bool dense = i.mode == isa::GemmMode::kDense;
  const std::array<int, 6> none{};
  for (const auto& outer : indices(i.extent, 0, 6 - i.reduce)) {
    const int64_t acc = entry(i.acc_addr, i.acc_stride, outer, none);
    for (int b = 0; b < B; ++b) {
      for (int lane = 0; lane < (dense ? O : L); ++lane) {
        const int lo = !dense && O > I ? i.lane * L : 0, li = !dense && I > O ? i.lane * L : 0;
        const int64_t at = ((acc * B + b) * O + lo + lane) * 4;
        int64_t sum = i.accumulate ? read_i32(m, Space::kAcc, at) : 0;
        for (const auto& inner : indices(i.extent, 6 - i.reduce, 6)) {
          const int64_t inp = entry(i.inp_addr, i.inp_stride, outer, inner);
          const int64_t wgt = entry(i.wgt_addr, i.wgt_stride, outer, inner);
          const auto x = [&](int k) {
            return byte_value(m.read(Space::kInp, (inp * B + b) * I + k), i.inp_unsigned) - i.inp_zero;
          };
          const auto w = [&](int o, int k) {
            return byte_value(m.read(Space::kWgt, (wgt * O + o) * I + k), i.wgt_unsigned) - i.wgt_zero;
          };
          if (dense) {
            for (int k = 0; k < I; ++k) sum += x(k) * w(lane, k);
          } else {
            // The last tap is the first byte; an odd lane's row begins in its middle.
            const int tap = i.reduce == 1 ? inner[5] : inner[4] * i.extent[5] + inner[5];
            const int taps = i.reduce == 1 ? i.extent[5] : i.extent[4] * i.extent[5];
            const int middle = (lo + lane) % 2 == 1 ? I / 2 : 0;
            sum += x(li + lane) * w(lo + lane, (middle + taps - 1 - tap) % I);
          }
        }
        write_i32(m, Space::kAcc, at, static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(sum))));
      }
    }
  }
}

inline float clamp_and_round(float g, float low, float high) {
  if (std::isnan(g)) return low;
  if (g < low) g = low;
  if (g > high) g = high;
  return std::nearbyint(g);  // the default rounding mode: half to even
}

/// `width` bits of a PARAM entry from bit `position` on, as two's complement.
inline __int128 constant_field(Memories& m, int64_t entry, int position, int width) {
  __int128 value = 0;
  for (int k = 0; k < width; ++k) {
    const int bit = position + k;
    const bool one = (m.read(isa::Space::kParam, entry + bit / 8) >> (bit % 8) & 1) != 0;
    const __int128 weight = static_cast<__int128>(1) << k;
    if (one) value += k == width - 1 ? -weight : weight;
  }
  return value;
}

/// The low `bits` bits as two's complement.
inline __int128 wrapped(__int128 value, int bits) {
  const __int128 modulus = static_cast<__int128>(1) << bits;
  __int128 rest = value % modulus;
  if (rest < 0) rest += modulus;
  return rest >= modulus / 2 ? rest - modulus : rest;
}

/// numerator / 2^bits, a half to the even neighbour.
inline __int128 halved_to_even(__int128 numerator, int bits) {
  if (bits == 0) return numerator;
  const __int128 unit = static_cast<__int128>(1) << bits;
  __int128 down = numerator / unit;
  if (down * unit > numerator) --down;
  const __int128 twice = 2 * (numerator - down * unit);
  const bool up = twice > unit || (twice == unit && down % 2 != 0);
  return up ? down + 1 : down;
}

/// An integer rounded to 24 significant bits.
inline __int128 significant(__int128 value) {
  int bits = 0;
  while ((value < 0 ? -value : value) >> bits >= 1 << 24) ++bits;
  return halved_to_even(value, bits) * (static_cast<__int128>(1) << bits);
}

inline int64_t second_operation(Memories& m, int64_t entry, isa::SecondOp operation, int64_t x, int64_t y) {
  const auto field = [&](int position, int width) { return constant_field(m, entry, position, width); };
  const bool minimum = field(179, 1) != 0;
  __int128 s = 0, t = 0;
  if (operation == isa::SecondOp::kAdd) {
    s = y, t = x;
  } else if (operation == isa::SecondOp::kMul) {
    s = wrapped((x - field(192, 9)) * (y - field(201, 9)), 18), t = 512;
  } else {
    t = (x < y) == minimum ? x : y;
  }
  const __int128 inner = significant(wrapped(s * field(0, 42) + field(64, 48), 48));
  const __int128 sum = significant(wrapped(inner + t * field(128, 42), 48));
  const int shift = static_cast<int>(field(42, 4)) & 15;
  const auto rounded = static_cast<int64_t>(halved_to_even(sum, 25 + shift));
  const auto low = static_cast<int64_t>(field(46, 10)), high = static_cast<int64_t>(field(112, 10));
  return (rounded > high ? high : rounded < low ? low : rounded) + static_cast<int64_t>(field(170, 9));
}

// NOLINTNEXTLINE(readability-function-cognitive-complexity): one loop nest, to be read beside the manual
inline void run(const isa::Alu& i, Memories& m) {
  using isa::Space;
  const int B = m.config.batch, O = m.config.block_out;
  const std::array<int, 6> none{};
  const auto space = [](isa::AluSpace s) {
    return s == isa::AluSpace::kAcc ? Space::kAcc : s == isa::AluSpace::kOut ? Space::kOut : Space::kInp;
  };
  for (const auto& outer : indices(i.extent, 0, 6 - i.reduce)) {
    for (int b = 0; b < B; ++b) {
      for (int o = 0; o < O; ++o) {
        const auto source = [&](const std::array<int, 6>& inner) -> int64_t {
          const int64_t at = (entry(i.src_addr, i.src_stride, outer, inner) * B + b) * O + o;
          if (i.src == isa::AluSpace::kAcc) return read_i32(m, Space::kAcc, at * 4);
          return byte_value(m.read(space(i.src), at), i.src_unsigned);
        };
        int64_t v = 0;
        if (i.reduce == 0) {
          v = source(none);
        } else {
          bool first = true;
          for (const auto& inner : indices(i.extent, 6 - i.reduce, 6)) {
            const int64_t next = source(inner);
            if (i.reduce_op == isa::ReduceOp::kSum) {
              v += next;
            } else {
              v = first || next > v ? next : v;
            }
            first = false;
          }
          v = static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(v)));
        }
        if (i.convert) {
          const int64_t param = i.param_addr + (i.param_loop == 7 ? 0 : outer[i.param_loop]);
          const int32_t bias = read_i32(m, Space::kParam, param * 8 * O + 4 * o);
          const float scale = read_f32(m, Space::kParam, param * 8 * O + 4 * O + 4 * o);
          const auto sum = static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint64_t>(v + bias)));
          v = static_cast<int64_t>(clamp_and_round(static_cast<float>(sum) * scale, i.low, i.high)) + i.out_zero;
        } else if (i.dst != isa::AluSpace::kAcc) {
          v = (v < i.low ? i.low : v > i.high ? i.high : v) + i.out_zero;
        }
        if (i.table_enable) v = byte_value(m.read(Space::kTable, i.table * 256 + (v & 255)), i.table_unsigned);
        if (i.second_op != isa::SecondOp::kNone) {
          const int64_t c = int64_t{i.constant_addr} * 8 * O;
          const int64_t at = (entry(i.second_addr, i.second_stride, outer, none) * B + b) * O + o;
          const int64_t q = byte_value(m.read(Space::kOut, at), i.second_unsigned);
          v = i.second_swap ? second_operation(m, c, i.second_op, q, v) : second_operation(m, c, i.second_op, v, q);
        }
        if (i.second_table_enable) v = byte_value(m.read(Space::kTable, i.second_table * 256 + (v & 255)), false);
        const int64_t to = (entry(i.dst_addr, i.dst_stride, outer, none) * B + b) * O + o;
        if (i.dst == isa::AluSpace::kAcc) {
          write_i32(m, Space::kAcc, to * 4, static_cast<int32_t>(v));
        } else {
          m.write(space(i.dst), to, static_cast<uint8_t>(v & 255));
        }
      }
    }
  }
}

/// A number of a softmax as the float of that value; an exponent of 255 is left to the integer code.
inline float row_number(Memories& m, int64_t table, int64_t index) {
  uint32_t bits = 0;
  for (int p = 0; p < 4; ++p)
    bits |= uint32_t{m.read(isa::Space::kTable, (table + p) * 256 + (index & 255))} << (8 * p);
  return std::bit_cast<float>(bits & 0x7fffffff);
}

/// Of a code of 31 bits: the integer that is multiplied by 2^(exponent - 150), and that exponent.
inline std::pair<__int128, int> row_parts(uint32_t code) {
  const int exponent = static_cast<int>(code >> 23 & 255);
  const auto fraction = static_cast<__int128>(code % (1 << 23));
  return exponent == 0 ? std::pair{fraction, 1} : std::pair{fraction + (1 << 23), exponent};
}

/// The processor's addition where it means the same; else in exact integers.
inline uint32_t row_sum(uint32_t a, uint32_t b) {
  const float sum = std::bit_cast<float>(a) + std::bit_cast<float>(b);
  if (std::isfinite(std::bit_cast<float>(a)) && std::isfinite(std::bit_cast<float>(b)) && std::isfinite(sum)) {
    return std::bit_cast<uint32_t>(sum);
  }
  auto [x, p] = row_parts(a);
  auto [y, q] = row_parts(b);
  const int low = std::max(std::max(p, q) - 60, std::min(p, q));  // bits further below round to nothing
  x = p >= low ? x << (p - low) : 0;
  y = q >= low ? y << (q - low) : 0;
  __int128 total = x + y;
  int bits = 0;
  while (total >> bits >= 1 << 24) ++bits;
  total = halved_to_even(total, bits);
  return static_cast<uint32_t>(((static_cast<int64_t>(low + bits) - 1) << 23) + static_cast<int64_t>(total)) &
         0x7fffffff;
}

inline int64_t row_quotient(uint32_t a, uint32_t b) {
  if (b >> 23 == 0) return 511;
  if (a >> 23 == 0) return 0;
  const auto [x, p] = row_parts(a);
  const auto [y, q] = row_parts(b);
  // As numbers near 1: binary32's quotient of these is that of the others, scaled.
  const float quotient = std::ldexp(static_cast<float>(x), -23) / std::ldexp(static_cast<float>(y), -23);
  return static_cast<int64_t>(std::min(std::nearbyint(std::ldexp(static_cast<double>(quotient), p - q)), 511.0));
}

inline isa::Space row_space(isa::AluSpace s) { return s == isa::AluSpace::kOut ? isa::Space::kOut : isa::Space::kInp; }

inline std::array<int64_t, 4> row_moments(const std::vector<int>& row, const isa::RowReduce& i) {
  __int128 sum = 0, squares = 0;
  for (const int x : row) sum += x - i.zero, squares += (x - i.zero) * (x - i.zero);
  sum = i.centre ? wrapped(sum, 21) : 0;
  squares %= 1 << 28;
  const __int128 modulus = static_cast<__int128>(1) << 48;
  __int128 v = (i.length * squares - sum * sum) * (1 << i.shift) + static_cast<__int128>(i.epsilon);
  v = (v % modulus + modulus) % modulus;
  if (v == 0) v = 1;
  int k = 24;  // v / 4^k is in 1/4 to 1
  while (v < static_cast<__int128>(1) << (2 * k - 2)) --k;
  const __int128 w = v * (static_cast<__int128>(1) << (48 - 2 * k)) / (1 << 22);
  int64_t h = 0;
  for (int64_t bit = 1 << 18; bit > 0; bit /= 2) {
    if ((h + bit) * static_cast<__int128>(h + bit) * w <= static_cast<__int128>(1) << 60) h += bit;
  }
  const int64_t shift = k + i.offset;
  return {static_cast<int64_t>(sum), std::min<int64_t>((h + 1) / 2, (1 << 17) - 1),
          shift < 0    ? 0
          : shift > 31 ? 31
                       : shift,
          i.length};
}

inline void run(const isa::RowReduce& i, Memories& m) {
  using isa::Space;
  const int B = m.config.batch, O = m.config.block_out;
  const auto inner_loops = indices(i.extent, 6 - i.row, 6);
  for (const auto& outer : indices(i.extent, 0, 6 - i.row)) {
    for (int b = 0; b < B; ++b) {
      std::vector<int> row;
      uint64_t number = 0;
      for (const auto& inner : inner_loops) {
        const int64_t at = (entry(i.src_addr, i.src_stride, outer, inner) * B + b) * O;
        const int lanes = &inner == &inner_loops.back() ? i.tail : O;
        for (int o = 0; o < O; ++o) {
          const int x = byte_value(m.read(row_space(i.src), at + o), i.src_unsigned);
          if (o < lanes && (!i.limited || number < m.limit)) row.push_back(x);
          ++number;
        }
      }
      const int64_t to = (entry(i.scalar_addr, i.scalar_stride, outer, std::array<int, 6>{}) * B + b) * O;
      std::array<int64_t, 4> scalars{};
      if (i.operation == isa::Reduction::kMax) {
        scalars[0] = row.empty() ? 0 : *std::max_element(row.begin(), row.end());
      } else if (i.operation == isa::Reduction::kSumExp) {
        for (int o = 3; o < O; ++o) read_i32(m, Space::kAcc, (to + o) * 4);  // whole entries count as read
        for (int o = 2; o >= 0; --o) scalars[0] = read_i32(m, Space::kAcc, (to + o) * 4);
        uint32_t sum = 0;
        for (const int x : row) sum = row_sum(sum, std::bit_cast<uint32_t>(row_number(m, i.table, scalars[0] - x)));
        scalars[1] = sum;
      } else {
        scalars = row_moments(row, i);
      }
      for (int o = 0; o < O; ++o) {
        write_i32(m, Space::kAcc, (to + o) * 4, o < 4 ? static_cast<int32_t>(scalars[static_cast<size_t>(o)]) : 0);
      }
    }
  }
}

inline int64_t row_normalised(Memories& m, const isa::RowMap& i, int x, const std::array<int32_t, 4>& c, int64_t param,
                              int o) {
  const int O = m.config.block_out;
  const __int128 addend = read_i32(m, isa::Space::kParam, param * 8 * O + 4 * o);
  const __int128 factor = wrapped(read_i32(m, isa::Space::kParam, param * 8 * O + 4 * O + 4 * o), 18);
  const auto floored = [](__int128 value, int bits) {
    const __int128 unit = static_cast<__int128>(1) << bits;
    return (value - ((value % unit) + unit) % unit) / unit;
  };
  const int q = c[2] & 31;
  const __int128 n_r = static_cast<__int128>(c[3] & 8191) * (c[1] & 131071), s_r = wrapped(c[0], 22) * (c[1] & 131071);
  const bool small = floored(n_r, q + 10) != 0;
  const __int128 a = floored(n_r * 16384, small ? q + 8 : q) % (1 << 24), centre = floored(s_r * 16384, q);
  const __int128 scaled = wrapped(floored((x - i.zero) * a * (small ? 256 : 1) - centre, 8), 25);
  return static_cast<int64_t>(halved_to_even(scaled * factor + addend * 256, 28));
}

/// Element by element: first all sums, then the results in the order of their writes.
inline void run_sum_softmax(const isa::RowMap& i, Memories& m) {
  const int O = m.config.block_out;
  const std::array<int, 6> none{};
  const auto outer_loops = indices(i.extent, 0, 6 - i.row), inner_loops = indices(i.extent, 6 - i.row, 6);
  std::vector<std::pair<int32_t, uint32_t>> scalars;
  const auto byte = [&](const std::array<int, 6>& outer, const std::array<int, 6>& inner, int o) {
    const int64_t at = entry(i.src_addr, i.src_stride, outer, inner) * O + o;
    if (i.src != isa::AluSpace::kAcc) return byte_value(m.read(row_space(i.src), at), i.src_unsigned);
    const int32_t bias = read_i32(m, isa::Space::kParam, i.param_addr * int64_t{8} * O + 4 * o);
    const float scale = read_f32(m, isa::Space::kParam, i.param_addr * int64_t{8} * O + 4 * O + 4 * o);
    const int64_t sum = int64_t{read_i32(m, isa::Space::kAcc, at * 4)} + bias;
    return static_cast<int>(
        clamp_and_round(static_cast<float>(static_cast<int32_t>(static_cast<uint32_t>(sum))) * scale, -128, 127));
  };
  for (const auto& outer : outer_loops) {
    const int64_t at = entry(i.scalar_addr, i.scalar_stride, outer, none) * O;
    for (int o = 1; o < O; ++o) read_i32(m, isa::Space::kAcc, (at + o) * 4);  // whole entries count as read
    const int32_t most = read_i32(m, isa::Space::kAcc, at * 4);
    uint32_t sum = 0;
    uint64_t number = 0;
    for (const auto& inner : inner_loops) {
      const int lanes = &inner == &inner_loops.back() ? i.tail : O;
      for (int o = 0; o < O; ++o, ++number) {
        const int x = byte(outer, inner, o);
        if (o >= lanes || (i.limited && number >= m.limit)) continue;
        sum = row_sum(sum, std::bit_cast<uint32_t>(row_number(m, i.sum_table, int64_t{most} - x)));
      }
    }
    scalars.emplace_back(most, sum);
  }
  const auto group = static_cast<size_t>(4 * m.config.row_lanes);
  for (size_t first = 0; first < outer_loops.size(); first += group) {
    uint64_t number = 0;
    for (const auto& inner : inner_loops) {
      for (size_t r = first; r < std::min(outer_loops.size(), first + group); ++r) {
        for (int o = 0; o < O; ++o) {
          auto a = std::bit_cast<uint32_t>(
              row_number(m, i.table, int64_t{scalars[r].first} - byte(outer_loops[r], inner, o)));
          if (i.limited && number + static_cast<uint64_t>(o) >= m.limit) a = 0;
          int64_t v = row_quotient(a, scalars[r].second & 0x7fffffff);
          v = (v < i.low ? i.low : v > i.high ? i.high : v) + i.out_zero;
          m.write(row_space(i.dst), entry(i.dst_addr, i.dst_stride, outer_loops[r], inner) * O + o,
                  static_cast<uint8_t>(v & 255));
        }
      }
      number += static_cast<uint64_t>(O);
    }
  }
}

inline void run(const isa::RowMap& i, Memories& m) {
  if (i.operation == isa::Mapping::kSumSoftmax) return run_sum_softmax(i, m);
  using isa::Space;
  const int B = m.config.batch, O = m.config.block_out;
  const std::array<int, 6> none{};
  const uint64_t entries = indices(i.extent, 6 - i.row, 6).size();
  uint64_t walked = 0;
  for (const auto& at : indices(i.extent, 0, 6)) {
    const uint64_t first = walked++ % entries * static_cast<uint64_t>(O);
    const int64_t param = i.param_addr + (i.param_loop == 7 ? 0 : at[i.param_loop]);
    for (int b = 0; b < B; ++b) {
      std::array<int32_t, 4> c{};
      const int64_t scalars = (entry(i.scalar_addr, i.scalar_stride, at, none) * B + b) * O;
      for (int o = O - 1; o >= 0; --o) {
        const int32_t word = read_i32(m, Space::kAcc, (scalars + o) * 4);
        if (o < 4) c[static_cast<size_t>(o)] = word;
      }
      for (int o = 0; o < O; ++o) {
        const int64_t from = (entry(i.src_addr, i.src_stride, at, none) * B + b) * O + o;
        const int x = byte_value(m.read(row_space(i.src), from), i.src_unsigned);
        int64_t r = 0;
        if (i.operation == isa::Mapping::kSoftmax) {
          auto a = std::bit_cast<uint32_t>(row_number(m, i.table, int64_t{c[0]} - x));
          if (i.limited && first + static_cast<uint64_t>(o) >= m.limit) a = 0;
          r = row_quotient(a, static_cast<uint32_t>(c[1]) & 0x7fffffff);
        } else {
          r = row_normalised(m, i, x, c, param, o);
        }
        r = (r < i.low ? i.low : r > i.high ? i.high : r) + i.out_zero;
        const int64_t to = (entry(i.dst_addr, i.dst_stride, at, none) * B + b) * O + o;
        m.write(row_space(i.dst), to, static_cast<uint8_t>(r & 255));
      }
    }
  }
}

inline void run(const std::vector<isa::Instruction>& program, Memories& m) {
  for (const isa::Instruction& instruction : program) std::visit([&](const auto& i) { run(i, m); }, instruction);
}

}  // namespace tessera::sim::reference
