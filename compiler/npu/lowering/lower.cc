// SPDX-License-Identifier: Apache-2.0
// The tile loop, the slots, products over tiles and their stages.
#include "compiler/npu/lowering/nest_lowering.h"

#include <algorithm>
#include <ranges>

#include "base/error.h"
#include "compiler/npu/lowering/lower.h"

namespace tessera::npu {

using schedule::Access;
using schedule::Dim;
using schedule::Extents;
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

schedule::Footprint NestLowering::footprint_of(const Nest& nest, const schedule::Schedule& schedule, bool whole_input) {
  Extents tile = schedule.tile();
  schedule::Footprint result = schedule::footprint(nest, *schedule.intrinsic, tile, schedule.window_rows());
  if (!whole_input) return result;
  tile[Dim::kG] = nest.extent[Dim::kG];
  result.input = schedule::footprint(nest, *schedule.intrinsic, tile, schedule.window_rows()).input;
  return result;
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
    for (int d = 0; d < schedule::kDims; ++d)
      indexed_[static_cast<size_t>(o)][static_cast<size_t>(d)] = schedule::indexes(nest_, operand, static_cast<Dim>(d));
    if (!schedule::fetched(nest_, operand)) continue;
    const int attach = schedule::attach_of(nest_, schedule_, operand);
    for (int i = 0; i < attach; ++i) {
      const schedule::Level& level = levels[static_cast<size_t>(i)];
      if (indexed_[static_cast<size_t>(o)][static_cast<size_t>(level.dim)]) continue;
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
  const auto& share = share_[static_cast<size_t>(operand)];
  const auto& indexed = indexed_[static_cast<size_t>(operand)];
  for (int d = 0; d < schedule::kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    const int64_t step = share[static_cast<size_t>(d)];
    if (step > 0) key.begin[dim] = tile.begin[dim] - tile.begin[dim] % step;
    if (!indexed[static_cast<size_t>(d)]) continue;
    key.begin[dim] = tile.begin[dim];
    key.count[dim] = tile.count[dim];
  }
  if (operand == Operand::kInput && whole_input_) {
    key.begin[Dim::kG] = 0;
    key.count[Dim::kG] = nest_.extent[Dim::kG];
  }
  if (operand == Operand::kInput && keeps_rows_) {
    int64_t& begin = key.begin[Dim::kOh];
    begin -= begin % window_rows_;
    key.count[Dim::kOh] = std::min(window_rows_, nest_.extent[Dim::kOh] - begin);
  }
  return key;
}

namespace {

schedule::Extents origin() {
  schedule::Extents begin;
  begin.value.fill(0);
  return begin;
}

}  // namespace

void NestLowering::run() {
  iterate(0, {origin()}, [&](const Tile& tile) {
    emitter_.begin_step();
    lower_tile(tile);
  });
}

std::vector<Tile> NestLowering::tiles() const {
  std::vector<Tile> result;
  iterate(0, {origin()}, [&](const Tile& tile) { result.push_back(tile); });
  return result;
}

template <typename Visit>
void NestLowering::iterate(size_t depth, const std::vector<Extents>& threads, Visit&& visit) const {
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
      visit(tile);
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
    iterate(depth + 1, at, visit);
  }
}

bool NestLowering::starts(const Tile& tile) const {
  return tile.begin[Dim::kIc] == 0 && tile.begin[Dim::kKh] == 0 && tile.begin[Dim::kKw] == 0;
}

bool NestLowering::ends(const Tile& tile) const {
  const auto reaches = [&](Dim dim) { return tile.begin[dim] + tile.count[dim] == nest_.extent[dim]; };
  return reaches(Dim::kIc) && reaches(Dim::kKh) && reaches(Dim::kKw);
}

bool NestLowering::split_window() const {
  const Extents tile = schedule_.tile();
  return tile[Dim::kKh] < nest_.extent[Dim::kKh] || tile[Dim::kKw] < nest_.extent[Dim::kKw];
}

void NestLowering::lower_tile(const Tile& tile, std::optional<int64_t> source, const std::optional<Sink>& sink,
                              bool held) {
  ++info_.tiles;
  emitter_.layer = layer_;
  sink_ = sink;
  const bool first = starts(tile), last = ends(tile);
  const int64_t input = source ? *source : load_input(tile);
  if (footprint_.sums > 0) {
    const Tile key = key_of(Operand::kSums, tile);
    const auto open = first ? std::nullopt : sums_.find(key);
    TESSERA_INVARIANT(first || open, "sums have lost their slot before they were finished");
    sums_slot_ = first ? sums_.take(key) : *open;
  }
  schedule::TileView view = view_of(tile, input);
  view.planar = source && planar();
  view.accumulate = !first || nest_.bias_preload;
  if (weighted()) {
    view.weights = weights_.address(load_weights(tile));
    if (first && nest_.bias_preload) preload_bias(tile);
  }
  if (last) begin_finish(tile);
  for (const Strip& strip : strips_of(tile, last && !sink)) {
    const Tile part = tile_of(tile, strip);
    Code code(*this, part);
    schedule_.intrinsic->accumulate(view_of(view, strip), code);
    if (last && held)
      held_.push_back({tile, input, strip});
    else if (last)
      finish(tile, input, strip);
  }
}

void NestLowering::finish_held() {
  emitter_.layer = layer_;
  for (const Held& part : held_) finish(part.tile, part.input, part.strip);
  held_.clear();
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

void NestLowering::set_planes() {
  isa::Gemm head;
  head.inp_zero = static_cast<int16_t>(task_.input_zero);
  head.inp_unsigned = nest_.input.is_unsigned;
  if (nest_.factor.present) {
    head.wgt_zero = static_cast<int16_t>(task_.factor_zero);
    head.wgt_unsigned = nest_.factor.is_unsigned;
    planes_.push_back(head);
  } else if (weighted()) {
    for (const WeightSource::Plane& plane : task_.weights->planes) {
      head.wgt_unsigned = plane.is_unsigned;
      head.wgt_zero = static_cast<int16_t>(plane.zero);
      planes_.push_back(head);
    }
  }
}

schedule::TileView NestLowering::view_of(const Tile& tile, int64_t input) const {
  schedule::TileView view{.nest = nest_,
                          .count = tile.count,
                          .split = split_window(),
                          .first = starts(tile),
                          .last = ends(tile),
                          .rows = rows_of(tile),
                          .cols = cols_of(tile),
                          .input_blocks = input_blocks(tile),
                          .input = input,
                          .planes = planes_,
                          .input_space = alu_space(input_scope_),
                          .reduce = task_.sum ? isa::ReduceOp::kSum : isa::ReduceOp::kMax};
  if (footprint_.sums > 0) view.sums = sums_.address(sums_slot_);
  return view;
}

isa::AluSpace NestLowering::alu_space(isa::Space space) const {
  return space == isa::Space::kInp   ? isa::AluSpace::kInp
         : space == isa::Space::kOut ? isa::AluSpace::kOut
                                     : isa::AluSpace::kAcc;
}

void NestLowering::Code::gemm(const isa::Gemm& head, const ComputeNest& nest) {
  lowering_.scratch_.clear();
  append_gemm(head, nest, lowering_.scratch_);
  lowering_.push_scratch();
}

void NestLowering::Code::alu(const isa::Alu& head, const ComputeNest& nest) { lowering_.emit_alu(head, nest); }

void NestLowering::Code::row_reduce(const isa::RowReduce& head, const ComputeNest& nest) {
  lowering_.scratch_.clear();
  append_row_reduce(head, nest, lowering_.scratch_);
  lowering_.push_scratch();
}

void NestLowering::Code::row_map(const isa::RowMap& head, const ComputeNest& nest) {
  lowering_.scratch_.clear();
  append_row_map(head, nest, lowering_.scratch_);
  lowering_.push_scratch();
}

std::vector<isa::RowReduce> NestLowering::Code::row_reductions() const {
  const RowForm& form = *lowering_.task_.rows;
  const int64_t length = lowering_.nest_.out_channels.total, lanes = lowering_.config_.block_out;
  isa::RowReduce head;
  head.tail = static_cast<uint8_t>((length - 1) % lanes + 1);
  head.limited = form.shortest > 0;
  if (form.kind == RowForm::Kind::kSoftmax) {
    isa::RowReduce sum = head;
    sum.operation = isa::Reduction::kSumExp;
    sum.table = static_cast<uint8_t>(lowering_.table_);
    if (form.fixed_shift) return {sum};
    return {head, sum};
  }
  head.operation = isa::Reduction::kMoments;
  head.zero = static_cast<int16_t>(form.zero);
  head.length = static_cast<uint16_t>(length);
  head.centre = form.centre;
  head.shift = static_cast<uint8_t>(form.shift);
  head.offset = static_cast<int8_t>(form.offset);
  head.epsilon = static_cast<uint64_t>(form.epsilon);
  return {head};
}

isa::RowMap NestLowering::Code::row_mapping() const {
  const RowForm& form = *lowering_.task_.rows;
  const Stage& stage = *lowering_.task_.stage;
  isa::RowMap map;
  map.dst = lowering_.sink_ ? lowering_.sink_->space : isa::AluSpace::kOut;
  map.low = static_cast<int16_t>(stage.low);
  map.high = static_cast<int16_t>(stage.high);
  map.out_zero = static_cast<int16_t>(stage.out_zero);
  if (form.kind == RowForm::Kind::kSoftmax) {
    map.table = static_cast<uint8_t>(lowering_.second_table_);
    map.limited = form.shortest > 0;
    return map;
  }
  map.operation = isa::Mapping::kNormalise;
  map.zero = static_cast<int16_t>(form.zero);
  return map;
}

void NestLowering::Code::fix_shift(int64_t scalars, int64_t entries, isa::AluSpace space, int64_t readable) {
  auto& fixed = lowering_.fixed_scalars_;
  if (std::ranges::all_of(std::views::iota(scalars, scalars + entries), [&](int64_t e) { return fixed.contains(e); }))
    return;
  for (int64_t e = scalars; e < scalars + entries; ++e) fixed.insert(e);
  isa::Alu alu;
  alu.src = space;
  alu.dst = isa::AluSpace::kAcc;
  alu.convert = true;  // what PARAM holds does not matter
  alu.low = alu.high = static_cast<int16_t>(lowering_.nest_.input.is_unsigned ? 255 : 127);
  ComputeNest nest;
  nest.address = {readable, scalars, 0, 0};
  nest.outer.push_back({entries, {0, 1, 0, 0}});
  lowering_.emit_alu(alu, nest);
}

isa::Alu NestLowering::Code::stage() const {
  isa::Alu alu;
  lowering_.set_stage(alu);
  return alu;
}

ComputeNest NestLowering::Code::stage_nest(const std::array<int64_t, 4>& source) const {
  return lowering_.stage_nest(tile_, source);
}

void NestLowering::emit_alu(const isa::Alu& head, const ComputeNest& nest) {
  scratch_.clear();
  append_alu(head, nest, scratch_);
  push_scratch();
}

void NestLowering::push_scratch() {
  for (const isa::Instruction& instruction : scratch_) emitter_.push(instruction);
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
    const int64_t entries = s.broadcast_c ? 1 : c[Dim::kG] * c[Dim::kOc];
    const int64_t cols = s.broadcast_w ? 1 : c[Dim::kOw], rows = s.broadcast_h ? 1 : c[Dim::kOh];
    second = {s.broadcast_n ? 0 : rows * cols * entries, s.broadcast_h ? 0 : cols * entries,
              s.broadcast_w ? 0 : entries, s.broadcast_c ? 0 : 1};
  }
  const Extents& c = tile.count;
  const int64_t blocks = c[Dim::kG] * c[Dim::kOc], params = nest_.per_channel && nest_.convert ? 1 : 0;
  ComputeNest nest;
  nest.outer = {{c[Dim::kN], {source[0], c[Dim::kOh] * c[Dim::kOw] * blocks, second[0], 0}},
                {c[Dim::kOh], {source[1], c[Dim::kOw] * blocks, second[1], 0}},
                {c[Dim::kOw], {source[2], blocks, second[2], 0}},
                {blocks, {source[3], 1, second[3], params}}};
  if (nest_.columns_inside) {  // one block of channels, so that columns follow each other
    nest.outer[2] = {sink_->columns, {1, 0, 0, 0}};
    nest.outer[3] = {1, {}};
  }
  if (sink_) {
    nest.address[1] = sink_->address;
    for (size_t k = 0; k < sink_->stride.size(); ++k) nest.outer[k].stride[1] = sink_->stride[k];
  } else {
    nest.address[1] = nest_.raw ? sums_.address(sums_slot_) : output_.address(output_slot_);
  }
  nest.address[2] = nest_.second.present ? second_address_ : 0;
  for (const size_t operand : {1, 2})
    nest.address[operand] += strip_.begin * nest.outer[strip_.dim == Dim::kOh ? 1 : 2].stride[operand];
  nest.address[3] = nest_.convert ? params_.address(params_slot_) : 0;
  return nest;
}

void NestLowering::begin_finish(const Tile& tile) {
  if (!nest_.raw && !sink_) output_slot_ = output_.take(tile);
  if (nest_.convert) {
    const Tile key = key_of(Operand::kParams, tile);
    if (const auto slot = params_.find(key)) {
      params_slot_ = *slot;
    } else {
      params_slot_ = params_.take(key);
      load_params(params_.address(params_slot_), params_of(tile));
    }
  }
  if (nest_.second.present) load_second(tile);
}

void NestLowering::finish(const Tile& tile, int64_t input, const Strip& strip) {
  const Tile part = tile_of(tile, strip);
  Box box = result_box(nest_.output, part, 0, Stream::kOutput);
  box.store = true;
  if (nest_.raw) {
    box.space = isa::Space::kAcc;
    if (footprint_.sums == 0) {  // it stands in ACC as it came
      box.slot = input;
      transfer(box);
      return;
    }
    box.slot = sums_.address(sums_slot_);
  } else if (!sink_) {
    box.slot = output_.address(output_slot_);
  }
  strip_ = strip;
  schedule::TileView view = view_of(tile, input);
  if (nest_.columns_inside) view.sums += sink_->first_column;
  Code code(*this, part);
  schedule_.intrinsic->finish(view_of(view, strip), code);
  box.slot += strip.begin * view.result_strides()[strip.dim == Dim::kOh ? 1 : 2];
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

void NestLowering::move(isa::AluSpace from, int64_t source, isa::AluSpace to, int64_t destination, int64_t entries) {
  if (entries < 1) return;
  emitter_.layer = layer_;
  isa::Alu alu;
  alu.src = from;
  alu.dst = to;
  alu.low = -128;  // bytes keep their bits, whatever they mean
  alu.high = 127;
  ComputeNest nest;
  nest.address = {source, destination, 0, 0};
  nest.outer.push_back({entries, {1, 1, 0, 0}});
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
