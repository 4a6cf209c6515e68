// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/planning/exhaust.h"

#include <chrono>
#include <map>

#include "base/error.h"
#include "compiler/emit/least.h"
#include "compiler/schedule/compulsory.h"
#include "isa/generated/instructions.h"

namespace tessera::npu {

using schedule::Nest;
using schedule::Schedule;

namespace {

/// Adds fields of instructions. Places in scratchpads count by the order in which they come first, and by where in a
/// beat they lie.
class StreamDigest {
 public:
  explicit StreamDigest(const isa::MachineConfig& config) : config_(config) {}

  void operator()(const isa::Finish& i) { header(i.header); }
  void operator()(const isa::Fence& i) {
    header(i.header);
    add(i.engine);
  }
  void operator()(const isa::Load& i) {
    header(i.header);
    add(i.fill, i.pad_value);
    transfer(i);
    list(i.pad_before);
    list(i.pad_after);
  }
  void operator()(const isa::Store& i) {
    header(i.header);
    transfer(i);
  }
  void operator()(const isa::Gemm& i) {
    header(i.header);
    list(i.extent);
    place(isa::Space::kInp, i.inp_addr);
    place(isa::Space::kWgt, i.wgt_addr);
    place(isa::Space::kAcc, i.acc_addr);
    list(i.inp_stride);
    list(i.wgt_stride);
    list(i.acc_stride);
    add(i.reduce, i.accumulate, i.mode, i.lane);
  }
  void operator()(const isa::Alu& i) {
    header(i.header);
    list(i.extent);
    place(isa::space_of(i.src), i.src_addr);
    place(isa::space_of(i.dst), i.dst_addr);
    place(isa::Space::kOut, i.second_addr);
    place(isa::Space::kParam, i.param_addr);
    place(isa::Space::kParam, i.constant_addr);
    list(i.src_stride);
    list(i.dst_stride);
    list(i.second_stride);
    add(i.param_loop, i.src, i.dst, i.reduce, i.reduce_op, i.convert, i.table_enable, i.second_op,
        i.second_table_enable);
  }
  void operator()(const isa::RowReduce& i) {
    header(i.header);
    list(i.extent);
    place(isa::space_of(i.src), i.src_addr);
    place(isa::Space::kAcc, i.scalar_addr);
    list(i.src_stride);
    list(i.scalar_stride);
    add(i.tail, i.length, i.src, i.row, i.operation, i.limited);
  }
  void operator()(const isa::RowMap& i) {
    header(i.header);
    list(i.extent);
    place(isa::space_of(i.src), i.src_addr);
    place(isa::space_of(i.dst), i.dst_addr);
    place(isa::Space::kAcc, i.scalar_addr);
    place(isa::Space::kParam, i.param_addr);
    list(i.src_stride);
    list(i.dst_stride);
    list(i.scalar_stride);
    add(i.param_loop, i.src, i.dst, i.row, i.operation, i.limited, i.tail);
  }
  void kind(size_t index) { add(index); }
  const Digest& digest() const { return digest_; }

 private:
  template <typename... Numbers>
  void add(Numbers... numbers) {
    (digest_.add(static_cast<uint64_t>(numbers)), ...);
  }
  template <typename List>
  void list(const List& numbers) {
    for (const auto number : numbers) add(static_cast<uint64_t>(static_cast<int64_t>(number)));
  }
  void header(const isa::Header& header) {
    add(header.signal);
    for (const isa::Wait& wait : header.waits) {
      if (wait.enable)
        add(1, wait.engine, wait.count);
      else
        add(0);
    }
  }
  void place(isa::Space space, uint64_t address) {
    auto& known = places_[static_cast<size_t>(space)];
    add(known.try_emplace(address, known.size()).first->second);
  }
  template <typename Transfer>
  void transfer(const Transfer& i) {
    place(i.space, i.sp_addr);
    add(i.space, i.base, i.dram_offset, i.length, i.sp_addr % static_cast<uint64_t>(config_.axi_bytes));
    list(i.extent);
    list(i.dram_stride);
    list(i.sp_stride);
  }

  const isa::MachineConfig& config_;
  Digest digest_;
  std::array<std::map<uint64_t, size_t>, isa::kSpaces> places_;
};

using Clock = std::chrono::steady_clock;

}  // namespace

Digest digest_of(const schedule::InstructionStream& stream, const isa::MachineConfig& config) {
  StreamDigest digest(config);
  for (const isa::Instruction& instruction : stream.instructions) {
    digest.kind(instruction.index());
    std::visit(digest, instruction);
  }
  return digest.digest();
}

namespace {

/// Slots of an operand alone fit its scratchpad, and there are three that share one at most.
isa::MachineConfig with_room(isa::MachineConfig config) {
  for (int64_t* bytes :
       {&config.inp_bytes, &config.wgt_bytes, &config.acc_bytes, &config.out_bytes, &config.param_bytes})
    *bytes *= 4;
  return config;
}

}  // namespace

Exhaustion::Exhaustion(const Task& task, const std::vector<NestTile>& tiles, const schedule::Machine& machine,
                       const Options& options, Lower lower, Judge judge)
    : task_(task),
      tiles_(tiles),
      machine_(machine),
      options_(options),
      lower_(std::move(lower)),
      judge_(std::move(judge)),
      roomy_(with_room(machine.config)) {}

bool Exhaustion::go_on(int64_t known, double share, double seconds) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  const auto over = [&] { return Clock::now() >= end; };
  known_ = known;
  if (share > share_ && standing_.cut < best()) {
    leave_tile();
    standing_.closed = 0;
    standing_.cut = kNothing;
  }
  share_ = share;
  while (standing_.closed < tiles_.size()) {
    if (static_cast<double>(tiles_[standing_.closed].of.cycles) >= limit()) return true;
    if (!close(over)) return false;
  }
  return true;
}

void Exhaustion::leave_tile() {
  courses_.reset();
  order_ = group_ = 0;
  groups_.clear();
  waiting_.clear();
  groups_seen_.clear();
  seen_.clear();
  measured_.clear();
}

bool Exhaustion::close(const std::function<bool()>& over) {
  const NestTile& tile = tiles_[standing_.closed];
  if (!courses_) {
    courses_.emplace(task_, *tile.nest, machine_.config, options_, *tile.of.intrinsic, tile.of.tile);
    other_bytes_ = schedule::compulsory::out_once(*tile.nest, tile.nest->output, machine_.config).bus;
  }
  for (; order_ < courses_->orders(); ++order_) {
    if (groups_.empty()) groups_ = courses_->of_order(order_, [&](int64_t bytes) { return !cut(least(bytes)); });
    if (!close_order(over)) return false;
    groups_.clear();
    group_ = 0;
  }
  ++standing_.closed;
  leave_tile();
  return true;
}

bool Exhaustion::close_order(const std::function<bool()>& over) {
  for (; group_ < groups_.size(); ++group_) {
    if (waiting_.empty() && groups_seen_.insert(groups_[group_].digest_of_all()).second) waiting_.emplace_back();
    while (!waiting_.empty()) {
      if (over()) return false;
      const Waiting at = std::move(waiting_.back());
      waiting_.pop_back();
      look(groups_[group_], at);
    }
  }
  return true;
}

void Exhaustion::look(const CourseGroup& group, const Waiting& at) {
  const std::vector<size_t>& chosen = at.chosen;
  const Schedule schedule = group.with(chosen);
  const Nest& nest = *tiles_[standing_.closed].nest;
  if (chosen.size() == group.free.size()) {
    if (!schedule::obstacle(nest, schedule, machine_.config).empty()) return;
    if (!seen_.insert(group.digest_with(chosen)).second) return;
    ++standing_.schedules;
    measure(schedule::canonical(nest, machine_.config, schedule));
    return;
  }
  if (!at.bounded && cut(least(lower_(schedule, roomy_)))) return;
  // With the most slots of the next operand, too, it is the same program.
  const size_t choices = group.free[chosen.size()].choices.size();
  for (size_t k = choices; k-- > 0;) {
    waiting_.push_back({chosen, k == choices - 1});
    waiting_.back().chosen.push_back(k);
  }
}

int64_t Exhaustion::least(const schedule::InstructionStream& stream) const {
  return emit::least_cycles(stream.instructions, stream.works, machine_.config,
                            {machine_.dram_latency_cycles, machine_.dram_bandwidth_bytes});
}

int64_t Exhaustion::least(int64_t bytes) const {
  // The first instruction and the first data come a latency after they were asked for, and the last write is answered.
  const int64_t saved = 4;  // where the memory is slower than the bus
  return 3 * machine_.dram_latency_cycles + (bytes + other_bytes_) / machine_.bytes_per_cycle() - saved;
}

bool Exhaustion::cut(int64_t least) {
  if (static_cast<double>(least) < limit()) return false;
  standing_.cut = std::min(standing_.cut, least);
  return true;
}

void Exhaustion::measure(const schedule::Schedule& schedule) {
  const schedule::InstructionStream stream = lower_(schedule, machine_.config);
  const int64_t least = this->least(stream);
  if (cut(least) || !measured_.insert(digest_of(stream, machine_.config)).second) return;
  ++standing_.programs;
  const int64_t cycles = judge_(stream);
  if (cycles < std::max(least, tiles_[standing_.closed].of.cycles)) standing_.broken = true;
  if (standing_.best && standing_.cycles <= cycles) return;
  standing_.best = schedule;
  standing_.cycles = cycles;
}

}  // namespace tessera::npu
