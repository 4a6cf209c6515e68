// SPDX-License-Identifier: Apache-2.0
// The tile loop: rings of slots, transfers of boxes of pixels and channels, compute nests over tiles, stages.
#include "compiler/npu/lower.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "compiler/npu/legalise.h"

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

/// One tile: where it begins in each dimension and how far it goes.
struct Tile {
  Extents begin, count;
};

/// Slots of an operand, used in turn.
struct Ring {
  int64_t base = 0, size = 0;
  std::vector<std::optional<Extents>> keys;
  size_t next = 0;

  int64_t address(size_t slot) const { return base + static_cast<int64_t>(slot) * size; }
  std::optional<size_t> find(const Extents& key) const {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == key) return i;
    }
    return std::nullopt;
  }
  size_t take(const Extents& key) {
    const size_t slot = next;
    next = (next + 1) % keys.size();
    keys[slot] = key;
    return slot;
  }
};

/// Channels [first, first + run) of a pixel and where they lie: a run with loops around it. Strides in channels of DRAM
/// (translated by the access) and in bytes of the scratchpad row.
struct ChannelPiece {
  int64_t dram = 0;   // bytes from the pixel
  int64_t block = 0;  // entries from the pixel's first
  int64_t byte = 0;   // bytes inside the entry's row
  int64_t run = 0;    // bytes
  std::vector<TransferLoop> loops;
};

class Lowering {
 public:
  Lowering(const Task& task, const Nest& nest, const schedule::Schedule& schedule, Emitter& emitter, LayerInfo& info)
      : task_(task), nest_(nest), schedule_(schedule), emitter_(emitter), config_(emitter.config), info_(info),
        footprint_(schedule::footprint(nest, schedule.tile(), emitter.config)) {}

  void run() {
    reserve();
    load_layer_constants();
    Extents begin;
    begin.value.fill(0);
    iterate(0, begin);
  }

 private:
  bool weighted() const { return nest_.intrinsic == Intrinsic::kDense || nest_.intrinsic == Intrinsic::kDepthwise; }
  bool partial_reduce() const { return nest_.intrinsic == Intrinsic::kReduce && footprint_.sums > 0 && split_window(); }
  bool split_window() const {
    const Extents tile = schedule_.tile();
    return tile[Dim::kKh] < nest_.extent[Dim::kKh] || tile[Dim::kKw] < nest_.extent[Dim::kKw];
  }

  // ---- slots

  void reserve() {
    struct Request {
      Ring* ring;
      Operand operand;
      isa::Space space;
      int64_t size;
    };
    const Request requests[] = {{&input_, Operand::kInput, nest_.input_space, footprint_.input},
                                {&weights_, Operand::kWeights, isa::Space::kWgt, footprint_.weights},
                                {&sums_, Operand::kSums, isa::Space::kAcc, footprint_.sums},
                                {&second_, Operand::kSecond, isa::Space::kOut, footprint_.second},
                                {&output_, Operand::kOutput, isa::Space::kOut, footprint_.output},
                                {&params_, Operand::kParams, isa::Space::kParam, footprint_.params}};
    std::map<isa::Space, int64_t> total;
    for (const Request& r : requests) total[r.space] += r.size > 0 ? r.size * schedule_.copies(r.operand) : 0;
    total[isa::Space::kParam] += footprint_.constants;
    std::map<isa::Space, int64_t> cursor;
    for (const auto& [space, size] : total) {
      if (size > 0) cursor[space] = emitter_.reserve(space, size);
    }
    for (const Request& r : requests) {
      if (r.size == 0) continue;
      const int copies = schedule_.copies(r.operand);
      *r.ring = {cursor[r.space], r.size, std::vector<std::optional<Extents>>(static_cast<size_t>(copies)), 0};
      cursor[r.space] += r.size * copies;
    }
    constants_entry_ = footprint_.constants > 0 ? cursor[isa::Space::kParam] : 0;
  }

  Extents key_of(Operand operand, const Tile& tile) const {
    Extents key;
    key.value.fill(0);
    for (int d = 0; d < schedule::kDims; ++d) {
      const auto dim = static_cast<Dim>(d);
      if (schedule::indexes(nest_, operand, dim)) key[dim] = tile.begin[dim];
    }
    return key;
  }

  // ---- transfers

  void emit(const Transfer& transfer) {
    scratch_.clear();
    append_transfer(transfer, scratch_);
    for (auto& instruction : scratch_) emitter_.push(std::move(instruction));
  }

  /// Channels of blocks [b0, b0 + blocks) of chunks [g0, g0 + chunks), as pieces. Entries are rows of `lanes` channels.
  std::vector<ChannelPiece> channel_pieces(const ChannelMap& map, const Access& access, int64_t g0, int64_t chunks, int64_t b0,
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

  /// A box of images, rows, columns and channel blocks between DRAM and a slot laid out [n][row][column][block].
  struct Box {
    const Access* access;
    const ChannelMap* map;
    isa::Space space;
    bool store = false;
    int64_t slot = 0;                        // entry
    int64_t n = 0, groups = 1;               // groups of BATCH images
    Span rows, cols;
    int64_t g = 0, chunks = 1, b = 0, blocks = 1;
    uint8_t pad_value = 0;
  };

  void transfer(const Box& box) {
    const Access& a = *box.access;
    const int64_t entry = config_.entry_bytes(box.space);
    const int64_t row_bytes = box.map->lanes * a.element_bytes;
    const int64_t pixel_blocks = a.broadcast_c ? 1 : box.chunks * box.blocks;
    // Iterations that fall outside the readable rows or columns.
    const auto pads = [](const Span& span, int64_t begin, int64_t end) {
      const int64_t before = std::clamp<int64_t>(begin > span.begin ? ceil_div(begin - span.begin, span.step) : 0, 0, span.count);
      const int64_t inside = std::clamp<int64_t>(end > span.begin ? ceil_div(end - span.begin, span.step) : 0, before, span.count);
      return std::pair{before, span.count - inside};
    };
    const auto [top, bottom] = pads(box.rows, a.row_begin, a.row_end);
    const auto [left, right] = pads(box.cols, a.col_begin, a.col_end);
    TESSERA_INVARIANT(!box.store || (top == 0 && bottom == 0 && left == 0 && right == 0), "a result lies outside its tensor");
    const int64_t plane = box.rows.count * box.cols.count * pixel_blocks;
    const int64_t batch = config_.batch;
    const int64_t images = a.broadcast_n ? batch : std::min(box.groups * batch, nest_.images - box.n * batch);
    const int64_t full = a.broadcast_n ? 1 : images / batch, rest = a.broadcast_n ? 0 : images % batch;
    const auto pieces = channel_pieces(*box.map, a, box.g, box.chunks, box.b, box.blocks, entry);
    for (const auto& [group, groups, rows] : {std::array<int64_t, 3>{0, full, batch}, std::array<int64_t, 3>{full, rest > 0 ? 1 : 0, rest}}) {
      if (groups == 0) continue;
      for (const ChannelPiece& piece : pieces) {
        Transfer t;
        t.store = box.store;
        t.space = box.space;
        t.base = a.base;
        t.pad_value = box.pad_value;
        t.dram_offset = a.offset + (a.broadcast_n ? 0 : (box.n + group) * batch * a.pitch_n) +
                        (box.rows.begin + top * box.rows.step) * a.pitch_h + (box.cols.begin + left * box.cols.step) * a.pitch_w + piece.dram;
        t.sp_addr = (box.slot + group * plane + piece.block) * entry + piece.byte;
        t.length = piece.run;
        t.loops.push_back({groups, batch * a.pitch_n, plane * entry});
        t.loops.push_back({rows, a.pitch_n, row_bytes});
        t.loops.push_back({box.rows.count, box.rows.step * a.pitch_h, box.cols.count * pixel_blocks * entry, top, bottom});
        t.loops.push_back({box.cols.count, box.cols.step * a.pitch_w, pixel_blocks * entry, left, right});
        for (const TransferLoop& loop : piece.loops) t.loops.push_back(loop);
        emit(t);
      }
    }
  }

  /// A blob in the constants, packed when a tile first asks for it.
  struct Blob {
    int64_t offset = 0, bytes = 0;
  };
  Blob add_blob(std::vector<uint8_t> bytes) {
    const auto size = static_cast<int64_t>(bytes.size());
    return {emitter_.constants.add(std::move(bytes)), size};
  }

  void load_blob(isa::Space space, int64_t entry_address, const Blob& blob) {
    Transfer t;
    t.space = space;
    t.base = kConstantBase;
    t.dram_offset = blob.offset;
    t.length = config_.entry_bytes(space);
    t.sp_addr = entry_address * t.length;
    t.loops.push_back({blob.bytes / t.length, t.length, t.length});
    emit(t);
  }

  static Span plain_span(int64_t begin, int64_t count) { return {begin, 1, count, 1, 0}; }

  Box result_box(const Access& access, const Tile& tile, int64_t slot) const {
    Box box;
    box.access = &access;
    box.map = &nest_.out_channels;
    box.space = isa::Space::kOut;
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

  // ---- constants

  void load_layer_constants() {
    const Stage& stage = *task_.stage;
    if (stage.table) table_ = emitter_.table(*stage.table, -1);
    if (stage.second_table) second_table_ = emitter_.table(*stage.second_table, table_);
    if (!stage.second) return;
    const SecondOperation& s = *stage.second;
    std::vector<uint8_t> bytes;
    const auto pair16 = [](int32_t low, int32_t high) { return (static_cast<uint32_t>(low) & 0xffffu) | static_cast<uint32_t>(high) << 16; };
    put32(bytes, std::bit_cast<uint32_t>(s.rx));
    put32(bytes, std::bit_cast<uint32_t>(s.ry));
    put32(bytes, std::bit_cast<uint32_t>(s.f));
    put32(bytes, pair16(s.low, s.high));
    put32(bytes, pair16(s.zero, s.zx));
    put32(bytes, pair16(s.zy, (s.fused ? 1 : 0) | (s.minimum ? 2 : 0)));
    bytes.resize(static_cast<size_t>(config_.param_entry_bytes()), 0);
    load_blob(isa::Space::kParam, constants_entry_, add_blob(std::move(bytes)));
  }

  template <typename T>
  static T element(const std::vector<T>& values, int64_t channel, T absent) {
    if (values.empty()) return absent;
    return values.size() == 1 ? values[0] : values[static_cast<size_t>(channel)];
  }

  /// Calls use(channel or -1) for every lane of the result blocks of a tile, in entry order.
  template <typename Use>
  void for_each_result_lane(const Tile& tile, Use&& use) const {
    const ChannelMap& map = nest_.out_channels;
    for (int64_t g = tile.begin[Dim::kG]; g < tile.begin[Dim::kG] + tile.count[Dim::kG]; ++g) {
      for (int64_t b = tile.begin[Dim::kOc]; b < tile.begin[Dim::kOc] + tile.count[Dim::kOc]; ++b) {
        for (int64_t lane = 0; lane < config_.block_out; ++lane) {
          const int64_t inside = b * map.lanes + lane, channel = g * map.chunk + inside;
          use(lane, inside < map.chunk && channel < map.total ? channel : -1);
        }
      }
    }
  }

  std::vector<uint8_t> pack_params(const Tile& tile) const {
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

  std::vector<uint8_t> pack_weights(const Tile& tile) const {
    const WeightSource& source = *task_.weights;
    const int64_t in = config_.block_in, out = config_.block_out;
    std::vector<uint8_t> bytes;
    bytes.reserve(static_cast<size_t>(footprint_.weights * config_.wgt_entry_bytes()));
    const auto& b = tile.begin;
    const auto& c = tile.count;
    for (size_t p = 0; p < source.planes.size(); ++p) {
      const auto put = [&](int32_t weight) { bytes.push_back(static_cast<uint8_t>(source.part(weight, p) + source.planes[p].zero)); };
      if (nest_.intrinsic == Intrinsic::kDepthwise) {
        for (int64_t kh = 0; kh < c[Dim::kKh]; kh += nest_.tap_h) {
          for (int64_t kw = 0; kw < c[Dim::kKw]; kw += nest_.tap_w) {
            const int64_t taps_h = std::min(nest_.tap_h, c[Dim::kKh] - kh), taps_w = std::min(nest_.tap_w, c[Dim::kKw] - kw);
            for (int64_t g = b[Dim::kG]; g < b[Dim::kG] + c[Dim::kG]; ++g) {
              for (int64_t o = 0; o < out; ++o) {
                for (int64_t t = 0; t < in; ++t) {
                  const bool tap = t < taps_h * taps_w;
                  put(tap ? weight_at(source, nest_, g, o, 0, b[Dim::kKh] + kh + t / taps_w, b[Dim::kKw] + kw + t % taps_w) : 0);
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

  // ---- the tile loop

  void iterate(size_t depth, const Extents& begin) {
    const auto& levels = schedule_.levels;
    if (depth == levels.size() ||
        (levels[depth].kind != schedule::LevelKind::kTemporal && levels[depth].kind != schedule::LevelKind::kVthread)) {
      Tile tile;
      tile.begin = begin;
      const Extents size = schedule_.tile();
      for (int d = 0; d < schedule::kDims; ++d) {
        const auto dim = static_cast<Dim>(d);
        tile.count[dim] = std::min(size[dim], nest_.extent[dim] - begin[dim]);
      }
      lower_tile(tile);
      return;
    }
    const Dim dim = levels[depth].dim;
    int64_t step = 1;
    for (size_t k = depth + 1; k < levels.size(); ++k) {
      if (levels[k].dim == dim && levels[k].kind != schedule::LevelKind::kLane) step *= levels[k].factor;
    }
    Extents at = begin;
    for (int64_t i = 0; i < levels[depth].factor; ++i) {
      at[dim] = begin[dim] + i * step;
      if (at[dim] >= nest_.extent[dim]) break;
      iterate(depth + 1, at);
    }
  }

  void lower_tile(const Tile& tile) {
    ++info_.tiles;
    emitter_.begin_step();
    const Extents& b = tile.begin;
    const Extents& c = tile.count;
    const bool first = b[Dim::kIc] == 0 && b[Dim::kKh] == 0 && b[Dim::kKw] == 0;
    const bool last = b[Dim::kIc] + c[Dim::kIc] == nest_.extent[Dim::kIc] && b[Dim::kKh] + c[Dim::kKh] == nest_.extent[Dim::kKh] &&
                      b[Dim::kKw] + c[Dim::kKw] == nest_.extent[Dim::kKw];
    const size_t input = load_input(tile);
    if (first && footprint_.sums > 0) sums_slot_ = sums_.take(b);
    if (weighted()) {
      const size_t weights = load_weights(tile);
      if (first && nest_.bias_preload) preload_bias(tile);
      multiply(tile, input_.address(input), weights_.address(weights), !first || nest_.bias_preload);
    } else if (partial_reduce()) {
      reduce_part(tile, input_.address(input), first, last);
    }
    if (last) finish(tile, input_.address(input));
  }

  Span rows_of(const Tile& tile) const {
    if (nest_.input.broadcast_h) return plain_span(0, 1);
    return schedule::input_span(tile.begin[Dim::kOh], tile.count[Dim::kOh], tile.begin[Dim::kKh], tile.count[Dim::kKh], nest_.stride_h,
                                nest_.dilation_h, nest_.pad_top);
  }
  Span cols_of(const Tile& tile) const {
    if (nest_.input.broadcast_w) return plain_span(0, 1);
    return schedule::input_span(tile.begin[Dim::kOw], tile.count[Dim::kOw], tile.begin[Dim::kKw], tile.count[Dim::kKw], nest_.stride_w,
                                nest_.dilation_w, nest_.pad_left);
  }
  int64_t input_blocks(const Tile& tile) const { return nest_.input.broadcast_c ? 1 : tile.count[Dim::kG] * tile.count[Dim::kIc]; }

  size_t load_input(const Tile& tile) {
    const Extents key = key_of(Operand::kInput, tile);
    if (const auto slot = input_.find(key)) return *slot;
    const size_t slot = input_.take(key);
    Box box;
    box.access = &nest_.input;
    box.map = &nest_.in_channels;
    box.space = nest_.input_space;
    box.slot = input_.address(slot);
    box.n = nest_.input.broadcast_n ? 0 : tile.begin[Dim::kN];
    box.groups = nest_.input.broadcast_n ? 1 : tile.count[Dim::kN];
    box.rows = rows_of(tile);
    box.cols = cols_of(tile);
    box.g = tile.begin[Dim::kG];
    box.chunks = tile.count[Dim::kG];
    box.b = tile.begin[Dim::kIc];
    box.blocks = tile.count[Dim::kIc];
    box.pad_value = nest_.pad_value;
    transfer(box);
    return slot;
  }

  size_t load_weights(const Tile& tile) {
    const Extents key = key_of(Operand::kWeights, tile);
    if (const auto slot = weights_.find(key)) return *slot;
    const size_t slot = weights_.take(key);
    auto blob = weight_blobs_.find(key);
    if (blob == weight_blobs_.end()) blob = weight_blobs_.emplace(key, add_blob(pack_weights(tile))).first;
    emitter_.fetch_weights(weights_.address(slot), blob->second.bytes / config_.wgt_entry_bytes(), blob->second.offset);
    return slot;
  }

  /// ACC starts from the bias, one entry for each block, the same for every pixel.
  void preload_bias(const Tile& tile) {
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
    emit(t);
  }

  void multiply(const Tile& tile, int64_t input, int64_t weights, bool accumulate) {
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
      for (auto& instruction : scratch_) emitter_.push(std::move(instruction));
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
            compute.address = {input + kh * rows.dilation * row + kw * cols.dilation * blocks, weights + pass * c[Dim::kG], sums, 0};
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
        info_.padded_macs += config_.batch * config_.lanes() * c[Dim::kN] * c[Dim::kG] * c[Dim::kOh] * c[Dim::kOw] * c[Dim::kKh] * c[Dim::kKw];
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

  isa::AluSpace alu_space(isa::Space space) const {
    return space == isa::Space::kInp ? isa::AluSpace::kInp : space == isa::Space::kOut ? isa::AluSpace::kOut : isa::AluSpace::kAcc;
  }

  /// Outer loops n, oh, ow, block with the result's strides in the destination. PARAM follows the block.
  ComputeNest result_nest(const Tile& tile, std::array<int64_t, 4> source, std::array<int64_t, 4> second, bool params) const {
    const Extents& c = tile.count;
    const int64_t blocks = c[Dim::kG] * c[Dim::kOc];
    ComputeNest nest;
    nest.outer.push_back({c[Dim::kN], {source[0], c[Dim::kOh] * c[Dim::kOw] * blocks, second[0], 0}});
    nest.outer.push_back({c[Dim::kOh], {source[1], c[Dim::kOw] * blocks, second[1], 0}});
    nest.outer.push_back({c[Dim::kOw], {source[2], blocks, second[2], 0}});
    nest.outer.push_back({blocks, {source[3], 1, second[3], params ? 1 : 0}});
    return nest;
  }

  /// Strides of the input slot in the loops n, oh, ow, block of a channel-wise nest.
  std::array<int64_t, 4> input_strides(const Tile& tile) const {
    const Span rows = rows_of(tile), cols = cols_of(tile);
    const int64_t blocks = input_blocks(tile), row = cols.count * blocks;
    const Access& in = nest_.input;
    return {in.broadcast_n ? 0 : rows.count * row, in.broadcast_h ? 0 : rows.stride * row, in.broadcast_w ? 0 : cols.stride * blocks,
            in.broadcast_c ? 0 : 1};
  }

  void add_window(ComputeNest& nest, const Tile& tile) const {
    const Span rows = rows_of(tile), cols = cols_of(tile);
    const int64_t blocks = input_blocks(tile);
    nest.reduction.push_back({tile.count[Dim::kKh], {rows.dilation * cols.count * blocks, 0, 0, 0}});
    nest.reduction.push_back({tile.count[Dim::kKw], {cols.dilation * blocks, 0, 0, 0}});
  }

  void emit_alu(const isa::Alu& head, const ComputeNest& nest) {
    scratch_.clear();
    append_alu(head, nest, scratch_);
    for (auto& instruction : scratch_) emitter_.push(std::move(instruction));
  }

  int64_t results_of(const Tile& tile) const {
    return tile.count[Dim::kN] * tile.count[Dim::kOh] * tile.count[Dim::kOw] * tile.count[Dim::kG] * tile.count[Dim::kOc];
  }

  /// A part of a window: reduced into the second half of the sums' slot (the first part: the first half), then joined.
  void reduce_part(const Tile& tile, int64_t input, bool first, bool last) {
    const int64_t sums = sums_.address(sums_slot_), results = results_of(tile);
    isa::Alu alu;
    alu.reduce_op = task_.sum ? isa::ReduceOp::kSum : isa::ReduceOp::kMax;
    alu.src = alu_space(nest_.input_space);
    alu.dst = isa::AluSpace::kAcc;
    alu.src_unsigned = nest_.input.is_unsigned;
    ComputeNest nest = result_nest(tile, input_strides(tile), {}, false);
    nest.address = {input, first ? sums : sums + results, 0, 0};
    add_window(nest, tile);
    emit_alu(alu, nest);
    if (first || last) return;
    join(tile, false);
  }

  /// Both halves of the sums' slot into the first, or through the stage to the result.
  void join(const Tile& tile, bool stage) {
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

  static std::array<int64_t, 4> contiguous(const Tile& tile) {
    const Extents& c = tile.count;
    const int64_t blocks = c[Dim::kG] * c[Dim::kOc];
    return {c[Dim::kOh] * c[Dim::kOw] * blocks, c[Dim::kOw] * blocks, blocks, 1};
  }

  /// The stage's fields; destination OUT, or ACC when the result is raw.
  void set_stage(isa::Alu& alu) const {
    const Stage& stage = *task_.stage;
    if (stage.raw) {
      alu.dst = isa::AluSpace::kAcc;
      return;
    }
    alu.dst = isa::AluSpace::kOut;
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

  /// The nest from a source with the given strides through the stage; addresses but the source's are set.
  ComputeNest stage_nest(const Tile& tile, const std::array<int64_t, 4>& source) const {
    std::array<int64_t, 4> second{};
    if (nest_.second.present) {
      const Access& s = nest_.second;
      const Extents& c = tile.count;
      const int64_t blocks = s.broadcast_c ? 1 : c[Dim::kG] * c[Dim::kOc];
      const int64_t cols = s.broadcast_w ? 1 : c[Dim::kOw], rows = s.broadcast_h ? 1 : c[Dim::kOh];
      second = {s.broadcast_n ? 0 : rows * cols * blocks, s.broadcast_h ? 0 : cols * blocks, s.broadcast_w ? 0 : blocks, s.broadcast_c ? 0 : 1};
    }
    ComputeNest nest = result_nest(tile, source, second, nest_.per_channel && nest_.convert);
    nest.address[1] = nest_.raw ? sums_.base + static_cast<int64_t>(sums_slot_) * sums_.size : output_.address(output_slot_);
    nest.address[2] = nest_.second.present ? second_address_ : 0;
    nest.address[3] = nest_.convert ? params_.address(params_slot_) : 0;
    return nest;
  }

  /// Loads what the stage needs, runs it and stores the tile.
  void finish(const Tile& tile, int64_t input) {
    if (!nest_.raw) output_slot_ = output_.take(tile.begin);
    if (nest_.convert) {
      const Extents key = key_of(Operand::kParams, tile);
      if (const auto slot = params_.find(key)) {
        params_slot_ = *slot;
      } else {
        params_slot_ = params_.take(key);
        load_blob(isa::Space::kParam, params_.address(params_slot_), add_blob(pack_params(tile)));
      }
    }
    if (nest_.second.present) load_second(tile);
    Box box = result_box(nest_.output, tile, 0);
    box.store = true;
    if (nest_.raw) {
      box.space = isa::Space::kAcc;
      if (nest_.intrinsic == Intrinsic::kMap && nest_.input_space == isa::Space::kAcc && !nest_.input.broadcasts()) {
        box.slot = input;
        transfer(box);
        return;
      }
      box.slot = sums_.address(sums_slot_);
    } else {
      box.slot = output_.address(output_slot_);
    }
    if (partial_reduce()) {
      join(tile, true);
    } else if (!(weighted() && nest_.raw)) {
      isa::Alu alu;
      alu.src = weighted() ? isa::AluSpace::kAcc : alu_space(nest_.input_space);
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
    transfer(box);
  }

  void load_second(const Tile& tile) {
    if (footprint_.second_in_place) {
      second_address_ = output_.address(output_slot_);
      emitter_.second = true;
      transfer(result_box(nest_.second, tile, second_address_));
      emitter_.second = false;
      return;
    }
    const Extents key = key_of(Operand::kSecond, tile);
    if (const auto slot = second_.find(key)) {
      second_address_ = second_.address(*slot);
      return;
    }
    second_address_ = second_.address(second_.take(key));
    emitter_.second = true;
    transfer(result_box(nest_.second, tile, second_address_));
    emitter_.second = false;
  }

  const Task& task_;
  const Nest& nest_;
  const schedule::Schedule& schedule_;
  Emitter& emitter_;
  const isa::MachineConfig& config_;
  LayerInfo& info_;
  const schedule::Footprint footprint_;
  Ring input_, weights_, sums_, second_, output_, params_;
  int64_t constants_entry_ = 0, second_address_ = 0;
  size_t sums_slot_ = 0, output_slot_ = 0, params_slot_ = 0;
  int table_ = -1, second_table_ = -1;
  std::map<Extents, Blob> weight_blobs_;
  std::vector<isa::Instruction> scratch_;
};

}  // namespace

void lower(const Task& task, const Nest& nest, const schedule::Schedule& schedule, Emitter& emitter, LayerInfo& info) {
  Lowering(task, nest, schedule, emitter, info).run();
}

}  // namespace tessera::npu
