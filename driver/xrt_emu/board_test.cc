// SPDX-License-Identifier: Apache-2.0
// The device xrt on the simulated board, in one process: stock XRT, the shim, the server in a thread. Programs equal
// the device rtl to the cycle; several are in flight; faults, timeouts, lack of memory and wrong images are told; other
// users of a compute unit keep it from us.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include <experimental/xrt_ip.h>
#include <experimental/xrt_xclbin.h>
#include <xclbin.h>
#include <xrt/xrt_bo.h>
#include <xrt/xrt_device.h>
#include <xrt/xrt_kernel.h>

#include "base/error.h"
#include "driver/registry.h"
#include "driver/tests/programs.h"
#include "driver/xrt/xrt.h"
#include "driver/xrt_emu/board.h"
#include "driver/xrt_emu/xclbin.h"
#include "isa/generated/kernel_arguments.h"
#include "isa/generated/registers.h"

namespace tessera::driver {
namespace {

using test::turn_around;
using test::words_of;

class BoardThread : public ::testing::Environment {
 public:
  void SetUp() override {
    if (std::getenv("TESSERA_BOARD") != nullptr) return;  // started by tessera board, beside others perhaps
    std::string folder = (std::filesystem::temp_directory_path() / "tessera-board-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    BoardOptions options;
    options.socket_path = folder_ + "/socket";
    options.verbose = std::getenv("TESSERA_BOARD_VERBOSE") != nullptr;
    ASSERT_EQ(pipe2(wake_.data(), O_CLOEXEC), 0);
    auto board = std::make_unique<Board>(options);
    setenv("TESSERA_BOARD", options.socket_path.c_str(), 1);
    setenv("XILINX_XRT", TESSERA_XRT_ROOT, 1);
    setenv("XCL_EMULATION_MODE", "hw_emu", 1);
    unsetenv("TESSERA_XCLBIN");
    // A Verilated model lives and ends in the thread that made it.
    thread_ = std::thread([this, board = std::move(board)]() mutable {
      board->serve(wake_[0]);
      board.reset();
    });
  }
  void TearDown() override {
    if (!thread_.joinable()) return;
    EXPECT_EQ(write(wake_[1], "x", 1), 1);
    thread_.join();
    std::filesystem::remove_all(folder_);
  }

 private:
  std::string folder_;
  std::array<int, 2> wake_{};
  std::thread thread_;
};

const auto* const kBoardThread = ::testing::AddGlobalTestEnvironment(new BoardThread);

/// Reads the same kilobyte `times` times, at least 126 cycles each.
std::vector<isa::Instruction> long_program(uint32_t times) {
  isa::Load load;
  load.space = isa::Space::kOut;
  load.base = 1;
  load.length = 1000;
  std::vector<isa::Instruction> program;
  for (uint32_t k = 0; k < times; ++k) program.push_back(load);
  program.push_back(isa::Finish{});
  return program;
}

struct Placed {
  RunRequest request;
  uint64_t to = 0;
};

Placed place(Device& device, const std::vector<isa::Instruction>& program, uint8_t first = 1) {
  Placed placed;
  const std::vector<uint8_t> words = words_of(program);
  placed.request.program_address = device.allocate(words.size());
  placed.request.instruction_count = static_cast<uint32_t>(program.size());
  device.write(placed.request.program_address, words);
  std::vector<uint8_t> bytes(2048);
  std::iota(bytes.begin(), bytes.end(), first);
  placed.request.bases[1] = device.allocate(bytes.size());
  device.write(placed.request.bases[1], bytes);
  placed.to = placed.request.bases[2] = device.allocate(bytes.size());
  device.write(placed.to, std::vector<uint8_t>(bytes.size()));
  return placed;
}

std::vector<uint8_t> result(Device& device, const Placed& placed) {
  std::vector<uint8_t> bytes(2048);
  device.read(placed.to, bytes);
  return bytes;
}

void expect_equal(const RunReport& a, const RunReport& b) {
  EXPECT_EQ(a.fault, b.fault);
  EXPECT_EQ(a.cycles, b.cycles);
  EXPECT_EQ(a.counters.instructions, b.counters.instructions);
  EXPECT_EQ(a.counters.bytes_read, b.counters.bytes_read);
  EXPECT_EQ(a.counters.bytes_written, b.counters.bytes_written);
  EXPECT_EQ(a.counters.macs, b.counters.macs);
  for (size_t u = 0; u < kUnits; ++u) {
    const UnitCounters &x = a.counters.units[u], &y = b.counters.units[u];
    EXPECT_EQ(x.executed, y.executed) << u;
    EXPECT_EQ(x.busy_cycles, y.busy_cycles) << u;
    EXPECT_EQ(x.wait_cycles, y.wait_cycles) << u;
    EXPECT_EQ(x.stall_memory_cycles, y.stall_memory_cycles) << u;
    EXPECT_EQ(x.stall_port_cycles, y.stall_port_cycles) << u;
  }
}

std::string error_of(ErrorCode code, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

const isa::MachineConfig& npu64() {
  static const isa::MachineConfig config = isa::find_config("npu64");
  return config;
}

TEST(XrtBoard, EqualsTheRtl) {
  const auto rtl = open_device("rtl", npu64());
  const auto xrt = open_device("xrt", npu64());
  EXPECT_EQ(xrt->config(), npu64());
  for (const uint32_t first_byte : {3u, 16384u, 64u}) {  // the second is out of range
    const Placed on_rtl = place(*rtl, turn_around(first_byte)), on_xrt = place(*xrt, turn_around(first_byte));
    const RunReport wanted = rtl->run(on_rtl.request), actual = xrt->run(on_xrt.request);
    expect_equal(actual, wanted);
    EXPECT_EQ(actual.ok(), first_byte != 16384);
    EXPECT_EQ(result(*xrt, on_xrt), result(*rtl, on_rtl));
  }
}

TEST(XrtBoard, BytesMoveOnlyBySync) {
  xrt::device card(0);
  const std::vector<uint8_t> image = make_xclbin(npu64());
  card.load_xclbin(xrt::xclbin(std::vector<char>(image.begin(), image.end())));
  xrt::bo bo(card, 4096, 0);
  auto* host = bo.map<uint8_t*>();
  std::memset(host, 7, 4096);
  bo.sync(XCL_BO_SYNC_BO_TO_DEVICE);
  std::memset(host, 9, 4096);
  EXPECT_EQ(host[5], 9);
  bo.sync(XCL_BO_SYNC_BO_FROM_DEVICE, 100, 10);
  EXPECT_EQ(host[9], 9);
  EXPECT_EQ(host[10], 7);
  EXPECT_EQ(host[109], 7);
  EXPECT_EQ(host[110], 9);
}

TEST(XrtBoard, SeveralInFlight) {
  const auto device = open_xrt_device(npu64(), {});
  const Placed slow = place(*device, long_program(2000));
  std::vector<Placed> placed;
  std::vector<std::future<RunReport>> futures;
  futures.push_back(device->submit(slow.request));
  for (uint8_t k = 0; k < 6; ++k) {
    placed.push_back(place(*device, turn_around(3), static_cast<uint8_t>(k + 1)));
    futures.push_back(device->submit(placed.back().request));
  }
  EXPECT_GE(device->in_flight(), 6U);  // one runs at least 252,000 cycles, the others wait for it
  EXPECT_EQ(futures[0].get().counters.instructions, 2001U);
  std::vector<uint8_t> last;
  for (uint8_t k = 0; k < 6; ++k) {
    const RunReport report = futures[k + 1u].get();
    EXPECT_TRUE(report.ok());
    EXPECT_EQ(report.counters.instructions, 3U);  // its own, not those of the run after it
    const std::vector<uint8_t> bytes = result(*device, placed[k]);
    EXPECT_EQ(bytes[1500], static_cast<uint8_t>(13 + k + 1));
    EXPECT_NE(bytes, last);
    last = bytes;
  }
  EXPECT_EQ(device->in_flight(), 0U);
  EXPECT_EQ(device->most_started(), 1U);  // the board has one unit
}

/// An image with two units, for as long as nobody else uses the card.
TEST(XrtBoard, TwoUnitsRunAtOnce) {
  const std::string path = std::string(std::getenv("TESSERA_BOARD")) + ".xclbin";
  write_xclbin(path, npu64(), 2);
  DeviceOptions options;
  options.backend["xclbin"] = path;
  const auto device = open_xrt_device(npu64(), options);
  std::vector<Placed> placed;
  std::vector<std::future<RunReport>> futures;
  for (uint8_t k = 0; k < 4; ++k) {
    placed.push_back(place(*device, long_program(600)));
    futures.push_back(device->submit(placed.back().request));
  }
  for (auto& future : futures) EXPECT_EQ(future.get().counters.instructions, 601U);
  EXPECT_EQ(device->most_started(), 2U);
}

TEST(XrtBoard, AFaultLeavesTheNextRunRight) {
  const auto device = open_device("xrt", npu64());
  const Placed good = place(*device, turn_around(3));
  Placed bad = place(*device, turn_around(3));
  bad.request.bases[1] = good.request.bases[1] + (uint64_t{1} << 40);
  const RunReport wanted = device->run(good.request);
  ASSERT_TRUE(wanted.ok());
  const std::vector<uint8_t> bytes = result(*device, good);
  EXPECT_EQ(device->run(bad.request).fault, (isa::FaultRecord{isa::Fault::kDramRange, isa::Unit::kLoad, 0}));
  device->write(good.to, std::vector<uint8_t>(2048));
  const RunReport again = device->run(good.request);
  EXPECT_TRUE(again.ok());
  EXPECT_EQ(again.counters.bytes_written, wanted.counters.bytes_written);
  EXPECT_EQ(result(*device, good), bytes);
}

TEST(XrtBoard, TimeoutEndsTheRun) {
  DeviceOptions options;
  options.backend["timeout"] = "0.5";
  const auto device = open_xrt_device(npu64(), options);
  const Placed endless = place(*device, long_program(200000)), good = place(*device, turn_around(3));
  auto first = device->submit(endless.request);
  auto second = device->submit(good.request);
  EXPECT_NE(error_of(ErrorCode::kDeviceFault, [&] { first.get(); }).find("500 ms"), std::string::npos);
  EXPECT_TRUE(second.get().ok());
  EXPECT_TRUE(device->run(good.request).ok());
}

TEST(XrtBoard, AWrongMachineIsNamed) {
  const std::string path = std::string(std::getenv("TESSERA_BOARD")) + ".xclbin";
  write_xclbin(path, npu64());
  DeviceOptions options;
  options.backend["xclbin"] = path;
  const std::string message =
      error_of(ErrorCode::kUnsupported, [&] { open_device("xrt", isa::find_config("npu256"), options); });
  EXPECT_NE(message.find("npu256"), std::string::npos) << message;
  EXPECT_NE(message.find("npu64"), std::string::npos) << message;
  EXPECT_NE(message.find("block_in 16 and 8"), std::string::npos) << message;
}

TEST(XrtBoard, AnImageInUseIsNotReplaced) {
  const auto device = open_device("xrt", npu64());
  const Placed placed = place(*device, turn_around(3));
  error_of(ErrorCode::kIo, [&] { open_device("xrt", isa::find_config("npu256")); });
  EXPECT_TRUE(device->run(placed.request).ok());
}

TEST(XrtBoard, MemoryIsFinite) {
  const auto device = open_device("xrt", npu64());
  const uint64_t first = device->allocate(uint64_t{3} << 30);
  EXPECT_NE(error_of(ErrorCode::kDoesNotFit, [&] { device->allocate(uint64_t{2} << 30); }).find("2147483648"),
            std::string::npos);
  device->free(first);
  device->free(device->allocate(uint64_t{3} << 30, 1 << 20));
  error_of(ErrorCode::kInvalidArgument, [&] { device->free(first + 4096); });
  error_of(ErrorCode::kInvalidArgument, [&] { device->allocate(1, 32); });
  std::vector<uint8_t> byte(1);
  error_of(ErrorCode::kInvalidArgument, [&] { device->read(first, byte); });
}

TEST(XrtBoard, BuffersAreReused) {
  const auto device = open_device("xrt", npu64());
  const uint64_t first = device->allocate(100000);
  EXPECT_EQ(first % 4096, 0U);
  device->free(first);
  EXPECT_EQ(device->allocate(99000), first);  // the same object
  EXPECT_NE(device->allocate(100000), first);
  const uint64_t aligned = device->allocate(10, 1 << 20);
  EXPECT_EQ(aligned % (1 << 20), 0U);
  device->write(aligned, std::vector<uint8_t>{1, 2, 3});
  std::vector<uint8_t> bytes(3);
  device->read(aligned, bytes);
  EXPECT_EQ(bytes, (std::vector<uint8_t>{1, 2, 3}));
}

TEST(XrtBoard, RefusesAsACardDoes) {
  xrt::device card(0);
  const std::vector<uint8_t> image = make_xclbin(npu64());
  const xrt::uuid uuid = card.load_xclbin(xrt::xclbin(std::vector<char>(image.begin(), image.end())));
  EXPECT_ANY_THROW(xrt::bo(card, 4096, 1));               // a bank without memory
  EXPECT_ANY_THROW(xrt::bo(card, 4096, 7));               // no such bank
  EXPECT_ANY_THROW(xrt::bo(card, uint64_t{5} << 30, 0));  // more than there is
  EXPECT_ANY_THROW(xrt::device(1));
  const xrt::ip by_hand(card, uuid, std::string(isa::kernel::kKernelName));  // exclusive
  EXPECT_ANY_THROW(xrt::ip(card, uuid, std::string(isa::kernel::kKernelName)));
  EXPECT_ANY_THROW(xrt::kernel(card, uuid, std::string(isa::kernel::kKernelName)));
  EXPECT_ANY_THROW(xrt::ip(card, uuid, "another"));
  EXPECT_EQ(by_hand.read_register(isa::reg::kMagic), isa::reg::kMagicReset);
  EXPECT_ANY_THROW(by_hand.read_register(0x1000));
}

/// XRT's own objects: nothing of a card stays open when they go.
TEST(XrtBoard, CardsOpenAndClose) {
  const auto descriptors = [] {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return std::distance(begin(all), end(all));
  };
  const std::vector<uint8_t> bytes = make_xclbin(npu64());
  const xrt::xclbin image(std::vector<char>(bytes.begin(), bytes.end()));
  std::ptrdiff_t before = 0;
  for (int cycle = 0; cycle < 500; ++cycle) {
    xrt::device card(0);
    const xrt::uuid uuid = card.load_xclbin(image);
    const xrt::bo bo(card, 1 << 20, 0);
    EXPECT_EQ(bo.address(), kBoardMemoryBase);  // the last one was released
    const xrt::ip by_hand(card, uuid, std::string(isa::kernel::kKernelName));
    EXPECT_EQ(by_hand.read_register(isa::reg::kMagic), isa::reg::kMagicReset);
    if (cycle == 1) before = descriptors();
  }
  EXPECT_LT(descriptors(), before);  // this process's side and, in the same process, the board's
}

/// The machine started through its registers, as xrt::ip users do; meanwhile the device waits for the unit.
TEST(XrtBoard, SharesWithHandDrivenUsers) {
  const auto device = open_xrt_device(npu64(), {});
  const Placed placed = place(*device, turn_around(3));
  std::future<RunReport> waiting;
  {
    xrt::device card(0);
    const std::vector<uint8_t> image = make_xclbin(npu64());
    const xrt::uuid uuid = card.load_xclbin(xrt::xclbin(std::vector<char>(image.begin(), image.end())));
    xrt::ip by_hand(card, uuid, std::string(isa::kernel::kKernelName));
    waiting = device->submit(placed.request);
    DeviceOptions options;
    options.backend["wait"] = "0.05";
    const auto impatient = open_xrt_device(npu64(), options);  // the image is known, the machine need not be asked
    EXPECT_NE(error_of(ErrorCode::kIo, [&] { impatient->run(placed.request); }).find("50 ms"), std::string::npos);
    by_hand.write_register(isa::reg::kProgramAddress, static_cast<uint32_t>(placed.request.program_address));
    by_hand.write_register(isa::reg::kProgramAddress + 4, static_cast<uint32_t>(placed.request.program_address >> 32));
    by_hand.write_register(isa::reg::kInstructionCount, 3);
    by_hand.write_register(isa::reg::kWindowLast, 63);  // the program itself is out of range
    by_hand.write_register(isa::reg::kWindowLast + 4, 0);
    by_hand.write_register(isa::reg::kApCtrl, 1);
    uint32_t control = 0;
    while ((control & isa::reg::kApCtrlApDoneMask) == 0) control = by_hand.read_register(isa::reg::kApCtrl);
    EXPECT_NE(by_hand.read_register(isa::reg::kFault), 0U);
    EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  }
  EXPECT_TRUE(waiting.get().ok());
}

TEST(XrtBoard, ChoosesACard) {
  EXPECT_EQ(open_device("xrt:0", npu64())->config(), npu64());
  error_of(ErrorCode::kIo, [] { open_device("xrt:3", npu64()); });
  error_of(ErrorCode::kInvalidArgument, [] { open_device("xrt:first", npu64()); });
  DeviceOptions options;
  options.backend["latency"] = "9";
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { open_device("xrt", npu64(), options); }).find("latency"),
            std::string::npos);
  options.backend = {{"xclbin", "/nowhere.xclbin"}};
  EXPECT_NE(error_of(ErrorCode::kIo, [&] { open_device("xrt", npu64(), options); }).find("/nowhere.xclbin"),
            std::string::npos);
  options.backend = {};
  options.heap_base = 4096;
  error_of(ErrorCode::kUnsupported, [&] { open_device("xrt", npu64(), options); });
}

/// XRT's own types read back what the writer wrote.
TEST(Xclbin, IsWhatXrtReads) {
  const std::vector<uint8_t> bytes = make_xclbin(npu64(), 2);
  EXPECT_EQ(bytes, make_xclbin(npu64(), 2));
  EXPECT_NE(bytes, make_xclbin(npu64(), 1));
  const auto* image = reinterpret_cast<const axlf*>(bytes.data());
  EXPECT_EQ(std::string(image->m_magic), "xclbin2");
  EXPECT_EQ(image->m_header.m_length, bytes.size());
  EXPECT_EQ(image->m_header.m_numSections, 7U);
  const xrt::xclbin parsed(std::vector<char>(bytes.begin(), bytes.end()));
  ASSERT_EQ(parsed.get_kernels().size(), 1U);
  const xrt::xclbin::kernel kernel = parsed.get_kernels()[0];
  EXPECT_EQ(kernel.get_name(), "tsr_kernel");
  ASSERT_EQ(kernel.get_cus().size(), 2U);
  EXPECT_EQ(kernel.get_cus()[1].get_name(), "tsr_kernel:tsr_kernel_2");
  ASSERT_EQ(parsed.get_mems().size(), 2U);
  EXPECT_EQ(parsed.get_mems()[0].get_tag(), "DDR[0]");
  EXPECT_EQ(parsed.get_mems()[0].get_base_address(), kBoardMemoryBase);
  EXPECT_TRUE(parsed.get_mems()[0].get_used());
  EXPECT_FALSE(parsed.get_mems()[1].get_used());
  const std::vector<xrt::xclbin::arg> arguments = kernel.get_args();
  ASSERT_EQ(arguments.size(), isa::kernel::kArguments.size());
  for (size_t a = 0; a < arguments.size(); ++a) {
    const isa::kernel::Argument& wanted = isa::kernel::kArguments[a];
    EXPECT_EQ(arguments[a].get_name(), wanted.name);
    EXPECT_EQ(arguments[a].get_index(), a);
    EXPECT_EQ(arguments[a].get_offset(), wanted.offset);
    EXPECT_EQ(arguments[a].get_size(), wanted.size);
    EXPECT_EQ(arguments[a].get_port(), wanted.port);
    EXPECT_EQ(arguments[a].get_mems().size(), wanted.address_qualifier == 1 ? 1U : 0U) << wanted.name;
  }
  EXPECT_THROW(make_xclbin(npu64(), 9), Error);
}

}  // namespace
}  // namespace tessera::driver
