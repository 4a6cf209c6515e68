// SPDX-License-Identifier: Apache-2.0
// Both sides hold dense tensors in row-major order, so numbers are viewed and copied as bytes.
#include "tessera/onnxruntime_ep/tensors.h"

#include <cstring>

namespace tessera::ort {

namespace {

/// Types up to float8e5m2fnuz have equal numbers and equal bytes on both sides. Behind them ONNX Runtime packs 4-bit
/// types, and counts on in its own way.
bool known(int dtype) {
  return dtype > static_cast<int>(ops::DType::kUndefined) && dtype <= static_cast<int>(ops::DType::kFloat8E5M2FNUZ);
}

}  // namespace

Described describe_value(const Api& api, const Value* value) {
  const Owned<TensorInfo> info(api.get<TensorInfo*>(kGetTensorTypeAndShape, value),
                               [&](TensorInfo* i) { api.raw(kReleaseTensorInfo, i); });
  const TensorInfo* tensor = info.get();
  Described described;
  described.dtype = api.get<int>(kGetTensorElementType, tensor);
  described.shape.resize(api.get<size_t>(kGetDimensionsCount, tensor));
  if (!described.shape.empty()) api.call(kGetDimensions, tensor, described.shape.data(), described.shape.size());
  return described;
}

const void* data_of(const Api& api, const Value* value) {
  return api.get<void*>(kGetTensorMutableData, const_cast<Value*>(value));  // read only
}

std::vector<std::string> strings_of_value(const Api& api, const Value* value, const Described& described) {
  const auto count = static_cast<size_t>(ops::element_count(described.shape));
  std::vector<std::string> strings(count);
  if (count == 0) return strings;
  std::string all(api.get<size_t>(kGetStringTensorDataLength, value), '\0');
  std::vector<size_t> begins(count);
  api.call(kGetStringTensorContent, value, static_cast<void*>(all.data()), all.size(), begins.data(), count);
  for (size_t i = 0; i < count; ++i)
    strings[i] = all.substr(begins[i], (i + 1 < count ? begins[i + 1] : all.size()) - begins[i]);
  return strings;
}

int tensor_type(const Api& api, const ValueInfo* info) {
  const auto* type = api.get<const TypeInfo*>(kGetValueInfoTypeInfo, info);
  if (!type || api.get<Kind>(kGetOnnxTypeFromTypeInfo, type) != Kind::kTensor) return 0;
  return api.get<int>(kGetTensorElementType, api.get<const TensorInfo*>(kCastTypeInfoToTensorInfo, type));
}

bool passes(const Api& api, const ValueInfo* info) { return known(tensor_type(api, info)); }

ops::Tensor to_tensor(const Api& api, const Value* value) {
  Described described = describe_value(api, value);
  if (!known(described.dtype))
    throw Error(ErrorCode::kUnsupported,
                "element type " + std::to_string(described.dtype) + " does not pass between ONNX Runtime and Tessera");
  const auto dtype = static_cast<ops::DType>(described.dtype);
  if (dtype == ops::DType::kString) {
    ops::Tensor tensor(dtype, described.shape);
    tensor.mutable_strings() = strings_of_value(api, value, described);
    return tensor;
  }
  if (ops::element_count(described.shape) == 0) return {dtype, described.shape};
  const auto* data = static_cast<const std::byte*>(data_of(api, value));
  const std::shared_ptr<const void> lent(data, [](const void*) {});  // ONNX Runtime keeps it for the run
  return ops::Tensor::view(dtype, std::move(described.shape), lent, data);
}

void to_output(const Api& api, const ops::Tensor& tensor, KernelContext* context, size_t index) {
  Value* value = nullptr;
  api.call(kKernelContextGetOutput, context, index, tensor.shape().data(), tensor.shape().size(), &value);
  if (!value) return;
  if (tensor.dtype() == ops::DType::kString) {
    std::vector<const char*> texts;
    for (const std::string& text : tensor.strings()) texts.push_back(text.c_str());
    if (!texts.empty()) api.call(kFillStringTensor, value, texts.data(), texts.size());
    return;
  }
  auto* data = api.get<void*>(kGetTensorMutableData, value);
  if (tensor.bytes() > 0) std::memcpy(data, tensor.data(), static_cast<size_t>(tensor.bytes()));
}

}  // namespace tessera::ort
