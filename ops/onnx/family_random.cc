// SPDX-License-Identifier: Apache-2.0
// Random generators: RandomUniform, RandomNormal and their Like forms, Bernoulli, Multinomial. Numbers come from a
// 64-bit Mersenne twister. With the attribute `seed` every evaluation of the node draws the same numbers, on every
// machine; without it each evaluation draws others. ONNX leaves the generator open: values differ from those of other
// implementations, distributions agree.
#include <atomic>
#include <bit>
#include <cmath>
#include <numbers>
#include <random>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

class Generator {
 public:
  explicit Generator(const Node& node) : engine_(seed_of(node)) {}
  /// In [0, 1), all 53 bits random.
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  /// Mean 0, deviation 1 (Box and Muller).
  double normal() {
    if (spare_) {
      spare_ = false;
      return next_;
    }
    const double radius = std::sqrt(-2 * std::log(1 - uniform())), angle = 2 * std::numbers::pi * uniform();
    next_ = radius * std::sin(angle);
    spare_ = true;
    return radius * std::cos(angle);
  }

 private:
  static uint64_t seed_of(const Node& node) {
    if (node.has("seed")) return std::bit_cast<uint32_t>(node.get_float("seed", 0));
    static const uint64_t base = (static_cast<uint64_t>(std::random_device{}()) << 32) | std::random_device{}();
    static std::atomic<uint64_t> calls{0};
    return base + 0x9e3779b97f4a7c15u * ++calls;
  }
  std::mt19937_64 engine_;
  bool spare_ = false;
  double next_ = 0;
};

/// Element type from `dtype`, else `fallback`.
DType asked_type(const Node& node, DType fallback, TypeSet set) {
  if (!node.has("dtype")) return fallback;
  const int64_t value = node.get_int("dtype", 1);
  if (value < 1 || value > static_cast<int64_t>(DType::kBfloat16) || !contains(set, static_cast<DType>(value)))
    node.fail(ErrorCode::kInvalidModel, "dtype " + std::to_string(value) + " is not served by this operator");
  return static_cast<DType>(value);
}

void infer_shaped(InferContext& c) {
  if (!c.node.has("shape")) c.node.fail(ErrorCode::kInvalidModel, "attribute 'shape' is missing");
  const Shape shape = c.node.get_ints("shape");
  element_count(shape);  // rejects negative dimensions
  c.outputs[0] = TypeInfo::tensor(asked_type(c.node, DType::kFloat, kFloats), shape);
}

void infer_like(InferContext& c) {
  c.outputs[0] = without_constant(c.input(0));
  c.outputs[0].dtype = asked_type(c.node, c.input(0).dtype, kFloats);
  require_type(c.node, c.outputs[0].dtype, kFloats, "the result");
}

/// Fills a result of any float type with draw().
template <typename Draw>
Tensor fill(DType dtype, const Shape& shape, Draw draw) {
  Tensor out(is_narrow_float(dtype) ? DType::kFloat : dtype, shape);
  visit_float(out.dtype(), [&]<typename T>(Tag<T>) {
    for (int64_t i = 0; i < out.size(); ++i) mutable_elements<T>(out)[i] = static_cast<T>(draw());
  });
  return narrow(std::move(out), dtype);
}

void evaluate_normal(EvalContext& c, const std::vector<TypeInfo>& types) {
  Generator generator(c.node);
  const double mean = c.node.get_float("mean", 0), scale = c.node.get_float("scale", 1);
  c.outputs[0] = fill(types[0].dtype, types[0].shape, [&] { return mean + scale * generator.normal(); });
}

void evaluate_uniform(EvalContext& c, const std::vector<TypeInfo>& types) {
  Generator generator(c.node);
  const double low = c.node.get_float("low", 0), high = c.node.get_float("high", 1);
  c.outputs[0] = fill(types[0].dtype, types[0].shape, [&] { return low + (high - low) * generator.uniform(); });
}

void infer_bernoulli(InferContext& c) {
  require_type(c.node, c.input(0).dtype, kFloats, "input");
  c.outputs[0] = without_constant(c.input(0));
  c.outputs[0].dtype = asked_type(c.node, c.input(0).dtype, kNumeric | kBoolSet);
}

void evaluate_bernoulli(EvalContext& c, const std::vector<TypeInfo>& types) {
  Generator generator(c.node);
  const std::vector<double> p = c.input(0).to_doubles();
  const DType dtype = types[0].dtype;
  Tensor out(is_narrow_float(dtype) ? DType::kFloat : dtype, types[0].shape);
  const auto draw = [&]<typename T>(Tag<T>) {
    for (size_t i = 0; i < p.size(); ++i) mutable_elements<T>(out)[i] = generator.uniform() < p[i] ? T(1) : T(0);
  };
  if (dtype == DType::kBool)
    draw(Tag<uint8_t>{});
  else
    visit_arithmetic(out.dtype(), draw);
  c.outputs[0] = narrow(std::move(out), dtype);
}

void infer_multinomial(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kFloats, "input");
  require_rank(c.node, in, 2, "input");
  const int64_t samples = c.node.get_int("sample_size", 1);
  if (samples < 1) c.node.fail(ErrorCode::kInvalidModel, "sample_size must be positive");
  c.outputs[0] = TypeInfo::tensor(asked_type(c.node, DType::kInt32, kIndex), {in.ranked ? in.shape[0] : -1, samples});
}

/// Classes drawn with probabilities proportional to the exponentials of the input.
void evaluate_multinomial(EvalContext& c, const std::vector<TypeInfo>& types) {
  Generator generator(c.node);
  const std::vector<double> logs = c.input(0).to_doubles();
  const int64_t batch = types[0].shape[0], samples = types[0].shape[1], classes = c.input(0).shape()[1];
  if (classes == 0) c.node.fail(ErrorCode::kInvalidArgument, "there are no classes to draw from");
  Tensor out(types[0].dtype, types[0].shape);
  for (int64_t b = 0; b < batch; ++b) {
    const double* row = logs.data() + b * classes;
    const double most = *std::max_element(row, row + classes);
    std::vector<double> sums;
    double sum = 0;
    for (int64_t k = 0; k < classes; ++k) sums.push_back(sum += std::exp(row[k] - most));
    for (int64_t s = 0; s < samples; ++s) {
      const double draw = generator.uniform() * sum;
      const int64_t chosen =
          std::min<int64_t>(classes - 1, std::upper_bound(sums.begin(), sums.end(), draw) - sums.begin());
      if (out.dtype() == DType::kInt32)
        mutable_elements<int32_t>(out)[b * samples + s] = static_cast<int32_t>(chosen);
      else
        mutable_elements<int64_t>(out)[b * samples + s] = chosen;
    }
  }
  c.outputs[0] = std::move(out);
}

void add_random(Registry& r, const char* name, int version, Arity inputs, InferFunction infer, Kernel kernel,
                std::set<std::string> attributes) {
  EvalFunction evaluate = evaluation(infer, std::move(kernel));
  add_checked(r, name, version, inputs, std::move(infer), std::move(evaluate), std::move(attributes), kOne, "", {},
              /*deterministic=*/false);
}

}  // namespace

void register_random(Registry& r) {
  add_random(r, "RandomNormal", 1, {0, 0}, infer_shaped, evaluate_normal, {"dtype", "mean", "scale", "seed", "shape"});
  add_random(r, "RandomUniform", 1, {0, 0}, infer_shaped, evaluate_uniform, {"dtype", "high", "low", "seed", "shape"});
  add_random(r, "RandomNormalLike", 1, kOne, infer_like, evaluate_normal, {"dtype", "mean", "scale", "seed"});
  add_random(r, "RandomUniformLike", 1, kOne, infer_like, evaluate_uniform, {"dtype", "high", "low", "seed"});
  add_random(r, "Bernoulli", 15, kOne, infer_bernoulli, evaluate_bernoulli, {"dtype", "seed"});
  add_random(r, "Multinomial", 7, kOne, infer_multinomial, evaluate_multinomial, {"dtype", "sample_size", "seed"});
}

}  // namespace tessera::ops
