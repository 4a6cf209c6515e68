// SPDX-License-Identifier: Apache-2.0
// The account of memory holds its limit.
#include "ops/limits.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace tessera::ops {
namespace {

TEST(Limits, AccountOfMemory) {
  setenv("TESSERA_MEMORY_LIMIT", "1M", 1);
  ASSERT_EQ(memory_limit_bytes(), 1 << 20);
  const auto refusal = [](int64_t bytes) -> std::string {
    try {
      const MemoryCharge charge(bytes);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit);
      return error.what();
    }
  };
  EXPECT_EQ(refusal(1 << 20), "");
  EXPECT_NE(refusal((1 << 20) + 1).find("TESSERA_MEMORY_LIMIT"), std::string::npos);
  EXPECT_NE(refusal(INT64_MAX), "");
  {
    const MemoryCharge half(1 << 19);
    EXPECT_EQ(refusal(1 << 19), "");
    EXPECT_NE(refusal((1 << 19) + 1), "");
  }
  EXPECT_EQ(refusal(1 << 20), "");
}

}  // namespace
}  // namespace tessera::ops
