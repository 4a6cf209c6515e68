// SPDX-License-Identifier: Apache-2.0
// The ALU's numbers by hand: ties, saturation, NaN, infinities, subnormals, wrap-around, fused multiply-add, order of
// iterations. Expected values are written down or computed in exact integer or double arithmetic, not in the
// simulator's way.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "isa/second_operation.h"
#include "sim/functional/machine.h"

namespace tessera::sim {
namespace {

using isa::AluSpace;
using isa::Space;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class AluTest : public ::testing::TestWithParam<Kernels> {
 protected:
  void SetUp() override {
    if (!supported(GetParam())) GTEST_SKIP() << "this processor lacks " << to_string(GetParam());
  }

  isa::MachineConfig config = isa::find_config("npu256");
  Machine machine{config, supported(GetParam()) ? GetParam() : Kernels::kPortable};

  template <typename T>
  void put(Space space, size_t offset, const std::vector<T>& values) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    machine.write_scratchpad(space, offset, std::span<const uint8_t>(bytes, values.size() * sizeof(T)));
  }

  template <typename T>
  std::vector<T> get(Space space, size_t offset, size_t count) {
    std::vector<T> values(count);
    std::memcpy(values.data(), machine.scratchpad(space).data() + offset, count * sizeof(T));
    return values;
  }

  void run(const isa::Alu& alu) {
    const std::vector<isa::Instruction> program{alu, isa::Finish{}};
    RunRequest request;
    request.instructions = program;
    const RunResult result = machine.run(request);
    ASSERT_TRUE(result.ok()) << to_string(result.fault.code);
  }

  /// An integer and a scale whose product lies just above 64.5 and rounds to 64.5. Less 64 it is a tie, which becomes
  /// 0, when the product was rounded, and becomes 1 when it was not.
  static std::pair<int, float> almost_tie() {
    for (int p = 127; p > 0; --p) {
      const auto scale = static_cast<float>(64.5L / p);
      const long double product = static_cast<long double>(p) * scale;
      if (product > 64.5L && static_cast<float>(product) == 64.5f) return {p, scale};
    }
    ADD_FAILURE() << "there is none";
    return {1, 1.0f};
  }

  /// A conversion to OUT with the full range of the clamp.
  static isa::Alu conversion(int low = -512, int high = 511, int zero = 0) {
    isa::Alu alu;
    alu.convert = true;
    alu.dst = AluSpace::kAcc;
    alu.dst_addr = 1;
    alu.low = static_cast<int16_t>(low);
    alu.high = static_cast<int16_t>(high);
    alu.out_zero = static_cast<int16_t>(zero);
    return alu;
  }

  /// PARAM entry 0 for all 16 lanes.
  void param(const std::vector<int32_t>& bias, const std::vector<float>& scale) {
    put(Space::kParam, 0, bias);
    put(Space::kParam, 64, scale);
  }

  /// PARAM entry 1: the constants of a second operation whose operands are bytes.
  void constants(const isa::FloatSecond& second) {
    const auto fixed = isa::fixed_second(second, {-128, 255}, {-128, 255});
    ASSERT_TRUE(fixed);
    const auto bytes = isa::encode_second(*fixed);
    put(Space::kParam, 128, std::vector<uint8_t>(bytes.begin(), bytes.end()));
  }
};

TEST_P(AluTest, TiesRoundToEven) {
  put<int32_t>(Space::kAcc, 0, {1, 3, 5, 7, -1, -3, -5, -7, 2, -2, 9, 11, 1021, -1023, 0, 13});
  param(std::vector<int32_t>(16, 0), std::vector<float>(16, 0.5f));
  run(conversion());
  // 0.5 1.5 2.5 3.5 ... 510.5 -511.5
  EXPECT_EQ(get<int32_t>(Space::kAcc, 64, 16),
            (std::vector<int32_t>{0, 2, 2, 4, 0, -2, -2, -4, 1, -1, 4, 6, 510, -512, 0, 6}));
}

TEST_P(AluTest, ClampComesBeforeRoundingAndZeroPointAfter) {
  put<int32_t>(Space::kAcc, 0, {255, 256, 257, 1000000, -1, -255, -256, -257, -1000000, 0, 127, 128, 254, 253, 1, 2});
  param(std::vector<int32_t>(16, 0), std::vector<float>(16, 0.5f));
  run(conversion(-128, 127, 5));
  EXPECT_EQ(get<int32_t>(Space::kAcc, 64, 16),
            (std::vector<int32_t>{132, 132, 132, 132, 5, -123, -123, -123, -123, 5, 69, 69, 132, 131, 5, 6}));
}

TEST_P(AluTest, NotANumberInfinityAndTinyScales) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  put<int32_t>(Space::kAcc, 0, {1, 1, -1, 0, 0, 1, -1, 1, 1 << 30, 1 << 30, 1 << 30, 3, -3, 1, -1, 7});
  param(std::vector<int32_t>(16, 0), {kNan, kInf, kInf, kInf, kNan, -kNan, -kInf, 3e38f, std::ldexp(tiny, 20),
                                      std::ldexp(tiny, 119), std::ldexp(tiny, 118), 1e38f, 1e38f, tiny, -tiny, -0.0f});
  run(conversion(-100, 100));
  // 0 * infinity is NaN. 2^30 * 2^-129 is 0, 2^30 * 2^-30 is 1, 2^30 * 2^-31 rounds to 0.
  EXPECT_EQ(get<int32_t>(Space::kAcc, 64, 16),
            (std::vector<int32_t>{-100, 100, -100, -100, -100, -100, 100, 100, 0, 1, 0, 100, -100, 0, 0, 0}));
}

TEST_P(AluTest, RoundingOfTheSumIsVisibleAtATie) {
  // Sum 2^25 + 2 rounds to 2^25 (even), 2^25 + 6 to 2^25 + 8. Scale so that 2^25 is exactly 100.5: a value above would
  // give 101.
  const float scale = 100.5f / 33554432.0f;  // exact: a power of two
  put<int32_t>(Space::kAcc, 0,
               {33554432, 33554434, 33554438, 33554430, 33554433, 33554435, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  param(std::vector<int32_t>(16, 0), std::vector<float>(16, scale));
  run(conversion());
  EXPECT_EQ(get<int32_t>(Space::kAcc, 64, 6), (std::vector<int32_t>{100, 100, 101, 100, 100, 101}));
}

TEST_P(AluTest, BiasWraps) {
  put<int32_t>(Space::kAcc, 0, {INT32_MAX, INT32_MIN, 10, -10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
  param({1, -1, -20, 20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, std::vector<float>(16, 1.0f));
  run(conversion());
  EXPECT_EQ(get<int32_t>(Space::kAcc, 64, 4), (std::vector<int32_t>{-512, 511, -10, 10}));
}

TEST_P(AluTest, SumWrapsAndMaxIsSigned) {
  put<int32_t>(Space::kAcc, 0, std::vector<int32_t>(16, INT32_MAX));
  put<int32_t>(Space::kAcc, 64, std::vector<int32_t>(16, 2));
  put<int32_t>(Space::kAcc, 128, std::vector<int32_t>(16, -7));
  isa::Alu alu;
  alu.extent[5] = 3;
  alu.src_stride[5] = 1;
  alu.reduce = 1;
  alu.dst_addr = 3;
  run(alu);
  EXPECT_EQ(get<int32_t>(Space::kAcc, 192, 1)[0], INT32_MAX - 5);
  alu.reduce_op = isa::ReduceOp::kMax;
  alu.src_addr = 1;
  alu.extent[5] = 2;
  run(alu);
  EXPECT_EQ(get<int32_t>(Space::kAcc, 192, 1)[0], 2);
  // Bytes as uint8 and as int8.
  put<uint8_t>(Space::kOut, 0, std::vector<uint8_t>(16, 200));
  put<uint8_t>(Space::kOut, 16, std::vector<uint8_t>(16, 100));
  alu.src = AluSpace::kOut;
  alu.src_addr = 0;
  run(alu);
  EXPECT_EQ(get<int32_t>(Space::kAcc, 192, 1)[0], 100);
  alu.src_unsigned = true;
  run(alu);
  EXPECT_EQ(get<int32_t>(Space::kAcc, 192, 1)[0], 200);
  alu.reduce_op = isa::ReduceOp::kSum;
  run(alu);
  EXPECT_EQ(get<int32_t>(Space::kAcc, 192, 1)[0], 300);
}

TEST_P(AluTest, IntegerClamp) {
  put<int32_t>(Space::kAcc, 0, {-1000, -129, -128, 0, 127, 128, 1000, INT32_MIN, INT32_MAX, 1, 2, 3, 4, 5, 6, 7});
  isa::Alu alu;
  alu.dst = AluSpace::kOut;
  alu.low = -128;
  alu.high = 120;
  alu.out_zero = 3;
  run(alu);
  EXPECT_EQ(get<int8_t>(Space::kOut, 0, 10), (std::vector<int8_t>{-125, -125, -125, 3, 123, 123, 123, -125, 123, 4}));
}

TEST_P(AluTest, AddIsFusedTwice) {
  // Random scales over all pairs of bytes: compare with exact products in long double, rounded once for each fma.
  std::mt19937 random(3);
  put<uint8_t>(Space::kTable, 0, std::vector<uint8_t>(256));
  for (int round = 0; round < 6; ++round) {
    const float rx = std::ldexp(static_cast<float>(1 + random() % 0xffffff), -24);
    const float ry = std::ldexp(static_cast<float>(1 + random() % 0xffffff), -24);
    const float f = std::ldexp(static_cast<float>(random() % 0xffffff), -17) - 64;
    constants({.operation = isa::SecondOp::kAdd, .rx = rx, .ry = ry, .f = f, .low = 0, .high = 255});
    for (int block = 0; block < 16; ++block) {
      std::vector<uint8_t> x(256 * 16), y(256 * 16);
      for (int k = 0; k < 4096; ++k) {
        x[k] = static_cast<uint8_t>(k % 256);
        y[k] = static_cast<uint8_t>(block * 16 + k / 256);
      }
      put(Space::kInp, 0, x);
      put(Space::kOut, 0, y);
      isa::Alu alu;
      alu.src = AluSpace::kInp;
      alu.dst = AluSpace::kOut;
      alu.src_unsigned = true;
      alu.high = 255;
      alu.second_op = isa::SecondOp::kAdd;
      alu.second_unsigned = true;
      alu.second_swap = round % 2 == 1;
      alu.constant_addr = 1;
      alu.extent[5] = 256;
      alu.src_stride[5] = alu.dst_stride[5] = alu.second_stride[5] = 1;
      run(alu);
      const auto actual = get<uint8_t>(Space::kOut, 0, 4096);
      for (int k = 0; k < 4096; ++k) {
        const int first = alu.second_swap ? y[k] : x[k], second = alu.second_swap ? x[k] : y[k];
        // An 8-bit times a 24-bit integer and a 24-bit sum are exact in 64 bits.
        const auto inner = static_cast<float>(static_cast<long double>(second) * ry + f);
        const auto g = static_cast<float>(static_cast<long double>(first) * rx + inner);
        const double clamped = g < 0 ? 0 : (g > 255 ? 255 : g);
        const double low = std::floor(clamped), rest = clamped - low;
        const double expected = rest > 0.5 || (rest == 0.5 && std::fmod(low, 2) == 1) ? low + 1 : low;
        ASSERT_EQ(actual[k], static_cast<uint8_t>(expected)) << first << " " << second;
      }
    }
  }
}

TEST_P(AluTest, AddRoundsEachProductTogetherWithItsAddend) {
  const auto [p, scale] = almost_tie();
  put<uint8_t>(Space::kInp, 0, std::vector<uint8_t>(16, static_cast<uint8_t>(p)));
  put<uint8_t>(Space::kOut, 0, std::vector<uint8_t>(16, static_cast<uint8_t>(p)));
  isa::Alu alu;
  alu.src = AluSpace::kInp;
  alu.dst = AluSpace::kOut;
  alu.dst_addr = 1;
  alu.high = 127;
  alu.second_op = isa::SecondOp::kAdd;
  alu.constant_addr = 1;
  constants(
      {.operation = isa::SecondOp::kAdd, .rx = scale, .ry = 0, .f = -64, .low = -128, .high = 127});  // the outer one
  run(alu);
  EXPECT_EQ(get<int8_t>(Space::kOut, 16, 16), std::vector<int8_t>(16, 1));
  constants(
      {.operation = isa::SecondOp::kAdd, .rx = 0, .ry = scale, .f = -64, .low = -128, .high = 127});  // the inner one
  run(alu);
  EXPECT_EQ(get<int8_t>(Space::kOut, 16, 16), std::vector<int8_t>(16, 1));
}

TEST_P(AluTest, MultiplyRoundsOnceOrTwice) {
  const auto [p, rx] = almost_tie();
  put<uint8_t>(Space::kInp, 0, std::vector<uint8_t>(16, static_cast<uint8_t>(p)));
  put<uint8_t>(Space::kOut, 0, std::vector<uint8_t>(16, 1));
  isa::Alu alu;
  alu.src = AluSpace::kInp;
  alu.dst = AluSpace::kOut;
  alu.low = -128;
  alu.high = 127;
  alu.second_op = isa::SecondOp::kMul;
  alu.constant_addr = 1;
  alu.dst_addr = 1;
  const auto result = [&](float f, bool fused) {
    constants({.operation = isa::SecondOp::kMul, .rx = rx, .f = f, .low = -128, .high = 127, .fused = fused});
    run(alu);
    return get<int8_t>(Space::kOut, 16, 16);
  };
  EXPECT_EQ(result(-64.0f, false), std::vector<int8_t>(16, 0));
  EXPECT_EQ(result(-64.0f, true), std::vector<int8_t>(16, 1));
  // Zero points of both operands, subtracted before the product; the zero point of the result after.
  constants(
      {.operation = isa::SecondOp::kMul, .rx = 0.0625f, .zx = 10, .zy = -20, .low = -500, .high = 500, .zero = 7});
  run(alu);
  EXPECT_EQ(get<int8_t>(Space::kOut, 16, 1)[0],
            static_cast<int8_t>(std::lrintf(static_cast<float>((p - 10) * (1 + 20)) * 0.0625f) + 7));
}

TEST_P(AluTest, MaximumMinimumAndTheirClamp) {
  put<int8_t>(Space::kInp, 0, {-128, -5, 0, 3, 127, 10, 20, 30, 1, 2, 3, 4, 5, 6, 7, 8});
  put<int8_t>(Space::kOut, 0, {0, -6, -1, 4, 126, -10, 21, 29, 1, 1, 1, 1, 9, 9, 9, 9});
  isa::Alu alu;
  alu.src = AluSpace::kInp;
  alu.dst = AluSpace::kOut;
  alu.dst_addr = 1;
  alu.low = -128;
  alu.high = 127;
  alu.second_op = isa::SecondOp::kMax;
  alu.constant_addr = 1;
  constants({.operation = isa::SecondOp::kMax, .low = -100, .high = 100, .zero = 1});
  run(alu);
  EXPECT_EQ(get<int8_t>(Space::kOut, 16, 8), (std::vector<int8_t>{1, -4, 1, 5, 101, 11, 22, 31}));
  constants({.operation = isa::SecondOp::kMax, .low = -100, .high = 100, .zero = 1, .minimum = true});
  run(alu);
  EXPECT_EQ(get<int8_t>(Space::kOut, 16, 8), (std::vector<int8_t>{-99, -5, 0, 4, 101, -9, 21, 30}));
}

TEST_P(AluTest, ConstantsBeyondTheFixedPointAreRefused) {
  const isa::FloatSecond good{
      .operation = isa::SecondOp::kAdd, .rx = 0.7f, .ry = 0.3f, .f = 1.5f, .low = -128, .high = 127};
  const auto fits = [](isa::FloatSecond second) {
    return isa::fixed_second(second, {-128, 255}, {-128, 255}).has_value();
  };
  const auto with = [&](auto change) {
    isa::FloatSecond second = good;
    change(second);
    return second;
  };
  EXPECT_TRUE(fits(good));
  for (const float value : {kNan, kInf, -kInf}) {
    EXPECT_FALSE(fits(with([&](auto& s) { s.rx = value; })));
    EXPECT_FALSE(fits(with([&](auto& s) { s.ry = value; })));
    EXPECT_FALSE(fits(with([&](auto& s) { s.f = value; })));
  }
  EXPECT_TRUE(fits(with([](auto& s) { s.rx = 0.7f / 4096; })));
  EXPECT_FALSE(fits(with([](auto& s) { s.rx = 0.7f / 262144; })));
  EXPECT_TRUE(fits(with([](auto& s) { s.rx = 1.0f / 262144; })));  // one bit reaches further down
  EXPECT_FALSE(fits(with([](auto& s) { s.ry = 1e6f; })));
  EXPECT_FALSE(fits(with([](auto& s) { s.low = -513; })));
  EXPECT_FALSE(fits(with([](auto& s) { s.low = 1, s.high = 0; })));
  EXPECT_FALSE(fits(with([](auto& s) { s.zero = 256; })));
  EXPECT_FALSE(fits(with([](auto& s) { s.operation = isa::SecondOp::kMul, s.zx = 255, s.zy = 255; })));  // 383 * 383
}

TEST_P(AluTest, TablesTakeTheLowByteAndTheirSign) {
  std::vector<uint8_t> negate(256), square(256);
  for (int k = 0; k < 256; ++k) {
    negate[k] = static_cast<uint8_t>(-k);
    square[k] = static_cast<uint8_t>(k * k);
  }
  put(Space::kTable, 256, negate);
  put(Space::kTable, 512, square);
  put<int32_t>(Space::kAcc, 0, {0, 1, -1, 127, -128, 255, 256, 300, 5, 6, 7, 8, 9, 10, 11, 12});
  isa::Alu alu;
  alu.dst = AluSpace::kOut;
  alu.low = -512;
  alu.high = 511;
  alu.table_enable = true;
  alu.table = 1;
  alu.second_op = isa::SecondOp::kMax;  // with the least value
  alu.constant_addr = 1;
  alu.second_addr = 1;
  put<int8_t>(Space::kOut, 16, std::vector<int8_t>(16, -128));
  constants({.operation = isa::SecondOp::kMax, .low = -500, .high = 500});
  alu.second_table_enable = true;
  alu.second_table = 2;
  run(alu);
  std::vector<uint8_t> expected;
  for (const int v : {0, 1, -1, 127, -128, 255, 256, 300, 5, 6, 7, 8, 9, 10, 11, 12})
    expected.push_back(static_cast<uint8_t>(v * v));
  EXPECT_EQ(get<uint8_t>(Space::kOut, 0, 16), expected);
  // The sign of a table's entries is seen by the second operation.
  alu.second_table_enable = false;
  alu.second_table = 0;
  alu.dst_addr = 2;
  put<int8_t>(Space::kOut, 16, std::vector<int8_t>(16, 10));
  constants({.operation = isa::SecondOp::kMax, .low = -500, .high = 500});
  run(alu);
  EXPECT_EQ(get<uint8_t>(Space::kOut, 32, 3),
            (std::vector<uint8_t>{10, 10, 10}));  // max(0, 10), max(-1, 10), max(1, 10)
  alu.table_unsigned = true;
  run(alu);
  EXPECT_EQ(get<uint8_t>(Space::kOut, 32, 3), (std::vector<uint8_t>{10, 255, 10}));
}

TEST_P(AluTest, LaterIterationsSeeEarlierOnes) {
  // A running sum: entry k + 1 = entry k + entry k + 1, by a reduction over two entries that overlap the destination.
  for (int k = 0; k < 6; ++k) put<int32_t>(Space::kAcc, static_cast<size_t>(64 * k), std::vector<int32_t>(16, 1 << k));
  isa::Alu alu;
  alu.extent = {1, 1, 1, 1, 5, 2};
  alu.src_stride = {0, 0, 0, 0, 1, 1};
  alu.dst_stride = {0, 0, 0, 0, 1, 0};
  alu.dst_addr = 1;
  alu.reduce = 1;
  run(alu);
  for (int k = 1; k < 6; ++k) EXPECT_EQ(get<int32_t>(Space::kAcc, static_cast<size_t>(64 * k), 1)[0], (2 << k) - 1);
}

TEST_P(AluTest, ParametersFollowTheirLoop) {
  put<int32_t>(Space::kAcc, 0, std::vector<int32_t>(6 * 16, 10));
  for (int entry = 0; entry < 3; ++entry) {
    put(Space::kParam, static_cast<size_t>(128 * (4 + entry)), std::vector<int32_t>(16, entry));
    put(Space::kParam, static_cast<size_t>(128 * (4 + entry) + 64),
        std::vector<float>(16, static_cast<float>(1 + entry)));
  }
  isa::Alu alu = conversion();
  alu.dst_addr = 6;
  alu.extent = {1, 1, 1, 1, 3, 2};
  alu.src_stride = alu.dst_stride = {0, 0, 0, 0, 2, 1};
  alu.param_addr = 4;
  alu.param_loop = 4;
  run(alu);
  std::vector<int32_t> firsts;
  for (int k = 0; k < 6; ++k) firsts.push_back(get<int32_t>(Space::kAcc, static_cast<size_t>(64 * (6 + k)), 1)[0]);
  EXPECT_EQ(firsts, (std::vector<int32_t>{10, 10, 22, 22, 36, 36}));
}

TEST_P(AluTest, InputScratchpadAsDestination) {
  put<int32_t>(Space::kAcc, 0, {1, -2, 300, -300, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15});
  isa::Alu alu;
  alu.dst = AluSpace::kInp;
  alu.dst_addr = 3;
  alu.low = -128;
  alu.high = 127;
  run(alu);
  EXPECT_EQ(get<int8_t>(Space::kInp, 48, 5), (std::vector<int8_t>{1, -2, 127, -128, 4}));
}

INSTANTIATE_TEST_SUITE_P(Kernels, AluTest, ::testing::Values(Kernels::kPortable, Kernels::kAvx2, Kernels::kAvx512),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace tessera::sim
