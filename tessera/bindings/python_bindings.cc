// SPDX-License-Identifier: Apache-2.0
// The Python module _tessera: Session over NumPy arrays. The package `tessera` (tessera/python) wraps it in the shape
// of onnxruntime.InferenceSession.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>

#include "base/error.h"
#include "compiler/npu/planning/replay_memo.h"
#include "driver/register_machine.h"
#include "driver/registry.h"
#include "driver/remote/worker.h"
#include "driver/shared_chip.h"
#include "isa/config.h"
#include "isa/dram.h"
#include "ops/python_tensor.h"
#include "tessera/bindings/python_tile.h"
#include "tessera/bindings/python_tuning.h"
#include "tessera/command/command.h"
#include "tessera/message.h"
#include "tessera/report/description.h"
#include "tessera/report/page.h"
#include "tessera/session.h"
#include "tessera/tuning/judges.h"
#include "tessera/tuning/search_behind.h"
#include "tessera/tuning/shape_ranges.h"

namespace py = pybind11;
using namespace tessera;

namespace {

/// A name of the model, whose bytes need not be UTF-8: as Python has the names of files, so that it can be given back.
py::object to_python(const std::string& name) {
  return py::reinterpret_steal<py::object>(
      PyUnicode_DecodeUTF8(name.data(), static_cast<Py_ssize_t>(name.size()), "surrogateescape"));
}

std::string name_of(const py::handle& name) {
  if (!py::isinstance<py::str>(name)) throw py::type_error("names of inputs and outputs are strings");
  const auto bytes =
      py::reinterpret_steal<py::bytes>(PyUnicode_AsEncodedString(name.ptr(), "utf-8", "surrogateescape"));
  if (!bytes) throw py::error_already_set();
  return bytes;
}

py::dict to_python(const Port& port) {
  py::dict out;
  out["name"] = to_python(port.name);
  out["dtype"] = std::string(ops::to_string(port.dtype));
  out["kind"] = port.kind == program::ValueKind::kSequence   ? "sequence"
                : port.kind == program::ValueKind::kOptional ? "optional"
                                                             : "tensor";
  if (!port.keys.empty()) {
    py::list keys;
    for (const std::string& key : port.keys.strings) keys.append(to_python(key));
    for (const int64_t key : port.keys.ints) keys.append(key);
    out["keys"] = keys;
  }
  if (!port.ranked) {
    out["shape"] = py::none();
    return out;
  }
  py::list shape;
  for (size_t i = 0; i < port.shape.size(); ++i) {
    if (port.shape[i] >= 0)
      shape.append(port.shape[i]);
    else if (i < port.dim_names.size() && !port.dim_names[i].empty())
      shape.append(to_python(port.dim_names[i]));
    else
      shape.append(py::none());
  }
  out["shape"] = shape;
  return out;
}

py::list to_python(const std::vector<Port>& ports) {
  py::list out;
  for (const Port& port : ports) out.append(to_python(port));
  return out;
}

/// A model whose front end runs once; what depends on a machine runs for each.
class PredictedModel {
 public:
  PredictedModel(const std::string& bytes, const std::map<std::string, ops::Shape>& shapes)
      : model_(compiler::Model::from_bytes(bytes, given(shapes))) {
    const auto batches = compiler::batches_of_one(model_.inputs());
    if (batches.empty()) return;
    compiler::ImportOptions import = given(shapes);
    import.shapes.insert(batches.begin(), batches.end());
    model_ = compiler::Model::from_bytes(bytes, import);
  }

  /// The description of what would run on the machine. Machine code of the CPU is not made: no cycle depends on it.
  std::string predict(const std::string& toml, const std::map<std::string, std::string>& options) {
    const std::lock_guard lock(mutex_);
    compiler::CompileOptions compile;
    for (const auto& [name, value] : options) compiler::set_option(compile, name, value);
    compile.cpu_codegen = false;
    compile.replays = replays_;
    compile.blank_weights = true;
    const isa::MachineConfig config = isa::parse_config(toml, "machine");
    return description_json(model_.compile(config, compile));
  }

  /// Which nodes would run where, and their products.
  compiler::Model::Placement placement(const std::string& config, const std::map<std::string, std::string>& options) {
    const std::lock_guard lock(mutex_);
    compiler::CompileOptions compile;
    for (const auto& [name, value] : options) compiler::set_option(compile, name, value);
    return model_.placement(isa::find_config(config), compile);
  }

  /// {"cycles", "bytes", "issued_macs"} that no program for the machine is below.
  std::map<std::string, int64_t> bound(const std::string& toml, const std::map<std::string, std::string>& options) {
    const std::lock_guard lock(mutex_);
    compiler::CompileOptions compile;
    for (const auto& [name, value] : options) compiler::set_option(compile, name, value);
    const npu::GraphBound least = model_.bound(isa::parse_config(toml, "machine"), compile);
    return {{"cycles", least.cycles}, {"bytes", least.bytes}, {"issued_macs", least.macs}};
  }

  /// How often the cost of some instructions was known from another machine, and how often they were replayed.
  std::pair<int64_t, int64_t> replays() const { return {replays_->found(), replays_->missed()}; }

 private:
  static compiler::ImportOptions given(const std::map<std::string, ops::Shape>& shapes) {
    compiler::ImportOptions import;
    import.shapes = shapes;
    return import;
  }
  compiler::Model model_;
  std::mutex mutex_;
  const std::shared_ptr<npu::ReplayMemo> replays_ = std::make_shared<npu::ReplayMemo>();
};

/// A function of Python as the observer of runs: called five times a second at most. What it raises is printed and goes
/// no further, because a simulator stands below it.
std::function<void(bool, uint64_t)> observer_of(const py::object& function) {
  if (function.is_none()) return {};
  const std::shared_ptr<py::object> held(new py::object(function), [](py::object* object) {
    const py::gil_scoped_acquire lock;
    delete object;
  });
  using Clock = std::chrono::steady_clock;
  return [held, next = Clock::now()](bool waiting, uint64_t instructions) mutable {
    const Clock::time_point now = Clock::now();
    if (now < next) return;
    next = now + std::chrono::milliseconds(200);
    const py::gil_scoped_acquire lock;
    try {
      (*held)(waiting, instructions);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable("progress of a session");
    }
  };
}

/// Contiguous arrays as external data that shares their memory and holds them.
std::shared_ptr<const onnx::ExternalData> external_data(const std::map<std::string, py::object>& arrays) {
  if (arrays.empty()) return nullptr;
  auto found = std::make_shared<onnx::ExternalData>();
  for (const auto& [location, array] : arrays) {
    const std::shared_ptr<ops::ArrayBytes> bytes(new ops::ArrayBytes(array), [](ops::ArrayBytes* held) {
      const py::gil_scoped_acquire lock;
      delete held;
    });
    (*found)[location] = {bytes, static_cast<const std::byte*>(bytes->data()), bytes->size()};
  }
  return found;
}

Bound to_bound(const py::object& value) {
  if (py::isinstance<DeviceTensor>(value)) return value.cast<DeviceTensor>();
  return ops::value_from_python(value);
}

py::object to_python(const Bound& bound) {
  if (const auto* tensor = std::get_if<DeviceTensor>(&bound)) return py::cast(*tensor);
  return ops::value_to_python(std::get<ops::Value>(bound));
}

}  // namespace

PYBIND11_MODULE(_tessera, m) {
  register_device_judges();
  static py::exception<Error> error(m, "Error", PyExc_RuntimeError);
  py::register_local_exception_translator([](std::exception_ptr p) {
    try {
      if (p) std::rethrow_exception(p);
    } catch (const Error& e) {
      py::object instance = py::reinterpret_borrow<py::object>(error)(py::str(one_line(e.what())));
      instance.attr("code") = std::string(to_string(e.code()));
      PyErr_SetObject(error.ptr(), instance.ptr());
    }
  });

  py::class_<DeviceTensor>(m, "DeviceTensor",
                           "A tensor in the memory of a session's device, which an IOBinding left there or "
                           "Session.to_device wrote. It lives as long as it is held, and may be bound to later runs.")
      .def_property_readonly(
          "shape", [](const DeviceTensor& t) { return py::tuple(py::cast(t.shape)); }, "A tuple of integers.")
      .def_property_readonly(
          "dtype", [](const DeviceTensor& t) { return std::string(ops::to_string(t.dtype)); },
          "The element type, for example \"int8\".")
      .def_property_readonly(
          "name", [](const DeviceTensor& t) { return t.name; }, "The model's input or output that it was made for.")
      .def(
          "copy_to_host",
          [](const DeviceTensor& t) {
            ops::Tensor tensor;
            {
              py::gil_scoped_release release;
              tensor = t.to_host();
            }
            return ops::value_to_python(ops::Value(std::move(tensor)));
          },
          "Its elements as an array of that shape and type.");

  py::class_<IoBinding>(m, "IoBinding")
      .def(py::init<Session&>(), py::keep_alive<1, 2>())
      .def("bind_input",
           [](IoBinding& b, const std::string& name, const py::object& value) { b.bind_input(name, to_bound(value)); })
      .def("bind_output", &IoBinding::bind_output)
      .def("clear_inputs", &IoBinding::clear_inputs)
      .def("clear_outputs", &IoBinding::clear_outputs)
      .def("run", &IoBinding::run, py::call_guard<py::gil_scoped_release>())
      .def("outputs",
           [](const IoBinding& b) {
             py::list out;
             for (const Bound& bound : b.outputs()) out.append(to_python(bound));
             return out;
           })
      .def("output_names", [](const IoBinding& b) {
        py::list out;
        for (const WantedOutput& output : b.wanted()) out.append(output.name);
        return out;
      });

  py::class_<driver::SharedChip, std::shared_ptr<driver::SharedChip>>(m, "SharedChip")
      .def(
          py::init([](const std::string& device, const std::string& config,
                      const std::map<std::string, std::string>& device_options) {
            driver::DeviceOptions options;
            options.backend = device_options;
            const py::gil_scoped_release release;
            return std::make_shared<driver::SharedChip>(driver::open_device(device, isa::find_config(config), options));
          }),
          py::arg("device"), py::arg("config"), py::arg("device_options"))
      .def("cores", [](const driver::SharedChip& chip) { return chip.config().cores; });
  const py::class_<driver::SharedChip::Attendance> attendance(m, "Attendance");

  py::class_<Session>(m, "Session")
      .def(py::init([](py::object model, const std::string& device, const std::string& config,
                       const std::map<std::string, ops::Shape>& shapes,
                       const std::map<std::string, std::string>& device_options, const std::string& schedules,
                       bool check_races, std::optional<uint64_t> poison, std::optional<uint64_t> base_address,
                       const std::map<std::string, std::string>& compile_options, bool profile,
                       const std::optional<std::string>& trusted_keys, const py::object& progress,
                       const std::map<std::string, py::object>& external, bool keep_state,
                       const std::vector<uint32_t>& cores, const std::shared_ptr<driver::SharedChip>& chip,
                       int priority) {
             SessionOptions options;
             options.cores = cores;
             options.chip = chip;
             options.priority = priority;
             options.keep_state = keep_state;
             options.import.external = external_data(external);
             options.progress = observer_of(progress);
             options.device = device;
             options.config = config;
             options.import.shapes = shapes;
             options.device_options = device_options;
             if (!schedules.empty()) options.compile.schedules = schedules_from(schedules);
             for (const auto& [name, value] : compile_options) compiler::set_option(options.compile, name, value);
             options.check_races = check_races;
             options.poison = poison;
             options.heap_base = base_address;
             options.profile = profile;
             options.trusted_keys = trusted_keys;
             if (py::isinstance<py::bytes>(model)) {
               const auto bytes = model.cast<std::string>();
               py::gil_scoped_release release;
               return std::make_unique<Session>(Session::from_bytes(bytes, std::move(options)));
             }
             const auto path = py::module_::import("os").attr("fspath")(model).cast<std::string>();
             py::gil_scoped_release release;
             return std::make_unique<Session>(path, std::move(options));
           }),
           py::arg("model"), py::arg("device"), py::arg("config"), py::arg("shapes"), py::arg("device_options"),
           py::arg("schedules"), py::arg("check_races"), py::arg("poison"), py::arg("base_address"),
           py::arg("compile_options"), py::arg("profile"), py::arg("trusted_keys"), py::arg("progress"),
           py::arg("external"), py::arg("keep_state"), py::arg("cores"), py::arg("chip"), py::arg("priority"))
      .def("inputs", [](const Session& s) { return to_python(s.inputs()); })
      .def("outputs", [](const Session& s) { return to_python(s.outputs()); })
      .def("overridable", [](const Session& s) { return to_python(s.overridable()); })
      .def("run",
           [](Session& s, const py::list& wanted, const py::dict& feeds) {
             std::vector<std::string> outputs;
             for (const py::handle& name : wanted) outputs.push_back(name_of(name));
             NamedValues values;
             for (const auto& [name, value] : feeds)
               values.emplace_back(name_of(name), ops::value_from_python(py::reinterpret_borrow<py::object>(value)));
             std::vector<ops::Value> results;
             {
               py::gil_scoped_release release;
               results = s.run(values, outputs);
             }
             py::list out;
             for (const ops::Value& result : results) out.append(ops::value_to_python(result));
             return out;
           })
      .def("pasts",
           [](const Session& s) {
             py::list out;
             for (const program::Past& past : s.pasts())
               out.append(py::make_tuple(s.inputs()[static_cast<size_t>(past.input)].name,
                                         s.outputs()[static_cast<size_t>(past.output)].name, past.axis));
             return out;
           })
      .def("to_device",
           [](const Session& s, const py::object& array) {
             const ops::Value value = ops::value_from_python(array);
             py::gil_scoped_release release;
             return s.to_device(value.tensor);
           })
      .def("attend", &Session::attend, py::call_guard<py::gil_scoped_release>())
      .def("prepare", &Session::prepare)
      .def("reset_state", &Session::reset_state, py::call_guard<py::gil_scoped_release>())
      .def("searching", &Session::searching)
      .def("finish_search", &Session::finish_search, py::call_guard<py::gil_scoped_release>())
      .def("stats_json", [](const Session& s) { return s.stats_json(); })
      .def("report_json", [](const Session& s) { return s.report_json(); })
      .def("report_html",
           [](const Session& s) {
             const std::string report = s.report_json();
             return page_html({{name_of_report(report, "the report"), report}});
           })
      .def("trace_json", [](const Session& s) { return s.trace_json(); })
      .def("info_json", [](Session& s) { return description_json(s.artifact()); })
      .def("schedules_json", [](Session& s) { return schedules_json(s.artifact()); })
      .def("save", [](Session& s, const std::string& path) { program::save(s.artifact(), path); });

  // Memory is given as (address of the machine, address in this process, bytes); whoever gives it keeps it.
  py::class_<driver::RegisterMachine>(m, "RegisterMachine", "The functional simulator behind the machine's registers.")
      .def(py::init([](const std::string& config, const std::vector<std::array<uint64_t, 3>>& memory) {
             std::vector<driver::SharedMemory> parts;
             for (const auto& [address, bytes, size] : memory)
               parts.push_back({address, reinterpret_cast<uint8_t*>(static_cast<uintptr_t>(bytes)), size});
             return driver::RegisterMachine(isa::find_config(config), parts);
           }),
           py::arg("config"), py::arg("memory"))
      .def("read", &driver::RegisterMachine::read, py::arg("offset"))
      .def("write", &driver::RegisterMachine::write, py::call_guard<py::gil_scoped_release>(), py::arg("offset"),
           py::arg("value"));

  m.def("end_searches", &SearchBehind::end_all, py::call_guard<py::gil_scoped_release>());

  py::class_<PredictedModel>(m, "PredictedModel")
      .def(py::init([](const std::string& bytes, const std::map<std::string, ops::Shape>& shapes) {
             py::gil_scoped_release release;
             return std::make_unique<PredictedModel>(bytes, shapes);
           }),
           py::arg("model"), py::arg("shapes"))
      .def(
          "predict",
          [](PredictedModel& self, const std::string& toml, const std::map<std::string, std::string>& options) {
            py::gil_scoped_release release;
            return self.predict(toml, options);
          },
          py::arg("config"), py::arg("options"))
      .def(
          "bound",
          [](PredictedModel& self, const std::string& toml, const std::map<std::string, std::string>& options) {
            py::gil_scoped_release release;
            return self.bound(toml, options);
          },
          py::arg("config"), py::arg("options"))
      .def(
          "placement",
          [](PredictedModel& self, const std::string& config, const std::map<std::string, std::string>& options) {
            compiler::Model::Placement found;
            {
              const py::gil_scoped_release release;
              found = self.placement(config, options);
            }
            const auto names = [](const std::set<std::string>& from) {
              py::set to;
              for (const std::string& name : from) to.add(to_python(name));
              return to;
            };
            py::dict out;
            out["npu"] = names(found.npu), out["cpu"] = names(found.cpu);
            out["macs_npu"] = found.macs_npu, out["macs_cpu"] = found.macs_cpu;
            return out;
          },
          py::arg("config"), py::arg("options"))
      .def_property_readonly("replays", &PredictedModel::replays);
  m.def(
      "model_bytes",
      [](const std::string& path) {
        std::string bytes;
        {
          const py::gil_scoped_release release;
          bytes = compiler::self_contained(compiler::ModelSource::from_file(path));
        }
        return py::bytes(bytes);
      },
      py::arg("path"));
  m.def(
      "external_locations",
      [](const std::string& bytes) {
        const py::gil_scoped_release release;
        return compiler::external_locations(compiler::ModelSource::from_bytes(bytes));
      },
      py::arg("bytes"));
  m.def("as_onnx", [](const std::string& bytes) { return py::bytes(compiler::as_onnx(bytes)); }, py::arg("bytes"));
  m.def("shipped_configs", [] {
    std::map<std::string, std::string> texts;
    for (const isa::ShippedConfig& config : isa::shipped_configs())
      texts.emplace(std::string(config.name), std::string(config.toml));
    return texts;
  });
  m.def("check_config", [](const std::string& toml) { isa::parse_config(toml, "machine"); }, py::arg("config"));

  m.attr("version") = TESSERA_VERSION;
  m.def("run_command_line", [](std::vector<std::string> words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    py::gil_scoped_release release;
    return run_command_line(static_cast<int>(words.size()), arguments.data());
  });
  // The process behind the workers of `tessera serve`; ends with the other end of the socket.
  m.def("run_workers", &driver::run_workers, py::call_guard<py::gil_scoped_release>(), py::arg("descriptor"));
  bind_tile(m);
  bind_tuning(m);
  m.def("compile_options", [] {
    py::list rows;
    for (const compiler::OptionInfo& info : compiler::option_table()) {
      py::dict row;
      row["name"] = info.name;
      row["summary"] = info.summary;
      row["default"] = info.fallback;
      rows.append(row);
    }
    return rows;
  });
  m.def("dram_presets", &isa::dram_presets);
  m.def("dram_preset", [](const std::string& preset) {
    const isa::DramSpec s = isa::dram_preset(preset);
    py::dict found;
    found["parts"] = std::string(s.parts);
    found["phy"] = std::string(s.phy);
    found["clock_mhz"] = s.clock_mhz;
    found["peak_bytes"] = s.peak_bytes();
    const std::pair<const char*, int> numbers[] = {{"phases", s.phases},
                                                   {"burst", s.burst},
                                                   {"banks", s.banks},
                                                   {"columns", s.columns},
                                                   {"tRP", s.t_rp},
                                                   {"tRCD", s.t_rcd},
                                                   {"tWR", s.t_wr},
                                                   {"tWTR", s.t_wtr},
                                                   {"tREFI", s.t_refi},
                                                   {"tRFC", s.t_rfc},
                                                   {"tFAW", s.t_faw},
                                                   {"tCCD", s.t_ccd},
                                                   {"tRRD", s.t_rrd},
                                                   {"tRC", s.t_rc},
                                                   {"tRAS", s.t_ras},
                                                   {"write_cas", s.write_cas},
                                                   {"read_latency", s.read_latency},
                                                   {"write_latency", s.write_latency}};
    for (const auto& [name, value] : numbers) found[name] = value;
    return found;
  });
  m.def("dram_figures", [](const std::string& preset, int beat_bytes) {
    const isa::DramFigures figures = isa::dram_figures(isa::dram_preset(preset), beat_bytes);
    return py::make_tuple(figures.latency_cycles, figures.bandwidth_bytes);
  });
  m.def("operator_names", [] { return compiler::operator_names(); });
  m.def("shapes_of_ranges", &shapes_of_ranges, py::arg("texts"));
  m.def("backends", [] {
    py::list names;
    names.append("reference");
    for (const auto& backend : driver::backends()) names.append(backend.name);
    return names;
  });
}
