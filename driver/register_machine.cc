// SPDX-License-Identifier: Apache-2.0
#include "driver/register_machine.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/error.h"
#include "driver/capabilities.h"
#include "isa/generated/registers.h"
#include "sim/functional/machine.h"

namespace tessera::driver {

struct RegisterMachine::State {
  State(const isa::MachineConfig& config, const std::vector<SharedMemory>& shared) : machine(config) {
    if (config.cores > 1)
      throw Error(ErrorCode::kUnsupported, "a machine behind registers has one core, and '" + config.name + "' has " +
                                               std::to_string(config.cores));
    for (const SharedMemory& part : shared) memory.push_back({part.address, part.bytes, part.size});
    words[isa::reg::kMagic] = isa::reg::kMagicReset;
    words[isa::reg::kIsaVersion] = static_cast<uint32_t>(isa::kIsaVersion);
    set_wide(isa::reg::kWindowLast, isa::reg::kWindowLastReset);
    for (const isa::ConfigKey& key : isa::config_keys())
      for (const isa::reg::Register& reg : isa::reg::kRegisters)
        if (reg.parameter == key.name) words[reg.offset] = reported(key, config);
  }

  uint64_t wide(uint32_t offset) { return words[offset] | uint64_t{words[offset + 4]} << 32; }
  void set_wide(uint32_t offset, uint64_t value) {
    words[offset] = static_cast<uint32_t>(value);
    words[offset + 4] = static_cast<uint32_t>(value >> 32);
  }

  /// The parts of the memory that lie inside the window.
  std::vector<sim::DramRegion> visible() {
    const uint64_t first = wide(isa::reg::kWindowFirst), last = wide(isa::reg::kWindowLast);
    std::vector<sim::DramRegion> regions;
    for (const sim::DramRegion& part : memory) {
      const uint64_t begin = std::max(first, part.address), end = std::min(last, part.address + part.size_bytes - 1);
      if (begin <= end) regions.push_back({begin, part.data + (begin - part.address), end - begin + 1});
    }
    return regions;
  }

  void start() {
    const std::vector<sim::DramRegion> regions = visible();
    sim::RunRequest request;
    request.program_address = wide(isa::reg::kProgramAddress);
    request.instruction_count = words[isa::reg::kInstructionCount];
    for (int k = 0; k < isa::reg::kBaseCount; ++k) request.bases[static_cast<size_t>(k)] = wide(isa::reg::base(k));
    request.dram = regions;
    const sim::RunResult result = machine.run(request);
    const uint32_t unit = result.ok() ? 0 : static_cast<uint32_t>(result.fault.unit);
    words[isa::reg::kFault] =
        static_cast<uint32_t>(result.fault.code) << isa::reg::kFaultCodeLsb | unit << isa::reg::kFaultUnitLsb;
    words[isa::reg::kFaultPc] = result.fault.pc;
    set_wide(isa::reg::kInstructions, result.counters.fetch_bytes / isa::kInstructionBytes);
    set_wide(isa::reg::kBytesRead, result.counters.dram_read_bytes + result.counters.fetch_bytes);
    set_wide(isa::reg::kBytesWritten, result.counters.dram_write_bytes);
    done = true;
    words[isa::reg::kIsr] |= words[isa::reg::kIer] & 3;
  }

  sim::Machine machine;
  std::vector<sim::DramRegion> memory;
  std::map<uint32_t, uint32_t> words;
  bool done = false;
};

RegisterMachine::RegisterMachine(const isa::MachineConfig& config, const std::vector<SharedMemory>& memory)
    : state_(std::make_unique<State>(config, memory)) {}
RegisterMachine::~RegisterMachine() = default;
RegisterMachine::RegisterMachine(RegisterMachine&&) noexcept = default;
RegisterMachine& RegisterMachine::operator=(RegisterMachine&&) noexcept = default;

uint32_t RegisterMachine::read(uint32_t offset) {
  if (offset != isa::reg::kApCtrl) {
    const auto found = state_->words.find(offset);
    return found == state_->words.end() ? 0 : found->second;
  }
  const uint32_t ready = state_->done ? isa::reg::kApCtrlApDoneMask | isa::reg::kApCtrlApReadyMask : 0;
  state_->done = false;
  return isa::reg::kApCtrlApIdleMask | ready;
}

void RegisterMachine::write(uint32_t offset, uint32_t value) {
  if (offset == isa::reg::kApCtrl) {
    if ((value & isa::reg::kApCtrlApStartMask) != 0) state_->start();
  } else if (offset == isa::reg::kIsr) {
    state_->words[offset] ^= value & 3;
  } else if (offset < isa::reg::kFault) {
    state_->words[offset] = value;
  }
}

}  // namespace tessera::driver
