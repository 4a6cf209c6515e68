// SPDX-License-Identifier: Apache-2.0
// Spectra of LiteRT: Rfft2d, complex numbers of their parts and the parts of them. Domain litert. The transform is
// computed in float64 and rounded once, as the reference kernel's is.
#include <cmath>
#include <complex>
#include <numbers>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;
using Complex = std::complex<double>;

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

/// x [..., h, w] cut or filled with zeros to the extents of attribute `length`, both powers of two; result complex64
/// [..., length 0, length 1 / 2 + 1].
void infer_rfft2d(InferContext& c) {
  const TypeInfo& x = c.input(0);
  require_type(c.node, x.dtype, set_of({DType::kFloat}), "x");
  const std::vector<int64_t> length = c.node.get_ints("length");
  if (length.size() != 2 || !is_power_of_two(length[0]) || !is_power_of_two(length[1]) ||
      std::max(length[0], length[1]) > int64_t{1} << 24)
    c.node.fail(ErrorCode::kInvalidModel, "length must be two powers of two");
  c.outputs[0] = TypeInfo::unranked(DType::kComplex64);
  if (!x.ranked) return;
  if (x.shape.size() < 2) c.node.fail(ErrorCode::kInvalidModel, "x must have two axes");
  Shape shape = x.shape;
  shape[shape.size() - 2] = length[0];
  shape.back() = length[1] / 2 + 1;
  c.outputs[0] = TypeInfo::tensor(DType::kComplex64, shape);
}

/// In place, n a power of two: bits of the index reversed, then butterflies.
void transform(std::vector<Complex>& x) {
  const size_t n = x.size();
  for (size_t i = 1, j = 0; i < n; ++i) {
    size_t bit = n >> 1;
    for (; (j & bit) != 0; bit >>= 1) j ^= bit;
    j ^= bit;
    if (i < j) std::swap(x[i], x[j]);
  }
  for (size_t span = 2; span <= n; span *= 2) {
    for (size_t k = 0; k < span / 2; ++k) {
      const double angle = -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(span);
      const Complex turn(std::cos(angle), std::sin(angle));
      for (size_t i = k; i < n; i += span) {
        const Complex a = x[i], b = x[i + span / 2] * turn;
        x[i] = a + b;
        x[i + span / 2] = a - b;
      }
    }
  }
}

void evaluate_rfft2d(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& in = c.input(0);
  const std::vector<int64_t> length = c.node.get_ints("length");
  const auto rows = static_cast<size_t>(length[0]), columns = static_cast<size_t>(length[1]), half = columns / 2 + 1;
  const Shape& shape = in.shape();
  const auto height = static_cast<size_t>(shape[shape.size() - 2]), width = static_cast<size_t>(shape.back());
  const int64_t images = product(shape, 0, shape.size() - 2);
  Tensor out(DType::kComplex64, types[0].shape);
  auto* y = reinterpret_cast<std::complex<float>*>(out.mutable_data());
  for (int64_t image = 0; image < images; ++image) {
    const float* x = elements<float>(in) + image * static_cast<int64_t>(height * width);
    std::vector<Complex> spectrum(rows * half), row(columns), column(rows);
    for (size_t i = 0; i < std::min(rows, height); ++i) {
      std::fill(row.begin(), row.end(), Complex());
      for (size_t k = 0; k < std::min(columns, width); ++k) row[k] = static_cast<double>(x[i * width + k]);
      transform(row);
      std::copy_n(row.begin(), half, spectrum.begin() + static_cast<int64_t>(i * half));
    }
    for (size_t k = 0; k < half; ++k) {
      for (size_t i = 0; i < rows; ++i) column[i] = spectrum[i * half + k];
      transform(column);
      for (size_t i = 0; i < rows; ++i) *(y + i * half + k) = std::complex<float>(column[i]);
    }
    y += rows * half;
  }
  c.outputs[0] = std::move(out);
}

void infer_part(InferContext& c) {
  require_type(c.node, c.input(0).dtype, set_of({DType::kComplex64}), "x");
  c.outputs[0] = without_constant(c.input(0), DType::kFloat);
}

template <typename Part>
Kernel complex_part(Part part) {
  return [part](EvalContext& c, const std::vector<TypeInfo>& types) {
    Tensor out(DType::kFloat, types[0].shape);
    const auto* x = reinterpret_cast<const std::complex<float>*>(c.input(0).data());
    for (int64_t i = 0; i < out.size(); ++i) mutable_elements<float>(out)[i] = part(x[i]);
    c.outputs[0] = std::move(out);
  };
}

/// re and im, which is zero where it is left out, of one shape; result complex64.
void infer_complex(InferContext& c) {
  for (size_t i = 0; i < c.inputs.size(); ++i)
    require_type(c.node, c.input(i).dtype, set_of({DType::kFloat}), i == 0 ? "re" : "im");
  c.outputs[0] = without_constant(c.input(0), DType::kComplex64);
}

void evaluate_complex(EvalContext& c, const std::vector<TypeInfo>& types) {
  const bool has_imaginary = c.inputs.size() > 1;
  if (has_imaginary && c.input(1).shape() != c.input(0).shape())
    c.node.fail(ErrorCode::kInvalidModel, "re and im differ in shape");
  Tensor out(DType::kComplex64, types[0].shape);
  auto* y = reinterpret_cast<std::complex<float>*>(out.mutable_data());
  for (int64_t i = 0; i < out.size(); ++i)
    y[i] = {elements<float>(c.input(0))[i], has_imaginary ? elements<float>(c.input(1))[i] : 0.0F};
  c.outputs[0] = std::move(out);
}

}  // namespace

void register_litert_signal(Registry& r) {
  using Number = std::complex<float>;
  add(r, "Rfft2d", 1, kOne, infer_rfft2d, evaluate_rfft2d, {"length"}, kOne, kLitert);
  add(r, "Complex", 1, {1, 2}, infer_complex, evaluate_complex, {}, kOne, kLitert);
  add(r, "Real", 1, kOne, infer_part, complex_part([](Number x) { return x.real(); }), {}, kOne, kLitert);
  add(r, "Imag", 1, kOne, infer_part, complex_part([](Number x) { return x.imag(); }), {}, kOne, kLitert);
  add(r, "ComplexAbs", 1, kOne, infer_part, complex_part([](Number x) { return std::abs(x); }), {}, kOne, kLitert);
}

}  // namespace tessera::ops
