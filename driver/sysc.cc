// SPDX-License-Identifier: Apache-2.0
// The SystemC timing model as a Device: the functional simulator's results with the cycles that isa/timing.md derives
// for the RTL. Device memory is one anonymous mapping of the host. Options: latency (cycles of DRAM, default 100),
// bandwidth (bytes a cycle, default the width of the bus).
#include <sys/mman.h>

#include <charconv>
#include <cstring>
#include <mutex>
#include <random>
#include <string>

#include "base/error.h"
#include "driver/backends.h"
#include "driver/heap.h"
#include "driver/profile.h"
#include "sim/systemc/machine.h"

namespace tessera::driver {
namespace {

class HostMemory {
 public:
  explicit HostMemory(uint64_t size_bytes) : size_bytes_(size_bytes) {
    void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      throw Error(ErrorCode::kDoesNotFit,
                  "the host does not provide " + std::to_string(size_bytes) + " bytes of device memory");
    }
    data_ = static_cast<uint8_t*>(data);
  }
  ~HostMemory() { munmap(data_, size_bytes_); }
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint64_t size_bytes_;
  uint8_t* data_;
};

int number(const std::string& name, const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "option " + name + " of device sysc takes a positive number, not '" + text + "'");
  }
  return value;
}

sim::DramOptions chosen_dram(const isa::MachineConfig& config, const DeviceOptions& options) {
  sim::DramOptions dram;
  dram.beat_bytes = config.axi_bytes;
  for (const auto& [name, value] : options.backend) {
    if (name == "latency") {
      dram.latency_cycles = number(name, value);
    } else if (name == "bandwidth") {
      dram.bandwidth_bytes = number(name, value);
      if (dram.bandwidth_bytes > config.axi_bytes) {
        throw Error(ErrorCode::kInvalidArgument, "bandwidth is 1 to " + std::to_string(config.axi_bytes) +
                                                     " bytes a cycle, the width of the bus of '" + config.name +
                                                     "', not " + value);
      }
    } else {
      throw Error(ErrorCode::kInvalidArgument, "device sysc has no option '" + name + "'; known: latency, bandwidth");
    }
  }
  return dram;
}

class SystemcDevice final : public Device {
 public:
  SystemcDevice(const isa::MachineConfig& config, const DeviceOptions& options)
      : options_(options),
        machine_(config),
        heap_(options.heap_base, options.heap_bytes),
        memory_(heap_.size_bytes()),
        dram_(chosen_dram(config, options)) {}

  const isa::MachineConfig& config() const override { return machine_.config(); }
  bool can_profile() const override { return true; }

  uint64_t allocate(uint64_t size_bytes, uint64_t alignment) override {
    const std::lock_guard lock(mutex_);
    const uint64_t address = heap_.allocate(size_bytes, alignment);
    if (options_.poison_allocations) {
      std::mt19937_64 random(*options_.poison_allocations + ++allocations_);
      uint8_t* bytes = host(address);
      for (uint64_t n = 0; n < size_bytes; n += 8) {
        const uint64_t value = random();
        std::memcpy(bytes + n, &value, size_bytes - n < 8 ? size_bytes - n : 8);
      }
    }
    return address;
  }

  void free(uint64_t address) override {
    const std::lock_guard lock(mutex_);
    heap_.free(address);
  }

  void write(uint64_t address, std::span<const uint8_t> bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes.empty()) return;
    require_allocated("write", address, bytes.size());
    std::memcpy(host(address), bytes.data(), bytes.size());
  }

  void read(uint64_t address, std::span<uint8_t> bytes) override {
    const std::lock_guard lock(mutex_);
    if (bytes.empty()) return;
    require_allocated("read", address, bytes.size());
    std::memcpy(bytes.data(), host(address), bytes.size());
  }

  RunReport run(const RunRequest& request) override {
    const std::lock_guard lock(mutex_);
    if (request.program_address % isa::kInstructionBytes != 0) {
      throw Error(ErrorCode::kInvalidArgument,
                  "program address " + std::to_string(request.program_address) + " is no multiple of 64");
    }
    if (request.check_races || request.check_allocations) {
      throw Error(ErrorCode::kUnsupported, "device sysc checks neither races nor allocations; device fsim does");
    }
    if (request.poison) machine_.functional().poison(*request.poison);
    const sim::DramRegion region{heap_.base(), memory_.data(), heap_.size_bytes()};
    sim::Trace trace;
    sim::systemc::TimedRequest inner;
    inner.program_address = request.program_address;
    inner.instruction_count = request.instruction_count;
    inner.bases = request.bases;
    inner.window_first = heap_.base();
    inner.window_last = heap_.base() + heap_.size_bytes() - 1;
    inner.dram = {&region, 1};
    inner.timing = dram_;
    if (request.profile) inner.trace = &trace;
    const sim::systemc::TimedResult result = machine_.run(inner);
    RunReport report;
    report.fault = result.fault;
    report.cycles = result.cycles;
    report.counters.instructions = result.instructions;
    report.counters.bytes_read = result.bytes_read;
    report.counters.bytes_written = result.bytes_written;
    report.counters.macs = result.macs;
    for (size_t u = 0; u < kUnits; ++u) {
      const sim::systemc::UnitCounters& from = result.units[u];
      report.counters.units[u] = {from.executed, from.busy, from.wait, from.stall_memory, from.stall_port};
    }
    if (request.profile && result.instructions > 0) {
      const uint64_t offset = request.program_address - heap_.base();  // FETCH has read it: it lies inside
      const uint64_t bytes = result.instructions * isa::kInstructionBytes;
      fill_profile(report, trace, decode_program({memory_.data() + offset, bytes}), config());
    }
    return report;
  }

 private:
  uint8_t* host(uint64_t address) const { return memory_.data() + (address - heap_.base()); }

  void require_allocated(const char* what, uint64_t address, uint64_t size_bytes) const {
    if (heap_.contains(address, size_bytes)) return;
    throw Error(ErrorCode::kInvalidArgument, std::string(what) + " of " + std::to_string(size_bytes) +
                                                 " bytes at device address " + std::to_string(address) +
                                                 " is not inside one allocation");
  }

  std::mutex mutex_;
  DeviceOptions options_;
  sim::systemc::TimedMachine machine_;
  Heap heap_;
  HostMemory memory_;
  sim::DramOptions dram_;
  uint64_t allocations_ = 0;
};

}  // namespace

std::unique_ptr<Device> open_sysc(const isa::MachineConfig& config, const DeviceOptions& options) {
  return std::make_unique<SystemcDevice>(config, options);
}

}  // namespace tessera::driver
