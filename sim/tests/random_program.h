// SPDX-License-Identifier: Apache-2.0
// Random legal programs for any configuration. Enters: a seed and limits. Leaves: instructions whose operands and
// ranges are legal and whose waits order every pair of conflicting accesses, a DRAM image, and initial contents for
// PARAM. Engines are left free to overlap where they do not conflict, so that the same programs exercise machines with
// real concurrency.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"
#include "isa/second_operation.h"
#include "isa/verify/verify.h"

namespace tessera::sim::testing {

struct RandomProgram {
  std::vector<isa::Instruction> instructions;  // ends with FINISH
  std::vector<uint8_t> dram;
  uint64_t dram_address = 0;
  std::array<uint64_t, 16> bases{};
  std::vector<uint8_t> param;  // initial contents: scales and constants that make sense more often than noise does
};

struct RandomLimits {
  int instructions = 40;
  int64_t iterations = 200;       // of one GEMM or ALU nest
  int64_t transfer_bytes = 4096;  // of one LOAD or STORE
  size_t dram_bytes = 1 << 16;
};

class RandomProgramMaker {
 public:
  RandomProgramMaker(const isa::MachineConfig& config, uint64_t seed, RandomLimits limits = {})
      : config_(config), random_(seed), limits_(limits) {}

  RandomProgram make() {
    RandomProgram program;
    program.dram_address = uint64_t{1} << pick(12, 40);
    program.dram.resize(limits_.dram_bytes);
    for (uint8_t& byte : program.dram) byte = static_cast<uint8_t>(random_());
    dram_address_ = program.dram_address;
    for (uint64_t& base : program.bases)
      base = program.dram_address + pick(0, static_cast<int64_t>(limits_.dram_bytes) - 1);
    if (chance(2)) program.bases[isa::kRowLimitBase] = program.dram_address + pick(0, 4 * config_.block_out);
    for (uint64_t& base : program.bases) {  // packed LOADs need bases that are multiples of a beat
      if (config_.packed_weights != 0 && !chance(4)) base -= base % static_cast<uint64_t>(config_.axi_bytes);
    }
    bases_ = program.bases;
    program.param = make_param();
    for (int n = 0; n < limits_.instructions; ++n) program.instructions.push_back(make_instruction());
    synchronise(program.instructions);
    return program;
  }

  isa::Instruction make_instruction() {
    for (;;) {
      const isa::Instruction instruction = make_drawn(pick(0, weights() - 1));
      if (!isa::check_operands(instruction, config_) && !isa::check_ranges(instruction, config_)) return instruction;
    }
  }

  // How often each instruction is drawn, and its maker: one pair an instruction, without which a new one does not
  // compile. FINISH stands at the end alone.
  template <typename T>
  using Of = std::type_identity<T>;
  static constexpr int weight(Of<isa::Finish>) { return 0; }
  static constexpr int weight(Of<isa::Fence>) { return 1; }
  static constexpr int weight(Of<isa::Load>) { return 3; }
  static constexpr int weight(Of<isa::Store>) { return 2; }
  static constexpr int weight(Of<isa::Gemm>) { return 3; }
  static constexpr int weight(Of<isa::Alu>) { return 4; }
  int weight(Of<isa::RowReduce>) const { return config_.row_lanes > 0 ? 2 : 0; }
  int weight(Of<isa::RowMap>) const { return config_.row_lanes > 0 ? 2 : 0; }
  isa::Instruction make(Of<isa::Finish>) { return isa::Finish{}; }
  isa::Instruction make(Of<isa::Fence>) { return make_fence(); }
  isa::Instruction make(Of<isa::Load>) { return make_load(); }
  isa::Instruction make(Of<isa::Store>) { return make_store(); }
  isa::Instruction make(Of<isa::Gemm>) { return make_gemm(); }
  isa::Instruction make(Of<isa::Alu>) { return make_alu(); }
  isa::Instruction make(Of<isa::RowReduce>) { return make_row_reduce(); }
  isa::Instruction make(Of<isa::RowMap>) { return make_row_map(); }

  isa::Instruction make_gemm() {
    isa::Gemm i;
    i.reduce = static_cast<uint8_t>(pick(0, 6));
    i.mode = chance(3) ? isa::GemmMode::kDepthwise : isa::GemmMode::kDense;
    i.accumulate = chance(2);
    i.inp_unsigned = chance(2);
    i.wgt_unsigned = chance(2);
    i.inp_zero = static_cast<int16_t>(chance(3) ? 0 : byte_zero(i.inp_unsigned));
    i.wgt_zero = static_cast<int16_t>(chance(3) ? 0 : byte_zero(i.wgt_unsigned));
    const int outer = isa::kLoops - i.reduce;
    if (i.mode == isa::GemmMode::kDepthwise) {
      i.wgt_unsigned = false;
      i.wgt_zero = 0;
      i.reduce = static_cast<uint8_t>(pick(1, 6));
      i.lane = static_cast<uint8_t>(pick(0, std::max(config_.block_in, config_.block_out) / config_.lanes() - 1));
    }
    make_extents(i.extent, limits_.iterations);
    if (i.mode == isa::GemmMode::kDepthwise && chance(2) && make_raster(i)) return i;
    if (i.mode == isa::GemmMode::kDepthwise) {
      i.extent[5] = static_cast<uint16_t>(pick(1, std::min(5, config_.depthwise_taps())));
      if (i.reduce >= 2) i.extent[4] = static_cast<uint16_t>(pick(1, config_.depthwise_taps() / i.extent[5]));
    }
    i.inp_addr = place(isa::Space::kInp, i.extent, i.inp_stride, isa::kLoops);
    i.wgt_addr = place(isa::Space::kWgt, i.extent, i.wgt_stride,
                       isa::kLoops - (i.mode == isa::GemmMode::kDepthwise ? std::min<int>(i.reduce, 2) : 0));
    i.acc_addr = place(isa::Space::kAcc, i.extent, i.acc_stride,
                       i.mode == isa::GemmMode::kDepthwise ? isa::kLoops - i.reduce : outer);
    return i;
  }

  /// A depthwise convolution of one image: rows, columns and taps as loops, INP strides of a row and a pixel, sometimes
  /// off by a little. False when it does not fit.
  bool make_raster(isa::Gemm& i) {
    i.reduce = 2;
    i.extent.fill(1);
    const bool two_rows = config_.raster_pairs > 1 && chance(4);  // enter at once
    const int64_t stride = two_rows || chance(3) ? 2 : 1;
    i.extent[5] = static_cast<uint16_t>(two_rows ? 3 : pick(1, 5));
    i.extent[4] = static_cast<uint16_t>(two_rows ? 3 : pick(1, 3));
    if (i.extent[4] * i.extent[5] > config_.depthwise_taps()) return false;
    i.extent[3] = static_cast<uint16_t>(pick(1, 20));
    i.extent[2] = static_cast<uint16_t>(pick(1, std::max<int64_t>(1, limits_.iterations / i.extent[3] / 8)));
    const int64_t width = (i.extent[3] - 1) * stride + i.extent[5];
    const int64_t row = two_rows ? width + (6 - width % 4) % 4 : width + (chance(2) ? 0 : pick(0, 3));
    const int64_t pixel = !two_rows && chance(8) ? 2 : 1;  // of every channel block
    const int64_t blocks = chance(2) ? 1 : pick(1, 3);
    i.extent[1] = static_cast<uint16_t>(blocks);
    const int64_t height = (i.extent[2] - 1) * stride + i.extent[4];
    const int64_t plane = height * row * pixel;
    if (plane * blocks + 8 > config_.inp_depth() || blocks > config_.wgt_depth()) return false;
    const auto outputs = static_cast<int64_t>(i.extent[2]) * i.extent[3];
    if (outputs * blocks > config_.acc_depth()) return false;
    i.inp_stride = {0,
                    static_cast<int16_t>(plane),
                    static_cast<int16_t>(stride * row * pixel),
                    static_cast<int16_t>(stride * pixel),
                    static_cast<int16_t>(row * pixel),
                    static_cast<int16_t>(pixel)};
    i.acc_stride = {0, static_cast<int16_t>(outputs), static_cast<int16_t>(i.extent[3]), 1, 0, 0};
    i.wgt_stride = {0, 1, 0, 0, 0, 0};
    if (chance(10)) ++i.inp_stride[static_cast<size_t>(pick(2, 4))];
    i.inp_addr = static_cast<uint16_t>(two_rows ? 2 * pick(0, 3) + 1 : pick(0, 7));
    i.wgt_addr = static_cast<uint16_t>(pick(0, config_.wgt_depth() - blocks));
    i.acc_addr = static_cast<uint16_t>(pick(0, config_.acc_depth() - outputs * blocks));
    return true;
  }

  isa::Instruction make_alu() {
    isa::Alu i;
    const bool square = config_.block_in == config_.block_out;
    i.src = static_cast<isa::AluSpace>(pick(0, square ? 2 : 1));
    i.dst = static_cast<isa::AluSpace>(pick(0, square ? 2 : 1));
    i.reduce = static_cast<uint8_t>(chance(2) ? 0 : pick(0, 6));
    i.reduce_op = i.reduce > 0 && chance(2) ? isa::ReduceOp::kMax : isa::ReduceOp::kSum;
    i.src_unsigned = i.src != isa::AluSpace::kAcc && chance(2);
    const int outer = isa::kLoops - i.reduce;
    make_extents(i.extent, limits_.iterations);
    i.src_addr = place(space_of(i.src), i.extent, i.src_stride, isa::kLoops);
    i.dst_addr = place(space_of(i.dst), i.extent, i.dst_stride, outer);
    const bool to_acc = i.dst == isa::AluSpace::kAcc;
    i.convert = chance(2);
    if (i.convert || !to_acc) {
      i.low = static_cast<int16_t>(chance(2) ? pick(-256, 0) : pick(-512, 511));
      i.high = static_cast<int16_t>(chance(2) ? pick(std::max<int>(i.low, 0), 511) : pick(i.low, 511));
      i.out_zero = static_cast<int16_t>(chance(2) ? 0 : pick(-256, 255));
    }
    if (i.convert) {
      if (outer > 0 && chance(2)) i.param_loop = static_cast<uint8_t>(pick(0, outer - 1));
      const int64_t used = i.param_loop == 7 ? 1 : i.extent[i.param_loop];
      if (used > config_.param_depth()) return i;  // refused by check_ranges, and made anew
      i.param_addr = static_cast<uint16_t>(pick(0, config_.param_depth() - used));
    }
    if (!to_acc) {
      i.table_enable = chance(3);
      if (i.table_enable) {
        i.table = static_cast<uint8_t>(pick(0, config_.table_count - 1));
        i.table_unsigned = chance(2);
      }
      i.second_op = static_cast<isa::SecondOp>(chance(2) ? 0 : pick(1, 3));
      if (i.second_op != isa::SecondOp::kNone) {
        i.second_swap = chance(2);
        i.second_unsigned = chance(2);
        i.second_addr = place(isa::Space::kOut, i.extent, i.second_stride, outer);
        i.constant_addr = static_cast<uint16_t>(pick(0, config_.param_depth() - 1));
      }
      i.second_table_enable = i.second_op != isa::SecondOp::kNone && chance(3);
      if (i.second_table_enable) i.second_table = static_cast<uint8_t>(pick(0, config_.table_count - 1));
    }
    return i;
  }

  isa::Instruction make_row_reduce() {
    isa::RowReduce i;
    i.src = row_space();
    i.src_unsigned = chance(2);
    i.row = static_cast<uint8_t>(chance(2) ? 1 : pick(0, 6));
    make_extents(i.extent, limits_.iterations);
    i.src_addr = place(space_of(i.src), i.extent, i.src_stride, isa::kLoops);
    i.scalar_addr = place(isa::Space::kAcc, i.extent, i.scalar_stride, isa::kLoops - i.row);
    i.tail = static_cast<uint8_t>(chance(3) ? config_.block_out : pick(1, config_.block_out));
    i.operation = static_cast<isa::Reduction>(pick(0, 2));
    if (i.operation == isa::Reduction::kSumExp) i.table = static_cast<uint8_t>(row_table());
    i.limited = i.operation != isa::Reduction::kMoments && chance(2);
    if (i.operation == isa::Reduction::kMoments) {
      i.zero = static_cast<int16_t>(byte_zero(i.src_unsigned));
      int64_t elements = i.tail - config_.block_out;
      int64_t entries = config_.block_out;
      for (int k = isa::kLoops - i.row; k < isa::kLoops; ++k) entries *= i.extent[k];
      elements += entries;
      i.length = static_cast<uint16_t>(chance(4) || elements > 4096 ? pick(1, 4096) : elements);
      i.centre = chance(2);
      i.shift = static_cast<uint8_t>(pick(0, 16));
      i.offset = static_cast<int8_t>(chance(4) ? pick(-32, 31) : pick(0, 14));
      i.epsilon = random_() >> pick(16, 63);
    }
    return i;
  }

  isa::Instruction make_row_map() {
    isa::RowMap i;
    i.src = row_space();
    i.dst = row_space();
    if (config_.block_in == config_.block_out && chance(3)) {  // for sum_softmax
      i.dst = i.src == isa::AluSpace::kInp ? isa::AluSpace::kOut : isa::AluSpace::kInp;
    }
    const bool rounds = chance(4);
    if (rounds) i.src = isa::AluSpace::kAcc;
    i.src_unsigned = !rounds && chance(2);
    i.row = static_cast<uint8_t>(chance(2) ? 1 : pick(0, 6));
    make_extents(i.extent, limits_.iterations);
    i.src_addr = place(space_of(i.src), i.extent, i.src_stride, isa::kLoops);
    i.dst_addr = place(space_of(i.dst), i.extent, i.dst_stride, isa::kLoops);
    if (i.dst == i.src && chance(4)) {
      i.dst = i.src, i.dst_addr = i.src_addr, i.dst_stride = i.src_stride;
    }
    i.scalar_addr = place(isa::Space::kAcc, i.extent, i.scalar_stride, isa::kLoops - i.row);
    i.low = static_cast<int16_t>(chance(2) ? pick(-256, 0) : pick(-512, 511));
    i.high = static_cast<int16_t>(chance(2) ? pick(std::max<int>(i.low, 0), 511) : pick(i.low, 511));
    i.out_zero = static_cast<int16_t>(chance(2) ? 0 : pick(-256, 255));
    i.operation = rounds ? isa::Mapping::kSumSoftmax : static_cast<isa::Mapping>(pick(0, 2));
    const bool other_space = i.src != i.dst;
    if (rounds) i.param_addr = static_cast<uint16_t>(pick(0, config_.param_depth() - 1));
    if (i.operation == isa::Mapping::kSumSoftmax && !other_space) i.operation = isa::Mapping::kSoftmax;
    if (i.operation == isa::Mapping::kSumSoftmax) {
      i.tail = static_cast<uint8_t>(chance(3) ? config_.block_out : pick(1, config_.block_out));
      i.sum_table = static_cast<uint8_t>(row_table());
    }
    if (i.operation != isa::Mapping::kNormalise) {
      i.table = static_cast<uint8_t>(row_table());
      i.limited = chance(2);
      return i;
    }
    i.zero = static_cast<int16_t>(byte_zero(i.src_unsigned));
    if (chance(2)) i.param_loop = static_cast<uint8_t>(pick(0, isa::kLoops - 1));
    const int64_t used = i.param_loop == 7 ? 1 : i.extent[i.param_loop];
    if (used > config_.param_depth()) return i;  // refused by check_ranges, and made anew
    i.param_addr = static_cast<uint16_t>(pick(0, config_.param_depth() - used));
    return i;
  }

  isa::Instruction make_packed_load() {
    isa::Load i;
    i.packed = true;
    i.space = isa::Space::kWgt;
    i.length = static_cast<uint16_t>(config_.packed_entry_bytes());
    const int64_t entry = config_.wgt_entry_bytes();
    make_transfer_extents(i.extent, std::min(limits_.transfer_bytes / i.length, config_.wgt_depth()));
    std::array<int64_t, 4> read{};
    for (int k = 0; k < 4; ++k) read[k] = i.extent[k];
    grain_ = config_.axi_bytes;
    whole_bases_ = true;
    place_dram(i, read);
    whole_bases_ = false;
    grain_ = entry;
    place_bytes(i, entry);
    grain_ = 1;
    return i;
  }

  isa::Instruction make_load() {
    if (config_.packed_weights != 0 && chance(3)) return make_packed_load();
    isa::Load i;
    i.space = static_cast<isa::Space>(chance(8) ? pick(0, 5) : pick(0, 3));
    transfer_shape(i.length, i.extent);
    const bool windows = chance(3);  // runs that overlap, or lie in the same beats
    if (windows && !chance(4)) i.length = static_cast<uint16_t>(pick(1, 3 * config_.axi_bytes));
    grain_ = chance(4) ? config_.axi_bytes : 1;
    i.length = static_cast<uint16_t>((i.length + grain_ - 1) / grain_ * grain_);
    i.pad_value = static_cast<uint8_t>(random_());
    i.fill = chance(6);
    if (!i.fill) {
      for (int k = 0; k < 2; ++k) {
        if (chance(2)) continue;
        i.pad_before[k] = static_cast<uint16_t>(pick(0, std::min<int>(i.extent[k], 2)));
        i.pad_after[k] = static_cast<uint16_t>(pick(0, std::min<int>(i.extent[k] - i.pad_before[k], 2)));
      }
      std::array<int64_t, 4> read{};
      for (int k = 0; k < 4; ++k) read[k] = i.extent[k] - (k < 2 ? i.pad_before[k] + i.pad_after[k] : 0);
      windows_ = windows;
      place_dram(i, read);
      windows_ = false;
    }
    place_bytes(i, i.length);
    grain_ = 1;
    return i;
  }

  isa::Instruction make_store() {
    isa::Store i;
    i.space = chance(2) ? isa::Space::kOut : isa::Space::kAcc;
    transfer_shape(i.length, i.extent);
    std::array<int64_t, 4> written{};
    for (int k = 0; k < 4; ++k) written[k] = i.extent[k];
    place_dram(i, written);
    place_bytes(i, i.length);
    return i;
  }

  isa::Instruction make_fence() {
    isa::Fence i;
    i.engine = static_cast<isa::Engine>(pick(0, isa::kEngines - 1));
    return i;
  }

  /// Adds signals, waits and FINISH. Each instruction waits, for every other engine, for the last instruction there
  /// that it conflicts with, or sometimes for a younger one, and now and then for one it has no need of. Instructions
  /// that nobody waits for signal or not. `needs`, of each instruction: how many of each other engine's first ones it
  /// waits for at least.
  using Needs = std::array<size_t, isa::kEngines>;
  void synchronise(std::vector<isa::Instruction>& program, const std::vector<Needs>& needs = {}) {
    struct Access {
      int64_t lowest, highest;
      int space;  // isa::kSpaces: DRAM
      bool write;
    };
    std::array<std::vector<std::vector<Access>>, isa::kEngines> done;  // by engine and number in it
    std::vector<std::array<size_t, isa::kEngines>> awaited;            // 1 + number in the engine, or 0
    std::array<std::vector<bool>, isa::kEngines> signals;
    for (isa::Instruction& instruction : program) {
      const auto engine = static_cast<size_t>(*isa::engine_of(instruction));
      std::vector<Access> accesses;
      for (const isa::Operand& o : isa::effects(instruction, config_).operands) {
        const int64_t first = o.dram ? static_cast<int64_t>(bases_[o.base]) : 0;
        accesses.push_back(
            {first + o.begin, first + o.end - 1, o.dram ? isa::kSpaces : static_cast<int>(o.space), o.write});
      }
      std::array<size_t, isa::kEngines> waits{};
      for (size_t e = 0; e < done.size(); ++e) {
        if (e == engine || done[e].empty()) continue;
        const auto count = static_cast<int64_t>(done[e].size());
        for (size_t n = done[e].size(); n-- > 0;) {
          if (!conflicts(done[e][n], accesses)) continue;
          waits[e] = n + 1;
          break;
        }
        if (!needs.empty()) waits[e] = std::max(waits[e], needs[awaited.size()][e]);
        if (waits[e] != 0 && chance(8)) waits[e] = static_cast<size_t>(pick(static_cast<int64_t>(waits[e]), count));
        if (waits[e] == 0 && chance(24)) waits[e] = static_cast<size_t>(pick(1, count));
        if (waits[e] != 0) signals[e][waits[e] - 1] = true;
      }
      awaited.push_back(waits);
      done[engine].push_back(std::move(accesses));
      signals[engine].push_back(false);
    }
    std::array<std::vector<uint16_t>, isa::kEngines> counts;  // signals up to and with each instruction
    for (size_t n = 0; n < program.size(); ++n) {
      const auto engine = static_cast<size_t>(*isa::engine_of(program[n]));
      isa::Header& header = isa::header_of(program[n]);
      header = {};
      size_t used = 0;
      for (size_t e = 0; e < counts.size(); ++e) {
        if (awaited[n][e] == 0) continue;
        header.waits[used++] = {true, static_cast<isa::Engine>(e), counts[e][awaited[n][e] - 1]};
      }
      header.signal = signals[engine][counts[engine].size()] || chance(3);
      const uint16_t before = counts[engine].empty() ? 0 : counts[engine].back();
      counts[engine].push_back(static_cast<uint16_t>(before + (header.signal ? 1 : 0)));
    }
    program.push_back(isa::Finish{});
  }

  int64_t pick(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % (static_cast<uint64_t>(high - low) + 1));
  }
  bool chance(int one_in) { return random_() % static_cast<uint64_t>(one_in) == 0; }

 private:
  template <typename Accesses>
  static bool conflicts(const Accesses& a, const Accesses& b) {
    for (const auto& x : a) {
      for (const auto& y : b) {
        if (x.space == y.space && (x.write || y.write) && x.lowest <= y.highest && y.lowest <= x.highest) return true;
      }
    }
    return false;
  }

  isa::AluSpace row_space() {
    return config_.block_in == config_.block_out && chance(2) ? isa::AluSpace::kInp : isa::AluSpace::kOut;
  }
  int64_t row_table() { return pick(0, std::max(0, config_.table_count - 4)); }

  template <size_t Kind = 0>
  int weights() const {
    if constexpr (Kind < std::variant_size_v<isa::Instruction>) {
      return weight(Of<std::variant_alternative_t<Kind, isa::Instruction>>{}) + weights<Kind + 1>();
    }
    return 0;
  }

  /// The instruction on which the ticket, below weights(), falls.
  template <size_t Kind = 0>
  isa::Instruction make_drawn(int64_t ticket) {
    if constexpr (Kind < std::variant_size_v<isa::Instruction>) {
      using T = std::variant_alternative_t<Kind, isa::Instruction>;
      if (ticket < weight(Of<T>{})) return make(Of<T>{});
      return make_drawn<Kind + 1>(ticket - weight(Of<T>{}));
    }
    return isa::Finish{};
  }

  int byte_zero(bool is_unsigned) { return static_cast<int>(is_unsigned ? pick(0, 255) : pick(-128, 127)); }

  void make_extents(std::array<uint16_t, isa::kLoops>& extent, int64_t limit) {
    extent.fill(1);
    if (chance(32)) return;
    for (int tries = 0; tries < 4; ++tries) {
      const auto k = static_cast<size_t>(pick(0, isa::kLoops - 1));
      if (extent[k] != 1) continue;
      const int64_t e = pick(1, chance(4) ? limit : std::min<int64_t>(limit, 9));
      extent[k] = static_cast<uint16_t>(e);
      limit /= e;
      if (limit < 2) break;
    }
  }

  /// Random strides for the first `loops` loops and an address that keeps the nest inside the memory.
  uint16_t place(isa::Space space, const std::array<uint16_t, isa::kLoops>& extent,
                 std::array<int16_t, isa::kLoops>& stride, int loops) {
    const int64_t depth = config_.depth(space);
    int64_t low = 0;
    int64_t high = 0;
    stride.fill(0);
    std::array<int, isa::kLoops> order{0, 1, 2, 3, 4, 5};
    std::shuffle(order.begin(), order.end(), random_);
    for (const int k : order) {
      if (k >= loops) continue;
      const int64_t room = depth - 1 - (high - low);
      const int64_t largest = extent[k] > 1 ? room / (extent[k] - 1) : 8191;
      int64_t s = 0;
      switch (pick(0, 3)) {
        case 0: break;
        case 1: s = 1; break;
        case 2: s = pick(-4, 8); break;
        default: s = pick(-largest, largest); break;
      }
      s = std::clamp<int64_t>(s, std::max<int64_t>(-largest, -8192), std::min<int64_t>(largest, 8191));
      stride[k] = static_cast<int16_t>(s);
      (s < 0 ? low : high) += s * (extent[k] - 1);
    }
    return static_cast<uint16_t>(pick(-low, depth - 1 - high));
  }

  void transfer_shape(uint16_t& length, std::array<uint16_t, 4>& extent) {
    int64_t limit = limits_.transfer_bytes;
    length = static_cast<uint16_t>(pick(1, chance(3) ? limit : 70));
    make_transfer_extents(extent, limit / length);
  }

  void make_transfer_extents(std::array<uint16_t, 4>& extent, int64_t limit) {
    for (int k = 3; k >= 0; --k) {
      const int64_t e = pick(1, std::clamp<int64_t>(limit, 1, chance(4) ? limit + 1 : 6));
      extent[k] = static_cast<uint16_t>(e);
      limit /= e;
    }
  }

  /// Strides over `extent` within `room` bytes for runs of `length`: lowest and highest start relative to the first.
  std::array<int64_t, 2> spread(std::array<int32_t, 4>& stride, const std::array<int64_t, 4>& extent, int64_t length,
                                int64_t room, int64_t limit) {
    int64_t low = 0;
    int64_t high = 0;
    int64_t packed = length;  // the stride that continues the run
    for (int k = 3; k >= 0; --k) {
      const int64_t left = room - length - (high - low);
      const int64_t largest = std::min(limit, extent[k] > 1 ? left / (extent[k] - 1) : limit);
      int64_t s = chance(3) ? pick(-largest, largest) : (chance(2) ? packed : packed + pick(0, 32));
      if (windows_ && !chance(6)) s = pick(-config_.axi_bytes / 2, config_.axi_bytes + (chance(2) ? length : 0));
      s = std::clamp(s, -largest, largest);
      s -= s % grain_;
      stride[k] = static_cast<int32_t>(s);
      packed = s * extent[k];
      (s < 0 ? low : high) += s * (std::max<int64_t>(extent[k], 1) - 1);
    }
    return {low, high};
  }

  template <typename Transfer>
  void place_dram(Transfer& i, const std::array<int64_t, 4>& extent) {
    const auto bytes = static_cast<int64_t>(limits_.dram_bytes);
    const auto [low, high] = spread(i.dram_stride, extent, i.length, bytes, INT32_MAX);
    // Base registers point anywhere into DRAM; the offset, unsigned, goes up from one.
    int64_t first = pick(-low, bytes - i.length - high);
    first = std::max(first - first % grain_, -low);
    std::vector<int> usable;
    for (int b = 0; b < 16; ++b) {
      if (whole_bases_ && bases_[b] % static_cast<uint64_t>(grain_) != 0) continue;
      if (bases_[b] <= dram_address_ + static_cast<uint64_t>(first)) usable.push_back(b);
    }
    if (usable.empty()) {
      i.length = 0;  // refused by check_operands, and made anew
      return;
    }
    i.base = static_cast<uint8_t>(usable[static_cast<size_t>(pick(0, static_cast<int64_t>(usable.size()) - 1))]);
    i.dram_offset = dram_address_ + static_cast<uint64_t>(first) - bases_[i.base];
  }

  template <typename Transfer>
  void place_bytes(Transfer& i, int64_t length) {
    if (i.length == 0) return;
    std::array<int64_t, 4> extent{};
    for (int k = 0; k < 4; ++k) extent[k] = i.extent[k];
    const int64_t bytes = config_.space_bytes(i.space);
    if (length > bytes) {
      i.length = 0;
      return;
    }
    const auto [low, high] = spread(i.sp_stride, extent, length, bytes, (1 << 21) - 1);
    const int64_t first = pick(-low, bytes - length - high);
    i.sp_addr = static_cast<uint32_t>(std::max(first - first % grain_, -low));
  }

  std::vector<uint8_t> make_param() {
    std::vector<uint8_t> bytes(static_cast<size_t>(config_.param_bytes));
    for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
      const auto word = static_cast<uint32_t>(random_());
      float scale = std::ldexp(static_cast<float>(pick(1, 1 << 24)), static_cast<int>(pick(-46, -18)));
      switch (pick(0, 5)) {
        case 0: std::memcpy(&bytes[at], &word, 4); break;  // any bits: NaN, infinity, subnormals
        case 1: scale = -scale; [[fallthrough]];
        case 2:
        case 3: std::memcpy(&bytes[at], &scale, 4); break;
        default: {
          const auto small = static_cast<int32_t>(pick(-(1 << 20), 1 << 20));
          std::memcpy(&bytes[at], &small, 4);
        }
      }
    }
    // Half of the entries are constants of a second operation.
    const auto entry = static_cast<size_t>(config_.param_entry_bytes());
    for (size_t at = 0; at + 32 <= bytes.size(); at += 2 * entry) {
      const auto words = isa::encode_second(chance(3) ? wild_second() : usual_second());
      std::copy(words.begin(), words.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return bytes;
  }

  int32_t small(int64_t low, int64_t high) { return static_cast<int32_t>(pick(low, high)); }

  /// As a model has them: scales, zero points and bounds of bytes.
  isa::SecondConstants usual_second() {
    for (;;) {
      isa::FloatSecond second;
      second.operation = static_cast<isa::SecondOp>(pick(1, 3));
      const bool product = second.operation == isa::SecondOp::kMul;
      second.rx =
          std::ldexp(static_cast<float>(pick(1, 1 << 24)), static_cast<int>(pick(-34, -24)) - (product ? 6 : 0));
      second.ry = std::ldexp(static_cast<float>(pick(-1 << 24, 1 << 24)), static_cast<int>(pick(-34, -24)));
      second.f = static_cast<float>(pick(-80000, 80000)) / 512;
      second.low = small(-300, 0);
      second.high = small(0, 300);
      second.zero = small(-128, 255);
      second.zx = small(-128, 127);
      second.zy = small(-128, 127);
      second.fused = chance(2);
      second.minimum = chance(2);
      if (const auto fixed = isa::fixed_second(second, {-128, 255}, {-128, 255})) return *fixed;
    }
  }

  /// Any content of the fields, factors of any length: sums that wrap, bounds that cross.
  isa::SecondConstants wild_second() {
    const auto any = [&](int bits) { return static_cast<int64_t>(random_()) >> (64 - pick(1, bits)); };
    isa::SecondConstants c;
    c.inner_factor = any(isa::kSecondFactorBits);
    c.inner_addend = any(isa::kSecondSumBits);
    c.outer_factor = any(isa::kSecondFactorBits);
    c.shift = small(0, 15);
    c.low = small(-512, 511);
    c.high = small(-512, 511);
    c.zero = small(-256, 255);
    c.zx = small(-256, 255);
    c.zy = small(-256, 255);
    c.minimum = chance(2);
    return c;
  }

  isa::MachineConfig config_;
  std::mt19937_64 random_;
  RandomLimits limits_;
  uint64_t dram_address_ = 0;
  std::array<uint64_t, 16> bases_{};
  int64_t grain_ = 1;         // of a transfer's addresses, strides and length
  bool whole_bases_ = false;  // and of the base registers
  bool windows_ = false;      // of DRAM, close to each other
};

}  // namespace tessera::sim::testing
