// SPDX-License-Identifier: Apache-2.0
// Sums over the operations of what every nest of theirs needs for the results that somebody reads, and the cheapest cut
// into chains.
#include "compiler/npu/planning/bound.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "compiler/npu/graph/plan.h"
#include "compiler/npu/input/check.h"
#include "compiler/npu/input/needs.h"
#include "compiler/npu/lowering/chain.h"
#include "compiler/npu/planning/planner.h"
#include "compiler/npu/planning/trial.h"
#include "compiler/npu/tasks/task.h"
#include "compiler/schedule/bound.h"

namespace tessera::npu {

namespace {

/// The replay may tell up to a tenth less of the bus where reads and writes share it all the time (predict.cc).
constexpr int64_t kTold = 9, kOf = 10;

using schedule::Dim;
using schedule::LeastWork;
using schedule::Lines;
using schedule::Nest;

LeastWork lesser(const LeastWork& a, const LeastWork& b) {
  return {std::min(a.gemm, b.gemm),           std::min(a.alu, b.alu),     std::min(a.macs, b.macs),
          std::min(a.constants, b.constants), std::min(a.input, b.input), std::min(a.output, b.output)};
}

LeastWork least_of(const Task& task, const std::function<LeastWork(const Nest&)>& work) {
  LeastWork least = work(task.alternatives.front());
  for (const Nest& nest : task.alternatives) least = lesser(least, work(nest));
  return least;
}

/// The same lines as a layout counts them whose pixels hold neighbouring columns.
Lines joined(const Lines& lines, const Nest& nest) {
  Lines all{lines.rows, std::vector<bool>(static_cast<size_t>(nest.extent[Dim::kOw]), false)};
  const auto columns = static_cast<size_t>(nest.layout.columns);
  for (size_t i = 0; i < lines.cols.size() && i / columns < all.cols.size(); ++i)
    all.cols[i / columns] = all.cols[i / columns] || lines.cols[i];
  return all;
}

/// Of those results of an operation at least; nothing where its nests do not tell.
LeastWork least_of_part(const std::vector<Task>& tasks, const Lines& results, const schedule::Machine& machine) {
  if (tasks.size() != 1) return {};
  return least_of(tasks.front(), [&](const Nest& nest) {
    const Lines lines = joined(results, nest);
    return static_cast<int64_t>(lines.rows.size()) == nest.extent[Dim::kOh] ? schedule::least_work(nest, machine, lines)
                                                                            : LeastWork{};
  });
}

/// A first layer may become one of packed pixels, whose blocks are full at best.
void allow_folding(const Convolution& op, const Graph& graph, const isa::MachineConfig& config, int64_t pixels,
                   LeastWork& work) {
  if (op.groups != 1 || std::find(graph.inputs.begin(), graph.inputs.end(), op.input) == graph.inputs.end()) return;
  const Tensor& output = graph.tensors[static_cast<size_t>(op.output)];
  const int64_t results = output.n * pixels * output.c;
  const int64_t macs = results * graph.tensors[static_cast<size_t>(op.input)].c * op.kernel_h * op.kernel_w;
  work.gemm = std::min(work.gemm, macs / config.peak_macs());
  work.macs = std::min(work.macs, macs);
  work.alu = std::min(work.alu, results / (int64_t{config.batch} * config.block_out));
  work.constants = 0;  // the input is no less with a border, and packed windows may have fewer blocks
}

/// Bytes of a tensor that may stay on the chip from one operation to another (npu/forward.h): what the largest INP and
/// OUT of a machine of this array hold.
int64_t most_kept(const isa::MachineConfig& config, const Options& options) {
  constexpr int64_t kMostEntries = int64_t{1} << 14;
  if (options.forward == Forward::kNever || config.batch != 1 || config.block_in != config.block_out) return 0;
  return kMostEntries * (config.inp_entry_bytes() + config.out_entry_bytes());
}

/// Bytes of what each operation reads that another operation may have left on the chip: nothing of a graph's input that
/// is read for the first time.
std::vector<int64_t> left_on_chip(const Graph& graph, int64_t kept) {
  std::vector<int64_t> spared(graph.operations.size(), 0);
  std::vector<bool> fresh(graph.tensors.size(), false);
  for (const TensorId input : graph.inputs) fresh[static_cast<size_t>(root_of(graph, input))] = true;
  for (size_t i = 0; i < spared.size(); ++i) {
    for (const TensorId read : uses_of(graph.operations[i]).read) {
      const auto root = static_cast<size_t>(root_of(graph, read));
      if (!fresh[root]) spared[i] += kept;
      fresh[root] = false;
    }
  }
  return spared;
}

/// Tensors that have to be stored whatever stays on the chip.
std::vector<bool> stored(const Graph& graph) {
  std::vector<bool> all(graph.tensors.size(), false);
  for (const TensorId output : graph.outputs) all[static_cast<size_t>(root_of(graph, output))] = true;
  return all;
}

std::vector<Task> tasks_of(const Graph& graph, size_t operation, const std::vector<Placement>& placements,
                           const isa::MachineConfig& config, const Options& options) {
  return guarded(graph, config, operation, [&] { return make_tasks(graph, operation, placements, config, options); });
}

/// As links of chains have them, pixels are not joined into rows.
Options pixels_apart(Options options) {
  options.collapse_pixels = false;
  return options;
}

std::vector<Needed> needed_in(const Graph& graph, const std::vector<Placement>& placements,
                              const isa::MachineConfig& config, const Options& options, bool chains, bool forwards) {
  std::vector<std::vector<Task>> tasks;
  for (size_t i = 0; i < graph.operations.size(); ++i)
    tasks.push_back(tasks_of(graph, i, placements, config, pixels_apart(options)));
  return needed_results(graph, tasks, chains, forwards);
}

LeastWork least_of_operation(const Graph& graph, size_t i, const std::vector<Placement>& placements,
                             const isa::MachineConfig& config, const Options& options, const Needed& needed) {
  const schedule::Machine machine = machine_of(config, options);
  LeastWork work;
  for (const Task& task : tasks_of(graph, i, placements, config, options)) {
    const LeastWork nest = least_of(task, [&](const Nest& of) { return schedule::least_work(of, machine); });
    work = {work.gemm + nest.gemm,           work.alu + nest.alu,     work.macs + nest.macs,
            work.constants + nest.constants, work.input + nest.input, work.output + nest.output};
  }
  if (!needed.all) {
    const auto tasks = tasks_of(graph, i, placements, config, pixels_apart(options));
    work = lesser(work, least_of_part(tasks, needed.computed, machine));
  }
  if (const auto* op = std::get_if<Convolution>(&graph.operations[i].what))
    allow_folding(*op, graph, config, pixels(needed.computed), work);
  return work;
}

}  // namespace

int64_t biased_entries(const Task& task, const schedule::Nest& nest) {
  if (!nest.convert || (task.rows == nullptr && task.stage == nullptr)) return 0;
  const std::vector<int32_t>& bias = task.rows != nullptr ? task.rows->addend : task.stage->bias;
  const auto biased = [&](int64_t channel) {
    return !bias.empty() && bias[bias.size() == 1 ? 0 : static_cast<size_t>(channel)] != 0;
  };
  if (!nest.per_channel) return biased(0) ? 1 : 0;
  const schedule::ChannelMap& map = nest.out_channels;
  int64_t entries = 0;
  for (int64_t chunk = 0; chunk < map.total; chunk += map.chunk) {
    const int64_t end = std::min(chunk + map.chunk, map.total);
    for (int64_t block = chunk; block < end; block += map.lanes) {
      bool any = false;
      for (int64_t c = block; c < std::min(block + map.lanes, end); ++c)
        any = any || biased(schedule::column_channel(nest, c).channel);
      entries += any ? 1 : 0;
    }
  }
  return entries;
}

GraphBound graph_bound(const Graph& graph, const isa::MachineConfig& config, const Options& options) {
  isa::validate(config);
  check_graph(graph);
  const schedule::Machine machine = machine_of(config, options);
  const std::vector<Placement> placements = places_apart(graph, options);
  const size_t count = graph.operations.size();
  const bool chains = options.virtual_threads;
  const int64_t kept = most_kept(config, options);
  const std::vector<Needed> needed = needed_in(graph, placements, config, options, chains, kept > 0);
  std::vector<LeastWork> works(count);
  LeastWork all;
  for (size_t i = 0; i < count; ++i) {
    LeastWork& work = works[i];
    work = least_of_operation(graph, i, placements, config, options, needed[i]);
    all.gemm += work.gemm;
    all.alu += work.alu;
    all.macs += work.macs;
    all.constants += work.constants;
  }
  // The least bytes of tensors for all operations up to one at which a unit ends.
  const std::vector<bool> feeds = feeds_next(graph);
  const std::vector<int64_t> spared = left_on_chip(graph, kept);
  const std::vector<bool> results = stored(graph);
  const auto output_of = [&](size_t i) {
    const TensorId id = uses_of(graph.operations[i]).written;
    if (results[static_cast<size_t>(root_of(graph, id))]) return works[i].output;
    const Tensor& tensor = graph.tensors[static_cast<size_t>(id)];
    const int64_t read = tensor.n * pixels(needed[i].read) * tensor.c * tensor.element_bytes;
    return kept > 0 ? std::max<int64_t>(0, std::min(works[i].output, read) - kept) : works[i].output;
  };
  std::vector<int64_t> moved(count + 1, std::numeric_limits<int64_t>::max());
  moved[0] = 0;
  for (size_t end = 1; end <= count; ++end) {
    for (size_t links = 1; links <= std::min(end, kMostLinks); ++links) {
      const size_t first = end - links;
      if (links > 1 && !(chains && feeds[first])) break;
      moved[end] = std::min(
          moved[end], moved[first] + std::max<int64_t>(0, works[first].input - spared[first]) + output_of(end - 1));
    }
  }
  GraphBound bound;
  bound.bytes = all.constants + moved[count];
  bound.macs = all.macs;
  if (count == 0) return bound;
  // The first engine waits for its instruction and then for an operand, if it has one from DRAM, and what is stored
  // last is answered.
  const int64_t latency = machine.dram_latency_cycles;
  const int64_t fetched = all.constants > 0 || works.front().input > 0 ? latency : 0;
  const int64_t bus = bound.bytes / machine.bytes_per_cycle() * kTold / kOf;
  bound.cycles = latency + std::max(fetched + std::max(all.gemm, all.alu), bus) + latency;
  return bound;
}

}  // namespace tessera::npu
