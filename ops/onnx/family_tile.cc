// SPDX-License-Identifier: Apache-2.0
// Kernels of the NPU inside of a model: a node holds the artifact of one (compiler/tile), which says the types and
// shapes of its operands too. No plain meaning is here; a device runs the program.
#include "ops/kernels/elementwise_kernel.h"

namespace tessera::ops {

namespace {

/// Types and shapes as the node's attributes have them: element types, and all extents one after the other by ranks.
std::vector<TypeInfo> listed(const Node& node, const std::string& side) {
  const std::vector<int64_t> types = node.get_ints(side + "_types"), ranks = node.get_ints(side + "_ranks"),
                             extents = node.get_ints(side + "_extents");
  std::vector<TypeInfo> out;
  size_t at = 0;
  if (types.size() != ranks.size()) node.fail(ErrorCode::kInvalidModel, "its " + side + "s are not listed whole");
  for (size_t i = 0; i < types.size(); ++i) {
    const auto rank = static_cast<size_t>(ranks[i]);
    if (ranks[i] < 0 || at + rank > extents.size())
      node.fail(ErrorCode::kInvalidModel, "its " + side + "s are not listed whole");
    out.push_back(TypeInfo::tensor(
        static_cast<DType>(types[i]),
        Shape(extents.begin() + static_cast<int64_t>(at), extents.begin() + static_cast<int64_t>(at + rank))));
    at += rank;
  }
  return out;
}

void infer_kernel(InferContext& c) {
  const std::vector<TypeInfo> inputs = listed(c.node, "input"), outputs = listed(c.node, "output");
  if (inputs.size() != c.inputs.size() || outputs.size() != c.outputs.size() ||
      c.node.get_tensor("artifact") == nullptr)
    c.node.fail(ErrorCode::kInvalidModel, "a kernel for " + std::to_string(inputs.size()) + " inputs and " +
                                              std::to_string(outputs.size()) + " outputs; embed it again");
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TypeInfo& given = c.input(i);
    const bool same = given.dtype == inputs[i].dtype && (!given.ranked || given.shape == inputs[i].shape);
    if (!same)
      c.node.fail(ErrorCode::kInvalidModel,
                  "input " + std::to_string(i) + " is " + std::string(to_string(given.dtype)) + to_string(given.shape) +
                      ", and the kernel was built for " + std::string(to_string(inputs[i].dtype)) +
                      to_string(inputs[i].shape) + "; embed it again for these shapes");
  }
  for (size_t i = 0; i < outputs.size(); ++i) c.outputs[i] = outputs[i];
}

void evaluate_kernel(EvalContext& c) {
  c.node.fail(ErrorCode::kUnsupported,
              "a kernel of the NPU has no meaning for the interpreter; run it on a device, "
              "for example --device fsim");
}

}  // namespace

void register_tile(Registry& r) {
  OperatorDef def = kernel::operator_def("ai.tessera", "Kernel", 1, {1, -1}, infer_kernel, evaluate_kernel,
                                         {"alone", "artifact", "artifact_bytes", "name", "input_types", "input_ranks",
                                          "input_extents", "output_types", "output_ranks", "output_extents"},
                                         1, {1, -1});
  def.deterministic = false;  // not folded
  r.add(std::move(def));
}

}  // namespace tessera::ops
