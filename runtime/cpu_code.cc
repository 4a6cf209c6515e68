// SPDX-License-Identifier: Apache-2.0
// LLVM's JITLink through ORC: an object is linked into this process; bitcode is compiled for the host when the object
// was made for another CPU. The math library and the kernels' C entry points of this process are what the code may
// call.
#include "runtime/cpu_code.h"

#include <llvm/ExecutionEngine/Orc/CompileUtils.h>
#include <llvm/ExecutionEngine/Orc/LLJIT.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/IRReader/IRReader.h>
#include <llvm/Support/SourceMgr.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/TargetParser/Host.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

#include "base/error.h"
#include "runtime/threads.h"
#include "runtime/vector_math.h"

namespace tessera::runtime {
namespace {

std::string text(llvm::Error error) { return llvm::toString(std::move(error)); }

/// True if every feature the object uses is one of this host's.
bool host_runs(const program::CpuModule& module) {
  if (llvm::Triple(module.triple).getArch() != llvm::Triple(llvm::sys::getProcessTriple()).getArch()) return false;
  const auto host = llvm::sys::getHostCPUFeatures();
  llvm::SmallVector<llvm::StringRef, 32> wanted;
  llvm::StringRef(module.features).split(wanted, ',', -1, false);
  for (llvm::StringRef feature : wanted)
    if (feature.consume_front("+") && !host.lookup(feature)) return false;
  return true;
}

/// Names of the linked functions for perf: /tmp/perf-PID.map.
class PerfMap : public llvm::orc::ObjectLinkingLayer::Plugin {
 public:
  void modifyPassConfig(llvm::orc::MaterializationResponsibility&, llvm::jitlink::LinkGraph&,
                        llvm::jitlink::PassConfiguration& passes) override {
    passes.PrePrunePasses.push_back([](llvm::jitlink::LinkGraph& graph) {
      for (auto* symbol : graph.defined_symbols())
        if (symbol->isCallable()) symbol->setLive(true);
      return llvm::Error::success();
    });
    passes.PostFixupPasses.push_back([](llvm::jitlink::LinkGraph& graph) {
      if (FILE* file = fopen(("/tmp/perf-" + std::to_string(getpid()) + ".map").c_str(), "a")) {
        for (const auto* symbol : graph.defined_symbols())
          if (symbol->isCallable() && symbol->hasName())
            fprintf(file, "%llx %llx %s\n", static_cast<unsigned long long>(symbol->getAddress().getValue()),
                    static_cast<unsigned long long>(symbol->getSize()), symbol->getName().str().c_str());
        fclose(file);
      }
      return llvm::Error::success();
    });
  }
  llvm::Error notifyFailed(llvm::orc::MaterializationResponsibility&) override { return llvm::Error::success(); }
  llvm::Error notifyRemovingResources(llvm::orc::JITDylib&, llvm::orc::ResourceKey) override {
    return llvm::Error::success();
  }
  void notifyTransferringResources(llvm::orc::JITDylib&, llvm::orc::ResourceKey, llvm::orc::ResourceKey) override {}
};

}  // namespace

struct CpuCode::State {
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

CpuCode::CpuCode(const program::CpuModule& module) : state_(std::make_unique<State>()) {
  static std::once_flag once;
  std::call_once(once, [] {
    llvm::InitializeNativeTarget();
    llvm::InitializeNativeTargetAsmPrinter();
  });
  const auto refuse = [&](const std::string& why) -> Error {
    return Error(ErrorCode::kInvalidArtifact,
                 "the artifact's CPU code (" + module.triple + ", " + module.cpu + ") cannot be loaded: " + why);
  };
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit) throw refuse(text(jit.takeError()));
  state_->jit = std::move(*jit);
  if (getenv("TESSERA_PERF_MAP") != nullptr)
    if (auto* linker = llvm::dyn_cast<llvm::orc::ObjectLinkingLayer>(&state_->jit->getObjLinkingLayer()))
      linker->addPlugin(std::make_shared<PerfMap>());
  llvm::orc::SymbolMap functions;
  for (const VectorFunction& function : vector_functions())
    functions[state_->jit->mangleAndIntern(function.name)] = {
        llvm::orc::ExecutorAddr::fromPtr(function.call),
        llvm::JITSymbolFlags::Callable | llvm::JITSymbolFlags::Exported};
  functions[state_->jit->mangleAndIntern("tessera_parallel_for")] = {
      llvm::orc::ExecutorAddr::fromPtr(parallel_for), llvm::JITSymbolFlags::Callable | llvm::JITSymbolFlags::Exported};
  if (auto error = state_->jit->getMainJITDylib().define(llvm::orc::absoluteSymbols(std::move(functions))))
    throw refuse(text(std::move(error)));
  if (!module.object.empty() && host_runs(module)) {
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(
        llvm::StringRef(reinterpret_cast<const char*>(module.object.data()), module.object.size()), "tessera-cpu-code");
    if (auto error = state_->jit->addObjectFile(std::move(buffer))) throw refuse(text(std::move(error)));
    return;
  }
  // Offsets in bitcode are those of one size of pointers.
  if (llvm::Triple(module.triple).isArch64Bit() != llvm::Triple(llvm::sys::getProcessTriple()).isArch64Bit())
    throw refuse("it was made for a processor with pointers of another size; compile the model without --cpu-target");
  if (module.bitcode.empty()) throw refuse("it was made for another processor and carries no bitcode");
  auto context = std::make_unique<llvm::LLVMContext>();
  llvm::SMDiagnostic diagnostic;
  auto ir = llvm::parseIR(llvm::MemoryBufferRef(llvm::StringRef(reinterpret_cast<const char*>(module.bitcode.data()),
                                                                module.bitcode.size()),
                                                "tessera-cpu-code"),
                          diagnostic, *context);
  if (!ir) throw refuse(diagnostic.getMessage().str());
  ir->setTargetTriple(llvm::sys::getProcessTriple());
  ir->setDataLayout(state_->jit->getDataLayout());
  for (llvm::Function& function : *ir) {
    function.removeFnAttr("target-cpu");
    function.removeFnAttr("target-features");
  }
  if (auto error = state_->jit->addIRModule(llvm::orc::ThreadSafeModule(std::move(ir), std::move(context))))
    throw refuse(text(std::move(error)));
}

CpuCode::~CpuCode() = default;

CpuCode::Function CpuCode::find(const std::string& symbol) const {
  auto address = state_->jit->lookup(symbol);
  if (!address)
    throw Error(ErrorCode::kInvalidArtifact,
                "the CPU code has no function '" + symbol + "': " + text(address.takeError()));
  return address->toPtr<Function>();
}

}  // namespace tessera::runtime
