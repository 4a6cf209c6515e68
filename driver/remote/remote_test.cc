// SPDX-License-Identifier: Apache-2.0
// What stands behind a client of a remote device, without a network: reports through messages, the store, a part of a
// card, and a worker that gets every kind of request, legal or not.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "driver/registry.h"
#include "driver/remote/frames.h"
#include "driver/remote/messages.h"
#include "driver/remote/partition.h"
#include "driver/remote/store.h"
#include "driver/remote/worker.h"
#include "driver/tests/programs.h"

namespace tessera::driver {
namespace {

RunReport random_report(std::mt19937_64& random) {
  RunReport report;
  const auto some = [&] { return random() >> random() % 64; };
  report.fault = {isa::Fault::kDramRange, isa::Unit::kAlu, static_cast<uint32_t>(random())};
  if (random() % 2 == 0) report.cycles = some();
  report.counters.instructions = some(), report.counters.macs = some();
  report.counters.bytes_read = some(), report.counters.bytes_written = some();
  for (UnitCounters& unit : report.counters.units) {
    unit = {some(), some(), {}, some(), some()};
    for (uint64_t& wait : unit.wait_cycles) wait = some();
  }
  for (uint64_t n = random() % 4; n > 0; --n) {
    report.fault_core = static_cast<uint32_t>(random() % 16);
    report.cores.push_back({report.fault, report.counters, some()});
  }
  for (uint64_t n = random() % 50; n > 0; --n) {
    InstructionProfile entry;
    entry.pc = static_cast<uint32_t>(random());
    entry.unit = isa::Unit::kStore;
    entry.macs = some(), entry.end_cycle = some(), entry.wait_cycles[2] = some(), entry.stall_port_cycles = some();
    report.profile.push_back(entry);
    report.bursts.push_back({isa::Unit::kLoad, random() % 2 == 0, some(), 64, some(), some(), some(), 3});
    report.races.push_back(
        {1, isa::Unit::kAlu, true, 2, isa::Unit::kGemm, false, true, isa::Space::kAcc, some(), 9, 0, 2});
  }
  return report;
}

TEST(Messages, ReportsComeThrough) {
  std::mt19937_64 random(1);
  for (int n = 0; n < 50; ++n) {
    const RunReport report = random_report(random);
    remote::RunReport message;
    ASSERT_TRUE(message.ParseFromString(to_message(report).SerializeAsString()));
    const RunReport back = to_report(message);
    EXPECT_EQ(describe(back.fault), describe(report.fault));
    EXPECT_EQ(back.cycles, report.cycles);
    ASSERT_EQ(back.profile.size(), report.profile.size());
    // All fields at once: what was made of what came is what came.
    EXPECT_EQ(to_message(back).SerializeAsString(), to_message(report).SerializeAsString());
    for (size_t i = 0; i < back.profile.size(); ++i) {
      EXPECT_EQ(back.profile[i].wait_cycles, report.profile[i].wait_cycles);
      EXPECT_EQ(back.profile[i].end_cycle, report.profile[i].end_cycle);
      EXPECT_EQ(back.bursts[i].last_cycle, report.bursts[i].last_cycle);
      EXPECT_EQ(describe(back.races[i]), describe(report.races[i]));
    }
  }
}

TEST(Messages, WrongReportsAreErrors) {
  std::mt19937_64 random(2);
  for (int n = 0; n < 2000; ++n) {
    std::string wire = to_message(random_report(random)).SerializeAsString();
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips)
      wire[random() % wire.size()] = static_cast<char>(random());
    if (random() % 4 == 0) wire.resize(random() % wire.size());
    remote::RunReport message;
    if (!message.ParseFromString(wire)) continue;
    try {
      to_report(message);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
    }
  }
}

class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera_store_XXXXXX").string();
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

TEST(ContentStore, KeepsTheLatest) {
  const Folder folder;
  ContentStore store(folder.path, 10'000);
  std::vector<std::string> digests;
  for (int n = 0; n < 5; ++n) {
    const std::vector<uint8_t> bytes(3000, static_cast<uint8_t>(n));
    digests.push_back(digest(bytes));
    store.keep(digests.back(), bytes);
    EXPECT_TRUE(store.find(digests[0], 3000)) << n;  // used, so it stays
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_FALSE(store.find(digests[1], 3000));
  EXPECT_FALSE(store.find(digests[4], 2999));
  EXPECT_EQ(store.find(digests[4], 3000), std::vector<uint8_t>(3000, 4));
  store.keep(digest(std::vector<uint8_t>(20'000)), std::vector<uint8_t>(20'000));  // too large for it
  EXPECT_TRUE(store.find(digests[4], 3000));
  EXPECT_FALSE(ContentStore("", 10).find(digests[0], 3000));
}

TEST(Partition, IsClearedAndEnds) {
  const isa::MachineConfig config = isa::find_config("npu64");
  DeviceOptions options;
  options.poison_allocations = 3;  // what others have left
  const std::unique_ptr<Device> part = open_partition(open_device("fsim", config, options), 1 << 20);
  const uint64_t at = part->allocate(5000);
  std::vector<uint8_t> bytes(5000, 1);
  part->read(at, bytes);
  EXPECT_EQ(bytes, std::vector<uint8_t>(5000));
  EXPECT_THROW(part->read(at + 1, bytes), Error);
  EXPECT_THROW(part->allocate(1 << 20), Error);
  part->free(at);
  EXPECT_THROW(part->write(at, bytes), Error);
}

TEST(Partition, ClearsScratchpads) {
  for (const char* name : {"npu64", "npu256", "npu1024"}) {
    const isa::MachineConfig config = isa::find_config(name);
    const std::unique_ptr<Partition> part = open_partition(open_device("fsim", config, {}), 1 << 20);
    const std::vector<uint8_t> left(1000, 7);
    const uint64_t words = part->allocate(512), from = part->allocate(4096), to = part->allocate(4096);
    part->write(from + 13, left);
    const auto run = [&](const std::vector<isa::Instruction>& program) {
      part->write(words, test::words_of(program));
      RunRequest request{.program_address = words, .instruction_count = static_cast<uint32_t>(program.size())};
      request.bases[1] = from, request.bases[2] = to;
      EXPECT_TRUE(part->run(request).ok());
      std::vector<uint8_t> bytes(4096);
      part->read(to, bytes);
      return bytes;
    };
    const std::vector<isa::Instruction> whole = test::turn_around(100);
    auto store = std::get<isa::Store>(whole[1]);
    store.header.waits[0] = {};
    const std::vector<uint8_t> moved = run(whole);
    EXPECT_NE(moved, std::vector<uint8_t>(4096));
    part->write(to, std::vector<uint8_t>(4096));
    EXPECT_EQ(run({store, isa::Finish{}}), moved);  // what the program before has left
    part->clear_scratchpads();
    EXPECT_EQ(run({store, isa::Finish{}}), std::vector<uint8_t>(4096));
  }
}

TEST(WorkerSettings, AreLines) {
  const WorkerSettings settings = WorkerSettings::parse("device=xrt:0\nmemory=64\nbuilds=1\noption.xclbin=/a=b\n");
  EXPECT_EQ(settings.device, "xrt:0");
  EXPECT_EQ(settings.memory_bytes, 64U);
  EXPECT_TRUE(settings.builds);
  EXPECT_EQ(settings.options.at("xclbin"), "/a=b");
  EXPECT_THROW(WorkerSettings::parse("memory=much"), Error);
  EXPECT_THROW(WorkerSettings::parse("flux=1"), Error);
}

/// A worker on a thread, and the server's end of its socket.
class Worker {
 public:
  explicit Worker(WorkerSettings settings) : settings_(std::move(settings)) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) throw Error(ErrorCode::kIo, "socketpair");
    server = std::make_unique<FrameSocket>(ends[0]);
    thread_ = std::thread([this, other = ends[1]] { serve_client(other, settings_, false); });
  }
  ~Worker() {
    server.reset();
    thread_.join();
  }

  /// The last reply to a request, if it has one; turns and memory are granted.
  std::optional<remote::Reply> ask(const std::string& request) {
    EXPECT_TRUE(server->send(FrameKind::kMessage, request));
    std::optional<remote::Reply> last;
    for (;;) {
      const std::optional<Frame> frame = server->receive();
      EXPECT_TRUE(frame) << "the worker has ended";
      if (!frame || frame->kind == FrameKind::kDone) return last;
      if (frame->kind == FrameKind::kTurn || frame->kind == FrameKind::kMemory)
        server->send(FrameKind::kGo, std::string(1, '\1'));
      if (frame->kind != FrameKind::kReply) continue;
      last.emplace();
      EXPECT_TRUE(last->ParseFromString(frame->payload));
    }
  }

  std::unique_ptr<FrameSocket> server;

 private:
  WorkerSettings settings_;
  std::thread thread_;
};

remote::Request open_request() {
  const isa::MachineConfig config = isa::find_config("npu64");
  remote::Request request;
  request.mutable_open()->set_protocol(kProtocol);
  request.mutable_open()->set_name("npu64");
  request.mutable_open()->set_memory_bytes(1 << 20);
  for (const isa::ConfigKey& key : isa::config_keys())
    (*request.mutable_open()->mutable_machine())[std::string(key.name)] = key.get(config);
  return request;
}

/// A request of numbers that are small, near the client's memory, or anything.
remote::Request random_request(std::mt19937_64& random, uint64_t base) {
  const auto number = [&]() -> uint64_t {
    switch (random() % 4) {
      case 0: return random() % 9000;
      case 1: return base + random() % (1 << 20);
      case 2: return base + random() % 200 * 64;
      default: return random() >> random() % 64;
    }
  };
  const auto text = [&] { return std::string(random() % 300, static_cast<char>(random())); };
  remote::Request request;
  switch (random() % 11) {
    case 0: request = open_request(); break;
    case 1:
      request.mutable_allocate()->set_bytes(number());
      request.mutable_allocate()->set_alignment(uint64_t{1} << random() % 64);
      break;
    case 2: request.set_free(number()); break;
    case 3:
      request.mutable_write()->set_address(number());
      request.mutable_write()->set_data(text());
      break;
    case 4:
      request.mutable_copy()->set_from(number());
      request.mutable_copy()->set_to(number());
      request.mutable_copy()->set_bytes(number());
      break;
    case 5:
      request.mutable_read()->set_address(number());
      request.mutable_read()->set_bytes(number());
      break;
    case 6:
    case 7: {
      remote::Content* content = random() % 2 == 0 ? request.mutable_offer() : request.mutable_keep();
      content->set_address(number());
      content->set_bytes(number());
      content->set_digest(text());
      break;
    }
    case 8: request.set_proof(text()); break;
    case 9: {
      remote::Run* run = request.mutable_run();
      run->set_program_address(number() / 64 * 64);
      run->set_instruction_count(static_cast<uint32_t>(number() % 40));
      for (uint64_t n = random() % 8 == 0 ? random() % 40 : 16; n > 0; --n) run->add_bases(number());
      run->set_profile(random() % 2 == 0);
      run->set_check_races(random() % 2 == 0);
      break;
    }
    default: break;
  }
  return request;
}

TEST(Worker, AnswersWhateverComes) {
  const Folder folder;
  WorkerSettings settings;
  settings.device = "fsim";
  settings.memory_bytes = 1 << 20;
  settings.cache = folder.path;
  settings.cache_bytes = 1 << 16;
  Worker worker(settings);
  std::mt19937_64 random(5);
  ASSERT_TRUE(worker.ask(open_request().SerializeAsString())->has_opened());
  for (int n = 0; n < 4000; ++n) {
    std::string wire = random_request(random, DeviceOptions{}.heap_base).SerializeAsString();
    if (random() % 3 == 0 && !wire.empty()) wire[random() % wire.size()] = static_cast<char>(random());
    if (random() % 9 == 0) wire.resize(random() % (wire.size() + 1));
    worker.ask(wire);
  }
  // It is a device still.
  remote::Request request;
  request.mutable_allocate()->set_bytes(64);
  request.mutable_allocate()->set_alignment(64);
  worker.ask(request.SerializeAsString());  // what a request without a reply has left
  const std::optional<remote::Reply> reply = worker.ask(request.SerializeAsString());
  ASSERT_TRUE(reply);
  EXPECT_TRUE(reply->has_allocated() || reply->failure().code() == static_cast<uint32_t>(ErrorCode::kDoesNotFit));
}

TEST(Worker, EndsWithoutAnOpenDevice) {
  WorkerSettings settings;
  settings.device = "fsim";
  Worker worker(settings);
  remote::Request request;
  request.mutable_read()->set_bytes(1);
  EXPECT_TRUE(worker.ask(request.SerializeAsString())->has_failure());
}

}  // namespace
}  // namespace tessera::driver
