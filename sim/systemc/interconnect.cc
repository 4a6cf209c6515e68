// SPDX-License-Identifier: Apache-2.0
// A cycle is computed from the state before it, as registers do.
#include "sim/systemc/interconnect.h"

namespace tessera::sim::systemc {
namespace {

namespace timing = isa::timing::interconnect;

// What is not a parameter here is the structure of these classes.
static_assert(timing::kRequest == 1 && timing::kAddress == 1 && timing::kBuffer == 2 && timing::kCollect == 1 &&
              timing::kResponse == 1);

constexpr auto kBursts = static_cast<size_t>(timing::kBursts);

}  // namespace

SharedDram::SharedDram(const DramOptions& options, uint64_t address) : options_(options) {
  bandwidth_ = options.bandwidth_bytes == 0 ? options.beat_bytes : options.bandwidth_bytes;
  if (options.spec) controller_.emplace(*options.spec, address, options.beat_bytes);
}

SharedDram::Outputs SharedDram::cycle(const DramController::Inputs& in) {
  if (controller_) {
    const Outputs out = controller_->outputs();
    controller_->clock(in);
    return out;
  }
  Outputs out{};
  out.ar_ready = reads_.size() < static_cast<size_t>(options_.reads_in_flight);
  out.aw_ready = writes_.size() + responses_.size() < static_cast<size_t>(options_.writes_in_flight);
  budget_ = std::min(budget_ + bandwidth_, options_.beat_bytes + bandwidth_ - 1);
  const bool may_move = budget_ >= options_.beat_bytes;
  const bool can_write = in.w_valid && !writes_.empty() && may_move;
  const bool can_read = !reads_.empty() && reads_.front().ready <= now_ && may_move;
  out.r_valid = can_read && (!can_write || read_turn_);
  out.w_ready = can_write && !out.r_valid;
  out.b_valid = !responses_.empty() && responses_.front() <= now_;
  const Cycle ready = now_ + static_cast<Cycle>(options_.latency_cycles);
  if (out.b_valid) responses_.pop_front();
  if (out.w_ready || out.r_valid) {
    budget_ -= options_.beat_bytes;
    read_turn_ = out.w_ready;
    Ring<Burst>& bursts = out.w_ready ? writes_ : reads_;
    if (--bursts.front().beats == 0) {
      bursts.pop_front();
      if (out.w_ready) responses_.push_back(ready);
    }
  }
  if (in.ar_valid && out.ar_ready) reads_.push_back({ready, in.ar_beats});
  if (in.aw_valid && out.aw_ready) writes_.push_back({ready, in.aw_beats});
  ++now_;
  return out;
}

bool SharedDram::quiet() const {
  return controller_ ? controller_->quiet() : reads_.empty() && writes_.empty() && responses_.empty();
}

void SharedDram::skip(uint64_t cycles) {
  if (controller_) {
    controller_->skip(cycles);
    return;
  }
  now_ += cycles;
  const int most = options_.beat_bytes + bandwidth_ - 1;
  budget_ =
      cycles > static_cast<uint64_t>(most) ? most : std::min(budget_ + static_cast<int>(cycles) * bandwidth_, most);
}

Interconnect::Interconnect(const isa::MachineConfig& config, const DramOptions& options, uint64_t memory_address)
    : width_(static_cast<uint32_t>(config.axi_bytes)),
      ratio_(static_cast<uint32_t>(config.memory_bytes() / config.axi_bytes)),
      dram_(options, memory_address),
      cores_(static_cast<size_t>(config.cores)),
      last_reader_(cores_.size() - 1),
      last_writer_(cores_.size() - 1) {
  for (size_t k = 0; k < cores_.size(); ++k) drive(k, {.r_ready = true, .b_ready = true});
}

Interconnect::Shape Interconnect::shape(uint64_t address, int beats) const {
  return {static_cast<uint32_t>(address / width_ % ratio_), static_cast<uint32_t>(beats)};
}

Interconnect::Request Interconnect::request(uint64_t address, int beats) const {
  const Shape burst = shape(address, beats);
  return {address - address % (uint64_t{width_} * ratio_), (burst.from + burst.beats + ratio_ - 1) / ratio_};
}

Interconnect::Outputs Interconnect::outputs(size_t core) const {
  const Core& of = cores_[core];
  Outputs out{};
  out.ar_ready = out.aw_ready = true;
  out.r_valid = of.read_words.out && !of.read_shapes.empty();
  out.w_ready = of.write_used < timing::kWords && (ratio_ == 1 || !of.write_shapes.empty());
  out.b_valid = of.responses > 0;
  return out;
}

bool Interconnect::quiet(size_t core) const {
  const Core& one = cores_[core];
  const auto owns = [core](const Ring<Owner>& owners) {
    for (const Owner& owner : owners) {
      if (owner.core == core) return true;
    }
    return false;
  };
  return one.reads.empty() && one.writes.empty() && one.read_shapes.empty() && one.write_shapes.empty() &&
         one.responses == 0 && sender_ != core && !owns(read_owners_) && !owns(write_owners_);
}

bool Interconnect::quiet() const {
  if (!dram_.quiet() || !read_owners_.empty() || !write_owners_.empty() || sender_ != kNobody) return false;
  for (size_t core = 0; core < cores_.size(); ++core) {
    if (!quiet(core)) return false;
  }
  return true;
}

void Interconnect::clock() {
  Inputs in;
  in.ar_valid = read_address_.valid;
  in.ar_address = read_address_.request.address;
  in.ar_beats = static_cast<int>(read_address_.request.words);
  in.r_ready = true;
  in.aw_valid = write_address_.valid;
  in.aw_address = write_address_.request.address;
  in.aw_beats = static_cast<int>(write_address_.request.words);
  in.w_valid = write_valid_;
  in.b_ready = true;
  const Outputs memory = dram_.cycle(in);
  moved_ += memory.r_valid || (write_valid_ && memory.w_ready) ? 1 : 0;
  clock_reads(memory);
  clock_writes(memory);
}

void Interconnect::clock_reads(const Outputs& memory) {
  const bool free = (!read_address_.valid || memory.ar_ready) && read_owners_.size() < kBursts;
  const auto granted = free ? turn(last_reader_, [](const Core& core) { return core.reads_wait(); }) : kNobody;
  if (memory.ar_ready) read_address_.valid = false;
  const size_t answered = memory.r_valid ? read_owners_.front().core : kNobody;
  if (answered != kNobody && --read_owners_.front().beats == 0) read_owners_.pop_front();
  for (size_t k = 0; k < cores_.size(); ++k) {
    Core& core = cores_[k];
    bool pop = false;
    if (core.read_words.out && !core.read_shapes.empty() && core.in.r_ready) {
      const Shape& burst = core.read_shapes.front();
      const bool last = core.read_beat + 1 == burst.beats;
      pop = last || (burst.from + core.read_beat + 1) % ratio_ == 0;
      core.read_beat = last ? 0 : core.read_beat + 1;
      if (last) core.read_shapes.pop_front();
    }
    core.read_words.clock(answered == k, pop);
    core.refused = !core.reads.empty() && granted != k;
    core.read_room += pop ? 1 : 0;
    if (granted == k) {
      read_address_ = {true, core.reads.front()};
      read_owners_.push_back({k, core.reads.front().words});
      core.read_room -= core.reads.front().words;
      core.reads.pop_front();
      last_reader_ = k;
    }
    if (core.in.ar_valid) {
      core.reads.push_back(request(core.in.ar_address, core.in.ar_beats));
      core.read_shapes.push_back(shape(core.in.ar_address, core.in.ar_beats));
    }
  }
}

void Interconnect::clock_writes(const Outputs& memory) {
  const bool moves = sender_ != kNobody && cores_[sender_].write_words.out && (!write_valid_ || memory.w_ready);
  const size_t moved = moves ? sender_ : kNobody;
  const bool free = (!write_address_.valid || memory.aw_ready) && write_owners_.size() < kBursts &&
                    (sender_ == kNobody || (moves && sends_ == 1));
  const auto granted = free ? turn(last_writer_, [](const Core& core) { return core.whole > 0; }) : kNobody;
  if (memory.aw_ready) write_address_.valid = false;
  write_valid_ = moves || (write_valid_ && !memory.w_ready);
  if (moves && --sends_ == 0) sender_ = kNobody;
  const size_t answered = memory.b_valid ? write_owners_.front().core : kNobody;
  if (answered != kNobody) write_owners_.pop_front();
  for (size_t k = 0; k < cores_.size(); ++k) {
    Core& core = cores_[k];
    core.waited += core.refused || (core.whole > 0 && granted != k) ? 1 : 0;
    const bool fire = core.in.w_valid && outputs(k).w_ready;
    if (core.in.aw_valid) core.write_shapes.push_back(shape(core.in.aw_address, core.in.aw_beats));
    bool word = false;
    if (fire) {
      const Shape& burst = core.write_shapes.front();
      const bool last = core.write_beat + 1 == burst.beats;
      word = last || (burst.from + core.write_beat + 1) % ratio_ == 0;
      core.write_beat = last ? 0 : core.write_beat + 1;
      core.whole += last ? 1 : 0;
      if (last) core.write_shapes.pop_front();
    }
    core.write_words.clock(word, moved == k);
    core.write_used += (word ? 1 : 0) - (moved == k ? 1 : 0);
    core.responses += (answered == k ? 1 : 0) - (core.responses > 0 && core.in.b_ready ? 1 : 0);
    if (granted == k) {
      write_address_ = {true, core.writes.front()};
      write_owners_.push_back({k, 1});
      sender_ = k;
      sends_ = core.writes.front().words;
      core.writes.pop_front();
      --core.whole;
      last_writer_ = k;
    }
    if (core.in.aw_valid) core.writes.push_back(request(core.in.aw_address, core.in.aw_beats));
  }
}

}  // namespace tessera::sim::systemc
