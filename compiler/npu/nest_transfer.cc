// SPDX-License-Identifier: Apache-2.0
// What moves between DRAM and the slots of a nest: boxes of pixels and channels, and packed constants.
#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "compiler/npu/nest_lowering.h"

namespace tessera::npu {

using schedule::Access;
using schedule::ChannelMap;
using schedule::Dim;
using schedule::Extents;
using schedule::Intrinsic;
using schedule::Nest;
using schedule::Operand;
using schedule::Span;

namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

void put32(std::vector<uint8_t>& bytes, uint32_t value) {
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<uint8_t>(value >> (8 * i)));
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
        use(lane, inside < map.chunk && channel < map.total ? channel % (map.total / nest_.layout.columns) : -1);
      }
    }
  }
}

void NestLowering::emit(const Transfer& transfer, Stream stream) {
  scratch_.clear();
  append_transfer(transfer, scratch_);
  for (auto& instruction : scratch_) emitter_.push(std::move(instruction), stream);
}

std::vector<NestLowering::ChannelPiece> NestLowering::channel_pieces(const ChannelMap& map, const Access& access,
                                                                     int64_t g0, int64_t chunks, int64_t b0,
                                                                     int64_t blocks, int64_t entry_bytes) const {
  std::vector<ChannelPiece> pieces;
  const int64_t e = access.element_bytes, row = map.lanes * e;
  if (access.broadcast_c) {
    // One channel into every lane of one block.
    pieces.push_back({0, 0, 0, e, {{map.lanes, 0, e}}});
    return pieces;
  }
  const bool whole_rows = config_.batch == 1;
  // Channels [lo, hi) of each of `count` chunks from chunk g on; block index inside the tile is relative to g0.
  const auto add = [&](int64_t g, int64_t count, int64_t lo, int64_t hi) {
    if (count <= 0 || hi <= lo) return;
    const TransferLoop chunk_loop{count, map.chunk * e, blocks * entry_bytes};
    const int64_t block = (g - g0) * blocks;
    const auto push = [&](int64_t first, int64_t last, int64_t more_blocks) {
      // `more_blocks` runs of one block each, or a single run (1).
      const int64_t channel = g * map.chunk + first;
      const int64_t segment = channel / access.segment_channels;
      ChannelPiece piece;
      piece.dram = segment * access.segment_pitch + channel % access.segment_channels * e;
      piece.block = block + (first - lo) / map.lanes;
      piece.byte = (first - lo) % map.lanes * e;
      piece.run = (last - first) * e;
      if (count > 1) piece.loops.push_back(chunk_loop);
      if (more_blocks > 1) piece.loops.push_back({more_blocks, row, entry_bytes});
      pieces.push_back(piece);
    };
    if (access.segment_channels < map.total) {
      // Packed pixels: one chunk, rows contiguous. Cut at segments, whole segments in one loop.
      TESSERA_INVARIANT(count == 1 && g == 0 && whole_rows, "a packed pixel has one chunk");
      const int64_t s = access.segment_channels;
      int64_t c = lo;
      while (c < hi) {
        const int64_t end = std::min(hi, (c / s + 1) * s);
        const int64_t whole = c % s == 0 ? (hi - c) / s : 0;
        push(c, whole > 0 ? c + s : end, 1);
        if (whole > 1) pieces.back().loops.push_back({whole, access.segment_pitch, s * e});
        c = whole > 0 ? c + whole * s : end;
      }
      return;
    }
    if (whole_rows) {
      push(lo, hi, 1);
      return;
    }
    const int64_t full = (hi - lo) / map.lanes;
    if (full > 0) push(lo, lo + map.lanes, full);
    if (lo + full * map.lanes < hi) push(lo + full * map.lanes, hi, 1);
  };
  const int64_t lo = b0 * map.lanes;
  const int64_t last = map.chunks() - 1;
  const int64_t last_channels = map.total - last * map.chunk;
  const bool has_last = g0 + chunks - 1 == last && last_channels < map.chunk;
  const int64_t regular = has_last ? chunks - 1 : chunks;
  add(g0, regular, lo, std::min((b0 + blocks) * map.lanes, map.chunk));
  if (has_last) add(last, 1, lo, std::min((b0 + blocks) * map.lanes, last_channels));
  return pieces;
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
      t.loops.push_back({box.cols.count, box.cols.step * a.pitch_w, pixel_blocks * entry, left, right});
      for (const TransferLoop& loop : piece.loops) t.loops.push_back(loop);
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
  if (!stage.second) return;
  const SecondOperation& s = *stage.second;
  std::vector<uint8_t> bytes;
  const auto pair16 = [](int32_t low, int32_t high) {
    return (static_cast<uint32_t>(low) & 0xffffu) | static_cast<uint32_t>(high) << 16;
  };
  put32(bytes, std::bit_cast<uint32_t>(s.rx));
  put32(bytes, std::bit_cast<uint32_t>(s.ry));
  put32(bytes, std::bit_cast<uint32_t>(s.f));
  put32(bytes, pair16(s.low, s.high));
  put32(bytes, pair16(s.zero, s.zx));
  put32(bytes, pair16(s.zy, (s.fused ? 1 : 0) | (s.minimum ? 2 : 0)));
  bytes.resize(static_cast<size_t>(config_.param_entry_bytes()), 0);
  load_blob(isa::Space::kParam, constants_entry_, add_blob(std::move(bytes)), Stream::kParams);
}

std::vector<uint8_t> NestLowering::pack_params(const Tile& tile) const {
  const Stage& stage = *task_.stage;
  std::vector<uint8_t> bytes, scales;
  const auto entry = [&](int64_t lane, int64_t channel) {
    put32(bytes, channel < 0 ? 0u : static_cast<uint32_t>(element(stage.bias, channel, 0)));
    put32(scales, channel < 0 ? 0u : std::bit_cast<uint32_t>(element(stage.multiplier, channel, 0.0f)));
    if (lane == config_.block_out - 1) {
      bytes.insert(bytes.end(), scales.begin(), scales.end());
      scales.clear();
    }
  };
  if (nest_.per_channel) {
    for_each_result_lane(tile, entry);
  } else {
    for (int64_t lane = 0; lane < config_.block_out; ++lane) entry(lane, 0);
  }
  return bytes;
}

std::vector<uint8_t> NestLowering::pack_weights(const Tile& tile) const {
  const WeightSource& source = *task_.weights;
  const int64_t in = config_.block_in, out = config_.block_out;
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(footprint_.weights * config_.wgt_entry_bytes()));
  const auto& b = tile.begin;
  const auto& c = tile.count;
  for (size_t p = 0; p < source.planes.size(); ++p) {
    const auto put = [&](int32_t weight) {
      bytes.push_back(static_cast<uint8_t>(source.part(weight, p) + source.planes[p].zero));
    };
    if (nest_.intrinsic == Intrinsic::kDepthwise) {
      for (int64_t kh = 0; kh < c[Dim::kKh]; kh += nest_.tap_h) {
        for (int64_t kw = 0; kw < c[Dim::kKw]; kw += nest_.tap_w) {
          const int64_t taps_h = std::min(nest_.tap_h, c[Dim::kKh] - kh),
                        taps_w = std::min(nest_.tap_w, c[Dim::kKw] - kw);
          for (int64_t g = b[Dim::kG]; g < b[Dim::kG] + c[Dim::kG]; ++g) {
            for (int64_t o = 0; o < out; ++o) {
              for (int64_t t = 0; t < in; ++t) {
                const bool tap = t < taps_h * taps_w;
                put(tap ? weight_at(source, nest_, g, o, 0, b[Dim::kKh] + kh + t / taps_w,
                                    b[Dim::kKw] + kw + t % taps_w)
                        : 0);
              }
            }
          }
        }
      }
      continue;
    }
    for (int64_t g = b[Dim::kG]; g < b[Dim::kG] + c[Dim::kG]; ++g) {
      for (int64_t oc = b[Dim::kOc]; oc < b[Dim::kOc] + c[Dim::kOc]; ++oc) {
        for (int64_t kh = b[Dim::kKh]; kh < b[Dim::kKh] + c[Dim::kKh]; ++kh) {
          for (int64_t kw = b[Dim::kKw]; kw < b[Dim::kKw] + c[Dim::kKw]; ++kw) {
            for (int64_t ic = b[Dim::kIc]; ic < b[Dim::kIc] + c[Dim::kIc]; ++ic) {
              for (int64_t o = 0; o < out; ++o) {
                for (int64_t i = 0; i < in; ++i) put(weight_at(source, nest_, g, oc * out + o, ic * in + i, kh, kw));
              }
            }
          }
        }
      }
    }
  }
  return bytes;
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
    box.g = tile.begin[Dim::kG];
    box.chunks = tile.count[Dim::kG];
    box.b = tile.begin[Dim::kIc];
    box.blocks = tile.count[Dim::kIc];
    box.pad_value = nest_.pad_value;
    transfer(box);
    present = before + rows.count;
  }
  return input_.address(*slot) + before * row;
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
    part[dim] = schedule::indexes(nest_, Operand::kWeights, dim) ? tile.begin[dim] : 0;
  }
  auto blob = weight_blobs_.find(part);
  if (blob == weight_blobs_.end()) {
    const int64_t bytes = schedule::footprint(nest_, tile.count, config_).weights * config_.wgt_entry_bytes();
    const bool packed = emitter_.weights == WeightBytes::kPacked;
    blob = weight_blobs_
               .emplace(part, packed ? add_blob(pack_weights(tile)) : Blob{emitter_.constants.reserve(bytes), bytes})
               .first;
    TESSERA_INVARIANT(blob->second.bytes == bytes, "a tile of weights is packed into its footprint");
  }
  emitter_.fetch_weights(weights_.address(slot), blob->second.bytes / config_.wgt_entry_bytes(), blob->second.offset);
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
