// SPDX-License-Identifier: Apache-2.0
// What tessera.tile asks of the compiler: a machine's numbers, constants of second operations, and kernels as
// artifacts.
#include "tessera/bindings/python_tile.h"

#include <pybind11/stl.h>

#include <optional>

#include "base/error.h"
#include "compiler/tile/link.h"
#include "isa/second_operation.h"

namespace py = pybind11;

namespace tessera {

namespace {

program::DType dtype_of(const std::string& name) {
  for (const program::DType dtype : {program::DType::kInt8, program::DType::kUint8, program::DType::kInt32})
    if (program::dtype_name(dtype) == name) return dtype;
  throw Error(ErrorCode::kInvalidArgument, "a tensor of a kernel is int8, uint8 or int32, not " + name);
}

/// Rows (name, dtype, shape, padded, fill, offset, order).
std::vector<tile::Argument> arguments_of(const py::list& rows) {
  std::vector<tile::Argument> arguments;
  for (const py::handle& row : rows) {
    const auto values = row.cast<py::tuple>();
    tile::Argument argument;
    argument.name = values[0].cast<std::string>();
    argument.dtype = dtype_of(values[1].cast<std::string>());
    argument.shape = values[2].cast<std::vector<int64_t>>();
    argument.padded = values[3].cast<int64_t>();
    argument.fill = values[4].cast<uint8_t>();
    argument.offset = values[5].cast<uint64_t>();
    argument.order = values[6].cast<std::vector<int64_t>>();
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

/// Rows (where, what).
std::vector<tile::Line> lines_of(const py::list& rows) {
  std::vector<tile::Line> lines;
  for (const py::handle& row : rows) {
    auto [where, what] = row.cast<std::pair<std::string, std::string>>();
    lines.push_back({std::move(where), std::move(what)});
  }
  return lines;
}

/// Rows (number of the line, assembly).
std::vector<tile::Statement> statements_of(const py::list& rows) {
  std::vector<tile::Statement> statements;
  for (const py::handle& row : rows) {
    auto [line, assembly] = row.cast<std::pair<size_t, std::string>>();
    statements.push_back({line, std::move(assembly)});
  }
  return statements;
}

py::bytes bytes_of(const std::vector<uint8_t>& bytes) {
  return py::bytes(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

/// The 32 bytes that carry a second operation's constants; None where 48 bits do not hold them.
py::object second_constants(const std::string& operation, const std::map<std::string, double>& numbers,
                            std::pair<int64_t, int64_t> x, std::pair<int64_t, int64_t> y) {
  const auto number = [&](const char* name, double otherwise) {
    const auto found = numbers.find(name);
    return found == numbers.end() ? otherwise : found->second;
  };
  const auto integer = [&](const char* name) { return static_cast<int32_t>(number(name, 0)); };
  isa::FloatSecond second;
  second.operation = operation == "add"   ? isa::SecondOp::kAdd
                     : operation == "mul" ? isa::SecondOp::kMul
                                          : isa::SecondOp::kMax;
  second.rx = static_cast<float>(number("rx", 1)), second.ry = static_cast<float>(number("ry", 1));
  second.f = static_cast<float>(number("f", 0));
  second.zx = integer("zx"), second.zy = integer("zy"), second.zero = integer("zero");
  second.low = integer("low"), second.high = integer("high");
  second.fused = integer("fused") != 0, second.minimum = operation == "min";
  const auto constants = isa::fixed_second(second, {x.first, x.second}, {y.first, y.second});
  if (!constants) return py::none();
  const auto bytes = isa::encode_second(*constants);
  return bytes_of({bytes.begin(), bytes.end()});
}

}  // namespace

void bind_tile(py::module_& m) {
  m.def(
      "machine_toml", [](const std::string& config) { return isa::to_toml(isa::find_config(config)); },
      py::arg("config"));
  m.def("second_constants", &second_constants, py::arg("operation"), py::arg("numbers"), py::arg("x"), py::arg("y"));
  m.def(
      "link_kernel",
      [](const std::string& name, const std::string& config, const py::list& lines, const py::list& statements,
         const py::list& inputs, const py::list& outputs, const std::string& constants, uint64_t arena_bytes,
         const std::optional<std::vector<std::pair<size_t, size_t>>>& waits, bool unchecked) {
        tile::Kernel kernel{.name = name,
                            .config = isa::find_config(config),
                            .lines = lines_of(lines),
                            .statements = statements_of(statements),
                            .inputs = arguments_of(inputs),
                            .outputs = arguments_of(outputs),
                            .constants = {constants.begin(), constants.end()},
                            .arena_bytes = arena_bytes,
                            .by_hand = waits.has_value(),
                            .unchecked = unchecked,
                            .waits = {}};
        if (waits)
          for (const auto& [instruction, earlier] : *waits) kernel.waits.push_back({instruction, earlier});
        std::vector<uint8_t> bytes;
        std::vector<std::pair<size_t, size_t>> needless;
        {
          const py::gil_scoped_release release;
          const tile::Linked linked = tile::link(kernel);
          bytes = program::serialize(linked.artifact);
          for (const tile::Wait& wait : linked.needless) needless.emplace_back(wait.instruction, wait.earlier);
        }
        return std::pair(bytes_of(bytes), needless);
      },
      py::arg("name"), py::arg("config"), py::arg("lines"), py::arg("statements"), py::arg("inputs"),
      py::arg("outputs"), py::arg("constants"), py::arg("arena_bytes"), py::arg("waits") = py::none(),
      py::arg("unchecked") = false);
}

}  // namespace tessera
