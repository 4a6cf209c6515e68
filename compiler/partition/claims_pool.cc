// SPDX-License-Identifier: Apache-2.0
// Pools and reductions. Maxima commute with every rising function, so a maximum of dequantised bytes is the maximum of
// the bytes and a table. Averages that the operator defines on integer sums are exact by formula. Those that it defines
// on fp32 sums are exact by proof or stay on the CPU: for each integer sum S that can occur, all fp32 sums of its
// terms, in any order, must round to one byte, and the machine's conversion of S must give that byte.
#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "compiler/partition/claims_util.h"
#include "compiler/partition/parameters.h"
#include "ops/litert/litert_math.h"

namespace tessera::partition {

namespace {

constexpr double kUnit = 1.0 / 16777216.0;  // largest relative error of an fp32 rounding
constexpr int64_t kMostTerms = 16384;       // of a sum whose values are enumerated

int32_t round_even(float v, int32_t low, int32_t high) {
  return static_cast<int32_t>(std::nearbyint(std::clamp(v, static_cast<float>(low), static_cast<float>(high))));
}

/// The machine's conversion of a sum, as isa/semantics.md has it.
int32_t convert(const npu::Stage& stage, int64_t sum, int32_t bias) {
  const float g = static_cast<float>(static_cast<int32_t>(sum + bias)) * stage.multiplier[0];
  return round_even(g, stage.low, stage.high) + stage.out_zero;
}

/// A conversion of S = sum of (x - zero) over `terms` bytes that equals `wanted(S)` for every S; nothing when `wanted`
/// has no answer for one (the operator's own result depends on more than S) or no multiplier near `multiplier` fits.
/// The machine adds up `added` bytes, those beyond `terms` are the zero point.
std::optional<npu::Stage> fit_sum(int64_t terms, int64_t added, const Quantisation& x, const Quantisation& y,
                                  float multiplier, const std::function<std::optional<int32_t>(int64_t)>& wanted) {
  if (terms > kMostTerms) return std::nullopt;
  const Range from = range_of(x.dtype);
  const int64_t low = terms * (from.low - x.z()), high = terms * (from.high - x.z());
  std::vector<int32_t> results;
  for (int64_t s = low; s <= high; ++s) {
    const auto result = wanted(s);
    if (!result) return std::nullopt;
    results.push_back(*result);
  }
  std::vector<npu::Stage> forms{requantise({multiplier}, {0}, y)};
  // The zero point inside the sum, where it is a whole number of units: it is then added before rounding.
  const double units = y.z() / static_cast<double>(multiplier);
  if (y.z() != 0 && std::fabs(units) < 1e6 && std::fabs(units - std::nearbyint(units)) < 1e-3) {
    const Range to = range_of(y.dtype);
    npu::Stage inside = forms[0];
    inside.bias = {static_cast<int32_t>(std::nearbyint(units))};
    inside.out_zero = 0;
    inside.low = to.low, inside.high = to.high;
    forms.push_back(inside);
  }
  for (npu::Stage& form : forms) {
    for (const int ulps : {0, 1, -1, 2, -2}) {
      form.multiplier[0] = std::bit_cast<float>(std::bit_cast<int32_t>(multiplier) + ulps);
      bool equal = true;
      for (int64_t s = low; equal && s <= high; ++s)
        equal = convert(form, s, form.bias[0]) == results[static_cast<size_t>(s - low)];
      if (!equal) continue;
      form.bias[0] -= static_cast<int32_t>(added * x.z());
      return form;
    }
  }
  return std::nullopt;
}

/// True when `terms` products of bytes with the scale, and all their sums, are fp32 numbers.
bool sums_are_exact(float scale, int64_t terms) {
  int exponent = 0;
  const auto mantissa = static_cast<uint32_t>(std::frexp(scale, &exponent) * 16777216.0f);
  const int bits = 24 - std::countr_zero(mantissa);
  return exponent > -60 && exponent < 60 && static_cast<double>(terms) * 255.0 * std::ldexp(1.0, bits) <= 16777216.0;
}

constexpr float kBeyondInteger = 2147483648.0f;  // as int32 this and NaN are its least number

/// QLinearAveragePool on fp32 sums: v = sum of sx * (x - zx) / count; RNE(v / sy + zy). Nothing where the order of the
/// sum or the values behind S could matter.
std::optional<int32_t> average_of(int64_t s, int64_t terms, int64_t count, const Quantisation& x,
                                  const Quantisation& y) {
  const Range to = range_of(y.dtype);
  if (sums_are_exact(x.s(), terms)) {
    const float sum = x.s() * static_cast<float>(s);
    const float mean = sum / static_cast<float>(count);
    const float result = mean / y.s() + static_cast<float>(y.z());
    if (!(std::fabs(result) < kBeyondInteger)) return to.low;
    return round_even(result, to.low, to.high);
  }
  const Range from = range_of(x.dtype);
  const double scale = x.s(), largest = std::max(from.high - x.z(), x.z() - from.low);
  const bool one_sided = x.z() == from.low || x.z() == from.high;
  const double magnitude =
      scale * (one_sided ? std::fabs(static_cast<double>(s)) : largest * static_cast<double>(terms));
  const double divisor = static_cast<double>(count) * static_cast<double>(y.s());
  const double value = scale * static_cast<double>(s) / divisor;
  const double error =
      1.01 * kUnit * (magnitude * static_cast<double>(terms) / divisor + 3 * std::fabs(value) + std::abs(y.z()) + 1);
  if (!(magnitude < std::numeric_limits<float>::max() && std::fabs(value) + error < kBeyondInteger))
    return std::nullopt;
  const auto rounded = [&](double v) { return std::nearbyint(std::clamp<double>(v, to.low, to.high)); };
  const double low = rounded(value + y.z() - error), high = rounded(value + y.z() + error);
  if (low != high) return std::nullopt;
  return static_cast<int32_t>(low);
}

/// Runs of equal numbers of taps inside the image along one axis.
struct Run {
  int64_t first = 0, count = 0, inside = 0;
};
std::vector<Run> runs_of(int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t before) {
  std::vector<Run> runs;
  for (int64_t o = 0; o < out; ++o) {
    int64_t inside = 0;
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t at = o * stride - before + k;
      inside += at >= 0 && at < in ? 1 : 0;
    }
    if (!runs.empty() && runs.back().inside == inside)
      ++runs.back().count;
    else
      runs.push_back({o, 1, inside});
  }
  return runs;
}

/// Gives the pool a stage for each number of taps inside of the image (`fit` of that number): one, or one for each box
/// of the output. False where there is none for one of them, or too many.
bool fit_parts(graph::Pool& pool, const Window& win, const Shape& in, const Shape& out,
               const std::function<std::optional<npu::Stage>(int64_t)>& fit) {
  const auto rows = runs_of(out[0], in[0], win.kernel[0], win.stride[0], win.before[0]);
  const auto columns = runs_of(out[1], in[1], win.kernel[1], win.stride[1], win.before[1]);
  if (rows.size() * columns.size() > 36) return false;
  const bool uniform = rows.size() == 1 && columns.size() == 1;
  for (const Run& r : rows)
    for (const Run& k : columns) {
      if (r.inside * k.inside == 0) return false;
      const auto stage = fit(r.inside * k.inside);
      if (!stage) return false;
      if (uniform)
        pool.what.stage = *stage;
      else
        pool.parts.push_back({r.first, r.count, k.first, k.count, *stage});
    }
  return true;
}

}  // namespace

/// com.microsoft QLinearAveragePool: X, x_scale, x_zero, y_scale, y_zero.
std::optional<Claim> claim_average_pool(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  const auto qx = operand_quantisation(op, 1, 2), qy = result_quantisation(op, 3, 4);
  if (!x || !qx || !qy || !qx->scalar() || !qy->scalar() || !is_byte(nn::dtype_of(x)) || nn::constant_value(x))
    return std::nullopt;
  const ops::Node node = nn::to_node(op);
  const Shape in = *nn::shape_of(x), out = *nn::shape_of(op.getResult(0));
  if (in.size() < 3 || in.size() > 4) return std::nullopt;
  graph::Pool pool;
  pool.channels_last = node.get_int("channels_last", 0) != 0;
  const auto first = static_cast<std::ptrdiff_t>(pool.channels_last ? 1 : 2),
             last = first + static_cast<std::ptrdiff_t>(in.size()) - 2;
  const Shape spatial(in.begin() + first, in.begin() + last), results(out.begin() + first, out.begin() + last);
  const Shape kernel = node.get_ints("kernel_shape");
  const auto win = window(node, kernel, spatial, results);
  if (!win) return std::nullopt;
  apply(*win, pool.what);
  pool.what.kind = npu::Pool::Kind::kSum;
  pool.what.dilation_h = pool.what.dilation_w = 1;
  pool.what.pad_value = qx->z();
  const int64_t h = spatial.size() == 2 ? spatial[0] : 1, oh = spatial.size() == 2 ? results[0] : 1;
  const int64_t terms = pool.what.kernel_h * pool.what.kernel_w;
  const auto bias = static_cast<int32_t>(-terms * qx->z());
  const auto pads = node.get_ints("pads", Shape(2 * spatial.size(), 0));
  Claim c = base_claim(op, {x});
  if (kernel == spatial && std::all_of(pads.begin(), pads.end(), [](int64_t p) { return p == 0; })) {
    pool.what.stage = requantise({average_multiplier(qx->s(), qy->s(), terms)}, {bias}, *qy);
    c.op.what = std::move(pool);
    return c;
  }
  const bool include = node.get_int("count_include_pad", 0) != 0;
  const auto fit = [&](int64_t inside) {
    const int64_t count = include ? terms : inside;
    return fit_sum(inside, terms, *qx, *qy, average_multiplier(qx->s(), qy->s(), count),
                   [&](int64_t s) { return average_of(s, inside, count, *qx, *qy); });
  };
  if (include) {
    const auto stage = fit(terms);
    if (!stage) return std::nullopt;
    pool.what.stage = *stage;
  } else if (!fit_parts(pool, *win, {h, spatial.back()}, {oh, results.back()}, fit)) {
    return std::nullopt;
  }
  c.op.what = std::move(pool);
  return c;
}

/// litert AveragePool: the integer sum of what lies inside divided by its number, halves away from zero.
std::optional<Claim> claim_litert_average_pool(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  if (!x || !is_byte(nn::dtype_of(x)) || nn::constant_value(x)) return std::nullopt;
  const ops::Node node = nn::to_node(op);
  const Shape in = *nn::shape_of(x), out = *nn::shape_of(op.getResult(0));
  if (in.size() != 4) return std::nullopt;
  const auto win = window(node, node.get_ints("kernel_shape"), {in[2], in[3]}, {out[2], out[3]});
  if (!win) return std::nullopt;
  // Operand and result share scale and zero point, so integers are averaged as they are: zero points of 0.
  const Quantisation q{{1.0F}, {0}, nn::dtype_of(x)};
  const int64_t least = node.get_int("low", 0), most = node.get_int("high", 0);
  graph::Pool pool;
  apply(*win, pool.what);
  pool.what.kind = npu::Pool::Kind::kSum;
  pool.what.dilation_h = pool.what.dilation_w = 1;
  pool.what.pad_value = 0;
  const int64_t terms = pool.what.kernel_h * pool.what.kernel_w;
  const auto fit = [&](int64_t inside) {
    auto stage =
        fit_sum(inside, terms, q, q, 1.0F / static_cast<float>(inside), [&](int64_t s) -> std::optional<int32_t> {
          return static_cast<int32_t>(s >= 0 ? (s + inside / 2) / inside : -((-s + inside / 2) / inside));
        });
    if (stage) {
      stage->low = static_cast<int32_t>(least);
      stage->high = static_cast<int32_t>(most);
    }
    return stage;
  };
  if (!fit_parts(pool, *win, {in[2], in[3]}, {out[2], out[3]}, fit)) return std::nullopt;
  Claim c = base_claim(op, {x});
  c.op.what = std::move(pool);
  return c;
}

namespace {

/// The axes a reduction runs over; nothing when they are no constant.
std::optional<std::vector<bool>> reduced_axes(NodeOp op, const ops::Node& node, size_t rank) {
  Shape axes = node.get_ints("axes", Shape{});
  if (mlir::Value v = nn::input_or_null(op, 1)) {
    const auto constant = nn::constant_value(v);
    if (!constant) return std::nullopt;
    axes = constant->to_int64s();
  }
  if (axes.empty() && node.get_int("noop_with_empty_axes", 0) != 0) return std::nullopt;
  std::vector<bool> reduced(rank, axes.empty());
  for (int64_t axis : axes) {
    if (axis < 0) axis += static_cast<int64_t>(rank);
    if (axis < 0 || axis >= static_cast<int64_t>(rank)) return std::nullopt;
    reduced[static_cast<size_t>(axis)] = true;
  }
  return reduced;
}

npu::Stage maximum_stage(DType dtype) {
  npu::Stage stage;
  stage.low = range_of(dtype).low;
  stage.high = range_of(dtype).high;
  return stage;
}

int64_t reduced_count(const Shape& shape, const std::vector<bool>& reduced) {
  int64_t count = 1;
  for (size_t a = 0; a < shape.size(); ++a) count *= reduced[a] ? shape[a] : 1;
  return count;
}

}  // namespace

/// ReduceMax of bytes.
std::optional<Claim> claim_reduce_max(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  if (!x || !is_byte(nn::dtype_of(x)) || nn::constant_value(x) || !has_elements(x)) return std::nullopt;
  auto reduced = reduced_axes(op, nn::to_node(op), nn::shape_of(x)->size());
  if (!reduced) return std::nullopt;
  Claim c = base_claim(op, {x});
  c.op.what = graph::Reduce{npu::Pool::Kind::kMax, std::move(*reduced), 0, maximum_stage(nn::dtype_of(x))};
  return c;
}

/// com.microsoft QLinearReduceMean: data, scale, zero, result's scale, result's zero.
std::optional<Claim> claim_reduce_mean(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  const auto qx = operand_quantisation(op, 1, 2), qy = result_quantisation(op, 3, 4);
  if (!x || !qx || !qy || !qx->scalar() || !qy->scalar() || !is_byte(nn::dtype_of(x)) || nn::constant_value(x))
    return std::nullopt;
  const ops::Node node = nn::to_node(op);
  const Shape shape = *nn::shape_of(x), axes = node.get_ints("axes", Shape{});
  std::vector<bool> reduced(shape.size(), axes.empty());
  for (const int64_t axis : axes)
    reduced[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis)] = true;
  const int64_t count = reduced_count(shape, reduced);
  if (count > (int64_t{1} << 22)) return std::nullopt;
  Claim c = base_claim(op, {x});
  c.op.what = graph::Reduce{
      npu::Pool::Kind::kSum, std::move(reduced), qx->z(),
      requantise({average_multiplier(qx->s(), qy->s(), count)}, {static_cast<int32_t>(-count * qx->z())}, *qy)};
  return c;
}

/// litert Mean, by proof over all sums.
std::optional<Claim> claim_litert_mean(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  if (!x || !is_byte(nn::dtype_of(x)) || nn::constant_value(x) || !has_elements(x)) return std::nullopt;
  const ops::Node node = nn::to_node(op);
  const DType dtype = nn::dtype_of(x);
  const Quantisation qx{{node.get_float("x_scale", 1)}, {static_cast<int32_t>(node.get_int("x_zero_point", 0))}, dtype};
  const Quantisation qy{{node.get_float("y_scale", 1)}, {static_cast<int32_t>(node.get_int("y_zero_point", 0))}, dtype};
  const Shape shape = *nn::shape_of(x);
  std::vector<bool> reduced(shape.size());
  for (const int64_t axis : node.get_ints("axes"))
    reduced[static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(shape.size()) : axis)] = true;
  const int64_t count = reduced_count(shape, reduced);
  const float multiplier = qx.s() / qy.s() / static_cast<float>(count);
  const bool xnnpack = node.get_string("kernel", "xnnpack") == "xnnpack";
  const ops::litert::FixedPoint factor = ops::litert::mean_factor(qx.s() / qy.s(), count);
  const ops::litert::FloatMean real = ops::litert::float_mean(qx.s() / qy.s(), count, qx.z(), qy.z());
  const Range to = range_of(dtype);
  auto stage = fit_sum(count, count, qx, qy, multiplier, [&](int64_t s) -> std::optional<int32_t> {
    const auto sum = static_cast<int32_t>(s);
    if (xnnpack) return ops::litert::mean_in_float(s + count * qx.z(), real, to.low, to.high);
    return std::clamp(ops::litert::multiply(sum, factor) + qy.z(), to.low, to.high);
  });
  if (!stage) return std::nullopt;
  Claim c = base_claim(op, {x});
  c.op.what = graph::Reduce{npu::Pool::Kind::kSum, std::move(reduced), qx.z(), std::move(*stage)};
  return c;
}

namespace {

/// An operator over dequantised bytes, of which QuantizeLinear makes bytes again.
struct FloatPool {
  NodeOp dequantise, pool, quantise;
  mlir::Value x;  // the bytes
  Quantisation qx, qy;
};

std::optional<FloatPool> float_pool_of(NodeOp op) {
  auto qy = result_quantisation(op, 1, 2);
  NodeOp inner = nn::defining_op(op.getInputs()[0]);
  if (!qy || !qy->scalar() || !inner || !inner.getDomain().empty() || !all_static(inner)) return std::nullopt;
  NodeOp dq = nn::defining_op(nn::input_or_null(inner, 0), "DequantizeLinear");
  if (!dq) return std::nullopt;
  mlir::Value x = dq.getInputs()[0];
  if (!is_byte(nn::dtype_of(x)) || nn::constant_value(x) || !has_elements(x)) return std::nullopt;
  auto qx = operand_quantisation(dq, 1, 2);
  if (!qx || !qx->scalar() || nn::shape_of(x)->empty()) return std::nullopt;
  return FloatPool{dq, inner, op, x, std::move(*qx), std::move(*qy)};
}

/// MaxPool, GlobalMaxPool, ReduceMax: the maximum of the bytes, and a table.
bool match_maximum(const FloatPool& p, decltype(graph::Operation::what)& what) {
  NodeOp pool = p.pool, quantise = p.quantise;
  auto table = tabulate(p.x, {p.dequantise, pool, quantise}, quantise.getResult(0));
  if (!table || pool.getOutputs().size() != 1) return false;
  npu::Stage stage = maximum_stage(p.qx.dtype);
  stage.table = std::move(*table);
  stage.table_unsigned = p.qy.dtype == DType::kUint8;
  if (pool.is("MaxPool")) {
    auto window = max_pool_window(pool, p.x);
    if (!window) return false;
    window->what.stage = std::move(stage);
    what = std::move(*window);
    return true;
  }
  const size_t rank = nn::shape_of(p.x)->size();
  std::vector<bool> reduced(rank, true);
  if (pool.is("GlobalMaxPool")) {
    reduced[0] = reduced[1] = false;
  } else {
    auto axes = reduced_axes(pool, nn::to_node(pool), rank);
    if (!axes) return false;
    reduced = std::move(*axes);
  }
  what = graph::Reduce{npu::Pool::Kind::kMax, std::move(reduced), 0, std::move(stage)};
  return true;
}

/// ReduceMean and ReduceSum, by proof over all sums.
bool match_sum(const FloatPool& p, decltype(graph::Operation::what)& what) {
  NodeOp pool = p.pool;
  const Quantisation &qx = p.qx, &qy = p.qy;
  const Shape in = *nn::shape_of(p.x);
  auto reduced = reduced_axes(pool, nn::to_node(pool), in.size());
  if (!reduced) return false;
  const int64_t terms = reduced_count(in, *reduced), count = pool.is("ReduceMean") ? terms : 1;
  if (!sums_are_exact(qx.s(), terms)) return false;
  const Range to = range_of(qy.dtype);
  auto stage = fit_sum(terms, terms, qx, qy, average_multiplier(qx.s(), qy.s(), count),
                       [&](int64_t s) -> std::optional<int32_t> {
                         const float sum = qx.s() * static_cast<float>(s);
                         const float mean = sum / static_cast<float>(count);
                         return round_even(mean / qy.s(), to.low - qy.z(), to.high - qy.z()) + qy.z();
                       });
  if (!stage) return false;
  what = graph::Reduce{npu::Pool::Kind::kSum, std::move(*reduced), qx.z(), std::move(*stage)};
  return true;
}

}  // namespace

/// QuantizeLinear of a maximum, sum or mean of dequantised bytes.
std::optional<Claim> claim_float_pool(NodeOp op) {
  auto p = float_pool_of(op);
  if (!p) return std::nullopt;
  const bool maximum = p->pool.is("MaxPool") || p->pool.is("GlobalMaxPool") || p->pool.is("ReduceMax");
  if (!maximum && !p->pool.is("ReduceMean") && !p->pool.is("ReduceSum")) return std::nullopt;
  Claim c = base_claim(op, {p->x});
  c.op.kind = p->pool.getOpType().str();
  c.covered = {p->dequantise.getOperation(), p->pool.getOperation(), op.getOperation()};
  if (maximum ? !match_maximum(*p, c.op.what) : !match_sum(*p, c.op.what)) return std::nullopt;
  return c;
}

std::optional<graph::Pool> max_pool_window(NodeOp op, mlir::Value x) {
  const DType dtype = nn::dtype_of(x);
  if (!is_byte(dtype) || op.getOutputs().size() != 1) return std::nullopt;
  const Shape in = *nn::shape_of(x), out = *nn::shape_of(op.getResult(0));
  if (in.size() < 3) return std::nullopt;
  const ops::Node node = nn::to_node(op);
  const auto win =
      window(node, node.get_ints("kernel_shape"), Shape(in.begin() + 2, in.end()), Shape(out.begin() + 2, out.end()));
  if (!win) return std::nullopt;
  graph::Pool pool;
  apply(*win, pool.what);
  const Range range = range_of(dtype);
  pool.what.kind = npu::Pool::Kind::kMax;
  pool.what.pad_value = range.low;
  pool.what.stage.low = range.low;
  pool.what.stage.high = range.high;
  return pool;
}

std::optional<Claim> claim_max_pool(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  auto pool = max_pool_window(op, x);
  if (!pool) return std::nullopt;
  Claim c = base_claim(op, {x});
  c.op.what = std::move(*pool);
  return c;
}

/// com.microsoft QLinearGlobalAveragePool: X, x_scale, x_zero, y_scale, y_zero.
std::optional<Claim> claim_global_average_pool(NodeOp op) {
  mlir::Value x = nn::input_or_null(op, 0);
  const auto qx = operand_quantisation(op, 1, 2), qy = result_quantisation(op, 3, 4);
  if (!x || !qx || !qy || !qx->scalar() || !qy->scalar() || !is_byte(nn::dtype_of(x))) return std::nullopt;
  const Shape in = *nn::shape_of(x);
  if (in.size() < 3 || in.size() > 4) return std::nullopt;
  graph::Pool pool;
  pool.channels_last = nn::to_node(op).get_int("channels_last", 0) != 0;
  const size_t first = pool.channels_last ? 1 : 2;
  pool.what.kind = npu::Pool::Kind::kSum;
  pool.what.kernel_h = in.size() == 4 ? in[first] : 1;
  pool.what.kernel_w = in[in.size() == 4 ? first + 1 : first];
  const int64_t count = pool.what.kernel_h * pool.what.kernel_w;
  // The sum of |x - zero| must stay exact in int32, as the operator's own sum does.
  if (count > (int64_t{1} << 22)) return std::nullopt;
  pool.what.stage =
      requantise({average_multiplier(qx->s(), qy->s(), count)}, {static_cast<int32_t>(-count * qx->z())}, *qy);
  Claim c = base_claim(op, {x});
  c.op.what = std::move(pool);
  return c;
}

std::optional<Claim> claim_byte_sums(NodeOp op) {
  const bool window_sum = op.is("WindowSum", nn::kTesseraDomain);
  if (!window_sum && !op.is("AxisSum", nn::kTesseraDomain)) return std::nullopt;
  mlir::Value x = nn::input_or_null(op, 0);
  if (!x || !is_byte(nn::dtype_of(x)) || nn::constant_value(x) || !has_elements(x)) return std::nullopt;
  const ops::Node node = nn::to_node(op);
  const Shape in = *nn::shape_of(x), out = *nn::shape_of(op.getResult(0));
  Claim c = base_claim(op, {x});
  npu::Stage raw;
  raw.raw = true;
  if (!window_sum) {
    auto reduced = reduced_axes(op, node, in.size());
    if (!reduced || reduced_count(in, *reduced) > (int64_t{1} << 22)) return std::nullopt;
    c.op.what = graph::Reduce{npu::Pool::Kind::kSum, std::move(*reduced), 0, std::move(raw)};
    return c;
  }
  if (in.size() < 3 || in.size() > 4) return std::nullopt;
  const auto win =
      window(node, node.get_ints("kernel_shape"), Shape(in.begin() + 2, in.end()), Shape(out.begin() + 2, out.end()));
  if (!win) return std::nullopt;
  graph::Pool pool;
  apply(*win, pool.what);
  pool.what.kind = npu::Pool::Kind::kSum;
  pool.what.pad_value = static_cast<int32_t>(node.get_int("pad_value", 0));
  const Range bytes = range_of(nn::dtype_of(x));
  if (pool.what.pad_value < bytes.low || pool.what.pad_value > bytes.high) return std::nullopt;
  pool.what.stage = std::move(raw);
  c.op.what = std::move(pool);
  return c;
}

}  // namespace tessera::partition
