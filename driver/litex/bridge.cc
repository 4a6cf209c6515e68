// SPDX-License-Identifier: Apache-2.0
// UARTBone: a command byte, a count of words, a word address of four bytes, and words, all with the most significant
// byte first. Etherbone: a packet of one record. Neither has a checksum of its own.
#include "driver/litex/bridge.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"

namespace tessera::driver::litex {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr size_t kBurst = 255;  // words of one command

std::string because(const std::string& what) { return what + ": " + std::strerror(errno); }

void put(std::vector<uint8_t>& bytes, uint32_t word) {
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(word >> shift));
}

uint32_t take(std::span<const uint8_t> bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

/// A descriptor of a socket or of a serial line, which does not block.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { reset(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  void reset(int number = -1) {
    if (number_ >= 0) close(number_);
    number_ = number;
  }
  int get() const { return number_; }

 private:
  int number_;
};

class Link {
 public:
  Link(std::string name, unsigned baud) : name_(std::move(name)), baud_(baud) {
    serial_ = name_.find('/') != std::string::npos;
    datagrams_ = name_.starts_with("udp:");
  }

  const std::string& name() const { return name_; }
  bool datagrams() const { return datagrams_; }
  bool is_open() const { return descriptor_.get() >= 0; }

  /// Throws LinkFailure.
  void open() {
    if (serial_) {
      open_serial();
    } else {
      open_socket();
    }
  }

  void send(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = serial_ ? ::write(need(), bytes.data(), bytes.size())
                                   : ::send(need(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) {
        bytes = bytes.subspan(static_cast<size_t>(sent));
      } else if (errno == EAGAIN) {
        if (!ready(POLLOUT, 5s)) throw LinkFailure{"the link takes no more bytes"};
      } else if (errno != EINTR) {
        lost(because("the link is gone"));
      }
    }
  }

  /// What has come, at most so much, after waiting for it; nothing when the time is over.
  size_t receive(std::span<uint8_t> bytes, Seconds patience) {
    if (!ready(POLLIN, patience)) return 0;
    const ssize_t got = ::read(need(), bytes.data(), bytes.size());
    if (got > 0) return static_cast<size_t>(got);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (datagrams_ && got < 0 && errno == ECONNREFUSED) throw LinkFailure{"nobody listens at the other end"};
    lost(got == 0 ? "the other end has closed the link" : because("the link is gone"));
  }

 private:
  int need() const {
    if (descriptor_.get() < 0) throw LinkFailure{"the link is closed"};
    return descriptor_.get();
  }

  [[noreturn]] void lost(const std::string& why) {
    descriptor_.reset();
    throw LinkFailure{why};
  }

  bool ready(short event, Seconds patience) {
    pollfd watched = {need(), event, 0};
    const timespec time = {
        static_cast<time_t>(patience.count()),
        static_cast<long>((patience.count() - static_cast<double>(static_cast<time_t>(patience.count()))) * 1e9)};
    return ppoll(&watched, 1, &time, nullptr) > 0;
  }

  void open_socket() {
    const std::string place = datagrams_ ? name_.substr(4) : name_;
    const size_t colon = place.rfind(':');
    const std::string host = place.substr(0, colon), port = place.substr(colon + 1);
    addrinfo hints{};
    hints.ai_socktype = datagrams_ ? SOCK_DGRAM : SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
      throw LinkFailure{"'" + host + "' is not known: " + gai_strerror(error)};
    }
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, freeaddrinfo);
    std::string why = "no address";
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      descriptor_.reset(socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol));
      if (descriptor_.get() >= 0 && connect(descriptor_.get(), one->ai_addr, one->ai_addrlen) == 0) {
        const int yes = 1;
        if (!datagrams_) setsockopt(descriptor_.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        fcntl(descriptor_.get(), F_SETFL, O_NONBLOCK);
        return;
      }
      why = std::strerror(errno);
    }
    lost("nobody answers: " + why);
  }

  void open_serial() {
    static constexpr std::pair<unsigned, speed_t> kSpeeds[] = {
        {115200, B115200},   {230400, B230400},   {460800, B460800},   {921600, B921600},   {1000000, B1000000},
        {1500000, B1500000}, {2000000, B2000000}, {3000000, B3000000}, {4000000, B4000000},
    };
    const auto* speed =
        std::find_if(std::begin(kSpeeds), std::end(kSpeeds), [&](const auto& known) { return known.first == baud_; });
    if (speed == std::end(kSpeeds)) throw LinkFailure{"no serial line runs at " + std::to_string(baud_) + " baud"};
    descriptor_.reset(::open(name_.c_str(), O_RDWR | O_NOCTTY | O_NONBLOCK | O_CLOEXEC));
    termios settings{};
    if (descriptor_.get() < 0 || tcgetattr(descriptor_.get(), &settings) != 0) lost(because("it cannot be opened"));
    if (ioctl(descriptor_.get(), TIOCEXCL) != 0) lost(because("another program uses it"));
    cfmakeraw(&settings);
    settings.c_cflag |= CLOCAL | CREAD;
    settings.c_cflag &= ~static_cast<tcflag_t>(CRTSCTS | CSTOPB);
    cfsetspeed(&settings, speed->second);
    if (tcsetattr(descriptor_.get(), TCSANOW, &settings) != 0) lost(because("its speed cannot be set"));
  }

  std::string name_;
  unsigned baud_;
  bool serial_ = false, datagrams_ = false;
  Descriptor descriptor_;
};

class UartBone final : public Bridge {
 public:
  explicit UartBone(Link& link) : link_(link) {}

  void write(uint32_t address, std::span<const uint32_t> words) override {
    std::vector<uint8_t> bytes;
    for (size_t at = 0; at < words.size(); at += kBurst) {
      const std::span<const uint32_t> burst = words.subspan(at, std::min(kBurst, words.size() - at));
      command(bytes, 1, burst.size(), address / 4 + static_cast<uint32_t>(at));
      for (const uint32_t word : burst) put(bytes, word);
    }
    link_.send(bytes);
  }

  void read(uint32_t address, std::span<uint32_t> words, Seconds patience) override {
    std::vector<uint8_t> bytes;
    for (size_t at = 0; at < words.size(); at += kBurst) {
      command(bytes, 2, std::min(kBurst, words.size() - at), address / 4 + static_cast<uint32_t>(at));
    }
    link_.send(bytes);
    bytes.assign(words.size_bytes(), 0);
    const auto until = Clock::now() + patience;
    for (size_t have = 0; have < bytes.size();) {
      const Seconds left = until - Clock::now();
      const size_t got = left.count() > 0 ? link_.receive(std::span(bytes).subspan(have), left) : 0;
      have += got;
      if (got == 0 && Clock::now() >= until) throw LinkFailure{"no answer came in time"};
    }
    for (size_t n = 0; n < words.size(); ++n) words[n] = take(std::span(bytes).subspan(4 * n));
  }

  /// A command that lost bytes swallows what follows. Zeros fill the longest one, and are commands of six bytes that do
  /// nothing. Then it is unknown how many of such a command's six bytes have come. So six reads follow, a zero between
  /// any two: one of them is understood, and its answer says which. No byte of theirs is a command, but the first.
  void recover(Seconds patience) override {
    if (!link_.is_open()) link_.open();
    drain(patience);
    std::vector<uint8_t> bytes((2 + 4 + 4 * kBurst) / 6 * 6 + 12, 0);
    for (uint32_t probe = 0; probe < kProbes; ++probe) {
      command(bytes, 2, kProbeWords, probe_address(probe) / 4);
      bytes.push_back(0);
    }
    link_.send(bytes);
    std::vector<uint8_t> answer;
    std::array<uint8_t, 512> more{};
    const auto until = Clock::now() + patience;
    while (Clock::now() < until) {
      const size_t got = link_.receive(more, until - Clock::now());
      answer.insert(answer.end(), more.begin(), more.begin() + static_cast<ptrdiff_t>(got));
      if (const auto probe = understood(answer); probe < kProbes) {
        bytes.assign(probe, 0);
        link_.send(bytes);
        return;
      }
    }
    throw LinkFailure{"the bridge does not answer"};
  }

 private:
  static constexpr uint32_t kProbes = 6, kProbeWords = 5;

  /// Registers of the window that read their own number in bits 31 to 24.
  static uint32_t probe_register(uint32_t probe) { return 0x10 + 8 * probe; }
  static uint32_t probe_address(uint32_t probe) { return kWindowRegisters + 0xC00 + 4 * probe_register(probe); }

  static void command(std::vector<uint8_t>& bytes, uint8_t code, size_t words, uint32_t word_address) {
    bytes.push_back(code);
    bytes.push_back(static_cast<uint8_t>(words));
    put(bytes, word_address);
  }

  /// The probe whose answer the bytes end with, or kProbes.
  static uint32_t understood(std::span<const uint8_t> answer) {
    if (answer.size() < 4 * kProbeWords) return kProbes;
    const std::span<const uint8_t> last = answer.last(4 * kProbeWords);
    for (uint32_t probe = 0; probe < kProbes; ++probe) {
      bool same = true;
      for (uint32_t n = 0; n < kProbeWords; ++n) {
        same = same && take(last.subspan(4 * n)) == ((probe_register(probe) + n) << 24 | (kWindowMagic & 0xFFFFFF));
      }
      if (same) return probe;
    }
    return kProbes;
  }

  /// Until nothing has come for a while.
  void drain(Seconds patience) {
    std::array<uint8_t, 4096> bytes{};
    const Seconds quiet = std::min<Seconds>(patience / 8, 20ms);
    const auto until = Clock::now() + 8 * patience;
    while (link_.receive(bytes, quiet) > 0) {
      if (Clock::now() > until) throw LinkFailure{"the bridge sends without end"};
    }
  }

  Link& link_;
};

class Etherbone final : public Bridge {
 public:
  explicit Etherbone(Link& link) : link_(link) {}

  void write(uint32_t address, std::span<const uint32_t> words) override {
    for (size_t at = 0; at < words.size(); at += kBurst) {
      const std::span<const uint32_t> burst = words.subspan(at, std::min(kBurst, words.size() - at));
      std::vector<uint8_t> packet = header(burst.size(), 0);
      put(packet, address + static_cast<uint32_t>(4 * at));
      for (const uint32_t word : burst) put(packet, word);
      link_.send(packet);
    }
  }

  void read(uint32_t address, std::span<uint32_t> words, Seconds patience) override {
    for (size_t at = 0; at < words.size(); at += kBurst) {
      const std::span<uint32_t> burst = words.subspan(at, std::min(kBurst, words.size() - at));
      const uint32_t first = address + static_cast<uint32_t>(4 * at);
      std::vector<uint8_t> packet = header(0, burst.size());
      put(packet, first);  // comes back as the address of the answer, which tells late answers
      for (uint32_t n = 0; n < burst.size(); ++n) put(packet, first + 4 * n);
      link_.send(packet);
      answer(first, burst, patience);
    }
  }

  void recover(Seconds patience) override {
    if (!link_.is_open()) link_.open();
    std::array<uint8_t, 2048> bytes{};
    while (link_.receive(bytes, std::min<Seconds>(patience / 8, 20ms)) > 0) {
    }
  }

 private:
  static constexpr size_t kHeader = 12, kMagic = 0x4E6F;

  /// The packet's header and the record's.
  static std::vector<uint8_t> header(size_t writes, size_t reads) {
    return {0x4E, 0x6F, 0x10, 0x44, 0, 0, 0, 0, 0, 0x0F, static_cast<uint8_t>(writes), static_cast<uint8_t>(reads)};
  }

  void answer(uint32_t address, std::span<uint32_t> words, Seconds patience) {
    std::array<uint8_t, 2048> bytes{};
    const auto until = Clock::now() + patience;
    while (Clock::now() < until) {
      const size_t got = link_.receive(bytes, until - Clock::now());
      const std::span<const uint8_t> packet = std::span(bytes).first(got);
      if (got != kHeader + 4 + words.size_bytes() || packet[0] != kMagic >> 8 || packet[1] != (kMagic & 0xFF) ||
          packet[10] != words.size() || take(packet.subspan(kHeader)) != address) {
        continue;
      }
      for (size_t n = 0; n < words.size(); ++n) words[n] = take(packet.subspan(kHeader + 4 + 4 * n));
      return;
    }
    throw LinkFailure{"no answer came in time"};
  }

  Link& link_;
};

/// A bridge with its link.
template <typename Bone>
class Opened final : public Bridge {
 public:
  explicit Opened(std::unique_ptr<Link> link) : link_(std::move(link)), bone_(*link_) {}
  void write(uint32_t address, std::span<const uint32_t> words) override { bone_.write(address, words); }
  void read(uint32_t address, std::span<uint32_t> words, Seconds patience) override {
    bone_.read(address, words, patience);
  }
  void recover(Seconds patience) override { bone_.recover(patience); }

 private:
  std::unique_ptr<Link> link_;
  Bone bone_;
};

bool is_place(const std::string& name) {
  const size_t colon = name.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == name.size() || name.size() - colon > 6) return false;
  return std::all_of(name.begin() + static_cast<ptrdiff_t>(colon) + 1, name.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::unique_ptr<Bridge> open_bridge(const std::string& name, unsigned baud) {
  const std::string place = name.starts_with("udp:") ? name.substr(4) : name;
  if (name.find('/') == std::string::npos && !is_place(place)) {
    throw Error(ErrorCode::kInvalidArgument,
                "device litex is named with its link: litex:HOST:PORT for UARTBone over TCP, litex:udp:HOST:PORT for "
                "Etherbone, litex:/dev/ttyUSB0 for a serial line, not '" +
                    name + "'");
  }
  auto link = std::make_unique<Link>(name, baud);
  try {
    link->open();
  } catch (const LinkFailure& failure) {
    throw Error(ErrorCode::kIo, "device litex: '" + name + "': " + failure.what +
                                    "; is the board connected, or `tessera litex --simulate` running?");
  }
  if (link->datagrams()) return std::make_unique<Opened<Etherbone>>(std::move(link));
  return std::make_unique<Opened<UartBone>>(std::move(link));
}

}  // namespace tessera::driver::litex
