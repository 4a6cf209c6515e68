// SPDX-License-Identifier: Apache-2.0
// A second machine for tests: isa/semantics.md written down as plain loops over byte vectors, one element at a time,
// sharing no code with the simulator beyond the instruction structs, and none with isa/effects.h: it is the oracle of
// both. It runs instructions in stream order and knows no synchronisation. An observer sees every byte it touches.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
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

inline void run(const isa::Load& i, Memories& m) {
  const int64_t dram = static_cast<int64_t>(m.bases[i.base] + i.dram_offset);
  for (int i0 = 0; i0 < i.extent[0]; ++i0)
    for (int i1 = 0; i1 < i.extent[1]; ++i1)
      for (int i2 = 0; i2 < i.extent[2]; ++i2)
        for (int i3 = 0; i3 < i.extent[3]; ++i3)
          for (int n = 0; n < i.length; ++n) {
            const bool padding = i.fill || i0 < i.pad_before[0] || i0 >= i.extent[0] - i.pad_after[0] ||
                                 i1 < i.pad_before[1] || i1 >= i.extent[1] - i.pad_after[1];
            const int64_t to = int64_t{i.sp_addr} + int64_t{i0} * i.sp_stride[0] + int64_t{i1} * i.sp_stride[1] +
                               int64_t{i2} * i.sp_stride[2] + int64_t{i3} * i.sp_stride[3] + n;
            const int64_t from = dram + int64_t{i0 - i.pad_before[0]} * i.dram_stride[0] +
                                 int64_t{i1 - i.pad_before[1]} * i.dram_stride[1] + int64_t{i2} * i.dram_stride[2] +
                                 int64_t{i3} * i.dram_stride[3] + n;
            m.write(i.space, to, padding ? i.pad_value : m.read_dram(from));
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

inline void run(const std::vector<isa::Instruction>& program, Memories& m) {
  for (const isa::Instruction& instruction : program) std::visit([&](const auto& i) { run(i, m); }, instruction);
}

}  // namespace tessera::sim::reference
