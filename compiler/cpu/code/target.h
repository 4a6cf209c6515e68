// SPDX-License-Identifier: Apache-2.0
// Processors that code of the CPU is made for: this host, or a bare one beside the NPU.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace llvm {
class TargetMachine;
}

namespace tessera::cpu {

inline constexpr std::string_view kHost = "host";

/// A processor without an operating system. Code for it is scalar, for one thread, with addresses of its width, and
/// calls the freestanding functions of runtime/bare_metal.
struct BareTarget {
  std::string name;  // as given: "rv32im", "cortex-m4"
  std::string triple, cpu, features, abi;
  std::string compiler;  // of GNU, that links firmware: "riscv64-unknown-elf-gcc"
  std::string flags;     // that it takes for this processor
  int bits = 32;         // of a pointer
  bool floats = false;   // whether there are instructions for float32
};

/// Names other than RISC-V's, which are ISA strings.
std::vector<std::string> bare_target_names();

/// A RISC-V ISA string ("rv32im", "rv64gc") or one of bare_target_names(). Errors: kInvalidArgument, which lists them.
BareTarget find_bare_target(std::string_view name);

/// LLVM's code generator for it. Errors: kUnsupported where this LLVM has none.
std::unique_ptr<llvm::TargetMachine> machine_of(const BareTarget& target);

}  // namespace tessera::cpu
