// SPDX-License-Identifier: Apache-2.0
#include "ops/kernels/recurrent.h"

namespace tessera::ops::recurrent {

namespace {

using namespace kernel;

const std::vector<std::string> kDefaults[] = {{"tanh"}, {"sigmoid", "tanh"}, {"sigmoid", "tanh", "tanh"}};

/// Parameters of an activation: which it takes and their defaults.
struct ActivationKind {
  const char* name;
  bool takes_alpha, takes_beta;
  float alpha, beta;
};
constexpr ActivationKind kActivationKinds[] = {
    {"relu", false, false, 0, 0},         {"tanh", false, false, 0, 0},
    {"sigmoid", false, false, 0, 0},      {"softsign", false, false, 0, 0},
    {"softplus", false, false, 0, 0},     {"affine", true, true, 1, 0},
    {"leakyrelu", true, false, 0.01f, 0}, {"thresholdedrelu", true, false, 1, 0},
    {"scaledtanh", true, true, 1, 1},     {"hardsigmoid", true, true, 0.2f, 0.5f},
    {"elu", true, false, 1, 0},
};

/// One agreed value of a dimension that several operands name.
struct Dim {
  int64_t value = -1;
  void agree(const Node& node, int64_t other, const std::string& what) {
    if (value >= 0 && other >= 0 && value != other)
      node.fail(ErrorCode::kInvalidModel,
                what + " of " + std::to_string(other) + " where " + std::to_string(value) + " is needed");
    if (other >= 0) value = other;
  }
};

constexpr const char* kNames[] = {"X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"};
constexpr int64_t kRanks[] = {3, 3, 3, 2, 1, 3, 3, 2};

/// What the operands of a cell say of its dimensions.
struct CellShape {
  const Node& node;
  const Plan& plan;
  Weights weights;
  int64_t gates;
  Dim steps, batch, input, hidden, directions;

  void agree_gates(int64_t dim, int64_t factor, const char* what) {
    if (dim < 0) return;
    if (dim % factor != 0)
      node.fail(ErrorCode::kInvalidModel, std::string(what) + " has " + std::to_string(dim) +
                                              " values for all gates, no multiple of " + std::to_string(factor));
    hidden.agree(node, dim / factor, std::string("hidden size in ") + what);
  }

  /// Operand i, of known rank: sequence lengths, a state, or something by direction and gate.
  void agree(size_t i, const Shape& shape) {
    const std::string name = kNames[i];
    if (i == 4) {
      batch.agree(node, shape[0], name);
      return;
    }
    if (i == 5 || i == 6) {
      directions.agree(node, shape[plan.batch_first ? 1 : 0], "directions in " + name);
      batch.agree(node, shape[plan.batch_first ? 0 : 1], "batch in " + name);
      hidden.agree(node, shape[2], "hidden size in " + name);
      return;
    }
    directions.agree(node, shape[0], "directions in " + name);
    const bool swapped = (i == 1 || i == 2) && weights == Weights::kTransposedBytes;
    agree_gates(shape[swapped ? 2 : 1], i == 3 ? 2 * gates : i == 7 ? 3 : gates, kNames[i]);
    if (i == 1) input.agree(node, shape[swapped ? 1 : 2], "input size in W");
    if (i == 2) hidden.agree(node, shape[swapped ? 1 : 2], "hidden size in R");
  }
};

}  // namespace

Plan plan_of(const Node& node, Cell cell) {
  Plan plan;
  const std::string direction = node.get_string("direction", "forward");
  if (direction == "bidirectional")
    plan.directions = 2;
  else if (direction == "reverse")
    plan.reverse = true;
  else if (direction != "forward")
    node.fail(ErrorCode::kInvalidModel, "direction '" + direction + "' is not known");
  const int64_t layout = node.get_int("layout", 0);
  if (layout != 0 && layout != 1) node.fail(ErrorCode::kInvalidModel, "layout must be 0 or 1");
  plan.batch_first = layout == 1;
  if (node.has("clip") && !(node.get_float("clip", 0) > 0))
    node.fail(ErrorCode::kInvalidModel, "clip must be positive");
  const size_t count = kActivations[static_cast<size_t>(cell)] * static_cast<size_t>(plan.directions);
  std::vector<std::string> names = node.get_strings("activations");
  if (names.empty())
    for (int64_t d = 0; d < plan.directions; ++d)
      names.insert(names.end(), kDefaults[static_cast<size_t>(cell)].begin(),
                   kDefaults[static_cast<size_t>(cell)].end());
  // The standard's default of an RNN is a list for both directions, and optimisers write defaults out.
  if (cell == Cell::kRnn && names.size() > count) names.resize(count);
  if (names.size() != count)
    node.fail(ErrorCode::kInvalidModel,
              "has " + std::to_string(names.size()) + " activations where " + std::to_string(count) + " are needed");
  const std::vector<float> alphas = node.get_floats("activation_alpha"), betas = node.get_floats("activation_beta");
  size_t next_alpha = 0, next_beta = 0;  // values go in order to the activations that take one
  for (std::string name : names) {
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char ch) { return static_cast<char>(std::tolower(ch)); });
    const auto* kind = std::find_if(std::begin(kActivationKinds), std::end(kActivationKinds),
                                    [&](const ActivationKind& k) { return name == k.name; });
    if (kind == std::end(kActivationKinds))
      node.fail(ErrorCode::kInvalidModel, "activation '" + name + "' is not known");
    Activation f{name, kind->alpha, kind->beta};
    if (kind->takes_alpha && next_alpha < alphas.size()) f.alpha = alphas[next_alpha++];
    if (kind->takes_beta && next_beta < betas.size()) f.beta = betas[next_beta++];
    plan.activations.push_back(std::move(f));
  }
  return plan;
}

void infer(InferContext& c, Cell cell, Weights weights) {
  const Plan plan = plan_of(c.node, cell);
  CellShape shape{c.node, plan, weights, static_cast<int64_t>(kGates[static_cast<size_t>(cell)]), {}, {}, {}, {}, {}};
  const TypeInfo& x = c.input(0);
  require_type(c.node, x.dtype, kFloats, "X");
  shape.directions.value = plan.directions;
  if (c.node.has("hidden_size")) {
    shape.hidden.value = c.node.get_int("hidden_size", 0);
    if (shape.hidden.value < 1) c.node.fail(ErrorCode::kInvalidModel, "hidden_size must be positive");
  }
  require_rank(c.node, x, 3, "X");
  if (x.ranked) {
    shape.steps.value = x.shape[plan.batch_first ? 1 : 0];
    shape.batch.value = x.shape[plan.batch_first ? 0 : 1];
    shape.input.value = x.shape[2];
  }
  c.input(1);
  c.input(2);
  for (size_t i = 1; i < std::min(c.inputs.size(), std::size(kNames)); ++i) {
    if (!c.has(i)) continue;
    const TypeInfo& t = c.inputs[i];
    if (i == 4)
      require_type(c.node, t.dtype, set_of({DType::kInt32}), "sequence_lens");
    else if (i < 3 && weights == Weights::kTransposedBytes)
      require_type(c.node, t.dtype, set_of({DType::kUint8, DType::kInt8}), kNames[i]);
    else
      require_same_type(c.node, x, t);
    require_rank(c.node, t, kRanks[i], kNames[i]);
    if (t.ranked) shape.agree(i, t.shape);
  }
  const int64_t batch = shape.batch.value, steps = shape.steps.value, hidden = shape.hidden.value;
  const Shape whole =
      plan.batch_first ? Shape{batch, steps, plan.directions, hidden} : Shape{steps, plan.directions, batch, hidden};
  const Shape last = plan.batch_first ? Shape{batch, plan.directions, hidden} : Shape{plan.directions, batch, hidden};
  for (size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i] = TypeInfo::tensor(x.dtype, i == 0 ? whole : last);
}

std::vector<int64_t> lengths_of(const EvalContext& c, int64_t batch, int64_t steps) {
  if (!c.has(4)) return std::vector<int64_t>(static_cast<size_t>(batch), steps);
  std::vector<int64_t> lengths = c.input(4).to_int64s();
  for (int64_t length : lengths)
    if (length < 0 || length > steps)
      c.node.fail(ErrorCode::kInvalidArgument, "a sequence length of " + std::to_string(length) + " lies outside [0, " +
                                                   std::to_string(steps) + "]");
  return lengths;
}

}  // namespace tessera::ops::recurrent
