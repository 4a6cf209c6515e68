// SPDX-License-Identifier: Apache-2.0
// Without the RTL: cuts of transfers into runs; random programs leave what the functional simulator leaves, and end;
// programs that break a rule have its fault record; one elaborated machine serves several objects and threads.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "isa/assembler.h"
#include "sim/systemc/engines/walk.h"
#include "sim/systemc/machine.h"
#include "sim/tests/configs.h"
#include "sim/tests/random_program.h"
#include "sim/tests/transposing_load.h"

namespace tessera::sim::systemc {
namespace {

constexpr uint64_t kProgramOffset = 1 << 16;

/// The runs of a LOAD from a base on, where beats have 8 bytes.
std::vector<systemc::Run> runs_of(const isa::Load& load, uint64_t base) {
  Walk walk(load, base, 1024, 8, 256);
  std::vector<systemc::Run> runs;
  while (!walk.done()) {
    walk.next(runs.emplace_back());
    EXPECT_EQ(runs.back().last, walk.done());
  }
  return runs;
}

TEST(Walk, JoinsWhatContinues) {
  isa::Load load;
  load.length = 100;
  load.extent = {1, 1, 3, 20};
  load.dram_stride = {0, 0, 5000, 100};
  load.sp_stride = {0, 0, 2000, 100};
  std::vector<uint32_t> bytes, steps;
  for (const systemc::Run& run : runs_of(load, 64)) {
    bytes.push_back(run.bytes);
    steps.push_back(run.steps);
  }
  EXPECT_EQ(bytes, (std::vector<uint32_t>{1100, 900, 1100, 900, 1100, 900}));
  EXPECT_EQ(steps, (std::vector<uint32_t>{11, 9, 11, 9, 11, 9}));
}

TEST(Walk, RunsShareABeat) {
  isa::Load load;
  load.length = 4;
  load.extent = {1, 1, 2, 6};
  load.dram_stride = {0, 0, 100, 2};
  load.sp_stride = {0, 0, 4, 16};
  std::vector<bool> shares;
  std::vector<uint32_t> beats;
  for (const systemc::Run& run : runs_of(load, 64)) {
    shares.push_back(run.shares);
    beats.push_back(run.beats);
  }
  // From bytes 0, 2, 4, 6, 8, 10 on, and then from 100 on to the second half of a group.
  EXPECT_EQ(shares, (std::vector<bool>{false, true, true, true, true, true, false, true, true, true, true, true}));
  EXPECT_EQ(beats, (std::vector<uint32_t>{1, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 1}));
}

TEST(Walk, ABeatThatIsGoneIsNotShared) {
  isa::Load load;
  load.length = 2;
  load.extent = {1, 1, 1, 3};
  load.dram_stride = {0, 0, 0, 1};
  load.sp_stride = {0, 0, 0, 11};
  std::vector<bool> shares;
  for (const systemc::Run& run : runs_of(load, 66)) shares.push_back(run.shares);  // from 2, 3 and 4 to 0, 3 and 6
  EXPECT_EQ(shares, (std::vector<bool>{false, true, true}));
  load.sp_addr = 2;
  load.sp_stride[3] = 7;  // to 2, 1 and 0, then to a place further on in its group
  load.extent[3] = 4;
  load.dram_stride[3] = 0;
  shares.clear();
  for (const systemc::Run& run : runs_of(load, 66)) shares.push_back(run.shares);
  EXPECT_EQ(shares, (std::vector<bool>{false, true, true, false}));
}

TEST(Walk, PackedEntriesJoinByBothOfTheirLengths) {
  isa::Load load;
  load.space = isa::Space::kWgt;
  load.packed = true;
  load.length = 136;
  load.extent = {1, 1, 2, 3};
  load.dram_stride = {0, 0, 1000, 136};
  load.sp_stride = {0, 0, 1024, 256};
  Walk walk(load, 64, 1024, 8, 256);
  std::vector<uint32_t> bytes;
  while (!walk.done()) {
    systemc::Run run;
    walk.next(run);
    bytes.push_back(run.bytes);
  }
  EXPECT_EQ(bytes, (std::vector<uint32_t>{408, 408}));
}

TEST(Walk, PaddingIsARunOfItsOwn) {
  isa::Load load;
  load.length = 8;
  load.extent = {4, 3, 1, 2};
  load.pad_before = {1, 1};
  load.pad_after = {1, 0};
  load.dram_stride = {100, 16, 0, 8};
  load.sp_stride = {48, 16, 0, 8};
  Walk walk(load, 1000, 1024, 8, 256);
  std::vector<uint64_t> read;  // address, bytes
  std::vector<uint32_t> padded;
  while (!walk.done()) {
    systemc::Run run;
    walk.next(run);
    if (run.pad) {
      padded.push_back(run.bytes);
    } else {
      read.push_back(run.dram);
      read.push_back(run.bytes);
    }
  }
  EXPECT_EQ(padded, (std::vector<uint32_t>{64, 16, 48}));
  EXPECT_EQ(read, (std::vector<uint64_t>{1000, 32, 1100, 32}));
}

/// What is left when one program has run on both machines.
class Comparison {
 public:
  explicit Comparison(const isa::MachineConfig& config) : config_(config), timed_(config), functional_(config) {}

  TimedResult run(const testing::RandomProgram& program, uint64_t seed, int latency, int bandwidth = 0) {
    SCOPED_TRACE("config " + config_.name + ", seed " + std::to_string(seed));
    for (Machine* machine : {&functional_, &timed_.functional()}) {
      machine->poison(seed);
      machine->write_scratchpad(isa::Space::kParam, 0, program.param);
    }
    std::vector<uint8_t> dram = program.dram;
    dram.resize(kProgramOffset);
    for (const isa::Instruction& instruction : program.instructions) {
      const isa::Word word = isa::encode(instruction);
      dram.insert(dram.end(), word.begin(), word.end());
    }
    std::vector<uint8_t> other = dram;
    const DramRegion region{program.dram_address, dram.data(), dram.size()};
    RunRequest expected;
    expected.program_address = program.dram_address + kProgramOffset;
    expected.instruction_count = static_cast<uint32_t>(program.instructions.size());
    expected.bases = program.bases;
    expected.dram = {&region, 1};
    const RunResult wanted = functional_.run(expected);
    const DramRegion other_region{program.dram_address, other.data(), other.size()};
    Trace trace;
    TimedRequest request;
    request.program_address = expected.program_address;
    request.instruction_count = expected.instruction_count;
    request.bases = program.bases;
    request.window_first = program.dram_address;
    request.window_last = program.dram_address + dram.size() - 1;
    request.dram = {&other_region, 1};
    request.timing = {.beat_bytes = config_.axi_bytes, .latency_cycles = latency, .bandwidth_bytes = bandwidth};
    request.trace = &trace;
    const TimedResult actual = timed_.run(request);
    EXPECT_EQ(actual.fault, wanted.fault);
    if (!wanted.ok()) return actual;
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto space = static_cast<isa::Space>(s);
      const auto a = functional_.scratchpad(space), b = timed_.functional().scratchpad(space);
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << to_string(space);
    }
    EXPECT_EQ(dram, other);
    EXPECT_EQ(actual.instructions * 64, wanted.counters.fetch_bytes);
    EXPECT_EQ(actual.bytes_read, wanted.counters.dram_read_bytes + wanted.counters.fetch_bytes);
    EXPECT_EQ(actual.bytes_written, wanted.counters.dram_write_bytes);
    EXPECT_EQ(actual.macs, wanted.counters.macs);
    for (size_t u = 0; u < actual.units.size(); ++u) {
      EXPECT_EQ(actual.units[u].executed, wanted.counters.instructions[u]) << u;
    }
    EXPECT_EQ(trace.instructions.size(), program.instructions.size());
    for (const InstructionTrace& i : trace.instructions) {
      if (i.unit == isa::Unit::kFetch) continue;
      EXPECT_LT(i.queued_cycle, i.issued_cycle);
      EXPECT_LE(i.issued_cycle, i.first_cycle);
      EXPECT_LE(i.first_cycle, i.last_cycle);
      EXPECT_LT(i.last_cycle, i.retired_cycle);
      EXPECT_LT(i.retired_cycle, actual.cycles);
    }
    uint64_t read = 0, written = 0;
    for (const BurstTrace& b : trace.bursts) {
      EXPECT_LE(b.address_cycle + (b.write ? 0 : static_cast<uint64_t>(latency)), b.first_cycle);
      EXPECT_LE(b.first_cycle, b.last_cycle);
      (b.write ? written : read) += b.bytes;
    }
    EXPECT_GE(read, wanted.counters.fetch_bytes);  // beats that runs of LOAD share come once
    EXPECT_GE(written, actual.bytes_written);
    return actual;
  }

 private:
  isa::MachineConfig config_;
  TimedMachine timed_;
  Machine functional_;
};

/// A random program on a machine of its own, of an even number one of LOADs that are requested together: its cycles.
uint64_t cycles_of(const isa::MachineConfig& config, uint64_t seed, int latency) {
  testing::RandomLimits limits;
  limits.instructions = 60;
  testing::RandomProgramMaker maker(config, seed, limits);
  testing::RandomProgram program = maker.make();
  if (seed % 2 == 0) {
    program.bases[0] = program.dram_address;
    program.instructions.clear();
    std::mt19937_64 random(seed);
    for (int n = 0; n < 12; ++n) program.instructions.emplace_back(testing::transposing_load(random, config));
    program.instructions.emplace_back(isa::Finish{});
  }
  return Comparison(config).run(program, seed, latency).cycles;
}

/// The same in a process of its own; 0 when it has failed. To be called before anything has run in this process.
uint64_t cycles_in_a_fresh_process(const isa::MachineConfig& config, uint64_t seed, int latency) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return 0;
  const pid_t child = fork();
  if (child == 0) {
    const uint64_t cycles = cycles_of(config, seed, latency);
    _exit(write(ends[1], &cycles, sizeof cycles) == sizeof cycles ? 0 : 1);
  }
  close(ends[1]);
  uint64_t cycles = 0;
  if (child < 0 || read(ends[0], &cycles, sizeof cycles) != sizeof cycles) cycles = 0;
  close(ends[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return cycles;
}

// The first to run a machine in this process, so that a child's machine is a fresh one. Programs of all configurations,
// in two orders and each twice, take the cycles that they take alone.
TEST(SystemcProgram, NothingOutlivesARun) {
  struct Case {
    isa::MachineConfig config;
    uint64_t seed;
    int latency;
    uint64_t alone;
  };
  std::vector<Case> cases;
  for (const isa::MachineConfig& config : testing::all_configs()) {
    for (const int latency : {20, 300, 500, 100}) {
      const uint64_t seed = 100 + cases.size();
      cases.push_back({config, seed, latency, cycles_in_a_fresh_process(config, seed, latency)});
    }
  }
  const auto check = [](const Case& c) {
    for (int k = 0; k < 2; ++k) {
      EXPECT_EQ(cycles_of(c.config, c.seed, c.latency), c.alone) << c.config.name << ", latency " << c.latency;
    }
  };
  for (const Case& c : cases) check(c);
  std::ranges::reverse(cases);
  for (const Case& c : cases) check(c);
}

TEST(SystemcProgram, RandomPrograms) {
  for (const isa::MachineConfig& config : testing::all_configs()) {
    Comparison comparison(config);
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      testing::RandomLimits limits;
      limits.instructions = 60;
      testing::RandomProgramMaker maker(config, seed, limits);
      comparison.run(maker.make(), seed, static_cast<int>(1 + seed * 37 % 300));
      if (HasFailure()) return;
    }
  }
}

TEST(SystemcProgram, CyclesGrowWithLatency) {
  const isa::MachineConfig config = isa::find_config("npu64");
  Comparison comparison(config);
  testing::RandomProgramMaker maker(config, 5, {});
  const testing::RandomProgram program = maker.make();
  const uint64_t near = comparison.run(program, 5, 20).cycles;
  EXPECT_EQ(comparison.run(program, 5, 20).cycles, near);
  EXPECT_GT(comparison.run(program, 5, 500).cycles, near + 480);
}

/// A maximum pooling, tile by tile, each with its border. The second tile's border is columns, each a run of a byte,
/// and is written beside the ALU's reads; the narrow memory lets its beats begin while the padding is held up.
TEST(SystemcProgram, PaddingThatBeatsOvertake) {
  const std::string text = R"(
load base=1 length=1 extent=9,15 dram_stride=13,1 sp_stride=120,8 pad_before=2 pad_after=0,2 signal
alu extent=1,1,3,5,3,3 src_stride=0,0,45,3,15,1 dst_stride=0,0,5,1 src=inp dst=out src_unsigned reduce=2 reduce_op=max high=255 wait=load:1 signal
store space=out base=1 dram_offset=512 length=1 extent=1,1,1,15 dram_stride=0,0,0,1 sp_stride=0,0,0,8 wait=alu:1 signal
load base=1 dram_offset=91 length=1 sp_addr=1080 extent=15,1,1,6 dram_stride=1,0,0,13 sp_stride=8,0,0,120 pad_after=2 signal
alu extent=1,1,2,5,3,3 src_addr=135 dst_addr=15 src_stride=0,0,45,3,15,1 dst_stride=0,0,5,1 src=inp dst=out src_unsigned reduce=2 reduce_op=max high=255 wait=load:2 signal
store space=out base=1 dram_offset=527 length=1 sp_addr=120 extent=1,1,1,10 dram_stride=0,0,0,1 sp_stride=0,0,0,8 wait=alu:2 signal
load base=1 dram_offset=169 length=1 sp_addr=2160 extent=9,15 dram_stride=13,1 sp_stride=120,8 pad_before=2 pad_after=0,2 signal
alu extent=1,1,3,5,3,3 src_addr=270 dst_addr=30 src_stride=0,0,45,3,15,1 dst_stride=0,0,5,1 src=inp dst=out src_unsigned reduce=2 reduce_op=max high=255 wait=load:3 signal
store space=out base=1 dram_offset=537 length=1 sp_addr=240 extent=1,1,1,15 dram_stride=0,0,0,1 sp_stride=0,0,0,8 wait=alu:3
load base=1 dram_offset=260 length=1 sp_addr=3240 extent=15,1,1,6 dram_stride=1,0,0,13 sp_stride=8,0,0,120 pad_after=2 signal
alu extent=1,1,2,5,3,3 src_addr=405 dst_addr=45 src_stride=0,0,45,3,15,1 dst_stride=0,0,5,1 src=inp dst=out src_unsigned reduce=2 reduce_op=max high=255 wait=load:4 signal
store space=out base=1 dram_offset=552 length=1 sp_addr=360 extent=1,1,1,10 dram_stride=0,0,0,1 sp_stride=0,0,0,8 wait=alu:4
finish
)";
  testing::RandomProgram program;
  program.instructions = isa::assemble(text);
  program.dram_address = 1 << 20;
  program.dram.assign(1 << 12, 7);
  program.bases.fill(program.dram_address);
  Comparison comparison(isa::find_config("npu64"));
  for (const int latency : {1, 10, 100}) {
    for (const int bandwidth : {1, 2, 4, 8}) comparison.run(program, 1, latency, bandwidth);
  }
}

/// Padding in front of a read waits until GEMM leaves ACC's port: what the bus had planned meanwhile holds no longer.
TEST(SystemcProgram, PaddingThatGemmHoldsUp) {
  testing::RandomProgram program;
  program.instructions = isa::assemble(R"(
gemm extent=1,3,6 acc_stride=7,3,6,1 signal
load space=acc length=1 sp_addr=2516 extent=2,3 sp_stride=-636,56 pad_before=0,1 pad_after=1,1 wait=gemm:1
gemm extent=1,1,1,2 signal
finish
)");
  program.dram_address = 1 << 20;
  program.dram.assign(64, 7);
  program.bases.fill(program.dram_address);
  isa::MachineConfig config = isa::find_config("npu256");
  config.axi_bytes = 4;
  for (const int gemm_queue : {1, 2, 3, 4}) {
    config.gemm_queue = gemm_queue;
    Comparison comparison(config);
    for (int latency = 1; latency < 24; ++latency) comparison.run(program, 1, latency, 4);
  }
}

/// Random words: mostly illegal, and mostly out of range. The first fault in program order is the record.
TEST(SystemcProgram, FaultsOfRandomPrograms) {
  const isa::MachineConfig config = isa::find_config("npu64");
  Comparison comparison(config);
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    testing::RandomLimits limits;
    limits.instructions = 20;
    testing::RandomProgramMaker maker(config, seed, limits);
    testing::RandomProgram program = maker.make();
    std::mt19937_64 random(seed);
    isa::Instruction& broken = program.instructions[random() % program.instructions.size()];
    switch (random() % 5) {
      case 0:
        if (auto* load = std::get_if<isa::Load>(&broken)) load->sp_addr = (1 << 22) - 1;
        if (auto* gemm = std::get_if<isa::Gemm>(&broken)) gemm->acc_addr = 16383;
        if (auto* alu = std::get_if<isa::Alu>(&broken)) alu->dst_addr = 16383;
        break;
      case 1:
        if (auto* load = std::get_if<isa::Load>(&broken)) load->length = 0;
        if (auto* gemm = std::get_if<isa::Gemm>(&broken)) gemm->reduce = 7;
        break;
      case 2:
        if (auto* store = std::get_if<isa::Store>(&broken)) store->dram_offset = (uint64_t{1} << 36) - 1;
        if (auto* load = std::get_if<isa::Load>(&broken)) load->dram_offset = load->fill ? 0 : (uint64_t{1} << 36) - 1;
        break;
      case 3: program.instructions.pop_back(); break;
      default: std::visit([](auto& i) { i.header.waits[2] = {true, isa::Engine::kAlu, 30000}; }, broken); break;
    }
    comparison.run(program, seed, 50);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

TEST(SystemcProgram, ThreadsTakeTurns) {
  const isa::MachineConfig config = isa::find_config("npu64");
  testing::RandomProgramMaker maker(config, 9, {});
  const testing::RandomProgram program = maker.make();
  std::array<uint64_t, 4> cycles{};
  std::vector<std::thread> threads;
  for (uint64_t& c : cycles) {
    threads.emplace_back([&] { c = Comparison(config).run(program, 9, 100).cycles; });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint64_t c : cycles) EXPECT_EQ(c, cycles[0]);
}

}  // namespace
}  // namespace tessera::sim::systemc
