// SPDX-License-Identifier: Apache-2.0
// Operators of domain com.microsoft that ONNX Runtime's extended optimisation level writes into saved models:
// convolution and Gemm with an activation, and layer normalisation of a sum. Each is the composition of
// its parts; fp16 and bfloat16 are computed in fp32 throughout and rounded once at the result.
#include <algorithm>
#include <cmath>

#include "ops/contrib/fused_activation.h"
#include "ops/kernels/convolution.h"
#include "ops/kernels/normalization.h"
#include "ops/kernels/product.h"

namespace tessera::ops {

namespace {

using kernel::elements;
using kernel::mutable_elements;

/// Applies the activation a node names to every element.
void activate(const Node& node, Tensor& y, const std::vector<float>& parameters) {
  kernel::visit_float(y.dtype(), [&]<typename T>(kernel::Tag<T>) {
    scalar::with_activation(node, parameters, [&](auto activation) {
      for (T& value : y.as_mutable<T>()) value = activation(scalar::Number<T>{value}).value;
    });
  });
}

void infer_fused_conv(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::kFloats, "the input");
  for (size_t i = 1; i < 4; ++i)
    if (c.has(i)) kernel::require_same_type(c.node, c.input(0), c.input(i));
  c.outputs[0] = infer_convolution(c, c.input(0).dtype, 2);
  if (!c.has(3) || !c.input(3).ranked || !c.outputs[0].ranked) return;
  const Shape &added = c.input(3).shape, &shape = c.outputs[0].shape;
  bool same = added.size() == shape.size();
  for (size_t d = 0; same && d < shape.size(); ++d) same = added[d] < 0 || shape[d] < 0 || added[d] == shape[d];
  if (!same)
    c.node.fail(ErrorCode::kInvalidModel,
                "the addend " + to_string(added) + " must have the result's shape " + to_string(shape));
}

/// y = activation(conv(x, w) + bias + z).
void evaluate_fused_conv(EvalContext& c, const std::vector<TypeInfo>& types) {
  Tensor bias;
  if (c.has(2)) bias = kernel::widen(c.input(2));
  Tensor y = convolve(c.node, kernel::widen(c.input(0)), kernel::widen(c.input(1)), c.has(2) ? &bias : nullptr);
  if (c.has(3)) {
    const Tensor added = kernel::widen(c.input(3));
    kernel::visit_float(y.dtype(), [&]<typename T>(kernel::Tag<T>) {
      for (int64_t i = 0; i < y.size(); ++i) mutable_elements<T>(y)[i] += elements<T>(added)[i];
    });
  }
  activate(c.node, y, c.node.get_floats("activation_params"));
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
}

void infer_fused_gemm(InferContext& c) {
  kernel::require_type(c.node, c.input(0).dtype, kernel::kFloats, "A");
  c.outputs[0] = infer_general_product(c);
}

void evaluate_fused_gemm(EvalContext& c, const std::vector<TypeInfo>& types) {
  Tensor added;
  if (c.has(2)) added = kernel::widen(c.input(2));
  Tensor y = general_product(c.node, kernel::widen(c.input(0)), kernel::widen(c.input(1)), c.has(2) ? &added : nullptr);
  activate(c.node, y, scalar::gemm_activation_parameters(c.node));
  c.outputs[0] = kernel::narrow(y, types[0].dtype);
}

// --------------------------------------------------------------------------------------------- layer norm of a sum

/// Whether `small` is `big`, or `big` without or with a unit leading dimension (the skip of a batch).
bool skips(const Shape& small, const Shape& big) {
  if (small.size() > big.size() || big.size() - small.size() > 1) return false;
  for (size_t d = 0; d < small.size(); ++d) {
    const int64_t wanted = big[big.size() - small.size() + d];
    if (small[d] >= 0 && wanted >= 0 && small[d] != wanted && !(d == 0 && small.size() == big.size() && small[d] == 1))
      return false;
  }
  return true;
}

/// Inputs: x, skip, scale, then shift (when centred), bias.
kernel::Kernel skip_kernel(bool centred) {
  return [centred](EvalContext& c, const std::vector<TypeInfo>& types) {
    const size_t bias_at = centred ? 4 : 3;
    Tensor sum = kernel::widen(c.input(0));
    const Tensor skip = kernel::widen(c.input(1)), scale = kernel::widen(c.input(2));
    Tensor shift;
    if (centred && c.has(3)) shift = kernel::widen(c.input(3));
    kernel::visit_float(sum.dtype(), [&]<typename T>(kernel::Tag<T>) {
      T* out = mutable_elements<T>(sum);
      const auto add = [&](const Tensor& other) {
        kernel::binary_loop(sum.shape(), sum.shape(), other.shape(), out, elements<T>(other), out,
                            [](T a, T b) { return a + b; });
      };
      if (c.has(bias_at)) add(kernel::widen(c.input(bias_at)));
      add(skip);
    });
    const LayerNormalized result = layer_normalize(sum, sum.rank() - 1, c.node.get_float("epsilon", 1e-12f), centred,
                                                   &scale, centred && c.has(3) ? &shift : nullptr, false);
    const Tensor* results[] = {&result.y, &result.mean, &result.inverse_deviation, &sum};
    for (size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i] = kernel::narrow(*results[i], types[i].dtype);
  };
}

InferFunction infer_skip(bool centred) {
  return [centred](InferContext& c) {
    const TypeInfo& x = c.input(0);
    kernel::require_type(c.node, x.dtype, kernel::kFloats, "the input");
    if (x.ranked && x.shape.size() < 2)
      c.node.fail(ErrorCode::kInvalidModel, "the input " + to_string(x.shape) + " must have rank 2 or 3");
    for (size_t i = 1; i < c.inputs.size(); ++i) {
      if (!c.has(i)) continue;
      kernel::require_same_type(c.node, x, c.input(i));
      if (!x.ranked || !c.input(i).ranked) continue;
      const Shape& shape = c.input(i).shape;
      const bool fits = i == 1
                            ? skips(shape, x.shape)
                            : shape.size() == 1 && (shape[0] < 0 || x.shape.back() < 0 || shape[0] == x.shape.back());
      if (!fits)
        c.node.fail(ErrorCode::kInvalidModel,
                    "input " + std::to_string(i) + " " + to_string(shape) + " does not fit " + to_string(x.shape));
    }
    TypeInfo statistics = kernel::without_constant(x, DType::kFloat);
    if (statistics.ranked) statistics.shape.back() = 1;
    for (size_t i = 0; i < c.outputs.size(); ++i)
      c.outputs[i] = i == 0 || i == 3 ? kernel::without_constant(x) : statistics;
  };
}

// --------------------------------------------------------------------------------------------- EmbedLayerNormalization

/// Inputs: ids [B,S] i32, segments [B,S] i32 (or absent), word [V,H], position [P,H], segment [G,H] (or absent)
/// embeddings, scale and shift [H], mask [B,S] i32 (or absent), position ids [1 or B,S] i32 (or absent).
void infer_embed(InferContext& c) {
  const Node& node = c.node;
  const TypeInfo& ids = c.input(0);
  const TypeInfo& words = c.input(2);
  for (size_t i : {0, 1, 7, 8}) {
    if (!c.has(i)) continue;
    kernel::require_type(node, c.input(i).dtype, kernel::set_of({DType::kInt32}), "ids");
    kernel::require_rank(node, c.input(i), 2, "ids");
  }
  kernel::require_type(node, words.dtype, kernel::kFloats, "the embeddings");
  int64_t hidden = words.ranked && words.shape.size() == 2 ? words.shape[1] : -1;
  for (size_t i : {2, 3, 4, 5, 6}) {
    if (!c.has(i)) continue;
    kernel::require_same_type(node, words, c.input(i));
    kernel::require_rank(node, c.input(i), i < 5 ? 2 : 1, "an embedding or parameter");
    if (!c.input(i).ranked) continue;
    const int64_t width = c.input(i).shape.back();
    if (hidden < 0) hidden = width;
    if (width >= 0 && width != hidden)
      node.fail(ErrorCode::kInvalidModel, "input " + std::to_string(i) + " " + to_string(c.input(i).shape) +
                                              " must end in " + std::to_string(hidden));
  }
  const int64_t batch = ids.ranked ? ids.shape[0] : -1, length = ids.ranked ? ids.shape[1] : -1;
  const TypeInfo embedded = TypeInfo::tensor(words.dtype, {batch, length, hidden});
  const TypeInfo results[] = {embedded, TypeInfo::tensor(DType::kInt32, {batch}), embedded};
  for (size_t i = 0; i < c.outputs.size(); ++i) c.outputs[i] = results[i];
}

void evaluate_embed(EvalContext& c, const std::vector<TypeInfo>& types) {
  const std::vector<int64_t> ids = c.input(0).to_int64s();
  const int64_t batch = c.input(0).shape()[0], length = c.input(0).shape()[1];
  std::vector<int64_t> positions(ids.size()), segments;
  for (size_t i = 0; i < ids.size(); ++i) positions[i] = static_cast<int64_t>(i) % length;
  if (c.has(8)) {
    const std::vector<int64_t> given = c.input(8).to_int64s();
    if (given.size() != ids.size() && static_cast<int64_t>(given.size()) != length)
      c.node.fail(ErrorCode::kInvalidModel, "position ids do not fit");
    for (size_t i = 0; i < ids.size(); ++i) positions[i] = given[i % given.size()];
  }
  if (c.has(1) && c.has(4)) segments = c.input(1).to_int64s();
  const Tensor words = kernel::widen(c.input(2)), places = kernel::widen(c.input(3));
  Tensor parts;
  if (!segments.empty()) parts = kernel::widen(c.input(4));
  const Tensor scale = kernel::widen(c.input(5)), shift = kernel::widen(c.input(6));
  Tensor sum(words.dtype(), types[0].shape);
  kernel::visit_float(words.dtype(), [&]<typename T>(kernel::Tag<T>) {
    const int64_t hidden = words.shape()[1];
    T* out = mutable_elements<T>(sum);
    for (size_t i = 0; i < ids.size(); ++i) {
      const auto row = [&](const Tensor& table, int64_t index) {
        if (index < 0 || index >= table.shape()[0])
          c.node.fail(ErrorCode::kInvalidModel, "id " + std::to_string(index) + " is outside an embedding of " +
                                                    std::to_string(table.shape()[0]));
        return elements<T>(table) + index * hidden;
      };
      const T* word = row(words, ids[i]);
      const T* place = row(places, positions[i]);
      const T* part = segments.empty() ? nullptr : row(parts, segments.at(i));
      for (int64_t h = 0; h < hidden; ++h) *out++ = part ? word[h] + place[h] + part[h] : word[h] + place[h];
    }
  });
  const LayerNormalized result =
      layer_normalize(sum, 2, c.node.get_float("epsilon", 1e-12f), true, &scale, &shift, false);
  c.outputs[0] = kernel::narrow(result.y, types[0].dtype);
  if (c.outputs.size() > 1) {  // how many words of each image are not masked
    Tensor counts(DType::kInt32, {batch});
    const std::vector<int64_t> mask = c.has(7) ? c.input(7).to_int64s() : std::vector<int64_t>{};
    for (size_t i = 0; i < mask.size(); ++i)
      if (mask[i] == 1) ++mutable_elements<int32_t>(counts)[static_cast<int64_t>(i) / length];
    c.outputs[1] = counts;
  }
  if (c.outputs.size() > 2) c.outputs[2] = kernel::narrow(sum, types[2].dtype);
}

}  // namespace

void register_fused(Registry& registry) {
  const auto add = [&](const char* name, kernel::Arity inputs, InferFunction infer, kernel::Kernel kernel,
                       std::set<std::string> attributes, kernel::Arity outputs = kernel::kOne) {
    kernel::add(registry, name, 1, inputs, std::move(infer), std::move(kernel), std::move(attributes), outputs,
                kMicrosoft);
  };
  add("FusedConv", {2, 4}, infer_fused_conv, evaluate_fused_conv,
      {"auto_pad", "dilations", "group", "kernel_shape", "pads", "strides", "activation", "activation_params"});
  add("FusedGemm", {2, 3}, infer_fused_gemm, evaluate_fused_gemm,
      {"alpha", "beta", "transA", "transB", "activation", "activation_alpha", "activation_beta", "activation_gamma",
       "leaky_relu_alpha"});
  add("SkipLayerNormalization", {3, 5}, infer_skip(true), skip_kernel(true), {"epsilon"}, {1, 4});
  add("SkipSimplifiedLayerNormalization", {3, 4}, infer_skip(false), skip_kernel(false), {"epsilon"}, {1, 4});
  add("EmbedLayerNormalization", {7, 9}, infer_embed, evaluate_embed, {"epsilon", "mask_index_type"}, {1, 3});
}

}  // namespace tessera::ops
