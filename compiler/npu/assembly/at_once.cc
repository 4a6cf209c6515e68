// SPDX-License-Identifier: Apache-2.0
// Most pieces take less time than a thread to begin, so threads stay: one less than processors, as callers work, too.
// Nobody waits for a thread that has not begun.
#include "compiler/npu/assembly/at_once.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::npu {

namespace {

/// One call of at_once(). The lock of Helpers guards the counts.
class Call {
 public:
  Call(size_t hands, size_t count, const std::function<void(size_t, size_t)>& work)
      : work_(work), hands_(std::min(hands, count)) {
    errors_.resize(count);
  }

  /// Works on items until none is left.
  void serve(size_t hand) {
    for (size_t item = next_++; item < errors_.size(); item = next_++) {
      try {
        work_(item, hand);
      } catch (...) {
        errors_[item] = std::current_exception();
      }
    }
  }

  bool wants_help() const { return given_ < hands_ && next_ < errors_.size(); }

  void rethrow() const {
    for (const std::exception_ptr& one : errors_)
      if (one) std::rethrow_exception(one);
  }

  size_t given_ = 1, helping_ = 0;  // hands; threads that help now
  std::condition_variable left_;    // the last one of them

 private:
  const std::function<void(size_t, size_t)>& work_;
  std::vector<std::exception_ptr> errors_;  // by item
  const size_t hands_;
  std::atomic<size_t> next_ = 0;
};

class Helpers {
 public:
  void run(Call& call) {
    std::unique_lock lock(mutex_);
    calls_.push_back(&call);
    if (idle_ > 0)
      called_.notify_one();
    else if (threads_ + 1 < std::thread::hardware_concurrency())
      std::thread([this] { help(); }).detach(), ++threads_;
    lock.unlock();
    call.serve(0);
    lock.lock();
    std::erase(calls_, &call);
    call.left_.wait(lock, [&] { return call.helping_ == 0; });
  }

 private:
  /// A thread's life: always with the call that came last, whose caller waits for the least.
  [[noreturn]] void help() {
    std::unique_lock lock(mutex_);
    while (true) {
      const auto last =
          std::find_if(calls_.rbegin(), calls_.rend(), [](const Call* call) { return call->wants_help(); });
      if (last == calls_.rend()) {
        ++idle_;
        called_.wait(lock);
        --idle_;
        continue;
      }
      Call& call = **last;
      const size_t hand = call.given_++;
      ++call.helping_;
      lock.unlock();
      call.serve(hand);
      lock.lock();
      if (--call.helping_ == 0) call.left_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable called_;
  std::vector<Call*> calls_;
  size_t threads_ = 0, idle_ = 0;
};

/// Of the process; its threads end with it, and a fork has none of them.
Helpers*& helpers() {
  static Helpers* the_helpers = [] {
    pthread_atfork(nullptr, nullptr, [] { helpers() = new Helpers; });
    return new Helpers;
  }();
  return the_helpers;
}

}  // namespace

void at_once(size_t hands, size_t count, const std::function<void(size_t item, size_t hand)>& work) {
  Call call(hands, count, work);
  if (std::min(hands, count) > 1)
    helpers()->run(call);
  else
    call.serve(0);
  call.rethrow();
}

}  // namespace tessera::npu
