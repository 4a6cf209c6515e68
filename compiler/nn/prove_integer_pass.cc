// SPDX-License-Identifier: Apache-2.0
// Float convolutions and matrix products of dequantised 8-bit tensors that are integer arithmetic in disguise. Enters:
// Conv, MatMul or Gemm in fp32 whose input is DequantizeLinear with a power-of-two scale and whose constant weights are
// small integers times a power of two for each output channel (exporters with power-of-two scales write these). If no
// partial sum can reach 2^24 units, every fp32 operation is exact in every order, so ConvInteger or MatMulInteger, an
// int32 bias and a DequantizeLinear give the same bits. Leaves those. What cannot be proven stays as it is.
#include <bit>
#include <cmath>
#include <limits>

#include "compiler/nn/pass_util.h"
#include "compiler/nn/passes.h"

namespace tessera::nn {
namespace {

using ops::Tensor;

bool is_power_of_two(float value) {
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
  if (!is_power_of_two(s.scale)) return std::nullopt;
  if (mlir::Value zero = input_or_null(dq, 2)) {
    auto content = constant_value(zero);
    if (!content || content->size() != 1) return std::nullopt;
    s.zero = content->at_int64(0);
  }
  return s;
}

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
  const bool is_unsigned = dtype_of(x.bytes) == ops::DType::kUint8;
  const double low = is_unsigned ? 0 : -128, high = is_unsigned ? 255 : 127, zero = static_cast<double>(x.zero);
  const double largest = std::max(std::fabs(low - zero), std::fabs(high - zero));
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
      if (sum < 16777216.0) out.bias[static_cast<size_t>(c)] = static_cast<int32_t>(b);
    }
    if (sum >= 16777216.0) return std::nullopt;
    out.unit[static_cast<size_t>(c)] = static_cast<float>(unit);
  }
  return out;
}

/// Replaces `op` by integer_op(bytes, weights, zero) + bias, dequantised along `axis`.
void rewrite(NodeOp op, mlir::PatternRewriter& rewriter, const Source& x, llvm::StringRef integer_op,
             const Tensor& weights, const Integers& n, const std::map<std::string, ops::Attribute>& attributes,
             int64_t axis, const ops::Shape& bias_shape) {
  const mlir::Location location = op.getLoc();
  const int version = std::max(13, static_cast<int>(op.getVersion()));
  Tensor zero(dtype_of(x.bytes), {});
  *zero.mutable_data() = static_cast<std::byte>(x.zero);
  mlir::Value sum =
      create_op(rewriter, location, integer_op, "", version,
                {x.bytes, create_constant(rewriter, location, weights), create_constant(rewriter, location, zero)},
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
  NodeOp result = create_op(rewriter, location, "DequantizeLinear", "", version,
                            {sum, create_constant(rewriter, location, scale)}, dequantise);
  rewriter.replaceOp(op, result->getResults());
}

bool prove_convolution(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("Conv") || op->getNumResults() != 1) return false;
  auto x = source_of(op->getOperand(0));
  auto w = constant_value(op->getOperand(1));
  auto shape = shape_of(op->getResult(0));
  if (!x || !w || !shape || w->dtype() != ops::DType::kFloat || w->rank() < 3 || w->size() == 0) return false;
  std::vector<float> bias;
  if (mlir::Value value = input_or_null(op, 2)) {
    auto content = constant_value(value);
    if (!content) return false;
    bias = content->to_floats();
  }
  const int64_t channels = w->shape()[0], reduction = w->size() / channels;
  auto data = w->as<float>();
  auto n = prove(
      *x, channels, reduction, [&](int64_t c, int64_t k) { return data[static_cast<size_t>(c * reduction + k)]; },
      bias);
  if (!n) return false;
  ops::Shape bias_shape(static_cast<size_t>(w->rank()), 1);
  bias_shape[1] = channels;
  rewrite(op, rewriter, *x, "ConvInteger", Tensor::of<int8_t>(ops::DType::kInt8, w->shape(), n->weights), *n,
          to_attributes(op.getOnnxAttributes()), 1, bias_shape);
  return true;
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
  std::vector<float> bias;
  if (gemm) {
    if (node.get_float("alpha", 1) != 1 || node.get_float("beta", 1) != 1 || node.get_int("transA", 0) != 0)
      return false;
    transposed = node.get_int("transB", 0) != 0;
  }
  const int64_t k = w->shape()[transposed ? 1 : 0], channels = w->shape()[transposed ? 0 : 1];
  if (gemm)
    if (mlir::Value value = input_or_null(op, 2)) {
      auto content = constant_value(value);
      if (!content || (content->size() != 1 && (content->size() != channels || content->shape().back() != channels)))
        return false;
      bias = content->to_floats();
      bias.resize(static_cast<size_t>(channels), bias.empty() ? 0.0f : bias[0]);
    }
  auto data = w->as<float>();
  auto at = [&](int64_t c, int64_t i) { return data[static_cast<size_t>(transposed ? c * k + i : i * channels + c)]; };
  auto n = prove(*x, channels, k, at, bias);
  if (!n) return false;
  std::vector<int8_t> columns(n->weights.size());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < k; ++i)
      columns[static_cast<size_t>(i * channels + c)] = n->weights[static_cast<size_t>(c * k + i)];
  rewrite(op, rewriter, *x, "MatMulInteger", Tensor::of<int8_t>(ops::DType::kInt8, {k, channels}, columns), *n, {},
          static_cast<int64_t>(rank_of->size()) - 1, {channels});
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_prove_integer_pass() {
  return make_function_pass(
      "nn-prove-integer", "float products that are exact in fp32 become integer products",
      [](mlir::func::FuncOp func) { return apply_rewrites(func, {prove_convolution, prove_product}); });
}

}  // namespace tessera::nn
