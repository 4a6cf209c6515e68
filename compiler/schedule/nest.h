// SPDX-License-Identifier: Apache-2.0
// One tensor operation as a loop nest over the eight dimensions (n, g, oc, oh, ow, ic, kh, kw), with the access of
// every operand to DRAM. This is what schedules are about: enters from an operation of the graph (compiler/npu/task),
// leaves as footprints of a tile (here), a schedule (search) and tile operations (compiler/npu/lower). Convolution,
// depthwise convolution, pooling and element-wise operations are the same nest with another computation inside, so that
// tiling, halos, padding and channel tails are written once.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "isa/config.h"

namespace tessera::schedule {

class Intrinsic;

/// n: groups of BATCH images; g: chunks of channels that take part together (groups of a convolution, blocks of a
/// channel-wise operation); oc, ic: blocks of BLOCK_OUT, BLOCK_IN channels inside a chunk; oh, ow: output pixels; kh,
/// kw: window.
enum class Dim : uint8_t { kN, kG, kOc, kOh, kOw, kIc, kKh, kKw };
inline constexpr int kDims = 8;
inline constexpr std::array<std::string_view, kDims> kDimNames = {"n", "g", "oc", "oh", "ow", "ic", "kh", "kw"};
inline constexpr bool is_reduction(Dim dim) { return dim == Dim::kIc || dim == Dim::kKh || dim == Dim::kKw; }

/// One number for each dimension.
struct Extents {
  std::array<int64_t, kDims> value{1, 1, 1, 1, 1, 1, 1, 1};
  int64_t& operator[](Dim dim) { return value[static_cast<size_t>(dim)]; }
  int64_t operator[](Dim dim) const { return value[static_cast<size_t>(dim)]; }
  bool operator==(const Extents&) const = default;
  auto operator<=>(const Extents&) const = default;
};

/// How channels lie in the entries of a scratchpad: chunks of `chunk` channels, each starting a new block of `lanes`.
struct ChannelMap {
  int64_t total = 1;  // channels
  int64_t chunk = 1;  // channels of a chunk; the last chunk may have fewer
  int64_t lanes = 1;  // channels of an entry

  int64_t chunks() const { return (total + chunk - 1) / chunk; }
  int64_t blocks() const { return (chunk + lanes - 1) / lanes; }  // of one chunk
  bool operator==(const ChannelMap&) const = default;
};

/// An operand in DRAM as the nest sees it: element (n, h, w, c) at
///   offset + n*pitch_n + h*pitch_h + w*pitch_w + (c / segment_channels)*segment_pitch + (c %
///   segment_channels)*element_bytes.
/// A broadcast dimension has pitch 0. Rows [row_begin, row_end) and columns [col_begin, col_end) are readable, the rest
/// is padding.
struct Access {
  bool present = false;
  uint32_t base = 0;
  int64_t offset = 0;
  int64_t pitch_n = 0, pitch_h = 0, pitch_w = 0;
  int64_t segment_channels = 0, segment_pitch = 0;
  int element_bytes = 1;
  bool is_unsigned = false;
  int64_t row_begin = 0, row_end = 0, col_begin = 0, col_end = 0;
  bool broadcast_n = false, broadcast_h = false, broadcast_w = false, broadcast_c = false;

  bool broadcasts() const { return broadcast_n || broadcast_h || broadcast_w || broadcast_c; }
  bool operator==(const Access&) const = default;
};

/// The second operand of a product of two run-time tensors, in the weights' place: element (k, column) of the matrix of
/// (n, oh, ow) at
///   offset + n*pitch_n + oh*pitch_h + ow*pitch_w + k*pitch_k + column*pitch_column.
/// A pitch of 0: the same matrix all along the dimension.
struct Factor {
  bool present = false;
  uint32_t base = 0;
  int64_t offset = 0;
  int64_t pitch_n = 0, pitch_h = 0, pitch_w = 0;
  int64_t pitch_k = 1, pitch_column = 0;
  bool is_unsigned = false;
  bool beside = false;  // matrices of oh side by side: a column of all of them is one stretch of DRAM, fetched as such

  bool indexed(Dim dim) const {
    return (dim == Dim::kN && pitch_n != 0) || (dim == Dim::kOh && pitch_h != 0) || (dim == Dim::kOw && pitch_w != 0);
  }
  bool operator==(const Factor&) const = default;
};

/// What the innermost loops compute. How the machine does it is an Intrinsic's business (intrinsic.h).
enum class Computation : uint8_t {
  kDense,      // sum over ic, kh, kw of input times weights
  kDepthwise,  // sum over kh, kw of input times weights, each channel for itself
  kReduce,     // sum or maximum over kh, kw
  kMap,        // element-wise
  kRows,       // scalars of all channels of a pixel, then element-wise with them
};
inline constexpr std::array<std::string_view, 5> kComputationNames = {"dense", "depthwise", "reduce", "map", "rows"};

/// Whether the vector unit reads the input.
inline constexpr bool reads_by_alu(Computation computation) {
  return computation != Computation::kDense && computation != Computation::kDepthwise;
}

/// How the input's windows lie in its pixels. Plain: a pixel holds its channels. Folded: a packed pixel also holds the
/// columns of a window (and its rows, which need the columns), and serves `columns` neighbouring columns of the output,
/// whose results are channels of one pixel. `rows` > 0: of the window's rows a packed pixel holds so many, and kh
/// counts such parts of the window.
struct InputLayout {
  bool fold_kh = false, fold_kw = false;
  int64_t columns = 1;
  int64_t rows = 0;  // 0: all of them; else from 2 on
  bool operator==(const InputLayout&) const = default;
};
inline constexpr int64_t kMostColumns = 4;
/// "nhwc", "fold(kw)", "fold(kh,kw)", "fold(kh4,kw)" with that many rows, and folds with "*2" to "*4" behind them; and
/// back, nothing for any other text.
std::string to_string(const InputLayout& layout);
std::optional<InputLayout> parse_input_layout(std::string_view text);

struct Nest {
  Computation computation = Computation::kMap;
  int64_t images = 1;
  Extents extent;
  ChannelMap in_channels, out_channels;
  int64_t stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, pad_top = 0, pad_left = 0;
  uint8_t pad_value = 0;
  Access input, second, output;
  Factor factor;  // dense: in place of constant weights
  isa::Space input_space = isa::Space::kInp;
  int planes = 1;                // weight planes: 2 or 3 when a weight minus its zero point needs nine bits
  bool packed = false;           // constant weights lie in DRAM in 4 bits (isa/semantics.md), which LOAD unpacks
  int64_t tap_h = 1, tap_w = 1;  // depthwise: taps of one instruction
  bool pairs = false;            // depthwise: vectors enter in pairs where the window has three columns
  bool row_pairs = false;        // and those of two rows with them; the vector unit writes the input so that they may
  bool raw = false;              // int32 output from ACC
  bool convert = false;          // bias and scale from PARAM
  bool per_channel = false;      // they differ between channels
  bool fixed_shift = false;      // rows: a softmax whose exponentials do not wait for the row's maximum
  bool bias_preload = false;     // raw output with bias: ACC starts from it
  InputLayout layout;            // with several columns an output channel is column * (total / columns) + c
  int64_t column_step = 0;       // positions of the input between neighbouring columns of the output
  bool columns_inside = false;   // or, by blocks of lanes: (block * columns + column) * lanes + lane
  bool operator==(const Nest&) const = default;
};

/// Rows (or columns) of the input that an interval of outputs reads through an interval of the window.
struct Span {
  int64_t begin = 0;     // first position in the image; negative: padding
  int64_t step = 1;      // positions from one to the next
  int64_t count = 1;     // of them
  int64_t stride = 1;    // from one output to the next, in counted positions
  int64_t dilation = 1;  // from one tap to the next, in counted positions
};

/// Positions o*stride - pad + k*dilation for o in [out_begin, +out_count), k in [tap_begin, +tap_count), thinned to
/// their greatest common step.
Span input_span(int64_t out_begin, int64_t out_count, int64_t tap_begin, int64_t tap_count, int64_t stride,
                int64_t dilation, int64_t pad);

/// Rows (or columns) of the input that tiles fetch.
struct Positions {
  int64_t all = 0, read = 0;              // of all tiles, with padding and without
  int64_t least_all = 0, least_read = 0;  // of the smallest tile
};
/// Of tiles of `out` outputs and `taps` taps; `rows`: else columns. A dimension that is broadcast has one position.
Positions positions(const Nest& nest, int64_t out, int64_t taps, bool rows);

/// Entries a tile of the given extents occupies.
struct Footprint {
  int64_t input = 0;      // in nest.input_space
  int64_t weights = 0;    // WGT
  int64_t sums = 0;       // ACC
  int64_t second = 0;     // OUT, beside the result; 0 when the second operand is updated in place
  int64_t output = 0;     // OUT
  int64_t params = 0;     // PARAM, the entry of constants not counted
  int64_t constants = 0;  // PARAM: 1 with a second operation
  bool second_in_place = false;
};
/// `window_rows`: output rows whose input a slot holds; 0: the tile's.
Footprint footprint(const Nest& nest, const Intrinsic& intrinsic, const Extents& tile, int64_t window_rows = 0);

/// Bytes of DRAM that an entry of constant weights takes.
inline int64_t weight_entry_bytes(const Nest& nest, const isa::MachineConfig& config) {
  return nest.packed ? config.packed_entry_bytes() : config.wgt_entry_bytes();
}

/// Matrices of the factor that a tile reads; 1 without one.
int64_t matrices(const Nest& nest, const Extents& tile);

/// What LOAD fetches of the factor for a tile.
struct FactorTraffic {
  int64_t bytes = 0, runs = 0;
  int64_t requests = 0;  // runs, those as one that LOAD requests together
};
FactorTraffic factor_traffic(const Nest& nest, const Extents& tile);

/// Columns of a row of the output, those in one pixel counted one by one.
inline int64_t width_of(const Nest& nest) { return nest.extent[Dim::kOw] * nest.layout.columns; }

/// Which column of its pixel an output channel belongs to, and its number there.
struct ColumnChannel {
  int64_t column = 0, channel = 0;
};
ColumnChannel column_channel(const Nest& nest, int64_t channel);

/// Entries of INP from one row of the input to the next and from one block to the next, where the columns of a block
/// stand side by side. With `row_pairs` a slot begins at an odd entry, and the vectors of two columns and two rows
/// stand in four memories (isa/raster.h).
struct PlanarStrides {
  int64_t row = 0, block = 0;
};
PlanarStrides planar_strides(const Nest& nest, int64_t cols, int64_t blocks);

/// Steps of the matrix engine over so many rows and columns of a depthwise nest's input, of all of its tiles, in raster
/// form: one a position, or fewer where vectors enter in pairs.
int64_t raster_steps(const Nest& nest, int64_t rows, int64_t row_tiles, int64_t cols, int64_t col_tiles);

/// Instructions' worth of depthwise taps: passes over a window of kh x kw.
int64_t depthwise_passes(const Nest& nest, int64_t kh, int64_t kw);

}  // namespace tessera::schedule
