// SPDX-License-Identifier: Apache-2.0
// The Python module _tessera_nn: imports ONNX models, runs the nn passes and the reference interpreter, prints IR.
// Arrays cross as bytes with numpy dtype names through Python calls, which works with any numpy. Errors become
// TesseraError with attribute `code`.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>

#include "mlir/IR/AsmState.h"
#include "mlir/Pass/PassManager.h"

#include "compiler/nn/interpreter.h"
#include "compiler/nn/passes/passes.h"
#include "compiler/onnx/import.h"

namespace py = pybind11;

namespace tessera {
namespace {

using ops::DType;

struct NumpyName {
  DType dtype;
  const char* name;
  bool extended;  // a type of ml_dtypes
};
constexpr NumpyName kNumpyNames[] = {
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

/// Names and strings of a model need not be UTF-8; what is not is replaced.
py::str to_str(const std::string& text) {
  return py::reinterpret_steal<py::str>(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

ops::Tensor tensor_from_python(py::handle object) {
  py::object array = py::module_::import("numpy").attr("asarray")(object);
  ops::Shape shape = array.attr("shape").cast<ops::Shape>();
  std::string kind = array.attr("dtype").attr("kind").cast<std::string>();
  if (kind == "U" || kind == "O" || kind == "S") {
    ops::Tensor tensor(DType::kString, shape);
    size_t i = 0;
    auto& strings = tensor.mutable_strings();
    for (py::handle text : array.attr("ravel")().attr("tolist")()) strings.at(i++) = text.cast<std::string>();
    return tensor;
  }
  std::string name = array.attr("dtype").attr("name").cast<std::string>();
  for (const NumpyName& entry : kNumpyNames) {
    if (name != entry.name) continue;
    ops::Tensor tensor(entry.dtype, shape);
    std::string bytes = array.attr("tobytes")().cast<std::string>();
    if (!bytes.empty()) std::memcpy(tensor.mutable_data(), bytes.data(), bytes.size());
    const int64_t bits = ops::packed_bits(entry.dtype);
    for (size_t i = 0; bits < 8 && i < bytes.size(); ++i) {  // numpy leaves the upper bits of a byte undefined
      uint8_t& byte = tensor.as_mutable<uint8_t>()[i];
      const int sign = 1 << (bits - 1), value = byte & (2 * sign - 1);
      byte = static_cast<uint8_t>(ops::is_signed_integer(entry.dtype) ? (value ^ sign) - sign : value);
    }
    return tensor;
  }
  throw Error(ErrorCode::kInvalidArgument, "numpy type " + name + " has no ONNX type");
}

py::object tensor_to_python(const ops::Tensor& tensor) {
  py::module_ numpy = py::module_::import("numpy");
  py::tuple shape = py::cast(tensor.shape());
  if (tensor.dtype() == DType::kString) {
    py::object array = numpy.attr("empty")(py::make_tuple(tensor.size()), "object");
    for (int64_t i = 0; i < tensor.size(); ++i) array[py::int_(i)] = to_str(tensor.strings()[static_cast<size_t>(i)]);
    return array.attr("reshape")(shape);
  }
  for (const NumpyName& entry : kNumpyNames) {
    if (entry.dtype != tensor.dtype()) continue;
    py::object type =
        entry.extended ? py::module_::import("ml_dtypes").attr(entry.name) : py::object(py::str(entry.name));
    py::bytearray raw(reinterpret_cast<const char*>(tensor.data()), static_cast<size_t>(tensor.bytes()));
    return numpy.attr("frombuffer")(raw, numpy.attr("dtype")(type)).attr("reshape")(shape);
  }
  throw Error(ErrorCode::kUnsupported, std::string(ops::to_string(tensor.dtype())) + " has no numpy type");
}

ops::Value value_from_python(py::handle object) {
  if (object.is_none()) return {};
  if (!py::isinstance<py::list>(object)) return tensor_from_python(object);
  std::vector<ops::Value> elements;
  for (py::handle item : object) elements.push_back(value_from_python(item));
  return ops::Value::make_sequence(std::move(elements));
}

py::object value_to_python(const ops::Value& value) {
  if (value.kind == ops::Value::Kind::kNone) return py::none();
  if (value.kind == ops::Value::Kind::kTensor) return tensor_to_python(value.tensor);
  py::list items;
  for (const ops::Value& item : value.sequence) items.append(value_to_python(item));
  return items;
}

/// A model in memory, as the passes see it.
class Model {
 public:
  Model(const py::object& source, const std::map<std::string, std::vector<int64_t>>& shapes,
        const std::string& directory) {
    context_ = std::make_unique<mlir::MLIRContext>(mlir::MLIRContext::Threading::DISABLED);
    onnx::ImportOptions options;
    options.shapes = shapes;
    options.directory = directory;
    if (py::isinstance<py::bytes>(source)) {
      module_ = onnx::import_onnx_bytes(*context_, source.cast<std::string>(), options);
    } else {
      module_ = onnx::import_onnx_file(*context_, py::str(source).cast<std::string>(), options);
    }
  }

  /// Runs the nn pipeline, or the passes of a textual pipeline. Diagnostics of a failure become the error's message.
  void optimise(bool qdq, const std::string& pipeline) {
    mlir::PassManager manager(context_.get());
    if (pipeline.empty()) {
      nn::PipelineOptions options;
      options.fold_qdq = qdq;
      nn::build_nn_pipeline(manager, options);
    } else {
      nn::register_nn_passes();
      if (mlir::failed(mlir::parsePassPipeline(pipeline, manager)))
        throw Error(ErrorCode::kInvalidArgument, "no pipeline: " + pipeline);
    }
    std::string messages;
    mlir::ScopedDiagnosticHandler handler(context_.get(), [&](mlir::Diagnostic& diagnostic) {
      if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
        messages += (messages.empty() ? "" : "; ") + diagnostic.str();
      return mlir::success();
    });
    if (mlir::failed(manager.run(*module_))) throw Error(ErrorCode::kInvalidModel, messages);
  }

  py::str text() {
    std::string result;
    llvm::raw_string_ostream stream(result);
    mlir::OpPrintingFlags flags;
    flags.elideLargeElementsAttrs(32).elideLargeResourceString(64);
    module_->print(stream, flags);
    return to_str(result);
  }

  py::list node_list() {
    py::list list;
    main().walk([&](nn::NodeOp op) {
      py::list outputs;
      for (mlir::Value result : op->getResults()) {
        auto info = nn::to_type_info(result.getType());
        outputs.append(py::make_tuple(to_str(nn::value_name(result)), std::string(ops::to_string(info.dtype)),
                                      info.ranked ? py::object(py::cast(info.shape)) : py::object(py::none())));
      }
      list.append(py::make_tuple(to_str(nn::node_name(op)), to_str(op.getDomain().str()), to_str(op.getOpType().str()),
                                 outputs));
    });
    return list;
  }

  /// Outputs by name; with `observe` every named intermediate value as well.
  py::dict run(const py::dict& feeds, bool observe) {
    mlir::func::FuncOp func = main();
    std::vector<ops::Value> inputs;
    for (mlir::BlockArgument argument : func.getArguments()) {
      std::string name = nn::value_name(argument);
      if (!feeds.contains(to_str(name))) throw Error(ErrorCode::kInvalidArgument, "input '" + name + "' is missing");
      inputs.push_back(value_from_python(feeds[to_str(name)]));
    }
    if (feeds.size() > inputs.size())
      throw Error(ErrorCode::kInvalidArgument, "a value was given for an input that the model does not have");
    py::dict values;
    nn::Observer observer;
    if (observe) {
      observer = [&](nn::NodeOp op, const std::vector<ops::Value>& outputs) {
        for (auto [result, value] : llvm::zip(op->getResults(), outputs)) {
          std::string name = nn::value_name(result);
          if (!name.empty()) values[to_str(name)] = value_to_python(value);
        }
      };
    }
    std::vector<ops::Value> outputs = nn::interpret(func, inputs, observer);
    for (size_t i = 0; i < outputs.size(); ++i) {
      auto name = func.getResultAttrOfType<mlir::StringAttr>(static_cast<unsigned>(i), nn::kNameAttr);
      values[to_str(name.getValue().str())] = value_to_python(outputs[i]);
    }
    return values;
  }

  py::list inputs() { return describe(true); }
  py::list outputs() { return describe(false); }

 private:
  mlir::func::FuncOp main() { return module_->lookupSymbol<mlir::func::FuncOp>("main"); }

  py::list describe(bool arguments) {
    mlir::func::FuncOp func = main();
    py::list list;
    auto types = arguments ? func.getArgumentTypes() : func.getResultTypes();
    for (unsigned i = 0; i < types.size(); ++i) {
      auto name = arguments ? func.getArgAttrOfType<mlir::StringAttr>(i, nn::kNameAttr)
                            : func.getResultAttrOfType<mlir::StringAttr>(i, nn::kNameAttr);
      ops::TypeInfo info = nn::to_type_info(types[i]);
      list.append(py::make_tuple(to_str(name.getValue().str()), std::string(ops::to_string(info.dtype)),
                                 info.ranked ? py::object(py::cast(info.shape)) : py::object(py::none())));
    }
    return list;
  }

  std::unique_ptr<mlir::MLIRContext> context_;
  mlir::OwningOpRef<mlir::ModuleOp> module_;
};

}  // namespace
}  // namespace tessera

PYBIND11_MODULE(_tessera_nn, m) {
  using tessera::Model;
  static PyObject* error_class = PyErr_NewException("_tessera_nn.TesseraError", nullptr, nullptr);
  m.attr("TesseraError") = py::handle(error_class);
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const tessera::Error& error) {
      py::object exception = py::handle(error_class)(tessera::to_str(error.what()));
      exception.attr("code") = std::string(tessera::to_string(error.code()));
      PyErr_SetObject(error_class, exception.ptr());
    }
  });
  py::class_<Model>(m, "Model")
      .def(py::init<const py::object&, const std::map<std::string, std::vector<int64_t>>&, const std::string&>(),
           py::arg("source"), py::arg("shapes") = std::map<std::string, std::vector<int64_t>>{},
           py::arg("directory") = "")
      .def("optimise", &Model::optimise, py::arg("qdq") = true, py::arg("pipeline") = "")
      .def("run", &Model::run, py::arg("feeds"), py::arg("observe") = false)
      .def("text", &Model::text)
      .def("nodes", &Model::node_list)
      .def_property_readonly("inputs", &Model::inputs)
      .def_property_readonly("outputs", &Model::outputs);
  m.def(
      "run_reference",
      [](const py::object& source, const py::dict& feeds, const std::map<std::string, std::vector<int64_t>>& shapes,
         bool qdq, bool optimise, bool observe) {
        Model model(source, shapes, "");
        if (optimise) model.optimise(qdq, "");
        return model.run(feeds, observe);
      },
      py::arg("source"), py::arg("feeds"), py::arg("shapes") = std::map<std::string, std::vector<int64_t>>{},
      py::arg("qdq") = true, py::arg("optimise") = true, py::arg("observe") = false);
}
