// SPDX-License-Identifier: Apache-2.0
// The back end `TesseraBackend` of ExecuTorch. Enters: what TesseraBackend.preprocess of the Python package has put
// into the program, an artifact or an ONNX model, with the compile specs. Each delegate becomes a session of the C
// interface; a run takes inputs and outputs by their positions. The back end registers itself when the library is
// loaded. Errors: one line in ExecuTorch's log, and its error code.
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/evalue.h>
#include <executorch/runtime/platform/log.h>

#include <cstdio>
#include <memory>
#include <mutex>

#include "tessera/executorch/arguments.h"
#include "tessera/executorch/settings.h"
#include "tessera/tessera.h"

namespace tessera::executorch {

namespace {

namespace et = ::executorch::runtime;

constexpr const char* kName = "TesseraBackend";

struct Closing {
  void operator()(tessera_session* session) const { tessera_session_close(session); }
};

/// A delegate of a loaded method.
struct Delegate {
  std::unique_ptr<tessera_session, Closing> session;
  std::string where;  // the method's name, for messages
  std::string statistics;
  std::vector<std::string> names;  // of the inputs
  std::vector<tessera_tensor> results;
};

et::Error failed(const std::string& where, const std::string& message, et::Error code) {
  ET_LOG(Error, "tessera: method '%s': %s", where.c_str(), message.c_str());
  return code;
}

et::Error code_of(tessera_status status) {
  switch (status) {
    case TESSERA_INVALID_ARGUMENT: return et::Error::InvalidArgument;
    case TESSERA_UNSUPPORTED: return et::Error::NotSupported;
    case TESSERA_INVALID_ARTIFACT:
    case TESSERA_INVALID_MODEL:
    case TESSERA_INVALID_PROGRAM: return et::Error::DelegateInvalidCompatibility;
    case TESSERA_DOES_NOT_FIT: return et::Error::MemoryAllocationFailed;
    case TESSERA_IO: return et::Error::AccessFailed;
    default: return et::Error::Internal;
  }
}

/// A line of JSON; a file that cannot be written costs a line of the log and not the run.
void append_statistics(const Delegate& delegate) {
  const char* json = nullptr;
  if (tessera_stats(delegate.session.get(), &json) != TESSERA_OK) return;
  if (std::FILE* file = std::fopen(delegate.statistics.c_str(), "a")) {
    std::fprintf(file, "%s\n", json);
    std::fclose(file);
  } else {
    ET_LOG(Error, "tessera: method '%s': cannot write '%s'", delegate.where.c_str(), delegate.statistics.c_str());
  }
}

class TesseraBackend final : public et::BackendInterface {
 public:
  bool is_available() const override { return true; }

  et::Result<et::DelegateHandle*> init(et::BackendInitContext& context, et::FreeableBuffer* processed,
                                       et::ArrayRef<et::CompileSpec> specs) const override {
    auto delegate = std::make_unique<Delegate>();
    delegate->where = context.get_method_name() ? context.get_method_name() : "";
    Settings settings = settings_of(specs, process_settings(), context.runtime_specs());
    const std::string device = take(settings, "device"), config = take(settings, "config");
    delegate->statistics = take(settings, "statistics");
    const std::vector<std::string> options = options_of(settings);
    std::vector<const char*> texts;
    texts.reserve(options.size());
    for (const std::string& option : options) texts.push_back(option.c_str());
    tessera_session* session = nullptr;
    const tessera_status status =
        tessera_session_open_memory(processed->data(), processed->size(), device.empty() ? nullptr : device.c_str(),
                                    config.empty() ? nullptr : config.c_str(), texts.data(), texts.size(), &session);
    if (status != TESSERA_OK) return failed(delegate->where, tessera_last_error(), code_of(status));
    delegate->session.reset(session);
    processed->Free();
    for (size_t i = 0; i < tessera_input_count(session); ++i) {
      tessera_port port;
      tessera_input(session, i, &port);
      delegate->names.emplace_back(port.name);
    }
    delegate->results.resize(tessera_output_count(session));
    return static_cast<et::DelegateHandle*>(delegate.release());
  }

  et::Error execute(et::BackendExecutionContext&, et::DelegateHandle* handle,
                    et::Span<et::EValue*> args) const override {
    auto& delegate = *static_cast<Delegate*>(handle);
    const size_t count = delegate.names.size();
    if (args.size() != count + delegate.results.size()) {
      return failed(delegate.where,
                    std::to_string(args.size()) + " arguments for " + std::to_string(count) + " inputs and " +
                        std::to_string(delegate.results.size()) + " outputs",
                    et::Error::DelegateInvalidHandle);
    }
    std::vector<Operand> operands(count);
    std::vector<tessera_tensor> inputs(count);
    std::vector<const char*> names(count);
    std::string message;
    for (size_t i = 0; i < count; ++i) {
      if (!to_operand(*args[i], operands[i], message))
        return failed(delegate.where, "input '" + delegate.names[i] + "': " + message, et::Error::InvalidArgument);
      inputs[i] = operands[i].tensor;
      names[i] = delegate.names[i].c_str();
    }
    const tessera_status status =
        tessera_run(delegate.session.get(), names.data(), inputs.data(), count, delegate.results.data());
    if (status != TESSERA_OK) return failed(delegate.where, tessera_last_error(), code_of(status));
    for (size_t i = 0; i < delegate.results.size(); ++i) {
      if (!from_result(delegate.results[i], *args[count + i], message))
        return failed(delegate.where, "output " + std::to_string(i) + ": " + message, et::Error::InvalidArgument);
    }
    if (!delegate.statistics.empty()) append_statistics(delegate);
    return et::Error::Ok;
  }

  /// Holds for the methods that are loaded afterwards.
  et::Error set_option(et::BackendOptionContext&, const et::Span<et::BackendOption>& options) override {
    for (const et::BackendOption& option : options) set(option.key, text_of(option.value));
    return et::Error::Ok;
  }

  void destroy(et::DelegateHandle* handle) const override { delete static_cast<Delegate*>(handle); }

  /// An empty value takes the option back.
  void set(const std::string& name, const std::string& value) {
    const std::lock_guard lock(mutex_);
    if (value.empty()) {
      process_.erase(name);
    } else {
      process_[name] = value;
    }
  }

 private:
  Settings process_settings() const {
    const std::lock_guard lock(mutex_);
    return process_;
  }

  mutable std::mutex mutex_;
  Settings process_;
};

TesseraBackend& backend() {
  static auto* instance = new TesseraBackend;  // lives as long as the registry
  return *instance;
}

[[maybe_unused]] const et::Error registered = [] {
  const et::Error error = et::register_backend({kName, &backend()});
  if (error != et::Error::Ok)
    ET_LOG(Error, "tessera: registering %s failed with error %u", kName, static_cast<unsigned>(error));
  return error;
}();

}  // namespace

}  // namespace tessera::executorch

/// An option of all methods that the process loads from now on; an empty value takes it back. For programs that reach
/// the library by its symbols alone, as the Python package does.
extern "C" __attribute__((visibility("default"))) void tessera_executorch_set_option(const char* name,
                                                                                     const char* value) {
  tessera::executorch::backend().set(name, value);
}
