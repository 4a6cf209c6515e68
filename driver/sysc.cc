// SPDX-License-Identifier: Apache-2.0
// The SystemC timing model as a Device: the functional simulator's results with the cycles that isa/timing.md derives
// for the RTL. Options: latency (cycles of DRAM, default 100), bandwidth (bytes a cycle, default the width of the bus),
// dram (a preset of docs/dram.md, default ideal).
#include <map>
#include <memory>

#include "driver/backends.h"
#include "driver/profile.h"
#include "driver/simulated_device.h"
#include "sim/systemc/machine.h"

namespace tessera::driver {
namespace {

class SystemcDevice final : public SimulatedDevice {
 public:
  SystemcDevice(const isa::MachineConfig& config, const DeviceOptions& options)
      : SimulatedDevice(options), machine_(config), dram_(dram_options("sysc", config, options, false, {})) {}

  const isa::MachineConfig& config() const override { return machine_.config(); }

 protected:
  RunReport execute(const RunRequest& request) override {
    refuse_checks("sysc", request);
    Run run(*this, request, {});
    return run.report(machine_.run(run.inner));
  }

  void execute_jobs(const JobSource& source) override {
    if (config().cores == 1) return SimulatedDevice::execute_jobs(source);
    std::map<uint64_t, std::unique_ptr<Run>> runs;
    machine_.run_jobs(
        [&](const std::vector<sim::systemc::TimedEnd>& ended, bool running) {
          std::vector<JobEnd> ends;
          for (const sim::systemc::TimedEnd& end : ended) {
            ends.push_back({end.number, runs.at(end.number)->report(end.results)});
            runs.erase(end.number);
          }
          std::vector<sim::systemc::TimedJob> begin;
          for (const Job& job : source(std::move(ends), running)) {
            Run& run = *(runs[job.number] = std::make_unique<Run>(*this, job.request, job.cores));
            begin.push_back({job.number, {job.cores.begin(), job.cores.end()}, run.inner});
          }
          return begin;
        },
        dram_, heap().base());
  }

 private:
  /// A request as the model takes it, and what it fills.
  struct Run {
    /// On these cores, or on all.
    Run(SystemcDevice& device, const RunRequest& request, const std::vector<uint32_t>& cores)
        : device(device),
          profile(request.profile),
          region{device.heap().base(), device.host(device.heap().base()), device.heap().size_bytes()},
          programs{{request.program_address, request.instruction_count}} {
      programs.insert(programs.end(), request.others.begin(), request.others.end());
      if (!cores.empty()) programs.resize(cores.size());
      if (request.poison) {
        const auto all = static_cast<size_t>(device.config().cores);
        for (size_t k = 0; k < (cores.empty() ? all : cores.size()); ++k)
          device.machine_.functional(cores.empty() ? k : cores[k]).poison(*request.poison + k);
      }
      traces.resize(programs.size());
      inner.resize(programs.size());
      for (size_t k = 0; k < programs.size(); ++k) {
        inner[k].program_address = programs[k].program_address;
        inner[k].instruction_count = programs[k].instruction_count;
        inner[k].bases = request.bases;
        inner[k].window_first = region.address;
        inner[k].window_last = region.address + region.size_bytes - 1;
        inner[k].dram = {&region, 1};
        inner[k].timing = device.dram_;
        inner[k].memory_address = region.address;
        if (profile) inner[k].trace = &traces[k];
        if (request.progress)
          inner[k].observer = [this, progress = request.progress](const sim::Work&) { progress(false, ++executed); };
      }
    }

    RunReport report(const std::vector<sim::systemc::TimedResult>& results) const {
      RunReport report;
      for (size_t k = 0; k < programs.size() && profile; ++k)
        fill_profile(report, traces[k], decode_program(device.program_words(programs[k])), device.config(),
                     static_cast<uint32_t>(k));
      if (results.size() == 1) {
        fill_timed(report, results[0], results[0].macs);
        return report;
      }
      for (const sim::systemc::TimedResult& result : results) {
        fill_timed(report.cores.emplace_back(), result, result.macs);
        report.cores.back().bus_wait_cycles = result.bus_waited;
      }
      report.bus_busy_cycles = results[0].bus_moved;
      sum_cores(report);
      return report;
    }

    SystemcDevice& device;
    bool profile;
    sim::DramRegion region;
    std::vector<CoreProgram> programs;
    std::vector<sim::Trace> traces;
    std::vector<sim::systemc::TimedRequest> inner;
    uint64_t executed = 0;
  };

  sim::systemc::TimedMachine machine_;
  sim::DramOptions dram_;
};

}  // namespace

std::unique_ptr<Device> open_sysc(const isa::MachineConfig& config, const DeviceOptions& options) {
  return std::make_unique<SystemcDevice>(config, options);
}

}  // namespace tessera::driver
