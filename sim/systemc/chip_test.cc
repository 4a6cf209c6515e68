// SPDX-License-Identifier: Apache-2.0
// Chips in the timing model: random programs of several cores leave what the functional simulator leaves and have its
// fault records; a core that runs alone pays the interconnect's latency; cores share the master.
#include <gtest/gtest.h>

#include "isa/assembler.h"
#include "sim/functional/chip.h"
#include "sim/systemc/machine.h"
#include "sim/tests/configs.h"
#include "sim/tests/random_chip.h"

namespace tessera::sim::systemc {
namespace {

using testing::RandomChip;
using Programs = std::vector<std::vector<isa::Instruction>>;

struct Ran {
  std::vector<TimedResult> timed;
  std::vector<RunResult> functional;
  uint64_t cycles = 0;  // to the last end
};

/// The programs on both, behind the data in DRAM; all bytes and records are compared.
Ran run(const isa::MachineConfig& config, RandomChip chip, const DramOptions& timing) {
  TimedMachine timed(config);
  Chip functional(config);
  std::vector<uint64_t> at;
  for (const auto& program : chip.programs) {
    at.push_back(chip.dram_address + chip.dram.size());
    for (const isa::Instruction& instruction : program) {
      const isa::Word word = isa::encode(instruction);
      chip.dram.insert(chip.dram.end(), word.begin(), word.end());
    }
  }
  std::vector<uint8_t> other = chip.dram;
  const DramRegion region{chip.dram_address, chip.dram.data(), chip.dram.size()};
  const DramRegion other_region{chip.dram_address, other.data(), other.size()};
  std::vector<RunRequest> expected(at.size());
  std::vector<TimedRequest> requests(at.size());
  for (size_t k = 0; k < at.size(); ++k) {
    functional.core(k).write_scratchpad(isa::Space::kParam, 0, chip.param);
    timed.functional(k).write_scratchpad(isa::Space::kParam, 0, chip.param);
    expected[k].program_address = requests[k].program_address = at[k];
    expected[k].instruction_count = requests[k].instruction_count = static_cast<uint32_t>(chip.programs[k].size());
    expected[k].bases = requests[k].bases = chip.bases;
    expected[k].dram = {&region, 1};
    requests[k].dram = {&other_region, 1};
    requests[k].window_first = chip.dram_address;
    requests[k].window_last = chip.dram_address + chip.dram.size() - 1;
    requests[k].timing = timing;
    requests[k].timing.beat_bytes = config.memory_bytes();
    requests[k].memory_address = chip.dram_address;
  }
  Ran ran{timed.run(requests), functional.run({.cores = expected}).cores};
  bool good = true;
  for (size_t k = 0; k < at.size(); ++k) {
    EXPECT_EQ(ran.timed[k].fault, ran.functional[k].fault) << "core " << k;
    good = good && ran.functional[k].ok();
    ran.cycles = std::max(ran.cycles, ran.timed[k].cycles);
  }
  if (!good) return ran;
  EXPECT_EQ(chip.dram, other);
  for (size_t k = 0; k < at.size(); ++k) {
    const Counters& counters = ran.functional[k].counters;
    EXPECT_EQ(ran.timed[k].bytes_read, counters.dram_read_bytes + counters.fetch_bytes) << "core " << k;
    EXPECT_EQ(ran.timed[k].bytes_written, counters.dram_write_bytes) << "core " << k;
    for (int s = 0; s < isa::kSpaces; ++s) {
      const auto space = static_cast<isa::Space>(s);
      const auto a = functional.core(k).scratchpad(space), b = timed.functional(k).scratchpad(space);
      EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin())) << "core " << k << ": " << to_string(space);
    }
  }
  return ran;
}

RandomChip by_hand(Programs programs) {
  RandomChip chip;
  chip.programs = std::move(programs);
  chip.dram.resize(1 << 16);
  chip.dram_address = 1 << 20;
  chip.bases.fill(chip.dram_address);
  return chip;
}

std::vector<isa::MachineConfig> chips() {
  return {testing::chip_of(isa::find_config("npu64"), 2), testing::chip_of(isa::find_config("npu64"), 4, 4),
          testing::chip_of(testing::odd_config(1, 4, 4, 37), 3, 2),
          testing::chip_of(testing::row_config(8, 8, 64, 4), 8, 2)};
}

TEST(SystemcChip, RandomPrograms) {
  for (const isa::MachineConfig& config : chips()) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(config.name + ", seed " + std::to_string(seed));
      const RandomChip program = testing::RandomChipMaker(config, seed, {{.instructions = 25}}).make();
      DramOptions timing{.latency_cycles = static_cast<int>(1 + seed * 37 % 200)};
      if (seed % 4 == 0) timing.spec = isa::dram_preset("ddr3-800x16");
      const Ran first = run(config, program, timing);
      for (const RunResult& core : first.functional) ASSERT_TRUE(core.ok());
      EXPECT_EQ(run(config, program, timing).cycles, first.cycles);
      if (HasFailure()) return;
    }
  }
}

TEST(SystemcChip, FaultsOfOneCore) {
  for (const isa::MachineConfig& config : chips()) {
    for (uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(config.name + ", seed " + std::to_string(seed));
      testing::RandomChipMaker maker(config, seed, {.core = {.instructions = 25}, .publish_last = true});
      RandomChip program = maker.make();
      auto& faulty = program.programs[seed % program.programs.size()];
      isa::Instruction& instruction = faulty[seed * 7 % (faulty.size() - 1)];
      if (auto* load = std::get_if<isa::Load>(&instruction); load != nullptr && !load->fill) {
        load->dram_offset += uint64_t{1} << 33;
      } else {
        isa::header_of(instruction).waits[0] = {true, isa::Engine::kGemm, 5000};
      }
      run(config, program, {.latency_cycles = 50});
      if (HasFailure()) return;
    }
  }
}

TEST(SystemcChip, DeadlocksEnd) {
  for (const isa::MachineConfig& config : chips()) {
    run(config, testing::RandomChipMaker(config, 3, {{.instructions = 10}}).make(testing::Planted::kDeadlock), {});
  }
}

/// FETCH holds a LOAD for the only place of its queue. The bus grants the last burst of the LOAD inside, so that the
/// one in the queue leaves; STORE's head has left a cycle before, in one of these programs.
TEST(SystemcChip, RoomInNeighbouringCycles) {
  isa::MachineConfig core = isa::find_config("npu64");
  core.load_queue = 1;
  for (const int reads : {1, 2}) {
    core.reads_in_flight = reads;
    const isa::MachineConfig config = testing::chip_of(core, 2);
    for (int steps = 80; steps < 350; ++steps) {
      std::string text = "alu extent=1,1,1,1,1," + std::to_string(steps) + " src_stride=0,0,0,0,0,0 " +
                         "dst_stride=0,0,0,0,0,0 src=acc dst=out low=-512 high=511 signal\n" +
                         "store space=out dram_offset=8192 length=8 wait=alu:1\n";
      for (int n = 0; n < 5; ++n) {
        text +=
            "load length=8 extent=1,1,1,4 dram_stride=0,0,0,64 sp_stride=0,0,0,8 sp_addr=" + std::to_string(64 * n) +
            "\n";
      }
      const std::vector<isa::Instruction> program = isa::assemble(text + "finish");
      run(config, by_hand({program, program}), {.latency_cycles = 20});
      if (HasFailure()) FAIL() << reads << " reads in flight, " << steps << " steps";
    }
  }
}

std::vector<isa::Instruction> loads(int count) {
  std::string text;
  for (int n = 0; n < count; ++n) text += "load space=inp length=4096 dram_offset=" + std::to_string(n * 4096) + "\n";
  return isa::assemble(text + "finish");
}

TEST(SystemcChip, ACoreAlonePaysTheWayThere) {
  // A grant, an address and two cycles through the buffer: as on a machine of one core with a latency four cycles
  // longer.
  const isa::MachineConfig one = isa::find_config("npu64"), two = testing::chip_of(one, 2);
  for (const int latency : {20, 100, 200}) {
    for (const int count : {1, 3, 12}) {
      const Ran chip = run(two, by_hand({loads(count), {}}), {.latency_cycles = latency});
      const Ran alone = run(one, by_hand({loads(count)}), {.latency_cycles = latency + 4});
      EXPECT_NEAR(static_cast<double>(chip.cycles), static_cast<double>(alone.cycles), 2) << latency << " " << count;
    }
  }
}

TEST(SystemcChip, RunsOfACoreAloneJoin) {
  // Runs leave LOAD's queue at the pace of their burst's beats, whatever the memory's latency before the first one.
  for (const int reads : {1, 2, 32}) {
    isa::MachineConfig one = isa::find_config("npu64");
    one.reads_in_flight = reads;
    const isa::MachineConfig two = testing::chip_of(one, 2);
    for (const int bytes : {16, 40, 120, 200}) {
      const std::string length = std::to_string(bytes), step = std::to_string(bytes + 16);
      const auto program = isa::assemble("load space=inp length=" + length + " extent=1,1,1,20 dram_stride=0,0,0," +
                                         length + " sp_stride=0,0,0," + step + "\nfinish");
      for (const int latency : {20, 100}) {
        const Ran chip = run(two, by_hand({program, {}}), {.latency_cycles = latency});
        const Ran alone = run(one, by_hand({program}), {.latency_cycles = latency + 4});
        EXPECT_NEAR(static_cast<double>(chip.cycles), static_cast<double>(alone.cycles),
                    2 + 0.01 * static_cast<double>(alone.cycles))
            << reads << " reads in flight, " << bytes << " bytes, latency " << latency;
      }
    }
  }
}

TEST(SystemcChip, CoresShareTheMaster) {
  const isa::MachineConfig one = isa::find_config("npu64");
  const auto alone = static_cast<double>(run(one, by_hand({loads(12)}), {}).cycles);
  const auto of = [&](int cores, int ratio) {
    return static_cast<double>(
        run(testing::chip_of(one, cores, ratio), by_hand(Programs(static_cast<size_t>(cores), loads(12))), {}).cycles);
  };
  // All of the master's cycles are wanted: what is lost at the beginning does not come back.
  EXPECT_NEAR(of(2, 2) / alone, 1, 0.08);
  EXPECT_NEAR(of(4, 4) / alone, 1, 0.08);
  EXPECT_NEAR(of(2, 1) / alone, 2, 0.1);
  EXPECT_NEAR(of(4, 2) / alone, 2, 0.1);
  EXPECT_NEAR(of(4, 1) / alone, 4, 0.25);
}

TEST(SystemcChip, APublishTakesItsTime) {
  const std::string publish = "fence engine=store publish signal\n";
  const auto awaits = [&](int count) {
    return "fence engine=load await await_core=1 await_count=" + std::to_string(count) + " signal\n";
  };
  const isa::MachineConfig config = testing::chip_of(isa::find_config("npu64"), 2);
  const Ran ran =
      run(config,
          by_hand({isa::assemble(awaits(1) + "fence engine=store publish wait=load:1\nfinish"),
                   isa::assemble("fence engine=load await await_core=0 await_count=1\n" + publish + "finish")}),
          {});
  // Core 1 publishes at once, core 0 then, which core 1 awaits.
  EXPECT_GT(ran.timed[1].cycles, ran.timed[0].cycles - 10);
  const UnitCounters& load = ran.timed[1].units[static_cast<size_t>(isa::Unit::kLoad)];
  EXPECT_GT(load.wait[static_cast<size_t>(isa::Engine::kLoad)], 5u);
}

}  // namespace
}  // namespace tessera::sim::systemc
