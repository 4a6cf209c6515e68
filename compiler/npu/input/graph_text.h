// SPDX-License-Identifier: Apache-2.0
// The graph as text and back, without loss:
//
//   npu.graph @main {
//     %0 = tensor "x" i8[1, 8, 8, 16]
//     %1 = tensor "y" i8[1, 8, 8, 32]
//     %2 = view %1 "y" i8[1, 8, 8, 16] at=[0, 0, 0, 16]
//     interface inputs=[%0] outputs=[%1]
//     convolution "conv" op="QLinearConv" nodes=["conv"] input=%0 output=%2 weights=#0
//         stage={convert=true multiplier=[0.5] low=-128 high=127}
//   }
//   constants { #0 = i16 "0x..." }
//
// Shapes are n, h, w, c; i8, u8 and i32 are element types. Fields at their defaults are left out (graph_fields.h).
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "compiler/npu/graph/graph.h"
#include "compiler/text/fields.h"

namespace tessera::npu {

/// One graph and its constants, `elide`d on request.
std::string to_text(const Graph& graph, bool elide = false);
/// The reverse; the graph has passed check_graph. Errors: kInvalidArgument with source, line and column.
Graph graph_from_text(std::string_view text, const std::string& source = "text");

/// One graph among others that share constants.
void print(const Graph& graph, text::Printer& printer, text::Constants& constants);
Graph read_graph(text::Reader& reader, const text::Constants& constants);

/// The head of a graph of whatever level: `keyword @name {` and the lines `%0 = ...`, `%1 = ...` and so on.
struct GraphHead {
  text::Token at;  ///< where the name stands, for messages about the whole graph
  std::string name;
};
/// `read_entry` reads one line behind its `=`; `entries` is what messages call those lines ("tensors").
GraphHead read_head(text::Reader& reader, std::string_view keyword, std::string_view entries,
                    const std::function<void()>& read_entry);
/// The number of `%7`.
int32_t read_number(text::Reader& reader, std::string_view entries);

/// Name, operator, products and nodes of an operation, of whatever level: all but what it computes.
template <typename IO>
void label_fields(IO& io, auto& operation) {
  io.field("op", operation.kind);
  io.field("macs", operation.macs);
  io.field("nodes", operation.nodes);
  if constexpr (requires { operation.feeds_next; }) io.field("feeds_next", operation.feeds_next);
  if constexpr (requires { operation.operands; }) {
    io.ids("operands", operation.operands);
    io.ids("results", operation.results);
  }
}

/// Prints one alternative of `operation.what`: its mnemonic, name and fields.
void print_operation(const auto& operation, text::Printer& printer, text::Constants& constants) {
  text::FieldWriter io(constants);
  label_fields(io, operation);
  std::string head;
  std::visit(
      [&](const auto& what) {
        head = std::string(mnemonic(what)) + " " + text::quote(operation.name);
        fields(io, what);
      },
      operation.what);
  io.print(printer, head);
}

/// Reads an operation whose mnemonic is one of the variant's.
template <typename Operation>
Operation read_operation(text::Reader& reader, const text::Constants& constants) {
  const text::Token at = reader.token();
  const std::string word = reader.word();
  Operation operation;
  bool known = false;
  std::string all;
  const auto offer = [&]<typename What>(const What& what) {
    all += (all.empty() ? "" : ", ") + std::string(mnemonic(what));
    if (mnemonic(what) != word) return;
    known = true;
    operation.what = What{};
  };
  [&]<typename... Whats>(std::type_identity<std::variant<Whats...>>) {
    (offer(Whats{}), ...);
  }(std::type_identity<decltype(operation.what)>{});
  if (!known) reader.fail_at(at, "unknown operation '" + word + "'; known: " + all);
  operation.name = reader.string();
  text::FieldReader io(reader, constants);
  label_fields(io, operation);
  std::visit([&](auto& what) { fields(io, what); }, operation.what);
  io.run();
  return operation;
}

}  // namespace tessera::npu
