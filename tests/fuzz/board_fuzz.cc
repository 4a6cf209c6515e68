// SPDX-License-Identifier: Apache-2.0
// The protocol of the simulated board (driver/xrt_emu/protocol.h). Enters: records of 32 bytes, each something that one
// of four connections does: a request of any kind with numbers from the record, a packet, an image, bytes that are no
// request, a program written into the card's memory, closing. Properties: every request is answered within twenty
// seconds; what a connection held ends with it, so that afterwards another can have the card for itself, allocate as
// much as before and run a program that gives what it should.
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <thread>

#include "driver/tests/programs.h"
#include "driver/xrt_emu/board.h"
#include "driver/xrt_emu/protocol.h"
#include "isa/config.h"
#include "isa/generated/registers.h"
#include "isa/random_instruction.h"
#include "tests/fuzz/fuzz.h"

namespace tessera::fuzz {
namespace {

namespace emu = driver::emu;

constexpr size_t kConnections = 4;
constexpr size_t kMostRecords = 64;
constexpr int kPatienceMs = 20000;

enum class Kind : uint8_t { kRequest, kPacket, kImage, kBytes, kPoke, kClose, kStart, kKinds };

/// One thing that a connection does.
struct Record {
  Kind kind = Kind::kRequest;
  uint8_t connection = 0;
  uint8_t op = 0;  // of a request
  uint8_t form =
      0;  // bit 0: the address is one of this connection's blocks; bit 1: sizes are modest; bit 2: the header is right
  uint32_t unit = 0;
  uint32_t offset = 0;
  uint32_t value = 0;
  uint64_t size = 0;
  uint64_t address = 0;
};
static_assert(sizeof(Record) == 32);

class Connection {
 public:
  explicit Connection(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
    socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    check(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "the board has gone");
    greet();
  }
  ~Connection() {
    for (const int fd : {socket_, memory_, completions_}) {
      if (fd >= 0) close(fd);
    }
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Nothing when the board has ended the connection.
  bool call(const void* message, size_t bytes, emu::Reply& reply) {
    if (send(socket_, message, bytes, MSG_NOSIGNAL) < 0) return false;
    wait(socket_);
    return recv(socket_, &reply, sizeof reply, 0) == sizeof reply;
  }
  bool call(emu::Request request, const std::vector<uint8_t>& payload, emu::Reply& reply) {
    request.payload_bytes = static_cast<uint32_t>(payload.size());
    std::vector<uint8_t> message(sizeof request + payload.size());
    std::memcpy(message.data(), &request, sizeof request);
    if (!payload.empty()) std::memcpy(message.data() + sizeof request, payload.data(), payload.size());
    return call(message.data(), message.size(), reply);
  }
  /// The reply of a request that the board must serve.
  emu::Reply must(const emu::Request& request, const std::vector<uint8_t>& payload, const char* what) {
    emu::Reply reply;
    check(call(request, payload, reply), what);
    if (reply.error != 0) finding(std::string(what) + ": " + std::strerror(reply.error) + " " + reply.message.data());
    return reply;
  }

  /// Waits for a completion.
  emu::Completion completion() {
    emu::Completion done;
    wait(completions_);
    check(recv(completions_, &done, sizeof done, 0) == sizeof done, "no completion");
    return done;
  }
  /// Takes what has come.
  void drain() {
    emu::Completion done;
    while (recv(completions_, &done, sizeof done, MSG_DONTWAIT) == sizeof done) {
    }
  }

  int memory() const { return memory_; }
  std::vector<uint64_t> blocks;

 private:
  /// libFuzzer's timer interrupts a wait every few seconds: then the rest of the time is waited for.
  static void wait(int fd) {
    using Clock = std::chrono::steady_clock;
    const auto end = Clock::now() + std::chrono::milliseconds(kPatienceMs);
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      pollfd one{fd, POLLIN, 0};
      const int ready = poll(&one, 1, static_cast<int>(std::max<int64_t>(0, left)));
      if (ready == 1) return;
      check(ready < 0 && errno == EINTR, "the board does not answer");
    }
  }

  void greet() {
    emu::Greeting greeting;
    iovec data{&greeting, sizeof greeting};
    std::array<int, 2> passed{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof passed)> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    wait(socket_);
    check(recvmsg(socket_, &message, MSG_CMSG_CLOEXEC) == sizeof greeting, "no greeting");
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    check(header != nullptr && header->cmsg_len == CMSG_LEN(sizeof passed), "a greeting without descriptors");
    std::memcpy(passed.data(), CMSG_DATA(header), sizeof passed);
    memory_ = passed[0];
    completions_ = passed[1];
  }

  int socket_ = -1, memory_ = -1, completions_ = -1;
};

/// The board in a thread of this process, and its memory.
class Board {
 public:
  Board() {
    // Another configuration would be verilated, in minutes.
    setenv("TESSERA_RTL_HOME", "/nonexistent", 1);
    std::string folder = (std::filesystem::temp_directory_path() / "tessera-fuzz-XXXXXX").string();
    check(mkdtemp(folder.data()) != nullptr, "no folder for the socket");
    driver::BoardOptions options;
    path_ = options.socket_path = folder + "/socket";
    static std::string removed = folder;
    std::atexit([] { std::filesystem::remove_all(removed); });
    check(pipe(wake_.data()) == 0, "no pipe");
    // A Verilated model lives and ends in the thread that made it: the thread runs as long as the process.
    auto board = std::make_unique<driver::Board>(options);
    std::thread([this, board = std::move(board)]() mutable { board->serve(wake_[0]); }).detach();
    const Connection first(path_);
    void* data =
        mmap(nullptr, driver::kBoardMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, first.memory(), 0);
    check(data != MAP_FAILED, "the card's memory cannot be mapped");
    memory_ = static_cast<uint8_t*>(data);
  }
  const std::string& path() const { return path_; }
  uint8_t* at(uint64_t address) const { return memory_ + (address - driver::kBoardMemoryBase); }

 private:
  std::string path_;
  std::array<int, 2> wake_{};
  uint8_t* memory_ = nullptr;
};

Board& board() {
  static auto* one = new Board;  // its thread uses it until the end
  return *one;
}

std::vector<uint8_t> image_of(const isa::MachineConfig& config, uint32_t units) {
  const std::string text = isa::to_toml(config);
  emu::Image image;
  image.uuid.fill(0x5a);
  image.units = units;
  image.text_bytes = static_cast<uint32_t>(text.size());
  std::vector<uint8_t> payload(sizeof image + text.size());
  std::memcpy(payload.data(), &image, sizeof image);
  std::memcpy(payload.data() + sizeof image, text.data(), text.size());
  return payload;
}

const std::vector<uint8_t>& image() {
  static const std::vector<uint8_t> payload = image_of(isa::find_config("npu64"), 2);
  return payload;
}

/// The words of a packet that starts a program on the units of `mask`.
std::vector<uint8_t> packet(uint32_t mask, uint64_t program, uint32_t count, uint64_t from, uint64_t to) {
  constexpr uint32_t kFirst = isa::reg::kProgramAddress / 4, kLast = isa::reg::kWindowLast / 4 + 2;
  std::vector<uint32_t> words(2 + kLast);
  words[0] = static_cast<uint32_t>(words.size() - 1) << 12;
  words[1] = mask;
  const auto put = [&](uint32_t reg, uint64_t value) {
    words[2 + reg / 4] = static_cast<uint32_t>(value);
    words[3 + reg / 4] = static_cast<uint32_t>(value >> 32);
  };
  put(isa::reg::kProgramAddress, program);
  words[2 + isa::reg::kInstructionCount / 4] = count;
  put(isa::reg::base(1), from);
  put(isa::reg::base(2), to);
  put(isa::reg::kWindowLast, isa::reg::kWindowLastReset);
  static_assert(kFirst == 4);
  std::vector<uint8_t> bytes(words.size() * 4);
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

emu::Request request_of(emu::Op op) {
  emu::Request request;
  request.op = op;
  return request;
}

/// A connection that has just come has the card for itself.
void expect_usable(bool with_run) {
  Connection user(board().path());
  user.must(request_of(emu::Op::kProgram), image(), "an image is refused on a free card");
  user.must(request_of(emu::Op::kOpenContext), {}, "a unit is refused on a free card");
  emu::Request allocate = request_of(emu::Op::kAllocate);
  allocate.size = driver::kBoardMemoryBytes;
  const emu::Reply all = user.must(allocate, {}, "the memory of a free card is not free");
  if (!with_run) return;
  const uint64_t program = all.address, from = program + 4096, to = from + 4096;
  const std::vector<uint8_t> words = driver::test::words_of(driver::test::turn_around(100));
  std::memcpy(board().at(program), words.data(), words.size());
  for (int k = 0; k < 2048; ++k) {
    board().at(from)[k] = static_cast<uint8_t>(k * 7);
    board().at(to)[k] = 0;
  }
  emu::Request execute = request_of(emu::Op::kExecute);
  execute.id = 77;
  user.must(execute, packet(1, program, 3, from, to), "a packet is refused on a free card");
  const emu::Completion done = user.completion();
  check(done.id == 77 && done.state == emu::kStateCompleted, "a run did not complete");
  for (int k = 0; k < 1000; ++k) {
    check(board().at(to)[1500 - 11 * (k / 10) + k % 10] == static_cast<uint8_t>((13 + k) * 7),
          "a run gave other bytes");
  }
}

class Play {
 public:
  void perform(const Record& r) {
    auto& slot = connections_[r.connection % kConnections];
    if (r.kind == Kind::kClose) {
      slot.reset();
      return;
    }
    if (!slot) slot = std::make_unique<Connection>(board().path());
    Connection& c = *slot;
    c.drain();
    Random random(r.value + r.size * 31 + r.address);
    emu::Request request;
    request.op = static_cast<emu::Op>((r.form & 4) != 0 ? r.op % 9 : r.op);
    request.unit = (r.form & 2) != 0 ? r.unit % 3 : r.unit;
    request.offset = (r.form & 2) != 0 ? r.offset % 0x300 / 4 * 4 : r.offset;
    request.value = r.value;
    request.shared = r.op & 1;
    request.size = (r.form & 2) != 0 ? r.size % 100000 : r.size;
    request.address = (r.form & 1) != 0 && !c.blocks.empty() ? c.blocks[r.address % c.blocks.size()] : r.address;
    request.id = r.value % 8;
    std::vector<uint8_t> payload;
    switch (r.kind) {
      case Kind::kImage:
        request.op = emu::Op::kProgram;
        payload = image();
        // Another configuration would be built: what is changed is no configuration.
        if ((r.form & 4) == 0) payload[random.below(payload.size())] ^= 0x80;
        if ((r.form & 8) != 0) payload.resize(random.below(payload.size()));
        break;
      case Kind::kPacket:
        request.op = emu::Op::kExecute;
        payload = packet((r.form & 2) != 0 ? 3 : r.unit, request.address, r.offset % 64, r.address, r.size);
        if ((r.form & 8) != 0) {
          const uint64_t word = static_cast<uint64_t>(random.integer(0));
          std::memcpy(payload.data() + random.below(payload.size() / 4 - 1) * 4, &word, 8);
        }
        if ((r.form & 16) != 0) payload.resize(random.below(payload.size()));
        break;
      case Kind::kStart:
        request.op = emu::Op::kWriteRegister;
        request.offset = isa::reg::kApCtrl;
        request.value = 1;
        break;
      case Kind::kBytes: {
        std::string bytes(r.size % 9000, static_cast<char>(r.value));
        if (bytes.size() > 8) std::memcpy(bytes.data(), &request, std::min(bytes.size(), sizeof request));
        emu::Reply reply;
        if (bytes.empty() || !c.call(bytes.data(), bytes.size(), reply)) slot.reset();
        return;
      }
      case Kind::kPoke: poke(c, r, random); return;
      default: break;
    }
    emu::Reply reply;
    if (!c.call(request, payload, reply)) finding("the board ends a connection after a whole request");
    if (request.op == emu::Op::kAllocate && reply.error == 0) c.blocks.push_back(reply.address);
    if (request.op == emu::Op::kFree && reply.error == 0) std::erase(c.blocks, request.address);
  }

 private:
  /// Drawn instructions into one of the connection's blocks.
  static void poke(Connection& c, const Record& r, Random& random) {
    if (c.blocks.empty()) return;
    std::mt19937_64 engine(random.bits());
    std::vector<isa::Instruction> program;
    for (size_t k = random.below(8); k > 0; --k) {
      program.push_back(isa::random_instruction(engine, random.below(std::variant_size_v<isa::Instruction>)));
    }
    program.emplace_back(isa::Finish{});
    const std::vector<uint8_t> words = driver::test::words_of(program);
    const uint64_t address = c.blocks[r.address % c.blocks.size()];
    if (address + words.size() > driver::kBoardMemoryBase + driver::kBoardMemoryBytes) return;
    std::memcpy(board().at(address), words.data(), words.size());
  }

  std::array<std::unique_ptr<Connection>, kConnections> connections_;
};

Record drawn(Random& random) {
  Record r;
  r.kind = static_cast<Kind>(random.below(static_cast<size_t>(Kind::kKinds)));
  if (random.chance(40)) r.kind = Kind::kRequest;
  r.connection = static_cast<uint8_t>(random.below(kConnections));
  r.op = static_cast<uint8_t>(random.below(10));
  r.form = static_cast<uint8_t>(random.chance(70) ? 7 : random.below(32));
  r.unit = static_cast<uint32_t>(random.integer(1));
  r.offset = static_cast<uint32_t>(random.integer(16));
  r.value = static_cast<uint32_t>(random.integer(1));
  r.size = static_cast<uint64_t>(random.integer(4096));
  r.address = static_cast<uint64_t>(random.chance(50) ? random.integer(static_cast<int64_t>(driver::kBoardMemoryBase))
                                                      : random.integer(0));
  return r;
}

/// The first of every use: an image, a unit, a block; so that what follows has something to work on.
std::vector<Record> opening(uint8_t connection) {
  Record program, open, allocate, poke;
  program.kind = Kind::kImage;
  program.form = open.form = allocate.form = 7;
  open.op = 1;
  allocate.op = 3;
  allocate.size = 8192;
  poke.kind = Kind::kPoke;
  std::vector<Record> all = {program, open, allocate, poke};
  for (Record& r : all) r.connection = connection;
  return all;
}

}  // namespace
}  // namespace tessera::fuzz

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  {
    fuzz::Play play;
    for (size_t k = 0; k < std::min(size / sizeof(fuzz::Record), fuzz::kMostRecords); ++k) {
      fuzz::Record record;
      std::memcpy(&record, data + k * sizeof record, sizeof record);
      play.perform(record);
    }
  }
  uint64_t sum = 0;
  for (size_t k = 0; k < size; ++k) sum = sum * 31 + data[k];
  fuzz::expect_usable(sum % 8 == 0);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t limit, unsigned seed) {
  fuzz::Random random(seed);
  std::vector<fuzz::Record> records(size / sizeof(fuzz::Record));
  if (!records.empty()) std::memcpy(records.data(), data, records.size() * sizeof(fuzz::Record));
  if (records.empty()) records = fuzz::opening(0);
  const size_t at = random.below(records.size());
  const auto place = records.begin() + static_cast<ptrdiff_t>(at);
  switch (random.below(6)) {
    case 0: records.erase(place); break;
    case 1: std::swap(records[at], random.of(records)); break;
    case 2: {
      auto* bytes = reinterpret_cast<uint8_t*>(&records[at]);
      LLVMFuzzerMutate(bytes, sizeof(fuzz::Record), sizeof(fuzz::Record));
      break;
    }
    case 3: {
      const auto more = fuzz::opening(static_cast<uint8_t>(random.below(fuzz::kConnections)));
      records.insert(place, more.begin(), more.end());
      break;
    }
    default: records.insert(place + 1, fuzz::drawn(random));
  }
  if (records.size() > fuzz::kMostRecords) records.resize(fuzz::kMostRecords);
  return fuzz::give_back(data, size, limit, records.data(), records.size() * sizeof(fuzz::Record));
}
