// SPDX-License-Identifier: Apache-2.0
// Assembly of the artifact: values and constants get numbers, graphs of the NPU become programs, operations of the CPU
// kernels or compiled functions, and a plan orders the steps.
#include "compiler/partition/package.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

#include "compiler/partition/claims_kernel.h"
#include "compiler/partition/operator_class.h"
#include "compiler/partition/util.h"
#include "compiler/schedule/text/json.h"

namespace tessera::partition {
namespace {

using nn::NodeOp;

program::DType to_program(ops::DType dtype) { return static_cast<program::DType>(dtype); }

uint64_t align64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

class Assembler {
 public:
  Assembler(const Selection& selection, const std::vector<npu::Graph>& graphs, const isa::MachineConfig& config,
            const Options& options)
      : selection_(selection), graphs_(graphs), options_(options) {
    artifact_.config = config;
  }

  program::Artifact run(mlir::func::FuncOp function) {
    artifact_.producer = "tessera 0.1.0";
    artifact_.plans.emplace_back();
    mlir::Block& block = function.getBody().front();
    // Names of the interface first: they must survive.
    for (unsigned i = 0; i < block.getNumArguments(); ++i) {
      const int64_t id = value_id(block.getArgument(i));
      if (auto names = function.getArgAttrOfType<mlir::ArrayAttr>(i, nn::kDimNamesAttr))
        for (mlir::Attribute name : names)
          artifact_.values[static_cast<size_t>(id)].dim_names.push_back(mlir::cast<mlir::StringAttr>(name).str());
    }
    program::Plan plan;
    for (mlir::Value argument : block.getArguments()) plan.inputs.push_back(value_id(argument));
    done_ = 0;
    add_turns(plan, selection_.turns);
    for (mlir::Value v : block.getTerminator()->getOperands()) plan.outputs.push_back(value_id(v));
    artifact_.plans[0] = std::move(plan);
    check_schedules();
    const TimedStep times(options_.npu.times.get(), "machine code of the CPU");
    if (options_.cpu) artifact_.cpu = options_.cpu->finish();
    artifact_.growth = options_.growth;
    return std::move(artifact_);
  }

 private:
  // --- values and constants

  int64_t constant_id(const ops::Tensor& tensor) {
    program::ConstantInfo info;
    info.dtype = to_program(tensor.dtype());
    info.shape = tensor.shape();
    if (tensor.dtype() == ops::DType::kString) {
      info.strings = tensor.strings();
    } else {
      const bool packed = program::dtype_bits(info.dtype) == 4;
      info.offset = align64(artifact_.constant_blob.size());
      info.bytes = packed ? static_cast<uint64_t>(tensor.size() + 1) / 2 : static_cast<uint64_t>(tensor.bytes());
      artifact_.constant_blob.resize(info.offset + info.bytes);
      uint8_t* to = artifact_.constant_blob.data() + info.offset;
      if (packed) {  // the blob grows by zeros
        for (int64_t i = 0; i < tensor.size(); ++i)
          to[i / 2] |= static_cast<uint8_t>((static_cast<uint8_t>(tensor.data()[i]) & 15) << (i % 2 * 4));
      } else if (info.bytes != 0) {
        std::memcpy(to, tensor.data(), info.bytes);
      }
    }
    artifact_.constants.push_back(std::move(info));
    return static_cast<int64_t>(artifact_.constants.size()) - 1;
  }

  int64_t value_id(mlir::Value value) {
    if (!value || nn::is_none(value)) return -1;
    const auto found = ids_.find(value.getAsOpaquePointer());
    if (found != ids_.end()) return found->second;
    program::ValueInfo info;
    const ops::TypeInfo type = nn::to_type_info(value.getType());
    info.dtype = to_program(type.dtype);
    info.ranked = type.ranked;
    info.shape = type.shape;
    for (const int64_t axis : nn::axes_of(options_.growing, value)) info.shape[static_cast<size_t>(axis)] = -1;
    if (type.kind == ops::TypeInfo::Kind::kSequence) info.kind = program::ValueKind::kSequence;
    if (type.kind == ops::TypeInfo::Kind::kOptional) info.kind = program::ValueKind::kOptional;
    info.name = nn::value_name(value);
    if (!info.name.empty() && !names_.insert(info.name).second) info.name.clear();
    if (const auto constant = nn::constant_value(value)) info.constant = constant_id(*constant);
    const auto id = static_cast<int64_t>(artifact_.values.size());
    artifact_.values.push_back(std::move(info));
    ids_[value.getAsOpaquePointer()] = id;
    return id;
  }

  // --- CPU steps

  int64_t cpu_layer(const std::vector<NodeOp>& ops) {
    program::Layer layer;
    layer.placement = "cpu";
    std::vector<mlir::Operation*> operations;
    for (NodeOp op : ops) {
      operations.push_back(op.getOperation());
      const auto macs = static_cast<uint64_t>(model_macs(op));
      layer.macs += macs;
      artifact_.totals.macs_cpu += times_ * macs;
      const std::string type = op.getOpType().str();
      layer.op += (layer.op.empty() ? "" : "+") + type;
    }
    if (layer.op.size() > 80) layer.op = layer.op.substr(0, 77) + "...";
    layer.nodes = covered_nodes(operations);
    layer.name = layer.nodes.empty() ? NodeOp(ops[0]).getOpType().str() : layer.nodes[0];
    artifact_.totals.nodes_cpu += ops.size();
    artifact_.cpu_layers.push_back(std::move(layer));
    return static_cast<int64_t>(artifact_.cpu_layers.size()) - 1;
  }

  program::Attribute attribute(const std::string& name, const ops::Attribute& from) {
    program::Attribute a;
    a.name = name;
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, int64_t>) {
            a.kind = program::Attribute::kInt;
            a.i = v;
          } else if constexpr (std::is_same_v<T, float>) {
            a.kind = program::Attribute::kFloat;
            a.f = v;
          } else if constexpr (std::is_same_v<T, std::string>) {
            a.kind = program::Attribute::kString;
            a.s = v;
          } else if constexpr (std::is_same_v<T, std::vector<int64_t>>) {
            a.kind = program::Attribute::kInts;
            a.ints = v;
          } else if constexpr (std::is_same_v<T, std::vector<float>>) {
            a.kind = program::Attribute::kFloats;
            a.floats = v;
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            a.kind = program::Attribute::kStrings;
            a.strings = v;
          } else if constexpr (std::is_same_v<T, ops::Tensor>) {
            a.kind = program::Attribute::kTensor;
            a.tensor = constant_id(v);
          } else {
            throw Error(ErrorCode::kInternal, "a subgraph attribute outside a region");
          }
        },
        from);
    return a;
  }

  program::KernelStep kernel_step(NodeOp op) {
    const ops::Node node = nn::to_node(op);
    program::KernelStep step;
    step.domain = node.domain;
    step.op_type = node.op_type;
    step.version = node.version;
    step.node_name = node.name;
    for (const auto& [name, value] : node.attributes) step.attributes.push_back(attribute(name, value));
    const uint64_t times = times_;
    times_ *= static_cast<uint64_t>(trips_of(op));
    for (size_t i = 0; i < op.getBodies().size(); ++i) {
      program::Attribute body;
      body.name = mlir::cast<mlir::StringAttr>(op.getBodyNames()[i]).str();
      body.kind = program::Attribute::kPlan;
      body.plan = body_plan(op.getBodies()[i]);
      step.attributes.push_back(std::move(body));
    }
    times_ = times;
    for (mlir::Value v : op.getInputs()) step.inputs.push_back(value_id(v));
    for (mlir::Value v : op.getOutputs()) step.outputs.push_back(value_id(v));
    step.layer = cpu_layer({op});
    return step;
  }

  /// The body of a control-flow operator: its steps, with what they read of the enclosing plans captured.
  int64_t body_plan(mlir::Region& region) {
    program::Plan plan;
    mlir::Block& block = region.front();
    for (mlir::Value argument : block.getArguments()) plan.inputs.push_back(value_id(argument));
    add_turns(plan, selection_.bodies.at(&block));
    for (mlir::Value v : block.getTerminator()->getOperands()) plan.outputs.push_back(value_id(v));
    plan.captured = captured_by(plan);
    artifact_.plans.push_back(std::move(plan));
    return static_cast<int64_t>(artifact_.plans.size()) - 1;
  }

  /// What a body reads, itself or through bodies inside of it, and does not make; constants aside.
  std::vector<int64_t> captured_by(const program::Plan& plan) const {
    std::set<int64_t> own(plan.inputs.begin(), plan.inputs.end()), captured;
    const auto read = [&](const std::vector<int64_t>& ids) {
      for (const int64_t id : ids)
        if (id >= 0 && !own.contains(id) && artifact_.values[static_cast<size_t>(id)].constant < 0) captured.insert(id);
    };
    for (const program::Step& step : plan.steps) {
      if (const auto* kernel = std::get_if<program::KernelStep>(&step)) {
        read(kernel->inputs);
        for (const program::Attribute& a : kernel->attributes)
          if (a.kind == program::Attribute::kPlan) read(artifact_.plans[static_cast<size_t>(a.plan)].captured);
        own.insert(kernel->outputs.begin(), kernel->outputs.end());
      } else if (const auto* code = std::get_if<program::CodeStep>(&step)) {
        read(code->inputs);
        own.insert(code->outputs.begin(), code->outputs.end());
      } else {
        const auto& npu = std::get<program::NpuStep>(step);
        for (const program::DeviceTensor& d : npu.inputs) read({d.value});
        for (const program::DeviceTensor& d : npu.outputs) own.insert(d.value);
      }
    }
    read(plan.outputs);
    return {captured.begin(), captured.end()};
  }

  // --- NPU steps

  /// Refuses schedules that nobody asked for.
  void check_schedules() const {
    std::set<std::string> given;
    for (const auto& [name, schedule] : options_.schedules) given.insert(name);
    for (const auto& [name, schedule] : options_.divided) given.insert(name);
    for (const std::string& name : given) {
      if (used_schedules_.contains(name)) continue;
      const auto covers = [&](const program::Layer& layer) {
        return std::find(layer.nodes.begin(), layer.nodes.end(), name) != layer.nodes.end();
      };
      std::string why = "no layer on the NPU has this name", known;
      size_t count = 0;
      std::map<std::string, int64_t> seen;
      for (const program::NpuProgram& npu : artifact_.npu_programs)
        for (const program::Layer& layer : npu.layers) {
          if (covers(layer)) why = "it is part of layer '" + layer.name + "'";
          const std::string key = program::layer_key(layer.name, seen);
          if (count++ < 8) known += (known.empty() ? "'" : ", '") + key + "'";
        }
      for (const program::Layer& layer : artifact_.cpu_layers)
        if (layer.name == name || covers(layer)) why = "it runs on the CPU";
      throw Error(ErrorCode::kInvalidArgument, "node '" + name + "': a schedule is given, but " + why +
                                                   "; `tessera schedule` lists the layers that take one" +
                                                   (known.empty() ? "" : ": " + known + (count > 8 ? ", ..." : "")));
    }
  }

  /// A node that several layers share (a DequantizeLinear with two readers) counts once.
  void count_nodes(const std::vector<std::string>& nodes) {
    for (const std::string& name : nodes) artifact_.totals.nodes_npu += counted_.insert(name).second ? 1 : 0;
  }

  program::Layer npu_layer(const npu::LayerInfo& info, const std::vector<std::string>& nodes) {
    const isa::MachineConfig& config = artifact_.config;
    program::Layer layer;
    layer.name = info.name;
    layer.op = info.kind;
    layer.placement = "npu";
    layer.macs = static_cast<uint64_t>(info.macs);
    layer.schedule_json = info.divided ? schedule::to_json(*info.divided) : schedule::to_json(info.schedule);
    layer.nodes = nodes;
    layer.predicted_cycles = static_cast<uint64_t>(info.estimated_cycles);
    layer.dram_read_bytes = static_cast<uint64_t>(info.dram_read_bytes);
    layer.dram_write_bytes = static_cast<uint64_t>(info.dram_write_bytes);
    layer.stream_bytes.assign(info.stream_bytes.begin(), info.stream_bytes.end());
    const auto peak = static_cast<uint64_t>(config.peak_macs() * config.cores),
               width = static_cast<uint64_t>(config.memory_bytes());
    const uint64_t done = std::min(layer.macs, static_cast<uint64_t>(info.padded_macs));  // less where nobody reads all
    layer.bound_cycles =
        std::max((done + peak - 1) / peak, (layer.dram_read_bytes + layer.dram_write_bytes + width - 1) / width);
    artifact_.totals.macs_npu += times_ * layer.macs;
    count_nodes(layer.nodes);
    return layer;
  }

  /// A layer for each operation, or for each line of one that is a kernel.
  void add_layers(const npu::Graph& graph, const npu::Program& compiled, program::NpuProgram& target) {
    std::vector<uint32_t> number(compiled.layers.size(), program::kNoLayer);
    size_t line = graph.operations.size();
    const auto add = [&](size_t layer, const npu::Operation& operation) {
      number[layer] = static_cast<uint32_t>(target.layers.size());
      target.layers.push_back(npu_layer(compiled.layers[layer], operation.nodes));
    };
    for (size_t i = 0; i < graph.operations.size(); ++i) {
      const auto* kernel = std::get_if<npu::Kernel>(&graph.operations[i].what);
      if (kernel == nullptr) add(i, graph.operations[i]);
      for (size_t k = 0; kernel != nullptr && k < kernel->lines.size(); ++k, ++line) {
        add(line, graph.operations[i]);
        target.layers.back().schedule_json.clear();
      }
    }
    const auto renumber = [&](std::vector<uint32_t>& layers) {
      for (uint32_t& layer : layers)
        if (layer < number.size()) layer = number[layer];
    };
    renumber(target.layer_of_instruction);
    for (program::CoreStream& stream : target.others) renumber(stream.layer_of_instruction);
  }

  program::DeviceTensor device_tensor(const npu::Graph& graph, const npu::Program& compiled,
                                      const npu::Binding& binding, bool input) {
    const npu::Tensor& t = graph.tensors[static_cast<size_t>(binding.tensor)];
    const npu::Placement& p = compiled.placements[static_cast<size_t>(binding.tensor)];
    program::DeviceTensor d;
    d.value = value_id(selection_.values[static_cast<size_t>(binding.value)]);
    d.offset = static_cast<uint64_t>(p.offset);
    d.base = static_cast<int32_t>(p.base);
    d.dtype = artifact_.values[static_cast<size_t>(d.value)].dtype;
    d.n = t.n, d.h = t.h, d.w = t.w, d.c = t.c, d.padded_c = t.c;
    d.image_pitch = p.image_pitch, d.row_pitch = p.row_pitch, d.pixel_pitch = p.pixel_pitch;
    d.axes = binding.axes;
    const mlir::Value value = selection_.values[static_cast<size_t>(binding.value)];
    if (const auto& growing = nn::axes_of(options_.growing, value); !growing.empty()) d.growing_axis = growing.front();
    if (const auto fill = selection_.fills.find(value.getAsOpaquePointer()); input && fill != selection_.fills.end())
      d.fill = fill->second;
    if (input) {
      d.border_top = static_cast<int32_t>(t.border.top), d.border_left = static_cast<int32_t>(t.border.left);
      d.border_bottom = static_cast<int32_t>(t.border.bottom), d.border_right = static_cast<int32_t>(t.border.right);
      d.border_value = static_cast<uint8_t>(t.border.value);
    }
    return d;
  }

  /// What is given for the layers of a graph on a chip; notes which names they have.
  std::vector<std::optional<schedule::DividedSchedule>> given_divisions(const npu::Graph& graph,
                                                                        std::map<std::string, int64_t> named) {
    std::vector<std::optional<schedule::DividedSchedule>> result;
    const int64_t cores = artifact_.config.cores;
    for (const npu::Operation& operation : graph.operations) {
      const std::string key = program::layer_key(operation.name, named);
      used_schedules_.insert(key);
      auto& divided = result.emplace_back();
      if (const auto given = options_.divided.find(key); given != options_.divided.end()) divided = given->second;
      if (divided && cores == 1)
        throw Error(ErrorCode::kInvalidArgument, "node '" + key + "': a division among cores is given, and " +
                                                     artifact_.config.name + " has one core");
      for (int64_t core = 0; core < cores && cores > 1; ++core) {
        const std::string part = key + "@" + std::to_string(core);
        const auto given = options_.schedules.find(part);
        if (given == options_.schedules.end() || !used_schedules_.insert(part).second) continue;
        if (!divided)
          throw Error(ErrorCode::kInvalidArgument, "node '" + key + "': a schedule is given for its part on core " +
                                                       std::to_string(core) +
                                                       ", but not how it is divided; give that under its name");
        divided->cores.resize(static_cast<size_t>(std::max<int64_t>(cores, std::ssize(divided->cores))));
        divided->cores[static_cast<size_t>(core)] = given->second;
      }
    }
    return result;
  }

  program::NpuStep npu_step(size_t number) {
    const npu::Graph& graph = graphs_[number];
    npu::Options npu_options = options_.npu;
    npu_options.divided = given_divisions(graph, named_);
    npu_options.schedules = given_schedules(graph, options_, named_);
    const npu::Program compiled = npu::compile(graph, artifact_.config, npu_options);
    if (options_.after_compile) options_.after_compile(graph, compiled);
    program::NpuProgram target;
    target.instructions = program::instruction_bytes(compiled.instructions);
    target.layer_of_instruction = compiled.layer_of_instruction;
    if (compiled.layers.empty()) target.layer_of_instruction.assign(compiled.instructions.size(), program::kNoLayer);
    for (const npu::CoreProgram& other : compiled.others)
      target.others.push_back({program::instruction_bytes(other.instructions), other.layer_of_instruction});
    target.constant_offset = align64(artifact_.device_constants.size());
    target.constant_bytes = compiled.constants.size();
    artifact_.device_constants.resize(target.constant_offset);
    artifact_.device_constants.insert(artifact_.device_constants.end(), compiled.constants.begin(),
                                      compiled.constants.end());
    target.arena_bytes = compiled.arena_bytes;
    for (const int64_t pitch : compiled.slides) target.slides.push_back({pitch});
    artifact_.totals.unshared_bytes += compiled.unshared_bytes;
    add_layers(graph, compiled, target);
    count_nodes(graph.free_nodes);
    program::NpuStep step;
    step.program = static_cast<int64_t>(artifact_.npu_programs.size());
    artifact_.npu_programs.push_back(std::move(target));
    for (const npu::Binding& b : graph.host_inputs) step.inputs.push_back(device_tensor(graph, compiled, b, true));
    for (const npu::Binding& b : graph.host_outputs) step.outputs.push_back(device_tensor(graph, compiled, b, false));
    return step;
  }

  /// A program of its own that the model holds: a kernel of tessera.tile.
  static bool is_kernel(NodeOp op) { return op.getDomain() == "ai.tessera" && op.getOpType() == "Kernel"; }

  program::NpuStep embedded_step(NodeOp op) {
    const ops::Node node = nn::to_node(op);
    const program::Artifact kernel = kernels_of(node).front();
    if (!(kernel.config == artifact_.config))
      node.fail(ErrorCode::kInvalidArgument, "the kernel was built for " + kernel.config.name +
                                                 ", and the model is compiled for " + artifact_.config.name +
                                                 "; embed it again with --config " + artifact_.config.name);
    program::NpuStep step = std::get<program::NpuStep>(kernel.plans[0].steps[0]);
    program::NpuProgram target = kernel.npu_programs[0];
    target.constant_offset = align64(artifact_.device_constants.size());
    artifact_.device_constants.resize(target.constant_offset);
    artifact_.device_constants.insert(artifact_.device_constants.end(), kernel.device_constants.begin(),
                                      kernel.device_constants.end());
    artifact_.totals.unshared_bytes += kernel.totals.unshared_bytes;
    for (program::Layer& layer : target.layers) {
      artifact_.totals.macs_npu += times_ * layer.macs;
      layer.nodes = {node.name};
      layer.name = node.name + " " + layer.name;
    }
    count_nodes({node.name});
    for (size_t i = 0; i < step.inputs.size(); ++i) step.inputs[i].value = value_id(op.getInputs()[i]);
    for (size_t i = 0; i < step.outputs.size(); ++i) step.outputs[i].value = value_id(op.getOutputs()[i]);
    step.program = static_cast<int64_t>(artifact_.npu_programs.size());
    artifact_.npu_programs.push_back(std::move(target));
    return step;
  }

  // --- plans

  void add_turns(program::Plan& plan, const std::vector<Turn>& turns) {
    for (const Turn& turn : turns) {
      report(turn.graph ? "NPU program" : "CPU steps");
      if (turn.graph) {
        plan.steps.emplace_back(npu_step(*turn.graph));
      } else {
        cpu_steps(plan, turn);
      }
    }
  }

  void report(const std::string& what) {
    auto total = static_cast<int64_t>(selection_.turns.size());
    for (const auto& [block, turns] : selection_.bodies) total += static_cast<int64_t>(turns.size());
    if (options_.progress) options_.progress(what, done_, total);
    ++done_;
  }

  /// Kernels one by one, or compiled functions over runs of operations that can be compiled.
  void cpu_steps(program::Plan& plan, const Turn& turn) {
    std::vector<NodeOp> run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (!compiled_run(plan, run))
        for (NodeOp op : run) plan.steps.emplace_back(kernel_step(op));
      run.clear();
    };
    for (NodeOp op : turn.cpu) {
      if (is_kernel(op)) {
        flush();
        plan.steps.emplace_back(embedded_step(op));
      } else if (options_.cpu && !grows(op) && options_.cpu->supports(op)) {
        run.push_back(op);
        if (run.size() >= 32) flush();
      } else {
        flush();
        plan.steps.emplace_back(kernel_step(op));
      }
    }
    flush();
  }

  /// Compiled code has fixed shapes.
  bool grows(NodeOp op) const {
    const auto any = [&](mlir::ValueRange values) {
      return std::any_of(values.begin(), values.end(),
                         [&](mlir::Value v) { return !nn::axes_of(options_.growing, v).empty(); });
    };
    return any(op.getInputs()) || any(op.getOutputs());
  }

  bool compiled_run(program::Plan& plan, const std::vector<NodeOp>& run) {
    std::set<mlir::Operation*> inside;
    for (NodeOp op : run) inside.insert(op.getOperation());
    std::vector<mlir::Value> inputs, outputs;
    std::set<const void*> seen;
    for (NodeOp op : run) {
      for (mlir::Value v : op.getInputs()) {
        if (nn::is_none(v) || (v.getDefiningOp() && inside.count(v.getDefiningOp()))) continue;
        if (seen.insert(v.getAsOpaquePointer()).second) inputs.push_back(v);
      }
      for (mlir::Value v : op.getOutputs()) {
        // Needed outside by anyone, also by a claim that stands for its readers.
        const bool outside = selection_.claim_reads.count(v.getAsOpaquePointer()) != 0 ||
                             std::any_of(v.getUsers().begin(), v.getUsers().end(),
                                         [&](mlir::Operation* user) { return !inside.count(user); });
        if (outside) outputs.push_back(v);
      }
    }
    if (outputs.empty()) return false;
    auto step = options_.cpu->add(run, inputs, outputs);
    if (!step) return false;
    step->inputs.clear();
    step->outputs.clear();
    for (mlir::Value v : inputs) step->inputs.push_back(value_id(v));
    for (mlir::Value v : outputs) step->outputs.push_back(value_id(v));
    step->layer = cpu_layer(run);
    if (step->node_name.empty()) step->node_name = artifact_.cpu_layers[static_cast<size_t>(step->layer)].name;
    plan.steps.emplace_back(std::move(*step));
    return true;
  }

  const Selection& selection_;
  const std::vector<npu::Graph>& graphs_;
  const Options& options_;
  program::Artifact artifact_;
  int64_t done_ = 0;    // turns
  uint64_t times_ = 1;  // that the steps at hand run
  std::unordered_map<const void*, int64_t> ids_;
  std::set<std::string> names_, counted_;
  std::map<std::string, int64_t> named_;  // layers so far by name
  std::set<std::string> used_schedules_;  // layers that there are, by their keys
};

}  // namespace

std::vector<std::optional<schedule::LayerSchedule>> given_schedules(const npu::Graph& graph, const Options& options,
                                                                    std::map<std::string, int64_t>& named) {
  std::vector<std::optional<schedule::LayerSchedule>> schedules;
  for (const npu::Operation& operation : graph.operations) {
    const auto given = options.schedules.find(program::layer_key(operation.name, named));
    schedules.push_back(given == options.schedules.end() ? std::nullopt : std::optional(given->second));
  }
  return schedules;
}

program::Artifact package(mlir::func::FuncOp function, const Selection& selection,
                          const std::vector<npu::Graph>& graphs, const isa::MachineConfig& config,
                          const Options& options) {
  return Assembler(selection, graphs, config, options).run(function);
}

}  // namespace tessera::partition
