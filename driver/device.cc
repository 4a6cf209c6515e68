// SPDX-License-Identifier: Apache-2.0
// Texts of reports.
#include "driver/device.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace tessera::driver {

std::string describe(const RaceReport& race) {
  const bool cores = race.first_core != race.second_core || race.first_core != 0;
  const auto access = [&](uint32_t core, uint32_t pc, isa::Unit unit, bool writes) {
    return std::to_string(pc) + (cores ? " of core " + std::to_string(core) : "") + " (" +
           std::string(isa::to_string(unit)) + (writes ? ", write)" : ", read)");
  };
  return "race on " + std::string(race.dram ? "dram" : isa::to_string(race.space)) + "[" + std::to_string(race.begin) +
         ", " + std::to_string(race.end) + "): instruction " +
         access(race.first_core, race.first_pc, race.first_unit, race.first_writes) + " and " +
         access(race.second_core, race.second_pc, race.second_unit, race.second_writes);
}

std::string describe(const isa::FaultRecord& fault) {
  if (fault.code == isa::Fault::kNone) return "none";
  return std::string(isa::to_string(fault.code)) + " at instruction " + std::to_string(fault.pc) + " (" +
         std::string(isa::to_string(fault.unit)) + ")" +
         (fault.code == isa::Fault::kMemoryParity ? ", a bit of an on-chip memory has turned over: run it again" : "");
}

std::string describe_fault(const RunReport& report) {
  return describe(report.fault) +
         (report.ok() || report.cores.empty() ? "" : " of core " + std::to_string(report.fault_core));
}

/// The fault of the whole run, the sums of the counters and the last end, out of the reports of the cores.
void sum_cores(RunReport& report) {
  for (uint32_t k = 0; k < report.cores.size(); ++k) {
    const CoreReport& core = report.cores[k];
    report.counters += core.counters;
    if (core.cycles) report.cycles = std::max(report.cycles.value_or(0), *core.cycles);
    if (core.fault.code == isa::Fault::kNone) continue;
    const bool first = report.fault.code == isa::Fault::kNone;
    const bool cause = report.fault.code == isa::Fault::kNoProgress && core.fault.code != isa::Fault::kNoProgress;
    if (!first && !cause) continue;
    report.fault = core.fault;
    report.fault_core = k;
  }
}

Counters& Counters::operator+=(const Counters& other) {
  instructions += other.instructions;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  macs += other.macs;
  for (size_t u = 0; u < units.size(); ++u) {
    units[u].executed += other.units[u].executed;
    units[u].busy_cycles += other.units[u].busy_cycles;
    for (size_t e = 0; e < units[u].wait_cycles.size(); ++e) units[u].wait_cycles[e] += other.units[u].wait_cycles[e];
    units[u].stall_memory_cycles += other.units[u].stall_memory_cycles;
    units[u].stall_port_cycles += other.units[u].stall_port_cycles;
  }
  return *this;
}

namespace {

/// The same request with its programs on the cores of a chip.
RunRequest on_chip(const Job& job) {
  RunRequest request = job.request;
  std::vector<CoreProgram> programs(1 + *std::max_element(job.cores.begin(), job.cores.end()));
  for (size_t k = 0; k < job.cores.size(); ++k) {
    if (k > job.request.others.size()) break;
    programs[job.cores[k]] =
        k == 0 ? CoreProgram{job.request.program_address, job.request.instruction_count} : job.request.others[k - 1];
  }
  request.program_address = programs[0].program_address;
  request.instruction_count = programs[0].instruction_count;
  request.others.assign(programs.begin() + 1, programs.end());
  return request;
}

/// A report of a chip with the numbers that a job has for its cores.
RunReport of_job(RunReport report, const std::vector<uint32_t>& cores) {
  const auto own = [&](uint32_t core) {
    return static_cast<uint32_t>(std::find(cores.begin(), cores.end(), core) - cores.begin());
  };
  if (!report.ok()) report.fault_core = own(report.fault_core);
  std::vector<CoreReport> reports;
  for (const uint32_t core : cores) reports.push_back(report.cores[core]);
  report.cores = cores.size() == 1 ? std::vector<CoreReport>() : std::move(reports);
  for (InstructionProfile& one : report.profile) one.core = own(one.core);
  for (BurstProfile& one : report.bursts) one.core = own(one.core);
  for (RaceReport& race : report.races) {
    race.first_core = own(race.first_core);
    race.second_core = own(race.second_core);
  }
  return report;
}

}  // namespace

RunReport run_job(Device& device, const Job& job) { return of_job(device.run(on_chip(job)), job.cores); }

void Device::run_jobs(const JobSource& source) {
  std::vector<JobEnd> ends;
  for (;;) {
    const std::vector<Job> jobs = source(std::exchange(ends, {}), false);
    if (jobs.empty()) return;
    for (const Job& job : jobs) ends.push_back({job.number, run_job(*this, job)});
  }
}

void Device::copy(uint64_t to, uint64_t from, uint64_t size_bytes) {
  std::vector<uint8_t> bytes(size_bytes);
  read(from, bytes);
  write(to, bytes);
}

}  // namespace tessera::driver
