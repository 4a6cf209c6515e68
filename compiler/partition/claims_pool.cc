// SPDX-License-Identifier: Apache-2.0
// Pools and reductions over images as windows.
#include "compiler/partition/claims_util.h"
#include "compiler/partition/parameters.h"

namespace tessera::partition {

std::optional<Claim> claim_max_pool(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  const DType dtype = nn::dtype_of(x);
  if (!is_byte(dtype) || op.getOutputs().size() != 1) return std::nullopt;
  const Shape in = *nn::shape_of(x), out = *nn::shape_of(op.getResult(0));
  if (in.size() < 3) return std::nullopt;
  const ops::Node node = nn::to_node(op);
  const auto win =
      window(node, node.get_ints("kernel_shape"), Shape(in.begin() + 2, in.end()), Shape(out.begin() + 2, out.end()));
  if (!win) return std::nullopt;
  PoolClaim pool;
  apply(*win, pool.what);
  const Range range = range_of(dtype);
  pool.what.kind = npu::Pool::Kind::kMax;
  pool.what.pad_value = range.low;
  pool.what.stage.low = range.low;
  pool.what.stage.high = range.high;
  Claim c = base_claim(op, {x});
  c.what = std::move(pool);
  return c;
}

/// com.microsoft QLinearGlobalAveragePool: X, x_scale, x_zero, y_scale, y_zero.
std::optional<Claim> claim_global_average_pool(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  const auto qx = quantisation(op, 1, 2, DType::kUint8), qy = quantisation(op, 3, 4, DType::kUint8);
  if (!x || !qx || !qy || !qx->scalar() || !qy->scalar() || !is_byte(nn::dtype_of(x))) return std::nullopt;
  const Shape in = *nn::shape_of(x);
  if (in.size() < 3 || in.size() > 4) return std::nullopt;
  PoolClaim pool;
  pool.channels_last = nn::to_node(op).get_int("channels_last", 0) != 0;
  const size_t first = pool.channels_last ? 1 : 2;
  pool.what.kind = npu::Pool::Kind::kSum;
  pool.what.kernel_h = in.size() == 4 ? in[first] : 1;
  pool.what.kernel_w = in[in.size() == 4 ? first + 1 : first];
  const int64_t count = pool.what.kernel_h * pool.what.kernel_w;
  // The sum of |x - zero| must stay exact in int32, as the operator's own sum does.
  if (count > (int64_t{1} << 22)) return std::nullopt;
  pool.what.stage =
      requantise({average_multiplier(qx->s(), qy->s(), count)}, {static_cast<int32_t>(-count * qx->z())}, *qy);
  Claim c = base_claim(op, {x});
  c.what = std::move(pool);
  return c;
}

}  // namespace tessera::partition
