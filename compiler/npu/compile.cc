// SPDX-License-Identifier: Apache-2.0
// The generator's main line: check, place tensors, for each operation choose layout and schedule and lower it, then
// synchronise the whole stream and let the ISA's own checker judge it.
#include <algorithm>
#include <optional>

#include "base/error.h"
#include "compiler/emit/predict.h"
#include "compiler/emit/synchronise.h"
#include "compiler/npu/chain.h"
#include "compiler/npu/check.h"
#include "compiler/npu/graph.h"
#include "compiler/npu/lower.h"
#include "compiler/npu/plan.h"
#include "compiler/npu/task.h"
#include "compiler/npu/trial.h"
#include "compiler/schedule/schedule.h"
#include "isa/verify.h"

namespace tessera::npu {

namespace {

using schedule::Nest;
using schedule::Schedule;

int64_t model_macs(const Graph& graph, const Operation& operation) {
  if (operation.macs != 0) return std::max<int64_t>(operation.macs, 0);
  if (const auto* product = std::get_if<Product>(&operation.what)) {
    return graph.tensors[static_cast<size_t>(product->output)].elements() *
           graph.tensors[static_cast<size_t>(product->input)].c;
  }
  const auto* op = std::get_if<Convolution>(&operation.what);
  if (op == nullptr) return 0;
  const Tensor& input = graph.tensors[static_cast<size_t>(op->input)];
  return graph.tensors[static_cast<size_t>(op->output)].elements() * (input.c / op->groups) * op->kernel_h *
         op->kernel_w;
}

/// The nest that a schedule is for.
const Nest& nest_for(const Task& task, const Schedule& schedule) {
  const Nest* nest = nest_of(task, schedule.input_layout);
  TESSERA_INVARIANT(nest != nullptr, "a layout has gone with the places of tensors");
  return *nest;
}

/// Schedules that are tried for each layout, and those that are tried again between the neighbours.
constexpr size_t kTrials = 16, kFinalists = 8;
/// Instructions that all trials of a layer may replay; one trial there always is.
constexpr int64_t kReplayed = 60000;

/// Of the generator's best schedules for each layout those whose stream does best, best first.
std::vector<std::pair<Schedule, Trial>> choose(const Task& task, const isa::MachineConfig& config,
                                               const Options& options) {
  std::vector<std::pair<Schedule, Trial>> all;
  std::string reason;
  for (const Nest& nest : task.alternatives) {
    std::vector<Schedule> schedules;
    try {
      schedules = schedule::generate_several(nest, config, kTrials, {!options.virtual_threads, options.traffic_weight});
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDoesNotFit) throw;
      if (reason.empty()) reason = error.what();
      continue;
    }
    int64_t replayed = 0;
    for (Schedule& schedule : schedules) {
      if (replayed > kReplayed) break;
      const Trial trial = try_schedule(task, nest, schedule, config, options);
      replayed += trial.instructions;
      all.emplace_back(std::move(schedule), trial);
    }
  }
  if (all.empty()) throw Error(ErrorCode::kDoesNotFit, reason);
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second.score < b.second.score; });
  if (all.size() > kFinalists) all.resize(kFinalists);
  for (const auto& [schedule, trial] : all) {
    const schedule::Evaluation evaluation = schedule::evaluate(nest_for(task, schedule), schedule, config);
    TESSERA_INVARIANT(evaluation.legal, "the generator made an illegal schedule: " + evaluation.reason);
  }
  return all;
}

/// A schedule given by the user, if it is legal for one of the layouts.
Schedule given_schedule(const Task& task, const isa::MachineConfig& config, const std::string& json) {
  Schedule given = schedule::from_json(json);
  // Where the layout is unknown the last nest's refusal says so.
  const Nest* nest = nest_of(task, given.input_layout);
  if (nest == nullptr) nest = &task.alternatives.back();
  const schedule::Evaluation evaluation = schedule::evaluate(*nest, given, config);
  const std::string reason = evaluation.legal ? schedule::complete(*nest, config, given) : evaluation.reason;
  if (!reason.empty()) throw Error(ErrorCode::kInvalidArgument, "the given schedule is illegal: " + reason);
  return given;
}

/// How one or several operations are run: the tasks of a single operation with a schedule each, or a chain.
struct Unit {
  size_t first = 0, count = 1;
  std::vector<Task> tasks;
  std::vector<Schedule> schedules;  // one for each task
  std::optional<Chain> chain;
  double score = 0;                              // by trial; all scores of a plan are sums
  std::vector<Schedule> others;                  // for the only task, or
  std::vector<schedule::ChainPlan> other_plans;  // for the chain: what may do better between the neighbours
};

void lower_unit(const Unit& unit, Emitter& emitter, std::vector<LayerInfo>& infos) {
  if (unit.chain) {
    lower_chain(*unit.chain, emitter, infos);
    return;
  }
  emitter.layer = static_cast<uint32_t>(unit.first);
  for (size_t k = 0; k < unit.tasks.size(); ++k) {
    lower(unit.tasks[k], nest_for(unit.tasks[k], unit.schedules[k]), unit.schedules[k], emitter, infos[unit.first]);
  }
}

/// Does some work for an operation; errors name it.
template <typename Work>
auto guarded(const Graph& graph, const isa::MachineConfig& config, size_t operation, Work&& work) -> decltype(work()) {
  try {
    return work();
  } catch (const Error& error) {
    const Operation& op = graph.operations[operation];
    throw Error(error.code(), "node '" + op.name + "' (" + op.kind + ") on " + config.name + ": " + error.what());
  }
}

/// Chooses schedules for every operation, and which operations become chains: of all ways to cut the sequence, the one
/// of least estimated cycles. Schedules given by the user are taken as they are.
class Planner {
 public:
  Planner(const Graph& graph, const isa::MachineConfig& config, const Options& options)
      : graph_(graph),
        config_(config),
        options_(options),
        placements_(plan_memory(graph, options).placements),
        feeds_(feeds_next(graph)) {}

  std::vector<Unit> run() {
    const size_t count = graph_.operations.size();
    for (size_t i = 0; i < count; ++i) {
      given_.push_back(i < options_.schedules.size() ? options_.schedules[i] : "");
      std::optional<GivenChain> chain;
      if (!given_[i].empty()) chain = guarded(graph_, config_, i, [&] { return chain_from_json(given_[i]); });
      given_chain_.push_back(std::move(chain));
    }
    std::vector<Unit> units(count + 1);  // units[i] ends before operation i
    std::vector<double> cost(count + 1, -1);
    cost[0] = 0;
    for (size_t i = 0; i < count; ++i) {
      if (cost[i] < 0) continue;
      const auto offer = [&](Unit unit) {
        const size_t end = i + unit.count;
        const double total = cost[i] + unit.score;
        if (cost[end] >= 0 && cost[end] <= total) return;
        cost[end] = total;
        units[end] = std::move(unit);
      };
      if (given_chain_[i]) {
        offer(guarded(graph_, config_, i, [&] { return given_chain(i); }));
        continue;
      }
      offer(guarded(graph_, config_, i, [&] { return single(i); }));
      for (size_t links = 2; links <= kMostLinks && i + links <= count && feeds_[i + links - 2]; ++links) {
        if (!options_.chain || !options_.virtual_threads || !given_[i].empty() || !given_[i + links - 1].empty()) break;
        auto chain = make_chain(graph_, i, links, placements_, config_, options_, nullptr);
        if (chain) offer(chained(i, std::move(*chain)));
      }
    }
    std::vector<Unit> result;
    for (size_t end = count; end > 0; end = result.back().first) result.push_back(std::move(units[end]));
    std::reverse(result.begin(), result.end());
    return result;
  }

 private:
  Unit single(size_t i) {
    Unit unit;
    unit.first = i;
    const std::vector<Task> tasks = make_tasks(graph_, i, placements_, config_, options_);
    std::vector<std::string> given;
    if (!given_[i].empty()) {
      given = schedule::split_json(given_[i]);
      if (given.size() != tasks.size()) {
        throw Error(ErrorCode::kInvalidArgument,
                    std::to_string(given.size()) + " schedules are given for an operation of " +
                        std::to_string(tasks.size()) + " nests; give one for each, as a list where there are several");
      }
    }
    for (size_t t = 0; t < tasks.size(); ++t) {
      if (!given.empty()) {
        unit.schedules.push_back(given_schedule(tasks[t], config_, given[t]));
        const Schedule& schedule = unit.schedules.back();
        unit.score += try_schedule(tasks[t], nest_for(tasks[t], schedule), schedule, config_, options_).score;
        continue;
      }
      auto best = choose(tasks[t], config_, options_);
      unit.score += best.front().second.score;
      unit.schedules.push_back(std::move(best.front().first));
      for (size_t k = 1; tasks.size() == 1 && k < best.size(); ++k) unit.others.push_back(std::move(best[k].first));
    }
    return unit;
  }

  /// The chain under the plan whose stream does best.
  Unit chained(size_t i, Chain chain) {
    std::vector<std::pair<double, schedule::ChainPlan>> plans;
    chain.others.insert(chain.others.begin(), chain.plan);
    int64_t replayed = 0;
    for (schedule::ChainPlan& plan : chain.others) {
      if (replayed > kReplayed) break;
      chain.plan = plan;
      const Trial trial = try_chain(chain, config_, options_);
      replayed += trial.instructions;
      plans.emplace_back(trial.score, std::move(plan));
    }
    std::stable_sort(plans.begin(), plans.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    Unit unit;
    unit.first = i;
    unit.count = chain.size();
    unit.score = plans.front().first;
    chain.plan = std::move(plans.front().second);
    for (size_t k = 1; k < std::min(plans.size(), kFinalists); ++k)
      unit.other_plans.push_back(std::move(plans[k].second));
    chain.others.clear();
    unit.chain = std::move(chain);
    return unit;
  }

  Unit given_chain(size_t i) {
    const GivenChain& given = *given_chain_[i];
    const auto refuse = [&](const std::string& why) {
      throw Error(ErrorCode::kInvalidArgument, "the given chain is illegal: " + why);
    };
    if (given.names.size() < 2 || given.names.size() > kMostLinks)
      refuse("it has " + std::to_string(given.names.size()) + " links");
    for (size_t s = 0; s < given.names.size(); ++s) {
      if (i + s >= graph_.operations.size() || graph_.operations[i + s].name != given.names[s]) {
        refuse("'" + given.names[s] + "' does not stand at place " + std::to_string(s) + " behind this node");
      }
      if (s + 1 < given.names.size() && !feeds_[i + s])
        refuse("the result of '" + given.names[s] + "' is not read by the next node alone");
    }
    std::string reason;
    auto chain = make_chain(graph_, i, given.names.size(), placements_, config_, options_, &given.tile, &reason);
    if (!chain) refuse(reason);
    return chained(i, std::move(*chain));
  }

  const Graph& graph_;
  const isa::MachineConfig& config_;
  const Options& options_;
  const std::vector<Placement> placements_;
  const std::vector<bool> feeds_;
  std::vector<std::string> given_;
  std::vector<std::optional<GivenChain>> given_chain_;
};

/// Takes for each unit in turn the candidate that does best between its neighbours, where tensors stand at their
/// places: a trial by itself cannot see what the layer before leaves in the queues, nor what the next one must wait
/// for.
void settle(std::vector<Unit>& units, size_t layers, const isa::MachineConfig& config, const Options& options) {
  std::vector<LayerInfo> infos(layers);
  for (size_t u = 0; u < units.size(); ++u) {
    Unit& unit = units[u];
    const auto judge = [&] {
      return try_stream(config, options, layers, [&](Emitter& emitter) {
        for (size_t k = u - std::min<size_t>(u, 1); k < std::min(units.size(), u + 2); ++k)
          lower_unit(units[k], emitter, infos);
      });
    };
    const auto pick = [&](auto& current, auto& others) {
      if (others.empty()) return;
      Trial best = judge();
      int64_t replayed = best.instructions;
      for (auto& other : others) {
        if (replayed + best.instructions > kReplayed) break;
        std::swap(current, other);
        const Trial trial = judge();
        replayed += trial.instructions;
        if (trial.score < best.score)
          best = trial;
        else
          std::swap(current, other);
      }
    };
    if (unit.chain)
      pick(unit.chain->plan, unit.other_plans);
    else if (unit.tasks.size() == 1)
      pick(unit.schedules.front(), unit.others);
  }
}

/// Which stream a transfer belongs to: what is written to DRAM is the output, what is read counts by where it goes.
/// Second operands of stages count as inputs here.
Stream stream_of(const isa::Operand& dram, isa::Space space) {
  if (dram.write) return Stream::kOutput;
  switch (space) {
    case isa::Space::kWgt: return Stream::kWeights;
    case isa::Space::kParam:
    case isa::Space::kTable: return Stream::kParams;
    case isa::Space::kInp:
    case isa::Space::kAcc:
    case isa::Space::kOut: break;
  }
  return dram.base == kConstantBase ? Stream::kParams : Stream::kInput;
}

}  // namespace

Convolution make_matmul(TensorId input, TensorId output, int32_t input_zero, int64_t k, int64_t n,
                        const std::vector<int16_t>& weights, std::vector<int32_t> weight_zero, Stage stage) {
  if (k < 1 || n < 1 || static_cast<int64_t>(weights.size()) != k * n) {
    throw Error(ErrorCode::kInvalidArgument, "matmul: " + std::to_string(weights.size()) + " weights for " +
                                                 std::to_string(k) + "x" + std::to_string(n));
  }
  Convolution op;
  op.input = input;
  op.output = output;
  op.input_zero = input_zero;
  op.weights.resize(weights.size());
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j)
      op.weights[static_cast<size_t>(j * k + i)] = weights[static_cast<size_t>(i * n + j)];
  }
  op.weight_zero = std::move(weight_zero);
  op.stage = std::move(stage);
  return op;
}

Program compile(const Graph& graph, const isa::MachineConfig& config, const Options& options) {
  isa::validate(config);
  check_graph(graph);
  Program program;
  std::vector<Unit> units = Planner(graph, config, options).run();
  std::vector<bool> on_chip(graph.tensors.size(), false);
  std::vector<std::pair<int64_t, int64_t>> when;
  for (const Unit& unit : units) {
    for (size_t i = unit.first; i < unit.first + unit.count; ++i) {
      when.emplace_back(unit.first, unit.first + unit.count - 1);
      if (i + 1 < unit.first + unit.count) on_chip[static_cast<size_t>(uses_of(graph.operations[i]).written)] = true;
    }
  }
  const MemoryPlan plan = plan_memory(graph, options, on_chip, when);
  program.placements = plan.placements;
  program.arena_bytes = plan.arena_bytes;
  program.unshared_bytes = plan_memory(graph, options).unshared_bytes;
  if (plan.arena_bytes > (uint64_t{1} << 36))
    throw Error(ErrorCode::kDoesNotFit, "the tensors need more than the 64 GiB an offset reaches");

  // Places have changed, and tasks name them.
  for (Unit& unit : units) {
    if (unit.chain)
      place_chain(*unit.chain, graph, plan.placements, config, options);
    else
      unit.tasks = make_tasks(graph, unit.first, plan.placements, config, options);
  }
  settle(units, graph.operations.size(), config, options);

  Emitter emitter(config, options);
  for (const Operation& operation : graph.operations) {
    LayerInfo info;
    info.name = operation.name;
    info.kind = operation.kind;
    info.macs = model_macs(graph, operation);
    program.layers.push_back(std::move(info));
  }
  for (const Unit& unit : units) {
    guarded(graph, config, unit.first, [&] { lower_unit(unit, emitter, program.layers); });
    std::vector<std::string> chosen;
    for (const Schedule& schedule : unit.schedules) chosen.push_back(schedule::to_json(schedule));
    for (size_t s = 0; s < unit.count; ++s)
      program.layers[unit.first + s].schedule = unit.chain ? to_json(*unit.chain, graph) : schedule::join_json(chosen);
  }
  emitter.assemble(options.prefetch_weights && options.virtual_threads);
  for (size_t i = 0; i < emitter.instructions.size(); ++i) {
    LayerInfo& layer = program.layers[emitter.layer_of_instruction[i]];
    const isa::Effects effects = isa::effects(emitter.instructions[i], config);
    layer.dram_read_bytes += effects.dram_read_bytes;
    layer.dram_write_bytes += effects.dram_write_bytes;
    for (const isa::Operand& scratchpad : effects.operands) {
      const isa::Operand* dram = effects.dram();
      if (dram == nullptr || scratchpad.dram) continue;
      layer.stream_bytes[static_cast<size_t>(stream_of(*dram, scratchpad.space))] += dram->bytes;
    }
  }
  for (const auto& [layer, bytes] : emitter.second_bytes) {
    auto& streams = program.layers[layer].stream_bytes;
    streams[static_cast<size_t>(Stream::kInput)] -= bytes;
    streams[static_cast<size_t>(Stream::kSecond)] += bytes;
  }
  emit::synchronise(emitter.instructions, emitter.layer_of_instruction, config);
  program.instructions = std::move(emitter.instructions);
  program.layer_of_instruction = std::move(emitter.layer_of_instruction);
  program.constants = emitter.constants.take();
  for (const uint32_t layer : program.layer_of_instruction) {
    if (layer < program.layers.size())
      program.layers[layer].stream_bytes[static_cast<size_t>(Stream::kInstructions)] += isa::kInstructionBytes;
  }
  const emit::Prediction prediction =
      emit::predict(program.instructions, program.layer_of_instruction, program.layers.size(), config);
  for (size_t i = 0; i < program.layers.size(); ++i) program.layers[i].estimated_cycles = prediction.layer_cycles[i];
  isa::check_program(program.instructions, config);
  return program;
}

Border folding_border(const Tensor& input, const Convolution& convolution, int64_t output_channels,
                      const isa::MachineConfig& config, const Options& given) {
  const Convolution& op = convolution;
  if (!input.border.empty() || op.groups != 1 || config.batch != 1) return {};
  const auto out = [](int64_t in, int64_t pads, int64_t kernel, int64_t stride, int64_t dilation) {
    return (in + pads - dilation * (kernel - 1) - 1) / stride + 1;
  };
  const int64_t oh = out(input.h, op.pads.top + op.pads.bottom, op.kernel_h, op.stride_h, op.dilation_h);
  const int64_t ow = out(input.w, op.pads.left + op.pads.right, op.kernel_w, op.stride_w, op.dilation_w);
  if (oh < 1 || ow < 1) return {};
  Border border;
  border.top = op.pads.top;
  border.left = op.pads.left;
  border.bottom =
      std::max<int64_t>(0, (oh - 1) * op.stride_h - op.pads.top + (op.kernel_h - 1) * op.dilation_h + 1 - input.h);
  border.right =
      std::max<int64_t>(0, (ow - 1) * op.stride_w - op.pads.left + (op.kernel_w - 1) * op.dilation_w + 1 - input.w);
  border.value = op.input_zero;
  if (border.empty()) return {};
  // The operation alone, with the border: does a folded layout win?
  Graph graph;
  Tensor in = input, result;
  in.border = border;
  in.view_of = in.reshape_of = kNoTensor;
  in.strided = false;
  result.n = input.n;
  result.h = oh;
  result.w = ow;
  result.c = output_channels;
  result.element_bytes = op.stage.raw ? 4 : 1;
  Operation operation;
  operation.what = op;
  auto& copy = std::get<Convolution>(operation.what);
  copy.input = graph.add(in);
  copy.output = graph.add(result);
  copy.stage.second.reset();
  graph.operations.push_back(std::move(operation));
  graph.inputs = {copy.input};
  graph.outputs = {copy.output};
  check_graph(graph);
  Options options = given;
  options.schedules.clear();
  const MemoryPlan plan = plan_memory(graph, options);
  for (const Task& task : make_tasks(graph, 0, plan.placements, config, options)) {
    if (choose(task, config, options).front().first.input_layout != "nhwc") return border;
  }
  return {};
}

}  // namespace tessera::npu
