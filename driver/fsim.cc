// SPDX-License-Identifier: Apache-2.0
// The functional simulator as a Device. Device memory is one anonymous mapping of the host, so that a large heap costs
// only the pages that are touched.
#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <random>
#include <string>

#include "base/error.h"
#include "driver/backends.h"
#include "driver/heap.h"
#include "sim/functional/machine.h"

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

sim::Kernels chosen_kernels(const DeviceOptions& options) {
  sim::Kernels kernels = sim::default_kernels();
  for (const auto& [name, value] : options.backend) {
    if (name != "kernels") {
      throw Error(ErrorCode::kInvalidArgument, "device fsim has no option '" + name + "'; known: kernels");
    }
    kernels = sim::parse_kernels(value);
  }
  return kernels;
}

class FunctionalDevice final : public Device {
 public:
  FunctionalDevice(const isa::MachineConfig& config, const DeviceOptions& options)
      : options_(options),
        machine_(config, chosen_kernels(options)),
        heap_(options.heap_base, options.heap_bytes),
        memory_(heap_.size_bytes()) {}

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
    if (request.poison) machine_.poison(*request.poison);
    std::vector<sim::DramRegion> regions;
    if (request.check_allocations) {
      for (const auto& [address, size] : heap_.blocks()) regions.push_back({address, host(address), size});
    } else {
      regions.push_back({heap_.base(), memory_.data(), heap_.size_bytes()});
    }
    RunReport report;
    sim::RunRequest inner;
    inner.program_address = request.program_address;
    inner.instruction_count = request.instruction_count;
    inner.bases = request.bases;
    inner.dram = regions;
    inner.check_races = request.check_races;
    if (request.profile) {
      inner.observer = [&](const sim::Work& work) {
        report.profile.push_back(
            {work.pc, work.unit, work.macs, work.vectors, work.dram_read_bytes, work.dram_write_bytes});
      };
    }
    const sim::RunResult result = machine_.run(inner);
    report.fault = result.fault;
    fill(report.counters, result.counters);
    for (const sim::Race& race : result.races) {
      report.races.push_back({race.first.pc, race.first.unit, race.first.write, race.second.pc, race.second.unit,
                              race.second.write, race.dram, race.space, race.begin, race.end});
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

  static void fill(Counters& to, const sim::Counters& from) {
    to.instructions = from.fetch_bytes / isa::kInstructionBytes;
    to.bytes_read = from.dram_read_bytes + from.fetch_bytes;
    to.bytes_written = from.dram_write_bytes;
    to.macs = from.macs;
    for (size_t u = 0; u < kUnits; ++u) to.units[u].executed = from.instructions[u];
  }

  std::mutex mutex_;
  DeviceOptions options_;
  sim::Machine machine_;
  Heap heap_;
  HostMemory memory_;
  uint64_t allocations_ = 0;
};

}  // namespace

std::unique_ptr<Device> open_fsim(const isa::MachineConfig& config, const DeviceOptions& options) {
  return std::make_unique<FunctionalDevice>(config, options);
}

}  // namespace tessera::driver
