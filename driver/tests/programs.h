// SPDX-License-Identifier: Apache-2.0
// For tests of several devices: a program that moves bytes through a scratchpad in a way that every device must get
// right.
#pragma once

#include <cstdint>
#include <vector>

#include "isa/generated/instructions.h"

namespace tessera::driver::test {

/// 1000 bytes go from byte 13 of base 1 to byte `first_byte` of OUT, and from there in pieces of 10, in reverse order
/// with a gap, to base 2.
inline std::vector<isa::Instruction> turn_around(uint32_t first_byte) {
  isa::Load load;
  load.space = isa::Space::kOut;
  load.base = 1;
  load.dram_offset = 13;
  load.length = 1000;
  load.sp_addr = first_byte;
  load.header.signal = true;
  isa::Store store;
  store.space = isa::Space::kOut;
  store.base = 2;
  store.dram_offset = 1500;
  store.length = 10;
  store.sp_addr = first_byte;
  store.extent[3] = 100;
  store.sp_stride[3] = 10;
  store.dram_stride[3] = -11;
  store.header.waits[0] = {true, isa::Engine::kLoad, 1};
  return {load, store, isa::Finish{}};
}

/// The words of a program as they stand in memory.
inline std::vector<uint8_t> words_of(const std::vector<isa::Instruction>& program) {
  std::vector<uint8_t> words;
  for (const isa::Instruction& instruction : program) {
    const isa::Word word = isa::encode(instruction);
    words.insert(words.end(), word.begin(), word.end());
  }
  return words;
}

}  // namespace tessera::driver::test
