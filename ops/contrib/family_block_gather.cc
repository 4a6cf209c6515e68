// SPDX-License-Identifier: Apache-2.0
// GatherBlockQuantized of domain com.microsoft: rows of a table whose elements have few bits and a scale for each
// block, as decoders keep their embeddings. The table stays packed; only the rows that indices name become floats.
// An index outside the table gives zeros, as in ONNX Runtime.
#include <algorithm>

#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

namespace block_gather {

using kernel::mutable_elements;

constexpr kernel::TypeSet kPacked = kernel::set_of({DType::kUint8, DType::kInt4, DType::kUint4});
constexpr kernel::TypeSet kSmallFloats = kernel::set_of(
    {DType::kFloat8E4M3FN, DType::kFloat8E4M3FNUZ, DType::kFloat8E5M2, DType::kFloat8E5M2FNUZ, DType::kFloat4E2M1});

/// How the table is laid out: its shape in elements, axes, elements of a block and how many bits an element has in its
/// byte (8 where the tensor's own type says the elements).
struct Layout {
  Shape shape;
  size_t gather_axis = 0, quantize_axis = 0;
  int64_t block = 0, bits = 8;
  bool floats = false;
};

size_t axis_of(const Node& node, const char* name, int64_t fallback, size_t rank) {
  const int64_t axis = node.get_int(name, fallback), r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r)
    node.fail(ErrorCode::kInvalidModel, "attribute '" + std::string(name) + "' = " + std::to_string(axis) +
                                            " is outside a table of rank " + std::to_string(rank));
  return static_cast<size_t>(axis < 0 ? axis + r : axis);
}

Layout layout_of(const Node& node, DType dtype, const Shape& stored) {
  if (stored.empty()) node.fail(ErrorCode::kInvalidModel, "the table is a scalar");
  Layout layout;
  layout.floats = kernel::contains(kSmallFloats, dtype);
  layout.shape = stored;
  layout.gather_axis = axis_of(node, "gather_axis", 0, stored.size());
  layout.quantize_axis = axis_of(node, "quantize_axis", 1, stored.size());
  layout.block = node.get_int("block_size", 128);
  if (dtype == DType::kUint8) {
    layout.bits = node.get_int("bits", 4);
    if (layout.bits != 2 && layout.bits != 4 && layout.bits != 8)
      node.fail(ErrorCode::kInvalidModel, "attribute 'bits' = " + std::to_string(layout.bits) + " must be 2, 4 or 8");
    if (layout.gather_axis != 0) node.fail(ErrorCode::kInvalidModel, "a table of uint8 is gathered along axis 0");
    if (layout.shape.back() >= 0) layout.shape.back() *= 8 / layout.bits;
  }
  if (layout.gather_axis == layout.quantize_axis && layout.bits < 8)
    node.fail(ErrorCode::kInvalidModel, "gather_axis and quantize_axis are the same");
  const bool whole = layout.floats && layout.block == 0;
  if (!whole && (layout.block < 16 || (layout.block & (layout.block - 1)) != 0))
    node.fail(ErrorCode::kInvalidModel,
              "attribute 'block_size' = " + std::to_string(layout.block) + " must be a power of two from 16 on");
  return layout;
}

/// Blocks along the quantised axis of `extent` elements.
int64_t block_count(const Layout& layout, int64_t extent) {
  if (extent < 0) return -1;
  return layout.block == 0 ? 1 : (extent + layout.block - 1) / layout.block;
}

void infer_block_gather(InferContext& c) {
  const Node& node = c.node;
  const TypeInfo &table = c.input(0), &indices = c.input(1), &scales = c.input(2);
  kernel::require_type(node, table.dtype, kPacked | kSmallFloats, "the table");
  kernel::require_type(node, indices.dtype, kernel::kIndex, "the indices");
  kernel::require_type(node, scales.dtype, kernel::set_of({DType::kFloat, DType::kFloat16, DType::kBfloat16}),
                       "the scales");
  if (c.has(3)) kernel::require_same_type(node, table, c.input(3));
  if (c.has(3) && kernel::contains(kSmallFloats, table.dtype))
    node.fail(ErrorCode::kInvalidModel, "a table of floats has no zero points");
  c.outputs[0] = TypeInfo::unranked(scales.dtype);
  if (!table.ranked) return;
  const Layout layout = layout_of(node, table.dtype, table.shape);
  kernel::require_rank(node, scales, static_cast<int64_t>(table.shape.size()), "the scales");
  if (scales.ranked)
    for (size_t d = 0; d < table.shape.size(); ++d) {
      const int64_t wanted = d == layout.quantize_axis ? block_count(layout, layout.shape[d]) : layout.shape[d];
      const bool broadcast = layout.floats && d != layout.quantize_axis && scales.shape[d] == 1;
      if (wanted >= 0 && scales.shape[d] >= 0 && scales.shape[d] != wanted && !broadcast)
        node.fail(ErrorCode::kInvalidModel, "scales " + to_string(scales.shape) + " do not fit a table of " +
                                                to_string(layout.shape) + " elements");
    }
  if (!indices.ranked) return;
  Shape shape(layout.shape.begin(), layout.shape.begin() + static_cast<int64_t>(layout.gather_axis));
  shape.insert(shape.end(), indices.shape.begin(), indices.shape.end());
  shape.insert(shape.end(), layout.shape.begin() + static_cast<int64_t>(layout.gather_axis) + 1, layout.shape.end());
  c.outputs[0] = TypeInfo::tensor(scales.dtype, shape);
}

/// Element `flat` of a tensor whose rows of `columns` elements are packed into whole bytes from the low bits on.
int64_t packed_at(const Tensor& t, int64_t columns, int64_t bits, int64_t flat) {
  const int64_t per_byte = 8 / bits, row_bytes = (columns + per_byte - 1) / per_byte;
  const int64_t byte = flat / columns * row_bytes + flat % columns / per_byte;
  return (kernel::elements<uint8_t>(t)[byte] >> (flat % columns % per_byte * bits)) & ((int64_t{1} << bits) - 1);
}

/// Reads single elements as floats.
class Table {
 public:
  Table(const EvalContext& c, Layout layout)
      : layout_(std::move(layout)), data_(c.input(0)), scales_(kernel::widen(c.input(2))) {
    if (c.has(3)) zeros_ = c.input(3);
    const std::vector<int64_t> strides = kernel::row_strides(scales_.shape());
    for (size_t d = 0; d < strides.size(); ++d)
      scale_strides_.push_back(scales_.shape()[d] == 1 && d != layout_.quantize_axis ? 0 : strides[d]);
    if (c.has(3) && zeros_.size() != packed_size(scales_.shape()))
      c.node.fail(ErrorCode::kInvalidModel,
                  "zero points " + to_string(zeros_.shape()) + " do not fit scales " + to_string(scales_.shape()));
  }

  float at(int64_t flat) const {
    int64_t rest = flat, scale = 0;
    for (size_t d = layout_.shape.size(); d-- > 0;) {
      const int64_t place = rest % layout_.shape[d];
      rest /= layout_.shape[d];
      const bool blocked = d == layout_.quantize_axis;
      scale += scale_strides_[d] * (blocked && layout_.block > 0 ? place / layout_.block : blocked ? 0 : place);
    }
    const float factor = kernel::elements<float>(scales_)[scale];
    if (layout_.floats) return static_cast<float>(data_.at_double(flat)) * factor;
    int64_t zero = data_.dtype() == DType::kUint8 ? int64_t{1} << (layout_.bits - 1) : 0;
    if (zeros_.size() > 0) zero = number(zeros_, scales_.shape().back(), scale);
    return static_cast<float>(number(data_, layout_.shape.back(), flat) - zero) * factor;
  }

 private:
  int64_t number(const Tensor& t, int64_t columns, int64_t flat) const {
    return t.dtype() == DType::kUint8 ? packed_at(t, columns, layout_.bits, flat) : t.at_int64(flat);
  }
  int64_t packed_size(const Shape& shape) const {
    if (data_.dtype() != DType::kUint8 || shape.back() == 0) return element_count(shape);
    const int64_t per_byte = 8 / layout_.bits;
    return element_count(shape) / shape.back() * ((shape.back() + per_byte - 1) / per_byte);
  }

  Layout layout_;
  Tensor data_, scales_, zeros_;
  std::vector<int64_t> scale_strides_;
};

void evaluate_block_gather(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Layout layout = layout_of(c.node, c.input(0).dtype(), c.input(0).shape());
  const Table table(c, layout);
  const auto along = static_cast<int64_t>(layout.gather_axis);
  const int64_t before = kernel::product(layout.shape, 0, layout.gather_axis),
                extent = layout.shape[layout.gather_axis],
                after = kernel::product(layout.shape, static_cast<size_t>(along) + 1, layout.shape.size());
  const std::vector<int64_t> indices = c.input(1).to_int64s();
  Tensor y(DType::kFloat, types[0].shape);
  float* out = mutable_elements<float>(y);
  for (int64_t b = 0; b < before; ++b)
    for (const int64_t index : indices) {
      const int64_t at = index < 0 ? index + extent : index;
      if (at >= 0 && at < extent)
        for (int64_t i = 0; i < after; ++i) out[i] = table.at((b * extent + at) * after + i);
      out += after;
    }
  c.outputs[0] = kernel::narrow(std::move(y), types[0].dtype);
}

}  // namespace block_gather

}  // namespace

void register_block_gather(Registry& registry) {
  kernel::add(registry, "GatherBlockQuantized", 1, {3, 4}, block_gather::infer_block_gather,
              block_gather::evaluate_block_gather, {"bits", "block_size", "gather_axis", "quantize_axis"}, kernel::kOne,
              "com.microsoft");
}

}  // namespace tessera::ops
