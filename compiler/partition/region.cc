// SPDX-License-Identifier: Apache-2.0
// Memory orders and shapes of values on the device; see region.h. Every add_* first finds its operands (which may
// create packed inputs and aliases) and returns false before it pushes an operation, so that undoing is a matter of
// truncation.
#include "compiler/partition/region.h"

#include <algorithm>

#include "base/error.h"
#include "compiler/npu/plan.h"

namespace tessera::partition {
namespace {

bool is_unsigned(mlir::Value value) { return nn::dtype_of(value) == ops::DType::kUint8; }
/// The order of a value where neither its producer nor its first reader cares: that of the first convolution, pool or
/// matrix product that it reaches through other operators.
Order packing_order(mlir::Value value) {
  constexpr size_t kMostReaders = 64;
  const size_t rank = nn::shape_of(value)->size();
  std::vector<mlir::Value> reached{value};
  for (size_t i = 0; i < reached.size() && i < kMostReaders; ++i) {
    for (mlir::Operation* user : reached[i].getUsers()) {
      auto op = mlir::dyn_cast<nn::NodeOp>(user);
      if (!op) continue;
      const std::string type = op.getOpType().str();
      if (type.find("Conv") != std::string::npos || type.find("Pool") != std::string::npos)
        return channels_last_order(rank);
      if (type.find("MatMul") != std::string::npos || type.find("Gemm") != std::string::npos)
        return identity_order(rank);
      for (mlir::Value result : op.getOutputs())
        if (std::find(reached.begin(), reached.end(), result) == reached.end()) reached.push_back(result);
    }
  }
  return channels_last_order(rank);
}

int32_t element_bytes(mlir::Value value) { return static_cast<int32_t>(ops::element_bytes(nn::dtype_of(value))); }

}  // namespace

/// The last three axes in memory become h, w and c, all before them n.
Region::Dims Region::collapse(const ops::Shape& shape, const Order& order) {
  Dims dims{1, 1, 1, 1};
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t from_end = order.size() - 1 - i;
    dims[from_end > 3 ? 0 : 3 - from_end] *= shape[static_cast<size_t>(order[i])];
  }
  return dims;
}

Region::Dims Region::dims_of(npu::TensorId id) const {
  const npu::Tensor& t = tensor(id);
  return {t.n, t.h, t.w, t.c};
}

std::optional<Order> Region::order_of(mlir::Value value) const {
  const auto found = produced_.find(value);
  if (found != produced_.end()) return found->second.layout.order();
  for (const auto& [host, device] : packed_)
    if (host == value) return device.layout.order();
  return std::nullopt;
}

npu::TensorId Region::reshaped(npu::TensorId base, const Dims& dims) {
  if (dims_of(base) == dims) return base;
  const npu::Tensor& parent = tensor(base);
  npu::Tensor alias;
  alias.name = parent.name;
  alias.n = dims[0], alias.h = dims[1], alias.w = dims[2], alias.c = dims[3];
  alias.is_unsigned = parent.is_unsigned;
  alias.element_bytes = parent.element_bytes;
  alias.reshape_of = base;
  return graph_.add(std::move(alias));
}

npu::TensorId Region::fresh(const std::string& name, const Dims& dims, bool is_unsigned, int32_t element_bytes) {
  npu::Tensor tensor;
  tensor.name = name;
  tensor.n = dims[0], tensor.h = dims[1], tensor.w = dims[2], tensor.c = dims[3];
  tensor.is_unsigned = is_unsigned;
  tensor.element_bytes = element_bytes;
  return graph_.add(std::move(tensor));
}

npu::TensorId Region::packed(mlir::Value value, const Order& order, const Dims& dims) {
  const npu::TensorId id = fresh(nn::value_name(value), dims, is_unsigned(value), element_bytes(value));
  graph_.inputs.push_back(id);
  packed_.emplace_back(value, Device{id, Layout::dense(*nn::shape_of(value), order)});
  return id;
}

Region::Device Region::device_of(mlir::Value value, std::optional<Order> order) {
  const auto found = produced_.find(value);
  if (found != produced_.end()) return found->second;
  const ops::Shape shape = *nn::shape_of(value);
  for (const auto& [host, device] : packed_)
    if (host == value && (!order || device.layout == Layout::dense(shape, *order))) return device;
  if (!order) order = packing_order(value);
  packed(value, *order, collapse(shape, *order));
  return packed_.back().second;
}

std::optional<npu::TensorId> Region::operand(const Claim& claim, mlir::Value value, const Order& order,
                                             const Dims& dims) {
  const auto found = produced_.find(value);
  const auto seen = [&](const Device& device) -> std::optional<npu::TensorId> {
    const auto box = as_box(device.layout, order, dims);
    if (!box) return std::nullopt;
    return boxed(device.tensor, *box);
  };
  if (found != produced_.end())
    if (auto id = seen(found->second)) return id;
  for (const auto* list : {&copies_, &packed_})
    for (const auto& [known, device] : *list)
      if (known == value)
        if (auto id = seen(device)) return id;
  if (found == produced_.end()) return packed(value, order, dims);
  const auto made = copied_operand(claim, value, order);
  if (!made) return std::nullopt;
  return seen(*made);
}

std::optional<Region::Device> Region::copied_operand(const Claim& claim, mlir::Value value, const Order& order) {
  const size_t operations = nodes_.size();
  const auto made = copied(claim, produced_.at(value), nn::value_name(value), order);
  if (!made) return std::nullopt;
  for (size_t i = operations; i < nodes_.size(); ++i) {
    nodes_[i].clear();  // the node counts with the operation that wanted the copy
    graph_.operations[i].name += ":copy";
    graph_.operations[i].kind = "Copy";
  }
  copies_.emplace_back(value, *made);
  return made;
}

npu::TensorId Region::result(mlir::Value value, const Order& order, const Dims& dims) {
  const npu::TensorId id = fresh(nn::value_name(value), dims, is_unsigned(value), element_bytes(value));
  produced_[value] = Device{id, Layout::dense(*nn::shape_of(value), order)};
  return id;
}

void Region::push(const Claim& claim, decltype(npu::Operation::what) what, int64_t macs) {
  npu::Operation operation;
  operation.name = claim.name;
  operation.kind = claim.kind;
  operation.macs = macs;
  operation.what = std::move(what);
  graph_.operations.push_back(std::move(operation));
  std::vector<std::string> names;
  for (mlir::Operation* covered : claim.covered)
    for (std::string& name : nn::node_names(covered->getLoc())) names.push_back(std::move(name));
  nodes_.push_back(std::move(names));
}

bool Region::add(const Claim& claim) {
  const size_t tensors = graph_.tensors.size(), inputs = graph_.inputs.size(), packed = packed_.size();
  const size_t operations = graph_.operations.size(), copies = copies_.size(), free = free_nodes_.size();
  if (try_add(claim)) return true;
  graph_.tensors.resize(tensors);
  graph_.inputs.resize(inputs);
  graph_.operations.resize(operations);
  nodes_.resize(operations);
  packed_.resize(packed);
  copies_.resize(copies);
  free_nodes_.resize(free);
  nn::NodeOp root = claim.root;
  for (mlir::Value v : root.getOutputs()) produced_.erase(v);
  return false;
}

bool Region::try_add(const Claim& claim) {
  if (const auto* what = std::get_if<ConvolutionClaim>(&claim.what)) return add_convolution(claim, *what);
  if (const auto* what = std::get_if<TransposedClaim>(&claim.what)) return add_transposed(claim, *what);
  if (const auto* what = std::get_if<ProductClaim>(&claim.what)) return add_product(claim, *what);
  if (const auto* what = std::get_if<PoolClaim>(&claim.what)) return add_pool(claim, *what);
  if (const auto* what = std::get_if<ReduceClaim>(&claim.what)) return add_reduce(claim, *what);
  if (const auto* what = std::get_if<TableClaim>(&claim.what)) return add_table(claim, *what);
  if (const auto* what = std::get_if<BinaryClaim>(&claim.what)) return add_binary(claim, *what);
  if (const auto* what = std::get_if<RequantiseClaim>(&claim.what)) return add_requantise(claim, *what);
  if (const auto* what = std::get_if<ConcatClaim>(&claim.what)) return add_concat(claim, *what);
  return add_move(claim, std::get<MoveClaim>(claim.what));
}

bool Region::add_convolution(const Claim& claim, const ConvolutionClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const ops::Shape in = *nn::shape_of(x), out = *nn::shape_of(y);
  Dims from, to;
  Order in_order, out_order;
  if (what.matrix) {
    in_order = identity_order(in.size());
    out_order = identity_order(out.size());
    if (!what.each.empty()) return add_products(claim, what);
    if (what.transposed) std::swap(in_order[0], in_order[1]);
    const int64_t k = in[static_cast<size_t>(in_order.back())];
    from = {1, 1, ops::element_count(in) / k, k};
    to = {1, 1, from[2], ops::element_count(out) / from[2]};
  } else {
    in_order = channels_last_order(in.size());
    out_order = channels_last_order(out.size());
    from = {in[0], in.size() == 4 ? in[2] : 1, in.back(), in[1]};
    to = {out[0], out.size() == 4 ? out[2] : 1, out.back(), out[1]};
  }
  const auto source = operand(claim, x, in_order, from);
  if (!source) return false;
  npu::Convolution conv = what.what;
  conv.input = *source;
  conv.output = result(y, out_order, to);
  push(claim, std::move(conv), claim.macs);
  return true;
}

/// One product for each matrix of the batch, between views of operand and result.
bool Region::add_products(const Claim& claim, const ConvolutionClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const ops::Shape in = *nn::shape_of(x), out = *nn::shape_of(y);
  const int64_t rows = in[in.size() - 2], k = in.back(), n = out.back();
  const int64_t matrices_in = ops::element_count(in) / (rows * k), matrices_out = ops::element_count(out) / (rows * n);
  if (matrices_out > 256) return false;
  const auto source = operand(claim, x, identity_order(in.size()), {1, matrices_in, rows, k});
  if (!source) return false;
  const npu::TensorId whole = result(y, identity_order(out.size()), {1, matrices_out, rows, n});
  const auto view = [&](npu::TensorId of, int64_t row) {
    npu::Tensor part = tensor(of);
    part.reshape_of = npu::kNoTensor;
    part.strided = false;
    part.view_of = of;
    part.view_n = part.view_w = part.view_c = 0;
    part.view_h = row;
    part.h = 1;
    return graph_.add(std::move(part));
  };
  for (int64_t m = 0; m < matrices_out; ++m) {
    // The matrix's index in operand and constant, axes of extent 1 repeated.
    int64_t at[2] = {0, 0}, step[2] = {1, 1}, rest = m;
    for (size_t i = 3; i <= out.size(); ++i) {
      const int64_t index = rest % out[out.size() - i];
      rest /= out[out.size() - i];
      const int64_t extent[2] = {i <= in.size() ? in[in.size() - i] : 1,
                                 i - 2 <= what.batch.size() ? what.batch[what.batch.size() - (i - 2)] : 1};
      for (size_t side = 0; side < 2; ++side) {
        at[side] += extent[side] == 1 ? 0 : index * step[side];
        step[side] *= extent[side];
      }
    }
    npu::Convolution product = what.what;
    product.weights = what.each[static_cast<size_t>(at[1])];
    product.input = view(*source, at[0]);
    product.output = view(whole, m);
    push(claim, std::move(product), std::max<int64_t>(claim.macs / matrices_out, 1));
    if (m > 0) nodes_.back().clear();  // the node counts once
  }
  return true;
}

bool Region::add_pool(const Claim& claim, const PoolClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const ops::Shape in = *nn::shape_of(x), out = *nn::shape_of(y);
  const Order order = what.channels_last ? identity_order(in.size()) : channels_last_order(in.size());
  const auto dims = [&](const ops::Shape& s) {
    const auto at = [&](size_t i) { return s[static_cast<size_t>(order[i])]; };
    return s.size() == 4 ? Dims{at(0), at(1), at(2), at(3)} : Dims{at(0), 1, at(1), at(2)};
  };
  const auto source = operand(claim, x, order, dims(in));
  if (!source) return false;
  npu::Pool pool = what.what;
  pool.input = *source;
  pool.output = result(y, order, dims(out));
  if (what.parts.empty()) {
    push(claim, std::move(pool), 0);
    return true;
  }
  // Boxes of outputs, each on the rows and columns of the image that its windows reach.
  const npu::Pool whole = pool;
  const auto view = [&](npu::TensorId of, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    npu::Tensor part = tensor(of);
    part.reshape_of = npu::kNoTensor;
    part.strided = false;
    part.view_of = of;
    part.view_n = part.view_c = 0;
    part.view_h = row, part.view_w = column;
    part.h = rows, part.w = columns;
    return graph_.add(std::move(part));
  };
  const auto reach = [](int64_t first, int64_t count, int64_t stride, int64_t kernel, int64_t before, int64_t extent) {
    const int64_t begin = first * stride - before, end = (first + count - 1) * stride - before + kernel;
    return std::array<int64_t, 3>{std::max<int64_t>(begin, 0), std::min(end, extent), std::max<int64_t>(-begin, 0)};
  };
  for (const PoolClaim::Part& part : what.parts) {
    const auto [top, bottom, above] =
        reach(part.row, part.rows, whole.stride_h, whole.kernel_h, whole.pads.top, tensor(whole.input).h);
    const auto [left, right, beside] =
        reach(part.column, part.columns, whole.stride_w, whole.kernel_w, whole.pads.left, tensor(whole.input).w);
    pool = whole;
    pool.stage = part.stage;
    pool.pads = {above, beside, 0, 0};
    pool.input = view(whole.input, top, bottom - top, left, right - left);
    pool.output = view(whole.output, part.row, part.rows, part.column, part.columns);
    push(claim, pool, 0);
    if (&part != &what.parts.front()) nodes_.back().clear();  // the node counts once
  }
  return true;
}

bool Region::add_reduce(const Claim& claim, const ReduceClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const ops::Shape in = *nn::shape_of(x), out = *nn::shape_of(y);
  // Kept axes but the fastest, the reduced ones, the fastest kept axis as channels.
  Order kept, order;
  const Order memory = order_of(x).value_or(channels_last_order(in.size()));
  for (const int64_t axis : memory)
    if (!what.reduced[static_cast<size_t>(axis)]) kept.push_back(axis);
  int64_t channel = -1;
  for (const int64_t axis : kept)
    if (in[static_cast<size_t>(axis)] > 1) channel = axis;
  Dims from{1, 1, 1, 1};
  for (const int64_t axis : kept) {
    if (axis == channel) continue;
    order.push_back(axis);
    from[0] *= in[static_cast<size_t>(axis)];
  }
  for (const int64_t axis : memory) {
    if (!what.reduced[static_cast<size_t>(axis)]) continue;
    order.push_back(axis);
    // The last reduced axis is columns, all before it rows.
    from[1] *= from[2];
    from[2] = in[static_cast<size_t>(axis)];
  }
  if (channel >= 0) {
    order.push_back(channel);
    from[3] = in[static_cast<size_t>(channel)];
  }
  const auto source = operand(claim, x, order, from);
  if (!source) return false;
  // The result has the kept axes in the same order, reduced ones of extent 1 or gone.
  Order result_order;
  if (out.size() == in.size()) {
    result_order = order;
  } else {
    for (const int64_t axis : order) {
      if (what.reduced[static_cast<size_t>(axis)]) continue;
      int64_t before = 0;
      for (int64_t a = 0; a < axis; ++a) before += what.reduced[static_cast<size_t>(a)] ? 0 : 1;
      result_order.push_back(before);
    }
  }
  npu::Pool pool;
  pool.kind = what.kind;
  pool.kernel_h = from[1];
  pool.kernel_w = from[2];
  pool.stage = what.stage;
  pool.pad_value = what.zero;
  pool.input = *source;
  pool.output = result(y, result_order, {from[0], 1, 1, from[3]});
  push(claim, std::move(pool), 0);
  return true;
}

bool Region::add_table(const Claim& claim, const TableClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const ops::Shape shape = *nn::shape_of(y);
  const Device from = device_of(x);
  const Order order = from.layout.order();
  const bool same =
      from.layout == Layout::dense(shape, order) && tensor(from.tensor).elements() == ops::element_count(shape);
  npu::Stage stage;
  stage.table = what.table;
  stage.table_unsigned = is_unsigned(y);
  result(y, order, same ? dims_of(from.tensor) : collapse(shape, order));
  const size_t operations = graph_.operations.size();
  if (!copy(claim, from, produced_.at(y), stage)) return false;
  for (size_t i = operations + 1; i < nodes_.size(); ++i) nodes_[i].clear();  // the node counts once
  return true;
}

bool Region::add_binary(const Claim& claim, const BinaryClaim& what) {
  mlir::Value y = claim.result();
  const ops::Shape out = *nn::shape_of(y);
  const size_t rank = out.size();
  // The order of an operand that is already here; a broadcast operand takes the other's.
  Order order = packing_order(y);
  for (mlir::Value v : claim.operands)
    if (const auto known = order_of(v); known && known->size() == rank && nn::shape_of(v) == out) order = *known;
  // Broadcast axes stay visible: at most four groups of neighbouring axes on which both operands agree.
  ops::Shape wide[2];
  for (size_t i = 0; i < 2; ++i) {
    wide[i] = *nn::shape_of(claim.operands[i]);
    wide[i].insert(wide[i].begin(), rank - wide[i].size(), 1);
  }
  struct Group {
    int64_t out = 1, in[2] = {1, 1};
  };
  std::vector<Group> groups;
  for (int64_t axis : order) {
    const auto a = static_cast<size_t>(axis);
    if (out[a] == 1) continue;
    Group next{out[a], {wide[0][a], wide[1][a]}};
    const auto kind = [](const Group& g) { return std::pair(g.in[0] == g.out, g.in[1] == g.out); };
    if (!groups.empty() && groups.size() >= 1 && kind(groups.back()) == kind(next) && groups.size() > 3) {
      groups.back().out *= next.out;
      for (size_t i = 0; i < 2; ++i) groups.back().in[i] *= next.in[i];
    } else {
      groups.push_back(next);
    }
  }
  // Too many: merge equal neighbours from the slowest on, the channel stays on its own as long as it can.
  for (size_t i = 0; groups.size() > 4 && i + 1 < groups.size();) {
    Group &a = groups[i], &b = groups[i + 1];
    if ((a.in[0] == a.out) == (b.in[0] == b.out) && (a.in[1] == a.out) == (b.in[1] == b.out)) {
      b.out *= a.out;
      for (size_t k = 0; k < 2; ++k) b.in[k] *= a.in[k];
      groups.erase(groups.begin() + static_cast<int64_t>(i));
    } else {
      ++i;
    }
  }
  if (groups.size() > 4) return false;
  while (groups.size() < 4) groups.insert(groups.begin(), Group{});
  const auto dims = [&](auto get) { return Dims{get(groups[0]), get(groups[1]), get(groups[2]), get(groups[3])}; };
  std::optional<npu::TensorId> sources[2];
  for (size_t i = 0; i < 2; ++i) {
    mlir::Value v = claim.operands[i];
    const ops::Shape shape = *nn::shape_of(v);
    Order own;
    const auto missing = static_cast<int64_t>(rank - shape.size());
    for (int64_t axis : order)
      if (axis >= missing) own.push_back(axis - missing);
    sources[i] = operand(claim, v, own, dims([i](const Group& g) { return g.in[i]; }));
    if (!sources[i]) return false;
  }
  if (!what.y_table.empty()) {
    npu::Elementwise table;
    table.input = *sources[1];
    table.stage.table = what.y_table;
    table.stage.table_unsigned = is_unsigned(y);
    sources[1] = table.output =
        fresh(nn::value_name(claim.operands[1]) + ".table", dims_of(*sources[1]), is_unsigned(y), 1);
    push(claim, std::move(table), 0);
    nodes_.back().clear();  // the node counts once
  }
  npu::Elementwise e;
  e.input = *sources[0];
  if (!what.x_table.empty()) {
    e.stage.table = what.x_table;
    e.stage.table_unsigned = is_unsigned(y);
  }
  e.stage.second = what.second;
  e.stage.second->tensor = *sources[1];
  e.output = result(y, order, dims([](const Group& g) { return g.out; }));
  push(claim, std::move(e), 0);
  return true;
}

bool Region::add_requantise(const Claim& claim, const RequantiseClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const ops::Shape shape = *nn::shape_of(y);
  const bool last = what.channel_axis + 1 == static_cast<int64_t>(shape.size());
  const Order order = order_of(x).value_or(last                     ? identity_order(shape.size())
                                           : what.channel_axis >= 0 ? channels_last_order(shape.size())
                                                                    : packing_order(y));
  if (what.channel_axis >= 0 && order.back() != what.channel_axis) return false;
  const Dims dims = collapse(shape, order);
  const auto source = operand(claim, x, order, dims);
  if (!source) return false;
  npu::TensorId smaller = npu::kNoTensor;
  if (what.other) {
    npu::Tensor tensor;
    tensor.name = nn::value_name(y) + ".leaky";
    tensor.n = dims[0], tensor.h = dims[1], tensor.w = dims[2], tensor.c = dims[3];
    tensor.is_unsigned = is_unsigned(y);
    smaller = graph_.add(std::move(tensor));
    npu::Elementwise e;
    e.input = *source;
    e.output = smaller;
    e.stage = *what.other;
    push(claim, std::move(e), 0);
    nodes_.back().clear();  // the node counts once
  }
  npu::Elementwise e;
  e.input = *source;
  e.stage = what.stage;
  if (what.other) {
    npu::SecondOperation larger;
    larger.kind = npu::SecondOperation::Kind::kMax;
    larger.tensor = smaller;
    larger.low = is_unsigned(y) ? 0 : -128;
    larger.high = is_unsigned(y) ? 255 : 127;
    e.stage.second = larger;
  }
  e.output = result(y, order, dims);
  push(claim, std::move(e), 0);
  return true;
}

bool Region::add_concat(const Claim& claim, const ConcatClaim& what) {
  mlir::Value y = claim.result();
  const ops::Shape out = *nn::shape_of(y);
  // The order of an operand that is here, as it is after its own movements.
  const size_t before = graph_.operations.size();
  Order order = packing_order(y);
  std::vector<std::optional<Device>> sources(claim.operands.size());
  for (size_t i = 0; i < sources.size(); ++i) {
    mlir::Value v = claim.operands[i];
    if (!what.steps.empty() && !what.steps[i].empty()) {
      sources[i] = device_of(v);
      for (const Move& step : what.steps[i])
        if (sources[i]) sources[i] = moved(claim, *sources[i], step, nn::value_name(v));
      if (!sources[i]) return false;
    } else if (produces(v) || order_of(v)) {
      sources[i] = device_of(v);
    }
    if (sources[i]) order = sources[i]->layout.order();
  }
  const auto axis = static_cast<size_t>(what.axis);
  result(y, order, collapse(out, order));
  const Device whole = produced_.at(y);
  int64_t at = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (!sources[i] || !produces(claim.operands[i])) {
      // A host value that is not moved is packed in the order of the result.
      if (what.steps.empty() || what.steps[i].empty()) sources[i] = device_of(claim.operands[i], order);
    }
    const Device* source = &*sources[i];
    const Extents shape = source->layout.shape();
    Device part = whole;
    part.layout = *slice(whole.layout, axis, at, shape[axis], 1);
    at += shape[axis];
    npu::Stage stage = what.stages.empty() ? npu::Stage{} : what.stages[i];
    if (!what.tables[i].empty()) stage.table = what.tables[i];
    stage.table_unsigned = stage.table && is_unsigned(y);
    if (!copy(claim, *source, part, stage)) return false;
  }
  for (size_t i = before + 1; i < nodes_.size(); ++i) nodes_[i].clear();  // the node counts once
  return true;
}

Region::Result Region::finish(const std::vector<mlir::Value>& outputs) && {
  Result r;
  for (const auto& [value, device] : packed_) {
    auto binding = bind(value, device);
    TESSERA_INVARIANT(binding.has_value(), "a packed value has strides");
    r.inputs.push_back(std::move(*binding));
  }
  for (mlir::Value value : outputs) {
    Device device = produced_.at(value);
    auto binding = bind(value, device);
    if (!binding) {
      // No four strides reach it: the host takes a copy.
      Claim copy;
      copy.name = nn::value_name(value);
      copy.kind = "Copy";
      const auto ordered = copied(copy, device, copy.name, device.layout.order());
      TESSERA_INVARIANT(ordered.has_value(), "region outputs can be copied");
      device = *ordered;
      binding = bind(value, device);
      TESSERA_INVARIANT(binding.has_value(), "a copy has strides");
    }
    r.outputs.push_back(std::move(*binding));
    graph_.outputs.push_back(r.outputs.back().tensor);
  }
  std::sort(graph_.outputs.begin(), graph_.outputs.end());
  graph_.outputs.erase(std::unique(graph_.outputs.begin(), graph_.outputs.end()), graph_.outputs.end());
  r.nodes = std::move(nodes_);
  r.free_nodes = std::move(free_nodes_);
  r.graph = std::move(graph_);
  fold_layout(r.graph, r.nodes);
  fuse(r.graph, r.nodes);
  fold_layout(r.graph, r.nodes);
  // A first layer with few channels is packed by layout; its input then carries a border instead of pads.
  for (const npu::TensorId id : r.graph.inputs) {
    const npu::Convolution* only = nullptr;
    size_t uses = 0;
    for (const npu::Tensor& t : r.graph.tensors) uses += t.reshape_of == id || t.view_of == id ? 1 : 0;
    for (const npu::Operation& operation : r.graph.operations) {
      const npu::Uses used = npu::uses_of(operation);
      uses += static_cast<size_t>(std::count(used.read.begin(), used.read.end(), id));
      if (const auto* conv = std::get_if<npu::Convolution>(&operation.what); conv && conv->input == id) only = conv;
    }
    if (uses != 1 || !only) continue;
    npu::Tensor& tensor = r.graph.tensors[static_cast<size_t>(id)];
    tensor.border = npu::folding_border(tensor, *only, r.graph.tensors[static_cast<size_t>(only->output)].c, config_);
  }
  return r;
}

}  // namespace tessera::partition
