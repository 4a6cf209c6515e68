// SPDX-License-Identifier: Apache-2.0
// Code from outside the compiler: a shared object whose static registrars (graph::RegisterPass,
// partition::RegisterMatcher) add passes and matchers when it is loaded. It is built against the same sources and
// compiler as the command that loads it; examples/plugin shows one.
#pragma once

#include <string>

namespace tessera::compiler {

/// Loads a shared object for the life of the process. Errors: kIo when it cannot be loaded, kInvalidArgument when what
/// it registers clashes; both with the file's name.
void load_plugin(const std::string& path);

/// Whether load_plugin() has loaded any.
bool plugins_loaded();

}  // namespace tessera::compiler
