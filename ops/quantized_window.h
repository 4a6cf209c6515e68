// SPDX-License-Identifier: Apache-2.0
// Sliding windows of the quantised convolution and pooling: from the attributes kernel_shape, strides, dilations, pads,
// auto_pad and ceil_mode of a node and the spatial extents of its input to pads and output extents. One to three
// spatial axes.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "ops/operator.h"

namespace tessera::ops::quantized {

struct Window {
  std::vector<int64_t> kernel, stride, dilation, pad_begin, pad_end;  // per spatial axis
  std::string auto_pad;
  bool ceil_mode = false;

  /// Reads the attributes; `kernel` is the shape of the window. Throws through node.fail() for what the standard
  /// forbids.
  Window(const Node& node, std::vector<int64_t> kernel_extents) : kernel(std::move(kernel_extents)) {
    const size_t rank = kernel.size();
    auto list = [&](const char* name) {
      std::vector<int64_t> values = node.get_ints(name);
      if (values.empty()) values.assign(rank, 1);
      if (values.size() != rank || *std::min_element(values.begin(), values.end()) < 1)
        node.fail(ErrorCode::kInvalidModel,
                  std::string("attribute '") + name + "' must have " + std::to_string(rank) + " positive entries");
      return values;
    };
    stride = list("strides");
    dilation = list("dilations");
    auto_pad = node.get_string("auto_pad", "NOTSET");
    if (auto_pad.empty()) auto_pad = "NOTSET";
    if (auto_pad != "NOTSET" && auto_pad != "VALID" && auto_pad != "SAME_UPPER" && auto_pad != "SAME_LOWER")
      node.fail(ErrorCode::kInvalidModel, "auto_pad '" + auto_pad + "' is unknown");
    ceil_mode = node.get_int("ceil_mode", 0) != 0;
    std::vector<int64_t> pads = node.get_ints("pads");
    if (pads.empty() || auto_pad != "NOTSET") pads.assign(2 * rank, 0);
    if (pads.size() != 2 * rank || *std::min_element(pads.begin(), pads.end()) < 0)
      node.fail(ErrorCode::kInvalidModel,
                "attribute 'pads' must have " + std::to_string(2 * rank) + " entries, none negative");
    pad_begin.assign(pads.begin(), pads.begin() + static_cast<int64_t>(rank));
    pad_end.assign(pads.begin() + static_cast<int64_t>(rank), pads.end());
    for (int64_t extent : kernel)
      if (extent < 1) node.fail(ErrorCode::kInvalidModel, "a window extent is below 1");
  }

  /// Output extent along axis d for `input` elements, -1 when it is unknown. Sets the pads of auto_pad SAME.
  int64_t output(const Node& node, size_t d, int64_t input) {
    if (input < 0) return -1;
    const int64_t span = dilation[d] * (kernel[d] - 1) + 1;
    if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
      const int64_t out = (input + stride[d] - 1) / stride[d];
      const int64_t total = std::max<int64_t>(0, (out - 1) * stride[d] + span - input);
      pad_begin[d] = auto_pad == "SAME_LOWER" ? (total + 1) / 2 : total / 2;
      pad_end[d] = total - pad_begin[d];
      return out;
    }
    const int64_t room = input + pad_begin[d] + pad_end[d] - span;
    if (room < 0) {
      node.fail(ErrorCode::kInvalidModel, "a window of " + std::to_string(span) + " does not fit the padded extent " +
                                              std::to_string(input + pad_begin[d] + pad_end[d]) + " of spatial axis " +
                                              std::to_string(d));
    }
    int64_t out = room / stride[d] + 1;
    if (ceil_mode && room % stride[d] != 0 && out * stride[d] < input + pad_begin[d])
      ++out;  // a last window that starts inside
    return out;
  }
};

}  // namespace tessera::ops::quantized
