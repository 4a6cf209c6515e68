// SPDX-License-Identifier: Apache-2.0
// NumPy arrays to tensors and back, for the Python modules. Arrays cross as bytes with a numpy dtype name through
// Python calls, which works with any numpy; bfloat16, fp8 and 4-bit types use ml_dtypes. Errors: kInvalidArgument for a
// type ONNX does not have.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>

#include "ops/operator.h"

namespace tessera::ops {

namespace py = pybind11;

struct NumpyName {
  DType dtype;
  const char* name;
  bool extended;  // a type of ml_dtypes
};

inline constexpr NumpyName kNumpyNames[] = {
    {DType::kFloat, "float32", false},
    {DType::kUint8, "uint8", false},
    {DType::kInt8, "int8", false},
    {DType::kUint16, "uint16", false},
    {DType::kInt16, "int16", false},
    {DType::kInt32, "int32", false},
    {DType::kInt64, "int64", false},
    {DType::kBool, "bool", false},
    {DType::kFloat16, "float16", false},
    {DType::kDouble, "float64", false},
    {DType::kUint32, "uint32", false},
    {DType::kUint64, "uint64", false},
    {DType::kComplex64, "complex64", false},
    {DType::kComplex128, "complex128", false},
    {DType::kBfloat16, "bfloat16", true},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", true},
    {DType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", true},
    {DType::kFloat8E5M2, "float8_e5m2", true},
    {DType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", true},
    {DType::kUint4, "uint4", true},
    {DType::kInt4, "int4", true},
    {DType::kFloat4E2M1, "float4_e2m1fn", true},
    {DType::kFloat8E8M0, "float8_e8m0fnu", true},
    {DType::kUint2, "uint2", true},
    {DType::kInt2, "int2", true},
    {DType::kFloat6E2M3, "float6_e2m3fn", true},
    {DType::kFloat6E3M2, "float6_e3m2fn", true},
};

inline DType dtype_from_numpy(const std::string& name) {
  for (const NumpyName& entry : kNumpyNames)
    if (name == entry.name) return entry.dtype;
  throw Error(ErrorCode::kInvalidArgument, "numpy type " + name + " has no ONNX type");
}

inline py::object numpy_dtype(DType dtype) {
  for (const NumpyName& entry : kNumpyNames) {
    if (entry.dtype != dtype) continue;
    if (!entry.extended) return py::module_::import("numpy").attr("dtype")(entry.name);
    return py::module_::import("numpy").attr("dtype")(py::module_::import("ml_dtypes").attr(entry.name));
  }
  throw Error(ErrorCode::kUnsupported, std::string(to_string(dtype)) + " has no numpy type");
}

/// The memory of a contiguous numpy array.
class ArrayBytes {
 public:
  explicit ArrayBytes(const py::object& array) {
    if (PyObject_GetBuffer(array.ptr(), &buffer_, PyBUF_SIMPLE) == 0) return;
    PyErr_Clear();  // types that Python's buffers do not know
    if (PyObject_GetBuffer(array.attr("view")("uint8").ptr(), &buffer_, PyBUF_SIMPLE) != 0)
      throw py::error_already_set();
  }
  ~ArrayBytes() { PyBuffer_Release(&buffer_); }
  ArrayBytes(const ArrayBytes&) = delete;
  ArrayBytes& operator=(const ArrayBytes&) = delete;
  const void* data() const { return buffer_.buf; }
  size_t size() const { return static_cast<size_t>(buffer_.len); }

 private:
  Py_buffer buffer_ = {};
};

inline Tensor tensor_from_python(const py::handle& object) {
  const py::module_ numpy = py::module_::import("numpy");
  const py::object array = numpy.attr("asarray")(object);
  Shape shape;
  for (const py::handle& dim : array.attr("shape")) shape.push_back(dim.cast<int64_t>());
  const std::string kind = array.attr("dtype").attr("kind").cast<std::string>();
  if (kind == "U" || kind == "O" || kind == "S") {
    Tensor tensor(DType::kString, shape);
    auto& strings = tensor.mutable_strings();
    size_t i = 0;
    for (const py::handle& text : array.attr("ravel")().attr("tolist")()) {
      if (!py::isinstance<py::str>(text) && !py::isinstance<py::bytes>(text))
        throw Error(ErrorCode::kInvalidArgument, "an array of objects must hold strings");
      strings[i++] = text.cast<std::string>();
    }
    return tensor;
  }
  const DType dtype = dtype_from_numpy(array.attr("dtype").attr("name").cast<std::string>());
  const ArrayBytes rows(numpy.attr("ascontiguousarray")(array));
  const size_t bytes = rows.size();
  TESSERA_INVARIANT(static_cast<int64_t>(bytes) == element_count(shape) * element_bytes(dtype),
                    "numpy's byte count differs");
  constexpr size_t kAlignment = 64;  // as compiled code reads it
  const std::shared_ptr<std::byte> copy(
      static_cast<std::byte*>(::operator new(std::max<size_t>(bytes, 1), std::align_val_t{kAlignment})),
      [](std::byte* data) { ::operator delete(data, std::align_val_t{kAlignment}); });
  if (bytes != 0) std::memcpy(copy.get(), rows.data(), bytes);
  const int64_t bits = packed_bits(dtype);
  for (size_t i = 0; bits > 0 && bits < 8 && i < bytes; ++i) {  // numpy leaves the upper bits open
    const int sign = 1 << (bits - 1), value = std::to_integer<int>(copy.get()[i]) & (2 * sign - 1);
    copy.get()[i] = static_cast<std::byte>(is_signed_integer(dtype) ? (value ^ sign) - sign : value);
  }
  return Tensor::view(dtype, shape, copy, copy.get());
}

inline py::object tensor_to_python(const Tensor& tensor) {
  const py::module_ numpy = py::module_::import("numpy");
  const py::tuple shape = py::cast(tensor.shape());
  if (tensor.dtype() == DType::kString) {
    py::list items;
    for (const std::string& text : tensor.strings())
      items.append(py::reinterpret_steal<py::object>(
          PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "surrogateescape")));
    const py::object array = numpy.attr("empty")(py::make_tuple(items.size()), "object");
    array[py::slice(py::none(), py::none(), py::none())] = items;
    return array.attr("reshape")(shape);
  }
  const py::bytearray raw(reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
  return numpy.attr("frombuffer")(raw, numpy_dtype(tensor.dtype())).attr("reshape")(shape);
}

inline Value value_from_python(const py::handle& object) {
  if (object.is_none()) return {};
  if (py::isinstance<py::list>(object)) {
    std::vector<Value> elements;
    for (const py::handle& item : object) elements.push_back(value_from_python(item));
    return Value::make_sequence(std::move(elements));
  }
  return tensor_from_python(object);
}

inline py::object value_to_python(const Value& value) {
  if (value.kind == Value::Kind::kNone) return py::none();
  if (value.kind == Value::Kind::kTensor) return tensor_to_python(value.tensor);
  py::list items;
  for (const Value& item : value.sequence) items.append(value_to_python(item));
  return items;
}

}  // namespace tessera::ops
