// SPDX-License-Identifier: Apache-2.0
// The ALU as one always-inlined source that is compiled for each instruction set: up to 16 lanes of an entry go through
// all stages in plain loops that the compiler vectorises. Iterations stay in program order, because a later one may
// read what an earlier one wrote. Floating point is IEEE binary32 in every build: no contraction, fma is a real fused
// multiply-add, and round-half-even is the addition of 1.5 * 2^23, exact for the clamped values that reach it (below
// 2^22).
#include "sim/functional/engines/alu.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "isa/second_operation.h"
#include "sim/functional/engines/nest.h"

namespace tessera::sim {
namespace {

constexpr size_t kChunk = 16;  // lanes that go through the stages together

// A loop over lanes. Not unrolled, because the compiler vectorises loops and not what it has unrolled before.
#define TESSERA_FOR_LANES(l, n) _Pragma("GCC unroll 1") for (size_t l = 0; l < (n); ++l)

/// Everything an instruction needs, looked up once.
struct Job {
  isa::Alu alu;
  size_t batch = 1;
  size_t block_out = 1;
  const uint8_t* src = nullptr;  // byte 0 of each memory
  uint8_t* dst = nullptr;
  const uint8_t* second = nullptr;
  const uint8_t* param = nullptr;
  const uint8_t* table = nullptr;
  const uint8_t* second_table = nullptr;
  isa::SecondConstants constants;  // of the second operation
  Nest<4> outer;                   // src, dst, second, param
  Nest<1> inner;                   // src
};

TESSERA_ALWAYS_INLINE float clamp(float g, float low, float high) {
  const float at_least = g > low ? g : low;  // NaN becomes low
  return at_least < high ? at_least : high;
}

TESSERA_ALWAYS_INLINE int32_t round_half_even(float g) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return static_cast<int32_t>((g + kShift) - kShift);
}

/// `n` lanes of an entry as int32. Lane counts that are constants let the loops vectorise.
TESSERA_ALWAYS_INLINE void read_lanes(int32_t* v, const Job& job, int32_t entry, size_t lane, size_t n) {
  const size_t first = static_cast<size_t>(entry) * job.batch * job.block_out + lane;
  if (job.alu.src == isa::AluSpace::kAcc) {
    std::memcpy(v, job.src + 4 * first, 4 * n);
  } else if (job.alu.src_unsigned) {
    const uint8_t* p = job.src + first;
    TESSERA_FOR_LANES(l, n) v[l] = p[l];
  } else {
    const auto* p = reinterpret_cast<const int8_t*>(job.src + first);
    TESSERA_FOR_LANES(l, n) v[l] = p[l];
  }
}

TESSERA_ALWAYS_INLINE void reduce_lanes(int32_t* v, const Job& job, int32_t entry, size_t lane, size_t n) {
  int32_t next[kChunk];
  if (job.alu.reduce_op == isa::ReduceOp::kSum) {
    uint32_t sum[kChunk] = {};
    for_each_iteration(job.inner, {entry}, [&](const std::array<int32_t, 1>& at) __attribute__((always_inline)) {
      read_lanes(next, job, at[0], lane, n);
      TESSERA_FOR_LANES(l, n) sum[l] += static_cast<uint32_t>(next[l]);
    });
    TESSERA_FOR_LANES(l, n) v[l] = static_cast<int32_t>(sum[l]);
  } else {
    TESSERA_FOR_LANES(l, n) v[l] = INT32_MIN;
    for_each_iteration(job.inner, {entry}, [&](const std::array<int32_t, 1>& at) __attribute__((always_inline)) {
      read_lanes(next, job, at[0], lane, n);
      TESSERA_FOR_LANES(l, n) v[l] = v[l] > next[l] ? v[l] : next[l];
    });
  }
}

TESSERA_ALWAYS_INLINE void convert_lanes(int32_t* v, const Job& job, int32_t entry, size_t o, size_t n) {
  const uint8_t* p = job.param + (static_cast<size_t>(entry) * 2 * job.block_out + o) * 4;
  int32_t bias[kChunk];
  float scale[kChunk];
  std::memcpy(bias, p, 4 * n);
  std::memcpy(scale, p + 4 * job.block_out, 4 * n);
  const auto low = static_cast<float>(job.alu.low);
  const auto high = static_cast<float>(job.alu.high);
  const int32_t zero = job.alu.out_zero;
  TESSERA_FOR_LANES(l, n) {
    const auto sum = static_cast<int32_t>(static_cast<uint32_t>(v[l]) + static_cast<uint32_t>(bias[l]));
    v[l] = round_half_even(clamp(static_cast<float>(sum) * scale[l], low, high)) + zero;
  }
}

TESSERA_ALWAYS_INLINE void clamp_lanes(int32_t* v, const Job& job, size_t n) {
  const int32_t low = job.alu.low;
  const int32_t high = job.alu.high;
  const int32_t zero = job.alu.out_zero;
  TESSERA_FOR_LANES(l, n) {
    const int32_t at_least = v[l] > low ? v[l] : low;
    v[l] = (at_least < high ? at_least : high) + zero;
  }
}

TESSERA_ALWAYS_INLINE int64_t wrap48(int64_t value) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) << 16) >> 16;
}

/// Operands of both products: s for the inner, t for the outer one.
TESSERA_ALWAYS_INLINE void second_operands(int32_t* s, int32_t* t, const int32_t* x, const int32_t* y, const Job& job,
                                           size_t n) {
  const isa::SecondConstants& c = job.constants;
  switch (job.alu.second_op) {
    case isa::SecondOp::kNone: break;
    case isa::SecondOp::kAdd:
      TESSERA_FOR_LANES(l, n) s[l] = y[l];
      TESSERA_FOR_LANES(l, n) t[l] = x[l];
      break;
    case isa::SecondOp::kMul: {
      constexpr int kUnused = 32 - isa::kSecondPairBits;
      TESSERA_FOR_LANES(l, n) {
        const auto pair = static_cast<uint32_t>((x[l] - c.zx) * (y[l] - c.zy));
        s[l] = static_cast<int32_t>(pair << kUnused) >> kUnused;
      }
      TESSERA_FOR_LANES(l, n) t[l] = isa::kSecondMulOuter;
      break;
    }
    case isa::SecondOp::kMax:
      TESSERA_FOR_LANES(l, n) s[l] = 0;
      if (c.minimum) {
        TESSERA_FOR_LANES(l, n) t[l] = x[l] < y[l] ? x[l] : y[l];
      } else {
        TESSERA_FOR_LANES(l, n) t[l] = x[l] > y[l] ? x[l] : y[l];
      }
      break;
  }
}

TESSERA_ALWAYS_INLINE void second_lanes(int32_t* v, const Job& job, int32_t entry, size_t lane, size_t n) {
  const uint8_t* bytes = job.second + static_cast<size_t>(entry) * job.batch * job.block_out + lane;
  int32_t q[kChunk];
  if (job.alu.second_unsigned) {
    TESSERA_FOR_LANES(l, n) q[l] = bytes[l];
  } else {
    TESSERA_FOR_LANES(l, n) q[l] = static_cast<int8_t>(bytes[l]);
  }
  int32_t s[kChunk], t[kChunk];
  if (job.alu.second_swap) {
    second_operands(s, t, q, v, job, n);
  } else {
    second_operands(s, t, v, q, job, n);
  }
  const isa::SecondConstants& c = job.constants;
  const float unit = 1.0f / static_cast<float>(int64_t{1} << (isa::kSecondFractionBits + c.shift));
  TESSERA_FOR_LANES(l, n) {
    const auto inner = static_cast<float>(wrap48(s[l] * c.inner_factor + c.inner_addend));
    const int64_t sum = wrap48(static_cast<int64_t>(inner) + t[l] * c.outer_factor);
    // Far beyond the bounds of ten bits the value does not matter.
    const int32_t r = round_half_even(clamp(static_cast<float>(sum) * unit, -2048.0f, 2048.0f));
    v[l] = (r > c.high ? c.high : r < c.low ? c.low : r) + c.zero;
  }
}

TESSERA_ALWAYS_INLINE void look_up(int32_t* v, const uint8_t* table, bool is_unsigned, size_t n) {
  for (size_t l = 0; l < n; ++l) {
    const uint8_t byte = table[v[l] & 255];
    v[l] = is_unsigned ? int32_t{byte} : int32_t{static_cast<int8_t>(byte)};
  }
}

TESSERA_ALWAYS_INLINE void run_lanes(const Job& job, const std::array<int32_t, 4>& at, size_t row, size_t o, size_t n) {
  const isa::Alu& alu = job.alu;
  const size_t lane = row * job.block_out + o;
  alignas(64) int32_t v[kChunk];
  if (alu.reduce == 0) {
    read_lanes(v, job, at[0], lane, n);
  } else {
    reduce_lanes(v, job, at[0], lane, n);
  }
  if (alu.convert) {
    convert_lanes(v, job, at[3], o, n);
  } else if (alu.dst != isa::AluSpace::kAcc) {
    clamp_lanes(v, job, n);
  }
  if (alu.table_enable) look_up(v, job.table, alu.table_unsigned, n);
  if (alu.second_op != isa::SecondOp::kNone) second_lanes(v, job, at[2], lane, n);
  if (alu.second_table_enable) look_up(v, job.second_table, false, n);
  const size_t first = static_cast<size_t>(at[1]) * job.batch * job.block_out + lane;
  if (alu.dst == isa::AluSpace::kAcc) {
    std::memcpy(job.dst + 4 * first, v, 4 * n);
  } else {
    uint8_t* to = job.dst + first;
    TESSERA_FOR_LANES(l, n) to[l] = static_cast<uint8_t>(v[l]);
  }
}

TESSERA_ALWAYS_INLINE void run_job(const Job& job) {
  const std::array<int32_t, 4> start{job.alu.src_addr, job.alu.dst_addr, job.alu.second_addr, job.alu.param_addr};
  for_each_iteration(job.outer, start, [&](const std::array<int32_t, 4>& at) __attribute__((always_inline)) {
    for (size_t row = 0; row < job.batch; ++row) {
      size_t o = 0;
      for (; o + kChunk <= job.block_out; o += kChunk) run_lanes(job, at, row, o, kChunk);
      if (o < job.block_out) run_lanes(job, at, row, o, job.block_out - o);
    }
  });
}

void run_baseline(const Job& job) { run_job(job); }
#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void run_avx2(const Job& job) { run_job(job); }
__attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"))) void run_avx512(
    const Job& job) {
  run_job(job);
}
#endif

}  // namespace

void run_alu(const isa::Alu& alu, const isa::MachineConfig& config, Scratchpads& scratchpads, Kernels kernels) {
  Job job;
  job.alu = alu;
  job.batch = static_cast<size_t>(config.batch);
  job.block_out = static_cast<size_t>(config.block_out);
  job.src = scratchpads.bytes(space_of(alu.src)).data();
  job.dst = scratchpads.bytes(space_of(alu.dst)).data();
  job.second = scratchpads.bytes(isa::Space::kOut).data();
  job.param = scratchpads.bytes(isa::Space::kParam).data();
  const uint8_t* tables = scratchpads.bytes(isa::Space::kTable).data();
  job.table = tables + size_t{alu.table} * 256;
  job.second_table = tables + size_t{alu.second_table} * 256;
  if (alu.second_op != isa::SecondOp::kNone) {
    job.constants =
        isa::decode_second(job.param + size_t{alu.constant_addr} * scratchpads.entry_bytes(isa::Space::kParam));
  }
  const int outer = isa::kLoops - alu.reduce;
  Strides param_stride{};
  if (alu.param_loop < isa::kLoops) param_stride[alu.param_loop] = 1;
  job.outer = make_nest(0, outer, alu.extent, alu.src_stride, alu.dst_stride, alu.second_stride, param_stride);
  job.inner = make_nest(outer, alu.reduce, alu.extent, alu.src_stride);
  switch (kernels) {
    case Kernels::kPortable: run_baseline(job); break;
#if defined(__x86_64__)
    case Kernels::kAvx2: run_avx2(job); break;
    case Kernels::kAvx512: run_avx512(job); break;
#else
    case Kernels::kAvx2:
    case Kernels::kAvx512: run_baseline(job); break;
#endif
  }
}

}  // namespace tessera::sim
