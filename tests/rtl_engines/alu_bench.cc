// SPDX-License-Identifier: Apache-2.0
// tsr_alu against sim::Machine: batches of random ALU instructions (all sources, destinations, reductions, conversions,
// tables, second operations, overlaps inside an instruction, signals, fences, ranges that fault) run on the verilated
// engine over memories of plain bytes. Grants of shared ports are refused at random and read data last one cycle. ACC,
// OUT, INP and the completions must agree byte for byte. Tables enter through the engine's write port. Where nothing is
// refused, the cycles in which instructions are taken and complete must be those of isa/timing.md: its rules are told
// here once more, issue by issue and apart from the timing model; its numbers are those of isa/timing.toml, against
// which the RTL is measured.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include "Valu_1x16x16.h"
#include "Valu_1x16x8.h"
#include "Valu_1x8x8.h"
#include "Valu_2x8x32.h"
#include "Valu_rows_16x16x4.h"
#include "Valu_rows_4x4x1.h"
#include "Valu_rows_8x32x4.h"
#include "isa/generated/timing.h"
#include "isa/verify/verify.h"
#include "sim/tests/configs.h"
#include "sim/tests/random_program.h"
#include "tests/rtl_engines/bench.h"

namespace tessera::testing {
namespace {

namespace timing = isa::timing::alu;

constexpr int kEntries = 64;
constexpr size_t kAxiBytes = 4;

struct Memories {
  Memory acc, out, inp, param;
  size_t second_lanes = 0;

  void load(const sim::Machine& machine, const isa::MachineConfig& config) {
    acc.load(machine, isa::Space::kAcc, config.acc_entry_bytes());
    out.load(machine, isa::Space::kOut, config.out_entry_bytes());
    inp.load(machine, isa::Space::kInp, config.inp_entry_bytes());
    param.load(machine, isa::Space::kParam, config.param_entry_bytes());
    second_lanes = config.second_lanes;
  }
};

void scribble(void* port, size_t bytes, std::mt19937_64& random) {
  std::memset(port, static_cast<int>(random()), bytes);
}

/// The cycles in which each instruction was first offered, was taken, and completed.
struct Timeline {
  int64_t now = 0;
  bool waiting = false;
  std::vector<int64_t> offered, taken, completed;
};

/// Section ALU of isa/timing.md, nothing refused, for a program offered at the cycles given; the last instruction may
/// fault. Fills `taken` and `completed`.
class Prediction {
 public:
  Prediction(const isa::MachineConfig& config, const std::vector<isa::Instruction>& program,
             const std::vector<int64_t>& offered, bool last_faults)
      : config_(config) {
    const size_t n = offered.size();
    int64_t free = 0;  // the next instruction may be taken
    // An instruction is taken before its predecessor's last issues, which it may disturb: look one ahead.
    for (size_t k = 0; k < n; ++k) {
      taken.push_back(std::max(offered[k], free));
      const auto* alu = std::get_if<isa::Alu>(&program[k]);
      const int64_t t = taken[k], done = completed.empty() ? -1 : completed.back();
      const bool constants = reads_constants(alu, config);
      const int64_t prepared =
          std::max(t + timing::kPrepare, constants ? t + timing::kConstants + timing::kConstantsBack : 0);
      if (alu == nullptr) {
        completed.push_back(std::max(t + 1, done + 1));
        free = completed.back();
      } else if (last_faults && k + 1 == n) {
        completed.push_back(std::max(prepared, done + 1));
      } else {
        const int64_t start = std::max(prepared, issue_);
        free = start;
        issue_ = start;
        int64_t constants_of_next = -1;
        if (k + 1 < n && reads_constants(std::get_if<isa::Alu>(&program[k + 1]), config)) {
          constants_of_next = std::max(offered[k + 1], free) + timing::kConstants;
        }
        run(*alu, constants_of_next);
        completed.push_back(newest_);
      }
    }
  }

  std::vector<int64_t> taken, completed;

 private:
  struct Write {
    isa::AluSpace space;
    int entry;
    int64_t cycle;
  };

  static bool reads_constants(const isa::Alu* alu, const isa::MachineConfig& config) {
    return alu != nullptr && alu->second_op != isa::SecondOp::kNone &&
           (alu->constant_addr + size_t{1}) * config.param_entry_bytes() <= config.param_bytes;
  }

  bool pending(isa::AluSpace space, int entry, int64_t cycle) const {
    return std::any_of(writes_.begin(), writes_.end(),
                       [&](const Write& w) { return w.space == space && w.entry == entry && w.cycle >= cycle; });
  }

  /// What the issues of one instruction have in common.
  struct Run {
    const isa::Alu& alu;
    bool second, split;
    int64_t latency, constants_of_next;
  };

  /// One iteration of the nest: its entries, and where it stands in its vector.
  struct Place {
    int src, dst, other;
    bool first, last;
  };

  static Place place(const isa::Alu& alu, const std::array<int, isa::kLoops>& at) {
    const auto entry = [&](int first, const auto& stride) {
      for (size_t k = 0; k < isa::kLoops; ++k) first += at[k] * stride[k];
      return first;
    };
    Place p{entry(alu.src_addr, alu.src_stride), entry(alu.dst_addr, alu.dst_stride),
            entry(alu.second_addr, alu.second_stride), true, true};
    for (size_t k = static_cast<size_t>(isa::kLoops - alu.reduce); k < isa::kLoops; ++k) {
      p.first = p.first && at[k] == 0;
      p.last = p.last && at[k] + 1 == alu.extent[k];
    }
    return p;
  }

  /// Whether the source cannot be read in this cycle.
  bool source_waits(const Run& run, const Place& p) const {
    if (pending(run.alu.src, p.src, issue_)) return true;
    if (p.first && run.second && issue_ < occupied_until_ - (run.split ? 1 : 0)) return true;
    return run.alu.src == isa::AluSpace::kInp && std::any_of(writes_.begin(), writes_.end(), [&](const Write& w) {
             return w.space == isa::AluSpace::kInp && w.cycle == issue_;
           });
  }

  /// Whether the vector cannot end in this cycle.
  bool end_waits(const Run& run, const Place& p) const {
    return (run.second && pending(isa::AluSpace::kOut, p.other, issue_)) || issue_ + run.latency <= newest_ ||
           (run.alu.convert && issue_ == run.constants_of_next && converted_ + 1 == issue_ &&
            converted_before_ + 2 == issue_);
  }

  void issue(const Run& run, const Place& p, bool reads_source, bool end) {
    do {
      ++issue_;
    } while ((reads_source && source_waits(run, p)) || (end && end_waits(run, p)));
    if (!end) return;
    if (run.alu.convert) {
      converted_before_ = converted_;
      converted_ = issue_;
    }
    newest_ = issue_ + run.latency;
    if (run.second) occupied_until_ = issue_ + timing::turns(config_);
    std::erase_if(writes_, [&](const Write& w) { return w.cycle < issue_; });
    writes_.push_back({run.alu.dst, p.dst, newest_});
  }

  void run(const isa::Alu& alu, int64_t constants_of_next) {
    const bool second = alu.second_op != isa::SecondOp::kNone;
    const int64_t latency = !alu.convert && alu.dst == isa::AluSpace::kAcc ? timing::kRaw
                            : second                                       ? timing::second(config_)
                                                                           : timing::kFirst;
    const Run one{alu, second, second && alu.src == isa::AluSpace::kOut, latency, constants_of_next};
    std::array<int, isa::kLoops> at = {};
    for (bool more = true; more;) {
      const Place p = place(alu, at);
      issue(one, p, true, p.last && !one.split);
      if (p.last && one.split) issue(one, p, false, true);
      more = false;
      for (size_t k = isa::kLoops; k-- > 0 && !more;) {
        more = ++at[k] < alu.extent[k];
        if (!more) at[k] = 0;
      }
    }
  }

  const isa::MachineConfig& config_;
  int64_t issue_ = -1, newest_ = -1;  // the last issue, the newest write
  int64_t converted_ = -2;            // the last end with `convert`
  int64_t converted_before_ = -2;     // and the one before it
  int64_t occupied_until_ = 0;        // the second operation, by the last vector
  std::vector<Write> writes_;
};

bool same_times(const Timeline& timeline, const Prediction& expected) {
  for (size_t k = 0; k < timeline.taken.size(); ++k) {
    if (timeline.taken[k] == expected.taken[k] && timeline.completed[k] == expected.completed[k]) continue;
    std::printf("instruction %zu taken in %lld, expected %lld; completed in %lld, expected %lld\n", k,
                static_cast<long long>(timeline.taken[k]), static_cast<long long>(expected.taken[k]),
                static_cast<long long>(timeline.completed[k]), static_cast<long long>(expected.completed[k]));
    return false;
  }
  return true;
}

/// One cycle with grants refused one time in `refuse` (0: never).
/// What the scratchpads would write to OUT and INP, as long as the larger entry of the two.
template <typename Model>
std::vector<uint8_t> written_bytes(const Model& model, const Memories& m) {
  std::vector<uint8_t> bytes(std::max(m.out.entry, m.inp.entry)), table(m.second_lanes);
  std::memcpy(bytes.data(), &model.bytes_o, m.out.entry);
  std::memcpy(table.data(), &model.table_bytes_o, table.size());
  for (size_t k = 0; k < table.size(); ++k) bytes[m.out.entry - m.second_lanes + k] |= table[k];
  return bytes;
}

template <typename Model>
bool cycle(Model& model, Memories& m, Feeder& feeder, std::mt19937_64& random, unsigned refuse, Timeline& timeline) {
  feeder.drive(model);
  const auto grant = [&] { return refuse == 0 || random() % refuse != 0; };
  model.acc_gnt_i = grant();
  model.acc_wgnt_i = grant();
  model.out_gnt_i = grant();
  model.inp_gnt_i = grant();
  model.clk_i = 0;
  model.eval();
  feeder.observe(model);
  if (model.instr_valid_i && !timeline.waiting) timeline.offered.push_back(timeline.now);
  if (model.instr_valid_i && model.instr_ready_o) timeline.taken.push_back(timeline.now);
  timeline.waiting = model.instr_valid_i && !model.instr_ready_o;
  if (model.complete_o) timeline.completed.push_back(timeline.now);
  ++timeline.now;
  const bool acc = model.acc_req_o && model.acc_gnt_i, out = model.out_req_o && model.out_gnt_i;
  const bool inp = model.inp_req_o && model.inp_gnt_i && !model.inp_we_o, param = model.param_req_o;
  const uint32_t acc_addr = model.acc_addr_o, out_addr = model.out_addr_o, inp_addr = model.inp_addr_o;
  const uint32_t param_addr = model.param_addr_o;
  // A read in the cycle of a write sees the old entry, so reads come first; data appear after the edge.
  Model* const p = &model;
  std::vector<uint8_t> acc_data(m.acc.entry), out_data(m.out.entry), inp_data(m.inp.entry), param_data(m.param.entry);
  bool ok = true;
  if (acc) ok = m.acc.read(acc_addr, acc_data.data()) && ok;
  if (out) ok = m.out.read(out_addr, out_data.data()) && ok;
  if (inp) ok = m.inp.read(inp_addr, inp_data.data()) && ok;
  if (param) ok = m.param.read(param_addr, param_data.data()) && ok;
  if (p->acc_we_o && p->acc_wgnt_i) ok = m.acc.write(p->acc_waddr_o, &p->acc_wdata_o, p->acc_keep_o ? 4 : 0) && ok;
  const std::vector<uint8_t> bytes = written_bytes(model, m);
  if (p->out_we_o) ok = m.out.write(p->out_waddr_o, bytes.data()) && ok;
  if (p->inp_req_o && p->inp_we_o) ok = m.inp.write(p->inp_addr_o, bytes.data()) && ok;
  model.clk_i = 1;
  model.eval();
  scribble(&model.acc_rdata_i, m.acc.entry, random);
  scribble(&model.out_rdata_i, m.out.entry, random);
  scribble(&model.inp_rdata_i, m.inp.entry, random);
  if (acc) std::memcpy(&model.acc_rdata_i, acc_data.data(), m.acc.entry);
  if (out) std::memcpy(&model.out_rdata_i, out_data.data(), m.out.entry);
  if (inp) std::memcpy(&model.inp_rdata_i, inp_data.data(), m.inp.entry);
  if (param) std::memcpy(&model.param_rdata_i, param_data.data(), m.param.entry);
  return ok;
}

template <typename Model>
void write_tables(Model& model, const sim::Machine& machine) {
  const auto bytes = machine.scratchpad(isa::Space::kTable);
  for (size_t at = 0; at < bytes.size(); at += kAxiBytes) {
    for (int half = 0; half < 2; ++half) {  // byte enables: two bytes at a time, the others noise
      uint32_t word;
      std::memcpy(&word, &bytes[at], sizeof(word));
      model.tbl_we_i = 1;
      model.tbl_waddr_i = static_cast<uint32_t>(at / kAxiBytes);
      model.tbl_wbe_i = half == 0 ? 5 : 10;
      model.tbl_wdata_i = half == 0 ? word ^ 0xff00ff00 : word ^ 0x00ff00ff;
      model.clk_i = 0;
      model.eval();
      model.clk_i = 1;
      model.eval();
    }
  }
  model.tbl_we_i = 0;
}

/// Now and then an address that may leave its memory.
void make_wild(isa::Alu& alu, std::mt19937_64& random) {
  const auto wild = static_cast<uint16_t>(random() % 128);
  switch (random() % 5) {
    case 0: alu.src_addr = wild; break;
    case 1: alu.dst_addr = wild; break;
    case 2:
      if (alu.convert) alu.param_addr = wild;
      break;
    case 3:
      if (alu.table_enable) alu.table = wild % 16;
      break;
    default:
      if (alu.second_op != isa::SecondOp::kNone) (wild % 2 ? alu.second_addr : alu.constant_addr) = wild;
  }
}

isa::Instruction make_instruction(sim::testing::RandomProgramMaker& maker, bool rows, std::mt19937_64& random) {
  isa::Instruction next = maker.make_alu();
  if (rows && random() % 2 != 0) {
    if (random() % 2 != 0) {
      next = maker.make_row_reduce();
    } else {
      next = maker.make_row_map();
    }
  }
  if (random() % 8 == 0) {
    isa::Fence fence;
    fence.engine = isa::Engine::kAlu;
    next = fence;
  }
  if (auto* alu = std::get_if<isa::Alu>(&next)) {
    // In-place and shifted instructions meet their own writes.
    if (random() % 4 == 0 && alu->src == alu->dst && alu->reduce == 0) {
      alu->src_stride = alu->dst_stride;
      alu->src_addr = static_cast<uint16_t>(alu->dst_addr + random() % 3);
    }
    if (random() % 32 == 0) make_wild(*alu, random);
  }
  isa::header_of(next).signal = random() % 2;
  return next;
}

/// A softmax whose last group has two rows, so that the lanes are done with its sums before all results of the group
/// before have been read, where reads are refused.
isa::RowMap short_last_group(const isa::MachineConfig& config) {
  isa::RowMap map;
  map.operation = isa::Mapping::kSumSoftmax;
  map.src = isa::AluSpace::kInp;
  map.dst = isa::AluSpace::kOut;
  map.extent = {1, 1, 1, 1, static_cast<uint16_t>(4 * config.row_lanes + 2), 2};
  map.row = 1;
  map.src_stride = map.dst_stride = {0, 0, 0, 0, 0, 1};
  map.tail = static_cast<uint8_t>(config.block_out);
  map.sum_table = 4;
  map.high = 255;
  return map;
}

template <typename Model>
bool run(const isa::MachineConfig& config, int batches, uint64_t seed) {
  auto context = std::make_unique<VerilatedContext>();
  auto model = std::make_unique<Model>(context.get());
  std::mt19937_64 random(seed);
  reset(*model);
  size_t instructions = 0, faults = 0;
  int64_t cycles = 0;
  for (int n = 0; n < batches; ++n) {
    sim::testing::RandomProgramMaker maker(config, random(), {.iterations = 60});
    const std::vector<uint8_t> param = maker.make().param;
    std::vector<isa::Instruction> program;
    while (program.size() < 12) {
      const isa::Instruction next = make_instruction(maker, config.row_lanes > 0, random);
      if (!isa::check_operands(next, config) && (random() % 2 == 0 || !isa::check_ranges(next, config))) {
        program.push_back(next);
      }
    }
    // Half of its reads are refused. Where blocks differ, rows of INP are illegal.
    if (n == 1 && config.row_lanes > 0 && config.block_in == config.block_out) {
      program.assign(12, short_last_group(config));
    }
    sim::Machine machine(config, sim::Kernels::kPortable);
    machine.poison(random());
    machine.write_scratchpad(isa::Space::kParam, 0, param);
    Memories memories;
    memories.load(machine, config);
    write_tables(*model, machine);
    model->row_limit_i = static_cast<uint16_t>(random() % 64);
    Feeder feeder(program, static_cast<uint32_t>(1000 * n), random());
    bool ok = true;
    int spent = 0;
    Timeline timeline;
    const auto refuse = static_cast<unsigned>(n % 3 == 0 ? 0 : n % 3 == 1 ? 2 : 6);
    do {
      ok = cycle(*model, memories, feeder, random, refuse, timeline) && ok;
    } while (!feeder.done() && ++spent < kWatchdogCycles);
    program.push_back(isa::Finish{});
    sim::RunRequest request{.instructions = program};
    request.bases[isa::kRowLimitBase] = model->row_limit_i;
    const sim::RunResult expected = machine.run(request);
    program.pop_back();
    ok = feeder.check(expected.fault) && same(memories.acc, machine, isa::Space::kAcc) &&
         same(memories.out, machine, isa::Space::kOut) && same(memories.inp, machine, isa::Space::kInp) && ok;
    if (ok && refuse == 0 && config.row_lanes == 0) {
      timeline.offered.resize(timeline.completed.size());  // a fault leaves the next one untaken
      timeline.taken.resize(timeline.completed.size());
      ok = same_times(timeline, Prediction(config, program, timeline.offered, !expected.ok()));
    }
    if (!ok) {
      std::printf("alu %s: batch %d of seed %llu fails\n", config.name.c_str(), n,
                  static_cast<unsigned long long>(seed));
      return false;
    }
    instructions += program.size();
    faults += !expected.ok();
    cycles += spent;
  }
  std::printf("alu %s: %zu instructions, %zu faults, %lld cycles\n", config.name.c_str(), instructions, faults,
              static_cast<long long>(cycles));
  return true;
}

/// Cycles of four instructions of 1024 vectors each, nothing refused: requantise, add in place, copy of int32.
template <typename Model>
void measure(int batch, int block_in, int block_out) {
  const isa::MachineConfig config = sim::testing::odd_config(batch, block_in, block_out, kEntries);
  auto context = std::make_unique<VerilatedContext>();
  auto model = std::make_unique<Model>(context.get());
  std::mt19937_64 random(1);
  reset(*model);
  for (const char* what : {"convert acc to out", "add acc and out", "add out and out", "copy acc", "sum 4 x 4"}) {
    isa::Alu alu;
    alu.extent = {1, 1, 16, 64, 1, 1};
    alu.src_stride = {0, 0, 0, 1, 0, 0};
    alu.dst_stride = alu.src_stride;
    const std::string name = what;
    if (name != "copy acc") {
      alu.dst = isa::AluSpace::kOut;
      alu.convert = true;
      alu.low = -128;
      alu.high = 127;
    }
    if (name.starts_with("add")) {
      alu.second_op = isa::SecondOp::kAdd;
      alu.second_stride = alu.src_stride;
    }
    if (name == "add out and out") alu.src = isa::AluSpace::kOut;
    if (name == "sum 4 x 4") {
      alu.extent = {1, 1, 8, 8, 4, 4};
      alu.src_stride = {0, 0, 4, 4, 1, 1};
      alu.reduce = 2;
    }
    const std::vector<isa::Instruction> program(4, alu);
    sim::Machine machine(config, sim::Kernels::kPortable);
    Memories memories;
    memories.load(machine, config);
    Feeder feeder(program, 0, 1);
    Timeline timeline;
    int spent = 0;
    do cycle(*model, memories, feeder, random, 0, timeline);
    while (!feeder.done() && ++spent < kWatchdogCycles);
    std::printf("alu %dx%dx%d %s: 4096 source vectors in %d cycles\n", batch, block_in, block_out, what, spent);
  }
}

}  // namespace
}  // namespace tessera::testing

int main(int argc, char** argv) {
  using namespace tessera::testing;
  const int batches = argc > 1 ? std::atoi(argv[1]) : 40;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  measure<Valu_1x8x8>(1, 8, 8);
  const auto odd = [](int batch, int block_in, int block_out) {
    return tessera::sim::testing::odd_config(batch, block_in, block_out, kEntries);
  };
  const auto rows = [](int block_in, int block_out, int turns) {
    return tessera::sim::testing::row_config(block_in, block_out, kEntries, turns);
  };
  return run<Valu_1x8x8>(odd(1, 8, 8), batches, seed) && run<Valu_1x16x16>(odd(1, 16, 16), batches, seed) &&
                 run<Valu_2x8x32>(odd(2, 8, 32), batches, seed) && run<Valu_1x16x8>(odd(1, 16, 8), batches, seed) &&
                 run<Valu_rows_16x16x4>(rows(16, 16, 4), batches, seed) &&
                 run<Valu_rows_8x32x4>(rows(8, 32, 8), batches, seed) &&
                 run<Valu_rows_4x4x1>(rows(4, 4, 4), batches, seed)
             ? 0
             : 1;
}
