// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/tests/bounded_layers.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>

#include "compiler/emit/least.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/planning/bound.h"
#include "compiler/npu/planning/trial.h"
#include "compiler/npu/workbench.h"
#include "compiler/schedule/bound.h"
#include "compiler/schedule/text/json.h"

namespace tessera::npu::test {

namespace {

using schedule::LayerSchedule;
using schedule::Schedule;

/// Whether a schedule is a point of the space (space.h), or would be but for copies that follow from its threads.
bool in_space(const schedule::Nest& nest, const schedule::Schedule& schedule) {
  int threads = 0, doubled = 0;
  const schedule::Extents tile = schedule.tile();
  const auto outer = static_cast<size_t>(schedule.outer_levels());
  for (size_t i = 0; i < outer; ++i) {
    const schedule::Level& level = schedule.levels[i];
    threads += level.threads > 1 ? 1 : 0;
    for (size_t k = i + 1; k < outer; ++k) {
      const schedule::Level& inner = schedule.levels[k];
      if (inner.dim != level.dim) continue;
      ++doubled;
      const int64_t trips = (nest.extent[level.dim] + tile[level.dim] - 1) / tile[level.dim];
      if (level.factor > 9 || inner.factor != (trips + level.factor - 1) / level.factor ||
          level.factor != (trips + inner.factor - 1) / inner.factor)
        return false;
    }
  }
  if (threads > 2 || doubled > 1) return false;
  return std::all_of(schedule.operands.begin(), schedule.operands.end(), [&](const schedule::OperandPlan& plan) {
    if (plan.copies == schedule::kDerived) return true;
    const int attach = schedule::attach_of(nest, schedule, plan.operand);
    const int64_t kept =
        schedule::fetched(nest, plan.operand) ? schedule::kept_tiles(nest, schedule, plan.operand, attach) : 1;
    return plan.copies >= kept && plan.copies < kept + 4;
  });
}

/// A judge that finds out whether what it is asked for takes fewer cycles than its program can.
class Beside final : public schedule::CostModel {
 public:
  Beside(const std::string& judge, const schedule::Machine& machine)
      : judge_(schedule::make_cost_model(judge, machine)), machine_(machine) {}
  schedule::Cost cost(const schedule::Subject& subject, const schedule::Schedule& schedule) override {
    return judge_->cost(subject, schedule);
  }
  schedule::Cost cost(const schedule::Subject& subject, const schedule::ChainPlan& plan) override {
    return judge_->cost(subject, plan);
  }
  std::optional<schedule::Cost> cost(const schedule::InstructionStream& stream) override {
    least_ = emit::least_cycles(stream.instructions, stream.works, machine_.config,
                                {machine_.dram_latency_cycles, machine_.dram_bandwidth_bytes});
    return judge_->cost(stream);
  }
  /// Of the last program.
  int64_t least() const { return least_; }

 private:
  const std::unique_ptr<schedule::CostModel> judge_;
  const schedule::Machine machine_;
  int64_t least_ = 0;
};

/// Layers of a graph on one machine, each alone and run once.
class Layers {
 public:
  Layers(const Graph& graph, const isa::MachineConfig& config, const Options& options, const std::string& judge)
      : config_(config),
        options_(options),
        bench_(graph, config, options),
        placements_(places_apart(bench_.graph(), options)),
        exact_(judge != "replay"),
        judge_(std::make_unique<Beside>(judge, bench_.machine())) {}

  const Workbench& bench() const { return bench_; }

  int64_t cycles(size_t piece, const LayerSchedule& schedule) const {
    return bench_.together({{bench_.pieces()[piece].first, schedule}}, *judge_).cycles;
  }

  /// Of the schedule's own tile; of a layer of several nests the least of all tiles.
  int64_t bound(size_t piece, const LayerSchedule& schedule) const {
    const auto& schedules = std::get<std::vector<schedule::Schedule>>(schedule);
    if (schedules.size() > 1) return bench_.bounds(piece).begin()->first;
    const Task& task = tasks_of(piece)[0];
    const schedule::Nest& nest = nest_for(task, schedules[0]);
    return schedule::tile_bound(nest, *schedules[0].intrinsic, schedules[0].tile(), bench_.machine(),
                                {0, biased_entries(task, nest)});
  }

  std::string broken(size_t piece, int count, uint64_t seed) const {
    schedule::Dice dice(seed);
    std::vector<LayerSchedule> begin = bench_.candidates(piece, "exhaustive", 3);
    for (int i = 0; i < 6; ++i) begin.push_back(bench_.sample(piece, dice));
    LayerSchedule fastest = begin.front();
    int64_t least = cycles(piece, fastest);
    for (int i = 0; i < count; ++i) {
      const auto k = static_cast<size_t>(i);
      const LayerSchedule at = k < begin.size() ? begin[k] : bench_.mutate(piece, fastest, dice);
      const int64_t taken = cycles(piece, at), bound = this->bound(piece, at);
      if (bound > taken) return described(piece, at, taken, bound);
      if (exact_ && judge_->least() > taken) return "its program: " + described(piece, at, taken, judge_->least());
      if (taken >= least) continue;
      least = taken;
      fastest = at;
    }
    return "";
  }

  /// Draws are of the tiles whose bound is below that of the first one that is open.
  std::string broken_closing(size_t piece, int count, uint64_t seed) const {
    schedule::Dice dice(seed);
    const int64_t known = cycles(piece, bench_.candidates(piece, "exhaustive", 1).at(0));
    Exhaustion* closing = bench_.exhaustion(piece, *judge_);
    if (closing == nullptr) return "";
    closing->go_on(known, 0.8 + 0.05 * static_cast<double>(dice.below(5)), 0.2);
    const Exhaustion::Standing& standing = closing->standing();
    if (standing.broken) return "a bound is above what was measured: " + bench_.pieces()[piece].key;
    int64_t least = std::min(known, standing.cut);
    if (standing.best) least = std::min(least, standing.cycles);
    int64_t closed = static_cast<int64_t>(standing.closed), open = 0;
    for (const auto& [bound, tiles] : bench_.bounds(piece)) {
      open = bound;
      closed -= tiles;
      if (closed < 0) break;
      open = std::numeric_limits<int64_t>::max();
    }
    if (standing.closed == 0) return "";
    // Changes of the fastest: what was said is broken by a fast schedule.
    LayerSchedule at = bench_.candidates(piece, "exhaustive", 1).at(0);
    int64_t fastest = std::numeric_limits<int64_t>::max();
    for (int i = 0; i < count; ++i) {
      const LayerSchedule next = bench_.mutate(piece, at, dice);
      const Schedule& schedule = std::get<std::vector<Schedule>>(next)[0];
      if (bound(piece, next) >= open || !in_space(nest_for(tasks_of(piece)[0], schedule), schedule)) continue;
      const int64_t taken = cycles(piece, next);
      if (taken < least) return "closed: " + described(piece, next, taken, least);
      if (taken > fastest && !dice.chance(0.1)) continue;
      fastest = taken;
      at = next;
    }
    return "";
  }

 private:
  const std::vector<Task>& tasks_of(size_t piece) const {
    std::vector<Task>& tasks = tasks_[piece];
    if (tasks.empty()) tasks = make_tasks(bench_.graph(), bench_.pieces()[piece].first, placements_, config_, options_);
    return tasks;
  }
  static const schedule::Nest& nest_for(const Task& task, const schedule::Schedule& schedule) {
    const schedule::Nest* nest = nest_of(task, schedule.input_layout);
    return nest != nullptr ? *nest : task.alternatives.back();
  }

  std::string described(size_t piece, const LayerSchedule& at, int64_t taken, int64_t bound) const {
    return config_.name + ", latency " + std::to_string(bench_.machine().dram_latency_cycles) + ": " +
           std::to_string(taken) + " cycles, bound " + std::to_string(bound) + ", " + schedule::to_json(at) + "\n" +
           bench_.pieces()[piece].key;
  }

  const isa::MachineConfig config_;
  const Options options_;
  const Workbench bench_;
  const std::vector<Placement> placements_;
  const bool exact_;  // the judge is what bounds are of
  const std::unique_ptr<Beside> judge_;
  mutable std::map<size_t, std::vector<Task>> tasks_;
};

/// npu256 with a bus of so many bytes, and so many bursts in flight.
isa::MachineConfig narrow(int axi_bytes, int reads, int writes) {
  isa::MachineConfig config = isa::find_config("npu256");
  config.name = "npu256 with " + std::to_string(axi_bytes) + " bytes a beat";
  config.axi_bytes = axi_bytes;
  config.reads_in_flight = reads;
  config.writes_in_flight = writes;
  return config;
}

}  // namespace

namespace {

/// A convolution with so many channels and groups.
Graph random_window(Random& random, const std::string& name, int64_t inputs, int64_t outputs, int64_t groups) {
  Graph graph;
  Convolution op;
  Tensor in, out;
  in.name = "in";
  out.name = "out";
  in.is_unsigned = out.is_unsigned = true;
  in.c = inputs;
  out.c = outputs;
  in.h = random.between(1, 30);
  in.w = random.between(1, 30);
  do {
    op.kernel_h = random.one_of<int64_t>({1, 2, 3, 3, 3, 4, 5, 7});
    op.kernel_w = random.one_of<int64_t>({1, 2, 3, 3, 3, 4, 5, 7});
    op.stride_h = random.one_of<int64_t>({1, 2, 2, 2, 3, 4});
    op.stride_w = random.chance(70) ? op.stride_h : random.one_of<int64_t>({1, 2, 3, 4});
    if (random.chance(25)) {
      op.dilation_h = random.between(1, 3);
      op.dilation_w = random.between(1, 3);
    }
    op.pads = {op.kernel_h / 2, op.kernel_w / 2, op.kernel_h / 2, op.kernel_w / 2};
    out.h = (in.h + 2 * op.pads.top - op.dilation_h * (op.kernel_h - 1) - 1) / op.stride_h + 1;
    out.w = (in.w + 2 * op.pads.left - op.dilation_w * (op.kernel_w - 1) - 1) / op.stride_w + 1;
  } while (in.h + 2 * op.pads.top <= op.dilation_h * (op.kernel_h - 1) ||
           in.w + 2 * op.pads.left <= op.dilation_w * (op.kernel_w - 1));
  op.groups = groups;
  op.input_zero = 128;
  op.weights.resize(static_cast<size_t>(in.c / groups * out.c * op.kernel_h * op.kernel_w));
  for (int16_t& weight : op.weights) weight = static_cast<int16_t>(random.between(-128, 127));
  op.stage = random_stage(random, out, 5000.0, true);
  op.input = graph.add(in);
  op.output = graph.add(out);
  graph.inputs = {op.input};
  graph.outputs = {op.output};
  graph.operations.push_back({name, "QLinearConv", 0, op});
  return graph;
}

}  // namespace

Graph random_depthwise(Random& random) {
  const int64_t channels = random.between(2, 70);
  return random_window(random, "depthwise", channels, channels, channels);
}

Graph random_first_layer(Random& random) {
  const int64_t inputs = random.between(1, 5);
  return random_window(random, "first", inputs, random.between(1, 70), 1);
}

std::vector<isa::MachineConfig> bounded_machines(bool exact) {
  // Of few long writes in flight the replay tells less than the timing model.
  return {isa::find_config("npu64"), isa::find_config("npu256"), isa::find_config("npu1024"),
          narrow(4, exact ? 8 : 32, exact ? 4 : 16), odd_machine("8x32", 1, 8, 32, 300, 100, 200, 100, 20)};
}

namespace {

/// The first complaint about a single layer of a graph, on any of the machines.
std::string each_layer(const std::string& judge, uint64_t seed, const std::function<Graph(Random&)>& make,
                       const std::function<std::string(const Layers&, size_t)>& broken) {
  for (const isa::MachineConfig& config : bounded_machines(judge != "replay")) {
    Random random(seed);
    const Graph graph = make(random);
    Options options;
    options.dram_latency_cycles = random.one_of<int64_t>({options.dram_latency_cycles, 5, 200});
    const Layers layers(graph, config, options, judge);
    for (size_t piece = 0; piece < layers.bench().pieces().size(); ++piece) {
      if (layers.bench().pieces()[piece].count > 1) continue;
      if (std::string why = broken(layers, piece); !why.empty()) return why;
    }
  }
  return "";
}

}  // namespace

std::string broken_of(int count, int more, uint64_t first, const std::function<std::string(uint64_t)>& broken) {
  if (const char* factor = std::getenv("TESSERA_NPU_TESTS")) count *= std::atoi(factor);
  if (std::getenv("TESSERA_LONG") != nullptr) count *= more;
  if (const char* start = std::getenv("TESSERA_NPU_SEED")) first = std::strtoull(start, nullptr, 10);
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(count); ++seed)
    if (const std::string told = broken(seed); !told.empty())
      return told + "; TESSERA_NPU_SEED=" + std::to_string(seed);
  return "";
}

std::string broken_bound(const std::string& judge, uint64_t seed, int count,
                         const std::function<Graph(Random&)>& make) {
  return each_layer(judge, seed, make,
                    [&](const Layers& layers, size_t piece) { return layers.broken(piece, count, seed); });
}

std::string broken_closing(const std::string& judge, uint64_t seed, int count,
                           const std::function<Graph(Random&)>& make) {
  return each_layer(judge, seed, make,
                    [&](const Layers& layers, size_t piece) { return layers.broken_closing(piece, count, seed); });
}

}  // namespace tessera::npu::test
