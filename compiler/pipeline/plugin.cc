// SPDX-License-Identifier: Apache-2.0
// dlopen runs the registrars. An exception must not cross it, so a registrar that is refused leaves its message with
// the registry, and loading throws it.
#include "compiler/pipeline/plugin.h"

#include <dlfcn.h>

#include <atomic>

#include "base/error.h"
#include "compiler/schedule/registry.h"

namespace tessera::compiler {

static std::atomic<bool> any_loaded{false};

bool plugins_loaded() { return any_loaded; }

void load_plugin(const std::string& path) {
  // A path without a slash would be looked for in the system's folders.
  any_loaded = true;
  const std::string file = path.find('/') == std::string::npos ? "./" + path : path;
  schedule::take_registration_errors();
  if (dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    const char* const why = dlerror();
    throw Error(ErrorCode::kIo, "plugin '" + path + "' cannot be loaded: " + (why ? why : "no reason is given"));
  }
  const std::string refused = schedule::take_registration_errors();
  if (!refused.empty()) throw Error(ErrorCode::kInvalidArgument, "plugin '" + path + "': " + refused);
}

}  // namespace tessera::compiler
