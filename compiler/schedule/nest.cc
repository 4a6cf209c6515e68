// SPDX-License-Identifier: Apache-2.0
// Footprints of tiles: projections of the nest's affine accesses onto each operand.
#include "compiler/schedule/nest.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "compiler/schedule/intrinsic.h"
#include "isa/generated/timing.h"

namespace tessera::schedule {

std::string to_string(const InputLayout& layout) {
  if (!layout.fold_kw) return "nhwc";
  const std::string rows = layout.rows > 0 ? std::to_string(layout.rows) : "";
  std::string text = layout.fold_kh ? "fold(kh" + rows + ",kw)" : "fold(kw)";
  if (layout.columns > 1) text += "*" + std::to_string(layout.columns);
  return text;
}

std::optional<InputLayout> parse_input_layout(std::string_view text) {
  InputLayout layout;
  constexpr std::string_view kPart = "fold(kh";
  if (text.starts_with(kPart)) {
    const std::string_view number = text.substr(kPart.size(), text.find(',') - kPart.size());
    std::from_chars(number.data(), number.data() + number.size(), layout.rows);
  }
  for (const auto& [kh, kw] : {std::pair{false, false}, std::pair{false, true}, std::pair{true, true}}) {
    for (int64_t columns = 1; columns <= (kw ? kMostColumns : 1); ++columns) {
      layout.fold_kh = kh;
      layout.fold_kw = kw;
      layout.columns = columns;
      if (to_string(layout) == text && (layout.rows == 0 || layout.rows > 1)) return layout;
    }
  }
  return std::nullopt;
}

Span input_span(int64_t out_begin, int64_t out_count, int64_t tap_begin, int64_t tap_count, int64_t stride,
                int64_t dilation, int64_t pad) {
  Span span;
  span.begin = out_begin * stride - pad + tap_begin * dilation;
  span.step = std::gcd(out_count > 1 ? stride : 0, tap_count > 1 ? dilation : 0);
  if (span.step == 0) span.step = 1;
  span.stride = out_count > 1 ? stride / span.step : 0;
  span.dilation = tap_count > 1 ? dilation / span.step : 0;
  span.count = (out_count - 1) * span.stride + (tap_count - 1) * span.dilation + 1;
  return span;
}

Positions positions(const Nest& nest, int64_t out, int64_t taps, bool rows) {
  const Access& in = nest.input;
  if (rows ? in.broadcast_h : in.broadcast_w) return {1, 1, 1, 1};
  const Dim out_dim = rows ? Dim::kOh : Dim::kOw, tap_dim = rows ? Dim::kKh : Dim::kKw;
  const int64_t stride = rows ? nest.stride_h : nest.stride_w, dilation = rows ? nest.dilation_h : nest.dilation_w;
  const int64_t low = rows ? in.row_begin : in.col_begin, high = rows ? in.row_end : in.col_end;
  const auto steps = [](const Span& span, int64_t to) { return (to - span.begin + span.step - 1) / span.step; };
  Positions total;
  bool fresh = true;
  for (int64_t k = 0; k < nest.extent[tap_dim]; k += taps) {
    for (int64_t o = 0; o < nest.extent[out_dim]; o += out) {
      const Span span =
          input_span(o, std::min(out, nest.extent[out_dim] - o), k, std::min(taps, nest.extent[tap_dim] - k), stride,
                     dilation, rows ? nest.pad_top : nest.pad_left);
      const int64_t first = span.begin < low ? steps(span, low) : 0;
      const int64_t end = span.begin < high ? std::min(span.count, steps(span, high)) : 0;
      const int64_t read = std::max<int64_t>(0, end - first);
      // Full tiles behind one inside the image are alike, as long as they lie inside, too.
      int64_t alike = 1;
      if (read == span.count && nest.extent[out_dim] - o >= out) {
        const int64_t last = span.begin + (span.count - 1) * span.step;
        alike += std::min((nest.extent[out_dim] - o) / out - 1, (high - 1 - last) / (out * stride));
      }
      total.all += span.count * alike;
      total.read += read * alike;
      total.least_all = fresh ? span.count : std::min(total.least_all, span.count);
      total.least_read = fresh ? read : std::min(total.least_read, read);
      fresh = false;
      o += (alike - 1) * out;
    }
  }
  return total;
}

int64_t matrices(const Nest& nest, const Extents& tile) {
  int64_t count = 1;
  for (const Dim dim : {Dim::kN, Dim::kOh, Dim::kOw}) {
    if (nest.factor.indexed(dim)) count *= tile[dim];
  }
  return count;
}

FactorTraffic factor_traffic(const Nest& nest, const Extents& tile) {
  const int64_t columns = std::min(tile[Dim::kOc] * nest.out_channels.lanes, nest.out_channels.total);
  const int64_t k = std::min(tile[Dim::kIc] * nest.in_channels.lanes, nest.in_channels.total);
  const int64_t pieces = nest.factor.pitch_k == 1 ? (k + nest.in_channels.lanes - 1) / nest.in_channels.lanes : k;
  const int64_t count = matrices(nest, tile);
  const bool together = nest.factor.pitch_k == 1 && nest.factor.pitch_column % nest.in_channels.lanes == 0;
  const int64_t beside = together && nest.factor.beside ? tile[Dim::kOh] : 1;
  return {count * columns * k, count * columns * pieces, count * columns * (together ? 1 : pieces) / beside};
}

ColumnChannel column_channel(const Nest& nest, int64_t channel) {
  const int64_t columns = nest.layout.columns, lanes = nest.out_channels.lanes;
  if (columns == 1) return {0, channel};
  if (!nest.columns_inside) {
    const int64_t each = nest.out_channels.total / columns;
    return {channel / each, channel % each};
  }
  const int64_t block = channel / lanes;
  return {block % columns, block / columns * lanes + channel % lanes};
}

PlanarStrides planar_strides(const Nest& nest, int64_t cols, int64_t blocks) {
  if (!nest.row_pairs) return {cols * blocks, cols};
  const int64_t block = cols + cols % 2, row = block * blocks;
  return {row % 4 == 0 ? row + 2 : row, block};
}

int64_t raster_steps(const Nest& nest, int64_t rows, int64_t row_tiles, int64_t cols, int64_t col_tiles) {
  if (!nest.pairs || nest.tap_w != isa::timing::gemm::kPairColumns) return rows * cols;
  if (nest.row_pairs) return (rows + row_tiles) / 2 * (cols + col_tiles) / 2;
  if (nest.stride_w == 2) return rows * (cols + col_tiles) / 2;
  const int64_t early = std::min(rows, row_tiles * (nest.tap_h - 1));
  return early * (cols + col_tiles) / 2 + (rows - early) * (cols - col_tiles);
}

int64_t depthwise_passes(const Nest& nest, int64_t kh, int64_t kw) {
  return ((kh + nest.tap_h - 1) / nest.tap_h) * ((kw + nest.tap_w - 1) / nest.tap_w);
}

Footprint footprint(const Nest& nest, const Intrinsic& intrinsic, const Extents& tile, int64_t window_rows) {
  Footprint result;
  const int64_t n = tile[Dim::kN], g = tile[Dim::kG], oc = tile[Dim::kOc], ic = tile[Dim::kIc];
  const int64_t height = std::max(tile[Dim::kOh], std::min(window_rows, nest.extent[Dim::kOh]));
  const Span rows =
      input_span(0, nest.input.broadcast_h ? 1 : height, 0, tile[Dim::kKh], nest.stride_h, nest.dilation_h, 0);
  const Span cols =
      input_span(0, nest.input.broadcast_w ? 1 : tile[Dim::kOw], 0, tile[Dim::kKw], nest.stride_w, nest.dilation_w, 0);
  const int64_t pixels = n * tile[Dim::kOh] * tile[Dim::kOw];
  result.input = (nest.input.broadcast_n ? 1 : n) * rows.count * cols.count * (nest.input.broadcast_c ? 1 : g * ic);
  if (nest.row_pairs) {  // an odd entry in front, and an even number of entries in all
    const int64_t entries = n * rows.count * planar_strides(nest, cols.count, g * ic).row + 1;
    result.input = entries + entries % 2;
  }
  const int64_t results = pixels * g * oc;
  const Demand demand = intrinsic.demand(nest, tile);
  result.weights = demand.weights;
  result.sums = demand.sums;
  result.output = nest.raw ? 0 : results;
  if (nest.second.present) {
    result.constants = 1;
    result.second_in_place = !nest.second.broadcasts();
    if (!result.second_in_place) {
      result.second = (nest.second.broadcast_n ? 1 : n) * (nest.second.broadcast_h ? 1 : tile[Dim::kOh]) *
                      (nest.second.broadcast_w ? 1 : tile[Dim::kOw]) * (nest.second.broadcast_c ? 1 : g * oc);
    }
  }
  result.params = nest.convert ? (nest.per_channel ? g * oc : 1) : 0;
  return result;
}

}  // namespace tessera::schedule
