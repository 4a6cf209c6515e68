// SPDX-License-Identifier: Apache-2.0
// The metadata is JSON under one key, written by tessera/python/tessera/quantization. A machine that is not shipped
// stands there as the text of its configuration.
#include "tessera/quantised_for.h"

#include <algorithm>
#include <iterator>

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

std::map<std::string, ops::Shape> quantised_shapes(std::string_view onnx, const std::vector<Port>& inputs,
                                                   const compiler::ImportOptions& import) {
  std::map<std::string, ops::Shape> shapes;
  const auto said = nlohmann::json::parse(compiler::metadata(onnx, kMetadata), nullptr, false);
  if (!import.dims.empty() || !said.is_object() || !said.contains("shapes") || !said["shapes"].is_object())
    return shapes;
  for (const Port& port : inputs) {
    const auto found = said["shapes"].find(port.name);
    if (!port.ranked || port.shape.empty() || import.shapes.count(port.name) != 0 || found == said["shapes"].end())
      continue;
    if (std::none_of(port.shape.begin() + 1, port.shape.end(), [](int64_t d) { return d < 0; })) continue;
    const auto size = [](const nlohmann::json& d) { return d.is_number_unsigned() ? d.get<int64_t>() : -1; };
    ops::Shape shape;
    if (found->is_array()) std::transform(found->begin(), found->end(), std::back_inserter(shape), size);
    const auto fits = [](int64_t of_port, int64_t d) { return d >= 0 && (of_port < 0 || of_port == d); };
    if (std::equal(port.shape.begin(), port.shape.end(), shape.begin(), shape.end(), fits)) shapes[port.name] = shape;
  }
  return shapes;
}

}  // namespace tessera
