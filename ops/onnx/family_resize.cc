// SPDX-License-Identifier: Apache-2.0
// Resize (all versions) and Upsample. For every axis that changes, the positions of its outputs in the input come from
// the coordinate transformation in fp32, as ONNX Runtime computes them; from them follow either one source index
// (nearest) or a few taps with weights. Nearest moves elements of any type. Linear sums the products over all corners
// at once, fp32 for narrow types, and truncates for integers. Cubic and antialiased filters run axis by axis in fp32 or
// fp64.
#include <cmath>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

enum class Transform {
  kHalfPixel,
  kHalfPixelSymmetric,
  kPytorchHalfPixel,
  kAlignCorners,
  kAsymmetric,
  kTfHalfPixel,
  kTfCrop
};
enum class Filter { kNearest, kLinear, kCubic };
enum class Nearest {
  kRoundPreferFloor,
  kRoundPreferCeil,
  kFloor,
  kCeil,
  kSimple
};  // simple: floor, or ceil when shrinking (opset 10)
enum class Aspect { kStretch, kNotLarger, kNotSmaller };

struct Options {
  Transform transform = Transform::kHalfPixel;
  Filter filter = Filter::kNearest;
  Nearest nearest = Nearest::kRoundPreferFloor;
  Aspect aspect = Aspect::kStretch;
  bool exclude_outside = false, antialias = false;
  float cubic_a = -0.75f, extrapolation = 0;
};

/// The value that belongs to a name, or an error that tells attribute and name.
template <typename E>
E choose(const Node& node, const char* attribute, const std::string& name,
         std::initializer_list<std::pair<const char*, E>> choices) {
  for (const auto& [key, value] : choices)
    if (name == key) return value;
  node.fail(ErrorCode::kInvalidModel, "attribute '" + std::string(attribute) + "' is '" + name + "', which opset " +
                                          std::to_string(node.version) + " does not know");
}

Options options_of(const Node& node) {
  Options o;
  o.filter = choose<Filter>(node, "mode", node.get_string("mode", "nearest"),
                            {{"nearest", Filter::kNearest},
                             {"linear", Filter::kLinear},
                             {"bilinear", Filter::kLinear},
                             {"cubic", Filter::kCubic}});
  if (node.op_type == "Upsample" || node.version < 11) {
    o.transform = Transform::kAsymmetric;
    o.nearest = Nearest::kSimple;
    if (o.filter == Filter::kCubic) node.fail(ErrorCode::kInvalidModel, "mode cubic needs Resize of opset 11 or later");
    return o;
  }
  o.transform = choose<Transform>(node, "coordinate_transformation_mode",
                                  node.get_string("coordinate_transformation_mode", "half_pixel"),
                                  {{"half_pixel", Transform::kHalfPixel},
                                   {"half_pixel_symmetric", Transform::kHalfPixelSymmetric},
                                   {"pytorch_half_pixel", Transform::kPytorchHalfPixel},
                                   {"align_corners", Transform::kAlignCorners},
                                   {"asymmetric", Transform::kAsymmetric},
                                   {"tf_half_pixel_for_nn", Transform::kTfHalfPixel},
                                   {"tf_crop_and_resize", Transform::kTfCrop}});
  o.nearest = choose<Nearest>(node, "nearest_mode", node.get_string("nearest_mode", "round_prefer_floor"),
                              {{"round_prefer_floor", Nearest::kRoundPreferFloor},
                               {"round_prefer_ceil", Nearest::kRoundPreferCeil},
                               {"floor", Nearest::kFloor},
                               {"ceil", Nearest::kCeil}});
  o.aspect = choose<Aspect>(
      node, "keep_aspect_ratio_policy", node.get_string("keep_aspect_ratio_policy", "stretch"),
      {{"stretch", Aspect::kStretch}, {"not_larger", Aspect::kNotLarger}, {"not_smaller", Aspect::kNotSmaller}});
  o.exclude_outside = node.get_int("exclude_outside", 0) != 0;
  o.antialias = node.get_int("antialias", 0) != 0;
  o.cubic_a = node.get_float("cubic_coeff_a", -0.75f);
  o.extrapolation = node.get_float("extrapolation_value", 0.0f);
  return o;
}

// ------------------------------------------------------------------------------------------------- operands

/// Scales, sizes and region as given; nullopt when they are inputs of unknown content, empty when absent.
struct Operands {
  std::optional<std::vector<float>> scales, roi;
  std::optional<std::vector<int64_t>> sizes;
};

/// value(i): the content of input i, nullptr if absent or unknown; known(i): false if present and unknown.
template <typename Value, typename Known>
Operands operands_of(const Node& node, Value value, Known known) {
  Operands o{std::vector<float>{}, std::vector<float>{}, std::vector<int64_t>{}};
  const auto floats = [&](size_t i) -> std::optional<std::vector<float>> {
    if (!known(i)) return std::nullopt;
    return value(i) ? value(i)->to_floats() : std::vector<float>{};
  };
  if (node.op_type == "Upsample" && node.version < 9) {
    if (!node.has("scales")) node.fail(ErrorCode::kInvalidModel, "attribute 'scales' is missing");
    o.scales = node.get_floats("scales");
  } else if (node.op_type == "Upsample" || node.version < 11) {
    o.scales = floats(1);
  } else {
    o.roi = floats(1);
    o.scales = floats(2);
    if (!known(3))
      o.sizes = std::nullopt;
    else if (value(3))
      o.sizes = value(3)->to_int64s();
  }
  return o;
}

/// The axes that scales, sizes and roi speak of.
std::vector<int64_t> axes_of(const Node& node, int64_t rank) {
  std::vector<int64_t> axes = node.get_ints("axes");
  if (!node.has("axes"))
    for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  return normalise_axes(node, axes, rank);
}

/// One axis: lengths, scale, region; in = -1 or out = -1 where unknown.
struct Axis {
  int64_t in = 0, out = 0;
  float scale = 1, start = 0, end = 1;
};

std::vector<Axis> plan(const Node& node, const Options& options, const Operands& operands, const Shape& shape) {
  const std::vector<int64_t> axes = axes_of(node, static_cast<int64_t>(shape.size()));
  const auto check = [&](size_t length, size_t wanted, const char* what) {
    if (length != wanted)
      node.fail(ErrorCode::kInvalidModel, std::string(what) + " has " + std::to_string(length) + " entries where " +
                                              std::to_string(wanted) + " are needed");
  };
  std::vector<Axis> result;
  for (int64_t d : shape) result.push_back({d, d});
  const bool has_scales = !operands.scales || !operands.scales->empty(),
             has_sizes = !operands.sizes || !operands.sizes->empty();
  if (operands.scales && operands.sizes && has_scales == has_sizes)
    node.fail(ErrorCode::kInvalidModel,
              has_scales ? "both scales and sizes are given" : "neither scales nor sizes are given");
  const bool crop = options.transform == Transform::kTfCrop;
  if (crop && operands.roi) {
    check(operands.roi->size(), 2 * axes.size(), "roi");
    for (size_t i = 0; i < axes.size(); ++i) {
      result[static_cast<size_t>(axes[i])].start = (*operands.roi)[i];
      result[static_cast<size_t>(axes[i])].end = (*operands.roi)[i + axes.size()];
    }
  }
  if (operands.scales && has_scales) {
    check(operands.scales->size(), axes.size(), "scales");
    for (size_t i = 0; i < axes.size(); ++i) {
      Axis& axis = result[static_cast<size_t>(axes[i])];
      axis.scale = (*operands.scales)[i];
      if (!(axis.scale > 0) || !std::isfinite(axis.scale))
        node.fail(ErrorCode::kInvalidModel, "scale " + std::to_string(axis.scale) + " is not positive");
      // The region does not enter: the standard's text multiplies by it, its reference and ONNX Runtime do not.
      const float length = std::floor(static_cast<float>(axis.in) * axis.scale);
      if (length > static_cast<float>(kSizeLimit))
        node.fail(ErrorCode::kDoesNotFit,
                  "scale " + std::to_string(axis.scale) + " makes axis " + std::to_string(axes[i]) + " too long");
      axis.out = axis.in < 0 ? -1 : static_cast<int64_t>(length);
    }
    return result;
  }
  if (operands.sizes && has_sizes) {
    check(operands.sizes->size(), axes.size(), "sizes");
    bool known = true;
    float common = 0;
    for (size_t i = 0; i < axes.size(); ++i) {
      Axis& axis = result[static_cast<size_t>(axes[i])];
      axis.out = (*operands.sizes)[i];
      if (axis.out < 0 || axis.out > kSizeLimit)
        node.fail(ErrorCode::kInvalidModel, std::to_string(axis.out) + " in sizes is no possible size");
      known = known && axis.in >= 0;
      axis.scale = static_cast<float>(axis.out) / static_cast<float>(axis.in);
      if (i == 0) common = axis.scale;
      common = options.aspect == Aspect::kNotSmaller ? std::max(common, axis.scale) : std::min(common, axis.scale);
    }
    if (options.aspect != Aspect::kStretch)
      for (int64_t a : axes) {
        Axis& axis = result[static_cast<size_t>(a)];
        axis.scale = common;
        const float length =
            std::floor(common * static_cast<float>(axis.in) + 0.5f);  // NaN for an axis without elements
        if (length > static_cast<float>(kSizeLimit))
          node.fail(ErrorCode::kDoesNotFit, "axis " + std::to_string(a) + " becomes too long");
        axis.out = !known ? -1 : length > 0 ? static_cast<int64_t>(length) : 0;
      }
    return result;
  }
  for (int64_t axis : axes) result[static_cast<size_t>(axis)].out = -1;
  return result;
}

void infer_resize(InferContext& c) {
  const TypeInfo& in = c.input(0);
  const Options options = options_of(c.node);
  if (options.filter != Filter::kNearest) require_type(c.node, in.dtype, kNumeric, "input");
  const Operands operands = operands_of(
      c.node, [&](size_t i) { return c.has(i) && c.inputs[i].constant ? &*c.inputs[i].constant : nullptr; },
      [&](size_t i) {
        if (!c.has(i) || c.inputs[i].constant) return true;
        return c.inputs[i].is_static() &&
               element_count(c.inputs[i].shape) == 0;  // an empty tensor stands for an absent one
      });
  if (!in.ranked) {
    int64_t rank = -1;
    if (!c.node.has("axes"))
      rank = std::max({operands.scales ? static_cast<int64_t>(operands.scales->size()) : -1,
                       operands.sizes ? static_cast<int64_t>(operands.sizes->size()) : -1});
    c.outputs[0] = rank > 0 ? of_rank(in.dtype, rank) : TypeInfo::unranked(in.dtype);
    return;
  }
  Shape shape;
  for (const Axis& axis : plan(c.node, options, operands, in.shape)) shape.push_back(axis.out);
  c.outputs[0] = TypeInfo::tensor(in.dtype, std::move(shape));
}

// ---------------------------------------------------------------------------------------------- coordinates

/// Position in the input of output `o` by the formula of the transformation, in fp32; half_pixel_symmetric divides and
/// adds in fp64, as ONNX Runtime does.
float transformed(const Options& options, const Axis& axis, int64_t o) {
  const float x = static_cast<float>(o), in = static_cast<float>(axis.in), out = static_cast<float>(axis.out);
  switch (options.transform) {
    case Transform::kHalfPixel: return (x + 0.5f) / axis.scale - 0.5f;
    case Transform::kHalfPixelSymmetric: {
      const float adjustment = out / (axis.scale * in), centre = in / 2, offset = centre * (1 - adjustment);
      return static_cast<float>(static_cast<double>(offset) +
                                (static_cast<double>(x) + 0.5) / static_cast<double>(axis.scale) - 0.5);
    }
    case Transform::kPytorchHalfPixel: return axis.out > 1 ? (x + 0.5f) / axis.scale - 0.5f : 0.0f;
    case Transform::kAlignCorners: return axis.out == 1 ? 0.0f : x * (in - 1) / (out - 1);
    case Transform::kAsymmetric: return x / axis.scale;
    case Transform::kTfHalfPixel: return (x + 0.5f) / axis.scale;
    case Transform::kTfCrop:
      return axis.out > 1 ? axis.start * (in - 1) + (x * (axis.end - axis.start) * (in - 1)) / (out - 1)
                          : 0.5f * (axis.start + axis.end) * (in - 1);
  }
  return 0;
}

/// The same, bounded so that it can be made an integer: far outside is outside, and so is NaN.
float original(const Options& options, const Axis& axis, int64_t o) {
  constexpr float kFar = 1e9f;
  const float x = transformed(options, axis, o);
  return x > -kFar ? std::min(x, kFar) : -kFar;
}

/// Positions within 1e-6 of the middle between two neighbours are ties.
int64_t nearest_index(const Options& options, const Axis& axis, float x) {
  const bool tie = std::fabs(x - std::floor(x) - 0.5f) <= 1e-6f;
  float index = 0;
  switch (options.nearest) {
    case Nearest::kRoundPreferFloor: index = tie ? std::floor(x) : std::ceil(x - 0.5f); break;
    case Nearest::kRoundPreferCeil: index = tie ? std::ceil(x) : std::floor(x + 0.5f); break;
    case Nearest::kFloor: index = std::floor(x); break;
    case Nearest::kCeil: index = std::ceil(x); break;
    case Nearest::kSimple: index = axis.scale < 1 ? std::ceil(x) : std::floor(x); break;
  }
  return std::clamp<int64_t>(static_cast<int64_t>(index), 0, axis.in - 1);
}

/// Taps of one output: indices inside the input and their weights.
struct Taps {
  std::vector<int64_t> index;
  std::vector<float> weight;
};

float cubic_kernel(float x, float a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

/// Weights of a filter around `x`; `stretch` >= 1 widens it (antialiasing when shrinking). Taps outside the input
/// repeat the border or, with exclude_outside, count nothing; the weights of a widened or clipped filter are scaled to
/// sum 1.
Taps filter_taps(const Options& options, const Axis& axis, float x) {
  const float stretch = options.antialias && axis.scale < 1 ? 1 / axis.scale : 1;
  const float support = (options.filter == Filter::kCubic ? 2.0f : 1.0f) * stretch;
  const int64_t first = static_cast<int64_t>(std::floor(x - support)) + 1,
                last = static_cast<int64_t>(std::ceil(x + support)) - 1;
  Taps taps;
  float sum = 0;
  for (int64_t i = first; i <= last; ++i) {
    const float distance = (static_cast<float>(i) - x) / stretch;
    float weight = options.filter == Filter::kCubic ? cubic_kernel(distance, options.cubic_a)
                                                    : std::max(0.0f, 1 - std::fabs(distance));
    if (options.exclude_outside && (i < 0 || i >= axis.in)) weight = 0;
    taps.index.push_back(std::clamp<int64_t>(i, 0, axis.in - 1));
    taps.weight.push_back(weight);
    sum += weight;
  }
  if ((options.exclude_outside || stretch > 1) && sum != 0)
    for (float& weight : taps.weight) weight /= sum;
  return taps;
}

/// The two neighbours of x, clamped to the axis, weighted by the distance to the other; half each where they coincide.
Taps linear_taps(const Axis& axis, float x) {
  const float inside = std::clamp(x, 0.0f, static_cast<float>(axis.in - 1));
  const int64_t left = std::min(static_cast<int64_t>(inside), axis.in - 1), right = std::min(left + 1, axis.in - 1);
  if (left == right) return {{left, right}, {0.5f, 0.5f}};
  return {{left, right}, {std::fabs(inside - static_cast<float>(right)), std::fabs(inside - static_cast<float>(left))}};
}

// ----------------------------------------------------------------------------------------------- evaluation

/// True where the axis maps every output to the input of the same position.
bool is_identity(const Options& options, const Axis& axis) {
  return axis.in == axis.out && axis.scale == 1 &&
         (options.transform != Transform::kTfCrop || (axis.start == 0 && axis.end == 1));
}

Tensor resize_nearest(const Options& options, const std::vector<Axis>& axes, const Tensor& in, const Shape& shape) {
  Tensor current = in;
  for (size_t d = 0; d < axes.size(); ++d) {
    if (is_identity(options, axes[d])) continue;
    Shape next = current.shape();
    next[d] = shape[d];
    const int64_t outer = product(next, 0, d), inner = product(next, d + 1, next.size());
    std::vector<int64_t> from;
    for (int64_t o = 0; o < axes[d].out; ++o)
      from.push_back(nearest_index(options, axes[d], original(options, axes[d], o)));
    Tensor out(in.dtype(), next);
    visit_storage(in.dtype(), [&]<typename T>(Tag<T>) {
      const T* x = elements<T>(current);
      T* y = mutable_elements<T>(out);
      if (inner == 1) {
        for (int64_t o = 0; o < outer; ++o, x += axes[d].in)
          for (int64_t index : from) *y++ = x[index];
        return;
      }
      for (int64_t o = 0; o < outer; ++o)
        for (int64_t index : from)
          y = std::copy(x + (o * axes[d].in + index) * inner, x + (o * axes[d].in + index + 1) * inner, y);
    });
    current = std::move(out);
  }
  return current;
}

/// Real value to T: integers truncate or round, and saturate.
template <typename T, typename R>
T store(R value, bool round) {
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  if (round) value = std::floor(value + R{0.5});
  if (std::isnan(value)) return 0;
  if (value <= static_cast<R>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
  if (value >= static_cast<R>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

/// The axes that a linear resize blends. A spatial axis that keeps its length takes part beside one that does not, as
/// in ONNX Runtime: at its last position two halves are added, which a truncating integer result can see.
std::vector<bool> blended_axes(const Options& options, const std::vector<Axis>& axes) {
  std::vector<bool> blended;
  for (const Axis& axis : axes) blended.push_back(!is_identity(options, axis));
  const size_t rank = axes.size();
  const size_t outer = rank >= 4 ? 2 : 0;  // [N, C, spatial...] or spatial only
  const bool channels_last = rank == 4 && blended[1] && !blended[3];
  if (channels_last)
    blended[2] = true;
  else if (std::none_of(blended.begin(), blended.begin() + static_cast<int64_t>(outer), [](bool b) { return b; }))
    std::fill(blended.begin() + static_cast<int64_t>(outer), blended.end(), true);
  return blended;
}

/// All corners at once: weights multiply from the last axis on, the corner of the last axis changes first.
template <typename T>
void resize_linear(const Options& options, const std::vector<Axis>& axes, const Tensor& in, Tensor& out) {
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::vector<size_t> active;
  const std::vector<bool> blended = blended_axes(options, axes);
  for (size_t d = axes.size(); d-- > 0;)
    if (blended[d]) active.push_back(d);  // last axis first
  std::vector<std::vector<Taps>> taps(axes.size());
  for (size_t d : active)
    for (int64_t o = 0; o < axes[d].out; ++o) taps[d].push_back(linear_taps(axes[d], original(options, axes[d], o)));
  const std::vector<int64_t> strides = row_strides(in.shape());
  const T* x = elements<T>(in);
  T* y = mutable_elements<T>(out);
  std::vector<int64_t> index(axes.size(), 0);
  const size_t corners = size_t{1} << active.size();
  for (int64_t flat = 0; flat < out.size(); ++flat) {
    int64_t base = 0;
    for (size_t d = 0; d < axes.size(); ++d)
      if (taps[d].empty()) base += index[d] * strides[d];
    R sum = 0;
    for (size_t corner = 0; corner < corners; ++corner) {
      R weight = 1;
      int64_t at = base;
      for (size_t k = 0; k < active.size(); ++k) {
        const Taps& t = taps[active[k]][static_cast<size_t>(index[active[k]])];
        const size_t side = (corner >> k) & 1;
        weight *= t.weight[side];
        at += t.index[side] * strides[active[k]];
      }
      if (weight != 0) sum += weight * static_cast<R>(x[at]);
    }
    y[flat] = store<T>(sum, false);
    for (size_t d = axes.size(); d-- > 0;) {
      if (++index[d] < axes[d].out) break;
      index[d] = 0;
    }
  }
}

/// Axis by axis, from the last, in R between the passes. Antialiased integers round after every pass; those of 8 bits
/// have weights of 22 fractional bits, so that their sums are exact in double (as image libraries and ONNX Runtime do
/// in integers).
template <typename T>
void resize_filtered(const Options& options, const std::vector<Axis>& axes, const Tensor& in, Tensor& out) {
  constexpr bool kBytes = sizeof(T) == 1;
  using R = std::conditional_t<std::is_same_v<T, double> || kBytes, double, float>;
  const T* x = elements<T>(in);
  std::vector<R> current(x, x + in.size());
  Shape shape = in.shape();
  for (size_t d = axes.size(); d-- > 0;) {
    if (is_identity(options, axes[d])) continue;
    const int64_t outer = product(shape, 0, d), inner = product(shape, d + 1, shape.size());
    std::vector<R> next(static_cast<size_t>(outer * axes[d].out * inner), R{0});
    for (int64_t o = 0; o < axes[d].out; ++o) {
      const Taps taps = filter_taps(options, axes[d], original(options, axes[d], o));
      std::vector<R> weights(taps.weight.begin(), taps.weight.end());
      if (kBytes && options.antialias)
        for (R& w : weights) w = std::round(w * R{1 << 22}) / R{1 << 22};
      for (int64_t a = 0; a < outer; ++a) {
        R* y = next.data() + (a * axes[d].out + o) * inner;
        for (size_t t = 0; t < taps.index.size(); ++t) {
          const R* from = current.data() + (a * axes[d].in + taps.index[t]) * inner;
          for (int64_t i = 0; i < inner; ++i) y[i] += weights[t] * from[i];
        }
      }
    }
    if (std::is_integral_v<T> && options.antialias)
      for (R& value : next) value = static_cast<R>(store<T>(value, true));
    shape[d] = axes[d].out;
    current = std::move(next);
  }
  T* y = mutable_elements<T>(out);
  for (size_t i = 0; i < current.size(); ++i) y[i] = store<T>(current[i], options.antialias);
}

/// tf_crop_and_resize: outputs whose position lies outside the input on any axis take the extrapolation value.
template <typename T>
void extrapolate(const Options& options, const std::vector<Axis>& axes, Tensor& out) {
  std::vector<std::vector<bool>> outside;
  for (const Axis& axis : axes) {
    std::vector<bool> flags;
    for (int64_t o = 0; o < axis.out; ++o) {
      const float x = original(options, axis, o);
      flags.push_back(!is_identity(options, axis) && (x < 0 || x > static_cast<float>(axis.in - 1)));
    }
    outside.push_back(std::move(flags));
  }
  T* y = mutable_elements<T>(out);
  for_each_index(out.shape(), [&](int64_t flat, const std::vector<int64_t>& index) {
    for (size_t d = 0; d < axes.size(); ++d)
      if (outside[d][static_cast<size_t>(index[d])]) {
        y[flat] = store<T>(options.extrapolation, false);
        return;
      }
  });
}

void evaluate_resize(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Options options = options_of(c.node);
  const Operands operands =
      operands_of(c.node, [&](size_t i) { return c.has(i) ? &c.input(i) : nullptr; }, [](size_t) { return true; });
  const std::vector<Axis> axes = plan(c.node, options, operands, c.input(0).shape());
  const Shape& shape = types[0].shape;
  if (product(shape) == 0) {
    c.outputs[0] = Tensor(types[0].dtype, shape);
    return;
  }
  for (const Axis& axis : axes)
    if (axis.in == 0) c.node.fail(ErrorCode::kInvalidArgument, "an axis without elements cannot grow");
  const bool nearest = options.filter == Filter::kNearest;
  if (nearest && options.transform != Transform::kTfCrop) {
    c.outputs[0] = resize_nearest(options, axes, c.input(0), shape);
    return;
  }
  const Tensor in = widen(c.input(0));
  Tensor out = nearest ? resize_nearest(options, axes, in, shape) : Tensor(in.dtype(), shape);
  visit_arithmetic(c.node, in.dtype(), [&]<typename T>(Tag<T>) {
    if (options.filter == Filter::kCubic || (options.filter == Filter::kLinear && options.antialias))
      resize_filtered<T>(options, axes, in, out);
    else if (!nearest)
      resize_linear<T>(options, axes, in, out);
    if (options.transform == Transform::kTfCrop) extrapolate<T>(options, axes, out);
  });
  c.outputs[0] = narrow(std::move(out), types[0].dtype);
}

}  // namespace

void register_resize(Registry& r) {
  add(r, "Upsample", 7, kOne, infer_resize, evaluate_resize, {"mode", "scales"});
  add(r, "Upsample", 9, kTwo, infer_resize, evaluate_resize, {"mode"});
  add(r, "Resize", 10, kTwo, infer_resize, evaluate_resize, {"mode"});
  std::set<std::string> attributes = {"coordinate_transformation_mode",
                                      "cubic_coeff_a",
                                      "exclude_outside",
                                      "extrapolation_value",
                                      "mode",
                                      "nearest_mode"};
  for (int version : {11, 13})
    add(r, "Resize", version, {version == 11 ? 3 : 1, 4}, infer_resize, evaluate_resize, attributes);
  attributes.insert({"antialias", "axes", "keep_aspect_ratio_policy"});
  add(r, "Resize", 18, {1, 4}, infer_resize, evaluate_resize, attributes);
}

}  // namespace tessera::ops
