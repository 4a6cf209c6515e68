// SPDX-License-Identifier: Apache-2.0
// Operators of domain com.microsoft that are operators of the standard under another name or in another form, and the
// inverse of matrices.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/expansion.h"

namespace tessera::ops {

namespace {

using Operand = Expander::Operand;
using Types = std::vector<TypeInfo>;

constexpr int kContribVersion = 17;

/// The operator of that name in `version` of the standard, with the same operands and attributes.
ExpandFunction standard(int version) {
  return [version](const Node& node, const Types& inputs) -> std::optional<Expansion> {
    Expander e(node, inputs, version);
    return e.finish(e.steps(node.op_type, e.inputs(), node.attributes, node.output_count));
  };
}

/// Inputs: x, axis as a scalar.
std::optional<Expansion> expand_dims(const Node& node, const Types& inputs) {
  Expander e(node, inputs, kContribVersion);
  return e.finish({e.step("Unsqueeze", {e.input(0), e.step("Reshape", {e.input(1), Expander::integers({1})})})});
}

/// Products of 16-bit integers, summed in 32 bits.
std::optional<Expansion> expand_integer_product(const Node& node, const Types& inputs) {
  for (size_t i = 0; i < 2; ++i)
    kernel::require_type(node, inputs.at(i).dtype, kernel::set_of({DType::kInt16, DType::kUint16}), "an operand");
  Expander e(node, inputs, kContribVersion);
  const bool is_signed = inputs[0].dtype != DType::kUint16;
  const DType to = is_signed ? DType::kInt32 : DType::kUint32;
  return e.finish({e.step("MatMul", {e.cast(e.input(0), to), e.cast(e.input(1), to)})});
}
void infer_int32(InferContext& c) { c.outputs[0] = TypeInfo::unranked(DType::kInt32); }

/// Distances between the rows of A [M,K] and B [N,K] as [M,N].
std::optional<Expansion> expand_distances(const Node& node, const Types& inputs) {
  const std::string metric = node.get_string("metric", "sqeuclidean");
  if (metric != "sqeuclidean" && metric != "euclidean")
    node.fail(ErrorCode::kInvalidModel, "attribute 'metric' = '" + metric + "' is neither sqeuclidean nor euclidean");
  for (size_t i = 0; i < 2; ++i) kernel::require_rank(node, inputs.at(i), 2, "an operand");
  Expander e(node, inputs, kContribVersion);
  const Operand a = e.step("Unsqueeze", {e.input(0), Expander::integers({1})}),
                b = e.step("Unsqueeze", {e.input(1), Expander::integers({0})});
  const Expander::Attributes over = {{"axes", std::vector<int64_t>{2}}, {"keepdims", int64_t{0}}};
  const Operand sum = e.steps("ReduceSumSquare", {e.step("Sub", {a, b})}, over, 1, "", 13)[0];
  return e.finish({metric == "euclidean" ? e.step("Sqrt", {sum}) : sum});
}

/// The different elements in the order of their first appearance, the place of each element among them, their counts.
std::optional<Expansion> expand_unique(const Node& node, const Types& inputs) {
  Expander e(node, inputs, kContribVersion);
  const std::vector<Operand> all = e.steps("Unique", {e.input(0)}, {{"sorted", int64_t{0}}}, 4);
  return e.finish({all[0], all[2], all[3]});
}

/// Embeddings and parameters in 8 bits with a scale and a zero point each: EmbedLayerNormalization of their values.
std::optional<Expansion> expand_embedding(const Node& node, const Types& inputs) {
  Expander e(node, inputs, kContribVersion);
  std::vector<Operand> operands = {e.input(0), e.input(1)};
  for (size_t i = 0; i < 5; ++i) {
    const Operand quantised = e.input(2 + i);
    const bool absent = quantised.kind == Operand::Kind::kNone;
    operands.push_back(absent ? quantised : e.step("DequantizeLinear", {quantised, e.input(8 + i), e.input(13 + i)}));
  }
  operands.push_back(e.input(7));
  return e.finish(e.steps("EmbedLayerNormalization", operands, node.attributes, node.output_count, kMicrosoft, 1));
}
void infer_unknown_embedding(InferContext& c) {
  for (size_t i = 0; i < c.outputs.size(); ++i)
    c.outputs[i] = TypeInfo::unranked(i == 0 ? DType::kFloat : DType::kInt32);
}

/// All windows of `size` elements along axis `dim`, `step` apart; the place in a window becomes the last axis. Nothing
/// while the extent of that axis is unknown.
std::optional<Expansion> expand_unfold(const Node& node, const Types& inputs) {
  const TypeInfo& x = inputs.at(0);
  if (!x.ranked) return std::nullopt;
  const auto rank = static_cast<int64_t>(x.shape.size());
  if (rank == 0) node.fail(ErrorCode::kInvalidModel, "a scalar has no windows");
  const int64_t axis = normalise_axis(node, node.get_int("dim", -1), rank), size = node.get_int("size", 0),
                step = node.get_int("step", 1), extent = x.shape[static_cast<size_t>(axis)];
  if (extent < 0) return std::nullopt;
  if (size < 1 || step < 1 || size > extent)
    node.fail(ErrorCode::kInvalidModel, "windows of " + std::to_string(size) + " elements, " + std::to_string(step) +
                                            " apart, do not fit " + to_string(x.shape) + " along axis " +
                                            std::to_string(axis));
  const int64_t count = (extent - size) / step + 1;
  Tensor places(DType::kInt64, {count, size});
  for (int64_t i = 0; i < count * size; ++i)
    places.as_mutable<int64_t>()[static_cast<size_t>(i)] = i / size * step + i % size;
  std::vector<int64_t> perm(static_cast<size_t>(rank) + 1);
  std::iota(perm.begin(), perm.end(), int64_t{0});
  std::rotate(perm.begin() + axis + 1, perm.begin() + axis + 2, perm.end());
  Expander e(node, inputs, kContribVersion);
  const Operand windows = e.step("Gather", {e.input(0), Expander::constant(std::move(places))}, {{"axis", axis}});
  return e.finish({e.step("Transpose", {windows}, {{"perm", perm}})});
}

/// Inputs: x, weights, pads, bias. Nothing while the pads are unknown.
std::optional<Expansion> expand_padded_transposed(const Node& node, const Types& inputs) {
  Expander::Attributes attributes = node.attributes;
  if (inputs.size() > 2 && inputs[2].present) {
    if (!inputs[2].constant) return std::nullopt;
    attributes["pads"] = inputs[2].constant->to_int64s();
  }
  Expander e(node, inputs, 11);
  return e.finish({e.step("ConvTranspose", {e.input(0), e.input(1), e.input(3)}, std::move(attributes))});
}

/// A matrix that is given by its elements other than 0, which the importer makes dense, times a matrix.
std::optional<Expansion> expand_sparse_product(const Node& node, const Types& inputs) {
  for (size_t i = 0; i < 2; ++i) kernel::require_rank(node, inputs.at(i), 2, "an operand");
  Expander e(node, inputs, kContribVersion);
  const auto turned = [&](size_t i, const char* attribute) {
    return node.get_int(attribute, 0) != 0 ? e.step("Transpose", {e.input(i)}) : e.input(i);
  };
  const Operand product = e.step("MatMul", {turned(0, "transA"), turned(1, "transB")});
  const float alpha = node.get_float("alpha", 1.0f);
  if (alpha == 1.0f) return e.finish({product});
  if (!is_floating(inputs[0].dtype)) node.fail(ErrorCode::kUnsupported, "alpha of integers is not served; 1 is");
  return e.finish({e.step("Mul", {product, Expander::scalar(inputs[0].dtype, static_cast<double>(alpha))})});
}

// ------------------------------------------------------------------------------------------------------------ Inverse

void infer_inverse(InferContext& c) {
  const TypeInfo& x = c.input(0);
  kernel::require_type(c.node, x.dtype, kernel::kFloats, "the input");
  c.outputs[0] = kernel::without_constant(x);
  if (!x.ranked) return;
  const size_t rank = x.shape.size();
  if (rank < 2 || (x.shape[rank - 1] >= 0 && x.shape[rank - 2] >= 0 && x.shape[rank - 1] != x.shape[rank - 2]))
    c.node.fail(ErrorCode::kInvalidModel, "the input " + to_string(x.shape) + " must hold square matrices");
}

/// Gauss-Jordan elimination of one matrix [n,n] with the largest pivot of each column; a singular one gives infinities.
template <typename T>
void invert(const T* in, T* out, int64_t n) {
  std::vector<T> a(in, in + n * n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) out[i * n + j] = i == j ? T{1} : T{0};
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i)
      if (std::abs(a[static_cast<size_t>(i * n + k)]) > std::abs(a[static_cast<size_t>(pivot * n + k)])) pivot = i;
    for (int64_t j = 0; j < n; ++j) {
      std::swap(a[static_cast<size_t>(k * n + j)], a[static_cast<size_t>(pivot * n + j)]);
      std::swap(out[k * n + j], out[pivot * n + j]);
    }
    const T top = a[static_cast<size_t>(k * n + k)];
    for (int64_t j = 0; j < n; ++j) {
      a[static_cast<size_t>(k * n + j)] /= top;
      out[k * n + j] /= top;
    }
    for (int64_t i = 0; i < n; ++i) {
      const T factor = a[static_cast<size_t>(i * n + k)];
      if (i == k || factor == 0) continue;
      for (int64_t j = 0; j < n; ++j) {
        a[static_cast<size_t>(i * n + j)] -= factor * a[static_cast<size_t>(k * n + j)];
        out[i * n + j] -= factor * out[k * n + j];
      }
    }
  }
}

void evaluate_inverse(EvalContext& c, const std::vector<TypeInfo>& types) {
  const int64_t n = c.input(0).shape().back(), size = c.input(0).size();
  c.outputs[0] = kernel::in_floats(c.node, c.input(0), types[0], [&](const auto* x, auto* y) {
    for (int64_t at = 0; n > 0 && at < size; at += n * n) invert(x + at, y + at, n);
  });
}

}  // namespace

void register_contrib(Registry& registry) {
  const auto add = [&](const char* name, kernel::Arity inputs, ExpandFunction expand,
                       std::set<std::string> attributes = {}, kernel::Arity outputs = kernel::kOne,
                       InferFunction unknown = {}) {
    add_expansion(registry, name, 1, inputs, std::move(expand), std::move(attributes), outputs, kMicrosoft,
                  std::move(unknown));
  };
  add("CDist", kernel::kTwo, expand_distances, {"metric"});
  add("ConvTransposeWithDynamicPads", {2, 4}, expand_padded_transposed,
      {"auto_pad", "dilations", "group", "kernel_shape", "output_padding", "strides"});
  add("ExpandDims", kernel::kTwo, expand_dims);
  add("GatherND", kernel::kTwo, standard(12));
  add("GridSample", kernel::kTwo, standard(16), {"align_corners", "mode", "padding_mode"});
  add("MatMulInteger16", kernel::kTwo, expand_integer_product, {}, kernel::kOne, infer_int32);
  add("Pad", {2, 3}, standard(13), {"mode"});
  add("QEmbedLayerNormalization", {13, 18}, expand_embedding, {"epsilon"}, {1, 2}, infer_unknown_embedding);
  add("Range", {2, 3}, [](const Node& node, const Types& inputs) -> std::optional<Expansion> {
    Expander e(node, inputs, 11);
    const Operand one = e.cast(Expander::scalar(DType::kFloat, 1), inputs[0].dtype);
    const Operand step = inputs.size() > 2 && inputs[2].present ? e.input(2) : one;
    return e.finish({e.step("Range", {e.input(0), e.input(1), step})});
  });
  add("Trilu", {1, 2}, standard(14), {"upper"});
  add("UnfoldTensor", kernel::kOne, expand_unfold, {"dim", "size", "step"});
  add("SparseToDenseMatMul", kernel::kTwo, expand_sparse_product, {"alpha", "transA", "transB"});
  add("Unique", kernel::kOne, expand_unique, {}, {1, 3});
  kernel::add(registry, "Inverse", 1, kernel::kOne, infer_inverse, evaluate_inverse, {}, kernel::kOne, kMicrosoft);
}

}  // namespace tessera::ops
