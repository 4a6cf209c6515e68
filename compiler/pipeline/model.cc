// SPDX-License-Identifier: Apache-2.0
// The sequence of rooms: onnx -> nn passes -> partition. Diagnostics of MLIR become one tessera::Error whose message
// begins with the node's name, taken from the operation's location.
#include "compiler/pipeline/model.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"

#include "compiler/nn/interpreter.h"
#include "compiler/nn/passes.h"
#include "compiler/onnx/import.h"
#include "compiler/partition/partition.h"
#include "compiler/schedule/json.h"
#if TESSERA_HAVE_CPU_CODEGEN
#include "compiler/cpu/codegen.h"
#endif

namespace tessera::compiler {
namespace {

std::vector<Port> ports(mlir::func::FuncOp function, bool inputs) {
  std::vector<Port> out;
  const auto types = inputs ? function.getArgumentTypes() : function.getResultTypes();
  for (unsigned i = 0; i < types.size(); ++i) {
    Port port;
    const auto attribute = [&](llvm::StringRef name) {
      return inputs ? function.getArgAttr(i, name) : function.getResultAttr(i, name);
    };
    if (auto name = mlir::dyn_cast_or_null<mlir::StringAttr>(attribute(nn::kNameAttr))) port.name = name.str();
    const ops::TypeInfo info = nn::to_type_info(types[i]);
    port.dtype = info.dtype;
    port.ranked = info.ranked;
    port.shape = info.shape;
    if (info.kind == ops::TypeInfo::Kind::kSequence) port.kind = program::ValueKind::kSequence;
    if (info.kind == ops::TypeInfo::Kind::kOptional) port.kind = program::ValueKind::kOptional;
    if (auto names = mlir::dyn_cast_or_null<mlir::ArrayAttr>(attribute(nn::kDimNamesAttr)))
      for (mlir::Attribute name : names) port.dim_names.push_back(mlir::cast<mlir::StringAttr>(name).str());
    out.push_back(std::move(port));
  }
  return out;
}

onnx::ImportOptions to_import(const ImportOptions& options) {
  onnx::ImportOptions out;
  for (const auto& [name, shape] : options.shapes) out.shapes[name] = shape;
  out.dims = options.dims;
  out.directory = options.directory;
  return out;
}

}  // namespace

struct Model::State {
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<Port> inputs, outputs;
  bool optimised = false;

  State() { context.loadDialect<nn::NNDialect, mlir::func::FuncDialect>(); }
  mlir::func::FuncOp main() {
    auto function = module->lookupSymbol<mlir::func::FuncOp>("main");
    TESSERA_INVARIANT(function, "an imported module has a main function");
    return function;
  }
  void read_ports() {
    inputs = ports(main(), true);
    outputs = ports(main(), false);
  }
};

Model::Model(std::unique_ptr<State> state) : state_(std::move(state)) {}
Model::~Model() = default;
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;

Model Model::from_file(const std::string& path, const ImportOptions& options) {
  auto state = std::make_unique<State>();
  state->module = onnx::import_onnx_file(state->context, path, to_import(options));
  state->read_ports();
  return Model(std::move(state));
}

Model Model::from_bytes(std::string_view bytes, const ImportOptions& options) {
  auto state = std::make_unique<State>();
  state->module = onnx::import_onnx_bytes(state->context, bytes, to_import(options));
  state->read_ports();
  return Model(std::move(state));
}

const std::vector<Port>& Model::inputs() const { return state_->inputs; }
const std::vector<Port>& Model::outputs() const { return state_->outputs; }

void Model::optimise() {
  if (state_->optimised) return;
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&state_->context, [&](mlir::Diagnostic& diagnostic) {
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error && message.empty()) {
      const std::string node = nn::node_name(diagnostic.getLocation());
      const std::string text = diagnostic.str();
      message = node.empty() || text.find(node) != std::string::npos ? text : "node '" + node + "': " + text;
    }
    return mlir::success();
  });
  mlir::PassManager manager(&state_->context);
  nn::build_nn_pipeline(manager);
  if (mlir::failed(manager.run(*state_->module)))
    throw Error(ErrorCode::kInvalidModel, message.empty() ? "the graph passes failed without a message" : message);
  state_->optimised = true;
}

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

program::Artifact Model::compile(const isa::MachineConfig& config, const CompileOptions& options) {
  for (const Port& port : inputs()) {
    if (port.kind != program::ValueKind::kTensor || !port.ranked) continue;
    for (size_t i = 0; i < port.shape.size(); ++i) {
      if (port.shape[i] >= 0) continue;
      std::string example = "--shape " + port.name + "=";
      for (size_t k = 0; k < port.shape.size(); ++k)
        example += (k ? "," : "") + (port.shape[k] >= 0 ? std::to_string(port.shape[k]) : std::string("1"));
      const std::string dim =
          i < port.dim_names.size() && !port.dim_names[i].empty() ? " ('" + port.dim_names[i] + "')" : "";
      throw Error(ErrorCode::kUnsupported,
                  "input '" + port.name + "': dimension " + std::to_string(i) + dim +
                      " is dynamic, and a program is compiled for one shape; fix it, for example with " + example);
    }
  }
  if (options.progress) options.progress("graph passes", 0, 1);
  optimise();
  partition::Options to;
  to.use_npu = options.use_npu;
  to.progress = options.progress;
  for (const auto& [node, text] : options.schedules) {
    try {
      to.schedules[node] = schedule::layer_schedule_from_json(text);
    } catch (const Error& error) {
      throw Error(error.code(), "node '" + node + "': " + error.what());
    }
  }
  to.npu.virtual_threads = options.virtual_threads;
  to.npu.chain = options.chains;
  if (!(options.traffic_weight >= 0 && options.traffic_weight <= 1000)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the traffic weight must be between 0 and 1000 cycles of time for a cycle of the bus, not " +
                    std::to_string(options.traffic_weight));
  }
  to.npu.traffic_weight = options.traffic_weight;
#if TESSERA_HAVE_CPU_CODEGEN
  std::unique_ptr<cpu::Codegen> cpu;
  if (options.cpu_codegen) {
    cpu = cpu::create_codegen(state_->context);
    to.cpu = cpu.get();
  }
#endif
  program::Artifact artifact = partition::partition(*state_->module, config, to);
  for (size_t i = 0; i < inputs().size(); ++i) {
    program::ValueInfo& info = artifact.values[static_cast<size_t>(artifact.plans[0].inputs[i])];
    info.name = inputs()[i].name;
    info.dim_names = inputs()[i].dim_names;
  }
  for (size_t i = 0; i < outputs().size(); ++i) artifact.metadata["output." + std::to_string(i)] = outputs()[i].name;
  program::validate(artifact);
  return artifact;
}

std::string Model::print() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  mlir::OpPrintingFlags flags;
  flags.elideLargeElementsAttrs(16).elideLargeResourceString(64);
  state_->module->print(stream, flags);
  return text;
}

void parse_shape(std::string_view text, ImportOptions& options) {
  onnx::ImportOptions parsed;
  onnx::parse_shape_option(text, parsed);
  for (const auto& [name, shape] : parsed.shapes) options.shapes[name] = shape;
  for (const auto& [name, value] : parsed.dims) options.dims[name] = value;
}

}  // namespace tessera::compiler
