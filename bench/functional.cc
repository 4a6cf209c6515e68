// SPDX-License-Identifier: Apache-2.0
// Speed of the functional simulator on one core: an int8 matrix product of 512 x 1024 x 1024 as a program for npu256.
// Enters: nothing, or --config NAME. Leaves: one JSON object on standard output. gemm_gmacs counts 10^9
// multiply-accumulates a second over the LOAD and GEMM instructions of the whole product; matmul_gmacs adds
// requantisation and STORE; others say what the other kernel sets reach and how fast single engines are. Results are
// compared with plain loops before anything is printed.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "isa/config.h"
#include "isa/verify/verify.h"
#include "sim/functional/machine.h"

namespace {

using namespace tessera;

constexpr int kM = 512, kN = 1024, kK = 1024;
constexpr int kA = 0, kW = 1, kC = 2, kP = 3;  // base registers

/// Best seconds of one call over about half a second.
double seconds(const std::function<void()>& body) {
  using Clock = std::chrono::steady_clock;
  double best = 1e9;
  const auto start = Clock::now();
  for (int n = 0; n < 3 || Clock::now() - start < std::chrono::milliseconds(500); ++n) {
    const auto before = Clock::now();
    body();
    best = std::min(best, std::chrono::duration<double>(Clock::now() - before).count());
  }
  return best;
}

/// The product in tiles that fill INP, WGT and ACC: for each block of columns its weights once, for each block of rows
/// all of K. `tail`: requantise and store too.
std::vector<isa::Instruction> matmul(const isa::MachineConfig& c, bool tail) {
  const int kb = kK / c.block_in;
  const int nb = kN / c.block_out;
  const int rows = static_cast<int>(std::min<int64_t>({c.inp_depth() / kb, c.out_depth(), int64_t{kM}}));
  int columns = static_cast<int>(std::min<int64_t>({c.wgt_depth() / kb, c.acc_depth() / rows, int64_t{nb}}));
  columns = std::min<int>(columns, static_cast<int>(c.out_depth() / rows));
  while (nb % columns != 0) --columns;
  std::array<uint16_t, isa::kEngines> signals{};
  std::vector<isa::Instruction> program;
  const auto add = [&](isa::Instruction instruction, std::initializer_list<isa::Engine> waits) {
    isa::Header& header = isa::header_of(instruction);
    header.signal = true;
    size_t k = 0;
    for (const isa::Engine engine : waits) header.waits[k++] = {true, engine, signals[static_cast<size_t>(engine)]};
    ++signals[static_cast<size_t>(*isa::engine_of(instruction))];
    program.push_back(std::move(instruction));
  };
  using enum isa::Engine;
  isa::Load param;
  param.space = isa::Space::kParam;
  param.base = kP;
  param.length = static_cast<uint16_t>(std::min<int64_t>(nb * c.param_entry_bytes(), 65535));
  if (tail) add(param, {});
  for (int n = 0; n < nb; n += columns) {
    isa::Load weights;  // [columns][kb] tiles of BLOCK_OUT x BLOCK_IN, stored in that order
    weights.space = isa::Space::kWgt;
    weights.base = kW;
    weights.dram_offset = static_cast<uint64_t>(n) * kb * c.wgt_entry_bytes();
    weights.length = static_cast<uint16_t>(c.wgt_entry_bytes());
    weights.extent = {1, 1, static_cast<uint16_t>(columns), static_cast<uint16_t>(kb)};
    weights.dram_stride = {0, 0, kb * c.wgt_entry_bytes(), c.wgt_entry_bytes()};
    weights.sp_stride = weights.dram_stride;
    add(weights, {kGemm});
    for (int m = 0; m < kM; m += rows) {
      const int height = std::min(rows, kM - m);
      isa::Load input;
      input.space = isa::Space::kInp;
      input.base = kA;
      input.dram_offset = static_cast<uint64_t>(m) * kK;
      input.length = kK;
      input.extent = {1, 1, 1, static_cast<uint16_t>(height)};
      input.dram_stride = {0, 0, 0, kK};
      input.sp_stride = {0, 0, 0, kK};
      add(input, {kGemm});
      isa::Gemm gemm;
      gemm.extent = {1, 1, 1, static_cast<uint16_t>(columns), static_cast<uint16_t>(height), static_cast<uint16_t>(kb)};
      gemm.inp_stride = {0, 0, 0, 0, static_cast<int16_t>(kb), 1};
      gemm.wgt_stride = {0, 0, 0, static_cast<int16_t>(kb), 0, 1};
      gemm.acc_stride = {0, 0, 0, 1, static_cast<int16_t>(columns), 0};
      gemm.inp_unsigned = true;
      gemm.inp_zero = 131;
      gemm.reduce = 1;
      add(gemm, {kLoad, kAlu});
      if (!tail) continue;
      isa::Alu alu;
      alu.extent = {1, 1, 1, 1, static_cast<uint16_t>(columns), static_cast<uint16_t>(height)};
      alu.src_stride = {0, 0, 0, 0, 1, static_cast<int16_t>(columns)};
      alu.dst = isa::AluSpace::kOut;
      alu.dst_stride = alu.src_stride;
      alu.convert = true;
      alu.param_addr = static_cast<uint16_t>(n);
      alu.param_loop = 4;
      alu.low = -128;
      alu.high = 127;
      add(alu, {kGemm, kStore});
      isa::Store store;
      store.space = isa::Space::kOut;
      store.base = kC;
      store.dram_offset = static_cast<uint64_t>(m) * kN + static_cast<uint64_t>(n) * c.block_out;
      store.length = static_cast<uint16_t>(columns * c.block_out);
      store.extent = {1, 1, 1, static_cast<uint16_t>(height)};
      store.dram_stride = {0, 0, 0, kN};
      store.sp_stride = {0, 0, 0, columns * c.block_out};
      add(store, {kAlu});
    }
  }
  program.push_back(isa::Finish{});
  isa::check_program(program, c);
  return program;
}

struct Data {
  std::vector<uint8_t> a, w, c, p;
  std::vector<sim::DramRegion> regions;
  std::array<uint64_t, 16> bases{};
};

Data make_data(const isa::MachineConfig& config) {
  Data d;
  std::mt19937 random(1);
  d.a.resize(size_t{kM} * kK);
  d.w.resize(size_t{kN} * kK);
  d.c.resize(size_t{kM} * kN);
  d.p.resize(static_cast<size_t>(kN / config.block_out) * static_cast<size_t>(config.param_entry_bytes()));
  for (uint8_t& byte : d.a) byte = static_cast<uint8_t>(random());
  for (uint8_t& byte : d.w) byte = static_cast<uint8_t>(random());
  const auto block = static_cast<size_t>(config.block_out);
  for (size_t entry = 0; entry < d.p.size() / (8 * block); ++entry) {
    for (size_t o = 0; o < block; ++o) {
      const auto bias = static_cast<int32_t>(random() % 20001) - 10000;
      const float scale = 1.0f / static_cast<float>(1000 + random() % 3000);
      std::memcpy(&d.p[(entry * 2 * block + o) * 4], &bias, 4);
      std::memcpy(&d.p[(entry * 2 * block + block + o) * 4], &scale, 4);
    }
  }
  for (std::vector<uint8_t>* region : {&d.a, &d.w, &d.c, &d.p}) {
    d.bases[d.regions.size()] = (d.regions.size() + 1) << 32;
    d.regions.push_back({d.bases[d.regions.size()], region->data(), region->size()});
  }
  return d;
}

void run(sim::Machine& machine, Data& data, const std::vector<isa::Instruction>& program) {
  sim::RunRequest request;
  request.instructions = program;
  request.bases = data.bases;
  request.dram = data.regions;
  const sim::RunResult result = machine.run(request);
  if (!result.ok()) {
    throw Error(ErrorCode::kInternal, "the benchmark's program stopped with " +
                                          std::string(to_string(result.fault.code)) + " at instruction " +
                                          std::to_string(result.fault.pc));
  }
}

/// Compares every 97th element with plain loops.
void check(const isa::MachineConfig& c, const Data& d) {
  for (int64_t index = 0; index < int64_t{kM} * kN; index += 97) {
    const int m = static_cast<int>(index / kN), n = static_cast<int>(index % kN);
    const int o = n % c.block_out, nb = n / c.block_out;
    int32_t sum = 0;
    for (int k = 0; k < kK; ++k) {
      const size_t tile = static_cast<size_t>(nb) * (kK / c.block_in) + k / c.block_in;
      const auto w = static_cast<int8_t>(d.w[(tile * c.block_out + o) * c.block_in + k % c.block_in]);
      sum += (int32_t{d.a[static_cast<size_t>(m) * kK + k]} - 131) * w;
    }
    int32_t bias;
    float scale;
    std::memcpy(&bias, &d.p[(static_cast<size_t>(nb) * 2 * c.block_out + o) * 4], 4);
    std::memcpy(&scale, &d.p[(static_cast<size_t>(nb) * 2 * c.block_out + c.block_out + o) * 4], 4);
    const float v = std::nearbyint(std::clamp(static_cast<float>(sum + bias) * scale, -128.0f, 127.0f));
    if (static_cast<int8_t>(d.c[index]) != static_cast<int8_t>(v)) {
      throw Error(ErrorCode::kInternal,
                  "the product differs at row " + std::to_string(m) + ", column " + std::to_string(n));
    }
  }
}

/// 10^9 MACs a second of a depthwise 3x3 over rows that fill INP, and 10^6 ALU vectors a second of a requantisation.
double depthwise_gmacs(sim::Machine& machine, Data& data) {
  const isa::MachineConfig& c = machine.config();
  const auto side = static_cast<uint16_t>(32);
  isa::Gemm g;
  g.mode = isa::GemmMode::kDepthwise;
  g.reduce = 2;
  g.extent = {1, 1, side, side, 3, 3};
  const auto pitch = static_cast<int16_t>(side + 2);
  g.inp_stride = {0, 0, pitch, 1, pitch, 1};
  g.acc_stride = {0, 0, static_cast<int16_t>(side), 1, 0, 0};
  const std::vector<isa::Instruction> program{g, isa::Finish{}};
  if (isa::check_operands(g, c) || isa::check_ranges(g, c)) return 0;
  return 9e-9 * side * side * c.batch * c.lanes() / seconds([&] { run(machine, data, program); });
}

double alu_mvectors(sim::Machine& machine, Data& data) {
  isa::Alu alu;
  alu.extent = {1, 1, 1, 1, 1, 1024};
  alu.src_stride[5] = 1;
  alu.dst_stride[5] = 1;
  alu.dst = isa::AluSpace::kOut;
  alu.convert = true;
  alu.low = -128;
  alu.high = 127;
  const std::vector<isa::Instruction> program{alu, isa::Finish{}};
  return 1024e-6 / seconds([&] { run(machine, data, program); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    std::string config_name = "npu256";
    for (int k = 1; k < argc; ++k) {
      if (std::string(argv[k]) == "--config" && k + 1 < argc) {
        config_name = argv[++k];
      } else if (std::string(argv[k]) != "--json") {
        throw Error(ErrorCode::kInvalidArgument,
                    std::string("usage: functional [--json] [--config NAME]; not '") + argv[k] + "'");
      }
    }
    const isa::MachineConfig config = isa::find_config(config_name);
    const auto gemm_only = matmul(config, false);
    const auto whole = matmul(config, true);
    const double gmacs = 1e-9 * kM * kN * kK;
    Data data = make_data(config);
    const auto measure = [&](sim::Kernels kernels, const std::vector<isa::Instruction>& program) {
      sim::Machine machine(config, kernels);
      return gmacs / seconds([&] { run(machine, data, program); });
    };
    const sim::Kernels best = sim::default_kernels();
    sim::Machine machine(config, best);
    run(machine, data, whole);
    check(config, data);
    const double fast = measure(best, gemm_only);
    const double portable = measure(sim::Kernels::kPortable, gemm_only);
    std::printf("{\"gemm_gmacs\": %.1f, \"matmul_gmacs\": %.1f, \"kernels\": \"%s\", \"config\": \"%s\", ", fast,
                measure(best, whole), std::string(to_string(best)).c_str(), config.name.c_str());
    if (sim::supported(sim::Kernels::kAvx2)) {
      std::printf("\"avx2_gmacs\": %.1f, ", measure(sim::Kernels::kAvx2, gemm_only));
    }
    std::printf(
        "\"portable_gmacs\": %.2f, \"ratio_to_portable\": %.1f, \"depthwise_gmacs\": %.1f, \"alu_mvectors\": %.1f}\n",
        portable, fast / portable, depthwise_gmacs(machine, data), alu_mvectors(machine, data));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "functional: %s\n", error.what());
    return 1;
  }
}
