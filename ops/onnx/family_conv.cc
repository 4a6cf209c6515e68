// SPDX-License-Identifier: Apache-2.0
// Conv, ConvTranspose, DeformConv and ConvInteger of any number of spatial dimensions. All but the transposed form are
// patches times weights (convolution.h); DeformConv fills its patches by interpolation, ConvInteger subtracts zero
// points first, so that padding with the zero point adds nothing. fp16 and bfloat16 are computed in fp32 and rounded
// once at the result.
#include <cmath>

#include "ops/kernels/convolution.h"
#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/gemm_kernel.h"
#include "ops/quantized/quantized_math.h"

namespace tessera::ops {

namespace {

using kernel::elements;
using kernel::mutable_elements;

const std::set<std::string> kConvAttributes = {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"};

/// Fails unless the operands of a float operator have one type.
void require_float_operands(const InferContext& c, size_t count) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::kFloats, "the input");
  for (size_t i = 1; i < count; ++i)
    if (c.has(i)) kernel::require_same_type(c.node, c.input(0), c.input(i));
}

// ------------------------------------------------------------------------------------------------------------- Conv

void infer_conv(InferContext& c) {
  require_float_operands(c, 3);
  c.outputs[0] = infer_convolution(c, c.input(0).dtype, 2);
}

void evaluate_conv(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = kernel::widen(c.input(0));
  const Tensor w = kernel::widen(c.input(1));
  Tensor bias;
  if (c.has(2)) bias = kernel::widen(c.input(2));
  c.outputs[0] = kernel::narrow(convolve(c.node, x, w, c.has(2) ? &bias : nullptr), types[0].dtype);
}

// ------------------------------------------------------------------------------------------------------ ConvInteger

const kernel::TypeSet kConvolutionBytes = kernel::set_of({DType::kUint8, DType::kInt8});

void infer_conv_integer(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kConvolutionBytes, "the input");
  kernel::require_type(c.node, c.input(1).dtype, kConvolutionBytes, "the weights");
  for (size_t i = 2; i < 4; ++i) {
    if (!c.has(i)) continue;
    const TypeInfo& zero = c.input(i);
    kernel::require_same_type(c.node, c.input(i - 2), zero);
    if (!zero.ranked) continue;
    const int64_t size = kernel::product(zero.shape);
    const TypeInfo& w = c.input(1);
    const bool one = size == 1 || size < 0;
    const bool per_filter =
        i == 3 && zero.shape.size() == 1 && (!w.ranked || w.shape.empty() || w.shape[0] < 0 || size == w.shape[0]);
    if (!one && !per_filter)
      c.node.fail(ErrorCode::kInvalidModel,
                  "zero point " + to_string(zero.shape) + " fits neither the tensor nor its filters");
  }
  c.outputs[0] = infer_convolution(c, DType::kInt32, c.inputs.size());
}

void evaluate_conv_integer(EvalContext& c, const std::vector<TypeInfo>&) {
  const Tensor& w = c.input(1);
  Shape each(w.shape().size(), 1);
  each[0] = w.shape()[0];
  c.outputs[0] = convolve(c.node, quantized::without_zero(c.input(0), c.has(2) ? &c.input(2) : nullptr, {}),
                          quantized::without_zero(w, c.has(3) ? &c.input(3) : nullptr, each), nullptr);
}

// ---------------------------------------------------------------------------------------------------- ConvTranspose

void infer_conv_transpose(InferContext& c) {
  require_float_operands(c, 3);
  const Node& node = c.node;
  const TypeInfo& x = c.input(0);
  const TypeInfo& w = c.input(1);
  const std::optional<Shape> kernel = infer_kernel(node, x, w);
  if (x.ranked && w.ranked && x.shape[1] >= 0 && w.shape[0] >= 0 && x.shape[1] != w.shape[0])
    node.fail(ErrorCode::kInvalidModel,
              "input " + to_string(x.shape) + " and weights " + to_string(w.shape) + " differ in channels");
  const int64_t filters = w.ranked && w.shape[1] >= 0 ? w.shape[1] * node.get_int("group", 1) : -1;
  check_bias(c, 2, filters);
  c.outputs[0] = TypeInfo::unranked(x.dtype);
  if (!kernel) return;
  const Shape operand = x.ranked ? Shape(x.shape.begin() + 2, x.shape.end()) : Shape(kernel->size(), -1);
  const Window window = transposed_window(node, operand, *kernel);
  Shape shape = {x.ranked ? x.shape[0] : -1, filters};
  shape.insert(shape.end(), window.input.begin(), window.input.end());
  c.outputs[0] = TypeInfo::tensor(x.dtype, std::move(shape));
}

/// For each group, w^T [filters x taps, channels] times x [channels, positions], then each row is added where its tap
/// falls: the result is a sum over ascending taps of sums over ascending channels.
template <typename T>
void transposed_convolution(const Window& window, const Tensor& x, const Tensor& w, const Tensor* bias, int64_t groups,
                            Tensor& y) {
  const int64_t batch = x.shape()[0], channels = x.shape()[1];
  const int64_t group_channels = channels / groups, group_filters = w.shape()[1];
  const int64_t taps = window.kernel_size();
  const int64_t positions = element_count(window.output), plane = element_count(window.input);
  if (y.size() == 0) return;
  T* result = mutable_elements<T>(y);
  if (bias != nullptr) {
    const T* added = elements<T>(*bias);
    for (int64_t row = 0; row < batch * group_filters * groups; ++row)
      std::fill_n(result + row * plane, plane, added[row % (group_filters * groups)]);
  }
  if (positions == 0) return;
  std::vector<int64_t> offsets;
  patch_offsets(window, 0, positions, offsets);
  std::vector<T> rows(static_cast<size_t>(taps * positions));
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t m = 0; m < group_filters * groups; ++m) {
      const int64_t g = m / group_filters;
      const T* planes = elements<T>(x) + (n * channels + g * group_channels) * positions;
      const T* weights = elements<T>(w) + (g * group_channels * group_filters + m % group_filters) * taps;
      multiply<T>(taps, positions, group_channels, {weights, 1, group_filters * taps}, {planes, positions, 1},
                  rows.data(), positions);
      T* target = result + (n * group_filters * groups + m) * plane;
      for (size_t i = 0; i < offsets.size(); ++i)
        if (offsets[i] >= 0) target[offsets[i]] += rows[i];
    }
  }
}

void evaluate_conv_transpose(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Tensor x = kernel::widen(c.input(0));
  const Tensor w = kernel::widen(c.input(1));
  Tensor bias;
  if (c.has(2)) bias = kernel::widen(c.input(2));
  const Window window =
      transposed_window(c.node, spatial_extents(c.node, x.shape()), Shape(w.shape().begin() + 2, w.shape().end()));
  Tensor y(x.dtype(), types[0].shape);
  kernel::visit_float(x.dtype(), [&]<typename T>(kernel::Tag<T>) {
    transposed_convolution<T>(window, x, w, c.has(2) ? &bias : nullptr, c.node.get_int("group", 1), y);
  });
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
}

// ------------------------------------------------------------------------------------------------------- DeformConv

void infer_deform_conv(InferContext& c) {
  require_float_operands(c, 5);
  const Node& node = c.node;
  const TypeInfo type = infer_convolution(c, c.input(0).dtype, 3);
  c.input(2);  // the offsets are required
  const int64_t offset_groups = node.get_int("offset_group", 1);
  if (offset_groups < 1) node.fail(ErrorCode::kInvalidModel, "offset_group is " + std::to_string(offset_groups));
  const TypeInfo& x = c.input(0);
  if (x.ranked && x.shape[1] >= 0 && x.shape[1] % offset_groups != 0)
    node.fail(ErrorCode::kInvalidModel, std::to_string(x.shape[1]) + " channels do not divide into " +
                                            std::to_string(offset_groups) + " offset groups");
  // Offsets hold one coordinate for each spatial dimension, the mask one factor, for every (offset group, kernel
  // position).
  for (const size_t i : {size_t{2}, size_t{4}}) {
    if (!c.has(i) || !c.input(i).ranked || !type.ranked) continue;
    const Shape& shape = c.input(i).shape;
    Shape wanted = type.shape;
    wanted[1] = -1;
    if (c.input(1).ranked) {
      const Shape& w = c.input(1).shape;
      const int64_t taps = kernel::product(w, 2, w.size());
      if (taps >= 0) wanted[1] = offset_groups * taps * (i == 2 ? static_cast<int64_t>(w.size()) - 2 : 1);
    }
    bool same = shape.size() == wanted.size();
    for (size_t d = 0; same && d < shape.size(); ++d) same = shape[d] < 0 || wanted[d] < 0 || shape[d] == wanted[d];
    if (!same)
      node.fail(ErrorCode::kInvalidModel, std::string(i == 2 ? "offsets " : "mask ") + to_string(shape) +
                                              " must have shape " + to_string(wanted));
  }
  c.outputs[0] = type;
}

/// Linear interpolation in a plane between the 2^rank neighbours of a point; neighbours outside count as 0.
template <typename T>
T interpolate(const T* plane, const Shape& extents, const std::vector<T>& point) {
  const size_t rank = extents.size();
  T sum = 0;
  for (uint64_t corner = 0; corner < (uint64_t{1} << rank); ++corner) {
    T weight = 1;
    int64_t offset = 0;
    for (size_t axis = 0; axis < rank; ++axis) {
      const T base = std::floor(point[axis]);
      const T fraction = point[axis] - base;
      const bool upper = (corner >> (rank - 1 - axis)) & 1;
      weight *= upper ? fraction : T{1} - fraction;
      const T at = upper ? base + 1 : base;
      if (!(at >= 0 && at < static_cast<T>(extents[axis]))) {
        offset = -1;
        break;
      }
      offset = offset * extents[axis] + static_cast<int64_t>(at);
    }
    if (offset >= 0) sum += weight * plane[offset];
  }
  return sum;
}

template <typename T>
void deformable_convolution(const Node& node, const Window& window, const Tensor& x, const Tensor& w,
                            const Tensor& offset, const Tensor* bias, const Tensor* mask, Tensor& y) {
  const size_t rank = window.rank();
  const int64_t batch = x.shape()[0], channels = x.shape()[1], filters = w.shape()[0];
  const int64_t groups = node.get_int("group", 1), offset_groups = node.get_int("offset_group", 1);
  const int64_t taps = window.kernel_size();
  const int64_t in_plane = element_count(window.input), out_plane = element_count(window.output);
  const int64_t group_channels = channels / groups, group_filters = filters / groups;
  std::vector<T> columns(static_cast<size_t>(channels * taps * out_plane));
  std::vector<T> point(rank);
  const T* shifts = elements<T>(offset);
  T* result = mutable_elements<T>(y);
  for (int64_t n = 0; n < batch; ++n) {
    for_each_index(window.kernel, [&](int64_t k, const std::vector<int64_t>& tap) {
      for_each_index(window.output, [&](int64_t j, const std::vector<int64_t>& position) {
        for (int64_t og = 0; og < offset_groups; ++og) {
          const int64_t entry = (n * offset_groups + og) * taps + k;
          for (size_t axis = 0; axis < rank; ++axis) {
            const int64_t regular =
                position[axis] * window.strides[axis] - window.pads_begin[axis] + tap[axis] * window.dilations[axis];
            point[axis] = static_cast<T>(regular) +
                          shifts[(entry * static_cast<int64_t>(rank) + static_cast<int64_t>(axis)) * out_plane + j];
          }
          const T factor = mask ? elements<T>(*mask)[entry * out_plane + j] : T{1};
          for (int64_t ic = og * (channels / offset_groups); ic < (og + 1) * (channels / offset_groups); ++ic) {
            const T* plane = elements<T>(x) + (n * channels + ic) * in_plane;
            columns[static_cast<size_t>((ic * taps + k) * out_plane + j)] =
                factor * interpolate(plane, window.input, point);
          }
        }
      });
    });
    const int64_t depth = group_channels * taps;
    for (int64_t g = 0; g < groups; ++g)
      multiply<T>(group_filters, out_plane, depth, {elements<T>(w) + g * group_filters * depth, depth, 1},
                  {columns.data() + g * depth * out_plane, out_plane, 1},
                  result + (n * filters + g * group_filters) * out_plane, out_plane);
  }
  if (bias != nullptr)
    for (int64_t i = 0; i < y.size(); ++i) result[i] += elements<T>(*bias)[i / out_plane % filters];
}

void evaluate_deform_conv(EvalContext& c, const std::vector<TypeInfo>& types) {
  std::vector<Tensor> in(5);
  for (size_t i = 0; i < 5; ++i)
    if (c.has(i)) in[i] = kernel::widen(c.input(i));
  const Window window = sliding_window(c.node, spatial_extents(c.node, in[0].shape()),
                                       Shape(in[1].shape().begin() + 2, in[1].shape().end()));
  Tensor y(in[0].dtype(), types[0].shape);
  if (y.size() > 0)
    kernel::visit_float(in[0].dtype(), [&]<typename T>(kernel::Tag<T>) {
      deformable_convolution<T>(c.node, window, in[0], in[1], in[2], c.has(3) ? &in[3] : nullptr,
                                c.has(4) ? &in[4] : nullptr, y);
    });
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
}

}  // namespace

void register_conv(Registry& registry) {
  kernel::add(registry, "Conv", 1, {2, 3}, infer_conv, evaluate_conv, kConvAttributes);
  kernel::add(registry, "ConvInteger", 10, {2, 4}, infer_conv_integer, evaluate_conv_integer, kConvAttributes);
  kernel::add(registry, "ConvTranspose", 1, {2, 3}, infer_conv_transpose, evaluate_conv_transpose,
              {"auto_pad", "dilations", "group", "kernel_shape", "output_padding", "output_shape", "pads", "strides"});
  kernel::add(registry, "DeformConv", 19, {3, 5}, infer_deform_conv, evaluate_deform_conv,
              {"dilations", "group", "kernel_shape", "offset_group", "pads", "strides"});
}

}  // namespace tessera::ops
