// SPDX-License-Identifier: Apache-2.0
// The tile loop, the slots, products over tiles and their stages.
#include "compiler/npu/nest_lowering.h"

#include <algorithm>

#include "base/error.h"
#include "compiler/npu/lower.h"

namespace tessera::npu {

using schedule::Access;
using schedule::ChannelMap;
using schedule::Dim;
using schedule::Extents;
using schedule::Intrinsic;
using schedule::Nest;
using schedule::Operand;
using schedule::Span;

std::optional<size_t> Ring::find(const Tile& key) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return i;
  }
  return std::nullopt;
}

size_t Ring::take(const Tile& key) {
  const size_t slot = next;
  next = (next + 1) % keys.size();
  keys[slot] = key;
  return slot;
}

std::map<isa::Space, int64_t> NestLowering::demand() const {
  schedule::PerOperand copies{};
  for (size_t i = 0; i < copies.size(); ++i) copies[i] = schedule::copies_of(nest_, schedule_, static_cast<Operand>(i));
  schedule::Capacity use;
  schedule::add_use(use, footprint_, copies, input_scope_);
  std::map<isa::Space, int64_t> total;
  for (size_t i = 0; i < use.entries.size(); ++i) {
    if (use.entries[i] > 0) total[static_cast<isa::Space>(i)] = use.entries[i];
  }
  return total;
}

void NestLowering::place(std::map<isa::Space, int64_t>& cursor) {
  const auto& f = footprint_;
  const auto take = [&](Ring& ring, Operand operand, isa::Space space, int64_t size) {
    const int64_t copies = size > 0 ? schedule::copies_of(nest_, schedule_, operand) : 0;
    if (copies == 0) return;
    ring = {cursor[space], size, std::vector<std::optional<Tile>>(static_cast<size_t>(copies)), 0};
    cursor[space] += size * copies;
  };
  take(input_, Operand::kInput, input_scope_, f.input);
  take(weights_, Operand::kWeights, isa::Space::kWgt, f.weights);
  take(sums_, Operand::kSums, isa::Space::kAcc, f.sums);
  take(second_, Operand::kSecond, isa::Space::kOut, f.second);
  take(output_, Operand::kOutput, isa::Space::kOut, f.output);
  take(params_, Operand::kParams, isa::Space::kParam, f.params);
  if (f.constants > 0) {
    constants_entry_ = cursor[isa::Space::kParam];
    cursor[isa::Space::kParam] += f.constants;
  }
}

void NestLowering::find_attaches() {
  const auto& levels = schedule_.levels;
  for (int o = 0; o < schedule::kOperands; ++o) {
    const auto operand = static_cast<Operand>(o);
    if (!schedule::fetched(nest_, operand)) continue;
    const int attach = schedule::attach_of(nest_, schedule_, operand);
    for (int i = 0; i < attach; ++i) {
      const schedule::Level& level = levels[static_cast<size_t>(i)];
      if (schedule::indexes(nest_, operand, level.dim)) continue;
      // Threads share what they do not index.
      int64_t& step = share_[static_cast<size_t>(o)][static_cast<size_t>(level.dim)];
      step = level.threads;
      for (size_t k = static_cast<size_t>(i) + 1; k < levels.size(); ++k) {
        if (levels[k].dim == level.dim) step *= levels[k].factor;
      }
    }
  }
}

Tile NestLowering::key_of(Operand operand, const Tile& tile) const {
  Tile key;
  key.begin.value.fill(0);
  for (int d = 0; d < schedule::kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    const int64_t share = share_[static_cast<size_t>(operand)][static_cast<size_t>(d)];
    if (share > 0) key.begin[dim] = tile.begin[dim] - tile.begin[dim] % share;
    if (!schedule::indexes(nest_, operand, dim)) continue;
    key.begin[dim] = tile.begin[dim];
    key.count[dim] = tile.count[dim];
  }
  if (operand == Operand::kInput && keeps_rows_) {
    int64_t& begin = key.begin[Dim::kOh];
    begin -= begin % window_rows_;
    key.count[Dim::kOh] = std::min(window_rows_, nest_.extent[Dim::kOh] - begin);
  }
  return key;
}

void NestLowering::run() {
  Extents begin;
  begin.value.fill(0);
  iterate(0, {begin});
}

void NestLowering::iterate(size_t depth, const std::vector<Extents>& threads) {
  const auto& levels = schedule_.levels;
  if (depth == levels.size() || !levels[depth].outer()) {
    const Extents size = schedule_.tile();
    for (const Extents& begin : threads) {
      Tile tile;
      tile.begin = begin;
      for (int d = 0; d < schedule::kDims; ++d) {
        const auto dim = static_cast<Dim>(d);
        tile.count[dim] = std::min(size[dim], nest_.extent[dim] - begin[dim]);
      }
      emitter_.begin_step();
      lower_tile(tile);
    }
    return;
  }
  const schedule::Level& level = levels[depth];
  int64_t step = 1;
  for (size_t k = depth + 1; k < levels.size(); ++k) {
    if (levels[k].dim == level.dim) step *= levels[k].factor;
  }
  std::vector<Extents> at;
  for (int64_t first = 0; first < level.factor; first += level.threads) {
    at.clear();
    for (const Extents& begin : threads) {
      for (int64_t i = first; i < std::min(first + level.threads, level.factor); ++i) {
        const int64_t position = begin[level.dim] + i * step;
        if (position >= nest_.extent[level.dim]) break;
        at.push_back(begin);
        at.back()[level.dim] = position;
      }
    }
    if (at.empty()) break;
    iterate(depth + 1, at);
  }
}

bool NestLowering::split_window() const {
  const Extents tile = schedule_.tile();
  return tile[Dim::kKh] < nest_.extent[Dim::kKh] || tile[Dim::kKw] < nest_.extent[Dim::kKw];
}

void NestLowering::lower_tile(const Tile& tile, std::optional<int64_t> source, const std::optional<Sink>& sink) {
  ++info_.tiles;
  emitter_.layer = layer_;
  sink_ = sink;
  const Extents& b = tile.begin;
  const Extents& c = tile.count;
  const bool first = b[Dim::kIc] == 0 && b[Dim::kKh] == 0 && b[Dim::kKw] == 0;
  const bool last = b[Dim::kIc] + c[Dim::kIc] == nest_.extent[Dim::kIc] &&
                    b[Dim::kKh] + c[Dim::kKh] == nest_.extent[Dim::kKh] &&
                    b[Dim::kKw] + c[Dim::kKw] == nest_.extent[Dim::kKw];
  const int64_t input = source ? *source : load_input(tile);
  if (footprint_.sums > 0) {
    const Tile key = key_of(Operand::kSums, tile);
    const auto open = first ? std::nullopt : sums_.find(key);
    TESSERA_INVARIANT(first || open, "sums have lost their slot before they were finished");
    sums_slot_ = first ? sums_.take(key) : *open;
  }
  if (weighted()) {
    const size_t weights = load_weights(tile);
    if (first && nest_.bias_preload) preload_bias(tile);
    multiply(tile, input, weights_.address(weights), !first || nest_.bias_preload);
  } else if (partial_reduce()) {
    reduce_part(tile, input, first, last);
  }
  if (last) finish(tile, input);
}

Span NestLowering::window_of(const Tile& tile) const {
  if (nest_.input.broadcast_h) return plain_span(0, 1);
  const Tile window = keeps_rows_ ? key_of(Operand::kInput, tile) : tile;
  return schedule::input_span(window.begin[Dim::kOh], window.count[Dim::kOh], tile.begin[Dim::kKh],
                              tile.count[Dim::kKh], nest_.stride_h, nest_.dilation_h, nest_.pad_top);
}

Span NestLowering::rows_of(const Tile& tile) const {
  Span rows = window_of(tile);
  if (!keeps_rows_) return rows;
  rows.begin += tile.begin[Dim::kOh] % window_rows_ * rows.stride * rows.step;
  rows.count = (tile.count[Dim::kOh] - 1) * rows.stride + (tile.count[Dim::kKh] - 1) * rows.dilation + 1;
  return rows;
}

Span NestLowering::cols_of(const Tile& tile) const {
  if (nest_.input.broadcast_w) return plain_span(0, 1);
  return schedule::input_span(tile.begin[Dim::kOw], tile.count[Dim::kOw], tile.begin[Dim::kKw], tile.count[Dim::kKw],
                              nest_.stride_w, nest_.dilation_w, nest_.pad_left);
}

void NestLowering::multiply(const Tile& tile, int64_t input, int64_t weights, bool accumulate) {
  if (nest_.factor.present) return multiply_factor(tile, input, weights, accumulate);
  const Extents& c = tile.count;
  const Span rows = rows_of(tile), cols = cols_of(tile);
  const int64_t blocks = input_blocks(tile), results = c[Dim::kG] * c[Dim::kOc];
  const int64_t row = cols.count * blocks;
  isa::Gemm gemm;
  gemm.inp_zero = static_cast<int16_t>(task_.input_zero);
  gemm.inp_unsigned = nest_.input.is_unsigned;
  ComputeNest compute;
  const auto outer = [&](Dim dim, int64_t in, int64_t weight, int64_t sum) {
    compute.outer.push_back({c[dim], {in, weight, sum, 0}});
  };
  const int64_t sums = sums_.address(sums_slot_);
  const auto emit_gemm = [&](const isa::Gemm& head) {
    scratch_.clear();
    append_gemm(head, compute, scratch_);
    for (const isa::Instruction& instruction : scratch_) emitter_.push(instruction);
  };
  const auto& planes = task_.weights->planes;
  for (size_t p = 0; p < planes.size(); ++p) {
    gemm.wgt_unsigned = planes[p].is_unsigned;
    gemm.wgt_zero = static_cast<int16_t>(planes[p].zero);
    if (nest_.intrinsic == Intrinsic::kDepthwise) {
      gemm.mode = isa::GemmMode::kDepthwise;
      int64_t pass = static_cast<int64_t>(p) * schedule::depthwise_passes(nest_, c[Dim::kKh], c[Dim::kKw]);
      for (int64_t kh = 0; kh < c[Dim::kKh]; kh += nest_.tap_h) {
        for (int64_t kw = 0; kw < c[Dim::kKw]; kw += nest_.tap_w, ++pass) {
          compute = {};
          compute.address = {input + kh * rows.dilation * row + kw * cols.dilation * blocks,
                             weights + pass * c[Dim::kG], sums, 0};
          outer(Dim::kN, rows.count * row, 0, c[Dim::kOh] * c[Dim::kOw] * results);
          outer(Dim::kG, 1, 1, 1);
          outer(Dim::kOh, rows.stride * row, 0, c[Dim::kOw] * results);
          outer(Dim::kOw, cols.stride * blocks, 0, results);
          compute.reduction.push_back({std::min(nest_.tap_h, c[Dim::kKh] - kh), {rows.dilation * row, 0, 0, 0}});
          compute.reduction.push_back({std::min(nest_.tap_w, c[Dim::kKw] - kw), {cols.dilation * blocks, 0, 0, 0}});
          gemm.accumulate = accumulate;
          emit_gemm(gemm);
          accumulate = true;
        }
      }
      info_.padded_macs += config_.batch * config_.lanes() * c[Dim::kN] * c[Dim::kG] * c[Dim::kOh] * c[Dim::kOw] *
                           c[Dim::kKh] * c[Dim::kKw];
      continue;
    }
    const int64_t ic = c[Dim::kIc], kw = c[Dim::kKw] * ic, kh = c[Dim::kKh] * kw;
    compute = {};
    compute.address = {input, weights + static_cast<int64_t>(p) * results * kh, sums, 0};
    outer(Dim::kN, rows.count * row, 0, c[Dim::kOh] * c[Dim::kOw] * results);
    outer(Dim::kOh, rows.stride * row, 0, c[Dim::kOw] * results);
    outer(Dim::kOw, cols.stride * blocks, 0, results);
    outer(Dim::kG, ic, c[Dim::kOc] * kh, c[Dim::kOc]);
    outer(Dim::kOc, 0, kh, 1);
    compute.reduction.push_back({c[Dim::kKh], {rows.dilation * row, kw, 0, 0}});
    compute.reduction.push_back({c[Dim::kKw], {cols.dilation * blocks, ic, 0, 0}});
    compute.reduction.push_back({ic, {1, 1, 0, 0}});
    gemm.accumulate = accumulate;
    emit_gemm(gemm);
    accumulate = true;
    info_.padded_macs += config_.peak_macs() * c[Dim::kN] * c[Dim::kOh] * c[Dim::kOw] * results * kh;
  }
}

isa::AluSpace NestLowering::alu_space(isa::Space space) const {
  return space == isa::Space::kInp   ? isa::AluSpace::kInp
         : space == isa::Space::kOut ? isa::AluSpace::kOut
                                     : isa::AluSpace::kAcc;
}

ComputeNest NestLowering::result_nest(const Tile& tile, std::array<int64_t, 4> source, std::array<int64_t, 4> second,
                                      bool params) const {
  const Extents& c = tile.count;
  const int64_t blocks = c[Dim::kG] * c[Dim::kOc];
  ComputeNest nest;
  nest.outer.push_back({c[Dim::kN], {source[0], c[Dim::kOh] * c[Dim::kOw] * blocks, second[0], 0}});
  nest.outer.push_back({c[Dim::kOh], {source[1], c[Dim::kOw] * blocks, second[1], 0}});
  nest.outer.push_back({c[Dim::kOw], {source[2], blocks, second[2], 0}});
  nest.outer.push_back({blocks, {source[3], 1, second[3], params ? 1 : 0}});
  return nest;
}

std::array<int64_t, 4> NestLowering::input_strides(const Tile& tile) const {
  const Span rows = rows_of(tile), cols = cols_of(tile);
  const int64_t blocks = input_blocks(tile), row = cols.count * blocks;
  const Access& in = nest_.input;
  return {in.broadcast_n ? 0 : rows.count * row, in.broadcast_h ? 0 : rows.stride * row,
          in.broadcast_w ? 0 : cols.stride * blocks, in.broadcast_c ? 0 : 1};
}

void NestLowering::add_window(ComputeNest& nest, const Tile& tile) const {
  const Span rows = rows_of(tile), cols = cols_of(tile);
  const int64_t blocks = input_blocks(tile);
  nest.reduction.push_back({tile.count[Dim::kKh], {rows.dilation * cols.count * blocks, 0, 0, 0}});
  nest.reduction.push_back({tile.count[Dim::kKw], {cols.dilation * blocks, 0, 0, 0}});
}

void NestLowering::emit_alu(const isa::Alu& head, const ComputeNest& nest) {
  scratch_.clear();
  append_alu(head, nest, scratch_);
  for (const isa::Instruction& instruction : scratch_) emitter_.push(instruction);
}

int64_t NestLowering::results_of(const Tile& tile) const {
  return tile.count[Dim::kN] * tile.count[Dim::kOh] * tile.count[Dim::kOw] * tile.count[Dim::kG] * tile.count[Dim::kOc];
}

void NestLowering::reduce_part(const Tile& tile, int64_t input, bool first, bool last) {
  const int64_t sums = sums_.address(sums_slot_), results = results_of(tile);
  isa::Alu alu;
  alu.reduce_op = task_.sum ? isa::ReduceOp::kSum : isa::ReduceOp::kMax;
  alu.src = alu_space(input_scope_);
  alu.dst = isa::AluSpace::kAcc;
  alu.src_unsigned = nest_.input.is_unsigned;
  ComputeNest nest = result_nest(tile, input_strides(tile), {}, false);
  nest.address = {input, first ? sums : sums + results, 0, 0};
  add_window(nest, tile);
  emit_alu(alu, nest);
  if (first || last) return;
  join(tile, false);
}

void NestLowering::join(const Tile& tile, bool stage) {
  const int64_t sums = sums_.address(sums_slot_), results = results_of(tile);
  isa::Alu alu;
  alu.reduce_op = task_.sum ? isa::ReduceOp::kSum : isa::ReduceOp::kMax;
  alu.src = alu.dst = isa::AluSpace::kAcc;
  ComputeNest nest = stage ? stage_nest(tile, contiguous(tile)) : result_nest(tile, contiguous(tile), {}, false);
  if (stage) set_stage(alu);
  nest.address[0] = sums;
  if (!stage) nest.address[1] = sums;
  nest.reduction.push_back({2, {results, 0, 0, 0}});
  emit_alu(alu, nest);
}

std::array<int64_t, 4> NestLowering::contiguous(const Tile& tile) {
  const Extents& c = tile.count;
  const int64_t blocks = c[Dim::kG] * c[Dim::kOc];
  return {c[Dim::kOh] * c[Dim::kOw] * blocks, c[Dim::kOw] * blocks, blocks, 1};
}

void NestLowering::set_stage(isa::Alu& alu) const {
  const Stage& stage = *task_.stage;
  if (stage.raw) {
    alu.dst = isa::AluSpace::kAcc;
    return;
  }
  alu.dst = sink_ ? sink_->space : isa::AluSpace::kOut;
  alu.convert = stage.convert;
  alu.low = static_cast<int16_t>(stage.low);
  alu.high = static_cast<int16_t>(stage.high);
  alu.out_zero = static_cast<int16_t>(stage.out_zero);
  if (stage.table) {
    alu.table_enable = true;
    alu.table = static_cast<uint8_t>(table_);
    alu.table_unsigned = stage.table_unsigned;
  }
  if (stage.second) {
    const SecondOperation& second = *stage.second;
    alu.second_op = second.kind == SecondOperation::Kind::kAdd   ? isa::SecondOp::kAdd
                    : second.kind == SecondOperation::Kind::kMul ? isa::SecondOp::kMul
                                                                 : isa::SecondOp::kMax;
    alu.second_swap = second.swap;
    alu.second_unsigned = nest_.second.is_unsigned;
    alu.constant_addr = static_cast<uint16_t>(constants_entry_);
  }
  if (stage.second_table) {
    alu.second_table_enable = true;
    alu.second_table = static_cast<uint8_t>(second_table_);
  }
}

ComputeNest NestLowering::stage_nest(const Tile& tile, const std::array<int64_t, 4>& source) const {
  std::array<int64_t, 4> second{};
  if (nest_.second.present) {
    const Access& s = nest_.second;
    const Extents& c = tile.count;
    const int64_t blocks = s.broadcast_c ? 1 : c[Dim::kG] * c[Dim::kOc];
    const int64_t cols = s.broadcast_w ? 1 : c[Dim::kOw], rows = s.broadcast_h ? 1 : c[Dim::kOh];
    second = {s.broadcast_n ? 0 : rows * cols * blocks, s.broadcast_h ? 0 : cols * blocks, s.broadcast_w ? 0 : blocks,
              s.broadcast_c ? 0 : 1};
  }
  ComputeNest nest = result_nest(tile, source, second, nest_.per_channel && nest_.convert);
  if (sink_) {
    nest.address[1] = sink_->address;
    for (size_t k = 0; k < sink_->stride.size(); ++k) nest.outer[k].stride[1] = sink_->stride[k];
  } else {
    nest.address[1] = nest_.raw ? sums_.address(sums_slot_) : output_.address(output_slot_);
  }
  nest.address[2] = nest_.second.present ? second_address_ : 0;
  nest.address[3] = nest_.convert ? params_.address(params_slot_) : 0;
  return nest;
}

void NestLowering::finish(const Tile& tile, int64_t input) {
  if (!nest_.raw && !sink_) output_slot_ = output_.take(tile);
  if (nest_.convert) {
    const Tile key = key_of(Operand::kParams, tile);
    if (const auto slot = params_.find(key)) {
      params_slot_ = *slot;
    } else {
      params_slot_ = params_.take(key);
      load_blob(isa::Space::kParam, params_.address(params_slot_), add_blob(pack_params(tile)), Stream::kParams);
    }
  }
  if (nest_.second.present) load_second(tile);
  Box box = result_box(nest_.output, tile, 0, Stream::kOutput);
  box.store = true;
  if (nest_.raw) {
    box.space = isa::Space::kAcc;
    if (nest_.intrinsic == Intrinsic::kMap && input_scope_ == isa::Space::kAcc && !nest_.input.broadcasts()) {
      box.slot = input;
      transfer(box);
      return;
    }
    box.slot = sums_.address(sums_slot_);
  } else if (!sink_) {
    box.slot = output_.address(output_slot_);
  }
  if (partial_reduce()) {
    join(tile, true);
  } else if (!(weighted() && nest_.raw)) {
    isa::Alu alu;
    alu.src = weighted() ? isa::AluSpace::kAcc : alu_space(input_scope_);
    alu.src_unsigned = alu.src != isa::AluSpace::kAcc && nest_.input.is_unsigned;
    set_stage(alu);
    ComputeNest nest = stage_nest(tile, weighted() ? contiguous(tile) : input_strides(tile));
    nest.address[0] = weighted() ? sums_.address(sums_slot_) : input;
    if (nest_.intrinsic == Intrinsic::kReduce) {
      alu.reduce_op = task_.sum ? isa::ReduceOp::kSum : isa::ReduceOp::kMax;
      add_window(nest, tile);
    }
    emit_alu(alu, nest);
  }
  if (!sink_) transfer(box);
}

void NestLowering::release_weights() {
  // The slots are taken in turn, and the last one is in use to the end; the others are too when they are never fetched
  // again.
  const auto& levels = schedule_.levels;
  const bool turns = !levels.empty() && levels[0].outer() && schedule::indexes(nest_, Operand::kWeights, levels[0].dim);
  if (weights_.keys.empty() || !turns) return;
  const size_t last = (weights_.next + weights_.keys.size() - 1) % weights_.keys.size();
  emitter_.set_in_use(isa::Space::kWgt, weights_.address(last), weights_.address(last) + weights_.size);
}

void NestLowering::fill(const Sink& at, int64_t rows, int64_t cols, int64_t blocks, int64_t readable, uint8_t value) {
  if (rows < 1 || cols < 1 || blocks < 1) return;
  emitter_.layer = layer_;
  isa::Alu alu;
  alu.src = alu.dst = at.space;
  alu.low = alu.high = value;  // the clamp makes a constant of whatever is read
  ComputeNest nest;
  nest.address = {readable, at.address, 0, 0};
  nest.outer.push_back({rows, {0, at.stride[1], 0, 0}});
  nest.outer.push_back({cols, {0, at.stride[2], 0, 0}});
  nest.outer.push_back({blocks, {0, at.stride[3], 0, 0}});
  emit_alu(alu, nest);
}

void lower(const Task& task, const Nest& nest, const schedule::Schedule& schedule, Emitter& emitter, LayerInfo& info) {
  NestLowering lowering(task, nest, schedule, emitter, info, emitter.layer);
  std::map<isa::Space, int64_t> cursor;
  for (const auto& [space, total] : lowering.demand()) {
    if (total > 0)
      cursor[space] = emitter.reserve(space, total, space == isa::Space::kWgt ? lowering.weight_tile() : 0);
  }
  lowering.place(cursor);
  emitter.release_tables();
  lowering.load_layer_constants();
  lowering.run();
  lowering.release_weights();
}

}  // namespace tessera::npu
