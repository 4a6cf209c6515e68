// SPDX-License-Identifier: Apache-2.0
// Constant weights that LOAD unpacks from 4 bits (isa/semantics.md, "Packed weights"). Enters: a weight source and a
// nest. Leaves: whether each row of each entry of WGT is a scale of 1 to 16 times weights of -8 to 7, and the bytes of
// an entry. Nothing is rounded here: weights that are no such products stay in 8 bits.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/npu/tasks/task.h"
#include "isa/config.h"

namespace tessera::npu {

/// The values of the entry of WGT at a position of a dense nest: block_out rows of block_in weights.
std::vector<int8_t> entry_of(const WeightSource& source, const schedule::Nest& nest, const schedule::Extents& at,
                             const isa::MachineConfig& config);

/// The scale with which a row of weights packs, the largest that does; 0 when none does.
int row_scale(const int8_t* weights, int count);

/// Whether all weights of a nest can be packed.
bool packs(const WeightSource& source, const schedule::Nest& nest, const isa::MachineConfig& config);

/// Appends the packed bytes of an entry, all rows of which have a scale.
void pack_entry(const std::vector<int8_t>& entry, const isa::MachineConfig& config, std::vector<uint8_t>& bytes);

}  // namespace tessera::npu
