// SPDX-License-Identifier: Apache-2.0
// Layer and RMS normalisation: y = (x - mean) / sqrt(mean of squares - mean^2 + epsilon) * scale + shift, each
// operation rounded once in the element type of x and sums in ascending order. That is how ONNX Runtime computes them.
#include "ops/normalization.h"

namespace tessera::ops {

LayerNormalized layer_normalize(const Tensor& x, int64_t axis, double epsilon, bool centred, const Tensor* scale,
                                const Tensor* shift) {
  Shape rows = x.shape();
  std::fill(rows.begin() + axis, rows.end(), 1);
  LayerNormalized result{Tensor(x.dtype(), x.shape()), Tensor(x.dtype(), rows), Tensor(x.dtype(), rows)};
  if (x.size() == 0) return result;
  kernel::visit_float(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t width = kernel::product(x.shape(), static_cast<size_t>(axis), x.shape().size());
    T* out = kernel::mutable_elements<T>(result.y);
    for (int64_t row = 0; row < result.mean.size(); ++row) {
      const std::span<const T> values(kernel::elements<T>(x) + row * width, static_cast<size_t>(width));
      T mean{0}, squares{0};
      for (const T value : values) {
        if (centred) mean += value;
        squares += value * value;
      }
      const T count = static_cast<T>(width);
      mean /= count;
      const T variance = centred ? squares / count - mean * mean : squares / count;
      const T deviation = std::sqrt(variance + static_cast<T>(epsilon));
      kernel::mutable_elements<T>(result.mean)[row] = mean;
      kernel::mutable_elements<T>(result.inverse_deviation)[row] = T{1} / deviation;
      for (int64_t i = 0; i < width; ++i) out[row * width + i] = (values[static_cast<size_t>(i)] - mean) / deviation;
    }
    if (scale != nullptr)
      kernel::binary_loop(x.shape(), x.shape(), scale->shape(), out, kernel::elements<T>(*scale), out,
                          [](T a, T b) { return a * b; });
    if (shift != nullptr)
      kernel::binary_loop(x.shape(), x.shape(), shift->shape(), out, kernel::elements<T>(*shift), out,
                          [](T a, T b) { return a + b; });
  });
  return result;
}

}  // namespace tessera::ops
