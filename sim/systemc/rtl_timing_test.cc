// SPDX-License-Identifier: Apache-2.0
// The timing model against the RTL. Micro-programs of one engine: the cycles are equal, whatever DRAM's latency.
// Programs of several engines: within the stated share. TESSERA_TIMING=N runs N times as many programs,
// TESSERA_TIMING_SHOW=1 prints those that differ, TESSERA_TIMING_STALLS=1 compares waits and stalls too.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>

#include "isa/assembler.h"
#include "sim/systemc/machine.h"
#include "sim/tests/random_program.h"
#include "sim/tests/transposing_load.h"
#include "sim/verilator/machine.h"

namespace tessera::sim::systemc {
namespace {

using Program = std::vector<isa::Instruction>;

constexpr uint64_t kBase = 1 << 20;
constexpr uint64_t kProgram = kBase + (1 << 20) - (1 << 15);  // behind all that stores write
constexpr size_t kDramBytes = 1 << 20;

struct Cycles {
  RtlResult rtl;
  TimedResult timed;
  Trace timed_trace;
};

class Bench {
 public:
  explicit Bench(const isa::MachineConfig& machine) : config(machine), timed_(machine), rtl_(make_rtl(machine)) {
    bases.fill(kBase);
  }

  Cycles run(const Program& program, int latency, int bandwidth = 0, const char* preset = nullptr) {
    std::vector<uint8_t> dram(kDramBytes);
    for (size_t n = 0; n < program.size(); ++n) {
      const isa::Word word = isa::encode(program[n]);
      std::copy(word.begin(), word.end(), dram.begin() + static_cast<std::ptrdiff_t>(kProgram - kBase + n * 64));
    }
    std::vector<uint8_t> other = dram;
    const DramRegion region{kBase, dram.data(), dram.size()};
    TimedRequest request;
    request.program_address = kProgram;
    request.instruction_count = static_cast<uint32_t>(program.size());
    request.bases = bases;
    request.window_first = kBase;
    request.window_last = kBase + kDramBytes - 1;
    request.dram = {&region, 1};
    request.timing = {.beat_bytes = config.axi_bytes, .latency_cycles = latency, .bandwidth_bytes = bandwidth};
    if (preset != nullptr) request.timing.spec = isa::dram_preset(preset);
    request.memory_address = kBase;
    Cycles cycles;
    request.trace = &cycles.timed_trace;
    cycles.timed = timed_.run(request);
    DramModel model(request.timing, kBase, other.data(), other.size());
    RtlRequest inner;
    inner.program_address = kProgram;
    inner.instruction_count = request.instruction_count;
    inner.bases = request.bases;
    inner.window_first = request.window_first;
    inner.window_last = request.window_last;
    inner.max_cycles = 4000000;
    inner.trace_program = program;
    cycles.rtl = rtl_->run(inner, model);
    EXPECT_EQ(cycles.timed.fault, cycles.rtl.fault);
    return cycles;
  }

  isa::MachineConfig config;
  std::array<uint64_t, 16> bases{};

 private:
  TimedMachine timed_;
  std::unique_ptr<RtlMachine> rtl_;
};

/// The instructions of a trace have the stalls that their engine's counters have.
template <typename Counters>
void expect_stalls(const Trace& trace, const Counters& units, const char* machine) {
  for (size_t u = 0; u < isa::kEngines; ++u) {
    uint64_t memory = 0, port = 0;
    for (const InstructionTrace& one : trace.instructions) {
      if (static_cast<size_t>(one.unit) != u) continue;
      memory += one.stall_memory_cycles;
      port += one.stall_port_cycles;
    }
    EXPECT_EQ(memory, units[u].stall_memory) << machine << ", engine " << u;
    EXPECT_EQ(port, units[u].stall_port) << machine << ", engine " << u;
  }
}

/// Every program that `make` gives for a random state has equal cycles on both machines, up to a share of them.
void expect_equal(const std::function<Program(std::mt19937_64&, const isa::MachineConfig&)>& make, int programs,
                  double share = 0, int bandwidth = 0, const isa::MachineConfig& config = rtl_configs().front()) {
  if (const char* text = std::getenv("TESSERA_TIMING")) programs *= std::atoi(text);
  Bench bench(config);
  int different = 0;
  for (int seed = 0; seed < programs; ++seed) {
    for (const int latency : {20, 100, 500}) {
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      Program program = make(random, bench.config);
      program.push_back(isa::Finish{});
      const Cycles cycles = bench.run(program, latency, bandwidth);
      EXPECT_NEAR(static_cast<double>(cycles.timed.cycles), static_cast<double>(cycles.rtl.cycles),
                  share * static_cast<double>(cycles.rtl.cycles))
          << "seed " << seed << ", latency " << latency;
      if (std::getenv("TESSERA_TIMING_SHOW") != nullptr && cycles.timed.cycles != cycles.rtl.cycles) {
        for (const isa::Instruction& i : program) std::printf("%s\n", isa::disassemble(i).c_str());
        std::printf("seed %d latency %d: %lu, RTL %lu\n", seed, latency, cycles.timed.cycles, cycles.rtl.cycles);
      }
      different += cycles.timed.cycles != cycles.rtl.cycles ? 1 : 0;
      SCOPED_TRACE("seed " + std::to_string(seed) + ", latency " + std::to_string(latency));
      expect_stalls(cycles.timed_trace, cycles.timed.units, "timing model");
      expect_stalls(cycles.rtl.trace, cycles.rtl.units, "RTL");
      for (size_t u = 0; u < 5; ++u) {
        const UnitCounters& a = cycles.timed.units[u];
        const RtlUnitCounters& b = cycles.rtl.units[u];
        EXPECT_EQ(a.busy, b.busy) << u;
        EXPECT_EQ(a.executed, b.executed) << u;
        if (std::getenv("TESSERA_TIMING_STALLS") == nullptr) continue;
        EXPECT_EQ(a.wait, b.wait) << u << " seed " << seed << ", latency " << latency;
        EXPECT_EQ(a.stall_memory, b.stall_memory) << u << " seed " << seed << ", latency " << latency;
        EXPECT_EQ(a.stall_port, b.stall_port) << u << " seed " << seed << ", latency " << latency;
      }
      EXPECT_EQ(cycles.timed.bytes_read, cycles.rtl.bytes_read);
      EXPECT_EQ(cycles.timed.bytes_written, cycles.rtl.bytes_written);
    }
  }
  ::testing::Test::RecordProperty("different", different);
  if (different > 0) std::printf("%d of %d differ\n", different, 3 * programs);
}

int pick(std::mt19937_64& random, int low, int high) {
  return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
}

/// One of the values, mostly the first.
int one_of(std::mt19937_64& random, std::initializer_list<int> values) {
  return *(values.begin() + pick(random, 0, static_cast<int>(values.size()) - 1));
}

isa::Load any_load(std::mt19937_64& random, const isa::MachineConfig& config) {
  isa::Load i;
  i.space = static_cast<isa::Space>(pick(random, 0, 4));
  i.length = static_cast<uint16_t>(one_of(random, {8, 16, 21, 64, 100, 3, 1, 500, 2048}));
  const auto limit = static_cast<int>(std::min<int64_t>(config.space_bytes(i.space), 16384));
  i.extent[3] = static_cast<uint16_t>(std::min(pick(random, 1, 40), limit / (2 * i.length)));
  if (i.extent[3] == 0) i.extent[3] = 1;
  i.extent[2] = static_cast<uint16_t>(std::min(pick(random, 1, 5), std::max(1, limit / (2 * i.length * i.extent[3]))));
  if (i.length > limit / 2) i.length = static_cast<uint16_t>(limit / 2);
  i.sp_stride[3] = i.length;
  i.sp_stride[2] = i.length * i.extent[3];
  i.sp_addr = static_cast<uint32_t>(pick(random, 0, 8));
  i.dram_stride[3] = i.length + one_of(random, {0, 8, 13, 100, 3000});
  i.dram_stride[2] = one_of(random, {i.dram_stride[3] * i.extent[3], 4096, 777});
  i.dram_offset = static_cast<uint64_t>(pick(random, 0, 5000));
  if (pick(random, 0, 3) == 0) {
    i.extent[1] = static_cast<uint16_t>(pick(random, 1, 3));
    i.pad_before[1] = static_cast<uint16_t>(pick(random, 0, 1));
    i.pad_after[1] = static_cast<uint16_t>(pick(random, 0, i.extent[1] - i.pad_before[1]));
  }
  i.header.signal = true;
  return i;
}

isa::Store any_store(std::mt19937_64& random) {
  isa::Store i;
  i.space = pick(random, 0, 3) == 0 ? isa::Space::kAcc : isa::Space::kOut;
  i.length = static_cast<uint16_t>(one_of(random, {8, 16, 21, 64, 100, 3, 1, 500, 1024}));
  i.extent[3] = static_cast<uint16_t>(std::max(1, std::min(pick(random, 1, 40), 4000 / i.length)));
  i.extent[2] = static_cast<uint16_t>(std::max(1, std::min(pick(random, 1, 5), 4000 / (i.length * i.extent[3]))));
  i.sp_stride[3] = i.length;
  i.sp_stride[2] = i.length * i.extent[3];
  i.sp_addr = static_cast<uint32_t>(pick(random, 0, 8));
  i.dram_stride[3] = i.length + one_of(random, {0, 8, 13, 100, 3000});
  i.dram_stride[2] = one_of(random, {i.dram_stride[3] * i.extent[3], 4096, 777});
  i.dram_offset = static_cast<uint64_t>(pick(random, 0, 5000)) + (1 << 17);
  i.header.signal = true;
  return i;
}

TEST(SystemcMicro, Fetch) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig&) {
        Program program;
        std::array<uint16_t, 4> signals{};
        for (int n = pick(random, 0, 60); n > 0; --n) {
          isa::Fence fence;
          fence.engine = static_cast<isa::Engine>(pick(random, 0, 3));
          const auto other = static_cast<size_t>(pick(random, 0, 3));
          if (pick(random, 0, 2) == 0) {
            fence.header.waits[1] = {true, static_cast<isa::Engine>(other), signals[other]};
          }
          fence.header.signal = true;
          ++signals[static_cast<size_t>(fence.engine)];
          program.push_back(fence);
        }
        return program;
      },
      20);
}

TEST(SystemcMicro, OneLoad) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) { return Program{any_load(random, config)}; }, 25);
}

TEST(SystemcMicro, Loads) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        for (int n = pick(random, 2, 12); n > 0; --n) program.push_back(any_load(random, config));
        return program;
      },
      60);
}

// Runs that join a request, and requests that wait for them: all but some of a thousand programs are equal.
TEST(SystemcMicro, LoadsRequestedTogether) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        for (int n = pick(random, 1, 8); n > 0; --n) {
          program.push_back(pick(random, 0, 4) == 0 ? any_load(random, config)
                                                    : testing::transposing_load(random, config));
        }
        return program;
      },
      60, 0.005);
}

/// npu64 with row lanes and weights of 4 bits.
isa::MachineConfig machine_with_rows() {
  isa::MachineConfig config = isa::find_config("npu64");
  config.name = "rows";
  config.row_lanes = 2;
  config.packed_weights = 1;
  return config;
}

// Packed entries that join to runs, that are requested together, and that lie apart.
isa::Load any_packed_load(std::mt19937_64& random, const isa::MachineConfig& config) {
  isa::Load i;
  i.packed = true;
  i.space = isa::Space::kWgt;
  i.length = static_cast<uint16_t>(config.packed_entry_bytes());
  i.extent[3] = static_cast<uint16_t>(one_of(random, {pick(random, 1, 30), 1, 60}));
  i.extent[2] = static_cast<uint16_t>(pick(random, 1, 4));
  const int entry = config.wgt_entry_bytes(), beat = config.axi_bytes;
  i.sp_stride[3] = entry * one_of(random, {1, 1, 2});
  i.sp_stride[2] = i.sp_stride[3] * one_of(random, {i.extent[3], 0});
  i.sp_addr = static_cast<uint32_t>(entry * pick(random, 0, 8));
  i.dram_stride[3] = i.length + beat * one_of(random, {0, 0, 1, 300});
  i.dram_stride[2] = one_of(random, {i.dram_stride[3] * i.extent[3], 4096});
  i.dram_offset = static_cast<uint64_t>(beat * pick(random, 0, 600));
  i.header.signal = true;
  return i;
}

TEST(SystemcMicro, PackedLoads) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        for (int n = pick(random, 1, 12); n > 0; --n) {
          program.push_back(pick(random, 0, 2) == 0 ? any_load(random, config) : any_packed_load(random, config));
        }
        return program;
      },
      60, 0, 0, machine_with_rows());
}

TEST(SystemcMicro, OneStore) {
  expect_equal([](std::mt19937_64& random, const isa::MachineConfig&) { return Program{any_store(random)}; }, 25);
}

TEST(SystemcMicro, Stores) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig&) {
        Program program;
        for (int n = pick(random, 2, 12); n > 0; --n) program.push_back(any_store(random));
        return program;
      },
      60, 0.01);
}

/// A legal GEMM, of which all entries stay in range.
isa::Gemm any_gemm(std::mt19937_64& random, const isa::MachineConfig& config) {
  testing::RandomLimits limits;
  limits.iterations = 400;
  testing::RandomProgramMaker maker(config, random(), limits);
  for (;;) {
    isa::Gemm i = std::get<isa::Gemm>(maker.make_gemm());
    if (isa::check_operands(i, config) || isa::check_ranges(i, config)) continue;
    i.header.signal = true;
    return i;
  }
}

TEST(SystemcMicro, OneGemm) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) { return Program{any_gemm(random, config)}; }, 60);
}

TEST(SystemcMicro, Gemms) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        for (int n = pick(random, 2, 20); n > 0; --n) {
          program.push_back(any_gemm(random, config));
          if (pick(random, 0, 5) == 0) program.push_back(isa::Fence{.header = {}, .engine = isa::Engine::kGemm});
        }
        return program;
      },
      100);
}

isa::Alu any_alu(std::mt19937_64& random, const isa::MachineConfig& config) {
  testing::RandomLimits limits;
  limits.iterations = 400;
  testing::RandomProgramMaker maker(config, random(), limits);
  for (;;) {
    const isa::Instruction made = maker.make_alu();
    if (isa::check_operands(made, config) || isa::check_ranges(made, config)) continue;
    isa::Alu i = std::get<isa::Alu>(made);
    i.header.signal = true;
    return i;
  }
}

TEST(SystemcMicro, OneAlu) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) { return Program{any_alu(random, config)}; }, 60);
}

TEST(SystemcMicro, Alus) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        for (int n = pick(random, 2, 20); n > 0; --n) {
          program.push_back(any_alu(random, config));
          if (pick(random, 0, 5) == 0) program.push_back(isa::Fence{.header = {}, .engine = isa::Engine::kAlu});
        }
        return program;
      },
      100, 0.01);
}

/// A legal instruction of rows, of which all entries stay in range.
isa::Instruction any_rows(std::mt19937_64& random, const isa::MachineConfig& config) {
  testing::RandomLimits limits;
  limits.iterations = 400;
  testing::RandomProgramMaker maker(config, random(), limits);
  for (;;) {
    isa::Instruction i = pick(random, 0, 1) == 0 ? maker.make_row_reduce() : maker.make_row_map();
    if (isa::check_operands(i, config) || isa::check_ranges(i, config)) continue;
    std::visit([](auto& each) { each.header.signal = true; }, i);
    return i;
  }
}

TEST(SystemcMicro, OneOfRows) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) { return Program{any_rows(random, config)}; }, 60,
      0, 0, machine_with_rows());
}

TEST(SystemcMicro, Rows) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        for (int n = pick(random, 2, 12); n > 0; --n) {
          if (pick(random, 0, 2) == 0) {
            program.push_back(any_alu(random, config));
          } else {
            program.push_back(any_rows(random, config));
          }
        }
        return program;
      },
      60, 0.01, 0, machine_with_rows());
}

// LOAD and STORE share the bus; the model knows rates, not beats.
TEST(SystemcMicro, LoadsBesideStores) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        for (int n = pick(random, 4, 16); n > 0; --n) {
          isa::Load load = any_load(random, config);
          if (load.space == isa::Space::kOut || load.space == isa::Space::kAcc) load.space = isa::Space::kInp;
          program.push_back(load);
          program.push_back(any_store(random));
        }
        return program;
      },
      40, 0.02);
}

/// Some runs into INP, `sp` and `dram` bytes from one to the next.
isa::Load runs_into_inp(int64_t length, int runs, int64_t sp, int64_t dram) {
  isa::Load load;
  load.space = isa::Space::kInp;
  load.length = static_cast<uint16_t>(length);
  load.extent[3] = static_cast<uint16_t>(runs);
  load.sp_stride[3] = static_cast<int32_t>(sp);
  load.dram_stride[3] = static_cast<int32_t>(dram);
  return load;
}

/// Neighbouring vectors copied, from the middle of INP on where that is the source.
isa::Alu copy_vectors(const isa::MachineConfig& config, isa::AluSpace from, isa::AluSpace to, int vectors) {
  isa::Alu alu;
  alu.src = from;
  alu.dst = to;
  alu.extent[5] = static_cast<uint16_t>(vectors);
  alu.src_stride[5] = alu.dst_stride[5] = 1;
  alu.src_addr = static_cast<uint16_t>(config.inp_depth() / 2);
  alu.low = -128;
  alu.high = 127;
  return alu;
}

// The ALU reads ACC or OUT while STORE reads it too: a read that is refused costs the beat that it would have been.
TEST(SystemcMicro, StoresBesideReadsOfTheAlu) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        const bool acc = pick(random, 0, 1) == 0;
        isa::Store store;
        store.space = acc ? isa::Space::kAcc : isa::Space::kOut;
        store.length = static_cast<uint16_t>(config.axi_bytes * pick(random, 20, 120));
        store.dram_offset = 1 << 17;
        program.push_back(store);
        for (int n = pick(random, 1, 4); n > 0; --n) {
          const isa::AluSpace from = acc ? isa::AluSpace::kAcc : isa::AluSpace::kOut;
          isa::Alu alu = copy_vectors(config, from, isa::AluSpace::kInp, pick(random, 5, 60));
          alu.src_addr = static_cast<uint16_t>(pick(random, 0, 40));
          program.push_back(alu);
        }
        return program;
      },
      40, 0.01);
}

// Short runs that do not begin where a beat does leave INP's second port free in their first cycle, and the ALU reads.
TEST(SystemcMicro, AluBesideShortRuns) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        for (int n = pick(random, 2, 6); n > 0; --n) {
          const int whole = config.axi_bytes * pick(random, 1, 5), length = whole - pick(random, 0, 2);
          const int runs = pick(random, 10, 40);
          isa::Load load = runs_into_inp(length, runs, 8 * config.axi_bytes, length + one_of(random, {1, 3, 16}));
          load.dram_offset = static_cast<uint64_t>(pick(random, 0, 3000));
          load.header.signal = true;
          program.push_back(load);
          isa::Alu alu = copy_vectors(config, isa::AluSpace::kInp, isa::AluSpace::kOut, pick(random, 10, 100));
          if (pick(random, 0, 1) == 0) alu.header.waits[0] = {true, isa::Engine::kLoad, 1};
          program.push_back(alu);
        }
        return program;
      },
      40, 0.025);
}

// The ALU copies inside INP and leaves results there, LOAD writes INP, STORE takes turns on the bus: between the ALU's
// writes LOAD goes before its reads, and while they last the queue of beats takes what the bus brings.
TEST(SystemcMicro, AluInInpBesideLoadsAndStores) {
  expect_equal(
      [](std::mt19937_64& random, const isa::MachineConfig& config) {
        Program program;
        for (int n = pick(random, 2, 6); n > 0; --n) {
          const int length = config.axi_bytes * pick(random, 4, 40);
          program.push_back(runs_into_inp(length, pick(random, 3, 10), length, length + 64));
          if (pick(random, 0, 1) == 0) {
            isa::Store store;
            store.space = isa::Space::kOut;
            store.length = static_cast<uint16_t>(config.axi_bytes * pick(random, 20, 100));
            store.dram_offset = 1 << 17;
            program.push_back(store);
          }
          const isa::AluSpace from = pick(random, 0, 1) == 0 ? isa::AluSpace::kInp : isa::AluSpace::kAcc;
          isa::Alu alu = copy_vectors(config, from, isa::AluSpace::kInp, pick(random, 5, 100));
          alu.dst_addr = static_cast<uint16_t>(config.inp_depth() / 2 + 200);
          program.push_back(alu);
        }
        return program;
      },
      40, 0.025);
}

// Less bandwidth than the bus has: a budget in whole bytes, of which the model knows the rate.
TEST(SystemcMicro, Bandwidth) {
  for (const int bandwidth : {1, 3, 4}) {
    SCOPED_TRACE(bandwidth);
    expect_equal(
        [](std::mt19937_64& random, const isa::MachineConfig& config) {
          Program program;
          for (int n = pick(random, 1, 6); n > 0; --n) {
            program.push_back(any_load(random, config));
            if (pick(random, 0, 1) == 0) program.push_back(any_store(random));
          }
          return program;
        },
        5, 0.05, bandwidth);
  }
}

// Behind real DRAMs: narrower, as wide and wider than the bus.
constexpr const char* kPresets[] = {"sdr-50x16",  "sdr-100x32",  "ddr3-800x16",
                                    "ddr3-300x8", "ddr4-2400x8", "lpddr4-1600x8"};

TEST(SystemcDram, LoadsAndStores) {
  Bench bench(rtl_configs().front());
  int programs = 12;
  if (const char* text = std::getenv("TESSERA_TIMING")) programs *= std::atoi(text);
  for (const char* preset : kPresets) {
    uint64_t timed = 0, rtl = 0;
    int different = 0;
    for (int seed = 0; seed < programs; ++seed) {
      std::mt19937_64 random(static_cast<uint64_t>(seed));
      Program program;
      for (int n = seed < programs / 3 ? 1 : pick(random, 2, 8); n > 0; --n) {
        if (pick(random, 0, 2) != 0) program.push_back(any_load(random, bench.config));
        if (pick(random, 0, 2) == 0) program.push_back(any_store(random));
      }
      program.push_back(isa::Finish{});
      const Cycles cycles = bench.run(program, 100, 0, preset);
      if (std::getenv("TESSERA_TIMING_SHOW") != nullptr && cycles.timed.cycles != cycles.rtl.cycles) {
        for (const isa::Instruction& i : program) std::printf("%s\n", isa::disassemble(i).c_str());
        std::printf("%s seed %d: %lu, RTL %lu\n", preset, seed, cycles.timed.cycles, cycles.rtl.cycles);
      }
      EXPECT_EQ(cycles.timed.cycles, cycles.rtl.cycles) << preset << " seed " << seed;
      different += cycles.timed.cycles != cycles.rtl.cycles ? 1 : 0;
      timed += cycles.timed.cycles;
      rtl += cycles.rtl.cycles;
    }
    std::printf("%s: sum %.4f, %d of %d differ\n", preset, static_cast<double>(timed) / static_cast<double>(rtl) - 1,
                different, programs);
    EXPECT_NEAR(static_cast<double>(timed), static_cast<double>(rtl), 0.01 * static_cast<double>(rtl)) << preset;
  }
}

// Everything at once, in programs without any rest: far denser in hazards and shared ports than compiled ones.
/// Programs of 60 instructions; `worst` of one, a hundredth of all.
void expect_programs(const char* preset, uint64_t programs, double bound) {
  Bench bench(rtl_configs().front());
  uint64_t timed = 0, rtl = 0;
  double worst = 0;
  for (uint64_t seed = 0; seed < programs; ++seed) {
    testing::RandomLimits limits;
    limits.instructions = 60;
    testing::RandomProgramMaker maker(bench.config, seed, limits);
    const testing::RandomProgram program = maker.make();
    for (size_t k = 0; k < bench.bases.size(); ++k) bench.bases[k] = kBase + program.bases[k] - program.dram_address;
    const Cycles cycles = bench.run(program.instructions, seed % 3 == 0 ? 20 : 100, 0, preset);
    ASSERT_EQ(cycles.rtl.fault.code, isa::Fault::kNone) << "seed " << seed;
    const auto wanted = static_cast<double>(cycles.rtl.cycles);
    EXPECT_NEAR(static_cast<double>(cycles.timed.cycles), wanted, bound * wanted) << "seed " << seed;
    worst = std::max(worst, std::abs(static_cast<double>(cycles.timed.cycles) / wanted - 1));
    timed += cycles.timed.cycles;
    rtl += cycles.rtl.cycles;
  }
  std::printf("%s: sum %.4f, worst %.4f\n", preset == nullptr ? "ideal" : preset,
              static_cast<double>(timed) / static_cast<double>(rtl) - 1, worst);
  EXPECT_NEAR(static_cast<double>(timed), static_cast<double>(rtl), 0.01 * static_cast<double>(rtl));
}

TEST(SystemcProgram, RandomPrograms) { expect_programs(nullptr, 60, 0.1); }

TEST(SystemcDram, RandomPrograms) {
  for (const char* preset : kPresets) {
    SCOPED_TRACE(preset);
    expect_programs(preset, 12, 0.1);
  }
}

}  // namespace
}  // namespace tessera::sim::systemc
