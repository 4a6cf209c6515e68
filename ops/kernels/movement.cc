// SPDX-License-Identifier: Apache-2.0
#include "ops/kernels/movement.h"

#include <numeric>

namespace tessera::ops {

namespace {

/// One strided copy; the whole operand is shared instead.
Tensor moved(const Tensor& in, const Movement& m, const Shape& result) {
  if (m.is_whole()) return in.reshaped(result);
  const std::vector<int64_t> steps = kernel::row_strides(m.as);
  std::vector<int64_t> strides(m.shape.size(), 0);
  int64_t offset = 0;
  for (size_t d = 0; d < steps.size(); ++d) {
    offset += m.start[d] * steps[d];
    if (m.from[d] >= 0) strides[static_cast<size_t>(m.from[d])] += m.step[d] * steps[d];
  }
  return kernel::gather_strided(in, m.shape, offset, strides).reshaped(result);
}

/// Evaluation of an operator that only moves elements.
struct MoveEvaluation {
  InferFunction infer;
  MoveFunction moves;

  void operator()(EvalContext& c) const {
    std::vector<TypeInfo> operands, results(c.outputs.size());
    for (const Value& value : c.inputs) operands.push_back(kernel::type_of(value));
    InferContext checks{c.node, operands, results};
    infer(checks);
    const std::vector<Movement> movements = moves(c.node, operands, results);
    for (size_t i = 0; i < movements.size(); ++i) c.outputs[i] = moved(c.input(0), movements[i], results[i].shape);
  }
};

}  // namespace

bool Movement::is_whole() const {
  bool same = as == shape;
  for (size_t d = 0; same && d < as.size(); ++d)
    same = from[d] == static_cast<int64_t>(d) && start[d] == 0 && (step[d] == 1 || as[d] <= 1);
  return same;
}

Movement whole(const Shape& shape) {
  std::vector<int64_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  return permuted(shape, axes);
}

Movement permuted(const Shape& as, const std::vector<int64_t>& permutation) {
  Movement m{
      as, {}, std::vector<int64_t>(as.size()), std::vector<int64_t>(as.size(), 0), std::vector<int64_t>(as.size(), 1)};
  for (const int64_t axis : permutation) {
    m.from[static_cast<size_t>(axis)] = static_cast<int64_t>(m.shape.size());
    m.shape.push_back(as[static_cast<size_t>(axis)]);
  }
  return m;
}

const MoveFunction* moves_of(const Node& node) {
  const OperatorDef* def = registry().find(node.domain, node.op_type, node.version);
  const MoveEvaluation* evaluation = def == nullptr ? nullptr : def->evaluate.target<MoveEvaluation>();
  return evaluation == nullptr ? nullptr : &evaluation->moves;
}

void add_movement(Registry& registry, const char* name, int since_version, kernel::Arity inputs, InferFunction infer,
                  MoveFunction moves, std::set<std::string> attributes, kernel::Arity outputs) {
  MoveEvaluation evaluate{infer, std::move(moves)};
  kernel::add_checked(registry, name, since_version, inputs, std::move(infer), std::move(evaluate),
                      std::move(attributes), outputs);
}

}  // namespace tessera::ops
