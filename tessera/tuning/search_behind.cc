// SPDX-License-Identifier: Apache-2.0
#include "tessera/tuning/search_behind.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <vector>

#include "base/error.h"

namespace tessera {

namespace {

constexpr size_t kMostWishes = 1000;
constexpr int kNice = 10;

/// The compilations that are under way in this process.
struct UnderWay {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::shared_ptr<std::atomic<bool>>> stops;
  pid_t process = 0;  // whose these are; a process that was forked has none of the threads
};

UnderWay& under_way();

/// Ends all that this process has under way; the lock keeps more from beginning.
std::unique_lock<std::mutex> ended() {
  UnderWay& all = under_way();
  std::unique_lock lock(all.mutex);
  if (all.process != getpid()) return lock;
  for (const auto& stop : all.stops) *stop = true;
  all.changed.wait(lock, [&] { return all.stops.empty(); });
  return lock;
}

// A process that is forked has this thread alone, and what others had locked stays locked there for ever.
void before_fork() { ended().release(); }
void after_fork() { under_way().mutex.unlock(); }

/// It outlives the threads.
UnderWay& under_way() {
  static UnderWay* const all = [] {
    std::atexit(SearchBehind::end_all);
    pthread_atfork(before_fork, after_fork, after_fork);
    return new UnderWay;
  }();
  return *all;
}

}  // namespace

SearchBehind::~SearchBehind() {
  {
    const std::lock_guard lock(under_way().mutex);
    ended_ = true;
    *stop_ = true;
  }
  forget_parent();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SearchBehind::forget_parent() {
  if (process_ == 0 || process_ == getpid()) return;
  new (&mutex_) std::mutex;
  new (&changed_) std::condition_variable;
  thread_.detach();
  wishes_.clear();
  making_ = false;
  process_ = 0;
}

void SearchBehind::add(const compiler::ImportOptions& import, const compiler::CompileOptions& options,
                       std::function<void(KeptProgram)> done) {
  forget_parent();
  const std::lock_guard lock(mutex_);
  wishes_.push_back({import, options, std::move(done)});
  wishes_.back().options.stop = stop_;
  if (wishes_.size() > kMostWishes) wishes_.pop_front();
  if (!thread_.joinable()) {
    process_ = getpid();
    thread_ = std::thread([this] { serve(); });
  }
  changed_.notify_all();
}

bool SearchBehind::busy() const {
  if (process_ != getpid()) return false;
  const std::lock_guard lock(mutex_);
  return making_ || !wishes_.empty();
}

void SearchBehind::wait() const {
  if (process_ != getpid()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || (!making_ && wishes_.empty()); });
}

void SearchBehind::serve() {
  // Of this thread, and of those that it starts: on Linux priorities belong to threads.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ended_ || !wishes_.empty(); });
    if (ended_) return;
    Wish wish = std::move(wishes_.back());
    wishes_.pop_back();
    making_ = true;
    lock.unlock();
    make(wish);
    lock.lock();
    making_ = false;
    changed_.notify_all();
  }
}

void SearchBehind::end_all() { ended(); }

void SearchBehind::make(const Wish& wish) {
  UnderWay& all = under_way();
  {
    const std::lock_guard lock(all.mutex);
    if (all.process != getpid()) all.stops.clear();
    all.process = getpid();
    *stop_ = ended_.load();
    all.stops.push_back(stop_);
  }
  attempt(wish);
  const std::lock_guard lock(all.mutex);
  all.stops.erase(std::find(all.stops.begin(), all.stops.end(), stop_));
  all.changed.notify_all();
}

void SearchBehind::attempt(const Wish& wish) {
  try {
    if (!programs_) programs_.emplace(model_, wish.options);
    KeptProgram program = programs_->compile(wish.import, config_, wish.options);
    if (!*stop_) wish.done(std::move(program));
  } catch (const npu::Stopped&) {
  } catch (const Error&) {  // as the first program, which has told its error
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace tessera
