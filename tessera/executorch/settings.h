// SPDX-License-Identifier: Apache-2.0
// What a delegate is opened with. Enter: the compile specs of the program, the options that a process or a load sets.
// Leaves: device, configuration and options for the C interface.
#pragma once

#include <executorch/runtime/backend/interface.h>

#include <map>
#include <string>
#include <vector>

namespace tessera::executorch {

/// Name and value as text: `device`, `config`, `statistics` (a file that gets a line of JSON for each run), and what
/// tessera_session_open_with takes.
using Settings = std::map<std::string, std::string>;

/// The text of an option: true and false as 1 and 0.
std::string text_of(const ::executorch::runtime::OptionValue& value);

/// The specs of the program, over them the options of the process, over those the options of this load.
Settings settings_of(::executorch::runtime::ArrayRef<::executorch::runtime::CompileSpec> specs, const Settings& process,
                     ::executorch::runtime::Span<const ::executorch::runtime::BackendOption> load);

/// Takes a name out of the settings; its value, or nothing.
std::string take(Settings& settings, const std::string& name);

/// "name=value" of each.
std::vector<std::string> options_of(const Settings& settings);

}  // namespace tessera::executorch
