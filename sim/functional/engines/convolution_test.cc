// SPDX-License-Identifier: Apache-2.0
// A whole layer: a quantised 3x3 convolution in stripes, double-buffered so that LOAD, GEMM, ALU and STORE overlap,
// against plain loops over pixels; and mutations of the program. Each must be noticed: a wrong result, a race, or a
// fault.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "isa/verify/verify.h"
#include "sim/functional/machine.h"

namespace tessera::sim {
namespace {

using isa::Engine;

constexpr int kHeight = 14, kWidth = 9, kIn = 32, kOut = 48, kKernel = 3, kPad = 1;
constexpr int kInputZero = 113, kOutputZero = -9;
constexpr int kStripe = 4;  // output rows

enum class Base : uint8_t { kInput, kWeights, kParam, kOutput };

/// What a mutation changes, beyond editing instructions.
struct Plan {
  int halo_above = kPad;  // rows a stripe needs above its first
  int pad_value = kInputZero;
  bool swap_kernel_axes = false;
};

class Convolution {
 public:
  explicit Convolution(const isa::MachineConfig& machine_config) : config(machine_config) {
    std::mt19937 random(5);
    input.resize(kHeight * kWidth * kIn);
    for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
    weights.resize(kOut * kKernel * kKernel * kIn);  // [o][kh][kw][c]
    for (int8_t& byte : weights) byte = static_cast<int8_t>(random());
    for (int o = 0; o < kOut; ++o) {
      bias.push_back(static_cast<int32_t>(random() % 20000) - 10000);
      scale.push_back(std::ldexp(1.0f + static_cast<float>(random() % 1024) / 1024, -11));
    }
  }

  /// NHWC int8.
  std::vector<int8_t> expected() const {
    std::vector<int8_t> output;
    for (int y = 0; y < kHeight; ++y)
      for (int x = 0; x < kWidth; ++x)
        for (int o = 0; o < kOut; ++o) {
          int32_t sum = bias[o];
          for (int kh = 0; kh < kKernel; ++kh)
            for (int kw = 0; kw < kKernel; ++kw) {
              const int iy = y + kh - kPad, ix = x + kw - kPad;
              if (iy < 0 || iy >= kHeight || ix < 0 || ix >= kWidth) continue;  // padding is the zero point
              for (int c = 0; c < kIn; ++c) {
                sum += (input[(iy * kWidth + ix) * kIn + c] - kInputZero) *
                       weights[((o * kKernel + kh) * kKernel + kw) * kIn + c];
              }
            }
          const float g = static_cast<float>(sum) * scale[o];
          const float clamped = std::fmin(std::fmax(g, -128.0f - kOutputZero), 127.0f - kOutputZero);
          output.push_back(static_cast<int8_t>(static_cast<int>(std::nearbyint(clamped)) + kOutputZero));
        }
    return output;
  }

  std::vector<isa::Instruction> program(const Plan& plan) const {
    const int I = config.block_in, O = config.block_out;
    const int ib = kIn / I, ob = kOut / O;
    const int pitch = (kWidth + 2 * kPad) * ib;  // INP entries of a row
    const int inp_buffer = (kStripe + kKernel - 1) * pitch;
    const int out_buffer = kStripe * kWidth * ob;
    std::vector<isa::Instruction> program;
    std::array<int, 4> signals{};
    const auto add = [&](isa::Instruction instruction, std::vector<isa::Wait> waits) {
      isa::Header& header = isa::header_of(instruction);
      header.signal = true;
      std::erase_if(waits, [](const isa::Wait& wait) { return wait.count == 0; });
      std::copy(waits.begin(), waits.end(), header.waits.begin());
      program.push_back(instruction);
      return ++signals[static_cast<size_t>(*isa::engine_of(instruction))];
    };
    const auto after = [](Engine engine, int count) {
      return isa::Wait{count > 0, engine, static_cast<uint16_t>(std::max(count, 0))};
    };
    isa::Load weight_load;
    weight_load.space = isa::Space::kWgt;
    weight_load.base = static_cast<uint8_t>(Base::kWeights);
    weight_load.length = static_cast<uint16_t>(config.wgt_entry_bytes());
    weight_load.extent[3] = static_cast<uint16_t>(ob * kKernel * kKernel * ib);
    weight_load.sp_stride[3] = weight_load.dram_stride[3] = weight_load.length;
    add(weight_load, {});
    isa::Load param_load;
    param_load.space = isa::Space::kParam;
    param_load.base = static_cast<uint8_t>(Base::kParam);
    param_load.length = static_cast<uint16_t>(ob * config.param_entry_bytes());
    add(param_load, {});
    std::array<int, 2> loaded{}, multiplied{}, converted{}, stored{};  // signal counts of the last use of each buffer
    for (int row = 0, stripe = 0; row < kHeight; row += kStripe, ++stripe) {
      const int b = stripe % 2;
      const int rows = std::min(kStripe, kHeight - row);
      isa::Load load;
      const int first = row - plan.halo_above;
      const int last = row + rows - 1 + kPad;
      load.space = isa::Space::kInp;
      load.base = static_cast<uint8_t>(Base::kInput);
      load.pad_before = {static_cast<uint16_t>(std::max(0, -first)), kPad};
      load.pad_after = {static_cast<uint16_t>(std::max(0, last - (kHeight - 1))), kPad};
      load.dram_offset = static_cast<uint64_t>(std::max(first, 0)) * kWidth * kIn;
      load.length = kIn;
      load.extent = {static_cast<uint16_t>(last - first + 1), kWidth + 2 * kPad, 1, 1};
      load.dram_stride = {kWidth * kIn, kIn, 0, 0};
      load.sp_stride = {pitch * I, kIn, 0, 0};
      load.sp_addr = static_cast<uint32_t>(b * inp_buffer * I);
      load.pad_value = static_cast<uint8_t>(plan.pad_value);
      loaded[b] = add(load, {after(Engine::kGemm, multiplied[b])});
      isa::Gemm gemm;  // oh, ow, oc, kh, kw, ic
      gemm.extent = {static_cast<uint16_t>(rows), kWidth, static_cast<uint16_t>(ob), kKernel, kKernel,
                     static_cast<uint16_t>(ib)};
      gemm.inp_addr = static_cast<uint16_t>(b * inp_buffer);
      gemm.acc_addr = static_cast<uint16_t>(b * out_buffer);
      const auto p = static_cast<int16_t>(pitch), c = static_cast<int16_t>(ib);
      gemm.inp_stride = {p, c, 0, p, c, 1};
      gemm.wgt_stride = {0, 0, static_cast<int16_t>(9 * ib), static_cast<int16_t>(3 * ib), c, 1};
      if (plan.swap_kernel_axes) std::swap(gemm.wgt_stride[3], gemm.wgt_stride[4]);
      gemm.acc_stride = {static_cast<int16_t>(kWidth * ob), static_cast<int16_t>(ob), 1, 0, 0, 0};
      gemm.inp_unsigned = true;
      gemm.inp_zero = kInputZero;
      gemm.reduce = 3;
      multiplied[b] = add(gemm, {after(Engine::kLoad, loaded[b]), after(Engine::kAlu, converted[b])});
      isa::Alu alu;
      alu.extent = {1, 1, 1, 1, static_cast<uint16_t>(rows * kWidth), static_cast<uint16_t>(ob)};
      alu.src_stride = alu.dst_stride = {0, 0, 0, 0, static_cast<int16_t>(ob), 1};
      alu.src_addr = alu.dst_addr = static_cast<uint16_t>(b * out_buffer);
      alu.dst = isa::AluSpace::kOut;
      alu.convert = true;
      alu.param_loop = 5;
      alu.low = -128 - kOutputZero;
      alu.high = 127 - kOutputZero;
      alu.out_zero = kOutputZero;
      // PARAM was loaded before the input that GEMM has waited for.
      converted[b] = add(alu, {after(Engine::kGemm, multiplied[b]), after(Engine::kStore, stored[b])});
      isa::Store store;
      store.space = isa::Space::kOut;
      store.base = static_cast<uint8_t>(Base::kOutput);
      store.sp_addr = static_cast<uint32_t>(b * out_buffer * O);
      store.dram_offset = static_cast<uint64_t>(row) * kWidth * kOut;
      store.length = static_cast<uint16_t>(kWidth * kOut);
      store.extent[3] = static_cast<uint16_t>(rows);
      store.sp_stride[3] = store.dram_stride[3] = kWidth * kOut;
      stored[b] = add(store, {after(Engine::kAlu, converted[b])});
    }
    program.push_back(isa::Finish{});
    return program;
  }

  struct Result {
    bool ok;
    bool equal;
    size_t races;
    bool noticed() const { return !ok || !equal || races > 0; }
  };

  Result run(const std::vector<isa::Instruction>& program, Kernels kernels = default_kernels()) const {
    const int I = config.block_in, O = config.block_out;
    std::vector<uint8_t> w, p, in = input, out(kHeight * kWidth * kOut, 0xee);
    for (int o0 = 0; o0 < kOut; o0 += O)
      for (int tap = 0; tap < 9; ++tap)
        for (int c0 = 0; c0 < kIn; c0 += I)
          for (int o = o0; o < o0 + O; ++o)
            for (int c = c0; c < c0 + I; ++c) w.push_back(static_cast<uint8_t>(weights[(o * 9 + tap) * kIn + c]));
    for (int o0 = 0; o0 < kOut; o0 += O) {
      const auto* b = reinterpret_cast<const uint8_t*>(bias.data() + o0);
      const auto* s = reinterpret_cast<const uint8_t*>(scale.data() + o0);
      p.insert(p.end(), b, b + 4 * O);
      p.insert(p.end(), s, s + 4 * O);
    }
    Machine machine(config, kernels);
    machine.poison(11);
    RunRequest request;
    std::vector<DramRegion> regions;
    for (std::vector<uint8_t>* bytes : {&in, &w, &p, &out}) {
      request.bases[regions.size()] = (regions.size() + 1) << 20;
      regions.push_back({request.bases[regions.size()], bytes->data(), bytes->size()});
    }
    request.instructions = program;
    request.dram = regions;
    request.check_races = true;
    const RunResult result = machine.run(request);
    const auto wanted = expected();
    return {result.ok(), std::memcmp(wanted.data(), out.data(), out.size()) == 0, result.races.size()};
  }

  isa::MachineConfig config;
  std::vector<uint8_t> input;
  std::vector<int8_t> weights;
  std::vector<int32_t> bias;
  std::vector<float> scale;
};

TEST(ConvolutionLayer, EqualsPlainLoopsWithoutRaces) {
  for (const char* name : {"npu64", "npu256"}) {
    const Convolution layer(isa::find_config(name));
    const auto program = layer.program({});
    isa::check_program(program, layer.config);
    for (const Kernels kernels : {Kernels::kPortable, Kernels::kAvx2, Kernels::kAvx512}) {
      if (!supported(kernels)) continue;
      const auto result = layer.run(program, kernels);
      EXPECT_TRUE(result.ok);
      EXPECT_TRUE(result.equal) << name << " " << to_string(kernels);
      EXPECT_EQ(result.races, 0u);
    }
  }
}

TEST(ConvolutionLayer, WrongPlansGiveWrongResults) {
  const Convolution layer(isa::find_config("npu256"));
  Plan plan;
  plan.halo_above = 0;  // off by one
  EXPECT_FALSE(layer.run(layer.program(plan)).equal);
  plan = {};
  plan.pad_value = 0;  // not the zero point
  EXPECT_FALSE(layer.run(layer.program(plan)).equal);
  plan = {};
  plan.swap_kernel_axes = true;
  EXPECT_FALSE(layer.run(layer.program(plan)).equal);
}

TEST(ConvolutionLayer, EveryConditionIsNeeded) {
  const Convolution layer(isa::find_config("npu256"));
  const auto program = layer.program({});
  int dropped = 0;
  for (size_t n = 0; n < program.size(); ++n) {
    for (int k = 0; k < isa::kWaits; ++k) {
      auto mutant = program;
      isa::Wait& wait = isa::header_of(mutant[n]).waits[k];
      if (!wait.enable) continue;
      wait.enable = false;
      const auto result = layer.run(mutant);
      EXPECT_TRUE(result.ok && result.equal) << "stream order hides it";
      EXPECT_GT(result.races, 0u) << "instruction " << n << ", condition " << k;
      ++dropped;
      mutant = program;
      --isa::header_of(mutant[n]).waits[k].count;  // one signal too early
      EXPECT_TRUE(layer.run(mutant).noticed()) << "instruction " << n << ", condition " << k;
    }
  }
  EXPECT_GT(dropped, 15);
  // A dropped signal makes all later conditions on its engine wait for one more: for ever where the last is needed.
  // Buffers are reused two stripes later, so that STORE's last signals are not, and waiting longer is no error.
  for (size_t n = 0; n + 1 < program.size(); ++n) {
    auto mutant = program;
    isa::header_of(mutant[n]).signal = false;
    const auto result = layer.run(mutant);
    EXPECT_EQ(result.ok, std::holds_alternative<isa::Store>(program[n])) << "instruction " << n;
    if (result.ok) {
      EXPECT_FALSE(result.noticed()) << "instruction " << n;
    }
  }
}

TEST(ConvolutionLayer, EditedInstructionsAreNoticed) {
  const Convolution layer(isa::find_config("npu256"));
  const auto program = layer.program({});
  const auto edit = [&](auto kind, auto&& change) {
    using Kind = decltype(kind);
    auto mutant = program;
    for (isa::Instruction& instruction : mutant) {
      if (auto* i = std::get_if<Kind>(&instruction)) change(*i);
    }
    EXPECT_TRUE(layer.run(mutant).noticed());
  };
  edit(isa::Gemm{}, [](isa::Gemm& i) { ++i.inp_addr; });
  edit(isa::Gemm{}, [](isa::Gemm& i) { ++i.inp_zero; });
  edit(isa::Gemm{}, [](isa::Gemm& i) { i.inp_unsigned = false, i.inp_zero = 0; });
  edit(isa::Gemm{}, [](isa::Gemm& i) { i.wgt_unsigned = true; });
  edit(isa::Gemm{}, [](isa::Gemm& i) { i.accumulate = true; });
  edit(isa::Gemm{}, [](isa::Gemm& i) { --i.extent[3]; });
  edit(isa::Gemm{}, [](isa::Gemm& i) { --i.extent[0]; });
  edit(isa::Gemm{}, [](isa::Gemm& i) { i.reduce = 2; });
  edit(isa::Alu{}, [](isa::Alu& i) { i.convert = false, i.param_loop = 7; });
  edit(isa::Alu{}, [](isa::Alu& i) { i.param_loop = 7; });
  edit(isa::Alu{}, [](isa::Alu& i) { ++i.out_zero; });
  edit(isa::Alu{}, [](isa::Alu& i) { ++i.low; });
  edit(isa::Alu{}, [](isa::Alu& i) { --i.high; });
  edit(isa::Alu{}, [](isa::Alu& i) { --i.extent[5]; });
  edit(isa::Load{}, [](isa::Load& i) { i.pad_before[1] = 0, i.pad_after[1] = i.pad_after[1] ? 2 : 0; });
  edit(isa::Load{}, [](isa::Load& i) { --i.length; });
  edit(isa::Load{}, [](isa::Load& i) { ++i.dram_offset; });
  edit(isa::Store{}, [](isa::Store& i) { --i.length; });
  edit(isa::Store{}, [](isa::Store& i) { --i.extent[3]; });
}

}  // namespace
}  // namespace tessera::sim
