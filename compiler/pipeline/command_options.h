// SPDX-License-Identifier: Apache-2.0
// The options of a compilation as flags of a command line, from their table. Header only: commands bring CLI11.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "compiler/pipeline/options.h"

namespace tessera::compiler {

/// What is true by default gets a flag --no-NAME, the rest --NAME VALUE. `options` must outlive the parsing.
inline void add_options(CLI::App& app, CompileOptions& options) {
  for (const OptionInfo& info : option_table()) {
    const auto set = [&options, name = info.name](const std::string& value) {
      try {
        set_option(options, name, value);
      } catch (const Error& error) {
        throw CLI::ValidationError(error.what());
      }
    };
    if (info.kind == OptionKind::kBool) {
      const bool off = info.fallback == "true";
      app.add_flag_function(
          info.flag, [set, off](int64_t) { set(off ? "false" : "true"); },
          off && info.summary.starts_with("False: ") ? info.summary.substr(7) : info.summary);
    } else {
      app.add_option_function<std::string>(info.flag, set,
                                           info.summary + (info.fallback.empty() ? "" : " (" + info.fallback + ")"));
    }
  }
}

}  // namespace tessera::compiler
