// SPDX-License-Identifier: Apache-2.0
// A region is a set of claims that become one NPU program. Enters: claims in topological order. Leaves: an npu::Graph
// and, for each value that crosses the region's edge, how the host's tensor maps to the device's bytes.
//
// A value keeps the shape it has in the model; on the device it has a memory order: the order of its axes from slowest
// to fastest. Convolutions want channels last, matrices the model's own order. Two orders are the same when they agree
// on all axes longer than 1, so that a flatten behind a global pool costs nothing; where they differ the claim does not
// join the region.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/npu/graph.h"
#include "compiler/partition/claims.h"

namespace tessera::partition {

/// A host value on the device.
struct Binding {
  mlir::Value value;
  npu::TensorId tensor = npu::kNoTensor;
  std::vector<int64_t> axes;  // device axis (0 image, 1 row, 2 column, 3 channel) of each axis of the value
};

class Region {
 public:
  explicit Region(const isa::MachineConfig& config) : config_(config) {}

  bool empty() const { return graph_.operations.empty(); }
  /// True if the value is produced here.
  bool produces(mlir::Value value) const { return produced_.count(value) != 0; }
  /// Joins a claim whose operands are on the host or produced here. False, and nothing changed, when memory orders do
  /// not fit.
  bool add(const Claim& claim);

  struct Result {
    npu::Graph graph;
    std::vector<Binding> inputs, outputs;
    std::vector<std::vector<std::string>> nodes;  // ONNX nodes of each operation of the graph
  };
  /// Ends the region; `outputs` are the produced values that are needed elsewhere.
  Result finish(const std::vector<mlir::Value>& outputs) &&;

 private:
  using Order = std::vector<int64_t>;
  struct Device {
    npu::TensorId tensor = npu::kNoTensor;
    ops::Shape shape;
    Order order;
  };
  struct Dims {
    int64_t n = 1, h = 1, w = 1, c = 1;
    bool operator==(const Dims&) const = default;
  };
  struct Less {
    bool operator()(mlir::Value a, mlir::Value b) const { return a.getAsOpaquePointer() < b.getAsOpaquePointer(); }
  };

  static Order significant(const ops::Shape& shape, const Order& order);
  static Dims collapse(const ops::Shape& shape, const Order& order);
  std::optional<Order> order_of(mlir::Value value) const;
  npu::TensorId reshaped(npu::TensorId base, const Dims& dims);
  /// The value's bytes in `order`, seen as `dims`; nothing when it is on the device in another order.
  std::optional<npu::TensorId> operand(mlir::Value value, const Order& order, const Dims& dims);
  npu::TensorId result(mlir::Value value, const Order& order, const Dims& dims);
  void push(const Claim& claim, std::variant<npu::Convolution, npu::Pool, npu::Elementwise> what, int64_t macs);
  bool try_add(const Claim& claim);
  bool add_convolution(const Claim& claim, const ConvolutionClaim& what);
  bool add_pool(const Claim& claim, const PoolClaim& what);
  bool add_table(const Claim& claim, const TableClaim& what);
  bool add_binary(const Claim& claim, const BinaryClaim& what);
  bool add_requantise(const Claim& claim, const RequantiseClaim& what);
  bool add_concat(const Claim& claim, const ConcatClaim& what);
  bool add_alias(const Claim& claim, const AliasClaim& what);

  const isa::MachineConfig& config_;
  npu::Graph graph_;
  std::vector<std::vector<std::string>> nodes_;
  std::map<mlir::Value, Device, Less> produced_;
  std::vector<std::pair<mlir::Value, Device>> packed_;  // host values, once for each order
};

/// Fuses elementwise operations into the operation that produces their input: tables, binary operations with a second
/// tensor, tables behind those. Keeps the graph's meaning; `nodes` is kept parallel to the operations.
void fuse(npu::Graph& graph, std::vector<std::vector<std::string>>& nodes);

}  // namespace tessera::partition
