// SPDX-License-Identifier: Apache-2.0
// Reading and writing elements by index: Gather, GatherElements, GatherND, ScatterElements, ScatterND, Scatter,
// TensorScatter. Indices are int32 or int64; a negative one counts from the end, one outside the axis is an error.
// Writes happen in the order of the updates, so that of two writes to one place the later wins; reductions combine with
// what is there.
#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

/// Indices as int64 in [0, dim): negative ones count from the end. Throws Error kInvalidArgument for one outside.
int64_t checked_index(const Node& node, int64_t index, int64_t dim) {
  if (index < -dim || index >= dim)
    node.fail(ErrorCode::kInvalidArgument,
              "index " + std::to_string(index) + " is outside an axis of " + std::to_string(dim));
  return index < 0 ? index + dim : index;
}

// -------------------------------------------------------------------------------------------------- Gather

void infer_gather(InferContext& c) {
  const TypeInfo &data = c.input(0), &indices = c.input(1);
  require_type(c.node, indices.dtype, kIndex, "indices");
  c.outputs[0] = TypeInfo::unranked(data.dtype);
  if (!data.ranked) return;
  const size_t axis = axis_attribute(c.node, 0, data.shape);
  if (!indices.ranked) return;
  Shape shape(data.shape.begin(), data.shape.begin() + static_cast<int64_t>(axis));
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), data.shape.begin() + static_cast<int64_t>(axis) + 1, data.shape.end());
  c.outputs[0] = TypeInfo::tensor(data.dtype, std::move(shape));
}

void evaluate_gather(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& data = c.input(0);
  const size_t axis = axis_attribute(c.node, 0, data.shape());
  const int64_t outer = product(data.shape(), 0, axis), dim = data.shape()[axis],
                inner = product(data.shape(), axis + 1, data.shape().size());
  std::vector<int64_t> indices = c.input(1).to_int64s();
  for (int64_t& index : indices) index = checked_index(c.node, index, dim);
  c.outputs[0] = in_storage(data, types[0].shape, [&](const auto* x, auto* y) {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t index : indices) {
        const auto* from = x + (o * dim + index) * inner;
        y = std::copy(from, from + inner, y);
      }
  });
}

// ------------------------------------------------------------------------ GatherElements and ScatterElements

/// Checks that indices lie inside data on every axis but the indexed one.
void require_inside(const Node& node, const TypeInfo& data, const TypeInfo& indices) {
  if (!data.ranked || !indices.ranked) return;
  if (data.shape.size() != indices.shape.size())
    node.fail(ErrorCode::kInvalidModel, "indices of shape " + to_string(indices.shape) + " and data of shape " +
                                            to_string(data.shape) + " differ in rank");
  const size_t axis = axis_attribute(node, 0, data.shape);
  for (size_t d = 0; d < data.shape.size(); ++d)
    if (d != axis && data.shape[d] >= 0 && indices.shape[d] > data.shape[d])
      node.fail(ErrorCode::kInvalidModel,
                "indices of shape " + to_string(indices.shape) + " exceed data of shape " + to_string(data.shape));
}

void infer_gather_elements(InferContext& c) {
  require_type(c.node, c.input(1).dtype, kIndex, "indices");
  require_inside(c.node, c.input(0), c.input(1));
  c.outputs[0] = without_constant(c.input(1), c.input(0).dtype);
  if (!c.input(1).ranked && c.input(0).ranked)
    c.outputs[0] = of_rank(c.input(0).dtype, static_cast<int64_t>(c.input(0).shape.size()));
}

/// Calls f(position in data, position in indices) for every index, in row-major order of the indices.
template <typename F>
void for_each_element_index(const Node& node, const Shape& data, const Tensor& indices, size_t axis, F f) {
  const std::vector<int64_t> strides = row_strides(data), values = indices.to_int64s();
  const Shape& shape = indices.shape();
  if (values.empty()) return;
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t flat = 0; flat < static_cast<int64_t>(values.size()); ++flat) {
    int64_t at = checked_index(node, values[static_cast<size_t>(flat)], data[axis]) * strides[axis];
    for (size_t d = 0; d < shape.size(); ++d)
      if (d != axis) at += index[d] * strides[d];
    f(at, flat);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
}

void evaluate_gather_elements(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& data = c.input(0);
  const size_t axis = axis_attribute(c.node, 0, data.shape());
  c.outputs[0] = in_storage(data, types[0].shape, [&](const auto* x, auto* y) {
    for_each_element_index(c.node, data.shape(), c.input(1), axis, [&](int64_t at, int64_t flat) { y[flat] = x[at]; });
  });
}

enum class Combine { kNone, kAdd, kMul, kMin, kMax };

Combine combine_of(const Node& node) {
  const std::string name = node.get_string("reduction", "none");
  if (name == "none") return Combine::kNone;
  if (name == "add" && node.version >= 16) return Combine::kAdd;
  if (name == "mul" && node.version >= 16) return Combine::kMul;
  if (name == "min" && node.version >= 18) return Combine::kMin;
  if (name == "max" && node.version >= 18) return Combine::kMax;
  node.fail(ErrorCode::kInvalidModel, "reduction '" + name + "' is not known in opset " + std::to_string(node.version));
}

template <typename T>
T combine(Combine how, T a, T b) {
  switch (how) {
    case Combine::kAdd: return wrap_add(a, b);
    case Combine::kMul: return wrap_mul(a, b);
    case Combine::kMin: return nan_min(a, b);
    case Combine::kMax: return nan_max(a, b);
    case Combine::kNone: break;
  }
  return b;
}

/// Writes updates into a copy of data: walk(f) calls f(position in data, position in updates, count of consecutive
/// elements).
template <typename Walk>
Tensor scatter(const Node& node, const Tensor& data, const Tensor& updates, Combine how, Walk walk) {
  if (how == Combine::kNone) {
    Tensor out = data;
    visit_storage(data.dtype(), [&]<typename T>(Tag<T>) {
      T* y = mutable_elements<T>(out);
      const T* u = elements<T>(updates);
      walk([&](int64_t at, int64_t from, int64_t count) { std::copy(u + from, u + from + count, y + at); });
    });
    return out;
  }
  const bool boolean = data.dtype() == DType::kBool;  // add and max are "or", mul and min are "and"
  Tensor out = boolean ? data.bitcast(DType::kUint8) : widen(data);
  const Tensor wide = boolean ? updates.bitcast(DType::kUint8) : widen(updates);
  if (boolean) how = how == Combine::kAdd ? Combine::kMax : how == Combine::kMul ? Combine::kMin : how;
  visit_arithmetic(node, out.dtype(), [&]<typename T>(Tag<T>) {
    T* y = mutable_elements<T>(out);
    const T* u = elements<T>(wide);
    walk([&](int64_t at, int64_t from, int64_t count) {
      for (int64_t i = 0; i < count; ++i) y[at + i] = combine(how, y[at + i], u[from + i]);
    });
  });
  return boolean ? out.bitcast(DType::kBool) : narrow(std::move(out), data.dtype());
}

void infer_scatter_elements(InferContext& c) {
  require_type(c.node, c.input(1).dtype, kIndex, "indices");
  require_same_type(c.node, c.input(0), c.input(2));
  if (combine_of(c.node) != Combine::kNone)
    require_type(c.node, c.input(0).dtype, kNumeric | kBoolSet, "data of a reduction");
  require_inside(c.node, c.input(0), c.input(1));
  const TypeInfo &indices = c.input(1), &updates = c.input(2);
  if (indices.is_static() && updates.is_static() && indices.shape != updates.shape)
    c.node.fail(ErrorCode::kInvalidModel, "indices of shape " + to_string(indices.shape) + " and updates of shape " +
                                              to_string(updates.shape) + " differ");
  c.outputs[0] = without_constant(c.input(0));
}

void evaluate_scatter_elements(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor& data = c.input(0);
  const size_t axis = axis_attribute(c.node, 0, data.shape());
  c.outputs[0] = scatter(c.node, data, c.input(2), combine_of(c.node), [&](auto f) {
    for_each_element_index(c.node, data.shape(), c.input(1), axis, [&](int64_t at, int64_t flat) { f(at, flat, 1); });
  });
}

// ---------------------------------------------------------------------------------- GatherND and ScatterND

/// Calls f(position in data, number of the tuple) for every index tuple; the tuple indexes data from dimension `batch`.
template <typename F>
void for_each_tuple(const Node& node, const Shape& data, const Tensor& indices, size_t batch, F f) {
  const Shape& shape = indices.shape();
  const size_t length = static_cast<size_t>(shape.back());
  const std::vector<int64_t> strides = row_strides(data), values = indices.to_int64s();
  const int64_t tuples = product(shape, 0, shape.size() - 1), batches = product(shape, 0, batch),
                per_batch = batches == 0 ? 1 : tuples / batches;  // without batches there are no tuples
  const int64_t batch_size = product(data, batch, data.size());
  for (int64_t t = 0; t < tuples; ++t) {
    int64_t at = (t / per_batch) * batch_size;
    for (size_t d = 0; d < length; ++d)
      at += checked_index(node, values[static_cast<size_t>(t) * length + d], data[batch + d]) * strides[batch + d];
    f(at, t);
  }
}

void infer_gather_nd(InferContext& c) {
  const TypeInfo &data = c.input(0), &indices = c.input(1);
  require_type(c.node, indices.dtype, kInt64Set, "indices");
  c.outputs[0] = TypeInfo::unranked(data.dtype);
  if (!data.ranked || !indices.ranked) return;
  const int64_t batch = c.node.get_int("batch_dims", 0), rank = static_cast<int64_t>(data.shape.size());
  if (rank < 1 || indices.shape.empty()) c.node.fail(ErrorCode::kInvalidModel, "data and indices need rank 1 at least");
  if (batch < 0 || batch >= std::min(rank, static_cast<int64_t>(indices.shape.size())))
    c.node.fail(ErrorCode::kInvalidModel, "batch_dims " + std::to_string(batch) + " does not fit the ranks");
  for (size_t d = 0; d < static_cast<size_t>(batch); ++d)
    if (data.shape[d] >= 0 && indices.shape[d] >= 0 && data.shape[d] != indices.shape[d])
      c.node.fail(ErrorCode::kInvalidModel,
                  "batch dimensions of " + to_string(data.shape) + " and " + to_string(indices.shape) + " differ");
  const int64_t length = indices.shape.back();
  if (length < 0) return;
  if (batch + length > rank)
    c.node.fail(ErrorCode::kInvalidModel,
                "index tuples of " + std::to_string(length) + " exceed the rank of data " + to_string(data.shape));
  Shape shape(indices.shape.begin(), indices.shape.end() - 1);
  shape.insert(shape.end(), data.shape.begin() + batch + length, data.shape.end());
  c.outputs[0] = TypeInfo::tensor(data.dtype, std::move(shape));
}

void evaluate_gather_nd(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor &data = c.input(0), &indices = c.input(1);
  const size_t batch = static_cast<size_t>(c.node.get_int("batch_dims", 0));
  const int64_t inner = product(data.shape(), batch + static_cast<size_t>(indices.shape().back()), data.shape().size());
  c.outputs[0] = in_storage(data, types[0].shape, [&](const auto* x, auto* y) {
    for_each_tuple(c.node, data.shape(), indices, batch,
                   [&](int64_t at, int64_t t) { std::copy(x + at, x + at + inner, y + t * inner); });
  });
}

void infer_scatter_nd(InferContext& c) {
  const TypeInfo &data = c.input(0), &indices = c.input(1), &updates = c.input(2);
  require_type(c.node, indices.dtype, kInt64Set, "indices");
  require_same_type(c.node, data, updates);
  if (combine_of(c.node) != Combine::kNone)
    require_type(c.node, data.dtype, kNumeric | kBoolSet, "data of a reduction");
  c.outputs[0] = without_constant(data);
  if (!data.ranked || !indices.ranked) return;
  if (data.shape.empty() || indices.shape.empty())
    c.node.fail(ErrorCode::kInvalidModel, "data and indices need rank 1 at least");
  const int64_t length = indices.shape.back();
  if (length < 0) return;
  if (length > static_cast<int64_t>(data.shape.size()))
    c.node.fail(ErrorCode::kInvalidModel,
                "index tuples of " + std::to_string(length) + " exceed the rank of data " + to_string(data.shape));
  Shape expected(indices.shape.begin(), indices.shape.end() - 1);
  expected.insert(expected.end(), data.shape.begin() + length, data.shape.end());
  if (!updates.ranked) return;
  bool fits = updates.shape.size() == expected.size();
  for (size_t d = 0; fits && d < expected.size(); ++d)
    fits = expected[d] < 0 || updates.shape[d] < 0 || expected[d] == updates.shape[d];
  if (!fits)
    c.node.fail(ErrorCode::kInvalidModel, "updates have shape " + to_string(updates.shape) +
                                              " where indices and data ask for " + to_string(expected));
}

void evaluate_scatter_nd(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor &data = c.input(0), &indices = c.input(1);
  const int64_t inner = product(data.shape(), static_cast<size_t>(indices.shape().back()), data.shape().size());
  c.outputs[0] = scatter(c.node, data, c.input(2), combine_of(c.node), [&](auto f) {
    for_each_tuple(c.node, data.shape(), indices, 0, [&](int64_t at, int64_t t) { f(at, t * inner, inner); });
  });
}

// ------------------------------------------------------------------------------------------- TensorScatter

void infer_tensor_scatter(InferContext& c) {
  const TypeInfo &cache = c.input(0), &update = c.input(1);
  require_same_type(c.node, cache, update);
  const std::string mode = c.node.get_string("mode", "linear");
  if (mode != "linear" && mode != "circular")
    c.node.fail(ErrorCode::kInvalidModel, "mode '" + mode + "' is not linear or circular");
  if (c.has(2)) {
    require_type(c.node, c.input(2).dtype, kInt64Set, "write_indices");
    require_rank(c.node, c.input(2), 1, "write_indices");
  }
  c.outputs[0] = without_constant(cache);
  if (!cache.ranked) return;
  const int64_t rank = static_cast<int64_t>(cache.shape.size());
  const int64_t axis = normalise_axis(c.node, c.node.get_int("axis", -2), rank);
  if (axis == 0) c.node.fail(ErrorCode::kInvalidModel, "axis 0 is the batch");
  require_rank(c.node, update, rank, "update");
  if (c.has(2) && known_length(c, 2) >= 0 && cache.shape[0] >= 0 && known_length(c, 2) != cache.shape[0])
    c.node.fail(ErrorCode::kInvalidModel, "write_indices has " + std::to_string(known_length(c, 2)) +
                                              " entries for a batch of " + std::to_string(cache.shape[0]));
  if (!update.ranked) return;
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t have = cache.shape[static_cast<size_t>(d)], got = update.shape[static_cast<size_t>(d)];
    if (have >= 0 && got >= 0 && (d == axis ? got > have : got != have))
      c.node.fail(ErrorCode::kInvalidModel,
                  "update of shape " + to_string(update.shape) + " does not fit the cache " + to_string(cache.shape));
  }
}

void evaluate_tensor_scatter(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor &cache = c.input(0), &update = c.input(1);
  const Shape& shape = cache.shape();
  const size_t axis = axis_attribute(c.node, -2, cache.shape());
  const bool circular = c.node.get_string("mode", "linear") == "circular";
  const int64_t outer = product(shape, 0, axis), length = shape[axis], inner = product(shape, axis + 1, shape.size());
  const int64_t steps = update.shape()[axis], per_batch = product(shape, 1, axis);
  const std::vector<int64_t> starts =
      c.has(2) ? c.input(2).to_int64s() : std::vector<int64_t>(static_cast<size_t>(shape[0]), 0);
  c.outputs[0] = scatter(c.node, cache, update, Combine::kNone, [&](auto f) {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t s = 0; s < steps; ++s) {
        int64_t at = starts[static_cast<size_t>(o / per_batch)] + s;
        if (circular && at >= 0) at %= length;
        if (at < 0 || at >= length)
          c.node.fail(ErrorCode::kInvalidArgument,
                      "position " + std::to_string(at) + " is outside the cache of " + std::to_string(length));
        f((o * length + at) * inner, (o * steps + s) * inner, inner);
      }
  });
}

}  // namespace

void register_index(Registry& r) {
  add(r, "Gather", 1, kTwo, infer_gather, evaluate_gather, {"axis"});
  add(r, "GatherElements", 11, kTwo, infer_gather_elements, evaluate_gather_elements, {"axis"});
  add(r, "GatherND", 11, kTwo, infer_gather_nd, evaluate_gather_nd);
  add(r, "GatherND", 12, kTwo, infer_gather_nd, evaluate_gather_nd, {"batch_dims"});
  add(r, "Scatter", 9, {3, 3}, infer_scatter_elements, evaluate_scatter_elements, {"axis"});
  add(r, "ScatterElements", 11, {3, 3}, infer_scatter_elements, evaluate_scatter_elements, {"axis"});
  add(r, "ScatterND", 11, {3, 3}, infer_scatter_nd, evaluate_scatter_nd);
  add(r, "ScatterElements", 16, {3, 3}, infer_scatter_elements, evaluate_scatter_elements, {"axis", "reduction"});
  add(r, "ScatterND", 16, {3, 3}, infer_scatter_nd, evaluate_scatter_nd, {"reduction"});
  add(r, "TensorScatter", 24, {2, 3}, infer_tensor_scatter, evaluate_tensor_scatter, {"axis", "mode"});
}

}  // namespace tessera::ops
