// SPDX-License-Identifier: Apache-2.0
// A system of hw/litex, on a board or simulated, as a Device: `litex:HOST:PORT`, `litex:udp:HOST:PORT` or
// `litex:/dev/ttyUSB0`. Options: baud (of a serial line), identity (the first digits of the bitstream's), timeout
// (seconds without a new instruction after which a program is ended; 0: none), memory_test (0: none).
//
// A device opens with a reset, so that nothing is left of another program. Then the host starts the DRAM by the list of
// writes that the system's description has, finds its delays if it is DDR3, and tests it.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <thread>

#include "base/error.h"
#include "driver/backends.h"
#include "driver/capabilities.h"
#include "driver/heap.h"
#include "driver/litex/description.h"
#include "driver/litex/leveling.h"
#include "driver/litex/window.h"
#include "driver/profile.h"
#include "isa/generated/registers.h"

namespace tessera::driver {
namespace {

using namespace litex;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr unsigned kBaud = 3000000;
constexpr size_t kTestWords = 256;

struct Settings {
  unsigned baud = kBaud;
  std::string identity;
  double timeout = 60;  // seconds
  bool memory_test = true;
};

double number_of(const std::string& name, const std::string& text, double most) {
  double value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0 && value <= most)) {
    throw Error(ErrorCode::kInvalidArgument, "option of device litex: " + name + " is a number from 0 to " +
                                                 std::to_string(static_cast<int64_t>(most)) + ", not '" + text + "'");
  }
  return value;
}

Settings settings_of(const DeviceOptions& options) {
  Settings settings;
  for (const auto& [name, value] : options.backend) {
    if (name == "baud") {
      settings.baud = static_cast<unsigned>(number_of(name, value, 4000000));
    } else if (name == "identity") {
      settings.identity = value;
    } else if (name == "timeout") {
      settings.timeout = number_of(name, value, 1e6);
    } else if (name == "memory_test") {
      settings.memory_test = number_of(name, value, 1) != 0;
    } else {
      throw Error(ErrorCode::kInvalidArgument,
                  "device litex has no option '" + name + "'; known: baud, identity, memory_test, timeout");
    }
  }
  if (options.heap_base != DeviceOptions{}.heap_base || options.heap_bytes != DeviceOptions{}.heap_bytes) {
    throw Error(ErrorCode::kUnsupported,
                "device litex places memory where the board has it; a base address cannot be chosen");
  }
  return settings;
}

std::vector<uint32_t> random_words(size_t count, uint64_t seed) {
  std::mt19937 random(static_cast<std::mt19937::result_type>(seed));
  std::vector<uint32_t> words(count);
  for (uint32_t& word : words) word = random();
  return words;
}

class LitexDevice final : public Device {
 public:
  LitexDevice(const isa::MachineConfig& config, const DeviceOptions& options, const std::string& name)
      : config_(config), name_(name), settings_(settings_of(options)), poison_(options.poison_allocations) {
    isa::validate(config);
    window_ = std::make_unique<Window>(open_bridge(name, settings_.baud), name);
    system_ = read_description(*window_, name);
    check_identity();
    if (system_.reset != 0) window_->reset(system_.reset, 1);
    check_machine("device litex", "on " + system_.board, config,
                  read_capabilities("device litex: the machine on " + system_.board, read_register(), remedy()),
                  remedy());
    start_memory();
    level_reads(*window_, system_, name);
    if (settings_.memory_test) test_memory();
    heap_.emplace(system_.memory, system_.memory_bytes);
  }

  const isa::MachineConfig& config() const override { return config_; }

  uint64_t allocate(uint64_t size_bytes, uint64_t alignment) override {
    const std::lock_guard lock(mutex_);
    const uint64_t address = heap_->allocate(size_bytes, alignment);
    if (poison_) {
      const size_t words = (std::max<uint64_t>(size_bytes, 1) + 3) / 4;
      window_->write(static_cast<uint32_t>(address), random_words(words, *poison_ + ++allocations_));
    }
    return address;
  }

  void free(uint64_t address) override {
    const std::lock_guard lock(mutex_);
    heap_->free(address);
    written_.erase(address);
  }

  /// The bus has words: those that are written in part are read first. What was written is compared by a checksum that
  /// the system makes of its memory.
  void write(uint64_t address, std::span<const uint8_t> bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes.empty()) return;
    require_allocated("write", address, bytes.size());
    const uint64_t first = address / 4 * 4, end = (address + bytes.size() + 3) / 4 * 4;
    std::vector<uint32_t> words((end - first) / 4);
    const auto at = [&](uint64_t n) { return static_cast<uint32_t>(first + 4 * n); };
    if (address != first) words.front() = window_->read(at(0));
    if (address + bytes.size() != end) words.back() = window_->read(at(words.size() - 1));
    std::memcpy(reinterpret_cast<uint8_t*>(words.data()) + (address - first), bytes.data(), bytes.size());
    window_->write(at(0), words);
    remember(address, bytes);
    if (window_->holds(at(0), words)) return;
    throw Error(ErrorCode::kIo, "device litex: '" + name_ + "': the board's DRAM does not keep what is written to " +
                                    std::to_string(words.size() * 4) + " bytes at " + std::to_string(first) +
                                    "; its timing or its solder is at fault");
  }

  void read(uint64_t address, std::span<uint8_t> bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes.empty()) return;
    require_allocated("read", address, bytes.size());
    const uint64_t first = address / 4 * 4, end = (address + bytes.size() + 3) / 4 * 4;
    std::vector<uint32_t> words((end - first) / 4);
    window_->read(static_cast<uint32_t>(first), words);
    std::memcpy(bytes.data(), reinterpret_cast<const uint8_t*>(words.data()) + (address - first), bytes.size());
  }

  RunReport run(const RunRequest& request) override {
    const std::lock_guard lock(mutex_);
    if (request.check_races || request.check_allocations || request.poison) {
      throw Error(ErrorCode::kUnsupported,
                  "device litex checks neither races nor allocations and cannot fill scratchpads; device fsim does");
    }
    if (request.program_address % isa::kInstructionBytes != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "program address " + std::to_string(request.program_address) + " is no multiple of 64");
    }
    prepare(request);
    window_->write(machine(isa::reg::kApCtrl), isa::reg::kApCtrlApStartMask);
    wait(request);
    RunReport report = read_records(records());
    const uint64_t gemm = report.counters.units[static_cast<size_t>(isa::Unit::kGemm)].executed;
    report.counters.macs = executed_macs(program(request), gemm, config_);
    return report;
  }

 private:
  static std::string remedy() {
    return "Load the bitstream of the program's configuration (./dev bitstream) or compile for the machine's";
  }

  uint32_t machine(uint32_t offset) const { return system_.machine + offset; }

  ReadRegister read_register() {
    return [this](uint32_t offset) { return window_->read(machine(offset)); };
  }

  void check_identity() const {
    const std::string found = system_.identity_text();
    if (found.starts_with(settings_.identity)) return;
    throw Error(ErrorCode::kUnsupported, "device litex: '" + name_ + "' has a bitstream of identity " + found + " (" +
                                             system_.config + " on " + system_.board + "), not " + settings_.identity +
                                             "; load the other one or leave out the option identity");
  }

  void start_memory() {
    for (const InitialWrite& write : system_.initialisation) {
      window_->write(write.address, write.value);
      const double seconds = static_cast<double>(write.wait_cycles) / system_.clock_hz;
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
  }

  /// Lines of data and of addresses, and a block at both ends and in the middle.
  void test_memory() {
    const uint32_t base = system_.memory, bytes = system_.memory_bytes;
    std::vector<uint32_t> words;
    for (int bit = 0; bit < 32; ++bit) words.push_back(1U << bit);
    for (int bit = 0; bit < 32; ++bit) words.push_back(~(1U << bit));
    test_block(base, words);
    std::vector<uint32_t> places;
    for (uint32_t offset = 4; offset < bytes; offset *= 2) places.push_back(base + offset);
    places.push_back(base);
    for (const uint32_t inverted : {0U, ~0U}) {
      for (const uint32_t place : places) window_->write(place, place ^ inverted);
      for (const uint32_t place : places) {
        if (window_->read(place) != (place ^ inverted)) fail_memory(place);
      }
    }
    for (const uint32_t block : {base, base + bytes / 2, base + bytes - uint32_t{4 * kTestWords}}) {
      test_block(block, random_words(kTestWords, block));
    }
  }

  void test_block(uint32_t address, const std::vector<uint32_t>& words) {
    std::vector<uint32_t> found(words.size());
    window_->write(address, words);
    window_->read(address, found);
    const auto [wrong, right] = std::mismatch(found.begin(), found.end(), words.begin());
    if (wrong != found.end()) fail_memory(address + static_cast<uint32_t>(4 * (wrong - found.begin())));
  }

  [[noreturn]] void fail_memory(uint32_t address) const {
    throw Error(ErrorCode::kIo, "device litex: '" + name_ + "': the DRAM of " + system_.board + " (" +
                                    system_.memory_name + ") fails its test at byte " +
                                    std::to_string(address - system_.memory) +
                                    "; try the bitstream at a lower clock, or another board");
  }

  void require_allocated(const char* what, uint64_t address, uint64_t size_bytes) const {
    if (heap_->contains(address, size_bytes)) return;
    throw Error(ErrorCode::kInvalidArgument, std::string(what) + " of " + std::to_string(size_bytes) +
                                                 " bytes at device address " + std::to_string(address) +
                                                 " is not inside one allocation");
  }

  /// All arguments of a run stand one behind the other; the window is what has been allocated.
  void prepare(const RunRequest& request) {
    static_assert(isa::reg::kWindowLast + 8 - isa::reg::kProgramAddress == 160);
    std::array<uint32_t, 40> words{};
    const auto put = [&](uint32_t offset, uint64_t value) {
      words.at((offset - isa::reg::kProgramAddress) / 4) = static_cast<uint32_t>(value);
      words.at((offset - isa::reg::kProgramAddress) / 4 + 1) = static_cast<uint32_t>(value >> 32);
    };
    put(isa::reg::kProgramAddress, request.program_address);
    put(isa::reg::kInstructionCount, request.instruction_count);
    for (int n = 0; n < isa::reg::kBaseCount; ++n) put(isa::reg::base(n), request.bases.at(static_cast<size_t>(n)));
    const auto& blocks = heap_->blocks();
    put(isa::reg::kWindowFirst, blocks.empty() ? 1 : blocks.begin()->first);
    put(isa::reg::kWindowLast, blocks.empty() ? 0 : blocks.rbegin()->first + blocks.rbegin()->second - 1);
    window_->write(machine(isa::reg::kProgramAddress), words);
  }

  /// Until the machine is idle. A program of which no instruction has been dispatched for too long is ended by a reset,
  /// which the device does not outlive.
  void wait(const RunRequest& request) {
    auto since = Clock::now();
    uint32_t dispatched = 0;
    for (auto pause = 200us; (window_->read(machine(isa::reg::kApCtrl)) & isa::reg::kApCtrlApIdleMask) == 0;
         pause = std::min<std::chrono::microseconds>(pause * 2, 20ms)) {
      std::this_thread::sleep_for(pause);
      if (const uint32_t now = window_->read(machine(isa::reg::kInstructions)); now != dispatched) {
        dispatched = now;
        since = Clock::now();
        if (request.progress) request.progress(false, dispatched);
      }
      if (settings_.timeout == 0 || Seconds(Clock::now() - since).count() < settings_.timeout) continue;
      if (system_.reset != 0) window_->reset(system_.reset, 1);
      throw Error(ErrorCode::kDeviceFault, "device litex: instruction " + std::to_string(dispatched) + " of " +
                                               std::to_string(request.instruction_count) + " has not ended after " +
                                               std::to_string(static_cast<int64_t>(settings_.timeout)) +
                                               " s; the system was reset, open the device again (the device option "
                                               "timeout=SECONDS allows more)");
    }
  }

  /// The registers behind the run, in two reads over the link.
  ReadRegister records() {
    constexpr uint32_t kFirst = isa::reg::kCycles,
                       kWords = (isa::reg::executed(isa::reg::kBusyCount - 1) + 8 - kFirst) / 4;
    std::vector<uint32_t> counters(kWords), fault(2);
    window_->read(machine(isa::reg::kFault), fault);
    window_->read(machine(kFirst), counters);
    return [counters, fault](uint32_t offset) {
      return offset >= kFirst ? counters.at((offset - kFirst) / 4) : fault.at((offset - isa::reg::kFault) / 4);
    };
  }

  /// Keeps what the host has written, for the work that stands in a program's words.
  void remember(uint64_t address, std::span<const uint8_t> bytes) {
    const auto block = std::prev(heap_->blocks().upper_bound(address));
    std::vector<uint8_t>& copy = written_[block->first];
    copy.resize(std::max<size_t>(copy.size(), address - block->first + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), copy.begin() + static_cast<ptrdiff_t>(address - block->first));
  }

  /// The program's instructions as far as the host has written them.
  std::vector<isa::Instruction> program(const RunRequest& request) const {
    auto block = written_.upper_bound(request.program_address);
    if (block == written_.begin()) return {};
    --block;
    const std::span<const uint8_t> bytes = block->second;
    const uint64_t offset = std::min<uint64_t>(request.program_address - block->first, bytes.size());
    const uint64_t size = uint64_t{request.instruction_count} * isa::kInstructionBytes;
    return decode_program(bytes.subspan(offset, std::min<uint64_t>(size, bytes.size() - offset)));
  }

  isa::MachineConfig config_;
  std::string name_;
  Settings settings_;
  std::optional<uint64_t> poison_;
  uint64_t allocations_ = 0;
  std::mutex mutex_;
  std::unique_ptr<Window> window_;
  Description system_;
  std::optional<Heap> heap_;
  std::map<uint64_t, std::vector<uint8_t>> written_;  // by the first byte of an allocation
};

}  // namespace

std::unique_ptr<Device> open_litex(const isa::MachineConfig& config, const DeviceOptions& options,
                                   const std::string& link) {
  return std::make_unique<LitexDevice>(config, options, link);
}

}  // namespace tessera::driver
