// SPDX-License-Identifier: Apache-2.0
// Scheduling of claims and CPU operations, and assembly of the artifact. Only what the results need is scheduled: an
// operation that a claim stands for disappears unless somebody else reads its value. NPU regions grow as far as they
// can; then the CPU operations that are ready run; and so on until all is placed.
#include "compiler/partition/partition.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <unordered_map>

#include "compiler/partition/claims.h"
#include "compiler/partition/region.h"

namespace tessera::partition {
namespace {

using nn::NodeOp;

program::DType to_program(ops::DType dtype) { return static_cast<program::DType>(dtype); }

uint64_t align64(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

class Assembler {
 public:
  Assembler(const isa::MachineConfig& config, const Options& options) : options_(options) { artifact_.config = config; }

  program::Artifact run(mlir::ModuleOp module) {
    auto function = module.lookupSymbol<mlir::func::FuncOp>("main");
    if (!function) throw Error(ErrorCode::kInternal, "the module has no function 'main'");
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
    program::Plan plan = main_plan(function);
    artifact_.plans[0] = std::move(plan);
    check_schedules();
    if (options_.cpu) artifact_.cpu = options_.cpu->finish();
    artifact_.metadata["nodes_npu"] = std::to_string(nodes_npu_);
    artifact_.metadata["nodes_cpu"] = std::to_string(nodes_cpu_);
    artifact_.metadata["macs_npu"] = std::to_string(macs_npu_);
    artifact_.metadata["macs_cpu"] = std::to_string(macs_cpu_);
    artifact_.metadata["unshared_bytes"] = std::to_string(unshared_bytes_);
    return std::move(artifact_);
  }

 private:
  // --- values and constants
  // ----------------------------------------------------------------------------------------------------

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
      if (packed) {
        std::memset(to, 0, info.bytes);
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

  static std::vector<std::string> covered_nodes(const std::vector<mlir::Operation*>& operations) {
    std::vector<std::string> names;
    for (mlir::Operation* op : operations)
      for (std::string& name : nn::node_names(op->getLoc())) names.push_back(std::move(name));
    return names;
  }

  // --- CPU steps
  // ---------------------------------------------------------------------------------------------------------------

  int64_t cpu_layer(const std::vector<NodeOp>& ops) {
    program::Layer layer;
    layer.placement = "cpu";
    std::vector<mlir::Operation*> operations;
    for (NodeOp op : ops) {
      operations.push_back(op.getOperation());
      const auto macs = static_cast<uint64_t>(model_macs(op));
      layer.macs += macs;
      macs_cpu_ += macs;
      const std::string type = op.getOpType().str();
      layer.op += (layer.op.empty() ? "" : "+") + type;
    }
    if (layer.op.size() > 80) layer.op = layer.op.substr(0, 77) + "...";
    layer.nodes = covered_nodes(operations);
    layer.name = layer.nodes.empty() ? NodeOp(ops[0]).getOpType().str() : layer.nodes[0];
    nodes_cpu_ += static_cast<int64_t>(ops.size());
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
    for (size_t i = 0; i < op.getBodies().size(); ++i) {
      program::Attribute body;
      body.name = mlir::cast<mlir::StringAttr>(op.getBodyNames()[i]).str();
      body.kind = program::Attribute::kPlan;
      body.plan = body_plan(op.getBodies()[i]);
      step.attributes.push_back(std::move(body));
    }
    for (mlir::Value v : op.getInputs()) step.inputs.push_back(value_id(v));
    for (mlir::Value v : op.getOutputs()) step.outputs.push_back(value_id(v));
    step.layer = cpu_layer({op});
    return step;
  }

  /// The body of a control-flow operator: kernels in order, values of the enclosing plan captured.
  int64_t body_plan(mlir::Region& region) {
    program::Plan plan;
    mlir::Block& block = region.front();
    for (mlir::Value argument : block.getArguments()) plan.inputs.push_back(value_id(argument));
    std::set<int64_t> captured;
    for (mlir::Operation& operation : block) {
      if (auto op = mlir::dyn_cast<NodeOp>(operation)) plan.steps.emplace_back(kernel_step(op));
    }
    for (mlir::Value v : block.getTerminator()->getOperands()) plan.outputs.push_back(value_id(v));
    for (mlir::Value v : outer_values(region))
      if (!nn::constant_value(v)) captured.insert(value_id(v));
    plan.captured.assign(captured.begin(), captured.end());
    artifact_.plans.push_back(std::move(plan));
    return static_cast<int64_t>(artifact_.plans.size()) - 1;
  }

  /// Values defined outside a region and read inside it.
  static std::vector<mlir::Value> outer_values(mlir::Region& region) {
    std::vector<mlir::Value> values;
    region.walk([&](mlir::Operation* op) {
      for (mlir::Value v : op->getOperands())
        if (!nn::is_none(v) && !region.isAncestor(v.getParentRegion())) values.push_back(v);
    });
    return values;
  }

  /// Run-time values an operation reads, those of its bodies included.
  static std::vector<mlir::Value> reads(mlir::Operation* op) {
    std::vector<mlir::Value> values;
    for (mlir::Value v : op->getOperands())
      if (!nn::is_none(v)) values.push_back(v);
    for (mlir::Region& region : op->getRegions())
      for (mlir::Value v : outer_values(region)) values.push_back(v);
    return values;
  }

  // --- NPU steps
  // ---------------------------------------------------------------------------------------------------------------

  /// Refuses schedules that nobody asked for.
  void check_schedules() const {
    for (const auto& given : options_.schedules) {
      const std::string& name = given.first;
      if (used_schedules_.contains(name)) continue;
      const auto covers = [&](const program::Layer& layer) {
        return std::find(layer.nodes.begin(), layer.nodes.end(), name) != layer.nodes.end();
      };
      std::string why = "no layer on the NPU has this name", known;
      size_t count = 0;
      for (const program::NpuProgram& npu : artifact_.npu_programs)
        for (const program::Layer& layer : npu.layers) {
          if (covers(layer)) why = "it is part of layer '" + layer.name + "'";
          if (count++ < 8) known += (known.empty() ? "'" : ", '") + layer.name + "'";
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
    for (const std::string& name : nodes) nodes_npu_ += counted_.insert(name).second ? 1 : 0;
  }

  program::NpuStep npu_step(Region::Result region) {
    const isa::MachineConfig& config = artifact_.config;
    npu::Options npu_options = options_.npu;
    npu_options.schedules.assign(region.graph.operations.size(), "");
    for (size_t i = 0; i < region.graph.operations.size(); ++i) {
      const auto given = options_.schedules.find(program::layer_key(region.graph.operations[i].name, named_));
      if (given == options_.schedules.end()) continue;
      npu_options.schedules[i] = given->second;
      used_schedules_.insert(given->first);
    }
    npu::Program compiled = npu::compile(region.graph, config, npu_options);
    program::NpuProgram target;
    target.instructions = program::instruction_bytes(compiled.instructions);
    target.layer_of_instruction = compiled.layer_of_instruction;
    target.constant_offset = align64(artifact_.device_constants.size());
    target.constant_bytes = compiled.constants.size();
    artifact_.device_constants.resize(target.constant_offset);
    artifact_.device_constants.insert(artifact_.device_constants.end(), compiled.constants.begin(),
                                      compiled.constants.end());
    target.arena_bytes = compiled.arena_bytes;
    unshared_bytes_ += compiled.unshared_bytes;
    for (size_t i = 0; i < compiled.layers.size(); ++i) {
      const npu::LayerInfo& info = compiled.layers[i];
      program::Layer layer;
      layer.name = info.name;
      layer.op = info.kind;
      layer.placement = "npu";
      layer.macs = static_cast<uint64_t>(info.macs);
      layer.schedule_json = info.schedule;
      layer.nodes = region.nodes[i];
      layer.predicted_cycles = static_cast<uint64_t>(info.estimated_cycles);
      layer.dram_read_bytes = static_cast<uint64_t>(info.dram_read_bytes);
      layer.dram_write_bytes = static_cast<uint64_t>(info.dram_write_bytes);
      layer.stream_bytes.assign(info.stream_bytes.begin(), info.stream_bytes.end());
      const auto peak = static_cast<uint64_t>(config.peak_macs()), width = static_cast<uint64_t>(config.axi_bytes);
      layer.bound_cycles = std::max((layer.macs + peak - 1) / peak,
                                    (layer.dram_read_bytes + layer.dram_write_bytes + width - 1) / width);
      macs_npu_ += layer.macs;
      count_nodes(layer.nodes);
      target.layers.push_back(std::move(layer));
    }
    count_nodes(region.free_nodes);
    program::NpuStep step;
    step.program = static_cast<int64_t>(artifact_.npu_programs.size());
    artifact_.npu_programs.push_back(std::move(target));
    const auto bind = [&](const Binding& binding, bool input) {
      const npu::Tensor& t = region.graph.tensors[static_cast<size_t>(binding.tensor)];
      const npu::Placement& p = compiled.placements[static_cast<size_t>(binding.tensor)];
      program::DeviceTensor d;
      d.value = value_id(binding.value);
      d.offset = static_cast<uint64_t>(p.offset);
      d.dtype = artifact_.values[static_cast<size_t>(d.value)].dtype;
      d.n = t.n, d.h = t.h, d.w = t.w, d.c = t.c, d.padded_c = t.c;
      d.image_pitch = p.image_pitch, d.row_pitch = p.row_pitch, d.pixel_pitch = p.pixel_pitch;
      d.axes = binding.axes;
      if (input) {
        d.border_top = static_cast<int32_t>(t.border.top), d.border_left = static_cast<int32_t>(t.border.left);
        d.border_bottom = static_cast<int32_t>(t.border.bottom), d.border_right = static_cast<int32_t>(t.border.right);
        d.border_value = static_cast<uint8_t>(t.border.value);
      }
      return d;
    };
    for (const Binding& b : region.inputs) step.inputs.push_back(bind(b, true));
    for (const Binding& b : region.outputs) step.outputs.push_back(bind(b, false));
    return step;
  }

  // --- the main plan
  // -----------------------------------------------------------------------------------------------------------

  program::Plan main_plan(mlir::func::FuncOp function) {
    mlir::Block& block = function.getBody().front();
    program::Plan plan;
    for (mlir::Value argument : block.getArguments()) plan.inputs.push_back(value_id(argument));

    std::vector<NodeOp> operations;
    std::unordered_map<mlir::Operation*, Claim> claims;
    for (mlir::Operation& operation : block)
      if (auto op = mlir::dyn_cast<NodeOp>(operation)) {
        operations.push_back(op);
        if (!options_.use_npu) continue;
        if (auto found = claim(op)) claims.emplace(op.getOperation(), std::move(*found));
      }

    drop_idle_moves(operations, claims);
    for (bool again = true; again;) {
      again = false;
      schedule(block, operations, claims);
      for (mlir::Operation* op : refused_) {
        // Its layout fits nowhere, or it is an alias of a host value: the CPU does it, and what is needed changes.
        again = claims.erase(op) != 0 || again;
      }
      refused_.clear();
    }

    for (const auto& [root, claim] : claims)
      for (mlir::Value v : claim.operands) claim_reads_.insert(v.getAsOpaquePointer());
    int64_t done = 0;
    const auto total = static_cast<int64_t>(slots_.size());
    for (Slot& slot : slots_) {
      if (slot.region) {
        report("NPU program", done, total);
        const size_t first = slot.claims.size();
        (void)first;
        plan.steps.emplace_back(npu_step(std::move(*slot.region).finish(slot.outputs)));
      } else {
        report("CPU steps", done, total);
        cpu_steps(plan, slot);
      }
      ++done;
    }
    for (mlir::Value v : block.getTerminator()->getOperands()) plan.outputs.push_back(value_id(v));
    return plan;
  }

  /// Movements with no computation of the NPU before or behind them, other movements aside, stay with the CPU.
  static void drop_idle_moves(const std::vector<NodeOp>& operations,
                              std::unordered_map<mlir::Operation*, Claim>& claims) {
    std::set<mlir::Operation*> useful;
    std::set<const void*> read;  // values that useful claims read
    for (bool changed = true; changed;) {
      changed = false;
      for (auto& [op, claim] : claims) {
        if (useful.count(op)) continue;
        bool beside = !only_moves(claim);
        for (mlir::Value v : claim.operands) beside = beside || (v.getDefiningOp() && useful.count(v.getDefiningOp()));
        for (mlir::Value v : op->getResults()) beside = beside || read.count(v.getAsOpaquePointer());
        if (!beside) continue;
        changed = useful.insert(op).second;
        for (mlir::Value v : claim.operands) read.insert(v.getAsOpaquePointer());
      }
    }
    for (NodeOp op : operations)
      if (!useful.count(op.getOperation())) claims.erase(op.getOperation());
  }

  void report(const std::string& what, int64_t done, int64_t total) {
    if (options_.progress) options_.progress(what, done, total);
  }

  /// One turn of the NPU or of the CPU.
  struct Slot {
    std::unique_ptr<Region> region;
    std::vector<mlir::Operation*> claims;  // roots in the region
    std::vector<mlir::Value> outputs;      // of the region, needed elsewhere
    std::vector<NodeOp> cpu;
  };

  void schedule(mlir::Block& block, const std::vector<NodeOp>& operations,
                const std::unordered_map<mlir::Operation*, Claim>& claims) {
    slots_.clear();
    // What is needed, from the results backwards.
    std::set<mlir::Operation*> needed;
    std::vector<mlir::Value> wanted(block.getTerminator()->operand_begin(), block.getTerminator()->operand_end());
    while (!wanted.empty()) {
      mlir::Value v = wanted.back();
      wanted.pop_back();
      auto op = mlir::dyn_cast_or_null<NodeOp>(v.getDefiningOp());
      if (!op || op->getBlock() != &block || !needed.insert(op.getOperation()).second) continue;
      const auto found = claims.find(op.getOperation());
      for (mlir::Value read : found != claims.end() ? found->second.operands : reads(op.getOperation()))
        wanted.push_back(read);
    }
    std::vector<NodeOp> pending;
    for (NodeOp op : operations)
      if (needed.count(op.getOperation())) pending.push_back(op);

    std::set<const void*> host;  // values the host has
    const auto on_host = [&](mlir::Value v) {
      mlir::Operation* def = v.getDefiningOp();
      return !def || !mlir::isa<NodeOp>(def) || def->getBlock() != &block || host.count(v.getAsOpaquePointer()) != 0;
    };
    while (!pending.empty()) {
      const size_t before = pending.size();
      Slot cpu;
      std::vector<NodeOp> rest;
      for (NodeOp op : pending) {
        const bool on_npu = claims.count(op.getOperation()) != 0;
        const auto values = reads(op.getOperation());
        if (!on_npu && std::all_of(values.begin(), values.end(), on_host)) {
          cpu.cpu.push_back(op);
          for (mlir::Value v : op.getOutputs()) host.insert(v.getAsOpaquePointer());
        } else {
          rest.push_back(op);
        }
      }
      if (!cpu.cpu.empty()) slots_.push_back(std::move(cpu));
      pending = std::move(rest);
      rest.clear();

      Slot npu;
      npu.region = std::make_unique<Region>(artifact_.config);
      for (NodeOp op : pending) {
        const auto found = claims.find(op.getOperation());
        if (found == claims.end()) {
          rest.push_back(op);
          continue;
        }
        const Claim& c = found->second;
        const bool here = std::all_of(c.operands.begin(), c.operands.end(),
                                      [&](mlir::Value v) { return on_host(v) || npu.region->produces(v); });
        if (here && npu.region->add(c)) {
          npu.claims.push_back(op.getOperation());
        } else {
          const bool all_on_host = std::all_of(c.operands.begin(), c.operands.end(), on_host);
          // On the host already and still no fit, or a reshape of a host value.
          if (here && all_on_host) refused_.push_back(op.getOperation());
          rest.push_back(op);
        }
      }
      if (!refused_.empty()) return;
      pending = std::move(rest);
      if (npu.region->empty() && npu.claims.empty()) {
        if (pending.size() == before)
          throw Error(ErrorCode::kInternal,
                      "the graph cannot be put in order at node '" + nn::node_name(pending[0].getOperation()) + "'");
        continue;
      }
      // Results that somebody outside reads.
      const std::set<mlir::Operation*> inside(npu.claims.begin(), npu.claims.end());
      std::set<const void*> read_outside;
      for (NodeOp op : pending) {
        const auto found = claims.find(op.getOperation());
        for (mlir::Value v : found != claims.end() ? found->second.operands : reads(op.getOperation()))
          read_outside.insert(v.getAsOpaquePointer());
      }
      for (mlir::Value v : block.getTerminator()->getOperands()) read_outside.insert(v.getAsOpaquePointer());
      for (mlir::Operation* op : npu.claims)
        for (mlir::Value v : op->getResults())
          if (read_outside.count(v.getAsOpaquePointer())) {
            npu.outputs.push_back(v);
            host.insert(v.getAsOpaquePointer());
          }
      slots_.push_back(std::move(npu));
    }
  }

  /// Kernels one by one, or compiled functions over runs of operations that can be compiled.
  void cpu_steps(program::Plan& plan, const Slot& slot) {
    std::vector<NodeOp> run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (!compiled_run(plan, run))
        for (NodeOp op : run) plan.steps.emplace_back(kernel_step(op));
      run.clear();
    };
    for (NodeOp op : slot.cpu) {
      if (options_.cpu && options_.cpu->supports(op)) {
        run.push_back(op);
        if (run.size() >= 32) flush();
      } else {
        flush();
        plan.steps.emplace_back(kernel_step(op));
      }
    }
    flush();
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
        const bool outside = claim_reads_.count(v.getAsOpaquePointer()) != 0 ||
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

  const Options& options_;
  program::Artifact artifact_;
  std::unordered_map<const void*, int64_t> ids_;
  std::set<std::string> names_, counted_;
  std::set<const void*> claim_reads_;  // values that claims read past the operations they stand for
  std::vector<Slot> slots_;
  std::vector<mlir::Operation*> refused_;
  int64_t nodes_npu_ = 0, nodes_cpu_ = 0;
  std::map<std::string, int64_t> named_;  // layers so far by name
  std::set<std::string> used_schedules_;
  uint64_t macs_npu_ = 0, macs_cpu_ = 0, unshared_bytes_ = 0;
};

}  // namespace

program::Artifact partition(mlir::ModuleOp module, const isa::MachineConfig& config, const Options& options) {
  return Assembler(config, options).run(module);
}

}  // namespace tessera::partition
