// SPDX-License-Identifier: Apache-2.0
// The metadata is JSON under one key, written by tessera/python/tessera/quantization. A machine that is not shipped
// stands there as the text of its configuration.
#include "tessera/quantised_for.h"

#include <nlohmann/json.hpp>

#include "isa/config.h"

namespace tessera {

namespace {

constexpr const char* kMetadata = "tessera.quantization";
constexpr const char* kMachine = "npu256";
constexpr const char* kNumerics = "exact";

/// A member of the metadata's object, or what stands where there is none.
std::string member(const nlohmann::json& object, const char* name, const char* otherwise) {
  const bool found = object.is_object() && object.contains(name) && object[name].is_string();
  return found ? object[name].get<std::string>() : otherwise;
}

}  // namespace

std::string take_quantised_for(std::string_view onnx, SessionOptions& options) {
  const bool open_numerics = options.compile.numerics == compiler::kNumericsOfModel;
  if (!options.config.empty() && !open_numerics) return "";
  const auto said = nlohmann::json::parse(compiler::metadata(onnx, kMetadata), nullptr, false);
  std::string taken;
  if (options.config.empty()) {
    options.config = member(said, "config", kMachine);
    if (options.config != kMachine) taken = isa::find_config(options.config).name + " (--config names another machine)";
  }
  if (open_numerics) {
    options.compile.numerics = member(said, "numerics", kNumerics);
    if (options.compile.numerics != kNumerics)
      taken += (taken.empty() ? "" : " and ") + options.compile.numerics + " numerics (--numerics names others)";
  }
  return taken.empty() ? "" : "the model was quantised for " + taken;
}

}  // namespace tessera
