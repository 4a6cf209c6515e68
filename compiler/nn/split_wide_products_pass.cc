// SPDX-License-Identifier: Apache-2.0
// Products of 16-bit values. Enters: Conv, MatMul or Gemm in float between DequantizeLinear of 8 or 16 bits, 16 on one
// side at least, each tensor with one scale (constant weights: one for each output channel); or Conv and MatMul of such
// integers in float64, as LiteRT's operators of 16 bits are imported. Leaves: integer products of bytes, which run on
// the NPU, their exact sum in int64, and the scale and the bias in float.
//
// A value v of 16 bits is 256 h + l with the bytes h = floor(v / 256), signed as v is, and l of 0 to 255, and its zero
// point is cut in the same way. So the product of two tensors is the sum of those of their bytes, each times 256 for
// each h in it: two products for 16 bits by 8, four for 16 by 16. ONNX Runtime multiplies the dequantised floats
// instead, and its sum carries the roundings of float additions; here the sum is exact and rounded once.
#include <algorithm>
#include <cmath>

#include "compiler/nn/pass_util.h"
#include "compiler/nn/passes.h"
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

/// Bytes of a side: the high ones first where it has two.
struct Bytes {
  mlir::Value values, zero;  // zero: null where it is 0
  int shift = 0;
};

class WideProduct {
 public:
  WideProduct(NodeOp op, mlir::PatternRewriter& rewriter) : op_(op), split_(op, rewriter), node_(to_node(op)) {}

  bool run() {
    if (!op_.is("Conv") && !op_.is("MatMul") && !op_.is("Gemm")) return false;
    const mlir::Value x = op_->getOperand(0), w = op_->getOperand(1);
    const bool exact = dtype_of(x) == DType::kDouble;
    auto left = exact ? Side::of_exact(x) : Side::of(x), right = exact ? Side::of_exact(w) : Side::of(w);
    if (!left || !right || left->axis >= 0 || (!is_wide(left->dtype) && !is_wide(right->dtype))) return false;
    if (!has_form(*right) || (exact && (op_.is("Gemm") || input_or_null(op_, 2)))) return false;
    if (exact) as_integers(*left), as_integers(*right);
    if (op_.is("Gemm")) turn(*left, *right);
    const std::vector<Bytes> a = cut(*left), b = cut(*right);
    mlir::Value sum;
    for (const Bytes& x : a)
      for (const Bytes& w : b) {
        mlir::Value part = split_.cast(product(x, w), DType::kInt64);
        if (const int shift = x.shift + w.shift; shift > 0)
          part = split_.one("Mul", 14, {part, split_.constant(Tensor::scalar_i64(int64_t{1} << shift))});
        sum = sum ? split_.one("Add", 14, {sum, part}) : part;
      }
    if (exact)
      split_.finish_as(sum, DType::kDouble);
    else
      split_.finish(sum, split_.constant(scale(*left, *right)), bias());
    return true;
  }

 private:
  /// Whether sums share one scale for each output channel, and fit.
  bool has_form(const Side& right) {
    const auto shape = shape_of(right.integers), left = shape_of(op_->getOperand(0));
    const auto rank = static_cast<int64_t>(shape->size());
    if (!left || left->empty() || rank == 0 || !is_static(right.integers)) return false;
    const bool constant = right.is_constant();
    if (op_.is("Conv"))
      return constant && rank >= 3 && rank <= 4 && (right.axis < 0 || right.axis == 0) && fits(*shape, 0);
    if (op_.is("Gemm")) {
      const int64_t channels = node_.get_int("transB", 0) != 0 ? 0 : 1;
      return constant && rank == 2 && (right.axis < 0 || right.axis == channels) && fits(*shape, channels);
    }
    if (!constant) return right.axis < 0 && rank >= 2 && left->size() >= 2 && (*shape)[shape->size() - 2] <= kMostTerms;
    return rank >= 2 && (right.axis < 0 || right.axis == rank - 1) && (*shape)[shape->size() - 2] <= kMostTerms;
  }
  /// int32 holds the sum of so many products of bytes.
  static constexpr int64_t kMostTerms = (int64_t{1} << 31) / (255 * 255) - 1;
  static bool fits(const ops::Shape& weights, size_t channels) {
    return ops::element_count(weights) / std::max<int64_t>(1, weights[channels]) <= kMostTerms;
  }

  /// A constant in float64 as the integers that it holds.
  void as_integers(Side& side) {
    if (dtype_of(side.integers) != DType::kDouble) return;
    const ops::Node cast{"", "Cast", 13, node_.name, {{"to", static_cast<int64_t>(side.dtype)}}, 1};
    const Tensor whole = *constant_value(side.integers);
    side.integers = split_.constant(copy_of(ops::evaluate(cast, {ops::Value(whole)})[0].tensor));
  }

  /// Gemm's operands as MatMul takes them.
  void turn(Side& left, Side& right) {
    const std::map<std::string, ops::Attribute> perm = {{"perm", std::vector<int64_t>{1, 0}}};
    if (node_.get_int("transA", 0) != 0) left.integers = split_.one("Transpose", 13, {left.integers}, perm);
    if (node_.get_int("transB", 0) == 0) return;
    const ops::Node transpose{"", "Transpose", 13, node_.name, perm, 1};
    const Tensor whole = *constant_value(right.integers);
    right.integers = split_.constant(copy_of(ops::evaluate(transpose, {ops::Value(whole)})[0].tensor));
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
    const ops::Node cast{"", "Cast", 13, node_.name, {{"to", static_cast<int64_t>(dtype)}}, 1};
    const Tensor wide = Tensor::of<int64_t>(DType::kInt64, shape, zeros);
    return split_.constant(copy_of(ops::evaluate(cast, {ops::Value(wide)})[0].tensor));
  }

  std::vector<Bytes> cut(const Side& side) {
    if (is_byte(side.dtype)) return {{side.integers, zero_of(side, side.dtype, 0), 0}};
    const DType high = side.dtype == DType::kInt16 ? DType::kInt8 : DType::kUint8;
    const mlir::Value wide = split_.cast(side.integers, DType::kInt32);
    const auto number = [&](int32_t n) {
      return split_.constant(Tensor::of<int32_t>(DType::kInt32, {}, std::vector<int32_t>{n}));
    };
    const mlir::Value low = split_.one("BitwiseAnd", 18, {wide, number(255)});
    const mlir::Value rest = split_.one("Div", 14, {split_.one("Sub", 14, {wide, low}), number(256)});
    return {{split_.cast(rest, high), zero_of(side, high, 8), 8},
            {split_.cast(low, DType::kUint8), zero_of(side, DType::kUint8, 0), 0}};
  }

  mlir::Value product(const Bytes& x, const Bytes& w) {
    if (!op_.is("Conv")) return split_.one("MatMulInteger", 10, {x.values, w.values, x.zero, w.zero});
    std::map<std::string, ops::Attribute> attributes = to_attributes(op_.getOnnxAttributes());
    return split_.one("ConvInteger", 10, {x.values, w.values, x.zero, w.zero}, attributes);
  }

  /// Of one element or one for each channel, shaped to stand beside the result.
  ops::Shape beside(int64_t channels) {
    if (channels == 1) return {};
    ops::Shape shape = {channels};
    if (op_.is("Conv")) shape.resize(shape_of(op_->getOperand(1))->size() - 1, 1);
    return shape;
  }

  Tensor scale(const Side& left, const Side& right) {
    const float factor = left.scale.as<float>()[0] * (op_.is("Gemm") ? node_.get_float("alpha", 1.0f) : 1.0f);
    std::vector<float> scales;
    for (const float scale : right.scale.as<float>()) scales.push_back(factor * scale);
    return Tensor::of<float>(DType::kFloat, beside(static_cast<int64_t>(scales.size())), scales);
  }

  mlir::Value bias() {
    mlir::Value bias = input_or_null(op_, 2);
    if (!bias || op_.is("MatMul")) return {};
    if (const float beta = node_.get_float("beta", 1.0f); op_.is("Gemm") && beta != 1.0f)
      bias = split_.one("Mul", 14, {bias, split_.constant(Tensor::scalar_f32(beta))});
    if (!op_.is("Conv")) return bias;
    const int64_t channels = shape_of(op_->getOperand(1))->front();
    ops::Shape shape = beside(channels);
    if (shape.empty()) return bias;
    return split_.one("Reshape", 13, {bias, split_.constant(Tensor::vector_i64(shape))});
  }

  NodeOp op_;
  Splitter split_;
  const ops::Node node_;
};

bool split_wide_product(NodeOp op, mlir::PatternRewriter& rewriter) { return WideProduct(op, rewriter).run(); }

}  // namespace

std::unique_ptr<mlir::Pass> create_split_wide_products_pass() {
  return make_function_pass("nn-split-wide-products", "products of 16-bit values become integer products of bytes",
                            [](mlir::func::FuncOp func) { return apply_rewrites(func, {split_wide_product}); });
}

}  // namespace tessera::nn
