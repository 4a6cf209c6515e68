// SPDX-License-Identifier: Apache-2.0
// Dynamic quantisation: the input's zero point z is computed at run time, and the machine's instructions hold theirs as
// constants. Enters: MatMulInteger or ConvInteger of an 8-bit tensor, constant weights and a run-time scalar z. Leaves:
// the same operator without z, and behind it an int32 subtraction of z * t, where t is the sum of (w - w_zero) over the
// elements inside the image. int32 arithmetic is modulo 2^32, in which sum((x - z) * w) = sum(x * w) - z * sum(w)
// always holds, so every bit is kept. Without padding t has one element for each output channel; with padding it
// differs where the window leaves the image, and is a map of the size of one result image. Of two run-time matrices z
// may belong to either, and t, the other one's sums over k, is computed at run time too.
#include <algorithm>

#include "compiler/nn/passes/pass_util.h"
#include "compiler/nn/passes/passes.h"

namespace tessera::nn {
namespace {

using ops::DType;
using ops::Shape;
using ops::Tensor;

/// The largest map of border sums that is worth its memory, bytes.
constexpr int64_t kLargestMapBytes = int64_t{64} << 20;

/// Constant weights minus their zero point, which has 1 element or one for each of `channels` (index: channel_of(i)).
template <typename ChannelOf>
std::optional<std::vector<int64_t>> centred_weights(NodeOp op, int64_t channels, const ChannelOf& channel_of) {
  const auto w = constant_value(op->getOperand(1));
  std::vector<int64_t> out = w->to_int64s();
  mlir::Value value = input_or_null(op, 3);
  if (!value) return out;
  const auto zero = constant_value(value);
  if (!zero || (zero->size() != 1 && zero->size() != channels)) return std::nullopt;
  const std::vector<int64_t> z = zero->to_int64s();
  for (size_t i = 0; i < out.size(); ++i)
    out[i] -= z.size() == 1 ? z[0] : z[static_cast<size_t>(channel_of(static_cast<int64_t>(i)))];
  return out;
}

/// t of a matrix product by w [k, n]: [n].
std::optional<Tensor> column_sums(NodeOp op) {
  const auto w = constant_value(op->getOperand(1));
  if (w->rank() != 2) return std::nullopt;
  const int64_t n = w->shape()[1];
  const auto centred = centred_weights(op, n, [n](int64_t i) { return i % n; });
  if (!centred) return std::nullopt;
  Tensor t(DType::kInt32, {n});
  auto sums = t.as_mutable<int32_t>();
  std::fill(sums.begin(), sums.end(), 0);
  for (size_t i = 0; i < centred->size(); ++i) sums[i % static_cast<size_t>(n)] += static_cast<int32_t>((*centred)[i]);
  return t;
}

/// Centred weights [oc][depth][taps], summed over the input channels: [oc][taps].
std::vector<int32_t> tap_sums(const std::vector<int64_t>& centred, int64_t channels, int64_t taps) {
  const int64_t inner = channels == 0 ? 0 : static_cast<int64_t>(centred.size()) / channels;
  std::vector<int32_t> sums(static_cast<size_t>(channels * taps), 0);
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t i = 0; i < inner; ++i)
      sums[static_cast<size_t>(c * taps + i % taps)] +=
          static_cast<int32_t>(centred[static_cast<size_t>(c * inner + i)]);
  return sums;
}

/// t where no window leaves the image: [oc, 1, ..].
Tensor sums_inside(const std::vector<int32_t>& sums, int64_t channels, int64_t taps, size_t dims) {
  Shape shape(dims + 1, 1);
  shape[0] = channels;
  Tensor t(DType::kInt32, shape);
  auto to = t.as_mutable<int32_t>();
  for (int64_t c = 0; c < channels; ++c) {
    to[static_cast<size_t>(c)] = 0;
    for (int64_t i = 0; i < taps; ++i) to[static_cast<size_t>(c)] += sums[static_cast<size_t>(c * taps + i)];
  }
  return t;
}

/// Windows over an image of `extents` that give results of `shape` = [oc, spatial extents..].
struct Windows {
  Shape extents, kernel, strides, dilations, before, shape;

  /// Whether a tap of the window of a pixel of the result lies in the image.
  bool inside(int64_t pixel, int64_t tap) const {
    for (size_t d = extents.size(); d-- > 0;) {
      const int64_t at = pixel % shape[d + 1] * strides[d] - before[d] + tap % kernel[d] * dilations[d];
      if (at < 0 || at >= extents[d]) return false;
      pixel /= shape[d + 1];
      tap /= kernel[d];
    }
    return true;
  }
};

/// The windows of a convolution with padding; nothing where an extent or an attribute is not known.
std::optional<Windows> windows_of(const ops::Node& node, const Shape& in, const Shape& out, const Shape& kernel,
                                  const Shape& pads, int64_t channels) {
  const size_t dims = kernel.size();
  const std::string automatic = node.get_string("auto_pad", "NOTSET");
  Windows w{Shape(in.begin() + 2, in.end()),
            kernel,
            node.get_ints("strides", Shape(dims, 1)),
            node.get_ints("dilations", Shape(dims, 1)),
            Shape(dims),
            {channels}};
  if (pads.size() != 2 * dims || w.strides.size() != dims || w.dilations.size() != dims) return std::nullopt;
  for (size_t d = 0; d < dims; ++d) {
    const int64_t extent = in[d + 2], result = out[d + 2];
    if (extent <= 0 || result <= 0) return std::nullopt;
    w.shape.push_back(result);
    const int64_t total =
        std::max<int64_t>(0, (result - 1) * w.strides[d] + (kernel[d] - 1) * w.dilations[d] + 1 - extent);
    w.before[d] = automatic == "SAME_UPPER" ? total / 2 : automatic == "SAME_LOWER" ? total - total / 2 : pads[d];
  }
  return w;
}

/// t of a convolution: [oc, 1, ..], or [oc, spatial extents of the result..] where windows leave the image.
std::optional<Tensor> window_sums(NodeOp op) {
  const auto w = constant_value(op->getOperand(1));
  const auto in = shape_of(op->getOperand(0)), out = shape_of(op->getResult(0));
  if (w->rank() < 3 || !in || !out || in->size() != out->size() || static_cast<int64_t>(in->size()) != w->rank())
    return std::nullopt;
  const size_t dims = in->size() - 2;
  const int64_t channels = w->shape()[0];
  const auto centred = centred_weights(op, channels, [&](int64_t i) { return i / (w->size() / channels); });
  if (!centred) return std::nullopt;
  const Shape kernel(w->shape().begin() + 2, w->shape().end());
  const int64_t taps = ops::element_count(kernel);
  const std::vector<int32_t> sums = tap_sums(*centred, channels, taps);

  const ops::Node node = to_node(op);
  const Shape pads = node.get_ints("pads", Shape(2 * dims, 0));
  const std::string automatic = node.get_string("auto_pad", "NOTSET");
  const bool padded = automatic == "SAME_UPPER" || automatic == "SAME_LOWER" ||
                      (automatic != "VALID" && std::any_of(pads.begin(), pads.end(), [](int64_t p) { return p != 0; }));
  if (!padded) return sums_inside(sums, channels, taps, dims);
  const auto windows = windows_of(node, *in, *out, kernel, pads, channels);
  if (!windows || ops::element_count(windows->shape) * 4 > kLargestMapBytes) return std::nullopt;
  Tensor t(DType::kInt32, windows->shape);
  auto to = t.as_mutable<int32_t>();
  std::fill(to.begin(), to.end(), 0);
  const int64_t pixels = ops::element_count(windows->shape) / std::max<int64_t>(1, channels);
  for (int64_t pixel = 0; pixel < pixels; ++pixel)
    for (int64_t tap = 0; tap < taps; ++tap) {
      if (!windows->inside(pixel, tap)) continue;
      for (int64_t c = 0; c < channels; ++c)
        to[static_cast<size_t>(c * pixels + pixel)] += sums[static_cast<size_t>(c * taps + tap)];
    }
  return t;
}

/// A scalar that is known at run time only.
bool is_run_time_scalar(mlir::Value zero) {
  if (!zero || constant_value(zero)) return false;
  const auto shape = shape_of(zero);
  return shape && (shape->empty() || (shape->size() == 1 && (*shape)[0] == 1));
}

/// One zero point of a product of two run-time matrices; the other one's turn comes when the rewrites are applied
/// again.
bool split_between_activations(NodeOp op, mlir::PatternRewriter& rewriter) {
  if (!op.is("MatMulInteger") || op->getNumOperands() < 3) return false;
  const mlir::Value operands[2] = {op->getOperand(0), op->getOperand(1)},
                    zeros[2] = {input_or_null(op, 2), input_or_null(op, 3)};
  const auto left = shape_of(operands[0]), right = shape_of(operands[1]);
  if (constant_value(operands[1]) || !is_byte(dtype_of(operands[0])) || !is_byte(dtype_of(operands[1])) || !left ||
      !right || left->size() < 2 || right->size() < 2 || left->back() < 1)
    return false;
  const size_t side = is_run_time_scalar(zeros[0]) ? 0 : 1;
  const mlir::Value zero = zeros[side], other = zeros[1 - side];
  if (!is_run_time_scalar(zero)) return false;
  if (other && !is_run_time_scalar(other) && (!constant_value(other) || constant_value(other)->size() != 1))
    return false;
  const int version = std::max(13, static_cast<int>(op.getVersion()));
  const mlir::Location inner = location_for(op.getOperation(), {mlir::Value()});
  const mlir::Location outer = location_for(op.getOperation(), {op->getResult(0)});
  const auto wide = [&](mlir::Value value) {
    return create_op(rewriter, inner, "Cast", "", version, {value}, {{"to", static_cast<int64_t>(DType::kInt32)}})
        ->getResult(0);
  };
  const auto binary = [&](const char* type, mlir::Value a, mlir::Value b, mlir::Location location) {
    return create_op(rewriter, location, type, "", version, {a, b})->getResult(0);
  };
  const mlir::Value raw =
      create_op(rewriter, inner, "MatMulInteger", "", static_cast<int>(op.getVersion()),
                {operands[0], operands[1], side == 0 ? mlir::Value() : other, side == 1 ? mlir::Value() : other})
          ->getResult(0);
  const mlir::Value axis = create_constant(
      rewriter, inner, Tensor::of<int64_t>(DType::kInt64, {1}, std::vector<int64_t>{side == 0 ? -2 : -1}));
  mlir::Value sums =
      create_op(rewriter, inner, "ReduceSum", "", version, {wide(operands[1 - side]), axis}, {{"keepdims", int64_t{1}}})
          ->getResult(0);
  if (other) {
    const mlir::Value count = create_constant(
        rewriter, inner,
        Tensor::of<int32_t>(DType::kInt32, {}, std::vector<int32_t>{static_cast<int32_t>(left->back())}));
    sums = binary("Sub", sums, binary("Mul", wide(other), count, inner), inner);
  }
  rewriter.replaceOp(op, binary("Sub", raw, binary("Mul", wide(zero), sums, inner), outer));
  return true;
}

bool split_zero_point(NodeOp op, mlir::PatternRewriter& rewriter) {
  const bool product = op.is("MatMulInteger");
  if (!product && !op.is("ConvInteger")) return false;
  mlir::Value zero = input_or_null(op, 2);
  const auto w = constant_value(op->getOperand(1));
  if (!zero || constant_value(zero) || !w || w->size() == 0 || !is_byte(w->dtype()) ||
      !is_byte(dtype_of(op->getOperand(0))))
    return false;
  const auto shape = shape_of(zero);
  if (!shape || shape->size() > 1 || (shape->size() == 1 && (*shape)[0] != 1)) return false;
  const auto t = product ? column_sums(op) : window_sums(op);
  if (!t) return false;
  const int version = std::max(13, static_cast<int>(op.getVersion()));
  // What is subtracted from and what is subtracted are no values of the model; the difference is.
  const mlir::Location inner = location_for(op.getOperation(), {mlir::Value()});
  const mlir::Location outer = location_for(op.getOperation(), {op->getResult(0)});
  mlir::Value raw = create_op(rewriter, inner, op.getOpType(), "", static_cast<int>(op.getVersion()),
                              {op->getOperand(0), op->getOperand(1), mlir::Value(), input_or_null(op, 3)},
                              to_attributes(op.getOnnxAttributes()))
                        ->getResult(0);
  mlir::Value wide =
      create_op(rewriter, inner, "Cast", "", version, {zero}, {{"to", static_cast<int64_t>(DType::kInt32)}})
          ->getResult(0);
  mlir::Value part =
      create_op(rewriter, inner, "Mul", "", version, {wide, create_constant(rewriter, inner, *t)})->getResult(0);
  mlir::Value result = create_op(rewriter, outer, "Sub", "", version, {raw, part})->getResult(0);
  rewriter.replaceOp(op, result);
  return true;
}

}  // namespace

std::unique_ptr<mlir::Pass> create_split_zero_points_pass() {
  return make_function_pass(
      "nn-split-zero-points", "take run-time zero points out of integer products",
      [](mlir::func::FuncOp func) { return apply_rewrites(func, {split_zero_point, split_between_activations}); });
}

}  // namespace tessera::nn
