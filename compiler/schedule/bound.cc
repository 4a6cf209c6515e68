// SPDX-License-Identifier: Apache-2.0
// Bounds of tiles. What is counted here holds for every order, every number of copies and every residence: each number
// is a minimum over all of them, or is left out.
#include "compiler/schedule/bound.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "compiler/schedule/compulsory.h"
#include "compiler/schedule/counts.h"
#include "isa/generated/timing.h"

namespace tessera::schedule {

namespace {

namespace timing = isa::timing;
using namespace compulsory;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
// From a completion to the take of what waits for it.
constexpr int64_t kWait = timing::queue::kSignal + timing::queue::kCondition;
// From the last beat's response, which comes a latency behind the beat, to the end of the program, both included.
constexpr int64_t kEnd = timing::store::kComplete + 2;

/// The nest in tiles of one size, whatever its order, its copies and its residence.
class TileForm {
 public:
  TileForm(const Nest& nest, const Intrinsic& intrinsic, const Extents& tile, const Machine& machine,
           const Besides& besides)
      : nest_(nest), intrinsic_(intrinsic), tile_(tile), machine_(machine), config_(machine.config) {
    for (int d = 0; d < kDims; ++d) {
      const auto dim = static_cast<Dim>(d);
      trips_[dim] = ceil_div(nest.extent[dim], tile[dim]);
      last_[dim] = nest.extent[dim] - (trips_[dim] - 1) * tile[dim];
    }
    output_tiles_ = entries_of(trips_);
    reduction_tiles_ = trips_[Dim::kIc] * taps_of(trips_);
    // The core's intrinsics issue what is counted here; what another one issues nobody knows.
    core_ = &intrinsic == &core_intrinsic(nest.computation);
    if (core_) {
      gemm_ = gemm_steps(nest, nest.extent, tile);
      const bool copied = nest.raw && intrinsic.demand(nest, tile).sums == 0;  // stands in ACC as it came
      alu_ = copied ? 0 : alu_issues(nest, config_, nest.extent, reduction_tiles_);
    }
    weights_ = weights_once(nest, intrinsic, config_);
    late_ = params_once(nest, intrinsic, config_) + both(besides.biases * (config_.param_entry_bytes() / 2)) +
            second_once(nest, config_);
    out_ = out_once(nest, nest.output, config_);
    load_input();
    reads_ = input_ + weights_ + late_;
    data_ = reads_.bus + out_.bus + besides.other_bytes;
  }

  int64_t cycles() const {
    const bool simple = core_ && config_.batch == 1 && one_instruction();
    const Passage passage = this->passage();
    int64_t least = kMost;
    for (const int64_t strips : kStrips)
      least = std::min(least, cycles(simple ? ends_of(strips) : Ends{.ahead = padding_ahead()}, passage));
    return least;
  }

 private:
  /// What no order and no copies hide: an instruction is taken when all it waits for is complete. Cycles.
  struct Ends {
    int64_t first_load = 0;   // LOAD's until the first computation has its operands
    int64_t ahead = 0;        // LOAD's before its first data: padding in front of them
    int64_t first_tile = 0;   // LOAD's until the first stage has its parameters, which come behind a tile's input
    int64_t first_gemm = 0;   // GEMM's for the results that are stored first
    int64_t first_stage = 0;  // the vector unit's for them
    int64_t last_gemm = 0;    // GEMM's behind the last operand
    int64_t stage = 0;        // the vector unit's behind the last products
    int64_t store = 0;        // the bus's for what is stored last
  };

  int64_t groups(int64_t bytes) const { return ceil_div(bytes, config_.axi_bytes); }
  int64_t tiles_of(Operand operand) const {
    int64_t tiles = 1;
    for (int d = 0; d < kDims; ++d) {
      const auto dim = static_cast<Dim>(d);
      if (indexes(nest_, operand, dim)) tiles *= trips_[dim];
    }
    return tiles;
  }

  /// Rows of the input that are fetched at least: neighbouring tiles fetch those they share, or a window keeps them.
  Positions rows() const {
    Positions least = positions(nest_, tile_[Dim::kOh], tile_[Dim::kKh], true);
    const int64_t depth = input_depth();
    for (int64_t tiles = 2; tiles <= trips_[Dim::kOh]; ++tiles) {
      const int64_t window = std::min(tiles * tile_[Dim::kOh], nest_.extent[Dim::kOh]);
      if (footprint(nest_, intrinsic_, tile_, window).input > depth) break;
      const Positions kept = positions(nest_, tiles * tile_[Dim::kOh], tile_[Dim::kKh], true);
      least.all = std::min(least.all, kept.all);
      least.read = std::min(least.read, kept.read);
    }
    return least;
  }

  int64_t input_depth() const {
    int64_t depth = 0;
    for (const isa::Space space : input_scopes(nest_, config_)) depth = std::max<int64_t>(depth, config_.depth(space));
    return depth;
  }

  void load_input() {
    const Access& in = nest_.input;
    if (!in.present) return;
    const Positions rows = this->rows(), cols = positions(nest_, tile_[Dim::kOw], tile_[Dim::kKw], false);
    const int64_t images = in.broadcast_n ? 1 : nest_.images;
    const int64_t bytes = in.broadcast_c ? in.element_bytes : nest_.in_channels.total * in.element_bytes;
    const int64_t pixel =
        in.broadcasts() ? bytes : pixel_bytes(nest_.in_channels, in, config_.axi_bytes, config_.batch);
    const int64_t read = images * rows.read * cols.read, all = images * rows.all * cols.all;
    read_ = read;
    const Span down = input_span(0, tile_[Dim::kOh], 0, tile_[Dim::kKh], nest_.stride_h, nest_.dilation_h, 0),
               along = input_span(0, tile_[Dim::kOw], 0, tile_[Dim::kKw], nest_.stride_w, nest_.dilation_w, 0);
    int64_t step = nest_.images > 1 ? in.pitch_n : kMost;
    if (down.count > 1) step = std::min(step, down.step * in.pitch_h);
    if (along.count > 1) step = std::min(step, along.step * in.pitch_w);
    input_ = {read * pixel + std::max<int64_t>(0, all - read) * bytes,
              read * loaded_bytes(nest_.in_channels, in, config_.axi_bytes, config_.batch, step)};
    if (in.broadcasts()) input_ = both(read * bytes);
    if (all > read) padded_lines_ = images * rows.all * trips_[Dim::kOw] * trips_[Dim::kG] * trips_[Dim::kIc];
    if (const Moved line = apart_in_line(); line.bus > 0) {
      input_.groups += std::max<int64_t>(0, images * rows.read * line.groups - read * pixel);
      input_.bus = std::max(input_.bus, images * rows.read * line.bus);
    }
    requests_ = short_requests(rows, cols, images);
    if (!weighted(nest_) || nest_.factor.present || in.broadcasts()) return;
    fetch_again(rows, cols, bytes);
  }

  /// A stretch of a pixel that is contiguous in DRAM, and where its first byte lies in the scratchpad.
  struct Run {
    int64_t dram = 0, bytes = 0, place = 0;
  };

  /// The runs of a pixel where none joins another: where packed or partly filled entries leave a gap behind each pixel.
  /// Else nothing.
  std::vector<Run> runs_apart() const {
    const Access& in = nest_.input;
    const ChannelMap& map = nest_.in_channels;
    const bool whole = trips_[Dim::kG] * trips_[Dim::kIc] == 1 && map.chunks() == 1 && config_.batch == 1;
    if (!whole || in.broadcasts() || map.total % map.lanes == 0) return {};
    if (map.lanes * in.element_bytes % config_.axi_bytes != 0) return {};  // entries begin inside a group
    const int64_t size = in.segment_channels > 0 ? std::min(in.segment_channels, map.total) : map.total;
    const int64_t bytes = size * in.element_bytes;
    if (size < map.total && (in.segment_pitch == bytes || in.pitch_w == bytes)) return {};  // segments may join
    std::vector<Run> runs;
    for (int64_t c = 0; c < map.total; c += size)
      runs.push_back(
          {c / size * in.segment_pitch, std::min(size, map.total - c) * in.element_bytes, c * in.element_bytes});
    return runs;
  }

  /// Beats, and cycles of LOAD, for the runs of a row that begins so many bytes inside a beat.
  Moved line_from(int64_t begin, const std::vector<Run>& runs) const {
    const Access& in = nest_.input;
    const int64_t width = config_.axi_bytes;
    Moved line;
    for (int64_t o = 0; o < nest_.extent[Dim::kOw]; o += tile_[Dim::kOw]) {
      const int64_t out = std::min(tile_[Dim::kOw], nest_.extent[Dim::kOw] - o);
      const Span span = input_span(o, out, 0, tile_[Dim::kKw], nest_.stride_w, nest_.dilation_w, nest_.pad_left);
      bool first = true;  // behind the row before
      for (int64_t i = 0; i < span.count; ++i) {
        const int64_t col = span.begin + i * span.step;
        if (col < in.col_begin || col >= in.col_end) continue;
        for (const Run& run : runs) {
          const int64_t dram = begin + col * in.pitch_w + run.dram, from = modulo(dram, width), to = run.place % width;
          const bool shares = first || may_share(dram, run, runs, span.step * in.pitch_w);
          first = false;
          line.bus += ceil_div(from + run.bytes, width) - (shares ? 1 : 0);
          line.groups += ceil_div(to + run.bytes, width) + (from > to && !shares ? 1 : 0);
        }
      }
    }
    return line;
  }
  /// Whether a run from byte `dram` on begins in the last beat of a run that may come before it: of the column before,
  /// or of the same pixel.
  bool may_share(int64_t dram, const Run& run, const std::vector<Run>& runs, int64_t step) const {
    const auto beat = [&](int64_t at) { return at - modulo(at, config_.axi_bytes); };
    return std::any_of(runs.begin(), runs.end(), [&](const Run& other) {
      const int64_t end = dram - run.dram + other.dram + other.bytes - 1;  // in the same pixel
      return beat(end - step) == beat(dram) || (other.dram < run.dram && beat(end) == beat(dram));
    });
  }
  static int64_t modulo(int64_t value, int64_t width) { return (value % width + width) % width; }

  /// What the runs of a row of the input take in all tiles of its columns, where they begin at any byte: beats of the
  /// bus, and cycles of LOAD, which takes one more where a run begins further inside its beat than inside its group.
  /// The least of all rows, as bytes of whole beats.
  Moved apart_in_line() const {
    const Access& in = nest_.input;
    const std::vector<Run> runs = runs_apart();
    const int64_t width = config_.axi_bytes;
    if (runs.empty()) return {};
    std::vector<bool> seen(static_cast<size_t>(width), false);
    Moved least{kMost, kMost};
    for (int64_t row = in.row_begin; row < in.row_end; ++row) {
      const int64_t rest = modulo(in.offset + row * in.pitch_h, width);
      if (seen[static_cast<size_t>(rest)]) continue;
      seen[static_cast<size_t>(rest)] = true;
      const Moved line = line_from(rest, runs);
      least = {std::min(least.groups, line.groups), std::min(least.bus, line.bus)};
    }
    return least.bus == kMost ? Moved{} : Moved{least.groups * width, least.bus * width};
  }

  /// Adds what must be fetched again. A product needs a tile of the input and one of the weights on chip; whichever
  /// came later meets at most as many of the other as fit. So so many products need so many fetches.
  void fetch_again(const Positions& rows, const Positions& cols, int64_t channel_bytes) {
    const int64_t inputs = tiles_of(Operand::kInput), weights = tiles_of(Operand::kWeights);
    const int64_t columns = trips_[Dim::kOc], places = product(trips_, {Dim::kN, Dim::kOh, Dim::kOw});
    const int64_t entries = footprint(nest_, intrinsic_, tile_).weights;
    const Span span = input_span(0, tile_[Dim::kOh], 0, tile_[Dim::kKh], nest_.stride_h, nest_.dilation_h, 0);
    const Span wide = input_span(0, tile_[Dim::kOw], 0, tile_[Dim::kKw], nest_.stride_w, nest_.dilation_w, 0);
    // Tiles that keep rows take those places alone that are new.
    const int64_t fresh = std::max<int64_t>(1, std::min(span.count, tile_[Dim::kOh] * span.stride)) * wide.count *
                          product(tile_, {Dim::kN, Dim::kG, Dim::kIc});
    const int64_t inputs_fit = std::clamp<int64_t>(input_depth() / fresh, 1, places),
                  weights_fit =
                      std::clamp<int64_t>(config_.depth(isa::Space::kWgt) / std::max<int64_t>(entries, 1), 1, columns);
    const int64_t products = inputs * columns;
    const int64_t missing = products - inputs * weights_fit - weights * inputs_fit;
    if (missing <= 0) return;
    const int64_t weights_more = ceil_div(missing, inputs_fit), inputs_more = ceil_div(missing, weights_fit);
    const int64_t weights_least = footprint(nest_, intrinsic_, last_).weights * weight_entry_bytes(nest_, config_);
    const int64_t channels_least = channel_bytes - (trips_[Dim::kG] * trips_[Dim::kIc] - 1) *
                                                       std::min(product(tile_, {Dim::kG, Dim::kIc}) *
                                                                    nest_.in_channels.lanes * nest_.input.element_bytes,
                                                                channel_bytes);
    const int64_t each = std::max<int64_t>(0, channels_least);
    const auto again = [&](int64_t input_bytes) {
      return std::min(weights_more * weights_least, inputs_more * input_bytes);
    };
    weights_.groups += again(rows.least_all * cols.least_all * each);
    weights_.bus += again(rows.least_read * cols.least_read * each);
  }

  /// Bursts of reads so short that the reads in flight bound them: pixels that are fetched one by one.
  struct Requests {
    int64_t count = 0, beats = 0, longest = 0;
  };
  Requests short_requests(const Positions& rows, const Positions& cols, int64_t images) const {
    const Access& in = nest_.input;
    if (in.broadcasts() || config_.batch > 1) return {};
    const Span span = input_span(0, tile_[Dim::kOw], 0, tile_[Dim::kKw], nest_.stride_w, nest_.dilation_w, 0);
    const int64_t tiles = trips_[Dim::kG] * trips_[Dim::kIc], total = nest_.in_channels.total;
    const bool segments = in.segment_channels > 0 && in.segment_channels < total;
    const int64_t segment = in.segment_channels * in.element_bytes;
    if (segments && (in.segment_pitch == segment || in.pitch_w == segment)) return {};  // they may continue each other
    const int64_t apart = segments ? std::max(tiles, ceil_div(total, in.segment_channels)) : tiles;
    if (apart == 1 && span.step == 1 && in.pitch_w == total * in.element_bytes) return {};
    const int64_t most = product(tile_, {Dim::kG, Dim::kIc}) * nest_.in_channels.lanes;
    const int64_t channels = std::min(most, segments ? in.segment_channels : total);
    if (channels * in.element_bytes == in.pitch_w) return {};  // packed pixels overlap: runs join
    if (span.step * in.pitch_w < channels * in.element_bytes + config_.axi_bytes) return {};  // they may share beats
    Requests requests;
    requests.count = images * rows.read * cols.read * apart;
    requests.longest = groups(channels * in.element_bytes) + 1;
    requests.beats = images * rows.read * cols.read * total * in.element_bytes / config_.axi_bytes;
    return requests;
  }

  /// Cycles from the first to the last of bursts of which so many may be under way, each for its beats and so long.
  static int64_t window(int64_t count, int64_t beats, int64_t longest, int64_t held, int64_t places) {
    if (count <= places) return 0;
    return ((count - places) * held + std::max<int64_t>(0, beats - places * longest)) / places;
  }

  int64_t load_window() const {
    return window(requests_.count, requests_.beats, requests_.longest, machine_.dram_latency_cycles,
                  std::max(1, config_.reads_in_flight));
  }

  int64_t store_window() const {
    const Access& out = nest_.output;
    const bool rows_join = out.pitch_h == nest_.extent[Dim::kOw] * out.pitch_w && trips_[Dim::kOw] == 1;
    const int64_t pixels = tile_[Dim::kOw] * (rows_join ? product(tile_, {Dim::kOh, Dim::kN}) : 1);
    const int64_t run = run_bytes(nest_.out_channels, out, tile_[Dim::kG], tile_[Dim::kOc], pixels, config_.batch);
    const int64_t bytes =
        nest_.images * product(nest_.extent, {Dim::kOh, Dim::kOw}) * nest_.out_channels.total * out.element_bytes;
    if (run >= timing::transfer::kJoinBeats * config_.axi_bytes) return 0;
    return window(ceil_div(bytes, run), bytes / config_.axi_bytes, groups(run) + 1,
                  machine_.dram_latency_cycles + timing::bus::kWriteData, std::max(1, config_.writes_in_flight));
  }

  /// Whether GEMM and the stage work on a tile in one instruction each, plane by plane or pass by pass: else the first
  /// one waits for less than the tile's operands, and the last one leaves less to the stage.
  bool one_instruction() const {
    constexpr int64_t kMostIterations = 4095, kMostStride = 8191;
    const Footprint f = footprint(nest_, intrinsic_, tile_);
    if (f.sums > kMostIterations || std::max(f.input, f.weights) > kMostStride) return false;
    int loops = 0;
    for (const int64_t extent : tile_.value) {
      if (extent > kMostIterations) return false;
      loops += extent > 1 ? 1 : 0;
    }
    return !dense(nest_) || loops <= isa::kLoops;
  }

  /// The first or the last strip of a tile, in strips of so many entries.
  Extents strip(const Extents& of, int64_t strips, bool at_end) const {
    Extents part = of;
    const Dim dim = of[Dim::kOh] > 1 ? Dim::kOh : Dim::kOw;
    if (strips == 0 || !may_strip(nest_)) return part;
    const int64_t others = product(of, {Dim::kG, Dim::kOc}) * (dim == Dim::kOh ? of[Dim::kOw] : 1);
    const int64_t size = strip_size(of[dim], others, strips);
    part[dim] = at_end ? of[dim] - (ceil_div(of[dim], size) - 1) * size : std::min(size, of[dim]);
    return part;
  }

  /// Of the channels of a map those in the first, or in the last tile.
  static int64_t channels_of(const ChannelMap& map, int64_t chunks, int64_t blocks, int64_t first_chunk,
                             int64_t first_block) {
    const int64_t begin = first_chunk * map.chunk;
    if (blocks >= map.blocks()) return std::clamp<int64_t>(map.total - begin, 0, chunks * map.chunk);
    const int64_t from = begin + first_block * map.lanes;
    return std::clamp<int64_t>(std::min(map.total, begin + map.chunk) - from, 0, blocks * map.lanes);
  }

  /// Groups of padding in front of the first pixel, which LOAD writes before the memory answers. Constant weights are
  /// fetched before the input; then there is none.
  int64_t padding_ahead() const {
    const Access& in = nest_.input;
    if (!in.present || in.broadcasts() || (weighted(nest_) && !nest_.factor.present)) return 0;
    const auto before = [](const Span& span, int64_t low) {
      return std::min(span.count, ceil_div(std::max<int64_t>(0, low - span.begin), span.step));
    };
    const Span rows =
                   input_span(0, tile_[Dim::kOh], 0, tile_[Dim::kKh], nest_.stride_h, nest_.dilation_h, nest_.pad_top),
               cols =
                   input_span(0, tile_[Dim::kOw], 0, tile_[Dim::kKw], nest_.stride_w, nest_.dilation_w, nest_.pad_left);
    const int64_t over = before(rows, in.row_begin), beside = before(cols, in.col_begin);
    if (over == rows.count || beside == cols.count) return kMost;  // whole tiles come before the first pixel
    const int64_t pixels = over * cols.count + beside;
    return groups(pixels * nest_.in_channels.total * in.element_bytes);
  }

  Ends ends_of(int64_t strips) const {
    const Extents begin = strip(tile_, strips, false), end = strip(last_, strips, true);
    Extents taken = begin;                               // by the first instruction
    if (nest_.computation == Computation::kDepthwise) {  // the first pass waits for its own taps alone
      taken[Dim::kKh] = std::min(taken[Dim::kKh], nest_.tap_h);
      taken[Dim::kKw] = std::min(taken[Dim::kKw], nest_.tap_w);
    }
    const auto input = [&](const Extents& of) {
      if (!nest_.input.present || nest_.input.broadcasts()) return int64_t{0};
      const int64_t rows = input_span(0, of[Dim::kOh], 0, of[Dim::kKh], nest_.stride_h, nest_.dilation_h, 0).count;
      const int64_t cols = input_span(0, of[Dim::kOw], 0, of[Dim::kKw], nest_.stride_w, nest_.dilation_w, 0).count;
      return rows * cols * channels_of(nest_.in_channels, of[Dim::kG], of[Dim::kIc], 0, 0) * nest_.input.element_bytes;
    };
    const int64_t passes =
        nest_.computation == Computation::kDepthwise ? depthwise_passes(nest_, tile_[Dim::kKh], tile_[Dim::kKw]) : 1;
    const int64_t parts = passes * nest_.planes;  // of weights, each with instructions of its own
    const Footprint f = footprint(nest_, intrinsic_, tile_);
    const bool factor = nest_.factor.present;
    const int64_t weights =
        factor ? factor_traffic(nest_, taken).bytes : f.weights * weight_entry_bytes(nest_, config_);
    Ends ends;
    ends.ahead = padding_ahead();
    // The timing model may be a cycle early where padding ends.
    const auto lines = [&](const Extents& of) {
      return padded_lines_ == 0
                 ? 0
                 : input_span(0, of[Dim::kOh], 0, of[Dim::kKh], nest_.stride_h, nest_.dilation_h, 0).count;
    };
    ends.first_load = std::max<int64_t>(0, groups(input(taken) + weights / parts) - lines(taken));
    // The parts of a cut window wait for their input alone.
    const bool cut = !weighted(nest_) && reduction_tiles_ > 1;
    if (nest_.convert && !factor)
      ends.first_tile = groups(input(tile_) + weights + (cut ? 0 : param_bytes(f, config_))) - lines(tile_);
    // Results of several tiles wait for all of them, and for one strip of the last.
    ends.first_gemm = gemm_steps(nest_, begin, begin);
    ends.first_stage = nest_.raw ? 0 : entries_of(begin);
    if (!weighted(nest_)) ends.first_stage = reduction_tiles_ > 1 ? 0 : alu_issues(nest_, config_, begin, 1);
    const Extents& behind = output_tiles_ * reduction_tiles_ > 1 ? last_ : end;
    ends.last_gemm = passes > 1 ? entries_of(behind) : gemm_steps(nest_, behind, behind) / nest_.planes;
    ends.stage = nest_.raw ? 0 : entries_of(end);
    const int64_t chunk = (trips_[Dim::kG] - 1) * tile_[Dim::kG], block = (trips_[Dim::kOc] - 1) * tile_[Dim::kOc];
    // The last pixel of a row may have fewer columns.
    if (nest_.layout.columns > 1) return ends;
    ends.store = beats(product(end, {Dim::kOh, Dim::kOw}) * nest_.output.element_bytes *
                           channels_of(nest_.out_channels, end[Dim::kG], end[Dim::kOc], chunk, block),
                       machine_);
    return ends;
  }

  /// How long entries of the scratchpads are taken, summed over all entries: from the take of the instruction that
  /// writes one to the take of the one that may write it next. Divided by a scratchpad's depth these are cycles in
  /// which all of it can pass through.
  struct Stay {
    int64_t input = 0, weights = 0, sums = 0, output = 0;
    void add(const Stay& other, int64_t times) {
      input += times * other.input;
      weights += times * other.weights;
      sums += times * other.sums;
      output += times * other.output;
    }
  };

  // An instruction's cycles beside its steps, from its take to that of what waits for it.
  static constexpr int64_t kGemm = timing::gemm::kStart + timing::gemm::kWrite - 1 + kWait,
                           kStage = timing::alu::kStart + timing::alu::kLeast - 1 + kWait,
                           kStored =
                               timing::transfer::kLeave + timing::store::kFirstBeat + timing::store::kComplete + kWait;

  /// Of the tiles with these extents: of one product and its stage, and, with `fetch`, of its operands' fetch.
  Stay stay_of(const Extents& part, bool fetch) const {
    const Footprint f = footprint(nest_, intrinsic_, part);
    const int64_t steps = gemm_steps(nest_, part, part), wait = kGemm + timing::load::kAlone;
    // Tiles that keep rows fetch those that are new.
    const Span rows = input_span(0, part[Dim::kOh], 0, part[Dim::kKh], nest_.stride_h, nest_.dilation_h, 0);
    const int64_t fresh = std::max<int64_t>(1, std::min(rows.count, part[Dim::kOh] * rows.stride));
    const int64_t input = nest_.input.broadcasts() ? 0 : f.input / rows.count * fresh;
    Stay stay;
    stay.input = input * (steps + (fetch ? kGemm : 0));
    stay.weights = f.weights * (steps / nest_.planes + (fetch ? wait + machine_.dram_latency_cycles : 0));
    return stay;
  }

  /// Of a tile's sums and results: the stage and STORE have an instruction for them.
  Stay stay_of_results(const Extents& part) const {
    const Footprint f = footprint(nest_, intrinsic_, part);
    Stay stay;
    if (nest_.raw) return stay;
    stay.sums = f.sums * (kGemm + reduction_tiles_ * gemm_steps(nest_, part, part) + kStage + f.output);
    const int64_t moved = one_transfer(nest_.out_channels) ? groups(f.output * config_.out_entry_bytes()) : 0;
    stay.output = f.output * (kStage + f.output + kStored + moved + machine_.dram_latency_cycles);
    return stay;
  }

  /// Whether all entries of a tile are full, so that it is one transfer of whole beats.
  bool one_transfer(const ChannelMap& map) const {
    const bool full = map.total % map.lanes == 0 && map.chunk % map.lanes == 0;
    return full && tile_[Dim::kN] == 1 && nest_.layout == InputLayout{};
  }

  /// Of what the memory brings of the input.
  int64_t stay_of_fetches() const {
    if (!nest_.input.present || nest_.input.broadcasts()) return 0;
    const int64_t wait = timing::load::kAlone + machine_.dram_latency_cycles;
    const int64_t entries = read_ * product(nest_.extent, {Dim::kG, Dim::kIc}),
                  one = footprint(nest_, intrinsic_, tile_).input;
    const int64_t stay = std::max<int64_t>(0, entries - 2 * one) * wait;
    const bool segments = nest_.input.segment_channels < nest_.in_channels.total;
    if (!one_transfer(nest_.in_channels) || segments) return stay;
    // The cycles of all transfers are shared evenly at best.
    const int64_t entry = groups(config_.inp_entry_bytes());
    return stay + entries * (entries * entry / tiles_of(Operand::kInput)) - 2 * one * one * entry;
  }

  /// Of all tiles but the first and the last, which may be cut into strips that leave earlier.
  Stay stay() const {
    const bool passes =
        nest_.computation == Computation::kDepthwise && depthwise_passes(nest_, tile_[Dim::kKh], tile_[Dim::kKw]) > 1;
    if (!core_ || gemm_ == 0 || config_.batch > 1 || passes || !one_instruction()) return {};
    Stay stay;
    std::array<std::array<Cut, 2>, kDims> parts;
    for (size_t d = 0; d < kDims; ++d) parts[d] = cuts(nest_.extent.value[d], tile_.value[d]);
    for (uint32_t choice = 0; choice < 1U << kDims; ++choice) {
      Extents part;
      std::array<int64_t, kDims> counts{};
      int64_t count = 1;
      for (size_t d = 0; d < kDims && count > 0; ++d) {
        const Cut& cut = parts[d][choice >> d & 1U];
        part.value[d] = cut.size;
        counts[d] = cut.size > 0 ? cut.count : 0;
        count *= counts[d];
      }
      if (count == 0) continue;
      add_stay(part, counts, count, stay);
    }
    stay.input += stay_of_fetches();
    Stay strips = stay_of(tile_, true);
    strips.add(stay_of_results(tile_), 1);
    stay.add(strips, -2);
    return stay;
  }

  /// Each operand is fetched once at least, whatever the dimensions that it does not have.
  void add_stay(const Extents& part, const std::array<int64_t, kDims>& counts, int64_t count, Stay& stay) const {
    const Stay product = stay_of(part, false), fetched = stay_of(part, true);
    stay.add(product, count);
    const auto distinct = [&](Operand operand) {
      int64_t tiles = 1;
      for (size_t d = 0; d < kDims; ++d) {
        const auto dim = static_cast<Dim>(d);
        if (indexes(nest_, operand, dim))
          tiles *= counts[d];
        else if (part[dim] != tile_[dim])
          return int64_t{0};
      }
      return tiles;
    };
    stay.input += distinct(Operand::kInput) * (fetched.input - product.input);
    stay.weights += distinct(Operand::kWeights) * (fetched.weights - product.weights);
    stay.add(stay_of_results(part), distinct(Operand::kSums));
  }

  /// Cycles in which everything passes the scratchpads. Slots are of a tile each; those of weights and those that keep
  /// rows have any size.
  struct Passage {
    int64_t operands = 0, sums = 0, output = 0;
  };
  Passage passage() const {
    const Stay stay = this->stay();
    const Footprint f = footprint(nest_, intrinsic_, tile_);
    const auto pass = [&](int64_t cycles, isa::Space space, int64_t slot) {
      const int64_t depth = config_.depth(space), used = slot > 0 ? depth / slot * slot : depth;
      return std::max<int64_t>(0, cycles / std::max<int64_t>(used, 1) - kWait);
    };
    const Span rows = input_span(0, tile_[Dim::kOh], 0, tile_[Dim::kKh], nest_.stride_h, nest_.dilation_h, 0);
    const bool apart = trips_[Dim::kOh] == 1 || tile_[Dim::kOh] * rows.stride >= rows.count;
    return {std::max(pass(stay.input, isa::Space::kInp, apart ? f.input : 0), pass(stay.weights, isa::Space::kWgt, 0)),
            pass(stay.sums, isa::Space::kAcc, f.sums), pass(stay.output, isa::Space::kOut, f.output)};
  }

  /// Cycles of the port that the vector unit reads the input by: its own reads, and what STORE reads of OUT or LOAD
  /// writes to INP.
  int64_t port() const {
    if (!core_ || weighted(nest_) || nest_.computation == Computation::kRows || config_.batch > 1) return 0;
    if (!nest_.input.present || nest_.input.broadcasts() || nest_.raw) return 0;
    const int64_t reads = entries_of(nest_.extent) * taps_of(nest_.extent);
    int64_t least = kMost;
    for (const isa::Space space : input_scopes(nest_, config_))
      least = std::min(
          least, reads + (space == isa::Space::kOut ? groups(out_.groups)
                                                    : std::max<int64_t>(0, groups(input_.groups) - padded_lines_)));
    return least == kMost ? 0 : least;
  }

  /// Instructions that every schedule has: LOAD of each tile of each operand, GEMM of each tile, the stage of a result,
  /// STORE, FINISH.
  int64_t instructions() const {
    int64_t count = 1 + output_tiles_ + (nest_.input.present ? tiles_of(Operand::kInput) : 0);
    if (weighted(nest_)) count += tiles_of(Operand::kWeights);
    if (nest_.convert) count += tiles_of(Operand::kParams);
    if (nest_.second.present) count += 1 + (nest_.second.broadcasts() ? 1 : output_tiles_);
    if (gemm_ > 0) count += output_tiles_ * reduction_tiles_;
    const bool staged = gemm_ > 0 ? !nest_.raw : !nest_.raw || intrinsic_.demand(nest_, tile_).sums > 0;
    return count + (core_ && staged ? output_tiles_ : 0);
  }

  int64_t cycles(const Ends& ends, const Passage& passage) const {
    const int64_t latency = machine_.dram_latency_cycles;
    const bool products = gemm_ > 0, staged = core_ && alu_ > 0;
    // The first instruction at the head of its queue, and its first data at LOAD.
    const int64_t word = latency + timing::bus::kAddress + timing::bus::kSeen,
                  take =
                      word + beats(isa::kInstructionBytes, machine_) + timing::fetch::kCheck + timing::queue::kVisible;
    const int64_t data = take + (reads_.bus > 0 ? timing::load::kAlone + latency : 0);
    // Completions of GEMM, the vector unit and STORE that wait for a completion and work so long.
    const auto gemm = [&](int64_t at, int64_t steps) {
      return products ? at + kWait + timing::gemm::kStart + steps - 1 + timing::gemm::kWrite : at;
    };
    const int64_t out = nest_.raw ? timing::alu::kRaw : timing::alu::kLeast;
    const auto alu = [&](int64_t at, int64_t issues) {
      return staged ? at + kWait + timing::alu::kStart + std::max<int64_t>(issues, 1) - 1 + out : at;
    };
    const auto store = [&](int64_t at, int64_t moved) {
      return at + kWait + timing::transfer::kLeave + timing::store::kFirstBeat + std::max<int64_t>(moved, 1) - 1 +
             latency + kEnd;
    };
    const int64_t begin = data - std::min(ends.ahead, latency + timing::load::kFirstBeat),
                  operands = begin + ends.first_load;
    const int64_t moved = std::max(beats(out_.bus, machine_), store_window());
    const int64_t loads = std::max(groups(reads_.groups) - padded_lines_, load_window());
    int64_t least = store(alu(gemm(operands, std::max<int64_t>(gemm_, 1)), ends.stage), ends.store);
    const int64_t first = gemm(operands, std::max<int64_t>(ends.first_gemm, 1));
    least = std::max(least, store(alu(first, alu_), ends.store));
    least = std::max(least, store(alu(first, ends.first_stage), moved));
    const int64_t parameters = begin + ends.first_tile;
    least = std::max(least, store(alu(parameters, alu_), ends.store));
    least = std::max(least, store(alu(parameters, ends.first_stage), moved));
    // The last operand of GEMM, and the last of all: parameters and second operands may come behind.
    least = std::max(least, store(alu(begin + loads, ends.stage), ends.store));
    if (products) {
      const int64_t early = std::max(groups(reads_.groups) - groups(late_.groups) - padded_lines_, load_window());
      least = std::max(least,
                       store(alu(gemm(begin + early, std::max<int64_t>(ends.last_gemm, 1)), ends.stage), ends.store));
    }
    least = std::max(least, begin + port() + latency + kEnd);
    if (passage.operands > 0) least = std::max(least, store(alu(take + passage.operands, ends.stage), ends.store));
    if (passage.sums > 0) least = std::max(least, store(operands + passage.sums, ends.store));
    if (passage.output > 0) least = std::max(least, first + passage.output);
    const int64_t bus = std::max(word - 1 + beats(data_ + instructions() * isa::kInstructionBytes, machine_),
                                 data - 1 + beats(data_, machine_));
    least = std::max(least, bus - 1 + latency + kEnd);
    // Where the memory is slower than the bus an idle bus saves a part of a beat.
    return machine_.bytes_per_cycle() < config_.axi_bytes ? least - 4 : least;
  }

  const Nest& nest_;
  const Intrinsic& intrinsic_;
  const Extents& tile_;
  const Machine& machine_;
  const isa::MachineConfig& config_;
  Extents trips_, last_;  // tiles in each dimension, and extents of the last one
  int64_t output_tiles_ = 1, reduction_tiles_ = 1;
  bool core_ = true;
  int64_t gemm_ = 0, alu_ = 0;
  Moved input_, weights_, late_, out_, reads_;  // late: what GEMM does not wait for
  Requests requests_;
  int64_t padded_lines_ = 0;  // of the input, in all its tiles
  int64_t read_ = 0;          // pixels of the input that are fetched
  int64_t data_ = 0;          // bytes on the bus, without instructions
};

}  // namespace

int64_t tile_bound(const Nest& nest, const Intrinsic& intrinsic, const Extents& tile, const Machine& machine,
                   const Besides& besides) {
  return TileForm(nest, intrinsic, tile, machine, besides).cycles();
}

namespace {

/// With one slot of each operand, wherever the input stands.
bool fits(const Nest& nest, const Intrinsic& intrinsic, const Extents& tile, const isa::MachineConfig& config) {
  const std::vector<isa::Space> scopes = input_scopes(nest, config);
  const Footprint f = footprint(nest, intrinsic, tile);
  return std::any_of(scopes.begin(), scopes.end(), [&](isa::Space scope) {
    Capacity use;
    PerOperand ones;
    ones.fill(1);
    add_use(use, f, ones, scope);
    return use.fits(config);
  });
}

}  // namespace

std::vector<TileBound> tile_bounds(const Nest& nest, const Machine& machine, const Besides& besides) {
  const Space space(nest, machine.config);
  std::vector<TileBound> result;
  for (const Intrinsic* intrinsic : intrinsics_for(nest)) {
    std::array<size_t, kDims> at{};
    for (bool more = true; more;) {
      Extents tile;
      for (size_t d = 0; d < kDims; ++d) tile.value[d] = space.extents(static_cast<Dim>(d))[at[d]];
      if (encodable(nest, *intrinsic, tile) && fits(nest, *intrinsic, tile, machine.config))
        result.push_back({intrinsic, tile, tile_bound(nest, *intrinsic, tile, machine, besides)});
      more = false;
      for (size_t d = 0; d < kDims && !more; ++d) {
        more = ++at[d] < space.extents(static_cast<Dim>(d)).size();
        if (!more) at[d] = 0;
      }
    }
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const TileBound& a, const TileBound& b) { return a.cycles < b.cycles; });
  return result;
}

}  // namespace tessera::schedule
