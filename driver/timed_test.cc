// SPDX-License-Identifier: Apache-2.0
// The devices with time, rtl and sysc, through the driver's interface: the same memory as the device fsim after the
// same program, counters, cycles, faults as data, and errors of the caller.
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "driver/registry.h"
#include "driver/tests/programs.h"
#include "isa/generated/timing.h"

namespace tessera::driver {
namespace {

const auto kWrites = static_cast<uint64_t>(isa::find_config("npu64").writes_in_flight);

struct Outcome {
  RunReport report;
  std::vector<uint8_t> bytes;
};

/// 1000 bytes go from an odd address to OUT and in pieces of 10, turned around, to another buffer.
Outcome run(std::string_view name, uint32_t first_byte, bool profile = false, const DeviceOptions& options = {}) {
  const auto device = open_device(name, isa::find_config("npu64"), options);
  const uint64_t program = device->allocate(3 * 64);
  const uint64_t from = device->allocate(2048);
  const uint64_t to = device->allocate(2048);
  std::vector<uint8_t> bytes(2048);
  std::iota(bytes.begin(), bytes.end(), 1);
  device->write(from, bytes);
  device->write(to, std::vector<uint8_t>(2048));

  device->write(program, test::words_of(test::turn_around(first_byte)));
  RunRequest request;
  request.program_address = program;
  request.instruction_count = 3;
  request.profile = profile;
  request.bases[1] = from;
  request.bases[2] = to;
  Outcome outcome{device->run(request), std::vector<uint8_t>(2048)};
  device->read(to, outcome.bytes);
  return outcome;
}

class TimedDevice : public ::testing::TestWithParam<std::string> {};

TEST_P(TimedDevice, EqualsTheFunctionalSimulator) {
  const Outcome wanted = run("fsim", 3);
  const Outcome actual = run(GetParam(), 3);
  ASSERT_TRUE(wanted.report.ok());
  ASSERT_TRUE(actual.report.ok()) << describe(actual.report.fault);
  EXPECT_EQ(actual.bytes, wanted.bytes);
  EXPECT_EQ(actual.report.counters.instructions, 3U);
  EXPECT_EQ(actual.report.counters.bytes_read, wanted.report.counters.bytes_read);
  EXPECT_EQ(actual.report.counters.bytes_written, wanted.report.counters.bytes_written);
  ASSERT_TRUE(actual.report.cycles.has_value());
  // 100 bursts of one or two beats, so many at a time, each with a latency of 100 and some; before them FETCH and LOAD.
  EXPECT_GT(*actual.report.cycles, 100U / kWrites * 100 + 126 + 200);
  EXPECT_LT(*actual.report.cycles, 100U / kWrites * 110 + 126 + 400);
}

TEST_P(TimedDevice, FaultsAreData) {
  const Outcome wanted = run("fsim", 16384);
  const Outcome actual = run(GetParam(), 16384);
  EXPECT_EQ(actual.report.fault, wanted.report.fault);
  EXPECT_EQ(actual.report.fault, (isa::FaultRecord{isa::Fault::kScratchpadRange, isa::Unit::kLoad, 0}));
}

TEST_P(TimedDevice, ProfilesInstructions) {
  const Outcome wanted = run("fsim", 3, true);
  const Outcome actual = run(GetParam(), 3, true);
  ASSERT_TRUE(actual.report.ok());
  EXPECT_EQ(actual.bytes, wanted.bytes);
  ASSERT_EQ(actual.report.profile.size(), 3U);  // LOAD, STORE, FINISH
  const InstructionProfile &load = actual.report.profile[0], &store = actual.report.profile[1];
  EXPECT_EQ(load.unit, isa::Unit::kLoad);
  EXPECT_EQ(load.bytes_read, 1000U);
  EXPECT_EQ(store.unit, isa::Unit::kStore);
  EXPECT_EQ(store.bytes_written, 1000U);
  EXPECT_EQ(actual.report.profile[2].unit, isa::Unit::kFetch);
  for (const InstructionProfile& one : {load, store}) {
    EXPECT_LT(one.queued_cycle, one.start_cycle);
    EXPECT_LT(one.start_cycle, one.first_busy_cycle);
    EXPECT_LT(one.first_busy_cycle, one.last_busy_cycle);
    EXPECT_LT(one.last_busy_cycle, one.end_cycle);
  }
  EXPECT_EQ(load.last_busy_cycle - load.first_busy_cycle + 1, 126U);  // groups of 8 bytes, the first and last in part
  EXPECT_EQ(load.end_cycle, load.last_busy_cycle + 1);
  // It waited for LOAD's signal, and then for the look at its condition.
  const uint64_t seen = load.end_cycle + isa::timing::queue::kCondition;
  EXPECT_EQ(store.start_cycle, seen + 1);
  // It stood at the head from the cycle after it was queued until that look.
  EXPECT_EQ(store.wait_cycles[0], seen - store.queued_cycle);
  EXPECT_LT(actual.report.profile[2].end_cycle, *actual.report.cycles);

  // FETCH reads three words, LOAD 1000 bytes in one burst, STORE writes 100 runs of 10 bytes.
  uint64_t fetch = 0, loaded = 0, stored = 0;
  for (const BurstProfile& burst : actual.report.bursts) {
    EXPECT_LE(burst.address_cycle, burst.first_cycle);
    EXPECT_LE(burst.first_cycle, burst.last_cycle);
    EXPECT_EQ(burst.write, burst.unit == isa::Unit::kStore);
    (burst.unit == isa::Unit::kFetch ? fetch : burst.unit == isa::Unit::kLoad ? loaded : stored) += 1;
    if (burst.unit == isa::Unit::kLoad) {
      EXPECT_EQ(burst.bytes, 126U * 8);  // 13 bytes past a multiple of 8
      EXPECT_EQ(burst.first_cycle, burst.address_cycle + 100);
      EXPECT_EQ(burst.last_cycle, burst.first_cycle + 125);
    }
  }
  EXPECT_EQ(fetch, 3U);
  EXPECT_EQ(loaded, 1U);
  EXPECT_EQ(stored, 100U);
  // Tracing does not change time.
  EXPECT_EQ(actual.report.cycles, run(GetParam(), 3).report.cycles);
}

TEST_P(TimedDevice, TakesTheLatencyOfDram) {
  const auto cycles = [](const std::string& latency) {
    DeviceOptions options;
    options.backend["latency"] = latency;
    const auto device = open_device(GetParam(), isa::find_config("npu64"), options);
    const uint64_t program = device->allocate(64);
    const isa::Word word = isa::encode(isa::Instruction(isa::Finish{}));
    device->write(program, word);
    RunRequest request;
    request.program_address = program;
    request.instruction_count = 1;
    return *device->run(request).cycles;
  };
  EXPECT_EQ(cycles("500") - cycles("20"), 480U);
}

TEST_P(TimedDevice, BandwidthAndLatency) {
  DeviceOptions slow;
  slow.backend["bandwidth"] = "2";
  DeviceOptions far;
  far.backend["latency"] = "400";
  const uint64_t base = *run(GetParam(), 3).report.cycles;
  EXPECT_GE(*run(GetParam(), 3, false, slow).report.cycles,
            base + 3 * (126 + 24));  // four cycles a beat of LOAD, FETCH
  EXPECT_GT(*run(GetParam(), 3, false, far).report.cycles, base + 300 * (1 + 1 + 100 / kWrites));
  slow.backend["bandwidth"] = "9";
  EXPECT_THROW(run(GetParam(), 3, false, slow), Error);
}

TEST_P(TimedDevice, RefusesWhatItCannotDo) {
  const auto config = isa::find_config("npu64");
  DeviceOptions options;
  options.backend["speed"] = "9";
  EXPECT_THROW(open_device(GetParam(), config, options), Error);
  options.backend = {{"latency", "0"}};
  EXPECT_THROW(open_device(GetParam(), config, options), Error);
  const auto device = open_device(GetParam(), config);
  RunRequest request;
  request.check_races = true;
  EXPECT_THROW(device->run(request), Error);
  request.check_races = false;
  request.program_address = 8;
  EXPECT_THROW(device->run(request), Error);
}

std::vector<std::string> timed_devices() {
  std::vector<std::string> names;
  for (const BackendInfo& backend : backends()) {
    if (backend.name == "rtl" || backend.name == "sysc") names.push_back(backend.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Devices, TimedDevice, ::testing::ValuesIn(timed_devices()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace tessera::driver
