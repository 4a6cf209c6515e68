// SPDX-License-Identifier: Apache-2.0
// Operators of LiteRT that ONNX has no words for: BitCast between widths, DynamicUpdateSlice, ReduceWindow, Atan2.
// Domain litert; compiler/litert makes them. Their meaning is that of LiteRT's reference kernels.
#include <cmath>
#include <cstring>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

// --------------------------------------------------------------------------------------------------- BitCast

/// The same bytes as another type. A wider type takes the last axis, whose extent is the quotient of the widths; a
/// narrower one adds such an axis. Attribute `to`.
void infer_litert_bit_cast(InferContext& c) {
  const int64_t number = c.node.get_int("to", 0);
  if (number <= 0 || number > kLastDType) c.node.fail(ErrorCode::kInvalidModel, "attribute to is no element type");
  const auto to = static_cast<DType>(number);
  const TypeInfo& x = c.input(0);
  c.outputs[0] = TypeInfo::unranked(to);
  if (x.dtype == DType::kUndefined) return;
  const int64_t from_bytes = element_bytes(x.dtype), to_bytes = element_bytes(to);
  if (from_bytes == 0 || to_bytes == 0) c.node.fail(ErrorCode::kInvalidModel, "strings have no width");
  if (!x.ranked) return;
  Shape shape = x.shape;
  if (from_bytes < to_bytes) {
    if (shape.empty() || (shape.back() >= 0 && shape.back() * from_bytes != to_bytes))
      c.node.fail(ErrorCode::kInvalidModel, "the last axis of " + to_string(shape) + " is no element of the result");
    shape.pop_back();
  } else if (from_bytes > to_bytes) {
    shape.push_back(from_bytes / to_bytes);
  }
  c.outputs[0] = TypeInfo::tensor(to, shape);
}

void evaluate_bit_cast(EvalContext& c, const std::vector<TypeInfo>& types) {
  Tensor out(types[0].dtype, types[0].shape);
  std::memcpy(out.mutable_data(), c.input(0).data(), static_cast<size_t>(out.bytes()));
  c.outputs[0] = std::move(out);
}

// ------------------------------------------------------------------------------------------- DynamicUpdateSlice

/// x, with `update` (of the same rank and type) written at `start` (int64, one for each axis); a start is moved so that
/// the update lies inside.
void infer_update_slice(InferContext& c) {
  const TypeInfo &x = c.input(0), &update = c.input(1), &start = c.input(2);
  require_same_type(c.node, x, update);
  require_type(c.node, start.dtype, kInt64Set, "start");
  require_rank(c.node, start, 1, "start");
  if (x.ranked && update.ranked) {
    bool fits = x.shape.size() == update.shape.size();
    for (size_t d = 0; fits && d < x.shape.size(); ++d) fits = x.shape[d] < 0 || update.shape[d] <= x.shape[d];
    if (!fits)
      c.node.fail(ErrorCode::kInvalidModel,
                  "update " + to_string(update.shape) + " does not fit into " + to_string(x.shape));
    if (start.ranked && start.shape[0] >= 0 && start.shape[0] != static_cast<int64_t>(x.shape.size()))
      c.node.fail(ErrorCode::kInvalidModel, "there must be a start for each axis");
  }
  c.outputs[0] = without_constant(x);
}

void evaluate_update_slice(EvalContext& c, const std::vector<TypeInfo>&) {
  Tensor out = c.input(0);
  const Tensor& update = c.input(1);
  std::vector<int64_t> start = c.input(2).to_int64s();
  const std::vector<int64_t> strides = row_strides(out.shape());
  int64_t first = 0;
  for (size_t d = 0; d < start.size(); ++d) {
    start[d] = std::clamp<int64_t>(start[d], 0, out.shape()[d] - update.shape()[d]);
    first += start[d] * strides[d];
  }
  if (update.size() != 0) {
    visit_storage(out.dtype(), [&]<typename T>(Tag<T>) {
      T* to = mutable_elements<T>(out) + first;
      strided_copy<T>(update.shape(), elements<T>(update), row_strides(update.shape()), to, strides);
    });
  }
  c.outputs[0] = std::move(out);
}

// --------------------------------------------------------------------------------------------------- ReduceWindow

/// x reduced over windows: attributes window, strides, dilations (of the window), one for each axis, and `reduction`:
/// add, mul, min, max, all, any. The scalar `init` begins each sum. A result has as many elements along an axis as
/// windows fit.
void infer_reduce_window(InferContext& c) {
  const TypeInfo& x = c.input(0);
  require_same_type(c.node, x, c.input(1));
  require_type(c.node, x.dtype, kNumeric | kBoolSet, "x");
  const std::vector<int64_t> window = c.node.get_ints("window"), strides = c.node.get_ints("strides"),
                             dilations = c.node.get_ints("dilations");
  const auto positive = [](const std::vector<int64_t>& all) {
    return std::all_of(all.begin(), all.end(), [](int64_t n) { return n > 0; });
  };
  if (window.size() != strides.size() || window.size() != dilations.size() || !positive(window) || !positive(strides) ||
      !positive(dilations))
    c.node.fail(ErrorCode::kInvalidModel, "window, strides and dilations must be positive, one for each axis");
  c.outputs[0] = of_rank(x.dtype, static_cast<int64_t>(window.size()));
  if (!x.ranked) return;
  if (x.shape.size() != window.size())
    c.node.fail(ErrorCode::kInvalidModel, "the window does not fit " + to_string(x.shape));
  for (size_t d = 0; d < window.size(); ++d) {
    if (x.shape[d] < 0) continue;
    const int64_t span = (window[d] - 1) * dilations[d] + 1;
    c.outputs[0].shape[d] = x.shape[d] < span ? 0 : (x.shape[d] - span) / strides[d] + 1;
  }
}

enum class Reduction { kAdd, kMul, kMin, kMax, kAll, kAny };

Reduction reduction_of(const Node& node) {
  const std::string name = node.get_string("reduction", "");
  const char* names[] = {"add", "mul", "min", "max", "all", "any"};
  for (int i = 0; i < 6; ++i)
    if (name == names[i]) return static_cast<Reduction>(i);
  node.fail(ErrorCode::kInvalidModel, "reduction '" + name + "' is not known");
}

template <typename T>
T reduce(Reduction reduction, T a, T b) {
  switch (reduction) {
    case Reduction::kAdd: return wrap_add(a, b);
    case Reduction::kMul: return wrap_mul(a, b);
    case Reduction::kMin: return std::min(a, b);
    case Reduction::kMax: return std::max(a, b);
    case Reduction::kAll: return static_cast<T>(a != T(0) && b != T(0));
    case Reduction::kAny: return static_cast<T>(a != T(0) || b != T(0));
  }
  return a;
}

template <typename T>
void reduce_windows(EvalContext& c, const Tensor& x, T start, Tensor& out) {
  const std::vector<int64_t> window = c.node.get_ints("window"), strides = c.node.get_ints("strides"),
                             dilations = c.node.get_ints("dilations"), steps = row_strides(x.shape());
  const Reduction reduction = reduction_of(c.node);
  const T* in = elements<T>(x);
  T* y = mutable_elements<T>(out);
  for_each_index(out.shape(), [&](int64_t flat, const std::vector<int64_t>& at) {
    T value = start;
    for_each_index(window, [&](int64_t, const std::vector<int64_t>& in_window) {
      int64_t place = 0;
      for (size_t d = 0; d < at.size(); ++d) place += (at[d] * strides[d] + in_window[d] * dilations[d]) * steps[d];
      value = reduce(reduction, value, in[place]);
    });
    y[flat] = value;
  });
}

void evaluate_reduce_window(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = widen(c.input(0)), start = widen(c.input(1));
  if (start.size() != 1) c.node.fail(ErrorCode::kInvalidModel, "init must be a scalar");
  Tensor out(x.dtype(), types[0].shape);
  if (x.dtype() == DType::kBool)
    reduce_windows<uint8_t>(c, x, elements<uint8_t>(start)[0], out);
  else
    visit_arithmetic(c.node, x.dtype(),
                     [&]<typename T>(Tag<T>) { reduce_windows<T>(c, x, elements<T>(start)[0], out); });
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
}

// --------------------------------------------------------------------------------------------------------- Atan2

void evaluate_atan2(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor a = widen(c.input(0)), b = widen(c.input(1));
  Tensor out(a.dtype(), types[0].shape);
  visit_float(a.dtype(), [&]<typename T>(Tag<T>) {
    binary_loop(out.shape(), a.shape(), b.shape(), elements<T>(a), elements<T>(b), mutable_elements<T>(out),
                [](T y, T x) -> T { return std::atan2(y, x); });
  });
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
}

}  // namespace

void register_litert_index(Registry& r) {
  add(r, "BitCast", 1, kOne, infer_litert_bit_cast, evaluate_bit_cast, {"to"}, kOne, kLitert);
  add(r, "DynamicUpdateSlice", 1, {3, 3}, infer_update_slice, evaluate_update_slice, {}, kOne, kLitert);
  add(r, "ReduceWindow", 1, kTwo, infer_reduce_window, evaluate_reduce_window,
      {"window", "strides", "dilations", "reduction"}, kOne, kLitert);
  add(r, "Atan2", 1, kTwo, broadcast_same(kFloats), evaluate_atan2, {}, kOne, kLitert);
}

}  // namespace tessera::ops
