// SPDX-License-Identifier: Apache-2.0
// The text form of values and their operations, and the rules that they obey. Fields stand once for both directions
// (compiler/text/fields.h); an operation without fields, mnemonic or rule here does not compile.
#include "compiler/graph/value_graph.h"

#include <algorithm>

#include "base/error.h"
#include "compiler/npu/graph/graph_fields.h"
#include "compiler/npu/input/graph_text.h"

namespace tessera::text {

template <>
struct Names<graph::Step::Kind> {
  static constexpr std::array<std::string_view, 6> value{"transpose", "reshape", "slice", "expand", "gather", "pad"};
};
template <>
struct Names<graph::Preference> {
  static constexpr std::array<std::string_view, 2> value{"channels_last", "rows"};
};

}  // namespace tessera::text

namespace tessera::graph {

namespace {
constexpr std::array<std::string_view, 3> kElements{"i8", "u8", "i32"};
}  // namespace

// --- fields

template <typename IO>
void fields(IO& io, text::In<IO, Step> s) {
  io.required("kind", s.kind);
  io.field("extents", s.extents);
  io.field("numbers", s.numbers);
  io.field("axis", s.axis);
  io.field("start", s.start);
  io.field("step", s.step, 1);
  io.field("value", s.value);
}

template <typename IO>
void fields(IO& io, text::In<IO, Convolution> c) {
  fields(io, c.what);
}

template <typename IO>
void fields(IO& io, text::In<IO, Matmul> m) {
  fields(io, m.what);
  io.field("transposed", m.transposed);
  io.field("each", m.each);
  io.field("batch", m.batch);
}

template <typename IO>
void fields(IO& io, text::In<IO, Product> p) {
  io.field("left_zero", p.left_zero);
  io.field("right_zero", p.right_zero);
  io.field("left_transposed", p.left_transposed);
  io.field("right_transposed", p.right_transposed);
  io.field("stage", p.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, TransposedConvolution> t) {
  io.pack("kernel", {1, 1}, t.kernel[0], t.kernel[1]);
  io.pack("strides", {1, 1}, t.stride[0], t.stride[1]);
  io.pack("dilations", {1, 1}, t.dilation[0], t.dilation[1]);
  io.pack("before", {0, 0}, t.before[0], t.before[1]);
  io.field("groups", t.groups, 1);
  io.field("input_zero", t.input_zero);
  io.field("weights", t.weights);
  io.field("stage", t.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, Pool::Part> p) {
  io.field("row", p.row);
  io.field("rows", p.rows);
  io.field("column", p.column);
  io.field("columns", p.columns);
  io.field("stage", p.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, Pool> p) {
  fields(io, p.what);
  io.field("channels_last", p.channels_last);
  io.field("parts", p.parts);
}

template <typename IO>
void fields(IO& io, text::In<IO, Reduce> r) {
  io.required("kind", r.kind);
  io.field("reduced", r.reduced);
  io.field("zero", r.zero);
  io.field("stage", r.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, Lookup> l) {
  io.field("table", l.table);
}

template <typename IO>
void fields(IO& io, text::In<IO, Binary> b) {
  io.field("second", b.second);
  io.field("x_table", b.x_table);
  io.field("y_table", b.y_table);
}

template <typename IO>
void fields(IO& io, text::In<IO, Requantise> r) {
  io.field("stage", r.stage);
  io.field("other", r.other);
  io.field("channel_axis", r.channel_axis, -1);
}

template <typename IO>
void fields(IO& io, text::In<IO, Concat> c) {
  io.field("axis", c.axis);
  io.field("tables", c.tables);
  io.field("steps", c.steps);
  io.field("stages", c.stages);
  io.field("appends", c.appends);
}

template <typename IO>
void fields(IO& io, text::In<IO, Move> m) {
  io.field("steps", m.steps);
  io.field("table", m.table);
  io.field("table_first", m.table_first);
}

template <typename IO>
void fields(IO& io, text::In<IO, Rows> r) {
  fields(io, r.form);
  io.field("axis", r.axis);
  io.field("flattened", r.flattened);
  io.field("stage", r.stage);
}

template <typename IO>
void fields(IO& io, text::In<IO, Kernel::Result> r) {
  io.field("order", r.order);
  io.field("start", r.start);
  io.field("pitch", r.pitch, 1);
}

template <typename IO>
void fields(IO& io, text::In<IO, Kernel::Form> f) {
  fields(io, f.what);
  io.field("operands", f.operands);
  io.field("results", f.results);
  io.field("written", f.written);
  io.field("cycles", f.cycles);
}

template <typename IO>
void fields(IO& io, text::In<IO, Kernel> k) {
  io.field("forms", k.forms);
  io.field("machine", k.machine);
}

constexpr std::string_view mnemonic(const Convolution&) { return "convolution"; }
constexpr std::string_view mnemonic(const Matmul&) { return "matmul"; }
constexpr std::string_view mnemonic(const Product&) { return "product"; }
constexpr std::string_view mnemonic(const TransposedConvolution&) { return "transposed_convolution"; }
constexpr std::string_view mnemonic(const Pool&) { return "pool"; }
constexpr std::string_view mnemonic(const Reduce&) { return "reduce"; }
constexpr std::string_view mnemonic(const Lookup&) { return "lookup"; }
constexpr std::string_view mnemonic(const Binary&) { return "binary"; }
constexpr std::string_view mnemonic(const Requantise&) { return "requantise"; }
constexpr std::string_view mnemonic(const Concat&) { return "concat"; }
constexpr std::string_view mnemonic(const Move&) { return "move"; }
constexpr std::string_view mnemonic(const Rows&) { return "rows"; }
constexpr std::string_view mnemonic(const Kernel&) { return "kernel"; }

namespace {

// --- rules

std::string shown(const Extents& shape) { return text::list(shape); }

class Checker {
 public:
  explicit Checker(const ValueGraph& graph) : graph_(graph) {}

  void run() {
    for (const Value& value : graph_.values) {
      where_ = "value '" + value.name + "'";
      require(std::all_of(value.shape.begin(), value.shape.end(), [](int64_t d) { return d >= 1; }),
              "extents must be positive, not " + shown(value.shape));
      require(value.cache_axis < static_cast<int64_t>(value.shape.size()),
              "has no axis " + std::to_string(value.cache_axis));
    }
    where_ = "graph @" + graph_.name;
    require(graph_.numbers.empty() || graph_.numbers.size() == graph_.values.size(),
            "it numbers some of its values only");
    std::vector<bool> defined(graph_.values.size(), false);
    for (const ValueId input : graph_.inputs) defined[index(input)] = true;
    for (const Operation& operation : graph_.operations) {
      where_ = "node '" + operation.name + "' (" + operation.kind + ")";
      for (const ValueId operand : operation.operands)
        require(defined[index(operand)], "reads %" + std::to_string(operand) + " before it is defined");
      for (const ValueId result : operation.results) {
        require(!defined[index(result)], "defines %" + std::to_string(result) + " again");
        defined[index(result)] = true;
      }
      std::visit([&](const auto& what) { check(operation, what); }, operation.what);
    }
    where_ = "graph @" + graph_.name;
    for (const ValueId output : graph_.outputs)
      require(defined[index(output)], "output %" + std::to_string(output) + " is never defined");
  }

 private:
  void require(bool condition, const std::string& message) const {
    if (!condition) throw Error(ErrorCode::kInvalidArgument, where_ + ": " + message);
  }
  size_t index(ValueId id) const {
    require(id >= 0 && static_cast<size_t>(id) < graph_.values.size(), "the graph has no value %" + std::to_string(id));
    return static_cast<size_t>(id);
  }
  const Value& value(ValueId id) const { return graph_.values[index(id)]; }

  void arity(const Operation& op, size_t operands) const {
    require(op.operands.size() == operands && op.results.size() == 1,
            "takes " + std::to_string(operands) + " operands and has one result, not " +
                std::to_string(op.operands.size()) + " and " + std::to_string(op.results.size()));
  }
  const Extents& operand(const Operation& op, size_t i) const { return value(op.operands[i]).shape; }
  const Extents& result(const Operation& op) const { return value(op.results[0]).shape; }
  void images(const Operation& op) const {
    const size_t rank = operand(op, 0).size();
    require((rank == 3 || rank == 4) && result(op).size() == rank,
            "takes and gives images of rank 3 or 4, not " + shown(operand(op, 0)) + " and " + shown(result(op)));
  }
  /// Whether a step starts from this shape.
  static bool fits(const Step& step, const Extents& shape) {
    using Kind = Step::Kind;
    if (step.kind != Kind::kReshape && step.extents.size() != shape.size()) return false;
    const bool axis = step.axis >= 0 && static_cast<size_t>(step.axis) < shape.size();
    const auto extent = [&](const Extents& of) { return of[static_cast<size_t>(step.axis)]; };
    const auto on_each_axis = [&](const auto& holds) {
      for (size_t i = 0; i < shape.size(); ++i)
        if (!holds(i)) return false;
      return true;
    };
    switch (step.kind) {
      case Kind::kTranspose: {
        Order sorted = step.numbers;
        std::sort(sorted.begin(), sorted.end());
        return sorted == identity_order(shape.size()) &&
               on_each_axis([&](size_t i) { return step.extents[i] == shape[static_cast<size_t>(step.numbers[i])]; });
      }
      case Kind::kReshape: return element_count(step.extents) == element_count(shape);
      case Kind::kSlice:
        return axis && step.start >= 0 && step.start + (extent(step.extents) - 1) * step.step < extent(shape);
      case Kind::kExpand: return on_each_axis([&](size_t i) { return step.extents[i] == shape[i] || shape[i] == 1; });
      case Kind::kGather:
        return axis && extent(step.extents) == static_cast<int64_t>(step.numbers.size()) &&
               std::all_of(step.numbers.begin(), step.numbers.end(),
                           [&](int64_t at) { return at >= 0 && at < extent(shape); });
      case Kind::kPad:
        return step.numbers.size() == shape.size() && on_each_axis([&](size_t i) {
                 return step.numbers[i] >= 0 && step.extents[i] >= step.numbers[i] + shape[i];
               });
    }
    return true;
  }

  void steps(const Extents& from, const Steps& list) const {
    Extents shape = from;
    for (const Step& step : list) {
      require(fits(step, shape), "a step '" +
                                     std::string(text::Names<Step::Kind>::value[static_cast<size_t>(step.kind)]) +
                                     "' from " + shown(shape) + " to " + shown(step.extents) + " is impossible");
      shape = step.extents;
    }
  }

  void check(const Operation& op, const Convolution& what) const {
    arity(op, 1);
    images(op);
    const int64_t in = operand(op, 0)[1], out = result(op)[1];
    require(what.what.groups >= 1 && in % what.what.groups == 0, "groups do not divide the channels");
    require(static_cast<int64_t>(what.what.weights.size()) ==
                out * (in / what.what.groups) * what.what.kernel_h * what.what.kernel_w,
            "holds " + std::to_string(what.what.weights.size()) + " weights, which do not fit its shapes");
  }
  void check(const Operation& op, const Matmul& what) const {
    arity(op, 1);
    const Extents& in = operand(op, 0);
    require(!in.empty() && !result(op).empty(), "takes and gives matrices");
    require(!what.transposed || in.size() == 2, "only a matrix can stand transposed");
    if (what.each.empty()) {
      const int64_t k = what.transposed ? in[0] : in.back(), n = element_count(result(op)) * k / element_count(in);
      require(static_cast<int64_t>(what.what.weights.size()) == k * n,
              "holds " + std::to_string(what.what.weights.size()) + " weights for a product of " + std::to_string(k) +
                  " by " + std::to_string(n));
      return;
    }
    require(in.size() >= 2 && result(op).size() >= 2, "a batch of products takes and gives matrices");
    require(static_cast<int64_t>(what.each.size()) == element_count(what.batch), "the batch and its weights disagree");
    for (const auto& weights : what.each)
      require(static_cast<int64_t>(weights.size()) == in.back() * result(op).back(),
              "a matrix of the batch has not k by n weights");
  }
  void check(const Operation& op, const Product&) const {
    arity(op, 2);
    require(!operand(op, 0).empty() && !operand(op, 1).empty(), "takes matrices or vectors");
  }
  void check(const Operation& op, const TransposedConvolution& what) const {
    arity(op, 1);
    images(op);
    const int64_t in = operand(op, 0)[1], out = result(op)[1];
    require(what.groups >= 1 && in % what.groups == 0 && out % what.groups == 0, "groups do not divide the channels");
    require(what.stride[0] >= 1 && what.stride[1] >= 1, "strides must be positive");
    require(static_cast<int64_t>(what.weights.size()) == out * (in / what.groups) * what.kernel[0] * what.kernel[1],
            "holds " + std::to_string(what.weights.size()) + " weights, which do not fit its shapes");
  }
  void check(const Operation& op, const Pool&) const {
    arity(op, 1);
    images(op);
  }
  void check(const Operation& op, const Reduce& what) const {
    arity(op, 1);
    require(what.reduced.size() == operand(op, 0).size(), "says of some axes only whether they are reduced");
  }
  void check(const Operation& op, const Rows& what) const {
    arity(op, 1);
    require(operand(op, 0) == result(op), "keeps its operand's shape");
    require(what.axis >= 0 && static_cast<size_t>(what.axis) < result(op).size(), "its axis is none of its operand's");
  }
  void check(const Operation& op, const Lookup& what) const {
    arity(op, 1);
    require(what.table.size() == 256, "a table has 256 bytes");
    require(operand(op, 0) == result(op), "keeps its operand's shape");
  }
  void check(const Operation& op, const Binary& what) const {
    arity(op, 2);
    for (const npu::Table* table : {&what.x_table, &what.y_table})
      require(table->empty() || table->size() == 256, "a table has 256 bytes");
    for (size_t i = 0; i < 2; ++i) {
      const Extents &in = operand(op, i), &out = result(op);
      bool fits = in.size() <= out.size();
      for (size_t k = 1; fits && k <= in.size(); ++k)
        fits = in[in.size() - k] == out[out.size() - k] || in[in.size() - k] == 1;
      require(fits, shown(in) + " does not broadcast to " + shown(out));
    }
  }
  void check(const Operation& op, const Requantise& what) const {
    arity(op, 1);
    require(operand(op, 0) == result(op), "keeps its operand's shape");
    require(what.channel_axis >= -1 && what.channel_axis < static_cast<int64_t>(result(op).size()),
            "the channel axis is none of the value's");
  }
  void check(const Operation& op, const Concat& what) const {
    require(op.results.size() == 1, "has one result");
    require(what.axis >= 0 && static_cast<size_t>(what.axis) < result(op).size(), "the axis is none of the value's");
    require(what.tables.size() == op.operands.size() &&
                (what.steps.empty() || what.steps.size() == op.operands.size()) &&
                (what.stages.empty() || what.stages.size() == op.operands.size()),
            "tables, steps or stages are not one for each operand");
    for (size_t i = 0; i < what.steps.size(); ++i) steps(operand(op, i), what.steps[i]);
    require(!what.appends || op.operands.size() == 2, "appends one operand to the other");
  }
  void check(const Operation& op, const Move& what) const {
    require(op.operands.size() == 1 && op.results.size() == what.steps.size(),
            "has one operand and a list of steps for each result");
    require(what.table.empty() || what.table.size() == 256, "a table has 256 bytes");
    for (const Steps& list : what.steps) steps(operand(op, 0), list);
  }

  void check(const Operation& op, const Kernel& what) const {
    require(!what.forms.empty() && !op.operands.empty() && !op.results.empty(), "is a kernel without a form");
    for (const Kernel::Form& form : what.forms) {
      require(form.operands.size() == op.operands.size() && form.results.size() == op.results.size(),
              "a form says how each operand and each result lies");
      for (size_t i = 0; i < form.operands.size(); ++i) require(orders(form.operands[i], operand(op, i)), "no order");
      for (size_t i = 0; i < form.results.size(); ++i) {
        const Extents& shape = value(op.results[i]).shape;
        const Kernel::Result& result = form.results[i];
        require(orders(result.order, shape), "no order");
        const int64_t fastest = shape[static_cast<size_t>(result.order.back())];
        const int64_t end = result.start + (element_count(shape) / fastest - 1) * result.pitch + fastest;
        require(result.start >= 0 && result.pitch >= fastest && end <= form.written, "a result lies outside");
      }
    }
  }
  static bool orders(Order order, const Extents& shape) {
    std::sort(order.begin(), order.end());
    return !order.empty() && order == identity_order(shape.size());
  }

  const ValueGraph& graph_;
  std::string where_;
};

template <typename IO>
void interface_fields(IO& io, text::In<IO, ValueGraph> graph) {
  io.ids("inputs", graph.inputs);
  io.ids("outputs", graph.outputs);
  io.field("numbers", graph.numbers);
}

}  // namespace

bool only_moves(const Operation& operation) {
  const auto* what = std::get_if<Move>(&operation.what);
  return what != nullptr && what->table.empty();
}

void check_values(const ValueGraph& graph) { Checker(graph).run(); }

void print(const ValueGraph& graph, text::Printer& printer, text::Constants& constants) {
  printer.open("value.graph @" + (graph.name.empty() ? std::string("main") : graph.name));
  for (size_t i = 0; i < graph.values.size(); ++i) {
    const Value& value = graph.values[i];
    text::FieldWriter io(constants);
    io.field("prefers", value.prefers);
    io.field("cache", value.cache, -1);
    io.field("cache_axis", value.cache_axis, -1);
    io.print(printer, "%" + std::to_string(i) + " = " + std::string(kElements[static_cast<size_t>(value.element)]) +
                          text::list(value.shape) + " " + text::quote(value.name));
  }
  text::FieldWriter io(constants);
  interface_fields(io, graph);
  io.print(printer, "interface");
  for (const Operation& operation : graph.operations) npu::print_operation(operation, printer, constants);
  printer.close();
}

ValueGraph read_values(text::Reader& reader, const text::Constants& constants) {
  ValueGraph graph;
  const npu::GraphHead head = npu::read_head(reader, "value.graph", "values", [&] {
    Value& value = graph.values.emplace_back();
    value.element = reader.one_of<Element>(kElements, "element type");
    reader.list("[", "]", ",", [&] { value.shape.push_back(reader.integer()); });
    value.name = reader.string();
    text::FieldReader io(reader, constants);
    io.field("prefers", value.prefers);
    io.field("cache", value.cache, -1);
    io.field("cache_axis", value.cache_axis, -1);
    io.run();
  });
  graph.name = head.name;
  reader.expect("interface");
  text::FieldReader io(reader, constants);
  interface_fields(io, graph);
  io.run();
  while (!reader.accept("}")) graph.operations.push_back(npu::read_operation<Operation>(reader, constants));
  try {
    check_values(graph);
  } catch (const Error& error) {
    reader.fail_at(head.at, "graph @" + graph.name + ": " + error.what());
  }
  return graph;
}

}  // namespace tessera::graph
