// SPDX-License-Identifier: Apache-2.0
// One dialect conversion to LLVM, translation, a short pipeline of LLVM's passes (vectors are made before), and the
// host's code generator. Buffers never alias (each step's inputs, outputs and scratch are separate), which the
// functions' arguments say. Floating point is strict: no contraction, and calls of the C library are not replaced by
// other expressions.
#include "compiler/cpu/code/machine_code.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "base/error.h"
#include "llvm-c/Transforms/PassBuilder.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Bitcode/BitcodeWriter.h"
#include "llvm/CodeGen/TargetLowering.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"

namespace tessera::cpu {

namespace {

[[noreturn]] void refuse(const std::string& what) { throw Error(ErrorCode::kInternal, "CPU code generation: " + what); }

mlir::LogicalResult to_llvm_dialect(mlir::ModuleOp module, const llvm::DataLayout& layout) {
  mlir::MLIRContext* context = module.getContext();
  mlir::LowerToLLVMOptions options(context);
  options.useBarePtrCallConv = true;
  options.dataLayout = layout;
  if (layout.getPointerSizeInBits() == 32) options.overrideIndexBitwidth(32);
  mlir::LLVMTypeConverter types(context, options);
  mlir::RewritePatternSet patterns(context);
  mlir::populateSCFToControlFlowConversionPatterns(patterns);
  mlir::cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  mlir::arith::populateArithToLLVMConversionPatterns(types, patterns);
  mlir::populateMathToLLVMConversionPatterns(types, patterns);
  mlir::populateVectorToLLVMConversionPatterns(types, patterns);
  mlir::populateFinalizeMemRefToLLVMConversionPatterns(types, patterns);
  mlir::populateFuncToLLVMConversionPatterns(types, patterns);
  mlir::LLVMConversionTarget target(*context);
  target.addLegalOp<mlir::ModuleOp>();
  if (mlir::failed(mlir::applyFullConversion(module, target, std::move(patterns)))) return mlir::failure();
  // Pairs of casts between a type and its LLVM form cancel.
  llvm::SmallVector<mlir::UnrealizedConversionCastOp> casts;
  module.walk([&](mlir::UnrealizedConversionCastOp cast) { casts.push_back(cast); });
  for (auto cast : casts) {
    if (cast.getNumOperands() != 1 || cast.getNumResults() != 1) return mlir::failure();
    auto before = cast.getOperand(0).getDefiningOp<mlir::UnrealizedConversionCastOp>();
    if (before && before.getOperand(0).getType() == cast.getResult(0).getType())
      cast.getResult(0).replaceAllUsesWith(before.getOperand(0));
  }
  for (auto cast : llvm::reverse(casts))
    if (cast->use_empty()) cast.erase();
  return mlir::success();
}

/// What the calls of the code are: functions of their arguments that LLVM must not replace.
void mark_library_calls(llvm::Module& module) {
  for (llvm::Function& function : module) {
    if (!function.isDeclaration() || function.isIntrinsic()) continue;
    function.setDoesNotThrow();
    function.setWillReturn();
    // A vector form gets the place of its lanes; all others are functions of values.
    if (function.arg_size() == 1 && function.getArg(0)->getType()->isPointerTy())
      function.setOnlyAccessesArgMemory();
    else
      function.setDoesNotAccessMemory();
  }
  for (llvm::Function& function : module)
    for (llvm::BasicBlock& block : function)
      for (llvm::Instruction& instruction : block)
        if (auto* call = llvm::dyn_cast<llvm::CallInst>(&instruction))
          if (!call->getIntrinsicID() && call->getCalledFunction() && call->getCalledFunction()->isDeclaration())
            call->addFnAttr(llvm::Attribute::NoBuiltin);
}

/// Functions on buffers: each buffer is one argument, 64-byte aligned, and no two overlap.
void mark_functions(llvm::Module& module, const std::map<std::string, Work>& work) {
  for (llvm::Function& function : module) {
    if (function.isDeclaration()) continue;
    function.setLinkage(llvm::GlobalValue::InternalLinkage);
    function.addFnAttr(llvm::Attribute::NoInline);
    function.setDoesNotThrow();
    const bool is_nest = work.count(function.getName().str()) != 0;  // others hand their buffers on to threads
    if (is_nest) function.addFnAttr("no-builtins");  // rows are too short for calls of memcpy and memset
    for (llvm::Argument& argument : function.args()) {
      if (!is_nest || !argument.getType()->isPointerTy()) continue;
      argument.addAttr(llvm::Attribute::NoAlias);
      argument.addAttr(llvm::Attribute::NoCapture);
      argument.addAttr(llvm::Attribute::getWithAlignment(module.getContext(), llvm::Align(64)));
    }
  }
}

void add_entry_point(llvm::Module& module, const EntryPoint& entry) {
  llvm::LLVMContext& context = module.getContext();
  llvm::Function* function = module.getFunction(entry.function);
  TESSERA_INVARIANT(function && function->arg_size() == entry.buffers, "one pointer for each buffer");
  auto* pointer = llvm::PointerType::get(context, 0);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer}, false);
  auto* outer = llvm::Function::Create(type, llvm::GlobalValue::ExternalLinkage, entry.symbol, module);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "entry", outer));
  std::vector<llvm::Value*> arguments;
  for (size_t i = 0; i < entry.buffers; ++i)
    arguments.push_back(builder.CreateLoad(pointer, builder.CreateConstGEP1_64(pointer, outer->getArg(0), i)));
  builder.CreateCall(function, arguments);
  builder.CreateRetVoid();
}

/// void name(void** buffers, int64_t begin, int64_t end), which calls `nest` on them.
llvm::Function* range_function(llvm::Module& module, llvm::Function& nest) {
  llvm::LLVMContext& context = module.getContext();
  auto* pointer = llvm::PointerType::get(context, 0);
  auto* count = llvm::Type::getInt64Ty(context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer, count, count}, false);
  auto* range = llvm::Function::Create(type, llvm::GlobalValue::InternalLinkage, nest.getName() + "_range", module);
  llvm::IRBuilder<> builder(llvm::BasicBlock::Create(context, "entry", range));
  std::vector<llvm::Value*> arguments;
  for (unsigned i = 0; i + 2 < nest.arg_size(); ++i)
    arguments.push_back(builder.CreateLoad(pointer, builder.CreateConstGEP1_64(pointer, range->getArg(0), i)));
  arguments.push_back(range->getArg(1));
  arguments.push_back(range->getArg(2));
  builder.CreateCall(&nest, arguments);
  builder.CreateRetVoid();
  return range;
}

/// Calls of nests with much work become calls of the runtime's parallel_for (runtime/threads.h).
void share_loops(llvm::Module& module, const std::map<std::string, Work>& work) {
  llvm::LLVMContext& context = module.getContext();
  auto* pointer = llvm::PointerType::get(context, 0);
  auto* count = llvm::Type::getInt64Ty(context);
  auto* type = llvm::FunctionType::get(llvm::Type::getVoidTy(context), {pointer, pointer, count, count}, false);
  for (const auto& [name, own] : work) {
    llvm::Function* nest = module.getFunction(name);
    if (!nest || own.items / own.grain < 2) continue;
    const llvm::FunctionCallee parallel_for = module.getOrInsertFunction("tessera_parallel_for", type);
    llvm::SmallVector<llvm::CallInst*> calls;
    for (llvm::User* user : nest->users()) calls.push_back(llvm::cast<llvm::CallInst>(user));
    llvm::Function* range = range_function(module, *nest);
    for (llvm::CallInst* call : calls) {
      llvm::IRBuilder<> entry(&*call->getFunction()->getEntryBlock().getFirstInsertionPt());
      const unsigned buffers = call->arg_size() - 2;
      llvm::Value* table = entry.CreateAlloca(pointer, entry.getInt64(buffers));
      llvm::IRBuilder<> builder(call);
      for (unsigned i = 0; i < buffers; ++i)
        builder.CreateStore(call->getArgOperand(i), builder.CreateConstGEP1_64(pointer, table, i));
      builder.CreateCall(parallel_for, {range, table, builder.getInt64(static_cast<uint64_t>(own.items)),
                                        builder.getInt64(static_cast<uint64_t>(own.grain))});
      call->eraseFromParent();
    }
  }
}

std::unique_ptr<llvm::TargetMachine> host_machine(program::CpuModule& about) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  about.triple = llvm::sys::getProcessTriple();
  about.cpu = llvm::sys::getHostCPUName().str();
  std::map<std::string, bool> features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures()) features[feature.getKey().str()] = feature.getValue();
  for (const auto& [name, present] : features)
    about.features += (about.features.empty() ? "" : ",") + ((present ? "+" : "-") + name);
  std::string error;
  const llvm::Target* target = llvm::TargetRegistry::lookupTarget(about.triple, error);
  if (!target) refuse(error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(about.triple, about.cpu, about.features,
                                                                           options, llvm::Reloc::PIC_, std::nullopt,
                                                                           llvm::CodeGenOptLevel::Default));
  if (!machine) refuse("no code generator for " + about.triple);
  return machine;
}

std::unique_ptr<llvm::TargetMachine> bare_machine(const BareTarget& target, program::CpuModule& about) {
  about.triple = target.triple;
  about.cpu = target.cpu;
  about.features = target.features;
  return machine_of(target);
}

/// Whether an intrinsic becomes instructions of the processor; all others become a call.
bool has_instructions(const llvm::TargetLoweringBase& lowering, const llvm::Function& intrinsic, unsigned operation) {
  const llvm::EVT type = llvm::EVT::getEVT(intrinsic.getReturnType(), /*HandleUnknown=*/true);
  return type.isSimple() && lowering.isTypeLegal(type) && lowering.isOperationLegalOrCustom(operation, type);
}

/// Functions that a C library would have become those of runtime/bare_metal, which have this host's bits: one of a
/// small C library may round otherwise.
void call_freestanding(llvm::Module& module, llvm::TargetMachine& machine) {
  struct Named {
    unsigned operation;
    const char* name;
  };
  static const std::map<llvm::Intrinsic::ID, Named> intrinsics = {
      {llvm::Intrinsic::fma, {llvm::ISD::FMA, "fma"}},
      {llvm::Intrinsic::sqrt, {llvm::ISD::FSQRT, "sqrt"}},
      {llvm::Intrinsic::roundeven, {llvm::ISD::FROUNDEVEN, "roundeven"}},
      {llvm::Intrinsic::floor, {llvm::ISD::FFLOOR, "floor"}},
      {llvm::Intrinsic::ceil, {llvm::ISD::FCEIL, "ceil"}},
      {llvm::Intrinsic::trunc, {llvm::ISD::FTRUNC, "trunc"}},
      {llvm::Intrinsic::round, {llvm::ISD::FROUND, "round"}}};
  std::vector<llvm::Function*> declared;
  for (llvm::Function& function : module)
    if (function.isDeclaration()) declared.push_back(&function);
  for (llvm::Function* each : declared) {
    llvm::Function& function = *each;
    if (!function.isIntrinsic()) {
      function.setName("tessera_" + function.getName());
      continue;
    }
    const auto found = intrinsics.find(function.getIntrinsicID());
    if (found == intrinsics.end() || function.use_empty()) continue;
    const llvm::Function& user = *llvm::cast<llvm::Instruction>(*function.user_begin())->getFunction();
    if (has_instructions(*machine.getSubtargetImpl(user)->getTargetLowering(), function, found->second.operation))
      continue;
    const std::string name =
        std::string("tessera_") + found->second.name + (function.getReturnType()->isFloatTy() ? "f" : "");
    llvm::FunctionCallee own = module.getOrInsertFunction(name, function.getFunctionType());
    function.replaceAllUsesWith(own.getCallee());
  }
}

/// LLVM's passes; they are part of the key of the cache, so what else makes code of a module is named behind them.
constexpr std::string_view kPasses =
    "function(simplifycfg,sroa,early-cse<memssa>,loop-mssa(loop-rotate,licm),"
    "instcombine<no-verify-fixpoint>,"  // by default a pass that is named ends the process where it is not done at once
    "early-cse,simplifycfg,dce)";
constexpr std::string_view kPipeline = "default code generator, 5";  // to be changed with make_code(), host_machine()

/// By the C interface: PassBuilder's own header takes four seconds to compile.
void optimise(llvm::Module& module, llvm::TargetMachine& machine) {
  const std::unique_ptr<LLVMOpaquePassBuilderOptions, void (*)(LLVMPassBuilderOptionsRef)> options(
      LLVMCreatePassBuilderOptions(), LLVMDisposePassBuilderOptions);
  const LLVMErrorRef error = LLVMRunPasses(llvm::wrap(&module), std::string(kPasses).c_str(),
                                           reinterpret_cast<LLVMTargetMachineRef>(&machine), options.get());
  if (error) refuse(llvm::toString(llvm::unwrap(error)));
}

std::vector<uint8_t> bitcode(const llvm::Module& module) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream to(bytes);
  llvm::WriteBitcodeToFile(module, to);
  return {bytes.begin(), bytes.end()};
}

/// Optimised bitcode and object.
void make_code(llvm::Module& module, llvm::TargetMachine& machine, const BareTarget* bare, program::CpuModule& out) {
  optimise(module, machine);
  out.bitcode = bitcode(module);
  if (bare) call_freestanding(module, machine);
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream to(bytes);
  llvm::legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, to, nullptr, llvm::CodeGenFileType::ObjectFile))
    refuse("the target writes no objects");
  passes.run(module);
  out.object.assign(bytes.begin(), bytes.end());
}

}  // namespace

int64_t host_vector_bytes() {
  static const int64_t host = [] {
    const auto features = llvm::sys::getHostCPUFeatures();
    if (features.lookup("avx512f") && features.lookup("avx512bw") && features.lookup("avx512vl")) return 64;
    return features.lookup("avx2") ? 32 : 16;
  }();
  const char* limit = getenv("TESSERA_CPU_VECTOR_BYTES");
  if (limit == nullptr) return host;
  const std::string_view text = limit;
  return std::min<int64_t>(host, text == "16" ? 16 : text == "32" ? 32 : 64);
}

program::CpuModule emit_machine_code(mlir::ModuleOp module, const std::vector<EntryPoint>& entry_points,
                                     const std::map<std::string, Work>& work, const BareTarget* bare,
                                     const CodeCache* cache) {
  program::CpuModule out;
  auto machine = bare ? bare_machine(*bare, out) : host_machine(out);
  if (mlir::failed(to_llvm_dialect(module, machine->createDataLayout())))
    refuse("an operation has no form in LLVM's dialect");
  llvm::LLVMContext context;
  auto code = mlir::translateModuleToLLVMIR(module, context, "tessera");
  if (!code) refuse("the module does not translate to LLVM");
  code->setTargetTriple(out.triple);
  code->setDataLayout(machine->createDataLayout());
  mark_functions(*code, work);
  for (const EntryPoint& entry : entry_points) add_entry_point(*code, entry);
  mark_library_calls(*code);
  if (!bare) share_loops(*code, work);
  if (getenv("TESSERA_CPU_DUMP")) code->print(llvm::errs(), nullptr);
  std::string problem;
  llvm::raw_string_ostream stream(problem);
  if (llvm::verifyModule(*code, &stream)) refuse(problem);
  if (!cache) {
    make_code(*code, *machine, bare, out);
    return out;
  }
  const std::vector<uint8_t> source = bitcode(*code);
  const std::string key =
      FileCache::key({kPasses, kPipeline, LLVM_VERSION_STRING, out.triple, out.cpu, out.features,
                      std::string_view(reinterpret_cast<const char*>(source.data()), source.size())});
  if (auto known = cache->find(key)) {
    out.object = std::move(known->object);
    out.bitcode = std::move(known->bitcode);
    return out;
  }
  make_code(*code, *machine, bare, out);
  cache->keep(key, out);
  return out;
}

}  // namespace tessera::cpu
