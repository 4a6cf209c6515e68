// SPDX-License-Identifier: Apache-2.0
// Multidirectional broadcast, axes and index walks that families share. Shapes are aligned at their last dimension; a
// dimension of 1 repeats. A broadcast dimension gets stride 0, so an element's offset is a sum over strides whatever
// was broadcast.
#include <algorithm>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

Shape broadcast_shapes(const Node& node, const std::vector<Shape>& shapes) {
  size_t rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.size());
  Shape result(rank, 1);
  for (const Shape& shape : shapes) {
    for (size_t i = 0; i < shape.size(); ++i) {
      int64_t& dim = result[rank - shape.size() + i];
      if (shape[i] == 1 || shape[i] == dim) continue;
      if (dim != 1) {
        std::string all;
        for (const Shape& each : shapes) all += (all.empty() ? "" : " and ") + to_string(each);
        node.fail(ErrorCode::kInvalidModel, "shapes " + all + " do not broadcast");
      }
      dim = shape[i];
    }
  }
  return result;
}

TypeInfo broadcast_types(const Node& node, DType result, const std::vector<const TypeInfo*>& inputs) {
  size_t rank = 0;
  for (const TypeInfo* input : inputs) {
    if (!input->ranked) return TypeInfo::unranked(result);
    rank = std::max(rank, input->shape.size());
  }
  // known: the largest known dimension other than 1; unknown: some operand's dimension is not known.
  Shape shape(rank, 1);
  std::vector<bool> unknown(rank, false);
  for (const TypeInfo* input : inputs) {
    for (size_t i = 0; i < input->shape.size(); ++i) {
      const size_t axis = rank - input->shape.size() + i;
      const int64_t dim = input->shape[i];
      if (dim < 0) {
        unknown[axis] = true;
      } else if (dim != 1) {
        if (shape[axis] != 1 && shape[axis] != dim) {
          std::string all;
          for (const TypeInfo* each : inputs) all += (all.empty() ? "" : " and ") + to_string(each->shape);
          node.fail(ErrorCode::kInvalidModel, "shapes " + all + " do not broadcast");
        }
        shape[axis] = dim;
      }
    }
  }
  for (size_t i = 0; i < rank; ++i)
    if (shape[i] == 1 && unknown[i]) shape[i] = -1;
  return TypeInfo::tensor(result, std::move(shape));
}

std::vector<int64_t> broadcast_strides(const Shape& shape, const Shape& broadcast) {
  TESSERA_INVARIANT(shape.size() <= broadcast.size(), "broadcast_strides: the rank shrinks");
  std::vector<int64_t> strides(broadcast.size(), 0);
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1) strides[broadcast.size() - shape.size() + i] = stride;
    stride *= shape[i];
  }
  return strides;
}

int64_t normalise_axis(const Node& node, int64_t axis, int64_t rank) {
  if (axis < -rank || axis >= rank)
    node.fail(ErrorCode::kInvalidModel,
              "axis " + std::to_string(axis) + " is outside a tensor of rank " + std::to_string(rank));
  return axis < 0 ? axis + rank : axis;
}

size_t axis_attribute(const Node& node, int64_t fallback, const Shape& shape) {
  return static_cast<size_t>(normalise_axis(node, node.get_int("axis", fallback), static_cast<int64_t>(shape.size())));
}

void for_each_index(const Shape& shape, const std::function<void(int64_t, const std::vector<int64_t>&)>& f) {
  const int64_t count = element_count(shape);
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t flat = 0; flat < count; ++flat) {
    f(flat, index);
    for (size_t axis = shape.size(); axis-- > 0;) {
      if (++index[axis] < shape[axis]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace tessera::ops
