// SPDX-License-Identifier: Apache-2.0
// Words against bytes computed by hand from the bit positions of isa.toml, random round trips, and what decode refuses.
#include <gtest/gtest.h>

#include "base/error.h"
#include "isa/random_instruction.h"

namespace tessera::isa {
namespace {

void set_bits(Word& word, int lsb, int width, uint64_t value) {
  for (int k = 0; k < width; ++k) {
    if (value >> k & 1) word[(lsb + k) / 8] |= static_cast<uint8_t>(1u << ((lsb + k) % 8));
  }
}

TEST(Encoding, GemmByHand) {
  Gemm gemm{.inp_addr = 5, .wgt_addr = 0x3fff, .inp_zero = -128, .reduce = 3, .mode = GemmMode::kDepthwise, .lane = 9};
  gemm.header.signal = true;
  gemm.header.waits[1] = {true, Engine::kAlu, 0xbeef};
  gemm.extent = {1, 2, 3, 4, 5, 4095};
  gemm.acc_stride = {-1, 0, 0, 0, 0, -8192};
  Word expected{};
  set_bits(expected, 0, 6, 5);
  set_bits(expected, 6, 1, 1);
  set_bits(expected, 26, 1, 1);  // wait 1 starts at 7 + 19
  set_bits(expected, 27, 2, 2);
  set_bits(expected, 29, 16, 0xbeef);
  for (int k = 0; k < 6; ++k) set_bits(expected, 64 + 12 * k, 12, gemm.extent[k]);
  set_bits(expected, 136, 14, 5);
  set_bits(expected, 150, 14, 0x3fff);
  set_bits(expected, 346, 14, 0x3fff);
  set_bits(expected, 346 + 5 * 14, 14, 0x2000);
  set_bits(expected, 430, 9, 0x180);
  set_bits(expected, 450, 3, 3);
  set_bits(expected, 454, 2, 1);
  set_bits(expected, 456, 5, 9);
  EXPECT_EQ(encode(gemm), expected);
  EXPECT_EQ(decode(expected).instruction, Instruction(gemm));
}

TEST(Encoding, LoadByHand) {
  Load load{.space = Space::kTable,
            .fill = true,
            .base = 15,
            .dram_offset = 0xfedcba987,
            .length = 0xffff,
            .sp_addr = 0x3fffff};
  load.dram_stride = {INT32_MIN, 0, 0, INT32_MAX};
  load.pad_after = {0, 0xfff};
  load.pad_value = 0x80;
  Word expected{};
  set_bits(expected, 0, 6, 3);
  set_bits(expected, 64, 3, 5);
  set_bits(expected, 67, 1, 1);
  set_bits(expected, 68, 4, 15);
  set_bits(expected, 72, 36, 0xfedcba987);
  set_bits(expected, 108, 16, 0xffff);
  set_bits(expected, 124, 22, 0x3fffff);
  for (int k = 0; k < 4; ++k) set_bits(expected, 146 + 16 * k, 16, 1);
  set_bits(expected, 210, 32, 0x80000000);
  set_bits(expected, 210 + 96, 32, 0x7fffffff);
  set_bits(expected, 462, 12, 0xfff);
  set_bits(expected, 474, 8, 0x80);
  EXPECT_EQ(encode(load), expected);
  EXPECT_EQ(decode(expected).instruction, Instruction(load));
}

TEST(Encoding, DefaultsAreOneIterationAndNoParameterLoop) {
  const Alu alu;
  for (int e : alu.extent) EXPECT_EQ(e, 1);
  EXPECT_EQ(alu.param_loop, 7);
  const Store store;
  for (int e : store.extent) EXPECT_EQ(e, 1);
}

TEST(Encoding, RandomInstructionsRoundTrip) {
  std::mt19937_64 random(1);
  for (size_t kind = 0; kind < kInstructions.size(); ++kind) {
    for (int k = 0; k < 10000; ++k) {
      const Instruction instruction = random_instruction(random, kind);
      ASSERT_EQ(instruction.index(), kind);
      const Word word = encode(instruction);
      const Decoded decoded = decode(word);
      ASSERT_EQ(decoded.fault, Fault::kNone);
      ASSERT_EQ(*decoded.instruction, instruction);
    }
  }
}

TEST(Encoding, EveryBitBelongsToTheInstructionOrFaults) {
  // Flipping a bit gives another instruction, another opcode or a fault: no bit is ignored.
  std::mt19937_64 random(2);
  for (size_t kind = 0; kind < kInstructions.size(); ++kind) {
    const Instruction instruction = random_instruction(random, kind);
    for (int bit = 0; bit < 8 * kInstructionBytes; ++bit) {
      Word word = encode(instruction);
      word[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
      const Decoded decoded = decode(word);
      if (decoded.fault == Fault::kNone) {
        EXPECT_NE(*decoded.instruction, instruction) << "bit " << bit;
      }
      EXPECT_EQ(decoded.fault == Fault::kNone, decoded.instruction.has_value());
    }
  }
}

TEST(Encoding, DecodeRefuses) {
  Word word{};
  EXPECT_EQ(decode(word).fault, Fault::kIllegalOpcode);
  word[0] = 63;
  EXPECT_EQ(decode(word).fault, Fault::kIllegalOpcode);
  word = encode(Finish{});
  word[63] = 0x80;
  EXPECT_EQ(decode(word).fault, Fault::kIllegalOperand);
  word = encode(Load{});
  word[8] = 6;  // no such space
  EXPECT_EQ(decode(word).fault, Fault::kIllegalOperand);
  word = encode(Alu{});
  set_bits(word, 453, 2, 3);  // no such source
  EXPECT_EQ(decode(word).fault, Fault::kIllegalOperand);
}

TEST(Encoding, EncodeRefusesWhatDoesNotFit) {
  const auto message = [](const Instruction& instruction) {
    try {
      encode(instruction);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidProgram);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  Gemm gemm;
  gemm.extent[2] = 4096;
  EXPECT_EQ(message(gemm), "gemm.extent[2] = 4096 does not fit its field of 12 bits");
  EXPECT_EQ(message(Gemm{.inp_zero = 256}), "gemm.inp_zero = 256 does not fit its field of 9 bits");
  EXPECT_EQ(message(Load{.dram_offset = uint64_t{1} << 36}),
            "load.dram_offset = 68719476736 does not fit its field of 36 bits");
  EXPECT_EQ(message(Fence{.engine = static_cast<Engine>(4)}), "fence.engine = 4 does not fit its field of 2 bits");
}

TEST(Encoding, EngineOf) {
  EXPECT_EQ(engine_of(Finish{}), std::nullopt);
  EXPECT_EQ(engine_of(Fence{.engine = Engine::kAlu}), Engine::kAlu);
  EXPECT_EQ(engine_of(Load{}), Engine::kLoad);
  EXPECT_EQ(engine_of(Store{}), Engine::kStore);
  EXPECT_EQ(engine_of(Gemm{}), Engine::kGemm);
  EXPECT_EQ(engine_of(Alu{}), Engine::kAlu);
}

}  // namespace
}  // namespace tessera::isa
