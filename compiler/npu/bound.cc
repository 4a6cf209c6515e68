// SPDX-License-Identifier: Apache-2.0
// Sums over the operations of what every nest of theirs needs, and the cheapest cut into chains.
#include "compiler/npu/bound.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "compiler/npu/chain.h"
#include "compiler/npu/check.h"
#include "compiler/npu/plan.h"
#include "compiler/npu/planner.h"
#include "compiler/npu/task.h"
#include "compiler/npu/trial.h"
#include "compiler/schedule/bound.h"

namespace tessera::npu {

namespace {

/// The replay may tell up to a tenth less of the bus where reads and writes share it all the time (predict.cc).
constexpr int64_t kTold = 9, kOf = 10;

schedule::LeastWork least_of(const Task& task, const schedule::Machine& machine) {
  schedule::LeastWork least = schedule::least_work(task.alternatives.front(), machine);
  for (const schedule::Nest& nest : task.alternatives) {
    const schedule::LeastWork other = schedule::least_work(nest, machine);
    least = {std::min(least.gemm, other.gemm),   std::min(least.alu, other.alu),
             std::min(least.macs, other.macs),   std::min(least.constants, other.constants),
             std::min(least.input, other.input), std::min(least.output, other.output)};
  }
  return least;
}

/// A first layer may become one of packed pixels, whose blocks are full at best.
void allow_folding(const Convolution& op, const Graph& graph, const isa::MachineConfig& config,
                   schedule::LeastWork& work) {
  if (op.groups != 1 || std::find(graph.inputs.begin(), graph.inputs.end(), op.input) == graph.inputs.end()) return;
  const int64_t results = graph.tensors[static_cast<size_t>(op.output)].elements();
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

}  // namespace

GraphBound graph_bound(const Graph& graph, const isa::MachineConfig& config, const Options& options) {
  isa::validate(config);
  check_graph(graph);
  const schedule::Machine machine = machine_of(config, options);
  const std::vector<Placement> placements = places_apart(graph, options);
  const size_t count = graph.operations.size();
  std::vector<schedule::LeastWork> works(count);
  schedule::LeastWork all;
  for (size_t i = 0; i < count; ++i) {
    schedule::LeastWork& work = works[i];
    for (const Task& task :
         guarded(graph, config, i, [&] { return make_tasks(graph, i, placements, config, options); })) {
      const schedule::LeastWork nest = least_of(task, machine);
      work = {work.gemm + nest.gemm,           work.alu + nest.alu,     work.macs + nest.macs,
              work.constants + nest.constants, work.input + nest.input, work.output + nest.output};
    }
    if (const auto* op = std::get_if<Convolution>(&graph.operations[i].what)) allow_folding(*op, graph, config, work);
    all.gemm += work.gemm;
    all.alu += work.alu;
    all.macs += work.macs;
    all.constants += work.constants;
  }
  // The least bytes of tensors for all operations up to one at which a unit ends.
  const std::vector<bool> feeds = feeds_next(graph);
  const bool chains = options.virtual_threads;
  const int64_t kept = most_kept(config, options);
  const std::vector<int64_t> spared = left_on_chip(graph, kept);
  const std::vector<bool> results = stored(graph);
  const auto output_of = [&](size_t i) {
    const auto root = static_cast<size_t>(root_of(graph, uses_of(graph.operations[i]).written));
    return std::max<int64_t>(0, works[i].output - (results[root] ? 0 : kept));
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
