// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/cores.h"

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "compiler/emit/predict.h"
#include "compiler/npu/assemble.h"
#include "compiler/npu/check.h"
#include "compiler/npu/cores_costs.h"
#include "compiler/npu/cores_order.h"
#include "compiler/npu/plan.h"
#include "compiler/npu/planner.h"
#include "compiler/npu/search_memo.h"
#include "isa/verify.h"

namespace tessera::npu {

namespace {

/// Whether operations can be divided at all: what stays from run to run, and instructions that somebody has written,
/// are one core's.
bool divisible(const Graph& graph, const Options& options) {
  const bool given = std::ranges::any_of(options.schedules, [](const auto& schedule) { return schedule.has_value(); });
  return !given && !graph.operations.empty() &&
         std::ranges::none_of(graph.tensors, [](const Tensor& tensor) { return tensor.cache >= 0; }) &&
         std::ranges::none_of(graph.operations,
                              [](const Operation& one) { return std::holds_alternative<Kernel>(one.what); });
}

/// One core's operations of the graph of parts.
struct Core {
  Graph graph;
  std::vector<uint32_t> parts;  // by operation: its number in the graph of parts
  std::unique_ptr<Planner> planner;
  std::vector<Unit> units;
};

/// `results`: tensors that are read elsewhere.
Graph graph_of(const ChipGraph& chip, size_t core, std::vector<uint32_t>& parts) {
  Graph graph;
  graph.name = chip.graph.name;
  graph.tensors = chip.graph.tensors;
  graph.inputs = chip.graph.inputs;
  std::vector<bool> wanted(graph.tensors.size(), false);
  for (const TensorId id : chip.graph.outputs) wanted[static_cast<size_t>(root_of(graph, id))] = true;
  for (size_t i = 0; i < chip.cores.size(); ++i) {
    if (chip.cores[i] == core) {
      graph.operations.push_back(chip.graph.operations[i]);
      parts.push_back(static_cast<uint32_t>(i));
      continue;
    }
    for (const TensorId id : uses_of(chip.graph.operations[i]).read)
      wanted[static_cast<size_t>(root_of(graph, id))] = true;
  }
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) graph.outputs.push_back(static_cast<TensorId>(i));
  return graph;
}

class Chip {
 public:
  Chip(const Graph& graph, const isa::MachineConfig& config, const Options& options)
      : graph_(graph), config_(config), options_(options) {
    options_.search_log = nullptr;
    options_.reuse_memory = false;
    options_.dram_bandwidth_bytes = bytes_of_a_core(config, options);
    if (options_.memo == nullptr) options_.memo = std::make_shared<SearchMemo>();
    const CountedCosts costs(config, options);
    const std::vector<Division> divisions = choose_divisions(graph, config, options);
    chip_ = divided(graph, shares_of(graph, divisions, static_cast<size_t>(config.cores), costs));
    check_graph(chip_.graph);
  }

  /// Nothing where the streams would block each other.
  std::optional<Program> run() {
    plan_cores();
    Program program;
    program.placements.assign(plan_.placements.begin(),
                              plan_.placements.begin() + static_cast<std::ptrdiff_t>(graph_.tensors.size()));
    program.arena_bytes = plan_.arena_bytes;
    program.unshared_bytes = plan_.unshared_bytes;
    if (plan_.arena_bytes > (uint64_t{1} << 36))
      throw Error(ErrorCode::kDoesNotFit, "the tensors need more than the 64 GiB an offset reaches");
    for (const Operation& operation : graph_.operations) {
      LayerInfo info;
      info.name = operation.name;
      info.kind = operation.kind;
      info.macs = model_macs(graph_, operation);
      program.layers.push_back(std::move(info));
    }
    std::vector<CoreCode> codes;
    ConstantPool constants(options_.alignment);
    for (Core& core : cores_) codes.push_back(generate(core, constants, program.layers));
    program.constants = constants.take();
    order_cores(chip_, plan_.placements, config_, codes);
    if (!all_end(codes)) return std::nullopt;
    finish(codes, program);
    return program;
  }

 private:
  void plan_cores() {
    cores_.resize(static_cast<size_t>(config_.cores));
    std::vector<bool> on_chip(chip_.graph.tensors.size(), false);
    for (size_t k = 0; k < cores_.size(); ++k) {
      Core& core = cores_[k];
      core.graph = graph_of(chip_, k, core.parts);
      core.planner = std::make_unique<Planner>(core.graph, config_, options_);
      core.units = core.planner->run();
      for (const Unit& unit : core.units)
        for (size_t i = unit.first; i + 1 < unit.first + unit.count; ++i)
          on_chip[static_cast<size_t>(uses_of(core.graph.operations[i]).written)] = true;
    }
    plan_ = plan_memory(chip_.graph, options_, on_chip);
    for (Core& core : cores_) {
      move_units(core.units, core.graph, plan_.placements, config_, options_);
      core.planner->settle(core.units, plan_);
    }
  }

  /// A core's instructions; adds their constants to those of the cores before.
  CoreCode generate(Core& core, ConstantPool& constants, std::vector<LayerInfo>& layers) {
    Emitter lowered(config_, options_, options_.blank_weights ? WeightBytes::kBlank : WeightBytes::kPacked);
    lowered.constants = std::move(constants);
    lowered.keeps_order = true;
    std::vector<LayerInfo> infos(core.graph.operations.size());
    for (const Unit& unit : core.units) {
      guarded(core.graph, config_, unit.first, [&] { lower_unit(unit, lowered, infos); });
      for (size_t s = 0; s < unit.count; ++s)
        infos[unit.first + s].schedule = unit.chain ? schedule::LayerSchedule(schedule_of(*unit.chain, core.graph))
                                                    : schedule::LayerSchedule(unit.schedules);
    }
    Emitter emitter =
        assembled(std::move(lowered), results_of(core.graph, plan_.placements), {}, options_, core.planner->replays());
    constants = std::move(emitter.constants);
    emitter.stream_bytes.resize(infos.size());
    for (size_t i = 0; i < infos.size(); ++i) {
      LayerInfo& layer = layers[chip_.layers[core.parts[i]]];
      if (layer.tiles == 0) layer.schedule = infos[i].schedule;
      layer.tiles += infos[i].tiles;
      for (size_t k = 0; k < kStreams; ++k) {
        layer.stream_bytes[k] += emitter.stream_bytes[i][k];
        (k == static_cast<size_t>(Stream::kOutput) ? layer.dram_write_bytes : layer.dram_read_bytes) +=
            emitter.stream_bytes[i][k];
      }
    }
    CoreCode code;
    code.instructions = std::move(emitter.instructions);
    for (const uint32_t layer : emitter.layer_of_instruction) code.tags.push_back(core.parts[layer]);
    code.works = std::move(emitter.works);
    code.pool = std::move(emitter.pool);
    return code;
  }

  /// Waits of each core, and what its stream takes.
  void finish(std::vector<CoreCode>& codes, Program& program) {
    int64_t most = -1;
    for (size_t k = 0; k < codes.size(); ++k) {
      CoreCode& code = codes[k];
      emit::SynchroniseOptions order;
      order.orders = std::move(code.orders);
      std::vector<uint32_t> tags;
      for (const uint32_t tag : code.tags) tags.push_back(static_cast<uint32_t>(chip_.layers[tag]));
      emit::synchronise(code.instructions, tags, code.works, config_, order);
      for (size_t i = 0; i < code.instructions.size(); ++i) {
        if (tags[i] >= program.layers.size()) continue;
        LayerInfo& layer = program.layers[tags[i]];
        layer.stream_bytes[static_cast<size_t>(Stream::kInstructions)] += isa::kInstructionBytes;
        layer.padded_macs += isa::effects(code.instructions[i], config_).macs;
      }
      const emit::Prediction prediction =
          emit::predict(code.instructions, tags, code.works, program.layers.size(), config_,
                        {options_.dram_latency_cycles, options_.dram_bandwidth_bytes, options_.dram_cost});
      if (prediction.cycles > most) {
        most = prediction.cycles;
        for (size_t i = 0; i < program.layers.size(); ++i)
          program.layers[i].estimated_cycles = prediction.layer_cycles[i];
      }
      isa::check_program(code.instructions, config_);
      if (k == 0) {
        program.instructions = std::move(code.instructions);
        program.layer_of_instruction = std::move(tags);
      } else {
        program.others.push_back({std::move(code.instructions), std::move(tags)});
      }
    }
  }

  const Graph& graph_;
  const isa::MachineConfig& config_;
  Options options_;
  ChipGraph chip_;
  std::vector<Core> cores_;
  MemoryPlan plan_;
};

}  // namespace

Program compile_cores(const Graph& graph, const isa::MachineConfig& config, const Options& options) {
  if (divisible(graph, options)) {
    std::optional<Program> program = Chip(graph, config, options).run();
    if (program) return std::move(*program);
  }
  return compile_one(graph, config, options);
}

}  // namespace tessera::npu
