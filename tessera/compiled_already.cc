// SPDX-License-Identifier: Apache-2.0
#include "tessera/compiled_already.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace tessera {
namespace {

[[noreturn]] void refuse_compiled(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument,
              "the artifact is compiled already: " + what + "; compile the ONNX model anew, or leave that out");
}

}  // namespace

void refuse_what_only_compiling_heeds(const program::Artifact& artifact, const compiler::ImportOptions& import,
                                      const compiler::CompileOptions& compile, const std::set<std::string>& heeded) {
  std::set<std::string> names;
  for (const int64_t id : artifact.plans[0].inputs) {
    const program::ValueInfo& input = artifact.values[static_cast<size_t>(id)];
    names.insert(input.name);
    const auto shape = import.shapes.find(input.name);
    if (shape == import.shapes.end()) continue;
    bool same = shape->second.size() == input.shape.size();
    for (size_t d = 0; same && d < input.shape.size(); ++d)
      same = shape->second[d] == input.shape[d] || shape->second[d] == compiler::ImportOptions::kOpen;
    if (!same)
      refuse_compiled("its input '" + input.name + "' is " + ops::to_string(input.shape) + ", and " +
                      ops::to_string(shape->second) + " was asked for");
  }
  for (const auto& [name, shape] : import.shapes)
    if (!names.count(name)) refuse_compiled("it has no input '" + name + "' to give a shape");
  if (!import.dims.empty()) refuse_compiled("no dimension '" + import.dims.begin()->first + "' is open");
  if (!compile.schedules.empty()) refuse_compiled("its layers have their schedules");
  const std::set<std::string> always = {"cache",        "cpu_cache",      "threads", "dram",
                                        "dram_latency", "dram_bandwidth", "effort",  "length_steps"};
  for (const compiler::OptionInfo& info : compiler::option_table())
    if (!always.count(info.name) && !heeded.count(info.name) &&
        compiler::get_option(compile, info.name) != info.fallback)
      refuse_compiled("it cannot heed " + info.flag);
}

}  // namespace tessera
