// SPDX-License-Identifier: Apache-2.0
// A loop stands in a list while it has ranges to give away. Workers and the caller take ranges from its counter; the
// caller leaves when the ranges are done and no worker is inside. A worker that finds nothing looks around for a short
// time, because the next loop of a model follows in microseconds, and then sleeps. The caller never depends on a
// worker: without any, it takes every range itself.
#include "runtime/threads.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::runtime {

namespace {

constexpr int64_t kMostThreads = 256;
constexpr int kLooks = 2000;           // of a worker before it sleeps
constexpr int64_t kRangesAThread = 4;  // so that a thread that is held up leaves its share to others

thread_local int64_t limit = 0;  // 0: one thread for each processor

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

struct Loop {
  LoopBody body;
  void** buffers;
  int64_t items, range;
  int64_t guests_allowed;
  std::atomic<int64_t> guests{0};  // workers inside; changed under the pool's mutex
  std::atomic<int64_t> next{0};

  bool open() const { return next.load(std::memory_order_relaxed) < items; }
  void work() {
    for (;;) {
      const int64_t begin = next.fetch_add(range);
      if (begin >= items) return;
      body(buffers, begin, std::min(begin + range, items));
    }
  }
};

class Pool {
 public:
  /// It is never destroyed: in a child of fork() the workers do not exist, and a condition variable on which threads
  /// sleep cannot be destroyed.
  static Pool& instance() {
    static Pool* const pool = new Pool;
    static const End end{pool};
    return *pool;
  }

  void run(Loop& loop) {
    {
      const std::scoped_lock lock(mutex_);
      start_workers(loop.guests_allowed);
      loops_.push_back(&loop);
      offers_.fetch_add(1);
    }
    if (sleepers_.load() > 0) wake_.notify_all();
    loop.work();
    std::unique_lock lock(mutex_);
    loops_.erase(std::find(loops_.begin(), loops_.end(), &loop));
    lock.unlock();
    for (int look = 0; look < kLooks && loop.guests.load() != 0; ++look) pause();
    lock.lock();
    left_.wait(lock, [&] { return loop.guests == 0; });
  }

 private:
  struct End {
    Pool* pool;
    ~End() {
      if (getpid() == pool->owner_) pool->end();
    }
  };

  void end() {
    {
      const std::scoped_lock lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
  }

  void start_workers(int64_t count) {
    while (static_cast<int64_t>(workers_.size()) < count) workers_.emplace_back([this] { serve(); });
  }

  /// A loop with ranges and room for a guest, or null; under the mutex.
  Loop* find() {
    for (Loop* loop : loops_)
      if (loop->open() && loop->guests < loop->guests_allowed) return loop;
    return nullptr;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      if (Loop* loop = find()) {
        ++loop->guests;
        lock.unlock();
        loop->work();
        lock.lock();
        if (--loop->guests == 0) left_.notify_all();
        continue;
      }
      const uint64_t seen = offers_.load();
      lock.unlock();
      for (int look = 0; look < kLooks && offers_.load() == seen; ++look) pause();
      lock.lock();
      if (offers_.load() != seen) continue;
      sleepers_.fetch_add(1);
      wake_.wait(lock, [&] { return stop_ || offers_.load() != seen; });
      sleepers_.fetch_sub(1);
    }
  }

  const pid_t owner_ = getpid();
  std::mutex mutex_;
  std::condition_variable wake_, left_;
  std::vector<Loop*> loops_;
  std::vector<std::thread> workers_;
  std::atomic<uint64_t> offers_{0};
  std::atomic<int64_t> sleepers_{0};
  bool stop_ = false;
};

}  // namespace

int64_t host_threads() {
  static const int64_t count = [] {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max<int64_t>(CPU_COUNT(&set), 1);
    return std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  }();
  return count;
}

ThreadLimit::ThreadLimit(int64_t threads) : before_(limit) { limit = threads; }
ThreadLimit::~ThreadLimit() { limit = before_; }

void parallel_for(LoopBody body, void** buffers, int64_t items, int64_t grain) {
  const int64_t threads =
      std::min({limit > 0 ? limit : host_threads(), kMostThreads, items / std::max<int64_t>(grain, 1)});
  if (threads <= 1) {
    body(buffers, 0, items);
    return;
  }
  Loop loop{body, buffers, items, std::max(grain, items / (threads * kRangesAThread)), threads - 1};
  Pool::instance().run(loop);
}

}  // namespace tessera::runtime
