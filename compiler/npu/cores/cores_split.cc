// SPDX-License-Identifier: Apache-2.0
#include "compiler/npu/cores/cores_split.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <type_traits>

#include "base/error.h"
#include "compiler/npu/graph/plan.h"
#include "compiler/npu/lowering/chain.h"

namespace tessera::npu {

namespace {

const Tensor& tensor_of(const Graph& graph, TensorId id) { return graph.tensors[static_cast<size_t>(id)]; }

std::array<int64_t, 4> extents_of(const Tensor& t) { return {t.n, t.h, t.w, t.c}; }

/// What a second operand, or a broadcast input, gives to a box of results.
Box broadcast(const Tensor& operand, const Box& results) {
  Box box = results;
  const auto extents = extents_of(operand);
  for (size_t axis = 0; axis < 4; ++axis)
    if (extents[axis] == 1) box.begin[axis] = 0, box.extent[axis] = 1;
  return box;
}

/// The lines of the input that windows of some results cover, and how many of them are padding.
struct Window {
  int64_t begin = 0, end = 0, before = 0, after = 0;
};

Window window_of(int64_t begin, int64_t extent, int64_t stride, int64_t dilation, int64_t kernel, int64_t pad,
                 int64_t size) {
  Window window;
  const int64_t first = begin * stride - pad;
  const int64_t last = (begin + extent - 1) * stride - pad + (kernel - 1) * dilation + 1;
  window.begin = std::clamp<int64_t>(first, 0, size);
  window.end = std::clamp<int64_t>(last, 0, size);
  window.before = std::max<int64_t>(0, -first);
  window.after = std::max<int64_t>(0, last - size);
  return window;
}

/// Rows and columns. All results of an axis have all of the input and the padding that the operation says.
template <typename Op>
std::pair<Window, Window> windows_of(const Graph& graph, const Op& op, const Box& results) {
  const Tensor& input = tensor_of(graph, op.input);
  const Tensor& output = tensor_of(graph, op.output);
  Window rows{0, input.h, op.pads.top, op.pads.bottom}, columns{0, input.w, op.pads.left, op.pads.right};
  if (results.extent[kRows] != output.h)
    rows = window_of(results.begin[kRows], results.extent[kRows], op.stride_h, op.dilation_h, op.kernel_h, op.pads.top,
                     input.h);
  if (results.extent[kColumns] != output.w)
    columns = window_of(results.begin[kColumns], results.extent[kColumns], op.stride_w, op.dilation_w, op.kernel_w,
                        op.pads.left, input.w);
  return {rows, columns};
}

template <typename Op>
constexpr bool kIsWindow = std::is_same_v<Op, Convolution> || std::is_same_v<Op, Pool>;

/// The elements of a list that has one for each channel, or one for all.
template <typename Value>
std::vector<Value> sliced(const std::vector<Value>& values, const Box& results) {
  if (values.size() <= 1) return values;
  const auto first = values.begin() + results.begin[kChannels];
  return {first, first + results.extent[kChannels]};
}

/// Output channels that are computed together: of a group, where there is more than one.
int64_t channels_together(const Graph& graph, const Operation& operation) {
  const auto* op = std::get_if<Convolution>(&operation.what);
  if (op != nullptr) return op->groups == 1 ? 1 : tensor_of(graph, op->output).c / op->groups;
  if (std::holds_alternative<Rows>(operation.what) || std::holds_alternative<Kernel>(operation.what))
    return tensor_of(graph, written_by(operation)).c;
  return 1;
}

/// Results along each axis that are computed together.
std::array<int64_t, 4> together(const Graph& graph, const Operation& operation) {
  std::array<int64_t, 4> units{1, 1, 1, channels_together(graph, operation)};
  if (const auto* op = std::get_if<Elementwise>(&operation.what))
    units[kRows] = op->repeat_h, units[kColumns] = op->repeat_w;
  return units;
}

TensorId input_of(const Operation& operation) {
  return std::visit([](const auto& op) { return op.input; }, operation.what);
}

Stage stage_of(const Stage& stage, const Box& results, const std::vector<TensorId>& operands) {
  Stage part = stage;
  part.bias = sliced(stage.bias, results);
  part.multiplier = sliced(stage.multiplier, results);
  if (part.second) part.second->tensor = operands.back();
  return part;
}

}  // namespace

Box whole_box(const Tensor& tensor) { return {{}, extents_of(tensor)}; }

bool covers(const Box& outer, const Box& inner) {
  if (inner.empty()) return true;
  for (size_t axis = 0; axis < 4; ++axis)
    if (inner.begin[axis] < outer.begin[axis] || inner.end(axis) > outer.end(axis)) return false;
  return true;
}

Box hull(const Box& a, const Box& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  Box both;
  for (size_t axis = 0; axis < 4; ++axis) {
    both.begin[axis] = std::min(a.begin[axis], b.begin[axis]);
    both.extent[axis] = std::max(a.end(axis), b.end(axis)) - both.begin[axis];
  }
  return both;
}

Box share_of(const Tensor& result, const Division& division, size_t core) {
  Box box = whole_box(result);
  if (!division.axis) return core == division.core ? box : Box();
  box.begin[*division.axis] = core == 0 ? 0 : division.ends[core - 1];
  box.extent[*division.axis] = division.ends[core] - box.begin[*division.axis];
  return box.empty() ? Box() : box;
}

Box computable(const Graph& graph, const Operation& operation, const Box& results) {
  if (results.empty()) return results;
  if (std::holds_alternative<Kernel>(operation.what)) return whole_box(tensor_of(graph, written_by(operation)));
  const std::array<int64_t, 4> units = together(graph, operation);
  Box box = results;
  for (size_t axis = 0; axis < 4; ++axis) {
    box.begin[axis] = results.begin[axis] / units[axis] * units[axis];
    box.extent[axis] = (results.end(axis) + units[axis] - 1) / units[axis] * units[axis] - box.begin[axis];
  }
  return box;
}

bool find_reads(const Graph& graph, const Operation& operation, const Box& results, Reads& reads) {
  reads.clear();
  const Tensor& input = tensor_of(graph, input_of(operation));
  Box box = results;
  bool inside = true;
  std::visit(
      [&](const auto& op) {
        using Op = std::decay_t<decltype(op)>;
        if constexpr (kIsWindow<Op>) {
          const auto [rows, columns] = windows_of(graph, op, results);
          inside = rows.begin < rows.end && columns.begin < columns.end;
          box.begin[kRows] = rows.begin, box.extent[kRows] = rows.end - rows.begin;
          box.begin[kColumns] = columns.begin, box.extent[kColumns] = columns.end - columns.begin;
        }
        if constexpr (std::is_same_v<Op, Convolution>) {
          const int64_t in = input.c / op.groups, out = tensor_of(graph, op.output).c / op.groups;
          box.begin[kChannels] = op.groups == 1 ? 0 : results.begin[kChannels] / out * in;
          box.extent[kChannels] = op.groups == 1 ? input.c : results.extent[kChannels] / out * in;
        }
        if constexpr (std::is_same_v<Op, Elementwise>) {
          box = broadcast(input, results);
          for (const auto& [axis, repeat] : {std::pair{kRows, op.repeat_h}, std::pair{kColumns, op.repeat_w}}) {
            if (repeat == 1) continue;
            box.begin[axis] = results.begin[axis] / repeat;
            box.extent[axis] = results.extent[axis] / repeat;
          }
        }
        if constexpr (std::is_same_v<Op, Product>) {
          box = broadcast(input, results);
          box.begin[kColumns] = results.begin[kColumns], box.extent[kColumns] = results.extent[kColumns];
          box.begin[kChannels] = 0, box.extent[kChannels] = input.c;
        }
        if constexpr (std::is_same_v<Op, Transposition>) {
          std::swap(box.begin[kColumns], box.begin[kChannels]);
          std::swap(box.extent[kColumns], box.extent[kChannels]);
        }
        if constexpr (std::is_same_v<Op, Rows>) box.begin[kChannels] = 0, box.extent[kChannels] = input.c;
        if constexpr (std::is_same_v<Op, Kernel>) box = whole_box(input);
        reads.emplace_back(op.input, box);
        if constexpr (std::is_same_v<Op, Product>) {
          const Tensor& factor = tensor_of(graph, op.factor);
          Box matrix = broadcast(factor, results);
          const size_t columns = op.transposed ? kColumns : kChannels, inner = op.transposed ? kChannels : kColumns;
          matrix.begin[columns] = results.begin[kChannels], matrix.extent[columns] = results.extent[kChannels];
          matrix.begin[inner] = 0, matrix.extent[inner] = input.c;
          reads.emplace_back(op.factor, matrix);
        }
        if constexpr (std::is_same_v<Op, Kernel>)
          for (const TensorId more : op.more) reads.emplace_back(more, whole_box(tensor_of(graph, more)));
        if (op.stage.second)
          reads.emplace_back(op.stage.second->tensor, broadcast(tensor_of(graph, op.stage.second->tensor), results));
      },
      operation.what);
  return inside;
}

Reads reads_of(const Graph& graph, const Operation& operation, const Box& results) {
  Reads reads;
  TESSERA_INVARIANT(find_reads(graph, operation, results, reads), "a share whose window lies inside of the input");
  return reads;
}

namespace {

Padding padding_of(const Window& rows, const Window& columns) {
  return {rows.before, columns.before, rows.after, columns.after};
}

Convolution part_of(const Graph& graph, const Convolution& op, const Box& results,
                    const std::vector<TensorId>& operands) {
  const auto [rows, columns] = windows_of(graph, op, results);
  Convolution part;
  part.kernel_h = op.kernel_h, part.kernel_w = op.kernel_w;
  part.stride_h = op.stride_h, part.stride_w = op.stride_w;
  part.dilation_h = op.dilation_h, part.dilation_w = op.dilation_w;
  part.pads = padding_of(rows, columns);
  const int64_t out = tensor_of(graph, op.output).c;
  part.groups = op.groups == 1 ? 1 : results.extent[kChannels] / (out / op.groups);
  part.input_zero = op.input_zero;
  const auto each = static_cast<int64_t>(op.weights.size()) / out;
  const auto first = op.weights.begin() + results.begin[kChannels] * each;
  part.weights.assign(first, first + results.extent[kChannels] * each);
  part.weight_zero = sliced(op.weight_zero, results);
  part.stage = stage_of(op.stage, results, operands);
  return part;
}

template <typename Op>
Op part_of(const Graph& graph, const Op& op, const Box& results, const std::vector<TensorId>& operands) {
  Op part = op;
  if constexpr (std::is_same_v<Op, Pool>) {
    const auto [rows, columns] = windows_of(graph, op, results);
    part.pads = padding_of(rows, columns);
  }
  if constexpr (std::is_same_v<Op, Product>) part.factor = operands[1];
  if constexpr (std::is_same_v<Op, Kernel>) part.more.assign(operands.begin() + 1, operands.end());
  if constexpr (!std::is_same_v<Op, Kernel>) part.stage = stage_of(op.stage, results, operands);
  return part;
}

}  // namespace

Operation part_of(const Graph& graph, const Operation& operation, const Box& results,
                  const std::vector<TensorId>& operands, TensorId result) {
  Operation part;
  part.name = operation.name;
  part.kind = operation.kind;
  part.feeds_next = operation.feeds_next;
  const Box all = whole_box(tensor_of(graph, written_by(operation)));
  part.macs =
      operation.macs > 0 ? std::max<int64_t>(1, operation.macs * results.elements() / all.elements()) : operation.macs;
  std::visit(
      [&](const auto& op) {
        auto made = part_of(graph, op, results, operands);
        made.input = operands[0];
        made.output = result;
        part.what = std::move(made);
      },
      operation.what);
  return part;
}

namespace {

/// Results along each axis of which a core has all or none; 0: not to be divided.
std::array<int64_t, 4> units_of(const Graph& graph, const Operation& operation, int64_t block) {
  if (std::holds_alternative<Kernel>(operation.what)) return {};
  std::array<int64_t, 4> units = together(graph, operation);
  units[kChannels] = std::holds_alternative<Rows>(operation.what) ? 0 : std::lcm(units[kChannels], block);
  return units;
}

/// Whether no share has a window that lies outside of the input altogether.
bool readable(const Graph& graph, const Operation& operation, const Division& division, size_t cores) {
  const Tensor& result = tensor_of(graph, written_by(operation));
  Reads reads;
  for (size_t core = 0; core < cores; ++core) {
    const Box share = share_of(result, division, core);
    if (!share.empty() && !find_reads(graph, operation, share, reads)) return false;
  }
  return true;
}

}  // namespace

std::string obstacle(const Graph& graph, const Operation& operation, const Division& division, size_t cores,
                     int64_t block) {
  if (!division.axis)
    return division.core < cores ? ""
                                 : "there is no core " + std::to_string(division.core) + " of " + std::to_string(cores);
  const size_t axis = *division.axis;
  const std::string name(schedule::kDivisionAxes.at(axis));
  if (division.ends.size() != cores)
    return "'ends' has " + std::to_string(division.ends.size()) + " entries for " + std::to_string(cores) + " cores";
  const int64_t unit = units_of(graph, operation, block).at(axis);
  if (unit == 0) return "it cannot be divided by " + name;
  const int64_t all = extents_of(tensor_of(graph, written_by(operation))).at(axis);
  int64_t before = 0;
  for (const int64_t end : division.ends) {
    if (end < before || end > all || (end % unit != 0 && end != all))
      return "'ends' must not fall, and be multiples of " + std::to_string(unit) + " up to " + std::to_string(all) +
             " " + name;
    before = end;
  }
  if (before != all) return "the last of 'ends' must be " + std::to_string(all) + ", all " + name;
  return readable(graph, operation, division, cores) ? ""
                                                     : "a share's window would lie outside of the input altogether";
}

std::vector<Division> divisions_of(const Graph& graph, const Operation& operation, size_t cores, int64_t block) {
  std::vector<Division> divisions(cores);
  for (size_t core = 0; core < cores; ++core) divisions[core].core = core;
  const auto extents = extents_of(tensor_of(graph, written_by(operation)));
  const std::array<int64_t, 4> units = units_of(graph, operation, block);
  for (size_t axis = 0; axis < 4; ++axis) {
    if (units[axis] == 0) continue;
    const int64_t count = (extents[axis] + units[axis] - 1) / units[axis];
    if (count < 2) continue;
    Division division;
    division.axis = axis;
    for (size_t core = 0; core < cores; ++core) {
      // Where the last unit is not whole, the last core has no more units than the others.
      const int64_t up = extents[axis] % units[axis] != 0 ? static_cast<int64_t>(cores) - 1 : 0;
      const auto end = (static_cast<int64_t>(core + 1) * count + up) / static_cast<int64_t>(cores) * units[axis];
      division.ends.push_back(std::min(end, extents[axis]));
    }
    division.ends.back() = extents[axis];
    if (readable(graph, operation, division, cores)) divisions.push_back(std::move(division));
  }
  return divisions;
}

namespace {

/// Which tensors could be made by each core for itself: results of one operation each, that operations alone read.
std::vector<bool> separable(const Graph& graph) {
  std::vector<bool> can(graph.tensors.size(), false);
  std::vector<int> writers(graph.tensors.size(), 0);
  for (const Operation& operation : graph.operations) {
    const auto id = static_cast<size_t>(written_by(operation));
    can[id] = ++writers[id] == 1 && graph.tensors[id].cache < 0 && !std::holds_alternative<Kernel>(operation.what);
  }
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    const TensorId parent = t.view_of != kNoTensor ? t.view_of : t.reshape_of;
    if (parent == kNoTensor) continue;
    can[i] = false;
    can[static_cast<size_t>(parent)] = false;
  }
  for (const auto* list : {&graph.inputs, &graph.outputs})
    for (const TensorId id : *list) can[static_cast<size_t>(id)] = false;
  return can;
}

/// Which tensors are made by transpositions alone and read as transposed factors alone: their columns may stand apart.
std::vector<bool> transposed_factors(const Graph& graph) {
  std::vector<bool> only(graph.tensors.size(), true), made(graph.tensors.size(), false);
  const auto not_this = [&](TensorId id) { only[static_cast<size_t>(id)] = false; };
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    const Tensor& t = graph.tensors[i];
    only[i] = only[i] && t.view_of == kNoTensor && t.reshape_of == kNoTensor && t.cache < 0 && t.element_bytes == 1;
    for (const TensorId parent : {t.view_of, t.reshape_of})
      if (parent != kNoTensor) not_this(parent);
  }
  for (const auto* list : {&graph.inputs, &graph.outputs}) std::ranges::for_each(*list, not_this);
  for (const Operation& operation : graph.operations) {
    const Uses uses = uses_of(operation);
    const auto* product = std::get_if<Product>(&operation.what);
    for (size_t k = 0; k < uses.read.size(); ++k)
      if (product == nullptr || !product->transposed || k != 1) not_this(uses.read[k]);
    if (std::holds_alternative<Transposition>(operation.what))
      made[static_cast<size_t>(uses.written)] = true;
    else
      not_this(uses.written);
  }
  for (size_t i = 0; i < only.size(); ++i) only[i] = only[i] && made[i];
  return only;
}

}  // namespace

Sharing::Sharing(const Graph& graph, size_t cores, const PartCosts& costs)
    : graph_(graph),
      cores_(cores),
      costs_(costs),
      separable_(separable(graph)),
      feeds_(feeds_next(graph)),
      needed_(graph.tensors.size()),
      own_(cores) {}

/// From the last operation to the first.
const Shares& Sharing::shares(const std::vector<Division>& divisions) {
  for (std::vector<Box>& needed : needed_) needed.assign(cores_, Box());
  const size_t count = graph_.operations.size();
  shares_.boxes.resize(count);
  shares_.own.assign(count, false);
  shares_.divisions = divisions;
  for (size_t i = count; i-- > 0;) {
    share(i);
    Division& division = shares_.divisions[i];
    if (division.own == true && !shares_.own[i])
      throw Error(ErrorCode::kInvalidArgument,
                  "node '" + graph_.operations[i].name +
                      "': the given division says that each core makes what it reads of the result, which is not "
                      "possible here; say \"own\": false");
    division.own = shares_.own[i];
    for (size_t core = 0; core < cores_; ++core) need(i, core);
  }
  return shares_;
}

void Sharing::share(size_t i) {
  const Operation& operation = graph_.operations[i];
  const auto id = static_cast<size_t>(written_by(operation));
  const Tensor& result = graph_.tensors[id];
  std::vector<Box>& boxes = shares_.boxes[i];
  boxes.clear();
  for (size_t core = 0; core < cores_; ++core) {
    boxes.push_back(share_of(result, shares_.divisions[i], core));
    own_[core] = computable(graph_, operation, needed_[id][core]);
  }
  const std::optional<bool> wanted = shares_.divisions[i].own;
  if (!separable_[id] || wanted == false) return;
  int64_t shared = 0, alone = 0, kept = 0;
  bool inside = true, any = false;
  for (size_t core = 0; core < cores_; ++core) {
    if (!own_[core].empty() && !find_reads(graph_, operation, own_[core], reads_)) return;
    inside = inside && covers(boxes[core], own_[core]);
    any = any || !own_[core].empty();
    if (feeds_[i]) kept = std::max(kept, costs_.kept(result, own_[core]));
    if (!boxes[core].empty()) shared = std::max(shared, costs_.part(graph_, operation, boxes[core]));
    if (!own_[core].empty()) alone = std::max(alone, costs_.part(graph_, operation, own_[core]));
  }
  if (!any || (!wanted && !inside && alone > shared + costs_.exchange() + kept)) return;
  boxes = own_;
  shares_.own[i] = true;
}

void Sharing::need(size_t i, size_t core) {
  const Box& box = shares_.boxes[i][core];
  if (box.empty()) return;
  TESSERA_INVARIANT(find_reads(graph_, graph_.operations[i], box, reads_),
                    "a share whose window lies inside of the input");
  for (const auto& [id, read] : reads_) {
    Box& needed = needed_[static_cast<size_t>(id)][core];
    needed = hull(needed, read);
  }
}

namespace {

/// Builds the graph of parts.
class Divider {
 public:
  Divider(const Graph& graph, const Shares& shares, int64_t beat)
      : graph_(graph), shares_(shares), beat_(beat), factors_(transposed_factors(graph)) {
    chip_.graph.name = graph.name;
    chip_.graph.tensors = graph.tensors;
    for (Tensor& tensor : chip_.graph.tensors) tensor.scope = Scope::kOpen;
    chip_.graph.inputs = graph.inputs;
    chip_.graph.outputs = graph.outputs;
    made_.assign(graph.tensors.size(), {});
    std::vector<bool> wide = factors_;
    for (size_t i = 0; i < graph.operations.size(); ++i)
      if (shares.own[i]) wide[static_cast<size_t>(written_by(graph.operations[i]))] = false;
    for (size_t i = 0; i < wide.size(); ++i)
      if (wide[i]) widen(static_cast<TensorId>(i));
  }

  ChipGraph run() {
    for (size_t i = 0; i < graph_.operations.size(); ++i) {
      const Operation& operation = graph_.operations[i];
      const TensorId written = written_by(operation);
      const std::vector<Box>& boxes = shares_.boxes[i];
      if (shares_.own[i]) make_own(written, boxes);
      for (size_t core = 0; core < boxes.size(); ++core) {
        if (boxes[core].empty()) continue;
        std::vector<TensorId> operands;
        for (const auto& [id, box] : reads_of(graph_, operation, boxes[core]))
          operands.push_back(view(id, box, core, true));
        const TensorId result = view(written, boxes[core], core, false);
        chip_.graph.operations.push_back(part_of(graph_, operation, boxes[core], operands, result));
        chip_.layers.push_back(i);
        chip_.cores.push_back(core);
      }
    }
    return std::move(chip_);
  }

 private:
  /// A tensor of a core: which elements of the given graph's tensor it holds.
  struct Made {
    TensorId id = kNoTensor;
    Box box;
  };

  void make_own(TensorId id, const std::vector<Box>& boxes) {
    std::vector<Made>& made = made_[static_cast<size_t>(id)];
    for (size_t core = 0; core < boxes.size(); ++core) {
      Tensor tensor = graph_.tensors[static_cast<size_t>(id)];
      const auto& [n, h, w, c] = boxes[core].extent;
      tensor.n = n, tensor.h = h, tensor.w = w, tensor.c = c;
      tensor.name += "@" + std::to_string(core);
      tensor.scope = Scope::kOpen;
      made.push_back({boxes[core].empty() ? kNoTensor : chip_.graph.add(tensor), boxes[core]});
      if (factors_[static_cast<size_t>(id)] && !boxes[core].empty()) widen(made.back().id);
    }
  }

  /// Makes a tensor a view of one whose columns begin at beats. All cores read a factor in runs of a block. Those that
  /// begin at a beat are requested together, and others are a burst each that takes a whole beat of the shared bus.
  void widen(TensorId id) {
    Tensor wide = chip_.graph.tensors[static_cast<size_t>(id)];
    if (wide.c % beat_ == 0 || wide.c < beat_) return;
    wide.c = (wide.c + beat_ - 1) / beat_ * beat_;
    wide.name += "+";
    chip_.graph.tensors[static_cast<size_t>(id)].view_of = chip_.graph.add(std::move(wide));
  }

  /// The tensor that holds a box of a tensor of the given graph.
  TensorId view(TensorId id, Box box, size_t core, bool read) {
    TensorId parent = id;
    Box all = whole_box(graph_.tensors[static_cast<size_t>(id)]);
    if (const std::vector<Made>& made = made_[static_cast<size_t>(id)]; !made.empty()) {
      parent = made[core].id;
      all = made[core].box;
      TESSERA_INVARIANT(parent != kNoTensor && covers(all, box), "a core reads what it has made of its own tensor");
    }
    if (box == all) return parent;
    for (size_t axis = 0; axis < 4; ++axis) box.begin[axis] -= all.begin[axis];
    const auto [known, fresh] = views_.try_emplace({parent, box.begin, box.extent}, kNoTensor);
    if (fresh) known->second = make_view(parent, box, read);
    return known->second;
  }

  TensorId make_view(TensorId parent, const Box& box, bool read) {
    const Tensor whole = chip_.graph.tensors[static_cast<size_t>(parent)];
    Tensor tensor;
    tensor.name = whole.name;
    for (size_t axis = 0; axis < 4; ++axis)
      tensor.name += (axis == 0 ? "[" : ",") + std::to_string(box.begin[axis]) + "+" + std::to_string(box.extent[axis]);
    tensor.name += "]";
    tensor.n = box.extent[0], tensor.h = box.extent[1], tensor.w = box.extent[2], tensor.c = box.extent[3];
    tensor.is_unsigned = whole.is_unsigned;
    tensor.element_bytes = whole.element_bytes;
    tensor.view_of = parent;
    tensor.view_n = box.begin[0], tensor.view_h = box.begin[1], tensor.view_w = box.begin[2];
    tensor.view_c = box.begin[3];
    tensor.slide = whole.slide;
    // Around a part of an image DRAM holds the border where the image ends, and the image's own pixels elsewhere. They
    // are never read as padding: a part has padding only where the image ends.
    const bool bordered = read && !whole.border.empty() && tensor.c == whole.c;
    if (bordered) {
      const Border& b = whole.border;
      tensor.border = {box.begin[kRows] == 0 ? b.top : 0, box.begin[kColumns] == 0 ? b.left : 0,
                       whole.h - box.end(kRows) + b.bottom, whole.w - box.end(kColumns) + b.right, b.value};
    }
    const TensorId id = chip_.graph.add(std::move(tensor));
    if (bordered) chip_.graph.inputs.push_back(id);
    return id;
  }

  const Graph& graph_;
  const Shares& shares_;
  const int64_t beat_;
  const std::vector<bool> factors_;  // by tensor
  ChipGraph chip_;
  std::vector<std::vector<Made>> made_;  // by tensor of the given graph and core
  std::map<std::tuple<TensorId, std::array<int64_t, 4>, std::array<int64_t, 4>>, TensorId> views_;
};

}  // namespace

ChipGraph divided(const Graph& graph, const Shares& shares, int64_t beat) { return Divider(graph, shares, beat).run(); }

}  // namespace tessera::npu
