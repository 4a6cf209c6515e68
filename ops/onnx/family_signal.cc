// SPDX-License-Identifier: Apache-2.0
// Signals: DFT, STFT, the windows Hann, Hamming and Blackman, MelWeightMatrix; and Det. A transform of n points sums n
// products in fp64 with angles reduced modulo n in integers, so that it is exact to the rounding of its result; the
// time is n * n for each line.
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

using namespace kernel;

/// A tensor of any numeric type from doubles; integers are truncated.
Tensor from_doubles(const Node& node, DType dtype, const Shape& shape, const std::vector<double>& values) {
  Tensor out(is_narrow_float(dtype) ? DType::kFloat : dtype, shape);
  if (!visit_arithmetic(out.dtype(), [&]<typename T>(Tag<T>) {
        for (size_t i = 0; i < values.size(); ++i) mutable_elements<T>(out)[i] = static_cast<T>(values[i]);
      }))
    unsupported_type(node, dtype);
  return narrow(std::move(out), dtype);
}

int64_t one_int(const Node& node, const Tensor& t, const char* what) {
  if (t.size() != 1)
    node.fail(ErrorCode::kInvalidModel, std::string(what) + " must be one integer, not shape " + to_string(t.shape()));
  return t.at_int64(0);
}

/// Value of an integer input if it is known; -1 otherwise. Rejects values below `least`.
int64_t known_int(const InferContext& c, size_t i, const char* what, int64_t least) {
  if (!c.has(i)) return -1;
  require_type(c.node, c.inputs[i].dtype, kIndex, what);
  if (!c.inputs[i].constant) return -1;
  const int64_t value = one_int(c.node, *c.inputs[i].constant, what);
  if (value < least)
    c.node.fail(ErrorCode::kInvalidArgument,
                std::string(what) + " = " + std::to_string(value) + " is below " + std::to_string(least));
  return value;
}

// ------------------------------------------------------------------------------------------------------ transforms

using Complex = std::complex<double>;

/// Points of a transform; the time grows with their square.
constexpr int64_t kMaxPoints = 1 << 24;

void limit_points(const Node& node, int64_t length) {
  if (length > kMaxPoints)
    node.fail(ErrorCode::kDoesNotFit,
              "a transform of " + std::to_string(length) + " points exceeds " + std::to_string(kMaxPoints));
}

/// Roots of unity exp(-2 pi i k / n), or their conjugates.
std::vector<Complex> roots(int64_t n, bool inverse) {
  std::vector<Complex> w(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(n);
    w[static_cast<size_t>(k)] = {std::cos(angle), inverse ? std::sin(angle) : -std::sin(angle)};
  }
  return w;
}

/// The first `bins` bins of the transform of `in`; `w` are the roots for in.size() points.
std::vector<Complex> transform(const std::vector<Complex>& in, const std::vector<Complex>& w, int64_t bins,
                               bool inverse) {
  const size_t n = in.size();
  std::vector<Complex> out(static_cast<size_t>(bins));
  for (size_t k = 0; k < out.size(); ++k) {
    double re = 0, im = 0;
    size_t at = 0;
    for (size_t i = 0; i < n; ++i) {
      re += in[i].real() * w[at].real() - in[i].imag() * w[at].imag();
      im += in[i].real() * w[at].imag() + in[i].imag() * w[at].real();
      at += k;
      if (at >= n) at -= n;
    }
    out[k] = inverse ? Complex(re / static_cast<double>(n), im / static_cast<double>(n)) : Complex(re, im);
  }
  return out;
}

/// dft_length, or what `have` points of the axis stand for; -1 unknown.
int64_t signal_length(bool given, int64_t length, int64_t have, bool to_real) {
  if (given || !to_real) return given ? length : have;
  return have < 0 ? -1 : std::max<int64_t>(0, 2 * (have - 1));
}

int64_t bin_count(int64_t length, bool onesided) { return length < 0 ? -1 : onesided ? length / 2 + 1 : length; }

/// Axis of a DFT; -1 when its input is not known.
int64_t dft_axis(const Node& node, const Tensor* input, bool given, int64_t rank) {
  if (node.version >= 20 && given && input == nullptr) return -1;
  const int64_t asked = node.version < 20 ? node.get_int("axis", 1) : input ? one_int(node, *input, "axis") : -2;
  const int64_t axis = normalise_axis(node, asked, rank);
  if (axis == rank - 1)
    node.fail(ErrorCode::kInvalidModel, "the last axis holds real and imaginary parts and cannot be transformed");
  return axis;
}

void infer_dft(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kFloats, "input");
  const bool onesided = c.node.get_int("onesided", 0) != 0, inverse = c.node.get_int("inverse", 0) != 0;
  const bool to_real = onesided && inverse;  // from half of a spectrum to a real signal
  const int64_t length = known_int(c, 1, "dft_length", 1);
  limit_points(c.node, length);
  if (c.has(2)) require_type(c.node, c.inputs[2].dtype, kIndex, "axis");
  c.outputs[0] = TypeInfo::unranked(in.dtype);
  if (!in.ranked) return;
  const int64_t rank = static_cast<int64_t>(in.shape.size());
  if (rank < 2)
    c.node.fail(ErrorCode::kInvalidModel,
                "input of shape " + to_string(in.shape) + " has no axis of real and imaginary parts");
  if (in.shape.back() >= 0 && in.shape.back() != 1 && in.shape.back() != 2)
    c.node.fail(ErrorCode::kInvalidModel,
                "the last axis must have 1 (real) or 2 (complex) elements, not shape " + to_string(in.shape));
  if (onesided && in.shape.back() == (inverse ? 1 : 2))
    c.node.fail(ErrorCode::kInvalidModel, std::string("onesided needs a ") + (inverse ? "complex" : "real") + " input");
  Shape shape = in.shape;
  const bool given = c.has(2);
  const int64_t axis = dft_axis(c.node, given && c.inputs[2].constant ? &*c.inputs[2].constant : nullptr, given, rank);
  if (axis < 0)
    std::fill(shape.begin(), shape.end(), -1);
  else
    shape[static_cast<size_t>(axis)] = signal_length(c.has(1), length, shape[static_cast<size_t>(axis)], to_real);
  if (axis >= 0 && !to_real) shape[static_cast<size_t>(axis)] = bin_count(shape[static_cast<size_t>(axis)], onesided);
  shape.back() = to_real ? 1 : 2;
  c.outputs[0] = TypeInfo::tensor(in.dtype, std::move(shape));
}

void evaluate_dft(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& in = c.input(0);
  const bool inverse = c.node.get_int("inverse", 0) != 0, to_real = inverse && c.node.get_int("onesided", 0) != 0;
  const size_t axis = static_cast<size_t>(dft_axis(c.node, c.has(2) ? &c.input(2) : nullptr, c.has(2), in.rank()));
  const Shape &shape = in.shape(), &out_shape = types[0].shape;
  const size_t parts = static_cast<size_t>(shape.back()), last = shape.size() - 1;
  const int64_t have = shape[axis], bins = out_shape[axis];
  const int64_t length =
      signal_length(c.has(1), c.has(1) ? one_int(c.node, c.input(1), "dft_length") : 0, have, to_real);
  if (length < 1) c.node.fail(ErrorCode::kInvalidArgument, "a transform of no points");
  const int64_t outer = product(shape, 0, axis), inner = product(shape, axis + 1, last);
  const std::vector<double> x = in.to_doubles();
  std::vector<double> y(static_cast<size_t>(element_count(out_shape)));
  if (!y.empty()) {
    const std::vector<Complex> w = roots(length, inverse);
    std::vector<Complex> line(static_cast<size_t>(length));
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        for (int64_t t = 0; t < length; ++t) {
          const size_t at = static_cast<size_t>((o * have + t) * inner + i) * parts;
          line[static_cast<size_t>(t)] = t < have ? Complex(x[at], parts == 2 ? x[at + 1] : 0.0) : Complex();
        }
        for (int64_t t = length / 2 + 1; to_real && t < length; ++t)
          line[static_cast<size_t>(t)] = std::conj(line[static_cast<size_t>(length - t)]);
        const std::vector<Complex> result = transform(line, w, bins, inverse);
        for (int64_t k = 0; k < bins; ++k) {
          const size_t at = static_cast<size_t>((o * bins + k) * inner + i) * (to_real ? 1 : 2);
          y[at] = result[static_cast<size_t>(k)].real();
          if (!to_real) y[at + 1] = result[static_cast<size_t>(k)].imag();
        }
      }
  }
  c.outputs[0] = from_doubles(c.node, types[0].dtype, out_shape, y);
}

/// Length of a frame from the window or frame_length; -1 unknown.
int64_t frame_length(InferContext& c) {
  int64_t length = known_int(c, 3, "frame_length", 1);
  if (c.has(2)) {
    require_same_type(c.node, c.input(0), c.inputs[2]);
    require_rank(c.node, c.inputs[2], 1, "window");
    const int64_t window = known_length(c, 2);
    if (length >= 0 && window >= 0 && window != length)
      c.node.fail(ErrorCode::kInvalidModel, "window and frame_length differ");
    length = std::max(length, window);
    if (window == 0) c.node.fail(ErrorCode::kInvalidModel, "the window is empty");
  } else if (!c.has(3)) {
    c.node.fail(ErrorCode::kInvalidModel, "needs a window or a frame_length");
  }
  return length;
}

void infer_stft(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kFloats, "signal");
  if (in.ranked && in.shape.size() != 2) require_rank(c.node, in, 3, "signal");
  const bool is_complex = in.ranked && in.shape.size() == 3 && in.shape[2] == 2,
             onesided = c.node.get_int("onesided", 1) != 0;
  if (in.ranked && in.shape.size() == 3 && in.shape[2] >= 0 && in.shape[2] != 1 && in.shape[2] != 2)
    c.node.fail(ErrorCode::kInvalidModel,
                "the last axis must have 1 (real) or 2 (complex) elements, not shape " + to_string(in.shape));
  if (onesided && is_complex) c.node.fail(ErrorCode::kInvalidModel, "onesided needs a real signal");
  const int64_t step = known_int(c, 1, "frame_step", 1), length = frame_length(c),
                samples = in.ranked ? in.shape[1] : -1;
  if (length >= 0 && samples >= 0 && length > samples)
    c.node.fail(ErrorCode::kInvalidModel,
                "a frame of " + std::to_string(length) + " exceeds the signal of " + std::to_string(samples));
  const int64_t frames = length >= 0 && samples >= 0 && step >= 0 ? (samples - length) / step + 1 : -1;
  c.outputs[0] = TypeInfo::tensor(in.dtype, {in.ranked ? in.shape[0] : -1, frames, bin_count(length, onesided), 2});
}

void evaluate_stft(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor& in = c.input(0);
  const Shape &shape = in.shape(), &out_shape = types[0].shape;
  const size_t parts = shape.size() == 3 ? static_cast<size_t>(shape[2]) : 1;
  const int64_t step = one_int(c.node, c.input(1), "frame_step"),
                length = c.has(2) ? c.input(2).size() : one_int(c.node, c.input(3), "frame_length");
  const std::vector<double> x = in.to_doubles(), window = c.has(2)
                                                              ? c.input(2).to_doubles()
                                                              : std::vector<double>(static_cast<size_t>(length), 1.0);
  const std::vector<Complex> w = roots(length, false);
  std::vector<double> y;
  y.reserve(static_cast<size_t>(element_count(out_shape)));
  std::vector<Complex> frame(static_cast<size_t>(length));
  for (int64_t b = 0; b < out_shape[0]; ++b)
    for (int64_t f = 0; f < out_shape[1]; ++f) {
      for (int64_t t = 0; t < length; ++t) {
        const size_t at = static_cast<size_t>(b * shape[1] + f * step + t) * parts;
        frame[static_cast<size_t>(t)] = Complex(x[at], parts == 2 ? x[at + 1] : 0.0) * window[static_cast<size_t>(t)];
      }
      for (const Complex& bin : transform(frame, w, out_shape[2], false)) y.insert(y.end(), {bin.real(), bin.imag()});
    }
  c.outputs[0] = from_doubles(c.node, types[0].dtype, out_shape, y);
}

// --------------------------------------------------------------------------------------------------------- windows

/// Element type named by output_datatype.
DType asked_type(const Node& node) {
  const int64_t value = node.get_int("output_datatype", 1);
  if (value < 1 || value > static_cast<int64_t>(DType::kBfloat16) || !contains(kNumeric, static_cast<DType>(value)))
    node.fail(ErrorCode::kInvalidModel, "output_datatype " + std::to_string(value) + " is no numeric type");
  return static_cast<DType>(value);
}

void infer_window(InferContext& c) {
  c.outputs[0] = TypeInfo::tensor(asked_type(c.node), {known_int(c, 0, "size", 0)});
}

/// a0 - a1 cos(x) + a2 cos(2x) over one period.
Kernel evaluate_window(double a0, double a1, double a2) {
  return [=](EvalContext& c, const std::vector<TypeInfo>& types) {
    const int64_t size = one_int(c.node, c.input(0), "size"),
                  period = c.node.get_int("periodic", 1) != 0 ? size : size - 1;
    if (size > (int64_t{1} << 28))
      c.node.fail(ErrorCode::kDoesNotFit, "a window of " + std::to_string(size) + " elements");
    std::vector<double> values(static_cast<size_t>(size));
    for (int64_t n = 0; n < size; ++n) {
      const double x = n == 0 ? 0.0 : 2 * std::numbers::pi * static_cast<double>(n) / static_cast<double>(period);
      values[static_cast<size_t>(n)] = a0 - a1 * std::cos(x) + a2 * std::cos(2 * x);
    }
    c.outputs[0] = from_doubles(c.node, types[0].dtype, {size}, values);
  };
}

void infer_mel(InferContext& c) {
  const int64_t bins = known_int(c, 0, "num_mel_bins", 0), length = known_int(c, 1, "dft_length", 0);
  limit_points(c.node, length);
  known_int(c, 2, "sample_rate", 1);
  for (size_t i : {3, 4}) require_type(c.node, c.input(i).dtype, kFloats, "a frequency");
  c.outputs[0] = TypeInfo::tensor(asked_type(c.node), {bin_count(length, true), bins});
}

void evaluate_mel(EvalContext& c, const std::vector<TypeInfo>& types) {
  const int64_t mels = types[0].shape[1], bins = types[0].shape[0];
  const double length = static_cast<double>(one_int(c.node, c.input(1), "dft_length")),
               rate = static_cast<double>(one_int(c.node, c.input(2), "sample_rate"));
  for (size_t i : {3, 4})
    if (c.input(i).size() != 1) c.node.fail(ErrorCode::kInvalidModel, "a frequency must be a scalar");
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low = mel(c.input(3).at_double(0)), high = mel(c.input(4).at_double(0));
  const double step = (high - low) / static_cast<double>(mels + 2);
  if (!std::isfinite(step) || mels > (1 << 20))
    c.node.fail(ErrorCode::kInvalidArgument, "frequencies or num_mel_bins out of range");
  std::vector<int64_t> edges;  // of the triangles, in spectrum bins
  for (int64_t i = 0; i < mels + 2; ++i) {
    const double edge =
        std::floor((length + 1) * (700 * (std::pow(10.0, (static_cast<double>(i) * step + low) / 2595) - 1)) / rate);
    if (!(edge >= 0 && edge < static_cast<double>(bins)))
      c.node.fail(ErrorCode::kInvalidArgument,
                  "the frequencies lie outside the spectrum of " + std::to_string(bins) + " bins");
    edges.push_back(static_cast<int64_t>(edge));
  }
  std::vector<double> y(static_cast<size_t>(element_count(types[0].shape)));
  const auto put = [&](int64_t bin, int64_t m, double value) { y[static_cast<size_t>(bin * mels + m)] = value; };
  for (int64_t m = 0; m < mels; ++m) {
    const int64_t lower = edges[static_cast<size_t>(m)], centre = edges[static_cast<size_t>(m + 1)],
                  upper = edges[static_cast<size_t>(m + 2)];
    if (lower == centre)
      put(centre, m, 1);
    else
      for (int64_t j = lower; j <= centre; ++j)
        put(j, m, static_cast<double>(j - lower) / static_cast<double>(centre - lower));
    for (int64_t j = centre; j < upper; ++j)
      put(j, m, static_cast<double>(upper - j) / static_cast<double>(upper - centre));
  }
  c.outputs[0] = from_doubles(c.node, types[0].dtype, types[0].shape, y);
}

// ------------------------------------------------------------------------------------------------------------- Det

void infer_det(InferContext& c) {
  const TypeInfo& in = c.input(0);
  require_type(c.node, in.dtype, kFloats, "X");
  c.outputs[0] = TypeInfo::unranked(in.dtype);
  if (!in.ranked) return;
  const size_t rank = in.shape.size();
  if (rank < 2 || (in.shape[rank - 1] >= 0 && in.shape[rank - 2] >= 0 && in.shape[rank - 1] != in.shape[rank - 2]))
    c.node.fail(ErrorCode::kInvalidModel, "X of shape " + to_string(in.shape) + " holds no square matrices");
  c.outputs[0] = TypeInfo::tensor(in.dtype, Shape(in.shape.begin(), in.shape.end() - 2));
}

/// Elimination with partial pivoting.
void evaluate_det(EvalContext& c, const std::vector<TypeInfo>& types) {
  const int64_t n = c.input(0).shape().back();
  c.outputs[0] = in_floats(c.node, c.input(0), types[0], [&]<typename T>(const T* in, T* out) {
    for (int64_t b = 0; b < element_count(types[0].shape); ++b) {
      std::vector<T> m(in + b * n * n, in + (b + 1) * n * n);
      const auto at = [&](int64_t r, int64_t k) -> T& { return m[static_cast<size_t>(r * n + k)]; };
      T result = 1;
      for (int64_t k = 0; k < n; ++k) {
        int64_t pivot = k;
        for (int64_t r = k + 1; r < n; ++r)
          if (std::abs(at(r, k)) > std::abs(at(pivot, k))) pivot = r;
        result *= at(pivot, k);
        if (at(pivot, k) == 0) break;
        if (pivot != k) {
          for (int64_t j = k; j < n; ++j) std::swap(at(pivot, j), at(k, j));
          result = -result;
        }
        for (int64_t r = k + 1; r < n; ++r) {
          const T factor = at(r, k) / at(k, k);
          for (int64_t j = k + 1; j < n; ++j) at(r, j) -= factor * at(k, j);
        }
      }
      out[b] = result;
    }
  });
}

}  // namespace

void register_signal(Registry& r) {
  add(r, "DFT", 17, {1, 2}, infer_dft, evaluate_dft, {"axis", "inverse", "onesided"});
  add(r, "DFT", 20, {1, 3}, infer_dft, evaluate_dft, {"inverse", "onesided"});
  add(r, "STFT", 17, {2, 4}, infer_stft, evaluate_stft, {"onesided"});
  add(r, "HannWindow", 17, kOne, infer_window, evaluate_window(0.5, 0.5, 0), {"output_datatype", "periodic"});
  add(r, "HammingWindow", 17, kOne, infer_window, evaluate_window(25.0 / 46, 21.0 / 46, 0),
      {"output_datatype", "periodic"});
  add(r, "BlackmanWindow", 17, kOne, infer_window, evaluate_window(0.42, 0.5, 0.08), {"output_datatype", "periodic"});
  add(r, "MelWeightMatrix", 17, {5, 5}, infer_mel, evaluate_mel, {"output_datatype"});
  add(r, "Det", 11, kOne, infer_det, evaluate_det);
}

}  // namespace tessera::ops
