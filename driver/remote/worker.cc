// SPDX-License-Identifier: Apache-2.0
// Three threads: one receives, so that the end of the connection is noticed at once; one handles requests in their
// order; one says every second that the worker lives while a request takes long.
#include "driver/remote/worker.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.h"
#include "driver/registry.h"
#include "driver/remote/frames.h"
#include "driver/remote/messages.h"
#include "driver/remote/partition.h"
#include "driver/remote/store.h"

namespace tessera::driver {
namespace {

using namespace std::chrono_literals;

constexpr uint64_t kDefaultMemory = uint64_t{128} << 20;
// Of simulators, and only about their results and times; anything else names files or machines of the server.
constexpr std::string_view kClientOptions[] = {"latency", "bandwidth", "dram", "pressure", "seed", "kernels"};

[[noreturn]] void refuse(const std::string& text) { throw Error(ErrorCode::kInvalidArgument, text); }

/// The machine of a client. Errors: kInvalidArgument for what is none.
isa::MachineConfig machine_of(const remote::Open& open) {
  isa::MachineConfig config;
  std::map<std::string, int64_t> given(open.machine().begin(), open.machine().end());
  for (const isa::ConfigKey& key : isa::config_keys()) {
    const auto found = given.find(std::string(key.name));
    if (found == given.end()) refuse("the client knows no parameter '" + std::string(key.name) + "' of machines");
    if (found->second < INT32_MIN || found->second > INT32_MAX)
      refuse("machine: " + found->first + " = " + std::to_string(found->second));
    key.set(config, found->second);
    given.erase(found);
  }
  if (!given.empty()) refuse("the server knows no parameter '" + given.begin()->first.substr(0, 40) + "' of machines");
  config.name = open.name();  // which becomes a part of file names
  const auto harmless = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-'; };
  if (config.name.empty() || config.name.size() > 64 || !std::all_of(config.name.begin(), config.name.end(), harmless))
    config.name = "unnamed";
  isa::validate(config);
  return config;
}

bool is_shipped(const isa::MachineConfig& config) {
  const auto shipped = isa::shipped_configs();
  return std::any_of(shipped.begin(), shipped.end(), [&](const isa::ShippedConfig& candidate) {
    isa::MachineConfig one = isa::find_config(std::string(candidate.name));
    one.name = config.name;
    return one == config;
  });
}

class Worker {
 public:
  Worker(int descriptor, const WorkerSettings& settings, bool exits)
      : settings_(settings), exits_(exits), socket_(descriptor), store_(settings.cache, settings.cache_bytes) {}

  void serve() {
    std::thread receiver([this] { receive(); });
    std::thread beat([this] { say_that_it_lives(); });
    while (const std::optional<Frame> frame = next()) {
      if (frame->kind != FrameKind::kMessage) continue;
      begin_request();
      answer(frame->payload);
      end_request();
      socket_.send(FrameKind::kDone);
    }
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    receiver.join();
    beat.join();
  }

 private:
  void receive() {
    while (std::optional<Frame> frame = socket_.receive()) {
      const std::lock_guard lock(mutex_);
      frames_.push_back(std::move(*frame));
      changed_.notify_all();
    }
    if (exits_) ::_exit(0);
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

  std::optional<Frame> next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return closed_ || !frames_.empty(); });
    if (frames_.empty()) return std::nullopt;
    Frame frame = std::move(frames_.front());
    frames_.pop_front();
    return frame;
  }

  // What the third thread says.
  void begin_request() {
    const std::lock_guard lock(mutex_);
    busy_ = true;
    instructions_ = 0;
    waiting_ = false;
  }

  void end_request() {
    const std::lock_guard lock(mutex_);
    busy_ = false;
  }

  void say_that_it_lives() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      changed_.wait_for(lock, 1s, [&] { return over_; });
      if (over_ || !busy_) continue;
      remote::Reply reply;
      reply.mutable_progress()->set_waiting(waiting_);
      reply.mutable_progress()->set_instructions(instructions_);
      socket_.send(FrameKind::kReply, reply.SerializeAsString());  // under the lock: never behind the last reply
    }
  }

  void reply(const remote::Reply& message) {
    {
      const std::lock_guard lock(mutex_);
      busy_ = false;
    }
    socket_.send(FrameKind::kReply, message.SerializeAsString());
  }

  void fail(ErrorCode code, const std::string& text) {
    remote::Reply message;
    message.mutable_failure()->set_code(static_cast<uint32_t>(code));
    std::string plain = text;  // a name that was cut is no UTF-8, and then nobody could read the message
    for (char& c : plain)
      if (static_cast<unsigned char>(c) >= 128) c = '?';
    message.mutable_failure()->set_text(plain);
    reply(message);
  }

  /// Asks the server. False when it refuses or has gone.
  bool ask(FrameKind kind, std::string_view payload = {}, bool* answer = nullptr) {
    if (!socket_.send(kind, payload)) return false;
    const std::optional<Frame> frame = next();
    if (!frame || frame->kind != FrameKind::kGo || frame->payload.size() != 1) return false;
    if (answer != nullptr) *answer = frame->payload[0] != 0;
    return true;
  }

  static bool has_reply(const remote::Request& request) {
    switch (request.kind_case()) {
      case remote::Request::kFree:
      case remote::Request::kWrite:
      case remote::Request::kCopy:
      case remote::Request::kKeep: return false;
      default: return true;
    }
  }

  void answer(const std::string& payload) {
    remote::Request request;
    if (!request.ParseFromString(payload)) {
      fail(ErrorCode::kInvalidArgument, "a message is no request of this protocol; the client may be another version");
      return;
    }
    std::optional<Error> failure;
    try {
      if (has_reply(request) && late_failure_) {
        failure.emplace(*late_failure_);
        late_failure_.reset();
      } else {
        handle(request);
      }
    } catch (const Error& error) {
      failure.emplace(error);
    } catch (const std::bad_alloc&) {
      failure.emplace(ErrorCode::kDoesNotFit, "the server has not enough memory for this request");
    } catch (const std::exception& error) {
      failure.emplace(ErrorCode::kInternal, error.what());
    }
    if (!failure) return;
    if (has_reply(request))
      fail(failure->code(), failure->what());
    else if (!late_failure_)
      late_failure_.emplace(*failure);  // of a request without a reply: told with the next that has one
  }

  Device& device() {
    if (!device_) refuse("the first request opens the device");
    return *device_;
  }

  void handle(const remote::Request& request) {
    remote::Reply message;
    switch (request.kind_case()) {
      case remote::Request::kOpen: return open(request.open());
      case remote::Request::kAllocate: {
        const uint64_t bytes = std::max<uint64_t>(request.allocate().bytes(), 1);
        const uint64_t address = device().allocate(bytes, request.allocate().alignment());
        blocks_[address] = bytes;
        message.set_allocated(address);
        return reply(message);
      }
      case remote::Request::kFree:
        device().free(request.free());
        blocks_.erase(request.free());
        return;
      case remote::Request::kWrite: return device().write(request.write().address(), bytes_of(request.write().data()));
      case remote::Request::kCopy: {
        const remote::Copy& copy = request.copy();
        require_allocated("copy from", copy.from(), copy.bytes());
        require_allocated("copy to", copy.to(), copy.bytes());
        return device().copy(copy.to(), copy.from(), copy.bytes());
      }
      case remote::Request::kRead: return read(request.read());
      case remote::Request::kOffer: return offer(request.offer());
      case remote::Request::kProof: return proof(request.proof());
      case remote::Request::kKeep: return keep(request.keep());
      case remote::Request::kRun: return run(request.run());
      case remote::Request::KIND_NOT_SET: break;
    }
    refuse("a request that this server does not know; the client is a later version");
  }

  static std::span<const uint8_t> bytes_of(const std::string& text) {
    return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  }

  void require_allocated(const char* what, uint64_t address, uint64_t bytes) {
    device();
    auto block = blocks_.upper_bound(address);
    if (block != blocks_.begin()) {
      --block;
      const uint64_t offset = address - block->first;
      if (offset <= block->second && bytes <= block->second - offset) return;
    }
    refuse(std::string(what) + " of " + std::to_string(bytes) + " bytes at device address " + std::to_string(address) +
           " is not inside one allocation");
  }

  void open(const remote::Open& open) {
    if (device_) refuse("the device is open");
    if (open.protocol() != kProtocol)
      throw Error(ErrorCode::kUnsupported, "the client (tessera " + open.version().substr(0, 20) + ") speaks version " +
                                               std::to_string(open.protocol()) +
                                               " of the protocol and the server (tessera " TESSERA_VERSION
                                               ") version " +
                                               std::to_string(kProtocol) + "; install the same Tessera on both");
    const isa::MachineConfig config = machine_of(open);
    DeviceOptions options;
    for (const auto& [name, value] : open.options()) {
      if (std::find(std::begin(kClientOptions), std::end(kClientOptions), name) == std::end(kClientOptions))
        refuse("option '" + name.substr(0, 40) +
               "' concerns the server's machine; `tessera serve --device-option` sets it there");
      // A client does not know what stands here: memory that is slow is nothing to a machine without time.
      const bool timing = name == "latency" || name == "bandwidth" || name == "dram";
      if (!timing || settings_.device != "fsim") options.backend[name] = value;
    }
    for (const auto& [name, value] : settings_.options) options.backend[name] = value;
    if (open.has_heap_base()) options.heap_base = open.heap_base();
    if (open.has_poison_allocations()) options.poison_allocations = open.poison_allocations();
    if (settings_.device == "rtl" && !settings_.builds && !is_shipped(config))
      throw Error(ErrorCode::kUnsupported,
                  "the server makes no machine '" + config.name +
                      "' in RTL for clients; start it with --allow-builds, or take a shipped configuration");
    uint64_t memory = open.has_memory_bytes() ? open.memory_bytes() : std::min(kDefaultMemory, settings_.memory_bytes);
    if (memory > settings_.memory_bytes || memory == 0)
      throw Error(ErrorCode::kDoesNotFit,
                  std::to_string(memory) +
                      " bytes of device memory were asked for; this server gives a client from 1 to " +
                      std::to_string(settings_.memory_bytes) + " (--client-memory)");
    memory = (memory + kDefaultAlignment - 1) / kDefaultAlignment * kDefaultAlignment;
    reserve(memory);
    const bool card = settings_.device.starts_with("xrt");
    if (!card) options.heap_bytes = memory;
    device_ = open_device(settings_.device, config, options);
    if (card) {
      std::unique_ptr<Partition> part = open_partition(std::move(device_), memory);
      part_ = part.get();
      device_ = std::move(part);
    }
    remote::Reply message;
    message.mutable_opened()->set_version(TESSERA_VERSION);
    message.mutable_opened()->set_device(card && std::getenv("TESSERA_BOARD") != nullptr ? "simulated_board"
                                                                                         : settings_.device);
    message.mutable_opened()->set_profiles(device_->can_profile());
    message.mutable_opened()->set_memory_bytes(memory);
    reply(message);
  }

  void reserve(uint64_t memory) {
    std::string asked;
    for (int shift = 0; shift < 64; shift += 8) asked += static_cast<char>(memory >> shift);
    bool granted = false;
    if (!ask(FrameKind::kMemory, asked, &granted) || !granted)
      throw Error(ErrorCode::kDoesNotFit,
                  "the server's clients have its memory (--memory); try again later, or ask for "
                  "less with the device option memory=BYTES");
  }

  void read(const remote::Read& read) {
    require_allocated("read", read.address(), read.bytes());
    std::vector<uint8_t> piece(std::min<uint64_t>(read.bytes(), kPieceBytes));
    uint64_t at = 0;
    do {
      const uint64_t count = std::min<uint64_t>(kPieceBytes, read.bytes() - at);
      device().read(read.address() + at, std::span(piece).first(count));
      at += count;
      remote::Reply message;
      message.mutable_data()->set_data(piece.data(), count);
      message.mutable_data()->set_last(at == read.bytes());
      reply(message);
    } while (at < read.bytes());
  }

  void offer(const remote::Content& offer) {
    require_allocated("placing", offer.address(), offer.bytes());
    remote::Reply message;
    message.mutable_offered();
    offered_ = store_.find(offer.digest(), offer.bytes());
    if (offered_) {
      offered_at_ = offer.address();
      const std::string key = random_key();
      expected_ = digest(*offered_, key);
      message.mutable_offered()->set_challenge(key);
    }
    reply(message);
  }

  /// Who knows only the digest of others' bytes does not get them.
  void proof(const std::string& proof) {
    remote::Reply message;
    message.mutable_offered()->set_placed(offered_ && proof == expected_);
    if (message.offered().placed()) device().write(offered_at_, *offered_);
    offered_.reset();
    reply(message);
  }

  void keep(const remote::Content& content) {
    require_allocated("keeping", content.address(), content.bytes());
    std::vector<uint8_t> bytes(content.bytes());
    device().read(content.address(), bytes);
    if (digest(bytes) == content.digest()) store_.keep(content.digest(), bytes);
  }

  void run(const remote::Run& run) {
    RunRequest request;
    request.program_address = run.program_address();
    request.instruction_count = run.instruction_count();
    if (run.bases_size() != static_cast<int>(request.bases.size())) refuse("a run has 16 base registers");
    std::copy(run.bases().begin(), run.bases().end(), request.bases.begin());
    request.check_races = run.check_races();
    request.check_allocations = run.check_allocations();
    if (run.has_poison()) request.poison = run.poison();
    request.profile = run.profile();
    request.progress = [this](bool, uint64_t instructions) { instructions_ = instructions; };
    require_allocated("a program", request.program_address,
                      uint64_t{request.instruction_count} * isa::kInstructionBytes);
    for (const remote::Core& core : run.others()) {
      request.others.push_back({core.program_address(), core.instruction_count()});
      if (core.instruction_count() == 0) continue;
      require_allocated("a program", core.program_address(),
                        uint64_t{core.instruction_count()} * isa::kInstructionBytes);
    }
    waiting_ = true;
    bool others_ran = true;
    if (!ask(FrameKind::kTurn, {}, &others_ran)) return;  // the connection has ended
    waiting_ = false;
    RunReport report;
    try {
      if (part_ != nullptr && others_ran) part_->clear_scratchpads();
      report = device().run(request);
    } catch (...) {
      socket_.send(FrameKind::kEnd);
      throw;
    }
    socket_.send(FrameKind::kEnd);
    std::string bytes;
    to_message(report).SerializeToString(&bytes);
    for (size_t at = 0; at == 0 || at < bytes.size(); at += kPieceBytes) {
      remote::Reply message;
      message.mutable_report()->set_data(bytes.substr(at, kPieceBytes));
      message.mutable_report()->set_last(bytes.size() - at <= kPieceBytes);
      reply(message);
    }
  }

  const WorkerSettings& settings_;
  const bool exits_;
  FrameSocket socket_;
  ContentStore store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Frame> frames_;
  bool closed_ = false, over_ = false, busy_ = false;
  std::atomic<bool> waiting_ = false;
  std::atomic<uint64_t> instructions_ = 0;
  // Of the thread that handles requests.
  std::unique_ptr<Device> device_;
  Partition* part_ = nullptr;            // the same, when it is a part of a card
  std::map<uint64_t, uint64_t> blocks_;  // allocations and their sizes
  std::optional<Error> late_failure_;
  std::optional<std::vector<uint8_t>> offered_;
  uint64_t offered_at_ = 0;
  std::string expected_;
};

}  // namespace

WorkerSettings WorkerSettings::parse(std::string_view text) {
  WorkerSettings settings;
  const auto number = [](std::string_view value) {
    uint64_t parsed = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
    if (error != std::errc{} || end != value.data() + value.size())
      refuse("settings of a worker: '" + std::string(value) + "' is no number");
    return parsed;
  };
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos) refuse("settings of a worker: '" + std::string(line) + "'");
    const std::string_view name = line.substr(0, equals), value = line.substr(equals + 1);
    if (name == "device")
      settings.device = value;
    else if (name == "memory")
      settings.memory_bytes = number(value);
    else if (name == "cache")
      settings.cache = value;
    else if (name == "cache_bytes")
      settings.cache_bytes = number(value);
    else if (name == "builds")
      settings.builds = number(value) != 0;
    else if (name.starts_with("option."))
      settings.options[std::string(name.substr(7))] = value;
    else
      refuse("settings of a worker: '" + std::string(line) + "'");
  }
  return settings;
}

void serve_client(int descriptor, const WorkerSettings& settings, bool exits) {
  Worker(descriptor, settings, exits).serve();
}

}  // namespace tessera::driver
