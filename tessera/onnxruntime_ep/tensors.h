// SPDX-License-Identifier: Apache-2.0
// Tensors of ONNX Runtime and of the operator library, one as the other.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/tensor.h"
#include "tessera/onnxruntime_ep/ort_api.h"

namespace tessera::ort {

/// An object of ONNX Runtime with the entry that releases it.
template <typename T>
using Owned = std::unique_ptr<T, std::function<void(T*)>>;

/// Element type, with the number that both interfaces have for it, and shape.
struct Described {
  int dtype = 0;
  ops::Shape shape;
};

Described describe_value(const Api& api, const Value* value);
const void* data_of(const Api& api, const Value* value);
std::vector<std::string> strings_of_value(const Api& api, const Value* value, const Described& described);

/// The element type of a value that is a tensor; 0 of another one.
int tensor_type(const Api& api, const ValueInfo* info);
/// Whether a value is a tensor whose elements both sides hold in the same way: numbers, of 4 bits none, and strings.
bool passes(const Api& api, const ValueInfo* info);

/// A view, which must not outlive the value; of strings a copy.
ops::Tensor to_tensor(const Api& api, const Value* value);
/// Copies into an output of a node.
void to_output(const Api& api, const ops::Tensor& tensor, KernelContext* context, size_t index);

}  // namespace tessera::ort
