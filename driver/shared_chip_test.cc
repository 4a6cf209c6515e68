// SPDX-License-Identifier: Apache-2.0
// Parts of a chip, on every device: their programs give the bytes that they give alone, take the same cycles each time,
// really run at once, come by priority, and fail alone.
#include "driver/shared_chip.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>

#include "base/error.h"
#include "driver/registry.h"
#include "driver/tests/programs.h"

namespace tessera::driver {
namespace {

constexpr uint64_t kPiece = 256;  // bytes that a step of the program moves

isa::MachineConfig chip_config(int memory_bytes) {
  isa::MachineConfig config = isa::load_config("sim/verilator/configs/chip3.toml");
  config.memory_axi_bytes = memory_bytes;
  return config;
}

bool has(std::string_view name) {
  const auto known = backends();
  return std::any_of(known.begin(), known.end(), [&](const BackendInfo& one) { return one.name == name; });
}

/// Moves so many pieces from base 0 to base 1, one after another.
std::vector<isa::Instruction> copy_program(uint16_t pieces) {
  std::vector<isa::Instruction> program;
  for (uint16_t k = 0; k < pieces; ++k) {
    isa::Load load;
    load.space = isa::Space::kOut;
    load.base = 0;
    load.dram_offset = k * kPiece;
    load.length = kPiece;
    load.header.signal = true;
    if (k > 0) load.header.waits[0] = {true, isa::Engine::kStore, k};
    isa::Store store;
    store.space = isa::Space::kOut;
    store.base = 1;
    store.dram_offset = k * kPiece;
    store.length = kPiece;
    store.header.signal = true;
    store.header.waits[0] = {true, isa::Engine::kLoad, static_cast<uint16_t>(k + 1)};
    program.insert(program.end(), {load, store});
  }
  program.push_back(isa::Finish{});
  return program;
}

/// A copy on one core of a part, or on two where the second waits for the first and copies on.
struct Copy {
  Copy(std::shared_ptr<Device> on, uint16_t pieces, uint8_t seed) : device(std::move(on)), bytes(pieces * kPiece) {
    std::iota(bytes.begin(), bytes.end(), seed);
    for (size_t b = 0; b < 3; ++b) request.bases[b] = device->allocate(bytes.size(), kDefaultAlignment);
    device->write(request.bases[0], bytes);
    auto first = copy_program(pieces);
    const std::vector<uint32_t> cores = device->cores();
    if (cores.size() > 1) {
      isa::Fence publish;
      publish.engine = isa::Engine::kStore;
      publish.publish = true;
      isa::Fence await;
      await.engine = isa::Engine::kLoad;
      await.await = true;
      await.await_core = static_cast<decltype(await.await_core)>(cores[0]);
      await.await_count = 1;
      auto second = first;
      for (isa::Instruction& instruction : second) {
        if (auto* load = std::get_if<isa::Load>(&instruction)) load->base = 1;
        if (auto* store = std::get_if<isa::Store>(&instruction)) store->base = 2;
      }
      first.insert(first.end() - 1, publish);
      second.insert(second.begin(), await);
      const uint64_t address = place(second);
      request.others.push_back({address, static_cast<uint32_t>(second.size())});
    }
    request.program_address = place(first);
    request.instruction_count = static_cast<uint32_t>(first.size());
  }

  uint64_t place(const std::vector<isa::Instruction>& program) const {
    const auto words = test::words_of(program);
    const uint64_t address = device->allocate(words.size(), kDefaultAlignment);
    device->write(address, words);
    return address;
  }

  /// Cycles of a run whose result is right.
  uint64_t run() {
    const uint64_t to = request.bases[device->cores().size() > 1 ? 2 : 1];
    device->write(to, std::vector<uint8_t>(bytes.size()));
    const RunReport report = device->run(request);
    EXPECT_TRUE(report.ok()) << describe_fault(report);
    std::vector<uint8_t> found(bytes.size());
    device->read(to, found);
    EXPECT_EQ(found, bytes);
    return report.cycles.value_or(0);
  }

  std::shared_ptr<Device> device;
  std::vector<uint8_t> bytes;
  RunRequest request;
};

struct Chip {
  explicit Chip(std::string_view name, int memory_bytes = 32)
      : shared(std::make_shared<SharedChip>(open_device(name, chip_config(memory_bytes)))) {}
  std::shared_ptr<SharedChip> shared;
};

/// Cycles of each run of two parts side by side.
std::vector<std::vector<uint64_t>> together(std::string_view name, int memory_bytes) {
  const Chip chip(name, memory_bytes);
  Copy one(chip.shared->part({0}), 40, 1), two(chip.shared->part({2, 1}), 7, 100);
  std::vector<std::vector<uint64_t>> cycles(2);
  auto first = std::make_unique<SharedChip::Attendance>(one.device);
  auto second = std::make_unique<SharedChip::Attendance>(two.device);
  std::thread other([&] {
    for (int n = 0; n < 3; ++n) cycles[1].push_back(two.run());
    second.reset();
  });
  for (int n = 0; n < 2; ++n) cycles[0].push_back(one.run());
  first.reset();
  other.join();
  return cycles;
}

class SharedChips : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!has(GetParam())) GTEST_SKIP() << "this build has no device " << GetParam();
  }
};

TEST_P(SharedChips, PartsRunSideBySideAndTheSameEachTime) {
  const auto cycles = together(GetParam(), 32);
  EXPECT_EQ(together(GetParam(), 32), cycles);
  if (GetParam() == "fsim") return;
  const Chip chip(GetParam());
  const uint64_t alone = Copy(chip.shared->part({0}), 40, 1).run();
  for (const uint64_t one : cycles[0]) {
    EXPECT_GE(one, alone);
    EXPECT_LE(one, alone + alone / 10);  // the bus is wide enough
  }
}

TEST_P(SharedChips, AFaultIsItsPartsAlone) {
  const Chip chip(GetParam());
  Copy one(chip.shared->part({1}), 4, 1), two(chip.shared->part({2, 0}), 4, 9);
  one.request.bases[1] = 64;  // no memory
  const RunReport report = one.device->run(one.request);
  EXPECT_EQ(report.fault.code, isa::Fault::kDramRange);
  two.run();
  two.request.others[0].instruction_count -= 1;  // no FINISH
  const RunReport other = two.device->run(two.request);
  EXPECT_EQ(describe_fault(other), "missing_finish at instruction 9 (fetch) of core 1");
  two.request.others[0].instruction_count += 1;
  two.run();
}

TEST_P(SharedChips, TheHigherPriorityComesFirst) {
  if (GetParam() != "sysc") GTEST_SKIP() << "only device sysc tells that a short program has begun";
  const Chip chip(GetParam());
  Copy busy(chip.shared->part({0}), 4, 1);
  Copy low(chip.shared->part({0}, 1), 1, 50), high(chip.shared->part({0, 1}, 2), 1, 150);
  low.request.bases[1] = high.request.bases[2];  // who runs last leaves its bytes here
  std::atomic<bool> begun = false, asked = false;
  busy.request.progress = [&](bool, uint64_t) {
    begun = true;
    while (!asked) std::this_thread::yield();
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] { busy.device->run(busy.request); });
  while (!begun) std::this_thread::yield();
  threads.emplace_back([&] { low.device->run(low.request); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  threads.emplace_back([&] { high.device->run(high.request); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  asked = true;
  for (std::thread& thread : threads) thread.join();
  std::vector<uint8_t> found(low.bytes.size());
  low.device->read(high.request.bases[2], found);
  EXPECT_EQ(found, low.bytes);
}

INSTANTIATE_TEST_SUITE_P(Devices, SharedChips, ::testing::Values("fsim", "sysc", "rtl"),
                         [](const auto& given) { return given.param; });

TEST(SharedChip, PartsShareTheBus) {
  if (!has("sysc")) GTEST_SKIP() << "this build has no device sysc";
  const Chip chip("sysc", 8);
  const uint64_t alone = Copy(chip.shared->part({0}), 40, 1).run();
  const uint64_t beside = together("sysc", 8)[0][0];
  EXPECT_GT(beside, alone);
  EXPECT_LT(beside, 2 * alone);
}

TEST(SharedChip, APartIsTheMachineOfItsCores) {
  const isa::MachineConfig chip = isa::find_config("npu256x4");
  EXPECT_EQ(part_of(chip, 4), chip);
  EXPECT_EQ(part_of(chip, 2), isa::find_config("npu256x2"));
  EXPECT_EQ(part_of(chip, 1), isa::find_config("npu256"));
  EXPECT_EQ(part_of(chip, 3).name, "npu256x4-3cores");
  EXPECT_EQ(part_of(chip, 3).memory_bytes(), 16);
  EXPECT_NO_THROW(isa::validate(part_of(chip, 3)));
  EXPECT_THROW(part_of(chip, 5), Error);
  const Chip shared("fsim");
  EXPECT_THROW(shared.shared->part({}), Error);
  EXPECT_THROW(shared.shared->part({0, 3}), Error);
  EXPECT_THROW(shared.shared->part({1, 1}), Error);
}

}  // namespace
}  // namespace tessera::driver
