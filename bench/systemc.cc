// SPDX-License-Identifier: Apache-2.0
// The timing model against the RTL on compiled programs. Enters: .tsr files and DRAM's latency. Leaves: one line of
// JSON for each: cycles and processor seconds of both machines, the worst layer. Arenas hold pseudo-random bytes: time
// does not depend on data. `--no-rtl` runs the timing model alone, `--trace` prints what both did. `--dram` is a preset
// of docs/dram.md; `--apart` moves program, constants and results away from each other.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "isa/dram.h"
#include "isa/program/artifact.h"
#include "sim/systemc/machine.h"
#ifdef TESSERA_BENCH_RTL
#include "sim/verilator/machine.h"
#endif

namespace {

using namespace tessera;

struct Image {
  std::vector<uint8_t> bytes;
  uint64_t address = 0;
  uint64_t program = 0, constants = 0, arena = 0;
};

uint64_t page(uint64_t bytes) { return (bytes + 4095) / 4096 * 4096; }

/// `apart`: bytes between program, constants and results, so that they lie in other rows and banks.
Image image_of(const program::Artifact& artifact, const program::NpuProgram& npu, uint64_t apart) {
  Image image;
  image.address = uint64_t{1} << 32;
  image.program = image.address;
  image.constants = image.program + page(npu.instructions.size()) + apart;
  image.arena = image.constants + page(npu.constant_bytes) + apart;
  image.bytes.resize(image.arena - image.address + page(npu.arena_bytes));
  std::memcpy(image.bytes.data(), npu.instructions.data(), npu.instructions.size());
  std::memcpy(&image.bytes[image.constants - image.address], artifact.device_constants.data() + npu.constant_offset,
              npu.constant_bytes);
  std::mt19937_64 random(1);
  for (uint64_t n = image.arena - image.address; n + 8 <= image.bytes.size(); n += 8) {
    const uint64_t value = random();
    std::memcpy(&image.bytes[n], &value, 8);
  }
  return image;
}

struct Options {
  int latency = 100;
  int bandwidth = 0;
  std::string dram;    // a preset; empty: the ideal
  uint64_t apart = 0;  // bytes between program, constants and results
  bool rtl = true;
  bool layers = false;
  bool details = false;
  bool trace = false;
};

struct Totals {
  sim::DramController::Counters dram;  // of the last part
  uint64_t rtl = 0, systemc = 0;
  double rtl_seconds = 0, systemc_seconds = 0;
  bool equal = true;  // memory and fault records
  // Of layers above kLongLayer cycles.
  double worst_percent = 0;
  std::string worst_layer;
  int long_layers = 0;
};

constexpr uint64_t kLongLayer = 10000;
constexpr int kRepeats = 3;             // of the timing model at least, the fastest run counts
constexpr double kLeastSeconds = 0.02;  // that the runs of a machine take together

/// Of this process: both machines run on one thread, and others may use the host.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Seconds of the fastest of several runs, each of which tells its own.
template <typename Run>
double fastest_of(int least_runs, Run&& run) {
  double fastest = 1e9, all = 0;
  for (int n = 0; n < least_runs || all < kLeastSeconds; ++n) {
    const double seconds = run();
    fastest = std::min(fastest, seconds);
    all += seconds;
  }
  return fastest;
}

double percent(uint64_t value, uint64_t reference) {
  return reference == 0 ? 0 : 100.0 * (static_cast<double>(value) / static_cast<double>(reference) - 1);
}

/// Cycles of each layer: from the last completion of the one before to its own.
std::map<uint32_t, uint64_t> layers_of(const program::NpuProgram& npu, const sim::Trace& trace) {
  std::map<uint32_t, uint64_t> last;
  for (const sim::InstructionTrace& i : trace.instructions) {
    if (i.unit == isa::Unit::kFetch || i.pc >= npu.layer_of_instruction.size()) continue;
    uint64_t& cycle = last[npu.layer_of_instruction[i.pc]];
    cycle = std::max(cycle, i.retired_cycle);
  }
  uint64_t before = 0;
  for (auto& [layer, cycle] : last) {
    const uint64_t end = cycle;
    cycle = end > before ? end - before : 0;
    before = std::max(before, end);
  }
  return last;
}

/// To find where two machines part: every instruction and burst in one line.
void print(const sim::Trace& trace, const char* machine) {
  for (const sim::InstructionTrace& i : trace.instructions) {
    std::fprintf(stderr, "%s instruction %u %s queued %lu issued %lu first %lu last %lu retired %lu\n", machine, i.pc,
                 std::string(to_string(i.unit)).c_str(), i.queued_cycle, i.issued_cycle, i.first_cycle, i.last_cycle,
                 i.retired_cycle);
  }
  for (const sim::BurstTrace& b : trace.bursts) {
    std::fprintf(stderr, "%s burst %s %s %lx %u address %lu first %lu last %lu\n", machine,
                 std::string(to_string(b.unit)).c_str(), b.write ? "write" : "read", b.address, b.bytes,
                 b.address_cycle, b.first_cycle, b.last_cycle);
  }
}

void compare_layers(const program::NpuProgram& npu, const sim::Trace& timed, const sim::Trace& actual,
                    const Options& options, Totals& totals) {
  if (options.trace) {
    print(timed, "model");
    print(actual, "RTL");
  }
  auto wanted = layers_of(npu, actual);
  auto got = layers_of(npu, timed);
  for (const auto& [layer, cycles] : wanted) {
    const double error = percent(got[layer], cycles);
    const std::string name = layer < npu.layers.size() ? npu.layers[layer].name : "-";
    if (options.details) {
      std::fprintf(stderr, "%-40s %10lu %10lu %8.3f%%\n", name.c_str(), cycles, got[layer], error);
    }
    if (cycles < kLongLayer) continue;
    ++totals.long_layers;
    if (std::abs(error) < std::abs(totals.worst_percent)) continue;
    totals.worst_percent = error;
    totals.worst_layer = name;
  }
}

void run(const program::Artifact& artifact, const program::NpuProgram& npu, const Options& options, Totals& totals) {
  const auto count = static_cast<uint32_t>(npu.instructions.size() / isa::kInstructionBytes);
  const Image initial = image_of(artifact, npu, options.apart);
  Image image = initial;
  sim::systemc::TimedMachine machine(artifact.config);
  const sim::DramRegion region{image.address, image.bytes.data(), image.bytes.size()};
  sim::systemc::TimedRequest request;
  request.program_address = image.program;
  request.instruction_count = count;
  request.bases[program::kConstantsBase] = image.constants;
  request.bases[program::kArenaBase] = image.arena;
  request.window_first = image.address;
  request.window_last = image.address + image.bytes.size() - 1;
  request.dram = {&region, 1};
  request.timing.beat_bytes = artifact.config.axi_bytes;
  request.timing.latency_cycles = options.latency;
  request.timing.bandwidth_bytes = options.bandwidth;
  if (!options.dram.empty()) request.timing.spec = isa::dram_preset(options.dram);
  request.memory_address = image.address;
  sim::systemc::TimedResult timed;
  totals.systemc_seconds += fastest_of(kRepeats, [&] {
    image.bytes = initial.bytes;
    const double begin = cpu_seconds();
    timed = machine.run(request);
    return cpu_seconds() - begin;
  });
  totals.systemc += timed.cycles;
  totals.dram = timed.dram;
  if (timed.fault.code != isa::Fault::kNone) {
    throw Error(ErrorCode::kInternal, "the program faults: " + std::string(to_string(timed.fault.code)) + " at " +
                                          std::to_string(timed.fault.pc));
  }
#ifdef TESSERA_BENCH_RTL
  if (!options.rtl) return;
  sim::RtlRequest inner;
  inner.program_address = request.program_address;
  inner.instruction_count = count;
  inner.bases = request.bases;
  inner.window_first = request.window_first;
  inner.window_last = request.window_last;
  const auto rtl = sim::make_rtl(artifact.config);
  Image other = initial;
  const auto run_rtl = [&] {
    sim::DramModel dram(request.timing, other.address, other.bytes.data(), other.bytes.size());
    return rtl->run(inner, dram);
  };
  sim::RtlResult actual;
  totals.rtl_seconds += fastest_of(1, [&] {
    other.bytes = initial.bytes;
    const double begin = cpu_seconds();
    actual = run_rtl();
    return cpu_seconds() - begin;
  });
  totals.rtl += actual.cycles;
  totals.equal = totals.equal && image.bytes == other.bytes && actual.fault == timed.fault;
  if (options.details) {
    for (size_t u = 0; u < 5; ++u) {
      const auto& s = timed.units[u];
      const auto& r = actual.units[u];
      std::fprintf(stderr,
                   "%-6s busy %9lu/%9lu wait %8lu/%8lu %8lu/%8lu %8lu/%8lu %8lu/%8lu mem %9lu/%9lu port %8lu/%8lu\n",
                   std::string(to_string(static_cast<isa::Unit>(u))).c_str(), s.busy, r.busy, s.wait[0], r.wait[0],
                   s.wait[1], r.wait[1], s.wait[2], r.wait[2], s.wait[3], r.wait[3], s.stall_memory, r.stall_memory,
                   s.stall_port, r.stall_port);
    }
  }
  if (!options.layers) return;
  // Once more, traced: that takes longer and is not measured.
  sim::Trace trace;
  request.trace = &trace;
  machine.run(request);
  const std::vector<isa::Instruction> program = program::instructions_of(npu);
  inner.trace_program = program;
  compare_layers(npu, trace, run_rtl().trace, options, totals);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::vector<std::string> files;
  for (int n = 1; n < argc; ++n) {
    const std::string word = argv[n];
    if (word == "--latency" && n + 1 < argc) {
      options.latency = std::atoi(argv[++n]);
    } else if (word == "--dram" && n + 1 < argc) {
      options.dram = argv[++n];
    } else if (word == "--apart" && n + 1 < argc) {
      options.apart = std::strtoull(argv[++n], nullptr, 10);
    } else if (word == "--bandwidth" && n + 1 < argc) {
      options.bandwidth = std::atoi(argv[++n]);
    } else if (word == "--no-rtl") {
      options.rtl = false;
    } else if (word == "--layers") {
      options.layers = true;
    } else if (word == "--trace") {
      options.trace = options.layers = true;
    } else if (word == "--details") {
      options.details = true;
    } else {
      files.push_back(word);
    }
  }
  try {
    for (const std::string& file : files) {
      const program::Artifact artifact = program::load(file);
      Totals totals;
      for (const program::NpuProgram& npu : artifact.npu_programs) run(artifact, npu, options, totals);
      std::printf(
          "{\"file\": \"%s\", \"config\": \"%s\", \"latency\": %d, \"rtl_cycles\": %lu, \"systemc_cycles\": %lu, "
          "\"error_percent\": %.3f, \"worst_layer_percent\": %.3f, \"worst_layer\": \"%s\", \"long_layers\": %d, "
          "\"rtl_seconds\": %.6f, \"systemc_seconds\": %.6f, \"equal\": %s, \"dram\": \"%s\", \"commands\": %lu, "
          "\"rows\": %lu, \"turns\": %lu, \"refreshes\": %lu, \"row_cycles\": %lu, \"turn_cycles\": %lu, "
          "\"refresh_cycles\": %lu}\n",
          file.c_str(), artifact.config.name.c_str(), options.latency, totals.rtl, totals.systemc,
          percent(totals.systemc, totals.rtl), totals.worst_percent, totals.worst_layer.c_str(), totals.long_layers,
          totals.rtl_seconds, totals.systemc_seconds, totals.equal ? "true" : "false", options.dram.c_str(),
          totals.dram.commands, totals.dram.rows, totals.dram.turns, totals.dram.refreshes, totals.dram.row_cycles,
          totals.dram.turn_cycles, totals.dram.refresh_cycles);
      std::fflush(stdout);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_systemc: %s\n", error.what());
    return 1;
  }
  return 0;
}
