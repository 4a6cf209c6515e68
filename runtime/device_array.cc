// SPDX-License-Identifier: Apache-2.0
// Memory of devices with its lifetime, and the way back to the host.
#include "runtime/device_array.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "runtime/layout.h"

namespace tessera::runtime {

DeviceMemory::DeviceMemory(std::shared_ptr<driver::Device> device, uint64_t bytes)
    : device_(std::move(device)), bytes_(std::max<uint64_t>(bytes, 64)) {
  address_ = device_->allocate(bytes_);
}

DeviceMemory::~DeviceMemory() {
  try {
    device_->free(address_);
  } catch (const Error&) {
  }
}

uint64_t DeviceMemory::append(int64_t length) {
  const std::lock_guard lock(mutex_);
  // An earlier write that began further up says nothing that this one does not.
  while (!cuts_.empty() && cuts_.back().second >= length) cuts_.pop_back();
  cuts_.emplace_back(++writes_, length);
  return writes_;
}

int64_t DeviceMemory::intact(uint64_t number, int64_t length) const {
  const std::lock_guard lock(mutex_);
  const auto later =
      std::upper_bound(cuts_.begin(), cuts_.end(), number, [](uint64_t n, const auto& cut) { return n < cut.first; });
  return later == cuts_.end() ? length : std::min(length, later->second);
}

void DeviceArray::check_intact() const {
  if (layout.growing_axis < 0) return;
  const int64_t length = shape[static_cast<size_t>(layout.growing_axis)];
  const int64_t left = memory->intact(write, length);
  if (left == length) return;
  throw Error(ErrorCode::kInvalidArgument, "device tensor '" + name + "' of length " + std::to_string(length) +
                                               ": a later run has written over what "
                                               "stands behind its first " +
                                               std::to_string(left) +
                                               "; copy it to the host before, or start from a past of its own");
}

ops::Tensor DeviceArray::to_host() const {
  check_intact();
  const Extent e = extent(layout);
  std::vector<uint8_t> bytes(e.offset + e.bytes);
  memory->device().read(memory->address() + e.offset, std::span(bytes).subspan(e.offset, e.bytes));
  return unpack(layout, shape, bytes);
}

std::string describe(const DeviceArray& array) {
  return std::string(ops::to_string(array.dtype)) + " " + ops::to_string(array.shape);
}

DeviceArray to_device(const std::shared_ptr<driver::Device>& device, const ops::Tensor& tensor,
                      const std::string& name) {
  DeviceArray array;
  array.dtype = tensor.dtype();
  array.shape = tensor.shape();
  array.name = name;
  array.layout.dtype = static_cast<program::DType>(tensor.dtype());
  array.layout.axes.assign(tensor.shape().size(), 3);
  array.layout.c = array.layout.padded_c = tensor.size();
  const auto bytes = static_cast<size_t>(tensor.bytes());
  if (program::dtype_bits(array.layout.dtype) % 8 != 0 || program::dtype_bits(array.layout.dtype) == 0)
    throw Error(ErrorCode::kUnsupported, "'" + name + "' of type " + std::string(ops::to_string(tensor.dtype())) +
                                             " has no place in device memory; bind it to the host");
  array.memory = std::make_shared<DeviceMemory>(device, bytes);
  if (bytes != 0) device->write(array.memory->address(), {reinterpret_cast<const uint8_t*>(tensor.data()), bytes});
  return array;
}

bool same_layout(const program::DeviceTensor& a, const program::DeviceTensor& b) {
  const auto dense = [](const program::DeviceTensor& t) {
    return t.border_top == 0 && t.border_left == 0 && t.border_bottom == 0 && t.border_right == 0 &&
           t.padded_c == t.c && t.growing_axis < 0;
  };
  return dense(a) && dense(b) && a.dtype == b.dtype && a.n == b.n && a.h == b.h && a.w == b.w && a.c == b.c &&
         a.axes == b.axes && (a.n == 1 || a.image_pitch == b.image_pitch) && (a.h == 1 || a.row_pitch == b.row_pitch) &&
         (a.w == 1 || a.pixel_pitch == b.pixel_pitch);
}

}  // namespace tessera::runtime
