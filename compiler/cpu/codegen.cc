// SPDX-License-Identifier: Apache-2.0
// A run of operators becomes one function: expressions (linalg.generic on tensors), fusion of neighbouring element-wise
// operations, buffers (one-shot bufferisation, results written into the caller's memory), a scratch plan, loops.
// finish() makes machine code of all.
#include "compiler/cpu/codegen.h"

#include "compiler/cpu/buffers.h"
#include "compiler/cpu/code/machine_code.h"
#include "compiler/cpu/expressions/lowering.h"
#include "compiler/cpu/loops/joins.h"
#include "compiler/cpu/loops/loops.h"
#include "compiler/cpu/loops/vectors.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Arith/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/Bufferization/Transforms/OneShotAnalysis.h"
#include "mlir/Dialect/Bufferization/Transforms/Transforms.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Linalg/Transforms/SubsetInsertionOpInterfaceImpl.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Tensor/IR/TensorInferTypeOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/BufferizableOpInterfaceImpl.h"
#include "mlir/Dialect/Tensor/Transforms/SubsetInsertionOpInterfaceImpl.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

// One function of mlir/Dialect/Linalg/Transforms/Transforms.h, which takes three seconds to compile.
namespace mlir::linalg {
using ControlFusionFn = std::function<bool(OpOperand*)>;
void populateElementwiseOpsFusionPatterns(RewritePatternSet& patterns, const ControlFusionFn& control);
}  // namespace mlir::linalg

namespace tessera::cpu {

namespace {

using mlir::Value;

const Lowerings& lowerings() {
  static const Lowerings table = [] {
    Lowerings t;
    t.widen(true);
    add_elementwise(t);
    add_reduce(t);
    add_normalise(t);
    add_pool(t);
    add_product(t);
    t.widen(false);
    add_shape(t);
    add_quantized(t);
    return t;
  }();
  return table;
}

/// How the operator is written; nothing if it has no compiled form. What only moves elements needs no entry of its own.
std::optional<Lowerings::Entry> lowering_of(nn::NodeOp op) {
  const std::string domain = op.getDomain().str(), type = op.getOpType().str();
  if (const Lowerings::Entry* entry = lowerings().find(domain, type)) return *entry;
  const ops::MoveFunction* moves = ops::moves_of(nn::to_node(op));
  if (moves == nullptr) return std::nullopt;
  return Lowerings::Entry{[moves](Operator& o) { move(o, *moves); }, false};
}

bool is_narrow_float(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBfloat16; }

/// Shape and element type of a value; declines what is dynamic, empty, no tensor, or of a type that is not compiled.
Tensor describe(Value value) {
  const auto shape = nn::shape_of(value);
  require(shape.has_value() && nn::is_static(value));
  require(ops::element_count(*shape) > 0);
  const DType dtype = nn::dtype_of(value);
  storage_type(value.getContext(), dtype);
  return {Value(), dtype, *shape};
}

/// Element-wise work moves into its only reader unless that would repeat it.
bool worth_fusing(mlir::OpOperand* operand) {
  mlir::Operation* producer = operand->get().getDefiningOp();
  auto consumer = mlir::dyn_cast<mlir::linalg::GenericOp>(operand->getOwner());
  auto from = mlir::dyn_cast_or_null<mlir::linalg::GenericOp>(producer);
  if (!from || !consumer || !operand->get().hasOneUse()) return false;
  const auto points = [](mlir::linalg::GenericOp op) {
    int64_t count = 1;
    for (int64_t extent : op.getStaticLoopRanges()) count *= extent;
    return count;
  };
  // A constant has no cost; neither has a plain move.
  const size_t work = from.getBody()->getOperations().size();
  if (from.getNumDpsInputs() == 0 && work <= 2) return consumer.getNumReductionLoops() == 0;
  if (consumer->getNumOperands() + from->getNumOperands() > 32) return false;
  if (work == 1 && consumer.getNumReductionLoops() == 0) return true;
  return points(consumer) <= points(from);
}

class LlvmCodegen : public Codegen {
 public:
  LlvmCodegen(mlir::MLIRContext& context, bool cached, std::string_view target)
      : context_(context),
        bare_(target == kHost ? std::nullopt : std::optional(find_bare_target(target))),
        vector_bytes_(bare_ ? 1 : host_vector_bytes()) {
    if (cached) cache_.emplace(FileCache::default_folder());
    mlir::DialectRegistry registry;
    mlir::arith::registerBufferizableOpInterfaceExternalModels(registry);
    mlir::linalg::registerBufferizableOpInterfaceExternalModels(registry);
    mlir::linalg::registerSubsetOpInterfaceExternalModels(registry);
    mlir::tensor::registerBufferizableOpInterfaceExternalModels(registry);
    mlir::tensor::registerInferTypeOpInterfaceExternalModels(registry);
    mlir::tensor::registerSubsetOpInterfaceExternalModels(registry);
    mlir::registerBuiltinDialectTranslation(registry);
    mlir::registerLLVMDialectTranslation(registry);
    context_.appendDialectRegistry(registry);
    context_
        .loadDialect<mlir::arith::ArithDialect, mlir::bufferization::BufferizationDialect, mlir::cf::ControlFlowDialect,
                     mlir::func::FuncDialect, mlir::linalg::LinalgDialect, mlir::math::MathDialect,
                     mlir::memref::MemRefDialect, mlir::scf::SCFDialect, mlir::tensor::TensorDialect>();
    load_vector_dialect(context_);
    context_.getOrLoadDialect("llvm");  // registered with its translation; its header takes four seconds to compile
    module_ = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
  }

  bool supports(nn::NodeOp op) override {
    if (op.getBodies().size() != 0 || !lowering_of(op)) return false;
    // Written once into a module that is thrown away: a case is supported exactly if it can be written.
    mlir::OwningOpRef<mlir::ModuleOp> trial = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
    std::vector<Value> inputs;
    for (Value v : op.getInputs())
      if (!nn::is_none(v) && std::find(inputs.begin(), inputs.end(), v) == inputs.end()) inputs.push_back(v);
    std::vector<Value> outputs(op.getOutputs().begin(), op.getOutputs().end());
    return write(*trial, "trial", {op}, inputs, outputs) != nullptr;
  }

  std::optional<program::CodeStep> add(const std::vector<nn::NodeOp>& ops, const std::vector<Value>& inputs,
                                       const std::vector<Value>& outputs) override {
    const std::string symbol = "tessera_cpu_" + std::to_string(entry_points_.size());
    mlir::func::FuncOp function = write(*module_, symbol + "_body", ops, inputs, outputs);
    if (!function) return std::nullopt;
    program::CodeStep step;
    step.symbol = symbol;
    step.node_name = nn::node_name(nn::NodeOp(ops.front()).getOperation());
    const bool dump = getenv("TESSERA_CPU_DUMP") != nullptr;
    if (dump) function.dump();
    if (mlir::failed(lower(function, dump))) {
      function.erase();
      return std::nullopt;
    }
    const auto arguments = function.getNumArguments();
    step.scratch_bytes =
        arguments == inputs.size() + outputs.size()
            ? 0
            : static_cast<uint64_t>(mlir::cast<mlir::MemRefType>(function.getArgumentTypes().back()).getNumElements());
    entry_points_.push_back({symbol, function.getName().str(), arguments});
    return step;
  }

  program::CpuModule finish() override {
    if (entry_points_.empty()) return {};
    program::CpuModule out =
        emit_machine_code(*module_, entry_points_, work_, bare_ ? &*bare_ : nullptr, cache_ ? &*cache_ : nullptr);
    module_ = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context_));
    entry_points_.clear();
    nests_.clear();
    work_.clear();
    return out;
  }

 private:
  mlir::MemRefType buffer_type(const Tensor& t) {
    return mlir::MemRefType::get(t.shape, storage_type(&context_, t.dtype));
  }

  /// The function on tensors: arguments are the buffers of inputs and outputs. nullptr if an operator declines.
  mlir::func::FuncOp write(mlir::ModuleOp module, const std::string& name, const std::vector<nn::NodeOp>& ops,
                           const std::vector<Value>& inputs, const std::vector<Value>& outputs) {
    mlir::func::FuncOp function;
    try {
      std::vector<Tensor> described;
      llvm::SmallVector<mlir::Type> types;
      const auto describe_buffer = [&](Value v) {
        described.push_back(describe(v));
        types.push_back(buffer_type(described.back()));
      };
      for (Value v : inputs) describe_buffer(v);
      for (Value v : outputs) describe_buffer(v);
      const mlir::Location location = mlir::UnknownLoc::get(&context_);
      mlir::OpBuilder builder = mlir::OpBuilder::atBlockEnd(module.getBody());
      function = builder.create<mlir::func::FuncOp>(location, name, builder.getFunctionType(types, {}));
      mlir::Block* block = function.addEntryBlock();
      builder.setInsertionPointToStart(block);
      builder.create<mlir::func::ReturnOp>(location);
      builder.setInsertionPoint(block->getTerminator());
      llvm::DenseMap<Value, Tensor> values;
      for (size_t i = 0; i < inputs.size(); ++i) {
        described[i].value = builder.create<mlir::bufferization::ToTensorOp>(
            location, block->getArgument(static_cast<unsigned>(i)), /*restrict=*/true);
        values[inputs[i]] = described[i];
      }
      Graph graph(builder, location, vector_bytes_);
      for (nn::NodeOp op : ops) {
        const std::optional<Lowerings::Entry> entry = lowering_of(op);
        require(entry.has_value());
        const auto convert = [&](const Tensor& x, DType dtype) {
          return graph.compute(dtype, x.shape,
                               [&](Body& body, const Indices& i) { return cast(body.load(x, i), dtype); });
        };
        Operator o{graph, op, nn::to_node(op), {}, entry->widens};
        for (Value v : op.getInputs()) {
          if (nn::is_none(v)) {
            o.inputs.emplace_back();
          } else {
            const Tensor& x = values.at(v);
            o.inputs.emplace_back(entry->widens && is_narrow_float(x.dtype) ? convert(x, DType::kFloat) : x);
          }
        }
        entry->lowering(o);
        require(o.results.size() == op.getNumResults());
        for (unsigned i = 0; i < op.getNumResults(); ++i) {
          const DType dtype = nn::dtype_of(op->getResult(i));
          values[op->getResult(i)] = dtype == o.results[i].dtype ? o.results[i] : convert(o.results[i], dtype);
        }
      }
      builder.setInsertionPoint(block->getTerminator());
      for (size_t i = 0; i < outputs.size(); ++i) {
        Value to = block->getArgument(static_cast<unsigned>(inputs.size() + i));
        builder.create<mlir::bufferization::MaterializeInDestinationOp>(location, mlir::TypeRange{},
                                                                        values.at(outputs[i]).value, to,
                                                                        /*restrict=*/true, /*writable=*/true);
      }
      return function;
    } catch (const Declined&) {
    } catch (const Error&) {  // attributes that the library would refuse at run time
    }
    if (function) function.erase();
    return nullptr;
  }

  /// Each call of a nest computes all of its items; machine_code.cc turns those that are worth it into loops of
  /// threads.
  void give_all_items(mlir::func::FuncOp function) {
    for (mlir::func::CallOp call : llvm::make_early_inc_range(function.getOps<mlir::func::CallOp>())) {
      mlir::OpBuilder builder(call);
      llvm::SmallVector<Value> operands(call.getOperands());
      for (int64_t item : {int64_t{0}, work_.at(call.getCallee().str()).items})
        operands.push_back(builder.create<mlir::arith::ConstantIndexOp>(call.getLoc(), item));
      builder.create<mlir::func::CallOp>(call.getLoc(), call.getCallee(), mlir::TypeRange{}, operands);
      call.erase();
    }
  }

  /// Fusion gives an operator that knows its place that of its reader, as affine.apply; the loops know sums and
  /// products.
  static void expand_places(mlir::func::FuncOp function) {
    function.walk([](mlir::affine::AffineApplyOp apply) {
      mlir::OpBuilder builder(apply);
      const auto operands = apply.getMapOperands();
      const unsigned dims = apply.getAffineMap().getNumDims();
      Value place = mlir::affine::expandAffineExpr(builder, apply.getLoc(), apply.getAffineMap().getResult(0),
                                                   operands.take_front(dims), operands.drop_front(dims));
      apply.getResult().replaceAllUsesWith(place);
      apply.erase();
    });
  }

  mlir::LogicalResult lower(mlir::func::FuncOp function, bool dump) {
    mlir::RewritePatternSet patterns(&context_);
    mlir::linalg::populateElementwiseOpsFusionPatterns(patterns, worth_fusing);
    mlir::GreedyRewriteConfig config;
    config.enableRegionSimplification = mlir::GreedySimplifyRegionLevel::Disabled;
    if (mlir::failed(mlir::applyPatternsAndFoldGreedily(function, std::move(patterns), config))) return mlir::failure();
    expand_places(function);
    mlir::IRRewriter rewriter(&context_);
    if (mlir::failed(mlir::bufferization::eliminateEmptyTensors(rewriter, function))) return mlir::failure();
    if (dump) function.dump();
    mlir::bufferization::OneShotBufferizationOptions options;
    if (mlir::failed(mlir::bufferization::runOneShotBufferize(function, options))) return mlir::failure();
    if (dump) function.dump();
    join_readers(function, vector_bytes_);
    write_in_place(function, vector_bytes_);
    plan_scratch(function);
    for (mlir::func::FuncOp nest : outline(function, nests_))
      work_[nest.getName().str()] = make_loops(nest, vector_bytes_);
    give_all_items(function);
    if (dump) function.dump();
    return mlir::success();
  }

  mlir::MLIRContext& context_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
  std::vector<EntryPoint> entry_points_;
  std::map<std::string, mlir::func::FuncOp> nests_;  // by content
  std::optional<CodeCache> cache_;
  std::map<std::string, Work> work_;  // of the nests by name
  const std::optional<BareTarget> bare_;
  const int64_t vector_bytes_;
};

}  // namespace

std::unique_ptr<Codegen> create_codegen(mlir::MLIRContext& context, bool cached, std::string_view target) {
  return std::make_unique<LlvmCodegen>(context, cached, target);
}

}  // namespace tessera::cpu
