// SPDX-License-Identifier: Apache-2.0
// What moves between DRAM and the slots of a nest: boxes of pixels and channels, and packed constants.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>
#include <tuple>

#include "base/error.h"
#include "compiler/npu/graph/second.h"
#include "compiler/npu/lowering/nest_lowering.h"
#include "compiler/npu/tasks/packed_weights.h"
#include "isa/second_operation.h"

namespace tessera::npu {

using schedule::Access;
using schedule::ChannelMap;
using schedule::Computation;
using schedule::Dim;
using schedule::Extents;
using schedule::Span;

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::array<uint8_t, 4> bytes_of(uint32_t value) {
  return {static_cast<uint8_t>(value), static_cast<uint8_t>(value >> 8), static_cast<uint8_t>(value >> 16),
          static_cast<uint8_t>(value >> 24)};
}

void put32(std::vector<uint8_t>& bytes, uint32_t value) {
  const std::array<uint8_t, 4> four = bytes_of(value);
  bytes.insert(bytes.end(), four.begin(), four.end());
}

template <typename T>
T element(const std::vector<T>& values, int64_t channel, T absent) {
  if (values.empty()) return absent;
  return values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)];
}

}  // namespace

template <typename Use>
void NestLowering::for_each_result_lane(const Tile& tile, Use&& use) const {
  const ChannelMap& map = nest_.out_channels;
  for (int64_t g = tile.begin[Dim::kG]; g < tile.begin[Dim::kG] + tile.count[Dim::kG]; ++g) {
    for (int64_t b = tile.begin[Dim::kOc]; b < tile.begin[Dim::kOc] + tile.count[Dim::kOc]; ++b) {
      for (int64_t lane = 0; lane < config_.block_out; ++lane) {
        const int64_t inside = b * map.lanes + lane, channel = g * map.chunk + inside;
        use(lane, inside < map.chunk && channel < map.total ? schedule::column_channel(nest_, channel).channel : -1);
      }
    }
  }
}

void NestLowering::emit(const Transfer& transfer, Stream stream) {
  scratch_.clear();
  // Each burst is a beat of the master that cores share, and they share the bursts that memory answers at a time.
  Transfer one = transfer;
  one.together = config_.cores > 1;
  append_transfer(std::move(one), scratch_);
  for (const isa::Instruction& instruction : scratch_) emitter_.push(instruction, stream);
}

/// Cuts the channels of a tile into runs.
class NestLowering::PieceMaker {
 public:
  /// Chunks from g0 on, `blocks` blocks of each. Entries are rows of map.lanes channels; `whole_rows`: all channels of
  /// a pixel are contiguous in the scratchpad.
  PieceMaker(const ChannelMap& map, const Access& access, int64_t g0, int64_t blocks, int64_t entry_bytes,
             bool whole_rows)
      : map_(map), access_(access), g0_(g0), blocks_(blocks), entry_bytes_(entry_bytes), whole_rows_(whole_rows) {}

  /// Channels [lo, hi) of each of `count` chunks from chunk g on.
  void add(int64_t g, int64_t count, int64_t lo, int64_t hi) {
    if (count <= 0 || hi <= lo) return;
    if (access_.segment_channels < map_.total) {
      TESSERA_INVARIANT(count == 1 && g == 0 && whole_rows_, "a packed pixel has one chunk");
      add_segments(lo, hi);
    } else if (whole_rows_) {
      push(g, count, lo, lo, hi, 1);
    } else {
      const int64_t full = (hi - lo) / map_.lanes, rest = lo + full * map_.lanes;
      if (full > 0) push(g, count, lo, lo, lo + map_.lanes, full);
      if (rest < hi) push(g, count, lo, rest, hi, 1);
    }
  }
  std::vector<ChannelPiece> take() { return std::move(pieces_); }

 private:
  /// Packed pixels: one chunk, rows contiguous. Cut at segments, whole segments in one loop.
  void add_segments(int64_t lo, int64_t hi) {
    const int64_t size = access_.segment_channels, e = access_.element_bytes;
    for (int64_t c = lo; c < hi;) {
      const int64_t end = std::min(hi, (c / size + 1) * size), whole = c % size == 0 ? (hi - c) / size : 0;
      push(0, 1, lo, c, whole > 0 ? c + size : end, 1);
      if (whole > 1) pieces_.back().loops.push_back({whole, access_.segment_pitch, size * e});
      c = whole > 0 ? c + whole * size : end;
    }
  }

  /// Channels [first, last) of the chunks, whose tile begins at channel lo: `blocks` runs of one block each, or one
  /// run.
  void push(int64_t g, int64_t count, int64_t lo, int64_t first, int64_t last, int64_t blocks) {
    const int64_t e = access_.element_bytes, channel = g * map_.chunk + first;
    ChannelPiece piece;
    piece.dram = channel / access_.segment_channels * access_.segment_pitch + channel % access_.segment_channels * e;
    piece.block = (g - g0_) * blocks_ + (first - lo) / map_.lanes;
    piece.byte = (first - lo) % map_.lanes * e;
    piece.run = (last - first) * e;
    if (count > 1) piece.loops.push_back({count, map_.chunk * e, blocks_ * entry_bytes_});
    if (blocks > 1) piece.loops.push_back({blocks, map_.lanes * e, entry_bytes_});
    pieces_.push_back(piece);
  }

  const ChannelMap& map_;
  const Access& access_;
  const int64_t g0_, blocks_, entry_bytes_;
  const bool whole_rows_;
  std::vector<ChannelPiece> pieces_;
};

std::vector<NestLowering::ChannelPiece> NestLowering::channel_pieces(const ChannelMap& map, const Access& access,
                                                                     int64_t g0, int64_t chunks, int64_t b0,
                                                                     int64_t blocks, int64_t entry_bytes) const {
  const int64_t e = access.element_bytes;
  if (access.broadcast_c) return {{0, 0, 0, e, {{map.lanes, 0, e}}}};  // one channel into every lane of one block
  const int64_t lo = b0 * map.lanes, last = map.chunks() - 1;
  const int64_t last_channels = map.total - last * map.chunk;
  const bool has_last = g0 + chunks - 1 == last && last_channels < map.chunk;
  PieceMaker maker(map, access, g0, blocks, entry_bytes, config_.batch == 1);
  maker.add(g0, has_last ? chunks - 1 : chunks, lo, std::min((b0 + blocks) * map.lanes, map.chunk));
  if (has_last) maker.add(last, 1, lo, std::min((b0 + blocks) * map.lanes, last_channels));
  return maker.take();
}

void NestLowering::transfer(const Box& box) {
  const Access& a = *box.access;
  const int64_t entry = config_.entry_bytes(box.space);
  const int64_t row_bytes = box.map->lanes * a.element_bytes;
  const int64_t pixel_blocks = a.broadcast_c ? 1 : box.chunks * box.blocks;
  // Iterations that fall outside the readable rows or columns.
  const auto pads = [](const Span& span, int64_t begin, int64_t end) {
    const int64_t before =
        std::clamp<int64_t>(begin > span.begin ? ceil_div(begin - span.begin, span.step) : 0, 0, span.count);
    const int64_t inside =
        std::clamp<int64_t>(end > span.begin ? ceil_div(end - span.begin, span.step) : 0, before, span.count);
    return std::pair{before, span.count - inside};
  };
  const auto [top, bottom] = pads(box.rows, a.row_begin, a.row_end);
  const auto [left, right] = pads(box.cols, a.col_begin, a.col_end);
  TESSERA_INVARIANT(!box.store || (top == 0 && bottom == 0 && left == 0 && right == 0),
                    "a result lies outside its tensor");
  const int64_t plane = box.rows.count * box.cols.count * pixel_blocks;
  const int64_t batch = config_.batch;
  const int64_t images = a.broadcast_n ? batch : std::min(box.groups * batch, nest_.images - box.n * batch);
  const int64_t full = a.broadcast_n ? 1 : images / batch, rest = a.broadcast_n ? 0 : images % batch;
  const auto pieces = channel_pieces(*box.map, a, box.g, box.chunks, box.b, box.blocks, entry);
  for (const auto& [group, groups, rows] :
       {std::array<int64_t, 3>{0, full, batch}, std::array<int64_t, 3>{full, rest > 0 ? 1 : 0, rest}}) {
    if (groups == 0) continue;
    for (const ChannelPiece& piece : pieces) {
      Transfer t;
      t.store = box.store;
      t.space = box.space;
      t.base = a.base;
      t.pad_value = box.pad_value;
      t.dram_offset = a.offset + (a.broadcast_n ? 0 : (box.n + group) * batch * a.pitch_n) +
                      (box.rows.begin + top * box.rows.step) * a.pitch_h +
                      (box.cols.begin + left * box.cols.step) * a.pitch_w + piece.dram;
      t.sp_addr = (box.slot + group * plane + piece.block) * entry + piece.byte;
      t.length = piece.run;
      t.loops.push_back({groups, batch * a.pitch_n, plane * entry});
      t.loops.push_back({rows, a.pitch_n, row_bytes});
      t.loops.push_back(
          {box.rows.count, box.rows.step * a.pitch_h, box.cols.count * pixel_blocks * entry, top, bottom});
      const TransferLoop cols{box.cols.count, box.cols.step * a.pitch_w, pixel_blocks * entry, left, right};
      // Neighbouring columns that lie in the same beats come one after another: LOAD asks for such a beat once.
      const bool overlap = !box.store && left + right == 0 && cols.dram_stride > 0 &&
                           cols.dram_stride < std::max<int64_t>(piece.run, config_.axi_bytes);
      if (!overlap) t.loops.push_back(cols);
      for (const TransferLoop& loop : piece.loops) t.loops.push_back(loop);
      if (overlap) t.loops.push_back(cols);
      emit(t, box.stream);
    }
  }
}

NestLowering::Blob NestLowering::add_blob(std::vector<uint8_t> bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  return {emitter_.constants.add(std::move(bytes)), size};
}

void NestLowering::load_blob(isa::Space space, int64_t entry_address, const Blob& blob, Stream stream) {
  Transfer t;
  t.space = space;
  t.base = kConstantBase;
  t.dram_offset = blob.offset;
  t.length = config_.entry_bytes(space);
  t.sp_addr = entry_address * t.length;
  t.loops.push_back({blob.bytes / t.length, t.length, t.length});
  emit(t, stream);
}

NestLowering::Box NestLowering::result_box(const Access& access, const Tile& tile, int64_t slot, Stream stream) const {
  Box box;
  box.access = &access;
  box.map = &nest_.out_channels;
  box.space = isa::Space::kOut;
  box.stream = stream;
  box.slot = slot;
  box.n = access.broadcast_n ? 0 : tile.begin[Dim::kN];
  box.groups = access.broadcast_n ? 1 : tile.count[Dim::kN];
  box.rows = access.broadcast_h ? plain_span(0, 1) : plain_span(tile.begin[Dim::kOh], tile.count[Dim::kOh]);
  box.cols = access.broadcast_w ? plain_span(0, 1) : plain_span(tile.begin[Dim::kOw], tile.count[Dim::kOw]);
  box.g = tile.begin[Dim::kG];
  box.chunks = tile.count[Dim::kG];
  box.b = tile.begin[Dim::kOc];
  box.blocks = tile.count[Dim::kOc];
  return box;
}

void NestLowering::load_layer_constants() {
  emitter_.layer = layer_;
  const Stage& stage = *task_.stage;
  if (stage.table) table_ = emitter_.table(*stage.table);
  if (stage.second_table) second_table_ = emitter_.table(*stage.second_table);
  if (task_.rows != nullptr && task_.rows->kind == RowForm::Kind::kSoftmax) {
    std::tie(table_, second_table_) = emitter_.softmax_tables(*task_.rows, nest_.out_channels.total);
  }
  if (!stage.second) return;
  // check() has found that they exist with the ranges of the operands, which decide on nothing else.
  const auto constants = isa::encode_second(second_constants(*stage.second, {}, {}).value());
  std::vector<uint8_t> bytes(constants.begin(), constants.end());
  bytes.resize(static_cast<size_t>(config_.param_entry_bytes()), 0);
  Transfer t;
  t.space = isa::Space::kParam;
  t.base = kConstantBase;
  t.dram_offset = add_blob(std::move(bytes)).offset;
  t.length = static_cast<int64_t>(constants.size());  // what the machine reads of the entry
  t.sp_addr = constants_entry_ * config_.param_entry_bytes();
  emit(t, Stream::kParams);
  emitter_.set_unbiased(constants_entry_, 1, false);
}

const NestLowering::Params& NestLowering::params_of(const Tile& tile) {
  std::array<int64_t, 4> channels{};
  if (nest_.per_channel)
    channels = {tile.begin[Dim::kG], tile.count[Dim::kG], tile.begin[Dim::kOc], tile.count[Dim::kOc]};
  const auto [known, fresh] = param_blobs_.try_emplace(channels);
  if (!fresh) return known->second;
  std::vector<uint8_t> bytes = pack_params(tile), scales;
  const auto half = config_.param_entry_bytes() / 2;
  bool zero = true;
  for (auto entry = bytes.begin(); entry != bytes.end(); entry += 2 * half) {
    zero = zero && std::all_of(entry, entry + half, [](uint8_t byte) { return byte == 0; });
    scales.insert(scales.end(), entry + half, entry + 2 * half);
  }
  known->second.both = add_blob(std::move(bytes));
  if (zero && half % config_.axi_bytes == 0) known->second.scales = add_blob(std::move(scales));
  return known->second;
}

void NestLowering::load_params(int64_t entry, const Params& params) {
  const int64_t bytes = config_.param_entry_bytes(), half = bytes / 2, entries = params.both.bytes / bytes;
  if (!params.scales || !emitter_.unbiased(entry, entries)) {
    load_blob(isa::Space::kParam, entry, params.both, Stream::kParams);
    emitter_.set_unbiased(entry, entries, params.scales.has_value());
    return;
  }
  Transfer t;
  t.space = isa::Space::kParam;
  t.base = kConstantBase;
  t.dram_offset = params.scales->offset;
  t.sp_addr = entry * bytes + half;
  t.length = half;
  t.loops.push_back({entries, half, bytes});
  emit(t, Stream::kParams);
}

std::vector<uint8_t> NestLowering::pack_params(const Tile& tile) const {
  const Stage& stage = *task_.stage;
  const auto half = static_cast<size_t>(config_.block_out) * sizeof(uint32_t);
  const int64_t entries = nest_.per_channel ? tile.count[Dim::kG] * tile.count[Dim::kOc] : 1;
  std::vector<uint8_t> bytes(2 * half * static_cast<size_t>(entries));
  auto at = bytes.begin();  // biases of an entry, then its scales
  const auto scale = [&](int64_t channel) {
    if (task_.rows != nullptr) return static_cast<uint32_t>(element(task_.rows->factor, channel, 0));
    return std::bit_cast<uint32_t>(element(stage.multiplier, channel, 0.0f));
  };
  const std::vector<int32_t>& bias = task_.rows != nullptr ? task_.rows->addend : stage.bias;
  const auto entry = [&](int64_t lane, int64_t channel) {
    const auto first = bytes_of(channel < 0 ? 0u : static_cast<uint32_t>(element(bias, channel, 0)));
    const auto second = bytes_of(channel < 0 ? 0u : scale(channel));
    std::copy(second.begin(), second.end(), std::copy(first.begin(), first.end(), at) - first.size() + half);
    at += lane == config_.block_out - 1 ? first.size() + half : first.size();
  };
  if (nest_.per_channel) {
    for_each_result_lane(tile, entry);
  } else {
    for (int64_t lane = 0; lane < config_.block_out; ++lane) entry(lane, 0);
  }
  return bytes;
}

namespace {

/// Calls visit(position) for every position of the tile in these dimensions, the first of them the slowest.
template <typename Visit>
void each_position(const Tile& tile, std::span<const Dim> dims, Visit&& visit) {
  Extents at = tile.begin;
  for (;;) {
    visit(at);
    size_t k = dims.size();
    while (k > 0 && ++at[dims[k - 1]] == tile.begin[dims[k - 1]] + tile.count[dims[k - 1]]) {
      at[dims[k - 1]] = tile.begin[dims[k - 1]];
      --k;
    }
    if (k == 0) return;
  }
}

}  // namespace

std::vector<uint8_t> NestLowering::pack_weights(const Tile& tile) const {
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(footprint_.weights * weight_entry_bytes(nest_, config_)));
  for (size_t plane = 0; plane < task_.weights->planes.size(); ++plane) {
    if (nest_.computation == Computation::kDepthwise)
      pack_taps(tile, plane, bytes);
    else
      pack_products(tile, plane, bytes);
  }
  return bytes;
}

void NestLowering::pack_products(const Tile& tile, size_t plane, std::vector<uint8_t>& bytes) const {
  const WeightSource& source = *task_.weights;
  const int64_t in = config_.block_in, out = config_.block_out;
  each_position(tile, schedule_.intrinsic->weight_order(), [&](const Extents& at) {
    if (nest_.packed) {
      pack_entry(entry_of(source, nest_, at, config_), config_, bytes);
      return;
    }
    for (int64_t lane = 0; lane < out * in; ++lane) {
      const int32_t weight = weight_at(source, nest_, at[Dim::kG], at[Dim::kOc] * out + lane / in,
                                       at[Dim::kIc] * in + lane % in, at[Dim::kKh], at[Dim::kKw]);
      bytes.push_back(static_cast<uint8_t>(source.part(weight, plane) + source.planes[plane].zero));
    }
  });
}

void NestLowering::pack_taps(const Tile& tile, size_t plane, std::vector<uint8_t>& bytes) const {
  const WeightSource& source = *task_.weights;
  const int64_t in = config_.block_in, out = config_.block_out;
  const Extents &b = tile.begin, &c = tile.count;
  // Passes over the window as positions of their own.
  Tile passes = tile;
  passes.count[Dim::kKh] = ceil_div(c[Dim::kKh], nest_.tap_h);
  passes.count[Dim::kKw] = ceil_div(c[Dim::kKw], nest_.tap_w);
  static constexpr std::array order = {Dim::kKh, Dim::kKw, Dim::kG};
  each_position(passes, order, [&](const Extents& at) {
    const int64_t kh = (at[Dim::kKh] - b[Dim::kKh]) * nest_.tap_h, kw = (at[Dim::kKw] - b[Dim::kKw]) * nest_.tap_w;
    const int64_t taps_h = std::min(nest_.tap_h, c[Dim::kKh] - kh), taps_w = std::min(nest_.tap_w, c[Dim::kKw] - kw);
    const int64_t taps = taps_h * taps_w;
    const size_t entry = bytes.size();
    bytes.resize(entry + static_cast<size_t>(out * in));
    for (int64_t channel = 0; channel < out; ++channel) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int32_t weight = weight_at(source, nest_, at[Dim::kG], channel, 0, b[Dim::kKh] + kh + tap / taps_w,
                                         b[Dim::kKw] + kw + tap % taps_w);
        const int byte =
            config_.depthwise_byte(static_cast<int>(channel), static_cast<int>(tap), static_cast<int>(taps));
        bytes[entry + static_cast<size_t>(channel * in + byte)] = static_cast<uint8_t>(source.part(weight, plane));
      }
    }
  });
}

int64_t NestLowering::load_input(const Tile& tile) {
  const Tile key = key_of(Operand::kInput, tile);
  auto slot = input_.find(key);
  if (!slot) {
    slot = input_.take(key);
    rows_present_[*slot] = 0;
    if (task_.unit_input) load_unit(tile, input_.address(*slot));
  }
  if (task_.unit_input) return input_.address(*slot);
  const Span window = window_of(tile), rows = rows_of(tile), cols = cols_of(tile);
  const int64_t row = cols.count * input_blocks(tile), before = (rows.begin - window.begin) / window.step;
  int64_t& present = rows_present_[*slot];
  if (before + rows.count > present) {
    Box box;
    box.access = &nest_.input;
    box.map = &nest_.in_channels;
    box.space = input_scope_;
    box.stream = Stream::kInput;
    box.slot = input_.address(*slot) + present * row;
    box.n = nest_.input.broadcast_n ? 0 : tile.begin[Dim::kN];
    box.groups = nest_.input.broadcast_n ? 1 : tile.count[Dim::kN];
    box.rows = window;
    box.rows.begin += present * window.step;
    box.rows.count = before + rows.count - present;
    box.cols = cols;
    box.g = whole_input_ ? 0 : tile.begin[Dim::kG];
    box.chunks = whole_input_ ? nest_.extent[Dim::kG] : tile.count[Dim::kG];
    box.b = tile.begin[Dim::kIc];
    box.blocks = tile.count[Dim::kIc];
    box.pad_value = nest_.pad_value;
    load_strips(box, tile);
    present = before + rows.count;
  }
  return input_.address(*slot) + before * row + (whole_input_ ? tile.begin[Dim::kG] * tile.count[Dim::kIc] : 0);
}

size_t NestLowering::load_weights(const Tile& tile) {
  const Tile key = key_of(Operand::kWeights, tile);
  if (const auto slot = weights_.find(key)) return *slot;
  const size_t slot = weights_.take(key);
  if (nest_.factor.present) {
    load_factor(tile, slot);
    return slot;
  }
  Extents part;  // of the weights, wherever the tile stands in dimensions that they do not have
  for (int d = 0; d < schedule::kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    const bool indexed = indexed_[static_cast<size_t>(Operand::kWeights)][static_cast<size_t>(d)];
    part[dim] = indexed ? tile.begin[dim] : 0;
  }
  auto blob = weight_blobs_.find(part);
  if (blob == weight_blobs_.end()) {
    const int64_t bytes = schedule_.intrinsic->demand(nest_, tile.count).weights * weight_entry_bytes(nest_, config_);
    const auto place = [&] {
      if (emitter_.weights == WeightBytes::kPacked) return add_blob(pack_weights(tile));
      const bool blank = emitter_.weights == WeightBytes::kBlank;
      return Blob{blank ? emitter_.constants.add_blank(bytes) : emitter_.constants.reserve(bytes), bytes};
    };
    blob = weight_blobs_.emplace(part, place()).first;
    TESSERA_INVARIANT(blob->second.bytes == bytes, "a tile of weights is packed into its footprint");
  }
  emitter_.fetch_weights(weights_.address(slot), blob->second.bytes / weight_entry_bytes(nest_, config_),
                         blob->second.offset, nest_.packed);
  return slot;
}

void NestLowering::preload_bias(const Tile& tile) {
  std::vector<uint8_t> bytes, row;
  for_each_result_lane(tile, [&](int64_t lane, int64_t channel) {
    put32(row, channel < 0 ? 0u : static_cast<uint32_t>(element(task_.stage->bias, channel, 0)));
    if (lane != config_.block_out - 1) return;
    for (int64_t image = 0; image < config_.batch; ++image) bytes.insert(bytes.end(), row.begin(), row.end());
    row.clear();
  });
  Transfer t;
  t.space = isa::Space::kAcc;
  t.base = kConstantBase;
  t.sp_addr = sums_.address(sums_slot_) * config_.acc_entry_bytes();
  t.length = static_cast<int64_t>(bytes.size());
  t.loops.push_back({tile.count[Dim::kN] * tile.count[Dim::kOh] * tile.count[Dim::kOw], 0, t.length});
  t.dram_offset = emitter_.constants.add(std::move(bytes));
  emit(t, Stream::kParams);
}

void NestLowering::load_second(const Tile& tile) {
  if (footprint_.second_in_place) {
    second_address_ = output_.address(output_slot_);
    transfer(result_box(nest_.second, tile, second_address_, Stream::kSecond));
    return;
  }
  const Tile key = key_of(Operand::kSecond, tile);
  if (const auto slot = second_.find(key)) {
    second_address_ = second_.address(*slot);
    return;
  }
  second_address_ = second_.address(second_.take(key));
  transfer(result_box(nest_.second, tile, second_address_, Stream::kSecond));
}

}  // namespace tessera::npu
