// SPDX-License-Identifier: Apache-2.0
// The C interface over Session: exceptions become a status and a thread-local message.
#include "tessera/tessera.h"

#include <cstring>
#include <new>

#include "base/error.h"
#include "tessera/kept_programs.h"
#include "tessera/message.h"
#include "tessera/quantised_for.h"
#include "tessera/session.h"
#include "tessera/tuning/tuned.h"

struct tessera_session {
  tessera::Session session;
  std::vector<tessera::ops::Value> results;
  std::string stats;
};

struct tessera_device_tensor {
  tessera::DeviceTensor tensor;
};

struct tessera_binding {
  tessera::IoBinding binding;
};

namespace {

thread_local std::string last_error;

tessera_status to_status(tessera::ErrorCode code) {
  using tessera::ErrorCode;
  switch (code) {
    case ErrorCode::kInvalidArgument: return TESSERA_INVALID_ARGUMENT;
    case ErrorCode::kInvalidModel: return TESSERA_INVALID_MODEL;
    case ErrorCode::kUnsupported: return TESSERA_UNSUPPORTED;
    case ErrorCode::kInvalidArtifact: return TESSERA_INVALID_ARTIFACT;
    case ErrorCode::kInvalidProgram: return TESSERA_INVALID_PROGRAM;
    case ErrorCode::kDoesNotFit: return TESSERA_DOES_NOT_FIT;
    case ErrorCode::kDeviceFault: return TESSERA_DEVICE_FAULT;
    case ErrorCode::kIo: return TESSERA_IO;
    case ErrorCode::kInternal: return TESSERA_INTERNAL;
  }
  return TESSERA_INTERNAL;
}

template <typename F>
tessera_status guarded(F&& body) {
  try {
    body();
    return TESSERA_OK;
  } catch (const tessera::Error& e) {
    last_error = tessera::one_line(e.what());
    return to_status(e.code());
  } catch (const std::bad_alloc&) {
    last_error = "the host has not enough memory";
    return TESSERA_DOES_NOT_FIT;
  } catch (const std::exception& e) {
    last_error = tessera::one_line(e.what());
    return TESSERA_INTERNAL;
  }
}

void need(const void* pointer, const char* what) {
  if (!pointer) throw tessera::Error(tessera::ErrorCode::kInvalidArgument, std::string(what) + " is NULL");
}

/// What would be read beyond a tensor's memory, or could not be held. Errors: kInvalidArgument.
void check_tensor(const std::string& name, const tessera_tensor& in) {
  constexpr size_t kMostRank = 64;
  const auto refuse = [&](const std::string& why) {
    throw tessera::Error(tessera::ErrorCode::kInvalidArgument, "input '" + name + "': " + why);
  };
  if (static_cast<int32_t>(static_cast<tessera::ops::DType>(in.dtype)) != in.dtype)
    refuse("element type " + std::to_string(in.dtype) + " is not one of ONNX");
  if (in.rank > kMostRank)
    refuse("its rank is " + std::to_string(in.rank) + ", more than " + std::to_string(kMostRank));
  if (in.rank > 0 && in.shape == nullptr) refuse("its shape is NULL");
  if (in.bytes > 0 && in.data == nullptr) refuse("its data is NULL");
  // Far too few bytes for any element type: no memory is taken to find that out.
  const tessera::ops::Shape shape(in.shape, in.shape + in.rank);
  int64_t count = 0;
  try {
    count = tessera::ops::element_count(shape);
  } catch (const tessera::Error& wrong) {
    refuse(wrong.what());
  }
  if (static_cast<size_t>(count) / 64 > in.bytes)
    refuse(std::to_string(in.bytes) + " bytes given, too few for " + tessera::ops::to_string(shape));
}

/// A copy. Errors: kInvalidArgument when the bytes are not those of the shape.
tessera::ops::Tensor from_c(const std::string& name, const tessera_tensor& in) {
  using namespace tessera;
  check_tensor(name, in);
  const auto dtype = static_cast<ops::DType>(in.dtype);
  ops::Tensor tensor(dtype, ops::Shape(in.shape, in.shape + in.rank));
  if (dtype == ops::DType::kString || static_cast<size_t>(tensor.bytes()) != in.bytes)
    throw Error(ErrorCode::kInvalidArgument, "input '" + name + "': " + std::to_string(in.bytes) + " bytes given, " +
                                                 std::string(ops::to_string(dtype)) + " " +
                                                 ops::to_string(tensor.shape()) + " has " +
                                                 std::to_string(tensor.bytes()));
  if (in.bytes) std::memcpy(tensor.mutable_data(), in.data, in.bytes);
  return tensor;
}

/// All zero for what is no tensor of numbers.
tessera_tensor to_c(const tessera::ops::Value& v) {
  using namespace tessera;
  if (v.kind != ops::Value::Kind::kTensor || v.tensor.dtype() == ops::DType::kString)
    return {0, 0, nullptr, nullptr, 0};
  return {static_cast<int32_t>(v.tensor.dtype()), v.tensor.shape().size(), v.tensor.shape().data(), v.tensor.data(),
          static_cast<size_t>(v.tensor.bytes())};
}

/// The index-th output of a binding. Errors: kInvalidArgument when there is none, or none at that place.
template <typename T>
const T& output_of(const tessera_binding* binding, size_t index, const char* other) {
  using namespace tessera;
  need(binding, "binding");
  const std::vector<Bound>& outputs = binding->binding.outputs();
  if (index >= outputs.size())
    throw Error(ErrorCode::kInvalidArgument, "output " + std::to_string(index) + " of a binding with " +
                                                 std::to_string(outputs.size()) + " outputs of a run");
  if (!std::holds_alternative<T>(outputs[index]))
    throw Error(ErrorCode::kInvalidArgument, "output '" + binding->binding.wanted()[index].name + "' " + other);
  return std::get<T>(outputs[index]);
}

std::pair<std::string, std::string> name_and_value(const char* option) {
  need(option, "an option");
  const std::string text = option;
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw tessera::Error(tessera::ErrorCode::kInvalidArgument, "an option is NAME=VALUE, got '" + text + "'");
  return {text.substr(0, equals), text.substr(equals + 1)};
}

tessera::SessionOptions session_options(const char* device, const char* config, const char* const* options,
                                        size_t option_count) {
  if (option_count > 0) need(options, "options");
  tessera::SessionOptions to;
  if (device) to.device = device;
  if (config) to.config = config;
  for (size_t i = 0; i < option_count; ++i) {
    const auto [name, value] = name_and_value(options[i]);
    if (name == "trusted_keys") {
      to.trusted_keys = value;
    } else if (tessera::compiler::is_option(name)) {
      tessera::compiler::set_option(to.compile, name, value);
    } else {
      to.device_options[name] = value;
    }
  }
  return to;
}

tessera_status port_at(const std::vector<tessera::Port>& ports, size_t index, tessera_port* port) {
  return guarded([&] {
    need(port, "port");
    if (index >= ports.size())
      throw tessera::Error(tessera::ErrorCode::kInvalidArgument,
                           "port " + std::to_string(index) + " of " + std::to_string(ports.size()));
    const tessera::Port& p = ports[index];
    *port = {p.name.c_str(), static_cast<int32_t>(p.dtype), p.ranked ? p.shape.size() : SIZE_MAX, p.shape.data()};
  });
}

}  // namespace

extern "C" {

const char* tessera_last_error(void) { return last_error.c_str(); }
const char* tessera_version(void) { return TESSERA_VERSION; }

size_t tessera_compile_option_count(void) { return tessera::compiler::option_table().size(); }
tessera_status tessera_compile_option_at(size_t index, tessera_compile_option* option) {
  return guarded([&] {
    need(option, "option");
    const auto& table = tessera::compiler::option_table();
    if (index >= table.size()) {
      throw tessera::Error(tessera::ErrorCode::kInvalidArgument,
                           "option " + std::to_string(index) + " of " + std::to_string(table.size()));
    }
    *option = {table[index].name.c_str(), table[index].summary.c_str(), table[index].fallback.c_str()};
  });
}

tessera_status tessera_compile(const char* onnx_path, const char* config, const char* const* shapes, size_t shape_count,
                               const char* artifact_path) {
  return tessera_compile_with(onnx_path, config, shapes, shape_count, nullptr, 0, artifact_path);
}

tessera_status tessera_compile_with(const char* onnx_path, const char* config, const char* const* shapes,
                                    size_t shape_count, const char* const* options, size_t option_count,
                                    const char* artifact_path) {
  return guarded([&] {
    need(onnx_path, "onnx_path");
    need(artifact_path, "artifact_path");
    if (option_count > 0) need(options, "options");
    tessera::compiler::CompileOptions compile;
    for (size_t i = 0; i < option_count; ++i) {
      const auto [name, value] = name_and_value(options[i]);
      tessera::compiler::set_option(compile, name, value);
    }
    tessera::compiler::ImportOptions import;
    import.litert_kernels = compile.litert_kernels;
    for (size_t i = 0; i < shape_count; ++i) tessera::compiler::parse_shape(shapes[i], import);
    const auto source = tessera::compiler::ModelSource::from_file(onnx_path);
    auto model = tessera::compiler::Model::from_source(source, import);
    tessera::SessionOptions session;
    session.config = config ? config : "";
    session.import = import;
    session.compile = compile;
    tessera::take_quantised_for(source.bytes(), session);
    tessera::add_tuned_schedules(session.compile, source, session);
    tessera::program::save(model.compile(tessera::isa::find_config(session.config), session.compile), artifact_path);
  });
}

tessera_status tessera_session_open_with(const char* path, const char* device, const char* config,
                                         const char* const* options, size_t option_count, tessera_session** session) {
  return guarded([&] {
    need(path, "path");
    need(session, "session");
    *session = nullptr;
    tessera::SessionOptions to = session_options(device, config, options, option_count);
    *session = new tessera_session{tessera::Session(path, std::move(to)), {}, {}};
  });
}

tessera_status tessera_session_open_memory(const void* data, size_t bytes, const char* device, const char* config,
                                           const char* const* options, size_t option_count, tessera_session** session) {
  return guarded([&] {
    need(data, "data");
    need(session, "session");
    *session = nullptr;
    tessera::SessionOptions to = session_options(device, config, options, option_count);
    const std::string_view content(static_cast<const char*>(data), bytes);
    *session = new tessera_session{tessera::Session::from_bytes(content, std::move(to)), {}, {}};
  });
}

tessera_status tessera_session_open(const char* path, const char* device, const char* config,
                                    tessera_session** session) {
  return tessera_session_open_with(path, device, config, nullptr, 0, session);
}

void tessera_session_close(tessera_session* session) { delete session; }

size_t tessera_input_count(const tessera_session* session) { return session ? session->session.inputs().size() : 0; }
size_t tessera_output_count(const tessera_session* session) { return session ? session->session.outputs().size() : 0; }

tessera_status tessera_input(const tessera_session* session, size_t index, tessera_port* port) {
  if (!session) return guarded([&] { need(session, "session"); });
  return port_at(session->session.inputs(), index, port);
}
size_t tessera_overridable_count(const tessera_session* session) {
  return session ? session->session.overridable().size() : 0;
}
tessera_status tessera_overridable(const tessera_session* session, size_t index, tessera_port* port) {
  if (!session) return guarded([&] { need(session, "session"); });
  return port_at(session->session.overridable(), index, port);
}
tessera_status tessera_output(const tessera_session* session, size_t index, tessera_port* port) {
  if (!session) return guarded([&] { need(session, "session"); });
  return port_at(session->session.outputs(), index, port);
}

tessera_status tessera_run(tessera_session* session, const char* const* names, const tessera_tensor* inputs,
                           size_t input_count, tessera_tensor* outputs) {
  return guarded([&] {
    using namespace tessera;
    need(session, "session");
    need(outputs, "outputs");
    NamedValues feeds;
    for (size_t i = 0; i < input_count; ++i) {
      need(names ? names[i] : nullptr, "a name");
      need(inputs, "inputs");
      for (const auto& feed : feeds)
        if (feed.first == names[i])
          throw Error(ErrorCode::kInvalidArgument, "input '" + feed.first + "' is given twice");
      feeds.emplace_back(names[i], from_c(names[i], inputs[i]));
    }
    session->results = session->session.run(feeds);
    for (size_t i = 0; i < session->results.size(); ++i) {
      outputs[i] = to_c(session->results[i]);
    }
  });
}

tessera_status tessera_to_device(tessera_session* session, const tessera_tensor* tensor,
                                 tessera_device_tensor** result) {
  return guarded([&] {
    need(session, "session");
    need(tensor, "tensor");
    need(result, "result");
    *result = new tessera_device_tensor{session->session.to_device(from_c("tensor", *tensor))};
  });
}

tessera_status tessera_device_tensor_describe(const tessera_device_tensor* tensor, tessera_tensor* description) {
  return guarded([&] {
    need(tensor, "tensor");
    need(description, "description");
    const tessera::DeviceTensor& t = tensor->tensor;
    const auto bytes = tessera::ops::element_count(t.shape) * tessera::ops::element_bytes(t.dtype);
    *description = {static_cast<int32_t>(t.dtype), t.shape.size(), t.shape.data(), nullptr, static_cast<size_t>(bytes)};
  });
}

tessera_status tessera_device_tensor_copy_to_host(const tessera_device_tensor* tensor, void* data, size_t bytes) {
  return guarded([&] {
    need(tensor, "tensor");
    const tessera::ops::Tensor host = tensor->tensor.to_host();
    if (static_cast<size_t>(host.bytes()) != bytes)
      throw tessera::Error(
          tessera::ErrorCode::kInvalidArgument,
          "the device tensor has " + std::to_string(host.bytes()) + " bytes, not " + std::to_string(bytes));
    if (bytes != 0) {
      need(data, "data");
      std::memcpy(data, host.data(), bytes);
    }
  });
}

void tessera_device_tensor_release(tessera_device_tensor* tensor) { delete tensor; }

tessera_status tessera_binding_create(tessera_session* session, tessera_binding** binding) {
  return guarded([&] {
    need(session, "session");
    need(binding, "binding");
    *binding = new tessera_binding{tessera::IoBinding(session->session)};
  });
}

void tessera_binding_release(tessera_binding* binding) { delete binding; }

tessera_status tessera_bind_input(tessera_binding* binding, const char* name, const tessera_tensor* tensor) {
  return guarded([&] {
    need(binding, "binding");
    need(name, "name");
    need(tensor, "tensor");
    binding->binding.bind_input(name, tessera::ops::Value(from_c(name, *tensor)));
  });
}

tessera_status tessera_bind_device_input(tessera_binding* binding, const char* name,
                                         const tessera_device_tensor* tensor) {
  return guarded([&] {
    need(binding, "binding");
    need(name, "name");
    need(tensor, "tensor");
    binding->binding.bind_input(name, tensor->tensor);
  });
}

tessera_status tessera_bind_output(tessera_binding* binding, const char* name) {
  return guarded([&] {
    need(binding, "binding");
    need(name, "name");
    binding->binding.bind_output(name);
  });
}

tessera_status tessera_bind_output_to_device(tessera_binding* binding, const char* name) {
  return guarded([&] {
    need(binding, "binding");
    need(name, "name");
    binding->binding.bind_output_to_device(name);
  });
}

tessera_status tessera_run_binding(tessera_binding* binding) {
  return guarded([&] {
    need(binding, "binding");
    binding->binding.run();
  });
}

tessera_status tessera_binding_output(tessera_binding* binding, size_t index, tessera_tensor* output) {
  return guarded([&] {
    need(output, "output");
    *output = to_c(output_of<tessera::ops::Value>(binding, index, "stays on the device; ask for it there"));
  });
}

tessera_status tessera_binding_device_output(tessera_binding* binding, size_t index, tessera_device_tensor** output) {
  return guarded([&] {
    need(output, "output");
    *output =
        new tessera_device_tensor{output_of<tessera::DeviceTensor>(binding, index, "is on the host; ask for it there")};
  });
}

tessera_status tessera_stats(tessera_session* session, const char** json) {
  return guarded([&] {
    need(session, "session");
    need(json, "json");
    session->stats = session->session.stats_json();
    *json = session->stats.c_str();
  });
}

}  // extern "C"
