// SPDX-License-Identifier: Apache-2.0
// The sequence of rooms: onnx -> nn passes -> partition. Diagnostics of MLIR become one tessera::Error whose message
// begins with the node's name, taken from the operation's location.
#include "compiler/pipeline/model.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "llvm/Config/llvm-config.h"
#include "llvm/TargetParser/Host.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassManager.h"

#include "compiler/litert/to_onnx.h"
#include "compiler/nn/growing_axes.h"
#include "compiler/nn/id_bounds.h"
#include "compiler/nn/inference.h"
#include "compiler/nn/interpreter.h"
#include "compiler/nn/module_text.h"
#include "compiler/nn/passes/passes.h"
#include "compiler/nn/reshape_target.h"
#include "compiler/nn/unfit_scales.h"
#include "compiler/npu/graph/schedule_text.h"
#include "compiler/npu/lowering/chain.h"
#include "compiler/npu/planning/search_log.h"
#include "compiler/npu/planning/search_memo.h"
#include "compiler/npu/tasks/task_text.h"
#include "compiler/onnx/import.h"
#include "compiler/onnx/model_file.h"
#include "compiler/onnx/self_contained.h"
#include "compiler/partition/operator_class.h"
#include "compiler/partition/partition.h"
#include "compiler/schedule/text/json.h"
#include "compiler/text/text.h"
#include "isa/assembler.h"
#if TESSERA_HAVE_CPU_CODEGEN
#include "compiler/cpu/codegen.h"
#endif

namespace tessera::compiler {
namespace {

/// What the attributes and the type of an argument or a result say; `named`: from the name of an attribute to it.
Port port_of(mlir::Type type, const auto& named) {
  Port port;
  if (auto name = mlir::dyn_cast_or_null<mlir::StringAttr>(named(nn::kNameAttr))) port.name = name.str();
  const ops::TypeInfo info = nn::to_type_info(type);
  port.dtype = info.dtype;
  port.ranked = info.ranked;
  port.shape = info.shape;
  if (info.kind == ops::TypeInfo::Kind::kSequence) port.kind = program::ValueKind::kSequence;
  if (info.kind == ops::TypeInfo::Kind::kOptional) port.kind = program::ValueKind::kOptional;
  if (auto names = mlir::dyn_cast_or_null<mlir::ArrayAttr>(named(nn::kDimNamesAttr)))
    for (mlir::Attribute name : names) port.dim_names.push_back(mlir::cast<mlir::StringAttr>(name).str());
  if (auto keys = mlir::dyn_cast_or_null<mlir::ArrayAttr>(named(nn::kMapKeysAttr))) {
    for (mlir::Attribute key : keys) {
      if (auto text = mlir::dyn_cast<mlir::StringAttr>(key))
        port.keys.strings.push_back(text.str());
      else
        port.keys.ints.push_back(mlir::cast<mlir::IntegerAttr>(key).getInt());
    }
  }
  return port;
}

std::vector<Port> ports(mlir::func::FuncOp function, bool inputs) {
  std::vector<Port> out;
  const auto types = inputs ? function.getArgumentTypes() : function.getResultTypes();
  for (unsigned i = 0; i < types.size(); ++i) {
    out.push_back(port_of(types[i], [&](llvm::StringRef name) {
      return inputs ? function.getArgAttr(i, name) : function.getResultAttr(i, name);
    }));
  }
  return out;
}

/// Takes the list of overridable initializers off the function.
std::vector<Port> take_overridable(mlir::func::FuncOp function) {
  std::vector<Port> out;
  if (auto listed = mlir::dyn_cast_or_null<mlir::ArrayAttr>(function->removeAttr(onnx::kOverridableAttr))) {
    for (const auto described : listed.getAsRange<mlir::DictionaryAttr>()) {
      const auto type = described.getAs<mlir::TypeAttr>(onnx::kOverridableType).getValue();
      out.push_back(port_of(type, [&](llvm::StringRef name) { return described.get(name); }));
    }
  }
  return out;
}

onnx::ImportOptions to_import(const ImportOptions& options) {
  onnx::ImportOptions out;
  for (const auto& [name, shape] : options.shapes) out.shapes[name] = shape;
  out.dims = options.dims;
  out.overrides = options.overrides;
  out.list_overridable = true;
  out.directory = options.directory;
  out.litert_reference = options.litert_kernels == "reference";
  out.external = options.external;
  return out;
}

Snapshot module_snapshot(const std::string& step, mlir::ModuleOp module) {
  return {step, "mlir", [module](bool elide) { return nn::module_to_text(module, elide); }};
}

/// Shows the module after each pass that has a name.
class AfterPass : public mlir::PassInstrumentation {
 public:
  explicit AfterPass(SnapshotObserver observer) : observer_(std::move(observer)) {}
  void runAfterPass(mlir::Pass* pass, mlir::Operation* operation) override {
    if (pass->getArgument().empty()) return;
    auto module = mlir::dyn_cast<mlir::ModuleOp>(operation);
    if (!module) module = operation->getParentOfType<mlir::ModuleOp>();
    observer_(module_snapshot(pass->getArgument().str(), module));
  }

 private:
  SnapshotObserver observer_;
};

std::vector<graph::AnyGraph> read_graphs(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(ErrorCode::kIo, "cannot open '" + path + "' for reading");
  return graph::graphs_from_text(std::string(std::istreambuf_iterator<char>(in), {}), path);
}

/// What a graph of the NPU became.
void show_program(const SnapshotObserver& observer, const npu::Graph& graph, const npu::Program& program,
                  const isa::MachineConfig& config, const npu::Options& options) {
  const auto listing = [&](const std::vector<isa::Instruction>& instructions, const std::vector<uint32_t>& layers) {
    std::vector<std::string> notes;
    for (const uint32_t layer : layers)
      notes.push_back(layer < program.layers.size() ? program.layers[layer].name : "");
    return isa::listing(instructions, notes);
  };
  const auto show_schedules = [&] {
    observer({graph.name + ".schedules", "json", [&](bool) {
                std::string text = "{";
                for (size_t i = 0; i < graph.operations.size(); ++i) {
                  const npu::LayerInfo& layer = program.layers[i];
                  if (!std::holds_alternative<npu::Kernel>(graph.operations[i].what))
                    text += (text.size() > 1 ? ",\n " : "\n ") + text::quote(layer.name) + ": " +
                            (layer.divided ? schedule::to_json(*layer.divided) : schedule::to_json(layer.schedule));
                }
                return text + "\n}\n";
              }});
  };
  if (!program.others.empty()) {
    show_schedules();
    observer({graph.name + ".core0.instructions", "asm",
              [&](bool) { return listing(program.instructions, program.layer_of_instruction); }});
    for (size_t k = 0; k < program.others.size(); ++k)
      observer({graph.name + ".core" + std::to_string(k + 1) + ".instructions", "asm", [&, k](bool) {
                  return listing(program.others[k].instructions, program.others[k].layer_of_instruction);
                }});
    return;
  }
  // Weights stand in the graph; here their bytes would only be in the way.
  observer({graph.name + ".tasks", "txt",
            [&](bool) { return npu::to_text(npu::tasks_of(graph, program, config, options), graph, true); }});
  observer({graph.name + ".schedules", "txt", [&](bool) { return npu::schedules_to_text(graph, program); }});
  show_schedules();
  observer({graph.name + ".instructions", "asm",
            [&](bool) { return listing(program.instructions, program.layer_of_instruction); }});
}

}  // namespace

struct Model::State {
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<Port> inputs, outputs, overridable;
  std::string unfit_scales;  // before the passes, which give other names
  bool optimised = false;
  // The model again, for another length of the past.
  std::function<mlir::OwningOpRef<mlir::ModuleOp>(mlir::MLIRContext&, const onnx::ImportOptions&)> import;
  onnx::ImportOptions given;

  State() { context.loadDialect<nn::NNDialect, mlir::func::FuncDialect>(); }
  mlir::func::FuncOp main() {
    auto function = module->lookupSymbol<mlir::func::FuncOp>("main");
    TESSERA_INVARIANT(function, "an imported module has a main function");
    return function;
  }
  void read_ports() {
    inputs = ports(main(), true);
    const std::vector<int64_t> bounds = nn::id_bounds(main());
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].rows = bounds[i];
    outputs = ports(main(), false);
    overridable = take_overridable(main());
  }
  bool is_dynamic() const {
    return std::any_of(inputs.begin(), inputs.end(), [](const Port& port) {
      return port.kind == program::ValueKind::kTensor && port.ranked &&
             std::any_of(port.shape.begin(), port.shape.end(), [](int64_t d) { return d < 0; });
    });
  }
};

namespace {

mlir::func::FuncOp main_of(mlir::ModuleOp module) { return module.lookupSymbol<mlir::func::FuncOp>("main"); }

/// The graph passes over a module.
void run_passes(mlir::MLIRContext& context, mlir::ModuleOp module, const SnapshotObserver& snapshots, bool close) {
  if (snapshots) snapshots(module_snapshot("import", module));
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic& diagnostic) {
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && message.empty()) {
      const std::string node = nn::node_name(diagnostic.getLocation());
      const std::string text = diagnostic.str();
      message = node.empty() || text.find(node) != std::string::npos ? text : "node '" + node + "': " + text;
    }
    return mlir::success();
  });
  mlir::PassManager manager(&context);
  nn::PipelineOptions passes;
  passes.close = close;
  nn::build_nn_pipeline(manager, passes);
  if (snapshots) manager.addInstrumentation(std::make_unique<AfterPass>(snapshots));
  if (mlir::failed(manager.run(module)))
    throw Error(ErrorCode::kInvalidModel, message.empty() ? "the graph passes failed without a message" : message);
}

/// A decoder for its longest past.
struct Bounded {
  mlir::OwningOpRef<mlir::ModuleOp> module, shorter;
  program::Growth growth;
  nn::GrowingAxes axes;
};

}  // namespace

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

std::string self_contained(const ModelSource& source) { return onnx::self_contained(source); }

std::set<std::string> external_locations(const ModelSource& source) { return onnx::external_locations(source); }

std::string as_onnx(std::string_view bytes) {
  return litert::is_litert(bytes) ? litert::to_onnx(bytes)->SerializePartialAsString() : std::string(bytes);
}

std::string surroundings() {
  std::string text = LLVM_VERSION_STRING " " + llvm::sys::getProcessTriple() + " " + llvm::sys::getHostCPUName().str();
  std::map<std::string, bool> features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) features[feature.getKey().str()] = feature.getValue();
  for (const auto& [name, has] : features) text += (has ? " +" : " -") + name;
  return text;
}

std::string metadata(std::string_view bytes, const std::string& key) { return onnx::metadata_of(bytes, key); }

Model Model::from_source(const ModelSource& source, const ImportOptions& options) {
  auto state = std::make_unique<State>();
  state->given = to_import(options);
  state->module = onnx::import_onnx(state->context, source, state->given);
  state->read_ports();
  state->unfit_scales = nn::unfit_scales(*state->module);
  if (state->is_dynamic())
    state->import = [source](mlir::MLIRContext& context, const onnx::ImportOptions& to) {
      return onnx::import_onnx(context, source, to);
    };
  return Model(std::move(state));
}

Model Model::from_file(const std::string& path, const ImportOptions& options) {
  return from_source(ModelSource::from_file(path), options);
}

Model Model::from_bytes(std::string_view bytes, const ImportOptions& options) {
  return from_source(ModelSource::from_bytes(std::string(bytes)), options);
}

const std::vector<Port>& Model::inputs() const { return state_->inputs; }
const std::vector<Port>& Model::outputs() const { return state_->outputs; }
const std::vector<Port>& Model::overridable() const { return state_->overridable; }

std::vector<int64_t> Model::constant_extents() const {
  std::map<int64_t, size_t> counts;
  state_->module->walk([&](nn::ConstantOp constant) {
    for (const int64_t extent : nn::to_type_info(constant.getType()).shape) ++counts[extent];
  });
  std::vector<int64_t> extents;
  for (const auto& [extent, count] : counts) extents.push_back(extent);
  std::stable_sort(extents.begin(), extents.end(), [&](int64_t a, int64_t b) { return counts[a] > counts[b]; });
  return extents;
}

void Model::optimise(const SnapshotObserver& snapshots, bool close) {
  if (state_->optimised) return;
  run_passes(state_->context, *state_->module, snapshots, close);
  state_->optimised = true;
}

int64_t Model::close_candidates() const {
  return state_->optimised ? nn::count_close_rows(state_->main()) + nn::count_close_products(state_->main()) : 0;
}

const std::string& Model::unfit_scales() const { return state_->unfit_scales; }

std::vector<ops::Value> Model::interpret(const std::vector<ops::Value>& inputs, const Observer& observer) {
  optimise();
  nn::Observer inner;
  if (observer)
    inner = [&](nn::NodeOp op, const std::vector<ops::Value>& results) {
      std::vector<std::string> names;
      for (mlir::Value v : op.getOutputs()) names.push_back(nn::value_name(v));
      observer(nn::node_name(op.getOperation()), op.getOpType().str(), names, results);
    };
  return nn::interpret(state_->main(), inputs, inner);
}

std::map<std::string, std::vector<size_t>> Model::growing_inputs() const {
  std::map<std::string, std::vector<size_t>> growing;
  std::vector<std::string> symbols;
  const auto name_of = [](const Port& port, size_t axis) {
    return axis < port.dim_names.size() ? port.dim_names[axis] : std::string();
  };
  for (const nn::PastInput& past : nn::past_inputs(state_->main())) {
    const Port& port = inputs()[past.input];
    growing[port.name].push_back(static_cast<size_t>(past.axis));
    if (const std::string name = name_of(port, static_cast<size_t>(past.axis)); !name.empty()) symbols.push_back(name);
  }
  if (growing.empty()) return growing;
  // Others that follow: masks and positions over all that has been.
  for (const Port& port : inputs()) {
    if (growing.count(port.name) != 0 || port.kind != program::ValueKind::kTensor || !port.ranked) continue;
    for (size_t i = 0; i < port.shape.size(); ++i) {
      if (port.shape[i] >= 0) continue;
      const std::string name = name_of(port, i);
      if (name.find("total") != std::string::npos ||
          std::any_of(symbols.begin(), symbols.end(),
                      [&](const std::string& symbol) { return name.find(symbol) != std::string::npos; }))
        growing[port.name].push_back(i);
    }
  }
  return growing;
}

std::vector<program::Past> Model::pasts() const {
  std::vector<program::Past> pasts;
  for (const nn::PastInput& past : nn::past_inputs(state_->main()))
    pasts.push_back({past.input, past.output, past.axis});
  return pasts;
}

namespace {

/// The import options with each growing dimension of the pasts `past` long, and that of the others `total` (kOpen: as
/// the model has it).
onnx::ImportOptions sized(const onnx::ImportOptions& given, const std::vector<Port>& inputs,
                          const std::map<std::string, std::vector<size_t>>& growing,
                          const std::vector<nn::PastInput>& pasts, int64_t past, int64_t total) {
  onnx::ImportOptions to = given;
  std::string symbol;
  for (const nn::PastInput& p : pasts) {
    const std::vector<std::string>& names = inputs[p.input].dim_names;
    if (static_cast<size_t>(p.axis) < names.size()) symbol = names[static_cast<size_t>(p.axis)];
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto axes = growing.find(inputs[i].name);
    if (axes == growing.end()) continue;
    const bool is_past = std::any_of(pasts.begin(), pasts.end(), [&](const auto& p) { return p.input == i; });
    std::vector<int64_t> shape = inputs[i].shape;
    for (const size_t axis : axes->second) {
      const bool same = axis < inputs[i].dim_names.size() && !symbol.empty() && inputs[i].dim_names[axis] == symbol;
      shape[axis] = is_past || same ? past : total;
    }
    for (int64_t& extent : shape)
      if (extent < 0) extent = onnx::ImportOptions::kOpen;
    to.shapes[inputs[i].name] = std::move(shape);
  }
  return to;
}

}  // namespace

/// Imports the model with pasts and totals of given lengths.
static auto of_lengths(mlir::MLIRContext& context, const Model& model, const std::vector<nn::PastInput>& pasts,
                       const onnx::ImportOptions& given, const auto& import) {
  return
      [&context, &given, &import, &pasts, inputs = model.inputs(), growing = model.growing_inputs()](
          int64_t past, int64_t total) { return import(context, sized(given, inputs, growing, pasts, past, total)); };
}

int64_t Model::added_to_pasts() const {
  const std::vector<nn::PastInput> pasts = nn::past_inputs(state_->main());
  if (pasts.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "a maximal length is given, and the model has no input of dynamic length that a Concat or an attention "
                "extends into an output; compile it without --max-length");
  auto probe = of_lengths(state_->context, *this, pasts, state_->given, state_->import)(1, onnx::ImportOptions::kOpen);
  const int64_t added = nn::added_to(main_of(*probe), pasts.front().input);
  if (added < 1)
    throw Error(ErrorCode::kUnsupported, "output '" + outputs()[pasts.front().output].name +
                                             "': how much a run adds to the past is not known; fix the number of "
                                             "tokens, for example with --shape input_ids=1,1");
  return added;
}

/// The model for the longest past, and for one that is shorter by one, after the same passes.
static Bounded bounded(mlir::MLIRContext& context, const Model& model, mlir::func::FuncOp function,
                       const onnx::ImportOptions& given, const auto& import, const CompileOptions& options) {
  Bounded made;
  made.growth.step = model.added_to_pasts();
  const std::vector<nn::PastInput> pasts = nn::past_inputs(function);
  const auto with = of_lengths(context, model, pasts, given, import);
  made.growth.room = options.max_length - made.growth.step;
  if (made.growth.room < 2)
    throw Error(ErrorCode::kInvalidArgument, "a maximal length of " + std::to_string(options.max_length) +
                                                 " leaves no past beside the " + std::to_string(made.growth.step) +
                                                 " that a run adds; give at least " +
                                                 std::to_string(made.growth.step + 2));
  made.growth.pasts = model.pasts();
  made.module = with(made.growth.room, options.max_length);
  made.shorter = with(made.growth.room - 1, options.max_length - 1);
  for (auto* of : {&made.module, &made.shorter})
    main_of(**of)->setAttr(nn::kPastGrowsAttr, mlir::UnitAttr::get(&context));
  run_passes(context, *made.module, options.snapshots, is_close(options));
  run_passes(context, *made.shorter, {}, is_close(options));
  made.axes = nn::growing_axes(main_of(*made.module), main_of(*made.shorter));
  return made;
}

void Model::check_static(const std::map<std::string, std::vector<size_t>>& growing) const {
  for (const Port& port : inputs()) {
    if (port.kind != program::ValueKind::kTensor || !port.ranked) continue;
    for (size_t i = 0; i < port.shape.size(); ++i) {
      if (port.shape[i] >= 0) continue;
      const auto known = growing.find(port.name);
      if (known != growing.end() && std::count(known->second.begin(), known->second.end(), i) != 0) continue;
      // Four dimensions with a few channels are pictures: their sides are no 1.
      const bool picture =
          port.shape.size() == 4 && std::ranges::any_of(port.shape, [](int64_t d) { return d > 0 && d <= 4; });
      std::string example = "--shape " + port.name + "=";
      for (size_t k = 0; k < port.shape.size(); ++k)
        example += (k ? "," : "") + std::to_string(port.shape[k] >= 0 ? port.shape[k] : picture && k > 0 ? 224 : 1);
      const std::string dim =
          i < port.dim_names.size() && !port.dim_names[i].empty() ? " ('" + port.dim_names[i] + "')" : "";
      throw Error(ErrorCode::kUnsupported,
                  "input '" + port.name + "': dimension " + std::to_string(i) + dim +
                      " is dynamic, and a program is compiled for one shape; fix it, for example with " + example);
    }
  }
}

std::vector<npu::Graph> Model::npu_graphs(const isa::MachineConfig& config, const CompileOptions& options) {
  check_options(options);
  check_static({});
  optimise({}, is_close(options));
  std::vector<graph::AnyGraph> graphs = partition::value_graphs(*state_->module, config);
  npu::Options npu = npu_options(options, config);
  npu.memo = std::make_shared<npu::SearchMemo>();
  std::vector<std::string> passes = graph::PassRegistry::instance().pipeline();
  std::erase(passes, graph::kPlaceChains);
  graph::run_pipeline(passes, graphs, {config, npu});
  std::vector<npu::Graph> result;
  for (graph::AnyGraph& any : graphs) {
    if (auto* graph = std::get_if<npu::Graph>(&any)) result.push_back(std::move(*graph));
  }
  return result;
}

npu::GraphBound Model::bound(const isa::MachineConfig& config, const CompileOptions& options) {
  check_options(options);
  check_static({});
  optimise({}, is_close(options));
  std::vector<graph::AnyGraph> graphs = partition::value_graphs(*state_->module, config);
  const npu::Options npu = npu_options(options, config);
  std::vector<std::string> passes = graph::PassRegistry::instance().pipeline();
  for (const char* searches : {"transpose-factors", "fold-borders", graph::kPlaceChains}) std::erase(passes, searches);
  graph::run_pipeline(passes, graphs, {config, npu});
  npu::GraphBound all;
  for (const graph::AnyGraph& any : graphs) {
    const npu::GraphBound one = npu::graph_bound(std::get<npu::Graph>(any), config, npu);
    all = {all.cycles + one.cycles, all.bytes + one.bytes, all.macs + one.macs};
  }
  return all;
}

Model::Placement Model::placement(const isa::MachineConfig& config, const CompileOptions& options) {
  check_options(options);
  check_static({});
  optimise({}, is_close(options));
  partition::Placement found = partition::placement(*state_->module, config);
  return {std::move(found.npu), std::move(found.cpu), found.macs_npu, found.macs_cpu};
}

program::Artifact Model::compile(const isa::MachineConfig& config, const CompileOptions& options) {
  check_options(options);
  const auto growing = options.max_length > 0 ? growing_inputs() : std::map<std::string, std::vector<size_t>>();
  check_static(growing);
  if (options.progress) options.progress("graph passes", 0, 1);
  Bounded bound;
  if (options.max_length > 0)
    bound = bounded(state_->context, *this, state_->main(), state_->given, state_->import, options);
  else
    timed(options.times.get(), "graph passes", [&] { optimise(options.snapshots, is_close(options)); });
  mlir::ModuleOp module = bound.module ? *bound.module : *state_->module;
  partition::Options to;
  to.growing = bound.axes;
  to.growth = bound.growth;
  to.use_npu = options.use_npu;
  to.progress = options.progress;
  for (const auto& [node, text] : options.schedules) {
    try {
      if (schedule::is_divided(text))
        to.divided[node] = schedule::divided_schedule_from_json(text);
      else
        to.schedules[node] = schedule::layer_schedule_from_json(text);
    } catch (const Error& error) {
      throw Error(error.code(), "node '" + node + "': " + error.what());
    }
  }
  to.npu = npu_options(options, config);
  to.npu.memo = std::make_shared<npu::SearchMemo>();
  if (!options.graph.empty()) to.graphs = read_graphs(options.graph);
  npu::SearchLog search;
  if (options.search_log) to.npu.search_log = &search;
  if (options.snapshots) {
    to.after_pass = [&](const std::string& pass, const std::vector<graph::AnyGraph>& graphs) {
      options.snapshots({pass, "npu", [&](bool elide) { return graph::to_text(graphs, elide); }});
    };
    to.after_compile = [&](const npu::Graph& graph, const npu::Program& program) {
      show_program(options.snapshots, graph, program, config, to.npu);
    };
  }
#if TESSERA_HAVE_CPU_CODEGEN
  std::unique_ptr<cpu::Codegen> cpu;
  if (options.cpu_codegen) {
    cpu = cpu::create_codegen(state_->context, options.cpu_cache, options.cpu_target);
    to.cpu = cpu.get();
  }
#endif
  program::Artifact artifact = partition::partition(module, config, to);
  if (options.search_log) options.search_log(npu::to_text(search));
  for (size_t i = 0; i < inputs().size(); ++i) {
    program::ValueInfo& info = artifact.values[static_cast<size_t>(artifact.plans[0].inputs[i])];
    info.name = inputs()[i].name;
    info.dim_names = inputs()[i].dim_names;
  }
  for (size_t i = 0; i < outputs().size(); ++i) {
    artifact.output_names.push_back(outputs()[i].name);
    artifact.output_keys.push_back(outputs()[i].keys);
  }
  timed(options.times.get(), "validate", [&] { program::validate(artifact); });
  return artifact;
}

nn::Listing Model::listing() {
  nn::TypeInference().run(state_->main());
  return nn::listing_of(state_->main());
}

std::string Model::print() const { return nn::module_to_text(*state_->module, /*elide=*/true); }

std::map<std::string, std::vector<std::string>> operator_names() {
  const partition::OperatorNames& names = partition::operator_names();
  return {{"products", {names.products.begin(), names.products.end()}},
          {"elementwise", {names.elementwise.begin(), names.elementwise.end()}},
          {"movements", {names.movements.begin(), names.movements.end()}}};
}

std::map<std::string, ops::Shape> batches_of_one(const std::vector<Port>& inputs) {
  std::map<std::string, ops::Shape> shapes;
  for (const Port& port : inputs) {
    if (!port.ranked || port.shape.empty() || port.shape[0] >= 0) continue;
    if (std::any_of(port.shape.begin() + 1, port.shape.end(), [](int64_t d) { return d < 0; })) continue;
    shapes[port.name] = port.shape;
    shapes[port.name][0] = 1;
  }
  return shapes;
}

npu::Options npu_options(const CompileOptions& options, const isa::MachineConfig& config) {
  npu::Options to;
  to.virtual_threads = options.virtual_threads;
  to.chain = options.chains;
  to.forward = options.forward ? npu::Forward::kIfFaster : npu::Forward::kNever;
  to.traffic_weight = options.traffic_weight;
  to.dram_latency_cycles = options.dram_latency;
  to.dram_bandwidth_bytes = options.dram_bandwidth;
  if (options.dram != CompileOptions().dram) {
    const isa::DramFigures figures = isa::dram_figures(isa::dram_preset(options.dram), config.axi_bytes);
    to.dram_latency_cycles = figures.latency_cycles;
    to.dram_bandwidth_bytes = figures.bandwidth_bytes;
    to.dram_cost = figures.cost;
  }
  to.search = options.search;
  to.cost_model = options.cost_model;
  to.judge = options.judge;
  if (options.effort == kQuickEffort && to.judge == CompileOptions().judge) to.judge = "closed-form";
  to.replays = options.replays;
  to.blank_weights = options.blank_weights;
  to.stop = options.stop;
  to.times = options.times;
  return to;
}

void parse_shape(std::string_view text, ImportOptions& options) {
  onnx::ImportOptions parsed;
  onnx::parse_shape_option(text, parsed);
  for (const auto& [name, shape] : parsed.shapes) options.shapes[name] = shape;
  for (const auto& [name, value] : parsed.dims) options.dims[name] = value;
}

}  // namespace tessera::compiler
