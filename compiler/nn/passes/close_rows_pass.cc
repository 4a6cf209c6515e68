// SPDX-License-Identifier: Apache-2.0
// Float normalisations of rows between DequantizeLinear and QuantizeLinear become ai.tessera::NormaliseRows, whose
// integers differ from ONNX Runtime's by a step now and then (docs/numerics.md, class close). Recognised are
// LayerNormalization, RMSNormalization, SimplifiedLayerNormalization, and both forms spelled out in Sub, Pow or Mul,
// ReduceMean, Add, Sqrt, Div or Reciprocal, Mul, Add. A ReduceMean alone becomes QLinearReduceMean, and a
// QLinearSoftmax ai.tessera::FixedShiftSoftmax.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/row_arithmetic.h"
#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

/// A normalisation of `x` over the axes from `axis` on.
struct Normalisation {
  mlir::Value x;
  int64_t axis = -1;
  bool centre = true;
  double epsilon = 0;
  std::vector<float> scale{1.0f}, shift{0.0f};  // 1 element or one for each of a row
};

/// A constant float with one element, or as many as a row.
std::optional<std::vector<float>> row_constant(mlir::Value value, int64_t length) {
  const auto tensor = value ? constant_value(value) : std::nullopt;
  if (!tensor || tensor->dtype() != ops::DType::kFloat || (tensor->size() != 1 && tensor->size() != length))
    return std::nullopt;
  return tensor->to_floats();
}

/// The other operand of an Add or Mul one of whose operands is a constant along the row.
std::optional<std::pair<mlir::Value, std::vector<float>>> with_constant(NodeOp op, int64_t length) {
  const auto last = [](mlir::Value v) {
    const auto shape = shape_of(v);
    return shape && !shape->empty() ? shape->back() : 1;
  };
  for (unsigned i = 0; i < 2; ++i) {
    mlir::Value constant = op.getInputs()[i];
    auto values = row_constant(constant, length);
    if (values && (values->size() == 1 || last(constant) == length)) return std::pair{op.getInputs()[1 - i], *values};
  }
  return std::nullopt;
}

/// What is squared.
mlir::Value root_of_square(mlir::Value value) {
  if (NodeOp mul = defining_op(value, "Mul")) {
    return mul.getInputs()[0] == mul.getInputs()[1] ? mul.getInputs()[0] : mlir::Value{};
  }
  NodeOp pow = defining_op(value, "Pow");
  return pow && constant_scalar(pow.getInputs()[1]) == 2.0 ? pow.getInputs()[0] : mlir::Value{};
}

/// Of sqrt(mean(a * a) + epsilon): a.
mlir::Value deviation_of(mlir::Value value, double& epsilon) {
  NodeOp root = defining_op(value, "Sqrt");
  NodeOp sum = root ? defining_op(root.getInputs()[0], "Add") : NodeOp{};
  if (!sum) return {};
  for (unsigned i = 0; i < 2; ++i) {
    const auto added = constant_scalar(sum.getInputs()[i]);
    if (!added) continue;
    epsilon = *added;
    mlir::Value squares = mean_of(sum.getInputs()[1 - i]);
    return squares ? root_of_square(squares) : mlir::Value{};
  }
  return {};
}

/// Takes the mean's subtraction into a normalisation over the last axis.
void without_mean(Normalisation& n) {
  NodeOp sub = defining_op(n.x, "Sub");
  if (!sub || mean_of(sub.getInputs()[1]) != sub.getInputs()[0]) return;
  n.x = sub.getInputs()[0];
  n.centre = true;
}

/// a divided by its deviation, in any of the forms.
std::optional<Normalisation> spelled_out(mlir::Value value) {
  Normalisation n;
  mlir::Value a;
  if (NodeOp div = defining_op(value, "Div")) {
    if (deviation_of(div.getInputs()[1], n.epsilon) == div.getInputs()[0]) a = div.getInputs()[0];
  } else if (NodeOp mul = defining_op(value, "Mul")) {
    for (unsigned i = 0; i < 2 && !a; ++i) {
      NodeOp inverse = defining_op(mul.getInputs()[i], "Reciprocal");
      mlir::Value divisor = inverse ? inverse.getInputs()[0] : mlir::Value{};
      if (NodeOp div = defining_op(mul.getInputs()[i], "Div"); div && constant_scalar(div.getInputs()[0]) == 1.0)
        divisor = div.getInputs()[1];
      if (divisor && deviation_of(divisor, n.epsilon) == mul.getInputs()[1 - i]) a = mul.getInputs()[1 - i];
    }
  }
  if (!a) return std::nullopt;
  n.x = a;
  n.centre = false;
  without_mean(n);
  return n;
}

/// Scale and shift around a spelled out normalisation.
std::optional<Normalisation> scaled(mlir::Value value) {
  const auto shape = shape_of(value);
  if (!shape || shape->empty()) return std::nullopt;
  std::vector<float> scale{1.0f}, shift{0.0f};
  if (NodeOp add = defining_op(value, "Add")) {
    if (auto part = with_constant(add, shape->back())) std::tie(value, shift) = *part;
  }
  if (NodeOp mul = defining_op(value, "Mul")) {
    if (auto part = with_constant(mul, shape->back())) std::tie(value, scale) = *part;
  }
  auto found = spelled_out(value);
  if (!found || shape_of(found->x) != shape) return std::nullopt;
  found->scale = std::move(scale);
  found->shift = std::move(shift);
  return found;
}

/// A normalisation that is one operator.
std::optional<Normalisation> operator_of(mlir::Value value) {
  NodeOp op = defining_op(value);
  if (!op) return std::nullopt;
  const bool layer = op.is("LayerNormalization");
  const bool square = op.is("RMSNormalization") || op.is("SimplifiedLayerNormalization") ||
                      op.is("SimplifiedLayerNormalization", kMicrosoftDomain);
  if ((!layer && !square) || value != op.getResult(0)) return std::nullopt;
  const ops::Node node = to_node(op);
  const ops::Shape shape = *shape_of(value);
  Normalisation n;
  n.x = op.getInputs()[0];
  n.axis = node.get_int("axis", -1);
  n.centre = layer;
  n.epsilon = node.get_float("epsilon", 1e-5f);
  const auto rank = static_cast<int64_t>(shape.size()), first = n.axis < 0 ? n.axis + rank : n.axis;
  if (first < 0 || first >= rank) return std::nullopt;
  int64_t length = 1;
  for (int64_t a = first; a < rank; ++a) length *= shape[static_cast<size_t>(a)];
  auto scale = row_constant(input_or_null(op, 1), length);
  if (!scale) return std::nullopt;
  n.scale = std::move(*scale);
  if (mlir::Value shift = layer ? input_or_null(op, 2) : mlir::Value{}) {
    auto values = row_constant(shift, length);
    if (!values) return std::nullopt;
    n.shift = std::move(*values);
  }
  return n;
}

std::optional<Normalisation> normalisation_of(mlir::Value value) {
  if (!is_static(value)) return std::nullopt;
  if (auto n = operator_of(value)) {
    if (!n->centre && n->axis == -1) without_mean(*n);
    return n;
  }
  // nn-fuse-norms leaves the subtraction and the shift outside where ONNX Runtime does.
  if (NodeOp add = defining_op(value, "Add")) {
    const auto part = with_constant(add, shape_of(value)->empty() ? 1 : shape_of(value)->back());
    auto n = part ? operator_of(part->first) : std::nullopt;
    if (n && !n->centre && shape_of(n->x) == shape_of(value)) {
      n->shift = part->second;
      without_mean(*n);
      return n;
    }
  }
  return scaled(value);
}

/// Scale and zero point of a Q or a DQ for the whole tensor.
struct Bytes {
  double scale = 1;
  int32_t zero = 0;
  bool is_unsigned = true;
  int32_t low() const { return is_unsigned ? 0 : -128; }
  int32_t high() const { return is_unsigned ? 255 : 127; }
};
std::optional<Bytes> bytes_of(NodeOp op, ops::DType dtype) {
  if (dtype != ops::DType::kUint8 && dtype != ops::DType::kInt8) return std::nullopt;
  const auto scale = constant_scalar(op.getInputs()[1]);
  if (!scale || !(*scale > 0) || !std::isfinite(*scale)) return std::nullopt;
  Bytes b{*scale, 0, dtype == ops::DType::kUint8};
  if (mlir::Value zero = input_or_null(op, 2)) {
    const auto value = constant_scalar(zero);
    if (!value) return std::nullopt;
    b.zero = static_cast<int32_t>(*value);
  }
  return b;
}

using Attributes = std::map<std::string, ops::Attribute>;

/// The largest even number of fraction bits with which `most` stays below 48 bits; negative: none.
int fraction_bits(double most) {
  int bits = 16;
  while (bits >= 0 && std::ldexp(most, bits) > std::ldexp(0.999, 48)) bits -= 2;
  return bits;
}

/// The constants of the integer form; nothing where they do not fit its fields.
std::optional<Attributes> integer_form(const Normalisation& n, const Bytes& x, const Bytes& y, int64_t length) {
  constexpr double kFactorLimit = (1 << (rows::kNormaliseFactorBits - 1)) - 1;
  if (length < 2 || length > rows::kMostRowLength || !(n.epsilon >= 0)) return std::nullopt;
  const double count = static_cast<double>(length), farthest = std::max(x.high() - x.zero, x.zero - x.low());
  const double spread = count * count * (n.centre ? 127.5 * 127.5 : farthest * farthest);
  const double epsilon = n.epsilon * count * count / (x.scale * x.scale);
  const int shift = fraction_bits(spread + epsilon);
  if (shift < 0) return std::nullopt;
  double largest = 0;
  for (const float s : n.scale) largest = std::max(largest, std::abs(static_cast<double>(s)) / y.scale);
  if (!std::isfinite(largest)) return std::nullopt;
  // As many bits of the factor as its field, the exponent's range and the size of a normalised element allow.
  int bits = 13 + shift / 2;
  while (std::nearbyint(std::ldexp(largest, bits)) > kFactorLimit) --bits;
  const double length_bits = std::log2(count);
  if (bits < std::ceil(4 + length_bits / 2)) return std::nullopt;
  const int offset = bits - 6 - shift / 2;
  if (offset < -32 || offset > 31) return std::nullopt;
  // Below this the element's exponent would leave its range. No row but one of equal elements comes near it.
  double least = std::nearbyint(std::ldexp(epsilon, shift));
  const double needed = std::ldexp(1.0, 2 * std::max(0, static_cast<int>(std::ceil(length_bits)) - 2 - offset));
  if (least < needed) {
    if (needed > std::ldexp(count - 1, shift) / 64) return std::nullopt;
    least = needed;
  }
  std::vector<int64_t> factor, addend;
  for (const float s : n.scale) factor.push_back(std::llrint(std::ldexp(static_cast<double>(s) / y.scale, bits)));
  for (const float s : n.shift) {
    const double value = std::ldexp(static_cast<double>(s) / y.scale, rows::kNormaliseAddendFraction);
    if (!(std::abs(value) < 2147483647.0)) return std::nullopt;
    addend.push_back(std::llrint(value));
  }
  return Attributes{{"axis", n.axis},
                    {"centre", int64_t{n.centre}},
                    {"zero", int64_t{x.zero}},
                    {"shift", int64_t{shift}},
                    {"offset", int64_t{offset}},
                    {"epsilon", static_cast<int64_t>(least)},
                    {"factor", factor},
                    {"addend", addend},
                    {"low", int64_t{y.low()} - y.zero},
                    {"high", int64_t{y.high()} - y.zero},
                    {"out_zero", int64_t{y.zero}},
                    {"unsigned", int64_t{y.is_unsigned}}};
}

/// Operators that only move elements, from the nearest to `value` on; `value` becomes what the last of them reads.
std::vector<NodeOp> movements_before(mlir::Value& value) {
  std::vector<NodeOp> found;
  for (NodeOp op = defining_op(value); op; op = defining_op(value)) {
    if (!op.getDomain().empty() || found.size() > 16 || !is_static(value)) break;
    if (!op.is("Reshape") && !op.is("Transpose") && !op.is("Squeeze") && !op.is("Unsqueeze") && !op.is("Flatten"))
      break;
    found.push_back(op);
    value = op.getInputs()[0];
  }
  return found;
}

/// The same movements of another value, in their order.
mlir::Value moved(mlir::PatternRewriter& rewriter, mlir::Value value, const std::vector<NodeOp>& movements) {
  for (auto at = movements.rbegin(); at != movements.rend(); ++at) {
    NodeOp op = *at;
    llvm::SmallVector<mlir::Value> operands(op.getInputs());
    operands[0] = value;
    value = create_op(rewriter, op.getLoc(), op.getOpType(), op.getDomain(), static_cast<int>(op.getVersion()),
                      operands, to_attributes(op.getOnnxAttributes()))
                .getResult(0);
  }
  return value;
}

/// A normalisation between DequantizeLinear and QuantizeLinear, movements around it aside, and its integer form.
struct Match {
  mlir::Value bytes, result;           // what the DequantizeLinear reads; the normalised value
  std::vector<NodeOp> before, behind;  // movements
  Attributes attributes;
};

std::optional<Match> match(NodeOp quantise) {
  if (!quantise.is("QuantizeLinear")) return std::nullopt;
  mlir::Value result = quantise.getInputs()[0];
  const std::vector<NodeOp> behind = movements_before(result);
  const auto n = normalisation_of(result);
  mlir::Value source = n ? n->x : mlir::Value{};
  const std::vector<NodeOp> before = n ? movements_before(source) : std::vector<NodeOp>{};
  NodeOp dequantise = n ? defining_op(source, "DequantizeLinear") : NodeOp{};
  if (!dequantise || constant_value(dequantise.getInputs()[0])) return std::nullopt;
  const auto x = bytes_of(dequantise, dtype_of(dequantise.getInputs()[0]));
  const auto y = bytes_of(quantise, dtype_of(quantise.getResult(0)));
  if (!x || !y) return std::nullopt;
  const ops::Shape shape = *shape_of(result);
  int64_t length = 1;
  for (auto a = static_cast<size_t>(n->axis < 0 ? n->axis + std::ssize(shape) : n->axis); a < shape.size(); ++a)
    length *= shape[a];
  auto attributes = integer_form(*n, *x, *y, length);
  if (!attributes) return std::nullopt;
  return Match{dequantise.getInputs()[0], result, before, behind, std::move(*attributes)};
}

bool close_rows(NodeOp quantise, mlir::PatternRewriter& rewriter) {
  const auto found = match(quantise);
  if (!found) return false;
  NodeOp rows =
      create_op(rewriter, fuse_locations(quantise, {defining_op(found->result).getOperation()}), "NormaliseRows",
                kTesseraDomain, 1, {moved(rewriter, found->bytes, found->before)}, found->attributes);
  rewriter.replaceOp(quantise, moved(rewriter, rows.getResult(0), found->behind));
  return true;
}

/// ReduceMean between DequantizeLinear and QuantizeLinear, whose integers are those of an average.
struct Mean {
  NodeOp dequantise, mean;
  std::vector<int64_t> axes;
};

std::optional<Mean> mean_match(NodeOp quantise) {
  if (!quantise.is("QuantizeLinear")) return std::nullopt;
  Mean m;
  m.mean = defining_op(quantise.getInputs()[0], "ReduceMean");
  m.dequantise = m.mean ? defining_op(m.mean.getInputs()[0], "DequantizeLinear") : NodeOp{};
  if (!m.dequantise || constant_value(m.dequantise.getInputs()[0]) || !is_static(m.mean.getInputs()[0]))
    return std::nullopt;
  const auto axes = constant_ints(m.mean, 1, "axes");
  const auto x = bytes_of(m.dequantise, dtype_of(m.dequantise.getInputs()[0]));
  const auto y = bytes_of(quantise, dtype_of(quantise.getResult(0)));
  if (!axes || axes->empty() || !x || !y || x->is_unsigned != y->is_unsigned) return std::nullopt;
  if (!input_or_null(m.dequantise, 2) || !input_or_null(quantise, 2)) return std::nullopt;
  m.axes = *axes;
  const ops::Shape shape = *shape_of(m.mean.getInputs()[0]);
  int64_t count = 1;
  for (const int64_t a : m.axes) count *= shape[static_cast<size_t>(a < 0 ? a + std::ssize(shape) : a)];
  // Of one scale, every count-th sum would lie halfway between two integers, and fp32 sums fall to either side.
  if (x->scale == y->scale && count % 2 == 0) return std::nullopt;
  return m;
}

bool close_means(NodeOp quantise, mlir::PatternRewriter& rewriter) {
  auto found = mean_match(quantise);
  if (!found) return false;
  NodeOp dequantise = found->dequantise;
  NodeOp mean = create_op(rewriter, fuse_locations(quantise, {found->mean.getOperation()}), "QLinearReduceMean",
                          kMicrosoftDomain, 1,
                          {dequantise.getInputs()[0], dequantise.getInputs()[1], dequantise.getInputs()[2],
                           quantise.getInputs()[1], quantise.getInputs()[2]},
                          Attributes{{"axes", found->axes}, {"keepdims", to_node(found->mean).get_int("keepdims", 1)}});
  rewriter.replaceOp(quantise, mean.getResult(0));
  return true;
}

/// QLinearSoftmax whose exponentials may be scaled by the highest byte in place of each row's maximum: those of the
/// lowest byte are far from the smallest numbers of fp32 then, whatever the row's length.
bool fixes_shift(NodeOp softmax) {
  constexpr float kMostScale = 0.5F;
  if (!softmax.is("QLinearSoftmax", kMicrosoftDomain) || softmax.getInputs().size() != 5) return false;
  const auto scale = constant_scalar(softmax.getInputs()[1]);
  return scale && *scale > 0 && *scale <= kMostScale;
}

bool close_softmaxes(NodeOp softmax, mlir::PatternRewriter& rewriter) {
  if (!fixes_shift(softmax)) return false;
  NodeOp fixed = create_op(rewriter, softmax.getLoc(), "FixedShiftSoftmax", kTesseraDomain, 1, softmax.getInputs(),
                           to_node(softmax).attributes);
  rewriter.replaceOp(softmax, fixed.getResult(0));
  return true;
}

}  // namespace

int64_t count_close_rows(mlir::func::FuncOp func) {
  int64_t count = 0;
  func.walk([&](NodeOp op) {
    try {
      count += match(op) || mean_match(op) ? 1 : 0;
    } catch (const Error&) {  // what the operator library refuses is no match
    }
  });
  return count;
}

std::unique_ptr<mlir::Pass> create_close_rows_pass() {
  return make_function_pass(
      "nn-close-rows", "turn float normalisations between bytes into integers that are close to them",
      [](mlir::func::FuncOp func) { return apply_rewrites(func, {close_rows, close_means, close_softmaxes}); });
}

}  // namespace tessera::nn
