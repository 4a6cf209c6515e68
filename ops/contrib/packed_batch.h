// SPDX-License-Identifier: Apache-2.0
// What operators of com.microsoft share whose batch is packed: the tokens of several requests stand one request behind
// another along the first axis, and a vector of borders says where each begins.
#pragma once

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops::kernel {

/// Throws Error kInvalidArgument through node.fail() unless the borders ascend from 0 to `tokens`, each request having
/// a token.
inline void require_borders(const Node& node, const Tensor& borders, int64_t tokens) {
  const std::vector<int64_t> all = borders.to_int64s();
  bool fits = !all.empty() && all.front() == 0 && all.back() == tokens;
  for (size_t i = 1; fits && i < all.size(); ++i) fits = all[i - 1] < all[i];
  if (!fits)
    node.fail(ErrorCode::kInvalidArgument, "cumulative_sequence_length must ascend from 0 to the " +
                                               std::to_string(tokens) + " tokens, with a token for each request");
}

}  // namespace tessera::ops::kernel
