// SPDX-License-Identifier: Apache-2.0
// Programs through the registers, as a driver of the hardware would run them, and the memories behind the ports.
#include "sim/verilator/machine.h"

#include <cstring>

#include "base/error.h"
#include "isa/generated/registers.h"

namespace tessera::sim {

void RtlMachine::write_register(uint32_t offset, uint32_t value, DramModel& dram) {
  Slave slave;
  slave.write = true;
  slave.write_address = offset;
  slave.write_data = value;
  clock(slave, dram);
  slave.write = false;
  do {
    clock(slave, dram);
  } while (!slave.written);
}

uint32_t RtlMachine::read_register(uint32_t offset, DramModel& dram) {
  Slave slave;
  slave.read = true;
  slave.read_address = offset;
  clock(slave, dram);
  slave.read = false;
  do {
    clock(slave, dram);
  } while (!slave.read_valid);
  return slave.read_data;
}

std::vector<uint8_t> RtlMachine::scratchpad(isa::Space space) {
  const Memory from = memory(space).front();
  std::vector<uint8_t> bytes(from.entry_bytes * from.entries);
  for (size_t n = 0; n < from.entries; ++n) {
    std::memcpy(&bytes[n * from.entry_bytes], from.data + n * from.stride_bytes, from.entry_bytes);
  }
  return bytes;
}

void RtlMachine::write_scratchpad(isa::Space space, size_t offset, std::span<const uint8_t> bytes) {
  for (const Memory& to : memory(space)) {
    const size_t size = to.entry_bytes * to.entries;
    if (offset > size || bytes.size() > size - offset) {
      throw Error(ErrorCode::kInvalidArgument, "write of " + std::to_string(bytes.size()) + " bytes at " +
                                                   std::to_string(offset) + " leaves " +
                                                   std::string(isa::to_string(space)));
    }
    for (size_t n = 0; n < bytes.size(); ++n) {
      const size_t at = offset + n;
      to.data[at / to.entry_bytes * to.stride_bytes + at % to.entry_bytes] = bytes[n];
    }
  }
}

RtlResult RtlMachine::run(const RtlRequest& request, DramModel& dram) {
  const auto write64 = [&](uint32_t offset, uint64_t value) {
    write_register(offset, static_cast<uint32_t>(value), dram);
    write_register(offset + 4, static_cast<uint32_t>(value >> 32), dram);
  };
  const auto read64 = [&](uint32_t offset) {
    const uint64_t low = read_register(offset, dram);
    return low | uint64_t{read_register(offset + 4, dram)} << 32;
  };
  write64(isa::reg::kProgramAddress, request.program_address);
  write_register(isa::reg::kInstructionCount, request.instruction_count, dram);
  for (uint32_t b = 0; b < request.bases.size(); ++b) {
    write64(isa::reg::base(static_cast<int>(b)), request.bases[b]);
  }
  write64(isa::reg::kWindowFirst, request.window_first);
  write64(isa::reg::kWindowLast, request.window_last);
  write_register(isa::reg::kGie, isa::reg::kGieEnableMask, dram);
  write_register(isa::reg::kIer, isa::reg::kIerDoneMask, dram);
  write_register(isa::reg::kApCtrl, isa::reg::kApCtrlApStartMask, dram);
  Slave idle;
  const uint64_t begin = dram.now();
  while (!interrupt_) {
    clock(idle, dram);
    if (dram.now() - begin > request.max_cycles) {
      throw Error(ErrorCode::kInternal, "the machine has not stopped after " + std::to_string(request.max_cycles) +
                                            " cycles");
    }
  }
  write_register(isa::reg::kIsr, read_register(isa::reg::kIsr, dram), dram);  // writing 1 clears
  read_register(isa::reg::kApCtrl, dram);                                     // clears ap_done

  RtlResult result;
  const uint32_t fault = read_register(isa::reg::kFault, dram);
  result.fault.code = static_cast<isa::Fault>((fault & isa::reg::kFaultCodeMask) >> isa::reg::kFaultCodeLsb);
  if (result.fault.code != isa::Fault::kNone) {
    result.fault.unit = static_cast<isa::Unit>((fault & isa::reg::kFaultUnitMask) >> isa::reg::kFaultUnitLsb);
    result.fault.pc = read_register(isa::reg::kFaultPc, dram);
  }
  result.cycles = read64(isa::reg::kCycles);
  result.instructions = read64(isa::reg::kInstructions);
  result.bytes_read = read64(isa::reg::kBytesRead);
  result.bytes_written = read64(isa::reg::kBytesWritten);
  for (int u = 0; u < isa::reg::kBusyCount; ++u) {
    RtlUnitCounters& unit = result.units[static_cast<size_t>(u)];
    unit.busy = read64(isa::reg::busy(u));
    unit.wait = {read64(isa::reg::wait_load(u)), read64(isa::reg::wait_gemm(u)), read64(isa::reg::wait_alu(u)),
                 read64(isa::reg::wait_store(u))};
    unit.stall_memory = read64(isa::reg::stall_memory(u));
    unit.stall_port = read64(isa::reg::stall_port(u));
    unit.executed = read64(isa::reg::executed(u));
  }
  return result;
}

}  // namespace tessera::sim
