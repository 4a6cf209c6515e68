// SPDX-License-Identifier: Apache-2.0
// Quantised operators on the CPU: integers minus zero points as int32, sums that wrap, and the fp32 formulas of
// docs/numerics.md in the order of ops/quantized/quantized_math.cc and family_quantized*.cc. Scales and zero points are
// read at run time, one element or one for each channel; their factor is computed once for a channel.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "compiler/cpu/expressions/products.h"
#include "compiler/cpu/expressions/reduction.h"
#include "ops/kernels/reduction.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::cpu {

namespace {

using ops::quantized::is_8bit;
using ops::quantized::range_of;

Scalar as_int(Scalar v) { return cast(v, DType::kInt32); }

/// The one element of input i: a scale, or a zero point as int32 (0 when absent).
Scalar scale(Operator& o, Body& body, size_t i) {
  require(o.in(i).dtype == DType::kFloat);
  return body.load(o.in(i), only_element(body, o.in(i)));
}
Scalar zero_point(Operator& o, Body& body, size_t i) {
  if (!o.has(i)) return body.integer(DType::kInt32, 0);
  return as_int(body.load(o.in(i), only_element(body, o.in(i))));
}
/// The element of a parameter with one element, or with one for each of `count` channels, at `channel`.
Scalar per_channel(Body& body, const Tensor& parameter, int64_t count, Index channel) {
  if (parameter.size() == 1) return body.load(parameter, only_element(body, parameter));
  require(parameter.rank() == 1 && parameter.size() == count);
  return body.load(parameter, {channel});
}

Scalar requantize(Scalar sum, Scalar multiplier, Scalar zero, DType dtype) {
  return cast(ops::scalar::requantize(sum, multiplier, zero, range_of(dtype)), dtype);
}
Scalar quantize(Scalar x, Scalar scale, Scalar zero, DType dtype) {
  return cast(ops::scalar::quantize(x, scale, zero, range_of(dtype)), dtype);
}
Scalar dequantize(Scalar x, Scalar scale, Scalar zero) { return ops::scalar::dequantize(as_int(x), scale, zero); }
Scalar saturate(Scalar v, DType dtype) {
  const ops::quantized::Range range = range_of(dtype);
  return cast(smaller(larger(v, v.same(range.low)), v.same(range.high)), dtype);
}

// --- QuantizeLinear, DequantizeLinear
// ------------------------------------------------------------------------------------------

/// Reads scale (input 1) and zero point (input 2, or 0) of the element at i: per tensor or per axis.
struct Parameters {
  size_t axis = 0;
  bool whole = false;
  explicit Parameters(const Operator& o) {
    require(o.node.get_int("block_size", 0) == 0);
    const Tensor& s = o.in(1);
    require(s.dtype == DType::kFloat);
    whole = s.size() == 1 && s.rank() <= 1;
    if (whole) return;
    axis = ops::axis_attribute(o.node, 1, o.in(0).shape);
    require(s.rank() == 1 && s.size() == o.in(0).shape[axis]);
  }
  Scalar operator()(Body& body, const Tensor& t, const Indices& i) const {
    if (whole) return body.load(t, only_element(body, t));
    require(t.rank() == 1);
    return body.load(t, {i[axis]});
  }
};

void quantize_linear(Operator& o) {
  const Tensor x = o.in(0);
  require(x.dtype == DType::kFloat || x.dtype == DType::kInt32);
  range_of(o.dtype());
  const Parameters parameter(o);
  o.yield(o.graph.compute(o.dtype(), x.shape, [&](Body& body, const Indices& i) {
    const Scalar zero = o.has(2) ? as_int(parameter(body, o.in(2), i)) : body.integer(DType::kInt32, 0);
    return quantize(as_float(body.load(x, i)), parameter(body, o.in(1), i), zero, o.dtype());
  }));
}

void dequantize_linear(Operator& o) {
  const Tensor x = o.in(0);
  require(o.dtype() == DType::kFloat && (ops::is_integer(x.dtype) && ops::element_bytes(x.dtype) <= 4));
  require(x.dtype != DType::kUint32 && ops::packed_bits(x.dtype) >= 8);
  const Parameters parameter(o);
  o.yield(o.graph.compute(DType::kFloat, x.shape, [&](Body& body, const Indices& i) {
    const Scalar zero = o.has(2) ? as_int(parameter(body, o.in(2), i)) : body.integer(DType::kInt32, 0);
    return dequantize(body.load(x, i), parameter(body, o.in(1), i), zero);
  }));
}

/// uint8 quantisation by the range of x, widened to include 0: scale and zero point, both [].
std::pair<Tensor, Tensor> dynamic_parameters(Graph& graph, const Tensor& x) {
  require(x.dtype == DType::kFloat);
  const Tensor flat = graph.reshape(x, {x.size()});
  const auto extreme = [&](bool top) {
    const auto fold = [&](const Tensor& t, const Shape& shape, const Shape& extents,
                          const std::function<Indices(const Indices&, const Indices&)>& at) {
      return graph.reduce(DType::kFloat, shape, extents, zero(DType::kFloat),
                          [&](Body& body, const Indices& i, const Indices& k, Scalar best) {
                            const Scalar v = body.load(t, at(i, k));
                            return top ? larger(best, v) : smaller(best, v);
                          });
    };
    int64_t lanes = 64;  // an extreme does not depend on the order: lanes first
    while (x.size() % lanes != 0) lanes /= 2;
    const Tensor rows = graph.reshape(flat, {x.size() / lanes, lanes});
    const Tensor partial =
        fold(rows, {lanes}, {x.size() / lanes}, [](const Indices& i, const Indices& k) { return Indices{k[0], i[0]}; });
    return fold(partial, {}, {lanes}, [](const Indices&, const Indices& k) { return k; });
  };
  const Tensor low = extreme(false), high = extreme(true);
  const Tensor scale = graph.compute(DType::kFloat, {}, [&](Body& body, const Indices&) {
    const Scalar l = body.load(low, {}), h = body.load(high, {});
    return select(h == l, h.same(1), (h - l) / h.same(255));
  });
  const Tensor zero = graph.compute(DType::kUint8, {}, [&](Body& body, const Indices&) {
    const Scalar l = body.load(low, {}), z = l.same(0) - l / body.load(scale, {});
    const Scalar bounded = larger(z.same(0), smaller(z.same(255), z));
    return cast(to_int32_unchecked(round_even(bounded)), DType::kUint8);
  });
  return {scale, zero};
}

void dynamic_quantize(Operator& o) {
  const Tensor x = o.in(0);
  const auto [scale, zero] = dynamic_parameters(o.graph, x);
  const Tensor s = scale, z = zero;
  o.yield(o.graph.compute(DType::kUint8, x.shape, [&](Body& body, const Indices& i) {
    return quantize(body.load(x, i), body.load(s, {}), as_int(body.load(z, {})), DType::kUint8);
  }));
  if (o.op->getNumResults() > 1) o.yield(s);
  if (o.op->getNumResults() > 2) o.yield(z);
}

// --- products
// ------------------------------------------------------------------------------------------------------------------

/// int32 sums of (x - x_zero) * (w - w_zero), padded with x's zero point; [batch, channels, spatial...].
Tensor convolution_sums(Operator& o, const Tensor& x, const Tensor& w, const std::optional<Tensor>& x_zero,
                        const std::optional<Tensor>& w_zero) {
  require(is_8bit(x.dtype) && is_8bit(w.dtype));
  const Convolution c(o.graph, o.node, x, w, [&](Body& body) {
    return x_zero ? body.load(*x_zero, only_element(body, *x_zero)) : body.number(x.dtype, 0);
  });
  const int64_t filters = w.shape[0];
  std::optional<Tensor> zeros;
  if (w_zero && w_zero->size() != 1) {
    require(w_zero->rank() == 1 && w_zero->size() == filters);
    zeros = o.graph.reshape(*w_zero, {c.groups, filters / c.groups});
  }
  const Tensor sums = o.graph.reduce(DType::kInt32, c.result, c.extents, zero(DType::kInt32),
                                     [&](Body& body, const Indices& i, const Indices& k, Scalar sum) {
                                       Scalar a = as_int(body.load(c.x, c.input(i, k))),
                                              b = as_int(body.load(c.w, c.weight(i, k)));
                                       if (x_zero) a = a - as_int(body.load(*x_zero, only_element(body, *x_zero)));
                                       if (zeros)
                                         b = b - as_int(body.load(*zeros, {i[1], i[2]}));
                                       else if (w_zero)
                                         b = b - as_int(body.load(*w_zero, only_element(body, *w_zero)));
                                       return sum + a * b;
                                     });
  return c.values(o.graph, sums);
}

void qlinear_conv(Operator& o) {
  const Shape shape = o.shape();
  const int64_t filters = shape[1];
  const Tensor sums = convolution_sums(o, o.in(0), o.in(3), o.optional_in(2), o.optional_in(5));
  const Tensor multiplier = o.graph.compute(DType::kFloat, {filters}, [&](Body& body, const Indices& i) {
    require(o.in(4).dtype == DType::kFloat);
    return scale(o, body, 1) * per_channel(body, o.in(4), filters, i[0]) / scale(o, body, 6);
  });
  if (o.has(8)) require(o.in(8).dtype == DType::kInt32 && o.in(8).rank() == 1);
  o.yield(o.graph.compute(o.dtype(), shape, [&](Body& body, const Indices& i) {
    Scalar sum = body.load(sums, i);
    if (o.has(8)) sum = sum + body.load(o.in(8), {i[1]});
    return requantize(sum, body.load(multiplier, {i[1]}), zero_point(o, body, 7), o.dtype());
  }));
}

void conv_integer(Operator& o) { o.yield(convolution_sums(o, o.in(0), o.in(1), o.optional_in(2), o.optional_in(3))); }

/// A parameter of a matrix operand: one element, or one for each row of a (column of b).
Scalar matrix_parameter(Body& body, const Tensor& t, int64_t count, Index index) {
  return per_channel(body, t, count, index);
}

/// int32 sums [batch..., m, n] of (a - a_zero) * (b - b_zero).
Tensor matrix_sums(Graph& graph, const Matrices& p, const std::optional<Tensor>& a_zero,
                   const std::optional<Tensor>& b_zero) {
  require(is_8bit(p.a.dtype) && is_8bit(p.b.dtype));
  return graph.reduce(DType::kInt32, p.full, {p.k}, zero(DType::kInt32),
                      [&](Body& body, const Indices& i, const Indices& k, Scalar sum) {
                        Scalar a = as_int(body.load(p.a, p.left(i, k[0]))),
                               b = as_int(body.load(p.b, p.right(i, k[0])));
                        if (a_zero) a = a - as_int(matrix_parameter(body, *a_zero, p.m, i[p.batch]));
                        if (b_zero) b = b - as_int(matrix_parameter(body, *b_zero, p.n, i[p.batch + 1]));
                        return sum + a * b;
                      });
}

void qlinear_matmul(Operator& o) {
  const Matrices p(o.graph, o.in(0), o.in(3));
  for (size_t i : {1u, 4u, 6u}) require(o.in(i).dtype == DType::kFloat);
  const Tensor sums = matrix_sums(o.graph, p, o.in(2), o.in(5));
  const Tensor y = o.graph.compute(o.dtype(), p.full, [&](Body& body, const Indices& i) {
    const Index row = i[p.batch], column = i[p.batch + 1];
    const Scalar multiplier = matrix_parameter(body, o.in(1), p.m, row) * matrix_parameter(body, o.in(4), p.n, column) /
                              matrix_parameter(body, o.in(6), p.m, row);
    return requantize(body.load(sums, i), multiplier, as_int(matrix_parameter(body, o.in(7), p.m, row)), o.dtype());
  });
  o.yield(o.graph.reshape(y, o.shape()));
}

void matmul_integer(Operator& o) {
  for (size_t i : {2u, 3u}) require(!o.has(i) || o.in(i).rank() <= 1);
  o.yield(o.graph.reshape(matrix_sums(o.graph, Matrices(o.graph, o.in(0), o.in(1)), o.optional_in(2), o.optional_in(3)),
                          o.shape()));
}

void qgemm(Operator& o) {
  const Tensor a = o.node.get_int("transA", 0) != 0 ? o.graph.transpose(o.in(0), {1, 0}) : o.in(0);
  const Tensor b = o.node.get_int("transB", 0) != 0 ? o.graph.transpose(o.in(3), {1, 0}) : o.in(3);
  const Matrices p(o.graph, a, b);
  const Tensor sums = matrix_sums(o.graph, p, o.optional_in(2), o.optional_in(5));
  const bool quantises = o.has(8);
  require(o.has(7) == quantises && o.in(4).dtype == DType::kFloat);
  const float alpha = o.node.get_float("alpha", 1.0f);
  const Tensor multiplier = o.graph.compute(DType::kFloat, {p.n}, [&](Body& body, const Indices& i) {
    const Scalar m = body.number(DType::kFloat, alpha) * scale(o, body, 1) * per_channel(body, o.in(4), p.n, i[0]);
    return quantises ? m / scale(o, body, 7) : m;
  });
  o.yield(o.graph.compute(o.dtype(), p.full, [&](Body& body, const Indices& i) {
    Scalar sum = body.load(sums, i);
    if (o.has(6)) sum = sum + body.broadcast(o.in(6), i);
    const Scalar m = body.load(multiplier, {i[1]});
    return quantises ? requantize(sum, m, zero_point(o, body, 8), o.dtype()) : as_float(sum) * m;
  }));
}

void matmul_to_float(Operator& o) {
  const Matrices p(o.graph, o.in(0), o.in(1));
  require(o.in(3).dtype == DType::kFloat);
  const Tensor sums = matrix_sums(o.graph, p, o.optional_in(4), o.optional_in(5));
  const Tensor y = o.graph.compute(DType::kFloat, p.full, [&](Body& body, const Indices& i) {
    const Index column = i[p.batch + 1];
    Scalar v = as_float(body.load(sums, i)) * (scale(o, body, 2) * matrix_parameter(body, o.in(3), p.n, column));
    if (o.has(6)) {
      require(o.in(6).size() == p.n);
      v = v + body.load(o.graph.reshape(o.in(6), {p.n}), {column});
    }
    return v;
  });
  o.yield(o.graph.reshape(y, o.shape()));
}

// --- element-wise
// --------------------------------------------------------------------------------------------------------------

/// sat(RNE(fma(first, r1, fma(second, r2, fixed)))); the zero point is inside `fixed`, before rounding.
void qlinear_add(Operator& o) {
  require(is_8bit(o.dtype()) && o.in(0).dtype == o.dtype() && o.in(3).dtype == o.dtype());
  const bool swapped = ops::quantized::first_is_scalar(o.in(0).shape, o.in(3).shape);
  const size_t first = swapped ? 3 : 0, second = swapped ? 0 : 3;
  o.yield(o.graph.compute(o.dtype(), o.shape(), [&](Body& body, const Indices& i) {
    const Scalar c = scale(o, body, 6), r1 = scale(o, body, first + 1) / c, r2 = scale(o, body, second + 1) / c;
    const Scalar zeros =
        fma(r1, as_float(zero_point(o, body, first + 2)), r2 * as_float(zero_point(o, body, second + 2)));
    const Scalar fixed = as_float(zero_point(o, body, 7)) - zeros;
    const Scalar x = as_float(as_int(body.broadcast(o.in(first), i))),
                 y = as_float(as_int(body.broadcast(o.in(second), i)));
    return saturate(ops::scalar::round_to_int32(fma(x, r1, fma(y, r2, fixed))), o.dtype());
  }));
}

void qlinear_mul(Operator& o) {
  require(is_8bit(o.dtype()) && o.in(0).dtype == o.dtype() && o.in(3).dtype == o.dtype());
  o.yield(o.graph.compute(o.dtype(), o.shape(), [&](Body& body, const Indices& i) {
    const Scalar multiplier = scale(o, body, 1) * scale(o, body, 4) / scale(o, body, 6);
    const Scalar x = as_int(body.broadcast(o.in(0), i)) - zero_point(o, body, 2),
                 y = as_int(body.broadcast(o.in(3), i)) - zero_point(o, body, 5);
    return saturate(ops::scalar::round_to_int32(as_float(x * y) * multiplier + as_float(zero_point(o, body, 7))),
                    o.dtype());
  }));
}

/// Q(f(DQ(x))): what the library reads from a table of 256 entries.
Lowering through_float(std::function<Scalar(Operator&, Scalar)> f) {
  return [f = std::move(f)](Operator& o) {
    const Tensor x = o.in(0);
    require(is_8bit(x.dtype));
    o.yield(o.graph.compute(x.dtype, x.shape, [&](Body& body, const Indices& i) {
      return quantize(f(o, dequantize(body.load(x, i), scale(o, body, 1), zero_point(o, body, 2))), scale(o, body, 3),
                      zero_point(o, body, 4), x.dtype);
    }));
  };
}

/// An operand of a concatenation or selection in the result's scale. Whether both agree must be known.
std::function<Scalar(Body&, Scalar)> to_result_scale(Operator& o, size_t x_scale, size_t x_zero, size_t y_scale,
                                                     size_t y_zero) {
  const auto number = [&](size_t i) { return o.has(i) ? o.constant(i).at_double(0) : 0.0; };
  if (number(x_scale) == number(y_scale) && number(x_zero) == number(y_zero)) return [](Body&, Scalar v) { return v; };
  return [&o, x_scale, x_zero, y_scale, y_zero](Body& body, Scalar v) {
    return quantize(dequantize(v, scale(o, body, x_scale), zero_point(o, body, x_zero)), scale(o, body, y_scale),
                    zero_point(o, body, y_zero), v.dtype());
  };
}

void qlinear_concat(Operator& o) {
  const Shape shape = o.shape();
  require(is_8bit(o.dtype()) && (o.inputs.size() - 2) % 3 == 0);
  std::vector<Tensor> parts;
  for (size_t i = 2; i < o.inputs.size(); i += 3) {
    const Tensor x = o.in(i);
    const auto convert = to_result_scale(o, i + 1, i + 2, 0, 1);
    parts.push_back(o.graph.compute(x.dtype, x.shape,
                                    [&](Body& body, const Indices& at) { return convert(body, body.load(x, at)); }));
  }
  o.yield(o.graph.concat(parts, ops::axis_attribute(o.node, 0, shape), shape));
}

void qlinear_where(Operator& o) {
  require(is_8bit(o.dtype()));
  const auto x = to_result_scale(o, 2, 3, 7, 8), y = to_result_scale(o, 5, 6, 7, 8);
  o.yield(o.graph.compute(o.dtype(), o.shape(), [&](Body& body, const Indices& i) {
    return select(body.broadcast(o.in(0), i), x(body, body.broadcast(o.in(1), i)), y(body, body.broadcast(o.in(4), i)));
  }));
}

/// fixed_shift: distances are those from the highest byte, not from the row's maximum.
void qlinear_softmax(Operator& o, bool fixed_shift) {
  const Shape shape = o.in(0).shape;
  const DType dtype = o.in(0).dtype;
  require(is_8bit(dtype));
  const bool flattens = o.node.get_int("opset", 13) < 13;
  const auto axis = ops::axis_attribute(o.node, -1, shape);
  const Lines lines(shape, axis, flattens);
  const Tensor x = o.graph.reshape(o.in(0), lines.shape);
  // exp over the 256 distances from the maximum, scaled up so far that the sum of a line still fits a float, and down
  // by a power of two, which leaves room for the steps of the result.
  const float room = std::log(std::numeric_limits<float>::max() / static_cast<float>(lines.shape[1]));
  const double above = std::max(0.0, static_cast<double>(room) - 5.0);
  const Tensor table = o.graph.compute(DType::kFloat, {256}, [&](Body& body, const Indices& i) {
    const Scalar s = cast(scale(o, body, 1), DType::kDouble), n = cast(body.index(i[0]), DType::kDouble);
    const Scalar e = cast(exp(((n - n.same(255)) + n.same(above) / s) * s), DType::kFloat);
    return e * e.same(0x1p-24);
  });
  const ops::quantized::Range range = range_of(dtype);
  Tensor largest;
  if (!fixed_shift) {
    largest = lines.fold(
        o.graph, x, DType::kInt32, [&](Body& body) { return body.integer(DType::kInt32, range.low); },
        [](Body&, Scalar v, const Indices&, Scalar best) { return larger(best, as_int(v)); });
  }
  const auto entry = [&](Body& body, Scalar v, const Indices& line) {
    const Scalar from = fixed_shift ? body.integer(DType::kInt32, range.high) : body.load(largest, line);
    return body.extract(table, {cast(body.integer(DType::kInt32, 255) - from + v, DType::kInt64)});
  };
  const Tensor sum =
      lines.fold(o.graph, x, DType::kFloat, zero(DType::kFloat),
                 [&](Body& body, Scalar v, const Indices& line, Scalar s) { return s + entry(body, as_int(v), line); });
  const Tensor y = o.graph.compute(dtype, lines.shape, [&](Body& body, const Indices& i) {
    const Indices line = {i[0], i[2]};
    const Scalar e = entry(body, as_int(body.load(x, i)), line), s = scale(o, body, 3);
    return quantize(e * floor(s.same(1) / s), body.load(sum, line), zero_point(o, body, 4), dtype);
  });
  o.yield(o.graph.reshape(y, shape));
}

// --- averages
// ------------------------------------------------------------------------------------------------------------------

/// int32 sum of x - zero over the reduced axes, times x_scale / (y_scale * float(count)).
void average(Operator& o, const std::vector<bool>& reduced) {
  const Tensor x = o.in(0);
  require(is_8bit(x.dtype));
  const Axes axes(x.shape, reduced);
  const Tensor sums = o.graph.reduce(DType::kInt32, axes.kept_shape, axes.extents, zero(DType::kInt32),
                                     [&](Body& body, const Indices& i, const Indices& k, Scalar sum) {
                                       return sum + (as_int(body.load(x, axes.merge(i, k))) - zero_point(o, body, 2));
                                     });
  const Tensor y = o.graph.compute(x.dtype, axes.kept_shape, [&](Body& body, const Indices& i) {
    const Scalar s = scale(o, body, 3),
                 multiplier = scale(o, body, 1) / (s * s.same(static_cast<double>(static_cast<float>(axes.count))));
    return requantize(body.load(sums, i), multiplier, zero_point(o, body, 4), x.dtype);
  });
  o.yield(o.graph.reshape(y, o.shape()));
}

/// Spatial axes of an image tensor.
std::vector<bool> spatial_axes(const Operator& o) {
  const bool last = o.node.get_int("channels_last", 0) != 0;
  std::vector<bool> spatial(o.in(0).rank(), true);
  require(spatial.size() >= 3);
  spatial[0] = spatial[last ? spatial.size() - 1 : 1] = false;
  return spatial;
}

void qlinear_average_pool(Operator& o) {
  const Shape kernel = o.node.get_ints("kernel_shape");
  const std::vector<bool> spatial = spatial_axes(o);
  Shape extents;
  for (size_t d = 0; d < spatial.size(); ++d)
    if (spatial[d]) extents.push_back(o.in(0).shape[d]);
  const std::vector<int64_t> pads = o.node.get_ints("pads");
  const std::string mode = o.node.get_string("auto_pad", "NOTSET");
  const bool no_pads =
      std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; }) || (mode != "NOTSET" && !mode.empty());
  if (kernel == extents && no_pads) {  // a window over the whole image is an integer average
    average(o, spatial);
    return;
  }
  // Others sum dequantised elements in fp32; padding with the zero point adds nothing.
  const std::vector<int64_t> dilations = o.node.get_ints("dilations");
  require(o.node.get_int("channels_last", 0) == 0 &&
          std::all_of(dilations.begin(), dilations.end(), [](int64_t d) { return d == 1; }));
  const ops::Window window = ops::pooling_window(o.node, extents);
  const DType dtype = o.in(0).dtype;
  const Tensor sums = pooled(
      o, window, DType::kFloat, zero(DType::kFloat), [&](Body& body) { return cast(zero_point(o, body, 2), dtype); },
      [&](Body& body, Scalar sum, Scalar v) { return sum + dequantize(v, scale(o, body, 1), zero_point(o, body, 2)); });
  const bool include_pad = o.node.get_int("count_include_pad", 0) != 0;
  std::vector<Tensor> counts;
  if (!include_pad) counts = tap_counts(o.graph, window, false);
  o.yield(o.graph.compute(dtype, o.shape(), [&](Body& body, const Indices& i) {
    const Scalar count = include_pad ? body.number(DType::kFloat, static_cast<double>(window.kernel_size()))
                                     : as_float(tap_count(body, counts, llvm::ArrayRef(i).drop_front(2)));
    const Scalar mean = body.load(sums, i) / count;
    return saturate(ops::scalar::round_to_int32(mean / scale(o, body, 3) + as_float(zero_point(o, body, 4))), dtype);
  }));
}

void qlinear_reduce_mean(Operator& o) {
  average(o, ops::ReducedAxes(o.node, o.node.get_ints("axes"), o.in(0).rank(), /*all_without_any=*/true).reduced);
}

}  // namespace

void add_quantized(Lowerings& t) {
  const std::string microsoft = nn::kMicrosoftDomain.str();
  for (const std::string& domain : {std::string(), microsoft}) {
    t.add("QuantizeLinear", quantize_linear, domain);
    t.add("DequantizeLinear", dequantize_linear, domain);
  }
  t.add("DynamicQuantizeLinear", dynamic_quantize);
  t.add("QLinearConv", qlinear_conv);
  t.add("ConvInteger", conv_integer);
  t.add("QLinearMatMul", qlinear_matmul);
  t.add("MatMulInteger", matmul_integer);
  t.add("QGemm", qgemm, microsoft);
  t.add("MatMulIntegerToFloat", matmul_to_float, microsoft);
  t.add("QLinearAdd", qlinear_add, microsoft);
  t.add("QLinearMul", qlinear_mul, microsoft);
  t.add("QLinearLeakyRelu", through_float([](Operator& o, Scalar v) {
          return select(v >= v.same(0), v, v.same(o.node.get_float("alpha", 0.01f)) * v);
        }),
        microsoft);
  t.add("QLinearSigmoid", through_float([](Operator&, Scalar v) { return ops::scalar::logistic(v); }), microsoft);
  t.add("QLinearConcat", qlinear_concat, microsoft);
  t.add("QLinearWhere", qlinear_where, microsoft);
  t.add("QLinearSoftmax", [](Operator& o) { qlinear_softmax(o, false); }, microsoft);
  t.add("FixedShiftSoftmax", [](Operator& o) { qlinear_softmax(o, true); }, "ai.tessera");
  t.add("QLinearGlobalAveragePool", [](Operator& o) { average(o, spatial_axes(o)); }, microsoft);
  t.add("QLinearAveragePool", qlinear_average_pool, microsoft);
  t.add("QLinearReduceMean", qlinear_reduce_mean, microsoft);
}

}  // namespace tessera::cpu
