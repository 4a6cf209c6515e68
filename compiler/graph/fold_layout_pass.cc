// SPDX-License-Identifier: Apache-2.0
// Copies that layout makes unnecessary. A convolution that only selects channels disappears into the convolution that
// makes its input (which makes the channels in the other order) or into those that read its result (whose weights are
// reordered). A tensor that is copied into its place in a wider one is made there in the first place, whoever else
// reads it.
#include <algorithm>

#include "compiler/graph/passes.h"
#include "compiler/npu/graph/plan.h"

namespace tessera::graph {
namespace {

// Transfers of shorter runs than this many bytes wait for DRAM more than they move: a tensor with other readers stays
// whole.
constexpr int64_t kLongRun = 64;

npu::TensorId output_of(const npu::Operation& operation) {
  return std::visit([](const auto& what) { return what.output; }, operation.what);
}

class Folder {
 public:
  explicit Folder(npu::Graph& graph) : graph_(graph) {}

  void run() {
    for (size_t at = 0; at < graph_.operations.size();)
      if (!(fold_selection(at) || make_in_place(at))) ++at;
  }

 private:
  const npu::Tensor& tensor(npu::TensorId id) const { return graph_.tensors[static_cast<size_t>(id)]; }
  bool is_output(npu::TensorId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }
  bool is_input(npu::TensorId id) const {
    return std::find(graph_.inputs.begin(), graph_.inputs.end(), id) != graph_.inputs.end();
  }
  bool has_children(npu::TensorId id) const {
    return std::any_of(graph_.tensors.begin(), graph_.tensors.end(),
                       [&](const npu::Tensor& t) { return t.view_of == id || t.reshape_of == id; });
  }
  bool is_root(npu::TensorId id) const {
    return tensor(id).view_of == npu::kNoTensor && tensor(id).reshape_of == npu::kNoTensor;
  }
  bool same_pixels(npu::TensorId a, npu::TensorId b) const {
    const npu::Tensor &x = tensor(a), &y = tensor(b);
    return x.n == y.n && x.h == y.h && x.w == y.w;
  }
  std::optional<size_t> producer(npu::TensorId id) const {
    std::optional<size_t> found;
    for (size_t i = 0; i < graph_.operations.size(); ++i) {
      if (output_of(graph_.operations[i]) != id) continue;
      if (found) return std::nullopt;
      found = i;
    }
    return found;
  }
  std::vector<size_t> readers(npu::TensorId id) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < graph_.operations.size(); ++i) {
      const npu::Uses used = npu::uses_of(graph_.operations[i]);
      if (std::find(used.read.begin(), used.read.end(), id) != used.read.end()) found.push_back(i);
    }
    return found;
  }
  static bool passes_through(const npu::Stage& s) {
    return !s.convert && !s.raw && !s.table && !s.second && !s.second_table && s.low <= -128 && s.high >= 255 &&
           s.out_zero == 0;
  }
  void remove(size_t at, size_t heir) {
    const std::vector<std::string> names = std::move(graph_.operations[at].nodes);
    std::vector<std::string>& to = graph_.operations[heir].nodes;
    to.insert(to.end(), names.begin(), names.end());
    graph_.operations.erase(graph_.operations.begin() + static_cast<std::ptrdiff_t>(at));
  }

  /// The input channel of each output channel, if the operation only selects.
  std::optional<std::vector<int64_t>> selection(const npu::Operation& operation) const {
    const auto* c = std::get_if<npu::Convolution>(&operation.what);
    if (!c || operation.macs != npu::kNoMacs || c->kernel_h != 1 || c->kernel_w != 1 || c->groups != 1 ||
        c->input_zero != 0 || !c->weight_zero.empty() || !passes_through(c->stage))
      return std::nullopt;
    const int64_t in = tensor(c->input).c, out = tensor(c->output).c;
    std::vector<int64_t> channels;
    for (int64_t o = 0; o < out; ++o) {
      const auto row = c->weights.begin() + o * in;
      const auto one = std::find(row, row + in, int16_t{1});
      if (one == row + in) return std::nullopt;
      channels.push_back(one - row);
    }
    return channels;
  }

  bool fold_selection(size_t at) {
    const auto channels = selection(graph_.operations[at]);
    if (!channels) return false;
    return into_producer(at, *channels) || into_readers(at, *channels);
  }

  bool into_producer(size_t at, const std::vector<int64_t>& channels) {
    const auto& select = std::get<npu::Convolution>(graph_.operations[at].what);
    const npu::TensorId through = select.input;
    const auto maker = producer(through);
    if (!maker || !is_root(through) || has_children(through) || is_output(through) || readers(through).size() != 1 ||
        !same_pixels(through, select.output))
      return false;
    auto* conv = std::get_if<npu::Convolution>(&graph_.operations[*maker].what);
    if (!conv || conv->groups != 1 || conv->stage.second || graph_.operations[*maker].macs == npu::kNoMacs)
      return false;
    npu::Operation made = graph_.operations[*maker];
    auto& c = std::get<npu::Convolution>(made.what);
    const auto pick = [&](const auto& values, size_t each) {
      auto out = values;
      out.clear();
      for (const int64_t channel : channels)
        out.insert(out.end(), values.begin() + channel * static_cast<std::ptrdiff_t>(each),
                   values.begin() + (channel + 1) * static_cast<std::ptrdiff_t>(each));
      return out;
    };
    c.weights = pick(conv->weights, conv->weights.size() / static_cast<size_t>(tensor(through).c));
    if (c.weight_zero.size() > 1) c.weight_zero = pick(conv->weight_zero, 1);
    if (c.stage.bias.size() > 1) c.stage.bias = pick(conv->stage.bias, 1);
    if (c.stage.multiplier.size() > 1) c.stage.multiplier = pick(conv->stage.multiplier, 1);
    c.output = select.output;
    made.kind += "+" + graph_.operations[at].kind;
    // In the later place: the destination's other parts may be made between the two, and nothing else reads the tensor.
    made.nodes.insert(made.nodes.end(), graph_.operations[at].nodes.begin(), graph_.operations[at].nodes.end());
    graph_.operations[at] = std::move(made);
    graph_.operations.erase(graph_.operations.begin() + static_cast<std::ptrdiff_t>(*maker));
    return true;
  }

  bool into_readers(size_t at, const std::vector<int64_t>& channels) {
    const auto select = std::get<npu::Convolution>(graph_.operations[at].what);
    const npu::TensorId through = select.output;
    if (!is_root(through) || has_children(through) || is_output(through) || !same_pixels(select.input, through))
      return false;
    std::vector<int64_t> sorted = channels;
    std::sort(sorted.begin(), sorted.end());
    if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) return false;
    const auto users = readers(through);
    if (users.empty()) return false;
    const int64_t in = tensor(select.input).c, out = tensor(through).c;
    for (const size_t user : users) {
      const auto* c = std::get_if<npu::Convolution>(&graph_.operations[user].what);
      if (!c || c->groups != 1 || (c->stage.second && c->stage.second->tensor == through)) return false;
      // Channels that are not selected are multiplied by 0: no more work than the selection itself.
      if (tensor(c->output).c * c->kernel_h * c->kernel_w * (in - out) > in * out) return false;
    }
    for (const size_t user : users) {
      auto& c = std::get<npu::Convolution>(graph_.operations[user].what);
      const int64_t taps = c.kernel_h * c.kernel_w, results = tensor(c.output).c;
      std::vector<int16_t> weights(static_cast<size_t>(results * in * taps));
      for (int64_t o = 0; o < results; ++o) {
        const auto zero = static_cast<int16_t>(
            c.weight_zero.empty() ? 0 : c.weight_zero[c.weight_zero.size() == 1 ? 0 : static_cast<size_t>(o)]);
        std::fill_n(weights.begin() + o * in * taps, in * taps, zero);
        for (int64_t i = 0; i < out; ++i)
          std::copy_n(c.weights.begin() + (o * out + i) * taps, taps,
                      weights.begin() + (o * in + channels[static_cast<size_t>(i)]) * taps);
      }
      c.weights = std::move(weights);
      c.input = select.input;
    }
    remove(at, users.front());
    return true;
  }

  /// A plain copy of a whole tensor into a view: the tensor becomes the view.
  bool make_in_place(size_t at) {
    const auto* e = std::get_if<npu::Elementwise>(&graph_.operations[at].what);
    if (!e || e->repeat_h != 1 || e->repeat_w != 1 || !passes_through(e->stage)) return false;
    const npu::TensorId from = e->input, to = e->output;
    if (tensor(to).view_of == npu::kNoTensor || !is_root(from) || is_input(from) || has_children(from) ||
        !same_pixels(from, to) || tensor(from).c != tensor(to).c ||
        tensor(from).is_unsigned != tensor(to).is_unsigned || tensor(from).element_bytes != 1)
      return false;
    if (readers(from).size() > 1 && tensor(from).c < kLongRun) return false;
    // Where a run appends is for writing alone.
    if (tensor(to).slide != 0 && (readers(from).size() > 1 || is_output(from))) return false;
    const auto maker = producer(from);
    if (!maker || *maker > at || std::holds_alternative<npu::Kernel>(graph_.operations[*maker].what)) return false;
    npu::Tensor view = tensor(to);
    view.name = tensor(from).name;
    graph_.tensors[static_cast<size_t>(from)] = std::move(view);
    remove(at, *maker);
    return true;
  }

  npu::Graph& graph_;
};

}  // namespace

void fold_layout(npu::Graph& graph, const PassContext&) { Folder(graph).run(); }

}  // namespace tessera::graph
