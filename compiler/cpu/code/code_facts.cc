// SPDX-License-Identifier: Apache-2.0
// Sections of the object tell the memory; the bitcode, which still calls functions by the names of the C library, tells
// who calls what.
#include "compiler/cpu/code/code_facts.h"

#include <vector>

#include "base/error.h"
#include "llvm/BinaryFormat/ELF.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ELFObjectFile.h"

namespace tessera::cpu {

namespace {

[[noreturn]] void refuse(llvm::Error error) {
  throw Error(ErrorCode::kInvalidArtifact, "the code of the CPU cannot be read: " + llvm::toString(std::move(error)));
}

llvm::MemoryBufferRef buffer_of(const std::vector<uint8_t>& bytes) {
  return {llvm::StringRef(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "code"};
}

void read_sections(const program::CpuModule& module, CodeFacts& facts) {
  auto object = llvm::object::ObjectFile::createELFObjectFile(buffer_of(module.object));
  if (!object) refuse(object.takeError());
  for (const llvm::object::ELFSectionRef section : (*object)->sections()) {
    if ((section.getFlags() & llvm::ELF::SHF_ALLOC) == 0) continue;
    const bool executable = (section.getFlags() & llvm::ELF::SHF_EXECINSTR) != 0;
    (executable ? facts.code_bytes : facts.constant_bytes) += section.getSize();
  }
}

}  // namespace

CodeFacts facts_of(const program::CpuModule& module) {
  CodeFacts facts;
  if (module.object.empty()) return facts;
  read_sections(module, facts);
  llvm::LLVMContext context;
  auto code = llvm::parseBitcodeFile(buffer_of(module.bitcode), context);
  if (!code) refuse(code.takeError());
  for (llvm::Function& entry : **code) {
    if (entry.isDeclaration() || entry.hasLocalLinkage()) continue;
    std::set<const llvm::Function*> seen = {&entry};
    std::vector<const llvm::Function*> open = {&entry};
    std::set<std::string>& names = facts.calls[entry.getName().str()];
    while (!open.empty()) {
      const llvm::Function* function = open.back();
      open.pop_back();
      for (const llvm::BasicBlock& block : *function)
        for (const llvm::Instruction& instruction : block) {
          const auto* call = llvm::dyn_cast<llvm::CallBase>(&instruction);
          const llvm::Function* callee = call ? call->getCalledFunction() : nullptr;
          if (callee == nullptr || callee->isIntrinsic()) continue;
          if (callee->isDeclaration())
            names.insert(callee->getName().str());
          else if (seen.insert(callee).second)
            open.push_back(callee);
        }
    }
  }
  return facts;
}

}  // namespace tessera::cpu
