// SPDX-License-Identifier: Apache-2.0
// The device litex against a stand-in for a system: results, links that break, boards that are not as they should be.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <numeric>

#include "base/error.h"
#include "driver/litex/tests/stand_in.h"
#include "driver/litex/window.h"
#include "driver/registry.h"
#include "driver/tests/programs.h"

namespace tessera::driver {
namespace {

using test::StandIn;
using test::StandInOptions;

isa::MachineConfig machine() { return isa::find_config("npu64"); }

template <typename Body>
std::string error_of(ErrorCode code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

std::unique_ptr<Device> open(const StandIn& system, std::map<std::string, std::string> backend = {}) {
  DeviceOptions options;
  options.backend = std::move(backend);
  return open_device(system.device(), machine(), options);
}

/// Bytes through the machine (driver/tests/programs.h), compared with fsim's; the seed draws the bytes.
void expect_right(Device& device, uint64_t seed) {
  const auto fsim = open_device("fsim", machine());
  std::vector<uint8_t> input(1100);
  std::mt19937_64 random(seed);
  for (uint8_t& byte : input) byte = static_cast<uint8_t>(random());
  const std::vector<uint8_t> words = test::words_of(test::turn_around(64));
  std::vector<uint8_t> outputs[2];
  for (Device* one : {&device, fsim.get()}) {
    const uint64_t program = one->allocate(words.size()), from = one->allocate(1100), to = one->allocate(3000);
    one->place(program, words);
    one->write(from, input);
    one->write(to, std::vector<uint8_t>(3000, 0));
    RunRequest request;
    request.program_address = program;
    request.instruction_count = 3;
    request.bases[1] = from;
    request.bases[2] = to;
    const RunReport report = one->run(request);
    EXPECT_TRUE(report.ok()) << describe(report.fault);
    std::vector<uint8_t>& output = outputs[one == fsim.get()];
    output.resize(3000);
    one->read(to, output);
    for (const uint64_t block : {program, from, to}) one->free(block);
  }
  EXPECT_EQ(outputs[0], outputs[1]) << "seed " << seed;
}

TEST(Litex, RunsAProgram) {
  const StandIn system({.config = machine()});
  const auto device = open(system);
  expect_right(*device, 1);
  EXPECT_EQ(system.starts(), 1u);
}

TEST(Litex, RunsAProgramOverEtherbone) {
  const StandIn system({.config = machine(), .break_one_in = 20000, .etherbone = true});
  const auto device = open(system);
  for (uint64_t seed = 0; seed < 20; ++seed) expect_right(*device, seed);
  EXPECT_GT(system.broken(), 0u);
  EXPECT_EQ(system.starts(), 20u);
}

TEST(Litex, CopiesAnyBytes) {
  const StandIn system({.config = machine()});
  const auto device = open(system);
  const uint64_t block = device->allocate(10000);
  std::vector<uint8_t> expected(10000), found(10000);
  device->write(block, expected);
  std::mt19937_64 random(3);
  for (int step = 0; step < 50; ++step) {
    const size_t offset = random() % 9000, size = random() % 1000;
    std::vector<uint8_t> bytes(size);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    device->write(block + offset, bytes);
    std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<ptrdiff_t>(offset));
    device->read(block + offset, bytes);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), expected.begin() + static_cast<ptrdiff_t>(offset)));
  }
  device->read(block, found);
  EXPECT_EQ(found, expected);
}

/// Ten thousand broken bytes with TESSERA_LONG, some hundreds else. Each break is one frame at least that does not come
/// over. Every result is right, and every program starts once.
TEST(Litex, BrokenFramesChangeNoResult) {
  const uint64_t wanted = std::getenv("TESSERA_LONG") != nullptr ? 10000 : 300;
  StandIn system({.config = machine(), .seed = 7});
  const auto device = open(system);
  system.set_breaking(3000);
  uint64_t runs = 0;
  while (system.broken() < wanted && !HasFailure()) expect_right(*device, ++runs);
  EXPECT_EQ(system.starts(), runs);
  EXPECT_GE(system.broken(), wanted);
}

TEST(Litex, OpensOverALinkThatBreaks) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const StandIn system({.config = machine(), .break_one_in = 2000, .seed = seed});
    expect_right(*open(system), seed);
  }
}

TEST(Litex, ALinkThatComesBackIsUsedAgain) {
  StandIn system({.config = machine()});
  const auto device = open(system);
  expect_right(*device, 1);
  system.hang_up();
  expect_right(*device, 2);
}

TEST(Litex, ALinkThatIsGoneIsOneLine) {
  auto system = std::make_unique<StandIn>(StandInOptions{.config = machine()});
  const auto device = open(*system);
  const std::string name = system->device();
  const uint64_t block = device->allocate(64);
  system.reset();
  std::vector<uint8_t> bytes(64);
  EXPECT_NE(error_of(ErrorCode::kIo, [&] { device->read(block, bytes); }).find("nobody answers"), std::string::npos);
  EXPECT_NE(error_of(ErrorCode::kIo, [&] { open_device(name, machine()); }).find("tessera litex --simulate"),
            std::string::npos);
}

TEST(Litex, ABoardThatWasResetIsNoticed) {
  StandIn system({.config = machine()});
  const auto device = open(system);
  expect_right(*device, 1);
  system.reset();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const std::string error = error_of(ErrorCode::kIo, [&] { expect_right(*device, 2); });
  EXPECT_NE(error.find("was reset"), std::string::npos) << error;
}

TEST(Litex, WrongSystemsAreRefused) {
  const StandIn system({.config = machine()});
  std::string error = error_of(ErrorCode::kUnsupported, [&] { open(system, {{"identity", "beef"}}); });
  EXPECT_NE(error.find("000102030405"), std::string::npos) << error;
  EXPECT_NO_THROW(open(system, {{"identity", "0001"}}));

  error = error_of(ErrorCode::kUnsupported, [&] { open_device(system.device(), isa::find_config("npu256")); });
  EXPECT_NE(error.find("they differ in"), std::string::npos) << error;

  const StandIn old({.config = machine(), .isa_version = 99});
  error = error_of(ErrorCode::kUnsupported, [&] { open(old); });
  EXPECT_NE(error.find("has version 99 of the instruction set"), std::string::npos) << error;

  const StandIn stranger({.config = machine(), .describes = false});
  error = error_of(ErrorCode::kUnsupported, [&] { open(stranger); });
  EXPECT_NE(error.find("no description"), std::string::npos) << error;
}

TEST(Litex, MemoryThatFailsItsTestIsNamed) {
  const StandIn system({.config = machine(), .stuck_address = 0x40000000 + 512});
  const std::string error = error_of(ErrorCode::kIo, [&] { open(system); });
  EXPECT_NE(error.find("fails its test at byte 512"), std::string::npos) << error;
  const auto device = open(system, {{"memory_test", "0"}});
  const uint64_t block = device->allocate(4096);
  const std::string later = error_of(ErrorCode::kIo, [&] { device->write(block, std::vector<uint8_t>(4096, 0)); });
  EXPECT_NE(later.find("does not keep"), std::string::npos) << later;
}

TEST(Litex, ReadDelaysAreFound) {
  const StandIn system({.config = machine(), .levels = true});
  expect_right(*open(system), 1);
  const StandIn broken({.config = machine(), .levels = true, .worst_delay = 6});
  const std::string error = error_of(ErrorCode::kIo, [&] { open(broken); });
  EXPECT_NE(error.find("reads at no delay in byte 0"), std::string::npos) << error;
}

TEST(Litex, AMachineThatHangsIsEnded) {
  const StandIn system({.config = machine(), .hangs = true});
  const auto device = open(system, {{"timeout", "0.2"}});
  RunRequest request;
  request.program_address = device->allocate(64);
  request.instruction_count = 1;
  const std::string error = error_of(ErrorCode::kDeviceFault, [&] { device->run(request); });
  EXPECT_NE(error.find("has not ended"), std::string::npos) << error;
}

TEST(Litex, NamesAndOptionsAreChecked) {
  for (const char* name : {"litex:", "litex:host", "litex:host:", "litex::90", "litex:host:port", "litex:udp:host"}) {
    error_of(ErrorCode::kInvalidArgument, [&] { open_device(name, machine()); });
  }
  error_of(ErrorCode::kIo, [&] { open_device("litex:/dev/there-is-no-such-line", machine()); });
  const StandIn system({.config = machine()});
  error_of(ErrorCode::kInvalidArgument, [&] { open(system, {{"latency", "3"}}); });
  error_of(ErrorCode::kInvalidArgument, [&] { open(system, {{"timeout", "-1"}}); });
  error_of(ErrorCode::kInvalidArgument, [&] { open(system, {{"memory_test", "2"}}); });
}

TEST(Litex, Crc32IsThatOfEthernet) {
  const std::array<uint32_t, 2> words = {0x34333231, 0x38373635};  // the bytes 12345678
  EXPECT_EQ(litex::crc32(words), 0x9AE0DAAFu);
}

}  // namespace
}  // namespace tessera::driver
