// SPDX-License-Identifier: Apache-2.0
// A tile is what one pass over the scratchpads computes. Tile t uses copy t % 2 of every memory, so that its loads come
// while tile t - 1 is computed and its stores go while tile t + 1 is; it waits for tile t - 2.
#include "sim/verilator/training.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/error.h"
#include "isa/second_operation.h"
#include "isa/verify/verify.h"
#include "sim/verilator/machine.h"

namespace tessera::sim {
namespace {

using isa::Engine;

enum class Kind { kDense, kDepthwise, kPool };

enum Extra : unsigned {
  kResidual = 1,
  kTable = 2,
  kAccumulate = 4,  // two instructions, the second of which goes on with the sums of the first
  kChain = 8,       // results stay in INP, and a dense layer of one tap follows from there
  kStream = 16,     // each tile has weights of its own; else the first one of each copy brings them
};

/// A kind of layer, in the sizes that a tile would like to have; they shrink until two copies fit.
struct Layer {
  Kind kind;
  int kernel;
  int stride;
  int in_blocks;
  int out_blocks;  // depthwise and pool: as many as in_blocks
  int side;        // of the tile of results
  int tiles;
  unsigned extra;
};

constexpr Layer kLayers[] = {
    {Kind::kDense, 3, 1, 2, 2, 7, 8, 0},
    {Kind::kDense, 3, 1, 4, 1, 7, 6, kResidual},
    {Kind::kDense, 3, 2, 1, 2, 7, 4, kAccumulate},
    {Kind::kDense, 1, 1, 4, 4, 7, 10, 0},
    {Kind::kDense, 1, 1, 2, 6, 7, 10, kResidual},
    {Kind::kDepthwise, 3, 1, 4, 4, 14, 4, 0},
    {Kind::kDepthwise, 3, 2, 4, 4, 7, 4, 0},
    {Kind::kDepthwise, 3, 1, 2, 2, 14, 12, kChain},
    {Kind::kDense, 1, 1, 16, 8, 1, 3, kStream},
    {Kind::kDense, 1, 1, 2, 2, 7, 2, kTable},
    {Kind::kPool, 3, 2, 2, 2, 5, 2, 0},
};

class Maker {
 public:
  explicit Maker(const isa::MachineConfig& config) : config_(config) {}

  TrainingProgram make() {
    make_dram();
    load_tables();
    for (const Layer& layer : kLayers) {
      for (int n = 0; n < layer.tiles; ++n, ++tile_) make_tile(layer, n < 2 || (layer.extra & kStream) != 0);
    }
    isa::Finish finish;
    program_.instructions.emplace_back(finish);
    return std::move(program_);
  }

 private:
  /// DRAM: parameters, weights, activations, results.
  void make_dram() {
    const auto floats = [&](size_t at, std::initializer_list<float> values) {
      std::memcpy(&program_.dram[at], values.begin(), 4 * values.size());
    };
    weights_ = config_.param_bytes;
    activations_ = weights_ + 2 * config_.wgt_bytes;
    results_ = activations_ + 8 * config_.inp_bytes + 2 * config_.out_bytes;
    program_.dram.resize(static_cast<size_t>(results_ + 4 * config_.out_bytes));
    uint64_t state = 1;
    for (uint8_t& byte : program_.dram) {
      state = state * 6364136223846793005ULL + 1442695040888963407ULL;
      byte = static_cast<uint8_t>(state >> 56);
    }
    // An entry's biases and scales; the first one: constants of a second operation.
    const auto entry = static_cast<size_t>(config_.param_entry_bytes());
    for (size_t at = 0; at + entry <= static_cast<size_t>(weights_); at += entry) {
      for (size_t lane = 0; lane < entry / 8; ++lane) {
        const auto bias = static_cast<int32_t>(at * 5 + lane * 97 % 1024) - 512;
        std::memcpy(&program_.dram[at + 4 * lane], &bias, 4);
        const float scale = 1.0F / static_cast<float>(900 + 37 * ((at + lane) % 64));
        floats(at + entry / 2 + 4 * lane, {lane % 8 == 7 ? 0.0F : scale});  // channels that only fill a block;
      }
    }
    if (weights_ < 32) return;
    const auto constants = isa::fixed_second(
        {.operation = isa::SecondOp::kAdd, .rx = 0.75F, .ry = 0.5F, .f = 3.25F, .low = -128, .high = 127}, {-128, 127},
        {-128, 127});
    const auto bytes = isa::encode_second(constants.value());
    std::copy(bytes.begin(), bytes.end(), program_.dram.begin());
  }

  struct Wait {
    Engine engine;
    uint16_t count;
  };

  /// Adds an instruction that waits for these signals, and signals; nothing when this machine does not take it.
  void add(isa::Instruction instruction, std::initializer_list<Wait> waits) {
    if (isa::check_operands(instruction, config_) || isa::check_ranges(instruction, config_)) return;
    const auto range = isa::dram_range(instruction);
    if (range && (range->lowest < 0 || range->highest >= static_cast<int64_t>(program_.dram.size()))) return;
    isa::Header& header = isa::header_of(instruction);
    header.signal = true;
    size_t used = 0;
    for (const Wait& wait : waits) {
      if (wait.count != 0) header.waits[used++] = {true, wait.engine, wait.count};
    }
    if (const auto engine = isa::engine_of(instruction)) ++signals(*engine);
    program_.instructions.push_back(instruction);
  }
  uint16_t& signals(Engine engine) { return signals_[static_cast<size_t>(engine)]; }
  Wait now(Engine engine) { return {engine, signals(engine)}; }
  /// What an engine had done when the tile before the last one was complete.
  Wait before(Engine engine) const { return {engine, ends_[tile_ % 2][static_cast<size_t>(engine)]}; }

  void load_tables() {
    isa::Load load;
    load.space = isa::Space::kTable;
    load.dram_offset = static_cast<uint64_t>(weights_);
    load.length = 256;
    add(load, {});
    load.space = isa::Space::kParam;  // the constants
    load.dram_offset = 0;
    load.length = 32;
    add(load, {});
  }

  /// `count` entries, one after the other on both sides.
  void load_entries(isa::Space space, int64_t offset, int64_t address, int64_t count,
                    std::initializer_list<Wait> waits) {
    isa::Load load;
    const int bytes = config_.entry_bytes(space);
    load.space = space;
    load.dram_offset = static_cast<uint64_t>(offset);
    const bool one_run = bytes * count <= UINT16_MAX;
    load.length = static_cast<uint16_t>(one_run ? bytes * count : bytes);
    load.sp_addr = static_cast<uint32_t>(address * bytes);
    if (!one_run) {
      load.extent[3] = static_cast<uint16_t>(count);
      load.dram_stride[3] = load.sp_stride[3] = bytes;
    }
    add(load, waits);
  }

  int64_t half(isa::Space space) const { return std::max<int64_t>(1, config_.depth(space) / 2); }

  /// A tile of a layer, and where it lies in the scratchpads, in entries.
  struct Tile {
    Layer layer;
    int kh = 0, kw = 0;      // of the window
    int in_h = 0, in_w = 0;  // of the image
    int64_t outputs = 0;     // pixels of the result
    int64_t inp = 0, wgt = 0, acc = 0, out = 0, param = 0;
    int64_t chained = 0;  // in INP: results that the next layer reads

    bool has(Extra extra) const { return (layer.extra & extra) != 0; }
    bool depthwise() const { return layer.kind == Kind::kDepthwise; }
    int64_t weights() const {
      return depthwise() ? layer.out_blocks : int64_t{kh} * kw * layer.in_blocks * layer.out_blocks;
    }
    void measure() {
      in_h = (layer.side - 1) * layer.stride + kh;
      in_w = (layer.side - 1) * layer.stride + kw;
      outputs = int64_t{layer.side} * layer.side;
    }
  };

  /// Whether two copies go into the scratchpads.
  bool fits(const Tile& t) const {
    const Layer& layer = t.layer;
    const int64_t chained = t.has(kChain) ? t.outputs * layer.out_blocks : 0;
    return int64_t{t.in_h} * t.in_w * layer.in_blocks + chained <= half(isa::Space::kInp) &&
           t.weights() <= half(isa::Space::kWgt) && t.outputs * layer.out_blocks <= half(isa::Space::kAcc) &&
           t.outputs * layer.out_blocks <= half(isa::Space::kOut) &&
           layer.out_blocks <= std::max<int64_t>(1, (config_.param_depth() - 1) / 2);
  }

  /// The layer's tile, shrunk until it fits; at its smallest add() leaves out what is outside.
  Tile shrunk(const Layer& wanted) const {
    Tile t;
    t.layer = wanted;
    t.kh = t.kw = wanted.kernel;
    if (t.depthwise()) {
      t.kw = std::min(t.kw, config_.depthwise_taps());
      t.kh = std::min(t.kh, config_.depthwise_taps() / t.kw);
    }
    Layer& layer = t.layer;
    for (t.measure(); !fits(t); t.measure()) {
      if (layer.side > 2) {
        --layer.side;
      } else if (layer.in_blocks > 1 || layer.out_blocks > 1) {
        layer.in_blocks = std::max(1, layer.in_blocks / 2);
        layer.out_blocks = std::max(1, layer.out_blocks / 2);
      } else if (layer.side > 1) {
        layer.side = 1;
      } else {
        break;
      }
    }
    return t;
  }

  void make_tile(const Layer& layer, bool load_weights) {
    const int copy = tile_ % 2;
    Tile t = shrunk(layer);
    t.inp = copy * half(isa::Space::kInp), t.wgt = copy * half(isa::Space::kWgt);
    t.acc = copy * half(isa::Space::kAcc), t.out = copy * half(isa::Space::kOut);
    t.param = std::min<int64_t>(config_.param_depth() - 1, 1) + copy * ((config_.param_depth() - 1) / 2);
    t.chained = t.inp + int64_t{t.in_h} * t.in_w * t.layer.in_blocks;
    if (t.layer.kind == Kind::kPool) {
      load_image(t, isa::Space::kOut, t.out, t.in_h, t.in_w, 1, {before(Engine::kStore), before(Engine::kAlu)});
      make_pool(t.layer, t.in_w, t.out);
    } else {
      make_product(t, load_weights);
    }
    store_results(t, copy);
    ends_[copy] = signals_;
  }

  /// Rows of an image that is wider than the tile; every third tile lies at its upper left corner.
  void load_image(const Tile& t, isa::Space space, int64_t address, int h, int w, int n,
                  std::initializer_list<Wait> waits) {
    isa::Load load;
    const int bytes = config_.entry_bytes(space) * n;
    load.space = space;
    load.dram_offset = static_cast<uint64_t>(activations_ + tile_ % 7 * config_.axi_bytes / 2);
    load.length = static_cast<uint16_t>(std::min(bytes, 65535));
    load.sp_addr = static_cast<uint32_t>(address * config_.entry_bytes(space));
    const bool padded = space == isa::Space::kInp && t.kh > 1 && tile_ % 3 == 0;
    // As a compiler does: innermost loops first, only padding wants the outer ones.
    const size_t loop = padded ? 0 : 2;
    load.extent[loop] = static_cast<uint16_t>(h);
    load.extent[loop + 1] = static_cast<uint16_t>(w);
    load.dram_stride[loop] = 2 * w * bytes;
    load.sp_stride[loop] = w * bytes;
    load.dram_stride[loop + 1] = load.sp_stride[loop + 1] = bytes;
    if (padded) load.pad_before = load.pad_after = {1, 1};
    load.pad_value = 3;
    add(load, waits);
  }

  static int16_t s16(int64_t value) { return static_cast<int16_t>(value); }
  static uint16_t u16(int64_t value) { return static_cast<uint16_t>(value); }

  /// The loads, the sums and their conversion.
  void make_product(const Tile& t, bool load_weights) {
    const int blocks = t.layer.in_blocks, out_blocks = t.layer.out_blocks, side = t.layer.side;
    if (load_weights) {
      load_entries(isa::Space::kWgt, weights_, t.wgt, t.weights(), {before(Engine::kGemm)});
      load_entries(isa::Space::kParam, config_.param_entry_bytes(), t.param, out_blocks, {before(Engine::kAlu)});
    }
    load_image(t, isa::Space::kInp, t.inp, t.in_h, t.in_w, blocks, {before(Engine::kGemm)});
    if (t.has(kResidual)) {
      load_image(t, isa::Space::kOut, t.out, side, side, out_blocks, {before(Engine::kStore), before(Engine::kAlu)});
    }
    isa::Gemm gemm = sums(t);
    add(gemm, {now(Engine::kLoad), before(Engine::kAlu)});
    if (t.has(kAccumulate)) {
      gemm.accumulate = true;
      add(gemm, {});
    }
    const isa::Alu alu = conversion(t);
    if (t.has(kChain) && config_.block_in == config_.block_out) chain(t, alu);
    add(alu, {now(Engine::kGemm), now(Engine::kLoad), before(Engine::kStore)});
  }

  /// The products of all windows.
  static isa::Gemm sums(const Tile& t) {
    const int blocks = t.layer.in_blocks, out_blocks = t.layer.out_blocks, side = t.layer.side;
    const int kh = t.kh, kw = t.kw, step = t.layer.stride * blocks, row = t.in_w * blocks;
    isa::Gemm gemm;
    gemm.mode = t.depthwise() ? isa::GemmMode::kDepthwise : isa::GemmMode::kDense;
    gemm.inp_addr = u16(t.inp);
    gemm.wgt_addr = u16(t.wgt);
    gemm.acc_addr = u16(t.acc);
    gemm.inp_zero = 3;
    gemm.inp_unsigned = true;
    if (t.depthwise()) {
      gemm.reduce = 2;
      gemm.extent = {1, u16(out_blocks), u16(side), u16(side), u16(kh), u16(kw)};
      gemm.inp_stride = {0, 1, s16(t.layer.stride * row), s16(step), s16(row), s16(blocks)};
      gemm.wgt_stride = {0, 1, 0, 0, 0, 0};
      gemm.acc_stride = {0, s16(t.outputs), s16(side), 1, 0, 0};
    } else if (kh * kw == 1 && t.layer.stride == 1) {
      gemm.reduce = 1;
      gemm.extent = {1, 1, 1, u16(out_blocks), u16(t.outputs), u16(blocks)};
      gemm.inp_stride = {0, 0, 0, 0, s16(blocks), 1};
      gemm.wgt_stride = {0, 0, 0, s16(blocks), 0, 1};
      gemm.acc_stride = {0, 0, 0, s16(t.outputs), 1, 0};
    } else {
      gemm.reduce = 3;
      gemm.extent = {u16(out_blocks), u16(side), u16(side), u16(kh), u16(kw), u16(blocks)};
      gemm.inp_stride = {0, s16(t.layer.stride * row), s16(step), s16(row), s16(blocks), 1};
      gemm.wgt_stride = {s16(kh * kw * blocks), 0, 0, s16(kw * blocks), s16(blocks), 1};
      gemm.acc_stride = {s16(t.outputs), s16(side), 1, 0, 0, 0};
    }
    return gemm;
  }

  /// The sums become bytes.
  isa::Alu conversion(const Tile& t) const {
    isa::Alu alu;
    // Every other pair of tiles has the channels innermost: then each vector has other parameters.
    const size_t pixel = tile_ % 4 < 2 ? 5 : 4, channel = 9 - pixel;
    alu.extent[channel] = u16(t.layer.out_blocks);
    alu.extent[pixel] = u16(t.outputs);
    alu.src = isa::AluSpace::kAcc;
    alu.src_addr = u16(t.acc);
    alu.src_stride[channel] = s16(t.outputs);
    alu.src_stride[pixel] = 1;
    alu.dst = isa::AluSpace::kOut;
    alu.dst_addr = u16(t.out);
    alu.dst_stride[channel] = 1;
    alu.dst_stride[pixel] = s16(t.layer.out_blocks);
    alu.convert = true;
    alu.param_addr = u16(t.param);
    alu.param_loop = static_cast<uint8_t>(channel);
    alu.low = 0;
    alu.high = 255;
    if (t.has(kResidual)) {
      alu.low = -128;
      alu.high = 127;
      alu.second_op = isa::SecondOp::kAdd;
      alu.second_addr = alu.dst_addr;
      alu.second_stride = alu.dst_stride;
    }
    if (t.has(kTable)) alu.table_enable = alu.table_unsigned = true;
    return alu;
  }

  /// The results stay in INP, with zeros as a border, and a dense layer of one tap makes new sums of them.
  void chain(const Tile& t, const isa::Alu& alu) {
    const int out_blocks = t.layer.out_blocks;
    isa::Alu inner = alu;
    inner.dst = isa::AluSpace::kInp;
    inner.dst_addr = u16(t.chained);
    add(inner, {now(Engine::kGemm)});
    isa::Alu border;
    border.src = border.dst = isa::AluSpace::kInp;
    border.src_addr = border.dst_addr = u16(t.chained);
    border.extent[5] = u16(t.layer.side);
    border.dst_stride[5] = 1;
    add(border, {});
    isa::Gemm gemm;
    gemm.reduce = 1;
    gemm.extent = {1, 1, 1, u16(out_blocks), u16(t.outputs), u16(out_blocks)};
    gemm.inp_addr = u16(t.chained);
    gemm.inp_stride = {0, 0, 0, 0, s16(out_blocks), 1};
    gemm.wgt_addr = u16(t.wgt);
    gemm.wgt_stride = {0, 0, 0, 0, 0, 1};
    gemm.acc_addr = u16(t.acc);
    gemm.acc_stride = {0, 0, 0, s16(t.outputs), 1, 0};
    add(gemm, {now(Engine::kAlu)});
  }

  void store_results(const Tile& t, int copy) {
    const int side = t.layer.side, bytes = config_.out_entry_bytes() * t.layer.out_blocks;
    isa::Store store;
    store.space = isa::Space::kOut;
    store.dram_offset = static_cast<uint64_t>(results_ + copy * config_.axi_bytes / 2);
    store.length = static_cast<uint16_t>(std::min(bytes, 65535));
    store.sp_addr = static_cast<uint32_t>(t.out * config_.out_entry_bytes());
    store.extent = {1, 1, u16(side), u16(side)};
    store.dram_stride = {0, 0, 2 * side * bytes, bytes};
    store.sp_stride = {0, 0, side * bytes, bytes};
    add(store, {now(Engine::kAlu)});
  }

  /// The largest of each window, in place: behind the tile that has been loaded.
  void make_pool(const Layer& layer, int in_w, int64_t out) {
    isa::Alu alu;
    alu.src = alu.dst = isa::AluSpace::kOut;
    alu.reduce = 2;
    alu.reduce_op = isa::ReduceOp::kMax;
    alu.extent = {1,
                  1,
                  static_cast<uint16_t>(layer.side),
                  static_cast<uint16_t>(layer.side),
                  static_cast<uint16_t>(layer.kernel),
                  static_cast<uint16_t>(layer.kernel)};
    alu.src_addr = alu.dst_addr = static_cast<uint16_t>(out);
    alu.src_stride = {
        0, 0, static_cast<int16_t>(layer.stride * in_w), static_cast<int16_t>(layer.stride), static_cast<int16_t>(in_w),
        1};
    alu.dst_stride = {0, 0, static_cast<int16_t>(layer.side), 1, 0, 0};
    alu.src_unsigned = true;
    alu.low = 0;
    alu.high = 255;
    add(alu, {now(Engine::kLoad)});
  }

  const isa::MachineConfig& config_;
  TrainingProgram program_;
  int64_t weights_ = 0, activations_ = 0, results_ = 0;  // offsets in DRAM
  int tile_ = 0;
  std::array<uint16_t, isa::kEngines> signals_{};
  std::array<std::array<uint16_t, isa::kEngines>, 2> ends_{};
};

}  // namespace

TrainingProgram training_program(const isa::MachineConfig& config) { return Maker(config).make(); }

uint64_t train(const isa::MachineConfig& config, const TesseraRtlApi& api) {
  TrainingProgram program = training_program(config);
  const uint64_t address = uint64_t{1} << 32;
  const size_t begin = (program.dram.size() + 4095) / 4096 * 4096;
  program.dram.resize(begin);
  for (const isa::Instruction& instruction : program.instructions) {
    const isa::Word word = isa::encode(instruction);
    program.dram.insert(program.dram.end(), word.begin(), word.end());
  }
  DramModel dram({.beat_bytes = config.axi_bytes}, address, program.dram.data(), program.dram.size());
  RtlRequest request;
  request.program_address = address + begin;
  request.instruction_count = static_cast<uint32_t>(program.instructions.size());
  request.bases[0] = address;
  request.max_cycles = 10'000'000;
  const RtlResult result = RtlMachine(config, api).run(request, dram);
  if (result.fault.code != isa::Fault::kNone) {
    throw Error(ErrorCode::kInternal, "the training program faults: " + std::string(to_string(result.fault.code)) +
                                          " at " + std::to_string(result.fault.pc));
  }
  return result.cycles;
}

}  // namespace tessera::sim
