// SPDX-License-Identifier: Apache-2.0
// The generator's main line: check, plan how each operation is run, place tensors, lower, then synchronise the whole
// stream and let the ISA's own checker judge it.
#include <algorithm>
#include <exception>
#include <optional>

#include "base/error.h"
#include "compiler/emit/predict.h"
#include "compiler/emit/synchronise.h"
#include "compiler/npu/assembly/assemble.h"
#include "compiler/npu/assembly/at_once.h"
#include "compiler/npu/cores/cores.h"
#include "compiler/npu/graph/graph.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/input/check.h"
#include "compiler/npu/lowering/kernel.h"
#include "compiler/npu/planning/planner.h"
#include "compiler/npu/planning/search_log.h"
#include "compiler/npu/planning/search_memo.h"
#include "isa/generated/timing.h"
#include "isa/verify/verify.h"

namespace tessera::npu {

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

int64_t predicted_cycles(const Program& program) {
  int64_t cycles = 0;
  for (const LayerInfo& layer : program.layers) cycles += layer.estimated_cycles;
  return cycles;
}

namespace {

/// Instructions up to which a program is polished before it is compared with others, as that takes next to no time.
constexpr int64_t kTiny = 100;

/// The program for a machine by schedules that are looked for on `planned`, a machine with the same memories. `polish`:
/// a short stream, too, is polished now; a long one is compiled once.
Program compiled(const Graph& graph, const isa::MachineConfig& config, const Options& options,
                 const isa::MachineConfig& planned, bool polish) {
  Program program;
  Planner planner(graph, planned, options);
  StepTimes* const times = options.times.get();
  std::vector<Unit> units = timed(times, "schedules", [&] { return planner.run(); });
  const MemoryPlan plan = place_units(units, graph, config, options);
  program.placements = plan.placements;
  program.arena_bytes = plan.arena_bytes;
  program.unshared_bytes = plan_memory(graph, options).unshared_bytes;
  if (plan.arena_bytes > (uint64_t{1} << 36))
    throw Error(ErrorCode::kDoesNotFit, "the tensors need more than the 64 GiB an offset reaches");
  timed(times, "schedules between neighbours", [&] { planner.settle(units, plan); });
  if (polish || !planner.is_short() || planner.pushed(units, kTiny) <= kTiny)
    timed(times, "schedules by the whole stream", [&] { planner.polish(units, plan); });

  Emitter lowered(config, options, options.blank_weights ? WeightBytes::kBlank : WeightBytes::kPacked);
  for (const Operation& operation : graph.operations) {
    LayerInfo info;
    info.name = operation.name;
    info.kind = operation.kind;
    info.macs = model_macs(graph, operation);
    program.layers.push_back(std::move(info));
  }
  for (LayerInfo& info : kernel_layers(graph)) program.layers.push_back(std::move(info));
  std::optional<TimedStep> step(std::in_place, times, "instructions and weights");
  for (const Unit& unit : units) {
    guarded(graph, config, unit.first, [&] { lower_unit(unit, lowered, program.layers); });
    for (size_t s = 0; s < unit.count; ++s) {
      program.layers[unit.first + s].schedule = unit.chain ? schedule::LayerSchedule(schedule_of(*unit.chain, graph))
                                                           : schedule::LayerSchedule(unit.schedules);
    }
  }
  const emit::SynchroniseOptions order = order_of(plan, options);
  step.emplace(times, "what stays on the chip, fetches ahead");
  Emitter emitter =
      assembled(std::move(lowered), results_of(graph, plan.placements), order, options, planner.replays());
  for (size_t i = 0; i < emitter.stream_bytes.size(); ++i) {
    LayerInfo& layer = program.layers[i];
    layer.stream_bytes = emitter.stream_bytes[i];
    for (size_t k = 0; k < layer.stream_bytes.size(); ++k)
      (k == static_cast<size_t>(Stream::kOutput) ? layer.dram_write_bytes : layer.dram_read_bytes) +=
          layer.stream_bytes[k];
  }
  step.emplace(times, "waits, prediction, check");
  program.slides = plan.slides;
  emit::synchronise(emitter.instructions, emitter.layer_of_instruction, emitter.works, config, order);
  program.instructions = std::move(emitter.instructions);
  program.layer_of_instruction = std::move(emitter.layer_of_instruction);
  program.constants = emitter.constants.take();
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (program.layer_of_instruction[i] >= program.layers.size()) continue;
    LayerInfo& layer = program.layers[program.layer_of_instruction[i]];
    layer.stream_bytes[static_cast<size_t>(Stream::kInstructions)] += isa::kInstructionBytes;
    layer.padded_macs += isa::effects(program.instructions[i], config).macs;
  }
  at_once(2, 2, [&](size_t which, size_t) {
    if (which == 1) {
      isa::check_program(program.instructions, config);
      return;
    }
    const emit::Prediction prediction =
        emit::predict(program.instructions, program.layer_of_instruction, emitter.works, program.layers.size(), config,
                      {options.dram_latency_cycles, options.dram_bandwidth_bytes, options.dram_cost});
    for (size_t i = 0; i < program.layers.size(); ++i) program.layers[i].estimated_cycles = prediction.layer_cycles[i];
  });
  return program;
}

/// The program by the schedules that are looked for on this machine, or on one without pairs. Of a short stream both
/// are compared before one of them is polished, which takes longer than the rest. Given schedules may be of either.
Program compiled_one(const Graph& graph, const isa::MachineConfig& config, const Options& given_options, bool polish) {
  Options options = given_options;
  if (options.memo == nullptr) options.memo = std::make_shared<SearchMemo>();  // of both plans
  if (options.judge != Options().judge || !has_pairs(graph, config))
    return compiled(graph, config, options, config, polish);
  const bool given = std::ranges::any_of(options.schedules, [](const auto& schedule) { return schedule.has_value(); });
  SearchLog log = options.search_log != nullptr ? *options.search_log : SearchLog();
  std::optional<Program> program;
  std::exception_ptr refused;
  try {
    program = compiled(graph, config, options, config, false);
  } catch (const Error&) {
    if (!given) throw;
    refused = std::current_exception();
  }
  if (program && static_cast<int64_t>(program->instructions.size()) > kAsCompiled) return std::move(*program);
  // Of a short stream the cuts into chains hang by a few cycles, and what is best alone need not be best together. What
  // would be taken for a machine without pairs is another good cut, and on this machine it takes no cycle more.
  const isa::MachineConfig without = without_pairs(config);
  Options again = options;
  again.replays = nullptr;
  again.search_log = nullptr;
  std::optional<Program> other;
  try {
    other = compiled(graph, config, again, without, false);
  } catch (const Error&) {
    if (refused) std::rethrow_exception(refused);
    if (!given) throw;
  }
  const bool better = !program || (other && predicted_cycles(*other) < predicted_cycles(*program));
  if (!polish) return std::move(better ? *other : *program);
  again.search_log = options.search_log;
  if (options.search_log != nullptr) *options.search_log = std::move(log);
  return compiled(graph, config, better ? again : options, better ? without : config, true);
}

}  // namespace

bool has_pairs(const Graph& graph, const isa::MachineConfig& config) {
  return config.raster_pairs > 0 && std::ranges::any_of(graph.operations, [](const Operation& operation) {
           const auto* op = std::get_if<Convolution>(&operation.what);
           return op != nullptr && op->groups > 1 && op->kernel_w >= isa::timing::gemm::kPairColumns;
         });
}

isa::MachineConfig without_pairs(isa::MachineConfig config) {
  config.raster_pairs = 0;
  return config;
}

Program compile(const Graph& graph, const isa::MachineConfig& config, const Options& options) {
  isa::validate(config);
  check_graph(graph);
  if (config.cores > 1) return compile_cores(graph, config, options);
  const bool open = std::ranges::any_of(graph.tensors, [](const Tensor& tensor) {
    return tensor.scope == Scope::kOpen && tensor.view_of == kNoTensor && tensor.reshape_of == kNoTensor;
  });
  if (!open) return compile_one(graph, config, options);
  Graph placed = graph;
  Options shared = options;
  if (shared.memo == nullptr) shared.memo = std::make_shared<SearchMemo>();  // of places and programs
  place_chains(placed, config, shared);
  return compile_one(placed, config, shared);
}

Program compile_one(const Graph& graph, const isa::MachineConfig& config, const Options& options) {
  return compiled_one(graph, config, options, true);
}

void place_chains(Graph& graph, const isa::MachineConfig& config, const Options& given_options) {
  Options options = given_options;
  if (options.memo == nullptr) options.memo = std::make_shared<SearchMemo>();
  const bool asked =
      std::ranges::any_of(options.schedules, [](const auto& schedule) { return schedule.has_value(); }) ||
      std::ranges::any_of(graph.tensors, [](const Tensor& tensor) { return tensor.scope == Scope::kChip; });
  const auto placed = [&](const std::vector<Unit>& units) {
    std::vector<Scope> scopes(graph.tensors.size(), Scope::kDram);
    for (size_t t = 0; t < scopes.size(); ++t) {
      const Tensor& tensor = graph.tensors[t];
      if (tensor.view_of != kNoTensor || tensor.reshape_of != kNoTensor) scopes[t] = tensor.scope;
    }
    for (const Unit& unit : units) {
      for (size_t i = unit.first; i + 1 < unit.first + unit.count; ++i)
        scopes[static_cast<size_t>(uses_of(graph.operations[i]).written)] = Scope::kChip;
    }
    return scopes;
  };
  const auto place = [&](const std::vector<Scope>& scopes) {
    for (size_t t = 0; t < scopes.size(); ++t) graph.tensors[t].scope = scopes[t];
  };
  SearchLog log = options.search_log != nullptr ? *options.search_log : SearchLog();
  if (asked && config.raster_pairs > 0) {  // schedules may have been found on a machine without pairs
    const isa::MachineConfig without = without_pairs(config);
    try {
      return place(placed(Planner(graph, config, options).run()));
    } catch (const Error&) {
      try {
        return place(placed(Planner(graph, without, options).run()));
      } catch (const Error&) {
      }
      throw;
    }
  }
  Planner planner(graph, config, options);
  const std::vector<Unit> units = planner.run();
  const std::vector<Scope> scopes = placed(units);
  if (asked || !planner.is_short() || std::ranges::none_of(units, has_product_between)) return place(scopes);
  // Results stay on the chip between chains, too, which a cut does not see: of a short stream chains without products
  // between others are compared as they are compiled.
  Options shorter = options;
  shorter.products_between = false;
  if (options.search_log != nullptr) shorter.search_log = &log;
  const std::vector<Scope> others = placed(Planner(graph, config, shorter).run());
  const auto cycles = [&](const std::vector<Scope>& of, Options compiling) {
    place(of);
    compiling.search_log = nullptr;
    return predicted_cycles(compiled_one(graph, config, compiling, false));
  };
  if (cycles(others, options) >= cycles(scopes, options)) return place(scopes);
  place(others);
  if (options.search_log != nullptr) *options.search_log = std::move(log);
}

Options alone(Options options) {
  options.schedules.clear();
  options.search_log = nullptr;
  return options;
}

Border folding_border(const Tensor& input, const Convolution& convolution, int64_t output_channels,
                      const isa::MachineConfig& config, const Options& options) {
  const Convolution& op = convolution;
  if (!input.border.empty() || op.groups != 1 || config.batch != 1) return {};
  const auto out = [](int64_t in, int64_t pads, int64_t kernel, int64_t stride, int64_t dilation) {
    return (in + pads - dilation * (kernel - 1) - 1) / stride + 1;
  };
  const int64_t oh = out(input.h, op.pads.top + op.pads.bottom, op.kernel_h, op.stride_h, op.dilation_h);
  const int64_t ow = out(input.w, op.pads.left + op.pads.right, op.kernel_w, op.stride_w, op.dilation_w);
  if (oh < 1 || ow < 1) return {};
  // Below the image for so many rows of the window.
  const auto below = [&](int64_t rows) {
    return std::max<int64_t>(0, (oh - 1) * op.stride_h - op.pads.top + (rows - 1) * op.dilation_h + 1 - input.h);
  };
  // Of a window in parts the last part may have rows too many.
  int64_t most = op.kernel_h;
  for (int64_t parts = 2; parts < op.kernel_h; ++parts)
    most = std::max(most, (op.kernel_h + parts - 1) / parts * parts);
  Border border;
  border.top = op.pads.top;
  border.left = op.pads.left;
  border.bottom = below(most);
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
  copy.stage.second_table.reset();
  graph.operations.push_back(std::move(operation));
  graph.inputs = {copy.input};
  graph.outputs = {copy.output};
  check_graph(graph);
  for (const schedule::InputLayout& layout : Planner(graph, config, alone(options)).layouts(0)) {
    if (!layout.fold_kw) continue;
    if (layout.rows == 0) border.bottom = below(op.kernel_h);
    return border;
  }
  return {};
}

}  // namespace tessera::npu
