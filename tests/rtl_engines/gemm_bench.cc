// SPDX-License-Identifier: Apache-2.0
// tsr_gemm against sim::Machine: batches of random GEMM instructions (all modes, strides, reductions, signals, fences,
// ranges that fault) run on the verilated engine over memories of plain bytes; ACC and the completions must agree byte
// for byte. Random gaps between instructions; every other batch has none. `--cycles` prints the cycles of steady nests.
#include <cstdlib>
#include <memory>
#include <string>

#include "Vgemm_1x16x16.h"
#include "Vgemm_1x8x8.h"
#include "Vgemm_2x8x32.h"
#include "Vgemm_2x32x8.h"
#include "isa/verify.h"
#include "sim/testing/configs.h"
#include "sim/testing/random_program.h"
#include "tests/rtl_engines/bench.h"

namespace tessera::testing {
namespace {

constexpr int kEntries = 64;

struct Memories {
  Memory inp, wgt, acc;
};

/// One cycle. The memories answer in the next one; a port that was not asked keeps its data only where nobody shares it.
template <typename Model>
bool cycle(Model& model, Memories& m, Feeder& feeder, std::mt19937_64& random) {
  feeder.drive(model);
  model.clk_i = 0;
  model.eval();
  feeder.observe(model);
  const bool inp = model.inp_req_o, wgt = model.wgt_req_o, acc = model.acc_req_o, we = model.acc_we_o;
  const uint32_t inp_addr = model.inp_addr_o, wgt_addr = model.wgt_addr_o, acc_addr = model.acc_addr_o;
  const uint32_t waddr = model.acc_waddr_o;
  std::vector<uint8_t> wdata(m.acc.entry);
  std::vector<uint8_t> enables((m.acc.entry + 7) / 8);
  std::memcpy(wdata.data(), &model.acc_wdata_o, wdata.size());
  std::memcpy(enables.data(), &model.acc_wbe_o, enables.size());
  model.clk_i = 1;
  model.eval();
  bool ok = true;
  if (inp) ok = m.inp.read(inp_addr, &model.inp_rdata_i) && ok;
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

template <typename Model>
bool run(int batch, int block_in, int block_out, int batches, uint64_t seed) {
  const isa::MachineConfig config = sim::testing::odd_config(batch, block_in, block_out, kEntries);
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
      if (random() % 8 == 0) {
        isa::Fence fence;
        fence.engine = isa::Engine::kGemm;
        next = fence;
      }
      if (auto* gemm = std::get_if<isa::Gemm>(&next); gemm && random() % 32 == 0) {
        (random() % 2 ? gemm->acc_addr : random() % 2 ? gemm->inp_addr : gemm->wgt_addr) =
            static_cast<uint16_t>(random() % 128);
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
    do {
      ok = cycle(*model, memories, feeder, random) && ok;
    } while (!feeder.done() && ++spent < kWatchdogCycles);
    program.push_back(isa::Finish{});
    const sim::RunResult expected = machine.run({.instructions = program});
    program.pop_back();
    ok = feeder.check(expected.fault) && same(memories.acc, machine, isa::Space::kAcc) && ok;
    if (!ok) {
      std::printf("gemm %dx%dx%d: batch %d of seed %llu fails\n", batch, block_in, block_out, n,
                  static_cast<unsigned long long>(seed));
      return false;
    }
    instructions += program.size();
    faults += !expected.ok();
    cycles += spent;
  }
  std::printf("gemm %dx%dx%d: %zu instructions, %zu faults, %lld cycles\n", batch, block_in, block_out, instructions,
              faults, static_cast<long long>(cycles));
  return true;
}

/// Cycles from the first instruction's acceptance to the last completion: four dense nests of 8 x 8 x 8 tiles.
template <typename Model>
void measure(int batch, int block_in, int block_out) {
  const isa::MachineConfig config = sim::testing::odd_config(batch, block_in, block_out, kEntries);
  auto context = std::make_unique<VerilatedContext>();
  auto model = std::make_unique<Model>(context.get());
  std::mt19937_64 random(1);
  reset(*model);
  for (const isa::GemmMode mode : {isa::GemmMode::kDense, isa::GemmMode::kDepthwise}) {
    isa::Gemm gemm;
    gemm.mode = mode;
    gemm.extent = {1, 1, 8, 8, 1, 8};
    gemm.acc_stride = {0, 0, 8, 1, 0, 0};
    gemm.inp_stride = {0, 0, 1, 0, 0, 8};
    gemm.wgt_stride = {0, 0, 0, 1, 0, mode == isa::GemmMode::kDense ? int16_t{8} : int16_t{0}};
    gemm.reduce = 2;
    gemm.accumulate = true;
    const std::vector<isa::Instruction> program(4, gemm);
    sim::Machine machine(config, sim::Kernels::kPortable);
    Memories memories;
    memories.inp.load(machine, isa::Space::kInp, config.inp_entry_bytes());
    memories.wgt.load(machine, isa::Space::kWgt, config.wgt_entry_bytes());
    memories.acc.load(machine, isa::Space::kAcc, config.acc_entry_bytes());
    Feeder feeder(program, 0, 1);
    int spent = 0;
    do cycle(*model, memories, feeder, random);
    while (!feeder.done() && ++spent < kWatchdogCycles);
    std::printf("gemm %dx%dx%d %s: 2048 tiles in %d cycles\n", batch, block_in, block_out,
                std::string(isa::to_string(mode)).c_str(), spent);
  }
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) {
  using namespace tessera::testing;
  const int batches = argc > 1 ? std::atoi(argv[1]) : 40;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  measure<Vgemm_1x16x16>(1, 16, 16);
  return run<Vgemm_1x8x8>(1, 8, 8, batches, seed) && run<Vgemm_1x16x16>(1, 16, 16, batches, seed) &&
                 run<Vgemm_2x8x32>(2, 8, 32, batches, seed) && run<Vgemm_2x32x8>(2, 32, 8, batches, seed)
             ? 0
             : 1;
}
