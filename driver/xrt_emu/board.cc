// SPDX-License-Identifier: Apache-2.0
// The server's loop: requests are answered as they come; a machine that runs gets a slice of cycles between them. The
// rules of sharing are those of XRT's kernel driver: a compute unit is open to many or to one, commands queue at the
// unit, a command needs a context, and the end of a connection ends what it holds (a run in the middle by a reset).
#include "driver/xrt_emu/board.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <list>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "driver/heap.h"
#include "driver/registry.h"
#include "driver/simulated_device.h"
#include "driver/xrt_emu/protocol.h"
#include "isa/generated/registers.h"
#include "sim/verilator/machine.h"

namespace tessera::driver {
namespace {

constexpr uint64_t kSliceCycles = 64;  // of each unit, between two looks at the sockets
constexpr uint32_t kClockMhz = 250;
constexpr uint64_t kPageBytes = 4096;
constexpr size_t kMostCommands = 4096;  // of one connection: queued, or done and not fetched
constexpr uint32_t kRegisterBytes = 1u << isa::reg::kAddressBits;
constexpr uint32_t kFirstArgumentWord = isa::reg::kProgramAddress / 4;

[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorCode::kIo, "simulated board: " + what + ": " + std::strerror(errno));
}

class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Client {
  Descriptor requests, completions;
  int number = 0;
  bool gone = false;
  std::map<uint32_t, bool> contexts;  // unit to shared
  std::vector<uint64_t> blocks;
  std::deque<emu::Completion> unsent;
};

struct Command {
  Client* client = nullptr;
  uint64_t id = 0;
  std::vector<uint32_t> arguments;  // of the register map, from its first word
};

struct Unit {
  std::unique_ptr<sim::RtlMachine> machine;
  std::unique_ptr<sim::DramModel> dram;
  std::deque<Command> queue;
  std::optional<Command> running;
  int user = 0;                       // the client that had it last, alone
  Client* started_by_hand = nullptr;  // through ap_ctrl, until it has seen done or idle
};

}  // namespace

struct Board::State {
  BoardOptions options;
  Descriptor listener, memory_file;
  uint8_t* memory = nullptr;
  Heap heap{kBoardMemoryBase, kBoardMemoryBytes};
  std::vector<Unit> units;
  sim::DramOptions dram;
  std::array<uint8_t, 16> uuid{};
  std::list<Client> clients;
  int connections = 0;

  ~State() {
    units.clear();
    if (memory != nullptr) munmap(memory, kBoardMemoryBytes);
    if (listener.get() >= 0) unlink(options.socket_path.c_str());
  }

  void say(const std::string& what) const {
    if (options.verbose) std::fprintf(stderr, "tessera board: %s\n", what.c_str());
  }

  void open() {
    memory_file = Descriptor(memfd_create("tessera-board", MFD_CLOEXEC));
    if (memory_file.get() < 0 || ftruncate(memory_file.get(), static_cast<off_t>(kBoardMemoryBytes)) != 0) {
      fail("cannot make the card's memory");
    }
    void* data =
        mmap(nullptr, kBoardMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, memory_file.get(), 0);
    if (data == MAP_FAILED) fail("cannot map the card's memory");
    memory = static_cast<uint8_t*>(data);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (options.socket_path.size() >= sizeof address.sun_path) {
      throw Error(ErrorCode::kInvalidArgument, "simulated board: the socket's path '" + options.socket_path +
                                                   "' is longer than " + std::to_string(sizeof address.sun_path - 1) +
                                                   " bytes; TMPDIR moves it");
    }
    std::memcpy(address.sun_path, options.socket_path.c_str(), options.socket_path.size() + 1);
    Descriptor made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (made.get() < 0 || bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(made.get(), 64) != 0) {
      fail("cannot listen on '" + options.socket_path + "'");
    }
    listener = std::move(made);
  }

  // Programs
  // -----------------------------------------------------------------------------------------------------------

  /// The card becomes `units` machines of the configuration in `text`.
  void program(const emu::Image& image, const std::string& text) {
    const isa::MachineConfig config = isa::parse_config(text, "the xclbin's image");
    DeviceOptions memory_options;
    memory_options.backend = options.memory;
    dram = dram_options("board", config, memory_options, true, {});
    std::vector<Unit> made;
    for (uint32_t u = 0; u < image.units; ++u) {
      Unit unit;
      unit.machine = sim::make_rtl(config);
      unit.dram = std::make_unique<sim::DramModel>(dram, kBoardMemoryBase, memory, kBoardMemoryBytes);
      made.push_back(std::move(unit));
    }
    units = std::move(made);
    uuid = image.uuid;
    say("programmed with " + std::to_string(image.units) + " x '" + config.name + "'");
  }

  void start(Unit& unit, Command command) {
    for (size_t word = 0; word < command.arguments.size(); ++word) {
      unit.machine->write_register(static_cast<uint32_t>(kFirstArgumentWord + word) * 4, command.arguments[word],
                                   *unit.dram);
    }
    unit.machine->write_register(isa::reg::kGie, isa::reg::kGieEnableMask, *unit.dram);
    unit.machine->write_register(isa::reg::kIer, isa::reg::kIerDoneMask, *unit.dram);
    unit.machine->write_register(isa::reg::kApCtrl, isa::reg::kApCtrlApStartMask, *unit.dram);
    unit.running = std::move(command);
  }

  /// What the kernel driver does at the interrupt.
  void finish(Unit& unit, const Command& command) {
    const uint32_t pending = unit.machine->read_register(isa::reg::kIsr, *unit.dram);
    unit.machine->write_register(isa::reg::kIsr, pending, *unit.dram);
    unit.machine->read_register(isa::reg::kApCtrl, *unit.dram);  // clears ap_done
    unit.machine->write_register(isa::reg::kGie, 0, *unit.dram);
    complete(command, emu::kStateCompleted);
    unit.running.reset();
  }

  static void complete(const Command& command, uint32_t state) {
    command.client->unsent.push_back({command.id, state, 0});
  }

  bool step() {
    bool busy = false;
    for (Unit& unit : units) {
      if (!unit.running && unit.started_by_hand == nullptr && !unit.queue.empty()) {
        Command next = std::move(unit.queue.front());
        unit.queue.pop_front();
        start(unit, std::move(next));
      }
      if (unit.running) {
        if (unit.machine->advance(kSliceCycles, *unit.dram)) finish(unit, *unit.running);
      } else if (unit.started_by_hand != nullptr) {
        unit.machine->advance(kSliceCycles, *unit.dram);
      }
      busy = busy || unit.running || unit.started_by_hand != nullptr || !unit.queue.empty();
    }
    return busy;
  }

  // Requests
  // -----------------------------------------------------------------------------------------------------------

  int open_context(Client& client, uint32_t unit, bool shared) {
    if (unit != emu::kAllUnits && unit >= units.size()) return EINVAL;
    if (unit == emu::kAllUnits) return 0;
    const auto own = client.contexts.find(unit);
    if (own != client.contexts.end()) return shared && own->second ? 0 : EBUSY;
    bool alone = true;
    for (const Client& other : clients) {
      const auto context = other.contexts.find(unit);
      if (context == other.contexts.end()) continue;
      if (!shared || !context->second) return EBUSY;
      alone = false;
    }
    // A unit that changes hands is as new, so that cycles do not depend on what another process did.
    if (alone && units[unit].user != client.number) {
      units[unit].dram = std::make_unique<sim::DramModel>(dram, kBoardMemoryBase, memory, kBoardMemoryBytes);
      reset(units[unit]);
      units[unit].user = client.number;
    }
    client.contexts[unit] = shared;
    return 0;
  }

  void reset(Unit& unit) {
    unit.machine->reset(*unit.dram);
    unit.started_by_hand = nullptr;
  }

  /// Ends the commands of one client at one unit; a run in its middle is ended by a reset.
  void drop(Unit& unit, const Client& client, std::optional<uint64_t> id, bool report) {
    const auto concerns = [&](const Command& command) {
      return command.client == &client && (!id || command.id == *id);
    };
    if (unit.running && concerns(*unit.running)) {
      if (report) complete(*unit.running, emu::kStateAborted);
      unit.running.reset();
      reset(unit);
      say("client " + std::to_string(client.number) + ": a run was ended by a reset");
    }
    if (!id && unit.started_by_hand == &client) reset(unit);
    std::deque<Command> kept;
    for (Command& command : unit.queue) {
      if (!concerns(command)) {
        kept.push_back(std::move(command));
      } else if (report) {
        complete(command, emu::kStateAborted);
      }
    }
    unit.queue = std::move(kept);
  }

  /// Commands whose completions the client has not fetched.
  size_t commands_of(const Client& client) const {
    size_t count = client.unsent.size();
    for (const Unit& unit : units) {
      count += static_cast<size_t>(std::count_if(unit.queue.begin(), unit.queue.end(),
                                                 [&](const Command& command) { return command.client == &client; }));
    }
    return count;
  }

  int execute(Client& client, uint64_t id, const uint8_t* payload, size_t bytes) {
    std::vector<uint32_t> words(bytes / 4);
    if (words.size() < 2) return EINVAL;
    std::memcpy(words.data(), payload, words.size() * 4);
    const size_t extra_masks = words[0] >> 10 & 3, count = words[0] >> 12 & 0x7ff;
    if (words.size() < 1 + count || count < 1 + extra_masks) return EINVAL;
    Unit* chosen = nullptr;
    for (size_t u = 0; u < units.size(); ++u) {
      if (u / 32 > extra_masks || (words[1 + u / 32] >> (u % 32) & 1) == 0 ||
          !client.contexts.contains(static_cast<uint32_t>(u))) {
        continue;
      }
      const auto load = [](const Unit& unit) { return unit.queue.size() + (unit.running ? 1 : 0); };
      if (chosen == nullptr || load(units[u]) < load(*chosen)) chosen = &units[u];
    }
    if (chosen == nullptr) return EINVAL;  // no context on any unit of the mask
    if (commands_of(client) >= kMostCommands) return EAGAIN;
    Command command{&client, id, {}};
    const size_t first = 2 + extra_masks + kFirstArgumentWord, last = 1 + count;
    if (last > first)
      command.arguments.assign(words.begin() + static_cast<int64_t>(first), words.begin() + static_cast<int64_t>(last));
    if ((kFirstArgumentWord + command.arguments.size()) * 4 > kRegisterBytes) return EINVAL;
    chosen->queue.push_back(std::move(command));
    return 0;
  }

  void release(uint64_t address) {
    // The pages go back to the host: a card's memory costs nothing, the host's does.
    const uint64_t size = heap.blocks().at(address);
    heap.free(address);
    const uint64_t first = address - kBoardMemoryBase;
    fallocate(memory_file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
              static_cast<off_t>((size + kPageBytes - 1) / kPageBytes * kPageBytes));
  }

  static void refuse(emu::Reply& reply, int error, const std::string& why) {
    reply.error = error;
    std::snprintf(reply.message.data(), reply.message.size(), "%s", why.c_str());
  }

  /// The unit that a request names, where the client has a context on it.
  Unit* own_unit(const Client& client, const emu::Request& request) {
    const auto context = client.contexts.find(request.unit);
    return context == client.contexts.end() || request.unit >= units.size() ? nullptr : &units[request.unit];
  }

  void load_image(const Client& client, const emu::Request& request, const uint8_t* payload, emu::Reply& reply) {
    emu::Image image;
    if (request.payload_bytes < sizeof image) return refuse(reply, EINVAL, "short image");
    std::memcpy(&image, payload, sizeof image);
    if (image.text_bytes > request.payload_bytes - sizeof image || image.units < 1 || image.units > 8)
      return refuse(reply, EINVAL, "an image of 1 to 8 units was expected");
    if (!units.empty() && image.uuid == uuid) return;
    for (const Client& other : clients) {
      if (!other.contexts.empty() || (&other != &client && !other.blocks.empty()))
        return refuse(reply, EBUSY, "another image is in use on the card");
    }
    program(image, std::string(reinterpret_cast<const char*>(payload) + sizeof image, image.text_bytes));
  }

  void allocate(Client& client, const emu::Request& request, emu::Reply& reply) {
    try {
      reply.address = heap.allocate(request.size, kPageBytes);
      client.blocks.push_back(reply.address);
    } catch (const Error& e) {
      refuse(reply, ENOMEM, e.what());
    }
  }

  void free_block(Client& client, const emu::Request& request, emu::Reply& reply) {
    const auto block = std::find(client.blocks.begin(), client.blocks.end(), request.address);
    if (block == client.blocks.end()) return refuse(reply, EINVAL, "not a block of this process");
    client.blocks.erase(block);
    release(request.address);
  }

  void access_register(Client& client, const emu::Request& request, emu::Reply& reply) {
    Unit* unit = own_unit(client, request);
    if (unit == nullptr) return refuse(reply, EINVAL, "no context on this unit");
    if (request.offset >= kRegisterBytes || request.offset % 4 != 0) return refuse(reply, EINVAL, "no such register");
    const bool control = request.offset == isa::reg::kApCtrl;
    if (request.op == emu::Op::kWriteRegister) {
      unit->machine->write_register(request.offset, request.value, *unit->dram);
      if (control && (request.value & isa::reg::kApCtrlApStartMask) != 0) unit->started_by_hand = &client;
    } else {
      reply.value = unit->machine->read_register(request.offset, *unit->dram);
      if (control && (reply.value & (isa::reg::kApCtrlApDoneMask | isa::reg::kApCtrlApIdleMask)) != 0) {
        unit->started_by_hand = nullptr;
      }
    }
  }

  emu::Reply answer(Client& client, const emu::Request& request, const uint8_t* payload) {
    emu::Reply reply;
    switch (request.op) {
      case emu::Op::kProgram: load_image(client, request, payload, reply); break;
      case emu::Op::kOpenContext: reply.error = open_context(client, request.unit, request.shared != 0); break;
      case emu::Op::kCloseContext:
        if (Unit* unit = own_unit(client, request)) {
          drop(*unit, client, std::nullopt, true);
          client.contexts.erase(request.unit);
        }
        break;
      case emu::Op::kAllocate: allocate(client, request, reply); break;
      case emu::Op::kFree: free_block(client, request, reply); break;
      case emu::Op::kReadRegister:
      case emu::Op::kWriteRegister: access_register(client, request, reply); break;
      case emu::Op::kExecute: reply.error = execute(client, request.id, payload, request.payload_bytes); break;
      case emu::Op::kAbort:
        for (Unit& unit : units) drop(unit, client, request.id, true);
        break;
      default: refuse(reply, ENOSYS, "unknown request");
    }
    return reply;
  }

  void receive(Client& client) {
    alignas(8) std::array<uint8_t, emu::kMaxMessageBytes> message;
    const ssize_t count = recv(client.requests.get(), message.data(), message.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    emu::Request request;
    if (count < static_cast<ssize_t>(sizeof request)) {
      client.gone = true;
      return;
    }
    std::memcpy(&request, message.data(), sizeof request);
    emu::Reply reply;
    try {
      if (request.version != emu::kProtocolVersion ||
          request.payload_bytes != static_cast<size_t>(count) - sizeof request) {
        throw Error(ErrorCode::kInvalidArgument, "a request of another version of this project");
      }
      reply = answer(client, request, message.data() + sizeof request);
    } catch (const std::exception& e) {
      reply.error = EIO;
      std::snprintf(reply.message.data(), reply.message.size(), "%s", e.what());
    }
    if (reply.error != 0 && reply.error != EBUSY) {
      say("client " + std::to_string(client.number) + ": " + std::strerror(reply.error) + " " + reply.message.data());
    }
    if (send(client.requests.get(), &reply, sizeof reply, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) client.gone = true;
  }

  void accept_client() {
    Descriptor fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::array<int, 2> pair{-1, -1};
    if (fd.get() < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) != 0) return;
    Descriptor ours(pair[0]), theirs(pair[1]);
    emu::Greeting greeting;
    greeting.clock_mhz = kClockMhz;
    greeting.memory_base = kBoardMemoryBase;
    greeting.memory_bytes = kBoardMemoryBytes;
    iovec data{&greeting, sizeof greeting};
    const std::array<int, 2> passed{memory_file.get(), theirs.get()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof passed)> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof passed);
    std::memcpy(CMSG_DATA(header), passed.data(), sizeof passed);
    if (sendmsg(fd.get(), &message, MSG_NOSIGNAL) < 0) return;
    Client& client = clients.emplace_back();
    client.requests = std::move(fd);
    client.completions = std::move(ours);
    client.number = ++connections;
    say("client " + std::to_string(client.number) + " comes");
  }

  void remove_gone() {
    for (auto client = clients.begin(); client != clients.end();) {
      if (!client->gone) {
        ++client;
        continue;
      }
      for (Unit& unit : units) drop(unit, *client, std::nullopt, false);
      for (const uint64_t block : client->blocks) release(block);
      say("client " + std::to_string(client->number) + " goes");
      client = clients.erase(client);
    }
  }

  bool flush() {
    bool waiting = false;
    for (Client& client : clients) {
      while (!client.unsent.empty()) {
        const emu::Completion& next = client.unsent.front();
        if (send(client.completions.get(), &next, sizeof next, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
          if (errno != EAGAIN) client.gone = true;
          break;
        }
        client.unsent.pop_front();
      }
      waiting = waiting || !client.unsent.empty();
    }
    return waiting;
  }
};

Board::Board(BoardOptions options) : state_(std::make_unique<State>()) {
  state_->options = std::move(options);
  state_->open();
}

Board::~Board() = default;

void Board::serve(int wake_fd) {
  State& s = *state_;
  for (;;) {
    const bool busy = s.step();
    const bool waiting = s.flush();
    s.remove_gone();
    std::vector<pollfd> watched = {{wake_fd, POLLIN, 0}, {s.listener.get(), POLLIN, 0}};
    std::vector<Client*> order;
    for (Client& client : s.clients) {
      watched.push_back({client.requests.get(), POLLIN, 0});
      order.push_back(&client);
    }
    if (poll(watched.data(), watched.size(), busy ? 0 : waiting ? 5 : -1) < 0 && errno != EINTR) fail("poll");
    if (watched[0].revents != 0) return;
    for (size_t c = 0; c < order.size(); ++c) {
      if (watched[c + 2].revents != 0) s.receive(*order[c]);
    }
    if (watched[1].revents != 0) s.accept_client();
    s.remove_gone();
  }
}

}  // namespace tessera::driver
