// SPDX-License-Identifier: Apache-2.0
// Quantised products: QLinearConv, QLinearMatMul, QGemm, MatMulIntegerToFloat, DynamicQuantizeMatMul. In: 8-bit tensors
// with scales and zero points (per tensor, weights also per channel or column) and an int32 bias; out: 8-bit or fp32.
// Sums are int32 and wrap; the sum is converted to fp32 once and multiplied by one fp32 factor, whose own rounding
// order differs between the operators.
#include <numeric>
#include <optional>

#include "ops/expansion.h"
#include "ops/kernels/window.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {

namespace {

using namespace quantized;

// Sums wrap, so they are computed unsigned.
uint32_t wrap(int32_t value) { return static_cast<uint32_t>(value); }

/// Throws unless input i is absent, one element, or `count` elements in a vector.
void expect_channels(const InferContext& context, size_t i, int64_t count, const char* what) {
  if (!context.has(i) || !context.input(i).is_static()) return;
  const Shape& shape = context.input(i).shape;
  const int64_t size = element_count(shape);
  if (size == 1 || count < 0 || (size == count && shape.size() == 1)) return;
  context.node.fail(ErrorCode::kInvalidModel, std::string(what) + " has shape " + to_string(shape) +
                                                  "; one element or a vector of " + std::to_string(count) +
                                                  " is possible");
}

/// A bias is not repeated: it has an element for each output channel.
void expect_bias(const InferContext& context, size_t i, int64_t count) {
  if (!context.has(i) || !context.input(i).is_static() || count < 0) return;
  if (element_count(context.input(i).shape) == count) return;
  context.node.fail(ErrorCode::kInvalidModel, "B has shape " + to_string(context.input(i).shape) +
                                                  "; it must hold one int32 for each of the " + std::to_string(count) +
                                                  " output channels");
}

// --- QLinearConv
// ---------------------------------------------------------------------------------------------------------------

std::vector<int64_t> conv_kernel(const Node& node, const Shape& weights) {
  std::vector<int64_t> kernel(weights.begin() + 2, weights.end());
  const std::vector<int64_t> given = node.get_ints("kernel_shape");
  if (given.empty()) return kernel;
  if (given.size() != kernel.size()) node.fail(ErrorCode::kInvalidModel, "kernel_shape and the weights differ in rank");
  for (size_t d = 0; d < kernel.size(); ++d) {
    if (kernel[d] >= 0 && kernel[d] != given[d])
      node.fail(ErrorCode::kInvalidModel, "kernel_shape and the weights differ in spatial axis " + std::to_string(d));
  }
  return given;
}

void infer_conv(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 0, kBytes, "x");
  expect_dtype(context, 3, kBytes, "w");
  expect_parameters(context, 1, bytes_as(context, 0));
  expect_dtype(context, 4, {DType::kFloat}, "w_scale");
  expect_dtype(context, 5, bytes_as(context, 3), "w_zero_point");
  expect_parameters(context, 6, kBytes);
  expect_dtype(context, 8, {DType::kInt32}, "B");
  const TypeInfo& x = context.input(0);
  const TypeInfo& w = context.input(3);
  const DType dtype = context.input(7).dtype;
  context.outputs[0] = TypeInfo::unranked(dtype);
  if (!x.ranked && !w.ranked) return;
  if (x.ranked && w.ranked && x.shape.size() != w.shape.size())
    node.fail(ErrorCode::kInvalidModel, "x " + to_string(x.shape) + " and w " + to_string(w.shape) + " differ in rank");
  const size_t rank = (x.ranked ? x.shape : w.shape).size();
  if (rank < 3) node.fail(ErrorCode::kInvalidModel, "x and w must have at least three axes");
  Shape shape(rank, -1);
  if (x.ranked) shape[0] = x.shape[0];
  if (w.ranked) {
    const int64_t group = node.get_int("group", 1);
    shape[1] = w.shape[0];
    if (group < 1 || (w.shape[0] >= 0 && w.shape[0] % group != 0))
      node.fail(ErrorCode::kInvalidModel, std::to_string(w.shape[0]) + " output channels do not divide into " +
                                              std::to_string(group) + " groups");
    if (x.ranked && x.shape[1] >= 0 && w.shape[1] >= 0 && x.shape[1] != w.shape[1] * group) {
      node.fail(ErrorCode::kInvalidModel, "x has " + std::to_string(x.shape[1]) + " channels, w wants " +
                                              std::to_string(w.shape[1]) + " in each of " + std::to_string(group) +
                                              " groups");
    }
    for (size_t i : {4u, 5u}) expect_channels(context, i, w.shape[0], "a scale or zero point of the output channels");
    expect_bias(context, 8, w.shape[0]);
    const std::vector<int64_t> kernel = conv_kernel(node, w.shape);
    if (x.ranked && std::all_of(kernel.begin(), kernel.end(), [](int64_t k) { return k >= 0; })) {
      const Shape extents = sliding_window(node, spatial_extents(node, x.shape), kernel).output;
      std::copy(extents.begin(), extents.end(), shape.begin() + 2);
    }
  }
  context.outputs[0] = TypeInfo::tensor(dtype, shape);
}

/// Extents of exactly three spatial axes, leading ones filled.
std::vector<int64_t> three(const std::vector<int64_t>& values, int64_t fill) {
  std::vector<int64_t> out(3 - values.size(), fill);
  out.insert(out.end(), values.begin(), values.end());
  return out;
}

/// Extents of a convolution with three spatial axes.
struct ConvGeometry {
  std::vector<int64_t> in, out, kernel, stride, dilation, pad;

  int64_t in_size() const { return in[0] * in[1] * in[2]; }
  int64_t out_size() const { return out[0] * out[1] * out[2]; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
};

/// Adds one tap of the window: `weight` times the elements of a plane that it meets, padding left out.
void add_tap(const ConvGeometry& g, const int32_t* plane, int64_t tap, int32_t weight, std::vector<uint32_t>& sums) {
  const int64_t offset[3] = {tap / (g.kernel[1] * g.kernel[2]) * g.dilation[0] - g.pad[0],
                             tap / g.kernel[2] % g.kernel[1] * g.dilation[1] - g.pad[1],
                             tap % g.kernel[2] * g.dilation[2] - g.pad[2]};
  // Columns whose input lies inside: 0 <= column * stride + offset < in.
  const int64_t first = offset[2] >= 0 ? 0 : (-offset[2] + g.stride[2] - 1) / g.stride[2];
  const int64_t last = offset[2] >= g.in[2] ? 0 : std::min(g.out[2], (g.in[2] - 1 - offset[2]) / g.stride[2] + 1);
  for (int64_t d = 0; d < g.out[0]; ++d) {
    const int64_t id = d * g.stride[0] + offset[0];
    if (id < 0 || id >= g.in[0]) continue;
    for (int64_t h = 0; h < g.out[1]; ++h) {
      const int64_t ih = h * g.stride[1] + offset[1];
      if (ih < 0 || ih >= g.in[1]) continue;
      const int32_t* row = plane + (id * g.in[1] + ih) * g.in[2] + offset[2];
      uint32_t* sum = sums.data() + (d * g.out[1] + h) * g.out[2];
      for (int64_t k = first; k < last; ++k) sum[k] += wrap(row[k * g.stride[2]] * weight);
    }
  }
}

void evaluate_conv(EvalContext& context) {
  const Node& node = context.node;
  const Tensor& x = context.input(0);
  const Tensor& w = context.input(3);
  if (x.rank() > 5) node.fail(ErrorCode::kUnsupported, "more than three spatial axes");
  const int64_t group = node.get_int("group", 1);
  const int64_t channels = x.shape()[1], filters = w.shape()[0], depth = w.shape()[1];
  const DType dtype = context.input(7).dtype();
  const Range range = range_of(dtype);

  const Window window = sliding_window(node, spatial_extents(node, x.shape()), conv_kernel(node, w.shape()));
  Shape shape = {x.shape()[0], filters};
  shape.insert(shape.end(), window.output.begin(), window.output.end());
  const ConvGeometry g{three(window.input, 1),   three(window.output, 1),    three(window.kernel, 1),
                       three(window.strides, 1), three(window.dilations, 1), three(window.pads_begin, 0)};

  const Parameters of_x(context, 1, x.dtype()), of_y(context, 6, dtype);
  const std::vector<float> w_scale = channel_scales(context, 4, filters, "w_scale");
  const std::vector<int32_t> w_zero = channel_zeros(context, 5, filters, w.dtype(), "w_zero_point");
  const std::vector<int32_t> bias =
      context.has(8) ? to_int32s(context.input(8)) : std::vector<int32_t>(static_cast<size_t>(filters), 0);

  std::vector<int32_t> xs = to_int32s(x);
  for (int32_t& v : xs) v -= of_x.zero;  // padding then is 0
  const std::vector<int32_t> ws = to_int32s(w);
  const int64_t out_size = g.out_size(), taps = g.taps();
  std::vector<uint32_t> sums(static_cast<size_t>(out_size));
  std::vector<int32_t> result(static_cast<size_t>(element_count(shape)));
  for (int64_t n = 0; n < shape[0]; ++n) {
    for (int64_t f = 0; f < filters; ++f) {
      std::fill(sums.begin(), sums.end(), wrap(bias[static_cast<size_t>(f)]));
      for (int64_t c = 0; c < depth; ++c) {
        const int32_t* plane = xs.data() + (n * channels + f / (filters / group) * depth + c) * g.in_size();
        for (int64_t t = 0; t < taps; ++t) {
          const int32_t weight = ws[static_cast<size_t>((f * depth + c) * taps + t)] - w_zero[static_cast<size_t>(f)];
          if (weight != 0) add_tap(g, plane, t, weight, sums);
        }
      }
      const float multiplier = of_x.scale * w_scale[static_cast<size_t>(f)] / of_y.scale;
      int32_t* y = result.data() + (n * filters + f) * out_size;
      for (int64_t i = 0; i < out_size; ++i)
        y[i] = requantize(static_cast<int32_t>(sums[static_cast<size_t>(i)]), multiplier, of_y.zero, range);
    }
  }
  context.outputs[0] = from_int32s(dtype, shape, result);
}

// --- matrix products
// -----------------------------------------------------------------------------------------------------------

/// Shape of a matmul result with the unit axes of vectors kept, and the strides of its batch axes in both operands.
struct MatmulShape {
  Shape a, b, full;  // operands as matrices [.., m, k] and [.., k, n]; the result [.., m, n]
  Shape result;      // full without the axes that vectors added
  int64_t m = 1, k = 1, n = 1;

  MatmulShape(const Node& node, Shape a_shape, Shape b_shape) : a(std::move(a_shape)), b(std::move(b_shape)) {
    const bool a_vector = a.size() == 1, b_vector = b.size() == 1;
    if (a.empty() || b.empty()) node.fail(ErrorCode::kInvalidModel, "a matrix product of scalars");
    if (a_vector) a.insert(a.begin(), 1);
    if (b_vector) b.push_back(1);
    m = a[a.size() - 2];
    k = a.back();
    n = b.back();
    if (k >= 0 && b[b.size() - 2] >= 0 && b[b.size() - 2] != k)
      node.fail(ErrorCode::kInvalidModel, "inner extents differ: " + to_string(a) + " times " + to_string(b));
    full = broadcast_shapes(node, {Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2)});
    full.push_back(m);
    full.push_back(n);
    result = full;
    if (b_vector) result.pop_back();
    if (a_vector) result.erase(result.end() - 1 - (b_vector ? 0 : 1));
  }
};

TypeInfo matmul_type(const Node& node, DType dtype, const TypeInfo& a, const TypeInfo& b) {
  if (!a.ranked || !b.ranked) return TypeInfo::unranked(dtype);
  if (a.is_static() && b.is_static()) return TypeInfo::tensor(dtype, MatmulShape(node, a.shape, b.shape).result);
  const bool a_vector = a.shape.size() == 1, b_vector = b.shape.size() == 1;
  if (a.shape.empty() || b.shape.empty()) node.fail(ErrorCode::kInvalidModel, "a matrix product of scalars");
  const int64_t k = b_vector ? b.shape[0] : b.shape[b.shape.size() - 2];
  if (a.shape.back() >= 0 && k >= 0 && a.shape.back() != k)
    node.fail(ErrorCode::kInvalidModel, "inner extents differ: " + to_string(a.shape) + " times " + to_string(b.shape));
  auto batch = [](const TypeInfo& t) {
    return TypeInfo::tensor(t.dtype, t.shape.size() < 2 ? Shape{} : Shape(t.shape.begin(), t.shape.end() - 2));
  };
  const TypeInfo a_batch = batch(a), b_batch = batch(b);
  TypeInfo result = broadcast_types(node, dtype, {&a_batch, &b_batch});
  if (!a_vector) result.shape.push_back(a.shape[a.shape.size() - 2]);
  if (!b_vector) result.shape.push_back(b.shape.back());
  return result;
}

/// A scale or zero point of a matrix operand has one element, or is a vector along the operand's outer matrix axis, or
/// has the operand's shape with extent 1 along the summed axis; whether it is the last.
bool varies_by_batch(const Node& node, const Shape& parameter, const Shape& matrix, bool columns, const char* what) {
  const int64_t outer = columns ? matrix.back() : matrix[matrix.size() - 2];
  if (element_count(parameter) == 1) return false;
  Shape wanted = matrix;
  wanted[matrix.size() - (columns ? 2 : 1)] = 1;
  if (parameter == wanted) return true;
  if (parameter.size() == 1 && parameter[0] == outer) return false;
  node.fail(ErrorCode::kInvalidModel, std::string(what) + " has shape " + to_string(parameter) + "; for an operand " +
                                          to_string(matrix) + " one element, " + std::to_string(outer) +
                                          " elements or " + to_string(wanted) + " are possible");
}

/// Looks values of such a parameter up by flat batch index (in the operand) and row or column.
class MatrixParameter {
 public:
  MatrixParameter(const Node& node, const Tensor& parameter, const Shape& matrix, bool columns, const char* what) {
    if (parameter.size() == 1) return;
    per_batch_ = varies_by_batch(node, parameter.shape(), matrix, columns, what);
    outer_ = columns ? matrix.back() : matrix[matrix.size() - 2];
  }
  size_t operator()(int64_t batch, int64_t index) const {
    return static_cast<size_t>(outer_ == 0 ? 0 : per_batch_ ? batch * outer_ + index : index);
  }

 private:
  int64_t outer_ = 0;
  bool per_batch_ = false;
};

/// Calls f(flat result index, batch of a, batch of b, row, column, int32 sum) for every element; zero points by the
/// given lookups.
template <typename AZero, typename BZero, typename F>
void integer_matmul(const MatmulShape& shape, const std::vector<int32_t>& a, const std::vector<int32_t>& b,
                    AZero&& a_zero, BZero&& b_zero, F&& f) {
  const Shape batch(shape.full.begin(), shape.full.end() - 2);
  const std::vector<int64_t> a_strides = broadcast_strides(Shape(shape.a.begin(), shape.a.end() - 2), batch);
  const std::vector<int64_t> b_strides = broadcast_strides(Shape(shape.b.begin(), shape.b.end() - 2), batch);
  std::vector<uint32_t> sums(static_cast<size_t>(shape.n));
  std::vector<int32_t> row(static_cast<size_t>(shape.k * shape.n));
  for_each_index(batch, [&](int64_t flat, const std::vector<int64_t>& index) {
    int64_t ia = 0, ib = 0;
    for (size_t d = 0; d < index.size(); ++d) {
      ia += index[d] * a_strides[d];
      ib += index[d] * b_strides[d];
    }
    for (int64_t k = 0; k < shape.k; ++k) {
      for (int64_t n = 0; n < shape.n; ++n)
        row[static_cast<size_t>(k * shape.n + n)] =
            b[static_cast<size_t>((ib * shape.k + k) * shape.n + n)] - b_zero(ib, n);
    }
    for (int64_t m = 0; m < shape.m; ++m) {
      std::fill(sums.begin(), sums.end(), 0u);
      for (int64_t k = 0; k < shape.k; ++k) {
        const int32_t left = a[static_cast<size_t>((ia * shape.m + m) * shape.k + k)] - a_zero(ia, m);
        const int32_t* right = row.data() + k * shape.n;
        for (int64_t n = 0; n < shape.n; ++n) sums[static_cast<size_t>(n)] += wrap(left * right[n]);
      }
      for (int64_t n = 0; n < shape.n; ++n)
        f((flat * shape.m + m) * shape.n + n, ia, ib, m, n, static_cast<int32_t>(sums[static_cast<size_t>(n)]));
    }
  });
}

void infer_qlinear_matmul(InferContext& context) {
  expect_dtype(context, 0, kBytes, "a");
  expect_dtype(context, 3, kBytes, "b");
  for (size_t i : {1u, 4u, 6u}) expect_dtype(context, i, {DType::kFloat}, "a scale");
  expect_dtype(context, 2, bytes_as(context, 0), "a_zero_point");
  expect_dtype(context, 5, bytes_as(context, 3), "b_zero_point");
  expect_dtype(context, 7, kBytes, "y_zero_point");
  const TypeInfo &a = context.input(0), &b = context.input(3);
  context.outputs[0] = matmul_type(context.node, context.input(7).dtype, a, b);
  if (!a.is_static() || !b.is_static()) return;
  const MatmulShape shape(context.node, a.shape, b.shape);
  const auto expect = [&](size_t i, const Shape& matrix, bool columns, const char* what) {
    const TypeInfo& parameter = context.input(i);
    if (parameter.is_static()) varies_by_batch(context.node, parameter.shape, matrix, columns, what);
  };
  expect(1, shape.a, false, "a_scale"), expect(2, shape.a, false, "a_zero_point");
  expect(4, shape.b, true, "b_scale"), expect(5, shape.b, true, "b_zero_point");
  expect(6, shape.full, false, "y_scale"), expect(7, shape.full, false, "y_zero_point");
}

void evaluate_qlinear_matmul(EvalContext& context) {
  const Node& node = context.node;
  const Tensor &a = context.input(0), &a_scale = context.input(1), &a_zero = context.input(2);
  const Tensor &b = context.input(3), &b_scale = context.input(4), &b_zero = context.input(5);
  const Tensor &y_scale = context.input(6), &y_zero = context.input(7);
  const MatmulShape shape(node, a.shape(), b.shape());
  const MatrixParameter as(node, a_scale, shape.a, false, "a_scale"), az(node, a_zero, shape.a, false, "a_zero_point");
  const MatrixParameter bs(node, b_scale, shape.b, true, "b_scale"), bz(node, b_zero, shape.b, true, "b_zero_point");
  const MatrixParameter ys(node, y_scale, shape.full, false, "y_scale"),
      yz(node, y_zero, shape.full, false, "y_zero_point");
  const Range range = range_of(y_zero.dtype());
  const std::vector<int32_t> az_values = to_int32s(a_zero), bz_values = to_int32s(b_zero),
                             yz_values = to_int32s(y_zero);
  std::vector<int32_t> out(static_cast<size_t>(element_count(shape.full)));
  integer_matmul(
      shape, to_int32s(a), to_int32s(b), [&](int64_t batch, int64_t m) { return az_values[az(batch, m)]; },
      [&](int64_t batch, int64_t n) { return bz_values[bz(batch, n)]; },
      [&](int64_t flat, int64_t ia, int64_t ib, int64_t m, int64_t n, int32_t sum) {
        const int64_t iy = flat / (shape.m * shape.n);
        const float multiplier =
            a_scale.as<float>()[as(ia, m)] * b_scale.as<float>()[bs(ib, n)] / y_scale.as<float>()[ys(iy, m)];
        out[static_cast<size_t>(flat)] = requantize(sum, multiplier, yz_values[yz(iy, m)], range);
      });
  context.outputs[0] = from_int32s(y_zero.dtype(), shape.result, out);
}

// --- QGemm
// ---------------------------------------------------------------------------------------------------------------------

/// An operand that is added to a result must broadcast to it without making it larger.
void expect_addend(InferContext& context, size_t i, const Shape& result, const char* what) {
  if (!context.has(i) || !context.input(i).ranked) return;
  const Shape& shape = context.input(i).shape;
  bool fits = shape.size() <= result.size();
  for (size_t k = 1; fits && k <= shape.size(); ++k) {
    const int64_t have = shape[shape.size() - k], want = result[result.size() - k];
    fits = have < 0 || want < 0 || have == 1 || have == want;
  }
  if (!fits)
    context.node.fail(ErrorCode::kInvalidModel, std::string(what) + " of shape " + to_string(shape) +
                                                    " does not broadcast to " + to_string(result));
}

void infer_gemm(InferContext& context) {
  const Node& node = context.node;
  expect_dtype(context, 0, kBytes, "A");
  expect_dtype(context, 3, kBytes, "B");
  expect_parameters(context, 1, bytes_as(context, 0));
  expect_dtype(context, 4, {DType::kFloat}, "b_scale");
  expect_dtype(context, 5, bytes_as(context, 3), "b_zero_point");
  expect_dtype(context, 6, {DType::kInt32}, "C");
  expect_parameters(context, 7, kBytes);
  if (context.has(7) != context.has(8)) node.fail(ErrorCode::kInvalidModel, "y_scale and y_zero_point go together");
  Shape shape = {-1, -1};
  int64_t k[2] = {-1, -1};
  for (int side = 0; side < 2; ++side) {
    const TypeInfo& t = context.input(side == 0 ? 0 : 3);
    if (!t.ranked) continue;
    if (t.shape.size() != 2) node.fail(ErrorCode::kInvalidModel, "A and B must be matrices, not " + to_string(t.shape));
    const bool transposed = node.get_int(side == 0 ? "transA" : "transB", 0) != 0;
    shape[static_cast<size_t>(side)] = t.shape[(side == 0) == transposed ? 1 : 0];
    k[side] = t.shape[(side == 0) == transposed ? 0 : 1];
  }
  if (k[0] >= 0 && k[1] >= 0 && k[0] != k[1])
    node.fail(ErrorCode::kInvalidModel,
              "inner extents differ: " + std::to_string(k[0]) + " and " + std::to_string(k[1]));
  for (size_t i : {4u, 5u}) expect_channels(context, i, shape[1], "a scale or zero point of B");
  expect_addend(context, 6, shape, "C");
  context.outputs[0] = TypeInfo::tensor(context.has(8) ? context.input(8).dtype : DType::kFloat, shape);
}

void evaluate_gemm(EvalContext& context) {
  const Node& node = context.node;
  const auto matrix = [&](size_t i, const char* transposes) {
    const Tensor& t = context.input(i);
    if (node.get_int(transposes, 0) == 0) return t;
    return kernel::gather_strided(t, {t.shape()[1], t.shape()[0]}, 0, {1, t.shape()[1]});
  };
  const Tensor a = matrix(0, "transA"), b = matrix(3, "transB");
  const MatmulShape shape(node, a.shape(), b.shape());
  const float alpha = node.get_float("alpha", 1.0f);
  const Parameters of_a(context, 1, a.dtype());
  std::vector<float> multiplier = channel_scales(context, 4, shape.n, "b_scale");
  const std::vector<int32_t> b_zero = channel_zeros(context, 5, shape.n, b.dtype(), "b_zero_point");
  const bool quantises = context.has(8);
  const float y_scale = quantises ? scalar_scale(context, 7, "y_scale") : 1.0f;
  for (float& m : multiplier) {
    m = alpha * of_a.scale * m;
    if (quantises) m = m / y_scale;
  }
  std::vector<int32_t> bias(static_cast<size_t>(shape.m * shape.n), 0);
  if (context.has(6)) {
    const Tensor& c = context.input(6);
    bias = to_int32s(kernel::gather_strided(c, shape.full, 0, broadcast_strides(c.shape(), shape.full)));
  }
  std::vector<int32_t> sums(bias.size());
  integer_matmul(
      shape, to_int32s(a), to_int32s(b), [&](int64_t, int64_t) { return of_a.zero; },
      [&](int64_t, int64_t n) { return b_zero[static_cast<size_t>(n)]; },
      [&](int64_t flat, int64_t, int64_t, int64_t, int64_t, int32_t sum) {
        sums[static_cast<size_t>(flat)] = static_cast<int32_t>(wrap(sum) + wrap(bias[static_cast<size_t>(flat)]));
      });
  if (!quantises) {
    Tensor y(DType::kFloat, shape.full);
    auto out = y.as_mutable<float>();
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<float>(sums[i]) * multiplier[i % static_cast<size_t>(shape.n)];
    context.outputs[0] = std::move(y);
    return;
  }
  const DType dtype = context.input(8).dtype();
  const int32_t y_zero = scalar_zero(context, 8, dtype, "y_zero_point");
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = requantize(sums[i], multiplier[i % static_cast<size_t>(shape.n)], y_zero, range_of(dtype));
  context.outputs[0] = from_int32s(dtype, shape.full, sums);
}

// --- products with an fp32 result
// ----------------------------------------------------------------------------------------------

/// float(sum) * (a_scale * b_scale[n]) (+ bias[n]), each rounded once.
void float_product(EvalContext& context, const std::vector<int32_t>& a, const Shape& a_shape, float a_scale,
                   int32_t a_zero, const Tensor& b, const Tensor& b_scale, const Tensor* b_zero, const Tensor* bias) {
  const Node& node = context.node;
  const MatmulShape shape(node, a_shape, b.shape());
  const MatrixParameter bs(node, b_scale, shape.b, true, "b_scale");
  const std::vector<int32_t> zeros = b_zero != nullptr ? to_int32s(*b_zero) : std::vector<int32_t>{0};
  const MatrixParameter bz(node, b_zero != nullptr ? *b_zero : Tensor(b.dtype(), {}), shape.b, true, "b_zero_point");
  if (bias != nullptr && bias->size() != shape.n)
    node.fail(ErrorCode::kInvalidModel, "bias must hold one float32 for each column");
  Tensor y(DType::kFloat, shape.result);
  auto out = y.as_mutable<float>();
  integer_matmul(
      shape, a, to_int32s(b), [&](int64_t, int64_t) { return a_zero; },
      [&](int64_t batch, int64_t n) { return zeros[bz(batch, n)]; },
      [&](int64_t flat, int64_t, int64_t ib, int64_t, int64_t n, int32_t sum) {
        const float multiplier = a_scale * b_scale.as<float>()[bs(ib, n)];
        float value = static_cast<float>(sum) * multiplier;
        if (bias != nullptr) value += bias->as<float>()[static_cast<size_t>(n)];
        out[static_cast<size_t>(flat)] = value;
      });
  context.outputs[0] = std::move(y);
}

void infer_integer_to_float(InferContext& context) {
  expect_dtype(context, 0, kBytes, "A");
  expect_dtype(context, 1, kBytes, "B");
  for (size_t i : {2u, 3u, 6u}) expect_dtype(context, i, {DType::kFloat}, "a scale or bias");
  expect_dtype(context, 4, bytes_as(context, 0), "a_zero_point");
  expect_dtype(context, 5, bytes_as(context, 1), "b_zero_point");
  for (size_t i : {2u, 4u}) expect_scalar(context, i, "a scale or zero point of A");
  context.outputs[0] = matmul_type(context.node, DType::kFloat, context.input(0), context.input(1));
}

void evaluate_integer_to_float(EvalContext& context) {
  const Tensor& a = context.input(0);
  float_product(context, to_int32s(a), a.shape(), scalar_scale(context, 2, "a_scale"),
                scalar_zero(context, 4, a.dtype(), "a_zero_point"), context.input(1), context.input(3),
                context.has(5) ? &context.input(5) : nullptr, context.has(6) ? &context.input(6) : nullptr);
}

void infer_dynamic_matmul(InferContext& context) {
  expect_dtype(context, 0, {DType::kFloat}, "A");
  expect_dtype(context, 1, kBytes, "B");
  for (size_t i : {2u, 4u}) expect_dtype(context, i, {DType::kFloat}, "b_scale or bias");
  expect_dtype(context, 3, bytes_as(context, 1), "b_zero_point");
  context.outputs[0] = matmul_type(context.node, DType::kFloat, context.input(0), context.input(1));
}

void evaluate_dynamic_matmul(EvalContext& context) {
  const Tensor& a = context.input(0);
  const DynamicParameters p = dynamic_parameters(a.as<float>());
  std::vector<int32_t> values(static_cast<size_t>(a.size()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = quantize(a.as<float>()[i], p.scale, p.zero, {0, 255});
  float_product(context, values, a.shape(), p.scale, p.zero, context.input(1), context.input(2),
                context.has(3) ? &context.input(3) : nullptr, context.has(4) ? &context.input(4) : nullptr);
}

/// From opset 21 on scales may be of 16 bits; each is widened, which is exact.
std::optional<Expansion> expand_linear_matmul_21(const Node& node, const std::vector<TypeInfo>& inputs) {
  Expander e(node, inputs, 13);
  std::vector<Expander::Operand> operands = e.inputs();
  for (const size_t i : {1, 4, 6}) {
    if (i >= inputs.size() || !inputs[i].present)
      node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " is missing");
    if (inputs[i].dtype == DType::kFloat16 || inputs[i].dtype == DType::kBfloat16)
      operands[i] = e.step("Cast", {operands[i]}, {{"to", static_cast<int64_t>(DType::kFloat)}});
  }
  return e.finish(e.steps("QLinearMatMul", std::move(operands), {}, 1, "", 10));
}

}  // namespace

void register_quantized_linear(Registry& registry) {
  const std::string ms = "com.microsoft";
  const std::set<std::string> conv = {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"};
  add_expansion(registry, "QLinearMatMul", 21, {8, 8}, expand_linear_matmul_21);
  kernel::add_operator(registry, "", "QLinearConv", 10, {8, 9}, infer_conv, evaluate_conv, conv);
  kernel::add_operator(registry, "", "QLinearMatMul", 10, {8, 8}, infer_qlinear_matmul, evaluate_qlinear_matmul);
  kernel::add_operator(registry, ms, "QGemm", 1, {6, 9}, infer_gemm, evaluate_gemm, {"alpha", "transA", "transB"});
  kernel::add_operator(registry, ms, "MatMulIntegerToFloat", 1, {4, 7}, infer_integer_to_float,
                       evaluate_integer_to_float);
  kernel::add_operator(registry, ms, "DynamicQuantizeMatMul", 1, {3, 5}, infer_dynamic_matmul, evaluate_dynamic_matmul);
}

}  // namespace tessera::ops
