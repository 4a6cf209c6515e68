// SPDX-License-Identifier: Apache-2.0
// The fields of tasks and of the weights' source.
#include "compiler/npu/tasks/task_text.h"

#include "compiler/schedule/text/nest_text.h"
#include "compiler/text/fields.h"

namespace tessera::npu {

template <typename IO>
void fields(IO& io, text::In<IO, WeightSource::Plane> plane) {
  io.field("unsigned", plane.is_unsigned);
  io.field("zero", plane.zero);
}

template <typename IO>
void fields(IO& io, text::In<IO, WeightSource> w) {
  io.pack("kernel", {1, 1}, w.kernel_h, w.kernel_w);
  io.field("groups", w.groups, 1);
  io.field("oc_per_group", w.oc_per_group, 1);
  io.field("ic_per_group", w.ic_per_group, 1);
  io.field("groups_per_chunk", w.groups_per_chunk, 1);
  io.field("planes", w.planes);
  io.field("values", w.value);
}

namespace {

template <typename IO>
void task_fields(IO& io, auto& task, auto& operation) {
  io.required("operation", operation);
  io.field("sum", task.sum);
  io.field("input_zero", task.input_zero);
  io.field("factor_zero", task.factor_zero);
  io.field("unit_input", task.unit_input);
}

/// Why a task is none of the operation's.
std::string task_obstacle(const Task& task) {
  if (task.alternatives.empty()) return "a task has a nest";
  const schedule::Nest& first = task.alternatives.front();
  for (const schedule::Nest& nest : task.alternatives) {
    if (nest.computation != first.computation) return "the nests of a task have one computation";
    if (nest_of(task, nest.layout) != &nest) return "two nests of a task have one layout";
    if (nest.raw != task.stage->raw || nest.convert != task.stage->convert)
      return "raw and convert are those of the operation's stage";
    if (nest.second.present != task.stage->second.has_value())
      return "a nest has a second operand where the operation's stage has one";
  }
  const bool products =
      first.computation == schedule::Computation::kDense || first.computation == schedule::Computation::kDepthwise;
  if ((first.computation == schedule::Computation::kRows) != (task.rows != nullptr)) return "rows are rows' operations";
  if (products != (task.weights != nullptr || first.factor.present)) return "products, and they alone, have weights";
  if (task.weights == nullptr) return "";
  const WeightSource& w = *task.weights;
  const int64_t count = w.groups * w.oc_per_group * w.ic_per_group * w.kernel_h * w.kernel_w;
  if (static_cast<int64_t>(w.value.size()) != count)
    return "there are " + std::to_string(w.value.size()) + " weights of " + std::to_string(count);
  if (w.planes.size() != static_cast<size_t>(first.planes)) return "the nest has another number of planes";
  return "";
}

void print(const Task& task, const Graph& graph, text::Printer& printer, text::Constants& constants) {
  text::FieldWriter io(constants);
  const auto operation = static_cast<int64_t>(task.operation);
  task_fields(io, task, operation);
  io.print(printer, "task " + text::quote(graph.operations[task.operation].name));
  printer.open("nests");
  if (task.weights) {
    text::FieldWriter weights(constants);
    fields(weights, *task.weights);
    weights.print(printer, "weights");
  }
  for (const schedule::Nest& nest : task.alternatives) schedule::print(nest, printer);
  printer.close();
}

Task read_task(text::Reader& reader, const Graph& graph, const text::Constants& constants) {
  const text::Token at = reader.token();
  reader.expect("task");
  const std::string name = reader.string();
  Task task;
  int64_t operation = 0;
  text::FieldReader io(reader, constants);
  task_fields(io, task, operation);
  io.run();
  if (operation < 0 || operation >= static_cast<int64_t>(graph.operations.size()) ||
      graph.operations[static_cast<size_t>(operation)].name != name)
    reader.fail_at(at, "the graph's operation " + std::to_string(operation) + " is not " + text::quote(name));
  task.operation = static_cast<size_t>(operation);
  task.stage = std::visit([](const auto& what) { return &what.stage; }, graph.operations[task.operation].what);
  if (const auto* rows = std::get_if<Rows>(&graph.operations[task.operation].what)) task.rows = &rows->form;
  reader.expect("nests");
  reader.list("{", "}", "", [&] {
    if (!reader.accept("weights")) {
      task.alternatives.push_back(schedule::read_nest(reader));
      return;
    }
    auto weights = std::make_shared<WeightSource>();
    text::FieldReader inner(reader, constants);
    fields(inner, *weights);
    inner.run();
    task.weights = std::move(weights);
  });
  if (const std::string why = task_obstacle(task); !why.empty()) reader.fail_at(at, why);
  return task;
}

}  // namespace

std::string to_text(const std::vector<Task>& tasks, const Graph& graph, bool elide) {
  text::Printer printer;
  text::Constants constants(elide);
  for (const Task& task : tasks) print(task, graph, printer, constants);
  constants.print(printer);
  return printer.take();
}

std::vector<Task> tasks_from_text(std::string_view text, const Graph& graph, const std::string& source) {
  const text::Constants constants = text::Constants::find(text, source);
  text::Reader reader(text, source);
  std::vector<Task> tasks;
  while (reader.at("task")) tasks.push_back(read_task(reader, graph, constants));
  if (reader.at("constants")) text::Constants::read(reader);
  if (!reader.at_end()) reader.fail("expected a task or the end of the text");
  return tasks;
}

}  // namespace tessera::npu
