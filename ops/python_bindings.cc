// SPDX-License-Identifier: Apache-2.0
// The Python module _tessera_ops: evaluates and infers one operator application on numpy arrays, so that tests can put
// every operator beside another implementation. Errors become _tessera_ops.TesseraError with attribute `code`.
#include <pybind11/functional.h>

#include "ops/expansion.h"
#include "ops/python_tensor.h"

namespace py = pybind11;

namespace tessera::ops {

namespace {

/// A body made of two Python callables: run(list) -> list and infer(list of (dtype, shape)) -> the same.
struct PythonSubgraph : Subgraph {
  size_t inputs, outputs;
  py::function run_function;
  PythonSubgraph(size_t inputs, size_t outputs, py::function run)
      : inputs(inputs), outputs(outputs), run_function(std::move(run)) {}
  size_t input_count() const override { return inputs; }
  size_t output_count() const override { return outputs; }
  std::vector<TypeInfo> input_types() const override { return std::vector<TypeInfo>(inputs); }
  std::vector<Value> run(const std::vector<Value>& values) const override {
    py::list arguments;
    for (const Value& value : values) arguments.append(value_to_python(value));
    std::vector<Value> results;
    for (const py::handle& result : run_function(arguments)) results.push_back(value_from_python(result));
    return results;
  }
  std::vector<TypeInfo> infer(const std::vector<TypeInfo>&) const override {
    return std::vector<TypeInfo>(outputs);  // a Python function says nothing about types
  }
};

Attribute attribute_from_python(const std::string& name, const py::handle& object) {
  if (py::isinstance<py::bool_>(object)) return static_cast<int64_t>(object.cast<bool>());
  if (py::isinstance<py::int_>(object)) return object.cast<int64_t>();
  if (py::isinstance<py::float_>(object)) return object.cast<float>();
  if (py::isinstance<py::str>(object) || py::isinstance<py::bytes>(object)) return object.cast<std::string>();
  if (py::isinstance<PythonSubgraph>(object))
    return std::shared_ptr<const Subgraph>(object.cast<std::shared_ptr<PythonSubgraph>>());
  if (py::isinstance<py::list>(object) || py::isinstance<py::tuple>(object)) {
    const py::sequence items = py::reinterpret_borrow<py::sequence>(object);
    bool floats = false, strings = false;
    for (const py::handle& item : items) {
      floats = floats || py::isinstance<py::float_>(item);
      strings = strings || py::isinstance<py::str>(item) || py::isinstance<py::bytes>(item);
    }
    if (strings) return items.cast<std::vector<std::string>>();
    if (floats) return items.cast<std::vector<float>>();
    return items.cast<std::vector<int64_t>>();
  }
  if (py::hasattr(object, "dtype")) return tensor_from_python(object);
  throw Error(ErrorCode::kInvalidArgument, "attribute '" + name + "' has a type that ONNX has not");
}

Node make_node(const std::string& op_type, const std::string& domain, int version, const py::dict& attributes,
               size_t output_count) {
  Node node;
  node.domain = domain;
  node.op_type = op_type;
  node.version = version;
  node.name = "n";
  node.output_count = output_count;
  for (const auto& [key, value] : attributes) {
    if (value.is_none()) continue;
    const std::string name = py::str(key);
    node.attributes.emplace(name, attribute_from_python(name, value));
  }
  return node;
}

py::list run_node(const std::string& op_type, const std::string& domain, int version, const py::dict& attributes,
                  const py::list& inputs, size_t output_count) {
  const Node node = make_node(op_type, domain, version, attributes, output_count);
  std::vector<Value> values;
  for (const py::handle& input : inputs) values.push_back(value_from_python(input));
  py::list results;
  for (const Value& value : evaluate(node, values)) results.append(value_to_python(value));
  return results;
}

/// Evaluates a node by its expansion for operands of which the contents of `known` are known; None where it has none.
py::object run_expansion(const std::string& op_type, const std::string& domain, int version, const py::dict& attributes,
                         const py::list& inputs, size_t output_count, const std::vector<size_t>& known) {
  const Node node = make_node(op_type, domain, version, attributes, output_count);
  std::vector<Value> values;
  std::vector<TypeInfo> types;
  for (const py::handle& input : inputs) {
    values.push_back(value_from_python(input));
    types.push_back(kernel::type_of(values.back()));
    if (std::find(known.begin(), known.end(), types.size() - 1) == known.end()) types.back().constant.reset();
  }
  const OperatorDef& def = lookup(node, types.size());
  const std::optional<Expansion> expansion = def.expand ? def.expand(node, types) : std::nullopt;
  if (!expansion) return py::none();
  py::list results;
  for (const Value& value : evaluate_expansion(*expansion, values)) results.append(value_to_python(value));
  return results;
}

/// An input is None (absent), an array or a list of arrays (known type and shape; content too when `constants` is set),
/// or a tuple (dtype name, shape or None) with -1 for unknown dimensions.
TypeInfo type_from_python(const py::handle& object, bool constants) {
  if (object.is_none()) return TypeInfo::absent();
  if (py::isinstance<py::tuple>(object)) {
    const py::tuple pair = py::reinterpret_borrow<py::tuple>(object);
    const std::string name = py::str(pair[0]);
    const DType dtype = name == "string" ? DType::kString : dtype_from_numpy(name);
    if (pair[1].is_none()) return TypeInfo::unranked(dtype);
    return TypeInfo::tensor(dtype, pair[1].cast<std::vector<int64_t>>());
  }
  if (py::isinstance<py::list>(object)) {
    const Value value = value_from_python(object);
    TypeInfo type = TypeInfo::unranked(value.sequence_dtype);
    type.kind = TypeInfo::Kind::kSequence;
    return type;
  }
  const Tensor tensor = tensor_from_python(object);
  return constants ? TypeInfo::of(tensor) : TypeInfo::tensor(tensor.dtype(), tensor.shape());
}

py::list infer_node(const std::string& op_type, const std::string& domain, int version, const py::dict& attributes,
                    const py::list& inputs, size_t output_count, bool constants, bool fold) {
  const Node node = make_node(op_type, domain, version, attributes, output_count);
  std::vector<TypeInfo> types;
  for (const py::handle& input : inputs) types.push_back(type_from_python(input, constants));
  py::list results;
  for (const TypeInfo& type : infer(node, types, fold)) {
    py::object shape = py::none();
    if (type.ranked) shape = py::cast(type.shape);
    py::object constant = py::none();
    if (type.constant) constant = tensor_to_python(*type.constant);
    py::str kind(type.kind == TypeInfo::Kind::kTensor     ? "tensor"
                 : type.kind == TypeInfo::Kind::kSequence ? "sequence"
                                                          : "optional");
    results.append(py::make_tuple(py::str(std::string(to_string(type.dtype))), shape, constant, kind));
  }
  return results;
}

}  // namespace

PYBIND11_MODULE(_tessera_ops, module) {
  module.doc() = "Evaluation and inference of single ONNX operators by Tessera's operator library.";
  // The exception type lives as long as the interpreter.
  static py::object* error_type = new py::object(py::exception<Error>(module, "TesseraError"));
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      py::object instance = (*error_type)(error.what());
      instance.attr("code") = std::string(to_string(error.code()));
      PyErr_SetObject(error_type->ptr(), instance.ptr());
    }
  });
  py::class_<PythonSubgraph, std::shared_ptr<PythonSubgraph>>(module, "Subgraph")
      .def(py::init<size_t, size_t, py::function>(), py::arg("inputs"), py::arg("outputs"), py::arg("run"),
           "A subgraph attribute: run(list of values) -> list of values.");
  module.def("run_node", &run_node, py::arg("op_type"), py::arg("domain"), py::arg("version"), py::arg("attributes"),
             py::arg("inputs"), py::arg("output_count") = 1,
             "Evaluates one node. An input is an array, None (absent) or a list of arrays (a sequence).");
  module.def("run_expansion", &run_expansion, py::arg("op_type"), py::arg("domain"), py::arg("version"),
             py::arg("attributes"), py::arg("inputs"), py::arg("output_count"), py::arg("known"),
             "Evaluates one node by its expansion into other operators, None if it has none. The contents of the "
             "inputs in `known`\nare known to the expansion.");
  module.def("infer_node", &infer_node, py::arg("op_type"), py::arg("domain"), py::arg("version"),
             py::arg("attributes"), py::arg("inputs"), py::arg("output_count") = 1, py::arg("constants") = false,
             py::arg("fold") = false,
             "Infers results as (dtype, shape or None, constant or None, kind). An input is as in run_node, or a tuple "
             "(dtype, shape\n"
             "or None). With constants=True the contents of arrays are known to inference; fold=True evaluates small "
             "constants.");
  module.def("operators", [] { return registry().names(); }, "Every registered operator as 'domain::Name'.");
  module.def(
      "known",
      [](const std::string& op_type, const std::string& domain, int version) {
        return registry().find(domain, op_type, version) != nullptr;
      },
      py::arg("op_type"), py::arg("domain") = "", py::arg("version") = 24,
      "Whether the operator is registered for an opset.");
}

}  // namespace tessera::ops
