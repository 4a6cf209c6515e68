// SPDX-License-Identifier: Apache-2.0
// The generator's main line: check, place tensors, for each operation choose layout and schedule and lower it, then synchronise the
// whole stream and let the ISA's own checker judge it.
#include <algorithm>

#include "base/error.h"
#include "compiler/emit/synchronise.h"
#include "compiler/npu/check.h"
#include "compiler/npu/graph.h"
#include "compiler/npu/lower.h"
#include "compiler/npu/plan.h"
#include "compiler/npu/task.h"
#include "compiler/schedule/schedule.h"
#include "isa/verify.h"

namespace tessera::npu {

namespace {

using schedule::Nest;
using schedule::Schedule;

int64_t model_macs(const Graph& graph, const Operation& operation) {
  if (operation.macs != 0) return std::max<int64_t>(operation.macs, 0);
  const auto* op = std::get_if<Convolution>(&operation.what);
  if (op == nullptr) return 0;
  const Tensor& input = graph.tensors[static_cast<size_t>(op->input)];
  return graph.tensors[static_cast<size_t>(op->output)].elements() * (input.c / op->groups) * op->kernel_h * op->kernel_w;
}

struct Choice {
  const Nest* nest = nullptr;
  Schedule schedule;
  schedule::Evaluation evaluation;
};

/// The generator's schedule of least estimated cycles over the layouts.
Choice choose(const Task& task, const isa::MachineConfig& config, const Options& options) {
  Choice best;
  std::string reason;
  for (const Nest& nest : task.alternatives) {
    Choice choice;
    choice.nest = &nest;
    try {
      choice.schedule = schedule::generate(nest, config, !options.virtual_threads);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kDoesNotFit) throw;
      if (reason.empty()) reason = error.what();
      continue;
    }
    choice.evaluation = schedule::evaluate(nest, choice.schedule, config);
    TESSERA_INVARIANT(choice.evaluation.legal, "the generator made an illegal schedule: " + choice.evaluation.reason);
    if (best.nest == nullptr || choice.evaluation.cycles < best.evaluation.cycles) best = std::move(choice);
  }
  if (best.nest == nullptr) throw Error(ErrorCode::kDoesNotFit, reason);
  return best;
}

/// A schedule given by the user, if it is legal for one of the layouts.
Choice choose(const Task& task, const isa::MachineConfig& config, const std::string& json) {
  Choice choice;
  const Schedule given = schedule::from_json(json);
  std::string reason;
  for (const Nest& nest : task.alternatives) {
    if (nest.layout != given.input_layout && &nest != &task.alternatives.back()) continue;
    choice.nest = &nest;
    choice.schedule = given;
    choice.evaluation = schedule::evaluate(nest, choice.schedule, config);
    reason = choice.evaluation.legal ? schedule::complete(nest, config, choice.schedule) : choice.evaluation.reason;
    if (reason.empty()) return choice;
  }
  throw Error(ErrorCode::kInvalidArgument, "the given schedule is illegal: " + reason);
}

/// Second operands of stages count as inputs here.
Stream stream_of(const isa::Load& load) {
  switch (load.space) {
    case isa::Space::kWgt: return Stream::kWeights;
    case isa::Space::kParam: case isa::Space::kTable: return Stream::kParams;
    case isa::Space::kInp: case isa::Space::kAcc: case isa::Space::kOut: break;
  }
  return load.base == kConstantBase ? Stream::kParams : Stream::kInput;
}

}  // namespace

Convolution make_matmul(TensorId input, TensorId output, int32_t input_zero, int64_t k, int64_t n,
                        const std::vector<int16_t>& weights, std::vector<int32_t> weight_zero, Stage stage) {
  if (k < 1 || n < 1 || static_cast<int64_t>(weights.size()) != k * n) {
    throw Error(ErrorCode::kInvalidArgument, "matmul: " + std::to_string(weights.size()) + " weights for " + std::to_string(k) + "x" + std::to_string(n));
  }
  Convolution op;
  op.input = input;
  op.output = output;
  op.input_zero = input_zero;
  op.weights.resize(weights.size());
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j) op.weights[static_cast<size_t>(j * k + i)] = weights[static_cast<size_t>(i * n + j)];
  }
  op.weight_zero = std::move(weight_zero);
  op.stage = std::move(stage);
  return op;
}

Program compile(const Graph& graph, const isa::MachineConfig& config, const Options& options) {
  isa::validate(config);
  check_graph(graph);
  Program program;
  const MemoryPlan plan = plan_memory(graph, options);
  program.placements = plan.placements;
  program.arena_bytes = plan.arena_bytes;
  program.unshared_bytes = plan.unshared_bytes;
  if (plan.arena_bytes > (uint64_t{1} << 36)) throw Error(ErrorCode::kDoesNotFit, "the tensors need more than the 64 GiB an offset reaches");

  Emitter emitter(config, options);
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    const Operation& operation = graph.operations[i];
    LayerInfo info;
    info.name = operation.name;
    info.kind = operation.kind;
    info.macs = model_macs(graph, operation);
    emitter.layer = static_cast<uint32_t>(i);
    try {
      const std::vector<Task> tasks = make_tasks(graph, i, plan.placements, config, options);
      std::vector<std::string> given, chosen;
      if (i < options.schedules.size() && !options.schedules[i].empty()) {
        given = schedule::split_json(options.schedules[i]);
        if (given.size() != tasks.size()) {
          throw Error(ErrorCode::kInvalidArgument, std::to_string(given.size()) + " schedules are given for an operation of " + std::to_string(tasks.size()) +
                                                       " nests; give one for each, as a list where there are several");
        }
      }
      for (size_t t = 0; t < tasks.size(); ++t) {
        const Choice choice = given.empty() ? choose(tasks[t], config, options) : choose(tasks[t], config, given[t]);
        lower(tasks[t], *choice.nest, choice.schedule, emitter, info);
        info.estimated_cycles += choice.evaluation.cycles;
        chosen.push_back(schedule::to_json(choice.schedule));
      }
      info.schedule = schedule::join_json(chosen);
    } catch (const Error& error) {
      throw Error(error.code(), "node '" + operation.name + "' (" + operation.kind + ") on " + config.name + ": " + error.what());
    }
    program.layers.push_back(std::move(info));
  }
  emitter.assemble(options.prefetch_weights && options.virtual_threads);
  for (size_t i = 0; i < emitter.instructions.size(); ++i) {
    LayerInfo& layer = program.layers[emitter.layer_of_instruction[i]];
    const auto to = [&](Stream stream) -> int64_t& { return layer.stream_bytes[static_cast<size_t>(stream)]; };
    const int64_t bytes = dram_bytes(emitter.instructions[i]);
    if (const auto* load = std::get_if<isa::Load>(&emitter.instructions[i])) {
      layer.dram_read_bytes += bytes;
      to(stream_of(*load)) += bytes;
    } else {
      layer.dram_write_bytes += bytes;
      to(Stream::kOutput) += bytes;
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
    if (layer < program.layers.size()) program.layers[layer].stream_bytes[static_cast<size_t>(Stream::kInstructions)] += isa::kInstructionBytes;
  }
  isa::check_program(program.instructions, config);
  return program;
}

Border folding_border(const Tensor& input, const Convolution& convolution, int64_t output_channels,
                      const isa::MachineConfig& config) {
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
  border.bottom = std::max<int64_t>(0, (oh - 1) * op.stride_h - op.pads.top + (op.kernel_h - 1) * op.dilation_h + 1 - input.h);
  border.right = std::max<int64_t>(0, (ow - 1) * op.stride_w - op.pads.left + (op.kernel_w - 1) * op.dilation_w + 1 - input.w);
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
  const Options options;
  const MemoryPlan plan = plan_memory(graph, options);
  for (const Task& task : make_tasks(graph, 0, plan.placements, config, options)) {
    if (choose(task, config, options).nest->layout != "nhwc") return border;
  }
  return {};
}

}  // namespace tessera::npu
