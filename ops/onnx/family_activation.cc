// SPDX-License-Identifier: Apache-2.0
// The normalised exponentials over an axis (Softmax, LogSoftmax, Hardmax), which before opset 13 see their input as a
// matrix split at the axis and subtract the maximum first; and SwiGLU. Activations of one element are in pointwise.h.
#include <cmath>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

using namespace kernel;

enum class Normalised { kSoftmax, kLogSoftmax, kHardmax };

/// One line of `length` elements, `step` apart.
template <typename T>
void normalise_line(Normalised kind, const T* x, T* y, int64_t length, int64_t step) {
  int64_t top = 0;
  for (int64_t i = 1; i < length; ++i)
    if (x[i * step] > x[top * step]) top = i;
  if (kind == Normalised::kHardmax) {
    for (int64_t i = 0; i < length; ++i) y[i * step] = i == top ? T{1} : T{0};
    return;
  }
  const T maximum = x[top * step];
  T sum = 0;
  for (int64_t i = 0; i < length; ++i) {
    const T e = std::exp(x[i * step] - maximum);
    if (kind == Normalised::kSoftmax) y[i * step] = e;
    sum += e;
  }
  if (kind == Normalised::kSoftmax) {
    for (int64_t i = 0; i < length; ++i) y[i * step] /= sum;
  } else {
    const T log_sum = std::log(sum);
    for (int64_t i = 0; i < length; ++i) y[i * step] = (x[i * step] - maximum) - log_sum;
  }
}

Kernel normalised(Normalised kind) {
  return [kind](EvalContext& c, const std::vector<TypeInfo>& types) {
    const Shape& shape = types[0].shape;
    const bool flatten = c.node.version < 13;
    const size_t axis = axis_attribute(c.node, flatten ? 1 : -1, shape);
    const int64_t outer = product(shape, 0, axis);
    const int64_t length = flatten ? product(shape, axis, shape.size()) : shape[axis];
    const int64_t inner = flatten ? 1 : product(shape, axis + 1, shape.size());
    c.outputs[0] = in_floats(c.node, c.input(0), types[0], [&]<typename T>(const T* x, T* y) {
      for (int64_t o = 0; o < (length == 0 ? 0 : outer); ++o)
        for (int64_t i = 0; i < inner; ++i)
          normalise_line(kind, x + o * length * inner + i, y + o * length * inner + i, length, inner);
    });
  };
}

void infer_normalised(InferContext& c) {
  same_as_first(kFloats)(c);
  if (c.input(0).ranked) axis_attribute(c.node, c.node.version < 13 ? 1 : -1, c.input(0).shape);
}

}  // namespace

void register_activation(Registry& r) {
  add_expansion(r, "SwiGLU", 28, kTwo,
                [](const Node& node, const std::vector<TypeInfo>& inputs) -> std::optional<Expansion> {
                  for (const TypeInfo& t : inputs) require_type(node, t.dtype, kFloats, "operand");
                  if (inputs[0].is_static() && inputs[1].is_static() && inputs[0].shape != inputs[1].shape)
                    node.fail(ErrorCode::kInvalidModel, "operands of shapes " + to_string(inputs[0].shape) + " and " +
                                                            to_string(inputs[1].shape) + " must have one shape");
                  Expander e(node, inputs, 24);
                  const Expander::Operand gate = e.step("Swish", {e.input(0)}, node.attributes);
                  return e.finish({e.step("Mul", {gate, e.input(1)})});
                },
                {"alpha"});
  add(r, "Softmax", 1, kOne, infer_normalised, normalised(Normalised::kSoftmax), {"axis"});
  add(r, "LogSoftmax", 1, kOne, infer_normalised, normalised(Normalised::kLogSoftmax), {"axis"});
  add(r, "Hardmax", 1, kOne, infer_normalised, normalised(Normalised::kHardmax), {"axis"});
}

}  // namespace tessera::ops
