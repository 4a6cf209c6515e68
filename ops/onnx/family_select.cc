// SPDX-License-Identifier: Apache-2.0
// Choosing and marking elements: OneHot, TopK, NonZero, Unique, Compress. Orders are total and stable: equal elements
// keep the order of their positions, a NaN is greater than every number. Sizes of NonZero, Unique and Compress follow
// from the data, so inference leaves them unknown unless the content is known.
#include <cmath>
#include <numeric>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

/// a < b with NaN above everything.
template <typename T>
bool before(const T& a, const T& b) {
  if constexpr (std::is_floating_point_v<T>)
    if (a != a || b != b) return b != b && a == a;
  return a < b;
}

// -------------------------------------------------------------------------------------------------- OneHot

int64_t depth_of(const Node& node, const Tensor& t) {
  if (t.size() != 1) node.fail(ErrorCode::kInvalidModel, "depth must be a scalar, not shape " + to_string(t.shape()));
  const int64_t depth = t.at_int64(0);
  if (depth <= 0) node.fail(ErrorCode::kInvalidArgument, "depth " + std::to_string(depth) + " is not positive");
  return depth;
}

void infer_one_hot(InferContext& c) {
  const TypeInfo &indices = c.input(0), &depth = c.input(1), &values = c.input(2);
  require_type(c.node, indices.dtype, kNumeric, "indices");
  require_type(c.node, depth.dtype, kNumeric, "depth");
  require_rank(c.node, values, 1, "values");
  if (known_length(c, 2) >= 0 && known_length(c, 2) != 2)
    c.node.fail(ErrorCode::kInvalidModel, "values must hold two elements, off and on");
  c.outputs[0] = TypeInfo::unranked(values.dtype);
  if (!indices.ranked) return;
  Shape shape = indices.shape;
  const int64_t axis = normalise_axis(c.node, c.node.get_int("axis", -1), static_cast<int64_t>(shape.size()) + 1);
  shape.insert(shape.begin() + axis, depth.constant ? depth_of(c.node, *depth.constant) : -1);
  c.outputs[0] = TypeInfo::tensor(values.dtype, std::move(shape));
}

void evaluate_one_hot(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& values = c.input(2);
  const std::vector<int64_t> indices = c.input(0).to_int64s();
  const int64_t depth = depth_of(c.node, c.input(1));
  const Shape& shape = types[0].shape;
  const size_t axis = axis_attribute(c.node, -1, shape);
  const int64_t outer = product(shape, 0, axis), inner = product(shape, axis + 1, shape.size());
  c.outputs[0] = in_storage(values, shape, [&](const auto* off_on, auto* y) {
    std::fill_n(y, element_count(shape), off_on[0]);
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t index = indices[static_cast<size_t>(o * inner + i)];
        if (index >= -depth && index < depth)
          y[(o * depth + (index < 0 ? index + depth : index)) * inner + i] = off_on[1];  // others: all off
      }
  });
}

// ---------------------------------------------------------------------------------------------------- TopK

/// K from the attribute or input; -1 when unknown.
int64_t k_of(const Node& node, const Tensor* input) {
  int64_t k = -1;
  if (node.version < 10) {
    if (!node.has("k")) node.fail(ErrorCode::kInvalidModel, "attribute 'k' is missing");
    k = node.get_int("k", 0);
  } else if (input == nullptr) {
    return -1;
  } else if (input->size() != 1) {
    node.fail(ErrorCode::kInvalidModel, "K must hold one element, not shape " + to_string(input->shape()));
  } else {
    k = input->at_int64(0);
  }
  if (k < 0) node.fail(ErrorCode::kInvalidArgument, "K = " + std::to_string(k) + " is negative");
  return k;
}

void infer_top_k(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kNumeric, "input");
  if (c.node.version >= 10) require_type(c.node, c.input(1).dtype, kInt64Set, "K");
  const int64_t k = k_of(c.node, c.has(1) && c.inputs[1].constant ? &*c.inputs[1].constant : nullptr);
  TypeInfo out = without_constant(in);
  if (in.ranked) {
    const size_t axis = axis_attribute(c.node, -1, in.shape);
    if (in.shape[axis] >= 0 && k > in.shape[axis])
      c.node.fail(ErrorCode::kInvalidArgument,
                  "K = " + std::to_string(k) + " exceeds the axis of " + std::to_string(in.shape[axis]));
    out.shape[axis] = k;
  }
  c.outputs[0] = out;
  if (c.outputs.size() > 1) c.outputs[1] = without_constant(out, DType::kInt64);
}

void evaluate_top_k(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor in = widen(c.input(0));
  const Shape& shape = in.shape();
  const size_t axis = axis_attribute(c.node, -1, in.shape());
  const bool largest = c.node.get_int("largest", 1) != 0;
  const int64_t k = types[0].shape[axis], outer = product(shape, 0, axis), length = shape[axis],
                inner = product(shape, axis + 1, shape.size());
  Tensor out(in.dtype(), types[0].shape), indices(DType::kInt64, types[0].shape);
  int64_t* z = mutable_elements<int64_t>(indices);
  visit_arithmetic(c.node, in.dtype(), [&]<typename T>(Tag<T>) {
    const T* x = elements<T>(in);
    T* y = mutable_elements<T>(out);
    std::vector<int64_t> order(static_cast<size_t>(length));
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        const T* line = x + o * length * inner + i;
        std::iota(order.begin(), order.end(), 0);
        std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int64_t a, int64_t b) {
          const T &p = line[a * inner], &q = line[b * inner];
          if (before(p, q)) return !largest;
          if (before(q, p)) return largest;
          return a < b;
        });
        for (int64_t n = 0; n < k; ++n) {
          const int64_t at = (o * k + n) * inner + i;
          y[at] = line[order[static_cast<size_t>(n)] * inner];
          z[at] = order[static_cast<size_t>(n)];
        }
      }
  });
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
  if (c.outputs.size() > 1) c.outputs[1] = std::move(indices);
}

// ------------------------------------------------------------------------------------------------- NonZero

void infer_non_zero(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kNumeric | kBoolSet, "input");
  const int64_t rank = in.ranked ? std::max<int64_t>(1, static_cast<int64_t>(in.shape.size())) : -1;
  c.outputs[0] = TypeInfo::tensor(DType::kInt64, {rank, -1});
}

void evaluate_non_zero(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor in = widen(c.input(0));
  std::vector<int64_t> found;
  const auto search = [&]<typename T>(Tag<T>) {
    const T* x = elements<T>(in);
    for (int64_t i = 0; i < in.size(); ++i)
      if (x[i] != 0) found.push_back(i);
  };
  if (in.dtype() == DType::kBool)
    search(Tag<uint8_t>{});
  else
    visit_arithmetic(c.node, in.dtype(), search);
  Shape shape = in.shape();
  if (shape.empty()) shape = {1};  // a scalar counts as one element of an axis
  const int64_t count = static_cast<int64_t>(found.size());
  Tensor out(DType::kInt64, {static_cast<int64_t>(shape.size()), count});
  int64_t* y = mutable_elements<int64_t>(out);
  const std::vector<int64_t> strides = row_strides(shape);
  for (size_t d = 0; d < shape.size(); ++d)
    for (int64_t i = 0; i < count; ++i)
      y[static_cast<int64_t>(d) * count + i] = found[static_cast<size_t>(i)] / strides[d] % shape[d];
  c.outputs[0] = std::move(out);
}

// -------------------------------------------------------------------------------------------------- Unique

void infer_unique(InferContext& c) {
  const TypeInfo& in = c.input(0);
  c.outputs[0] = TypeInfo::tensor(in.dtype, {-1});
  if (c.node.has("axis")) {
    c.outputs[0] = without_constant(in);
    if (in.ranked) c.outputs[0].shape[axis_attribute(c.node, 0, in.shape)] = -1;
  }
  for (size_t i = 1; i < c.outputs.size(); ++i) c.outputs[i] = TypeInfo::tensor(DType::kInt64, {-1});
  if (c.outputs.size() > 2 && in.ranked) {  // one inverse index for every slice of the input
    if (!c.node.has("axis"))
      c.outputs[2].shape[0] = product(in.shape);
    else
      c.outputs[2].shape[0] = in.shape[axis_attribute(c.node, 0, in.shape)];
  }
}

/// The slices of `in` ([outer, length, inner], compared in row-major order of outer and inner) without repetitions.
template <typename T>
void unique_slices(EvalContext& c, const Tensor& in, int64_t outer, int64_t length, int64_t inner, Shape shape,
                   size_t axis, DType result) {
  const T* x = elements<T>(in);
  const auto compare = [&](int64_t a, int64_t b) {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        const T &p = x[(o * length + a) * inner + i], &q = x[(o * length + b) * inner + i];
        if (before(p, q)) return -1;
        if (before(q, p)) return 1;
      }
    return 0;
  };
  std::vector<int64_t> order(static_cast<size_t>(length));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  std::vector<int64_t> first, counts, group(static_cast<size_t>(length));  // per distinct slice; group of each slice
  for (size_t n = 0; n < order.size(); ++n) {
    if (n == 0 || compare(order[n - 1], order[n]) != 0) {
      first.push_back(order[n]);
      counts.push_back(0);
    }
    ++counts.back();
    group[static_cast<size_t>(order[n])] = static_cast<int64_t>(first.size()) - 1;
  }
  std::vector<int64_t> rank(first.size());  // group -> position in the result
  std::iota(rank.begin(), rank.end(), 0);
  if (c.node.get_int("sorted", 1) == 0) {
    std::vector<int64_t> by_first(rank);
    std::sort(by_first.begin(), by_first.end(),
              [&](int64_t a, int64_t b) { return first[static_cast<size_t>(a)] < first[static_cast<size_t>(b)]; });
    for (size_t n = 0; n < by_first.size(); ++n) rank[static_cast<size_t>(by_first[n])] = static_cast<int64_t>(n);
  }
  const int64_t count = static_cast<int64_t>(first.size());
  shape[axis] = count;
  Tensor out(in.dtype(), shape);
  std::vector<int64_t> out_first(first.size()), out_counts(first.size()), inverse(group.size());
  T* y = mutable_elements<T>(out);
  for (size_t g = 0; g < first.size(); ++g) {
    const int64_t to = rank[g];
    out_first[static_cast<size_t>(to)] = first[g];
    out_counts[static_cast<size_t>(to)] = counts[g];
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) y[(o * count + to) * inner + i] = x[(o * length + first[g]) * inner + i];
  }
  for (size_t n = 0; n < group.size(); ++n) inverse[n] = rank[static_cast<size_t>(group[n])];
  c.outputs[0] = narrow(std::move(out), result);
  const std::vector<int64_t>* extra[] = {&out_first, &inverse, &out_counts};
  for (size_t i = 1; i < c.outputs.size(); ++i) c.outputs[i] = Tensor::vector_i64(*extra[i - 1]);
}

void evaluate_unique(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor in = widen(c.input(0));
  const bool flat = !c.node.has("axis");
  const size_t axis = flat ? 0 : axis_attribute(c.node, 0, in.shape());
  const Shape shape = flat ? Shape{in.size()} : in.shape();
  const int64_t outer = product(shape, 0, axis), inner = product(shape, axis + 1, shape.size());
  const auto run = [&]<typename T>(Tag<T>) {
    unique_slices<T>(c, in, outer, shape[axis], inner, shape, axis, types[0].dtype);
  };
  if (in.dtype() == DType::kString)
    run(Tag<std::string>{});
  else if (in.dtype() == DType::kBool)
    run(Tag<uint8_t>{});
  else
    visit_arithmetic(c.node, in.dtype(), run);
}

// ------------------------------------------------------------------------------------------------ Compress

/// Positions along an axis of `dim` that the condition selects; what lies beyond the condition is dropped.
std::vector<int64_t> selected(const Tensor& condition, int64_t dim) {
  std::vector<int64_t> result;
  const uint8_t* p = elements<uint8_t>(condition);
  for (int64_t i = 0; i < std::min(condition.size(), dim); ++i)
    if (p[i]) result.push_back(i);
  return result;
}

void infer_compress(InferContext& c) {
  const TypeInfo &in = c.input(0), &condition = c.input(1);
  require_type(c.node, condition.dtype, kBoolSet, "condition");
  require_rank(c.node, condition, 1, "condition");
  Shape shape{in.ranked ? product(in.shape) : -1};
  size_t axis = 0;
  if (c.node.has("axis")) {
    c.outputs[0] = TypeInfo::unranked(in.dtype);
    if (!in.ranked) return;
    shape = in.shape;
    axis = axis_attribute(c.node, 0, shape);
  }
  shape[axis] = condition.constant && shape[axis] >= 0
                    ? static_cast<int64_t>(selected(*condition.constant, shape[axis]).size())
                    : -1;
  c.outputs[0] = TypeInfo::tensor(in.dtype, std::move(shape));
}

void evaluate_compress(EvalContext& c, const std::vector<TypeInfo>& types) {
  const bool flat = !c.node.has("axis");
  const Tensor in = flat ? c.input(0).reshaped({c.input(0).size()}) : c.input(0);
  const size_t axis = flat ? 0 : axis_attribute(c.node, 0, in.shape());
  const Shape& shape = in.shape();
  const int64_t outer = product(shape, 0, axis), inner = product(shape, axis + 1, shape.size());
  const std::vector<int64_t> positions = selected(c.input(1), shape[axis]);
  c.outputs[0] = in_storage(in, types[0].shape, [&](const auto* x, auto* y) {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t at : positions)
        y = std::copy(x + (o * shape[axis] + at) * inner, x + (o * shape[axis] + at + 1) * inner, y);
  });
}

}  // namespace

void register_select(Registry& r) {
  add(r, "OneHot", 9, {3, 3}, infer_one_hot, evaluate_one_hot, {"axis"});
  add(r, "TopK", 1, kOne, infer_top_k, evaluate_top_k, {"axis", "k"}, {1, 2});
  add(r, "TopK", 10, kTwo, infer_top_k, evaluate_top_k, {"axis"}, {1, 2});
  add(r, "TopK", 11, kTwo, infer_top_k, evaluate_top_k, {"axis", "largest", "sorted"}, {1, 2});
  add(r, "NonZero", 9, kOne, infer_non_zero, evaluate_non_zero);
  add(r, "Unique", 11, kOne, infer_unique, evaluate_unique, {"axis", "sorted"}, {1, 4});
  add(r, "Compress", 9, kTwo, infer_compress, evaluate_compress, {"axis"});
}

}  // namespace tessera::ops
