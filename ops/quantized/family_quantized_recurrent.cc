// SPDX-License-Identifier: Apache-2.0
// DynamicQuantizeLSTM: an LSTM with 8-bit weights. X is quantised once, over the steps of the longest sequence; h is
// quantised anew in each step, over all sequences of the batch. Gates are fp32. docs/numerics.md states the formulas;
// with sigmoid, tanh and relu as activations the results are those of ONNX Runtime on one thread, to the bit.
#include "ops/kernels/recurrent.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {

namespace {

using namespace kernel;
using namespace recurrent;

constexpr int64_t kLstmGates = 4;
/// Operands beyond those of LSTM.
constexpr size_t kWScale = 8, kWZero = 9, kRScale = 10, kRZero = 11;
constexpr const char* kParameters[] = {"W_scale", "W_zero_point", "R_scale", "R_zero_point"};

void infer_dynamic_lstm(InferContext& c) {
  infer(c, Cell::kLstm, Weights::kTransposedBytes);
  require_type(c.node, c.input(0).dtype, set_of({DType::kFloat}), "X");
  require_same_type(c.node, c.input(1), c.input(2));
  for (const size_t i : {kWScale, kWZero, kRScale, kRZero}) {
    const char* name = kParameters[i - kWScale];
    const TypeInfo& t = c.input(i);
    if (i == kWZero || i == kRZero)
      require_same_type(c.node, c.input(1), t);
    else
      require_type(c.node, t.dtype, set_of({DType::kFloat}), name);
    const TypeInfo& weights = c.input(i < kRScale ? 1 : 2);
    if (!t.ranked || !weights.ranked) continue;
    const auto fits = [](int64_t a, int64_t b) { return a < 0 || b < 0 || a == b; };
    const Shape& shape = t.shape;
    if (shape.empty() || shape.size() > 2 || !fits(shape[0], weights.shape[0]) ||
        (shape.size() == 2 && !fits(shape[1], weights.shape[2])))
      c.node.fail(ErrorCode::kInvalidModel, std::string(name) + " has shape " + to_string(shape) +
                                                "; one value for each direction, or one for each column of " +
                                                to_string(weights.shape) + " is possible");
  }
}

/// Weights of one direction, less their zero point, and the scale of each column.
struct Matrix {
  int64_t rows, columns;
  std::vector<int32_t> values;  // [rows, columns]
  std::vector<float> scales;    // [columns]
};

/// Direction d of operand `index` with its scale at `scale` and its zero point behind it.
Matrix matrix_of(const EvalContext& c, size_t index, size_t scale, int64_t d) {
  const Tensor& weights = c.input(index);
  const int64_t rows = weights.shape()[1], columns = weights.shape()[2];
  Matrix matrix{rows, columns, {}, {}};
  const auto position = [&](const Tensor& t, int64_t column) {
    return static_cast<size_t>(t.rank() == 2 ? d * columns + column : d);
  };
  const auto scales = c.input(scale).as<float>();
  const std::vector<int32_t> zeros = quantized::to_int32s(c.input(scale + 1)), all = quantized::to_int32s(weights);
  for (int64_t n = 0; n < columns; ++n) matrix.scales.push_back(scales[position(c.input(scale), n)]);
  matrix.values.assign(all.begin() + d * rows * columns, all.begin() + (d + 1) * rows * columns);
  for (int64_t i = 0; i < rows * columns; ++i)
    matrix.values[static_cast<size_t>(i)] -= zeros[position(c.input(scale + 1), i % columns)];
  return matrix;
}

/// y [count, columns] += or = the product of x [count, rows], quantised as a whole, and a matrix. Sums are int32 and
/// wrap; factor, product and sum are rounded one by one.
void add_product(size_t count, std::span<const float> x, const Matrix& m, bool adds, float* y) {
  const quantized::DynamicParameters p = quantized::dynamic_parameters(x);
  std::vector<uint32_t> sums(static_cast<size_t>(m.columns));
  std::vector<float> factors(m.scales);
  for (float& factor : factors) factor = p.scale * factor;
  for (size_t r = 0; r < count; ++r) {
    std::fill(sums.begin(), sums.end(), 0u);
    for (size_t k = 0; k < static_cast<size_t>(m.rows); ++k) {
      const auto value = static_cast<uint32_t>(
          quantized::quantize(x[r * static_cast<size_t>(m.rows) + k], p.scale, p.zero, {0, 255}) - p.zero);
      if (value == 0) continue;
      const int32_t* row = m.values.data() + k * sums.size();
      for (size_t n = 0; n < sums.size(); ++n) sums[n] += value * static_cast<uint32_t>(row[n]);
    }
    float* out = y + r * sums.size();
    for (size_t n = 0; n < sums.size(); ++n) {
      const float value = static_cast<float>(static_cast<int32_t>(sums[n])) * factors[n];
      out[n] = adds ? out[n] + value : value;
    }
  }
}

float activate(const Activation& f, float x) {
  if (f.name == "sigmoid") return quantized::logistic(x);
  if (f.name == "tanh") return quantized::hyperbolic_tangent(x);
  return apply(f, x);
}

/// The gates of one sequence behind their products.
struct Gates {
  int64_t hidden;
  const float *bias, *peephole;  // [8 * hidden] and [3 * hidden], or nothing
  const Activation* f;           // three
  bool couples;
  float clip;

  /// Gates in the order i, o, f, c become the next cell state and h. Peepholes come in the order i, o, f.
  void step(const float* gates, float* cell, float* h) const {
    const auto gate = [&](int64_t which, int64_t i) {
      float value = gates[which * hidden + i];
      if (peephole != nullptr && which < 3) value += cell[i] * peephole[which * hidden + i];
      if (bias != nullptr) value += bias[which * hidden + i] + bias[(kLstmGates + which) * hidden + i];
      value = std::max(-clip, std::min(clip, value));
      return activate(f[which == 3 ? 1 : 0], value);
    };
    for (int64_t i = 0; i < hidden; ++i) {
      const float in = gate(0, i), forget = couples ? 1.0f - in : gate(2, i), candidate = gate(3, i);
      cell[i] = cell[i] * forget + in * candidate;
      const float out = gate(1, i);
      h[i] = activate(f[2], cell[i]) * out;
    }
  }
};

float clip_of(const Node& node) { return node.get_float("clip", std::numeric_limits<float>::max()); }

class DynamicLstm {
 public:
  explicit DynamicLstm(EvalContext& c)
      : c_(c),
        plan_(plan_of(c.node, Cell::kLstm)),
        x_(c.input(0)),
        steps_(x_.shape()[0]),
        batch_(x_.shape()[1]),
        input_(x_.shape()[2]),
        hidden_(c.input(2).shape()[1]),
        lengths_(lengths_of(c, batch_, steps_)),
        longest_(lengths_.empty() ? 0 : *std::max_element(lengths_.begin(), lengths_.end())),
        y_(DType::kFloat, {steps_, plan_.directions, batch_, hidden_}),
        y_h_(DType::kFloat, {plan_.directions, batch_, hidden_}),
        y_c_(DType::kFloat, {plan_.directions, batch_, hidden_}) {}

  void run() {
    for (int64_t d = 0; d < plan_.directions; ++d) run_direction(d);
    Tensor* results[] = {&y_, &y_h_, &y_c_};
    for (size_t i = 0; i < c_.outputs.size(); ++i) c_.outputs[i] = std::move(*results[i]);
  }

 private:
  /// Position of step t of sequence n in the order of the input.
  int64_t step_of(int64_t t, int64_t n, int64_t d) const {
    const int64_t length = lengths_[static_cast<size_t>(n)];
    return (plan_.reverse || d == 1) && t < length ? length - 1 - t : t;
  }

  /// The state at operand i of direction d, or zeros: [batch, hidden].
  std::vector<float> state(size_t i, int64_t d) const {
    const int64_t size = batch_ * hidden_;
    if (!c_.has(i)) return std::vector<float>(static_cast<size_t>(size), 0.0f);
    const float* from = elements<float>(c_.input(i)) + d * size;
    return {from, from + size};
  }

  /// Vectors of [count, hidden] at operand i of direction d, or nothing.
  const float* vectors(size_t i, int64_t d, int64_t count) const {
    return c_.has(i) ? elements<float>(c_.input(i)) + d * count * hidden_ : nullptr;
  }

  void run_direction(int64_t d) {
    const int64_t width = kLstmGates * hidden_;
    const auto sequences = static_cast<size_t>(batch_);
    Tensor ordered(DType::kFloat, {longest_, batch_, input_}), products(DType::kFloat, {longest_, batch_, width});
    for (int64_t t = 0; t < longest_; ++t)
      for (int64_t n = 0; n < batch_; ++n)
        std::copy_n(elements<float>(x_) + (step_of(t, n, d) * batch_ + n) * input_, input_,
                    mutable_elements<float>(ordered) + (t * batch_ + n) * input_);
    float* gates = mutable_elements<float>(products);
    add_product(static_cast<size_t>(longest_) * sequences, ordered.as<float>(), matrix_of(c_, 1, kWScale, d), false,
                gates);
    const Matrix recurrent = matrix_of(c_, 2, kRScale, d);
    std::vector<float> h = state(5, d), cell = state(6, d);
    for (int64_t t = 0; t < longest_; ++t) {
      float* now = gates + t * batch_ * width;
      add_product(sequences, h, recurrent, true, now);
      for (int64_t n = 0; n < batch_; ++n) {
        float* row = h.data() + n * hidden_;
        const int64_t length = lengths_[static_cast<size_t>(n)];
        if (t >= length) {  // it has ended: zeros enter the range of the others' next step
          std::fill_n(row, hidden_, 0.0f);
          continue;
        }
        step(d, now + n * width, cell.data() + n * hidden_, row);
        std::copy_n(row, hidden_,
                    mutable_elements<float>(y_) + ((step_of(t, n, d) * plan_.directions + d) * batch_ + n) * hidden_);
        if (t + 1 < length) continue;
        std::copy_n(row, hidden_, mutable_elements<float>(y_h_) + (d * batch_ + n) * hidden_);
        std::copy_n(cell.data() + n * hidden_, hidden_, mutable_elements<float>(y_c_) + (d * batch_ + n) * hidden_);
      }
    }
  }

  void step(int64_t d, const float* gates, float* cell, float* h) const {
    Gates{hidden_,
          vectors(3, d, 2 * kLstmGates),
          vectors(7, d, 3),
          plan_.activations.data() + d * 3,
          c_.node.get_int("input_forget", 0) != 0,
          clip_of(c_.node)}
        .step(gates, cell, h);
  }

  EvalContext& c_;
  const Plan plan_;
  const Tensor x_;
  const int64_t steps_, batch_, input_, hidden_;
  const std::vector<int64_t> lengths_;
  const int64_t longest_;
  Tensor y_, y_h_, y_c_;
};

/// LstmGates, of this project: sums of all gates [batch, 4 * hidden], the cell state [batch, hidden], biases and
/// peepholes of one direction -> h, cell state.
void infer_gates(InferContext& c) {
  const TypeInfo &sums = c.input(0), &cell = c.input(1);
  for (size_t i = 0; i < c.inputs.size(); ++i)
    if (c.has(i)) require_type(c.node, c.input(i).dtype, set_of({DType::kFloat}), "an operand");
  require_rank(c.node, sums, 2, "the sums");
  require_rank(c.node, cell, 2, "the cell state");
  plan_of(c.node, Cell::kLstm);
  const auto known = [](const TypeInfo& t) {
    return t.ranked && std::all_of(t.shape.begin(), t.shape.end(), [](int64_t d) { return d >= 0; });
  };
  if (known(cell)) {
    const int64_t hidden = cell.shape[1];
    const auto holds = [&](size_t i, int64_t rows, int64_t of_each) {
      if (!c.has(i) || !known(c.input(i)) || element_count(c.input(i).shape) == rows * of_each * hidden) return;
      c.node.fail(ErrorCode::kInvalidModel, "operand " + std::to_string(i) + " has shape " +
                                                to_string(c.input(i).shape) + " beside a cell state of " +
                                                to_string(cell.shape));
    };
    holds(0, cell.shape[0], kLstmGates);
    holds(2, 1, 2 * kLstmGates);
    holds(3, 1, 3);
  }
  for (TypeInfo& output : c.outputs) output = cell;
}

void evaluate_gates(EvalContext& c, const std::vector<TypeInfo>&) {
  const Plan plan = plan_of(c.node, Cell::kLstm);
  const Tensor &sums = c.input(0), &state = c.input(1);
  const int64_t batch = state.shape()[0], hidden = state.shape()[1];
  Tensor h(DType::kFloat, state.shape()), cell(DType::kFloat, state.shape());
  std::copy_n(elements<float>(state), batch * hidden, mutable_elements<float>(cell));
  const auto vector = [&](size_t i) { return c.has(i) ? elements<float>(c.input(i)) : nullptr; };
  const bool couples = c.node.get_int("input_forget", 0) != 0;
  const Gates gates{hidden, vector(2), vector(3), plan.activations.data(), couples, clip_of(c.node)};
  for (int64_t n = 0; n < batch; ++n)
    gates.step(elements<float>(sums) + n * kLstmGates * hidden, mutable_elements<float>(cell) + n * hidden,
               mutable_elements<float>(h) + n * hidden);
  c.outputs[0] = std::move(h);
  c.outputs[1] = std::move(cell);
}

}  // namespace

void register_quantized_recurrent(Registry& registry) {
  add(
      registry, "DynamicQuantizeLSTM", 1, {12, 12}, infer_dynamic_lstm,
      [](EvalContext& c, const std::vector<TypeInfo>&) { DynamicLstm(c).run(); },
      {"clip", "activation_alpha", "activation_beta", "activations", "direction", "hidden_size", "input_forget"},
      {0, 3}, "com.microsoft");
  add(registry, "LstmGates", 1, {2, 4}, infer_gates, evaluate_gates, {"activations", "clip", "input_forget"}, {2, 2},
      "ai.tessera");
}

}  // namespace tessera::ops
