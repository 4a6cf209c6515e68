// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/assembly/at_once.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tessera::npu {
namespace {

TEST(AtOnce, EachItemIsWorkedOnOnceAndEachHandOnOneAtATime) {
  std::vector<std::atomic<int>> items(1000), hands(3);
  at_once(hands.size(), items.size(), [&](size_t item, size_t hand) {
    EXPECT_EQ(hands.at(hand)++, 0);
    ++items[item];
    std::this_thread::yield();
    --hands[hand];
  });
  for (const auto& item : items) EXPECT_EQ(item, 1);
}

TEST(AtOnce, ItemsMayHaveItemsOfTheirOwn) {
  std::atomic<int> all = 0;
  at_once(4, 10, [&](size_t, size_t) {
    at_once(4, 10, [&](size_t, size_t) { at_once(4, 10, [&](size_t, size_t) { ++all; }); });
  });
  EXPECT_EQ(all, 1000);
}

TEST(AtOnce, TheFirstItemThatThrewIsToldOf) {
  std::atomic<int> ended = 0;
  try {
    at_once(3, 20, [&](size_t item, size_t) {
      ++ended;
      if (item == 7 || item == 13) throw std::runtime_error(std::to_string(item));
    });
    ADD_FAILURE() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "7");
  }
  EXPECT_EQ(ended, 20);
}

std::atomic<int> threads = 0;

TEST(AtOnce, ThreadsStay) {
  for (int call = 0; call < 200; ++call) {
    at_once(2, 2, [&](size_t, size_t) {
      thread_local const int number = threads++;
      EXPECT_GE(number, 0);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    });
  }
  EXPECT_LE(static_cast<unsigned>(threads), std::max(std::thread::hardware_concurrency(), 1U));
}

/// A fork has none of the threads that its parent has.
TEST(AtOnce, AForkWorksByItself) {
  at_once(2, 2, [](size_t, size_t) {});
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> all = 0;
    at_once(3, 100, [&](size_t, size_t) { ++all; });
    _exit(all == 100 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tessera::npu
