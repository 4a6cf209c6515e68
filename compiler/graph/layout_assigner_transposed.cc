// SPDX-License-Identifier: Apache-2.0
// A transposed convolution as dense convolutions: one for each phase of the output modulo the strides, written into a
// strided view of the result. Output o reads input (o + pad - k * dilation) / stride through every tap k that divides
// evenly; for the outputs of one phase these taps are the same, at constant offsets from the output's number in the
// phase.
#include <algorithm>
#include <numeric>

#include "compiler/graph/layout_assigner.h"

namespace tessera::graph {
namespace {

/// One axis of one phase.
struct Phase {
  int64_t count = 0;                 // outputs
  std::vector<int64_t> taps;         // of the kernel, by rising offset
  int64_t offset = 0, dilation = 1;  // of the first tap; from one to the next
  int64_t begin = 0, extent = 1;     // positions of the input that are read
  int64_t before = 0, after = 0;     // padding around them
};

Phase phase_of(int64_t phase, int64_t out, int64_t in, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad) {
  Phase p;
  p.count = out > phase ? (out - phase + stride - 1) / stride : 0;
  for (int64_t k = kernel; k-- > 0;)
    if ((phase + pad - k * dilation) % stride == 0) p.taps.push_back(k);
  if (!p.taps.empty()) p.offset = (phase + pad - p.taps.front() * dilation) / stride;
  if (p.taps.size() > 1) p.dilation = (p.taps[0] - p.taps[1]) * dilation / stride;
  const int64_t reach = (static_cast<int64_t>(p.taps.size()) - 1) * p.dilation;
  const int64_t first = p.offset, last = p.offset + p.count - 1 + reach;
  if (p.taps.empty() || last < 0 || first >= in) {
    // Nothing but padding: any position will do, its weight is 0.
    p.taps.assign(1, -1);
    p.dilation = 1;
    p.begin = 0;
    p.extent = 1;
    p.after = p.count - 1;
    return p;
  }
  p.begin = std::max<int64_t>(first, 0);
  p.extent = std::min(last, in - 1) - p.begin + 1;
  p.before = p.begin - first;
  p.after = last - (p.begin + p.extent - 1);
  return p;
}

}  // namespace

bool LayoutAssigner::add(const Operation& op, const TransposedConvolution& what) {
  ValueId x = op.operands[0], y = op.results[0];
  const Extents in = shape_of(x), out = shape_of(y);
  const Order order = channels_last_order(in.size());
  const auto dims = [](const Extents& s) { return Dims{s[0], s.size() == 4 ? s[2] : 1, s.back(), s[1]}; };
  const Dims from = dims(in), to = dims(out);
  const auto source = operand(op, x, order, from);
  if (!source) return false;
  const npu::TensorId whole = result(y, order, to);
  const int64_t ic = from[3] / what.groups, kernel = what.kernel[0] * what.kernel[1];
  bool first = true;
  for (int64_t row = 0; row < what.stride[0]; ++row) {
    for (int64_t column = 0; column < what.stride[1]; ++column) {
      const Phase h = phase_of(row, to[1], from[1], what.kernel[0], what.stride[0], what.dilation[0], what.before[0]);
      const Phase w =
          phase_of(column, to[2], from[2], what.kernel[1], what.stride[1], what.dilation[1], what.before[1]);
      if (h.count == 0 || w.count == 0) continue;
      npu::Convolution conv;
      conv.groups = what.groups;
      conv.kernel_h = static_cast<int64_t>(h.taps.size());
      conv.kernel_w = static_cast<int64_t>(w.taps.size());
      conv.dilation_h = h.dilation;
      conv.dilation_w = w.dilation;
      conv.pads = {h.before, w.before, h.after, w.after};
      conv.input_zero = what.input_zero;
      conv.stage = what.stage;
      bool used = false;
      for (int64_t k = 0; k < to[3] * ic; ++k)
        for (const int64_t th : h.taps)
          for (const int64_t tw : w.taps) {
            const bool inside = th >= 0 && tw >= 0;
            used = used || inside;
            conv.weights.push_back(inside ? what.weights[static_cast<size_t>(k * kernel + th * what.kernel[1] + tw)]
                                          : int16_t{0});
          }
      npu::Tensor part = tensor(*source);
      part.reshape_of = npu::kNoTensor;
      part.strided = false;
      part.view_of = *source;
      part.view_n = part.view_c = 0;
      part.view_h = h.begin, part.view_w = w.begin;
      part.h = h.extent, part.w = w.extent;
      conv.input = h.extent == from[1] && w.extent == from[2] ? *source : graph_.add(std::move(part));
      Box box;
      box.start = (row * to[2] + column) * to[3];
      box.extent = {to[0], h.count, w.count, to[3]};
      box.step = {to[1] * to[2] * to[3], what.stride[0] * to[2] * to[3], what.stride[1] * to[3], 1};
      conv.output = boxed(whole, box);
      const int64_t share = op.macs * conv.kernel_h * conv.kernel_w / kernel;
      push(op, std::move(conv), used && share > 0 ? share : npu::kNoMacs);
      if (!first) graph_.operations.back().nodes.clear();  // the node counts once
      first = false;
    }
  }
  return true;
}

}  // namespace tessera::graph
