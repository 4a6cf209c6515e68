// SPDX-License-Identifier: Apache-2.0
// The device interface on the functional simulator: memory, placement, runs, reports, errors.
#include <gtest/gtest.h>

#include <numeric>
#include <thread>

#include "base/error.h"
#include "driver/device.h"
#include "driver/heap.h"
#include "driver/registry.h"
#include "driver/tests/programs.h"

namespace tessera::driver {
namespace {

using test::words_of;

template <typename Body>
std::string error_of(ErrorCode code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

/// DRAM to OUT to DRAM: `size` bytes from base 0 to base 1.
std::vector<isa::Instruction> copy_program(uint16_t size, bool synchronised = true) {
  isa::Load load;
  load.space = isa::Space::kOut;
  load.length = size;
  load.header.signal = true;
  isa::Store store;
  store.space = isa::Space::kOut;
  store.base = 1;
  store.length = size;
  if (synchronised) store.header.waits[0] = {true, isa::Engine::kLoad, 1};
  return {load, store, isa::Finish{}};
}

TEST(Heap, BlocksAreDisjointAlignedAndReused) {
  Heap heap(4096, 1 << 20);
  const uint64_t a = heap.allocate(100, 64);
  const uint64_t b = heap.allocate(5000, 4096);
  const uint64_t c = heap.allocate(1, 64);
  EXPECT_EQ(a, 4096u);
  EXPECT_EQ(b, 8192u);
  EXPECT_EQ(c % 64, 0u);
  EXPECT_TRUE(c >= a + 128 && (c + 64 <= b || c >= b + 5056));
  EXPECT_TRUE(heap.contains(a, 100));
  EXPECT_TRUE(heap.contains(a + 99, 1));
  EXPECT_FALSE(heap.contains(a + 99, 2));
  EXPECT_FALSE(heap.contains(a - 1, 1));
  heap.free(b);
  EXPECT_FALSE(heap.contains(b, 1));
  EXPECT_EQ(heap.allocate(5000, 4096), b);
  heap.free(a);
  heap.free(b);
  heap.free(c);
  EXPECT_EQ(heap.free_bytes(), uint64_t{1} << 20);
  EXPECT_EQ(heap.allocate(1 << 20, 64), 4096u);  // all holes have joined
}

TEST(Heap, RandomUseKeepsItsInvariants) {
  Heap heap(uint64_t{1} << 40, 1 << 16);
  std::vector<std::pair<uint64_t, uint64_t>> live;
  uint64_t state = 7;
  const auto random = [&](uint64_t n) {
    return ((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % n;
  };
  int refused = 0;
  for (int step = 0; step < 5000; ++step) {
    if (!live.empty() && random(3) == 0) {
      const size_t k = random(live.size());
      heap.free(live[k].first);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(k));
      continue;
    }
    const uint64_t size = 1 + random(6000);
    const uint64_t alignment = uint64_t{64} << random(6);
    try {
      const uint64_t at = heap.allocate(size, alignment);
      EXPECT_EQ(at % alignment, 0u);
      EXPECT_GE(at, heap.base());
      EXPECT_LE(at + size, heap.base() + heap.size_bytes());
      for (const auto& [other, other_size] : live) EXPECT_TRUE(at + size <= other || other + other_size <= at);
      live.push_back({at, size});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
      ++refused;
    }
  }
  EXPECT_GT(refused, 10);
  for (const auto& [at, size] : live) heap.free(at);
  EXPECT_EQ(heap.free_bytes(), heap.size_bytes());
}

TEST(Heap, Errors) {
  EXPECT_THROW(Heap(1, 4096), Error);
  EXPECT_THROW(Heap(0, 0), Error);
  EXPECT_THROW(Heap(UINT64_MAX - 63, 4096), Error);
  Heap heap(0, 8192);
  error_of(ErrorCode::kInvalidArgument, [&] { heap.allocate(1, 32); });
  error_of(ErrorCode::kInvalidArgument, [&] { heap.allocate(1, 96); });
  const std::string message = error_of(ErrorCode::kDoesNotFit, [&] { heap.allocate(8193, 64); });
  EXPECT_NE(message.find("8192"), std::string::npos) << message;
  error_of(ErrorCode::kDoesNotFit, [&] { heap.allocate(UINT64_MAX, 64); });
  const uint64_t a = heap.allocate(64, 64);
  error_of(ErrorCode::kInvalidArgument, [&] { heap.free(a + 64); });
  heap.free(a);
  error_of(ErrorCode::kInvalidArgument, [&] { heap.free(a); });
}

TEST(Registry, ListsAndRefuses) {
  const auto known = backends();
  EXPECT_EQ(known.front().name, "fsim");
  const isa::MachineConfig config = isa::find_config("npu64");
  const std::string message = error_of(ErrorCode::kInvalidArgument, [&] { open_device("gpu", config); });
  EXPECT_NE(message.find("gpu"), std::string::npos);
  EXPECT_NE(message.find("fsim"), std::string::npos);
  DeviceOptions options;
  options.backend["speed"] = "11";
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { open_device("fsim", config, options); }).find("speed"),
            std::string::npos);
  options.backend = {{"kernels", "quantum"}};
  error_of(ErrorCode::kInvalidArgument, [&] { open_device("fsim", config, options); });
  isa::MachineConfig broken = config;
  broken.block_in = 7;
  error_of(ErrorCode::kInvalidArgument, [&] { open_device("fsim", broken); });
}

TEST(Device, RunsOneProgramAtTwoPlaces) {
  for (const uint64_t base : {uint64_t{1} << 32, uint64_t{0x7ffe00000000}}) {
    DeviceOptions options;
    options.heap_base = base;
    options.heap_bytes = 1 << 20;
    const auto device = open_device("fsim", isa::find_config("npu256"), options);
    EXPECT_EQ(device->config().name, "npu256");
    const auto words = words_of(copy_program(1000));
    const uint64_t program = device->allocate(words.size());
    EXPECT_EQ(program, base);
    device->write(program, words);
    std::vector<uint8_t> data(1000);
    std::iota(data.begin(), data.end(), uint8_t{1});
    RunRequest request;
    request.program_address = program;
    request.instruction_count = 3;
    request.bases[0] = device->allocate(1000);
    request.bases[1] = device->allocate(1000);
    request.check_races = true;
    request.check_allocations = true;
    request.profile = true;
    request.poison = 5;
    device->write(request.bases[0], data);
    const RunReport report = device->run(request);
    EXPECT_TRUE(report.ok()) << describe(report.fault);
    EXPECT_TRUE(report.races.empty());
    std::vector<uint8_t> copy(1000);
    device->read(request.bases[1], copy);
    EXPECT_EQ(copy, data);
    EXPECT_FALSE(report.cycles.has_value());
    EXPECT_EQ(report.counters.instructions, 3u);
    EXPECT_EQ(report.counters.bytes_read, 1000u + 3 * 64);
    EXPECT_EQ(report.counters.bytes_written, 1000u);
    EXPECT_EQ(report.counters.units[static_cast<size_t>(isa::Unit::kLoad)].executed, 1u);
    ASSERT_EQ(report.profile.size(), 3u);
    EXPECT_EQ(report.profile[0].bytes_read, 1000u);
    EXPECT_EQ(report.profile[1].bytes_written, 1000u);
    EXPECT_EQ(report.profile[1].unit, isa::Unit::kStore);
    EXPECT_EQ(report.profile[2].unit, isa::Unit::kFetch);
  }
}

isa::MachineConfig two_cores() {
  isa::MachineConfig config = isa::find_config("npu64");
  config.name = "two";
  config.cores = 2;
  return config;
}

bool has(std::string_view name) {
  const auto known = backends();
  return std::any_of(known.begin(), known.end(), [&](const BackendInfo& one) { return one.name == name; });
}

TEST(Device, RunsAProgramOnEachCore) {
  // Core 0 copies from base 0 to base 1 and publishes; core 1 awaits that and copies on to base 2.
  isa::Fence publish;
  publish.engine = isa::Engine::kStore;
  publish.publish = true;
  isa::Fence await;
  await.engine = isa::Engine::kLoad;
  await.await = true;
  await.await_count = 1;
  auto first = copy_program(1000), second = first;
  first.insert(first.end() - 1, publish);
  second.insert(second.begin(), await);
  std::get<isa::Load>(second[1]).base = 1;
  std::get<isa::Store>(second[2]).base = 2;
  for (const char* name : {"fsim", "sysc"}) {
    if (!has(name)) continue;
    SCOPED_TRACE(name);
    const auto device = open_device(name, two_cores());
    std::vector<uint8_t> data(1000), copy(1000);
    std::iota(data.begin(), data.end(), uint8_t{1});
    RunRequest request;
    for (size_t b = 0; b < 3; ++b) request.bases[b] = device->allocate(1000);
    device->write(request.bases[0], data);
    request.program_address = device->allocate(512);
    request.instruction_count = 4;
    request.others.push_back({device->allocate(512), 4});
    request.profile = true;
    device->write(request.program_address, words_of(first));
    device->write(request.others[0].program_address, words_of(second));
    RunReport report = device->run(request);
    EXPECT_TRUE(report.ok()) << describe_fault(report);
    device->read(request.bases[2], copy);
    EXPECT_EQ(copy, data);
    ASSERT_EQ(report.cores.size(), 2u);
    EXPECT_EQ(report.counters.bytes_read, 2 * (1000u + 4 * 64));
    EXPECT_EQ(report.cores[1].counters.bytes_written, 1000u);
    EXPECT_EQ(report.cycles.has_value(), std::string_view(name) != "fsim");
    if (report.cycles) {
      EXPECT_EQ(*report.cycles, *report.cores[1].cycles);
    }
    ASSERT_EQ(report.profile.size(), 8u);
    EXPECT_EQ(std::count_if(report.profile.begin(), report.profile.end(), [](const auto& i) { return i.core == 1; }),
              4);

    auto endless = second;
    std::get<isa::Fence>(endless[0]).await_count = 2;
    device->write(request.others[0].program_address, words_of(endless));
    report = device->run(request);
    EXPECT_EQ(describe_fault(report), "no_progress at instruction 0 (load) of core 1");
    request.others[0].instruction_count = 0;
    report = device->run(request);
    EXPECT_TRUE(report.ok());
    EXPECT_EQ(report.cores[1].counters.instructions, 0u);
    request.others.push_back({});
    error_of(ErrorCode::kInvalidArgument, [&] { device->run(request); });
  }
}

TEST(Device, RacesOfTwoCoresAreReported) {
  const auto device = open_device("fsim", two_cores());
  const auto words = words_of(copy_program(64));
  RunRequest request;
  request.bases[0] = device->allocate(64);
  request.bases[1] = device->allocate(64);
  request.program_address = device->allocate(words.size());
  request.instruction_count = 3;
  request.others.push_back({device->allocate(words.size()), 3});
  request.check_races = true;
  device->write(request.program_address, words);
  device->write(request.others[0].program_address, words);
  const RunReport report = device->run(request);
  ASSERT_EQ(report.races.size(), 1u);
  EXPECT_NE(describe(report.races[0]).find("instruction 1 of core 0 (store, write) and 1 of core 1 (store, write)"),
            std::string::npos)
      << describe(report.races[0]);
}

TEST(Device, FaultsAreData) {
  const auto device = open_device("fsim", isa::find_config("npu64"), {.heap_bytes = 1 << 16});
  const auto words = words_of(copy_program(100));
  RunRequest request;
  request.program_address = device->allocate(words.size());
  request.instruction_count = 3;
  device->write(request.program_address, words);
  request.bases[0] = device->allocate(50);
  request.bases[1] = device->allocate(50);
  EXPECT_TRUE(device->run(request).ok());  // beyond the allocation, inside the heap: the machine cannot know
  request.check_allocations = true;
  EXPECT_EQ(device->run(request).fault, (isa::FaultRecord{isa::Fault::kDramRange, isa::Unit::kLoad, 0}));
  request.check_allocations = false;
  request.bases[1] = 0;
  RunReport report = device->run(request);
  EXPECT_EQ(report.fault, (isa::FaultRecord{isa::Fault::kDramRange, isa::Unit::kStore, 1}));
  EXPECT_EQ(describe(report.fault), "dram_range at instruction 1 (store)");
  request.bases[1] = request.bases[0];
  request.instruction_count = 2;
  EXPECT_EQ(device->run(request).fault, (isa::FaultRecord{isa::Fault::kMissingFinish, isa::Unit::kFetch, 2}));
  request.program_address = 64;  // not in the heap
  EXPECT_EQ(device->run(request).fault, (isa::FaultRecord{isa::Fault::kDramRange, isa::Unit::kFetch, 0}));
  request.program_address = 65;
  error_of(ErrorCode::kInvalidArgument, [&] { device->run(request); });
}

TEST(Device, HostAccessStaysInsideAllocations) {
  const auto device = open_device("fsim", isa::find_config("npu64"), {.heap_bytes = 1 << 16, .poison_allocations = 3});
  const uint64_t a = device->allocate(100);
  std::vector<uint8_t> bytes(101);
  device->read(a, std::span(bytes).first(100));
  EXPECT_GT(std::count_if(bytes.begin(), bytes.end(), [](uint8_t b) { return b != 0; }), 80);  // poisoned
  device->write(a + 1, std::span<const uint8_t>(bytes).first(99));
  error_of(ErrorCode::kInvalidArgument, [&] { device->write(a, bytes); });
  error_of(ErrorCode::kInvalidArgument, [&] { device->read(a + 100, std::span(bytes).first(1)); });
  device->free(a);
  error_of(ErrorCode::kInvalidArgument, [&] { device->read(a, std::span(bytes).first(1)); });
  error_of(ErrorCode::kInvalidArgument, [&] { device->free(a); });
  error_of(ErrorCode::kDoesNotFit, [&] { device->allocate(1 << 20); });
}

TEST(Device, SeveralThreadsUseOneDevice) {
  const auto device = open_device("fsim", isa::find_config("npu64"));
  const auto words = words_of(copy_program(256));
  const uint64_t program = device->allocate(words.size());
  device->write(program, words);
  std::vector<std::thread> threads;
  std::array<bool, 4> equal{};
  for (size_t t = 0; t < equal.size(); ++t) {
    threads.emplace_back([&, t] {
      bool all = true;
      for (int n = 0; n < 50; ++n) {
        std::vector<uint8_t> data(256, static_cast<uint8_t>(17 * t + n));
        std::vector<uint8_t> copy(256);
        RunRequest request;
        request.program_address = program;
        request.instruction_count = 3;
        request.bases[0] = device->allocate(256);
        request.bases[1] = device->allocate(256);
        device->write(request.bases[0], data);
        all = all && device->run(request).ok();
        device->read(request.bases[1], copy);
        all = all && copy == data;
        device->free(request.bases[0]);
        device->free(request.bases[1]);
      }
      equal[t] = all;
    });
  }
  for (auto& thread : threads) thread.join();
  for (const bool e : equal) EXPECT_TRUE(e);
}

}  // namespace
}  // namespace tessera::driver
