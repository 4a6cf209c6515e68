// SPDX-License-Identifier: Apache-2.0
// The replay of LOAD, STORE and copies of the vector unit takes the cycles of the timing model, which follows single
// bursts and beats: short runs alone, whatever the places in flight, the bus and DRAM's latency; padding beside stores;
// copies within INP. The least that they can take is not above it.
#include <gtest/gtest.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "compiler/emit/least.h"
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
  std::vector<uint8_t> memory(kData + (size_t{1} << 19));
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

void compare(const std::vector<isa::Instruction>& program, const isa::MachineConfig& config, int latency, double below,
             double above) {
  Dram dram;
  dram.latency_cycles = latency;
  const std::vector<uint32_t> tags(program.size(), 0);
  const auto predicted = static_cast<double>(predict(program, tags, 1, config, dram).cycles),
             wanted = static_cast<double>(simulated(program, config, latency));
  EXPECT_LT(predicted, (1 + above) * wanted + 20);
  EXPECT_GT(predicted, (1 - below) * wanted - 20);
  EXPECT_LE(static_cast<double>(least_cycles(program, WorkPool().add(program, config), config, dram)), wanted);
}

/// Beside other engines a burst waits for the bus, for which the replay adds up to a sixteenth of the latency: the
/// share that it may be above the timing model. Below it, the beats of the last bursts.
void compare(const std::vector<isa::Instruction>& program, const isa::MachineConfig& config, int latency) {
  compare(program, config, latency, 0.07, 0.1);
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

TEST(Replay, PackedLoads) {
  for (const int bus : {4, 8, 32}) {
    for (const int latency : {2, 30, 100}) {
      for (const int gap : {0, 1, 5}) {
        SCOPED_TRACE(testing::Message() << bus << " bytes, " << latency << ", " << gap);
        isa::MachineConfig config = isa::find_config("npu256");
        config.axi_bytes = bus;
        config.packed_weights = 1;
        config.raster_pairs = 0;
        std::vector<isa::Instruction> program = runs_of<isa::Load>(config.packed_entry_bytes());
        auto& load = std::get<isa::Load>(program.front());
        load.packed = true;
        load.space = isa::Space::kWgt;
        load.dram_stride.back() = load.length + gap * bus;
        load.sp_stride.back() = config.wgt_entry_bytes();
        compare(program, config, latency);
        load.sp_stride.back() = 0;
        compare(program, config, latency);
      }
    }
  }
}

/// Columns of a transposed factor, 64 of eight bytes: those of a row are requested together where the row begins with
/// a beat, which rows of an odd length do one in eight.
TEST(Replay, ColumnsOfOddRows) {
  constexpr size_t kInner = isa::kTransferLoops - 1;
  for (const int row : {64, 65, 66, 68, 72}) {
    for (const int latency : {2, 30, 100}) {
      SCOPED_TRACE(testing::Message() << "rows of " << row << ", " << latency);
      isa::Load load;
      for (auto& extent : load.extent) extent = 1;
      load.extent[kInner - 1] = load.extent[kInner] = 8;
      load.length = 8;
      load.dram_stride[kInner - 1] = row;
      load.dram_stride[kInner] = 8;
      load.sp_stride[kInner - 1] = 8;
      load.sp_stride[kInner] = 64;
      load.space = isa::Space::kWgt;
      load.dram_offset = kData;
      isa::MachineConfig config = isa::find_config("npu64");
      config.reads_in_flight = 8;
      compare({load, load, load, isa::Finish{}}, config, latency, 0.1, 0.1);
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

/// Square images of one entry a pixel with a border of padding, each followed by a store of so many images' bytes.
std::vector<isa::Instruction> padded_images(int side, int images, int stored, const isa::MachineConfig& config) {
  const int entry = config.block_in, padded = side + 2;
  std::vector<isa::Instruction> program;
  for (int k = 0; k < images; ++k) {
    isa::Load load;
    load.extent = {static_cast<uint16_t>(padded), static_cast<uint16_t>(padded), 1, 1};
    load.length = static_cast<uint16_t>(entry);
    load.pad_before = load.pad_after = {1, 1};
    load.dram_offset = kData;
    load.dram_stride = {side * entry, entry, 0, 0};
    load.sp_stride = {padded * entry, entry, 0, 0};
    program.emplace_back(load);
    isa::Store store;
    store.space = isa::Space::kOut;
    store.length = static_cast<uint16_t>(stored * side * side * entry);
    store.dram_offset = kData + (uint64_t{1} << 18);
    program.emplace_back(store);
  }
  program.emplace_back(isa::Finish{});
  return program;
}

/// While LOAD writes padding, beats that have come hold the bus. Words of the program take half of the bus where images
/// have 3 pixels a side, and the replay tells up to a fifth more.
TEST(Replay, PaddingBesideStores) {
  for (const char* name : {"npu64", "npu256"}) {
    for (const int side : {3, 7, 14}) {
      for (const int stored : {1, 2}) {
        SCOPED_TRACE(testing::Message() << name << ", " << side << " pixels, " << stored << " stored");
        const isa::MachineConfig config = isa::find_config(name);
        compare(padded_images(side, 20, stored, config), config, 20, 0.05, side == 3 ? 0.2 : 0.08);
      }
    }
  }
}

/// Copies from INP to INP, each of so many entries.
std::vector<isa::Instruction> copies(int entries, int count) {
  constexpr size_t kInner = isa::kLoops - 1;
  isa::Alu alu;
  for (auto& extent : alu.extent) extent = 1;
  alu.extent[kInner] = static_cast<uint16_t>(entries);
  alu.src = alu.dst = isa::AluSpace::kInp;
  alu.src_stride[kInner] = alu.dst_stride[kInner] = 1;
  alu.dst_addr = 512;
  std::vector<isa::Instruction> program(static_cast<size_t>(count), alu);
  program.emplace_back(isa::Finish{});
  return program;
}

/// Reads wait for the writes of the same copy, which go first at the port that they share.
TEST(Replay, CopiesWithinInp) {
  for (const int entries : {4, 14, 28, 60, 200}) {
    SCOPED_TRACE(testing::Message() << entries << " entries");
    compare(copies(entries, 12), isa::find_config("npu256"), 20, 0.1, 0.1);
  }
}

}  // namespace
}  // namespace tessera::emit
