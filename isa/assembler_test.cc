// SPDX-License-Identifier: Apache-2.0
// Text round trips over random instructions, words that the Python encoder wrote, and error positions.
#include "isa/assembler.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"
#include "isa/random_instruction.h"

namespace tessera::isa {
namespace {

TEST(Assembler, ReadsTheManualsExample) {
  const auto program = assemble(
      "tile:  # a label\n\n"
      "gemm extent=1,1,14,14,9,4 inp_addr=0 wgt_addr=0x10 inp_stride=0,0,16,1,16,-1 reduce=2 wait=load:3,-,alu:1 "
      "signal\n"
      "  load space=wgt fill length=64 pad_value=0x80 wait=!store:9   # not enabled\n"
      "finish");
  Gemm gemm{.extent = {1, 1, 14, 14, 9, 4}, .wgt_addr = 16, .inp_stride = {0, 0, 16, 1, 16, -1}, .reduce = 2};
  gemm.header.signal = true;
  gemm.header.waits[0] = {true, Engine::kLoad, 3};
  gemm.header.waits[2] = {true, Engine::kAlu, 1};
  Load load{.space = Space::kWgt, .fill = true, .length = 64, .pad_value = 128};
  load.header.waits[0] = {false, Engine::kStore, 9};
  ASSERT_EQ(program.size(), 3u);
  EXPECT_EQ(program[0], Instruction(gemm));
  EXPECT_EQ(program[1], Instruction(load));
  EXPECT_EQ(program[2], Instruction(Finish{}));
}

TEST(Assembler, LeavesDefaultsOut) {
  EXPECT_EQ(disassemble(Gemm{}), "gemm");
  EXPECT_EQ(disassemble(Alu{.extent = {1, 3, 1, 1, 1, 1}, .param_loop = 1, .src = AluSpace::kOut, .convert = true}),
            "alu extent=1,3 param_loop=1 src=out convert");
  EXPECT_EQ(disassemble(Fence{.engine = Engine::kStore}), "fence engine=store");
}

TEST(Assembler, RandomInstructionsRoundTrip) {
  std::mt19937_64 random(11);
  for (size_t kind = 0; kind < kInstructions.size(); ++kind) {
    for (int k = 0; k < 10000; ++k) {
      const Instruction instruction = random_instruction(random, kind);
      const std::string text = disassemble(instruction);
      const auto back = assemble(text);
      ASSERT_EQ(back.size(), 1u) << text;
      ASSERT_EQ(back[0], instruction) << text;
    }
  }
}

TEST(Assembler, ListingsReadBack) {
  std::mt19937_64 random(12);
  std::vector<Instruction> program;
  std::vector<std::string> notes;
  for (int k = 0; k < 100; ++k) {
    program.push_back(random_instruction(random, random() % kInstructions.size()));
    notes.push_back(k < 50 ? "first layer: a=b" : "second\nlayer");
  }
  const std::string text = listing(program, notes);
  EXPECT_EQ(assemble(text), program);
  EXPECT_NE(text.find("# first layer: a=b\n"), std::string::npos);
  EXPECT_NE(text.find("  # 99\n"), std::string::npos);
  EXPECT_EQ(assemble(listing(program)), program);
}

std::string hex(const Word& word) {
  std::string out;
  for (uint8_t byte : word) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return out;
}

TEST(Assembler, WordsAreThoseOfThePythonEncoder) {
  std::ifstream file("isa/tests/words.txt");
  ASSERT_TRUE(file);
  std::string line;
  std::string word;
  int count = 0;
  while (std::getline(file, line)) {
    if (line.starts_with('#')) continue;
    ASSERT_TRUE(std::getline(file, word));
    const auto program = assemble(line);
    ASSERT_EQ(program.size(), 1u);
    EXPECT_EQ(hex(encode(program[0])), word) << line;
    ++count;
  }
  EXPECT_EQ(count, 96);
}

struct Bad {
  const char* text;
  const char* message;
};

class AssemblerRefuses : public testing::TestWithParam<Bad> {};

TEST_P(AssemblerRefuses, WithLineAndColumn) {
  try {
    assemble(GetParam().text, "t.s");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidProgram);
    EXPECT_EQ(std::string(error.what()), GetParam().message);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AssemblerRefuses,
    testing::Values(Bad{"finish\n\n  gem", "t.s:3:3: no instruction 'gem'"},
                    Bad{"gemm foo=1", "t.s:1:6: gemm has no field 'foo'"},
                    Bad{"gemm reduce=8", "t.s:1:13: reduce = 8 must be in 0..7"},
                    Bad{"gemm extent=1,2,4096", "t.s:1:17: extent = 4096 must be in 0..4095"},
                    Bad{"gemm extent=1,,2", "t.s:1:15: '' is not an integer"},
                    Bad{"gemm extent=1,1,1,1,1,1,1", "t.s:1:25: extent has 6 elements, not 7"},
                    Bad{"gemm inp_zero=-257", "t.s:1:15: inp_zero = -257 must be in -256..255"},
                    Bad{"gemm inp_addr=1 inp_addr=2", "t.s:1:17: inp_addr is given twice"},
                    Bad{"gemm inp_addr", "t.s:1:6: inp_addr needs a value"},
                    Bad{"gemm inp_addr=0x", "t.s:1:15: '0x' is not an integer"},
                    Bad{"gemm inp_addr=1z", "t.s:1:15: '1z' is not an integer"},
                    Bad{"load dram_offset=99999999999999999999", "t.s:1:18: '99999999999999999999' is too large"},
                    Bad{"load space=tab", "t.s:1:12: 'tab' is none of inp, wgt, acc, out, param, table"},
                    Bad{"load fill=2", "t.s:1:11: fill = 2 must be in 0..1"},
                    Bad{"load wait=gemm", "t.s:1:11: a condition is engine:count, '-' or !engine:count"},
                    Bad{"load wait=gemm:1,foo:2", "t.s:1:18: 'foo' is none of load, gemm, alu, store"},
                    Bad{"load wait=gemm:65536", "t.s:1:16: wait_count = 65536 must be in 0..65535"},
                    Bad{"load wait=gemm:1,gemm:2,gemm:3,gemm:4",
                        "t.s:1:32: an instruction has 3 conditions; a fence takes more"},
                    Bad{"load wait", "t.s:1:6: wait needs a value"},
                    Bad{"# c\nload signal=2", "t.s:2:13: signal = 2 must be in 0..1"}));

}  // namespace
}  // namespace tessera::isa
