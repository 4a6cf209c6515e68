// SPDX-License-Identifier: Apache-2.0
// Programs that break a rule: the RTL's fault record equals the functional simulator's, engine, program counter and
// code, and the machine runs the next program as if nothing had happened. Errors of the bus, which the functional
// simulator does not know, are compared with what the ISA says.
#include <gtest/gtest.h>

#include <random>

#include "isa/random_instruction.h"
#include "sim/functional/machine.h"
#include "sim/tests/random_program.h"
#include "sim/verilator/machine.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kBase = 0x40000;
constexpr uint64_t kProgram = 0x8000;  // within DRAM
constexpr size_t kDramBytes = 0x10000;

using Program = std::vector<isa::Instruction>;

struct Bench {
  explicit Bench(const isa::MachineConfig& machine_config)
      : config(machine_config), rtl(make_rtl(config)), functional(config) {}

  static std::vector<uint8_t> words_of(const Program& program) {
    std::vector<uint8_t> words;
    for (const isa::Instruction& instruction : program) {
      const isa::Word word = isa::encode(instruction);
      words.insert(words.end(), word.begin(), word.end());
    }
    return words;
  }

  /// Runs `words` on both; `count` and the program's place may differ from what is there.
  void compare(const std::vector<uint8_t>& words, uint32_t count, uint64_t program = kProgram) {
    std::vector<uint8_t> dram(kDramBytes);
    const size_t fits = std::min(words.size(), kDramBytes - program);
    std::copy(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(fits),
              dram.begin() + static_cast<std::ptrdiff_t>(program));
    std::vector<uint8_t> rtl_dram = dram;
    const DramRegion region{kBase, dram.data(), dram.size()};
    RunRequest expected;
    expected.program_address = kBase + program;
    expected.instruction_count = count;
    expected.bases.fill(kBase);
    expected.dram = {&region, 1};
    wanted = functional.run(expected).fault;
    actual = run_rtl(count, program, rtl_dram, {}).fault;
    EXPECT_EQ(actual, wanted) << to_string(actual.code) << " at " << actual.pc << " of " << to_string(actual.unit)
                              << ", not " << to_string(wanted.code) << " at " << wanted.pc << " of "
                              << to_string(wanted.unit);
  }
  void compare(const Program& program) { compare(words_of(program), static_cast<uint32_t>(program.size())); }

  template <typename Prepare = std::nullptr_t>
  RtlResult run_rtl(uint32_t count, uint64_t program, std::vector<uint8_t>& dram, Prepare prepare) {
    DramModel model({.beat_bytes = config.axi_bytes, .latency_cycles = 30}, kBase, dram.data(), dram.size());
    if constexpr (!std::is_same_v<Prepare, std::nullptr_t>) prepare(model);
    RtlRequest request;
    request.program_address = kBase + program;
    request.instruction_count = count;
    request.bases.fill(kBase);
    request.window_first = kBase;
    request.window_last = kBase + kDramBytes - 1;
    request.max_cycles = 500000;
    return rtl->run(request, model);
  }

  isa::MachineConfig config;
  std::unique_ptr<RtlMachine> rtl;
  Machine functional;
  isa::FaultRecord wanted;
  isa::FaultRecord actual;
};

isa::Load load(uint64_t dram_offset, uint32_t sp_addr, uint16_t length) {
  isa::Load i;
  i.space = isa::Space::kOut;
  i.dram_offset = dram_offset;
  i.sp_addr = sp_addr;
  i.length = length;
  i.header.signal = true;
  return i;
}

isa::Store store(uint64_t dram_offset, uint32_t sp_addr, uint16_t length) {
  isa::Store i;
  i.space = isa::Space::kOut;
  i.dram_offset = dram_offset;
  i.sp_addr = sp_addr;
  i.length = length;
  i.header.signal = true;
  return i;
}

template <typename T>
T after(T instruction, isa::Engine engine, uint16_t count) {
  instruction.header.waits[0] = {true, engine, count};
  return instruction;
}

class RtlFault : public ::testing::Test {
 protected:
  Bench bench{rtl_configs().front()};
  uint32_t out_bytes = static_cast<uint32_t>(bench.config.out_bytes);
  void expect(isa::Fault code, isa::Unit unit, uint32_t pc) {
    EXPECT_EQ(bench.wanted, (isa::FaultRecord{code, unit, pc}));
  }
  void TearDown() override {  // the machine is as good as new
    bench.compare({load(0, 0, 64), after(store(128, 0, 64), isa::Engine::kLoad, 1), isa::Finish{}});
    EXPECT_EQ(bench.wanted.code, isa::Fault::kNone);
  }
};

TEST_F(RtlFault, ScratchpadRange) {
  bench.compare({load(0, 0, 64), load(0, out_bytes - 63, 64), isa::Finish{}});
  expect(isa::Fault::kScratchpadRange, isa::Unit::kLoad, 1);
  bench.compare({store(0, out_bytes - 64, 64), store(0, out_bytes, 1), isa::Finish{}});
  expect(isa::Fault::kScratchpadRange, isa::Unit::kStore, 1);
  isa::Load below = load(0, 4, 4);
  below.extent[3] = 2;
  below.sp_stride[3] = -5;
  bench.compare({below, isa::Finish{}});
  expect(isa::Fault::kScratchpadRange, isa::Unit::kLoad, 0);
}

TEST_F(RtlFault, DramRange) {
  bench.compare({load(kDramBytes - 64, 0, 64), load(kDramBytes - 63, 0, 64), isa::Finish{}});
  expect(isa::Fault::kDramRange, isa::Unit::kLoad, 1);
  isa::Store below = store(0, 0, 4);
  below.extent[0] = 3;
  below.dram_stride[0] = -1;
  bench.compare({below, isa::Finish{}});
  expect(isa::Fault::kDramRange, isa::Unit::kStore, 0);
  isa::Load padded = load(kDramBytes, 0, 8);  // reads nothing
  padded.extent[0] = 2;
  padded.pad_before[0] = 2;
  bench.compare({padded, isa::Finish{}});
  expect(isa::Fault::kNone, isa::Unit::kFetch, 0);
  bench.compare({load(kDramBytes, out_bytes, 8), isa::Finish{}});  // the scratchpad is checked first
  expect(isa::Fault::kScratchpadRange, isa::Unit::kLoad, 0);
}

TEST_F(RtlFault, FetchLeavesTheWindow) {
  const auto words = Bench::words_of({isa::Fence{}, isa::Fence{}, isa::Fence{}, isa::Finish{}});
  bench.compare(words, 4, kDramBytes - 128);
  expect(isa::Fault::kDramRange, isa::Unit::kFetch, 2);
}

TEST_F(RtlFault, MissingFinish) {
  bench.compare({load(0, 0, 64), load(64, 0, 64)});
  expect(isa::Fault::kMissingFinish, isa::Unit::kFetch, 2);
  bench.compare(Program{});
  expect(isa::Fault::kMissingFinish, isa::Unit::kFetch, 0);
}

TEST_F(RtlFault, NoProgress) {
  bench.compare({after(load(0, 0, 64), isa::Engine::kStore, 1), store(0, 0, 64), isa::Finish{}});
  expect(isa::Fault::kNone, isa::Unit::kFetch, 0);  // out of stream order, but it runs
  bench.compare({load(0, 0, 64), after(store(0, 0, 64), isa::Engine::kLoad, 2), isa::Finish{}});
  expect(isa::Fault::kNoProgress, isa::Unit::kStore, 1);
  isa::Finish finish;
  finish.header.waits[2] = {true, isa::Engine::kAlu, 1};
  bench.compare({load(0, 0, 64), finish});
  expect(isa::Fault::kNoProgress, isa::Unit::kFetch, 1);
  // A full queue behind an instruction that waits for ever, with instructions that run on another engine.
  Program full{after(load(0, 0, 64), isa::Engine::kStore, 60)};
  for (int n = 0; n < 40; ++n) full.push_back(load(0, 0, 64));
  full.push_back(isa::Finish{});
  bench.compare(full);
  expect(isa::Fault::kNoProgress, isa::Unit::kLoad, 0);
}

TEST_F(RtlFault, TheEarliestOfSeveral) {
  // STORE's fault is found at once, LOAD's older one only after a long transfer.
  bench.compare({load(0, 0, 4096), load(0, out_bytes, 1), store(0, out_bytes, 1), isa::Finish{}});
  expect(isa::Fault::kScratchpadRange, isa::Unit::kLoad, 1);
  // An older instruction waits for one behind the fault.
  bench.compare({after(load(0, 0, 64), isa::Engine::kStore, 1), store(0, out_bytes, 1), isa::Finish{}});
  expect(isa::Fault::kNoProgress, isa::Unit::kLoad, 0);
  isa::Store illegal = store(0, 0, 1);
  illegal.space = isa::Space::kInp;
  bench.compare({load(0, 0, 4096), load(0, out_bytes, 1), illegal, isa::Finish{}});
  expect(isa::Fault::kScratchpadRange, isa::Unit::kLoad, 1);
  bench.compare({load(0, 0, 4096), illegal, isa::Finish{}});
  expect(isa::Fault::kIllegalOperand, isa::Unit::kFetch, 1);
}

TEST_F(RtlFault, RandomWords) {
  // Mostly illegal; legal ones mostly leave their memories. No signals and no waits: whatever comes first stops.
  std::mt19937_64 random(11);
  for (int n = 0; n < 400; ++n) {
    isa::Instruction instruction = isa::random_instruction(random, random() % std::variant_size_v<isa::Instruction>);
    std::visit([](auto& i) { i.header.waits = {}; }, instruction);
    auto words = Bench::words_of({instruction, isa::Finish{}});
    if (n % 8 == 0) words[random() % 64] ^= static_cast<uint8_t>(1 << random() % 8);
    bench.compare(words, 2);
    if (HasFailure()) {
      ADD_FAILURE() << "word " << n;
      return;
    }
  }
}

TEST_F(RtlFault, AxiErrors) {
  const Program program{load(0, 0, 256), load(0x1000, 256, 256), after(store(0x2000, 0, 256), isa::Engine::kLoad, 2),
                        isa::Finish{}};
  const auto words = Bench::words_of(program);
  const auto run = [&](auto prepare) {
    std::vector<uint8_t> dram(kDramBytes);
    std::copy(words.begin(), words.end(), dram.begin() + kProgram);
    return bench.run_rtl(4, kProgram, dram, prepare).fault;
  };
  EXPECT_EQ(run([](DramModel&) {}), isa::FaultRecord{});
  EXPECT_EQ(run([](DramModel& m) { m.fail_reads(kBase + 0x10f0, kBase + 0x10f0); }),
            (isa::FaultRecord{isa::Fault::kAxiError, isa::Unit::kLoad, 1}));
  EXPECT_EQ(run([](DramModel& m) { m.fail_writes(kBase + 0x2010, kBase + 0x2010); }),
            (isa::FaultRecord{isa::Fault::kAxiError, isa::Unit::kStore, 2}));
  EXPECT_EQ(run([](DramModel& m) { m.fail_reads(kBase + kProgram + 130, kBase + kProgram + 130); }),
            (isa::FaultRecord{isa::Fault::kAxiError, isa::Unit::kFetch, 2}));
  EXPECT_EQ(run([](DramModel& m) {
              m.fail_reads(kBase + kProgram + 200, kBase + kProgram + 200);
              m.fail_reads(kBase, kBase);
            }),
            (isa::FaultRecord{isa::Fault::kAxiError, isa::Unit::kLoad, 0}));
}

/// Memories with parity: a bit that turns over is a fault of the engine that reads it, and of nobody else.
class RtlParity : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const isa::MachineConfig& config : rtl_configs()) {
      if (config.cores > 1) continue;  // chip_test.cc
      if (config.memory_parity != 0) bench = std::make_unique<Bench>(config);
    }
    if (!bench) GTEST_SKIP() << "no machine with parity among those of this build";
    fill();
  }

  void fill() {
    std::mt19937_64 random(5);
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto space = static_cast<isa::Space>(s);
      std::vector<uint8_t> bytes(static_cast<size_t>(bench->config.space_bytes(space)));
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      bench->rtl->write_scratchpad(space, 0, bytes);
    }
  }

  RtlResult run(const Program& program) {
    const auto words = Bench::words_of(program);
    dram.assign(kDramBytes, 0x5a);
    std::copy(words.begin(), words.end(), dram.begin() + kProgram);
    return bench->run_rtl(static_cast<uint32_t>(program.size()), kProgram, dram, nullptr);
  }

  /// One instruction, whose engine reads `offset` of `space`, with others around it.
  void check(isa::Space space, size_t offset, isa::Engine engine, const isa::Instruction& reader) {
    isa::Instruction second = reader;
    std::visit([](auto& i) { i.header.signal = true; }, second);
    const Program program{reader, second, after(store(0, 0, 64), engine, 1), isa::Finish{}};
    EXPECT_EQ(run(program).fault, isa::FaultRecord{});
    for (int bit = 0; bit < 9; ++bit) {
      bench->rtl->flip_bit(space, offset, bit);
      const RtlResult result = run(program);
      EXPECT_EQ(result.fault, (isa::FaultRecord{isa::Fault::kMemoryParity, static_cast<isa::Unit>(engine), 0}))
          << to_string(space) << " bit " << bit << ": " << to_string(result.fault.code) << " at " << result.fault.pc;
      EXPECT_LE(result.units[static_cast<size_t>(engine)].executed, 1U);  // the second may have been inside already
      if (engine != isa::Engine::kStore) {
        EXPECT_EQ(dram[0], 0x5a) << "what is younger has run";
      }
      EXPECT_EQ(run({isa::Finish{}}).fault, isa::FaultRecord{}) << "a fault stays";
      fill();
    }
    // Whoever does not read it does not find it, and who writes it mends it.
    bench->rtl->flip_bit(space, offset, 3);
    isa::Load heal = load(0x1000, 0, 1);
    heal.space = space;
    EXPECT_EQ(run({heal, isa::Finish{}}).fault, isa::FaultRecord{});
    heal.length = static_cast<uint16_t>(offset + 1);
    Program healed = program;
    healed.insert(healed.begin(), isa::Instruction{heal});
    std::visit([](auto& i) { i.header.waits[0] = {true, isa::Engine::kLoad, 1}; }, healed[1]);
    EXPECT_EQ(run(healed).fault, isa::FaultRecord{});
  }

  std::unique_ptr<Bench> bench;
  std::vector<uint8_t> dram;
};

TEST_F(RtlParity, Store) {
  check(isa::Space::kOut, 37, isa::Engine::kStore, store(64, 0, 64));
  isa::Store sums = store(64, 0, 64);
  sums.space = isa::Space::kAcc;
  check(isa::Space::kAcc, 1, isa::Engine::kStore, sums);
}

TEST_F(RtlParity, Gemm) {
  isa::Gemm gemm;
  gemm.acc_addr = 1;
  check(isa::Space::kInp, 3, isa::Engine::kGemm, gemm);
  check(isa::Space::kWgt, 31, isa::Engine::kGemm, gemm);
  gemm.accumulate = true;
  check(isa::Space::kAcc, static_cast<size_t>(bench->config.acc_entry_bytes()) + 5, isa::Engine::kGemm, gemm);
}

TEST_F(RtlParity, Alu) {
  isa::Alu alu;
  alu.dst_addr = 1;
  check(isa::Space::kAcc, 9, isa::Engine::kAlu, alu);
  alu.dst = isa::AluSpace::kOut;
  alu.low = -128;
  alu.high = 127;
  for (const auto& [space, source] :
       {std::pair(isa::Space::kAcc, isa::AluSpace::kAcc), std::pair(isa::Space::kOut, isa::AluSpace::kOut),
        std::pair(isa::Space::kInp, isa::AluSpace::kInp)}) {
    if (source == isa::AluSpace::kInp && bench->config.block_in != bench->config.block_out) continue;  // illegal
    alu.src = source;
    check(space, 2, isa::Engine::kAlu, alu);
  }
  alu.src = isa::AluSpace::kAcc;
  alu.second_op = isa::SecondOp::kMax;
  check(isa::Space::kOut, 7, isa::Engine::kAlu, alu);
  alu.second_op = isa::SecondOp::kNone;
  alu.convert = true;
  check(isa::Space::kParam, 20, isa::Engine::kAlu, alu);
  alu.table_enable = true;
  alu.table = 1;
  alu.low = alu.high = 0;  // all lanes look byte 0 up
  check(isa::Space::kTable, 256, isa::Engine::kAlu, alu);
}

}  // namespace
}  // namespace tessera::sim
