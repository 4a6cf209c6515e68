// SPDX-License-Identifier: Apache-2.0
#include "tessera/search_behind.h"

#include <sys/resource.h>
#include <unistd.h>

#include "base/error.h"

namespace tessera {

namespace {

constexpr size_t kMostWishes = 1000;
constexpr int kNice = 10;

}  // namespace

SearchBehind::~SearchBehind() {
  *stop_ = true;
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void SearchBehind::add(const compiler::ImportOptions& import, const compiler::CompileOptions& options,
                       std::function<void(KeptProgram)> done) {
  const std::lock_guard lock(mutex_);
  wishes_.push_back({import, options, std::move(done)});
  wishes_.back().options.stop = stop_;
  if (wishes_.size() > kMostWishes) wishes_.pop_front();
  if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
  changed_.notify_all();
}

bool SearchBehind::busy() const {
  const std::lock_guard lock(mutex_);
  return making_ || !wishes_.empty();
}

void SearchBehind::wait() const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return *stop_ || (!making_ && wishes_.empty()); });
}

void SearchBehind::serve() {
  // Of this thread, and of those that it starts: on Linux priorities belong to threads.
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return *stop_ || !wishes_.empty(); });
    if (*stop_) return;
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

void SearchBehind::make(const Wish& wish) {
  try {
    if (!programs_) programs_.emplace(model_, is_path_, wish.options);
    KeptProgram program = programs_->compile(wish.import, config_, wish.options);
    if (!*stop_) wish.done(std::move(program));
  } catch (const npu::Stopped&) {
  } catch (const Error&) {  // as the first program, which has told its error
  } catch (const std::bad_alloc&) {
  }
}

}  // namespace tessera
