// SPDX-License-Identifier: Apache-2.0
#include "compiler/nn/passes/convolution_form.h"

#include <algorithm>
#include <numeric>

namespace tessera::nn {

using ops::DType;
using ops::Shape;
using ops::Tensor;

namespace {

int64_t rounded_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

mlir::Value reshape(Splitter& split, mlir::Value value, const Shape& shape) {
  return split.one("Reshape", 13, {value, split.constant(Tensor::vector_i64(shape))});
}

mlir::Value transpose(Splitter& split, mlir::Value value, const std::vector<int64_t>& perm) {
  return split.one("Transpose", 13, {value}, {{"perm", perm}});
}

/// Positions first, first + step and so on of an axis, `count` of them.
mlir::Value slice(Splitter& split, mlir::Value value, int64_t axis, int64_t first, int64_t count, int64_t step) {
  const auto number = [&](int64_t n) { return split.constant(Tensor::vector_i64({n})); };
  return split.one("Slice", 13,
                   {value, number(first), number(first + (count - 1) * step + 1), number(axis), number(step)});
}

}  // namespace

std::optional<ConvolutionForm> ConvolutionForm::of(const ops::Node& node, const Shape& x, const Shape& w) {
  if (x.size() != w.size() || x.size() < 3 || x.size() > 5) return std::nullopt;
  const auto is_empty = [](int64_t n) { return n < 1; };
  if (std::any_of(x.begin(), x.end(), is_empty) || std::any_of(w.begin(), w.end(), is_empty)) return std::nullopt;
  ConvolutionForm form;
  form.transposed_ = node.op_type == "ConvTranspose";
  form.extents_.assign(x.begin() + 2, x.end());
  form.kernel_.assign(w.begin() + 2, w.end());
  form.batch_ = x[0];
  form.groups_ = node.get_int("group", 1);
  form.each_ = x[1] / form.groups_;
  form.filters_ = form.transposed_ ? w[1] : w[0] / form.groups_;
  const ops::Window window = form.transposed_ ? ops::transposed_window(node, form.extents_, form.kernel_)
                                              : ops::sliding_window(node, form.extents_, form.kernel_);
  form.step_ = window.strides;
  form.spacing_ = window.dilations;
  form.result_ = form.transposed_ ? window.input : window.output;
  for (size_t d = 0; d < form.extents_.size(); ++d) {
    const int64_t begin = window.pads_begin[d], end = window.pads_end[d], s = form.step_[d];
    if (begin < 0 || form.result_[d] < 1 || (!form.transposed_ && end < 0)) return std::nullopt;
    if (!form.transposed_) {
      form.strides_.push_back(s);
      form.dilations_.push_back(form.spacing_[d]);
      form.before_.push_back(begin);
      form.after_.push_back(end);
      form.taps_.push_back(form.kernel_[d]);
      form.positions_.push_back(form.result_[d]);
      continue;
    }
    const int64_t taps = rounded_up(window.span(d), s), first = std::min(begin / s, taps - 1);
    const int64_t before = taps - 1 - first;
    const int64_t after =
        std::max<int64_t>(0, rounded_up(begin + form.result_[d], s) - first + taps - 1 - form.extents_[d] - before);
    form.strides_.push_back(1);
    form.dilations_.push_back(1);
    form.before_.push_back(before);
    form.after_.push_back(after);
    form.taps_.push_back(taps);
    form.positions_.push_back(form.extents_[d] + before + after - taps + 1);
    form.crop_.push_back(begin - first * s);
  }
  form.set_attributes();
  return form;
}

void ConvolutionForm::set_attributes() {
  const size_t skipped = is_deep() ? 1 : 0;
  const auto flat = [&](const std::vector<int64_t>& all) {
    return std::vector<int64_t>(all.begin() + static_cast<std::ptrdiff_t>(skipped), all.end());
  };
  std::vector<int64_t> pads = flat(before_);
  for (const int64_t pad : flat(after_)) pads.push_back(pad);
  attributes_ = {{"group", groups_},
                 {"strides", flat(strides_)},
                 {"dilations", flat(dilations_)},
                 {"pads", pads},
                 {"kernel_shape", flat(taps_)}};
}

int64_t ConvolutionForm::terms() const { return each_ * ops::element_count(taps_); }

std::vector<int64_t> ConvolutionForm::by_channel(const std::vector<int64_t>& numbers) const {
  const int64_t phases = this->phases();
  if (numbers.size() == 1 || !transposed_) return numbers;
  std::vector<int64_t> result;
  for (int64_t channel = 0; channel < groups_ * filters_ * phases; ++channel)
    result.push_back(numbers[static_cast<size_t>(channel / phases % filters_)]);
  return result;
}

Tensor ConvolutionForm::weights(const Tensor& w, const std::vector<int64_t>& zeros) const {
  // [channels of the result, channels of a group, taps], in int64.
  const int64_t phases = this->phases(), count = ops::element_count(taps_);
  const int64_t outputs = groups_ * filters_ * phases, rank = static_cast<int64_t>(taps_.size());
  const int64_t kernel = ops::element_count(kernel_);
  std::vector<int64_t> values(static_cast<size_t>(outputs * each_ * count));
  for (int64_t o = 0; o < outputs; ++o) {
    const int64_t group = o / phases / filters_, filter = o / phases % filters_;
    for (int64_t c = 0; c < each_; ++c)
      for (int64_t t = 0; t < count; ++t) {
        int64_t at = 0, stride = 1, phase = o % phases, tap = t;
        for (int64_t d = rank; d-- > 0 && at >= 0;) {  // the kernel's position, row-major; -1: between its weights
          const auto i = static_cast<size_t>(d);
          int64_t k = tap % taps_[i];
          if (transposed_) {
            k = phase % step_[i] + step_[i] * (taps_[i] - 1 - k);
            phase /= step_[i];
            k = k % spacing_[i] == 0 && k / spacing_[i] < kernel_[i] ? k / spacing_[i] : -1;
          }
          at = k < 0 ? -1 : at + k * stride;
          stride *= kernel_[i];
          tap /= taps_[i];
        }
        const int64_t row = transposed_ ? (group * each_ + c) * filters_ + filter : o * each_ + c;
        const int64_t empty = zeros[zeros.size() == 1 ? 0 : static_cast<size_t>(transposed_ ? filter : o)];
        values[static_cast<size_t>((o * each_ + c) * count + t)] = at < 0 ? empty : w.at_int64(row * kernel + at);
      }
  }
  Shape shape = {outputs, each_};
  shape.insert(shape.end(), taps_.begin(), taps_.end());
  Tensor made = Tensor::of<int64_t>(DType::kInt64, shape, values);
  if (is_deep()) {
    const ops::Node turn{"", "Transpose", 13, "", {{"perm", std::vector<int64_t>{0, 2, 1, 3, 4}}}, 1};
    made = ops::evaluate(turn, {ops::Value(made)})[0].tensor;
    const Tensor flat = Tensor::vector_i64({outputs, each_ * taps_[0], taps_[1], taps_[2]});
    made = ops::evaluate({"", "Reshape", 13, "", {}, 1}, {ops::Value(made), ops::Value(flat)})[0].tensor;
  }
  const ops::Node cast{"", "Cast", 13, "", {{"to", static_cast<int64_t>(w.dtype())}}, 1};
  return copy_of(ops::evaluate(cast, {ops::Value(made)})[0].tensor);
}

mlir::Value ConvolutionForm::operand(Splitter& split, mlir::Value x, mlir::Value zero) const {
  if (!is_deep()) return x;
  if (before_[0] + after_[0] > 0) {
    const Tensor pads = Tensor::vector_i64({0, 0, before_[0], 0, 0, 0, 0, after_[0], 0, 0});
    x = split.one("Pad", 13, {x, split.constant(pads), zero});
  }
  const int64_t depth = positions_[0];
  std::vector<mlir::Value> planes;
  for (int64_t tap = 0; tap < taps_[0]; ++tap) {
    const mlir::Value plane = slice(split, x, 2, tap * dilations_[0], depth, strides_[0]);
    planes.push_back(reshape(split, plane, {batch_, groups_, each_, depth, extents_[1], extents_[2]}));
  }
  x = planes.size() == 1 ? planes[0] : split.one("Concat", 13, planes, {{"axis", int64_t{2}}});
  return reshape(split, transpose(split, x, {0, 3, 1, 2, 4, 5}),
                 {batch_ * depth, groups_ * each_ * taps_[0], extents_[1], extents_[2]});
}

mlir::Value ConvolutionForm::result(Splitter& split, mlir::Value sum) const {
  const int64_t phases = this->phases();
  if (is_deep()) {
    sum = reshape(split, sum, {batch_, positions_[0], channels() * phases, positions_[1], positions_[2]});
    sum = transpose(split, sum, {0, 2, 1, 3, 4});
  }
  if (!transposed_) return sum;
  const auto rank = static_cast<int64_t>(positions_.size());
  Shape apart = {batch_, channels()}, joined = apart;
  std::vector<int64_t> perm = {0, 1};
  apart.insert(apart.end(), step_.begin(), step_.end());
  apart.insert(apart.end(), positions_.begin(), positions_.end());
  for (int64_t d = 0; d < rank; ++d) {
    perm.push_back(2 + rank + d);
    perm.push_back(2 + d);
    joined.push_back(positions_[static_cast<size_t>(d)] * step_[static_cast<size_t>(d)]);
  }
  if (phases > 1) sum = reshape(split, transpose(split, reshape(split, sum, apart), perm), joined);
  for (int64_t d = 0; d < rank; ++d) {
    const auto i = static_cast<size_t>(d);
    if (crop_[i] != 0 || joined[i + 2] != result_[i]) sum = slice(split, sum, d + 2, crop_[i], result_[i], 1);
  }
  return sum;
}

}  // namespace tessera::nn
