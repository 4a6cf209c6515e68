// SPDX-License-Identifier: Apache-2.0
// FETCH, the four queues and the dispatch to the engines. FETCH decodes and checks one instruction after another into
// queues of the configured depth; after each, everything that can run does, oldest first. When nothing can, the program
// has ended, or the record is no_progress at the oldest instruction that waits. A fault ends dispatch; older
// instructions that can still run do, so that the record is the earliest in program order. A core of a chip that waits
// for another one stops in between and goes on later.
#include "sim/functional/machine.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/error.h"
#include "isa/verify/verify.h"
#include "sim/functional/engines/alu.h"
#include "sim/functional/engines/gemm.h"
#include "sim/functional/engines/rows.h"
#include "sim/functional/engines/transfer.h"

namespace tessera::sim {
namespace {

isa::Unit unit_of(isa::Engine engine) { return static_cast<isa::Unit>(engine); }

struct Queued {
  uint32_t pc;
  isa::Instruction instruction;
};

}  // namespace

struct Machine::State {
  State(const isa::MachineConfig& machine_config, Kernels kernel_set)
      : config(machine_config), kernels(kernel_set), scratchpads(config), gemm(config, scratchpads, kernels) {}

  isa::MachineConfig config;
  Kernels kernels;
  Scratchpads scratchpads;
  GemmUnit gemm;
};

namespace {

/// What one instruction does to the memories.
template <typename MachineState>
class Executor {
 public:
  Executor(MachineState& machine, const RunRequest& request) : machine_(machine), request_(request) {}

  isa::Fault run(const isa::Instruction& instruction, Work& work) {
    const isa::Fault fault = std::visit([&](const auto& i) { return execute(i); }, instruction);
    if (fault == isa::Fault::kNone) count(isa::effects(instruction, machine_.config), work);
    return fault;
  }

 private:
  // One overload for each instruction; a new instruction without one does not compile.

  isa::Fault execute(const isa::Finish&) {
    invariant_failed("finish is queued", __FILE__, __LINE__, "FETCH executes FINISH itself");
  }

  isa::Fault execute(const isa::Fence&) { return isa::Fault::kNone; }

  isa::Fault execute(const isa::Load& load) {
    const uint8_t* dram = nullptr;
    if (const auto range = isa::dram_range(load)) {
      const uint8_t* lowest = host_memory(*range);
      if (lowest == nullptr) return isa::Fault::kDramRange;
      dram = lowest + (static_cast<int64_t>(load.dram_offset) - range->lowest);
    }
    uint8_t* scratchpad = machine_.scratchpads.bytes(load.space).data();
    if (load.packed) {
      const uint64_t first = request_.bases[load.base] + load.dram_offset;
      if (!isa::dram_aligned(load, machine_.config, first)) return isa::Fault::kDramRange;
      run_packed_load(load, machine_.config, scratchpad, dram);
    } else {
      run_load(load, scratchpad, dram);
    }
    if (load.space == isa::Space::kWgt) weights_written(load);
    return isa::Fault::kNone;
  }

  isa::Fault execute(const isa::Store& store) {
    const auto range = isa::dram_range(store);
    TESSERA_INVARIANT(range.has_value(), "a STORE always writes DRAM");
    uint8_t* lowest = host_memory(*range);
    if (lowest == nullptr) return isa::Fault::kDramRange;
    run_store(store, machine_.scratchpads.bytes(store.space).data(),
              lowest + (static_cast<int64_t>(store.dram_offset) - range->lowest));
    return isa::Fault::kNone;
  }

  isa::Fault execute(const isa::Gemm& gemm) {
    machine_.gemm.run(gemm);
    return isa::Fault::kNone;
  }

  isa::Fault execute(const isa::Alu& alu) {
    run_alu(alu, machine_.config, machine_.scratchpads, machine_.kernels);
    return isa::Fault::kNone;
  }

  isa::Fault execute(const isa::RowReduce& reduce) {
    run_row_reduce(reduce, machine_.config, machine_.scratchpads, request_.bases[isa::kRowLimitBase]);
    return isa::Fault::kNone;
  }

  isa::Fault execute(const isa::RowMap& map) {
    run_row_map(map, machine_.config, machine_.scratchpads, request_.bases[isa::kRowLimitBase]);
    return isa::Fault::kNone;
  }

  static void count(const isa::Effects& effects, Work& work) {
    work.tiles = effects.macs > 0 ? static_cast<uint64_t>(effects.iterations) : 0;
    work.macs = static_cast<uint64_t>(effects.macs);
    work.vectors = static_cast<uint64_t>(effects.vectors);
    work.dram_read_bytes = static_cast<uint64_t>(effects.dram_read_bytes);
    work.dram_write_bytes = static_cast<uint64_t>(effects.dram_write_bytes);
    work.fill_bytes = static_cast<uint64_t>(effects.fill_bytes);
  }

  /// Host memory of the lowest byte of a DRAM range, or null when the range is not valid memory.
  uint8_t* host_memory(const isa::Operand& range) const {
    const uint64_t address = request_.bases[static_cast<size_t>(range.base)] + static_cast<uint64_t>(range.lowest);
    return find_dram(request_.dram, address, static_cast<uint64_t>(range.highest - range.lowest) + 1);
  }

  void weights_written(const isa::Load& load) {
    const isa::Operand range = isa::effects(load, machine_.config).operands[0];
    machine_.gemm.weights_written(static_cast<size_t>(range.lowest),
                                  static_cast<size_t>(range.highest - range.lowest) + 1);
  }

  MachineState& machine_;
  const RunRequest& request_;
};

/// One run of one program.
template <typename MachineState>
class Runner final : public CoreRun {
 public:
  Runner(MachineState& machine, const RunRequest& request, const Chipmates& chip)
      : machine_(machine), request_(request), chip_(chip), executor_(machine, request) {
    for (size_t e = 0; e < queues_.size(); ++e) {
      queue_depth_[e] = static_cast<size_t>(machine.config.queue_depth(static_cast<isa::Engine>(e)));
    }
    count_ = !request_.program.empty()        ? request_.program.size() / isa::kInstructionBytes
             : !request_.instructions.empty() ? request_.instructions.size()
                                              : request_.instruction_count;
    if (chip.races == nullptr) return;
    Interval program;
    if (request.program.empty() && request.instructions.empty()) {
      program = {request.program_address,
                 request.program_address + uint64_t{request.instruction_count} * isa::kInstructionBytes};
    }
    chip.races->begin(chip.core, request_.bases, program);
  }

  bool advance() override {
    do {
      counts_ = chip_.publics->counts();
      while (fetch_next()) {
      }
      if (finished_) return true;
      if (!awaits()) {
        stop();
        return true;
      }
    } while (chip_.publics->counts() != counts_);
    return false;
  }

  void stop() override {
    if (!fault_) fault_ = isa::FaultRecord{isa::Fault::kNoProgress, isa::Unit::kFetch, pc_};
    result_.fault = earliest();
  }

  RunResult take() override { return std::move(result_); }

 private:
  /// Everything that can run does, then one more instruction is dispatched. False when nothing goes on.
  bool fetch_next() {
    drain();
    if (fault_ || finished_) return false;
    if (!held_) {
      if (pc_ == count_) {
        fault_ = isa::FaultRecord{isa::Fault::kMissingFinish, isa::Unit::kFetch, pc_};
        return false;
      }
      held_ = fetch();
      if (!held_) return false;
    }
    const std::optional<isa::Engine> engine = isa::engine_of(*held_);
    if (!engine) {  // FINISH
      if (!queues_empty() || !holds(*held_)) return false;
      complete(pc_, isa::Unit::kFetch, Work{});
      finished_ = true;
    } else {
      auto& queue = queues_[static_cast<size_t>(*engine)];
      if (queue.size() >= queue_depth_[static_cast<size_t>(*engine)]) return false;
      queue.push_back({pc_, *held_});
      ++pc_;
    }
    held_.reset();
    result_.counters.fetch_bytes += isa::kInstructionBytes;
    return true;
  }

  /// Whether the machine may go on when another core publishes.
  bool awaits() const {
    return std::any_of(queues_.begin(), queues_.end(), [&](const auto& queue) {
      if (queue.empty() || barred(queue.front().pc)) return false;
      const auto* fence = std::get_if<isa::Fence>(&queue.front().instruction);
      return fence != nullptr && !sim::holds(*fence, counts_);
    });
  }

  /// Whether an older instruction has faulted.
  bool barred(uint32_t pc) const { return fault_ && pc >= fault_->pc; }

  /// The instruction at pc_, or a fault.
  std::optional<isa::Instruction> fetch() {
    isa::Fault fault = isa::Fault::kNone;
    std::optional<isa::Instruction> instruction;
    if (request_.program.empty() && !request_.instructions.empty()) {
      instruction = request_.instructions[pc_];
    } else {
      const size_t offset = size_t{pc_} * isa::kInstructionBytes;
      const uint8_t* bytes = request_.program.empty()
                                 ? find_dram(request_.dram, request_.program_address + offset, isa::kInstructionBytes)
                                 : request_.program.data() + offset;
      const uint64_t first = request_.program_address + offset;
      if (bytes == nullptr) {
        fault = isa::Fault::kDramRange;
      } else if (request_.program.empty() && meets(request_.failing_reads, {first, first + isa::kInstructionBytes})) {
        fault = isa::Fault::kAxiError;
      } else {
        isa::Word word;
        std::memcpy(word.data(), bytes, word.size());
        const isa::Decoded decoded = isa::decode(word);
        instruction = decoded.instruction;
        fault = decoded.fault;
      }
    }
    if (instruction) {
      if (const auto violation = isa::check_operands(*instruction, machine_.config)) fault = violation->fault;
    }
    if (fault == isa::Fault::kNone) return instruction;
    fault_ = isa::FaultRecord{fault, isa::Unit::kFetch, pc_};
    return {};
  }

  bool queues_empty() const {
    return std::all_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue.empty(); });
  }

  bool holds(const isa::Instruction& instruction) const {
    const isa::Header& header = isa::header_of(instruction);
    if (!std::all_of(header.waits.begin(), header.waits.end(), [&](const isa::Wait& wait) {
          return !wait.enable || static_cast<int16_t>(timeline_[static_cast<size_t>(wait.engine)] - wait.count) >= 0;
        })) {
      return false;
    }
    const auto* fence = std::get_if<isa::Fence>(&instruction);
    return fence == nullptr || sim::holds(*fence, counts_);
  }

  /// Runs queue heads, always the oldest whose conditions hold, until none does; those behind a fault stay.
  void drain() {
    for (;;) {
      std::deque<Queued>* oldest = nullptr;
      size_t engine = 0;
      for (size_t e = 0; e < queues_.size(); ++e) {
        auto& queue = queues_[e];
        if (queue.empty() || barred(queue.front().pc) || !holds(queue.front().instruction)) continue;
        if (oldest == nullptr || queue.front().pc < oldest->front().pc) {
          oldest = &queue;
          engine = e;
        }
      }
      if (oldest == nullptr) return;
      execute_head(*oldest, static_cast<isa::Engine>(engine));
    }
  }

  void execute_head(std::deque<Queued>& queue, isa::Engine engine) {
    const Queued& head = queue.front();
    if (const auto violation = isa::check_ranges(head.instruction, machine_.config)) {
      fault_ = isa::FaultRecord{violation->fault, unit_of(engine), head.pc};
      return;
    }
    Work work;
    isa::Fault fault = executor_.run(head.instruction, work);
    if (fault == isa::Fault::kNone && refused(head.instruction)) fault = isa::Fault::kAxiError;
    if (fault != isa::Fault::kNone) {
      fault_ = isa::FaultRecord{fault, unit_of(engine), head.pc};
      return;
    }
    if (chip_.races != nullptr)
      chip_.races->instruction(chip_.core, head.pc, head.instruction, timeline_, *chip_.publics);
    if (isa::header_of(head.instruction).signal) ++timeline_[static_cast<size_t>(engine)];
    complete(head.pc, unit_of(engine), work);
    const auto* fence = std::get_if<isa::Fence>(&head.instruction);
    if (fence != nullptr && fence->publish) chip_.publics->publish(chip_.core);
    queue.pop_front();
  }

  static bool meets(std::span<const Interval> failing, const Interval& bytes) {
    return std::any_of(failing.begin(), failing.end(),
                       [&](const Interval& f) { return f.begin < bytes.end && bytes.begin < f.end; });
  }

  /// Whether the memory answers one of the instruction's bursts with an error.
  bool refused(const isa::Instruction& instruction) const {
    if (request_.failing_reads.empty() && request_.failing_writes.empty()) return false;
    for (const Touched& touched : footprint(instruction, machine_.config, request_.bases)) {
      if (!touched.dram) continue;
      const auto failing = touched.write ? request_.failing_writes : request_.failing_reads;
      for (const Interval& bytes : touched.bytes) {
        if (meets(failing, bytes)) return true;
      }
    }
    return false;
  }

  void complete(uint32_t pc, isa::Unit unit, Work work) {
    work.pc = pc;
    work.unit = unit;
    result_.counters.add(work);
    if (request_.observer) request_.observer(work);
  }

  /// The fault, or no_progress at an older instruction that still waits.
  isa::FaultRecord earliest() const {
    isa::FaultRecord record = fault_.value_or(isa::FaultRecord{});
    for (size_t e = 0; e < queues_.size(); ++e) {
      if (queues_[e].empty() || queues_[e].front().pc >= record.pc) continue;
      record = {isa::Fault::kNoProgress, unit_of(static_cast<isa::Engine>(e)), queues_[e].front().pc};
    }
    return record;
  }

  MachineState& machine_;
  const RunRequest& request_;
  const Chipmates chip_;
  Executor<MachineState> executor_;
  RunResult result_;
  size_t count_ = 0;                      // instructions
  uint32_t pc_ = 0;                       // the next instruction to dispatch
  std::optional<isa::Instruction> held_;  // it, when FETCH has it
  std::array<std::deque<Queued>, isa::kEngines> queues_;
  std::array<size_t, isa::kEngines> queue_depth_{};
  std::array<uint16_t, isa::kEngines> timeline_{};
  PublicCounts counts_{};  // as this core sees them: they change on other threads, and all that it asks must agree
  std::optional<isa::FaultRecord> fault_;
  bool finished_ = false;
};

}  // namespace

Machine::Machine(const isa::MachineConfig& config) : Machine(config, default_kernels()) {}

Machine::Machine(const isa::MachineConfig& config, Kernels kernels) {
  isa::validate(config);
  if (!supported(kernels)) {
    throw Error(ErrorCode::kInvalidArgument,
                "kernels " + std::string(to_string(kernels)) + ": this processor lacks the instructions");
  }
  state_ = std::make_unique<State>(config, kernels);
}

Machine::~Machine() = default;
Machine::Machine(Machine&&) noexcept = default;
Machine& Machine::operator=(Machine&&) noexcept = default;

const isa::MachineConfig& Machine::config() const { return state_->config; }
Kernels Machine::kernels() const { return state_->kernels; }

RunResult Machine::run(const RunRequest& request) {
  PublicCounters publics;
  std::optional<RaceChecker> races;
  if (request.check_races) races.emplace(state_->config, request.max_races);
  const std::unique_ptr<CoreRun> run = begin(request, {0, &publics, races ? &*races : nullptr});
  if (!run->advance()) run->stop();
  RunResult result = run->take();
  if (races) result.races = races->take();
  return result;
}

std::unique_ptr<CoreRun> Machine::begin(const RunRequest& request, const Chipmates& chip) {
  if (request.program.size() % isa::kInstructionBytes != 0) {
    throw Error(ErrorCode::kInvalidArgument, "program of " + std::to_string(request.program.size()) +
                                                 " bytes is no whole number of 64-byte instructions");
  }
  return std::make_unique<Runner<State>>(*state_, request, chip);
}

isa::Fault Machine::execute(const isa::Instruction& instruction, const RunRequest& context, Work& work) {
  return Executor<State>(*state_, context).run(instruction, work);
}

std::span<const uint8_t> Machine::scratchpad(isa::Space space) const {
  return std::as_const(state_->scratchpads).bytes(space);
}

void Machine::write_scratchpad(isa::Space space, size_t offset, std::span<const uint8_t> bytes) {
  const std::span<uint8_t> memory = state_->scratchpads.bytes(space);
  if (offset > memory.size() || bytes.size() > memory.size() - offset) {
    throw Error(ErrorCode::kInvalidArgument,
                "write of " + std::to_string(bytes.size()) + " bytes at " + std::to_string(offset) + " leaves " +
                    std::string(isa::to_string(space)) + " of " + std::to_string(memory.size()) + " bytes");
  }
  std::copy(bytes.begin(), bytes.end(), memory.begin() + static_cast<std::ptrdiff_t>(offset));
  if (space == isa::Space::kWgt) state_->gemm.weights_written(offset, bytes.size());
}

void Machine::poison(uint64_t seed) {
  state_->scratchpads.poison(seed);
  state_->gemm.weights_written(0, state_->scratchpads.size_bytes(isa::Space::kWgt));
}

}  // namespace tessera::sim
