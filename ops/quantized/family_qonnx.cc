// SPDX-License-Identifier: Apache-2.0
// The quantisers of QONNX (as Brevitas exports them): Quant, BipolarQuant and Trunc. Each maps floats to floats on a
// grid: y = (k - zero) * scale, with k = round(clip(x / scale + zero)) and the limits of a number of bits. Evaluation
// is that formula. The expansion reads a quantiser of at most 8 bits as QuantizeLinear and DequantizeLinear of int8, so
// that the products beside it become integer operators: unsigned grids are moved down by 128, because one type for all
// activations lets every group form. Grids narrower than int8 get a Clip between two pairs. Where QuantizeLinear rounds
// otherwise (another rounding mode, a zero point that is added behind the rounding), the formula stays in front of a
// pair that changes nothing.
#include <cmath>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

using Operand = Expander::Operand;
using Types = std::vector<TypeInfo>;
using kernel::elements;
using kernel::mutable_elements;

constexpr int kQonnxVersion = 13;
constexpr const char* kFormulaDomain = "tessera";  // the formulas, which nothing expands

enum class Rounding { kHalfEven, kCeil, kFloor, kUp, kDown, kHalfUp, kHalfDown };

Rounding rounding_of(const Node& node, const char* fallback) {
  std::string mode = node.get_string("rounding_mode", fallback);
  for (char& c : mode) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  static const std::map<std::string, Rounding> modes = {
      {"ROUND", Rounding::kHalfEven}, {"HALF_EVEN", Rounding::kHalfEven},
      {"CEIL", Rounding::kCeil},      {"FLOOR", Rounding::kFloor},
      {"UP", Rounding::kUp},          {"DOWN", Rounding::kDown},
      {"HALF_UP", Rounding::kHalfUp}, {"HALF_DOWN", Rounding::kHalfDown}};
  const auto found = modes.find(mode);
  if (found == modes.end())
    node.fail(ErrorCode::kInvalidModel, "attribute 'rounding_mode' = '" + mode +
                                            "' is none of ROUND, CEIL, FLOOR, UP, DOWN, HALF_UP, HALF_DOWN, HALF_EVEN");
  return found->second;
}

template <typename T>
T rounded(Rounding mode, T x) {
  const auto away = [x](T magnitude) { return x > 0 ? magnitude : x < 0 ? -magnitude : x; };
  switch (mode) {
    case Rounding::kHalfEven: return std::nearbyint(x);
    case Rounding::kCeil: return std::ceil(x);
    case Rounding::kFloor: return std::floor(x);
    case Rounding::kUp: return away(std::ceil(std::abs(x)));
    case Rounding::kDown: return std::trunc(x);
    case Rounding::kHalfUp: return away(std::floor(std::abs(x) + T{0.5}));
    case Rounding::kHalfDown: return away(std::ceil(std::abs(x) - T{0.5}));
  }
  return x;
}

/// The least and the greatest step of a grid of `bits`, which may be fractional.
struct Limits {
  double low, high;
};
Limits limits_of(double bits, bool is_signed, bool narrow) {
  if (is_signed) return {-std::exp2(bits - 1) + (narrow ? 1 : 0), std::exp2(bits - 1) - 1};
  return {0, std::exp2(bits) - (narrow ? 2 : 1)};
}

double single(const Node& node, const Tensor& value, const char* what) {
  if (value.size() != 1)
    node.fail(ErrorCode::kInvalidModel, std::string(what) + " must be one number, not " + to_string(value.shape()));
  return value.at_double(0);
}
double bits_of(const Node& node, const Tensor& value) {
  const double bits = single(node, value, "the bit width");
  if (!(bits > 0 && bits <= 64)) node.fail(ErrorCode::kInvalidModel, "the bit width must be above 0 and at most 64");
  return bits;
}

// ---------------------------------------------------------------------------------------------------------- formulas

/// Results have x's type and shape; scales and zero points are broadcast against x, which they may not widen.
void infer_on_grid(InferContext& c, std::initializer_list<size_t> broadcast, std::initializer_list<size_t> numbers) {
  const TypeInfo& x = c.input(0);
  kernel::require_type(c.node, x.dtype, kernel::kFloats, "the input");
  c.outputs[0] = kernel::without_constant(x);
  for (size_t i : numbers) {
    const TypeInfo& number = c.input(i);
    if (number.is_static() && element_count(number.shape) != 1)
      c.node.fail(ErrorCode::kInvalidModel,
                  "input " + std::to_string(i) + " " + to_string(number.shape) + " must be one number");
  }
  for (size_t i : broadcast) {
    const TypeInfo& other = c.input(i);
    kernel::require_type(c.node, other.dtype, kernel::kNumeric, "a scale or zero point");
    if (!x.is_static() || !other.is_static() || element_count(other.shape) == 1) continue;
    if (broadcast_shapes(c.node, {x.shape, other.shape}) != x.shape)
      c.node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " " + to_string(other.shape) +
                                                " does not fit the input " + to_string(x.shape));
  }
}

/// y[i] = f(x[i], scale[i], zero[i]), scale and zero broadcast, in the element type of the computation.
template <typename Function>
Tensor map_on_grid(const Tensor& given, const Tensor& scale, const Tensor& zero, Function f) {
  const Tensor x = kernel::widen(given);
  Tensor y(x.dtype(), x.shape());
  kernel::visit_float(x.dtype(), [&]<typename T>(kernel::Tag<T>) {
    const auto numbers = [](const Tensor& t) {
      const std::vector<double> values = t.to_doubles();
      return std::vector<T>(values.begin(), values.end());
    };
    const auto strides = [&](const Tensor& t) {
      return t.size() == 1 ? std::vector<int64_t>(x.shape().size(), 0) : broadcast_strides(t.shape(), x.shape());
    };
    const std::vector<T> scales = numbers(scale), zeros = numbers(zero);
    const kernel::LoopNest<2> nest(x.shape(), {strides(scale), strides(zero)});
    const auto inner = nest.inner();
    const T* in = elements<T>(x);
    T* out = mutable_elements<T>(y);
    nest.for_each_row([&](const std::array<int64_t, 2>& at, int64_t count) {
      for (int64_t i = 0; i < count; ++i)
        *out++ = f(*in++, scales[static_cast<size_t>(at[0] + i * inner[0])],
                   zeros[static_cast<size_t>(at[1] + i * inner[1])]);
    });
  });
  return kernel::narrow(std::move(y), given.dtype());
}

/// Inputs: x, scale, zero point, bit width.
void infer_quant(InferContext& c) {
  rounding_of(c.node, "ROUND");
  infer_on_grid(c, {1, 2}, {3});
}
Tensor quant(const Node& node, const Tensor& x, const Tensor& scale, const Tensor& zero, double bits) {
  const bool is_signed = node.get_int("signed", 1) != 0;
  const Limits limits = limits_of(bits, is_signed, node.get_int("narrow", 0) != 0);
  const Rounding mode = rounding_of(node, "ROUND");
  return map_on_grid(x, scale, zero, [&](auto v, auto s, auto z) {
    using T = decltype(v);
    T k = v / s + z;
    if (is_signed && bits == 1) {
      k = k >= 0 ? T{1} : T{-1};
    } else {
      if (k > static_cast<T>(limits.high)) k = static_cast<T>(limits.high);
      if (k < static_cast<T>(limits.low)) k = static_cast<T>(limits.low);
      k = rounded(mode, k);
    }
    return (k - z) * s;
  });
}
void evaluate_quant(EvalContext& c, const std::vector<TypeInfo>&) {
  c.outputs[0] = quant(c.node, c.input(0), c.input(1), c.input(2), bits_of(c.node, c.input(3)));
}

/// Inputs: x, scale.
void infer_bipolar(InferContext& c) { infer_on_grid(c, {1}, {}); }
Tensor bipolar(const Tensor& x, const Tensor& scale) {
  return map_on_grid(x, scale, scale, [](auto v, auto s, auto) { return v >= 0 ? s : -s; });
}
void evaluate_bipolar(EvalContext& c, const std::vector<TypeInfo>&) { c.outputs[0] = bipolar(c.input(0), c.input(1)); }

/// Inputs of version 1: x, scale, zero point, bits before and after. Of version 2: x, scale, zero point, bits before,
/// scale after, (zero point after, which follows from the others,) bits after.
bool rescales(size_t inputs) { return inputs > 5; }
void infer_trunc(InferContext& c) {
  rounding_of(c.node, "FLOOR");
  if (rescales(c.inputs.size()))
    infer_on_grid(c, {1, 2}, {3, 4, c.inputs.size() - 1});
  else
    infer_on_grid(c, {1, 2}, {3, 4});
}
void evaluate_trunc(EvalContext& c, const std::vector<TypeInfo>&) {
  const Node& node = c.node;
  const Rounding mode = rounding_of(node, "FLOOR");
  const double before = bits_of(node, c.input(3));
  if (!rescales(c.inputs.size())) {
    const double step = std::exp2(before - bits_of(node, c.input(4)));
    c.outputs[0] = map_on_grid(c.input(0), c.input(1), c.input(2), [&](auto v, auto s, auto z) {
      using T = decltype(v);
      return (rounded(mode, std::nearbyint(v / s + z) / static_cast<T>(step)) - z) * s;
    });
    return;
  }
  const double scale = single(node, c.input(4), "the scale behind");
  const Limits limits = limits_of(bits_of(node, c.input(c.inputs.size() - 1)), node.get_int("signed", 1) != 0,
                                  node.get_int("narrow", 0) != 0);
  c.outputs[0] = map_on_grid(c.input(0), c.input(1), c.input(2), [&](auto v, auto s, auto z) {
    using T = decltype(v);
    const T step = std::exp2(std::nearbyint(std::log2(static_cast<T>(scale) / s)));
    T k = std::nearbyint(v / s + z) / step;
    if (k > static_cast<T>(limits.high)) k = static_cast<T>(limits.high);
    if (k < static_cast<T>(limits.low)) k = static_cast<T>(limits.low);
    return (rounded(mode, k) - z / step) * static_cast<T>(scale);
  });
}

// --------------------------------------------------------------------------------------------------------- expansions

/// A grid as parameters of QuantizeLinear to int8: y = (q - zero) * scale for low <= q <= high.
struct Grid {
  Tensor scale, zero;  // scalars, or vectors along `axis`
  int64_t axis = 0;
  int64_t low = -128, high = 127;
  std::vector<double> bounds[2];  // the least and the greatest y, one for each scale
};

/// Scales that divisions and products keep away from subnormal numbers and infinity.
bool is_plain_scale(double s) { return s > 1e-25 && s < 1e25; }

/// The grid in int8; nothing where its steps or its zero point do not fit, or it has more than one axis of parameters.
std::optional<Grid> grid_of(const TypeInfo& x, const Tensor& scale, const Tensor& zero, Limits limits) {
  if (x.dtype != DType::kFloat || !x.ranked || limits.low > limits.high || limits.low < -128 || limits.high > 255 ||
      limits.low != std::floor(limits.low) || limits.high != std::floor(limits.high))
    return std::nullopt;
  const int64_t shift = limits.low >= 0 ? 128 : 0;
  const auto rank = static_cast<int64_t>(x.shape.size());
  Grid grid;
  grid.low = static_cast<int64_t>(limits.low) - shift;
  grid.high = static_cast<int64_t>(limits.high) - shift;
  int64_t count = 1;
  for (const Tensor* parameter : {&scale, &zero}) {
    for (int64_t d = 0; d < parameter->rank(); ++d) {
      const int64_t extent = parameter->shape()[static_cast<size_t>(d)], axis = rank - parameter->rank() + d;
      if (extent == 1) continue;
      if (axis < 0 || x.shape[static_cast<size_t>(axis)] != extent || (count != 1 && axis != grid.axis))
        return std::nullopt;
      count = extent;
      grid.axis = axis;
    }
  }
  const Shape shape = count == 1 ? Shape{} : Shape{count};
  grid.scale = Tensor(DType::kFloat, shape);
  grid.zero = Tensor(DType::kInt8, shape);
  for (int64_t i = 0; i < count; ++i) {
    const double s = scale.at_double(scale.size() == 1 ? 0 : i), z = zero.at_double(zero.size() == 1 ? 0 : i);
    const double moved = z - static_cast<double>(shift);
    if (!is_plain_scale(s) || z != std::floor(z) || moved < -128 || moved > 127) return std::nullopt;
    const auto step = static_cast<float>(s);
    mutable_elements<float>(grid.scale)[i] = step;
    mutable_elements<int8_t>(grid.zero)[i] = static_cast<int8_t>(moved);
    grid.bounds[0].push_back(static_cast<float>(limits.low - z) * step);
    grid.bounds[1].push_back(static_cast<float>(limits.high - z) * step);
  }
  return grid;
}

Expander::Attributes axis_of(const Grid& grid) {
  if (grid.scale.rank() == 0) return {};
  return {{"axis", grid.axis}};
}
Operand dequantised(Expander& e, const Operand& q, const Grid& grid) {
  return e.step("DequantizeLinear", {q, Expander::constant(grid.scale), Expander::constant(grid.zero)}, axis_of(grid));
}
Operand quantised(Expander& e, const Operand& x, const Grid& grid) {
  return e.step("QuantizeLinear", {x, Expander::constant(grid.scale), Expander::constant(grid.zero)}, axis_of(grid));
}

/// One bound of Clip: a scalar, or values along the axis of an operand of that rank.
Operand bound(const Grid& grid, const std::vector<double>& values, size_t rank) {
  Shape shape;
  if (grid.scale.rank() > 0) {
    shape.assign(rank, 1);
    shape[static_cast<size_t>(grid.axis)] = static_cast<int64_t>(values.size());
  }
  return Expander::constant(Tensor::of(DType::kFloat, shape, std::vector<float>(values.begin(), values.end())));
}

/// x rounded to the grid: a pair, and where the grid is narrower than int8 a Clip and a second pair.
Operand on_grid(Expander& e, Operand x, const Grid& grid, size_t rank) {
  x = dequantised(e, quantised(e, x, grid), grid);
  if (grid.low == -128 && grid.high == 127) return x;
  if (grid.scale.rank() == 0) {
    const Operand low = grid.low > -128 ? bound(grid, grid.bounds[0], rank) : Operand();
    const Operand high = grid.high < 127 ? bound(grid, grid.bounds[1], rank) : Operand();
    x = e.step("Clip", {x, low, high});
  } else {
    x = e.step("Min", {e.step("Max", {x, bound(grid, grid.bounds[0], rank)}), bound(grid, grid.bounds[1], rank)});
  }
  return dequantised(e, quantised(e, x, grid), grid);
}

/// Whether the distances from all zero points fit int8, so that these can be 0.
bool fits_without_zero(const Grid& grid) {
  for (const int8_t zero : grid.zero.as<int8_t>())
    if (grid.low - zero < -127 || grid.high - zero > 127) return false;
  return true;
}

/// Known values on the grid as integers and their parameters, without zero points where that is possible. Integers of
/// few bits are multiplied by a power of two and their scales divided by it: the values stay, and a bias that is
/// rounded to steps of the products keeps its digits.
Operand known_integers(Expander& e, const Tensor& y, Grid grid) {
  if (fits_without_zero(grid)) grid.zero = Tensor(DType::kInt8, grid.zero.shape());
  const Node q{"", "QuantizeLinear", kQonnxVersion, "", axis_of(grid), 1};
  Tensor integers = evaluate(q, {y, grid.scale, grid.zero})[0].tensor;
  int greatest = 0;
  for (const int8_t value : integers.as<int8_t>()) greatest = std::max(greatest, std::abs(static_cast<int>(value)));
  int factor = 1;
  while (greatest > 0 && 2 * factor * greatest <= 127) factor *= 2;
  for (const int8_t zero : grid.zero.as<int8_t>())
    if (zero != 0) factor = 1;
  for (int8_t& value : integers.as_mutable<int8_t>()) value = static_cast<int8_t>(value * factor);
  for (float& scale : grid.scale.as_mutable<float>()) scale /= static_cast<float>(factor);
  return dequantised(e, Expander::constant(std::move(integers)), grid);
}

/// The node's formula as a step.
Operand formula(Expander& e, const Node& node) {
  return e.steps(node.op_type, e.inputs(), node.attributes, 1, kFormulaDomain, 1)[0];
}

bool all_constant(const Types& inputs, size_t first) {
  for (size_t i = first; i < inputs.size(); ++i)
    if (!inputs[i].present || !inputs[i].constant) return false;
  return true;
}

/// A constant on the grid is a DequantizeLinear of int8; another value goes through `make`.
template <typename Make>
std::optional<Expansion> expand_to(const Node& node, const Types& inputs, const Grid& grid, Make make) {
  Expander e(node, inputs, kQonnxVersion);
  if (inputs[0].constant) {
    std::vector<Value> values;
    for (const TypeInfo& input : inputs) values.emplace_back(*input.constant);
    return e.finish({known_integers(e, evaluate(node, values)[0].tensor, grid)});
  }
  return e.finish({on_grid(e, make(e), grid, inputs[0].shape.size())});
}

std::optional<Expansion> expand_quant(const Node& node, const Types& inputs) {
  if (inputs.size() != 4 || !inputs[0].present || !all_constant(inputs, 1)) return std::nullopt;
  const double bits = bits_of(node, *inputs[3].constant);
  const bool is_signed = node.get_int("signed", 1) != 0, sign_only = is_signed && bits == 1;
  if (bits != std::floor(bits)) return std::nullopt;
  const Limits limits = sign_only ? Limits{-1, 1} : limits_of(bits, is_signed, node.get_int("narrow", 0) != 0);
  const Tensor& zero = *inputs[2].constant;
  const std::optional<Grid> grid = grid_of(inputs[0], *inputs[1].constant, zero, limits);
  if (!grid) return std::nullopt;
  bool plain = !sign_only && rounding_of(node, "ROUND") == Rounding::kHalfEven;
  for (const double z : zero.to_doubles()) plain = plain && z == 0;
  return expand_to(node, inputs, *grid, [&](Expander& e) { return plain ? e.input(0) : formula(e, node); });
}

std::optional<Expansion> expand_bipolar(const Node& node, const Types& inputs) {
  if (inputs.size() != 2 || !inputs[0].present || !all_constant(inputs, 1)) return std::nullopt;
  const std::optional<Grid> grid = grid_of(inputs[0], *inputs[1].constant, Tensor::scalar_f32(0), {-1, 1});
  if (!grid) return std::nullopt;
  return expand_to(node, inputs, *grid, [&](Expander& e) { return formula(e, node); });
}

/// Version 1 does not say whether its results are signed, so that no integer type is sure to hold them.
std::optional<Expansion> expand_trunc(const Node& node, const Types& inputs) {
  if (!rescales(inputs.size()) || !inputs[0].present || !inputs[1].constant || !inputs[2].constant) return std::nullopt;
  const TypeInfo &after = inputs[4], &width = inputs.back();
  if (!after.constant || !width.constant || !inputs[3].constant || inputs[1].constant->size() != 1 ||
      inputs[2].constant->size() != 1)
    return std::nullopt;
  const float scale = static_cast<float>(single(node, *after.constant, "the scale behind"));
  const float step = std::exp2(std::nearbyint(std::log2(scale / static_cast<float>(inputs[1].constant->at_double(0)))));
  const Limits limits =
      limits_of(bits_of(node, *width.constant), node.get_int("signed", 1) != 0, node.get_int("narrow", 0) != 0);
  const Tensor zero = Tensor::scalar_f32(static_cast<float>(inputs[2].constant->at_double(0)) / step);
  const std::optional<Grid> grid = grid_of(inputs[0], Tensor::scalar_f32(scale), zero, limits);
  if (!grid || !all_constant(inputs, 1)) return std::nullopt;
  return expand_to(node, inputs, *grid, [&](Expander& e) { return formula(e, node); });
}

}  // namespace

void register_qonnx(Registry& registry) {
  struct Quantiser {
    const char* name;
    kernel::Arity inputs;
    InferFunction infer;
    kernel::Kernel evaluate;
    ExpandFunction expand;
    std::set<std::string> attributes;
  };
  const std::set<std::string> grid = {"signed", "narrow", "rounding_mode"};
  const std::vector<Quantiser> quantisers = {
      {"Quant", {4, 4}, infer_quant, evaluate_quant, expand_quant, grid},
      {"IntQuant", {4, 4}, infer_quant, evaluate_quant, expand_quant, grid},
      {"BipolarQuant", {2, 2}, infer_bipolar, evaluate_bipolar, expand_bipolar, {}},
      {"Trunc", {5, 7}, infer_trunc, evaluate_trunc, expand_trunc, grid}};
  for (const Quantiser& q : quantisers) {
    for (const char* domain : {"qonnx.custom_op.general", "finn.custom_op.general", "onnx.brevitas", kFormulaDomain}) {
      kernel::add(registry, q.name, 1, q.inputs, q.infer, q.evaluate, q.attributes, kernel::kOne, domain,
                  domain == kFormulaDomain ? ExpandFunction{} : q.expand);
    }
  }
}

}  // namespace tessera::ops
