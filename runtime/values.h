// SPDX-License-Identifier: Apache-2.0
// The values of an artifact: constants as tensors, what comes in against what was declared, when a value is read last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "isa/program/artifact.h"
#include "ops/operator.h"
#include "runtime/device_array.h"

namespace tessera::runtime {

/// "float32 [1,3,224,224]" of a declared value and of a tensor, for messages.
std::string describe(const program::ValueInfo& info);
std::string describe(const ops::Value& value);

/// Throws Error kInvalidArgument naming both sides unless the value fits the declaration.
void check_input(const program::ValueInfo& info, const ops::Value& value);
void check_input(const program::ValueInfo& info, const DeviceArray& array);

/// The constant `index` of the artifact: a view of it where compiled code can read it in place, else a copy.
ops::Tensor constant_tensor(const program::Artifact& artifact, std::shared_ptr<const program::Artifact> owner,
                            int64_t index);

/// A kernel that gives another shape than the artifact declares must not reach compiled code. Errors: kInvalidArtifact.
void check_operand(const program::ValueInfo& info, const ops::Value& value, const std::string& who);

/// Calls f(id) for each value that a step reads, those of its bodies aside.
void each_read(const program::Step& step, const std::function<void(int64_t)>& f);

/// The step that reads a value of the plan last, its bodies counted in; the number of steps where it is a result.
std::unordered_map<int64_t, size_t> last_reads(const program::Artifact& artifact, const program::Plan& plan);

}  // namespace tessera::runtime
