// SPDX-License-Identifier: Apache-2.0
// The table of compiled operators: for each (domain, name) a function that writes the operator's results as
// expressions, or throws Declined for a case it does not cover. Whether an operator is supported is found by writing
// it.
#pragma once

#include <map>
#include <string>

#include "compiler/cpu/expressions/expression.h"
#include "compiler/nn/bridge.h"
#include "ops/kernels/movement.h"
#include "ops/kernels/window.h"

namespace tessera::cpu {

/// One operator while it is lowered. Where `widens` is set, inputs of float16 and bfloat16 appear as float32, and
/// float32 results are rounded once to the narrow type of the operator's results.
struct Operator {
  Graph& graph;
  mutable nn::NodeOp op;  // MLIR's accessors are not const
  ops::Node node;
  std::vector<std::optional<Tensor>> inputs;
  bool widens = false;
  std::vector<Tensor> results = {};  // to be filled, one for each output

  bool has(size_t i) const { return i < inputs.size() && inputs[i].has_value(); }
  /// Declines when input i is absent.
  const Tensor& in(size_t i) const {
    require(has(i));
    return *inputs[i];
  }
  std::optional<Tensor> optional_in(size_t i) const { return has(i) ? std::optional(in(i)) : std::nullopt; }
  /// Content of a constant input; declines when it is computed at run time.
  ops::Tensor constant(size_t i) const {
    auto value = nn::constant_value(nn::input_or_null(op, static_cast<unsigned>(i)));
    require(value.has_value());
    return *value;
  }
  /// Element type and static shape of output i.
  DType dtype(size_t i = 0) const {
    const DType own = nn::dtype_of(op->getResult(static_cast<unsigned>(i)));
    return widens && (own == DType::kFloat16 || own == DType::kBfloat16) ? DType::kFloat : own;
  }
  Shape shape(size_t i = 0) const {
    const auto shape = nn::shape_of(op->getResult(static_cast<unsigned>(i)));
    require(shape.has_value());
    return *shape;
  }
  void yield(Tensor tensor) {
    require(tensor.dtype == dtype(results.size()) && tensor.shape == shape(results.size()));
    results.push_back(std::move(tensor));
  }
};

using Lowering = std::function<void(Operator&)>;

class Lowerings {
 public:
  struct Entry {
    Lowering lowering;
    bool widens;
  };
  void add(const std::string& name, Lowering lowering, const std::string& domain = "") {
    table_[{domain, name}] = {std::move(lowering), widens_};
  }
  /// Whether the operators added from here on compute narrow floats in float32.
  void widen(bool widens) { widens_ = widens; }
  /// nullptr if the operator is not in the table.
  const Entry* find(const std::string& domain, const std::string& name) const {
    const auto found = table_.find({domain, name});
    return found == table_.end() ? nullptr : &found->second;
  }

 private:
  bool widens_ = false;
  std::map<std::pair<std::string, std::string>, Entry> table_;
};

/// `x` [N, C, ...] padded with `value` so far that a window at every output position reads inside: element at * stride
/// + tap * dilation.
Tensor padded_for(Graph& graph, const Tensor& x, const ops::Window& window, const Start& value);
/// Indices of padded_for() at output position `at` and tap `tap`, one for each spatial axis.
Indices window_indices(const ops::Window& window, llvm::ArrayRef<Index> at, llvm::ArrayRef<Index> tap);
/// For each spatial axis the number of taps inside the input (or inside input and pads) at every output position,
/// int64; and the number of taps at a position.
std::vector<Tensor> tap_counts(Graph& graph, const ops::Window& window, bool padding);
Scalar tap_count(Body& body, const std::vector<Tensor>& counts, llvm::ArrayRef<Index> at);
/// Indices of a tensor of one element.
Indices only_element(const Body& body, const Tensor& tensor);

/// Writes an operator that only moves elements.
void move(Operator& o, const ops::MoveFunction& moves);

void add_elementwise(Lowerings& table);
void add_shape(Lowerings& table);
void add_reduce(Lowerings& table);
void add_normalise(Lowerings& table);
void add_pool(Lowerings& table);
void add_product(Lowerings& table);
void add_quantized(Lowerings& table);

}  // namespace tessera::cpu
