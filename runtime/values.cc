// SPDX-License-Identifier: Apache-2.0
#include "runtime/values.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "runtime/buffer_pool.h"

namespace tessera::runtime {

namespace {

bool fits(const program::ValueInfo& info, const ops::Shape& shape) {
  return std::equal(shape.begin(), shape.end(), info.shape.begin(), info.shape.end(),
                    [](int64_t have, int64_t want) { return want < 0 || have == want; });
}

}  // namespace

ops::Tensor constant_tensor(const program::Artifact& artifact, std::shared_ptr<const program::Artifact> owner,
                            int64_t index) {
  const program::ConstantInfo& info = artifact.constants[static_cast<size_t>(index)];
  const auto dtype = static_cast<ops::DType>(info.dtype);
  if (dtype == ops::DType::kString) {
    ops::Tensor tensor(dtype, info.shape);
    tensor.mutable_strings() = info.strings;
    return tensor;
  }
  const auto* data = reinterpret_cast<const std::byte*>(artifact.constant_blob.data() + info.offset);
  if (program::dtype_bits(info.dtype) == 4) {
    ops::Tensor tensor(dtype, info.shape);
    for (int64_t i = 0; i < tensor.size(); ++i) {
      const int nibble = static_cast<int>(data[i / 2]) >> (i % 2 * 4) & 15;
      tensor.mutable_data()[i] =
          static_cast<std::byte>(dtype == ops::DType::kInt4 && nibble > 7 ? nibble - 16 : nibble);
    }
    return tensor;
  }
  if (reinterpret_cast<uintptr_t>(data) % 64 != 0) {
    const auto bytes = static_cast<size_t>(ops::element_count(info.shape) * ops::element_bytes(dtype));
    std::shared_ptr<std::byte> copy = BufferPool().acquire(bytes);
    std::memcpy(copy.get(), data, bytes);
    const std::byte* moved = copy.get();
    return ops::Tensor::view(dtype, info.shape, std::move(copy), moved);
  }
  return ops::Tensor::view(dtype, info.shape, std::move(owner), data);
}

std::string describe(const program::ValueInfo& info) {
  const auto dtype = std::string(ops::to_string(static_cast<ops::DType>(info.dtype)));
  if (!info.ranked) return dtype + " of any shape";
  std::string text = dtype + " [";
  for (size_t i = 0; i < info.shape.size(); ++i) {
    if (i) text += ",";
    const bool named = i < info.dim_names.size() && !info.dim_names[i].empty();
    text += info.shape[i] >= 0 ? std::to_string(info.shape[i]) : named ? info.dim_names[i] : "?";
  }
  return text + "]";
}

std::string describe(const ops::Value& value) {
  if (value.kind == ops::Value::Kind::kNone) return "nothing";
  if (value.kind == ops::Value::Kind::kSequence) return "a sequence of " + std::to_string(value.sequence.size());
  return std::string(ops::to_string(value.tensor.dtype())) + " " + ops::to_string(value.tensor.shape());
}

void check_input(const program::ValueInfo& info, const ops::Value& value) {
  const auto refuse = [&](const std::string& hint) {
    throw Error(ErrorCode::kInvalidArgument,
                "input '" + info.name + "': the model takes " + describe(info) + ", got " + describe(value) + hint);
  };
  if (info.kind != program::ValueKind::kTensor) {
    if (info.kind == program::ValueKind::kSequence && value.kind != ops::Value::Kind::kSequence) refuse("");
    return;
  }
  if (value.kind != ops::Value::Kind::kTensor) refuse("");
  const ops::Tensor& t = value.tensor;
  if (static_cast<int>(t.dtype()) != static_cast<int>(info.dtype))
    refuse("; convert the array, for example with astype('" +
           std::string(ops::to_string(static_cast<ops::DType>(info.dtype))) + "')");
  if (!info.ranked) return;
  if (!fits(info, t.shape())) refuse("");
}

void check_input(const program::ValueInfo& info, const DeviceArray& array) {
  if (info.kind == program::ValueKind::kTensor && static_cast<int>(array.dtype) == static_cast<int>(info.dtype) &&
      (!info.ranked || fits(info, array.shape)))
    return;
  throw Error(ErrorCode::kInvalidArgument, "input '" + info.name + "': the model takes " + describe(info) +
                                               ", got a device tensor of " + describe(array));
}

void check_operand(const program::ValueInfo& info, const ops::Value& value, const std::string& who) {
  if (value.kind == ops::Value::Kind::kTensor &&
      static_cast<int>(value.tensor.dtype()) == static_cast<int>(info.dtype) && fits(info, value.tensor.shape()))
    return;
  throw Error(ErrorCode::kInvalidArtifact,
              who + " was compiled for " + describe(info) + " as '" + info.name + "', got " + describe(value));
}

void each_read(const program::Step& step, const std::function<void(int64_t)>& f) {
  if (const auto* kernel = std::get_if<program::KernelStep>(&step)) {
    for (int64_t id : kernel->inputs) f(id);
  } else if (const auto* compiled = std::get_if<program::CodeStep>(&step)) {
    for (int64_t id : compiled->inputs) f(id);
  } else {
    for (const program::DeviceTensor& d : std::get<program::NpuStep>(step).inputs) f(d.value);
  }
}

std::unordered_map<int64_t, size_t> last_reads(const program::Artifact& artifact, const program::Plan& plan) {
  std::unordered_map<int64_t, size_t> last;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    each_read(plan.steps[i], [&](int64_t id) { last[id] = i; });
    const auto* kernel = std::get_if<program::KernelStep>(&plan.steps[i]);
    if (kernel == nullptr) continue;
    for (const program::Attribute& a : kernel->attributes) {
      if (a.kind != program::Attribute::kPlan) continue;
      for (int64_t id : artifact.plans[static_cast<size_t>(a.plan)].captured) last[id] = i;
    }
  }
  for (int64_t id : plan.outputs) last[id] = plan.steps.size();
  return last;
}

}  // namespace tessera::runtime
