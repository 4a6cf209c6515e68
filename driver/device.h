// SPDX-License-Identifier: Apache-2.0
// The one interface to every machine: functional simulator, SystemC model, RTL, FPGA. Device memory is addressed by
// 64-bit device addresses that allocate() hands out; host code never holds a pointer into it. A program is run to its
// end or to a fault; a fault is data in the report, because it says something about the program and not about the
// caller.
//
// Ownership: a Device owns its memory and its machine; both end with it. Allocations are released by free() or with the
// Device. Threads: all functions may be called from any thread; calls on one Device happen one after another (run()
// blocks the others). Different Devices are independent.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::driver {

inline constexpr uint64_t kDefaultAlignment = 4096;
inline constexpr size_t kUnits = isa::kEngines + 1;  // by isa::Unit

/// The program of one core of a chip.
struct CoreProgram {
  uint64_t program_address = 0;    // of the first instruction, a multiple of 64
  uint32_t instruction_count = 0;  // 0: the core has no program and does not start
};

struct RunRequest {
  uint64_t program_address = 0;  // of the first instruction, a multiple of 64; of core 0 where there are several
  uint32_t instruction_count = 0;
  std::vector<CoreProgram> others;   // of cores 1, 2, ...; those behind its end have no program
  std::array<uint64_t, 16> bases{};  // of every core

  // What a simulator can do beside running; a device that cannot throws Error kUnsupported.
  bool check_races = false;  // report accesses that no chain of signals orders
  bool check_allocations =
      false;  // an access outside a single live allocation is dram_range, not only one outside the heap
  std::optional<uint64_t> poison;  // fill the scratchpads from this seed first
  bool profile = false;            // one entry for each instruction in RunReport::profile; simulators get slower

  /// Called from time to time, on the thread of run(): whether the program still waits for its turn on a device that
  /// others use too, and how many instructions it has executed. Devices that do not know it never call it. It must not
  /// throw.
  std::function<void(bool waiting, uint64_t instructions)> progress;
};

/// What one unit did. Cycles are absent (0) in reports without RunReport::cycles.
struct UnitCounters {
  uint64_t executed = 0;                              // instructions completed
  uint64_t busy_cycles = 0;                           // issue cycles without fill
  std::array<uint64_t, isa::kEngines> wait_cycles{};  // the head of the queue waited on this engine's timeline
  uint64_t stall_memory_cycles = 0;
  uint64_t stall_port_cycles = 0;
};

/// Sums over a run. macs are those issued, padding of blocks included.
struct Counters {
  uint64_t instructions = 0;   // dispatched or executed by FETCH
  uint64_t bytes_read = 0;     // of DRAM, instructions included
  uint64_t bytes_written = 0;  // of DRAM
  uint64_t macs = 0;
  std::array<UnitCounters, kUnits> units{};

  Counters& operator+=(const Counters& other);
};

/// One completed instruction.
struct InstructionProfile {
  uint32_t pc = 0;
  isa::Unit unit = isa::Unit::kFetch;
  uint32_t core = 0;
  uint64_t macs = 0;           // GEMM
  uint64_t vectors = 0;        // ALU: source entries read
  uint64_t steps = 0;          // GEMM, ALU: cycles of work when nothing holds it up; FENCE has none
  uint64_t bytes_read = 0;     // LOAD, from DRAM
  uint64_t bytes_written = 0;  // STORE
  // Only of devices that know time, else 0. Cycles count from the start of the program.
  uint64_t queued_cycle = 0;      // FETCH put it into its engine's queue
  uint64_t start_cycle = 0;       // the engine took it
  uint64_t first_busy_cycle = 0;  // first tile, vector or beat; start_cycle when it has none
  uint64_t last_busy_cycle = 0;
  uint64_t end_cycle = 0;                             // completed: its writes are visible, its signal counts
  std::array<uint64_t, isa::kEngines> wait_cycles{};  // at the queue's head, by the engine waited for
  uint64_t stall_memory_cycles = 0;                   // while it was the oldest inside its engine
  uint64_t stall_port_cycles = 0;
};

/// One burst on the memory bus.
struct BurstProfile {
  isa::Unit unit = isa::Unit::kFetch;  // FETCH, LOAD or STORE
  bool write = false;
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint64_t address_cycle = 0;  // the address was accepted
  uint64_t first_cycle = 0;    // first beat
  uint64_t last_cycle = 0;     // last beat; of writes the response
  uint32_t core = 0;
};

/// Two accesses, one of them a write, that no chain of signals orders. Of two cores, that of the lower one is the
/// first.
struct RaceReport {
  uint32_t first_pc = 0;  // of one core: earlier in the stream
  isa::Unit first_unit = isa::Unit::kFetch;
  bool first_writes = false;
  uint32_t second_pc = 0;
  isa::Unit second_unit = isa::Unit::kFetch;
  bool second_writes = false;
  bool dram = false;
  isa::Space space = isa::Space::kInp;  // when not in DRAM
  uint64_t begin = 0;                   // bytes [begin, end) of the scratchpad, or device addresses
  uint64_t end = 0;
  uint32_t first_core = 0;
  uint32_t second_core = 0;
};

/// One line, e.g. "race on acc[0, 1024): instruction 3 (gemm, write) and 7 (alu, read)".
std::string describe(const RaceReport& race);

/// One line, e.g. "dram_range at instruction 12 (load)"; "none" without a fault.
std::string describe(const isa::FaultRecord& fault);

/// What one core of a chip did. A core without a program has a report of zeros.
struct CoreReport {
  isa::FaultRecord fault;
  Counters counters;
  std::optional<uint64_t> cycles;  // from the chip's start to this core's end
  /// In which a burst of this core waited for its turn on the shared bus; of devices that count it.
  std::optional<uint64_t> bus_wait_cycles;
};

struct RunReport {
  isa::FaultRecord fault;          // code kNone: FINISH was reached, by every core
  uint32_t fault_core = 0;         // whose `fault` is: the lowest core with another one than no_progress, else with one
  Counters counters;               // sums over the cores
  std::optional<uint64_t> cycles;  // to the last core's end; nothing from devices without time
  std::vector<CoreReport> cores;   // by number; empty on a machine of one core
  /// In which a chip's shared bus moved a beat, of other programs too; of devices that count it.
  std::optional<uint64_t> bus_busy_cycles;
  std::vector<InstructionProfile> profile;  // in the order of completion
  std::vector<BurstProfile> bursts;         // with `profile`, of devices that know time
  std::vector<RaceReport> races;
  bool ok() const { return fault.code == isa::Fault::kNone; }
};

/// A program of its own on some cores of a chip, beside what others run.
struct Job {
  uint64_t number = 0;          // the caller's name for it
  std::vector<uint32_t> cores;  // of the chip: core k of the request is number cores[k]. No two are equal
  RunRequest request;
};

/// A job that has ended. Cores are numbered as in its request, cycles count from its start.
struct JobEnd {
  uint64_t number = 0;
  RunReport report;
};

class Device;

/// A job that nothing runs beside. Errors: those of Device::run.
RunReport run_job(Device& device, const Job& job);

/// Takes what has ended and whether others still run; gives what begins now, on cores on which nothing runs. It may
/// wait, and time stands still on the machine meanwhile. It must not throw, and its jobs ask for no checks of accesses.
using JobSource = std::function<std::vector<Job>(std::vector<JobEnd> ended, bool running)>;

/// A run's fault in one line, on a chip with the core: "dram_range at instruction 12 (load) of core 1".
std::string describe_fault(const RunReport& report);

/// Fills fault, fault_core, counters and cycles of a chip's report from its `cores`.
void sum_cores(RunReport& report);

class Device {
 public:
  virtual ~Device() = default;

  virtual const isa::MachineConfig& config() const = 0;

  /// The machine that stands behind a device of another process, as its backend's name; empty when the device is what
  /// it was opened as.
  virtual std::string machine() const { return {}; }

  /// Whether run() can fill RunReport::profile.
  virtual bool can_profile() const { return false; }

  /// Reserves device memory. Units: bytes; `alignment` a power of two of at least 64. A size of 0 is a size of 1.
  /// Errors: kDoesNotFit when no hole is large enough (the message says what is free), kInvalidArgument for the
  /// alignment.
  virtual uint64_t allocate(uint64_t size_bytes, uint64_t alignment = kDefaultAlignment) = 0;

  /// Releases what allocate() returned. Errors: kInvalidArgument for any other address.
  virtual void free(uint64_t address) = 0;

  /// Copies to device memory. The range must lie inside one allocation, else Error kInvalidArgument.
  virtual void write(uint64_t address, std::span<const uint8_t> bytes) = 0;

  /// write() of bytes that stay as they are: programs and constants. A device elsewhere may have them already.
  virtual void place(uint64_t address, std::span<const uint8_t> bytes) { write(address, bytes); }

  /// Copies from device memory. The range must lie inside one allocation, else Error kInvalidArgument.
  virtual void read(uint64_t address, std::span<uint8_t> bytes) = 0;

  /// Copies inside device memory; the ranges do not overlap. Both must lie inside one allocation each, else Error
  /// kInvalidArgument.
  virtual void copy(uint64_t to, uint64_t from, uint64_t size_bytes);

  /// Runs a program to FINISH or to a fault, one on each core that has one, and returns when the machine is idle.
  /// Errors: kInvalidArgument for a program address that is no multiple of 64 and for more programs than the machine
  /// has cores, kUnsupported for a check the device lacks.
  virtual RunReport run(const RunRequest& request) = 0;

  /// Runs jobs until none runs and `source` gives none. It is called whenever a job has ended and, on devices on which
  /// jobs run at once (sysc, rtl), from time to time; other devices run one after another. Errors: as run(), which end
  /// all jobs.
  virtual void run_jobs(const JobSource& source);

  /// The numbers on their chip of the cores that this device has, which programs wait for; empty: 0, 1, ...
  virtual std::vector<uint32_t> cores() const { return {}; }

 protected:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
};

}  // namespace tessera::driver
