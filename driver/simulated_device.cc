// SPDX-License-Identifier: Apache-2.0
// Memory of simulated devices, and the options of DRAM.
#include "driver/simulated_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>

#include "base/error.h"

namespace tessera::driver {

SimulatedDevice::SimulatedDevice(const DeviceOptions& options)
    : poison_(options.poison_allocations), heap_(options.heap_base, options.heap_bytes) {
  void* data =
      mmap(nullptr, heap_.size_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    throw Error(ErrorCode::kDoesNotFit,
                "the host does not provide " + std::to_string(heap_.size_bytes()) + " bytes of device memory");
  }
  memory_ = static_cast<uint8_t*>(data);
}

SimulatedDevice::~SimulatedDevice() { munmap(memory_, heap_.size_bytes()); }

uint64_t SimulatedDevice::allocate(uint64_t size_bytes, uint64_t alignment) {
  const std::lock_guard lock(mutex_);
  const uint64_t address = heap_.allocate(size_bytes, alignment);
  if (poison_) {
    std::mt19937_64 random(*poison_ + ++allocations_);
    uint8_t* bytes = host(address);
    for (uint64_t n = 0; n < size_bytes; n += 8) {
      const uint64_t value = random();
      std::memcpy(bytes + n, &value, size_bytes - n < 8 ? size_bytes - n : 8);
    }
  }
  return address;
}

void SimulatedDevice::free(uint64_t address) {
  const std::lock_guard lock(mutex_);
  heap_.free(address);
}

void SimulatedDevice::write(uint64_t address, std::span<const uint8_t> bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes.empty()) return;
  require_allocated("write", address, bytes.size());
  std::memcpy(host(address), bytes.data(), bytes.size());
}

void SimulatedDevice::read(uint64_t address, std::span<uint8_t> bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes.empty()) return;
  require_allocated("read", address, bytes.size());
  std::memcpy(bytes.data(), host(address), bytes.size());
}

void SimulatedDevice::copy(uint64_t to, uint64_t from, uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  if (size_bytes == 0) return;
  require_allocated("copy from", from, size_bytes);
  require_allocated("copy to", to, size_bytes);
  std::memmove(host(to), host(from), size_bytes);
}

namespace {

void check_others(const RunRequest& request, const isa::MachineConfig& config) {
  if (request.others.size() >= static_cast<size_t>(config.cores)) {
    throw Error(ErrorCode::kInvalidArgument, "programs for " + std::to_string(request.others.size() + 1) +
                                                 " cores; configuration '" + config.name + "' has " +
                                                 std::to_string(config.cores));
  }
  for (size_t k = 0; k < request.others.size(); ++k) {
    if (request.others[k].program_address % isa::kInstructionBytes == 0) continue;
    throw Error(ErrorCode::kInvalidArgument, "program address " + std::to_string(request.others[k].program_address) +
                                                 " of core " + std::to_string(k + 1) + " is no multiple of 64");
  }
}

}  // namespace

void SimulatedDevice::run_jobs(const JobSource& source) {
  const std::lock_guard lock(runs_);
  execute_jobs(source);
}

RunReport SimulatedDevice::run(const RunRequest& request) {
  const std::scoped_lock lock(runs_, mutex_);
  if (request.program_address % isa::kInstructionBytes != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "program address " + std::to_string(request.program_address) + " is no multiple of 64");
  }
  check_others(request, config());
  return execute(request);
}

std::span<const uint8_t> SimulatedDevice::program_words(const CoreProgram& program) const {
  const uint64_t offset = program.program_address - heap_.base();
  if (program.program_address < heap_.base() || offset >= heap_.size_bytes()) return {};
  const uint64_t bytes = uint64_t{program.instruction_count} * isa::kInstructionBytes;
  return {memory_ + offset, std::min(bytes, heap_.size_bytes() - offset)};
}

void SimulatedDevice::require_allocated(const char* what, uint64_t address, uint64_t size_bytes) const {
  if (heap_.contains(address, size_bytes)) return;
  throw Error(ErrorCode::kInvalidArgument, std::string(what) + " of " + std::to_string(size_bytes) +
                                               " bytes at device address " + std::to_string(address) +
                                               " is not inside one allocation");
}

sim::DramOptions dram_options(std::string_view device, const isa::MachineConfig& config, const DeviceOptions& options,
                              bool random_pressure, std::span<const std::string_view> others) {
  const std::string who = "option of device " + std::string(device) + ": ";
  const auto number = [&](const std::string& name, const std::string& text, int low, int high) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < low || value > high) {
      throw Error(ErrorCode::kInvalidArgument,
                  who + name + " is a number from " + std::to_string(low) +
                      (high == INT32_MAX ? std::string() : " to " + std::to_string(high)) + ", not '" + text + "'" +
                      (name == "bandwidth" ? " (bytes a cycle; the bus of '" + config.name + "' is " +
                                                 std::to_string(config.memory_bytes()) + " wide)"
                                           : ""));
    }
    return value;
  };
  sim::DramOptions dram;
  dram.beat_bytes = config.memory_bytes();
  for (const auto& [name, value] : options.backend) {
    if (name == "latency") {
      dram.latency_cycles = number(name, value, 1, isa::kMostLatencyCycles);
    } else if (name == "bandwidth") {
      dram.bandwidth_bytes = number(name, value, 1, config.memory_bytes());
    } else if (name == "dram") {
      if (value != "ideal") dram.spec = isa::dram_preset(value);
    } else if (random_pressure && name == "pressure") {
      dram.pressure_percent = number(name, value, 0, 99);
    } else if (random_pressure && name == "seed") {
      dram.seed = static_cast<uint64_t>(number(name, value, 0, INT32_MAX));
    } else if (std::find(others.begin(), others.end(), name) == others.end()) {
      std::string known = random_pressure ? "latency, bandwidth, dram, pressure, seed" : "latency, bandwidth, dram";
      for (const std::string_view other : others) known += ", " + std::string(other);
      throw Error(ErrorCode::kInvalidArgument,
                  "device " + std::string(device) + " has no option '" + name + "'; known: " + known);
    }
  }
  for (const char* name : {"latency", "bandwidth"}) {
    if (dram.spec && options.backend.contains(name)) {
      throw Error(ErrorCode::kInvalidArgument, who + name + " is that of the ideal DRAM; dram '" + dram.spec->name +
                                                   "' has its own, so give one of the two");
    }
  }
  return dram;
}

void refuse_checks(std::string_view device, const RunRequest& request) {
  if (!request.check_races && !request.check_allocations) return;
  throw Error(ErrorCode::kUnsupported,
              "device " + std::string(device) + " checks neither races nor allocations; device fsim does");
}

}  // namespace tessera::driver
