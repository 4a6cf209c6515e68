// SPDX-License-Identifier: Apache-2.0
// For each device axis one table maps its index to an offset in the host tensor; an element's host offset is the sum of
// four. Along an axis that grows the device has places for more elements than there are: they map to nothing.
#include "runtime/layout.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/error.h"

namespace tessera::runtime {

int64_t largest_extent(const program::DeviceTensor& device, const ops::Shape& shape) {
  const auto growing = static_cast<size_t>(device.growing_axis);
  int64_t extent =
      std::array<int64_t, 4>{device.n, device.h, device.w, device.c}[static_cast<size_t>(device.axes[growing])];
  for (size_t axis = 0; axis < shape.size(); ++axis)
    if (axis != growing && device.axes[axis] == device.axes[growing]) extent /= shape[axis];
  return extent;
}

namespace {

constexpr int64_t kNowhere = -1;

struct Map {
  std::array<std::vector<int64_t>, 4> offset;  // elements of the host tensor, by index along the device axis
  int64_t width = 1;
  bool dense_channels = true;  // channels are neighbours in the host tensor
  bool whole = true;           // every place has an element
};

Map make_map(const program::DeviceTensor& device, const ops::Shape& shape, int64_t width) {
  const std::array<int64_t, 4> extents = {device.n, device.h, device.w, device.c};
  if (device.axes.size() != shape.size())
    throw Error(ErrorCode::kInternal, "a device tensor and its value differ in rank");
  std::vector<int64_t> stride(shape.size());
  int64_t step = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    stride[i] = step;
    step *= shape[i];
  }
  Map map;
  map.width = width;
  for (size_t d = 0; d < 4; ++d) {
    std::vector<int64_t>& table = map.offset[d];
    table = {0};
    for (size_t axis = 0; axis < shape.size(); ++axis) {
      if (device.axes[axis] != static_cast<int64_t>(d)) continue;
      const int64_t extent =
          device.growing_axis == static_cast<int64_t>(axis) ? largest_extent(device, shape) : shape[axis];
      std::vector<int64_t> next;
      next.reserve(table.size() * static_cast<size_t>(extent));
      for (int64_t base : table)
        for (int64_t i = 0; i < extent; ++i)
          next.push_back(base == kNowhere || i >= shape[axis] ? kNowhere : base + i * stride[axis]);
      map.whole = map.whole && extent == shape[axis];
      table = std::move(next);
    }
    if (static_cast<int64_t>(table.size()) != extents[d] ||
        (device.growing_axis >= 0 && shape[static_cast<size_t>(device.growing_axis)] > largest_extent(device, shape)))
      throw Error(ErrorCode::kInvalidArgument,
                  "a tensor of shape " + ops::to_string(shape) + " does not fit its place on the device");
  }
  const auto& c = map.offset[3];
  for (size_t i = 0; i < c.size(); ++i) map.dense_channels = map.dense_channels && c[i] == static_cast<int64_t>(i);
  return map;
}

/// Element by element, where places have none.
template <typename T, bool kPack>
void copy_growing(const Map& map, const program::DeviceTensor& device, auto* host, auto* arena) {
  for (int64_t n = 0; n < device.n; ++n)
    for (int64_t h = 0; h < device.h; ++h)
      for (int64_t w = 0; w < device.w; ++w) {
        auto* pixel = arena + n * device.image_pitch + h * device.row_pitch + w * device.pixel_pitch;
        const int64_t from[3] = {map.offset[0][static_cast<size_t>(n)], map.offset[1][static_cast<size_t>(h)],
                                 map.offset[2][static_cast<size_t>(w)]};
        const bool outside = from[0] == kNowhere || from[1] == kNowhere || from[2] == kNowhere;
        for (int64_t c = 0; c < device.c; ++c) {
          const int64_t channel = map.offset[3][static_cast<size_t>(c)];
          auto* place = pixel + c * static_cast<int64_t>(sizeof(T));
          if (outside || channel == kNowhere) {
            if constexpr (kPack) std::memset(place, device.fill, sizeof(T));
            continue;
          }
          auto* element = host + (from[0] + from[1] + from[2] + channel) * static_cast<int64_t>(sizeof(T));
          if constexpr (kPack)
            std::memcpy(place, element, sizeof(T));
          else
            std::memcpy(element, place, sizeof(T));
        }
      }
}

template <typename T, bool kPack>
void copy_plain(const Map& map, const program::DeviceTensor& device, auto* host, auto* arena) {
  if (!map.whole) return copy_growing<T, kPack>(map, device, host, arena);
  for (int64_t n = 0; n < device.n; ++n)
    for (int64_t h = 0; h < device.h; ++h)
      for (int64_t w = 0; w < device.w; ++w) {
        auto* pixel = arena + n * device.image_pitch + h * device.row_pitch + w * device.pixel_pitch;
        const int64_t from = map.offset[0][static_cast<size_t>(n)] + map.offset[1][static_cast<size_t>(h)] +
                             map.offset[2][static_cast<size_t>(w)];
        if (map.dense_channels) {
          if constexpr (kPack)
            std::memcpy(pixel, host + from * static_cast<int64_t>(sizeof(T)),
                        static_cast<size_t>(device.c) * sizeof(T));
          else
            std::memcpy(host + from * static_cast<int64_t>(sizeof(T)), pixel,
                        static_cast<size_t>(device.c) * sizeof(T));
          continue;
        }
        const int64_t* channel = map.offset[3].data();
        for (int64_t c = 0; c < device.c; ++c) {
          auto* element = host + (from + channel[c]) * static_cast<int64_t>(sizeof(T));
          if constexpr (kPack)
            std::memcpy(pixel + c * static_cast<int64_t>(sizeof(T)), element, sizeof(T));
          else
            std::memcpy(element, pixel + c * static_cast<int64_t>(sizeof(T)), sizeof(T));
        }
      }
}

template <bool kPack>
void copy(const Map& map, const program::DeviceTensor& device, auto* host, auto* arena) {
  switch (map.width) {
    case 1: return copy_plain<uint8_t, kPack>(map, device, host, arena);
    case 2: return copy_plain<uint16_t, kPack>(map, device, host, arena);
    case 4: return copy_plain<uint32_t, kPack>(map, device, host, arena);
    case 8: return copy_plain<uint64_t, kPack>(map, device, host, arena);
    default: throw Error(ErrorCode::kInternal, "element type without a device layout");
  }
}

}  // namespace

std::vector<int64_t> strides_of(const program::DeviceTensor& device, const ops::Shape& shape) {
  const int64_t width = std::max<int64_t>(1, program::dtype_bits(device.dtype) / 8);
  std::array<int64_t, 4> step = {device.image_pitch, device.row_pitch, device.pixel_pitch, width};
  std::vector<int64_t> strides(shape.size(), 0);
  for (size_t axis = shape.size(); axis-- > 0;) {
    const bool grows = device.growing_axis == static_cast<int64_t>(axis);
    if (!grows && shape[axis] == 1) continue;
    int64_t& next = step[static_cast<size_t>(device.axes[axis])];
    strides[axis] = next;
    next *= grows ? largest_extent(device, shape) : shape[axis];
  }
  return strides;
}

Extent extent(const program::DeviceTensor& device) {
  const int64_t width = std::max<int64_t>(1, program::dtype_bits(device.dtype) / 8);
  const int64_t first = static_cast<int64_t>(device.offset) - device.border_top * device.row_pitch -
                        device.border_left * device.pixel_pitch;
  const int64_t last = static_cast<int64_t>(device.offset) + (device.n - 1) * device.image_pitch +
                       (device.h - 1 + device.border_bottom) * device.row_pitch +
                       (device.w - 1 + device.border_right) * device.pixel_pitch +
                       std::max(device.c, device.padded_c) * width;
  return {static_cast<uint64_t>(first), static_cast<uint64_t>(last - first)};
}

void pack(const ops::Tensor& tensor, const program::DeviceTensor& device, std::span<uint8_t> arena) {
  if (static_cast<int>(tensor.dtype()) != static_cast<int>(device.dtype))
    throw Error(ErrorCode::kInvalidArgument, "a tensor of " + std::string(ops::to_string(tensor.dtype())) +
                                                 " where the device takes " +
                                                 std::string(program::dtype_name(device.dtype)));
  const Map map = make_map(device, tensor.shape(), ops::element_bytes(tensor.dtype()));
  uint8_t* const origin = arena.data() + device.offset;
  const bool border = device.border_top || device.border_left || device.border_bottom || device.border_right;
  if (border || device.padded_c > device.c) {
    const int64_t begin = device.c * map.width, end = std::max(device.padded_c, device.c) * map.width;
    for (int64_t n = 0; n < device.n; ++n)
      for (int64_t h = -device.border_top; h < device.h + device.border_bottom; ++h)
        for (int64_t w = -device.border_left; w < device.w + device.border_right; ++w) {
          uint8_t* pixel = origin + n * device.image_pitch + h * device.row_pitch + w * device.pixel_pitch;
          const bool inside = h >= 0 && h < device.h && w >= 0 && w < device.w;
          std::memset(pixel + (inside ? begin : 0), device.border_value,
                      static_cast<size_t>(end - (inside ? begin : 0)));
        }
  }
  copy<true>(map, device, reinterpret_cast<const uint8_t*>(tensor.data()), origin);
}

ops::Tensor unpack(const program::DeviceTensor& device, const ops::Shape& shape, std::span<const uint8_t> arena) {
  ops::Tensor tensor(static_cast<ops::DType>(device.dtype), shape);
  const Map map = make_map(device, shape, ops::element_bytes(tensor.dtype()));
  copy<false>(map, device, reinterpret_cast<uint8_t*>(tensor.mutable_data()), arena.data() + device.offset);
  return tensor;
}

}  // namespace tessera::runtime
