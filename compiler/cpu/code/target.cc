// SPDX-License-Identifier: Apache-2.0
// RISC-V has a rule from its ISA strings to features and calling convention; Arm has names of processors.
#include "compiler/cpu/code/target.h"

#include <mutex>

#include "base/error.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/RISCVISAInfo.h"

namespace tessera::cpu {

namespace {

struct Named {
  const char *name, *triple, *cpu, *features, *compiler, *flags;
  int bits;
  bool floats;
};

// The features of Cortex-M4 and its kin are those of single-precision floating-point units; `soft` names have none.
constexpr Named kNamed[] = {
    {"cortex-m3", "thumbv7m-none-eabi", "cortex-m3", "", "arm-none-eabi-gcc", "-mcpu=cortex-m3 -mthumb", 32, false},
    {"cortex-m4", "thumbv7em-none-eabihf", "cortex-m4", "", "arm-none-eabi-gcc",
     "-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16", 32, true},
    {"cortex-m7", "thumbv7em-none-eabihf", "cortex-m7", "-fp64", "arm-none-eabi-gcc",
     "-mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16", 32, true},
    {"cortex-m33", "thumbv8m.main-none-eabihf", "cortex-m33", "", "arm-none-eabi-gcc",
     "-mcpu=cortex-m33 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16", 32, true},
    {"cortex-a9", "armv7a-none-eabihf", "cortex-a9", "-neon,+vfp3d16", "arm-none-eabi-gcc",
     "-mcpu=cortex-a9 -mfloat-abi=hard -mfpu=vfpv3-d16", 32, true},
    {"cortex-a53", "aarch64-none-elf", "cortex-a53", "", "aarch64-linux-gnu-gcc", "-mcpu=cortex-a53", 64, true},
    {"x86-64", "x86_64-unknown-linux-gnu", "x86-64", "", "gcc", "", 64, true},
};

[[noreturn]] void refuse(std::string_view name, const std::string& why) {
  std::string known;
  for (const std::string& other : bare_target_names()) known += ", " + other;
  throw Error(ErrorCode::kInvalidArgument, "no processor '" + std::string(name) + "'" + why +
                                               "; there are RISC-V's ISA strings (rv32im, rv64imac, ...)" + known);
}

BareTarget riscv(std::string_view name) {
  auto parsed = llvm::RISCVISAInfo::parseArchString(llvm::StringRef(name.data(), name.size()), true);
  if (!parsed) refuse(name, ": " + llvm::toString(parsed.takeError()));
  const auto& isa = **parsed;
  BareTarget target;
  target.name = name;
  target.bits = static_cast<int>(isa.getXLen());
  if (target.bits != 32 && target.bits != 64) refuse(name, "");
  target.triple = "riscv" + std::to_string(target.bits) + "-unknown-none-elf";
  target.cpu = "generic-rv" + std::to_string(target.bits);
  for (const std::string& feature : isa.toFeatures())
    if (feature != "+i") target.features += (target.features.empty() ? "" : ",") + feature;
  target.abi = isa.computeDefaultABI().str();
  target.compiler = "riscv64-unknown-elf-gcc";
  target.flags = "-march=" + std::string(name) + " -mabi=" + target.abi + " -mcmodel=medany";
  target.floats = isa.hasExtension("f");
  return target;
}

void initialise_targets() {
  LLVMInitializeRISCVTargetInfo();
  LLVMInitializeRISCVTarget();
  LLVMInitializeRISCVTargetMC();
  LLVMInitializeRISCVAsmPrinter();
  LLVMInitializeARMTargetInfo();
  LLVMInitializeARMTarget();
  LLVMInitializeARMTargetMC();
  LLVMInitializeARMAsmPrinter();
  LLVMInitializeAArch64TargetInfo();
  LLVMInitializeAArch64Target();
  LLVMInitializeAArch64TargetMC();
  LLVMInitializeAArch64AsmPrinter();
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
}

}  // namespace

std::vector<std::string> bare_target_names() {
  std::vector<std::string> names;
  for (const Named& named : kNamed) names.emplace_back(named.name);
  return names;
}

BareTarget find_bare_target(std::string_view name) {
  if (name.starts_with("rv32") || name.starts_with("rv64")) return riscv(name);
  for (const Named& named : kNamed) {
    if (named.name != name) continue;
    return {named.name,     named.triple, named.cpu,  named.features, "",
            named.compiler, named.flags,  named.bits, named.floats};
  }
  refuse(name, "");
}

std::unique_ptr<llvm::TargetMachine> machine_of(const BareTarget& target) {
  static std::once_flag once;
  std::call_once(once, initialise_targets);
  std::string error;
  const llvm::Target* found = llvm::TargetRegistry::lookupTarget(target.triple, error);
  if (found == nullptr) throw Error(ErrorCode::kUnsupported, "no code for '" + target.name + "': " + error);
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  options.FunctionSections = true;
  options.MCOptions.ABIName = target.abi;
  const bool riscv = target.triple.starts_with("riscv"), hosted = target.triple.find("linux") != std::string::npos;
  return std::unique_ptr<llvm::TargetMachine>(found->createTargetMachine(
      target.triple, target.cpu, target.features, options, hosted ? llvm::Reloc::PIC_ : llvm::Reloc::Static,
      riscv ? std::optional(llvm::CodeModel::Medium) : std::nullopt, llvm::CodeGenOptLevel::Default));
}

}  // namespace tessera::cpu
