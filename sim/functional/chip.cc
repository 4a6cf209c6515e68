// SPDX-License-Identifier: Apache-2.0
// Cores in turns, or each on a thread.
#include "sim/functional/chip.h"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "base/error.h"

namespace tessera::sim {
namespace {

bool has_program(const RunRequest& request) {
  return !request.program.empty() || !request.instructions.empty() || request.instruction_count > 0;
}

using Runs = std::vector<std::unique_ptr<CoreRun>>;  // by core; null without a program

/// One core after another until a whole round brings nothing.
void take_turns(Runs& runs, std::span<const size_t> order, PublicCounters& publics) {
  bool news = true;
  publics.published = [&] { news = true; };
  std::vector<bool> ended(runs.size());
  while (news) {
    news = false;
    for (const size_t k : order) {
      if (runs[k] != nullptr && !ended[k]) ended[k] = runs[k]->advance();
    }
  }
  for (size_t k = 0; k < runs.size(); ++k) {
    if (runs[k] != nullptr && !ended[k]) runs[k]->stop();
  }
}

/// All cores at once. A core at rest goes on behind every publish; when all are at rest they stop.
class Threads {
 public:
  Threads(Runs& runs, PublicCounters& publics) {
    publics.published = [this] {
      const std::lock_guard lock(mutex_);
      ++publishes_;
      active_ += resting_;
      resting_ = 0;
      changed_.notify_all();
    };
    for (const auto& run : runs) unfinished_ += run != nullptr ? 1 : 0;
    active_ = unfinished_;
    for (const auto& run : runs) {
      if (run != nullptr) threads_.emplace_back([this, one = run.get()] { follow(*one); });
    }
  }

  /// Waits for their ends.
  void join(const std::function<void()>& meanwhile) {
    {
      std::unique_lock lock(mutex_);
      while (!changed_.wait_for(lock, kBetweenCalls, [&] { return unfinished_ == 0; })) {
        lock.unlock();
        if (meanwhile) meanwhile();
        lock.lock();
      }
    }
    for (std::thread& thread : threads_) thread.join();
    if (error_) std::rethrow_exception(error_);
  }

 private:
  void follow(CoreRun& run) {
    std::exception_ptr error;
    bool ended = false;
    try {
      uint64_t seen = 0;
      while (!(ended = run.advance()) && rest(seen)) {
      }
      if (!ended) run.stop();
    } catch (...) {
      error = std::current_exception();
      ended = true;
    }
    const std::lock_guard lock(mutex_);
    if (error) error_ = error;
    if (ended) --active_;
    --unfinished_;
    changed_.notify_all();
  }

  /// Until there is a publish behind number `seen`, which is counted on; false when there is none any more.
  bool rest(uint64_t& seen) {
    std::unique_lock lock(mutex_);
    if (publishes_ == seen) {
      --active_;
      ++resting_;
      changed_.notify_all();
      changed_.wait(lock, [&] { return publishes_ != seen || active_ == 0; });
      if (publishes_ == seen) return false;
    }
    seen = publishes_;
    return true;
  }

  static constexpr std::chrono::milliseconds kBetweenCalls{100};

  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t publishes_ = 0;
  size_t active_ = 0, resting_ = 0, unfinished_ = 0;
  std::exception_ptr error_;
  std::vector<std::thread> threads_;
};

std::vector<Machine> make_cores(const isa::MachineConfig& config, Kernels kernels) {
  isa::validate(config);
  std::vector<Machine> cores;
  for (int k = 0; k < config.cores; ++k) cores.emplace_back(config, kernels);
  return cores;
}

}  // namespace

Chip::Chip(const isa::MachineConfig& config) : Chip(config, default_kernels()) {}

Chip::Chip(const isa::MachineConfig& config, Kernels kernels) : cores_(make_cores(config, kernels)) {}

ChipResult Chip::run(const ChipRequest& request) {
  if (request.cores.size() > cores_.size()) {
    throw Error(ErrorCode::kInvalidArgument, "programs for " + std::to_string(request.cores.size()) + " cores; '" +
                                                 config().name + "' has " + std::to_string(cores_.size()));
  }
  TESSERA_INVARIANT(!request.check_races || !request.threads, "races are checked in turns");
  PublicCounters publics;
  std::optional<RaceChecker> races;
  if (request.check_races) races.emplace(config(), request.max_races);
  Runs runs(cores_.size());
  for (size_t k = 0; k < request.cores.size(); ++k) {
    if (has_program(request.cores[k]))
      runs[k] = cores_[k].begin(request.cores[k], {k, &publics, races ? &*races : nullptr});
  }
  if (request.threads) {
    Threads(runs, publics).join(request.meanwhile);
  } else {
    std::vector<size_t> order(request.order.begin(), request.order.end());
    if (order.empty()) {
      order.resize(cores_.size());
      std::iota(order.begin(), order.end(), size_t{0});
    }
    take_turns(runs, order, publics);
  }
  ChipResult result;
  for (const auto& run : runs) result.cores.push_back(run != nullptr ? run->take() : RunResult{});
  if (races) result.races = races->take();
  return result;
}

}  // namespace tessera::sim
