// SPDX-License-Identifier: Apache-2.0
// What recurrent cells share, whatever the arithmetic of their products: directions, activations, and the shapes that
// their operands agree on.
#pragma once

#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops::recurrent {

enum class Cell { kRnn, kGru, kLstm };
inline constexpr size_t kGates[] = {1, 3, 4};
inline constexpr size_t kActivations[] = {1, 2, 3};  // for each direction

struct Activation {
  std::string name;
  float alpha = 0, beta = 0;
};

/// An activation as the standard writes it.
template <typename T>
T apply(const Activation& f, T x) {
  const T a = static_cast<T>(f.alpha), b = static_cast<T>(f.beta);
  switch (f.name[0]) {
    case 'r': return std::max<T>(x, 0);
    case 'l': return x >= 0 ? x : a * x;
    case 'e': return x >= 0 ? x : a * (std::exp(x) - 1);
    case 'h': return std::max<T>(0, std::min<T>(1, a * x + b));
    case 'a': return a * x + b;
    case 't': return f.name == "tanh" ? std::tanh(x) : (x > a ? x : T(0));
    default: break;
  }
  if (f.name == "sigmoid") return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
  if (f.name == "softsign") return x / (1 + std::abs(x));
  if (f.name == "softplus") return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  return a * std::tanh(b * x);  // scaledtanh
}

/// The attributes of a node, checked.
struct Plan {
  int64_t directions = 1;
  bool reverse = false;  // of the first direction
  bool batch_first = false;
  std::vector<Activation> activations;
};

Plan plan_of(const Node& node, Cell cell);

/// How W and R are stored.
enum class Weights {
  kFloat,           // [directions, gates * hidden, input or hidden], of the type of X
  kTransposedBytes  // [directions, input or hidden, gates * hidden], 8 bits; what X must be is left to the operator
};

/// Types of Y, Y_h and Y_c. Checks the operands X, W, R, B, sequence_lens, initial_h, initial_c and P; further ones are
/// left to the operator. Throws through node.fail().
void infer(InferContext& c, Cell cell, Weights weights);

/// Lengths of the sequences of a batch from operand 4, or `steps` for each. Throws where one lies outside [0, steps].
std::vector<int64_t> lengths_of(const EvalContext& c, int64_t batch, int64_t steps);

}  // namespace tessera::ops::recurrent
