// SPDX-License-Identifier: Apache-2.0
// The graph before memory: quantised operations on values that have a shape of any rank and lie nowhere yet. Matchers
// make it of the model; the pass assign-layouts makes an npu::Graph of it, in which every value has strides. What an
// operation computes is said with all its constants; where elements lie is not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler/graph/layout.h"
#include "compiler/npu/graph/graph.h"
#include "compiler/text/fields.h"

namespace tessera::graph {

/// Index into ValueGraph::values.
using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

enum class Element : uint8_t { kInt8, kUint8, kInt32 };

/// The order of memory that the first convolution, pool or matrix product behind a value reads. What may lie in any
/// order takes this one.
enum class Preference : uint8_t { kChannelsLast, kRows };

struct Value {
  std::string name;
  Element element = Element::kInt8;
  Extents shape;
  Preference prefers = Preference::kChannelsLast;
  int32_t cache = -1;       // which part of the device's memory that stays from run to run holds it; -1: none
  int64_t cache_axis = -1;  // of a cache: the axis that is fastest there, the others in order; -1: the last one

  bool is_unsigned() const { return element == Element::kUint8; }
  int32_t element_bytes() const { return element == Element::kInt32 ? 4 : 1; }
  bool operator==(const Value&) const = default;
};

/// [n, c, (h,) w] by constant weights. `what.input` and `what.output` are unset.
struct Convolution {
  npu::Convolution what;
  bool operator==(const Convolution&) const = default;
};

/// [.., rows, k], or [k, rows] where `transposed`, by constant weights, as a convolution of one pixel.
struct Matmul {
  npu::Convolution what;
  bool transposed = false;
  /// With a constant for each matrix of the batch: their weights, in row-major order of `batch`, which is right-aligned
  /// with the axes before [rows, k]. Empty: `what.weights` for all.
  std::vector<std::vector<int16_t>> each;
  Extents batch;
  bool operator==(const Matmul&) const = default;
};

/// A product of two values, matrices over a broadcast batch: [.., rows, k] x [.., k, n], each operand with its last two
/// axes exchanged where `transposed` says so. A vector is a row on the left, a column on the right.
struct Product {
  int32_t left_zero = 0, right_zero = 0;
  bool left_transposed = false, right_transposed = false;
  npu::Stage stage;
  bool operator==(const Product&) const = default;
};

/// A transposed convolution with constant weights; index 0 is rows.
struct TransposedConvolution {
  std::array<int64_t, 2> kernel{1, 1}, stride{1, 1}, dilation{1, 1}, before{0, 0};
  int64_t groups = 1;
  int32_t input_zero = 0;
  std::vector<int16_t> weights;  // [oc][ic / groups][kernel]
  npu::Stage stage;
  bool operator==(const TransposedConvolution&) const = default;
};

/// A window that slides over [n, c, (h,) w], or [n, (h,) w, c] where `channels_last`.
struct Pool {
  npu::Pool what;
  bool channels_last = false;
  /// Where the divisor differs between positions (windows over the edge): a stage for each box of outputs.
  struct Part {
    int64_t row = 0, rows = 0, column = 0, columns = 0;
    npu::Stage stage;
    bool operator==(const Part&) const = default;
  };
  std::vector<Part> parts;  // empty: what.stage everywhere
  bool operator==(const Pool&) const = default;
};

/// The sum or maximum over whole axes of the value.
struct Reduce {
  npu::Pool::Kind kind = npu::Pool::Kind::kSum;
  std::vector<bool> reduced;  // by axis
  int32_t zero = 0;           // subtracted from each element of a sum by the stage's bias
  npu::Stage stage;
  bool operator==(const Reduce&) const = default;
};

/// result = table[operand], element by element.
struct Lookup {
  npu::Table table;
  bool operator==(const Lookup&) const = default;
};

/// Two values of one shape or broadcast; x is operand 0.
struct Binary {
  npu::SecondOperation second;  // `tensor` unset
  npu::Table x_table, y_table;  // empty: the operand itself
  bool operator==(const Binary&) const = default;
};

/// int32 sums to bytes by power-of-two scales, exact by proof: result = convert(operand), or the larger of two
/// conversions (leaky ReLU).
struct Requantise {
  npu::Stage stage;
  std::optional<npu::Stage> other;
  int64_t channel_axis = -1;  // of the value, when the multiplier varies; else -1
  bool operator==(const Requantise&) const = default;
};

/// One step that only moves elements. `extents` are those of its result.
struct Step {
  enum class Kind : uint8_t {
    kTranspose,  // numbers: the permutation
    kReshape,
    kSlice,   // positions start, start + step, ... of `axis`
    kExpand,  // axes of extent 1 repeated
    kGather,  // numbers: the positions of `axis`, any
    kPad,     // numbers: elements before each axis; the rest is behind; all of them the byte `value`
  };
  Kind kind = Kind::kReshape;
  Extents extents;
  std::vector<int64_t> numbers;
  int64_t axis = 0;
  int64_t start = 0, step = 1;
  int32_t value = 0;
  bool operator==(const Step&) const = default;
};
using Steps = std::vector<Step>;

/// All elements of `axis` (and of those behind it where `flattened`) together, for each position of the others.
struct Rows {
  npu::RowForm form;
  npu::Stage stage;
  int64_t axis = 0;
  bool flattened = false;
  bool operator==(const Rows&) const = default;
};

/// Operands side by side along an axis of the result, each through its own table (empty: copied).
struct Concat {
  int64_t axis = 0;
  std::vector<npu::Table> tables;
  std::vector<Steps> steps;        // of each operand before; empty: none
  std::vector<npu::Stage> stages;  // of operands of int32 sums: their conversion instead of a table
  /// The first operand is the past, which stays where it is: the result is the same memory, and the second operand is
  /// written behind what there is of the past when the program runs.
  bool appends = false;
  bool operator==(const Concat&) const = default;
};

/// Elements moved, then each through a table (empty: copied). One list of steps for each result.
struct Move {
  std::vector<Steps> steps;
  npu::Table table;
  bool table_first = false;  // before the steps instead of behind them
  bool operator==(const Move&) const = default;
};

/// What somebody has written for the machine (tessera.tile), in one form or several that differ in where elements lie.
struct Kernel {
  struct Result {
    Order order;                   // of its axes in memory
    int64_t start = 0, pitch = 1;  // elements: where it begins, and from a run of the fastest axis to the next
    bool operator==(const Result&) const = default;
  };
  struct Form {
    npu::Kernel what;             // tensors unset
    std::vector<Order> operands;  // each without gaps in this order
    std::vector<Result> results;  // inside of what it writes
    int64_t written = 0;          // elements of that
    int64_t cycles = 0;           // as predicted, alone
    bool operator==(const Form&) const = default;
  };
  std::vector<Form> forms;
  std::string machine;  // that it is for, isa::to_toml
  bool operator==(const Kernel&) const = default;
};

struct Operation {
  std::string name, kind;  // of the ONNX node
  int64_t macs = 0;
  std::vector<ValueId> operands, results;
  std::variant<Convolution, Matmul, Product, TransposedConvolution, Pool, Reduce, Lookup, Binary, Requantise, Concat,
               Move, Rows, Kernel>
      what;
  std::vector<std::string> nodes;  // of the model that it stands for
  bool operator==(const Operation&) const = default;
};

/// Operations in topological order.
struct ValueGraph {
  std::string name;
  std::vector<Value> values;
  std::vector<ValueId> inputs, outputs;
  std::vector<Operation> operations;
  /// The numbers that the values have outside, for Binding; empty: their own.
  std::vector<int32_t> numbers;

  const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
  bool operator==(const ValueGraph&) const = default;
};

/// True if the operation only moves bytes: worth a place on the NPU only beside operations that compute there.
bool only_moves(const Operation& operation);

/// Operands, results and shapes: indices, order of definition, ranks that an operation needs, sizes of its constants.
/// Errors: kInvalidArgument, naming the operation, the rule and the values.
void check_values(const ValueGraph& graph);

/// The text form:
///
///   value.graph @main {
///     %0 = u8[1, 3, 8, 8] "x"
///     %1 = u8[1, 16, 8, 8] "y" prefers=rows
///     interface inputs=[%0] outputs=[%1]
///     convolution "conv" op="QLinearConv" operands=[%0] results=[%1] ...
///   }
void print(const ValueGraph& graph, text::Printer& printer, text::Constants& constants);
/// The graph has passed check_values. Errors: kInvalidArgument with source, line and column.
ValueGraph read_values(text::Reader& reader, const text::Constants& constants);

}  // namespace tessera::graph
