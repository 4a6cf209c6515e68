// SPDX-License-Identifier: Apache-2.0
// The static rules, one function for each instruction; ranges are those of the operands that isa.toml declares.
#include "isa/verify/verify.h"

#include <algorithm>

#include "base/error.h"
#include "base/row_arithmetic.h"

namespace tessera::isa {
namespace {

using Result = std::optional<Violation>;

constexpr int kNoLoop = 7;  // param_loop of parameters that no loop moves

Violation illegal(std::string message) { return {Fault::kIllegalOperand, std::move(message)}; }

std::string element(const char* name, size_t k) { return std::string(name) + "[" + std::to_string(k) + "]"; }

template <size_t N, typename T>
Result check_extents(const std::array<T, N>& extent) {
  for (size_t k = 0; k < N; ++k) {
    if (extent[k] == 0) return illegal(element("extent", k) + " is 0");
  }
  return {};
}

/// Strides of loops that belong to the reduction must be zero.
template <size_t N, typename T>
Result check_reduced_strides(const char* name, const std::array<T, N>& stride, int reduce) {
  for (size_t k = N - static_cast<size_t>(reduce); k < N; ++k) {
    if (stride[k] != 0) return illegal(element(name, k) + " is not 0 in a reduction loop");
  }
  return {};
}

template <typename T, size_t N>
bool all_zero(const std::array<T, N>& values) {
  return std::all_of(values.begin(), values.end(), [](T v) { return v == 0; });
}

Result check_zero_point(const char* name, int zero, bool is_unsigned) {
  if (is_unsigned ? (zero < 0 || zero > 255) : (zero < -128 || zero > 127)) {
    return illegal(std::string(name) + " = " + std::to_string(zero) + " is no " + (is_unsigned ? "uint8" : "int8"));
  }
  return {};
}

Result check(const Finish& i, const MachineConfig&) {
  if (i.header.signal) return illegal("finish cannot signal");
  return {};
}

Result check(const Fence& i, const MachineConfig& config) {
  if ((i.publish || i.await) && config.cores == 1) return illegal("publish or await on a machine of one core");
  if (i.publish && i.engine != Engine::kStore) return illegal("publish is for store");
  if (i.await && i.engine != Engine::kLoad && i.engine != Engine::kStore) return illegal("await is for load and store");
  if (!i.await && (i.await_core != 0 || i.await_count != 0)) return illegal("await_core or await_count without await");
  if (i.await && i.await_core >= config.cores) {
    return illegal("await_core = " + std::to_string(i.await_core) + " is beyond " + std::to_string(config.cores) +
                   " cores");
  }
  return {};
}

/// A packed LOAD: whole WGT entries in the scratchpad, whole beats in DRAM.
Result check_packed(const Load& i, const MachineConfig& config) {
  if (config.packed_weights == 0) return illegal("packed: the machine has packed_weights = 0");
  if (i.space != Space::kWgt) return illegal("packed with space " + std::string(to_string(i.space)) + ", not wgt");
  if (i.fill) return illegal("packed with fill");
  if (!all_zero(i.pad_before) || !all_zero(i.pad_after) || i.pad_value != 0) return illegal("packed with padding");
  if (i.length != config.packed_entry_bytes()) {
    return illegal("packed: length is " + std::to_string(i.length) + ", a packed entry has " +
                   std::to_string(config.packed_entry_bytes()) + " bytes");
  }
  const int entry = config.wgt_entry_bytes(), beat = config.axi_bytes;
  if (i.sp_addr % static_cast<uint32_t>(entry) != 0) return illegal("packed: sp_addr is no multiple of a WGT entry");
  if (i.dram_offset % static_cast<uint64_t>(beat) != 0) return illegal("packed: dram_offset is no multiple of a beat");
  for (size_t k = 0; k < i.extent.size(); ++k) {
    if (i.sp_stride[k] % entry != 0)
      return illegal("packed: " + element("sp_stride", k) + " is no multiple of a WGT entry");
    if (i.dram_stride[k] % beat != 0)
      return illegal("packed: " + element("dram_stride", k) + " is no multiple of a beat");
  }
  return {};
}

Result check(const Load& i, const MachineConfig& config) {
  if (auto v = check_extents(i.extent)) return v;
  if (i.length == 0) return illegal("length is 0");
  for (size_t k = 0; k < i.pad_before.size(); ++k) {
    if (i.pad_before[k] + i.pad_after[k] > i.extent[k]) {
      return illegal("pad_before + pad_after of loop " + std::to_string(k) + " exceed its extent");
    }
  }
  if (i.fill) {
    if (!all_zero(i.pad_before) || !all_zero(i.pad_after)) return illegal("a fill has no padding");
    if (i.base != 0 || i.dram_offset != 0 || !all_zero(i.dram_stride)) return illegal("a fill has no DRAM address");
  }
  if (i.packed) return check_packed(i, config);
  return {};
}

Result check(const Store& i, const MachineConfig&) {
  if (i.space != Space::kOut && i.space != Space::kAcc) return illegal("a store reads out or acc");
  if (auto v = check_extents(i.extent)) return v;
  if (i.length == 0) return illegal("length is 0");
  return {};
}

Result check(const Gemm& i, const MachineConfig& config) {
  if (auto v = check_extents(i.extent)) return v;
  if (i.reduce > kLoops) return illegal("reduce exceeds 6");
  if (auto v = check_zero_point("inp_zero", i.inp_zero, i.inp_unsigned)) return v;
  if (auto v = check_zero_point("wgt_zero", i.wgt_zero, i.wgt_unsigned)) return v;
  if (auto v = check_reduced_strides("acc_stride", i.acc_stride, i.reduce)) return v;
  if (i.mode == GemmMode::kDense) {
    if (i.lane != 0) return illegal("lane is for depthwise");
    return {};
  }
  if (i.reduce == 0) return illegal("depthwise needs a tap loop (reduce = 0)");
  const int tap_loops = std::min<int>(i.reduce, 2);
  int64_t taps = 1;
  for (int k = kLoops - tap_loops; k < kLoops; ++k) {
    taps *= i.extent[k];
    if (i.wgt_stride[k] != 0) return illegal(element("wgt_stride", k) + " is not 0 in a tap loop");
  }
  if (taps > config.depthwise_taps()) {
    return illegal("depthwise has " + std::to_string(taps) + " taps, an entry holds " +
                   std::to_string(config.depthwise_taps()));
  }
  if (i.wgt_unsigned || i.wgt_zero != 0) return illegal("depthwise weights are int8 without a zero point");
  if (i.lane >= std::max(config.block_in, config.block_out) / config.lanes())
    return illegal("lane is beyond the block");
  return {};
}

/// What may be read from and written to which memory.
Result check_memories(const Alu& i, const MachineConfig& config) {
  if ((i.src == AluSpace::kInp || i.dst == AluSpace::kInp) && config.block_in != config.block_out) {
    return illegal("the ALU reaches inp only when block_in = block_out");
  }
  if (i.src == AluSpace::kAcc && i.src_unsigned) return illegal("src_unsigned with src acc");
  if (i.dst == AluSpace::kAcc && (i.table_enable || i.second_op != SecondOp::kNone || i.second_table_enable)) {
    return illegal("dst acc takes no table and no second operation");
  }
  return {};
}

/// Fields of what an instruction does not do are 0.
Result check_unused(const Alu& i) {
  if (!i.convert) {
    if (i.param_addr != 0 || i.param_loop != kNoLoop) return illegal("param_addr or param_loop without convert");
    if (i.dst == AluSpace::kAcc && (i.low != 0 || i.high != 0 || i.out_zero != 0)) {
      return illegal("clamp or zero point with dst acc and no convert");
    }
  }
  if (!i.table_enable && (i.table != 0 || i.table_unsigned)) return illegal("table without table_enable");
  if (!i.second_table_enable && i.second_table != 0) return illegal("second_table without second_table_enable");
  if (i.second_op != SecondOp::kNone) return {};
  if (i.second_table_enable) return illegal("second_table_enable without second_op");
  if (i.second_addr != 0 || !all_zero(i.second_stride) || i.second_unsigned || i.second_swap || i.constant_addr != 0) {
    return illegal("fields of the second operation without second_op");
  }
  return {};
}

Result check(const Alu& i, const MachineConfig& config) {
  if (auto v = check_extents(i.extent)) return v;
  if (i.reduce > kLoops) return illegal("reduce exceeds 6");
  if (auto v = check_reduced_strides("dst_stride", i.dst_stride, i.reduce)) return v;
  if (auto v = check_reduced_strides("second_stride", i.second_stride, i.reduce)) return v;
  if (i.reduce == 0 && i.reduce_op != ReduceOp::kSum) return illegal("reduce_op without a reduction");
  if (i.param_loop != kNoLoop && i.param_loop >= kLoops - i.reduce) return illegal("param_loop is no outer loop");
  if (auto v = check_memories(i, config)) return v;
  if (i.low > i.high) return illegal("low exceeds high");
  return check_unused(i);
}

/// What both instructions of rows have in common.
template <typename Row>
Result check_rows(const Row& i, const MachineConfig& config) {
  if (config.row_lanes == 0) return Violation{Fault::kIllegalOpcode, "the machine has no row lanes"};
  if (auto v = check_extents(i.extent)) return v;
  if (i.row > kLoops) return illegal("row exceeds 6");
  if (auto v = check_reduced_strides("scalar_stride", i.scalar_stride, i.row)) return v;
  if (i.src == AluSpace::kInp && config.block_in != config.block_out) {
    return illegal("the ALU reaches inp only when block_in = block_out");
  }
  return {};
}

Result check(const RowReduce& i, const MachineConfig& config) {
  if (auto v = check_rows(i, config)) return v;
  if (i.src == AluSpace::kAcc) return illegal("row_reduce does not read rows from acc");
  if (i.tail == 0 || i.tail > config.block_out) return illegal("tail is not in 1 to block_out");
  if (i.operation != Reduction::kSumExp && i.table != 0) return illegal("table is for sum_exp");
  if (i.operation != Reduction::kMoments) {
    if (i.zero != 0 || i.length != 0 || i.centre || i.shift != 0 || i.offset != 0 || i.epsilon != 0) {
      return illegal("zero, length, centre, shift, offset and epsilon are for moments");
    }
    return {};
  }
  if (i.limited) return illegal("limited is for max and sum_exp");
  if (i.length == 0 || i.length > rows::kMostRowLength) return illegal("length is not in 1 to 4096");
  if (i.shift > 16) return illegal("shift exceeds 16");
  return check_zero_point("zero", i.zero, i.src_unsigned);
}

Result check(const RowMap& i, const MachineConfig& config) {
  if (auto v = check_rows(i, config)) return v;
  if (i.dst == AluSpace::kAcc) return illegal("row_map does not write acc");
  const bool rounds = i.src == AluSpace::kAcc;
  if (rounds && i.operation != Mapping::kSumSoftmax) return illegal("only sum_softmax reads rows from acc");
  if (rounds && i.src_unsigned) return illegal("src_unsigned is for bytes");
  if (i.dst == AluSpace::kInp && config.block_in != config.block_out) {
    return illegal("the ALU reaches inp only when block_in = block_out");
  }
  if (i.low > i.high) return illegal("low exceeds high");
  if (i.param_loop == kLoops) return illegal("param_loop is no loop");
  if (i.operation == Mapping::kSumSoftmax) {
    if (i.src == i.dst) return illegal("sum_softmax writes another memory than it reads");
    if (i.tail == 0 || i.tail > config.block_out) return illegal("tail is not in 1 to block_out");
  } else if (i.tail != 0 || i.sum_table != 0) {
    return illegal("tail and sum_table are for sum_softmax");
  }
  if (i.operation != Mapping::kNormalise) {
    if ((i.param_addr != 0 && !rounds) || i.param_loop != kNoLoop || i.zero != 0) {
      return illegal(std::string(rounds ? "" : "param_addr, ") + "param_loop and zero are for normalise");
    }
    return {};
  }
  if (i.table != 0 || i.limited) return illegal("table and limited are for softmax");
  return check_zero_point("zero", i.zero, i.src_unsigned);
}

[[noreturn]] void refuse(size_t index, const Instruction& instruction, const std::string& message) {
  throw Error(ErrorCode::kInvalidProgram,
              "instruction " + std::to_string(index) + " (" + std::string(info_of(instruction).name) + "): " + message);
}

/// How many instructions of one engine may stand behind a waiting one before FETCH stalls: its queue, one that FETCH
/// holds.
int instructions_behind(const MachineConfig& config, Engine engine) { return config.queue_depth(engine) + 1; }

}  // namespace

std::optional<Violation> check_operands(const Instruction& instruction, const MachineConfig& config) {
  return std::visit([&](const auto& i) { return check(i, config); }, instruction);
}

std::optional<Violation> check_ranges(const Instruction& instruction, const MachineConfig& config) {
  for (const Operand& r : effects(instruction, config).operands) {
    if (r.in_range()) continue;
    return Violation{Fault::kScratchpadRange,
                     std::string(r.field) + ": " + std::to_string(r.lowest) + ".." + std::to_string(r.highest) +
                         " leaves " + std::string(to_string(r.space)) + " (0.." + std::to_string(r.limit - 1) + ")"};
  }
  return {};
}

bool dram_aligned(const Instruction& instruction, const MachineConfig& config, uint64_t lowest) {
  const auto* load = std::get_if<Load>(&instruction);
  return load == nullptr || !load->packed || lowest % static_cast<uint64_t>(config.axi_bytes) == 0;
}

ProgramSummary check_program(std::span<const Instruction> program, const MachineConfig& config) {
  if (program.empty()) throw Error(ErrorCode::kInvalidProgram, "the program is empty; it must end with finish");
  constexpr int kStale = 32767;
  // Signals of each engine before every instruction, to tell "too late" from "never" and to bound overtaking.
  std::vector<std::array<uint32_t, kEngines>> before(program.size() + 1);
  std::array<std::vector<size_t>, kEngines> queue;  // instruction numbers by engine
  std::vector<size_t> place(program.size(), 0);
  for (size_t n = 0; n < program.size(); ++n) {
    const Instruction& instruction = program[n];
    if (auto v = check_operands(instruction, config)) refuse(n, instruction, v->message);
    if (auto v = check_ranges(instruction, config)) refuse(n, instruction, v->message);
    const bool finish = std::holds_alternative<Finish>(instruction);
    if (finish != (n + 1 == program.size())) {
      refuse(n, instruction, finish ? "finish must be the last instruction" : "the program does not end with finish");
    }
    before[n + 1] = before[n];
    if (const auto engine = engine_of(instruction)) {
      const auto e = static_cast<size_t>(*engine);
      place[n] = queue[e].size();
      queue[e].push_back(n);
      if (header_of(instruction).signal) ++before[n + 1][e];
    }
  }
  for (size_t n = 0; n < program.size(); ++n) {
    const Instruction& instruction = program[n];
    // Position in the stream that FETCH cannot have passed while instruction n has not started.
    size_t horizon = n;
    if (const auto engine = engine_of(instruction)) {
      const std::vector<size_t>& same = queue[static_cast<size_t>(*engine)];
      const size_t last = place[n] + static_cast<size_t>(instructions_behind(config, *engine)) + 1;
      horizon = last < same.size() ? same[last] : program.size();
    }
    for (int k = 0; k < kWaits; ++k) {
      const Wait& wait = header_of(instruction).waits[k];
      if (!wait.enable) continue;
      const auto e = static_cast<size_t>(wait.engine);
      const std::string condition = "condition " + std::to_string(k) + " (" + std::string(to_string(wait.engine)) +
                                    ":" + std::to_string(wait.count) + ")";
      const auto holds = [&](size_t at) { return static_cast<int16_t>(before[at][e] - wait.count) >= 0; };
      if (!holds(n)) {
        size_t later = n + 1;
        while (later <= program.size() && !holds(later)) ++later;
        if (later > program.size()) {
          refuse(n, instruction,
                 condition + " never holds: the engine signals " + std::to_string(before.back()[e]) +
                     " times in the whole program");
        }
        refuse(n, instruction,
               condition + " needs instruction " + std::to_string(later - 1) +
                   ", which stands later: the stream must be in an order that could run one by one");
      }
      const uint32_t ahead = static_cast<uint16_t>(before[n][e] - wait.count);
      if (ahead + (before[horizon][e] - before[n][e]) > kStale) {
        refuse(n, instruction,
               condition + " can be overtaken: the timeline may be more than 32767 signals ahead of it");
      }
    }
  }
  ProgramSummary summary;
  summary.instructions = program.size();
  for (size_t e = 0; e < kEngines; ++e) summary.signals[e] = before.back()[e];
  return summary;
}

}  // namespace tessera::isa
