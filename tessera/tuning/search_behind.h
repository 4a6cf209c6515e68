// SPDX-License-Identifier: Apache-2.0
// Compiles programs with their best schedules while somebody works with first ones. Enters: what a program is made for.
// Leaves: the program, on the thread that made it. One thread of low priority serves, the newest wish first.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tessera/kept_programs.h"

namespace tessera {

class SearchBehind {
 public:
  /// As KeptPrograms takes them.
  SearchBehind(compiler::ModelSource model, const isa::MachineConfig& config)
      : model_(std::move(model)), config_(config) {}
  /// Ends the compilation that is under way; wishes that wait are dropped.
  ~SearchBehind();

  /// Calls done(program) when it is made. One that cannot be made is dropped: the first program goes on serving.
  /// `options` name no observer. Of too many wishes the oldest is dropped.
  void add(const compiler::ImportOptions& import, const compiler::CompileOptions& options,
           std::function<void(KeptProgram)> done);
  /// Whether something waits or is being made.
  bool busy() const;
  /// Until nothing is.
  void wait() const;
  /// Ends all compilations that are under way in this process, and waits for that: before the process ends, so that
  /// none uses what ends with it. First programs go on serving.
  static void end_all();

 private:
  struct Wish {
    compiler::ImportOptions import;
    compiler::CompileOptions options;
    std::function<void(KeptProgram)> done;
  };
  void serve();
  void make(const Wish& wish);
  void attempt(const Wish& wish);
  /// In a process that was forked: the thread is not here, and a lock that it held is nobody's.
  void forget_parent();

  const compiler::ModelSource model_;
  const isa::MachineConfig config_;
  const std::shared_ptr<std::atomic<bool>> stop_ = std::make_shared<std::atomic<bool>>(false);
  std::optional<KeptPrograms> programs_;  // of the thread
  std::atomic<bool> ended_ = false;       // for good, not only what is under way
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::deque<Wish> wishes_;
  bool making_ = false;
  std::thread thread_;  // begins with the first wish
  pid_t process_ = 0;   // that has the thread
};

}  // namespace tessera
