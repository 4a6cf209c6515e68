// SPDX-License-Identifier: Apache-2.0
// GEMM in the order of isa/semantics.md, for any BATCH, BLOCK_IN, BLOCK_OUT, stride and overlap of ACC entries. Sums
// are unsigned, so that they wrap as the machine's do.
#include <cstring>
#include <vector>

#include "sim/functional/engines/gemm.h"
#include "sim/functional/engines/nest.h"

namespace tessera::sim {
namespace {

int32_t multiplicand(uint8_t byte, bool is_unsigned, int32_t zero) {
  return (is_unsigned ? int32_t{byte} : int32_t{static_cast<int8_t>(byte)}) - zero;
}

void run_dense(const isa::Gemm& g, const isa::MachineConfig& config, Scratchpads& scratchpads) {
  const auto batch = static_cast<size_t>(config.batch);
  const auto block_in = static_cast<size_t>(config.block_in);
  const auto block_out = static_cast<size_t>(config.block_out);
  const uint8_t* inp = scratchpads.bytes(isa::Space::kInp).data();
  const uint8_t* wgt = scratchpads.bytes(isa::Space::kWgt).data();
  uint8_t* acc = scratchpads.bytes(isa::Space::kAcc).data();
  const int outer = isa::kLoops - g.reduce;
  const auto outer_nest = make_nest(0, outer, g.extent, g.inp_stride, g.wgt_stride, g.acc_stride);
  const auto inner_nest = make_nest(outer, g.reduce, g.extent, g.inp_stride, g.wgt_stride);
  std::vector<uint32_t> sum(batch * block_out);
  std::vector<int16_t> x(batch * block_in);
  std::vector<int16_t> w(block_in);
  for_each_iteration(outer_nest, {g.inp_addr, g.wgt_addr, g.acc_addr}, [&](const std::array<int32_t, 3>& at) {
    uint8_t* entry = acc + static_cast<size_t>(at[2]) * sum.size() * 4;
    if (g.accumulate) {
      std::memcpy(sum.data(), entry, sum.size() * 4);
    } else {
      std::fill(sum.begin(), sum.end(), 0u);
    }
    for_each_iteration(inner_nest, {at[0], at[1]}, [&](const std::array<int32_t, 2>& tile) {
      const uint8_t* xs = inp + static_cast<size_t>(tile[0]) * x.size();
      const uint8_t* ws = wgt + static_cast<size_t>(tile[1]) * block_out * block_in;
      for (size_t k = 0; k < x.size(); ++k)
        x[k] = static_cast<int16_t>(multiplicand(xs[k], g.inp_unsigned, g.inp_zero));
      for (size_t o = 0; o < block_out; ++o) {
        for (size_t k = 0; k < block_in; ++k) {
          w[k] = static_cast<int16_t>(multiplicand(ws[o * block_in + k], g.wgt_unsigned, g.wgt_zero));
        }
        for (size_t b = 0; b < batch; ++b) {
          int32_t product = 0;  // at most 128 products of 17 bits
          for (size_t k = 0; k < block_in; ++k) product += int32_t{x[b * block_in + k]} * int32_t{w[k]};
          sum[b * block_out + o] += static_cast<uint32_t>(product);
        }
      }
    });
    std::memcpy(entry, sum.data(), sum.size() * 4);
  });
}

void run_depthwise(const isa::Gemm& g, const isa::MachineConfig& config, Scratchpads& scratchpads) {
  const auto batch = static_cast<size_t>(config.batch);
  const auto block_in = static_cast<size_t>(config.block_in);
  const auto block_out = static_cast<size_t>(config.block_out);
  const auto lanes = static_cast<size_t>(config.lanes());
  const size_t lane_out = block_out > block_in ? g.lane * lanes : 0;
  const size_t lane_in = block_in > block_out ? g.lane * lanes : 0;
  const uint8_t* inp = scratchpads.bytes(isa::Space::kInp).data();
  const uint8_t* wgt = scratchpads.bytes(isa::Space::kWgt).data();
  uint8_t* acc = scratchpads.bytes(isa::Space::kAcc).data();
  const int outer = isa::kLoops - g.reduce;
  const int tap_loops = g.reduce < 2 ? 1 : 2;
  const auto outer_nest = make_nest(0, outer, g.extent, g.inp_stride, g.wgt_stride, g.acc_stride);
  const auto inner_nest = make_nest(outer, g.reduce - tap_loops, g.extent, g.inp_stride, g.wgt_stride);
  const auto tap_nest = make_nest(isa::kLoops - tap_loops, tap_loops, g.extent, g.inp_stride);
  std::vector<uint32_t> sum(batch * lanes);
  for_each_iteration(outer_nest, {g.inp_addr, g.wgt_addr, g.acc_addr}, [&](const std::array<int32_t, 3>& at) {
    uint8_t* entry = acc + static_cast<size_t>(at[2]) * batch * block_out * 4;
    for (size_t b = 0; b < batch; ++b) {
      if (g.accumulate) {
        std::memcpy(&sum[b * lanes], entry + (b * block_out + lane_out) * 4, lanes * 4);
      } else {
        std::memset(&sum[b * lanes], 0, lanes * 4);
      }
    }
    for_each_iteration(inner_nest, {at[0], at[1]}, [&](const std::array<int32_t, 2>& group) {
      const uint8_t* ws = wgt + (static_cast<size_t>(group[1]) * block_out + lane_out) * block_in;
      int tap = 0;
      const auto taps = static_cast<int>(tap_nest.iterations());
      for_each_iteration(tap_nest, {group[0]}, [&](const std::array<int32_t, 1>& pixel) {
        const uint8_t* xs = inp + static_cast<size_t>(pixel[0]) * batch * block_in + lane_in;
        for (size_t b = 0; b < batch; ++b) {
          for (size_t c = 0; c < lanes; ++c) {
            const int32_t x = multiplicand(xs[b * block_in + c], g.inp_unsigned, g.inp_zero);
            const auto byte = static_cast<size_t>(config.depthwise_byte(static_cast<int>(lane_out + c), tap, taps));
            const auto w = static_cast<int8_t>(ws[c * block_in + byte]);
            sum[b * lanes + c] += static_cast<uint32_t>(x * w);
          }
        }
        ++tap;
      });
    });
    for (size_t b = 0; b < batch; ++b) std::memcpy(entry + (b * block_out + lane_out) * 4, &sum[b * lanes], lanes * 4);
  });
}

}  // namespace

void run_gemm_portable(const isa::Gemm& gemm, const isa::MachineConfig& config, Scratchpads& scratchpads) {
  switch (gemm.mode) {
    case isa::GemmMode::kDense: run_dense(gemm, config, scratchpads); break;
    case isa::GemmMode::kDepthwise: run_depthwise(gemm, config, scratchpads); break;
  }
}

}  // namespace tessera::sim
