// SPDX-License-Identifier: Apache-2.0
// The table of operators.
#include "compiler/partition/operator_class.h"

#include <algorithm>
#include <string_view>

namespace tessera::partition {
namespace {

struct Entry {
  std::string_view type;
  OperatorClass is;
  unsigned weights = 1;        // operand of the weights
  bool may_transpose = false;  // has transA
};
constexpr Entry kOperators[] = {
    {"Conv", OperatorClass::kConvolution},
    {"ConvInteger", OperatorClass::kConvolution},
    {"FusedConv", OperatorClass::kConvolution},
    {"NhwcConv", OperatorClass::kConvolution},
    {"NhwcFusedConv", OperatorClass::kConvolution},
    {"QLinearConv", OperatorClass::kConvolution, 3},
    {"DeformConv", OperatorClass::kConvolution},
    {"ConvTranspose", OperatorClass::kTransposedConvolution},
    {"ConvTransposeInteger", OperatorClass::kTransposedConvolution},
    {"ConvTransposeWithDynamicPads", OperatorClass::kTransposedConvolution},
    {"AveragePool", OperatorClass::kPool},
    {"GlobalAveragePool", OperatorClass::kPool},
    {"GlobalLpPool", OperatorClass::kPool},
    {"GlobalMaxPool", OperatorClass::kPool},
    {"LpPool", OperatorClass::kPool},
    {"MaxPool", OperatorClass::kPool},
    {"MaxRoiPool", OperatorClass::kPool},
    {"NhwcMaxPool", OperatorClass::kPool},
    {"QLinearAveragePool", OperatorClass::kPool},
    {"QLinearGlobalAveragePool", OperatorClass::kPool},
    {"DynamicQuantizeMatMul", OperatorClass::kMatrixProduct},
    {"FusedGemm", OperatorClass::kMatrixProduct},
    {"FusedMatMul", OperatorClass::kMatrixProduct},
    {"FusedMatMulActivation", OperatorClass::kMatrixProduct},
    {"Gemm", OperatorClass::kMatrixProduct, 1, true},
    {"MatMul", OperatorClass::kMatrixProduct},
    {"MatMulInteger", OperatorClass::kMatrixProduct},
    {"MatMulInteger16", OperatorClass::kMatrixProduct},
    {"MatMulIntegerToFloat", OperatorClass::kMatrixProduct},
    {"QGemm", OperatorClass::kMatrixProduct, 1, true},
    {"QLinearMatMul", OperatorClass::kMatrixProduct},
    {"TransposeMatMul", OperatorClass::kMatrixProduct},
    {"DynamicQuantizeLSTM", OperatorClass::kRecurrentCell},
    {"GRU", OperatorClass::kRecurrentCell},
    {"LSTM", OperatorClass::kRecurrentCell},
    {"RNN", OperatorClass::kRecurrentCell},
};

const Entry* find(nn::NodeOp op) {
  const std::string type = op.getOpType().str();
  const auto* const found =
      std::find_if(std::begin(kOperators), std::end(kOperators), [&](const Entry& e) { return e.type == type; });
  return found == std::end(kOperators) ? nullptr : found;
}

int64_t elements(mlir::Value value) {
  const auto shape = value ? nn::shape_of(value) : std::nullopt;
  if (!shape || std::any_of(shape->begin(), shape->end(), [](int64_t d) { return d < 0; })) return 0;
  return ops::element_count(*shape);
}

/// Products for each element of the side that the weights' first axis counts.
int64_t products_each(mlir::Value weights) {
  const auto shape = weights ? nn::shape_of(weights) : std::nullopt;
  if (!shape || shape->empty() || (*shape)[0] <= 0) return 0;
  return elements(weights) / (*shape)[0];
}

}  // namespace

const OperatorNames& operator_names() {
  static const OperatorNames names = [] {
    OperatorNames all;
    for (const char* type : {"Conv", "ConvTranspose", "Gemm", "MatMul", "Einsum"}) all.products.insert(type);
    all.elementwise = {"Abs",
                       "Acos",
                       "Acosh",
                       "Add",
                       "Asin",
                       "Asinh",
                       "Atan",
                       "Atanh",
                       "Cast",
                       "Ceil",
                       "Celu",
                       "Clip",
                       "Cos",
                       "Cosh",
                       "DequantizeLinear",
                       "Div",
                       "Elu",
                       "Erf",
                       "Exp",
                       "Floor",
                       "Gelu",
                       "HardSigmoid",
                       "HardSwish",
                       "Identity",
                       "LeakyRelu",
                       "Log",
                       "Max",
                       "Min",
                       "Mish",
                       "Mul",
                       "Neg",
                       "PRelu",
                       "Pow",
                       "QuantizeLinear",
                       "Reciprocal",
                       "Relu",
                       "Round",
                       "Selu",
                       "Sigmoid",
                       "Sign",
                       "Sin",
                       "Sinh",
                       "Softplus",
                       "Softsign",
                       "Sqrt",
                       "Sub",
                       "Swish",
                       "Tan",
                       "Tanh",
                       "ThresholdedRelu"};
    all.movements = {"DepthToSpace", "Expand",    "Flatten",   "Gather",       "Identity", "Pad",
                     "Reshape",      "Resize",    "Slice",     "SpaceToDepth", "Split",    "Squeeze",
                     "Tile",         "Transpose", "Unsqueeze", "Upsample"};
    return all;
  }();
  return names;
}

OperatorClass operator_class(nn::NodeOp op) {
  const Entry* entry = find(op);
  return entry == nullptr ? OperatorClass::kOther : entry->is;
}

int64_t model_macs(nn::NodeOp op) {
  const Entry* entry = find(op);
  if (entry == nullptr) return 0;
  switch (entry->is) {
    case OperatorClass::kConvolution:
      return elements(op.getResult(0)) * products_each(nn::input_or_null(op, entry->weights));
    case OperatorClass::kTransposedConvolution:
      return elements(op.getInputs()[0]) * products_each(nn::input_or_null(op, entry->weights));
    case OperatorClass::kMatrixProduct: {
      const auto a = nn::shape_of(op.getInputs()[0]);
      if (!a || a->empty()) return 0;
      const bool transposed = entry->may_transpose && nn::to_node(op).get_int("transA", 0) != 0;
      const int64_t k = transposed ? (*a)[0] : a->back();
      return k < 0 ? 0 : elements(op.getResult(0)) * k;
    }
    case OperatorClass::kRecurrentCell: {  // each step of each sequence: all weights of inputs and hidden state
      const auto x = nn::shape_of(op.getInputs()[0]);
      if (!x || x->size() != 3 || (*x)[0] < 0 || (*x)[1] < 0) return 0;
      return (*x)[0] * (*x)[1] * (elements(op.getInputs()[1]) + elements(op.getInputs()[2]));
    }
    case OperatorClass::kPool:
    case OperatorClass::kOther: return 0;
  }
  return 0;
}

int64_t trips_of(nn::NodeOp op) {
  int64_t trips = -1;
  if (op.is("Scan")) {  // of version 9 and later: the inputs behind the states
    const auto inputs = op.getInputs();
    const int64_t scanned = nn::to_node(op).get_int("num_scan_inputs", 0);
    const std::vector<int64_t> axes = nn::to_node(op).get_ints("scan_input_axes");
    if (scanned < 1 || scanned > static_cast<int64_t>(inputs.size())) return 1;
    const auto shape = nn::shape_of(inputs[inputs.size() - static_cast<size_t>(scanned)]);
    if (!shape || shape->empty()) return 1;
    const auto rank = static_cast<int64_t>(shape->size());
    const int64_t axis = axes.empty() ? 0 : (axes[0] + rank) % rank;
    trips = (*shape)[static_cast<size_t>(axis)];
  } else if (op.is("Loop")) {
    const auto count = nn::constant_value(op.getInputs()[0]);
    if (count && count->size() == 1 && count->dtype() == ops::DType::kInt64) trips = count->to_int64s()[0];
  }
  return trips < 0 ? 1 : trips;
}

}  // namespace tessera::partition
