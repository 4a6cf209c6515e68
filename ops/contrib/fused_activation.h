// SPDX-License-Identifier: Apache-2.0
// The activations that FusedConv and FusedGemm of domain com.microsoft name, each as one expression: the kernels of
// ops/contrib/family_fused.cc compute it on numbers, compiler/cpu/expressions/product.cc makes loops of it.
#pragma once

#include "ops/kernels/pointwise.h"

namespace tessera::ops::scalar {

/// Calls f(g) with the expression g of one element that attribute 'activation' names; `parameters` in the order of the
/// ONNX operator's attributes. Throws Error kUnsupported for another name.
template <typename F>
void with_activation(const Node& node, const std::vector<float>& parameters, F f) {
  const std::string name = node.get_string("activation", "");
  const auto parameter = [&](size_t i, float fallback) { return i < parameters.size() ? parameters[i] : fallback; };
  const auto unit = [](auto v) { return larger(v.same(0), smaller(v.same(1), v)); };
  if (name.empty()) return f([](auto v) { return v; });
  if (name == "Relu") return f([](auto v) { return select(v < v.same(0), v.same(0), v); });
  if (name == "Tanh") return f([](auto v) { return tanh(v); });
  if (name == "Sigmoid") return f([](auto v) { return v.same(1) / (v.same(1) + exp(-v)); });
  if (name == "LeakyRelu")
    return f([alpha = parameter(0, 0.01f)](auto v) { return select(v < v.same(0), v.same(alpha) * v, v); });
  if (name == "Clip")
    return f([low = parameter(0, -INFINITY), high = parameter(1, INFINITY)](auto v) {
      return select(v < v.same(low), v.same(low), select(v > v.same(high), v.same(high), v));
    });
  if (name == "HardSigmoid")
    return f([unit, alpha = parameter(0, 0.2f), beta = parameter(1, 0.5f)](auto v) {
      return unit(v.same(alpha) * v + v.same(beta));
    });
  if (name == "HardSwish") return f([unit](auto v) { return v * unit(v / v.same(6) + v.same(0.5)); });
  if (name == "Elu")
    return f([alpha = parameter(0, 1.0f)](auto v) {
      return choose(v < v.same(0), [&] { return v.same(alpha) * expm1(v); }, [&] { return v; });
    });
  if (name == "Selu")
    return f([alpha = parameter(0, 1.67326319f), gamma = parameter(1, 1.05070102f)](auto v) {
      const auto scale = v.same(gamma);
      return choose(v > v.same(0), [&] { return scale * v; }, [&] { return scale * (v.same(alpha) * expm1(v)); });
    });
  if (name == "Softplus") return f([](auto v) { return softplus(v); });
  if (name == "Softsign") return f([](auto v) { return v / (v.same(1) + magnitude(v)); });
  if (name == "ThresholdedRelu")
    return f([alpha = parameter(0, 1.0f)](auto v) { return select(v > v.same(alpha), v, v.same(0)); });
  node.fail(ErrorCode::kUnsupported, "activation '" + name + "' is not known");
}

/// What FusedGemm has as single attributes.
inline std::vector<float> gemm_activation_parameters(const Node& node) {
  std::vector<float> parameters;
  for (const char* name : {"activation_alpha", "activation_beta", "activation_gamma"})
    if (node.has(name)) parameters.push_back(node.get_float(name, 0.0f));
  if (parameters.empty() && node.has("leaky_relu_alpha"))
    parameters.push_back(node.get_float("leaky_relu_alpha", 0.0f));
  return parameters;
}

}  // namespace tessera::ops::scalar
