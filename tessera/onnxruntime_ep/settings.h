// SPDX-License-Identifier: Apache-2.0
// The options of a session of ONNX Runtime that the provider looks at: its own, and those of compiled contexts.
#pragma once

#include <string>

#include "tessera/onnxruntime_ep/ort_api.h"
#include "tessera/session.h"

namespace tessera::ort {

inline constexpr const char* kProviderName = "TesseraExecutionProvider";

struct Settings {
  SessionOptions session;
  std::string statistics;  // a file that gets a line of JSON for each run of a partition
  bool context_enable = false, context_embed = false;
  std::string context_path;
};

/// Provider options `device`, `config`, `trusted_keys`, `statistics`, those of a compilation, and those of the device.
/// Errors: those of set_option, of the configuration and of opening the device.
Settings settings_of(const Api& api, const OrtSessionOptions* options);

}  // namespace tessera::ort
