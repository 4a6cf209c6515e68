// SPDX-License-Identifier: Apache-2.0
#include "runtime/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tessera::runtime {
namespace {

TEST(BufferPool, BlocksAreAlignedAndUsedAgain) {
  BufferPool pool;
  auto first = pool.acquire(1000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.get()) % 64, 0U);
  const std::byte* place = first.get();
  EXPECT_NE(pool.acquire(1000).get(), place);  // the first is still held
  first.reset();
  EXPECT_EQ(pool.waiting_bytes(), 2U * 1024);
  const auto again = pool.acquire(900);
  EXPECT_EQ(pool.waiting_bytes(), 1024U);
}

TEST(BufferPool, ASmallRequestDoesNotHoldALargeBlock) {
  BufferPool pool;
  pool.acquire(1 << 20).reset();
  const auto small = pool.acquire(64);
  EXPECT_EQ(pool.waiting_bytes(), size_t{1} << 20);
}

TEST(BufferPool, ABlockOutlivesItsPool) {
  std::shared_ptr<std::byte> block;
  {
    BufferPool pool;
    block = pool.acquire(0);
  }
  *block = std::byte{1};
}

}  // namespace
}  // namespace tessera::runtime
