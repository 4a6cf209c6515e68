// SPDX-License-Identifier: Apache-2.0
// Tensors line by line, then the interface, then operations; see graph_text.h.
#include "compiler/npu/input/graph_text.h"

#include "base/error.h"
#include "compiler/npu/graph/graph_fields.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/input/check.h"

namespace tessera::npu {
namespace {

constexpr std::array<std::string_view, 3> kTypes{"i8", "u8", "i32"};
constexpr std::string_view kTensors = "tensors";

std::string type_of(const Tensor& t) {
  const std::string_view element = t.element_bytes == 4 ? kTypes[2] : kTypes[t.is_unsigned ? 1 : 0];
  return std::string(element) + text::list(std::array<int64_t, 4>{t.n, t.h, t.w, t.c});
}

void print_tensor(const Tensor& t, TensorId id, text::Printer& printer, text::Constants& constants) {
  std::string head = "%" + std::to_string(id) + " = ";
  if (t.reshape_of != kNoTensor) {
    head += "reshape %" + std::to_string(t.reshape_of) + " ";
  } else if (t.view_of != kNoTensor) {
    head += (t.strided ? "strided %" : "view %") + std::to_string(t.view_of) + " ";
  } else {
    head += "tensor ";
  }
  head += text::quote(t.name) + " " + type_of(t);
  text::FieldWriter io(constants);
  if (t.strided) {
    io.field("start", t.view_start);
    io.pack("steps", {0, 0, 0}, t.step_n, t.step_h, t.step_w);
  } else if (t.view_of != kNoTensor) {
    io.pack("at", {0, 0, 0, 0}, t.view_n, t.view_h, t.view_w, t.view_c);
  }
  io.field("border", t.border);
  io.field("scope", t.scope, Scope::kOpen);
  io.field("cache", t.cache, -1);
  io.field("slide", t.slide);
  // An int32 tensor of unsigned provenance: the generator ignores it, the text keeps it.
  if (t.element_bytes == 4) io.field("unsigned", t.is_unsigned);
  io.print(printer, head);
}

TensorId read_parent(text::Reader& reader) { return read_number(reader, kTensors); }

Tensor read_tensor(text::Reader& reader, const text::Constants& constants) {
  constexpr std::array<std::string_view, 4> kForms{"tensor", "view", "strided", "reshape"};
  enum class Form { kTensor, kView, kStrided, kReshape };
  Tensor t;
  const auto form = static_cast<Form>(reader.one_of(kForms, "kind of tensor"));
  switch (form) {
    case Form::kTensor: break;
    case Form::kStrided: t.strided = true; [[fallthrough]];
    case Form::kView: t.view_of = read_parent(reader); break;
    case Form::kReshape: t.reshape_of = read_parent(reader); break;
  }
  t.name = reader.string();
  const size_t type = reader.one_of(kTypes, "element type");
  t.element_bytes = type == 2 ? 4 : 1;
  t.is_unsigned = type == 1;
  reader.expect("[");
  int64_t* const extents[4] = {&t.n, &t.h, &t.w, &t.c};
  for (size_t i = 0; i < 4; ++i) {
    if (i > 0) reader.expect(",");
    *extents[i] = reader.integer();
  }
  reader.expect("]");
  text::FieldReader io(reader, constants);
  if (form == Form::kStrided) {
    io.field("start", t.view_start);
    io.pack("steps", {0, 0, 0}, t.step_n, t.step_h, t.step_w);
  } else if (form == Form::kView) {
    io.pack("at", {0, 0, 0, 0}, t.view_n, t.view_h, t.view_w, t.view_c);
  }
  io.field("border", t.border);
  io.field("scope", t.scope, Scope::kOpen);
  io.field("cache", t.cache, -1);
  io.field("slide", t.slide);
  if (t.element_bytes == 4) io.field("unsigned", t.is_unsigned);
  io.run();
  return t;
}

/// Whether an operation's result stays on chip for the next one.
bool goes_on(const Graph& graph, size_t operation) {
  const TensorId written = uses_of(graph.operations[operation]).written;
  return operation + 1 < graph.operations.size() && graph.tensors[static_cast<size_t>(written)].scope == Scope::kChip;
}

/// A comment with the operations that scopes join; the reader skips it.
void print_chain(const Graph& graph, size_t first, text::Printer& printer) {
  std::string names = text::quote(graph.operations[first].name);
  for (size_t i = first; goes_on(graph, i); ++i) names += " -> " + text::quote(graph.operations[i + 1].name);
  printer.line(text::Line("// chain " + names));
}

template <typename IO>
void interface_fields(IO& io, text::In<IO, Graph> graph) {
  io.ids("inputs", graph.inputs);
  io.ids("outputs", graph.outputs);
  io.field("host_inputs", graph.host_inputs);
  io.field("host_outputs", graph.host_outputs);
  io.field("free_nodes", graph.free_nodes);
}

}  // namespace

void print(const Graph& graph, text::Printer& printer, text::Constants& constants) {
  printer.open("npu.graph @" + (graph.name.empty() ? std::string("main") : graph.name));
  for (size_t i = 0; i < graph.tensors.size(); ++i)
    print_tensor(graph.tensors[i], static_cast<TensorId>(i), printer, constants);
  text::FieldWriter io(constants);
  interface_fields(io, graph);
  io.print(printer, "interface");
  bool inside = false;
  for (size_t i = 0; i < graph.operations.size(); ++i) {
    const bool stays = goes_on(graph, i);
    if (stays && !inside) print_chain(graph, i, printer);
    inside = stays;
    print_operation(graph.operations[i], printer, constants);
  }
  printer.close();
}

int32_t read_number(text::Reader& reader, std::string_view entries) {
  const text::Token at = reader.token();
  const std::string digits = reader.symbol('%');
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != std::string::npos)
    reader.fail_at(at, std::string(entries) + " are %0, %1 and so on");
  return static_cast<int32_t>(std::stol(digits));
}

GraphHead read_head(text::Reader& reader, std::string_view keyword, std::string_view entries,
                    const std::function<void()>& read_entry) {
  reader.expect(keyword);
  GraphHead head{.at = reader.token(), .name = reader.symbol('@')};
  reader.expect("{");
  for (int32_t next = 0; reader.at(text::TokenKind::kWord) && reader.token().text[0] == '%'; ++next) {
    const text::Token number = reader.token();
    if (read_number(reader, entries) != next)
      reader.fail_at(number, std::string(entries) + " are numbered in order; expected %" + std::to_string(next));
    reader.expect("=");
    read_entry();
  }
  return head;
}

Graph read_graph(text::Reader& reader, const text::Constants& constants) {
  Graph graph;
  const GraphHead head =
      read_head(reader, "npu.graph", kTensors, [&] { graph.tensors.push_back(read_tensor(reader, constants)); });
  graph.name = head.name;
  reader.expect("interface");
  text::FieldReader io(reader, constants);
  interface_fields(io, graph);
  io.run();
  while (!reader.accept("}")) graph.operations.push_back(read_operation<Operation>(reader, constants));
  try {
    check_graph(graph);
  } catch (const Error& error) {
    reader.fail_at(head.at, "graph @" + graph.name + ": " + error.what());
  }
  return graph;
}

std::string to_text(const Graph& graph, bool elide) {
  text::Printer printer;
  text::Constants constants(elide);
  print(graph, printer, constants);
  constants.print(printer);
  return printer.take();
}

Graph graph_from_text(std::string_view text, const std::string& source) {
  const text::Constants constants = text::Constants::find(text, source);
  text::Reader reader(text, source);
  Graph graph = read_graph(reader, constants);
  if (reader.at("constants")) text::Constants::read(reader);
  if (!reader.at_end()) reader.fail("expected the end of the text behind the graph");
  return graph;
}

}  // namespace tessera::npu
