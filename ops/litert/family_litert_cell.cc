// SPDX-License-Identifier: Apache-2.0
// The LSTM cell of LiteRT in all its variants: input and forget gate coupled, peepholes, projection, layer
// normalisation of the gates, limits of cell and projection. Domain litert; a plain cell becomes ONNX's LSTM instead.
// Computed in float32, in the order of the reference kernel.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

// Operands. A group of four is for the gates input, forget, cell, output.
constexpr size_t kX = 0, kWeights = 1, kRecurrent = 5, kPeephole = 9, kGateBias = 12, kProjection = 16,
                 kProjectionBias = 17, kHidden = 18, kCell = 19, kNorm = 20, kOperands = 24;
enum Gate : size_t { kInput, kForget, kUpdate, kOutput };

/// x [steps, batch, inputs]; the state is [batch, outputs] and [batch, units]. Results [steps, batch, outputs], and the
/// state behind the last step.
void infer_lstm(InferContext& c) {
  for (size_t i = 0; i < kOperands; ++i)
    if (c.has(i)) require_type(c.node, c.input(i).dtype, set_of({DType::kFloat}), "an operand");
  const TypeInfo &x = c.input(kX), &hidden = c.input(kHidden), &cell = c.input(kCell);
  require_rank(c.node, x, 3, "x");
  require_rank(c.node, hidden, 2, "the hidden state");
  require_rank(c.node, cell, 2, "the cell state");
  if (c.has(kWeights) != c.has(kRecurrent) || c.has(kWeights) != c.has(kGateBias))
    c.node.fail(ErrorCode::kInvalidModel, "the input gate must have all of its operands, or none");
  c.outputs[0] = of_rank(DType::kFloat, 3);
  for (size_t i = 1; i < c.outputs.size(); ++i) c.outputs[i] = i == 1 ? hidden : cell;
  if (!x.ranked || !hidden.is_static() || !cell.is_static()) return;
  const int64_t inputs = x.shape[2], outputs = hidden.shape[1], units = cell.shape[1];
  const auto expect = [&](size_t i, const Shape& shape) {
    if (c.has(i) && c.input(i).is_static() && c.input(i).shape != shape)
      c.node.fail(ErrorCode::kInvalidModel, "operand " + std::to_string(i) + " must have shape " + to_string(shape) +
                                                ", not " + to_string(c.input(i).shape));
  };
  for (size_t gate = 0; gate < 4; ++gate) {
    if (inputs >= 0) expect(kWeights + gate, {units, inputs});
    expect(kRecurrent + gate, {units, outputs});
    expect(kGateBias + gate, {units});
    expect(kNorm + gate, {units});
    if (gate < 3) expect(kPeephole + gate, {units});
    const bool needed = gate != kInput;
    if (needed && !(c.has(kWeights + gate) && c.has(kRecurrent + gate) && c.has(kGateBias + gate)))
      c.node.fail(ErrorCode::kInvalidModel, "a gate has no weights or no bias");
  }
  expect(kProjection, {outputs, units});
  expect(kProjectionBias, {outputs});
  if (!c.has(kProjection) && outputs != units)
    c.node.fail(ErrorCode::kInvalidModel, "without a projection both states must have one width");
  c.outputs[0] = TypeInfo::tensor(DType::kFloat, {x.shape[0], hidden.shape[0], outputs});
}

using Vector = std::vector<float>;

class Cell {
 public:
  explicit Cell(EvalContext& c)
      : c_(c),
        activation_(c.node.get_string("activation", "Tanh")),
        cell_clip_(c.node.get_float("cell_clip", 0)),
        projection_clip_(c.node.get_float("projection_clip", 0)),
        units_(static_cast<size_t>(c.input(kCell).shape()[1])) {
    if (!is_known(activation_)) c.node.fail(ErrorCode::kInvalidModel, "activation '" + activation_ + "' is not known");
  }

  /// One step of one sequence; `hidden` and `cell` follow.
  void step(const float* x, Vector& hidden, Vector& cell) {
    Vector forget = gate(kForget, x, hidden, &cell), input, update = gate(kUpdate, x, hidden, nullptr);
    if (c_.has(kWeights)) input = gate(kInput, x, hidden, &cell);
    for (size_t u = 0; u < units_; ++u) {
      const float open = c_.has(kWeights) ? input[u] : 1.0F - forget[u];
      cell[u] = forget[u] * cell[u] + open * update[u];
      if (cell_clip_ > 0) cell[u] = std::clamp(cell[u], -cell_clip_, cell_clip_);
    }
    Vector out = gate(kOutput, x, hidden, &cell);
    for (size_t u = 0; u < units_; ++u) out[u] *= activate(cell[u]);
    hidden = c_.has(kProjection) ? project(out) : out;
  }

 private:
  static bool is_known(const std::string& name) {
    return name == "Tanh" || name == "Relu" || name == "Relu6" || name == "Sigmoid" || name == "Identity" ||
           name == "ReluN1To1";
  }
  static float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
  float activate(float x) const {
    if (activation_ == "Tanh") return std::tanh(x);
    if (activation_ == "Sigmoid") return sigmoid(x);
    if (activation_ == "Relu") return std::max(x, 0.0F);
    if (activation_ == "Relu6") return std::clamp(x, 0.0F, 6.0F);
    return activation_ == "Identity" ? x : std::clamp(x, -1.0F, 1.0F);
  }
  const float* operand(size_t i) const { return elements<float>(c_.input(i)); }

  /// sums[r] += matrix [rows, columns] row r times v.
  static void accumulate(const Tensor& matrix, const float* v, Vector& sums) {
    const auto columns = static_cast<size_t>(matrix.shape()[1]);
    const float* m = elements<float>(matrix);
    for (float& sum : sums) {
      float dot = 0;
      for (size_t k = 0; k < columns; ++k) dot += m[k] * v[k];
      sum += dot;
      m += columns;
    }
  }

  Vector gate(size_t which, const float* x, const Vector& hidden, const Vector* cell) {
    const bool normalised = c_.has(kNorm + which);
    const float* bias = operand(kGateBias + which);
    Vector sums(units_, 0.0F);
    if (!normalised) sums.assign(bias, bias + units_);
    accumulate(c_.input(kWeights + which), x, sums);
    accumulate(c_.input(kRecurrent + which), hidden.data(), sums);
    const size_t peephole = kPeephole + (which == kOutput ? 2 : which);
    if (cell != nullptr && c_.has(peephole))
      for (size_t u = 0; u < units_; ++u) sums[u] += operand(peephole)[u] * (*cell)[u];
    if (normalised) normalise(which, sums);
    for (float& sum : sums) sum = which == kUpdate ? activate(sum) : sigmoid(sum);
    return sums;
  }

  void normalise(size_t which, Vector& sums) {
    const auto count = static_cast<float>(sums.size());
    float sum = 0, squares = 0;
    for (const float v : sums) sum += v;
    const float mean = sum / count;
    for (const float v : sums) squares += (v - mean) * (v - mean);
    const float factor = 1.0F / std::sqrt(squares / count + 1e-8F);
    for (size_t u = 0; u < units_; ++u)
      sums[u] = (sums[u] - mean) * factor * operand(kNorm + which)[u] + operand(kGateBias + which)[u];
  }

  Vector project(const Vector& out) {
    Vector result(static_cast<size_t>(c_.input(kProjection).shape()[0]), 0.0F);
    if (c_.has(kProjectionBias)) result.assign(operand(kProjectionBias), operand(kProjectionBias) + result.size());
    accumulate(c_.input(kProjection), out.data(), result);
    if (projection_clip_ > 0)
      for (float& v : result) v = std::clamp(v, -projection_clip_, projection_clip_);
    return result;
  }

  EvalContext& c_;
  std::string activation_;
  float cell_clip_, projection_clip_;
  size_t units_;
};

void evaluate_lstm(EvalContext& c, const std::vector<TypeInfo>& types) {
  Tensor out(DType::kFloat, types[0].shape), last_hidden(DType::kFloat, c.input(kHidden).shape()),
      last_cell(DType::kFloat, c.input(kCell).shape());
  const Shape& shape = c.input(kX).shape();
  const int64_t steps = shape[0], batch = shape[1], inputs = shape[2], outputs = out.shape()[2],
                units = c.input(kCell).shape()[1];
  if (c.input(kHidden).shape()[0] != batch || c.input(kCell).shape()[0] != batch)
    c.node.fail(ErrorCode::kInvalidModel, "the states must have the batch of x");
  const bool reverse = c.node.get_int("reverse", 0) != 0;
  Cell lstm(c);
  for (int64_t b = 0; b < batch; ++b) {
    const auto state = [&](size_t i, int64_t width) {
      const float* first = elements<float>(c.input(i)) + b * width;
      return Vector(first, first + width);
    };
    Vector hidden = state(kHidden, outputs), cell = state(kCell, units);
    for (int64_t t = 0; t < steps; ++t) {
      const int64_t at = (reverse ? steps - 1 - t : t) * batch + b;
      lstm.step(elements<float>(c.input(kX)) + at * inputs, hidden, cell);
      std::copy(hidden.begin(), hidden.end(), mutable_elements<float>(out) + at * outputs);
    }
    std::copy(hidden.begin(), hidden.end(), mutable_elements<float>(last_hidden) + b * outputs);
    std::copy(cell.begin(), cell.end(), mutable_elements<float>(last_cell) + b * units);
  }
  c.outputs[0] = std::move(out);
  if (c.outputs.size() > 1) c.outputs[1] = std::move(last_hidden);
  if (c.outputs.size() > 2) c.outputs[2] = std::move(last_cell);
}

}  // namespace

void register_litert_cell(Registry& r) {
  add(r, "Lstm", 1, {20, 24}, infer_lstm, evaluate_lstm, {"activation", "cell_clip", "projection_clip", "reverse"},
      {1, 3}, kLitert);
}

}  // namespace tessera::ops
