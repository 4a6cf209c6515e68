// SPDX-License-Identifier: Apache-2.0
// Suppression of overlapping boxes, and SSD's custom operator that ends in it.
#include <cmath>

#include "compiler/litert/build.h"
#include "compiler/litert/flexbuffer.h"

namespace tessera::litert {
namespace {

using ops::DType;

/// V4 gives indices and their number, V5 scores between, and suppresses softly.
void convert_suppression(Op& op) {
  const bool soft = op.code() == BuiltinOperator::kNonMaxSuppressionV5;
  const auto number = [&](size_t i) { return op.reshape(op.real(i), {}); };
  const Value sigma = soft ? number(5) : op.scalar(DType::kFloat, 0);
  const Values results = op.nodes(
      "NonMaxSuppression", {op.real(0), op.real(1), op.reshape(int64_value(op, 2), {}), number(3), number(4), sigma},
      {}, 3, kDomain);
  op.give(0, results[0]);
  if (soft) op.give(1, results[1]);
  op.give(soft ? 2 : 1, results[2]);
}

void convert_detection(Op& op) {
  const std::map<std::string, double> options = read_numbers(op.info().custom_options);
  Attributes attributes;
  const auto whole = [&](const char* name, double fallback) {
    const auto found = options.find(name);
    const double value = found == options.end() ? fallback : found->second;
    if (!(std::abs(value) < 1e9)) op.refuse(std::string("option ") + name + " is no size", ErrorCode::kInvalidModel);
    attributes[name] = static_cast<int64_t>(value);
  };
  const auto real = [&](const char* name) {
    const auto found = options.find(name);
    if (found == options.end()) op.refuse(std::string("option ") + name + " is missing", ErrorCode::kInvalidModel);
    attributes[name] = static_cast<float>(found->second);
  };
  for (const char* name : {"max_detections", "num_classes"}) whole(name, 0);
  whole("max_classes_per_detection", 1);
  whole("detections_per_class", 100);
  whole("use_regular_nms", 0);
  for (const char* name : {"nms_score_threshold", "nms_iou_threshold", "y_scale", "x_scale", "h_scale", "w_scale"})
    real(name);
  const Values results = op.nodes("DetectionPostProcess", {op.real(0), op.real(1), op.real(2)}, attributes, 4, kDomain);
  for (size_t i = 0; i < 4; ++i) op.give(i, results[i]);
}

}  // namespace

void register_detection(Conversions& conversions) {
  conversions.add(BuiltinOperator::kNonMaxSuppressionV4, convert_suppression);
  conversions.add(BuiltinOperator::kNonMaxSuppressionV5, convert_suppression);
  conversions.add("TFLite_Detection_PostProcess", convert_detection);
}

}  // namespace tessera::litert
