// SPDX-License-Identifier: Apache-2.0
// What every simulator's backend shares: device memory as one anonymous mapping of the host, so that a large heap costs
// only the pages that are touched, and the options of the memory behind machines with time.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

#include "driver/device.h"
#include "driver/heap.h"
#include "driver/registry.h"
#include "sim/memory/dram_model.h"

namespace tessera::driver {

/// A Device whose memory the host holds; the backend adds the machine.
class SimulatedDevice : public Device {
 public:
  ~SimulatedDevice() override;
  bool can_profile() const override { return true; }
  uint64_t allocate(uint64_t size_bytes, uint64_t alignment) override;
  void free(uint64_t address) override;
  void write(uint64_t address, std::span<const uint8_t> bytes) override;
  void read(uint64_t address, std::span<uint8_t> bytes) override;
  void copy(uint64_t to, uint64_t from, uint64_t size_bytes) override;
  RunReport run(const RunRequest& request) override;
  /// Memory may be used while jobs run.
  void run_jobs(const JobSource& source) override;

 protected:
  /// Throws Error kDoesNotFit when the host provides no such range.
  explicit SimulatedDevice(const DeviceOptions& options);

  /// run() under the lock, its program address checked.
  virtual RunReport execute(const RunRequest& request) = 0;

  /// run_jobs() beside which no other program runs; jobs are checked as requests are.
  virtual void execute_jobs(const JobSource& source) { Device::run_jobs(source); }

  const Heap& heap() const { return heap_; }
  uint8_t* host(uint64_t address) const { return memory_ + (address - heap_.base()); }
  /// The words of a program as far as they lie in memory.
  std::span<const uint8_t> program_words(const CoreProgram& program) const;

 private:
  void require_allocated(const char* what, uint64_t address, uint64_t size_bytes) const;

  std::recursive_mutex runs_;  // held while programs run, before the other
  std::mutex mutex_;           // of the heap
  std::optional<uint64_t> poison_;
  uint64_t allocations_ = 0;
  Heap heap_;
  uint8_t* memory_ = nullptr;
};

/// Options `latency`, `bandwidth`, `dram` of the devices with time; `pressure` and `seed` where `random_pressure`.
/// Other names must be in `others`. Errors: kInvalidArgument for an unknown option or a value out of range, naming what
/// is known.
sim::DramOptions dram_options(std::string_view device, const isa::MachineConfig& config, const DeviceOptions& options,
                              bool random_pressure, std::span<const std::string_view> others);

/// Errors: kUnsupported when the request asks for checks of a machine without them.
void refuse_checks(std::string_view device, const RunRequest& request);

/// The counters of a machine with time, whatever its type calls the same fields: of a run, or of one core.
template <typename Report, typename Result>
void fill_timed(Report& report, const Result& result, uint64_t macs) {
  report.fault = result.fault;
  report.cycles = result.cycles;
  report.counters.instructions = result.instructions;
  report.counters.bytes_read = result.bytes_read;
  report.counters.bytes_written = result.bytes_written;
  report.counters.macs = macs;
  for (size_t u = 0; u < kUnits; ++u) {
    const auto& from = result.units[u];
    report.counters.units[u] = {from.executed, from.busy, from.wait, from.stall_memory, from.stall_port};
  }
}

}  // namespace tessera::driver
