// SPDX-License-Identifier: Apache-2.0
// Convolutions in terms of ConvInteger of one or two dimensions, which is what the NPU has. Enters: Conv or
// ConvTranspose of known shapes and constant weights. Leaves: weights, operand and attributes of ConvInteger, and how
// its result becomes theirs. Integers only move; places between weights take the weights' zero point.
//
// A transposed convolution of stride s adds tap s * t + r of the kernel to every result r modulo s. So each residue is
// a convolution with every s-th tap, in reversed order: its results are channels of one convolution, and move into
// place behind it. In three dimensions the planes that a kernel's depth meets become channels, and depth a batch.
#pragma once

#include <optional>

#include "compiler/nn/splitter.h"
#include "ops/kernels/window.h"

namespace tessera::nn {

class ConvolutionForm {
 public:
  /// Of Conv or ConvTranspose with operands of these shapes, of one to three dimensions. Nothing for others, and for
  /// pads below 0.
  static std::optional<ConvolutionForm> of(const ops::Node& node, const ops::Shape& x, const ops::Shape& w);

  /// Whether ConvInteger is the convolution as it is.
  bool is_plain() const { return !transposed_ && !is_deep(); }
  int64_t channels() const { return groups_ * filters_; }  // of the result
  /// Products that are added for one result.
  int64_t terms() const;
  const std::map<std::string, ops::Attribute>& attributes() const { return attributes_; }

  /// Weights as ConvInteger takes them. `zeros`: their zero point, one for all or for each filter.
  ops::Tensor weights(const ops::Tensor& w, const std::vector<int64_t>& zeros) const;
  /// One number for each filter of the weights as one for each channel of ConvInteger.
  std::vector<int64_t> by_channel(const std::vector<int64_t>& numbers) const;
  /// One number for each channel of the result as one for each channel of ConvInteger.
  template <typename Number>
  std::vector<Number> by_result(const std::vector<Number>& numbers) const {
    std::vector<Number> each;
    for (const Number& number : numbers) each.insert(each.end(), static_cast<size_t>(phases()), number);
    return each;
  }
  mlir::Value operand(Splitter& split, mlir::Value x, mlir::Value zero) const;
  mlir::Value result(Splitter& split, mlir::Value sum) const;

 private:
  bool is_deep() const { return extents_.size() == 3; }
  int64_t phases() const { return transposed_ ? ops::element_count(step_) : 1; }
  void set_attributes();

  bool transposed_ = false;
  int64_t batch_ = 0, groups_ = 1, each_ = 0, filters_ = 0;  // each: channels of a group; filters: likewise
  ops::Shape extents_, kernel_, result_;                     // spatial ones
  std::vector<int64_t> step_, spacing_;                      // of the node: strides and dilations
  std::vector<int64_t> strides_, dilations_, before_, after_, taps_, positions_, crop_;  // of ConvInteger
  std::map<std::string, ops::Attribute> attributes_;
};

}  // namespace tessera::nn
