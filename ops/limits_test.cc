// SPDX-License-Identifier: Apache-2.0
// The account of memory holds its limit, and so do kernels that compute in wider numbers than they leave.
#include "ops/limits.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "ops/operator.h"

namespace tessera::ops {
namespace {

/// The limit of this process; the first to ask settles it.
class Limits : public ::testing::Test {
 protected:
  void SetUp() override { setenv("TESSERA_MEMORY_LIMIT", "1M", 1); }
};

TEST_F(Limits, WideKernels) {
  // 300,000 bytes would fit, the 32-bit sums behind them do not.
  Node node{.domain = "com.microsoft", .op_type = "QLinearAveragePool", .version = 1, .name = "pool"};
  node.attributes["kernel_shape"] = std::vector<int64_t>{2};
  node.attributes["pads"] = std::vector<int64_t>{0, 300'000};
  const std::vector<Value> inputs = {Tensor(DType::kUint8, {1, 1, 2}), Tensor(DType::kFloat, {}),
                                     Tensor(DType::kUint8, {}), Tensor(DType::kFloat, {}), Tensor(DType::kUint8, {})};
  try {
    evaluate(node, inputs);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDoesNotFit) << error.what();
    EXPECT_NE(std::string(error.what()).find("'pool'"), std::string::npos) << error.what();
  }
}

TEST_F(Limits, AccountOfMemory) {
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
