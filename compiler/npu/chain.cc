// SPDX-License-Identifier: Apache-2.0
// Links of chains and their interleaved lowering: in step t the first nest works on iteration t, the second on t - 1,
// and so on, so that the matrix engine has another nest's product to do while the vector unit turns sums into the next
// nest's input.
#include "compiler/npu/chain.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "compiler/npu/nest_lowering.h"
#include "compiler/npu/plan.h"

namespace tessera::npu {

using schedule::Dim;
using schedule::Interval;
using schedule::Intrinsic;
using schedule::Nest;
using schedule::Span;

namespace {

/// What of a slot is padding; a slot that was filled for the same shape needs no new padding.
struct Frame {
  int64_t rows = 0, cols = 0, blocks = 0, top = 0, left = 0, inner_rows = 0, inner_cols = 0;
  bool operator==(const Frame&) const = default;
};

struct Iteration {
  std::vector<Tile> tiles;  // one for each nest
};

std::vector<Iteration> iterations(const Chain& chain) {
  const auto& nests = chain.nests;
  const Nest& tail = *nests.back();
  const schedule::ChainTile& size = chain.plan.tile;
  const bool head_dense = nests[0]->intrinsic == Intrinsic::kDense;
  const int64_t middle = head_dense ? nests[0]->extent[Dim::kOc] : nests[0]->extent[Dim::kG];
  std::vector<Iteration> result;
  for (int64_t n = 0; n < tail.extent[Dim::kN]; ++n) {
    for (int64_t oh = 0; oh < tail.extent[Dim::kOh]; oh += size.oh) {
      const auto rows = schedule::chain_intervals(nests, {oh, std::min(size.oh, tail.extent[Dim::kOh] - oh)}, true);
      for (int64_t ow = 0; ow < tail.extent[Dim::kOw]; ow += size.ow) {
        const auto cols = schedule::chain_intervals(nests, {ow, std::min(size.ow, tail.extent[Dim::kOw] - ow)}, false);
        TESSERA_INVARIANT(rows && cols, "a chain was planned with a tile that skips positions");
        for (int64_t block = 0; block < middle; block += size.blocks) {
          const int64_t blocks = std::min(size.blocks, middle - block);
          Iteration iteration;
          for (size_t s = 0; s < nests.size(); ++s) {
            const Nest& nest = *nests[s];
            Tile tile;
            tile.begin.value.fill(0);
            tile.count = nest.extent;
            const auto set = [&](Dim dim, int64_t begin, int64_t count) {
              tile.begin[dim] = begin, tile.count[dim] = count;
            };
            set(Dim::kN, n, 1);
            set(Dim::kOh, (*rows)[s].begin, (*rows)[s].count);
            set(Dim::kOw, (*cols)[s].begin, (*cols)[s].count);
            set(nest.intrinsic != Intrinsic::kDense ? Dim::kG : s == 0 ? Dim::kOc : Dim::kIc, block, blocks);
            iteration.tiles.push_back(tile);
          }
          result.push_back(std::move(iteration));
        }
      }
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
    result[i] = input == id && uses[static_cast<size_t>(id)] == 1 && tensor.view_of == kNoTensor &&
                tensor.reshape_of == kNoTensor;
  }
  return result;
}

namespace {

std::vector<std::vector<Task>> chain_tasks(const Graph& graph, size_t first, size_t count,
                                           const std::vector<Placement>& placements, const isa::MachineConfig& config,
                                           const Options& options) {
  Options apart = options;
  apart.collapse_pixels = false;
  std::vector<std::vector<Task>> result;
  for (size_t i = first; i < first + count; ++i) {
    result.push_back(make_tasks(graph, i, placements, config, apart));
    if (i == first) continue;
    for (Task& task : result.back()) {
      for (Nest& nest : task.alternatives) {
        // The vector unit reads what it wrote in OUT, where no other engine is in its way; the matrix engine reads INP.
        if (nest.intrinsic == Intrinsic::kReduce || nest.intrinsic == Intrinsic::kMap)
          nest.input_space = isa::Space::kOut;
      }
    }
  }
  return result;
}

}  // namespace

void place_chain(Chain& chain, const Graph& graph, const std::vector<Placement>& placements,
                 const isa::MachineConfig& config, const Options& options) {
  auto tasks = chain_tasks(graph, chain.first, chain.size(), placements, config, options);
  for (size_t s = 0; s < chain.size(); ++s) {
    const schedule::InputLayout layout = chain.nests[s]->layout;
    chain.tasks[s] = std::move(tasks[s].front());
    chain.nests[s] = nest_of(chain.tasks[s], layout);
    TESSERA_INVARIANT(chain.nests[s] != nullptr, "a layout has gone with the places of tensors");
  }
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
  int tables = 0;
  for (const Task& task : chain.tasks) tables += (task.stage->table ? 1 : 0) + (task.stage->second_table ? 1 : 0);
  if (tables > config.table_count)
    return refuse("its stages need " + std::to_string(tables) + " tables at once, the machine has " +
                  std::to_string(config.table_count));
  return chain;
}

std::vector<const Nest*> nests_of(const Chain& chain, const Nest& head) {
  std::vector<const Nest*> nests{&head};
  for (size_t s = 1; s < chain.size(); ++s) nests.push_back(&chain.tasks[s].alternatives.front());
  return nests;
}

void lower_chain(const Chain& chain, Emitter& emitter, std::vector<LayerInfo>& infos) {
  const size_t links = chain.size();
  std::vector<std::unique_ptr<NestLowering>> nests;
  std::map<isa::Space, int64_t> total, cursor;
  for (size_t s = 0; s < links; ++s) {
    nests.push_back(std::make_unique<NestLowering>(chain.tasks[s], *chain.nests[s], chain.plan.schedules[s], emitter,
                                                   infos[chain.first + s], static_cast<uint32_t>(chain.first + s)));
    for (const auto& [space, entries] : nests.back()->demand()) total[space] += entries;
  }
  for (const auto& [space, entries] : total) {
    if (entries > 0) cursor[space] = emitter.reserve(space, entries);
  }
  for (auto& nest : nests) nest->place(cursor);
  emitter.release_tables();
  for (auto& nest : nests) nest->load_layer_constants();

  const std::vector<Iteration> all = iterations(chain);
  std::vector<std::vector<int64_t>> source(links, std::vector<int64_t>(all.size(), 0));
  std::map<int64_t, Frame> frames[kMostLinks];  // by slot, of each nest's input
  const auto run = [&](size_t s, size_t q) {
    const Tile& tile = all[q].tiles[s];
    const std::optional<int64_t> from = s > 0 ? std::optional(source[s][q]) : std::nullopt;
    if (s + 1 == links) {
      nests[s]->lower_tile(tile, from);
      return;
    }
    const Tile& next = all[q].tiles[s + 1];
    const bool nobody = next.count[Dim::kOh] == 0 || next.count[Dim::kOw] == 0;
    if (nobody) return;
    NestLowering& consumer = *nests[s + 1];
    const Span rows = consumer.rows_of(next), cols = consumer.cols_of(next);
    const int64_t slot = consumer.take_input(next), blocks = consumer.input_blocks(next);
    source[s + 1][q] = slot;
    Sink sink;
    sink.space = consumer.input_scope() == isa::Space::kInp ? isa::AluSpace::kInp : isa::AluSpace::kOut;
    sink.stride = {rows.count * cols.count * blocks, cols.count * blocks, blocks, 1};
    const auto at = [&](int64_t row, int64_t col) {
      Sink here = sink;
      here.address = slot + (row * cols.count + col) * blocks;
      return here;
    };
    const bool empty = tile.count[Dim::kOh] == 0 || tile.count[Dim::kOw] == 0;
    const int64_t height = empty ? 0 : tile.count[Dim::kOh], width = empty ? 0 : tile.count[Dim::kOw];
    const int64_t top = empty ? rows.count : tile.begin[Dim::kOh] - rows.begin,
                  left = empty ? 0 : tile.begin[Dim::kOw] - cols.begin;
    const Frame frame{rows.count, cols.count, blocks, top, left, height, width};
    if (Frame& known = frames[s + 1][slot]; !(known == frame)) {
      const uint8_t pad = consumer.nest().pad_value;
      nests[s]->fill(at(0, 0), top, cols.count, blocks, slot, pad);
      if (!empty) {
        nests[s]->fill(at(top + height, 0), rows.count - top - height, cols.count, blocks, slot, pad);
        nests[s]->fill(at(top, 0), height, left, blocks, slot, pad);
        nests[s]->fill(at(top, left + width), height, cols.count - left - width, blocks, slot, pad);
      }
      known = frame;
    }
    if (!empty) nests[s]->lower_tile(tile, from, at(top, left));
  };
  for (size_t step = 0; step < all.size() + links - 1; ++step) {
    emitter.begin_step();
    for (size_t s = 0; s < links; ++s) {
      if (step >= s && step - s < all.size()) run(s, step - s);
    }
  }
}

schedule::ChainSchedule schedule_of(const Chain& chain, const Graph& graph) {
  schedule::ChainSchedule schedule;
  for (size_t s = 0; s < chain.size(); ++s) schedule.links.push_back(graph.operations[chain.first + s].name);
  schedule.tile = chain.plan.tile;
  return schedule;
}

}  // namespace tessera::npu
