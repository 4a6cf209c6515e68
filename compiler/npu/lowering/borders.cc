// SPDX-License-Identifier: Apache-2.0
// Where one nest follows another. The first tile of a nest needs what the nest before stores last, so that between them
// all engines wait for each other in turn: for the last products, their stage, the store, the fetch, the first
// products. Strips let them work at the same time, each on another strip.
#include <algorithm>

#include "compiler/npu/lowering/nest_lowering.h"

namespace tessera::npu {

using schedule::Dim;
using schedule::Extents;
using schedule::Span;
using schedule::strip_size;

namespace {

bool begins(const Tile& tile) {
  return std::all_of(tile.begin.value.begin(), tile.begin.value.end(), [](int64_t at) { return at == 0; });
}

}  // namespace

std::vector<NestLowering::Strip> NestLowering::strips_of(const Tile& tile, bool stored) const {
  const Extents& c = tile.count;
  const Dim dim = c[Dim::kOh] > 1 ? Dim::kOh : Dim::kOw;
  const auto ended = [&] {
    for (int d = 0; d < schedule::kDims; ++d) {
      if (tile.begin.value[static_cast<size_t>(d)] + c.value[static_cast<size_t>(d)] !=
          nest_.extent.value[static_cast<size_t>(d)])
        return false;
    }
    return true;
  };
  const bool cut = begins(tile) || (stored && ended());
  const bool able = schedule_.strips > 0 && may_strip(nest_) && c[Dim::kN] == 1 && !split_window() &&
                    (dim == Dim::kOh || !nest_.columns_inside);
  if (!cut || !able) return {{dim, 0, c[dim]}};
  const int64_t others = c[Dim::kG] * c[Dim::kOc] * (dim == Dim::kOh ? c[Dim::kOw] : 1);
  const int64_t size = strip_size(c[dim], others, schedule_.strips);
  std::vector<Strip> strips;
  for (int64_t begin = 0; begin < c[dim]; begin += size) strips.push_back({dim, begin, std::min(size, c[dim] - begin)});
  return strips;
}

Tile NestLowering::tile_of(const Tile& tile, const Strip& strip) const {
  Tile part = tile;
  part.begin[strip.dim] += strip.begin;
  part.count[strip.dim] = strip.count;
  return part;
}

schedule::TileView NestLowering::view_of(const schedule::TileView& tile, const Strip& strip) const {
  schedule::TileView part = tile;
  const size_t at = strip.dim == Dim::kOh ? 1 : 2;
  part.count[strip.dim] = strip.count;
  part.input += strip.begin * tile.input_strides()[at];
  part.sums += strip.begin * tile.result_strides()[at];
  return part;
}

int64_t NestLowering::loaded_strip(int64_t positions, int64_t each, const Tile& tile) const {
  return schedule_.strips == 0 || !begins(tile) ? 0 : strip_size(positions, each, schedule_.strips);
}

void NestLowering::load_strips(Box box, const Tile& tile) {
  Span& along = box.rows.count > 1 ? box.rows : box.cols;
  const int64_t count = along.count, entry = box.access->broadcast_c ? 1 : box.chunks * box.blocks,
                each = &along == &box.rows ? box.cols.count * entry : entry;
  const int64_t size = box.groups > 1 ? 0 : loaded_strip(count, each, tile);
  if (size == 0) return transfer(box);
  const int64_t first = along.begin, slot = box.slot;
  for (int64_t begin = 0; begin < count; begin += size) {
    along.begin = first + begin * along.step;
    along.count = std::min(size, count - begin);
    box.slot = slot + begin * each;
    transfer(box);
  }
}

std::vector<int64_t> NestLowering::strip_sizes() const {
  Tile first, last;
  first.begin.value.fill(0);
  const Extents size = schedule_.tile();
  for (int d = 0; d < schedule::kDims; ++d) {
    const auto dim = static_cast<Dim>(d);
    const int64_t extent = nest_.extent[dim];
    first.count[dim] = std::min(size[dim], extent);
    last.begin[dim] = (extent - 1) / size[dim] * size[dim];
    last.count[dim] = extent - last.begin[dim];
  }
  const int64_t rows = rows_of(first).count, cols = cols_of(first).count, entry = input_blocks(first);
  return {strips_of(first, ends(first)).front().count, strips_of(last, true).front().count,
          rows > 1 ? loaded_strip(rows, cols * entry, first) : loaded_strip(cols, entry, first)};
}

}  // namespace tessera::npu
