// SPDX-License-Identifier: Apache-2.0
// tsr_gemm against sim::Machine: batches of random GEMM instructions (all modes, strides, reductions, signals, fences,
// ranges that fault) run on the verilated engine over memories of plain bytes; ACC and the completions must agree byte
// for byte. A third of the instructions are depthwise nests in raster form as the compiler makes them, or nearly so.
// Random gaps between instructions. Cycles are those of gemm_timing.h, which shares no code with the timing model.
// First the cycles of some nests are printed, with the multiply-accumulates of a cycle.
#include <cstdlib>
#include <memory>
#include <string>

#include "Vgemm_1x16x16.h"
#include "Vgemm_1x16x16_made.h"
#include "Vgemm_1x16x16_pairs.h"
#include "Vgemm_1x16x16_rows.h"
#include "Vgemm_1x16x16_rows_made.h"
#include "Vgemm_1x4x4_made.h"
#include "Vgemm_1x8x8.h"
#include "Vgemm_2x32x8.h"
#include "Vgemm_2x32x8_made.h"
#include "Vgemm_2x32x8_pairs_made.h"
#include "Vgemm_2x32x8_rows.h"
#include "Vgemm_2x8x32.h"
#include "Vgemm_2x8x32_made.h"
#include "Vgemm_2x8x32_rows_made.h"
#include "isa/verify/verify.h"
#include "sim/tests/configs.h"
#include "sim/tests/random_program.h"
#include "tests/rtl_engines/bench.h"
#include "tests/rtl_engines/gemm_timing.h"

namespace tessera::testing {
namespace {

constexpr int kEntries = 1000;

struct Memories {
  Memory inp, wgt, acc;
};

/// When the engine took and completed instructions, and how many steps it took.
struct Moments {
  int64_t now = 0, steps = 0;
  std::vector<int64_t> taken, completed;
};

/// A depthwise tile as the compiler lowers it: images, groups, rows and columns of results around rows of taps,
/// one-sized loops left out at random.
struct DepthwiseTile {
  int images = 1, groups = 1, out_h = 1, out_w = 1, kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;

  isa::Gemm gemm(bool keep_unit_loops) const {
    const int cols = (out_w - 1) * stride_w + kernel_w, rows = (out_h - 1) * stride_h + kernel_h;
    const int row = cols * groups;
    isa::Gemm g;
    g.mode = isa::GemmMode::kDepthwise;
    g.reduce = 2;
    const std::array<std::array<int, 4>, 4> outer{{{images, rows * row, 0, out_h * out_w * groups},
                                                   {groups, 1, 1, 1},
                                                   {out_h, stride_h * row, 0, out_w * groups},
                                                   {out_w, stride_w * groups, 0, groups}}};
    int slot = 3;
    for (int k = 3; k >= 0; --k) {
      if (outer[k][0] == 1 && !keep_unit_loops) continue;
      set(g, slot--, outer[k]);
    }
    set(g, 4, {kernel_h, row, 0, 0});
    set(g, 5, {kernel_w, groups, 0, 0});
    if (kernel_h == 1 && !keep_unit_loops) {  // a single reduction loop
      g.reduce = 1;
      for (int k = 4; k > 0; --k) move(g, k - 1, k);
      set(g, 0, {1, 0, 0, 0});
    }
    return g;
  }

 private:
  static void set(isa::Gemm& g, int slot, const std::array<int, 4>& loop) {
    g.extent[slot] = static_cast<uint16_t>(loop[0]);
    g.inp_stride[slot] = static_cast<int16_t>(loop[1]);
    g.wgt_stride[slot] = static_cast<int16_t>(loop[2]);
    g.acc_stride[slot] = static_cast<int16_t>(loop[3]);
  }
  static void move(isa::Gemm& g, int from, int to) {
    g.extent[to] = g.extent[from];
    g.inp_stride[to] = g.inp_stride[from];
    g.wgt_stride[to] = g.wgt_stride[from];
    g.acc_stride[to] = g.acc_stride[from];
  }
};

/// A nest in raster form, or one that is nearly so; refused by the checks at times.
isa::Gemm make_raster(const isa::MachineConfig& config, std::mt19937_64& random) {
  const auto pick = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const auto one_in = [&](int n) { return random() % static_cast<uint64_t>(n) == 0; };
  DepthwiseTile tile;
  tile.kernel_w = pick(1, one_in(4) ? config.depthwise_taps() : 5);
  tile.kernel_h = pick(1, std::clamp(config.depthwise_taps() / tile.kernel_w, 1, one_in(8) ? 16 : 3));
  tile.stride_w = one_in(8) ? 3 : pick(1, 2);
  tile.stride_h = one_in(8) ? 3 : pick(1, 2);
  tile.images = one_in(3) ? 2 : 1;
  tile.groups = pick(1, 3);
  tile.out_w = pick(1, 6);
  tile.out_h = pick(1, 5);
  isa::Gemm g = tile.gemm(one_in(4));
  if (one_in(12)) {  // rows as long as the line buffers and longer
    g = DepthwiseTile{.out_h = 2,
                      .out_w = pick(isa::timing::gemm::kLineColumns - 7, isa::timing::gemm::kLineColumns + 8),
                      .kernel_h = pick(1, 2),
                      .kernel_w = pick(1, 4)}
            .gemm(false);
    const bool apart = config.raster_pairs != 0 && g.extent[5] == 3 && one_in(2);  // as far as INP has entries
    if (!apart) g.inp_stride = {};
    g.acc_stride = {};
  }
  g.inp_unsigned = one_in(2);
  g.inp_zero = static_cast<int16_t>(g.inp_unsigned ? pick(0, 255) : pick(-128, 127));
  g.accumulate = one_in(2);
  g.lane = static_cast<uint8_t>(pick(0, std::max(config.block_in, config.block_out) / config.lanes() - 1));
  g.inp_addr = static_cast<uint16_t>(pick(0, 20));
  g.wgt_addr = static_cast<uint16_t>(pick(0, 20));
  g.acc_addr = static_cast<uint16_t>(pick(0, 20));
  if (config.raster_pairs > 1 && one_in(3)) {  // as two rows enter at once, or nearly so
    const auto row = static_cast<int16_t>(4 * pick(0, 6) + (one_in(8) ? pick(-1, 4) : 2));
    const auto outer = [&] { return static_cast<int16_t>(one_in(8) ? pick(-3, 9) : 2 * pick(-2, 30)); };
    g.reduce = 2;
    g.extent = {uint16_t{1},
                static_cast<uint16_t>(pick(1, 3)),
                static_cast<uint16_t>(pick(1, 6)),
                static_cast<uint16_t>(pick(1, 9)),
                uint16_t{3},
                uint16_t{3}};
    g.inp_stride = {outer(), outer(), static_cast<int16_t>(2 * row), int16_t{2}, row, int16_t{1}};
    g.wgt_stride = {int16_t{0}, int16_t{1}, int16_t{0}, int16_t{0}, int16_t{0}, int16_t{0}};
    g.acc_stride = {int16_t{0}, int16_t{60}, int16_t{9}, int16_t{1}, int16_t{0}, int16_t{0}};
    g.inp_addr = static_cast<uint16_t>(one_in(8) ? pick(20, 200) : 2 * pick(10, 100) + 1);
  }
  const auto k = static_cast<size_t>(pick(0, 5));
  switch (pick(0, 11)) {
    case 0: g.inp_stride[k] = static_cast<int16_t>(g.inp_stride[k] + pick(-1, 1)); break;
    case 1:
      g.inp_stride[k] = static_cast<int16_t>(-g.inp_stride[k]);
      g.inp_addr = 150;
      break;
    case 2: g.wgt_stride[k] = static_cast<int16_t>(pick(-1, 2)); break;
    case 3: g.acc_stride[k] = static_cast<int16_t>(pick(-1, 1)); break;
    case 4: g.extent[k] = static_cast<uint16_t>(pick(1, 4)); break;
    case 5:  // all backwards
      for (auto& stride : g.inp_stride) stride = static_cast<int16_t>(-stride);
      g.inp_addr = 300;
      break;
    case 6: g.reduce = static_cast<uint8_t>(pick(1, 3)); break;
    default: break;
  }
  return g;
}

/// The entry asked for; of a machine that reads pairs the even one and the odd one side by side. Of a pair one may lie
/// outside of the memory, since the engine has no use for it.
inline bool read_input(const Memory& memory, uint32_t address, bool pair, void* port, size_t bytes) {
  if (bytes < 2 * memory.entry) return !pair && memory.read(address, port);
  auto* sides = static_cast<uint8_t*>(port);
  const size_t count = bytes / memory.entry;  // a port is a whole number of words
  const bool first = memory.read(address, sides + address % count * memory.entry);
  const uint32_t next = (address + 1) % (1U << 14);
  return pair ? memory.read(next, sides + next % count * memory.entry) || first : first;
}

/// The pair of the row above, from the other two memories. In front of a raster's second row it means nothing.
inline bool read_above(const Memory& memory, uint32_t address, uint32_t above, void* port) {
  if (address % 2 != 0 || above % 4 != (address + 2) % 4) return false;
  read_input(memory, above, true, port, 4 * memory.entry);
  return true;
}

/// One cycle. The memories answer in the next one; a port that was not asked keeps its data only where nobody shares
/// it.
template <typename Model>
bool cycle(Model& model, Memories& m, Feeder& feeder, std::mt19937_64& random, Moments& moments) {
  feeder.drive(model);
  model.clk_i = 0;
  model.eval();
  if (model.instr_valid_i && model.instr_ready_o) moments.taken.push_back(moments.now);
  if (model.complete_o) moments.completed.push_back(moments.now);
  moments.steps += model.issue_o;
  ++moments.now;
  feeder.observe(model);
  const bool pair = model.inp_pair_o;
  const bool inp = model.inp_req_o, wgt = model.wgt_req_o, acc = model.acc_req_o, we = model.acc_we_o;
  const bool rows = model.inp_rows_o;
  const uint32_t above = model.inp_above_o;
  const uint32_t inp_addr = model.inp_addr_o, wgt_addr = model.wgt_addr_o, acc_addr = model.acc_addr_o;
  const uint32_t waddr = model.acc_waddr_o;
  std::vector<uint8_t> wdata(m.acc.entry);
  std::vector<uint8_t> enables((m.acc.entry + 7) / 8);
  std::memcpy(wdata.data(), &model.acc_wdata_o, wdata.size());
  std::memcpy(enables.data(), &model.acc_wbe_o, enables.size());
  model.clk_i = 1;
  model.eval();
  bool ok = true;
  if (inp) ok = read_input(m.inp, inp_addr, pair, &model.inp_rdata_i, sizeof(model.inp_rdata_i)) && ok;
  if (inp && rows) ok = read_above(m.inp, inp_addr, above, &model.inp_rdata_i) && ok;
  if (wgt) ok = m.wgt.read(wgt_addr, &model.wgt_rdata_i) && ok;
  if (acc) {
    ok = m.acc.read(acc_addr, &model.acc_rdata_i) && ok;
  } else {
    std::vector<uint8_t> noise(m.acc.entry, static_cast<uint8_t>(random()));
    std::memcpy(&model.acc_rdata_i, noise.data(), noise.size());
  }
  if (we) {
    std::vector<uint8_t> merged(m.acc.entry);
    ok = m.acc.read(waddr, merged.data()) && ok;
    for (size_t n = 0; n < merged.size(); ++n) {
      if (enables[n / 8] >> (n % 8) & 1) merged[n] = wdata[n];
    }
    ok = m.acc.write(waddr, merged.data()) && ok;
  }
  return ok;
}

/// The cycles of isa/timing.md. Prints the first that differs.
bool on_time(const std::vector<isa::Instruction>& program, const isa::FaultRecord& fault, const Moments& moments,
             int pairs) {
  GemmTiming timing(pairs);
  int64_t steps = 0;
  for (size_t n = 0; n < moments.completed.size(); ++n) {
    const bool faults = fault.code != isa::Fault::kNone && n == fault.pc;
    const int64_t expected = timing.complete(program[n], faults, moments.taken[n]);
    if (!faults && std::holds_alternative<isa::Gemm>(program[n])) steps += timing.steps();
    if (moments.completed[n] == expected) continue;
    std::printf("instruction %zu, taken in %lld, completes in %lld, expected %lld\n", n,
                static_cast<long long>(moments.taken[n]), static_cast<long long>(moments.completed[n]),
                static_cast<long long>(expected));
    return false;
  }
  if (steps == moments.steps) return true;
  std::printf("%lld steps, expected %lld\n", static_cast<long long>(moments.steps), static_cast<long long>(steps));
  return false;
}

template <typename Model>
bool run(int batch, int block_in, int block_out, int batches, uint64_t seed, int pairs = 0) {
  isa::MachineConfig config = sim::testing::odd_config(batch, block_in, block_out, kEntries);
  config.raster_pairs = pairs;
  isa::validate(config);
  auto context = std::make_unique<VerilatedContext>();
  auto model = std::make_unique<Model>(context.get());
  std::mt19937_64 random(seed);
  reset(*model);
  size_t instructions = 0, faults = 0;
  int64_t cycles = 0;
  for (int n = 0; n < batches; ++n) {
    sim::testing::RandomProgramMaker maker(config, random(), {.iterations = 60});
    std::vector<isa::Instruction> program;
    while (program.size() < 12) {
      isa::Instruction next = maker.make_gemm();
      if (random() % 3 == 0) {
        next = make_raster(config, random);
        if (isa::check_operands(next, config) || isa::check_ranges(next, config)) continue;
      }
      if (random() % 8 == 0) {
        isa::Fence fence;
        fence.engine = isa::Engine::kGemm;
        next = fence;
      }
      if (auto* gemm = std::get_if<isa::Gemm>(&next); gemm && random() % 32 == 0) {
        (random() % 2   ? gemm->acc_addr
         : random() % 2 ? gemm->inp_addr
                        : gemm->wgt_addr) = static_cast<uint16_t>(random() % 128);
      }
      isa::header_of(next).signal = random() % 2;
      if (!isa::check_operands(next, config)) program.push_back(next);
    }
    sim::Machine machine(config, sim::Kernels::kPortable);
    machine.poison(random());
    Memories memories;
    memories.inp.load(machine, isa::Space::kInp, config.inp_entry_bytes());
    memories.wgt.load(machine, isa::Space::kWgt, config.wgt_entry_bytes());
    memories.acc.load(machine, isa::Space::kAcc, config.acc_entry_bytes());
    Feeder feeder(program, static_cast<uint32_t>(1000 * n), random());
    bool ok = true;
    int spent = 0;
    Moments moments;
    do {
      ok = cycle(*model, memories, feeder, random, moments) && ok;
    } while (!feeder.done() && ++spent < kWatchdogCycles);
    program.push_back(isa::Finish{});
    const sim::RunResult expected = machine.run({.instructions = program});
    program.pop_back();
    ok = feeder.check(expected.fault) && on_time(program, expected.fault, moments, pairs) &&
         same(memories.acc, machine, isa::Space::kAcc) && ok;
    if (!ok) {
      std::printf("gemm %dx%dx%d%s: batch %d of seed %llu fails\n", batch, block_in, block_out,
                  pairs == 2   ? " in pairs of rows"
                  : pairs == 1 ? " in pairs"
                               : "",
                  n, static_cast<unsigned long long>(seed));
      return false;
    }
    instructions += program.size();
    faults += !expected.ok();
    cycles += spent;
  }
  std::printf("gemm %dx%dx%d%s: %zu instructions, %zu faults, %lld cycles\n", batch, block_in, block_out,
              pairs == 2   ? " in pairs of rows"
              : pairs == 1 ? " in pairs"
                           : "",
              instructions, faults, static_cast<long long>(cycles));
  return true;
}

/// Prints the cycles of one instruction's issue in a steady sequence of four, and its multiply-accumulates a cycle.
template <typename Model>
void measure(const char* name, const isa::Gemm& gemm, int batch, int block_in, int block_out) {
  isa::MachineConfig config = sim::testing::odd_config(batch, block_in, block_out, kEntries);
  auto context = std::make_unique<VerilatedContext>();
  auto model = std::make_unique<Model>(context.get());
  std::mt19937_64 random(1);
  reset(*model);
  constexpr int kCopies = 4;
  const std::vector<isa::Instruction> program(kCopies, gemm);
  sim::Machine machine(config, sim::Kernels::kPortable);
  Memories memories;
  memories.inp.load(machine, isa::Space::kInp, config.inp_entry_bytes());
  memories.wgt.load(machine, isa::Space::kWgt, config.wgt_entry_bytes());
  memories.acc.load(machine, isa::Space::kAcc, config.acc_entry_bytes());
  Feeder feeder(program, 0, 1);
  int spent = 0;
  Moments moments;
  do {
    cycle(*model, memories, feeder, random, moments);
  } while (!feeder.done() && ++spent < kWatchdogCycles);
  const int64_t issued = moments.steps;
  int64_t steps = 1;
  for (const uint16_t extent : gemm.extent) steps *= extent;
  const int64_t macs = steps * batch * block_out * (gemm.mode == isa::GemmMode::kDense ? block_in : 1);
  std::printf("%-28s %dx%dx%d: %lld cycles an instruction, %.1f multiply-accumulates a cycle; %d cycles for all\n",
              name, batch, block_in, block_out, static_cast<long long>(issued / kCopies),
              static_cast<double>(macs * kCopies) / static_cast<double>(issued), spent);
}

template <typename Model>
void measure_all(int batch, int block_in, int block_out) {
  isa::Gemm dense;
  dense.extent = {1, 1, 8, 8, 1, 8};
  dense.acc_stride = {0, 0, 8, 1, 0, 0};
  dense.inp_stride = {0, 0, 1, 0, 0, 8};
  dense.wgt_stride = {0, 0, 0, 1, 0, 8};
  dense.reduce = 2;
  dense.accumulate = true;
  measure<Model>("dense", dense, batch, block_in, block_out);
  const auto tile = [&](const char* name, const DepthwiseTile& t) {
    measure<Model>(name, t.gemm(false), batch, block_in, block_out);
  };
  tile("3x3 on padded 14x14", {.out_h = 14, .out_w = 14, .kernel_h = 3, .kernel_w = 3});
  tile("3x3, stride 2, 14x14 results",
       {.out_h = 14, .out_w = 14, .kernel_h = 3, .kernel_w = 3, .stride_h = 2, .stride_w = 2});
  tile("5x5, second pass", {.out_h = 14, .out_w = 14, .kernel_h = 3, .kernel_w = 2});
  tile("3x3, one row of results", {.groups = 4, .out_w = 28, .kernel_h = 3, .kernel_w = 3});
  tile("3x3, one column of results", {.groups = 4, .out_h = 28, .kernel_h = 3, .kernel_w = 3});
  tile("1x3", {.out_h = 14, .out_w = 14, .kernel_w = 3});
  tile("3x1", {.out_h = 14, .out_w = 14, .kernel_h = 3});
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) {
  using namespace tessera::testing;
  const int batches = argc > 1 ? std::atoi(argv[1]) : 40;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  measure_all<Vgemm_1x16x16>(1, 16, 16);
  std::printf("in pairs:\n");
  measure_all<Vgemm_1x16x16_pairs>(1, 16, 16);
  return run<Vgemm_1x8x8>(1, 8, 8, batches, seed) && run<Vgemm_1x16x16>(1, 16, 16, batches, seed) &&
                 run<Vgemm_2x8x32>(2, 8, 32, batches, seed) && run<Vgemm_2x32x8>(2, 32, 8, batches, seed) &&
                 run<Vgemm_1x4x4_made>(1, 4, 4, batches, seed) && run<Vgemm_1x16x16_made>(1, 16, 16, batches, seed) &&
                 run<Vgemm_2x8x32_made>(2, 8, 32, batches, seed) && run<Vgemm_2x32x8_made>(2, 32, 8, batches, seed) &&
                 run<Vgemm_1x16x16_pairs>(1, 16, 16, 2 * batches, seed, 1) &&
                 run<Vgemm_2x32x8_pairs_made>(2, 32, 8, batches, seed, 1) &&
                 run<Vgemm_1x16x16_rows>(1, 16, 16, 2 * batches, seed, 2) &&
                 run<Vgemm_1x16x16_rows_made>(1, 16, 16, batches, seed, 2) &&
                 run<Vgemm_2x32x8_rows>(2, 32, 8, batches, seed, 2) &&
                 run<Vgemm_2x8x32_rows_made>(2, 8, 32, batches, seed, 2)
             ? 0
             : 1;
}
