// SPDX-License-Identifier: Apache-2.0
// Products of 16-bit values. Enters: Conv, ConvTranspose, MatMul or Gemm in float between DequantizeLinear of 8 or 16
// bits, each tensor with one scale (constant weights: one for each output channel), 16 bits on one side at least or in
// what quantises the result; or Conv, ConvTranspose and MatMul of such integers in float64, as LiteRT's operators of 16
// bits are imported. Leaves: integer products of bytes, which run on the NPU, their exact sum in float64, and the scale
// and the bias in float.
//
// A value v of 16 bits is 256 h + l with the bytes h = floor(v / 256), signed as v is, and l of 0 to 255, and its zero
// point is cut in the same way. So the product of two tensors is the sum of those of their bytes, each times 256 for
// each h in it: two products for 16 bits by 8, four for 16 by 16. ONNX Runtime multiplies the dequantised floats
// instead, and its sum carries the roundings of float additions; here the sum is exact and rounded once.
//
// Few rows wait for the weights. So both bytes of few rows are rows of one product, which reads its weights once.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "compiler/nn/passes/convolution_form.h"
#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"
#include "compiler/nn/splitter.h"

namespace tessera::nn {
namespace {

using ops::DType;
using ops::Tensor;

bool is_wide(DType dtype) { return dtype == DType::kInt16 || dtype == DType::kUint16; }

/// The integers of a tensor.
std::vector<int64_t> content_of(const Tensor& tensor) {
  const ops::Node cast{"", "Cast", 13, "", {{"to", static_cast<int64_t>(DType::kInt64)}}, 1};
  const Tensor wide = ops::evaluate(cast, {ops::Value(tensor)})[0].tensor;
  const auto values = wide.as<int64_t>();
  return {values.begin(), values.end()};
}

/// One side of a product: integers with their scale and zero point.
struct Side {
  mlir::Value integers;
  DType dtype = DType::kUndefined;
  Tensor scale;               // float: one element, or one for each output channel
  std::vector<int64_t> zero;  // as many, or one
  int64_t axis = -1;          // of the channels; -1: one scale

  /// Of the output of a DequantizeLinear with constant parameters; nothing for other values, and for blocks.
  static std::optional<Side> of(mlir::Value value) {
    NodeOp dequantise = defining_op(value, "DequantizeLinear");
    if (!dequantise) return std::nullopt;
    const auto scale = constant_value(dequantise->getOperand(1));
    const mlir::Value given_zero = input_or_null(dequantise, 2);
    const auto zero = given_zero ? constant_value(given_zero) : std::nullopt;
    const auto shape = shape_of(dequantise->getOperand(0));
    const ops::Node node = to_node(dequantise);
    if (!scale || scale->dtype() != DType::kFloat || scale->shape().size() > 1 || (given_zero && !zero) || !shape ||
        node.get_int("block_size", 0) != 0)
      return std::nullopt;
    Side side{dequantise->getOperand(0), dtype_of(dequantise->getOperand(0)), *scale, {0}, -1};
    if (!is_wide(side.dtype) && !is_byte(side.dtype)) return std::nullopt;
    if (zero) side.zero = content_of(*zero);
    if (scale->size() != 1) {
      const int64_t axis = node.get_int("axis", 1);
      side.axis = axis < 0 ? axis + static_cast<int64_t>(shape->size()) : axis;
    }
    return side;
  }
  /// Of integers in float64, less their zero point: the products of LiteRT's 16-bit operators. They have no scale.
  static std::optional<Side> of_exact(mlir::Value value) {
    if (dtype_of(value) != DType::kDouble) return std::nullopt;
    Side side;
    side.zero = {0};
    if (NodeOp sub = defining_op(value, "Sub")) {
      const auto zero = constant_scalar(sub->getOperand(1));
      if (!zero || std::nearbyint(*zero) != *zero || std::abs(*zero) > 65535) return std::nullopt;
      side.zero = {static_cast<int64_t>(*zero)};
      value = sub->getOperand(0);
    }
    NodeOp cast = defining_op(value, "Cast");
    side.integers = cast ? cast->getOperand(0) : value;
    side.dtype = dtype_of(side.integers);
    if (cast) return is_wide(side.dtype) || is_byte(side.dtype) ? std::optional(side) : std::nullopt;
    const auto constant = constant_value(value);
    if (!constant) return std::nullopt;
    const auto numbers = constant->as<double>();
    const auto are_in = [&](double low, double high) {
      return std::all_of(numbers.begin(), numbers.end(),
                         [&](double x) { return x >= low && x <= high && std::nearbyint(x) == x; });
    };
    side.dtype = are_in(-128, 127) ? DType::kInt8 : are_in(-32768, 32767) ? DType::kInt16 : DType::kUndefined;
    return side.dtype == DType::kUndefined ? std::nullopt : std::optional(side);
  }
  bool is_constant() const { return constant_value(integers).has_value(); }
};

/// Whether a value becomes bytes behind float operations; true also where these are not followed to their end.
bool becomes_bytes(mlir::Value value) {
  constexpr size_t kMostOperations = 64;
  std::vector<mlir::Value> left = {value};
  size_t seen = 0;
  while (!left.empty()) {
    const mlir::Value next = left.back();
    left.pop_back();
    for (mlir::Operation* user : next.getUsers()) {
      NodeOp op = mlir::dyn_cast<NodeOp>(user);
      if (!op) continue;  // the result of the function
      if (++seen > kMostOperations || !op.getBodies().empty()) return true;
      for (const mlir::Value result : op->getResults()) {
        if (is_wide(dtype_of(result))) continue;
        if (dtype_of(result) != DType::kFloat) return true;
        left.push_back(result);
      }
    }
  }
  return false;
}

bool is_power_of_two(float x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5f;
}

/// The bytes of a side, or one half of them: the high ones first where it has two.
struct Half {
  mlir::Value values, zero;  // zero: null where it is 0
  int shift = 0;
};

class WideProduct {
 public:
  /// close: bytes by bytes also where the result becomes bytes.
  WideProduct(NodeOp op, mlir::PatternRewriter& rewriter, bool close)
      : op_(op), split_(op, rewriter), node_(to_node(op)), close_(close) {}

  /// Whether the product is one that the pass takes apart.
  bool matches() { return sides().has_value(); }

  bool run() {
    auto both = sides();
    if (!both) return false;
    auto& [left, right] = *both;
    if (exact_) as_integers(left), as_integers(right);
    if (op_.is("Gemm")) turn(left, right);
    const Tensor factor = scale(left, right);
    if (form_ && !form_->is_plain()) {
      right.integers = split_.constant(form_->weights(*constant_value(right.integers), right.zero));
      right.zero = form_->by_channel(right.zero);
    }
    mlir::Value sum = rows_of(left, right) > 0 ? both_as_rows(left, right) : by_bytes(left, right);
    if (form_ && !form_->is_plain()) {
      if (!exact_) sum = split_.cast(sum, DType::kFloat);
      sum = form_->result(split_, sum);
    }
    if (exact_)
      split_.finish_as(sum, DType::kDouble);
    else
      split_.finish(sum, split_.constant(factor), bias());
    return true;
  }

 private:
  std::optional<std::pair<Side, Side>> sides() {
    if (!is_convolution() && !op_.is("MatMul") && !op_.is("Gemm")) return std::nullopt;
    const mlir::Value x = op_->getOperand(0), w = op_->getOperand(1);
    exact_ = dtype_of(x) == DType::kDouble;
    auto left = exact_ ? Side::of_exact(x) : Side::of(x), right = exact_ ? Side::of_exact(w) : Side::of(w);
    if (!left || !right || left->axis >= 0) return std::nullopt;
    if (!is_wide(left->dtype) && !is_wide(right->dtype) && !are_bytes_served(*left, *right)) return std::nullopt;
    if (!has_form(*right) || (exact_ && (op_.is("Gemm") || input_or_null(op_, 2)))) return std::nullopt;
    return std::pair(*left, *right);
  }

  bool is_convolution() { return op_.is("Conv") || op_.is("ConvTranspose"); }

  /// Bytes by bytes: a product with constants that stays float and whose result does not become bytes, so that no step
  /// of 8 bits depends on the order of its sum; all of them where results may be close. Where all scales are powers of
  /// two nn-prove-integer does better.
  bool are_bytes_served(const Side& left, const Side& right) {
    if (exact_ || !right.is_constant() || (!close_ && becomes_bytes(op_->getResult(0)))) return false;
    const auto scales = right.scale.as<float>();
    return !is_power_of_two(left.scale.as<float>()[0]) || !std::all_of(scales.begin(), scales.end(), is_power_of_two);
  }

  /// Whether sums share one scale for each output channel, and fit.
  bool has_form(const Side& right) {
    const auto shape = shape_of(right.integers), left = shape_of(op_->getOperand(0));
    const auto rank = static_cast<int64_t>(shape->size());
    if (!left || left->empty() || rank == 0 || !is_static(right.integers)) return false;
    const bool constant = right.is_constant();
    if (is_convolution()) return constant && has_convolution_form(right, *left, *shape);
    if (op_.is("Gemm")) {
      const int64_t channels = node_.get_int("transB", 0) != 0 ? 0 : 1;
      return constant && rank == 2 && (right.axis < 0 || right.axis == channels);
    }
    if (rank < 2 || left->size() < 2) return constant && rank == 2 && (right.axis < 0 || right.axis == 1);
    return right.axis < 0 || (constant && right.axis == rank - 1);
  }
  bool has_convolution_form(const Side& right, const ops::Shape& left, const ops::Shape& shape) {
    const bool forward = op_.is("Conv");
    if (right.axis >= 0 && right.axis != (forward ? 0 : 1)) return false;
    if (forward && shape.size() >= 3 && shape.size() <= 4)
      return ops::element_count(shape) / std::max<int64_t>(1, shape.front()) <= kMostTerms;
    if (is_static(op_->getOperand(0))) form_ = ConvolutionForm::of(node_, left, shape);
    return form_ && form_->terms() <= kMostTerms;
  }
  /// int32 holds the sum of so many products of bytes.
  static constexpr int64_t kMostTerms = (int64_t{1} << 31) / (255 * 255) - 1;

  /// A constant in float64 as the integers that it holds.
  void as_integers(Side& side) {
    if (dtype_of(side.integers) != DType::kDouble) return;
    side.integers = split_.constant(converted(*constant_value(side.integers), side.dtype));
  }

  Tensor evaluated(const ops::Node& node, const Tensor& tensor) {
    return copy_of(ops::evaluate(node, {ops::Value(tensor)})[0].tensor);
  }
  Tensor converted(const Tensor& tensor, DType to) {
    return evaluated({"", "Cast", 13, node_.name, {{"to", static_cast<int64_t>(to)}}, 1}, tensor);
  }

  /// Gemm's operands as MatMul takes them.
  void turn(Side& left, Side& right) {
    const std::map<std::string, ops::Attribute> perm = {{"perm", std::vector<int64_t>{1, 0}}};
    if (node_.get_int("transA", 0) != 0) left.integers = split_.one("Transpose", 13, {left.integers}, perm);
    if (node_.get_int("transB", 0) == 0) return;
    right.integers =
        split_.constant(evaluated({"", "Transpose", 13, node_.name, perm, 1}, *constant_value(right.integers)));
    if (right.axis >= 0) right.axis = 1;
  }

  /// Zero points as a tensor of `dtype`; null where all are 0.
  mlir::Value zero_of(const Side& side, DType dtype, int shift) {
    std::vector<int64_t> zeros = side.zero;
    if (is_wide(side.dtype))
      for (int64_t& zero : zeros) zero = shift > 0 ? zero >> shift : zero & 255;
    if (std::all_of(zeros.begin(), zeros.end(), [&](int64_t zero) { return zero == zeros.front(); })) zeros.resize(1);
    if (zeros == std::vector<int64_t>{0}) return {};
    const ops::Shape shape = zeros.size() == 1 ? ops::Shape{} : ops::Shape{static_cast<int64_t>(zeros.size())};
    return split_.constant(converted(Tensor::of<int64_t>(DType::kInt64, shape, zeros), dtype));
  }

  mlir::Value shape_constant(const ops::Shape& shape) { return split_.constant(Tensor::vector_i64(shape)); }
  mlir::Value number(int32_t n) {
    return split_.constant(Tensor::of<int32_t>(DType::kInt32, {}, std::vector<int32_t>{n}));
  }

  std::vector<Half> cut(const Side& side) {
    if (is_byte(side.dtype)) return {{side.integers, zero_of(side, side.dtype, 0), 0}};
    const DType high = side.dtype == DType::kInt16 ? DType::kInt8 : DType::kUint8;
    const mlir::Value wide = split_.cast(side.integers, DType::kInt32);
    const mlir::Value low = split_.one("BitwiseAnd", 18, {wide, number(255)});
    const mlir::Value rest = split_.one("Div", 14, {split_.one("Sub", 14, {wide, low}), number(256)});
    return {{split_.cast(rest, high), zero_of(side, high, 8), 8},
            {split_.cast(low, DType::kUint8), zero_of(side, DType::kUint8, 0), 0}};
  }

  /// The sum of products, each times a power of two: int32 where it is one alone, else float64, which holds it exactly.
  mlir::Value by_bytes(const Side& left, const Side& right) {
    const std::vector<Half> a = cut(left), b = cut(right);
    std::vector<std::pair<mlir::Value, int>> parts;
    for (const Half& x : a)
      for (const Half& w : b)
        for (const mlir::Value part : product(x, w)) parts.emplace_back(part, x.shift + w.shift);
    if (parts.size() == 1) return parts[0].first;
    mlir::Value sum;
    for (const auto& [part, shift] : parts) sum = added(sum, part, shift);
    return sum;
  }
  static Tensor power(int shift) {
    return Tensor::of<double>(DType::kDouble, {}, std::vector<double>{std::ldexp(1.0, shift)});
  }
  mlir::Value added(mlir::Value sum, mlir::Value part, int shift) {
    part = split_.cast(part, DType::kDouble);
    if (shift > 0) part = split_.one("Mul", 14, {part, split_.constant(power(shift))});
    return sum ? split_.one("Add", 14, {sum, part}) : part;
  }

  /// Rows of 16 bits before a matrix of constants, where they are so few that weights decide; else 0.
  int64_t rows_of(const Side& left, const Side& right) {
    const auto shape = shape_of(left.integers), matrix = shape_of(right.integers);
    if (is_convolution() || !is_wide(left.dtype) || !right.is_constant() || matrix->size() != 2 ||
        !is_static(left.integers))
      return 0;
    const int64_t depth = shape->back(), rows = depth > 0 ? ops::element_count(*shape) / depth : 0;
    return rows <= kFewRows ? rows : 0;
  }
  static constexpr int64_t kFewRows = 64;

  /// v as u = 256 h + l of 0 to 65,535, h and l rows of one product; what v's zero point and u - v give is a constant
  /// for each column.
  mlir::Value both_as_rows(const Side& left, const Side& right) {
    const ops::Shape shape = *shape_of(left.integers);
    const int64_t depth = shape.back(), rows = rows_of(left, right), columns = shape_of(right.integers)->back();
    const int32_t above = left.dtype == DType::kInt16 ? 32768 : 0;
    mlir::Value wide = split_.cast(left.integers, DType::kInt32);
    if (above != 0) wide = split_.one("Add", 14, {wide, number(above)});
    wide = split_.one("Reshape", 13, {split_.cast(wide, DType::kUint32), shape_constant({1, rows, depth})});
    const auto words = [&](const ops::Shape& shape, const std::vector<uint32_t>& values) {
      return split_.constant(Tensor::of<uint32_t>(DType::kUint32, shape, values));
    };
    wide = split_.one("BitShift", 11, {wide, words({2, 1, 1}, {8, 0})}, {{"direction", std::string("RIGHT")}});
    wide = split_.cast(split_.one("BitwiseAnd", 18, {wide, words({}, {255})}), DType::kUint8);
    const Half both{split_.one("Reshape", 13, {wide, shape_constant({2 * rows, depth})}), {}, 0};
    mlir::Value sum;
    for (const Half& w : cut(right))
      for (const mlir::Value part : product(both, w)) {
        NodeOp apart = split_.make("Split", 13, {part, shape_constant({rows, rows})}, {{"axis", int64_t{0}}}, 2);
        sum = added(added(sum, apart->getResult(0), w.shift + 8), apart->getResult(1), w.shift);
      }
    sum = split_.one("Add", 14, {sum, split_.constant(offsets(right, depth, columns, -above - left.zero[0]))});
    ops::Shape result(shape.begin(), shape.end() - 1);
    result.push_back(columns);
    return split_.one("Reshape", 13, {sum, shape_constant(result)});
  }
  /// `factor` times the sum of each column's weights less their zero point.
  Tensor offsets(const Side& right, int64_t depth, int64_t columns, int64_t factor) {
    const std::vector<int64_t> weights = content_of(*constant_value(right.integers));
    std::vector<double> sums(static_cast<size_t>(columns));
    for (size_t i = 0; i < weights.size(); ++i) {
      const size_t column = i % static_cast<size_t>(columns);
      sums[column] += static_cast<double>(weights[i] - right.zero[right.zero.size() == 1 ? 0 : column]);
    }
    TESSERA_INVARIANT(weights.size() == static_cast<size_t>(depth * columns), "a matrix has rows and columns");
    for (double& sum : sums) sum *= static_cast<double>(factor);
    return Tensor::of<double>(DType::kDouble, {columns}, sums);
  }

  /// The product of bytes; of matrices in parts along their sum, each of which fits int32.
  std::vector<mlir::Value> product(const Half& x, const Half& w) {
    if (form_) {
      const mlir::Value zero = x.zero ? x.zero : split_.constant(Tensor(dtype_of(x.values), {}));
      return {split_.one("ConvInteger", 10, {form_->operand(split_, x.values, zero), w.values, x.zero, w.zero},
                         form_->attributes())};
    }
    if (op_.is("Conv"))
      return {
          split_.one("ConvInteger", 10, {x.values, w.values, x.zero, w.zero}, to_attributes(op_.getOnnxAttributes()))};
    const auto matrix = shape_of(w.values);
    const auto rank = static_cast<int64_t>(matrix->size());
    const int64_t depth = (*matrix)[static_cast<size_t>(std::max<int64_t>(0, rank - 2))];
    std::vector<mlir::Value> parts;
    for (int64_t first = 0; first == 0 || first < depth; first += kMostTerms) {
      const int64_t end = std::min(depth, first + kMostTerms);
      const bool whole = end - first == depth;
      parts.push_back(split_.one("MatMulInteger", 10,
                                 {whole ? x.values : part_of(x.values, -1, first, end),
                                  whole ? w.values : part_of(w.values, rank - 2, first, end), x.zero, w.zero}));
    }
    return parts;
  }
  mlir::Value part_of(mlir::Value value, int64_t axis, int64_t first, int64_t end) {
    return split_.one("Slice", 13, {value, shape_constant({first}), shape_constant({end}), shape_constant({axis})});
  }

  int64_t channels() {
    const ops::Shape shape = *shape_of(op_->getOperand(1));
    return op_.is("ConvTranspose") ? shape[1] * node_.get_int("group", 1) : shape.front();
  }

  /// Of one element or one for each channel, shaped to stand beside the result.
  ops::Shape beside(int64_t channels) {
    if (channels == 1) return {};
    ops::Shape shape = {channels};
    if (is_convolution()) shape.resize(shape_of(op_->getOperand(1))->size() - 1, 1);
    return shape;
  }

  Tensor scale(const Side& left, const Side& right) {
    if (exact_) return {};
    const float factor = left.scale.as<float>()[0] * (op_.is("Gemm") ? node_.get_float("alpha", 1.0f) : 1.0f);
    std::vector<float> scales;
    for (const float scale : right.scale.as<float>()) scales.push_back(factor * scale);
    const size_t each = scales.size();
    if (op_.is("ConvTranspose") && each > 1)  // filters of all groups
      for (size_t i = 0; scales.size() < static_cast<size_t>(channels()); ++i) scales.push_back(scales[i % each]);
    return Tensor::of<float>(DType::kFloat, beside(static_cast<int64_t>(scales.size())), scales);
  }

  mlir::Value bias() {
    mlir::Value bias = input_or_null(op_, 2);
    if (!bias || op_.is("MatMul")) return {};
    if (const float beta = node_.get_float("beta", 1.0f); op_.is("Gemm") && beta != 1.0f)
      bias = split_.one("Mul", 14, {bias, split_.constant(Tensor::scalar_f32(beta))});
    if (!is_convolution()) return bias;
    const ops::Shape shape = beside(channels());
    if (shape.empty()) return bias;
    return split_.one("Reshape", 13, {bias, shape_constant(shape)});
  }

  NodeOp op_;
  Splitter split_;
  const ops::Node node_;
  const bool close_;
  bool exact_ = false;  // integers in float64
  std::optional<ConvolutionForm> form_;
};

constexpr llvm::StringLiteral kLeft = "nn.close_products";

}  // namespace

std::unique_ptr<mlir::Pass> create_split_wide_products_pass(bool close) {
  return make_function_pass(
      close ? "nn-split-close-products" : "nn-split-wide-products",
      "products of 16-bit values become integer products of bytes", [close](mlir::func::FuncOp func) {
        const auto result = apply_rewrites(func, {[close](NodeOp op, mlir::PatternRewriter& rewriter) {
                                             return WideProduct(op, rewriter, close).run();
                                           }});
        mlir::PatternRewriter unused(func.getContext());
        int64_t left = 0;
        func.walk([&](NodeOp op) {
          try {
            left += WideProduct(op, unused, true).matches() ? 1 : 0;
          } catch (const Error&) {  // what the operator library refuses is no match
          }
        });
        if (left > 0) func->setAttr(kLeft, mlir::IntegerAttr::get(mlir::IndexType::get(func.getContext()), left));
        return result;
      });
}

int64_t count_close_products(mlir::func::FuncOp func) {
  const auto left = func->getAttrOfType<mlir::IntegerAttr>(kLeft);
  return left ? left.getInt() : 0;
}

}  // namespace tessera::nn
