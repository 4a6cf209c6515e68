// SPDX-License-Identifier: Apache-2.0
// Programs that want memory which is not theirs (docs/security.md). Drawn LOADs and STOREs lie at the borders of the
// buffers, beyond them, or wrap around: with large strides, offsets and extents, any base register, and bases at the
// end of the address space. Shown: an artifact is accepted if and only if addresses counted one by one, in 128 bits,
// stay in its constants (read) and its arena; what is accepted leaves every other byte of the device as it is, and its
// results do not depend on them; what runs without having been checked faults alike, and writes alike, on the
// functional simulator, the timing model and the RTL.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/error.h"
#include "driver/registry.h"
#include "driver/tests/programs.h"
#include "isa/program/artifact.h"
#include "isa/verify/verify.h"

namespace tessera::driver {
namespace {

using Wide = __int128;
using Program = std::vector<isa::Instruction>;

constexpr uint64_t kHeapBytes = 64 << 10;
constexpr uint64_t kConstantBytes = 4096, kArenaBytes = 8192;

const isa::MachineConfig& config() {
  static const isa::MachineConfig npu = isa::find_config("npu64");
  return npu;
}

/// A drawn transfer and the range that it touches, found address by address.
class Hostile {
 public:
  explicit Hostile(uint64_t seed) : random_(seed) {}

  Program draw() {
    Program program;
    std::array<uint16_t, isa::kEngines> signals{};
    for (int k = 0, count = 1 + below(3); k < count; ++k) {
      isa::Instruction next = below(2) == 0 ? isa::Instruction(load()) : isa::Instruction(store());
      if (isa::check_operands(next, config()) || isa::check_ranges(next, config())) {
        --k;
        continue;
      }
      // One after the other, so that all machines do the same.
      isa::Header& header = std::visit([](auto& i) -> isa::Header& { return i.header; }, next);
      size_t wait = 0;
      for (const isa::Engine engine : {isa::Engine::kLoad, isa::Engine::kStore})
        header.waits[wait++] = {true, engine, signals[static_cast<size_t>(engine)]};
      header.signal = true;
      ++signals[static_cast<size_t>(*isa::engine_of(next))];
      program.push_back(next);
    }
    program.emplace_back(isa::Finish{});
    return program;
  }

  uint64_t bits() { return random_(); }

 private:
  int below(int count) { return static_cast<int>(random_() % static_cast<uint64_t>(count)); }

  template <typename T>
  void transfer(T& i, uint64_t limit) {
    i.space = isa::Space::kOut;
    i.length = static_cast<uint16_t>(1 + below(below(4) == 0 ? 600 : 40));
    for (int loops = below(3); loops > 0; --loops) {
      const auto k = static_cast<size_t>(below(isa::kTransferLoops));
      i.extent[k] = static_cast<uint16_t>(1 + below(9));
      i.dram_stride[k] = static_cast<int32_t>(below(6) == 0 ? random_() : static_cast<uint64_t>(below(1400) - 700));
      i.sp_stride[k] = below(32);
    }
    Wide lowest = 0, highest = 0;
    span(i, lowest, highest);
    highest += i.length - 1;
    // Mostly at a border: the first or the last byte is the buffer's, or one beyond it.
    const Wide places[] = {-lowest,     -lowest - 1,         Wide{limit} - 1 - highest, Wide{limit} - highest,
                           Wide{limit}, (Wide{1} << 36) - 1, Wide{random_() % limit},   Wide{random_() >> 28}};
    const Wide offset = places[below(8)];
    i.dram_offset = static_cast<uint64_t>(offset < 0 ? 0 : offset) & ((uint64_t{1} << 36) - 1);
  }

  isa::Load load() {
    isa::Load i;
    i.base = static_cast<uint8_t>(below(8) == 0 ? below(16) : below(2));
    transfer(i, i.base == program::kArenaBase ? kArenaBytes : kConstantBytes);
    if (below(4) == 0) i.pad_before[0] = static_cast<uint8_t>(below(i.extent[0] + 1));
    if (below(4) == 0) i.pad_after[1] = static_cast<uint8_t>(below(i.extent[1] + 1));
    return i;
  }
  isa::Store store() {
    isa::Store i;
    i.base = static_cast<uint8_t>(below(8) == 0 ? below(16) : below(6) == 0 ? 0 : 1);
    transfer(i, kArenaBytes);
    return i;
  }

  template <typename T>
  static void span(const T& i, Wide& lowest, Wide& highest) {
    for (size_t k = 0; k < isa::kTransferLoops; ++k) {
      const Wide reach = Wide{i.extent[k] - 1} * i.dram_stride[k];
      (reach < 0 ? lowest : highest) += reach;
    }
  }

  std::mt19937_64 random_;
};

/// Calls f(first byte of a run, relative to the base) for every run in DRAM.
template <typename F>
void each_run(const isa::Instruction& instruction, F&& f) {
  const auto walk = [&](const auto& i, const std::array<int, 2>& before, const std::array<int, 2>& after) {
    std::array<int, 4> at{};
    for (at[0] = 0; at[0] < i.extent[0] - before[0] - after[0]; ++at[0])
      for (at[1] = 0; at[1] < i.extent[1] - before[1] - after[1]; ++at[1])
        for (at[2] = 0; at[2] < i.extent[2]; ++at[2])
          for (at[3] = 0; at[3] < i.extent[3]; ++at[3]) {
            Wide address = i.dram_offset;
            for (size_t k = 0; k < 4; ++k) address += Wide{at[k]} * i.dram_stride[k];
            f(address);
          }
  };
  if (const auto* load = std::get_if<isa::Load>(&instruction)) {
    walk(*load, {load->pad_before[0], load->pad_before[1]}, {load->pad_after[0], load->pad_after[1]});
  } else if (const auto* store = std::get_if<isa::Store>(&instruction)) {
    walk(*store, {0, 0}, {0, 0});
  }
}

/// Whether every byte that a program touches is one it may touch, by counting.
bool stays_inside(const Program& program) {
  bool inside = true;
  for (const isa::Instruction& instruction : program) {
    const auto* load = std::get_if<isa::Load>(&instruction);
    const auto* store = std::get_if<isa::Store>(&instruction);
    if (load == nullptr && store == nullptr) continue;
    const int base = load != nullptr ? load->base : store->base;
    const int length = load != nullptr ? load->length : store->length;
    each_run(instruction, [&](Wide address) {
      const bool own = base == program::kArenaBase || (base == program::kConstantsBase && load != nullptr);
      const uint64_t limit = base == program::kArenaBase ? kArenaBytes : kConstantBytes;
      inside = inside && own && address >= 0 && address + length <= Wide{limit};
    });
  }
  return inside;
}

bool accepted(const Program& instructions) {
  program::Artifact artifact;
  artifact.config = config();
  artifact.plans.resize(1);
  artifact.device_constants.assign(kConstantBytes, 0);
  program::NpuProgram npu;
  npu.instructions = program::instruction_bytes(instructions);
  npu.constant_bytes = kConstantBytes;
  npu.arena_bytes = kArenaBytes;
  artifact.npu_programs = {npu};
  try {
    program::validate(artifact);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArtifact);
    return false;
  }
}

/// A device whose whole memory is blocks with known bytes: program, constants and arena with strangers between them.
class Bench {
 public:
  Bench(std::string_view name, uint64_t heap_base) {
    DeviceOptions options;
    options.heap_base = heap_base;
    options.heap_bytes = kHeapBytes;
    device_ = open_device(name, config(), options);
    for (const auto& [block, bytes] : std::vector<std::pair<std::string, uint64_t>>{{"stranger 0", 4096},
                                                                                    {"program", 4096},
                                                                                    {"stranger 1", 4096},
                                                                                    {"constants", kConstantBytes},
                                                                                    {"stranger 2", 4096},
                                                                                    {"arena", kArenaBytes}}) {
      blocks_[block] = {device_->allocate(bytes), bytes};
    }
    const uint64_t rest = kHeapBytes - 4 * 4096 - kConstantBytes - kArenaBytes;
    blocks_["stranger 3"] = {device_->allocate(rest), rest};
  }

  uint64_t address(const std::string& block) const { return blocks_.at(block).first; }

  /// Runs a program; `strangers` draws what stands in the memory that is not its own.
  RunReport run(const Program& program, const std::array<uint64_t, 16>& bases, uint64_t strangers) {
    for (const auto& [block, place] : blocks_) {
      std::mt19937_64 random(block.starts_with("stranger") ? strangers : 1);
      std::vector<uint8_t> bytes(place.second);
      for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
      if (block == "program") {
        const std::vector<uint8_t> words = test::words_of(program);
        std::copy(words.begin(), words.end(), bytes.begin());
      }
      device_->write(place.first, bytes);
      before_[block] = bytes;
    }
    RunRequest request;
    request.program_address = address("program");
    request.instruction_count = static_cast<uint32_t>(program.size());
    request.bases = bases;
    return device_->run(request);
  }

  /// Scratchpads keep what the program before has left: zeros.
  void clear_scratchpad() {
    isa::Load zeros;
    zeros.space = isa::Space::kOut;
    zeros.fill = true;
    zeros.extent[3] = 16;
    zeros.length = static_cast<uint16_t>(config().out_bytes / 16);
    zeros.sp_stride[3] = zeros.length;
    ASSERT_TRUE(run({zeros, isa::Finish{}}, {}, 0).ok());
  }

  std::map<std::string, std::vector<uint8_t>> memory() {
    std::map<std::string, std::vector<uint8_t>> all;
    for (const auto& [block, place] : blocks_) {
      all[block].resize(place.second);
      device_->read(place.first, all[block]);
    }
    return all;
  }
  const std::map<std::string, std::vector<uint8_t>>& before() const { return before_; }

 private:
  std::unique_ptr<Device> device_;
  std::map<std::string, std::pair<uint64_t, uint64_t>> blocks_;
  std::map<std::string, std::vector<uint8_t>> before_;
};

std::vector<std::string> simulators() {
  std::vector<std::string> names;
  for (const BackendInfo& backend : backends()) {
    const bool elsewhere = backend.name == "xrt" || backend.name == "remote" || backend.name == "litex";
    if (!elsewhere) names.push_back(backend.name);
  }
  return names;
}

/// Bases as the runtime sets them: constants, arena, and nothing else.
std::array<uint64_t, 16> own_bases(const Bench& bench) {
  std::array<uint64_t, 16> bases{};
  bases[program::kConstantsBase] = bench.address("constants");
  bases[program::kArenaBase] = bench.address("arena");
  return bases;
}

TEST(Hostile, AnArtifactIsAcceptedWhenEveryAddressIsItsOwn) {
  int good = 0, bad = 0;
  for (uint64_t seed = 0; seed < 20000; ++seed) {
    const Program program = Hostile(seed).draw();
    const bool inside = stays_inside(program);
    ASSERT_EQ(accepted(program), inside) << "seed " << seed;
    ++(inside ? good : bad);
  }
  EXPECT_GT(good, 2000);
  EXPECT_GT(bad, 10000);
}

TEST(Hostile, WhatIsAcceptedReachesItsOwnMemoryAlone) {
  for (const std::string& name : simulators()) {
    Bench bench(name, uint64_t{1} << 32);
    int runs = 0;
    for (uint64_t seed = 0; runs < 60; ++seed) {
      const Program program = Hostile(seed).draw();
      if (!accepted(program)) continue;
      ++runs;
      std::vector<uint8_t> arena;
      for (const uint64_t strangers : {2, 3}) {
        bench.clear_scratchpad();
        const RunReport report = bench.run(program, own_bases(bench), strangers);
        ASSERT_TRUE(report.ok()) << name << ", seed " << seed << ": " << describe(report.fault);
        const auto after = bench.memory();
        for (const auto& [block, bytes] : after) {
          if (block != "arena")
            ASSERT_EQ(bytes, bench.before().at(block)) << name << ", seed " << seed << ": " << block;
        }
        if (arena.empty()) arena = after.at("arena");
        ASSERT_EQ(arena, after.at("arena")) << name << ", seed " << seed << ": it has read what is not its own";
      }
    }
  }
}

TEST(Hostile, WhatIsNotCheckedFaultsAlikeOnEveryMachine) {
  // The second memory ends at the end of the address space, where sums wrap.
  for (const uint64_t heap : {uint64_t{1} << 32, uint64_t{0} - 2 * kHeapBytes}) {
    std::map<std::string, std::unique_ptr<Bench>> benches;
    for (const std::string& name : simulators()) benches[name] = std::make_unique<Bench>(name, heap);
    int faults = 0;
    for (uint64_t seed = 0; seed < 150; ++seed) {
      Hostile hostile(seed + 100000);
      const Program program = hostile.draw();
      std::array<uint64_t, 16> bases = own_bases(*benches.at("fsim"));
      const uint64_t places[] = {
          0, UINT64_MAX, heap, heap + kHeapBytes - 1, heap - 1, hostile.bits(), uint64_t{1} << 63};
      for (size_t b = 2; b < bases.size(); ++b) bases[b] = places[b % std::size(places)];
      if (seed % 3 == 0) bases[1] = places[seed / 3 % std::size(places)];
      const RunReport wanted = benches.at("fsim")->run(program, bases, 4);
      const auto memory = benches.at("fsim")->memory();
      faults += wanted.ok() ? 0 : 1;
      EXPECT_TRUE(wanted.ok() || wanted.fault.code == isa::Fault::kDramRange) << describe(wanted.fault);
      for (auto& [name, bench] : benches) {
        const RunReport report = name == "fsim" ? wanted : bench->run(program, bases, 4);
        ASSERT_EQ(report.fault, wanted.fault) << name << ", seed " << seed << ": " << describe(report.fault);
        ASSERT_EQ(bench->memory(), memory) << name << ", seed " << seed;
      }
    }
    EXPECT_GT(faults, 50);
  }
}

/// 2^66 iterations, which 64 bits count as none: the first of them leaves the scratchpad.
TEST(Hostile, MoreIterationsThanCanBeCounted) {
  isa::Gemm gemm;
  gemm.extent.fill(2048);
  gemm.inp_stride[0] = gemm.inp_stride[5] = 8191;
  isa::Gemm sums;
  sums.extent.fill(2048);
  sums.acc_stride[0] = 8191;
  isa::Alu alu;
  alu.extent.fill(2048);
  alu.src_stride[5] = 8191;
  for (const isa::Instruction& instruction : {isa::Instruction(gemm), isa::Instruction(sums), isa::Instruction(alu)}) {
    EXPECT_FALSE(accepted({instruction, isa::Finish{}}));
    for (const std::string& name : simulators()) {
      Bench bench(name, uint64_t{1} << 32);
      const RunReport report = bench.run({instruction, isa::Finish{}}, own_bases(bench), 5);
      EXPECT_EQ(report.fault.code, isa::Fault::kScratchpadRange) << name;
      EXPECT_EQ(report.fault.pc, 0U) << name;
    }
  }
}

}  // namespace
}  // namespace tessera::driver
