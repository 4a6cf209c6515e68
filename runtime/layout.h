// SPDX-License-Identifier: Apache-2.0
// Moves a host tensor into the device's layout and back: a row-major tensor of any rank against NHWC bytes with
// pitches, border and merged axes, as program::DeviceTensor describes.
#pragma once

#include <cstdint>
#include <span>

#include "isa/program/artifact.h"
#include "ops/tensor.h"

namespace tessera::runtime {

/// Writes `tensor`, its border and its channel padding into the arena's bytes.
/// Errors: kInvalidArgument if element type or element count differ from the description.
void pack(const ops::Tensor& tensor, const program::DeviceTensor& device, std::span<uint8_t> arena);

/// Reads a value of `shape` out of the arena's bytes.
ops::Tensor unpack(const program::DeviceTensor& device, const ops::Shape& shape, std::span<const uint8_t> arena);

/// Places along the axis that grows, of a value of `shape` elsewhere.
int64_t largest_extent(const program::DeviceTensor& device, const ops::Shape& shape);

/// Bytes from an element to the next along each axis of a value of `shape`; 0 along axes of extent 1.
std::vector<int64_t> strides_of(const program::DeviceTensor& device, const ops::Shape& shape);

/// First byte and number of bytes that the tensor (border included) occupies in the arena.
struct Extent {
  uint64_t offset = 0, bytes = 0;
};
Extent extent(const program::DeviceTensor& device);

}  // namespace tessera::runtime
