// SPDX-License-Identifier: Apache-2.0
// Compile specs are bytes that need not end in zero; options are of three types. All become text.
#include "tessera/executorch/settings.h"

namespace tessera::executorch {

namespace et = ::executorch::runtime;

std::string text_of(const et::OptionValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "1" : "0";
  if (const int* number = std::get_if<int>(&value)) return std::to_string(*number);
  return std::get<std::array<char, et::kMaxOptionValueLength>>(value).data();
}

Settings settings_of(et::ArrayRef<et::CompileSpec> specs, const Settings& process,
                     et::Span<const et::BackendOption> load) {
  Settings settings;
  for (const et::CompileSpec& spec : specs)
    settings[spec.key] = std::string(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
  for (const auto& [name, value] : process) settings[name] = value;
  for (const et::BackendOption& option : load) settings[option.key] = text_of(option.value);
  return settings;
}

std::string take(Settings& settings, const std::string& name) {
  const auto found = settings.find(name);
  if (found == settings.end()) return "";
  std::string value = found->second;
  settings.erase(found);
  return value;
}

std::vector<std::string> options_of(const Settings& settings) {
  std::vector<std::string> options;
  options.reserve(settings.size());
  for (const auto& [name, value] : settings) options.push_back(name + "=" + value);
  return options;
}

}  // namespace tessera::executorch
