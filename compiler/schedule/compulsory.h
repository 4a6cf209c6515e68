// SPDX-License-Identifier: Apache-2.0
// What a nest must at least compute and move, however it is cut into tiles: steps of GEMM, issues of the vector unit,
// and bytes of each operand that come or go once. Bounds of tiles and of whole nests are made of these.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "compiler/schedule/counts.h"

namespace tessera::schedule::compulsory {

int64_t product(const Extents& extents, std::initializer_list<Dim> dims);
int64_t entries_of(const Extents& extents);
int64_t taps_of(const Extents& extents);

/// Steps of GEMM for a part of the nest in tiles.
int64_t gemm_steps(const Nest& nest, const Extents& part, const Extents& tile);

/// Issues of the vector unit for a part of the nest in so many pieces of its window.
int64_t alu_issues(const Nest& nest, const isa::MachineConfig& config, const Extents& part, int64_t pieces);

/// Bytes of the groups that a pixel's channels take in a scratchpad: runs do not share groups where entries are not
/// full, or where segments lie apart.
int64_t pixel_bytes(const ChannelMap& map, const Access& access, int64_t width, int64_t batch);

/// Bytes of the beats that a pixel takes at least when it is loaded, where neighbouring columns lie `step` bytes apart:
/// runs that begin in the beat in which the run before ends share it, and may share even bytes.
int64_t loaded_bytes(const ChannelMap& map, const Access& access, int64_t width, int64_t batch, int64_t step);

/// Bytes of something that is moved: of the groups in the scratchpad, and of the beats on the bus.
struct Moved {
  int64_t groups = 0, bus = 0;
  Moved operator+(const Moved& other) const { return {groups + other.groups, bus + other.bus}; }
};
inline Moved both(int64_t bytes) { return {bytes, bytes}; }

/// What an operand beside the input takes, fetched or stored once.
Moved out_once(const Nest& nest, const Access& access, const isa::MachineConfig& config);
Moved second_once(const Nest& nest, const isa::MachineConfig& config);
Moved weights_once(const Nest& nest, const Intrinsic& intrinsic, const isa::MachineConfig& config);
Moved params_once(const Nest& nest, const Intrinsic& intrinsic, const isa::MachineConfig& config);

/// Biases of zero that stand in PARAM are not fetched: of an entry the scales alone are certain.
int64_t param_bytes(const Footprint& of, const isa::MachineConfig& config);

}  // namespace tessera::schedule::compulsory
