// SPDX-License-Identifier: Apache-2.0
// Kernels of tessera.tile that a node of a model holds.
#pragma once

#include <optional>
#include <vector>

#include "compiler/partition/claims.h"
#include "isa/program/artifact.h"
#include "ops/operator.h"

namespace tessera::partition {

/// The artifacts of a node ai.tessera::Kernel: one for each way in which its tensors may lie, the first of which serves
/// where it runs alone. Errors: kInvalidModel, those of program::parse.
std::vector<program::Artifact> kernels_of(const ops::Node& node);

/// Nothing where a kernel stays a program of its own: its waits are placed by hand, a tensor of its own type is wider
/// than another, or no form has inputs without gaps.
std::optional<Claim> claim_kernel(nn::NodeOp op);

}  // namespace tessera::partition
