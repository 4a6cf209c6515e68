// SPDX-License-Identifier: Apache-2.0
// One rule for each operation of the value graph.
#include "compiler/partition/growth.h"

#include <algorithm>

#include "isa/verify/effects.h"

namespace tessera::partition {
namespace {

using graph::Extents;
using graph::Step;

/// The axis of `shape` that holds what was axis `axis` of `from`, if a reshape leaves it an axis of its own.
std::optional<int64_t> behind_reshape(const Extents& from, const Extents& to, int64_t axis) {
  int64_t before = 1, reached = 1;
  for (int64_t i = 0; i < axis; ++i) before *= from[static_cast<size_t>(i)];
  for (size_t i = 0; i < to.size(); reached *= to[i], ++i)
    if (reached == before && to[i] == from[static_cast<size_t>(axis)]) return static_cast<int64_t>(i);
  return std::nullopt;
}

/// Where an axis is after some steps; nothing when its elements change places.
std::optional<int64_t> moved(Extents shape, const graph::Steps& steps, int64_t axis) {
  for (const Step& step : steps) {
    switch (step.kind) {
      case Step::Kind::kTranspose:
        axis = std::find(step.numbers.begin(), step.numbers.end(), axis) - step.numbers.begin();
        break;
      case Step::Kind::kReshape: {
        const auto at = behind_reshape(shape, step.extents, axis);
        if (!at) return std::nullopt;
        axis = *at;
        break;
      }
      case Step::Kind::kExpand: break;
      case Step::Kind::kSlice:
      case Step::Kind::kGather:
        if (step.axis == axis) return std::nullopt;
        break;
      case Step::Kind::kPad:
        if (step.extents[static_cast<size_t>(axis)] != shape[static_cast<size_t>(axis)]) return std::nullopt;
        break;
    }
    shape = step.extents;
  }
  return axis;
}

class Rule {
 public:
  Rule(const graph::Operation& op, const graph::ValueGraph& values, const AxesOf& axes, int64_t longest)
      : op_(op), values_(values), axes_(axes), longest_(longest) {}

  GrowthRule run() const {
    bool any = false;
    for (const auto* list : {&op_.operands, &op_.results}) {
      for (const graph::ValueId v : *list) {
        if (axes_(v).size() > 1) return {};
        any = any || !axes_(v).empty();
      }
    }
    if (!any) return {true, {}};
    return std::visit([&](const auto& what) { return rule(what); }, op_.what);
  }

 private:
  std::optional<int64_t> axis(graph::ValueId v) const {
    return axes_(v).empty() ? std::nullopt : std::optional(axes_(v).front());
  }
  int64_t rank(graph::ValueId v) const { return static_cast<int64_t>(values_.value(v).shape.size()); }

  GrowthRule rule(const graph::Lookup&) const { return {true, {}}; }
  GrowthRule rule(const graph::Binary&) const { return {true, {}}; }
  GrowthRule rule(const graph::Requantise& what) const { return {axis(op_.results[0]) != what.channel_axis, {}}; }

  GrowthRule rule(const graph::Product& what) const {
    const graph::ValueId left = op_.operands[0], right = op_.operands[1];
    const int64_t k = rank(left) == 1 || !what.left_transposed ? rank(left) - 1 : rank(left) - 2;
    const int64_t right_k = rank(right) == 1 || what.right_transposed ? rank(right) - 1 : rank(right) - 2;
    if (axis(left) == k) return {axis(right) == right_k, what.left_zero};
    return {axis(right) != right_k, {}};
  }

  GrowthRule rule(const graph::Matmul& what) const {
    return {!what.transposed && what.each.empty() && axis(op_.operands[0]) != rank(op_.operands[0]) - 1, {}};
  }

  GrowthRule rule(const graph::Rows& what) const {
    const auto grows = axis(op_.operands[0]);
    const bool apart = grows && (what.flattened ? *grows < what.axis : *grows != what.axis);
    return {apart || grows_along_rows(op_, values_, axes_, longest_), {}};
  }

  GrowthRule rule(const graph::Move& what) const {
    const auto from = axis(op_.operands[0]);
    if (!from) return {};
    for (size_t i = 0; i < op_.results.size(); ++i) {
      const auto to = moved(values_.value(op_.operands[0]).shape, what.steps[i], *from);
      if (!to || axis(op_.results[i]) != to) return {};
    }
    return {true, {}};
  }

  GrowthRule rule(const graph::Concat& what) const {
    if (axis(op_.results[0]) == what.axis) return {what.appends, {}};
    for (size_t i = 0; i < op_.operands.size(); ++i) {
      const auto from = axis(op_.operands[i]);
      if (!from) return {};
      const auto to = what.steps.empty() ? from : moved(values_.value(op_.operands[i]).shape, what.steps[i], *from);
      if (!to || to != axis(op_.results[0])) return {};
    }
    return {true, {}};
  }

  template <typename Other>
  GrowthRule rule(const Other&) const {
    return {};
  }

  const graph::Operation& op_;
  const graph::ValueGraph& values_;
  const AxesOf& axes_;
  int64_t longest_;
};

}  // namespace

bool grows_along_rows(const graph::Operation& operation, const graph::ValueGraph& values, const AxesOf& axes,
                      int64_t longest) {
  const auto* rows = std::get_if<graph::Rows>(&operation.what);
  if (rows == nullptr || rows->form.kind != npu::RowForm::Kind::kSoftmax) return false;
  const std::vector<int64_t>& grow = axes(operation.operands[0]);
  const Extents& shape = values.value(operation.operands[0]).shape;
  const auto last = static_cast<int64_t>(shape.size()) - 1;
  // A softmax of several axes has its elements mixed, unless the others have one element.
  return grow.size() == 1 && axes(operation.results[0]) == grow && (rows->axis == last || !rows->flattened) &&
         grow[0] == rows->axis && shape[static_cast<size_t>(rows->axis)] == longest &&
         longest <= static_cast<int64_t>(isa::kRowLimitMask);
}

GrowthRule growth_rule(const graph::Operation& operation, const graph::ValueGraph& values, const AxesOf& axes,
                       int64_t longest) {
  return Rule(operation, values, axes, longest).run();
}

}  // namespace tessera::partition
