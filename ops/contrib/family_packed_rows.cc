// SPDX-License-Identifier: Apache-2.0
// Weights of com.microsoft that lie in blocks of few bits with their scales between them: GatherPacked, rows of an
// embedding in the block formats of GGUF, and MatMulFpQ4, columns of 4 bits. Each is unpacked into fp32 by the format's
// definition. Formats whose blocks name entries of a book of patterns (IQ2 and IQ3) are not served.
#include <cstring>

#include "ops/kernels/elementwise_kernel.h"
#include "ops/kernels/gemm_kernel.h"

namespace tessera::ops {

namespace {

namespace packed_rows {

using Bytes = const uint8_t*;

float half(Bytes at) { return half_to_float(static_cast<uint16_t>(at[0] | at[1] << 8)); }
float full(Bytes at) {
  float value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}
int low(uint8_t byte) { return byte & 15; }
int high(uint8_t byte) { return byte >> 4; }

/// Steps between the sixteen codes of IQ4_NL and IQ4_XS, which lie closer around zero.
constexpr int8_t kUneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

void unpack_float(Bytes b, float* y) { *y = full(b); }
void unpack_half(Bytes b, float* y) { *y = half(b); }
void unpack_brain(Bytes b, float* y) { *y = bfloat16_to_float(static_cast<uint16_t>(b[0] | b[1] << 8)); }

/// A scale, then 16 bytes whose low halves come first.
void unpack_q4_0(Bytes b, float* y) {
  for (int i = 0; i < 16; ++i) {
    y[i] = static_cast<float>(low(b[2 + i]) - 8) * half(b);
    y[i + 16] = static_cast<float>(high(b[2 + i]) - 8) * half(b);
  }
}

/// The same with a fifth bit of each in 4 bytes before them.
void unpack_q5_0(Bytes b, float* y) {
  for (int i = 0; i < 32; ++i) {
    const int bits = i < 16 ? low(b[6 + i]) : high(b[6 + i - 16]);
    y[i] = static_cast<float>((bits | (b[2 + i / 8] >> i % 8 & 1) << 4) - 16) * half(b);
  }
}

void unpack_q8_0(Bytes b, float* y) {
  for (int i = 0; i < 32; ++i) y[i] = static_cast<float>(static_cast<int8_t>(b[2 + i])) * half(b);
}

/// Scale and offset of stretch j of 32: 6 bits each, packed into 12 bytes.
struct Stretch {
  float scale, offset;
};
Stretch stretch_of(Bytes b, int j) {
  const Bytes q = b + 4;
  const int scale = j < 4 ? q[j] & 63 : low(q[j + 4]) | q[j - 4] >> 6 << 4;
  const int offset = j < 4 ? q[j + 4] & 63 : high(q[j + 4]) | q[j] >> 6 << 4;
  return {half(b) * static_cast<float>(scale), half(b + 2) * static_cast<float>(offset)};
}

/// Eight stretches of 32; of 32 bytes the low halves are one, the high halves the next, and fifth bits stand before
/// them.
void unpack_q5_k(Bytes b, float* y) {
  for (int j = 0; j < 8; ++j) {
    const Stretch stretch = stretch_of(b, j);
    for (int i = 0; i < 32; ++i) {
      const uint8_t byte = b[48 + j / 2 * 32 + i];
      const int code = (j % 2 == 0 ? low(byte) : high(byte)) | (b[16 + i] >> j & 1) << 4;
      y[j * 32 + i] = stretch.scale * static_cast<float>(code) - stretch.offset;
    }
  }
}

/// Low 4 bits, high 2 bits, 16 scales of 8 bits, and a scale of these.
void unpack_q6_k(Bytes b, float* y) {
  for (int i = 0; i < 256; ++i) {
    const int half_block = i / 128, quarter = i % 128 / 32, at = i % 32;
    const uint8_t lows = b[half_block * 64 + quarter % 2 * 32 + at], highs = b[128 + half_block * 32 + at];
    const int code = (quarter < 2 ? low(lows) : high(lows)) | (highs >> 2 * quarter & 3) << 4;
    const auto scale = static_cast<float>(static_cast<int8_t>(b[192 + i / 16]));
    y[i] = half(b + 208) * scale * static_cast<float>(code - 32);
  }
}

void unpack_iq4_nl(Bytes b, float* y) {
  for (int i = 0; i < 32; ++i)
    y[i] = half(b) * static_cast<float>(kUneven[i < 16 ? low(b[2 + i]) : high(b[2 + i - 16])]);
}

void unpack_iq4_xs(Bytes b, float* y) {
  for (int i = 0; i < 256; ++i) {
    const int j = i / 32, at = i % 32;
    const int lows = b[4 + j / 2] >> 4 * (j % 2) & 15, highs = b[2 + j / 4] >> 2 * (j % 4) & 3;
    const uint8_t byte = b[8 + j * 16 + at % 16];
    y[i] = half(b) * static_cast<float>((lows | highs << 4) - 32) *
           static_cast<float>(kUneven[at < 16 ? low(byte) : high(byte)]);
  }
}

/// A scale, then 64 numbers of 2 bits: -1, 0, 1 and 2.
void unpack_2(Bytes b, float* y) {
  for (int i = 0; i < 64; ++i) y[i] = static_cast<float>((b[2 + i / 4] >> 2 * (i % 4) & 3) - 1) * half(b);
}

struct Format {
  int64_t id, values, bytes;  // of a block
  void (*unpack)(Bytes, float*);
};
constexpr Format kFormats[] = {
    {0, 1, 4, unpack_float},       {1, 1, 2, unpack_half},      {30, 1, 2, unpack_brain},
    {2, 32, 18, unpack_q4_0},      {6, 32, 22, unpack_q5_0},    {8, 32, 34, unpack_q8_0},
    {13, 256, 176, unpack_q5_k},   {14, 256, 210, unpack_q6_k}, {20, 32, 18, unpack_iq4_nl},
    {23, 256, 136, unpack_iq4_xs}, {42, 64, 18, unpack_2},
};

const Format& format_of(const Node& node) {
  const int64_t id = node.get_int("packed_type", -1);
  for (const Format& format : kFormats)
    if (format.id == id) return format;
  node.fail(ErrorCode::kUnsupported, "attribute 'packed_type' = " + std::to_string(id) +
                                         " is not served; 0, 1, 2, 6, 8, 13, 14, 20, 23, 30 and 42 are");
}

void infer_gather(InferContext& c) {
  const TypeInfo &data = c.input(0), &indices = c.input(1);
  kernel::require_type(c.node, data.dtype, kernel::set_of({DType::kUint8}), "the table");
  kernel::require_type(c.node, indices.dtype, kernel::kIndex, "the indices");
  kernel::require_rank(c.node, data, 2, "the table");
  const Format& format = format_of(c.node);
  const int64_t width = c.node.get_int("K", 0);
  if (width < 1 || width > kernel::kSizeLimit || width % format.values != 0)
    c.node.fail(ErrorCode::kInvalidModel,
                "attribute 'K' = " + std::to_string(width) + " must be a multiple of " + std::to_string(format.values));
  if (data.ranked && data.shape[1] >= 0 && data.shape[1] != width / format.values * format.bytes)
    c.node.fail(ErrorCode::kInvalidModel, "a row of the table has " + std::to_string(data.shape[1]) + " bytes where " +
                                              std::to_string(width / format.values * format.bytes) + " are needed");
  const auto dtype = static_cast<DType>(c.node.get_int("output_dtype", static_cast<int64_t>(DType::kBfloat16)));
  kernel::require_type(c.node, dtype, kernel::set_of({DType::kFloat, DType::kFloat16, DType::kBfloat16}), "the result");
  c.outputs[0] = kernel::without_constant(indices, dtype);
  if (indices.ranked) c.outputs[0].shape.push_back(width);
}

void evaluate_gather(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Format& format = format_of(c.node);
  const Tensor& data = c.input(0);
  const int64_t rows = data.shape()[0], row_bytes = data.shape()[1], blocks = row_bytes / format.bytes;
  Tensor y(DType::kFloat, types[0].shape);
  float* out = kernel::mutable_elements<float>(y);
  for (int64_t index : c.input(1).to_int64s()) {
    const int64_t row = index < 0 || index >= rows ? 0 : index;  // as ONNX Runtime
    if (rows == 0) c.node.fail(ErrorCode::kInvalidArgument, "the table has no rows");
    for (int64_t k = 0; k < blocks; ++k, out += format.values)
      format.unpack(kernel::elements<uint8_t>(data) + row * row_bytes + k * format.bytes, out);
  }
  c.outputs[0] = kernel::narrow(std::move(y), types[0].dtype);
}

// --------------------------------------------------------------------------------------------------------- MatMulFpQ4

/// A block of a column: a scale, a zero point where it has one, then for each 32 numbers 16 bytes whose low halves come
/// first.
struct Blocks {
  int64_t values, bytes;
  bool offset;
};
Blocks blocks_of(const Node& node) {
  return node.get_int("blk_quant_type", 1) == 0 ? Blocks{32, 20, false} : Blocks{32, 21, true};  // as ONNX Runtime
}

void infer_product(InferContext& c) {
  const TypeInfo &a = c.input(0), &b = c.input(1), &shape = c.input(2);
  kernel::require_type(c.node, a.dtype, kernel::set_of({DType::kFloat}), "A");
  kernel::require_type(c.node, b.dtype, kernel::set_of({DType::kUint8}), "B");
  kernel::require_type(c.node, shape.dtype, kernel::kInt64Set, "B_shape");
  const Blocks blocks = blocks_of(c.node);
  const auto known = kernel::known_ints(c, 2);
  if (known && (known->size() != 2 || known->front() < 1 || known->back() < 1 || known->front() > kernel::kSizeLimit ||
                known->back() > kernel::kSizeLimit))
    c.node.fail(ErrorCode::kInvalidModel, "B_shape must be two positive extents");
  const int64_t depth = known ? known->front() : -1, columns = known ? known->back() : -1;
  if (a.ranked && a.shape.empty()) c.node.fail(ErrorCode::kInvalidModel, "A must not be a scalar");
  if (known && a.ranked && a.shape.back() >= 0 && a.shape.back() != depth)
    c.node.fail(ErrorCode::kInvalidModel,
                "A " + to_string(a.shape) + " does not fit B of " + std::to_string(depth) + " rows");
  if (known && b.is_static() &&
      element_count(b.shape) != (depth + blocks.values - 1) / blocks.values * blocks.bytes * columns)
    c.node.fail(ErrorCode::kInvalidModel, "B has " + std::to_string(element_count(b.shape)) +
                                              " bytes, which do not hold " + to_string(*known) + " in this form");
  c.outputs[0] = kernel::without_constant(a);
  if (a.ranked) c.outputs[0].shape.back() = columns;
}

void evaluate_product(EvalContext& c, const std::vector<TypeInfo>& types) {
  const Blocks blocks = blocks_of(c.node);
  const int64_t depth = c.input(2).at_int64(0), columns = c.input(2).at_int64(1);
  std::vector<float> weights(static_cast<size_t>(depth * columns));  // [columns, depth]
  Bytes b = kernel::elements<uint8_t>(c.input(1));
  for (int64_t n = 0; n < columns; ++n)
    for (int64_t k = 0; k < depth; k += blocks.values, b += blocks.bytes)
      for (int64_t i = 0; i < std::min(blocks.values, depth - k); ++i) {
        const uint8_t byte = b[(blocks.offset ? 5 : 4) + i / 32 * 16 + i % 16];
        const int code = i % 32 < 16 ? low(byte) : high(byte), zero = blocks.offset ? b[4] : 8;
        weights[static_cast<size_t>(n * depth + k + i)] = static_cast<float>(code - zero) * full(b);
      }
  Tensor y(DType::kFloat, types[0].shape);
  const int64_t rows = c.input(0).size() / depth;
  multiply(rows, columns, depth, MatrixView<float>{kernel::elements<float>(c.input(0)), depth, 1},
           MatrixView<float>{weights.data(), 1, depth}, kernel::mutable_elements<float>(y), columns);
  c.outputs[0] = std::move(y);
}

}  // namespace packed_rows

}  // namespace

void register_packed_rows(Registry& registry) {
  kernel::add(registry, "GatherPacked", 1, {2, 2}, packed_rows::infer_gather, packed_rows::evaluate_gather,
              {"K", "output_dtype", "packed_type"}, kernel::kOne, kMicrosoft);
  kernel::add(registry, "MatMulFpQ4", 1, {3, 3}, packed_rows::infer_product, packed_rows::evaluate_product,
              {"blk_quant_type"}, kernel::kOne, kMicrosoft);
}

}  // namespace tessera::ops
