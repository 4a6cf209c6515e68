// SPDX-License-Identifier: Apache-2.0
// Memory orders and shapes of values on the device; see region.h. Every add_* first finds its operands (which may
// create packed inputs and aliases) and returns false before it pushes an operation, so that undoing is a matter of
// truncation.
#include "compiler/partition/region.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace tessera::partition {
namespace {

std::vector<int64_t> identity(size_t rank) {
  std::vector<int64_t> order(rank);
  std::iota(order.begin(), order.end(), 0);
  return order;
}

/// n, spatial axes, c.
std::vector<int64_t> channels_last(size_t rank) {
  std::vector<int64_t> order = identity(rank);
  if (rank >= 3) {
    order.erase(order.begin() + 1);
    order.push_back(1);
  }
  return order;
}

bool is_unsigned(mlir::Value value) { return nn::dtype_of(value) == ops::DType::kUint8; }
int32_t element_bytes(mlir::Value value) { return static_cast<int32_t>(ops::element_bytes(nn::dtype_of(value))); }

}  // namespace

Region::Order Region::significant(const ops::Shape& shape, const Order& order) {
  Order out;
  for (int64_t axis : order)
    if (shape[static_cast<size_t>(axis)] != 1) out.push_back(axis);
  return out;
}

/// The last three axes in memory become h, w and c, all before them n.
Region::Dims Region::collapse(const ops::Shape& shape, const Order& order) {
  int64_t d[4] = {1, 1, 1, 1};
  for (size_t i = 0; i < order.size(); ++i) {
    const size_t from_end = order.size() - 1 - i;
    d[from_end > 3 ? 0 : 3 - from_end] *= shape[static_cast<size_t>(order[i])];
  }
  return {d[0], d[1], d[2], d[3]};
}

std::optional<Region::Order> Region::order_of(mlir::Value value) const {
  const auto found = produced_.find(value);
  if (found != produced_.end()) return found->second.order;
  for (const auto& [host, device] : packed_)
    if (host == value) return device.order;
  return std::nullopt;
}

npu::TensorId Region::reshaped(npu::TensorId base, const Dims& dims) {
  const npu::Tensor& parent = graph_.tensors[static_cast<size_t>(base)];
  if (Dims{parent.n, parent.h, parent.w, parent.c} == dims) return base;
  npu::Tensor alias;
  alias.name = parent.name;
  alias.n = dims.n, alias.h = dims.h, alias.w = dims.w, alias.c = dims.c;
  alias.is_unsigned = parent.is_unsigned;
  alias.element_bytes = parent.element_bytes;
  alias.reshape_of = parent.reshape_of == npu::kNoTensor ? base : parent.reshape_of;
  return graph_.add(std::move(alias));
}

std::optional<npu::TensorId> Region::operand(mlir::Value value, const Order& order, const Dims& dims) {
  const ops::Shape shape = *nn::shape_of(value);
  const auto found = produced_.find(value);
  if (found != produced_.end()) {
    if (significant(shape, found->second.order) != significant(shape, order)) return std::nullopt;
    return reshaped(found->second.tensor, dims);
  }
  for (const auto& [host, device] : packed_)
    if (host == value && significant(shape, device.order) == significant(shape, order))
      return reshaped(device.tensor, dims);
  npu::Tensor tensor;
  tensor.name = nn::value_name(value);
  tensor.n = dims.n, tensor.h = dims.h, tensor.w = dims.w, tensor.c = dims.c;
  tensor.is_unsigned = is_unsigned(value);
  tensor.element_bytes = element_bytes(value);
  const npu::TensorId id = graph_.add(std::move(tensor));
  graph_.inputs.push_back(id);
  packed_.emplace_back(value, Device{id, shape, order});
  return id;
}

npu::TensorId Region::result(mlir::Value value, const Order& order, const Dims& dims) {
  npu::Tensor tensor;
  tensor.name = nn::value_name(value);
  tensor.n = dims.n, tensor.h = dims.h, tensor.w = dims.w, tensor.c = dims.c;
  tensor.is_unsigned = is_unsigned(value);
  tensor.element_bytes = element_bytes(value);
  const npu::TensorId id = graph_.add(std::move(tensor));
  produced_[value] = Device{id, *nn::shape_of(value), order};
  return id;
}

void Region::push(const Claim& claim, std::variant<npu::Convolution, npu::Pool, npu::Elementwise> what, int64_t macs) {
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
  if (try_add(claim)) return true;
  graph_.tensors.resize(tensors);
  graph_.inputs.resize(inputs);
  packed_.resize(packed);
  return false;
}

bool Region::try_add(const Claim& claim) {
  if (const auto* what = std::get_if<ConvolutionClaim>(&claim.what)) return add_convolution(claim, *what);
  if (const auto* what = std::get_if<PoolClaim>(&claim.what)) return add_pool(claim, *what);
  if (const auto* what = std::get_if<TableClaim>(&claim.what)) return add_table(claim, *what);
  if (const auto* what = std::get_if<BinaryClaim>(&claim.what)) return add_binary(claim, *what);
  if (const auto* what = std::get_if<RequantiseClaim>(&claim.what)) return add_requantise(claim, *what);
  if (const auto* what = std::get_if<ConcatClaim>(&claim.what)) return add_concat(claim, *what);
  return add_alias(claim, std::get<AliasClaim>(claim.what));
}

bool Region::add_convolution(const Claim& claim, const ConvolutionClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const ops::Shape in = *nn::shape_of(x), out = *nn::shape_of(y);
  Dims from, to;
  Order in_order, out_order;
  if (what.matrix) {
    in_order = identity(in.size());
    out_order = identity(out.size());
    from = {1, 1, ops::element_count(in) / in.back(), in.back()};
    to = {1, 1, from.w, ops::element_count(out) / from.w};
  } else {
    in_order = channels_last(in.size());
    out_order = channels_last(out.size());
    from = {in[0], in.size() == 4 ? in[2] : 1, in.back(), in[1]};
    to = {out[0], out.size() == 4 ? out[2] : 1, out.back(), out[1]};
  }
  const auto source = operand(x, in_order, from);
  if (!source) return false;
  npu::Convolution conv = what.what;
  conv.input = *source;
  conv.output = result(y, out_order, to);
  push(claim, std::move(conv), claim.macs);
  return true;
}

bool Region::add_pool(const Claim& claim, const PoolClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const ops::Shape in = *nn::shape_of(x), out = *nn::shape_of(y);
  const Order order = what.channels_last ? identity(in.size()) : channels_last(in.size());
  const auto dims = [&](const ops::Shape& s) {
    const auto at = [&](size_t i) { return s[static_cast<size_t>(order[i])]; };
    return s.size() == 4 ? Dims{at(0), at(1), at(2), at(3)} : Dims{at(0), 1, at(1), at(2)};
  };
  const auto source = operand(x, order, dims(in));
  if (!source) return false;
  npu::Pool pool = what.what;
  pool.input = *source;
  pool.output = result(y, order, dims(out));
  push(claim, std::move(pool), 0);
  return true;
}

bool Region::add_table(const Claim& claim, const TableClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const ops::Shape shape = *nn::shape_of(y);
  const Order order = order_of(x).value_or(channels_last(shape.size()));
  const Dims dims = collapse(shape, order);
  const auto source = operand(x, order, dims);
  if (!source) return false;
  npu::Elementwise e;
  e.input = *source;
  e.stage.table = what.table;
  e.stage.table_unsigned = is_unsigned(y);
  e.output = result(y, order, dims);
  push(claim, std::move(e), 0);
  return true;
}

bool Region::add_binary(const Claim& claim, const BinaryClaim& what) {
  mlir::Value y = claim.result();
  const ops::Shape out = *nn::shape_of(y);
  const size_t rank = out.size();
  // The order of an operand that is already here; a broadcast operand takes the other's.
  Order order = channels_last(rank);
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
    sources[i] = operand(v, own, dims([i](const Group& g) { return g.in[i]; }));
    if (!sources[i]) return false;
  }
  npu::Elementwise e;
  e.input = *sources[0];
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
  const Order order = order_of(x).value_or(last ? identity(shape.size()) : channels_last(shape.size()));
  if (what.channel_axis >= 0 && order.back() != what.channel_axis) return false;
  const Dims dims = collapse(shape, order);
  const auto source = operand(x, order, dims);
  if (!source) return false;
  npu::TensorId smaller = npu::kNoTensor;
  if (what.other) {
    npu::Tensor tensor;
    tensor.name = nn::value_name(y) + ".leaky";
    tensor.n = dims.n, tensor.h = dims.h, tensor.w = dims.w, tensor.c = dims.c;
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
  Order order = channels_last(out.size());
  for (mlir::Value v : claim.operands)
    if (const auto known = order_of(v)) order = *known;
  const size_t place = static_cast<size_t>(std::find(order.begin(), order.end(), what.axis) - order.begin());
  // Axes before the concatenated one form n, those behind it c (or h of a tensor that is concatenated along its fastest
  // axis).
  const auto dims = [&](const ops::Shape& s) {
    int64_t before = 1, behind = 1;
    for (size_t i = 0; i < place; ++i) before *= s[static_cast<size_t>(order[i])];
    for (size_t i = place + 1; i < order.size(); ++i) behind *= s[static_cast<size_t>(order[i])];
    const int64_t middle = s[static_cast<size_t>(what.axis)];
    return behind == 1 ? Dims{1, 1, before, middle} : Dims{1, before, middle, behind};
  };
  int64_t behind_axis = 1;
  for (size_t i = place + 1; i < order.size(); ++i) behind_axis *= out[static_cast<size_t>(order[i])];
  const bool as_channel = behind_axis == 1;
  std::vector<npu::TensorId> sources;
  for (mlir::Value v : claim.operands) {
    const auto source = operand(v, order, dims(*nn::shape_of(v)));
    if (!source) return false;
    sources.push_back(*source);
  }
  const npu::TensorId whole = result(y, order, dims(out));
  int64_t at = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    const Dims part = dims(*nn::shape_of(claim.operands[i]));
    npu::Tensor view;
    view.name = graph_.tensors[static_cast<size_t>(whole)].name;
    view.n = part.n, view.h = part.h, view.w = part.w, view.c = part.c;
    view.is_unsigned = is_unsigned(y);
    view.view_of = whole;
    (as_channel ? view.view_c : view.view_w) = at;
    at += as_channel ? part.c : part.w;
    npu::Elementwise e;
    e.input = sources[i];
    if (!what.tables[i].empty()) e.stage.table = what.tables[i];
    e.stage.table_unsigned = e.stage.table && is_unsigned(y);
    e.output = graph_.add(std::move(view));
    push(claim, std::move(e), 0);
    if (i > 0) nodes_.back().clear();  // the node counts once
  }
  return true;
}

bool Region::add_alias(const Claim& claim, const AliasClaim& what) {
  mlir::Value x = claim.operands[0], y = claim.result();
  const auto found = produced_.find(x);
  if (found == produced_.end()) return false;  // on the host it is a copy of its own
  const Device from = found->second;
  Order order;
  if (what.permutation.empty()) {
    // A reshape keeps the model's order of elements: memory must already have it.
    if (significant(from.shape, from.order) != significant(from.shape, identity(from.shape.size()))) return false;
    order = identity(nn::shape_of(y)->size());
  } else {
    // Axis j of the result is axis permutation[j] of the source: memory stays as it is.
    std::vector<int64_t> inverse(what.permutation.size());
    for (size_t j = 0; j < inverse.size(); ++j)
      inverse[static_cast<size_t>(what.permutation[j])] = static_cast<int64_t>(j);
    for (int64_t axis : from.order) order.push_back(inverse[static_cast<size_t>(axis)]);
  }
  produced_[y] = Device{from.tensor, *nn::shape_of(y), order};
  return true;
}

Region::Result Region::finish(const std::vector<mlir::Value>& outputs) && {
  Result r;
  // Device axes of a value: walks its axes from the fastest and fills c, w, h, n. Nothing when an axis would span two
  // of them.
  const auto axes_of = [&](const Device& device, const Dims& dims) -> std::optional<std::vector<int64_t>> {
    const int64_t extents[4] = {dims.n, dims.h, dims.w, dims.c};
    std::vector<int64_t> axes(device.shape.size(), 0);
    int64_t filled = 1;
    size_t d = 3;
    for (size_t i = device.order.size(); i-- > 0;) {
      const auto axis = static_cast<size_t>(device.order[i]);
      while (d > 0 && filled == extents[d] && device.shape[axis] != 1) {
        --d;
        filled = 1;
      }
      axes[axis] = static_cast<int64_t>(d);
      filled *= device.shape[axis];
      if (filled > extents[d]) return std::nullopt;
    }
    if (filled != extents[d]) return std::nullopt;
    for (size_t rest = 0; rest < d; ++rest)
      if (extents[rest] != 1) return std::nullopt;
    return axes;
  };
  const auto bind = [&](mlir::Value value, const Device& device) {
    const npu::Tensor& t = graph_.tensors[static_cast<size_t>(device.tensor)];
    if (auto axes = axes_of(device, {t.n, t.h, t.w, t.c})) return Binding{value, device.tensor, std::move(*axes)};
    // A reshape that cuts the axes elsewhere: the same bytes in the value's own extents.
    const Dims own = collapse(device.shape, device.order);
    auto axes = axes_of(device, own);
    TESSERA_INVARIANT(axes.has_value(), "a value's own extents hold it");
    return Binding{value, reshaped(device.tensor, own), std::move(*axes)};
  };
  for (const auto& [value, device] : packed_) r.inputs.push_back(bind(value, device));
  for (mlir::Value value : outputs) {
    const Device& device = produced_.at(value);
    r.outputs.push_back(bind(value, device));
    graph_.outputs.push_back(device.tensor);
  }
  std::sort(graph_.outputs.begin(), graph_.outputs.end());
  graph_.outputs.erase(std::unique(graph_.outputs.begin(), graph_.outputs.end()), graph_.outputs.end());
  r.nodes = std::move(nodes_);
  r.graph = std::move(graph_);
  fuse(r.graph, r.nodes);
  // A first layer with few channels is packed by layout; its input then carries a border instead of pads.
  for (const npu::TensorId id : r.graph.inputs) {
    const npu::Convolution* only = nullptr;
    size_t uses = 0;
    for (const npu::Tensor& t : r.graph.tensors) uses += t.reshape_of == id || t.view_of == id ? 1 : 0;
    for (const npu::Operation& operation : r.graph.operations) {
      const auto count = [&](npu::TensorId input, const npu::Stage& stage) {
        uses += (input == id) + (stage.second && stage.second->tensor == id);
      };
      if (const auto* conv = std::get_if<npu::Convolution>(&operation.what)) {
        count(conv->input, conv->stage);
        if (conv->input == id) only = conv;
      } else if (const auto* pool = std::get_if<npu::Pool>(&operation.what)) {
        count(pool->input, pool->stage);
      } else if (const auto* e = std::get_if<npu::Elementwise>(&operation.what)) {
        count(e->input, e->stage);
      }
    }
    if (uses != 1 || !only) continue;
    npu::Tensor& tensor = r.graph.tensors[static_cast<size_t>(id)];
    tensor.border = npu::folding_border(tensor, *only, r.graph.tensors[static_cast<size_t>(only->output)].c, config_);
  }
  return r;
}

}  // namespace tessera::partition
