// SPDX-License-Identifier: Apache-2.0
// A region is a set of claims that become one NPU program. Enters: claims in topological order. Leaves: an npu::Graph
// and, for each value that crosses the region's edge, how the host's tensor maps to the device's bytes.
//
// A value keeps the shape it has in the model; on the device it has a layout (layout.h): strides into a tensor.
// Convolutions want channels last, matrices the model's own order. Operators that only move elements change the layout
// and nothing else; an operation that needs its operand in another order reads a copy. A copy that the machine would
// make byte by byte is refused beyond a few thousand bytes: the claim then does not join the region and the host moves
// the elements.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/npu/graph.h"
#include "compiler/partition/claims.h"
#include "compiler/partition/layout.h"

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
    std::vector<std::string> free_nodes;          // ONNX nodes that became strides: no operation stands for them
  };
  /// Ends the region; `outputs` are the produced values that are needed elsewhere.
  Result finish(const std::vector<mlir::Value>& outputs) &&;

 private:
  struct Device {
    npu::TensorId tensor = npu::kNoTensor;  // neither a view nor a reshape
    Layout layout;
  };
  using Dims = std::array<int64_t, 4>;  // n, h, w, c
  struct Less {
    bool operator()(mlir::Value a, mlir::Value b) const { return a.getAsOpaquePointer() < b.getAsOpaquePointer(); }
  };

  static Dims collapse(const ops::Shape& shape, const Order& order);
  const npu::Tensor& tensor(npu::TensorId id) const { return graph_.tensors[static_cast<size_t>(id)]; }
  Dims dims_of(npu::TensorId id) const;
  std::optional<Order> order_of(mlir::Value value) const;
  npu::TensorId reshaped(npu::TensorId base, const Dims& dims);
  /// Elements of `root` as a box: the tensor itself or a reshape where it is all of them in order, else a strided view.
  npu::TensorId boxed(npu::TensorId root, const Box& box);
  npu::TensorId packed(mlir::Value value, const Order& order, const Dims& dims);
  /// The value in whatever layout it has; a host value is packed, in `order` if one is asked for.
  Device device_of(mlir::Value value, std::optional<Order> order = std::nullopt);
  /// The value's bytes in `order`, seen as `dims`; copied where its layout is another.
  std::optional<npu::TensorId> operand(const Claim& claim, mlir::Value value, const Order& order, const Dims& dims);
  /// The value in a layout that `fits`; packed or copied in `order` where none is there.
  std::optional<Device> arranged(const Claim& claim, mlir::Value value, const Order& order,
                                 const std::function<bool(const Device&)>& fits);
  /// A copy of a produced value for the claim that asks for it.
  std::optional<Device> copied_operand(const Claim& claim, mlir::Value value, const Order& order);
  npu::TensorId fresh(const std::string& name, const Dims& dims, bool is_unsigned, int32_t element_bytes);
  npu::TensorId result(mlir::Value value, const Order& order, const Dims& dims);
  void push(const Claim& claim, decltype(npu::Operation::what) what, int64_t macs);
  bool try_add(const Claim& claim);
  bool add_convolution(const Claim& claim, const ConvolutionClaim& what);
  bool add_products(const Claim& claim, const ConvolutionClaim& what);
  bool add_transposed(const Claim& claim, const TransposedClaim& what);  // region_transposed.cc
  bool add_product(const Claim& claim, const ProductClaim& what);        // region_product.cc
  bool add_pool(const Claim& claim, const PoolClaim& what);
  bool add_reduce(const Claim& claim, const ReduceClaim& what);
  bool add_table(const Claim& claim, const TableClaim& what);
  bool add_binary(const Claim& claim, const BinaryClaim& what);
  bool add_requantise(const Claim& claim, const RequantiseClaim& what);
  bool add_concat(const Claim& claim, const ConcatClaim& what);
  bool add_move(const Claim& claim, const MoveClaim& what);

  // Copies between layouts (region_copy.cc).
  bool copy(const Claim& claim, const Device& from, const Device& to, const npu::Stage& stage);
  bool copy_whole(const Claim& claim, const Device& from, const Device& to, const npu::Stage& stage,
                  const std::vector<CopyLoop>& loops);
  bool copy_by_selection(const Claim& claim, const Device& from, const Device& to, const npu::Stage& stage,
                         const std::vector<CopyLoop>& loops);
  bool copy_by_transposition(const Claim& claim, const Device& from, const Device& to, const npu::Stage& stage,
                             std::vector<CopyLoop> loops);
  void copy_boxes(const Claim& claim, const Device& from, const Device& to, const npu::Stage& stage,
                  std::vector<CopyLoop> loops, int64_t channels);
  void fill(const Claim& claim, const Device& source, const Device& to, int32_t value);
  std::optional<Device> copied(const Claim& claim, const Device& from, const std::string& name, const Order& order);
  std::optional<Device> moved(const Claim& claim, Device device, const Move& move, const std::string& name);
  std::optional<Binding> bind(mlir::Value value, const Device& device);
  bool reaches_host(mlir::Value value, const Device& device);

  const isa::MachineConfig& config_;
  npu::Graph graph_;
  std::vector<std::vector<std::string>> nodes_;
  std::vector<std::string> free_nodes_;
  std::map<mlir::Value, Device, Less> produced_;
  std::vector<std::pair<mlir::Value, Device>> copies_;  // produced values again, in other layouts
  std::vector<std::pair<mlir::Value, Device>> packed_;  // host values, once for each order
};

/// Fuses elementwise operations into the operation that produces their input: tables, binary operations with a second
/// tensor, tables behind those. Keeps the graph's meaning; `nodes` is kept parallel to the operations.
void fuse(npu::Graph& graph, std::vector<std::vector<std::string>>& nodes);

/// Lets producers and readers take over what copies and selections of channels would do. Likewise.
void fold_layout(npu::Graph& graph, std::vector<std::vector<std::string>>& nodes);

}  // namespace tessera::partition
