// SPDX-License-Identifier: Apache-2.0
// The functional simulator behind the machine's registers: what a processor beside the NPU sees of it. Enters: reads
// and writes of 32-bit words at the offsets of isa/registers.toml, and memory that the caller owns. A write of ap_start
// runs the program to its end before it returns; cycles stay 0.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "isa/config.h"

namespace tessera::driver {

/// Bytes that the machine reaches at `address`. They stay the caller's and outlive the machine.
struct SharedMemory {
  uint64_t address = 0;
  uint8_t* bytes = nullptr;
  uint64_t size = 0;
};

class RegisterMachine {
 public:
  RegisterMachine(const isa::MachineConfig& config, const std::vector<SharedMemory>& memory);
  ~RegisterMachine();
  RegisterMachine(RegisterMachine&&) noexcept;
  RegisterMachine& operator=(RegisterMachine&&) noexcept;

  /// `offset`: bytes, a multiple of 4. What is no register reads 0 and ignores writes, as the hardware does.
  uint32_t read(uint32_t offset);
  void write(uint32_t offset, uint32_t value);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::driver
