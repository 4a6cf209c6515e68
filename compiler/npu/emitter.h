// SPDX-License-Identifier: Apache-2.0
// What operations share while code is generated: the instruction stream, the constants, the tables that are loaded, and where the next
// nest's slots begin in each scratchpad. Enters piece by piece from the lowering; leaves as the parts of a Program.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "compiler/npu/graph.h"

namespace tessera::npu {

/// Bytes that the program carries; equal blobs are stored once.
class ConstantPool {
 public:
  explicit ConstantPool(int64_t alignment) : alignment_(alignment > 0 ? alignment : 1) {}
  /// Offset from the constants' base register.
  int64_t add(std::vector<uint8_t> bytes);
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  int64_t alignment_;
  std::vector<uint8_t> bytes_;
  std::multimap<uint64_t, std::pair<int64_t, int64_t>> known_;  // hash -> offset, size
};

/// What operations hand on to each other while code is generated.
class Emitter {
 public:
  Emitter(const isa::MachineConfig& config, const Options& options) : config(config), constants(options.alignment) {}

  void push(isa::Instruction instruction) {
    instructions.push_back(std::move(instruction));
    layer_of_instruction.push_back(layer);
  }

  /// Reserves `total` entries of a space for a nest: after the previous nest's, so that its first fetches need not wait, or from 0.
  int64_t reserve(isa::Space space, int64_t total);

  /// The TABLE slot that holds a table, loaded when it is not there. `keep`: a slot that must stay; -1: none.
  int table(const Table& bytes, int keep);

  const isa::MachineConfig& config;
  ConstantPool constants;
  std::vector<isa::Instruction> instructions;
  std::vector<uint32_t> layer_of_instruction;
  uint32_t layer = 0;

 private:
  std::map<isa::Space, int64_t> cursor_;
  std::vector<std::vector<uint8_t>> tables_;
  int next_table_ = 0;
};

}  // namespace tessera::npu
