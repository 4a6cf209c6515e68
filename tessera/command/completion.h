// SPDX-License-Identifier: Apache-2.0
// Completion of the command line in a shell. Enters: the commands and options as the parser knows them. Leaves: a
// script that the shell reads, so that it never lags behind the parser.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace tessera {

/// The script for `shell` (bash, zsh or fish). Errors: kInvalidArgument for another one.
std::string completion_script(const CLI::App& app, const std::string& shell);

}  // namespace tessera
