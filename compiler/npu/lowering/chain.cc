// SPDX-License-Identifier: Apache-2.0
// Links of chains and their interleaved lowering: in step t the first nest works on iteration t, the second on t - 1,
// and so on, so that the matrix engine has another nest's product to do while the vector unit turns sums into the next
// nest's input.
#include "compiler/npu/lowering/chain.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/error.h"
#include "base/row_arithmetic.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/lowering/nest_lowering.h"
#include "isa/generated/timing.h"

namespace tessera::npu {

using schedule::Computation;
using schedule::Dim;
using schedule::Interval;
using schedule::Nest;
using schedule::Span;

namespace {

/// What of a slot is padding; a slot that was filled for the same shape needs no new padding.
struct Frame {
  int64_t rows = 0, cols = 0, blocks = 0, top = 0, left = 0, inner_rows = 0, inner_cols = 0;
  bool operator==(const Frame&) const = default;
};

struct Iteration {
  std::vector<Tile> tiles;     // one for each nest
  std::vector<int64_t> kept;   // rows in front of each that are kept from earlier tiles
  std::vector<Interval> cols;  // of each, where a pixel of the first may hold several
  size_t column = 0;           // tiles of one column follow each other and may keep rows
};

/// The nests' tiles of one image, one interval of rows and one of columns, and some blocks of the middle channels.
Iteration iteration(const std::vector<const Nest*>& nests, int64_t image, const std::vector<Interval>& rows,
                    const std::vector<Interval>& cols, Interval middle) {
  Iteration result;
  result.cols = cols;
  result.tiles.reserve(nests.size());
  result.kept.reserve(nests.size());
  for (size_t s = 0; s < nests.size(); ++s) {
    const Nest& nest = *nests[s];
    Tile tile;
    tile.begin.value.fill(0);
    tile.count = nest.extent;
    const auto set = [&](Dim dim, const Interval& interval) {
      tile.begin[dim] = interval.begin;
      tile.count[dim] = interval.count;
    };
    set(Dim::kN, {image, 1});
    set(Dim::kOh, rows[s]);
    set(Dim::kOw, schedule::pixels_of(nest, cols[s]));
    const int64_t columns = nest.layout.columns;
    if (middle.count < schedule::middle_blocks(nests)) {
      set(nest.computation != Computation::kDense ? Dim::kG
          : s == 0                                ? Dim::kOc
                                                  : Dim::kIc,
          {middle.begin * columns, middle.count * columns});
    }
    result.tiles.push_back(tile);
    result.kept.push_back(cols[s].count > 0 ? rows[s].kept : 0);
  }
  return result;
}

/// Intervals of at most `size` that cover [0, extent).
std::vector<Interval> intervals(int64_t extent, int64_t size) {
  std::vector<Interval> result;
  for (int64_t begin = 0; begin < extent; begin += size) result.push_back({begin, std::min(size, extent - begin)});
  return result;
}

std::vector<Iteration> iterations(const Chain& chain) {
  const auto& nests = chain.nests;
  const Nest& tail = *nests.back();
  const schedule::ChainTile& size = chain.plan.tile;
  const auto middle = intervals(schedule::middle_blocks(nests), size.blocks);
  std::vector<Iteration> result;
  const auto heights = intervals(tail.extent[Dim::kOh], size.oh), widths = intervals(tail.extent[Dim::kOw], size.ow);
  std::vector<int64_t> made;
  size_t column = 0;
  const auto add = [&](int64_t n, const Interval& oh, const Interval& ow) {
    const auto rows = schedule::chain_intervals(nests, oh, true, size.keeps_rows ? &made : nullptr);
    const auto cols = schedule::chain_intervals(nests, ow, false);
    TESSERA_INVARIANT(rows && cols, "a chain was planned with a tile that skips positions");
    for (const Interval& blocks : middle) {
      result.push_back(iteration(nests, n, *rows, *cols, blocks));
      result.back().column = column;
    }
  };
  for (int64_t n = 0; n < tail.extent[Dim::kN]; ++n) {
    if (!size.keeps_rows) {
      for (const Interval& oh : heights) {
        for (const Interval& ow : widths) add(n, oh, ow);
      }
      continue;
    }
    for (const Interval& ow : widths) {
      made.assign(nests.size(), 0);
      for (const Interval& oh : heights) add(n, oh, ow);
      ++column;
    }
  }
  return result;
}

}  // namespace

std::vector<bool> feeds_next(const Graph& graph) {
  std::vector<int> uses(graph.tensors.size(), 0);
  for (const Operation& operation : graph.operations) {
    for (const TensorId id : uses_of(operation).read) ++uses[static_cast<size_t>(id)];
  }
  for (const TensorId id : graph.outputs) ++uses[static_cast<size_t>(id)];
  for (const Tensor& tensor : graph.tensors) {
    if (tensor.view_of != kNoTensor) ++uses[static_cast<size_t>(tensor.view_of)];
    if (tensor.reshape_of != kNoTensor) ++uses[static_cast<size_t>(tensor.reshape_of)];
  }
  std::vector<bool> result(graph.operations.size(), false);
  for (size_t i = 0; i + 1 < graph.operations.size(); ++i) {
    const TensorId id = uses_of(graph.operations[i]).written;
    const Tensor& tensor = graph.tensors[static_cast<size_t>(id)];
    const TensorId input = std::visit([](const auto& op) { return op.input; }, graph.operations[i + 1].what);
    // A tensor that two operations write in turn has a second writer, which only views of it can be.
    const auto apart = [](const Operation& operation) {
      return std::holds_alternative<Transposition>(operation.what) || std::holds_alternative<Kernel>(operation.what);
    };
    const bool allowed =
        graph.operations[i].feeds_next.value_or(true) && !apart(graph.operations[i]) && !apart(graph.operations[i + 1]);
    result[i] = allowed && input == id && uses[static_cast<size_t>(id)] == 1 && tensor.view_of == kNoTensor &&
                tensor.reshape_of == kNoTensor;
  }
  return result;
}

namespace {

/// Whether windows of three by three with a stride of 2 enter two rows at once. Not on chips of several cores: what
/// such windows make worth while moves more bytes, and the search prices a core's bytes without the other cores.
bool takes_row_pairs(const Nest& nest, const isa::MachineConfig& config) {
  constexpr int64_t kTaps = isa::timing::gemm::kPairColumns;
  return config.raster_pairs > 1 && config.cores == 1 && nest.computation == Computation::kDepthwise &&
         nest.stride_h == 2 && nest.stride_w == 2 && nest.dilation_h == 1 && nest.dilation_w == 1 &&
         nest.extent[Dim::kKh] == kTaps && nest.extent[Dim::kKw] == kTaps && nest.tap_h == kTaps && nest.tap_w == kTaps;
}

std::vector<std::vector<Task>> chain_tasks(const Graph& graph, size_t first, size_t count,
                                           const std::vector<Placement>& placements, const isa::MachineConfig& config,
                                           const Options& options) {
  Options apart = options;
  apart.collapse_pixels = false;
  // Between the links tensors have no place in DRAM, but nests ask how their pixels follow each other.
  std::vector<Placement> places = placements;
  for (size_t i = first; i + 1 < first + count; ++i) {
    const auto id = static_cast<size_t>(uses_of(graph.operations[i]).written);
    places[id] = dense_placement(graph.tensors[id], 0);
  }
  std::vector<std::vector<Task>> result;
  for (size_t i = first; i < first + count; ++i) {
    result.push_back(make_tasks(graph, i, places, config, apart));
    for (Task& task : result.back()) {
      for (Nest& nest : task.alternatives) {
        nest.columns_inside = nest.layout.columns > 1;  // the slots of the next link are those of single columns
        if (i == first) continue;
        nest.row_pairs = takes_row_pairs(nest, config);
        // The vector unit reads what it wrote in OUT, where no other engine is in its way; the matrix engine reads INP.
        if (schedule::reads_by_alu(nest.computation)) nest.input_space = isa::Space::kOut;
      }
    }
  }
  return result;
}

}  // namespace

void take_tasks(Chain& chain, std::vector<Task> tasks) {
  for (size_t s = 0; s < chain.size(); ++s) {
    const schedule::InputLayout layout = chain.nests[s]->layout;
    const bool row_pairs = chain.nests[s]->row_pairs;  // what the plan has room for
    chain.tasks[s] = std::move(tasks[s]);
    for (Nest& nest : chain.tasks[s].alternatives) nest.row_pairs = row_pairs;
    chain.nests[s] = nest_of(chain.tasks[s], layout);
    TESSERA_INVARIANT(chain.nests[s] != nullptr, "a layout has gone with the places of tensors");
  }
}

void place_chain(Chain& chain, const Graph& graph, const std::vector<Placement>& placements,
                 const isa::MachineConfig& config, const Options& options) {
  std::vector<Task> tasks;
  for (auto& of : chain_tasks(graph, chain.first, chain.size(), placements, config, options))
    tasks.push_back(std::move(of.front()));
  take_tasks(chain, std::move(tasks));
}

std::optional<Chain> make_chain(const Graph& graph, size_t first, size_t count,
                                const std::vector<Placement>& placements, const isa::MachineConfig& config,
                                const Options& options, std::string* reason) {
  const auto refuse = [&](std::string why) {
    if (reason != nullptr) *reason = std::move(why);
    return std::nullopt;
  };
  Chain chain;
  chain.first = first;
  for (auto& tasks : chain_tasks(graph, first, count, placements, config, options)) {
    if (tasks.size() != 1) return refuse("'" + graph.operations[first + chain.size()].name + "' is several tasks");
    chain.tasks.push_back(std::move(tasks.front()));
  }
  if (!options.products_between && schedule::product_between(nests_of(chain, chain.tasks[0].alternatives.front())))
    return refuse("a product stands between others");
  int tables = 0, wide = 0;
  for (const Task& task : chain.tasks) {
    tables += (task.stage->table ? 1 : 0) + (task.stage->second_table ? 1 : 0);
    if (task.rows != nullptr && task.rows->kind == RowForm::Kind::kSoftmax) wide += 2;
  }
  tables += wide * rows::kRowTables;
  if (tables > config.table_count || wide > config.table_count / rows::kRowTables)
    return refuse("its stages need " + std::to_string(tables) + " tables at once, the machine has " +
                  std::to_string(config.table_count));
  return chain;
}

std::vector<const Nest*> nests_of(const Chain& chain, const Nest& head) {
  std::vector<const Nest*> nests{&head};
  for (size_t s = 1; s < chain.size(); ++s) nests.push_back(&chain.tasks[s].alternatives.front());
  return nests;
}

namespace {

/// The nests of a chain at work: where each one's input stands, and what of the slots is padded.
class ChainLowerer {
 public:
  ChainLowerer(const Chain& chain, Emitter& emitter, std::vector<LayerInfo>& infos)
      : chain_(chain), emitter_(emitter), all_(iterations(chain)), frames_(chain.size()) {
    for (size_t s = 0; s < chain.size(); ++s) {
      const size_t operation = chain.first + s;
      nests_.push_back(std::make_unique<NestLowering>(chain.tasks[s], *chain.nests[s], chain.plan.schedules[s], emitter,
                                                      infos[operation], static_cast<uint32_t>(operation),
                                                      s == 0 && chain.plan.tile.whole_input));
      source_.emplace_back(all_.size(), 0);
    }
  }

  void run() {
    place();
    const size_t links = chain_.size();
    // A walk over rows takes the vector unit long. Sums that it will read in a later step wait behind it, not it behind
    // them, whose products may still be under way.
    const auto rows =
        std::ranges::find_if(chain_.nests, [](const Nest* n) { return n->computation == Computation::kRows; });
    if (rows != chain_.nests.end() && std::ranges::all_of(chain_.plan.kept, [](int64_t n) { return n == 0; }))
      held_ = static_cast<size_t>(rows - chain_.nests.begin());
    for (size_t step = 0; step < all_.size() + links - 1; ++step) {
      emitter_.begin_step();
      for (size_t s = 0; s < links; ++s) {
        if (step >= s && step - s < all_.size()) link(s, step - s);
      }
      for (size_t s = 0; s < held_; ++s) nests_[s]->finish_held();
    }
  }

 private:
  void place() {
    std::map<isa::Space, int64_t> total, cursor;
    for (const auto& nest : nests_) {
      for (const auto& [space, entries] : nest->demand()) total[space] += entries;
    }
    for (const int64_t entries : chain_.plan.kept) total[isa::Space::kOut] += entries;
    for (const auto& [space, entries] : total) {
      if (entries > 0) cursor[space] = emitter_.reserve(space, entries);
    }
    for (auto& nest : nests_) nest->place(cursor);
    for (const int64_t entries : chain_.plan.kept) {
      kept_.push_back(cursor[isa::Space::kOut]);
      cursor[isa::Space::kOut] += entries;
    }
    emitter_.release_tables();
    for (const bool wide : {true, false}) {  // single tables go where there is room between the others
      for (size_t s = 0; s < nests_.size(); ++s) {
        if (wide == (chain_.tasks[s].rows != nullptr)) nests_[s]->load_layer_constants();
      }
    }
  }

  /// The s-th nest's work of iteration q, whose result goes to DRAM or into a slot of the next nest.
  void link(size_t s, size_t q) {
    const Tile& tile = all_[q].tiles[s];
    const std::optional<int64_t> from = s > 0 ? std::optional(source_[s][q]) : std::nullopt;
    if (s + 1 == chain_.size()) {
      nests_[s]->lower_tile(tile, from);
      return;
    }
    const Tile& next = all_[q].tiles[s + 1];
    if (next.count[Dim::kOh] == 0 || next.count[Dim::kOw] == 0) return;  // nobody reads it
    NestLowering& consumer = *nests_[s + 1];
    const Span rows = consumer.rows_of(next), cols = consumer.cols_of(next);
    const int64_t slot = consumer.take_input(next), blocks = consumer.input_blocks(next);
    source_[s + 1][q] = slot;
    const bool empty = tile.count[Dim::kOh] == 0 || tile.count[Dim::kOw] == 0;
    const int64_t kept = all_[q].kept[s];
    Frame frame{rows.count, cols.count, blocks, rows.count, 0, 0, 0};
    if (!empty || kept > 0) {
      frame.top = tile.begin[Dim::kOh] - kept - rows.begin;
      frame.left = all_[q].cols[s].begin - cols.begin;
      frame.inner_rows = kept + tile.count[Dim::kOh];
      frame.inner_cols = all_[q].cols[s].count;
    }
    if (Frame& known = frames_[s + 1][slot]; known != frame) {
      pad(s, slot, frame);
      known = frame;
    }
    // What other tiles have computed, with the padding beside it.
    const Sink top = sink(s, slot, frame, frame.top, 0);
    const int64_t row = row_entries(s, frame), aside = kept_[s] + place_of_kept(s, q, frame);
    nests_[s]->move(isa::AluSpace::kOut, aside, top.space, top.address, kept * row);
    if (!empty) {
      Sink rest = sink(s, slot, frame, frame.top + kept, frame.left);
      rest.first_column = all_[q].cols[s].begin - tile.begin[Dim::kOw] * nests_[s]->nest().layout.columns;
      rest.columns = frame.inner_cols;
      nests_[s]->lower_tile(tile, from, rest, s < held_);
    }
    // What the next tile that reads any of it wants.
    const int64_t end = tile.begin[Dim::kOh] + tile.count[Dim::kOh];
    if (const Iteration* later = next_reader(s, q)) {
      const int64_t wanted = later->kept[s], first = end - wanted - (tile.begin[Dim::kOh] - kept);
      TESSERA_INVARIANT(first >= 0, "rows that are kept stand in the slot of an earlier tile");
      nests_[s]->move(top.space, top.address + first * row, isa::AluSpace::kOut, aside, wanted * row);
    }
  }

  /// Where the rows that iteration q keeps of its block begin among all that are kept between nests s and s + 1.
  int64_t place_of_kept(size_t s, size_t q, const Frame& frame) const {
    const Tile& tile = all_[q].tiles[s + 1];
    const Dim dim = chain_.nests[s + 1]->computation == Computation::kDense ? Dim::kIc : Dim::kG;
    const Nest& next = *chain_.nests[s + 1];
    if (!next.row_pairs) return tile.begin[dim] * chain_.plan.rows->most_kept[s] * frame.cols;
    const int64_t blocks = chain_.plan.chunks == 1 ? schedule::blocks_in(next) : chain_.plan.tile.blocks;
    return tile.begin[dim] / blocks * chain_.plan.rows->most_kept[s] *
           schedule::planar_strides(next, frame.cols, blocks).row;
  }

  /// The next iteration of the same column and block whose nest s + 1 has work.
  const Iteration* next_reader(size_t s, size_t q) const {
    if (chain_.plan.kept[s] == 0) return nullptr;
    const auto chunks = static_cast<size_t>(chain_.plan.chunks);
    for (size_t later = q + chunks; later < all_.size() && all_[later].column == all_[q].column; later += chunks) {
      if (all_[later].tiles[s + 1].count[Dim::kOh] > 0) return &all_[later];
    }
    return nullptr;
  }

  /// Entries of a row in the slot of the nest behind nest s.
  int64_t row_entries(size_t s, const Frame& frame) const {
    return schedule::planar_strides(*chain_.nests[s + 1], frame.cols, frame.blocks).row;
  }

  /// A place in the slot of the nest behind nest s.
  Sink sink(size_t s, int64_t slot, const Frame& frame, int64_t row, int64_t col) const {
    const int64_t row_entries = this->row_entries(s, frame);
    Sink sink;
    sink.space = nests_[s + 1]->input_scope() == isa::Space::kInp ? isa::AluSpace::kInp : isa::AluSpace::kOut;
    const bool planar = nests_[s + 1]->planar();
    sink.stride = {frame.rows * row_entries, row_entries, planar ? 1 : frame.blocks,
                   planar ? schedule::planar_strides(nests_[s + 1]->nest(), frame.cols, frame.blocks).block : 1};
    sink.address = slot + row * row_entries + col * sink.stride[2];
    return sink;
  }

  /// Fills what lies around the inner rectangle: above, below, left and right of it.
  void pad(size_t s, int64_t slot, const Frame& f) {
    const uint8_t value = nests_[s + 1]->nest().pad_value;
    const auto fill = [&](int64_t row, int64_t col, int64_t rows, int64_t cols) {
      nests_[s]->fill(sink(s, slot, f, row, col), rows, cols, f.blocks, slot, value);
    };
    const int64_t bottom = f.top + f.inner_rows, right = f.left + f.inner_cols;
    fill(0, 0, f.top, f.cols);
    if (f.inner_rows == 0) return;
    fill(bottom, 0, f.rows - bottom, f.cols);
    fill(f.top, 0, f.inner_rows, f.left);
    fill(f.top, right, f.inner_rows, f.cols - right);
  }

  const Chain& chain_;
  Emitter& emitter_;
  const std::vector<Iteration> all_;
  std::vector<std::unique_ptr<NestLowering>> nests_;
  std::vector<std::vector<int64_t>> source_;      // by nest and iteration: the entry of its input
  std::vector<std::map<int64_t, Frame>> frames_;  // by nest and slot of its input
  std::vector<int64_t> kept_;                     // by nest: the first entry of OUT with kept rows of its output
  size_t held_ = 0;                               // nests whose stages come last in a step
};

}  // namespace

void lower_chain(const Chain& chain, Emitter& emitter, std::vector<LayerInfo>& infos) {
  ChainLowerer(chain, emitter, infos).run();
}

std::vector<Task> tasks_of(const Graph& graph, const Program& program, const isa::MachineConfig& config,
                           const Options& options) {
  std::vector<Task> result;
  const auto append = [&](std::vector<Task>&& tasks) {
    std::move(tasks.begin(), tasks.end(), std::back_inserter(result));
  };
  for (size_t i = 0; i < graph.operations.size();) {
    const auto* chain = std::get_if<schedule::ChainSchedule>(&program.layers[i].schedule);
    if (chain == nullptr) {
      append(make_tasks(graph, i++, program.placements, config, options));
      continue;
    }
    for (auto& tasks : chain_tasks(graph, i, chain->links.size(), program.placements, config, options))
      append(std::move(tasks));
    i += chain->links.size();
  }
  return result;
}

schedule::ChainSchedule schedule_of(const Chain& chain, const Graph& graph) {
  schedule::ChainSchedule schedule;
  for (size_t s = 0; s < chain.size(); ++s) schedule.links.push_back(graph.operations[chain.first + s].name);
  schedule.tile = chain.plan.tile;
  if (chain.tasks[0].alternatives.size() > 1) schedule.input_layout = chain.nests[0]->layout;
  return schedule;
}

}  // namespace tessera::npu
