// SPDX-License-Identifier: Apache-2.0
// Functional coverage of random programs: which opcodes, modes, loop depths and wait patterns have run, and which that
// the configuration allows have not.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <type_traits>
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
  /// Instructions whose bins are written by hand, because their fields matter together.
  template <typename T>
  static constexpr bool kHasOwnBins =
      std::is_same_v<T, isa::Finish> || std::is_same_v<T, isa::Fence> || std::is_same_v<T, isa::Load> ||
      std::is_same_v<T, isa::Store> || std::is_same_v<T, isa::Gemm> || std::is_same_v<T, isa::Alu>;
  /// For every other instruction each value of each bool and enumeration is a bin.
  template <size_t Index = 0>
  void allow_fields();
  /// Whether the configuration has the instruction.
  bool legal(std::string_view instruction) const { return rows_ || !instruction.starts_with("row_"); }
  template <typename T>
  void add_operands(const T& i);
  void add_operands(const isa::Finish& i);
  void add_operands(const isa::Fence& i);
  void add_operands(const isa::Load& i);
  void add_operands(const isa::Store& i);
  void add_operands(const isa::Gemm& i);
  void add_operands(const isa::Alu& i);

  std::map<std::string, std::map<std::string, uint64_t>> bins_;
  int axi_bytes_;
  bool rows_;
  int pairs_;
};

}  // namespace tessera::proof
