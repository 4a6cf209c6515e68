// SPDX-License-Identifier: Apache-2.0
// Element types by the numbers of ONNX, and copies between an order of dimensions and the row-major one.
#include "tessera/executorch/arguments.h"

#include <executorch/runtime/core/exec_aten/util/dim_order_util.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>

#include <array>
#include <cstring>

namespace tessera::executorch {

namespace {

namespace et = ::executorch::runtime;
using ::executorch::aten::ScalarType;
using ::executorch::aten::Tensor;

struct Pair {
  ScalarType type;
  int32_t onnx;
};
constexpr std::array<Pair, 13> kTypes{{{ScalarType::Float, 1},
                                       {ScalarType::Byte, 2},
                                       {ScalarType::Char, 3},
                                       {ScalarType::UInt16, 4},
                                       {ScalarType::Short, 5},
                                       {ScalarType::Int, 6},
                                       {ScalarType::Long, 7},
                                       {ScalarType::Bool, 9},
                                       {ScalarType::Half, 10},
                                       {ScalarType::Double, 11},
                                       {ScalarType::UInt32, 12},
                                       {ScalarType::UInt64, 13},
                                       {ScalarType::BFloat16, 16}}};

/// The number of ONNX; 0 for a type that it does not have.
int32_t onnx_type(ScalarType type) {
  for (const Pair& pair : kTypes)
    if (pair.type == type) return pair.onnx;
  return 0;
}

bool row_major(const Tensor& tensor) {
  return et::is_contiguous_dim_order(tensor.dim_order().data(), tensor.dim_order().size());
}

/// Calls f(offset in elements) for each element in row-major order of its indices.
template <typename F>
void walk(const Tensor& tensor, F f) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  std::vector<int64_t> index(sizes.size(), 0);
  for (ssize_t i = 0; i < tensor.numel(); ++i) {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * strides[d];
    f(offset);
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
}

bool tensor_operand(const Tensor& tensor, Operand& operand, std::string& message) {
  const int32_t type = onnx_type(tensor.scalar_type());
  if (type == 0) {
    message = "an input is of ExecuTorch's type number " + std::to_string(static_cast<int>(tensor.scalar_type())) +
              ", which ONNX does not have";
    return false;
  }
  operand.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  const void* data = tensor.const_data_ptr();
  if (!row_major(tensor)) {
    const size_t width = tensor.element_size();
    operand.copy.resize(tensor.nbytes());
    char* to = operand.copy.data();
    walk(tensor, [&](int64_t offset) {
      std::memcpy(to, static_cast<const char*>(data) + offset * width, width);
      to += width;
    });
    data = operand.copy.data();
  }
  operand.tensor = {type, operand.shape.size(), operand.shape.data(), data, tensor.nbytes()};
  return true;
}

template <typename T>
void scalar_operand(T value, int32_t type, Operand& operand) {
  operand.copy.resize(sizeof value);
  std::memcpy(operand.copy.data(), &value, sizeof value);
  operand.tensor = {type, 0, operand.shape.data(), operand.copy.data(), sizeof value};
}

std::string text_of(const int64_t* shape, size_t rank) {
  std::string text = "[";
  for (size_t d = 0; d < rank; ++d) text += (d ? "," : "") + std::to_string(shape[d]);
  return text + "]";
}

bool tensor_result(const tessera_tensor& result, Tensor tensor, std::string& message) {
  if (onnx_type(tensor.scalar_type()) != result.dtype) {
    message = "an output has the element type " + std::to_string(result.dtype) + " of ONNX, and ExecuTorch plans for " +
              std::to_string(onnx_type(tensor.scalar_type()));
    return false;
  }
  const std::vector<::executorch::aten::SizesType> sizes(result.shape, result.shape + result.rank);
  if (et::resize_tensor(tensor, {sizes.data(), sizes.size()}) != et::Error::Ok) {
    message = "an output of shape " + text_of(result.shape, result.rank) +
              " does not fit what ExecuTorch plans for it: export with a larger upper bound of the dimension";
    return false;
  }
  if (row_major(tensor)) {
    if (result.bytes > 0) std::memcpy(tensor.mutable_data_ptr(), result.data, result.bytes);
    return true;
  }
  const size_t width = tensor.element_size();
  const char* from = static_cast<const char*>(result.data);
  walk(tensor, [&](int64_t offset) {
    std::memcpy(static_cast<char*>(tensor.mutable_data_ptr()) + offset * width, from, width);
    from += width;
  });
  return true;
}

template <typename T>
T scalar_of(const tessera_tensor& result) {
  T value;
  std::memcpy(&value, result.data, sizeof value);
  return value;
}

}  // namespace

bool to_operand(const et::EValue& value, Operand& operand, std::string& message) {
  if (value.isTensor()) return tensor_operand(value.toTensor(), operand, message);
  if (value.isInt()) {
    scalar_operand<int64_t>(value.toInt(), 7, operand);
  } else if (value.isBool()) {
    scalar_operand<bool>(value.toBool(), 9, operand);
  } else if (value.isDouble()) {
    scalar_operand<double>(value.toDouble(), 11, operand);
  } else {
    message = "an input is neither a tensor nor a number";
    return false;
  }
  return true;
}

bool from_result(const tessera_tensor& result, et::EValue& value, std::string& message) {
  if (value.isTensor()) return tensor_result(result, value.toTensor(), message);
  if (value.isInt() && result.dtype == 7 && result.bytes == sizeof(int64_t)) {
    value = et::EValue(scalar_of<int64_t>(result));
  } else if (value.isBool() && result.dtype == 9 && result.bytes == sizeof(bool)) {
    value = et::EValue(scalar_of<bool>(result));
  } else if (value.isDouble() && result.dtype == 11 && result.bytes == sizeof(double)) {
    value = et::EValue(scalar_of<double>(result));
  } else {
    message = "an output is neither a tensor nor a number of the type that ExecuTorch plans for";
    return false;
  }
  return true;
}

}  // namespace tessera::executorch
