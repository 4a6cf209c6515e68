// SPDX-License-Identifier: Apache-2.0
// Float convolutions and matrix products of dequantised 8-bit tensors that are integer arithmetic in disguise. Enters:
// Conv, MatMul or Gemm in fp32 whose input is DequantizeLinear with a power-of-two scale and whose constant weights are
// small integers times a power of two for each output channel (exporters with power-of-two scales write these). If no
// partial sum can reach 2^24 units, every fp32 operation is exact in every order, so ConvInteger or MatMulInteger, an
// int32 bias and a DequantizeLinear give the same bits. Leaves those. What cannot be proven stays as it is. The same
// for MatMul, Gemm and Einsum of two dequantised run-time tensors, and for ConvTranspose of three dimensions in front
// of a QuantizeLinear, as a convolution of two (the NPU has transposed ones of two as they are).
#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <limits>

#include "compiler/nn/passes/convolution_form.h"
#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

using ops::Tensor;

/// A positive power of two far from the ends of float32.
bool is_ordinary_power_of_two(float value) {
  int exponent = 0;
  return std::isfinite(value) && value > 0 && std::frexp(value, &exponent) == 0.5f && exponent > -100 && exponent < 100;
}

/// Exponent of the lowest set bit: value is an odd multiple of 2^result. 0 has none.
std::optional<int> lowest_bit(float value) {
  if (value == 0) return std::nullopt;
  int exponent = 0;
  auto mantissa = static_cast<uint32_t>(std::fabs(std::frexp(value, &exponent)) * 16777216.0f);  // 24 bits
  return exponent - 24 + std::countr_zero(mantissa);
}

/// An 8-bit tensor behind a DequantizeLinear with one power-of-two scale.
struct Source {
  mlir::Value bytes;
  float scale = 1;
  int64_t zero = 0;
};

std::optional<Source> source_of(mlir::Value value) {
  NodeOp dq = defining_op(value, "DequantizeLinear");
  if (!dq) return std::nullopt;
  Source s;
  s.bytes = dq->getOperand(0);
  const ops::DType dtype = dtype_of(s.bytes);
  if ((dtype != ops::DType::kUint8 && dtype != ops::DType::kInt8) || constant_value(s.bytes)) return std::nullopt;
  auto scale = constant_value(dq->getOperand(1));
  if (!scale || scale->size() != 1 || scale->dtype() != ops::DType::kFloat) return std::nullopt;
  s.scale = scale->to_floats()[0];
  if (!is_ordinary_power_of_two(s.scale)) return std::nullopt;
  if (mlir::Value zero = input_or_null(dq, 2)) {
    auto content = constant_value(zero);
    if (!content || content->size() != 1) return std::nullopt;
    s.zero = content->at_int64(0);
  }
  return s;
}

/// The largest magnitude of a byte minus its zero point.
double largest_of(const Source& s) {
  const bool is_unsigned = dtype_of(s.bytes) == ops::DType::kUint8;
  const double low = is_unsigned ? 0 : -128, high = is_unsigned ? 255 : 127, zero = static_cast<double>(s.zero);
  return std::max(std::fabs(low - zero), std::fabs(high - zero));
}

Tensor zero_tensor(const Source& s) {
  Tensor zero(dtype_of(s.bytes), {});
  *zero.mutable_data() = static_cast<std::byte>(s.zero);
  return zero;
}

constexpr double kExact = 16777216.0;  // integers below are fp32 numbers, and so are their sums

/// Integer weights and bias, and the unit of each output channel's sum.
struct Integers {
  std::vector<int8_t> weights;
  std::vector<int32_t> bias;
  std::vector<float> unit;
};

/// weights: [channels][reduction] by `at(channel, k)`. Nothing when the proof fails.
template <typename At>
std::optional<Integers> prove(const Source& x, int64_t channels, int64_t reduction, const At& at,
                              const std::vector<float>& bias) {
  const double largest = largest_of(x);
  Integers out;
  out.weights.resize(static_cast<size_t>(channels * reduction));
  if (!bias.empty()) out.bias.resize(static_cast<size_t>(channels));
  out.unit.resize(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c) {
    int exponent = std::numeric_limits<int>::max();
    for (int64_t k = 0; k < reduction; ++k) {
      const float w = at(c, k);
      if (!std::isfinite(w)) return std::nullopt;
      if (auto bit = lowest_bit(w)) exponent = std::min(exponent, *bit);
    }
    if (exponent == std::numeric_limits<int>::max()) exponent = 0;  // all weights are 0
    double sum = 0;
    // A bias finer than the weights' unit: a smaller unit may still hold the weights.
    if (!bias.empty()) {
      if (!std::isfinite(bias[static_cast<size_t>(c)])) return std::nullopt;
      if (auto bit = lowest_bit(bias[static_cast<size_t>(c)]))
        exponent = std::min(exponent, *bit - std::ilogb(x.scale));
    }
    if (exponent < -100 || exponent > 100) return std::nullopt;
    for (int64_t k = 0; k < reduction; ++k) {
      const double w = std::ldexp(static_cast<double>(at(c, k)), -exponent);
      if (w < -128 || w > 127) return std::nullopt;
      out.weights[static_cast<size_t>(c * reduction + k)] = static_cast<int8_t>(w);
      sum += std::fabs(w) * largest;
    }
    const double unit = std::ldexp(static_cast<double>(x.scale), exponent);
    if (!bias.empty()) {
      const double b = static_cast<double>(bias[static_cast<size_t>(c)]) / unit;
      sum += std::fabs(b);
      if (sum < kExact) out.bias[static_cast<size_t>(c)] = static_cast<int32_t>(b);
    }
    if (sum >= kExact) return std::nullopt;
    out.unit[static_cast<size_t>(c)] = static_cast<float>(unit);
  }
  return out;
}

/// integer_op(bytes, weights, zero) + bias, dequantised along `axis`, in the place of `op`.
mlir::Value dequantised(NodeOp op, mlir::PatternRewriter& rewriter, const Source& x, llvm::StringRef integer_op,
                        const Tensor& weights, const Integers& n,
                        const std::map<std::string, ops::Attribute>& attributes, int64_t axis,
                        const ops::Shape& bias_shape) {
  const mlir::Location location = op.getLoc();
  const int version = std::max(13, static_cast<int>(op.getVersion()));
  mlir::Value sum = create_op(rewriter, location, integer_op, "", version,
                              {x.bytes, create_constant(rewriter, location, weights),
                               create_constant(rewriter, location, zero_tensor(x))},
                              attributes)
                        ->getResult(0);
  if (!n.bias.empty())
    sum = create_op(
              rewriter, location, "Add", "", version,
              {sum, create_constant(rewriter, location, Tensor::of<int32_t>(ops::DType::kInt32, bias_shape, n.bias))})
              ->getResult(0);
  bool one = true;
  for (float unit : n.unit) one = one && unit == n.unit[0];
  const Tensor scale = one ? Tensor::scalar_f32(n.unit[0])
                           : Tensor::of<float>(ops::DType::kFloat, {static_cast<int64_t>(n.unit.size())}, n.unit);
  std::map<std::string, ops::Attribute> dequantise;
  if (!one) dequantise["axis"] = axis;
  return create_op(rewriter, location, "DequantizeLinear", "", version,
                   {sum, create_constant(rewriter, location, scale)}, dequantise)
      ->getResult(0);
}

/// The bias of a convolution; empty without one, nothing where it is not known.
std::optional<std::vector<float>> convolution_bias(NodeOp op) {
  mlir::Value value = input_or_null(op, 2);
  if (!value) return std::vector<float>();
  const auto content = constant_value(value);
  return content ? std::optional(content->to_floats()) : std::nullopt;
}

bool prove_convolution(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Conv") || op->getNumResults() != 1) return false;
  auto x = source_of(op->getOperand(0));
  auto w = constant_value(op->getOperand(1));
  auto shape = shape_of(op->getResult(0));
  if (!x || !w || !shape || w->dtype() != ops::DType::kFloat || w->rank() < 3 || w->size() == 0) return false;
  const auto bias = convolution_bias(op);
  if (!bias) return false;
  const int64_t channels = w->shape()[0], reduction = w->size() / channels;
  auto data = w->as<float>();
  auto n = prove(
      *x, channels, reduction, [&](int64_t c, int64_t k) { return data[static_cast<size_t>(c * reduction + k)]; },
      *bias);
  if (!n) return false;
  ops::Shape bias_shape(static_cast<size_t>(w->rank()), 1);
  bias_shape[1] = channels;
  rewriter.replaceOp(
      op, dequantised(op, rewriter, *x, "ConvInteger", Tensor::of<int8_t>(ops::DType::kInt8, w->shape(), n->weights),
                      *n, to_attributes(op.getOnnxAttributes()), 1, bias_shape));
  return true;
}

/// QuantizeLinear([Relu] ConvTranspose(DequantizeLinear(bytes))) of three dimensions. What moves the sums into place
/// stands behind the QuantizeLinear: bytes move for nothing.
bool prove_deep_transposed(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("QuantizeLinear")) return false;
  NodeOp relu = defining_op(op->getOperand(0), "Relu");
  NodeOp convolution = defining_op(relu ? relu->getOperand(0) : op->getOperand(0), "ConvTranspose");
  const auto scale = constant_value(op->getOperand(1));
  if (!convolution || !scale || scale->size() != 1) return false;
  auto x = source_of(convolution->getOperand(0));
  const auto w = constant_value(convolution->getOperand(1));
  const auto bias = convolution_bias(convolution);
  if (!x || !is_static(x->bytes) || !w || w->dtype() != ops::DType::kFloat || w->rank() != 5 || !bias) return false;
  const ops::Node node = to_node(convolution);
  const auto form = ConvolutionForm::of(node, *shape_of(x->bytes), w->shape());
  if (!form) return false;
  // Of w[channel of a group of the operand][filter of a group] each a kernel of `taps` weights.
  const int64_t channels = form->channels(), groups = node.get_int("group", 1), filters = channels / groups;
  const int64_t each = w->shape()[0] / groups, taps = w->size() / (w->shape()[0] * filters);
  const auto place = [&](int64_t c, int64_t k) {
    return static_cast<size_t>(((c / filters * each + k / taps) * filters + c % filters) * taps + k % taps);
  };
  const auto data = w->as<float>();
  auto n = prove(*x, channels, each * taps, [&](int64_t c, int64_t k) { return data[place(c, k)]; }, *bias);
  if (!n) return false;
  Tensor weights(ops::DType::kInt8, w->shape());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t k = 0; k < each * taps; ++k)
      weights.as_mutable<int8_t>()[place(c, k)] = n->weights[static_cast<size_t>(c * each * taps + k)];
  n->bias = form->by_result(n->bias);
  n->unit = form->by_result(n->unit);
  Splitter split(op, rewriter);
  x->bytes = form->operand(split, x->bytes, split.constant(zero_tensor(*x)));
  const int64_t phases = static_cast<int64_t>(n->unit.size());
  mlir::Value real = dequantised(convolution, rewriter, *x, "ConvInteger", form->weights(weights, {0}), *n,
                                 form->attributes(), 1, {1, phases, 1, 1});
  if (relu) real = split.one("Relu", 14, {real});
  std::vector<mlir::Value> operands(op->operand_begin(), op->operand_end());
  operands[0] = real;
  const mlir::Value bytes =
      split.one("QuantizeLinear", static_cast<int>(op.getVersion()), operands, to_attributes(op.getOnnxAttributes()));
  const mlir::Value result = form->result(split, bytes);
  result.getDefiningOp()->setLoc(op.getLoc());  // it has the name of the result
  rewriter.replaceOp(op, result);
  return true;
}

/// The bias of a product, one value a channel; empty without one, nothing where it is not known.
std::optional<std::vector<float>> product_bias(NodeOp op, int64_t channels) {
  mlir::Value value = op.is("Gemm") ? input_or_null(op, 2) : mlir::Value();
  if (!value) return std::vector<float>();
  auto content = constant_value(value);
  if (!content || (content->size() != 1 && (content->size() != channels || content->shape().back() != channels)))
    return std::nullopt;
  std::vector<float> bias = content->to_floats();
  bias.resize(static_cast<size_t>(channels), bias.empty() ? 0.0f : bias[0]);
  return bias;
}

bool prove_product(NodeOp op, mlir::PatternRewriter& rewriter) {
  const bool gemm = op.is("Gemm");
  if (!gemm && !op.is("MatMul")) return false;
  auto x = source_of(op->getOperand(0));
  auto w = constant_value(op->getOperand(1));
  auto rank_of = shape_of(op->getOperand(0));
  if (!x || !w || !rank_of || rank_of->empty() || w->dtype() != ops::DType::kFloat || w->rank() != 2 || w->size() == 0)
    return false;
  const ops::Node node = to_node(op);
  bool transposed = false;
  if (gemm) {
    if (node.get_float("alpha", 1) != 1 || node.get_float("beta", 1) != 1 || node.get_int("transA", 0) != 0)
      return false;
    transposed = node.get_int("transB", 0) != 0;
  }
  const int64_t k = w->shape()[transposed ? 1 : 0], channels = w->shape()[transposed ? 0 : 1];
  const auto bias = product_bias(op, channels);
  if (!bias) return false;
  auto data = w->as<float>();
  auto at = [&](int64_t c, int64_t i) { return data[static_cast<size_t>(transposed ? c * k + i : i * channels + c)]; };
  auto n = prove(*x, channels, k, at, *bias);
  if (!n) return false;
  std::vector<int8_t> columns(n->weights.size());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < k; ++i)
      columns[static_cast<size_t>(i * channels + c)] = n->weights[static_cast<size_t>(c * k + i)];
  rewriter.replaceOp(
      op, dequantised(op, rewriter, *x, "MatMulInteger", Tensor::of<int8_t>(ops::DType::kInt8, {k, channels}, columns),
                      *n, {}, static_cast<int64_t>(rank_of->size()) - 1, {channels}));
  return true;
}

/// A product of two operands as one of matrices over a batch: how each is permuted and reshaped to [.., rows, k] and
/// [.., k, columns], and how the product becomes the result. Empty permutations and shapes: as it is.
struct Contraction {
  std::vector<int64_t> order[2], result_order;
  ops::Shape shape[2], result_shape;
  int64_t k = 0;
};

bool ascending(const std::vector<int64_t>& order) { return std::is_sorted(order.begin(), order.end()); }

/// The equation of an Einsum of two operands, in which each operand and the result has each label once.
struct Einsum {
  std::string labels[2], result;
  ops::Shape shapes[2];
  int64_t extent(size_t side, char label) const { return shapes[side][labels[side].find(label)]; }
};

bool has(const std::string& text, char label) { return text.find(label) != std::string::npos; }

std::optional<Einsum> parse_einsum(std::string equation, const ops::Shape& a, const ops::Shape& b) {
  std::erase(equation, ' ');
  const size_t comma = equation.find(','), arrow = equation.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || arrow < comma) return std::nullopt;
  Einsum e{
      {equation.substr(0, comma), equation.substr(comma + 1, arrow - comma - 1)}, equation.substr(arrow + 2), {a, b}};
  const auto distinct = [](std::string text) {
    std::sort(text.begin(), text.end());
    return std::adjacent_find(text.begin(), text.end()) == text.end() &&
           std::all_of(text.begin(), text.end(), [](char c) { return std::isalpha(c) != 0; });
  };
  if (!distinct(e.result) || !distinct(e.labels[0]) || !distinct(e.labels[1]) || e.labels[0].size() != a.size() ||
      e.labels[1].size() != b.size())
    return std::nullopt;
  return e;
}

/// Labels by what they are in a product of matrices: a batch in both operands and the result, rows and columns in one
/// operand and the result, k in both operands alone. In the order of the result, so that it needs no permutation where
/// that is possible; k in the order of the first operand.
struct Roles {
  std::string batch, outer[2], inner;
};

std::optional<Roles> roles_of(const Einsum& e) {
  Roles roles;
  for (const char label : e.result) {
    const bool left = has(e.labels[0], label), right = has(e.labels[1], label);
    if (!left && !right) return std::nullopt;
    (left && right ? roles.batch : left ? roles.outer[0] : roles.outer[1]) += label;
  }
  for (const char label : e.labels[0])
    if (!has(e.result, label)) roles.inner += label;
  for (const char label : roles.batch + roles.inner)
    if (!has(e.labels[1], label) || e.extent(0, label) != e.extent(1, label)) return std::nullopt;
  if (e.labels[1].size() != roles.batch.size() + roles.inner.size() + roles.outer[1].size()) return std::nullopt;
  return roles;
}

std::optional<Contraction> einsum_contraction(const std::string& equation, const ops::Shape& a, const ops::Shape& b) {
  const auto e = parse_einsum(equation, a, b);
  const auto roles = e ? roles_of(*e) : std::nullopt;
  if (!roles) return std::nullopt;
  const auto& [batch, outer, inner] = *roles;
  Contraction c;
  ops::Shape merged;
  for (const char label : batch) merged.push_back(e->extent(0, label));
  int64_t rows[2] = {1, 1};
  for (size_t side = 0; side < 2; ++side)
    for (const char label : outer[side]) rows[side] *= e->extent(side, label);
  c.k = 1;
  for (const char label : inner) c.k *= e->extent(0, label);
  for (size_t side = 0; side < 2; ++side) {
    for (const char label : batch + (side == 0 ? outer[0] + inner : inner + outer[1]))
      c.order[side].push_back(static_cast<int64_t>(e->labels[side].find(label)));
    c.shape[side] = merged;
    c.shape[side].push_back(side == 0 ? rows[0] : c.k);
    c.shape[side].push_back(side == 0 ? c.k : rows[1]);
    if (ascending(c.order[side])) c.order[side].clear();
    if (outer[side].size() == 1 && inner.size() == 1) c.shape[side].clear();
  }
  const std::string made = batch + outer[0] + outer[1];
  if (outer[0].size() != 1 || outer[1].size() != 1)
    for (const char label : made) c.result_shape.push_back(e->extent(has(e->labels[0], label) ? 0 : 1, label));
  for (const char label : e->result) c.result_order.push_back(static_cast<int64_t>(made.find(label)));
  if (ascending(c.result_order)) c.result_order.clear();
  return c;
}

std::optional<Contraction> contraction_of(NodeOp op) {
  const auto a = shape_of(op->getOperand(0)), b = shape_of(op->getOperand(1));
  if (!a || !b || !is_static(op->getOperand(0)) || !is_static(op->getOperand(1)) || a->empty() || b->empty())
    return std::nullopt;
  const ops::Node node = to_node(op);
  if (op.is("Einsum"))
    return op->getNumOperands() == 2 ? einsum_contraction(node.get_string("equation", ""), *a, *b) : std::nullopt;
  Contraction c;
  c.k = a->back();
  if (!op.is("Gemm")) return c;
  if (node.get_float("alpha", 1) != 1 || input_or_null(op, 2)) return std::nullopt;
  if (node.get_int("transA", 0) != 0) c.order[0] = {1, 0}, c.k = a->front();
  if (node.get_int("transB", 0) != 0) c.order[1] = {1, 0};
  return c;
}

/// A dequantised tensor behind transposes and reshapes, nearest last.
struct MovedSource {
  Source source;
  std::vector<NodeOp> moves;
};

std::optional<MovedSource> moved_source_of(mlir::Value value) {
  MovedSource result;
  for (NodeOp op = defining_op(value); op && (op.is("Transpose") || op.is("Reshape")); op = defining_op(value)) {
    if (op.is("Reshape") && !constant_value(op->getOperand(1))) break;
    result.moves.insert(result.moves.begin(), op);
    value = op->getOperand(0);
  }
  const auto source = source_of(value);
  if (!source) return std::nullopt;
  result.source = *source;
  return result;
}

/// Both operands are bytes at run time. The steps behind the product are taken behind a Q that alone reads it: bytes
/// move for nothing.
bool prove_activations(NodeOp op, mlir::PatternRewriter& rewriter) {
  if ((!op.is("MatMul") && !op.is("Gemm") && !op.is("Einsum")) || op->getNumOperands() < 2) return false;
  const auto x = moved_source_of(op->getOperand(0)), y = moved_source_of(op->getOperand(1));
  if (!x || !y) return false;
  const auto c = contraction_of(op);
  const float unit = x->source.scale * y->source.scale;
  if (!c || c->k < 1 || !is_ordinary_power_of_two(unit) ||
      static_cast<double>(c->k) * largest_of(x->source) * largest_of(y->source) >= kExact)
    return false;
  const mlir::Location location = op.getLoc();
  const int version = std::max(13, static_cast<int>(op.getVersion()));
  const auto move = [&](mlir::Value value, const std::vector<int64_t>& order, const ops::Shape& shape,
                        bool reshape_first) {
    for (const bool reshape : {reshape_first, !reshape_first}) {
      if (reshape && !shape.empty()) {
        const Tensor extents = Tensor::of<int64_t>(ops::DType::kInt64, {static_cast<int64_t>(shape.size())}, shape);
        value = create_op(rewriter, location, "Reshape", "", version,
                          {value, create_constant(rewriter, location, extents)}, {})
                    ->getResult(0);
      } else if (!reshape && !order.empty()) {
        value = create_op(rewriter, location, "Transpose", "", version, {value}, {{"perm", order}})->getResult(0);
      }
    }
    return value;
  };
  const auto bytes = [&](const MovedSource& from) {
    mlir::Value value = from.source.bytes;
    for (NodeOp step : from.moves) {
      std::vector<mlir::Value> operands(step->operand_begin(), step->operand_end());
      operands[0] = value;
      value = create_op(rewriter, step.getLoc(), step.getOpType(), "", static_cast<int>(step.getVersion()), operands,
                        to_attributes(step.getOnnxAttributes()))
                  ->getResult(0);
    }
    return value;
  };
  const mlir::Value left = move(bytes(*x), c->order[0], c->shape[0], false),
                    right = move(bytes(*y), c->order[1], c->shape[1], false);
  const mlir::Value sum = create_op(rewriter, location, "MatMulInteger", "", version,
                                    {left, right, create_constant(rewriter, location, zero_tensor(x->source)),
                                     create_constant(rewriter, location, zero_tensor(y->source))},
                                    {})
                              ->getResult(0);
  mlir::Value result = create_op(rewriter, location, "DequantizeLinear", "", version,
                                 {sum, create_constant(rewriter, location, Tensor::scalar_f32(unit))}, {})
                           ->getResult(0);
  if (c->result_order.empty() && c->result_shape.empty()) {
    rewriter.replaceOp(op, result);
    return true;
  }
  NodeOp quantise =
      op->getResult(0).hasOneUse() ? mlir::dyn_cast<NodeOp>(*op->getResult(0).getUsers().begin()) : NodeOp();
  if (quantise && quantise.is("QuantizeLinear") && quantise->getOperand(0) == op->getResult(0) &&
      constant_value(quantise->getOperand(1)) && constant_value(quantise->getOperand(1))->size() == 1) {
    std::vector<mlir::Value> operands(quantise->operand_begin(), quantise->operand_end());
    operands[0] = result;
    rewriter.setInsertionPoint(quantise);
    result = create_op(rewriter, quantise.getLoc(), "QuantizeLinear", "", static_cast<int>(quantise.getVersion()),
                       operands, to_attributes(quantise.getOnnxAttributes()))
                 ->getResult(0);
    rewriter.replaceOp(quantise, move(result, c->result_order, c->result_shape, true));
    rewriter.eraseOp(op);
    return true;
  }
  rewriter.replaceOp(op, move(result, c->result_order, c->result_shape, true));
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_prove_integer_pass() {
  return make_function_pass(
      "nn-prove-integer", "float products that are exact in fp32 become integer products", [](mlir::func::FuncOp func) {
        return apply_rewrites(func, {prove_convolution, prove_deep_transposed, prove_product, prove_activations});
      });
}

}  // namespace tessera::nn
