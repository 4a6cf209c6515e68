// SPDX-License-Identifier: Apache-2.0
// Operators as computes, and what nests need beyond that: chunks of channels, collapsed pixels, weight planes, folded
// layouts.
#include "compiler/npu/tasks/task.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/row_arithmetic.h"
#include "compiler/npu/tasks/compute.h"
#include "compiler/npu/tasks/extremes.h"
#include "compiler/npu/tasks/packed_weights.h"

namespace tessera::npu {

namespace {

using schedule::Access;
using schedule::Computation;
using schedule::Dim;
using schedule::Nest;

constexpr int64_t kShortRun = 24;  // bytes of a window's row: longer ones keep LOAD busy by themselves

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Pointwise nests: pixels become one row; with BATCH > 1 the pixels become the images of an entry.
void collapse_pixels(Nest& nest, const isa::MachineConfig& config) {
  const bool pointwise = !nest.factor.present && nest.extent[Dim::kKh] == 1 && nest.extent[Dim::kKw] == 1 &&
                         nest.stride_h == 1 && nest.stride_w == 1 && nest.pad_top == 0 && nest.pad_left == 0 &&
                         (nest.input.broadcast_h || nest.extent[Dim::kOh] <= nest.input.row_end) &&
                         (nest.input.broadcast_w || nest.extent[Dim::kOw] <= nest.input.col_end);
  if (!pointwise) return;
  int64_t& h = nest.extent[Dim::kOh];
  int64_t& w = nest.extent[Dim::kOw];
  if (collapse(nest, kRowsIntoColumns, h, w)) {
    w *= h;
    h = 1;
    if (collapse(nest, kImagesIntoColumns, nest.images, w)) {
      w *= nest.images;
      nest.images = 1;
    }
  }
  if (config.batch > 1 && nest.images == 1) {
    for (Access* a : {&nest.input, &nest.second, &nest.output}) {
      a->pitch_n = a->pitch_w;
      a->broadcast_n = a->broadcast_w;
      a->pitch_w = 0;
      a->broadcast_w = false;
    }
    nest.images = w;
    w = 1;
  }
  nest.input.row_begin = nest.input.col_begin = 0;
  nest.input.row_end = h;
  nest.input.col_end = w;
}

}  // namespace

void finish_nest(Nest& nest, const isa::MachineConfig& config) {
  nest.extent[Dim::kN] = ceil_div(nest.images, config.batch);
  nest.extent[Dim::kG] = nest.out_channels.chunks();
  nest.extent[Dim::kOc] = nest.out_channels.blocks();
  nest.extent[Dim::kIc] = nest.computation == Computation::kDense ? nest.in_channels.blocks() : 1;
  for (Access* a : {&nest.second, &nest.output}) {
    if (!a->present) continue;
    a->row_end = nest.extent[Dim::kOh];
    a->col_end = nest.extent[Dim::kOw];
  }
  for (Access* a : {&nest.input, &nest.second, &nest.output}) {
    if (a->present && a->segment_channels == 0) {
      a->segment_channels = a == &nest.input ? nest.in_channels.total : nest.out_channels.total;
      a->segment_pitch = a->segment_channels * a->element_bytes;
    }
  }
}

namespace {

std::shared_ptr<WeightSource> weight_source(const Convolution& op, int64_t ic, int64_t oc) {
  auto source = std::make_shared<WeightSource>();
  source->groups = op.groups;
  source->oc_per_group = oc / op.groups;
  source->ic_per_group = ic / op.groups;
  source->kernel_h = op.kernel_h;
  source->kernel_w = op.kernel_w;
  source->value = op.weights;
  if (!op.weight_zero.empty()) {
    const size_t channels = op.weight_zero.size(), each = source->value.size() / channels;
    for (size_t channel = 0; channel < channels; ++channel) {
      const int32_t zero = op.weight_zero[channel];
      if (zero == 0) continue;
      for (int16_t& value : std::span(source->value).subspan(channel * each, each))
        value = static_cast<int16_t>(value - zero);
    }
  }
  // Idle lanes hold 0, so 0 must be in range.
  const Extremes found = extremes_of(source->value);
  const int32_t low = std::min<int32_t>(found.low, 0), high = std::max<int32_t>(found.high, 0);
  if (low >= -128 && high <= 127) {
    source->planes = {{false, 0}};
  } else if (op.groups == ic && op.groups == oc && op.groups > 1) {
    const int32_t planes =
        static_cast<int32_t>(std::max(ceil_div(-low, 128), ceil_div(high, 127)));  // depthwise: each of them int8
    source->planes.assign(static_cast<size_t>(planes), {false, 0});
  } else if (high - low <= 255) {
    source->planes = {{true, -low}};
  } else {
    source->planes = {{false, 0}, {true, 127}};  // what fits int8, and the rest: -127..128
  }
  return source;
}

/// Groups that share an entry: as many as make the fewest block products, whole input entries preferred.
int64_t pack_groups(const WeightSource& source, const isa::MachineConfig& config) {
  int64_t best = 1, best_cost = -1;
  bool best_whole = false;
  const int64_t most = std::min<int64_t>(source.groups, 2 * std::max(config.block_in, config.block_out));
  for (int64_t p = 1; p <= most; ++p) {
    const int64_t cost = ceil_div(source.groups, p) * ceil_div(p * source.ic_per_group, config.block_in) *
                         ceil_div(p * source.oc_per_group, config.block_out);
    const bool whole =
        p * source.ic_per_group % config.block_in == 0 && p * source.oc_per_group % config.block_out == 0;
    if (best_cost < 0 || cost < best_cost || (cost == best_cost && whole && !best_whole)) {
      best = p;
      best_cost = cost;
      best_whole = whole;
    }
  }
  return best;
}

/// Neighbouring output columns as channels of one output pixel, whose window is that of all of them: their results lie
/// behind each other in DRAM, and one longer run of input serves them.
bool join_columns(Nest& nest, int64_t columns) {
  const int64_t results = nest.out_channels.total;
  if (nest.extent[Dim::kOw] % columns != 0 || nest.dilation_w != 1) return false;
  for (Access* a : {&nest.second, &nest.output}) {
    if (a->present && (a->broadcast_w || a->broadcast_c || a->pitch_w != results * a->element_bytes)) return false;
    a->pitch_w *= columns;
  }
  nest.layout.columns = columns;
  nest.column_step = nest.stride_w;
  nest.extent[Dim::kOw] /= columns;
  nest.extent[Dim::kKw] += (columns - 1) * nest.stride_w;
  nest.stride_w *= columns;
  nest.out_channels.total = nest.out_channels.chunk = columns * results;
  return true;
}

/// The window's columns (and `rows` of its rows, if more than one) as channels of one packed pixel, if all positions
/// that are read exist in DRAM. Behind the window's last row the last part of a window may read more, for weights of 0.
bool fold(Nest& nest, int64_t rows, int64_t channels, const isa::MachineConfig& config) {
  const int64_t kw = nest.extent[Dim::kKw], parts = ceil_div(nest.extent[Dim::kKh], rows), kh = parts * rows;
  Access& in = nest.input;
  const bool dense_window = nest.dilation_w == 1 && in.pitch_w == channels;
  if (config.batch != 1 || (!dense_window && rows > 1) || rows * kw == 1) return false;
  const int64_t last_col = (nest.extent[Dim::kOw] - 1) * nest.stride_w - nest.pad_left + (kw - 1) * nest.dilation_w;
  if (-nest.pad_left < in.col_begin || last_col >= in.col_end) return false;
  const int64_t last_row = (nest.extent[Dim::kOh] - 1) * nest.stride_h - nest.pad_top + (kh - 1) * nest.dilation_h;
  if (rows > 1 && (-nest.pad_top < in.row_begin || last_row >= in.row_end)) return false;
  // Columns: pixel `ow` starts at ow*stride - pad; its channels are kw segments, or one run when they are adjacent.
  in.offset -= nest.pad_left * in.pitch_w;
  if (dense_window) {
    in.segment_channels = kw * channels;
    in.segment_pitch = nest.dilation_h * in.pitch_h;
  } else {
    in.segment_channels = channels;
    in.segment_pitch = nest.dilation_w * in.pitch_w;
  }
  in.pitch_w *= nest.stride_w;
  in.col_begin = 0;
  in.col_end = nest.extent[Dim::kOw];
  nest.extent[Dim::kKw] = 1;
  nest.stride_w = nest.dilation_w = 1;
  nest.pad_left = 0;
  int64_t packed = kw * channels;
  nest.layout.fold_kw = true;
  nest.layout.fold_kh = rows > 1;
  if (parts == 1 && rows > 1) {
    in.offset -= nest.pad_top * in.pitch_h;
    in.pitch_h *= nest.stride_h;
    in.row_begin = 0;
    in.row_end = nest.extent[Dim::kOh];
    nest.stride_h = nest.dilation_h = 1;
    nest.pad_top = 0;
  } else if (rows > 1) {
    nest.layout.rows = rows;
    in.row_end -= (rows - 1) * nest.dilation_h;
    nest.dilation_h *= rows;
  }
  nest.extent[Dim::kKh] = parts;
  packed *= rows;
  nest.in_channels = {packed, packed, config.block_in};
  return true;
}

/// How many of the window's rows a packed pixel may hold: one, all, and what is not worse both in the matrix engine's
/// steps and in runs of the input.
std::vector<int64_t> folded_rows(const Nest& nest, int64_t channels, const isa::MachineConfig& config) {
  struct Choice {
    int64_t rows, steps, runs;
  };
  const int64_t kh = nest.extent[Dim::kKh], width = nest.extent[Dim::kKw] * channels;
  std::vector<Choice> choices;
  for (int64_t rows = 1; rows <= kh; ++rows) {
    const int64_t parts = ceil_div(kh, rows);
    if (ceil_div(kh, parts) < rows && rows < kh) continue;  // fewer rows come to as many parts
    const schedule::Span span =
        schedule::input_span(0, nest.extent[Dim::kOh], 0, parts, nest.stride_h, rows * nest.dilation_h, 0);
    choices.push_back({rows, parts * ceil_div(rows * width, config.block_in), rows * span.count});
  }
  std::vector<int64_t> result;
  for (const Choice& a : choices) {
    const bool worse = std::any_of(choices.begin(), choices.end(), [&](const Choice& b) {
      return b.steps <= a.steps && b.runs <= a.runs && (b.steps < a.steps || b.runs < a.runs);
    });
    if (a.rows == 1 || a.rows == kh || !worse) result.push_back(a.rows);
  }
  return result;
}

/// All ways to fold a convolution's window, beside its nest.
void add_folded(Task& task, const Nest& nest, int64_t channels, const isa::MachineConfig& config) {
  std::vector<std::pair<int64_t, Nest>> all;  // by rows
  for (int64_t columns = 1; columns <= schedule::kMostColumns; ++columns) {
    Nest joined = nest;
    if (columns > 1 && (channels * nest.extent[Dim::kKw] > kShortRun || !join_columns(joined, columns))) continue;
    for (const int64_t rows : folded_rows(joined, channels, config)) {
      Nest folded = joined;
      if (fold(folded, rows, channels, config)) all.emplace_back(rows, std::move(folded));
    }
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  for (auto& [rows, folded] : all) task.alternatives.push_back(std::move(folded));
}

}  // namespace

int32_t WeightSource::part(int32_t weight, size_t plane) const {
  for (size_t before = 0; before < plane; ++before) weight -= std::clamp(weight, -128, 127);
  return plane + 1 == planes.size() ? weight : std::clamp(weight, -128, 127);
}

int32_t weight_at(const WeightSource& source, const Nest& nest, int64_t g, int64_t o, int64_t i, int64_t kh,
                  int64_t kw) {
  if (nest.computation == Computation::kDepthwise) {
    const int64_t channel = g * nest.out_channels.chunk + o;
    if (o >= nest.out_channels.chunk || channel >= nest.out_channels.total || kh >= source.kernel_h ||
        kw >= source.kernel_w)
      return 0;
    return source.value[static_cast<size_t>((channel * source.kernel_h + kh) * source.kernel_w + kw)];
  }
  if (o >= nest.out_channels.chunk || i >= nest.in_channels.chunk) return 0;
  if (nest.layout.fold_kw) {
    // A packed pixel counts (kh,) kw, channel.
    const int64_t width = source.kernel_w + (nest.layout.columns - 1) * nest.column_step;
    kw = i / source.ic_per_group % width;
    if (nest.layout.fold_kh) kh = kh * nest.layout.rows + i / (source.ic_per_group * width);
    if (kh >= source.kernel_h) return 0;
    i %= source.ic_per_group;
  }
  if (nest.layout.columns > 1) {
    const schedule::ColumnChannel of = schedule::column_channel(nest, o);
    kw -= of.column * nest.column_step;
    o = of.channel;
    if (kw < 0 || kw >= source.kernel_w) return 0;
  }
  const int64_t group = g * source.groups_per_chunk + o / source.oc_per_group;
  if (group >= source.groups || group != g * source.groups_per_chunk + i / source.ic_per_group) return 0;
  const int64_t oc = group * source.oc_per_group + o % source.oc_per_group;
  const int64_t row = (oc * source.ic_per_group + i % source.ic_per_group) * source.kernel_h + kh;
  return source.value[static_cast<size_t>(row * source.kernel_w + kw)];
}

namespace {

/// sum over y, x (and, of a group, k) of (input - zero) * weights[c, k, y, x].
void make(const Convolution& op, const Maker& maker) {
  const isa::MachineConfig& config = maker.config;
  const int64_t channels = maker.tensor(op.input).c, results = maker.tensor(op.output).c;
  const bool depthwise = op.groups == channels && op.groups == results && op.groups > 1;
  Compute made = maker.windows(op, depthwise ? loops::c : loops::k);
  made.computation = depthwise ? Computation::kDepthwise : Computation::kDense;
  made[Loop::kK] = channels;
  made.padding = op.input_zero;
  Nest nest = maker.nest(made, op.stage);
  Task task{.stage = &op.stage, .input_zero = op.input_zero};
  const auto source = weight_source(op, channels, results);
  nest.planes = static_cast<int>(source->planes.size());
  if (depthwise) {
    source->groups_per_chunk = config.lanes();
    // A weight entry holds the taps of a part of the window, in raster form of at most 3 rows. Of the parts that need
    // the fewest passes the widest one is taken.
    const int64_t taps = config.depthwise_taps();
    int64_t fewest = 0;
    for (int64_t w = std::min<int64_t>({op.kernel_w, 5, taps}); w > 0; --w) {
      const int64_t h = std::min<int64_t>({op.kernel_h, 3, taps / w});
      const int64_t passes = ceil_div(op.kernel_w, w) * ceil_div(op.kernel_h, h);
      if (fewest != 0 && passes >= fewest) continue;
      fewest = passes;
      nest.tap_w = w;
      nest.tap_h = h;
    }
    nest.pairs = config.raster_pairs != 0;
    task.alternatives.push_back(nest);
  } else {
    source->groups_per_chunk = op.groups == 1 ? 1 : pack_groups(*source, config);
    nest.in_channels.chunk = source->groups_per_chunk * source->ic_per_group;
    nest.out_channels.chunk = source->groups_per_chunk * source->oc_per_group;
    task.alternatives.push_back(nest);
    if (maker.options.fold && op.groups == 1) add_folded(task, nest, channels, config);
  }
  for (Nest& alternative : task.alternatives) finish_nest(alternative, config);
  task.weights = source;
  maker.tasks.push_back(std::move(task));
}

/// The maximum or the sum over y, x of the input.
void make(const Pool& op, const Maker& maker) {
  Compute made = maker.windows(op, loops::c);
  made.computation = Computation::kReduce;
  made.padding = op.pad_value;
  maker.add(made, {.stage = &op.stage, .sum = op.kind == Pool::Kind::kSum});
}

/// The input, once for each phase of an enlargement: every repeat-th pixel of the result.
void make(const Elementwise& op, const Maker& maker) {
  using namespace loops;
  const Tensor& input = maker.tensor(op.input);
  for (int64_t row = 0; row < op.repeat_h; ++row) {
    for (int64_t column = 0; column < op.repeat_w; ++column) {
      Compute made = maker.every(op.output);
      made.input = maker.beside(op.input, made.result);
      if (op.repeat_h > 1 || op.repeat_w > 1) {
        made[Loop::kH] = input.h;
        made[Loop::kW] = input.w;
        made.result.position = {n, op.repeat_h * h + at(row), op.repeat_w * w + at(column), c};
        made.input.position = {n, h, w, c};
      }
      maker.add(made, {.stage = &op.stage});
    }
  }
}

/// The input beside scalars of its row: softmax and normalisations.
void make(const Rows& op, const Maker& maker) {
  Compute made = maker.every(op.output);
  made.computation = Computation::kRows;
  made.input = maker.beside(op.input, made.result);
  Nest nest = maker.nest(made, op.stage);
  nest.per_channel = op.form.factor.size() > 1 || op.form.addend.size() > 1;
  nest.fixed_shift = op.form.fixed_shift;
  maker.add(std::move(nest), {.stage = &op.stage, .rows = &op.form});
}

/// Its instructions are there already (npu/kernel.h).
void make(const Kernel&, const Maker&) {}

}  // namespace

int64_t longest_row(const isa::MachineConfig& config, RowForm::Kind kind) {
  const bool softmax = kind == RowForm::Kind::kSoftmax;
  if (config.row_lanes == 0 || (softmax && config.table_count < 2 * rows::kRowTables)) return 0;
  // One row on its way in, one on its way out, and room for a second of each.
  const int64_t input = config.block_in == config.block_out ? config.inp_depth() : config.out_depth() / 2;
  const int64_t params = softmax ? INT64_MAX : config.param_depth();
  const int64_t entries = std::min({std::min(input, config.out_depth() / 2) / 2, params, int64_t{4095}});
  return std::min<int64_t>(entries * config.block_out, softmax ? INT32_MAX : rows::kMostRowLength);
}

const Nest* nest_of(const Task& task, const schedule::InputLayout& layout) {
  const auto found = std::find_if(task.alternatives.begin(), task.alternatives.end(),
                                  [&](const Nest& nest) { return nest.layout == layout; });
  return found == task.alternatives.end() ? nullptr : &*found;
}

std::vector<Task> make_tasks(const Graph& graph, size_t operation, const std::vector<Placement>& placements,
                             const isa::MachineConfig& config, const Options& options) {
  std::vector<Task> tasks;
  const Maker maker{graph, placements, config, options, tasks};
  std::visit([&](const auto& op) { make(op, maker); }, graph.operations[operation].what);
  for (Task& task : tasks) {
    task.operation = operation;
    for (Nest& nest : task.alternatives) {
      if (!options.collapse_pixels) continue;
      collapse_pixels(nest, config);
      finish_nest(nest, config);
    }
    if (config.packed_weights != 0 && task.weights != nullptr) {
      for (Nest& nest : task.alternatives) nest.packed = packs(*task.weights, nest, config);
    }
  }
  return tasks;
}

}  // namespace tessera::npu
