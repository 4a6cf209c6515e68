// SPDX-License-Identifier: Apache-2.0
// Programs through the registers, as a driver of the hardware would run them, and the memories behind the ports.
#include "sim/verilator/machine.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "isa/generated/registers.h"
#include "isa/generated/timing.h"
#include "sim/verilator/tracer.h"

namespace tessera::sim {

RtlCore::RtlCore(const isa::MachineConfig& config, const TesseraRtlApi& api)
    : config_(config), api_(api), model_(api.create()) {}

RtlCore::~RtlCore() { api_.destroy(model_); }

void answer(DramModel& dram, TesseraRtlPins& p) {
  DramInputs in;
  in.ar_valid = p.ar_valid;
  in.ar_address = p.ar_address;
  in.ar_beats = p.ar_length + 1;
  in.r_ready = p.r_ready;
  in.aw_valid = p.aw_valid;
  in.aw_address = p.aw_address;
  in.aw_beats = p.aw_length + 1;
  in.w_valid = p.w_valid;
  in.w_data = p.w_data;
  in.w_strobe = p.w_strobe;
  in.b_ready = p.b_ready;
  const DramOutputs& out = dram.cycle(in);
  p.ar_ready = out.ar_ready;
  p.r_valid = out.r_valid;
  p.r_error = out.r_error;
  p.r_last = out.r_last;
  p.r_data = out.r_data.data();
  p.aw_ready = out.aw_ready;
  p.w_ready = out.w_ready;
  p.b_valid = out.b_valid;
  p.b_error = out.b_error;
}

void RtlMachine::clock(DramModel& dram) {
  answer(dram, pins_);
  core_.api().cycle(core_.model(), &pins_);
}

void RtlMachine::clock_probed(DramModel& dram, TesseraRtlProbe& probe) {
  answer(dram, pins_);
  core_.api().cycle_probed(core_.model(), &pins_, &probe);
}

void RtlMachine::reset(DramModel& dram) {
  dram.reset();
  pins_ = {};
  pins_.reset = 1;
  for (int cycle = 0; cycle < 4; ++cycle) clock(dram);
  pins_.reset = 0;
  for (int cycle = 0; cycle < 20; ++cycle) clock(dram);  // the machine clears its base registers
}

void RtlPins::write_register(uint32_t offset, uint32_t value, DramModel& dram) {
  pins_.s_write_address = offset;
  pins_.s_write_data = value;
  // One half alone comes first, now the address and now the data.
  const bool address_first = offset % 8 == 0;
  pins_.s_address = address_first;
  pins_.s_data = !address_first;
  for (int cycle = 0; cycle < register_delay_; ++cycle) clock(dram);
  pins_.s_address = pins_.s_data = 1;
  respond(dram, pins_.s_written);
}

uint32_t RtlPins::read_register(uint32_t offset, DramModel& dram) {
  pins_.s_read = 1;
  pins_.s_read_address = offset;
  return respond(dram, pins_.s_read_valid);
}

/// One cycle in which an access is offered, those until its response, and those until that is taken. Leaves the data.
uint32_t RtlPins::respond(DramModel& dram, const uint8_t& response) {
  pins_.s_hold = register_delay_ > 0;
  clock(dram);
  pins_.s_address = pins_.s_data = pins_.s_read = 0;
  while (response == 0) clock(dram);
  for (int cycle = 0; cycle < register_delay_; ++cycle) clock(dram);
  const uint32_t value = pins_.s_read_data;
  pins_.s_hold = 0;
  clock(dram);
  return value;
}

TesseraRtlMemory RtlCore::memory(isa::Space space) { return api_.memory(model_, static_cast<int>(space)); }

/// The least common multiple of an entry and a beat; of tables what they take of a beat in a cycle.
size_t RtlCore::word_bytes(isa::Space space) const {
  const auto beat = static_cast<size_t>(config_.axi_bytes);
  if (space == isa::Space::kTable) return std::min(beat, size_t{isa::timing::load::kTableBytes});
  return std::lcm(static_cast<size_t>(config_.entry_bytes(space)), beat);
}

/// Calls body(place, offset, count) for pieces that are contiguous in the model; place is the word's number and the
/// byte within it.
template <typename F>
void RtlCore::for_each_piece(isa::Space space, size_t offset, size_t count, F&& body) {
  const auto size = static_cast<size_t>(config_.space_bytes(space));
  if (offset > size || count > size - offset) {
    throw Error(ErrorCode::kInvalidArgument, "access to " + std::to_string(count) + " bytes at " +
                                                 std::to_string(offset) + " leaves " +
                                                 std::string(isa::to_string(space)));
  }
  const size_t word = word_bytes(space);
  for (size_t done = 0; done < count;) {
    const size_t at = offset + done;
    const size_t piece = std::min(count - done, word - at % word);
    body(std::pair(at / word, at % word), done, piece);
    done += piece;
  }
}

std::vector<uint8_t> RtlCore::scratchpad(isa::Space space) {
  std::vector<uint8_t> bytes(static_cast<size_t>(config_.space_bytes(space)));
  const TesseraRtlMemory from = memory(space);
  for_each_piece(space, 0, bytes.size(), [&](auto place, size_t at, size_t count) {
    std::memcpy(&bytes[at], from.data + place.first * from.stride_bytes + place.second, count);
  });
  return bytes;
}

void RtlCore::write_scratchpad(isa::Space space, size_t offset, std::span<const uint8_t> bytes) {
  const TesseraRtlMemory to = memory(space);
  for_each_piece(space, offset, bytes.size(), [&](auto place, size_t at, size_t count) {
    std::memcpy(to.data + place.first * to.stride_bytes + place.second, &bytes[at], count);
    if (config_.memory_parity == 0) return;
    for (size_t n = 0; n < count; ++n) {
      const size_t bit = place.second + n;
      uint8_t& bits = to.parity[place.first * to.parity_stride_bytes + bit / 8];
      const int odd = std::popcount(bytes[at + n]) % 2;
      bits = static_cast<uint8_t>((bits & ~(1 << bit % 8)) | odd << bit % 8);
    }
  });
}

void RtlCore::flip_bit(isa::Space space, size_t offset, int bit) {
  if (bit < 0 || bit >= 8 + config_.memory_parity) {
    throw Error(ErrorCode::kInvalidArgument,
                "bit " + std::to_string(bit) + " is none of a byte of " + std::string(isa::to_string(space)));
  }
  const TesseraRtlMemory in = memory(space);
  for_each_piece(space, offset, 1, [&](auto place, size_t, size_t) {
    const auto [word, byte] = place;
    if (bit < 8)
      in.data[word * in.stride_bytes + byte] ^= static_cast<uint8_t>(1 << bit);
    else
      in.parity[word * in.parity_stride_bytes + byte / 8] ^= static_cast<uint8_t>(1 << byte % 8);
  });
}

void RtlMachine::open_waves(const std::string& path) {
  if (core_.api().traces == 0) throw Error(ErrorCode::kUnsupported, "this model was verilated without waveforms");
  core_.api().open_waves(core_.model(), path.c_str());
}

void write_request(const RtlRegisters& registers, const RtlRequest& request) {
  const auto write64 = [&](uint32_t offset, uint64_t value) {
    registers.write(offset, static_cast<uint32_t>(value));
    registers.write(offset + 4, static_cast<uint32_t>(value >> 32));
  };
  write64(isa::reg::kProgramAddress, request.program_address);
  registers.write(isa::reg::kInstructionCount, request.instruction_count);
  for (uint32_t b = 0; b < request.bases.size(); ++b) {
    write64(isa::reg::base(static_cast<int>(b)), request.bases[b]);
  }
  write64(isa::reg::kWindowFirst, request.window_first);
  write64(isa::reg::kWindowLast, request.window_last);
  registers.write(isa::reg::kGie, isa::reg::kGieEnableMask);
  registers.write(isa::reg::kIer, isa::reg::kIerDoneMask);
}

RtlRegisters RtlMachine::registers(DramModel& dram) {
  return {[&](uint32_t offset) { return read_register(offset, dram); },
          [&](uint32_t offset, uint32_t value) { write_register(offset, value, dram); }};
}

void RtlMachine::start(const RtlRequest& request, DramModel& dram) {
  write_request(registers(dram), request);
  dram.restart();
  write_register(isa::reg::kApCtrl, isa::reg::kApCtrlApStartMask, dram);
}

bool RtlMachine::advance(uint64_t limit, DramModel& dram) {
  for (uint64_t cycle = 0; cycle < limit && !interrupt(); ++cycle) clock(dram);
  return interrupt();
}

RtlResult RtlMachine::run(const RtlRequest& request, DramModel& dram) {
  RtlResult result;
  if (request.trace_program.empty()) {
    start(request, dram);
    if (!advance(request.max_cycles, dram)) {
      throw Error(ErrorCode::kInternal,
                  "the machine has not stopped after " + std::to_string(request.max_cycles) + " cycles");
    }
  } else {
    Tracer tracer(config(), request.trace_program);
    start(request, dram);
    TesseraRtlProbe probe{};
    for (uint64_t cycle = 0; !interrupt(); ++cycle) {
      if (cycle == request.max_cycles) {
        throw Error(ErrorCode::kInternal, "the machine has not stopped after " + std::to_string(cycle) + " cycles");
      }
      const TesseraRtlPins before = pins_;  // what the machine drives in this cycle
      clock_probed(dram, probe);
      tracer.cycle(probe, before, pins_);
    }
    result.trace = tracer.take();
  }
  Trace trace = std::move(result.trace);
  result = read_result(registers(dram));
  result.trace = std::move(trace);
  return result;
}

RtlResult read_result(const RtlRegisters& registers) {
  const auto read = [&](uint32_t offset) { return registers.read(offset); };
  RtlResult result;
  const auto read64 = [&](uint32_t offset) {
    const uint64_t low = read(offset);
    return low | uint64_t{read(offset + 4)} << 32;
  };
  registers.write(isa::reg::kIsr, read(isa::reg::kIsr));  // writing 1 clears
  read(isa::reg::kApCtrl);                                // clears ap_done

  const uint32_t fault = read(isa::reg::kFault);
  result.fault.code = static_cast<isa::Fault>((fault & isa::reg::kFaultCodeMask) >> isa::reg::kFaultCodeLsb);
  if (result.fault.code != isa::Fault::kNone) {
    result.fault.unit = static_cast<isa::Unit>((fault & isa::reg::kFaultUnitMask) >> isa::reg::kFaultUnitLsb);
    result.fault.pc = read(isa::reg::kFaultPc);
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
