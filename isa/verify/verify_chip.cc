// SPDX-License-Identifier: Apache-2.0
// The static rules of several programs. The programs run in the abstract: FETCH fills the queues of each core, heads
// whose conditions hold leave, FENCEs publish, and what they compute is left out.
#include <algorithm>
#include <deque>
#include <optional>

#include "base/error.h"
#include "isa/verify/verify.h"

namespace tessera::isa {
namespace {

constexpr uint32_t kMostPublishes = 32767;  // a count of 16 bits that is ahead of another by more is behind it

using Program = std::span<const Instruction>;
using Publics = std::vector<uint32_t>;  // by core

const Fence* fence_of(const Instruction& instruction) { return std::get_if<Fence>(&instruction); }

std::string at(size_t core, size_t index, const Instruction& instruction) {
  return "core " + std::to_string(core) + ": instruction " + std::to_string(index) + " (" +
         std::string(info_of(instruction).name) + ")";
}

std::string awaited(const Fence& fence) {
  return "publish " + std::to_string(fence.await_count) + " of core " + std::to_string(fence.await_core);
}

[[noreturn]] void refuse(const std::string& message) { throw Error(ErrorCode::kInvalidProgram, message); }

/// One core's program, under way.
class Core {
 public:
  Core(size_t number, Program program, const MachineConfig& config) : number_(number), program_(program) {
    for (size_t e = 0; e < queues_.size(); ++e) {
      depth_[e] = static_cast<size_t>(config.queue_depth(static_cast<Engine>(e)));
    }
  }

  /// Goes on until nothing does; whether it has published.
  bool advance(Publics& publics) {
    const uint32_t before = publics[number_];
    do {
      drain(publics);
    } while (dispatch());
    return publics[number_] != before;
  }

  bool ended() const { return next_ == program_.size(); }

  /// The oldest FENCE that waits for another core.
  std::optional<size_t> waits(const Publics& publics) const {
    std::optional<size_t> oldest;
    for (const auto& queue : queues_) {
      if (queue.empty() || comes(program_[queue.front()], publics)) continue;
      oldest = std::min(oldest.value_or(queue.front()), queue.front());
    }
    return oldest;
  }

 private:
  static bool comes(const Instruction& instruction, const Publics& publics) {
    const Fence* fence = fence_of(instruction);
    return fence == nullptr || !fence->await || publics[fence->await_core] >= fence->await_count;
  }

  bool holds(const Instruction& instruction) const {
    const Header& header = header_of(instruction);
    return std::all_of(header.waits.begin(), header.waits.end(), [&](const Wait& wait) {
      return !wait.enable || static_cast<int16_t>(timeline_[static_cast<size_t>(wait.engine)] - wait.count) >= 0;
    });
  }

  void drain(Publics& publics) {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t e = 0; e < queues_.size(); ++e) {
        while (!queues_[e].empty()) {
          const Instruction& head = program_[queues_[e].front()];
          if (!holds(head) || !comes(head, publics)) break;
          if (header_of(head).signal) ++timeline_[e];
          const Fence* fence = fence_of(head);
          if (fence != nullptr && fence->publish) ++publics[number_];
          queues_[e].pop_front();
          moved = true;
        }
      }
    }
  }

  /// One more instruction into its queue; FINISH when all queues are empty.
  bool dispatch() {
    if (ended()) return false;
    const auto engine = engine_of(program_[next_]);
    if (!engine) {
      if (!std::all_of(queues_.begin(), queues_.end(), [](const auto& queue) { return queue.empty(); })) return false;
      if (!holds(program_[next_])) return false;
    } else {
      auto& queue = queues_[static_cast<size_t>(*engine)];
      if (queue.size() >= depth_[static_cast<size_t>(*engine)]) return false;
      queue.push_back(next_);
    }
    ++next_;
    return true;
  }

  size_t number_;
  Program program_;
  size_t next_ = 0;
  std::array<std::deque<size_t>, kEngines> queues_;
  std::array<size_t, kEngines> depth_{};
  std::array<uint16_t, kEngines> timeline_{};
};

uint32_t count_publishes(size_t core, Program program) {
  uint32_t publishes = 0;
  for (size_t n = 0; n < program.size(); ++n) {
    const Fence* fence = fence_of(program[n]);
    if (fence == nullptr || !fence->publish || ++publishes <= kMostPublishes) continue;
    refuse(at(core, n, program[n]) + ": publishes for the 32768th time; a program publishes at most 32767 times");
  }
  return publishes;
}

void check_awaited(size_t core, Program program, const Publics& publishes) {
  for (size_t n = 0; n < program.size(); ++n) {
    const Fence* fence = fence_of(program[n]);
    if (fence == nullptr || !fence->await || fence->await_count <= publishes[fence->await_core]) continue;
    refuse(at(core, n, program[n]) + ": awaits " + awaited(*fence) + ", which publishes " +
           std::to_string(publishes[fence->await_core]) + " times in its whole program");
  }
}

/// Runs all programs as far as they go.
void check_ends(std::span<const Program> programs, const MachineConfig& config) {
  std::vector<Core> cores;
  for (size_t k = 0; k < programs.size(); ++k) cores.emplace_back(k, programs[k], config);
  Publics publics(static_cast<size_t>(config.cores));
  for (bool news = true; news;) {
    news = false;
    for (Core& core : cores) news |= core.advance(publics);
  }
  std::string waiting;
  for (size_t k = 0; k < cores.size(); ++k) {
    if (cores[k].ended()) continue;
    const auto index = cores[k].waits(publics);
    TESSERA_INVARIANT(index.has_value(), "a stream in topological order waits for other cores alone");
    const Instruction& instruction = programs[k][*index];
    waiting +=
        (waiting.empty() ? "" : ", ") + at(k, *index, instruction) + " awaits " + awaited(*fence_of(instruction));
  }
  if (!waiting.empty()) refuse("cores block each other: " + waiting);
}

}  // namespace

std::vector<ProgramSummary> check_programs(std::span<const Program> programs, const MachineConfig& config) {
  if (programs.size() > static_cast<size_t>(config.cores)) {
    refuse("core " + std::to_string(programs.size() - 1) + " has a program; '" + config.name + "' has " +
           std::to_string(config.cores) + " cores");
  }
  std::vector<ProgramSummary> summaries(programs.size());
  Publics publishes(static_cast<size_t>(config.cores));
  for (size_t k = 0; k < programs.size(); ++k) {
    if (programs[k].empty()) continue;
    try {
      summaries[k] = check_program(programs[k], config);
    } catch (const Error& error) {
      if (config.cores == 1) throw;
      throw Error(error.code(), "core " + std::to_string(k) + ": " + error.what());
    }
    publishes[k] = count_publishes(k, programs[k]);
  }
  for (size_t k = 0; k < programs.size(); ++k) check_awaited(k, programs[k], publishes);
  if (config.cores > 1) check_ends(programs, config);
  return summaries;
}

}  // namespace tessera::isa
