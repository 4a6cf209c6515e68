// SPDX-License-Identifier: Apache-2.0
// Layer and RMS normalisation as ONNX Runtime computes them, each operation rounded once in the element type of x
// unless told otherwise (docs/numerics.md): LayerNormalization of fp32 rows of eight elements or more by the sums of
// eight lanes, every other one in ascending order.
#include "ops/kernels/normalization.h"

#include <array>

namespace tessera::ops {

namespace {

/// A scale or shift, for element i of a row or, where it does not belong to rows, for an element of x.
template <typename T>
class Parameter {
 public:
  Parameter(const Tensor* tensor, const Shape& shape, int64_t width) : width_(width) {
    if (tensor == nullptr) return;
    by_row_ = tensor->size() == width;
    values_.resize(static_cast<size_t>(by_row_ ? width : element_count(shape)));
    if (by_row_)
      std::copy_n(kernel::elements<T>(*tensor), width, values_.data());
    else
      kernel::binary_loop(shape, shape, tensor->shape(), values_.data(), kernel::elements<T>(*tensor), values_.data(),
                          [](T, T b) { return b; });
  }
  bool given() const { return !values_.empty(); }
  T at(int64_t row, int64_t i) const { return values_[static_cast<size_t>(by_row_ ? i : row * width_ + i)]; }

 private:
  int64_t width_;
  bool by_row_ = true;
  std::vector<T> values_;
};

/// The mean in float64.
template <typename T>
T mean_of(std::span<const T> values) {
  double sum = 0;
  for (const T value : values) sum += static_cast<double>(value);
  return static_cast<T>(sum / static_cast<double>(values.size()));
}

/// The sum of (x - mean)^2: eight sums of every eighth element by fma, halves added three times, then what is left
/// over, four squares as they are and the others by fma.
float squares_in_lanes(std::span<const float> values, float mean) {
  constexpr size_t kLanes = 8;
  std::array<float, kLanes> lanes{};
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; ++i) {
    const float d = values[i] - mean;
    lanes[i % kLanes] = std::fma(d, d, lanes[i % kLanes]);
  }
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  float sum = lanes[0];
  const size_t squared = values.size() / kSquaredApart * kSquaredApart;
  for (size_t i = whole; i < values.size(); ++i) {
    const float d = values[i] - mean;
    sum = i < squared ? sum + d * d : std::fma(d, d, sum);
  }
  return sum;
}

/// Mean and inverse standard deviation of a row.
template <typename T>
struct RowMoments {
  T mean = 0, inverse = 0;
};

RowMoments<float> normalize_in_lanes(std::span<const float> values, float epsilon, bool centred, float* out) {
  const float mean = centred ? mean_of(values) : 0;
  const float variance = squares_in_lanes(values, mean) / static_cast<float>(values.size());
  const float inverse = 1 / std::sqrt(variance + epsilon);
  for (size_t i = 0; i < values.size(); ++i) out[i] = (values[i] - mean) * inverse;
  return {mean, inverse};
}

/// Mean and squares about it are brought forward from element to element.
template <typename T>
RowMoments<T> normalize_running(std::span<const T> values, T epsilon, bool centred, T* out) {
  T mean{0}, squares{0}, count{0};
  for (const T value : values) {
    const T before = value - mean;
    count += 1;
    if (centred) mean += before / count;
    squares += before * (value - mean);
  }
  const T deviation = std::sqrt(squares / count + epsilon);
  for (size_t i = 0; i < values.size(); ++i) out[i] = (values[i] - mean) / deviation;
  return {mean, 1 / deviation};
}

}  // namespace

LayerNormalized layer_normalize(const Tensor& x, int64_t axis, double epsilon, bool centred, const Tensor* scale,
                                const Tensor* shift, bool lanes) {
  Shape rows = x.shape();
  std::fill(rows.begin() + axis, rows.end(), 1);
  LayerNormalized result{Tensor(x.dtype(), x.shape()), Tensor(x.dtype(), rows), Tensor(x.dtype(), rows)};
  if (x.size() == 0) return result;
  kernel::visit_float(x.dtype(), [&]<typename T>(kernel::Tag<T>) {
    const int64_t width = kernel::product(x.shape(), static_cast<size_t>(axis), x.shape().size());
    const bool in_lanes = lanes && std::is_same_v<T, float> && width >= shortest_in_lanes(centred);
    const Parameter<T> factor(scale, x.shape(), width), addend(shift, x.shape(), width);
    T* out = kernel::mutable_elements<T>(result.y);
    for (int64_t row = 0; row < result.mean.size(); ++row, out += width) {
      const std::span<const T> values(kernel::elements<T>(x) + row * width, static_cast<size_t>(width));
      RowMoments<T> moments;
      if constexpr (std::is_same_v<T, float>)
        if (in_lanes) moments = normalize_in_lanes(values, static_cast<float>(epsilon), centred, out);
      if (!in_lanes) moments = normalize_running<T>(values, static_cast<T>(epsilon), centred, out);
      for (int64_t i = 0; i < width && factor.given(); ++i) {
        if (!addend.given())
          out[i] *= factor.at(row, i);
        else if (in_lanes)
          out[i] = std::fma(out[i], factor.at(row, i), addend.at(row, i));
        else
          out[i] = out[i] * factor.at(row, i) + addend.at(row, i);
      }
      kernel::mutable_elements<T>(result.mean)[row] = moments.mean;
      kernel::mutable_elements<T>(result.inverse_deviation)[row] = moments.inverse;
    }
  });
  return result;
}

}  // namespace tessera::ops
