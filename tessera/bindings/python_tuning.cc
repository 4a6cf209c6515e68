// SPDX-License-Identifier: Apache-2.0
// The class Tuning of the Python module _tessera.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "tessera/bindings/python_tuning.h"
#include "tessera/quantised_for.h"
#include "tessera/tuning/tuning.h"

namespace py = pybind11;

namespace tessera {

void bind_tuning(py::module_& m) {
  using released = py::call_guard<py::gil_scoped_release>;
  m.def("compiler_version", &compiler_version);
  m.def(
      "machine_of",
      [](const py::bytes& model) {
        SessionOptions options;
        take_quantised_for(model.cast<std::string>(), options);
        return options.config;
      },
      py::arg("model"));
  py::class_<Tuning>(m, "Tuning")
      .def(py::init([](const py::object& model, const std::string& config,
                       const std::map<std::string, ops::Shape>& shapes,
                       const std::map<std::string, std::string>& compile_options,
                       const std::map<std::string, std::string>& divisions) {
             SessionOptions options;
             options.config = config;
             options.import.shapes = shapes;
             options.compile.schedules = divisions;
             for (const auto& [name, value] : compile_options) compiler::set_option(options.compile, name, value);
             const bool bytes = py::isinstance<py::bytes>(model);
             const auto text = bytes ? model.cast<std::string>()
                                     : py::module_::import("os").attr("fspath")(model).cast<std::string>();
             py::gil_scoped_release release;
             return std::make_unique<Tuning>(
                 bytes ? compiler::ModelSource::from_bytes(text) : compiler::ModelSource::from_file(text), options);
           }),
           py::arg("model"), py::arg("config"), py::arg("shapes"), py::arg("compile_options"),
           py::arg("divisions") = std::map<std::string, std::string>())
      .def_property_readonly("model_key", &Tuning::model_key)
      .def_property_readonly("machine_key", &Tuning::machine_key)
      .def("pieces",
           [](const Tuning& t) {
             py::list rows;
             for (const Tuning::Piece& piece : t.pieces()) {
               py::dict row;
               row["graph"] = piece.graph;
               row["first"] = piece.first;
               row["count"] = piece.count;
               row["layers"] = piece.layers;
               row["links"] = piece.links;
               row["kind"] = piece.kind;
               row["key"] = piece.key;
               row["size"] = py::int_(py::str(piece.size));
               rows.append(row);
             }
             return rows;
           })
      .def_property_readonly("cores", &Tuning::cores)
      .def("divisions", &Tuning::divisions)
      .def("chip_layers", &Tuning::chip_layers)
      .def("ways", &Tuning::ways, released())
      .def("chosen", &Tuning::chosen, py::arg("kept") = std::map<std::string, std::string>(), released())
      .def("candidates", &Tuning::candidates, released())
      .def("sample", &Tuning::sample, released())
      .def("mutate", &Tuning::mutate, released())
      .def("cross", &Tuning::cross, released())
      .def("obstacle", &Tuning::obstacle, released())
      .def("named", &Tuning::named, released())
      .def("renamed", &Tuning::renamed, released())
      .def("bounds", &Tuning::bounds, released())
      .def("close",
           [](Tuning& t, size_t piece, const std::string& judge, int64_t known, double share, double seconds) {
             const std::optional<Tuning::Closing> closing = [&] {
               py::gil_scoped_release release;
               return t.close(piece, judge, known, share, seconds);
             }();
             if (!closing) return std::optional<py::dict>();
             std::optional<py::dict> row(std::in_place);
             (*row)["done"] = closing->done;
             (*row)["broken"] = closing->broken;
             (*row)["tiles"] = closing->tiles;
             (*row)["schedules"] = closing->schedules;
             (*row)["programs"] = closing->programs;
             (*row)["cycles"] = closing->cycles;
             (*row)["cut"] = closing->cut;
             (*row)["schedule"] = closing->schedule;
             return row;
           })
      .def("alone", &Tuning::alone, released())
      .def("together", &Tuning::together, released())
      .def("whole", &Tuning::whole, released());
}

}  // namespace tessera
