// SPDX-License-Identifier: Apache-2.0
// The simulated system behind a port. Enters: over TCP the bytes of one client at a time, as a serial line would bring
// them, or, of a system whose bridge is Etherbone, datagrams over UDP. Leaves: what the bridge sends. The system is
// verilated; its clock runs while bytes or bursts of memory come and for a while behind the last of them, and slowly
// otherwise, so that an idle system costs nothing.
//
// With --break N, one byte of N on the link is broken, in both directions: a bit of it flips, or it is lost, or it
// comes twice, or another one comes before it. --seed draws the same faults again.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "Vtessera.h"
#include "verilated.h"

namespace {

constexpr int kSlice = 256;                // cycles between two looks at the socket
constexpr uint64_t kQuietCycles = 200000;  // behind the last byte or burst: longer than the bridge's own patience
#ifdef TESSERA_CONSOLE
constexpr bool kProcessor = true;  // which is never idle
#else
constexpr bool kProcessor = false;
#endif
constexpr int kIdleMilliseconds = 5;  // between two slices of an idle system

volatile std::sig_atomic_t stopped = 0;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "simulated system: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

/// Faults of the link. `one_in`: bytes for each broken one; 0: none.
class Breaker {
 public:
  Breaker(uint64_t one_in, uint64_t seed) : one_in_(one_in), random_(seed) {}

  void pass(uint8_t byte, std::deque<uint8_t>& to) {
    if (one_in_ == 0 || random_() % one_in_ != 0) {
      to.push_back(byte);
      return;
    }
    ++broken_;
    switch (random_() % 4) {
      case 0: to.push_back(byte ^ static_cast<uint8_t>(1U << (random_() % 8))); break;
      case 1: break;
      case 2: to.insert(to.end(), 2, byte); break;
      default: to.insert(to.end(), {static_cast<uint8_t>(random_()), byte});
    }
  }

  /// How often a datagram comes.
  int times(size_t bytes) {
    if (one_in_ == 0 || random_() % one_in_ >= bytes) return 1;
    ++broken_;
    return random_() % 2 == 0 ? 0 : 2;
  }

  uint64_t broken() const { return broken_; }

 private:
  uint64_t one_in_;
  std::mt19937_64 random_;
  uint64_t broken_ = 0;
};

/// A socket on 127.0.0.1; its name is printed.
int listening(int kind, uint16_t port) {
  const int server = socket(AF_INET, kind | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int one = 1;
  setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  socklen_t size = sizeof address;
  if (bind(server, reinterpret_cast<sockaddr*>(&address), size) != 0) fail("bind");
  if (kind == SOCK_STREAM && listen(server, 4) != 0) fail("listen");
  getsockname(server, reinterpret_cast<sockaddr*>(&address), &size);
  std::printf("%s127.0.0.1:%d\n", kind == SOCK_DGRAM ? "udp:" : "", ntohs(address.sin_port));
  std::fflush(stdout);
  return server;
}

#ifdef TESSERA_DATAGRAMS

class Link {
 public:
  Link(uint16_t port, Breaker breaker) : breaker_(std::move(breaker)), socket_(listening(SOCK_DGRAM, port)) {}

  /// Takes the datagrams that have come; waits that long for the first.
  void exchange(int milliseconds) {
    pollfd watched = {socket_, POLLIN, 0};
    if (poll(&watched, 1, milliseconds) <= 0) return;
    std::array<uint8_t, 4096> bytes;
    for (;;) {
      socklen_t size = sizeof from_;
      const ssize_t got = recvfrom(socket_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&from_), &size);
      if (got <= 0) return;
      const size_t count = static_cast<size_t>(got) / 4;
      for (int n = breaker_.times(static_cast<size_t>(got)); n > 0; --n) {
        for (size_t word = 0; word < count; ++word) {
          Beat beat{0, word + 1 == count, static_cast<uint16_t>(4 * count)};
          std::memcpy(&beat.data, &bytes[4 * word], 4);
          in_.push_back(beat);
        }
      }
    }
  }

  bool offer(Vtessera& top) const {
    if (in_.empty()) return false;
    top.link_in_data = in_.front().data;
    top.link_in_last = in_.front().last;
    top.link_in_length = in_.front().length;
    return true;
  }
  void taken() { in_.pop_front(); }

  void given(const Vtessera& top) {
    out_.push_back(top.link_out_data);
    if (!top.link_out_last) return;
    for (int n = breaker_.times(4 * out_.size()); n > 0; --n) {
      sendto(socket_, out_.data(), 4 * out_.size(), 0, reinterpret_cast<sockaddr*>(&from_), sizeof from_);
    }
    out_.clear();
  }

  bool pending() const { return !in_.empty(); }
  uint64_t broken() const { return breaker_.broken(); }

 private:
  struct Beat {
    uint32_t data;
    bool last;
    uint16_t length;
  };
  Breaker breaker_;
  int socket_;
  sockaddr_in from_{};
  std::deque<Beat> in_;
  std::vector<uint32_t> out_;
};

#else

class Link {
 public:
  Link(uint16_t port, Breaker breaker) : breaker_(std::move(breaker)), server_(listening(SOCK_STREAM, port)) {}

  /// Moves bytes between the socket and the queues; waits that long for something to come.
  void exchange(int milliseconds) {
    if (client_ >= 0 && !out_.empty()) flush();
    std::array<pollfd, 2> watched = {{{server_, POLLIN, 0}, {client_, POLLIN, 0}}};
    if (poll(watched.data(), watched.size(), milliseconds) <= 0) return;
    if (watched[1].revents != 0) receive();
    if (watched[0].revents != 0) welcome();
  }

  bool offer(Vtessera& top) const {
    if (in_.empty()) return false;
    top.link_in_data = in_.front();
    return true;
  }
  void taken() { in_.pop_front(); }
  void given(const Vtessera& top) { breaker_.pass(top.link_out_data, out_); }
  bool pending() const { return !in_.empty() || !out_.empty(); }
  uint64_t broken() const { return breaker_.broken(); }

 private:
  void receive() {
    std::array<uint8_t, 4096> bytes;
    const ssize_t got = recv(client_, bytes.data(), bytes.size(), 0);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return leave();
    for (ssize_t n = 0; n < got; ++n) breaker_.pass(bytes[static_cast<size_t>(n)], in_);
  }

  /// A line has one user; whoever comes beside it is sent away.
  void welcome() {
    const int arrived = accept4(server_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (arrived < 0) return;
    if (client_ >= 0) {
      close(arrived);
      return;
    }
    client_ = arrived;
    const int one = 1;
    setsockopt(client_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  }

  void flush() {
    const std::string bytes(out_.begin(), out_.end());
    const ssize_t sent = ::send(client_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) out_.erase(out_.begin(), out_.begin() + sent);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) leave();
  }

  /// What had not been delivered is lost, as on a line that was pulled.
  void leave() {
    close(client_);
    client_ = -1;
    in_.clear();
    out_.clear();
  }

  Breaker breaker_;
  int server_, client_ = -1;
  std::deque<uint8_t> in_, out_;
};

#endif

#ifdef TESSERA_CONSOLE

/// The UART of the system's firmware behind a TCP port of its own; without a client its bytes go to standard error.
class Console {
 public:
  Console() : server_(listening(SOCK_STREAM, 0)) {}

  void exchange() {
    if (client_ < 0) {
      client_ = accept4(server_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    } else {
      std::array<uint8_t, 256> bytes;
      const ssize_t got = recv(client_, bytes.data(), bytes.size(), 0);
      if (got > 0) in_.insert(in_.end(), bytes.begin(), bytes.begin() + got);
      if (got == 0) {
        close(client_);
        client_ = -1;
      }
    }
    if (out_.empty()) return;
    if (client_ < 0) {
      std::fwrite(out_.data(), 1, out_.size(), stderr);
    } else {
      ::send(client_, out_.data(), out_.size(), MSG_NOSIGNAL);
    }
    out_.clear();
  }

  void before(Vtessera& top) const {
    top.serial_source_ready = 1;
    top.serial_sink_valid = !in_.empty();
    if (!in_.empty()) top.serial_sink_data = in_.front();
  }

  /// Whether a byte moved.
  bool after(const Vtessera& top) {
    const bool taken = top.serial_sink_valid && top.serial_sink_ready, given = top.serial_source_valid;
    if (taken) in_.pop_front();
    if (given) out_.push_back(static_cast<char>(top.serial_source_data));
    return taken || given;
  }

 private:
  int server_, client_ = -1;
  std::deque<uint8_t> in_;
  std::string out_;
};

#else

class Console {
 public:
  void exchange() {}
  void before(Vtessera& /*top*/) const {}
  bool after(const Vtessera& /*top*/) { return false; }
};

#endif

class System {
 public:
  System() : top_(std::make_unique<Vtessera>()) {
    top_->sys_rst = 1;
    for (int n = 0; n < 64; ++n) cycle();
    top_->sys_rst = 0;
  }

  /// One cycle; a beat of the link goes each way when both sides agree. Returns whether anything moved.
  bool step(Link& link, Console& console) {
    console.before(*top_);
    top_->link_in_valid = link.offer(*top_);
    top_->link_out_ready = 1;
    top_->sys_clk = 0;
    top_->eval();
    const bool taken = top_->link_in_valid && top_->link_in_ready, given = top_->link_out_valid;
    if (given) link.given(*top_);
    if (taken) link.taken();
    const bool busy = console.after(*top_) || top_->busy;
    top_->sys_clk = 1;
    top_->eval();
    ++cycles_;
    return taken || given || busy;
  }

  uint64_t cycles() const { return cycles_; }

 private:
  void cycle() {
    top_->sys_clk = 0;
    top_->eval();
    top_->sys_clk = 1;
    top_->eval();
  }

  std::unique_ptr<Vtessera> top_;
  uint64_t cycles_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  uint64_t port = 0, one_in = 0, seed = 1;
  for (int n = 1; n + 1 < argc; n += 2) {
    const std::string name = argv[n];
    (name == "--port" ? port : name == "--break" ? one_in : seed) = std::strtoull(argv[n + 1], nullptr, 10);
  }
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // whoever started it would not find it again
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, [](int) { stopped = 1; });
  System system;
  Link link(static_cast<uint16_t>(port), Breaker(one_in, seed));
  Console console;
  uint64_t moved = 0;
  while (stopped == 0) {
    const bool idle = !kProcessor && !link.pending() && system.cycles() - moved > kQuietCycles;
    link.exchange(idle ? kIdleMilliseconds : 0);
    console.exchange();
    for (int n = 0; n < kSlice; ++n) {
      if (system.step(link, console)) moved = system.cycles();
    }
  }
  std::fprintf(stderr, "%llu cycles, %llu bytes of the link broken\n", static_cast<unsigned long long>(system.cycles()),
               static_cast<unsigned long long>(link.broken()));
  return 0;
}
