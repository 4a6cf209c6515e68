// SPDX-License-Identifier: Apache-2.0
// Decoding of tensors. Sizes are checked before anything is allocated: what a file claims to hold must be there.
#include "compiler/onnx/tensor_decode.h"

#include <cstring>
#include <limits>

#include "base/error.h"
#include "ops/limits.h"

namespace tessera::onnx {
namespace {

using onnx_proto::TensorProto;
using ops::DType;

[[noreturn]] void fail(const std::string& what, const std::string& cause) {
  throw Error(ErrorCode::kInvalidModel, what + ": " + cause);
}

template <typename Dims>
ops::Shape decode_dims(const Dims& dims, DType dtype, const std::string& what) {
  ops::Shape shape(dims.begin(), dims.end());
  int64_t count = 1;
  for (int64_t d : shape) {
    if (d < 0) fail(what, "shape " + ops::to_string(shape) + " has a negative dimension");
  }
  try {
    count = ops::element_count(shape);
  } catch (const Error&) {
    fail(what, "shape " + ops::to_string(shape) + " is absurdly large");
  }
  int64_t width = std::max<int64_t>(1, ops::element_bytes(dtype));
  if (count > ops::memory_limit_bytes() / width)
    fail(what, "shape " + ops::to_string(shape) + " needs more memory than the " +
                   std::to_string(ops::memory_limit_bytes()) + " bytes that tensors may have");
  return shape;
}

/// Whether raw_data holds elements of fewer than eight bits, the first in the lowest bits.
bool is_packed(DType dtype) { return ops::packed_bits(dtype) % 8 != 0; }

/// Bytes of raw_data for a tensor.
int64_t packed_bytes(DType dtype, int64_t count) { return (count * ops::packed_bits(dtype) + 7) / 8; }

/// Element `index` of packed bytes that byte(i) gives, as a Tensor holds it: signed integers with their sign.
template <typename Byte>
uint8_t unpack(DType dtype, size_t index, Byte byte) {
  const auto bits = static_cast<size_t>(ops::packed_bits(dtype));
  const size_t first = index * bits, shift = first % 8;
  unsigned word = byte(first / 8);
  if (shift + bits > 8) word |= static_cast<unsigned>(byte(first / 8 + 1)) << 8;
  const unsigned value = (word >> shift) & ((1U << bits) - 1), sign = 1U << (bits - 1);
  return static_cast<uint8_t>(ops::is_signed_integer(dtype) ? (value ^ sign) - sign : value);
}

void check_bools(const ops::Tensor& tensor, const std::string& what) {
  for (uint8_t value : tensor.as<uint8_t>()) {
    if (value > 1) fail(what, "a boolean is neither 0 nor 1");
  }
}

ops::Tensor from_packed(DType dtype, const ops::Shape& shape, std::shared_ptr<const void> owner, const std::byte* data,
                        size_t size, const std::string& what) {
  int64_t count = ops::element_count(shape);
  int64_t needed = packed_bytes(dtype, count);
  if (static_cast<int64_t>(size) != needed) {
    fail(what, "type " + std::string(ops::to_string(dtype)) + " and shape " + ops::to_string(shape) + " need " +
                   std::to_string(needed) + " bytes, but there are " + std::to_string(size));
  }
  if (is_packed(dtype)) {
    ops::Tensor tensor(dtype, shape);
    auto out = tensor.as_mutable<uint8_t>();
    const auto byte = [&](size_t at) { return static_cast<uint8_t>(data[at]); };
    for (size_t i = 0; i < out.size(); ++i) out[i] = unpack(dtype, i, byte);
    return tensor;
  }
  ops::Tensor tensor;
  if (reinterpret_cast<uintptr_t>(data) % 16 == 0) {
    tensor = ops::Tensor::view(dtype, shape, std::move(owner), data);
  } else {
    tensor = ops::Tensor(dtype, shape);
    if (needed > 0) std::memcpy(tensor.mutable_data(), data, static_cast<size_t>(needed));
  }
  if (dtype == DType::kBool) check_bools(tensor, what);
  return tensor;
}

template <typename To, typename Field>
void copy_checked(ops::Tensor& tensor, const Field& field, const std::string& what) {
  auto out = tensor.as_mutable<To>();
  for (size_t i = 0; i < out.size(); ++i) {
    auto value = field.Get(static_cast<int>(i));
    if constexpr (std::is_integral_v<To>) {
      if (static_cast<decltype(value)>(static_cast<To>(value)) != value) {
        fail(what, "value " + std::to_string(value) + " does not fit " + std::string(ops::to_string(tensor.dtype())));
      }
    }
    out[i] = static_cast<To>(value);
  }
}

/// Whether a typed field holds several elements in one number.
bool is_packed_typed(DType dtype) { return ops::packed_bits(dtype) == 2 || ops::packed_bits(dtype) == 4; }

/// Elements of the typed field that `dtype` uses.
int64_t typed_count(const TensorProto& tensor, DType dtype) {
  switch (dtype) {
    case DType::kFloat:
    case DType::kComplex64: return tensor.float_data_size();
    case DType::kDouble:
    case DType::kComplex128: return tensor.double_data_size();
    case DType::kInt64: return tensor.int64_data_size();
    case DType::kUint32:
    case DType::kUint64: return tensor.uint64_data_size();
    default: return tensor.int32_data_size();
  }
}

ops::Tensor from_typed(const TensorProto& proto, DType dtype, const ops::Shape& shape, const std::string& what) {
  int64_t count = ops::element_count(shape);
  int64_t needed = count;
  if (dtype == DType::kComplex64 || dtype == DType::kComplex128) needed = 2 * count;
  if (is_packed_typed(dtype)) needed = packed_bytes(dtype, count);
  int64_t have = typed_count(proto, dtype);
  if (have != needed) {
    fail(what, "type " + std::string(ops::to_string(dtype)) + " and shape " + ops::to_string(shape) + " need " +
                   std::to_string(needed) + " elements of data, but there are " + std::to_string(have));
  }
  ops::Tensor tensor(dtype, shape);
  switch (dtype) {
    case DType::kFloat:
    case DType::kComplex64:
      if (have > 0)
        std::memcpy(tensor.mutable_data(), proto.float_data().data(), static_cast<size_t>(have) * sizeof(float));
      break;
    case DType::kDouble:
    case DType::kComplex128:
      if (have > 0)
        std::memcpy(tensor.mutable_data(), proto.double_data().data(), static_cast<size_t>(have) * sizeof(double));
      break;
    case DType::kInt64:
      if (have > 0)
        std::memcpy(tensor.mutable_data(), proto.int64_data().data(), static_cast<size_t>(have) * sizeof(int64_t));
      break;
    case DType::kUint64:
      if (have > 0)
        std::memcpy(tensor.mutable_data(), proto.uint64_data().data(), static_cast<size_t>(have) * sizeof(uint64_t));
      break;
    case DType::kUint32: copy_checked<uint32_t>(tensor, proto.uint64_data(), what); break;
    case DType::kInt32: copy_checked<int32_t>(tensor, proto.int32_data(), what); break;
    case DType::kInt16: copy_checked<int16_t>(tensor, proto.int32_data(), what); break;
    case DType::kInt8: copy_checked<int8_t>(tensor, proto.int32_data(), what); break;
    case DType::kUint16:
    case DType::kFloat16:
    case DType::kBfloat16: copy_checked<uint16_t>(tensor, proto.int32_data(), what); break;
    case DType::kUint4:
    case DType::kInt4:
    case DType::kUint2:
    case DType::kInt2:
    case DType::kFloat4E2M1: {
      auto out = tensor.as_mutable<uint8_t>();
      const auto byte = [&](size_t at) { return static_cast<uint8_t>(proto.int32_data(static_cast<int>(at))); };
      for (size_t i = 0; i < out.size(); ++i) out[i] = unpack(dtype, i, byte);
      break;
    }
    default:  // uint8, bool, the 8-bit floats and those of 6 bits, one to a number
      copy_checked<uint8_t>(tensor, proto.int32_data(), what);
      if (dtype == DType::kBool) check_bools(tensor, what);
      break;
  }
  return tensor;
}

int64_t parse_number(const std::string& text, const std::string& key, const std::string& what) {
  try {
    size_t used = 0;
    int64_t value = std::stoll(text, &used);
    if (used == text.size() && value >= 0) return value;
  } catch (const std::exception&) {
  }
  fail(what, "external data " + key + " '" + text + "' is no number");
}

ExternalBytes external_bytes(const TensorProto& proto, DType dtype, const ops::Shape& shape, const DataFolders& folders,
                             const std::string& what) {
  std::string location;
  int64_t offset = 0, length = -1;
  for (const auto& entry : proto.external_data()) {
    if (entry.key() == "location") location = entry.value();
    if (entry.key() == "offset") offset = parse_number(entry.value(), "offset", what);
    if (entry.key() == "length") length = parse_number(entry.value(), "length", what);
  }
  if (dtype == DType::kString) fail(what, "strings cannot be external data");
  int64_t needed = packed_bytes(dtype, ops::element_count(shape));
  if (length > 0 && length != needed) {  // 0 says as little as none
    fail(what, "type " + std::string(ops::to_string(dtype)) + " and shape " + ops::to_string(shape) + " need " +
                   std::to_string(needed) + " bytes, but external data gives " + std::to_string(length));
  }
  if (auto in_memory = external_in_memory(folders, location, offset, needed, what)) return *in_memory;
  auto bytes = std::make_shared<std::vector<std::byte>>(read_external(folders, location, offset, needed, what));
  return {bytes, bytes->data(), bytes->size()};
}

ops::Tensor from_external(const TensorProto& proto, DType dtype, const ops::Shape& shape, const DataFolders& folders,
                          const std::string& what) {
  const ExternalBytes bytes = external_bytes(proto, dtype, shape, folders, what);
  return from_packed(dtype, shape, bytes.owner, bytes.data, bytes.size, what);
}

}  // namespace

ops::DType to_dtype(int32_t data_type, const std::string& what) {
  if (data_type <= 0 || data_type > ops::kLastDType) {
    throw Error(ErrorCode::kInvalidModel, what + ": element type " + std::to_string(data_type) + " is " +
                                              (data_type == 0 ? "undefined" : "unknown"));
  }
  return static_cast<DType>(data_type);
}

ops::Tensor decode_tensor(TensorProto& proto, const DataFolders& folders, const std::string& what) {
  DType dtype = to_dtype(proto.data_type(), what);
  if (proto.has_segment())
    throw Error(ErrorCode::kUnsupported, what + ": is stored in segments, which no ONNX tool writes");
  ops::Shape shape = decode_dims(proto.dims(), dtype, what);
  if (proto.data_location() == TensorProto::EXTERNAL) return from_external(proto, dtype, shape, folders, what);
  if (dtype == DType::kString) {
    int64_t count = ops::element_count(shape);
    if (proto.string_data_size() != count) {
      fail(what, "shape " + ops::to_string(shape) + " needs " + std::to_string(count) + " strings, but there are " +
                     std::to_string(proto.string_data_size()));
    }
    ops::Tensor tensor(dtype, shape);
    auto& out = tensor.mutable_strings();
    for (size_t i = 0; i < out.size(); ++i) out[i] = proto.string_data(static_cast<int>(i));
    return tensor;
  }
  if (proto.has_raw_data()) {
    std::shared_ptr<std::string> raw(proto.release_raw_data());
    const std::byte* data = reinterpret_cast<const std::byte*>(raw->data());
    size_t size = raw->size();
    return from_packed(dtype, shape, raw, data, size, what);
  }
  return from_typed(proto, dtype, shape, what);
}

bool embed(TensorProto& proto, const DataFolders& folders, const std::string& what) {
  if (proto.data_location() != TensorProto::EXTERNAL) return false;
  const DType dtype = to_dtype(proto.data_type(), what);
  const ExternalBytes bytes = external_bytes(proto, dtype, decode_dims(proto.dims(), dtype, what), folders, what);
  proto.set_raw_data(bytes.data, bytes.size);
  proto.clear_external_data();
  proto.clear_data_location();
  return true;
}

ops::Tensor decode_sparse_tensor(onnx_proto::SparseTensorProto& proto, const DataFolders& folders,
                                 const std::string& what) {
  if (!proto.has_values() || !proto.has_indices()) fail(what, "a sparse tensor without values or indices");
  ops::Tensor values = decode_tensor(*proto.mutable_values(), folders, what + " (values)");
  ops::Tensor indices = decode_tensor(*proto.mutable_indices(), folders, what + " (indices)");
  ops::Shape shape = decode_dims(proto.dims(), values.dtype(), what);
  int64_t count = ops::element_count(shape);
  int64_t rank = static_cast<int64_t>(shape.size());
  if (indices.dtype() != DType::kInt64) fail(what, "indices of a sparse tensor must be int64");
  if (values.rank() != 1) fail(what, "values of a sparse tensor must be a vector");
  bool linear = indices.rank() == 1;
  if (indices.rank() < 1 || indices.rank() > 2 || indices.shape()[0] != values.size() ||
      (!linear && indices.shape()[1] != rank)) {
    fail(what, "indices of shape " + ops::to_string(indices.shape()) + " do not match " +
                   std::to_string(values.size()) + " values of a tensor " + ops::to_string(shape));
  }
  ops::Tensor dense(values.dtype(), shape);
  auto index = indices.as<int64_t>();
  size_t width = static_cast<size_t>(ops::element_bytes(values.dtype()));
  std::byte* out = values.dtype() == DType::kString ? nullptr : dense.mutable_data();
  for (int64_t i = 0; i < values.size(); ++i) {
    int64_t at = 0;
    if (linear) {
      at = index[static_cast<size_t>(i)];
      if (at < 0 || at >= count) fail(what, "index " + std::to_string(at) + " lies outside " + ops::to_string(shape));
    }
    for (int64_t d = 0; !linear && d < rank; ++d) {
      int64_t coordinate = index[static_cast<size_t>(i * rank + d)];
      int64_t extent = shape[static_cast<size_t>(d)];
      if (coordinate < 0 || coordinate >= extent) {
        fail(what, "index " + std::to_string(coordinate) + " lies outside dimension " + std::to_string(d) + " of " +
                       ops::to_string(shape));
      }
      at = at * extent + coordinate;
    }
    if (out) {
      std::memcpy(out + static_cast<size_t>(at) * width, values.data() + static_cast<size_t>(i) * width, width);
    } else {
      dense.mutable_strings()[static_cast<size_t>(at)] = values.strings()[static_cast<size_t>(i)];
    }
  }
  return dense;
}

}  // namespace tessera::onnx
