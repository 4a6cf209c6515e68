// SPDX-License-Identifier: Apache-2.0
// From values to tensors of the device. Enters: operations of a ValueGraph in topological order. Leaves: an npu::Graph
// and, for each value that crosses its edge, how the host's tensor maps to the device's bytes.
//
// A value keeps the shape it has in the model; on the device it has a layout (layout.h): strides into a tensor.
// Convolutions want channels last, matrices the model's own order. Operators that only move elements change the layout
// and nothing else; an operation that needs its operand in another order reads a copy. A copy that the machine would
// make byte by byte is refused beyond a few thousand bytes: the operation then does not join the graph and the host
// moves the elements. That is why the partitioner asks here, operation by operation, what can run together.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/graph/layout.h"
#include "compiler/graph/value_graph.h"
#include "compiler/npu/graph/graph.h"

namespace tessera::graph {

class LayoutAssigner {
 public:
  /// `values` must outlive the assigner; its operations play no part.
  explicit LayoutAssigner(const ValueGraph& values) : values_(values) {}

  bool empty() const { return graph_.operations.empty(); }
  /// True if the value is produced here.
  bool produces(ValueId value) const { return produced_.count(value) != 0; }
  /// Joins an operation whose operands are on the host or produced here. False, and nothing changed, when memory orders
  /// do not fit.
  bool add(const Operation& op);

  /// Ends the graph; `outputs` are the produced values that are needed elsewhere.
  npu::Graph finish(const std::vector<ValueId>& outputs) &&;

 private:
  struct Device {
    npu::TensorId tensor = npu::kNoTensor;  // neither a view nor a reshape
    Layout layout;
  };
  using Dims = std::array<int64_t, 4>;  // n, h, w, c

  static Dims collapse(const Extents& shape, const Order& order);
  const npu::Tensor& tensor(npu::TensorId id) const { return graph_.tensors[static_cast<size_t>(id)]; }
  const Extents& shape_of(ValueId value) const { return values_.value(value).shape; }
  const std::string& name_of(ValueId value) const { return values_.value(value).name; }
  bool is_unsigned(ValueId value) const { return values_.value(value).is_unsigned(); }
  int32_t element_bytes(ValueId value) const { return values_.value(value).element_bytes(); }
  /// The order of a value in the memory that stays, which all programs have to agree on.
  Order cache_order(ValueId value) const;
  /// The order of a value where neither its producer nor its first reader cares.
  Order packing_order(ValueId value) const;
  Dims dims_of(npu::TensorId id) const;
  std::optional<Order> order_of(ValueId value) const;
  npu::TensorId reshaped(npu::TensorId base, const Dims& dims);
  /// Elements of `root` as a box: the tensor itself or a reshape where it is all of them in order, else a strided view.
  npu::TensorId boxed(npu::TensorId root, const Box& box);
  npu::TensorId packed(ValueId value, const Order& order, const Dims& dims);
  /// The value in whatever layout it has; a host value is packed, in `order` if one is asked for.
  Device device_of(ValueId value, std::optional<Order> order = std::nullopt);
  /// The value's bytes in `order`, seen as `dims`; copied where its layout is another.
  std::optional<npu::TensorId> operand(const Operation& op, ValueId value, const Order& order, const Dims& dims);
  /// The value in a layout that `fits`; packed or copied in `order` where none is there.
  std::optional<Device> arranged(const Operation& op, ValueId value, const Order& order,
                                 const std::function<bool(const Device&)>& fits);
  std::optional<Device> as_columns(ValueId value, size_t k_axis, size_t other) const;
  /// A copy of a produced value for the operation that asks for it.
  std::optional<Device> copied_operand(const Operation& op, ValueId value, const Order& order);
  npu::TensorId fresh(const std::string& name, const Dims& dims, bool is_unsigned, int32_t element_bytes);
  /// Rows and columns of a tensor that is no view.
  npu::TensorId window(npu::TensorId of, int64_t row, int64_t rows, int64_t column, int64_t columns);
  npu::TensorId result(ValueId value, const Order& order, const Dims& dims);
  void push(const Operation& op, decltype(npu::Operation::what) what, int64_t macs);
  /// The node counts once: with operation `first` and none behind it.
  void count_once(size_t first);

  bool add(const Operation& op, const Convolution& what);
  bool add(const Operation& op, const Matmul& what);
  bool add(const Operation& op, const Product& what);                // layout_assigner_product.cc
  bool add(const Operation& op, const TransposedConvolution& what);  // layout_assigner_transposed.cc
  bool add(const Operation& op, const Pool& what);
  bool add(const Operation& op, const Reduce& what);
  bool add(const Operation& op, const Lookup& what);  // layout_assigner_elementwise.cc, as the next two
  bool add(const Operation& op, const Binary& what);
  bool add(const Operation& op, const Requantise& what);
  bool add(const Operation& op, const Concat& what);  // layout_assigner_concat.cc
  bool append(const Operation& op, const Concat& what);
  bool add(const Operation& op, const Move& what);
  bool add(const Operation& op, const Rows& what);
  bool add(const Operation& op, const Kernel& what);  // layout_assigner_kernel.cc
  bool add(const Operation& op, const Kernel::Form& form);

  bool add_batch(const Operation& op, const Matmul& what);

  // Copies between layouts (layout_assigner_copy.cc).
  bool copy(const Operation& op, const Device& from, const Device& to, const npu::Stage& stage);
  bool copy_whole(const Operation& op, const Device& from, const Device& to, const npu::Stage& stage,
                  const std::vector<CopyLoop>& loops);
  bool copy_by_selection(const Operation& op, const Device& from, const Device& to, const npu::Stage& stage,
                         const std::vector<CopyLoop>& loops);
  bool copy_by_transposition(const Operation& op, const Device& from, const Device& to, const npu::Stage& stage,
                             std::vector<CopyLoop> loops);
  void copy_boxes(const Operation& op, const Device& from, const Device& to, const npu::Stage& stage,
                  std::vector<CopyLoop> loops, int64_t channels);
  void fill(const Operation& op, const Device& source, const Device& to, int32_t value);
  std::optional<Device> copied(const Operation& op, const Device& from, const std::string& name, const Order& order);
  std::optional<Device> moved(const Operation& op, Device device, const Step& step, const std::string& name);
  std::optional<Device> assembled(const Operation& op, const Device& device, const Step& step, const std::string& name);
  std::optional<npu::Binding> bind(ValueId value, const Device& device);
  bool reaches_host(ValueId value, const Device& device);

  const ValueGraph& values_;
  npu::Graph graph_;
  std::map<ValueId, Device> produced_;
  std::vector<std::pair<ValueId, Device>> copies_;  // produced values again, in other layouts
  std::vector<std::pair<ValueId, Device>> packed_;  // host values, once for each order
};

}  // namespace tessera::graph
