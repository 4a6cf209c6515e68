// SPDX-License-Identifier: Apache-2.0
// One thread: bytes in, the bridge's state machine, bytes out.
#include "driver/litex/tests/stand_in.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "driver/litex/bridge.h"
#include "driver/litex/window.h"
#include "isa/generated/registers.h"
#include "sim/functional/machine.h"

namespace tessera::driver::test {
namespace {

constexpr uint32_t kMachine = 0x90000000, kDescription = 0x91000000, kReset = 0xF0000000, kControl = 0xF0001000,
                   kPhy = 0xF0002000;
constexpr uint32_t kDone = 0x80000001, kBusError = 0x80000002;

uint32_t big(const uint8_t* at) { return uint32_t{at[0]} << 24 | uint32_t{at[1]} << 16 | uint32_t{at[2]} << 8 | at[3]; }

}  // namespace

StandIn::StandIn(StandInOptions options)
    : options_(std::move(options)), break_one_in_(options_.break_one_in), random_(options_.seed) {
  description_ = description();
  memory_.assign(kMemoryBytes / 4, 0);
  clear();
  server_ = socket(AF_INET, (options_.etherbone ? SOCK_DGRAM : SOCK_STREAM) | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(server_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      (!options_.etherbone && listen(server_, 1) != 0)) {
    throw std::runtime_error("no port");
  }
  getsockname(server_, reinterpret_cast<sockaddr*>(&address), &size);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { serve(); });
}

StandIn::~StandIn() {
  stopped_ = true;
  thread_.join();
  if (client_ >= 0) close(client_);
  close(server_);
}

std::string StandIn::device() const {
  return std::string(options_.etherbone ? "litex:udp:" : "litex:") + "127.0.0.1:" + std::to_string(port_);
}

/// What a reset leaves; DRAM keeps its bytes, but its controller must be started again.
void StandIn::clear() {
  last_ = 0;
  memory_started_ = false;
  registers_.clear();
  registers_[isa::reg::kApCtrl] = isa::reg::kApCtrlApIdleMask;
}

std::vector<uint32_t> StandIn::description() const {
  if (!options_.describes) return {};
  std::vector<uint32_t> body = {50000000, kMemory, kMemoryBytes, kMachine, kReset};
  for (uint32_t n = 0; n < 8; ++n) body.push_back(0x03020100 + 0x04040404 * n);
  body.insert(body.end(), {2, kControl, 14, 100, kControl, 1, 0});
  body.push_back(options_.levels ? 10 : 0);
  if (options_.levels) body.insert(body.end(), {2, 4, 8});
  for (uint32_t n = 0; n < 7 && options_.levels; ++n) body.push_back(kPhy + 4 * n);
  for (const std::string& text :
       {std::string("stand-in"), options_.config.name, std::string("SDR"), std::string("-")}) {
    body.push_back(static_cast<uint32_t>(text.size()));
    for (size_t n = 0; n < text.size(); n += 4) {
      uint32_t word = 0;
      std::memcpy(&word, text.data() + n, std::min<size_t>(4, text.size() - n));
      body.push_back(word);
    }
  }
  std::vector<uint32_t> words = {0x31584C54, static_cast<uint32_t>(3 + body.size()), litex::crc32(body)};
  words.insert(words.end(), body.begin(), body.end());
  return words;
}

void StandIn::serve() {
  std::array<uint8_t, 4096> bytes{};
  while (!stopped_) {
    if (wants_reset_.exchange(false)) clear();
    if (wants_hang_up_.exchange(false) && client_ >= 0) {
      close(client_);
      client_ = -1;
    }
    pollfd watched = {client_ < 0 ? server_ : client_, POLLIN, 0};
    if (poll(&watched, 1, 2) <= 0) continue;
    if (options_.etherbone) {
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const ssize_t got = recvfrom(server_, bytes.data(), bytes.size(), 0, reinterpret_cast<sockaddr*>(&from), &size);
      if (got <= 0) continue;
      out_.clear();
      serve_datagram({bytes.begin(), bytes.begin() + got});
      if (!out_.empty()) sendto(server_, out_.data(), out_.size(), 0, reinterpret_cast<sockaddr*>(&from), size);
      continue;
    }
    if (client_ < 0) {
      client_ = accept4(server_, nullptr, nullptr, SOCK_CLOEXEC);
      const int one = 1;
      setsockopt(client_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      continue;
    }
    const ssize_t got = recv(client_, bytes.data(), bytes.size(), 0);
    if (got <= 0) {
      close(client_);
      client_ = -1;
      continue;
    }
    std::vector<uint8_t> in;
    for (ssize_t n = 0; n < got; ++n) pass(bytes[static_cast<size_t>(n)], in);
    out_.clear();
    for (const uint8_t byte : in) take(byte);
    if (!out_.empty()) send(client_, out_.data(), out_.size(), MSG_NOSIGNAL);
  }
}

/// A record of writes or one of reads.
void StandIn::serve_datagram(std::vector<uint8_t> packet) {
  if (break_one_in_ != 0 && random_() % break_one_in_ < packet.size()) {  // the packet is lost, or comes twice
    ++broken_;
    if (random_() % 2 == 0) return;
  }
  const uint32_t writes = packet[10], reads = packet[11], first = big(&packet[12]);
  for (uint32_t n = 0; n < writes; ++n) bridge_write(first + 4 * n, big(&packet[16 + 4 * n]));
  if (reads == 0) return;
  out_ = {0x4E, 0x6F, 0x10, 0x44, 0, 0, 0, 0, 0, 0x0F, static_cast<uint8_t>(reads), 0};
  out_.insert(out_.end(), packet.begin() + 12, packet.begin() + 16);
  for (uint32_t n = 0; n < reads; ++n) {
    const uint32_t word = bridge_read(big(&packet[16 + 4 * n]));
    for (const int shift : {24, 16, 8, 0}) out_.push_back(static_cast<uint8_t>(word >> shift));
  }
}

/// A bit flips, or the byte is lost, or comes twice, or another one comes before it.
void StandIn::pass(uint8_t byte, std::vector<uint8_t>& to) {
  if (break_one_in_ == 0 || random_() % break_one_in_ != 0) {
    to.push_back(byte);
    return;
  }
  ++broken_;
  switch (random_() % 4) {
    case 0: to.push_back(static_cast<uint8_t>(byte ^ (1U << (random_() % 8)))); break;
    case 1: break;
    case 2: to.insert(to.end(), 2, byte); break;
    default: to.insert(to.end(), {static_cast<uint8_t>(random_()), byte});
  }
}

/// UARTBone: a command, a count, an address, and the words of a write.
void StandIn::take(uint8_t byte) {
  command_.push_back(byte);
  if (command_.size() < 6) return;
  const uint8_t code = command_[0];
  const uint32_t count = command_[1] == 0 ? 300 : command_[1];  // 0: LiteX goes on until its patience ends
  if (command_.size() == 6) address_ = 4 * big(&command_[2]);
  if (code == 2 || code == 4) {
    for (uint32_t n = 0; n < count; ++n) answer(bridge_read(address_ + (code == 2 ? 4 * n : 0)));
  } else if (code == 1 || code == 3) {
    if (command_.size() % 4 != 2 || command_.size() == 6) return;
    const uint32_t n = static_cast<uint32_t>(command_.size() - 10) / 4;
    bridge_write(address_ + (code == 1 ? 4 * n : 0), big(&command_[command_.size() - 4]));
    if (n + 1 < count) return;
  }
  command_.clear();
}

void StandIn::answer(uint32_t word) {
  for (const int shift : {24, 16, 8, 0}) pass(static_cast<uint8_t>(word >> shift), out_);
}

void StandIn::bridge_write(uint32_t address, uint32_t word) {
  if (address >> 13 != litex::kWindow >> 13) return;
  if ((address & 0x1000) != 0) {
    commit();
  } else {
    buffer_.at(address / 4 % 1024) = word;
  }
}

uint32_t StandIn::bridge_read(uint32_t address) {
  if (address >> 13 != litex::kWindow >> 13) return bus_read(address);
  if ((address & 0x1000) == 0) return buffer_.at(address / 4 % 1024);
  const uint32_t number = address / 4 & 0xFF;
  if (number == 0) return litex::kWindowMagic;
  return number == 1 ? last_ : number << 24 | (litex::kWindowMagic & 0xFFFFFF);
}

void StandIn::commit() {
  const uint32_t operation = buffer_[1], address = buffer_[2], count = buffer_[3];
  if (operation < 1 || operation > 3 || (operation != 3 && count > 1019)) return;
  const uint32_t total = 4 + (operation == 1 ? count : 0);
  if (litex::crc32(std::span(buffer_).first(total)) != buffer_.at(total)) return;
  const uint32_t number = buffer_[0];
  if (number != last_ + 1 && number != last_) return;
  const bool again = number == last_;
  last_ = number;
  uint32_t crc = 0;
  for (uint32_t n = 0; n < count && operation != 1; ++n) {
    const uint32_t word = bus_read(address + 4 * n);
    crc = litex::crc32(std::span(&word, 1), crc);
    if (operation == 2) buffer_.at(4 + n) = word;
  }
  for (uint32_t n = 0; n < count && operation == 1 && !again; ++n) bus_write(address + 4 * n, buffer_.at(4 + n));
  if (operation == 3) {
    buffer_[4] = crc;
    crc = litex::crc32(std::span(&crc, 1));
  }
  buffer_[1] = address >= 0xE0000000 && address < 0xF0000000 ? kBusError : kDone;
  buffer_[2] = litex::crc32(std::span(buffer_).first(2), crc);
}

uint32_t StandIn::bus_read(uint32_t address) {
  if (address - kMemory < kMemoryBytes) {
    const uint32_t word = memory_.at((address - kMemory) / 4);
    if (!memory_started_) return ~word;
    return leveled(address == options_.stuck_address && address != 0 ? word | 0x100 : word);
  }
  if (address == kPhy + 24) return 3;
  if (address - kDescription < 2048) {
    const uint32_t at = (address - kDescription) / 4;
    return at < description_.size() ? description_[at] : 0;
  }
  if (address - kMachine >= 0x1000) return 0;
  const uint32_t offset = address - kMachine;
  if (offset == isa::reg::kMagic) return isa::reg::kMagicReset;
  if (offset == isa::reg::kIsaVersion) return options_.isa_version != 0 ? options_.isa_version : isa::kIsaVersion;
  for (const isa::reg::Register& reg : isa::reg::kRegisters) {
    if (reg.offset != offset || reg.parameter.empty()) continue;
    for (const isa::ConfigKey& key : isa::config_keys()) {
      if (key.name == reg.parameter) return static_cast<uint32_t>(key.get(options_.config));
    }
  }
  return registers_[offset];
}

void StandIn::bus_write(uint32_t address, uint32_t word) {
  if (address - kMemory < kMemoryBytes) memory_.at((address - kMemory) / 4) = word;
  if (address == kControl) memory_started_ = word == 1;
  if (address == kReset && word == 1) clear();
  if (address - kPhy < 32) level(address - kPhy, word);
  if (address - kMachine >= 0x1000) return;
  registers_[address - kMachine] = word;
  if (address == kMachine + isa::reg::kApCtrl && (word & 1) != 0) start();
}

/// Lane n reads right at slip n + 1.
uint32_t StandIn::leveled(uint32_t word) const {
  for (uint32_t lane = 0; lane < 2 && options_.levels; ++lane) {
    const Lane& at = lanes_.at(lane);
    if (at.bitslip == lane + 1 && at.delay >= options_.worst_delay && at.delay < 6) continue;
    word ^= 0x00010001U << (8 * lane);
  }
  return word;
}

void StandIn::level(uint32_t offset, uint32_t word) {
  if (offset == 0) selected_ = word;
  for (uint32_t lane = 0; lane < 2; ++lane) {
    if ((selected_ >> lane & 1) == 0) continue;
    Lane& at = lanes_.at(lane);
    if (offset == 4) at.delay = 0;
    if (offset == 8) at.delay = (at.delay + 1) % 8;
    if (offset == 12) at.bitslip = 0;
    if (offset == 16) at.bitslip = (at.bitslip + 1) % 4;
  }
}

void StandIn::start() {
  ++starts_;
  registers_[isa::reg::kApCtrl] = options_.hangs ? 0 : isa::reg::kApCtrlApIdleMask;
  if (options_.hangs) return;
  const auto wide = [&](uint32_t offset) {
    return uint64_t{registers_[offset]} | uint64_t{registers_[offset + 4]} << 32;
  };
  sim::Machine machine(options_.config);
  const uint64_t first = wide(isa::reg::kWindowFirst), last = wide(isa::reg::kWindowLast);
  const std::array<sim::DramRegion, 1> dram = {
      sim::DramRegion{first, reinterpret_cast<uint8_t*>(memory_.data()) + (first - kMemory), last + 1 - first}};
  sim::RunRequest request;
  request.program_address = wide(isa::reg::kProgramAddress);
  request.instruction_count = registers_[isa::reg::kInstructionCount];
  for (int n = 0; n < 16; ++n) request.bases.at(static_cast<size_t>(n)) = wide(isa::reg::base(n));
  request.dram = dram;
  const sim::RunResult result = machine.run(request);
  registers_[isa::reg::kFault] = static_cast<uint32_t>(result.fault.code) << isa::reg::kFaultCodeLsb |
                                 static_cast<uint32_t>(result.fault.unit) << isa::reg::kFaultUnitLsb;
  registers_[isa::reg::kFaultPc] = result.fault.pc;
  registers_[isa::reg::kCycles] = 1234;
}

}  // namespace tessera::driver::test
