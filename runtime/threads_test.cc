// SPDX-License-Identifier: Apache-2.0
#include "runtime/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tessera::runtime {
namespace {

/// buffers: counters of visits, one for each item; a counter of calls.
void visit(void** buffers, int64_t begin, int64_t end) {
  auto* visits = static_cast<std::atomic<int>*>(buffers[0]);
  for (int64_t i = begin; i < end; ++i) ++visits[i];
  ++*static_cast<std::atomic<int>*>(buffers[1]);
}

void expect_each_item_once(int64_t items, int64_t grain) {
  std::vector<std::atomic<int>> visits(static_cast<size_t>(items));
  std::atomic<int> calls = 0;
  void* buffers[] = {visits.data(), &calls};
  parallel_for(visit, buffers, items, grain);
  for (const auto& count : visits) ASSERT_EQ(count, 1);
  ASSERT_LE(calls, std::max<int64_t>(items / grain + 1, 1));
}

TEST(Threads, EachItemIsVisitedOnceWhateverTheNumberOfThreads) {
  for (const int64_t threads : {0, 1, 2, 3, 8, 1000}) {
    const ThreadLimit limit(threads);
    for (const int64_t items : {1, 2, 7, 64, 1001})
      for (const int64_t grain : {1, 3, 2000}) expect_each_item_once(items, grain);
  }
}

TEST(Threads, OneThreadIsTheCaller) {
  const ThreadLimit limit(1);
  static std::atomic<bool> elsewhere = false;
  static const std::thread::id own = std::this_thread::get_id();
  parallel_for([](void**, int64_t, int64_t) { elsewhere = elsewhere || std::this_thread::get_id() != own; }, nullptr,
               1000, 1);
  EXPECT_FALSE(elsewhere);
}

TEST(Threads, LoopsOfManyCallersShareThePool) {
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller)
    callers.emplace_back([caller] {
      const ThreadLimit limit(2 + caller % 3);
      for (int round = 0; round < 400; ++round) expect_each_item_once(1 + round % 97, 1);
    });
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace tessera::runtime
