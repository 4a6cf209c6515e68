// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime keeps provider options among the entries of the session, with a prefix of the provider's name in small
// letters.
#include "tessera/onnxruntime_ep/settings.h"

#include <map>

#include "driver/registry.h"
#include "isa/config.h"
#include "tessera/onnxruntime_ep/tensors.h"

namespace tessera::ort {

namespace {

constexpr std::string_view kPrefix = "ep.tesseraexecutionprovider.";

std::map<std::string, std::string> entries_of(const Api& api, const OrtSessionOptions* options) {
  const Owned<KeyValuePairs> pairs(api.get<KeyValuePairs*>(kGetSessionConfigEntries, options),
                                   [&](KeyValuePairs* p) { api.raw(kReleaseKeyValuePairs, p); });
  const char* const* keys = nullptr;
  const char* const* values = nullptr;
  size_t count = 0;
  api.raw(kGetKeyValuePairs, static_cast<const KeyValuePairs*>(pairs.get()), &keys, &values, &count);
  std::map<std::string, std::string> entries;
  for (size_t i = 0; i < count; ++i) entries[keys[i]] = values[i];
  return entries;
}

void set(Settings& settings, const std::string& name, const std::string& value) {
  SessionOptions& session = settings.session;
  if (name == "device") {
    session.device = value;
  } else if (name == "config") {
    session.config = value;
  } else if (name == "trusted_keys") {
    session.trusted_keys = value;
  } else if (name == "statistics") {
    settings.statistics = value;
  } else if (compiler::is_option(name)) {
    compiler::set_option(session.compile, name, value);
  } else {
    session.device_options[name] = value;
  }
}

/// Refuses here, where it is one line, what would make every partition fail.
void check(const SessionOptions& session) {
  const isa::MachineConfig config = isa::find_config(session.config.empty() ? "npu256" : session.config);
  driver::DeviceOptions device;
  device.backend = session.device_options;
  if (session.device != "reference") {
    driver::open_device(session.device, config, device);
  } else if (!session.device_options.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "the reference device has no option '" + session.device_options.begin()->first + "'");
  }
}

}  // namespace

Settings settings_of(const Api& api, const OrtSessionOptions* options) {
  Settings settings;
  for (const auto& [key, value] : entries_of(api, options)) {
    if (key.starts_with(kPrefix)) set(settings, key.substr(kPrefix.size()), value);
    if (key == "ep.context_enable") settings.context_enable = value == "1";
    if (key == "ep.context_embed_mode") settings.context_embed = value == "1";
    if (key == "ep.context_file_path") settings.context_path = value;
  }
  settings.session.profile = !settings.statistics.empty();
  if (settings.context_enable && settings.session.device == "reference")
    throw Error(ErrorCode::kInvalidArgument,
                "ep.context_enable: the reference device interprets models and has nothing compiled to save");
  check(settings.session);
  return settings;
}

}  // namespace tessera::ort
