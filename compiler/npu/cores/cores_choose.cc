// SPDX-License-Identifier: Apache-2.0
// What parts take, by counting, and the choice of divisions. One choice is changed at a time, with its neighbours as
// they are, from several beginnings.
#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <type_traits>

#include "compiler/npu/cores/cores.h"
#include "compiler/npu/cores/cores_costs.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/lowering/chain.h"
#include "isa/generated/timing.h"

namespace tessera::npu {

namespace {

constexpr int64_t kPart = 250;  // cycles that a part takes beside its work: the first loads, the last stores
// From the last product of one core to the first of another that awaits it. How much of it work hides is known only of
// finished streams, so short programs are tried with less and with more.
constexpr std::array<int64_t, 3> kExchange = {700, 200, 1000};
constexpr int64_t kRowPasses = 3;  // over the elements of a row
constexpr int kSweeps = 4;
constexpr size_t kWriters = 4;       // of a tensor, the last ones, that its readers are weighed against
constexpr int64_t kShort = 100'000;  // cycles of programs that are worth a second price of waiting
constexpr size_t kRefined = 64;      // operations of a graph whose divisions are changed together

int64_t blocks(int64_t channels, int64_t block) { return (channels + block - 1) / block; }

const Tensor& tensor_of(const Graph& graph, TensorId id) { return graph.tensors[static_cast<size_t>(id)]; }

}  // namespace

CountedCosts::CountedCosts(const isa::MachineConfig& config, const Options& options, int64_t exchange)
    : config_(config),
      exchange_(exchange),
      latency_(options.dram_latency_cycles),
      bus_bytes_(bytes_of_a_core(config, options, 1.0 / config.cores)),
      alone_bytes_(bytes_of_a_core(config, options, 1)) {}

int64_t bytes_of_all(const isa::MachineConfig& config, const Options& options) {
  return options.dram_bandwidth_bytes > 0 ? std::min<int64_t>(options.dram_bandwidth_bytes, config.memory_bytes())
                                          : config.memory_bytes();
}

int64_t bytes_of_a_core(const isa::MachineConfig& config, const Options& options, double share) {
  const auto bytes = static_cast<int64_t>(share * static_cast<double>(bytes_of_all(config, options)));
  return std::clamp<int64_t>(bytes, 1, config.axi_bytes);
}

/// What is written and read again, half of it hidden behind work.
int64_t CountedCosts::kept(const Tensor& result, const Box& box) const {
  return box.elements() * result.element_bytes / bus_bytes_ / 3;
}

/// By the raster, in which each input vector enters once; windows beyond it take a cycle for each tap.
int64_t CountedCosts::depthwise(const Convolution& op, const Box& results) const {
  const int64_t each =
      blocks(results.extent[kImages], config_.batch) * blocks(results.extent[kChannels], config_.block_out);
  const int64_t taps = op.kernel_h * op.kernel_w, rows = results.extent[kRows], columns = results.extent[kColumns];
  if (std::max({op.stride_h, op.stride_w, op.dilation_h, op.dilation_w}) > 2) return each * rows * columns * taps;
  const bool pairs = config_.raster_pairs != 0 && op.kernel_w == isa::timing::gemm::kPairColumns;
  const int64_t lines = (rows - 1) * op.stride_h + 1,
                in_line = pairs ? columns + 1 : columns * op.stride_w + op.kernel_w;
  return each * lines * in_line * blocks(taps, config_.depthwise_taps());
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
    if (each == 1) return depthwise(*op, results);
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

/// Runs of a result that are no whole entries are stored one by one, each with an answer of its own.
int64_t CountedCosts::answers(const Tensor& result, const Box& results) const {
  const int64_t run = results.extent[kChannels] * result.element_bytes;
  if (run % config_.block_out == 0) return 0;
  const int64_t each = latency_ / std::max(config_.writes_in_flight, 1) - run / bus_bytes_;
  return results.elements() / results.extent[kChannels] * std::max<int64_t>(each, 0);
}

/// What the shared bus moves of a box. A part of a pixel's channels is a burst of its own, which takes whole beats.
int64_t CountedCosts::moved(const Tensor& tensor, const Box& box) const {
  const int64_t bytes = box.elements() * tensor.element_bytes, run = box.extent[kChannels] * tensor.element_bytes;
  if (box.empty() || box.extent[kChannels] == tensor.c) return bytes;
  return bytes / run * blocks(run, config_.memory_bytes()) * config_.memory_bytes();
}

int64_t CountedCosts::bytes(const Graph& graph, const Operation& operation, const Box& results) const {
  int64_t bytes = results.elements() * tensor_of(graph, written_by(operation)).element_bytes;
  if (Reads reads; find_reads(graph, operation, results, reads))
    for (const auto& [id, box] : reads) bytes += moved(tensor_of(graph, id), box);
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
  const auto& [n, h, w, c] = results.begin;
  const auto& [images, rows, columns, channels] = results.extent;
  const auto [known, fresh] =
      known_.try_emplace({&operation, {n, h, w, c, images, rows, columns, channels}}, int64_t{0});
  if (fresh) known->second = counted(graph, operation, results);
  return known->second;
}

int64_t CountedCosts::counted(const Graph& graph, const Operation& operation, const Box& results) const {
  const int64_t products = gemm(graph, operation, results), vectors = alu(graph, operation, results);
  // Who computes an operation alone has the memory for itself.
  const Tensor& result = tensor_of(graph, written_by(operation));
  const int64_t width = results == whole_box(result) ? alone_bytes_ : bus_bytes_;
  const int64_t bus = bytes(graph, operation, results) / width + answers(result, results);
  const int64_t most = std::max({products, vectors, bus});
  return kPart + most + (products + vectors + bus - most) / 8;
}

namespace {

/// Bytes of an allocation that a box of a tensor covers: [begin, end), in order.
using Runs = std::vector<std::pair<int64_t, int64_t>>;

Runs runs_of(const Tensor& tensor, const Placement& place, const Box& box) {
  Runs runs;
  const bool rows = place.pixel_pitch == box.extent[kChannels] * tensor.element_bytes;  // pixels follow each other
  const int64_t columns = rows ? 1 : box.extent[kColumns];
  const int64_t run = box.extent[kChannels] * (rows ? box.extent[kColumns] : 1) * tensor.element_bytes;
  for (int64_t n = box.begin[kImages]; n < box.end(kImages); ++n)
    for (int64_t h = box.begin[kRows]; h < box.end(kRows); ++h)
      for (int64_t w = box.begin[kColumns]; w < box.begin[kColumns] + columns; ++w) {
        const int64_t at = place.offset + n * place.image_pitch + h * place.row_pitch + w * place.pixel_pitch +
                           box.begin[kChannels] * tensor.element_bytes;
        runs.emplace_back(at, at + run);
      }
  std::sort(runs.begin(), runs.end());
  return runs;
}

bool meet(const Runs& a, const Runs& b) {
  for (size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    if (a[i].second <= b[k].first)
      ++i;
    else if (b[k].second <= a[i].first)
      ++k;
    else
      return true;
  }
  return false;
}

bool meet(const Box& a, const Box& b) {
  if (a.empty() || b.empty()) return false;
  for (size_t axis = 0; axis < 4; ++axis)
    if (a.end(axis) <= b.begin[axis] || b.end(axis) <= a.begin[axis]) return false;
  return true;
}

Box box_of(const Reads& reads, TensorId tensor) {
  Box needed;
  for (const auto& [id, box] : reads)
    if (id == tensor) needed = hull(needed, box);
  return needed;
}

/// Who reads and who writes each tensor's allocation, and the choice.
class Choice {
 public:
  Choice(const Graph& graph, const isa::MachineConfig& config, const Options& options, int64_t exchange)
      : graph_(graph),
        cores_(static_cast<size_t>(config.cores)),
        costs_(config, options, exchange),
        sharing_(graph, cores_, costs_),
        feeds_(feeds_next(graph)),
        places_(places_apart(graph, options)) {
    std::map<TensorId, std::vector<size_t>> writers;
    of_.resize(graph.operations.size());
    for (size_t i = 0; i < graph.operations.size(); ++i) {
      const Operation& operation = graph.operations[i];
      const bool given = i < options.divided.size() && options.divided[i];
      ways_.push_back(given ? std::vector<Division>{options.divided[i]->division}
                            : divisions_of(graph, operation, cores_, config.block_out));
      const Uses uses = uses_of(operation);
      for (const TensorId id : uses.read) {
        for (const size_t writer : writers[root_of(graph, id)]) {
          edges_.push_back({writer, i, id, written_by(graph.operations[writer]) == id});
          of_[writer].push_back(edges_.size() - 1);
          of_[i].push_back(edges_.size() - 1);
        }
      }
      std::vector<size_t>& of_root = writers[root_of(graph, uses.written)];
      of_root.push_back(i);
      if (of_root.size() > kWriters) of_root.erase(of_root.begin());
    }
    for (size_t i = 0; i < ways_.size(); ++i)
      for (const Division& way : ways_[i]) alone_[i].push_back(longest(i, way));
  }

  /// The best ones with their cycles, the least first, whose neighbours were changed together. Behind them the best one
  /// before that: the course errs by more than what it gains there.
  std::vector<std::pair<int64_t, Shares>> run(size_t most) {
    Found refined, improved;
    // Each as it is best alone; then one axis wherever that can be divided.
    for (const std::optional<size_t> axis : {std::optional<size_t>(), std::optional(kRows), std::optional(kColumns),
                                             std::optional(kChannels), std::optional(kImages)}) {
      std::vector<size_t> chosen;
      for (size_t i = 0; i < ways_.size(); ++i) {
        const auto& alone = alone_.at(i);
        const auto way = static_cast<size_t>(std::min_element(alone.begin(), alone.end()) - alone.begin());
        chosen.push_back(axis ? along(i, *axis).value_or(way) : way);
      }
      for (int sweep = 0; sweep < kSweeps; ++sweep)
        if (!improve(chosen, sweep % 2 == 1)) break;
      refined.emplace_back(total(chosen), chosen);
      if (chosen.size() <= kRefined) improved.push_back(refined.back());
      refine(refined.back().second, refined.back().first);
    }
    std::vector<std::pair<int64_t, Shares>> shares;
    std::sort(refined.begin(), refined.end());
    refined.erase(std::unique(refined.begin(), refined.end()), refined.end());
    if (refined.size() > most) refined.resize(most);
    if (!improved.empty()) refined.push_back(*std::min_element(improved.begin(), improved.end()));
    for (const auto& [cycles, chosen] : refined) shares.emplace_back(cycles, sharing_.shares(divisions_by(chosen)));
    return shares;
  }

 private:
  struct Edge {
    size_t from = 0, to = 0;
    TensorId tensor = kNoTensor;
    bool direct = false;  // what is written is the tensor that is read, and no other view of its bytes
  };
  using Found = std::vector<std::pair<int64_t, std::vector<size_t>>>;  // cycles, and the way of each operation
  using Needs = std::vector<uint32_t>;  // by core that reads: those that write what it reads, by bits

  int64_t longest(size_t i, const Division& way) const {
    int64_t longest = 0;
    for (size_t core = 0; core < cores_; ++core) {
      const Box share = share_of(result(i), way, core);
      if (!share.empty()) longest = std::max(longest, costs_.part(graph_, graph_.operations[i], share));
    }
    return longest;
  }

  const Tensor& result(size_t i) const { return tensor_of(graph_, written_by(graph_.operations[i])); }

  std::optional<size_t> along(size_t i, size_t axis) const {
    for (size_t way = 0; way < ways_[i].size(); ++way)
      if (ways_[i][way].axis == axis) return way;
    return std::nullopt;
  }

  const std::vector<Division>& divisions_by(const std::vector<size_t>& chosen) {
    divisions_.resize(ways_.size());
    for (size_t i = 0; i < ways_.size(); ++i) divisions_[i] = ways_[i][chosen[i]];
    return divisions_;
  }

  /// Cycles that a result costs its reader beside both operations' own.
  int64_t across(size_t e, const std::vector<size_t>& chosen) {
    const Edge& edge = edges_[e];
    const size_t from = chosen[edge.from], to = chosen[edge.to];
    const auto [known, fresh] = across_.try_emplace({e, from, to}, 0);
    if (fresh) known->second = exchanged(e, from, to);
    return known->second;
  }

  int64_t exchanged(size_t e, size_t way_from, size_t way_to) {
    const Edge& edge = edges_[e];
    const Operation& writer = graph_.operations[edge.from];
    if (!edge.direct) {
      const Needs& needs = needs_of(e, way_from, way_to);
      for (size_t core = 0; core < cores_; ++core)
        if ((needs[core] & ~(uint32_t{1} << core)) != 0) return costs_.exchange();
      return 0;
    }
    const Division &from = ways_[edge.from][way_from], &to = ways_[edge.to][way_to];
    int64_t made = 0, all = 0, kept = 0;
    bool inside = true;
    for (size_t core = 0; core < cores_; ++core) {
      const Box share = share_of(result(edge.from), from, core);
      if (!share.empty()) made = std::max(made, costs_.part(graph_, writer, share));
      const Box reader = share_of(result(edge.to), to, core);
      if (reader.empty()) continue;
      Box needed = box_of(reads_of(graph_, graph_.operations[edge.to], reader), edge.tensor);
      inside = inside && covers(share, needed);
      if (feeds_[edge.from]) kept = std::max(kept, costs_.kept(result(edge.from), needed));
      needed = computable(graph_, writer, hull(share, needed));
      if (!needed.empty()) all = std::max(all, costs_.part(graph_, writer, needed));
    }
    if (inside) return 0;
    return std::min(costs_.exchange() + kept, all - made);
  }

  /// By the bytes that the shares write and read.
  const Needs& needs_of(size_t e, size_t from, size_t to) {
    const auto [known, fresh] = needs_.try_emplace({e, from, to}, Needs(cores_, 0));
    if (!fresh) return known->second;
    const Edge& edge = edges_[e];
    const TensorId written = written_by(graph_.operations[edge.from]);
    std::vector<Runs> made(cores_);
    for (size_t core = 0; core < cores_; ++core)
      made[core] = runs_of(result(edge.from), places_[static_cast<size_t>(written)],
                           share_of(result(edge.from), ways_[edge.from][from], core));
    for (size_t core = 0; core < cores_; ++core) {
      const Box share = share_of(result(edge.to), ways_[edge.to][to], core);
      if (share.empty()) continue;
      const Box needed = box_of(reads_of(graph_, graph_.operations[edge.to], share), edge.tensor);
      const Runs read = runs_of(tensor_of(graph_, edge.tensor), places_[static_cast<size_t>(edge.tensor)], needed);
      for (size_t other = 0; other < cores_; ++other)
        if (meet(made[other], read)) known->second[core] |= uint32_t{1} << other;
    }
    return known->second;
  }

  int64_t around(size_t i, const std::vector<size_t>& chosen) {
    int64_t cycles = alone_.at(i)[chosen[i]];
    for (const size_t e : of_[i]) cycles += across(e, chosen);
    return cycles;
  }

  /// Cycles until the last core has done its parts, each of which begins when its core is free and those have ended
  /// that it waits for.
  int64_t total(const std::vector<size_t>& chosen) {
    const auto [known, fresh] = totals_.try_emplace(chosen, 0);
    if (fresh) known->second = counted(chosen);
    return known->second;
  }

  int64_t counted(const std::vector<size_t>& chosen) {
    const Shares& shares = sharing_.shares(divisions_by(chosen));
    std::vector<int64_t> free(cores_, 0), ends(graph_.operations.size() * cores_, 0);  // of each operation by core
    for (size_t i = 0; i < graph_.operations.size(); ++i) {
      for (size_t core = 0; core < cores_; ++core) {
        const Box& box = shares.boxes[i][core];
        if (box.empty()) continue;
        find_reads(graph_, graph_.operations[i], box, reads_);
        int64_t begin = free[core];
        for (const size_t e : of_[i]) {
          const Edge& edge = edges_[e];
          if (edge.to != i || shares.own[edge.from]) continue;
          const Box needed = edge.direct ? box_of(reads_, edge.tensor) : Box();
          const uint32_t by = edge.direct ? 0 : needs_of(e, chosen[edge.from], chosen[i])[core];
          for (size_t other = 0; other < cores_; ++other) {
            const bool waits = edge.direct ? meet(needed, shares.boxes[edge.from][other]) : (by >> other & 1) != 0;
            if (other != core && waits) begin = std::max(begin, ends[edge.from * cores_ + other] + costs_.exchange());
          }
        }
        free[core] = ends[i * cores_ + core] = begin + costs_.part(graph_, graph_.operations[i], box);
      }
    }
    return *std::max_element(free.begin(), free.end());
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

  /// Changes a few neighbours together, by the cycles of all.
  void refine(std::vector<size_t>& chosen, int64_t& least) {
    if (chosen.size() > kRefined) return;
    for (bool any = true; any;) {
      any = false;
      for (const size_t count : {size_t{1}, size_t{2}, size_t{4}, size_t{8}})
        for (size_t first = 0; first + count <= chosen.size(); ++first)
          for (size_t to = 0; to < 4 + cores_; ++to) any = replace(chosen, first, count, to, least) || any;
    }
  }

  /// Divides so many operations along an axis, or leaves them to the core behind the axes, if that takes fewer cycles.
  bool replace(std::vector<size_t>& chosen, size_t first, size_t count, size_t to, int64_t& least) {
    std::vector<size_t> other = chosen;
    for (size_t i = first; i < first + count; ++i)
      if (ways_[i].size() > 1) other[i] = to < 4 ? along(i, to).value_or(other[i]) : to - 4;
    if (other == chosen) return false;
    const int64_t cycles = total(other);
    if (cycles >= least) return false;
    least = cycles;
    chosen = std::move(other);
    return true;
  }

  const Graph& graph_;
  const size_t cores_;
  const CountedCosts costs_;
  Sharing sharing_;
  const std::vector<bool> feeds_;
  const std::vector<Placement> places_;           // without shared memory
  std::vector<std::vector<Division>> ways_;       // by operation
  std::map<size_t, std::vector<int64_t>> alone_;  // by operation and way: cycles of the longest part
  std::vector<Edge> edges_;
  std::vector<std::vector<size_t>> of_;  // edges by operation
  std::vector<Division> divisions_;      // of the choice that is looked at
  Reads reads_;                          // of a part of it
  std::map<std::vector<size_t>, int64_t> totals_;
  std::map<std::tuple<size_t, size_t, size_t>, int64_t> across_;
  std::map<std::tuple<size_t, size_t, size_t>, Needs> needs_;
};

}  // namespace

std::vector<Shares> choose_shares(const Graph& graph, const isa::MachineConfig& config, const Options& options,
                                  size_t most) {
  std::vector<Shares> all;
  for (const int64_t exchange : kExchange) {
    for (auto& [cycles, shares] : Choice(graph, config, options, exchange).run(most)) {
      const bool known = std::ranges::any_of(
          all, [&](const Shares& other) { return other.boxes == shares.boxes && other.own == shares.own; });
      if (!known) all.push_back(std::move(shares));
      if (cycles > kShort) return all;
    }
  }
  return all;
}

}  // namespace tessera::npu
