// SPDX-License-Identifier: Apache-2.0
#include "ops/kernels/reduction.h"

namespace tessera::ops {

ReducedAxes::ReducedAxes(const Node& node, const std::vector<int64_t>& axes, size_t rank, bool all_without_any)
    : reduced(rank, axes.empty() && all_without_any) {
  for (const int64_t axis : axes)
    reduced[static_cast<size_t>(normalise_axis(node, axis, static_cast<int64_t>(rank)))] = true;
}

Shape ReducedAxes::result(const Shape& shape, bool keep) const {
  Shape result;
  for (size_t d = 0; d < shape.size(); ++d)
    if (keep || !reduced[d]) result.push_back(reduced[d] ? 1 : shape[d]);
  return result;
}

int64_t ReducedAxes::count(const Shape& shape) const {
  int64_t count = 1;
  for (size_t d = 0; d < shape.size(); ++d) count *= reduced[d] ? shape[d] : 1;
  return count;
}

std::vector<int64_t> ReducedAxes::strides(const Shape& shape) const {
  std::vector<int64_t> strides = kernel::row_strides(result(shape, true));
  for (size_t d = 0; d < shape.size(); ++d)
    if (reduced[d]) strides[d] = 0;
  return strides;
}

bool ReducedAxes::in_fours(const Shape& shape) const {
  int64_t side_by_side = 1;
  for (size_t d = shape.size(); d-- > 0 && reduced[d];) side_by_side *= shape[d];
  return side_by_side == count(shape) && side_by_side > 0 && side_by_side % 4 == 0;
}

}  // namespace tessera::ops
