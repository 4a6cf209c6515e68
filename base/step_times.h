// SPDX-License-Identifier: Apache-2.0
// Where the time of a compilation goes: seconds of the clock by step. Steps that several threads do at once count for
// each of them.
#pragma once

#include <algorithm>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tessera {

class StepTimes {
 public:
  /// In the order in which the steps first ended. Not while a step is added.
  const std::vector<std::pair<std::string, double>>& rows() const { return rows_; }
  void add(const std::string& step, double seconds) {
    const std::lock_guard lock(mutex_);
    const auto known = std::find_if(rows_.begin(), rows_.end(), [&](const auto& row) { return row.first == step; });
    if (known == rows_.end())
      rows_.emplace_back(step, seconds);
    else
      known->second += seconds;
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::string, double>> rows_;
};

/// Adds the time from here to the end of its scope to a step; does nothing without a table.
class TimedStep {
 public:
  TimedStep(StepTimes* times, std::string step) : times_(times), step_(std::move(step)) {}
  TimedStep(const TimedStep&) = delete;
  TimedStep& operator=(const TimedStep&) = delete;
  ~TimedStep() {
    if (times_ != nullptr) times_->add(step_, std::chrono::duration<double>(Clock::now() - start_).count());
  }

 private:
  using Clock = std::chrono::steady_clock;
  StepTimes* const times_;
  const std::string step_;
  const Clock::time_point start_ = Clock::now();
};

/// What a function returns, with its time.
template <typename Function>
auto timed(StepTimes* times, const std::string& step, Function&& function) {
  const TimedStep scope(times, step);
  return function();
}

}  // namespace tessera
