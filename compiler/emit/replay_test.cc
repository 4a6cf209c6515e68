// SPDX-License-Identifier: Apache-2.0
// The replay of short runs of LOAD and STORE alone takes the cycles of the timing model, which follows single bursts
// and beats, whatever the places in flight, the bus and DRAM's latency.
#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "compiler/emit/predict.h"
#include "isa/assembler.h"
#include "isa/config.h"
#include "sim/systemc/machine.h"

namespace tessera::emit {
namespace {

constexpr uint64_t kMemory = uint64_t{1} << 20, kData = uint64_t{1} << 16;
constexpr int kRuns = 200, kGap = 8;

/// 200 runs that lie apart in DRAM, and the end.
template <typename Transfer>
std::vector<isa::Instruction> runs_of(int length) {
  constexpr size_t kInner = isa::kTransferLoops - 1;
  Transfer transfer;
  for (auto& extent : transfer.extent) extent = 1;
  transfer.extent[kInner] = kRuns;
  transfer.length = static_cast<uint16_t>(length);
  transfer.dram_stride[kInner] = length + kGap;
  transfer.dram_offset = kData;
  if constexpr (std::is_same_v<Transfer, isa::Store>) transfer.space = isa::Space::kOut;
  return {transfer, isa::Finish{}};
}

int64_t simulated(const std::vector<isa::Instruction>& program, const isa::MachineConfig& config, int latency) {
  std::vector<uint8_t> memory(kData + size_t{kRuns} * 512);
  auto at = memory.begin();
  for (const isa::Instruction& instruction : program) {
    const isa::Word word = isa::encode(instruction);
    at = std::copy(word.begin(), word.end(), at);
  }
  const sim::DramRegion region{kMemory, memory.data(), memory.size()};
  sim::systemc::TimedRequest request;
  request.program_address = request.bases[0] = request.window_first = kMemory;
  request.instruction_count = static_cast<uint32_t>(program.size());
  request.window_last = kMemory + memory.size() - 1;
  request.dram = {&region, 1};
  request.timing = {.beat_bytes = config.axi_bytes, .latency_cycles = latency, .bandwidth_bytes = 0};
  sim::systemc::TimedMachine machine(config);
  const sim::systemc::TimedResult result = machine.run(request);
  EXPECT_EQ(result.fault.code, isa::Fault::kNone);
  return static_cast<int64_t>(result.cycles);
}

/// Beside other engines a burst waits for the bus, for which the replay adds up to a sixteenth of the latency: the
/// share that it may be above the timing model. Below it, the beats of the last bursts.
void compare(const std::vector<isa::Instruction>& program, const isa::MachineConfig& config, int latency) {
  Dram dram;
  dram.latency_cycles = latency;
  const std::vector<uint32_t> tags(program.size(), 0);
  const auto predicted = static_cast<double>(predict(program, tags, 1, config, dram).cycles),
             wanted = static_cast<double>(simulated(program, config, latency));
  EXPECT_LT(predicted, 1.1 * wanted + 20);
  EXPECT_GT(predicted, 0.93 * wanted - 20);
}

TEST(Replay, ShortRunsOfLoad) {
  for (const int bus : {4, 8, 32}) {
    for (const int places : {2, 8, 32}) {
      for (const int latency : {2, 30, 100}) {
        for (const int length : {4, 16, 64, 128}) {
          SCOPED_TRACE(testing::Message()
                       << bus << " bytes, " << places << " in flight, " << latency << ", " << length);
          isa::MachineConfig config = isa::find_config("npu1024");
          config.axi_bytes = bus;
          config.reads_in_flight = places;
          compare(runs_of<isa::Load>(length), config, latency);
        }
      }
    }
  }
}

TEST(Replay, ShortRunsOfStore) {
  for (const int places : {1, 2, 4, 16}) {
    for (const int latency : {2, 10, 100}) {
      for (const int length : {8, 16, 64, 128}) {
        SCOPED_TRACE(testing::Message() << places << " in flight, " << latency << ", " << length);
        isa::MachineConfig config = isa::find_config("npu256");
        config.writes_in_flight = places;
        compare(runs_of<isa::Store>(length), config, latency);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::emit
