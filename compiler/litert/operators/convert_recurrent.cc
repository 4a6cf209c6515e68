// SPDX-License-Identifier: Apache-2.0
// Recurrent cells. A state begins with zeros and goes on in the next run (states.h). A plain LSTM or RNN becomes
// ONNX's, whose products `tessera quantize` puts on the NPU; other LSTMs are an operator of domain litert.
#include <algorithm>

#include "compiler/litert/build.h"

namespace tessera::litert {
namespace {

using ops::DType;

/// The name of an activation in ONNX. What ONNX lacks has a name for operators of domain litert.
std::string activation_name(Op& op, int activation) {
  switch (activation) {
    case 0: return "Identity";
    case 1: return "Relu";
    case 2: return "ReluN1To1";
    case 3: return "Relu6";
    case 4: return "Tanh";
    default: op.refuse("the activation " + std::to_string(activation) + " is not supported");
  }
}

/// One direction of a cell: its operands from `first` on in the order of UNIDIRECTIONAL_SEQUENCE_LSTM, the states, and
/// what the options say.
struct LstmDirection {
  size_t weights, hidden, cell, norms;  // first operand of each group; norms 0: none
  std::string activation;
  float cell_clip, projection_clip;
  bool reverse;
};

bool is_plain(Op& op, const LstmDirection& d) {
  if (!op.has(d.weights) || op.has(d.weights + 15) || d.activation != "Tanh" || d.cell_clip > 0) return false;
  for (size_t gate = 0; d.norms != 0 && gate < 4; ++gate)
    if (op.has(d.norms + gate)) return false;
  const bool peepholes = op.has(d.weights + 8);
  return peepholes == op.has(d.weights + 9) && peepholes == op.has(d.weights + 10);
}

/// The gates of ONNX are in the order input, output, forget, cell.
Value joined(Op& op, size_t first) {
  return unsqueeze(op, concat(op, {op.real(first), op.real(first + 3), op.real(first + 1), op.real(first + 2)}, 0),
                   {0});
}

/// x [steps, batch, inputs] to [steps, batch, outputs].
Value plain_lstm(Op& op, const Value& x, const LstmDirection& d) {
  const int64_t units = last_extent(op, d.cell);
  Values operands = {x, joined(op, d.weights), joined(op, d.weights + 4)};
  const Value zeros = op.constant(ops::Tensor(DType::kFloat, {1, 4 * units}));
  operands.push_back(concat(op, {joined(op, d.weights + 11), zeros}, 1));
  operands.insert(operands.end(), {"", unsqueeze(op, op.real(d.hidden), {0}), unsqueeze(op, op.real(d.cell), {0})});
  if (op.has(d.weights + 8))  // input, output, forget
    operands.push_back(
        unsqueeze(op, concat(op, {op.real(d.weights + 8), op.real(d.weights + 10), op.real(d.weights + 9)}, 0), {0}));
  const Attributes attributes = {{"hidden_size", units}, {"direction", std::string(d.reverse ? "reverse" : "forward")}};
  const Values results = op.nodes("LSTM", operands, attributes, 3);
  op.set_state(d.hidden, squeeze(op, results[1], {0}));
  op.set_state(d.cell, squeeze(op, results[2], {0}));
  return squeeze(op, results[0], {1});
}

Value lstm(Op& op, const Value& x, const LstmDirection& d) {
  if (is_plain(op, d)) return plain_lstm(op, x, d);
  Values operands = {x};
  const auto add = [&](size_t i) { operands.push_back(op.has(i) ? op.real(i) : Value()); };
  for (size_t i = 0; i < 17; ++i) add(d.weights + i);
  add(d.hidden);
  add(d.cell);
  for (size_t gate = 0; d.norms != 0 && gate < 4; ++gate) add(d.norms + gate);
  const Values results = op.nodes("Lstm", operands,
                                  {{"activation", d.activation},
                                   {"cell_clip", d.cell_clip},
                                   {"projection_clip", d.projection_clip},
                                   {"reverse", int64_t{d.reverse}}},
                                  3, kDomain);
  op.set_state(d.hidden, results[1]);
  op.set_state(d.cell, results[2]);
  return results[0];
}

void require_real(Op& op) {
  if (op.input(0).is_quantised())
    op.refuse("integer cells are not supported; convert the model with float activations");
}

/// Steps first, and back.
Value swapped(Op& op, const Value& value, bool time_major) {
  return time_major ? value : op.transpose(value, {1, 0, 2});
}

template <typename Options>
LstmDirection forward_direction(Op& op) {
  return {1,
          18,
          19,
          op.input_count() > 20 ? size_t{20} : size_t{0},
          activation_name(op, op.option(Options::fused_activation_function)),
          op.option(Options::cell_clip),
          op.option(Options::proj_clip),
          false};
}

void convert_sequence_lstm(Op& op) {
  using O = UnidirectionalSequenceLSTMOptions;
  require_real(op);
  if (op.option(O::diagonal_recurrent_tensors)) op.refuse("diagonal recurrent weights are not supported");
  const bool major = op.option(O::time_major);
  op.give_real(0, swapped(op, lstm(op, swapped(op, op.real(0), major), forward_direction<O>(op)), major));
}

/// One step: the results of the basic kernel (five operands) are its state, too.
void convert_lstm(Op& op) {
  using O = LSTMOptions;
  require_real(op);
  if (op.option(O::kernel_type) != 0) op.refuse("the basic kernel is not supported; convert the model anew");
  const Value y = lstm(op, unsqueeze(op, op.real(0), {0}), forward_direction<O>(op));
  op.give_real(0, squeeze(op, y, {0}));
}

void give_directions(Op& op, const Values& results, bool merged, bool major) {
  if (merged) return op.give_real(0, swapped(op, concat(op, results, 2), major));
  for (size_t i = 0; i < 2; ++i) op.give_real(i, swapped(op, results[i], major));
}

void require_no_auxiliary(Op& op, size_t first) {
  for (size_t i = first; i < op.input_count(); ++i)
    if (op.has(i)) op.refuse("an auxiliary input is not supported");
}

void convert_bidirectional_lstm(Op& op) {
  using O = BidirectionalSequenceLSTMOptions;
  require_real(op);
  require_no_auxiliary(op, 39);
  const bool major = op.option(O::time_major);
  const Value x = swapped(op, op.real(0), major);
  LstmDirection d{1,
                  35,
                  36,
                  0,
                  activation_name(op, op.option(O::fused_activation_function)),
                  op.option(O::cell_clip),
                  op.option(O::proj_clip),
                  false};
  Values results = {lstm(op, x, d)};
  d.weights = 18, d.hidden = 37, d.cell = 38, d.reverse = true;
  results.push_back(lstm(op, x, d));
  give_directions(op, results, op.option(O::merge_outputs), major);
}

// ----------------------------------------------------------------------------------------------------- RNN

/// x [steps, batch, inputs] by weights, recurrent weights, bias and state, operands from `first` on.
Value rnn(Op& op, const Value& x, size_t first, const std::string& activation, bool reverse) {
  const int64_t units = last_extent(op, first + 2);
  const Value zeros = op.constant(ops::Tensor(DType::kFloat, {units}));
  const Value bias = unsqueeze(op, concat(op, {op.real(first + 2), zeros}, 0), {0});
  // ONNX has a line with slope 1 for no activation.
  const bool line = activation == "Identity";
  Attributes attributes = {{"hidden_size", units},
                           {"direction", std::string(reverse ? "reverse" : "forward")},
                           {"activations", std::vector<std::string>{line ? "Affine" : activation}}};
  if (line) attributes["activation_alpha"] = std::vector<float>{1.0F};
  if (line) attributes["activation_beta"] = std::vector<float>{0.0F};
  if (activation == "Relu6" || activation == "ReluN1To1") op.refuse("this activation of a cell is not supported");
  const Values results = op.nodes("RNN",
                                  {x, unsqueeze(op, op.real(first), {0}), unsqueeze(op, op.real(first + 1), {0}), bias,
                                   "", unsqueeze(op, op.real(first + 3), {0})},
                                  attributes, 2);
  op.set_state(first + 3, squeeze(op, results[1], {0}));
  return squeeze(op, results[0], {1});
}

void convert_rnn(Op& op) {
  require_real(op);
  const std::string activation = activation_name(op, op.option(RNNOptions::fused_activation_function));
  op.give_real(0, squeeze(op, rnn(op, unsqueeze(op, op.real(0), {0}), 1, activation, false), {0}));
}

void convert_sequence_rnn(Op& op) {
  using O = SequenceRNNOptions;
  require_real(op);
  const bool major = op.option(O::time_major);
  const std::string activation = activation_name(op, op.option(O::fused_activation_function));
  op.give_real(0, swapped(op, rnn(op, swapped(op, op.real(0), major), 1, activation, false), major));
}

void convert_bidirectional_rnn(Op& op) {
  using O = BidirectionalSequenceRNNOptions;
  require_real(op);
  require_no_auxiliary(op, 9);
  const bool major = op.option(O::time_major);
  const std::string activation = activation_name(op, op.option(O::fused_activation_function));
  const Value x = swapped(op, op.real(0), major);
  give_directions(op, {rnn(op, x, 1, activation, false), rnn(op, x, 5, activation, true)}, op.option(O::merge_outputs),
                  major);
}

/// The state [batch, filters * memory] moves by one step and takes the features of x; each unit sums its filters over
/// the memory.
void convert_svdf(Op& op) {
  using O = SVDFOptions;
  require_real(op);
  const ops::Shape &time = fixed_shape(op, 2), &state = fixed_shape(op, 4);
  const int64_t rank = op.option(O::rank);
  if (time.size() != 2 || state.size() != 2 || rank < 1 || time[0] % rank != 0 ||
      state[1] != product_of(op, time[0], time[1]))
    op.refuse("rank, weights and state do not fit", ErrorCode::kInvalidModel);
  const int64_t filters = time[0], memory = time[1], batch = state[0];
  const Value features = op.node("MatMul", {op.real(0), op.transpose(op.real(1), {1, 0})});
  const Value before = op.reshape(op.real(4), {batch, filters, memory});
  const Value now = concat(op, {slice(op, before, 1, INT64_MAX, 2), unsqueeze(op, features, {2})}, 2);
  op.set_state(4, op.reshape(now, state));
  const Attributes drop = {{"keepdims", int64_t{0}}};
  const Value sums = op.node("ReduceSum", {op.node("Mul", {now, op.real(2)}), op.ints({2})}, drop);
  Value y = op.node("ReduceSum", {op.reshape(sums, {batch, filters / rank, rank}), op.ints({2})}, drop);
  if (op.has(3)) y = op.node("Add", {y, op.real(3)});
  op.give_real(0, op.activate(y, static_cast<Activation>(op.option(O::fused_activation_function))));
}

}  // namespace

void register_recurrent(Conversions& conversions) {
  using B = BuiltinOperator;
  conversions.add(B::kLstm, convert_lstm);
  conversions.add(B::kUnidirectionalSequenceLstm, convert_sequence_lstm);
  conversions.add(B::kBidirectionalSequenceLstm, convert_bidirectional_lstm);
  conversions.add(B::kRnn, convert_rnn);
  conversions.add(B::kUnidirectionalSequenceRnn, convert_sequence_rnn);
  conversions.add(B::kBidirectionalSequenceRnn, convert_bidirectional_rnn);
  conversions.add(B::kSvdf, convert_svdf);
}

}  // namespace tessera::litert
