// SPDX-License-Identifier: Apache-2.0
// Counters and traces of programs small enough to count by hand (isa/timing.md): busy cycles, waits by engine, stalls,
// bytes, instructions; and in every random program the trace adds up to the counters.
#include <gtest/gtest.h>

#include <numeric>

#include "isa/generated/timing.h"
#include "sim/tests/random_program.h"
#include "sim/verilator/machine.h"

namespace tessera::sim {
namespace {

constexpr uint64_t kBase = 0x10000;
constexpr uint64_t kProgram = 0x4000;
constexpr size_t kDramBytes = 0x8000;
constexpr auto kLoadUnit = static_cast<size_t>(isa::Unit::kLoad), kGemmUnit = static_cast<size_t>(isa::Unit::kGemm),
               kAluUnit = static_cast<size_t>(isa::Unit::kAlu), kStoreUnit = static_cast<size_t>(isa::Unit::kStore),
               kFetchUnit = static_cast<size_t>(isa::Unit::kFetch);

class RtlCounters : public ::testing::Test {
 protected:
  RtlResult run(std::vector<isa::Instruction> program, int latency = 100) {
    program.push_back(isa::Finish{});
    std::vector<uint8_t> dram(kDramBytes);
    uint64_t at = kProgram;
    for (const isa::Instruction& instruction : program) {
      const isa::Word word = isa::encode(instruction);
      std::copy(word.begin(), word.end(), dram.begin() + static_cast<std::ptrdiff_t>(at));
      at += word.size();
    }
    DramModel model({.beat_bytes = config_.axi_bytes, .latency_cycles = latency}, kBase, dram.data(), dram.size());
    RtlRequest request;
    request.program_address = kBase + kProgram;
    request.instruction_count = static_cast<uint32_t>(program.size());
    request.bases.fill(kBase);
    request.max_cycles = 100000;
    request.trace_program = program;
    RtlResult result = rtl_->run(request, model);
    EXPECT_EQ(result.fault.code, isa::Fault::kNone);
    EXPECT_EQ(result.trace.instructions.size(), program.size());
    return result;
  }

  isa::MachineConfig config_ = rtl_configs().front();
  std::unique_ptr<RtlMachine> rtl_ = make_rtl(config_);
};

isa::Gemm gemm(uint16_t outer, uint16_t inner) {
  isa::Gemm i;
  i.extent = {1, 1, 1, 1, outer, inner};
  i.reduce = 1;
  i.acc_stride[4] = 1;
  i.header.signal = true;
  return i;
}

TEST_F(RtlCounters, LoadAndStore) {
  isa::Load load;
  load.space = isa::Space::kOut;
  load.length = 256;
  load.header.signal = true;
  isa::Store store;
  store.space = isa::Space::kOut;
  store.dram_offset = 0x2000;
  store.length = 64;
  store.header.waits[0] = {true, isa::Engine::kLoad, 1};
  const RtlResult r = run({load, store});
  EXPECT_EQ(r.units[kLoadUnit].busy, 256U / static_cast<uint64_t>(config_.axi_bytes));
  EXPECT_EQ(r.units[kStoreUnit].busy, 64U / static_cast<uint64_t>(config_.axi_bytes));
  EXPECT_EQ(r.bytes_read, 256U + 3 * 64);
  EXPECT_EQ(r.bytes_written, 64U);
  EXPECT_EQ(r.instructions, 3U);
  EXPECT_EQ(r.units[kLoadUnit].executed, 1U);
  EXPECT_EQ(r.units[kStoreUnit].executed, 1U);
  EXPECT_EQ(r.units[kFetchUnit].executed, 1U);
  // STORE waits at the head of its queue until LOAD's signal counts, in the cycle after its completion, and is seen.
  const InstructionTrace &one = r.trace.instructions[0], &two = r.trace.instructions[1];
  EXPECT_EQ(two.issued_cycle, one.retired_cycle + isa::timing::queue::kSignal + isa::timing::queue::kCondition);
  EXPECT_EQ(r.units[kStoreUnit].wait[0], two.issued_cycle - two.queued_cycle - 1);
  EXPECT_EQ(r.units[kStoreUnit].wait[1] + r.units[kStoreUnit].wait[2] + r.units[kStoreUnit].wait[3], 0U);
  // A longer latency is a longer stall of LOAD on memory and of STORE on its response; nothing else.
  const RtlResult far = run({load, store}, 150);
  EXPECT_EQ(far.units[kLoadUnit].stall_memory - r.units[kLoadUnit].stall_memory, 50U);
  EXPECT_EQ(far.units[kStoreUnit].stall_memory - r.units[kStoreUnit].stall_memory, 50U);
  EXPECT_EQ(far.units[kLoadUnit].busy, r.units[kLoadUnit].busy);
}

TEST_F(RtlCounters, FillReadsNothing) {
  isa::Load fill;
  fill.space = isa::Space::kInp;
  fill.fill = true;
  fill.length = 64;
  const RtlResult r = run({fill});
  EXPECT_EQ(r.units[kLoadUnit].busy, 64U / static_cast<uint64_t>(config_.axi_bytes));
  EXPECT_EQ(r.bytes_read, 2U * 64);
  EXPECT_EQ(r.units[kLoadUnit].stall_memory, 0U);
}

TEST_F(RtlCounters, GemmWaitsForItsSums) {
  const RtlResult plain = run({gemm(10, 7)});
  EXPECT_EQ(plain.units[kGemmUnit].busy, 70U);
  EXPECT_EQ(plain.units[kGemmUnit].stall_port, 0U);
  // Ten sums of one tile each into the same entry: each but the first waits two cycles for the write before it. The
  // counter leaves out the last, behind which there is no step to do.
  isa::Gemm same = gemm(10, 1);
  same.acc_stride[4] = 0;
  same.accumulate = true;
  const RtlResult r = run({gemm(1, 1), same});
  EXPECT_EQ(r.units[kGemmUnit].busy, 11U);
  EXPECT_GE(r.units[kGemmUnit].stall_port, 2U * 8);
  EXPECT_LE(r.units[kGemmUnit].stall_port, 2U * 10);
}

TEST_F(RtlCounters, AluWaitsForGemm) {
  isa::Alu alu;
  alu.src = isa::AluSpace::kAcc;
  alu.dst = isa::AluSpace::kAcc;
  alu.param_loop = 7;
  alu.extent = {1, 1, 1, 1, 1, 20};
  alu.src_stride[5] = 1;
  alu.dst_stride[5] = 1;
  alu.header.waits[0] = {true, isa::Engine::kGemm, 1};
  const RtlResult r = run({gemm(20, 50), alu});
  EXPECT_EQ(r.units[kGemmUnit].busy, 1000U);
  EXPECT_EQ(r.units[kAluUnit].busy, 20U);
  EXPECT_EQ(r.units[kAluUnit].executed, 1U);
  const InstructionTrace &first = r.trace.instructions[0], &second = r.trace.instructions[1];
  EXPECT_EQ(r.units[kAluUnit].wait[1], second.issued_cycle - second.queued_cycle - 1);
  EXPECT_EQ(first.last_cycle - first.first_cycle + 1, 1000U);
  EXPECT_EQ(first.retired_cycle, first.last_cycle + isa::timing::gemm::kWrite);
  EXPECT_EQ(second.issued_cycle, first.retired_cycle + isa::timing::queue::kSignal + isa::timing::queue::kCondition);
  EXPECT_EQ(second.last_cycle - second.first_cycle + 1, 20U);
  EXPECT_EQ(second.retired_cycle, second.last_cycle + isa::timing::alu::kRaw);
}

TEST_F(RtlCounters, TracesAddUp) {
  for (uint64_t seed = 1; seed <= 40 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    testing::RandomLimits limits;
    limits.instructions = 20;
    const testing::RandomProgram program = testing::RandomProgramMaker(config_, seed, limits).make();
    std::vector<uint8_t> dram = program.dram;
    dram.resize(1 << 16);
    for (const isa::Instruction& instruction : program.instructions) {
      const isa::Word word = isa::encode(instruction);
      dram.insert(dram.end(), word.begin(), word.end());
    }
    DramModel model({.beat_bytes = config_.axi_bytes}, program.dram_address, dram.data(), dram.size());
    RtlRequest request;
    request.program_address = program.dram_address + (1 << 16);
    request.instruction_count = static_cast<uint32_t>(program.instructions.size());
    request.bases = program.bases;
    request.trace_program = program.instructions;
    const RtlResult r = rtl_->run(request, model);
    ASSERT_EQ(r.fault.code, isa::Fault::kNone);
    std::array<RtlUnitCounters, isa::kEngines + 1> sums{};
    std::array<uint64_t, isa::kEngines + 1> last{};
    for (const InstructionTrace& one : r.trace.instructions) {
      const auto u = static_cast<size_t>(one.unit);
      ++sums[u].executed;
      for (size_t e = 0; e < isa::kEngines; ++e) sums[u].wait[e] += one.wait_cycles[e];
      EXPECT_LE(one.queued_cycle, one.issued_cycle);
      EXPECT_LE(one.issued_cycle, one.first_cycle);
      EXPECT_LE(one.first_cycle, one.last_cycle);
      EXPECT_LE(one.last_cycle, one.retired_cycle);
      EXPECT_LT(one.retired_cycle, r.cycles);
      if (one.last_cycle > one.issued_cycle) {  // it was busy: after all that came before it
        EXPECT_GT(one.first_cycle, last[u]) << one.pc;
        last[u] = one.last_cycle;
      }
    }
    for (size_t u = 0; u < sums.size(); ++u) {
      EXPECT_EQ(sums[u].executed, r.units[u].executed) << u;
      if (u != kFetchUnit) {
        EXPECT_EQ(sums[u].wait, r.units[u].wait) << u;
      }
    }
    uint64_t read = 0, written = 0;
    for (const BurstTrace& burst : r.trace.bursts) (burst.write ? written : read) += burst.bytes;
    EXPECT_EQ(read, model.read_beats() * static_cast<uint64_t>(config_.axi_bytes));
    EXPECT_EQ(written, model.write_beats() * static_cast<uint64_t>(config_.axi_bytes));
  }
}

}  // namespace
}  // namespace tessera::sim
