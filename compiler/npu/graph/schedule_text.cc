// SPDX-License-Identifier: Apache-2.0
// Layers in order; the lines of their schedules are those of schedule/nest_text.
#include "compiler/npu/graph/schedule_text.h"

#include "compiler/schedule/text/nest_text.h"

namespace tessera::npu {

namespace {

std::string name_of(const Graph& graph) { return graph.name.empty() ? "main" : graph.name; }

/// The schedules of one graph; `graph`: nothing when they are another's, and are only read past.
std::vector<std::optional<schedule::LayerSchedule>> read_layers(text::Reader& reader, const Graph* graph) {
  std::vector<std::optional<schedule::LayerSchedule>> result(graph != nullptr ? graph->operations.size() : 0);
  size_t next = 0;
  reader.list("{", "}", "", [&] {
    reader.expect("layer");
    const text::Token at = reader.token();
    const std::string name = reader.string();
    schedule::LayerSchedule schedule = schedule::read_layer_schedule(reader);
    if (graph == nullptr) return;
    while (next < result.size() && graph->operations[next].name != name) ++next;
    if (next == result.size())
      reader.fail_at(at, "graph @" + name_of(*graph) + " has no operation " + text::quote(name) +
                             " here; layers come in the order of its operations");
    result[next++] = std::move(schedule);
  });
  return result;
}

}  // namespace

std::string schedules_to_text(const Graph& graph, const Program& program) {
  text::Printer printer;
  printer.open("npu.schedules @" + name_of(graph));
  size_t inside = 0;  // links of a chain that are still to come
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    const LayerInfo& layer = program.layers[i];
    if (std::holds_alternative<Kernel>(graph.operations[i].what)) continue;
    const auto* chain = std::get_if<schedule::ChainSchedule>(&layer.schedule);
    if (inside > 0) {
      --inside;
      continue;
    }
    if (chain != nullptr) inside = chain->links.size() - 1;
    printer.line(text::Line("layer").word(text::quote(layer.name)));
    schedule::print(layer.schedule, printer);
  }
  printer.close();
  return printer.take();
}

std::vector<std::optional<schedule::LayerSchedule>> schedules_from_text(std::string_view text, const Graph& graph,
                                                                        const std::string& source) {
  text::Reader reader(text, source);
  std::vector<std::optional<schedule::LayerSchedule>> result(graph.operations.size());
  while (!reader.at_end()) {
    reader.expect("npu.schedules");
    const bool own = reader.symbol('@') == name_of(graph);
    auto read = read_layers(reader, own ? &graph : nullptr);
    if (own) result = std::move(read);
  }
  return result;
}

}  // namespace tessera::npu
