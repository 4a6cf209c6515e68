// SPDX-License-Identifier: Apache-2.0
#include "compiler/partition/claims_kernel.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "compiler/partition/claims_util.h"
#include "isa/config.h"

namespace tessera::partition {

namespace {

using program::DeviceTensor;

/// Axes of a value from slowest to fastest.
graph::Order order_of(const DeviceTensor& tensor) {
  graph::Order order(tensor.axes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return tensor.axes[static_cast<size_t>(a)] < tensor.axes[static_cast<size_t>(b)];
  });
  return order;
}

int64_t bytes_of(const DeviceTensor& t) { return t.n * t.image_pitch; }

bool has_gaps(const DeviceTensor& t, int64_t element) { return t.pixel_pitch != t.c * element; }

/// A kernel's program as a form of its operation. Nothing where its tensors cannot lie among those of a graph.
std::optional<graph::Kernel::Form> form_of(const program::Artifact& artifact) {
  const auto& step = std::get<program::NpuStep>(artifact.plans[0].steps[0]);
  const program::NpuProgram& program = artifact.npu_programs[0];
  graph::Kernel::Form form;
  int64_t own = 0;  // where inputs end
  const auto element = [](const DeviceTensor& t) { return static_cast<int64_t>(program::dtype_bits(t.dtype)) / 8; };
  for (const DeviceTensor& t : step.inputs) {
    if (has_gaps(t, element(t))) return std::nullopt;
    form.operands.push_back(order_of(t));
    form.what.begins.push_back(static_cast<int64_t>(t.offset));
    form.what.ends.push_back(static_cast<int64_t>(t.offset) + bytes_of(t));
    own = std::max(own, (form.what.ends.back() + 63) / 64 * 64);
  }
  if (step.outputs.empty()) return std::nullopt;
  const int64_t size = element(step.outputs[0]);
  auto end = static_cast<int64_t>(program.arena_bytes);
  for (const DeviceTensor& t : step.outputs) {
    const auto offset = static_cast<int64_t>(t.offset);
    if (element(t) != size || offset < own) return std::nullopt;
    form.results.push_back({order_of(t), (offset - own) / size, t.pixel_pitch / size});
    // What it writes is the result and no more.
    if (step.outputs.size() == 1 && offset == own && (own + bytes_of(t) + 63) / 64 * 64 == end) end = own + bytes_of(t);
  }
  if (end <= own || (end - own) % size != 0) return std::nullopt;
  form.what.begins.push_back(own);
  form.what.ends.push_back(end);
  form.written = (end - own) / size;
  form.what.constants = artifact.device_constants;
  for (const program::Layer& layer : program.layers) {
    form.what.lines.push_back(layer.name + " " + layer.op);
    form.what.macs.push_back(static_cast<int64_t>(layer.macs));
    form.cycles += static_cast<int64_t>(layer.predicted_cycles);
  }
  std::vector<isa::Instruction> kept;
  const std::vector<isa::Instruction> all = program::instructions_of(program);
  for (size_t i = 0; i < all.size(); ++i) {
    if (std::holds_alternative<isa::Finish>(all[i]) || std::holds_alternative<isa::Fence>(all[i])) continue;
    if (program.layer_of_instruction[i] >= program.layers.size()) return std::nullopt;
    kept.push_back(all[i]);
    form.what.line_of.push_back(static_cast<int32_t>(program.layer_of_instruction[i]));
  }
  form.what.words = program::instruction_bytes(kept);
  return form;
}

}  // namespace

std::vector<program::Artifact> kernels_of(const ops::Node& node) {
  const ops::Tensor* held = node.get_tensor("artifact");
  if (held == nullptr) node.fail(ErrorCode::kInvalidModel, "it holds no kernel; embed it again");
  std::vector<int64_t> sizes = node.get_ints("artifact_bytes");
  if (sizes.empty()) sizes = {held->bytes()};
  if (std::any_of(sizes.begin(), sizes.end(), [](int64_t size) { return size < 0; }) ||
      std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) != held->bytes())
    node.fail(ErrorCode::kInvalidModel, "its kernels are not whole; embed it again");
  std::vector<program::Artifact> kernels;
  const auto* at = reinterpret_cast<const uint8_t*>(held->data());
  for (const int64_t size : sizes) {
    try {
      kernels.push_back(program::parse({at, static_cast<size_t>(size)}));
    } catch (const Error& error) {
      node.fail(error.code(), error.what());
    }
    at += size;
    const program::Artifact& kernel = kernels.back();
    if (kernel.npu_programs.size() != 1 || kernel.plans.size() != 1 || kernel.plans[0].steps.size() != 1 ||
        !std::holds_alternative<program::NpuStep>(kernel.plans[0].steps[0]))
      node.fail(ErrorCode::kInvalidModel, "its artifact is no kernel");
  }
  return kernels;
}

std::optional<Claim> claim_kernel(NodeOp op) {
  const ops::Node node = nn::to_node(op);
  if (node.get_int("alone", 0) != 0) return std::nullopt;
  graph::Kernel kernel;
  for (const program::Artifact& artifact : kernels_of(node)) {
    const std::string machine = isa::to_toml(artifact.config);
    if (!kernel.machine.empty() && kernel.machine != machine) return std::nullopt;
    kernel.machine = machine;
    auto form = form_of(artifact);
    if (form && form->operands.size() == op.getInputs().size() && form->results.size() == op.getOutputs().size())
      kernel.forms.push_back(std::move(*form));
  }
  if (kernel.forms.empty()) return std::nullopt;
  Claim claim = base_claim(op, {op.getInputs().begin(), op.getInputs().end()});
  claim.op.macs = npu::kNoMacs;  // its lines have them
  claim.op.what = std::move(kernel);
  return claim;
}

}  // namespace tessera::partition
