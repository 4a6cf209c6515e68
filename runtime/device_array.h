// SPDX-License-Identifier: Apache-2.0
// Tensors that stay in the memory of a device. Enters: memory of a device and how a tensor lies in it. Leaves: a value
// that can be copied, outlives the session that made it, and becomes a host tensor when somebody asks. Several arrays
// may share their memory: what a decoder has left of its past is the first part of what its next run leaves.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "driver/device.h"
#include "isa/program/artifact.h"
#include "ops/tensor.h"

namespace tessera::runtime {

/// An allocation, freed with its last user. Runs that append to it tell so, because they may overwrite what an array
/// holds.
class DeviceMemory {
 public:
  /// Errors: kDoesNotFit.
  DeviceMemory(std::shared_ptr<driver::Device> device, uint64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  uint64_t address() const { return address_; }
  uint64_t bytes() const { return bytes_; }
  driver::Device& device() const { return *device_; }

  /// A run writes behind the first `length` elements. Returns the number of that write.
  uint64_t append(int64_t length);
  /// How many of the first `length` elements still are what they were at write `number`.
  int64_t intact(uint64_t number, int64_t length) const;

 private:
  std::shared_ptr<driver::Device> device_;
  uint64_t address_ = 0, bytes_ = 0;
  mutable std::mutex mutex_;
  uint64_t writes_ = 0;
  std::vector<std::pair<uint64_t, int64_t>> cuts_;  // writes and where they began, both rising
};

/// A tensor in device memory.
struct DeviceArray {
  std::shared_ptr<DeviceMemory> memory;
  program::DeviceTensor layout;  // `offset` from the memory's start; value and base have no meaning
  ops::DType dtype = ops::DType::kUndefined;
  ops::Shape shape;
  uint64_t write = 0;  // of a memory that runs append to: the last write that it knows
  std::string name;    // of the output that it was

  /// Errors: kInvalidArgument when a later run has overwritten a part of it, kIo of the device.
  ops::Tensor to_host() const;
  /// Throws kInvalidArgument when a later run has overwritten a part of it.
  void check_intact() const;
};

/// "float32 [1,3,224,224]", for messages.
std::string describe(const DeviceArray& array);

/// The tensor copied to memory of its own, densely.
DeviceArray to_device(const std::shared_ptr<driver::Device>& device, const ops::Tensor& tensor,
                      const std::string& name);

/// Whether tensors of both layouts have the same bytes.
bool same_layout(const program::DeviceTensor& a, const program::DeviceTensor& b);

}  // namespace tessera::runtime
