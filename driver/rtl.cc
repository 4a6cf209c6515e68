// SPDX-License-Identifier: Apache-2.0
// The Verilated RTL as a Device: exact results and exact cycles. A configuration that this build has not verilated is
// made when the device is opened (sim/verilator/build.h). Device memory is one anonymous mapping of the host behind the
// model of DRAM. Options: latency (cycles of DRAM, default 100), bandwidth (bytes a cycle, default the width of the
// bus), pressure (per cent of moments at which DRAM refuses, default 0), seed (of pressure), waves (an FST file).
#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <mutex>
#include <random>
#include <string>

#include "base/error.h"
#include "driver/backends.h"
#include "driver/heap.h"
#include "driver/profile.h"
#include "sim/memory/dram_model.h"
#include "sim/verilator/machine.h"

namespace tessera::driver {
namespace {

class HostMapping {
 public:
  explicit HostMapping(uint64_t size_bytes) : size_bytes_(size_bytes) {
    void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      throw Error(ErrorCode::kDoesNotFit,
                  "the host does not provide " + std::to_string(size_bytes) + " bytes of device memory");
    }
    data_ = static_cast<uint8_t*>(data);
  }
  ~HostMapping() { munmap(data_, size_bytes_); }
  HostMapping(const HostMapping&) = delete;
  HostMapping& operator=(const HostMapping&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint64_t size_bytes_;
  uint8_t* data_;
};

int number(const std::string& name, const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw Error(ErrorCode::kInvalidArgument, "option " + name + " of device rtl takes a number, not '" + text + "'");
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
      if (dram.bandwidth_bytes < 1 || dram.bandwidth_bytes > config.axi_bytes) {
        throw Error(ErrorCode::kInvalidArgument, "bandwidth is 1 to " + std::to_string(config.axi_bytes) +
                                                     " bytes a cycle, the width of the bus of '" + config.name +
                                                     "', not " + value);
      }
    } else if (name == "pressure") {
      dram.pressure_percent = number(name, value);
    } else if (name == "seed") {
      dram.seed = static_cast<uint64_t>(number(name, value));
    } else if (name != "waves") {
      throw Error(ErrorCode::kInvalidArgument,
                  "device rtl has no option '" + name + "'; known: latency, bandwidth, pressure, seed, waves");
    }
  }
  return dram;
}

sim::RtlOptions chosen_rtl(const DeviceOptions& options) {
  sim::RtlOptions rtl;
  const auto waves = options.backend.find("waves");
  if (waves != options.backend.end()) rtl.waves = waves->second;
  return rtl;
}

class RtlDevice final : public Device {
 public:
  RtlDevice(const isa::MachineConfig& config, const DeviceOptions& options)
      : options_(options),
        heap_(options.heap_base, options.heap_bytes),
        memory_(heap_.size_bytes()),
        dram_(chosen_dram(config, options), heap_.base(), memory_.data(), heap_.size_bytes()),
        machine_(sim::make_rtl(config, chosen_rtl(options))) {}  // last: it may take a minute

  const isa::MachineConfig& config() const override { return machine_->config(); }
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
      throw Error(ErrorCode::kUnsupported, "device rtl checks neither races nor allocations; device fsim does");
    }
    if (request.poison) {
      std::mt19937_64 random(*request.poison);
      for (int s = 0; s < isa::kSpaces; ++s) {
        const auto space = static_cast<isa::Space>(s);
        std::vector<uint8_t> bytes(static_cast<size_t>(config().space_bytes(space)));
        for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
        machine_->write_scratchpad(space, 0, bytes);
      }
    }
    sim::RtlRequest inner;
    inner.program_address = request.program_address;
    inner.instruction_count = request.instruction_count;
    inner.bases = request.bases;
    inner.window_first = heap_.base();
    inner.window_last = heap_.base() + heap_.size_bytes() - 1;
    const std::vector<isa::Instruction> program = program_of(request);
    if (request.profile) inner.trace_program = program;
    const sim::RtlResult result = machine_->run(inner, dram_);
    RunReport report;
    if (request.profile) fill_profile(report, result.trace, program, config());
    report.fault = result.fault;
    report.cycles = result.cycles;
    report.counters.instructions = result.instructions;
    report.counters.bytes_read = result.bytes_read;
    report.counters.bytes_written = result.bytes_written;
    report.counters.macs =
        executed_macs(program, result.units[static_cast<size_t>(isa::Unit::kGemm)].executed, config());
    for (size_t u = 0; u < kUnits; ++u) {
      const sim::RtlUnitCounters& from = result.units[u];
      report.counters.units[u] = {from.executed, from.busy, from.wait, from.stall_memory, from.stall_port};
    }
    return report;
  }

 private:
  uint8_t* host(uint64_t address) const { return memory_.data() + (address - heap_.base()); }

  /// The program's words as far as they lie in memory.
  std::vector<isa::Instruction> program_of(const RunRequest& request) const {
    const uint64_t offset = request.program_address - heap_.base();
    if (request.program_address < heap_.base() || offset >= heap_.size_bytes()) return {};
    const uint64_t bytes =
        std::min(uint64_t{request.instruction_count} * isa::kInstructionBytes, heap_.size_bytes() - offset);
    return decode_program({memory_.data() + offset, bytes});
  }

  void require_allocated(const char* what, uint64_t address, uint64_t size_bytes) const {
    if (heap_.contains(address, size_bytes)) return;
    throw Error(ErrorCode::kInvalidArgument, std::string(what) + " of " + std::to_string(size_bytes) +
                                                 " bytes at device address " + std::to_string(address) +
                                                 " is not inside one allocation");
  }

  std::mutex mutex_;
  DeviceOptions options_;
  Heap heap_;
  HostMapping memory_;
  sim::DramModel dram_;
  std::unique_ptr<sim::RtlMachine> machine_;
  uint64_t allocations_ = 0;
};

}  // namespace

std::unique_ptr<Device> open_rtl(const isa::MachineConfig& config, const DeviceOptions& options) {
  return std::make_unique<RtlDevice>(config, options);
}

}  // namespace tessera::driver
