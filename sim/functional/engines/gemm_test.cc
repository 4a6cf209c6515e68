// SPDX-License-Identifier: Apache-2.0
// GEMM where random programs do not look: extreme operands, wrap-around, every signedness and zero point, remainders of
// row blocks, nests that must keep their order, weights that change under the cache. Every kernel set against the plain
// loops.
#include <gtest/gtest.h>

#include <random>

#include "isa/verify/verify.h"
#include "sim/functional/machine.h"
#include "sim/tests/configs.h"
#include "sim/tests/reference.h"

namespace tessera::sim {
namespace {

using isa::Space;

std::vector<Kernels> kernel_sets() {
  std::vector<Kernels> all;
  for (const Kernels kernels : {Kernels::kPortable, Kernels::kAvx2, Kernels::kAvx512}) {
    if (supported(kernels)) all.push_back(kernels);
  }
  return all;
}

/// A machine of each kernel set and the reference, with equal memories.
class Rig {
 public:
  explicit Rig(const isa::MachineConfig& config, uint64_t seed = 1) : expected(config) {
    for (const Kernels kernels : kernel_sets()) {
      machines.emplace_back(config, kernels);
      machines.back().poison(seed);
    }
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto bytes = machines[0].scratchpad(static_cast<Space>(s));
      expected.bytes[s].assign(bytes.begin(), bytes.end());
    }
  }

  void set(Space space, const std::vector<uint8_t>& bytes, size_t offset = 0) {
    for (Machine& machine : machines) machine.write_scratchpad(space, offset, bytes);
    std::copy(bytes.begin(), bytes.end(), expected[space].begin() + static_cast<std::ptrdiff_t>(offset));
  }

  void fill(Space space, uint8_t value) { set(space, std::vector<uint8_t>(expected[space].size(), value)); }

  void run(std::vector<isa::Instruction> program) {
    for (const auto& instruction : program) {
      const auto violation = isa::check_operands(instruction, expected.config);
      ASSERT_FALSE(violation) << violation->message;
      ASSERT_FALSE(isa::check_ranges(instruction, expected.config));
    }
    reference::run(program, expected);
    program.push_back(isa::Finish{});
    for (Machine& machine : machines) {
      RunRequest request;
      request.instructions = program;
      ASSERT_TRUE(machine.run(request).ok());
      for (int s = 0; s < isa::kSpaces; ++s) {
        const auto space = static_cast<Space>(s);
        const auto actual = machine.scratchpad(space);
        const auto at = std::mismatch(actual.begin(), actual.end(), expected.bytes[s].begin()).first - actual.begin();
        ASSERT_EQ(static_cast<size_t>(at), actual.size())
            << to_string(machine.kernels()) << ": " << to_string(space) << " differs at byte " << at;
      }
    }
  }

  reference::Memories expected;
  std::vector<Machine> machines;
};

isa::Gemm signs(isa::Gemm g, int bits) {
  g.inp_unsigned = (bits & 1) != 0;
  g.wgt_unsigned = (bits & 2) != 0;
  return g;
}

TEST(Gemm, ExtremeOperandsAndZeroPoints) {
  for (const auto& config : testing::all_configs()) {
    SCOPED_TRACE(config.name);
    Rig rig(config);
    for (const int x : {0, 127, 128, 255}) {
      for (const int w : {0, 127, 128, 255}) {
        rig.fill(Space::kInp, static_cast<uint8_t>(x));
        rig.fill(Space::kWgt, static_cast<uint8_t>(w));
        std::vector<isa::Instruction> program;
        for (int bits = 0; bits < 4; ++bits) {
          isa::Gemm g = signs({}, bits);
          g.extent = {1, 1, 1, 2, 3, 8};
          g.inp_stride = {0, 0, 0, 0, 8, 1};
          g.wgt_stride = {0, 0, 0, 8, 0, 1};
          g.acc_stride = {0, 0, 0, 1, 2, 0};
          g.acc_addr = 0;
          g.reduce = 1;
          for (const int inp_zero : {g.inp_unsigned ? 0 : -128, 0, g.inp_unsigned ? 255 : 127}) {
            for (const int wgt_zero : {g.wgt_unsigned ? 0 : -128, 0, g.wgt_unsigned ? 255 : 127}) {
              g.inp_zero = static_cast<int16_t>(inp_zero);
              g.wgt_zero = static_cast<int16_t>(wgt_zero);
              g.accumulate = (inp_zero + wgt_zero) % 2 != 0;
              program.push_back(g);
            }
          }
        }
        rig.run(program);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(Gemm, SumsWrap) {
  Rig rig(isa::find_config("npu256"));
  rig.fill(Space::kInp, 255);
  rig.fill(Space::kWgt, 0x80);
  isa::Gemm g;
  g.inp_unsigned = true;
  g.extent = {1, 1, 1, 1, 64, 2048};  // 64 x 2048 x 16 products of -32640: below -2^31 many times over
  g.reduce = 2;
  g.inp_stride[5] = 1;
  rig.run({g});
  g.accumulate = true;
  rig.run({g, g, g});
}

TEST(Gemm, RowBlocksOfEverySize) {
  for (const char* name : {"npu64", "npu256", "npu1024"}) {
    Rig rig(isa::find_config(name));
    for (int rows = 1; rows <= 20; ++rows) {
      isa::Gemm g = signs({}, rows % 4);
      g.inp_zero = 3;
      g.wgt_zero = static_cast<int16_t>(rows % 3);
      g.extent = {1, 1, 1, 3, static_cast<uint16_t>(rows), 5};
      g.inp_stride = {0, 0, 0, 0, 7, 1};
      g.wgt_stride = {0, 0, 0, 5, 0, 1};
      g.acc_stride = {0, 0, 0, 20, 1, 0};
      g.reduce = 1;
      g.accumulate = rows % 2 == 0;
      rig.run({g});
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Gemm, NestsThatMustKeepTheirOrder) {
  for (const auto& config : testing::all_configs()) {
    SCOPED_TRACE(config.name);
    Rig rig(config);
    isa::Gemm g;
    g.extent = {1, 3, 4, 2, 1, 2};
    g.inp_stride = {0, 5, 1, 2, 0, 1};
    g.wgt_stride = {0, 0, 3, 1, 0, 1};
    g.acc_stride = {0, 0, 1, 0, 0, 0};  // loops 1 and 3 write the same entries: the last one stays
    g.reduce = 1;
    rig.run({g});
    g.acc_stride = {0, 1, 1, 0, 0, 0};  // overlapping diagonals
    rig.run({g});
    g.accumulate = true;  // all of them add
    rig.run({g});
    g.acc_stride = {0, 0, 0, 0, 0, 0};
    rig.run({g});
    if (HasFatalFailure()) return;
  }
}

TEST(Gemm, LongReductionsAndManyRows) {
  Rig rig(isa::find_config("npu64"));
  isa::Gemm g;
  g.extent = {1, 1, 1, 1, 20, 4095};  // more steps than are listed at once
  g.reduce = 2;
  g.inp_stride = {0, 0, 0, 0, 3, 0};
  g.inp_zero = -5;
  rig.run({g});
  g.reduce = 0;
  g.accumulate = true;
  rig.run({g});  // 81900 rows that add to one entry
}

TEST(Gemm, ConvolutionWindowWithNegativeStrides) {
  for (const char* name : {"npu64", "npu256"}) {
    Rig rig(isa::find_config(name));
    isa::Gemm g = signs({}, 1);
    g.inp_zero = 128;
    g.wgt_zero = 7;
    g.extent = {4, 5, 2, 3, 3, 2};  // oh, ow, oc, kh, kw, ic
    g.inp_stride = {-40, 4, 0, -20, 2, 1};
    g.wgt_stride = {0, 0, 18, 6, -2, 1};
    g.acc_stride = {-10, 2, 1, 0, 0, 0};
    g.inp_addr = 300;
    g.wgt_addr = 4;
    g.acc_addr = 100;
    g.reduce = 3;
    rig.run({g});
  }
}

TEST(Gemm, WeightsThatChangeAreSeen) {
  const isa::MachineConfig config = isa::find_config("npu256");
  Rig rig(config);
  isa::Gemm g;
  g.extent = {1, 1, 1, 2, 4, 3};
  g.inp_stride = {0, 0, 0, 0, 3, 1};
  g.wgt_stride = {0, 0, 0, 3, 0, 1};
  g.acc_stride = {0, 0, 0, 4, 1, 0};
  g.reduce = 1;
  isa::Load one;  // one byte in the middle of tile 4
  one.space = Space::kWgt;
  one.fill = true;
  one.sp_addr = 4 * 256 + 77;
  one.length = 1;
  one.pad_value = 99;
  isa::Load strided = one;  // the last byte of tile 0 and the first of tile 5
  strided.sp_addr = 255;
  strided.extent[2] = 2;
  strided.sp_stride[2] = 5 * 256 - 255;
  rig.run({g, one, g, strided, g});
  rig.set(Space::kWgt, {1, 2, 3}, 256 * 2 + 254);
  rig.run({g});
  rig.run({signs(g, 2), g, signs(g, 2)});  // the same weights read as uint8
  for (Machine& machine : rig.machines) machine.poison(9);
  for (int s = 0; s < isa::kSpaces; ++s) {
    const auto bytes = rig.machines[0].scratchpad(static_cast<Space>(s));
    rig.expected.bytes[s].assign(bytes.begin(), bytes.end());
  }
  rig.run({g});
}

TEST(Gemm, DepthwiseOfEveryShape) {
  for (const auto& config : testing::all_configs()) {
    SCOPED_TRACE(config.name);
    Rig rig(config);
    const int most = config.depthwise_taps();
    for (int kh = 1; kh <= 4; ++kh) {
      for (int kw = 1; kw <= 16; ++kw) {
        if (kh * kw > most) continue;
        for (int lane = 0; lane < std::max(config.block_in, config.block_out) / config.lanes(); ++lane) {
          isa::Gemm g = signs({}, (kh + kw) % 4);
          g.inp_zero = static_cast<int16_t>(g.inp_unsigned ? 200 : -100);
          g.wgt_unsigned = false;
          g.mode = isa::GemmMode::kDepthwise;
          g.lane = static_cast<uint8_t>(lane);
          g.reduce = static_cast<uint8_t>(kh == 1 ? 1 + kw % 3 : 2 + kw % 2);
          g.extent = {1, 2, 2, 1, static_cast<uint16_t>(kh), static_cast<uint16_t>(kw)};
          if (g.reduce >= 3) g.extent[3] = 2;
          if (g.reduce < 2) g.extent[4] = 3;
          g.inp_stride = {0, 2, 1, 1, 2, static_cast<int16_t>(kw % 2 == 0 ? 1 : -1)};
          if (kw % 2 == 1) g.inp_addr = 16;
          g.wgt_stride = {0, 1, 0, static_cast<int16_t>(g.reduce >= 3 ? 1 : 0), 0, 0};
          g.acc_stride = {0, 2, 1, 0, 0, 0};
          if (g.reduce < 2) g.acc_stride[4] = 1;
          g.accumulate = kw % 3 == 0;
          rig.run({g});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::sim
