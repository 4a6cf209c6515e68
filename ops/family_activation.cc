// SPDX-License-Identifier: Apache-2.0
// Activation functions: one float in, one float out, attributes as fp32; and the normalised exponentials over an axis
// (Softmax, LogSoftmax, Hardmax), which before opset 13 see their input as a matrix split at the axis. Forms are chosen
// that neither overflow nor cancel: sigmoid and softplus by the sign of x, exponentials after subtracting the maximum.
#include <cmath>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

using namespace kernel;

template <typename T>
T sigmoid(T x) {
  if (x >= 0) return T{1} / (T{1} + std::exp(-x));
  const T e = std::exp(x);
  return e / (T{1} + e);
}

template <typename T>
T softplus(T x) {
  return std::max(x, T{0}) + std::log1p(std::exp(-std::fabs(x)));
}

/// Registers a float activation for several versions; make(node) gives the function op(T) -> T.
template <typename Make>
void activation(Registry& r, const char* name, std::initializer_list<int> versions, Make make,
                const std::set<std::string>& attributes = {}) {
  for (int version : versions)
    add(
        r, name, version, kOne, same_as_first(kFloats),
        [make](EvalContext& c, const std::vector<TypeInfo>& types) { float_unary(make(c.node))(c, types); },
        attributes);
}

void register_pointwise(Registry& r) {
  for (int version : {6, 13, 14})
    add(r, "Relu", version, kOne, same_as_first(kFloats | kSigned),
        numeric_unary([](auto x) { return x < 0 ? decltype(x){0} : x; }));
  activation(r, "LeakyRelu", {6, 16},
             [](const Node& node) {
               return [alpha = node.get_float("alpha", 0.01f)](auto x) {
                 return x < 0 ? static_cast<decltype(x)>(alpha) * x : x;
               };
             },
             {"alpha"});
  activation(r, "Elu", {6, 22},
             [](const Node& node) {
               return [alpha = node.get_float("alpha", 1.0f)](auto x) {
                 return x < 0 ? static_cast<decltype(x)>(alpha) * std::expm1(x) : x;
               };
             },
             {"alpha"});
  activation(r, "Celu", {12, 28},
             [](const Node& node) {
               return [alpha = node.get_float("alpha", 1.0f)](auto x) {
                 const auto a = static_cast<decltype(x)>(alpha);
                 return std::max(decltype(x){0}, x) + std::min(decltype(x){0}, a * std::expm1(x / a));
               };
             },
             {"alpha"});
  activation(r, "Selu", {6, 22},
             [](const Node& node) {
               return [alpha = node.get_float("alpha", 1.67326319217681884765625f),
                       gamma = node.get_float("gamma", 1.05070102214813232421875f)](auto x) {
                 using T = decltype(x);
                 return x > 0 ? static_cast<T>(gamma) * x
                              : static_cast<T>(gamma) * (static_cast<T>(alpha) * std::expm1(x));
               };
             },
             {"alpha", "gamma"});
  activation(r, "ThresholdedRelu", {10, 22},
             [](const Node& node) {
               return [alpha = node.get_float("alpha", 1.0f)](auto x) {
                 return x > static_cast<decltype(x)>(alpha) ? x : decltype(x){0};
               };
             },
             {"alpha"});
  activation(r, "Sigmoid", {6, 13}, [](const Node&) { return [](auto x) { return sigmoid(x); }; });
  activation(r, "HardSigmoid", {6, 22},
             [](const Node& node) {
               return [alpha = node.get_float("alpha", 0.2f), beta = node.get_float("beta", 0.5f)](auto x) {
                 using T = decltype(x);
                 return nan_max(T{0}, nan_min(T{1}, static_cast<T>(alpha) * x + static_cast<T>(beta)));
               };
             },
             {"alpha", "beta"});
  activation(r, "HardSwish", {14, 22}, [](const Node&) {
    return [](auto x) {
      using T = decltype(x);
      return x * nan_max(T{0}, nan_min(T{1}, static_cast<T>(1.0f / 6.0f) * x + T{0.5}));
    };
  });
  activation(r, "Swish", {24},
             [](const Node& node) {
               return [alpha = node.get_float("alpha", 1.0f)](auto x) {
                 return x * sigmoid(static_cast<decltype(x)>(alpha) * x);
               };
             },
             {"alpha"});
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
  activation(r, "Mish", {18, 22}, [](const Node&) { return [](auto x) { return x * std::tanh(softplus(x)); }; });
  for (int version : {20})
    add(
        r, "Gelu", version, kOne,
        [](InferContext& c) {
          const std::string approximate = c.node.get_string("approximate", "none");
          if (approximate != "none" && approximate != "tanh")
            c.node.fail(ErrorCode::kInvalidModel, "attribute 'approximate' is '" + approximate + "', not none or tanh");
          same_as_first(kFloats)(c);
        },
        [](EvalContext& c, const std::vector<TypeInfo>& types) {
          if (c.node.get_string("approximate", "none") == "tanh")
            float_unary([](auto x) {
              using T = decltype(x);
              return T{0.5} * x *
                     (T{1} +
                      std::tanh(static_cast<T>(0.7978845608028654) * (x + static_cast<T>(0.044715) * x * x * x)));
            })(c, types);
          else
            float_unary([](auto x) {
              using T = decltype(x);
              return T{0.5} * x * (T{1} + std::erf(x * static_cast<T>(0.7071067811865476)));
            })(c, types);
        },
        {"approximate"});
  activation(r, "Softplus", {1, 22}, [](const Node&) { return [](auto x) { return softplus(x); }; });
  activation(r, "Softsign", {1, 22},
             [](const Node&) { return [](auto x) { return x / (decltype(x){1} + std::fabs(x)); }; });
  add(r, "Shrink", 9, kOne, same_as_first(kNumeric),
      [](EvalContext& c, const std::vector<TypeInfo>& types) {
        const float bias = c.node.get_float("bias", 0.0f), lambd = c.node.get_float("lambd", 0.5f);
        numeric_unary([=](auto x) {
          using T = decltype(x);
          if constexpr (std::is_floating_point_v<T>)
            return x < static_cast<T>(-lambd)  ? x + static_cast<T>(bias)
                   : x > static_cast<T>(lambd) ? x - static_cast<T>(bias)
                                               : T{0};
          const double wide = static_cast<double>(x);
          const double y = wide < -lambd ? wide + bias : wide > lambd ? wide - bias : 0.0;
          return static_cast<T>(static_cast<int64_t>(y));
        })(c, types);
      },
      {"bias", "lambd"});
}

void infer_prelu(InferContext& c) {
  broadcast_same(kNumeric)(c);
  const TypeInfo &x = c.input(0), &slope = c.input(1);
  if (x.is_static() && slope.is_static() && c.outputs[0].shape != x.shape)
    c.node.fail(ErrorCode::kInvalidModel, "slope of shape " + to_string(slope.shape) +
                                              " does not broadcast to the input's " + to_string(x.shape));
  c.outputs[0] = without_constant(x);
}

// --------------------------------------------------------------------------------------------- over an axis

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
    const Tensor in = widen(c.input(0));
    const Shape& shape = in.shape();
    const bool flatten = c.node.version < 13;
    const size_t axis =
        static_cast<size_t>(normalise_axis(c.node, c.node.get_int("axis", flatten ? 1 : -1), in.rank()));
    const int64_t outer = product(shape, 0, axis);
    const int64_t length = flatten ? product(shape, axis, shape.size()) : shape[axis];
    const int64_t inner = flatten ? 1 : product(shape, axis + 1, shape.size());
    Tensor out(in.dtype(), shape);
    if (out.size() != 0 && !visit_float(in.dtype(), [&](auto tag) {
          using T = typename decltype(tag)::type;
          const T* x = elements<T>(in);
          T* y = mutable_elements<T>(out);
          for (int64_t o = 0; o < outer; ++o)
            for (int64_t i = 0; i < inner; ++i)
              normalise_line(kind, x + o * length * inner + i, y + o * length * inner + i, length, inner);
        }))
      unsupported_type(c.node, in.dtype());
    c.outputs[0] = narrow(std::move(out), types[0].dtype);
  };
}

void infer_normalised(InferContext& c) {
  same_as_first(kFloats)(c);
  if (c.input(0).ranked)
    normalise_axis(c.node, c.node.get_int("axis", c.node.version < 13 ? 1 : -1),
                   static_cast<int64_t>(c.input(0).shape.size()));
}

}  // namespace

void register_activation(Registry& r) {
  register_pointwise(r);
  for (int version : {7, 9, 16})
    add(r, "PRelu", version, kTwo, infer_prelu,
        numeric_binary([](const Node&, auto x, auto slope) { return x < 0 ? wrap_mul(x, slope) : x; }));
  for (int version : {1, 11, 13}) {
    add(r, "Softmax", version, kOne, infer_normalised, normalised(Normalised::kSoftmax), {"axis"});
    add(r, "LogSoftmax", version, kOne, infer_normalised, normalised(Normalised::kLogSoftmax), {"axis"});
    add(r, "Hardmax", version, kOne, infer_normalised, normalised(Normalised::kHardmax), {"axis"});
  }
}

}  // namespace tessera::ops
