// SPDX-License-Identifier: Apache-2.0
// What parts take, by counting, and the choice of divisions. One choice is changed at a time, with its neighbours as
// they are, from several beginnings.
#include <algorithm>
#include <limits>
#include <map>
#include <type_traits>

#include "compiler/npu/chain.h"
#include "compiler/npu/cores.h"
#include "compiler/npu/cores_costs.h"
#include "compiler/npu/plan.h"

namespace tessera::npu {

namespace {

constexpr int64_t kPart = 250;      // cycles that a part takes beside its work: the first loads, the last stores
constexpr int64_t kExchange = 700;  // from the last product of one core to the first of another that awaits it
constexpr int64_t kPairs = 2;       // vectors of depthwise windows a cycle, where the machine takes pairs
constexpr int64_t kRowPasses = 3;   // over the elements of a row
constexpr int kSweeps = 4;

int64_t blocks(int64_t channels, int64_t block) { return (channels + block - 1) / block; }

const Tensor& tensor_of(const Graph& graph, TensorId id) { return graph.tensors[static_cast<size_t>(id)]; }

}  // namespace

CountedCosts::CountedCosts(const isa::MachineConfig& config, const Options& options)
    : config_(config), bus_bytes_(bytes_of_a_core(config, options)) {}

int64_t bytes_of_a_core(const isa::MachineConfig& config, const Options& options) {
  const int64_t all = options.dram_bandwidth_bytes > 0
                          ? std::min<int64_t>(options.dram_bandwidth_bytes, config.memory_bytes())
                          : config.memory_bytes();
  return std::clamp<int64_t>(all / config.cores, 1, config.axi_bytes);
}

int64_t CountedCosts::exchange() const { return kExchange; }

/// What is written and read again, half of it hidden behind work.
int64_t CountedCosts::kept(const Tensor& result, const Box& box) const {
  return box.elements() * result.element_bytes / bus_bytes_ / 3;
}

int64_t CountedCosts::gemm(const Graph& graph, const Operation& operation, const Box& results) const {
  const int64_t pixels = results.extent[kImages] * results.extent[kRows] * results.extent[kColumns];
  const int64_t out = blocks(results.extent[kChannels], config_.block_out);
  if (const auto* op = std::get_if<Convolution>(&operation.what)) {
    const Tensor& input = tensor_of(graph, op->input);
    const int64_t taps = op->kernel_h * op->kernel_w, each = input.c / op->groups;
    if (op->groups == 1) {
      const bool folded = !input.border.empty();
      const int64_t in =
          folded ? op->kernel_h * blocks(each * op->kernel_w, config_.block_in) : taps * blocks(each, config_.block_in);
      return blocks(pixels, config_.batch) * out * in;
    }
    if (each == 1) return blocks(pixels, config_.batch) * out * taps / (config_.raster_pairs != 0 ? kPairs : 1);
    return blocks(pixels, config_.batch) * out * taps * blocks(each, config_.block_in);
  }
  if (const auto* op = std::get_if<Product>(&operation.what))
    return blocks(pixels, config_.batch) * out * blocks(tensor_of(graph, op->input).c, config_.block_in);
  if (std::holds_alternative<Transposition>(operation.what))
    return results.elements() / config_.block_out * blocks(config_.block_in, config_.block_in);
  return 0;
}

int64_t CountedCosts::alu(const Graph& graph, const Operation& operation, const Box& results) const {
  (void)graph;
  const int64_t pixels = results.extent[kImages] * results.extent[kRows] * results.extent[kColumns];
  const int64_t entries = blocks(pixels, config_.batch) * blocks(results.extent[kChannels], config_.block_out);
  int64_t cycles = entries;
  if (const auto* op = std::get_if<Pool>(&operation.what)) cycles += entries * op->kernel_h * op->kernel_w;
  if (std::holds_alternative<Rows>(operation.what))
    cycles = kRowPasses * results.elements() / std::max(config_.row_lanes, 1);
  const bool second = std::visit([](const auto& op) { return op.stage.second.has_value(); }, operation.what);
  if (second) cycles += results.elements() / std::max(config_.second_lanes, 1);
  return cycles;
}

int64_t CountedCosts::bytes(const Graph& graph, const Operation& operation, const Box& results) const {
  int64_t bytes = results.elements() * tensor_of(graph, uses_of(operation).written).element_bytes;
  if (const auto reads = reads_of(graph, operation, results))
    for (const auto& [id, box] : *reads) bytes += box.elements() * tensor_of(graph, id).element_bytes;
  if (const auto* op = std::get_if<Convolution>(&operation.what)) {
    const int64_t all = tensor_of(graph, op->output).c;
    // Lanes behind the last channel of a block are fetched, too.
    const int64_t wide = blocks(results.extent[kChannels], config_.block_out) * config_.block_out;
    bytes += static_cast<int64_t>(op->weights.size()) / all * (op->groups == 1 ? wide : results.extent[kChannels]);
    bytes += 8 * results.extent[kChannels];
  }
  return bytes;
}

int64_t CountedCosts::part(const Graph& graph, const Operation& operation, const Box& results) const {
  const int64_t products = gemm(graph, operation, results), vectors = alu(graph, operation, results);
  const int64_t bus = bytes(graph, operation, results) / bus_bytes_;
  const int64_t most = std::max({products, vectors, bus});
  return kPart + most + (products + vectors + bus - most) / 8;
}

namespace {

/// Who reads and who writes each tensor's allocation, and the choice.
class Choice {
 public:
  Choice(const Graph& graph, const isa::MachineConfig& config, const Options& options)
      : graph_(graph), cores_(static_cast<size_t>(config.cores)), costs_(config, options), feeds_(feeds_next(graph)) {
    std::map<TensorId, size_t> writer;
    for (size_t i = 0; i < graph.operations.size(); ++i) {
      const Operation& operation = graph.operations[i];
      ways_.push_back(divisions_of(graph, operation, cores_, config.block_out));
      const Uses uses = uses_of(operation);
      for (const TensorId id : uses.read) {
        const auto found = writer.find(root_of(graph, id));
        if (found == writer.end()) continue;
        edges_.push_back({found->second, i, id});
        of_.resize(graph.operations.size());
        of_[found->second].push_back(edges_.size() - 1);
        of_[i].push_back(edges_.size() - 1);
      }
      writer[root_of(graph, uses.written)] = i;
    }
    of_.resize(graph.operations.size());
    for (size_t i = 0; i < ways_.size(); ++i)
      for (const Division& way : ways_[i]) alone_[i].push_back(longest(i, way));
  }

  std::vector<Division> run() {
    std::vector<size_t> best;
    int64_t least = std::numeric_limits<int64_t>::max();
    const auto attempt = [&](std::vector<size_t> chosen) {
      for (int sweep = 0; sweep < kSweeps; ++sweep)
        if (!improve(chosen, sweep % 2 == 1)) break;
      const int64_t cycles = total(chosen);
      if (cycles >= least) return;
      least = cycles;
      best = std::move(chosen);
    };
    // Each as it is best alone; then one axis wherever that can be divided.
    for (const std::optional<size_t> axis : {std::optional<size_t>(), std::optional(kRows), std::optional(kColumns),
                                             std::optional(kChannels), std::optional(kImages)}) {
      std::vector<size_t> chosen;
      for (size_t i = 0; i < ways_.size(); ++i) {
        const auto& alone = alone_.at(i);
        auto way = static_cast<size_t>(std::min_element(alone.begin(), alone.end()) - alone.begin());
        for (size_t k = 0; axis && k < ways_[i].size(); ++k)
          if (ways_[i][k].axis == axis) way = k;
        chosen.push_back(way);
      }
      attempt(std::move(chosen));
    }
    std::vector<Division> divisions;
    for (size_t i = 0; i < ways_.size(); ++i) divisions.push_back(ways_[i][best[i]]);
    return divisions;
  }

 private:
  struct Edge {
    size_t from = 0, to = 0;
    TensorId tensor = kNoTensor;
  };

  int64_t longest(size_t i, const Division& way) const {
    int64_t longest = 0;
    for (size_t core = 0; core < cores_; ++core) {
      const Box share = share_of(result(i), way, core);
      if (!share.empty()) longest = std::max(longest, costs_.part(graph_, graph_.operations[i], share));
    }
    return longest;
  }

  const Tensor& result(size_t i) const { return tensor_of(graph_, uses_of(graph_.operations[i]).written); }

  /// Cycles that a result costs its reader beside both operations' own.
  int64_t across(size_t e, const std::vector<size_t>& chosen) {
    const Edge& edge = edges_[e];
    const size_t from = chosen[edge.from], to = chosen[edge.to];
    const auto [known, fresh] = across_.try_emplace({e, from, to}, 0);
    if (fresh) known->second = exchanged(edge, ways_[edge.from][from], ways_[edge.to][to]);
    return known->second;
  }

  int64_t exchanged(const Edge& edge, const Division& from, const Division& to) const {
    const Operation& writer = graph_.operations[edge.from];
    const bool direct = uses_of(writer).written == edge.tensor;
    int64_t made = 0, all = 0, kept = 0;
    bool inside = direct;
    for (size_t core = 0; core < cores_; ++core) {
      const Box share = share_of(result(edge.from), from, core);
      if (!share.empty()) made = std::max(made, costs_.part(graph_, writer, share));
      const Box reader = share_of(result(edge.to), to, core);
      if (!direct || reader.empty()) continue;
      const auto reads = reads_of(graph_, graph_.operations[edge.to], reader);
      Box needed;
      for (const auto& [id, box] : *reads)
        if (id == edge.tensor) needed = hull(needed, box);
      inside = inside && covers(share, needed);
      if (feeds_[edge.from]) kept = std::max(kept, costs_.kept(result(edge.from), needed));
      needed = computable(graph_, writer, hull(share, needed));
      if (!needed.empty()) all = std::max(all, costs_.part(graph_, writer, needed));
    }
    if (!direct) return from.axis == to.axis && from.axis ? costs_.exchange() / 2 : costs_.exchange();
    if (inside) return 0;
    return std::min(costs_.exchange() + kept, all - made);
  }

  int64_t around(size_t i, const std::vector<size_t>& chosen) {
    int64_t cycles = alone_.at(i)[chosen[i]];
    for (const size_t e : of_[i]) cycles += across(e, chosen);
    return cycles;
  }

  int64_t total(const std::vector<size_t>& chosen) {
    int64_t cycles = 0;
    for (size_t i = 0; i < chosen.size(); ++i) cycles += alone_.at(i)[chosen[i]];
    for (size_t e = 0; e < edges_.size(); ++e) cycles += across(e, chosen);
    return cycles;
  }

  bool improve(std::vector<size_t>& chosen, bool backward) {
    bool any = false;
    for (size_t step = 0; step < chosen.size(); ++step) {
      const size_t i = backward ? chosen.size() - 1 - step : step;
      const size_t before = chosen[i];
      size_t best = before;
      int64_t least = around(i, chosen);
      for (size_t way = 0; way < ways_[i].size(); ++way) {
        chosen[i] = way;
        const int64_t cycles = around(i, chosen);
        if (cycles >= least) continue;
        least = cycles;
        best = way;
      }
      chosen[i] = best;
      any = any || best != before;
    }
    return any;
  }

  const Graph& graph_;
  const size_t cores_;
  const CountedCosts costs_;
  const std::vector<bool> feeds_;
  std::vector<std::vector<Division>> ways_;       // by operation
  std::map<size_t, std::vector<int64_t>> alone_;  // by operation and way: cycles of the longest part
  std::vector<Edge> edges_;
  std::vector<std::vector<size_t>> of_;  // edges by operation
  std::map<std::tuple<size_t, size_t, size_t>, int64_t> across_;
};

}  // namespace

std::vector<Division> choose_divisions(const Graph& graph, const isa::MachineConfig& config, const Options& options) {
  return Choice(graph, config, options).run();
}

}  // namespace tessera::npu
