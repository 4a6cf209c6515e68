// SPDX-License-Identifier: Apache-2.0
// Functional coverage of random programs: which opcodes, modes, loop depths and wait patterns have run, and which that
// the configuration allows have not.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "isa/config.h"
#include "isa/generated/instructions.h"

namespace tessera::proof {

class Coverage {
 public:
  explicit Coverage(const isa::MachineConfig& config);

  void add(const std::vector<isa::Instruction>& program);

  /// Bins that the configuration allows and no program has hit.
  std::vector<std::string> missing() const;
  /// A line for each group of bins: hit of all, and the counts.
  std::string report() const;

 private:
  void hit(const std::string& group, const std::string& bin) { ++bins_[group][bin]; }
  void allow(const std::string& group, const std::vector<std::string>& bins);
  void add(const isa::Header& header, isa::Engine engine);
  void add_operands(const isa::Finish& i);
  void add_operands(const isa::Fence& i);
  void add_operands(const isa::Load& i);
  void add_operands(const isa::Store& i);
  void add_operands(const isa::Gemm& i);
  void add_operands(const isa::Alu& i);

  std::map<std::string, std::map<std::string, uint64_t>> bins_;
};

}  // namespace tessera::proof
